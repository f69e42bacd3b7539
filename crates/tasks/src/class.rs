//! Classes of tasks, and what an operator limits per class while tasks run: workers of a shard, and bytes per second of
//! the node.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use runtime::{Instant, SharedNotify};

/// What shares workers and bandwidth. A class is added here when its first task is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Memtables written as sstables.
    Flush,
    /// Sstables merged, automatically or because an operator asks.
    Compaction,
    /// Sstables rewritten at a start, because they span tablets or shards.
    Reshard,
    /// Snapshots, truncations, and checks of damaged sstables.
    Maintenance,
    /// Sstables copied between nodes, in both directions.
    Streaming,
    /// Rows compared with other replicas, and written where they are missing.
    Repair,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Flush,
        Self::Compaction,
        Self::Reshard,
        Self::Maintenance,
        Self::Streaming,
        Self::Repair,
    ];

    /// In the API and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Reshard => "reshard",
            Self::Maintenance => "maintenance",
            Self::Streaming => "streaming",
            Self::Repair => "repair",
        }
    }

    /// The class of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Workers of a shard unless an operator says otherwise. A flush frees memory that writes wait for, so it gets a
    /// second one.
    #[must_use]
    pub fn workers_default(self) -> u32 {
        match self {
            Self::Flush => 2,
            Self::Compaction | Self::Reshard | Self::Maintenance | Self::Streaming | Self::Repair => 1,
        }
    }
}

/// Most workers of a class on one shard: each is a thread while it works.
pub const WORKERS_MAX: u32 = 64;
/// For how long a class may save its unused budget, to spend it in one burst.
const BURST: Duration = Duration::from_millis(100);

/// What a class did since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Tasks that ended well.
    pub done: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Tasks that ended because they were aborted.
    pub aborted: u64,
    /// Bytes that jobs have accounted for.
    pub bytes: u64,
}

/// A class as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassStatus {
    /// Which.
    pub class: Class,
    /// Workers that each shard may have at once.
    pub workers: Vec<u32>,
    /// Bytes per second of the node; 0 is no limit.
    pub bytes_per_second: u64,
    /// Jobs that have a worker.
    pub running: u64,
    /// Jobs that wait for one.
    pub waiting: u64,
    /// Since the start.
    pub counts: Counts,
}

/// The limits of one class, shared by all shards and jobs.
#[derive(Debug)]
pub(crate) struct Limits {
    class: Class,
    workers: Mutex<Workers>,
    bandwidth: Bandwidth,
    done: AtomicU64,
    failed: AtomicU64,
    aborted: AtomicU64,
}

#[derive(Debug)]
struct Workers {
    next_ticket: u64,
    shards: Vec<ShardWorkers>,
}

/// Invariant: while a worker is free, no task waits, except those that were woken and did not run yet.
#[derive(Debug)]
struct ShardWorkers {
    limit: u32,
    running: u32,
    /// Tickets in the order in which they came.
    queue: VecDeque<u64>,
    wakers: BTreeMap<u64, Waker>,
}

impl ShardWorkers {
    /// The wakers of the tasks at the head of the queue, as many as there are free workers.
    fn take_next(&mut self) -> Vec<Waker> {
        let free = self.limit.saturating_sub(self.running) as usize;
        let next = self.queue.iter().take(free);
        next.filter_map(|ticket| self.wakers.get(ticket).cloned()).collect()
    }
}

