//! From plain response frames to the bytes of the connection, once for all the responses to one read of the socket.

use crate::codes::frame_flags;
use crate::compression::{Compression, compress_body};
use crate::frame::FRAME_HEADER_BYTES;
use crate::segment::encode_segments;
use crate::splitter::Framing;

/// Bodies below this are sent as they are: compressing them would cost more than it saves.
const COMPRESSED_BODY_BYTES_MIN: usize = 128;

/// Turns `buffer`, a sequence of whole response frames, into what the connection's framing sends. Plain framing costs
/// nothing; the others write into `scratch` and exchange the two, so that both buffers are used again.
pub fn encode_wire(framing: Framing, buffer: &mut Vec<u8>, scratch: &mut Vec<u8>) {
    match framing {
        Framing::Plain => return,
        Framing::CompressedBodies(compression) => {
            scratch.clear();
            compress_bodies(compression, buffer, scratch);
        }
        Framing::Segments { lz4 } => {
            scratch.clear();
            encode_segments(buffer, lz4, scratch);
        }
    }
    std::mem::swap(buffer, scratch);
}

fn compress_bodies(compression: Compression, frames: &[u8], out: &mut Vec<u8>) {
    let mut rest = frames;
    while let Some((header, after)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() {
        let [version, flags, stream0, stream1, opcode, length @ ..] = *header;
        let (body, after) = after.split_at((u32::from_be_bytes(length) as usize).min(after.len()));
        rest = after;
        let start = out.len();
        out.extend_from_slice(header);
        if body.len() >= COMPRESSED_BODY_BYTES_MIN {
            compress_body(compression, body, out);
            let compressed_bytes = out.len() - start - FRAME_HEADER_BYTES;
            if compressed_bytes < body.len() {
                let [length0, length1, length2, length3] = u32::try_from(compressed_bytes)
                    .expect("shorter than the body")
                    .to_be_bytes();
                let flags = flags | frame_flags::COMPRESSION;
                let header = [
                    version, flags, stream0, stream1, opcode, length0, length1, length2, length3,
                ];
                out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header);
                continue;
            }
            out.truncate(start + FRAME_HEADER_BYTES);
        }
        out.extend_from_slice(body);
    }
}
