//! The schema's values: what DDL changes and everyone else reads.

use crate::tablet_options::TabletOptions;
use crate::tombstone_gc::TombstoneGc;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use types::{CqlType, UdtType, quote_identifier};
use uuid::Uuid;

use crate::function::{UserAggregate, UserFunction, signature};
use crate::index::{Index, IndexId, IndexKind, IndexPart};
use crate::layout::{ClusteringOrder, RowLayout};

/// A table's identity, unchanged by ALTER and new at each CREATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableId(pub Uuid);

/// A static or regular column's number inside its table. Never reused, so old rows keep their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ColumnId(pub u16);

/// Which part of the primary key a column is in, or what it is outside the primary key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ColumnKind {
    /// Component `position` of the partition key.
    PartitionKey,
    /// Component `position` of the clustering key.
    Clustering,
    /// One value per partition.
    Static,
    /// One value per row.
    Regular,
}

/// How a table `WITH COMPACT STORAGE` stores its rows. Such tables come from clients of Thrift: their rows have no
/// markers, so a row exists as long as one of its cells does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CompactStorage {
    /// A table without clustering columns. Its columns are static ones; it also has a clustering column and a regular
    /// one, which no statement names.
    Static,
    /// A table with clustering columns and one regular column. If DDL declared none, it has the type `empty`, and no
    /// statement names it.
    Dense,
}

/// A column as DDL declared it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// The name as stored: folded to lower case unless it was quoted.
    pub name: String,
    /// Its type; `Frozen` is explicit.
    pub cql_type: CqlType,
    /// Its role.
    pub kind: ColumnKind,
    /// Component number for key columns, 0 for others.
    pub position: u16,
    /// True for a clustering column declared DESC.
    pub descending: bool,
    /// For static and regular columns: the number that packed rows use. Key columns carry `ColumnId(u16::MAX)`.
    pub id: ColumnId,
}

impl Column {
    /// The first or only component of its key, ascending; [`Table::new`] gives it its id.
    pub fn new(name: &str, cql_type: CqlType, kind: ColumnKind) -> Self {
        Self {
            name: name.to_owned(),
            cql_type,
            kind,
            position: 0,
            descending: false,
            id: ColumnId(0),
        }
    }
}

/// A column that was dropped: cells older than `dropped_at_us` in imported files are not its successor's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DroppedColumn {
    /// The name it had.
    pub name: String,
    /// The type it had: rows that hold it still need its width.
    pub cql_type: CqlType,
    /// Static or regular.
    pub kind: ColumnKind,
    /// Its number, never given again.
    pub id: ColumnId,
    /// When it was dropped, microseconds since the epoch.
    pub dropped_at_us: i64,
}

/// The options of CREATE TABLE … WITH, as `system_schema.tables` shows them.
#[derive(Clone, PartialEq, Debug)]
pub struct TableOptions {
    /// Free text.
    pub comment: String,
    /// Target share of false positives of the bloom filters.
    pub bloom_filter_fp_chance: f64,
    /// `keys` and `rows_per_partition`.
    pub caching: BTreeMap<String, String>,
    /// Strategy class and its options.
    pub compaction: BTreeMap<String, String>,
    /// Compressor class and its options; `enabled: false` for none.
    pub compression: BTreeMap<String, String>,
    /// Probability that a read checks a chunk's checksum (ceto always checks).
    pub crc_check_chance: f64,
    /// Seconds; 0 is none.
    pub default_time_to_live: i32,
    /// Seconds a tombstone is kept.
    pub gc_grace_seconds: i32,
    /// Index summary bounds.
    pub min_index_interval: i32,
    /// Index summary bounds.
    pub max_index_interval: i32,
    /// Milliseconds; 0 is never.
    pub memtable_flush_period_in_ms: i32,
    /// `BLOCKING` or `NONE`.
    pub read_repair: String,
    /// `99p`, `50ms`, `ALWAYS`, `NONE`.
    pub speculative_retry: String,
    /// Cassandra's option of the same name; kept and shown.
    pub additional_write_policy: String,
    /// Change data capture flag as Cassandra spells it.
    pub cdc: bool,
    /// How often one partition may be read and written in a second.
    pub rate_limits: RateLimits,
    /// When compactions may forget a deletion; None: `gc_grace_seconds` after it was made.
    pub tombstone_gc: Option<TombstoneGc>,
    /// How many tablets the table is to have; None: nothing is said.
    pub tablets: Option<TabletOptions>,
    /// Opaque extensions, text of a blob literal by name.
    pub extensions: BTreeMap<String, String>,
    /// Whether a snapshot is taken before the table is dropped or truncated, where the node takes any
    /// (`auto_snapshot`).
    pub allow_auto_snapshot: bool,
    /// Whether the table takes part in incremental backups, which nodes do not make; kept and shown.
    pub incremental_backups: bool,
    /// For how many seconds what acceptors know of conditional statements is kept; None: for `gc_grace_seconds`.
    pub paxos_grace_seconds: Option<u32>,
    /// Whether writes to what is too large already are refused (`large_data_guardrails_enabled`).
    pub guards_large_data: bool,
}

