//! Reads of one row: from memory alone where the row cache or the filters say what the sstables have.

use std::rc::Rc;
use std::sync::Arc;

use memory::{NoLongRows, RowMemory};
use memtable::PartitionRef;
use mutation::merge::{merge_blocks, merge_rows};
use mutation::{ClusteringSlice, PartitionBlock, RangeTombstone, RowView, Tombstone};
use schema::{Table, components};
use smallvec::SmallVec;
use sstable::ChunkCache;
use stdx::probe;
use types::Token;
use types::token::KeyHash;

use crate::read::merged_row::RowBuffers;
use crate::read::row_cache::{CachedRow, RowCache, put_name};
use crate::read::{BlockLimits, PartitionRead, PartitionReader, ReadError};
use crate::tablets::tablet::Version;
use crate::trace;

/// A row by its whole key.
#[derive(Clone, Copy, Debug)]
pub struct RowName<'n> {
    /// The hash of `key`.
    pub hash: KeyHash,
    /// The serialised key of its partition.
    pub key: &'n [u8],
    /// Its clustering key; empty in a table whose partitions are rows.
    pub clustering: &'n [u8],
}

impl<'n> RowName<'n> {
    /// Of these bytes.
    #[must_use]
    pub fn new(key: &'n [u8], clustering: &'n [u8]) -> Self {
        Self {
            hash: KeyHash::of(key),
            key,
            clustering,
        }
    }
}

/// The memtables of a tablet that hold a partition: the active one, those aside and those being flushed.
pub struct Sources<'a> {
    parts: [Option<PartitionRef<'a>>; MEMTABLES_MAX],
    len: usize,
}

/// A tablet with more memtables than this is read the general way.
const MEMTABLES_MAX: usize = 6;

impl<'a> Sources<'a> {
    fn have_long_row(&self, clustering: &[u8]) -> bool {
        self.iter().any(|part| part.has_long_row(clustering))
    }

    /// The partitions, one for each memtable that has it.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = PartitionRef<'a>> + '_ {
        self.parts[..self.len].iter().flatten().copied()
    }

    /// How many memtables have the partition.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none has it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The clustering key of the row that a slice is, when it is one whole row; empty for a table whose partitions are
/// rows.
pub fn row_of<'s>(table: &Table, slice: &'s ClusteringSlice) -> Option<&'s [u8]> {
    let columns = table.clustering_order.len();
    let ClusteringSlice { start, end } = slice;
    let is_one = start.prefix == end.prefix && start.kind < end.kind && components(&start.prefix).count() == columns;
    is_one.then_some(&start.prefix)
}

