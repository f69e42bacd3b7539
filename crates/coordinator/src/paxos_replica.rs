//! The acceptor: one shard's part in conditional statements.
//!
//! What an acceptor has promised, accepted and learned of a partition is a row of a table beside the partition's ([`paxos_state_of`]), under
//! the same key and in the same tablets, so it is always where the partition is. It is written as any other row, survives as
//! they do, and expires when nobody has touched it for the table's `gc_grace_seconds`, three hours at least.
//!
//! Invariants
//! - One request at a time looks at a partition's state and changes it, first come, first served.
//! - Promises and acceptances are synced before they are answered, in whatever mode the log is; that may be after the next request
//!   has its turn, whose own sync then covers them.
//! - That a proposal was learned is noted in the row only when its mutation is durable: a power loss may keep a later record of the log and lose an
//!   earlier one. For the same reason the row keeps a proposal, with its value, until its mutation is durable. The note itself
//!   need not be durable: without it the proposal is finished once more, which changes nothing.
//! - Each change of the row has a write timestamp above those before it, those of expired cells included.
//! - When a table's data is forgotten, so is everything proposed for it; what was promised is not.
//!
//! A shard keeps the [`STATES_MAX`] states used last in memory; beyond it a state is read from its row. A note is made there first. It is
//! written with the next promise or acceptance, and without one when the state leaves memory, after [`NOTES_INTERVAL`], or before the
//! node ends.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Commitlog, LogError, ReplayPosition};
use mutation::row::Shared;
use mutation::{Column as StoredColumn, Located, Mutation, MutationBuilder, RowBuilder, Tombstone};
use paxos::{Ballot, Promise, Proposal, State};
use replica::{BlockLimits, Shard, TableStore, Tablet, TabletScan, WriteError, paxos_state_id, proposal_life};
use runtime::{Permit, Semaphore, StopPoint};
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use stdx::bytes::Reader;
use stdx::planted::{self, Bug};
use types::token::{KeyHash, token_of};
use types::{CqlType, Token};

use crate::apply::{self, Origin};
use crate::fence::Stamp;
use crate::message::{Answer, PointCommand, ReadCommand};
use crate::paxos_message::{PaxosAnswer, PaxosRequest, Phase};
use crate::service::{self, ReplicaError};
use crate::{Coordinator, spawn};

/// States kept in memory by each shard: some hundred bytes each, 1.5 KiB at most besides mutations that were not learned everywhere.
const STATES_MAX: usize = 16_384;
/// How long a note stays in memory alone. A crash costs the partitions of the notes that are lost one more round each.
const NOTES_INTERVAL: Duration = Duration::from_secs(60);

/// How much of the states is looked through at once to forget a table's.
const FORGET_ROWS: usize = 1000;
const FORGET_BYTES: usize = 256 << 10;

/// A row up to this size is written whole, though only a ballot of it changed: it replaces the former row, where a part of it would have to
/// be merged cell by cell.
const WHOLE_BYTES_MAX: usize = 2_048;

/// The column ids of [`paxos_state_of`]: by name.
const COMMITTED: usize = 0;
const PROMISED: usize = 1;
const PROPOSAL: usize = 2;

/// Where acceptors keep what they know of conditional statements on a table: `partition key -> committed, promised, proposal`. A node that
/// has the table has this too, in the same tablets, and opens it before it replays its log.
#[must_use]
pub fn paxos_state_of(table: &Table) -> Arc<Table> {
    let column = |name, kind| Column::new(name, CqlType::Blob, kind);
    let columns = vec![
        column("row_key", ColumnKind::PartitionKey),
        column("committed", ColumnKind::Regular),
        column("promised", ColumnKind::Regular),
        column("proposal", ColumnKind::Regular),
    ];
    let options = TableOptions {
        comment: "what acceptors of conditional statements have promised, accepted and learned".to_owned(),
        // What has expired is gone for good: each replica has its own state and nobody repairs it.
        gc_grace_seconds: 0,
        ..TableOptions::default()
    };
    let name = format!("{}$paxos", table.name);
    Arc::new(Table::new(
        &table.keyspace,
        &name,
        paxos_state_id(table.id),
        columns,
        options,
    ))
}

