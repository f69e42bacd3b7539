//! Damaged sstables: a start continues without them, reads of what they may have had are refused until an operator
//! accepts the loss, and no file is lost whenever power is.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{options, whole};
use mutation::compact::LiveRow;
use mutation::row::{RowBuilder, Shared};
use mutation::{Liveness, Mutation, MutationBuilder, Tombstone};
use replica::{
    DiskFailure, PartitionReader, QuarantineChange, ReadError, RowName, ScanReader, Shard, TableStore, TokenRange,
};
use runtime::ShardId;
use runtime::sim::{CrashKind, NodeId, Simulation};
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use sstable::Component;
use stdx::planted::{Bug, Planted};
use test_node::{Hosted, Options, Process};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

const HOUR: Duration = Duration::from_hours(1);

/// `sea.t (k blob PRIMARY KEY, a int)`; nothing that is deleted needs to be kept.
fn table() -> Arc<Table> {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("a", CqlType::Int, ColumnKind::Regular),
    ];
    let options = TableOptions {
        gc_grace_seconds: 0,
        ..TableOptions::default()
    };
    Arc::new(Table::new("sea", "t", TableId(Uuid::from_u128(7)), columns, options))
}

fn dir() -> PathBuf {
    PathBuf::from(format!("/data/sea/t-{}", Uuid::from_u128(7).simple()))
}

/// A node's start.
fn open() -> (Rc<Shard>, Rc<TableStore>) {
    open_with(&[TokenRange::ALL])
}

/// A node's start, with those tablets of the table.
fn open_with(tablets: &[TokenRange]) -> (Rc<Shard>, Rc<TableStore>) {
    open_as(tablets, options(1 << 20))
}

fn open_as(tablets: &[TokenRange], options: Options) -> (Rc<Shard>, Rc<TableStore>) {
    let table = table();
    let hosted = Hosted {
        table: table.clone(),
        tablets: vec![tablets.to_vec()],
    };
    let shard = Process::start(options, vec![hosted]).open(ShardId(0));
    let store = shard.store(table.id).expect("it was opened");
    (shard, store)
}

fn write(shard: &Rc<Shard>, store: &TableStore, key: &[u8], at: i64, is_deletion: bool) {
    let table = store.table();
    let (mut bytes, token) = (Vec::new(), token_of(key));
    let mut builder = MutationBuilder::begin(&mut bytes, table.id, key);
    let deletion = Tombstone {
        timestamp: at,
        deletion_time: 1,
    };
    let (shared, marker) = (
        Shared {
            timestamp: at,
            ttl: 0,
            expiry: 0,
        },
        Liveness {
            timestamp: at,
            ttl: 0,
            expiry: 0,
        },
    );
    builder.row(&[], |out| {
        let (marker, tombstone) = if is_deletion {
            (None, deletion)
        } else {
            (Some(marker), Tombstone::NONE)
        };
        RowBuilder::begin(out, &table.layout, shared, marker, tombstone, false, 0);
    });
    let mutation = Mutation::new(&bytes).expect("a whole mutation");
    shard
        .write(store, token, &mutation)
        .expect("writes go on")
        .is_not_awaited();
}

async fn flush(shard: &Rc<Shard>, store: &Rc<TableStore>) {
    let tablet = store.tablets()[0].clone();
    shard.flush(store, &tablet).await.expect("the disk works");
}

/// Whether the row lives, by each of the ways to read it, which must agree.
async fn read(shard: &Rc<Shard>, store: &Rc<TableStore>, key: &[u8]) -> Result<bool, ReadError> {
    let (table, token) = (store.table(), token_of(key));
    let version = store.tablets()[0].version();
    let lives = |block: Option<&mutation::PartitionBlock>| {
        block.is_some_and(|b| {
            b.rows()
                .any(|(_, row)| LiveRow::new(row, &table.layout, b.tombstone, 2).is_live())
        })
    };
    let by_name = version.read_row(&table, &shard.cache, RowName::new(key, &[])).await;
    let partition = whole(key, 10);
    let limits = partition.limits;
    let mut reader = PartitionReader::new(table.clone(), version.clone(), shard.cache.clone(), partition);
    let by_partition = reader.next_block().await;
    let range = TokenRange {
        after: Token(token.0 - 1),
        to: token,
    };
    let from = (token, Vec::new());
    let mut scan = ScanReader::new(table.clone(), version.clone(), shard.cache.clone(), range, from, limits);
    let by_scan = scan.next_block().await;
    let found = [&by_name, &by_partition, &by_scan].map(|found| match found {
        Ok(block) => Ok(lives(block.as_ref())),
        Err(e) => Err(e.clone()),
    });
    assert!(found.iter().all(|f| *f == found[0]), "{found:?}");
    let from_memory = version.read_memory(RowName::new(key, &[]), &mut Vec::new(), |_, _| ());
    assert!(found[0].is_ok() || from_memory.is_none(), "memory answered alone");
    found[0].clone()
}

