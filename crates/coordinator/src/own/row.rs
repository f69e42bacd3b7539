//! One row that a statement names by its whole key, from this shard's memory, or from its files and memory.

use std::rc::Rc;

use mutation::{RowView, Tombstone};
use replica::{CachedRow, InMemory, RowBuffers, RowName, RowProjection, TableStore, Tablet, Version};
use schema::{Table, TableId};
use topology::Consistency;
use types::Token;

use super::Own;
use crate::service::ReplicaError;
use crate::{Levels, Reads};

/// A table, as far as this shard has it.
pub struct OwnTable {
    store: Rc<TableStore>,
}

/// The partition of a row, which this shard has.
pub struct OwnRow {
    store: Rc<TableStore>,
    tablet: Rc<Tablet>,
}

/// What the files of this shard had of a row.
pub struct LoadedRow {
    store: Rc<TableStore>,
    tablet: Rc<Tablet>,
    version: Rc<Version>,
    cached: CachedRow,
}

impl Own {
    /// A table, if this shard has any of it.
    #[inline]
    #[must_use]
    pub fn table(&self, table: TableId) -> Option<OwnTable> {
        self.context.shard.store(table).map(|store| OwnTable { store })
    }
}

impl OwnTable {
    /// Whether this shard satisfies reads of a level alone, of every token that it has.
    #[inline]
    #[must_use]
    pub fn satisfies(&self, level: Consistency) -> bool {
        Levels::from_bits(self.store.reads_here.get()).contains(level)
    }

    /// The partition of a row; counts a request for it. None: this shard does not have the token.
    #[inline]
    #[must_use]
    pub fn row(self, (token, key): (Token, &[u8])) -> Option<OwnRow> {
        let row = self.find(token)?;
        row.store.metrics.note_read(key);
        row.tablet.count_request();
        Some(row)
    }

    /// As [`OwnTable::row`], of a request that is counted already.
    #[inline]
    #[must_use]
    pub fn find(self, token: Token) -> Option<OwnRow> {
        let tablet = self.store.tablet(token)?;
        Some(OwnRow {
            store: self.store,
            tablet,
        })
    }
}

impl OwnRow {
    /// Whether this shard satisfies reads of the row at a level alone.
    #[inline]
    #[must_use]
    pub fn satisfies(&self, own: &Own, (table, token): (TableId, Token), level: Consistency) -> bool {
        own.reads_here(&self.store, table, token, level)
    }

    /// Runs `f` on the row and the deletion over it, if memory alone can answer for it; on None if nothing is known of
    /// the row.
    #[inline]
    pub fn read<R>(
        &self,
        row: RowName<'_>,
        wanted: &RowProjection<'_, impl Fn() -> Vec<u16>>,
        buffers: &mut RowBuffers,
        f: impl FnOnce(Option<RowView<'_>>, Tombstone) -> R,
    ) -> InMemory<R> {
        self.tablet
            .with_version(|version| version.read_merged(row, wanted, buffers, f))
    }

    /// Runs `f` as [`OwnRow::read`] does on a plain row, and computes the digest that a replica's answer has if
    /// `has_digest`, at the second `now`; else it is 0. None: the row has to be read in the general way.
    #[inline]
    pub fn read_plain<R>(
        &self,
        reads: &Reads,
        (table, row): (&Table, RowName<'_>),
        buffers: &mut RowBuffers,
        (now, has_digest): (u32, bool),
        f: impl FnOnce(Option<RowView<'_>>, Tombstone) -> R,
    ) -> Option<(R, u128)> {
        self.tablet.with_version(|version| {
            version.read_plain_row(table, row, buffers, |plain| {
                let digest = if has_digest {
                    reads.digest_of_row(table, row, &plain, now)
                } else {
                    0
                };
                (f(plain.row, plain.partition), digest)
            })
        })
    }

    /// Reads what the files have of the row, and keeps it in the row cache if there is room. None: the row has to be
    /// read in the general way.
    ///
    /// # Errors
    /// When a file cannot be read, or something of the token is missing.
    pub async fn load(self, own: &Own, table: &Table, row: RowName<'_>) -> Result<Option<LoadedRow>, ReplicaError> {
        let Self { store, tablet } = self;
        let version = tablet.version();
        store.metrics.note_row_read(version.sstables_for(row.hash));
        let cache = own.context.shard.cache.clone();
        let cached = version.load_row(table, &cache, row).await?;
        Ok(cached.map(|cached| LoadedRow {
            store,
            tablet,
            version,
            cached,
        }))
    }
}

impl LoadedRow {
    /// Runs `f` as [`OwnRow::read`] does on the row that was loaded and what memory has of it. None: this shard no
    /// longer satisfies reads of the level alone, its files have changed since the row was loaded, or the row has to be
    /// read in the general way.
    pub fn read<R>(
        &self,
        own: &Own,
        (table, level): (&Table, Consistency),
        row: RowName<'_>,
        wanted: &RowProjection<'_, impl Fn() -> Vec<u16>>,
        buffers: &mut RowBuffers,
        f: impl FnOnce(Option<RowView<'_>>, Tombstone) -> R,
    ) -> Option<R> {
        let store = own.context.shard.store(table.id)?;
        let is_current = Rc::ptr_eq(&store, &self.store)
            && Levels::from_bits(store.reads_here.get()).contains(level)
            && Rc::ptr_eq(&self.tablet.version(), &self.version);
        let read = || self.version.read_merged_with(row, &self.cached, wanted, buffers, f);
        if is_current { read() } else { None }
    }
}
