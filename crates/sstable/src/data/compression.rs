//! Compression of Data.db, and CompressionInfo.db, which says how and where.
//!
//! ```text
//! CompressionInfo.db: string16 class, u32 n, n x {string16 option, string16 value}, u32 chunk length,
//!                     u64 length of the data, u32 chunks, u64 offset in Data.db of each
//! Data.db:            chunks, each followed by the u32 CRC-32 of its compressed bytes
//! ```
//! A chunk of LZ4 is the u32 little-endian length of the data and an LZ4 block; Snappy a raw Snappy block; Deflate a
//! zlib stream; Zstd a frame.

use std::collections::BTreeMap;
use std::io::Write;

use stdx::bytes::{Reader, Truncated};

use crate::error::Damage;

const CLASS_PREFIX: &str = "org.apache.cassandra.io.compress.";
/// The longest chunk that is read: what Cassandra takes at most is far below.
const CHUNK_LEN_MAX: u32 = 64 << 20;
const CHUNK_LEN_DEFAULT: u32 = 16 << 10;
const ZSTD_LEVEL_DEFAULT: i32 = 3;

/// An algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compressor {
    /// Fast, the default.
    Lz4,
    /// Fast.
    Snappy,
    /// zlib: slow and dense.
    Deflate,
    /// Dense; level 1 to 22.
    Zstd(i32),
}

/// How Data.db is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compression {
    /// The algorithm; None writes the data as it is, with CRC.db beside it.
    pub compressor: Option<Compressor>,
    /// Bytes of data in a chunk, a power of two.
    pub chunk_len: u32,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            compressor: Some(Compressor::Lz4),
            chunk_len: CHUNK_LEN_DEFAULT,
        }
    }
}

impl Compression {
    /// No compression.
    #[must_use]
    pub fn none() -> Self {
        Self {
            compressor: None,
            chunk_len: 64 << 10,
        }
    }

    /// What the `compression` option of a table asks for.
    ///
    /// # Errors
    /// A sentence for the user, when it asks for what is not known.
    pub fn of_options(options: &BTreeMap<String, String>) -> Result<Self, String> {
        let class = options
            .get("class")
            .or_else(|| options.get("sstable_compression"))
            .map(String::as_str);
        let is_enabled = options.get("enabled").is_none_or(|e| !e.eq_ignore_ascii_case("false"));
        // Cassandra's NoopCompressor stores chunks as they are, each with its checksum: so does no compression.
        let is_none =
            |class: &str| class.is_empty() || class.strip_prefix(CLASS_PREFIX).unwrap_or(class) == "NoopCompressor";
        let Some(class) = class.filter(|class| is_enabled && !is_none(class)) else {
            return Ok(Self::none());
        };
        let level = match options.get("compression_level") {
            Some(text) => match text.parse() {
                Ok(level) if (-131_072..=22).contains(&level) => level,
                _ => return Err(format!("'{text}' is not a compression level")),
            },
            None => ZSTD_LEVEL_DEFAULT,
        };
        let Some(compressor) = Compressor::of_class(class, level) else {
            return Err(format!("there is no compressor '{class}'"));
        };
        let chunk_len = if let Some(text) = options
            .get("chunk_length_in_kb")
            .or_else(|| options.get("chunk_length_kb"))
        {
            match text.parse::<u32>() {
                Ok(kb) if kb.is_power_of_two() && kb <= CHUNK_LEN_MAX >> 10 => kb << 10,
                _ => return Err(format!("chunk length of '{text}' KiB is not a power of two")),
            }
        } else {
            CHUNK_LEN_DEFAULT
        };
        Ok(Self {
            compressor: Some(compressor),
            chunk_len,
        })
    }
}

impl Compressor {
    fn of_class(class: &str, level: i32) -> Option<Self> {
        Some(match class.strip_prefix(CLASS_PREFIX).unwrap_or(class) {
            "LZ4Compressor" => Self::Lz4,
            "SnappyCompressor" => Self::Snappy,
            "DeflateCompressor" => Self::Deflate,
            "ZstdCompressor" => Self::Zstd(level),
            _ => return None,
        })
    }

