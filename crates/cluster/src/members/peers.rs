//! The other nodes: where they are reached, whether they answer, what they have applied.
//!
//! A node is reached at its registered address, or where it was heard of last if it does not answer there: nodes that
//! were all restarted elsewhere find each other by this before the group, which needs them to talk, can register their
//! addresses.

use crate::config::{Config, Listener, Reach};
use crate::messages::wire::{self, Greeting, Health, State};
use crate::metadata::history::Comparisons;
use crate::metadata::lineage::Lineage;
use crate::metadata::machine::Machine;
use consensus::Transport;
use rpc::{Peer, Rpc};
use runtime::{Instant, Notify};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use topology::{
    ClockJudge, ClockSample, DiskLevel, FailureDetector, HostId, Location, Message, NodeNumber, NodeState, Output,
    Status,
};
use uuid::Uuid;

/// A message that cannot leave in this time is not worth sending.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a node that stops waits for the others to hear of it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest pause of the detector.
const TICK_MAX: Duration = Duration::from_millis(200);

/// What is known of a node.
#[derive(Clone, Debug)]
struct Known {
    /// By the failure detector.
    status: Status,
    /// It answers where it is registered, so requests go to it. One that answers elsewhere is up when the group has its
    /// address: requests go by that.
    is_live: bool,
    /// When that changed last.
    since: Instant,
    /// It joined during the life of this process.
    is_new: bool,
    /// It was live for [`Config::vote_after`] without a break.
    has_served: bool,
    log_index: u64,
    /// What it said last, in this generation of its Raft id.
    schema_version: Option<Uuid>,
    generation: u32,
    /// Where it says it is.
    heard: Option<SocketAddr>,
    /// Whether it serves clients when it answers; None until it has said so, and then it is taken to serve them.
    is_open: Option<bool>,
    /// Whether it answered and served clients when this was last compared.
    serves: bool,
    /// Its log takes writes, as far as it has not said otherwise.
    takes_writes: bool,
    /// How full its disks are, as it said last.
    disk: DiskLevel,
    /// The fence of its metadata, as it said last.
    fence: Option<u64>,
}

/// Lives on shard 0, sees the cluster.
pub(crate) struct Peers {
    local: HostId,
    internode: SocketAddr,
    location: Location,
    reach: Reach,
    rpc: Rc<Rpc>,
    machine: Rc<Machine>,
    listener: Rc<dyn Listener>,
    detector: RefCell<FailureDetector>,
    known: RefCell<BTreeMap<HostId, Known>>,
    /// What this node makes of its wall clock.
    pub(crate) clock: RefCell<ClockJudge>,
    /// Its commitlog takes writes.
    pub(crate) takes_writes: Cell<bool>,
    /// How full its disks are.
    pub(crate) disk: Cell<DiskLevel>,
    /// The version last passed to `Listener::fenced_off`; 0 for none.
    fenced_off: Cell<u64>,
    vote_after: Duration,
    /// The members that were there before this process watched are in `known`.
    is_watching: Cell<bool>,
    /// What others have said of their metadata's history.
    pub(crate) comparisons: RefCell<Comparisons>,
    /// This node has said goodbye, and must not seem alive.
    pub(crate) is_leaving: Cell<bool>,
    /// Notified when a node has reported what it has applied, or its liveness has changed.
    pub(crate) heard: Notify,
    /// Notified when the leader should look at the members.
    pub(crate) tend: Notify,
}

/// The Raft id of a node. It gets another one with each generation: no Raft id is used again by a node that has lost
/// its log.
pub(crate) fn raft_id(number: NodeNumber, generation: u32) -> u64 {
    (u64::from(generation) << 16) + u64::from(number.0) + 1
}

/// Generation and node of a Raft id.
pub(crate) fn parts(raft_id: u64) -> (u32, NodeNumber) {
    let id = raft_id.saturating_sub(1);
    let number = u16::try_from(id & 0xffff).expect("sixteen bits");
    (u32::try_from(id >> 16).unwrap_or(u32::MAX), NodeNumber(number))
}

/// The node of a Raft id.
pub(crate) fn node_number(raft_id: u64) -> Option<NodeNumber> {
    (raft_id > 0).then(|| parts(raft_id).1)
}

