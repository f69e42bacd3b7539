//! The leader of conditional statements and serial reads.
//!
//! Uncontended, a statement is two round trips: *prepare*, whose answers carry what is to be read (data from the best
//! replica, digests from the others), and *accept*. Both go to the best replicas that are a quorum; the others are
//! asked when one fails or is slow. Learning is an ordinary write of the decision to all replicas, waited for at the
//! statement's consistency level. What comes between, when others were there before, says `paxos::Leader`; here its
//! steps become requests.
//!
//! - Statements of one shard on one partition come one at a time (`cas.rs`).
//! - After a refusal a statement takes turns with those of other coordinators (`contention.rs`).
//! - A refused ballot waits a random while, some durations of a round, and tries again until the deadline; for
//!   `cas_contention_timeout` at most while nothing was proposed.
//! - A statement whose proposal may have been accepted by some finds out what became of it before it is decided again,
//!   so it takes effect at most once. At the deadline it ends with [`CoordinatorError::CasUnknown`]; one that was not
//!   proposed with [`CoordinatorError::CasTimeout`], and never takes effect.
//! - SERIAL asks a quorum of all replicas, LOCAL_SERIAL one of the coordinator's datacenter. As in Cassandra,
//!   statements at different levels do not see each other's promises.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::Mutation;
use paxos::{Ballot, Leader, Proposal, Round, Step};
use replica::proposal_life;
use runtime::{Instant, StopPoint};
use smallvec::SmallVec;
use stdx::planted::{self, Bug};
use stdx::probe::Answered;
use topology::{Acks, Consistency, Counts, ReadTargets, Replica, Requirement, WriteTargets};
use types::Token;
use types::token::token_of;

use crate::cas::asking::{Asking, Partition};
use crate::cas::contention::QueueTurn;
use crate::cas::learn::{Learning, Unlearned};
use crate::cas::message::{PaxosAnswer, Phase, Reads};
use crate::cas::{Cas, CasRead, CasRequest, Decision, ReadResult};
use crate::message::{Answer, Extent, ReadCommand};
use crate::{ClusterView, CoordinatorError, ReplicatedRead, Stretch, Tally, TargetError, trace};

/// The longest pause after a round that fell short of a quorum.
const BACKOFF_MAX: Duration = Duration::from_millis(200);
/// The longest pause in durations of the round: enough for the few coordinators that contend, and so short that the
/// coordinators that continue during the pause decide few statements.
const BACKOFF_ROUNDS_MAX: u32 = 8;
/// How long a quorum's answers are waited for before the other replicas are asked too, in usual durations of an answer,
/// and at least and at most.
const PATIENCE: u32 = 4;
const PATIENCE_MIN: Duration = Duration::from_millis(2);
const PATIENCE_MAX: Duration = Duration::from_millis(500);

type Replicas = SmallVec<[Replica; 6]>;

/// The participants: the replicas whose promises count.
struct Group {
    view: Arc<ClusterView>,
    token: Token,
    /// Those that live, the best first.
    replicas: Replicas,
    /// How many of them are a quorum.
    quorum: usize,
    requirement: Requirement,
    /// The replica whose queue contending coordinators wait in: identical on every coordinator with the same liveness
    /// view.
    queue: Replica,
}

/// Why a phase fell short of a quorum.
enum QuorumShortfall {
    /// A later ballot was promised.
    Refused(Ballot),
    /// Replicas did not answer in time; it is unknown which of them did it.
    Silent,
    /// Replicas could not do it.
    Failed(String),
    /// Replicas take no requests of this version of the cluster.
    Stale(String),
}

/// Why a round ends without a decision.
enum Undecided {
    /// Another round may reach one.
    Shortfall(QuorumShortfall),
    Error(CoordinatorError),
}

impl From<CoordinatorError> for Undecided {
    fn from(error: CoordinatorError) -> Self {
        Self::Error(error)
    }
}

/// A quorum's promises, and what was read with them.
struct Prepared {
    round: Round<Replica>,
    /// What the best replica has, when all digests are those of its data.
    found: Option<Vec<Answer>>,
}

