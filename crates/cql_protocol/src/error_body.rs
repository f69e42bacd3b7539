//! ERROR frames.
//!
//! ```text
//! code [int]  message [string]  what the code adds
//! ```
//!
//! An error that a protocol version does not know is replaced by one that it knows, as in Cassandra: a failure becomes
//! a timeout, a failed function an invalid request. A client must never receive a code for which its version has no
//! layout.

use std::net::IpAddr;

use crate::codes::{Consistency, ErrorCode, Opcode, ProtocolVersion, WriteType};
use crate::error::{FrameError, ProtocolError};
use crate::event::put_address;
use crate::frame::DIRECTION_BIT;
use crate::response::{
    Extras, begin_response, finish_small, put_int, put_short, put_short_bytes, put_string, put_string_list,
};

/// What was limited by rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words say it")]
pub enum RateLimitedOperation {
    Read,
    Write,
}

/// An error and what its code adds to the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "variants and fields have the names and meanings of the specification"
)]
pub enum ErrorBody<'a> {
    Server,
    Protocol,
    BadCredentials,
    Unavailable {
        consistency: Consistency,
        required: i32,
        alive: i32,
    },
    Overloaded,
    IsBootstrapping,
    Truncate,
    WriteTimeout {
        consistency: Consistency,
        received: i32,
        block_for: i32,
        write_type: WriteType,
        /// How often a conditional write met another one; sent in version 5, for [`WriteType::Cas`] only.
        contentions: u16,
    },
    ReadTimeout {
        consistency: Consistency,
        received: i32,
        block_for: i32,
        data_present: bool,
    },
    ReadFailure {
        consistency: Consistency,
        received: i32,
        block_for: i32,
        /// Which nodes failed, and their failure codes; versions 3 and 4 send only their number.
        failures: &'a [(IpAddr, u16)],
        data_present: bool,
    },
    FunctionFailure {
        keyspace: &'a str,
        function: &'a str,
        argument_types: &'a [&'a str],
    },
    WriteFailure {
        consistency: Consistency,
        received: i32,
        block_for: i32,
        /// Which nodes failed, and their failure codes; versions 3 and 4 send only their number.
        failures: &'a [(IpAddr, u16)],
        write_type: WriteType,
    },
    CdcWriteFailure,
    CasWriteUnknown {
        consistency: Consistency,
        received: i32,
        block_for: i32,
    },
    Syntax,
    Unauthorized,
    Invalid,
    Config,
    AlreadyExists {
        keyspace: &'a str,
        /// Empty when it is the keyspace that exists already.
        table: &'a str,
    },
    Unprepared {
        id: &'a [u8],
    },
    /// For connections that asked for `SCYLLA_RATE_LIMIT_ERROR`; others receive [`ErrorBody::Config`].
    RateLimit {
        operation: RateLimitedOperation,
        rejected_by_coordinator: bool,
    },
}

impl<'a> ErrorBody<'a> {
    /// Its code.
    pub fn code(&self) -> ErrorCode {
        match self {
            ErrorBody::Server => ErrorCode::Server,
            ErrorBody::Protocol => ErrorCode::Protocol,
            ErrorBody::BadCredentials => ErrorCode::BadCredentials,
            ErrorBody::Unavailable { .. } => ErrorCode::Unavailable,
            ErrorBody::Overloaded => ErrorCode::Overloaded,
            ErrorBody::IsBootstrapping => ErrorCode::IsBootstrapping,
            ErrorBody::Truncate => ErrorCode::Truncate,
            ErrorBody::WriteTimeout { .. } => ErrorCode::WriteTimeout,
            ErrorBody::ReadTimeout { .. } => ErrorCode::ReadTimeout,
            ErrorBody::ReadFailure { .. } => ErrorCode::ReadFailure,
            ErrorBody::FunctionFailure { .. } => ErrorCode::FunctionFailure,
            ErrorBody::WriteFailure { .. } => ErrorCode::WriteFailure,
            ErrorBody::CdcWriteFailure => ErrorCode::CdcWriteFailure,
            ErrorBody::CasWriteUnknown { .. } => ErrorCode::CasWriteUnknown,
            ErrorBody::Syntax => ErrorCode::Syntax,
            ErrorBody::Unauthorized => ErrorCode::Unauthorized,
            ErrorBody::Invalid => ErrorCode::Invalid,
            ErrorBody::Config => ErrorCode::Config,
            ErrorBody::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            ErrorBody::Unprepared { .. } => ErrorCode::Unprepared,
            ErrorBody::RateLimit { .. } => ErrorCode::RateLimit,
        }
    }

