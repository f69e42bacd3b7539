//! What a node copies of ranges of the token ring that become its own. When, and from which nodes, is in
//! [`crate::ring`].

use crate::error::ChangeError;
use crate::messages::wire;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::repeated::Repeated;
use crate::ring::{RingFill, RingState, RingStep, asks_next_owners};
use crate::service::Cluster;
use crate::tablets::mover::{COPY_RETRY, Copy, Discard};
use rpc::Peer;
use schema::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stdx::planted::{self, Bug};
use topology::{HostId, Locality, Replica, Stage};
use types::Token;

/// How many copies a node makes at once.
const COPIES_AT_ONCE: usize = 8;

/// Why a copy does not continue.
const CHANGED: &str = "the ring goes to other owners now";

/// After the first token, up to the second.
type Range = (Token, Token);

/// What is one copy: of a table, to a shard, of this range alone where there is one, from these replicas.
type CopyOf = (TableId, u16, Option<Range>, Vec<Replica>);

/// What a node has done of a stage in which it removes or copies.
#[derive(Default)]
struct Done {
    /// What it had of the ranges from an earlier time is removed.
    has_removed: bool,
    /// The operator was warned of ranges that no node has any more.
    has_warned: bool,
    copied: BTreeSet<(TableId, Range)>,
}

impl Cluster {
    /// Starts to do what a change of the token ring asks of this node as a next owner: to remove what it has of ranges
    /// from an earlier time, or to copy what it lacks of them.
    pub(crate) fn begin_ring_copies(self: &Rc<Self>) {
        let metadata = self.metadata();
        let asking = metadata.ring.as_ref().filter(|ring| asks_next_owners(ring.stage));
        if let Some(ring) = asking
            && self.copies.ring.replace(ring.version) != ring.version
        {
            drop(runtime::spawn(self.clone().serve_ring_stage(ring.version)));
        }
    }

    /// Does what a stage asks of this node, and reports it. Tries again until it succeeds or the metadata no longer
    /// require it.
    async fn serve_ring_stage(self: Rc<Self>, version: u64) {
        // What a former stage still removes or takes must not take effect after what this one copies.
        let _turn = self.copies.ring_turn.acquire(1).await;
        self.copies.ring_copied.set((version, 0));
        self.copies.ring_failure.take();
        let mut done = Done::default();
        let mut failures = Repeated::default();
        while !self.is_stopping.get() {
            let changed = self.machine.changed.notified();
            let metadata = self.metadata();
            let Some(stage) = wanted_stage(&metadata, version) else {
                return;
            };
            let me = metadata.topology.number(self.config.host_id);
            if metadata
                .ring
                .as_ref()
                .zip(me)
                .is_some_and(|(ring, me)| ring.done.contains(&me))
            {
                // It said so before it was started again.
                return;
            }
            let is_done = match stage {
                Stage::Streaming => self.copy_ring_once(&metadata, version, &mut done).await,
                _ => self.remove_former(&metadata, version, &mut done).await,
            };
            self.copies
                .ring_failure
                .replace(is_done.as_ref().err().cloned().unwrap_or_default());
            match is_done {
                // A table that is created during the wait may make this node a next owner.
                Ok(false) => {
                    changed.await;
                    continue;
                }
                Ok(true) => {
                    let host_id = self.config.host_id;
                    let step = RingStep::Done { host_id };
                    let said = Command::Ring { version, step };
                    match self.propose(said).await {
                        Ok(_) | Err(ChangeError::Conflict) => return,
                        Err(error) => {
                            log::debug!(
                                "the group does not know yet what this node has done as a next owner of the ring: {error}"
                            )
                        }
                    }
                }
                Err(why) if failures.is_due(&why, runtime::now()) => log::warn!(
                    "ranges of the token ring could not be {}; the node retries: {why}",
                    work(stage)
                ),
                Err(_) => {}
            }
            self.rest(COPY_RETRY).await;
        }
    }

    /// Whether there was anything to copy.
    async fn copy_ring_once(
        self: &Rc<Self>,
        metadata: &Metadata,
        version: u64,
        done: &mut Done,
    ) -> Result<bool, String> {
        let me = metadata.topology.number(self.config.host_id);
        let locality = Locality::new(&metadata.topology, self.config.host_id);
        let (Some(me), Some(locality)) = (me, locality) else {
            return Ok(false);
        };
        self.check_shards(metadata)?;
        let mut fills = metadata
            .ring_fills(&locality, |host| self.is_live(host))
            .map_err(|e| e.to_string())?;
        fills.retain(|fill| fill.fill.target.node == me);
        if fills.is_empty() {
            return Ok(false);
        }
        if !std::mem::replace(&mut done.has_warned, true) {
            warn_of_lost(metadata, &fills);
        }
        let wanted = self.copies_of(metadata, &fills, (version, &done.copied))?;
        for together in wanted.chunks(COPIES_AT_ONCE) {
            let copies: Vec<_> = together.iter().map(|copy| self.begin_copy(copy.clone())).collect();
            let mut failure = None;
            for (copy, running) in together.iter().zip(copies) {
                let (copied, result) = running.await;
                let copied = copy.ranges.iter().take(copied);
                done.copied.extend(copied.map(|range| (copy.table, *range)));
                failure = failure.or(result.err());
            }
            if let Some(why) = failure {
                return Err(why);
            }
        }
        Ok(true)
    }

