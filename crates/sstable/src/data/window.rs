//! Decodes partitions from bytes that arrive piece by piece.
//!
//! [`Window`] is the stretch of Data.db that has arrived and is not consumed yet; drivers append chunks to it, blocking
//! or not. [`PartitionDecoder`] consumes it: it answers with how many more bytes it wants, or with a
//! [`PartitionBlock`].

use std::cmp::Ordering;
use std::sync::Arc;

use mutation::{Bound, BoundKind, ClusteringSlice, PartitionBlock, RangeTombstone, Tombstone};
use schema::{ClusteringOrder, RowLayout};
use types::Token;
use types::token::token_of;

use crate::data::chunks::Chunks;
use crate::data::decode::{ItemKind, RowDecoder, Stop, item_head, marker_deletions, partition_head};
use crate::data::encode::Format;
use crate::error::{Damage, Error};

/// Data that has arrived: `bytes[at..]` is not consumed, and chunk `next_chunk` follows.
#[derive(Default)]
pub(crate) struct Window {
    pub(crate) bytes: Vec<u8>,
    at: usize,
    /// Where `bytes` starts in the data.
    base: u64,
    pub(crate) next_chunk: u64,
}

impl Window {
    /// An empty window at `position`; the chunk that holds it comes next.
    pub(crate) fn seek(&mut self, position: u64, chunks: &Chunks) {
        let held = self.base..self.base + self.bytes.len() as u64;
        if held.contains(&position) {
            self.at = usize::try_from(position - self.base).expect("inside the window");
            return;
        }
        self.next_chunk = position / chunks.chunk_len();
        self.base = self.next_chunk * chunks.chunk_len();
        self.bytes.clear();
        self.at = usize::try_from(position - self.base).expect("inside a chunk");
    }

    /// What has arrived and is not consumed; empty when not even the chunk of the position is there.
    #[inline]
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    /// Where the rest starts in the data.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        self.at += n;
    }

    /// Forgets what is consumed, to make room.
    pub(crate) fn compact(&mut self) {
        if self.at > 0 && self.at <= self.bytes.len() {
            self.bytes.drain(..self.at);
            self.base += self.at as u64;
            self.at = 0;
        }
    }

    /// How many bytes must arrive so that the rest is `n` bytes longer. Err when the data ends before.
    pub(crate) fn want(&self, n: usize, chunks: &Chunks) -> Result<usize, Error> {
        let wanted = self
            .at
            .saturating_add(self.rest().len())
            .saturating_add(n)
            .saturating_sub(self.bytes.len());
        let end = self.base + self.bytes.len() as u64;
        if wanted as u64 > chunks.len().saturating_sub(end) {
            let expected = format!("{n} more bytes of a partition, where the data ends");
            return Err(Error::damaged(chunks.path(), chunks.len(), expected));
        }
        Ok(wanted)
    }
}

/// What a reader or a scan needs to know, shared by all of them.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) format: Arc<Format>,
    pub(crate) layout: Arc<RowLayout>,
    pub(crate) order: Arc<ClusteringOrder>,
}

/// When a block is long enough.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Rows in a block.
    pub rows: usize,
    /// Bytes in a block: the row that reaches them is its last.
    pub bytes: usize,
}

impl ReadLimits {
    /// The partition in one block.
    pub const NONE: Self = Self {
        rows: usize::MAX,
        bytes: usize::MAX,
    };
}

/// How far decoding rows came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// More bytes are needed, at least so many.
    More(usize),
    /// A limit is reached.
    Cut,
    /// The next slice begins further on: a caller that has an index may skip to it, and then continues.
    Skip,
    /// Nothing more is needed from the partition, and its last byte was read.
    End,
    /// Nothing more is needed from the partition; the rest of it was not read.
    Done,
}

