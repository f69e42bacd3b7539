//! Writes: to all replicas at once, acknowledged when as many have them as the consistency level wants.
//!
//! A write is a value, [`Write`]: it takes each replica's outcome, and decides when its request can be answered and
//! how. A flight carries it (`flight.rs`): it sends the requests, takes the answers, and sees to the deadline. After a
//! request is answered the flight continues until every replica is known to have its part or is given a hint.

pub(crate) mod apply;
mod batch;
pub(crate) mod birth;
pub(crate) mod commit;
pub(crate) mod dated;
pub(crate) mod deadlines;
pub(crate) mod flight;
mod in_parts;
pub(crate) mod lasting;
mod parts;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::Addressed;
use runtime::{Instant, Notify};
use smallvec::{SmallVec, smallvec};
use topology::{Consistency, Replica};

use crate::fence::Stamp;
use crate::handoff::Handoff;
use crate::write::birth::birth_us;
use crate::write::dated::{Dated, Deadline};
use crate::write::deadlines::Flights;
use crate::write::flight::{Flight, Waiting};
use crate::write::lasting::{UnderWay, wall_clock_at};
use crate::{Batches, ClusterView, Context, CoordinatorError, Tally, TargetError, WriteKind};

use parts::{Part, share};
pub(crate) use parts::{State, Target, numbered};

/// How long a write may wait that needs no other node: longer than [`replica::Shard::room`] takes to refuse it.
const LOCAL_WAIT_MAX: Duration = Duration::from_secs(15);

/// The mutations of one request.
pub type Mutations = SmallVec<[Addressed; 1]>;

/// Which of the request's mutations one replica gets.
pub(crate) type Numbers = SmallVec<[u32; 2]>;

/// Receives the outcome of a write.
pub trait WriteDone {
    /// The outcome of the write that was begun with this number, once. It may come while the write is begun.
    fn write_done(self: Rc<Self>, number: u32, result: Result<(), CoordinatorError>);
}

/// When a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// When the level is met for each partition.
    LevelMet,
    /// When every replica's outcome is known; those that have nothing get hints.
    AllKnown,
}

/// The writes that this shard coordinates.
pub struct Writes {
    pub(crate) context: Rc<Context>,
    pub(crate) flights: Rc<Flights>,
    pub(crate) hints: Rc<Handoff>,
    pub(crate) batches: Rc<Batches>,
    commits: commit::GroupCommit,
    /// Notified when a write that a replica refused as stale has received an answer.
    stale_settled: Notify,
    /// Bytes of this node's own shares that wait to be written again (`flight.rs`).
    own_again_bytes: Cell<usize>,
}

/// What of a write counts all or not at all, also when a node ends in the middle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomicity {
    /// Each mutation.
    Mutation,
    /// What goes to one replica: it is one record of its log.
    Share,
    /// All of it: a logged batch that needs no note in the view by which it is written.
    Batch,
}

/// How a request is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) level: Consistency,
    pub(crate) deadline: Deadline,
    pub(crate) kind: WriteKind,
    pub(crate) atomicity: Atomicity,
    pub(crate) until: Until,
    /// When it began here.
    pub(crate) began: Instant,
    /// When the write was made, if that was before it began; microseconds.
    pub(crate) made_us: Option<i64>,
}

impl Manner {
    /// Of a write that is made now, and answered when the level is met.
    pub(crate) fn new(level: Consistency, kind: WriteKind, atomicity: Atomicity) -> Self {
        Self {
            level,
            deadline: Deadline::USUAL,
            kind,
            atomicity,
            until: Until::LevelMet,
            began: runtime::now(),
            made_us: None,
        }
    }

    /// Of a dated write.
    pub(crate) fn of(dated: &Dated, kind: WriteKind, atomicity: Atomicity) -> Self {
        Self {
            deadline: dated.deadline,
            made_us: Some(dated.now_us()),
            ..Self::new(dated.level, kind, atomicity)
        }
    }

    /// Whether what goes to one replica is one record of its log.
    pub(crate) fn has_whole_shares(&self) -> bool {
        self.atomicity != Atomicity::Mutation
    }

