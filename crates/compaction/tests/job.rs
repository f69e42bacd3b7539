//! A merged sstable holds what merging the inputs in memory gives, whatever the cuts; nothing else remains on disk.

#[path = "../../sstable/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{NOW, NOW_US, TempDir, describe, long_partition, long_table, wide_blocks, wide_table};
use compaction::{Error, Job, Outcome, run};
use mutation::compact::{Purge, compact_block};
use mutation::merge::merge_blocks;
use mutation::{Bound, PartitionBlock, RangeTombstone, Tombstone};
use schema::Table;
use sstable::{EncodingBase, ReadLimits, Reader, Writer, WriterOptions};
use tasks::{Class, Kind, Module, Origin, Spec, Task, Tasks};
use types::Token;

fn write(dir: &Path, generation: u64, table: &Table, blocks: &[PartitionBlock]) -> Arc<Reader> {
    let base = EncodingBase::of_blocks(&table.layout, blocks);
    let options = WriterOptions::of_table(table, blocks.len() as u64, base).expect("known options");
    let mut writer = Writer::create(dir, generation, table, options).expect("a directory");
    blocks.iter().for_each(|b| writer.append(b).expect("room on the disk"));
    writer.finish().expect("room on the disk");
    Reader::open(dir, generation, table).expect("what was just written")
}

fn read(reader: &Arc<Reader>) -> Vec<PartitionBlock> {
    let mut scan = reader
        .scan_blocking(Token::MIN, Token::MAX, ReadLimits::NONE)
        .expect("an index");
    std::iter::from_fn(|| scan.next_block().expect("undamaged data")).collect()
}

const KIND: Kind = Kind {
    name: "compaction",
    module: Module::Compaction,
    class: Class::Compaction,
    units: "bytes",
    is_abortable: true,
};

fn task() -> Task {
    Tasks::new(1, uuid::Uuid::nil()).start(Spec::of(&KIND), &Origin::Node)
}

fn job(dir: &TempDir, table: &Table, inputs: &[Arc<Reader>]) -> Job {
    let next = AtomicU64::new(100);
    Job {
        table: Arc::new(table.clone()),
        inputs: inputs.to_vec(),
        dir: dir.0.clone(),
        next_generation: Box::new(move || next.fetch_add(1, Ordering::Relaxed).into()),
        ranges: vec![(Token::MIN, Token::MAX)],
        now: NOW,
        gc_before: 0,
        held: Vec::new(),
        overlapping: Vec::new(),
        memtables_min_timestamp: i64::MAX,
        output_bytes_max: u64::MAX,
        host_id: None,
        control: task().control(),
    }
}

fn outputs(dir: &TempDir, table: &Table, outcome: &Outcome) -> Vec<PartitionBlock> {
    let open = |m: &sstable::Meta| {
        sstable::tool::verify(&m.descriptor.path(sstable::Component::Data)).expect("a sound output");
        Reader::open_descriptor(&m.descriptor, table).expect("a sealed output")
    };
    let _ = dir;
    outcome.outputs.iter().flat_map(|m| read(&open(m))).collect()
}

/// Merges whole partitions in memory.
fn model(table: &Table, inputs: &[Vec<PartitionBlock>], purge: &Purge) -> Vec<String> {
    let mut all: Vec<&PartitionBlock> = inputs.iter().flatten().collect();
    all.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    all.chunk_by(|a, b| a.key() == b.key())
        .map(|same| merge_blocks(&table.layout, &table.clustering_order, same).expect("one at least"))
        .map(|merged| compact_block(&table.layout, &table.clustering_order, &merged, purge))
        .filter(|block| !block.is_empty())
        .map(|block| describe(table, &normalized(table, &block)))
        .collect()
}

/// The file joins equal range tombstones that touch; so does this.
fn normalized(table: &Table, block: &PartitionBlock) -> PartitionBlock {
    common::join(table, std::slice::from_ref(block))
}

