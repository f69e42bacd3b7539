//! What a copy has, and what it must not be made of.

use std::time::Duration;

use crate::support;
use crate::support::{Cluster, HIGH, LOW, Local, Rows, SECOND, WHOLE, name_of};
use replica::TokenRange;
use streaming::{PART_BYTES, Refusal, StreamError};
use types::Token;
use types::token::token_of;

const KEYS: u32 = 60;

/// Rows in several sstables and in memory; every fifth is deleted. What a client sees of them.
async fn fill(local: Local, len: usize) -> Rows {
    let mut rows = Rows::new();
    for k in 0..KEYS {
        local.apply(k, 10, Some(len)).await;
        rows.insert(k, 10);
        if k % 20 == 19 {
            local.flush().await;
        }
        if k % 5 == 0 {
            local.delete(k, 20).await;
            rows.remove(&k);
        }
        if k % 7 == 0 && k % 5 != 0 {
            local.apply(k, 30, Some(len)).await;
            rows.insert(k, 30);
        }
    }
    rows
}

fn of_range(rows: &Rows, range: TokenRange) -> Rows {
    let is_in = |k: &u32| range.contains(token_of(&k.to_be_bytes()));
    rows.iter().filter(|(k, _)| is_in(k)).map(|(k, at)| (*k, *at)).collect()
}

#[test]
fn everything_that_the_source_has_is_copied_and_nothing_is_left_behind() {
    let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, |local| fill(local, 100));
    let pulled = cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert!(pulled.sstables() >= 3 && pulled.bytes() > 5_000, "{pulled:?}");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
    for node in 0..2 {
        assert_eq!(cluster.leftovers(node), Vec::<String>::new());
    }
    let (source, target) = (
        cluster.on(0, |_| async { streaming::metrics() }),
        cluster.on(1, |_| async { streaming::metrics() }),
    );
    assert_eq!(source.sent_bytes, pulled.bytes());
    assert_eq!(target.received_bytes, pulled.bytes());
    assert_eq!(source.sent_files, target.received_files);
    assert_eq!(target.adopted_sstables, pulled.sstables() as u64);
    assert_eq!((source.serving, target.pulling), (0, 0));
    assert_eq!((source.failed_serving, target.failed_pulling), (0, 0));
    // It is durable, and to copy it again does no harm.
    cluster.restart(1, runtime::sim::CrashKind::PowerLoss);
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
    cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
    cluster.on(1, |local| async move { local.compact().await });
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
}

#[test]
fn files_of_several_chunks_are_copied() {
    let mut cluster = Cluster::new(2, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, |local| async move {
        let rows = fill(local.clone(), 150_000).await;
        local.flush().await;
        local.compact().await;
        rows
    });
    let pulled = cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert!(pulled.bytes() > 3 * streaming::CHUNK_BYTES as u64, "{pulled:?}");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
}

#[test]
fn an_empty_table_is_copied_at_no_cost() {
    let mut cluster = Cluster::new(3, &[WHOLE, WHOLE]);
    let pulled = cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert_eq!((pulled.sstables(), pulled.bytes()), (0, 0));
    assert_eq!(cluster.leftovers(0), Vec::<String>::new());
}

#[test]
fn a_part_of_the_sources_tokens_is_cut_out() {
    let mut cluster = Cluster::new(4, &[WHOLE, LOW]);
    let rows = cluster.on(0, |local| fill(local, 100));
    cluster.pull(1, LOW, &[0]).expect("nothing fails");
    assert_eq!(cluster.rows(1, 0..KEYS), of_range(&rows, LOW));
    assert_eq!(cluster.rows(0, 0..KEYS), rows, "the source has all as before");
    // A part of a part.
    let part = TokenRange {
        after: Token(i64::MIN / 2),
        to: Token(i64::MIN / 4),
    };
    let mut cluster = Cluster::new(4, &[LOW, WHOLE]);
    let rows = cluster.on(0, |local| fill(local, 100));
    cluster.pull(1, part, &[0]).expect("nothing fails");
    let copied = cluster.rows(1, 0..KEYS);
    assert_eq!(copied, of_range(&rows, part));
    assert!(!copied.is_empty(), "the part has rows");
}

/// Every second sixteenth of the ring.
fn scattered() -> Vec<TokenRange> {
    let at = |number: i128| i64::try_from(i128::from(i64::MIN) + (number << 60)).expect("on the ring");
    let range = |number| TokenRange {
        after: Token(at(number)),
        to: Token(at(number + 1)),
    };
    (0..8).map(|number| range(number * 2)).collect()
}

fn of_ranges(rows: &Rows, ranges: &[TokenRange]) -> Rows {
    ranges.iter().flat_map(|range| of_range(rows, *range)).collect()
}

