//! Threads for what would block a shard: a small pool for short blocking work that requests wait for ([`offload`]), one
//! at lower priority for short blocking work of data that moves ([`offload_background`]), one for long background jobs
//! at lower priority ([`spawn_job`]), and one for file operations where io_uring is not there.
//!
//! Threads are started when there is work, up to the pool's limit, and end after a while without. The queue of a pool
//! is as long as the callers make it: each entry of `offload` is a task that waits, and jobs are few by nature.

use crate::affinity::Processors;
use crate::driver::Driver;
use crate::executor;
use crate::priority;
use crate::sim;
use crate::start::AbortOnPanic;
use crate::task::{JoinHandle, Work};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a thread of a pool waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Jobs that run at once unless [`set_jobs_max`] says otherwise: this many for each shard, and at least one.
const JOBS_PER_SHARD: u32 = 1;

/// Threads for short blocking work.
const OFFLOAD_THREADS: usize = 4;

/// Threads for short blocking work of lower priority: a stream has one write, two syncs and reads for another node.
const BACKGROUND_THREADS: usize = 4;

/// Threads for file operations of the epoll backend: near the knee of most disks.
const FILE_THREADS: usize = 16;

/// The pools of a node.
pub(crate) struct Pools {
    offload: Pool,
    background: Pool,
    jobs: Pool,
    files: Pool,
}

impl Pools {
    pub(crate) fn start(shards: u32) -> Self {
        let jobs = (shards * JOBS_PER_SHARD).max(1) as usize;
        Self {
            offload: Pool::new("offload", OFFLOAD_THREADS, false),
            background: Pool::new("background", BACKGROUND_THREADS, true),
            jobs: Pool::new("job", jobs, true),
            files: Pool::new("file", FILE_THREADS, false),
        }
    }

    /// Nothing that has not started will start; what runs is not waited for.
    pub(crate) fn close(&self) {
        for pool in [&self.offload, &self.background, &self.jobs, &self.files] {
            pool.close();
        }
    }
}

/// Runs short blocking work on a thread of a small pool: password hashes, name lookups, directory syncs.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    offload_to(|pools| &pools.offload, work).await
}

/// Runs short blocking work on a thread of a small pool of lower priority, that of jobs: file operations of data that
/// moves between nodes. Where the processors are busy it waits for the shards, but never for long: the kernel gives
/// each of its threads about a tenth of a shard's time.
pub async fn offload_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    offload_to(|pools| &pools.background, work).await
}

async fn offload_to<T: Send + 'static>(pool: fn(&Pools) -> &Pool, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (work, handle) = JoinHandle::for_job(work);
    executor::with(|executor| match &executor.driver {
        Driver::Simulated(driver) => {
            sim::run_later(driver, Duration::from_micros(10), Duration::from_micros(500), work)
        }
        _ => {
            let pool = pool(&executor.node.pools);
            pool.submit(pool.shared.name.to_owned(), work);
        }
    });
    handle.await
}

/// Closes a file: on a shard's thread, by a thread of lower priority. With the last file descriptor of a deleted file
/// the kernel gives back its blocks and its pages in the page cache, which takes milliseconds for a hundred megabytes.
pub(crate) fn close_file(file: std::fs::File) {
    let closed_here = executor::try_with(|executor| match &executor.driver {
        Driver::Simulated(_) => Some(file),
        // After the pool is closed the work is dropped, which closes the file as well.
        _ => {
            let (work, _) = JoinHandle::for_job(move || drop(file));
            executor.node.pools.background.submit("close".to_owned(), work);
            None
        }
    });
    drop(closed_here);
}

/// Runs a blocking file operation where the kernel offers no asynchronous one.
pub(crate) async fn run_file_operation<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (work, handle) = JoinHandle::for_job(work);
    executor::with(|executor| executor.node.pools.files.submit("file".to_owned(), work));
    handle.await
}

/// Runs long background work (flush, compaction) on a thread of its own with lower priority. At most [`jobs_max`] run
/// at once; the others wait in order. Jobs may use `fs` and `now`; they are no shard. In the simulator a job runs as a
/// whole at a later virtual time, and its result comes when the time that it took has passed. When the node ends,
/// running jobs are not waited for.
pub fn spawn_job<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (work, handle) = JoinHandle::for_job(work);
    executor::with(|executor| match &executor.driver {
        Driver::Simulated(driver) => sim::run_later(driver, Duration::ZERO, Duration::from_millis(20), work),
        _ => executor.node.pools.jobs.submit(name.to_owned(), work),
    });
    handle
}

/// Jobs of this node that may run at once.
#[must_use]
pub fn jobs_max() -> usize {
    executor::with(|executor| executor.node.pools.jobs.shared.lock().limit)
}

