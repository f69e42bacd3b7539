//! What a shard counts of its repairs, and those in which it takes part.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;

use replica::{RepairedRange, Shard};
use runtime::Semaphore;

use crate::marking::IncrementalMode;
use crate::message::RepairId;
use crate::request::{Left, OnRequest, RepairRequest};
use crate::serve::{SERVING_MAX, Session};

/// Closed repairs that are remembered, so that a late request to open one does not open it again.
const CLOSED_KEPT: usize = 64;

/// What a shard did since its start, and does now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RepairMetrics {
    /// Rows and deletions that this shard hashed for its own repairs.
    pub compared_rows: u64,
    /// Rows and deletions that a replica lacked, for each replica.
    pub differing_rows: u64,
    /// Bytes of rows that this shard read to hash them, for its own repairs and for others.
    pub read_bytes: u64,
    /// Bytes of sstables that incremental repairs left unread here, because they are marked.
    pub skipped_bytes: u64,
    /// Sstables that were marked as repaired.
    pub marked_sstables: u64,
    /// Bytes of requests and answers sent to other nodes.
    pub sent_bytes: u64,
    /// Bytes of requests and answers received from other nodes.
    pub received_bytes: u64,
    /// Repairs of this shard that run.
    pub running: u64,
    /// Repairs of other shards in which this one takes part.
    pub serving: u64,
    /// Repairs of this shard that ended with an error.
    pub failed: u64,
    /// Repairs of other shards that ended with an error here.
    pub failed_serving: u64,
}

/// The repairs of a shard.
pub(crate) struct Repairs {
    pub(crate) metrics: Cell<RepairMetrics>,
    pub(crate) sessions: RefCell<BTreeMap<RepairId, Rc<Session>>>,
    closed: RefCell<VecDeque<RepairId>>,
    /// Requests that are worked on.
    pub(crate) serving: Semaphore,
    /// Called with ranges that are equal.
    on_equal: RefCell<Option<OnEqual>>,
    /// Repairs what an operator of another node requests.
    on_request: RefCell<Option<OnRequest>>,
}

/// Called with ranges whose replicas are all equal, and how they were repaired.
pub type OnEqual = Box<dyn Fn(RepairedRange, IncrementalMode)>;

impl Repairs {
    /// Those of this shard.
    pub(crate) fn local() -> Rc<Self> {
        runtime::local().unwrap_or_else(|| {
            let repairs = Rc::new(Self {
                metrics: Cell::default(),
                sessions: RefCell::default(),
                closed: RefCell::default(),
                serving: Semaphore::new(SERVING_MAX),
                on_equal: RefCell::default(),
                on_request: RefCell::default(),
            });
            runtime::set_local(Rc::clone(&repairs));
            repairs
        })
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut RepairMetrics)) {
        let mut metrics = self.metrics.get();
        change(&mut metrics);
        self.metrics.set(metrics);
    }

    /// All replicas of a range are equal: this shard forgets tombstones by it.
    pub(crate) fn note_equal(&self, equal: RepairedRange, mode: IncrementalMode) {
        if let Some(shard) = runtime::local::<Shard>() {
            shard.note_repaired(&equal);
        }
        if let Some(tell) = &*self.on_equal.borrow() {
            tell(equal, mode);
        }
    }

    /// What is left of a repair request; None before [`on_request`].
    pub(crate) fn wanted(&self, wanted: RepairRequest) -> Option<Pin<Box<dyn Future<Output = Left>>>> {
        self.on_request.borrow().as_ref().map(|ask| ask(wanted))
    }

    pub(crate) fn note_closed(&self, id: RepairId) {
        let mut closed = self.closed.borrow_mut();
        closed.push_back(id);
        if closed.len() > CLOSED_KEPT {
            closed.pop_front();
        }
    }

    pub(crate) fn is_closed(&self, id: RepairId) -> bool {
        self.closed.borrow().contains(&id)
    }
}

/// Calls `tell` with each range of this shard whose replicas are all equal, by this shard's repairs or by others'.
pub fn on_equal(tell: OnEqual) {
    *Repairs::local().on_equal.borrow_mut() = Some(tell);
}

/// Makes `ask` repair what operators request of this node. Call this on shard 0.
pub fn on_request(ask: OnRequest) {
    *Repairs::local().on_request.borrow_mut() = Some(ask);
}

/// What this shard did.
#[must_use]
pub fn metrics() -> RepairMetrics {
    Repairs::local().metrics.get()
}