#[test]
fn several_ranges_are_copied_as_one_sstable_for_each_of_the_sources() {
    let mut cluster = Cluster::new(4, &[WHOLE, WHOLE]);
    let rows = cluster.on(0, |local| fill(local, 100));
    let ranges = scattered();
    let pulled = cluster
        .pull_ranges(1, (&ranges, PART_BYTES), &[0])
        .expect("nothing fails");
    assert_eq!(pulled.ranges, ranges.len());
    let has_others = cluster.on(0, |local| async move {
        let version = local.store().tablets()[0].version();
        let has = |reader| replica::has_others(reader, &scattered()).expect("it can be read");
        version.sstables.iter().map(has).collect::<Vec<_>>()
    });
    assert_eq!(
        has_others,
        vec![true; pulled.sstables()],
        "each has tokens between the ranges, too"
    );
    assert_eq!(
        cluster.rows(1, 0..KEYS),
        of_ranges(&rows, &ranges),
        "nothing else has come"
    );
    assert!(cluster.rows(1, 0..KEYS).len() > 5 && cluster.rows(0, 0..KEYS) == rows);
    let has_others = cluster.on(1, |local| async move {
        let version = local.store().tablets()[0].version();
        let has = |reader| replica::has_others(reader, &scattered()).expect("it can be read");
        version.sstables.iter().any(has)
    });
    assert!(!has_others);
    for node in 0..2 {
        assert_eq!(cluster.leftovers(node), Vec::<String>::new());
    }
}

#[test]
fn ranges_with_more_bytes_than_one_copy_should_have_come_in_several_from_all_sources() {
    let mut cluster = Cluster::new(4, &[WHOLE, WHOLE, WHOLE]);
    let rows = cluster.on(0, |local| fill(local, 1000));
    // The summary of a small sstable says nothing about its middle, so each range counts for all of it. The second has
    // what the first has not, and more of it.
    cluster.on(1, |local| async move {
        for k in KEYS..5 * KEYS {
            local.write(k, 20).await;
        }
    });
    let ranges = scattered();
    let mut rest = &ranges[..];
    let mut calls = 0;
    while !rest.is_empty() {
        let pulled = cluster.pull_ranges(2, (rest, 200_000), &[0, 1]).expect("nothing fails");
        assert!(pulled.ranges > 0 && pulled.sources.len() == 2, "{pulled:?}");
        rest = &rest[pulled.ranges..];
        calls += 1;
        let so_far = &ranges[..ranges.len() - rest.len()];
        let copied: Rows = cluster.rows(2, 0..KEYS);
        assert_eq!(
            copied,
            of_ranges(&rows, so_far),
            "what is not said to be there has not come"
        );
    }
    assert!((2..8).contains(&calls), "{calls} calls");
    let of_second = (KEYS..5 * KEYS).map(|k| (k, 20)).collect();
    assert_eq!(cluster.rows(2, KEYS..5 * KEYS), of_ranges(&of_second, &ranges));
    cluster.restart(2, runtime::sim::CrashKind::PowerLoss);
    assert_eq!(cluster.rows(2, 0..KEYS), of_ranges(&rows, &ranges));
}

#[test]
fn a_range_of_several_tablets_is_copied_into_several_tablets() {
    let mut cluster = Cluster::new(5, &[WHOLE, WHOLE]);
    for node in 0..2 {
        cluster.on(node, |local| async move {
            let table = local.store().table();
            let ranges = vec![LOW, HIGH];
            local.shard.reconcile(&[replica::WantedTable {
                table,
                ranges,
                keeps_shards: false,
            }]);
            let sealed = local.shard.seal_leaving(&local.store(), &[LOW, HIGH]).await;
            local
                .shard
                .open_arrived(&local.store(), &sealed.expect("the disk works"));
            local.shard.forget_left(&local.store()).await;
        });
    }
    let rows = cluster.on(0, |local| fill(local, 100));
    cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert_eq!(cluster.rows(1, 0..KEYS), rows);
}

/// Without cutting at the tablets of the target, an sstable of the source may span two of them.
#[test]
fn a_copy_that_spans_tablets_of_the_target_is_refused() {
    let mut cluster = Cluster::new(6, &[WHOLE, WHOLE]);
    cluster.on(0, |local| fill(local, 100));
    cluster.on(1, |local| async move {
        let table = local.store().table();
        let ranges = vec![LOW, HIGH];
        local.shard.reconcile(&[replica::WantedTable {
            table,
            ranges,
            keeps_shards: false,
        }]);
        local.shard.open_arrived(&local.store(), &[]);
        local.shard.forget_left(&local.store()).await;
    });
    let refused = cluster.pull(1, WHOLE, &[0]);
    assert_eq!(name_of(&refused), "damaged", "{refused:?}");
    for part in [LOW, HIGH] {
        cluster.pull(1, part, &[0]).expect("nothing fails");
    }
    assert_eq!(cluster.rows(1, 0..KEYS), cluster.rows(0, 0..KEYS));
}

