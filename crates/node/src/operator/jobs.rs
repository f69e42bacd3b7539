//! What operators start and may wait for: each is a task, with a part for each tablet or table.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::operator::{Selection, Started, Work};
use cluster::{Cluster, NodeMove, ShardMove};
use query::Engine;
use replica::kinds;
use schema::{IndexId, TableId};
use tasks::{Kind, Origin, Spec, Task, Tasks};
use topology::HostId;
use types::Token;

use super::{selected, snapshots};
use crate::follow::on_all_shards;
use crate::maintenance;

/// How long a node may take to do a move that is agreed on before it is said that it did not.
const MOVE_WAIT_MAX: Duration = Duration::from_mins(10);

/// Begins work, which continues even if the caller stops waiting. Work that needs the cluster fails without one.
pub(super) fn start(engine: &Rc<Engine>, cluster: Option<&Rc<Cluster>>, tasks: &Arc<Tasks>, work: Work) -> Started {
    let (kind, what): (&'static Kind, Selection) = match &work {
        Work::Flush(what) => (&kinds::FLUSH, what.clone()),
        Work::Compact { what, .. } => (&kinds::MAJOR_COMPACTION, what.clone()),
        Work::Snapshot { what, .. } => (&kinds::SNAPSHOT, what.clone()),
        Work::RebuildIndexes { keyspace, table, .. } => {
            let (keyspaces, tables) = (vec![keyspace.clone()], vec![table.clone()]);
            (&kinds::INDEX_BUILD, Selection { keyspaces, tables })
        }
        Work::MoveTablet { keyspace, table, .. } => {
            let (keyspaces, tables) = (vec![keyspace.clone()], vec![table.clone()]);
            (&kinds::MOVE_TABLET, Selection { keyspaces, tables })
        }
        Work::ResizeTable { keyspace, table, .. } => {
            let (keyspaces, tables) = (vec![keyspace.clone()], vec![table.clone()]);
            (&kinds::RESIZE_TABLE, Selection { keyspaces, tables })
        }
    };
    let scope = match (what.keyspaces.len(), what.tables.len()) {
        (1, 1) => "table",
        (1, _) => "keyspace",
        _ => "node",
    };
    let entity = match &work {
        Work::Snapshot { tag, .. } => tag.clone(),
        Work::MoveTablet {
            token,
            to_host: Some(host),
            to,
            ..
        } => format!("token {token} to shard {to} of node {host}"),
        Work::MoveTablet { token, to, .. } => format!("token {token} to shard {to}"),
        Work::ResizeTable { tablet_count, .. } => format!("to {tablet_count} tablets"),
        Work::RebuildIndexes { indexes, .. } => indexes.join(","),
        Work::Flush(_) | Work::Compact { .. } => String::new(),
    };
    let spec = Spec {
        scope,
        keyspace: what.keyspaces.join(","),
        table: what.tables.join(","),
        entity,
        ..Spec::of(kind)
    };
    let task = tasks.start(spec, &Origin::Operator);
    task.begin();
    let (id, engine, cluster) = (task.id(), engine.clone(), cluster.cloned());
    let ended = runtime::spawn(async move {
        let result = execute(&engine, cluster.as_ref(), &task, work).await;
        task.end(&result);
        result
    });
    Started {
        task: id,
        ended: Box::pin(ended),
    }
}

async fn execute(engine: &Rc<Engine>, cluster: Option<&Rc<Cluster>>, task: &Task, work: Work) -> Result<(), String> {
    match work {
        Work::Flush(what) => {
            task.set_total(bytes(&what, true, false).await);
            flush(what, task.as_origin()).await
        }
        Work::Compact { what, flushes } => {
            task.set_total(bytes(&what, flushes, true).await);
            if flushes {
                flush(what.clone(), task.as_origin()).await?;
            }
            compact(what, task.as_origin()).await
        }
        Work::Snapshot {
            tag,
            ttl,
            flushes,
            what,
        } => snapshots::take(engine, tag, ttl, (what, flushes), task).await,
        Work::RebuildIndexes {
            keyspace,
            table,
            indexes,
        } => {
            let (id, ids) = index_ids(engine, (&keyspace, &table), &indexes)?;
            let (keyspaces, tables) = (vec![keyspace], vec![table]);
            task.set_total(bytes(&Selection { keyspaces, tables }, false, true).await);
            rebuild_indexes(id, ids, task.as_origin()).await
        }
        Work::ResizeTable {
            keyspace,
            table,
            tablet_count,
        } => {
            task.set_total(1);
            let known = table_id(engine, &keyspace, &table)?;
            let cluster = cluster.ok_or_else(maintenance::refusal)?;
            let resized = cluster
                .resize(known, tablet_count, runtime::now() + MOVE_WAIT_MAX)
                .await;
            resized.inspect_err(|e| log::warn!("cannot resize {keyspace}.{table}: {e}"))?;
            task.advance(1);
            Ok(())
        }
        Work::MoveTablet {
            keyspace,
            table,
            token,
            host_id,
            from,
            to_host,
            to,
        } => {
            task.set_total(1);
            let known = table_id(engine, &keyspace, &table)?;
            let cluster = cluster.ok_or_else(maintenance::refusal)?;
            let host_id = host_id.map_or(cluster.host_id(), HostId);
            let deadline = runtime::now() + MOVE_WAIT_MAX;
            let moved = match to_host {
                Some(other) => {
                    let wanted = NodeMove {
                        table: known,
                        token: Token(token),
                        from: host_id,
                        from_shard: from,
                        to: HostId(other),
                        to_shard: Some(to),
                    };
                    cluster.move_between_nodes(&wanted, deadline).await
                }
                None => {
                    let wanted = ShardMove {
                        table: known,
                        token: Token(token),
                        host_id,
                        from,
                        to,
                    };
                    cluster.move_between_shards(&wanted, deadline).await
                }
            };
            moved.inspect_err(|e| log::warn!("cannot move a tablet of {keyspace}.{table}: {e}"))?;
            task.advance(1);
            Ok(())
        }
    }
}

