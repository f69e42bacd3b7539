//! What every component of a coordinator uses: the shard, the cluster as it knows it, and its connections.
//!
//! A [`Context`] knows no component. Each component holds the one of its shard by reference count, and so do the tasks
//! that outlive a call.
//!
//! - Here: the view and when it changes, which nodes live, the fence (`fence.rs`), timeouts, counts, requests to other
//!   replicas.
//! - `disks.rs`: which nodes take writes that add data.
//! - `levels.rs`: at which levels this shard answers for a table alone.

mod disks;
mod levels;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::{Addressed, Located};
use replica::Shard;
use rpc::{RemoteError, RemoteErrorKind, Rpc};
use runtime::{Instant, Notify, ShardId};
use schema::TableId;
use stdx::planted::{self, Bug};
use stdx::probe::Answered;
use topology::{Consistency, Liveness, NodeNumber, Replica};

use crate::fence::Stamp;
use crate::message::{Malformed, encode_mutations, mark_repair};
use crate::tombstones::MARGIN_SECONDS;
use crate::write::apply::{Origin, apply};
use crate::{ClusterView, Coordinator, TargetError, Verb, trace};

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

impl Timeouts {
    /// A write reaches a replica within so many seconds after it was made: later only as a hint or as a part of a
    /// batch.
    #[must_use]
    pub fn late_write_seconds(&self) -> u32 {
        let patience = self.write.max(self.counter) * 2;
        let patience = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
        MARGIN_SECONDS.saturating_add(patience)
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

/// What every component of a shard's coordinator uses. See the module.
pub struct Context {
    /// The shard's data.
    pub shard: Rc<Shard>,
    /// None: this node has no connections to others.
    pub(crate) rpc: Option<Rc<Rpc>>,
    pub(crate) view: RefCell<Arc<ClusterView>>,
    view_changed: Notify,
    pub(crate) liveness: RefCell<Liveness>,
    /// The disks of some node are full, or nearly.
    warns_of_disks: Cell<bool>,
    /// What the others refuse, as they say: requests from before this version.
    fenced_off: Cell<u64>,
    timeouts: Cell<Timeouts>,
    metrics: Cell<Metrics>,
}

impl Context {
    pub(crate) fn new(shard: Rc<Shard>, rpc: Option<Rc<Rpc>>, view: Arc<ClusterView>) -> Rc<Self> {
        let mut liveness = Liveness::default();
        liveness.set(view.me, true);
        Rc::new(Self {
            shard,
            rpc,
            view: RefCell::new(view),
            view_changed: Notify::new(),
            liveness: RefCell::new(liveness),
            warns_of_disks: Cell::new(false),
            fenced_off: Cell::new(0),
            timeouts: Cell::default(),
            metrics: Cell::default(),
        })
    }

    /// This shard.
    #[inline]
    #[must_use]
    pub fn shard_id(&self) -> ShardId {
        self.shard.id()
    }

    /// The cluster as this shard knows it.
    #[must_use]
    pub fn view(&self) -> Arc<ClusterView> {
        self.view.borrow().clone()
    }

    /// Looks at the cluster as it is now.
    #[inline]
    pub fn with_view<R>(&self, f: impl FnOnce(&ClusterView) -> R) -> R {
        f(&self.view.borrow())
    }

    /// Takes over a newer version of the cluster. Requests that have begun end with the one they have.
    pub(crate) fn set_view(&self, view: Arc<ClusterView>) {
        self.liveness.borrow_mut().set(view.me, true);
        self.forget_disks_of_strangers(&view);
        *self.view.borrow_mut() = view;
        self.view_changed.notify_all();
    }

    /// Waits until there is a newer view than this one. None if there is none in time, or if the cluster has given up
    /// what this node began under the older view: replicas may have purged deletions that hide it.
    pub(crate) async fn newer_view(&self, than: &ClusterView, until: Instant) -> Option<Arc<ClusterView>> {
        loop {
            let changed = self.view_changed.notified();
            let view = self.view();
            if view.version > than.version {
                let is_given_up = view
                    .own_forgotten()
                    .is_some_and(|forgotten| than.version < forgotten.version);
                return (!is_given_up).then_some(view);
            }
            runtime::timeout_at(until, changed).await.ok()?;
        }
    }

    /// Whether the cluster has no other node.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.with_view(|view| view.topology.members().nth(1).is_none())
    }

    /// How many replicas of a table's partition a level waits for.
    #[must_use]
    pub fn block_for(&self, table: TableId, level: Consistency) -> u16 {
        self.with_view(|view| {
            let route = view.route(table);
            route.map_or(1, |route| route.block_for(level, &view.locality))
        })
    }

    /// The version that a request has to be routed by at least.
    pub fn fence(&self, view: &ClusterView) -> u64 {
        view.fence.max(self.fenced_off.get())
    }

    /// What a request of another node says, and its stamp, when it may be done as far as that is known before it is
    /// read.
    pub(crate) fn pass<'b>(&self, body: &'b [u8]) -> Result<(&'b [u8], Stamp), RemoteError> {
        let Some((body, stamp)) = Stamp::take(body) else {
            let malformed = Malformed("the versions that a request was routed by");
            return Err(RemoteError {
                kind: RemoteErrorKind::Rejected,
                message: malformed.to_string(),
            });
        };
        let fence = self.with_view(|view| self.fence(view));
        let Err(refused) = stamp.pass(fence) else {
            return Ok((body, stamp));
        };
        self.count(|m| m.stale_requests += 1);
        Err(RemoteError {
            kind: RemoteErrorKind::Stale,
            message: refused.to_string(),
        })
    }

