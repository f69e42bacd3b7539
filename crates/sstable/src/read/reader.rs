//! An open sstable.
//!
//! Summary, filter, statistics and the places of chunks are in memory; Index.db and Data.db are read as needed. A
//! reader is immutable and shared by all shards and jobs; caches are the caller's.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use mutation::{Bound, BoundKind, ClusteringSlice};
use runtime::Instant;
use schema::{Table, push_component};
use stdx::bytes::Reader as Bytes;
use stdx::probe;
use types::Token;
use types::token::{KeyHash, token_of};

use crate::big::index::{Entry, IndexBytes, skip_others};
use crate::big::summary::Summary;
use crate::data::chunks::{Chunks, Cut};
use crate::data::compression::CompressionInfo;
use crate::data::encode::Format;
use crate::data::window::{ReadLimits, Shape};
use crate::directory::component::{Component, Descriptor, Version, list};
use crate::directory::generation::Generation;
use crate::directory::quarantine::read_twice;
use crate::error::{Damage, Error};
use crate::io::{self, InputFile};
use crate::read::cache::ChunkCache;
use crate::read::checksums::Checksums;
use crate::read::cursor::PartitionCursor;
use crate::read::filter::Filter;
use crate::read::scan::{BlockingScan, ScanCursor};
use crate::secondary::IndexFiles;
use crate::statistics::Statistics;
use crate::write::large::LargeData;
use crate::write::writer::INDEX_PAGE;

/// What is known of an sstable without reading its data.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Where it is and how its files are called.
    pub descriptor: Descriptor,
    /// Of its statistics.
    pub statistics: Arc<Statistics>,
    /// Serialised partition keys, in (token, key) order.
    pub first_key: Box<[u8]>,
    /// The last of them.
    pub last_key: Box<[u8]>,
    /// The first key's token.
    pub first_token: Token,
    /// The last key's token.
    pub last_token: Token,
    /// Partitions; an estimate for files that were not written in this process.
    pub partitions: u64,
    /// Bytes of data before compression.
    pub data_len: u64,
    /// Bytes of all components.
    pub disk_len: u64,
    /// What is large in it.
    pub large: LargeData,
}

impl Meta {
    pub(crate) fn new(
        descriptor: &Descriptor,
        statistics: Statistics,
        summary: &Summary,
        partitions: u64,
        data_len: u64,
        (disk_len, large): (u64, LargeData),
    ) -> Self {
        Self {
            descriptor: descriptor.clone(),
            statistics: Arc::new(statistics),
            first_token: token_of(&summary.first_key),
            last_token: token_of(&summary.last_key),
            first_key: summary.first_key.clone(),
            last_key: summary.last_key.clone(),
            partitions,
            data_len,
            disk_len,
            large,
        }
    }

    /// The bounds between which all rows and range tombstones are; None where they are not certain.
    #[must_use]
    pub fn clustering_bounds(&self) -> (Option<Bound>, Option<Bound>) {
        let bound = |components: &[Vec<u8>], kind: BoundKind| {
            let is_certain = !components.is_empty() && self.descriptor.version >= Version::Md;
            is_certain.then(|| {
                let mut prefix = Vec::new();
                components.iter().for_each(|c| push_component(&mut prefix, c));
                Bound {
                    prefix: prefix.into(),
                    kind,
                }
            })
        };
        (
            bound(&self.statistics.min_clustering, BoundKind::Before),
            bound(&self.statistics.max_clustering, BoundKind::After),
        )
    }
}

/// An open sstable.
pub struct Reader {
    meta: Meta,
    pub(crate) shape: Shape,
    pub(crate) summary: Summary,
    filter: Option<Filter>,
    pub(crate) data: Chunks,
    pub(crate) index: Chunks,
    components: Vec<Component>,
    /// The files of the table's indexes.
    pub(crate) indexes: IndexFiles,
    is_suspect: AtomicBool,
    /// The mark of a repair, milliseconds, where it is valid; else 0.
    repaired_at: AtomicI64,
    opened: Instant,
    /// How often the index was searched for a partition, and how often that was not there.
    lookups: AtomicU64,
    misses: AtomicU64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("descriptor", &self.meta.descriptor)
            .finish_non_exhaustive()
    }
}

