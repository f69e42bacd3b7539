//! The tests of this crate in one program: a program for each file would compile what they share again.

mod clauses;
mod common;
mod conditional_request;
mod encoded_plans;
mod expressions;
mod large_values;
mod nulls;
