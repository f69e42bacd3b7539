//! Reads slices of one partition, on a shard's thread, through its cache.
//!
//! The promoted index of a large partition lets it start at a slice and skip from one to the next. Backwards, it walks
//! the index's blocks from last to first. The rows of each block that it returns still ascend, and `covered` is the
//! bound at which the block begins: rows before it come in the next block.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use memory::RowMemory;
use mutation::{Bound, ClusteringSlice, PartitionBlock};
use stdx::preempt;
use types::Token;

use crate::big::index::{IndexBlock, IndexBytes, Promoted};
use crate::data::chunks::Chunks;
use crate::data::decode::Stop;
use crate::data::window::{PartitionDecoder, Progress, ReadLimits};
use crate::error::Error;
use crate::read::cache::ChunkCache;
use crate::read::reader::Reader;
use crate::read::row_memory;

/// The stretch of Data.db that has arrived and is not consumed: a chunk of the cache as long as one is enough, then a
/// copy of several.
pub(crate) struct CachedWindow {
    bytes: Rc<Vec<u8>>,
    at: usize,
    /// Where `bytes` starts in the data.
    base: u64,
    next_chunk: u64,
}

impl CachedWindow {
    /// An empty window at `position`; the chunk that holds it comes next.
    pub(crate) fn new(position: u64, data: &Chunks) -> Self {
        let next_chunk = position / data.chunk_len();
        let base = next_chunk * data.chunk_len();
        let at = usize::try_from(position - base).expect("inside a chunk");
        Self {
            bytes: Rc::default(),
            at,
            base,
            next_chunk,
        }
    }

    pub(crate) fn seek(&mut self, position: u64, data: &Chunks) {
        let held = self.base..self.base + self.bytes.len() as u64;
        if held.contains(&position) {
            self.at = usize::try_from(position - self.base).expect("inside the window");
        } else {
            *self = Self::new(position, data);
        }
    }

    #[inline]
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        self.at += n;
    }

    /// Makes the rest at least `n` bytes longer.
    pub(crate) async fn fetch(&mut self, n: usize, data: &Chunks, cache: &ChunkCache) -> Result<(), Error> {
        let end = self
            .position()
            .saturating_add(self.rest().len() as u64)
            .saturating_add(n as u64);
        if end > data.len() {
            let expected = format!("{n} more bytes of a partition, where the data ends");
            return Err(Error::damaged(data.path(), data.len(), expected));
        }
        while self.base + (self.bytes.len() as u64) < end {
            let chunk = data.chunk(self.next_chunk, Some(cache)).await?;
            self.next_chunk += 1;
            if self.bytes.is_empty() {
                self.bytes = chunk;
                continue;
            }
            let start = self.at.min(self.bytes.len());
            let missing = usize::try_from(end - self.base).unwrap_or(usize::MAX) - self.bytes.len();
            let room = missing.max(chunk.len());
            if let Some(own) = Rc::get_mut(&mut self.bytes) {
                own.drain(..start);
                own.reserve_exact(room);
                own.extend_from_slice(&chunk);
            } else {
                let rest = &self.bytes[start..];
                let mut own = Vec::with_capacity(rest.len() + room);
                own.extend_from_slice(rest);
                own.extend_from_slice(&chunk);
                self.bytes = Rc::new(own);
            }
            self.base += start as u64;
            self.at -= start;
            preempt::allowed(preempt::long_step);
        }
        Ok(())
    }
}

enum State {
    Start,
    Forwards,
    /// The next index block to read, the one at which to stop, and whether any was read.
    Backwards {
        next: usize,
        stop: usize,
        is_first: bool,
    },
    End,
}

/// Reads slices of one partition.
pub struct PartitionCursor {
    reader: Arc<Reader>,
    cache: Rc<ChunkCache>,
    window: CachedWindow,
    decoder: PartitionDecoder,
    limits: ReadLimits,
    token: Token,
    key: Vec<u8>,
    /// Where the partition starts in the data.
    position: u64,
    promoted: Option<Promoted>,
    /// First start and last end of the slices; None when all is requested.
    reach: Option<(Bound, Bound)>,
    wants_rows: bool,
    reversed: bool,
    state: State,
    row_memory: Option<Arc<dyn RowMemory>>,
}

