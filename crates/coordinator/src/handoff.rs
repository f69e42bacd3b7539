//! Hinted handoff: what a replica missed is noted for it, and handed over when it is back.
//!
//! Each shard hands over its own hints, at the places where their tokens live at that moment: to the target if it still has them,
//! else to all present replicas, as for a target that was removed. What is handed over is not noted again when it is not taken; the
//! hint stays, with its age.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hints::{Deliver, Delivery, Hints, Interrupted};
use mutation::Mutation;
use runtime::ShardId;
use smallvec::SmallVec;
use topology::{HostId, NodeState, Replica, WriteTargets};
use types::token::token_of;

use crate::message::Addressed;
use crate::{ClusterView, Coordinator, TargetError, spawn};

/// How often a shard looks for hints that can be handed over, besides when a node comes up.
const HANDOFF_PERIOD: Duration = Duration::from_secs(5);

impl Coordinator {
    /// Gives this shard its hints; without, a write that a replica misses is left to reads and repair.
    pub fn keep_hints(&self, hints: Rc<Hints>) {
        let view = self.view();
        for (number, node) in view.topology.numbered_nodes() {
            if self.is_live(number) {
                hints.set_live(node.host_id, true);
            }
        }
        *self.hints.borrow_mut() = Some(hints);
    }

    /// This shard's hints.
    #[must_use]
    pub fn hints(&self) -> Option<Rc<Hints>> {
        self.hints.borrow().clone()
    }

    /// Notes for a replica that it did not get these mutations. Whether all of them are noted; with `is_acknowledgement` also, whether
    /// they survive that the process is killed.
    pub(crate) fn missed<'m>(
        &self,
        view: &ClusterView,
        replica: Replica,
        mutations: impl IntoIterator<Item = &'m Addressed>,
        is_acknowledgement: bool,
    ) -> bool {
        let (Some(hints), Some(node)) = (self.hints(), view.topology.numbered(replica.node)) else {
            return false;
        };
        let mut is_noted = true;
        for (_, bytes) in mutations {
            let table = Mutation::new(bytes).and_then(|m| self.shard.store(m.table));
            let grace_seconds = table.and_then(|store| u32::try_from(store.table().options.gc_grace_seconds).ok());
            is_noted &= grace_seconds.is_some_and(|grace| hints.note(node.host_id, grace, bytes));
        }
        if is_noted && is_acknowledgement {
            let written = hints.write();
            is_noted = written.inspect_err(|e| log::warn!("{e}; hints are lost")).is_ok();
        }
        is_noted
    }

    /// Hands hints over whenever a node that they are for is up, for ever. To be run on each shard once the node is in its cluster.
    pub async fn run_handoff(self: Rc<Self>) {
        let Some(hints) = self.hints() else { return };
        loop {
            for target in hints.targets() {
                if self.can_hand_over(target) {
                    let (coordinator, hints) = (Rc::clone(&self), Rc::clone(&hints));
                    spawn(async move { coordinator.hand_over(&hints, target).await });
                }
            }
            let _ = runtime::timeout(HANDOFF_PERIOD, self.handoff_due.notified()).await;
        }
    }

    /// A node that was removed has no say any more: its hints go to those that took over.
    fn can_hand_over(&self, target: HostId) -> bool {
        let view = self.view();
        let Some(node) = view.topology.node(target) else {
            return false;
        };
        let number = view.topology.number(target);
        node.state == NodeState::Left || number.is_some_and(|number| self.is_live(number))
    }

    async fn hand_over(self: Rc<Self>, hints: &Rc<Hints>, target: HostId) {
        let grace_of = |mutation: &Mutation<'_>| {
            let store = self.shard.store(mutation.table)?;
            let table = store.table();
            mutation.validate(&table.layout).ok()?;
            self.view().route(mutation.table)?;
            u32::try_from(table.options.gc_grace_seconds).ok()
        };
        let deliver: Deliver<'_> = &|mutations| -> Delivery {
            let coordinator = Rc::clone(&self);
            Box::pin(async move { coordinator.deliver(target, mutations).await })
        };
        let before = hints.metrics().replayed;
        match hints.replay(target, &grace_of, deliver).await {
            Ok(()) => {
                let count = hints.metrics().replayed - before;
                log::info!("handed {count} hints over to node {}", target.0);
            }
            Err(Interrupted::Running) => {}
            Err(e) => log::warn!("hints for node {} wait: {e}", target.0),
        }
    }

    /// Brings mutations to where they belong now.
    async fn deliver(&self, target: HostId, mutations: Vec<Vec<u8>>) -> Result<(), String> {
        let view = self.view();
        let number = view.topology.number(target);
        let mut shares: BTreeMap<Replica, Vec<Addressed>> = BTreeMap::new();
        for bytes in mutations {
            let Some(mutation) = Mutation::new(&bytes) else {
                continue;
            };
            let token = token_of(mutation.key);
            let Some(route) = view.route(mutation.table) else {
                continue;
            };
            let tablet = route.map.tablet_of(token);
            let all: SmallVec<[Replica; 6]> = WriteTargets::new(&tablet).all().collect();
            let its: SmallVec<[Replica; 6]> = all.iter().copied().filter(|r| Some(r.node) == number).collect();
            for replica in if its.is_empty() { all } else { its } {
                shares.entry(replica).or_default().push((token, bytes.clone()));
            }
        }
        for (replica, share) in shares {
            let name = || Self::names(&view, std::iter::once(replica));
            if !self.is_live(replica.node) {
                return Err(format!("{} is down", name()));
            }
            let written = self.mutate(&view, replica, Rc::new(share), false).await;
            written.map_err(|e| match e {
                TargetError::Silent => format!("{} did not answer", name()),
                TargetError::Stale(reason) | TargetError::Refused(reason) | TargetError::Failed(reason) => {
                    format!("{}: {reason}", name())
                }
            })?;
        }
        Ok(())
    }

    /// Waits until every shard of this node has handed over, or dropped, the hints for a node that were noted before this call; false
    /// when that has not come by then.
    pub async fn wait_until_replayed(target: HostId, patience: Duration) -> bool {
        let mut waiting = Vec::new();
        for shard in 0..runtime::shard_count() {
            waiting.push(runtime::submit_async_to(ShardId(shard), move || async move {
                let coordinator = Self::local();
                let Some(hints) = coordinator.hints() else { return true };
                coordinator.handoff_due.notify_all();
                hints.wait_until_replayed(target, patience).await
            }));
        }
        let mut is_done = true;
        for shard in waiting {
            is_done &= shard.await;
        }
        is_done
    }
}
