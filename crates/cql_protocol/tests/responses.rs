//! Every response, byte for byte.
//!
//! `data/responses.txt` holds each frame as we send it and, below it, what Apache's Python driver understands of it.
//! After an intended change, take the new text from the failing test, and let `data/driver.py seen` fill in the
//! driver's view.

mod common;

use std::net::IpAddr;
use std::sync::Arc;

use common::{framing_named, to_hex};
use cql_protocol::{
    ClusterEvent, ColumnSpec, Consistency, EncodedMetadata, ErrorBody, Extras, FrameError, LWT_METADATA_MARK, Opcode,
    PreparedResult, ProtocolError, ProtocolVersion, RateLimitedOperation, SchemaChange, SchemaChangeKind, SchemaTarget,
    WriteType, begin_response, begin_rows, encode_wire, finish_response, finish_rows, put_bytes, put_null,
    write_auth_challenge, write_auth_success, write_authenticate, write_error, write_event, write_frame_error,
    write_prepared, write_ready, write_schema_change, write_set_keyspace, write_supported, write_void,
};
use types::{CqlType, UdtType};

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3, ProtocolVersion::V4, ProtocolVersion::V5];
const NO_EXTRAS: Extras<'static> = Extras {
    tracing_id: None,
    warnings: &[],
    custom_payload: &[],
};

#[test]
fn responses_are_the_bytes_that_drivers_understand() {
    let mut actual = String::new();
    for version in VERSIONS {
        for (name, frame) in small_responses(version)
            .into_iter()
            .chain(events(version))
            .chain(results(version))
            .chain(errors(version))
        {
            actual.push_str(&format!("{name}/v{} plain {}\n", version.number(), to_hex(&frame)));
        }
    }
    for (name, framing, version) in [
        ("two-frames", "lz4", ProtocolVersion::V4),
        ("two-frames", "snappy", ProtocolVersion::V4),
        ("two-frames", "segments", ProtocolVersion::V5),
        ("two-frames", "segments-lz4", ProtocolVersion::V5),
    ] {
        let mut buffer = two_frames(version);
        encode_wire(framing_named(framing), &mut buffer, &mut Vec::new());
        actual.push_str(&format!("{name}/v{} {framing} {}\n", version.number(), to_hex(&buffer)));
    }
    let recorded = include_str!("data/responses.txt");
    let expected: String = recorded
        .lines()
        .filter(|line| !line.starts_with(['#', ' ']))
        .map(|line| format!("{line}\n"))
        .collect();
    for (line, expected_line) in actual.lines().zip(expected.lines()) {
        assert_eq!(line, expected_line, "\nthe whole new text is:\n{actual}");
    }
    assert_eq!(
        actual.lines().count(),
        expected.lines().count(),
        "responses were added or removed:\n{actual}"
    );
}

fn write<R>(fill: impl FnOnce(&mut Vec<u8>) -> R) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut out);
    out
}

/// A ready and a supported frame of which the second is worth compressing.
fn two_frames(version: ProtocolVersion) -> Vec<u8> {
    let values: Vec<&str> = vec!["abcdefgh"; 40];
    write(|out| {
        write_ready(out, version, 1);
        write_supported(out, version, 2, &[("CQL_VERSION", &values)]);
    })
}

fn change<'a>(kind: SchemaChangeKind, target: SchemaTarget<'a>) -> SchemaChange<'a> {
    SchemaChange {
        kind,
        keyspace: "ks",
        target,
    }
}

fn small_responses(version: ProtocolVersion) -> Vec<(&'static str, Vec<u8>)> {
    let all_extras = Extras {
        tracing_id: Some(*b"0123456789abcdef"),
        warnings: &["first", "zweite ü"],
        custom_payload: &[("tablets-routing-v1", b"\x01\x02")],
    };
    let created_table = change(SchemaChangeKind::Created, SchemaTarget::Table { name: "t" });
    let updated_keyspace = change(SchemaChangeKind::Updated, SchemaTarget::Keyspace);
    let supported: &[(&str, &[&str])] = &[
        ("CQL_VERSION", &["3.3.1"]),
        ("COMPRESSION", &["lz4", "snappy"]),
        ("TABLETS_ROUTING_V1", &[""]),
    ];
    vec![
        ("ready", write(|out| write_ready(out, version, 0))),
        ("supported", write(|out| write_supported(out, version, 1, supported))),
        (
            "authenticate",
            write(|out| write_authenticate(out, version, 2, "PasswordAuthenticator")),
        ),
        (
            "auth-challenge",
            write(|out| write_auth_challenge(out, version, 3, b"nonce")),
        ),
        ("auth-success", write(|out| write_auth_success(out, version, 4))),
        ("void", write(|out| write_void(out, version, 32767, &NO_EXTRAS))),
        (
            "void-with-extras",
            write(|out| write_void(out, version, 5, &all_extras)),
        ),
        (
            "set-keyspace",
            write(|out| write_set_keyspace(out, version, 6, &NO_EXTRAS, "Mixed Case")),
        ),
        (
            "created-table",
            write(|out| write_schema_change(out, version, 7, &NO_EXTRAS, &created_table)),
        ),
        (
            "updated-keyspace",
            write(|out| write_schema_change(out, version, 8, &NO_EXTRAS, &updated_keyspace)),
        ),
    ]
}

