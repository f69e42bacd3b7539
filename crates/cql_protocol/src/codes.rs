//! The numbers of the protocol: versions, opcodes, consistency levels, error codes, event types and flag bits.

use std::fmt;

/// Bits of the flags byte of a frame header.
pub mod frame_flags {
    /// The body is compressed (versions 3 and 4; version 5 compresses segments and ignores this bit).
    pub const COMPRESSION: u8 = 0x01;
    /// Request: please trace. Response: the body begins with the tracing id.
    pub const TRACING: u8 = 0x02;
    /// The body carries a map of names to bytes for, or from, the server's extensions (version 4 and later).
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// Response: the body carries a list of warnings (version 4 and later).
    pub const WARNING: u8 = 0x08;
    /// The client accepts a protocol version that the server calls beta. No version of ours is.
    pub const USE_BETA: u8 = 0x10;
}

/// Bits of the flags of QUERY, EXECUTE and BATCH parameters: one byte in versions 3 and 4, an int in version 5.
pub mod query_flags {
    /// Bound values follow.
    pub const VALUES: u32 = 0x01;
    /// The client holds the result metadata already.
    pub const SKIP_METADATA: u32 = 0x02;
    /// A page size follows.
    pub const PAGE_SIZE: u32 = 0x04;
    /// A paging state follows.
    pub const PAGING_STATE: u32 = 0x08;
    /// A serial consistency follows.
    pub const SERIAL_CONSISTENCY: u32 = 0x10;
    /// A default write timestamp follows.
    pub const TIMESTAMP: u32 = 0x20;
    /// Each value is preceded by its name.
    pub const NAMES_FOR_VALUES: u32 = 0x40;
    /// A keyspace follows (version 5).
    pub const KEYSPACE: u32 = 0x80;
    /// The seconds that count as now follow (version 5).
    pub const NOW_IN_SECONDS: u32 = 0x100;
}

/// Bits of the flags of rows and prepared metadata.
pub mod rows_flags {
    /// One keyspace and table for all columns.
    pub const GLOBAL_TABLE_SPEC: u32 = 0x01;
    /// A paging state follows the column count.
    pub const HAS_MORE_PAGES: u32 = 0x02;
    /// Column specifications are left out.
    pub const NO_METADATA: u32 = 0x04;
    /// A new result metadata id follows: the client's cached metadata is stale.
    pub const METADATA_CHANGED: u32 = 0x08;
}

/// A protocol version this crate speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ProtocolVersion {
    /// Version 3, Cassandra 2.1.
    V3 = 3,
    /// Version 4, Cassandra 2.2 to 3.x and ScyllaDB.
    V4 = 4,
    /// Version 5, Cassandra 4.0 and later.
    V5 = 5,
}

impl ProtocolVersion {
    /// The lowest version spoken.
    pub const LOWEST: ProtocolVersion = ProtocolVersion::V3;
    /// The highest version spoken: what a client of an unknown version is answered in.
    pub const HIGHEST: ProtocolVersion = ProtocolVersion::V5;

    /// The version of this number, without the direction bit.
    pub fn from_number(number: u8) -> Option<ProtocolVersion> {
        match number {
            3 => Some(ProtocolVersion::V3),
            4 => Some(ProtocolVersion::V4),
            5 => Some(ProtocolVersion::V5),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/v{0}", self.number())
    }
}

/// What a frame asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "each variant is the message of that name in the specification"
)]
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0a,
    Register = 0x0b,
    Event = 0x0c,
    Batch = 0x0d,
    AuthChallenge = 0x0e,
    AuthResponse = 0x0f,
    AuthSuccess = 0x10,
}

impl Opcode {
    /// The opcode of this number.
    pub fn from_number(number: u8) -> Option<Opcode> {
        Some(match number {
            0x00 => Opcode::Error,
            0x01 => Opcode::Startup,
            0x02 => Opcode::Ready,
            0x03 => Opcode::Authenticate,
            0x05 => Opcode::Options,
            0x06 => Opcode::Supported,
            0x07 => Opcode::Query,
            0x08 => Opcode::Result,
            0x09 => Opcode::Prepare,
            0x0a => Opcode::Execute,
            0x0b => Opcode::Register,
            0x0c => Opcode::Event,
            0x0d => Opcode::Batch,
            0x0e => Opcode::AuthChallenge,
            0x0f => Opcode::AuthResponse,
            0x10 => Opcode::AuthSuccess,
            _ => return None,
        })
    }

