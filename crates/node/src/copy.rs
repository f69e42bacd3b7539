//! What this node copies of a tablet, or of a range of the token ring, that moves to it: of its table, and of what acceptors know of its partitions.
//!
//! A node that is a replica already and must have all that others have, because fewer replicas are to follow, is repaired with them instead: rows that it has are
//! neither sent nor stored again. What acceptors know is copied there too: it is little.

use std::rc::Rc;

use ::cluster::{Copy, Discard, INHERITED_MARKS};
use coordinator::ClusterView;
use query::Engine;
use repair::{Mode, Participant};
use replica::TokenRange;
use rpc::Rpc;
use runtime::ShardId;
use schema::TableId;
use streaming::{Request, Source};
use tasks::Origin;
use types::Token;
use uuid::Uuid;

use crate::repairs::second;

/// Brings what other nodes have of a tablet. When this returns Ok, all of it is durable and part of the tablet here. On shard 0.
///
/// # Errors
/// A sentence: from which node what could not be copied, and why.
pub(crate) async fn copy(engine: &Rc<Engine>, copy: Copy) -> Result<(), String> {
    let purpose = if copy.is_replica {
        Purpose::Complete
    } else {
        Purpose::Move
    };
    copy_for(engine, copy, purpose).await.map(drop)
}

/// Copies again what other nodes have of a range that this node is a replica of, as a part of a task. What is here stays, and is merged with it. The bytes that were copied.
///
/// # Errors
/// As [`copy`].
pub(crate) async fn copy_again(engine: &Rc<Engine>, copy: Copy, task: Origin) -> Result<u64, String> {
    copy_for(engine, copy, Purpose::Rebuild(task)).await
}

/// What a copy is for.
#[derive(Clone)]
enum Purpose {
    /// The range moves here.
    Move,
    /// The node is a replica of the range, and may lack rows.
    Complete,
    /// The node is a replica of the range, and an operator wants its data again.
    Rebuild(Origin),
}

async fn copy_for(engine: &Rc<Engine>, copy: Copy, purpose: Purpose) -> Result<u64, String> {
    let table = engine.schema().table_by_id(copy.table).cloned();
    let table = table.ok_or_else(|| "the table was dropped".to_owned())?;
    let kept = engine.node.system_tables.kept_tables(&table);
    let kept: Vec<TableId> = kept.iter().map(|table| table.id).collect();
    let truncated_at = engine.coordinator.view().truncated_at(copy.table);
    let shard = ShardId(u32::from(copy.shard));
    runtime::submit_async_to(shard, move || async move {
        let mut bytes = 0;
        for table in kept {
            bytes += match (&purpose, table == copy.table) {
                (Purpose::Complete, true) => repair_with(&copy).await?,
                _ => copy_table(&copy, table, truncated_at, &purpose).await?,
            };
        }
        Ok(bytes)
    })
    .await
}

/// Removes what a shard of this node has of ranges that it is about to copy. On shard 0.
///
/// # Errors
/// A sentence.
pub(crate) async fn discard(engine: &Rc<Engine>, discard: Discard) -> Result<(), String> {
    let Some(table) = engine.schema().table_by_id(discard.table).cloned() else {
        return Ok(());
    };
    let kept = engine.node.system_tables.kept_tables(&table);
    let kept: Vec<TableId> = kept.iter().map(|table| table.id).collect();
    let range = |(after, to): &(Token, Token)| TokenRange { after: *after, to: *to };
    let ranges: Vec<TokenRange> = discard.ranges.iter().map(range).collect();
    let shard = ShardId(u32::from(discard.shard));
    runtime::submit_async_to(shard, move || async move {
        let engine = Engine::local();
        for store in kept.into_iter().filter_map(|table| engine.shard.store(table)) {
            let task = streaming::kinds::make_room(&engine.shard, &store, &Origin::Node);
            let done = engine.shard.discard_ranges(&store, &ranges, &task).await;
            task.end(&done);
            done?;
        }
        Ok(())
    })
    .await
}

/// Copies what one table has of the tablet, on the shard that gets it.
async fn copy_table(copy: &Copy, table: TableId, truncated_at: u64, purpose: &Purpose) -> Result<u64, String> {
    let engine = Engine::local();
    let (rpc, store) = (runtime::local::<Rpc>(), engine.shard.store(table));
    let rpc = rpc.ok_or_else(|| "this node has no connections to others".to_owned())?;
    let store = store.ok_or_else(|| "the table was dropped".to_owned())?;
    let range = TokenRange {
        after: copy.after,
        to: copy.to,
    };
    let source = |(peer, shard): &(rpc::Peer, u16)| Source {
        peer: *peer,
        shard: u32::from(*shard),
    };
    let request = Request {
        table,
        range,
        sources: copy.sources.iter().map(source).collect(),
        // What acceptors know is truncated with the table that it is about, and has no version of its own.
        truncated_at: if table == copy.table { truncated_at } else { 0 },
        session: Uuid::from_u128(u128::from(copy.version)),
        with_marks: matches!(purpose, Purpose::Move) && table == copy.table && knows_inheritance(&engine),
    };
    // Where the range moves here, it is awaited already.
    let (origin, _guard) = match purpose {
        Purpose::Move => (&Origin::Node, None),
        Purpose::Complete => (&Origin::Node, Some(store.rebuild(range))),
        Purpose::Rebuild(task) => (task, Some(store.rebuild(range))),
    };
    let task = streaming::kinds::stream_tablet(&engine.shard, &store, range, origin);
    let pulled = streaming::pull(&rpc, &engine.shard, &request, &task).await;
    task.end(&pulled);
    let pulled = pulled.map_err(|e| e.to_string())?;
    let table = store.table();
    log::debug!(
        "copied {} bytes in {} sstables of {}.{} from {} replicas",
        pulled.bytes(),
        pulled.sstables(),
        table.keyspace,
        table.name,
        pulled.sources.len()
    );
    Ok(pulled.bytes())
}

/// Whether all nodes know that marks of repairs move with a tablet.
fn knows_inheritance(engine: &Engine) -> bool {
    let is_enabled = |view: &ClusterView| view.topology.enabled_features().contains(INHERITED_MARKS);
    engine.coordinator.with_view(is_enabled)
}

/// Makes the replica here equal to those that a copy is from, on the shard that has it. The bytes that came.
async fn repair_with(copy: &Copy) -> Result<u64, String> {
    let engine = Engine::local();
    let (rpc, store) = (runtime::local::<Rpc>(), engine.shard.store(copy.table));
    let rpc = rpc.ok_or_else(|| "this node has no connections to others".to_owned())?;
    let store = store.ok_or_else(|| "the table was dropped".to_owned())?;
    let range = TokenRange {
        after: copy.after,
        to: copy.to,
    };
    let participant = |(peer, shard): &(rpc::Peer, u16)| Participant {
        peer: *peer,
        shard: u32::from(*shard),
    };
    let request = repair::Request {
        table: copy.table,
        range,
        others: copy.sources.iter().map(participant).collect(),
        now: second(runtime::wall_clock_us()),
        mode: Mode::Repair,
        rest: 0,
        marks: None,
    };
    let task = repair::kinds::repair_range(&engine.shard, &store, range, &Origin::Node);
    let repaired = repair::repair(&rpc, &engine.shard, &request, &task).await;
    task.end(&repaired);
    let repaired = repaired.map_err(|e| e.to_string())?;
    Ok(repaired.received_bytes)
}
