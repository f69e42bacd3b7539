//! What fails while replicas are repaired: nothing is lost, what was forgotten does not come back, and a later repair
//! makes them equal.

use std::time::Duration;

use crate::support;
use crate::support::writer::{delete_partition, delete_range, insert};
use crate::support::{Content, Local, MOMENT, Repairing, SECOND, Sea, merged, name_of, plain};
use mutation::Tombstone;
use repair::{Mode, Refusal, RepairError, SESSION_IDLE};
use replica::TombstoneHold;
use runtime::sim::CrashKind;
use schema::{TombstoneGc, TombstoneGcMode};
use tasks::{Class, Module, Origin};
use test_node::Tally;

/// Longer than a repair takes.
const LIMIT: Duration = Duration::from_mins(5);
const KEYS: u32 = 30;

/// Three replicas, each of which lacks some rows and deletions; a part is in files. And what all of them have.
fn differing(seed: u64) -> (Sea, Content) {
    let table = plain();
    let mut sea = Sea::new(seed, 3, &table);
    let now = sea.now();
    for node in 0..3u32 {
        let mut writes = Vec::new();
        for k in 0..KEYS {
            let rows = (0..6).filter(|c| (k + c) % 5 != node);
            writes.extend(rows.map(|c| insert(&table, k, c, 10, &[7; 200])));
            if k % 3 == node {
                let tombstone = Tombstone {
                    timestamp: 20,
                    deletion_time: now - 10,
                };
                writes.push(delete_range(&table, k, (1, 2), tombstone));
            }
        }
        let node = node as usize;
        let rest = writes.split_off(writes.len() / 2);
        sea.apply(node, writes);
        sea.flush(node);
        sea.apply(node, rest);
    }
    let contents = sea.contents();
    let expected = merged(&table, &contents);
    (sea, expected)
}

/// Two replicas of a few megabytes. Only the second has all.
fn differing_much(seed: u64) -> (Sea, Content) {
    let table = plain();
    let mut sea = Sea::new(seed, 2, &table);
    for node in 0..2 {
        let rows = (0..60).filter(|k| node == 1 || k % 2 == 0);
        let writes: Vec<_> = rows.map(|k| insert(&table, k, 0, 10, &vec![7; 200_000])).collect();
        sea.apply(node, writes);
        sea.flush(node);
    }
    let contents = sea.contents();
    let expected = merged(&table, &contents);
    (sea, expected)
}

fn end(sea: &mut Sea, repairing: &Repairing) -> Result<repair::Repaired, RepairError> {
    assert!(
        sea.simulation.run_until(LIMIT, || repairing.borrow().is_some()),
        "it ends"
    );
    repairing.take().expect("it has ended")
}

/// What the replicas have together is what they had.
fn assert_nothing_is_lost(sea: &mut Sea, expected: &Content, what: &str) {
    let now = sea.now();
    let contents = sea.contents();
    let together = merged(&sea.table, &contents);
    let (together, expected) = (
        support::shown(&sea.table, &together, now),
        support::shown(&sea.table, expected, now),
    );
    assert_eq!(together, expected, "{what}");
}

fn repair_at_last(sea: &mut Sea, expected: &Content, what: &str) {
    assert_nothing_is_lost(sea, expected, what);
    let repaired = sea.repair(0, Mode::Repair);
    assert!(repaired.is_ok(), "{what}: {repaired:?}");
    sea.assert_shows(expected, what);
}

#[test]
fn replicas_that_lose_power_anywhere_have_lost_nothing_and_are_repaired_at_last() {
    for node in 0..2 {
        let tally = Tally::default();
        for operations in 0..24 {
            let what = format!("power loss of node {node} after {operations} operations");
            let (mut sea, expected) = differing(operations);
            let repairing = sea.begin_repair(0, Mode::Repair);
            let id = sea.id(node);
            sea.simulation
                .crash_after_file_ops(id, operations, CrashKind::PowerLoss);
            sea.simulation.run_until(LIMIT, || repairing.borrow().is_some());
            let repaired = repairing.take();
            tally.note(repaired.as_ref().map_or("gone", name_of));
            sea.restart(node, CrashKind::PowerLoss);
            if let Some(Ok(_)) = &repaired {
                sea.assert_shows(&expected, &format!("what was repaired is durable, {what}"));
            }
            repair_at_last(&mut sea, &expected, &what);
        }
        let failed = if node == 0 { "gone" } else { "unreachable" };
        assert!(tally.has(failed) && tally.has("repaired"), "node {node}: {tally:?}");
    }
}

