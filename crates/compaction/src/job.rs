//! Merges sstables into new ones, on a background thread.
//!
//! What tombstones hide and what expired is dropped; a tombstone itself is dropped when its grace is over and nothing
//! outside the job is as old as it: judged for each partition by the sstables that may hold it and by the memtables.
//! Where all inputs are repaired, the outputs are, with the oldest of their marks; then a cell that expired stays as it
//! is until its grace is over (docs/dev/incremental-repair.md). The outputs are sealed and durable when the job
//! returns; nothing remains of a job that fails or is aborted. Inputs are never touched.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use mutation::compact::{Purge, compact_block};
use mutation::{PartitionBlock, Tombstone};
use schema::{IndexPart, Table};
use sstable::{EncodingBase, Meta, ReadLimits, Reader, Writer, WriterOptions};
use stdx::planted::{self, Bug};
use tasks::{Aborted, JobControl, Meter};
use types::Token;
use types::token::KeyHash;
use uuid::Uuid;

use crate::merge::Merge;

/// Bytes of a large partition that are handled at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// What to merge, and how.
pub struct Job {
    /// Of the inputs and the outputs.
    pub table: Arc<Table>,
    /// What is merged.
    pub inputs: Vec<Arc<Reader>>,
    /// Where the outputs go.
    pub dir: PathBuf,
    /// Names each output.
    pub next_generation: Box<dyn FnMut() -> sstable::Generation + Send>,
    /// In token order, none over another: tokens greater than the first of one and at most its second are rewritten;
    /// others are left out.
    pub ranges: Vec<(Token, Token)>,
    /// Seconds since the epoch.
    pub now: u32,
    /// What was deleted before this second is old enough to be forgotten.
    pub gc_before: u32,
    /// What was deleted in these seconds is kept, however old.
    pub held: Vec<RangeInclusive<u32>>,
    /// Sstables that are not merged but may hold the same partitions.
    pub overlapping: Vec<Arc<Reader>>,
    /// Least write timestamp in memtables; `i64::MAX` when they are empty. Tombstones from there on are kept.
    pub memtables_min_timestamp: i64,
    /// An output that has so many bytes of data is ended at the next partition, and another begun.
    pub output_bytes_max: u64,
    /// Of the host that writes.
    pub host_id: Option<Uuid>,
    /// Aborts and slows the job, and counts the bytes of the inputs that it has read.
    pub control: JobControl,
}

/// What a job did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes of data of the merged blocks, before compression.
    pub bytes_written: u64,
    /// Bytes of all components of the inputs.
    pub bytes_in: u64,
    /// Bytes of all components of the outputs.
    pub bytes_out: u64,
    /// Partitions written.
    pub partitions: u64,
    /// Rows written.
    pub rows: u64,
    /// Rows that the merge of the inputs had and the outputs do not.
    pub rows_dropped: u64,
}

/// What came of a job.
#[derive(Debug)]
pub struct Outcome {
    /// The new sstables, in token order; none when everything was dropped.
    pub outputs: Vec<Meta>,
    /// What it took.
    pub stats: Stats,
}

/// Why a job has no outcome.
#[derive(Debug)]
pub enum Error {
    /// An sstable could not be read or written.
    Sstable(sstable::Error),
    /// Its task was aborted.
    Aborted,
    /// The table's options ask for what is not known.
    Options(String),
}

impl From<sstable::Error> for Error {
    fn from(e: sstable::Error) -> Self {
        Self::Sstable(e)
    }
}

impl From<Aborted> for Error {
    fn from(_: Aborted) -> Self {
        Self::Aborted
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sstable(e) => e.fmt(f),
            Self::Aborted => Aborted.fmt(f),
            Self::Options(what) => write!(f, "table options: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sstable(e) => Some(e),
            _ => None,
        }
    }
}

/// Executes a job. Blocks.
///
/// # Errors
/// When an input is damaged, the disk refuses, or its task is aborted: no output remains then.
pub fn run(job: Job) -> Result<Outcome, Error> {
    let mut outputs = Outputs {
        sealed: Vec::new(),
        writer: None,
    };
    match execute(job, &mut outputs) {
        Ok(stats) => Ok(Outcome {
            outputs: outputs.sealed,
            stats,
        }),
        Err(e) => {
            drop(outputs.writer);
            for meta in outputs.sealed {
                // What cannot be deleted is found at the next start; the first error is reported.
                let _ = sstable::delete(&meta.descriptor);
            }
            Err(e)
        }
    }
}

struct Outputs {
    sealed: Vec<Meta>,
    writer: Option<Writer>,
}

impl Outputs {
    fn seal(&mut self, stats: &mut Stats) -> Result<(), Error> {
        if let Some(writer) = self.writer.take() {
            stats.bytes_written += writer.data_bytes();
            let meta = writer.finish()?;
            stats.bytes_out += meta.disk_len;
            stats.partitions += meta.partitions;
            self.sealed.push(meta);
        }
        Ok(())
    }
}

