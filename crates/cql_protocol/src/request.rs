//! Requests, decoded without copying: every slice and text borrows from the body of the frame.
//!
//! A body may be longer than its message: the specification lets clients append what an extension needs, so the rest is
//! ignored. An extension that a connection agreed on is read.

use crate::batch::Batch;
use crate::codes::{Consistency, EventSet, EventType, Opcode, ProtocolVersion, frame_flags, query_flags};
use crate::collections::{BytesMap, StringMap};
use crate::error::ProtocolError;
use crate::frame::Frame;
use crate::reader::Reader;
use crate::tablet_routing::TabletVersionBlock;
use crate::values::Values;

/// What a connection agreed on at STARTUP that changes the layout of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// `SCYLLA_USE_METADATA_ID`: EXECUTE carries the result metadata id as in version 5.
    pub result_metadata_id: bool,
    /// `TABLETS_ROUTING_V2_EXPERIMENTAL`: a byte follows the parameters of EXECUTE.
    pub tablet_version_block: bool,
}

/// What a client asks.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Opens the connection.
    Startup(StringMap<'a>),
    /// Asks what STARTUP may contain.
    Options,
    /// Runs a statement given as text.
    Query {
        /// The statement.
        text: &'a str,
        /// How to run it.
        params: QueryParams<'a>,
    },
    /// Prepares a statement.
    Prepare {
        /// The statement.
        text: &'a str,
        /// The keyspace of tables that name none (version 5).
        keyspace: Option<&'a str>,
    },
    /// Runs a prepared statement.
    Execute {
        /// The id that PREPARE gave it.
        id: &'a [u8],
        /// The id of the result metadata the client holds (version 5, or the extension).
        result_metadata_id: Option<&'a [u8]>,
        /// How to run it.
        params: QueryParams<'a>,
        /// What the client knows of the version of the statement's tablet (`TABLETS_ROUTING_V2_EXPERIMENTAL`).
        tablet_version_block: Option<TabletVersionBlock>,
    },
    /// Runs several statements.
    Batch(Batch<'a>),
    /// Asks for events.
    Register(EventSet),
    /// Answers an authentication challenge; null is an empty token.
    AuthResponse(&'a [u8]),
}

/// How a statement is to be run.
#[derive(Clone, Copy, Debug)]
pub struct QueryParams<'a> {
    /// How many replicas must answer.
    pub consistency: Consistency,
    /// Bits of [`query_flags`], as they were sent.
    pub flags: u32,
    /// The bound values.
    pub values: Values<'a>,
    /// Whether the client holds the result metadata already.
    pub skip_metadata: bool,
    /// Rows per page; `None` asks for everything.
    pub page_size: Option<u32>,
    /// Where the previous page ended.
    pub paging_state: Option<&'a [u8]>,
    /// The level of the serial phase of a conditional statement.
    pub serial_consistency: Option<Consistency>,
    /// The default write timestamp, in microseconds.
    pub timestamp: Option<i64>,
    /// The keyspace of tables that name none (version 5).
    pub keyspace: Option<&'a str>,
    /// The seconds that count as now (version 5).
    pub now_in_seconds: Option<i32>,
}

/// Decodes the request in a frame, and the custom payload before it.
pub fn decode_request<'a>(
    frame: &Frame<'a>,
    extensions: Extensions,
) -> Result<(Option<BytesMap<'a>>, Request<'a>), ProtocolError> {
    let version = frame.header.version;
    let mut reader = Reader::new(frame.body);
    let has_payload = frame.header.flags & frame_flags::CUSTOM_PAYLOAD != 0;
    if has_payload && version < ProtocolVersion::V4 {
        return Err(ProtocolError::NotAllowed {
            what: "Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4",
        });
    }
    let custom_payload = if has_payload {
        Some(BytesMap::read(&mut reader)?)
    } else {
        None
    };
    let reader = &mut reader;
    let request = match frame.header.opcode {
        Opcode::Execute => {
            let id = reader.short_bytes("prepared id")?;
            let result_metadata_id = if version >= ProtocolVersion::V5 || extensions.result_metadata_id {
                Some(reader.short_bytes("result metadata id")?)
            } else {
                None
            };
            let params = QueryParams::read(reader, version)?;
            let tablet_version_block = if extensions.tablet_version_block {
                Some(TabletVersionBlock(reader.byte("tablet version block")?))
            } else {
                None
            };
            Request::Execute {
                id,
                result_metadata_id,
                params,
                tablet_version_block,
            }
        }
        Opcode::Query => {
            let text = reader.long_string("text of the query")?;
            Request::Query {
                text,
                params: QueryParams::read(reader, version)?,
            }
        }
        Opcode::Prepare => read_prepare(reader, version)?,
        Opcode::Batch => Request::Batch(Batch::read(reader, version)?),
        Opcode::Startup => Request::Startup(StringMap::read(reader)?),
        Opcode::Options => Request::Options,
        Opcode::Register => Request::Register(read_events(reader)?),
        Opcode::AuthResponse => Request::AuthResponse(reader.bytes("authentication token")?.unwrap_or_default()),
        other @ (Opcode::Error
        | Opcode::Ready
        | Opcode::Authenticate
        | Opcode::Supported
        | Opcode::Result
        | Opcode::Event
        | Opcode::AuthChallenge
        | Opcode::AuthSuccess) => return Err(ProtocolError::UnknownOpcode { opcode: other as u8 }),
    };
    Ok((custom_payload, request))
}

