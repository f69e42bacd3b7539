//! What this node copies of a tablet, or of ranges of the token ring, that move to it: of its table, and of what
//! acceptors know of its partitions.
//!
//! A node that is a replica already and must have all that others have, because fewer replicas are to follow, is
//! repaired with them instead: rows that it has are neither sent nor stored again. What acceptors know is copied there
//! too: it is little.

use std::rc::Rc;

use cluster::{Copy, Discard};
use query::Engine;
use repair::{Mode, Participant};
use replica::TokenRange;
use rpc::Rpc;
use runtime::ShardId;
use schema::TableId;
use streaming::{PART_BYTES, Request, Source};
use tasks::Origin;
use types::Token;
use uuid::Uuid;

use crate::second;

/// Brings what other nodes have of the first ranges of a copy: how many, one at least. When this returns Ok, all of
/// these is durable and part of the table here. On shard 0.
///
/// # Errors
/// A sentence: from which node what could not be copied, and why.
pub async fn copy(engine: &Rc<Engine>, copy: Copy) -> Result<usize, String> {
    let purpose = if copy.is_replica {
        Purpose::Complete
    } else {
        Purpose::Move
    };
    copy_for(engine, copy, purpose).await.map(|(ranges, _)| ranges)
}

/// Copies again what other nodes have of the first ranges of a copy, which this node is a replica of, as a part of a
/// task. What is here stays, and is merged with it. How many ranges, and the bytes that were copied.
///
/// # Errors
/// As [`copy`].
pub(super) async fn copy_again(engine: &Rc<Engine>, copy: Copy, task: Origin) -> Result<(usize, u64), String> {
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

async fn copy_for(engine: &Rc<Engine>, copy: Copy, purpose: Purpose) -> Result<(usize, u64), String> {
    let table = engine.schema().table_by_id(copy.table).cloned();
    let table = table.ok_or_else(|| "the table was dropped".to_owned())?;
    let kept = engine.node.system_tables.kept_tables(&table);
    let kept: Vec<TableId> = kept.iter().map(|table| table.id).collect();
    let truncated_at = engine.coordinator.context.view().truncated_at(copy.table);
    let shard = ShardId(u32::from(copy.shard));
    runtime::submit_async_to(shard, move || async move {
        // What the first table has ready in one piece is copied of the others, too, in however many pieces.
        let (mut ranges, mut bytes) = (token_ranges(&copy.ranges), 0);
        for (at, table) in kept.iter().enumerate() {
            let mut rest = &*ranges;
            let mut first = 0;
            while !rest.is_empty() {
                let (copied, of_table) = match (&purpose, *table == copy.table) {
                    (Purpose::Complete, true) => repair_with(&copy, rest).await?,
                    _ => copy_table((&copy, rest), *table, truncated_at, &purpose).await?,
                };
                bytes += of_table;
                first = first.max(copied);
                rest = if at == 0 { &[] } else { &rest[copied.min(rest.len())..] };
            }
            if at == 0 {
                ranges.truncate(first);
            }
        }
        Ok((ranges.len(), bytes))
    })
    .await
}

/// Removes what a shard of this node has of ranges that it is about to copy. On shard 0.
///
/// # Errors
/// A sentence.
pub async fn discard(engine: &Rc<Engine>, discard: Discard) -> Result<(), String> {
    let Some(table) = engine.schema().table_by_id(discard.table).cloned() else {
        return Ok(());
    };
    let kept = engine.node.system_tables.kept_tables(&table);
    let kept: Vec<TableId> = kept.iter().map(|table| table.id).collect();
    let ranges = token_ranges(&discard.ranges);
    let shard = ShardId(u32::from(discard.shard));
    runtime::submit_async_to(shard, move || async move {
        let engine = Engine::local();
        for store in kept
            .into_iter()
            .filter_map(|table| engine.coordinator.context.shard.store(table))
        {
            let task = streaming::kinds::make_room(&engine.coordinator.context.shard, &store, &Origin::Node);
            let done = engine
                .coordinator
                .context
                .shard
                .discard_ranges(&store, &ranges, &task)
                .await;
            task.end(&done);
            done?;
        }
        Ok(())
    })
    .await
}

fn token_ranges(ranges: &[(Token, Token)]) -> Vec<TokenRange> {
    let range = |(after, to): &(Token, Token)| TokenRange { after: *after, to: *to };
    ranges.iter().map(range).collect()
}

/// Copies what one table has of the first of these ranges, on the shard that gets them: how many, and the bytes.
async fn copy_table(
    (copy, ranges): (&Copy, &[TokenRange]),
    table: TableId,
    truncated_at: u64,
    purpose: &Purpose,
) -> Result<(usize, u64), String> {
    let engine = Engine::local();
    let (rpc, store) = (runtime::local::<Rpc>(), engine.coordinator.context.shard.store(table));
    let rpc = rpc.ok_or_else(|| "this node has no connections to others".to_owned())?;
    let store = store.ok_or_else(|| "the table was dropped".to_owned())?;
    let source = |(peer, shard): &(rpc::Peer, u16)| Source {
        peer: *peer,
        shard: u32::from(*shard),
    };
    let request = Request {
        table,
        ranges: ranges.to_vec(),
        part_bytes: PART_BYTES,
        sources: copy.sources.iter().map(source).collect(),
        // What acceptors know is truncated with the table that it is about, and has no version of its own.
        truncated_at: if table == copy.table { truncated_at } else { 0 },
        session: Uuid::from_u128(u128::from(copy.version)),
        with_marks: matches!(purpose, Purpose::Move) && table == copy.table,
    };
    // Where a range moves here, it is awaited already.
    let rebuild = || ranges.iter().map(|range| store.rebuild(*range)).collect();
    let (origin, _guards): (_, Vec<_>) = match purpose {
        Purpose::Move => (&Origin::Node, Vec::new()),
        Purpose::Complete => (&Origin::Node, rebuild()),
        Purpose::Rebuild(task) => (task, rebuild()),
    };
    let task = streaming::kinds::stream_tablet(&engine.coordinator.context.shard, &store, ranges, origin);
    let pulled = streaming::pull(&rpc, &engine.coordinator.context.shard, &request, &task).await;
    task.end(&pulled);
    let pulled = pulled.map_err(|e| e.to_string())?;
    let table = store.table();
    log::debug!(
        "copied {} ranges, {} bytes in {} sstables of {}.{} from {} replicas",
        pulled.ranges,
        pulled.bytes(),
        pulled.sstables(),
        table.keyspace,
        table.name,
        pulled.sources.len()
    );
    Ok((pulled.ranges, pulled.bytes()))
}

/// Makes the replica here equal to those that a copy is from in all these ranges, on the shard that has them. How many,
/// and the bytes received.
async fn repair_with(copy: &Copy, ranges: &[TokenRange]) -> Result<(usize, u64), String> {
    let engine = Engine::local();
    let (rpc, store) = (
        runtime::local::<Rpc>(),
        engine.coordinator.context.shard.store(copy.table),
    );
    let rpc = rpc.ok_or_else(|| "this node has no connections to others".to_owned())?;
    let store = store.ok_or_else(|| "the table was dropped".to_owned())?;
    let participant = |(peer, shard): &(rpc::Peer, u16)| Participant {
        peer: *peer,
        shard: u32::from(*shard),
    };
    let mut received = 0;
    for range in ranges {
        let request = repair::Request {
            table: copy.table,
            range: *range,
            others: copy.sources.iter().map(participant).collect(),
            now: second(runtime::wall_clock_us()),
            mode: Mode::Repair,
            rest: 0,
            marks: None,
        };
        let task = repair::kinds::repair_range(&engine.coordinator.context.shard, &store, *range, &Origin::Node);
        let repaired = repair::repair(&rpc, &engine.coordinator.context.shard, &request, &task).await;
        task.end(&repaired);
        let repaired = repaired.map_err(|e| e.to_string())?;
        received += repaired.received_bytes;
    }
    Ok((ranges.len(), received))
}
