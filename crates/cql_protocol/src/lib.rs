//! The CQL native protocol: frames, requests, responses, segments and compression.
//!
//! Versions 3, 4 and 5, server side. Bytes in, values out: no socket, no clock, no task. A connection runs this loop:
//!
//! ```text
//! socket bytes -> Splitter::next -> Frame {header, body}          frame.rs, splitter.rs, segment.rs, compression.rs
//!              -> decode_request -> Request<'a>, borrowed          request.rs, values.rs, batch.rs
//!              -> (the server answers)
//!              -> begin_response … finish_response into one Vec    response.rs, rows.rs, error_body.rs, event.rs
//!              -> encode_wire, once for all responses of the read  wire.rs
//! ```
//!
//! A *frame* is the nine-byte header and its body; version 5 calls it an envelope and puts envelopes into checksummed
//! *segments* once STARTUP has been answered. We say frame in every version, and segment for the layer below it.
//!
//! Invariants:
//! - Whatever a peer sends, decoding returns a value or a [`ProtocolError`]; it never panics and never reads past the
//!   frame.
//! - A [`Request`] is validated when it is decoded, in one pass: iterating its values, entries or options cannot fail
//!   later.
//! - Decoding EXECUTE does not allocate. Responses are written straight into the connection's output buffer.

mod batch;
mod codes;
mod collections;
mod compression;
mod error;
mod error_body;
mod event;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod metadata;
mod reader;
mod request;
mod response;
mod rows;
mod segment;
mod splitter;
mod tablet_routing;
mod values;
mod wire;

pub use batch::{Batch, BatchEntries, BatchEntry, BatchStatement};
pub use codes::{
    BatchKind, Consistency, ErrorCode, EventSet, EventType, Opcode, ProtocolVersion, UnknownConsistency, WriteType,
    frame_flags, query_flags, rows_flags,
};
pub use collections::{BytesMap, StringMap};
pub use compression::{Compression, compress_body, decompress_body};
pub use error::{FrameError, ProtocolError};
pub use error_body::{ErrorBody, RateLimitedOperation, write_error, write_frame_error};
pub use event::{ClusterEvent, SchemaChange, SchemaChangeKind, SchemaTarget, write_event, write_schema_change};
pub use frame::{FRAME_HEADER_BYTES, Frame, FrameHeader};
pub use metadata::{ColumnSpec, EncodedMetadata, LWT_METADATA_MARK, PreparedResult, write_column_type};
pub use request::{Extensions, QueryParams, Request, decode_request};
pub use response::{
    Extras, ResponseMark, ResponseTooLarge, begin_response, finish_response, put_bytes, put_null, put_string,
    write_auth_challenge, write_auth_success, write_authenticate, write_ready, write_set_keyspace, write_supported,
    write_void,
};
pub use rows::{RowsMark, begin_rows, finish_rows, write_prepared};
pub use segment::{SEGMENT_PAYLOAD_BYTES_MAX, encode_segments};
pub use splitter::{
    CompressedBody, DecompressedBody, FRAME_BYTES_MAX, FRAME_BYTES_MAX_BEFORE_STARTUP, Framing, Limits, Splitter,
};
pub use tablet_routing::{
    TABLETS_ROUTING, TABLETS_ROUTING_PAYLOAD, TABLETS_ROUTING_V2, TABLETS_ROUTING_V2_PAYLOAD, TabletRoute,
    TabletVersionBlock,
};
pub use values::{Value, Values, ValuesIter};
pub use wire::encode_wire;