impl PartitionCursor {
    pub(crate) fn new(
        reader: Arc<Reader>,
        cache: Rc<ChunkCache>,
        (token, key): (Token, &[u8]),
        (position, promoted): (u64, IndexBytes),
        slices: &[ClusteringSlice],
        reversed: bool,
        limits: ReadLimits,
    ) -> Result<Self, Error> {
        let promoted = if promoted.len == 0 {
            None
        } else {
            Some(Promoted::decode(promoted).map_err(|d| {
                let expected = format!("{} in the promoted index of the partition at {position}", d.expected);
                Error::damaged(reader.index.path(), d.at as u64, expected)
            })?)
        };
        let is_all = matches!(slices, [s] if s.start == Bound::bottom() && s.end == Bound::top());
        let reach = match slices {
            [first, .., last] if !is_all => Some((first.start.clone(), last.end.clone())),
            [only] if !is_all => Some((only.start.clone(), only.end.clone())),
            _ => None,
        };
        let window = CachedWindow::new(position, &reader.data);
        let decoder = PartitionDecoder::new(reader.shape.clone(), (!is_all).then(|| slices.to_vec()));
        Ok(Self {
            cache,
            window,
            decoder,
            limits,
            token,
            key: key.to_vec(),
            position,
            promoted,
            reach,
            wants_rows: !slices.is_empty(),
            reversed,
            state: State::Start,
            row_memory: None,
            reader,
        })
    }

    /// Sets where memory for long rows is reserved before they are read; without it, they are read at once.
    pub fn set_row_memory(&mut self, row_memory: Option<Arc<dyn RowMemory>>) {
        self.row_memory = row_memory;
    }

