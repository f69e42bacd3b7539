//! Clusters whose connections between nodes take very few requests and answers at once: many requests are refused as
//! overloaded, and some answers find no room. What was promised holds all the same.

use sim::{ClusterFaults, ClusterReport, ClusterScenario, FewSlots, Workload};

/// Three nodes, whose latencies change all the time.
fn few_slots(faults: ClusterFaults) -> ClusterScenario {
    ClusterScenario {
        few_slots: Some(FewSlots::USUAL),
        faults: ClusterFaults {
            reorders: true,
            ..faults
        },
        rounds: 2,
        workload: Workload {
            truncates_with_traffic: true,
            ..Workload::default()
        },
        ..ClusterScenario::new(3)
    }
}

/// Plays these seeds. Requests and answers of all that found no room.
fn play(scenario: &ClusterScenario, seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut overloaded, mut lost_answers) = (0, 0);
    for seed in seeds {
        let report: ClusterReport = scenario
            .run(seed)
            .unwrap_or_else(|failure| panic!("{scenario:?}\n{failure}"));
        let counts = report.counts;
        assert!(
            counts.acknowledged > 500 && counts.increments > 100 && counts.conditional > 200 && counts.truncations > 0,
            "seed {seed} did next to nothing: {report:?}"
        );
        overloaded += counts.overloaded;
        lost_answers += counts.lost_answers;
    }
    (overloaded, lost_answers)
}

#[test]
fn what_was_acknowledged_holds_where_many_requests_find_no_room() {
    let (overloaded, lost_answers) = play(&few_slots(ClusterFaults::NONE), 100..103);
    assert!(
        overloaded > 50 && lost_answers > 5,
        "{overloaded} requests and {lost_answers} answers found no room"
    );
}

#[test]
fn it_holds_too_where_nodes_fall_and_links_are_bad() {
    let faults = ClusterFaults {
        kills: true,
        splits: true,
        bad_links: true,
        ..ClusterFaults::NONE
    };
    let (overloaded, _) = play(&few_slots(faults), 120..122);
    assert!(overloaded > 20, "{overloaded} requests found no room");
}
