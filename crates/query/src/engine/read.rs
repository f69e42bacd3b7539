//! Reads: a point read from memory in one call, everything else page by page over the shards that own the data.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::service::ReplicaError;
use coordinator::{Confirmation, Extent, Operation, OwnRead, OwnTable, ReadDone, ReadOptions, Stretch, TokenOwners};
use mutation::{Bound, ClusteringSlice, PartitionBlock};
use plan::restrict::Partitions;
use plan::{BindContext, Execution, PageSink, RowSink, SelectPlan};
use runtime::{ShardId, Signal};
use schema::Table;
use stdx::{preempt, probe};
use topology::Consistency;
use types::Token;
use types::token::{KeyHash, token_of};

use super::page::{Consumer, Flow, PageRequest};
use super::paging_state::Position;
use coordinator::trace::{self, Trace};

use super::patience::{Patience, Waiting};
use super::point::{self, MissedRow, PointOutcome, PointScratch};
use super::{Engine, Request};
use crate::QueryError;

/// Bytes that one step of a read takes from each source.
pub(super) const BLOCK_BYTES: usize = memory::READ_BYTES;

/// What the client of an aggregate over several partitions should know, in Cassandra's words.
const AGGREGATES_SEVERAL: &str = "Aggregation query used on multiple partition keys (IN restriction)";

/// Rows of a result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page<S> {
    /// How many rows.
    pub rows: u32,
    /// The rows.
    pub sink: S,
    /// Present when there may be more: how to ask for it.
    pub paging_state: Option<Vec<u8>>,
    /// What the client should know.
    pub warnings: Vec<String>,
}

impl<S> Page<S> {
    /// Of a read of one row: the last page.
    pub(super) const fn of_point(rows: u32, sink: S) -> Self {
        Self {
            rows,
            sink,
            paging_state: None,
            warnings: Vec::new(),
        }
    }
}

/// The part of a read that one shard does.
#[derive(Debug)]
pub(super) enum Part {
    /// One partition; with a serial level, in its turn among the conditional statements on it.
    Partition(Token, Vec<u8>, Option<Consistency>),
    Tokens(Token, Token),
}

/// The error of a read of what this shard has of a table.
pub(super) fn failure(table: &Table, e: ReplicaError) -> QueryError {
    match e {
        ReplicaError::Overloaded(why) => QueryError::Overloaded(why),
        ReplicaError::UnknownTable(_) => QueryError::invalid(format!("unconfigured table {}", table.name)),
        ReplicaError::NotHere(_) => QueryError::Server("a token came to a shard that does not own it".to_owned()),
        e => QueryError::ReadFailure(format!("The read failed on the replica: {e}")),
    }
}

impl Engine {
    /// Tries to answer a point read at a level from this shard's memory, into `out`.
    #[inline]
    pub fn read_now(
        &self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        level: Consistency,
        out: &mut impl RowSink,
    ) -> Result<PointOutcome, QueryError> {
        if plan.table.options.rate_limits.reads.is_some() {
            return Ok(PointOutcome::NeedsDisk);
        }
        self.read_admitted(plan, ctx, level, out)
    }

    /// As [`Engine::read_now`], for a read whose table has no rate limit, or that the limit has admitted.
    #[inline]
    pub(super) fn read_admitted(
        &self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        level: Consistency,
        out: &mut impl RowSink,
    ) -> Result<PointOutcome, QueryError> {
        let Some(table) = self.coordinator.own.table(plan.table.id) else {
            return Ok(PointOutcome::NeedsDisk);
        };
        let mut scratch = self.point.borrow_mut();
        if table.satisfies(level) {
            let owner = |t| self.coordinator.own.owner(plan.table.id, t);
            return Ok(point::read_point(plan, ctx, table, owner, &mut scratch, out)?);
        }
        self.read_unconfirmed(plan, ctx, (table, level), &mut scratch, out)
    }

