//! Whole clusters under the simulator: what they promise holds while nodes fall, are cut off, and come back.

use std::time::Duration;

use sim::{ClusterFaults, ClusterReport, ClusterScenario, Durability};

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
    let scenario = ClusterScenario {
        rounds: 1,
        ..ClusterScenario::new(3)
    };
    let report = play(&scenario, 1);
    assert_eq!(report.counts.errors, 0, "{report:?}");
    assert!(report.counts.schema_changes > 0 && report.faults == 0, "{report:?}");
}

#[test]
fn nothing_acknowledged_is_lost_whatever_strikes_a_node() {
    let scenario = ClusterScenario {
        faults: ClusterFaults::ALL,
        ..ClusterScenario::new(3)
    };
    let faults: u64 = [10, 11].iter().map(|seed| play(&scenario, *seed).faults).sum();
    assert!(faults >= 6, "next to nothing happened: {faults} faults");
}

#[test]
fn a_write_acknowledged_before_the_power_went_is_there_afterwards() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            kills: true,
            power_losses: true,
            ..ClusterFaults::default()
        },
        rounds: 6,
        ..ClusterScenario::new(3)
    };
    play(&scenario, 20);
}

#[test]
fn nodes_that_are_cut_off_come_back_and_show_nothing_old() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            bad_links: true,
            kills: true,
            ..ClusterFaults::default()
        },
        durability: Durability::Periodic(Duration::from_millis(100)),
        rounds: 6,
        ..ClusterScenario::new(3)
    };
    play(&scenario, 30);
}

#[test]
fn five_nodes_and_one_that_joins_are_one_database() {
    let scenario = ClusterScenario {
        faults: ClusterFaults::ALL,
        joiners: 1,
        rounds: 3,
        ..ClusterScenario::new(5)
    };
    play(&scenario, 40);
}

/// Replicas agreed that nothing was there when one had a deletion and the other had never heard of the row, and the next read found it.
#[test]
fn a_deletion_in_doubt_that_a_read_has_seen_stays_seen() {
    play(&ClusterScenario::of_seed(1014), 1014);
}

#[test]
fn the_same_seed_gives_the_same_run_of_a_whole_cluster() {
    let scenario = ClusterScenario {
        faults: ClusterFaults::ALL,
        rounds: 1,
        ..ClusterScenario::new(3)
    };
    assert_eq!(play(&scenario, 50), play(&scenario, 50));
}
