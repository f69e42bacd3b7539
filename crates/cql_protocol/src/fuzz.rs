//! What the fuzzer needs of the protocol: the bytes of real connections, and everything that reads them.

use crate::codes::{Opcode, ProtocolVersion};
use crate::compression::{Compression, decompress_body};
use crate::frame::{FRAME_HEADER_BYTES, Frame, FrameHeader};
use crate::segment::encode_segments;
use crate::splitter::{Framing, Limits, Splitter};
use crate::wire::encode_wire;
use crate::{Extensions, Request, decode_request};

/// What Apache's Python driver sent.
const REQUESTS: &str = include_str!("../tests/data/requests.txt");

/// The first byte of an input chooses one of these; the version follows from it.
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

/// The framing's number, and what came in it; of segments the frames, because the checksums are computed when they are
/// read.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for line in REQUESTS.lines() {
        let [framing, version, _, hex] = line.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let pairs = hex
            .as_bytes()
            .chunks(2)
            .filter_map(|pair| std::str::from_utf8(pair).ok());
        let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
        let number = match (framing, version) {
            ("plain", "v3") => 0,
            ("plain", "v4") => 5,
            ("lz4", "v3" | "v4") => 1,
            ("snappy", _) => 2,
            _ => continue,
        };
        let Some(bytes) = bytes else { continue };
        if number == 5 {
            // Also as version 5: the bodies of most opcodes differ there, but the header is right.
            let mut of_v5 = vec![3];
            of_v5.extend_from_slice(&bytes);
            of_v5[1] = ProtocolVersion::V5.number();
            seeds.push(of_v5);
        }
        let mut seed = vec![number];
        seed.extend_from_slice(&bytes);
        seeds.push(seed);
    }
    seeds.extend(batches());
    seeds
}

/// Batches, and a query of version 5 with every flag.
fn batches() -> Vec<Vec<u8>> {
    let frame = |framing: u8, version: ProtocolVersion, opcode: Opcode, body: &[u8]| {
        let mut seed = vec![framing, version.number(), 0, 0, 1, opcode as u8];
        seed.extend_from_slice(&u32::try_from(body.len()).expect("short").to_be_bytes());
        seed.extend_from_slice(body);
        seed
    };
    let entries = [
        &[1, 0, 2, 0, 0, 0, 0, 3][..],
        b"USE",
        &[0, 1, 0, 0, 0, 1, 9, 1, 0, 2, 7, 7, 0, 0],
    ]
    .concat();
    let v4 = [&entries[..], &[0, 1, 0x30, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7]].concat();
    let v5 = [
        &entries[..],
        &[
            0, 1, 0, 0, 1, 0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 2, b'k', b's', 0, 0, 0, 9,
        ],
    ]
    .concat();
    let query = [
        &[0, 0, 0, 3][..],
        b"USE",
        &[
            0, 1, 0, 0, 1, 0xff, 0, 1, 0, 1, b'n', 0, 0, 0, 1, 9, 0, 0, 0, 5, 0, 0, 0, 2, 1, 2, 0, 8,
        ],
        &[0, 0, 0, 0, 0, 0, 0, 7, 0, 2, b'k', b's', 0, 0, 0, 9],
    ]
    .concat();
    vec![
        frame(5, ProtocolVersion::V4, Opcode::Batch, &v4),
        frame(3, ProtocolVersion::V5, Opcode::Batch, &v5),
        frame(4, ProtocolVersion::V5, Opcode::Query, &query),
    ]
}

/// Reads the bytes as a connection with the chosen framing, as a compressed body, and the body of their first frame as
/// every request.
pub fn read(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let framing = FRAMINGS[usize::from(first) % FRAMINGS.len()];
    let version = match framing {
        Framing::Segments { .. } => ProtocolVersion::V5,
        _ if usize::from(first) < FRAMINGS.len() => ProtocolVersion::V3,
        _ => ProtocolVersion::V4,
    };
    split(Splitter::new(LIMITS), bytes);
    let started = || {
        let mut splitter = Splitter::new(LIMITS);
        splitter.start(version, framing);
        splitter
    };
    split(started(), bytes);
    let mut wire = bytes.to_vec();
    match framing {
        // Whole segments, whatever is in them.
        Framing::Segments { lz4 } => {
            wire.clear();
            encode_segments(bytes, lz4, &mut wire);
        }
        _ => encode_wire(framing, &mut wire, &mut Vec::new()),
    }
    split(started(), &wire);
    for compression in [Compression::Lz4, Compression::Snappy] {
        let mut out = Vec::new();
        if decompress_body(compression, bytes, LIMITS.frame_bytes_max, &mut out).is_ok() {
            assert!(out.len() <= LIMITS.frame_bytes_max, "a body is longer than it may be");
        }
    }
    let body = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    for opcode in (0..=u8::MAX)
        .filter_map(Opcode::from_number)
        .filter(|opcode| opcode.is_request())
    {
        for version in [ProtocolVersion::V3, ProtocolVersion::V4, ProtocolVersion::V5] {
            let header = FrameHeader {
                version,
                flags: bytes.get(1).copied().unwrap_or(0),
                stream: 0,
                opcode,
                body_bytes: body.len(),
            };
            read_request(&Frame { header, body });
        }
    }
}

/// Cuts the bytes into frames, as they come from a socket.
fn split(mut splitter: Splitter, bytes: &[u8]) {
    let (mut consumed, mut before) = (0, None);
    loop {
        match splitter.next(bytes, &mut consumed) {
            Ok(Some(frame)) => {
                assert_eq!(
                    frame.header.body_bytes,
                    frame.header.body_bytes.min(LIMITS.frame_bytes_max)
                );
                read_request(&frame);
            }
            Ok(None) => break,
            Err(error) => {
                drop(error.error.to_string());
                if !error.resumes {
                    return;
                }
            }
        }
        assert!(consumed <= bytes.len(), "more was consumed than there is");
        assert!(
            before != Some(consumed) || !matches!(splitter.wanted_bytes(), 0),
            "nothing is requested any more"
        );
        before = Some(consumed);
    }
    assert!(consumed <= bytes.len(), "more was consumed than there is");
    assert!(
        splitter.wanted_bytes() <= LIMITS.frame_bytes_max + FRAME_HEADER_BYTES,
        "the splitter wants more than a frame may have"
    );
}

/// Decodes a request; what it counts is what it yields.
fn read_request(frame: &Frame<'_>) {
    for (result_metadata_id, tablet_version_block) in [(false, false), (true, false), (false, true), (true, true)] {
        let extensions = Extensions {
            result_metadata_id,
            tablet_version_block,
        };
        let (payload, request) = match decode_request(frame, extensions) {
            Ok(decoded) => decoded,
            Err(error) => {
                drop(error.to_string());
                continue;
            }
        };
        if let Some(payload) = payload {
            assert_eq!(payload.iter().count(), payload.len(), "entries of the custom payload");
        }
        match request {
            Request::Startup(options) => assert_eq!(options.iter().count(), options.len(), "options"),
            Request::Query { params, .. } | Request::Execute { params, .. } => {
                assert_eq!(params.values.iter().count(), params.values.len(), "values");
                if params.values.is_named() {
                    assert_eq!(params.values.iter_named().count(), params.values.len(), "named values");
                }
            }
            Request::Batch(batch) => {
                assert_eq!(batch.entries().count(), batch.len(), "statements");
                for entry in batch.entries() {
                    assert_eq!(entry.values.iter().count(), entry.values.len(), "values of a statement");
                }
            }
            Request::Options | Request::Prepare { .. } | Request::Register(_) | Request::AuthResponse(_) => {}
        }
    }
}