fn monotonic() -> Duration {
    Duration::from_nanos(runtime::now().as_nanos())
}

impl Peers {
    pub(crate) fn new(config: &Config, rpc: Rc<Rpc>, machine: Rc<Machine>, listener: Rc<dyn Listener>) -> Self {
        let (local, seq) = (config.host_id, runtime::random_u64());
        let detector = FailureDetector::new(config.failure_detector, local, seq, monotonic());
        let peers = Self {
            local,
            internode: config.internode,
            location: config.location.clone(),
            reach: config.reach.clone(),
            rpc,
            machine,
            listener,
            detector: RefCell::new(detector),
            known: RefCell::default(),
            clock: RefCell::new(ClockJudge::new(config.clock_limits, runtime::clock_offset_us())),
            takes_writes: Cell::new(true),
            disk: Cell::default(),
            fenced_off: Cell::new(0),
            vote_after: config.vote_after,
            is_watching: Cell::new(false),
            comparisons: RefCell::default(),
            is_leaving: Cell::new(false),
            heard: Notify::new(),
            tend: Notify::new(),
        };
        peers.set_members();
        peers.is_watching.set(true);
        peers
    }

    /// The way to other nodes.
    pub(crate) fn rpc(&self) -> &Rc<Rpc> {
        &self.rpc
    }

    /// Watches all current members.
    pub(crate) fn set_members(&self) {
        let metadata = self.machine.metadata();
        let members: BTreeSet<HostId> = metadata.topology.members().map(|node| node.host_id).collect();
        let mut known = self.known.borrow_mut();
        known.retain(|host, _| members.contains(host));
        for host in members.iter().filter(|host| **host != self.local) {
            known.entry(*host).or_insert_with(|| Known {
                status: Status::Down,
                is_live: false,
                since: runtime::now(),
                is_new: self.is_watching.get(),
                has_served: false,
                log_index: 0,
                schema_version: None,
                generation: 0,
                heard: None,
                is_open: None,
                takes_writes: true,
                disk: DiskLevel::Normal,
                fence: None,
                serves: false,
            });
        }
        for (host, known) in known.iter_mut() {
            let generation = metadata.run_of(*host).map_or(0, |run| run.generation);
            if known.generation != generation {
                // What spoke was a former process.
                known.generation = generation;
                known.schema_version = None;
            }
            if metadata.topology.node(*host).map(|node| node.internode) == known.heard {
                known.heard = None;
            }
        }
        drop(known);
        self.comparisons.borrow_mut().retain(|host| members.contains(&host));
        self.detector.borrow_mut().set_peers(&members, monotonic());
        self.clock.borrow_mut().set_peers(&members);
        members.iter().for_each(|host| self.judge(*host));
    }

    /// Where a member is reached by what the group knows, whatever any message has said since.
    pub(crate) fn registered(&self, host: HostId) -> Option<Peer> {
        let metadata = self.machine.metadata();
        let node = metadata
            .topology
            .node(host)
            .filter(|node| node.state != NodeState::Left)?;
        Some(
            self.reach
                .peer(host.0, node.internode, &self.location, Some(&node.location)),
        )
    }

    /// Where a member is reached.
    pub(crate) fn peer(&self, host: HostId) -> Option<Peer> {
        let metadata = self.machine.metadata();
        let node = metadata.topology.node(host)?;
        let heard = self.known.borrow().get(&host).and_then(|known| known.heard);
        let address = heard.unwrap_or(node.internode);
        Some(self.reach.peer(host.0, address, &self.location, Some(&node.location)))
    }

    /// A node says, or another says of it, where it is. One that answers where it was is not taken for one elsewhere.
    pub(crate) fn note_address(&self, host: HostId, address: SocketAddr) {
        let metadata = self.machine.metadata();
        let Some(node) = metadata.topology.node(host) else {
            return;
        };
        let mut known = self.known.borrow_mut();
        let Some(peer) = known.get_mut(&host) else {
            return;
        };
        let present = peer.heard.unwrap_or(node.internode);
        if address == present || peer.status == Status::Up {
            return;
        }
        peer.heard = (address != node.internode).then_some(address);
        drop(known);
        self.rpc.retry_now(host.0);
    }

