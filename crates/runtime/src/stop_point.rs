//! Points in the program at which a simulated machine can be made to crash or to pause: windows that are too narrow for
//! chance.
//!
//! A place that leaves something half done calls [`stop_point`] there. In builds without debug assertions that is
//! nothing; in others it asks the simulation, if there is one, whether a test wants the process to stop here
//! ([`crate::sim::Simulation::stop_at`]).

/// A place where something is half done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StopPoint {
    /// A memtable is frozen, and its sstables do not exist yet.
    FlushFrozen,
    /// The sstables of a flush are sealed, and no reader knows them yet.
    FlushSealed,
    /// A logged batch is noted by all its holders, and nothing of it is written.
    BatchNoted,
    /// A logged batch is written, and its notes are not ended.
    BatchWritten,
    /// An acceptor's note is in the log, which is not synced.
    AcceptorNoted,
    /// A replica has applied what was decided, and has not noted that.
    DecisionApplied,
    /// A majority has accepted a proposal, and the decision is sent to no replica yet, nor to the client.
    ProposalAccepted,
    /// A replica has truncated a table, and has not answered.
    Truncated,
    /// The parts of an sstable are sealed, and it is still one of the table's.
    SstableCut,
    /// A tablet that leaves its shard is flushed, and the log does not say so for certain.
    TabletFlushed,
    /// All data of a tablet that leaves its shard is sealed, and no shard has opened it.
    TabletSealed,
    /// Tablets that are cut otherwise are open, and what they have of others in memory is not in files.
    TabletsCut,
}

impl StopPoint {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::FlushFrozen,
        Self::FlushSealed,
        Self::BatchNoted,
        Self::BatchWritten,
        Self::AcceptorNoted,
        Self::DecisionApplied,
        Self::ProposalAccepted,
        Self::Truncated,
        Self::SstableCut,
        Self::TabletFlushed,
        Self::TabletSealed,
        Self::TabletsCut,
    ];
}

/// The process is at this point. A simulated one may stop here.
#[inline]
pub fn stop_point(point: StopPoint) {
    if cfg!(debug_assertions) && crate::sim::world::is_simulated() {
        crate::sim::faults::reach(point);
    }
}
