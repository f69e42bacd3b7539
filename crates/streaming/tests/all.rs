//! The tests of this crate in one program: a program for each file would compile what they share again.

mod copies;
mod failures;
mod marks;
mod support;