/// Keys by token; the deletion is of the second, so what is missing are the first three.
fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..5u8).map(|n| vec![n]).collect();
    keys.sort_by_key(|key| token_of(key));
    keys
}

/// File 1 has the rows of all keys. File 2 has the deletion of the second and newer rows of the first and the third.
async fn fill() {
    let (shard, store) = open();
    let keys = keys();
    keys.iter().for_each(|key| write(&shard, &store, key, 10, false));
    flush(&shard, &store).await;
    write(&shard, &store, &keys[0], 20, false);
    write(&shard, &store, &keys[1], 20, true);
    write(&shard, &store, &keys[2], 20, false);
    flush(&shard, &store).await;
}

fn run<F: Future<Output = ()> + 'static>(simulation: &mut Simulation, node: NodeId, f: impl Fn() -> F + 'static) {
    simulation.start(node, move |_| Box::pin(f()));
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
}

fn component(generation: u64, component: Component) -> PathBuf {
    dir().join(format!("me-{generation}-big-{}", component.suffix()))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = runtime::fs::read(path).expect("it is there");
    bytes[at] ^= 1;
    runtime::fs::write(path, &bytes).expect("the disk works");
    let file = runtime::fs::File::open(path, runtime::fs::OpenOptions::READ).expect("it is there");
    file.sync_all_blocking().expect("the disk works");
}

/// A node on which file 2 is damaged by `damage`.
fn damaged(damage: impl FnOnce()) -> (Simulation, NodeId) {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, fill);
    simulation.on_node(node, damage);
    (simulation, node)
}

/// What reads of all keys say: whether the row lives, or a word for the error.
async fn reads(shard: &Rc<Shard>, store: &Rc<TableStore>) -> Vec<&'static str> {
    let mut said = Vec::new();
    for key in keys() {
        said.push(match read(shard, store, &key).await {
            Ok(true) => "row",
            Ok(false) => "none",
            Err(ReadError::Missing { .. }) => "missing",
            Err(ReadError::File(_) | ReadError::NoRowMemory(_)) => "damaged",
            Err(ReadError::NoIndex | ReadError::NotIndexed { .. }) => "not indexed",
        });
    }
    said
}