    /// Reads a row that this shard has in memory, for other replicas to confirm: see [`Engine::confirm`].
    fn read_unconfirmed(
        &self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        (table, level): (OwnTable, Consistency),
        scratch: &mut PointScratch,
        out: &mut impl RowSink,
    ) -> Result<PointOutcome, QueryError> {
        if !plan.point_names(ctx, &mut scratch.key, &mut scratch.clustering)? {
            return Ok(PointOutcome::NeedsDisk);
        }
        let hash = KeyHash::of(&scratch.key);
        let (id, token) = (plan.table.id, hash.token());
        probe::step(|| format!("engine: key of {} bytes, token {}", scratch.key.len(), token.0));
        let Some(row) = table.row((token, &scratch.key)) else {
            return Ok(PointOutcome::NeedsDisk);
        };
        if row.satisfies(&self.coordinator.own, (id, token), level) {
            probe::step(|| format!("coordinator: this shard suffices for a read at {level}"));
            return Ok(point::read_here(plan, ctx, (&row, hash), scratch, out));
        }
        if plan.timeout.is_some() {
            return Ok(PointOutcome::NeedsDisk);
        }
        let Some(read) = self.coordinator.reads.begin_point(id, token, level) else {
            return Ok(PointOutcome::NeedsDisk);
        };
        let needs_others = !read.is_enough();
        let (plan, of_row) = ((plan, needs_others), (&row, hash));
        let Some((rows, digest)) = point::read_plain(&self.coordinator.reads, plan, ctx, of_row, scratch, out) else {
            return Ok(PointOutcome::NeedsDisk);
        };
        if !needs_others {
            return Ok(PointOutcome::Rows(rows));
        }
        *self.unconfirmed.borrow_mut() = Some((read, digest));
        Ok(PointOutcome::Unconfirmed(rows))
    }

    /// The row of the [`PointOutcome::Missed`] that [`Engine::read_now`] has just returned, for [`Request::missed`].
    #[cold]
    pub fn take_missed(&self) -> Option<Box<MissedRow>> {
        self.point.borrow_mut().take_missed().map(Box::new)
    }

    /// The row that was just read as [`PointOutcome::Unconfirmed`] is not confirmed: it no longer holds the view that
    /// it was read in.
    pub fn forget_unconfirmed(&self) {
        drop(self.unconfirmed.take());
    }

    /// Makes other replicas confirm the row that was just read as [`PointOutcome::Unconfirmed`]. `done` is notified.
    pub fn confirm(&self, plan: &SelectPlan, now: u32, done: (Rc<dyn ReadDone>, u32)) {
        let Some((read, digest)) = self.unconfirmed.take() else {
            return;
        };
        let scratch = self.point.borrow();
        let names = (&scratch.key[..], &scratch.clustering[..], now);
        self.coordinator
            .reads
            .confirm_point(read, &plan.table, names, digest, done);
    }

