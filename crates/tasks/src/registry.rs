//! The node's list of tasks.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use runtime::{Instant, SharedNotify};
use uuid::Uuid;

use crate::class::{Class, ClassStatus, Limits};
use crate::status::{Module, Origin, Spec, State, Status};
use crate::task::{Entry, Task};

/// Most tasks that are kept after their end. Beyond it those that ended first are forgotten.
pub const ENDED_MAX: usize = 4096;
/// Most bytes of an error that are kept; the rest is cut off.
pub const ERROR_BYTES_MAX: usize = 2048;
/// How long a task of the node is kept after its end, unless an operator says otherwise.
pub const TTL_DEFAULT: Duration = Duration::from_mins(1);
/// How long a task that an operator asked for is kept after its end, unless an operator says otherwise.
pub const USER_TTL_DEFAULT: Duration = Duration::from_hours(1);

/// How often expired tasks are forgotten while no caller reads the list. A shard's thread pays for it, half a
/// millisecond for [`ENDED_MAX`] tasks.
const FORGET_PERIOD: Duration = Duration::from_secs(10);

/// Why a task is not aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbortError {
    /// There is no such task.
    Unknown,
    /// Tasks of its kind cannot be stopped.
    NotAbortable,
}

/// All tasks of a node, shared by its shards. See the crate.
#[derive(Debug)]
pub struct Tasks {
    limits: [Arc<Limits>; Class::ALL.len()],
    state: Mutex<List>,
    /// In nanoseconds.
    ttl: AtomicU64,
    user_ttl: AtomicU64,
    /// The node part of the ids.
    id_node: [u8; 6],
}

#[derive(Debug, Default)]
struct List {
    next_number: u64,
    /// 100 ns since 1582, of the last id.
    last_tick: u64,
    sequence_numbers: BTreeMap<Module, u64>,
    /// By number.
    records: BTreeMap<u64, Record>,
    numbers: HashMap<Uuid, u64>,
    /// Tasks that ended, in order.
    ended: VecDeque<u64>,
    /// When tasks were forgotten last whose time was over.
    forgotten_at: Option<Instant>,
}