fn events(version: ProtocolVersion) -> Vec<(&'static str, Vec<u8>)> {
    let v4_address: IpAddr = "127.0.0.2".parse().expect("an address");
    let v6_address: IpAddr = "2001:db8::1".parse().expect("an address");
    let dropped_type = change(SchemaChangeKind::Dropped, SchemaTarget::Type { name: "address" });
    let argument_types = ["int".to_owned(), "list<text>".to_owned()];
    let created_function = change(
        SchemaChangeKind::Created,
        SchemaTarget::Function {
            name: "f",
            argument_types: &argument_types,
        },
    );
    let dropped_aggregate = change(
        SchemaChangeKind::Dropped,
        SchemaTarget::Aggregate {
            name: "a",
            argument_types: &[],
        },
    );
    vec![
        (
            "dropped-type-event",
            write(|out| write_event(out, version, &ClusterEvent::Schema(dropped_type))),
        ),
        (
            "created-function-event",
            write(|out| write_event(out, version, &ClusterEvent::Schema(created_function))),
        ),
        (
            "dropped-aggregate-event",
            write(|out| write_event(out, version, &ClusterEvent::Schema(dropped_aggregate))),
        ),
        (
            "new-node-event",
            write(|out| write_event(out, version, &ClusterEvent::NewNode(v4_address, 9042))),
        ),
        (
            "removed-node-event",
            write(|out| write_event(out, version, &ClusterEvent::RemovedNode(v6_address, 9042))),
        ),
        (
            "up-event",
            write(|out| write_event(out, version, &ClusterEvent::Up(v4_address, 65535))),
        ),
        (
            "down-event",
            write(|out| write_event(out, version, &ClusterEvent::Down(v4_address, 1))),
        ),
        (
            "client-routes-event",
            write(|out| {
                write_event(
                    out,
                    version,
                    &ClusterEvent::ClientRoutes {
                        connection_ids: &["c"],
                        host_ids: &["h", "i"],
                    },
                );
            }),
        ),
    ]
}

fn all_types() -> Vec<(&'static str, CqlType)> {
    let int = || Arc::new(CqlType::Int);
    let text = || Arc::new(CqlType::Text);
    let address = CqlType::Udt(Arc::new(UdtType {
        keyspace: "ks".to_string(),
        name: "address".to_string(),
        fields: vec![
            ("street".to_string(), CqlType::Text),
            ("numbers".to_string(), CqlType::List(int())),
        ],
    }));
    let simple = CqlType::SCALARS;
    let compound = [
        ("l", CqlType::List(int())),
        ("s", CqlType::Frozen(Arc::new(CqlType::Set(text())))),
        (
            "m",
            CqlType::Map(text(), Arc::new(CqlType::Frozen(Arc::new(CqlType::List(int()))))),
        ),
        ("t", CqlType::Tuple(Arc::from([CqlType::Int, CqlType::Text]))),
        ("u", address),
        ("v", CqlType::Vector(Arc::new(CqlType::Float), 3)),
    ];
    simple.into_iter().map(|simple| ("c", simple)).chain(compound).collect()
}

