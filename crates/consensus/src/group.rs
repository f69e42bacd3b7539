//! The group as a value: it takes time, messages and requests, and returns what to store, to send and to apply.
//!
//! The protocol itself is the library's (`RawNode`). This module adds epochs, election timeouts drawn from our own
//! seed, snapshots on demand, and leaving joint configurations. What peers send goes through `check` first, because the
//! library panics on what a correct peer never sends.
//!
//! Order of use: [`Group::output`]; send `now`; make `persist` durable; [`Group::persisted`], which gives what to send
//! and to apply then. Votes and acknowledgements are never in `now`, so nothing is promised that a power loss can take
//! back.
//!
//! Determinism: the library draws timeouts from the thread's generator. After every call into it that timeout is
//! overwritten by one drawn from the group's seed, before anything can look at it: only a tick looks, and it looks
//! first and draws later.

use crate::check::{EPOCH_LIFT_MAX, EPOCH_MAX, can_campaign, check, needs_durable_log, term_at};
use crate::codec::{MEMBERS_MAX, Malformed, put_u64};
use crate::config::StateMachine;
use crate::epoch::Epoch;
use crate::log::EntryLog;
use crate::members::{Change, VOTERS_MAX};
use crate::message::{self, Body, Header};
use crate::recovered::Recovered;
use crate::status::{Divergence, LostEntries};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, HardState, Message, MessageType,
    Snapshot,
};
use raft::{Config, ProgressState, RawNode, ReadState, Ready, SnapshotStatus, StateRole, Storage};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use stdx::bytes::Reader;
use stdx::planted::{self, Bug};
use stdx::random::SplitMix64;

/// Bytes of entries in one message, about.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Messages with entries on their way to one member.
const IN_FLIGHT_MESSAGES: usize = 64;
/// Bytes of entries that wait to be committed; more proposals are dropped, and their proposers try again.
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Changes in one membership entry.
pub(crate) const CHANGES_MAX: usize = 64;
/// Messages that wait until the log is durable. Each member sends one in an election.
const DEFERRED_MAX: usize = 64;

/// The fixed parameters of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupOptions {
    pub(crate) group: u64,
    pub(crate) id: u64,
    pub(crate) seed: u64,
    pub(crate) heartbeat_ticks: usize,
    pub(crate) election_ticks: usize,
    pub(crate) snapshot_ticks: u64,
    pub(crate) is_silent: bool,
}

/// Why a message was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Malformed(Malformed),
    /// Of another group, to another node, or not from the sender that it names.
    Misdirected {
        group: u64,
        from: u64,
        to: u64,
    },
    /// Its sender is in an epoch that ended when a majority was given up.
    EpochOver {
        theirs: Epoch,
        ours: Epoch,
    },
    /// Its sender follows another recovery from the same lost majority.
    OtherRecovery {
        theirs: Epoch,
        ours: Epoch,
    },
    /// This node is in such an epoch.
    Superseded {
        epoch: u64,
    },
    /// The leader knows this node to have entries that it does not have: its store lost what it had promised.
    LostEntries(LostEntries),
    /// The leader's log differs from this member's where this member knows entries to be committed.
    Diverged(Divergence),
    /// A correct member does not send it.
    Impossible {
        what: &'static str,
    },
    /// What it brings for the machine is not what the machine reads.
    Unreadable {
        what: &'static str,
        why: String,
    },
}

