//! Promises that are broken on purpose: each is found by one of a few seeds, which are played in every build.
#![cfg(debug_assertions)]

use std::time::Duration;

use sim::{ClusterFaults, ClusterScenario, Durability};
use stdx::planted::Bug;

const NO_FAULTS: ClusterFaults = ClusterFaults {
    kills: false,
    power_losses: false,
    restarts: false,
    splits: false,
    bad_links: false,
    wrong_clocks: false,
    slow_disks: false,
    full_disks: false,
    failing_operations: false,
    reorders: false,
    reshards: false,
    wide_splits: false,
};

/// Plays seeds until one of them finds the bug: by the promise that it breaks, not by an error that it causes.
fn is_found(bug: Bug, scenario: &ClusterScenario, seeds: std::ops::Range<u64>, complaint: &str) {
    let planted = ClusterScenario {
        planted: Some(bug),
        ..scenario.clone()
    };
    let mut others = Vec::new();
    for seed in seeds {
        match planted.run(seed) {
            Err(failure) if failure.to_string().contains(complaint) => return,
            Err(failure) => others.push(failure.to_string()),
            Ok(_) => {}
        }
    }
    panic!("{bug:?} was planted, and no seed complained of \"{complaint}\", but of {others:?}");
}

#[test]
fn a_quorum_that_is_skipped_is_found() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            bad_links: true,
            ..NO_FAULTS
        },
        ..ClusterScenario::new(3)
    };
    is_found(Bug::SkippedQuorum, &scenario, 0..4, "was promised");
}

#[test]
fn digests_that_nobody_compares_are_found() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            wide_splits: true,
            bad_links: true,
            ..NO_FAULTS
        },
        ..ClusterScenario::new(3)
    };
    is_found(Bug::IgnoredDigest, &scenario, 0..10, "was promised");
}

/// Nothing repairs replicas behind a split but hints, until somebody reads at more than ONE.
#[test]
fn a_hint_that_is_dropped_is_found() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            wide_splits: true,
            bad_links: true,
            ..NO_FAULTS
        },
        rounds: 4,
        ..ClusterScenario::new(3)
    };
    is_found(Bug::DroppedHint, &scenario, 0..12, "read at One: ");
}

#[test]
fn a_promise_that_is_not_synced_is_found() {
    is_found(
        Bug::UnsyncedPromise,
        &conditional_power_losses(),
        0..12,
        "no order fits",
    );
}

#[test]
fn a_proposal_that_is_accepted_against_a_promise_is_found() {
    is_found(
        Bug::AcceptedWithoutPromise,
        &conditional_splits(),
        0..8,
        "no order fits",
    );
}

#[test]
fn a_proposal_that_nobody_finishes_is_found() {
    let complaint = "CAS operation result is unknown";
    is_found(Bug::IgnoredProposal, &conditional_splits(), 0..8, complaint);
}

fn conditional_splits() -> ClusterScenario {
    ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            bad_links: true,
            reorders: true,
            kills: true,
            ..NO_FAULTS
        },
        conditional_only: true,
        rounds: 4,
        ..ClusterScenario::new(3)
    }
}

fn conditional_power_losses() -> ClusterScenario {
    ClusterScenario {
        faults: ClusterFaults {
            power_losses: true,
            ..NO_FAULTS
        },
        durability: Durability::Periodic(Duration::from_secs(2)),
        conditional_only: true,
        rounds: 8,
        ..ClusterScenario::new(3)
    }
}
