//! Load on a server, over any protocol: connections, requests in flight, closed and open loops, and what was measured.
//!
//! One shard's thread does everything. A connection's answers that arrive in one read are handled in one loop, and the
//! requests that follow leave in one write, so that a client costs less than the server it measures.
//!
//! - *Closed loop*: each answer is followed by the next request. Measures what the server can do; its latencies say
//!   little about users, because a slow server is asked less.
//! - *Open loop*: request `k` is due at `start + k / rate`, whatever the server does. Latency counts from that moment,
//!   not from when the request could leave, so a stall is seen by all requests it delays (no coordinated omission).
//!
//! A run has a warm-up, whose answers are not counted, and a measured time. Answers count when they are read in it.

mod connection;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtime::Instant;
use runtime::net::TcpStream;

use crate::process;
use crate::report::{Latencies, LatencySummary, Report};
use stdx::random::SplitMix64;

/// How long the last answers are waited for, after the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Shorter intervals have too few answers for quantiles.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Intervals that are kept; answers after the last one count for the whole run only.
const INTERVALS_MAX: usize = 3_600;

/// Requests in flight on a connection at most: stream ids are not negative.
pub(crate) const DEPTH_MAX: u32 = 32_768;

/// Options that every load generator has.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadOptions {
    /// Connections to open.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Requests in flight on each connection, at most.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    pub depth: u32,
    /// Requests per second to intend over all connections; without it, each answer is followed by the next request.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Seconds to measure.
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// Measure this many operations instead of a duration.
    #[arg(long)]
    pub operations: Option<u64>,
    /// Seconds before measuring, under the same load.
    #[arg(long, default_value_t = 2.0)]
    pub warm_up: f64,
    /// Seconds of an interval: latencies are also reported for each one of the measured time.
    #[arg(long)]
    pub interval: Option<f64>,
    /// Seed of the choice of keys.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The process ids of the servers, with commas between: their CPU time per operation, together, is then printed.
    #[arg(long, value_delimiter = ',')]
    pub server_pid: Vec<u32>,
    /// The processor to run on.
    #[arg(long)]
    pub pin: Option<usize>,
    /// Microseconds to poll before sleeping; for a processor of our own.
    #[arg(long, default_value_t = 0)]
    pub spin_us: u64,
    /// A file to write the result to, as JSON.
    #[arg(long)]
    pub json_result: Option<std::path::PathBuf>,
}

/// Why a run measured nothing.
#[derive(Debug)]
pub enum LoadError {
    /// An option that cannot be met.
    Options(String),
    /// Something did not work with the server, or the system.
    Io(String, io::Error),
    /// The server answered something that its protocol does not have.
    Protocol(String),
    /// The server refused what the run needs.
    Refused(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Options(message) => formatter.write_str(message),
            LoadError::Io(what, error) => write!(formatter, "{what}: {error}"),
            LoadError::Protocol(message) => write!(formatter, "not an answer of this protocol: {message}"),
            LoadError::Refused(message) => write!(formatter, "the server refused: {message}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// What a server answered to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// A read that found nothing.
    Empty,
    /// A statement whose condition did not hold.
    NotApplied,
    /// An error, by its name and its text.
    Failed {
        name: String,
        text: String,
    },
}

/// One answer at the start of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its bytes.
    pub(crate) bytes: usize,
    /// Which request it answers; requests are numbered below the depth, and a number is used again when it is answered.
    pub(crate) slot: u16,
    pub(crate) outcome: Outcome,
}

/// How one connection speaks.
pub(crate) trait Protocol: 'static {
    /// Appends the request of a slot about a key.
    fn append_request(&mut self, out: &mut Vec<u8>, slot: u16, key: u64);
    /// The first answer of the input; `None` when it is not complete.
    fn next_answer(&mut self, input: &[u8]) -> Result<Option<Answer>, LoadError>;
}

/// Which keys are asked for, in which order.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// Each exactly once.
    Sequence { next: Rc<Cell<u64>>, end: u64 },
    /// Any, equally often.
    Uniform { random: SplitMix64, below: u64 },
    /// Any of a list, equally often: the keys of one shard.
    OneOf { random: SplitMix64, keys: Rc<Vec<u64>> },
    /// Each slot of each connection is a client with keys that no other client asks for: every `clients`th, from its
    /// own number on.
    Own {
        random: SplitMix64,
        client_of_slot_0: u64,
        clients: u64,
        below: u64,
    },
    /// Always this one.
    Only(u64),
}