impl Version {
    /// Runs `f` on what memory says about one row when memory alone can answer for it: the memtables' parts of its
    /// partition, and what the sstables say if one may hold it and the answer is cached. `name` is a buffer.
    #[inline]
    pub fn read_memory<R>(
        &self,
        row: RowName<'_>,
        name: &mut Vec<u8>,
        f: impl FnOnce(&Sources<'_>, Option<&CachedRow>) -> R,
    ) -> Option<R> {
        if self.frozen.len() >= MEMTABLES_MAX {
            return None;
        }
        let rows = self.rows.borrow();
        let cached = if self.has_files {
            self.cached(&rows, row, name)
        } else {
            Some(None)
        };
        probe::step(|| {
            let in_files = match (self.has_files, &cached) {
                (false, _) => "there is no sstable",
                (true, None) => "an sstable may have the row, and the row cache has not",
                (true, Some(None)) => "no bloom filter has the key",
                (true, Some(Some(_))) => "the row cache has the row",
            };
            format!("memory: {} memtables; {in_files}", 1 + self.frozen.len())
        });
        let cached = cached?;
        Some(self.with_memtables(row, |sources| f(sources, cached)))
    }

    /// Runs `f` on the memtables' parts of a row's partition and on what [`Version::load_row`] has just read of it.
    /// None when there are too many memtables.
    pub fn read_loaded<R>(
        &self,
        row: RowName<'_>,
        loaded: &CachedRow,
        f: impl FnOnce(&Sources<'_>, Option<&CachedRow>) -> R,
    ) -> Option<R> {
        probe::step(|| {
            format!(
                "memory: {} memtables, with the row as it was read",
                1 + self.frozen.len()
            )
        });
        let has_room = self.frozen.len() < MEMTABLES_MAX;
        has_room.then(|| self.with_memtables(row, |sources| f(sources, Some(loaded))))
    }

    /// What the cache has of a row of the files; the inner None when no file has its partition, the outer one when a
    /// file would have to be read.
    #[inline(never)]
    fn cached<'c>(&self, rows: &'c RowCache, row: RowName<'_>, name: &mut Vec<u8>) -> Option<Option<&'c CachedRow>> {
        let RowName { hash, key, clustering } = row;
        let token = hash.token();
        if self.missing.iter().any(|missing| missing.overlaps(token, token)) {
            return None;
        }
        if !self.sstables.iter().any(|s| s.may_contain(hash)) {
            return Some(None);
        }
        name.clear();
        put_name(name, key, clustering);
        rows.get(name).map(Some)
    }

    /// Runs `f` on the memtables' parts of a partition. There are fewer frozen ones than the most.
    #[inline]
    fn with_memtables<R>(&self, row: RowName<'_>, f: impl FnOnce(&Sources<'_>) -> R) -> R {
        let (token, key) = (row.hash.token(), row.key);
        let active = self.active.borrow();
        let mut sources = Sources {
            parts: [None; MEMTABLES_MAX],
            len: 0,
        };
        let frozen = self.frozen.iter().filter(|f| f.range.contains(token));
        for memtable in std::iter::once(&*active).chain(frozen.map(|f| &*f.memtable)) {
            if let Some(p) = memtable.partition(token, key) {
                sources.parts[sources.len] = Some(p);
                sources.len += 1;
            }
        }
        f(&sources)
    }

    /// Runs `f` on a row when memory alone can answer for it and it is plain. None: neither.
    #[inline]
    pub fn read_plain_row<R>(
        &self,
        table: &Table,
        row: RowName<'_>,
        buffers: &mut RowBuffers,
        f: impl FnOnce(PlainRow<'_>) -> R,
    ) -> Option<R> {
        let RowBuffers { name, merged, .. } = buffers;
        self.read_memory(row, name, |sources, cached| {
            let row = PlainRow::of(table, row.clustering, sources, cached, merged)?;
            Some(f(row))
        })
        .flatten()
    }

    /// Reads what the sstables say about one row and keeps it for [`Version::read_memory`], if there is room. None when
    /// the row has another name there (two numbers that are equal, with different bytes), or is too long for the cache.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub async fn load_row(
        &self,
        table: &Table,
        cache: &Rc<ChunkCache>,
        row: RowName<'_>,
    ) -> Result<Option<CachedRow>, ReadError> {
        let RowName { hash, key, clustering } = row;
        let token = hash.token();
        let order = &table.clustering_order;
        let slices = [ClusteringSlice::exactly(clustering)];
        let limits = sstable::ReadLimits {
            rows: 16,
            bytes: 64 << 10,
        };
        self.check_whole((token, token))?;
        let mut entry = CachedRow::default();
        let mut files = 0_usize;
        let no_long_rows: Arc<dyn RowMemory> = Arc::<NoLongRows>::default();
        for reader in &self.sstables {
            if !reader.may_contain(hash) {
                continue;
            }
            files += 1;
            let cursor = reader.read_partition(cache, token, key, &slices, false, limits).await;
            let Some(mut cursor) = cursor.map_err(|e| self.read_error(e))? else {
                continue;
            };
            cursor.set_row_memory(Some(no_long_rows.clone()));
            loop {
                let block = match cursor.next_block().await {
                    Ok(Some(block)) => block,
                    Ok(None) => break,
                    Err(sstable::Error::NoRowMemory { .. }) => return Ok(None),
                    Err(error) => return Err(self.read_error(error)),
                };
                entry.partition = entry.partition.merge(block.tombstone);
                entry.range = entry.range.merge(block.range_deletion_of(order, clustering));
                if let Some(row) = block.static_row() {
                    merge_into(table, &mut entry.static_row, row);
                }
                for (name, row) in block.rows().filter(|(c, _)| order.compare(c, clustering).is_eq()) {
                    if name != clustering {
                        return Ok(None);
                    }
                    merge_into(table, &mut entry.row, row);
                }
            }
        }
        trace::note(|| {
            let all = self.sstables.len();
            format!(
                "Read a row of {}.{} from {files} of {all} sstables into the row cache",
                table.keyspace, table.name
            )
        });
        let mut name = Vec::new();
        put_name(&mut name, key, clustering);
        self.rows.borrow_mut().put(&name, &entry);
        Ok(Some(entry))
    }

    /// What all sources say about one row, its partition's deletion and static row with it: the block that a
    /// [`PartitionReader`] of the row returns. None when nothing is known of the partition.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub async fn read_row(
        self: &Rc<Self>,
        table: &Arc<Table>,
        cache: &Rc<ChunkCache>,
        row: RowName<'_>,
    ) -> Result<Option<PartitionBlock>, ReadError> {
        self.read_row_within(table, cache, row, None).await
    }

