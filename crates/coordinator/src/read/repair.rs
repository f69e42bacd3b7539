//! Read repair: what a read found that a replica lacks is written to it before the read returns it.

use std::rc::Rc;
use std::sync::Arc;

use mutation::cut::cut as cut_mutation;
use mutation::{Addressed, Mutation, PartitionBlock};
use stdx::planted::{self, Bug};
use topology::{Acks, Counts, Replica, ReplicaList, Requirement};
use types::Token;

use super::ReplicatedRead;
use crate::message::difference;
use crate::read::gather::Gather;
use crate::write::birth::birth_us;
use crate::{CoordinatorError, TargetError, spawn, trace};

/// A repair that is longer is sent in cuts.
const REPAIR_BYTES_MAX: usize = 4 << 20;

/// A repaired replica, and how its repair ended.
type Repaired = (Replica, Result<(), TargetError>);

impl ReplicatedRead {
    /// Writes to each replica what it lacked, and waits for it: the next read at this level must see what this read
    /// saw. If a replica fails, another one gets all of the block instead, because it is unknown what that one has.
    ///
    /// While the tablet moves, the replicas of the other set get all of the block too (they may have copied what the
    /// repaired one had before), and it is waited until the level is met there as well: as for a write.
    pub(super) async fn repair(
        &mut self,
        merged: &PartitionBlock,
        parts: &[(Replica, Option<PartitionBlock>)],
    ) -> Result<(), CoordinatorError> {
        let deadline = self.round_end();
        let gather: Rc<Gather<Repaired>> = Gather::new();
        let (requirement, others) = self.of_repairs(merged.token);
        let mut acks = Acks::new(requirement, Counts::default());
        let mut outstanding: Vec<Replica> = Vec::new();
        for (replica, part) in parts {
            let Some(mutation) = difference(merged, part.as_ref(), &self.table) else {
                acks.ack(replica.node, self.view.locality.datacenter(replica.node));
                continue;
            };
            self.reads.context.count(|m| m.repairs += 1);
            outstanding.push(*replica);
            trace::note(|| format!("Repairing {}", self.view.name(*replica)));
            self.send_repair(*replica, merged.token, mutation, &gather);
        }
        if outstanding.is_empty() {
            return Ok(());
        }
        let is_read = |replica: &&Replica| parts.iter().any(|(read, _)| read == *replica);
        let mut unread: Vec<Replica> = others.iter().filter(|replica| !is_read(replica)).copied().collect();
        for replica in std::mem::take(&mut unread) {
            if !self.reads.context.takes_writes(replica.node) {
                self.hint_repair(replica, merged);
            } else if let Some(mutation) = self.whole(merged) {
                unread.push(replica);
                self.send_repair(replica, merged.token, mutation, &gather);
            }
        }
        let mut spare = self.spare.clone();
        // Those of the other set that have all of the block.
        let mut have_it: Vec<Replica> = Vec::new();
        let waits_for_others = |acks: &Acks, unread: &[Replica]| !unread.is_empty() && !acks.is_satisfied();
        while (!outstanding.is_empty() || waits_for_others(&acks, &unread))
            && !planted::is_planted(Bug::UnawaitedRepair)
        {
            let Some((replica, result)) = gather.next(deadline).await else {
                self.reads.context.count(|m| m.timeouts += 1);
                outstanding.append(&mut unread);
                return Err(self.read_timeout(&acks, true, &outstanding));
            };
            let is_unread = unread.contains(&replica);
            outstanding.retain(|other| *other != replica);
            unread.retain(|other| *other != replica);
            let Err(error) = result else {
                acks.ack(replica.node, self.view.locality.datacenter(replica.node));
                have_it.push(replica);
                continue;
            };
            self.is_stale |= matches!(error, TargetError::Stale(_));
            spare.retain(|other| *other != replica);
            if is_unread && !self.is_stale {
                self.hint_repair(replica, merged);
                continue;
            }
            let stands_in = spare.iter().position(|other| self.can_replace(*other, replica));
            let stands_in = stands_in.filter(|_| !self.is_stale);
            let Some(other) = stands_in.and_then(|at| spare.remove(at)) else {
                return Err(self.read_failure(&acks, true, &[(replica, error)], &outstanding));
            };
            if have_it.contains(&other) {
                continue;
            }
            if unread.contains(&other) {
                unread.retain(|replica| *replica != other);
                outstanding.push(other);
            } else if let Some(mutation) = self.whole(merged) {
                outstanding.push(other);
                self.send_repair(other, merged.token, mutation, &gather);
            }
        }
        if others.is_empty() || acks.is_satisfied() || planted::is_planted(Bug::UnawaitedRepair) {
            Ok(())
        } else {
            Err(self.read_failure(&acks, true, &[], &unread))
        }
    }

    /// How many replicas must have what a read of a token saw, and the replicas of the other set to which its tablet's
    /// writes go while it moves.
    fn of_repairs(&self, token: Token) -> (Requirement, ReplicaList) {
        let Some(route) = self.view.route(self.table.id) else {
            return (self.requirement.clone(), ReplicaList::new());
        };
        let tablet = route.map.tablet_of(token);
        let requirement = route.write_requirement(self.requirement.consistency(), &tablet, &self.view.locality);
        let others = tablet.other_replicas().unwrap_or_default();
        (requirement, others.iter().copied().collect())
    }

    /// The mutation that brings all of a block to a replica, if it is unknown what the replica has.
    fn whole(&self, merged: &PartitionBlock) -> Option<Vec<u8>> {
        difference(merged, None, &self.table)
    }

    /// Notes a repair as a hint for a replica that is not read yet.
    fn hint_repair(&self, replica: Replica, merged: &PartitionBlock) {
        if let Some(mutation) = self.whole(merged) {
            let mutation = Addressed::at(merged.token, mutation).expect("it was packed just now");
            let read_us = self.lasting.as_ref().map(|lasting| lasting.began_us());
            let read_us = read_us.unwrap_or_else(runtime::wall_clock_us);
            // What was read may be a deletion of long ago.
            let birth_us = birth_us(&self.reads.context.shard, [&mutation], read_us);
            self.reads
                .hints
                .missed(&self.view, replica, [&mutation], birth_us, false);
        }
    }

    /// Repairs a replica: by one mutation, or by cuts of it, one after the other, where it is longer than a log takes.
    fn send_repair(&self, replica: Replica, token: Token, mutation: Vec<u8>, gather: &Rc<Gather<Repaired>>) {
        let (context, view, gather) = (
            Rc::clone(&self.reads.context),
            Arc::clone(&self.view),
            Rc::clone(gather),
        );
        let bytes_max = context.shard.log.mutation_bytes_max().min(REPAIR_BYTES_MAX);
        let cuts = match Mutation::new(&mutation) {
            Some(whole) if mutation.len() > bytes_max => cut_mutation(&whole, &self.table.layout, bytes_max / 2),
            _ => vec![mutation],
        };
        let lasting = self.lasting.clone();
        spawn(async move {
            // Held also when no request waits for the read any more.
            let _lasting = lasting;
            let mut result = Ok(());
            for mutation in cuts {
                let mutation = Addressed::at(token, mutation).expect("it was packed just now");
                result = context.mutate(&view, replica, &[mutation]).await;
                if result.is_err() {
                    break;
                }
            }
            gather.put((replica, result));
        });
    }
}
