//! The row in which an acceptor keeps what it knows of a partition.

use std::rc::Rc;
use std::sync::Arc;

use mutation::row::Shared;
use mutation::{Column as StoredColumn, Mutation, MutationBuilder, RowBuilder, Tombstone};
use paxos::{Ballot, Proposal, State};
use replica::{RowName, Shard, TableStore, Tablet, WriteError, paxos_state_id, proposal_life};
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use stdx::bytes::Reader;
use types::{CqlType, Token};

use super::known::Known;
use crate::service::ReplicaError;

/// A row up to this size is written whole, though only a ballot of it changed: it replaces the former row, where a part
/// of it would have to be merged cell by cell.
pub(super) const WHOLE_BYTES_MAX: usize = 2_048;

/// The column ids of [`paxos_state_of`]: by name.
const COMMITTED: usize = 0;
const PROMISED: usize = 1;
const PROPOSAL: usize = 2;

/// Where acceptors keep what they know of conditional statements on a table: `partition key -> committed, promised,
/// proposal`. A node that has the table has this too, in the same tablets, and opens it before it replays its log.
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
        // What has expired is gone permanently: each replica has its own state, and no repair restores it.
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

/// Buffers that writes of rows reuse.
#[derive(Default)]
pub(super) struct Buffers {
    row: Vec<u8>,
    value: Vec<u8>,
}

/// Where a partition's state is stored.
pub(super) struct Row {
    /// The table that the state is about.
    pub(super) base: Rc<TableStore>,
    pub(super) states: Rc<TableStore>,
    pub(super) tablet: Rc<Tablet>,
    /// Seconds that what is written now is kept.
    pub(super) ttl: u32,
}

impl Row {
    /// None: the partition is not here, or not any more.
    pub(super) fn of(shard: &Shard, table: TableId, token: Token) -> Option<Self> {
        let base = shard.store(table)?;
        let states = shard.store(paxos_state_id(table))?;
        Some(Self {
            tablet: states.tablet(token)?,
            states,
            ttl: proposal_life(&base.table()),
            base,
        })
    }

    /// What the row of this key says.
    pub(super) async fn read(self, shard: &Rc<Shard>, key: &[u8]) -> Result<Known, ReplicaError> {
        let table = self.states.table();
        let (version, cache) = (self.tablet.version(), shard.cache.clone());
        let block = version.read_row(&table, &cache, RowName::new(key, &[])).await?;
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
        Ok(Known::of_row(state, changed_at))
    }

    /// Appends what the row of this key lacks and may say to the log, and applies it. It is not handed to the kernel
    /// yet.
    pub(super) fn write(
        &self,
        shard: &Rc<Shard>,
        (key, token): (&[u8], Token),
        known: &mut Known,
        buffers: &mut Buffers,
    ) -> Result<(), WriteError> {
        let says = known.storable(&shard.log);
        let Known {
            state,
            stored,
            changed_at,
            is_row_lost,
            ..
        } = &*known;
        let table = self.states.table.borrow();
        let timestamp = runtime::wall_clock_us().max(changed_at.saturating_add(1));
        let shared = Shared {
            timestamp,
            ttl: self.ttl,
            expiry: now().saturating_add(self.ttl),
        };
        let proposal_bytes = state.proposal.as_ref().map_or(0, Proposal::encoded_bytes_without_past);
        let is_whole = proposal_bytes <= WHOLE_BYTES_MAX;
        let is_written = |ballot: Ballot, had| *is_row_lost || ballot != had || is_whole && ballot != Ballot::NONE;
        let is_proposal_written =
            *is_row_lost || says.proposal != stored.proposal || is_whole && says.proposal.is_some();
        buffers.row.clear();
        let mut builder = MutationBuilder::begin(&mut buffers.row, table.id, key);
        builder.row(&[], |out| {
            let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, PROPOSAL + 1);
            for (id, ballot, had) in [
                (COMMITTED, says.committed, stored.committed),
                (PROMISED, says.promised, stored.promised),
            ] {
                if is_written(ballot, had) {
                    row.value(id, &ballot.to_bytes());
                }
            }
            if is_proposal_written {
                buffers.value.clear();
                if let Some(proposal) = &state.proposal {
                    proposal.encode_without_past(&mut buffers.value);
                }
                row.value(PROPOSAL, &buffers.value);
            }
        });
        let mutation = Mutation::new(&buffers.row).expect("it was packed just now");
        let logged = if known.beside.is_empty() {
            shard.write_to(&self.tablet, token, &mutation)?
        } else {
            let learned = known
                .beside
                .iter()
                .filter_map(|learned| Mutation::new(learned.value()?));
            let learned = learned.map(|mutation| (Rc::clone(&self.base), token, mutation));
            let row = (Rc::clone(&self.states), token, mutation);
            shard.write_batch(&learned.chain([row]).collect::<Vec<_>>())?
        };
        (known.changed_at, known.stored, known.is_row_lost) = (timestamp, says, false);
        known.row_at = Some(logged.into());
        Ok(())
    }
}

fn now() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}
