//! Rows of a virtual table: from values of columns to the packed rows of a block.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use mutation::row::Shared;
use mutation::{Bound, Cell, ClusteringSlice, Liveness, PartitionBlock, RowBuilder, Tombstone};
use schema::{ColumnKind, Table, push_component};
use types::CollectionBuilder;
use uuid::Uuid;

use crate::definition::Definition;
use crate::reader::BlockLimits;

/// The value of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    /// None.
    Null,
    /// `text`.
    Text(&'a str),
    /// `int`.
    Int(i32),
    /// `bigint`.
    BigInt(i64),
    /// `boolean`.
    Boolean(bool),
    /// `double`.
    Double(f64),
    /// `float`.
    Float(f32),
    /// `uuid`.
    Uuid(Uuid),
    /// `inet`.
    Inet(IpAddr),
    /// `timestamp`: milliseconds since the epoch.
    Timestamp(i64),
    /// `blob`, or the serialised value of any other type.
    Blob(&'a [u8]),
    /// A set of texts in any order, frozen or not.
    Texts(Vec<&'a str>),
    /// A frozen list of texts.
    TextList(Vec<String>),
    /// A map of texts, frozen or not.
    TextMap(&'a BTreeMap<String, String>),
    /// A map of blobs by text, frozen or not.
    BlobMap(BTreeMap<&'a str, Vec<u8>>),
}

impl Value<'_> {
    /// A text, or null.
    #[must_use]
    pub fn text(text: Option<&str>) -> Value<'_> {
        text.map_or(Value::Null, Value::Text)
    }

    /// A UUID, or null.
    #[must_use]
    pub fn uuid(uuid: Option<Uuid>) -> Value<'static> {
        uuid.map_or(Value::Null, Value::Uuid)
    }

    /// A count as an int; the largest int when it is larger.
    pub fn count(count: impl TryInto<i32>) -> Value<'static> {
        Value::Int(count.try_into().unwrap_or(i32::MAX))
    }

    /// The keys and values of a collection in order; of a set only the keys. None of any other value.
    fn elements(&self) -> Option<Vec<(&[u8], &[u8])>> {
        match self {
            Self::Texts(texts) => {
                let mut elements: Vec<(&[u8], &[u8])> = texts.iter().map(|t| (t.as_bytes(), &[][..])).collect();
                elements.sort_unstable();
                elements.dedup();
                Some(elements)
            }
            Self::TextMap(map) => Some(map.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect()),
            Self::BlobMap(map) => Some(map.iter().map(|(k, v)| (k.as_bytes(), &v[..])).collect()),
            _ => None,
        }
    }

    /// Appends the serialised value; false when it is null.
    fn serialise(&self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Null => return false,
            Self::Text(v) => out.extend_from_slice(v.as_bytes()),
            Self::Int(v) => out.extend_from_slice(&v.to_be_bytes()),
            Self::BigInt(v) | Self::Timestamp(v) => out.extend_from_slice(&v.to_be_bytes()),
            Self::Boolean(v) => out.push(u8::from(*v)),
            Self::Double(v) => out.extend_from_slice(&v.to_be_bytes()),
            Self::Float(v) => out.extend_from_slice(&v.to_be_bytes()),
            Self::Uuid(v) => out.extend_from_slice(v.as_bytes()),
            Self::Inet(IpAddr::V4(v)) => out.extend_from_slice(&v.octets()),
            Self::Inet(IpAddr::V6(v)) => out.extend_from_slice(&v.octets()),
            Self::Blob(v) => out.extend_from_slice(v),
            Self::TextList(texts) => {
                let mut builder = CollectionBuilder::new(out);
                texts.iter().for_each(|text| builder.push(text.as_bytes()));
                builder.finish();
            }
            Self::Texts(_) | Self::TextMap(_) | Self::BlobMap(_) => {
                let is_set = matches!(self, Self::Texts(_));
                let mut builder = CollectionBuilder::new(out);
                for (key, value) in self.elements().unwrap_or_default() {
                    if is_set {
                        builder.push(key)
                    } else {
                        builder.push_pair(key, value)
                    }
                }
                builder.finish();
            }
        }
        true
    }
}

