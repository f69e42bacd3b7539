//! Segments: the checksummed layer that version 5 puts below frames, in both directions, after STARTUP has been
//! answered.
//!
//! ```text
//! plain       header, 3 bytes: payload length (17 bits), self-contained (1 bit), 6 bits zero
//! compressed  header, 5 bytes: compressed length (17), uncompressed length (17), self-contained (1), 5 bits zero
//! both        CRC24 of the header, 3 bytes; payload; CRC32 of the payload as it is sent, 4 bytes
//! ```
//!
//! Little-endian, unlike all the rest of the protocol. An uncompressed length of 0 says that the payload is sent as it
//! is, because compression would not have made it shorter. A self-contained segment holds whole frames, one or many; a
//! frame longer than a segment is cut into segments that are not self-contained and hold nothing else.

use crate::compression::append_lz4;
use crate::error::ProtocolError;

/// The longest payload of a segment, before and after compression.
pub const SEGMENT_PAYLOAD_BYTES_MAX: usize = 128 * 1024 - 1;

const CRC24_BYTES: usize = 3;
pub(crate) const CRC32_BYTES: usize = 4;

const LENGTH_BITS: u32 = 17;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Bytes of the payload as it is sent.
    pub(crate) payload_bytes: usize,
    /// Bytes of the payload after decompression; `None` when it is not compressed.
    pub(crate) decompressed_bytes: Option<usize>,
    /// Whether it holds whole frames.
    pub(crate) self_contained: bool,
}

/// Bytes of a segment header with its checksum.
pub(crate) fn segment_header_bytes(lz4: bool) -> usize {
    let fields = if lz4 { 5 } else { 3 };
    fields + CRC24_BYTES
}

impl SegmentHeader {
    /// Reads a header, of exactly [`segment_header_bytes`].
    pub(crate) fn parse(bytes: &[u8], lz4: bool) -> Result<SegmentHeader, ProtocolError> {
        let (fields, checksum) = bytes.split_at(bytes.len() - CRC24_BYTES);
        let expected = little_endian(checksum);
        let found = crc24(fields);
        if u64::from(found) != expected {
            let expected = u32::try_from(expected).unwrap_or(u32::MAX);
            return Err(ProtocolError::Checksum {
                part: "header",
                expected,
                found,
            });
        }
        let bits = little_endian(fields);
        let length = |shift: u32| usize::try_from((bits >> shift) & LENGTH_MASK).expect("17 bits");
        let flag_bit = if lz4 { 2 * LENGTH_BITS } else { LENGTH_BITS };
        Ok(SegmentHeader {
            payload_bytes: length(0),
            decompressed_bytes: (lz4 && length(LENGTH_BITS) > 0).then(|| length(LENGTH_BITS)),
            self_contained: (bits >> flag_bit) & 1 == 1,
        })
    }

    fn write(self, lz4: bool, out: &mut [u8]) {
        let mut bits = self.payload_bytes as u64;
        let mut flag_bit = LENGTH_BITS;
        if lz4 {
            bits |= (self.decompressed_bytes.unwrap_or(0) as u64) << LENGTH_BITS;
            flag_bit += LENGTH_BITS;
        }
        bits |= u64::from(self.self_contained) << flag_bit;
        let (fields, checksum) = out.split_at_mut(out.len() - CRC24_BYTES);
        fields.copy_from_slice(&bits.to_le_bytes()[..fields.len()]);
        checksum.copy_from_slice(&crc24(fields).to_le_bytes()[..CRC24_BYTES]);
    }
}

/// Checks the checksum that follows a payload.
pub(crate) fn check_payload(payload: &[u8], checksum: &[u8]) -> Result<(), ProtocolError> {
    let expected = u32::try_from(little_endian(checksum)).unwrap_or(0);
    let found = crc32(payload);
    if expected != found {
        return Err(ProtocolError::Checksum {
            part: "payload",
            expected,
            found,
        });
    }
    Ok(())
}

/// Appends the segments that carry `frames`, which is a sequence of whole frames. Short frames share segments.
pub fn encode_segments(frames: &[u8], lz4: bool, out: &mut Vec<u8>) {
    out.reserve(frames.len() + frames.len() / 1024 + 32);
    let mut rest = frames;
    while !rest.is_empty() {
        let shared = whole_frames(rest);
        if shared > 0 {
            append_segment(&rest[..shared], true, lz4, out);
            rest = &rest[shared..];
            continue;
        }
        let (large, after) = rest.split_at(first_frame_bytes(rest));
        for part in large.chunks(SEGMENT_PAYLOAD_BYTES_MAX) {
            append_segment(part, false, lz4, out);
        }
        rest = after;
    }
}

/// How many bytes at the start of `frames` are whole frames that share one segment.
fn whole_frames(frames: &[u8]) -> usize {
    let mut end = 0;
    while end < frames.len() {
        let next = end + first_frame_bytes(&frames[end..]);
        if next > SEGMENT_PAYLOAD_BYTES_MAX {
            break;
        }
        end = next;
    }
    end
}

/// The length of the first frame; all of `frames` if that is shorter.
fn first_frame_bytes(frames: &[u8]) -> usize {
    let Some(&[_, _, _, _, _, length0, length1, length2, length3]) = frames.first_chunk() else {
        return frames.len();
    };
    let body_bytes = u32::from_be_bytes([length0, length1, length2, length3]) as usize;
    (crate::FRAME_HEADER_BYTES + body_bytes).min(frames.len())
}

fn append_segment(payload: &[u8], self_contained: bool, lz4: bool, out: &mut Vec<u8>) {
    let header_at = out.len();
    let payload_at = header_at + segment_header_bytes(lz4);
    out.resize(payload_at, 0);
    let mut decompressed_bytes = None;
    if lz4 {
        append_lz4(payload, out);
        decompressed_bytes = Some(payload.len());
    }
    if !lz4 || out.len() - payload_at >= payload.len() {
        out.truncate(payload_at);
        out.extend_from_slice(payload);
        decompressed_bytes = None;
    }
    let header = SegmentHeader {
        payload_bytes: out.len() - payload_at,
        decompressed_bytes,
        self_contained,
    };
    header.write(lz4, &mut out[header_at..payload_at]);
    let checksum = crc32(&out[payload_at..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// The checksum of payloads starts from these four bytes, so that a run of zeros is not its own checksum.
const CRC32_PREFIX: [u8; 4] = [0xfa, 0x2d, 0x55, 0xca];

fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&CRC32_PREFIX);
    hasher.update(payload);
    hasher.finalize()
}

const CRC24_INITIAL: u32 = 0x0087_5060;
const CRC24_POLYNOMIAL: u32 = 0x0197_4f0b;

/// CRC24 of each byte value, so that a header costs a look-up per byte.
const CRC24_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_INITIAL, |crc, byte| {
        let index = ((crc >> 16) as u8) ^ byte;
        ((crc << 8) & 0x00ff_ffff) ^ CRC24_TABLE[usize::from(index)]
    })
}
