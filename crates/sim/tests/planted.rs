//! Promises that are broken on purpose: each is found by one of a few seeds, which are played in every build.
#![cfg(debug_assertions)]

use std::time::Duration;

use crate::support::is_found;
use runtime::StopPoint;
use sim::{ClusterFaults, ClusterScenario, Datacenter, Durability, FewSlots, Mix, Workload};
use stdx::planted::Bug;

const NONE: ClusterFaults = ClusterFaults::NONE;

/// Three nodes with three copies, which these faults strike so many times.
fn three_nodes(rounds: u32, faults: ClusterFaults) -> ClusterScenario {
    ClusterScenario {
        faults,
        rounds,
        ..ClusterScenario::new(3)
    }
}

fn with_copies(copies: usize, scenario: ClusterScenario) -> ClusterScenario {
    ClusterScenario {
        datacenters: vec![Datacenter {
            copies,
            ..scenario.datacenters[0]
        }],
        ..scenario
    }
}

const SPLITS: ClusterFaults = ClusterFaults {
    splits: true,
    wide_splits: true,
    bad_links: true,
    ..NONE
};

#[test]
fn a_quorum_that_is_skipped_is_found() {
    let faults = ClusterFaults {
        wide_splits: false,
        ..SPLITS
    };
    is_found(
        Bug::SkippedQuorum,
        &three_nodes(3, faults),
        0..24,
        &["with the answers of the replicas"],
    );
}

/// Many messages come up to 800 ms late, so replicas differ much of the time, and no hint ends that. A few partitions
/// are used without pauses.
fn replicas_that_differ(rounds: u32, mix: Mix) -> ClusterScenario {
    let faults = ClusterFaults {
        disturbed_messages: true,
        ..NONE
    };
    ClusterScenario {
        workload: Workload {
            is_hot: true,
            mix,
            ..Workload::default()
        },
        hints: false,
        conditional_only: mix == Mix::Serial,
        overtaken_per_million: if mix == Mix::Serial { 200_000 } else { 500_000 },
        ..three_nodes(rounds, faults)
    }
}

#[test]
fn digests_that_nobody_compares_are_found() {
    let scenario = replicas_that_differ(1, Mix::Reads);
    // 30 of 30 seeds find it.
    is_found(Bug::IgnoredDigest, &scenario, 0..24, &["was promised"]);
}

#[test]
fn a_repair_that_nobody_waits_for_is_found() {
    let scenario = replicas_that_differ(8, Mix::Reads);
    // 24 of 30 seeds find it.
    is_found(Bug::UnawaitedRepair, &scenario, 0..24, &["was promised"]);
}

/// Replicas agree that nothing is there when one has a deletion and the other has never heard of the row.
#[test]
fn digests_that_do_not_say_what_is_deleted_are_found() {
    let scenario = replicas_that_differ(8, Mix::Reads);
    // 13 of 30 seeds find it.
    is_found(Bug::DigestWithoutTombstones, &scenario, 0..32, &["was promised"]);
}

/// The content of replicas is compared when all was read at ALL.
#[test]
fn a_deletion_that_some_replicas_lack_in_the_end_is_found() {
    let scenario = ClusterScenario {
        hints: false,
        ..three_nodes(3, SPLITS)
    };
    is_found(
        Bug::DigestWithoutTombstones,
        &scenario,
        0..24,
        &["two replicas of partition"],
    );
}

/// What was decided for one row is at one replica alone when the next decision, for another row, overtakes it at the
/// others.
#[test]
fn a_leader_that_teaches_nobody_is_found() {
    let scenario = replicas_that_differ(4, Mix::Serial);
    // 24 of 30 seeds find it.
    is_found(Bug::SkippedTeach, &scenario, 0..24, &["no order fits"]);
}

/// Only hints repair replicas that a split cut off, until a client reads at more than ONE.
#[test]
fn a_hint_that_is_dropped_is_found() {
    // 25 of 30 seeds find it.
    is_found(Bug::DroppedHint, &three_nodes(4, SPLITS), 0..48, &["read at One: "]);
}

#[test]
fn an_acceptance_that_is_not_synced_is_found() {
    let faults = ClusterFaults {
        blackouts: true,
        ..NONE
    };
    let scenario = ClusterScenario {
        durability: Durability::Periodic(Duration::from_secs(10)),
        conditional_only: true,
        ..three_nodes(4, faults)
    };
    // 16 of 30 seeds find it.
    is_found(Bug::UnsyncedAcceptance, &scenario, 0..28, &["no order fits"]);
}

#[test]
fn a_proposal_that_is_accepted_against_a_promise_is_found() {
    let scenario = conditional_splits();
    // 30 of 30 seeds find it.
    is_found(Bug::AcceptedWithoutPromise, &scenario, 0..32, &["no order fits"]);
}

#[test]
fn a_proposal_that_nobody_finishes_is_found() {
    let complaint = &["CAS operation result is unknown"];
    // 30 of 30 seeds find it.
    is_found(Bug::IgnoredProposal, &conditional_splits(), 0..32, complaint);
}

