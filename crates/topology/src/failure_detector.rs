//! Which nodes answer: a failure detector without sockets and clock.
//!
//! Every node pings every other once per interval; an answer (*ack*) proves that the peer was alive when the ping was
//! sent, and that the link works both ways. When an ack does not come in time, the ping is repeated once, because one
//! message in many is lost on a good link, and up to `helpers` other nodes are asked to ping the peer (an *indirect*
//! ping, as in SWIM), so that a broken link is distinguished from a dead node. A ping or request of the peer itself
//! proves that it is alive, though not that it can be reached.
//!
//! | status | means | what follows |
//! |---|---|---|
//! | `Up` | acks arrive | requests are sent to it |
//! | `Unreachable` | other nodes or its own pings say it lives, no ack for `down_after` | no requests; not replaced |
//! | `Down` | no sign of life for `down_after` | no requests; hints are written |
//!
//! A peer that is not up and pings is pinged at once, so that a node that comes back is up for the others as soon as
//! they are for it.
//!
//! *Damping.* A peer becomes `Up` again after several acks in a row. It is two at first, and twice as many each time
//! that it went down, up to `recovery_acks_max`; after `calm` without going down again it is two again. A node that was
//! itself stopped (a paused process, a long system call) receives nothing from any peer; when a tick comes late, the
//! time lost is not counted against the peers.
//!
//! Times are those of a monotonic clock, since any moment. The owner calls [`FailureDetector::tick`] at
//! [`FailureDetector::next_deadline`] or earlier, hands in what arrives, and takes [`Output`]s until there are none. It
//! lives on one shard of a node and sees the cluster.
//!
//! Two messages per peer and interval, some fourteen more when one is lost; all of a node's state is a few hundred
//! bytes per peer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::node::HostId;

/// Pings to one peer that may still be answered; older ones are forgotten.
const OUTSTANDING_MAX: usize = 32;
/// Indirect pings on behalf of others that are under way at once; further requests are not heeded, and their senders
/// ask again.
const RELAYS_MAX: usize = 256;
/// How many times more often than usual a peer that shows signs of life is pinged at most.
const HASTE_MAX: u32 = 5;
/// Acks in a row that bring back a peer that fell once.
const RECOVERY_ACKS_MIN: u32 = 2;

/// What the detector is tuned by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureDetectorConfig {
    /// Between two pings to a peer.
    pub interval: Duration,
    /// After which a ping without ack is repeated, and followed by indirect ones.
    pub ack_timeout: Duration,
    /// Without a sign of life, after which a peer is down.
    pub down_after: Duration,
    /// How many nodes are asked to ping for us.
    pub helpers: usize,
    /// Without a fall, after which earlier falls are forgotten.
    pub calm: Duration,
    /// The most acks in a row that are asked of a peer that keeps falling.
    pub recovery_acks_max: u32,
}

impl Default for FailureDetectorConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(500),
            ack_timeout: Duration::from_millis(400),
            down_after: Duration::from_secs(3),
            helpers: 3,
            calm: Duration::from_secs(60),
            recovery_acks_max: 16,
        }
    }
}

/// What detectors say to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Are you alive?
    Ping {
        /// Comes back in the ack.
        seq: u64,
    },
    /// I am.
    Ack {
        /// That of the ping.
        seq: u64,
    },
    /// Ping another for me.
    PingRequest {
        /// Comes back in the answer.
        seq: u64,
        /// The node to ping.
        target: HostId,
    },
    /// It answered me.
    PingRequestAck {
        /// That of the request.
        seq: u64,
        /// The node that answered.
        target: HostId,
    },
}

/// What a peer is to this node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// It answers.
    Up,
    /// It is alive, but does not answer this node.
    Unreachable,
    /// It is not alive, as far as any node can determine.
    Down,
}

/// What the owner of a detector shall do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send this; it may be lost.
    Send {
        /// The node to send to.
        to: HostId,
        /// What.
        message: Message,
    },
    /// A peer has another status than before.
    Changed {
        /// The peer.
        peer: HostId,
        /// Its status now.
        status: Status,
    },
}

#[derive(Debug)]
struct Outstanding {
    seq: u64,
    sent: Duration,
    /// It was repeated and helpers were asked, so the answer may come through them; or it is a repetition itself.
    was_followed_up: bool,
}