    /// Whether a client sends it.
    pub fn is_request(self) -> bool {
        matches!(
            self,
            Opcode::Startup
                | Opcode::Options
                | Opcode::Query
                | Opcode::Prepare
                | Opcode::Execute
                | Opcode::Register
                | Opcode::Batch
                | Opcode::AuthResponse
        )
    }
}

/// How many replicas must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[expect(missing_docs, reason = "each variant is the consistency level of that name")]
pub enum Consistency {
    Any = 0x00,
    One = 0x01,
    Two = 0x02,
    Three = 0x03,
    Quorum = 0x04,
    All = 0x05,
    LocalQuorum = 0x06,
    EachQuorum = 0x07,
    Serial = 0x08,
    LocalSerial = 0x09,
    LocalOne = 0x0a,
}

/// A consistency level's name that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownConsistency;

impl Consistency {
    const ALL_LEVELS: [Consistency; 11] = [
        Consistency::Any,
        Consistency::One,
        Consistency::Two,
        Consistency::Three,
        Consistency::Quorum,
        Consistency::All,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
        Consistency::Serial,
        Consistency::LocalSerial,
        Consistency::LocalOne,
    ];

    /// The level of this number.
    pub fn from_number(number: u16) -> Option<Consistency> {
        Consistency::ALL_LEVELS.get(usize::from(number)).copied()
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Its name in CQL and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Any => "ANY",
            Consistency::One => "ONE",
            Consistency::Two => "TWO",
            Consistency::Three => "THREE",
            Consistency::Quorum => "QUORUM",
            Consistency::All => "ALL",
            Consistency::LocalQuorum => "LOCAL_QUORUM",
            Consistency::EachQuorum => "EACH_QUORUM",
            Consistency::Serial => "SERIAL",
            Consistency::LocalSerial => "LOCAL_SERIAL",
            Consistency::LocalOne => "LOCAL_ONE",
        }
    }

    /// Whether it is one of the two levels of the serial phase of a conditional statement.
    pub fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }
}

impl std::str::FromStr for Consistency {
    type Err = UnknownConsistency;

    fn from_str(name: &str) -> Result<Consistency, UnknownConsistency> {
        let found = Consistency::ALL_LEVELS
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(name));
        found.ok_or(UnknownConsistency)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The code of an ERROR frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[expect(missing_docs, reason = "each variant is the error of that name in the specification")]
pub enum ErrorCode {
    Server = 0x0000,
    Protocol = 0x000a,
    BadCredentials = 0x0100,
    Unavailable = 0x1000,
    Overloaded = 0x1001,
    IsBootstrapping = 0x1002,
    Truncate = 0x1003,
    WriteTimeout = 0x1100,
    ReadTimeout = 0x1200,
    ReadFailure = 0x1300,
    FunctionFailure = 0x1400,
    WriteFailure = 0x1500,
    CdcWriteFailure = 0x1600,
    CasWriteUnknown = 0x1700,
    Syntax = 0x2000,
    Unauthorized = 0x2100,
    Invalid = 0x2200,
    Config = 0x2300,
    AlreadyExists = 0x2400,
    Unprepared = 0x2500,
    /// Announced in SUPPORTED as `SCYLLA_RATE_LIMIT_ERROR`; a driver that did not ask for it sees
    /// [`ErrorCode::Config`].
    RateLimit = 0xf000,
}

impl ErrorCode {
    /// Every error code.
    pub const ALL: [ErrorCode; 21] = [
        ErrorCode::Server,
        ErrorCode::Protocol,
        ErrorCode::BadCredentials,
        ErrorCode::Unavailable,
        ErrorCode::Overloaded,
        ErrorCode::IsBootstrapping,
        ErrorCode::Truncate,
        ErrorCode::WriteTimeout,
        ErrorCode::ReadTimeout,
        ErrorCode::ReadFailure,
        ErrorCode::FunctionFailure,
        ErrorCode::WriteFailure,
        ErrorCode::CdcWriteFailure,
        ErrorCode::CasWriteUnknown,
        ErrorCode::Syntax,
        ErrorCode::Unauthorized,
        ErrorCode::Invalid,
        ErrorCode::Config,
        ErrorCode::AlreadyExists,
        ErrorCode::Unprepared,
        ErrorCode::RateLimit,
    ];

