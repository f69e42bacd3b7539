//! Compression of frame bodies, versions 3 and 4.
//!
//! ```text
//! lz4     uncompressed length, 4 bytes big-endian; one LZ4 block
//! snappy  one Snappy block, which begins with its uncompressed length
//! ```
//!
//! Version 5 compresses segments instead ([`crate::encode_segments`]), with LZ4 only and the length in the segment
//! header.

use crate::error::ProtocolError;

/// An algorithm that STARTUP can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZ4.
    Lz4,
    /// Snappy; not in version 5.
    Snappy,
}

impl Compression {
    /// The algorithm of this name, as STARTUP says it.
    pub fn from_name(name: &str) -> Option<Compression> {
        if name.eq_ignore_ascii_case("lz4") {
            Some(Compression::Lz4)
        } else if name.eq_ignore_ascii_case("snappy") {
            Some(Compression::Snappy)
        } else {
            None
        }
    }

    /// Its name in SUPPORTED and STARTUP.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Snappy => "snappy",
        }
    }
}

/// Bytes of the length before an LZ4 block.
const LZ4_LENGTH_BYTES: usize = 4;

/// Appends the compressed form of `body` to `out`.
pub fn compress_body(compression: Compression, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    match compression {
        Compression::Lz4 => {
            let length = u32::try_from(body.len()).expect("finish_response refuses bodies of 2 GiB");
            out.extend_from_slice(&length.to_be_bytes());
            append_lz4(body, out);
        }
        Compression::Snappy => {
            out.resize(start + snap::raw::max_compress_len(body.len()), 0);
            let written = snap::raw::Encoder::new()
                .compress(body, &mut out[start..])
                .expect("the buffer has the size that Snappy asked for, and the body is below 4 GiB");
            out.truncate(start + written);
        }
    }
}

/// How many bytes a compressed body has decompressed, as it says itself; an error if that is more than `bytes_max`.
pub fn decompressed_bytes(
    compression: Compression,
    compressed: &[u8],
    bytes_max: usize,
) -> Result<usize, ProtocolError> {
    let length = match compression {
        Compression::Lz4 => match compressed.first_chunk::<LZ4_LENGTH_BYTES>() {
            Some(length) => u32::from_be_bytes(*length) as usize,
            None => return Err(LZ4_WITHOUT_LENGTH),
        },
        Compression::Snappy => snap::raw::decompress_len(compressed).map_err(|_| ProtocolError::Corrupt {
            what: "not a Snappy block",
        })?,
    };
    check_length(length, bytes_max)?;
    Ok(length)
}

/// Replaces what is in `out` with the decompressed form of `compressed`, which may have up to `bytes_max` bytes.
pub fn decompress_body(
    compression: Compression,
    compressed: &[u8],
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), ProtocolError> {
    out.clear();
    match compression {
        Compression::Lz4 => {
            let Some((length, block)) = compressed.split_first_chunk::<LZ4_LENGTH_BYTES>() else {
                return Err(LZ4_WITHOUT_LENGTH);
            };
            let length = u32::from_be_bytes(*length) as usize;
            check_length(length, bytes_max)?;
            if length == 0 {
                // Clients differ in whether an empty body has an empty block.
                return Ok(());
            }
            append_decompressed_lz4(block, length, out)
        }
        Compression::Snappy => {
            let corrupt = |_| ProtocolError::Corrupt {
                what: "not a Snappy block",
            };
            let length = snap::raw::decompress_len(compressed).map_err(corrupt)?;
            check_length(length, bytes_max)?;
            out.resize(length, 0);
            snap::raw::Decoder::new().decompress(compressed, out).map_err(corrupt)?;
            Ok(())
        }
    }
}

const LZ4_WITHOUT_LENGTH: ProtocolError = ProtocolError::Corrupt {
    what: "an LZ4 body begins with its length in 4 bytes",
};

fn check_length(length: usize, bytes_max: usize) -> Result<(), ProtocolError> {
    if length > bytes_max {
        return Err(ProtocolError::FrameTooLarge {
            frame_bytes: length,
            frame_bytes_max: bytes_max,
        });
    }
    Ok(())
}

/// Appends `plain` as an LZ4 block without its length.
pub(crate) fn append_lz4(plain: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(plain.len()), 0);
    let written =
        lz4_flex::block::compress_into(plain, &mut out[start..]).expect("the buffer has the size that LZ4 asked for");
    out.truncate(start + written);
}

/// Appends the `length` bytes that an LZ4 block holds.
pub(crate) fn append_decompressed_lz4(block: &[u8], length: usize, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    // An LZ4 block cannot expand by more than 255: no need to reserve memory for a false length.
    if length / 255 > block.len() {
        return Err(ProtocolError::Corrupt {
            what: "an LZ4 block is too short for its length",
        });
    }
    let start = out.len();
    out.resize(start + length, 0);
    match lz4_flex::block::decompress_into(block, &mut out[start..]) {
        Ok(written) if written == length => Ok(()),
        Ok(_) => Err(ProtocolError::Corrupt {
            what: "an LZ4 block is shorter than its length",
        }),
        Err(_) => Err(ProtocolError::Corrupt {
            what: "not an LZ4 block of its length",
        }),
    }
}
