//! Aggregates beside the data: the shards that have the rows aggregate them, all at once, and only what they find
//! travels.
//!
//! An aggregate over a table or a range of tokens is cut into spans of tokens ([`Coordinator::spread`]). Each shard
//! that reads some is asked for its spans in steps: an answer has the finished spans' states, and how far the next one
//! is. The states are joined in token order, so that what depends on the order of rows is what one scan would find.
//! Every step has `range_request_timeout` to be answered in, however many there are: a large table takes its time, and
//! an error comes that long after the last progress. The statement as a whole has `scan_request_timeout`, or what it
//! says itself; then, or when its client is gone, no shard is asked again.
//!
//! A replica that fails, or does not answer in its part of that time, is skipped: its spans continue at the next
//! replica from where they were, and last of all here, by an ordinary read, whose error the client receives.
//!
//! With GROUP BY a span results in groups (`groups.rs`), which are not joined with those of other spans. When those of
//! the first spans fill the page, no shard is asked for more.
//!
//! What a span's shard reads, it reads at the request's level: it asks other replicas for digests, and reconciles what
//! differs. So the result has seen what any read at that level has seen.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{ClusterView, Coordinator, Spread};
use plan::{Execution, RowSink, SelectPlan};
use runtime::{Instant, Notify, Semaphore, ShardId};
use topology::{Consistency, Replica};
use types::{Comparator, Token};
use uuid::Uuid;

use super::aggregate_message::{Part, PartRequest, Span, decode_answer};
use super::groups::{Found, GROUP_BYTES_MAX};
use super::page::{Consumer, Flow, group_order};
use super::paging_state::Position;
use super::{Engine, Request};
use crate::{QueryError, trace};

/// Shards that are at work for one request at a time.
const SHARDS_MAX: u32 = 64;
/// The least time that a replica is given to answer.
const ATTEMPT_MIN: Duration = Duration::from_millis(1);

/// One aggregate under way.
struct Work {
    select: Arc<SelectPlan>,
    run: Execution,
    level: Consistency,
    view: Arc<ClusterView>,
    block_for: u16,
    /// What other nodes are sent, and the version of the schema that it is for; None when this node has another schema
    /// by now, or nodes of an earlier release would not know a function: then this shard does what is theirs.
    for_peers: Option<(Vec<u8>, Uuid)>,
    /// By span; what was found of it so far.
    found: RefCell<Vec<Option<Found>>>,
    /// By span: whether it is done.
    done: RefCell<Vec<bool>>,
    /// About how much memory the groups take that were found.
    group_bytes: Cell<usize>,
    /// How the values of GROUP BY compare.
    order: Vec<Option<Comparator>>,
    /// More groups than the page takes are in vain.
    groups_wanted: u64,
    error: RefCell<Option<QueryError>>,
    /// Its result is not awaited any more.
    is_over: Cell<bool>,
    changed: Notify,
    permits: Semaphore,
}

/// A span, and the replicas that have not been asked for it.
struct Task {
    index: usize,
    span: Span,
    readers: VecDeque<Replica>,
}

/// Tells the tasks of a request that it ended, however it did.
struct Ending<'w>(&'w Work);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.set(true);
    }
}

impl Work {
    fn fail(&self, error: QueryError) {
        self.error.borrow_mut().get_or_insert(error);
        self.is_over.set(true);
        self.changed.notify_all();
    }

    /// Joins what was found to what is known of a span; it comes after that.
    fn put(&self, index: usize, found: Found) -> Result<(), QueryError> {
        self.group_bytes.set(self.group_bytes.get() + found.held_bytes());
        match &mut self.found.borrow_mut()[index] {
            Some(known) => known.merge(found, &self.order)?,
            none => *none = Some(found),
        }
        Ok(())
    }

    fn note_done(&self, index: usize) {
        self.done.borrow_mut()[index] = true;
    }

    fn groups_of(&self, index: usize) -> u64 {
        self.found.borrow()[index]
            .as_ref()
            .map_or(0, |found| found.groups() as u64)
    }

    /// Whether the groups take more memory than they may.
    fn is_too_much(&self) -> bool {
        self.group_bytes.get() > GROUP_BYTES_MAX
    }

    /// Whether no more is wanted: all spans are done, or those in front have more groups than the page takes.
    fn is_enough(&self) -> bool {
        let done = self.done.borrow();
        let in_front = done.iter().take_while(|is_done| **is_done).count();
        let groups: u64 = (0..in_front).map(|index| self.groups_of(index)).sum();
        in_front == done.len() || groups > self.groups_wanted
    }

