//! What fails while data is copied: a later copy has exactly the rows, and nothing is left over.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use crate::support;
use crate::support::{Cluster, Local, MOMENT, Pulling, Rows, SECOND, WHOLE, name_of};
use runtime::sim::CrashKind;
use streaming::{Refusal, SESSION_IDLE, StreamError};
use tasks::{Class, Module, Origin};
use test_node::Tally;

const KEYS: u32 = 40;
/// Longer than a copy takes.
const LIMIT: Duration = Duration::from_mins(5);

/// Two sstables and a memtable; every fifth row is deleted.
async fn fill(local: Local) -> Rows {
    let mut rows = Rows::new();
    for k in 0..KEYS {
        local.write(k, 10).await;
        rows.insert(k, 10);
        if k % 16 == 15 {
            local.flush().await;
        }
        if k % 5 == 0 {
            local.delete(k, 20).await;
            rows.remove(&k);
        }
    }
    rows
}

/// Writes rows with values that need several chunks.
async fn fill_much(local: Local) -> Rows {
    let mut rows = Rows::new();
    for k in 0..KEYS {
        local.apply(k, 10, Some(250_000)).await;
        rows.insert(k, 10);
    }
    local.flush().await;
    rows
}

fn filled(seed: u64) -> (Cluster, Rows) {
    let mut cluster = Cluster::new(seed, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, fill);
    (cluster, rows)
}

fn assert_clean(cluster: &mut Cluster, what: &str) {
    for node in 0..2 {
        assert_eq!(cluster.leftovers(node), Vec::<String>::new(), "node {node}, {what}");
    }
}

/// Copies and finds exactly the rows.
fn copy_at_last(cluster: &mut Cluster, rows: &Rows, what: &str) {
    let pulled = cluster.pull(1, WHOLE, &[0]);
    assert!(pulled.is_ok(), "{what}: {pulled:?}");
    assert_eq!(cluster.rows(1, 0..KEYS), *rows, "{what}");
    cluster.on(1, |local| async move { local.compact().await });
    assert_eq!(cluster.rows(1, 0..KEYS), *rows, "compacted, {what}");
    assert_clean(cluster, what);
}

/// A machine loses power after so many file operations that change something.
fn lose_power(node: usize, operations: u64, tally: &Tally) {
    let what = format!("power loss of node {node} after {operations} operations");
    let (mut cluster, rows) = filled(operations);
    let pulling = cluster.begin_pull(1, WHOLE, &[0]);
    let id = cluster.id(node);
    cluster
        .simulation
        .crash_after_file_ops(id, operations, CrashKind::PowerLoss);
    let is_over = || pulling.borrow().is_some();
    cluster.simulation.run_until(LIMIT, is_over);
    // Some of the files are removed after the copy has ended.
    cluster.simulation.run_for(SECOND);
    let pulled = pulling.take();
    tally.note(pulled.as_ref().map_or("gone", name_of));
    cluster.restart(node, CrashKind::PowerLoss);
    let there = cluster.rows(1, 0..KEYS);
    match &pulled {
        Some(Ok(_)) => assert_eq!(there, rows, "what was copied is durable, {what}"),
        _ => assert!(there.is_empty() || there == rows, "all or nothing, {what}: {there:?}"),
    }
    copy_at_last(&mut cluster, &rows, &what);
}

#[test]
fn a_target_that_loses_power_anywhere_has_all_of_a_source_or_nothing() {
    let tally = Tally::default();
    for operations in (0..160).step_by(3) {
        lose_power(1, operations, &tally);
    }
    assert!(tally.has("gone") && tally.has("copied"), "{tally:?}");
}

#[test]
fn a_source_that_loses_power_anywhere_is_copied_from_when_it_is_back() {
    let tally = Tally::default();
    for operations in (0..150).step_by(4) {
        lose_power(0, operations, &tally);
    }
    assert!(tally.has("unreachable") && tally.has("copied"), "{tally:?}");
}