impl<'a> QueryParams<'a> {
    fn read(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<QueryParams<'a>, ProtocolError> {
        let consistency = reader.consistency("consistency")?;
        let flags = read_flags(reader, version, "query flags")?;
        let has = |flag: u32| flags & flag != 0;
        let mut params = QueryParams {
            consistency,
            flags,
            values: Values::default(),
            skip_metadata: has(query_flags::SKIP_METADATA),
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        };
        if has(query_flags::VALUES) {
            params.values = Values::read(reader, has(query_flags::NAMES_FOR_VALUES), version)?;
        }
        // The commonest requests stop here, or at the page size.
        if has(query_flags::PAGE_SIZE) {
            let rows = reader.int("page size")?;
            if rows == 0 {
                return Err(ProtocolError::PageOfNoRows);
            }
            params.page_size = u32::try_from(rows).ok();
        }
        if has(query_flags::PAGING_STATE) {
            params.paging_state = reader.bytes("paging state")?;
        }
        if has(query_flags::SERIAL_CONSISTENCY) {
            params.serial_consistency = Some(reader.consistency("serial consistency")?);
        }
        if has(query_flags::TIMESTAMP) {
            params.timestamp = Some(read_timestamp(reader)?);
        }
        if version >= ProtocolVersion::V5 {
            if has(query_flags::KEYSPACE) {
                params.keyspace = Some(reader.string("keyspace")?);
            }
            if has(query_flags::NOW_IN_SECONDS) {
                params.now_in_seconds = Some(reader.int("now in seconds")?);
            }
        }
        Ok(params)
    }
}

/// The flags of query parameters: a byte, from version 5 an int.
#[inline]
pub(crate) fn read_flags(
    reader: &mut Reader<'_>,
    version: ProtocolVersion,
    field: &'static str,
) -> Result<u32, ProtocolError> {
    match version {
        ProtocolVersion::V3 | ProtocolVersion::V4 => Ok(u32::from(reader.byte(field)?)),
        ProtocolVersion::V5 => Ok(reader.int(field)?.cast_unsigned()),
    }
}

/// A default write timestamp. The smallest number means "no timestamp" inside the storage engine, so no client may send
/// it.
pub(crate) fn read_timestamp(reader: &mut Reader<'_>) -> Result<i64, ProtocolError> {
    match reader.long("default timestamp")? {
        i64::MIN => Err(ProtocolError::OutOfRange {
            field: "default timestamp",
            expected: "-9223372036854775807 to 9223372036854775807",
            found: i64::MIN,
        }),
        timestamp => Ok(timestamp),
    }
}

const PREPARE_WITH_KEYSPACE: i32 = 0x01;

fn read_prepare<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Request<'a>, ProtocolError> {
    let text = reader.long_string("text to prepare")?;
    let flags = match version {
        ProtocolVersion::V3 | ProtocolVersion::V4 => 0,
        ProtocolVersion::V5 => reader.int("prepare flags")?,
    };
    let keyspace = if flags & PREPARE_WITH_KEYSPACE != 0 {
        Some(reader.string("keyspace")?)
    } else {
        None
    };
    Ok(Request::Prepare { text, keyspace })
}

fn read_events(reader: &mut Reader<'_>) -> Result<EventSet, ProtocolError> {
    let mut events = EventSet::default();
    for _ in 0..reader.short("number of event types")? {
        let name = reader.string("event type")?;
        let Some(event) = EventType::from_name(name) else {
            return Err(ProtocolError::UnknownName {
                field: "event type",
                expected: "TOPOLOGY_CHANGE, STATUS_CHANGE, SCHEMA_CHANGE or CLIENT_ROUTES_CHANGE",
                found: name.chars().take(64).collect(),
            });
        };
        events.insert(event);
    }
    Ok(events)
}