    /// Its number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Its name in the specification, in lower case with underscores.
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::Server => "server_error",
            ErrorCode::Protocol => "protocol_error",
            ErrorCode::BadCredentials => "bad_credentials",
            ErrorCode::Unavailable => "unavailable",
            ErrorCode::Overloaded => "overloaded",
            ErrorCode::IsBootstrapping => "is_bootstrapping",
            ErrorCode::Truncate => "truncate_error",
            ErrorCode::WriteTimeout => "write_timeout",
            ErrorCode::ReadTimeout => "read_timeout",
            ErrorCode::ReadFailure => "read_failure",
            ErrorCode::FunctionFailure => "function_failure",
            ErrorCode::WriteFailure => "write_failure",
            ErrorCode::CdcWriteFailure => "cdc_write_failure",
            ErrorCode::CasWriteUnknown => "cas_write_unknown",
            ErrorCode::Syntax => "syntax_error",
            ErrorCode::Unauthorized => "unauthorized",
            ErrorCode::Invalid => "invalid",
            ErrorCode::Config => "config_error",
            ErrorCode::AlreadyExists => "already_exists",
            ErrorCode::Unprepared => "unprepared",
            ErrorCode::RateLimit => "rate_limit_error",
        }
    }
}

/// What kind of write timed out or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each variant is the write type of that name in the specification"
)]
pub enum WriteType {
    Simple,
    Batch,
    UnloggedBatch,
    Counter,
    BatchLog,
    Cas,
    View,
    Cdc,
}

impl WriteType {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            WriteType::Simple => "SIMPLE",
            WriteType::Batch => "BATCH",
            WriteType::UnloggedBatch => "UNLOGGED_BATCH",
            WriteType::Counter => "COUNTER",
            WriteType::BatchLog => "BATCH_LOG",
            WriteType::Cas => "CAS",
            WriteType::View => "VIEW",
            WriteType::Cdc => "CDC",
        }
    }
}

/// How the statements of a BATCH belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// All or nothing, eventually, by the batchlog.
    Logged,
    /// A round trip saved, nothing more.
    Unlogged,
    /// Counter updates.
    Counter,
}

/// What a client can register to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Nodes join and leave.
    TopologyChange,
    /// Nodes go up and down.
    StatusChange,
    /// Keyspaces, tables, types, functions and aggregates change.
    SchemaChange,
    /// Routes of `system.client_routes` change.
    ClientRoutesChange,
}

impl EventType {
    /// Every event type.
    pub const ALL: [EventType; 4] = [
        EventType::TopologyChange,
        EventType::StatusChange,
        EventType::SchemaChange,
        EventType::ClientRoutesChange,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            EventType::TopologyChange => "TOPOLOGY_CHANGE",
            EventType::StatusChange => "STATUS_CHANGE",
            EventType::SchemaChange => "SCHEMA_CHANGE",
            EventType::ClientRoutesChange => "CLIENT_ROUTES_CHANGE",
        }
    }

    /// The event type of this name, in any case.
    pub fn from_name(name: &str) -> Option<EventType> {
        EventType::ALL
            .into_iter()
            .find(|event| event.name().eq_ignore_ascii_case(name))
    }
}

/// The event types one connection registered for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSet {
    bits: u8,
}

impl EventSet {
    /// Adds an event type.
    pub fn insert(&mut self, event: EventType) {
        self.bits |= 1 << event as u8;
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: EventSet) {
        self.bits |= other.bits;
    }

    /// Whether the event type is in the set.
    pub fn contains(self, event: EventType) -> bool {
        self.bits & (1 << event as u8) != 0
    }

    /// Whether nothing is in it.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_have_one_number_and_one_name_each() {
        let numbers = ErrorCode::ALL.map(ErrorCode::number);
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "in the order of their numbers: {numbers:x?}"
        );
        let names: std::collections::BTreeSet<_> = ErrorCode::ALL.into_iter().map(ErrorCode::name).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len(), "a name is used twice: {names:?}");
    }
}