fn texts(table: &Table, blocks: &[PartitionBlock]) -> Vec<String> {
    blocks.iter().map(|b| describe(table, &normalized(table, b))).collect()
}

fn names(dir: &TempDir) -> Vec<String> {
    runtime::fs::read_dir(&dir.0)
        .expect("the directory")
        .into_iter()
        .map(|e| e.name)
        .collect()
}

fn keep_all() -> Purge<'static> {
    Purge {
        now: NOW,
        gc_before: 0,
        max_purgeable_timestamp: i64::MAX,
        held: &[],
        keeps_expired: false,
    }
}

/// Rows `from..to`, every `step`-th, of a partition of [`long_table`], at timestamps moved by `shift`.
fn stretch(table: &Table, key: &[u8], from: i32, to: i32, step: usize, shift: i64) -> PartitionBlock {
    let mut b = PartitionBlock::new(types::token::token_of(key), key);
    for i in (from..to).step_by(step) {
        let at = NOW_US + shift + i64::from(i % 3);
        let value = format!("{i} at {shift} {}", "x".repeat(400));
        let cells = [("v", common::Value::Cell(common::live(at, value.as_bytes())))];
        b.push_row(
            &common::clustering(&[&i.to_be_bytes()]),
            &common::row(table, common::marker(at), Tombstone::NONE, &cells),
        );
    }
    b
}

fn sorted(mut blocks: Vec<PartitionBlock>) -> Vec<PartitionBlock> {
    blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    blocks
}

#[test]
fn partitions_of_every_kind_merge_as_they_do_in_memory() {
    let table = wide_table();
    let blocks = wide_blocks(&table);
    let halves: Vec<Vec<PartitionBlock>> = vec![
        blocks.clone(),
        blocks.iter().step_by(2).cloned().collect(),
        blocks.iter().skip(1).step_by(3).cloned().collect(),
    ];
    let dir = TempDir::new("compaction-kinds");
    let inputs: Vec<_> = halves
        .iter()
        .zip(1..)
        .map(|(h, g)| write(&dir.0, g, &table, h))
        .collect();
    for (gc_before, memtables) in [
        (0, i64::MAX),
        (NOW + 100, i64::MAX),
        (NOW + 100, NOW_US),
        (NOW + 100, i64::MIN),
    ] {
        let mut job = job(&dir, &table, &inputs);
        job.gc_before = gc_before;
        job.memtables_min_timestamp = memtables;
        let outcome = run(job).expect("a merge");
        let purge = Purge {
            now: NOW,
            gc_before,
            max_purgeable_timestamp: memtables,
            held: &[],
            keeps_expired: false,
        };
        let found = texts(&table, &outputs(&dir, &table, &outcome));
        assert_eq!(
            found,
            model(&table, &halves, &purge),
            "grace until {gc_before}, memtables from {memtables}"
        );
        outcome
            .outputs
            .iter()
            .for_each(|m| sstable::delete(&m.descriptor).expect("an output"));
    }
}

#[test]
fn large_partitions_merge_block_by_block_as_they_do_in_memory() {
    let table = long_table();
    let parts: Vec<Vec<PartitionBlock>> = vec![
        sorted(vec![
            stretch(&table, b"large", 0, 9_000, 1, 0),
            stretch(&table, b"apart", 0, 5_000, 1, 0),
        ]),
        sorted(vec![
            stretch(&table, b"large", 3_000, 12_000, 2, 1),
            stretch(&table, b"alone", 0, 10, 1, 0),
        ]),
        sorted(vec![
            stretch(&table, b"large", 11_000, 14_000, 3, -1),
            stretch(&table, b"apart", 6_000, 9_000, 1, 0),
        ]),
        vec![long_partition(&table, b"large", 3_000, 900)],
    ];
    let dir = TempDir::new("compaction-large");
    let inputs: Vec<_> = parts
        .iter()
        .zip(1..)
        .map(|(p, g)| write(&dir.0, g, &table, p))
        .collect();
    let outcome = run(job(&dir, &table, &inputs)).expect("a merge");
    assert_eq!(outcome.outputs.len(), 1);
    let found = texts(&table, &outputs(&dir, &table, &outcome));
    let wanted = model(&table, &parts, &keep_all());
    assert_eq!(found.len(), wanted.len());
    assert!(
        found == wanted,
        "the merged partitions differ from those merged in memory"
    );
}

