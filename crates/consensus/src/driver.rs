//! The running member. Lives on shard 0; sees the cluster.
//!
//! Two tasks. The *member task* owns group and store: it reads the inbox, ticks, makes outputs durable, sends. The
//! *applying task* owns the table of applied proposals and calls the machine, which may be slow: heartbeats continue
//! in the meantime. They communicate through two queues; what the applying task has done comes back as an event, in
//! order, so that a membership entry takes effect, and a snapshot is made, exactly at their positions in the log.
//!
//! While a write to the file fails, it is repeated, and nothing else happens: the member is silent as if it were cut
//! off.

use crate::answer::Answer;
use crate::apply::ProposalId;
use crate::applying::{Done, Work};
use crate::codec::{make_snapshot, put_u64};
use crate::config::{Options, Part, Start, StateMachine, Transport};
use crate::error::{ProposeError, ReadError, StartError};
use crate::group::{After, Group, GroupOptions, Output};
use crate::handle::{Event, Shared};
use crate::members::Change;
use crate::opening;
use crate::recovered::{Recovered, Recovery};
use crate::status::Status;
use crate::store::{Items, Store};
use raft::eraftpb::ConfState;
use runtime::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Refusals that are remembered, so that each is logged once.
const REFUSALS_MAX: usize = 256;
/// How long the task waits before it tries a failed write again.
const RETRY_WRITE: Duration = Duration::from_millis(500);
/// Ticks until a read is asked again: it costs little, and a newly elected leader silently drops it.
const READ_RETRY_TICKS: u32 = 4;

/// Starts the two tasks of a member; see [`crate::Consensus::start`].
pub(crate) async fn start(
    options: Options,
    start: Start,
    transport: Rc<dyn Transport>,
    machine: Rc<dyn StateMachine>,
) -> Result<Rc<Shared>, StartError> {
    let (store, state) = opening::open(&options, &start, &*machine).await?;
    let group = Group::new(
        GroupOptions {
            group: options.group,
            id: options.id,
            seed: runtime::random_u64(),
            heartbeat_ticks: options.heartbeat_ticks,
            election_ticks: options.election_ticks,
            snapshot_ticks: options.snapshot_ticks,
            is_silent: options.part != Part::Full,
        },
        Recovered {
            data: Vec::new(),
            ..state.clone()
        },
    )
    .map_err(|error| StartError::Invalid(error.to_string()))?;
    let shared = Rc::new(Shared::new());
    if state.snapshot_index > 0 {
        shared.applying.push(Work::Restore(make_snapshot(
            state.snapshot_index,
            state.snapshot_term,
            state.conf.clone(),
            state.data,
        )));
    }
    let member = Member {
        shared: Rc::clone(&shared),
        id: options.id,
        incarnation: state.incarnation,
        runs: state.runs.into(),
        part: options.part.clone(),
        recovery: state.recovery,
        conf_at_applied: state.conf,
        options,
        transport,
        machine: machine.clone(),
        group,
        store,
        applied: state.snapshot_index,
        next_sequence: 0,
        next_read: 0,
        proposals: BTreeMap::new(),
        reads: Vec::new(),
        changes: None,
        is_snapshotting: false,
        serves_reads: false,
        leader: 0,
        failed_compaction_at: None,
        refusals: BTreeSet::new(),
    };
    member.publish();
    if let Some(epoch) = member.group.epoch().filter(|epoch| epoch.nonce != 0) {
        log::info!("the metadata group is in epoch {epoch}, which began when a lost majority was given up");
    }
    drop(runtime::spawn(
        Rc::clone(&shared.applying).run(machine, shared.wake.clone()),
    ));
    drop(runtime::spawn(member.run()));
    Ok(shared)
}

struct PendingProposal {
    command: Vec<u8>,
    deadline: Instant,
    answer: Answer<Result<u64, ProposeError>>,
    /// It is in the log or on its way to the leader, so it may happen.
    is_out: bool,
    /// Ticks until it is proposed again.
    again_in: u32,
}

struct PendingRead {
    deadline: Instant,
    answer: Answer<Result<u64, ReadError>>,
    /// Its name in questions; 0 before the first.
    asked: u64,
    again_in: u32,
    /// What must be applied.
    index: Option<u64>,
}