    /// When the write was made; microseconds since the epoch.
    fn dated_us(&self) -> i64 {
        self.made_us.unwrap_or_else(|| wall_clock_at(self.began))
    }

    /// Of another attempt, which begins now and ends at that moment.
    pub(crate) fn again_until(&self, moment: Instant) -> Self {
        Self {
            deadline: Deadline::at(moment),
            began: runtime::now(),
            // Not when the next attempt begins: no path dates a write later than it was made.
            made_us: Some(self.dated_us()),
            ..*self
        }
    }
}

/// A write, as far as it has come.
pub(crate) struct Write {
    pub(crate) writes: Rc<Writes>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) mutations: Mutations,
    pub(crate) manner: Manner,
    parts: SmallVec<[Part; 1]>,
    /// How many of the parts are not satisfied.
    unsatisfied: usize,
    pub(crate) targets: SmallVec<[Target; 3]>,
    /// How many of the targets are not settled.
    pub(crate) outstanding: usize,
    /// The request has been answered.
    pub(crate) is_answered: bool,
    /// A replica takes no requests of this view.
    pub(crate) is_stale: bool,
    /// A shard of this node refused the write as stale. It is written again in the next view, because this node keeps
    /// no hints for itself.
    pub(crate) is_own_stale: bool,
    /// The next view brought nothing: a later refusal of an own shard is a miss.
    misses_own_stale: bool,
    /// A replica did its part, or may have.
    pub(crate) is_begun: bool,
    /// A replica did its part, in this attempt or one before.
    pub(crate) has_acked: bool,
    failures: Vec<(Replica, TargetError)>,
    /// Replicas whose outcome is unknown, besides those that have not answered.
    unknown: SmallVec<[Replica; 2]>,
    /// Replicas that were not asked, were overloaded, refused the request as stale, or had no connection to this node.
    /// They get hints unless the request is answered as not done anywhere.
    put_off: SmallVec<[Replica; 2]>,
    /// Replicas that will never take their share. They get hints if others may have taken theirs: a replica with an
    /// older schema takes it later.
    rejected: SmallVec<[Replica; 2]>,
    /// Replicas that have neither their share nor hints of it.
    without: SmallVec<[Replica; 2]>,
    /// Held while the write continues after its request was answered.
    pub(crate) under_way: Option<UnderWay>,
}

impl Writes {
    pub(crate) fn new(context: Rc<Context>, flights: Rc<Flights>, hints: Rc<Handoff>, batches: Rc<Batches>) -> Self {
        Self {
            context,
            flights,
            hints,
            batches,
            commits: commit::GroupCommit::default(),
            stale_settled: Notify::default(),
            own_again_bytes: Cell::default(),
        }
    }

    /// Writes packed mutations and waits until the level is met for each.
    ///
    /// # Errors
    /// When too few replicas live, answer, or can write.
    pub async fn write(
        self: &Rc<Self>,
        mutations: impl Into<Mutations>,
        dated: &Dated,
        kind: WriteKind,
        atomicity: Atomicity,
    ) -> Result<(), CoordinatorError> {
        let manner = Manner::of(dated, kind, atomicity);
        self.write_from(self.context.view(), mutations.into(), manner).await
    }

    /// Writes packed mutations that were made of what the table had in this view, and waits until the level is met for
    /// each. A truncation since then makes them stale.
    ///
    /// # Errors
    /// As [`Writes::write`].
    pub(crate) async fn write_from(
        self: &Rc<Self>,
        view: Arc<ClusterView>,
        mutations: Mutations,
        manner: Manner,
    ) -> Result<(), CoordinatorError> {
        let waiting = Rc::new(Waiting::default());
        self.begin_write(&view, mutations, manner, (waiting.clone(), 0))?;
        // Held by the flight from here on.
        drop(view);
        waiting.result().await
    }

    /// Begins to write one mutation; `done` receives the outcome, with its number.
    pub fn write_then(self: &Rc<Self>, mutation: Addressed, level: Consistency, done: (Rc<dyn WriteDone>, u32)) {
        let manner = Manner::new(level, WriteKind::Simple, Atomicity::Mutation);
        let told = done.clone();
        if let Err(error) = self.begin_write(&self.context.view(), smallvec![mutation], manner, done) {
            told.0.write_done(told.1, Err(error));
        }
    }