/// The small files of an sstable, as they were read.
struct Small<'d> {
    descriptor: &'d Descriptor,
    listed: Vec<Component>,
    checksums: Option<Checksums>,
}

impl<'d> Small<'d> {
    fn open(descriptor: &'d Descriptor) -> Result<Self, Error> {
        let path = descriptor.path(Component::Toc);
        let toc = io::read_all(&path)?;
        let text = std::str::from_utf8(&toc).map_err(|e| Error::damaged(&path, e.valid_up_to() as u64, "text"))?;
        let mut listed: Vec<Component> = Vec::new();
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let name = line.trim();
            // Unknown components are someone else's business; what is no file name is damage.
            if name.is_empty() || name.bytes().any(|b| !b.is_ascii_graphic() || b == b'/') {
                return Err(Error::damaged(&path, offset, "the name of a component"));
            }
            listed.extend(Component::from_suffix(name));
            offset += line.len() as u64;
        }
        for needed in [Component::Data, Component::Index, Component::Statistics] {
            if !listed.contains(&needed) {
                return Err(Error::damaged(
                    &path,
                    offset,
                    format!("a line with {}", needed.suffix()),
                ));
            }
        }
        let mut small = Self {
            descriptor,
            listed,
            checksums: None,
        };
        if let Some((path, bytes)) = small.read(Component::Checksums)? {
            small.checksums = Some(Checksums::decode(&bytes).map_err(|d| d.in_file(&path, 0))?);
        } else if runtime::fs::exists(descriptor.path(Component::Checksums)) {
            return Err(Error::damaged(
                &path,
                offset,
                "a line with Checksums.db, which is there",
            ));
        }
        for (component, ..) in small.checksums.iter().flat_map(|c| &c.components) {
            if !small.listed.contains(component) {
                return Err(Error::damaged(
                    &path,
                    offset,
                    format!("a line with {}", component.suffix()),
                ));
            }
        }
        Ok(small)
    }

    /// A listed component's bytes, checked if there is a checksum.
    fn read(&self, component: Component) -> Result<Option<(PathBuf, Vec<u8>)>, Error> {
        if !self.listed.contains(&component) {
            return Ok(None);
        }
        let path = self.descriptor.path(component);
        let bytes = io::read_all(&path)?;
        if let Some(checksums) = &self.checksums {
            checksums.check(component, &path, &bytes)?;
        }
        Ok(Some((path, bytes)))
    }

    fn decode<T>(
        &self,
        component: Component,
        decode: impl FnOnce(&[u8]) -> Result<T, Damage>,
    ) -> Result<Option<T>, Error> {
        let Some((path, bytes)) = self.read(component)? else {
            return Ok(None);
        };
        decode(&bytes).map(Some).map_err(|d| d.in_file(&path, 0))
    }
}

pub(crate) fn decode_crc(bytes: &[u8]) -> Result<Cut, Damage> {
    let mut r = Bytes::new(bytes);
    let chunk_len = r.get_u32()?;
    if chunk_len == 0 || chunk_len > 1 << 30 {
        return Err(Damage::new(0, "a chunk length of at most 1 GiB"));
    }
    let (checksums, rest) = r.rest().as_chunks::<4>();
    if !rest.is_empty() {
        return Err(Damage::new(bytes.len(), "whole checksums of four bytes"));
    }
    Ok(Cut::Checked {
        chunk_len,
        checksums: checksums.iter().map(|c| u32::from_be_bytes(*c)).collect(),
    })
}