/// The member task's own.
struct Member {
    shared: Rc<Shared>,
    options: Options,
    id: u64,
    incarnation: u64,
    runs: Arc<[u64]>,
    part: Part,
    recovery: Option<Recovery>,
    transport: Rc<dyn Transport>,
    machine: Rc<dyn StateMachine>,
    group: Group,
    store: Store,
    applied: u64,
    /// The configuration that status shows.
    conf_at_applied: ConfState,
    next_sequence: u64,
    next_read: u64,
    proposals: BTreeMap<u64, PendingProposal>,
    reads: Vec<PendingRead>,
    /// Membership changes that wait for a leader.
    changes: Option<Vec<Change>>,
    is_snapshotting: bool,
    /// Whether this member leads and may answer reads.
    serves_reads: bool,
    /// The leader that the waiting proposals and reads were sent to; 0 for none.
    leader: u64,
    /// File size at which compaction failed: it is tried again when the file has grown.
    failed_compaction_at: Option<u64>,
    /// The senders and kinds of refused messages, so that each is logged once.
    refusals: BTreeSet<(u64, u8)>,
}

impl Member {
    async fn run(mut self) {
        let mut next_tick = runtime::now() + self.options.tick;
        while !self.shared.is_stopping.get() {
            let wake = self.shared.wake.notified();
            if self.shared.inbox.borrow().is_empty() && !self.shared.applying.has_done() {
                let left = next_tick - runtime::now();
                if !left.is_zero() {
                    let _ = runtime::timeout(left, wake).await;
                }
            }
            self.take_events();
            self.take_done().await;
            let now = runtime::now();
            if now >= next_tick {
                // An election that a tick begins is won at once where there is one voter, and a leader's log is
                // durable.
                self.settle().await;
                // Ticks that were missed (a slow disk) are not made up for: the member took no messages during them.
                self.tick(now);
                next_tick = now + self.options.tick;
            }
            self.settle().await;
            self.compact_if_grown();
            self.publish();
        }
        self.end();
    }

    fn take_events(&mut self) {
        let events = std::mem::take(&mut *self.shared.inbox.borrow_mut());
        self.shared.messages.set(0);
        self.shared.message_bytes.set(0);
        for event in events {
            match event {
                Event::Message { from, bytes } => {
                    if let Err(refused) = self.group.receive(from, &bytes, &*self.machine)
                        && self.refusals.len() < REFUSALS_MAX
                        && self.refusals.insert((from, refused.kind()))
                    {
                        log::warn!("metadata group: member {from} sent {refused}");
                    }
                }
                Event::Propose {
                    command,
                    deadline,
                    answer,
                } => {
                    let sequence = self.next_sequence;
                    self.next_sequence += 1;
                    self.proposals.insert(
                        sequence,
                        PendingProposal {
                            command,
                            deadline,
                            answer,
                            is_out: false,
                            again_in: 0,
                        },
                    );
                    self.propose(sequence);
                }
                Event::Change(changes) => {
                    if !self.group.propose_changes(&changes) {
                        self.changes = Some(changes);
                    }
                }
                Event::Part(part) => {
                    self.group.set_silent(part != Part::Full);
                    self.part = part;
                }
                Event::HandOver(candidates) => {
                    // The caller sees by the leader whether it was handed over.
                    let _ = self.group.hand_over(&candidates);
                }
                Event::Read { deadline, answer } => {
                    self.reads.push(PendingRead {
                        deadline,
                        answer,
                        asked: 0,
                        again_in: 0,
                        index: None,
                    });
                    self.ask(self.reads.len() - 1);
                }
            }
        }
    }

