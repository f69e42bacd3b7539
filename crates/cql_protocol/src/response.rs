//! Responses, written straight into the connection's output buffer.
//!
//! [`begin_response`] writes the header and what precedes the message (tracing id, warnings, custom payload), the
//! caller writes the message, [`finish_response`] patches the length. Frames follow one another in the buffer; what the
//! connection agreed on about compression is applied afterwards, to the whole buffer, by [`crate::encode_wire`].

use std::fmt;

use crate::codes::{Opcode, ProtocolVersion, frame_flags};
use crate::frame::FRAME_HEADER_BYTES;

/// What a response carries before its message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// The id under which the request was traced.
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings for the user; dropped in version 3, which has no place for them.
    pub warnings: &'a [&'a str],
    /// The server's answer by extension (routing hints); dropped in version 3.
    pub custom_payload: &'a [(&'a str, &'a [u8])],
}

/// Where an unfinished response begins in its buffer.
#[derive(Clone, Copy, Debug)]
#[must_use = "a response without its length is not a frame: call finish_response"]
pub struct ResponseMark {
    start: usize,
}

impl ResponseMark {
    /// Takes back everything written since [`begin_response`], to answer something else.
    pub fn abandon(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }

    /// Bytes of the body so far.
    pub fn body_bytes(self, out: &[u8]) -> usize {
        out.len().saturating_sub(self.start + FRAME_HEADER_BYTES)
    }
}

/// A response whose body does not fit the length field; it was taken back from the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTooLarge {
    /// Bytes the body had.
    pub body_bytes: usize,
}

impl fmt::Display for ResponseTooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "the response has {} bytes, a frame holds at most {}",
            self.body_bytes,
            i32::MAX
        )
    }
}

impl std::error::Error for ResponseTooLarge {}

/// Begins a response.
pub fn begin_response(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    stream: i16,
    opcode: Opcode,
    extras: &Extras<'_>,
) -> ResponseMark {
    let start = out.len();
    let [stream0, stream1] = stream.to_be_bytes();
    out.extend_from_slice(&[0x80 | version.number(), 0, stream0, stream1, opcode as u8, 0, 0, 0, 0]);
    let mut flags = 0;
    if let Some(tracing_id) = extras.tracing_id {
        flags |= frame_flags::TRACING;
        out.extend_from_slice(&tracing_id);
    }
    if version >= ProtocolVersion::V4 {
        if !extras.warnings.is_empty() {
            flags |= frame_flags::WARNING;
            put_string_list(out, extras.warnings);
        }
        if !extras.custom_payload.is_empty() {
            flags |= frame_flags::CUSTOM_PAYLOAD;
            let entries = &extras.custom_payload[..extras.custom_payload.len().min(COUNT_MAX)];
            put_short(out, entries.len());
            for (name, value) in entries {
                put_string(out, name);
                put_bytes(out, value);
            }
        }
    }
    out[start + 1] = flags;
    ResponseMark { start }
}

/// Patches the length of a response: from here it is a frame.
pub fn finish_response(out: &mut Vec<u8>, mark: ResponseMark) -> Result<(), ResponseTooLarge> {
    let body_bytes = mark.body_bytes(out);
    let Ok(length) = i32::try_from(body_bytes) else {
        mark.abandon(out);
        return Err(ResponseTooLarge { body_bytes });
    };
    out[mark.start + 5..mark.start + FRAME_HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Entries a [short]-counted list holds; longer ones are cut.
const COUNT_MAX: usize = u16::MAX as usize;

pub(crate) fn put_short(out: &mut Vec<u8>, number: usize) {
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    out.extend_from_slice(&number.to_be_bytes());
}

pub(crate) fn put_int(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Writes a [string]: a length of two bytes, then the text. Longer text is cut before the character that does not fit.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(COUNT_MAX)];
    put_short(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_string_list(out: &mut Vec<u8>, list: &[impl AsRef<str>]) {
    let list = &list[..list.len().min(COUNT_MAX)];
    put_short(out, list.len());
    for text in list {
        put_string(out, text.as_ref());
    }
}

pub(crate) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(COUNT_MAX)];
    put_short(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a [bytes]: a length of four bytes, then the bytes. A cell of a row is one of these.
///
/// A value of 2 GiB or more cannot be written. It is a bug of the caller, because values come from requests, which are
/// smaller.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = i32::try_from(bytes.len()).expect("values come from frames, which are shorter than 2 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Writes a null [bytes].
#[inline]
pub fn put_null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

/// Kinds of RESULT.
pub(crate) const RESULT_VOID: i32 = 1;
pub(crate) const RESULT_ROWS: i32 = 2;
pub(crate) const RESULT_SET_KEYSPACE: i32 = 3;
pub(crate) const RESULT_PREPARED: i32 = 4;
pub(crate) const RESULT_SCHEMA_CHANGE: i32 = 5;

/// Finishes a response that is too small to be refused.
pub(crate) fn finish_small(out: &mut Vec<u8>, mark: ResponseMark) {
    // Its strings are cut at 64 KiB and its lists at 65,535 entries of 64 KiB, so only a caller's bug gets near 2 GiB.
    finish_response(out, mark).expect("this response has no rows");
}

/// Writes READY.
pub fn write_ready(out: &mut Vec<u8>, version: ProtocolVersion, stream: i16) {
    let mark = begin_response(out, version, stream, Opcode::Ready, &Extras::default());
    finish_small(out, mark);
}

/// Writes AUTHENTICATE with the class name by which drivers choose their side of it.
pub fn write_authenticate(out: &mut Vec<u8>, version: ProtocolVersion, stream: i16, authenticator: &str) {
    let mark = begin_response(out, version, stream, Opcode::Authenticate, &Extras::default());
    put_string(out, authenticator);
    finish_small(out, mark);
}

/// Writes AUTH_CHALLENGE.
pub fn write_auth_challenge(out: &mut Vec<u8>, version: ProtocolVersion, stream: i16, token: &[u8]) {
    let mark = begin_response(out, version, stream, Opcode::AuthChallenge, &Extras::default());
    put_bytes(out, token);
    finish_small(out, mark);
}

/// Writes AUTH_SUCCESS with a null token.
pub fn write_auth_success(out: &mut Vec<u8>, version: ProtocolVersion, stream: i16) {
    let mark = begin_response(out, version, stream, Opcode::AuthSuccess, &Extras::default());
    put_null(out);
    finish_small(out, mark);
}

/// Writes SUPPORTED: what STARTUP may contain, each key with its values.
pub fn write_supported(out: &mut Vec<u8>, version: ProtocolVersion, stream: i16, options: &[(&str, &[&str])]) {
    let mark = begin_response(out, version, stream, Opcode::Supported, &Extras::default());
    let options = &options[..options.len().min(COUNT_MAX)];
    put_short(out, options.len());
    for (name, values) in options {
        put_string(out, name);
        put_string_list(out, values);
    }
    finish_small(out, mark);
}

/// Writes the RESULT of a statement that has none to show.
pub fn write_void(out: &mut Vec<u8>, version: ProtocolVersion, stream: i16, extras: &Extras<'_>) {
    let mark = begin_response(out, version, stream, Opcode::Result, extras);
    put_int(out, RESULT_VOID);
    finish_small(out, mark);
}

/// Writes the RESULT of USE.
pub fn write_set_keyspace(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    stream: i16,
    extras: &Extras<'_>,
    keyspace: &str,
) {
    let mark = begin_response(out, version, stream, Opcode::Result, extras);
    put_int(out, RESULT_SET_KEYSPACE);
    put_string(out, keyspace);
    finish_small(out, mark);
}