/// Whether this shard's acceptor has never been asked anything about a tablet of a table, as far as it knows.
pub(crate) fn is_quiet(shard: &Shard, table: TableId, token: Token) -> bool {
    let is_known = Acceptor::local().entries.borrow().contains_key(&table);
    let states = shard.store(paxos_state_id(table));
    !is_known && states.is_some_and(|states| states.tablet(token).is_some_and(|tablet| tablet.is_empty()))
}

/// Forgets what this shard's memory has of conditional statements on a table, whose state was dropped.
pub fn forget_paxos_states(table: TableId) {
    Acceptor::local().forget(table);
}

type Name = (TableId, Rc<[u8]>);
type States = HashMap<Rc<[u8]>, Rc<Entry>, foldhash::fast::FixedState>;

/// What tells two states of a partition apart: at one ballot there is one proposal, with its mutation or without.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Summary {
    promised: Ballot,
    committed: Ballot,
    proposal: Option<(Ballot, bool)>,
}

impl Summary {
    fn of(state: &State) -> Self {
        Self {
            promised: state.promised,
            committed: state.committed,
            proposal: state.proposal.as_ref().map(|p| (p.ballot, p.value().is_some())),
        }
    }
}

/// A state in memory.
struct Known {
    state: State,
    /// What the row holds.
    stored: Summary,
    /// The write timestamp of the row's last change.
    changed_at: i64,
    /// Where the log has the mutation that was learned last, until it is known to be durable.
    learned_at: Option<ReplayPosition>,
    /// The ballot of a proposal whose value can be dropped as soon as its mutation is durable.
    prunable: Option<Ballot>,
}

impl Known {
    fn has_notes(&self) -> bool {
        Summary::of(&self.state) != self.stored
    }

    /// Whether the mutation that was learned last is durable.
    fn is_durable(&mut self, log: &Commitlog) -> bool {
        if planted::is_planted(Bug::UnsyncedNote) || self.learned_at.is_some_and(|at| log.is_synced(at)) {
            self.learned_at = None;
        }
        self.learned_at.is_none()
    }

    /// The proposal was learned: its mutation stands in the log before `position`. Whether that is news.
    fn learn(&mut self, proposal: Proposal, position: Option<ReplayPosition>) -> bool {
        let is_news = self.state.learn(proposal);
        if is_news {
            self.learned_at = position;
        }
        is_news
    }

    /// Drops the value of a proposal that every replica has learned, as soon as it is durable here. Whether there is one.
    fn prune(&mut self, ballot: Ballot, log: &Commitlog) -> bool {
        if self.is_durable(log) {
            return self.state.prune(ballot);
        }
        let is_last = self.state.proposal.as_ref().is_some_and(|p| p.ballot == ballot);
        if is_last {
            self.prunable = Some(ballot);
        }
        is_last
    }

    fn prune_what_is_durable(&mut self, log: &Commitlog) {
        if self.prunable.is_some()
            && self.is_durable(log)
            && let Some(ballot) = self.prunable.take()
        {
            self.state.prune(ballot);
        }
    }

    /// What the row may say: of what was learned only that which is durable.
    fn storable(&mut self, log: &Commitlog) -> Summary {
        let state = Summary::of(&self.state);
        match self.is_durable(log) {
            true => state,
            false => Summary {
                committed: self.stored.committed,
                ..state
            },
        }
    }

    /// The position that must be durable before the row may be written: that of a learned mutation whose proposal, the one other place
    /// that has it, the row is about to lose.
    fn waits_for(&mut self, log: &Commitlog) -> Option<ReplayPosition> {
        let accepted = self.state.proposal.as_ref().map(|p| p.ballot);
        let replaces = accepted.is_none_or(|ballot| ballot > self.state.committed);
        (replaces && !self.is_durable(log)).then_some(self.learned_at).flatten()
    }
}