impl Refused {
    /// Distinguishes kinds of refusals.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Malformed(_) => 0,
            Self::Misdirected { .. } => 1,
            Self::EpochOver { .. } => 2,
            Self::Superseded { .. } => 3,
            Self::LostEntries(_) => 4,
            Self::Impossible { .. } => 5,
            Self::Unreadable { .. } => 6,
            Self::OtherRecovery { .. } => 7,
            Self::Diverged(_) => 8,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => write!(f, "a malformed message: {malformed}"),
            Self::Misdirected { group, from, to } => {
                write!(
                    f,
                    "a message of group {group:#x} from {from} to {to}, which is not ours"
                )
            }
            Self::EpochOver { theirs, ours } => write!(
                f,
                "a message of epoch {theirs}, which ended when epoch {ours} was recovered from a lost majority"
            ),
            Self::OtherRecovery { theirs, ours } => write!(
                f,
                "a message of epoch {theirs}, and this member is in epoch {ours}: two nodes were recovered from the same lost majority. Stop the nodes \
                 of one of the two epochs, and have them follow the other (ceto recover-metadata --follow)"
            ),
            Self::Superseded { epoch } => write!(
                f,
                "the group continued without this node in epoch {epoch}; it must join again as a new member with an empty directory"
            ),
            Self::LostEntries(lost) => write!(
                f,
                "the leader has this node's word for entries up to {}, but they end at {}: the metadata log of this \
                 node lost what it had promised",
                lost.promised, lost.last
            ),
            Self::Diverged(Divergence {
                index,
                term,
                leader_term,
                ..
            }) => write!(
                f,
                "an entry {index} of term {leader_term}, and this member knows that entry to be committed with term {term}: the two logs are of two histories"
            ),
            Self::Impossible { what } => write!(f, "a message with {what}"),
            Self::Unreadable { what, why } => write!(f, "a {what} that cannot be read: {why}"),
        }
    }
}

/// What must be durable before [`Group::persisted`] is called.
#[derive(Default)]
pub(crate) struct Persist {
    pub(crate) epoch: Option<Epoch>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) hard_state: Option<HardState>,
}

impl Persist {
    pub(crate) fn is_empty(&self) -> bool {
        self.epoch.is_none() && self.snapshot.is_none() && self.entries.is_empty() && self.hard_state.is_none()
    }
}

/// A message and its addressee.
pub(crate) type Outgoing = (u64, Vec<u8>);

/// What the group wants done.
#[derive(Default)]
pub(crate) struct Output {
    /// Messages to send at once.
    pub(crate) now: Vec<Outgoing>,
    pub(crate) persist: Persist,
    /// Committed entries, in order, and durable here already.
    pub(crate) committed: Vec<Entry>,
    pub(crate) reads: Vec<ReadState>,
    ready: Option<Ready>,
}

/// What may be done once an output is durable.
#[derive(Default)]
pub(crate) struct After {
    pub(crate) send: Vec<Outgoing>,
    pub(crate) committed: Vec<Entry>,
}

pub(crate) struct Group {
    options: GroupOptions,
    raw: RawNode<EntryLog>,
    /// `None` until a node that joins has heard from the group.
    epoch: Option<Epoch>,
    is_epoch_new: bool,
    superseded_by: Option<u64>,
    lost_entries: Option<LostEntries>,
    /// What the leader said last of another history, and the tick of that.
    diverged: Option<(Divergence, u64)>,
    /// The caller lets it take no part.
    is_silent: bool,
    /// As of the last applied entry.
    conf: ConfState,
    /// Commit index as of the last durable hard state, and that state.
    hard_state: HardState,
    random: SplitMix64,
    timeout: usize,
    ticks: u64,
    /// The tick in which each member was last sent a snapshot.
    snapshots_sent: BTreeMap<u64, u64>,
    offered_at: Option<u64>,
    notices: Vec<Outgoing>,
    /// Messages that the library may see once the log is durable.
    deferred: Vec<Message>,
}

impl Group {
    pub(crate) fn new(options: GroupOptions, recovered: Recovered) -> Result<Self, raft::Error> {
        let conf = recovered.conf.clone();
        let hard_state = recovered.hard_state.clone();
        let log = EntryLog::new(
            recovered.hard_state,
            recovered.conf,
            recovered.truncated,
            recovered.entries,
        );
        let config = Config {
            id: options.id,
            election_tick: options.election_ticks,
            heartbeat_tick: options.heartbeat_ticks,
            applied: recovered.snapshot_index,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: IN_FLIGHT_MESSAGES,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            ..Config::default()
        };
        config.validate()?;
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut group = Self {
            options,
            raw: RawNode::new(&config, log, &logger)?,
            epoch: recovered.epoch,
            is_epoch_new: false,
            superseded_by: None,
            lost_entries: None,
            diverged: None,
            is_silent: options.is_silent,
            conf,
            hard_state,
            random: SplitMix64::new(options.seed),
            timeout: options.election_ticks,
            ticks: 0,
            snapshots_sent: BTreeMap::new(),
            offered_at: None,
            notices: Vec::new(),
            deferred: Vec::new(),
        };
        group.settle_timeout();
        group.campaign_alone()?;
        Ok(group)
    }

