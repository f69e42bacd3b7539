//! What the node's flushes and compactions have done, for the log.
//!
//! Each flush and each compaction is a line at DEBUG. At INFO there is a summary of a period: it begins with the first
//! of them, ends [`PERIOD`] later or when the node drains, and a period without any has no line. One value serves the
//! node; all of its shards add to it.

use std::collections::BTreeSet;
use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::{Instant, SharedNotify};
use schema::{Table, TableId};
use sstable::Reader;
use stdx::size;

/// How long a summary waits for more after what it begins with.
const PERIOD: Duration = Duration::from_secs(60);

/// What was flushed and compacted since the last summary.
#[derive(Default)]
struct Totals {
    began: Option<Instant>,
    flushes: Flushes,
    compactions: Compactions,
}

#[derive(Default)]
struct Flushes {
    memtables: usize,
    tables: BTreeSet<TableId>,
    written_bytes: u64,
}

#[derive(Default)]
struct Compactions {
    count: usize,
    tables: BTreeSet<TableId>,
    inputs: usize,
    input_bytes: u64,
    outputs: usize,
    output_bytes: u64,
}

/// A count with its noun.
struct Count(usize, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        write!(f, "{count} {noun}{}", if *count == 1 { "" } else { "s" })
    }
}

/// The flushes and compactions of a node.
#[derive(Default)]
pub struct Activity {
    totals: Mutex<Totals>,
    changed: SharedNotify,
}

fn bytes_of(sstables: &[impl AsRef<Reader>]) -> u64 {
    sstables.iter().map(|reader| reader.as_ref().meta().data_len).sum()
}

fn names_of(sstables: &[impl AsRef<Reader>]) -> String {
    let names = sstables.iter().map(|reader| {
        let path = reader.as_ref().descriptor().path(sstable::Component::Data);
        path.file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    });
    names.collect::<Vec<_>>().join(", ")
}

impl Activity {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, change: impl FnOnce(&mut Totals)) {
        let mut totals = self.totals();
        let is_first = totals.began.is_none();
        totals.began.get_or_insert_with(runtime::now);
        change(&mut totals);
        drop(totals);
        if is_first {
            self.changed.notify_all();
        }
    }

    /// A memtable of so many bytes is in an sstable.
    pub(crate) fn flushed<R: AsRef<Reader>>(
        &self,
        table: &Table,
        memtable_bytes: usize,
        written: &[R],
        began: Instant,
    ) {
        let written_bytes: u64 = written.iter().map(|reader| reader.as_ref().meta().data_len).sum();
        log::debug!(
            "flushed a memtable of {}.{}: {} in memory, {written_bytes} bytes in {}, {:?}",
            table.keyspace,
            table.name,
            size::text(memtable_bytes as u64),
            names_of(written),
            began.elapsed()
        );
        self.add(|Totals { flushes, .. }| {
            flushes.memtables += 1;
            flushes.tables.insert(table.id);
            flushes.written_bytes += written_bytes;
        });
    }

    /// Sstables have taken the place of others.
    pub(crate) fn compacted<R: AsRef<Reader>>(&self, table: &Table, inputs: &[R], outputs: &[R], began: Instant) {
        let (input_bytes, output_bytes) = (bytes_of(inputs), bytes_of(outputs));
        log::debug!(
            "compacted {}.{}: {input_bytes} bytes of [{}] into {output_bytes} bytes of [{}], {:?}",
            table.keyspace,
            table.name,
            names_of(inputs),
            names_of(outputs),
            began.elapsed()
        );
        self.add(|Totals { compactions, .. }| {
            compactions.count += 1;
            compactions.tables.insert(table.id);
            compactions.inputs += inputs.len();
            compactions.input_bytes += input_bytes;
            compactions.outputs += outputs.len();
            compactions.output_bytes += output_bytes;
        });
    }

    /// Logs a summary for each period in which something happened. Spawn this on one shard; it never returns.
    pub async fn report(&self) {
        loop {
            self.changed.until(|| self.totals().began.is_some()).await;
            runtime::sleep(PERIOD).await;
            self.summarize();
        }
    }

    /// Logs what was not in a summary yet.
    pub fn summarize(&self) {
        let Totals {
            began: Some(began),
            flushes,
            compactions,
        } = mem::take(&mut *self.totals())
        else {
            return;
        };
        let seconds = began.elapsed().as_secs_f64();
        if flushes.memtables > 0 {
            log::info!(
                "flushed {} of {}, {}, in {seconds:.0} s",
                Count(flushes.memtables, "memtable"),
                Count(flushes.tables.len(), "table"),
                size::text(flushes.written_bytes)
            );
        }
        if compactions.count > 0 {
            log::info!(
                "ran {} of {} in {seconds:.0} s: {}, {}, became {}, {}",
                Count(compactions.count, "compaction"),
                Count(compactions.tables.len(), "table"),
                Count(compactions.inputs, "sstable"),
                size::text(compactions.input_bytes),
                Count(compactions.outputs, "sstable"),
                size::text(compactions.output_bytes)
            );
        }
    }
}