/// How a proposal fared.
struct Attempt<'r> {
    cas: &'r Rc<Cas>,
    request: &'r CasRequest,
    group: Group,
    leader: Leader,
    /// When the statement began; microseconds since the epoch.
    begun_us: i64,
    contentions: u16,
    /// Rounds that fell short of a quorum.
    shorts: u32,
    /// When the round under way began.
    began: Instant,
    /// As the request's, from its turn in the queue on.
    contention_deadline: Instant,
    /// Ballots are taken above it.
    floor_us: i64,
    last_tally: Tally,
}

impl Cas {
    /// Compare and set, decided by a quorum: see [`Cas::compare_and_set`].
    ///
    /// # Errors
    /// When too few replicas live or answer in time; see the module.
    pub(crate) async fn cas_of_quorum(
        self: &Rc<Self>,
        request: &CasRequest,
        decide: &mut dyn FnMut(&mut [ReadResult], i64) -> Decision,
    ) -> Result<bool, CoordinatorError> {
        let group = self.group(request)?;
        self.context.count(|m| m.cas += 1);
        let result = Attempt::new(self, request, group).run(decide).await;
        match &result {
            Err(CoordinatorError::CasUnknown { .. }) => self.context.count(|m| {
                m.cas_unknown += 1;
                m.timeouts += 1;
            }),
            Err(CoordinatorError::CasTimeout { .. }) => self.context.count(|m| m.timeouts += 1),
            _ => {}
        }
        result
    }

    fn group(&self, request: &CasRequest) -> Result<Group, CoordinatorError> {
        let view = self.context.view();
        let unknown =
            || CoordinatorError::Internal(format!("table {} is not in the cluster's map", request.table.name));
        let route = view.route(request.table.id).ok_or_else(unknown)?;
        let token = token_of(&request.key);
        let tablet = route.map.tablet_of(token);
        let local = view.locality.local_datacenter();
        let targets = WriteTargets::new(&tablet);
        let requirement = route.write_requirement(request.serial, &tablet, &view.locality);
        let liveness = self.context.liveness.borrow();
        let best = ReadTargets::new(&tablet, token, &view.locality, &liveness);
        let more = targets.pending.iter().filter(|r| liveness.is_live(r.node));
        let is_asked = |r: &&Replica| !requirement.is_local() || view.locality.datacenter(r.node) == local;
        let replicas: SmallVec<[Replica; 6]> = best.live().iter().chain(more).filter(is_asked).copied().collect();
        requirement
            .is_sufficient(&requirement.count(replicas.iter().copied(), &view.locality))
            .inspect_err(|_| self.context.count(|m| m.unavailable += 1))?;
        let mut acks = Acks::new(requirement.clone(), Counts::default());
        let is_not_enough = |r: &&Replica| {
            let before = acks.is_satisfied();
            acks.ack(r.node, view.locality.datacenter(r.node));
            !before
        };
        let quorum = replicas.iter().take_while(is_not_enough).count();
        let queue = targets.all().find(|r| replicas.contains(r)).unwrap_or(replicas[0]);
        Ok(Group {
            token,
            replicas,
            quorum,
            requirement,
            queue,
            view: Arc::clone(&view),
        })
    }

