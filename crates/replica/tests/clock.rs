//! What a compaction drops while the wall clock has jumped: nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{open_table, shard, whole};
use mutation::compact::LiveRow;
use mutation::row::Shared;
use mutation::{Mutation, MutationBuilder, PartitionBlock, RowBuilder, Tombstone};
use replica::{PartitionReader, Shard, TableStore};
use runtime::ClockBelief;
use runtime::sim::Simulation;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

const DAY: u32 = 86_400;
const DAY_US: i64 = 86_400_000_000;
/// The partition of a row with a TTL of a day, and that of a partition tombstone.
const EXPIRING: &[u8] = b"expiring";
const DELETED: &[u8] = b"deleted";

/// `sea.t (k blob PRIMARY KEY, v int)`, with a grace period of ten days.
fn table() -> Arc<Table> {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("v", CqlType::Int, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(7));
    let table = Table::new("sea", "t", id, columns, TableOptions::default());
    assert_eq!(table.options.gc_grace_seconds, 864_000);
    Arc::new(table)
}

fn now() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("a year before 2106")
}

fn expiring(table: &Table, now: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let shared = Shared {
        timestamp: 10,
        ttl: DAY,
        expiry: now + DAY,
    };
    MutationBuilder::begin(&mut out, table.id, EXPIRING).row(&[], |out| {
        RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, 1).value(0, &[0, 0, 0, 7]);
    });
    out
}

fn deleted(table: &Table, key: &[u8], now: u32) -> Vec<u8> {
    let mut out = Vec::new();
    MutationBuilder::begin(&mut out, table.id, key).partition_tombstone(Tombstone {
        timestamp: 10,
        deletion_time: now,
    });
    out
}

async fn write(shard: &Rc<Shard>, store: &Rc<TableStore>, bytes: &[u8]) {
    let mutation = Mutation::new(bytes).expect("a whole mutation");
    let token = token_of(mutation.key);
    shard
        .write(store, token, &mutation)
        .expect("there is room")
        .is_not_awaited();
    let tablet = store.tablet(token).expect("the shard has every token");
    shard.flush(store, &tablet).await.expect("the disk works");
}

async fn read(shard: &Rc<Shard>, store: &Rc<TableStore>, key: &[u8]) -> Option<PartitionBlock> {
    let (token, read) = (token_of(key), whole(key, 100));
    let version = store.tablet(token).expect("the shard has every token").version();
    let mut reader = PartitionReader::new(store.table(), version, shard.cache.clone(), read);
    reader.next_block().await.expect("the files can be read")
}

/// What is left of the two partitions after a compaction while the clock is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    has_expiring: bool,
    has_tombstone: bool,
}

async fn play(believes: bool, stage: Rc<Cell<u32>>, left: Rc<RefCell<Vec<Left>>>) {
    if believes {
        runtime::believe_clock(ClockBelief {
            offset_us: runtime::clock_offset_us(),
            limit: Duration::from_secs(5),
            is_trusted: true,
        });
    }
    let (shard, table, written) = (shard(1 << 20, 0), table(), now());
    open_table(&shard, &table, &[shard.token_range()]);
    let store = shard.store(table.id).expect("it was opened");
    write(&shard, &store, &expiring(&table, written)).await;
    write(&shard, &store, &deleted(&table, DELETED, written)).await;
    for round in 1..=2 {
        while stage.get() < round {
            runtime::sleep(Duration::from_millis(1)).await;
        }
        shard.compact_all().await.expect("the files can be merged");
        let row = read(&shard, &store, EXPIRING).await;
        let lives = |block: &PartitionBlock| {
            let mut rows = block.rows();
            rows.any(|(_, row)| LiveRow::new(row, &table.layout, Tombstone::NONE, written).is_live())
        };
        let covered = read(&shard, &store, DELETED).await;
        left.borrow_mut().push(Left {
            has_expiring: row.as_ref().is_some_and(lives),
            has_tombstone: covered.is_some_and(|block| !block.tombstone.is_none()),
        });
        // Something to merge with in the next round.
        write(&shard, &store, &deleted(&table, b"other", written)).await;
    }
}

/// Compacts while the clock is so many days off, and again when it is right.
fn left(days: i64, believes: bool) -> Vec<Left> {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let (stage, left) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let (stages, lefts) = (stage.clone(), left.clone());
    simulation.start(node, move |_| Box::pin(play(believes, stages.clone(), lefts.clone())));
    simulation.run_for(Duration::from_secs(1));
    simulation.set_clock_skew_us(node, days * DAY_US);
    stage.set(1);
    simulation.run_for(Duration::from_secs(1));
    simulation.set_clock_skew_us(node, 0);
    stage.set(2);
    assert!(simulation.run_until_ended(node, Duration::from_mins(1)));
    left.take()
}

#[test]
fn a_compaction_while_the_clock_has_jumped_drops_nothing() {
    let all = Left {
        has_expiring: true,
        has_tombstone: true,
    };
    for days in [-20, 20] {
        assert_eq!(left(days, true), [all, all], "{days} days");
    }
    // What this is about: a node that follows its clock.
    let none = Left {
        has_expiring: false,
        has_tombstone: false,
    };
    assert_eq!(left(20, false), [none, none]);
}