fn results(version: ProtocolVersion) -> Vec<(&'static str, Vec<u8>)> {
    let types = all_types();
    let columns: Vec<ColumnSpec<'_>> = types
        .iter()
        .map(|(name, column_type)| ColumnSpec {
            keyspace: "ks",
            table: "t",
            name,
            column_type,
        })
        .collect();
    let every_type = EncodedMetadata::new(version, &columns);
    let int = CqlType::Int;
    let blob = CqlType::Blob;
    let two_columns = [
        ColumnSpec {
            keyspace: "ks",
            table: "t",
            name: "k",
            column_type: &int,
        },
        ColumnSpec {
            keyspace: "ks",
            table: "t",
            name: "v",
            column_type: &blob,
        },
    ];
    let two = EncodedMetadata::new(version, &two_columns);
    let two_tables = EncodedMetadata::new(
        version,
        &[
            two_columns[0],
            ColumnSpec {
                table: "other",
                ..two_columns[1]
            },
        ],
    );
    let none = EncodedMetadata::new(version, &[]);
    let rows = |metadata: &EncodedMetadata, skip, new_id: Option<&[u8]>, state: Option<&[u8]>, rows: u32| {
        write(|out| {
            let response = begin_response(out, version, 9, Opcode::Result, &NO_EXTRAS);
            let mark = begin_rows(out, metadata, skip, new_id);
            for _ in 0..rows {
                put_bytes(out, &[0, 0, 0, 7]);
                put_null(out);
            }
            finish_rows(out, mark, rows, state);
            finish_response(out, response).expect("a small response");
        })
    };
    let prepared = |prepared: PreparedResult<'_>| {
        write(|out| {
            let response = begin_response(out, version, 10, Opcode::Result, &NO_EXTRAS);
            write_prepared(out, version, &prepared);
            finish_response(out, response).expect("a small response");
        })
    };
    let result_metadata_id = (version >= ProtocolVersion::V5).then_some(b"meta".as_slice());
    let select = PreparedResult {
        id: b"0123456789abcdef",
        result_metadata_id,
        variables: &two,
        partition_key_indexes: &[1, 0],
        lwt_mark: None,
        result: Some(&two_tables),
    };
    let insert = PreparedResult {
        partition_key_indexes: &[],
        result: None,
        ..select
    };
    let lwt = PreparedResult {
        lwt_mark: Some(LWT_METADATA_MARK),
        ..insert
    };
    vec![
        ("rows", rows(&two, false, None, None, 2)),
        ("rows-none", rows(&two, false, None, None, 0)),
        ("rows-of-every-type", rows(&every_type, false, None, None, 0)),
        ("rows-of-two-tables", rows(&two_tables, false, None, None, 1)),
        ("rows-more-pages", rows(&two, false, None, Some(b"next"), 1)),
        ("rows-without-metadata", rows(&two, true, None, None, 1)),
        (
            "rows-without-metadata-more-pages",
            rows(&two, true, None, Some(b"next"), 1),
        ),
        (
            "rows-metadata-changed-more-pages",
            rows(&two, true, Some(b"new"), Some(b"next"), 1),
        ),
        ("prepared-select", prepared(select)),
        ("prepared-insert", prepared(insert)),
        ("prepared-lwt", prepared(lwt)),
        (
            "prepared-no-variables",
            prepared(PreparedResult {
                variables: &none,
                ..insert
            }),
        ),
    ]
}

/// The errors in the order in which `data/responses.txt` has them.
const ORDER: &[&str] = &[
    "server",
    "protocol",
    "bad-credentials",
    "unavailable",
    "overloaded",
    "is-bootstrapping",
    "truncate",
    "write-timeout",
    "write-timeout-cas",
    "read-timeout",
    "read-failure",
    "function-failure",
    "write-failure",
    "cdc-write-failure",
    "cas-write-unknown",
    "syntax",
    "unauthorized",
    "invalid",
    "config",
    "already-exists",
    "unprepared",
    "rate-limit",
];

/// Errors of too few replicas.
fn errors_of_replicas(failures: &[(IpAddr, u16)]) -> Vec<(&'static str, ErrorBody<'_>)> {
    let consistency = Consistency::LocalQuorum;
    let (received, block_for) = (1, 2);
    vec![
        (
            "unavailable",
            ErrorBody::Unavailable {
                consistency,
                required: 2,
                alive: 1,
            },
        ),
        (
            "write-timeout",
            ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type: WriteType::UnloggedBatch,
                contentions: 3,
            },
        ),
        (
            "write-timeout-cas",
            ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type: WriteType::Cas,
                contentions: 3,
            },
        ),
        (
            "read-timeout",
            ErrorBody::ReadTimeout {
                consistency,
                received,
                block_for,
                data_present: true,
            },
        ),
        (
            "read-failure",
            ErrorBody::ReadFailure {
                consistency,
                received,
                block_for,
                failures,
                data_present: false,
            },
        ),
        (
            "write-failure",
            ErrorBody::WriteFailure {
                consistency,
                received,
                block_for,
                failures,
                write_type: WriteType::Simple,
            },
        ),
        (
            "cas-write-unknown",
            ErrorBody::CasWriteUnknown {
                consistency,
                received,
                block_for,
            },
        ),
    ]
}

