//! The coordinator: which replicas a request needs, and what results from their answers.
//!
//! Each shard has a [`Coordinator`]. It holds the shard's [`ClusterView`], an immutable value that says where every
//! table's tokens live, and its knowledge of which nodes are alive. A request that this node cannot answer alone
//! ([`Route::read_here`], [`Route::write_here`]) comes here: [`Coordinator::write`] sends mutations to all replicas and
//! waits for as many as the consistency level wants; a [`ReplicatedRead`] asks one replica for data and the others for
//! digests, and where they differ merges all, repairs and continues. A replica's side of both is [`service`], which the
//! same calls reach on another shard of this node.
//!
//! Invariants
//! - Whether a write may be acknowledged is decided by `topology::Acks` alone; which of two cells wins, by `mutation`
//!   alone.
//! - A request holds one view from beginning to end.
//! - What a read returns at a level has been written to as many replicas as the level wants before it is returned.
//! - A coordinator names no file.

#[cfg(test)]
extern crate self as coordinator;

mod batchlog;
mod cas;
mod counter;
mod error;
mod fence;
#[doc(hidden)]
pub mod fuzz;
mod handoff;
mod large;
mod message;
pub mod near;
mod own;
mod rate;
mod read;
pub mod service;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod tablet_version;
mod tombstones;
pub mod trace;
mod truncate;
mod verbs;
mod view;
mod virtual_tables;
mod write;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::{Addressed, Located};
use replica::Shard;
use rpc::{RemoteError, RemoteErrorKind, Rpc, RpcError};
use runtime::{Instant, Notify, ShardId};
use schema::TableId;
use stdx::planted::{self, Bug};
use stdx::probe::Answered;
use topology::{Consistency, Liveness, NodeNumber, Replica};

pub use self::cas::{CasRead, CasRequest, Decision, ReadResult, SERIAL_BYTES_MAX};
pub use batchlog::NOTE_SEGMENTS_MAX;
pub use cas::acceptor::{Promises, paxos_state_of};
pub use cas::turns::{Ended, PartitionTurns, Turn};
pub use commitlog::Logged;
pub use error::{CoordinatorError, Tally, WriteKind};
pub use fence::Stamp;
pub use message::{Answer, Extent, Malformed, ReadCommand, difference};
pub use near::spread::{Share, Spread};
pub use own::{
    LoadedRow, OwnPartition, OwnRead, OwnRow, OwnSource, OwnTable, TokenOwners, on_metadata_shard, on_shard,
};
pub use rate::{Admission, Operation};
pub use read::point::{Confirmation, PointRead, ReadDone};
pub use read::{ReplicatedRead, Stretch};
pub use replica::{InMemory, ReadOptions, RowBuffers, RowName, RowProjection};
pub use replica::{Measured, MeasuredRow, Recorded, Touched};
pub use tablet_version::VersionedTablet;
pub use tombstones::{AcceptedLoss, HeldTombstones};
pub use verbs::{ReplicaHandler, Verb};
pub use view::{ClusterView, Forgotten, Levels, NotAMember, Ring, Route};
pub use virtual_tables::register_system_tables;
pub use write::apply::{Origin, apply};
pub use write::commit::Unsynced;
pub use write::dated::{Dated, Deadline};
pub use write::{Atomicity, Mutations, WriteDone};

use message::{encode_mutations, mark_repair};
use read::latency::TableLatencies;
use service::ReplicaError;

/// How long requests wait for replicas.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A read of one partition.
    pub read: Duration,
    /// A read of many.
    pub range: Duration,
    /// A statement that reads many partitions, as a whole.
    pub scan: Duration,
    /// A write.
    pub write: Duration,
    /// An addition to counters.
    pub counter: Duration,
    /// How long a conditional statement keeps trying after another one came before it.
    pub cas_contention: Duration,
    /// A truncation.
    pub truncate: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            read: Duration::from_secs(5),
            range: Duration::from_secs(10),
            scan: Duration::from_secs(600),
            write: Duration::from_secs(2),
            counter: Duration::from_secs(5),
            cas_contention: Duration::from_secs(1),
            truncate: Duration::from_secs(60),
        }
    }
}

/// Why one replica did not do its part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetError {
    /// Nothing was heard of it in time; it may have done it.
    Silent,
    /// It takes no requests of the version of the cluster that this one was routed by, and did nothing.
    Stale(String),
    /// It has no room, and did nothing.
    Overloaded(String),
    /// It will never do this, even if it is asked again, and did nothing.
    Rejected(String),
    /// It cannot do it now, and did nothing.
    Refused(String),
    /// There is no connection to it, so it did nothing. It may be taken to live for a moment still, or again.
    Unreachable(String),
    /// It tried and failed, or its answer was lost; it may have done it.
    Failed(String),
}