/// Changes how many jobs may run at once, at least one. Jobs that run already are not stopped.
pub fn set_jobs_max(limit: usize) {
    executor::with(|executor| executor.node.pools.jobs.set_limit(limit.max(1)));
}

struct Pool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    state: Mutex<PoolState>,
    changed: Condvar,
    /// Those of the thread that started the node; shards that start our threads are pinned.
    processors: Option<Processors>,
    low_priority: bool,
    name: &'static str,
}

struct PoolState {
    queue: VecDeque<(String, Work)>,
    threads: usize,
    idle: usize,
    limit: usize,
    closed: bool,
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().expect("no code panics while it holds a pool's state")
    }
}

impl Pool {
    fn new(name: &'static str, limit: usize, low_priority: bool) -> Self {
        let state = PoolState {
            queue: VecDeque::new(),
            threads: 0,
            idle: 0,
            limit,
            closed: false,
        };
        let shared = PoolShared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            processors: Processors::of_this_thread().ok(),
            low_priority,
            name,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn submit(&self, name: String, work: Work) {
        let mut state = self.shared.lock();
        if state.closed {
            return;
        }
        state.queue.push_back((name, work));
        if state.idle >= state.queue.len() {
            self.shared.changed.notify_one();
        } else if state.threads < state.limit {
            state.threads += 1;
            drop(state);
            self.start_thread();
        }
    }

    fn start_thread(&self) {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new()
            .name(shared.name.to_owned())
            .spawn(move || work(&shared));
        if let Err(error) = started {
            log::error!("runtime: cannot start a thread for pool {}: {error}", self.shared.name);
            self.shared.lock().threads -= 1;
        }
    }

    fn set_limit(&self, limit: usize) {
        let mut state = self.shared.lock();
        state.limit = limit;
        let missing = state.queue.len().min(limit.saturating_sub(state.threads));
        state.threads += missing;
        drop(state);
        self.shared.changed.notify_all();
        for _ in 0..missing {
            self.start_thread();
        }
    }

    fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let unstarted = std::mem::take(&mut state.queue);
        drop(state);
        drop(unstarted);
        self.shared.changed.notify_all();
    }
}

/// The life of a pool's thread.
fn work(shared: &PoolShared) {
    let _bomb = AbortOnPanic("a job or offloaded work");
    if let Some(Err(error)) = shared.processors.map(|processors| processors.bind_this_thread()) {
        log::debug!(
            "runtime: a thread of pool {} stays on its shard's processor: {error}",
            shared.name
        );
    }
    if shared.low_priority {
        priority::lower();
    }
    while let Some((name, work)) = next_work(shared) {
        if shared.low_priority {
            name_thread(&name);
        }
        work()();
    }
}

fn next_work(shared: &PoolShared) -> Option<(String, Work)> {
    let mut state = shared.lock();
    loop {
        if state.closed || state.threads > state.limit {
            break;
        }
        if let Some(work) = state.queue.pop_front() {
            return Some(work);
        }
        state.idle += 1;
        let (woken, waited) = shared
            .changed
            .wait_timeout(state, IDLE)
            .expect("no code panics while it holds a pool's state");
        state = woken;
        state.idle -= 1;
        if waited.timed_out() && state.queue.is_empty() {
            break;
        }
    }
    state.threads -= 1;
    None
}

fn name_thread(name: &str) {
    // The kernel keeps 15 bytes and a zero.
    let mut bytes: Vec<u8> = name.bytes().filter(|&byte| byte != 0).take(15).collect();
    bytes.push(0);
    // SAFETY: PR_SET_NAME reads a zero-terminated string of at most 16 bytes, which `bytes` is.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Work that says that it ran.
    fn says(done: &mpsc::Sender<()>) -> Work {
        let done = done.clone();
        Box::new(move || {
            done.send(()).expect("the test waits for it");
            Box::new(|| {})
        })
    }

    #[test]
    fn when_a_node_ends_the_threads_of_all_its_pools_end() {
        let pools = Pools::start(1);
        let all = [&pools.offload, &pools.background, &pools.jobs, &pools.files];
        let (done, ran) = mpsc::channel();
        for pool in all {
            pool.submit("work".to_owned(), says(&done));
            ran.recv().expect("it runs");
        }
        pools.close();
        for pool in all {
            // A thread of a pool that is not closed waits for work, and longer than this.
            let until = std::time::Instant::now() + IDLE / 2;
            while pool.shared.lock().threads > 0 {
                assert!(std::time::Instant::now() < until, "pool {} goes on", pool.shared.name);
                std::thread::yield_now();
            }
            pool.submit("work".to_owned(), says(&done));
            assert!(pool.shared.lock().queue.is_empty(), "pool {}", pool.shared.name);
        }
        assert!(ran.try_recv().is_err(), "work began after the end");
    }
}
