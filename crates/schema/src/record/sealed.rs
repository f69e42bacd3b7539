//! Objects in a file of their own: what a snapshot of a table keeps beside its files.
//!
//! ```text
//! "CETOOBJ1", record of the objects, CRC-32 of all before (four bytes, big endian)
//! ```

use record::{Field, Known, Message, Of, Record, RecordError};

use super::object::{OBJECT, ObjectRecord, object_from_record, object_record};
use crate::object::Object;

/// What the file begins with: its first format.
const MAGIC: &[u8; 8] = b"CETOOBJ1";

/// Some objects.
#[derive(Clone, PartialEq, prost::Message)]
struct ObjectsRecord {
    #[prost(message, repeated, tag = "1")]
    objects: Vec<ObjectRecord>,
}

static OBJECTS: Message = Message::new("objects", &[Field::list(1, "objects", Of::Record(&OBJECT))]);

impl Record for ObjectsRecord {
    const MESSAGE: &'static Message = &OBJECTS;
}

/// The content of a file with these objects.
#[must_use]
pub fn seal_objects(objects: &[Object]) -> Vec<u8> {
    let record = ObjectsRecord {
        objects: objects.iter().map(object_record).collect(),
    };
    let mut file = MAGIC.to_vec();
    file.extend_from_slice(&record::encode(&record));
    let checksum = crc32fast::hash(&file);
    file.extend_from_slice(&checksum.to_be_bytes());
    file
}

/// The objects of a file.
///
/// # Errors
/// When it is damaged, or holds what this node does not know.
pub fn open_objects(file: &[u8], known: &Known) -> Result<Vec<Object>, RecordError> {
    let damaged = |why: &str| RecordError::damaged("objects", why);
    let (sealed, checksum) = file.split_last_chunk::<4>().ok_or_else(|| damaged("it is too short"))?;
    let bytes = sealed
        .strip_prefix(MAGIC)
        .ok_or_else(|| damaged("expected a file that begins with CETOOBJ1"))?;
    if crc32fast::hash(sealed) != u32::from_be_bytes(*checksum) {
        return Err(damaged("the checksum does not match"));
    }
    let record: ObjectsRecord = record::decode(bytes, known)?;
    record.objects.into_iter().map(object_from_record).collect()
}