    /// How long a quorum is waited for before more replicas are asked.
    fn patience(&self) -> Duration {
        (self.phase_usual.get() * PATIENCE).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    /// An acceptor answered after this long.
    fn answered_after(&self, took: Duration) {
        let usual = self.phase_usual.get();
        self.phase_usual.set((usual * 7 + took) / 8);
    }
}

/// The level of a quorum of those that a serial level is about.
fn serial_read_level(serial: Consistency) -> Consistency {
    match serial {
        Consistency::LocalSerial => Consistency::LocalQuorum,
        _ => Consistency::Quorum,
    }
}

/// Why a phase fell short of a quorum, if no replica refused it.
fn shortfall(reasons: &[String]) -> QuorumShortfall {
    match reasons {
        [] => QuorumShortfall::Silent,
        reasons => QuorumShortfall::Failed(reasons.join("; ")),
    }
}

fn tally(acks: &Acks) -> Tally {
    let (received, block_for) = acks.tally();
    Tally {
        consistency: acks.requirement().consistency(),
        received,
        block_for,
    }
}

impl<'r> Attempt<'r> {
    fn new(cas: &'r Rc<Cas>, request: &'r CasRequest, group: Group) -> Self {
        Self {
            cas,
            request,
            leader: Leader::default(),
            begun_us: runtime::wall_clock_us(),
            contentions: 0,
            shorts: 0,
            began: runtime::now(),
            contention_deadline: request.contention_deadline,
            floor_us: i64::MIN,
            last_tally: Tally {
                consistency: request.serial,
                received: 0,
                block_for: group.requirement.block_for(),
            },
            group,
        }
    }

    async fn run(
        &mut self,
        decide: &mut dyn FnMut(&mut [ReadResult], i64) -> Decision,
    ) -> Result<bool, CoordinatorError> {
        let mut turn = None;
        loop {
            if turn.is_none() {
                turn = self.turn().await;
            }
            let ballot = self.ballot();
            self.began = runtime::now();
            let Prepared { mut round, mut found } = match self.prepare(ballot).await {
                Ok(prepared) => prepared,
                Err(short) => {
                    self.again(short).await?;
                    continue;
                }
            };
            let step = loop {
                let step = self.leader.next(&round, self.oldest_us());
                let Step::Teach(proposal, missing) = &step else {
                    break step;
                };
                if let Err(short) = self.teach(proposal, missing).await {
                    self.again(short).await?;
                    break step;
                }
                missing
                    .iter()
                    .for_each(|replica| round.learned(*replica, proposal.ballot));
                // What they sent with their promises lacks it.
                if !planted::is_planted(Bug::UnsyncedNote) {
                    found = None;
                }
            };
            let (proposal, is_own) = match step {
                // They could not be taught.
                Step::Teach(..) => continue,
                Step::Chosen => return Ok(true),
                Step::Unknown => return Err(self.unknown("others were decided meanwhile")),
                Step::Finish(proposal) => (proposal, false),
                Step::Propose(proposal) => (proposal, true),
                Step::Decide => match self.decide(&round, found, decide).await {
                    Err(Undecided::Shortfall(shortfall)) => {
                        self.again(shortfall).await?;
                        continue;
                    }
                    Err(Undecided::Error(error)) => return Err(error),
                    Ok((Decision::Keep, true)) => match self.confirm(ballot).await {
                        Ok(()) => return Ok(false),
                        Err(short) => {
                            self.again(short).await?;
                            continue;
                        }
                    },
                    Ok((Decision::Above(timestamp), _)) if timestamp >= ballot.timestamp_us => {
                        if timestamp == i64::MAX {
                            let reason = "the row was written at the last of all timestamps; nothing can come after it";
                            return Err(CoordinatorError::Internal(reason.to_owned()));
                        }
                        self.floor_us = self.floor_us.max(timestamp);
                        continue;
                    }
                    Ok((Decision::Write(value), _)) => {
                        let levels = [serial_read_level(self.request.serial), self.request.commit];
                        self.cas.writes.require_for_decision(&self.group.view, &value, levels)?;
                        (self.leader.propose(ballot, &value), true)
                    }
                    Ok((Decision::Keep | Decision::Above(_) | Decision::ReadOn(_), _)) => return Ok(false),
                },
            };
            let deadline = if is_own {
                self.request.deadline
            } else {
                self.end_of(&proposal)
            };
            if let Err(short) = self.accept(&proposal, deadline).await {
                self.again(short).await?;
                continue;
            }
            runtime::stop_point(StopPoint::ProposalAccepted);
            if is_own {
                self.learn(proposal, self.request.commit).await?;
                return Ok(true);
            }
            self.cas.context.count(|m| m.cas_finished += 1);
            let level = serial_read_level(self.request.serial);
            // The next round finds out how far that went.
            if let Err(error) = self.learn(proposal, level).await {
                self.again(QuorumShortfall::Failed(error.to_string())).await?;
            }
        }
    }

