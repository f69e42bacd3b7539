//! From outcomes and errors to answer frames.

use cql_protocol::{
    Consistency, ErrorBody, ErrorCode, Extras, FrameError, FrameHeader, Opcode, ProtocolVersion, RateLimitedOperation,
    SchemaChangeKind, SchemaTarget, TabletVersionBlock, WriteType, begin_response, begin_rows, finish_response,
    finish_rows, write_schema_change, write_set_keyspace, write_void,
};
use ddl::{ChangeKind, SchemaChange};
use front::RequestTrace;
use plan::write::ConditionalAnswer;
use query::{CoordinatorError, Operation, Outcome, Page, Prepared, QueryError, WriteKind};
use stdx::preempt;

use crate::Server;
use crate::cells::{self, Cells};
use crate::dispatch::FrameOutcome;
use crate::metadata;
use crate::tablets::Payload;

/// A schema change in the protocol's words.
pub(crate) fn schema_change(change: &SchemaChange) -> cql_protocol::SchemaChange<'_> {
    let kind = |c: &ChangeKind| match c {
        ChangeKind::Created => SchemaChangeKind::Created,
        ChangeKind::Updated => SchemaChangeKind::Updated,
        ChangeKind::Dropped => SchemaChangeKind::Dropped,
    };
    match change {
        SchemaChange::Keyspace { change, keyspace } => cql_protocol::SchemaChange {
            kind: kind(change),
            keyspace,
            target: SchemaTarget::Keyspace,
        },
        SchemaChange::Table {
            change,
            keyspace,
            table,
        } => cql_protocol::SchemaChange {
            kind: kind(change),
            keyspace,
            target: SchemaTarget::Table { name: table },
        },
        SchemaChange::Type { change, keyspace, name } => cql_protocol::SchemaChange {
            kind: kind(change),
            keyspace,
            target: SchemaTarget::Type { name },
        },
        SchemaChange::Function {
            change,
            keyspace,
            name,
            argument_types,
        } => cql_protocol::SchemaChange {
            kind: kind(change),
            keyspace,
            target: SchemaTarget::Function { name, argument_types },
        },
        SchemaChange::Aggregate {
            change,
            keyspace,
            name,
            argument_types,
        } => cql_protocol::SchemaChange {
            kind: kind(change),
            keyspace,
            target: SchemaTarget::Aggregate { name, argument_types },
        },
    }
}

fn write_type(kind: WriteKind) -> WriteType {
    match kind {
        WriteKind::Simple => WriteType::Simple,
        WriteKind::Batch => WriteType::Batch,
        WriteKind::UnloggedBatch => WriteType::UnloggedBatch,
        WriteKind::Counter => WriteType::Counter,
        WriteKind::BatchLog => WriteType::BatchLog,
        WriteKind::Cas => WriteType::Cas,
    }
}

/// Writes the ERROR that answers a frame which could not be read.
#[cold]
pub(crate) fn frame_error(out: &mut Vec<u8>, error: &FrameError) {
    count_error(cql_protocol::write_frame_error(out, error));
}

/// Counts an ERROR response on the shard that writes it. Replies know no server, so that they stay small; an error may
/// look for it.
#[cold]
fn count_error(code: ErrorCode) {
    if let Some(server) = runtime::local::<Server>() {
        server.counts.count_error(code);
    }
}

/// What a frame of rows has besides cells and metadata, mostly.
const ROWS_FRAME_BYTES: usize = 64;

/// The protocol's reason of a failed read that met too many tombstones.
const READ_TOO_MANY_TOMBSTONES: u16 = 1;

/// What clients that write are warned of while the disks of some node are nearly full.
const NEARLY_FULL: &str = "Replica disk usage exceeds warn threshold: disks of at least one node are nearly full (nodetool status). When they are full, \
                           writes that add data fail";

/// Where an answer goes and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) version: ProtocolVersion,
    pub(crate) stream: i16,
    /// The trace of the request, if it is traced.
    pub(crate) trace: Option<RequestTrace>,
    pub(crate) consistency: Consistency,
    /// What a failed write says that it was.
    pub(crate) write_type: WriteType,
    /// Whether the client is warned that disks are nearly full.
    pub(crate) warns_of_disks: bool,
    /// Whether the client knows the error of a partition's limit.
    pub(crate) rate_limit_error: bool,
    /// What the client of an EXECUTE knows of the version of the tablet.
    pub(crate) tablet_version_block: Option<TabletVersionBlock>,
}

impl Reply {
    /// To a request of this header.
    #[inline]
    pub(crate) fn to(header: &FrameHeader) -> Self {
        Self {
            version: header.version,
            stream: header.stream,
            trace: None,
            consistency: Consistency::One,
            write_type: WriteType::Simple,
            warns_of_disks: false,
            rate_limit_error: false,
            tablet_version_block: None,
        }
    }

