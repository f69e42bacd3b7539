//! Reads at a consistency level: stretch by stretch, data from one replica and digests from the others.
//!
//! While digests agree, the data of the best replica is the result. Where they differ, all that were asked send their
//! data, which is merged up to the nearest bound that each is complete to. What a replica lacked of that is written to
//! it before the merged block is returned. The rest of the read continues in that way.
//!
//! A read of tokens goes piece by piece: neighbouring tokens that have the same replicas. When a replica takes no
//! requests of the view any more (`fence.rs`), what was not returned yet is read again in the next view, by the pieces
//! of that view.

pub(crate) mod digest;
mod failure;
pub(crate) mod fan;
pub(crate) mod gather;
pub(crate) mod latency;
mod listed;
mod long_rows;
mod pieces;
pub(crate) mod point;
mod repair;
pub(crate) mod stretch;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use memory::RowMemory;
use mutation::PartitionBlock;
use mutation::merge::merge_blocks;
use replica::split_block;
use runtime::{Instant, ShardId};
use schema::{Table, TableId};
use stdx::planted::{self, Bug};
use stdx::preempt;
use stdx::probe::Answered;
use topology::{Acks, Consistency, Counts, ReadTargets, Replica, ReplicaList, Requirement};
use types::Token;
use types::token::token_of;

use crate::fence::Stamp;
use crate::handoff::Handoff;
use crate::message::{Answer, Extent, ReadCommand};
use crate::read::fan::{Fan, Response};
use crate::read::latency::{Latencies, TableLatencies};
use crate::write::dated::Deadline;
use crate::write::deadlines::Flights;
use crate::write::lasting::Lasting;
use crate::{ClusterView, Context, CoordinatorError, TargetError, Verb, service, trace};

/// What the table option `read_repair` says where a read leaves replicas as they are. What one read saw the next one at
/// the same level may not see then.
const NO_REPAIR: &str = "NONE";

/// What reads of this shard share.
pub struct Reads {
    pub(crate) context: Rc<Context>,
    flights: Rc<Flights>,
    hints: Rc<Handoff>,
    latencies: RefCell<BTreeMap<TableId, Rc<TableLatencies>>>,
    scratch: RefCell<point::Scratch>,
}

impl Reads {
    pub(crate) fn new(context: Rc<Context>, flights: Rc<Flights>, hints: Rc<Handoff>) -> Self {
        Self {
            context,
            flights,
            hints,
            latencies: RefCell::default(),
            scratch: RefCell::default(),
        }
    }

    /// What reads of a table have taken here.
    fn latencies_of(&self, table: &Table) -> Rc<TableLatencies> {
        let option = &table.options.speculative_retry;
        let mut latencies = self.latencies.borrow_mut();
        match latencies.get(&table.id) {
            Some(known) if known.option == *option => Rc::clone(known),
            _ => {
                let new = Rc::new(TableLatencies::new(option));
                latencies.insert(table.id, Rc::clone(&new));
                new
            }
        }
    }

    /// Forgets what reads of tables have taken that a view does not have.
    pub(crate) fn forget_latencies(&self, view: &ClusterView) {
        let mut latencies = self.latencies.borrow_mut();
        latencies.retain(|table, _| view.route(*table).is_some());
    }
}

/// How much of a read one round of requests asks for.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Rows.
    pub rows: usize,
    /// Bytes, about.
    pub bytes: usize,
}

/// One replica's data, where replicas differ.
struct Feed {
    replica: Replica,
    ready: VecDeque<PartitionBlock>,
    /// What it was not asked for yet; None when it has nothing after `ready`.
    left: Option<Extent>,
}

/// What is left of a read whose replicas differ, should it begin again.
struct Unread {
    /// From where they differ.
    extent: Extent,
    /// The last block of it that was returned: its key, and how far it goes.
    seen: Option<PartitionBlock>,
}