    /// Takes a turn with other coordinators if the partition is contended. From then on others should not come before.
    async fn turn(&mut self) -> Option<QueueTurn> {
        let (cas, request) = (self.cas, self.request);
        let partition = (request.table.id, &request.key[..]);
        if !cas.contention.is_contended(partition.0, partition.1) {
            return None;
        }
        let Group { view, queue, .. } = &self.group;
        let turn = cas.take_turn(view, *queue, partition, request.deadline).await?;
        let more = cas.context.timeouts().cas_contention;
        self.contention_deadline = self.contention_deadline.max(runtime::now() + more);
        Some(turn)
    }

    /// A ballot later than all that this shard has taken, and all that this statement has met.
    fn ballot(&self) -> Ballot {
        let last = &self.cas.last_ballot_us;
        let next = runtime::wall_clock_us().max(last.get().saturating_add(1));
        last.set(next);
        // A timestamp that one partition has far in the future is no reason for others to go there.
        let timestamp_us = next.max(self.floor_us.saturating_add(1));
        Ballot {
            timestamp_us,
            node: self.group.view.me.0,
            shard: u16::try_from(self.cas.context.shard.id().0).expect("a node has at most 256 shards"),
            unique: (runtime::random_u64() >> 32) as u32,
        }
    }

    /// Proposals that were decided before this microsecond are too old to take effect.
    fn oldest_us(&self) -> i64 {
        let now_us = if planted::is_planted(Bug::ProposalLifeFromStatement) {
            self.begun_us
        } else {
            runtime::wall_clock_us()
        };
        now_us - i64::from(proposal_life(&self.request.table)) * 1_000_000
    }

    /// Until when acceptors may be asked to take over a proposal of another statement: until this one's deadline, and
    /// not after the proposal is too old, however long the client waits.
    fn end_of(&self, proposal: &Proposal) -> Instant {
        let left_us = proposal.origin.timestamp_us.saturating_sub(self.oldest_us()).max(0);
        let left = Duration::from_micros(left_us.cast_unsigned());
        self.request.deadline.min(runtime::now() + left)
    }

    fn left(&self) -> Duration {
        self.request.deadline.saturating_duration_since(runtime::now())
    }

    fn partition(&self) -> Partition<'_> {
        Partition {
            cas: self.cas,
            view: &self.group.view,
            table: self.request.table.id,
            key: &self.request.key,
        }
    }

