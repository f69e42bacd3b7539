//! Starting a production node: one thread per shard, the backend chosen by what the kernel allows.

use crate::affinity::Processors;
use crate::blocking::Pools;
use crate::driver::Driver;
use crate::executor::{Executor, ShardId};
use crate::gate::{Gate, SHARDS_MAX};
use crate::group::Group;
use crate::mailbox::Mailboxes;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How to start the shards of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shards, one thread each.
    pub shards: u32,
    /// The processors the shards are pinned to, in order; `None` does not pin (for a machine that is shared).
    pub pin_cpus: Option<Vec<usize>>,
    /// Which interface of the kernel to use.
    pub backend: Backend,
    /// How long an idle shard polls before it sleeps; zero on a shared machine.
    pub spin: Duration,
}

/// The kernel interface under a production node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// What the environment variable `CETO_RUNTIME` names (`io_uring` or `epoll`), else io_uring if the kernel allows
    /// it, else epoll.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// epoll, with a pool for file work.
    Epoll,
}

impl Default for Options {
    /// One shard, neither pinned nor spinning.
    fn default() -> Self {
        Self {
            shards: 1,
            pin_cpus: None,
            backend: Backend::Auto,
            spin: Duration::ZERO,
        }
    }
}

/// The main function of a node, on each of its shards.
type Main = dyn Fn(ShardId) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync;

/// What the shards of a node share.
pub(crate) struct Node {
    pub(crate) gates: Vec<&'static Gate>,
    pub(crate) pools: Pools,
    /// Shards whose main future is not done.
    mains_left: AtomicU32,
}

impl Node {
    fn new(shards: u32, pools: Pools) -> Self {
        let gates = (0..shards).map(|_| Gate::acquire(false)).collect();
        Self {
            gates,
            pools,
            mains_left: AtomicU32::new(shards),
        }
    }

    pub(crate) fn new_simulated(shards: u32, pools: Pools) -> Self {
        let gates = (0..shards).map(|_| Gate::acquire(true)).collect();
        Self {
            gates,
            pools,
            mains_left: AtomicU32::new(shards),
        }
    }

    /// One shard's main future is done.
    pub(crate) fn end_main(&self) {
        if self.mains_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            for gate in &self.gates {
                gate.ring();
            }
        }
    }

    /// Whether all main futures are done.
    pub(crate) fn is_done(&self) -> bool {
        self.mains_left.load(Ordering::Acquire) == 0
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for gate in &self.gates {
            gate.release();
        }
    }
}

/// Starts one thread per shard, runs `main` on each, and returns when every shard's main future is done. A shard whose
/// main is done keeps serving the others until then; what tasks are left are dropped.
///
/// # Errors
/// When the options cannot be met: a shard count of zero or above 256, a processor that does not exist, a forbidden
/// backend.
pub fn run<F>(options: Options, main: F) -> io::Result<()>
where
    F: Fn(ShardId) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync + 'static,
{
    check(&options)?;
    let main: Arc<Main> = Arc::new(main);
    let chosen = choose_backend(options.backend)?;
    match run_on(chosen, &options, &main) {
        // A ring could be made for a probe, but not one for every shard: locked memory is limited on older kernels.
        Err(NotStarted(error)) if chosen == Backend::IoUring && options.backend == Backend::Auto => {
            log::warn!("runtime: io_uring does not work for every shard ({error}); falling back to epoll");
            run_on(Backend::Epoll, &options, &main)
        }
        ended => ended,
    }
    .map_err(|NotStarted(error)| error)
}

/// A shard could not start, so none did.
struct NotStarted(io::Error);

fn run_on(backend: Backend, options: &Options, main: &Arc<Main>) -> Result<(), NotStarted> {
    let shards = options.shards;
    log::info!(
        "runtime: {shards} shards on {}",
        if backend == Backend::IoUring {
            "io_uring"
        } else {
            "epoll"
        }
    );
    let node = Arc::new(Node::new(shards, Pools::start(shards)));
    let (report, reports) = mpsc::channel();
    let (mut threads, mut go_aheads) = (Vec::new(), Vec::new());
    for (shard, mailboxes) in (0..shards).zip(Mailboxes::for_shards(shards as usize)) {
        let (go_ahead, wait_for_go_ahead) = mpsc::channel();
        let start = ShardStart {
            node: Arc::clone(&node),
            shard,
            backend,
            mailboxes,
            cpu: options.pin_cpus.as_ref().map(|cpus| cpus[shard as usize]),
            spin: options.spin,
            main: Arc::clone(main),
            report: report.clone(),
            wait_for_go_ahead,
        };
        let thread = std::thread::Builder::new()
            .name(format!("shard-{shard}"))
            .spawn(move || start.run());
        threads.push(thread.map_err(NotStarted)?);
        go_aheads.push(go_ahead);
    }
    let started = (0..shards).try_for_each(|_| reports.recv().expect("every shard reports before it ends"));
    if started.is_ok() {
        for go_ahead in go_aheads {
            go_ahead.send(()).expect("a shard that has started waits");
        }
    } else {
        // Shards that wait see their channels close, and end.
        drop(go_aheads);
    }
    for thread in threads {
        thread.join().unwrap_or_else(|_| abort("a shard's thread panicked"));
    }
    node.pools.close();
    started.map_err(NotStarted)
}

