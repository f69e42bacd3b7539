//! What operators do to the cluster while it works: nodes leave, are replaced and join, keyspaces get other
//! replications, go from the token ring to tablets and back, and are repaired.
//!
//! An [`Operation`] is begun by a fault of its kind and driven a step further now and then, whatever faults are
//! injected. What fails, is refused or gets no answer is asked for again. When all faults are healed, every operation
//! ends within [`SETTLE_WAIT_MAX`].

use std::net::IpAddr;
use std::time::Duration;

use runtime::sim::CrashKind;
use topology::{HostId, NodeState, Replaced};

use super::clients::Phase;
use super::faults::Fault;
use super::history::{Copies, DATACENTERS};
use super::scenario::Run;
use crate::machine::body_of;

/// How long all operations may take together, from when everything is healed.
pub(super) const SETTLE_WAIT_MAX: Duration = Duration::from_mins(6);
/// Between two looks at an operation.
const LOOK_NANOS: u64 = 250_000_000;
/// Between two attempts at what failed.
const RETRY_NANOS: u64 = 2_000_000_000;
/// How long an operator waits at most until he gives up a node that is down.
const GIVE_UP_WAIT_MILLIS: u64 = 12_000;
/// How long a node that has left may take to end.
const END_WAIT: Duration = Duration::from_secs(20);
/// How long clients continue while operations end after everything is healed.
const WORK_WAIT: Duration = Duration::from_secs(5);
/// Operations under way at once.
const OPERATIONS_MAX: usize = 4;
/// Copies of a datacenter, at most.
const COPIES_MAX: usize = 4;

/// What is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Work {
    /// A node that runs leaves; when it has left, another one joins if it has to.
    Leave { node: usize, host: HostId },
    /// A new node joins.
    Join { node: usize },
    /// A new node takes the place of one that is permanently gone.
    Replace { host: HostId, heir: usize },
    /// One that is permanently gone is removed.
    Remove { host: HostId },
    /// The keyspaces of the clients get another number of copies.
    Replicate { from: Copies },
    /// One of the keyspaces of the clients goes from the token ring to tablets, the other one back.
    Convert,
    /// A node makes what it has equal to what the other replicas have; then the others that are named do.
    Repair { left: Vec<usize> },
}

/// One operation, and how far the operator is with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    work: Work,
    /// The node that was asked, and the ticket for its answer.
    asked: Option<(usize, u64)>,
    /// Nothing is asked before this time.
    not_before: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Operator {
    operations: Vec<Operation>,
    /// Machines on which no node has run yet.
    unused: Vec<usize>,
    /// Nodes that leave or have left, and nodes that are permanently gone.
    is_going: Vec<bool>,
    looked_at: u64,
}

impl Operator {
    pub(super) fn new(size: usize, spares: usize) -> Self {
        Self {
            unused: (size - spares..size).collect(),
            is_going: vec![false; size],
            ..Self::default()
        }
    }

    /// Whether a node may end at any time, because it leaves.
    pub(super) fn is_going(&self, node: usize) -> bool {
        self.is_going[node]
    }

    pub(super) fn is_idle(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether a node is on its way into the cluster: it serves when it has its data.
    pub(super) fn is_coming(&self, node: usize) -> bool {
        let comes = |operation: &Operation| matches!(operation.work, Work::Join { node: comer } | Work::Replace { heir: comer, .. } if comer == node);
        self.operations.iter().any(comes)
    }

    /// What is under way, for a failure.
    pub(super) fn story(&self) -> String {
        format!("{:?}", self.operations)
    }
}

impl Run<'_> {
    /// Begins what an operator does, if the cluster allows it now. Whether it has begun.
    pub(super) fn begin_operation(&mut self, fault: Fault, node: usize) -> bool {
        if self.operator.operations.len() >= OPERATIONS_MAX {
            return false;
        }
        match fault {
            Fault::Leave => self.begin_leave(node),
            Fault::Replacement => self.begin_replacement(node),
            Fault::Replication => self.begin_replication(node),
            Fault::Kind => self.begin_conversion(),
            Fault::Repair => self.begin_repair(node),
            _ => false,
        }
    }

    fn now(&self) -> u64 {
        self.cluster.sim.now().as_nanos()
    }

    fn add(&mut self, work: Work, wait: Duration) {
        log::info!("simulation: the operator begins {work:?}");
        // The next replicas need not have what those had that were repaired or read.
        if !matches!(work, Work::Repair { .. }) {
            self.clients.history.borrow_mut().begin_change();
        }
        let wait = u64::try_from(wait.as_nanos()).expect("seconds");
        let not_before = self.now() + wait;
        self.operator.operations.push(Operation {
            work,
            asked: None,
            not_before,
        });
    }