/// `per_partition_rate_limit`: operations of one partition in a second; None is as many as come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateLimits {
    /// `max_reads_per_second`.
    pub reads: Option<u32>,
    /// `max_writes_per_second`.
    pub writes: Option<u32>,
}

impl RateLimits {
    /// The names of its parts and those that are set.
    pub fn named(self) -> impl Iterator<Item = (&'static str, u32)> {
        let both = [
            ("max_reads_per_second", self.reads),
            ("max_writes_per_second", self.writes),
        ];
        both.into_iter().filter_map(|(name, limit)| Some((name, limit?)))
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            comment: String::new(),
            bloom_filter_fp_chance: 0.01,
            caching: map(&[("keys", "ALL"), ("rows_per_partition", "NONE")]),
            compaction: map(&[
                (
                    "class",
                    "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy",
                ),
                ("max_threshold", "32"),
                ("min_threshold", "4"),
            ]),
            compression: map(&[
                ("chunk_length_in_kb", "16"),
                ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
            ]),
            crc_check_chance: 1.0,
            default_time_to_live: 0,
            gc_grace_seconds: 864_000,
            min_index_interval: 128,
            max_index_interval: 2048,
            memtable_flush_period_in_ms: 0,
            read_repair: "BLOCKING".to_owned(),
            speculative_retry: "99p".to_owned(),
            additional_write_policy: "99p".to_owned(),
            cdc: false,
            rate_limits: RateLimits::default(),
            tombstone_gc: None,
            tablets: None,
            extensions: BTreeMap::new(),
            allow_auto_snapshot: true,
            incremental_backups: true,
            paxos_grace_seconds: None,
            guards_large_data: false,
        }
    }
}

/// A table: its columns in declaration order, and what is derived from them.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Keyspace name.
    pub keyspace: String,
    /// Table name.
    pub name: String,
    /// Identity.
    pub id: TableId,
    /// All living columns: partition key, clustering, then static and regular sorted by name.
    pub columns: Vec<Column>,
    /// Columns that once were.
    pub dropped: Vec<DroppedColumn>,
    /// The next column number to give.
    pub next_column_id: u16,
    /// WITH options.
    pub options: TableOptions,
    /// `WITH COMPACT STORAGE`.
    pub compact: Option<CompactStorage>,
    /// The regular column that says when the whole row expires; see [`Table::ttl_column`].
    pub row_ttl: Option<ColumnId>,
    /// Its indexes by name.
    pub indexes: Vec<Index>,
    /// The number that the next index gets.
    pub next_index_id: u32,
    /// Derived: widths of every column ever, by id.
    pub layout: Arc<RowLayout>,
    /// Derived: comparators of the clustering columns.
    pub clustering_order: Arc<ClusteringOrder>,
}

impl Table {
    /// A table from its declared columns: key columns carry kind, position and order; ids are given here, in name
    /// order, to the static and regular ones.
    pub fn new(keyspace: &str, name: &str, id: TableId, columns: Vec<Column>, options: TableOptions) -> Self {
        let mut table = Self {
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            id,
            columns,
            dropped: Vec::new(),
            next_column_id: 0,
            options,
            compact: None,
            row_ttl: None,
            indexes: Vec::new(),
            next_index_id: 0,
            layout: Arc::default(),
            clustering_order: Arc::default(),
        };
        table.sort_columns();
        for i in 0..table.columns.len() {
            if matches!(table.columns[i].kind, ColumnKind::Static | ColumnKind::Regular) {
                table.columns[i].id = ColumnId(table.next_column_id);
                table.next_column_id += 1;
            } else {
                table.columns[i].id = ColumnId(u16::MAX);
            }
        }
        table.derive();
        table
    }