    pub(crate) fn extras(&self) -> Extras<'static> {
        Extras {
            tracing_id: self.trace.filter(|trace| !trace.is_sampled).map(|trace| trace.id),
            warnings: if self.warns_of_disks { &[NEARLY_FULL] } else { &[] },
            ..Extras::default()
        }
    }

    /// Writes an error.
    #[cold]
    pub(crate) fn error(&self, out: &mut Vec<u8>, error: &QueryError) {
        let message = error.message();
        let consistency = self.consistency;
        let mut types: Vec<&str> = Vec::new();
        let body = match error {
            QueryError::Syntax(_) => ErrorBody::Syntax,
            QueryError::Invalid(_) => ErrorBody::Invalid,
            QueryError::Protocol(_) => ErrorBody::Protocol,
            QueryError::Config(_) => ErrorBody::Config,
            QueryError::AlreadyExists { keyspace, table } => ErrorBody::AlreadyExists { keyspace, table },
            QueryError::Unprepared(id) => ErrorBody::Unprepared { id },
            QueryError::Unauthorized(_) => ErrorBody::Unauthorized,
            QueryError::Overloaded(_) => ErrorBody::Overloaded,
            QueryError::Truncate(_) => ErrorBody::Truncate,
            QueryError::Replicas(error) => return self.replicas_error(out, error, &message),
            QueryError::WriteFailure(_) => ErrorBody::WriteFailure {
                consistency,
                received: 0,
                block_for: 1,
                failures: &[(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0)],
                write_type: self.write_type,
            },
            QueryError::TooManyTombstones(_) => ErrorBody::ReadFailure {
                consistency,
                received: 0,
                block_for: 1,
                failures: &[(
                    std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
                    READ_TOO_MANY_TOMBSTONES,
                )],
                data_present: false,
            },
            QueryError::ReadFailure(_) => ErrorBody::ReadFailure {
                consistency,
                received: 0,
                block_for: 1,
                failures: &[(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0)],
                data_present: false,
            },
            QueryError::Function(_) => ErrorBody::FunctionFailure {
                keyspace: "",
                function: "",
                argument_types: &[],
            },
            QueryError::UserFunction(failure) => {
                types.extend(failure.argument_types.iter().map(String::as_str));
                ErrorBody::FunctionFailure {
                    keyspace: &failure.keyspace,
                    function: &failure.function,
                    argument_types: &types,
                }
            }
            QueryError::Server(_) => ErrorBody::Server,
        };
        self.write_error(out, &message, &body);
    }

    /// Answers a request with an error.
    #[cold]
    pub(crate) fn refuse(&self, out: &mut Vec<u8>, error: &QueryError) -> FrameOutcome {
        self.error(out, error);
        FrameOutcome::Done
    }

    /// Writes how replicas did not do what the level wants.
    #[cold]
    fn replicas_error(&self, out: &mut Vec<u8>, error: &CoordinatorError, message: &str) {
        let number = |n: u16| i32::from(n);
        let of = |level: query::Level| Consistency::from_number(level as u16).unwrap_or(self.consistency);
        let body = match error {
            CoordinatorError::Unavailable(unavailable) => ErrorBody::Unavailable {
                consistency: of(unavailable.consistency),
                required: number(unavailable.required),
                alive: number(unavailable.alive),
            },
            CoordinatorError::WriteTimeout { tally, kind, .. } => ErrorBody::WriteTimeout {
                consistency: of(tally.consistency),
                received: number(tally.received),
                block_for: number(tally.block_for),
                write_type: write_type(*kind),
                contentions: 0,
            },
            CoordinatorError::ReadTimeout {
                tally, data_present, ..
            } => ErrorBody::ReadTimeout {
                consistency: of(tally.consistency),
                received: number(tally.received),
                block_for: number(tally.block_for),
                data_present: *data_present,
            },
            CoordinatorError::WriteFailure {
                tally, kind, failures, ..
            }
            | CoordinatorError::DiskFull {
                tally, kind, failures, ..
            } => ErrorBody::WriteFailure {
                consistency: of(tally.consistency),
                received: number(tally.received),
                block_for: number(tally.block_for),
                failures,
                write_type: write_type(*kind),
            },
            CoordinatorError::ReadFailure {
                tally,
                data_present,
                failures,
                ..
            } => ErrorBody::ReadFailure {
                consistency: of(tally.consistency),
                received: number(tally.received),
                block_for: number(tally.block_for),
                failures,
                data_present: *data_present,
            },
            CoordinatorError::CasTimeout { tally, contentions } => ErrorBody::WriteTimeout {
                consistency: of(tally.consistency),
                received: number(tally.received),
                block_for: number(tally.block_for),
                write_type: WriteType::Cas,
                contentions: *contentions,
            },
            CoordinatorError::CasUnknown { tally, .. } => ErrorBody::CasWriteUnknown {
                consistency: of(tally.consistency),
                received: number(tally.received),
                block_for: number(tally.block_for),
            },
            CoordinatorError::RateLimited { .. } if !self.rate_limit_error => ErrorBody::Config,
            CoordinatorError::RateLimited {
                admission,
                by_coordinator,
            } => ErrorBody::RateLimit {
                operation: match admission.operation {
                    Operation::Read => RateLimitedOperation::Read,
                    Operation::Write => RateLimitedOperation::Write,
                },
                rejected_by_coordinator: *by_coordinator,
            },
            CoordinatorError::Overloaded(_) => ErrorBody::Overloaded,
            CoordinatorError::Rejected(_) => ErrorBody::Invalid,
            CoordinatorError::Internal(_) => ErrorBody::Server,
        };
        self.write_error(out, message, &body);
    }

    /// Writes a protocol error.
    #[cold]
    pub(crate) fn protocol_error(&self, out: &mut Vec<u8>, message: &str) {
        self.write_error(out, message, &ErrorBody::Protocol);
    }

    #[cold]
    fn write_error(&self, out: &mut Vec<u8>, message: &str, body: &ErrorBody<'_>) {
        let code = cql_protocol::write_error(out, self.version, self.stream, &self.extras(), message, body);
        count_error(code);
    }

    /// Writes rows with the metadata given.
    pub(crate) fn rows(
        &self,
        out: &mut Vec<u8>,
        extras: &Extras<'_>,
        page: &Page<Cells>,
        metadata: &cql_protocol::EncodedMetadata,
        skip_metadata: bool,
        new_id: Option<&[u8]>,
    ) {
        out.reserve(page.sink.0.len() + metadata.size() + ROWS_FRAME_BYTES);
        let mark = begin_response(out, self.version, self.stream, Opcode::Result, extras);
        let rows = begin_rows(out, metadata, skip_metadata, new_id);
        match page.sink.0.len() {
            ..preempt::STEP_BYTES => out.extend_from_slice(&page.sink.0),
            _ => preempt::allowed(|| preempt::append(out, &page.sink.0)),
        }
        finish_rows(out, rows, page.rows, page.paging_state.as_deref());
        if let Err(e) = finish_response(out, mark) {
            self.error(out, &QueryError::invalid(format!("Use paging: {e}")));
        }
    }

    /// Writes the answer of a conditional statement, or of a batch of them when none is given. Its columns differ from
    /// one execution to the next, so its metadata is always sent.
    pub(crate) fn conditional(
        &self,
        out: &mut Vec<u8>,
        extras: &Extras<'_>,
        answer: &ConditionalAnswer,
        prepared: Option<&Prepared>,
    ) {
        let page = whole(preempt::allowed(|| cells::of_answer(answer)));
        if let Some(prepared) = prepared.filter(|_| answer.shown.is_empty()) {
            let m = metadata::applied(prepared, self.version, answer);
            return self.rows(out, extras, &page, m, false, None);
        }
        let m = metadata::of_answer(self.version, answer);
        self.rows(out, extras, &page, &m, false, None);
    }

    /// Writes a statement's outcome, the warnings of guardrails, and where its tablet is if the client should know.
    pub(crate) fn outcome(
        &self,
        out: &mut Vec<u8>,
        (outcome, guardrails): (&Outcome<Cells>, &[String]),
        prepared: &Prepared,
        skip_metadata: bool,
        known_metadata_id: Option<&[u8]>,
        route: Option<&Payload>,
    ) {
        let payload = route.map(|(key, route)| (*key, &**route));
        let own = self.extras();
        let of_page = match outcome {
            Outcome::Rows(page) => &page.warnings[..],
            _ => &[],
        };
        let warnings = match outcome {
            Outcome::Schema(_, warnings) => (&warnings[..], &[][..]),
            Outcome::Batch(warnings) => (&prepared.warnings[..], &warnings[..]),
            _ => (&prepared.warnings[..], &[][..]),
        };
        let warnings: Vec<&str> = (warnings.0.iter())
            .chain(warnings.1)
            .chain(guardrails)
            .chain(of_page)
            .map(String::as_str)
            .chain(own.warnings.iter().copied())
            .collect();
        let extras = Extras {
            tracing_id: own.tracing_id,
            warnings: &warnings,
            custom_payload: payload.as_slice(),
        };
        match outcome {
            Outcome::Void | Outcome::Batch(_) => write_void(out, self.version, self.stream, &extras),
            Outcome::SetKeyspace(k) => write_set_keyspace(out, self.version, self.stream, &extras, k),
            Outcome::Schema(change, _) => {
                write_schema_change(out, self.version, self.stream, &extras, &schema_change(change));
            }
            Outcome::Rows(page) => {
                let m = metadata::result(prepared, self.version);
                let new_id = known_metadata_id
                    .filter(|id| *id != prepared.metadata_id)
                    .map(|_| &prepared.metadata_id[..]);
                self.rows(out, &extras, page, m, skip_metadata, new_id);
            }
            Outcome::Conditional(answer) => self.conditional(out, &extras, answer, Some(prepared)),
            Outcome::Table(columns, rows, next) => {
                let m = metadata::of_columns(self.version, "system", "describe", columns);
                let page = Page {
                    paging_state: next.clone(),
                    ..whole(cells::of_rows(rows))
                };
                self.rows(out, &extras, &page, &m, false, None);
            }
        }
    }
}

/// A page after which there is none.
fn whole((rows, cells): (u32, Vec<u8>)) -> Page<Cells> {
    Page {
        rows,
        sink: Cells(cells),
        paging_state: None,
        warnings: Vec::new(),
    }
}
