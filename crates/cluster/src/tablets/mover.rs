//! Tablets that move between nodes: what the leader of the group does, and what a node does that gets a copy.
//!
//! Only the metadata store a move ([`topology::MoveStep`]): any leader continues it from the stage where it is, and no
//! node keeps anything of it in memory. A step needs a condition and is one command:
//!
//! | from | to | when |
//! |---|---|---|
//! | `AllowWriteBothReadOld` | `WriteBothReadOld` | *passed* |
//! | `WriteBothReadOld` | `Streaming` | *passed* |
//! | `Streaming` | `WriteBothReadNew` | copied |
//! | `WriteBothReadNew` | `UseNew` | *passed*, also by the replicas that leave |
//! | `UseNew` | the end | *passed*, also by the replicas that leave |
//! | a stage before `WriteBothReadNew` | `CleanupTarget` | abandoned |
//! | `CleanupTarget` | the end | *passed* |
//!
//! A tablet is copied when every replica that [`topology::targets`] names has its copy. A single one takes the step
//! itself. Where several copy, each reports its copy ([`MoveStep::Copied`]) and the leader takes the step, as it does
//! where nothing is to be copied. A move is abandoned when a replica that must copy is down for [`ABANDON_AFTER`] or is
//! given up, or when a new replica leaves.
//!
//! A stage has *passed* when no request that was begun before it still runs: every member that answers has taken the
//! stage over and has ended its older requests, and where a member does not answer, all others refuse what it might
//! have begun (the fence, see `drain.rs`). They also do so where a node has just left: until it stops, its clients may
//! ask it, and it hears of no change any more. A replica that leaves must have passed itself, because it might serve
//! its own copy while no other node reaches it; one that an operator has given up or excluded counts as passed.

use crate::error::ChangeError;
use crate::members::peers::raft_id;
use crate::metadata::Metadata;
use crate::metadata::command::{Command, TableMoves};
use crate::repeated::Repeated;
use crate::ring::copies::RingProgress;
use crate::ring::{RingState, RingStep, asks_next_owners, stage_after};
use crate::service::Cluster;
use rpc::Peer;
use runtime::{Instant, Semaphore};
use schema::TableId;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::planted::{self, Bug};
use topology::{
    DatacenterNumber, Fill, HostId, Locality, MoveStep, NodeNumber, NodeState, Replica, ReplicaList, Stage, Tablet,
    TabletId, TabletMap, TooFewSources, Transition, fills, targets,
};
use types::Token;

/// How long a node that gets a tablet may be down before the move is abandoned.
const ABANDON_AFTER: Duration = Duration::from_secs(30);
/// The longest pause between two looks at the moves; changes wake the leader before.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Between two attempts to copy a tablet.
pub(crate) const COPY_RETRY: Duration = Duration::from_millis(500);

/// What a shard of this node copies from others.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The table.
    pub table: TableId,
    /// The tablet, or ranges of the token ring in their order: each begins after its first token, and ends with its
    /// second.
    pub ranges: Vec<(Token, Token)>,
    /// The shard of this node that gets them.
    pub shard: u16,
    /// Whether the node is a replica already, and keeps what it has; else the ranges are awaited there.
    pub is_replica: bool,
    /// The replicas that have them: all that each of them has is copied.
    pub sources: Vec<(Peer, u16)>,
    /// Names the attempt: the version in which the stage began.
    pub version: u64,
}

/// What a shard of this node is to copy of a table on the token ring, and may have something older of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discard {
    /// The table.
    pub table: TableId,
    /// The shard.
    pub shard: u16,
    /// The ranges: each begins after its first token, and ends with its second.
    pub ranges: Vec<(Token, Token)>,
}

/// A tablet of a table in one stage.
type CopyId = (TableId, TabletId, u64);

