//! Writes an sstable of version `me`.
//!
//! Partitions come in (token, key) order; a large one may come as several blocks, each of which continues where the one
//! before ended. Data and index go to their files as they come; everything else is gathered in memory and written by
//! [`Writer::finish`]: all components are made durable, then TOC.txt gets its name. If anything fails before that, no
//! file is left: the files are removed when the writer is dropped.
//!
//! A deletion of the file deletes nothing else in it: what a partition's or a range's tombstone covers is left out,
//! since readers of the format do not merge within a file.
//!
//! Memory: the filter, a summary entry for every 128 partitions, and the promoted index of the current partition.

use std::path::Path;

use mutation::compact::{may_shadow, shadow_row};
use mutation::dropped::inherit_block;
use mutation::{Bound, PartitionBlock, RangeTombstone, RowView, Tombstone};
use schema::{RowLayout, Table, components};
use std::cmp::Ordering;
use types::Token;
use uuid::Uuid;

use crate::big::index::{Prefix, PromotedWriter};
use crate::big::summary::{Sample, Summary};
use crate::data::clustering::{boundary_kind, end_kind, start_kind};
use crate::data::compression::{Compression, CompressionInfo, Scratch};
use crate::data::encode::{Encoder, Format, flag, partition_header};
use crate::data::header::{EncodingBase, SerializationHeader};
use crate::directory::component::{self, Component, Descriptor, Version};
use crate::directory::generation::Generation;
use crate::error::Error;
use crate::io::{self, OutputFile};
use crate::read::checksums::Checksums;
use crate::read::filter::{self, Filter};
use crate::read::reader::Meta;
use crate::secondary::IndexWriters;
use crate::statistics::Collector;
use crate::write::large::{Finder, LargeData, LargeKind};

/// How a file is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Of Data.db.
    pub compression: Compression,
    /// Target share of false positives of the filter; 1 or more for no filter.
    pub bloom_filter_fp_chance: f64,
    /// Rows between two entries of the promoted index, in bytes.
    pub column_index_size_bytes: u64,
    /// Partitions between two entries of the summary.
    pub min_index_interval: u32,
    /// For the size of the filter: as many as there may be. Where fewer come, the filter is made smaller.
    pub estimated_partitions: u64,
    /// The host that writes.
    pub host_id: Option<Uuid>,
    /// Minima of what will be appended, for the size of the file.
    pub base: EncodingBase,
    /// Ids of dropped columns of which the file keeps cells that are newer than the DROP.
    pub dropped: Vec<usize>,
    /// Level of leveled compaction.
    pub level: u32,
    /// Milliseconds since the epoch; 0 is never.
    pub repaired_at: i64,
}

impl WriterOptions {
    /// What the options of a table ask for.
    ///
    /// # Errors
    /// A sentence for the user, when they ask for what is not known.
    pub fn of_table(table: &Table, estimated_partitions: u64, base: EncodingBase) -> Result<Self, String> {
        Ok(Self {
            compression: Compression::of_options(&table.options.compression)?,
            bloom_filter_fp_chance: table.options.bloom_filter_fp_chance,
            column_index_size_bytes: 64 << 10,
            min_index_interval: u32::try_from(table.options.min_index_interval).unwrap_or(0).max(1),
            estimated_partitions,
            host_id: None,
            base,
            dropped: Vec::new(),
            level: 0,
            repaired_at: 0,
        })
    }
}

/// Data.db while it is written: the bytes of the current chunk, and what is known of the chunks before.
struct DataFile {
    file: OutputFile,
    compression: Compression,
    scratch: Scratch,
    /// Data that is not in a chunk yet.
    pending: Vec<u8>,
    /// Data that is.
    packed: u64,
    offsets: Vec<u64>,
    checksums: Vec<u32>,
    digest: crc32fast::Hasher,
}

impl DataFile {
    fn create(path: std::path::PathBuf, compression: Compression) -> Result<Self, Error> {
        Ok(Self {
            file: OutputFile::create(path)?,
            compression,
            scratch: Scratch::new(),
            pending: Vec::new(),
            packed: 0,
            offsets: Vec::new(),
            checksums: Vec::new(),
            digest: crc32fast::Hasher::new(),
        })
    }

    /// The position of the next byte of data.
    fn position(&self) -> u64 {
        self.packed + self.pending.len() as u64
    }

