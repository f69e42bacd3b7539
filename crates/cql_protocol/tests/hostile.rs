//! Bytes from a hostile peer: nothing here may panic, loop, or read past what was sent.

mod common;

use common::describe;
use cql_protocol::{
    Compression, Extensions, FRAME_HEADER_BYTES, Frame, FrameHeader, Framing, Limits, Opcode, ProtocolError,
    ProtocolVersion, Splitter, compress_body, decode_request, decompress_body, encode_segments, encode_wire,
};
use proptest::prelude::*;

const REQUEST_OPCODES: [Opcode; 8] = [
    Opcode::Startup,
    Opcode::Options,
    Opcode::Query,
    Opcode::Prepare,
    Opcode::Execute,
    Opcode::Register,
    Opcode::Batch,
    Opcode::AuthResponse,
];

const FRAMINGS: [Framing; 5] = [
    Framing::Plain,
    Framing::CompressedBodies(Compression::Lz4),
    Framing::CompressedBodies(Compression::Snappy),
    Framing::Segments { lz4: false },
    Framing::Segments { lz4: true },
];

const LIMITS: Limits = Limits {
    frame_bytes_max: 1 << 20,
    frame_bytes_max_before_startup: 1 << 16,
    scratch_bytes_free: usize::MAX,
    short_body_bytes: usize::MAX,
};

fn version() -> impl Strategy<Value = ProtocolVersion> {
    prop_oneof![
        Just(ProtocolVersion::V3),
        Just(ProtocolVersion::V4),
        Just(ProtocolVersion::V5)
    ]
}

/// Short counts and lengths, so that what follows them is often read.
fn plausible_body() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(0_u8), 3 => 0_u8..4, 1 => any::<u8>(), 1 => Just(255_u8)];
    prop_oneof![
        proptest::collection::vec(byte, 0..80),
        proptest::collection::vec(any::<u8>(), 0..200)
    ]
}

fn started(version: ProtocolVersion, framing: Framing) -> Splitter {
    let mut splitter = Splitter::new(LIMITS);
    splitter.start(version, framing);
    splitter
}

/// All frames in `input`, given in pieces of `step` bytes, as text; the text of the error when one ends the connection.
fn split(mut splitter: Splitter, input: &[u8], step: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = Vec::new();
    for piece in input.chunks(step) {
        pending.extend_from_slice(piece);
        let mut consumed = 0;
        loop {
            match splitter.next(&pending, &mut consumed) {
                Ok(Some(frame)) => {
                    let request = decode_request(&frame, Extensions::default());
                    found.push(match request {
                        Ok((_, request)) => describe_loosely(&request),
                        Err(error) => error.to_string(),
                    });
                }
                Ok(None) => break,
                Err(error) => {
                    found.push(error.to_string());
                    if !error.resumes {
                        return found;
                    }
                }
            }
        }
        assert!(consumed <= pending.len(), "consumed bytes that were not there");
        pending.drain(..consumed);
    }
    found
}

/// Like `describe`, for requests that may be followed by other bytes.
fn describe_loosely(request: &cql_protocol::Request<'_>) -> String {
    use cql_protocol::Request;
    match *request {
        Request::Execute {
            id,
            result_metadata_id,
            params,
            ..
        } => describe(&Request::Execute {
            id,
            result_metadata_id,
            params,
            tablet_version_block: None,
        }),
        ref other => describe(other),
    }
}

fn request_frame(version: ProtocolVersion, stream: i16, text: &str) -> Vec<u8> {
    let mut body = u32::try_from(text.len()).expect("short text").to_be_bytes().to_vec();
    body.extend_from_slice(text.as_bytes());
    body.extend_from_slice(&[0, 1]);
    body.extend_from_slice(if version == ProtocolVersion::V5 {
        &[0, 0, 0, 0]
    } else {
        &[0]
    });
    let mut frame = vec![version.number(), 0];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.push(Opcode::Query as u8);
    frame.extend_from_slice(&u32::try_from(body.len()).expect("short body").to_be_bytes());
    frame.extend_from_slice(&body);
    frame
}

