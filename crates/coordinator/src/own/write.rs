//! Writes and reads that this shard does alone, in one call: whether it may, and the write with its commit.

use commitlog::{LogPlace, Logged, ReplayPosition};
use mutation::Located;
use replica::TableStore;
use schema::TableId;
use stdx::probe;
use topology::{Consistency, Replica};
use types::Token;

use super::Own;
use crate::fence::Stamp;
use crate::service::ReplicaError;
use crate::write::apply::{self, acknowledges_by_sync, apply_to, durable};
use crate::{Levels, Route};

/// What this shard has written for its own clients, the kernel has, and may be acknowledged when it is synced.
#[must_use]
#[derive(Debug)]
pub struct Unsynced(ReplayPosition);

impl Own {
    /// Writes one mutation in this call, if this shard suffices for the level. None: nothing was done, because others
    /// are needed, or memory is full.
    ///
    /// # Errors
    /// When the log does not take it.
    #[inline]
    pub fn write(&self, mutation: Located<'_>, level: Consistency) -> Result<Option<Logged>, ReplicaError> {
        let Some(store) = self.context.shard.store(mutation.mutation.table) else {
            return Ok(None);
        };
        let is_here = Levels::from_bits(store.writes_here.get()).contains(level);
        if self.context.refuses_here(&store, &mutation.mutation) {
            return Ok(None);
        }
        if !is_here
            && !self.is_alone_with(&store, mutation.mutation.table, |route, this| {
                route.writes_alone(this, mutation.token, level)
            })
        {
            return Ok(None);
        }
        probe::step(|| format!("coordinator: this shard suffices for a write at {level}"));
        match apply_to(&self.context.shard, &store, mutation) {
            Err(ReplicaError::NotHere(_)) => Ok(None),
            applied => applied,
        }
    }

    /// Whether this shard may answer a read of a partition from its own data alone.
    #[inline]
    #[must_use]
    pub fn reads_here(&self, store: &TableStore, table: TableId, token: Token, level: Consistency) -> bool {
        Levels::from_bits(store.reads_here.get()).contains(level)
            || self.is_alone_with(store, table, |route, this| route.reads_alone(this, token, level))
                && store.is_whole.get()
    }

    /// Whether a table's route says so of this shard, and the table takes requests of the view that the route is of.
    fn is_alone_with(&self, store: &TableStore, table: TableId, says: impl FnOnce(&Route, Replica) -> bool) -> bool {
        let view = self.context.view.borrow();
        let route = view.route(table);
        route.is_some_and(|route| says(route, self.context.this_replica(&view)))
            && view.version >= self.context.fence(&view)
            && Stamp::of(&view, table).check(store) == Ok(true)
    }

    /// Hands what this shard alone has written to the kernel. None: it may be acknowledged.
    ///
    /// # Errors
    /// When some of it may be lost.
    #[inline]
    pub fn commit(&self, logged: &Logged) -> Result<Option<Unsynced>, ReplicaError> {
        let LogPlace { position, mark } = logged.place();
        apply::commit(&self.context.shard, mark)?;
        Ok(acknowledges_by_sync(&self.context.shard).then_some(Unsynced(position)))
    }

    /// Waits until what was committed may be acknowledged.
    ///
    /// # Errors
    /// When the log cannot be synced.
    pub async fn sync(&self, unsynced: Unsynced) -> Result<(), ReplicaError> {
        durable(&self.context.shard, unsynced.0).await
    }
}
