//! Whole clusters under the simulator: what they promise holds while nodes fall, are cut off, and come back.

use std::time::Duration;

use sim::{ClusterFaults, ClusterReport, ClusterScenario, Datacenter, Durability, Mix, Workload};

/// Less than the memtables of all tablets want.
const SMALL_SHARD_BYTES: u64 = 256 << 10;

fn play(scenario: &ClusterScenario, seed: u64) -> ClusterReport {
    let report = scenario
        .run(seed)
        .unwrap_or_else(|failure| panic!("{scenario:?}\n{failure}"));
    assert!(
        report.counts.acknowledged > 200 && report.counts.reads > 200,
        "seed {seed} did next to nothing: {report:?}"
    );
    assert!(
        report.counts.conditional > 20 && report.counts.serial_reads > 20,
        "seed {seed} said next to nothing of conditional statements: {report:?}"
    );
    assert!(
        report.counts.partitions_compared > 30 && report.counts.clocked > 20,
        "seed {seed} compared next to nothing: {report:?}"
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
            ..ClusterFaults::NONE
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
            ..ClusterFaults::NONE
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

#[test]
fn nodes_that_change_their_number_of_shards_and_messages_that_overtake_each_other_lose_nothing() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            reshards: true,
            reorders: true,
            wide_splits: true,
            ..ClusterFaults::NONE
        },
        rounds: 4,
        ..ClusterScenario::new(3)
    };
    play(&scenario, 60);
}

/// Before this clients read only at ONE, so nothing but hints brings replicas what they missed.
#[test]
fn what_replicas_missed_behind_a_split_is_brought_to_them_by_hints() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            bad_links: true,
            ..ClusterFaults::NONE
        },
        rounds: 4,
        ..ClusterScenario::new(3)
    };
    play(&scenario, 70);
}

/// Two copies there and three here: what one datacenter promises for itself holds while the other is away.
#[test]
fn two_datacenters_that_are_cut_off_from_each_other_keep_their_promises() {
    let datacenter = |nodes, copies| Datacenter {
        nodes,
        copies,
        racks: 1,
    };
    let scenario = ClusterScenario {
        datacenters: vec![datacenter(3, 3), datacenter(2, 2)],
        faults: ClusterFaults {
            wide_splits: true,
            kills: true,
            reorders: true,
            ..ClusterFaults::NONE
        },
        rounds: 3,
        ..ClusterScenario::new(3)
    };
    play(&scenario, 90);
}

/// One copy of each row, in tables that forget deletions soon: no other node has what its node loses.
#[test]
fn the_only_copy_keeps_what_was_acknowledged_and_nothing_that_was_deleted() {
    let scenario = ClusterScenario {
        datacenters: vec![Datacenter {
            nodes: 3,
            copies: 1,
            racks: 1,
        }],
        faults: ClusterFaults {
            kills: true,
            power_losses: true,
            restarts: true,
            pauses: true,
            disturbed_messages: true,
            ..ClusterFaults::NONE
        },
        workload: Workload {
            grace: Some(10),
            ..Workload::default()
        },
        rounds: 4,
        ..ClusterScenario::new(3)
    };
    let report = play(&scenario, 95);
    assert!(report.counts.own_seconds > 20, "{report:?}");
}

/// Ordinary writes may be lost here, what a conditional statement has decided may not.
#[test]
fn conditional_statements_survive_power_losses_where_the_log_is_synced_now_and_then() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            kills: true,
            power_losses: true,
            splits: true,
            ..ClusterFaults::NONE
        },
        durability: Durability::Periodic(Duration::from_millis(200)),
        conditional_only: true,
        rounds: 6,
        ..ClusterScenario::new(3)
    };
    let report = scenario.run(100).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.counts.conditional > 300, "{report:?}");
}

#[test]
fn seven_nodes_in_three_racks_keep_what_they_acknowledged() {
    let scenario = ClusterScenario {
        datacenters: vec![Datacenter {
            nodes: 7,
            copies: 3,
            racks: 3,
        }],
        faults: ClusterFaults::ALL,
        rounds: 2,
        ..ClusterScenario::new(7)
    };
    play(&scenario, 80);
}

/// Replicas agreed that nothing was there when one had a deletion and the other had never heard of the row, and the
/// next read found it.
#[test]
fn a_deletion_in_doubt_that_a_read_has_seen_stays_seen() {
    play(&ClusterScenario::basic_of_seed(1014), 1014);
}

/// A node asked itself for data of a shard that it no longer had.
#[test]
fn a_node_that_comes_back_with_fewer_shards_reads_from_those_it_has() {
    play(&ClusterScenario::basic_of_seed(3003), 3003);
}

/// Clients got a server error that no driver expects of a write.
#[test]
fn a_logged_batch_that_does_not_fit_on_the_disk_fails_as_a_write() {
    play(&ClusterScenario::basic_of_seed(8008), 8008);
}

/// The members changed while a statement whose proposal some had accepted tried again, and then too few of its replicas
/// lived: it said that nothing had happened.
#[test]
fn a_statement_that_may_be_applied_is_not_called_unavailable_when_the_members_change() {
    play(&ClusterScenario::basic_of_seed(1_039_798_648), 1_039_798_648);
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

/// Five nodes, so that additions, reads and writes are asked of others.
#[test]
fn requests_that_come_twice_and_overtake_each_other_are_no_excuse_for_any_error() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            disturbed_messages: true,
            ..ClusterFaults::NONE
        },
        ..ClusterScenario::new(5)
    };
    let report = play(&scenario, 130);
    assert!(report.disturbed_messages > 500, "{report:?}");
    assert_eq!(report.counts.errors, 0, "{report:?}");
}