    /// All members that are not excluded and where they are reached, this node included.
    pub(crate) fn addresses(&self) -> Vec<(HostId, SocketAddr)> {
        let known = self.known.borrow();
        let metadata = self.machine.metadata();
        let of = |node: &topology::Node| {
            if node.host_id == self.local {
                return self.internode;
            }
            let heard = known.get(&node.host_id).and_then(|known| known.heard);
            heard.unwrap_or(node.internode)
        };
        metadata
            .topology
            .members()
            .filter(|node| !metadata.topology.is_excluded(node.host_id))
            .map(|node| (node.host_id, of(node)))
            .collect()
    }

    /// Whether a node answers. This one does.
    pub(crate) fn is_live(&self, host: HostId) -> bool {
        host == self.local || self.known.borrow().get(&host).is_some_and(|known| known.is_live)
    }

    /// Whether a node answers and serves clients, as far as it has not said otherwise.
    pub(crate) fn serves_clients(&self, host: HostId) -> bool {
        let known = self.known.borrow();
        known
            .get(&host)
            .is_some_and(|known| known.is_live && known.is_open != Some(false))
    }

    /// Whether a node's log takes writes, as far as it has not said otherwise.
    pub(crate) fn takes_writes(&self, host: HostId) -> bool {
        if host == self.local {
            return self.takes_writes.get();
        }
        self.known.borrow().get(&host).is_none_or(|known| known.takes_writes)
    }

    /// How full a node's disks are, as far as it has said.
    pub(crate) fn disk_level(&self, host: HostId) -> DiskLevel {
        if host == self.local {
            return self.disk.get();
        }
        self.known
            .borrow()
            .get(&host)
            .map_or(DiskLevel::Normal, |known| known.disk)
    }

    /// Whether a member has said something since this node knows it: then it hears, too.
    pub(crate) fn has_spoken(&self, host: HostId) -> bool {
        let known = self.known.borrow();
        host == self.local || known.get(&host).is_some_and(|known| known.schema_version.is_some())
    }

    /// The nodes that answer, this one among them.
    pub(crate) fn live(&self) -> BTreeSet<HostId> {
        let known = self.known.borrow();
        let up = known.iter().filter(|(_, known)| known.is_live);
        up.map(|(host, _)| *host).chain([self.local]).collect()
    }

    /// For how long a node has not answered; zero for one that does.
    pub(crate) fn down_for(&self, host: HostId) -> Duration {
        match self.known.borrow().get(&host) {
            Some(known) if !known.is_live => runtime::now() - known.since,
            _ => Duration::ZERO,
        }
    }

    /// Whether a member has answered long enough to vote. This node has.
    pub(crate) fn has_served(&self, host: HostId) -> bool {
        let known = self.known.borrow();
        host == self.local || known.get(&host).is_some_and(|known| self.serves_long(known))
    }

    fn serves_long(&self, known: &Known) -> bool {
        known.has_served || (known.is_live && runtime::now() - known.since >= self.vote_after)
    }

    /// Members that joined during the life of this process and have not served yet.
    pub(crate) fn newcomers(&self) -> usize {
        let known = self.known.borrow();
        let is_newcomer = |known: &&Known| known.is_new && !self.serves_long(known);
        known.values().filter(is_newcomer).count()
    }

    /// Whether a member joined, never served, and has been away for this long. Never true of a node that was a member
    /// before this process began: that is not known.
    pub(crate) fn has_vanished(&self, host: HostId, after: Duration) -> bool {
        let known = self.known.borrow();
        let is_newcomer = known
            .get(&host)
            .is_some_and(|known| known.is_new && !self.serves_long(known));
        drop(known);
        is_newcomer && self.down_for(host) >= after
    }

    /// The schema versions that others have said they have.
    pub(crate) fn schema_versions(&self) -> BTreeMap<HostId, Uuid> {
        let known = self.known.borrow();
        let versions = known
            .iter()
            .filter_map(|(host, known)| Some((*host, known.schema_version?)));
        versions.collect()
    }

