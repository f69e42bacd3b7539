//! What operators may ask and request of a node: what crate `node` implements for this one.
//!
//! The types are plain values, made when asked for: each describes one moment.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tasks::Tasks;
use uuid::Uuid;

use crate::access_keys::AccessKeys;
use crate::control::Control;
use crate::distribution::Distribution;
use crate::handoff::Handoff;
use crate::operations::Operations;

/// A future of this shard that borrows.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A node, as its operator sees it. Lives on shard 0, sees the node, and of the cluster what the node knows.
pub trait Operator: Handoff + Control + Operations + AccessKeys {
    /// The node and its cluster.
    fn node(&self) -> Node;
    /// All keyspaces, by name.
    fn keyspaces(&self) -> Vec<Keyspace>;
    /// The owners of the tokens of a keyspace, or of one of its tables where that has tablets; None when there is none
    /// of that name.
    fn ring(&self, keyspace: &str, table: Option<&str>) -> Option<Vec<Range>>;
    /// The tables that have files, summed over the node's shards.
    fn tables(&self) -> Local<'_, Vec<Table>>;
    /// Everything that is counted, of each shard.
    fn metrics(&self) -> Local<'_, Vec<Metric>>;
    /// Begins long work, as a task.
    fn start(&self, work: Work) -> Started;
    /// The node's tasks.
    fn tasks(&self) -> &Arc<Tasks>;
    /// Accepts the loss of what a table's damaged sstables had: it is read again, without them.
    fn accept_quarantined(&self, keyspace: String, table: String) -> Local<'_, Result<(), String>>;
    /// The snapshots that are kept.
    fn snapshots(&self) -> Local<'_, Result<Vec<Snapshot>, String>>;
    /// Forgets snapshots: those of a tag, or all.
    fn clear_snapshots(&self, tag: Option<String>, what: Selection) -> Local<'_, Result<(), String>>;
    /// Takes the wall clock for right as it is now. Refused, with the reason, when the other nodes say otherwise.
    fn confirm_clock(&self) -> Result<(), String>;

    /// How balanced the tablets are.
    fn balance(&self) -> Local<'_, Result<Balance, String>>;
    /// Sets whether tablets move to be even among nodes and shards.
    fn set_balanced(&self, is_balanced: bool) -> Local<'_, Result<(), String>>;
    /// Makes replicas equal; resolves when they are. Continues if the future is dropped.
    fn repair(&self, wanted: Repairs) -> Local<'_, Result<Vec<RepairedTable>, String>>;
    /// Makes every node repair its ranges of these tables, all of users if none are named; resolves when none is left,
    /// with how many there were.
    fn repair_cluster(&self, what: Selection, incremental_mode: Option<String>) -> Local<'_, Result<u64, String>>;
    /// Starts a task that repairs some tablets of a table; resolves with its id, once it has begun or has ended. The
    /// task continues if the future is dropped.
    fn repair_tablets(&self, wanted: TabletRepair) -> Local<'_, Result<Uuid, String>>;
    /// The client routes of the cluster, by connection and node.
    fn client_routes(&self) -> Vec<ClientRoute>;
    /// Creates or replaces client routes, all or none; resolves when the cluster has agreed on them and this node has
    /// them.
    fn put_client_routes(&self, routes: Vec<ClientRoute>) -> Local<'_, Result<(), NotChanged>>;
    /// Removes client routes, all or none. Those that do not exist are passed over.
    fn remove_client_routes(&self, routes: Vec<ClientRouteKey>) -> Local<'_, Result<(), NotChanged>>;
    /// Waits until the node has all metadata that was agreed on anywhere before.
    fn barrier(&self) -> Local<'_, Result<(), String>>;
}

/// Which client route.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientRouteKey {
    /// The private connection, by the id that its operator chose.
    pub connection_id: String,
    /// The node.
    pub host_id: Uuid,
}

/// Where clients of a private connection reach a node: the address of a proxy, and its port for each protocol that it
/// offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientRoute {
    /// Which route.
    pub key: ClientRouteKey,
    /// A name or an address.
    pub address: String,
    /// For CQL.
    pub port: Option<u16>,
    /// For CQL by TLS.
    pub tls_port: Option<u16>,
    /// For Alternator.
    pub alternator_port: Option<u16>,
    /// For Alternator by HTTPS.
    pub alternator_https_port: Option<u16>,
}

impl ClientRoute {
    /// The ports, in the order of the fields.
    #[must_use]
    pub fn ports(&self) -> [Option<u16>; 4] {
        [
            self.port,
            self.tls_port,
            self.alternator_port,
            self.alternator_https_port,
        ]
    }
}

