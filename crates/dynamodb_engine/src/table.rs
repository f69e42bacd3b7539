//! A table of the API as the engine sees it: the schema's table, with what requests need of it computed once.

use std::sync::Arc;

use dynamodb::table::TableDefinition;
use dynamodb::value::key;
use dynamodb::{AttributeValue, Error, ErrorKind, Item, ValueType};
use plan::restrict::{Choice, ClusteringRestriction, PartitionRestriction, Restrictions};
use plan::{Operand, Select, SelectPlan, Selection};
use schema::{Column, Table, components, push_component};
use types::token::token_of;
use types::{CqlType, LiteralKind, Token};

use crate::row::{ATTRIBUTES, LOCK};

/// What the names of the keyspaces of tables begin with; the name of the table follows.
pub const KEYSPACE_PREFIX: &str = "alternator_";
/// The extension of a table with its [`TableDefinition`].
pub const EXTENSION: &str = "dynamodb";

/// An attribute of the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyAttribute {
    /// Its name.
    pub name: String,
    /// S, N or B.
    pub key_type: ValueType,
}

/// See the module. Immutable, so that requests take it to other shards.
#[derive(Debug)]
pub struct ItemTable {
    /// Its name in the API.
    pub name: String,
    /// The table of the schema.
    pub table: Arc<Table>,
    /// What requests said of it.
    pub definition: TableDefinition,
    /// The attributes of the partition key and of the sort key.
    pub key: Vec<KeyAttribute>,
    /// The id of the column of all other attributes in the rows' layout.
    pub attributes: usize,
    /// The id of the column of transactions.
    pub lock: usize,
    /// The read of one item by its key.
    pub point: Arc<SelectPlan>,
}

/// The key of an item as rows have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ItemKey {
    /// The serialised partition key.
    pub partition: Vec<u8>,
    /// The serialised clustering key; empty if the table has no sort key.
    pub clustering: Vec<u8>,
}

impl ItemKey {
    /// Where its partition is on the ring.
    pub fn token(&self) -> Token {
        token_of(&self.partition)
    }

    /// The serialised value of the sort key, if there is one.
    pub fn sort(&self) -> Option<&[u8]> {
        components(&self.clustering).next().flatten()
    }
}

/// The CQL type of an attribute of a key.
pub const fn cql_type(key_type: ValueType) -> CqlType {
    match key_type {
        ValueType::N => CqlType::Decimal,
        ValueType::B => CqlType::Blob,
        _ => CqlType::Text,
    }
}

const fn key_type(cql_type: &CqlType) -> Option<ValueType> {
    match cql_type {
        CqlType::Text => Some(ValueType::S),
        CqlType::Decimal => Some(ValueType::N),
        CqlType::Blob => Some(ValueType::B),
        _ => None,
    }
}

/// The keyspace of a table of the API.
pub fn keyspace_of(name: &str) -> String {
    [KEYSPACE_PREFIX, name].concat()
}

#[cold]
fn unreadable(table: &Table, what: &str) -> Error {
    Error::new(
        ErrorKind::InternalServerError,
        format!("Table {} cannot be used: {what}", table.name),
    )
}

impl ItemTable {
    /// The table of the API that a table of the schema is; None: it is none.
    ///
    /// # Errors
    /// When it has the extension, and its columns or its definition are not those that this API makes.
    pub fn of(table: &Arc<Table>) -> Result<Option<Self>, Error> {
        let Some(extension) = table.options.extensions.get(EXTENSION) else {
            return Ok(None);
        };
        let bytes = CqlType::Blob.parse_literal(LiteralKind::Hex, extension);
        let bytes = bytes.map_err(|e| unreadable(table, &e.to_string()))?;
        let definition = TableDefinition::decode(&bytes).map_err(|e| unreadable(table, &e.to_string()))?;
        let attribute = |column: &Column| {
            let key_type = key_type(&column.cql_type).ok_or_else(|| unreadable(table, "the type of its key"))?;
            Ok(KeyAttribute {
                name: column.name.clone(),
                key_type,
            })
        };
        let columns = table.partition_key().chain(table.clustering());
        let key: Vec<KeyAttribute> = columns.map(attribute).collect::<Result<_, Error>>()?;
        let id_of = |name: &str| {
            let column = table
                .column(name)
                .ok_or_else(|| unreadable(table, "a column is missing"))?;
            Ok(usize::from(column.id.0))
        };
        Ok(Some(Self {
            name: definition.name.clone(),
            point: Arc::new(point(table).map_err(|e| unreadable(table, &e))?),
            attributes: id_of(ATTRIBUTES)?,
            lock: id_of(LOCK)?,
            table: table.clone(),
            definition,
            key,
        }))
    }