    fn host(&mut self, node: usize) -> Option<HostId> {
        let text = self.host_id(node)?;
        text.parse().ok().map(HostId)
    }

    /// Members of a datacenter that stay.
    fn staying(&self, datacenter: usize) -> usize {
        let members = self.clients.members();
        let stays =
            |node: &&usize| self.clients.layout.datacenter(**node) == datacenter && !self.operator.is_going[**node];
        members.iter().filter(stays).count()
    }

    /// Copies of a datacenter, the most that are possible now.
    fn copies(&self, datacenter: usize) -> (usize, usize) {
        let (least, most) = *self.clients.layout.possible.borrow();
        (least.0[datacenter], most.0[datacenter])
    }

    fn take_spare(&mut self, datacenter: usize) -> Option<usize> {
        let layout = &self.clients.layout;
        let at = self
            .operator
            .unused
            .iter()
            .position(|node| layout.datacenter(*node) == datacenter)?;
        Some(self.operator.unused.remove(at))
    }

    fn begin_leave(&mut self, node: usize) -> bool {
        let datacenter = self.clients.layout.datacenter(node);
        let Some(host) = self.host(node) else { return false };
        let is_full = self.clients.inventory.state(host) == Some(NodeState::Normal);
        if self.operator.is_going[node] || self.operator.is_coming(node) || !is_full {
            return false;
        }
        if self.staying(datacenter) <= self.copies(datacenter).1 {
            // Another one must come before.
            let Some(node) = self.take_spare(datacenter) else {
                return false;
            };
            self.start_late(node, None);
            self.add(Work::Join { node }, Duration::ZERO);
            return true;
        }
        self.operator.is_going[node] = true;
        self.add(Work::Leave { node, host }, Duration::ZERO);
        true
    }

    /// Starts a node that was not there before.
    fn start_late(&mut self, node: usize, replaces: Option<Replaced>) {
        // A node does not join where clocks differ, so an operator sets them right before.
        self.set_clocks_right();
        let members = self.clients.members();
        self.cluster.start_late(node, &members, replaces);
        self.may_end[node] = true;
        self.clients.members.borrow_mut().insert(node);
    }

    /// A machine is permanently gone, with its disk. One at a time: two that have what a third one lacks are more than
    /// three copies survive.
    fn begin_replacement(&mut self, node: usize) -> bool {
        let datacenter = self.clients.layout.datacenter(node);
        let is_under_way = self.operator.operations.iter().any(|operation| {
            matches!(
                operation.work,
                Work::Replace { .. } | Work::Remove { .. } | Work::Replicate { .. }
            )
        });
        let (least, most) = self.copies(datacenter);
        let Some(host) = self.host(node) else { return false };
        let is_full = self.clients.inventory.state(host) == Some(NodeState::Normal);
        let moves = self.operator.is_going[node] || self.operator.is_coming(node);
        if is_under_way || least < 2 || moves || !is_full || !self.can_decide_without(node) {
            return false;
        }
        let may_be_removed = self.staying(datacenter) > most;
        let heir = if may_be_removed && self.chance.once_in(2) {
            None
        } else {
            let Some(heir) = self.take_spare(datacenter) else {
                return false;
            };
            Some(heir)
        };
        self.operator.is_going[node] = true;
        self.cluster.crash(node, CrashKind::PowerLoss);
        self.clients.inventory.forget(self.cluster.address(node));
        self.clients.members.borrow_mut().remove(&node);
        self.begin_weak();
        let wait = self.chance.millis(GIVE_UP_WAIT_MILLIS);
        match heir {
            Some(heir) => self.add(Work::Replace { host, heir }, wait),
            None => self.add(Work::Remove { host }, wait),
        }
        true
    }

    /// Whether the metadata group can decide when a node is permanently gone: one of two nodes has the only vote, and a
    /// new one has none at first.
    fn can_decide_without(&self, node: usize) -> bool {
        let stays = |other: &usize| *other != node && !self.operator.is_going[*other];
        let members = self.clients.members();
        let staying: Vec<IpAddr> = members
            .iter()
            .filter(|other| stays(other))
            .map(|other| self.cluster.address(*other))
            .collect();
        self.clients.inventory.is_majority(|voter| staying.contains(&voter))
    }

    fn begin_weak(&mut self) {
        self.clients.history.borrow_mut().begin_weak();
        self.clients.weaken_clocked();
    }

    fn end_weak(&mut self) {
        self.clients.history.borrow_mut().end_weak();
        self.clients.weaken_clocked();
    }

