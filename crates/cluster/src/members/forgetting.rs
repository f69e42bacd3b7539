//! Discards what a member that is down for long holds for others, so that the cluster need not keep its tombstones for
//! it.
//!
//! A member that is down may have hints, notes of batches, and requests that were running when it stopped answering.
//! Any of these may carry a write older than a deletion, so no replica may purge the deletion (docs/dev/tombstones.md).
//! When a member has been down for longer than hints are kept for it (`Config::forget_hints_after`), the leader makes
//! the group agree that what the member made before a given second is forgotten ([`Command::Forget`]). When the member
//! comes back, it hands over nothing of that.
//!
//! The index of the command separates the coordinators: one that has seen the command knows what it may not hand over,
//! and one that has not is fenced off as soon as all members that answer have the command. While the member stays down,
//! the group agrees again from time to time, with a later second.

use crate::metadata::command::Command;
use crate::metadata::{Metadata, Rejected};
use crate::service::Cluster;
use crate::tablets::mover::StageProgress;
use record::{Field, Message, Of, RecordError};
use std::rc::Rc;
use std::time::Duration;
use topology::{HostId, NodeState};

/// Between two looks of the leader at the members that are down.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// How much later the next second is that is agreed on for a member that stays down.
const RENEWAL_SECONDS: u32 = 10 * 60;
/// By how much clocks may differ: so much younger writes are not forgotten yet.
const CLOCKS_DIFFER_SECONDS: u32 = 60;

/// What a member holds for others that is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgotten {
    /// What was made before this second since the epoch.
    pub before: u32,
    /// The command that says so.
    pub index: u64,
}

impl Metadata {
    pub(crate) fn forget(&mut self, index: u64, host_id: HostId, before: u32) -> Result<(), Rejected> {
        self.member(host_id)?;
        let members: Vec<HostId> = self.topology.members().map(|node| node.host_id).collect();
        self.forgotten.retain(|host, _| members.contains(host));
        if self.forgotten.get(&host_id).is_some_and(|known| known.before >= before) {
            return Err(Rejected::Conflict {
                what: format!("What is forgotten of node {host_id}"),
            });
        }
        self.forgotten.insert(host_id, Forgotten { before, index });
        Ok(())
    }

    /// The members that have been down for long enough, by what is known of their downtime, and whose second is due.
    fn due_to_forget(&self, is_down_long: impl Fn(HostId) -> bool, now: u32) -> Vec<HostId> {
        let before = now.saturating_sub(CLOCKS_DIFFER_SECONDS);
        let is_due = |host: HostId| {
            let known = self.forgotten.get(&host);
            known.is_none_or(|known| known.before.saturating_add(RENEWAL_SECONDS) <= before)
        };
        let members = self.topology.members();
        // A joining node coordinates nothing yet, and nothing waits for a lost one.
        let waited_for = members.filter(|node| node.state != NodeState::Joining && !self.topology.is_lost(node));
        let hosts = waited_for.map(|node| node.host_id);
        hosts.filter(|host| is_down_long(*host) && is_due(*host)).collect()
    }
}

impl Cluster {
    /// While this node leads the group, makes it forget what members that are down for long hold. Spawn this; it ends
    /// when the node stops.
    pub(crate) async fn run_forgetting(self: Rc<Self>) {
        while !self.is_stopping.get() {
            if self.leads() && runtime::is_clock_trusted() {
                self.forget_what_is_due().await;
            }
            self.rest(LOOK_PERIOD).await;
        }
    }

    async fn forget_what_is_due(&self) {
        let metadata = self.metadata();
        let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
        let after = self.config.forget_hints_after;
        let is_down_long = |host| !self.peers.is_live(host) && self.peers.down_for(host) >= after;
        for host_id in metadata.due_to_forget(is_down_long, now) {
            let before = now.saturating_sub(CLOCKS_DIFFER_SECONDS);
            let is_first = !metadata.forgotten.contains_key(&host_id);
            match self.propose(Command::Forget { host_id, before }).await {
                Ok(_) if is_first => log::warn!(
                    "node {} has been down for {} s: the hints that it holds for others are forgotten, and count as missed writes until the \
                     next repair",
                    metadata.name_of(host_id),
                    self.peers.down_for(host_id).as_secs()
                ),
                Ok(_) => {}
                Err(error) => log::debug!("the hints of node {host_id} are not forgotten yet: {error}"),
            }
        }
        let unfenced = metadata.forgotten.values().map(|forgotten| forgotten.index);
        let unfenced = unfenced.filter(|index| *index > metadata.fence).max();
        if let Some(index) = unfenced
            && self.passed(&metadata, index, &[]) != StageProgress::NotYet
            && let Err(error) = self.propose(Command::Fence { index }).await
        {
            log::debug!("members that do not know what is forgotten are not fenced off yet: {error}");
        }
    }
}

