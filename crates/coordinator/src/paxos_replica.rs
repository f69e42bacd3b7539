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
//! - That a proposal was learned is noted after its mutation is durable. The note itself need not be: without it the proposal is
//!   finished once more, which changes nothing.
//! - Each change of the row has a write timestamp above those before it, those of expired cells included.
//!
//! - When a table's data is forgotten, so is everything proposed for it; what was promised is not.
//!
//! A shard keeps the [`STATES_MAX`] states used last in memory; beyond it a state is read from its row.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use mutation::row::Shared;
use mutation::{ClusteringSlice, Column as StoredColumn, Mutation, MutationBuilder, RowBuilder, Tombstone};
use paxos::{Ballot, Promise, Proposal, State};
use replica::{BlockLimits, PartitionRead, PartitionReader, ScanReader, Shard, TableStore, WriteError};
use runtime::Semaphore;
use schema::{Column, ColumnId, ColumnKind, Table, TableId, TableOptions};
use stdx::bytes::Reader;
use stdx::planted::{self, Bug};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

use crate::message::Answer;
use crate::paxos_message::{PaxosAnswer, PaxosRequest, Phase};
use crate::service::{self, ReplicaError};

/// States kept in memory by each shard.
const STATES_MAX: usize = 1024;
/// The least time that a state is kept, seconds.
const TTL_MIN: u32 = 3 * 60 * 60;

/// How much of the states is looked through at once to forget a table's.
const FORGET_ROWS: usize = 1000;
const FORGET_BYTES: usize = 256 << 10;

/// The column ids of [`paxos_state_of`]: by name.
const COMMITTED: usize = 0;
const PROMISED: usize = 1;
const PROPOSAL: usize = 2;

/// The identity of the table in which acceptors keep what they know of conditional statements on a table.
#[must_use]
pub fn paxos_state_id(of: TableId) -> TableId {
    // "ceto paxos state", read as a number: what it is mixed with is random.
    TableId(Uuid::from_u128(
        of.0.as_u128() ^ 0x6365_746f_2070_6178_6f73_2073_7461_7465,
    ))
}

/// Where acceptors keep what they know of conditional statements on a table: `partition key -> committed, promised, proposal`. A node that
/// has the table has this too, in the same tablets, and opens it before it replays its log.
#[must_use]
pub fn paxos_state_of(table: &Table) -> Arc<Table> {
    let column = |name: &str, kind| Column {
        name: name.to_owned(),
        cql_type: CqlType::Blob,
        kind,
        position: 0,
        descending: false,
        id: ColumnId(0),
    };
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

/// Forgets what this shard's memory has of conditional statements on a table, whose state was dropped.
pub fn forget_paxos_states(table: TableId) {
    Acceptor::local().forget(table);
}

type Name = (TableId, Box<[u8]>);

/// A partition's state, when it is in memory, and the write timestamp of its last change.
struct Entry {
    turn: Semaphore,
    state: RefCell<Option<(State, i64)>>,
}

/// One shard's acceptor: a shard local.
#[derive(Default)]
struct Acceptor {
    entries: RefCell<BTreeMap<Name, Rc<Entry>>>,
    /// The names, those that came first in front.
    order: RefCell<VecDeque<Name>>,
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
        for (_, entry) in entries.iter().filter(|((of, _), _)| *of == table) {
            entry.state.borrow_mut().take();
        }
    }

    fn entry(&self, table: TableId, key: &[u8]) -> Rc<Entry> {
        let name: Name = (table, key.into());
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get(&name) {
            return Rc::clone(entry);
        }
        let mut order = self.order.borrow_mut();
        // Those in use are passed by, once around at most.
        for _ in 0..order.len() {
            if entries.len() < STATES_MAX {
                break;
            }
            let Some(oldest) = order.pop_front() else { break };
            if entries.get(&oldest).is_some_and(|entry| Rc::strong_count(entry) > 1) {
                order.push_back(oldest);
            } else {
                entries.remove(&oldest);
            }
        }
        let entry = Rc::new(Entry {
            turn: Semaphore::new(1),
            state: RefCell::new(None),
        });
        order.push_back(name.clone());
        entries.insert(name, Rc::clone(&entry));
        entry
    }
}