    /// Packs all whole chunks, and with `last` the rest too.
    fn pack(&mut self, last: bool) -> Result<(), Error> {
        let chunk_len = self.compression.chunk_len as usize;
        let mut done = 0;
        while self.pending.len() - done >= chunk_len || (last && self.pending.len() > done) {
            let end = (done + chunk_len).min(self.pending.len());
            self.offsets.push(self.file.position());
            let data = &self.pending[done..end];
            let start = self.file.buffer().len();
            let path = self.file.path().to_owned();
            match self.compression.compressor {
                Some(compressor) => {
                    compressor
                        .compress(data, self.file.buffer(), &mut self.scratch)
                        .map_err(|e| Error::rejected(&path, e))?;
                    let crc = crc32fast::hash(&self.file.buffer()[start..]);
                    self.file.buffer().extend_from_slice(&crc.to_be_bytes());
                }
                None => {
                    self.checksums.push(crc32fast::hash(data));
                    self.file.buffer().extend_from_slice(data);
                }
            }
            self.digest.update(&self.file.buffer()[start..]);
            self.file.spill()?;
            self.packed += (end - done) as u64;
            done = end;
        }
        self.pending.drain(..done);
        Ok(())
    }
}

/// The partition that is being written.
struct Partition {
    token: Token,
    key: Vec<u8>,
    start: u64,
    head_len: u64,
    tombstone: Tombstone,
    /// Where the last item starts, in the partition.
    last_item: u64,
    /// The deletion whose end is not written yet.
    open: Option<(Bound, Tombstone)>,
    rows: u64,
    dead_rows: u64,
    range_tombstones: u64,
}

impl Partition {
    /// What deletes the position that is written next: the partition's tombstone, or the range tombstone that is open
    /// there.
    fn deletion(&self) -> Tombstone {
        let open = self.open.as_ref().map_or(Tombstone::NONE, |(_, tombstone)| *tombstone);
        self.tombstone.merge(open)
    }
}

/// A row less what a deletion of the same file covers; None when nothing is left. `shadowed` has the bytes of a row
/// that changes.
fn without_deleted<'r>(
    layout: &RowLayout,
    row: RowView<'r>,
    deletion: Tombstone,
    shadowed: &'r mut Vec<u8>,
) -> Option<RowView<'r>> {
    if !may_shadow(layout, row, deletion) {
        return Some(row);
    }
    shadowed.clear();
    shadow_row(layout, row, deletion, shadowed).then(|| RowView::new(shadowed).expect("it was packed just now"))
}

/// Writes one sstable. Blocks; for background threads.
pub struct Writer {
    descriptor: Descriptor,
    table: Table,
    options: WriterOptions,
    header: SerializationHeader,
    encoder: Encoder,
    data: DataFile,
    index: OutputFile,
    index_checksums: PageChecksums,
    promoted: PromotedWriter,
    secondary: IndexWriters,
    filter: Option<Filter>,
    samples: Vec<Sample>,
    partitions: u64,
    first_key: Vec<u8>,
    current: Option<Partition>,
    /// Token and key of the last partition that is complete.
    last: Option<(Token, Vec<u8>)>,
    collector: Collector,
    min_clustering: Option<Bound>,
    max_clustering: Option<Bound>,
    large: Finder,
    cleanup: Cleanup,
    has_failed: bool,
}

/// Removes the files of an sstable unless it was sealed.
struct Cleanup {
    descriptor: Option<Descriptor>,
    /// Its TOC may be there, durably or not: what made it so has failed.
    may_be_sealed: bool,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let Some(descriptor) = self.descriptor.take() else {
            return;
        };
        // Where it may be sealed, that is taken back durably first: else a power loss could leave a sealed one that
        // lacks files.
        let removed = if self.may_be_sealed {
            component::delete(&descriptor)
        } else {
            component::discard(&descriptor)
        };
        if let Err(e) = removed {
            log::warn!("leftover of an unfinished sstable: {e}");
        }
    }
}

/// Checksums of the pages of a file that is written through them.
#[derive(Default)]
pub(crate) struct PageChecksums {
    pub(crate) checksums: Vec<u32>,
    hasher: crc32fast::Hasher,
    filled: usize,
    len: u64,
}

/// Bytes of Index.db that share a checksum.
pub(crate) const INDEX_PAGE: usize = 16 << 10;

