//! Bugs that tests plant, to show that they would be found.
//!
//! A place that keeps a promise asks [`is_planted`] for the bug that would break it. In builds without debug assertions
//! the answer is no, at no cost. Else a thread may have one bug planted at a time, which is how the simulator, all of
//! whose machines are in one thread, plants it for one run.

/// A promise that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A request is answered when one replica has answered, whatever its level wants.
    SkippedQuorum,
    /// The data of the nearest replica is the result, whatever the digests of the others say.
    IgnoredDigest,
    /// A replica accepts proposals before its log is synced.
    UnsyncedAcceptance,
    /// A replica that starts again forgets what it promised in memory alone.
    ForgottenPromise,
    /// A replica accepts any proposal, whatever it has promised.
    AcceptedWithoutPromise,
    /// A leader of conditional statements decides without finishing what others have begun.
    IgnoredProposal,
    /// A write that a replica missed is not kept for it.
    DroppedHint,
    /// A row is deleted because one copy of it says that it has expired.
    UnconfirmedExpiry,
    /// A logged batch is written without being noted anywhere.
    BatchWithoutNote,
    /// The log of the metadata is not synced.
    UnsyncedMetadata,
    /// A request that must not be repeated is handled each time that it arrives.
    RepeatedRequest,
    /// A request runs whenever it arrives, however long ago its caller gave up.
    LateRequestRuns,
    /// A request whose answer was lost counts as not done, so an addition is asked of another leader.
    LostAnswer,
    /// An acceptor notes a proposal as learned before the mutation is durable, and a leader that taught replicas of its
    /// quorum decides on what it read before: each alone does no harm while the other is right.
    UnsyncedNote,
    /// A leader that read at several moments does not ask whether the promises of its ballot still hold.
    NoConfirm,
    /// A shard that is the only replica of a partition decides alone though its acceptor has promised something to
    /// another leader.
    UnheededAcceptor,
    /// Replicas take requests that were routed by a version of the cluster from before the fence, or before a
    /// truncation of their table.
    IgnoredFence,
    /// A logged batch that is finished after a truncation brings back its part of the table.
    BatchOutlivesTruncation,
    /// A truncation leaves the proposals of conditional statements with their acceptors.
    TruncationForgetsNoProposal,
    /// Tombstones are purged while a proposal from before them may still be finished.
    EarlyPurge,
    /// A hint that its target refuses permanently waits until it expires, and delays the hints after it.
    RejectedHintWaits,
    /// A logged batch is open until its own level is met, and keeps the log segments since its note.
    BatchPinsLog,
    /// Tombstones are purged at the end of the grace period, whatever a replica may have missed.
    ForgottenMiss,
    /// A table continues without a damaged sstable as if nothing were missing.
    DamagedFileIgnored,
    /// Digests do not say what is deleted.
    DigestWithoutTombstones,
    /// A node follows its wall clock wherever it jumps.
    UntrustedClock,
    /// Nodes whose log refuses writes are sent writes as if they took them.
    UnheededLog,
    /// What a peer sends reaches the library of the metadata group unchecked.
    UncheckedPeer,
    /// A member of the metadata group takes messages of another recovery of its group.
    IgnoredEpochNonce,
    /// A node does not compare its metadata's history with that of others.
    UncomparedHistory,
    /// A node starts from an older directory than it ran from last.
    UncheckedRun,
    /// A node starts with a directory that is not the one that it ran with.
    UncheckedDirectory,
    /// A read returns before the replicas that it repairs have what it returns.
    UnawaitedRepair,
    /// A leader of conditional statements decides before those that have promised have learned what was chosen last.
    SkippedTeach,
    /// A write is acknowledged in batch mode before the log is synced.
    UnsyncedWrite,
    /// The answer of one replica counts as that of two.
    CountedTwice,
    /// The log notes that a memtable is in an sstable before it is.
    EarlyDiscard,
    /// A tablet that inherited the writes of several tablets reports to the log that all of them are in sstables when a
    /// part is.
    HeirDiscardsAll,
    /// The flush of what was written before a long write reports to the log that the long write is in an sstable too.
    FlushedWithWhatWasBefore,
    /// A batch that one replica alone had is written again without a note when a tablet of it has moved.
    BatchAgainWithoutNote,
    /// The end of a logged batch is noted before the batch is written.
    EarlyBatchEnd,
    /// A tablet moves to another shard without what is in the memory of the one that had it.
    UnflushedMove,
    /// A hint is acknowledged, and forgotten by its sender, before it is durable on its target.
    UnsyncedHint,
    /// The watermark up to which all replicas are known to be equal is too high.
    EarlyWatermark,
    /// A node that was down hands over hints that the cluster has given up.
    ForgottenHintReplayed,
    /// Tombstones of a tablet are purged while older data of it is on its way from another node.
    PurgedBeforeArrival,
    /// A repair does not compare range tombstones.
    UncomparedRanges,
    /// An incremental repair marks sstables though a replica has failed.
    MarkedUnrepaired,
    /// A repair that marks sstables compares what lives now, and takes what expired for deleted.
    InexactElements,
    /// A compaction of repaired sstables makes deletions of cells that have just expired.
    RepairedCellsExpire,
    /// A stage of a move counts as passed while members still write and read as before it.
    StagePassedEarly,
    /// A node says that it has copied what it has not.
    UncopiedRange,
    /// What a node has of a range from an earlier time stays when it gets the range again.
    KeptFormerRange,
    /// A cleanup does not wait until the token ring is at rest.
    CleansWhileRingMoves,
    /// A node that jumps over the end of one move of a tablet and the beginning of another keeps what it had of the
    /// tablet.
    KeepsTabletOverJump,
    /// An sstable that has tokens of both halves of a tablet that is split goes to one half alone.
    HalvedFile,
    /// A table is split or merged by what members said of its tablets before the last split or merge.
    StaleFigures,
    /// A write that arrives while a tablet is copied is sent only to the replicas that are read.
    UndoubledWrite,
    /// A replica that must have every acknowledged write copies one other replica.
    OneSource,
    /// A tablet that has too few replicas gets no other.
    ForgottenCopy,
    /// A write is born when its coordinator begins to send it, whatever its deletions say.
    LateBirth,
    /// A repair counts for all that was written before it began, whatever was on its way then.
    RepairOutrunsWrites,
    /// Where a tablet has one replica, nothing is waited for before tombstones are purged.
    NothingWaitsForOneCopy,
    /// Deletions have the second that their client names.
    ClientDatesDeletions,
    /// A row that a replica leaves out of what its index lists counts as one that it does not have.
    SilentRowIsAbsent,
    /// An index's file of an sstable lacks some of the rows.
    LostPosting,
    /// A transaction counts as committed when another request meets one of its locks, whatever its record says.
    CommittedWhenMet,
    /// A write of an item does not look whether a transaction has locked it.
    UnheededLock,
    /// A read of an item does not look whether the transaction that has locked it is committed.
    UnseenCommit,
    /// A read of several items at one moment reads them once.
    ReadTogetherOnce,
    /// A request does not look whether another one with its token was done.
    UnheededToken,
    /// An item that was found to have expired is deleted without another look.
    ExpiredUnseen,
    /// A transaction begins though others have given up on it, and have taken its locks away.
    BegunAfterAbort,
    /// A memtable does not list what overwrites a row.
    UnlistedOverwrite,
    /// An index file that is built for an sstable lacks the end of it.
    UnfinishedBuild,
    /// A row that an index lists is returned, whatever its newest value.
    StaleRowReturned,
    /// A compaction, and the copy of a tablet for another node, list rows in the file of an index by another column.
    MisplacedTerms,
    /// A memtable that has rows from before an index was created counts as one that lists them.
    UnscannedMemtable,
    /// What a lost node missed is forgotten with it, also if other nodes copied tablets from it.
    LostNodeTakesSpans,
    /// A hint reaches its target alone, whatever replicas its tablet has got since it was noted.
    HintSkipsAddedReplica,
    /// What a node missed ends at the coordinator's present, whatever the second of the deletion.
    SpanEndsBeforeDeletion,
    /// A leader finishes what was young enough when its statement began.
    ProposalLifeFromStatement,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 82] = [
        Self::SkippedQuorum,
        Self::IgnoredDigest,
        Self::UnsyncedAcceptance,
        Self::ForgottenPromise,
        Self::AcceptedWithoutPromise,
        Self::IgnoredProposal,
        Self::DroppedHint,
        Self::UnconfirmedExpiry,
        Self::BatchWithoutNote,
        Self::UnsyncedMetadata,
        Self::RepeatedRequest,
        Self::LateRequestRuns,
        Self::LostAnswer,
        Self::UnsyncedNote,
        Self::NoConfirm,
        Self::UnheededAcceptor,
        Self::IgnoredFence,
        Self::BatchOutlivesTruncation,
        Self::TruncationForgetsNoProposal,
        Self::EarlyPurge,
        Self::RejectedHintWaits,
        Self::BatchPinsLog,
        Self::ForgottenMiss,
        Self::DamagedFileIgnored,
        Self::DigestWithoutTombstones,
        Self::UntrustedClock,
        Self::UnheededLog,
        Self::UncheckedPeer,
        Self::IgnoredEpochNonce,
        Self::UncomparedHistory,
        Self::UncheckedRun,
        Self::UncheckedDirectory,
        Self::UnawaitedRepair,
        Self::SkippedTeach,
        Self::UnsyncedWrite,
        Self::CountedTwice,
        Self::EarlyDiscard,
        Self::HeirDiscardsAll,
        Self::FlushedWithWhatWasBefore,
        Self::BatchAgainWithoutNote,
        Self::EarlyBatchEnd,
        Self::UnflushedMove,
        Self::UnsyncedHint,
        Self::EarlyWatermark,
        Self::ForgottenHintReplayed,
        Self::PurgedBeforeArrival,
        Self::UncomparedRanges,
        Self::MarkedUnrepaired,
        Self::InexactElements,
        Self::RepairedCellsExpire,
        Self::StagePassedEarly,
        Self::UncopiedRange,
        Self::KeptFormerRange,
        Self::CleansWhileRingMoves,
        Self::KeepsTabletOverJump,
        Self::HalvedFile,
        Self::StaleFigures,
        Self::UndoubledWrite,
        Self::OneSource,
        Self::ForgottenCopy,
        Self::LateBirth,
        Self::RepairOutrunsWrites,
        Self::NothingWaitsForOneCopy,
        Self::ClientDatesDeletions,
        Self::SilentRowIsAbsent,
        Self::LostPosting,
        Self::CommittedWhenMet,
        Self::UnheededLock,
        Self::UnseenCommit,
        Self::ReadTogetherOnce,
        Self::UnheededToken,
        Self::ExpiredUnseen,
        Self::BegunAfterAbort,
        Self::UnlistedOverwrite,
        Self::UnfinishedBuild,
        Self::StaleRowReturned,
        Self::MisplacedTerms,
        Self::UnscannedMemtable,
        Self::LostNodeTakesSpans,
        Self::HintSkipsAddedReplica,
        Self::SpanEndsBeforeDeletion,
        Self::ProposalLifeFromStatement,
    ];
}

#[cfg(debug_assertions)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this bug is planted in this thread.
#[inline]
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    #[cfg(debug_assertions)]
    {
        PLANTED.get() == Some(bug)
    }
    #[cfg(not(debug_assertions))]
    {
        let _ = bug;
        false
    }
}

/// Has a bug planted in this thread as long as it lives.
#[derive(Debug)]
pub struct Planted(());

impl Planted {
    /// Plants a bug; without debug assertions nothing.
    #[must_use]
    pub fn new(bug: Option<Bug>) -> Self {
        #[cfg(debug_assertions)]
        PLANTED.set(bug);
        #[cfg(not(debug_assertions))]
        let _ = bug;
        Self(())
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        PLANTED.set(None);
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_planted_as_long_as_its_guard_lives() {
        assert!(!is_planted(Bug::SkippedQuorum));
        let guard = Planted::new(Some(Bug::SkippedQuorum));
        assert!(is_planted(Bug::SkippedQuorum) && !is_planted(Bug::DroppedHint));
        drop(guard);
        assert!(!is_planted(Bug::SkippedQuorum));
    }
}
