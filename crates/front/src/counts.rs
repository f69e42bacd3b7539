//! What a shard counts of its clients' requests. Written on the request path, so a count costs an addition to memory
//! that is in the cache. The clock is read for one socket read in [`SAMPLE_EVERY`] only, which then counts for all of
//! them.

use std::cell::Cell;

use stdx::latencies::Latencies;

/// One socket read in so many is timed.
const SAMPLE_EVERY: u64 = 16;
/// One in so many requests that were not answered at once is checked for whether it reached an owner. A prime, so that
/// no pattern of clients hides from it.
pub const OWNER_EVERY: u64 = 7;

/// What a shard counts of its clients' requests.
#[derive(Default, Debug)]
pub struct Counts {
    /// Requests for one partition that were answered in the call that brought them.
    pub at_once: Cell<u64>,
    /// Requests for one partition that reached a shard that has it.
    pub owned: Cell<u64>,
    /// Requests for one partition that reached another shard of a node that has it.
    pub owned_by_node: Cell<u64>,
    /// Requests for one partition that reached a node that does not have it.
    pub foreign: Cell<u64>,
    /// Reads. Those that did not wait for a disk, a shard or a node are sampled; see the module.
    pub reads: Latencies,
    /// Writes and batches, sampled likewise.
    pub writes: Latencies,
    /// Conditional requests and serial reads.
    pub conditional: Latencies,
    /// Reads of more than one partition.
    pub ranges: Latencies,
    /// Socket reads, to know which to time.
    socket_reads: Cell<u64>,
    /// Requests that were not answered at once, to know of which to find the owner.
    later: Cell<u64>,
}

impl Counts {
    /// Counts requests of one socket read for one partition each that were answered at once. Returns for how many
    /// requests the time of that read counts, if it is to be measured.
    #[inline]
    pub fn note_at_once(&self, requests: u64) -> Option<u64> {
        self.owned.set(self.owned.get() + requests);
        self.at_once.set(self.at_once.get() + requests);
        let reads = self.socket_reads.get();
        self.socket_reads.set(reads + 1);
        reads.is_multiple_of(SAMPLE_EVERY).then_some(requests * SAMPLE_EVERY)
    }

    /// Counts a request that is not answered at once. Returns whether the caller has to find out if it reached an
    /// owner; the result then counts for [`OWNER_EVERY`] requests.
    #[inline]
    pub fn note_later(&self) -> bool {
        let number = self.later.get();
        self.later.set(number + 1);
        number.is_multiple_of(OWNER_EVERY)
    }
}

/// Adds one to a count.
#[inline]
pub fn increment(count: &Cell<u64>) {
    count.set(count.get() + 1);
}