/// The serialised partition key of these values. If there are several, each has its length in two bytes before it and a
/// zero after it.
pub(crate) fn composite(values: &[Value<'_>]) -> Vec<u8> {
    let mut key = Vec::new();
    let put = |value: &Value<'_>, out: &mut Vec<u8>| {
        assert!(value.serialise(out), "a key column of a system table is never null");
    };
    if let [value] = values {
        put(value, &mut key);
        return key;
    }
    for value in values {
        let length_at = key.len();
        key.extend_from_slice(&[0; 2]);
        put(value, &mut key);
        let length = u16::try_from(key.len() - length_at - 2).expect("keys of system tables are short");
        key[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        key.push(0);
    }
    key
}

/// A regular column of the table that a row is packed for.
#[derive(Clone, Copy, Debug)]
struct Packed {
    id: usize,
    /// Its place in a row of the definition.
    at: usize,
    is_multi_cell: bool,
}

/// How rows of a definition become rows of a table: the place of each column of the table in the definition's rows.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The definition's columns, key columns first.
    names: Vec<&'static str>,
    partition_columns: usize,
    key_columns: usize,
    /// Ascending by id. Columns that the table has and the definition has not stay null.
    regular: Vec<Packed>,
}

impl Shape {
    /// Of a table that has the key of the definition.
    pub(crate) fn of(definition: &Definition, table: &Table) -> Self {
        let columns = definition.columns();
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let regular = table.columns.iter().filter(|c| c.kind == ColumnKind::Regular);
        let mut regular: Vec<Packed> = regular
            .filter_map(|column| {
                Some(Packed {
                    id: usize::from(column.id.0),
                    at: names.iter().position(|name| *name == column.name)?,
                    is_multi_cell: column.cql_type.is_multi_cell(),
                })
            })
            .collect();
        regular.sort_unstable_by_key(|column| column.id);
        let columns_of = |kind| columns.iter().filter(|column| column.kind == kind).count();
        let partition_columns = columns_of(ColumnKind::PartitionKey);
        Self {
            names,
            partition_columns,
            key_columns: partition_columns + columns_of(ColumnKind::Clustering),
            regular,
        }
    }
}

