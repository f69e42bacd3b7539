//! What is recorded of requests for a table on one shard: latencies, what reads meet, and while an operator asks, which
//! partitions they name.
//!
//! Memory for the histograms (6 KiB) is taken with the first request that is recorded.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use stdx::histogram::{Histogram, buckets_of};

use crate::metrics::top_partitions::Sampler;

/// Microseconds or counts, in buckets that are each a quarter wider than the one before at most.
pub type TableHistogram = Histogram<2, { buckets_of(2, 34) }>;

/// See the module.
#[derive(Debug, Default)]
pub struct TableMetrics {
    /// Of all tables of the shard.
    requests: Rc<Requests>,
    recorded: OnceCell<Box<Recorded>>,
    is_sampled: Cell<bool>,
    samplers: RefCell<Option<Samplers>>,
}

/// Reads and writes of partitions that a shard took up, of all tables.
#[derive(Debug, Default)]
struct Requests(Cell<u64>);

impl Requests {
    #[inline]
    fn count(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// Those of this shard. Some tests make tables outside of any.
    fn local() -> Rc<Self> {
        if runtime::try_shard().is_none() {
            return Rc::default();
        }
        runtime::local().unwrap_or_else(|| {
            runtime::set_local(Rc::<Self>::default());
            runtime::local().expect("it was set just now")
        })
    }
}

/// Reads and writes of partitions that this shard has taken up since its start. Work that runs beside them uses it to
/// see whether there are any.
#[must_use]
pub fn requests() -> u64 {
    Requests::local().0.get()
}

/// Histograms of a table on one shard.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Latencies of reads of one partition that this shard coordinated, in microseconds.
    pub reads: TableHistogram,
    /// Latencies of reads of more than one partition that this shard coordinated, in microseconds.
    pub scans: TableHistogram,
    /// Latencies of writes that this shard coordinated, in microseconds.
    pub writes: TableHistogram,
    /// Sstables that were read from, of each read of a partition.
    pub sstables_per_read: TableHistogram,
    /// Dead rows and range tombstones that were read, of each read of a partition that is not one row in memory.
    pub tombstones_per_read: TableHistogram,
    /// Living rows, of the same reads.
    pub rows_per_read: TableHistogram,
}

/// What operators want to know of partitions.
#[derive(Clone, Debug)]
pub struct Samplers {
    /// Of reads.
    pub reads: Sampler,
    /// Of writes.
    pub writes: Sampler,
}

impl TableMetrics {
    /// Of a table of this shard.
    pub(crate) fn of_this_shard() -> Self {
        Self {
            requests: Requests::local(),
            ..Self::default()
        }
    }

    /// The histograms.
    pub fn recorded(&self) -> &Recorded {
        self.recorded.get_or_init(Box::default)
    }

    /// The histograms, if anything was recorded.
    pub fn recorded_so_far(&self) -> Option<&Recorded> {
        self.recorded.get().map(|recorded| &**recorded)
    }

    /// A partition was read, by so many sstables, which had so many living rows and tombstones of it.
    pub fn note_partition_read(&self, sstables: u64, (rows, tombstones): (u64, u64)) {
        let recorded = self.recorded();
        recorded.sstables_per_read.add(sstables, 1);
        recorded.rows_per_read.add(rows, 1);
        recorded.tombstones_per_read.add(tombstones, 1);
    }

    /// A row that is not in memory was read from so many sstables.
    pub fn note_row_read(&self, sstables: u64) {
        self.recorded().sstables_per_read.add(sstables, 1);
    }

    /// Begins to count partitions, so many of each kind of request. False if they are already being counted.
    pub fn begin_sampling(&self, capacity: usize) -> bool {
        let mut samplers = self.samplers.borrow_mut();
        if samplers.is_some() {
            return false;
        }
        *samplers = Some(Samplers {
            reads: Sampler::new(capacity),
            writes: Sampler::new(capacity),
        });
        self.is_sampled.set(true);
        true
    }

    /// Ends counting; what was counted.
    pub fn end_sampling(&self) -> Option<Samplers> {
        self.is_sampled.set(false);
        self.samplers.take()
    }

    /// A partition is read.
    #[inline]
    pub fn note_read(&self, key: &[u8]) {
        self.requests.count();
        if self.is_sampled.get() {
            self.sample(key, |samplers| &mut samplers.reads);
        }
    }

    /// A partition is written.
    #[inline]
    pub fn note_write(&self, key: &[u8]) {
        self.requests.count();
        if self.is_sampled.get() {
            self.sample(key, |samplers| &mut samplers.writes);
        }
    }

    #[cold]
    fn sample(&self, key: &[u8], kind: impl FnOnce(&mut Samplers) -> &mut Sampler) {
        if let Some(samplers) = &mut *self.samplers.borrow_mut() {
            kind(samplers).add(key);
        }
    }
}