#[test]
fn a_participant_that_is_killed_at_any_step_fails_the_repair() {
    let tally = Tally::default();
    for step in 0..30 {
        let (mut sea, expected) = differing(u64::from(step));
        sea.slow_disks();
        let repairing = sea.begin_repair(0, Mode::Repair);
        sea.simulation.run_for(MOMENT * step);
        sea.crash(1, CrashKind::Kill);
        let repaired = end(&mut sea, &repairing);
        tally.note(name_of(&repaired));
        sea.start_again(1);
        if repaired.is_ok() {
            sea.assert_shows(&expected, &format!("killed after step {step}"));
        }
        repair_at_last(&mut sea, &expected, &format!("killed after step {step}"));
    }
    assert!(tally.has("unreachable") && tally.has("repaired"), "{tally:?}");
}

/// What it had compared before it lost power need not be there any more.
#[test]
fn a_participant_that_starts_again_in_the_middle_has_forgotten_the_repair() {
    let (mut sea, expected) = differing_much(1);
    set_rate(&mut sea, 0, 1_000_000);
    let repairing = sea.begin_repair(0, Mode::Repair);
    sea.simulation.run_for(SECOND);
    sea.restart(1, CrashKind::PowerLoss);
    let error = end(&mut sea, &repairing).expect_err("it cannot go on");
    let RepairError::Refused { refusal, .. } = &error else {
        panic!("{error}");
    };
    assert!(*refusal == Refusal::Ended && error.is_passing(), "{error}");
    set_rate(&mut sea, 0, 0);
    repair_at_last(&mut sea, &expected, "after a restart");
}

#[test]
fn messages_that_are_lost_late_or_come_twice_change_nothing() {
    for seed in 0..8 {
        let (mut sea, expected) = differing(seed);
        let ids = [sea.id(0), sea.id(1), sea.id(2)];
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
            sea.simulation.set_loss(ids[from], ids[to], 100_000);
            sea.simulation.set_message_faults(ids[from], ids[to], 300_000, 300_000);
        }
        let repaired = sea.repair(0, Mode::Repair);
        assert!(repaired.is_ok(), "seed {seed}: {repaired:?}");
        sea.assert_shows(&expected, &format!("seed {seed}"));
        assert!(sea.simulation.disturbed_messages() > 0, "seed {seed}");
    }
}

#[test]
fn a_network_split_in_the_middle_is_waited_out_or_fails_the_repair() {
    let tally = Tally::default();
    for (seconds, seed) in [(2, 1), (120, 2)] {
        let (mut sea, expected) = differing_much(seed);
        set_rate(&mut sea, 0, 1_000_000);
        let repairing = sea.begin_repair(0, Mode::Repair);
        sea.simulation.run_for(SECOND);
        let (one, other) = (sea.id(0), sea.id(1));
        sea.simulation.partition(&[one], &[other]);
        sea.simulation.run_for(SECOND * seconds);
        sea.simulation.heal(&[one], &[other]);
        tally.note(name_of(&end(&mut sea, &repairing)));
        set_rate(&mut sea, 0, 0);
        sea.simulation.run_for(SESSION_IDLE + 10 * SECOND);
        repair_at_last(&mut sea, &expected, "after a network split");
    }
    assert!(tally.has("repaired") && tally.has("unreachable"), "{tally:?}");
}