/// Collects rows of one partition: those that the read wants, until a block is full.
#[derive(Debug)]
pub struct Rows<'a> {
    table: &'a Table,
    shape: &'a Shape,
    key: &'a [u8],
    /// What the read wants of the partition, in clustering order and disjoint.
    slices: &'a [ClusteringSlice],
    /// None: rows are added to the last one, because the read wants them from the last to the first.
    limits: Option<BlockLimits>,
    now_us: i64,
    /// Clustering keys and packed rows.
    bytes: Vec<u8>,
    rows: Vec<(Range<usize>, Range<usize>)>,
    scratch: Vec<u8>,
    is_full: bool,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(
        (table, shape): (&'a Table, &'a Shape),
        key: &'a [u8],
        slices: &'a [ClusteringSlice],
        limits: Option<BlockLimits>,
        now_us: i64,
    ) -> Self {
        Self {
            table,
            shape,
            key,
            slices,
            limits,
            now_us,
            bytes: Vec::new(),
            rows: Vec::new(),
            scratch: Vec::new(),
            is_full: false,
        }
    }

    /// Whether the read wants any row whose clustering key begins with these values. A content asks before it computes
    /// many rows.
    pub fn wants(&mut self, prefix: &[Value<'_>]) -> bool {
        let mut serialised = std::mem::take(&mut self.scratch);
        serialised.clear();
        self.put_clustering(prefix.iter(), &mut serialised);
        let order = &self.table.clustering_order;
        let (before, after) = (Bound::before(&serialised), Bound::after(&serialised));
        let ended = self
            .slices
            .partition_point(|slice| slice.end.compare(order, &before).is_le());
        let next = self.slices.get(ended);
        let is_wanted = next.is_some_and(|slice| slice.start.compare(order, &after).is_lt());
        self.scratch = serialised;
        is_wanted
    }

    /// Whether the block is full. A content may ask only if all further rows sort after those that it has added. If the
    /// block is full it adds no more, and is asked for the rest of the partition later.
    pub fn is_full(&mut self) -> bool {
        if let Some(limits) = self.limits {
            self.is_full = self.rows.len() >= limits.rows || self.bytes.len() >= limits.bytes;
        }
        self.is_full
    }

    /// Adds a row: all columns of the definition with their names, in the definition's order. Rows come in any order.
    ///
    /// # Panics
    /// When a key column is null. Builds with debug assertions also check the names, and that the row is of the
    /// partition that was asked for.
    pub fn push(&mut self, row: &[(&str, Value<'_>)]) {
        debug_assert!(!self.is_full, "rows are added to a block that is full");
        debug_assert!(
            row.iter().map(|(name, _)| name).eq(&self.shape.names),
            "a row of {}.{} names other columns than the definition: {:?}",
            self.table.keyspace,
            self.table.name,
            row.iter().map(|(name, _)| *name).collect::<Vec<_>>()
        );
        debug_assert!(
            composite(
                &row[..self.shape.partition_columns]
                    .iter()
                    .map(|(_, v)| v.clone())
                    .collect::<Vec<_>>()
            ) == self.key,
            "a row of {}.{} is of another partition than was asked for",
            self.table.keyspace,
            self.table.name
        );
        let mut bytes = std::mem::take(&mut self.bytes);
        let start = bytes.len();
        let clustering = &row[self.shape.partition_columns..self.shape.key_columns];
        self.put_clustering(clustering.iter().map(|(_, value)| value), &mut bytes);
        let middle = bytes.len();
        let order = &self.table.clustering_order;
        if ClusteringSlice::any_contains(self.slices, order, &bytes[start..]) {
            self.pack(row, &mut bytes);
            self.rows.push((start..middle, middle..bytes.len()));
        } else {
            bytes.truncate(start);
        }
        self.bytes = bytes;
    }

    fn put_clustering<'v>(&self, values: impl Iterator<Item = &'v Value<'v>>, out: &mut Vec<u8>) {
        let mut component = Vec::new();
        for value in values {
            component.clear();
            assert!(
                value.serialise(&mut component),
                "a key column of a system table is never null"
            );
            push_component(out, &component);
        }
    }

    fn pack(&mut self, row: &[(&str, Value<'_>)], out: &mut Vec<u8>) {
        let timestamp = self.now_us;
        let (ttl, expiry) = (0, 0);
        let shared = Shared { timestamp, ttl, expiry };
        let marker = Liveness { timestamp, ttl, expiry };
        let layout = &self.table.layout;
        let mut builder = RowBuilder::begin(out, layout, shared, Some(marker), Tombstone::NONE, false, layout.len());
        for column in &self.shape.regular {
            let value = &row[column.at].1;
            if !column.is_multi_cell {
                self.scratch.clear();
                if value.serialise(&mut self.scratch) {
                    builder.value(column.id, &self.scratch);
                }
                continue;
            }
            let Some(elements) = value.elements().filter(|elements| !elements.is_empty()) else {
                continue;
            };
            let cells = elements.iter().map(|(path, value)| {
                let cell = Cell {
                    timestamp,
                    ttl: 0,
                    deletion_time: 0,
                    dead: false,
                    value,
                };
                (*path, cell)
            });
            builder.complex(column.id, Tombstone::NONE, cells);
        }
    }

    /// The rows as a block in clustering order, which is complete up to its last row, or to the end of the partition.
    /// None without rows, unless the block is the rest of a partition.
    pub(crate) fn into_block(mut self, token: types::Token, is_rest: bool) -> Option<PartitionBlock> {
        if self.rows.is_empty() && !is_rest {
            return None;
        }
        let order = &self.table.clustering_order;
        let bytes = &self.bytes;
        let compare = |a: &Range<usize>, b: &Range<usize>| order.compare(&bytes[a.clone()], &bytes[b.clone()]);
        if !self.rows.is_sorted_by(|a, b| compare(&a.0, &b.0).is_lt()) {
            self.rows.sort_by(|a, b| compare(&a.0, &b.0));
        }
        let mut block = PartitionBlock::with_room(token, self.key, bytes.len(), self.rows.len());
        for (clustering, row) in &self.rows {
            block.push_row(&bytes[clustering.clone()], &bytes[row.clone()]);
        }
        if self.is_full
            && let Some((last, _)) = self.rows.last()
        {
            block.covered = Some(Bound::after(&bytes[last.clone()]));
        }
        Some(block)
    }
}
