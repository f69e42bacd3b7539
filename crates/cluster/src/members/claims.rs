//! What other nodes claim, and whether a member confirms it.
//!
//! A message names its sender, and what it says may end this node or move its log. Two claims are not believed at once:
//!
//! - *I am a member.* A node that was away does not know which nodes joined in the meantime, and the leader may be one
//!   of them. So it asks the members that it knows for the members that they know (`WHO`), and takes the stranger's
//!   messages of the group when one of them names it.
//! - *You have left.* A node that was removed does not hear of it from the group. So it asks the member that says so,
//!   at the address where the group has it, and stops when that one does not count it among the members.

use crate::messages::wire::{self, Who};
use crate::service::Cluster;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use topology::{HostId, NodeState};

/// Strangers that are remembered as members.
const VOUCHED_MAX: usize = 4096;
/// How long a member may take to name the members that it knows.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two rounds of questions about strangers.
const ASK_PAUSE: Duration = Duration::from_secs(1);

/// The claims that this node has looked into.
#[derive(Default)]
pub(crate) struct Claims {
    /// Members that another member has named and that the group's log has not brought to this node yet.
    vouched: RefCell<BTreeSet<HostId>>,
    is_asking: Cell<bool>,
    is_doubting: Cell<bool>,
}

impl Cluster {
    /// Whether a member has named this node as another.
    pub(crate) fn is_vouched(&self, host: HostId) -> bool {
        self.claims.vouched.borrow().contains(&host)
    }

    /// Asks the members that this node knows for the members that they know, unless it is doing so already.
    pub(crate) fn ask_about_strangers(self: &Rc<Self>) {
        if self.claims.is_asking.replace(true) {
            return;
        }
        let cluster = self.clone();
        drop(runtime::spawn(async move {
            let metadata = cluster.metadata();
            let others = metadata.topology.members().map(|node| node.host_id);
            for host in others.filter(|host| *host != cluster.config.host_id) {
                let Some(known) = cluster.ask_member(host, false).await else {
                    continue;
                };
                let mut vouched = cluster.claims.vouched.borrow_mut();
                vouched.retain(|host| metadata.topology.node(*host).is_none());
                let strangers = known.into_iter().filter(|host| metadata.topology.node(*host).is_none());
                for stranger in strangers {
                    if vouched.len() < VOUCHED_MAX && vouched.insert(stranger) {
                        log::info!("node {host} names {stranger} as a member, of which this node has not heard yet");
                    }
                }
            }
            cluster.rest(ASK_PAUSE).await;
            cluster.claims.is_asking.set(false);
        }));
    }

    /// A node says that this one has left; it stops when that is so.
    pub(crate) fn doubt_membership(self: &Rc<Self>, from: HostId) {
        let metadata = self.metadata();
        let is_member = metadata
            .topology
            .node(from)
            .is_some_and(|node| node.state != NodeState::Left);
        // It stops by itself when it knows.
        let is_known = self.knows_it_has_left();
        if !is_member || is_known || from == self.config.host_id || self.claims.is_doubting.replace(true) {
            return;
        }
        let cluster = self.clone();
        drop(runtime::spawn(async move {
            let members = cluster.ask_member(from, true).await;
            let has_left =
                members.is_some_and(|members| !members.is_empty() && !members.contains(&cluster.config.host_id));
            if has_left && (cluster.is_leaving() || cluster.knows_it_has_left()) {
                // The group may have forgotten this node before it heard of its own last step.
                cluster.is_told_left.set(true);
                cluster.machine.changed.notify_all();
            } else if has_left {
                cluster.end_as_removed(format!(
                    "node {from} says that this node has left the cluster or was removed; start it on an empty data directory to join as a new one"
                ));
            }
            cluster.rest(ASK_PAUSE).await;
            cluster.claims.is_doubting.set(false);
        }));
    }

    /// The nodes that a member of this cluster counts among its members.
    async fn ask_member(&self, host: HostId, only_registered: bool) -> Option<BTreeSet<HostId>> {
        let peer = if only_registered {
            self.peers.registered(host)?
        } else {
            self.peers.peer(host)?
        };
        let answer = self.rpc.call(&peer, 0, wire::WHO, Vec::new(), ASK_TIMEOUT).await;
        let who = Who::decode(&answer.ok()?).ok()?;
        let is_ours = who.cluster_id == Some(self.metadata().topology.cluster_id());
        is_ours.then(|| who.peers.into_iter().map(|(host, _)| host).collect())
    }
}
