//! A node of two shards that has one table, and rows whose deletions may be forgotten at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::row::{Liveness, Shared};
use mutation::{Mutation, MutationBuilder, RowBuilder, Tombstone};
use replica::{PartitionReader, Sealed, Shard, TableStore, TokenRange, WantedTable, WriteError};
use runtime::ShardId;
use runtime::sim::{NodeId, Simulation};
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use test_node::{Hosted, Options, Process};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

use super::whole;

pub const HOUR: Duration = Duration::from_hours(1);
pub const KEYS: u32 = 60;
/// The ring cut in two.
pub const LOW: TokenRange = TokenRange {
    after: Token(i64::MIN),
    to: Token(0),
};
pub const HIGH: TokenRange = TokenRange {
    after: Token(0),
    to: Token(i64::MAX),
};

/// `sea.t (k int PRIMARY KEY)`, whose deletions may be forgotten at once.
pub fn table() -> Arc<Table> {
    let columns = vec![Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
    let options = TableOptions {
        gc_grace_seconds: 0,
        ..TableOptions::default()
    };
    Arc::new(Table::new("sea", "t", TableId(Uuid::from_u128(7)), columns, options))
}

pub fn dir() -> PathBuf {
    replica::table_dir(Path::new("/data"), &table())
}

/// The insert, or the deletion, of a row.
pub fn mutation(k: u32, at: i64, is_deletion: bool) -> Vec<u8> {
    let (table, mut bytes) = (table(), Vec::new());
    let (ttl, expiry) = (0, 0);
    let shared = Shared {
        timestamp: at,
        ttl,
        expiry,
    };
    let marker = Liveness {
        timestamp: at,
        ttl,
        expiry,
    };
    let deletion = Tombstone {
        timestamp: at,
        deletion_time: 1,
    };
    MutationBuilder::begin(&mut bytes, table.id, &k.to_be_bytes()).row(&[], |out| {
        let (marker, tombstone) = if is_deletion {
            (None, deletion)
        } else {
            (Some(marker), Tombstone::NONE)
        };
        RowBuilder::begin(out, &table.layout, shared, marker, tombstone, false, 0);
    });
    bytes
}

/// A node of two shards.
#[derive(Clone)]
pub struct Local {
    pub shards: [Rc<Shard>; 2],
}

pub type Ranges = [Vec<TokenRange>; 2];

/// What both shards together are cut by.
pub fn cuts(ranges: &Ranges) -> Vec<TokenRange> {
    let mut all = ranges.concat();
    all.sort_by_key(|range| range.to);
    all
}

impl Local {
    /// A node's start, on what a run before left.
    pub async fn start(ranges: &Ranges) -> Self {
        let options = Options {
            shards: 2,
            ..Options::default()
        };
        let hosted = Hosted {
            table: table(),
            tablets: ranges.to_vec(),
        };
        let process = Process::start(options, vec![hosted]);
        let shards = [0, 1].map(|id| process.open(ShardId(id)));
        process.recover(&shards).await;
        Self { shards }
    }

    /// Writes where the token is. Whether it is durable; false where no shard has it now.
    pub async fn write(&self, k: u32, at: i64, is_deletion: bool) -> bool {
        let bytes = mutation(k, at, is_deletion);
        let (mutation, token) = (Mutation::new(&bytes).expect("a whole one"), token_of(&k.to_be_bytes()));
        for shard in &self.shards {
            match shard.write(&store(shard), token, &mutation) {
                Ok(logged) => {
                    let committed = shard.commit(&logged);
                    return match committed {
                        Ok(position) => shard.log.synced(position).await.is_ok(),
                        Err(_) => false,
                    };
                }
                Err(WriteError::NotHere(_)) => {}
                Err(e) => panic!("{e}"),
            }
        }
        false
    }

    /// The keys whose row is there.
    pub async fn rows(&self) -> BTreeSet<u32> {
        let mut there = BTreeSet::new();
        for k in 0..KEYS {
            let key = k.to_be_bytes();
            let mut of_shards = self.shards.iter().map(|s| (s, store(s)));
            let found = of_shards.find_map(|(s, store)| store.tablet(token_of(&key)).map(|t| (s, store, t)));
            let (shard, store, tablet) = found.expect("a shard has the key");
            let (version, cache) = (tablet.version(), shard.cache.clone());
            let mut reader = PartitionReader::new(store.table(), version, cache, whole(&key, 100));
            let mut is_there = false;
            while let Some(block) = reader.next_block().await.expect("the files can be read") {
                is_there |= block.rows().any(|(_, row)| row.marker.is_some());
            }
            if is_there {
                there.insert(k);
            }
        }
        there
    }

    pub async fn flush(&self) {
        for shard in &self.shards {
            shard.flush_all().await.expect("the disk works");
        }
    }

    pub async fn compact(&self) {
        for shard in &self.shards {
            shard.compact_all().await.expect("the disk works");
        }
    }

    /// What a node does when its tablets have changed; `beside` runs between two steps. False where the disk refuses: a
    /// node would try again.
    pub async fn reconcile(&self, ranges: &Ranges, mut beside: impl AsyncFnMut(&Self, &str)) -> bool {
        let cuts = cuts(ranges);
        let before = [0, 1].map(|shard: usize| {
            let tablets = store(&self.shards[shard]).tablets();
            tablets.iter().map(|tablet| tablet.range).collect()
        });
        let keeps_shards = !replica::changes_shards(&before, ranges);
        for (shard, wanted) in self.shards.iter().zip(ranges) {
            // What fails here is done when it leaves.
            let _ = shard.prepare_to_leave(&store(shard), wanted, &cuts).await;
        }
        beside(self, "prepared").await;
        for (shard, wanted) in self.shards.iter().zip(ranges) {
            shard.keep_in_memory(&store(shard), wanted).await;
        }
        for (shard, wanted) in self.shards.iter().zip(ranges) {
            shard.reconcile(&[WantedTable {
                table: table(),
                ranges: wanted.clone(),
                keeps_shards,
            }]);
        }
        beside(self, "left").await;
        let mut sealed: Vec<Sealed> = Vec::new();
        for shard in &self.shards {
            match shard.seal_leaving(&store(shard), &cuts).await {
                Ok(of_shard) => sealed.extend(of_shard),
                Err(_) => return false,
            }
        }
        beside(self, "sealed").await;
        for shard in &self.shards {
            shard.open_arrived(&store(shard), &sealed);
            shard.forget_left(&store(shard)).await;
        }
        beside(self, "arrived").await;
        true
    }
}

pub fn store(shard: &Shard) -> Rc<TableStore> {
    shard.store(table().id).expect("the table is open")
}

pub fn number(descriptor: &sstable::Descriptor) -> u64 {
    match descriptor.generation {
        sstable::Generation::Number(n) => n,
        _ => 0,
    }
}

pub fn run<F: Future<Output = ()> + 'static>(simulation: &mut Simulation, node: NodeId, f: impl Fn() -> F + 'static) {
    simulation.start(node, move |_| Box::pin(f()));
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
}

pub fn on_node<F: Future<Output = ()> + 'static>(f: impl Fn() -> F + 'static) {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, f);
}

/// Half of the rows in files, half in memory; every fifth is deleted.
pub async fn fill(local: &Local) -> BTreeSet<u32> {
    for k in 0..KEYS {
        assert!(local.write(k, 10, false).await);
        if k == KEYS / 2 {
            local.flush().await;
        }
        if k % 5 == 0 {
            assert!(local.write(k, 20, true).await);
        }
    }
    (0..KEYS).filter(|k| k % 5 != 0).collect()
}

pub const ONE: fn() -> Ranges = || [vec![TokenRange::ALL], vec![]];
pub const SPLIT: fn() -> Ranges = || [vec![LOW, HIGH], vec![]];
pub const APART: fn() -> Ranges = || [vec![LOW], vec![HIGH]];
pub const ACROSS: fn() -> Ranges = || [vec![HIGH], vec![LOW]];
pub const GATHERED: fn() -> Ranges = || [vec![], vec![LOW, HIGH]];
pub const OTHER: fn() -> Ranges = || [vec![], vec![TokenRange::ALL]];
