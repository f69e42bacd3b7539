//! Rows that an index lists, read from replicas that agree and from replicas that do not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound as RangeBound;
use std::rc::Rc;
use std::sync::Arc;

use mutation::terms::{IndexLookup, IndexTerms};
use mutation::{Bound, Mutation, PartitionBlock};
use replica::Shard;
use schema::Table;
use topology::{Consistency, Replication};
use types::token::token_of;

use crate::support;
use crate::support::{Cluster, Local, Shape, delete, everything, insert, partition};
use coordinator::Extent;

/// A row of the table: partition key and clustering key.
type Name = (u8, i32);

fn cluster(seed: u64, nodes: usize) -> Cluster {
    let shape = Shape {
        datacenters: vec!["north"; nodes],
        replication: Replication::Simple { factor: 3 },
        tablets: 2,
        is_indexed: true,
        ..Shape::default()
    };
    Cluster::new(seed, shape)
}

fn lookup(table: &Table, value: &[u8]) -> IndexLookup {
    let index = table.indexes.first().expect("the table of the shape has an index");
    let terms = IndexTerms::of(table, index).expect("it has the column");
    let bound = RangeBound::Included(value);
    IndexLookup {
        id: index.id,
        ranges: vec![terms.range(None, bound, bound)],
        pattern: None,
    }
}

fn write(shard: &Rc<Shard>, table: &Table, key: u8, bytes: &[u8]) {
    let store = shard.store(table.id).expect("the table is open");
    let mutation = Mutation::new(bytes).expect("a whole mutation");
    assert!(
        shard.write(&store, token_of(&[key]), &mutation).is_ok(),
        "there is room"
    );
}

/// Numbers that a seed determines (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 33) as usize % end
    }
}

/// What a write does to one row.
#[derive(Clone, Copy, Debug)]
struct Write {
    name: Name,
    /// None: it deletes the row.
    value: Option<u8>,
    timestamp: i64,
}

fn give(cluster: &mut Cluster, node: usize, some: Write) {
    cluster.on(node, move |node: Local| async move {
        let table = support::table();
        let Write {
            name: (key, c),
            value,
            timestamp,
        } = some;
        let bytes = match value {
            Some(value) => insert(&table, &[key], c, &[value], timestamp),
            None => delete(&table, &[key], c, timestamp),
        };
        write(&node.shard, &table, key, &bytes);
    });
}

/// Reads the rows that have a value, some at a time, as a consumer sees them: it checks each.
fn rows_with(cluster: &mut Cluster, node: usize, value: u8, level: Consistency, rows: usize) -> (BTreeSet<Name>, u64) {
    rows_in(cluster, everything(), (node, value, level, rows))
}

fn rows_in(
    cluster: &mut Cluster,
    extent: Extent,
    (node, value, level, rows): (usize, u8, Consistency, usize),
) -> (BTreeSet<Name>, u64) {
    cluster.on(node, move |node: Local| async move {
        let store = node.shard.store(support::table().id).expect("the table is open");
        let table: Arc<Table> = store.table();
        let before = node.coordinator.context.metrics();
        let read = node.read(&table, extent, level, rows).expect("enough replicas live");
        let mut read = read.listed_by(vec![lookup(&table, &[value])]);
        let mut found = BTreeSet::new();
        let mut last: Option<(types::Token, Vec<u8>, Option<Bound>)> = None;
        while let Some(block) = read.next_block().await.expect("the replicas answer") {
            if let Some((token, key, covered)) = &last {
                let is_same = (*token, &key[..]) == (block.token, block.key());
                assert!(
                    is_same == covered.is_some() || covered.is_some(),
                    "a partition ends once"
                );
                assert!(
                    is_same || (*token, &key[..]) < (block.token, block.key()),
                    "partitions ascend"
                );
            }
            last = Some((block.token, block.key().to_vec(), block.covered.clone()));
            for c in matching(&table, &block, value) {
                assert!(found.insert((block.key()[0], c)), "each row comes once");
            }
        }
        let after = node.coordinator.context.metrics();
        (found, after.digest_mismatches - before.digest_mismatches)
    })
}

fn matching(table: &Table, block: &PartitionBlock, value: u8) -> Vec<i32> {
    let blocks = std::slice::from_ref(block);
    let values = support::rows(table, blocks);
    let live = support::live_rows(table, blocks);
    live.into_iter()
        .filter(|c| values.get(c) == Some(&vec![value]))
        .collect()
}

/// The rows that have a value once all of these writes are merged.
fn merged(writes: &[Write], value: u8) -> BTreeSet<Name> {
    let mut newest: BTreeMap<Name, Write> = BTreeMap::new();
    for write in writes {
        let known = newest.entry(write.name).or_insert(*write);
        if write.timestamp > known.timestamp {
            *known = *write;
        }
    }
    let has = newest.into_values().filter(|write| write.value == Some(value));
    has.map(|write| write.name).collect()
}

#[test]
fn replicas_that_agree_are_not_asked_again_whatever_their_indexes_list() {
    let mut cluster = cluster(1, 3);
    let mut writes = Vec::new();
    for c in 0..60 {
        for (value, timestamp) in [(1, 10), (2, 20)] {
            let value = if c % 3 == 0 { 1 } else { value };
            let write = Write {
                name: ((c % 5) as u8, c),
                value: Some(value),
                timestamp,
            };
            writes.push(write);
        }
    }
    for write in &writes {
        (0..3).for_each(|node| give(&mut cluster, node, *write));
    }
    // One has files that list what is there, the others still list what was overwritten.
    cluster.on(1, |node: Local| async move {
        node.shard.flush_all().await.expect("the disk works")
    });
    for value in [1, 2, 3] {
        for rows in [1, 7, 1000] {
            let (found, mismatches) = rows_with(&mut cluster, 0, value, Consistency::All, rows);
            assert_eq!(found, merged(&writes, value), "{rows} rows at a time");
            assert_eq!(mismatches, 0, "value {value}, {rows} rows at a time");
        }
    }
}