    /// Keyspace and name as a statement would write them: in double quotes where that is needed.
    #[must_use]
    pub fn quoted_name(&self) -> String {
        let (keyspace, name) = (quote_identifier(&self.keyspace), quote_identifier(&self.name));
        format!("{keyspace}.{name}")
    }

    /// Everything by which rows of the table are read from bytes: nodes with the same text read the same rows from the
    /// same sstable.
    #[must_use]
    pub fn columns_text(&self) -> String {
        let mut text = String::new();
        for c in &self.columns {
            let (name, kind, order) = (&c.name, c.kind, if c.descending { "desc" } else { "asc" });
            let _ = writeln!(
                text,
                "{name:?} {} {kind:?} {} {order} {}",
                c.cql_type, c.position, c.id.0
            );
        }
        for c in &self.dropped {
            let (name, kind) = (&c.name, c.kind);
            let _ = writeln!(
                text,
                "dropped {name:?} {} {kind:?} {} {}",
                c.cql_type, c.id.0, c.dropped_at_us
            );
        }
        text
    }

    /// Adds a static or regular column and gives it the next id.
    pub fn add_column(&mut self, name: &str, cql_type: CqlType, kind: ColumnKind) {
        let id = ColumnId(self.next_column_id);
        self.next_column_id += 1;
        self.columns.push(Column {
            name: name.to_owned(),
            cql_type,
            kind,
            position: 0,
            descending: false,
            id,
        });
        self.sort_columns();
        self.derive();
    }

    /// Gives a column another type. Its values must be values of that type too, of the same width; see `ALTER TABLE …
    /// ALTER … TYPE`.
    pub fn set_type(&mut self, name: &str, cql_type: CqlType) {
        if let Some(column) = self.columns.iter_mut().find(|c| c.name == name) {
            column.cql_type = cql_type;
        }
        self.derive();
    }

    /// Removes a static or regular column; its id and width stay known. Tuples take the place of user-defined types in
    /// its type: those may be dropped or altered from here on.
    pub fn drop_column(&mut self, name: &str, dropped_at_us: i64) {
        if let Some(i) = self.columns.iter().position(|c| c.name == name) {
            let c = self.columns.remove(i);
            self.dropped.push(DroppedColumn {
                name: c.name,
                cql_type: c.cql_type.without_user_types(),
                kind: c.kind,
                id: c.id,
                dropped_at_us,
            });
            self.derive();
        }
    }

    /// Gives every column whose type has the user-defined type of that name in it the new definition.
    pub fn alter_type(&mut self, new: &Arc<UdtType>) {
        for column in &mut self.columns {
            if column.cql_type.has_user_type(&new.keyspace, &new.name) {
                column.cql_type = column.cql_type.with_user_type(new);
            }
        }
        self.derive();
    }

    /// True when a column's type is, or has in it, the user-defined type of that name in the table's keyspace.
    pub fn uses_type(&self, name: &str) -> bool {
        let mut types = self.columns.iter().map(|c| &c.cql_type);
        types.any(|t| t.has_user_type(&self.keyspace, name))
    }

    /// Gives a key column another name.
    pub fn rename_column(&mut self, from: &str, to: &str) {
        if let Some(c) = self.columns.iter_mut().find(|c| c.name == from) {
            c.name = to.to_owned();
        }
        for index in self.indexes.iter_mut().filter(|index| index.column == from) {
            index.column = to.to_owned();
        }
        self.sort_columns();
        self.derive();
    }

