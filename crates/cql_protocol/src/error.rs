//! What can be wrong with the bytes a peer sent. The text of each error is what the client reads in its ERROR frame, so
//! it names the field and what was expected.

use std::fmt;

use crate::codes::{ErrorCode, Opcode, ProtocolVersion};

/// Bytes that do not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A version we do not speak. Drivers look for this wording and try a lower one.
    UnsupportedVersion {
        /// The number in the frame header.
        version: u8,
    },
    /// A frame of another version than the STARTUP of its connection.
    ChangedVersion {
        /// The version of STARTUP.
        expected: ProtocolVersion,
        /// The version of this frame.
        found: ProtocolVersion,
    },
    /// A frame whose direction bit says response.
    NotARequest,
    /// An opcode that no request has.
    UnknownOpcode {
        /// The number in the frame header.
        opcode: u8,
    },
    /// A negative length in the frame header.
    NegativeLength {
        /// The length of the body in the frame header.
        body_bytes: i32,
    },
    /// A frame longer than the connection's limit.
    FrameTooLarge {
        /// Header and body, or the body after decompression.
        frame_bytes: usize,
        /// The limit in force, on header and body together.
        frame_bytes_max: usize,
    },
    /// The body ends inside a field.
    Truncated {
        /// The field.
        field: &'static str,
        /// Bytes the field needs.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// Pages of no rows were asked for.
    PageOfNoRows,
    /// A number outside what the field allows.
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What it allows.
        expected: &'static str,
        /// What came.
        found: i64,
    },
    /// A name that the field does not know.
    UnknownName {
        /// The field.
        field: &'static str,
        /// What it allows.
        expected: &'static str,
        /// What came.
        found: Box<str>,
    },
    /// Text that is not UTF-8.
    NotUtf8 {
        /// The field.
        field: &'static str,
    },
    /// Something well-formed that must not be used here.
    NotAllowed {
        /// What, and why.
        what: &'static str,
    },
    /// A compressed body that does not decompress.
    Corrupt {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A version 5 segment whose checksum does not fit: the stream cannot be trusted any more.
    Checksum {
        /// The header or the payload.
        part: &'static str,
        /// The checksum that was sent.
        expected: u32,
        /// The checksum of what was received.
        found: u32,
    },
}

impl ProtocolError {
    /// The code of the ERROR frame that answers it.
    pub fn code(&self) -> ErrorCode {
        match self {
            ProtocolError::FrameTooLarge { .. } => ErrorCode::Invalid,
            _ => ErrorCode::Protocol,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::UnsupportedVersion { version } => write!(
                formatter,
                "Invalid or unsupported protocol version ({version}); the lowest supported version is {} and the greatest \
                 is {}",
                ProtocolVersion::LOWEST.number(),
                ProtocolVersion::HIGHEST.number()
            ),
            ProtocolError::ChangedVersion { expected, found } => write!(
                formatter,
                "Invalid message version. Got {found} but previous messages on this connection had version {expected}"
            ),
            ProtocolError::NotARequest => {
                formatter.write_str("Wrong protocol direction: expected a request, got a frame marked as a response")
            }
            ProtocolError::UnknownOpcode { opcode } if Opcode::from_number(*opcode).is_some() => write!(
                formatter,
                "Wrong protocol direction: expected the opcode of a request, got {opcode:#04x}"
            ),
            ProtocolError::UnknownOpcode { opcode } => {
                write!(formatter, "Unknown opcode {opcode}: expected the opcode of a request")
            }
            ProtocolError::NegativeLength { body_bytes } => write!(
                formatter,
                "Invalid value for envelope header body length field: {body_bytes}"
            ),
            ProtocolError::FrameTooLarge {
                frame_bytes,
                frame_bytes_max,
            } => write!(
                formatter,
                "Request is too big: length {frame_bytes} exceeds maximum allowed length {frame_bytes_max}."
            ),
            ProtocolError::Truncated {
                field,
                needed,
                remaining,
            } => write!(
                formatter,
                "Not enough bytes to read the {field}: expected {needed} more, but {remaining} are left in the frame"
            ),
            // In the words that Cassandra has for each.
            ProtocolError::PageOfNoRows => formatter.write_str("The page size cannot be 0"),
            ProtocolError::OutOfRange { field, expected, found } => match *field {
                "default timestamp" => write!(
                    formatter,
                    "Out of bound timestamp, must be in [{}, {}] (got {found})",
                    -i64::MAX,
                    i64::MAX
                ),
                "consistency" | "serial consistency" => {
                    write!(
                        formatter,
                        "Unknown code {found} for a consistency level: expected {expected}"
                    )
                }
                "batch type" => write!(formatter, "Invalid BATCH message type {found}: expected {expected}"),
                _ if *found < 0 && expected.starts_with("a length") => {
                    write!(
                        formatter,
                        "Not enough bytes to read the {field}: expected {expected}, got {found}"
                    )
                }
                _ => write!(formatter, "Invalid {field}: expected {expected}, got {found}"),
            },
            ProtocolError::UnknownName { field, expected, found } => {
                write!(
                    formatter,
                    "Invalid value '{found}' for the {field}: expected {expected}"
                )
            }
            ProtocolError::NotUtf8 { field } => write!(formatter, "Cannot decode the {field} as UTF8"),
            ProtocolError::NotAllowed { what } => formatter.write_str(what),
            ProtocolError::Corrupt { what } => write!(formatter, "Corrupt compressed data: {what}"),
            ProtocolError::Checksum { part, expected, found } => write!(
                formatter,
                "CRC mismatch detected in frame {}: the {part} of the segment has checksum {found:#x}, but {expected:#x} \
                 was sent with it",
                if *part == "header" { "header" } else { "body" }
            ),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// A frame that cannot be read: answer the error on `stream`, then close the connection unless it `resumes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The version to answer in; for a version we do not speak, the highest of ours.
    pub version: ProtocolVersion,
    /// The stream of the frame, 0 when it could not be read.
    pub stream: i16,
    /// What was wrong.
    pub error: ProtocolError,
    /// Whether the splitter knows where the next frame begins and continues there.
    pub resumes: bool,
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "stream {}: {}", self.stream, self.error)
    }
}

impl std::error::Error for FrameError {}