    /// Whether an attribute of this name is part of the key.
    pub fn is_key(&self, name: &[u8]) -> bool {
        self.key.iter().any(|key| key.name.as_bytes() == name)
    }

    /// The key of an item, or of a map of exactly its key's attributes, which was validated before.
    ///
    /// # Errors
    /// When an attribute of the key is missing or is of another type, which validation has refused.
    pub fn key_of(&self, item: &Item) -> Result<ItemKey, Error> {
        let mut values = Vec::with_capacity(self.key.len());
        for attribute in &self.key {
            let value = item
                .get(&attribute.name)
                .filter(|v| v.value_type() == attribute.key_type);
            let value = value.ok_or_else(|| Error::validation("The provided key element does not match the schema"))?;
            values.push(value);
        }
        self.key_of_values(&values)
    }

    /// The key of the values of the partition key and of the sort key.
    ///
    /// # Errors
    /// When one of them is no value of a key.
    pub fn key_of_values(&self, values: &[&AttributeValue]) -> Result<ItemKey, Error> {
        let mut parts = values.iter().map(|value| key_bytes(value));
        let mut clustering = Vec::new();
        let partition = parts.next().unwrap_or_else(|| Ok(Vec::new()))?;
        for part in parts {
            push_component(&mut clustering, &part?);
        }
        Ok(ItemKey { partition, clustering })
    }

    /// The key of a row that was read: the serialised values of its key's columns.
    pub(crate) fn key_of_row(&self, values: &[Vec<u8>]) -> ItemKey {
        let mut values = values.iter();
        let partition = values.next().cloned().unwrap_or_default();
        let mut clustering = Vec::new();
        for value in values {
            push_component(&mut clustering, value);
        }
        ItemKey { partition, clustering }
    }

    /// The attributes of a key.
    pub fn key_item(&self, item: &Item) -> Item {
        let named = self.key.iter().filter_map(|key| item.get_key_value(&key.name));
        named.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The columns that a read returns: the key's, the attributes, the lock; positions in the table's columns.
    pub fn selection(table: &Table) -> Result<Selection, String> {
        let key = table
            .partition_key()
            .chain(table.clustering())
            .map(|column| column.name.as_str());
        let names: Vec<&str> = key.chain([ATTRIBUTES, LOCK]).collect();
        let position = |name: &&str| table.columns.iter().position(|column| column.name == **name);
        let positions: Vec<usize> = names.iter().filter_map(position).collect();
        if positions.len() < names.len() {
            return Err("a column is missing".to_owned());
        }
        Selection::plain(table, &positions).map_err(|e| e.to_string())
    }
}

/// The bytes of a value of a key.
///
/// # Errors
/// When it is no value of a key.
pub fn key_bytes(value: &AttributeValue) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    key::append_cql(&mut bytes, value)
        .map_err(|_| Error::validation("The provided key element does not match the schema"))?;
    Ok(bytes)
}

fn point(table: &Arc<Table>) -> Result<SelectPlan, String> {
    let marker = |index: usize, column: &Column| Operand::Marker {
        index,
        cql_type: column.cql_type.clone(),
    };
    let partition = table.partition_key().map(|column| marker(0, column)).collect();
    let prefix = table.clustering().map(|column| Choice::One(marker(1, column)));
    let clustering = ClusteringRestriction::new(table, prefix.collect(), None, None).map_err(|e| e.to_string())?;
    let restrictions = Restrictions {
        partition: PartitionRestriction::Key(partition),
        clustering,
        filters: Vec::new(),
        indexed: Vec::new(),
    };
    let select = Select::new(table.clone(), ItemTable::selection(table)?, restrictions);
    SelectPlan::new(select).map_err(|e| e.to_string())
}
