//! Turns of coordinators on a contended partition.
//!
//! Paxos needs no order among coordinators, but without one those that contend keep refusing each other's ballots, and
//! a few never finish. So a statement whose ballot was refused waits for its turn in the partition's *queue*, which is
//! on the shard of the partition's first live replica. So do the statements that follow it on this shard for
//! [`CONTENDED_FOR`]. Statements of one shard queue there first, so a partition's queue is as long as the number of
//! shards that contend, and each shard is served once before any is served again.
//!
//! Correctness does not depend on it. A coordinator that cannot reach the queue proceeds without a turn; a turn that is
//! not given back ends after [`LEASE`].
//!
//! ```text
//! TAKETURN  [u8; 16] table, partition key; the answer, when it is the caller's turn, is u64 number of the turn
//! ENDTURN   u64 number of the turn; one way
//! ```

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::{Instant, Notify, ShardId};
use schema::TableId;
use topology::Replica;
use uuid::Uuid;

use crate::cas::Cas;
use crate::cas::turns::{PartitionTurns, Turn};
use crate::message::Malformed;
use crate::{ClusterView, Context, Coordinator, Verb, spawn};

/// How long a partition counts as contended after a ballot was refused.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// Partitions that are remembered as contended; of more some go without turns.
const CONTENDED_MAX: usize = 4096;
/// How long a turn lasts that is not given back: far longer than a statement takes that meets no other.
const LEASE: Duration = Duration::from_millis(500);

type Contended = HashMap<(TableId, Box<[u8]>), Instant, foldhash::fast::FixedState>;

/// What a shard knows of contention: the queues of its own partitions, and the partitions whose queues it waits in.
#[derive(Default)]
pub(crate) struct Contention {
    queues: PartitionTurns,
    /// Turns of other nodes.
    given: RefCell<HashMap<u64, Rc<Notify>, foldhash::fast::FixedState>>,
    last_number: Cell<u64>,
    /// Partitions, and until when they count as contended.
    contended: RefCell<Contended>,
}

impl Contention {
    /// A ballot was refused.
    pub(crate) fn met_others(&self, table: TableId, key: &[u8]) {
        let now = runtime::now();
        let mut contended = self.contended.borrow_mut();
        if contended.len() >= CONTENDED_MAX {
            contended.retain(|_, until| *until > now);
        }
        if contended.len() < CONTENDED_MAX {
            contended.insert((table, key.into()), now + CONTENDED_FOR);
        }
    }

    /// Whether statements on a partition take turns with other coordinators'.
    pub(crate) fn is_contended(&self, table: TableId, key: &[u8]) -> bool {
        let mut contended = self.contended.borrow_mut();
        if contended.is_empty() {
            return false;
        }
        let name = (table, key.into());
        match contended.get(&name) {
            Some(until) if *until > runtime::now() => true,
            Some(_) => {
                contended.remove(&name);
                false
            }
            None => false,
        }
    }
}

/// A turn in a queue; dropping it ends the turn.
#[expect(dead_code, reason = "they are kept for what dropping them does")]
pub(crate) enum QueueTurn {
    Here(Turn),
    There(Ending),
}

/// Notifies the queue's shard, when dropped, that the turn has ended.
pub(crate) struct Ending {
    context: Rc<Context>,
    view: Arc<ClusterView>,
    queue: Replica,
    number: u64,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let (queue, number) = (self.queue, self.number);
        if queue.node == self.view.me {
            // No task waits for the result.
            drop(runtime::submit_to(ShardId(u32::from(queue.shard)), move || {
                Coordinator::local().cas.end_turn(number)
            }));
        } else if let (Some(rpc), Some(peer)) = (&self.context.rpc, self.view.peer(queue.node)) {
            let body = number.to_le_bytes().to_vec();
            // One that is lost ends with its lease.
            let _ = rpc.send(&peer, u32::from(queue.shard), Verb::EndTurn as u16, body, LEASE);
        }
    }
}

impl Cas {
    /// Waits for a turn in the queue of a partition, which this replica has. None: the queue cannot be reached, or not
    /// in time.
    pub(crate) async fn take_turn(
        &self,
        view: &Arc<ClusterView>,
        queue: Replica,
        (table, key): (TableId, &[u8]),
        until: Instant,
    ) -> Option<QueueTurn> {
        let shard = ShardId(u32::from(queue.shard));
        let number = if queue.node != view.me {
            let mut body = table.0.as_bytes().to_vec();
            body.extend_from_slice(key);
            let answer = self.context.call(view, queue, Verb::TakeTurn, body, until).await.ok()?;
            u64::from_le_bytes(answer.try_into().ok()?)
        } else if shard == self.context.shard.id() {
            let turn = runtime::timeout_at(until, self.contention.queues.take(table, key)).await;
            return turn.ok().map(QueueTurn::Here);
        } else {
            let key = key.to_vec();
            let given = runtime::submit_async_to(shard, move || async move {
                Coordinator::local().cas.give_turn(table, &key).await
            });
            runtime::timeout_at(until, given).await.ok()?
        };
        Some(QueueTurn::There(Ending {
            context: Rc::clone(&self.context),
            view: Arc::clone(view),
            queue,
            number,
        }))
    }

    /// Gives another node its turn in a queue of this shard, after all turns before it.
    async fn give_turn(self: &Rc<Self>, table: TableId, key: &[u8]) -> u64 {
        let turn = self.contention.queues.take(table, key).await;
        let number = self.contention.last_number.get() + 1;
        self.contention.last_number.set(number);
        let ended = Rc::new(Notify::new());
        let is_over = runtime::timeout(LEASE, ended.notified());
        self.contention.given.borrow_mut().insert(number, ended);
        let cas = Rc::clone(self);
        spawn(async move {
            let _ = is_over.await;
            cas.contention.given.borrow_mut().remove(&number);
            drop(turn);
        });
        number
    }

    fn end_turn(&self, number: u64) {
        let ended = self.contention.given.borrow_mut().remove(&number);
        if let Some(ended) = ended {
            ended.notify_all();
        }
    }

    /// The answer to TAKETURN.
    pub(crate) async fn answer_take_turn(body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let (table, key) = body
            .split_first_chunk()
            .ok_or(Malformed("a table id and a partition key"))?;
        let table = TableId(Uuid::from_bytes(*table));
        let number = Coordinator::local().cas.give_turn(table, key).await;
        Ok(number.to_le_bytes().to_vec())
    }

    /// What ENDTURN asks for.
    pub(crate) fn answer_end_turn(body: &[u8]) {
        if let Ok(number) = body.try_into() {
            Coordinator::local().cas.end_turn(u64::from_le_bytes(number));
        }
    }
}
