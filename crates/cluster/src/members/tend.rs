//! Tasks while a node is a member: members are let in and get their places, the group gets its members and voters, and
//! a node keeps its own entry true.
//!
//! **Places.** A node that joins takes its tokens, and owns nothing yet: the token ring begins to change (`ring.rs`).
//! When the change ends, the node has copied its ranges and is a full member. One that takes no tokens
//! (`auto_bootstrap: false`) is one at once. Tablets move to it afterwards (`balancer.rs`), except to a zero-token node
//! (`join_ring: false`).

use crate::config::NEWCOMERS_MAX;
use crate::error::ChangeError;
use crate::members::peers::{node_number, raft_id};
use crate::members::start::{facts, has_identity_elsewhere, restart_commands, wanted_tokens};
use crate::messages::wire::JoinAnswer;
use crate::metadata::command::Command;
use crate::service::{Cluster, HAND_OVER_WAIT};
use crate::tablets::rack_rules::RACK_OPTION;
use consensus::{Change, LostEntries, Member, VOTERS_MAX, changes_towards, choose_voters};
use runtime::Notified;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use topology::{Admission, HostId, JoinRequest, NodeNumber, NodeState, TopologyCommand, admit};

/// Between two looks of the leader at the members.
const LEADER_INTERVAL: Duration = Duration::from_millis(250);
/// Between two looks of a node at its own entry.
const OWN_INTERVAL: Duration = Duration::from_secs(1);
/// A node looks for members that do not answer, which may be elsewhere now, in every so many of these looks.
const LOST_TURNS: u32 = 5;
/// How long the group may take for one change of its members.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node that joins waits for its place before it serves clients without.
const PLACE_WAIT: Duration = Duration::from_secs(30);
/// How long a node that has left waits until it has no vote any more. It may never hear of that.
const VOTE_WAIT: Duration = Duration::from_secs(10);
/// Between leaving and stopping.
const LEFT_DELAY: Duration = Duration::from_secs(2);
/// Between two attempts to get its place.
const PLACE_INTERVAL: Duration = Duration::from_millis(300);
/// Entries that a learner may lag and still get a vote.
const LAG_MAX: u64 = 64;

/// How far a node has come with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Settlement {
    /// It has all that it will get.
    Taken,
    /// A step of it is done, and another follows.
    Advanced,
    /// Not yet, for this reason.
    Waiting(String),
}

impl Cluster {
    /// What runs as soon as the group does.
    pub(crate) fn spawn_shared(self: &Rc<Self>) {
        drop(runtime::spawn(self.clone().run_detector()));
        drop(runtime::spawn(self.clone().run_clock()));
        drop(runtime::spawn(self.clone().run_service()));
        drop(runtime::spawn(self.clone().run_broadcast()));
        drop(runtime::spawn(self.clone().run_drain()));
        drop(runtime::spawn(self.clone().run_leader()));
        drop(runtime::spawn(self.clone().run_mover()));
        drop(runtime::spawn(self.clone().run_balancer()));
        drop(runtime::spawn(self.clone().run_forgetting()));
    }

    /// What runs once the node is in.
    pub(crate) fn spawn_own(self: &Rc<Self>) {
        drop(runtime::spawn(self.clone().run_own()));
    }