proptest! {
    #[test]
    fn any_body_is_decoded_or_refused(version in version(), opcode in 0_usize..8, flags in any::<u8>(), body in plausible_body(), agreed in any::<(bool, bool)>()) {
        let header = FrameHeader { version, flags, stream: 0, opcode: REQUEST_OPCODES[opcode], body_bytes: body.len() };
        let extensions = Extensions { result_metadata_id: agreed.0, tablet_version_block: agreed.1 };
        if let Ok((payload, request)) = decode_request(&Frame { header, body: &body }, extensions) {
            // The counts in the description are checked against what iterating yields.
            describe_loosely(&request);
            if let Some(payload) = payload {
                prop_assert_eq!(payload.iter().count(), payload.len());
            }
        }
    }

    #[test]
    fn any_bytes_are_split_or_refused_however_they_arrive(version in version(), framing in 0_usize..5, input in proptest::collection::vec(any::<u8>(), 0..300), step in 1_usize..300) {
        let at_once = split(started(version, FRAMINGS[framing]), &input, input.len().max(1));
        let in_pieces = split(started(version, FRAMINGS[framing]), &input, step);
        prop_assert_eq!(at_once, in_pieces);
    }

    #[test]
    fn a_stream_with_one_wrong_byte_is_split_or_refused(framing in 0_usize..5, texts in proptest::collection::vec("[a-z]{0,200}", 1..6), at in any::<prop::sample::Index>(), value in any::<u8>(), step in 1_usize..100) {
        let version = if framing < 3 { ProtocolVersion::V4 } else { ProtocolVersion::V5 };
        let mut wire: Vec<u8> = texts.iter().flat_map(|text| request_frame(version, 1, text)).collect();
        encode_wire(FRAMINGS[framing], &mut wire, &mut Vec::new());
        let at = at.index(wire.len());
        wire[at] = value;
        let at_once = split(started(version, FRAMINGS[framing]), &wire, wire.len());
        let in_pieces = split(started(version, FRAMINGS[framing]), &wire, step);
        prop_assert_eq!(at_once, in_pieces);
    }

    #[test]
    fn what_is_put_on_the_wire_comes_back(framing in 0_usize..5, texts in proptest::collection::vec("[a-z]{0,400}", 0..20), step in 1_usize..5000) {
        let version = if framing < 3 { ProtocolVersion::V4 } else { ProtocolVersion::V5 };
        let mut wire: Vec<u8> = texts.iter().flat_map(|text| request_frame(version, 1, text)).collect();
        encode_wire(FRAMINGS[framing], &mut wire, &mut Vec::new());
        let expected: Vec<String> = texts.iter().map(|text| format!("QUERY '{text}' ONE []")).collect();
        prop_assert_eq!(split(started(version, FRAMINGS[framing]), &wire, step), expected);
    }

    #[test]
    fn any_compressed_body_is_decompressed_or_refused(snappy in any::<bool>(), body in proptest::collection::vec(any::<u8>(), 0..100), prefix in proptest::option::of(0_u32..2000)) {
        let compression = if snappy { Compression::Snappy } else { Compression::Lz4 };
        let mut bytes = prefix.map_or_else(Vec::new, |length| length.to_be_bytes().to_vec());
        bytes.extend_from_slice(&body);
        let mut out = Vec::new();
        if decompress_body(compression, &bytes, 1000, &mut out).is_ok() {
            prop_assert!(out.len() <= 1000);
        }
    }

    #[test]
    fn a_compressed_body_comes_back(snappy in any::<bool>(), body in proptest::collection::vec(0_u8..3, 0..3000)) {
        let compression = if snappy { Compression::Snappy } else { Compression::Lz4 };
        let mut compressed = Vec::new();
        compress_body(compression, &body, &mut compressed);
        let mut out = vec![1, 2, 3];
        prop_assert_eq!(decompress_body(compression, &compressed, body.len(), &mut out), Ok(()));
        prop_assert_eq!(out, body);
    }
}