/// The table of [`stretch`] with a static column.
fn long_table_with_static() -> Table {
    let mut columns = long_table().columns;
    let shared = common::column("s", types::CqlType::Text, schema::ColumnKind::Static, 0, false);
    columns.push(shared);
    common::table("long", columns)
}

/// A static row with one cell.
fn static_row(table: &Table, cell: mutation::Cell<'_>) -> Vec<u8> {
    common::row(table, None, Tombstone::NONE, &[("s", common::Value::Cell(cell))])
}

#[test]
fn large_partitions_keep_their_deletions_and_static_rows_where_their_blocks_are_cut() {
    let table = long_table_with_static();
    let place = |n: i32| common::clustering(&[&n.to_be_bytes()]);
    let range = |from: i32, to: i32, at: i64| RangeTombstone {
        start: Bound::before(&place(from)),
        end: Bound::after(&place(to)),
        tombstone: common::tombstone(at, NOW),
    };
    // Blocks of the inputs end at different rows, inside the deleted ranges.
    let mut newer = stretch(&table, b"large", 0, 12_000, 3, 20);
    newer.tombstone = common::tombstone(NOW_US - 5, NOW);
    newer.set_static_row(&static_row(&table, common::live(NOW_US + 1, b"newer")));
    newer.range_tombstones = vec![range(1_000, 6_999, NOW_US + 10), range(7_000, 9_500, NOW_US + 1)];
    let mut older = stretch(&table, b"large", 0, 9_000, 1, 0);
    older.set_static_row(&static_row(&table, common::live(NOW_US, b"older")));
    older.range_tombstones = vec![range(500, 11_000, NOW_US)];
    let mut oldest = stretch(&table, b"large", 0, 14_000, 2, -10);
    oldest.tombstone = common::tombstone(NOW_US - 20, NOW);
    let parts = vec![vec![newer], vec![older], vec![oldest]];
    let dir = TempDir::new("compaction-deletions");
    let inputs: Vec<_> = parts
        .iter()
        .zip(1..)
        .map(|(p, g)| write(&dir.0, g, &table, p))
        .collect();
    for gc_before in [0, NOW + 100] {
        // The order of the inputs says which of them is cut.
        for turn in 0..inputs.len() {
            let mut turned = inputs.clone();
            turned.rotate_left(turn);
            let mut job = job(&dir, &table, &turned);
            job.gc_before = gc_before;
            let outcome = run(job).expect("a merge");
            let found = texts(&table, &outputs(&dir, &table, &outcome));
            let purge = Purge {
                gc_before,
                ..keep_all()
            };
            assert!(
                found == model(&table, &parts, &purge),
                "the merged partition differs from that merged in memory, grace until {gc_before}, turn {turn}"
            );
            outcome
                .outputs
                .iter()
                .for_each(|m| sstable::delete(&m.descriptor).expect("an output"));
        }
    }
}

#[test]
fn an_expired_static_column_is_dropped_though_the_rows_are_plain() {
    let table = long_table_with_static();
    let mut block = stretch(&table, b"key", 0, 3, 1, 0);
    let expired = common::expiring(NOW_US - 10, 10, NOW - 1_000, b"expired");
    block.set_static_row(&static_row(&table, expired));
    let dir = TempDir::new("compaction-static");
    let input = write(&dir.0, 1, &table, &[block]);
    let mut job = job(&dir, &table, &[input]);
    job.gc_before = NOW;
    let outcome = run(job).expect("a merge");
    let found = outputs(&dir, &table, &outcome);
    assert_eq!(found.len(), 1);
    assert!(found[0].static_row().is_none(), "{}", describe(&table, &found[0]));
    assert_eq!(found[0].len(), 3);
}

