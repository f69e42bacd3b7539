//! `ceto perf cql`: load on any server that speaks CQL: ceto, ScyllaDB, Apache Cassandra; on one node or several.
//!
//! The table and the statements are those of the published figures: `ks.cf ("KEY" blob PRIMARY KEY, "C0".."C4" blob)`,
//! keys of 8 bytes, values of 34; a read selects all columns of one key, a write updates all of them, a conditional
//! write does if the row exists. They are prepared on every host, and their EXECUTE frames (protocol version 4) are
//! encoded once: a request is a copy with another stream id and key.
//!
//! Connections go round over the hosts. A *client* is one request in flight: a slot of a connection, `connections x
//! depth` of them.

mod client;
mod connections;
mod frames;

use std::net::SocketAddr;
use std::time::Duration;

use crate::load::{self, LoadError, LoadOptions};
use crate::report::Report;
use client::{Handshake, Setup};
use connections::Connections;
use frames::{ExecuteFrame, Expected, Frames};

const PORT: u16 = 9042;

/// How long a host may take to learn of the table that another one made.
const SCHEMA_WAIT: Duration = Duration::from_secs(30);
const SCHEMA_POLL: Duration = Duration::from_millis(100);

/// What to do to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Select all columns of a key that exists.
    Read,
    /// Update all columns of a key.
    Write,
}

/// Options of `ceto perf cql`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The servers, with commas between; connections are spread over them.
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', required = true)]
    pub connect: Vec<String>,
    /// What to do.
    #[arg(long, value_enum, default_value = "read")]
    pub workload: Workload,
    /// Conditional writes: update all columns of a key IF EXISTS. Each client (connections x depth) has keys of its
    /// own.
    #[arg(long, conflicts_with = "workload")]
    pub lwt: bool,
    /// All clients want the same key.
    #[arg(long)]
    pub contended: bool,
    /// Keys in the table.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub partitions: u64,
    /// Columns besides the key.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub columns: u16,
    /// Bytes of each value.
    #[arg(long, default_value_t = 34, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub value_bytes: u32,
    /// Consistency level of the requests.
    #[arg(long, alias = "consistency-level", default_value = "QUORUM")]
    pub consistency: String,
    /// The table, KEYSPACE.TABLE; both are made if they do not exist.
    #[arg(long, default_value = "ks.cf")]
    pub table: String,
    /// Replicas, if the keyspace is made.
    #[arg(long, default_value_t = 1)]
    pub replication_factor: u32,
    /// Reads and conditional writes: take the table as it is, do not fill it first.
    #[arg(long)]
    pub no_populate: bool,
    /// Ask each shard of the server for its own keys, if the server says how it places them.
    #[arg(long)]
    pub shard_aware: bool,
    /// User name, if the server wants one.
    #[arg(long, default_value = "cassandra")]
    pub user: String,
    /// Password of the user.
    #[arg(long, default_value = "cassandra")]
    pub password: String,
    /// How much load, and what to measure.
    #[command(flatten)]
    pub load: LoadOptions,
}

/// Runs the load, and returns what was measured.
///
/// # Errors
/// When the server cannot be reached, refuses the set-up, or breaks off.
pub fn run(options: Options) -> Result<Report, LoadError> {
    let load = options.load.clone();
    load::run_on_shard(&load, move || run_on(options.clone()))
}

async fn run_on(options: Options) -> Result<Report, LoadError> {
    let plan = options.load.plan()?;
    let job = Job::of(&options);
    let clients = u64::from(options.load.connections) * u64::from(plan.depth);
    if job.own_keys(&options) && clients > options.partitions {
        let partitions = options.partitions;
        let message = format!("--partitions {partitions}: each of {clients} clients wants a key of its own");
        return Err(LoadError::Options(message));
    }
    let setup = Setup {
        user: options.user.clone(),
        password: options.password.clone(),
    };
    let hosts = Host::prepare_all(&setup, job, &options).await?;
    let mut connections = Connections::open(&setup, &hosts, &options).await?;
    if job.needs_rows() && !options.no_populate {
        connections = connections.populate(&hosts, &options).await?;
    }
    let keys = connections.keys(job.own_keys(&options), &options);
    let clients = connections.into_clients(keys, |host| Frames::new(hosts[host].execute.clone(), job.expected()));
    let contended = if options.contended { ", one key" } else { "" };
    let (name, columns, bytes) = (job.name(), options.columns, options.value_bytes);
    load::drive(
        format!("CQL {name} of {columns} x {bytes} bytes{contended}"),
        clients,
        plan,
    )
    .await
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    Read,
    Write,
    ConditionalWrite,
}