    /// The nearest error that `version` knows.
    fn in_words_of(self, version: ProtocolVersion) -> ErrorBody<'a> {
        match self {
            ErrorBody::ReadFailure {
                consistency,
                received,
                block_for,
                data_present,
                ..
            } if version < ProtocolVersion::V4 => ErrorBody::ReadTimeout {
                consistency,
                received,
                block_for,
                data_present,
            },
            ErrorBody::WriteFailure {
                consistency,
                received,
                block_for,
                write_type,
                ..
            } if version < ProtocolVersion::V4 => ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type,
                contentions: 0,
            },
            ErrorBody::FunctionFailure { .. } | ErrorBody::CdcWriteFailure if version < ProtocolVersion::V4 => {
                ErrorBody::Invalid
            }
            ErrorBody::CasWriteUnknown {
                consistency,
                received,
                block_for,
            } if version < ProtocolVersion::V5 => ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type: WriteType::Cas,
                contentions: 0,
            },
            known => known,
        }
    }

    fn write_fields(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        match *self {
            ErrorBody::Server
            | ErrorBody::Protocol
            | ErrorBody::BadCredentials
            | ErrorBody::Overloaded
            | ErrorBody::IsBootstrapping
            | ErrorBody::Truncate
            | ErrorBody::CdcWriteFailure
            | ErrorBody::Syntax
            | ErrorBody::Unauthorized
            | ErrorBody::Invalid
            | ErrorBody::Config => {}
            ErrorBody::Unavailable {
                consistency,
                required,
                alive,
            } => {
                put_replicas(out, consistency, required, alive);
            }
            ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type,
                contentions,
            } => {
                put_replicas(out, consistency, received, block_for);
                put_string(out, write_type.name());
                if version >= ProtocolVersion::V5 && write_type == WriteType::Cas {
                    put_short(out, usize::from(contentions));
                }
            }
            ErrorBody::ReadTimeout {
                consistency,
                received,
                block_for,
                data_present,
            } => {
                put_replicas(out, consistency, received, block_for);
                out.push(u8::from(data_present));
            }
            ErrorBody::ReadFailure {
                consistency,
                received,
                block_for,
                failures,
                data_present,
            } => {
                put_replicas(out, consistency, received, block_for);
                put_failures(out, version, failures);
                out.push(u8::from(data_present));
            }
            ErrorBody::WriteFailure {
                consistency,
                received,
                block_for,
                failures,
                write_type,
            } => {
                put_replicas(out, consistency, received, block_for);
                put_failures(out, version, failures);
                put_string(out, write_type.name());
            }
            ErrorBody::CasWriteUnknown {
                consistency,
                received,
                block_for,
            } => {
                put_replicas(out, consistency, received, block_for);
            }
            ErrorBody::FunctionFailure {
                keyspace,
                function,
                argument_types,
            } => {
                put_string(out, keyspace);
                put_string(out, function);
                put_string_list(out, argument_types);
            }
            ErrorBody::AlreadyExists { keyspace, table } => {
                put_string(out, keyspace);
                put_string(out, table);
            }
            ErrorBody::Unprepared { id } => put_short_bytes(out, id),
            ErrorBody::RateLimit {
                operation,
                rejected_by_coordinator,
            } => {
                out.push(match operation {
                    RateLimitedOperation::Read => 0,
                    RateLimitedOperation::Write => 1,
                });
                out.push(u8::from(rejected_by_coordinator));
            }
        }
    }
}

/// Writes an ERROR and returns the code that the client sees: a version that does not know the error's own code gets
/// another one.
pub fn write_error(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    stream: i16,
    extras: &Extras<'_>,
    message: &str,
    body: &ErrorBody<'_>,
) -> ErrorCode {
    let body = body.in_words_of(version);
    let code = body.code();
    let mark = begin_response(out, version, stream, Opcode::Error, extras);
    put_int(out, code.number());
    put_string(out, message);
    body.write_fields(out, version);
    finish_small(out, mark);
    code
}

/// Writes the ERROR that answers a frame which could not be read. The connection is of no use after it.
pub fn write_frame_error(out: &mut Vec<u8>, error: &FrameError) -> ErrorCode {
    let start = out.len();
    let code = write_error(
        out,
        error.version,
        error.stream,
        &Extras::default(),
        &error.error.to_string(),
        &ErrorBody::from(&error.error),
    );
    // Versions 1 and 2 have a stream of one byte: their clients could not read the answer in a frame of later ones.
    if let ProtocolError::UnsupportedVersion {
        version: version @ 1..=2,
    } = error.error
    {
        out[start] = DIRECTION_BIT | version;
        out.remove(start + 2);
    }
    code
}

impl From<&ProtocolError> for ErrorBody<'static> {
    fn from(error: &ProtocolError) -> ErrorBody<'static> {
        match error {
            ProtocolError::FrameTooLarge { .. } => ErrorBody::Invalid,
            _ => ErrorBody::Protocol,
        }
    }
}

fn put_replicas(out: &mut Vec<u8>, consistency: Consistency, first: i32, second: i32) {
    out.extend_from_slice(&consistency.number().to_be_bytes());
    put_int(out, first);
    put_int(out, second);
}

fn put_failures(out: &mut Vec<u8>, version: ProtocolVersion, failures: &[(IpAddr, u16)]) {
    put_int(out, i32::try_from(failures.len()).unwrap_or(i32::MAX));
    if version >= ProtocolVersion::V5 {
        for (address, code) in failures {
            put_address(out, *address);
            put_short(out, usize::from(*code));
        }
    }
}