    /// A member that votes alone need not wait whether another leads.
    fn campaign_alone(&mut self) -> Result<(), raft::Error> {
        let is_alone = self.conf.voters == [self.options.id] && self.conf.voters_outgoing.is_empty();
        if is_alone && !self.is_silent && !self.is_leader() {
            self.raw.campaign()?;
            self.settle_timeout();
        }
        Ok(())
    }

    /// Makes the member take no part, or take part again: to the others it looks as if it had been cut off.
    pub(crate) fn set_silent(&mut self, is_silent: bool) {
        self.is_silent = is_silent;
        // It fails only while a change of members is not applied yet; an election follows by itself then.
        let _ = self.campaign_alone();
    }

    /// One tick of time has passed.
    pub(crate) fn tick(&mut self) {
        if self.is_out() {
            return;
        }
        self.ticks += 1;
        // A member that restores a snapshot does not campaign: the library would look for entries that are gone.
        if self.is_leader() || can_campaign(&self.raw.raft) {
            self.raw.tick();
            self.settle_timeout();
        }
        // The library does not notice a lost snapshot: it would wait for its receiver permanently.
        let overdue: Vec<u64> = self
            .snapshots_sent
            .iter()
            .filter(|(_, at)| self.ticks - **at >= self.options.snapshot_ticks)
            .map(|(to, _)| *to)
            .collect();
        for to in overdue {
            self.snapshots_sent.remove(&to);
            if self
                .raw
                .raft
                .prs()
                .get(to)
                .is_some_and(|progress| progress.state == ProgressState::Snapshot)
            {
                self.raw.report_snapshot(to, SnapshotStatus::Failure);
            }
        }
        if self
            .offered_at
            .is_some_and(|at| self.ticks - at >= self.options.snapshot_ticks)
        {
            self.offered_at = None;
            self.raw.mut_store().offer(None);
        }
        // A leader that dies at the wrong moment leaves a joint configuration for its follower to end.
        if self.is_leader() && !self.conf.voters_outgoing.is_empty() && !self.raw.raft.has_pending_conf() {
            let _ = self.raw.propose_conf_change(Vec::new(), ConfChangeV2::default());
        }
    }

    /// Takes a message from a peer; `machine` says whether it could read what the message brings.
    pub(crate) fn receive(&mut self, from: u64, bytes: &[u8], machine: &dyn StateMachine) -> Result<(), Refused> {
        if let Some(epoch) = self.superseded_by {
            return Err(Refused::Superseded { epoch });
        }
        if let Some(lost) = self.lost_entries {
            return Err(Refused::LostEntries(lost));
        }
        if self.is_silent {
            return Ok(());
        }
        let (header, body) = message::decode(bytes).map_err(Refused::Malformed)?;
        if header.group != self.options.group
            || header.to != self.options.id
            || header.from != from
            || from == 0
            || from == self.options.id
        {
            return Err(Refused::Misdirected {
                group: header.group,
                from: header.from,
                to: header.to,
            });
        }
        let Some(message) = self.check_epoch(header, body)? else {
            return Ok(());
        };
        check(&message, &self.raw.raft, machine).inspect_err(|refused| match *refused {
            Refused::LostEntries(lost) => self.lost_entries = Some(lost),
            Refused::Diverged(divergence) => self.diverged = Some((divergence, self.ticks)),
            _ => {}
        })?;
        self.compare_histories(&message)?;
        if self.epoch.is_none() {
            self.epoch = Some(header.epoch);
            self.is_epoch_new = true;
        }
        self.step(*message);
        Ok(())
    }

    /// An append that this member has the previous entry of says that the leader's log is its own up to there. A
    /// snapshot cannot be compared: while the leader may have another history, none of its is taken.
    fn compare_histories(&mut self, message: &Message) -> Result<(), Refused> {
        let Some((divergence, seen)) = self.diverged else {
            return Ok(());
        };
        let is_leaders = message.from == self.leader() && message.term == self.term();
        match message.msg_type {
            MessageType::MsgAppend if is_leaders && message.index >= divergence.index => {
                if term_at(&self.raw.raft, message.index) == Some(message.log_term) {
                    self.diverged = None;
                }
                Ok(())
            }
            MessageType::MsgSnapshot if self.ticks < seen + 2 * self.options.snapshot_ticks => {
                Err(Refused::Diverged(divergence))
            }
            _ => Ok(()),
        }
    }