/// The others.
fn other_errors() -> Vec<(&'static str, ErrorBody<'static>)> {
    vec![
        ("server", ErrorBody::Server),
        ("protocol", ErrorBody::Protocol),
        ("bad-credentials", ErrorBody::BadCredentials),
        ("overloaded", ErrorBody::Overloaded),
        ("is-bootstrapping", ErrorBody::IsBootstrapping),
        ("truncate", ErrorBody::Truncate),
        (
            "function-failure",
            ErrorBody::FunctionFailure {
                keyspace: "ks",
                function: "f",
                argument_types: &["int", "text"],
            },
        ),
        ("cdc-write-failure", ErrorBody::CdcWriteFailure),
        ("syntax", ErrorBody::Syntax),
        ("unauthorized", ErrorBody::Unauthorized),
        ("invalid", ErrorBody::Invalid),
        ("config", ErrorBody::Config),
        (
            "already-exists",
            ErrorBody::AlreadyExists {
                keyspace: "ks",
                table: "t",
            },
        ),
        (
            "unprepared",
            ErrorBody::Unprepared {
                id: b"0123456789abcdef",
            },
        ),
        (
            "rate-limit",
            ErrorBody::RateLimit {
                operation: RateLimitedOperation::Write,
                rejected_by_coordinator: true,
            },
        ),
    ]
}

fn errors(version: ProtocolVersion) -> Vec<(&'static str, Vec<u8>)> {
    let failures: &[(IpAddr, u16)] = &[
        ("10.0.0.1".parse().expect("an address"), 1),
        ("2001:db8::1".parse().expect("an address"), 0),
    ];
    let mut bodies = other_errors();
    bodies.extend(errors_of_replicas(failures));
    // In the order of the file.
    bodies.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name));
    let mut frames: Vec<(&'static str, Vec<u8>)> = bodies
        .into_iter()
        .map(|(name, body)| {
            let mut frame = Vec::new();
            let told = write_error(&mut frame, version, 11, &NO_EXTRAS, "why", &body);
            assert_eq!(
                frame[9..13],
                told.number().to_be_bytes(),
                "{name}: the code that is returned is the one in the frame"
            );
            (name, frame)
        })
        .collect();
    let error = FrameError {
        version,
        stream: 12,
        error: ProtocolError::UnsupportedVersion { version: 66 },
        resumes: false,
    };
    frames.push(("unsupported-version", write(|out| write_frame_error(out, &error))));
    frames
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let message = "é".repeat(40_000);
    let frame = write(|out| write_error(out, ProtocolVersion::V4, 0, &NO_EXTRAS, &message, &ErrorBody::Server));
    let length = u16::from_be_bytes([frame[13], frame[14]]);
    assert_eq!(length, 65534, "65,535 bytes would end inside a character");
    assert_eq!(std::str::from_utf8(&frame[15..]), Ok("é".repeat(32_767).as_str()));
}

#[test]
fn clients_of_versions_1_and_2_get_a_frame_that_they_can_read() {
    for version in [1, 2] {
        let mut frame = b"before".to_vec();
        let error = FrameError {
            version: ProtocolVersion::V5,
            stream: 0,
            error: ProtocolError::UnsupportedVersion { version },
            resumes: false,
        };
        write_frame_error(&mut frame, &error);
        let frame = frame.strip_prefix(b"before").expect("what stood before stays");
        // Version, flags, a stream of one byte, opcode, and the length of what follows.
        assert_eq!(frame[..4], [0x80 | version, 0, 0, 0]);
        let length = u32::from_be_bytes(frame[4..8].try_into().expect("four bytes"));
        assert_eq!(usize::try_from(length).expect("it is small"), frame.len() - 8);
        assert!(frame.ends_with(b"the lowest supported version is 3 and the greatest is 5"));
    }
}

#[test]
fn an_abandoned_response_leaves_nothing_behind() {
    let mut out = Vec::new();
    write_ready(&mut out, ProtocolVersion::V4, 1);
    let before = out.clone();
    let mark = begin_response(&mut out, ProtocolVersion::V4, 2, Opcode::Result, &NO_EXTRAS);
    put_bytes(&mut out, b"half a row");
    assert_eq!(mark.body_bytes(&out), 14);
    mark.abandon(&mut out);
    assert_eq!(out, before);
}
