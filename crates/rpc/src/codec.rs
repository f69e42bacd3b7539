//! Compression of what a connection carries.
//!
//! When the hello agreed on compression, the frames of one write are cut into blocks without regard to where frames
//! end:
//!
//! ```text
//! plain length    4 bytes, big-endian, 1 to BLOCK_BYTES_MAX
//! stored length   4 bytes, at most the plain length; equal to it when the block is not compressed
//! stored bytes    an LZ4 block, a Zstandard frame, or the plain bytes
//! ```
//!
//! A block is decompressed when the frames before it are read, one at a time, so that few bytes cannot become many.

use std::fmt;

/// An algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// LZ4: quick.
    Lz4 = 1,
    /// Zstandard, level 1: smaller.
    Zstd = 2,
}

impl Compression {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The longest block.
pub(crate) const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Shorter writes are not compressed.
pub(crate) const COMPRESS_BYTES_MIN: usize = 1 << 10;

const HEADER_BYTES: usize = 8;
const ZSTD_LEVEL: i32 = 1;

/// Why bytes are not a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockError {
    Lengths { plain: usize, stored: usize },
    Damaged(Compression),
}

impl fmt::Display for BlockError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths { plain, stored } => write!(
                formatter,
                "a compressed block of {stored} bytes says that it has {plain}, where 1 to {BLOCK_BYTES_MAX} and no \
                 fewer than are stored were expected"
            ),
            Self::Damaged(compression) => write!(formatter, "a block is not {compression:?} of its length"),
        }
    }
}

/// What compressing needs besides the bytes; one for each shard, because Zstandard's state is large.
#[derive(Default)]
pub(crate) struct Codec {
    compressor: Option<zstd::bulk::Compressor<'static>>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl Codec {
    /// Appends the blocks of `plain`.
    pub(crate) fn append_blocks(&mut self, compression: Compression, plain: &[u8], out: &mut Vec<u8>) {
        for block in plain.chunks(BLOCK_BYTES_MAX) {
            let header = out.len();
            out.extend_from_slice(&length_bytes(block.len()));
            out.extend_from_slice(&[0; 4]);
            let begin = out.len();
            let stored = if plain.len() < COMPRESS_BYTES_MIN {
                None
            } else {
                self.compress(compression, block, out, begin)
            };
            let stored = stored.filter(|&stored| stored < block.len()).unwrap_or_else(|| {
                out.truncate(begin);
                out.extend_from_slice(block);
                block.len()
            });
            out.truncate(begin + stored);
            out[header + 4..header + 8].copy_from_slice(&length_bytes(stored));
        }
    }

    /// Writes the compressed block after `begin`, and returns its length.
    fn compress(&mut self, compression: Compression, block: &[u8], out: &mut Vec<u8>, begin: usize) -> Option<usize> {
        match compression {
            Compression::Lz4 => {
                out.resize(begin + lz4_flex::block::get_maximum_output_size(block.len()), 0);
                lz4_flex::block::compress_into(block, &mut out[begin..]).ok()
            }
            Compression::Zstd => {
                let compressor = match &mut self.compressor {
                    Some(compressor) => compressor,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
                };
                out.resize(begin + zstd::zstd_safe::compress_bound(block.len()), 0);
                compressor.compress_to_buffer(block, &mut out[begin..]).ok()
            }
        }
    }

    /// Appends what the block at byte `start` holds; its end, or `None` when more bytes are needed.
    pub(crate) fn decode_block(
        &mut self,
        compression: Compression,
        bytes: &[u8],
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, BlockError> {
        let Some((header, rest)) = bytes
            .get(start..)
            .and_then(|bytes| bytes.split_first_chunk::<HEADER_BYTES>())
        else {
            return Ok(None);
        };
        let [a, b, c, d, e, f, g, h] = *header;
        let plain = u32::from_be_bytes([a, b, c, d]) as usize;
        let stored = u32::from_be_bytes([e, f, g, h]) as usize;
        if plain == 0 || plain > BLOCK_BYTES_MAX || stored > plain {
            return Err(BlockError::Lengths { plain, stored });
        }
        let Some(block) = rest.get(..stored) else {
            return Ok(None);
        };
        if stored == plain {
            out.extend_from_slice(block);
        } else {
            let begin = out.len();
            out.resize(begin + plain, 0);
            let written = match compression {
                Compression::Lz4 => lz4_flex::block::decompress_into(block, &mut out[begin..]).ok(),
                Compression::Zstd => self.decompress_zstd(block, &mut out[begin..]),
            };
            if written != Some(plain) {
                out.truncate(begin);
                return Err(BlockError::Damaged(compression));
            }
        }
        Ok(Some(start + HEADER_BYTES + stored))
    }

    fn decompress_zstd(&mut self, block: &[u8], out: &mut [u8]) -> Option<usize> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().ok()?),
        };
        decompressor.decompress_to_buffer(block, out).ok()
    }
}

fn length_bytes(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a block is at most 256 KiB").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(compression: Compression, plain: &[u8]) -> usize {
        let mut codec = Codec::default();
        let mut wire = Vec::new();
        codec.append_blocks(compression, plain, &mut wire);
        let (mut at, mut back) = (0, Vec::new());
        while at < wire.len() {
            at = codec
                .decode_block(compression, &wire, at, &mut back)
                .expect("they are blocks")
                .expect("they are whole");
        }
        assert!(back == plain, "{compression:?} gave other bytes back");
        wire.len()
    }

    #[test]
    fn what_compresses_gets_smaller_and_what_does_not_grows_by_the_header_only() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            let same = vec![7; 3 * BLOCK_BYTES_MAX + 5];
            assert!(round_trip(compression, &same) < same.len() / 20);
            let mut state = 1_u32;
            let noise: Vec<u8> = (0..10_000)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            assert_eq!(round_trip(compression, &noise), noise.len() + HEADER_BYTES);
            assert_eq!(
                round_trip(compression, &[1; 100]),
                100 + HEADER_BYTES,
                "short writes stay as they are"
            );
        }
    }

    #[test]
    fn a_block_cannot_become_more_than_it_says() {
        let mut wire = Vec::new();
        Codec::default().append_blocks(Compression::Zstd, &[0; 100_000], &mut wire);
        wire[0..4].copy_from_slice(&length_bytes(50_000));
        let mut out = Vec::new();
        let read = Codec::default().decode_block(Compression::Zstd, &wire, 0, &mut out);
        assert_eq!(read, Err(BlockError::Damaged(Compression::Zstd)));
        wire[0..4].copy_from_slice(&length_bytes(BLOCK_BYTES_MAX + 1));
        let read = Codec::default().decode_block(Compression::Zstd, &wire, 0, &mut out);
        assert!(matches!(read, Err(BlockError::Lengths { .. })));
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic_or_write_more_than_a_block(
            plain in 0..2000_u32,
            stored in 0..300_u32,
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut wire = plain.to_be_bytes().to_vec();
            wire.extend_from_slice(&stored.to_be_bytes());
            wire.extend_from_slice(&bytes);
            for compression in [Compression::Lz4, Compression::Zstd] {
                let mut out = Vec::new();
                let _ = Codec::default().decode_block(compression, &wire, 0, &mut out);
                prop_assert!(out.len() <= 2000);
            }
        }
    }
}