/// A read of one partition, or of tokens.
pub struct ReplicatedRead {
    reads: Rc<Reads>,
    view: Arc<ClusterView>,
    table: Arc<Table>,
    /// One of those that are read: all of a piece have the same replicas.
    token: Token,
    level: Consistency,
    requirement: Requirement,
    targets: ReadTargets,
    reversed: bool,
    now: u32,
    stretch: Stretch,
    /// What was not asked for yet of this piece, while replicas agree.
    left: Option<Extent>,
    /// The pieces after this one.
    pieces: VecDeque<Extent>,
    /// When replicas differ.
    unread: Option<Unread>,
    ready: VecDeque<PartitionBlock>,
    /// Not empty: replicas differed.
    feeds: Vec<Feed>,
    /// Live replicas that are not feeds: each may replace a feed that fails.
    spare: VecDeque<Replica>,
    /// The partition of the block returned last.
    last_key: Option<(Token, Vec<u8>)>,
    skips: bool,
    /// How long a round of requests takes at most, unless the request has a deadline.
    round: Duration,
    deadline: Deadline,
    /// While it may write what it has read to replicas that lack it, and that takes long.
    lasting: Option<Rc<Lasting>>,
    latencies: Rc<TableLatencies>,
    is_range: bool,
    bypasses_cache: bool,
    /// A replica takes no requests of this view.
    is_stale: bool,
    /// Where memory is reserved before a replica sends a long row.
    row_memory: Option<Arc<dyn RowMemory>>,
    /// Of tokens, which rows are read.
    listed: Option<listed::Listed>,
}

impl ReplicatedRead {
    /// A read that begins. `now` is the second at which rows live.
    ///
    /// # Errors
    /// When the table has no replicas that live and are enough.
    pub fn new(
        reads: &Rc<Reads>,
        view: &Arc<ClusterView>,
        table: &Arc<Table>,
        level: Consistency,
        extent: Extent,
        now: u32,
        stretch: Stretch,
    ) -> Result<Self, CoordinatorError> {
        let read = Self::begin(reads, view, table, level, extent, now, stretch)?;
        let live = read
            .requirement
            .count(read.targets.live().iter().copied(), &view.locality);
        read.requirement
            .is_sufficient(&live)
            .inspect_err(|_| reads.context.count(|m| m.unavailable += 1))?;
        Ok(read)
    }

    /// A read that merges what exactly these replicas have.
    pub(crate) fn merging(self, replicas: impl Iterator<Item = Replica>) -> Self {
        let feed = |replica| Feed {
            replica,
            ready: VecDeque::new(),
            left: self.left.clone(),
        };
        Self {
            feeds: replicas.map(feed).collect(),
            left: None,
            ..self
        }
    }

    pub(crate) fn begin(
        reads: &Rc<Reads>,
        view: &Arc<ClusterView>,
        table: &Arc<Table>,
        level: Consistency,
        extent: Extent,
        now: u32,
        stretch: Stretch,
    ) -> Result<Self, CoordinatorError> {
        let unknown = || CoordinatorError::Internal(format!("table {} is not in the cluster's map", table.name));
        let route = view.route(table.id).ok_or_else(unknown)?;
        let timeouts = reads.context.timeouts();
        let (mut pieces, mut is_range, mut round) = (VecDeque::new(), false, timeouts.read);
        let mut left = Some(extent);
        if let Some(Extent::Tokens { .. }) = &left {
            (is_range, round) = (true, timeouts.range);
            pieces = left
                .take()
                .into_iter()
                .flat_map(|extent| pieces::cut(view, table.id, extent))
                .collect();
            left = pieces.pop_front();
        }
        let reversed = left.as_ref().is_some_and(Extent::is_reversed);
        let token = left.as_ref().map_or(Token(i64::MAX), token_in);
        let liveness = reads.context.liveness.borrow();
        let tablet = route.map.tablet_of(token);
        let targets = ReadTargets::new(&tablet, token, &view.locality, &liveness);
        let requirement = route.requirement(level, &tablet, &view.locality);
        Ok(Self {
            reads: Rc::clone(reads),
            view: Arc::clone(view),
            table: Arc::clone(table),
            token,
            level,
            requirement,
            targets,
            reversed,
            now,
            stretch,
            left,
            pieces,
            unread: None,
            ready: VecDeque::new(),
            feeds: Vec::new(),
            spare: VecDeque::new(),
            last_key: None,
            skips: false,
            round,
            deadline: Deadline::USUAL,
            lasting: None,
            latencies: reads.latencies_of(table),
            is_range,
            bypasses_cache: false,
            is_stale: false,
            row_memory: None,
            listed: None,
        })
    }