#[test]
fn all_machines_lose_power_at_once_and_nothing_that_was_acknowledged_is_lost() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            blackouts: true,
            disturbed_messages: true,
            ..ClusterFaults::NONE
        },
        ..ClusterScenario::new(3)
    };
    let report = play(&scenario, 140);
    assert!(report.faults >= 2, "{report:?}");
}

/// Nothing from before the truncation is read again, whatever repairs, late writes and hints bring: no acknowledged
/// row, no part of a batch, nothing that a conditional statement wrote, nothing that was added to a counter.
#[test]
fn a_truncation_while_others_use_the_table_is_a_barrier() {
    let calm = ClusterScenario {
        faults: ClusterFaults {
            disturbed_messages: true,
            ..ClusterFaults::NONE
        },
        workload: Workload {
            is_hot: true,
            truncates_with_traffic: true,
            ..Workload::default()
        },
        // So many that each run truncates eight times and more.
        rounds: 6,
        ..ClusterScenario::new(3)
    };
    let struck = ClusterScenario {
        faults: ClusterFaults {
            kills: true,
            power_losses: true,
            splits: true,
            bad_links: true,
            pauses: true,
            ..calm.faults
        },
        ..calm.clone()
    };
    for (scenario, seed) in [(&calm, 150), (&calm, 151), (&struck, 152), (&struck, 153)] {
        let report = scenario.run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.counts.truncations >= 8, "{report:?}");
    }
}

/// All machines lose power at once, so no majority is left that remembers what the log had not.
#[test]
fn conditional_statements_survive_a_blackout_where_the_log_is_synced_now_and_then() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            blackouts: true,
            ..ClusterFaults::NONE
        },
        durability: Durability::Periodic(Duration::from_secs(2)),
        conditional_only: true,
        rounds: 6,
        ..ClusterScenario::new(3)
    };
    let report = scenario.run(160).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.counts.conditional > 300 && report.faults >= 6, "{report:?}");
}

/// Compactions purge tombstones some seconds after they were written. No fault lasts so long, and none loses a hint.
#[test]
fn nothing_deleted_returns_where_tombstones_are_purged_after_a_minute() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            bad_links: true,
            pauses: true,
            slow_disks: true,
            ..ClusterFaults::NONE
        },
        workload: Workload {
            grace: Some(60),
            ..Workload::default()
        },
        rounds: 6,
        ..ClusterScenario::new(3)
    };
    play(&scenario, 170);
}

/// A node moves damaged sstables aside while it runs. All else is answered by the other replicas, until the operator
/// accepts the loss.
#[test]
fn a_cluster_outlives_bits_that_change_in_sstables() {
    let rot = ClusterFaults {
        bit_rot: true,
        ..ClusterFaults::NONE
    };
    let scenario = ClusterScenario {
        faults: rot,
        rounds: 5,
        ..ClusterScenario::new(3)
    };
    play(&scenario, 180);
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            splits: true,
            bad_links: true,
            pauses: true,
            disturbed_messages: true,
            ..rot
        },
        rounds: 5,
        ..ClusterScenario::new(4)
    };
    play(&scenario, 181);
}

/// The joining node or another one crashes, or is cut off, while it joins. It serves a minute after all is healed, and
/// nothing is lost.
#[test]
fn nodes_that_join_while_something_strikes_are_members_in_the_end() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            kills: true,
            power_losses: true,
            splits: true,
            bad_links: true,
            slow_disks: true,
            failing_operations: true,
            pauses: true,
            ..ClusterFaults::NONE
        },
        joiners: 2,
        joins_under_faults: true,
        rounds: 2,
        ..ClusterScenario::new(3)
    };
    for seed in 190..193 {
        play(&scenario, seed);
    }
}

#[test]
fn tables_go_from_the_token_ring_to_tablets_and_back_whatever_strikes() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            kinds: true,
            leaves: true,
            kills: true,
            power_losses: true,
            splits: true,
            bad_links: true,
            stop_points: true,
            ..ClusterFaults::NONE
        },
        rounds: 3,
        ..ClusterScenario::new(4)
    };
    for seed in 195..198 {
        play(&scenario, seed);
    }
}

/// Writes wait for memory until their time is over: an error says whether the request ran, and nothing acknowledged is
/// lost.
#[test]
fn nodes_with_too_little_memory_lose_nothing() {
    let scenario = ClusterScenario {
        faults: ClusterFaults {
            slow_disks: true,
            full_disks: true,
            ..ClusterFaults::NONE
        },
        shard_bytes: SMALL_SHARD_BYTES,
        workload: Workload {
            is_hot: true,
            mix: Mix::Batches,
            ..Workload::default()
        },
        rounds: 3,
        ..ClusterScenario::new(3)
    };
    let (mut errors, mut acknowledged) = (0, 0);
    for seed in 200..204 {
        let report = scenario
            .run(seed)
            .unwrap_or_else(|failure| panic!("{scenario:?}\n{failure}"));
        println!("seed {seed}: {} errors", report.counts.errors);
        errors += report.counts.errors;
        acknowledged += report.counts.acknowledged;
    }
    assert!(errors > 50, "there was room for all: {errors} errors");
    assert!(
        acknowledged > 4000,
        "there was room for nothing: {acknowledged} acknowledged"
    );
}
