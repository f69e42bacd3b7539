//! What an operator sees of a shard's long work, and what an abort leaves.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{blobs, open_table, shard, whole};
use mutation::row::Shared;
use mutation::{Mutation, MutationBuilder, RowBuilder, Tombstone};
use replica::{Shard, TableStore};
use runtime::sim::Simulation;
use schema::push_component;
use tasks::{Class, Module, Origin, Spec, State, Status, Tasks};
use types::token::token_of;

const KEY: &[u8] = b"key";
const HOUR: Duration = Duration::from_hours(1);

fn open() -> (Arc<Tasks>, Rc<Shard>, Rc<TableStore>) {
    let (shard, table) = (shard(1 << 20, 0), blobs());
    open_table(&shard, &table, &[shard.token_range()]);
    let store = shard.store(table.id).expect("it was set");
    (shard.tasks().clone(), shard, store)
}

/// Writes rows from one clustering key up to another and flushes them.
async fn flush_rows(shard: &Rc<Shard>, store: &Rc<TableStore>, rows: std::ops::Range<u32>) {
    let table = store.table();
    for c in rows {
        let (mut bytes, mut clustering) = (Vec::new(), Vec::new());
        push_component(&mut clustering, &c.to_be_bytes());
        let shared = Shared {
            timestamp: 10,
            ttl: 0,
            expiry: 0,
        };
        MutationBuilder::begin(&mut bytes, table.id, KEY).row(&clustering, |out| {
            RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, 1).value(0, &[0; 1024]);
        });
        let mutation = Mutation::new(&bytes).expect("a whole mutation");
        shard
            .write(store, token_of(KEY), &mutation)
            .expect("there is room")
            .is_not_awaited();
    }
    shard.flush(store, &store.tablets()[0]).await.expect("the disk works");
}

async fn rows(shard: &Shard, store: &TableStore) -> usize {
    let (table, version) = (store.table(), store.tablets()[0].version());
    let mut reader = replica::PartitionReader::new(table, version, shard.cache.clone(), whole(KEY, 10_000));
    let mut count = 0;
    while let Some(block) = reader.next_block().await.expect("the files can be read") {
        count += block.rows().count();
    }
    count
}

/// The files of the table's data.
fn data_files(store: &TableStore) -> Vec<String> {
    let listed = runtime::fs::read_dir(&store.dir).expect("the directory");
    let names = listed.into_iter().map(|file| file.name);
    names.filter(|name| name.ends_with("-Data.db")).collect()
}

/// Runs a test on a simulated shard.
fn on_shard(test: impl AsyncFn() + Copy + 'static) {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    simulation.start(node, move |_| Box::pin(async move { test().await }));
    assert!(simulation.run_until_ended(node, HOUR), "it did not end");
}

fn only(mut listed: Vec<Status>) -> Status {
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed.swap_remove(0)
}

#[test]
fn a_flush_and_a_compaction_are_tasks_with_progress() {
    on_shard(async || {
        let (tasks, shard, store) = open();
        flush_rows(&shard, &store, 0..100).await;
        let flush = only(tasks.list(Module::Flush, true));
        assert_eq!(
            (flush.kind.name, flush.state, flush.percent()),
            ("flush", State::Done, 100)
        );
        assert_eq!((flush.keyspace.as_str(), flush.table.as_str()), ("sea", "t"));
        assert!(flush.total > 100 * 1024 && flush.shard == Some(0), "{flush:?}");
        flush_rows(&shard, &store, 100..200).await;
        let spec = Spec::of(&replica::kinds::MAJOR_COMPACTION);
        let asked = tasks.start(spec, &Origin::Operator);
        let compacted = shard.compact_table_for(&store, &asked.as_origin()).await;
        asked.end(&compacted);
        let (root, part) = {
            let listed = tasks.list(Module::Compaction, true);
            let part = listed
                .iter()
                .find(|status| status.parent.is_some())
                .expect("a part for the tablet");
            (only(tasks.list(Module::Compaction, false)), part.clone())
        };
        assert_eq!(
            (root.state, root.children.as_slice()),
            (State::Done, [part.id].as_slice())
        );
        assert_eq!(
            (part.state, part.parent, part.percent()),
            (State::Done, Some(root.id), 100)
        );
        assert_eq!(root.completed, part.total, "what a part does counts for the whole");
        assert_eq!((data_files(&store).len(), rows(&shard, &store).await), (1, 200));
    });
}