impl PageChecksums {
    fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(INDEX_PAGE - self.filled));
            self.hasher.update(piece);
            self.filled += piece.len();
            bytes = rest;
            if self.filled == INDEX_PAGE {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        if self.filled > 0 {
            self.checksums.push(std::mem::take(&mut self.hasher).finalize());
            self.filled = 0;
        }
    }
}

impl Writer {
    /// Starts the files of an sstable in a directory that exists.
    ///
    /// # Errors
    /// When the files cannot be made.
    pub fn create(
        dir: &Path,
        generation: impl Into<Generation>,
        table: &Table,
        options: WriterOptions,
    ) -> Result<Self, Error> {
        let descriptor = Descriptor {
            dir: dir.to_owned(),
            version: Version::Me,
            generation: generation.into(),
        };
        let header = SerializationHeader::of_table(table, &options.dropped, options.base);
        let data_path = descriptor.path(Component::Data);
        let format = Format::of(&header, table).map_err(|e| Error::schema(&data_path, e))?;
        let cleanup = Cleanup {
            descriptor: Some(descriptor.clone()),
            may_be_sealed: false,
        };
        let data = DataFile::create(data_path, options.compression.clone())?;
        let index = OutputFile::create(descriptor.path(Component::Index))?;
        Ok(Self {
            filter: Filter::new(options.estimated_partitions, options.bloom_filter_fp_chance),
            encoder: Encoder::new(format),
            secondary: IndexWriters::of_sstable(table, &descriptor),
            descriptor,
            table: table.clone(),
            options,
            header,
            data,
            index,
            index_checksums: PageChecksums::default(),
            promoted: PromotedWriter::default(),
            samples: Vec::new(),
            partitions: 0,
            first_key: Vec::new(),
            current: None,
            last: None,
            collector: Collector::new(),
            min_clustering: None,
            max_clustering: None,
            large: Finder::new(table),
            cleanup,
            has_failed: false,
        })
    }

