//! The side that asks: which shard works on which spans, and what came of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::{Instant, Notify, Semaphore, ShardId};
use topology::{Consistency, Replica};

use super::message::{decode_answer, encode_request};
use super::{NearWork, Span, StepFound, Work, step};
use crate::fence::Stamp;
use crate::{ClusterView, Coordinator, Spread, Verb, trace};

/// Shards that are at work for one request at a time.
const SHARDS_MAX: u32 = 64;
/// The least time that a replica is given to answer.
const ATTEMPT_MIN: Duration = Duration::from_millis(1);

/// How many results a request takes.
#[derive(Clone, Copy, Debug)]
pub struct ResultLimits {
    /// More results than this are in vain.
    pub results: u64,
    /// More memory than this is not there for them.
    pub bytes_max: usize,
}

/// What came of work near the data.
#[derive(Debug)]
pub enum Near<F> {
    /// What was found, by span. The last spans may be missing where those before them have enough.
    Found(Vec<F>),
    /// More than there is memory for; it is dropped.
    TooMuch,
}

/// Work under way.
struct Gathering<W: Work> {
    work: W,
    level: Consistency,
    view: Arc<ClusterView>,
    block_for: u16,
    /// See [`Work::encode`].
    for_peers: Option<Vec<u8>>,
    /// By span; what was found of it so far.
    found: RefCell<Vec<Option<W::Output>>>,
    /// By span: whether it is done.
    done: RefCell<Vec<bool>>,
    /// About how much memory it takes what was found.
    bytes: Cell<usize>,
    limits: ResultLimits,
    error: RefCell<Option<W::Error>>,
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

/// Notifies the tasks of a request that it ended, however it did.
struct Ending<'g, W: Work>(&'g Gathering<W>);

impl<W: Work> Drop for Ending<'_, W> {
    fn drop(&mut self) {
        self.0.is_over.set(true);
    }
}

impl<W: Work> Gathering<W> {
    fn fail(&self, error: W::Error) {
        self.error.borrow_mut().get_or_insert(error);
        self.is_over.set(true);
        self.changed.notify_all();
    }

    /// Joins what was found to what is known of a span; it comes after that.
    fn put(&self, index: usize, found: W::Output) -> Result<(), W::Error> {
        self.bytes.set(self.bytes.get() + self.work.amount(&found).bytes);
        match &mut self.found.borrow_mut()[index] {
            Some(known) => self.work.join(known, found)?,
            none => *none = Some(found),
        }
        Ok(())
    }

    fn note_done(&self, index: usize) {
        self.done.borrow_mut()[index] = true;
    }

    fn results_of(&self, index: usize) -> u64 {
        let found = self.found.borrow();
        let amount = found[index].as_ref().map(|found| self.work.amount(found));
        amount.unwrap_or_default().results
    }

    /// Whether what was found takes more memory than it may.
    fn is_too_much(&self) -> bool {
        self.bytes.get() > self.limits.bytes_max
    }

    /// Whether all spans are done, or those in front have more results than the request takes.
    fn is_enough(&self) -> bool {
        let done = self.done.borrow();
        let in_front = done.iter().take_while(|is_done| **is_done).count();
        let results: u64 = (0..in_front).map(|index| self.results_of(index)).sum();
        in_front == done.len() || results > self.limits.results
    }

