//! What a run of a load generator measured, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use stdx::histogram::{Histogram, buckets_of};

/// Latencies of a run, in microseconds.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "quantiles are called by their names")]
pub struct LatencySummary {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Latencies in nanoseconds, exact to a hundredth.
pub(crate) type Latencies = Histogram<7, { buckets_of(7, 64) }>;

impl LatencySummary {
    /// Of these latencies, of which `max` is the greatest.
    pub(crate) fn of(histogram: &Latencies, max: u64) -> LatencySummary {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        LatencySummary {
            mean_us: us(histogram.mean()),
            p50_us: us(histogram.quantile(0.5).min(max)),
            p90_us: us(histogram.quantile(0.9).min(max)),
            p99_us: us(histogram.quantile(0.99).min(max)),
            p999_us: us(histogram.quantile(0.999).min(max)),
            max_us: us(max),
        }
    }
}

/// What a run measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The server's protocol, and what was done.
    pub workload: String,
    /// Connections that were open.
    pub connections: u32,
    /// Requests in flight on each connection, at most.
    pub depth: u32,
    /// Requests per second that were intended; `None` when each answer was followed by the next request at once.
    pub rate_intended: Option<f64>,
    /// Seconds measured.
    pub seconds: f64,
    /// Answers in that time.
    pub operations: u64,
    /// Answers per second.
    pub rate: f64,
    /// From the moment a request was to be sent, to the moment its answer was read.
    pub latency: LatencySummary,
    /// The latency of the requests that were due in each interval, if `--interval` was given.
    pub intervals: Vec<LatencySummary>,
    /// Answers that were errors, by what the server called them; those of the warm-up too.
    pub errors: BTreeMap<String, u64>,
    /// Errors that say that replicas did not answer in time.
    pub timeouts: u64,
    /// The text of the first error.
    pub first_error: Option<String>,
    /// Reads that found nothing.
    pub reads_empty: u64,
    /// Statements whose condition did not hold.
    pub not_applied: u64,
    /// Good answers that the client got that got the fewest; a client is one request in flight. Of closed loops.
    pub answers_of_slowest_client: Option<u64>,
    /// Requests that were due before the end and could not be sent, because all in flight were unanswered.
    pub unsent: u64,
    /// The servers' CPU time per answer, in microseconds, together, if their process ids were given.
    pub server_cpu_us_per_operation: Option<f64>,
    /// Our own CPU time per answer, in microseconds: if it is the reciprocal of the rate, the load generator is the
    /// limit.
    pub client_cpu_us_per_operation: f64,
}

impl Report {
    /// Answers that were errors.
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {} connections x {}",
            self.workload, self.connections, self.depth
        )?;
        match self.rate_intended {
            Some(rate) => writeln!(formatter, ", {rate:.0}/s intended")?,
            None => writeln!(formatter, ", as fast as answered")?,
        }
        writeln!(
            formatter,
            "  {:.0} operations/s ({} in {:.2} s), {} errors, {} of them timeouts",
            self.rate,
            self.operations,
            self.seconds,
            self.errors_total(),
            self.timeouts
        )?;
        let latency = &self.latency;
        writeln!(
            formatter,
            "  latency us: mean {:.0}  p50 {:.0}  p90 {:.0}  p99 {:.0}  p99.9 {:.0}  max {:.0}",
            latency.mean_us, latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us
        )?;
        if let Some(cpu) = self.server_cpu_us_per_operation {
            writeln!(formatter, "  server CPU {cpu:.2} us per operation")?;
        }
        writeln!(
            formatter,
            "  client CPU {:.2} us per operation",
            self.client_cpu_us_per_operation
        )?;
        for (name, count) in &self.errors {
            writeln!(formatter, "  error {name}: {count}")?;
        }
        if let Some(first) = &self.first_error {
            writeln!(formatter, "  first error: {first}")?;
        }
        if self.reads_empty > 0 {
            writeln!(formatter, "  {} reads found nothing", self.reads_empty)?;
        }
        if self.not_applied > 0 {
            writeln!(formatter, "  {} conditions did not hold", self.not_applied)?;
        }
        if self.unsent > 0 {
            writeln!(
                formatter,
                "  {} requests were due and could not be sent: the server is slower than the rate",
                self.unsent
            )?;
        }
        Ok(())
    }
}