    /// What the applying task has done.
    async fn take_done(&mut self) {
        while let Some(done) = self.shared.applying.take_done() {
            match done {
                Done::Applied {
                    index,
                    proposal,
                    change,
                } => {
                    if let Some(context) = change {
                        if self.group.apply_change(&context) {
                            self.conf_at_applied = self.group.conf().clone();
                        } else {
                            log::warn!(
                                "metadata group: the membership change at index {index} is not possible and is ignored by all members"
                            );
                        }
                    }
                    self.applied = index;
                    self.group.applied(index);
                    if let Some(id) = proposal.filter(|id| id.proposer == self.id && id.incarnation == self.incarnation)
                    {
                        self.resolve(id.sequence, Ok(index));
                    }
                }
                Done::Restored { snapshot, known } => {
                    self.applied = snapshot.get_metadata().index;
                    self.group.restored(&snapshot);
                    self.conf_at_applied = self.group.conf().clone();
                    let pending: Vec<u64> = self.proposals.keys().copied().collect();
                    for sequence in pending {
                        let id = self.proposal_id(sequence);
                        if let Some(index) = known.index_of(id) {
                            self.resolve(sequence, Ok(index));
                        }
                    }
                }
                Done::Snapshotted { index, data } => self.take_snapshot(index, data).await,
                Done::NotYet => self.is_snapshotting = false,
            }
        }
        self.pass_reads();
    }

    fn tick(&mut self, now: Instant) {
        self.group.tick();
        if let Some(error) = self.out_because() {
            let sequences: Vec<u64> = self.proposals.keys().copied().collect();
            for sequence in sequences {
                self.resolve(sequence, Err(error.clone()));
            }
            if matches!(error, ProposeError::Withdrawn(_)) {
                self.release(self.reads.len());
                for read in self.reads.drain(..) {
                    read.answer.give(Err(ReadError::Withdrawn));
                }
            }
        }
        let sequences: Vec<u64> = self.proposals.keys().copied().collect();
        for sequence in sequences {
            let Some(pending) = self.proposals.get_mut(&sequence) else {
                continue;
            };
            if pending.deadline <= now {
                let error = if pending.is_out {
                    ProposeError::Timeout
                } else {
                    ProposeError::NoQuorum
                };
                self.resolve(sequence, Err(error));
            } else if pending.again_in == 0 {
                self.propose(sequence);
            } else {
                pending.again_in -= 1;
            }
        }
        let waiting = self.reads.len();
        self.reads.retain(|read| {
            let is_over = read.deadline <= now;
            if is_over {
                read.answer.give(Err(ReadError::Timeout));
            }
            !is_over
        });
        self.release(waiting - self.reads.len());
        for position in 0..self.reads.len() {
            let read = &mut self.reads[position];
            if read.index.is_none() && read.again_in == 0 {
                self.ask(position);
            } else {
                read.again_in = read.again_in.saturating_sub(1);
            }
        }
        if let Some(changes) = self.changes.take()
            && !self.group.propose_changes(&changes)
            && self.group.leader() == 0
        {
            self.changes = Some(changes);
        }
        if self.group.wants_snapshot() {
            self.make_snapshot();
        }
    }

    /// Why this member takes no part any more, where proposals are refused for that.
    fn out_because(&self) -> Option<ProposeError> {
        if let Some(epoch) = self.group.superseded_by() {
            return Some(ProposeError::Superseded { epoch });
        }
        match (&self.part, self.group.diverged()) {
            (Part::Withdrawn(why), _) => Some(ProposeError::Withdrawn(why.clone())),
            (_, Some(divergence)) => Some(ProposeError::Withdrawn(
                crate::group::Refused::Diverged(divergence).to_string(),
            )),
            (Part::Full | Part::Silent, None) => None,
        }
    }

    /// Ticks until something unanswered is sent again: after an election may have passed.
    fn retry_ticks(&self) -> u32 {
        u32::try_from(self.options.election_ticks).unwrap_or(u32::MAX)
    }

    fn proposal_id(&self, sequence: u64) -> ProposalId {
        ProposalId {
            proposer: self.id,
            incarnation: self.incarnation,
            sequence,
        }
    }

    fn propose(&mut self, sequence: u64) {
        let settled_below = self.proposals.keys().next().copied().unwrap_or(sequence);
        let id = self.proposal_id(sequence);
        let again_in = self.retry_ticks();
        let Some(pending) = self.proposals.get_mut(&sequence) else {
            return;
        };
        let data = crate::apply::encode_proposal(id, settled_below, &pending.command);
        if self.group.propose(data) {
            pending.is_out = true;
            pending.again_in = again_in;
        }
    }

    fn resolve(&mut self, sequence: u64, result: Result<u64, ProposeError>) {
        if let Some(pending) = self.proposals.remove(&sequence) {
            pending.answer.give(result);
            self.release(1);
        }
    }

    fn release(&self, count: usize) {
        self.shared.waiting.set(self.shared.waiting.get() - count);
    }

