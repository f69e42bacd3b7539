//! The node under the simulator: what it promises holds through crashes and faults.

use std::time::Duration;

use sim::{Durability, Faults, Report, Scenario};

const PERIODIC: Durability = Durability::Periodic(Duration::from_millis(40));
const BATCH: Durability = Durability::Batch;
const KILLS: Faults = Faults {
    kills: true,
    power_losses: false,
    full_disks: false,
    failing_operations: false,
    slow_disks: false,
    rude_clients: false,
};
const POWER_LOSSES: Faults = Faults {
    kills: false,
    power_losses: true,
    ..KILLS
};

fn scenario(shards: u32, durability: Durability, faults: Faults) -> Scenario {
    Scenario {
        faults,
        ..Scenario::new(shards, durability)
    }
}

fn play(scenario: &Scenario, seeds: impl IntoIterator<Item = u64>) -> Vec<Report> {
    let play_one = |seed| {
        let report = scenario
            .run(seed)
            .unwrap_or_else(|failure| panic!("{scenario:?}\n{failure}"));
        assert!(
            report.counts.partitions_checked > 50,
            "seed {seed} looked at next to nothing: {report:?}"
        );
        report
    };
    seeds.into_iter().map(play_one).collect()
}

#[test]
fn a_node_that_nothing_strikes_keeps_what_it_is_given() {
    for report in play(
        &Scenario {
            lives: 1,
            ..Scenario::new(2, PERIODIC)
        },
        0..2,
    ) {
        assert!(report.counts.acknowledged > 300, "the clients wrote: {report:?}");
        assert_eq!(
            report.counts.partitions_unchecked, 0,
            "with sure statements only nothing is left unchecked"
        );
    }
}

#[test]
fn a_killed_node_keeps_every_acknowledged_write() {
    for shards in 1..=3 {
        play(&scenario(shards, PERIODIC, KILLS), 0..3);
        play(&scenario(shards, BATCH, KILLS), 10..12);
    }
}

#[test]
fn a_node_in_batch_mode_loses_nothing_when_the_power_goes() {
    for shards in 1..=3 {
        play(&scenario(shards, BATCH, POWER_LOSSES), 20..23);
    }
}

#[test]
fn an_acknowledgement_in_batch_mode_is_never_ahead_of_its_sync() {
    for shards in 1..=2 {
        let at_acknowledgements = Scenario {
            lives: 25,
            operations: 0,
            acknowledgements: 60,
            ..scenario(shards, BATCH, POWER_LOSSES)
        };
        play(&at_acknowledgements, 100..103);
    }
}

#[test]
fn a_node_that_starts_with_another_number_of_shards_has_what_it_had() {
    let both = Faults {
        power_losses: true,
        ..KILLS
    };
    for durability in [PERIODIC, BATCH] {
        let resharding = Scenario {
            reshards: true,
            lives: 8,
            ..scenario(2, durability, both)
        };
        play(&resharding, 110..113);
    }
}

#[test]
fn a_node_in_periodic_mode_loses_at_most_the_period_when_the_power_goes() {
    for shards in 1..=3 {
        play(&scenario(shards, PERIODIC, POWER_LOSSES), 30..33);
    }
}

#[test]
fn kills_and_power_losses_in_turn_bring_nothing_back() {
    let both = Faults {
        kills: true,
        power_losses: true,
        ..KILLS
    };
    for shards in 1..=3 {
        play(&scenario(shards, PERIODIC, both), 40..42);
    }
}

#[test]
fn a_full_disk_refuses_writes_until_it_has_space_and_never_reads() {
    let faults = Faults {
        full_disks: true,
        ..KILLS
    };
    let reports: Vec<Report> = (1..=2)
        .flat_map(|shards| play(&scenario(shards, PERIODIC, faults), 50..54))
        .collect();
    assert!(
        reports.iter().any(|r| r.counts.refused > 0),
        "the disk was full enough to refuse: {reports:?}"
    );
}

#[test]
fn a_file_operation_that_fails_is_an_error_and_not_a_loss() {
    let faults = Faults {
        failing_operations: true,
        ..Faults::default()
    };
    let mut refused = 0;
    for shards in 1..=2 {
        let scenario = Scenario {
            lives: 4,
            ..scenario(shards, BATCH, faults)
        };
        refused += play(&scenario, 77..80).iter().map(|r| r.counts.refused).sum::<u64>();
    }
    assert!(refused > 0, "no failure reached a client");
}

/// A table's part of a batch was flushed after the sync of its log had failed, and then the power was lost.
#[test]
fn a_batch_whose_log_failed_to_sync_counts_all_or_not_at_all_when_the_power_goes() {
    let faults = Faults {
        failing_operations: true,
        ..POWER_LOSSES
    };
    let scenario = Scenario {
        lives: 8,
        operations: 5_000,
        acknowledgements: 20,
        ..scenario(2, BATCH, faults)
    };
    play(&scenario, [336_037]);
}

#[test]
fn a_slow_disk_makes_a_node_slow_and_not_wrong() {
    play(
        &scenario(
            1,
            BATCH,
            Faults {
                slow_disks: true,
                ..POWER_LOSSES
            },
        ),
        70..73,
    );
}

#[test]
fn clients_that_break_off_or_do_not_read_harm_nobody_else() {
    play(
        &scenario(
            2,
            PERIODIC,
            Faults {
                rude_clients: true,
                ..KILLS
            },
        ),
        80..83,
    );
}

#[test]
fn the_same_seed_gives_the_same_run_of_the_whole_node() {
    let scenario = scenario(
        3,
        PERIODIC,
        Faults {
            power_losses: true,
            rude_clients: true,
            ..KILLS
        },
    );
    assert_eq!(play(&scenario, [90, 91]), play(&scenario, [90, 91]));
    assert_ne!(play(&scenario, [90])[0].trace_hash, play(&scenario, [91])[0].trace_hash);
}