    /// Turns to an extent whose tokens all have the same replicas.
    fn turn_to(&mut self, extent: Extent) -> Result<(), CoordinatorError> {
        self.token = token_in(&extent);
        let route = self.view.route(self.table.id);
        let route =
            route.ok_or_else(|| CoordinatorError::Internal(format!("table {} was dropped", self.table.name)))?;
        let tablet = route.map.tablet_of(self.token);
        let liveness = self.reads.context.liveness.borrow();
        self.targets = ReadTargets::new(&tablet, self.token, &self.view.locality, &liveness);
        self.requirement = route.requirement(self.level, &tablet, &self.view.locality);
        self.left = Some(extent);
        let live = self
            .requirement
            .count(self.targets.live().iter().copied(), &self.view.locality);
        self.requirement
            .is_sufficient(&live)
            .inspect_err(|_| self.reads.context.count(|m| m.unavailable += 1))?;
        Ok(())
    }

    /// Continues with what is left of this piece, and with the pieces after it, in the newest view of the cluster.
    fn revise(&mut self, left: Extent) {
        self.is_stale = false;
        self.view = self.reads.context.view();
        self.feeds.clear();
        self.spare.clear();
        let after = std::mem::take(&mut self.pieces);
        let again = std::iter::once(left).chain(after);
        self.pieces = again
            .flat_map(|extent| pieces::cut(&self.view, self.table.id, extent))
            .collect();
    }

    /// Whether the last error was that a replica takes no requests of the view that the read began in.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// This read, with a limit for how long each round of requests may take, if the request has no deadline.
    #[must_use]
    pub fn within(self, round: Duration) -> Self {
        Self { round, ..self }
    }

    /// This read, for a request with a deadline.
    #[must_use]
    pub fn until(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
    }

    /// When a round of requests ends that begins now.
    fn round_end(&self) -> Instant {
        self.deadline.or_after(self.round)
    }

    /// This read, which bypasses the caches of the replicas if `does` says so.
    #[must_use]
    pub fn bypassing_cache(self, does: bool) -> Self {
        Self {
            bypasses_cache: does,
            ..self
        }
    }