fn check(simulation: &mut Simulation, node: NodeId, expected: [&'static str; 5]) {
    run(simulation, node, move || async move {
        let (shard, store) = open();
        assert_eq!(reads(&shard, &store).await, expected);
    });
}

#[test]
fn a_start_goes_on_without_a_damaged_file_and_refuses_what_it_may_have_had() {
    let small = Component::ALL
        .into_iter()
        .filter(|c| *c != Component::Toc && *c != Component::Digest);
    let mut tried = 0;
    for part in small {
        for is_gone in [false, true] {
            let path = component(2, part);
            let is_there = Rc::new(RefCell::new(true));
            let seen = is_there.clone();
            let (mut simulation, node) = damaged(move || {
                *seen.borrow_mut() = runtime::fs::exists(&path);
                if !*seen.borrow() {
                } else if is_gone {
                    runtime::fs::remove_file(&path).expect("it is there");
                    runtime::fs::sync_dir(dir()).expect("the disk works");
                } else if part != Component::Data && part != Component::Index {
                    flip(&path, 1);
                }
            });
            let is_read_later = !is_gone && (part == Component::Data || part == Component::Index);
            if !*is_there.borrow() || is_read_later {
                continue;
            }
            tried += 1;
            // Without a summary that a checksum vouches for it is not known which tokens are missing.
            let expected = match part {
                Component::Summary | Component::Checksums => ["missing"; 5],
                _ => ["missing", "missing", "missing", "row", "row"],
            };
            // Each start says so again.
            check(&mut simulation, node, expected);
            check(&mut simulation, node, expected);
        }
    }
    assert!(tried >= 11, "{tried} kinds of damage");
}

#[test]
fn writes_go_on_and_reads_do_when_the_operator_accepts_the_loss() {
    let (mut simulation, node) = damaged(|| flip(&component(2, Component::Filter), 1));
    run(&mut simulation, node, || async {
        let (shard, store) = open();
        // What is written now is no answer either, as what is missing may be newer.
        write(&shard, &store, &keys()[0], 30, false);
        assert_eq!(reads(&shard, &store).await[0], "missing");
        flush(&shard, &store).await;
        let names = shard.accept_loss(&store).await.expect("the disk works");
        assert_eq!(names, ["me-2-big-0"]);
        // The deletion of the second row is lost, as the operator accepted.
        assert_eq!(reads(&shard, &store).await, ["row"; 5]);
    });
    check(&mut simulation, node, ["row"; 5]);
    simulation.on_node(node, || {
        let aside = sstable::quarantined(&dir()).expect("the disk works");
        assert!(aside[0].is_accepted && aside[0].generation == Some(2), "{aside:?}");
        assert!(aside[0].reason.contains("me-2-big-Filter.db"), "{}", aside[0].reason);
        assert!(
            runtime::fs::exists(aside[0].dir.join("me-2-big-Data.db")),
            "no file is deleted"
        );
    });
}

#[test]
fn a_mended_file_that_is_put_back_hides_what_it_hid() {
    let (mut simulation, node) = damaged(|| flip(&component(2, Component::Filter), 1));
    run(&mut simulation, node, || async {
        let (shard, store) = open();
        // The tombstone is old enough to be purged, but it is not known what the missing file has.
        write(&shard, &store, &keys()[2], 30, true);
        flush(&shard, &store).await;
        shard.compact_table(&store).await.expect("compactions go on");
        assert_eq!(store.tablets()[0].version().sstables.len(), 1);
    });
    simulation.on_node(node, || {
        let aside = sstable::quarantined(&dir()).expect("the disk works");
        flip(&aside[0].dir.join("me-2-big-Filter.db"), 1);
        for part in Component::ALL {
            let (from, to) = (
                aside[0].dir.join(format!("me-2-big-{}", part.suffix())),
                component(2, part),
            );
            if runtime::fs::exists(&from) {
                runtime::fs::rename(&from, &to).expect("the disk works");
            }
        }
        runtime::fs::remove_dir_all(&aside[0].dir).expect("the disk works");
    });
    check(&mut simulation, node, ["row", "none", "none", "row", "row"]);
}

/// Every file below the table's directory, by its name, with its bytes; the marks of the quarantine are not among them.
fn files() -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir()];
    while let Some(dir) = dirs.pop() {
        for entry in runtime::fs::read_dir(&dir).expect("the disk works") {
            let path = dir.join(&entry.name);
            match runtime::fs::read(&path) {
                Ok(bytes) if entry.name.contains("-big-") => {
                    assert!(found.insert(entry.name, bytes).is_none(), "{} twice", path.display());
                }
                Ok(_) => {}
                Err(_) => dirs.push(path),
            }
        }
    }
    found
}

#[test]
fn no_file_is_lost_when_power_is_while_they_move() {
    for (operations, kind) in (0..40).flat_map(|n| [(n, CrashKind::PowerLoss), (n, CrashKind::Kill)]) {
        let (mut simulation, node) = damaged(|| flip(&component(2, Component::Statistics), 1));
        let before = simulation.on_node(node, files);
        simulation.start(node, |_| Box::pin(async { drop(open()) }));
        simulation.crash_after_file_ops(node, operations, kind);
        simulation.run_until_ended(node, HOUR);
        simulation.crash(node, kind);
        simulation.clear_file_faults(node);
        check(&mut simulation, node, ["missing", "missing", "missing", "row", "row"]);
        let (after, count) = simulation.on_node(node, || {
            (files(), sstable::quarantined(&dir()).expect("the disk works").len())
        });
        assert_eq!(before, after, "a crash after {operations} operations");
        assert_eq!(count, 1, "a start after a crash goes on in the same directory");
    }
}