    /// Reads a page by the general way, into a new sink.
    ///
    /// # Errors
    /// When the values do not fit the plan, or the replicas do not answer as the consistency level wants.
    pub async fn read<S: PageSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Execution,
        request: &Request,
    ) -> Result<Page<S>, QueryError> {
        let without_nulls = run.with(|ctx| select.without_nulls(ctx))?.map(Arc::new);
        let select = without_nulls.as_ref().unwrap_or(select);
        if let Some(of) = &select.fragments_of {
            return self.read_fragments(of, select, run, request).await;
        }
        if let Some(table) = self.node.system_tables.virtual_table(select.table.id) {
            return self.read_virtual(&*table.source, select, run, request).await;
        }
        let own = run.with(|ctx| select.own_timeout(ctx))?;
        let Some(timeout) = own else {
            return self.read_stored(select, run, request).await;
        };
        // Whatever it waits for.
        let read = runtime::timeout(timeout, self.read_stored(select, run, request)).await;
        let level = request.level;
        let block_for = || self.coordinator.context.block_for(select.table.id, level);
        read.unwrap_or_else(|_| Err(Patience::new((timeout, true), level, block_for()).0.timeout()))
    }

    /// Reads a page of a stored table, without the timeout that the statement sets for itself.
    async fn read_stored<S: PageSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Execution,
        request: &Request,
    ) -> Result<Page<S>, QueryError> {
        let level = request.level;
        if let Some(limit) = select.table.options.rate_limits.reads
            && !request.is_serial
            && run.with(|ctx| select.restrictions.partition.product(ctx))? == 1
            && let Partitions::Keys(keys) =
                run.with(|ctx| select.restrictions.partition.partitions(&select.table, ctx))?
            && let [(token, _)] = &keys[..]
        {
            self.admit(select.table.id, *token, Operation::Read, limit).await?;
        }
        let is_here = self.reads_here(select.table.id, level);
        let page = self.read_page(select, run, request, (is_here, true)).await;
        // What a damaged file keeps from this node another replica may have.
        let has_replicas = || self.coordinator.context.view().route(select.table.id).is_some();
        match page {
            Err(QueryError::ReadFailure(_)) if !request.is_serial && has_replicas() => {
                self.read_page(select, run, request, (false, false)).await
            }
            Err(QueryError::TooManyTombstones(reason)) => {
                self.note_too_many_tombstones(&reason);
                Err(QueryError::TooManyTombstones(reason))
            }
            page => page,
        }
    }

    /// A point read that is done without a consumer. None: it is none, or has to be read in the general way.
    async fn point_page<S: PageSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Execution,
        request: &Request,
        (is_here, is_first): (bool, bool),
    ) -> Result<Option<Page<S>>, QueryError> {
        // The flight of a point read has the node's timeout, and no trace.
        let is_point = select.is_point() && (is_here || select.timeout.is_none() && Trace::current().is_none());
        if !is_point || request.is_serial {
            return Ok(None);
        }
        let missed = request.missed.as_deref().filter(|_| is_first);
        if is_here && missed.is_none() {
            self.point_anywhere(select, run, request).await
        } else if is_here || is_first {
            // What memory has was tried already.
            self.point_from_disk(select, run, request.level, missed).await
        } else {
            Ok(None)
        }
    }

    async fn read_page<S: PageSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Execution,
        request: &Request,
        (is_here, is_first): (bool, bool),
    ) -> Result<Page<S>, QueryError> {
        let level = request.level;
        // While this is held, a change of where data is waits until the page is read.
        let view = self.coordinator.context.view();
        if is_here {
            trace::note(|| format!("Reading on this node alone, which suffices for {level}"));
        }
        if let Some(page) = self.point_page(select, run, request, (is_here, is_first)).await? {
            return Ok(page);
        }
        let (mut consumer, _waiting) = self.consumer(select, run, request)?;
        if system_tables::kind(&select.table.keyspace).is_none() {
            consumer.limit_tombstones(select, self.page_limits.get(), request.takes_empty_pages);
        }
        let partitions = named_partitions(select, run, &mut consumer).await?;
        // A request to aggregate elsewhere has room for one moment, and functions need the wall clock.
        if let Partitions::Tokens(from, to) = partitions
            && run.now_in_seconds.is_none()
            && let Some(spread) = self.spread(select, request, &consumer, (from, to))?
            && let Some(flow) = self.spread_aggregate(select, run, &mut consumer, level, spread).await?
        {
            return end_page(select, run, consumer, flow);
        }
        let run = &Arc::new(run.clone());
        let serial = request.is_serial.then_some(level);
        let aggregates_several = select.aggregates_rows()
            && matches!(&partitions, Partitions::Keys(keys) if keys.len() > 1)
            && !schema::is_virtual_keyspace(&select.table.keyspace);
        let mut flow = Flow::Continue;
        match partitions {
            // The values are checked as if there were partitions.
            Partitions::None => {
                run.with(|ctx| consumer.slices(select, ctx))?;
            }
            // Pages and aggregates read one partition after the other, each as of a moment of its own.
            Partitions::Keys(keys)
                if request.is_serial && keys.len() > 1 && !consumer.spans_pages() && !select.aggregates_rows() =>
            {
                return Err(QueryError::invalid(
                    "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time",
                ));
            }
            Partitions::Keys(keys) => {
                if keys.len() > 1 {
                    let slices = run.with(|ctx| consumer.slices(select, ctx))?.len();
                    check_product(keys.len(), slices)?;
                }
                let from = keys_read(&keys, &consumer);
                for (place, (token, key)) in keys.into_iter().enumerate().skip(from) {
                    if place > from {
                        consumer.pause().await?;
                    }
                    if !is_here && !request.is_serial {
                        flow = self
                            .replicated_partition(select, run, &mut consumer, &key, (level, request.waited))
                            .await?;
                        if matches!(flow, Flow::PageFull | Flow::Done) {
                            break;
                        }
                        continue;
                    }
                    let owner = self.coordinator.own.owner(select.table.id, token);
                    (consumer, flow) = self
                        .part_on(owner, select, run, consumer, Part::Partition(token, key, serial))
                        .await?;
                    if matches!(flow, Flow::PageFull | Flow::Done) {
                        break;
                    }
                }
            }
            Partitions::Tokens(from, to) if !is_here => {
                flow = self
                    .replicated_tokens(select, run, &mut consumer, (from, to), level)
                    .await?;
            }
            Partitions::Tokens(from, to) => {
                let begin = match consumer.position() {
                    Position::Start => from,
                    Position::BehindPartition { key } | Position::BehindRow { key, .. } => from.max(token_of(key)),
                };
                for (shard, first, last) in self.coordinator.own.pieces_here(select.table.id, from, to) {
                    if last < begin {
                        continue;
                    }
                    let part = Part::Tokens(first, last);
                    (consumer, flow) = self.part_on(shard, select, run, consumer, part).await?;
                    if matches!(flow, Flow::PageFull | Flow::Done) {
                        break;
                    }
                }
            }
        }
        drop(view);
        let warning = consumer.take_tombstone_warning();
        let of_size = consumer.size_warning();
        let mut page = end_page(select, run, consumer, flow)?;
        let warning = warning.map(|warning| self.warn_of_tombstones(&select.table, &warning));
        let of_aggregate = aggregates_several.then(|| AGGREGATES_SEVERAL.to_owned());
        page.warnings
            .extend(warning.into_iter().chain(of_aggregate).chain(of_size));
        Ok(page)
    }

    /// What makes the page that a client asks for, and what waits with it until the page is there.
    pub(super) fn consumer<S: PageSink>(
        &self,
        select: &SelectPlan,
        run: &Execution,
        request: &Request,
    ) -> Result<(Consumer<S>, Option<Waiting>), QueryError> {
        let page = PageRequest {
            rows: request.page_rows,
            state: request.paging_state.clone(),
            statement: request.statement.clone(),
        };
        let mut consumer = run.with(|ctx| Consumer::new(select, ctx, &page, S::default()))?;
        consumer.limit_sizes(self.page_limits.get());
        consumer.set_reservation(request.reservation.clone());
        let waiting = self.patience(select, run, request)?;
        let waiting = waiting.map(|(patience, waiting)| {
            consumer.set_patience(patience);
            waiting
        });
        Ok((consumer, waiting))
    }

    /// How long a statement may take that reads many partitions, or all of one; None when its page ends it soon.
    pub(super) fn patience(
        &self,
        select: &SelectPlan,
        run: &Execution,
        request: &Request,
    ) -> Result<Option<(Patience, Waiting)>, QueryError> {
        let own = run.with(|ctx| select.own_timeout(ctx))?;
        // A page that must have a row may have to pass many tombstones.
        let is_cut_short = request.page_rows.is_some() && request.takes_empty_pages;
        if own.is_none() && is_cut_short && !select.may_read_much() {
            return Ok(None);
        }
        let level = request.level;
        let limit = (own.unwrap_or(self.coordinator.context.timeouts().scan), own.is_some());
        let block_for = self.coordinator.context.block_for(select.table.id, level);
        Ok(Some(Patience::new(limit, level, block_for)))
    }

    /// Reads the row from this shard's sstables, into the row cache too, and answers with what memory has of it.
    /// `missed`: the row, where the memory of this shard was just asked for it in vain.
    pub(super) async fn point_from_disk<S: PageSink>(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        level: Consistency,
        missed: Option<&MissedRow>,
    ) -> Result<Option<Page<S>>, QueryError> {
        let named;
        let missed = match missed {
            Some(row) => row,
            None => {
                let Some((hash, key, clustering)) = run.with(|ctx| select.point_key(ctx))? else {
                    return Ok(None);
                };
                named = MissedRow { hash, key, clustering };
                &named
            }
        };
        let (name, table) = (missed.name(), self.coordinator.own.table(select.table.id));
        let Some(row) = table.and_then(|table| table.find(name.hash.token())) else {
            return Ok(None);
        };
        let loaded = row.load(&self.coordinator.own, &select.table, name).await;
        let loaded = loaded.map_err(|e| failure(&select.table, e))?;
        let mut sink = S::default();
        if let Some(loaded) = loaded {
            let mut scratch = self.point.borrow_mut();
            let answer = |ctx: &BindContext<'_>| {
                let (of_select, of_row) = ((select, level), (name, &loaded));
                point::read_loaded(&self.coordinator.own, of_select, ctx, of_row, &mut scratch, &mut sink)
            };
            if let Some(rows) = run.with_unpreempted(answer) {
                return Ok(Some(Page::of_point(rows, sink)));
            }
            sink = S::default();
        }
        // The row is in memory now, unless the files have changed since or the row cache has no memory for it.
        match run.with_unpreempted(|ctx| self.read_admitted(select, ctx, level, &mut sink))? {
            PointOutcome::Rows(rows) => Ok(Some(Page::of_point(rows, sink))),
            PointOutcome::Unconfirmed(rows) => {
                let confirming = Rc::new(Confirming::default());
                self.confirm(select, run.expiry_now(), (confirming.clone(), 0));
                match confirming.outcome().await {
                    Confirmation::Agreed => Ok(Some(Page::of_point(rows, sink))),
                    Confirmation::Open => Ok(None),
                    Confirmation::Failed(error) => Err(QueryError::of_replicas(error)),
                }
            }
            PointOutcome::NeedsDisk | PointOutcome::Missed | PointOutcome::OtherShard(_) => Ok(None),
        }
    }

    pub(super) async fn part_on<S: PageSink>(
        self: &Rc<Self>,
        shard: u32,
        select: &Arc<SelectPlan>,
        run: &Arc<Execution>,
        consumer: Consumer<S>,
        part: Part,
    ) -> Result<(Consumer<S>, Flow), QueryError> {
        let asked_by = self.coordinator.context.with_view(|view| view.version);
        if ShardId(shard) == self.coordinator.context.shard_id() {
            return Box::pin(self.placed_part(select, run, consumer, part, asked_by)).await;
        }
        let (select, run) = (select.clone(), run.clone());
        trace::submit(ShardId(shard), move || async move {
            Engine::local()
                .placed_part(&select, &run, consumer, part, asked_by)
                .await
        })
        .await
    }

    /// Does a part of a read that was sent to this shard because it had the tokens; forwards what has moved to other
    /// shards since.
    async fn placed_part<S: PageSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Arc<Execution>,
        mut consumer: Consumer<S>,
        part: Part,
        asked_by: u64,
    ) -> Result<(Consumer<S>, Flow), QueryError> {
        let tokens = match &part {
            // That is read from its replicas, wherever they are.
            Part::Partition(.., Some(_)) => return self.part(select, run, consumer, part).await,
            Part::Partition(token, ..) => (*token, *token),
            Part::Tokens(first, last) => (*first, *last),
        };
        let owners = self.coordinator.own.place_of(select.table.id, tokens, asked_by).await;
        let pieces = match owners.map_err(|e| failure(&select.table, e))? {
            TokenOwners::Here => return self.part(select, run, consumer, part).await,
            TokenOwners::Elsewhere(pieces) => pieces,
        };
        if let (Part::Partition(..), [(shard, ..)]) = (&part, &pieces[..]) {
            return Box::pin(self.part_on(*shard, select, run, consumer, part)).await;
        }
        let mut flow = Flow::Continue;
        for (shard, first, last) in pieces {
            let piece = Part::Tokens(first, last);
            (consumer, flow) = Box::pin(self.part_on(shard, select, run, consumer, piece)).await?;
            if matches!(flow, Flow::PageFull | Flow::Done) {
                break;
            }
        }
        Ok((consumer, flow))
    }

    /// Does this shard's part of a read.
    async fn part<S: RowSink>(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        mut consumer: Consumer<S>,
        part: Part,
    ) -> Result<(Consumer<S>, Flow), QueryError> {
        let flow = match part {
            Part::Partition(token, key, serial) => match serial {
                None => self.partition(select, run, &mut consumer, token, &key).await?,
                Some(level) => self.serial_partition(select, run, &mut consumer, &key, level).await?,
            },
            Part::Tokens(from, to) => self.tokens(select, run, &mut consumer, from, to).await?,
        };
        Ok((consumer, flow))
    }

    pub(super) async fn partition(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        token: Token,
        key: &[u8],
    ) -> Result<Flow, QueryError> {
        if let Some(of) = &select.fragments_of {
            return self
                .fragments_of_partition(of, select, run, consumer, (token, key))
                .await;
        }
        let failure = |e| failure(&select.table, e);
        let partition = self.coordinator.own.partition(&select.table, key).map_err(failure)?;
        let has_many_slices = run.with(|ctx| consumer.slices(select, ctx))?.len() > 1;
        if has_many_slices && !partition.may_be_there().map_err(failure)? {
            consumer.leave_partition();
            return Ok(Flow::Continue);
        }
        let slices = (slices_left(select, run, consumer, key)?, select.reversed);
        let (stretch, options) = (stretch_of(consumer), read_options(select, consumer));
        let own = &self.coordinator.own;
        let lookups = run.with(|ctx| select.restrictions.lookups(ctx))?;
        let listed = if lookups.is_empty() || select.reversed {
            None
        } else {
            partition.read_listed(own, &select.table, slices.0.clone(), &lookups, (stretch, &options))
        };
        let read = match listed {
            Some(read) => read,
            None => partition
                .read(own, &select.table, slices, stretch, options)
                .map_err(failure)?,
        };
        let mut source = KeptRead {
            read,
            table: &select.table,
            unused: None,
        };
        consumer.take_met();
        let consumed = consume_partition(select, run, consumer, &mut source).await;
        partition.note_met(consumer.take_met());
        if let (Ok(Flow::PageFull), Some(last)) = (&consumed, source.unused) {
            source.read.keep(last);
        }
        consumed
    }

    async fn tokens(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        from: Token,
        to: Token,
    ) -> Result<Flow, QueryError> {
        if let Some(of) = &select.fragments_of {
            return self.fragments_of_tokens(of, select, run, consumer, (from, to)).await;
        }
        let lookups = run.with(|ctx| select.restrictions.lookups(ctx))?;
        if !lookups.is_empty() {
            return self.listed(select, run, consumer, (from, to), lookups).await;
        }
        let (start, begun) = match consumer.position().clone() {
            Position::Start => ((from, Vec::new()), None),
            Position::BehindPartition { key } => (start_behind(key, from), None),
            Position::BehindRow { key, .. } => (start_behind(key.clone(), from), Some(key)),
        };
        // Of the tablets that are here now: some may leave while the rest of a partition is read.
        let extent = ((Token(from.0.saturating_sub(1)), to), start);
        let (stretch, options) = (stretch_of(consumer), read_options(select, consumer));
        let read = self
            .coordinator
            .own
            .read_tokens(&select.table, extent, stretch, options);
        let mut source = KeptRead {
            read: read.map_err(|e| failure(&select.table, e))?,
            table: &select.table,
            unused: None,
        };
        if let Some(key) = begun {
            let token = token_of(&key);
            // The rest of a partition is read with the tokens that it is among, not with those after it.
            if (from..=to).contains(&token) && self.coordinator.own.has_token(&select.table, token) {
                let flow = self.partition(select, run, consumer, token, &key).await?;
                if flow != Flow::Continue && flow != Flow::SkipPartition {
                    return Ok(flow);
                }
            }
            source.read.set_stretch(stretch_of(consumer));
        }
        run.with(|ctx| consumer.begin_scan(select, ctx))?;
        consume_scan(select, run, consumer, &mut source).await
    }
}