#[test]
fn a_source_that_is_killed_in_the_middle_is_given_up_and_nothing_of_it_is_taken() {
    let tally = Tally::default();
    for step in 0..25 {
        let (mut cluster, rows) = filled(step);
        let pulling = cluster.begin_pull(1, WHOLE, &[0]);
        cluster
            .simulation
            .run_for(MOMENT * u32::try_from(step).expect("few") * 2);
        cluster.crash(0, CrashKind::Kill);
        assert!(
            cluster.simulation.run_until(LIMIT, || pulling.borrow().is_some()),
            "it ends"
        );
        let pulled = pulling.take().expect("it has ended");
        tally.note(name_of(&pulled));
        assert_eq!(cluster.leftovers(1), Vec::<String>::new(), "killed after step {step}");
        let there = cluster.rows(1, 0..KEYS);
        assert_eq!(there, if pulled.is_ok() { rows.clone() } else { Rows::new() });
        cluster.start_again(0);
        copy_at_last(&mut cluster, &rows, &format!("killed after step {step}"));
    }
    assert!(tally.has("unreachable") && tally.has("copied"), "{tally:?}");
}

#[test]
fn a_source_that_starts_again_in_the_middle_has_forgotten_the_stream() {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, fill_much);
    let pulling = cluster.begin_pull(1, WHOLE, &[0]);
    cluster.await_bytes(1);
    cluster.restart(0, CrashKind::Kill);
    assert!(
        cluster.simulation.run_until(LIMIT, || pulling.borrow().is_some()),
        "it ends"
    );
    let error = pulling.take().expect("it has ended").expect_err("the stream is gone");
    let StreamError::Refused { refusal, .. } = &error else {
        panic!("{error}");
    };
    assert!(*refusal == Refusal::Ended && error.is_passing(), "{error}");
    cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
    assert_clean(&mut cluster, "after a restart of the source");
}

#[test]
fn messages_that_are_lost_late_or_come_twice_change_nothing() {
    for seed in 0..8 {
        let (mut cluster, rows) = filled(seed);
        let (source, target) = (cluster.id(0), cluster.id(1));
        for (from, to) in [(source, target), (target, source)] {
            cluster.simulation.set_loss(from, to, 100_000);
            cluster.simulation.set_message_faults(from, to, 300_000, 300_000);
        }
        let pulled = cluster.pull(1, WHOLE, &[0]);
        assert!(pulled.is_ok(), "{pulled:?}");
        assert_eq!(cluster.rows(1, 0..KEYS), rows, "seed {seed}");
        cluster.simulation.run_for(SESSION_IDLE + 10 * SECOND);
        assert_clean(&mut cluster, "disturbed messages");
        assert!(cluster.simulation.disturbed_messages() > 0, "seed {seed}");
    }
}

#[test]
fn a_network_split_in_the_middle_is_waited_out_or_given_up() {
    let outcomes = Tally::default();
    for (seconds, seed) in [(2, 1), (5, 2), (120, 3)] {
        let mut cluster = Cluster::new(seed, &[WHOLE, WHOLE]);
        let rows = cluster.on(0, fill_much);
        let pulling = cluster.begin_pull(1, WHOLE, &[0]);
        cluster.await_bytes(1);
        let (source, target) = (cluster.id(0), cluster.id(1));
        cluster.simulation.partition(&[source], &[target]);
        cluster.simulation.run_for(SECOND * seconds);
        cluster.simulation.heal(&[source], &[target]);
        assert!(
            cluster.simulation.run_until(LIMIT, || pulling.borrow().is_some()),
            "it ends"
        );
        outcomes.note(name_of(&pulling.take().expect("it has ended")));
        cluster.simulation.run_for(SESSION_IDLE + 10 * SECOND);
        assert_clean(&mut cluster, "after a network split");
        cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
        assert_eq!(cluster.rows(1, 0..KEYS), rows);
    }
    assert!(outcomes.has("copied") && outcomes.has("unreachable"), "{outcomes:?}");
}

#[test]
fn a_full_disk_of_the_target_is_said_and_its_files_are_removed() {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, fill_much);
    let id = cluster.id(1);
    cluster.simulation.set_disk_capacity(id, Some(5 << 20));
    let pulled = cluster.pull(1, WHOLE, &[0]);
    assert_eq!(name_of(&pulled), "disk full", "{pulled:?}");
    assert_clean(&mut cluster, "a full disk");
    cluster.simulation.set_disk_capacity(id, None);
    copy_at_last(&mut cluster, &rows, "room again");
}

#[test]
fn a_target_whose_disk_is_nearly_full_takes_no_tablet_and_moves_its_own_away() {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, fill_much);
    let set = |cluster: &mut Cluster, node: usize, takes| {
        cluster.on(node, move |local| async move { local.shard.set_takes_growth(takes) });
    };
    set(&mut cluster, 1, false);
    let pulled = cluster.pull(1, WHOLE, &[0]);
    assert_eq!(name_of(&pulled), "disk full", "{pulled:?}");
    assert_clean(&mut cluster, "nothing was begun");
    set(&mut cluster, 1, true);
    set(&mut cluster, 0, false);
    cluster.pull(1, WHOLE, &[0]).expect("a full node is copied from");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
}