impl Keys {
    /// The key of the next request in a slot.
    fn next(&mut self, slot: u16) -> Option<u64> {
        match self {
            Keys::Sequence { next, end } => {
                let key = next.get();
                next.set(key + 1);
                (key < *end).then_some(key)
            }
            Keys::Uniform { random, below } => Some(random.scaled(*below)),
            Keys::OneOf { random, keys } => keys.get(random.scaled(keys.len() as u64) as usize).copied(),
            Keys::Own {
                random,
                client_of_slot_0,
                clients,
                below,
            } => {
                let client = *client_of_slot_0 + u64::from(slot);
                let own = below.checked_sub(client)?.div_ceil(*clients);
                (own > 0).then(|| client + *clients * random.scaled(own))
            }
            Keys::Only(key) => Some(*key),
        }
    }
}

/// An open connection, ready for requests.
pub(crate) struct Client<P> {
    pub(crate) stream: TcpStream,
    pub(crate) protocol: P,
    pub(crate) keys: Keys,
}

/// How long, how much.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) depth: u16,
    pub(crate) rate: Option<f64>,
    pub(crate) warm_up: Duration,
    /// `None`: until the operations are done, or the keys are used up.
    pub(crate) duration: Option<Duration>,
    pub(crate) operations: Option<u64>,
    /// Latencies are also kept for each interval of this length.
    pub(crate) interval: Option<Duration>,
    /// The servers' processes, if their CPU time is asked for.
    pub(crate) server_pids: Vec<u32>,
}

impl LoadOptions {
    pub(crate) fn plan(&self) -> Result<Plan, LoadError> {
        let seconds = |name: &str, value: f64| {
            Duration::try_from_secs_f64(value).map_err(|_| LoadError::Options(format!("--{name} {value}: not a time")))
        };
        if let Some(rate) = self.rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(LoadError::Options(format!("--rate {rate}: expected a number above 0")));
        }
        let interval = self.interval.map(|value| seconds("interval", value)).transpose()?;
        if interval.is_some_and(|interval| interval < INTERVAL_MIN) {
            return Err(LoadError::Options(format!(
                "--interval {}: expected at least {} s",
                self.interval.unwrap_or_default(),
                INTERVAL_MIN.as_secs_f64()
            )));
        }
        Ok(Plan {
            interval,
            // A stream id is not negative, so 32,768 is the greatest depth.
            depth: u16::try_from(self.depth.min(DEPTH_MAX)).expect("at most 32,768"),
            rate: self.rate,
            warm_up: seconds("warm-up", self.warm_up)?,
            duration: if self.operations.is_some() {
                None
            } else {
                Some(seconds("duration", self.duration)?)
            },
            operations: self.operations,
            server_pids: self.server_pid.clone(),
        })
    }

    fn runtime_options(&self) -> runtime::Options {
        runtime::Options {
            shards: 1,
            pin_cpus: self.pin.map(|cpu| vec![cpu]),
            spin: Duration::from_micros(self.spin_us),
            ..runtime::Options::default()
        }
    }
}

/// What the connections of a run share.
struct Run {
    plan: Plan,
    measure_from: Instant,
    /// When no more requests are sent; moved to the present when the operations are done.
    end: Cell<Instant>,
    /// Requests that may still be sent in the measured time, when they are counted.
    operations_left: Cell<u64>,
    /// Answers read, measured or not.
    answered: Cell<u64>,
    unsent: Cell<u64>,
    results: RefCell<Results>,
}

struct Results {
    latency: Latencies,
    latency_max: u64,
    intervals: Vec<Interval>,
    errors: BTreeMap<String, u64>,
    first_error: Option<String>,
    reads_empty: u64,
    not_applied: u64,
    answers_of_slowest_client: Option<u64>,
    last_answer: Instant,
}

/// Latencies of the requests that were due in one interval.
#[derive(Default)]
struct Interval {
    latency: Latencies,
    max: u64,
}

impl Results {
    fn add_to_interval(&mut self, position: usize, latency: u64) {
        if position >= INTERVALS_MAX {
            return;
        }
        if position >= self.intervals.len() {
            self.intervals.resize_with(position + 1, Interval::default);
        }
        let interval = &mut self.intervals[position];
        interval.latency.add(latency, 1);
        interval.max = interval.max.max(latency);
    }
}

impl Run {
    /// Whether another request may be sent; takes it from those that are left.
    fn take_operation(&self, now: Instant) -> bool {
        if now >= self.end.get() {
            return false;
        }
        if self.plan.operations.is_none() || now < self.measure_from {
            return true;
        }
        let left = self.operations_left.get();
        if left == 0 {
            self.end.set(now);
            return false;
        }
        self.operations_left.set(left - 1);
        true
    }