/// Writes that come while a repair runs stay, and what was there before is everywhere.
#[test]
fn writes_during_a_repair_do_not_keep_earlier_ones_from_any_replica() {
    for seed in 0..10 {
        let (mut sea, before) = differing(seed);
        sea.slow_disks();
        let repairing = sea.begin_repair(0, Mode::Repair);
        let mut step = 0;
        while repairing.borrow().is_none() {
            step += 1;
            assert!(step < 10_000, "it ends");
            sea.simulation.run_for(MOMENT);
            // To one replica alone, and over what others have.
            let k = u32::try_from(seed).expect("few") + step;
            let write = insert(&plain(), k % KEYS, step % 7, 15, &[8; 50]);
            sea.apply(usize::try_from(step % 3).expect("few"), vec![write]);
        }
        end(&mut sea, &repairing).expect("nothing fails");
        let now = sea.now();
        for node in 0..3 {
            let content = sea.content(node);
            let with_before = merged(&sea.table, &[content.clone(), before.clone()]);
            let (content, with_before) = (
                support::shown(&sea.table, &content, now),
                support::shown(&sea.table, &with_before, now),
            );
            assert_eq!(content, with_before, "seed {seed}, node {node}");
        }
    }
}

#[test]
fn what_was_truncated_on_one_of_both_or_on_both_does_not_come_back() {
    for nodes in [&[0][..], &[1], &[0, 1, 2]] {
        let tally = Tally::default();
        for step in 0..24 {
            let what = format!("nodes {nodes:?} truncate after step {step}");
            let (mut sea, _) = differing(u64::from(step));
            sea.slow_disks();
            let repairing = sea.begin_repair(0, Mode::Repair);
            sea.simulation.run_for(MOMENT * step);
            for node in nodes {
                sea.on(*node, |local| async move { local.truncate(5).await });
            }
            tally.note(name_of(&end(&mut sea, &repairing)));
            for node in nodes {
                assert!(sea.content(*node).is_empty(), "{what}");
            }
            if nodes.len() < 3 {
                let again = sea.repair(0, Mode::Repair);
                assert_eq!(name_of(&again), "refused", "{what}: {again:?}");
                for node in 0..3 {
                    if !nodes.contains(&node) {
                        sea.on(node, |local| async move { local.truncate(5).await });
                    }
                }
            }
            sea.apply(2, vec![insert(&plain(), 3, 3, 40, b"new")]);
            let expected = sea.content(2);
            sea.repair(0, Mode::Repair).expect("nothing fails");
            sea.assert_shows(&expected, &what);
        }
        let is_stopped = tally.has("refused") || tally.has("lost");
        assert!(is_stopped, "{nodes:?}: {tally:?}");
    }
}

#[test]
fn a_truncation_that_is_not_done_yet_is_waited_for() {
    let (mut sea, _) = differing(1);
    for (node, wanted) in [(0, "not truncated"), (1, "refused")] {
        sea.on(node, |local| async move { local.store().set_version(5, 0, 5) });
        let repaired = sea.repair(0, Mode::Repair);
        assert_eq!(name_of(&repaired), wanted, "{repaired:?}");
        sea.on(node, |local| async move { local.store().set_version(5, 0, 0) });
    }
}

#[test]
fn a_table_that_is_dropped_on_either_at_any_step_fails_the_repair() {
    for node in 0..2 {
        let tally = Tally::default();
        for step in (0..24).step_by(2) {
            let (mut sea, _) = differing(u64::from(step));
            sea.slow_disks();
            let repairing = sea.begin_repair(0, Mode::Repair);
            sea.simulation.run_for(MOMENT * step);
            sea.on(node, |local| async move {
                local.shard.drop_table(local.id).await.expect("the disk works");
            });
            tally.note(name_of(&end(&mut sea, &repairing)));
        }
        let wanted = if node == 0 { "lost" } else { "refused" };
        assert!(tally.has(wanted), "node {node}: {tally:?}");
    }
}