#[test]
fn an_aborted_compaction_leaves_its_inputs_and_nothing_else() {
    on_shard(async || {
        let (tasks, shard, store) = open();
        flush_rows(&shard, &store, 0..600).await;
        flush_rows(&shard, &store, 600..1200).await;
        let before = data_files(&store);
        assert_eq!(before.len(), 2);
        // Before it has a worker, and before its first step.
        for is_waiting in [true, false] {
            let busy = tasks.start(Spec::of(&replica::kinds::COMPACTION), &Origin::Node);
            let worker = if is_waiting {
                Some(busy.worker().await.expect("nobody else has it"))
            } else {
                None
            };
            let asked = tasks.start(Spec::of(&replica::kinds::MAJOR_COMPACTION), &Origin::Operator);
            let (id, of_shard, of_store) = (asked.id(), shard.clone(), store.clone());
            let compacting = runtime::spawn(async move {
                let compacted = of_shard.compact_table_for(&of_store, &asked.as_origin()).await;
                asked.end(&compacted);
                compacted
            });
            runtime::yield_now().await;
            runtime::yield_now().await;
            assert_eq!(shard.work().compactions, 1);
            tasks.abort(id).expect("compactions can be aborted");
            assert_eq!(compacting.await, Err("aborted".to_owned()));
            drop(worker);
            busy.done();
            let root = tasks.status(id).expect("it is kept");
            assert_eq!((root.state, root.error.as_str()), (State::Failed, "aborted"));
            assert_eq!(shard.work().compactions, 0, "the tablet is free again");
            assert_eq!(data_files(&store), before);
        }
        assert_eq!(rows(&shard, &store).await, 1200);
        shard.compact_table(&store).await.expect("the next one is not aborted");
        assert_eq!((data_files(&store).len(), rows(&shard, &store).await), (1, 1200));
        assert!(runtime::fs::exists(Path::new("/data")));
    });
}

#[test]
fn a_compaction_goes_at_the_rate_of_its_class_and_a_flush_at_that_of_its_own() {
    on_shard(async || {
        let (tasks, shard, store) = open();
        tasks.set_bytes_per_second(Class::Compaction, 10_000);
        let begun = runtime::now();
        flush_rows(&shard, &store, 0..300).await;
        flush_rows(&shard, &store, 300..600).await;
        let flushed = runtime::now();
        assert!(
            (flushed - begun).as_secs() < 2,
            "flushes have a limit of their own, which is none"
        );
        shard.compact_table(&store).await.expect("the disk works");
        let took = (runtime::now() - flushed).as_secs();
        let bytes = tasks.classes()[Class::Compaction as usize].counts.bytes;
        assert!(bytes > 600 * 1024, "{bytes} bytes are less than the rows have");
        let expected = bytes / 10_000;
        assert!(took.abs_diff(expected) <= 1, "{bytes} bytes at 10 KB/s took {took} s");
    });
}

#[test]
fn a_truncation_is_a_task_with_its_flushes_below() {
    on_shard(async || {
        let (tasks, shard, store) = open();
        flush_rows(&shard, &store, 0..10).await;
        shard.truncate(&store).await.expect("the disk works");
        let truncation = only(tasks.list(Module::Truncation, true));
        assert_eq!(
            (truncation.state, truncation.total, truncation.completed),
            (State::Done, 1, 1)
        );
        assert_eq!(data_files(&store), Vec::<String>::new());
    });
}