    /// As [`Version::read_row`]; reserves memory for a long row before it reads it from a file.
    ///
    /// # Errors
    /// When a file cannot be read, or no memory can be reserved.
    pub async fn read_row_within(
        self: &Rc<Self>,
        table: &Arc<Table>,
        cache: &Rc<ChunkCache>,
        row: RowName<'_>,
        row_memory: Option<Arc<dyn RowMemory>>,
    ) -> Result<Option<PartitionBlock>, ReadError> {
        let RowName { hash, key, clustering } = row;
        let token = hash.token();
        let mut name = Vec::with_capacity(size_of::<u32>() + key.len() + clustering.len());
        let wanted = RequestedRow {
            table,
            token,
            key,
            clustering,
        };
        // A long row is read in steps.
        let is_of_one_step = self.frozen.len() < MEMTABLES_MAX
            && !(table.layout.has_complex() && self.with_memtables(row, |sources| sources.have_long_row(clustering)));
        let merged = if is_of_one_step {
            self.read_memory(row, &mut name, |sources, cached| wanted.merge(sources, cached))
        } else {
            None
        };
        if let Some(block) = merged {
            return Ok(block);
        }
        if is_of_one_step && let Some(entry) = self.load_row(table, cache, row).await? {
            return Ok(self.with_memtables(row, |sources| wanted.merge(sources, Some(&entry))));
        }
        let read = PartitionRead {
            hash,
            key: key.to_vec(),
            slices: vec![ClusteringSlice::exactly(clustering)],
            reversed: false,
            limits: BlockLimits {
                rows: usize::MAX,
                bytes: usize::MAX,
            },
        };
        let mut reader = PartitionReader::new(Arc::clone(table), Rc::clone(self), Rc::clone(cache), read);
        reader.set_row_memory(row_memory);
        reader.next_block().await
    }
}

/// A row that was asked for by its name, of a partition in which no source has anything but a deletion of all of it and
/// that row. Two sources at most have the row, whole and by that very name.
#[derive(Clone, Copy, Debug)]
pub struct PlainRow<'a> {
    /// The deletion of its partition.
    pub partition: Tombstone,
    /// What is known of it; None: nothing.
    pub row: Option<RowView<'a>>,
}

