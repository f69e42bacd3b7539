//! The tests of this crate in one program: a program for each file would compile what they share again.

mod names;
mod order;
mod properties;
mod term;
mod text;
mod validation;
