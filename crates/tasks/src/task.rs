//! What a job holds: [`Task`], from its creation to its end, and [`JobControl`], the part of it that goes along to a
//! background thread.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use runtime::SharedNotify;
use uuid::Uuid;

use crate::class::Limits;
use crate::registry::Tasks;
use crate::status::{Kind, Origin, Spec, Status};

/// The immutable facts of a task, and what its job changes while it runs.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: Uuid,
    /// In the order of creation.
    pub(crate) number: u64,
    pub(crate) spec: Spec,
    pub(crate) parent: Option<Arc<Entry>>,
    pub(crate) is_by_operator: bool,
    /// Shared by the tasks of a tree.
    pub(crate) sequence_number: u64,
    pub(crate) created_us: i64,
    pub(crate) limits: Arc<Limits>,
    pub(crate) total: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) is_aborted: AtomicBool,
    /// How it ended.
    pub(crate) result: OnceLock<Status>,
    /// The task ended, or was aborted.
    pub(crate) changed: SharedNotify,
}

impl Entry {
    pub(crate) fn kind(&self) -> &'static Kind {
        self.spec.kind
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }

    async fn aborted(&self) {
        self.changed.until(|| self.is_aborted()).await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.result.get().is_some()
    }

    /// Completes units of this task, and of the tasks above it that count the same.
    fn advance(&self, units: u64) {
        let mut entry = Some(self);
        while let Some(at) = entry.filter(|at| at.kind().units == self.kind().units) {
            at.completed.fetch_add(units, Ordering::Relaxed);
            entry = at.parent.as_deref();
        }
    }

    /// Everything that was to be done is.
    pub(crate) fn complete(&self) {
        let total = self.total.load(Ordering::Relaxed);
        self.advance(total.saturating_sub(self.completed.load(Ordering::Relaxed)));
        self.total
            .fetch_max(self.completed.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The task was aborted before its job had a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aborted;

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("aborted")
    }
}

impl std::error::Error for Aborted {}

impl From<Aborted> for String {
    fn from(aborted: Aborted) -> Self {
        aborted.to_string()
    }
}

/// A task that has not ended. Its job holds it; a task that is dropped without an end has failed.
#[derive(Debug)]
#[must_use = "a task that is dropped has failed"]
pub struct Task {
    pub(crate) entry: Arc<Entry>,
    pub(crate) tasks: Arc<Tasks>,
}

impl Task {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.entry.id
    }

    /// What a task under this one begins with.
    #[must_use]
    pub fn as_origin(&self) -> Origin {
        Origin::Parent(Parent(self.entry.clone()))
    }

    /// Says how many units there are to do.
    pub fn set_total(&self, units: u64) {
        self.entry.total.store(units, Ordering::Relaxed);
    }

    /// Completes units.
    pub fn advance(&self, units: u64) {
        self.entry.advance(units);
    }

    /// Sets the progress of a task whose units are measured, not counted; it may go back.
    pub fn set_progress(&self, completed: u64, total: u64) {
        self.entry.total.store(total, Ordering::Relaxed);
        self.entry.completed.store(completed, Ordering::Relaxed);
    }

    /// Says why the task makes no progress at the moment; an empty text if it makes some.
    pub fn set_waits(&self, waits: &str) {
        self.tasks.note_waits(&self.entry, waits);
    }

    /// Whether the job should end soon, without a result. Cheap.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.entry.is_aborted()
    }

    /// Waits until the task is aborted.
    pub async fn aborted(&self) {
        self.entry.aborted().await;
    }

    /// What the job takes along to a background thread.
    #[must_use]
    pub fn control(&self) -> JobControl {
        JobControl(self.entry.clone())
    }

    /// It begins to run, on no worker of its own: what a task does that only waits for those under it.
    pub fn begin(&self) {
        self.tasks.note_running(&self.entry);
    }

    /// Runs a job on a background thread, once the task's class has a worker free on this shard. Its name is the task's
    /// kind.
    ///
    /// # Errors
    /// When the task is aborted before the job has begun; afterwards the job itself looks.
    pub async fn run_job<T: Send + 'static>(
        &self,
        job: impl FnOnce(JobControl) -> T + Send + 'static,
    ) -> Result<T, Aborted> {
        Ok(self.worker().await?.run(job).await)
    }

    /// Waits for a worker of the task's class on this shard. The task runs from here on.
    ///
    /// # Errors
    /// When the task is aborted before.
    pub async fn worker(&self) -> Result<Worker, Aborted> {
        let shard = runtime::shard().0;
        let limits = &self.entry.limits;
        let mut place = QueueTicket {
            limits,
            shard,
            ticket: None,
        };
        let mut aborted = pin!(self.aborted());
        poll_fn(|context| {
            if aborted.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Aborted));
            }
            if limits.take(shard, &mut place.ticket, context.waker()) {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await?;
        self.begin();
        Ok(Worker {
            control: self.control(),
            shard,
        })
    }

    /// It ends well.
    pub fn done(self) {
        self.tasks.end(&self.entry, Ok(()));
    }

    /// It ends with an error.
    pub fn failed(self, error: &str) {
        self.tasks.end(&self.entry, Err(error.to_owned()));
    }

    /// It ends as a result says.
    pub fn end<T, E: fmt::Display>(self, result: &Result<T, E>) {
        match result {
            Ok(_) => self.done(),
            Err(e) => self.failed(&e.to_string()),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.entry.has_ended() {
            self.tasks.end(&self.entry, Err("ended without a result".to_owned()));
        }
    }
}

