//! Kinds of tasks, what a task begins with, and its status.

use uuid::Uuid;

use crate::class::Class;
use crate::task::Parent;

/// Tasks of similar purpose, as tools list them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Module {
    /// Merging and rewriting sstables.
    Compaction,
    /// Writing memtables.
    Flush,
    /// Removing what a table holds.
    Truncation,
    /// Looking into damaged sstables.
    Quarantine,
    /// Keeping sstables under a name.
    Snapshot,
    /// Operations of the cluster: nodes that join or leave, replications that change.
    NodeOps,
    /// Moving tablets.
    Tablets,
    /// Copying sstables between nodes.
    Streaming,
    /// Making replicas equal.
    Repair,
}

impl Module {
    /// All of them, by name.
    pub const ALL: [Self; 9] = [
        Self::Compaction,
        Self::Flush,
        Self::NodeOps,
        Self::Quarantine,
        Self::Repair,
        Self::Snapshot,
        Self::Streaming,
        Self::Tablets,
        Self::Truncation,
    ];

    /// In the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compaction => "compaction",
            Self::Flush => "flush",
            Self::Truncation => "truncation",
            Self::Quarantine => "quarantine",
            Self::Snapshot => "snapshot",
            Self::NodeOps => "node_ops",
            Self::Tablets => "tablets",
            Self::Streaming => "streaming",
            Self::Repair => "repair",
        }
    }

    /// The module of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name() == name)
    }
}

/// What a task does. A constant of the crate whose work it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// As tools print it, and as the thread of its job is called.
    pub name: &'static str,
    /// Where tools list it.
    pub module: Module,
    /// What limits it.
    pub class: Class,
    /// What its progress is counted in. Units of a task count for its parent where both have the same.
    pub units: &'static str,
    /// Whether it can be stopped without harm.
    pub is_abortable: bool,
}

/// What a task begins with.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What it does.
    pub kind: &'static Kind,
    /// Which part of the operation it is: `node`, `table`, `shard`, `tablet`.
    pub scope: &'static str,
    /// On which keyspace; empty for none or many.
    pub keyspace: String,
    /// On which table; empty for none or many.
    pub table: String,
    /// What else identifies it, such as a snapshot's name.
    pub entity: String,
    /// On which shard; None for several.
    pub shard: Option<u32>,
    /// How many units there are to do, as far as that is known.
    pub total: u64,
}

impl Spec {
    /// A task of the whole node.
    #[must_use]
    pub fn of(kind: &'static Kind) -> Self {
        Self {
            kind,
            scope: "node",
            keyspace: String::new(),
            table: String::new(),
            entity: String::new(),
            shard: None,
            total: 0,
        }
    }
}

/// What requested a task.
#[derive(Clone, Debug)]
pub enum Origin {
    /// An operator asked for it.
    Operator,
    /// The node itself.
    Node,
    /// It is a part of another task.
    Parent(Parent),
}

/// Where a task is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It waits for a worker.
    Created,
    /// It runs.
    Running,
    /// It ended well.
    Done,
    /// It ended with an error.
    Failed,
}

impl State {
    /// In the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// A task at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its identity: a time-based UUID, by the time of its creation.
    pub id: Uuid,
    /// What it does.
    pub kind: &'static Kind,
    /// Which part of the operation it is.
    pub scope: &'static str,
    /// On which keyspace.
    pub keyspace: String,
    /// On which table.
    pub table: String,
    /// What else identifies it.
    pub entity: String,
    /// On which shard.
    pub shard: Option<u32>,
    /// Where it is.
    pub state: State,
    /// Whether it has a parent, or no operator asked for it.
    pub is_internal: bool,
    /// Whether it can be aborted.
    pub is_abortable: bool,
    /// Counts the trees of its module.
    pub sequence_number: u64,
    /// By the wall clock.
    pub created_us: i64,
    /// By the wall clock; 0 while it has not begun.
    pub started_us: i64,
    /// By the wall clock; 0 while it has not ended.
    pub ended_us: i64,
    /// Why it failed.
    pub error: String,
    /// Why it makes no progress at the moment; empty if it makes some, and once it has ended.
    pub waits: String,
    /// The task that it is a part of.
    pub parent: Option<Uuid>,
    /// The tasks that are parts of it, those that are kept.
    pub children: Vec<Uuid>,
    /// Units to do; 0 when the number is not known.
    pub total: u64,
    /// Units done, at most the total where that is known.
    pub completed: u64,
}

impl Status {
    /// How much of it is done, in percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        match (self.state, self.total) {
            (State::Done, _) => 100,
            (_, 0) => 0,
            (_, total) => u64::try_from(u128::from(self.completed) * 100 / u128::from(total)).unwrap_or(100),
        }
    }
}