#[test]
fn outputs_are_cut_by_size_and_only_the_range_is_rewritten() {
    let table = long_table();
    let blocks = sorted(
        (0..300)
            .map(|i| stretch(&table, format!("key {i}").as_bytes(), 0, 5, 1, 0))
            .collect(),
    );
    let dir = TempDir::new("compaction-range");
    let inputs = [write(&dir.0, 1, &table, &blocks)];
    let (after, to) = (blocks[50].token, blocks[250].token);
    let mut j = job(&dir, &table, &inputs);
    j.ranges = vec![(after, to)];
    j.output_bytes_max = 100_000;
    let outcome = run(j).expect("a merge");
    assert!(outcome.outputs.len() > 3, "{} outputs", outcome.outputs.len());
    assert!(
        outcome.outputs.windows(2).all(|w| w[0].last_token < w[1].first_token),
        "in token order"
    );
    assert_eq!(
        texts(&table, &outputs(&dir, &table, &outcome)),
        texts(&table, &blocks[51..=250])
    );
    assert_eq!((outcome.stats.partitions, outcome.stats.rows), (200, 1000));

    // Of several ranges, all goes to one output.
    let mut j = job(&dir, &table, &inputs);
    let token = |at: usize| blocks[at].token;
    j.ranges = vec![(token(10), token(20)), (token(20), token(25)), (token(250), Token::MAX)];
    let outcome = run(j).expect("a merge");
    assert_eq!(outcome.outputs.len(), 1);
    let expected: Vec<PartitionBlock> = blocks[11..=25].iter().chain(&blocks[251..]).cloned().collect();
    assert_eq!(
        texts(&table, &outputs(&dir, &table, &outcome)),
        texts(&table, &expected)
    );
}

#[test]
fn an_index_tells_whether_and_its_summary_how_much_an_sstable_has_of_a_range() {
    let dir = TempDir::new("compaction-shares");
    let table = long_table();
    let block = |key: u32| stretch(&table, &key.to_be_bytes(), 0, 1, 1, 0);
    let blocks = sorted((0..2000).map(block).collect());
    let reader = write(&dir.0, 1, &table, &blocks);
    let token = |at: usize| blocks[at].token;
    let just = |token: Token, by: i64| Token(token.0 + by);
    let cases = [
        (Token::MIN, Token::MAX),
        (Token::MIN, token(0)),
        (Token::MIN, just(token(0), -1)),
        (token(0), token(1)),
        (token(0), just(token(1), -1)),
        (just(token(700), -1), token(700)),
        (token(128), token(900)),
        (token(1998), token(1999)),
        (just(token(1999), -1), Token::MAX),
        (token(1999), Token::MAX),
    ];
    for (after, to) in cases {
        let count = blocks
            .iter()
            .filter(|block| after < block.token && block.token <= to)
            .count();
        let has = reader.has_tokens_blocking(after, to).expect("an index");
        assert_eq!(has, count > 0, "above {after:?} up to {to:?}");
        let (share, exact) = (reader.share_at_most(after, to), count as f64 / 2000.0);
        assert!(
            share >= exact && share <= exact + 2.0 * 128.0 / 2000.0,
            "{share} of {exact}"
        );
    }
}