/// One partition's state, in the turn of one request.
struct Place<'r> {
    shard: &'r Rc<Shard>,
    states: Rc<TableStore>,
    request: &'r PaxosRequest,
    token: Token,
    /// Seconds that what is written now is kept.
    ttl: u32,
    entry: &'r Entry,
}

impl Place<'_> {
    /// The state, and the timestamp of its last change.
    async fn load(&self) -> Result<(State, i64), ReplicaError> {
        if let Some(known) = &*self.entry.state.borrow() {
            return Ok(known.clone());
        }
        let tablet = self
            .states
            .tablet(self.token)
            .ok_or(ReplicaError::NotHere(self.token))?;
        let table = self.states.table();
        let read = PartitionRead {
            token: self.token,
            key: self.request.key.clone(),
            slices: vec![ClusteringSlice::all()],
            reversed: false,
            limits: BlockLimits {
                rows: 1,
                bytes: usize::MAX,
            },
        };
        let cache = self.shard.cache.clone();
        let mut reader = PartitionReader::new(table.clone(), tablet.version(), cache, read);
        let now = now();
        let mut state = State::default();
        let mut changed_at = i64::MIN;
        while let Some(block) = reader.next_block().await? {
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
        Ok((state, changed_at))
    }

    /// Writes what differs between two states, and hands it to the kernel.
    async fn store(&self, before: &State, after: State, changed_at: i64) -> Result<(), ReplicaError> {
        let table = self.states.table();
        let timestamp = runtime::wall_clock_us().max(changed_at.saturating_add(1));
        let shared = Shared {
            timestamp,
            ttl: self.ttl,
            expiry: now().saturating_add(self.ttl),
        };
        let mut bytes = Vec::with_capacity(160);
        let mut builder = MutationBuilder::begin(&mut bytes, table.id, &self.request.key);
        builder.row(&[], |out| {
            let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, PROPOSAL + 1);
            let mut value = Vec::new();
            for (id, ballot, had) in [
                (COMMITTED, after.committed, before.committed),
                (PROMISED, after.promised, before.promised),
            ] {
                if ballot != had {
                    value.clear();
                    ballot.encode(&mut value);
                    row.value(id, &value);
                }
            }
            if after.proposal != before.proposal {
                value.clear();
                if let Some(proposal) = &after.proposal {
                    proposal.encode(&mut value);
                }
                row.value(PROPOSAL, &value);
            }
        });
        let mutation = Mutation::new(&bytes).expect("it was packed just now");
        // Whatever happens on the way, the row is read again.
        self.entry.state.borrow_mut().take();
        let losses = self.shard.log.losses();
        loop {
            match self.shard.write(&self.states, self.token, &mutation) {
                Ok(_) => break,
                Err(WriteError::MemoryFull) => self.shard.room().await?,
                Err(e) => return Err(e.into()),
            }
        }
        let log_failure = |e: commitlog::LogError| ReplicaError::Log(e.to_string());
        self.shard.commit().map_err(log_failure)?;
        if self.shard.log.losses() != losses {
            return Err(ReplicaError::Log("a write to it failed meanwhile".to_owned()));
        }
        *self.entry.state.borrow_mut() = Some((after, timestamp));
        Ok(())
    }

    /// Changes the state in its turn. The result of `change` is not to be told before [`synced`].
    async fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, ReplicaError> {
        let turn = self.entry.turn.acquire(1).await;
        let (before, changed_at) = self.load().await?;
        let mut after = before.clone();
        let result = change(&mut after);
        if after == before {
            *self.entry.state.borrow_mut() = Some((before, changed_at));
        } else {
            self.store(&before, after, changed_at).await?;
        }
        drop(turn);
        Ok(result)
    }
}

fn now() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}

/// Waits until everything written so far is durable.
async fn synced(shard: &Shard) -> Result<(), ReplicaError> {
    if planted::is_planted(Bug::UnsyncedPromise) {
        return Ok(());
    }
    let position = shard.log.appended();
    let synced = shard.log.synced(position).await;
    synced.map_err(|e| ReplicaError::Log(e.to_string()))
}