#[derive(Debug)]
struct Peer {
    status: Status,
    /// When it was alive for certain: when a ping was sent that it answered, or when it said something.
    alive_at: Duration,
    /// When a ping was sent that it answered directly.
    acked_at: Duration,
    outstanding: VecDeque<Outstanding>,
    next_ping: Duration,
    acks_in_row: u32,
    acks_to_recover: u32,
    fell_at: Duration,
}

/// A ping on behalf of another.
#[derive(Debug)]
struct Relay {
    /// Of our ping to the target.
    seq: u64,
    target: HostId,
    requester: HostId,
    /// Of the requester's request.
    requester_seq: u64,
    expires: Duration,
}

/// One node's view of which nodes are alive.
#[derive(Debug)]
pub struct FailureDetector {
    config: FailureDetectorConfig,
    local: HostId,
    peers: BTreeMap<HostId, Peer>,
    relays: VecDeque<Relay>,
    outputs: VecDeque<Output>,
    next_seq: u64,
    /// Turns with each request, so that it is not always the same nodes that help.
    next_helper: usize,
    last_tick: Duration,
}

impl FailureDetector {
    /// A detector that watches no nodes yet. `first_seq` differs from run to run of a node, so that an ack to a ping of
    /// an earlier run proves nothing.
    #[must_use]
    pub fn new(config: FailureDetectorConfig, local: HostId, first_seq: u64, now: Duration) -> Self {
        Self {
            config,
            local,
            peers: BTreeMap::new(),
            relays: VecDeque::new(),
            outputs: VecDeque::new(),
            next_seq: first_seq,
            next_helper: 0,
            last_tick: now,
        }
    }

    /// Watches these nodes and no others; this node itself is left out. A new peer is `Down` until it answers once, and
    /// pinged at once.
    pub fn set_peers(&mut self, peers: &BTreeSet<HostId>, now: Duration) {
        self.peers.retain(|id, _| peers.contains(id));
        let local = self.local;
        for id in peers.iter().filter(|id| **id != local) {
            self.peers.entry(*id).or_insert_with(|| Peer {
                status: Status::Down,
                alive_at: now,
                acked_at: now,
                outstanding: VecDeque::new(),
                next_ping: now,
                acks_in_row: 0,
                acks_to_recover: 1,
                fell_at: now,
            });
        }
    }

    /// The status of a peer; None for one that is not watched.
    #[must_use]
    pub fn status(&self, peer: HostId) -> Option<Status> {
        self.peers.get(&peer).map(|p| p.status)
    }

    /// How long ago a peer was alive for certain; None for one that is not watched.
    #[must_use]
    pub fn silent_for(&self, peer: HostId, now: Duration) -> Option<Duration> {
        self.peers.get(&peer).map(|p| now.saturating_sub(p.alive_at))
    }

    /// When the ping was sent that an ack answers; None for one that answers no ping of ours.
    #[must_use]
    pub fn sent_at(&self, peer: HostId, seq: u64) -> Option<Duration> {
        let outstanding = &self.peers.get(&peer)?.outstanding;
        outstanding.iter().find(|o| o.seq == seq).map(|o| o.sent)
    }