/// A filter has bits for the keys that the output has, whatever the inputs had.
#[test]
fn the_filter_of_an_output_is_as_large_as_its_partitions_need() {
    let dir = TempDir::new("compaction-filter");
    let table = long_table();
    let block = |key: u32| stretch(&table, &key.to_be_bytes(), 0, 1, 1, 0);
    let blocks = sorted((0..4000).map(block).collect());
    let inputs: Vec<Arc<Reader>> = (1..=8).map(|at| write(&dir.0, at, &table, &blocks)).collect();
    let memory = |job: Job| {
        let outcome = run(job).expect("nothing fails");
        let readers = outcome
            .outputs
            .iter()
            .map(|meta| Reader::open_descriptor(&meta.descriptor, &table));
        let readers: Vec<Arc<Reader>> = readers.map(|reader| reader.expect("a sealed output")).collect();
        let found = |key: &u32| {
            let hash = types::token::KeyHash::of(&key.to_be_bytes());
            readers.iter().any(|reader| reader.may_contain(hash))
        };
        let filters: usize = readers.iter().map(|reader| reader.filter_memory()).sum();
        (filters, (0..4000).filter(found).count(), readers.len())
    };
    let of_one = inputs[0].filter_memory();
    let (merged, found, _) = memory(job(&dir, &table, &inputs));
    assert!(
        merged <= of_one * 5 / 4 && found == 4000,
        "{merged} bytes, {of_one} for one input"
    );
    let in_pieces = Job {
        output_bytes_max: inputs[0].meta().data_len / 10,
        ..job(&dir, &table, &inputs)
    };
    let (pieces, found, count) = memory(in_pieces);
    assert!(
        pieces <= of_one * 5 / 2 && found == 4000 && count > 5,
        "{pieces} bytes in {count} pieces"
    );
    let part = Job {
        ranges: vec![(Token(0), Token(i64::MAX / 8))],
        ..job(&dir, &table, &inputs)
    };
    let (part, ..) = memory(part);
    assert!(part <= of_one / 6, "{part} bytes for a sixteenth, {of_one} for all");
}

#[test]
fn a_tombstone_is_kept_while_an_sstable_outside_the_job_may_hold_what_it_covers() {
    let table = long_table();
    let deleted = |key: &[u8]| {
        let mut b = PartitionBlock::new(types::token::token_of(key), key);
        b.tombstone = common::tombstone(NOW_US, NOW - 1000);
        b
    };
    let range_deleted = |key: &[u8]| {
        let mut b = PartitionBlock::new(types::token::token_of(key), key);
        b.range_tombstones.push(RangeTombstone {
            start: Bound::before(&common::clustering(&[&0i32.to_be_bytes()])),
            end: Bound::after(&common::clustering(&[&2i32.to_be_bytes()])),
            tombstone: common::tombstone(NOW_US, NOW - 1000),
        });
        b
    };
    for (name, held, free) in [
        ("compaction-purge", deleted(b"held"), deleted(b"free")),
        ("compaction-purge-range", range_deleted(b"held"), range_deleted(b"free")),
    ] {
        let dir = TempDir::new(name);
        let input = write(&dir.0, 1, &table, &sorted(vec![held, free]));
        let older = write(&dir.0, 2, &table, &[stretch(&table, b"held", 0, 3, 1, -10)]);
        let mut j = job(&dir, &table, &[input]);
        j.gc_before = NOW;
        j.overlapping = vec![older];
        let outcome = run(j).expect("a merge");
        let found: Vec<Vec<u8>> = outputs(&dir, &table, &outcome)
            .iter()
            .map(|b| b.key().to_vec())
            .collect();
        assert_eq!(found, vec![b"held".to_vec()], "{name}");
    }
}

#[test]
fn a_job_of_which_nothing_remains_leaves_no_sstable() {
    let table = long_table();
    let rows = stretch(&table, b"gone", 0, 100, 1, -10);
    let mut deletion = PartitionBlock::new(rows.token, rows.key());
    deletion.tombstone = common::tombstone(NOW_US + 10, NOW - 1000);
    let dir = TempDir::new("compaction-nothing");
    let inputs = [write(&dir.0, 1, &table, &[rows]), write(&dir.0, 2, &table, &[deletion])];
    let before = names(&dir);
    let mut j = job(&dir, &table, &inputs);
    j.gc_before = NOW;
    let outcome = run(j).expect("a merge");
    assert!(outcome.outputs.is_empty());
    assert_eq!(outcome.stats.rows_dropped, 100);
    assert_eq!(names(&dir), before);
}

