//! The tests of this crate in one program: a program for each file would compile what they share again.

mod aside;
mod clock;
mod cut_ahead;
mod flush;
mod indexed;
mod marks;
mod paused;
mod purge;
mod quarantine;
mod reconcile;
mod rows;
mod scans;
mod scripts;
mod snapshots;
mod succession;
mod support;
mod tasks;