    /// The next block; None when there is no more. The first has the partition's tombstone and static row, and comes
    /// even if no row is requested or found.
    ///
    /// # Errors
    /// When the disk refuses, or the file is damaged.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, Error> {
        if matches!(self.state, State::Start) {
            self.begin().await?;
            if !self.wants_rows {
                self.state = State::End;
                return Ok(Some(self.decoder.take_block(None)));
            }
            self.state = match (self.reversed, &self.promoted) {
                (true, Some(_)) => self.plan_backwards()?,
                (true, None) => {
                    self.limits = ReadLimits::NONE;
                    State::Forwards
                }
                (false, _) => {
                    self.skip()?;
                    State::Forwards
                }
            };
        }
        match self.state {
            State::Forwards => self.forwards().await.map(Some),
            State::Backwards { next, stop, is_first } => self.backwards(next, stop, is_first).await.map(Some),
            State::Start | State::End => Ok(None),
        }
    }

    /// Reads the head of the partition, or takes it from the index.
    async fn begin(&mut self) -> Result<(), Error> {
        if let Some(promoted) = &self.promoted
            && self.reader.shape.format.statics.slots.is_empty()
        {
            let mut block = PartitionBlock::new(self.token, &self.key);
            block.tombstone = promoted.tombstone;
            let start = self.position.saturating_add(promoted.head_len);
            self.decoder.begin(block);
            return self.seek(start);
        }
        loop {
            match self.decoder.head(self.window.rest()) {
                Ok(len) => {
                    if self.decoder.key() != self.key {
                        let path = self.reader.data.path();
                        return Err(Error::damaged(
                            path,
                            self.position,
                            "the partition that the index names",
                        ));
                    }
                    self.window.consume(len);
                    return Ok(());
                }
                Err(Stop::More(n)) => self.fetch(n).await?,
                Err(Stop::Damage(d)) => return Err(d.in_file(self.reader.data.path(), self.window.position())),
            }
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), Error> {
        if position >= self.reader.data.len() {
            let expected = format!("the partition at {} to end before {position}", self.position);
            return Err(Error::damaged(self.reader.index.path(), 0, expected));
        }
        self.window.seek(position, &self.reader.data);
        Ok(())
    }

    async fn fetch(&mut self, n: usize) -> Result<(), Error> {
        let item_bytes = self.window.rest().len().saturating_add(n);
        row_memory::reserve(self.row_memory.as_ref(), item_bytes, self.reader.data.path()).await?;
        self.window.fetch(n, &self.reader.data, &self.cache).await
    }

    async fn forwards(&mut self) -> Result<PartitionBlock, Error> {
        loop {
            let base = self.window.position();
            // A long row takes long, and this cursor alone has what is read.
            let (consumed, progress) = preempt::allowed(|| self.decoder.rows(self.window.rest(), self.limits))
                .map_err(|d| d.in_file(self.reader.data.path(), base))?;
            self.window.consume(consumed);
            match progress {
                Progress::More(n) => self.fetch(n).await?,
                Progress::Cut => return Ok(self.decoder.cut()),
                Progress::Skip => self.skip()?,
                Progress::End | Progress::Done => {
                    self.state = State::End;
                    return Ok(self.decoder.take_block(None));
                }
            }
        }
    }

    fn block(&self, promoted: &Promoted, i: usize) -> Result<IndexBlock, Error> {
        promoted.block(i, &self.reader.shape.format.widths).map_err(|d| {
            let expected = format!(
                "{} in the promoted index of the partition at {}",
                d.expected, self.position
            );
            Error::damaged(self.reader.index.path(), d.at as u64, expected)
        })
    }

    /// The first block of which `is_before` is false.
    fn search(&self, promoted: &Promoted, is_before: impl Fn(&IndexBlock) -> bool) -> Result<usize, Error> {
        let (mut low, mut high) = (0, promoted.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(&self.block(promoted, middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Continues at the index block in which the next slice begins, if that is further on.
    fn skip(&mut self) -> Result<(), Error> {
        let (Some(promoted), Some(slice)) = (&self.promoted, self.decoder.slice()) else {
            return Ok(());
        };
        let start = slice.start.clone();
        let order = self.decoder.order();
        let i = self.search(promoted, |b| b.last.compare(order, &start) == Ordering::Less)?;
        let i = i.min(promoted.len() - 1);
        let target = self.position.saturating_add(self.block(promoted, i)?.offset);
        if i == 0 || target <= self.window.position() {
            return Ok(());
        }
        let open = self.block(promoted, i - 1)?.open;
        self.decoder.close_open(&start);
        self.decoder.jump(open.map(|t| (t, start)));
        self.seek(target)
    }

    fn plan_backwards(&self) -> Result<State, Error> {
        let promoted = self.promoted.as_ref().expect("only with an index");
        let order = self.decoder.order();
        let (mut stop, mut end) = (0, promoted.len());
        if let Some((first, last)) = &self.reach {
            stop = self.search(promoted, |b| b.last.compare(order, first) == Ordering::Less)?;
            end = self.search(promoted, |b| b.first.compare(order, last) == Ordering::Less)?;
        }
        // No block intersects the slices: the nearest one is read for its open deletion.
        let next = end.max(1) - 1;
        Ok(State::Backwards {
            next,
            stop: stop.min(next),
            is_first: true,
        })
    }

    async fn backwards(&mut self, i: usize, stop: usize, is_first: bool) -> Result<PartitionBlock, Error> {
        let promoted = self.promoted.as_ref().expect("only with an index");
        let block = self.block(promoted, i)?;
        let before = if i > 0 {
            Some(self.block(promoted, i - 1)?)
        } else {
            None
        };
        let covered = before.as_ref().filter(|_| i > stop).map(|b| b.last.clone());
        self.decoder.rewind();
        self.decoder.jump(before.and_then(|b| b.open.map(|t| (t, b.last))));
        self.seek(self.position.saturating_add(block.offset))?;
        let width = usize::try_from(block.width).unwrap_or(usize::MAX);
        if self.window.rest().len() < width {
            self.fetch(width - self.window.rest().len()).await?;
        }
        let mut at = 0;
        loop {
            let rest = &self.window.rest()[at..width];
            let base = self.window.position() + at as u64;
            let (consumed, progress) = self
                .decoder
                .rows(rest, ReadLimits::NONE)
                .map_err(|d| d.in_file(self.reader.data.path(), base))?;
            at += consumed;
            match progress {
                Progress::Skip => {}
                Progress::More(_) if at < width => {
                    let expected = format!("an item that ends inside its index block at {}", base);
                    return Err(Error::damaged(self.reader.data.path(), base, expected));
                }
                Progress::More(_) | Progress::End | Progress::Done => break,
                Progress::Cut => unreachable!("without limits nothing is cut"),
            }
        }
        let end = if is_first { Bound::top() } else { block.last };
        self.decoder.close_open(&end);
        self.state = if i > stop {
            State::Backwards {
                next: i - 1,
                stop,
                is_first: false,
            }
        } else {
            State::End
        };
        Ok(self.decoder.take_block(covered))
    }
}