/// The copies that this node makes. Lives on shard 0.
pub(crate) struct Copies {
    running: RefCell<BTreeSet<CopyId>>,
    /// Copied, and the group does not know it yet.
    done: RefCell<BTreeSet<CopyId>>,
    /// The stage of the token ring for which this node removes or copies, or has done so.
    pub(crate) ring: Cell<u64>,
    /// The version with which a stage of the token ring began, and how many (table, range) pairs this node has copied
    /// in it.
    pub(crate) ring_copied: Cell<(u64, u64)>,
    /// Why the last attempt to copy failed; empty after a success.
    pub(crate) ring_failure: RefCell<String>,
    /// Copied pairs of other nodes, from their last answers.
    pub(crate) ring_progress: RefCell<RingProgress>,
    /// Held while ranges of the ring are copied, or what was there before is removed: one stage at a time.
    pub(crate) ring_turn: Semaphore,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            running: RefCell::default(),
            done: RefCell::default(),
            ring: Cell::new(0),
            ring_copied: Cell::default(),
            ring_failure: RefCell::default(),
            ring_progress: RefCell::default(),
            ring_turn: Semaphore::new(1),
        }
    }
}

/// A replica's move to another node, as an operator asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeMove {
    /// The table.
    pub table: TableId,
    /// A token of the tablet.
    pub token: Token,
    /// The node that has it.
    pub from: HostId,
    /// The shard that has it; None for whichever does.
    pub from_shard: Option<u16>,
    /// The node that gets it.
    pub to: HostId,
    /// The shard that gets it; None for any.
    pub to_shard: Option<u16>,
}

/// What the members' word makes of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StageProgress {
    Yes,
    /// A node has not answered yet, or a replica that leaves is down.
    NotYet,
    /// All members that answer have passed; the others must be fenced off.
    NeedsFence,
}

/// What the leader has to do for a move of a tablet, or a change of the token ring, to reach its next stage.
enum DueStep<T> {
    /// The condition of the step holds: propose it.
    Take(T),
    /// Requests older than this version must be fenced off before the condition holds.
    Fence(u64),
    /// Nothing moves, or other nodes are not done.
    NotYet,
}

impl Metadata {
    /// What must be copied before the next replicas of a tablet are read, when these nodes can be read.
    fn fills_of(
        &self,
        locality: &Locality,
        tablet: &Tablet<'_>,
        transition: &Transition,
        is_live: impl Fn(HostId) -> bool,
    ) -> Result<Vec<Fill>, TooFewSources> {
        let datacenter = |node: NodeNumber| -> DatacenterNumber { locality.datacenter(node) };
        let source = |node: NodeNumber| self.source(node, &is_live);
        fills(tablet.replicas, &transition.next, datacenter, source)
    }

    /// The replicas that must copy before the next replicas of a tablet are read.
    fn targets_of(&self, locality: &Locality, tablet: &Tablet<'_>, transition: &Transition) -> ReplicaList {
        targets(tablet.replicas, &transition.next, |node| locality.datacenter(node))
    }

    /// What has a replica of a tablet on another node.
    ///
    /// # Errors
    /// A sentence, when it cannot be: what does not exist, or is not where it is said to be.
    pub fn node_move(&self, wanted: &NodeMove) -> Result<Command, String> {
        let map = self.map_of(wanted.table)?;
        let number = |host: HostId| {
            let node = self.topology.node(host).filter(|node| node.state == NodeState::Normal);
            node.zip(self.topology.number(host))
                .ok_or_else(|| format!("node {host} is not a full member of the cluster"))
        };
        if self.topology.is_zero_token(wanted.to) {
            return Err(format!("node {} is a zero-token node, which has no tablets", wanted.to));
        }
        let (target, to) = number(wanted.to)?;
        let (source, from) = number(wanted.from)?;
        if source.location.datacenter != target.location.datacenter {
            return Err(format!(
                "node {} is in datacenter {} and node {} in {}: the keyspace says how many copies each datacenter has",
                wanted.from, source.location.datacenter, wanted.to, target.location.datacenter
            ));
        }
        let tablet = map.tablet_of(wanted.token);
        if tablet.transition.is_some() {
            return Err(format!("tablet {} moves already", tablet.id.0));
        }
        if tablet.replicas.iter().any(|replica| replica.node == to) {
            return Err(format!(
                "node {} has a replica of tablet {} already",
                wanted.to, tablet.id.0
            ));
        }
        let mut next: ReplicaList = tablet.replicas.iter().copied().collect();
        let replica = next.iter_mut().find(|replica| replica.node == from);
        let replica =
            replica.ok_or_else(|| format!("node {} has no replica of tablet {}", wanted.from, tablet.id.0))?;
        // A replica on a shard that the node no longer has is on another shard; see `TabletMap::on_shards`.
        let stands_on = replica.shard % source.shards.max(1);
        if let Some(shard) = wanted.from_shard.filter(|shard| *shard != stands_on) {
            return Err(format!(
                "the replica of tablet {} on node {} is on shard {stands_on}, and not on shard {shard}",
                tablet.id.0, wanted.from
            ));
        }
        let shard = wanted
            .to_shard
            .unwrap_or_else(|| self.least_loaded_shard(to, target.shards));
        if shard >= target.shards {
            return Err(format!(
                "node {} has {} shards: there is no shard {shard}",
                wanted.to, target.shards
            ));
        }
        *replica = Replica { node: to, shard };
        let step = MoveStep::Begin {
            tablet: tablet.id,
            replicas: tablet.replicas.iter().copied().collect(),
            next,
        };
        Ok(Command::Moves(vec![TableMoves {
            table: wanted.table,
            steps: vec![step],
        }]))
    }

