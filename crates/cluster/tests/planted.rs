//! Promises of moves that are broken on purpose: each is found by one of a few seeds.
#![cfg(debug_assertions)]

use crate::support::joins::join_meets_writes;
use stdx::planted::{Bug, Planted};

/// Whether one of these seeds finds a node that owns rows which it does not have.
fn is_found(bug: Bug, seeds: std::ops::Range<u64>) {
    let _planted = Planted::new(Some(bug));
    let finds = |seed| join_meets_writes(seed).is_err_and(|why| why.contains("owns rows that it does not have"));
    assert!(
        seeds.into_iter().any(finds),
        "{bug:?} was planted, and no seed found it"
    );
}

#[test]
fn a_stage_that_counts_as_passed_too_early_is_found() {
    // One seed in twenty finds it.
    is_found(Bug::StagePassedEarly, 240..340);
}

#[test]
fn a_range_that_was_not_copied_is_found() {
    is_found(Bug::UncopiedRange, 220..250);
}