fn table_id(engine: &Engine, keyspace: &str, table: &str) -> Result<TableId, String> {
    let schema = engine.schema();
    let known = schema.keyspaces.get(keyspace).and_then(|known| known.tables.get(table));
    known
        .map(|known| known.id)
        .ok_or_else(|| format!("there is no table {keyspace}.{table}"))
}

/// The bytes of the tables that are meant, in memtables and in sstables before compression.
async fn bytes(what: &Selection, in_memory: bool, in_files: bool) -> u64 {
    let what = what.clone();
    let of_shard = async move |engine: Rc<Engine>| {
        let mut bytes = 0;
        for store in selected(&engine, &what) {
            for tablet in store.tablets().iter() {
                tablet.with_version(|version| {
                    if in_memory {
                        let frozen = version.frozen.iter().map(replica::Frozen::charged);
                        bytes += frozen.sum::<usize>() as u64 + version.active.borrow().bytes() as u64;
                    }
                    if in_files {
                        bytes += version
                            .sstables
                            .iter()
                            .map(|reader| reader.meta().data_len)
                            .sum::<u64>();
                    }
                });
            }
        }
        bytes
    };
    on_all_shards(of_shard).await.into_iter().sum()
}

/// Flushes the tables that are meant.
pub(super) async fn flush(what: Selection, origin: Origin) -> Result<(), String> {
    let work = async move |engine: Rc<Engine>| {
        let mut result = Ok(());
        for store in selected(&engine, &what) {
            for tablet in store.tablets().iter() {
                let flushed = engine
                    .coordinator
                    .context
                    .shard
                    .flush_for(&store, tablet, &origin)
                    .await;
                result = result.and(flushed);
            }
        }
        result
    };
    on_all_shards(work).await.into_iter().collect()
}

async fn compact(what: Selection, origin: Origin) -> Result<(), String> {
    let work = async move |engine: Rc<Engine>| {
        let mut result = Ok(());
        for store in selected(&engine, &what) {
            let compacted = engine
                .coordinator
                .context
                .shard
                .compact_table_for(&store, &origin)
                .await;
            result = result.and(compacted);
        }
        result
    };
    on_all_shards(work).await.into_iter().collect()
}

/// A table, and those of its indexes that are named; all of them where none is.
///
/// # Errors
/// When there is no such table or index.
fn index_ids(
    engine: &Engine,
    (keyspace, table): (&str, &str),
    names: &[String],
) -> Result<(TableId, Vec<IndexId>), String> {
    let schema = engine.schema();
    let known = schema.keyspaces.get(keyspace).and_then(|known| known.tables.get(table));
    let known = known.ok_or_else(|| format!("there is no table {keyspace}.{table}"))?;
    let has = |name: &String| known.indexes.iter().any(|index| index.name == *name);
    if let Some(unknown) = names.iter().find(|name| !has(name)) {
        return Err(format!("{keyspace}.{table} has no index {unknown}"));
    }
    let meant = known
        .indexes
        .iter()
        .filter(|index| names.is_empty() || names.contains(&index.name));
    Ok((known.id, meant.map(|index| index.id).collect()))
}

async fn rebuild_indexes(table: TableId, ids: Vec<IndexId>, origin: Origin) -> Result<(), String> {
    let work = async move |engine: Rc<Engine>| {
        let shard = &engine.coordinator.context.shard;
        match shard.store(table) {
            Some(store) => shard.rebuild_indexes(&store, &ids, &origin).await,
            None => Ok(()),
        }
    };
    on_all_shards(work).await.into_iter().collect()
}