    /// Takes over whether a node is alive.
    pub(crate) fn set_live(&self, node: NodeNumber, is_live: bool) {
        let is_live = is_live || node == self.view().me;
        self.liveness.borrow_mut().set(node, is_live);
    }

    /// Takes over whether a node's log takes writes. For writes, one whose does not counts as down; it is read from
    /// where the others do not suffice.
    pub(crate) fn set_takes_writes(&self, node: NodeNumber, takes: bool) {
        self.liveness.borrow_mut().set_takes_writes(node, takes);
    }

    /// Whether a node is believed to be alive.
    #[must_use]
    pub fn is_live(&self, node: NodeNumber) -> bool {
        self.liveness.borrow().is_live(node)
    }

    /// Whether a node is believed to be alive and to take writes.
    #[must_use]
    pub fn takes_writes(&self, node: NodeNumber) -> bool {
        if planted::is_planted(Bug::UnheededLog) {
            return self.is_live(node);
        }
        self.liveness.borrow().takes_writes(node)
    }

    /// Sets how long requests wait.
    pub fn set_timeouts(&self, timeouts: Timeouts) {
        self.timeouts.set(timeouts);
    }

    /// How long requests wait.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts.get()
    }

    /// What was counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.get()
    }

    /// Counts something.
    pub fn count(&self, change: impl FnOnce(&mut Metrics)) {
        let mut metrics = self.metrics.get();
        change(&mut metrics);
        self.metrics.set(metrics);
    }

    /// This node in traces: address and port for other nodes.
    #[must_use]
    pub fn own_address(&self) -> (IpAddr, u16) {
        self.with_view(|view| {
            let own = view.topology.numbered(view.me);
            own.map_or((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), |own| {
                (own.internode.ip(), own.internode.port())
            })
        })
    }

    /// This shard as a replica.
    pub(crate) fn this_replica(&self, view: &ClusterView) -> Replica {
        Replica {
            node: view.me,
            shard: u16::try_from(self.shard.id().0).expect("a node has at most 256 shards"),
        }
    }

    /// Reports to a simulation which replicas' answers an acknowledgement has counted.
    pub(crate) fn tell_answered(
        &self,
        view: &ClusterView,
        what: &'static str,
        level: Consistency,
        answered: &Answered<Replica>,
    ) {
        let me = self.this_replica(view);
        answered.acknowledge(what, level as u16, me, |replica| view.address(replica.node));
    }

    /// Asks a shard of another node; a request with a fenced verb is stamped already.
    pub(crate) async fn call(
        &self,
        view: &ClusterView,
        replica: Replica,
        verb: Verb,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<Vec<u8>, TargetError> {
        let timeout = until.saturating_duration_since(runtime::now());
        let rpc = self.rpc.as_ref().ok_or_else(TargetError::without_connections)?;
        let peer = view.peer(replica.node).ok_or_else(TargetError::without_connections)?;
        let answer = rpc
            .call(&peer, u32::from(replica.shard), trace::purpose(verb), body, timeout)
            .await;
        answer.map_err(TargetError::from)
    }

    /// Makes a replica, here or elsewhere, write mutations that repair it.
    pub(crate) async fn mutate(
        &self,
        view: &ClusterView,
        replica: Replica,
        mutations: &[Addressed],
    ) -> Result<(), TargetError> {
        let stamp = Stamp::of_tables(view, mutations.iter().map(Addressed::table));
        if replica.node != view.me {
            let mut body = encode_mutations(false, mutations.iter());
            mark_repair(&mut body);
            stamp.sign(&mut body);
            let until = runtime::now() + self.timeouts.get().write;
            let answer = self.call(view, replica, Verb::Mutate, body, until).await;
            return answer.map(|_| ());
        }
        let shard = ShardId(u32::from(replica.shard));
        if shard == self.shard.id() {
            let located: Vec<Located<'_>> = mutations.iter().map(Addressed::located).collect();
            return Ok(apply(&self.shard, &located, false, Origin::Local, stamp).await?);
        }
        let mutations = mutations.to_vec();
        let applied = trace::submit(shard, move || async move {
            let located: Vec<Located<'_>> = mutations.iter().map(Addressed::located).collect();
            let shard = &Coordinator::local().context.shard;
            apply(shard, &located, false, Origin::Local, stamp).await
        });
        Ok(applied.await?)
    }
}