    /// The name without its package.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Lz4 => "LZ4Compressor",
            Self::Snappy => "SnappyCompressor",
            Self::Deflate => "DeflateCompressor",
            Self::Zstd(_) => "ZstdCompressor",
        }
    }

    /// Appends the compressed form of `data` to `out`.
    pub(crate) fn compress(self, data: &[u8], out: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), String> {
        let start = out.len();
        match self {
            Self::Lz4 => {
                out.extend_from_slice(&u32::try_from(data.len()).expect("a chunk is small").to_le_bytes());
                let bound = lz4_flex::block::get_maximum_output_size(data.len());
                out.resize(start + 4 + bound, 0);
                let n = lz4_flex::block::compress_into_with_table(data, &mut out[start + 4..], &mut scratch.lz4)
                    .map_err(|e| e.to_string())?;
                out.truncate(start + 4 + n);
            }
            Self::Snappy => {
                out.resize(start + snap::raw::max_compress_len(data.len()), 0);
                let n = scratch
                    .snappy
                    .compress(data, &mut out[start..])
                    .map_err(|e| e.to_string())?;
                out.truncate(start + n);
            }
            Self::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(&mut *out, flate2::Compression::default());
                encoder
                    .write_all(data)
                    .and_then(|()| encoder.finish().map(|_| ()))
                    .map_err(|e| e.to_string())?;
            }
            Self::Zstd(level) => {
                out.resize(start + zstd::zstd_safe::compress_bound(data.len()), 0);
                let n = scratch
                    .zstd(level)?
                    .compress_to_buffer(data, &mut out[start..])
                    .map_err(|e| e.to_string())?;
                out.truncate(start + n);
            }
        }
        Ok(())
    }

    /// Decompresses `compressed`, which must give `len` bytes, and appends them to `out`.
    pub(crate) fn decompress(self, compressed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let start = out.len();
        out.resize(start + len, 0);
        let room = &mut out[start..];
        let n = match self {
            Self::Lz4 => {
                let Some((prefix, block)) = compressed.split_first_chunk::<4>() else {
                    return Err("a chunk of LZ4 of at least 4 bytes".to_owned());
                };
                let announced = u32::from_le_bytes(*prefix) as usize;
                if announced != len {
                    return Err(format!("an LZ4 chunk of {len} bytes, not {announced}"));
                }
                lz4_flex::block::decompress_into(block, room).map_err(|e| format!("an LZ4 block ({e})"))?
            }
            Self::Snappy => snap::raw::Decoder::new()
                .decompress(compressed, room)
                .map_err(|e| format!("a Snappy block of {len} bytes ({e})"))?,
            Self::Deflate => {
                let mut inflater = flate2::Decompress::new(true);
                let status = inflater
                    .decompress(compressed, room, flate2::FlushDecompress::Finish)
                    .map_err(|e| format!("a zlib stream ({e})"))?;
                if status != flate2::Status::StreamEnd {
                    return Err(format!("a zlib stream of {len} bytes"));
                }
                usize::try_from(inflater.total_out()).unwrap_or(usize::MAX)
            }
            Self::Zstd(_) => zstd::bulk::decompress_to_buffer(compressed, room)
                .map_err(|e| format!("a Zstd frame of {len} bytes ({e})"))?,
        };
        if n != len {
            return Err(format!("{len} bytes in the chunk, not {n}"));
        }
        Ok(())
    }
}

/// Tables of the compressors, reused from chunk to chunk.
pub(crate) struct Scratch {
    lz4: lz4_flex::block::CompressTable,
    snappy: snap::raw::Encoder,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            lz4: lz4_flex::block::CompressTable::default(),
            snappy: snap::raw::Encoder::new(),
            zstd: None,
        }
    }

    fn zstd(&mut self, level: i32) -> Result<&mut zstd::bulk::Compressor<'static>, String> {
        if self.zstd.is_none() {
            self.zstd = Some(zstd::bulk::Compressor::new(level).map_err(|e| e.to_string())?);
        }
        Ok(self.zstd.as_mut().expect("just set"))
    }
}