/// How much a consumer wants at once.
pub(super) fn stretch_of(consumer: &Consumer<impl RowSink>) -> Stretch {
    Stretch {
        rows: consumer.rows_wanted(),
        bytes: BLOCK_BYTES,
    }
}

pub(super) fn read_options(select: &SelectPlan, consumer: &Consumer<impl RowSink>) -> ReadOptions {
    ReadOptions {
        bypasses_cache: select.bypasses_cache,
        row_memory: consumer.row_memory(),
    }
}

/// Where a read of the tokens from `from` on continues after a partition, whose token may be an earlier one.
pub(super) fn start_behind(key: Vec<u8>, from: Token) -> (Token, Vec<u8>) {
    let token = token_of(&key);
    if token >= from {
        (token, successor(key))
    } else {
        (from, Vec::new())
    }
}

/// A task that waits until other replicas have confirmed what it has read.
#[derive(Default)]
struct Confirming {
    outcome: RefCell<Option<Confirmation>>,
    told: Signal,
}

impl ReadDone for Confirming {
    fn read_done(self: Rc<Self>, _: u32, confirmation: Confirmation) {
        *self.outcome.borrow_mut() = Some(confirmation);
        self.told.ring();
    }
}

impl Confirming {
    async fn outcome(&self) -> Confirmation {
        self.told.wait_until(|| self.outcome.borrow().is_some()).await;
        self.outcome.take().expect("it was told")
    }
}