#[derive(Debug)]
struct Record {
    entry: Arc<Entry>,
    state: State,
    started_us: i64,
    ended_us: i64,
    /// When it ended.
    ended_at: Option<Instant>,
    error: String,
    waits: String,
    children: Vec<u64>,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Tasks {
    /// No tasks, of a node with so many shards and this host id, which makes the ids of its tasks differ from those of
    /// other nodes.
    #[must_use]
    pub fn new(shards: u32, host_id: Uuid) -> Arc<Self> {
        let [.., a, b, c, d, e, f] = *host_id.as_bytes();
        Arc::new(Self {
            limits: Class::ALL.map(|class| Arc::new(Limits::new(class, shards))),
            state: Mutex::default(),
            ttl: AtomicU64::new(nanos(TTL_DEFAULT)),
            user_ttl: AtomicU64::new(nanos(USER_TTL_DEFAULT)),
            // The first bit says that it is no network card's address.
            id_node: [a | 1, b, c, d, e, f],
        })
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self, class: Class) -> &Arc<Limits> {
        &self.limits[class as usize]
    }

    /// Creates a task. One that is created under an aborted task is aborted from the beginning, if it can be.
    pub fn start(self: &Arc<Self>, spec: Spec, origin: &Origin) -> Task {
        let parent = match origin {
            Origin::Parent(parent) => Some(parent.0.clone()),
            Origin::Operator | Origin::Node => None,
        };
        let created_us = runtime::wall_clock_us();
        let mut list = self.lock();
        list.next_number += 1;
        let number = list.next_number;
        let sequence_number = match &parent {
            Some(parent) => parent.sequence_number,
            None => {
                let count = list.sequence_numbers.entry(spec.kind.module).or_default();
                *count += 1;
                *count
            }
        };
        let is_aborted = spec.kind.is_abortable && parent.as_ref().is_some_and(|parent| parent.is_aborted());
        let entry = Arc::new(Entry {
            id: self.next_id(&mut list, created_us),
            number,
            is_by_operator: matches!(origin, Origin::Operator),
            sequence_number,
            created_us,
            limits: self.limits(spec.kind.class).clone(),
            total: AtomicU64::new(spec.total),
            completed: AtomicU64::new(0),
            is_aborted: AtomicBool::new(is_aborted),
            result: OnceLock::new(),
            changed: SharedNotify::new(),
            spec,
            parent,
        });
        if let Some(parent) = &entry.parent
            && let Some(record) = list.records.get_mut(&parent.number)
        {
            record.children.push(number);
        }
        list.numbers.insert(entry.id, number);
        let record = Record {
            entry: entry.clone(),
            state: State::Created,
            started_us: 0,
            ended_us: 0,
            ended_at: None,
            error: String::new(),
            waits: String::new(),
            children: Vec::new(),
        };
        list.records.insert(number, record);
        Task {
            entry,
            tasks: self.clone(),
        }
    }

    /// A version 1 UUID whose time is later than that of the one before, whatever the clock does.
    fn next_id(&self, list: &mut List, now_us: i64) -> Uuid {
        // From 1582-10-15 to 1970-01-01.
        const EPOCH_TICKS: u64 = 0x01B2_1DD2_1381_4000;
        let tick = EPOCH_TICKS.saturating_add(u64::try_from(now_us).unwrap_or(0).saturating_mul(10));
        list.last_tick = tick.max(list.last_tick + 1);
        Uuid::new_v1(uuid::Timestamp::from_gregorian_time(list.last_tick, 0), &self.id_node)
    }

    pub(crate) fn note_running(&self, entry: &Entry) {
        let now = runtime::wall_clock_us();
        if let Some(record) = self.lock().records.get_mut(&entry.number)
            && record.state == State::Created
        {
            record.state = State::Running;
            record.started_us = now;
        }
    }

    pub(crate) fn note_waits(&self, entry: &Entry, waits: &str) {
        if let Some(record) = self.lock().records.get_mut(&entry.number)
            && record.waits != waits
        {
            record.waits = cut(waits.to_owned());
        }
    }

    pub(crate) fn end(&self, entry: &Entry, result: Result<(), String>) {
        let (now, now_us) = (runtime::now(), runtime::wall_clock_us());
        if result.is_ok() {
            entry.complete();
        }
        entry.limits.count_end(result.is_ok(), entry.is_aborted());
        {
            let mut list = self.lock();
            if let Some(record) = list.records.get_mut(&entry.number) {
                record.state = if result.is_ok() { State::Done } else { State::Failed };
                record.error = result.err().map_or_else(String::new, cut);
                record.ended_us = now_us;
                record.waits.clear();
                if record.started_us == 0 {
                    record.started_us = now_us;
                }
                record.ended_at = Some(now);
                list.ended.push_back(entry.number);
            }
            if let Some(record) = list.records.get(&entry.number) {
                entry.result.get_or_init(|| list.status(record));
            }
            let is_due = |at| now.saturating_duration_since(at) >= FORGET_PERIOD;
            if list.forgotten_at.is_none_or(is_due) {
                self.forget_old(&mut list);
            }
            while list.ended.len() > ENDED_MAX {
                if let Some(number) = list.ended.pop_front() {
                    list.forget(number);
                }
            }
        }
        entry.changed.notify_all();
    }

    /// How long a task is kept after its end.
    fn ttl_of(&self, entry: &Entry) -> Duration {
        let ttl = if entry.is_by_operator {
            &self.user_ttl
        } else {
            &self.ttl
        };
        Duration::from_nanos(ttl.load(Ordering::Acquire))
    }

    /// Forgets tasks whose time is over. A task is kept as long as the one above it.
    fn forget_old(&self, list: &mut List) {
        let now = runtime::now();
        list.forgotten_at = Some(now);
        let is_over = |list: &List, number: &u64| {
            let Some(mut record) = list.records.get(number) else {
                return true;
            };
            while let Some(parent) = record.entry.parent.as_ref() {
                match list.records.get(&parent.number) {
                    Some(above) => record = above,
                    None => return true,
                }
            }
            let ended_at = record.ended_at;
            ended_at.is_some_and(|at| now.saturating_duration_since(at) >= self.ttl_of(&record.entry))
        };
        // In order of their end, which is not that of their times to live: all of them are looked at, and there are not
        // many.
        let (over, kept): (Vec<u64>, VecDeque<u64>) = {
            let mut over = Vec::new();
            let mut kept = VecDeque::new();
            for number in &list.ended {
                if is_over(list, number) {
                    over.push(*number);
                } else {
                    kept.push_back(*number);
                }
            }
            (over, kept)
        };
        over.into_iter().for_each(|number| list.forget(number));
        list.ended = kept;
    }

    /// Tasks of a module, in the order of their creation. Internal ones are those with a parent, and those that no
    /// operator asked for.
    #[must_use]
    pub fn list(&self, module: Module, with_internal: bool) -> Vec<Status> {
        let mut list = self.lock();
        self.forget_old(&mut list);
        let of_module = list.records.values().filter(|r| r.entry.kind().module == module);
        let statuses = of_module.map(|record| list.status(record));
        statuses.filter(|status| with_internal || !status.is_internal).collect()
    }

    /// A task.
    #[must_use]
    pub fn status(&self, id: Uuid) -> Option<Status> {
        let mut list = self.lock();
        self.forget_old(&mut list);
        list.record(id).map(|record| list.status(record))
    }

    /// A task and all tasks below it, level by level.
    #[must_use]
    pub fn tree(&self, id: Uuid) -> Option<Vec<Status>> {
        let mut list = self.lock();
        self.forget_old(&mut list);
        let root = list.record(id)?;
        let mut found = vec![root];
        let mut next = 0;
        while let Some(record) = found.get(next) {
            found.extend(record.children.iter().filter_map(|number| list.records.get(number)));
            next += 1;
        }
        Some(found.into_iter().map(|record| list.status(record)).collect())
    }

    /// Waits until a task has ended: how it did. None: there is no such task, or it ended earlier and is not kept any
    /// more.
    pub async fn wait(&self, id: Uuid) -> Option<Status> {
        let entry = {
            let mut list = self.lock();
            self.forget_old(&mut list);
            list.record(id)?.entry.clone()
        };
        entry.changed.until(|| entry.has_ended()).await;
        entry.result.get().cloned()
    }

    /// Asks a task, and those below it, to end soon without a result. Nothing happens to those that have ended, and to
    /// those below it that cannot be stopped.
    ///
    /// # Errors
    /// When there is no such task, or it cannot be stopped.
    pub fn abort(&self, id: Uuid) -> Result<(), AbortError> {
        let mut aborted = Vec::new();
        {
            let list = self.lock();
            let record = list.record(id).ok_or(AbortError::Unknown)?;
            if !record.entry.kind().is_abortable {
                return Err(AbortError::NotAbortable);
            }
            let mut next = vec![record];
            while let Some(record) = next.pop() {
                next.extend(record.children.iter().filter_map(|number| list.records.get(number)));
                if record.ended_at.is_none() && record.entry.kind().is_abortable {
                    aborted.push(record.entry.clone());
                }
            }
            // Inside the lock: what is created from here on sees it.
            for entry in &aborted {
                entry.is_aborted.store(true, Ordering::Release);
            }
        }
        for entry in aborted {
            entry.changed.notify_all();
            entry.limits.bandwidth().wake();
        }
        Ok(())
    }

    /// Aborts every task that the condition holds for. How many there were.
    pub fn abort_all(&self, is_meant: impl Fn(&Status) -> bool) -> usize {
        let ids: Vec<Uuid> = {
            let list = self.lock();
            let running = list.records.values().filter(|record| record.ended_at.is_none());
            let statuses = running.map(|record| list.status(record));
            statuses
                .filter(|s| s.is_abortable && is_meant(s))
                .map(|s| s.id)
                .collect()
        };
        ids.into_iter().filter(|id| self.abort(*id).is_ok()).count()
    }

    /// Forgets the tasks of a module that have ended.
    pub fn drain(&self, module: Module) {
        let mut list = self.lock();
        let has_ended = |list: &List, number: &u64| {
            let record = list.records.get(number);
            record.is_none_or(|record| record.entry.kind().module == module)
        };
        let (gone, kept): (Vec<u64>, Vec<u64>) =
            list.ended.iter().copied().partition(|number| has_ended(&list, number));
        gone.into_iter().for_each(|number| list.forget(number));
        list.ended = kept.into();
    }

    /// How long tasks of the node are kept after their end, and those that an operator asked for.
    #[must_use]
    pub fn ttls(&self) -> (Duration, Duration) {
        let of = |ttl: &AtomicU64| Duration::from_nanos(ttl.load(Ordering::Acquire));
        (of(&self.ttl), of(&self.user_ttl))
    }

    /// Sets how long tasks of the node are kept after their end; those that have ended too.
    pub fn set_ttl(&self, ttl: Duration) {
        self.ttl.store(nanos(ttl), Ordering::Release);
    }

    /// Sets how long tasks that an operator asked for are kept after their end; those that have ended too.
    pub fn set_user_ttl(&self, ttl: Duration) {
        self.user_ttl.store(nanos(ttl), Ordering::Release);
    }

    /// The classes with their limits and counts.
    #[must_use]
    pub fn classes(&self) -> Vec<ClassStatus> {
        self.limits.iter().map(|limits| limits.status()).collect()
    }

    /// Limits the bytes per second of a class; 0 is no limit. Takes effect at once.
    pub fn set_bytes_per_second(&self, class: Class, bytes: u64) {
        self.limits(class).bandwidth().set(bytes);
    }

    /// The limit of a class; 0 is none.
    #[must_use]
    pub fn bytes_per_second(&self, class: Class) -> u64 {
        self.limits(class).bandwidth().bytes_per_second()
    }

    /// Sets how many workers a class has on one shard, or on each. More begin at once; fewer do when jobs end. Call
    /// this, and [`Tasks::size_pool`] at a start, on a shard.
    pub fn set_workers(&self, class: Class, shard: Option<u32>, workers: u32) {
        self.limits(class)
            .set_workers(shard, workers.clamp(1, crate::WORKERS_MAX));
        self.size_pool();
    }

    /// Lets as many background threads run as there are workers, and one for each shard, which folds memtables: a job
    /// that has a worker never waits for a thread.
    pub fn size_pool(&self) {
        let workers: u32 = self.limits.iter().map(|limits| limits.workers()).sum();
        runtime::set_jobs_max(workers as usize + runtime::shard_count() as usize);
    }
}

impl List {
    fn record(&self, id: Uuid) -> Option<&Record> {
        self.records.get(self.numbers.get(&id)?)
    }