/// CompressionInfo.db, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CompressionInfo {
    pub(crate) compressor: Compressor,
    pub(crate) chunk_len: u32,
    pub(crate) data_len: u64,
    /// Where each chunk starts in Data.db.
    pub(crate) offsets: Vec<u64>,
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).expect("short names").to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn get_string<'a>(r: &mut Reader<'a>) -> Result<&'a str, Damage> {
    let at = r.at();
    let len = usize::from(r.get_u16()?);
    std::str::from_utf8(r.get_slice(len)?).map_err(|_| Damage::new(at, "text in UTF-8"))
}

impl CompressionInfo {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.offsets.len() * 8);
        put_string(&mut out, self.compressor.class());
        if let Compressor::Zstd(level) = self.compressor {
            out.extend_from_slice(&1u32.to_be_bytes());
            put_string(&mut out, "compression_level");
            put_string(&mut out, &level.to_string());
        } else {
            out.extend_from_slice(&0u32.to_be_bytes());
        }
        out.extend_from_slice(&self.chunk_len.to_be_bytes());
        out.extend_from_slice(&self.data_len.to_be_bytes());
        out.extend_from_slice(
            &u32::try_from(self.offsets.len())
                .expect("fewer than 2^32 chunks")
                .to_be_bytes(),
        );
        for offset in &self.offsets {
            out.extend_from_slice(&offset.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut r = Reader::new(bytes);
        let class = get_string(&mut r)?;
        let mut level = ZSTD_LEVEL_DEFAULT;
        for _ in 0..r.get_u32()? {
            let name = get_string(&mut r)?;
            let value = get_string(&mut r)?;
            if name == "compression_level" {
                level = value.parse().unwrap_or(level);
            }
        }
        let Some(compressor) = Compressor::of_class(class, level) else {
            return Err(Damage::new(0, format!("a known compressor, not '{class}'")));
        };
        let at = r.at();
        let chunk_len = r.get_u32()?;
        if chunk_len == 0 || chunk_len > CHUNK_LEN_MAX {
            return Err(Damage::new(at, "a chunk length of at most 64 MiB"));
        }
        let data_len = r.get_u64()?;
        let at = r.at();
        let chunks = r.get_u32()?;
        let wanted = data_len.div_ceil(u64::from(chunk_len));
        // Cassandra may close a file with a chunk of no data.
        if u64::from(chunks) != wanted && u64::from(chunks) != wanted + 1 {
            return Err(Damage::new(at, format!("{wanted} chunks for {data_len} bytes of data")));
        }
        if r.rest().len() != (chunks as usize).saturating_mul(8) {
            return Err(Truncated {
                at: r.at(),
                wanted: (chunks as usize).saturating_mul(8),
            }
            .into());
        }
        let mut offsets = Vec::with_capacity(chunks as usize);
        for _ in 0..chunks {
            let at = r.at();
            let offset = r.get_u64()?;
            let is_behind = |last: &u64| offset.checked_sub(*last).is_some_and(|len| len >= 4);
            if !offsets.last().map_or(offset == 0, is_behind) {
                return Err(Damage::new(at, "a chunk after the previous one"));
            }
            offsets.push(offset);
        }
        Ok(Self {
            compressor,
            chunk_len,
            data_len,
            offsets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_at_the_end_of_all_numbers_are_damage_and_no_overflow() {
        let mut info = CompressionInfo {
            compressor: Compressor::Lz4,
            chunk_len: 4096,
            data_len: 8192,
            offsets: vec![0, 100],
        };
        assert!(CompressionInfo::decode(&info.encode()).is_ok());
        for offsets in [vec![0, 3], vec![1, 100], vec![0, u64::MAX - 1, 200]] {
            info.data_len = 4096 * offsets.len() as u64;
            info.offsets = offsets;
            assert!(CompressionInfo::decode(&info.encode()).is_err(), "{:?}", info.offsets);
        }
    }
}