/// The options of an output, from what the inputs hold.
fn writer_options(job: &Job) -> Result<WriterOptions, Error> {
    let statistics = || job.inputs.iter().map(|r| &r.meta().statistics);
    let least_time = statistics().map(|s| s.min_deletion_time).min();
    let base = EncodingBase::of_minima(
        statistics().map(|s| s.min_timestamp).min(),
        least_time.filter(|&t| t != u32::MAX && t != i32::MAX.cast_unsigned()),
        statistics().map(|s| s.min_ttl).min(),
    );
    // As many as there may be: what several inputs have is counted for each.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    let partitions_of = |reader: &Arc<Reader>| {
        let share: f64 = job
            .ranges
            .iter()
            .map(|(after, to)| reader.share_at_most(*after, *to))
            .sum();
        (reader.meta().partitions as f64 * share.min(1.0)).ceil() as u64
    };
    let partitions: u64 = job.inputs.iter().map(partitions_of).sum();
    let mut options = WriterOptions::of_table(&job.table, partitions, base).map_err(Error::Options)?;
    options.host_id = job.host_id;
    options.repaired_at = repaired_at(job);
    options.dropped = statistics()
        .flat_map(|s| sstable::kept_columns(s, &job.table))
        .collect();
    Ok(options)
}

/// The table by whose indexes outputs list their rows.
fn listed_table(table: &Arc<Table>) -> Arc<Table> {
    if !planted::is_planted(Bug::MisplacedTerms) {
        return table.clone();
    }
    let mut other = (**table).clone();
    let key = other.columns.first().map(|column| column.name.clone());
    for index in &mut other.indexes {
        index.column.clone_from(key.as_ref().unwrap_or(&index.name));
        index.part = IndexPart::Value;
    }
    Arc::new(other)
}

/// The mark of the outputs: 0 unless all inputs have one.
fn repaired_at(job: &Job) -> i64 {
    let marks = job.inputs.iter().map(|reader| reader.repaired_at());
    marks.min().unwrap_or(0)
}

fn execute(mut job: Job, outputs: &mut Outputs) -> Result<Stats, Error> {
    // Replicas that are equal stay so, whichever of them is compacted first: an expired cell is weaker than the
    // deletion that it becomes.
    let keeps_expired = repaired_at(&job) != 0 && !planted::is_planted(Bug::RepairedCellsExpire);
    let mut stats = Stats {
        bytes_in: job.inputs.iter().map(|r| r.meta().disk_len).sum(),
        ..Stats::default()
    };
    let limits = ReadLimits {
        rows: usize::MAX,
        bytes: BLOCK_BYTES,
    };
    let options = writer_options(&job)?;
    let table = Arc::clone(&job.table);
    let listed = listed_table(&table);
    // Of the current partition: its tombstone, which covers all its blocks; what may be purged; whether it is begun.
    let mut partition_tombstone = Tombstone::NONE;
    let mut max_purgeable: Option<i64> = None;
    let mut is_continued = false;
    let mut meter = Meter::new(job.control.clone(), job.inputs.iter().map(|r| r.meta().data_len).sum());
    for (after, to) in job.ranges.clone() {
        // Not even a block is read of an input that has nothing of the range.
        meter.settle()?;
        let mut scans = Vec::with_capacity(job.inputs.len());
        for input in &job.inputs {
            if input.has_tokens_blocking(after, to)? {
                scans.push(input.scan_blocking(after, to, limits)?);
            }
        }
        let mut merge = Merge::new(scans)?;
        while let Some(mut block) = merge.next_block(&table)? {
            meter.add(block.size() as u64, merge.take_read_bytes())?;
            if is_continued {
                block.tombstone = partition_tombstone;
            } else {
                partition_tombstone = block.tombstone;
                max_purgeable = None;
                let is_full = outputs
                    .writer
                    .as_ref()
                    .is_some_and(|w| w.data_bytes() >= job.output_bytes_max);
                if is_full {
                    outputs.seal(&mut stats)?;
                }
            }
            is_continued = block.covered.is_some();
            let rows_before = block.len() as u64;
            if !is_plain(&table, &block) {
                let max_purgeable_timestamp = *max_purgeable.get_or_insert_with(|| purgeable_before(&job, &block));
                let purge = Purge {
                    now: job.now,
                    gc_before: job.gc_before,
                    max_purgeable_timestamp,
                    held: &job.held,
                    keeps_expired,
                };
                block = compact_block(&table.layout, &table.clustering_order, &block, &purge);
            }
            stats.rows += block.len() as u64;
            stats.rows_dropped += rows_before - block.len() as u64;
            let is_begun = outputs.writer.as_ref().is_some_and(Writer::is_inside_partition);
            // A partition of which nothing remains is not written; one that is begun must be ended.
            if !block.is_empty() || is_begun {
                let writer = match &mut outputs.writer {
                    Some(writer) => writer,
                    none => none.insert(Writer::create(
                        &job.dir,
                        (job.next_generation)(),
                        &listed,
                        options.clone(),
                    )?),
                };
                writer.append(&block)?;
            }
        }
    }
    meter.settle()?;
    outputs.seal(&mut stats)?;
    Ok(stats)
}

/// Whether nothing in a block can be hidden, expired or forgotten: the common case, which is written as it is.
fn is_plain(table: &Table, block: &PartitionBlock) -> bool {
    block.tombstone.is_none()
        && block.range_tombstones.is_empty()
        && !table.layout.has_complex()
        && block.static_row().is_none_or(|row| row.is_uniform() && row.ttl == 0)
        && block.rows().all(|(_, row)| row.is_uniform() && row.ttl == 0)
}

/// Tombstones of the block's partition below this write timestamp have nothing left to cover outside the job.
fn purgeable_before(job: &Job, block: &PartitionBlock) -> i64 {
    let hash = KeyHash::of(block.key());
    job.overlapping
        .iter()
        .filter(|r| r.may_contain(hash))
        .map(|r| r.meta().statistics.min_timestamp)
        .fold(job.memtables_min_timestamp, i64::min)
}