impl Limits {
    pub(crate) fn new(class: Class, shards: u32) -> Self {
        let shard = |_| ShardWorkers {
            limit: class.workers_default(),
            running: 0,
            queue: VecDeque::new(),
            wakers: BTreeMap::new(),
        };
        Self {
            class,
            workers: Mutex::new(Workers {
                next_ticket: 0,
                shards: (0..shards.max(1)).map(shard).collect(),
            }),
            bandwidth: Bandwidth::default(),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bandwidth(&self) -> &Bandwidth {
        &self.bandwidth
    }

    pub(crate) fn count_end(&self, is_done: bool, is_aborted: bool) {
        let counter = match (is_done, is_aborted) {
            (true, _) => &self.done,
            (false, true) => &self.aborted,
            (false, false) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes the workers of one shard, or of all.
    pub(crate) fn set_workers(&self, shard: Option<u32>, limit: u32) {
        let mut woken = Vec::new();
        {
            let mut workers = self.lock();
            for (number, of_shard) in workers.shards.iter_mut().enumerate() {
                if shard.is_none_or(|shard| shard as usize == number) {
                    of_shard.limit = limit;
                    woken.extend(of_shard.take_next());
                }
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Workers of all shards.
    pub(crate) fn workers(&self) -> u32 {
        self.lock().shards.iter().map(|shard| shard.limit).sum()
    }

    /// Takes a worker of the shard, or a place in the queue, which `ticket` keeps from call to call.
    pub(crate) fn take(&self, shard: u32, ticket: &mut Option<u64>, waker: &Waker) -> bool {
        let mut workers = self.lock();
        let Workers { next_ticket, shards } = &mut *workers;
        let index = shard as usize % shards.len();
        let of_shard = &mut shards[index];
        let ahead = match ticket {
            Some(ticket) => of_shard.queue.iter().position(|waiting| waiting == ticket),
            None => Some(of_shard.queue.len()),
        };
        let free = of_shard.limit.saturating_sub(of_shard.running) as usize;
        if ahead.is_some_and(|ahead| ahead < free) {
            of_shard.running += 1;
            if let Some(ticket) = ticket.take() {
                of_shard.queue.retain(|waiting| *waiting != ticket);
                of_shard.wakers.remove(&ticket);
            }
            return true;
        }
        let ticket = *ticket.get_or_insert_with(|| {
            *next_ticket += 1;
            of_shard.queue.push_back(*next_ticket);
            *next_ticket
        });
        of_shard.wakers.insert(ticket, waker.clone());
        false
    }

    /// Leaves the queue.
    pub(crate) fn leave(&self, shard: u32, ticket: u64) {
        let woken = self.change(shard, |of_shard| {
            of_shard.queue.retain(|waiting| *waiting != ticket);
            of_shard.wakers.remove(&ticket);
        });
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives a worker back.
    pub(crate) fn give_back(&self, shard: u32) {
        let woken = self.change(shard, |of_shard| of_shard.running -= 1);
        woken.into_iter().for_each(Waker::wake);
    }

    fn change(&self, shard: u32, f: impl FnOnce(&mut ShardWorkers)) -> Vec<Waker> {
        let mut workers = self.lock();
        let index = shard as usize % workers.shards.len();
        let of_shard = &mut workers.shards[index];
        f(of_shard);
        of_shard.take_next()
    }

    pub(crate) fn status(&self) -> ClassStatus {
        let workers = self.lock();
        let sum = |f: fn(&ShardWorkers) -> u64| workers.shards.iter().map(f).sum();
        ClassStatus {
            class: self.class,
            workers: workers.shards.iter().map(|shard| shard.limit).collect(),
            bytes_per_second: self.bandwidth.bytes_per_second(),
            running: sum(|shard| u64::from(shard.running)),
            waiting: sum(|shard| shard.queue.len() as u64),
            counts: Counts {
                done: self.done.load(Ordering::Relaxed),
                failed: self.failed.load(Ordering::Relaxed),
                aborted: self.aborted.load(Ordering::Relaxed),
                bytes: self.bandwidth.spent.load(Ordering::Relaxed),
            },
        }
    }
}

/// Bytes per second that all jobs of a class share.
#[derive(Debug, Default)]
pub(crate) struct Bandwidth {
    /// 0 is unlimited.
    bytes_per_second: AtomicU64,
    /// Nanoseconds at which the bytes so far have been paid for.
    paid_until: AtomicU64,
    spent: AtomicU64,
    /// The limit changed, or a task of the class was aborted.
    changed: SharedNotify,
}

impl Bandwidth {
    /// Takes effect at once, for jobs that wait too.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Release);
        self.paid_until.store(0, Ordering::Release);
        self.wake();
    }

    pub(crate) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Acquire)
    }

    /// Lets jobs that wait look again whether they still have to.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// How long to wait before `bytes` more are spent at `now`.
    fn charge(&self, bytes: u64, now: Instant) -> Duration {
        let rate = self.bytes_per_second();
        if rate == 0 {
            return Duration::ZERO;
        }
        let cost = u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX);
        let now = now.as_nanos();
        let earliest = now.saturating_sub(u64::try_from(BURST.as_nanos()).unwrap_or(u64::MAX));
        let paid = |until: u64| until.max(earliest).saturating_add(cost);
        let before = self
            .paid_until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |until| Some(paid(until)));
        let until = paid(before.unwrap_or_else(|until| until));
        Duration::from_nanos(until.saturating_sub(now))
    }

    /// Spends bytes: waits until the budget allows it, the limit changes, or `is_aborted`. For a shard's thread.
    pub(crate) async fn spend_on_shard(&self, bytes: u64, is_aborted: impl Fn() -> bool) {
        self.spent.fetch_add(bytes, Ordering::Relaxed);
        let rate = self.bytes_per_second();
        let wait = self.charge(bytes, runtime::now());
        if wait.is_zero() {
            return;
        }
        let is_over = || is_aborted() || self.bytes_per_second() != rate;
        // When the time is over, the bytes are paid for.
        let _ = runtime::timeout(wait, self.changed.until(is_over)).await;
    }

    /// Spends bytes: blocks until the budget allows it, the limit changes, or `is_aborted`.
    pub(crate) fn spend(&self, bytes: u64, is_aborted: impl Fn() -> bool) {
        self.spent.fetch_add(bytes, Ordering::Relaxed);
        let rate = self.bytes_per_second();
        let wait = self.charge(bytes, runtime::now());
        if wait.is_zero() {
            return;
        }
        let until = runtime::now() + wait;
        loop {
            let seen = self.changed.changes();
            let left = until.saturating_duration_since(runtime::now());
            if left.is_zero() || is_aborted() || self.bytes_per_second() != rate {
                return;
            }
            self.changed.block(seen, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spreads_bytes_over_time_and_no_rate_does_not() {
        let bandwidth = Bandwidth::default();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert_eq!(bandwidth.charge(1 << 40, at(1_000)), Duration::ZERO);
        bandwidth.set(1_000_000);
        // A tenth of a second is free after a pause; then a byte costs a microsecond.
        assert_eq!(bandwidth.charge(100_000, at(1_000)), Duration::ZERO);
        assert_eq!(bandwidth.charge(50_000, at(1_000)), Duration::from_millis(50));
        assert_eq!(bandwidth.charge(50_000, at(1_050)), Duration::from_millis(50));
        assert_eq!(bandwidth.charge(100_000, at(5_000)), Duration::ZERO);
        bandwidth.set(0);
        assert_eq!(bandwidth.charge(1 << 40, at(5_000)), Duration::ZERO);
    }

    #[test]
    fn workers_are_given_in_the_order_of_asking_and_as_many_as_the_limit() {
        let limits = Limits::new(Class::Compaction, 2);
        let take = |shard, ticket: &mut Option<u64>| limits.take(shard, ticket, Waker::noop());
        let (mut first, mut second, mut third) = (None, None, None);
        assert!(take(0, &mut first), "the shard's worker is free");
        assert!(
            !take(0, &mut second) && !take(0, &mut third),
            "a second job got a worker"
        );
        assert!(take(1, &mut None), "another shard has its own");
        limits.give_back(0);
        assert!(!take(0, &mut third), "the third overtook the second");
        assert!(take(0, &mut second));
        limits.set_workers(Some(0), 2);
        assert!(take(0, &mut third), "a raised limit is in force at once");
        limits.set_workers(None, 1);
        assert_eq!(limits.status().running, 3, "a lowered limit takes no worker from a job");
        limits.give_back(0);
        assert!(!take(0, &mut None), "one runs still, and one is the limit");
    }
}