#[test]
fn a_generation_that_is_used_again_overwrites_nothing() {
    let (mut simulation, node) = damaged(|| flip(&component(2, Component::Filter), 1));
    check(&mut simulation, node, ["missing", "missing", "missing", "row", "row"]);
    run(&mut simulation, node, || async {
        // As if the start had not looked among the damaged sstables for the largest generation.
        let options = Options {
            generations: Some(Arc::new(sstable::Generations::above(1))),
            ..options(1 << 20)
        };
        let (shard, store) = open_as(&[TokenRange::ALL], options);
        write(&shard, &store, &keys()[4], 30, false);
        flush(&shard, &store).await;
    });
    simulation.on_node(node, || flip(&component(2, Component::Filter), 1));
    run(&mut simulation, node, || async {
        let (shard, store) = open();
        assert_eq!(
            reads(&shard, &store).await,
            ["missing", "missing", "missing", "row", "missing"]
        );
        let names = shard.accept_loss(&store).await.expect("the disk works");
        assert_eq!(names, ["me-2-big-0", "me-2-big-1"]);
    });
}

#[test]
fn a_damaged_input_is_left_out_of_compactions_that_go_on() {
    let (mut simulation, node) = damaged(|| flip(&component(2, Component::Data), 1));
    run(&mut simulation, node, || async {
        let (shard, store) = open();
        for at in 30..33 {
            write(&shard, &store, &keys()[4], at, false);
            flush(&shard, &store).await;
        }
        shard.compact_table(&store).await.expect("the others are merged");
        let version = store.tablets()[0].version();
        let suspects: Vec<bool> = version.sstables.iter().map(|reader| reader.is_suspect()).collect();
        assert_eq!(
            suspects,
            [true, false],
            "the damaged file, and the others merged into one"
        );
        assert_eq!(
            reads(&shard, &store).await,
            ["damaged", "damaged", "damaged", "row", "row"]
        );
    });
}

#[test]
fn without_the_refusal_a_deleted_row_is_back() {
    let _planted = Planted::new(Some(Bug::DamagedFileIgnored));
    let (mut simulation, node) = damaged(|| flip(&component(2, Component::Filter), 1));
    check(&mut simulation, node, ["row"; 5]);
}

/// One read of each key, by its name: whether any met damage.
async fn meets_damage(shard: &Rc<Shard>, store: &Rc<TableStore>) -> bool {
    let mut meets = false;
    for key in keys() {
        let version = store.tablets()[0].version();
        let read = version
            .read_row(&store.table(), &shard.cache, RowName::new(&key, &[]))
            .await;
        meets |= matches!(read, Err(ReadError::File(_)));
    }
    meets
}

/// A node that looks into damage, as a real one does.
fn watched() -> (Rc<Shard>, Rc<TableStore>) {
    let (shard, store) = open();
    drop(runtime::spawn(shard.clone().watch_damage()));
    (shard, store)
}

#[test]
fn damage_that_a_read_meets_is_moved_aside_while_the_node_runs() {
    for part in [Component::Data, Component::Index] {
        let (mut simulation, node) = damaged(move || flip(&component(2, part), 1));
        run(&mut simulation, node, move || async move {
            let (shard, store) = watched();
            assert!(store.is_whole.get(), "no start looks at all of a file");
            let told = Rc::new(RefCell::new(Vec::new()));
            let changes = told.clone();
            shard.on_quarantine(Box::new(move |_, change| changes.borrow_mut().push(change)));
            let failures = Rc::new(RefCell::new(Vec::new()));
            let seen = failures.clone();
            shard.on_disk_failure(Box::new(move |failure, reason| {
                seen.borrow_mut().push((failure, reason.to_owned()));
            }));
            assert!(meets_damage(&shard, &store).await);
            runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(
                reads(&shard, &store).await,
                ["missing", "missing", "missing", "row", "row"]
            );
            assert!(!store.is_whole.get() && shard.sstables_lost() == 1);
            assert_eq!(*told.borrow(), [QuarantineChange::Missing]);
            let reason = component(2, part).display().to_string();
            let told_of = failures.borrow().clone();
            assert!(
                matches!(&told_of[..], [(DiskFailure::Corruption, text)] if text.contains(&reason)),
                "{told_of:?} should name {reason}"
            );
            assert_eq!(shard.disk_failures(), 0, "the disk read all places");
            shard.accept_loss(&store).await.expect("the disk works");
            assert!(store.is_whole.get());
            assert_eq!(*told.borrow(), [QuarantineChange::Missing, QuarantineChange::Accepted]);
            assert_eq!(reads(&shard, &store).await, ["row"; 5]);
        });
        check(&mut simulation, node, ["row"; 5]);
    }
}

