//! What a system table looks like, written as constants beside the code that fills it.

use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use types::CqlType;
use uuid::Builder;

/// A system table's keyspace, columns and options.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Definition {
    /// The keyspace.
    pub keyspace: &'static str,
    /// What follows CREATE TABLE: `name (column type, …, PRIMARY KEY (…))`; ` DESC` after a clustering column orders it
    /// so. Names are taken literally, without quotes. Columns of the primary key come first, in key order; all columns
    /// are in the order in which rows name them.
    pub cql: &'static str,
    /// What differs from the options that CREATE TABLE gives.
    pub options: Options,
}

/// Tables of a keyspace that have the same options: the keyspace, the options, and each table's CQL.
pub(crate) type Group = (&'static str, Options, &'static [&'static str]);

/// The definitions of groups of tables.
pub(crate) fn definitions(groups: &[Group]) -> impl Iterator<Item = Definition> {
    groups.iter().flat_map(|&(keyspace, options, tables)| {
        let definition = move |&cql| Definition { keyspace, cql, options };
        tables.iter().map(definition)
    })
}

/// A column of a definition.
pub(crate) struct ColumnText {
    pub(crate) name: &'static str,
    /// The CQL text of its type.
    type_text: &'static str,
    pub(crate) kind: ColumnKind,
    /// Its place in the key.
    position: u16,
    /// The key has ` DESC` after the column.
    descending: bool,
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
    /// The table's name in its keyspace.
    ///
    /// # Panics
    /// When the definition is not that of a table: it is a bug then.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.parts().0
    }

    /// The name, and the text in the brackets after it.
    fn parts(&self) -> (&'static str, &'static str) {
        let parts = self.cql.split_once(' ').map(|(name, list)| (name, unbracketed(list)));
        parts.unwrap_or_else(|| panic!("no name and columns: {}", self.cql))
    }

    /// The names of its columns, in its order.
    ///
    /// # Panics
    /// When its CQL is none.
    pub fn column_names(&self) -> impl Iterator<Item = &'static str> {
        self.columns().into_iter().map(|column| column.name)
    }

    /// All columns, in the order in which a row names them.
    pub(crate) fn columns(&self) -> Vec<ColumnText> {
        let (mut columns, mut key) = (Vec::new(), "");
        for item in items(self.parts().1) {
            if let Some(list) = item.strip_prefix("PRIMARY KEY ") {
                key = unbracketed(list);
                continue;
            }
            let (name, mut type_text) = item.split_once(' ').unwrap_or((item, ""));
            if let Some(text) = type_text.strip_suffix(" PRIMARY KEY") {
                (key, type_text) = (name, text);
            }
            columns.push(ColumnText {
                name,
                type_text,
                kind: ColumnKind::Regular,
                position: 0,
                descending: false,
            });
        }
        let (partition_key, clustering) = key_of(key);
        let partition_key = (0..).zip(partition_key).map(|key| (ColumnKind::PartitionKey, key));
        let clustering = (0..).zip(clustering).map(|key| (ColumnKind::Clustering, key));
        for (at, (kind, (position, name))) in partition_key.chain(clustering).enumerate() {
            let (name, descending) = match name.strip_suffix(" DESC") {
                Some(name) => (name, true),
                None => (name, false),
            };
            let column = columns.get_mut(at).filter(|column| column.name == name);
            let column = column.unwrap_or_else(|| panic!("{name} does not stand in key order: {}", self.cql));
            (column.kind, column.position, column.descending) = (kind, position, descending);
        }
        columns
    }

    /// The table.
    ///
    /// # Panics
    /// As [`Definition::name`].
    #[must_use]
    pub fn table(&self) -> Table {
        let type_of = |name: &str, text: &str| {
            CqlType::parse_native(text).unwrap_or_else(|e| panic!("{name}: {e}: {}", self.cql))
        };
        let column = |column: ColumnText| Column {
            position: column.position,
            descending: column.descending,
            ..Column::new(column.name, type_of(column.name, column.type_text), column.kind)
        };
        let columns = self.columns().into_iter().map(column).collect();
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
        let id = table_id(self.keyspace, self.name());
        Table::new(self.keyspace, self.name(), id, columns, options)
    }
}

/// The parts of a list, split at the commas that are in no brackets.
fn items(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_end = |c: char| {
        match c {
            '(' | '<' => depth += 1,
            ')' | '>' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    list.split(is_end).map(str::trim).collect()
}

/// The columns of the partition key, and the clustering columns.
fn key_of(primary_key: &str) -> (Vec<&str>, Vec<&str>) {
    let mut parts = items(primary_key);
    let partition_key = items(unbracketed(parts.remove(0)));
    (partition_key, parts)
}

/// A text without the round brackets around it, if there are any.
fn unbracketed(text: &str) -> &str {
    let inside = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    inside.unwrap_or(text)
}

/// The id of a system table.
#[must_use]
pub fn table_id(keyspace: &str, table: &str) -> TableId {
    let digest = md5::compute([keyspace.as_bytes(), table.as_bytes()].concat());
    TableId(Builder::from_md5_bytes(digest.0).into_uuid())
}