/// Why the cluster's metadata were not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotChanged {
    /// The change is one that the cluster never takes.
    Refused(String),
    /// The cluster could not agree, or one of its nodes does not know such changes; it may have happened if the text
    /// says so.
    Failed(String),
}

/// What to repair.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Repairs {
    /// Which tables; none of them: all of users.
    pub what: Selection,
    /// Only ranges of which this node is the first replica.
    pub is_primary: bool,
    /// Only tokens after the first and up to the second of these.
    pub range: Option<(i64, i64)>,
    /// Only with replicas in these datacenters; none: all.
    pub datacenters: Vec<String>,
    /// Only with replicas on these nodes, by host id or address; none: all.
    pub hosts: Vec<String>,
    /// Differences are counted and stay.
    pub is_preview: bool,
    /// `incremental`, `full` or `disabled`; None: incremental where that is possible.
    pub incremental_mode: Option<String>,
}

/// Which tablets of a table to repair.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TabletRepair {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub table: String,
    /// Those that have one of these tokens; none: all.
    pub tokens: Vec<i64>,
    /// Only with replicas on these nodes, by host id; none: all.
    pub hosts: Vec<Uuid>,
    /// Only with replicas in these datacenters; none: all.
    pub datacenters: Vec<String>,
    /// Whether to wait for the end.
    pub is_awaited: bool,
    /// `incremental`, `full` or `disabled`; None: incremental where that is possible.
    pub incremental_mode: Option<String>,
}

/// What a repair found of a table.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RepairedTable {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub table: String,
    /// Ranges that were compared.
    pub ranges: u64,
    /// Rows and deletions that this node had.
    pub rows: u64,
    /// Rows and deletions that some replica lacked or had older, counted for each replica.
    pub differing: u64,
    /// Bytes that were sent to other nodes.
    pub sent_bytes: u64,
    /// Bytes that they sent.
    pub received_bytes: u64,
    /// Bytes of rows that this node read to compare them.
    pub read_bytes: u64,
    /// Bytes of sstables that this node left unread, because an earlier repair has marked them.
    pub skipped_bytes: u64,
    /// Ranges of which marked sstables were left out.
    pub incremental_ranges: u64,
}

/// How balanced the tablets are.
#[derive(Clone, PartialEq, Debug)]
pub struct Balance {
    /// They move to be even among nodes and shards.
    pub is_on: bool,
    /// How many move between nodes now.
    pub moving: usize,
    /// What the leader of the metadata group found last; or a sentence why that is not known.
    pub standing: Result<Standing, String>,
}

/// What the leader of the metadata group found when it looked at all tablets last.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing {
    /// How large tablets should be on average; 0 for any size.
    pub tablet_bytes_goal: u64,
    /// How far racks, nodes and shards are from their fair shares of the bytes at most; 0.05 is 5 %.
    pub bytes_off: [f64; 3],
    /// How far racks, nodes and shards are from their fair shares of the load at most, as for the bytes.
    pub load_off: [f64; 3],
    /// What a replication wants and the cluster cannot give, as sentences.
    pub lacks: Vec<String>,
    /// Each table that has tablets.
    pub tables: Vec<TableStanding>,
}

/// The tablets of a table, and how many it should have.
#[derive(Clone, PartialEq, Debug)]
pub struct TableStanding {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub table: String,
    /// How many tablets it has.
    pub tablets: u32,
    /// How many it should have.
    pub wanted: u32,
    /// How many it has at least.
    pub least: u32,
    /// The average bytes of a copy of a tablet.
    pub average_bytes: u64,
    /// The bytes of the largest.
    pub largest_bytes: u64,
    /// The requests per second of the copy that gets most.
    pub hottest: f64,
    /// Why it does not have as many tablets as it should have; empty when it does.
    pub waits_for: String,
}

