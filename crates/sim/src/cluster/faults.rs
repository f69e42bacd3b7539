//! What can strike the nodes of a cluster.

/// What strikes nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ClusterFaults {
    /// A process is killed, between two steps or in a file operation.
    pub kills: bool,
    /// A machine loses power.
    pub power_losses: bool,
    /// All machines lose power at once.
    pub blackouts: bool,
    /// A node is terminated, and starts again.
    pub restarts: bool,
    /// A node is cut off from the others, in one direction or both.
    pub splits: bool,
    /// The network of a node is slow, or loses segments.
    pub bad_links: bool,
    /// The clock of a node is wrong.
    pub wrong_clocks: bool,
    /// The disk of a node is slow.
    pub slow_disks: bool,
    /// The disk of a node is full.
    pub full_disks: bool,
    /// A file operation of a node fails.
    pub failing_operations: bool,
    /// The latencies of a node's connections change all the time, so that what goes over one overtakes what goes over
    /// another.
    pub reorders: bool,
    /// A node stops and starts again with another number of shards.
    pub reshards: bool,
    /// A datacenter, or where there is one only some of the nodes, is cut off from the rest.
    pub wide_splits: bool,
    /// From the beginning to the end some requests between nodes arrive twice, and some after those that were sent
    /// after them. That explains no error.
    pub disturbed_messages: bool,
    /// A sync fails once; the kernel drops the bytes, or keeps them as clean or as dirty.
    pub failed_syncs: bool,
    /// All operations of a disk fail for some time, or those that write.
    pub broken_disks: bool,
    /// A write fails half way.
    pub torn_writes: bool,
    /// A read returns a changed bit, once.
    pub damaged_reads: bool,
    /// A bit of an sstable changes permanently.
    pub bit_rot: bool,
    /// A process is paused for some seconds.
    pub pauses: bool,
    /// The clock of a node jumps, and stays where it is.
    pub clock_jumps: bool,
    /// A process is killed, loses power, or is paused at a stop point.
    pub stop_points: bool,
    /// Tablets of a node move between its shards. That explains no error.
    pub moves: bool,
    /// A node is decommissioned, where others can hold what it has; else a new one joins, so that a later one can
    /// leave.
    pub leaves: bool,
    /// A machine is permanently gone, with its disk; a new node takes its place, or it is removed.
    pub replacements: bool,
    /// The keyspaces get another number of copies.
    pub replications: bool,
    /// The keyspaces go from the token ring to tablets, or back. That explains no error.
    pub kinds: bool,
    /// A keyspace is repaired.
    pub repairs: bool,
    /// A node is down for longer than the tables' grace, which the workload must say ([`super::Workload::grace`]).
    /// Hints for it expire before it is back.
    pub outages: bool,
}

impl ClusterFaults {
    /// Nothing.
    pub const NONE: Self = Self {
        kills: false,
        power_losses: false,
        blackouts: false,
        restarts: false,
        splits: false,
        bad_links: false,
        wrong_clocks: false,
        slow_disks: false,
        full_disks: false,
        failing_operations: false,
        reorders: false,
        reshards: false,
        wide_splits: false,
        disturbed_messages: false,
        failed_syncs: false,
        broken_disks: false,
        torn_writes: false,
        damaged_reads: false,
        bit_rot: false,
        pauses: false,
        clock_jumps: false,
        stop_points: false,
        moves: false,
        leaves: false,
        replacements: false,
        replications: false,
        kinds: false,
        repairs: false,
        outages: false,
    };

    /// Everything that an operator does while the cluster works.
    pub const ELASTIC: Self = Self {
        leaves: true,
        replacements: true,
        replications: true,
        kinds: true,
        repairs: true,
        ..Self::NONE
    };

