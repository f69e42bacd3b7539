//! What a shard counts of its streams, and the sessions that it serves.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use runtime::Semaphore;

use crate::message::StreamId;
use crate::pace::Pace;
use crate::source::{SERVING_BYTES_MAX, Session};

/// Closed streams that are remembered, so that a late request to open one does not open it again.
const CLOSED_KEPT: usize = 64;

/// What a shard did since its start, and does now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StreamMetrics {
    /// Bytes of files sent to other nodes.
    pub sent_bytes: u64,
    /// Bytes of files received from other nodes.
    pub received_bytes: u64,
    /// Files of which the last byte was sent.
    pub sent_files: u64,
    /// Files received whole.
    pub received_files: u64,
    /// Sstables of other nodes that became part of a table here.
    pub adopted_sstables: u64,
    /// Streams from this shard that are open.
    pub serving: u64,
    /// Streams to this shard that run.
    pub pulling: u64,
    /// Streams from this shard that ended with an error.
    pub failed_serving: u64,
    /// Streams to this shard that ended with an error.
    pub failed_pulling: u64,
}

/// The streams of a shard.
pub(crate) struct Streams {
    pub(crate) metrics: Cell<StreamMetrics>,
    pub(crate) sessions: RefCell<BTreeMap<StreamId, Rc<Session>>>,
    pub(crate) closed: RefCell<VecDeque<StreamId>>,
    /// Bytes that are being read for other nodes.
    pub(crate) serving_bytes: Semaphore,
    /// Of all streams, to and from this shard.
    pub(crate) pace: Pace,
}

impl Streams {
    /// Those of this shard.
    pub(crate) fn local() -> Rc<Self> {
        runtime::local().unwrap_or_else(|| {
            let streams = Rc::new(Self {
                metrics: Cell::default(),
                sessions: RefCell::default(),
                closed: RefCell::default(),
                serving_bytes: Semaphore::new(SERVING_BYTES_MAX),
                pace: Pace::default(),
            });
            runtime::set_local(Rc::clone(&streams));
            streams
        })
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut StreamMetrics)) {
        let mut metrics = self.metrics.get();
        change(&mut metrics);
        self.metrics.set(metrics);
    }

    pub(crate) fn note_closed(&self, stream: StreamId) {
        let mut closed = self.closed.borrow_mut();
        closed.push_back(stream);
        if closed.len() > CLOSED_KEPT {
            closed.pop_front();
        }
    }
}

/// What this shard did.
#[must_use]
pub fn metrics() -> StreamMetrics {
    Streams::local().metrics.get()
}