#[test]
fn nodes_with_different_columns_are_not_repaired_until_both_have_followed() {
    let add = |table: &mut schema::Table| {
        table.add_column("w", types::CqlType::Int, schema::ColumnKind::Regular);
    };
    for node in 0..2 {
        let (mut sea, expected) = differing(6);
        sea.alter(node, add);
        let error = sea.repair(0, Mode::Repair).expect_err("other columns");
        assert!(
            matches!(
                &error,
                RepairError::Refused {
                    refusal: Refusal::SchemaDiffers,
                    ..
                }
            ) && error.is_passing(),
            "{error:?}"
        );
        for other in (0..3).filter(|other| *other != node) {
            sea.alter(other, add);
        }
        repair_at_last(&mut sea, &expected, "the same columns");
        // In the middle.
        let (mut sea, _) = differing_much(7);
        set_rate(&mut sea, 0, 1_000_000);
        let repairing = sea.begin_repair(0, Mode::Repair);
        sea.simulation.run_for(SECOND);
        sea.alter(node, add);
        let wanted = if node == 0 { "schema differs" } else { "refused" };
        assert_eq!(name_of(&end(&mut sea, &repairing)), wanted);
    }
}

#[test]
fn a_tablet_that_is_not_there_is_said() {
    let (mut sea, _) = differing(1);
    let move_away = |local: Local| async move {
        let wanted = replica::WantedTable {
            table: local.store().table(),
            ranges: vec![support::LOW],
            keeps_shards: false,
        };
        local.shard.reconcile(&[wanted]);
    };
    sea.on(1, move_away);
    let repaired = sea.repair(0, Mode::Repair);
    assert!(
        matches!(
            &repaired,
            Err(RepairError::Refused {
                refusal: Refusal::NotHere,
                ..
            })
        ),
        "{repaired:?}"
    );
    assert_eq!(name_of(&sea.repair(1, Mode::Repair)), "not here");
    let (mut sea, _) = differing_much(1);
    set_rate(&mut sea, 0, 1_000_000);
    let repairing = sea.begin_repair(0, Mode::Repair);
    sea.simulation.run_for(SECOND);
    sea.on(1, move_away);
    assert_eq!(name_of(&end(&mut sea, &repairing)), "refused");
}

#[test]
fn a_replica_with_a_quarantined_sstable_is_not_repaired_until_the_loss_is_accepted() {
    for node in 0..2 {
        let (mut sea, _) = differing(4);
        sea.flush(node);
        let id = sea.id(node);
        let path = sea.simulation.on_node(id, || {
            let dir = support::table_dir();
            let names = runtime::fs::read_dir(&dir).expect("the disk works");
            let name = names.into_iter().find(|entry| entry.name.ends_with("Statistics.db"));
            dir.join(name.expect("there is an sstable").name)
        });
        sea.simulation.rot(id, &path).expect("the file is there");
        sea.restart(node, CrashKind::Kill);
        let error = sea.repair(0, Mode::Repair).expect_err("something is missing");
        let is_missing = match &error {
            RepairError::Missing(reason) => node == 0 && reason.contains("me-"),
            RepairError::Refused {
                refusal: Refusal::Missing(reason),
                ..
            } => node == 1 && reason.contains("me-"),
            _ => false,
        };
        assert!(is_missing && !error.is_passing(), "{error:?}");
        sea.on(node, |local| async move {
            local.shard.accept_loss(&local.store()).await.expect("the disk works");
        });
        let contents = sea.contents();
        let expected = merged(&sea.table, &contents);
        repair_at_last(&mut sea, &expected, "the loss is accepted");
    }
}

async fn running(local: &Local) -> Vec<tasks::Status> {
    let mut all = local.shard.tasks().list(Module::Repair, true);
    all.retain(|status| matches!(status.state, tasks::State::Running | tasks::State::Created));
    all
}