/// A task that others are created under.
#[derive(Clone, Debug)]
pub struct Parent(pub(crate) Arc<Entry>);

/// A job's side of its task: how far it is, how fast it may go, and whether it should stop.
#[derive(Clone, Debug)]
pub struct JobControl(Arc<Entry>);

impl JobControl {
    /// Whether the job should end soon, without a result. Cheap.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.0.is_aborted()
    }

    /// Waits until the task is aborted.
    pub async fn aborted(&self) {
        self.0.aborted().await;
    }

    /// Completes units.
    pub fn advance(&self, units: u64) {
        self.0.advance(units);
    }

    /// Says that there are more units to do than was known.
    pub fn add_total(&self, units: u64) {
        self.0.total.fetch_add(units, Ordering::Relaxed);
    }

    /// Accounts for bytes that were read or written: blocks until the limit of the task's class allows them, the limit
    /// changes, or the task is aborted.
    pub fn spend(&self, bytes: u64) {
        self.0.limits.bandwidth().spend(bytes, || self.is_aborted());
    }

    /// Accounts for bytes that the shard's thread moves: waits where [`JobControl::spend`] blocks.
    pub async fn spend_on_shard(&self, bytes: u64) {
        let bandwidth = self.0.limits.bandwidth();
        bandwidth.spend_on_shard(bytes, || self.is_aborted()).await;
    }
}

/// Bytes between two looks of a job at its control.
const STEP_BYTES: u64 = 256 << 10;

/// Reports bytes to a job's control, a few hundred kilobytes at a time.
#[derive(Debug)]
pub struct Meter {
    control: JobControl,
    /// Bytes not reported to progress yet, of all that there are to do.
    left: u64,
    done: u64,
    unpaid: u64,
}

impl Meter {
    /// For a job that has so many bytes to do, which are its task's units.
    #[must_use]
    pub fn new(control: JobControl, total: u64) -> Self {
        Self {
            control,
            left: total,
            done: 0,
            unpaid: 0,
        }
    }

    /// Accounts for bytes that cost bandwidth, and for bytes that are done: more than there were to do count as what is
    /// left. Blocks where the class has a limit.
    ///
    /// # Errors
    /// When the task is aborted.
    pub fn add(&mut self, spent: u64, done: u64) -> Result<(), Aborted> {
        self.unpaid += spent;
        self.done += done;
        if self.unpaid < STEP_BYTES && self.done < STEP_BYTES {
            return Ok(());
        }
        self.settle()
    }

    /// Accounts for what [`Meter::add`] has put off.
    ///
    /// # Errors
    /// When the task is aborted.
    pub fn settle(&mut self) -> Result<(), Aborted> {
        let done = std::mem::take(&mut self.done).min(self.left);
        self.left -= done;
        self.control.advance(done);
        self.control.spend(std::mem::take(&mut self.unpaid));
        if self.control.is_aborted() {
            Err(Aborted)
        } else {
            Ok(())
        }
    }
}

/// A place in the queue for a worker; left when it is dropped.
struct QueueTicket<'a> {
    limits: &'a Limits,
    shard: u32,
    ticket: Option<u64>,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.limits.leave(self.shard, ticket);
        }
    }
}

/// A worker of a class on a shard; given back when it is dropped.
#[derive(Debug)]
pub struct Worker {
    control: JobControl,
    shard: u32,
}

impl Worker {
    /// Runs a job on a background thread, which has the name of the task's kind.
    pub async fn run<T: Send + 'static>(self, job: impl FnOnce(JobControl) -> T + Send + 'static) -> T {
        let control = self.control.clone();
        runtime::spawn_job(control.0.kind().name, move || job(control)).await
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.control.0.limits.give_back(self.shard);
    }
}
