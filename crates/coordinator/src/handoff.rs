//! Hinted handoff: what a replica missed is noted for it, and handed over when it is back.
//!
//! Each shard hands over its own hints, at the places where their tokens live at that moment: to the target if it still
//! has them, else to all present replicas, as for a target that was removed. Every other replica was sent the write,
//! and has it or a hint of its own. If the replicas are not the nodes that the write was sent to, one of them may have
//! copied replicas that lacked the write: so the hint goes to all of them too, or is noted for those that are down.
//! What is handed over is not noted again when the target does not take it; the hint stays, with its age.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hints::{
    Deliver, Delivery, Hint, Hints, Interrupted, MissedWrite, NotTaken, Order, Pending, Rejected, SyncPoint, Terms,
};
use mutation::{Addressed, Mutation};
use rpc::{RemoteError, RemoteErrorKind};
use runtime::{Instant, Notify};
use schema::TableId;
use smallvec::SmallVec;
use stdx::planted::{self, Bug};
use topology::{HostId, NodeNumber, NodeState, Replica, WriteTargets};

use crate::fence::Stamp;
use crate::message::{are_hints, encode_mutations, mark_hints};
use crate::tablet_version::placement_of;
use crate::tombstones::MARGIN_US;
use crate::verbs::Verb;
use crate::{ClusterView, Context, TargetError, on_all_shards, spawn};

/// How often a shard looks for hints that can be handed over, besides when a node comes up.
const HANDOFF_PERIOD: Duration = Duration::from_secs(5);

/// Why the hints for a node wait, as the log has it.
type Told = RefCell<BTreeMap<HostId, String>>;

/// How many bytes of hints a shard takes in a second, of all other nodes together; what is above they try again after
/// [`HANDOFF_PERIOD`].
const TAKEN_BYTES_PER_SECOND: u64 = 16 << 20;
/// For how long ahead it takes them.
const TAKEN_AHEAD: Duration = Duration::from_secs(1);

/// The hints that this shard keeps for others, and those that others hand over to it.
pub struct Handoff {
    context: Rc<Context>,
    hints: RefCell<Option<Rc<Hints>>>,
    /// A node came up: its hints can be handed over.
    due: Notify,
    room: Room,
}

/// Room for hints that others hand over to a shard: when many nodes do at once, their sum is limited.
#[derive(Default)]
struct Room {
    /// What was taken counts until then.
    taken_until: Cell<Option<Instant>>,
}

impl Room {
    /// Takes bytes if there is room for them.
    fn take(&self, now: Instant, bytes: usize) -> bool {
        let since = self.taken_until.get().map_or(now, |until| until.max(now));
        if since.saturating_duration_since(now) >= TAKEN_AHEAD {
            return false;
        }
        let micros = (bytes as u64).saturating_mul(1_000_000) / TAKEN_BYTES_PER_SECOND;
        self.taken_until.set(Some(since + Duration::from_micros(micros)));
        true
    }
}

impl Handoff {
    pub(crate) fn new(context: Rc<Context>) -> Self {
        Self {
            context,
            hints: RefCell::default(),
            due: Notify::default(),
            room: Room::default(),
        }
    }

    /// Gives this shard its hints; without, a write that a replica misses is left to reads and repair.
    pub(crate) fn keep(&self, hints: Rc<Hints>) {
        let view = self.context.view();
        for (number, node) in view.topology.numbered_nodes() {
            if self.context.takes_writes(number) {
                hints.set_live(node.host_id, true);
            }
        }
        *self.hints.borrow_mut() = Some(hints);
        self.forget_own(&view);
    }

    /// Takes over whether a node takes writes.
    pub(crate) fn set_live(&self, node: NodeNumber) {
        let (view, takes) = (self.context.view(), self.context.takes_writes(node));
        if let (Some(hints), Some(node)) = (self.kept(), view.topology.numbered(node)) {
            hints.set_live(node.host_id, takes);
        }
        if takes {
            self.due.notify_all();
        }
    }