#[test]
fn what_two_sources_have_is_merged() {
    let mut cluster = Cluster::new(7, &[WHOLE, WHOLE, WHOLE]);
    cluster.on(0, |local| async move {
        for k in 0..40 {
            local.write(k, 10).await;
        }
    });
    cluster.on(1, |local| async move {
        for k in 20..KEYS {
            local.write(k, 20).await;
        }
        local.delete(5, 30).await;
    });
    let pulled = cluster.pull(2, WHOLE, &[0, 1]).expect("nothing fails");
    assert_eq!(pulled.sources.len(), 2);
    assert!(pulled.sources.iter().all(|source| source.sstables > 0), "{pulled:?}");
    let mut expected: Rows = (0..20).map(|k| (k, 10)).collect();
    expected.extend((20..KEYS).map(|k| (k, 20)));
    expected.remove(&5);
    assert_eq!(cluster.rows(2, 0..KEYS), expected);
}

/// Sstables of the table on a node, and their bytes.
fn files(cluster: &mut Cluster, number: usize) -> (usize, u64) {
    cluster.on(number, |local| async move {
        let tablets = local.store().tablets();
        let bytes = |tablet: &std::rc::Rc<replica::Tablet>| -> Vec<u64> {
            tablet.with_version(|version| version.sstables.iter().map(|reader| reader.meta().disk_len).collect())
        };
        let all: Vec<u64> = tablets.iter().flat_map(bytes).collect();
        (all.len(), all.iter().sum())
    })
}

/// Two copies of nearly the same rows take the room of one as soon as nothing older is to come, though nothing is
/// written to the table.
#[test]
fn copies_of_several_sources_are_merged_when_all_are_in() {
    let mut cluster = Cluster::new(17, &[WHOLE, WHOLE, WHOLE]);
    for source in 0..2 {
        cluster.on(source, |local| async move {
            for k in 0..KEYS {
                local.apply(k, 10, Some(1000)).await;
            }
        });
    }
    cluster.on(2, |local| async move {
        local.store().set_awaited(vec![WHOLE]);
        drop(runtime::spawn(local.shard.clone().compact_periodically()));
    });
    let pulled = cluster.pull(2, WHOLE, &[0, 1]).expect("nothing fails");
    let look = Duration::from_mins(11);
    cluster.simulation.run_for(look);
    let (count, both) = files(&mut cluster, 2);
    assert_eq!(count, pulled.sstables(), "older data may still come");
    cluster.on(2, |local| async move { local.store().set_awaited(Vec::new()) });
    cluster.simulation.run_for(look);
    let (count, one) = files(&mut cluster, 2);
    assert!(
        count == 1 && one < both * 6 / 10,
        "{one} bytes in {count} files, of {both}"
    );
    assert_eq!(cluster.rows(2, 0..KEYS), (0..KEYS).map(|k| (k, 10)).collect::<Rows>());
}

#[test]
fn writes_and_deletions_that_the_target_gets_meanwhile_win_where_they_are_newer() {
    let mut cluster = Cluster::new(8, &[WHOLE, WHOLE]);
    cluster.on(0, |local| async move {
        for k in 0..KEYS {
            local.write(k, 100).await;
        }
    });
    cluster.on(1, |local| async move { local.store().set_awaited(vec![WHOLE]) });
    let pulling = cluster.begin_pull(1, WHOLE, &[0]);
    // Older and newer ones, one each step, flushed and compacted now and then.
    let written = cluster.spawn(1, |local| async move {
        for k in 0..KEYS {
            match k % 4 {
                0 => local.write(k, 50).await,
                1 => local.write(k, 150).await,
                2 => local.delete(k, 150).await,
                _ => local.delete(k, 50).await,
            }
            if k % 10 == 9 {
                local.flush().await;
                local.compact().await;
            }
            runtime::sleep(Duration::from_micros(300)).await;
        }
    });
    let is_done = || pulling.borrow().is_some() && written.borrow().is_some();
    assert!(cluster.simulation.run_until(60 * SECOND, is_done), "both end");
    pulling.take().expect("it has ended").expect("nothing fails");
    cluster.on(1, |local| async move {
        local.store().set_awaited(Vec::new());
        local.flush().await;
        local.compact().await;
    });
    let expected: Rows = (0..KEYS)
        .filter(|k| k % 4 != 2)
        .map(|k| (k, if k % 4 == 1 { 150 } else { 100 }))
        .collect();
    assert_eq!(cluster.rows(1, 0..KEYS), expected);
}

#[test]
fn who_does_not_have_the_tokens_or_the_table_gives_and_takes_nothing() {
    let mut cluster = Cluster::new(9, &[LOW, WHOLE, HIGH]);
    cluster.on(0, |local| fill(local, 100));
    let refusal = |result: Result<streaming::Pulled, StreamError>| match result {
        Err(StreamError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(cluster.pull(1, WHOLE, &[0])), Refusal::NotHere);
    assert_eq!(refusal(cluster.pull(1, HIGH, &[0])), Refusal::NotHere);
    let error = cluster.pull(2, LOW, &[0]);
    assert_eq!(name_of(&error), "not here");
    cluster.on(0, |local| async move {
        local
            .shard
            .drop_table(support::table().id)
            .await
            .expect("the disk works");
    });
    assert_eq!(refusal(cluster.pull(1, LOW, &[0])), Refusal::UnknownTable);
    assert_eq!(cluster.leftovers(1), Vec::<String>::new());
}