    /// Counts an answer to a request that was due at `due`. Whether it is one of the measured answers, and no error.
    fn count(&self, results: &mut Results, due: Instant, now: Instant, outcome: Outcome) -> bool {
        self.answered.set(self.answered.get() + 1);
        let measured = if self.plan.operations.is_some() {
            due >= self.measure_from
        } else {
            now < self.end.get()
        };
        let measured = measured && now >= self.measure_from;
        if measured {
            let latency = now.as_nanos().saturating_sub(due.as_nanos());
            results.latency.add(latency, 1);
            results.latency_max = results.latency_max.max(latency);
            if let Some(interval) = self.plan.interval {
                let position = due.saturating_duration_since(self.measure_from).as_nanos() / interval.as_nanos();
                results.add_to_interval(usize::try_from(position).unwrap_or(usize::MAX), latency);
            }
            results.last_answer = now;
            results.reads_empty += u64::from(outcome == Outcome::Empty);
            results.not_applied += u64::from(outcome == Outcome::NotApplied);
        }
        if let Outcome::Failed { name, text } = outcome {
            results.first_error.get_or_insert_with(|| format!("{name}: {text}"));
            *results.errors.entry(name).or_default() += 1;
            return false;
        }
        measured
    }
}

/// A moment of the run: what had been done, and what it had cost.
struct Sample {
    answered: u64,
    server_cpu_us: Option<u64>,
    client_cpu_us: u64,
}

impl Sample {
    fn take(run: &Run) -> Result<Sample, LoadError> {
        let cpu = |pid: &str| process::cpu_time_us(pid).map_err(|error| LoadError::Io("CPU time".to_string(), error));
        let pids = &run.plan.server_pids;
        let server_cpu_us: u64 = pids.iter().map(|pid| cpu(&pid.to_string())).sum::<Result<_, _>>()?;
        Ok(Sample {
            answered: run.answered.get(),
            server_cpu_us: (!pids.is_empty()).then_some(server_cpu_us),
            client_cpu_us: cpu("self")?,
        })
    }
}

/// Runs a load over open connections until its plan is fulfilled, and closes them.
pub(crate) async fn drive<P: Protocol>(
    workload: String,
    clients: Vec<Client<P>>,
    plan: Plan,
) -> Result<Report, LoadError> {
    drive_and_keep(workload, clients, plan).await.map(|(report, _)| report)
}

/// Runs a load over open connections until its plan is fulfilled. The connections of a closed loop come back.
pub(crate) async fn drive_and_keep<P: Protocol>(
    workload: String,
    clients: Vec<Client<P>>,
    plan: Plan,
) -> Result<(Report, Vec<TcpStream>), LoadError> {
    let connections = u32::try_from(clients.len()).unwrap_or(u32::MAX);
    let start = runtime::now();
    let measure_from = later(start, plan.warm_up);
    let end = plan
        .duration
        .map_or_else(|| later(start, FOREVER), |duration| later(measure_from, duration));
    let timed = plan.duration.is_some();
    let run = Rc::new(Run {
        measure_from,
        end: Cell::new(end),
        operations_left: Cell::new(plan.operations.unwrap_or(u64::MAX)),
        answered: Cell::new(0),
        unsent: Cell::new(0),
        results: RefCell::new(Results {
            latency: Latencies::default(),
            latency_max: 0,
            intervals: Vec::new(),
            errors: BTreeMap::new(),
            first_error: None,
            reads_empty: 0,
            not_applied: 0,
            answers_of_slowest_client: None,
            last_answer: measure_from,
        }),
        plan,
    });
    let mut tasks = Vec::new();
    for (position, client) in (0_u32..).zip(clients) {
        let run = Rc::clone(&run);
        tasks.push(runtime::spawn(async move {
            match run.plan.rate {
                Some(rate) => {
                    let interval = f64::from(connections) / rate;
                    let first_due = later(start, Duration::from_secs_f64(f64::from(position) / rate));
                    connection::open_loop(client, &run, first_due, interval)
                        .await
                        .map(|()| None)
                }
                None => connection::closed_loop(client, &run).await.map(Some),
            }
        }));
    }
    runtime::sleep_until(measure_from).await;
    let before = Sample::take(&run)?;
    let mut after = None;
    if timed {
        runtime::sleep_until(end).await;
        after = Some(Sample::take(&run)?);
    }
    let mut streams = Vec::new();
    for task in tasks {
        let ended = if timed {
            let waited = runtime::timeout(DRAIN_TIMEOUT, task).await;
            waited.map_err(|_| {
                let error = io::Error::from(io::ErrorKind::TimedOut);
                LoadError::Io("waiting for the last answers".to_string(), error)
            })?
        } else {
            task.await
        };
        streams.extend(ended?);
    }
    let after = match after {
        Some(after) => after,
        None => Sample::take(&run)?,
    };
    Ok((summarize(workload, connections, &run, &before, &after), streams))
}

