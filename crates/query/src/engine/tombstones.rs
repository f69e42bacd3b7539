//! How many tombstones a page of a read may meet before its client is warned, before the page ends, and before the read fails.
//!
//! A [`TombstoneCount`] travels with the consumer of a page from shard to shard. It counts what the replicas' answers come to when they are merged: rows of
//! which nothing lives, range tombstones, deleted partitions. Deleted cells of living rows are not counted, and a read of one row by its whole key counts nothing. Rows
//! that live cost nothing: the count is touched only where a tombstone is met.
//!
//! A page is cut behind a row or a partition, so the coordinator cuts it, not the replicas: each of these answers stretch by stretch, and whatever one has not answered
//! for is asked again.

use std::cell::Cell;
use std::time::Duration;

use plan::SelectPlan;
use runtime::Instant;
use schema::Table;

use super::Engine;
use crate::QueryError;

/// The limits of a page; [`u64::MAX`] is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TombstoneLimits {
    /// The client is warned of more than so many.
    pub warn: u64,
    /// The read fails at more than so many.
    pub failure: u64,
    /// A page ends behind so many, even if it has no row.
    pub page: u64,
}

impl Default for TombstoneLimits {
    fn default() -> Self {
        Self {
            warn: 1_000,
            failure: 100_000,
            page: 10_000,
        }
    }
}

impl TombstoneLimits {
    /// Those of a read whose pages clients ask for one by one, or that is answered at once. An aggregate over many rows is one page, however much it reads: its time limits it.
    pub(super) fn for_select(self, plan: &SelectPlan, is_paged: bool) -> Self {
        let is_aggregate = plan.selection.is_aggregate() || !plan.group_by.is_empty();
        Self {
            failure: if is_aggregate { u64::MAX } else { self.failure },
            page: if is_aggregate || plan.sorted.is_some() || !is_paged {
                u64::MAX
            } else {
                self.page
            },
            ..self
        }
    }
}

/// The tombstones of one page.
#[derive(Debug)]
pub(super) struct TombstoneCount {
    count: u64,
    limits: TombstoneLimits,
    /// The partition in which the warning's threshold was passed.
    warned_of: Option<Vec<u8>>,
}

/// What a client should know of a page that met many tombstones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TombstoneWarning {
    /// How many.
    pub tombstones: u64,
    /// The rows of the page.
    pub rows: u32,
    /// The partition in which they became too many.
    pub key: Vec<u8>,
}

impl TombstoneCount {
    /// Counts for nobody.
    pub(super) const UNLIMITED: Self = Self::new(TombstoneLimits {
        warn: u64::MAX,
        failure: u64::MAX,
        page: u64::MAX,
    });

    pub(super) const fn new(limits: TombstoneLimits) -> Self {
        Self {
            count: 0,
            limits,
            warned_of: None,
        }
    }

    /// Counts some of a partition.
    ///
    /// # Errors
    /// When they are more than a read may meet.
    pub(super) fn add(&mut self, more: u64, table: &Table, key: &[u8]) -> Result<(), QueryError> {
        self.count += more;
        if self.count > self.limits.warn && self.warned_of.is_none() {
            self.warned_of = Some(key.to_vec());
        }
        if self.count <= self.limits.failure {
            return Ok(());
        }
        Err(QueryError::TooManyTombstones(format!(
            "Scanned over {} tombstones of {}.{}, at last in the partition {}; the read was aborted (see tombstone_failure_threshold)",
            self.count,
            table.keyspace,
            table.name,
            key_text(table, key)
        )))
    }

    /// Whether the page should end.
    pub(super) const fn is_page_full(&self) -> bool {
        self.count >= self.limits.page
    }

    /// What to warn of at the end of a page of so many rows.
    pub(super) fn warning(self, rows: u32) -> Option<TombstoneWarning> {
        let tombstones = self.count;
        self.warned_of.map(|key| TombstoneWarning { tombstones, rows, key })
    }
}

impl TombstoneWarning {
    /// The text for the client and the log.
    pub fn text(&self, table: &Table) -> String {
        format!(
            "Read {} rows and {} tombstones of {}.{}, many of them in the partition {} (see tombstone_warn_threshold)",
            self.rows,
            self.tombstones,
            table.keyspace,
            table.name,
            key_text(table, &self.key)
        )
    }
}

/// How many lines about tombstones a shard writes in a period.
const LINES_MAX: u32 = 10;
const LINES_PERIOD: Duration = Duration::from_mins(1);

/// A shard's lines about tombstones: a period has its share, and the rest is counted.
#[derive(Default)]
pub(super) struct WarningLog {
    period_began: Cell<Option<Instant>>,
    /// Those of the period, written or not.
    seen: Cell<u32>,
}

impl WarningLog {
    fn log(&self, text: &str) {
        let now = runtime::now();
        let is_over = |began: Instant| now.saturating_duration_since(began) >= LINES_PERIOD;
        if self.period_began.get().is_none_or(is_over) {
            let unlogged = self.seen.replace(0).saturating_sub(LINES_MAX);
            self.period_began.set(Some(now));
            if unlogged > 0 {
                log::warn!("{unlogged} more reads of many tombstones are not logged");
            }
        }
        self.seen.set(self.seen.get().saturating_add(1));
        if self.seen.get() <= LINES_MAX {
            log::warn!("{text}");
        }
    }
}

impl Engine {
    /// Logs and counts that a page met many tombstones. What its client is to be told.
    #[cold]
    pub(super) fn warn_of_tombstones(&self, table: &Table, warning: &TombstoneWarning) -> String {
        let (warned, failed) = self.tombstone_excesses.get();
        self.tombstone_excesses.set((warned + 1, failed));
        let text = warning.text(table);
        self.tombstone_log.log(&text);
        text
    }

    /// Logs and counts that a read failed for its tombstones.
    #[cold]
    pub(super) fn note_too_many_tombstones(&self, reason: &str) {
        let (warned, failed) = self.tombstone_excesses.get();
        self.tombstone_excesses.set((warned, failed + 1));
        self.tombstone_log.log(reason);
    }
}

/// The most characters of a key in a message.
const KEY_CHARS_MAX: usize = 256;

/// A partition key as conditions: `a = 1 AND b = 'x'`.
fn key_text(table: &Table, key: &[u8]) -> String {
    let mut parts = Vec::new();
    for (position, column) in table.partition_key().enumerate() {
        let Some(value) = plan::key_component(table, key, position) else {
            break;
        };
        parts.push(format!("{} = {}", column.name, column.cql_type.format(value)));
    }
    let text = parts.join(" AND ");
    match text.char_indices().nth(KEY_CHARS_MAX) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}
