//! The acceptor: one shard's part in conditional statements.
//!
//! What an acceptor has promised, accepted and learned of a partition is a row of a table beside the partition's
//! ([`paxos_state_of`]), under the same key and in the same tablets, so it is always where the partition is. It is
//! written as any other row, survives as they do, and expires when it was not touched for the table's
//! `paxos_grace_seconds`, three hours at least.
//!
//! A request is one step that waits for nothing (`steps.rs`): it looks at the state, changes it and writes its row, or
//! finds out what it has to wait for, and then changes nothing. After it has waited, the request takes the step again
//! from the beginning (`phases.rs`).
//!
//! Invariants
//! - A state is changed and its row written in one step.
//! - A state that is not in memory is read by one request at a time, and not changed during that.
//! - An acceptance is synced before it is answered, in whatever mode the log is; that may be after the next request's
//!   step, whose own sync then covers it. A promise is kept by [`Promises`], or synced like an acceptance.
//! - That a proposal was learned is noted in the row only when its mutation is durable: a power loss may keep a later
//!   record of the log and lose an earlier one. For the same reason the row keeps a proposal, with its value, until its
//!   mutation is durable. The note itself need not be durable: without it the proposal is finished once more, which
//!   changes nothing.
//! - Each change of the row has a write timestamp above those before it, those of expired cells included.
//! - When a table's data is forgotten, so is everything proposed for it; what was promised is not.
//!
//! A shard keeps the [`STATES_MAX`] states used last in memory; beyond it a state is read from its row. A note is made
//! there first. It is written with the next promise or acceptance, and without one when the state leaves memory, after
//! [`NOTES_INTERVAL`], or before the node ends.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Commitlog, LogError, LogPlace};
use paxos::Ballot;
use replica::{BlockLimits, Shard, TabletScan, WriteError, paxos_state_id};
use runtime::Semaphore;
use schema::{Table, TableId};
use stdx::planted::{self, Bug};
use types::Token;

use crate::service::ReplicaError;
use crate::spawn;

mod known;
mod phases;
pub(crate) mod promises;
mod row;
mod steps;

pub(crate) use phases::{PhaseCaller, PhaseDone, handle, handle_from_beside};
pub use promises::Promises;
pub use row::paxos_state_of;

use known::Known;
use phases::{AwaitingSync, change};
use row::{Buffers, Row};

/// States kept in memory by each shard: some hundred bytes each, 1.5 KiB at most besides mutations that were not
/// learned everywhere.
const STATES_MAX: usize = 16_384;
/// How long a note stays in memory alone. A crash costs the partitions of the notes that are lost one more round each.
const NOTES_INTERVAL: Duration = Duration::from_secs(60);

/// How much of the states is looked through at once to forget a table's.
const FORGET_ROWS: usize = 1000;
const FORGET_BYTES: usize = 256 << 10;

type Name = (TableId, Rc<[u8]>);
type States = HashMap<Rc<[u8]>, Rc<Entry>, foldhash::fast::FixedState>;

struct Entry {
    key: Rc<[u8]>,
    token: Token,
    /// Held by the request that reads the state from its row.
    reading: Semaphore,
    /// The last ballot that was promised in memory alone.
    promised: Cell<Ballot>,
    known: RefCell<Option<Box<Known>>>,
    /// Since it was last considered for leaving memory.
    was_used: Cell<bool>,
    /// Its name is in `noted` of the acceptor.
    is_noted: Cell<bool>,
    /// The table by which the mutation that was accepted last was checked.
    checked_by: RefCell<Option<Arc<Table>>>,
    /// Its token has left the shard; should it come back, it is another entry.
    has_left: Cell<bool>,
}

impl Entry {
    /// The state, if it is in memory.
    fn known(&self, log: &Commitlog) -> RefMut<'_, Option<Box<Known>>> {
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.as_mut() {
            known.look_at_log(log);
        }
        known
    }

    /// Waits until no other request reads the state, and reads it from its row unless it is in memory then.
    async fn read(&self, shard: &Rc<Shard>, promises: &Promises, row: Row) -> Result<(), ReplicaError> {
        let _reading = self.reading.acquire(1).await;
        if self.known(&shard.log).is_none() {
            self.checked_by.take();
            let mut known = row.read(shard, &self.key).await?;
            let promised = self.promised.get().max(promises.floor());
            known.state.promised = known.state.promised.max(promised);
            self.known.replace(Some(Box::new(known)));
        }
        Ok(())
    }

    /// A promise that would be lost with the entry.
    fn unwritten_promise(&self) -> Option<Ballot> {
        let promised = self.promised.get();
        let is_written = |known: &Known| known.stored.promised >= promised;
        let known = self.known.borrow();
        (promised != Ballot::NONE && !known.as_deref().is_some_and(is_written)).then_some(promised)
    }
}