    /// The ring is cut by the shards that the topology knows, and the tables here by those that the node has.
    fn check_shards(&self, metadata: &Metadata) -> Result<(), String> {
        let known = metadata.topology.node(self.config.host_id).map(|node| node.shards);
        let shards = self.config.shards;
        if known == Some(shards) {
            Ok(())
        } else {
            Err(format!(
                "the group does not know yet that this node has {shards} shards"
            ))
        }
    }

    /// Removes what this node has of ranges from a time when it owned them before. What an owner has of a range that it
    /// shares already is not older than what others have. Whether there is such a range.
    async fn remove_former(&self, metadata: &Metadata, version: u64, done: &mut Done) -> Result<bool, String> {
        self.check_shards(metadata)?;
        let me = metadata.topology.number(self.config.host_id);
        let gains = me.map(|me| metadata.ring_gains(me)).unwrap_or_default();
        if done.has_removed || gains.is_empty() {
            return Ok(!gains.is_empty());
        }
        for ((table, shard), ranges) in gains {
            let _removal = self.machine.removals.acquire(1).await;
            if wanted_stage(&self.metadata(), version) != Some(Stage::AllowWriteBothReadOld) {
                return Err(CHANGED.to_owned());
            }
            self.listener.discard(Discard { table, shard, ranges }).await?;
        }
        done.has_removed = true;
        Ok(true)
    }

    /// What is still to be copied: of a table, what comes from the same replicas to the same shard is one copy. A range
    /// that the node is a replica of already is repaired, and is a copy by itself.
    fn copies_of(
        &self,
        metadata: &Metadata,
        fills: &[RingFill],
        (version, copied): (u64, &BTreeSet<(TableId, Range)>),
    ) -> Result<Vec<Copy>, String> {
        let mut wanted: BTreeMap<CopyOf, Vec<Range>> = BTreeMap::new();
        for fill in fills.iter().filter(|fill| !fill.fill.sources.is_empty()) {
            let range = (fill.after, fill.to);
            let mut sources = fill.fill.sources.to_vec();
            sources.sort_unstable();
            for table in fill.tables.iter().filter(|table| !copied.contains(&(**table, range))) {
                let alone = (!fill.is_new).then_some(range);
                let of = (*table, fill.fill.target.shard, alone, sources.clone());
                wanted.entry(of).or_default().push(range);
            }
        }
        if planted::is_planted(Bug::UncopiedRange) {
            wanted.clear();
        }
        let source = |replica: &Replica| -> Option<(Peer, u16)> {
            let host = metadata.topology.numbered(replica.node)?.host_id;
            Some((self.peers.peer(host)?, replica.shard))
        };
        let copy = |((table, shard, alone, sources), mut ranges): (CopyOf, Vec<Range>)| {
            ranges.sort_unstable();
            let peers: Option<Vec<_>> = sources.iter().map(source).collect();
            Some(Copy {
                table,
                ranges,
                shard,
                is_replica: alone.is_some(),
                sources: peers?,
                version,
            })
        };
        let copies: Option<Vec<Copy>> = wanted.into_iter().map(copy).collect();
        // What a source has that cannot be asked yet is not there to be copied from the others.
        copies.ok_or_else(|| "the address of a node to copy from is not known yet".to_owned())
    }

    /// Copies all ranges of a copy, as many at a time as the sources give. Resolves to how many are there, from the
    /// first, and whether it is all.
    fn begin_copy(self: &Rc<Self>, copy: Copy) -> runtime::JoinHandle<(usize, Result<(), String>)> {
        let cluster = self.clone();
        runtime::spawn(async move {
            let mut copied = 0;
            while copied < copy.ranges.len() {
                let metadata = cluster.metadata();
                if metadata.schema.table_by_id(copy.table).is_none() {
                    return (copy.ranges.len(), Ok(()));
                }
                if wanted_stage(&metadata, copy.version) != Some(Stage::Streaming) {
                    return (copied, Err(CHANGED.to_owned()));
                }
                let rest = Copy {
                    ranges: copy.ranges[copied..].to_vec(),
                    ..copy.clone()
                };
                match cluster.listener.copy(rest).await {
                    Ok(ranges) => {
                        let ranges = ranges.clamp(1, copy.ranges.len() - copied);
                        copied += ranges;
                        let (stage, all) = cluster.copies.ring_copied.get();
                        if stage == copy.version {
                            cluster.copies.ring_copied.set((stage, all + ranges as u64));
                        }
                    }
                    Err(why) => return (copied, Err(why)),
                }
            }
            (copied, Ok(()))
        })
    }
}