impl From<RpcError> for TargetError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Timeout { .. } | RpcError::Disconnected { may_have_run: true } => Self::Silent,
            RpcError::Remote(RemoteError { kind, message }) => match kind {
                RemoteErrorKind::AnswerLost if planted::is_planted(Bug::LostAnswer) => Self::Refused(message),
                RemoteErrorKind::Failed | RemoteErrorKind::AnswerLost => Self::Failed(message),
                RemoteErrorKind::Stale => Self::Stale(message),
                RemoteErrorKind::Overloaded => Self::Overloaded(message),
                RemoteErrorKind::Rejected => Self::Rejected(message),
                RemoteErrorKind::Expired | RemoteErrorKind::UnknownVerb | RemoteErrorKind::Refused => {
                    Self::Refused(message)
                }
            },
            RpcError::Overloaded => Self::Overloaded(error.to_string()),
            RpcError::TooLarge { .. } => Self::Rejected(error.to_string()),
            RpcError::Disconnected { may_have_run: false } => Self::Unreachable(error.to_string()),
            RpcError::Refused(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<ReplicaError> for TargetError {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Log(_) | ReplicaError::Read(_) | ReplicaError::Partial(_) => Self::Failed(error.to_string()),
            ReplicaError::Overloaded(_) => Self::Overloaded(error.to_string()),
            ReplicaError::TooLarge(_) | ReplicaError::Malformed(_) => Self::Rejected(error.to_string()),
            ReplicaError::UnknownTable(_)
            | ReplicaError::NotHere(_)
            | ReplicaError::CannotLead(_)
            | ReplicaError::DiskFull(_) => Self::Refused(error.to_string()),
            ReplicaError::Stale(reason) => Self::Stale(reason),
        }
    }
}

impl TargetError {
    /// Why, in words; None when nothing was heard.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Silent => None,
            Self::Stale(reason)
            | Self::Overloaded(reason)
            | Self::Rejected(reason)
            | Self::Refused(reason)
            | Self::Unreachable(reason)
            | Self::Failed(reason) => Some(reason),
        }
    }

    /// A sentence about the replica of this name, with the reason.
    #[must_use]
    pub fn about(&self, name: &str) -> String {
        match self.reason() {
            Some(reason) => format!("{name}: {reason}"),
            None => format!("{name} did not answer"),
        }
    }

    /// The code of the protocol's failure map: 0 is "unknown".
    fn code(&self) -> u16 {
        0
    }
}

/// What coordinators count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Writes that went to other nodes or shards by way of the coordinator.
    pub writes: u64,
    /// Stretches read by way of the coordinator.
    pub reads: u64,
    /// Stretches whose digests differed.
    pub digest_mismatches: u64,
    /// Mutations sent to repair a replica that a read found outdated.
    pub repairs: u64,
    /// Requests to one more replica because another was slow.
    pub speculations: u64,
    /// Requests that too few replicas answered in time.
    pub timeouts: u64,
    /// Requests refused because too few replicas live.
    pub unavailable: u64,
    /// Conditional statements and serial reads by way of Paxos.
    pub cas: u64,
    /// Ballots that were refused because of a later one.
    pub cas_contentions: u64,
    /// Proposals of other leaders that were finished.
    pub cas_finished: u64,
    /// Conditional statements of which it is unknown whether they were applied.
    pub cas_unknown: u64,
    /// Logged batches that were written again after their first attempt failed or its coordinator ended.
    pub batches_finished: u64,
    /// Requests of other nodes that were refused because they were routed by a version of the cluster that is fenced
    /// off.
    pub stale_requests: u64,
    /// Writes that were refused because the disks of too many replicas are full.
    pub refused_full: u64,
    /// Reads and writes that were refused because their partition's limit was reached.
    pub rate_limited: u64,
    /// Steps of work near the data that were done here: parts of aggregates.
    pub aggregate_parts: u64,
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

/// What every part of a coordinator uses.
struct Context {
    shard: Rc<Shard>,
    rpc: Option<Rc<Rpc>>,
    view: RefCell<Arc<ClusterView>>,
    view_changed: Notify,
    liveness: RefCell<Liveness>,
    /// The disks of some node are full, or nearly.
    warns_of_disks: Cell<bool>,
    /// What the others refuse, as they say: requests from before this version.
    fenced_off: Cell<u64>,
    timeouts: Cell<Timeouts>,
    metrics: Cell<Metrics>,
}

/// One shard's coordinator. See the module.
pub struct Coordinator {
    context: Context,
    limits: rate::Rates,
    read: read::Reads,
    write: write::Writes,
    cas: cas::Cas,
    counters: counter::Counters,
    batches: RefCell<batchlog::OpenBatches>,
    hints: handoff::Handoff,
    tombstones: tombstones::TombstoneHolds,
    near: RefCell<near::Servers>,
    trace_keeper: RefCell<Option<trace::Keeper>>,
}

