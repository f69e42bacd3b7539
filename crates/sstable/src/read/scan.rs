//! Reads all partitions of a file, or of a token range, in order.

use std::sync::Arc;

use memory::RowMemory;
use mutation::PartitionBlock;
use types::Token;
use types::token::token_of;

use crate::big::index::Entry;
use crate::big::summary::{Sample, Summary};
use crate::data::chunks::Chunks;
use crate::data::decode::Stop;
use crate::data::window::{PartitionDecoder, Progress, ReadLimits, Window};
use crate::error::Error;
use crate::read::reader::Reader;
use crate::read::row_memory;

/// Bytes of data, before compression, that one read of a scan asks for.
const READ_AHEAD_BLOCKING: u64 = 512 << 10;
const READ_AHEAD: u64 = 128 << 10;
/// Consumed bytes that a window keeps before it is compacted.
const SLACK: usize = 64 << 10;

/// What both kinds of scan share: everything except fetching bytes.
struct Scan {
    reader: Arc<Reader>,
    window: Window,
    decoder: PartitionDecoder,
    limits: ReadLimits,
    to: Token,
    is_inside: bool,
    is_done: bool,
    /// The partition before the current one; none at first.
    last_token: Option<Token>,
    last_key: Vec<u8>,
}

/// Result of a step of a scan.
enum Step {
    /// So many more bytes are needed.
    Fetch(usize),
    Block(PartitionBlock),
    End,
}

impl Scan {
    fn new(reader: Arc<Reader>, start: Option<u64>, to: Token, limits: ReadLimits) -> Self {
        let mut window = Window::default();
        if let Some(start) = start {
            window.seek(start, &reader.data);
        }
        let decoder = PartitionDecoder::new(reader.shape.clone(), None);
        Self {
            window,
            decoder,
            limits,
            to,
            is_inside: false,
            is_done: start.is_none(),
            last_token: None,
            last_key: Vec::new(),
            reader,
        }
    }

    fn step(&mut self) -> Result<Step, Error> {
        let data = &self.reader.data;
        let path = data.path();
        loop {
            if self.is_done {
                return Ok(Step::End);
            }
            let base = self.window.position();
            if !self.is_inside {
                if base >= data.len() {
                    self.is_done = true;
                    continue;
                }
                match self.decoder.head(self.window.rest()) {
                    Ok(len) => {
                        let this = (self.decoder.token(), self.decoder.key());
                        if self.last_token.is_some_and(|t| (t, &self.last_key[..]) >= this) {
                            return Err(Error::damaged(path, base, "a partition after the previous one"));
                        }
                        self.last_token = Some(this.0);
                        self.last_key.clear();
                        self.last_key.extend_from_slice(this.1);
                        if self.decoder.token() > self.to {
                            self.is_done = true;
                            continue;
                        }
                        self.window.consume(len);
                        self.is_inside = true;
                    }
                    Err(Stop::More(n)) => return self.window.want(n, data).map(Step::Fetch),
                    Err(Stop::Damage(d)) => return Err(d.in_file(path, base)),
                }
                continue;
            }
            let (consumed, progress) = stdx::preempt::allowed(|| self.decoder.rows(self.window.rest(), self.limits))
                .map_err(|d| d.in_file(path, base))?;
            self.window.consume(consumed);
            match progress {
                Progress::More(n) => return self.window.want(n, data).map(Step::Fetch),
                Progress::Cut => return Ok(Step::Block(self.decoder.cut())),
                Progress::End => {
                    self.is_inside = false;
                    return Ok(Step::Block(self.decoder.take_block(None)));
                }
                Progress::Skip | Progress::Done => unreachable!("a scan has no slices"),
            }
        }
    }
}

/// A scan for background threads: compaction and tools.
pub struct BlockingScan {
    scan: Scan,
    raw: Vec<u8>,
}

impl BlockingScan {
    pub(crate) fn new(reader: Arc<Reader>, start: Option<u64>, to: Token, limits: ReadLimits) -> Self {
        Self {
            scan: Scan::new(reader, start, to, limits),
            raw: Vec::new(),
        }
    }