/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

fn later(instant: Instant, duration: Duration) -> Instant {
    Instant::from_nanos(instant.as_nanos() + u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2))
}

fn summarize(workload: String, connections: u32, run: &Run, before: &Sample, after: &Sample) -> Report {
    let mut results = run.results.borrow_mut();
    // Latencies are counted between exactly these moments; the samples of CPU time are taken a little later.
    let last = if run.plan.duration.is_some() {
        run.end.get()
    } else {
        results.last_answer
    };
    let seconds = last.saturating_duration_since(run.measure_from).as_secs_f64().max(1e-9);
    let answered = after.answered.saturating_sub(before.answered).max(1) as f64;
    let operations = results.latency.total();
    let server_cpu_us_per_operation = match (before.server_cpu_us, after.server_cpu_us) {
        (Some(before), Some(after)) => Some(after.saturating_sub(before) as f64 / answered),
        _ => None,
    };
    let errors = std::mem::take(&mut results.errors);
    Report {
        workload,
        connections,
        depth: u32::from(run.plan.depth),
        rate_intended: run.plan.rate,
        seconds,
        operations,
        rate: operations as f64 / seconds,
        latency: LatencySummary::of(&results.latency, results.latency_max),
        intervals: results
            .intervals
            .iter()
            .map(|interval| LatencySummary::of(&interval.latency, interval.max))
            .collect(),
        timeouts: errors
            .iter()
            .filter(|(name, _)| is_timeout(name))
            .map(|(_, count)| count)
            .sum(),
        errors,
        first_error: results.first_error.take(),
        reads_empty: results.reads_empty,
        not_applied: results.not_applied,
        answers_of_slowest_client: results.answers_of_slowest_client,
        unsent: run.unsent.get(),
        server_cpu_us_per_operation,
        client_cpu_us_per_operation: after.client_cpu_us.saturating_sub(before.client_cpu_us) as f64 / answered,
    }
}

/// Whether an error of this name says that replicas did not answer in time.
fn is_timeout(name: &str) -> bool {
    name.contains("TIMEOUT") || name == "CAS_WRITE_UNKNOWN"
}

/// Runs a load generator's future on a shard of its own, and writes the result where the options say.
pub(crate) fn run_on_shard<F, Fut>(options: &LoadOptions, main: F) -> Result<Report, LoadError>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Report, LoadError>> + 'static,
{
    let slot = Arc::new(Mutex::new(None));
    let filled = Arc::clone(&slot);
    runtime::run(options.runtime_options(), move |_| {
        let filled = Arc::clone(&filled);
        let future = main();
        Box::pin(async move {
            let result = future.await;
            *filled.lock().expect("no thread panics while holding it") = Some(result);
        })
    })
    .map_err(|error| LoadError::Io("starting the load generator".to_string(), error))?;
    let result = slot.lock().expect("no thread panics while holding it").take();
    let report = result.expect("the shard ends after its main future, which fills the slot")?;
    if let Some(path) = &options.json_result {
        let text = serde_json::to_vec_pretty(&report).expect("a report has only text keys and numbers");
        runtime::fs::write(path, &text).map_err(|error| LoadError::Io(path.display().to_string(), error))?;
    }
    Ok(report)
}

/// The first address of `host:port`; the port may be left out where there is a usual one.
pub(crate) fn resolve(host_and_port: &str, usual_port: Option<u16>) -> Result<SocketAddr, LoadError> {
    let io_error = |error| LoadError::Io(format!("--connect {host_and_port}"), error);
    let addresses = match usual_port {
        Some(port) if !host_and_port.contains(':') => (host_and_port, port).to_socket_addrs(),
        _ => host_and_port.to_socket_addrs(),
    };
    let mut addresses = addresses.map_err(io_error)?;
    addresses
        .next()
        .ok_or_else(|| io_error(io::Error::from(io::ErrorKind::NotFound)))
}
