//! Data.db (and Index.db) as a string of bytes that is checked, and decompressed, chunk by chunk.

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::data::compression::CompressionInfo;
use crate::error::Error;
use crate::io::InputFile;
use crate::read::cache::ChunkCache;

/// How a file is cut and checked.
pub(crate) enum Cut {
    /// Compressed chunks, each followed by its checksum.
    Compressed(CompressionInfo),
    /// Plain bytes; a checksum for every so many of them.
    Checked { chunk_len: u32, checksums: Vec<u32> },
    /// Plain bytes that nothing protects.
    Plain { chunk_len: u32 },
    /// Pages, of which each ends with its checksum.
    Sealed { chunk_len: u32 },
}

/// A file read by chunks.
pub(crate) struct Chunks {
    file: InputFile,
    cut: Cut,
    len: u64,
    /// Names the file in caches; no two files of a process share one.
    id: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Chunks {
    /// Fails when the file cannot have the chunks that `cut` announces.
    pub(crate) fn new(file: InputFile, cut: Cut) -> Result<Self, Error> {
        let len = match &cut {
            Cut::Compressed(info) => {
                if let Some(last) = info.offsets.last()
                    && last + 4 > file.len()
                {
                    return Err(Error::damaged(file.path(), file.len(), format!("a chunk at {last}")));
                }
                info.data_len
            }
            Cut::Checked { chunk_len, checksums } => {
                if file.len().div_ceil(u64::from(*chunk_len)) != checksums.len() as u64 {
                    let whole = checksums.len() as u64 * u64::from(*chunk_len);
                    let expected = format!("a file of at most {whole} bytes, by the count of its checksums");
                    return Err(Error::damaged(file.path(), file.len(), expected));
                }
                file.len()
            }
            Cut::Plain { .. } | Cut::Sealed { .. } => file.len(),
        };
        Ok(Self {
            file,
            cut,
            len,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Length of the data: after decompression.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Length of the file.
    pub(crate) fn file_len(&self) -> u64 {
        self.file.len()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn memory(&self) -> usize {
        match &self.cut {
            Cut::Compressed(info) => info.offsets.capacity() * 8,
            Cut::Checked { checksums, .. } => checksums.capacity() * 4,
            Cut::Plain { .. } | Cut::Sealed { .. } => 0,
        }
    }

    pub(crate) fn compression(&self) -> Option<&CompressionInfo> {
        match &self.cut {
            Cut::Compressed(info) => Some(info),
            _ => None,
        }
    }

    pub(crate) fn chunk_len(&self) -> u64 {
        u64::from(match &self.cut {
            Cut::Compressed(info) => info.chunk_len,
            Cut::Checked { chunk_len, .. } | Cut::Plain { chunk_len } | Cut::Sealed { chunk_len } => *chunk_len,
        })
    }

    pub(crate) fn chunk_count(&self) -> u64 {
        self.len.div_ceil(self.chunk_len())
    }

    /// Where chunks `first..last` are in the file.
    fn place(&self, first: u64, last: u64) -> (u64, u64) {
        if let Cut::Compressed(info) = &self.cut {
            let start = info.offsets[first as usize];
            let end = info.offsets.get(last as usize).copied().unwrap_or(self.file.len());
            (start, end.min(self.file.len()))
        } else {
            (first * self.chunk_len(), (last * self.chunk_len()).min(self.file.len()))
        }
    }

    /// Checks one chunk and appends its data to `out`.
    fn unpack(&self, chunk: u64, raw: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let start = chunk * self.chunk_len();
        let len = usize::try_from((self.len - start).min(self.chunk_len())).expect("a chunk is small");
        match &self.cut {
            Cut::Compressed(info) => {
                let at = info.offsets[chunk as usize];
                let Some((compressed, crc)) = raw.split_last_chunk::<4>() else {
                    return Err(Error::damaged(self.path(), at, "a chunk and its checksum"));
                };
                let (wanted, found) = (u32::from_be_bytes(*crc), crc32fast::hash(compressed));
                if wanted != found {
                    return Err(self.wrong_checksum(at, wanted, found));
                }
                info.compressor
                    .decompress(compressed, len, out)
                    .map_err(|expected| Error::damaged(self.path(), at, format!("{expected} (offset in the file)")))
            }
            Cut::Checked { checksums, .. } => {
                let (wanted, found) = (checksums[chunk as usize], crc32fast::hash(raw));
                if wanted != found {
                    return Err(self.wrong_checksum(start, wanted, found));
                }
                out.extend_from_slice(raw);
                Ok(())
            }
            Cut::Plain { .. } => {
                out.extend_from_slice(raw);
                Ok(())
            }
            Cut::Sealed { .. } => {
                let Some(payload) = postings::check_page(raw) else {
                    return Err(Error::damaged(self.path(), start, "a page with its checksum"));
                };
                out.extend_from_slice(payload);
                Ok(())
            }
        }
    }

    #[cold]
    fn wrong_checksum(&self, at: u64, wanted: u32, found: u32) -> Error {
        let expected = format!("a chunk with checksum {wanted:08x}, not {found:08x} (offset in the file)");
        Error::damaged(self.path(), at, expected)
    }

    fn check(&self, chunk: u64) -> Result<(), Error> {
        if chunk < self.chunk_count() {
            return Ok(());
        }
        Err(Error::damaged(self.path(), self.len, "more data"))
    }

    /// Reads chunks from `first` on, as many as fit `bytes` of data (at least one), and appends their data to `out`;
    /// returns how many. Blocks.
    pub(crate) fn read_blocking(
        &self,
        first: u64,
        bytes: u64,
        raw: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        let last = self.reach(first, bytes)?;
        let (start, end) = self.place(first, last);
        raw.clear();
        self.file.read_blocking(
            start,
            usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX),
            raw,
        )?;
        self.unpack_all(first, last, start, raw, out)
    }

    /// As [`Self::read_blocking`], on a shard's thread, past any cache.
    pub(crate) async fn read(&self, first: u64, bytes: u64, out: &mut Vec<u8>) -> Result<u64, Error> {
        let last = self.reach(first, bytes)?;
        let (start, end) = self.place(first, last);
        let raw = self
            .file
            .read(start, usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX))
            .await?;
        self.unpack_all(first, last, start, &raw, out)
    }

    /// The end of the chunks that a read of `bytes` takes: counted in data, as a well-compressed file has hundreds of
    /// times its length in memory.
    fn reach(&self, first: u64, bytes: u64) -> Result<u64, Error> {
        self.check(first)?;
        Ok((first + (bytes / self.chunk_len()).max(1)).min(self.chunk_count()))
    }

    fn unpack_all(&self, first: u64, last: u64, start: u64, raw: &[u8], out: &mut Vec<u8>) -> Result<u64, Error> {
        for chunk in first..last {
            let (from, to) = self.place(chunk, chunk + 1);
            let piece = raw
                .get((from - start) as usize..(to.max(from) - start) as usize)
                .ok_or_else(|| Error::damaged(self.path(), from, "a whole chunk"))?;
            self.unpack(chunk, piece, out)?;
        }
        Ok(last - first)
    }

    /// One chunk's data, from the cache when it is there.
    pub(crate) async fn chunk(&self, chunk: u64, cache: Option<&ChunkCache>) -> Result<Rc<Vec<u8>>, Error> {
        if let Some(hit) = cache.and_then(|c| c.get(self.id, chunk)) {
            return Ok(hit);
        }
        let mut out = Vec::new();
        self.read(chunk, 0, &mut out).await?;
        let out = Rc::new(out);
        if let Some(cache) = cache {
            cache.insert(self.id, chunk, &out);
        }
        Ok(out)
    }

    /// Checks all of the file without keeping it. Blocks.
    pub(crate) fn verify_blocking(&self) -> Result<(), Error> {
        let (mut raw, mut out) = (Vec::new(), Vec::new());
        let mut chunk = 0;
        while chunk < self.chunk_count() {
            out.clear();
            chunk += self.read_blocking(chunk, 1 << 20, &mut raw, &mut out)?;
        }
        Ok(())
    }
}
