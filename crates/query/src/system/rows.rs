//! Rows of computed tables, packed as stored ones are.

use std::collections::BTreeMap;
use std::net::IpAddr;

use mutation::row::Shared;
use mutation::{Cell, Liveness, MutationBuilder, RowBuilder, Tombstone};
use schema::{Column, Table, push_component};
use types::{CollectionBuilder, CqlType};
use uuid::Uuid;

/// An element of a set, or a key and its value of a map.
type Element = (Vec<u8>, Option<Vec<u8>>);

/// A clustering key and a packed row.
type PackedRow = (Vec<u8>, Vec<u8>);

/// A value of a computed column.
pub(super) enum Field<'a> {
    Null,
    Text(&'a str),
    Int(i32),
    BigInt(i64),
    Boolean(bool),
    Double(f64),
    Float(f32),
    Uuid(Uuid),
    Inet(IpAddr),
    /// Milliseconds since the epoch.
    Timestamp(i64),
    Blob(&'a [u8]),
    /// A set of texts in any order.
    Texts(Vec<&'a str>),
    /// A map of texts.
    TextMap(&'a BTreeMap<String, String>),
    /// A map of blobs by text.
    BlobMap(BTreeMap<&'a str, Vec<u8>>),
}

impl Field<'_> {
    /// A text, or null.
    pub(super) fn text(text: Option<&str>) -> Field<'_> {
        text.map_or(Field::Null, Field::Text)
    }

    /// A UUID, or null.
    pub(super) fn uuid(uuid: Option<Uuid>) -> Field<'static> {
        uuid.map_or(Field::Null, Field::Uuid)
    }

    /// The keys and values of a collection, sorted; of a set only the keys.
    fn elements(&self) -> Option<Vec<Element>> {
        let mut elements: Vec<_> = match self {
            Self::Texts(texts) => texts.iter().map(|t| (t.as_bytes().to_vec(), None)).collect(),
            Self::TextMap(map) => map
                .iter()
                .map(|(k, v)| (k.as_bytes().to_vec(), Some(v.as_bytes().to_vec())))
                .collect(),
            Self::BlobMap(map) => map
                .iter()
                .map(|(k, v)| (k.as_bytes().to_vec(), Some(v.clone())))
                .collect(),
            _ => return None,
        };
        elements.sort();
        elements.dedup_by(|a, b| a.0 == b.0);
        Some(elements)
    }

    /// The value in one piece; None is null.
    fn serialise(&self) -> Option<Vec<u8>> {
        Some(match self {
            Self::Null => return None,
            Self::Text(v) => v.as_bytes().to_vec(),
            Self::Int(v) => v.to_be_bytes().to_vec(),
            Self::BigInt(v) | Self::Timestamp(v) => v.to_be_bytes().to_vec(),
            Self::Boolean(v) => vec![u8::from(*v)],
            Self::Double(v) => v.to_be_bytes().to_vec(),
            Self::Float(v) => v.to_be_bytes().to_vec(),
            Self::Uuid(v) => v.as_bytes().to_vec(),
            Self::Inet(IpAddr::V4(v)) => v.octets().to_vec(),
            Self::Inet(IpAddr::V6(v)) => v.octets().to_vec(),
            Self::Blob(v) => v.to_vec(),
            Self::Texts(_) | Self::TextMap(_) | Self::BlobMap(_) => {
                let mut out = Vec::new();
                let mut builder = CollectionBuilder::new(&mut out);
                for (key, value) in self.elements().unwrap_or_default() {
                    match value {
                        Some(value) => builder.push_pair(&key, &value),
                        None => builder.push(&key),
                    }
                }
                builder.finish();
                out
            }
        })
    }
}

/// Collects the rows of one table.
pub(super) struct Rows<'t> {
    table: &'t Table,
    now_us: i64,
    /// Rows by partition key.
    partitions: BTreeMap<Vec<u8>, Vec<PackedRow>>,
}

impl<'t> Rows<'t> {
    pub(super) fn new(table: &'t Table, now_us: i64) -> Self {
        Self {
            table,
            now_us,
            partitions: BTreeMap::new(),
        }
    }

    /// Adds a row from its columns by name. Those not named are null; every key column is named.
    pub(super) fn push(&mut self, fields: &[(&str, Field<'_>)]) {
        for (name, _) in fields {
            debug_assert!(
                self.table.column(name).is_some(),
                "{} has no column {name}",
                self.table.name
            );
        }
        let field = |c: &Column| {
            fields
                .iter()
                .find(|(name, _)| *name == c.name)
                .map_or(&Field::Null, |(_, f)| f)
        };
        let key_part = |c: &Column| {
            field(c)
                .serialise()
                .expect("key columns of system tables are never null")
        };
        let mut parts: Vec<Vec<u8>> = self.table.partition_key().map(key_part).collect();
        let key = if parts.len() == 1 {
            parts.remove(0)
        } else {
            composite(&parts)
        };
        let mut clustering = Vec::new();
        for c in self.table.clustering() {
            push_component(&mut clustering, &key_part(c));
        }
        let row = self.pack(field);
        self.partitions.entry(key).or_default().push((clustering, row));
    }

    fn pack<'f>(&self, field: impl Fn(&Column) -> &'f Field<'f>) -> Vec<u8> {
        let mut columns: Vec<&Column> = self.table.regulars().collect();
        columns.sort_by_key(|c| c.id);
        let shared = Shared {
            timestamp: self.now_us,
            ttl: 0,
            expiry: 0,
        };
        let marker = Liveness {
            timestamp: self.now_us,
            ttl: 0,
            expiry: 0,
        };
        let mut out = Vec::new();
        let layout = &self.table.layout;
        let mut builder = RowBuilder::begin(
            &mut out,
            layout,
            shared,
            Some(marker),
            Tombstone::NONE,
            false,
            layout.len(),
        );
        for c in columns {
            let id = usize::from(c.id.0);
            if !c.cql_type.is_multi_cell() {
                if let Some(value) = field(c).serialise() {
                    builder.value(id, &value);
                }
                continue;
            }
            debug_assert!(
                !matches!(c.cql_type, CqlType::List(_)),
                "paths of lists are not computed"
            );
            let Some(elements) = field(c).elements().filter(|e| !e.is_empty()) else {
                continue;
            };
            let cells = elements.iter().map(|(path, value)| {
                let value = value.as_deref().unwrap_or_default();
                (
                    path.as_slice(),
                    Cell {
                        timestamp: self.now_us,
                        ttl: 0,
                        deletion_time: 0,
                        dead: false,
                        value,
                    },
                )
            });
            builder.complex(id, Tombstone::NONE, cells);
        }
        out
    }

    /// One packed mutation for each partition.
    pub(super) fn finish(self) -> Vec<Vec<u8>> {
        let table = self.table;
        let mutation = |(key, mut rows): (Vec<u8>, Vec<PackedRow>)| {
            rows.sort_by(|a, b| table.clustering_order.compare(&a.0, &b.0));
            let mut out = Vec::new();
            let mut builder = MutationBuilder::begin(&mut out, table.id, &key);
            for (clustering, row) in rows {
                builder.row(&clustering, |out| out.extend_from_slice(&row));
            }
            out
        };
        self.partitions.into_iter().map(mutation).collect()
    }
}

/// A partition key of several columns: each with its length in two bytes before it and a zero behind it.
fn composite(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut key = Vec::new();
    for part in parts {
        let len = u16::try_from(part.len()).expect("keys of system tables are short");
        key.extend_from_slice(&len.to_be_bytes());
        key.extend_from_slice(part);
        key.push(0);
    }
    key
}