/// Where a read's blocks come from.
pub(super) trait BlockSource {
    /// The next block; None at the end.
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError>;
    /// Leaves the rest of the current partition unread.
    async fn skip_partition(&mut self) -> Result<(), QueryError>;
    /// Takes back the block in which the page ended.
    fn page_ended(&mut self, _block: PartitionBlock) {}
}

/// A read of this shard, whose rest the next page may want.
pub(super) struct KeptRead<'t> {
    pub(super) read: OwnRead,
    pub(super) table: &'t Table,
    /// The block in which the page ended.
    pub(super) unused: Option<PartitionBlock>,
}

impl BlockSource for KeptRead<'_> {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        self.read.next_block().await.map_err(|e| failure(self.table, e))
    }

    async fn skip_partition(&mut self) -> Result<(), QueryError> {
        self.read.skip_partition().await.map_err(|e| failure(self.table, e))
    }

    fn page_ended(&mut self, block: PartitionBlock) {
        self.unused = Some(block);
    }
}

/// Gives the blocks of one partition to the consumer, until it has enough.
pub(super) async fn consume_partition(
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<impl RowSink>,
    source: &mut impl BlockSource,
) -> Result<Flow, QueryError> {
    let mut last: Option<PartitionBlock> = None;
    while let Some(block) = source.next_block().await? {
        let flow = run.with(|ctx| consumer.block(select, ctx, &block))?;
        match flow {
            Flow::Continue => {}
            Flow::SkipPartition => {
                last = Some(block);
                break;
            }
            Flow::PageFull => {
                source.page_ended(block);
                return Ok(flow);
            }
            Flow::Done => return Ok(flow),
        }
        last = Some(block);
        consumer.pause().await?;
    }
    match last {
        Some(block) => run.with(|ctx| consumer.end_partition(select, ctx, &block)),
        None => {
            consumer.leave_partition();
            Ok(Flow::Continue)
        }
    }
}

