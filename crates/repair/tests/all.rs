//! The tests of this crate in one program: a program for each file would compile what they share again.

mod failures;
mod histories;
mod incremental;
mod large;
mod support;
mod walks;