    /// How far a node has applied the log, as it said last.
    pub(crate) fn log_index(&self, host: HostId) -> u64 {
        self.known.borrow().get(&host).map_or(0, |known| known.log_index)
    }

    /// Whether a node has taken over an index of the log. One of another history has not: its indexes are of other
    /// changes.
    pub(crate) fn has(&self, host: HostId, log_index: u64) -> bool {
        let known = self.known.borrow();
        let has = known.get(&host).is_some_and(|known| known.log_index >= log_index);
        has && !self.comparisons.borrow().differs(host)
    }

    /// Whether every node that answers has said that it has applied an index. A node of another history never has: its
    /// indexes are of other changes.
    pub(crate) fn all_live_have(&self, log_index: u64) -> bool {
        let (known, comparisons) = (self.known.borrow(), self.comparisons.borrow());
        let has = |host: HostId, known: &Known| known.log_index >= log_index && !comparisons.differs(host);
        known.iter().all(|(host, known)| !known.is_live || has(*host, known))
    }

    /// Takes what a node says of itself.
    pub(crate) fn on_state(&self, from: HostId, state: &State) {
        let metadata = self.machine.metadata();
        match metadata.topology.node(from).map(|node| node.state) {
            None => return,
            Some(NodeState::Left) => return self.say_left(from, state.internode),
            Some(_) if metadata.topology.is_excluded(from) => return self.say_left(from, state.internode),
            Some(NodeState::Joining | NodeState::Normal | NodeState::Leaving) => {}
        }
        self.note_address(from, state.internode);
        if let Some(known) = self.known.borrow_mut().get_mut(&from) {
            known.log_index = known.log_index.max(state.log_index);
            let before = known.schema_version.replace(state.schema_version);
            if before.is_none() {
                self.tend.notify_all();
            }
            if before != Some(state.schema_version) {
                self.machine.members_changed.notify_all();
            }
        }
        self.heard.notify_all();
        self.on_health(from, state.health, state.message);
        if let Some(message) = state.message {
            let asks = matches!(message, Message::Ping { .. } | Message::PingRequest { .. });
            if asks && self.is_leaving.get() {
                return;
            }
            if !self.is_live(from) {
                // It is there: what failed before says nothing of now.
                self.rpc.retry_now(from.0);
            }
            self.detector.borrow_mut().on_message(from, message, monotonic());
            self.take_outputs();
        }
    }

    /// Takes how a node is. Its clock is of use where it comes with the answer to a ping: the round trip bounds the
    /// error.
    fn on_health(&self, from: HostId, health: Health, message: Option<Message>) {
        if let Some(Message::Ack { seq }) = message
            && let Some(sent) = self.detector.borrow().sent_at(from, seq)
        {
            let round_trip = monotonic().saturating_sub(sent);
            let answered_us = runtime::steady_clock_us();
            let asked_us = answered_us - i64::try_from(round_trip.as_micros()).unwrap_or(i64::MAX / 2);
            let sample = ClockSample::of_answer(asked_us, answered_us, health.clock_us, health.is_clock_trusted);
            if let Some(sample) = sample {
                self.clock.borrow_mut().note(from, sample);
            }
        }
        let disk = health.disk;
        let (took, was) = match self.known.borrow_mut().get_mut(&from) {
            Some(known) => {
                known.fence = Some(health.fence);
                let took = std::mem::replace(&mut known.takes_writes, health.takes_writes);
                (took, std::mem::replace(&mut known.disk, disk))
            }
            None => return,
        };
        self.mind_fence();
        if took != health.takes_writes {
            let says = if health.takes_writes {
                "takes writes again"
            } else {
                "takes no writes"
            };
            log::info!("node {} {says}", self.machine.metadata().name_of(from));
            self.listener.takes_writes(from, health.takes_writes);
        }
        if was != disk {
            if was.takes_growth() != disk.takes_growth() {
                let says = if disk.takes_growth() {
                    "has room on its disks again and takes data"
                } else {
                    "has full disks and takes no data"
                };
                log::info!("node {} {says}", self.machine.metadata().name_of(from));
            }
            self.listener.disk_level(from, disk);
        }
    }