/// Progress that new owners reported in the stage of the token ring that began with `version`.
#[derive(Default)]
pub(crate) struct RingProgress {
    version: u64,
    copied: BTreeMap<HostId, u64>,
    /// Why those that fail do.
    failures: BTreeMap<HostId, String>,
}

impl Cluster {
    /// How many (table, range) pairs this node has copied in the stage that began with `version`.
    pub(crate) fn own_ring_copies(&self, version: u64) -> u64 {
        match self.copies.ring_copied.get() {
            (stage, copied) if stage == version => copied,
            _ => 0,
        }
    }

    /// Why this node's last attempt to copy in the stage that began with `version` failed; empty when it did not.
    pub(crate) fn own_ring_copy_failure(&self, version: u64) -> String {
        match self.copies.ring_copied.get() {
            (stage, _) if stage == version => self.copies.ring_failure.borrow().clone(),
            _ => String::new(),
        }
    }

    /// Why a new owner does not get on with its copies, as far as it has said.
    pub(crate) fn ring_copy_failure(&self, metadata: &Metadata, host: HostId) -> Option<String> {
        let version = copying(metadata)?;
        let known = self.copies.ring_progress.borrow();
        let why = if host == self.config.host_id {
            self.own_ring_copy_failure(version)
        } else if known.version == version {
            known.failures.get(&host).cloned().unwrap_or_default()
        } else {
            String::new()
        };
        (!why.is_empty()).then_some(why)
    }

    /// Copied pairs of all new owners: this node's own, and the last answers of others.
    pub(crate) fn known_ring_copies(&self, metadata: &Metadata) -> BTreeMap<HostId, u64> {
        let Some(version) = copying(metadata) else {
            return BTreeMap::new();
        };
        let known = self.copies.ring_progress.borrow();
        let mut copied = if known.version == version {
            known.copied.clone()
        } else {
            BTreeMap::new()
        };
        copied.insert(self.config.host_id, self.own_ring_copies(version));
        copied
    }

    /// Asks the new owners of token ranges how much they have copied, and what keeps them from more. Returns whether
    /// the token ring is in that stage.
    pub async fn ask_ring_copies(&self) -> bool {
        let metadata = self.metadata();
        let Some(version) = copying(&metadata) else {
            return false;
        };
        let copying = metadata.copying_nodes(self.config.host_id);
        let others: Vec<HostId> = copying
            .into_iter()
            .filter(|host| *host != self.config.host_id)
            .collect();
        let body = wire::encode_ring_copied(version);
        let copied = self
            .ask_all(
                others.iter().copied(),
                (wire::RING_COPIED, &body),
                wire::decode_ring_copied,
            )
            .await;
        let failures = self
            .ask_all(
                others.into_iter(),
                (wire::RING_COPY_FAILURE, &body),
                wire::decode_ring_copy_failure,
            )
            .await;
        *self.copies.ring_progress.borrow_mut() = RingProgress {
            version,
            copied,
            failures,
        };
        true
    }
}

/// The version of the streaming stage of the token ring, while it lasts.
fn copying(metadata: &Metadata) -> Option<u64> {
    let ring = metadata.ring.as_ref()?;
    (ring.stage == Stage::Streaming).then_some(ring.version)
}

/// The stage of the ring that began with this version, while it asks something of next owners.
fn wanted_stage(metadata: &Metadata, version: u64) -> Option<Stage> {
    let is_wanted = |ring: &&RingState| ring.version == version && asks_next_owners(ring.stage);
    metadata.ring.as_ref().filter(is_wanted).map(|ring| ring.stage)
}

/// What a stage asks of next owners.
fn work(stage: Stage) -> &'static str {
    match stage {
        Stage::Streaming => "copied",
        _ => "cleared of what this node has there from an earlier time",
    }
}

/// Logs the ranges whose data no node has any more.
fn warn_of_lost(metadata: &Metadata, fills: &[RingFill]) {
    let empty: Vec<&RingFill> = fills.iter().filter(|fill| fill.fill.sources.is_empty()).collect();
    if empty.is_empty() {
        return;
    }
    let tables = empty.iter().flat_map(|fill| fill.tables.iter());
    let tables: BTreeSet<String> = tables.map(|table| metadata.table_name(*table)).collect();
    log::warn!(
        "all nodes that had {} ranges of the token ring were given up: what tables {} had there is lost, and this node owns these ranges empty",
        empty.len(),
        tables.into_iter().collect::<Vec<_>>().join(", ")
    );
}