#[test]
fn a_body_that_claims_gigabytes_reserves_nothing() {
    let mut out = Vec::new();
    let bomb = b"\xff\xff\xff\xff\x1f\0\x01\0";
    let error = decompress_body(Compression::Lz4, bomb, 1000, &mut out).expect_err("a lie");
    assert_eq!(
        error,
        ProtocolError::FrameTooLarge {
            frame_bytes: 0xffff_ffff,
            frame_bytes_max: 1000
        }
    );
    decompress_body(Compression::Lz4, bomb, usize::MAX, &mut out).expect_err("8 bytes cannot hold 4 GiB");
    decompress_body(Compression::Snappy, b"\xff\xff\xff\xff\x0f", 1000, &mut out).expect_err("a lie");
    assert_eq!(out.capacity(), 0, "memory was reserved for a length that lies");
}

#[test]
fn frames_longer_than_a_segment_are_cut_and_put_together() {
    // 131,071 bytes is the longest payload: just below, exactly, just above, and several segments.
    for text_bytes in [131_071 - 19 - 1, 131_071 - 19, 131_071 - 19 + 1, 400_000] {
        for lz4 in [false, true] {
            let text: String = (0..text_bytes)
                .map(|at| char::from(b'a' + (at % 251 * at % 23) as u8))
                .collect();
            let mut frames = request_frame(ProtocolVersion::V5, 1, "before");
            frames.extend(request_frame(ProtocolVersion::V5, 2, &text));
            frames.extend(request_frame(ProtocolVersion::V5, 3, "after"));
            frames.extend(request_frame(ProtocolVersion::V5, 4, "after that"));
            let mut wire = Vec::new();
            encode_segments(&frames, lz4, &mut wire);
            let expected = [
                "QUERY 'before' ONE []".to_string(),
                format!("QUERY '{text}' ONE []"),
                "QUERY 'after' ONE []".to_string(),
                "QUERY 'after that' ONE []".to_string(),
            ];
            for step in [7_777, wire.len()] {
                let found = split(started(ProtocolVersion::V5, Framing::Segments { lz4 }), &wire, step);
                assert!(
                    found == expected,
                    "text of {text_bytes} bytes, lz4 {lz4}, in pieces of {step}: {} frames",
                    found.len()
                );
            }
        }
    }
}

#[test]
fn short_frames_share_a_segment() {
    let frames: Vec<u8> = (0..100)
        .flat_map(|stream| request_frame(ProtocolVersion::V5, stream, "x"))
        .collect();
    let mut wire = Vec::new();
    encode_segments(&frames, false, &mut wire);
    assert_eq!(wire.len(), frames.len() + 6 + 4, "one header and one trailer for all");
}

#[test]
fn segments_cannot_smuggle_more_than_the_limit() {
    let framing = Framing::Segments { lz4: false };
    let mut splitter = Splitter::new(Limits {
        frame_bytes_max: 200_000,
        frame_bytes_max_before_startup: 100,
        ..LIMITS
    });
    splitter.start(ProtocolVersion::V5, framing);
    let mut wire = Vec::new();
    encode_segments(
        &request_frame(ProtocolVersion::V5, 1, &"x".repeat(300_000)),
        false,
        &mut wire,
    );
    let error = splitter.next(&wire, &mut 0).expect_err("too long");
    assert!(matches!(error.error, ProtocolError::FrameTooLarge { .. }), "{error}");
    assert_eq!(error.stream, 1, "the first segment says whose frame it is");
}

#[test]
fn a_frame_above_the_limit_is_refused_and_skipped_in_every_framing() {
    let framings = [
        (ProtocolVersion::V3, Framing::Plain),
        (ProtocolVersion::V4, Framing::CompressedBodies(Compression::Lz4)),
        (ProtocolVersion::V5, Framing::Segments { lz4: false }),
        (ProtocolVersion::V5, Framing::Segments { lz4: true }),
    ];
    // The long frame fits into one segment, and needs three.
    for (limit, text_bytes) in [(5_000, 60_000), (200_000, 300_000)] {
        for (version, framing) in framings {
            let frames = [
                request_frame(version, 1, "before"),
                request_frame(version, 2, &"x".repeat(text_bytes)),
                request_frame(version, 3, "after"),
            ];
            let (long, frames) = (frames[1].len(), frames.concat());
            let mut wire = Vec::new();
            match framing {
                Framing::Segments { lz4 } => encode_segments(&frames, lz4, &mut wire),
                _ => wire = frames,
            }
            for step in [999, wire.len()] {
                let mut splitter = Splitter::new(Limits {
                    frame_bytes_max: limit,
                    ..Limits::default()
                });
                splitter.start(version, framing);
                let expected = [
                    "QUERY 'before' ONE []".to_owned(),
                    format!("stream 2: Request is too big: length {long} exceeds maximum allowed length {limit}."),
                    "QUERY 'after' ONE []".to_owned(),
                ];
                let found = split(splitter, &wire, step);
                assert_eq!(found, expected, "{version:?} {framing:?}, in pieces of {step}");
            }
        }
    }
}