    fn begin_write(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        mutations: Mutations,
        manner: Manner,
        done: (Rc<dyn WriteDone>, u32),
    ) -> Result<(), CoordinatorError> {
        self.context.count(|m| m.writes += 1);
        let write = Write::new(self, view, mutations, manner)?;
        let usual = || {
            let usual = self.context.timeouts().write;
            let are_here = write.targets.iter().all(|target| target.replica.node == view.me);
            // If all replicas are on this node, none can be cut off. What the write waits for has a limit of its own.
            write.manner.began + if are_here { usual.max(LOCAL_WAIT_MAX) } else { usual }
        };
        let deadline = write.manner.deadline.own().unwrap_or_else(usual);
        Flight::start(write, deadline, done);
        Ok(())
    }

    /// Writes mutations that were made at `made_us` to every replica, and where one does not take them keeps hints for
    /// it, durably. Afterwards all replicas have them or will, though no level may be met.
    ///
    /// # Errors
    /// When a replica has neither. Others may have the mutations then.
    pub(crate) async fn write_or_hint(self: &Rc<Self>, mutations: Mutations, made_us: i64) -> Result<(), String> {
        let manner = Manner {
            until: Until::AllKnown,
            made_us: Some(made_us),
            ..Manner::new(Consistency::Any, WriteKind::Batch, Atomicity::Share)
        };
        let waiting = Rc::new(Waiting::default());
        let begun = self.begin_write(&self.context.view(), mutations, manner, (waiting.clone(), 0));
        begun.map_err(|e| e.to_string())?;
        waiting.result().await.map_err(|e| e.to_string())?;
        match self.hints.kept() {
            Some(hints) => hints.sync(None).await.map_err(|e| e.to_string()),
            None => Ok(()),
        }
    }
}