#[test]
fn a_row_is_found_by_the_value_that_one_replica_alone_has() {
    let mut cluster = cluster(2, 3);
    let old = Write {
        name: (1, 1),
        value: Some(1),
        timestamp: 10,
    };
    let new = Write {
        value: Some(2),
        timestamp: 20,
        ..old
    };
    (0..3).for_each(|node| give(&mut cluster, node, old));
    give(&mut cluster, 2, new);
    for node in 0..3 {
        let (by_new, _) = rows_with(&mut cluster, node, 2, Consistency::All, 100);
        assert_eq!(by_new, BTreeSet::from([(1, 1)]));
        let (by_old, _) = rows_with(&mut cluster, node, 1, Consistency::All, 100);
        assert_eq!(by_old, BTreeSet::new(), "the value was overwritten");
    }
}

/// Gives random writes to random replicas and reads by the index: the first read that differs from the merge of all
/// writes.
fn difference(seed: u64) -> Option<String> {
    let mut cluster = cluster(seed, 3);
    let mut chance = Chance(seed);
    let mut writes = Vec::new();
    for timestamp in 0..20 + chance.below(130) {
        let is_deletion = chance.below(8) == 0;
        let write = Write {
            name: (chance.below(4) as u8, chance.below(12) as i32),
            value: (!is_deletion).then(|| chance.below(3) as u8),
            timestamp: timestamp as i64 * 7 % 151,
        };
        writes.push(write);
        let mut holders: Vec<usize> = (0..3).filter(|_| chance.below(3) > 0).collect();
        if holders.is_empty() {
            holders.push(chance.below(3));
        }
        holders.iter().for_each(|node| give(&mut cluster, *node, write));
        if chance.below(40) == 0 {
            let node = chance.below(3);
            cluster.on(node, |node: Local| async move {
                node.shard.flush_all().await.expect("the disk works");
            });
        }
    }
    (0..3).find_map(|value| {
        let rows = [1, 2, 5, 100][chance.below(4)];
        let node = chance.below(3);
        let (found, _) = rows_with(&mut cluster, node, value, Consistency::All, rows);
        let wanted = merged(&writes, value);
        let of_partitions = (0..4).flat_map(|key| {
            let how = (node, value, Consistency::All, rows);
            rows_in(&mut cluster, partition(&[key]), how).0
        });
        let of_partitions: BTreeSet<Name> = of_partitions.collect();
        if of_partitions != wanted {
            return Some(format!(
                "value {value}, by partition: {of_partitions:?}, not {wanted:?}"
            ));
        }
        (found != wanted).then(|| format!("value {value}, {rows} rows at a time: {found:?}, not {wanted:?}"))
    })
}

#[test]
fn what_any_replica_has_is_read_as_if_all_had_it_whatever_each_of_them_lacks() {
    for seed in 0..24 {
        assert_eq!(difference(seed), None, "seed {seed}");
    }
}

#[test]
fn rows_that_a_replica_leaves_out_must_be_asked_for() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::SilentRowIsAbsent));
    assert!((0..24).any(|seed| difference(seed).is_some()));
}

#[test]
fn a_replica_that_lacks_an_index_answers_by_the_others_or_with_all_rows() {
    let mut cluster = cluster(3, 3);
    let write = |c: i32| Write {
        name: ((c % 3) as u8, c),
        value: Some((c % 2) as u8),
        timestamp: 10,
    };
    for c in 0..12 {
        (0..3).for_each(|node| give(&mut cluster, node, write(c)));
    }
    let writes: Vec<Write> = (0..12).map(write).collect();
    for level in [Consistency::One, Consistency::All] {
        for keeps_one in [true, false] {
            for extent in [None, Some(0), Some(1)] {
                let found = cluster.on(0, move |node: Local| async move {
                    let store = node.shard.store(support::table().id).expect("the table is open");
                    let table: Arc<Table> = store.table();
                    // It was dropped, or is not known here yet.
                    let unknown = IndexLookup {
                        id: schema::IndexId(99),
                        ..lookup(&table, &[7])
                    };
                    let known = keeps_one.then(|| lookup(&table, &[1]));
                    let extent = extent.map_or_else(everything, |key: u8| partition(&[key]));
                    let read = node.read(&table, extent, level, 100).expect("enough replicas live");
                    let mut read = read.listed_by([unknown].into_iter().chain(known).collect());
                    let mut found = BTreeSet::new();
                    while let Some(block) = read.next_block().await.expect("the replicas answer") {
                        found.extend(matching(&table, &block, 1).into_iter().map(|c| (block.key()[0], c)));
                    }
                    found
                });
                let is_meant = |name: &Name| extent.is_none_or(|key| name.0 == key);
                let expected: BTreeSet<Name> = merged(&writes, 1).into_iter().filter(is_meant).collect();
                assert_eq!(
                    found, expected,
                    "{level:?}, partition {extent:?}, a known index: {keeps_one}"
                );
            }
        }
    }
}
