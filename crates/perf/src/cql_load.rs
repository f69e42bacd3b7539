//! `ceto perf cql`: load on any server that speaks CQL: ceto, ScyllaDB, Apache Cassandra.
//!
//! The table and the statements are those of the published figures: `ks.cf ("KEY" blob PRIMARY KEY, "C0".."C4" blob)`, keys of
//! 8 bytes, values of 34; a read selects all columns of one key, a write updates all of them. Both are prepared, and their
//! EXECUTE frames (protocol version 4) are encoded once: a request is a copy with another stream id and key.

mod client;
mod frames;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use types::token;

use crate::load::{self, Client, Keys, LoadError, LoadOptions, Plan};
use crate::report::Report;
use client::{Handshake, Setup};
use frames::{ExecuteFrame, Frames};

/// Connections are opened again and again until each shard has its share; at most this many times the number needed.
const SHARD_ATTEMPTS_MAX: u32 = 20;

/// Most in flight on a connection while the table is filled: polite to a server that sheds load.
const POPULATE_DEPTH_MAX: u16 = 128;

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
    /// The server, HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: String,
    /// What to do.
    #[arg(long, value_enum, default_value = "read")]
    pub workload: Workload,
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
    #[arg(long, default_value = "QUORUM")]
    pub consistency: String,
    /// The table, KEYSPACE.TABLE; both are made if they do not exist.
    #[arg(long, default_value = "ks.cf")]
    pub table: String,
    /// Replicas, if the keyspace is made.
    #[arg(long, default_value_t = 1)]
    pub replication_factor: u32,
    /// Reads: take the table as it is, do not fill it first.
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
    let consistency = frames::consistency_number(&options.consistency)?;
    let address = load::resolve(&options.connect)?;
    let setup = Setup {
        user: options.user.clone(),
        password: options.password.clone(),
    };
    let mut control = setup.open(address).await?;
    let statements = Statements::of(&options);
    for statement in &statements.create {
        control.query(statement).await?;
    }
    let read_id = control.prepare(&statements.read).await?;
    let write_id = control.prepare(&statements.write).await?;
    let write = ExecuteFrame::new(&write_id, consistency, &values(&options));
    let read = ExecuteFrame::new(&read_id, consistency, &[]);

    let connections = Connections::open(&setup, address, &options).await?;
    let connections = if options.workload == Workload::Read && !options.no_populate {
        connections.populate(&write, &options).await?
    } else {
        connections
    };
    let (frame, expects_row) = match options.workload {
        Workload::Read => (read, true),
        Workload::Write => (write, false),
    };
    let name = match options.workload {
        Workload::Read => "CQL read",
        Workload::Write => "CQL write",
    };
    let keys = connections.keys(&options);
    let clients = connections.into_clients(keys, || Frames::new(frame.clone(), expects_row));
    load::drive(
        format!("{name} of {} x {} bytes", options.columns, options.value_bytes),
        clients,
        plan,
    )
    .await
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
            write: format!("UPDATE {table} SET {} WHERE \"KEY\" = ?", list(" = ?")),
        }
    }
}

/// The connections of a run, each with the shard it reached.
struct Connections {
    open: Vec<Handshake>,
    shard_aware: bool,
}

impl Connections {
    async fn open(setup: &Setup, address: std::net::SocketAddr, options: &Options) -> Result<Connections, LoadError> {
        let wanted = options.load.connections;
        let mut open = Vec::new();
        if !options.shard_aware {
            for _ in 0..wanted {
                open.push(setup.open(address).await?);
            }
            return Ok(Connections {
                open,
                shard_aware: false,
            });
        }
        let first = setup.open(address).await?;
        let Some(sharding) = first.sharding else {
            return Err(LoadError::Options(
                "--shard-aware: the server announces no shards".to_string(),
            ));
        };
        let shard_address = match sharding.port {
            Some(port) => std::net::SocketAddr::new(address.ip(), port),
            None => address,
        };
        // On the shard-aware port the source port decides, elsewhere the server: both spread, so we keep what is needed.
        let per_shard = wanted.div_ceil(sharding.shards);
        let mut counts = vec![0_u32; sharding.shards as usize];
        for _ in 0..wanted * SHARD_ATTEMPTS_MAX {
            if open.len() as u32 == wanted {
                break;
            }
            let connection = setup.open(shard_address).await?;
            let shard = connection.sharding.map_or(0, |sharding| sharding.shard) as usize;
            if let Some(count) = counts.get_mut(shard)
                && *count < per_shard
            {
                *count += 1;
                open.push(connection);
            }
        }
        if counts.contains(&0) || (open.len() as u32) < wanted {
            let message = format!("--shard-aware: {wanted} connections did not spread over the shards: {counts:?}");
            return Err(LoadError::Options(message));
        }
        Ok(Connections {
            open,
            shard_aware: true,
        })
    }

    /// Writes every key once.
    async fn populate(self, write: &ExecuteFrame, options: &Options) -> Result<Connections, LoadError> {
        let next = Rc::new(Cell::new(0));
        let keys = vec![
            Keys::Sequence {
                next,
                end: options.partitions
            };
            self.open.len()
        ];
        let shard_aware = self.shard_aware;
        let shardings: Vec<_> = self.open.iter().map(|connection| connection.sharding).collect();
        let plan = Plan {
            depth: options.load.plan()?.depth.min(POPULATE_DEPTH_MAX),
            rate: None,
            warm_up: Duration::ZERO,
            duration: None,
            operations: None,
            server_pid: None,
        };
        let clients = self.into_clients(keys, || Frames::new(write.clone(), false));
        let (report, streams) = load::drive_and_keep("populate".to_string(), clients, plan).await?;
        if let Some(first) = report.first_error {
            return Err(LoadError::Refused(format!("filling the table: {first}")));
        }
        let open = streams
            .into_iter()
            .zip(shardings)
            .map(|(stream, sharding)| Handshake::again(stream, sharding));
        Ok(Connections {
            open: open.collect(),
            shard_aware,
        })
    }

    /// Which keys each connection asks for.
    fn keys(&self, options: &Options) -> Vec<Keys> {
        let seed = |position: usize| {
            options
                .load
                .seed
                .wrapping_mul(0x1_0000_0001)
                .wrapping_add(position as u64)
        };
        let all = |position| Keys::Uniform {
            state: seed(position),
            below: options.partitions,
        };
        let Some(sharding) = self
            .open
            .first()
            .and_then(|first| first.sharding)
            .filter(|_| self.shard_aware)
        else {
            return (0..self.open.len()).map(all).collect();
        };
        let mut of_shard = vec![Vec::new(); sharding.shards as usize];
        for key in 0..options.partitions {
            let shard = token::shard_of(
                token::token_of(&key.to_be_bytes()),
                sharding.shards,
                sharding.ignore_msb,
            );
            of_shard[shard as usize].push(key);
        }
        let of_shard: Vec<Rc<Vec<u64>>> = of_shard.into_iter().map(Rc::new).collect();
        let one_of = |(position, connection): (usize, &Handshake)| {
            let shard = connection.sharding.map_or(0, |sharding| sharding.shard);
            Keys::OneOf {
                state: seed(position),
                keys: Rc::clone(&of_shard[shard as usize]),
            }
        };
        self.open.iter().enumerate().map(one_of).collect()
    }

    fn into_clients(self, keys: Vec<Keys>, frames: impl Fn() -> Frames) -> Vec<Client<Frames>> {
        let pairs = self.open.into_iter().zip(keys);
        pairs
            .map(|(connection, keys)| Client {
                stream: connection.stream,
                protocol: frames(),
                keys,
            })
            .collect()
    }
}