/// Gives the blocks of many partitions to the consumer, until it has enough.
pub(super) async fn consume_scan(
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<impl RowSink>,
    source: &mut impl BlockSource,
) -> Result<Flow, QueryError> {
    while let Some(block) = source.next_block().await? {
        let mut flow = run.with(|ctx| consumer.block(select, ctx, &block))?;
        let ends = block.covered.is_none();
        if flow == Flow::SkipPartition {
            source.skip_partition().await?;
        }
        if (flow == Flow::Continue && ends) || flow == Flow::SkipPartition {
            flow = run.with(|ctx| consumer.end_partition(select, ctx, &block))?;
        }
        if matches!(flow, Flow::PageFull | Flow::Done) {
            return Ok(flow);
        }
        consumer.pause().await?;
    }
    Ok(Flow::Continue)
}

/// The page that a consumer has made when its read ends like this.
pub(super) fn end_page<S: PageSink>(
    select: &SelectPlan,
    run: &Execution,
    mut consumer: Consumer<S>,
    flow: Flow,
) -> Result<Page<S>, QueryError> {
    let is_full = flow == Flow::PageFull;
    let paging_state = is_full.then(|| run.with(|ctx| consumer.paging_state(select, ctx)));
    if paging_state.is_none() {
        run.with(|ctx| consumer.finish(select, ctx))?;
    }
    Ok(Page {
        rows: consumer.rows,
        sink: preempt::allowed(|| consumer.into_sink()),
        paging_state,
        warnings: Vec::new(),
    })
}

