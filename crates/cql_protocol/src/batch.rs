//! The BATCH request.
//!
//! ```text
//! kind [byte]  n [short]  n x (prepared? [byte]  text [long string] or id [short bytes]  values)
//! consistency  flags  [serial consistency] [timestamp] [keyspace] [now in seconds]
//! ```

use crate::codes::{BatchKind, Consistency, ProtocolVersion, query_flags};
use crate::error::ProtocolError;
use crate::reader::Reader;
use crate::request::{read_flags, read_timestamp};
use crate::values::Values;

/// A BATCH, validated as a whole when it was decoded.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// How its statements belong together.
    pub kind: BatchKind,
    /// The consistency level of the whole.
    pub consistency: Consistency,
    /// The level of the serial phase, when one of its statements is conditional.
    pub serial_consistency: Option<Consistency>,
    /// The default write timestamp, in microseconds.
    pub timestamp: Option<i64>,
    /// The keyspace of statements that name none (version 5).
    pub keyspace: Option<&'a str>,
    /// The seconds that count as now (version 5).
    pub now_in_seconds: Option<i32>,
    count: u16,
    entries: &'a [u8],
    version: ProtocolVersion,
}

/// One statement of a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct BatchEntry<'a> {
    /// What to run.
    pub statement: BatchStatement<'a>,
    /// With which values.
    pub values: Values<'a>,
}

/// How a statement of a [`Batch`] is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStatement<'a> {
    /// By its text.
    Text(&'a str),
    /// By the id that PREPARE gave it.
    Prepared(&'a [u8]),
}

impl<'a> Batch<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Batch<'a>, ProtocolError> {
        let kind = match reader.byte("batch type")? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            other => {
                let expected = "0 (logged), 1 (unlogged) or 2 (counter)";
                return Err(ProtocolError::OutOfRange {
                    field: "batch type",
                    expected,
                    found: other.into(),
                });
            }
        };
        let count = reader.short("number of statements in the batch")?;
        let start = *reader;
        for _ in 0..count {
            read_entry(reader, version)?;
        }
        let entries = reader.since(start);
        let consistency = reader.consistency("consistency of the batch")?;
        let flags = read_flags(reader, version, "flags of the batch")?;
        if flags & query_flags::NAMES_FOR_VALUES != 0 {
            // The flag comes after the values that it would change the layout of: CASSANDRA-10246.
            return Err(ProtocolError::NotAllowed {
                what: "Names for values are not supported in a batch",
            });
        }
        let has = |flag: u32| flags & flag != 0;
        let has_v5 = |flag: u32| version >= ProtocolVersion::V5 && has(flag);
        let serial_consistency = if has(query_flags::SERIAL_CONSISTENCY) {
            Some(reader.consistency("serial consistency of the batch")?)
        } else {
            None
        };
        let timestamp = if has(query_flags::TIMESTAMP) {
            Some(read_timestamp(reader)?)
        } else {
            None
        };
        let keyspace = if has_v5(query_flags::KEYSPACE) {
            Some(reader.string("keyspace of the batch")?)
        } else {
            None
        };
        let now_in_seconds = if has_v5(query_flags::NOW_IN_SECONDS) {
            Some(reader.int("now in seconds")?)
        } else {
            None
        };
        Ok(Batch {
            kind,
            consistency,
            serial_consistency,
            timestamp,
            keyspace,
            now_in_seconds,
            count,
            entries,
            version,
        })
    }

    /// How many statements there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The statements, in the order they were sent.
    pub fn entries(&self) -> BatchEntries<'a> {
        BatchEntries {
            version: self.version,
            rest: Reader::new(self.entries),
        }
    }
}

/// Iterates over the statements of a [`Batch`].
#[derive(Clone, Debug)]
pub struct BatchEntries<'a> {
    version: ProtocolVersion,
    rest: Reader<'a>,
}

impl<'a> Iterator for BatchEntries<'a> {
    type Item = BatchEntry<'a>;

    fn next(&mut self) -> Option<BatchEntry<'a>> {
        if self.rest.rest().is_empty() {
            return None;
        }
        read_entry(&mut self.rest, self.version).ok()
    }
}

fn read_entry<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<BatchEntry<'a>, ProtocolError> {
    let statement = match reader.byte("kind of a statement in the batch")? {
        0 => BatchStatement::Text(reader.long_string("text of a statement in the batch")?),
        1 => BatchStatement::Prepared(reader.short_bytes("prepared id of a statement in the batch")?),
        other => {
            let field = "kind of a statement in the batch";
            return Err(ProtocolError::OutOfRange {
                field,
                expected: "0 (text) or 1 (prepared)",
                found: other.into(),
            });
        }
    };
    Ok(BatchEntry {
        statement,
        values: Values::read(reader, false, version)?,
    })
}