/// Does a replica's part of a phase.
pub(crate) async fn handle(shard: &Rc<Shard>, request: &PaxosRequest) -> Result<PaxosAnswer, ReplicaError> {
    let token = token_of(&request.key);
    let store = service::store_of(shard, request.table).await?;
    if store.tablet(token).is_none() {
        return Err(ReplicaError::NotHere(token));
    }
    let states = paxos_state_id(request.table);
    let states = shard.store(states).ok_or(ReplicaError::UnknownTable(states))?;
    let gc_grace = u32::try_from(store.table().options.gc_grace_seconds).unwrap_or(0);
    let entry = Acceptor::local().entry(request.table, &request.key);
    let place = Place {
        shard,
        states,
        request,
        token,
        ttl: gc_grace.max(TTL_MIN),
        entry: &entry,
    };
    match &request.phase {
        Phase::Prepare(ballot, reads) => {
            let promised: Result<Promise, paxos::Refused> = place.change(|state| state.prepare(*ballot)).await?;
            let promise = match promised {
                Ok(promise) => promise,
                Err(refused) => return Ok(PaxosAnswer::Refused(refused.promised)),
            };
            let mut answers: Vec<Answer> = Vec::with_capacity(reads.len());
            for read in reads {
                answers.push(service::read(shard, read).await?);
            }
            synced(shard).await?;
            Ok(PaxosAnswer::Promised(promise, answers))
        }
        Phase::Accept(proposal) => {
            check(request, proposal, &store.table())?;
            match place.change(|state| state.accept(proposal.clone())).await? {
                Ok(()) => {
                    synced(shard).await?;
                    Ok(PaxosAnswer::Done)
                }
                Err(refused) => Ok(PaxosAnswer::Refused(refused.promised)),
            }
        }
        Phase::Learn(proposal) => {
            check(request, proposal, &store.table())?;
            if let Some(value) = &proposal.value {
                service::apply(shard, &[(token, value.clone())], false, false).await?;
                synced(shard).await?;
            }
            place.change(|state| state.learn(proposal.clone())).await?;
            Ok(PaxosAnswer::Done)
        }
        Phase::Prune(ballot) => {
            place.change(|state| state.prune(*ballot)).await?;
            Ok(PaxosAnswer::Done)
        }
    }
}

/// Forgets everything proposed for a table on this shard, because its data is about to be forgotten: a proposal that a quorum accepted
/// and nobody has finished would bring its row back. It is durable when this returns.
pub(crate) async fn forget(shard: &Rc<Shard>, table: TableId) -> Result<(), ReplicaError> {
    let Some(states) = shard.store(paxos_state_id(table)) else {
        return Ok(());
    };
    let gc_grace = shard
        .store(table)
        .map_or(0, |store| store.table().options.gc_grace_seconds);
    let ttl = u32::try_from(gc_grace).unwrap_or(0).max(TTL_MIN);
    let at = Ballot {
        timestamp_us: runtime::wall_clock_us(),
        ..Ballot::NONE
    };
    let mut is_changed = false;
    for tablet in &states.tablets {
        let limits = BlockLimits {
            rows: FORGET_ROWS,
            bytes: FORGET_BYTES,
        };
        let (cache, from) = (shard.cache.clone(), (tablet.range.after, Vec::new()));
        let mut scan = ScanReader::new(states.table(), tablet.version(), cache, tablet.range, from, limits);
        while let Some(block) = scan.next_block().await? {
            let request = PaxosRequest {
                table,
                key: block.key().to_vec(),
                phase: Phase::Prune(Ballot::NONE),
            };
            let entry = Acceptor::local().entry(table, &request.key);
            let place = Place {
                shard,
                states: states.clone(),
                request: &request,
                token: block.token,
                ttl,
                entry: &entry,
            };
            place.change(|state| state.forget(at)).await?;
            is_changed = true;
            if runtime::should_yield() {
                runtime::yield_now().await;
            }
        }
    }
    if is_changed {
        synced(shard).await?;
    }
    Ok(())
}

/// Refuses what could be accepted and never be learned.
fn check(request: &PaxosRequest, proposal: &Proposal, table: &Table) -> Result<(), ReplicaError> {
    let Some(value) = &proposal.value else { return Ok(()) };
    let is_of_partition = |m: &Mutation<'_>| m.table == request.table && m.key == request.key;
    let mutation = Mutation::new(value)
        .filter(is_of_partition)
        .ok_or_else(|| ReplicaError::Malformed("expected a mutation of the statement's partition".to_owned()))?;
    let valid = mutation.validate(&table.layout);
    valid.map_err(|e| ReplicaError::Malformed(e.to_string()))
}
