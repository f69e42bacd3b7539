//! The group in the simulator: single promises, and storms in which everything goes wrong.

mod cluster;
mod older;
mod peers;
mod storm;
mod support;