/// Long work that an operator asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Write memtables to sstables.
    Flush(Selection),
    /// Merge the sstables of each tablet into one, after a flush where that is asked for.
    Compact {
        /// Of which tables.
        what: Selection,
        /// Whether to flush first.
        flushes: bool,
    },
    /// Split each tablet of a table in two, or merge each pair.
    ResizeTable {
        /// Of which keyspace.
        keyspace: String,
        /// Which table.
        table: String,
        /// How many tablets it has then: twice as many as now, or half.
        tablet_count: u32,
    },
    /// Have a replica of a tablet on another shard of its node, or on another node.
    MoveTablet {
        /// Of which keyspace.
        keyspace: String,
        /// Of which table.
        table: String,
        /// A token of the tablet.
        token: i64,
        /// The node; None for the one that is asked.
        host_id: Option<Uuid>,
        /// The shard that has it; None for whichever does.
        from: Option<u16>,
        /// The node that gets it; None for the one that has it.
        to_host: Option<Uuid>,
        /// The shard that gets it.
        to: u16,
    },
    /// Make the files of a table's secondary indexes again.
    RebuildIndexes {
        /// Of which keyspace.
        keyspace: String,
        /// Of which table.
        table: String,
        /// Which of its indexes; none of them: all.
        indexes: Vec<String>,
    },
    /// Keep the sstables as they are now under a name.
    Snapshot {
        /// The name.
        tag: String,
        /// How long it is kept; None until it is cleared.
        ttl: Option<Duration>,
        /// Whether what is in memory is flushed first; else it is left out.
        flushes: bool,
        /// Of which tables.
        what: Selection,
    },
}

/// Work that was begun.
pub struct Started {
    /// Its task.
    pub task: Uuid,
    /// Resolves when it has ended; the work continues if this is dropped.
    pub ended: Local<'static, Result<(), String>>,
}

/// Keyspaces and tables that a command is for.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Selection {
    /// None of them: all.
    pub keyspaces: Vec<String>,
    /// None of them: all of the keyspaces.
    pub tables: Vec<String>,
}

impl Selection {
    /// What is meant, in words.
    #[must_use]
    pub fn named(&self) -> String {
        match (self.keyspaces.as_slice(), self.tables.as_slice()) {
            ([], _) => "all keyspaces".to_owned(),
            (keyspaces, []) => format!("keyspace {}", keyspaces.join(", ")),
            (keyspaces, tables) => format!("{} in {}", tables.join(", "), keyspaces.join(", ")),
        }
    }

    /// Whether a table is meant.
    #[must_use]
    pub fn has(&self, keyspace: &str, table: &str) -> bool {
        let among = |names: &[String], name: &str| names.is_empty() || names.iter().any(|given| given == name);
        among(&self.keyspaces, keyspace) && among(&self.tables, table)
    }
}

/// A member's part in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Receives data, but is not read from.
    Joining,
    /// A full member.
    Normal,
    /// Hands over what it has.
    Leaving,
}

/// How full the disks of a node are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum DiskLevel {
    /// They have room.
    #[default]
    Normal,
    /// They are nearly full: clients that write are warned.
    Warning,
    /// They are full: the node takes deletes and no data.
    Critical,
}

impl DiskLevel {
    /// The name that operators see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A member of the cluster, as the node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its identity.
    pub host_id: Uuid,
    /// Where other nodes reach it.
    pub address: IpAddr,
    /// Where clients reach it.
    pub native: IpAddr,
    /// Its datacenter.
    pub datacenter: String,
    /// Its rack.
    pub rack: String,
    /// Its part.
    pub state: State,
    /// Whether it answers.
    pub is_live: bool,
    /// Whether it is a zero-token node.
    pub is_zero_token: bool,
    /// Whether an operator has excluded it: it is permanently down.
    pub is_excluded: bool,
    /// Whether its commitlog takes writes, as far as it has not said otherwise.
    pub takes_writes: bool,
    /// How full its disks are, as far as it has said.
    pub disk: DiskLevel,
    /// Its places on the ring.
    pub tokens: Vec<i64>,
    /// How many shards it has.
    pub shards: u16,
    /// The schema version it said last.
    pub schema_version: Option<Uuid>,
    /// Its release of ceto.
    pub release: String,
    /// The index at which its metadata is known to differ from the node's.
    pub differs_at: Option<u64>,
}

/// The node's part in the metadata group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Raft {
    /// The leader.
    pub leader: Option<Uuid>,
    /// The term.
    pub term: u64,
    /// The last entry that was applied.
    pub applied: u64,
    /// The last entry known to be committed.
    pub committed: u64,
    /// The last entry.
    pub last: u64,
    /// How many vote.
    pub voters: usize,
    /// Why the node takes no change of the metadata: it differs from that of others, or a change cannot be read here.
    pub withdrawn: Option<String>,
}

/// Whether the node trusts its wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockState {
    /// Data expires by it.
    Trusted,
    /// It does not.
    Suspect,
    /// Nor does the node serve.
    OutOfService,
}

