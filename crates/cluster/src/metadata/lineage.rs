//! What a node and its peers say of the metadata's history and of the node's runs, and what follows.
//!
//! **Histories.** Each detector message carries the sender's last index and history, and its history at the last index
//! that it heard from the receiver. A node that differs from a peer at an index withdraws from the metadata group,
//! unless it knows that more than half of the voters have its history up to that index: then the peer is the one that
//! withdraws. While a node is withdrawn it changes nothing, grants no vote, and admits no node. It still serves reads
//! and writes.
//!
//! **Runs.** Each start of a node has a random name. The group notes it by a command, and the node's own log keeps the
//! names of its last starts. A directory whose log does not have the name that the group noted last is older than what
//! ran last. So a node asks its peers before it serves which run they know; each detector message answers that once
//! more; and the command itself is refused when another run was noted since.

use crate::config::Config;
use crate::error::ChangeError;
use crate::members::peers::raft_id;
use crate::members::start::place;
use crate::messages::wire::{self, State};
use crate::metadata::command::Command;
use crate::metadata::history::History;
use crate::metadata::{Metadata, Run};
use crate::service::Cluster;
use consensus::Part;
use rpc::Rpc;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use stdx::planted::{self, Bug};
use topology::HostId;

/// How long a node that comes back waits for its peers to say which run of it they know; it serves without them.
pub(crate) const RUN_TIMEOUT: Duration = Duration::from_millis(300);

/// What a detector message says of histories and runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lineage {
    /// The last index that the sender has applied, and its history there.
    pub(crate) last: (u64, History),
    /// The sender's history at the last index that the receiver said.
    pub(crate) at_yours: Option<(u64, History)>,
    /// The receiver's last run, as the sender knows it.
    pub(crate) your_run: Run,
}

/// Whether the group has noted a run of a member that is not among those that its directory has had: the directory is
/// older, or the node has rejoined since.
pub(crate) fn is_older(noted: Run, generation: u32, runs: &[u64]) -> bool {
    if planted::is_planted(Bug::UncheckedRun) {
        return false;
    }
    noted.generation > generation || (noted.generation == generation && noted.name != 0 && !runs.contains(&noted.name))
}

/// Why a node may not continue from its files: whatever it acknowledged since would be lost.
pub(crate) fn older_directory(host_id: HostId, noted: Run, generation: u32) -> String {
    let why = if noted.generation > generation {
        format!(
            "node {host_id} has since rejoined with new metadata (ceto recover-metadata --rejoin), from another copy of the directory"
        )
    } else {
        format!("the cluster has noted a start of node {host_id} that this directory knows nothing of")
    };
    format!(
        "The data directory is older than what ran last: {why}. It was restored from a backup, or a copy of it ran elsewhere. Nothing was changed. Start the node \
         from the directory that ran last; if that one is lost, start a new node on an empty one and remove this one (ceto nodetool removenode)."
    )
}

/// What members say that know which run of this node the group noted last.
pub(crate) async fn ask_runs(config: &Config, rpc: &Rc<Rpc>, metadata: &Metadata) -> Vec<Run> {
    let members = metadata.topology.members();
    let asked: Vec<_> = members
        .filter(|node| node.host_id != config.host_id)
        .map(|node| {
            let (host, to, rpc) = (node.host_id, place(config, node.internode), rpc.clone());
            runtime::spawn(async move {
                match rpc.ask(to, wire::RUN, Vec::new(), RUN_TIMEOUT).await {
                    Ok((found, Ok(answer))) if found == host.0 => wire::decode_run(&answer).ok(),
                    _ => None,
                }
            })
        })
        .collect();
    let mut runs = Vec::new();
    for answer in asked {
        runs.extend(answer.await);
    }
    runs
}

impl Cluster {
    fn generation(&self) -> u32 {
        let (generation, _) = crate::members::peers::parts(self.own_raft_id);
        generation
    }

    /// Takes what a peer says of histories and of this node's run.
    pub(crate) fn on_lineage(&self, from: HostId, state: &State) {
        let metadata = self.metadata();
        if !metadata.topology.members().any(|node| node.host_id == from) {
            return;
        }
        let raft = self.consensus.status();
        let noted = state.lineage.map(|lineage| lineage.your_run);
        if let Some(noted) = noted.filter(|noted| is_older(*noted, self.generation(), &raft.runs)) {
            return self.refuse_older(noted);
        }
        if self.awaits_peer.replace(false) {
            log::info!("node {from} knows no later run of this node: it takes part in the metadata group");
            self.decide_part();
        }
        if let Some(lineage) = state.lineage
            && !planted::is_planted(Bug::UncomparedHistory)
        {
            let mut comparisons = self.peers.comparisons.borrow_mut();
            let own = self.machine.histories.borrow();
            comparisons.note(from, &own, lineage.last, lineage.at_yours);
            drop((comparisons, own));
            self.decide_part();
        }
    }

    /// This process runs on an older directory: it stops taking part, and ends.
    fn refuse_older(&self, noted: Run) {
        let reason = older_directory(self.config.host_id, noted, self.generation());
        self.consensus.take_part(Part::Withdrawn(reason.clone()));
        self.fail(reason);
    }