impl Coordinator {
    /// The coordinator of a shard. Without an `rpc` it reaches its own node only.
    pub fn new(shard: Rc<Shard>, rpc: Option<Rc<Rpc>>, view: Arc<ClusterView>) -> Rc<Self> {
        let mut liveness = Liveness::default();
        liveness.set(view.me, true);
        Rc::new(Self {
            context: Context {
                shard,
                rpc,
                view: RefCell::new(view),
                view_changed: Notify::new(),
                liveness: RefCell::new(liveness),
                warns_of_disks: Cell::new(false),
                fenced_off: Cell::new(0),
                timeouts: Cell::default(),
                metrics: Cell::default(),
            },
            limits: rate::Rates::default(),
            read: read::Reads::default(),
            write: write::Writes::default(),
            cas: cas::Cas::default(),
            counters: counter::Counters::new(replica::new_counter_source()),
            batches: RefCell::default(),
            hints: handoff::Handoff::default(),
            tombstones: tombstones::TombstoneHolds::default(),
            near: RefCell::default(),
            trace_keeper: RefCell::default(),
        })
    }

    /// The coordinator of the shard that runs this.
    #[must_use]
    pub fn local() -> Rc<Self> {
        runtime::local::<Self>().expect("every shard keeps its coordinator before it takes messages")
    }

    /// The shard's data.
    #[inline]
    #[must_use]
    pub fn shard(&self) -> &Rc<Shard> {
        &self.context.shard
    }

    /// The cluster as this shard knows it.
    #[must_use]
    pub fn view(&self) -> Arc<ClusterView> {
        self.context.view.borrow().clone()
    }

    /// Looks at the cluster as it is now.
    #[inline]
    pub fn with_view<R>(&self, f: impl FnOnce(&ClusterView) -> R) -> R {
        f(&self.context.view.borrow())
    }

    /// Takes over a newer version of the cluster. Requests that have begun end with the one they have.
    pub fn set_view(&self, view: Arc<ClusterView>) {
        self.context.liveness.borrow_mut().set(view.me, true);
        self.read
            .latencies
            .borrow_mut()
            .retain(|table, _| view.route(*table).is_some());
        self.forget_disks_of_strangers(&view);
        self.forget_own_hints(&view);
        *self.context.view.borrow_mut() = view;
        self.context.view_changed.notify_all();
    }

    /// Takes over whether a node is alive.
    pub fn set_live(&self, node: NodeNumber, is_live: bool) {
        let is_live = is_live || node == self.view().me;
        self.context.liveness.borrow_mut().set(node, is_live);
        self.writes_changed(node);
    }

    /// Takes over whether a node's log takes writes. For writes, one whose does not counts as down; it is read from
    /// where the others do not suffice.
    pub fn set_takes_writes(&self, node: NodeNumber, takes: bool) {
        self.context.liveness.borrow_mut().set_takes_writes(node, takes);
        self.writes_changed(node);
    }

    fn writes_changed(&self, node: NodeNumber) {
        let (view, takes) = (self.view(), self.takes_writes(node));
        if let (Some(hints), Some(node)) = (self.hints(), view.topology.numbered(node)) {
            hints.set_live(node.host_id, takes);
        }
        if takes {
            self.hints.due.notify_all();
        }
    }

    /// Keeps promises of ballots with those of the node's other shards.
    pub fn keep_promises(&self, promises: Arc<Promises>) {
        self.cas.acceptor.keep_promises(promises);
    }

    /// Forgets what is in memory of conditional statements on a table whose states were dropped.
    pub fn forget_paxos_states(&self, table: TableId) {
        self.cas.acceptor.forget(table);
    }

    /// Writes what is known of conditional statements in memory alone; before the node ends.
    ///
    /// # Errors
    /// The sentence says what could not be written; later statements on the partitions find it out.
    pub async fn note_learned(&self) -> Result<(), String> {
        let noted = self.cas.acceptor.write_notes(&self.context.shard).await;
        noted.map_err(|e| format!("cannot record what Paxos acceptors have learned: {e}"))
    }

    /// How many replicas of a table's partition a level waits for.
    #[must_use]
    pub fn block_for(&self, table: TableId, level: Consistency) -> u16 {
        self.with_view(|view| {
            let route = view.route(table);
            route.map_or(1, |route| route.block_for(level, &view.locality))
        })
    }

    /// Whether a node is believed to be alive.
    #[must_use]
    pub fn is_live(&self, node: NodeNumber) -> bool {
        self.context.liveness.borrow().is_live(node)
    }