    /// Bytes of data so far, before compression.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data.position()
    }

    /// Bytes of Data.db so far.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.data.file.position()
    }

    /// Whether nothing was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions == 0 && self.current.is_none()
    }

    /// Whether the partition of the last block continues in another block.
    #[must_use]
    pub fn is_inside_partition(&self) -> bool {
        self.current.is_some()
    }

    /// Appends a partition, or the next part of one. One of which no block has anything is not written. After an error
    /// the writer is of no use but to be dropped.
    ///
    /// # Errors
    /// When the disk refuses, or the block does not fit the format or the order.
    pub fn append(&mut self, block: &PartitionBlock) -> Result<(), Error> {
        let result = if self.has_failed {
            Err(self.rejected("an earlier part of this sstable could not be written"))
        } else {
            self.append_block(block)
        };
        self.has_failed |= result.is_err();
        result
    }

    #[cold]
    fn rejected(&self, what: impl Into<String>) -> Error {
        Error::rejected(self.data.file.path(), what)
    }

    fn append_block(&mut self, block: &PartitionBlock) -> Result<(), Error> {
        let inherited = inherit_block(&self.table.layout, block);
        let block = inherited.as_ref().unwrap_or(block);
        // A partition begins with the first block that has something.
        if self.current.is_none() && block.is_empty() {
            return Ok(());
        }
        match &self.current {
            Some(p) if p.token == block.token && p.key == block.key() => {}
            Some(_) => return Err(self.rejected("a partition before the one before it was complete")),
            None => self.begin_partition(block)?,
        }
        let mut partition = self.current.take().expect("it was begun above or by an earlier block");
        self.items(&mut partition, block)
            .map_err(|e| e.unwrap_or_else(|what| self.rejected(what)))?;
        self.data.pack(false)?;
        if block.covered.is_some() {
            self.current = Some(partition);
            Ok(())
        } else {
            self.end_partition(partition)
        }
    }

    fn begin_partition(&mut self, block: &PartitionBlock) -> Result<(), Error> {
        let (token, key) = (block.token, block.key());
        if let Some((last_token, last_key)) = &self.last
            && (*last_token, &last_key[..]) >= (token, key)
        {
            return Err(self.rejected("a partition that does not sort after the previous one"));
        }
        let start = self.data.position();
        self.secondary.begin_partition(start);
        partition_header(key, block.tombstone, &mut self.data.pending).map_err(|e| self.rejected(e))?;
        if !block.tombstone.is_none() {
            self.collector.deletion(block.tombstone);
        }
        if !self.header.statics.is_empty() {
            let (empty, mut shadowed) = (empty_row(), Vec::new());
            let layout = &self.table.layout;
            let row = block
                .static_row()
                .and_then(|row| without_deleted(layout, row, block.tombstone, &mut shadowed))
                .unwrap_or_else(|| RowView::new(&empty).expect("an empty row is well formed"));
            let at = self.data.position();
            self.encoder
                .row(None, &row, layout, 0, &mut self.collector, &mut self.data.pending)
                .map_err(|e| Error::rejected(self.data.file.path(), e))?;
            self.large.row(&self.table, key, &[], &row, self.data.position() - at);
            if !self.secondary.is_empty() {
                self.secondary.static_row(layout, key, row, at)?;
            }
        }
        if let Some(filter) = &mut self.filter {
            filter.add(filter::hash(key));
        }
        self.promoted.clear();
        self.current = Some(Partition {
            token,
            key: key.to_vec(),
            start,
            head_len: self.data.position() - start,
            tombstone: block.tombstone,
            last_item: 0,
            open: None,
            rows: 0,
            dead_rows: 0,
            range_tombstones: 0,
        });
        Ok(())
    }

    /// Writes rows and markers in their order. The inner error is a reason that has no file name yet.
    fn items(&mut self, partition: &mut Partition, block: &PartitionBlock) -> Result<(), Result<Error, &'static str>> {
        let mut ranges = &block.range_tombstones[..];
        partition.range_tombstones += ranges.len() as u64;
        let layout = std::sync::Arc::clone(&self.table.layout);
        let mut shadowed = Vec::new();
        for (key, row) in block.rows() {
            if partition.open.is_some() || !ranges.is_empty() {
                self.markers(partition, &mut ranges, Some(key)).map_err(Err)?;
            }
            let Some(row) = without_deleted(&layout, row, partition.deletion(), &mut shadowed) else {
                continue;
            };
            let at = self.data.position();
            let position = at - partition.start;
            let size_before = position - partition.last_item;
            self.encoder
                .row(
                    Some(key),
                    &row,
                    &layout,
                    size_before,
                    &mut self.collector,
                    &mut self.data.pending,
                )
                .map_err(Err)?;
            self.collector.rows += 1;
            partition.rows += 1;
            partition.dead_rows += u64::from(row.marker.is_none() && !row.tombstone.is_none());
            partition.last_item = position;
            let place = position..self.data.position() - partition.start;
            self.large
                .row(&self.table, &partition.key, key, &row, place.end - place.start);
            if !self.secondary.is_empty() {
                self.secondary
                    .row(&layout, &partition.key, (key, row), at)
                    .map_err(Ok)?;
            }
            let open = partition.open.as_ref().map(|(_, t)| *t);
            let widths = &self.encoder.format.widths;
            self.promoted
                .item(
                    Prefix::Row(key),
                    place,
                    open,
                    self.options.column_index_size_bytes,
                    widths,
                )
                .map_err(Err)?;
            if self.data.pending.len() >= PENDING_MAX {
                self.data.pack(false).map_err(Ok)?;
            }
        }
        self.markers(partition, &mut ranges, None).map_err(Err)?;
        if block.covered.is_none()
            && let Some((end, tombstone)) = partition.open.take()
        {
            self.marker(partition, end_kind(&end), &end, &[tombstone], None)
                .map_err(Err)?;
        }
        self.see_clustering(block);
        Ok(())
    }

    /// Writes the markers that come before row `limit`; without one, all but the last end, which may prove to be a
    /// boundary.
    fn markers(
        &mut self,
        partition: &mut Partition,
        ranges: &mut &[RangeTombstone],
        limit: Option<&[u8]>,
    ) -> Result<(), &'static str> {
        let order = std::sync::Arc::clone(&self.table.clustering_order);
        let is_behind = |b: &Bound| limit.is_some_and(|key| b.compare_key(&order, key) == Ordering::Greater);
        loop {
            let next = ranges.first();
            if let Some((end, tombstone)) = partition.open.take() {
                if is_behind(&end) || (limit.is_none() && next.is_none()) {
                    partition.open = Some((end, tombstone));
                    return Ok(());
                }
                match next {
                    Some(n) if n.start.compare(&order, &end) == Ordering::Equal => {
                        *ranges = &ranges[1..];
                        partition.open = Some((n.end.clone(), n.tombstone));
                        if n.tombstone != tombstone {
                            let kind = boundary_kind(&end);
                            self.marker(partition, kind, &end, &[tombstone, n.tombstone], Some(n.tombstone))?;
                        }
                    }
                    _ => self.marker(partition, end_kind(&end), &end, &[tombstone], None)?,
                }
            } else {
                match next {
                    Some(n) if !is_behind(&n.start) => {
                        *ranges = &ranges[1..];
                        partition.open = Some((n.end.clone(), n.tombstone));
                        self.marker(
                            partition,
                            start_kind(&n.start),
                            &n.start,
                            &[n.tombstone],
                            Some(n.tombstone),
                        )?;
                    }
                    _ => return Ok(()),
                }
            }
        }
    }

    fn marker(
        &mut self,
        partition: &mut Partition,
        kind: u8,
        bound: &Bound,
        deletions: &[Tombstone],
        open: Option<Tombstone>,
    ) -> Result<(), &'static str> {
        let position = self.data.position() - partition.start;
        let size_before = position - partition.last_item;
        self.encoder
            .marker(kind, bound, deletions, size_before, &mut self.data.pending)?;
        for t in deletions {
            self.collector.deletion(*t);
        }
        partition.last_item = position;
        let place = position..self.data.position() - partition.start;
        let widths = &self.encoder.format.widths;
        self.promoted.item(
            Prefix::Marker(kind, bound),
            place,
            open,
            self.options.column_index_size_bytes,
            widths,
        )
    }

    fn see_clustering(&mut self, block: &PartitionBlock) {
        let order = &self.table.clustering_order;
        if order.is_empty() {
            return;
        }
        let mut starts: Vec<Bound> = Vec::with_capacity(2);
        let mut ends: Vec<Bound> = Vec::with_capacity(2);
        if let Some(last) = block.len().checked_sub(1) {
            starts.push(Bound::before(block.clustering(0)));
            ends.push(Bound::after(block.clustering(last)));
        }
        starts.extend(block.range_tombstones.first().map(|r| r.start.clone()));
        ends.extend(block.range_tombstones.last().map(|r| r.end.clone()));
        for start in starts {
            if self
                .min_clustering
                .as_ref()
                .is_none_or(|m| start.compare(order, m) == Ordering::Less)
            {
                self.min_clustering = Some(start);
            }
        }
        for end in ends {
            if self
                .max_clustering
                .as_ref()
                .is_none_or(|m| end.compare(order, m) == Ordering::Greater)
            {
                self.max_clustering = Some(end);
            }
        }
    }

    fn end_partition(&mut self, partition: Partition) -> Result<(), Error> {
        self.data.pending.push(flag::END_OF_PARTITION);
        let end = self.data.position() - partition.start;
        let Partition {
            token,
            key,
            start,
            head_len,
            tombstone,
            rows,
            dead_rows,
            range_tombstones,
            ..
        } = partition;
        let entry_at = self.index.position();
        let buffered = self.index.buffer().len();
        self.promoted
            .entry(&key, start, head_len, tombstone, end, self.index.buffer())
            .map_err(|e| Error::rejected(self.data.file.path(), e))?;
        self.index_checksums.update(&self.index.buffer()[buffered..]);
        self.index.spill()?;
        if self
            .partitions
            .is_multiple_of(u64::from(self.options.min_index_interval))
        {
            self.samples.push(Sample {
                token,
                key: key[..].into(),
                position: entry_at,
            });
        }
        if self.partitions == 0 {
            self.first_key.clone_from(&key);
        }
        self.partitions += 1;
        self.collector.partition(&key, end);
        let counted = LargeKind::Partition {
            rows,
            range_tombstones,
            dead_rows,
        };
        self.large.partition(&key, end, counted);
        self.last = Some((token, key));
        self.data.pack(false)
    }

    /// Writes the remaining components, makes all durable and gives the sstable its TOC.
    ///
    /// # Errors
    /// When the disk refuses, when an append failed before, or when there is no partition or an incomplete one; no file
    /// remains then.
    pub fn finish(mut self) -> Result<Meta, Error> {
        let Some((_, last_key)) = self.last.take() else {
            return Err(self.rejected("an sstable without partitions"));
        };
        if self.has_failed || self.current.is_some() {
            return Err(self.rejected("an sstable that is not complete"));
        }
        self.data.pack(true)?;
        let data_len = self.data.packed;
        let DataFile {
            file,
            compression,
            offsets,
            checksums,
            digest,
            ..
        } = self.data;
        let file_len = file.finish()?;
        let descriptor = self.descriptor;
        let mut statistics = self.collector.finish(self.header, self.options.bloom_filter_fp_chance);
        let mut small: Vec<(Component, Vec<u8>)> = Vec::new();
        if let Some(compressor) = compression.compressor {
            #[expect(clippy::cast_precision_loss, reason = "a ratio for people to look at")]
            let ratio = file_len as f64 / data_len.max(1) as f64;
            statistics.compression_ratio = ratio;
            let info = CompressionInfo {
                compressor,
                chunk_len: compression.chunk_len,
                data_len,
                offsets,
            };
            small.push((Component::CompressionInfo, info.encode()));
        } else {
            let mut crc = compression.chunk_len.to_be_bytes().to_vec();
            checksums.iter().for_each(|c| crc.extend_from_slice(&c.to_be_bytes()));
            small.push((Component::Crc, crc));
        }
        // The file cannot say that a component is null here: what begins with those before it is between the same
        // bounds.
        let prefix = |bound: &Option<Bound>| -> Vec<Vec<u8>> {
            let components = bound.iter().flat_map(|bound| components(&bound.prefix));
            components
                .map_while(|component| component.map(<[u8]>::to_vec))
                .collect()
        };
        statistics.min_clustering = prefix(&self.min_clustering);
        statistics.max_clustering = prefix(&self.max_clustering);
        statistics.level = self.options.level;
        statistics.repaired_at = self.options.repaired_at;
        statistics.host_id = self.options.host_id;
        small.push((Component::Statistics, statistics.encode()));
        small.push((Component::Digest, digest.finalize().to_string().into_bytes()));
        if let Some(filter) = &mut self.filter {
            filter.fold(self.partitions, self.options.bloom_filter_fp_chance);
            small.push((Component::Filter, filter.encode()));
        }
        let summary = Summary {
            interval: self.options.min_index_interval,
            samples: self.samples,
            first_key: self.first_key.into(),
            last_key: last_key.into(),
        };
        small.push((Component::Summary, summary.encode()));
        self.index_checksums.close();
        let index_len = self.index.finish()?;
        let mut own = Checksums {
            index_len,
            index: self.index_checksums.checksums,
            components: Vec::new(),
            large: LargeData::default(),
        };
        for (component, bytes) in &small {
            own.components
                .push((*component, bytes.len() as u64, crc32fast::hash(bytes)));
        }
        let written_at = u64::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
        let name = descriptor.path(Component::Data).display().to_string();
        own.large = self.large.finish(&self.table, &name, written_at);
        small.push((Component::Checksums, own.encode()));
        // They have their names before the sstable counts.
        let secondary_len = self.secondary.finish()?;
        let small_len = seal(&descriptor, &small, &mut self.cleanup)?;
        let all = file_len + index_len + secondary_len + small_len;
        Ok(Meta::new(
            &descriptor,
            statistics,
            &summary,
            self.partitions,
            data_len,
            (all, own.large),
        ))
    }
}