impl ClockState {
    /// As the API has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trusted => "TRUSTED",
            Self::Suspect => "SUSPECT",
            Self::OutOfService => "OUT_OF_SERVICE",
        }
    }
}

/// The node's wall clock, as it judges it itself.
#[derive(Clone, PartialEq, Debug)]
pub struct Clock {
    /// Whether it is trusted.
    pub state: ClockState,
    /// Why not; empty when it is.
    pub reason: &'static str,
    /// How far it is ahead of the other nodes, or of where it was before a step.
    pub ahead_seconds: f64,
}

/// A node and the cluster that it is in.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its identity.
    pub host_id: Uuid,
    /// The cluster's name.
    pub cluster_name: String,
    /// The schema's version.
    pub schema_version: Uuid,
    /// The release of Cassandra that it is to be taken for.
    pub release: String,
    /// Its release of ceto.
    pub version: String,
    /// The snitch's class.
    pub snitch: String,
    /// Whether clients are served, or why not: NORMAL, JOINING, LEAVING, DRAINING, OUT_OF_SERVICE.
    pub mode: String,
    /// How long it runs, in milliseconds.
    pub uptime_ms: u64,
    /// When it started, in seconds since 1970.
    pub started_s: i64,
    /// Whether it listens for CQL.
    pub serves_cql: bool,
    /// Bytes that it may use.
    pub memory: u64,
    /// Its wall clock.
    pub clock: Clock,
    /// The members, in the order in which they joined, this one among them.
    pub members: Vec<Member>,
    /// The metadata group.
    pub raft: Raft,
}

impl Node {
    /// The member that this node is.
    #[must_use]
    pub fn me(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.host_id == self.host_id)
    }

    /// The member at an address, or with a host id.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Member> {
        let named = |m: &&Member| m.address.to_string() == name || m.host_id.to_string() == name;
        self.members.iter().find(named)
    }
}

/// A keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyspace {
    /// Its name.
    pub name: String,
    /// The node's own; not one that a user made.
    pub is_system: bool,
    /// Each node has all of it for itself.
    pub is_local: bool,
    /// Its tables.
    pub tables: Vec<String>,
    /// Some of its tables have tablets.
    pub has_tablets: bool,
    /// Its replication.
    pub replication: BTreeMap<String, String>,
}

/// Tokens above `start` up to and including `end`; around the end of the ring when `end` is not above `start`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Exclusive.
    pub start: i64,
    /// Inclusive.
    pub end: i64,
    /// The nodes that have them, the first in charge.
    pub replicas: Vec<Uuid>,
}

impl Range {
    /// The part of the ring that it is.
    #[must_use]
    pub fn share(&self) -> f64 {
        let width = i128::from(self.end) - i128::from(self.start);
        let width = if width > 0 { width } else { width + (1 << 64) };
        #[expect(clippy::cast_precision_loss, reason = "a share is shown with a digit or two")]
        let share = width as f64 / (1u128 << 64) as f64;
        share
    }
}

/// What the node has of a table.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Table {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Sstables.
    pub sstables: u64,
    /// Bytes of their files.
    pub disk_bytes: u64,
    /// Bytes of those files that wait to be compacted, or are being compacted.
    pub compaction_backlog_bytes: u64,
    /// Bytes of their data before compression.
    pub data_bytes: u64,
    /// Partitions in them, counted in each.
    pub partitions: u64,
    /// Bytes of memory for filters, summaries and offsets.
    pub sstable_memory_bytes: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
    /// Partitions in them.
    pub memtable_partitions: u64,
    /// Memtables that are being flushed.
    pub flushes: u64,
    /// Bytes that snapshots alone keep on the disk.
    pub snapshot_bytes: u64,
    /// Rows of memtables.
    pub memtable_rows: u64,
    /// Bytes of bloom filters.
    pub filter_bytes: u64,
    /// How often the index of an sstable was searched for a partition because its filter let it pass.
    pub index_lookups: u64,
    /// How often the sstable did not have the partition then.
    pub filter_false_positives: u64,
    /// Bytes of data before compression of the sstables that are compressed.
    pub compressed_from_bytes: u64,
    /// Bytes that these have after compression.
    pub compressed_to_bytes: u64,
    /// Its compactions do not begin by themselves on some shard.
    pub is_auto_compaction_off: bool,
    /// Between the oldest and the newest write timestamp of an sstable, of the one where that is the longest, in
    /// microseconds.
    pub sstable_span_us: u64,
    /// Bytes of data of each partition of each sstable.
    pub partition_bytes: Distribution,
    /// Cells of each partition of each sstable.
    pub partition_cells: Distribution,
    /// Latencies of reads of one partition that the node coordinated, in microseconds.
    pub reads: Distribution,
    /// Latencies of reads of more than one partition that the node coordinated, in microseconds.
    pub scans: Distribution,
    /// Latencies of writes that the node coordinated, in microseconds.
    pub writes: Distribution,
    /// Sstables that were read from, of each read of a partition.
    pub sstables_per_read: Distribution,
    /// Dead rows and range tombstones that were met, of each read of a partition.
    pub tombstones_per_read: Distribution,
    /// Living rows that were met, of each read of a partition.
    pub rows_per_read: Distribution,
    /// Damaged sstables that were moved aside and whose loss no operator has accepted, by name.
    pub quarantined: BTreeMap<String, Quarantined>,
}