    fn map_of(&self, table: TableId) -> Result<&Arc<TabletMap>, String> {
        let map = self.tablets.get(&table);
        map.ok_or_else(|| "the table has no tablets of its own".to_owned())
    }

    /// The shard of a node that has the fewest tablets, including those that move to it.
    fn least_loaded_shard(&self, node: NodeNumber, shards: u16) -> u16 {
        let mut tablets = vec![0_u64; usize::from(shards.max(1))];
        for tablet in self.tablets.values().flat_map(|map| map.tablets()) {
            let next = tablet.transition.map_or(&[][..], |transition| &transition.next);
            for replica in tablet
                .replicas
                .iter()
                .chain(next)
                .filter(|replica| replica.node == node)
            {
                if let Some(count) = tablets.get_mut(usize::from(replica.shard)) {
                    *count += 1;
                }
            }
        }
        let least = (0_u16..).zip(&tablets).min_by_key(|(_, count)| **count);
        least.map_or(0, |(shard, _)| shard)
    }

    /// The moves that are under way: of each table the tablets, in order.
    pub fn moving(&self) -> impl Iterator<Item = (TableId, Tablet<'_>)> {
        let tables = self.tablets.iter();
        tables.flat_map(|(table, map)| map.moving().map(move |tablet| (*table, tablet)))
    }
}

