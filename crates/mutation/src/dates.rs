//! When deletions were made: the seconds by which a compaction decides what it may purge.
//!
//! A tombstone holds the second of its deletion. A cell or row marker that expires counts, once it has expired, as a
//! deletion made in the second in which it was written, `expiry - ttl`. Both seconds are those of the server that took
//! the write. A client may name its own moment (`now_in_seconds` of protocol 5); that moves the expiry and never the
//! second of the write: a client's clock would otherwise make a tombstone purgeable while replicas still lack it.

use std::ops::RangeInclusive;

use schema::RowLayout;

use crate::row::{Cell, Column};
use crate::{Mutation, MutationItem, RowView};

/// The greatest time to live that an sstable holds, seconds.
const TTL_MAX: u32 = i32::MAX as u32;

/// The time to live of what is written at the second `written` and expires at `expiry`, seconds; never 0.
///
/// Purging goes by the second of the write, `expiry - ttl`, and that second must be the server's. A client that names
/// its own moment (`now_in_seconds` of protocol 5) may set an expiry that has passed for the server: the difference is
/// then kept modulo 2^32, above what any statement can ask for.
#[must_use]
pub fn ttl_between(written: u32, expiry: u32) -> u32 {
    match expiry.wrapping_sub(written) {
        0 => 1,
        ttl => ttl,
    }
}

/// The second in which something that expires was written.
pub(crate) fn written_second(ttl: u32, expiry: u32) -> u32 {
    if ttl > TTL_MAX {
        expiry.wrapping_sub(ttl)
    } else {
        expiry.saturating_sub(ttl)
    }
}

/// Time to live and expiry as an sstable holds them: what had expired when it was written (see [`ttl_between`]) expires
/// there one second later.
#[must_use]
pub fn durable_expiry(ttl: u32, expiry: u32) -> (u32, u32) {
    if ttl > TTL_MAX {
        (1, written_second(ttl, expiry).saturating_add(1))
    } else {
        (ttl, expiry)
    }
}

/// Gives the second of each deletion in a row.
fn each_deletion(row: RowView<'_>, layout: &RowLayout, see: &mut impl FnMut(u32)) {
    if !row.tombstone.is_none() {
        see(row.tombstone.deletion_time);
    }
    if let Some(marker) = row.marker.filter(|marker| marker.ttl > 0) {
        see(marker.written_second());
    }
    let mut see_cell = |cell: &Cell<'_>| {
        if cell.dead || cell.ttl > 0 {
            see(cell.deleted_second());
        }
    };
    for (_, column) in row.columns(layout) {
        match column {
            Column::Simple(cell) => see_cell(&cell),
            Column::Complex(complex) => {
                if !complex.tombstone.is_none() {
                    // As a dead cell, so that one closure sees all seconds.
                    see_cell(&Cell {
                        timestamp: complex.tombstone.timestamp,
                        ttl: 0,
                        deletion_time: complex.tombstone.deletion_time,
                        dead: true,
                        value: &[],
                    });
                }
                complex.elements().for_each(|(_, cell)| see_cell(&cell));
            }
        }
    }
}

impl Mutation<'_> {
    /// The seconds of the first and the last deletion that it carries; None when it deletes nothing and nothing of it
    /// expires.
    #[must_use]
    pub fn deletion_seconds(&self, layout: &RowLayout) -> Option<RangeInclusive<u32>> {
        let mut seconds: Option<(u32, u32)> = None;
        let mut see = |second: u32| {
            let (first, last) = seconds.unwrap_or((second, second));
            seconds = Some((first.min(second), last.max(second)));
        };
        for item in self.items() {
            match item {
                MutationItem::Partition(tombstone) => see(tombstone.deletion_time),
                MutationItem::Range(range) => see(range.tombstone.deletion_time),
                MutationItem::StaticRow(row) | MutationItem::Row { row, .. } => {
                    if let Some(row) = RowView::new(row) {
                        each_deletion(row, layout, &mut see);
                    }
                }
            }
        }
        seconds.map(|(first, last)| first..=last)
    }

    /// The least write timestamp that it carries; None when it is empty. Microseconds.
    #[must_use]
    pub fn min_timestamp(&self, layout: &RowLayout) -> Option<i64> {
        let of_item = |item| match item {
            MutationItem::Partition(tombstone) => Some(tombstone.timestamp),
            MutationItem::Range(range) => Some(range.tombstone.timestamp),
            MutationItem::StaticRow(row) | MutationItem::Row { row, .. } => {
                RowView::new(row).map(|row| row.min_timestamp(layout))
            }
        };
        self.items().filter_map(of_item).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_expired_when_it_was_written_keeps_the_second_of_the_write() {
        for (written, expiry) in [
            (1_000, 1_060),
            (1_000, 1_001),
            (1_000, 999),
            (1_700_000_000, 20),
            (1_000, 1_000),
        ] {
            let ttl = ttl_between(written, expiry);
            assert!(ttl > 0, "a ttl of 0 means no expiry");
            let kept = written_second(ttl, expiry);
            assert!(
                kept == written || (expiry == written && kept == written - 1),
                "{written} {expiry}"
            );
            let (durable_ttl, durable) = durable_expiry(ttl, expiry);
            assert!((1..=TTL_MAX).contains(&durable_ttl), "{written} {expiry}");
            assert_eq!(written_second(durable_ttl, durable), kept, "{written} {expiry}");
            assert!(expiry > written || durable <= written + 1, "{written} {expiry}");
        }
    }
}