    /// The message, if it is of this member's epoch.
    fn check_epoch(&mut self, header: Header, body: Body) -> Result<Option<Box<Message>>, Refused> {
        let Some(ours) = self.epoch else {
            // Only a leader speaks first to a new member, or a candidate, if it was given a vote before it heard of
            // one.
            return match body {
                Body::Raft(message) if header.epoch.number <= EPOCH_MAX && speaks_first(&message) => Ok(Some(message)),
                _ => Err(Refused::Impossible {
                    what: "something else than a leader's or a candidate's word for a new member",
                }),
            };
        };
        if header.epoch.number < ours.number {
            if matches!(body, Body::Raft(_)) {
                let notice = message::encode_epoch_over(self.header(header.from));
                self.notices.push((header.from, notice));
            }
            return Err(Refused::EpochOver {
                theirs: header.epoch,
                ours,
            });
        }
        if header.epoch.number > ours.number {
            // A recovered group consists of survivors, and every survivor is known here. A message of an unknown
            // member does not end this one.
            let is_survivor = self.raw.raft.prs().get(header.from).is_some();
            if !is_survivor || header.epoch.number - ours.number > EPOCH_LIFT_MAX {
                return Err(Refused::Impossible {
                    what: "a later epoch, from a member that cannot know of it",
                });
            }
            let epoch = header.epoch.number;
            self.superseded_by = Some(epoch);
            return Err(Refused::Superseded { epoch });
        }
        if header.epoch != ours && !planted::is_planted(Bug::IgnoredEpochNonce) {
            return Err(Refused::OtherRecovery {
                theirs: header.epoch,
                ours,
            });
        }
        Ok(match body {
            Body::Raft(message) => Some(message),
            Body::EpochOver => None,
        })
    }

    fn step(&mut self, mut message: Message) {
        if needs_durable_log(&message) && !can_campaign(&self.raw.raft) && !planted::is_planted(Bug::UncheckedPeer) {
            if self.deferred.len() < DEFERRED_MAX {
                self.deferred.push(message);
            }
            return;
        }
        if matches!(message.msg_type, MessageType::MsgPropose | MessageType::MsgReadIndex) {
            // From its proposer to the leader, and no further: a member that has another leader hears of the right one
            // soon, and asks again.
            if !self.is_leader() && !planted::is_planted(Bug::UncheckedPeer) {
                return;
            }
            let is_membership = |entry: &Entry| entry.entry_type != EntryType::EntryNormal;
            if message.msg_type == MessageType::MsgPropose && message.get_entries().iter().any(is_membership) {
                // A forwarded change is built again from our own encoding, so that the library never parses what came
                // from outside.
                let context = message.entries[0].take_context().to_vec();
                if let Some(changes) = decode_changes(&context) {
                    self.propose_changes(&changes);
                }
                return;
            }
        }
        // What the library refuses here (a response from a node that is no member) needs no answer.
        let _ = self.raw.step(message);
        self.settle_timeout();
    }

    /// Takes the messages that waited for a durable log, unless they are out of date.
    fn step_deferred(&mut self) {
        for message in std::mem::take(&mut self.deferred) {
            if message.term >= self.raw.raft.term
                && (message.msg_type != MessageType::MsgTimeoutNow || message.from == self.leader())
            {
                self.step(message);
            }
        }
    }

    /// Puts a proposal into the log, or on its way to the leader. False if no member is known that could take it.
    pub(crate) fn propose(&mut self, data: Vec<u8>) -> bool {
        !self.is_out() && self.diverged().is_none() && self.raw.propose(Vec::new(), data).is_ok()
    }

    /// Proposes a change of members; false if no member is known that could take it.
    pub(crate) fn propose_changes(&mut self, changes: &[Change]) -> bool {
        let change = to_conf_change(changes);
        !self.is_out()
            && self.diverged().is_none()
            && !changes.is_empty()
            && changes.len() <= CHANGES_MAX
            && self.raw.propose_conf_change(encode_changes(changes), change).is_ok()
    }

