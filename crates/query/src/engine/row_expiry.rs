//! Deletes the rows of a table whose TTL column says that they have expired; docs/dev/row-expiry.md.
//!
//! A local copy shows which rows may have expired. Each of them is read again from a quorum, and what has expired by
//! that answer is deleted with the timestamp of the newest write in it: a write that is missing there is newer, and
//! stays.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{Atomicity, Deadline, Extent, Mutations, ReplicatedRead, Stretch, WriteKind};
use mutation::compact::{LiveColumn, LiveRow};
use mutation::row::Shared;
use mutation::{Addressed, Bound, ClusteringSlice, MutationBuilder, PartitionBlock, RowBuilder, RowView, Tombstone};
use schema::{ColumnId, Table};
use stdx::planted::{self, Bug};
use topology::Consistency;
use types::{CqlType, Token};

use super::Engine;
use super::aggregate_part::first_of;
use super::read::{BLOCK_BYTES, successor};
use crate::QueryError;

/// Rows that one round of requests reads.
const STRETCH_ROWS: usize = 1000;
/// How long one read may run.
const STEP_MAX: Duration = Duration::from_secs(1);
/// Rows of one partition that are read again and deleted at once.
const ROWS_AT_ONCE: usize = 256;

/// What came of looking through a range.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExpiredRows {
    /// Living rows that were looked at.
    pub looked_at: u64,
    /// Rows that were deleted.
    pub deleted: u64,
}

/// Where a look continues: at a partition, or after a place inside it.
type Place = ((Token, Vec<u8>), Option<Bound>);

/// The TTL column, and the moment of which it is asked whether rows have expired.
struct Clock {
    column: ColumnId,
    cql_type: CqlType,
    /// Milliseconds since the epoch.
    now_ms: i64,
}

impl Clock {
    fn now(table: &Table) -> Option<Self> {
        let column = table.ttl_column()?;
        Some(Self {
            column: column.id,
            cql_type: column.cql_type.clone(),
            now_ms: runtime::wall_clock_us() / 1000,
        })
    }

    /// That moment in seconds, the unit of time in cells.
    fn second(&self) -> u32 {
        u32::try_from(self.now_ms / 1000).unwrap_or(0)
    }

    /// Whether a value of the column lies in the past. Empty ones say nothing.
    fn has_passed(&self, value: &[u8]) -> bool {
        let seconds = |seconds: i64| seconds.saturating_mul(1000);
        let expires_ms = match self.cql_type {
            CqlType::Timestamp => value.try_into().ok().map(i64::from_be_bytes),
            CqlType::BigInt => value.try_into().ok().map(i64::from_be_bytes).map(seconds),
            CqlType::Int => value.try_into().ok().map(i32::from_be_bytes).map(|s| seconds(s.into())),
            _ => None,
        };
        expires_ms.is_some_and(|at| at <= self.now_ms)
    }

    fn has_expired(&self, row: LiveRow<'_>) -> bool {
        let mut columns = row.columns();
        let value = columns.find(|(id, _)| *id == usize::from(self.column.0));
        matches!(value, Some((_, LiveColumn::Simple(cell))) if self.has_passed(cell.value))
    }
}

impl Engine {
    /// Looks through the rows of a range of tokens, `after < token <= to`, and deletes those that have expired.
    /// Nothing, if no column says when rows do.
    ///
    /// # Errors
    /// When a quorum of a row's replicas does not answer: what was deleted before stays deleted.
    pub async fn expire_rows(
        self: &Rc<Self>,
        table: &Arc<Table>,
        (after, to): (Token, Token),
    ) -> Result<ExpiredRows, QueryError> {
        let mut counts = ExpiredRows::default();
        let Some(clock) = Clock::now(table) else {
            return Ok(counts);
        };
        let mut place = Some(((first_of(after), Vec::new()), None));
        while let Some((from, inside)) = place.take() {
            let extent = Extent::Tokens {
                after,
                to,
                from,
                inside,
            };
            place = self.expire_step(table, extent, &clock, &mut counts).await?;
        }
        Ok(counts)
    }

    /// Looks at rows for [`STEP_MAX`], and returns where to continue. A change of where data is waits for each read
    /// that began before it; so no read is long.
    async fn expire_step(
        self: &Rc<Self>,
        table: &Arc<Table>,
        extent: Extent,
        clock: &Clock,
        counts: &mut ExpiredRows,
    ) -> Result<Option<Place>, QueryError> {
        let until = runtime::now() + STEP_MAX;
        let mut read = self.blocks(table, Consistency::One, extent, clock)?;
        while let Some(block) = read.next_block().await.map_err(QueryError::of_replicas)? {
            let mut suspects = Vec::new();
            for_each_living(table, &block, clock.second(), |clustering, _, live| {
                counts.looked_at += 1;
                if clock.has_expired(live) {
                    suspects.push(clustering.to_vec());
                }
            });
            for rows in suspects.chunks(ROWS_AT_ONCE) {
                counts.deleted += self.delete_expired(table, block.key(), rows, clock).await?;
            }
            if runtime::now() >= until {
                let key = block.key().to_vec();
                return Ok(Some(match block.covered {
                    Some(bound) => ((block.token, key), Some(bound)),
                    None => ((block.token, successor(key)), None),
                }));
            }
            runtime::give_way().await;
        }
        Ok(None)
    }