/// A state out of memory while it is changed. Where its caller gives up before the change is in the row, the state of before comes back: its row has neither
/// the past of its proposal nor what is only noted.
struct Changing<'e> {
    entry: &'e Entry,
    known: Option<Box<Known>>,
    before: State,
    stored: Summary,
    /// All of it is to be written again.
    was_lost: bool,
}

impl<'e> Changing<'e> {
    fn new(entry: &'e Entry, known: Box<Known>) -> Self {
        Self {
            before: known.state.clone(),
            stored: known.stored,
            was_lost: entry.is_lost.replace(false),
            known: Some(known),
            entry,
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if self.was_lost {
            self.entry.is_lost.set(true);
        }
        if let Some(mut known) = self.known.take() {
            (known.state, known.stored) = (std::mem::take(&mut self.before), self.stored);
            self.entry.known.replace(Some(known));
        }
    }
}

struct Entry {
    key: Rc<[u8]>,
    token: Token,
    turn: Semaphore,
    /// In a box: it is taken out and put back by each request.
    known: RefCell<Option<Box<Known>>>,
    /// Since it was last considered for leaving memory.
    was_used: Cell<bool>,
    /// It stands among those with notes.
    is_noted: Cell<bool>,
    /// The log lost what was written of it: all of it is to be written again before anything is answered.
    is_lost: Cell<bool>,
    /// The table by which the mutation that was accepted last was checked.
    checked_by: RefCell<Option<Arc<Table>>>,
    /// Its token has left the shard; should it come back, it is another entry.
    has_left: Cell<bool>,
}

/// One shard's acceptor: a shard local.
#[derive(Default)]
struct Acceptor {
    entries: RefCell<HashMap<TableId, States, foldhash::fast::FixedState>>,
    /// The names, those to be considered first for leaving memory in front.
    order: RefCell<VecDeque<Name>>,
    /// The names of those that may have notes.
    noted: RefCell<Vec<Name>>,
    /// A task is going to write the notes.
    writes_notes: Cell<bool>,
}

impl Acceptor {
    fn local() -> Rc<Self> {
        runtime::local::<Self>().unwrap_or_else(|| {
            let acceptor = Rc::new(Self::default());
            runtime::set_local(Rc::clone(&acceptor));
            acceptor
        })
    }

    /// The entries stay, for somebody may have a turn; they are read from their rows again.
    fn forget(&self, table: TableId) {
        let entries = self.entries.borrow();
        for entry in entries.get(&table).into_iter().flat_map(HashMap::values) {
            entry.known.take();
        }
    }