/// In a command and in the metadata.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ForgottenRecord {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) host_id: Vec<u8>,
    #[prost(uint32, tag = "2")]
    pub(crate) before: u32,
    /// In the metadata.
    #[prost(uint64, optional, tag = "3")]
    pub(crate) index: Option<u64>,
}

pub(crate) static FORGOTTEN: Message = Message::new(
    "forgotten",
    &[
        Field::new(1, "host_id", Of::Bytes),
        Field::new(2, "before", Of::U32),
        Field::new(3, "index", Of::U64),
    ],
);

impl ForgottenRecord {
    /// The value that the metadata stores.
    ///
    /// # Errors
    /// When it has no index.
    pub(crate) fn forgotten(&self) -> Result<Forgotten, RecordError> {
        let missing = || RecordError::damaged("metadata, forgotten, index", "it is missing");
        Ok(Forgotten {
            before: self.before,
            index: self.index.ok_or_else(missing)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Schema;
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use topology::{Location, Node, Topology, TopologyCommand};
    use uuid::Uuid;

    fn host(number: u8) -> HostId {
        HostId(Uuid::from_u128(u128::from(number)))
    }

    /// Three members.
    fn metadata() -> Metadata {
        let schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        let mut metadata = Metadata::new(Arc::new(schema), Topology::new("sea", Uuid::from_u128(1)));
        let mut index = 0;
        let mut apply = |command| {
            index += 1;
            let next = metadata.apply(index, &Command::Topology(command));
            let next = next.expect("the nodes form a cluster");
            metadata = Metadata { index, ..next };
        };
        for number in 1..=3 {
            let address = SocketAddr::from(([10, 0, 0, number], 7000));
            apply(TopologyCommand::AddNode(Box::new(Node {
                host_id: host(number),
                internode: address,
                native: address,
                native_shard_aware_port: None,
                location: Location {
                    datacenter: "north".to_owned(),
                    rack: "rack".to_owned(),
                },
                shards: 1,
                tokens: Vec::new(),
                state: if number == 1 {
                    NodeState::Normal
                } else {
                    NodeState::Joining
                },
                features: BTreeSet::new(),
                release: "1".to_owned(),
                loss: None,
            })));
        }
        let state = NodeState::Normal;
        let host_id = host(2);
        apply(TopologyCommand::SetState { host_id, state });
        metadata
    }

    #[test]
    fn a_member_that_is_down_for_long_is_due_again_ten_minutes_later() {
        let mut metadata = metadata();
        let due = |metadata: &Metadata, down: &[u8], now| {
            let down: Vec<HostId> = down.iter().map(|number| host(*number)).collect();
            metadata.due_to_forget(|host| down.contains(&host), now)
        };
        assert_eq!(due(&metadata, &[], 10_000), []);
        assert_eq!(
            due(&metadata, &[2, 3], 10_000),
            [host(2)],
            "node 3 joins, and coordinates nothing"
        );
        metadata = metadata
            .apply(
                9,
                &Command::Forget {
                    host_id: host(2),
                    before: 9_940,
                },
            )
            .expect("a member");
        let forgotten = Forgotten {
            before: 9_940,
            index: 9,
        };
        assert_eq!(metadata.forgotten.get(&host(2)), Some(&forgotten));
        assert_eq!(due(&metadata, &[2], 10_599), []);
        assert_eq!(due(&metadata, &[2], 10_600), [host(2)]);
    }

    #[test]
    fn what_is_forgotten_only_grows_and_only_of_members() {
        let metadata = metadata();
        let forget = |number, before| Command::Forget {
            host_id: host(number),
            before,
        };
        let metadata = metadata.apply(9, &forget(2, 100)).expect("a member");
        for before in [99, 100] {
            let again = metadata.apply(10, &forget(2, before));
            assert!(matches!(again, Err(Rejected::Conflict { .. })), "{again:?}");
        }
        let stranger = metadata.apply(10, &forget(9, 100));
        assert!(matches!(stranger, Err(Rejected::Invalid { .. })), "{stranger:?}");
        let later = metadata.apply(10, &forget(2, 101)).expect("a later second");
        let forgotten = Forgotten { before: 101, index: 10 };
        assert_eq!(later.forgotten.get(&host(2)), Some(&forgotten));
    }
}