#[test]
fn an_operation_that_fails_on_the_disk_of_either_takes_nothing_in_part() {
    for (node, kind, wanted) in [
        (1, ErrorKind::StorageFull, "disk full"),
        (1, ErrorKind::PermissionDenied, "disk"),
        (0, ErrorKind::StorageFull, "refused"),
    ] {
        let tally = Tally::default();
        for operations in (0..1000).step_by(11) {
            let what = format!("{kind:?} on node {node}, operation {operations}");
            let (mut cluster, rows) = filled(operations);
            let id = cluster.id(node);
            cluster.simulation.fail_file_op_after(id, operations, kind);
            let pulled = cluster.pull(1, WHOLE, &[0]);
            cluster.simulation.clear_file_faults(id);
            tally.note(name_of(&pulled));
            let there = cluster.rows(1, 0..KEYS);
            assert_eq!(there, if pulled.is_ok() { rows.clone() } else { Rows::new() }, "{what}");
            // The operation that failed may have been the removal of a directory.
            cluster.restart(node, CrashKind::Kill);
            copy_at_last(&mut cluster, &rows, &what);
        }
        assert!(tally.has(wanted) && tally.has("copied"), "{node} {kind:?}: {tally:?}");
    }
}

#[test]
fn bytes_that_change_on_the_way_from_the_disk_are_found() {
    let tally = Tally::default();
    for reads in 0..60 {
        let (mut cluster, rows) = filled(reads);
        cluster.on(0, |local| async move { local.flush().await });
        let id = cluster.id(0);
        cluster.simulation.damage_read_after(id, reads);
        let pulled = cluster.pull(1, WHOLE, &[0]);
        cluster.simulation.clear_file_faults(id);
        tally.note(name_of(&pulled));
        let there = cluster.rows(1, 0..KEYS);
        assert_eq!(
            there,
            if pulled.is_ok() { rows.clone() } else { Rows::new() },
            "read {reads}"
        );
        copy_at_last(&mut cluster, &rows, &format!("read {reads}"));
    }
    assert!(tally.has("damaged") && tally.has("copied"), "{tally:?}");
}

#[test]
fn a_file_of_the_source_that_has_rotted_is_not_taken() {
    for component in ["Data.db", "Index.db", "Statistics.db", "Filter.db", "Summary.db"] {
        let (mut cluster, _) = filled(3);
        cluster.on(0, |local| async move { local.flush().await });
        let id = cluster.id(0);
        let path = cluster.simulation.on_node(id, || {
            let dir = support::table_dir();
            let names = runtime::fs::read_dir(&dir).expect("the disk works");
            let name = names.into_iter().find(|entry| entry.name.ends_with(component));
            dir.join(name.expect("there is an sstable").name)
        });
        cluster.simulation.rot(id, &path).expect("the file is there");
        let pulled = cluster.pull(1, WHOLE, &[0]);
        assert_eq!(name_of(&pulled), "damaged", "{component}: {pulled:?}");
        assert_eq!(cluster.rows(1, 0..KEYS), Rows::new());
        assert_clean(&mut cluster, component);
    }
}

#[test]
fn a_source_with_a_quarantined_sstable_gives_nothing_until_the_loss_is_accepted() {
    let (mut cluster, _) = filled(4);
    cluster.on(0, |local| async move { local.flush().await });
    let id = cluster.id(0);
    let path = cluster.simulation.on_node(id, || {
        let dir = support::table_dir();
        let names = runtime::fs::read_dir(&dir).expect("the disk works");
        let name = names.into_iter().find(|entry| entry.name.ends_with("Statistics.db"));
        dir.join(name.expect("there is an sstable").name)
    });
    cluster.simulation.rot(id, &path).expect("the file is there");
    cluster.restart(0, CrashKind::Kill);
    let pulled = cluster.pull(1, WHOLE, &[0]);
    let Err(StreamError::Refused { refusal, .. }) = &pulled else {
        panic!("{pulled:?}");
    };
    assert!(
        matches!(refusal, Refusal::Missing(names) if names.contains("me-")),
        "{refusal:?}"
    );
    assert_clean(&mut cluster, "a quarantined sstable");
    cluster.on(0, |local| async move {
        local.shard.accept_loss(&local.store()).await.expect("the disk works");
    });
    cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    let rows = cluster.rows(0, 0..KEYS);
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Source,
    Target,
    Both,
}