    /// Another number of copies in the datacenter of a node.
    fn begin_replication(&mut self, node: usize) -> bool {
        let datacenter = self.clients.layout.datacenter(node);
        let excludes = |operation: &Operation| {
            matches!(
                operation.work,
                Work::Replicate { .. } | Work::Replace { .. } | Work::Remove { .. }
            )
        };
        let from = self.clients.layout.wanted.get();
        let most = self.staying(datacenter).min(COPIES_MAX);
        // Where nodes are lost permanently, one copy is not enough; nor where a log fails: what was read of a write
        // that its log does not have is gone at the next start.
        let faults = self.scenario.faults;
        let logs_fail = faults.broken_disks || faults.failed_syncs || faults.failing_operations;
        let least = if faults.replacements || logs_fail { 2 } else { 1 };
        if self.operator.operations.iter().any(excludes) || most <= least || from.0[datacenter] == 0 {
            return false;
        }
        let mut to = from;
        to.0[datacenter] = least + self.index(most - least + 1);
        if to == from {
            to.0[datacenter] = if from.0[datacenter] < most { most } else { least };
        }
        let range = |of: fn(usize, usize) -> usize| -> Copies {
            let mut copies = from;
            (0..DATACENTERS).for_each(|at| copies.0[at] = of(from.0[at], to.0[at]));
            copies
        };
        *self.clients.layout.possible.borrow_mut() = (range(usize::min), range(usize::max));
        self.begin_weak();
        self.clients.layout.wanted.set(to);
        self.clients.is_altered.set(false);
        self.add(Work::Replicate { from }, Duration::ZERO);
        true
    }

    fn begin_conversion(&mut self) -> bool {
        let is_conversion = |operation: &Operation| operation.work == Work::Convert;
        if self.operator.operations.iter().any(is_conversion) {
            return false;
        }
        let is_swapped = &self.clients.layout.is_swapped;
        is_swapped.set(!is_swapped.get());
        self.clients.is_altered.set(false);
        self.add(Work::Convert, Duration::ZERO);
        true
    }

    fn begin_repair(&mut self, node: usize) -> bool {
        let is_repair = |operation: &Operation| matches!(operation.work, Work::Repair { .. });
        if self.operator.operations.iter().any(is_repair) {
            return false;
        }
        let mut left = self.clients.members();
        left.retain(|other| !self.operator.is_going[*other] && *other != node);
        left.push(node);
        // All replicas of a range take part, so one node is enough where all have everything.
        if self.scenario.datacenters.len() == 1 && self.copies(0).0 >= left.len() {
            left = vec![node];
        }
        if self.operator.is_idle() {
            self.clients.history.borrow_mut().begin_repair();
        }
        self.add(Work::Repair { left }, Duration::ZERO);
        true
    }

    /// Takes all operations a step further, now and then.
    pub(super) fn operate(&mut self) {
        let now = self.now();
        if self.operator.operations.is_empty() || now < self.operator.looked_at + LOOK_NANOS {
            return;
        }
        self.operator.looked_at = now;
        for node in 0..self.cluster.size() {
            if !self.cluster.is_running(node) {
                self.clients.inventory.forget(self.cluster.address(node));
            }
        }
        for mut operation in std::mem::take(&mut self.operator.operations) {
            if self.is_over(&mut operation) {
                log::info!("simulation: the operator has ended {:?}", operation.work);
            } else {
                self.operator.operations.push(operation);
            }
        }
    }

    /// One step; whether the operation has ended.
    fn is_over(&mut self, operation: &mut Operation) -> bool {
        match operation.work.clone() {
            Work::Leave { node, host } => {
                if self.clients.inventory.state(host) == Some(NodeState::Left) {
                    self.has_left(node);
                    return true;
                }
                if self.cluster.is_running(node) {
                    self.ask(operation, node, "/storage_service/decommission");
                }
            }
            Work::Join { node } => return self.has_joined(node),
            Work::Replace { host, heir } => {
                if operation.not_before > self.now() {
                    return false;
                }
                if !self.clients.is_member(heir) {
                    self.start_late(heir, Some(Replaced::Host(host)));
                }
                if let Some(why) = self.cluster.failure(heir) {
                    log::info!("simulation: node {heir} does not join yet: {why}");
                }
                if self.has_joined(heir) && self.clients.inventory.state(host) == Some(NodeState::Left) {
                    self.end_weak();
                    return true;
                }
            }
            Work::Remove { host } => {
                if self.clients.inventory.state(host) == Some(NodeState::Left) {
                    self.end_weak();
                    return true;
                }
                let members = self.clients.members();
                let by = members[self.index(members.len())];
                let request = format!("/storage_service/remove_node?host_id={}", host.0);
                self.ask(operation, by, &request);
            }
            Work::Replicate { .. } => {
                if self.clients.is_altered.get() && self.clients.inventory.is_placed(self.clients.layout.wanted.get()) {
                    let wanted = self.clients.layout.wanted.get();
                    *self.clients.layout.possible.borrow_mut() = (wanted, wanted);
                    self.end_weak();
                    return true;
                }
            }
            Work::Convert => {
                let has_tablets = |keyspace: usize| self.clients.layout.tablets(keyspace).contains("true");
                let wanted = [("k.", has_tablets(0)), ("d.", has_tablets(1))];
                return self.clients.is_altered.get() && self.clients.inventory.has_kinds(&wanted);
            }
            Work::Repair { left } => return self.repair(operation, left),
        }
        false
    }

