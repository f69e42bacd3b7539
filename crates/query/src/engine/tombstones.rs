//! How many tombstones a page of a read may meet before its client is warned, before the page ends, and before the read
//! fails; and how many living rows it may examine in vain.
//!
//! A [`TombstoneCount`] travels with the consumer of a page from shard to shard. It counts after the replicas' answers
//! are merged: rows of which nothing lives, range tombstones, deleted partitions. Deleted cells of living rows are not
//! counted, and a read of one row by its whole key counts nothing. Rows that live cost nothing: the count is touched
//! only where a tombstone is met.
//!
//! A page is cut after a row or a partition, so the coordinator cuts it, not the replicas: each replica answers stretch
//! by stretch, and what one has not answered for is asked again.

use plan::SelectPlan;
use schema::Table;

use super::Engine;
use crate::QueryError;

/// The limits of a page; [`u64::MAX`] is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLimits {
    /// The client is warned of more than so many.
    pub warn: u64,
    /// The read fails at more than so many.
    pub failure: u64,
    /// A page ends after so many; even without a row, if the client takes empty pages.
    pub page: u64,
    /// A page ends after so many living rows and partitions that are no part of the result; even without a row, if the
    /// client takes empty pages.
    pub rejected: u64,
    /// A page ends when it has so many bytes, whatever its number of rows.
    pub page_bytes: u64,
    /// Of a read without pages: the bytes of its result above which its client is warned.
    pub unpaged_bytes_warn: u64,
    /// The bytes of a result above which the read fails. A page ends long before that, unless one row is so large.
    pub result_bytes: u64,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self {
            warn: 1_000,
            failure: 100_000,
            page: 10_000,
            rejected: 100_000,
            page_bytes: 1 << 20,
            unpaged_bytes_warn: u64::MAX,
            result_bytes: 64 << 20,
        }
    }
}

impl PageLimits {
    /// Those of a read whose pages clients ask for one by one, or that is answered at once. An aggregate over many rows
    /// is one page, however much it reads: its time limits it.
    pub(super) fn for_select(self, plan: &SelectPlan, is_paged: bool) -> Self {
        let is_aggregate = plan.selection.is_aggregate() || !plan.group_by.is_empty();
        let is_cut = !is_aggregate && plan.sorted.is_none() && is_paged;
        let of_cut = |limit: u64| if is_cut { limit } else { u64::MAX };
        Self {
            warn: self.warn,
            failure: if is_aggregate { u64::MAX } else { self.failure },
            page: of_cut(self.page),
            rejected: of_cut(self.rejected),
            ..self
        }
    }
}

/// What a page meets that is no part of its result.
#[derive(Debug)]
pub(super) struct TombstoneCount {
    count: u64,
    /// Living rows that the statement does not ask for, and partitions of which it gives no row.
    rejected: u64,
    limits: PageLimits,
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
    /// Counts without any limit.
    pub(super) const UNLIMITED: Self = Self::new(PageLimits {
        warn: u64::MAX,
        failure: u64::MAX,
        page: u64::MAX,
        rejected: u64::MAX,
        page_bytes: u64::MAX,
        unpaged_bytes_warn: u64::MAX,
        result_bytes: u64::MAX,
    });

    pub(super) const fn new(limits: PageLimits) -> Self {
        Self {
            count: 0,
            rejected: 0,
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

    /// Counts a living row, or a partition, that is no part of the result.
    pub(super) const fn reject(&mut self) {
        self.rejected += 1;
    }

    /// Whether the page has met as much as it may without ending.
    pub(super) const fn is_page_full(&self) -> bool {
        self.count >= self.limits.page || self.rejected >= self.limits.rejected
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

impl Engine {
    /// Logs and counts that a page met many tombstones. Returns the warning for its client.
    #[cold]
    pub(super) fn warn_of_tombstones(&self, table: &Table, warning: &TombstoneWarning) -> String {
        let (warned, failed) = self.tombstone_excesses.get();
        self.tombstone_excesses.set((warned + 1, failed));
        let text = warning.text(table);
        if self.tombstone_log.admits() {
            log::warn!("{text}");
        }
        text
    }

    /// Logs and counts that a read failed for its tombstones.
    #[cold]
    pub(super) fn note_too_many_tombstones(&self, reason: &str) {
        let (warned, failed) = self.tombstone_excesses.get();
        self.tombstone_excesses.set((warned, failed + 1));
        if self.tombstone_log.admits() {
            log::warn!("{reason}");
        }
    }
}

/// The most characters of a key in a message.
const KEY_CHARS_MAX: usize = 256;

/// A partition key as conditions: `a = 1 AND b = 'x'`.
pub(crate) fn key_text(table: &Table, key: &[u8]) -> String {
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