    /// The entries of tokens that have left the shard. Who has a turn changes nothing any more: the tablet of its row has left too.
    fn forget_left(&self, table: TableId, is_left: impl Fn(Token) -> bool) {
        let mut entries = self.entries.borrow_mut();
        let Some(of_table) = entries.get_mut(&table) else {
            return;
        };
        of_table.retain(|_, entry| {
            entry.has_left.set(is_left(entry.token));
            !entry.has_left.get()
        });
        if of_table.is_empty() {
            entries.remove(&table);
        }
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
            turn: Semaphore::new(1),
            known: RefCell::new(None),
            was_used: Cell::new(false),
            is_noted: Cell::new(false),
            is_lost: Cell::new(false),
            checked_by: RefCell::new(None),
            has_left: Cell::new(false),
        });
        self.order.borrow_mut().push_back((table, Rc::clone(&key)));
        let mut entries = self.entries.borrow_mut();
        entries.entry(table).or_default().insert(key, Rc::clone(&entry));
        entry
    }

    /// Has states leave memory when there are too many. Those in use stay, and those used lately have another turn.
    fn make_room(&self, shard: &Rc<Shard>) {
        let mut order = self.order.borrow_mut();
        for _ in 0..2 * order.len() {
            if order.len() < STATES_MAX {
                return;
            }
            let Some((table, key)) = order.pop_front() else { return };
            let Some(entry) = self.known(table, &key) else { continue };
            // The map has one, this function the other.
            if Rc::strong_count(&entry) > 2 || entry.was_used.replace(false) {
                order.push_back((table, key));
                continue;
            }
            if let Some(mut known) = entry.known.take().filter(|known| known.has_notes())
                && known.waits_for(&shard.log).is_none()
                && let Some(row) = Row::new(shard, table, Rc::clone(&key))
            {
                // What does not find room is lost; see the invariants.
                let _ = row.write(&mut known);
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
                log::warn!("what acceptors have learned could not be noted: {e}");
            }
        });
    }

    /// Writes the notes. What could not be written is lost; the first reason is the error.
    async fn write_notes(self: &Rc<Self>, shard: &Rc<Shard>) -> Result<(), ReplicaError> {
        let mut result = Ok(());
        // The notes may only be written behind a sync of what they speak of.
        let log_error = |e: LogError| ReplicaError::Log(e.to_string());
        if !planted::is_planted(Bug::UnsyncedNote) {
            shard.commit().map_err(log_error)?;
            shard.log.sync().await.map_err(log_error)?;
        }
        for (table, key) in self.noted.take() {
            let Some(entry) = self.known(table, &key) else { continue };
            let _turn = entry.turn.acquire(1).await;
            entry.is_noted.set(false);
            if entry.has_left.get() {
                continue;
            }
            let Some(mut known) = entry.known.take() else { continue };
            known.prune_what_is_durable(&shard.log);
            let stored = match Row::new(shard, table, key) {
                Some(row) if known.has_notes() => row.store(&mut known).await,
                _ => Ok(()),
            };
            match stored {
                Ok(()) => {
                    let is_left = known.has_notes();
                    *entry.known.borrow_mut() = Some(known);
                    if is_left {
                        self.noted(shard, table, &entry);
                    }
                }
                Err(e) => result = result.and(Err(e)),
            }
            if runtime::should_yield() {
                runtime::yield_now().await;
            }
        }
        let written = shard.commit().map_err(log_error);
        result.and(written.map(drop))
    }
}

/// Forgets what acceptors have in memory of tokens that have left this shard: whoever has them next reads the rows.
pub(crate) fn forget_left(table: TableId, is_left: impl Fn(Token) -> bool) {
    Acceptor::local().forget_left(table, is_left);
}

/// Writes what is noted in memory alone: before the node ends.
pub(crate) async fn write_notes(shard: &Rc<Shard>) -> Result<(), ReplicaError> {
    Acceptor::local().write_notes(shard).await
}

/// Where a partition's state is stored.
struct Row {
    shard: Rc<Shard>,
    states: Rc<TableStore>,
    tablet: Rc<Tablet>,
    key: Rc<[u8]>,
    token: Token,
    /// Seconds that what is written now is kept.
    ttl: u32,
}

impl Row {
    /// None: the partition is not here, or not any more.
    fn new(shard: &Rc<Shard>, table: TableId, key: Rc<[u8]>) -> Option<Self> {
        let store = shard.store(table)?;
        let token = token_of(&key);
        Self::of(shard, table, &store, token, key)
    }

    fn of(shard: &Rc<Shard>, table: TableId, store: &TableStore, token: Token, key: Rc<[u8]>) -> Option<Self> {
        let states = shard.store(paxos_state_id(table))?;
        let tablet = states.tablet(token)?;
        Some(Self {
            shard: Rc::clone(shard),
            tablet,
            states,
            key,
            token,
            ttl: proposal_life(&store.table.borrow()),
        })
    }