/// Decodes one partition after the other.
pub(crate) struct PartitionDecoder {
    shape: Shape,
    rows: RowDecoder,
    clustering: Vec<u8>,
    /// The clustering of the last item, and its side if that was a marker: items must ascend.
    last: Vec<u8>,
    last_side: Option<BoundKind>,
    has_last: bool,
    token: Token,
    key: Vec<u8>,
    block: Option<PartitionBlock>,
    /// Bytes of range tombstones in the block, for the limit.
    range_bytes: usize,
    /// Bytes of rows in the block.
    row_bytes: usize,
    /// The deletion that is open, and where in this block it starts.
    open: Option<(Tombstone, Bound)>,
    /// Sorted and disjoint; None is everything.
    slices: Option<Vec<ClusteringSlice>>,
    slice: usize,
    has_offered_skip: bool,
}

impl PartitionDecoder {
    pub(crate) fn new(shape: Shape, slices: Option<Vec<ClusteringSlice>>) -> Self {
        Self {
            shape,
            rows: RowDecoder::default(),
            clustering: Vec::new(),
            last: Vec::new(),
            last_side: None,
            has_last: false,
            token: Token::MIN,
            key: Vec::new(),
            block: None,
            range_bytes: 0,
            row_bytes: 0,
            open: None,
            slices,
            slice: 0,
            has_offered_skip: false,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn order(&self) -> &ClusteringOrder {
        &self.shape.order
    }

    /// Reads the head of a partition and its static row; how many bytes they take.
    pub(crate) fn head(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        let head = partition_head(bytes)?;
        let key = &bytes[head.key.clone()];
        let mut len = head.len;
        let token = token_of(key);
        let mut block = PartitionBlock::new(token, key);
        block.tombstone = head.tombstone;
        // A static row is there when the header lists static columns, and it says so itself.
        let flags = bytes.get(len..).unwrap_or(&[]);
        let is_static = match flags {
            [] => return Err(Stop::More(1)),
            [first, ..] if first & (crate::data::encode::flag::EXTENDED | 3) != crate::data::encode::flag::EXTENDED => {
                false
            }
            [_] => return Err(Stop::More(1)),
            [_, extended, ..] => extended & crate::data::encode::flag::STATIC != 0,
        };
        if is_static {
            let rest = &bytes[len..];
            let shifted = |d: Damage| Damage { at: d.at + len, ..d };
            let item = item_head(&self.shape.format, rest, &mut self.clustering).map_err(|stop| match stop {
                Stop::Damage(d) => Stop::Damage(shifted(d)),
                more @ Stop::More(_) => more,
            })?;
            self.rows
                .read(&self.shape.format, &self.shape.layout, rest, &item)
                .map_err(shifted)?;
            if !self.rows.is_empty() {
                let mut packed = Vec::new();
                self.rows.pack(&self.shape.layout, rest, &mut packed);
                block.set_static_row(&packed);
            }
            len += item.body.end;
        }
        self.token = token;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.begin(block);
        Ok(len)
    }

    /// Starts on a partition whose head is known from elsewhere.
    pub(crate) fn begin(&mut self, block: PartitionBlock) {
        self.token = block.token;
        self.key.clear();
        self.key.extend_from_slice(block.key());
        self.block = Some(block);
        self.range_bytes = 0;
        self.row_bytes = 0;
        self.open = None;
        self.slice = 0;
        self.has_offered_skip = false;
        self.has_last = false;
    }

    /// The slice that decoding is in or before.
    pub(crate) fn slice(&self) -> Option<&ClusteringSlice> {
        self.slices.as_ref()?.get(self.slice)
    }

    /// Continues at another position of the partition, where `open` is the deletion that is open: from `start` on.
    pub(crate) fn jump(&mut self, open: Option<(Tombstone, Bound)>) {
        self.open = open;
        self.has_last = false;
    }

    /// Starts again at the first slice: for a stretch that is further back.
    pub(crate) fn rewind(&mut self) {
        self.slice = 0;
        self.has_offered_skip = false;
    }

    /// Ends what is open at `end`: a stretch is complete up to there.
    pub(crate) fn close_open(&mut self, end: &Bound) {
        if let Some((tombstone, start)) = self.open.take() {
            self.push_range(start, end.clone(), tombstone);
        }
    }

    /// Takes the block as far as it came.
    pub(crate) fn take_block(&mut self, covered: Option<Bound>) -> PartitionBlock {
        let next = PartitionBlock::new(self.token, &self.key);
        let mut block = self.block.replace(next).expect("a partition was begun");
        self.range_bytes = 0;
        self.row_bytes = 0;
        block.covered = covered;
        block
    }

    /// Reads rows and markers until a limit, the end of the partition or the end of the bytes; how many it consumed.
    pub(crate) fn rows(&mut self, bytes: &[u8], limits: ReadLimits) -> Result<(usize, Progress), Damage> {
        let shape = self.shape.clone();
        let (format, layout, order) = (&*shape.format, &*shape.layout, &*shape.order);
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let shifted = |d: Damage| Damage { at: d.at + at, ..d };
            let item = match item_head(format, rest, &mut self.clustering) {
                Ok(item) => item,
                Err(Stop::More(n)) => return Ok((at, Progress::More(n))),
                Err(Stop::Damage(d)) => return Err(shifted(d)),
            };
            match item.kind {
                ItemKind::End => {
                    if self.open.is_some() {
                        return Err(Damage::new(
                            at,
                            "the end of a range tombstone before the end of the partition",
                        ));
                    }
                    return Ok((at + 1, Progress::End));
                }
                ItemKind::StaticRow => return Err(Damage::new(at, "no static row among the rows")),
                ItemKind::Row => {
                    if self.has_last && !self.is_ascending(order) {
                        return Err(Damage::new(at, "a row after the previous item"));
                    }
                    if self.slices.is_some() {
                        match self.place(order) {
                            SlicePosition::Inside => {}
                            SlicePosition::Behind => return Ok((at, self.finish_slices())),
                            SlicePosition::Between if !self.has_offered_skip => {
                                self.has_offered_skip = true;
                                return Ok((at, Progress::Skip));
                            }
                            SlicePosition::Between => {
                                self.remember(None);
                                at += item.body.end;
                                continue;
                            }
                        }
                    }
                    self.rows.read(format, layout, rest, &item).map_err(shifted)?;
                    if self.rows.is_empty() {
                        // All its cells are of dropped columns.
                        self.remember(None);
                        at += item.body.end;
                        continue;
                    }
                    let block = self.block.as_mut().expect("a partition was begun");
                    let rows = &self.rows;
                    let mut packed_len = 0;
                    block.push_row_with(&self.clustering, |out| {
                        let before = out.len();
                        rows.pack(layout, rest, out);
                        packed_len = out.len() - before;
                        true
                    });
                    self.row_bytes += self.clustering.len() + packed_len;
                    let is_long = block.len() >= limits.rows || self.row_bytes + self.range_bytes >= limits.bytes;
                    self.remember(None);
                    at += item.body.end;
                    if is_long {
                        return Ok((at, Progress::Cut));
                    }
                }
                ItemKind::Marker { kind, side } => {
                    let deletions = marker_deletions(format, rest, &item, kind).map_err(shifted)?;
                    let bound = Bound {
                        prefix: self.clustering[..].into(),
                        kind: side,
                    };
                    match (&self.open, deletions.ends) {
                        (None, Some(_)) => {
                            return Err(Damage::new(at, "the start of a range tombstone before its end"));
                        }
                        (Some(_), None) => return Err(Damage::new(at, "the end of a range tombstone before the next")),
                        _ => {}
                    }
                    if self.has_last && !self.may_follow(order, &bound) {
                        return Err(Damage::new(at, "a marker after the previous item"));
                    }
                    if let Some((tombstone, start)) = self.open.take() {
                        if deletions.ends != Some(tombstone) {
                            return Err(Damage::new(at, "the end of the range tombstone that is open"));
                        }
                        self.push_range(start, bound.clone(), tombstone);
                    }
                    let is_last = self.is_behind_slices(&bound);
                    self.open = deletions.begins.map(|t| (t, bound));
                    self.remember(Some(side));
                    at += item.body.end;
                    if is_last {
                        return Ok((at, self.finish_slices()));
                    }
                    if self.row_bytes + self.range_bytes >= limits.bytes {
                        return Ok((at, Progress::Cut));
                    }
                }
            }
        }
    }

    /// Whether a row with the current clustering may follow the last item.
    #[inline]
    fn is_ascending(&self, order: &ClusteringOrder) -> bool {
        let by_prefix = order.compare(&self.last, &self.clustering);
        match self.last_side {
            None => by_prefix == Ordering::Less,
            Some(side) => by_prefix.then(weight(side)) == Ordering::Less,
        }
    }

    /// Whether a marker at `bound` may follow the last item.
    fn may_follow(&self, order: &ClusteringOrder, bound: &Bound) -> bool {
        match self.last_side {
            None => bound.compare_key(order, &self.last) == Ordering::Greater,
            Some(kind) => {
                let last = Bound {
                    prefix: self.last[..].into(),
                    kind,
                };
                last.compare(order, bound) == Ordering::Less
            }
        }
    }

    #[inline]
    fn remember(&mut self, side: Option<BoundKind>) {
        std::mem::swap(&mut self.last, &mut self.clustering);
        self.last_side = side;
        self.has_last = true;
    }

    /// The position of the current row relative to the slices.
    fn place(&mut self, order: &ClusteringOrder) -> SlicePosition {
        let Some(slices) = &self.slices else {
            return SlicePosition::Inside;
        };
        while let Some(slice) = slices.get(self.slice) {
            if slice.end.compare_key(order, &self.clustering) == Ordering::Less {
                self.slice += 1;
                self.has_offered_skip = false;
            } else if slice.start.compare_key(order, &self.clustering) == Ordering::Less {
                return SlicePosition::Inside;
            } else {
                return SlicePosition::Between;
            }
        }
        SlicePosition::Behind
    }

    /// Whether no slice reaches beyond `bound`.
    fn is_behind_slices(&self, bound: &Bound) -> bool {
        let Some(slices) = &self.slices else { return false };
        slices
            .last()
            .is_none_or(|s| s.end.compare(&self.shape.order, bound) != Ordering::Greater)
    }

    /// Nothing more is needed from the partition.
    fn finish_slices(&mut self) -> Progress {
        self.close_open(&Bound::top());
        Progress::Done
    }

    /// Adds the parts of a range tombstone that lie in the slices.
    fn push_range(&mut self, start: Bound, end: Bound, tombstone: Tombstone) {
        let order = &*self.shape.order;
        let block = self.block.as_mut().expect("a partition was begun");
        let mut push = |start: Bound, end: Bound| {
            if start.compare(order, &end) == Ordering::Less {
                self.range_bytes += start.prefix.len() + end.prefix.len() + size_of::<RangeTombstone>();
                block.range_tombstones.push(RangeTombstone { start, end, tombstone });
            }
        };
        match &self.slices {
            None => push(start, end),
            Some(slices) => {
                for s in slices {
                    let from = if start.compare(order, &s.start) == Ordering::Less {
                        &s.start
                    } else {
                        &start
                    };
                    let to = if end.compare(order, &s.end) == Ordering::Greater {
                        &s.end
                    } else {
                        &end
                    };
                    push(from.clone(), to.clone());
                }
            }
        }
    }

    /// The block up to the last item, after [`Progress::Cut`]; an open deletion continues in the next block.
    pub(crate) fn cut(&mut self) -> PartitionBlock {
        let covered = Bound {
            prefix: self.last[..].into(),
            kind: self.last_side.unwrap_or(BoundKind::After),
        };
        if let Some((tombstone, start)) = self.open.take() {
            self.push_range(start, covered.clone(), tombstone);
            self.open = Some((tombstone, covered.clone()));
        }
        self.take_block(Some(covered))
    }
}

fn weight(side: BoundKind) -> Ordering {
    match side {
        BoundKind::Before => Ordering::Less,
        BoundKind::After => Ordering::Greater,
    }
}

/// The position of a row relative to the slices that are read.
enum SlicePosition {
    Inside,
    /// Before the next of them.
    Between,
    /// After all of them.
    Behind,
}
