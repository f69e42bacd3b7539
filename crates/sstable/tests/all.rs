//! The tests of this crate in one program: a program for each file would compile what they share again.

mod common;
mod damage;
mod failed_syncs;
mod indexed;
mod lookups;
mod random;
mod real_files;
mod repaired;
mod round_trip;
mod schema_change;