    /// Asks for the index that must be applied to see everything committed before now; the answer is among an output's
    /// `reads`, or is lost.
    pub(crate) fn read_index(&mut self, context: Vec<u8>) {
        if !self.is_out() && self.diverged().is_none() {
            self.raw.read_index(context);
        }
    }

    /// Asks the voter among these that has most of the log to lead. False when this member does not lead or none of
    /// them votes.
    pub(crate) fn hand_over(&mut self, candidates: &[u64]) -> bool {
        if !self.is_leader() || !self.conf.voters_outgoing.is_empty() {
            return false;
        }
        let progress = self.raw.raft.prs();
        let able = candidates
            .iter()
            .copied()
            .filter(|id| *id != self.options.id && self.conf.voters.contains(id));
        let best = able.max_by_key(|id| (progress.get(*id).map(|p| (p.recent_active, p.matched)), *id));
        let Some(best) = best else {
            return false;
        };
        self.raw.transfer_leader(best);
        self.settle_timeout();
        true
    }

    /// What is to be done now.
    pub(crate) fn output(&mut self) -> Option<Output> {
        let mut output = Output {
            now: std::mem::take(&mut self.notices),
            ..Output::default()
        };
        if std::mem::take(&mut self.is_epoch_new) {
            output.persist.epoch = self.epoch;
        }
        if self.raw.has_ready() {
            let mut ready = self.raw.ready();
            output.now.extend(self.encode(ready.take_messages()));
            output.committed = ready.take_committed_entries();
            output.reads = ready.take_read_states();
            output.persist.entries = ready.take_entries();
            if !ready.snapshot().is_empty() {
                output.persist.snapshot = Some(ready.snapshot().clone());
            }
            // A commit index alone is not worth a sync: it is found out again after a restart.
            if ready.must_sync() {
                output.persist.hard_state = Some(self.raw.raft.hard_state());
            }
            output.ready = Some(ready);
        }
        let is_nothing = output.ready.is_none() && output.now.is_empty() && output.persist.is_empty();
        (!is_nothing).then_some(output)
    }

    /// The output is durable.
    pub(crate) fn persisted(&mut self, output: Output) -> After {
        let Some(mut ready) = output.ready else {
            return After::default();
        };
        let store = self.raw.mut_store();
        if let Some(snapshot) = &output.persist.snapshot {
            let metadata = snapshot.get_metadata();
            store.reset_to(metadata.index, metadata.term);
        }
        store.append(&output.persist.entries);
        if let Some(hard_state) = output.persist.hard_state {
            self.hard_state = hard_state;
        }
        let mut messages = ready.take_persisted_messages();
        let mut light = self.raw.advance_append(ready);
        messages.extend(light.take_messages());
        let after = After {
            send: self.encode(messages),
            committed: light.take_committed_entries(),
        };
        self.step_deferred();
        after
    }

    /// Everything up to the index is applied.
    pub(crate) fn applied(&mut self, index: u64) {
        if index > self.raw.raft.raft_log.applied {
            self.raw.advance_apply_to(index);
        }
    }

    /// A membership entry is applied; whether it changed anything. All members decide the same.
    pub(crate) fn apply_change(&mut self, context: &[u8]) -> bool {
        let Some(changes) = decode_changes(context) else {
            return false;
        };
        if voters_after(&self.conf, &changes).len() > VOTERS_MAX || members_after(&self.conf, &changes) > MEMBERS_MAX {
            return false;
        }
        let Ok(conf) = self.raw.apply_conf_change(&to_conf_change(&changes)) else {
            return false;
        };
        self.conf = sorted(conf);
        // An older snapshot names other members: a new member would not take it, and the leader would not hear of that.
        self.offered_at = None;
        self.raw.mut_store().offer(None);
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Leader && !raft.promotable() {
            // A leader that is no voter any more has committed its own removal, and leads no member.
            let term = raft.term;
            raft.become_follower(term, 0);
        }
        self.settle_timeout();
        true
    }

    /// A snapshot of the leader was restored.
    pub(crate) fn restored(&mut self, snapshot: &Snapshot) {
        self.conf = sorted(snapshot.get_metadata().get_conf_state().clone());
        self.applied(snapshot.get_metadata().index);
    }