/// Truncates at a step of a copy. Rows from before never come back, however often it is tried.
fn truncate_at(step: u32, who: Who, tally: &Tally) {
    let what = format!("{who:?} truncates after step {step}");
    let (mut cluster, _) = filled(u64::from(step));
    let pulling = cluster.begin_pull(1, WHOLE, &[0]);
    cluster.simulation.run_for(MOMENT * step);
    let nodes: &[usize] = match who {
        Who::Source => &[0],
        Who::Target => &[1],
        Who::Both => &[0, 1],
    };
    for node in nodes {
        cluster.on(*node, |local| async move { local.truncate(5).await });
    }
    if who != Who::Source {
        assert_eq!(cluster.rows(1, 0..KEYS), Rows::new(), "it is truncated, {what}");
    }
    assert!(
        cluster.simulation.run_until(LIMIT, || pulling.borrow().is_some()),
        "it ends"
    );
    tally.note(name_of(&pulling.take().expect("it has ended")));
    if who != Who::Source {
        assert_eq!(cluster.rows(1, 0..KEYS), Rows::new(), "nothing is back, {what}");
        cluster.restart(1, CrashKind::PowerLoss);
        assert_eq!(
            cluster.rows(1, 0..KEYS),
            Rows::new(),
            "nothing is back after a start, {what}"
        );
    }
    if who != Who::Both {
        let pulled = cluster.pull(1, WHOLE, &[0]);
        assert_eq!(name_of(&pulled), "refused", "{what}: {pulled:?}");
        let other = if who == Who::Source { 1 } else { 0 };
        cluster.on(other, |local| async move { local.truncate(5).await });
    }
    cluster.on(0, |local| async move { local.write(3, 40).await });
    copy_at_last(&mut cluster, &Rows::from([(3, 40)]), &what);
}

#[test]
fn what_was_truncated_on_one_of_both_or_on_both_does_not_come_back() {
    for who in [Who::Source, Who::Target, Who::Both] {
        let tally = Tally::default();
        for step in 0..36 {
            truncate_at(step, who, &tally);
        }
        let stopped = tally.has("refused") || tally.has("lost");
        assert!(stopped && tally.has("copied"), "{who:?}: {tally:?}");
    }
}

/// One truncation mark covers a table and what acceptors know of it.
#[test]
fn what_acceptors_know_is_not_copied_from_a_node_that_has_not_truncated_the_table() {
    let (mut cluster, _) = filled(2);
    let states = replica::paxos_state_id(support::table().id);
    let copy = |cluster: &mut Cluster| {
        let sources = vec![cluster.source(0)];
        let copied = cluster.on(
            1,
            move |local| async move { local.pull_of(states, WHOLE, sources).await },
        );
        name_of(&copied)
    };
    assert_eq!(copy(&mut cluster), "copied");
    cluster.on(1, |local| async move { local.truncate(5).await });
    assert_eq!(copy(&mut cluster), "refused");
    cluster.on(0, |local| async move { local.truncate(5).await });
    assert_eq!(copy(&mut cluster), "copied");
    cluster.on(1, |local| async move { local.store().set_version(7, 0, 7) });
    assert_eq!(copy(&mut cluster), "not truncated");
}

/// Power goes while the target both adopts and truncates.
#[test]
fn a_target_that_loses_power_while_it_truncates_has_nothing_from_before() {
    for operations in (0..120).step_by(4) {
        let (mut cluster, _) = filled(operations);
        let pulling = cluster.begin_pull(1, WHOLE, &[0]);
        let step = u32::try_from(operations % 30).expect("few");
        cluster.simulation.run_for(MOMENT * step);
        let truncating = cluster.spawn(1, |local| async move { local.truncate(5).await });
        let id = cluster.id(1);
        cluster
            .simulation
            .crash_after_file_ops(id, operations / 2, CrashKind::PowerLoss);
        let is_over = || pulling.borrow().is_some() && truncating.borrow().is_some();
        cluster.simulation.run_until(LIMIT, is_over);
        let is_truncated = truncating.borrow().is_some();
        cluster.restart(1, CrashKind::PowerLoss);
        let truncated_at = cluster.on(1, |local| async move { local.store().truncated_at.get() });
        assert!(truncated_at == 5 || !is_truncated, "operation {operations}");
        if truncated_at < 5 {
            // As a start does where the metadata say so.
            cluster.on(1, |local| async move { local.truncate(5).await });
        }
        assert_eq!(cluster.rows(1, 0..KEYS), Rows::new(), "operation {operations}");
    }
}

