//! What a system table looks like, written as constants beside the code that fills it.

use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use types::CqlType;
use uuid::Builder;

/// A column's name and the CQL text of its type.
pub type ColumnText = (&'static str, &'static str);

/// A system table's keyspace, name, columns and options.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Definition {
    /// The keyspace.
    pub keyspace: &'static str,
    /// The table's name in it.
    pub name: &'static str,
    /// Partition key columns in key order.
    pub partition_key: &'static [ColumnText],
    /// Clustering columns in key order, all ascending.
    pub clustering: &'static [ColumnText],
    /// The other columns, in the order in which rows name them.
    pub columns: &'static [ColumnText],
    /// What differs from the options that CREATE TABLE gives.
    pub options: Options,
}

/// Table options that differ from those that CREATE TABLE gives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Seconds that a tombstone is kept.
    pub gc_grace_seconds: i32,
    /// Seconds; 0 is none.
    pub default_time_to_live: i32,
    /// How often a bloom filter may be wrong.
    pub bloom_filter_fp_chance: f64,
    /// The compaction class and its options; empty for the usual ones.
    pub compaction: &'static [(&'static str, &'static str)],
}

impl Options {
    /// The options that CREATE TABLE gives.
    pub const USUAL: Self = Self {
        gc_grace_seconds: 864_000,
        default_time_to_live: 0,
        bloom_filter_fp_chance: 0.01,
        compaction: &[],
    };
    /// Tombstones can be purged at once: what most tables of `system` say.
    pub const NO_GRACE: Self = Self {
        gc_grace_seconds: 0,
        ..Self::USUAL
    };
    /// A week of grace: what the tables of `system_schema` say.
    pub const WEEK_OF_GRACE: Self = Self {
        gc_grace_seconds: 604_800,
        ..Self::USUAL
    };
}

impl Definition {
    /// All columns in the order in which a row names them.
    pub fn all_columns(&self) -> impl Iterator<Item = ColumnText> {
        let key = self.partition_key.iter().chain(self.clustering);
        key.chain(self.columns).copied()
    }

    /// The table.
    ///
    /// # Panics
    /// When a type's text is not that of a type: the definition is a bug then.
    #[must_use]
    pub fn table(&self) -> Table {
        let column = |kind| {
            move |(position, &(name, type_text)): (usize, &ColumnText)| {
                let cql_type = CqlType::parse_native(type_text)
                    .unwrap_or_else(|e| panic!("{}.{}.{name}: {e}", self.keyspace, self.name));
                let position = match kind {
                    ColumnKind::PartitionKey | ColumnKind::Clustering => position,
                    ColumnKind::Static | ColumnKind::Regular => 0,
                };
                Column {
                    position: u16::try_from(position).expect("a definition has a few key columns"),
                    ..Column::new(name, cql_type, kind)
                }
            }
        };
        let partition_key = self.partition_key.iter().enumerate();
        let clustering = self.clustering.iter().enumerate();
        let columns = partition_key
            .map(column(ColumnKind::PartitionKey))
            .chain(clustering.map(column(ColumnKind::Clustering)))
            .chain(self.columns.iter().enumerate().map(column(ColumnKind::Regular)))
            .collect();
        let mut options = TableOptions {
            gc_grace_seconds: self.options.gc_grace_seconds,
            default_time_to_live: self.options.default_time_to_live,
            bloom_filter_fp_chance: self.options.bloom_filter_fp_chance,
            ..TableOptions::default()
        };
        if !self.options.compaction.is_empty() {
            let pairs = self.options.compaction.iter();
            options.compaction = pairs.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        }
        let id = table_id(self.keyspace, self.name);
        Table::new(self.keyspace, self.name, id, columns, options)
    }
}

/// The id of a system table.
#[must_use]
pub fn table_id(keyspace: &str, table: &str) -> TableId {
    let digest = md5::compute([keyspace.as_bytes(), table.as_bytes()].concat());
    TableId(Builder::from_md5_bytes(digest.0).into_uuid())
}