fn conditional_splits() -> ClusterScenario {
    let faults = ClusterFaults {
        splits: true,
        bad_links: true,
        reorders: true,
        kills: true,
        ..NONE
    };
    ClusterScenario {
        conditional_only: true,
        ..three_nodes(4, faults)
    }
}

/// With one copy a part of a batch goes to one node and the other part to another, and only a note brings what a killed
/// coordinator left undone.
#[test]
fn a_logged_batch_that_nobody_noted_is_found() {
    let faults = ClusterFaults { kills: true, ..SPLITS };
    let scenario = ClusterScenario {
        hints: false,
        workload: Workload {
            mix: Mix::Batches,
            ..Workload::default()
        },
        ..with_copies(1, three_nodes(4, faults))
    };
    let complaint = &["a logged batch is half there"];
    // 25 of 30 seeds find it.
    is_found(Bug::BatchWithoutNote, &scenario, 0..24, complaint);
}

#[test]
fn metadata_that_is_not_synced_is_found() {
    let faults = ClusterFaults {
        blackouts: true,
        ..NONE
    };
    // Where the log has a hole the node says so itself; and when too many have one, the group decides nothing any more.
    let complaint = &[
        "was acknowledged as",
        "it no longer knows what it has promised",
        "the metadata change was not confirmed in time",
    ];
    // 24 of 30 seeds find it.
    is_found(Bug::UnsyncedMetadata, &three_nodes(2, faults), 0..24, complaint);
}

/// With a copy less than nodes some additions are asked of another node.
#[test]
fn an_addition_that_counts_twice_when_its_request_comes_twice_is_found() {
    let faults = ClusterFaults {
        disturbed_messages: true,
        ..NONE
    };
    let scenario = with_copies(2, three_nodes(1, faults));
    // 10 of 30 seeds find it.
    is_found(Bug::RepeatedRequest, &scenario, 0..60, &["a counter is"]);
}

/// The scenario, with clients that use a few partitions without pauses: what happens between two requests is seen by a
/// third.
fn hot(scenario: ClusterScenario) -> ClusterScenario {
    ClusterScenario {
        workload: Workload {
            is_hot: true,
            ..Workload::default()
        },
        ..scenario
    }
}

#[test]
fn a_write_that_is_not_synced_in_batch_mode_is_found() {
    let faults = ClusterFaults {
        blackouts: true,
        ..NONE
    };
    let scenario = hot(with_copies(1, three_nodes(2, faults)));
    // 17 of 30 seeds find it.
    is_found(Bug::UnsyncedWrite, &scenario, 0..40, &["was promised"]);
}

#[test]
fn an_answer_that_counts_twice_is_found() {
    let complaint = &["with the answers of the replicas"];
    // Each seed finds it.
    is_found(Bug::CountedTwice, &three_nodes(0, NONE), 0..24, complaint);
}

/// Machines that stop at this point; with one copy no other node has the rows.
fn stopping_at(point: StopPoint) -> ClusterScenario {
    let faults = ClusterFaults {
        stop_points: true,
        ..NONE
    };
    ClusterScenario {
        stop_point: Some(point),
        hints: false,
        ..with_copies(1, three_nodes(2, faults))
    }
}

#[test]
fn a_log_that_is_told_of_an_sstable_too_early_is_found() {
    let scenario = stopping_at(StopPoint::FlushFrozen);
    // 18 of 30 seeds find it.
    is_found(Bug::EarlyDiscard, &scenario, 0..32, &["was promised", "no order fits"]);
}

/// At any stop point: the batch is noted, or its end is, in a log that a crash cuts off.
#[test]
fn a_logged_batch_whose_end_is_noted_too_early_is_found() {
    let scenario = ClusterScenario {
        stop_point: None,
        ..stopping_at(StopPoint::BatchNoted)
    };
    // 8 of 30 seeds find it.
    is_found(Bug::EarlyBatchEnd, &scenario, 0..48, &["a logged batch is half there"]);
}

/// With one copy no other node has what is lost.
#[test]
fn a_tablet_that_moves_without_what_is_in_memory_is_found() {
    let faults = ClusterFaults { moves: true, ..NONE };
    let scenario = with_copies(1, three_nodes(2, faults));
    // 10 of 20 seeds find it.
    let lost = [
        "nothing is there, but",
        "is there, but",
        "a counter is",
        "no order fits",
    ];
    is_found(Bug::UnflushedMove, &scenario, 0..24, &lost);
}

/// With a copy less than nodes some additions are asked of another node, whose answer may find no room.
#[test]
fn an_addition_that_is_made_again_because_its_answer_was_lost_is_found() {
    let faults = ClusterFaults { reorders: true, ..NONE };
    let scenario = ClusterScenario {
        few_slots: Some(FewSlots {
            requests: 8,
            clients: 16,
        }),
        workload: Workload {
            mix: Mix::Counters,
            ..Workload::default()
        },
        ..with_copies(2, three_nodes(2, faults))
    };
    // 25 of 30 seeds find it.
    is_found(Bug::LostAnswer, &scenario, 0..24, &["a counter is"]);
}