    /// Asks for the index of a read, under the same name each time: an answer to an earlier question is as good.
    fn ask(&mut self, position: usize) {
        let read = &mut self.reads[position];
        if read.asked == 0 {
            self.next_read += 1;
            read.asked = self.next_read;
        }
        read.again_in = READ_RETRY_TICKS;
        let mut context = Vec::new();
        for number in [self.id, self.incarnation, read.asked] {
            put_u64(&mut context, number);
        }
        self.group.read_index(context);
    }

    /// Notifies the reads whose index is applied.
    fn pass_reads(&mut self) {
        let (applied, waiting) = (self.applied, self.reads.len());
        self.reads.retain(|read| {
            let is_passed = read.index.is_some_and(|index| index <= applied);
            if is_passed {
                read.answer.give(Ok(applied));
            }
            !is_passed
        });
        self.release(waiting - self.reads.len());
    }

    /// Does what the group wants until it wants nothing.
    async fn settle(&mut self) {
        while let Some(mut output) = self.group.output() {
            self.send(std::mem::take(&mut output.now));
            for state in std::mem::take(&mut output.reads) {
                self.take_read_index(&state);
            }
            let committed = std::mem::take(&mut output.committed);
            self.shared.applying.push_entries(committed);
            if !self.persist(&output).await {
                return;
            }
            if let Some(snapshot) = &output.persist.snapshot {
                self.shared.applying.push(Work::Restore(snapshot.clone()));
            }
            let After { send, committed } = self.group.persisted(output);
            self.send(send);
            self.shared.applying.push_entries(committed);
            self.ask_anew();
            self.tell_new_leader();
        }
        self.pass_reads();
    }

    /// A leader drops what it is asked before it has committed an entry of its term: asked again when it has.
    fn ask_anew(&mut self) {
        let serves_reads = self.group.serves_reads();
        if serves_reads && !self.serves_reads {
            for position in 0..self.reads.len() {
                if self.reads[position].index.is_none() {
                    self.ask(position);
                }
            }
        }
        self.serves_reads = serves_reads;
    }

    /// Sends what waits to a new leader at once: what the former leader got may be lost with it. A proposal that
    /// arrives twice is applied once.
    fn tell_new_leader(&mut self) {
        let leader = self.group.leader();
        if leader == self.leader {
            return;
        }
        self.leader = leader;
        if leader == 0 {
            return;
        }
        let sequences: Vec<u64> = self.proposals.keys().copied().collect();
        for sequence in sequences {
            self.propose(sequence);
        }
        for position in 0..self.reads.len() {
            if self.reads[position].index.is_none() {
                self.ask(position);
            }
        }
    }

    fn take_read_index(&mut self, state: &raft::ReadState) {
        let mut expected = Vec::new();
        for read in &mut self.reads {
            expected.clear();
            for number in [self.id, self.incarnation, read.asked] {
                put_u64(&mut expected, number);
            }
            if state.request_ctx == expected && read.index.is_none() {
                read.index = Some(state.index);
            }
        }
    }

    fn send(&self, messages: Vec<(u64, Vec<u8>)>) {
        if self.part != Part::Full {
            return;
        }
        for (to, bytes) in messages {
            self.transport.send(to, bytes);
        }
    }

    /// True when it is durable, however long that takes; false when the member stops before.
    async fn persist(&mut self, output: &Output) -> bool {
        let persist = &output.persist;
        while !persist.is_empty() {
            let mut items = Items::default();
            if let Some(epoch) = persist.epoch {
                items.epoch(epoch);
            }
            if let Some(snapshot) = &persist.snapshot {
                let metadata = snapshot.get_metadata();
                let at = (metadata.index, metadata.term);
                items.base(at, at.0, at.1, metadata.get_conf_state(), &snapshot.data);
            }
            items.entries(&persist.entries);
            if let Some(state) = &persist.hard_state {
                items.hard_state(state);
            }
            match self.store.append(items).await {
                Ok(()) => {
                    if self.shared.status.borrow_mut().storage_error.take().is_some() {
                        log::info!("metadata group: the log can be written again");
                    }
                    return true;
                }
                Err(error) => {
                    let known = self.shared.status.borrow_mut().storage_error.replace(error.to_string());
                    if known.is_none() {
                        log::error!("metadata group: this member is silent until its log can be written: {error}");
                    }
                    if self.shared.is_stopping.get() {
                        return false;
                    }
                    runtime::sleep(RETRY_WRITE).await;
                }
            }
        }
        true
    }