    /// Adds an index, gives it the next id, and returns it.
    pub fn add_index(
        &mut self,
        name: &str,
        (column, part): (&str, IndexPart),
        kind: IndexKind,
        options: BTreeMap<String, String>,
    ) -> &mut Index {
        let id = IndexId(self.next_index_id);
        self.next_index_id += 1;
        let at = self.indexes.partition_point(|other| other.name.as_str() < name);
        let (name, column) = (name.to_owned(), column.to_owned());
        let index = Index {
            id,
            name,
            column,
            part,
            kind,
            class: None,
            options,
        };
        self.indexes.insert(at, index);
        &mut self.indexes[at]
    }

    /// Removes the index of that name; its id stays taken.
    pub fn drop_index(&mut self, name: &str) {
        self.indexes.retain(|index| index.name != name);
    }

    fn sort_columns(&mut self) {
        self.columns.sort_by(|a, b| {
            let rank = |c: &Column| match c.kind {
                ColumnKind::PartitionKey => (0, c.position, ""),
                ColumnKind::Clustering => (1, c.position, ""),
                ColumnKind::Static => (2, 0, ""),
                ColumnKind::Regular => (3, 0, ""),
            };
            rank(a).cmp(&rank(b)).then_with(|| {
                if matches!(a.kind, ColumnKind::Static | ColumnKind::Regular) {
                    a.name.as_bytes().cmp(b.name.as_bytes())
                } else {
                    std::cmp::Ordering::Equal
                }
            })
        });
    }

    pub(crate) fn derive(&mut self) {
        self.layout = Arc::new(RowLayout::of(self));
        self.clustering_order = Arc::new(ClusteringOrder::of(self));
    }

    /// Whether so many clustering columns, the first ones, name a row: all, or of compact storage at least one. The
    /// others of the row are null then.
    pub fn is_row_name(&self, columns: usize) -> bool {
        let all = self.clustering_order.len();
        columns == all || self.compact == Some(CompactStorage::Dense) && (1..all).contains(&columns)
    }

    /// Whether no statement names the column: those that compact storage adds.
    pub fn is_hidden(&self, column: &Column) -> bool {
        match self.compact {
            None => false,
            Some(CompactStorage::Static) => matches!(column.kind, ColumnKind::Clustering | ColumnKind::Regular),
            Some(CompactStorage::Dense) => column.kind == ColumnKind::Regular && column.cql_type == CqlType::Empty,
        }
    }

    /// The columns that statements may name, with their positions among all.
    pub fn visible(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, c)| !self.is_hidden(c))
    }

    /// The position in `columns` of the column that statements name so.
    pub fn position(&self, name: &str) -> Option<usize> {
        let last = name.as_bytes().last();
        // Names of one length differ in their last letter more often than in the first ones.
        let is_named = |c: &Column| c.name.len() == name.len() && c.name.as_bytes().last() == last && c.name == name;
        self.columns.iter().position(|c| is_named(c) && !self.is_hidden(c))
    }

    /// The living column of that name, hidden or not.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }

    /// The TTL column (per-row TTL of ScyllaDB): its value is the moment from which on the row may be deleted, as a
    /// `timestamp`, or in seconds since the epoch as a `bigint` or `int`.
    pub fn ttl_column(&self) -> Option<&Column> {
        let id = self.row_ttl?;
        self.regulars().find(|c| c.id == id)
    }

    /// Whether a column may be the TTL column, as far as its type goes.
    pub fn can_be_row_ttl(cql_type: &CqlType) -> bool {
        matches!(cql_type, CqlType::Timestamp | CqlType::BigInt | CqlType::Int)
    }

    /// Partition key columns in key order.
    pub fn partition_key(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|c| c.kind == ColumnKind::PartitionKey)
    }

    /// Clustering columns in key order.
    pub fn clustering(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|c| c.kind == ColumnKind::Clustering)
    }

    /// Static columns by name.
    pub fn statics(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|c| c.kind == ColumnKind::Static)
    }

    /// Regular columns by name.
    pub fn regulars(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|c| c.kind == ColumnKind::Regular)
    }

    /// Whether any column is static.
    pub fn has_statics(&self) -> bool {
        self.statics().next().is_some()
    }

    /// Whether the table counts: all its static and regular columns are counters, and those it had were.
    pub fn is_counter(&self) -> bool {
        let living = self.columns.iter().map(|c| &c.cql_type);
        living
            .chain(self.dropped.iter().map(|c| &c.cql_type))
            .any(|t| *t == CqlType::Counter)
    }

    /// Dropped columns in the order of their dropping; of those that had the same name only the last.
    pub fn last_dropped(&self) -> impl Iterator<Item = &DroppedColumn> {
        let later = |i: usize, name: &str| self.dropped[i + 1..].iter().any(|d| d.name == name);
        self.dropped
            .iter()
            .enumerate()
            .filter(move |(i, d)| !later(*i, &d.name))
            .map(|(_, d)| d)
    }
}