#[test]
fn damage_that_a_compaction_meets_is_moved_aside_while_the_node_runs() {
    let (mut simulation, node) = damaged(|| flip(&component(2, Component::Data), 1));
    run(&mut simulation, node, || async {
        let (shard, store) = watched();
        shard.compact_table(&store).await.expect("the others are merged");
        runtime::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            reads(&shard, &store).await,
            ["missing", "missing", "missing", "row", "row"]
        );
    });
    check(&mut simulation, node, ["missing", "missing", "missing", "row", "row"]);
}

#[test]
fn a_whole_file_of_which_a_read_was_damaged_stays() {
    let mut met = 0;
    // A read of the row, and one of the look into it.
    let damages = (0..2).flat_map(|at| {
        [None]
            .into_iter()
            .chain((0..20).map(Some))
            .map(move |again| (at, again))
    });
    for (at, again) in damages {
        let (mut simulation, node) = damaged(|| ());
        let (is_open, goes) = (Rc::new(RefCell::new(false)), Rc::new(RefCell::new(false)));
        let (open_now, go, found) = (is_open.clone(), goes.clone(), Rc::new(RefCell::new(false)));
        let seen = found.clone();
        simulation.start(node, move |_| {
            let (is_open, goes, found) = (open_now.clone(), go.clone(), seen.clone());
            Box::pin(async move {
                let (shard, store) = watched();
                *is_open.borrow_mut() = true;
                while !*goes.borrow() {
                    runtime::sleep(Duration::from_millis(1)).await;
                }
                *found.borrow_mut() = meets_damage(&shard, &store).await;
                *goes.borrow_mut() = false;
                runtime::sleep(Duration::from_secs(5)).await;
                assert_eq!(reads(&shard, &store).await, ["row", "none", "row", "row", "row"]);
                let version = store.tablets()[0].version();
                assert!(version.sstables.iter().all(|reader| !reader.is_suspect()));
            })
        });
        assert!(simulation.run_until(HOUR, || *is_open.borrow()));
        simulation.damage_read_after(node, at);
        *goes.borrow_mut() = true;
        assert!(simulation.run_until(HOUR, || !*goes.borrow()), "nobody has read");
        if let Some(again) = again.filter(|_| *found.borrow()) {
            simulation.damage_read_after(node, again);
            simulation.run_for(Duration::from_secs(2));
            simulation.clear_file_faults(node);
        }
        assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
        met += usize::from(*found.borrow());
    }
    assert!(met >= 1, "no read met the damage");
}

#[test]
fn a_start_believes_no_damage_that_is_gone_when_the_file_is_read_again() {
    let middle = token_of(&keys()[2]);
    let halves = [
        TokenRange {
            after: Token(i64::MIN),
            to: middle,
        },
        TokenRange {
            after: middle,
            to: Token(i64::MAX),
        },
    ];
    // Files of two tablets are rewritten at the start. All reads of it come in turn; there are fewer than a hundred.
    for tablets in [&halves[..], &[TokenRange::ALL]] {
        for at in 0..100 {
            let (mut simulation, node) = damaged(|| ());
            simulation.damage_read_after(node, at);
            let tablets = tablets.to_vec();
            run(&mut simulation, node, move || {
                let tablets = tablets.clone();
                async move {
                    let (shard, store) = open_with(&tablets);
                    let moved = sstable::quarantined(&dir()).expect("the disk works");
                    assert!(moved.is_empty(), "read {at} was damaged: {moved:?}");
                    drop((shard, store));
                }
            });
            simulation.clear_file_faults(node);
            check(&mut simulation, node, ["row", "none", "row", "row", "row"]);
        }
    }
}