#[test]
fn nothing_is_decompressed_or_put_together_beyond_what_the_caller_allows() {
    const FREE: usize = 1000;
    const TEXT: usize = 400_000;
    for framing in FRAMINGS.into_iter().filter(|framing| *framing != Framing::Plain) {
        let version = match framing {
            Framing::Segments { .. } => ProtocolVersion::V5,
            _ => ProtocolVersion::V4,
        };
        let mut splitter = Splitter::new(Limits {
            scratch_bytes_free: FREE,
            ..LIMITS
        });
        splitter.start(version, framing);
        let mut wire = request_frame(version, 1, "short");
        wire.extend(request_frame(version, 2, &"x".repeat(TEXT)));
        encode_wire(framing, &mut wire, &mut Vec::new());
        let (mut consumed, mut frames, mut allowed) = (0, 0, Vec::new());
        loop {
            if splitter.next(&wire, &mut consumed).expect("well-formed").is_some() {
                frames += 1;
                continue;
            }
            match splitter.wanted_scratch_bytes() {
                0 => break,
                wanted => {
                    allowed.push(wanted);
                    splitter.allow_scratch(wanted);
                }
            }
        }
        assert_eq!((frames, consumed), (2, wire.len()), "{framing:?}");
        let most = allowed.last().copied().unwrap_or(0);
        assert!((TEXT..TEXT + 100).contains(&most), "{framing:?}: asked for {allowed:?}");
        // The length of a frame in compressed segments is known when the first one is decompressed.
        assert!(allowed.len() <= 2, "{framing:?}: asked for {allowed:?}");
        assert!(splitter.has_scratch(), "{framing:?}");
        splitter.release_scratch();
        assert!(!splitter.has_scratch(), "{framing:?}: it is not given back");
    }
}

#[test]
fn a_long_body_is_decompressed_by_the_caller() {
    let version = ProtocolVersion::V4;
    for compression in [Compression::Lz4, Compression::Snappy] {
        let framing = Framing::CompressedBodies(compression);
        let texts = ["before".to_owned(), "x".repeat(300_000), "after".to_owned()];
        let mut wire: Vec<u8> = (1..)
            .zip(&texts)
            .flat_map(|(stream, text)| request_frame(version, stream, text))
            .collect();
        encode_wire(framing, &mut wire, &mut Vec::new());
        for is_damaged in [false, true] {
            if is_damaged {
                let end = wire.len() - request_frame(version, 3, "after").len();
                wire[end - 20..end].fill(0xff);
            }
            let limits = Limits {
                short_body_bytes: 1000,
                ..LIMITS
            };
            let (mut splitter, mut consumed) = (Splitter::new(limits), 0);
            splitter.start(version, framing);
            let (mut bodies, mut taken) = (Vec::new(), 0);
            let error = loop {
                match splitter.next(&wire, &mut consumed) {
                    Ok(Some(frame)) => bodies.push(frame.body.len()),
                    Ok(None) => match splitter.take_long_body() {
                        Some(body) => {
                            assert!(splitter.take_long_body().is_none(), "it is taken once");
                            taken += 1;
                            splitter.put_long_body(body.decompress(&wire[consumed..]));
                        }
                        None => break None,
                    },
                    Err(error) => break Some(error),
                }
            };
            assert_eq!(taken, 1, "{compression:?}");
            let plain: Vec<usize> = texts
                .iter()
                .map(|text| request_frame(version, 1, text).len() - FRAME_HEADER_BYTES)
                .collect();
            if is_damaged {
                assert_eq!(bodies, plain[..1], "{compression:?}");
                assert!(
                    error.is_some_and(|error| !error.resumes && error.stream == 2),
                    "{compression:?}"
                );
            } else {
                assert_eq!((bodies, error.is_none()), (plain, true), "{compression:?}");
            }
        }
    }
}