/// A keyspace with its tables by name.
#[derive(Clone, PartialEq, Debug)]
pub struct Keyspace {
    /// Its name.
    pub name: String,
    /// `class` and its options, as CREATE KEYSPACE gave them, the class in its full Java spelling.
    pub replication: BTreeMap<String, String>,
    /// Whether writes go to the commitlog.
    pub durable_writes: bool,
    /// `tablets = {'enabled': …}`; None when not given.
    pub tablets: Option<BTreeMap<String, String>>,
    /// User-defined types by name.
    pub types: BTreeMap<String, Arc<UdtType>>,
    /// User-defined functions by [signature](UserFunction::signature).
    pub functions: BTreeMap<String, Arc<UserFunction>>,
    /// User-defined aggregates by [signature](UserAggregate::signature).
    pub aggregates: BTreeMap<String, Arc<UserAggregate>>,
    /// Tables by name.
    pub tables: BTreeMap<String, Arc<Table>>,
}

impl Keyspace {
    /// The types by name, but each after those that it uses.
    #[must_use]
    pub fn types_in_order(&self) -> Vec<&Arc<UdtType>> {
        let mut ordered: Vec<&Arc<UdtType>> = Vec::with_capacity(self.types.len());
        for udt in self.types.values() {
            let of_fields = udt.fields.iter().flat_map(|(_, field)| field.user_types());
            // A type comes before those inside it, so the reverse has each after what it uses.
            let mut used: Vec<&str> = of_fields.map(|inner| inner.name.as_str()).collect();
            used.reverse();
            used.push(&udt.name);
            for name in used {
                if let Some(next) = self.types.get(name)
                    && !ordered.iter().any(|known| known.name == name)
                {
                    ordered.push(next);
                }
            }
        }
        ordered
    }

    /// The index of that name, with its table.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<(&Arc<Table>, &Index)> {
        let mut tables = self.tables.values();
        tables.find_map(|table| Some((table, table.indexes.iter().find(|index| index.name == name)?)))
    }

    /// The functions of that name.
    pub fn functions_named<'k>(&'k self, name: &'k str) -> impl Iterator<Item = &'k Arc<UserFunction>> {
        self.functions.values().filter(move |function| function.name == name)
    }

    /// The aggregates of that name.
    pub fn aggregates_named<'k>(&'k self, name: &'k str) -> impl Iterator<Item = &'k Arc<UserAggregate>> {
        self.aggregates.values().filter(move |aggregate| aggregate.name == name)
    }

    /// The function of that name that takes values of these types.
    #[must_use]
    pub fn function(&self, name: &str, types: &[&CqlType]) -> Option<&Arc<UserFunction>> {
        self.functions.get(&signature(name, types.iter().copied()))
    }

    /// Whether its tables have tablets of their own: unless it was made with `tablets = {'enabled': false}`.
    #[must_use]
    pub fn has_tablets(&self) -> bool {
        let enabled = self.tablets.as_ref().and_then(|tablets| tablets.get("enabled"));
        enabled.is_none_or(|enabled| enabled == "true")
    }
}

/// Everything DDL decides. Immutable; each change is a new value with a new version.
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    /// What drivers compare for schema agreement: new at each change, equal for equal schemas on all nodes.
    pub version: Uuid,
    /// User and system keyspaces by name.
    pub keyspaces: BTreeMap<String, Arc<Keyspace>>,
}

impl Schema {
    /// The table of that name.
    pub fn table(&self, keyspace: &str, table: &str) -> Option<&Arc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(table)
    }

    /// The table with that identity.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.keyspaces
            .values()
            .flat_map(|k| k.tables.values())
            .find(|t| t.id == id)
    }
}