    /// Deletes those of some rows of a partition that have expired by the word of a quorum. How many they were.
    async fn delete_expired(
        self: &Rc<Self>,
        table: &Arc<Table>,
        key: &[u8],
        rows: &[Vec<u8>],
        clock: &Clock,
    ) -> Result<u64, QueryError> {
        let dated = self.coordinator.writes.date(Consistency::Quorum, Deadline::USUAL);
        // The look through the range may have begun long ago: reports have passed that second.
        let second = u32::try_from(dated.now_us() / 1_000_000).unwrap_or(0);
        let extent = Extent::Partition {
            key: key.to_vec(),
            slices: rows.iter().map(|row| ClusteringSlice::exactly(row)).collect(),
            reversed: false,
        };
        let level = if planted::is_planted(Bug::UnconfirmedExpiry) {
            Consistency::One
        } else {
            Consistency::Quorum
        };
        let mut read = self.blocks(table, level, extent, clock)?;
        let mut deletions = Mutations::new();
        let mut deleted = 0;
        while let Some(block) = read.next_block().await.map_err(QueryError::of_replicas)? {
            let mut bytes = Vec::new();
            let mut mutation = MutationBuilder::begin(&mut bytes, table.id, key);
            let before = deleted;
            for_each_living(table, &block, clock.second(), |clustering, row, live| {
                if clock.has_expired(live) {
                    deleted += 1;
                    let tombstone = Tombstone {
                        timestamp: row.max_timestamp(&table.layout),
                        deletion_time: second,
                    };
                    delete(table, &mut mutation, clustering, tombstone);
                }
            });
            if deleted > before {
                deletions.push(Addressed::at(block.token, bytes).expect("it was packed just now"));
            }
        }
        if deleted > 0 {
            let written = self
                .coordinator
                .writes
                .write(deletions, &dated, WriteKind::Simple, Atomicity::Share)
                .await;
            written.map_err(QueryError::of_replicas)?;
        }
        Ok(deleted)
    }

    fn blocks(
        &self,
        table: &Arc<Table>,
        level: Consistency,
        extent: Extent,
        clock: &Clock,
    ) -> Result<ReplicatedRead, QueryError> {
        let stretch = Stretch {
            rows: STRETCH_ROWS,
            bytes: BLOCK_BYTES,
        };
        let view = self.coordinator.context.view();
        let read = ReplicatedRead::new(
            &self.coordinator.reads,
            &view,
            table,
            level,
            extent,
            clock.second(),
            stretch,
        );
        Ok(read.map_err(QueryError::of_replicas)?.bypassing_cache(true))
    }
}

/// Deletes a row; the whole partition where a partition is one row, as the DELETE of a client would.
fn delete(table: &Table, mutation: &mut MutationBuilder<'_>, clustering: &[u8], tombstone: Tombstone) {
    if table.clustering().next().is_none() {
        mutation.partition_tombstone(tombstone);
        return;
    }
    mutation.row(clustering, |out| {
        let shared = Shared {
            timestamp: tombstone.timestamp,
            ttl: 0,
            expiry: 0,
        };
        RowBuilder::begin(out, &table.layout, shared, None, tombstone, false, 0);
    });
}

/// Gives the rows of a block that live, with their clustering keys.
fn for_each_living(
    table: &Table,
    block: &PartitionBlock,
    now: u32,
    mut give: impl FnMut(&[u8], RowView<'_>, LiveRow<'_>),
) {
    for (clustering, row) in block.rows() {
        let deletion = block.deletion_of(&table.clustering_order, clustering);
        let live = LiveRow::new(row, &table.layout, deletion, now);
        if live.is_live() {
            give(clustering, row, live);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_each_type_has_passed_or_has_not() {
        let clock = |cql_type| Clock {
            column: ColumnId(0),
            cql_type,
            now_ms: 1_700_000_000_500,
        };
        let timestamp = |ms: i64| clock(CqlType::Timestamp).has_passed(&ms.to_be_bytes());
        assert!(timestamp(1_700_000_000_500), "this very moment");
        assert!(timestamp(-1), "before the epoch");
        assert!(!timestamp(1_700_000_000_501));
        let bigint = |s: i64| clock(CqlType::BigInt).has_passed(&s.to_be_bytes());
        assert!(bigint(1_700_000_000));
        assert!(!bigint(1_700_000_001));
        assert!(!bigint(i64::MAX), "seconds that no i64 of milliseconds holds");
        assert!(bigint(i64::MIN));
        let int = |s: i32| clock(CqlType::Int).has_passed(&s.to_be_bytes());
        assert!(int(1_700_000_000));
        assert!(!int(1_700_000_001));
        for empty in [CqlType::Timestamp, CqlType::BigInt, CqlType::Int] {
            assert!(!clock(empty).has_passed(&[]), "a value of no bytes says nothing");
        }
    }
}