    async fn read(&self) -> Result<Box<Known>, ReplicaError> {
        let table = self.states.table();
        let (version, cache) = (self.tablet.version(), self.shard.cache.clone());
        let block = version
            .read_row(&table, &cache, KeyHash::of(&self.key), &self.key, &[])
            .await?;
        let now = now();
        let mut state = State::default();
        let mut changed_at = i64::MIN;
        if let Some(block) = &block {
            for (id, column) in block.rows().flat_map(|(_, row)| row.columns(&table.layout)) {
                let StoredColumn::Simple(cell) = column else { continue };
                changed_at = changed_at.max(cell.timestamp);
                if !cell.is_live(now) {
                    continue;
                }
                let damaged = |e: paxos::Malformed| ReplicaError::Read(format!("the state of an acceptor: {e}"));
                let mut bytes = Reader::new(cell.value);
                match id {
                    COMMITTED => state.committed = Ballot::decode(&mut bytes).map_err(damaged)?,
                    PROMISED => state.promised = Ballot::decode(&mut bytes).map_err(damaged)?,
                    // Forgotten.
                    _ if cell.value.is_empty() => state.proposal = None,
                    _ => state.proposal = Some(Proposal::decode(&mut bytes).map_err(damaged)?),
                }
            }
        }
        Ok(Box::new(Known {
            stored: Summary::of(&state),
            state,
            changed_at,
            learned_at: None,
            prunable: None,
        }))
    }