impl Cluster {
    /// Takes moves of tablets to their next stages while this node leads the group. Spawn this; it ends when the node
    /// stops.
    pub(crate) async fn run_mover(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let heard = self.peers.heard.notified();
            if self.leads() && self.take_due_steps().await {
                continue;
            }
            let _ = runtime::timeout(LOOK_INTERVAL, heard).await;
        }
    }

    /// Whether anything was changed.
    async fn take_due_steps(&self) -> bool {
        let metadata = self.metadata();
        let (moves, fence) = self.due_steps(&metadata);
        let (ring, ring_fence) = match self.due_ring_step(&metadata) {
            DueStep::Take(command) => (Some(command), None),
            DueStep::Fence(version) => (None, Some(version).filter(|version| metadata.fence < *version)),
            DueStep::NotYet => (None, None),
        };
        if let Some(index) = fence.max(ring_fence)
            && let Err(error) = self.propose(Command::Fence { index }).await
        {
            log::debug!("requests of members that do not answer are not fenced off yet: {error}");
        }
        let moves = (!moves.is_empty()).then_some(Command::Moves(moves));
        let mut is_changed = false;
        for command in moves.into_iter().chain(ring) {
            match self.propose(command).await {
                Ok(_) => is_changed = true,
                Err(error) => log::debug!("tablets or the ring do not enter their next stages yet: {error}"),
            }
        }
        is_changed
    }

    /// The steps whose conditions hold, and the fence that others need.
    fn due_steps(&self, metadata: &Metadata) -> (Vec<TableMoves>, Option<u64>) {
        let mut steps: BTreeMap<TableId, Vec<MoveStep>> = BTreeMap::new();
        let mut fence = None;
        let mut moving = metadata.moving().peekable();
        if moving.peek().is_none() {
            return (Vec::new(), None);
        }
        let Some(locality) = Locality::new(&metadata.topology, self.config.host_id) else {
            return (Vec::new(), None);
        };
        for (table, tablet) in moving {
            let Some(transition) = tablet.transition else { continue };
            match self.due_step(metadata, &locality, &tablet, transition) {
                DueStep::Take(step) => steps.entry(table).or_default().push(step),
                DueStep::Fence(version) => fence = fence.max(Some(version)),
                DueStep::NotYet => {}
            }
        }
        let moves = steps.into_iter().map(|(table, steps)| TableMoves { table, steps });
        (moves.collect(), fence.filter(|version| metadata.fence < *version))
    }

    /// The next step of a tablet's move.
    fn due_step(
        &self,
        metadata: &Metadata,
        locality: &Locality,
        tablet: &Tablet<'_>,
        transition: &Transition,
    ) -> DueStep<MoveStep> {
        let (id, version, stage) = (tablet.id, transition.version, transition.stage);
        let advance = |stage| MoveStep::Advance {
            tablet: id,
            version,
            stage,
        };
        if stage.may_be_abandoned() {
            let targets = metadata.targets_of(locality, tablet, transition);
            let is_new = |node| tablet.replicas.iter().all(|replica| replica.node != node);
            let is_hopeless = |node| self.is_hopeless(metadata, node, is_new(node));
            if targets.iter().any(|replica| is_hopeless(replica.node)) {
                return DueStep::Take(advance(Stage::CleanupTarget));
            }
            if stage == Stage::Streaming {
                let have_all = targets.iter().all(|replica| transition.copied.contains(&replica.node));
                if !have_all {
                    return DueStep::NotYet;
                }
                return DueStep::Take(advance(Stage::WriteBothReadNew));
            }
        }
        let is_left = |replica: &&Replica| transition.next.iter().all(|next| next.node != replica.node);
        let mut asked: Vec<NodeNumber> = Vec::new();
        if stage.reads_new() {
            asked.extend(tablet.replicas.iter().filter(is_left).map(|replica| replica.node));
        }
        if stage == Stage::AllowWriteBothReadOld {
            // One that follows the metadata from then on knows this move from its beginning, and has nothing of the
            // tablet from an earlier time.
            let is_new = |next: &&Replica| tablet.replicas.iter().all(|replica| replica.node != next.node);
            asked.extend(transition.next.iter().filter(is_new).map(|replica| replica.node));
        }
        match self.passed(metadata, version, &asked) {
            StageProgress::NotYet => DueStep::NotYet,
            StageProgress::NeedsFence => DueStep::Fence(version),
            StageProgress::Yes => DueStep::Take(match stage.next() {
                Some(next) => advance(next),
                None => MoveStep::End { tablet: id, version },
            }),
        }
    }

    /// The next step of a change of the token ring.
    fn due_ring_step(&self, metadata: &Metadata) -> DueStep<Command> {
        let Some(RingState {
            version, stage, done, ..
        }) = &metadata.ring
        else {
            return DueStep::NotYet;
        };
        let command = |step| Command::Ring {
            version: *version,
            step,
        };
        let advance = |stage| command(RingStep::Advance { stage });
        if !stage.reads_new() && metadata.awaits_heir() {
            // One change for both: the heir takes the tokens of the one that is lost.
            return DueStep::NotYet;
        }
        if asks_next_owners(*stage) {
            // One that is lost is never read, and so needs no copy.
            let is_lost = |number| {
                let node = metadata.topology.numbered(number);
                node.is_none_or(|node| metadata.topology.is_lost(node))
            };
            let is_ready = |node: NodeNumber| done.contains(&node) || is_lost(node);
            let are_done = match *stage {
                Stage::AllowWriteBothReadOld => metadata.ring_gainers().into_iter().all(is_ready),
                _ => {
                    let Some(locality) = Locality::new(&metadata.topology, self.config.host_id) else {
                        return DueStep::NotYet;
                    };
                    // What is to be copied does not depend on which nodes answer; whether it can be copied does.
                    let fills = metadata.ring_fills(&locality, |_| true);
                    fills.is_ok_and(|fills| fills.iter().all(|fill| is_ready(fill.fill.target.node)))
                }
            };
            let next = stage_after(*stage).filter(|_| are_done);
            return next.map_or(DueStep::NotYet, |next| DueStep::Take(advance(next)));
        }
        let losers: Vec<NodeNumber> = if stage.reads_new() {
            metadata.ring_losers().into_iter().collect()
        } else {
            Vec::new()
        };
        match self.passed(metadata, *version, &losers) {
            StageProgress::NotYet => DueStep::NotYet,
            StageProgress::NeedsFence => DueStep::Fence(*version),
            StageProgress::Yes => DueStep::Take(match stage_after(*stage) {
                Some(next) => advance(next),
                None => command(RingStep::End),
            }),
        }
    }

    /// Whether a node that is to get a tablet will not.
    fn is_hopeless(&self, metadata: &Metadata, node: NodeNumber, is_new: bool) -> bool {
        let node = metadata.topology.numbered(node);
        // One that has a copy and leaves completes it like others: it gives it away after this move.
        let is_leaving = |node: &topology::Node| match node.state {
            NodeState::Leaving => is_new,
            state => state == NodeState::Left,
        };
        node.is_none_or(|node| {
            is_leaving(node) || metadata.topology.is_lost(node) || self.peers.down_for(node.host_id) >= ABANDON_AFTER
        })
    }

    /// Whether every request older than a version has ended or is fenced off. The nodes in `asked` must have reported
    /// it themselves.
    pub(crate) fn passed(&self, metadata: &Metadata, version: u64, asked: &[NodeNumber]) -> StageProgress {
        if planted::is_planted(Bug::StagePassedEarly) {
            return StageProgress::Yes;
        }
        if self.machine.taken_index() < version {
            return StageProgress::NotYet;
        }
        let mut passed = StageProgress::Yes;
        for node in metadata
            .topology
            .members()
            .filter(|node| node.host_id != self.config.host_id)
        {
            let host = node.host_id;
            if self.peers.is_live(host) {
                if !self.peers.has(host, version) {
                    return StageProgress::NotYet;
                }
                continue;
            }
            let number = metadata.topology.number(host);
            if !metadata.topology.is_lost(node) && number.is_some_and(|number| asked.contains(&number)) {
                return StageProgress::NotYet;
            }
            if metadata.fence < version {
                passed = StageProgress::NeedsFence;
            } else if !self.peers.all_live_refuse(version) {
                return StageProgress::NotYet;
            }
        }
        match self.left_since_fenced(metadata) {
            true if metadata.fence < version => StageProgress::NeedsFence,
            true if !self.peers.all_live_refuse(version) => StageProgress::NotYet,
            _ => passed,
        }
    }

    /// Whether a node has left that may still work for clients by a version which the fence lets pass. It gets none
    /// after it is out of the metadata group.
    fn left_since_fenced(&self, metadata: &Metadata) -> bool {
        let status = self.consensus.status();
        let mut out_since = self.left_out_since.borrow_mut();
        let nodes = metadata.topology.numbered_nodes();
        let left = nodes.filter(|(_, node)| node.state == NodeState::Left);
        let mut is_unfenced = false;
        for (number, node) in left {
            let id = raft_id(number, metadata.generation_of(number));
            let is_in = status.voters.contains(&id) || status.learners.contains(&id);
            is_unfenced |= is_in || metadata.fence < *out_since.entry(node.host_id).or_insert(status.last);
            if is_in {
                out_since.remove(&node.host_id);
            }
        }
        is_unfenced
    }

    /// Whether this node leads the metadata group.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.consensus.status().leader == Some(self.own_raft_id)
    }

    /// Copies what this node is to have, and reports so. Spawn this; it ends when the node stops.
    pub(crate) async fn run_copies(self: Rc<Self>) {
        while !self.is_stopping.get() {
            // The end of a copy gives the same notification as a change of the metadata.
            let changed = self.machine.changed.notified();
            self.begin_copies();
            self.begin_ring_copies();
            self.say_copied().await;
            changed.await;
        }
    }

    /// Starts the copies that the metadata ask this node for.
    fn begin_copies(self: &Rc<Self>) {
        let metadata = self.metadata();
        if metadata.moving().next().is_none() {
            return;
        }
        let me = metadata.topology.number(self.config.host_id);
        let (Some(me), Some(locality)) = (me, Locality::new(&metadata.topology, self.config.host_id)) else {
            return;
        };
        for (table, tablet) in metadata.moving() {
            let Some(transition) = tablet.transition.filter(|t| t.stage == Stage::Streaming) else {
                continue;
            };
            let id = (table, tablet.id, transition.version);
            let targets = metadata.targets_of(&locality, &tablet, transition);
            let is_mine = targets.iter().any(|replica| replica.node == me);
            let is_known = self.copies.running.borrow().contains(&id) || self.copies.done.borrow().contains(&id);
            if is_mine && !is_known {
                self.copies.running.borrow_mut().insert(id);
                drop(runtime::spawn(self.clone().copy(id, me)));
            }
        }
    }

    /// Copies one tablet, again and again until it succeeds or the metadata no longer require it.
    async fn copy(self: Rc<Self>, id: CopyId, me: NodeNumber) {
        let mut said = String::new();
        let mut failures = Repeated::default();
        while !self.is_stopping.get() {
            match self.next_copy(id, me) {
                CopyDecision::Nothing => break,
                // Once for each reason: it may last as long as a node is down.
                CopyDecision::NotYet(why) if why == said => {}
                CopyDecision::NotYet(why) => {
                    let table = self.metadata().table_name(id.0);
                    log::info!("a tablet of table {table} cannot be copied yet: {why}");
                    said = why;
                }
                CopyDecision::Copy(copy) => match self.copy_once(copy).await {
                    Ok(()) => {
                        self.copies.done.borrow_mut().insert(id);
                        break;
                    }
                    Err(why) if failures.is_due(&why, runtime::now()) => log::warn!(
                        "a tablet of table {} could not be copied; the node retries: {why}",
                        self.metadata().table_name(id.0)
                    ),
                    Err(_) => {}
                },
            }
            self.rest(COPY_RETRY).await;
        }
        self.copies.running.borrow_mut().remove(&id);
        self.machine.changed.notify_all();
    }

    async fn copy_once(&self, copy: Copy) -> Result<(), String> {
        if copy.sources.is_empty() {
            let table = self.metadata().table_name(copy.table);
            log::warn!(
                "all nodes that had a tablet of table {table} were given up: what it had is lost, and this node has it empty"
            );
            return Ok(());
        }
        if planted::is_planted(Bug::UncopiedRange) {
            Ok(())
        } else {
            self.listener.copy(copy).await.map(drop)
        }
    }

    /// What is to be copied for a tablet in a stage, by the metadata of now.
    fn next_copy(&self, (table, id, version): CopyId, me: NodeNumber) -> CopyDecision {
        let metadata = self.metadata();
        let find = || {
            let map = metadata.tablets.get(&table)?;
            let tablet = map.tablet(id)?;
            let transition = tablet.transition?;
            let is_same = transition.version == version && transition.stage == Stage::Streaming;
            is_same.then_some((map.token_range(id)?, tablet, transition))
        };
        let Some(((after, to), tablet, transition)) = find() else {
            return CopyDecision::Nothing;
        };
        let Some(locality) = Locality::new(&metadata.topology, self.config.host_id) else {
            return CopyDecision::Nothing;
        };
        let fills = match metadata.fills_of(&locality, &tablet, transition, |host| self.is_live(host)) {
            Ok(fills) => fills,
            Err(error) => return CopyDecision::NotYet(error.to_string()),
        };
        let Some(fill) = fills.into_iter().find(|fill| fill.target.node == me) else {
            return CopyDecision::Nothing;
        };
        // A replica on a shard that a node no longer has is on another shard; see `TabletMap::on_shards`.
        let source = |replica: &Replica| {
            let node = metadata.topology.numbered(replica.node)?;
            Some((self.peers.peer(node.host_id)?, replica.shard % node.shards.max(1)))
        };
        let sources: Vec<(Peer, u16)> = fill.sources.iter().filter_map(source).collect();
        if sources.len() < fill.sources.len() {
            return CopyDecision::NotYet("a replica to copy from cannot be reached yet".to_owned());
        }
        CopyDecision::Copy(Copy {
            table,
            ranges: vec![(after, to)],
            shard: fill.target.shard % self.config.shards.max(1),
            is_replica: tablet.replicas.iter().any(|replica| replica.node == me),
            sources,
            version,
        })
    }

    /// Reports to the group what this node has copied.
    async fn say_copied(&self) {
        let metadata = self.metadata();
        let me = metadata.topology.number(self.config.host_id);
        let (Some(me), Some(locality)) = (me, Locality::new(&metadata.topology, self.config.host_id)) else {
            return;
        };
        let open = |(table, tablet, version): &CopyId| {
            let tablet = metadata.tablets.get(table)?.tablet(*tablet)?;
            let now = tablet.transition?;
            let is_open = now.version == *version && now.stage == Stage::Streaming;
            is_open.then_some((tablet, now))
        };
        self.copies.done.borrow_mut().retain(|id| open(id).is_some());
        let mut steps: BTreeMap<TableId, Vec<MoveStep>> = BTreeMap::new();
        for id in self.copies.done.borrow().iter() {
            let (table, tablet, version) = *id;
            let Some((moving, transition)) = open(id).filter(|(_, now)| !now.copied.contains(&me)) else {
                continue;
            };
            let is_alone = metadata.targets_of(&locality, &moving, transition).len() == 1;
            steps.entry(table).or_default().push(if is_alone {
                MoveStep::Advance {
                    tablet,
                    version,
                    stage: Stage::WriteBothReadNew,
                }
            } else {
                MoveStep::Copied {
                    tablet,
                    version,
                    node: me,
                }
            });
        }
        if steps.is_empty() {
            return;
        }
        let moves = steps.into_iter().map(|(table, steps)| TableMoves { table, steps });
        if let Err(error) = self.propose(Command::Moves(moves.collect())).await {
            log::debug!("the group does not know yet what was copied: {error}");
            self.rest(COPY_RETRY).await;
            self.machine.changed.notify_all();
        }
    }

    /// Moves a replica of a tablet to another node, and waits until it is there.
    ///
    /// # Errors
    /// A sentence that says whether the move continues.
    pub async fn move_between_nodes(&self, wanted: &NodeMove, deadline: Instant) -> Result<(), String> {
        loop {
            let command = self.metadata().node_move(wanted)?;
            match self.propose(command).await {
                Ok(_) => break,
                Err(ChangeError::Conflict) => {
                    self.barrier().await.map_err(|e| e.to_string())?;
                }
                Err(e) => return Err(e.to_string()),
            }
        }
        loop {
            let changed = self.machine.changed.notified();
            let metadata = self.metadata();
            let Some(map) = metadata.tablets.get(&wanted.table) else {
                return Err("the table has been dropped".to_owned());
            };
            let tablet = map.tablet_of(wanted.token);
            if tablet.transition.is_none() {
                let to = metadata.topology.number(wanted.to);
                let is_there = tablet.replicas.iter().any(|replica| Some(replica.node) == to);
                return if is_there {
                    Ok(())
                } else {
                    Err(format!(
                        "the move was abandoned: node {} did not take the tablet",
                        wanted.to
                    ))
                };
            }
            if !self.wait_until(deadline, changed).await {
                return Err("the move is agreed on and continues; it did not end in time".to_owned());
            }
        }
    }
}

/// What becomes of a copy.
enum CopyDecision {
    Copy(Copy),
    /// Too few can be read.
    NotYet(String),
    /// The tablet does not move any more, or is in another stage.
    Nothing,
}