/// A damaged sstable that was moved aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantined {
    /// The first token that it may have.
    pub first_token: i64,
    /// The last token that it may have.
    pub last_token: i64,
    /// Which file was damaged, where, and what was expected there.
    pub reason: String,
}

/// A table's part of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Its name.
    pub tag: String,
    /// The table's keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of those that the table does not have any more.
    pub own_bytes: u64,
    /// When it was made, in milliseconds since 1970, if its manifest says so.
    pub created_ms: Option<i64>,
    /// When it is removed, in milliseconds since 1970; None: when an operator removes it.
    pub expires_ms: Option<i64>,
}

/// Something that is counted or measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Its name, with its unit, without `ceto_`.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Which of several: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// How much.
    pub value: Value,
}

/// How much.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Only grows.
    Counter(u64),
    /// Time that only grows: a counter of seconds.
    Time(Duration),
    /// Goes up and down.
    Gauge(f64),
    /// Latencies: the count of each bucket by its last microsecond, in order, and the sum in microseconds.
    Histogram(Vec<(u64, u64)>, u64),
}

/// The sum of all counters and gauges of a name; of times, whole seconds.
#[must_use]
pub fn total(metrics: &[Metric], name: &str) -> u64 {
    let of_name = metrics.iter().filter(|metric| metric.name == name);
    of_name
        .map(|metric| match &metric.value {
            Value::Counter(count) => *count,
            Value::Time(time) => time.as_secs(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "gauges that are added count things"
            )]
            Value::Gauge(value) => *value as u64,
            Value::Histogram(buckets, _) => buckets.iter().map(|(_, count)| count).sum(),
        })
        .sum()
}

/// The histogram of a name and a label's value, of all shards together, and its sum.
#[must_use]
pub fn histogram(metrics: &[Metric], name: &str, label: &str) -> (BTreeMap<u64, u64>, u64) {
    let mut merged = (BTreeMap::new(), 0);
    for metric in metrics.iter().filter(|metric| metric.name == name) {
        if let Value::Histogram(buckets, sum) = &metric.value
            && metric.labels.iter().any(|(_, value)| value == label)
        {
            buckets
                .iter()
                .for_each(|(last, count)| *merged.0.entry(*last).or_default() += count);
            merged.1 += sum;
        }
    }
    merged
}

/// The microseconds that a part of the latencies do not exceed; 0 when there are none.
#[must_use]
pub fn percentile(buckets: &BTreeMap<u64, u64>, part: f64) -> u64 {
    let all: u64 = buckets.values().sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank among fewer than 2^52 requests"
    )]
    let rank = (all as f64 * part).ceil().max(1.0) as u64;
    let mut below = 0;
    for (last, count) in buckets {
        below += count;
        if below >= rank {
            return *last;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_bucket_in_which_that_part_is_reached() {
        let buckets = BTreeMap::from([(1, 50), (10, 40), (100, 10)]);
        for (part, expected) in [(0.0, 1), (0.5, 1), (0.51, 10), (0.9, 10), (0.99, 100), (1.0, 100)] {
            assert_eq!(percentile(&buckets, part), expected, "percentile {part}");
        }
        assert_eq!(percentile(&BTreeMap::new(), 0.5), 0, "nothing was asked yet");
    }

    #[test]
    fn the_shares_of_ranges_make_one_ring() {
        let range = |start, end| Range {
            start,
            end,
            replicas: Vec::new(),
        };
        assert!((range(i64::MIN, 0).share() - 0.5).abs() < 1e-9);
        assert!(
            (range(0, i64::MIN).share() - 0.5).abs() < 1e-9,
            "around the end of the ring"
        );
        assert!((range(5, 5).share() - 1.0).abs() < 1e-9, "one token has the whole ring");
    }
}
