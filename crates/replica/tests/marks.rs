//! Repaired and unrepaired sstables of a tablet: they are compacted apart, cut with their marks, and found again by a
//! start.

use std::sync::Arc;
use std::time::Duration;

use crate::support::two_shards::*;
use replica::{MarkError, Shard, TokenRange};
use sstable::RepairRecord;

/// The marks of a shard's sstables, in order.
fn marks(shard: &Shard) -> Vec<i64> {
    let tablets = store(shard).tablets();
    let sstables = tablets.iter().flat_map(|tablet| tablet.version().sstables.clone());
    let mut marks: Vec<i64> = sstables.map(|reader| reader.repaired_at()).collect();
    marks.sort_unstable();
    marks
}

fn record(range: TokenRange, at: i64) -> RepairRecord {
    RepairRecord {
        after: range.after,
        to: range.to,
        session: 1,
        replicas: 2,
        since: 1,
        at,
        hosts: sstable::FileHosts::NONE,
    }
}

/// Marks what is here of a shard's only tablet.
async fn mark(local: &Local, at: i64) -> usize {
    let shard = &local.shards[0];
    let range = store(shard).tablets()[0].range;
    let set = shard.begin_repair_set(&store(shard), range, false).await;
    let set = set.expect("the tablet is here");
    set.mark(record(range, at)).await.expect("the disk works")
}

async fn write_some(local: &Local, timestamp: i64) {
    for k in 0..KEYS {
        assert!(local.write(k, timestamp, false).await);
    }
    local.flush().await;
}

#[test]
fn compactions_keep_the_sets_apart_and_a_start_finds_the_marks() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        shard.set_compacts_by_itself(&store(shard), false);
        write_some(&local, 100).await;
        write_some(&local, 101).await;
        assert_eq!(mark(&local, 7).await, 2);
        write_some(&local, 102).await;
        write_some(&local, 103).await;
        assert_eq!(marks(shard), [0, 0, 7, 7]);
        local.compact().await;
        assert_eq!(marks(shard), [0, 7], "a major compaction makes one of each set");
        assert_eq!(mark(&local, 9).await, 1);
        assert_eq!(marks(shard), [7, 9]);
        local.compact().await;
        assert_eq!(marks(shard), [7], "the older mark counts");
        let rows = local.rows().await;
        let again = Local::start(&ONE()).await;
        assert_eq!(marks(&again.shards[0]), [7]);
        assert_eq!(again.rows().await, rows);
    });
}

#[test]
fn what_a_repair_holds_is_left_and_the_rest_is_compacted() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        write_some(&local, 100).await;
        let range = store(shard).tablets()[0].range;
        let set = shard.begin_repair_set(&store(shard), range, false).await;
        let set = set.expect("the tablet is here");
        for timestamp in 101..109 {
            write_some(&local, timestamp).await;
        }
        // Compactions end.
        runtime::sleep(Duration::from_secs(5)).await;
        assert!(marks(shard).len() < 8, "the others are compacted: {:?}", marks(shard));
        assert_eq!(set.mark(record(range, 5)).await, Ok(1), "what was held is still there");
        assert_eq!(*marks(shard).last().expect("some"), 5);
    });
}

#[test]
fn halves_of_a_marked_sstable_are_marked() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        write_some(&local, 100).await;
        mark(&local, 7).await;
        shard.cut_ahead(&store(shard), Some(Arc::from([LOW, HIGH])));
        while store(shard).uncut_bytes() > 0 {
            runtime::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(marks(shard), [7, 7]);
        for range in [LOW, HIGH] {
            let found = shard.repair_record(&store(shard), range).await.expect("the disk works");
            assert_eq!(
                found.map(|record| record.at),
                Some(7),
                "the record of the whole covers its halves"
            );
        }
    });
}

#[test]
fn a_truncation_forgets_marks_and_who_had_begun_marks_nothing() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        write_some(&local, 100).await;
        mark(&local, 7).await;
        write_some(&local, 101).await;
        let range = store(shard).tablets()[0].range;
        let set = shard.begin_repair_set(&store(shard), range, false).await;
        let set = set.expect("the tablet is here");
        shard.truncate(&store(shard)).await.expect("the disk works");
        assert_eq!(set.mark(record(range, 9)).await, Err(MarkError::Changed));
        let found = shard.repair_record(&store(shard), range).await;
        assert_eq!(found, Ok(None));
        let none = shard.begin_repair_set(&store(shard), LOW, false).await;
        assert_eq!(none.err(), Some(MarkError::NotOneTablet));
    });
}

/// A session that fails while it marks leaves files with marks and the previous record. Such a mark would count for
/// data that other replicas with that record may not have.
#[test]
fn a_mark_that_is_later_than_the_record_does_not_count() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        shard.set_compacts_by_itself(&store(shard), false);
        write_some(&local, 100).await;
        assert_eq!(mark(&local, 7).await, 1);
        write_some(&local, 101).await;
        let tablets = store(shard).tablets();
        let version = tablets[0].version();
        let later = version.sstables.iter().find(|reader| reader.repaired_at() == 0);
        let descriptor = later.expect("it is not marked").descriptor().clone();
        let marked = runtime::offload(move || sstable::mark_repaired(&descriptor, 8)).await;
        marked.expect("the disk works");
        let again = Local::start(&ONE()).await;
        assert_eq!(marks(&again.shards[0]), [0, 7]);
    });
}
