//! Writes that somebody is told of: what their rows were before, and what they are behind them.
//!
//! Only the tables that have an observer ([`replica::Observer`]) are written in this way. A write of such a table takes a turn on its partition, reads the rows that
//! it touches, writes, and tells the observer in the step in which it was applied. Nothing else writes to the partition meanwhile, because every
//! write of the table comes through here: `apply.rs` does none of them at once.

use std::rc::Rc;

use commitlog::ReplayPosition;
use mutation::{Mutation, PartitionBlock};
use replica::{Change, Shard, TableStore, Tablet, WriteError};
use types::Token;

use crate::apply::ready;
use crate::fence::Stamp;
use crate::service::ReplicaError;
use crate::turns::{PartitionTurns, Turn};

/// A mutation, and the table that it is of.
pub(crate) type Addressee<'m> = (Rc<TableStore>, Token, Mutation<'m>);

/// The turns of one shard: a shard local.
fn turns() -> Rc<PartitionTurns> {
    runtime::local().unwrap_or_else(|| {
        let turns = Rc::new(PartitionTurns::default());
        runtime::set_local(Rc::clone(&turns));
        turns
    })
}

/// What of a request is of one partition.
struct Part<'a, 'm> {
    store: &'a Rc<TableStore>,
    token: Token,
    mutations: Vec<Mutation<'m>>,
    before: Option<PartitionBlock>,
    _turn: Turn,
}

/// Writes mutations as one record of the log, and tells the observers of their tables. Where that stands in the log.
///
/// # Errors
/// As those of `apply`; and when what was there before cannot be read: nothing is written then.
pub(crate) async fn write(
    shard: &Rc<Shard>,
    mutations: &[Addressee<'_>],
    stamp: Stamp,
) -> Result<ReplayPosition, ReplicaError> {
    let mut parts = take_turns(mutations).await;
    let places = || mutations.iter().map(|(store, token, _)| (&**store, *token));
    loop {
        ready(places(), stamp).await?;
        let before: Vec<Option<Rc<Tablet>>> = parts.iter().map(Part::tablet).collect();
        for part in &mut parts {
            part.before = shard.rows_touched_by(part.store, part.token, &part.mutations).await?;
        }
        // It may have waited for a file; and a tablet that comes back is another one.
        let is_there = |(part, tablet): (&Part<'_, '_>, &Option<Rc<Tablet>>)| {
            let now = part.tablet();
            now.as_ref().map(Rc::as_ptr) == tablet.as_ref().map(Rc::as_ptr)
        };
        let are_ready = places().all(|(store, token)| stamp.check_at(store, token) == Ok(true));
        if !are_ready || !parts.iter().zip(&before).all(is_there) {
            continue;
        }
        let written = match mutations {
            [(store, token, mutation)] => shard.write(store, *token, mutation),
            _ => shard.write_batch(mutations),
        };
        match written {
            Ok(position) => {
                parts.into_iter().for_each(Part::tell);
                return Ok(position);
            }
            Err(WriteError::MemoryFull) => shard.room_for(mutations.iter().map(|(_, _, m)| *m)).await?,
            Err(e) => return Err(e.into()),
        }
    }
}

impl Part<'_, '_> {
    fn tablet(&self) -> Option<Rc<Tablet>> {
        self.store.tablet(self.token)
    }

    fn tell(self) {
        let table = self.store.table();
        if let Some(observer) = self.store.observer()
            && let Some(change) = Change::by(&table, self.token, &self.mutations, self.before)
        {
            observer.changed(&table, change);
        }
    }
}

/// The partitions of tables that are observed, each with a turn on it. In one order, so that no two requests wait for each other.
async fn take_turns<'a, 'm>(mutations: &'a [Addressee<'m>]) -> Vec<Part<'a, 'm>> {
    let mut observed: Vec<&Addressee<'m>> = mutations.iter().filter(|(store, ..)| store.is_observed()).collect();
    observed.sort_by_key(|(_, _, mutation)| (mutation.table, mutation.key));
    let turns = turns();
    let mut parts: Vec<Part<'a, 'm>> = Vec::new();
    for (store, token, mutation) in observed {
        let is_same = |part: &&mut Part<'_, '_>| {
            let other = part.mutations.first();
            other.is_some_and(|other| (other.table, other.key) == (mutation.table, mutation.key))
        };
        match parts.last_mut().filter(is_same) {
            Some(part) => part.mutations.push(*mutation),
            None => parts.push(Part {
                store,
                token: *token,
                mutations: vec![*mutation],
                before: None,
                _turn: turns.take(mutation.table, mutation.key).await,
            }),
        }
    }
    parts
}