    /// Whether a member needs a snapshot.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.raw.store().take_wanted()
    }

    /// Offers a snapshot of what is applied to the members that need one.
    pub(crate) fn offer_snapshot(&mut self, snapshot: Snapshot) {
        self.offered_at = Some(self.ticks);
        self.raw.mut_store().offer(Some(snapshot));
    }

    /// The store has a snapshot up to `applied`; forgets the entries before it but the last `keep`.
    pub(crate) fn compact(&mut self, applied: u64, keep: u64) {
        self.raw.mut_store().compact(applied.saturating_sub(keep));
    }

    /// Where a log that keeps so many entries before a snapshot begins: index and term of the entry before the first.
    pub(crate) fn truncation(&self, applied: u64, keep: u64) -> (u64, u64) {
        let log = self.raw.store();
        let at = applied.saturating_sub(keep).max(log.truncated().0);
        log.term(at).map_or(log.truncated(), |term| (at, term))
    }

    pub(crate) fn entries_after(&self, index: u64) -> &[Entry] {
        self.raw.store().after(index)
    }

    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        self.raw.store().term(index).ok()
    }

    /// The durable hard state with the commit index of now.
    pub(crate) fn hard_state(&self) -> HardState {
        let mut state = self.hard_state.clone();
        let last = self.raw.store().last_index().unwrap_or(0);
        state.commit = self.raw.raft.raft_log.committed.min(last).max(state.commit);
        state
    }

    pub(crate) fn conf(&self) -> &ConfState {
        &self.conf
    }

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    pub(crate) fn superseded_by(&self) -> Option<u64> {
        self.superseded_by
    }

    pub(crate) fn lost_entries(&self) -> Option<LostEntries> {
        self.lost_entries
    }

    /// What the leader says of another history. One that has another log says so again with each heartbeat.
    pub(crate) fn diverged(&self) -> Option<Divergence> {
        let (divergence, seen) = self.diverged?;
        let is_recent = self.ticks < seen + self.options.election_ticks as u64;
        (is_recent && !self.is_leader()).then_some(divergence)
    }

    /// This member takes no part: it neither votes nor proposes.
    fn is_out(&self) -> bool {
        self.superseded_by.is_some() || self.lost_entries.is_some() || self.is_silent
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether this member leads and knows what was committed before it did: only then does it answer reads.
    pub(crate) fn serves_reads(&self) -> bool {
        self.is_leader() && self.raw.raft.commit_to_current_term()
    }

    /// 0 when there is none that is known.
    pub(crate) fn leader(&self) -> u64 {
        self.raw.raft.leader_id
    }

    pub(crate) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    pub(crate) fn commit_and_last(&self) -> (u64, u64) {
        let log = &self.raw.raft.raft_log;
        (log.committed, log.last_index())
    }

    /// How many entries each other member lags, as the leader knows.
    pub(crate) fn lags(&self) -> BTreeMap<u64, u64> {
        if !self.is_leader() {
            return BTreeMap::new();
        }
        let last = self.raw.raft.raft_log.last_index();
        self.raw
            .raft
            .prs()
            .iter()
            .filter(|(id, _)| **id != self.options.id)
            .map(|(id, progress)| (*id, last.saturating_sub(progress.matched)))
            .collect()
    }

    fn header(&self, to: u64) -> Header {
        Header {
            group: self.options.group,
            epoch: self.epoch.unwrap_or_default(),
            from: self.options.id,
            to,
        }
    }

    fn encode(&mut self, messages: Vec<Message>) -> Vec<Outgoing> {
        let mut out = Vec::new();
        for message in messages {
            if message.msg_type == MessageType::MsgSnapshot {
                self.snapshots_sent.insert(message.to, self.ticks);
            }
            if let Some(bytes) = message::encode(self.header(message.to), &message) {
                out.push((message.to, bytes));
            }
        }
        out
    }

    /// Overwrites the timeout that the library drew. A new one is drawn whenever its clock restarts, as the library
    /// does.
    fn settle_timeout(&mut self) {
        if self.raw.raft.election_elapsed == 0 {
            let range = self.options.election_ticks as u64;
            let drawn = usize::try_from(self.random.below(range)).expect("smaller than a number of ticks");
            self.timeout = self.options.election_ticks + drawn;
        }
        self.raw.raft.set_randomized_election_timeout(self.timeout);
    }
}

