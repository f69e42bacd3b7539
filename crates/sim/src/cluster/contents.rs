//! What each replica holds in the end: all that its memtables and sstables say of a partition, merged, deletions
//! included.
//!
//! A task of each shard of each node ([`Inventory::serve`]) waits until it is asked, scans the shard's tablets and
//! leaves what it found with the simulation: all machines are in one thread. After everything was read at ALL, and so
//! repaired, the replicas of a partition must hold the same.
//!
//! These differences are no differences, and nothing else is allowed:
//! - What a partition, range, row or column tombstone of the same replica covers: a compaction drops it when it comes
//!   by.
//! - A tombstone, or the remains of an expired cell, that is older than the table's grace, give or take twice the error
//!   of the clocks: compactions purge them at different times.
//! - The second at which something was deleted: a client asks for one deletion again, at the same timestamp, and either
//!   second may stay.
//! - Where a range tombstone is cut into two that touch.
//! - What a node holds that is no replica of the partition.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use coordinator::Coordinator;
use mutation::compact::{Purge, compact_block};
use mutation::merge::merge_blocks;
use mutation::{Bound, Column, PartitionBlock, RowView, Tombstone};
use query::Engine;
use replica::{BlockLimits, TabletScan};
use schema::Table;
use types::Token;

use super::listed::RowTerms;
use super::placement::{self, Seen};

/// How often a shard looks whether it is asked.
const POLL: Duration = Duration::from_millis(500);
/// Blocks of a scan.
const LIMITS: BlockLimits = BlockLimits {
    rows: 1000,
    bytes: 1 << 20,
};
/// Keyspaces of the clients.
pub(super) const KEYSPACES: [&str; 2] = ["k", "d"];

/// A table's name and a partition key.
type Partition = (String, Vec<u8>);

/// What one node holds of a partition.
struct Held {
    node: IpAddr,
    partition: Partition,
    /// Its replicas.
    replicas: Vec<IpAddr>,
    /// All of it that counts, a line for each row, deletion and cell.
    content: Vec<String>,
}

/// What was asked of all shards, and what they have answered.
#[derive(Default)]
pub(crate) struct Inventory {
    /// How often they were asked.
    asked: Cell<u64>,
    /// Shards that have not answered the last time, of nodes of which one has.
    left: RefCell<BTreeMap<IpAddr, u32>>,
    /// Tombstones from before this second, and what had expired before it, do not count.
    counts_from: Cell<u32>,
    held: RefCell<Vec<Held>>,
    failure: RefCell<Option<String>>,
    /// What shards have seen of the metadata last, while they run.
    pub(super) seen: RefCell<BTreeMap<(IpAddr, u32), Seen>>,
}

impl Inventory {
    /// A shard's task, on its node. Spawn this; it never returns.
    pub(crate) async fn serve(self: Rc<Self>, node: IpAddr) {
        let mut answered = self.asked.get();
        loop {
            runtime::sleep(POLL).await;
            if let Some(seen) = placement::look() {
                let (mut all, shards) = (self.seen.borrow_mut(), runtime::shard_count());
                // The node may have had more before it was started last.
                all.retain(|(of, shard), _| *of != node || *shard < shards);
                all.insert((node, runtime::shard().0), seen);
            }
            if self.asked.get() == answered {
                continue;
            }
            answered = self.asked.get();
            if let Err(text) = self.scan(node).await {
                self.failure.borrow_mut().get_or_insert(text);
            }
            *self.left.borrow_mut().entry(node).or_insert_with(runtime::shard_count) -= 1;
        }
    }

