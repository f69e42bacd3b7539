//! The tests of this crate in one program: a program for each file would compile what they share again.

mod balance;
mod balance_suites;
mod common;
mod conversion;
mod disk_suites;
mod failure_detector;
mod leaving;
mod membership;
mod operations;
mod placement;
mod requests;
mod tablet_map;