    fn make_snapshot(&mut self) {
        if !self.is_snapshotting {
            self.is_snapshotting = true;
            self.shared.applying.push(Work::Snapshot);
        }
    }

    fn compact_if_grown(&mut self) {
        let (grown, base) = self.store.sizes();
        if grown > self.options.log_bytes_max.max(base)
            && self
                .failed_compaction_at
                .is_none_or(|at| grown > at + self.options.log_bytes_max)
        {
            self.make_snapshot();
        }
    }

    /// A snapshot of the machine at an index: for members that need one, and to make the file short again.
    async fn take_snapshot(&mut self, index: u64, data: Vec<u8>) {
        self.is_snapshotting = false;
        let Some(term) = self.group.term_of(index).filter(|_| index == self.applied) else {
            return;
        };
        let (grown, base) = self.store.sizes();
        let kept = self.options.entries_kept;
        if grown > self.options.log_bytes_max.max(base) {
            let truncated = self.group.truncation(index, kept);
            let state = Recovered {
                epoch: self.group.epoch(),
                incarnation: self.incarnation,
                runs: self.runs.to_vec(),
                hard_state: self.group.hard_state(),
                snapshot_index: index,
                snapshot_term: term,
                conf: self.group.conf().clone(),
                data: data.clone(),
                truncated,
                entries: self.group.entries_after(truncated.0).to_vec(),
                recovery: self.recovery.clone(),
            };
            match self.store.rewrite(&state).await {
                Ok(()) => {
                    self.group.compact(index, kept);
                    self.failed_compaction_at = None;
                }
                Err(error) => {
                    log::warn!("metadata group: cannot compact the log, which keeps growing: {error}");
                    self.failed_compaction_at = Some(grown);
                }
            }
        }
        let conf = self.group.conf().clone();
        self.group.offer_snapshot(make_snapshot(index, term, conf, data));
    }

    fn publish(&self) {
        let conf = &self.conf_at_applied;
        let (committed, last) = self.group.commit_and_last();
        let (grown, base) = self.store.sizes();
        let mut status = self.shared.status.borrow_mut();
        let is_changed = status.voters != conf.voters
            || status.learners != conf.learners
            || status.is_joint == conf.voters_outgoing.is_empty();
        let leader = Some(self.group.leader()).filter(|id| *id != 0);
        let is_changed = is_changed || status.leader != leader;
        *status = Status {
            id: self.id,
            leader,
            term: self.group.term(),
            voters: conf.voters.clone(),
            learners: conf.learners.clone(),
            is_joint: !conf.voters_outgoing.is_empty(),
            applied: self.applied,
            committed,
            last,
            lag: self.group.lags(),
            epoch: self.group.epoch(),
            superseded_by: self.group.superseded_by(),
            lost_entries: self.group.lost_entries(),
            diverged: self.group.diverged(),
            part: self.part.clone(),
            incarnation: self.incarnation,
            runs: self.runs.clone(),
            file_bytes: grown + base,
            storage_error: status.storage_error.take(),
            recovery: self.recovery.clone(),
        };
        drop(status);
        if is_changed {
            self.shared.configured.notify_all();
        }
    }

    fn end(mut self) {
        let sequences: Vec<u64> = self.proposals.keys().copied().collect();
        for sequence in sequences {
            self.resolve(sequence, Err(ProposeError::Shutdown));
        }
        for read in self.reads.drain(..) {
            read.answer.give(Err(ReadError::Shutdown));
        }
        for event in std::mem::take(&mut *self.shared.inbox.borrow_mut()) {
            match event {
                Event::Propose { answer, .. } => answer.give(Err(ProposeError::Shutdown)),
                Event::Read { answer, .. } => answer.give(Err(ReadError::Shutdown)),
                Event::Message { .. } | Event::Change(_) | Event::HandOver(_) | Event::Part(_) => {}
            }
        }
        self.shared.applying.stop();
        self.shared.has_ended.set(true);
        self.shared.ended.notify_all();
    }
}