    /// Has all shards of so many nodes say what they hold. `error` is how wrong their clocks may be.
    pub(crate) async fn take(&self, nodes: usize, error: Duration) -> Result<(), String> {
        let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
        let error = u32::try_from(error.as_secs()).unwrap_or(u32::MAX);
        self.counts_from.set(now.saturating_add(2 * error));
        self.held.borrow_mut().clear();
        self.left.borrow_mut().clear();
        self.asked.set(self.asked.get() + 1);
        let is_done = || self.left.borrow().len() == nodes && self.left.borrow().values().all(|left| *left == 0);
        while !is_done() {
            runtime::sleep(POLL / 10).await;
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// How many partitions were compared; or the first of which two replicas hold something else.
    pub(crate) fn compare(&self) -> Result<u64, String> {
        let held = self.held.borrow();
        let mut partitions: BTreeMap<&Partition, BTreeMap<IpAddr, &Held>> = BTreeMap::new();
        for one in held.iter().filter(|one| one.replicas.contains(&one.node)) {
            partitions.entry(&one.partition).or_default().insert(one.node, one);
        }
        let mut compared = 0;
        for ((table, key), holders) in partitions {
            let Some((first, one)) = holders.first_key_value() else {
                continue;
            };
            for node in &one.replicas {
                let other = holders.get(node).map_or(&[][..], |held| &held.content);
                if other != one.content {
                    let (here, there): (BTreeSet<_>, BTreeSet<_>) =
                        (one.content.iter().collect(), other.iter().collect());
                    return Err(format!(
                        "after all was read at ALL two replicas of partition {key:02x?} of {table} differ: {first} alone holds {:?}, and {node} \
                         alone {:?}",
                        here.difference(&there).collect::<Vec<_>>(),
                        there.difference(&here).collect::<Vec<_>>()
                    ));
                }
            }
            compared += 1;
        }
        Ok(compared)
    }

    async fn scan(&self, node: IpAddr) -> Result<(), String> {
        let (engine, coordinator) = (Engine::local(), Coordinator::local());
        let view = coordinator.context.view();
        for store in engine.coordinator.context.shard.stores() {
            let table = store.table();
            let Some(route) = view.route(table.id) else { continue };
            if !KEYSPACES.contains(&table.keyspace.as_str()) {
                continue;
            }
            let mut scan = TabletScan::all(&store, engine.coordinator.context.shard.cache.clone(), LIMITS);
            let mut whole: Option<PartitionBlock> = None;
            let mut terms = RowTerms::new(&table, self.counts_from.get());
            loop {
                let next = scan.next_block().await.map_err(|e| format!("{node}: {e}"))?;
                let is_same = |whole: &PartitionBlock| next.as_ref().is_some_and(|next| next.key() == whole.key());
                if let Some(done) = whole.take_if(|whole| !is_same(whole)) {
                    terms.add(&table, &done);
                    self.add(node, &table, &done, &|token| {
                        let replicas = route.map.tablet_of(token);
                        let address = |r: &topology::Replica| Some(view.topology.numbered(r.node)?.internode.ip());
                        replicas.replicas.iter().filter_map(address).collect()
                    });
                }
                let Some(mut next) = next else { break };
                next.covered = None;
                whole = Some(match whole {
                    Some(whole) => {
                        merge_blocks(&table.layout, &table.clustering_order, &[&whole, &next]).expect("there are two")
                    }
                    None => next,
                });
            }
            let shard = (&engine.coordinator.context.shard, &*store);
            let listed = terms.check(shard, LIMITS).await;
            listed.map_err(|why| format!("{node}, shard {}: {why}", runtime::shard().0))?;
        }
        Ok(())
    }

    fn add(&self, node: IpAddr, table: &Table, block: &PartitionBlock, replicas: &dyn Fn(Token) -> Vec<IpAddr>) {
        let now = self.counts_from.get();
        let purge = Purge {
            now,
            gc_before: table.options.compared_from(now),
            max_purgeable_timestamp: i64::MAX,
            held: &[],
            keeps_expired: false,
        };
        let block = compact_block(&table.layout, &table.clustering_order, block, &purge);
        let content = describe(table, &block);
        if !content.is_empty() {
            self.held.borrow_mut().push(Held {
                node,
                partition: (format!("{}.{}", table.keyspace, table.name), block.key().to_vec()),
                replicas: replicas(block.token),
                content,
            });
        }
    }
}

/// A line for each thing that a block has.
fn describe(table: &Table, block: &PartitionBlock) -> Vec<String> {
    let mut lines = Vec::new();
    if !block.tombstone.is_none() {
        lines.push(format!("the partition is deleted at {}", block.tombstone.timestamp));
    }
    if let Some(row) = block.static_row() {
        describe_row(table, "static row", row, &mut lines);
    }
    for (clustering, row) in block.rows() {
        describe_row(table, &format!("row {clustering:02x?}"), row, &mut lines);
    }
    let mut ranges: Vec<(Bound, Bound, i64)> = Vec::new();
    for range in &block.range_tombstones {
        match ranges.last_mut() {
            Some((_, end, timestamp)) if *end == range.start && *timestamp == range.tombstone.timestamp => {
                *end = range.end.clone();
            }
            _ => ranges.push((range.start.clone(), range.end.clone(), range.tombstone.timestamp)),
        }
    }
    let all = ranges
        .iter()
        .map(|(start, end, timestamp)| format!("{start:?} to {end:?} is deleted at {timestamp}"));
    lines.extend(all);
    lines
}

fn describe_row(table: &Table, name: &str, row: RowView<'_>, lines: &mut Vec<String>) {
    let deleted =
        |tombstone: Tombstone| (!tombstone.is_none()).then(|| format!("is deleted at {}", tombstone.timestamp));
    lines.extend(deleted(row.tombstone).map(|text| format!("{name} {text}")));
    if let Some(marker) = row.marker {
        lines.push(format!(
            "{name} was inserted at {} for {} s",
            marker.timestamp, marker.ttl
        ));
    }
    for (id, column) in row.columns(&table.layout) {
        let column_name = table
            .columns
            .iter()
            .find(|c| usize::from(c.id.0) == id)
            .map_or("?", |c| &c.name);
        let cell = |path: &str, cell: &mutation::Cell<'_>| {
            let mut text = format!("{name}, {column_name}{path} at {}: ", cell.timestamp);
            let written = match (cell.dead, cell.ttl) {
                (true, _) => write!(text, "deleted"),
                (false, 0) => write!(text, "{:02x?}", cell.value),
                (false, ttl) => write!(text, "{:02x?} for {ttl} s until {}", cell.value, cell.deletion_time),
            };
            written.expect("a String takes all");
            text
        };
        match column {
            Column::Simple(simple) => lines.push(cell("", &simple)),
            Column::Complex(complex) => {
                lines.extend(deleted(complex.tombstone).map(|text| format!("{name}, {column_name} {text}")));
                lines.extend(
                    complex
                        .elements()
                        .map(|(path, element)| cell(&format!("{path:02x?}"), &element)),
                );
            }
        }
    }
}