#[test]
fn an_abort_on_either_ends_both() {
    for node in 0..2 {
        let (mut sea, expected) = differing_much(1);
        set_rate(&mut sea, 0, 1_000_000);
        let repairing = sea.begin_repair(0, Mode::Repair);
        sea.simulation.run_for(SECOND);
        let aborted = sea.on(node, |local| async move {
            let running = running(&local).await;
            running
                .iter()
                .filter(|status| local.shard.tasks().abort(status.id).is_ok())
                .count()
        });
        assert_eq!(aborted, 1);
        let error = end(&mut sea, &repairing).expect_err("it was aborted");
        let wanted = if node == 0 { "aborted" } else { "refused" };
        assert!(name_of::<()>(&Err(error)) == wanted, "node {node}");
        sea.simulation.run_for(3 * SECOND);
        for node in 0..2 {
            let left = sea.on(node, |local| async move { running(&local).await });
            assert_eq!(left.len(), 0, "{left:?}");
        }
        set_rate(&mut sea, 0, 0);
        repair_at_last(&mut sea, &expected, "after an abort");
    }
}

#[test]
fn a_caller_that_gives_up_ends_both() {
    let (mut sea, expected) = differing_much(1);
    set_rate(&mut sea, 0, 1_000_000);
    let others = sea.others(0);
    sea.on(0, move |local| async move {
        let repairing = runtime::timeout(SECOND, local.repair(support::WHOLE, others, Mode::Repair)).await;
        assert!(repairing.is_err(), "it takes longer");
    });
    sea.simulation.run_for(10 * SECOND);
    let metrics = sea.on(0, |_| async { repair::metrics() });
    assert_eq!((metrics.running, metrics.failed), (0, 1));
    let metrics = sea.on(1, |_| async { repair::metrics() });
    assert_eq!(metrics.serving, 0);
    set_rate(&mut sea, 0, 0);
    repair_at_last(&mut sea, &expected, "the caller has given up");
}

#[test]
fn a_participant_whose_repair_is_gone_ends_by_itself() {
    let (mut sea, _) = differing_much(1);
    set_rate(&mut sea, 0, 1_000_000);
    drop(sea.begin_repair(0, Mode::Repair));
    sea.simulation.run_for(SECOND);
    sea.crash(0, CrashKind::PowerLoss);
    let serving = |sea: &mut Sea| sea.on(1, |_| async { repair::metrics().serving });
    assert_eq!(serving(&mut sea), 1);
    sea.simulation.run_for(SESSION_IDLE / 2);
    assert_eq!(serving(&mut sea), 1, "the repair may go on");
    sea.simulation.run_for(SESSION_IDLE);
    assert_eq!(serving(&mut sea), 0);
}

fn set_rate(sea: &mut Sea, node: usize, rate: u64) {
    sea.on(node, move |local| async move {
        local.shard.tasks().set_bytes_per_second(Class::Repair, rate);
    });
}

/// The second has the deletion of some rows, and may not forget it when the repair begins: the first gets it as a hint
/// when the repair has read the rows there. Then the second is notified that all have it, and compacts.
#[test]
fn a_deletion_that_comes_to_a_replica_behind_the_repair_is_not_forgotten_before_it_ends() {
    let (mut sea, expected) = differing_much(11);
    let deleted_at = sea.now() - 3_600;
    for node in 0..2 {
        sea.alter(node, |table| {
            table.options.tombstone_gc = Some(TombstoneGc {
                mode: TombstoneGcMode::Repair,
                propagation_delay_seconds: 0,
            });
        });
        sea.apply(node, (100..130).map(|k| insert(&plain(), k, 0, 10, b"old")).collect());
        sea.flush(node);
    }
    let tombstone = Tombstone {
        timestamp: 20,
        deletion_time: deleted_at,
    };
    let deletions = || (100..130).map(|k| delete_partition(&plain(), k, tombstone)).collect();
    sea.apply(1, deletions());
    let say = |hold: TombstoneHold| {
        |local: Local| async move { local.shard.hold_tombstones(Box::new(move |_, _| hold.clone())) }
    };
    sea.on(1, say(TombstoneHold::UNKNOWN));
    set_rate(&mut sea, 0, 1_000_000);
    let repairing = sea.begin_repair(0, Mode::Repair);
    sea.simulation.run_for(SECOND);
    assert!(repairing.borrow().is_none(), "it has ended: nothing is tested");
    sea.on(1, say(TombstoneHold::ALONE));
    sea.flush(1);
    sea.compact(1);
    set_rate(&mut sea, 0, 0);
    end(&mut sea, &repairing).expect("nothing fails");
    sea.apply(0, deletions());
    sea.compact(1);
    let content = sea.content(1);
    let now = sea.now();
    assert_eq!(
        support::shown(&sea.table, &content, now),
        support::shown(&sea.table, &expected, now),
        "deleted rows are back"
    );
}

