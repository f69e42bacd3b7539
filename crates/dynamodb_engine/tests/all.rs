//! The tests of this crate in one program: a program for each file would compile what they share again.

mod backups;
mod expiry;
mod requests;
mod sizes;
mod support;
mod transactions;
mod updates;