    /// All that a node in batch mode must survive. Not bit rot, which no node heals by itself, not what operators do,
    /// see [`Self::ELASTIC`], and not outages, which need tables with a short grace.
    pub const ALL: Self = Self {
        kills: true,
        power_losses: true,
        blackouts: true,
        restarts: true,
        splits: true,
        bad_links: true,
        wrong_clocks: true,
        slow_disks: true,
        full_disks: true,
        failing_operations: true,
        reorders: true,
        reshards: true,
        wide_splits: true,
        disturbed_messages: true,
        failed_syncs: true,
        broken_disks: true,
        torn_writes: true,
        damaged_reads: true,
        bit_rot: false,
        pauses: true,
        clock_jumps: true,
        stop_points: true,
        moves: true,
        leaves: false,
        replacements: false,
        replications: false,
        kinds: false,
        repairs: false,
        outages: false,
    };

    /// These faults, with everything that an operator does.
    #[must_use]
    pub fn with_elastic(self) -> Self {
        Self {
            leaves: true,
            replacements: true,
            replications: true,
            kinds: true,
            repairs: true,
            ..self
        }
    }

    /// Whether an operator changes which nodes are members or have copies, or repairs.
    #[must_use]
    pub fn is_elastic(self) -> bool {
        self.leaves || self.replacements || self.replications || self.kinds || self.repairs
    }

    /// Whether they may lose what a node kept for another: a hint is noted when a replica does not answer, and is not
    /// synced.
    pub(crate) fn may_lose_hints(self) -> bool {
        self.kills
            || self.power_losses
            || self.blackouts
            || self.restarts
            || self.reshards
            || self.full_disks
            || self.failing_operations
            || self.failed_syncs
            || self.broken_disks
            || self.torn_writes
            || self.damaged_reads
            || self.bit_rot
            || self.stop_points
            || self.outages
    }

    pub(crate) fn list(self) -> Vec<Fault> {
        let all = [
            (self.kills, Fault::Kill),
            (self.power_losses, Fault::PowerLoss),
            (self.blackouts, Fault::Blackout),
            (self.restarts, Fault::Restart),
            (self.splits, Fault::Split),
            (self.bad_links, Fault::BadLink),
            (self.wrong_clocks, Fault::WrongClock),
            (self.slow_disks, Fault::SlowDisk),
            (self.full_disks, Fault::FullDisk),
            (self.failing_operations, Fault::FailingOperation),
            (self.reorders, Fault::Reorder),
            (self.reshards, Fault::Reshard),
            (self.wide_splits, Fault::WideSplit),
            (self.failed_syncs, Fault::FailedSync),
            (self.broken_disks, Fault::BrokenDisk),
            (self.torn_writes, Fault::TornWrite),
            (self.damaged_reads, Fault::DamagedRead),
            (self.bit_rot, Fault::BitRot),
            (self.pauses, Fault::Pause),
            (self.clock_jumps, Fault::ClockJump),
            (self.stop_points, Fault::StopPoint),
            (self.moves, Fault::Move),
            (self.leaves, Fault::Leave),
            (self.replacements, Fault::Replacement),
            (self.replications, Fault::Replication),
            (self.repairs, Fault::Repair),
            (self.kinds, Fault::Kind),
            (self.outages, Fault::Outage),
        ];
        all.iter()
            .filter(|(is_on, _)| *is_on)
            .map(|(_, fault)| *fault)
            .collect()
    }
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Kill,
    PowerLoss,
    Blackout,
    Restart,
    Split,
    BadLink,
    WrongClock,
    SlowDisk,
    FullDisk,
    FailingOperation,
    Reorder,
    Reshard,
    WideSplit,
    FailedSync,
    BrokenDisk,
    TornWrite,
    DamagedRead,
    BitRot,
    Pause,
    ClockJump,
    StopPoint,
    Move,
    Leave,
    Replacement,
    Replication,
    Repair,
    Kind,
    Outage,
}

/// The names of the faults, in the order in which a report counts them.
pub const FAULTS: [&str; 28] = [
    "kill",
    "power loss",
    "blackout",
    "restart",
    "split",
    "bad link",
    "wrong clock",
    "slow disk",
    "full disk",
    "failing operation",
    "reorder",
    "reshard",
    "wide split",
    "failed sync",
    "broken disk",
    "torn write",
    "damaged read",
    "bit rot",
    "pause",
    "clock jump",
    "stop point",
    "move",
    "leave",
    "replacement",
    "replication",
    "repair",
    "kind",
    "outage",
];