#[test]
fn a_table_that_is_dropped_on_either_at_any_step_leaves_nothing() {
    for node in 0..2 {
        let tally = Tally::default();
        for step in (0..30).step_by(2) {
            let (mut cluster, _) = filled(u64::from(step));
            let pulling = cluster.begin_pull(1, WHOLE, &[0]);
            cluster.simulation.run_for(MOMENT * step);
            cluster.on(node, |local| async move {
                local
                    .shard
                    .drop_table(support::table().id)
                    .await
                    .expect("the disk works");
            });
            assert!(
                cluster.simulation.run_until(LIMIT, || pulling.borrow().is_some()),
                "it ends"
            );
            tally.note(name_of(&pulling.take().expect("it has ended")));
            assert_clean(&mut cluster, &format!("node {node} drops the table after step {step}"));
            let id = cluster.id(node);
            let left = cluster.simulation.on_node(id, || {
                sstable::list(&support::table_dir()).map_or(0, |sstables| sstables.len())
            });
            assert_eq!(left, 0, "node {node} drops the table after step {step}");
        }
        assert!(tally.has("lost") || tally.has("refused"), "{tally:?}");
    }
}

#[test]
fn nodes_with_different_columns_do_not_copy_and_one_that_is_altered_meanwhile_reads_right() {
    let add = |table: &mut schema::Table| {
        table.add_column("w", types::CqlType::Int, schema::ColumnKind::Regular);
    };
    for node in 0..2 {
        let (mut cluster, rows) = filled(6);
        cluster.alter(node, add);
        assert_eq!(name_of(&cluster.pull(1, WHOLE, &[0])), "schema differs");
        assert_clean(&mut cluster, "other columns");
        cluster.alter(1 - node, add);
        copy_at_last(&mut cluster, &rows, "the same columns");
        let tally = Tally::default();
        for step in 0..30 {
            let (mut cluster, rows) = filled(u64::from(step));
            let pulling = cluster.begin_pull(1, WHOLE, &[0]);
            cluster.simulation.run_for(MOMENT * step);
            cluster.alter(node, add);
            assert!(
                cluster.simulation.run_until(LIMIT, || pulling.borrow().is_some()),
                "it ends"
            );
            tally.note(name_of(&pulling.take().expect("it has ended")));
            cluster.alter(1 - node, add);
            copy_at_last(
                &mut cluster,
                &rows,
                &format!("node {node} is altered after step {step}"),
            );
        }
        assert!(tally.has("copied"), "{tally:?}");
    }
}

/// The tasks of streams that run on a node.
async fn running(local: &Local) -> Vec<tasks::Status> {
    let mut all = local.shard.tasks().list(Module::Streaming, true);
    all.retain(|status| matches!(status.state, tasks::State::Running | tasks::State::Created));
    all
}

#[test]
fn an_abort_on_either_ends_both_and_removes_the_files() {
    for node in 0..2 {
        let tally = Tally::default();
        for step in (0..40).step_by(3) {
            let mut cluster = Cluster::new(u64::from(step), &[WHOLE, WHOLE]);
            cluster.on(0, fill_much);
            let pulling = cluster.begin_pull(1, WHOLE, &[0]);
            cluster.simulation.run_for(MOMENT * step);
            let aborted = cluster.on(node, |local| async move {
                let running = running(&local).await;
                running
                    .iter()
                    .filter(|status| local.shard.tasks().abort(status.id).is_ok())
                    .count()
            });
            assert!(
                cluster.simulation.run_until(LIMIT, || pulling.borrow().is_some()),
                "it ends"
            );
            let pulled = pulling.take().expect("it has ended");
            tally.note(name_of(&pulled));
            assert!(
                aborted > 0 || step == 0 || pulled.is_ok(),
                "nothing to abort at step {step}"
            );
            assert_clean(&mut cluster, &format!("node {node} aborts at step {step}"));
            for node in 0..2 {
                let left = cluster.on(node, |local| async move { running(&local).await });
                assert_eq!(left.len(), 0, "{left:?}");
            }
        }
        let wanted = if node == 0 { "refused" } else { "aborted" };
        assert!(tally.has(wanted), "node {node}: {tally:?}");
    }
}