    /// Notifies the listener of the fence of the members, if this node has not reached it yet. Only the last message of
    /// each member counts, so what another node said in a member's name is over with that member's next message.
    pub(crate) fn mind_fence(&self) {
        let index = self.machine.metadata().index;
        let heard = self.known.borrow().values().filter_map(|known| known.fence).max();
        let before = heard.filter(|fence| *fence > index).unwrap_or(0);
        if self.fenced_off.replace(before) != before {
            if before > 0 {
                log::warn!(
                    "the others refuse what was routed by versions of the cluster before {before}, and this node is at {index}: it serves nothing \
                     until it has caught up"
                );
            }
            self.listener.fenced_off(before);
        }
    }

    /// The version before which a member that answers refuses requests, unless this node has taken it over.
    pub(crate) fn refused_before(&self) -> Option<u64> {
        let known = self.known.borrow();
        let live = known.values().filter(|known| known.is_live);
        let refused = live.filter_map(|known| known.fence).max();
        refused.filter(|fence| *fence > self.machine.taken_index())
    }

    /// Whether every member that answers, and this node, refuses requests from before this version.
    pub(crate) fn all_live_refuse(&self, before: u64) -> bool {
        let known = self.known.borrow();
        let refuses = |known: &Known| known.fence.is_none_or(|fence| fence >= before);
        self.machine.taken_fence() >= before && known.values().all(|known| !known.is_live || refuses(known))
    }

    /// A node has started and serves no clients yet, or it says whether it serves them from now on.
    pub(crate) fn on_greeting(&self, from: HostId, greeting: Greeting) {
        if self.machine.metadata().topology.is_excluded(from) {
            return;
        }
        if let Some(known) = self.known.borrow_mut().get_mut(&from) {
            known.is_open = Some(greeting == Greeting::Open);
        }
        self.compare_serving(from);
        self.rpc.retry_now(from.0);
        if !self.is_live(from) {
            self.detector.borrow_mut().on_sign(from, monotonic());
            self.take_outputs();
        } else if greeting == Greeting::Starting {
            // It was back before this node missed it, and the connections to its previous run are gone.
            self.listener.liveness(from, true);
        }
    }

    /// A member has answered this node's first greeting. Its own greetings are newer than that.
    pub(crate) fn on_greeting_answer(&self, from: HostId, is_open: bool) {
        if let Some(known) = self.known.borrow_mut().get_mut(&from) {
            known.is_open.get_or_insert(is_open);
        }
        self.compare_serving(from);
    }

    /// A node stops, in good order: no node needs to wait for it.
    pub(crate) fn on_goodbye(&self, from: HostId) {
        if let Some(known) = self.known.borrow_mut().get_mut(&from) {
            known.is_open = Some(false);
        }
        self.detector.borrow_mut().on_goodbye(from, monotonic());
        self.take_outputs();
    }

    /// Notifies all members that answer that this node stops.
    pub(crate) async fn say_goodbye(&self) {
        let calls: Vec<_> = self
            .live()
            .into_iter()
            .filter(|host| *host != self.local)
            .filter_map(|host| self.peer(host))
            .map(|peer| self.rpc.call(&peer, 0, wire::GOODBYE, Vec::new(), GOODBYE_TIMEOUT))
            .collect();
        for call in calls {
            // A member that does not hear of it finds out.
            let _ = call.await;
        }
    }

    /// Notifies a node that has left and still sends messages as a member; no other node will notify it.
    fn say_left(&self, host: HostId, address: SocketAddr) {
        let state = State {
            has_left: true,
            lineage: None,
            ..self.state(None, host)
        };
        let peer = self.reach.peer(host.0, address, &self.location, None);
        drop(self.rpc.send(&peer, 0, wire::STATE, state.encode(), SEND_TIMEOUT));
    }

    fn state(&self, message: Option<Message>, to: HostId) -> State {
        let metadata = self.machine.metadata();
        State {
            message,
            log_index: self.machine.taken_index(),
            schema_version: metadata.schema.version,
            internode: self.internode,
            has_left: false,
            health: self.health(),
            lineage: self.lineage(to),
        }
    }

    fn health(&self) -> Health {
        Health {
            clock_us: runtime::system_clock_us(),
            is_clock_trusted: runtime::is_clock_trusted(),
            takes_writes: self.takes_writes.get(),
            fence: self.machine.taken_fence(),
            disk: self.disk.get(),
        }
    }