impl Reader {
    /// Opens generation `generation` of a table's directory. Blocks.
    ///
    /// # Errors
    /// When there is none, it is damaged, or it is not of the table.
    pub fn open(dir: &Path, generation: impl Into<Generation>, table: &Table) -> Result<Arc<Self>, Error> {
        let generation = generation.into();
        for version in [Version::Me, Version::Md, Version::Mc] {
            let descriptor = Descriptor {
                dir: dir.to_owned(),
                version,
                generation: generation.clone(),
            };
            if runtime::fs::exists(descriptor.path(Component::Toc)) {
                return Self::open_descriptor(&descriptor, table);
            }
        }
        Err(Error::unsupported(
            dir,
            format!("there is no sealed sstable of generation {generation} in a version that can be read"),
        ))
    }

    /// Opens every sealed sstable of a table's directory. Blocks.
    ///
    /// # Errors
    /// As [`Self::open`], of the first that fails.
    pub fn open_all(dir: &Path, table: &Table) -> Result<Vec<Arc<Self>>, Error> {
        list(dir)?.iter().map(|d| Self::open_descriptor(d, table)).collect()
    }

    /// Opens an sstable. Blocks.
    ///
    /// # Errors
    /// When it is damaged, twice, or not of the table.
    pub fn open_descriptor(descriptor: &Descriptor, table: &Table) -> Result<Arc<Self>, Error> {
        read_twice(|| {
            let small = Small::open(descriptor)?;
            let statistics = Self::statistics_of(&small)?;
            Self::open_with(&small, statistics, table)
        })
    }

