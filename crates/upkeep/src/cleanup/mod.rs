//! Cleanup: what this node has on its disks of tokens that are not its own is removed.
//!
//! A tablet that moves away takes its files along, so of tables with tablets nothing is left. On the token ring a
//! former owner keeps its part of each sstable: it is not read, and [`replica::Shard::discard_ranges`] takes it out.
//! Files that a start has set aside (`unowned`) are deleted.
//!
//! While the token ring goes to other owners, nothing of it is removed: a node may be about to own what it does not own
//! yet.

pub mod ring;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::ClusterView;
use query::Engine;
use replica::{TokenRange, UNOWNED};
use runtime::ShardId;
use schema::{Table, TableId};
use stdx::planted::{self, Bug};
use tasks::{Class, Kind, Module, Origin, Spec, Task, Tasks};
use topology::{NodeNumber, TabletMap};

use crate::tables_of_users;

/// A cleanup of tables.
pub const CLEANUP: Kind = Kind {
    name: "cleanup",
    module: Module::Compaction,
    class: Class::Compaction,
    units: "tables",
    is_abortable: true,
};

/// What a cleanup has removed of a table.
#[derive(Clone, Debug)]
pub struct Cleaned {
    /// The table.
    pub table: Arc<Table>,
    /// Bytes that the node has less.
    pub removed_bytes: u64,
    /// Files among them that a start had set aside.
    pub unowned_files: u64,
    /// The token ring goes to other owners, so nothing of it was removed.
    pub is_skipped: bool,
}

/// Cleans up tables as a part of a task, and says of each what was removed.
///
/// # Errors
/// A sentence, when a disk refuses or the task is aborted. What was removed until then stays so.
pub async fn clean(engine: &Rc<Engine>, tables: &[Arc<Table>], task: &Task) -> Result<Vec<Cleaned>, String> {
    each(tables, task, async |table| of_table(engine, table, task).await).await
}

/// What a cleanup after a change of the token ring has removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lost {
    /// How much less the node has.
    bytes: u64,
    /// Nothing is left.
    is_all: bool,
    /// An operator has aborted it, and the rest stays. Else the ring has begun to go to other owners, when not all is
    /// gone.
    is_aborted: bool,
}

/// Removes what this node has of ranges of the token ring that it lost, of all tables of users. Files that a start has
/// set aside stay.
///
/// # Errors
/// As those of [`clean`].
async fn after_ring_change(engine: &Rc<Engine>, tasks: &Arc<Tasks>) -> Result<Lost, String> {
    let mut tables = tables_of_users(engine);
    let is_on_ring = |table: &Arc<Table>| {
        let has_tablets = |view: &ClusterView| view.route(table.id).is_some_and(|route| route.has_own_tablets);
        !engine.coordinator.context.with_view(has_tablets)
    };
    tables.retain(is_on_ring);
    let mut lost = Lost {
        bytes: 0,
        is_all: true,
        is_aborted: false,
    };
    if tables.is_empty() {
        return Ok(lost);
    }
    let task = tasks.start(Spec::of(&CLEANUP), &Origin::Node);
    task.begin();
    let done = each(&tables, &task, async |table| {
        ranges_of_table(engine, table, &task).await
    })
    .await;
    lost.is_aborted = task.is_aborted();
    task.end(&done);
    match done {
        Ok(parts) => {
            lost.bytes = parts.iter().map(|(bytes, _)| bytes).sum();
            lost.is_all = parts.iter().all(|(_, is_all)| *is_all);
        }
        Err(_) if lost.is_aborted => lost.is_all = false,
        Err(why) => return Err(why),
    }
    Ok(lost)
}