    /// Asks a node for something, unless an answer is waited for; again when it failed. Whether it has been done.
    fn ask(&mut self, operation: &mut Operation, node: usize, request: &str) -> bool {
        // One that is permanently gone does not answer.
        operation.asked = operation.asked.filter(|(asked, _)| self.clients.is_member(*asked));
        if let Some((asked, ticket)) = operation.asked {
            let Some(answer) = self.cluster.answer_to(asked, ticket) else {
                return false;
            };
            operation.asked = None;
            operation.not_before = self.now() + RETRY_NANOS;
            return answer.contains(" 200 ");
        }
        if operation.not_before <= self.now() && self.cluster.is_running(node) {
            let ticket = self.cluster.order_apart(node, &format!("POST {request}"));
            operation.asked = Some((node, ticket));
        }
        false
    }

    fn repair(&mut self, operation: &mut Operation, mut left: Vec<usize>) -> bool {
        left.retain(|node| self.clients.is_member(*node) && !self.operator.is_going[*node]);
        let Some(node) = left.last().copied() else {
            return true;
        };
        // What another node answered says nothing of this one.
        operation.asked = operation.asked.filter(|(asked, _)| *asked == node);
        if self.ask(operation, node, "/ceto/repair?kn=k") {
            left.pop();
            operation.not_before = 0;
        }
        let is_over = left.is_empty();
        if is_over && self.clients.history.borrow().awaits_repair() {
            self.clients.history.borrow_mut().end_repair();
        }
        operation.work = Work::Repair { left };
        is_over
    }

    /// A node has left: its process ends by itself.
    fn has_left(&mut self, node: usize) {
        let machine = self.cluster.machine(node);
        self.clients.members.borrow_mut().remove(&node);
        if self.cluster.is_running(node) && !self.cluster.sim.is_paused(machine) {
            let has_ended = self.cluster.sim.run_until_ended(machine, END_WAIT);
            log::info!("simulation: node {node} has left, and has ended: {has_ended}");
        }
        self.cluster.crash(node, CrashKind::Kill);
        self.clients.inventory.forget(self.cluster.address(node));
    }

    /// Whether a node that was started is a full member. One that was refused is started again.
    fn has_joined(&mut self, node: usize) -> bool {
        if self.clients.inventory.is_full_member(self.cluster.address(node)) {
            return true;
        }
        if self.cluster.failure(node).is_some() || !self.cluster.is_running(node) {
            self.set_clocks_right();
            self.cluster.crash(node, CrashKind::Kill);
            self.cluster.restart(node);
        }
        false
    }

    fn set_clocks_right(&mut self) {
        for node in self.clients.members() {
            self.clock_us[node] = 0;
            let machine = self.cluster.machine(node);
            self.cluster.sim.set_clock_skew_us(machine, 0);
        }
    }

    /// What each node that runs says of the operations under way, and what they wait for.
    fn told_of_operations(&mut self) -> String {
        let running: Vec<usize> = self
            .clients
            .members()
            .into_iter()
            .filter(|node| self.cluster.is_running(*node))
            .collect();
        let ask = |node: usize| (node, self.cluster.order_apart(node, "GET /ceto/operations"));
        let tickets: Vec<(usize, u64)> = running.into_iter().map(ask).collect();
        self.cluster.sim.run_for(END_WAIT);
        let told = tickets.into_iter().map(|(node, ticket)| {
            let answer = self
                .cluster
                .answer_to(node, ticket)
                .unwrap_or_else(|| "nothing".to_owned());
            format!("node {node}: {}", body_of(&answer))
        });
        told.collect::<Vec<_>>().join("; ")
    }

    /// Everything that was begun ends, now that nothing strikes.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        let begin = self.cluster.sim.now();
        let end = begin + SETTLE_WAIT_MAX;
        while !self.operator.is_idle() {
            // Tables that are altered again and again are not repaired.
            if self.cluster.sim.now() > begin + WORK_WAIT {
                self.clients.phase.set(Phase::Rest);
            }
            if self.cluster.sim.now() >= end {
                let told = self.told_of_operations();
                return Err(format!(
                    "what the operator began did not end within {SETTLE_WAIT_MAX:?} after all was healed: {}; nodes say: {told}",
                    self.operator.story()
                ));
            }
            self.start_what_ended();
            self.slice();
            self.verdict()?;
        }
        Ok(())
    }
}