    async fn run_detector(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let rest = self.peers.tick();
            self.rest(rest).await;
        }
    }

    async fn run_broadcast(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let changed: Notified = self.machine.changed.notified();
            self.peers.set_members();
            self.peers.mind_fence();
            self.peers.broadcast();
            self.peers.tend.notify_all();
            self.peers.heard.notify_all();
            changed.await;
        }
    }

    /// Sleeps, unless the node stops.
    pub(crate) async fn rest(&self, duration: Duration) {
        let stopped = self.stop.notified();
        if !self.is_stopping.get() {
            let _ = runtime::timeout(duration, stopped).await;
        }
    }

    /// Decides about a node that asks to be let in, and whose request came when this node's clock was at `arrived`.
    pub(crate) async fn admit(&self, request: JoinRequest, arrived: Duration) -> JoinAnswer {
        if let Err(error) = self.barrier().await {
            return JoinAnswer::Later(error.to_string());
        }
        let metadata = self.metadata();
        if metadata.topology.node(request.node.host_id).is_none() && self.peers.newcomers() >= NEWCOMERS_MAX {
            return JoinAnswer::Later(format!("{NEWCOMERS_MAX} nodes have joined and do not serve yet"));
        }
        let facts = facts(self.peers.live(), arrived, &self.config);
        let commands = match admit(&metadata.topology, &request, &facts) {
            Ok(Admission::Join { commands, .. } | Admission::Restart { commands }) => commands,
            Err(refusal) => return JoinAnswer::Refused(refusal.to_string()),
        };
        let given_up = commands.iter().find_map(|command| match command {
            TopologyCommand::GiveUp { host_id, .. } => Some(*host_id),
            _ => None,
        });
        if let Some(host) = given_up
            && let Err(why) = self.why_not_replaced(&metadata, host).await
        {
            return JoinAnswer::Refused(why);
        }
        // Together, and not one by one: they may not come back.
        let mut ignored: Vec<HostId> = Vec::new();
        let commands: Vec<TopologyCommand> = commands
            .into_iter()
            .filter(|command| match command {
                TopologyCommand::Exclude { host_id } => {
                    ignored.push(*host_id);
                    false
                }
                _ => true,
            })
            .collect();
        match self.exclude_nodes(&ignored).await {
            Ok(()) => {}
            Err(ChangeError::Refused(why)) => {
                return JoinAnswer::Refused(format!(
                    "The nodes of ignore_dead_nodes_for_replace are not excluded: {why}."
                ));
            }
            Err(error) => return JoinAnswer::Later(error.to_string()),
        }
        for command in commands {
            let command = match command {
                // It takes its tokens itself, when it can copy.
                TopologyCommand::AddNode(mut node) => {
                    node.tokens.clear();
                    TopologyCommand::AddNode(node)
                }
                other => other,
            };
            let command = Command::Topology(command);
            // One that never holds anything adds no rack.
            let adds_rack = request.joins_ring && matches!(command, Command::Topology(TopologyCommand::AddNode(_)));
            let command = if adds_rack { self.rack_valid(command) } else { command };
            match self.propose(command).await {
                Ok(_) => {}
                Err(ChangeError::Rejected(why)) if why.contains(RACK_OPTION) => return JoinAnswer::Refused(why),
                Err(error) => return JoinAnswer::Later(error.to_string()),
            }
        }
        JoinAnswer::Welcome(self.metadata().encode())
    }

    /// One step of this node towards its place.
    async fn settle(&self) -> Settlement {
        let metadata = match self.barrier().await {
            Ok(metadata) => metadata,
            Err(error) => return Settlement::Waiting(error.to_string()),
        };
        let host_id = self.config.host_id;
        let Some(node) = metadata
            .topology
            .node(host_id)
            .filter(|node| node.state == NodeState::Joining)
        else {
            return Settlement::Taken;
        };
        let command = if !self.config.joins_ring {
            TopologyCommand::BecomeZeroToken { host_id }
        } else if !self.config.auto_bootstrap {
            // Without tokens it owns nothing of the ring.
            TopologyCommand::SetState {
                host_id,
                state: NodeState::Normal,
            }
        } else if node.tokens.is_empty() {
            let replaced = metadata.topology.replaced_by(host_id);
            let tokens = replaced
                .map(|(_, other)| other.tokens.clone())
                .filter(|tokens| !tokens.is_empty());
            TopologyCommand::SetTokens {
                host_id,
                tokens: tokens.unwrap_or_else(|| wanted_tokens(&self.config)),
            }
        } else {
            return Settlement::Waiting("it copies its ranges of the token ring".to_owned());
        };
        match self.propose(Command::Topology(command)).await {
            Ok(_) => Settlement::Advanced,
            Err(error) => Settlement::Waiting(error.to_string()),
        }
    }

    /// Waits until a node that joined has its place. The node continues without it if that takes too long, as copying
    /// may.
    ///
    /// It meets its peers before it asks for tokens: requests need the answer of a node that is to own a range, and a
    /// coordinator that does not take it for up yet would refuse them.
    pub(crate) async fn take_place(self: &Rc<Self>) {
        if !self.is_joining() {
            return;
        }
        self.meet_peers().await;
        let begun = runtime::now();
        let mut said = String::new();
        while !self.is_stopping.get() {
            match self.settle().await {
                Settlement::Taken => {
                    log::info!("this node is a full member of the cluster");
                    return;
                }
                Settlement::Advanced => {}
                Settlement::Waiting(reason) if runtime::now() - begun >= PLACE_WAIT => {
                    log::warn!(
                        "this node has no place in the cluster yet, and serves clients from what the others have: {reason}"
                    );
                    return;
                }
                Settlement::Waiting(reason) => {
                    if said != reason {
                        log::info!("this node waits for its place in the cluster: {reason}");
                        said = reason;
                    }
                    self.rest(PLACE_INTERVAL).await;
                }
            }
        }
    }

    fn is_joining(&self) -> bool {
        let metadata = self.metadata();
        let node = metadata.topology.node(self.config.host_id);
        node.is_some_and(|node| node.state == NodeState::Joining)
    }

    /// Keeps this node's entry true, and gets its place if it has none yet.
    async fn run_own(self: Rc<Self>) {
        let mut turn = 0_u32;
        let mut has_met = false;
        while !self.is_stopping.get() && !self.is_fatal.get() {
            self.tend_own(turn).await;
            self.say_serving().await;
            turn = turn.wrapping_add(1);
            if !self.is_fatal.get() && self.is_joining() {
                if !has_met {
                    self.meet_peers().await;
                    has_met = true;
                }
                drop(self.settle().await);
            }
            self.rest(OWN_INTERVAL).await;
        }
    }

    async fn tend_own(&self, turn: u32) {
        let status = self.consensus.status();
        if let Some(epoch) = status.superseded_by {
            return self.fail(format!(
                "this node was given up when the cluster's metadata was recovered from a lost majority (epoch {epoch}); start it on an empty data \
                 directory to join as a new one"
            ));
        }
        if let Some(lost) = status.lost_entries {
            let metadata = self.metadata();
            let leader = node_number(lost.leader).and_then(|number| metadata.topology.numbered(number));
            let leader = leader.map_or_else(
                || format!("of Raft id {}", lost.leader),
                |node| node.host_id.to_string(),
            );
            return self.fail(older_directory(self.config.host_id, &leader, lost));
        }
        if self.knows_it_has_left() {
            self.give_vote_away().await;
            // The caller that made it leave gets its answer first.
            self.rest(LEFT_DELAY).await;
            return self.end_as_left();
        }
        self.decide_part();
        let mut elsewhere = None;
        let is_alone = status.leader.is_none();
        if is_alone || (self.has_lost_member() && turn.is_multiple_of(LOST_TURNS)) {
            elsewhere = self.find_members().await;
            self.peers.broadcast();
        }
        let metadata = self.metadata();
        if let Err(reason) = restart_commands(&self.config, &metadata) {
            return self.fail(format!("this node cannot continue: {reason}"));
        }
        let registered = metadata.topology.node(self.config.host_id).map(|node| node.internode);
        for address in registered.into_iter().chain(elsewhere) {
            if address != self.config.internode
                && has_identity_elsewhere(&self.config, &self.rpc, self.config.host_id, address, self.incarnation).await
            {
                return self.fail(format!(
                    "host id {} is alive at {address} too, and two nodes may not have one identity: this one, at {}, stops",
                    self.config.host_id, self.config.internode
                ));
            }
        }
        if !self.note_run().await {
            return;
        }
        // Commands of an earlier run of this node that were still on their way precede the note of this run in the log.
        let commands = match restart_commands(&self.config, &self.metadata()) {
            Ok(commands) => commands,
            Err(reason) => return self.fail(format!("this node cannot continue: {reason}")),
        };
        for command in commands {
            if let Err(error) = self.propose(Command::Topology(command)).await {
                log::debug!("the node's entry is not up to date yet: {error}");
                return;
            }
        }
    }

    /// Waits until this node, which has left, does not vote any more: others could decide nothing without it.
    async fn give_vote_away(&self) {
        let deadline = runtime::now() + VOTE_WAIT;
        while self.consensus.status().voters.contains(&self.own_raft_id) {
            self.rest(LEADER_INTERVAL).await;
            if runtime::now() >= deadline || self.is_stopping.get() {
                return;
            }
        }
    }

    fn own_state(&self) -> Option<NodeState> {
        let metadata = self.metadata();
        metadata.topology.node(self.config.host_id).map(|node| node.state)
    }

    /// Whether this node gives its tablets away, by its own metadata.
    pub(crate) fn is_leaving(&self) -> bool {
        self.own_state() == Some(NodeState::Leaving)
    }

    /// Whether this node has left, by its own metadata or, where it was leaving, by the word of a member.
    pub(crate) fn knows_it_has_left(&self) -> bool {
        self.is_told_left.get() || self.own_state() == Some(NodeState::Left)
    }

    fn has_lost_member(&self) -> bool {
        let metadata = self.metadata();
        metadata
            .topology
            .members()
            .any(|node| !self.peers.is_live(node.host_id))
    }

    async fn run_leader(self: Rc<Self>) {
        let mut tend = self.peers.tend.notified();
        while !self.is_stopping.get() {
            // At once after a change, for a node that was let in waits to be in the group; else now and then.
            let _ = runtime::timeout(LEADER_INTERVAL, tend).await;
            tend = self.peers.tend.notified();
            if self.leads()
                && let Err(reason) = self.tend_group().await
            {
                log::debug!("the metadata group's members are not as they should be yet: {reason}");
            }
        }
    }

    /// What the leader maintains: all members of the topology are in the group, no other node is, the right ones vote,
    /// and no node that is gone holds tokens.
    async fn tend_group(&self) -> Result<(), String> {
        let status = self.consensus.status();
        let next = match self.voters_wanted(&status) {
            wanted if wanted.is_empty() => Next::Changes(Vec::new()),
            wanted => next_voters(&status.voters, &wanted, self.own_raft_id, |id| self.is_live_member(id)),
        };
        let changes = match next {
            Next::HandOver(candidates) => {
                return if self.consensus.hand_over(candidates, HAND_OVER_WAIT).await {
                    Ok(())
                } else {
                    Err("no other member leads the group yet".to_owned())
                };
            }
            Next::Changes(changes) => changes,
        };
        let [new, gone] = self.member_changes(&status);
        // One that is gone loses its vote before its place: a group of an odd number of voters goes from one to the
        // next.
        if let Some(changes) = [new, changes, gone].into_iter().find(|changes| !changes.is_empty()) {
            let changed = self.consensus.change_members(changes, MEMBERS_TIMEOUT).await;
            return changed.map_err(|e| e.to_string());
        }
        let metadata = self.metadata();
        let features = metadata.topology.features_to_enable();
        if !features.is_empty() {
            let command = Command::Topology(TopologyCommand::EnableFeatures(features));
            self.propose(command).await.map_err(|e| e.to_string())?;
        }
        for node in metadata.topology.members() {
            let is_given_up = node.state == NodeState::Joining
                && !node.tokens.is_empty()
                && self.peers.down_for(node.host_id) >= self.config.give_up_joining_after;
            if is_given_up {
                let command = TopologyCommand::SetTokens {
                    host_id: node.host_id,
                    tokens: Vec::new(),
                };
                self.propose(Command::Topology(command))
                    .await
                    .map_err(|e| e.to_string())?;
            } else if node.state == NodeState::Joining
                && self.peers.has_vanished(node.host_id, self.config.forget_joining_after)
            {
                log::warn!(
                    "node {} joined, never served, and has been away for {} s: it is removed",
                    node.host_id,
                    self.config.forget_joining_after.as_secs()
                );
                let command = TopologyCommand::RemoveNode { host_id: node.host_id };
                self.propose(Command::Topology(command))
                    .await
                    .map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    fn is_live_member(&self, raft_id: u64) -> bool {
        let host = self.metadata().host_of(raft_id);
        host.is_some_and(|host| host == self.config.host_id || self.peers.is_live(host))
    }

    /// Whether a node votes in the metadata group, as far as this member knows.
    pub(crate) fn votes(&self, number: NodeNumber) -> bool {
        let id = raft_id(number, self.metadata().generation_of(number));
        self.consensus.status().voters.contains(&id)
    }

    /// The changes that add members to the group as learners, and those that remove members. A node that does not hear
    /// yet waits: the snapshot for it would be lost, and is sent again only after a while.
    fn member_changes(&self, status: &consensus::Status) -> [Vec<Change>; 2] {
        let metadata = self.metadata();
        let nodes = metadata.topology.numbered_nodes();
        let members: BTreeSet<u64> = nodes
            .filter(|(_, node)| node.state != NodeState::Left && !metadata.topology.is_excluded(node.host_id))
            .map(|(number, _)| raft_id(number, metadata.generation_of(number)))
            .collect();
        let present: BTreeSet<u64> = status.voters.iter().chain(&status.learners).copied().collect();
        let hears = |id: &&u64| metadata.host_of(**id).is_some_and(|host| self.peers.has_spoken(host));
        let new = members
            .difference(&present)
            .filter(hears)
            .map(|id| Change::Learner(*id));
        let gone = present.difference(&members).filter(|id| **id != self.own_raft_id);
        // A voter goes only when others remain; the next look takes the rest.
        let remains = status.voters.iter().any(|id| members.contains(id));
        let gone = gone.filter(|_| remains).map(|id| Change::Remove(*id));
        [new.collect(), gone.collect()]
    }

    /// The members that are to vote; empty where none can. A leaving node keeps its vote while no other member takes it
    /// and the node still has anything to give away. Afterwards it has no vote if another member can vote: what the
    /// group decides then does not need it.
    ///
    /// A node that replaces a voter votes as soon as it has the log: the group is no worse off with it than with a lost
    /// voter. And no vote is given up while a new member may get one in a moment: if one of three voters is lost and
    /// another gives its vote up, the one that is left alone knows everything.
    fn voters_wanted(&self, status: &consensus::Status) -> BTreeSet<u64> {
        let metadata = self.metadata();
        let current: BTreeSet<u64> = status.voters.iter().copied().collect();
        let takes_over = |host: HostId| {
            let lost = metadata.topology.replaced_by(host);
            lost.is_some_and(|(number, _)| current.contains(&raft_id(number, metadata.generation_of(number))))
        };
        let (mut able, mut lasting) = (Vec::new(), Vec::new());
        let (mut leaving, mut last) = (Vec::new(), Vec::new());
        let mut is_one_coming = false;
        for (number, node) in metadata.topology.numbered_nodes() {
            let id = raft_id(number, metadata.generation_of(number));
            let is_gone = node.state == NodeState::Left || metadata.topology.is_excluded(node.host_id);
            if is_gone {
                continue;
            }
            let is_live = self.is_live_member(id);
            if !current.contains(&id) {
                let is_caught_up = status.lag.get(&id).is_some_and(|lag| *lag <= LAG_MAX);
                let has_served = self.peers.has_served(node.host_id) || takes_over(node.host_id);
                if !(is_live && is_caught_up && has_served && status.learners.contains(&id)) {
                    is_one_coming |=
                        node.state != NodeState::Leaving && self.peers.down_for(node.host_id) < self.config.vote_after;
                    continue;
                }
            }
            let member = Member {
                id,
                datacenter: node.location.datacenter.clone(),
                rack: node.location.rack.clone(),
                is_down: !is_live,
            };
            if node.state == NodeState::Leaving || node.loss.is_some() {
                let heir = node.loss.and_then(|loss| loss.replaced_by);
                is_one_coming |= heir.is_some_and(|heir| metadata.topology.node(heir).is_none());
                if metadata.has_given_all(number) {
                    last.push(member)
                } else {
                    leaving.push(member)
                }
                continue;
            }
            if self.peers.down_for(node.host_id) < self.config.replace_voter_after {
                lasting.push(member.clone());
            }
            able.push(member);
        }
        if is_one_coming {
            leaving.append(&mut last);
        }
        let wanted = choose_lasting(&current, &able, &lasting);
        able.append(&mut leaving.clone());
        lasting.append(&mut leaving);
        let with_leaving = choose_lasting(&current, &able, &lasting);
        match (wanted.len() >= with_leaving.len(), with_leaving.is_empty()) {
            (_, true) => choose_voters(&last, &current),
            (true, _) => wanted,
            (false, _) => with_leaving,
        }
    }
}

/// The leader's next step to change the voters.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Next {
    /// It makes these changes.
    Changes(Vec<Change>),
    /// It has one of these lead, which takes its vote from it.
    HandOver(Vec<u64>),
}

/// How `current` voters become the ones that are `wanted`.
///
/// A leader does not remove its own vote: once that is decided it leads no member any more, and the members that vote
/// then may not have heard of it yet. It first lets others vote, and then lead. No change is made after which too few
/// voters are alive to decide anything.
fn next_voters(current: &[u64], wanted: &BTreeSet<u64>, leader: u64, is_live: impl Fn(u64) -> bool) -> Next {
    let current: BTreeSet<u64> = current.iter().copied().collect();
    let mut target = wanted.clone();
    if current.contains(&leader) && !wanted.contains(&leader) {
        let heirs: Vec<u64> = wanted
            .intersection(&current)
            .copied()
            .filter(|id| is_live(*id))
            .collect();
        if !heirs.is_empty() {
            return Next::HandOver(heirs);
        }
        if target.len() == VOTERS_MAX {
            let last = target.difference(&current).last().copied();
            last.map(|last| target.remove(&last));
        }
        target.insert(leader);
    }
    let living = target.iter().filter(|id| is_live(**id)).count();
    if 2 * living > target.len() {
        Next::Changes(changes_towards(&current, &target))
    } else {
        Next::Changes(Vec::new())
    }
}

/// Why a node may not continue from its files: whatever it acknowledged since would be lost with what the metadata log
/// lacks.
fn older_directory(host_id: HostId, leader: &str, lost: LostEntries) -> String {
    format!(
        "The data directory is older than what ran last as node {host_id}: its metadata log ends at {}, and the node has acknowledged changes up to {}, as \
         node {leader} says, which leads the metadata group. A copy of it ran elsewhere, it was restored from a backup, or its disk lost what it had synced. Nothing was changed. Start the node from the \
         directory that ran last; if that one is lost, start a new node on an empty one.",
        lost.last, lost.promised
    )
}

/// Voters that have been down for long lose their vote to other members, and keep it if no other can take it: fewer
/// voters survive fewer losses.
fn choose_lasting(current: &BTreeSet<u64>, able: &[Member], lasting: &[Member]) -> BTreeSet<u64> {
    let wanted = choose_voters(able, current);
    let without_lost = choose_voters(lasting, current);
    let wanted = if without_lost.len() >= wanted.len() {
        without_lost
    } else {
        wanted
    };
    debug_assert!(wanted.len() <= VOTERS_MAX, "the choice knows the limit");
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(current: &[u64], wanted: &[u64], down: &[u64]) -> Next {
        next_voters(current, &wanted.iter().copied().collect(), 1, |id| !down.contains(&id))
    }

    fn changes(changes: &[Change]) -> Next {
        Next::Changes(changes.to_vec())
    }

    #[test]
    fn a_leader_that_loses_its_vote_has_another_voter_lead_before() {
        assert_eq!(next(&[1, 2, 3], &[2, 3, 4], &[]), Next::HandOver(vec![2, 3]));
        assert_eq!(next(&[1, 2, 3], &[2, 3, 4], &[2]), Next::HandOver(vec![3]));
    }

    #[test]
    fn a_leader_that_votes_alone_has_another_vote_before_it_loses_its_vote() {
        assert_eq!(next(&[1], &[3], &[]), changes(&[Change::Voter(3)]));
        assert_eq!(next(&[1, 3], &[3], &[]), Next::HandOver(vec![3]));
        let all_others = next(&[1], &[2, 3, 4, 5, 6], &[]);
        let four = [2, 3, 4, 5].map(Change::Voter);
        assert_eq!(all_others, changes(&four), "five vote at most");
    }

    #[test]
    fn no_change_leaves_too_few_living_voters() {
        assert_eq!(next(&[1, 2, 3], &[1, 2, 3], &[]), changes(&[]));
        assert_eq!(
            next(&[1, 2, 3], &[1, 3, 4], &[3, 4]),
            changes(&[]),
            "one of three would answer"
        );
        let one_is_down = [Change::Voter(4), Change::Learner(2)];
        assert_eq!(next(&[1, 2, 3], &[1, 3, 4], &[3]), changes(&one_is_down));
    }
}