    /// A node has room again: what waits for it is tried.
    pub(crate) fn has_room(&self) {
        self.due.notify_all();
    }

    /// Hands over nothing that the cluster has given up. Call this before requests see the view that says so.
    pub(crate) fn forget_own(&self, view: &ClusterView) {
        if let (Some(hints), Some(forgotten)) = (self.kept(), view.own_forgotten()) {
            hints.forget_before(i64::from(forgotten.before) * 1_000_000);
        }
    }

    /// This shard's hints.
    #[must_use]
    pub fn kept(&self) -> Option<Rc<Hints>> {
        self.hints.borrow().clone()
    }

    /// Notes for a replica that it did not get these mutations, born at `birth_us` (`birth.rs`). Whether hints of all
    /// of them are kept; with `is_acknowledgement` also, whether they survive that the process is killed. The node
    /// keeps none for itself: what it misses as the coordinator, other replicas keep the tombstones of until a repair
    /// has brought it.
    pub(crate) fn missed<'m>(
        &self,
        view: &ClusterView,
        replica: Replica,
        mutations: impl IntoIterator<Item = &'m Addressed>,
        birth_us: i64,
        is_acknowledgement: bool,
    ) -> bool {
        let (Some(hints), Some(node)) = (self.kept(), view.topology.numbered(replica.node)) else {
            return false;
        };
        // What was begun before this node was given up is given up, however late its end is seen.
        let own_forgotten = self.context.with_view(ClusterView::own_forgotten);
        let is_given_up = own_forgotten.is_some_and(|forgotten| view.version < forgotten.version);
        let is_kept = replica.node != view.me && hints.keeps_for(&node.location.datacenter) && !is_given_up;
        let mut is_noted = is_kept;
        for mutation in mutations {
            let write = self.missed_write(view, mutation, birth_us);
            let Some(write) = write.filter(|_| !self.is_truncated_since(view, mutation.table())) else {
                is_noted = false;
                continue;
            };
            if is_kept {
                is_noted &= hints.note(node.host_id, write);
            } else {
                hints.miss_write(node.host_id, write);
            }
        }
        if is_noted && is_acknowledgement {
            let written = hints.write();
            is_noted = written.inspect_err(|e| log::warn!("{e}; hints are lost")).is_ok();
        }
        is_noted
    }

    /// Whether a table was truncated after a view: what was routed by the view is not to be written any more.
    fn is_truncated_since(&self, view: &ClusterView, table: TableId) -> bool {
        self.context
            .with_view(|now| now.truncated_at(table) > view.truncated_at(table))
    }

    /// What hints need to know of a mutation that was routed by `view` and born at `birth_us`; None when its table is
    /// gone.
    pub(crate) fn missed_write<'m>(
        &self,
        view: &ClusterView,
        mutation: &'m Addressed,
        birth_us: i64,
    ) -> Option<MissedWrite<'m>> {
        let route = view.route(mutation.table())?;
        let targets = WriteTargets::new(&route.map.tablet_of(mutation.token()));
        let store = self.context.shard.store(mutation.table())?;
        let table = store.table();
        let deletions = mutation.mutation().deletion_seconds(&table.layout);
        Some(MissedWrite {
            mutation: mutation.bytes(),
            gc_grace_seconds: table.options.late_write_seconds(),
            last_deletion: deletions.map_or(0, |seconds| *seconds.end()),
            made_us: birth_us - MARGIN_US,
            placement: placement_of(&targets.all().collect::<SmallVec<[Replica; 6]>>()),
        })
    }

    /// Hands hints over, again and again, whenever a node that they are for is up. Run this on each shard once the node
    /// is in its cluster.
    pub async fn run(self: Rc<Self>) {
        let Some(hints) = self.kept() else { return };
        let told = Rc::new(Told::default());
        loop {
            for target in hints.targets() {
                if !hints.is_paused() && self.can_hand_over(target) {
                    let (handoff, hints, told) = (Rc::clone(&self), Rc::clone(&hints), Rc::clone(&told));
                    spawn(async move { handoff.hand_over(&hints, target, &told).await });
                }
            }
            let _ = runtime::timeout(HANDOFF_PERIOD, self.due.notified()).await;
        }
    }

    /// A node that was removed has no say any more: its hints go to those that took over.
    fn can_hand_over(&self, target: HostId) -> bool {
        let view = self.context.view();
        let Some(node) = view.topology.node(target) else {
            return false;
        };
        let number = view.topology.number(target);
        node.state == NodeState::Left || number.is_some_and(|number| self.context.takes_growth(number))
    }

    async fn hand_over(self: Rc<Self>, hints: &Rc<Hints>, target: HostId, told: &Told) {
        let terms_of = |mutation: &Mutation<'_>| {
            let store = self.context.shard.store(mutation.table)?;
            let table = store.table();
            mutation.validate(&table.layout).ok()?;
            self.context.view().route(mutation.table)?;
            let deletions = mutation.deletion_seconds(&table.layout);
            Some(Terms {
                grace_seconds: table.options.late_write_seconds(),
                last_deletion: deletions.map(|seconds| *seconds.end()),
            })
        };
        let deliver: Deliver<'_> = &|batch| -> Delivery {
            let handoff = Rc::clone(&self);
            Box::pin(async move { handoff.deliver(target, batch).await })
        };
        let before = hints.metrics().replayed;
        match hints.replay(target, &terms_of, deliver).await {
            Ok(()) => {
                let count = hints.metrics().replayed - before;
                log::info!("handed {count} hints over to node {}", target.0);
                told.borrow_mut().remove(&target);
            }
            Err(Interrupted::Running | Interrupted::Paused) => {}
            Err(e) => {
                let why = e.to_string();
                // It is tried again every few seconds.
                let before = told.borrow_mut().insert(target, why.clone());
                if before.as_ref() != Some(&why) {
                    log::warn!("hints for node {} wait: {why}", target.0);
                }
            }
        }
    }

    /// Brings hints to where they belong now: to the target, and to others that may lack the same.
    async fn deliver(&self, target: HostId, batch: Rc<[Hint]>) -> Result<(), NotTaken> {
        let view = self.context.view();
        let number = view.topology.number(target);
        let mut shares: BTreeMap<Replica, Vec<Addressed>> = BTreeMap::new();
        let mut postponed: Vec<(NodeNumber, &Hint, Addressed)> = Vec::new();
        for hint in batch.iter() {
            let Some(mutation) = Addressed::new(hint.mutation.clone()) else {
                continue;
            };
            let Some(route) = view.route(mutation.table()) else {
                continue;
            };
            let store = self.context.shard.store(mutation.table());
            if store.is_some_and(|store| store.truncated_at.get() != view.truncated_at(mutation.table())) {
                // Which of its hints are from before is known when it is over.
                return Err(NotTaken::Later("a table of theirs is being truncated".to_owned()));
            }
            let tablet = route.map.tablet_of(mutation.token());
            let all: SmallVec<[Replica; 6]> = WriteTargets::new(&tablet).all().collect();
            let is_here = all.iter().any(|replica| Some(replica.node) == number);
            // A tablet that moves may have been copied before the hint comes.
            let needs_all = !is_here || tablet.transition.is_some();
            let may_lack =
                hint.placement != Some(placement_of(&all)) && !planted::is_planted(Bug::HintSkipsAddedReplica);
            for replica in all {
                let is_target = Some(replica.node) == number;
                if needs_all || is_target || may_lack && self.context.takes_growth(replica.node) {
                    shares.entry(replica).or_default().push(mutation.clone());
                } else if may_lack {
                    postponed.push((replica.node, hint, mutation.clone()));
                }
            }
        }
        // Before anything is sent: else what one of them takes is sent to it again with each try.
        if let Some(down) = shares.keys().find(|replica| !self.context.takes_growth(replica.node)) {
            let name = view.names(std::iter::once(*down));
            return Err(NotTaken::Later(format!(
                "{name} is down, takes no writes or has a full disk"
            )));
        }
        for (replica, share) in shares {
            let name = || view.names(std::iter::once(replica));
            let written = self.hand_over_to(&view, replica, share).await;
            written.map_err(|e| match e {
                TargetError::Rejected(_) => NotTaken::Rejected(e.about(&name())),
                TargetError::Failed(_) => NotTaken::Failed(e.about(&name())),
                _ => NotTaken::Later(e.about(&name())),
            })?;
        }
        self.postpone(&view, &postponed).await
    }

    /// Notes hints for replicas that may lack what the target of a hint has now got, and are down. What cannot be noted
    /// leaves a span. The hints are synced: the one that they follow from is removed, and the next start counts as lost
    /// only what was made since the last report.
    async fn postpone(&self, view: &ClusterView, hints: &[(NodeNumber, &Hint, Addressed)]) -> Result<(), NotTaken> {
        let Some(kept) = self.kept().filter(|_| !hints.is_empty()) else {
            return Ok(());
        };
        let mut targets = BTreeSet::new();
        for (node, hint, mutation) in hints {
            let replica = view.topology.numbered(*node);
            let write = self.missed_write(view, mutation, hint.made_us + MARGIN_US);
            let write = write.filter(|_| !self.is_truncated_since(view, mutation.table()));
            let (Some(replica), Some(write)) = (replica, write) else {
                continue;
            };
            let write = MissedWrite {
                gc_grace_seconds: write.gc_grace_seconds.min(hint.gc_grace_seconds),
                ..write
            };
            if *node != view.me && kept.keeps_for(&replica.location.datacenter) {
                kept.note(replica.host_id, write);
                targets.insert(replica.host_id);
            } else {
                kept.miss_write(replica.host_id, write);
            }
        }
        let synced = kept.sync(Some(&targets)).await;
        synced.map_err(|e| NotTaken::Later(e.to_string()))
    }

    async fn hand_over_to(
        &self,
        view: &ClusterView,
        replica: Replica,
        share: Vec<Addressed>,
    ) -> Result<(), TargetError> {
        if replica.node == view.me {
            return self.context.mutate(view, replica, &share).await;
        }
        let mut body = encode_mutations(false, share.iter());
        mark_hints(&mut body);
        Stamp::of_tables(view, share.iter().map(Addressed::table)).sign(&mut body);
        let until = runtime::now() + self.context.timeouts().write;
        let answer = self.context.call(view, replica, Verb::Mutate, body, until).await;
        answer.map(drop)
    }

    /// Whether this shard takes mutations that come from another node: hints wait when more of them come than it has
    /// room for.
    #[inline]
    pub(crate) fn admit(&self, body: &[u8]) -> Result<(), RemoteError> {
        if !are_hints(body) || self.room.take(runtime::now(), body.len()) {
            return Ok(());
        }
        Err(RemoteError {
            kind: RemoteErrorKind::Overloaded,
            message: "more hints are handed over than this shard takes; nothing was written".to_owned(),
        })
    }

    /// Looks on all shards of this node for hints that can be handed over, now.
    pub async fn hand_over_now() {
        on_all_shards(|coordinator, _| async move { coordinator.hints.due.notify_all() }).await;
    }

    /// What waits for other nodes, of all shards of this node together.
    pub async fn pending() -> Vec<Pending> {
        let of_shards = on_all_shards(|_, hints| async move { hints.map_or_else(Vec::new, |hints| hints.pending()) });
        let mut merged: BTreeMap<HostId, Pending> = BTreeMap::new();
        for part in of_shards.await.into_iter().flatten() {
            let whole = merged.entry(part.target).or_insert(Pending {
                segments: 0,
                bytes: 0,
                ..part
            });
            whole.segments += part.segments;
            whole.bytes += part.bytes;
            whole.begun_us = match (whole.begun_us, part.begun_us) {
                (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
                (one, other) => one.or(other),
            };
        }
        merged.into_values().collect()
    }

    /// What other nodes have refused permanently, of all shards of this node together.
    pub async fn rejected() -> BTreeMap<HostId, Rejected> {
        let of_shards = on_all_shards(|_, hints| async move { hints.map_or_else(Vec::new, |hints| hints.rejected()) });
        let mut merged: BTreeMap<HostId, Rejected> = BTreeMap::new();
        for (target, part) in of_shards.await.into_iter().flatten() {
            let whole = merged.entry(target).or_default();
            whole.count += part.count;
            whole.bytes += part.bytes;
        }
        merged
    }

    /// Removes on all shards of this node what a node, or any node, has refused permanently.
    ///
    /// # Errors
    /// When files cannot be removed.
    pub async fn clear_rejected(target: Option<HostId>) -> Result<(), String> {
        let cleared = on_all_shards(move |_, hints| async move {
            match hints {
                Some(hints) => hints.clear_rejected(target).await.map_err(|e| e.to_string()),
                None => Ok(()),
            }
        });
        cleared.await.into_iter().collect()
    }

    /// Makes every shard of this node obey an order, before this returns.
    pub async fn order(order: Order) {
        on_all_shards(move |coordinator, hints| {
            let order = order.clone();
            async move {
                if let Some(hints) = hints {
                    hints.obey(order);
                }
                coordinator.hints.due.notify_all();
            }
        })
        .await;
    }

    /// Forgets the hints for a node, or for all nodes, on all shards of this node; none of them is on its way
    /// afterwards.
    ///
    /// # Errors
    /// When files cannot be removed.
    pub async fn forget(target: Option<HostId>) -> Result<(), String> {
        let forgotten = on_all_shards(move |_, hints| async move {
            match hints {
                Some(hints) => hints.forget(target).await.map_err(|e| e.to_string()),
                None => Ok(()),
            }
        });
        forgotten.await.into_iter().collect()
    }

    /// The place that the hints of this node for some others, or for all, have reached.
    pub async fn sync_point(&self, targets: Option<BTreeSet<HostId>>) -> SyncPoint {
        let view = self.context.view();
        let node = view
            .topology
            .numbered(view.me)
            .expect("a node is in its own view")
            .host_id;
        let targets = Arc::new(targets);
        let marks = on_all_shards(move |_, hints| {
            let targets = targets.clone();
            async move { hints.map(|hints| hints.mark(targets.as_ref().as_ref())) }
        });
        let mut point = SyncPoint {
            node,
            below: Vec::new(),
            targets: BTreeSet::new(),
        };
        for mark in marks.await {
            point.below.push(mark.as_ref().map_or(0, |mark| mark.below));
            point.targets.extend(mark.into_iter().flat_map(|mark| mark.waiting));
        }
        point
    }

    /// Waits until all shards of this node have handed over, or dropped, the hints noted before a sync point. False if
    /// `patience` ends first.
    pub async fn wait_until_reached(point: SyncPoint, patience: Duration) -> bool {
        let point = Arc::new(point);
        let reached = on_all_shards(move |coordinator, hints| {
            let point = point.clone();
            async move {
                coordinator.hints.due.notify_all();
                match hints {
                    Some(hints) => hints.wait_until_reached(&point, patience).await,
                    None => true,
                }
            }
        });
        reached.await.into_iter().all(|is_reached| is_reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_nodes_hand_over_at_once_a_shard_takes_its_rate() {
        let (room, start) = (Room::default(), runtime::now());
        let mut taken = 0;
        // Fifty nodes try with 128 KiB each, every 10 ms, for ten seconds.
        for step in 0..1000 {
            for _ in 0..50 {
                let now = start + Duration::from_millis(step * 10);
                taken += u64::from(room.take(now, 128 << 10)) * (128 << 10);
            }
        }
        let rate = TAKEN_BYTES_PER_SECOND;
        assert!(
            (10 * rate..=11 * rate + (128 << 10)).contains(&taken),
            "{taken} bytes in ten seconds"
        );
    }
}