#[test]
fn a_caller_that_gives_up_ends_both() {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    cluster.on(0, fill_much);
    cluster.slow_disks();
    let sources = vec![cluster.source(0)];
    cluster.on(1, move |local| async move {
        let pulling = runtime::timeout(MOMENT * 60, local.pull(WHOLE, sources)).await;
        assert!(pulling.is_err(), "it takes longer");
    });
    assert_clean(&mut cluster, "the caller has given up");
    assert_eq!(cluster.rows(1, 0..KEYS), Rows::new());
}

#[test]
fn a_source_whose_target_is_gone_ends_the_stream_by_itself() {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    cluster.on(0, fill_much);
    drop(cluster.begin_pull(1, WHOLE, &[0]));
    cluster.await_bytes(1);
    cluster.crash(1, CrashKind::PowerLoss);
    assert_eq!(cluster.dirs(0).len(), 1, "the copy is there");
    cluster.simulation.run_for(SESSION_IDLE / 2);
    assert_eq!(cluster.dirs(0).len(), 1, "the target may come back");
    cluster.simulation.run_for(SESSION_IDLE);
    assert_eq!(cluster.dirs(0), Vec::<String>::new());
    let metrics = cluster.on(0, |_| async { streaming::metrics() });
    assert_eq!((metrics.serving, metrics.failed_serving), (0, 1));
}

#[test]
fn a_call_again_ends_the_stream_of_the_call_before() {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, fill_much);
    drop(cluster.begin_pull(1, WHOLE, &[0]));
    cluster.await_bytes(1);
    cluster.restart(1, CrashKind::PowerLoss);
    assert_eq!(
        cluster.dirs(0).len(),
        1,
        "the source does not know that the target has started again"
    );
    cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
    assert_clean(&mut cluster, "the stream before has ended");
}

/// Copies ten megabytes with a limit on one of both.
fn limited(node: usize, rate: u64) -> (Cluster, Pulling) {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    cluster.on(0, fill_much);
    set_rate(&mut cluster, node, rate);
    let pulling = cluster.begin_pull(1, WHOLE, &[0]);
    (cluster, pulling)
}

fn set_rate(cluster: &mut Cluster, node: usize, rate: u64) {
    cluster.on(node, move |local| async move {
        local.shard.tasks().set_bytes_per_second(Class::Streaming, rate);
    });
}

#[test]
fn bandwidth_is_limited_on_either() {
    for node in 0..2 {
        let (mut cluster, pulling) = limited(node, 200_000);
        cluster.simulation.run_for(40 * SECOND);
        assert!(pulling.borrow().is_none(), "it takes fifty seconds");
        let is_over = || pulling.borrow().is_some();
        assert!(cluster.simulation.run_until(20 * SECOND, is_over), "not longer");
        pulling.take().expect("it has ended").expect("nothing fails");
    }
}

/// A chunk takes longer than a session may be idle.
#[test]
fn a_target_that_waits_for_its_bandwidth_keeps_the_stream_open_and_goes_on_when_the_limit_is_raised() {
    let (mut cluster, pulling) = limited(1, 20_000);
    cluster.simulation.run_for(4 * SESSION_IDLE);
    assert!(pulling.borrow().is_none(), "it takes longer");
    set_rate(&mut cluster, 1, 0);
    let is_over = || pulling.borrow().is_some();
    assert!(cluster.simulation.run_until(10 * SECOND, is_over), "it ends soon");
    pulling.take().expect("it has ended").expect("nothing fails");
    assert_eq!(cluster.rows(1, 0..KEYS).len(), KEYS as usize);
}

#[test]
fn as_many_streams_run_as_the_class_has_workers() {
    let (mut cluster, rows) = filled(1);
    let is_free = Rc::new(Cell::new(false));
    let free = is_free.clone();
    drop(cluster.spawn(1, |local| async move {
        let task = streaming::kinds::stream_tablet(&local.shard, &local.store(), &[WHOLE], &Origin::Node);
        let worker = task.worker().await.expect("nobody aborts it");
        while !free.get() {
            runtime::sleep(SECOND).await;
        }
        drop(worker);
        task.done();
    }));
    let pulling = cluster.begin_pull(1, WHOLE, &[0]);
    cluster.simulation.run_for(10 * SECOND);
    assert!(pulling.borrow().is_none(), "no worker, no copy");
    is_free.set(true);
    assert!(
        cluster.simulation.run_until(10 * SECOND, || pulling.borrow().is_some()),
        "it ends"
    );
    pulling.take().expect("it has ended").expect("nothing fails");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
}
