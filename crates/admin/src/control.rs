//! What operators may look up in a running node and switch on and off in it: a part of [`Operator`](crate::Operator).
//!
//! Switches are for the node that is asked and are forgotten when it restarts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tasks::Class;
use uuid::Uuid;

use crate::operator::{Local, Selection};

/// An option of the node, by one of its spellings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeOption {
    /// The spelling.
    pub name: &'static str,
    /// The form of its values.
    pub kind: &'static str,
    /// Where the value is from.
    pub source: &'static str,
    /// The value as JSON, if it has one.
    pub value: Option<String>,
}

/// A node's switches, and what can be looked up in it. Lives on shard 0, sees the node.
pub trait Control {
    /// Stops serving clients, leaves the cluster's traffic, and flushes everything. The process stays until it is
    /// stopped. Resolves when that is done.
    fn drain(&self) -> Local<'_, Result<(), String>>;
    /// Listens for CQL clients, or closes their connections and stops listening. Resolves when all shards have done so.
    fn set_native_transport(&self, is_enabled: bool) -> Local<'_, Result<(), String>>;
    /// The options, each of its spellings.
    fn options(&self) -> Vec<NodeOption>;
    /// Which part of the requests is traced without their clients asking for it, 0 to 1.
    fn trace_probability(&self) -> f64;
    /// Sets it. False when it is not from 0 to 1.
    fn set_trace_probability(&self, probability: f64) -> bool;
    /// The addresses that the node asks for its cluster when it starts, this node's own left out.
    fn seeds(&self) -> Vec<String>;
    /// Bytes of the sstables of each member that says so in time, this node included.
    fn loads(&self) -> Local<'_, BTreeMap<Uuid, u64>>;
    /// The token of a partition key as text, where several columns are separated by colons.
    fn token_of(&self, keyspace: &str, table: &str, key: &str) -> Result<i64, String>;
    /// The data files of this node that have a partition.
    fn sstables_of(&self, keyspace: String, table: String, key: String) -> Local<'_, Result<Vec<String>, String>>;
    /// Lets compactions of tables begin by themselves, or not.
    fn set_auto_compaction(&self, what: Selection, is_enabled: bool) -> Local<'_, ()>;
    /// The compactions that ended well, in any order.
    fn compaction_history(&self) -> Local<'_, Result<Vec<PastCompaction>, String>>;
    /// The connections of CQL clients.
    fn clients(&self) -> Vec<Client>;
    /// Counts which partitions of a table are read and written for a time.
    fn top_partitions(
        &self,
        keyspace: String,
        table: String,
        sampling: Sampling,
    ) -> Local<'_, Result<TopPartitions, String>>;
}

/// What tools for Cassandra call the requests of CQL clients.
pub const REQUESTS_POOL: &str = "Native-Transport-Requests";

/// What tools for Cassandra call the workers of a class, where Cassandra has such.
#[must_use]
pub fn pool_name(class: Class) -> &'static str {
    match class {
        Class::Compaction => "CompactionExecutor",
        Class::Flush => "MemtableFlushWriter",
        Class::Reshard | Class::Maintenance | Class::Streaming | Class::Repair => class.name(),
    }
}

/// How partitions are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// For how long.
    pub duration: Duration,
    /// How many partitions each shard keeps.
    pub capacity: usize,
}

/// A compaction that ended well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastCompaction {
    /// A time-based UUID.
    pub id: Uuid,
    /// The table's keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Its end, milliseconds since 1970.
    pub ended_ms: i64,
    /// Bytes of the sstables that were merged.
    pub bytes_in: u64,
    /// Bytes of the sstables that replace them.
    pub bytes_out: u64,
}

/// A connection of a CQL client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// The shard that serves it.
    pub shard: u32,
    /// The user that logged in.
    pub user: String,
    /// `established`, `authenticating` or `ready`.
    pub stage: String,
    /// The version of the protocol, once it is ready.
    pub protocol_version: Option<u8>,
    /// What it said of itself.
    pub driver_name: Option<String>,
    /// What it said of itself.
    pub driver_version: Option<String>,
    /// All options of its STARTUP.
    pub options: BTreeMap<String, String>,
    /// Requests so far.
    pub requests: u64,
    /// TLS protocol and cipher of an encrypted connection.
    pub tls: Option<(String, String)>,
}

/// The partitions of a table that were asked for most.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TopPartitions {
    /// Of reads.
    pub reads: Top,
    /// Of writes.
    pub writes: Top,
}

/// The partitions that one kind of request names most.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Top {
    /// About how many partitions were named.
    pub distinct: u64,
    /// The most frequent first: the key as text, how often, and how much less often at least.
    pub partitions: Vec<(String, u64, u64)>,
}
