//! Read repair: what a read found that a replica lacks is written to it before the read returns it.

use std::rc::Rc;
use std::sync::Arc;

use mutation::cut::cut as cut_mutation;
use mutation::{Addressed, Mutation, PartitionBlock};
use smallvec::SmallVec;
use stdx::planted::{self, Bug};
use topology::{Acks, Replica, ReplicaCounts, WriteTargets};
use types::Token;

use super::ReplicatedRead;
use crate::gather::Gather;
use crate::message::difference;
use crate::{Coordinator, CoordinatorError, TargetError, spawn, trace};

/// A repair that is longer is sent in cuts.
const REPAIR_BYTES_MAX: usize = 4 << 20;

/// Who was repaired.
type Repaired = (Replica, Result<(), TargetError>);

impl ReplicatedRead {
    /// Writes to each replica what it lacked, and waits for it: who reads next at this level must see what this read saw. In the place of
    /// one that fails another gets all of the block, because nobody knows what it has. So does a replica to which the tablet moves: it may have copied what the
    /// repaired one had before.
    pub(super) async fn repair(
        &mut self,
        merged: &PartitionBlock,
        parts: &[(Replica, Option<PartitionBlock>)],
    ) -> Result<(), CoordinatorError> {
        let deadline = runtime::now() + self.timeout;
        let gather: Rc<Gather<Repaired>> = Gather::new();
        let mut outstanding = Vec::new();
        for (replica, part) in parts {
            let Some(mutation) = difference(merged, part.as_ref(), &self.table) else {
                continue;
            };
            self.coordinator.count(|m| m.repairs += 1);
            outstanding.push(*replica);
            trace::note(|| format!("Repairing {}", Coordinator::name(&self.view, *replica)));
            self.send_repair(*replica, merged.token, mutation, &gather);
        }
        let pending = match outstanding.is_empty() {
            true => SmallVec::new(),
            false => self.pending(merged.token),
        };
        for replica in &pending {
            if !self.coordinator.takes_writes(replica.node) {
                self.hint_repair(*replica, merged);
            } else if let Some(mutation) = self.whole(merged) {
                outstanding.push(*replica);
                self.send_repair(*replica, merged.token, mutation, &gather);
            }
        }
        let mut spare = self.spare.clone();
        let acks = Acks::new(self.requirement.clone(), ReplicaCounts::default());
        while !outstanding.is_empty() && !planted::is_planted(Bug::UnawaitedRepair) {
            let Some((replica, result)) = gather.next(deadline).await else {
                self.coordinator.count(|m| m.timeouts += 1);
                return Err(self.read_timeout(&acks, true, &outstanding));
            };
            outstanding.retain(|other| *other != replica);
            let Err(error) = result else { continue };
            self.is_stale |= matches!(error, TargetError::Stale(_));
            if pending.contains(&replica) && !self.is_stale {
                self.hint_repair(replica, merged);
                continue;
            }
            let stands_in = spare.iter().position(|other| self.can_replace(*other, replica));
            let stands_in = stands_in.filter(|_| !self.is_stale);
            let Some(other) = stands_in.and_then(|at| spare.remove(at)) else {
                return Err(self.read_failure(&acks, true, &[(replica, error)], &outstanding));
            };
            if let Some(mutation) = difference(merged, None, &self.table) {
                outstanding.push(other);
                self.send_repair(other, merged.token, mutation, &gather);
            }
        }
        Ok(())
    }

    /// The replicas to which the tablet of a token moves and that nobody reads yet.
    fn pending(&self, token: Token) -> SmallVec<[Replica; 2]> {
        let route = self.view.route(self.table.id);
        route.map_or_else(SmallVec::new, |route| {
            WriteTargets::new(&route.map.tablet_of(token)).pending
        })
    }

    /// What brings all of a block to a replica of which nobody knows what it has.
    fn whole(&self, merged: &PartitionBlock) -> Option<Vec<u8>> {
        difference(merged, None, &self.table)
    }

    /// Notes a repair for a replica that nobody reads yet.
    fn hint_repair(&self, replica: Replica, merged: &PartitionBlock) {
        if let Some(mutation) = self.whole(merged) {
            let mutation = Addressed::at(merged.token, mutation).expect("it was packed just now");
            let now_us = runtime::wall_clock_us();
            self.coordinator.missed(&self.view, replica, [&mutation], now_us, false);
        }
    }

    /// Repairs a replica: by one mutation, or by cuts of it, one after the other, where it is longer than a log takes.
    fn send_repair(&self, replica: Replica, token: Token, mutation: Vec<u8>, gather: &Rc<Gather<Repaired>>) {
        let (coordinator, view, gather) = (Rc::clone(&self.coordinator), Arc::clone(&self.view), Rc::clone(gather));
        let bytes_max = coordinator.shard.log.mutation_bytes_max().min(REPAIR_BYTES_MAX);
        let cuts = match Mutation::new(&mutation) {
            Some(whole) if mutation.len() > bytes_max => cut_mutation(&whole, &self.table.layout, bytes_max / 2),
            _ => vec![mutation],
        };
        spawn(async move {
            let mut result = Ok(());
            for mutation in cuts {
                let mutation = Addressed::at(token, mutation).expect("it was packed just now");
                result = coordinator.mutate(&view, replica, &[mutation]).await;
                if result.is_err() {
                    break;
                }
            }
            gather.put((replica, result));
        });
    }
}