    /// Takes over an answer; what is left is in `tasks`. An answer after the end of the work is dropped: what was found
    /// is already in the page.
    fn take(&self, part: Part, tasks: &mut VecDeque<Task>) -> Result<(), QueryError> {
        if self.is_over.get() {
            return Ok(());
        }
        for found in part.done {
            let Some(task) = tasks.pop_front() else { break };
            self.put(task.index, found)?;
            self.note_done(task.index);
        }
        if let (Some((found, place)), Some(task)) = (part.begun, tasks.front_mut()) {
            let index = task.index;
            self.put(index, found)?;
            task.span.place = Some(place);
            if self.groups_of(index) > self.groups_wanted {
                tasks.pop_front();
                self.note_done(index);
            }
        }
        if self.is_enough() || self.is_too_much() {
            self.is_over.set(true);
            self.changed.notify_all();
        }
        Ok(())
    }
}

impl Engine {
    /// How a read of tokens is spread over the cluster; None when one scan from here is right.
    pub(super) fn spread(
        &self,
        select: &SelectPlan,
        request: &Request,
        consumer: &Consumer<impl RowSink>,
        (from, to): (Token, Token),
    ) -> Result<Option<Spread>, QueryError> {
        let has_one_shard = self.shards == 1 && self.coordinator.is_alone();
        let begins = *consumer.position() == Position::Start;
        let has_groups = || select.has_groups_apart() && self.expects_few_groups(select.table.id, consumer);
        if has_one_shard || request.is_serial || !begins || from > to || !(select.is_mergeable() || has_groups()) {
            return Ok(None);
        }
        let after = Token(from.0.saturating_sub(1));
        let view = self.coordinator.view();
        let spread = self
            .coordinator
            .spread(&view, select.table.id, (after, to), request.level);
        spread.map_err(QueryError::of_replicas)
    }

