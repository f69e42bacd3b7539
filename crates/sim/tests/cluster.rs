//! Whole clusters under the simulator: what they promise holds while nodes fall, are cut off, and come back.

use sim::{ClusterFaults, ClusterReport, ClusterScenario};

fn play(scenario: &ClusterScenario, seed: u64) -> ClusterReport {
    let report = scenario
        .run(seed)
        .unwrap_or_else(|failure| panic!("{scenario:?}\n{failure}"));
    assert!(
        report.counts.acknowledged > 200 && report.counts.reads > 200,
        "seed {seed} did next to nothing: {report:?}"
    );
    report
}

#[test]
fn a_cluster_that_nothing_strikes_gives_no_error_and_keeps_everything() {
    let report = play(&ClusterScenario::new(3), 1);
    assert_eq!(report.counts.errors, 0, "{report:?}");
    assert!(report.counts.schema_changes > 0 && report.faults == 0, "{report:?}");
}

#[test]
fn nothing_acknowledged_is_lost_whatever_strikes_a_node() {
    for seed in 10..13 {
        let scenario = ClusterScenario {
            faults: ClusterFaults::ALL,
            ..ClusterScenario::new(3)
        };
        play(&scenario, seed);
    }
}