/// The library lists members in the order of its hash sets.
pub(crate) fn sorted(mut conf: ConfState) -> ConfState {
    for ids in [
        &mut conf.voters,
        &mut conf.learners,
        &mut conf.voters_outgoing,
        &mut conf.learners_next,
    ] {
        ids.sort_unstable();
    }
    conf
}

/// The voters that a configuration would have.
pub(crate) fn voters_after(conf: &ConfState, changes: &[Change]) -> BTreeSet<u64> {
    let mut voters: BTreeSet<u64> = conf.voters.iter().copied().collect();
    for change in changes {
        match change {
            Change::Voter(id) => voters.insert(*id),
            Change::Learner(id) | Change::Remove(id) => voters.remove(id),
        };
    }
    voters
}

/// How many members a configuration would have, voters or not.
fn members_after(conf: &ConfState, changes: &[Change]) -> usize {
    let lists = [&conf.voters, &conf.learners, &conf.voters_outgoing, &conf.learners_next];
    let mut members: BTreeSet<u64> = lists.into_iter().flatten().copied().collect();
    members.extend(changes.iter().map(|change| change.id()));
    members.len()
}

/// What a leader or a candidate sends to a member that knows nothing.
fn speaks_first(message: &Message) -> bool {
    matches!(
        message.msg_type,
        MessageType::MsgAppend
            | MessageType::MsgHeartbeat
            | MessageType::MsgSnapshot
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestPreVote
    )
}

/// The configuration that changes make of another, without the joint one between.
pub(crate) fn conf_after(conf: &ConfState, changes: &[Change]) -> ConfState {
    let voters = voters_after(conf, changes);
    if voters.len() > VOTERS_MAX {
        return conf.clone();
    }
    let mut learners: BTreeSet<u64> = conf.learners.iter().chain(&conf.learners_next).copied().collect();
    for change in changes {
        match change {
            Change::Learner(id) => learners.insert(*id),
            Change::Voter(id) | Change::Remove(id) => learners.remove(id),
        };
    }
    ConfState {
        voters: voters.into_iter().collect(),
        learners: learners.into_iter().collect(),
        ..ConfState::default()
    }
}

/// Whether a configuration is what the changes want.
pub(crate) fn is_reached(conf: &ConfState, changes: &[Change]) -> bool {
    conf.voters_outgoing.is_empty()
        && changes.iter().all(|change| match change {
            Change::Voter(id) => conf.voters.contains(id),
            Change::Learner(id) => conf.learners.contains(id),
            Change::Remove(id) => !conf.voters.contains(id) && !conf.learners.contains(id),
        })
}

/// An empty list means: leave the joint configuration.
fn to_conf_change(changes: &[Change]) -> ConfChangeV2 {
    let mut all = ConfChangeV2::default();
    for change in changes {
        let (change_type, node_id) = match change {
            Change::Learner(id) => (ConfChangeType::AddLearnerNode, *id),
            Change::Voter(id) => (ConfChangeType::AddNode, *id),
            Change::Remove(id) => (ConfChangeType::RemoveNode, *id),
        };
        all.changes.push(ConfChangeSingle {
            change_type,
            node_id,
            ..ConfChangeSingle::default()
        });
    }
    all
}

/// `u8` role (1 learner, 2 voter, 3 none) and `u64` id, for each.
pub(crate) fn encode_changes(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    for change in changes {
        out.push(match change {
            Change::Learner(_) => 1,
            Change::Voter(_) => 2,
            Change::Remove(_) => 3,
        });
        put_u64(&mut out, change.id());
    }
    out
}

pub(crate) fn decode_changes(bytes: &[u8]) -> Option<Vec<Change>> {
    let mut reader = Reader::new(bytes);
    let mut changes = Vec::new();
    while !reader.is_empty() {
        let role = reader.get_u8().ok()?;
        let id = reader.get_u64().ok().filter(|id| *id != 0)?;
        changes.push(match role {
            1 => Change::Learner(id),
            2 => Change::Voter(id),
            3 => Change::Remove(id),
            _ => return None,
        });
    }
    (changes.len() <= CHANGES_MAX).then_some(changes)
}