    /// Opens an sstable with a table made from its own header. Blocks.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn open_self_described(
        descriptor: &Descriptor,
        table: impl FnOnce(&Statistics) -> Table,
    ) -> Result<(Arc<Self>, Table), Error> {
        let small = Small::open(descriptor)?;
        let statistics = Self::statistics_of(&small)?;
        let table = table(&statistics);
        Ok((Self::open_with(&small, statistics, &table)?, table))
    }

    /// The tokens of the first and the last partition of a damaged sstable, if a checksum vouches for them. Blocks.
    pub(crate) fn certain_tokens(descriptor: &Descriptor) -> Option<(Token, Token)> {
        let small = Small::open(descriptor).ok()?;
        let own = small.checksums.as_ref()?;
        let is_checked = |(component, ..): &(Component, u64, u32)| *component == Component::Summary;
        own.components.iter().find(|c| is_checked(c))?;
        let summary = small.decode(Component::Summary, Summary::decode).ok()??;
        Some((token_of(&summary.first_key), token_of(&summary.last_key)))
    }

    /// Marks that damage was found in a file that is open: no compaction takes it any more. Whether this is the first
    /// time.
    pub fn suspect(&self) -> bool {
        !self.is_suspect.swap(true, Ordering::Relaxed)
    }

    /// The mark of the repair that made its replicas equal, milliseconds; 0: it is unrepaired. The mark in the file
    /// counts only where [`Self::set_repaired_at`] says so: see docs/dev/incremental-repair.md.
    #[must_use]
    pub fn repaired_at(&self) -> i64 {
        self.repaired_at.load(Ordering::Relaxed)
    }

    /// Says which mark counts from here on.
    pub fn set_repaired_at(&self, repaired_at: i64) {
        self.repaired_at.store(repaired_at, Ordering::Relaxed);
    }

    /// Marks that all of it was read again without damage.
    pub fn trust(&self) {
        self.is_suspect.store(false, Ordering::Relaxed);
    }

    /// For how long it has been open: it is at least as old. Seconds.
    #[must_use]
    pub fn open_seconds(&self) -> u64 {
        self.opened.elapsed().as_secs()
    }

    /// Whether damage was found in it while it was open.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    fn statistics_of(small: &Small<'_>) -> Result<Statistics, Error> {
        let version = small.descriptor.version;
        let statistics = small.decode(Component::Statistics, |bytes| Statistics::decode(bytes, version))?;
        Ok(statistics.expect("the TOC lists statistics"))
    }

    fn open_with(small: &Small<'_>, statistics: Statistics, table: &Table) -> Result<Arc<Self>, Error> {
        let descriptor = small.descriptor;
        let format = Format::of(&statistics.header, table)
            .map_err(|what| Error::schema(&descriptor.path(Component::Statistics), what))?;
        let data = Self::data_of(small)?;
        let index_file = InputFile::open(descriptor.path(Component::Index))?;
        let chunk_len = u32::try_from(INDEX_PAGE).expect("a small page");
        let cut = match &small.checksums {
            Some(own) if own.index_len == index_file.len() => Cut::Checked {
                chunk_len,
                checksums: own.index.clone(),
            },
            Some(own) => {
                let expected = format!("a file of {} bytes", own.index_len);
                return Err(Error::damaged(index_file.path(), index_file.len(), expected));
            }
            None => Cut::Plain { chunk_len },
        };
        let index = Chunks::new(index_file, cut)?;
        let summary = match small.decode(Component::Summary, Summary::decode)? {
            Some(summary) => summary,
            // Others may leave it out, or write it late; it can be made from the index.
            None => {
                crate::read::scan::summarize(&index, u32::try_from(table.options.min_index_interval).unwrap_or(128))?
            }
        };
        let filter = small.decode(Component::Filter, Filter::decode)?;
        Self::check_consistency(descriptor, &summary, &index, &data)?;
        let disk_len = data.file_len() + index.file_len();
        let samples = summary.samples.len() as u64;
        let counted = statistics.partition_size.count();
        let partitions = if counted > 0 {
            counted
        } else {
            samples * u64::from(summary.interval)
        };
        let large = small
            .checksums
            .as_ref()
            .map(|own| own.large.clone())
            .unwrap_or_default();
        let meta = Meta::new(
            descriptor,
            statistics,
            &summary,
            partitions,
            data.len(),
            (disk_len, large),
        );
        let shape = Shape {
            format: Arc::new(format),
            layout: Arc::clone(&table.layout),
            order: Arc::clone(&table.clustering_order),
        };
        Ok(Arc::new(Self {
            meta,
            shape,
            summary,
            filter,
            data,
            index,
            components: small.listed.clone(),
            indexes: IndexFiles::open(descriptor, table),
            is_suspect: AtomicBool::new(false),
            repaired_at: AtomicI64::new(0),
            opened: runtime::now(),
            lookups: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }))
    }

    fn data_of(small: &Small<'_>) -> Result<Chunks, Error> {
        let file = InputFile::open(small.descriptor.path(Component::Data))?;
        let cut = if let Some(info) = small.decode(Component::CompressionInfo, CompressionInfo::decode)? {
            Cut::Compressed(info)
        } else if let Some(cut) = small.decode(Component::Crc, decode_crc)? {
            cut
        } else {
            Cut::Plain { chunk_len: 64 << 10 }
        };
        Chunks::new(file, cut)
    }

    fn check_consistency(
        descriptor: &Descriptor,
        summary: &Summary,
        index: &Chunks,
        data: &Chunks,
    ) -> Result<(), Error> {
        let path = descriptor.path(Component::Summary);
        if let Some(last) = summary.samples.last()
            && last.position >= index.len()
        {
            return Err(Error::damaged(
                &path,
                0,
                format!("positions inside the {} bytes of Index.db", index.len()),
            ));
        }
        if summary.samples.is_empty() || summary.samples[0].position != 0 {
            return Err(Error::damaged(
                &path,
                0,
                "the first entry of Index.db among the samples",
            ));
        }
        let (first, last) = (&summary.first_key, &summary.last_key);
        if (token_of(first), first) > (token_of(last), last) {
            return Err(Error::damaged(&path, 0, "a last key after the first"));
        }
        if data.len() == 0 {
            return Err(Error::damaged(data.path(), 0, "partitions"));
        }
        Ok(())
    }

    /// Reads all of Index.db against its checksums, where there are any. Blocks.
    ///
    /// # Errors
    /// When a page is damaged, or cannot be read.
    pub fn verify_index_blocking(&self) -> Result<(), Error> {
        self.index.verify_blocking()
    }

    /// What is known without reading data.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Where it is and how its files are called.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.meta.descriptor
    }

    /// The components that its TOC lists and ceto knows.
    #[must_use]
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The serialised key of the first partition.
    #[must_use]
    pub fn first_key(&self) -> &[u8] {
        &self.meta.first_key
    }

    /// The serialised key of the last partition.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.meta.last_key
    }

    /// Tokens of the first and the last partition.
    #[must_use]
    pub fn tokens(&self) -> (Token, Token) {
        (self.meta.first_token, self.meta.last_token)
    }

    /// Bytes it holds in memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::memory)
            + self.summary.memory()
            + self.data.memory()
            + self.index.memory()
            + size_of::<Self>()
    }

    /// Bytes of its bloom filter.
    #[must_use]
    pub fn filter_memory(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::memory)
    }

    /// How often the index was searched for a partition that the filter let pass, and how often that was not there.
    #[must_use]
    pub fn lookups_and_misses(&self) -> (u64, u64) {
        (
            self.lookups.load(Ordering::Relaxed),
            self.misses.load(Ordering::Relaxed),
        )
    }

    /// False: no partition whose key has this hash is in the file.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        self.covers(hash.token()) && self.filter.as_ref().is_none_or(|f| f.may_contain(hash.halves()))
    }

    #[inline]
    fn covers(&self, token: Token) -> bool {
        token >= self.meta.first_token && token <= self.meta.last_token
    }

    /// Whether a partition of it may take more bytes than this, before compression.
    #[must_use]
    pub fn may_have_partition_above(&self, bytes: u64) -> bool {
        let known = self.meta.statistics.partition_size.buckets();
        let is_above = |(end, count): (Option<i64>, i64)| {
            count > 0 && end.is_none_or(|end| u64::try_from(end).unwrap_or(u64::MAX) > bytes)
        };
        self.meta.data_len > bytes && known.into_iter().any(is_above)
    }

    /// Forgets the cached chunks of this file, when it is deleted or moves away.
    pub fn evict_from(&self, cache: &ChunkCache) {
        cache.forget(self.data.id());
        cache.forget(self.index.id());
        self.indexes.each(|_, file| cache.forget(file.chunks.id()));
    }

    /// Prepares to read `slices` (sorted and disjoint) of a partition; None when it is not in the file.
    ///
    /// # Errors
    /// When the index cannot be read or is damaged.
    pub async fn read_partition(
        self: &Arc<Self>,
        cache: &Rc<ChunkCache>,
        token: Token,
        key: &[u8],
        slices: &[ClusteringSlice],
        reversed: bool,
        limits: ReadLimits,
    ) -> Result<Option<PartitionCursor>, Error> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let Some((position, promoted)) = self.find(cache, token, key).await? else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        PartitionCursor::new(
            Arc::clone(self),
            Rc::clone(cache),
            (token, key),
            (position, promoted),
            slices,
            reversed,
            limits,
        )
        .map(Some)
    }

    /// Prepares to read all partitions from (`from`, `from_key`) on whose token is at most `to`.
    ///
    /// # Errors
    /// When the index cannot be read or is damaged.
    pub async fn scan(
        self: &Arc<Self>,
        cache: &Rc<ChunkCache>,
        from: Token,
        from_key: &[u8],
        to: Token,
        limits: ReadLimits,
    ) -> Result<ScanCursor, Error> {
        let start = self.first_at(cache, from, from_key).await?;
        Ok(ScanCursor::new(Arc::clone(self), start, to, limits))
    }

    /// Reads all partitions whose token is greater than `after` and at most `to`; `Token::MIN` and `Token::MAX` for
    /// all. Blocks.
    ///
    /// # Errors
    /// When the index cannot be read or is damaged.
    pub fn scan_blocking(self: &Arc<Self>, after: Token, to: Token, limits: ReadLimits) -> Result<BlockingScan, Error> {
        let start = if after < self.meta.first_token {
            Some(0)
        } else {
            self.first_behind_blocking(after)?
        };
        Ok(BlockingScan::new(Arc::clone(self), start, to, limits))
    }

    /// Whether it has a partition whose token is greater than `after` and at most `to`, by the index alone. Blocks.
    ///
    /// # Errors
    /// When the index cannot be read or is damaged.
    pub fn has_tokens_blocking(&self, after: Token, to: Token) -> Result<bool, Error> {
        let (first, last) = self.tokens();
        if to < first || after >= last {
            return Ok(false);
        }
        let begin = if after < first {
            Some(0)
        } else {
            self.first_behind_blocking(after)?
        };
        Ok(begin != self.first_behind_blocking(to)?)
    }

    /// How much of it has tokens greater than `after` and at most `to`, from 0 to 1: by the summary, up to two of its
    /// intervals more than there is.
    #[must_use]
    pub fn share_at_most(&self, after: Token, to: Token) -> f64 {
        let (first, last) = self.tokens();
        if to < first || after >= last {
            return 0.0;
        }
        let samples = self.summary.samples.len().max(1);
        let pages = self.summary.page_behind(to) + 1 - self.summary.page_behind(after);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let share = pages.min(samples) as f64 / samples as f64;
        share
    }

    /// The bytes of Index.db between two samples.
    fn page(&self, page: usize) -> (u64, u64) {
        let samples = &self.summary.samples;
        let start = samples.get(page).map_or(0, |s| s.position);
        let end = samples.get(page + 1).map_or(self.index.len(), |s| s.position);
        (start, end)
    }

    async fn index_bytes(&self, start: u64, end: u64, cache: &ChunkCache) -> Result<IndexBytes, Error> {
        let chunk_len = self.index.chunk_len();
        let (first, last) = (start / chunk_len, end.saturating_sub(1) / chunk_len);
        let mut at = usize::try_from(start - first * chunk_len).expect("inside a chunk");
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        let bytes = if first == last {
            self.index.chunk(first, Some(cache)).await?
        } else {
            // No more than what is asked for: an entry over the end of a chunk is short, and chunks are not.
            let mut bytes = Vec::new();
            for chunk in first..=last {
                let chunk = self.index.chunk(chunk, Some(cache)).await?;
                let part = chunk.get(at..).unwrap_or_default();
                bytes.extend_from_slice(&part[..part.len().min(len - bytes.len())]);
                at = 0;
            }
            Rc::new(bytes)
        };
        if bytes.len() < at + len {
            return Err(Error::damaged(self.index.path(), end, "more of the index"));
        }
        Ok(IndexBytes { bytes, at, len })
    }

    /// Position and promoted index of a partition.
    pub(crate) async fn find(
        &self,
        cache: &ChunkCache,
        token: Token,
        key: &[u8],
    ) -> Result<Option<(u64, IndexBytes)>, Error> {
        let Some(page) = self.summary.page_of(token, key) else {
            return Ok(None);
        };
        let (mut at, end) = self.page(page);
        // Promoted indexes may make a page long; most pages are read whole, by the chunk.
        while at < end {
            let stretch_end = end.min((at / self.index.chunk_len() + 1) * self.index.chunk_len());
            let mut stretch = self.index_bytes(at, stretch_end, cache).await?;
            loop {
                let skipped = skip_others(stretch.get(), key);
                stretch.skip(skipped);
                at += skipped as u64;
                let bytes = stretch.get();
                if bytes.is_empty() {
                    break;
                }
                let entry = match Entry::read(bytes) {
                    Ok(entry) => entry,
                    Err(_) => {
                        // The entry continues in the next chunk: its key is at most 64 KiB.
                        let longer = end.min(at + (2 << 16));
                        if longer <= at + bytes.len() as u64 {
                            return Err(Error::damaged(self.index.path(), at, "an index entry"));
                        }
                        stretch = self.index_bytes(at, longer, cache).await?;
                        match Entry::read(stretch.get()) {
                            Ok(_) => continue,
                            Err(_) => return Err(Error::damaged(self.index.path(), at, "an index entry")),
                        }
                    }
                };
                let (head, promoted_len) = entry.promoted;
                let promoted_at = at + head as u64;
                let next = promoted_at.checked_add(promoted_len as u64).filter(|n| *n <= end);
                let Some(next) = next else {
                    return Err(Error::damaged(self.index.path(), at, "an index entry inside its page"));
                };
                if entry.key == key {
                    probe::step(|| format!("sstable {}: its index has the key", self.meta.descriptor.generation));
                    let position = entry.position;
                    if position >= self.data.len() {
                        return Err(Error::damaged(self.index.path(), at, "a position inside Data.db"));
                    }
                    let promoted = if promoted_len == 0 {
                        IndexBytes::default()
                    } else {
                        self.index_bytes(promoted_at, next, cache).await?
                    };
                    return Ok(Some((position, promoted)));
                }
                let step = usize::try_from(next - at).unwrap_or(usize::MAX);
                at = next;
                if step >= stretch.len {
                    break;
                }
                stretch.skip(step);
            }
        }
        Ok(None)
    }

    /// Where the first partition at or after (token, key) is; None when there is none.
    pub(crate) async fn first_at(&self, cache: &ChunkCache, token: Token, key: &[u8]) -> Result<Option<u64>, Error> {
        let mut page = self.summary.page_of(token, key).unwrap_or(0);
        while page < self.summary.samples.len() {
            let (start, end) = self.page(page);
            let bytes = self.index_bytes(start, end, cache).await?;
            let found = self.first_entry(start, bytes.get(), |t, k| (t, k) >= (token, key))?;
            if found.is_some() {
                return Ok(found);
            }
            page += 1;
        }
        Ok(None)
    }

    fn first_behind_blocking(&self, token: Token) -> Result<Option<u64>, Error> {
        let mut page = self.summary.page_behind(token);
        let mut raw = Vec::new();
        while page < self.summary.samples.len() {
            let (start, end) = self.page(page);
            let chunk_len = self.index.chunk_len();
            let mut bytes = Vec::new();
            let first = start / chunk_len;
            let mut chunk = first;
            while chunk * chunk_len < end {
                chunk += self.index.read_blocking(chunk, chunk_len, &mut raw, &mut bytes)?;
            }
            let base = first * chunk_len;
            let piece = bytes.get((start - base) as usize..(end - base) as usize);
            let piece = piece.ok_or_else(|| Error::damaged(self.index.path(), end, "more of the index"))?;
            let found = self.first_entry(start, piece, |t, _| t > token)?;
            if found.is_some() {
                return Ok(found);
            }
            page += 1;
        }
        Ok(None)
    }

    /// The position of the first entry of a page that is needed.
    fn first_entry(
        &self,
        start: u64,
        page: &[u8],
        is_wanted: impl Fn(Token, &[u8]) -> bool,
    ) -> Result<Option<u64>, Error> {
        let mut at = 0;
        while at < page.len() {
            let wrong = || Error::damaged(self.index.path(), start + at as u64, "an index entry");
            let entry = Entry::read(&page[at..]).map_err(|_| wrong())?;
            if is_wanted(token_of(entry.key), entry.key) {
                if entry.position >= self.data.len() {
                    return Err(wrong());
                }
                return Ok(Some(entry.position));
            }
            at = entry
                .promoted
                .0
                .checked_add(entry.promoted.1)
                .and_then(|n| n.checked_add(at))
                .ok_or_else(wrong)?;
        }
        Ok(None)
    }
}
