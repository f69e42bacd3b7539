//! The node under the simulator: what it promises holds through crashes and faults.

use std::time::Duration;

use sim::{Durability, Faults, Report, Scenario};

const PERIODIC: Durability = Durability::Periodic(Duration::from_millis(40));

fn play(scenario: &Scenario, seeds: std::ops::Range<u64>) -> Vec<Report> {
    seeds.map(|seed| scenario.run(seed).unwrap_or_else(|failure| panic!("{scenario:?}\n{failure}"))).collect()
}

#[test]
fn a_node_that_nothing_strikes_keeps_what_it_is_given() {
    let reports = play(&Scenario { lives: 1, ..Scenario::new(1, PERIODIC) }, 0..2);
    for report in reports {
        assert!(report.counts.acknowledged > 300, "the clients wrote: {report:?}");
        assert!(report.counts.partitions_checked > 100, "and read: {report:?}");
    }
}

#[test]
fn a_killed_node_keeps_every_acknowledged_write() {
    let faults = Faults { kills: true, ..Faults::default() };
    for shards in 1..=3 {
        play(&Scenario { faults, ..Scenario::new(shards, PERIODIC) }, 0..3);
        play(&Scenario { faults, ..Scenario::new(shards, Durability::Batch) }, 10..12);
    }
}
