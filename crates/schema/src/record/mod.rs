//! The durable form of the schema: records with numbered fields. See crate `record` and docs/dev/schema.md.
//!
//! ```text
//! Schema       version, object*                                  in the metadata file and in Raft snapshots
//! Change       base, next, put object*, dropped name*            in a command of the metadata log
//! Objects      object*                                           beside the files of a snapshot, see `sealed.rs`
//! Object       one of: keyspace, table, type, function, aggregate (kept for later: view, index, …)
//! ```
//!
//! The structs here are the stored form. They are separate from the values that the rest of the node uses; each module
//! has the two conversions of one kind of object. A value becomes a record without an error. A record becomes a value,
//! or an error that names object and field.
//!
//! `testdata/records.txt` pins the bytes of each of them.

mod change;
mod column;
mod cql_type;
mod function;
mod index;
mod keyspace;
mod object;
mod sealed;
mod table;

pub use change::{CHANGE, ChangeRecord, SCHEMA, SchemaRecord};
pub use object::{ObjectRecord, object_from_record, object_record};
pub use sealed::{open_objects, seal_objects};
pub use table::PER_PARTITION_RATE_LIMIT;

use record::RecordError;
use uuid::Uuid;

/// An id that a record stores as its 16 bytes.
///
/// # Errors
/// When there are more or fewer.
pub fn uuid(bytes: &[u8], place: &str) -> Result<Uuid, RecordError> {
    Uuid::from_slice(bytes).map_err(|_| {
        let why = format!("expected the 16 bytes of a UUID, found {}", bytes.len());
        RecordError::damaged(place, why)
    })
}

fn small(number: u32, place: &str) -> Result<u16, RecordError> {
    u16::try_from(number)
        .map_err(|_| RecordError::damaged(place, format!("expected at most {}, found {number}", u16::MAX)))
}

fn there<T>(value: Option<T>, place: &str) -> Result<T, RecordError> {
    value.ok_or_else(|| RecordError::damaged(place, "it is missing"))
}
