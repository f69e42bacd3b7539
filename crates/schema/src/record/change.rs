//! Whole schemas, and changes of them.

use record::{Field, Message, Of, Record, RecordError};

use super::object::{
    OBJECT, OBJECT_NAME, ObjectNameRecord, ObjectRecord, name_from_record, name_to_record, object_from_record,
    object_record,
};
use super::uuid;
use crate::object::{Change, Object};
use crate::table::Schema;

/// All objects of a schema.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SchemaRecord {
    /// Its version: 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub version: Vec<u8>,
    /// Each keyspace before the objects in it.
    #[prost(message, repeated, tag = "2")]
    pub objects: Vec<ObjectRecord>,
}

/// From one version of the schema to the next.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChangeRecord {
    /// The version before: 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub base: Vec<u8>,
    /// The version afterwards: 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub next: Vec<u8>,
    /// Objects that are new, or not as they were.
    #[prost(message, repeated, tag = "3")]
    pub put: Vec<ObjectRecord>,
    /// Objects that are gone.
    #[prost(message, repeated, tag = "4")]
    pub dropped: Vec<ObjectNameRecord>,
}

/// Of [`SchemaRecord`].
pub static SCHEMA: Message = Message::new(
    "schema",
    &[
        Field::new(1, "version", Of::Bytes),
        Field::list(2, "objects", Of::Record(&OBJECT)),
    ],
);

/// Of [`ChangeRecord`].
pub static CHANGE: Message = Message::new(
    "schema change",
    &[
        Field::new(1, "base", Of::Bytes),
        Field::new(2, "next", Of::Bytes),
        Field::list(3, "put", Of::Record(&OBJECT)),
        Field::list(4, "dropped", Of::Record(&OBJECT_NAME)),
    ],
);

impl Record for SchemaRecord {
    const MESSAGE: &'static Message = &SCHEMA;
}

impl Record for ChangeRecord {
    const MESSAGE: &'static Message = &CHANGE;
}

impl SchemaRecord {
    /// That of a schema.
    #[must_use]
    pub fn of(schema: &Schema) -> Self {
        Self {
            version: schema.version.as_bytes().to_vec(),
            objects: schema.objects().map(|object| object_record(&object)).collect(),
        }
    }

    /// The schema of it.
    ///
    /// # Errors
    /// When it describes none.
    pub fn schema(self) -> Result<Schema, RecordError> {
        let version = uuid(&self.version, "schema, version")?;
        let objects: Vec<Object> = self
            .objects
            .into_iter()
            .map(object_from_record)
            .collect::<Result<_, _>>()?;
        Schema::of_objects(version, objects).map_err(|why| RecordError::damaged("schema, objects", why))
    }
}

impl ChangeRecord {
    /// That of a change.
    #[must_use]
    pub fn of(change: &Change) -> Self {
        Self {
            base: change.base.as_bytes().to_vec(),
            next: change.next.as_bytes().to_vec(),
            put: change.put.iter().map(object_record).collect(),
            dropped: change.dropped.iter().map(name_to_record).collect(),
        }
    }

    /// The change of it.
    ///
    /// # Errors
    /// When it describes none.
    pub fn change(self) -> Result<Change, RecordError> {
        Ok(Change {
            base: uuid(&self.base, "schema change, base")?,
            next: uuid(&self.next, "schema change, next")?,
            put: self.put.into_iter().map(object_from_record).collect::<Result<_, _>>()?,
            dropped: self
                .dropped
                .into_iter()
                .map(name_from_record)
                .collect::<Result<_, _>>()?,
        })
    }
}