/// Nine megabytes here, and twelve there.
#[test]
fn bandwidth_is_limited_on_either_and_a_limit_that_is_raised_counts_at_once() {
    for node in 0..2 {
        let (mut sea, expected) = differing_much(1);
        set_rate(&mut sea, node, 50_000);
        let repairing = sea.begin_repair(0, Mode::Repair);
        sea.simulation.run_for(100 * SECOND);
        assert!(repairing.borrow().is_none(), "node {node}: it takes minutes");
        set_rate(&mut sea, node, 0);
        let is_over = || repairing.borrow().is_some();
        assert!(
            sea.simulation.run_until(20 * SECOND, is_over),
            "node {node}: it ends soon"
        );
        end(&mut sea, &repairing).expect("nothing fails");
        sea.assert_shows(&expected, "at last");
    }
}

/// With so little bandwidth a request takes longer than its caller waits: it ends early, and the rest is asked for
/// again.
#[test]
fn a_repair_ends_however_little_bandwidth_there_is() {
    let (mut sea, expected) = differing_much(1);
    set_rate(&mut sea, 1, 40_000);
    let repairing = sea.begin_repair(0, Mode::Repair);
    let is_over = || repairing.borrow().is_some();
    assert!(
        sea.simulation.run_until(24 * 60 * 60 * SECOND, is_over),
        "it takes hours, and ends"
    );
    end(&mut sea, &repairing).expect("nothing fails");
    sea.assert_shows(&expected, "at last");
}

#[test]
fn a_node_whose_disk_is_full_takes_deletions_and_no_data() {
    let table = support::plain();
    for full in 0..2 {
        let mut sea = Sea::new(1, 2, &table);
        let other = 1 - full;
        let row = insert(&table, 1, 1, 10, b"row");
        for node in 0..2 {
            sea.apply(node, vec![row.clone()]);
        }
        let tombstone = Tombstone {
            timestamp: 20,
            deletion_time: sea.now(),
        };
        sea.apply(other, vec![delete_range(&table, 1, (1, 2), tombstone)]);
        sea.on(full, |local| async move { local.shard.set_takes_growth(false) });
        let repaired = sea.repair(0, Mode::Repair);
        assert_eq!(
            support::name_of(&repaired),
            "repaired",
            "node {full}: a deletion makes room"
        );
        sea.apply(other, vec![insert(&table, 2, 1, 10, b"more")]);
        let refused = sea.repair(0, Mode::Repair);
        let is_said = matches!(
            &refused,
            Err(RepairError::DiskFull
                | RepairError::Refused {
                    refusal: Refusal::DiskFull,
                    ..
                })
        );
        assert!(is_said, "node {full}: {refused:?}");
        sea.on(full, |local| async move { local.shard.set_takes_growth(true) });
        sea.repair(0, Mode::Repair).expect("there is room again");
    }
}

#[test]
fn progress_goes_by_tokens_to_the_end() {
    let (mut sea, _) = differing_much(1);
    let others = sea.others(0);
    let status = sea.on(0, move |local| async move {
        let store = local.store();
        let task = repair::kinds::repair_range(&local.shard, &store, support::WHOLE, &Origin::Node);
        let request = repair::Request {
            table: local.id,
            range: support::WHOLE,
            others,
            now: support::now(),
            mode: Mode::Preview,
            rest: 0,
            marks: None,
        };
        let repaired = repair::repair(&local.rpc, &local.shard, &request, &task).await;
        repaired.expect("nothing fails");
        let id = task.id();
        local
            .shard
            .tasks()
            .list(Module::Repair, true)
            .into_iter()
            .find(|status| status.id == id)
    });
    let status = status.expect("it is listed");
    assert_eq!((status.completed, status.total), (1_000, 1_000));
}