    /// What this node reports to another about histories and about the other's last run.
    fn lineage(&self, to: HostId) -> Option<Lineage> {
        let histories = self.machine.histories.borrow();
        let told = self.comparisons.borrow().told(to);
        Some(Lineage {
            last: histories.last()?,
            at_yours: told.and_then(|(index, _)| histories.at(index)),
            your_run: self.machine.metadata().run_of(to)?,
        })
    }

    /// Reports to all members what this node has.
    pub(crate) fn broadcast(&self) {
        let hosts: Vec<HostId> = self.known.borrow().keys().copied().collect();
        for host in hosts {
            if let Some(peer) = self.peer(host) {
                let state = self.state(None, host).encode();
                drop(self.rpc.send(&peer, 0, wire::STATE, state, SEND_TIMEOUT));
            }
        }
    }

    fn take_outputs(&self) {
        loop {
            let Some(output) = self.detector.borrow_mut().next_output() else {
                return;
            };
            match output {
                Output::Send { to, message } => {
                    let Some(peer) = self.peer(to) else {
                        continue;
                    };
                    let body = self.state(Some(message), to).encode();
                    if self.rpc.send(&peer, 0, wire::STATE, body, SEND_TIMEOUT).is_err() {
                        self.detector.borrow_mut().on_send_failed(to, monotonic());
                    }
                }
                Output::Changed { peer, status } => self.change(peer, status),
            }
        }
    }

    fn change(&self, host: HostId, status: Status) {
        if let Some(known) = self.known.borrow_mut().get_mut(&host) {
            known.status = status;
        }
        self.judge(host);
    }

    /// Decides whether requests are sent to a node; notifies the listener and this node's tasks if that has changed.
    fn judge(&self, host: HostId) {
        let is_live = {
            let mut known = self.known.borrow_mut();
            let Some(peer) = known.get_mut(&host) else {
                return;
            };
            let is_live = peer.status == Status::Up && peer.heard.is_none();
            if peer.is_live == is_live {
                return;
            }
            peer.has_served = self.serves_long(peer);
            peer.is_live = is_live;
            peer.since = runtime::now();
            is_live
        };
        let word = if is_live { "up" } else { "down" };
        log::info!("node {} is {word}", self.machine.metadata().name_of(host));
        self.machine.members_changed.notify_all();
        self.listener.liveness(host, is_live);
        self.compare_serving(host);
        self.heard.notify_all();
    }

    /// Notifies what describes the members to clients when a node begins or ceases to serve them.
    fn compare_serving(&self, host: HostId) {
        let serves = self.serves_clients(host);
        let served = {
            let mut known = self.known.borrow_mut();
            let Some(known) = known.get_mut(&host) else {
                return;
            };
            std::mem::replace(&mut known.serves, serves)
        };
        if served != serves {
            self.machine.members_changed.notify_all();
        }
    }

    /// One turn of the detector; how long it may rest then.
    pub(crate) fn tick(&self) -> Duration {
        self.detector.borrow_mut().tick(monotonic());
        self.take_outputs();
        let deadline = self.detector.borrow().next_deadline();
        let rest = deadline.map_or(TICK_MAX, |deadline| deadline.saturating_sub(monotonic()));
        rest.clamp(Duration::from_millis(1), TICK_MAX)
    }
}

/// Sends the group's messages to the node that has the Raft id.
pub(crate) struct RaftTransport {
    pub(crate) own_id: u64,
    pub(crate) peers: Rc<Peers>,
}

impl Transport for RaftTransport {
    fn send(&self, to: u64, message: Vec<u8>) {
        let metadata = self.peers.machine.metadata();
        let node = node_number(to).and_then(|number| metadata.topology.numbered(number));
        let Some(peer) = node.and_then(|node| self.peers.peer(node.host_id)) else {
            return;
        };
        let mut body = self.own_id.to_be_bytes().to_vec();
        body.extend_from_slice(&message);
        drop(self.peers.rpc.send(&peer, 0, wire::RAFT, body, SEND_TIMEOUT));
    }
}