#[test]
fn a_truncation_lifts_the_quarantine() {
    let (mut simulation, node) = damaged(|| flip(&component(2, Component::Filter), 1));
    run(&mut simulation, node, || async {
        let (shard, store) = open();
        assert_eq!(reads(&shard, &store).await[0], "missing");
        shard.truncate(&store).await.expect("the disk works");
        assert_eq!(reads(&shard, &store).await, ["none"; 5]);
        write(&shard, &store, &keys()[0], 30, false);
        assert_eq!(reads(&shard, &store).await, ["row", "none", "none", "none", "none"]);
        flush(&shard, &store).await;
    });
    check(&mut simulation, node, ["row", "none", "none", "none", "none"]);
}

/// Writes and flushes row after row while a truncation waits for a file that is moved aside, and then comes in the
/// middle. How many flushes it overtook.
async fn flush_beside_a_truncation() -> usize {
    let (shard, store) = open();
    assert!(meets_damage(&shard, &store).await);
    let looking = shard.clone();
    let moved = runtime::spawn(async move { looking.look_into_damage().await });
    runtime::yield_now().await;
    let (truncating, of, is_done) = (shard.clone(), store.clone(), Rc::new(RefCell::new(false)));
    let done = is_done.clone();
    let truncation = runtime::spawn(async move {
        let result = truncating.truncate(&of).await;
        *done.borrow_mut() = true;
        result
    });
    let (mut written, mut overtaken) = (0, 0);
    while !*is_done.borrow() {
        write(&shard, &store, &[100, written], 30, false);
        let (flushing, of) = (shard.clone(), store.clone());
        let flush = runtime::spawn(async move { flushing.flush(&of, &of.tablets()[0]).await });
        while store.tablets()[0].version().frozen.is_empty() {
            runtime::yield_now().await;
        }
        // In memory when the flush of the row before it ends, unless the truncation comes first.
        write(&shard, &store, &[100, written + 1], 30, false);
        while !store.tablets()[0].version().frozen.is_empty() {
            runtime::yield_now().await;
        }
        overtaken += usize::from(store.tablets()[0].version().sstables.is_empty());
        flush.await.expect("the disk works");
        written += 2;
    }
    truncation.await.expect("the disk works");
    moved.await.expect("the disk works");
    let mut live = Vec::new();
    for n in 0..written {
        live.push(read(&shard, &store, &[100, n]).await.expect("nothing is missing"));
    }
    assert!(
        live.is_sorted(),
        "a row is back that is older than one that is gone: {live:?}"
    );
    overtaken
}

#[test]
fn a_flush_that_a_truncation_overtakes_brings_nothing_back() {
    let overtaken = Rc::new(RefCell::new(0));
    for delay in 1..=20 {
        let (mut simulation, node) = damaged(|| flip(&component(2, Component::Data), 1));
        simulation.set_disk_delay(node, Duration::from_millis(delay));
        let count = overtaken.clone();
        run(&mut simulation, node, move || {
            let count = count.clone();
            async move { *count.borrow_mut() += flush_beside_a_truncation().await }
        });
    }
    let overtaken = *overtaken.borrow();
    assert!(overtaken >= 5, "{overtaken} of 20 truncations overtook a flush");
}

/// Whenever power goes, the sstable is found damaged again or is aside, and nothing is read without it.
#[test]
fn no_file_is_lost_when_power_is_while_a_running_node_moves_them() {
    for operations in 0..40 {
        let (mut simulation, node) = damaged(|| flip(&component(2, Component::Data), 1));
        let before = simulation.on_node(node, files);
        simulation.start(node, |_| {
            Box::pin(async {
                let (shard, store) = watched();
                meets_damage(&shard, &store).await;
                runtime::sleep(Duration::from_secs(1)).await;
            })
        });
        simulation.crash_after_file_ops(node, operations, CrashKind::PowerLoss);
        simulation.run_until_ended(node, HOUR);
        simulation.crash(node, CrashKind::PowerLoss);
        simulation.clear_file_faults(node);
        run(&mut simulation, node, move || async move {
            let (shard, store) = watched();
            for key in &keys()[..3] {
                let version = store.tablets()[0].version();
                let table = store.table();
                let read = version.read_row(&table, &shard.cache, RowName::new(key, &[]));
                assert!(read.await.is_err(), "a crash after {operations} operations");
            }
            runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(reads(&shard, &store).await[..3], ["missing"; 3]);
        });
        assert_eq!(
            before,
            simulation.on_node(node, files),
            "a crash after {operations} operations"
        );
    }
}