/// Cleans up table after table, as a task, until that is aborted.
async fn each<T>(
    tables: &[Arc<Table>],
    task: &Task,
    clean: impl AsyncFn(&Arc<Table>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    task.set_total(tables.len() as u64);
    let mut cleaned = Vec::with_capacity(tables.len());
    for table in tables {
        if task.is_aborted() {
            return Err("it was aborted".to_owned());
        }
        cleaned.push(clean(table).await?);
        task.advance(1);
    }
    Ok(cleaned)
}

async fn of_table(engine: &Rc<Engine>, table: &Arc<Table>, task: &Task) -> Result<Cleaned, String> {
    let (removed, is_all) = ranges_of_table(engine, table, task).await?;
    let kept = engine.node.system_tables.kept_tables(table);
    let mut dirs: Vec<PathBuf> = Vec::new();
    for store in kept
        .iter()
        .filter_map(|table| engine.coordinator.context.shard.store(table.id))
    {
        dirs.push(store.dir.join(UNOWNED));
    }
    let (files, set_aside) = runtime::offload(move || remove_unowned(&dirs)).await?;
    Ok(Cleaned {
        table: table.clone(),
        removed_bytes: removed + set_aside,
        unowned_files: files,
        is_skipped: !is_all,
    })
}

/// Removes what this node has of ranges of the token ring that are not its own. How many bytes that were, and whether
/// that is all: not when the ring goes to other owners.
async fn ranges_of_table(engine: &Rc<Engine>, table: &Arc<Table>, task: &Task) -> Result<(u64, bool), String> {
    let kept = engine.node.system_tables.kept_tables(table);
    let kept: Vec<TableId> = kept.iter().map(|table| table.id).collect();
    let (before, base, origin) = (bytes(kept.clone()).await, table.id, task.as_origin());
    let mut is_all = true;
    for shard in 0..runtime::shard_count() {
        let (kept, origin) = (kept.clone(), origin.clone());
        let clean = move || async move { on_shard(base, kept, &origin).await };
        is_all &= runtime::submit_async_to(ShardId(shard), clean).await?;
    }
    Ok((before.saturating_sub(bytes(kept).await), is_all))
}

/// Removes what this shard has of tokens that are not the node's. False when the token ring goes to other owners.
async fn on_shard(base: TableId, kept: Vec<TableId>, origin: &Origin) -> Result<bool, String> {
    let engine = Engine::local();
    for table in kept {
        let Some(store) = engine.coordinator.context.shard.store(table) else {
            continue;
        };
        let Some(ranges) = foreign(&engine, base) else {
            return Ok(false);
        };
        if !ranges.is_empty() && has_any(&store, &ranges) {
            let task = streaming::kinds::make_room(&engine.coordinator.context.shard, &store, origin);
            // The ranges may become this node's own while the removal waits for its compaction turn; what was copied
            // into them must then stay. Once the removal has the turn, they cannot: the next change of the ring begins
            // with a removal of its own, which waits for the turn.
            let are_foreign = || foreign(&engine, base).as_ref() == Some(&ranges);
            let discarded = engine
                .coordinator
                .context
                .shard
                .discard_ranges_while(&store, &ranges, &task, &are_foreign);
            let done = discarded.await;
            task.end(&done);
            if !done? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The ranges of the token ring that are not this node's, as the shard knows it now; none where the table has its own
/// tablets. None while ranges go to other owners.
fn foreign(engine: &Engine, base: TableId) -> Option<Vec<TokenRange>> {
    engine.coordinator.context.with_view(|view| {
        let route = view.route(base).filter(|route| !route.has_own_tablets);
        let Some(route) = route else { return Some(Vec::new()) };
        let is_still = route.map.moving().next().is_none() || planted::is_planted(Bug::CleansWhileRingMoves);
        is_still.then(|| not_of(view.me, &route.map))
    })
}

/// Whether an sstable or a memtable may have tokens of these ranges.
fn has_any(store: &replica::TableStore, ranges: &[TokenRange]) -> bool {
    store.tablets().iter().any(|tablet| {
        tablet.with_version(|version| {
            let overlaps = |reader: &Arc<sstable::Reader>| ranges.iter().any(|range| range.overlaps(reader.tokens()));
            version.active.borrow().bytes() > 0 || !version.frozen.is_empty() || version.sstables.iter().any(overlaps)
        })
    })
}

/// The ranges that a node is no replica of, neighbours as one.
fn not_of(node: NodeNumber, map: &TabletMap) -> Vec<TokenRange> {
    let mut ranges: Vec<TokenRange> = Vec::new();
    let others = map
        .tablets()
        .filter(|tablet| tablet.replicas.iter().all(|replica| replica.node != node));
    for (after, to) in others.filter_map(|tablet| map.token_range(tablet.id)) {
        match ranges.last_mut() {
            Some(last) if last.to == after => last.to = to,
            _ => ranges.push(TokenRange { after, to }),
        }
    }
    ranges
}

/// Bytes of the sstables of tables on all shards, before compression.
async fn bytes(tables: Vec<TableId>) -> u64 {
    let asked: Vec<_> = (0..runtime::shard_count())
        .map(|shard| {
            let tables = tables.clone();
            runtime::submit_async_to(ShardId(shard), move || async move { bytes_here(&tables) })
        })
        .collect();
    let mut bytes = 0;
    for of_shard in asked {
        bytes += of_shard.await;
    }
    bytes
}

fn bytes_here(tables: &[TableId]) -> u64 {
    let engine = Engine::local();
    let mut bytes = 0;
    for store in tables
        .iter()
        .filter_map(|table| engine.coordinator.context.shard.store(*table))
    {
        for tablet in store.tablets().iter() {
            tablet.with_version(|version| {
                let sstables = version.sstables.iter();
                bytes += sstables.map(|reader| reader.meta().data_len).sum::<u64>();
            });
        }
    }
    bytes
}

/// Deletes directories of files that were set aside. How many files they had, and their bytes. Blocks.
fn remove_unowned(dirs: &[PathBuf]) -> Result<(u64, u64), String> {
    let (mut files, mut bytes) = (0, 0);
    for dir in dirs.iter().filter(|dir| runtime::fs::exists(dir)) {
        let at = |e: std::io::Error| format!("{}: {e}", dir.display());
        for entry in runtime::fs::read_dir(dir).map_err(at)? {
            files += 1;
            bytes += entry.len;
        }
        runtime::fs::remove_dir_all(dir).map_err(at)?;
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::{Boundaries, Replica, ReplicaList};
    use types::Token;

    #[test]
    fn what_a_node_does_not_own_is_told_in_as_few_ranges_as_there_are() {
        let on = |nodes: &[u16]| -> ReplicaList {
            let replica = |node: &u16| Replica {
                node: NodeNumber(*node),
                shard: 0,
            };
            nodes.iter().map(replica).collect()
        };
        let last: Vec<Token> = [-10, 0, 10, 20, i64::MAX].map(Token).to_vec();
        let replicas = [on(&[0, 1]), on(&[1, 2]), on(&[2, 3]), on(&[0, 2]), on(&[1, 2])];
        let map = TabletMap::new(1, Boundaries::LastTokens(last.into()), &replicas).expect("a map");
        let told = |node| -> Vec<(i64, i64)> {
            let ranges = not_of(NodeNumber(node), &map);
            ranges.iter().map(|range| (range.after.0, range.to.0)).collect()
        };
        assert_eq!(told(0), [(-10, 10), (20, i64::MAX)]);
        assert_eq!(told(2), [(i64::MIN, -10)]);
        assert_eq!(told(9), [(i64::MIN, i64::MAX)]);
    }
}
