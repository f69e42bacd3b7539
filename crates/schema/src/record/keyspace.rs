//! Keyspaces.

use std::collections::BTreeMap;

use record::{Field, Message, OPTION, Of, Record, RecordError};

use crate::object::KeyspaceObject;

/// A keyspace, without the objects in it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyspaceRecord {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Class and options of its replication.
    #[prost(btree_map = "string, string", tag = "2")]
    pub replication: BTreeMap<String, String>,
    /// Whether its writes go to the commitlog.
    #[prost(bool, tag = "3")]
    pub durable_writes: bool,
    /// What `tablets` says; absent when the keyspace was made without it.
    #[prost(message, optional, tag = "4")]
    pub tablets: Option<TabletsRecord>,
}

/// `tablets = {…}` of a keyspace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TabletsRecord {
    /// Its options.
    #[prost(btree_map = "string, string", tag = "1")]
    pub options: BTreeMap<String, String>,
}

pub(super) static KEYSPACE: Message = Message::new(
    "keyspace",
    &[
        Field::new(1, "name", Of::Text),
        Field::list(2, "replication", Of::Record(&OPTION)),
        Field::new(3, "durable_writes", Of::Bool),
        Field::new(4, "tablets", Of::Record(&TABLETS)),
    ],
)
.titled(&[1]);

static TABLETS: Message = Message::new("tablets", &[Field::list(1, "options", Of::Record(&OPTION))]);

impl Record for KeyspaceRecord {
    const MESSAGE: &'static Message = &KEYSPACE;
}

pub(super) fn to_record(keyspace: &KeyspaceObject) -> KeyspaceRecord {
    KeyspaceRecord {
        name: keyspace.name.clone(),
        replication: keyspace.replication.clone(),
        durable_writes: keyspace.durable_writes,
        tablets: keyspace.tablets.clone().map(|options| TabletsRecord { options }),
    }
}

pub(super) fn from_record(record: KeyspaceRecord) -> Result<KeyspaceObject, RecordError> {
    if record.name.is_empty() {
        return Err(RecordError::damaged("keyspace, name", "it is missing"));
    }
    Ok(KeyspaceObject {
        name: record.name,
        replication: record.replication,
        durable_writes: record.durable_writes,
        tablets: record.tablets.map(|tablets| tablets.options),
    })
}