    /// The part in the metadata group that follows from what is known.
    pub(crate) fn decide_part(&self) {
        let former = self.withdrawn.borrow().clone();
        // The first reason is kept as long as the node is withdrawn, so that it is logged once.
        let why = self.differs_from_most().map(|why| former.clone().unwrap_or(why));
        if former != why {
            match &why {
                Some(why) => log::error!("{why}"),
                None => log::info!(
                    "a majority of the voters has this node's metadata: it takes part in the metadata group again"
                ),
            }
            self.withdrawn.borrow_mut().clone_from(&why);
        }
        if self.is_fatal.get() {
            return;
        }
        let part = match why {
            Some(why) => Part::Withdrawn(why),
            None if self.awaits_peer.get() => Part::Silent,
            None => Part::Full,
        };
        if self.consensus.status().part != part {
            self.consensus.take_part(part);
        }
    }

    /// Why this node withdraws, if it does: it differs from a peer, and no majority of the voters is known to have its
    /// history.
    fn differs_from_most(&self) -> Option<String> {
        let raft = self.consensus.status();
        let comparisons = self.peers.comparisons.borrow();
        let differing: Vec<(HostId, u64)> = comparisons.differing().collect();
        let (peer, index) = *differing.iter().min_by_key(|(host, index)| (*index, *host))?;
        let metadata = self.metadata();
        let agrees = |id: &&u64| {
            **id == self.own_raft_id
                || metadata
                    .host_of(**id)
                    .is_some_and(|host| comparisons.agrees(host, index))
        };
        let agreeing = raft.voters.iter().filter(agrees).count();
        let has_majority = agreeing * 2 > raft.voters.len();
        let mut told = self.told_differing.borrow_mut();
        told.retain(|host| differing.iter().any(|(differs, _)| differs == host));
        if !has_majority {
            return Some(self.describe_difference(peer, index, false));
        }
        for (peer, index) in differing {
            if told.insert(peer) {
                log::error!("{}", self.describe_difference(peer, index, true));
            }
        }
        None
    }

    fn describe_difference(&self, peer: HostId, index: u64, has_majority: bool) -> String {
        let metadata = self.metadata();
        let own = self.config.host_id;
        let named = |host: HostId| match metadata.topology.node(host) {
            Some(node) => format!("node {host} at {}", node.internode),
            None => format!("node {host}"),
        };
        let both = format!(
            "the metadata of this node ({}) and of {} differ: they applied different changes at index {index} or before it",
            named(own),
            named(peer)
        );
        if has_majority {
            return format!(
                "{both}. A majority of the voters has this node's metadata, so this node continues, and the other one makes no more changes. Stop node {peer}, and \
                 see `ceto page metadata-differs`"
            );
        }
        format!(
            "{both}. No majority of the voters is known to have this node's metadata, so this node makes no changes of schema, members or tablets, gives \
             no votes and admits no nodes; reads and writes continue. See `ceto page metadata-differs`"
        )
    }

    /// The members whose metadata is known to differ from this node's, and the lowest index at which it does.
    #[must_use]
    pub fn differing(&self) -> Vec<(HostId, u64)> {
        self.peers.comparisons.borrow().differing().collect()
    }

    /// Makes the group note this run of the node. False when the node ends because a later one was noted.
    pub(crate) async fn note_run(&self) -> bool {
        let metadata = self.metadata();
        let raft = self.consensus.status();
        let Some(noted) = metadata.run_of(self.config.host_id) else {
            return true;
        };
        if is_older(noted, self.generation(), &raft.runs) {
            self.refuse_older(noted);
            return false;
        }
        let Some(name) = raft.runs.last().copied().filter(|name| *name != noted.name) else {
            return true;
        };
        let command = Command::Run {
            host_id: self.config.host_id,
            generation: self.generation(),
            former: noted.name,
            name,
        };
        match self.propose(command).await {
            Ok(_) => log::info!("the cluster has noted this start of the node"),
            // The next turn handles what was noted during this one.
            Err(ChangeError::Conflict) => {}
            Err(error) => log::debug!("this run of the node is not noted yet: {error}"),
        }
        true
    }
}

/// Whether a node may vote before a peer has spoken to it: when it votes alone, or a member has said that it knows no
/// later run.
pub(crate) fn may_vote_at_once(voters: &[u64], own: u64, answers: &[Run]) -> bool {
    voters == [own] || !answers.is_empty()
}

/// The addresses of the other members, for a node that looks for one that answers.
pub(crate) fn addresses(metadata: &Metadata, own: HostId) -> BTreeSet<SocketAddr> {
    let others = metadata.topology.members().filter(|node| node.host_id != own);
    others.map(|node| node.internode).collect()
}

/// The Raft id that a node has, by its number and generation.
pub(crate) fn own_raft_id(metadata: &Metadata, host_id: HostId) -> Option<u64> {
    let number = metadata.topology.number(host_id)?;
    Some(raft_id(number, metadata.generation_of(number)))
}