/// What the thread of a shard begins with.
struct ShardStart {
    node: Arc<Node>,
    shard: u32,
    backend: Backend,
    mailboxes: Mailboxes,
    cpu: Option<usize>,
    spin: Duration,
    main: Arc<Main>,
    /// Reports whether this shard can run.
    report: mpsc::Sender<io::Result<()>>,
    /// Closed when another shard cannot.
    wait_for_go_ahead: mpsc::Receiver<()>,
}

impl ShardStart {
    /// The life of a shard's thread.
    fn run(self) {
        let _bomb = AbortOnPanic("a task or message of a shard");
        let gate = self.node.gates[self.shard as usize];
        let driver = match self
            .cpu
            .map_or(Ok(()), pin_to)
            .and_then(|()| Driver::open(self.backend, gate))
        {
            Ok(driver) => driver,
            Err(error) => {
                let error = io::Error::new(error.kind(), format!("shard {} cannot start: {error}", self.shard));
                return self.report.send(Err(error)).unwrap_or(());
            }
        };
        let told = self.report.send(Ok(())).is_ok() && self.wait_for_go_ahead.recv().is_ok();
        if told {
            run_shard(
                Executor::new(self.node, self.shard, driver, self.mailboxes, self.spin),
                &*self.main,
            );
        }
    }
}

fn run_shard(executor: Executor, main: &Main) {
    let entered = executor.enter();
    let main = main(ShardId(executor.shard));
    let ending = Arc::clone(&executor.node);
    executor.add_task(
        Group::STATEMENT,
        Box::pin(async move {
            main.await;
            ending.end_main();
        }),
    );
    executor.run_until(|| executor.node.is_done());
    executor.drop_tasks();
    executor.driver.shut_down();
    drop(entered);
}

fn check(options: &Options) -> io::Result<()> {
    let refuse = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    if options.shards == 0 || options.shards as usize > SHARDS_MAX {
        return refuse(format!("a node has 1 to {SHARDS_MAX} shards, not {}", options.shards));
    }
    if let Some(cpus) = &options.pin_cpus
        && cpus.len() < options.shards as usize
    {
        return refuse(format!(
            "{} shards cannot be pinned to {} processors",
            options.shards,
            cpus.len()
        ));
    }
    Ok(())
}

fn choose_backend(wanted: Backend) -> io::Result<Backend> {
    let wanted = match (wanted, std::env::var("CETO_RUNTIME").as_deref()) {
        (Backend::Auto, Ok("io_uring")) => Backend::IoUring,
        (Backend::Auto, Ok("epoll")) => Backend::Epoll,
        (Backend::Auto, Ok(other)) if !other.is_empty() => {
            let message = format!("CETO_RUNTIME is '{other}', expected 'io_uring' or 'epoll'");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        (wanted, _) => wanted,
    };
    match (wanted, Driver::probe_io_uring()) {
        (Backend::Epoll, _) => Ok(Backend::Epoll),
        (Backend::IoUring | Backend::Auto, Ok(())) => Ok(Backend::IoUring),
        (Backend::IoUring, Err(error)) => Err(io::Error::new(
            error.kind(),
            format!("io_uring cannot be used here: {error}"),
        )),
        (Backend::Auto, Err(error)) => {
            log::warn!("runtime: io_uring cannot be used here ({error}); falling back to epoll");
            Ok(Backend::Epoll)
        }
    }
}

fn pin_to(cpu: usize) -> io::Result<()> {
    Processors::only(cpu)?.bind_this_thread()
}

/// Ends the process when the thread unwinds: a shard that lost a task half-way cannot be trusted with data.
pub(crate) struct AbortOnPanic(pub(crate) &'static str);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort(&format!("{} panicked", self.0));
        }
    }
}

fn abort(message: &str) -> ! {
    log::error!("runtime: {message}; ending the process");
    log::logger().flush();
    std::process::abort()
}