#[test]
fn an_aborted_or_failed_job_leaves_nothing_behind() {
    let table = long_table();
    let blocks = sorted(
        (0..400)
            .map(|i| stretch(&table, format!("key {i}").as_bytes(), 0, 5, 1, 0))
            .collect(),
    );
    let dir = TempDir::new("compaction-stop");
    let input = write(&dir.0, 1, &table, &blocks);
    let before = names(&dir);
    let tasks = Tasks::new(1, uuid::Uuid::nil());
    let task = tasks.start(Spec::of(&KIND), &Origin::Node);
    tasks.abort(task.id()).expect("it has not ended");
    let mut j = job(&dir, &table, &[Arc::clone(&input)]);
    j.output_bytes_max = 50_000;
    j.control = task.control();
    assert!(matches!(run(j), Err(Error::Aborted)));
    assert_eq!(names(&dir), before, "aborted");
    // The last chunk of an input is damaged: outputs that were sealed before it is met go too.
    let path = dir.0.join("me-1-big-Data.db");
    let mut bytes = runtime::fs::read(&path).expect("the input");
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    runtime::fs::write(&path, &bytes).expect("room on the disk");
    let damaged = Reader::open(&dir.0, 1, &table).expect("the damage is in the data");
    let mut j = job(&dir, &table, &[damaged]);
    j.output_bytes_max = 50_000;
    let error = run(j).expect_err("a damaged input");
    assert!(error.to_string().contains("me-1-big-Data.db"), "{error}");
    assert_eq!(names(&dir), before, "failed");
}

#[test]
fn a_job_that_is_aborted_on_its_way_removes_the_outputs_that_it_has_sealed() {
    let table = long_table();
    let blocks = sorted(
        (0..4000)
            .map(|i| stretch(&table, format!("key {i}").as_bytes(), 0, 5, 1, 0))
            .collect(),
    );
    let dir = TempDir::new("compaction-abort");
    let input = write(&dir.0, 1, &table, &blocks);
    let before = names(&dir);
    let tasks = Tasks::new(1, uuid::Uuid::nil());
    // It stops at its first step for as long as it takes to abort it.
    tasks.set_bytes_per_second(Class::Compaction, 1);
    let mut j = job(&dir, &table, &[Arc::clone(&input)]);
    j.output_bytes_max = 10_000;
    let (task, j) = (
        tasks.start(Spec::of(&KIND), &Origin::Node),
        std::sync::Mutex::new(Some(j)),
    );
    let held = std::sync::Mutex::new(Some(task));
    let (path, at_abort) = (dir.0.clone(), Arc::new(AtomicU64::new(0)));
    let files = at_abort.clone();
    let on_shard = Arc::new((held, j, tasks));
    let ended = runtime::run(runtime::Options::default(), move |_| {
        let (on_shard, path, files) = (on_shard.clone(), path.clone(), files.clone());
        Box::pin(async move {
            let (held, j, tasks) = &*on_shard;
            let task = held.lock().expect("nobody panics").take().expect("there is one shard");
            let mut j = j.lock().expect("nobody panics").take().expect("there is one shard");
            let id = task.id();
            let merging = runtime::spawn(async move {
                let merged = task.run_job(move |control| {
                    j.control = control;
                    run(j)
                });
                let merged = merged.await.expect("it has begun");
                task.end(&merged);
                merged
            });
            while tasks.status(id).is_none_or(|status| status.completed == 0) {
                runtime::yield_now().await;
            }
            let listed = runtime::fs::read_dir(&path).expect("the directory");
            files.store(listed.len() as u64, Ordering::SeqCst);
            tasks.abort(id).expect("it runs");
            assert!(matches!(merging.await, Err(Error::Aborted)));
        })
    });
    ended.expect("the shard started");
    assert!(at_abort.load(Ordering::SeqCst) > before.len() as u64, "it had outputs");
    assert_eq!(names(&dir), before, "aborted");
}