/// Writes the small components and makes everything durable; then the sstable counts. The bytes of these files. The
/// list of components is there first, under its temporary name: it says of what a crash leaves that it was not written
/// to its end.
fn seal(descriptor: &Descriptor, small: &[(Component, Vec<u8>)], cleanup: &mut Cleanup) -> Result<u64, Error> {
    let listed = [Component::Data, Component::Index]
        .into_iter()
        .chain(small.iter().map(|(component, _)| *component))
        .chain([Component::Toc]);
    let toc: String = listed.map(|component| format!("{}\n", component.suffix())).collect();
    io::write_all(descriptor.toc_tmp(), toc.as_bytes())?;
    io::sync_dir(&descriptor.dir)?;
    for (component, bytes) in small {
        io::write_all(descriptor.path(*component), bytes)?;
    }
    io::sync_dir(&descriptor.dir)?;
    cleanup.may_be_sealed = true;
    io::rename(&descriptor.toc_tmp(), &descriptor.path(Component::Toc))?;
    io::sync_dir(&descriptor.dir)?;
    cleanup.descriptor = None;
    Ok(small.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() + toc.len() as u64)
}

/// Data that waits to be packed while a large block is written.
const PENDING_MAX: usize = 1 << 20;

/// A packed row of nothing, for partitions without a static row in tables that have static columns.
fn empty_row() -> Vec<u8> {
    let mut out = Vec::new();
    mutation::RowBuilder::put_empty(&mut out);
    out
}