    /// Aggregates what was spread, into a page; None when it has more groups than there is memory for, and nothing has
    /// come into the page.
    pub(super) async fn spread_aggregate<S: RowSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Execution,
        consumer: &mut Consumer<S>,
        level: Consistency,
        spread: Spread,
    ) -> Result<Option<Flow>, QueryError> {
        let work = Rc::new(Work {
            select: select.clone(),
            run: run.clone(),
            level,
            view: self.coordinator.view(),
            for_peers: self.encode_for_peers(select),
            block_for: spread.block_for,
            found: RefCell::new(vec![None; spread.shares.len()]),
            done: RefCell::new(vec![false; spread.shares.len()]),
            group_bytes: Cell::new(0),
            order: group_order(select),
            groups_wanted: consumer.groups_wanted(),
            error: RefCell::default(),
            is_over: Cell::new(spread.shares.is_empty()),
            changed: Notify::new(),
            permits: Semaphore::new(SHARDS_MAX as usize),
        });
        let _ending = Ending(&work);
        let tasks = spread.shares.into_iter().enumerate().map(|(index, share)| Task {
            index,
            span: Span {
                after: share.after,
                to: share.to,
                place: None,
            },
            readers: share.readers.into_iter().collect(),
        });
        self.hand_out_spans(&work, tasks.collect(), self.step_deadline());
        while !work.is_over.get() {
            consumer.within(work.changed.notified()).await?;
        }
        if let Some(error) = work.error.take() {
            return Err(error);
        }
        if work.is_too_much() {
            return Ok(None);
        }
        if !select.group_by.is_empty() {
            for group in work.found.take().into_iter().flatten().flat_map(Found::into_groups) {
                let flow = run.with(|ctx| consumer.take_part(select, ctx, group))?;
                if flow != Flow::Continue {
                    return Ok(Some(flow));
                }
            }
            return Ok(Some(Flow::Continue));
        }
        let mut whole = Found::All(select.selection.new_group());
        for found in work.found.take().into_iter().flatten() {
            whole.merge(found, &[])?;
        }
        if let Found::All(state) = whole {
            consumer.give_group(state);
        }
        Ok(Some(Flow::Continue))
    }

    /// The plan for other nodes, while its table is what the schema says.
    fn encode_for_peers(&self, select: &SelectPlan) -> Option<(Vec<u8>, Uuid)> {
        let schema = self.schema();
        let is_current = schema
            .table_by_id(select.table.id)
            .is_some_and(|table| *table == select.table);
        let encoded = is_current.then(|| select.encode_part()).flatten()?;
        Some((encoded, schema.version))
    }

    fn step_deadline(&self) -> Instant {
        runtime::now() + self.coordinator.timeouts().range
    }

    /// Gives each task to the next of its readers; to this shard when there is none left.
    fn hand_out_spans(self: &Rc<Self>, work: &Rc<Work>, tasks: Vec<Task>, deadline: Instant) {
        let mut by_reader: BTreeMap<Option<Replica>, VecDeque<Task>> = BTreeMap::new();
        for mut task in tasks {
            let reader = task.readers.pop_front();
            by_reader.entry(reader).or_default().push_back(task);
        }
        for (reader, tasks) in by_reader {
            trace::note(|| {
                let reader = reader.map_or_else(
                    || "this shard".to_owned(),
                    |reader| Coordinator::name(&work.view, reader),
                );
                format!("Aggregating {} ranges of tokens on {reader}", tasks.len())
            });
            let (engine, work) = (self.clone(), work.clone());
            let worker: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
                let permit = work.permits.acquire(1).await;
                engine.work_off(&work, reader, tasks, deadline).await;
                drop(permit);
            });
            drop(runtime::spawn(trace::carried(worker)));
        }
    }

    /// Has tasks done by one reader, step by step, and hands out what it does not do.
    async fn work_off(
        self: &Rc<Self>,
        work: &Rc<Work>,
        reader: Option<Replica>,
        mut tasks: VecDeque<Task>,
        mut deadline: Instant,
    ) {
        while let Some(task) = tasks.front() {
            if work.is_over.get() {
                return;
            }
            let others = task.readers.len() + usize::from(reader.is_some());
            let left = deadline.saturating_duration_since(runtime::now());
            let timeout = left / u32::try_from(others + 1).unwrap_or(u32::MAX);
            let spans = tasks.iter().map(|task| task.span.clone()).collect();
            let error = match self.ask_part(work, reader, spans, timeout.max(ATTEMPT_MIN)).await {
                Ok(part) if part.done.is_empty() && part.begun.is_none() => {
                    QueryError::Server("a shard aggregated nothing of what it was asked for".to_owned())
                }
                Ok(part) => {
                    if let Err(error) = work.take(part, &mut tasks) {
                        return work.fail(error);
                    }
                    deadline = self.step_deadline();
                    continue;
                }
                Err(error) => error,
            };
            // The statement itself fails wherever it is executed.
            let is_final = matches!(
                error,
                QueryError::Function(_) | QueryError::UserFunction(_) | QueryError::Invalid(_)
            );
            match reader {
                Some(replica) if !is_final => {
                    log::debug!(
                        "node {:?} shard {} does not aggregate: {error}",
                        replica.node,
                        replica.shard
                    );
                    return self.hand_out_spans(work, tasks.into_iter().collect(), deadline);
                }
                _ => return work.fail(error),
            }
        }
    }

    async fn ask_part(
        self: &Rc<Self>,
        work: &Work,
        reader: Option<Replica>,
        spans: Vec<Span>,
        timeout: Duration,
    ) -> Result<Part, QueryError> {
        let select = &*work.select;
        let me = Replica {
            node: work.view.me,
            shard: u16::try_from(self.shard.id().0).unwrap_or(u16::MAX),
        };
        let replica = reader.unwrap_or(me);
        let silent = || {
            let error = self
                .coordinator
                .spread_timeout(&work.view, work.level, work.block_for, &[replica]);
            QueryError::of_replicas(error)
        };
        if replica == me {
            let part = self.aggregate_part(select, &work.run, work.level, &spans, timeout);
            return runtime::timeout(timeout, part).await.map_err(|_| silent())?;
        }
        if replica.node == me.node && u32::from(replica.shard) >= self.shards {
            return Err(QueryError::Server(
                "the node has fewer shards than the tablet's map says".to_owned(),
            ));
        }
        if replica.node == me.node {
            let (select, run, level) = (work.select.clone(), work.run.clone(), work.level);
            let part = trace::submit(ShardId(u32::from(replica.shard)), move || async move {
                let engine = Self::local();
                engine.aggregate_part(&select, &run, level, &spans, timeout).await
            });
            return runtime::timeout(timeout, part).await.map_err(|_| silent())?;
        }
        let Some((plan, schema)) = &work.for_peers else {
            return Err(QueryError::Server("the plan is not for other nodes".to_owned()));
        };
        let count = spans.len();
        let request = PartRequest {
            schema: *schema,
            plan: plan.clone(),
            run: work.run.clone(),
            level: work.level,
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            spans,
        };
        let answer = self
            .coordinator
            .aggregate_there(&work.view, replica, request.encode(), runtime::now() + timeout)
            .await;
        let failed = |reason: &str| {
            let error = self
                .coordinator
                .spread_failure(&work.view, work.level, work.block_for, replica, reason);
            QueryError::of_replicas(error)
        };
        let body = answer.map_err(|error| error.reason().map_or_else(silent, failed))?;
        decode_answer(&body, select, count).map_err(|_| failed("a malformed part of an aggregate"))?
    }
}
