//! What a shard's CQL server counts. Written on the request path, so a count costs an addition to memory that is in the
//! cache. The clock is read for one socket read in [`SAMPLE_EVERY`] only, which then counts for all of them.

use std::cell::Cell;

use cql_protocol::ErrorCode;
use stdx::latencies::Latencies;

/// One socket read in so many is timed.
pub(crate) const SAMPLE_EVERY: u64 = 16;
/// Of so many requests that were not answered at once it is found whether they came to an owner; a prime, so that no
/// pattern of clients hides from it.
pub(crate) const OWNER_EVERY: u64 = 7;

/// What a shard's CQL server counts.
#[derive(Default, Debug)]
pub struct Counts {
    /// Statements that came as text.
    pub queries: Cell<u64>,
    /// Prepared statements.
    pub executes: Cell<u64>,
    /// Statements that were prepared.
    pub prepares: Cell<u64>,
    /// BATCH messages.
    pub batches: Cell<u64>,
    /// Statements on one partition that were answered in the call that brought them.
    pub at_once: Cell<u64>,
    /// Statements on one partition that came to a shard that has it.
    pub owned: Cell<u64>,
    /// Statements on one partition that came to another shard of a node that has it.
    pub owned_by_node: Cell<u64>,
    /// Statements on one partition that came to a node that does not have it.
    pub foreign: Cell<u64>,
    /// Reads. Those that did not wait for a disk, a shard or a node are sampled; see the module.
    pub reads: Latencies,
    /// Writes and batches, sampled likewise.
    pub writes: Latencies,
    /// Conditional statements and serial reads.
    pub conditional: Latencies,
    /// Reads of more than one partition.
    pub ranges: Latencies,
    /// ERROR responses, by the place of their code in [`ErrorCode::ALL`].
    errors: [Cell<u64>; ErrorCode::ALL.len()],
    /// Socket reads, to know which to time.
    pub(crate) socket_reads: Cell<u64>,
    /// Requests that were not answered at once, to know of which to find the owner.
    pub(crate) later: Cell<u64>,
}

impl Counts {
    /// ERROR responses by code.
    pub fn errors(&self) -> impl Iterator<Item = (ErrorCode, u64)> + '_ {
        ErrorCode::ALL.into_iter().zip(self.errors.iter().map(Cell::get))
    }

    /// Counts an ERROR response.
    #[cold]
    pub(crate) fn count_error(&self, code: ErrorCode) {
        if let Some(place) = ErrorCode::ALL.iter().position(|known| *known == code) {
            increment(&self.errors[place]);
        }
    }
}

#[inline]
pub(crate) fn increment(count: &Cell<u64>) {
    count.set(count.get() + 1);
}
