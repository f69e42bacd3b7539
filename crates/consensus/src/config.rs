//! What a member is given by its caller: how to send, what to apply the log to, and how to run.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

/// Bytes of a command. A frame between nodes has 16 MiB; what surrounds a command in an append must fit in too.
pub(crate) const COMMAND_BYTES_MAX: usize = (16 << 20) - (64 << 10);

/// Carries messages to other members. It may lose, delay, repeat and reorder them; it must not change them, and must
/// give the receiver the true sender.
pub trait Transport {
    /// Sends, and does not wait.
    fn send(&self, to: u64, message: Vec<u8>);
}

/// What the commands act on. All members have the same; at bootstrap their snapshots must be equal.
pub trait StateMachine {
    /// The index up to which the machine keeps by itself, durably, what was applied; 0 if it keeps nothing. Commands up
    /// to it are not applied again at start, and older snapshots not restored.
    fn applied(&self) -> u64 {
        0
    }

    /// Applies the command at an index of the log. Indexes grow and have gaps.
    fn apply<'a>(&'a self, index: u64, command: &'a [u8]) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

    /// All that was applied, as bytes. Not called while something is being applied.
    fn snapshot(&self) -> Vec<u8>;

    /// Whether a command that a peer sent can be read. One that cannot is refused before it is in the log, for it would
    /// end every member.
    ///
    /// # Errors
    /// Why not.
    fn check_command(&self, command: &[u8]) -> Result<(), String> {
        let _ = command;
        Ok(())
    }

    /// Whether a snapshot that a peer sent, of the state at an index, can be restored.
    ///
    /// # Errors
    /// Why not.
    fn check_snapshot(&self, index: u64, snapshot: &[u8]) -> Result<(), String> {
        let _ = (index, snapshot);
        Ok(())
    }

    /// Replaces everything by a snapshot of the state at an index.
    fn restore<'a>(&'a self, index: u64, snapshot: &'a [u8]) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}

/// How a member runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of its file; made if it is not there.
    pub dir: PathBuf,
    /// Which group: the same on all members, and different from other clusters'.
    pub group: u64,
    /// This member's Raft id, not 0.
    pub id: u64,
    /// Length of a tick.
    pub tick: Duration,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: usize,
    /// Ticks without a leader before an election, at least; at most twice as many.
    pub election_ticks: usize,
    /// Ticks after which a snapshot that was sent and not acknowledged counts as lost.
    pub snapshot_ticks: u64,
    /// The file is rewritten with a snapshot when it has grown by this, and by as much as the last snapshot had.
    pub log_bytes_max: u64,
    /// Entries before a snapshot that are kept for members that lag a little.
    pub entries_kept: u64,
    /// The part that it takes until [`crate::Consensus::take_part`] says another.
    pub part: Part,
}

impl Options {
    /// The usual figures: elections after one to two seconds.
    #[must_use]
    pub fn new(dir: PathBuf, group: u64, id: u64) -> Self {
        Self {
            dir,
            group,
            id,
            tick: Duration::from_millis(50),
            heartbeat_ticks: 2,
            election_ticks: 20,
            snapshot_ticks: 200,
            log_bytes_max: 4 << 20,
            entries_kept: 256,
            part: Part::Full,
        }
    }
}

/// What part a member takes in its group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Part {
    /// It votes, acknowledges and proposes.
    #[default]
    Full,
    /// It is silent, as if it were cut off. Proposals and reads wait.
    Silent,
    /// It is silent, and refuses proposals and reads. The sentence says why.
    Withdrawn(String),
}

/// How a member without a file begins. A member with a file continues from it and ignores this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// A new group with these voters, this one among them. All of them must say the same.
    Voters(Vec<u64>),
    /// A member of a group that exists: it waits until the group adds it.
    Joining,
}
