//! A scan shows each partition once, in order, as it is in the moment in which it is shown: whatever sstables have it,
//! and whatever is written while the scan reads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{blobs, open_table, shard};
use mutation::row::Shared;
use mutation::{Cell, Mutation, MutationBuilder, PartitionBlock, RowBuilder, Tombstone};
use replica::{BlockLimits, Shard, TableStore, TabletScan};
use runtime::random_u64;
use runtime::sim::Simulation;
use schema::push_component;
use types::Token;
use types::token::token_of;

const SEEDS: u64 = 40;
const KEYS: u64 = 300;
const ROWS: i32 = 5;
/// Some partitions take several blocks.
const LIMITS: BlockLimits = BlockLimits {
    rows: 3,
    bytes: 1 << 20,
};

type Partition = (Token, Vec<u8>);
/// What each row was written last, by partition and clustering.
type Written = BTreeMap<Partition, BTreeMap<Vec<u8>, i64>>;

/// A table, and what was written to it.
#[derive(Clone)]
struct Sea {
    shard: Rc<Shard>,
    store: Rc<TableStore>,
    written: Rc<RefCell<Written>>,
    clock: Rc<RefCell<i64>>,
}

impl Sea {
    fn write(&self) {
        let (table, mut bytes) = (self.store.table(), Vec::new());
        let key = (random_u64() % KEYS).to_be_bytes();
        let rows = if random_u64().is_multiple_of(4) { ROWS } else { 1 };
        let mut clustering = Vec::new();
        let row = i32::try_from(random_u64() % 5).expect("a small number") % rows;
        push_component(&mut clustering, &row.to_be_bytes());
        *self.clock.borrow_mut() += 1;
        let timestamp = *self.clock.borrow();
        // So long that the sstables are read in several pieces.
        let mut value = vec![0; 6_000];
        value[..8].copy_from_slice(&timestamp.to_be_bytes());
        let id = usize::from(table.column("v").expect("a column").id.0);
        MutationBuilder::begin(&mut bytes, table.id, &key).row(&clustering, |out| {
            let (ttl, expiry) = (0, 0);
            let shared = Shared { timestamp, ttl, expiry };
            let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, true, id + 1);
            row.cell(
                id,
                &Cell {
                    timestamp,
                    ttl: 0,
                    deletion_time: 0,
                    dead: false,
                    value: &value,
                },
            );
        });
        let mutation = Mutation::new(&bytes).expect("a whole mutation");
        let written = self.shard.write(&self.store, token_of(&key), &mutation);
        written.expect("there is room").is_not_awaited();
        let partition = (token_of(&key), key.to_vec());
        let mut all = self.written.borrow_mut();
        all.entry(partition).or_default().insert(clustering, timestamp);
    }

    /// The rows of a block, with what each was written last.
    fn rows(&self, block: &PartitionBlock) -> BTreeMap<Vec<u8>, i64> {
        let layout = self.store.table().layout.clone();
        let rows = block.rows().map(|(clustering, row)| {
            let mut columns = row.columns(&layout);
            match columns.next() {
                Some((_, mutation::Column::Simple(cell))) => (clustering.to_vec(), cell.timestamp),
                _ => panic!("each row has a value"),
            }
        });
        rows.collect()
    }

    /// What was written to a partition between two clusterings, the first one excluded.
    fn expected(&self, block: &PartitionBlock, behind: Option<&Vec<u8>>) -> BTreeMap<Vec<u8>, i64> {
        let order = self.store.table().clustering_order.clone();
        let all = self.written.borrow();
        let rows = all.get(&(block.token, block.key().to_vec())).into_iter().flatten();
        let is_inside = |clustering: &Vec<u8>| {
            let is_covered = |bound: &mutation::Bound| bound.compare_key(&order, clustering).is_gt();
            behind.is_none_or(|behind| clustering > behind) && block.covered.as_ref().is_none_or(is_covered)
        };
        rows.filter(|(clustering, _)| is_inside(clustering))
            .map(|(clustering, timestamp)| (clustering.clone(), *timestamp))
            .collect()
    }
}

async fn scan(sea: &Sea) {
    let before: Vec<_> = sea.written.borrow().keys().cloned().collect();
    let mut left = before.into_iter().peekable();
    let mut scan = TabletScan::all(&sea.store, sea.shard.cache.clone(), LIMITS);
    let mut last: Option<(Partition, Option<Vec<u8>>)> = None;
    while let Some(block) = scan.next_block().await.expect("the files can be read") {
        let partition = (block.token, block.key().to_vec());
        let behind = match &last {
            Some((before, clustering)) if *before == partition => clustering.clone(),
            Some((before, _)) => {
                assert!(*before < partition, "partitions come in order, each once");
                None
            }
            None => None,
        };
        let rows = sea.rows(&block);
        let expected = sea.expected(&block, behind.as_ref());
        assert_eq!(
            rows, expected,
            "partition {partition:?} as it is now, behind {behind:?}"
        );
        if left.peek() == Some(&partition) {
            left.next();
        }
        assert!(
            left.peek().is_none_or(|next| *next > partition),
            "a partition is left out"
        );
        let end = rows.into_keys().next_back().or(behind);
        last = Some((partition, end));
    }
    assert_eq!(left.next(), None, "a partition is left out");
}

#[test]
fn a_scan_shows_partitions_as_they_are_when_it_shows_them() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        simulation.set_disk_delay(node, Duration::from_micros(500));
        simulation.start(node, move |_| {
            Box::pin(async move {
                let (shard, table) = (shard(1 << 20, 0), blobs());
                open_table(&shard, &table, &[shard.token_range()]);
                let store = shard.store(table.id).expect("it was opened");
                shard.set_compacts_by_itself(&store, false);
                let sea = Sea {
                    shard: shard.clone(),
                    store: store.clone(),
                    written: Rc::default(),
                    clock: Rc::default(),
                };
                for _ in 0..seed % 5 {
                    (0..random_u64() % 60).for_each(|_| sea.write());
                    let tablet = store.tablets()[0].clone();
                    shard.flush(&store, &tablet).await.expect("the disk works");
                }
                let writes = sea.clone();
                let writing = runtime::spawn(async move {
                    for _ in 0..1_000 {
                        writes.write();
                        runtime::sleep(Duration::from_micros(random_u64() % 20)).await;
                    }
                });
                for _ in 0..4 {
                    scan(&sea).await;
                }
                writing.await;
                scan(&sea).await;
            })
        });
        let ended = simulation.run_until_ended(node, Duration::from_hours(1));
        assert!(ended, "seed {seed}: the scans end");
    }
}