    /// What to do next; to be taken until there is nothing.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The latest time of the next call of [`Self::tick`]; None while no node is watched.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.peers.values().map(|peer| self.deadline(peer)).min()
    }

    fn deadline(&self, peer: &Peer) -> Duration {
        let mut deadline = peer.next_ping;
        if let Some(unanswered) = peer.outstanding.iter().find(|o| !o.was_followed_up) {
            deadline = deadline.min(unanswered.sent + self.config.ack_timeout);
        }
        match peer.status {
            Status::Up => deadline = deadline.min(peer.alive_at.min(peer.acked_at) + self.config.down_after),
            Status::Unreachable => deadline = deadline.min(peer.alive_at + self.config.down_after),
            Status::Down => {}
        }
        deadline
    }

    /// Sends what is due and determines which peers have been silent too long.
    pub fn tick(&mut self, now: Duration) {
        self.forgive_own_pause(now);
        self.last_tick = now;
        self.relays.retain(|relay| relay.expires > now);
        let ids: Vec<HostId> = self.peers.keys().copied().collect();
        for id in ids {
            self.follow_up(id, now);
            self.ping(id, now);
            self.judge(id, now);
        }
    }

    /// Moves all times forward by what this node has lost itself.
    fn forgive_own_pause(&mut self, now: Duration) {
        let late = now
            .saturating_sub(self.last_tick)
            .saturating_sub(2 * self.config.interval);
        if late.is_zero() {
            return;
        }
        for peer in self.peers.values_mut() {
            peer.alive_at = (peer.alive_at + late).min(now);
            peer.acked_at = (peer.acked_at + late).min(now);
            // What was on its way is lost or was answered long ago; either says nothing of now.
            peer.outstanding.clear();
        }
    }

    fn follow_up(&mut self, id: HostId, now: Duration) {
        let timeout = self.config.ack_timeout;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let mut due = None;
        for outstanding in &mut peer.outstanding {
            if !outstanding.was_followed_up && outstanding.sent + timeout <= now {
                outstanding.was_followed_up = true;
                peer.acks_in_row = 0;
                due = Some(outstanding.seq);
            }
        }
        if let Some(seq) = due {
            self.request_pings(id, seq);
            self.send_ping(id, now, true);
        }
    }

    fn request_pings(&mut self, target: HostId, seq: u64) {
        let up = |(id, peer): (&HostId, &Peer)| (*id != target && peer.status == Status::Up).then_some(*id);
        let able: Vec<HostId> = self.peers.iter().filter_map(up).collect();
        if able.is_empty() {
            return;
        }
        for turn in 0..self.config.helpers.min(able.len()) {
            let to = able[(self.next_helper + turn) % able.len()];
            self.send(to, Message::PingRequest { seq, target });
        }
        self.next_helper = self.next_helper.wrapping_add(self.config.helpers);
    }

    fn ping(&mut self, id: HostId, now: Duration) {
        if let Some(peer) = self.peers.get_mut(&id)
            && peer.next_ping <= now
        {
            peer.next_ping = now + self.config.interval;
            self.send_ping(id, now, false);
        }
    }

    /// A repetition is not repeated, nor are helpers asked about it.
    fn send_ping(&mut self, id: HostId, now: Duration, is_repetition: bool) {
        let (seq, keep_after) = (self.next_seq, now.saturating_sub(self.config.down_after));
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        while peer.outstanding.len() >= OUTSTANDING_MAX || peer.outstanding.front().is_some_and(|o| o.sent < keep_after)
        {
            peer.outstanding.pop_front();
        }
        peer.outstanding.push_back(Outstanding {
            seq,
            sent: now,
            was_followed_up: is_repetition,
        });
        self.next_seq = self.next_seq.wrapping_add(1);
        self.send(id, Message::Ping { seq });
    }

    fn judge(&mut self, id: HostId, now: Duration) {
        let limit = self.config.down_after;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let is_silent = now.saturating_sub(peer.alive_at) >= limit;
        let is_unreachable = now.saturating_sub(peer.acked_at) >= limit;
        let next = match peer.status {
            Status::Up | Status::Unreachable if is_silent => Status::Down,
            Status::Up if is_unreachable => Status::Unreachable,
            unchanged => unchanged,
        };
        if peer.status == Status::Up && next != Status::Up {
            let was_calm = now.saturating_sub(peer.fell_at) >= self.config.calm;
            let more = if was_calm {
                RECOVERY_ACKS_MIN
            } else {
                peer.acks_to_recover.saturating_mul(2)
            };
            peer.acks_to_recover = more.clamp(RECOVERY_ACKS_MIN, self.config.recovery_acks_max.max(RECOVERY_ACKS_MIN));
            peer.acks_in_row = 0;
            peer.fell_at = now;
        }
        self.change(id, next);
    }

    /// A message came from a peer. Those of nodes that are not watched are answered when they ask, and otherwise not
    /// heeded.
    pub fn on_message(&mut self, from: HostId, message: Message, now: Duration) {
        match message {
            Message::Ping { seq } => self.on_ping(from, seq, now),
            Message::Ack { seq } => self.on_ack(from, seq, now),
            Message::PingRequest { seq, target } => {
                self.note_alive(from, now);
                if target == self.local {
                    self.send(from, Message::PingRequestAck { seq, target });
                } else if self.peers.contains_key(&target) && self.relays.len() < RELAYS_MAX {
                    let own_seq = self.next_seq;
                    self.next_seq = self.next_seq.wrapping_add(1);
                    self.relays.push_back(Relay {
                        seq: own_seq,
                        target,
                        requester: from,
                        requester_seq: seq,
                        expires: now + 2 * self.config.ack_timeout,
                    });
                    self.send(target, Message::Ping { seq: own_seq });
                }
            }
            Message::PingRequestAck { seq, target } => {
                self.note_alive(from, now);
                let Some(peer) = self.peers.get_mut(&target) else {
                    return;
                };
                let sent = peer
                    .outstanding
                    .iter()
                    .find(|o| o.was_followed_up && o.seq == seq)
                    .map(|o| o.sent);
                if let Some(sent) = sent {
                    self.note_alive(target, sent);
                }
            }
        }
    }

    /// A ping came: it is answered, and its sender is alive.
    pub fn on_ping(&mut self, from: HostId, seq: u64, now: Duration) {
        self.note_alive(from, now);
        self.send(from, Message::Ack { seq });
        self.on_sign(from, now);
    }

    /// A peer that is not `Up` has said something: it is pinged at once, for it may have just come back.
    pub fn on_sign(&mut self, from: HostId, now: Duration) {
        let pause = self.config.interval / HASTE_MAX;
        let is_due = |peer: &Peer| {
            peer.status != Status::Up && peer.outstanding.back().is_none_or(|last| last.sent + pause <= now)
        };
        if self.peers.get(&from).is_some_and(is_due) {
            self.send_ping(from, now, false);
        }
    }

    /// An ack came. One that answers no ping of ours, or one too old, proves nothing.
    pub fn on_ack(&mut self, from: HostId, seq: u64, now: Duration) {
        if let Some(at) = self.relays.iter().position(|r| r.seq == seq && r.target == from) {
            let relay = self.relays.remove(at).expect("it was found there");
            self.note_alive(from, now);
            let (seq, target) = (relay.requester_seq, relay.target);
            self.send(relay.requester, Message::PingRequestAck { seq, target });
            return;
        }
        let limit = self.config.down_after;
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        let Some(at) = peer.outstanding.iter().position(|o| o.seq == seq) else {
            return;
        };
        let answered = peer.outstanding.remove(at).expect("it was found there");
        if now.saturating_sub(answered.sent) >= limit {
            return;
        }
        peer.alive_at = peer.alive_at.max(answered.sent);
        peer.acked_at = peer.acked_at.max(answered.sent);
        peer.acks_in_row = peer.acks_in_row.saturating_add(1);
        if peer.status != Status::Up && peer.acks_in_row >= peer.acks_to_recover {
            self.change(from, Status::Up);
        }
    }

    /// A peer says that it stops: it is down at once, and that is no fall. Answers that are still on their way prove
    /// nothing.
    pub fn on_goodbye(&mut self, from: HostId, now: Duration) {
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        peer.outstanding.clear();
        peer.acks_in_row = 0;
        peer.acks_to_recover = 1;
        peer.next_ping = now + self.config.interval;
        self.change(from, Status::Down);
    }

    /// A message could not be handed to the network, as when the peer refuses the connection: others are asked about it
    /// at once.
    pub fn on_send_failed(&mut self, to: HostId, now: Duration) {
        let Some(peer) = self.peers.get_mut(&to) else {
            return;
        };
        peer.acks_in_row = 0;
        let Some(last) = peer
            .outstanding
            .back_mut()
            .filter(|o| !o.was_followed_up && o.sent <= now)
        else {
            return;
        };
        last.was_followed_up = true;
        let seq = last.seq;
        self.request_pings(to, seq);
    }

    fn note_alive(&mut self, id: HostId, at: Duration) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.alive_at = peer.alive_at.max(at);
        // One that was never up was not heard of by an ack yet; it stays down until then.
        if peer.status == Status::Down && peer.acks_to_recover >= RECOVERY_ACKS_MIN {
            let is_fresh = self.last_tick.saturating_sub(peer.alive_at) < self.config.down_after;
            if is_fresh {
                self.change(id, Status::Unreachable);
            }
        }
    }

    fn change(&mut self, id: HostId, status: Status) {
        if let Some(peer) = self.peers.get_mut(&id)
            && peer.status != status
        {
            peer.status = status;
            self.outputs.push_back(Output::Changed { peer: id, status });
        }
    }

    fn send(&mut self, to: HostId, message: Message) {
        self.outputs.push_back(Output::Send { to, message });
    }
}