impl Job {
    fn of(options: &Options) -> Job {
        match options.workload {
            _ if options.lwt => Job::ConditionalWrite,
            Workload::Read => Job::Read,
            Workload::Write => Job::Write,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Job::Read => "read",
            Job::Write => "write",
            Job::ConditionalWrite => "conditional write",
        }
    }

    /// Whether it wants rows that exist.
    fn needs_rows(self) -> bool {
        self != Job::Write
    }

    /// Whether clients must not meet.
    fn own_keys(self, options: &Options) -> bool {
        self == Job::ConditionalWrite && !options.contended
    }

    fn expected(self) -> Expected {
        match self {
            Job::Read => Expected::Row,
            Job::Write => Expected::Nothing,
            Job::ConditionalWrite => Expected::Applied,
        }
    }
}

/// One of the servers, with what it prepared: ids of statements are its own.
struct Host {
    address: SocketAddr,
    execute: ExecuteFrame,
    /// The statement that fills the table.
    fill: ExecuteFrame,
}

impl Host {
    /// Makes the table through the first host, and prepares on all of them.
    async fn prepare_all(setup: &Setup, job: Job, options: &Options) -> Result<Vec<Host>, LoadError> {
        let consistency = frames::consistency_number(&options.consistency)?;
        let statements = Statements::of(options);
        let values = values(options);
        let mut hosts = Vec::with_capacity(options.connect.len());
        for name in &options.connect {
            let address = load::resolve(name, Some(PORT))?;
            let mut control = setup.open(address).await?;
            if hosts.is_empty() {
                for statement in &statements.create {
                    control.query(statement).await?;
                }
            }
            let text = match job {
                Job::Read => &statements.read,
                Job::Write => &statements.write,
                Job::ConditionalWrite => &statements.conditional_write,
            };
            let id = prepare_when_known(&mut control, text).await?;
            let fill_id = control.prepare(&statements.write).await?;
            let bound = if job == Job::Read { &[] } else { values.as_slice() };
            hosts.push(Host {
                address,
                execute: ExecuteFrame::new(&id, consistency, bound),
                fill: ExecuteFrame::new(&fill_id, consistency, &values),
            });
        }
        Ok(hosts)
    }
}

/// A host may not know yet what another one has just made.
async fn prepare_when_known(control: &mut Handshake, text: &str) -> Result<Vec<u8>, LoadError> {
    let deadline = runtime::now() + SCHEMA_WAIT;
    loop {
        match control.prepare(text).await {
            Err(LoadError::Refused(_)) if runtime::now() < deadline => runtime::sleep(SCHEMA_POLL).await,
            result => return result,
        }
    }
}

/// The values of every row: bytes by chance, so that a server's compression has no easier work than with real data.
fn values(options: &Options) -> Vec<Vec<u8>> {
    let value = |_| {
        let mut bytes = vec![0; options.value_bytes as usize];
        runtime::random_bytes(&mut bytes);
        bytes
    };
    (0..options.columns).map(value).collect()
}

/// The texts of a run.
struct Statements {
    create: Vec<String>,
    read: String,
    write: String,
    conditional_write: String,
}

impl Statements {
    fn of(options: &Options) -> Statements {
        let keyspace = options.table.split('.').next().unwrap_or("ks");
        let table = &options.table;
        let columns: Vec<String> = (0..options.columns).map(|column| format!("\"C{column}\"")).collect();
        let list = |each: &str| {
            columns
                .iter()
                .map(|column| format!("{column}{each}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let read_columns = columns.join(", ");
        let write = format!("UPDATE {table} SET {} WHERE \"KEY\" = ?", list(" = ?"));
        Statements {
            create: vec![
                format!(
                    "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
                     {{'class': 'NetworkTopologyStrategy', 'replication_factor': {}}}",
                    options.replication_factor
                ),
                format!(
                    "CREATE TABLE IF NOT EXISTS {table} (\"KEY\" blob PRIMARY KEY, {})",
                    list(" blob")
                ),
            ],
            read: format!("SELECT {read_columns} FROM {table} WHERE \"KEY\" = ?"),
            conditional_write: format!("{write} IF EXISTS"),
            write,
        }
    }
}
