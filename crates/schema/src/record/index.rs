//! Secondary indexes of a table.

use std::collections::BTreeMap;

use record::{Field, Message, OPTION, Of, RecordError};

use crate::index::{Index, IndexId, IndexKind, IndexPart};

/// An index.
#[derive(Clone, PartialEq, prost::Message)]
pub struct IndexRecord {
    /// Its number in its table.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The name of the column.
    #[prost(string, tag = "3")]
    pub column: String,
    /// 1: value, 2: keys, 3: values, 4: entries, 5: full.
    #[prost(uint32, tag = "4")]
    pub part: u32,
    /// 1: legacy, 2: SAI, 3: SASI, 4: local.
    #[prost(uint32, tag = "5")]
    pub kind: u32,
    /// WITH OPTIONS.
    #[prost(btree_map = "string, string", tag = "6")]
    pub options: BTreeMap<String, String>,
    /// USING, as it was spelled.
    #[prost(string, optional, tag = "7")]
    pub class: Option<String>,
}

pub(super) static INDEX: Message = Message::new(
    "index",
    &[
        Field::new(1, "id", Of::U32),
        Field::new(2, "name", Of::Text),
        Field::new(3, "column", Of::Text),
        Field::new(4, "part", Of::U32),
        Field::new(5, "kind", Of::U32),
        Field::list(6, "options", Of::Record(&OPTION)),
        Field::new(7, "class", Of::Text),
    ],
)
.titled(&[2]);

const PARTS: [IndexPart; 5] = [
    IndexPart::Value,
    IndexPart::Keys,
    IndexPart::Values,
    IndexPart::Entries,
    IndexPart::Full,
];

const KINDS: [IndexKind; 4] = [IndexKind::Legacy, IndexKind::Sai, IndexKind::Sasi, IndexKind::Local];

fn number_of<T: PartialEq>(all: &[T], one: &T) -> u32 {
    let place = all.iter().position(|other| other == one);
    (1..)
        .nth(place.expect("all of them are listed"))
        .expect("there are few")
}

fn numbered<T: Copy>(all: &[T], number: u32, place: &str) -> Result<T, RecordError> {
    let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    at.and_then(|at| all.get(at).copied()).ok_or_else(|| {
        let why = format!("expected a number from 1 to {}, found {number}", all.len());
        RecordError::damaged(place, why)
    })
}

pub(super) fn to_record(index: &Index) -> IndexRecord {
    IndexRecord {
        id: index.id.0,
        name: index.name.clone(),
        column: index.column.clone(),
        part: number_of(&PARTS, &index.part),
        kind: number_of(&KINDS, &index.kind),
        options: index.options.clone(),
        class: index.class.clone(),
    }
}

pub(super) fn from_record(record: IndexRecord) -> Result<Index, RecordError> {
    let at = |field: &str| format!("index {}, {field}", record.name);
    Ok(Index {
        id: IndexId(record.id),
        part: numbered(&PARTS, record.part, &at("part"))?,
        kind: numbered(&KINDS, record.kind, &at("kind"))?,
        column: record.column,
        options: record.options,
        class: record.class,
        name: record.name,
    })
}
