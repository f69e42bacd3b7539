//! `ceto perf simple-query`: what a statement costs inside the server, without the network.
//!
//! A whole node starts in a temporary workdir, without sockets. Each shard prepares the statement and then does batches
//! of `concurrency` operations, as the CQL server does with the requests of its socket reads: look the prepared
//! statement up by its id, check the consistency level, bind a random key that this shard owns, execute, and write the
//! answer frame; after a batch the writes go to the commitlog and the shard turns to other work.
//!
//! Table `ks.cf ("KEY" blob PRIMARY KEY, "C0".."C4" blob)`; keys are sequence numbers of 8 bytes, values five fixed
//! blobs of 34, five counters, a map or a user-defined type. All workloads but writes find a table that was filled.
//! Scans read the whole of `ks.rows`, which has a hundred rows in each partition: one operation is one scan.

mod report;
mod run_on_shard;
mod statements;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use config::{Machine, ServerArgs};
use cql_protocol::Consistency;
use query::Engine;

pub use report::Report;
use run_on_shard::Bench;

use crate::temporary::Directory;

/// Options of `ceto perf simple-query`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Write instead of reading.
    #[arg(long, group = "workload")]
    pub write: bool,
    /// Delete instead of reading.
    #[arg(long, group = "workload")]
    pub delete: bool,
    /// Write on a condition that holds.
    #[arg(long, group = "workload")]
    pub conditional: bool,
    /// Read rows that are in an sstable alone: flush the table before, and keep no rows in the row cache.
    #[arg(long, conflicts_with_all = ["write", "prepare"])]
    pub flush: bool,
    /// Parse and prepare the statement of a read, each time another one.
    #[arg(long, group = "workload")]
    pub prepare: bool,
    /// Read a whole table instead of a row.
    #[arg(long, group = "workload", value_enum, value_name = "WHAT")]
    pub scan: Option<Scan>,
    /// What a row has.
    #[arg(long, value_enum, default_value = "blobs")]
    pub values: Values,
    /// Secondary indexes of the table, each on one of its blobs.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub indexes: u32,
    /// Number of shards.
    #[arg(short = 'c', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub smp: u32,
    /// Memory of the whole node.
    #[arg(short = 'm', long, default_value = "1G")]
    pub memory: String,
    /// Keys in the table.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub partitions: u64,
    /// Operations of a shard that are executed together.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: u32,
    /// Seconds to measure, a figure for each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub duration: u32,
    /// Measure this many operations instead of a duration, over all shards.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// Consistency level of the operations.
    #[arg(long, default_value = "QUORUM", value_parser = consistency_level)]
    pub consistency_level: Consistency,
    /// Interface to the kernel: auto, io_uring or epoll.
    #[arg(long, default_value = "auto")]
    pub runtime_backend: String,
    /// Neither pin shards nor let them spin.
    #[arg(long)]
    pub overprovisioned: bool,
    /// Where to make the node's directory, which is removed at the end [default: where temporary files are].
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// A file to write the result to, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json_result: Option<PathBuf>,
}

fn consistency_level(text: &str) -> Result<Consistency, String> {
    text.parse()
        .map_err(|_| "expected a level such as ONE, QUORUM or LOCAL_QUORUM".to_owned())
}

/// What a scan does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Scan {
    /// `count(*)`.
    Count,
    /// A sum for each partition.
    Group,
    /// A filter that no row passes.
    Filter,
}

/// What a row has besides its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Values {
    /// Five blobs of 34 bytes.
    Blobs,
    /// Five counters: writes add to them.
    Counters,
    /// A map of 16 texts.
    Map,
    /// A user-defined type with 8 texts.
    Udt,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    Read,
    Write,
    Delete,
    Conditional,
    Prepare,
    Scan(Scan),
}

impl Options {
    fn workload(&self) -> Workload {
        if let Some(scan) = self.scan {
            return Workload::Scan(scan);
        }
        let chosen = [
            (self.write, Workload::Write),
            (self.delete, Workload::Delete),
            (self.conditional, Workload::Conditional),
            (self.prepare, Workload::Prepare),
        ];
        let chosen = chosen.into_iter().find(|(is_chosen, _)| *is_chosen);
        chosen.map_or(Workload::Read, |(_, workload)| workload)
    }
}

/// Starts a node, measures it, and stops it.
///
/// # Errors
/// When the node does not start with these options, an operation fails, or the result cannot be written.
pub fn run(options: &Options) -> Result<Report, String> {
    let directory = Directory::create(options.workdir.as_deref())?;
    let mut args = ServerArgs::default()
        .with("workdir", directory.path().to_string_lossy())
        .with("smp", options.smp.to_string())
        .with("memory", &options.memory)
        .with("backend", &options.runtime_backend);
    args.set("overprovisioned", options.overprovisioned.then_some("true"));
    let config = config::load(&args, &Machine::detect()).map_err(|error| error.to_string())?;
    let bench = Arc::new(Bench::new(options, config.smp));
    let on_shard = bench.clone();
    let main = move |engine: Rc<Engine>| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let bench = on_shard.clone();
        Box::pin(async move { bench.run(engine).await })
    };
    node::embed(config, Arc::new(main))?;
    let report = Report::of(options, bench.results()?);
    if let Some(path) = &options.json_result {
        runtime::fs::write(path, report.json().as_bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(report)
}

/// What one shard measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardResult {
    pub(crate) shard: u32,
    /// Operations per second, one window after the other.
    pub(crate) windows: Vec<f64>,
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// None when the allocator does not count.
    pub(crate) allocations: Option<u64>,
    /// In user mode; None when the processor does not count.
    pub(crate) instructions: Option<u64>,
}

/// What all shards measured, or why one did not.
pub(crate) type Results = Mutex<Result<Vec<ShardResult>, String>>;

#[cfg(test)]
mod tests;