    fn forget(&mut self, number: u64) {
        let Some(record) = self.records.remove(&number) else {
            return;
        };
        self.numbers.remove(&record.entry.id);
        if let Some(parent) = &record.entry.parent
            && let Some(above) = self.records.get_mut(&parent.number)
        {
            above.children.retain(|child| *child != number);
        }
    }

    fn status(&self, record: &Record) -> Status {
        let (entry, spec) = (&record.entry, &record.entry.spec);
        let total = entry.total.load(Ordering::Relaxed);
        let completed = entry.completed.load(Ordering::Relaxed);
        let child = |number: &u64| self.records.get(number).map(|child| child.entry.id);
        Status {
            id: entry.id,
            kind: spec.kind,
            scope: spec.scope,
            keyspace: spec.keyspace.clone(),
            table: spec.table.clone(),
            entity: spec.entity.clone(),
            shard: spec.shard,
            state: record.state,
            is_internal: !entry.is_by_operator,
            is_abortable: spec.kind.is_abortable,
            sequence_number: entry.sequence_number,
            created_us: entry.created_us,
            started_us: record.started_us,
            ended_us: record.ended_us,
            error: record.error.clone(),
            waits: record.waits.clone(),
            parent: entry.parent.as_ref().map(|parent| parent.id),
            children: record.children.iter().filter_map(child).collect(),
            total,
            completed: if total == 0 { completed } else { completed.min(total) },
        }
    }
}

/// Cuts an error to what is kept of it.
fn cut(mut error: String) -> String {
    if error.len() > ERROR_BYTES_MAX {
        let end = (0..=ERROR_BYTES_MAX).rev().find(|at| error.is_char_boundary(*at));
        error.truncate(end.unwrap_or(0));
        error.push('…');
    }
    error
}