#[test]
fn nothing_is_kept_of_a_frame_above_the_limit() {
    let mut splitter = Splitter::new(Limits {
        frame_bytes_max: 5_000,
        ..Limits::default()
    });
    splitter.start(ProtocolVersion::V4, Framing::Plain);
    let wire = request_frame(ProtocolVersion::V4, 2, &"x".repeat(300_000));
    let (mut pending, mut refused) = (Vec::new(), 0);
    for piece in wire.chunks(1_000) {
        pending.extend_from_slice(piece);
        let mut consumed = 0;
        match splitter.next(&pending, &mut consumed) {
            Err(error) if error.resumes => refused += 1,
            other => assert!(matches!(other, Ok(None)), "{other:?}"),
        }
        assert_eq!(consumed, pending.len(), "bytes stay in the buffer");
        assert!(splitter.wanted_bytes() <= FRAME_HEADER_BYTES, "the buffer would grow");
        pending.clear();
    }
    assert_eq!(refused, 1);
}

#[test]
fn a_body_that_is_too_long_when_it_is_decompressed_ends_no_connection() {
    let framing = Framing::CompressedBodies(Compression::Lz4);
    let plain = request_frame(ProtocolVersion::V4, 2, &"x".repeat(300_000));
    let mut body = Vec::new();
    compress_body(Compression::Lz4, &plain[FRAME_HEADER_BYTES..], &mut body);
    let mut wire = plain[..FRAME_HEADER_BYTES].to_vec();
    wire[1] |= 1;
    wire[5..].copy_from_slice(&u32::try_from(body.len()).expect("it is short").to_be_bytes());
    wire.extend(body);
    wire.extend(request_frame(ProtocolVersion::V4, 3, "after"));
    let mut splitter = Splitter::new(Limits {
        frame_bytes_max: 200_000,
        ..Limits::default()
    });
    splitter.start(ProtocolVersion::V4, framing);
    let found = split(splitter, &wire, wire.len());
    let length = plain.len() - FRAME_HEADER_BYTES;
    let refusal = format!("stream 2: Request is too big: length {length} exceeds maximum allowed length 200000.");
    assert_eq!(found, [refusal, "QUERY 'after' ONE []".to_owned()]);
}

#[test]
fn segments_that_break_their_own_rules_are_refused() {
    let whole = request_frame(ProtocolVersion::V5, 1, "q");
    let long = request_frame(ProtocolVersion::V5, 1, &"x".repeat(200_000));
    let segments = |frames: &[u8]| {
        let mut wire = Vec::new();
        encode_segments(frames, false, &mut wire);
        wire
    };
    let first_of_two = &segments(&long)[..6 + 131_071 + 4];
    let cases = [
        (
            segments(&whole[..whole.len() - 1]),
            "stream 1: A self-contained segment ends inside a frame",
        ),
        (
            segments(&whole[..FRAME_HEADER_BYTES - 1]),
            "stream 0: A self-contained segment ends inside a frame",
        ),
        (
            [first_of_two, &segments(&whole)].concat(),
            "stream 0: A self-contained segment came between the segments of a larger frame",
        ),
        (
            [first_of_two, first_of_two].concat(),
            "stream 1: A frame spread over several segments is followed by other bytes in its last segment",
        ),
    ];
    for (wire, message) in cases {
        let found = split(
            started(ProtocolVersion::V5, Framing::Segments { lz4: false }),
            &wire,
            wire.len(),
        );
        assert_eq!(found, [message]);
    }
    assert_eq!(
        Framing::after_startup(ProtocolVersion::V5, Some(Compression::Snappy)).map_err(|error| error.to_string()),
        Err("Unsupported compression: protocol version 5 has lz4 only, got snappy".to_string())
    );
}