/// The most ranges of rows that a read may name by IN in all its partitions together.
const PRODUCT_MAX: u64 = 10_000_000;

/// Refuses a read whose IN relations name so many partitions, and so many ranges of rows in each, that a statement of
/// some kilobytes would read for minutes.
fn check_product(partitions: usize, slices: usize) -> Result<(), QueryError> {
    let product = (partitions as u64).saturating_mul(slices as u64);
    if product <= PRODUCT_MAX {
        Ok(())
    } else {
        Err(QueryError::invalid(format!(
            "The IN relations name {partitions} partitions and {slices} ranges of rows in each, {product} in all, and at most {PRODUCT_MAX} are allowed"
        )))
    }
}

/// How many of these partitions were read before the page.
pub(super) fn keys_read<S: RowSink>(keys: &[(Token, Vec<u8>)], consumer: &Consumer<S>) -> usize {
    let place = |key: &Vec<u8>| keys.iter().position(|(_, k)| k == key);
    match consumer.position() {
        Position::Start => 0,
        Position::BehindPartition { key } => place(key).map_or(keys.len(), |i| i + 1),
        Position::BehindRow { key, .. } => place(key).unwrap_or(keys.len()),
    }
}

/// The least key above `key`.
pub(super) fn successor(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// What a consumer has not read yet of a partition.
pub(super) fn partition_left(
    select: &SelectPlan,
    run: &Execution,
    consumer: &Consumer<impl RowSink>,
    key: &[u8],
) -> Result<Extent, QueryError> {
    Ok(Extent::Partition {
        key: key.to_vec(),
        slices: slices_left(select, run, consumer, key)?,
        reversed: select.reversed,
    })
}

/// The partitions that the statement names, once there is memory for them and for the slices of rows.
async fn named_partitions(
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<impl RowSink>,
) -> Result<Partitions, QueryError> {
    let restrictions = &select.restrictions;
    let partition = &restrictions.partition;
    let bytes = run.with(|ctx| partition.combination_bytes(ctx))?;
    consumer.hold_named(bytes).await?;
    let partitions = run.with(|ctx| partition.partitions(&select.table, ctx))?;
    let bytes = run.with(|ctx| restrictions.row_combination_bytes(&select.table, ctx))?;
    consumer.hold_named(bytes).await?;
    Ok(partitions)
}

pub(super) fn slices_left(
    select: &SelectPlan,
    run: &Execution,
    consumer: &Consumer<impl RowSink>,
    key: &[u8],
) -> Result<Vec<ClusteringSlice>, QueryError> {
    let mut slices = run.with(|ctx| {
        let slices = consumer.slices(select, ctx)?;
        Ok::<_, QueryError>(slices.iter().inspect(|_| preempt::point()).cloned().collect::<Vec<_>>())
    })?;
    if let Position::BehindRow { key: k, clustering } = consumer.position()
        && k == key
    {
        cut_slices(&mut slices, select, clustering);
    }
    Ok(slices)
}

/// Leaves only what comes after a row in reading order.
fn cut_slices(slices: &mut Vec<ClusteringSlice>, select: &SelectPlan, clustering: &[u8]) {
    let order = &select.table.clustering_order;
    if select.reversed {
        let end = Bound::before(clustering);
        slices.retain(|s| s.start.compare(order, &end).is_lt());
        if let Some(last) = slices.last_mut()
            && last.end.compare(order, &end).is_gt()
        {
            last.end = end;
        }
    } else {
        let start = Bound::after(clustering);
        slices.retain(|s| s.end.compare(order, &start).is_gt());
        if let Some(first) = slices.first_mut()
            && first.start.compare(order, &start).is_lt()
        {
            first.start = start;
        }
    }
}