    /// Appends what the row lacks and may say to the log, and applies it.
    fn write(&self, known: &mut Known) -> Result<(), WriteError> {
        let says = known.storable(&self.shard.log);
        let Known {
            state,
            stored,
            changed_at,
            ..
        } = &*known;
        let table = self.states.table();
        let timestamp = runtime::wall_clock_us().max(changed_at.saturating_add(1));
        let shared = Shared {
            timestamp,
            ttl: self.ttl,
            expiry: now().saturating_add(self.ttl),
        };
        let proposal_bytes = state.proposal.as_ref().map_or(0, Proposal::encoded_bytes_without_past);
        let is_whole = proposal_bytes <= WHOLE_BYTES_MAX;
        let is_written = |ballot: Ballot, had| ballot != had || is_whole && ballot != Ballot::NONE;
        let is_proposal_written = says.proposal != stored.proposal || is_whole && says.proposal.is_some();
        let mut value = Vec::with_capacity(proposal_bytes.max(16));
        let mut bytes = Vec::with_capacity(value.capacity() + self.key.len() + 160);
        let mut builder = MutationBuilder::begin(&mut bytes, table.id, &self.key);
        builder.row(&[], |out| {
            let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, PROPOSAL + 1);
            for (id, ballot, had) in [
                (COMMITTED, says.committed, stored.committed),
                (PROMISED, says.promised, stored.promised),
            ] {
                if is_written(ballot, had) {
                    value.clear();
                    ballot.encode(&mut value);
                    row.value(id, &value);
                }
            }
            if is_proposal_written {
                value.clear();
                if let Some(proposal) = &state.proposal {
                    proposal.encode_without_past(&mut value);
                }
                row.value(PROPOSAL, &value);
            }
        });
        let mutation = Mutation::new(&bytes).expect("it was packed just now");
        self.shard.write_to(&self.tablet, self.token, &mutation)?;
        (known.changed_at, known.stored) = (timestamp, says);
        Ok(())
    }

    /// The same, when there is room. It is not handed to the kernel yet.
    async fn store(&self, known: &mut Known) -> Result<(), ReplicaError> {
        if let Some(position) = known.waits_for(&self.shard.log) {
            let synced = Box::pin(self.shard.log.synced(position)).await;
            synced.map_err(|e| ReplicaError::Log(e.to_string()))?;
        }
        loop {
            match self.write(known) {
                Ok(()) => return Ok(()),
                Err(WriteError::MemoryFull) => Box::pin(self.shard.room()).await?,
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// One partition's state, for one request.
struct Place {
    id: TableId,
    table: Rc<TableStore>,
    row: Row,
    acceptor: Rc<Acceptor>,
    entry: Rc<Entry>,
    /// Of the log, before the request did anything.
    losses: u64,
    stamp: Stamp,
}

impl Place {
    async fn new(shard: &Rc<Shard>, table: TableId, key: &[u8], stamp: Stamp) -> Result<Self, ReplicaError> {
        let store = match shard.store(table) {
            Some(store) => store,
            None => Box::pin(service::store_of(shard, table)).await?,
        };
        let acceptor = Acceptor::local();
        let mut known = acceptor.known(table, key);
        let token = known.as_ref().map_or_else(|| token_of(key), |entry| entry.token);
        let states = shard
            .store(paxos_state_id(table))
            .ok_or(ReplicaError::UnknownTable(table))?;
        if !stamp.check_at(&store, token)? || states.tablet(token).is_none() {
            let both = [(&*store, token), (&*states, token)];
            Box::pin(apply::ready(both.into_iter(), stamp)).await?;
            known = acceptor.known(table, key);
        }
        let entry = match known {
            Some(entry) => {
                entry.was_used.set(true);
                entry
            }
            None => acceptor.begin_entry(shard, table, key, token),
        };
        let row = Row::of(shard, table, &store, token, Rc::clone(&entry.key));
        let row = row.ok_or(ReplicaError::UnknownTable(table))?;
        Ok(Self {
            id: table,
            table: store,
            row,
            acceptor,
            entry,
            losses: shard.log.losses(),
            stamp,
        })
    }

    async fn turn(&self) -> Permit {
        match self.entry.turn.try_acquire(1) {
            Some(turn) => turn,
            None => self.entry.turn.acquire(1).await,
        }
    }

    /// The state, out of memory while it is changed: whatever happens on the way, its row is read again. The request is not stale in this moment.
    async fn take_ready(&self) -> Result<Box<Known>, ReplicaError> {
        let in_memory = self.entry.known.take();
        let known = match in_memory {
            Some(mut known) => {
                known.prune_what_is_durable(&self.row.shard.log);
                known
            }
            None => {
                self.entry.checked_by.take();
                Box::pin(self.row.read()).await?
            }
        };
        let error = match self.stamp.check(&self.table) {
            _ if self.row.tablet.has_left() => {
                let moved = ReplicaError::NotHere(self.row.token);
                self.stamp.or_moved(&self.table, moved)
            }
            Ok(true) => return Ok(known),
            // It waited before it had the turn, which the truncation needs.
            Ok(false) => ReplicaError::Overloaded("the table is being truncated".to_owned()),
            Err(stale) => stale,
        };
        self.entry.known.replace(Some(known));
        Err(error)
    }

    /// Changes the state in its turn. The result of `change` is not to be told before [`synced`]. One whose caller gives up while it waits changes nothing.
    async fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, ReplicaError> {
        let _turn = self.turn().await;
        let mut changing = Changing::new(&self.entry, self.take_ready().await?);
        let known = changing.known.as_mut().expect("it is being changed");
        let result = change(&mut known.state);
        if changing.was_lost {
            known.stored = Summary::of(&State::default());
        }
        if changing.was_lost || Summary::of(&known.state) != Summary::of(&changing.before) {
            let stored = self.row.store(known).await;
            if stored.is_err() {
                // Its row is read again.
                changing.known = None;
            }
            stored?;
        }
        *self.entry.known.borrow_mut() = changing.known.take();
        changing.was_lost = false;
        Ok(result)
    }

    /// Notes in the state what need not be durable: `note` says whether it did.
    async fn note(&self, note: impl FnOnce(&mut Known) -> bool) -> Result<(), ReplicaError> {
        let _turn = self.turn().await;
        let mut known = self.take_ready().await?;
        let is_noted = note(&mut known);
        if is_noted {
            self.acceptor.noted(&self.row.shard, self.id, &self.entry);
        }
        *self.entry.known.borrow_mut() = Some(known);
        Ok(())
    }

    async fn synced(&self) -> Result<(), ReplicaError> {
        runtime::stop_point(StopPoint::AcceptorNoted);
        let synced = synced(&self.row.shard, self.losses).await;
        synced.inspect_err(|_| self.entry.is_lost.set(true))
    }

    /// Applies what was chosen. The position behind it in the log; None when it is durable.
    async fn apply(&self, proposal: &Proposal) -> Result<Option<ReplayPosition>, ReplicaError> {
        let Some(value) = proposal.value() else { return Ok(None) };
        let mutation = Mutation::new(value);
        let mutation = mutation.ok_or_else(|| ReplicaError::Malformed("expected a whole mutation".to_owned()))?;
        let located = Located {
            token: self.row.token,
            mutation,
        };
        apply::apply(&self.row.shard, &[located], false, Origin::Local, self.stamp).await?;
        let log = &self.row.shard.log;
        Ok((!log.is_batch()).then(|| log.written()))
    }

    fn was_checked(&self) -> bool {
        let checked_by = self.entry.checked_by.borrow();
        checked_by
            .as_ref()
            .is_some_and(|t| Arc::ptr_eq(t, &self.table.table.borrow()))
    }

    /// Refuses what could be accepted and never be learned.
    fn check(&self, proposal: &Proposal) -> Result<(), ReplicaError> {
        let Some(value) = proposal.value() else { return Ok(()) };
        let is_of_partition = |m: &Mutation<'_>| m.table == self.id && *m.key == *self.row.key;
        let mutation = Mutation::new(value)
            .filter(is_of_partition)
            .ok_or_else(|| ReplicaError::Malformed("expected a mutation of the statement's partition".to_owned()))?;
        let valid = mutation.validate(&self.table.table.borrow().layout);
        valid.map_err(|e| ReplicaError::Malformed(e.to_string()))
    }
}

fn now() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}

/// Waits until everything appended since the log had so many losses is durable.
async fn synced(shard: &Shard, losses: u64) -> Result<(), ReplicaError> {
    if planted::is_planted(Bug::UnsyncedPromise) {
        return Ok(());
    }
    let durable = shard.log.durable(losses).await;
    durable.map_err(|e| ReplicaError::Log(e.to_string()))
}

/// A replica's part of a phase, in the making.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<PaxosAnswer, ReplicaError>>>>;

/// Does a replica's part of a phase. Each phase is a future of its own: one for all would be as large as the largest.
pub(crate) fn handle(shard: &Rc<Shard>, request: PaxosRequest, stamp: Stamp) -> Answering {
    let shard = Rc::clone(shard);
    let PaxosRequest { table, key, phase } = request;
    match phase {
        Phase::Prepare(ballot, reads) => Box::pin(prepare(shard, (table, key, stamp), ballot, reads)),
        Phase::Accept(proposal) => Box::pin(accept(shard, (table, key, stamp), proposal)),
        Phase::Learn(proposal) => Box::pin(async move {
            let place = Place::new(&shard, table, &key, stamp).await?;
            place.check(&proposal)?;
            let position = place.apply(&proposal).await?;
            runtime::stop_point(StopPoint::DecisionApplied);
            place.note(|known| known.learn(proposal, position)).await?;
            Ok(PaxosAnswer::Done)
        }),
        Phase::Commit(ballot) => Box::pin(commit(shard, (table, key, stamp), ballot)),
        Phase::Prune(ballot) => Box::pin(async move {
            let place = Place::new(&shard, table, &key, stamp).await?;
            place.note(|known| known.prune(ballot, &shard.log)).await?;
            Ok(PaxosAnswer::Done)
        }),
    }
}

type Target = (TableId, Vec<u8>, Stamp);

async fn prepare(
    shard: Rc<Shard>,
    (table, key, stamp): Target,
    ballot: Ballot,
    reads: Vec<ReadCommand>,
) -> Result<PaxosAnswer, ReplicaError> {
    let place = Place::new(&shard, table, &key, stamp).await?;
    let promised: Result<Promise, paxos::Refused> = place.change(|state| state.prepare(ballot)).await?;
    let promise = match promised {
        Ok(promise) => promise,
        Err(refused) => return Ok(PaxosAnswer::Refused(refused.promised)),
    };
    let mut answers: Vec<Answer> = Vec::with_capacity(reads.len());
    let coordinator = Coordinator::local();
    for read in reads {
        let digest = PointCommand::of(&read).and_then(|point| coordinator.digest_at_once(&point, stamp));
        answers.push(match digest {
            Some(digest) => Answer::of_digest(digest),
            None => Box::pin(service::read(&shard, read, stamp)).await?,
        });
    }
    place.synced().await?;
    Ok(PaxosAnswer::Promised(promise, answers))
}

async fn accept(
    shard: Rc<Shard>,
    (table, key, stamp): Target,
    proposal: Proposal,
) -> Result<PaxosAnswer, ReplicaError> {
    let place = Place::new(&shard, table, &key, stamp).await?;
    place.check(&proposal)?;
    let checked_by = place.table.table();
    let accept = |state: &mut State| {
        let accepted = state.accept(proposal);
        if accepted.is_ok() {
            place.entry.checked_by.replace(Some(checked_by));
        }
        accepted
    };
    match place.change(accept).await? {
        Ok(()) => {
            place.synced().await?;
            Ok(PaxosAnswer::Done)
        }
        Err(refused) => Ok(PaxosAnswer::Refused(refused.promised)),
    }
}

/// Learns what this acceptor has accepted at the ballot, which was chosen there.
async fn commit(shard: Rc<Shard>, (table, key, stamp): Target, ballot: Ballot) -> Result<PaxosAnswer, ReplicaError> {
    let place = Place::new(&shard, table, &key, stamp).await?;
    // Others do not come between: they would only have to be taught what is on its way.
    let _turn = place.turn().await;
    let known = place.take_ready().await?;
    let is_done = known.state.committed == ballot;
    let accepted = known
        .state
        .proposal
        .as_ref()
        .filter(|proposal| proposal.ballot == ballot);
    let accepted = accepted.cloned();
    place.entry.known.replace(Some(known));
    let Some(proposal) = accepted.filter(|_| !is_done) else {
        return Ok(if is_done {
            PaxosAnswer::Done
        } else {
            PaxosAnswer::Lacking
        });
    };
    // The table may have been altered since.
    if !place.was_checked() {
        place.check(&proposal)?;
    }
    let position = place.apply(&proposal).await?;
    runtime::stop_point(StopPoint::DecisionApplied);
    // Unless the table was truncated meanwhile.
    let is_noted = place
        .entry
        .known
        .borrow_mut()
        .as_mut()
        .is_some_and(|known| known.learn(proposal, position));
    if is_noted {
        place.acceptor.noted(&place.row.shard, place.id, &place.entry);
    }
    Ok(PaxosAnswer::Done)
}

/// Forgets everything proposed for a table on this shard, because its data is about to be forgotten: a proposal that a quorum accepted
/// and nobody has finished would bring its row back. It is durable when this returns.
pub(crate) async fn forget(shard: &Rc<Shard>, table: TableId) -> Result<(), ReplicaError> {
    let Some(states) = shard.store(paxos_state_id(table)) else {
        return Ok(());
    };
    let losses = shard.log.losses();
    // What was only learned here has no row yet.
    write_notes(shard).await?;
    let at = Ballot {
        timestamp_us: runtime::wall_clock_us(),
        ..Ballot::NONE
    };
    let mut is_changed = false;
    let limits = BlockLimits {
        rows: FORGET_ROWS,
        bytes: FORGET_BYTES,
    };
    let mut scan = TabletScan::all(&states, shard.cache.clone(), limits);
    while let Some(block) = scan.next_block().await? {
        let place = match Place::new(shard, table, block.key(), Stamp::PRESENT).await {
            Ok(place) => place,
            Err(ReplicaError::NotHere(_) | ReplicaError::UnknownTable(_)) => continue,
            Err(e) => return Err(e),
        };
        place.change(|state| state.forget(at)).await?;
        is_changed = true;
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
    if is_changed {
        synced(shard, losses).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
