//! The leader's care for where tablets are: every copy that a replication wants, away from nodes that leave, and even among nodes and shards.
//!
//! It plans again after each change of the metadata and of who answers, and now and then, because tablets grow. What a plan wants becomes commands; a plan from
//! which nothing follows is not made again before something changes. How even it is depends on the bytes of the tablets, which each node is asked for.
//!
//! An operator can switch off moves that only make it more even (`Command::Balance`). What a replication or a node that leaves needs goes on.

use crate::command::Command;
use crate::config::TabletBytes;
use crate::error::ChangeError;
use crate::metadata::Metadata;
use crate::planning::{Situation, Sizes};
use crate::removal;
use crate::service::Cluster;
use crate::wire;
use runtime::Instant;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use topology::{HostId, Limits, TABLET_MOVES};

/// The longest pause between two looks; changes wake the leader before.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Tablets grow: where nothing was to be done, it is planned again after this time.
const PLAN_INTERVAL: Duration = Duration::from_secs(60);
/// After a plan of which no command was applied.
const RETRY: Duration = Duration::from_millis(250);
/// How old the bytes of tablets may be that a plan goes by.
const SIZES_LIFE: Duration = Duration::from_secs(30);
/// How long a member may take to say the bytes of its tablets.
const SIZES_WAIT: Duration = Duration::from_secs(2);

/// What the last plans were made from.
#[derive(Default)]
struct Past {
    /// The metadata and the live nodes of which nothing followed, and when.
    settled: Option<(u64, BTreeSet<HostId>, Instant)>,
    sizes: Option<(Arc<Sizes>, BTreeSet<HostId>, Instant)>,
    /// What cannot be done, as it was logged last.
    lacks: Vec<String>,
}

impl Cluster {
    /// Plans moves of tablets while this node leads the group. To be spawned; ends when the node stops.
    pub(crate) async fn run_balancer(self: Rc<Self>) {
        let mut past = Past::default();
        while !self.is_stopping.get() {
            let changed = self.machine.members_changed.notified();
            if self.leads() && self.has_feature(TABLET_MOVES) {
                match self.balance(&mut past).await {
                    Outcome::Changed => continue,
                    Outcome::Failed => {
                        self.rest(RETRY).await;
                        continue;
                    }
                    Outcome::Settled => {}
                }
            } else {
                past = Past::default();
            }
            let _ = runtime::timeout(LOOK_INTERVAL, changed).await;
        }
    }

    async fn balance(&self, past: &mut Past) -> Outcome {
        self.remove_those_that_left().await;
        let metadata = self.metadata();
        let live = self.live();
        let is_settled = |(index, nodes, at): &(u64, BTreeSet<HostId>, Instant)| {
            *index == metadata.index && *nodes == live && at.elapsed() < PLAN_INTERVAL
        };
        if metadata.tablets.is_empty() || past.settled.as_ref().is_some_and(is_settled) {
            return Outcome::Settled;
        }
        let situation = Situation {
            sizes: self.sizes(&metadata, &live, past).await,
            live: live.clone(),
            would_leave: None,
        };
        let planned = runtime::offload({
            let metadata = metadata.clone();
            move || metadata.plan_moves(&situation, &Limits::default())
        })
        .await;
        if planned.lacks != past.lacks {
            for why in &planned.lacks {
                log::warn!("tablets are not where they should be: {why}");
            }
            past.lacks = planned.lacks;
        }
        if planned.commands.is_empty() {
            past.settled = Some((metadata.index, live, runtime::now()));
            return Outcome::Settled;
        }
        let mut outcome = Outcome::Failed;
        for command in planned.commands {
            match self.propose(command).await {
                Ok(_) => outcome = Outcome::Changed,
                Err(error) => log::debug!("tablets do not begin to move yet: {error}"),
            }
        }
        outcome
    }

    /// Removes nodes that leave and have nothing left.
    async fn remove_those_that_left(&self) {
        let metadata = self.metadata();
        for (number, node) in metadata.leaving() {
            let host_id = node.host_id;
            // A command that is sure to be rejected would fill the log.
            if !metadata.has_tablets(number)
                && removal::check(&metadata, host_id).is_ok()
                && let Err(error) = self.propose(Command::RemoveNode { host_id }).await
            {
                log::debug!("node {host_id} has given everything away and is not removed yet: {error}");
            }
        }
    }

    /// The bytes of tablets, not older than [`SIZES_LIFE`].
    async fn sizes(&self, metadata: &Metadata, live: &BTreeSet<HostId>, past: &mut Past) -> Arc<Sizes> {
        let is_fresh =
            |(_, nodes, at): &&(Arc<Sizes>, BTreeSet<HostId>, Instant)| nodes == live && at.elapsed() < SIZES_LIFE;
        if let Some((sizes, ..)) = past.sizes.as_ref().filter(is_fresh) {
            return sizes.clone();
        }
        let sizes = Arc::new(self.ask_sizes(metadata, live).await);
        past.sizes = Some((sizes.clone(), live.clone(), runtime::now()));
        sizes
    }

    /// Asks each node that answers for the bytes of its tablets. Copies of a tablet differ, so the largest counts.
    async fn ask_sizes(&self, metadata: &Metadata, live: &BTreeSet<HostId>) -> Sizes {
        let others = live.iter().filter(|host| **host != self.config.host_id);
        let asked: Vec<_> = others
            .filter_map(|host| self.peers.peer(*host))
            .map(|peer| self.rpc.call(&peer, 0, wire::TABLET_BYTES, Vec::new(), SIZES_WAIT))
            .collect();
        let mut sizes = Sizes::new();
        let mut count = |tablets: Vec<TabletBytes>| {
            for TabletBytes { table, last, bytes } in tablets {
                let Some(map) = metadata.tablets.get(&table) else {
                    continue;
                };
                let all = sizes
                    .entry(table)
                    .or_insert_with(|| vec![0; usize::try_from(map.tablet_count()).unwrap_or(0)]);
                if let Some(size) = all.get_mut(usize::try_from(map.tablet_of(last).id.0).unwrap_or(usize::MAX)) {
                    *size = bytes.max(*size);
                }
            }
        };
        count(self.listener.tablet_bytes().await);
        for answer in asked {
            match answer
                .await
                .map_err(|e| e.to_string())
                .and_then(|bytes| wire::decode_tablet_bytes(&bytes).map_err(|e| e.to_string()))
            {
                Ok(tablets) => count(tablets),
                Err(error) => log::debug!("a member does not say the bytes of its tablets: {error}"),
            }
        }
        sizes
    }

    /// Switches moves for balance on or off, for the whole cluster.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn set_balanced(&self, is_balanced: bool) -> Result<(), ChangeError> {
        self.propose(Command::Balance { is_balanced }).await?;
        Ok(())
    }
}

/// What became of a plan.
enum Outcome {
    /// Something of it was agreed on.
    Changed,
    /// Nothing was.
    Failed,
    /// It has no steps.
    Settled,
}