    /// Whether a node is believed to be alive and to take writes.
    #[must_use]
    pub fn takes_writes(&self, node: NodeNumber) -> bool {
        if planted::is_planted(Bug::UnheededLog) {
            return self.is_live(node);
        }
        self.context.liveness.borrow().takes_writes(node)
    }

    /// Sets how long requests wait.
    pub fn set_timeouts(&self, timeouts: Timeouts) {
        self.context.timeouts.set(timeouts);
    }

    /// How long requests wait.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.context.timeouts.get()
    }

    /// What was counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.context.metrics.get()
    }

    /// What reads of a table have taken here.
    fn latencies_of(&self, table: &schema::Table) -> Rc<TableLatencies> {
        let option = &table.options.speculative_retry;
        let mut latencies = self.read.latencies.borrow_mut();
        match latencies.get(&table.id) {
            Some(known) if known.option == *option => Rc::clone(known),
            _ => {
                let new = Rc::new(TableLatencies::new(option));
                latencies.insert(table.id, Rc::clone(&new));
                new
            }
        }
    }

    /// Counts something.
    pub fn count(&self, change: impl FnOnce(&mut Metrics)) {
        let mut metrics = self.context.metrics.get();
        change(&mut metrics);
        self.context.metrics.set(metrics);
    }

    /// A node in errors and traces: its address for other nodes, as in Cassandra. That for clients may be a loopback or
    /// a shared one.
    fn address(view: &ClusterView, node: NodeNumber) -> IpAddr {
        view.topology
            .numbered(node)
            .map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), |n| n.internode.ip())
    }

    /// This node in traces: address and port for other nodes.
    #[must_use]
    pub fn own_address(&self) -> (IpAddr, u16) {
        self.with_view(|view| {
            let own = view.topology.numbered(view.me);
            own.map_or((IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0), |own| {
                (own.internode.ip(), own.internode.port())
            })
        })
    }

    /// The name of a replica in errors and traces: address and shard.
    #[must_use]
    pub fn name(view: &ClusterView, replica: Replica) -> String {
        format!("{} shard {}", Self::address(view, replica.node), replica.shard)
    }

    /// The names of replicas in errors: address and shard.
    fn names(view: &ClusterView, replicas: impl Iterator<Item = Replica>) -> String {
        replicas
            .map(|replica| Self::name(view, replica))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Reports to a simulation which replicas' answers an acknowledgement has counted.
    fn tell_answered(&self, view: &ClusterView, what: &'static str, level: Consistency, answered: &Answered<Replica>) {
        let me = self.this_replica(view);
        answered.acknowledge(what, level as u16, me, |replica| Self::address(view, replica.node));
    }

    fn unreachable() -> TargetError {
        TargetError::Refused("this node has no connections to others".to_owned())
    }

    /// Asks a shard of another node; a request with a fenced verb is stamped already.
    async fn call(
        &self,
        view: &ClusterView,
        replica: Replica,
        verb: Verb,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<Vec<u8>, TargetError> {
        let timeout = until.saturating_duration_since(runtime::now());
        let rpc = self.context.rpc.as_ref().ok_or_else(Self::unreachable)?;
        let peer = view.peer(replica.node).ok_or_else(Self::unreachable)?;
        let (verb, body) = trace::wrapped(verb, body);
        let answer = rpc
            .call(&peer, u32::from(replica.shard), verb as u16, body, timeout)
            .await;
        answer.map_err(TargetError::from)
    }

    /// Makes a replica, here or elsewhere, write mutations that repair it.
    async fn mutate(&self, view: &ClusterView, replica: Replica, mutations: &[Addressed]) -> Result<(), TargetError> {
        let stamp = Stamp::of_tables(view, mutations.iter().map(Addressed::table));
        if replica.node != view.me {
            let mut body = encode_mutations(false, mutations.iter());
            mark_repair(&mut body);
            stamp.sign(&mut body);
            let until = runtime::now() + self.context.timeouts.get().write;
            let answer = self.call(view, replica, Verb::Mutate, body, until).await;
            return answer.map(|_| ());
        }
        let shard = ShardId(u32::from(replica.shard));
        if shard == self.context.shard.id() {
            let located: Vec<Located<'_>> = mutations.iter().map(Addressed::located).collect();
            return Ok(apply(&self.context.shard, &located, false, Origin::Local, stamp).await?);
        }
        let mutations = mutations.to_vec();
        let applied = trace::submit(shard, move || async move {
            let located: Vec<Located<'_>> = mutations.iter().map(Addressed::located).collect();
            apply(
                &Coordinator::local().context.shard,
                &located,
                false,
                Origin::Local,
                stamp,
            )
            .await
        });
        Ok(applied.await?)
    }
}

fn spawn(job: impl Future<Output = ()> + 'static) {
    let job: Job = Box::pin(job);
    drop(runtime::spawn(job));
}