    /// The next partition, or the next part of one; None at the end.
    ///
    /// # Errors
    /// When the disk refuses, or the data is damaged.
    pub fn next_block(&mut self) -> Result<Option<PartitionBlock>, Error> {
        loop {
            let wanted = match self.scan.step()? {
                Step::Block(block) => return Ok(Some(block)),
                Step::End => return Ok(None),
                Step::Fetch(n) => n,
            };
            let (window, data) = (&mut self.scan.window, &self.scan.reader.data);
            window.compact();
            let len = window.bytes.len() + wanted;
            while window.bytes.len() < len {
                let chunks =
                    data.read_blocking(window.next_chunk, READ_AHEAD_BLOCKING, &mut self.raw, &mut window.bytes)?;
                window.next_chunk += chunks;
            }
        }
    }

    /// Where in the data the scan is.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.scan.window.position()
    }
}

/// A scan for a shard's thread. It passes by the cache, so that it displaces nothing there.
pub struct ScanCursor {
    scan: Scan,
    row_memory: Option<Arc<dyn RowMemory>>,
}

impl ScanCursor {
    pub(crate) fn new(reader: Arc<Reader>, start: Option<u64>, to: Token, limits: ReadLimits) -> Self {
        Self {
            scan: Scan::new(reader, start, to, limits),
            row_memory: None,
        }
    }

    /// Sets where memory for long rows is reserved before they are read; without it, they are read at once.
    pub fn set_row_memory(&mut self, row_memory: Option<Arc<dyn RowMemory>>) {
        self.row_memory = row_memory;
    }

    /// The next partition, or the next part of one; None at the end.
    ///
    /// # Errors
    /// When the disk refuses, or the data is damaged.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, Error> {
        loop {
            let wanted = match self.scan.step()? {
                Step::Block(block) => return Ok(Some(block)),
                Step::End => return Ok(None),
                Step::Fetch(n) => n,
            };
            let (window, data) = (&mut self.scan.window, &self.scan.reader.data);
            let item_bytes = window.rest().len().saturating_add(wanted);
            row_memory::reserve(self.row_memory.as_ref(), item_bytes, data.path()).await?;
            if window.bytes.len() > SLACK {
                window.compact();
            }
            let len = window.bytes.len() + wanted;
            window.bytes.reserve(wanted);
            while window.bytes.len() < len {
                window.next_chunk += data.read(window.next_chunk, READ_AHEAD, &mut window.bytes).await?;
            }
        }
    }
}

/// Makes a summary from the index, where a file has none. Blocks.
pub(crate) fn summarize(index: &Chunks, interval: u32) -> Result<Summary, Error> {
    let interval = interval.max(1);
    let mut summary = Summary {
        interval,
        samples: Vec::new(),
        first_key: Box::default(),
        last_key: Box::default(),
    };
    let mut n = 0u64;
    for_each_entry(index, |position, entry| {
        if n.is_multiple_of(u64::from(interval)) {
            summary.samples.push(Sample {
                token: token_of(entry.key),
                key: entry.key.into(),
                position,
            });
        }
        if n == 0 {
            summary.first_key = entry.key.into();
        }
        summary.last_key = entry.key.into();
        n += 1;
        Ok(())
    })?;
    Ok(summary)
}

/// Calls `f` with the position of each entry of Index.db and the entry. Blocks.
pub(crate) fn for_each_entry(
    index: &Chunks,
    mut f: impl FnMut(u64, &Entry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut window, mut raw) = (Window::default(), Vec::new());
    while window.position() < index.len() {
        let position = window.position();
        let next = match Entry::read(window.rest()) {
            Ok(entry) => {
                f(position, &entry)?;
                (entry.promoted.0 as u64).saturating_add(entry.promoted.1 as u64)
            }
            Err(t) => {
                let wanted = t.at.saturating_add(t.wanted).saturating_sub(window.rest().len()).max(1);
                let wanted = window.want(wanted, index)?;
                window.compact();
                let len = window.bytes.len() + wanted;
                while window.bytes.len() < len {
                    window.next_chunk +=
                        index.read_blocking(window.next_chunk, READ_AHEAD_BLOCKING, &mut raw, &mut window.bytes)?;
                }
                continue;
            }
        };
        let next = position.saturating_add(next);
        if next > index.len() {
            return Err(Error::damaged(index.path(), position, "an index entry inside the file"));
        }
        window.seek(next, index);
    }
    Ok(())
}
