//! Promises of clusters that grow, shrink, heal and change their replication, broken on purpose: each is found by one
//! of a few seeds.
#![cfg(debug_assertions)]

use crate::support::is_found;
use sim::{ClusterFaults, ClusterScenario, Datacenter};
use stdx::planted::Bug;

/// What a client read is not what was acknowledged before.
const LOST: &[&str] = &["was promised", "increments"];

/// Nodes of one datacenter with so many copies, to which operators do this while the cluster works.
fn cluster(nodes: usize, copies: usize, faults: ClusterFaults) -> ClusterScenario {
    let datacenter = Datacenter {
        nodes,
        copies,
        racks: 1,
    };
    ClusterScenario {
        faults,
        rounds: 4,
        datacenters: vec![datacenter],
        ..ClusterScenario::new(nodes)
    }
}

/// What a replica misses it never gets.
fn without_hints(scenario: ClusterScenario) -> ClusterScenario {
    ClusterScenario {
        hints: false,
        ..scenario
    }
}

const REPLACEMENTS: ClusterFaults = ClusterFaults {
    replacements: true,
    splits: true,
    kills: true,
    ..ClusterFaults::NONE
};
const REPLICATIONS: ClusterFaults = ClusterFaults {
    replications: true,
    disturbed_messages: true,
    ..ClusterFaults::NONE
};
const LEAVES: ClusterFaults = ClusterFaults {
    leaves: true,
    disturbed_messages: true,
    ..ClusterFaults::NONE
};
const MOVES: ClusterFaults = ClusterFaults {
    moves: true,
    leaves: true,
    disturbed_messages: true,
    ..ClusterFaults::NONE
};

#[test]
fn a_node_that_has_not_copied_what_it_says_is_found() {
    is_found(Bug::UncopiedRange, &cluster(4, 3, LEAVES), 0..24, LOST);
}

#[test]
fn a_cleanup_while_the_ring_goes_to_other_owners_is_found() {
    is_found(Bug::CleansWhileRingMoves, &cluster(4, 1, LEAVES), 0..24, LOST);
}

#[test]
fn a_write_that_comes_during_a_copy_and_is_not_doubled_is_found() {
    is_found(Bug::UndoubledWrite, &cluster(4, 2, MOVES), 0..24, LOST);
}

#[test]
fn a_replica_that_copies_too_few_others_is_found() {
    is_found(Bug::OneSource, &without_hints(cluster(4, 3, REPLACEMENTS)), 0..32, LOST);
}

#[test]
fn a_tablet_that_gets_no_other_replica_is_found() {
    is_found(
        Bug::ForgottenCopy,
        &cluster(4, 2, REPLICATIONS),
        0..24,
        &["what the operator began did not end"],
    );
}