    /// Makes a quorum do a phase until a deadline. `phase` gives it for the replica of this number; `take` receives
    /// each answer.
    async fn quorum<'p>(
        &mut self,
        phase: impl Fn(usize) -> &'p Phase<'p>,
        mut take: impl FnMut(usize, PaxosAnswer),
        deadline: Instant,
    ) -> Result<(), QuorumShortfall> {
        let replicas = self.group.replicas.clone();
        let requirement = &self.group.requirement;
        let possible = requirement.count(replicas.iter().copied(), &self.group.view.locality);
        let mut acks = Acks::new(self.group.requirement.clone(), possible);
        let mut answered = Answered::default();
        let mut asking = Asking::new(&self.request.table);
        // Others first: this node's part takes a while before the call returns.
        let ask = |this: &Self, asking: &mut Asking, numbers: Range<usize>| {
            for is_here in [false, true] {
                for number in numbers.clone() {
                    let replica = replicas[number];
                    if (replica.node == this.group.view.me) == is_here {
                        asking.ask(this.partition(), replica, phase(number), deadline);
                    }
                }
            }
        };
        let quorum = self.group.quorum;
        ask(self, &mut asking, 0..quorum);
        let mut all_are_asked = quorum == replicas.len();
        let mut began = runtime::now();
        let more_at = began + self.cas.patience();
        let mut reasons: Vec<String> = Vec::new();
        while !acks.is_satisfied() {
            let until = if all_are_asked { deadline } else { more_at.min(deadline) };
            let wanted = quorum.saturating_sub(usize::from(acks.answers()));
            let Some((replica, outcome, at)) = asking.next(until, wanted).await else {
                self.last_tally = tally(&acks);
                if all_are_asked || runtime::now() >= deadline {
                    return Err(shortfall(&reasons));
                }
                trace::note(|| format!("Asking {} too", self.names(&replicas[quorum..])));
                ask(self, &mut asking, quorum..replicas.len());
                (all_are_asked, began) = (true, runtime::now());
                continue;
            };
            let datacenter = self.group.view.locality.datacenter(replica.node);
            match outcome {
                Ok(PaxosAnswer::Refused(promised)) => {
                    // What others promise at this ballot would be overtaken.
                    self.last_tally = tally(&acks);
                    return Err(QuorumShortfall::Refused(promised));
                }
                Ok(answer) => {
                    self.cas.answered_after(at.saturating_duration_since(began));
                    let number = replicas.iter().position(|other| *other == replica);
                    take(number.expect("it was asked"), answer);
                    acks.ack(replica.node, datacenter);
                    answered.add(replica);
                    continue;
                }
                Err(TargetError::Silent) => {}
                Err(TargetError::Stale(reason)) => {
                    self.last_tally = tally(&acks);
                    return Err(QuorumShortfall::Stale(reason));
                }
                Err(error) => {
                    let name = self.group.view.names(std::iter::once(replica));
                    reasons.push(error.about(&name));
                }
            }
            acks.fail(replica.node, datacenter);
            if acks.is_hopeless() {
                self.last_tally = tally(&acks);
                return Err(shortfall(&reasons));
            }
            if !all_are_asked {
                trace::note(|| format!("Asking {} too", self.names(&replicas[quorum..])));
                ask(self, &mut asking, quorum..replicas.len());
                (all_are_asked, began) = (true, runtime::now());
            }
        }
        self.last_tally = tally(&acks);
        self.cas
            .context
            .tell_answered(&self.group.view, "phase", self.request.serial, &answered);
        Ok(())
    }

    async fn prepare(&mut self, ballot: Ballot) -> Result<Prepared, QuorumShortfall> {
        let (request, quorum) = (self.request, self.group.quorum);
        let replicas = self.group.replicas.clone();
        // One of the quorum sends data. One that is asked because another fails or is slow sends data too: it may have
        // been that one.
        let is_digest = |number: usize| (1..quorum).contains(&number);
        let phase = |digest_only: bool| {
            let command = |read: &'r CasRead| ReadCommand {
                table: request.table.id,
                extent: &read.extent,
                now: request.now,
                rows: read.stretch.rows,
                bytes: read.stretch.bytes,
                until: None,
                digest_only,
                bypasses_cache: false,
                withholds: false,
                listing: None,
            };
            Phase::Prepare(ballot, Reads::of(request.reads.iter().map(command)))
        };
        let (of_data, of_digests) = (phase(false), phase(true));
        let mut round = Round::new(ballot);
        let mut data: Option<Vec<Answer>> = None;
        let mut digests: SmallVec<[u128; 4]> = SmallVec::new();
        let mut digests_agree = true;
        let take = |number: usize, answer: PaxosAnswer| {
            let PaxosAnswer::Promised(promise, answers) = answer else {
                return;
            };
            round.promised(replicas[number], promise);
            if answers.len() != request.reads.len() {
                digests_agree = false;
            } else if digests.is_empty() {
                digests.extend(answers.iter().map(|a| a.digest));
            } else {
                digests_agree &= answers.iter().map(|a| a.digest).eq(digests.iter().copied());
            }
            if data.is_none() && !is_digest(number) {
                data = Some(answers);
            }
        };
        let phase = |number| if is_digest(number) { &of_digests } else { &of_data };
        trace::note(|| format!("Asking {} for a promise", self.names(&self.group.replicas[..quorum])));
        self.quorum(phase, take, request.deadline).await?;
        trace::note(|| "A quorum promised the ballot".to_owned());
        if !digests_agree {
            self.cas.context.count(|m| m.digest_mismatches += 1);
        }
        let found = data.filter(|answers| digests_agree && answers.len() == request.reads.len());
        Ok(Prepared { round, found })
    }

    /// Makes replicas of the quorum learn what was chosen before.
    async fn teach(&mut self, proposal: &Proposal, missing: &[Replica]) -> Result<(), QuorumShortfall> {
        trace::note(|| format!("Writing an earlier decision to {}", self.names(missing)));
        let (mut asking, phase) = (Asking::new(&self.request.table), Phase::Learn(proposal.clone()));
        let deadline = self.end_of(proposal);
        for replica in missing {
            asking.ask(self.partition(), *replica, &phase, deadline);
        }
        while asking.outstanding() > 0 {
            match asking.next(deadline, missing.len()).await {
                Some((_, Ok(_), _)) => {}
                Some((_, Err(TargetError::Silent), _)) | None => return Err(QuorumShortfall::Silent),
                Some((_, Err(TargetError::Stale(reason)), _)) => return Err(QuorumShortfall::Stale(reason)),
                Some((replica, Err(error), _)) => {
                    let name = self.group.view.names(std::iter::once(replica));
                    return Err(QuorumShortfall::Failed(error.about(&name)));
                }
            }
        }
        Ok(())
    }

    async fn accept(&mut self, proposal: &Proposal, deadline: Instant) -> Result<(), QuorumShortfall> {
        let phase = Phase::Accept(proposal.clone());
        trace::note(|| {
            let quorum = &self.group.replicas[..self.group.quorum];
            format!("Asking {} to accept the proposal", self.names(quorum))
        });
        self.quorum(|_| &phase, |_, _| {}, deadline).await?;
        trace::note(|| "A quorum accepted the proposal".to_owned());
        Ok(())
    }

    /// Whether a quorum still promises this ballot: nothing was chosen after it so far, so what was read at several
    /// moments is of one.
    async fn confirm(&mut self, ballot: Ballot) -> Result<(), QuorumShortfall> {
        if planted::is_planted(Bug::NoConfirm) {
            return Ok(());
        }
        let phase = Phase::Prepare(ballot, Reads::default());
        trace::note(|| "Asking whether the promises still hold".to_owned());
        self.quorum(|_| &phase, |_, _| {}, self.request.deadline).await
    }

    /// Reads what is needed and decides. True: it took more than the promises brought.
    async fn decide(
        &self,
        round: &Round<Replica>,
        found: Option<Vec<Answer>>,
        decide: &mut dyn FnMut(&mut [ReadResult], i64) -> Decision,
    ) -> Result<(Decision, bool), Undecided> {
        let mut rests: Vec<Option<ReplicatedRead>> = Vec::with_capacity(self.request.reads.len());
        let mut all: Vec<ReadResult> = Vec::with_capacity(self.request.reads.len());
        let differ = found.is_none();
        let answers = found.unwrap_or_else(|| self.request.reads.iter().map(|_| Answer::default()).collect());
        for (read, answer) in self.request.reads.iter().zip(answers) {
            let order = &self.request.table.clustering_order;
            let left = match answer.blocks.last() {
                _ if differ => Some(read.extent.clone()),
                Some(last) if !answer.is_all() => read.extent.clone().behind(last, order),
                _ => None,
            };
            let rest = left.map(|extent| self.rest(round, extent, read.stretch)).transpose()?;
            all.push(ReadResult {
                is_all: rest.is_none(),
                blocks: answer.blocks,
            });
            rests.push(rest);
        }
        if differ {
            for number in 0..all.len() {
                self.read_on(&mut rests, &mut all, number).await?;
            }
        }
        let mut reads_more = differ && !all.is_empty();
        loop {
            match decide(&mut all, round.ballot().timestamp_us) {
                Decision::ReadOn(number) if all.get(number).is_some_and(|found| !found.is_all) => {
                    reads_more = true;
                    self.request.hold(&all).await.map_err(Undecided::Error)?;
                    self.read_on(&mut rests, &mut all, number).await?;
                }
                Decision::ReadOn(_) => {
                    let reason = "a conditional statement asks for more than everything";
                    return Err(CoordinatorError::Internal(reason.to_owned()).into());
                }
                decision => return Ok((decision, reads_more)),
            }
        }
    }

    /// What those that have promised have of an extent.
    fn rest(
        &self,
        round: &Round<Replica>,
        extent: Extent,
        stretch: Stretch,
    ) -> Result<ReplicatedRead, CoordinatorError> {
        let (request, view) = (self.request, &self.group.view);
        let (level, now) = (serial_read_level(request.serial), request.now);
        let read = ReplicatedRead::begin(&self.cas.reads, view, &request.table, level, extent, now, stretch)?;
        Ok(read.merging(round.replicas()))
    }

    async fn read_on(
        &self,
        rests: &mut [Option<ReplicatedRead>],
        all: &mut [ReadResult],
        number: usize,
    ) -> Result<(), Undecided> {
        let Some(rest) = &mut rests[number] else { return Ok(()) };
        let next = rest.next_block().await.map_err(|error| {
            if rest.is_stale() {
                Undecided::Shortfall(QuorumShortfall::Stale(error.to_string()))
            } else {
                Undecided::Error(error)
            }
        })?;
        match next {
            Some(block) => {
                all[number].is_all = block.covered.is_none();
                all[number].blocks.push(block);
            }
            None => all[number].is_all = true,
        }
        Ok(())
    }

    /// Writes the decision to all replicas, and waits until as many have it as the level wants. If replicas refuse it
    /// as stale, it is sent again in the newer view, to the replicas of that view. If the table was truncated since
    /// then, the truncation has removed the decision, which is as good as learned.
    async fn learn(&self, proposal: Proposal, level: Consistency) -> Result<(), CoordinatorError> {
        let (cas, table) = (self.cas, self.request.table.id);
        let timed_out = |error| {
            cas.context.count(|m| m.timeouts += 1);
            Err(error)
        };
        trace::note(|| format!("Writing the decision to all replicas, at {level}"));
        let deadline = runtime::now() + cas.context.timeouts().write;
        let accepted = &self.group.replicas[..self.group.quorum];
        let mut view = Arc::clone(&self.group.view);
        loop {
            let again = match self.learn_in(&view, accepted, &proposal, level, deadline).await {
                Ok(()) => return Ok(()),
                Err(Unlearned::Silent(error)) => return timed_out(error),
                Err(Unlearned::Stale(error)) => error,
            };
            let Some(newer) = cas.context.newer_view(&view, deadline).await else {
                return timed_out(again);
            };
            if newer.truncated_at(table) > view.truncated_at(table) {
                return Ok(());
            }
            if newer.route(table).is_none() {
                return timed_out(again);
            }
            view = newer;
        }
    }

    async fn learn_in(
        &self,
        view: &Arc<ClusterView>,
        accepted: &[Replica],
        proposal: &Proposal,
        level: Consistency,
        deadline: Instant,
    ) -> Result<(), Unlearned> {
        let cas = self.cas;
        let route = view.route(self.request.table.id).expect("the table is in the view");
        let tablet = route.map.tablet_of(self.group.token);
        let targets = WriteTargets::new(&tablet);
        let requirement = route.write_requirement(level, &tablet, &view.locality);
        let (live, dead): (Replicas, Replicas) = targets.all().partition(|r| cas.context.is_live(r.node));
        let (live, dead) = self.without_full(view, (live, dead), proposal, &requirement);
        let counts = requirement.count(live.iter().copied(), &view.locality);
        let acks = (level, Acks::new(requirement, counts));
        let replicas = (&live[..], &dead[..], accepted);
        let learning = Learning::begin(cas, view, self.request, proposal.clone(), acks, replicas, deadline);
        learning.answered().await
    }

    /// Counts replicas whose disks are full with the dead, where the others suffice: hints bring the decision when they
    /// have room. Else they learn it all the same, because what was chosen must be finished.
    fn without_full(
        &self,
        view: &ClusterView,
        (mut live, mut dead): (Replicas, Replicas),
        proposal: &Proposal,
        requirement: &Requirement,
    ) -> (Replicas, Replicas) {
        let context = &self.cas.context;
        let grows = proposal.value().and_then(Mutation::new);
        if !grows.is_some_and(|mutation| context.grows(mutation.table, &mutation)) {
            return (live, dead);
        }
        let (with_room, full): (Replicas, Replicas) = live.iter().copied().partition(|r| context.takes_growth(r.node));
        if requirement
            .is_sufficient(&requirement.count(with_room.iter().copied(), &view.locality))
            .is_ok()
        {
            dead.extend(full);
            live = with_room;
        }
        (live, dead)
    }

    /// A phase fell short of a quorum: waits before the next round, or ends the statement.
    async fn again(&mut self, shortfall: QuorumShortfall) -> Result<(), CoordinatorError> {
        self.shorts += 1;
        let mut left = self.left();
        let reason = match shortfall {
            QuorumShortfall::Refused(promised) => {
                if !self.leader.may_happen() {
                    left = left.min(self.contention_deadline.saturating_duration_since(runtime::now()));
                }
                let request = self.request;
                self.cas.contention.met_others(request.table.id, &request.key);
                self.contentions = self.contentions.saturating_add(1);
                self.cas.context.count(|m| m.cas_contentions += 1);
                self.floor_us = self.floor_us.max(promised.timestamp_us);
                "others are decided first".to_owned()
            }
            QuorumShortfall::Silent => "acceptors did not answer in time".to_owned(),
            QuorumShortfall::Failed(reason) => reason,
            QuorumShortfall::Stale(reason) => {
                let (view, deadline) = (Arc::clone(&self.group.view), self.request.deadline);
                if self.cas.context.newer_view(&view, deadline).await.is_some() {
                    return self.regroup();
                }
                left = Duration::ZERO;
                reason
            }
        };
        if self
            .cas
            .context
            .with_view(|view| view.version > self.group.view.version)
        {
            self.regroup()?;
        }
        let rounds = (1 << self.shorts.min(16)).min(BACKOFF_ROUNDS_MAX);
        let most = (self.began.elapsed() * rounds).min(BACKOFF_MAX);
        let pause = Duration::from_nanos(runtime::random_u64() % u64::try_from(most.as_nanos()).unwrap_or(1).max(1));
        if left <= pause {
            return Err(if self.leader.may_happen() {
                self.unknown(&reason)
            } else {
                CoordinatorError::CasTimeout {
                    tally: self.last_tally.clone(),
                    contentions: self.contentions,
                }
            });
        }
        trace::note(|| format!("Starting again with a later ballot: {reason}"));
        runtime::sleep(pause).await;
        Ok(())
    }

    /// What replicas are called in traces.
    fn names(&self, replicas: &[Replica]) -> String {
        self.group.view.names(replicas.iter().copied())
    }

    /// Continues with the participants in the newest view of the cluster.
    fn regroup(&mut self) -> Result<(), CoordinatorError> {
        let is_truncated = self.cas.context.with_view(|view| {
            let table = self.request.table.id;
            view.truncated_at(table) > self.group.view.truncated_at(table)
        });
        if is_truncated && self.leader.may_happen() {
            // The replicas that accepted it have forgotten it, and a client may have seen it before that.
            return Err(self.unknown("the table was truncated meanwhile"));
        }
        match self.cas.group(self.request) {
            Ok(group) => self.group = group,
            // That they are too few says that nothing happened, which is not known any more.
            Err(error) if self.leader.may_happen() => return Err(self.unknown(&error.to_string())),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn unknown(&self, reason: &str) -> CoordinatorError {
        CoordinatorError::CasUnknown {
            tally: self.last_tally.clone(),
            contentions: self.contentions,
            reason: reason.to_owned(),
        }
    }
}
