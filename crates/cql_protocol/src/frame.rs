//! The frame header.
//!
//! ```text
//! byte    0         1       2       4        5              9
//!         version   flags   stream  opcode   body length    body
//! ```
//!
//! Big-endian. Bit 7 of the version byte is the direction: 0 request, 1 response.

use crate::codes::{Opcode, ProtocolVersion};
use crate::error::{FrameError, ProtocolError};

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 9;

pub(crate) const DIRECTION_BIT: u8 = 0x80;

/// The header of a request frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The version of the protocol.
    pub version: ProtocolVersion,
    /// Bits of [`crate::frame_flags`].
    pub flags: u8,
    /// What the client finds the answer by.
    pub stream: i16,
    /// What is asked; always a request.
    pub opcode: Opcode,
    /// Bytes of the body that follows.
    pub body_bytes: usize,
}

impl FrameHeader {
    /// Reads the header at the start of `input`; `None` when `input` is shorter than a header.
    ///
    /// `frame_bytes_max` bounds header and body together.
    pub fn parse(input: &[u8], frame_bytes_max: usize) -> Result<Option<FrameHeader>, FrameError> {
        let Some(
            &[
                version,
                flags,
                stream0,
                stream1,
                opcode,
                length0,
                length1,
                length2,
                length3,
            ],
        ) = input.first_chunk::<FRAME_HEADER_BYTES>()
        else {
            // The headers of versions 1 and 2 had eight bytes: their clients would wait for our answer forever.
            return match input {
                [version @ (1 | 2), ..] if input.len() + 1 == FRAME_HEADER_BYTES => {
                    Err(unsupported_version(*version, 0))
                }
                _ => Ok(None),
            };
        };
        let stream = i16::from_be_bytes([stream0, stream1]);
        let number = version & !DIRECTION_BIT;
        let Some(protocol_version) = ProtocolVersion::from_number(number) else {
            return Err(unsupported_version(number, if number < 3 { 0 } else { stream }));
        };
        let fail = |error| {
            Err(FrameError {
                version: protocol_version,
                stream,
                error,
                resumes: false,
            })
        };
        if version & DIRECTION_BIT != 0 {
            return fail(ProtocolError::NotARequest);
        }
        let length = i32::from_be_bytes([length0, length1, length2, length3]);
        let Ok(body_bytes) = usize::try_from(length) else {
            return fail(ProtocolError::NegativeLength { body_bytes: length });
        };
        let frame_bytes = body_bytes.saturating_add(FRAME_HEADER_BYTES);
        if frame_bytes > frame_bytes_max {
            return fail(ProtocolError::FrameTooLarge {
                frame_bytes,
                frame_bytes_max,
            });
        }
        match Opcode::from_number(opcode) {
            Some(opcode) if opcode.is_request() => Ok(Some(FrameHeader {
                version: protocol_version,
                flags,
                stream,
                opcode,
                body_bytes,
            })),
            _ => fail(ProtocolError::UnknownOpcode { opcode }),
        }
    }

    /// Header and body together.
    pub fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.body_bytes
    }
}

#[cold]
fn unsupported_version(version: u8, stream: i16) -> FrameError {
    FrameError {
        version: ProtocolVersion::HIGHEST,
        stream,
        error: ProtocolError::UnsupportedVersion { version },
        resumes: false,
    }
}

/// One request frame, its body decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header as it was sent: `body_bytes` is the length before decompression.
    pub header: FrameHeader,
    /// The body.
    pub body: &'a [u8],
}