/// One shard's acceptor.
pub(crate) struct Acceptor {
    promises: RefCell<Arc<Promises>>,
    /// Of the last decision that the shard made alone (`cas.rs`).
    alone_at: Cell<Option<LogPlace>>,
    entries: RefCell<HashMap<TableId, States, foldhash::fast::FixedState>>,
    /// The names, those to be considered first for leaving memory in front.
    order: RefCell<VecDeque<Name>>,
    /// The names of those that may have notes.
    noted: RefCell<Vec<Name>>,
    /// A task is going to write the notes.
    writes_notes: Cell<bool>,
    buffers: RefCell<Buffers>,
    awaiting_sync: AwaitingSync,
}

impl Acceptor {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            promises: RefCell::new(Promises::in_rows()),
            alone_at: Cell::default(),
            entries: RefCell::default(),
            order: RefCell::default(),
            noted: RefCell::default(),
            writes_notes: Cell::default(),
            buffers: RefCell::default(),
            awaiting_sync: AwaitingSync::default(),
        })
    }

    /// Keeps promises with those of the node's other shards.
    pub(crate) fn keep_promises(&self, promises: Arc<Promises>) {
        self.promises.replace(promises);
    }

    /// Whether it has never been asked anything about a tablet of a table, as far as it knows.
    pub(crate) fn is_quiet(&self, shard: &Shard, table: TableId, token: Token) -> bool {
        let is_known = self.entries.borrow().contains_key(&table);
        let states = shard.store(paxos_state_id(table));
        !is_known && states.is_some_and(|states| states.tablet(token).is_some_and(|tablet| tablet.is_empty()))
    }

    /// The shard decided about a partition alone, and the log has the decision there. No answer may reveal it before it
    /// is durable.
    pub(crate) fn decided_alone(&self, place: LogPlace) {
        self.alone_at.set(Some(place));
    }

    /// Whether everything that the shard decided alone is durable.
    fn is_settled_alone(&self, log: &Commitlog) -> bool {
        let is_open = |at: LogPlace| !at.is_lost(log) && !at.is_durable(log);
        if !self.alone_at.get().is_some_and(is_open) {
            self.alone_at.set(None);
        }
        self.alone_at.get().is_none()
    }

    /// Drops the cached states of a table whose states were dropped. The entries stay, because a request may be reading
    /// a row; the states are read from their rows again.
    pub(crate) fn forget(&self, table: TableId) {
        let entries = self.entries.borrow();
        for entry in entries.get(&table).into_iter().flat_map(HashMap::values) {
            entry.known.take();
        }
    }

    /// Drops cached state of tokens that left this shard; the new owner reads the rows. A request that still holds an
    /// entry changes nothing any more, because the tablet of its row has left too.
    pub(crate) fn forget_left(&self, table: TableId, is_left: impl Fn(Token) -> bool) {
        let mut entries = self.entries.borrow_mut();
        let Some(of_table) = entries.get_mut(&table) else {
            return;
        };
        of_table.retain(|_, entry| {
            entry.has_left.set(is_left(entry.token));
            if entry.has_left.get() {
                self.leaves_memory(entry);
            }
            !entry.has_left.get()
        });
        if of_table.is_empty() {
            entries.remove(&table);
        }
    }

    /// An entry goes.
    fn leaves_memory(&self, entry: &Entry) {
        if let Some(promised) = entry.unwritten_promise() {
            self.promises.borrow().raise_floor(promised);
        }
    }

    /// Of the states of a table that are in memory.
    fn keys_of(&self, table: TableId) -> Vec<Rc<[u8]>> {
        let entries = self.entries.borrow();
        let of_table = entries.get(&table);
        of_table.map_or_else(Vec::new, |of_table| of_table.keys().map(Rc::clone).collect())
    }

    fn known(&self, table: TableId, key: &[u8]) -> Option<Rc<Entry>> {
        let entries = self.entries.borrow();
        entries.get(&table)?.get(key).map(Rc::clone)
    }

    fn begin_entry(&self, shard: &Rc<Shard>, table: TableId, key: &[u8], token: Token) -> Rc<Entry> {
        self.make_room(shard);
        let key: Rc<[u8]> = key.into();
        let entry = Rc::new(Entry {
            key: Rc::clone(&key),
            token,
            reading: Semaphore::new(1),
            promised: Cell::new(Ballot::NONE),
            known: RefCell::new(None),
            was_used: Cell::new(false),
            is_noted: Cell::new(false),
            checked_by: RefCell::new(None),
            has_left: Cell::new(false),
        });
        self.order.borrow_mut().push_back((table, Rc::clone(&key)));
        let mut entries = self.entries.borrow_mut();
        entries.entry(table).or_default().insert(key, Rc::clone(&entry));
        entry
    }

    /// Drops states from memory when there are too many. Those in use stay, and those used lately get a second chance.
    fn make_room(&self, shard: &Rc<Shard>) {
        // What the log loses later is known only of states in memory.
        let is_settled = |entry: &Entry| {
            entry
                .known(&shard.log)
                .as_ref()
                .is_none_or(|known| known.is_row_settled())
        };
        let mut order = self.order.borrow_mut();
        for _ in 0..2 * order.len() {
            if order.len() < STATES_MAX {
                return;
            }
            let Some((table, key)) = order.pop_front() else { return };
            let Some(entry) = self.known(table, &key) else { continue };
            // The map has one, this function the other.
            if Rc::strong_count(&entry) > 2 || entry.was_used.replace(false) || !is_settled(&entry) {
                order.push_back((table, key));
                continue;
            }
            self.leaves_memory(&entry);
            if let Some(mut known) = entry.known(&shard.log).take().filter(|known| known.has_notes())
                && !known.has_to_wait(&shard.log)
                && let Some(row) = Row::of(shard, table, entry.token)
            {
                // What does not find room is lost; see the invariants.
                let _ = self.write(shard, &row, &entry, &mut known);
            }
            let mut entries = self.entries.borrow_mut();
            if let Some(of_table) = entries.get_mut(&table) {
                of_table.remove(&key);
                if of_table.is_empty() {
                    entries.remove(&table);
                }
            }
        }
    }

    /// A state has notes: sees to it that they are written.
    fn noted(self: &Rc<Self>, shard: &Rc<Shard>, table: TableId, entry: &Entry) {
        if !entry.is_noted.replace(true) {
            self.noted.borrow_mut().push((table, Rc::clone(&entry.key)));
        }
        if self.writes_notes.replace(true) {
            return;
        }
        let (acceptor, shard) = (Rc::clone(self), Rc::clone(shard));
        spawn(async move {
            runtime::sleep(NOTES_INTERVAL).await;
            acceptor.writes_notes.set(false);
            if let Err(e) = acceptor.write_notes(&shard).await {
                log::warn!("cannot record what Paxos acceptors have learned: {e}");
            }
        });
    }

    /// Writes the notes. What could not be written is lost; the first reason is the error.
    pub(crate) async fn write_notes(self: &Rc<Self>, shard: &Rc<Shard>) -> Result<(), ReplicaError> {
        let mut result = Ok(());
        // The notes may only be written after a sync of what they note.
        let log_error = |e: LogError| ReplicaError::Log(e.to_string());
        if !planted::is_planted(Bug::UnsyncedNote) {
            shard.log.write().map_err(log_error)?;
            shard.log.sync().await.map_err(log_error)?;
        }
        for (table, key) in self.noted.take() {
            let Some(entry) = self.known(table, &key) else { continue };
            entry.is_noted.set(false);
            if entry.has_left.get() {
                continue;
            }
            let stored = self.store_note(shard, table, &entry).await;
            result = result.and(stored);
            let is_left = entry.known(&shard.log).as_ref().is_some_and(|known| known.has_notes());
            if is_left && !entry.has_left.get() {
                self.noted(shard, table, &entry);
            }
            if runtime::should_yield() {
                runtime::yield_now().await;
            }
        }
        let written = shard.log.write().map_err(log_error);
        result.and(written.map(drop))
    }

    /// Writes what is noted of a state, when there is room.
    async fn store_note(&self, shard: &Rc<Shard>, table: TableId, entry: &Entry) -> Result<(), ReplicaError> {
        loop {
            let stored = {
                let mut known = entry.known(&shard.log);
                let (Some(known), Some(row)) = (known.as_mut(), Row::of(shard, table, entry.token)) else {
                    return Ok(());
                };
                known.prune_what_is_durable(&shard.log);
                if !known.has_notes() || known.has_to_wait(&shard.log) {
                    return Ok(());
                }
                self.write(shard, &row, entry, known)
            };
            match stored {
                Ok(()) => return Ok(()),
                Err(WriteError::MemoryFull) => shard.room().await?,
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn write(&self, shard: &Rc<Shard>, row: &Row, entry: &Entry, known: &mut Known) -> Result<(), WriteError> {
        row.write(shard, (&entry.key, entry.token), known, &mut self.buffers.borrow_mut())
    }
}

/// Forgets everything proposed for a table on this shard, because its data is about to be forgotten: a proposal that a
/// quorum accepted and that is not finished would bring its row back. This is durable when the function returns.
pub(crate) async fn forget(shard: &Rc<Shard>, acceptor: &Rc<Acceptor>, table: TableId) -> Result<(), ReplicaError> {
    let Some(states) = shard.store(paxos_state_id(table)) else {
        return Ok(());
    };
    let mark = shard.log.mark();
    let at = Ballot {
        timestamp_us: runtime::wall_clock_us(),
        ..Ballot::NONE
    };
    let forget = |key: Rc<[u8]>| async move {
        match change((shard, acceptor), (table, &key), |state| state.forget(at)).await {
            Ok(()) => Ok(true),
            Err(ReplicaError::NotHere(_) | ReplicaError::UnknownTable(_)) => Ok(false),
            Err(e) => Err(e),
        }
    };
    let mut is_changed = false;
    // First the states in memory: what was only learned has no row yet. A state that leaves memory during this loop has
    // been forgotten, or gets a row, which the scan finds.
    for key in acceptor.keys_of(table) {
        is_changed |= forget(key).await?;
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
    let limits = BlockLimits {
        rows: FORGET_ROWS,
        bytes: FORGET_BYTES,
    };
    let mut scan = TabletScan::all(&states, shard.cache.clone(), limits);
    while let Some(block) = scan.next_block().await? {
        is_changed |= forget(block.key().into()).await?;
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
    if is_changed {
        phases::synced(shard, mark).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