impl Write {
    /// By what its requests are routed: a truncation of any of its tables counts for all of them.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::of_tables(&self.view, self.mutations.iter().map(Addressed::table))
    }

    // It is large: a call would copy it.
    #[inline(always)]
    pub(crate) fn new(
        writes: &Rc<Writes>,
        view: &Arc<ClusterView>,
        mutations: Mutations,
        manner: Manner,
    ) -> Result<Self, CoordinatorError> {
        let (parts, targets) = match &mutations[..] {
            [only] => {
                let (part, targets) = writes.part(view, only, manner.level, manner.kind)?;
                (smallvec![part], share(&targets))
            }
            all => writes.parts(view, all, &manner)?,
        };
        Ok(Self {
            writes: Rc::clone(writes),
            view: Arc::clone(view),
            mutations,
            manner,
            unsatisfied: parts.iter().filter(|part: &&Part| !part.is_satisfied()).count(),
            targets,
            parts,
            outstanding: 0,
            is_answered: false,
            is_stale: false,
            is_own_stale: false,
            misses_own_stale: false,
            has_acked: false,
            is_begun: false,
            failures: Vec::new(),
            unknown: SmallVec::new(),
            put_off: SmallVec::new(),
            rejected: SmallVec::new(),
            without: SmallVec::new(),
            under_way: None,
        })
    }

    /// Whether a target is asked for its share. One that is down or takes no writes would only be waited for, and one
    /// whose disk is full would refuse.
    pub(crate) fn is_asked(&self, at: usize) -> bool {
        let Target { replica, numbers, .. } = &self.targets[at];
        if numbers.iter().any(|number| self.parts[*number as usize].grows) {
            self.writes.context.takes_growth(replica.node)
        } else {
            self.writes.context.takes_writes(replica.node)
        }
    }

    /// When it was born (`birth.rs`); microseconds since the epoch. Reads all of its mutations.
    pub(crate) fn birth_us(&self) -> i64 {
        birth_us(&self.writes.context.shard, &self.mutations, self.manner.dated_us())
    }

    /// A replica did not get its share: a hint is stored for it, where there can be one. At ANY that is as good. There
    /// is none for this node itself: reads and repairs bring it.
    pub(crate) fn missed(&mut self, replica: Replica) {
        // A batch that this node could not take is written again by its note.
        if replica.node == self.view.me && self.manner.until == Until::AllKnown {
            self.without.push(replica);
            return;
        }
        let Some(target) = self.targets.iter().find(|target| target.replica == replica) else {
            return;
        };
        let mutations = numbered(&self.mutations, &target.numbers);
        let is_acknowledgement = self.manner.level == Consistency::Any;
        let birth_us = self.birth_us();
        let is_noted = self
            .writes
            .hints
            .missed(&self.view, replica, mutations, birth_us, is_acknowledgement);
        if !is_noted {
            self.without.push(replica);
        } else {
            for number in &target.numbers {
                self.unsatisfied -= usize::from(self.parts[*number as usize].hinted());
            }
        }
    }

    /// A replica is not asked for its share, and gets a hint.
    pub(crate) fn not_asked(&mut self, replica: Replica) {
        if self.puts_off_hints() {
            self.put_off.push(replica)
        } else {
            self.missed(replica)
        }
    }

    /// Whether hints wait for the answer, because the write may still turn out to be written nowhere: no hint may
    /// deliver a refused write later. At ANY a hint is what is waited for.
    fn puts_off_hints(&self) -> bool {
        self.manner.level != Consistency::Any && !self.is_answered
    }

    /// A replica did its share.
    fn acked(&mut self, at: usize) {
        (self.is_begun, self.has_acked) = (true, true);
        let Target { replica, numbers, .. } = &self.targets[at];
        let datacenter = self.view.locality.datacenter(replica.node);
        for number in numbers {
            self.unsatisfied -= usize::from(self.parts[*number as usize].ack(*replica, datacenter));
        }
    }

    /// A replica did not do its share. It gets a hint; for what it refuses permanently, had no room for or could not be
    /// sent, later.
    fn failed(&mut self, replica: Replica, error: &TargetError) {
        self.is_begun |= matches!(error, TargetError::Silent | TargetError::Failed(_));
        match error {
            TargetError::Rejected(_) => self.rejected.push(replica),
            TargetError::Stale(_)
                if replica.node == self.view.me && self.manner.until == Until::LevelMet && !self.misses_own_stale =>
            {
                self.is_own_stale = true;
            }
            TargetError::Overloaded(_) | TargetError::Unreachable(_) | TargetError::Stale(_)
                if self.puts_off_hints() =>
            {
                self.put_off.push(replica);
            }
            _ => self.missed(replica),
        }
    }

    /// Takes the outcome of a target's share. Returns the answer to the request, if that can be given now.
    pub(crate) fn settle(
        &mut self,
        at: usize,
        result: Result<(), TargetError>,
    ) -> Option<Result<(), CoordinatorError>> {
        if matches!(self.targets[at].state, State::Settled) {
            return None;
        }
        self.targets[at].state = State::Settled;
        self.outstanding -= 1;
        let replica = self.targets[at].replica;
        match result {
            Ok(()) => self.acked(at),
            Err(error) => {
                self.failed(replica, &error);
                if !self.is_answered
                    && self.manner.until == Until::LevelMet
                    && let Some(failure) = self.count_failure(at, error)
                {
                    return Some(Err(failure));
                }
            }
        }
        self.answer()
    }

    /// Counts that a replica failed. The error of the request, if it cannot succeed any more.
    fn count_failure(&mut self, at: usize, error: TargetError) -> Option<CoordinatorError> {
        let replica = self.targets[at].replica;
        self.is_stale |= matches!(error, TargetError::Stale(_));
        if error == TargetError::Silent {
            self.unknown.push(replica);
            return None;
        }
        self.failures.push((replica, error));
        let datacenter = self.view.locality.datacenter(replica.node);
        for number in &self.targets[at].numbers {
            let part = &mut self.parts[*number as usize];
            if part.acks.fail(replica.node, datacenter) && !part.is_satisfied() {
                let were_reached = self
                    .failures
                    .iter()
                    .any(|(_, e)| !matches!(e, TargetError::Unreachable(_)));
                if self.outstanding > 0 && !were_reached {
                    // Whether anything is done the others know, or have no connections either.
                    continue;
                }
                let is_known = self.outstanding == 0 && self.unknown.is_empty() && !self.is_begun;
                let did_nothing = is_known && self.parts.iter().all(|part| part.acks.answers() == 0);
                let error = self.failure(*number, did_nothing);
                let is_undone = matches!(
                    error,
                    CoordinatorError::Overloaded(_) | CoordinatorError::Unavailable(_) | CoordinatorError::Rejected(_)
                );
                // A counter's leader has made its addition; the others must learn of it.
                if is_undone && self.manner.kind != WriteKind::Counter {
                    self.put_off.clear();
                }
                return Some(error);
            }
        }
        None
    }

    /// The error of a request of which a part, by number, can have too few acknowledgements alone.
    fn failure(&self, number: u32, did_nothing: bool) -> CoordinatorError {
        let part = &self.parts[number as usize];
        let all = |is: fn(&TargetError) -> bool| self.failures.iter().all(|(_, e)| is(e));
        let are_unreachable = all(|e| matches!(e, TargetError::Unreachable(_)));
        if are_unreachable && !did_nothing {
            return self.timeout();
        }
        if are_unreachable && let Some(unavailable) = part.acks.unavailable() {
            self.writes.context.count(|m| m.unavailable += 1);
            return unavailable.into();
        }
        let name = |replica: &Replica| self.view.names(std::iter::once(*replica));
        let reasons: Vec<String> = self.failures.iter().map(|(r, e)| e.about(&name(r))).collect();
        let reason = reasons.join("; ");
        if did_nothing && all(|e| matches!(e, TargetError::Overloaded(_))) {
            return CoordinatorError::Overloaded(reason);
        }
        if did_nothing && all(|e| matches!(e, TargetError::Rejected(_))) {
            return CoordinatorError::Rejected(reason);
        }
        CoordinatorError::WriteFailure {
            tally: tally(part, self.manner.level),
            kind: self.manner.kind,
            failures: self
                .failures
                .iter()
                .map(|(r, e)| (self.view.address(r.node), e.code()))
                .collect(),
            reason,
        }
    }

    /// The answer to the request, if it can be given now and was not given before.
    pub(crate) fn answer(&mut self) -> Option<Result<(), CoordinatorError>> {
        if self.is_answered {
            return None;
        }
        match self.manner.until {
            Until::LevelMet if self.unsatisfied == 0 => {
                for part in &self.parts {
                    self.writes
                        .context
                        .tell_answered(&self.view, "write", self.manner.level, &part.answered);
                }
                Some(Ok(()))
            }
            Until::LevelMet if self.outstanding == 0 => Some(Err(self.timeout())),
            Until::AllKnown if self.outstanding == 0 => {
                self.hint_rejected();
                Some(if self.without.is_empty() {
                    Ok(())
                } else {
                    Err(CoordinatorError::Internal(format!(
                        "no hints can be kept for {}",
                        self.view.names(self.without.iter().copied())
                    )))
                })
            }
            Until::LevelMet | Until::AllKnown => None,
        }
    }

    /// The deadline has passed: stop waiting for the remaining replicas. Returns the answer to the request, if it was
    /// not given before.
    pub(crate) fn expire(&mut self) -> Option<Result<(), CoordinatorError>> {
        let mut silent: SmallVec<[Replica; 3]> = SmallVec::new();
        for target in &mut self.targets {
            let state = std::mem::replace(&mut target.state, State::Settled);
            if let State::There(sent) = state {
                sent.give_up();
                silent.push(target.replica);
            } else if let State::Here = state {
                silent.push(target.replica);
            }
        }
        self.outstanding = 0;
        if silent.is_empty() {
            return self.answer();
        }
        let waits_for_level = self.manner.until == Until::LevelMet && !self.is_answered;
        if waits_for_level && self.manner.level != Consistency::Any {
            self.unknown.extend(silent.iter().copied());
            let answer = self.timeout();
            // They get hints once the answer is made, as do replicas that fail later.
            self.is_begun = true;
            silent.into_iter().for_each(|replica| self.missed(replica));
            return Some(Err(answer));
        }
        self.is_begun = true;
        if waits_for_level {
            self.unknown.extend(silent.iter().copied());
        }
        silent.into_iter().for_each(|replica| self.missed(replica));
        self.answer()
    }

    /// What every replica refuses is written nowhere, and needs no hint. What some have taken the others must get, or
    /// be seen to refuse it still when hints are handed over.
    pub(crate) fn hint_rejected(&mut self) {
        if self.is_begun {
            for replica in std::mem::take(&mut self.rejected) {
                self.missed(replica);
            }
        }
    }

    /// The mutations are written again, and no replica has anything of this attempt: the next attempt decides which
    /// replicas get hints.
    pub(crate) fn forget_hints(&mut self) {
        self.put_off.clear();
        self.is_own_stale = false;
    }

    /// The mutations of which this node is a replica.
    pub(crate) fn own_share(&self) -> Mutations {
        let own = self.targets.iter().filter(|target| target.replica.node == self.view.me);
        let numbers: BTreeSet<u32> = own.flat_map(|target| target.numbers.iter().copied()).collect();
        let numbers = numbers.into_iter();
        numbers.map(|number| self.mutations[number as usize].clone()).collect()
    }

    /// Asks this node alone.
    pub(crate) fn keep_own_targets(&mut self) {
        let me = self.view.me;
        self.targets.retain(|target| target.replica.node == me);
    }

    /// The shards of this node that refused the write as stale, or will, do not get it.
    pub(crate) fn miss_own_stale(&mut self) {
        self.misses_own_stale = true;
        if std::mem::take(&mut self.is_own_stale) {
            let own = self.targets.iter().filter(|target| target.replica.node == self.view.me);
            let own: SmallVec<[Replica; 2]> = own.map(|target| target.replica).collect();
            own.into_iter().for_each(|replica| self.missed(replica));
        }
    }

    /// The request is answered; what it did not wait for continues.
    pub(crate) fn go_on(&mut self) {
        self.is_answered = true;
        for replica in std::mem::take(&mut self.put_off) {
            self.missed(replica);
        }
        match self.outstanding {
            0 => self.hint_rejected(),
            _ => self.under_way = Some(UnderWay::new(&self.writes.flights)),
        }
    }

    fn timeout(&self) -> CoordinatorError {
        self.writes.context.count(|m| m.timeouts += 1);
        let part = self.parts.iter().find(|part| !part.is_satisfied());
        let silent = self.targets.iter().filter(|t| !matches!(t.state, State::Settled));
        let unreachable = self
            .failures
            .iter()
            .filter(|(_, e)| matches!(e, TargetError::Unreachable(_)));
        let missing = self.unknown.iter().copied().chain(silent.map(|t| t.replica));
        let missing = missing.chain(unreachable.map(|(replica, _)| *replica));
        CoordinatorError::WriteTimeout {
            tally: tally(part.unwrap_or(&self.parts[0]), self.manner.level),
            kind: self.manner.kind,
            missing: self.view.names(missing),
        }
    }
}

fn tally(part: &Part, consistency: Consistency) -> Tally {
    let (received, block_for) = part.acks.tally();
    Tally {
        consistency,
        received,
        block_for,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::sim::Simulation;

    #[test]
    fn the_next_attempt_of_a_write_is_dated_when_the_write_was_made() {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        simulation.start(node, |_| {
            Box::pin(async {
                let first = Manner::new(Consistency::Quorum, WriteKind::Batch, Atomicity::Batch);
                let made_us = runtime::wall_clock_us();
                let is_dated = |manner: &Manner| (made_us - 1_000..=made_us).contains(&manner.dated_us());
                runtime::sleep(Duration::from_secs(5)).await;
                let deadline = runtime::now() + Duration::from_secs(1);
                let second = first.again_until(deadline);
                assert!(is_dated(&second), "{second:?}, made at {made_us}");
                runtime::sleep(Duration::from_secs(5)).await;
                assert!(is_dated(&second.again_until(deadline)), "the third attempt");
            })
        });
        assert!(simulation.run_until_ended(node, Duration::from_secs(60)));
    }
}
