//! What real drivers send, and what must never be accepted.
//!
//! `data/requests.txt` was made by Apache's Python driver (`data/driver.py`): the bytes of a connection, and what they
//! mean.

mod common;

use common::{decode_one, describe, framing_named, from_hex, version_named};
use cql_protocol::{
    Extensions, Frame, FrameError, FrameHeader, Framing, Limits, Opcode, ProtocolError, ProtocolVersion, Request,
    Splitter, TabletVersionBlock, Value, decode_request,
};

struct Vector {
    name: String,
    framing: Framing,
    version: ProtocolVersion,
    bytes: Vec<u8>,
    meaning: String,
}

fn vectors() -> Vec<Vector> {
    let mut lines = include_str!("data/requests.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let mut vectors = Vec::new();
    while let (Some(head), Some(meaning)) = (lines.next(), lines.next()) {
        let words: Vec<&str> = head.split(' ').collect();
        let [framing, version, stream, hex] = words[..] else {
            panic!("not a vector: {head}")
        };
        vectors.push(Vector {
            name: format!("{framing} {version} {stream}"),
            framing: framing_named(framing),
            version: version_named(version),
            bytes: from_hex(hex),
            meaning: format!("{stream} {}", meaning.trim()),
        });
    }
    assert!(vectors.len() > 80, "the file of vectors is cut");
    vectors
}

fn started(vector: &Vector) -> Splitter {
    let mut splitter = Splitter::new(Limits::default());
    splitter.start(vector.version, vector.framing);
    splitter
}

fn describe_frame(frame: &Frame<'_>) -> String {
    let decoded = decode_request(frame, Extensions::default());
    let text = decoded.map_or_else(|error| format!("error: {error}"), |(_, request)| describe(&request));
    format!("stream={} {text}", frame.header.stream)
}

#[test]
fn a_driver_s_requests_mean_what_the_driver_meant() {
    for vector in vectors() {
        let mut splitter = started(&vector);
        let mut consumed = 0;
        let frame = splitter
            .next(&vector.bytes, &mut consumed)
            .expect("a driver's frame")
            .expect("a whole frame");
        assert_eq!(describe_frame(&frame), vector.meaning, "{}", vector.name);
        assert_eq!(consumed, vector.bytes.len(), "{}: bytes are left over", vector.name);
        assert_eq!(
            splitter.next(&vector.bytes, &mut consumed),
            Ok(None),
            "{}: nothing follows",
            vector.name
        );
    }
}

#[test]
fn bytes_may_arrive_one_by_one() {
    for vector in vectors() {
        let mut splitter = started(&vector);
        let mut input = Vec::new();
        let mut found = Vec::new();
        for byte in vector.bytes.iter().chain(&vector.bytes) {
            input.push(*byte);
            let mut consumed = 0;
            let wanted = splitter.wanted_bytes();
            while let Some(frame) = splitter.next(&input, &mut consumed).expect("a driver's frame") {
                assert!(
                    input.len() >= wanted.min(9),
                    "{}: a frame came before its bytes",
                    vector.name
                );
                found.push(describe_frame(&frame));
            }
            input.drain(..consumed);
        }
        assert_eq!(found, [vector.meaning.clone(), vector.meaning], "{}", vector.name);
    }
}

#[test]
fn a_body_cut_anywhere_is_an_error_that_names_the_field() {
    for vector in vectors().iter().filter(|vector| vector.framing == Framing::Plain) {
        let header = FrameHeader::parse(&vector.bytes, usize::MAX)
            .expect("a driver's frame")
            .expect("a whole header");
        let body = &vector.bytes[9..];
        for length in 0..body.len() {
            let frame = Frame {
                header,
                body: &body[..length],
            };
            match decode_request(&frame, Extensions::default()) {
                Err(ProtocolError::Truncated {
                    field,
                    needed,
                    remaining,
                }) => {
                    assert!(
                        !field.is_empty() && needed > remaining,
                        "{} cut at {length}: {field}",
                        vector.name
                    );
                }
                other => panic!("{} cut at {length} of {}: got {other:?}", vector.name, body.len()),
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_segment_is_noticed() {
    for vector in vectors()
        .iter()
        .filter(|vector| matches!(vector.framing, Framing::Segments { .. }))
    {
        for bit in 0..vector.bytes.len() * 8 {
            let mut bytes = vector.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match started(vector).next(&bytes, &mut 0) {
                Err(FrameError {
                    error: ProtocolError::Checksum { .. },
                    ..
                }) => {}
                other => panic!("{}, bit {bit}: {other:?}", vector.name),
            }
        }
    }
}

#[test]
fn the_custom_payload_is_handed_out() {
    let vectors = vectors();
    let with_payload = vectors.iter().filter(|vector| vector.bytes[1] == 0x06);
    let mut seen = 0;
    for vector in with_payload {
        let (payload, _) = decode_one(&vector.bytes).expect("a driver's frame");
        assert_eq!(
            payload,
            [
                ("a".to_string(), Some(b"1".to_vec())),
                ("b".to_string(), Some(Vec::new()))
            ]
        );
        seen += 1;
    }
    assert_eq!(seen, 2, "one plain vector in each of versions 4 and 5 has a payload");
}

fn body(opcode: Opcode, version: ProtocolVersion, body: &[u8]) -> Result<String, String> {
    let header = FrameHeader {
        version,
        flags: 0,
        stream: 0,
        opcode,
        body_bytes: body.len(),
    };
    let decoded = decode_request(&Frame { header, body }, Extensions::default());
    decoded
        .map(|(_, request)| describe(&request))
        .map_err(|error| error.to_string())
}

#[test]
fn what_the_protocol_forbids_in_a_query_is_told_in_words() {
    use ProtocolVersion::{V3, V4, V5};
    let query = |rest: &[u8]| [b"\0\0\0\x01Q".as_slice(), rest].concat();
    let cases = [
        (
            V4,
            query(&[0, 11, 0]),
            "Unknown code 11 for a consistency level: expected a consistency level from 0x0000 (ANY) to 0x000A (LOCAL_ONE)",
        ),
        (
            V3,
            query(&[0, 1, 1, 0, 1, 255, 255, 255, 254]),
            "Invalid length of a value: expected 0 or more, or -1 for null, got -2",
        ),
        (
            V4,
            query(&[0, 1, 1, 0, 1, 255, 255, 255, 253]),
            "Invalid length of a value: expected 0 or more, -1 for null or -2 for not set, got -3",
        ),
        (
            V4,
            query(&[0, 1, 1, 0, 2, 255, 255, 255, 255]),
            "Not enough bytes to read the length of a value: expected 4 more, but 0 are left in the frame",
        ),
        (
            V4,
            query(&[0, 1, 1, 0, 1, 127, 255, 255, 255]),
            "Not enough bytes to read the value: expected 2147483647 more, but 0 are left in the frame",
        ),
        (
            V4,
            b"\xff\xff\xff\xff".to_vec(),
            "Not enough bytes to read the text of the query: expected a length of 0 or more, got -1",
        ),
        (
            V4,
            b"\0\0\0\x01\xff".to_vec(),
            "Cannot decode the text of the query as UTF8",
        ),
        (
            V4,
            query(&[0, 1, 0x20, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807] (got -9223372036854775808)",
        ),
        (
            V5,
            query(&[0, 1, 0]),
            "Not enough bytes to read the query flags: expected 4 more, but 1 are left in the frame",
        ),
    ];
    for (version, bytes, message) in cases {
        assert_eq!(body(Opcode::Query, version, &bytes), Err(message.to_string()));
    }
}

#[test]
fn what_the_protocol_forbids_in_other_requests_is_told_in_words() {
    let cases = [
        (
            Opcode::Batch,
            vec![3],
            "Invalid BATCH message type 3: expected 0 (logged), 1 (unlogged) or 2 (counter)",
        ),
        (
            Opcode::Batch,
            vec![0, 0, 1, 2],
            "Invalid kind of a statement in the batch: expected 0 (text) or 1 (prepared), got 2",
        ),
        (
            Opcode::Batch,
            vec![0, 0, 0, 0, 1, 0x40],
            "Names for values are not supported in a batch",
        ),
        (
            Opcode::Register,
            b"\0\x01\0\x03FOO".to_vec(),
            "Invalid value 'FOO' for the event type: expected TOPOLOGY_CHANGE, STATUS_CHANGE, SCHEMA_CHANGE or CLIENT_ROUTES_CHANGE",
        ),
        (
            Opcode::Startup,
            b"\0\x01\0\x01\xff\0\0".to_vec(),
            "Cannot decode the name of a STARTUP option as UTF8",
        ),
    ];
    for (opcode, bytes, message) in cases {
        assert_eq!(body(opcode, ProtocolVersion::V4, &bytes), Err(message.to_string()));
    }
}

#[test]
fn parameters_that_no_driver_of_ours_sends_are_understood() {
    use ProtocolVersion::{V4, V5};
    let named = b"\0\0\0\x01Q\0\x01\x41\0\x02\0\x01a\0\0\0\x01x\0\x02bc\xff\xff\xff\xff";
    assert_eq!(
        body(Opcode::Query, V4, named),
        Ok("QUERY 'Q' ONE [a: 0x78, bc: null]".to_string())
    );
    let now = b"\0\0\0\x01Q\0\x01\0\0\x01\x80\0\x02ks\0\0\0\x07";
    assert_eq!(
        body(Opcode::Query, V5, now),
        Ok("QUERY 'Q' ONE [] keyspace=ks now_in_seconds=7".to_string())
    );
    let batch = b"\0\0\0\0\x01\0\0\x01\x80\0\x02ks\0\0\0\x07";
    assert_eq!(
        body(Opcode::Batch, V5, batch),
        Ok("BATCH LOGGED {} ONE keyspace=ks now_in_seconds=7".to_string())
    );
    let unpaged = b"\0\0\0\x01Q\0\x01\x04\xff\xff\xff\xff";
    assert_eq!(body(Opcode::Query, V4, unpaged), Ok("QUERY 'Q' ONE []".to_string()));
    let keyspace_bit_before_version_5 = b"\0\0\0\x01Q\0\x01\x80";
    assert_eq!(
        body(Opcode::Query, V4, keyspace_bit_before_version_5),
        Ok("QUERY 'Q' ONE []".to_string())
    );
    let anonymous = b"\xff\xff\xff\xff";
    assert_eq!(
        body(Opcode::AuthResponse, V4, anonymous),
        Ok("AUTH_RESPONSE 0x".to_string())
    );
}

#[test]
fn extensions_of_execute_are_read_where_they_were_agreed() {
    let bytes = b"\0\x01i\0\x02ab\0\x01\x01\0\x01\0\0\0\x01x\x5a";
    let header = FrameHeader {
        version: ProtocolVersion::V4,
        flags: 0,
        stream: 0,
        opcode: Opcode::Execute,
        body_bytes: bytes.len(),
    };
    let frame = Frame { header, body: bytes };
    let (_, request) = decode_request(
        &frame,
        Extensions {
            result_metadata_id: true,
            tablet_version_block: true,
        },
    )
    .expect("a metadata id and a block");
    let Request::Execute {
        id,
        result_metadata_id,
        params,
        tablet_version_block,
    } = request
    else {
        panic!("{request:?}")
    };
    assert_eq!(
        (id, result_metadata_id, tablet_version_block),
        (b"i".as_slice(), Some(b"ab".as_slice()), Some(TabletVersionBlock(0x5a)))
    );
    assert_eq!(params.values.iter().collect::<Vec<_>>(), [Value::Bytes(b"x")]);
    let metadata_id_alone = Extensions {
        result_metadata_id: true,
        ..Extensions::default()
    };
    let (_, request) = decode_request(&frame, metadata_id_alone).expect("what follows the message is not looked at");
    let block = match request {
        Request::Execute {
            tablet_version_block, ..
        } => tablet_version_block,
        other => panic!("{other:?}"),
    };
    assert_eq!(block, None);
}

#[test]
fn an_execute_without_the_block_that_was_agreed_is_refused() {
    let extensions = Extensions {
        tablet_version_block: true,
        ..Extensions::default()
    };
    let whole = b"\0\x01i\0\x01\x05\0\x01\0\0\0\x01x\0\0\0\x09\xf7";
    for version in [ProtocolVersion::V3, ProtocolVersion::V4] {
        let decode = |body: &[u8]| {
            let header = FrameHeader {
                version,
                flags: 0,
                stream: 0,
                opcode: Opcode::Execute,
                body_bytes: body.len(),
            };
            decode_request(&Frame { header, body }, extensions).map(|(_, request)| match request {
                Request::Execute {
                    params,
                    tablet_version_block,
                    ..
                } => (params.page_size, tablet_version_block),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(decode(whole), Ok((Some(9), Some(TabletVersionBlock(0xf7)))));
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
        }
        let error = decode(&whole[..whole.len() - 1])
            .expect_err("a byte is missing")
            .to_string();
        assert!(error.contains("tablet version block"), "{error}");
    }
}

#[test]
fn a_version_we_do_not_speak_is_answered_so_that_drivers_downgrade() {
    let cases: [(&[u8], i16, u8); 4] = [
        (b"\x42\0\0\x07\x05\0\0\0\0", 7, 66),
        (b"\x06\x10\0\x07\x05\0\0\0\0", 7, 6),
        (b"\x01\0\0\x05\0\0\0\0", 0, 1),
        (b"GET / HTTP/1.1\r\n", 21536, 71),
    ];
    for (bytes, stream, version) in cases {
        let error = Splitter::new(Limits::default())
            .next(bytes, &mut 0)
            .expect_err("no such version");
        assert_eq!(error.version, ProtocolVersion::V5);
        assert_eq!(error.stream, stream);
        let expected = format!(
            "Invalid or unsupported protocol version ({version}); the lowest supported version is 3 and the greatest is 5"
        );
        assert_eq!(error.error.to_string(), expected);
    }
}

/// A connection before its STARTUP.
fn fresh() -> Splitter {
    Splitter::new(Limits {
        frame_bytes_max: 1000,
        frame_bytes_max_before_startup: 100,
        ..Limits::default()
    })
}

/// A connection of version 4.
fn v4() -> Splitter {
    let mut splitter = fresh();
    splitter.start(ProtocolVersion::V4, Framing::Plain);
    splitter
}

#[test]
fn frames_that_end_a_connection() {
    let cases: [(Splitter, &[u8], &str); 7] = [
        (
            fresh(),
            b"\x04\0\0\x01\x01\0\0\0\x5c",
            "stream 1: Request is too big: length 101 exceeds maximum allowed length 100.",
        ),
        (
            v4(),
            b"\x04\0\0\x01\x07\xff\xff\xff\xff",
            "stream 1: Invalid value for envelope header body length field: -1",
        ),
        (
            v4(),
            b"\x03\0\0\x01\x05\0\0\0\0",
            "stream 1: Invalid message version. Got 3/v3 but previous messages on this connection had version 4/v4",
        ),
        (
            v4(),
            b"\x84\0\0\x01\x05\0\0\0\0",
            "stream 1: Wrong protocol direction: expected a request, got a frame marked as a response",
        ),
        (
            v4(),
            b"\x04\0\0\x01\x04\0\0\0\0",
            "stream 1: Unknown opcode 4: expected the opcode of a request",
        ),
        (
            v4(),
            b"\x04\0\0\x01\x08\0\0\0\0",
            "stream 1: Wrong protocol direction: expected the opcode of a request, got 0x08",
        ),
        (
            v4(),
            b"\x04\x01\0\x01\x05\0\0\0\x01\0",
            "stream 1: The frame is marked as compressed, but STARTUP agreed on no compression",
        ),
    ];
    for (mut splitter, bytes, message) in cases {
        let error = splitter.next(bytes, &mut 0).expect_err(message);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_frame_of_exactly_the_limit_is_awaited() {
    assert_eq!(
        v4().next(b"\x04\0\0\x01\x07\0\0\x03\xdf", &mut 0),
        Ok(None),
        "a frame of exactly the limit is awaited"
    );
    assert_eq!(
        fresh().next(b"\x05\0\0\x01\x05\0\0\0\x5b", &mut 0),
        Ok(None),
        "so is one before STARTUP"
    );
}

#[test]
fn an_empty_body_marked_as_compressed_is_empty() {
    let mut splitter = Splitter::new(Limits::default());
    splitter.start(ProtocolVersion::V4, framing_named("lz4"));
    for frame in [
        b"\x04\x01\0\x01\x05\0\0\0\0".as_slice(),
        b"\x04\x01\0\x01\x05\0\0\0\x04\0\0\0\0",
        b"\x04\x01\0\x01\x05\0\0\0\x05\0\0\0\0\0",
    ] {
        let found = splitter.next(frame, &mut 0).expect("no error").expect("a whole frame");
        assert_eq!(
            (found.header.opcode, found.body),
            (Opcode::Options, b"".as_slice()),
            "{frame:?}"
        );
    }
}