    /// Takes over an answer; what is left is in `tasks`. An answer after the end of the work is dropped: what was found
    /// is already given out.
    fn take(&self, step: StepFound<W::Output>, tasks: &mut VecDeque<Task>) -> Result<(), W::Error> {
        if self.is_over.get() {
            return Ok(());
        }
        for found in step.done {
            let Some(task) = tasks.pop_front() else { break };
            self.put(task.index, found)?;
            self.note_done(task.index);
        }
        if let (Some((found, place)), Some(task)) = (step.begun, tasks.front_mut()) {
            let index = task.index;
            self.put(index, found)?;
            task.span.place = Some(place);
            if self.results_of(index) > self.limits.results {
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

impl NearWork {
    /// Has work done by the shards that have the tokens, at a level, and returns what they find.
    ///
    /// # Errors
    /// Of the work itself; of the last reader of some tokens, when no other could do it.
    pub async fn run<W: Work>(
        self: &Rc<Self>,
        work: W,
        spread: Spread,
        level: Consistency,
        limits: ResultLimits,
    ) -> Result<Near<W::Output>, W::Error> {
        let gathering = Rc::new(Gathering {
            for_peers: work.encode(),
            work,
            level,
            view: self.context.view(),
            block_for: spread.block_for,
            found: RefCell::new(spread.shares.iter().map(|_| None).collect()),
            done: RefCell::new(vec![false; spread.shares.len()]),
            bytes: Cell::new(0),
            limits,
            error: RefCell::default(),
            is_over: Cell::new(spread.shares.is_empty()),
            changed: Notify::new(),
            permits: Semaphore::new(SHARDS_MAX as usize),
        });
        let _ending = Ending(&gathering);
        let tasks = spread.shares.into_iter().enumerate().map(|(index, share)| Task {
            index,
            span: Span {
                after: share.after,
                to: share.to,
                place: None,
            },
            readers: share.readers.into_iter().collect(),
        });
        self.hand_out_spans(&gathering, tasks.collect(), self.step_deadline());
        while !gathering.is_over.get() {
            gathering.changed.notified().await;
        }
        if let Some(error) = gathering.error.take() {
            return Err(error);
        }
        if gathering.is_too_much() {
            return Ok(Near::TooMuch);
        }
        Ok(Near::Found(gathering.found.take().into_iter().flatten().collect()))
    }

    fn step_deadline(&self) -> Instant {
        runtime::now() + self.context.timeouts().range
    }

    /// Gives each task to the next of its readers; to this shard when there is none left.
    fn hand_out_spans<W: Work>(self: &Rc<Self>, gathering: &Rc<Gathering<W>>, tasks: Vec<Task>, deadline: Instant) {
        let mut by_reader: BTreeMap<Option<Replica>, VecDeque<Task>> = BTreeMap::new();
        for mut task in tasks {
            let reader = task.readers.pop_front();
            by_reader.entry(reader).or_default().push_back(task);
        }
        for (reader, tasks) in by_reader {
            trace::note(|| {
                let reader = reader.map_or_else(|| "this shard".to_owned(), |reader| gathering.view.name(reader));
                format!("{} {} ranges of tokens on {reader}", W::ACTIVITY, tasks.len())
            });
            let (near, gathering) = (self.clone(), gathering.clone());
            let worker: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
                let permit = gathering.permits.acquire(1).await;
                near.work_off(&gathering, reader, tasks, deadline).await;
                drop(permit);
            });
            drop(runtime::spawn(trace::carried(worker)));
        }
    }

    /// Has tasks done by one reader, step by step, and hands out what it does not do.
    async fn work_off<W: Work>(
        self: &Rc<Self>,
        gathering: &Rc<Gathering<W>>,
        reader: Option<Replica>,
        mut tasks: VecDeque<Task>,
        mut deadline: Instant,
    ) {
        while let Some(task) = tasks.front() {
            if gathering.is_over.get() {
                return;
            }
            let others = task.readers.len() + usize::from(reader.is_some());
            let left = deadline.saturating_duration_since(runtime::now());
            let timeout = left / u32::try_from(others + 1).unwrap_or(u32::MAX);
            let spans = tasks.iter().map(|task| task.span.clone()).collect();
            let asked = self.ask_step(gathering, reader, spans, timeout.max(ATTEMPT_MIN)).await;
            let error = match asked {
                Ok(step) if step.done.is_empty() && step.begun.is_none() => {
                    W::refused("a shard has done nothing of what it was asked for".to_owned())
                }
                Ok(step) => {
                    if let Err(error) = gathering.take(step, &mut tasks) {
                        return gathering.fail(error);
                    }
                    deadline = self.step_deadline();
                    continue;
                }
                Err(error) => error,
            };
            match reader {
                Some(replica) if !W::is_final(&error) => {
                    log::debug!(
                        "node {:?} shard {} does not do its part: {error}",
                        replica.node,
                        replica.shard
                    );
                    return self.hand_out_spans(gathering, tasks.into_iter().collect(), deadline);
                }
                _ => return gathering.fail(error),
            }
        }
    }

    async fn ask_step<W: Work>(
        self: &Rc<Self>,
        gathering: &Gathering<W>,
        reader: Option<Replica>,
        spans: Vec<Span>,
        timeout: Duration,
    ) -> Result<StepFound<W::Output>, W::Error> {
        let Gathering {
            work,
            view,
            level,
            block_for,
            ..
        } = gathering;
        let me = self.context.this_replica(view);
        let replica = reader.unwrap_or(me);
        let silent = || W::Error::from(self.spread_timeout(view, *level, *block_for, &[replica]));
        if replica == me {
            let step = step(&self.context, work, &spans, timeout);
            return runtime::timeout(timeout, step).await.map_err(|_| silent())?;
        }
        if replica.node == me.node && u32::from(replica.shard) >= runtime::shard_count() {
            return Err(W::refused(
                "the node has fewer shards than the tablet's map says".to_owned(),
            ));
        }
        if replica.node == me.node {
            let work = work.clone();
            let step = trace::submit(ShardId(u32::from(replica.shard)), move || async move {
                step(&Coordinator::local().context, &work, &spans, timeout).await
            });
            return runtime::timeout(timeout, step).await.map_err(|_| silent())?;
        }
        let Some(encoded) = &gathering.for_peers else {
            return Err(W::refused("the work is not for other nodes".to_owned()));
        };
        let mut body = encode_request(W::KIND, encoded, &spans);
        // The other node reads by its own view, at the request's level.
        Stamp::of_tables(view, std::iter::empty()).sign(&mut body);
        let answer = self
            .context
            .call(view, replica, Verb::Near, body, runtime::now() + timeout)
            .await;
        let failed = |reason: &str| W::Error::from(self.spread_failure(view, *level, *block_for, replica, reason));
        let body = answer.map_err(|error| error.reason().map_or_else(silent, failed))?;
        decode_answer(&body, work, spans.len()).map_err(|_| failed("a malformed answer about work near the data"))?
    }
}