impl<'a> PlainRow<'a> {
    /// The row, if it is plain. `merged` is a buffer.
    #[inline]
    fn of(
        table: &Table,
        clustering: &[u8],
        sources: &Sources<'a>,
        cached: Option<&'a CachedRow>,
        merged: &'a mut Vec<u8>,
    ) -> Option<Self> {
        let mut rows: [Option<RowView<'a>>; 2] = [None, None];
        let mut found = 0;
        let mut partition = Tombstone::NONE;
        if let Some(cached) = cached {
            if !cached.range.is_none() || cached.static_row.is_some() {
                return None;
            }
            partition = cached.partition;
            if let Some(row) = cached.row.as_deref().and_then(RowView::new) {
                (rows[0], found) = (Some(row), 1);
            }
        }
        for part in sources.iter() {
            if part.has_extras() {
                return None;
            }
            if let Some((name, row)) = part.named_row(clustering) {
                if name != clustering || found == 2 {
                    return None;
                }
                rows[found] = Some(row.packed()?);
                found += 1;
            }
        }
        let row = match rows {
            [Some(a), Some(b)] => {
                merged.clear();
                merge_rows(&table.layout, a, b, merged);
                Some(RowView::new(merged)?)
            }
            [first, _] => first,
        };
        Some(Self { partition, row })
    }

    /// As a block of its partition.
    #[must_use]
    pub fn block(&self, token: Token, key: &[u8], clustering: &[u8]) -> PartitionBlock {
        let room = clustering.len() + self.row.map_or(0, |row| row.bytes().len());
        let mut block = PartitionBlock::with_room(token, key, room, 1);
        block.tombstone = self.partition;
        if let Some(row) = self.row {
            block.push_row(clustering, row.bytes());
        }
        block
    }
}

fn merge_into(table: &Table, have: &mut Option<Box<[u8]>>, row: RowView<'_>) {
    *have = Some(match have.take() {
        None => row.bytes().into(),
        Some(bytes) => {
            let view = RowView::new(&bytes).expect("a merged row is well formed");
            let mut merged = Vec::new();
            merge_rows(&table.layout, view, row, &mut merged);
            merged.into()
        }
    });
}

/// A row that is asked for by its name.
struct RequestedRow<'a> {
    table: &'a Table,
    token: Token,
    key: &'a [u8],
    clustering: &'a [u8],
}

impl RequestedRow<'_> {
    /// What memtables and sstables say about it, as one block; None when nothing is known of its partition.
    fn merge(&self, sources: &Sources<'_>, cached: Option<&CachedRow>) -> Option<PartitionBlock> {
        let cached = cached.filter(|cached| !cached.is_empty());
        if cached.is_none() && sources.is_empty() {
            return None;
        }
        if let Some(block) = self.merge_plain(sources, cached) {
            return Some(block);
        }
        let slice = ClusteringSlice::exactly(self.clustering);
        let mut blocks: SmallVec<[PartitionBlock; MEMTABLES_MAX]> = SmallVec::new();
        if let Some(cached) = cached {
            blocks.push(cached.block(self.token, self.key, &slice));
        }
        for part in sources.iter() {
            blocks.push(part.block(&slice, false, usize::MAX, usize::MAX));
        }
        if blocks.len() < 2 {
            return blocks.pop();
        }
        let blocks: SmallVec<[&PartitionBlock; MEMTABLES_MAX]> = blocks.iter().collect();
        merge_blocks(&self.table.layout, &self.table.clustering_order, &blocks)
    }

    /// Merges as `merge` does if the row is a plain one, which it nearly always is; else None.
    fn merge_plain(&self, sources: &Sources<'_>, cached: Option<&CachedRow>) -> Option<PartitionBlock> {
        let mut merged = Vec::new();
        let plain = PlainRow::of(self.table, self.clustering, sources, cached, &mut merged)?;
        Some(plain.block(self.token, self.key, self.clustering))
    }
}

impl CachedRow {
    /// As a block of a read of the row.
    fn block(&self, token: Token, key: &[u8], slice: &ClusteringSlice) -> PartitionBlock {
        let mut block = PartitionBlock::new(token, key);
        block.tombstone = self.partition;
        if !self.range.is_none() {
            let (start, end, tombstone) = (slice.start.clone(), slice.end.clone(), self.range);
            block.range_tombstones.push(RangeTombstone { start, end, tombstone });
        }
        if let Some(row) = &self.static_row {
            block.set_static_row(row);
        }
        if let Some(row) = &self.row {
            block.push_row(&slice.start.prefix, row);
        }
        block
    }
}