    /// The next block that the level vouches for; None at the end. Consecutive blocks of a partition have the same key,
    /// all but its last say in `covered` how far they go.
    ///
    /// # Errors
    /// When too few replicas answer, or can read.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, CoordinatorError> {
        // Of the round of requests under way, with what is done again of it in a newer view.
        let mut deadline = None;
        loop {
            while let Some(block) = self.ready.pop_front() {
                let this = (block.token, block.key());
                let is_skipped = self.skips && self.last_key.as_ref().is_some_and(|(t, k)| (*t, &k[..]) == this);
                if is_skipped {
                    continue;
                }
                self.skips = false;
                if self.last_key.as_ref().is_none_or(|(t, k)| (*t, &k[..]) != this) {
                    self.last_key = Some((block.token, block.key().to_vec()));
                }
                return Ok(Some(block));
            }
            if let Some(block) = self.next_verified().await? {
                self.ready.push_back(block);
                deadline = None;
                continue;
            }
            let until = *deadline.get_or_insert_with(|| self.round_end());
            let (error, left) = if !self.feeds.is_empty() {
                match self.reconcile().await {
                    Ok(Some(block)) => {
                        self.note_seen(&block);
                        self.ready.push_back(block);
                        continue;
                    }
                    Ok(None) => {
                        deadline = None;
                        continue;
                    }
                    Err(error) => (error, self.take_unread()),
                }
            } else if let Some(extent) = self.left.take() {
                match self.agree(&extent, until).await {
                    Ok(()) => {
                        deadline = None;
                        continue;
                    }
                    Err(error) => (error, Some(extent)),
                }
            } else if let Some(next) = self.pieces.pop_front() {
                self.turn_to(next)?;
                continue;
            } else {
                return Ok(None);
            };
            let Some(left) = left.filter(|_| self.is_stale) else {
                return Err(error);
            };
            if self.reads.context.newer_view(&self.view, until).await.is_none() {
                return Err(error);
            }
            self.revise(left);
        }
    }

    /// Replicas differ, and this was returned.
    fn note_seen(&mut self, block: &PartitionBlock) {
        if let Some(unread) = &mut self.unread {
            let mut seen = PartitionBlock::with_room(block.token, block.key(), 0, 0);
            seen.covered.clone_from(&block.covered);
            unread.seen = Some(seen);
        }
    }

    /// What was not returned yet of an extent of which replicas differ.
    fn take_unread(&mut self) -> Option<Extent> {
        let Unread { extent, seen } = self.unread.take()?;
        match seen {
            None => Some(extent),
            Some(seen) => extent.behind(&seen, &self.table.clustering_order),
        }
    }

    /// Leaves the rest of the current partition unread.
    pub fn skip_partition(&mut self) {
        self.skips = true;
        self.skip_verified();
        let Some((token, key)) = &self.last_key else { return };
        let is_this = |b: &PartitionBlock| (b.token, b.key()) == (*token, &key[..]);
        let pass_by = |left: &mut Option<Extent>| {
            if let Some(Extent::Tokens { from, inside, .. }) = left
                && inside.is_some()
                && (from.0, &from.1[..]) == (*token, &key[..])
            {
                *inside = None;
                from.1.push(0);
            }
        };
        pass_by(&mut self.left);
        for feed in &mut self.feeds {
            while let Some(block) = feed.ready.front().filter(|b| is_this(b)) {
                let is_open = block.covered.is_some();
                let block = feed.ready.pop_front();
                if is_open && feed.ready.is_empty() {
                    feed.left = feed
                        .left
                        .take()
                        .zip(block)
                        .and_then(|(left, block)| left.beyond_partition(&block));
                }
            }
            pass_by(&mut feed.left);
        }
    }

    fn command<'e>(&self, extent: &'e Extent, digest_only: bool) -> ReadCommand<&'e Extent> {
        ReadCommand {
            table: self.table.id,
            extent,
            now: self.now,
            rows: self.stretch.rows,
            bytes: self.stretch.bytes,
            until: None,
            digest_only,
            bypasses_cache: self.bypasses_cache,
            withholds: self.row_memory.is_some() && !digest_only,
            listing: self.listing(),
        }
    }

    fn latencies(&self) -> &Latencies {
        if self.is_range {
            &self.latencies.range
        } else {
            &self.latencies.partition
        }
    }

    /// The replicas that are asked: the best that meet the level.
    fn chosen(&self) -> ReplicaList {
        let mut acks = Acks::new(self.requirement.clone(), Counts::default());
        let mut chosen = ReplicaList::new();
        for replica in self.targets.live() {
            if acks.is_satisfied() {
                break;
            }
            let before = acks.received();
            acks.ack(replica.node, self.view.locality.datacenter(replica.node));
            if acks.received() > before {
                chosen.push(*replica);
            }
        }
        chosen
    }

    fn send(&self, fan: &mut Fan<Answer>, replica: Replica, command: ReadCommand<&Extent>) {
        let context = &self.reads.context;
        trace::note(|| {
            let what = if command.digest_only { "a digest" } else { "data" };
            format!(
                "Asking {} for {what} of {}.{}",
                self.view.name(replica),
                self.table.keyspace,
                self.table.name
            )
        });
        let stamp = Stamp::of(&self.view, self.table.id);
        if replica.node != self.view.me {
            let mut body = command.encode();
            stamp.sign(&mut body);
            fan.call((context, &self.view), replica, Verb::Read, body, self.round_end());
        } else if ShardId(u32::from(replica.shard)) == context.shard.id() {
            let (shard, command) = (Rc::clone(&context.shard), command.owning());
            fan.here(replica, async move { service::read(&shard, command, stamp).await });
        } else {
            let command = command.owning();
            fan.beside(replica, move |there| async move {
                service::read(&there.context.shard, command, stamp).await
            });
        }
    }

    fn note_answer(&self, replica: Replica, response: &Result<Response<Answer>, TargetError>) {
        trace::note(|| {
            let name = self.view.name(replica);
            match response {
                Ok(_) => format!("Answer of {name}"),
                Err(error) => format!("No answer of {}", error.about(&name)),
            }
        });
    }

    fn answer(&self, response: Result<Response<Answer>, TargetError>) -> Result<Answer, TargetError> {
        match response? {
            Response::Local(answer) => Ok(answer),
            Response::Remote(body) => Answer::decode(&body, &self.table)
                .map_err(|e| TargetError::Failed(format!("a malformed answer to a read: {e}"))),
        }
    }

    /// Reads a stretch from one replica and compares it with the others'.
    async fn agree(&mut self, extent: &Extent, mut deadline: Instant) -> Result<(), CoordinatorError> {
        self.reads.context.count(|m| m.reads += 1);
        let began = runtime::now();
        let longest = self.round_end().saturating_duration_since(began);
        let is_lasting = self.reads.context.timeouts().is_lasting(longest);
        self.lasting = is_lasting.then(|| Rc::new(Lasting::since(&self.reads.flights, began)));
        let mut speculates = self.latencies().delay().map(|delay| began + delay);
        let mut fan = Fan::new();
        let chosen = self.chosen();
        for (i, replica) in chosen.iter().enumerate() {
            self.send(&mut fan, *replica, self.command(extent, i > 0));
        }
        // Those that were asked for a digest and have not answered.
        let mut digesting: ReplicaList = chosen.iter().skip(1).copied().collect();
        let mut spare: VecDeque<Replica> = self
            .targets
            .live()
            .iter()
            .filter(|r| !chosen.contains(r))
            .copied()
            .collect();
        let mut outstanding: Vec<Replica> = chosen.to_vec();
        let mut acks = Acks::new(self.requirement.clone(), Counts::default());
        let mut data: Option<(Replica, Answer)> = None;
        let mut digests: Vec<(Replica, Answer)> = Vec::new();
        let mut failures: Vec<(Replica, TargetError)> = Vec::new();
        loop {
            if data.is_some() && acks.is_satisfied() {
                break;
            }
            if outstanding.is_empty() {
                return Err(self.read_failure(&acks, data.is_some(), &failures, &outstanding));
            }
            let until = speculates.map_or(deadline, |at| at.min(deadline));
            let Some((replica, response)) = fan.next(until).await else {
                if runtime::now() >= deadline {
                    self.reads.context.count(|m| m.timeouts += 1);
                    return Err(self.read_timeout(&acks, data.is_some(), &outstanding));
                }
                // Another replica may be faster than those that are waited for; whichever of them has the data.
                speculates = None;
                if let Some(more) = spare.pop_front() {
                    self.reads.context.count(|m| m.speculations += 1);
                    self.send(&mut fan, more, self.command(extent, false));
                    outstanding.push(more);
                }
                continue;
            };
            outstanding.retain(|other| *other != replica);
            let asked = digesting.len();
            digesting.retain(|other| *other != replica);
            let was_digest = digesting.len() < asked;
            self.note_answer(replica, &response);
            match self.answer(response) {
                Ok(Answer {
                    withheld: Some(bytes), ..
                }) => {
                    match self
                        .ask_for_long_row(&mut fan, replica, extent, (bytes, data.is_some()))
                        .await?
                    {
                        Some(later) => (deadline, speculates) = (later, None),
                        None => digesting.push(replica),
                    }
                    outstanding.push(replica);
                }
                Ok(answer) => {
                    acks.ack(replica.node, self.view.locality.datacenter(replica.node));
                    if was_digest || data.is_some() {
                        let blocks = Vec::new();
                        digests.push((replica, Answer { blocks, ..answer }));
                    } else {
                        data = Some((replica, answer));
                    }
                }
                Err(TargetError::Stale(reason)) => {
                    self.is_stale = true;
                    failures.push((replica, TargetError::Stale(reason)));
                    return Err(self.read_failure(&acks, data.is_some(), &failures, &outstanding));
                }
                Err(error) => {
                    failures.push((replica, error));
                    if let Some(more) = spare.pop_front() {
                        self.send(&mut fan, more, self.command(extent, false));
                        outstanding.push(more);
                    } else if data.is_none()
                        && let Some((again, _)) = digests.pop()
                    {
                        // Only replicas that sent a digest are left: one of them is asked for the data.
                        acks = Acks::new(self.requirement.clone(), Counts::default());
                        for (other, _) in &digests {
                            acks.ack(other.node, self.view.locality.datacenter(other.node));
                        }
                        self.send(&mut fan, again, self.command(extent, false));
                        outstanding.push(again);
                    }
                }
            }
        }
        let (from, mut answer) = data.expect("the loop ends with data");
        let answered = Answered::of(std::iter::once(from).chain(digests.iter().map(|(replica, _)| *replica)));
        self.reads
            .context
            .tell_answered(&self.view, "read", self.level, &answered);
        self.align(extent, &mut answer, &mut digests, deadline).await;
        self.latencies().record(runtime::now().saturating_duration_since(began));
        let agree = digests.iter().all(|(_, other)| other.digest == answer.digest);
        if agree || planted::is_planted(Bug::IgnoredDigest) {
            self.left = self.behind(&answer, extent);
            self.ready.extend(answer.blocks);
            return Ok(());
        }
        if self.listed.is_some() && !planted::is_planted(Bug::SilentRowIsAbsent) {
            return self.verify((from, answer), digests, extent, deadline).await;
        }
        self.begin_to_reconcile((from, answer), &digests, extent, began);
        Ok(())
    }

    /// Replicas differ: from here on all that answered are asked for their data.
    fn begin_to_reconcile(
        &mut self,
        (from, answer): (Replica, Answer),
        digests: &[(Replica, Answer)],
        extent: &Extent,
        began: Instant,
    ) {
        self.reads.context.count(|m| m.digest_mismatches += 1);
        self.lasting
            .get_or_insert_with(|| Rc::new(Lasting::since(&self.reads.flights, began)));
        let mut feeds = vec![self.feed(from, answer, extent.clone())];
        feeds.extend(digests.iter().map(|(replica, _)| Feed {
            replica: *replica,
            ready: VecDeque::new(),
            left: Some(extent.clone()),
        }));
        let live = self.targets.live().iter();
        self.spare = live
            .filter(|replica| feeds.iter().all(|feed| feed.replica != **replica))
            .copied()
            .collect();
        self.feeds = feeds;
        self.unread = Some(Unread {
            extent: extent.clone(),
            seen: None,
        });
    }

    /// Replicas with different dead data pause at different places: those that went beyond the nearest are asked again,
    /// up to there, so that all digests are over one stretch. Where that fails they differ, and what follows asks for
    /// data.
    async fn align(&self, extent: &Extent, answer: &mut Answer, digests: &mut [(Replica, Answer)], deadline: Instant) {
        let order = &self.table.clustering_order;
        let all = std::iter::once(&*answer).chain(digests.iter().map(|(_, other)| other));
        let ends = all.filter_map(|a| a.end.as_ref().map(|end| (end, a.is_paused)));
        let nearest = ends.min_by(|(a, _), (b, _)| a.compare(b, order, self.reversed));
        // Where nothing pauses they end by what lives, and differ in that.
        let Some((nearest, true)) = nearest.map(|(end, is_paused)| (end.clone(), is_paused)) else {
            return;
        };
        let mut fan = Fan::new();
        for (replica, _) in digests.iter().filter(|(_, other)| other.end.as_ref() != Some(&nearest)) {
            let until = Some(nearest.clone());
            let command = ReadCommand {
                until,
                ..self.command(extent, true)
            };
            self.send(&mut fan, *replica, command);
        }
        if answer.end.as_ref() != Some(&nearest) {
            answer.cut(&nearest, &self.table, self.now, self.reversed);
        }
        while let Some((replica, response)) = fan.next(deadline).await {
            let other = digests.iter_mut().find(|(other, _)| *other == replica);
            if let (Some((_, other)), Ok(again)) = (other, self.answer(response)) {
                *other = again;
            }
        }
    }

    /// What is left of an extent after what a replica has answered.
    fn behind(&self, answer: &Answer, extent: &Extent) -> Option<Extent> {
        let end = answer.end.as_ref()?;
        extent.clone().behind_place(end, &self.table.clustering_order)
    }

    fn feed(&self, replica: Replica, answer: Answer, extent: Extent) -> Feed {
        let left = self.behind(&answer, &extent);
        Feed {
            replica,
            ready: answer.blocks.into(),
            left,
        }
    }

    /// Whether one replica counts for a level as the other does.
    fn can_replace(&self, spare: Replica, failed: Replica) -> bool {
        let datacenter = |replica: Replica| self.view.locality.datacenter(replica.node);
        datacenter(spare) == datacenter(failed)
    }

    /// Asks each feed that has nothing ready for its next stretch. If its replica fails, another one takes its place:
    /// the failed replica had what was returned so far, so the level is kept.
    async fn fill(&mut self) -> Result<(), CoordinatorError> {
        let mut deadline = self.round_end();
        let mut fan = Fan::new();
        let mut outstanding = Vec::new();
        for feed in &self.feeds {
            if let (true, Some(extent)) = (feed.ready.is_empty(), &feed.left) {
                self.send(&mut fan, feed.replica, self.command(extent, false));
                outstanding.push(feed.replica);
            }
        }
        let mut acks = Acks::new(self.requirement.clone(), Counts::default());
        while !outstanding.is_empty() {
            let Some((replica, response)) = fan.next(deadline).await else {
                self.reads.context.count(|m| m.timeouts += 1);
                return Err(self.read_timeout(&acks, true, &outstanding));
            };
            outstanding.retain(|other| *other != replica);
            self.note_answer(replica, &response);
            match self.answer(response) {
                Ok(Answer {
                    withheld: Some(bytes), ..
                }) => {
                    self.reserve_row(bytes).await?;
                    deadline = self.round_end();
                    let feed = self.feeds.iter().find(|feed| feed.replica == replica);
                    let extent = feed.and_then(|feed| feed.left.clone());
                    let extent = extent.expect("only feeds are asked, for what is left");
                    self.send(&mut fan, replica, self.command_in_full(&extent));
                    outstanding.push(replica);
                }
                Ok(answer) => {
                    acks.ack(replica.node, self.view.locality.datacenter(replica.node));
                    let at = self.feeds.iter().position(|feed| feed.replica == replica);
                    let at = at.expect("only feeds are asked");
                    let extent = self.feeds[at].left.take().expect("a feed is asked for what is left");
                    self.feeds[at] = self.feed(replica, answer, extent);
                }
                Err(error) => {
                    self.is_stale |= matches!(error, TargetError::Stale(_));
                    let stands_in = self.spare.iter().position(|spare| self.can_replace(*spare, replica));
                    let stands_in = stands_in.filter(|_| !self.is_stale);
                    let Some(spare) = stands_in.and_then(|at| self.spare.remove(at)) else {
                        return Err(self.read_failure(&acks, true, &[(replica, error)], &outstanding));
                    };
                    let feed = self.feeds.iter_mut().find(|feed| feed.replica == replica);
                    let feed = feed.expect("only feeds are asked");
                    feed.replica = spare;
                    let extent = feed.left.clone().expect("a feed is asked for what is left");
                    self.send(&mut fan, spare, self.command(&extent, false));
                    outstanding.push(spare);
                }
            }
        }
        Ok(())
    }

    /// Merges the next block of all feeds, and repairs those that lack some of it. None at the end.
    async fn reconcile(&mut self) -> Result<Option<PartitionBlock>, CoordinatorError> {
        self.lasting
            .get_or_insert_with(|| Rc::new(Lasting::since(&self.reads.flights, runtime::now())));
        while self
            .feeds
            .iter()
            .any(|feed| feed.ready.is_empty() && feed.left.is_some())
        {
            self.fill().await?;
        }
        let heads = self.feeds.iter().filter_map(|feed| feed.ready.front());
        let Some((token, key)) = heads.map(|b| (b.token, b.key())).min().map(|(t, k)| (t, k.to_vec())) else {
            self.feeds.clear();
            self.left = None;
            return Ok(None);
        };
        let answered = Answered::of(self.feeds.iter().map(|feed| feed.replica));
        self.reads
            .context
            .tell_answered(&self.view, "read of replicas that differ", self.level, &answered);
        let order = self.table.clustering_order.clone();
        let nearest = self
            .feeds
            .iter()
            .filter_map(|feed| feed.ready.front().filter(|b| b.token == token && b.key() == key))
            .filter_map(|b| b.covered.clone())
            .min_by(|a, b| in_reading_order(a.compare(&order, b), self.reversed));
        let mut parts: Vec<(Replica, Option<PartitionBlock>)> = Vec::with_capacity(self.feeds.len());
        for feed in &mut self.feeds {
            let has_it = feed.ready.front().is_some_and(|b| b.token == token && b.key() == key);
            let part = feed.ready.pop_front_if(|_| has_it).map(|mut block| {
                if let Some(bound) = &nearest
                    && block.covered.as_ref() != Some(bound)
                {
                    let far = split_block(&mut block, bound, &order, self.reversed);
                    feed.ready.push_front(far);
                }
                block
            });
            parts.push((feed.replica, part));
        }
        let blocks: Vec<&PartitionBlock> = parts.iter().filter_map(|(_, part)| part.as_ref()).collect();
        let merged = preempt::allowed(|| merge_blocks(&self.table.layout, &order, &blocks));
        let mut merged = merged.expect("the feed with the least key has a block");
        merged.covered = nearest;
        if self.table.options.read_repair != NO_REPAIR {
            self.repair(&merged, &parts).await?;
        }
        Ok(Some(merged))
    }
}

/// A token of an extent that is one piece.
fn token_in(extent: &Extent) -> Token {
    match extent {
        Extent::Partition { key, .. } => token_of(key),
        Extent::Tokens { to, .. } => *to,
    }
}

fn in_reading_order(order: Ordering, reversed: bool) -> Ordering {
    if reversed { order.reverse() } else { order }
}
