//! Compare and set: the one way of conditional statements and serial reads.
//!
//! A statement waits for its turn among those of this shard on its partition, first come, first served. In its turn it
//! is decided: by a quorum of the partition's replicas (`paxos.rs`), or, where this shard is the only replica, by this
//! shard alone, which reads, decides and writes in one turn without a round of messages. Correctness does not depend on
//! the turn where a quorum decides; it makes statements of one shard wait for each other instead of refusing each
//! other's ballots.
//!
//! # Deciding alone
//!
//! A shard decides alone only while all of this holds, and it looks again in the step in which it writes:
//!
//! - its view says that no other replica has the partition, or is to get it;
//! - the table takes requests of that view (`fence.rs`), and no sstable of it is missing here;
//! - its acceptor knows nothing of the table ([`crate::cas::acceptor::Acceptor::is_quiet`]).
//!
//! The last condition orders it with statements that others lead in a newer view, which this shard may not have yet:
//! their first phase is done by this shard's acceptor. If that phase comes first, the statement continues by Paxos. If
//! it comes later, it reads what was written here, and its sync makes that durable. The statement holds its view, so a
//! change of the cluster that waits for older requests waits for it.
//!
//! A statement is answered when everything that conditional statements wrote to the partition is durable, in whatever
//! mode the log is.

pub(crate) mod acceptor;
#[cfg(test)]
mod agreement;
mod asking;
mod contention;
mod learn;
pub(crate) mod message;
mod rounds;
pub(crate) mod turns;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use memory::RowMemory;
use mutation::compact::LiveRow;
use mutation::{Located, Mutation, PartitionBlock, RowView};
use replica::write::aside::is_long_alone;
use replica::{TableStore, Tablet, WriteError, paxos_state_id};
use runtime::Instant;
use schema::{Table, TableId};
use stdx::planted::{self, Bug};
use topology::{Consistency, Unavailable, WriteTargets};
use types::Token;
use types::token::token_of;

use crate::cas::turns::{PartitionTurns, Turn};
use crate::fence::Stamp;
use crate::message::{Extent, ReadCommand};
use crate::service::{self, ReplicaError};
use crate::write::apply::{self, apply_to};
use crate::{ClusterView, Context, CoordinatorError, Promises, Reads, Stretch, Tally, WriteKind, Writes, trace};

/// The conditional statements that this shard coordinates or takes part in.
pub struct Cas {
    pub(crate) context: Rc<Context>,
    pub(crate) reads: Rc<Reads>,
    pub(crate) writes: Rc<Writes>,
    pub(crate) acceptor: Rc<acceptor::Acceptor>,
    /// Conditional statements and serial reads of this shard's clients.
    turns: PartitionTurns,
    /// The timestamp of this shard's last ballot.
    last_ballot_us: Cell<i64>,
    /// What acceptors usually take to answer.
    phase_usual: Cell<Duration>,
    contention: contention::Contention,
}

/// What acceptors take to answer, until it is known.
const PHASE_USUAL: Duration = Duration::from_millis(5);

impl Cas {
    pub(crate) fn new(context: Rc<Context>, reads: Rc<Reads>, writes: Rc<Writes>) -> Self {
        Self {
            context,
            reads,
            writes,
            acceptor: acceptor::Acceptor::new(),
            turns: PartitionTurns::default(),
            last_ballot_us: Cell::default(),
            phase_usual: Cell::new(PHASE_USUAL),
            contention: contention::Contention::default(),
        }
    }
}

/// How much a serial read holds in memory until it is known to be of one moment: as much as a page of results may have.
pub const SERIAL_BYTES_MAX: usize = 1 << 20;

/// What a conditional statement reads before it decides.
#[derive(Clone, Debug)]
pub struct CasRead {
    /// Of the statement's partition.
    pub extent: Extent,
    /// How much of it is read at once.
    pub stretch: Stretch,
}

/// What was read of an extent so far.
#[derive(Debug)]
pub struct ReadResult {
    /// In reading order.
    pub blocks: Vec<PartitionBlock>,
    /// Whether that is all; else more can be read.
    pub is_all: bool,
}

/// The decision of a statement, given what was read.
#[derive(Debug)]
pub enum Decision {
    /// Nothing is written: the condition does not hold, or there is nothing to write.
    Keep,
    /// The packed mutation, with the timestamp that the decision was asked for.
    Write(Vec<u8>),
    /// Ask again with a timestamp above this one, at which something was written already.
    Above(i64),
    /// Ask again with more of the extent of this number.
    ReadOn(usize),
}

/// A conditional statement.
#[derive(Clone)]
pub struct CasRequest {
    /// The table.
    pub table: Arc<Table>,
    /// The partition's serialised key.
    pub key: Vec<u8>,
    /// What to read.
    pub reads: Vec<CasRead>,
    /// The second at which rows live or not.
    pub now: u32,
    /// SERIAL or LOCAL_SERIAL.
    pub serial: Consistency,
    /// How many replicas must have learned the decision before it is answered.
    pub commit: Consistency,
    /// When it ends, decided or not.
    pub deadline: Instant,
    /// When it ends if others come before it again and nothing was proposed.
    pub contention_deadline: Instant,
    /// A timestamp above those that the caller has given to other writes; microseconds.
    pub timestamp_us: i64,
    /// The memory for what it reads; None: it is not limited.
    pub memory: Option<Arc<dyn RowMemory>>,
}

/// A statement that reads more than this reserves memory.
const UNRESERVED_BYTES_MAX: usize = 64 << 10;

impl CasRequest {
    /// Waits until memory is reserved for what the statement has read.
    ///
    /// # Errors
    /// When there is none before the statement's deadline.
    pub(crate) async fn hold(&self, found: &[ReadResult]) -> Result<(), CoordinatorError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let blocks = found.iter().flat_map(|result| &result.blocks);
        let bytes: usize = blocks.map(PartitionBlock::size).sum();
        if bytes <= UNRESERVED_BYTES_MAX {
            return Ok(());
        }
        match runtime::timeout_at(self.deadline, memory.hold(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(CoordinatorError::Overloaded(format!(
                "The rows that the conditional statement reads have {bytes} bytes or more, and the node has no room for them: results that are being made, or that clients do \
                 not read, have it all"
            ))),
        }
    }
}

/// The outcome of an attempt to decide alone.
enum Alone {
    /// True: something was written.
    Decided(bool),
    /// A quorum has to decide: this shard may not, and nothing is written.
    Quorum,
    /// The table changed since it was read, and nothing is written.
    Again,
}

impl Cas {
    /// Compare and set: reads, calls `decide`, and writes what it decides. Linearizable with other conditional
    /// operations on the partition. `decide` may be called several times; the last answer counts. True: something was
    /// written.
    ///
    /// # Errors
    /// When too few replicas live or answer in time; see `paxos.rs`.
    pub async fn compare_and_set(
        self: &Rc<Self>,
        request: &CasRequest,
        decide: &mut dyn FnMut(&mut [ReadResult], i64) -> Decision,
    ) -> Result<bool, CoordinatorError> {
        self.refuse_apart(request)?;
        let turn = self.cas_turn(request).await?;
        loop {
            match self.cas_alone(request, &turn, decide).await? {
                Alone::Quorum => return self.cas_of_quorum(request, decide).await,
                Alone::Again => {}
                Alone::Decided(is_written) => {
                    let ended = turn.end();
                    let synced = self.context.shard.log.synced(ended.written()).await;
                    synced.map_err(|e| self.failed_alone(request, ReplicaError::Log(e.to_string())))?;
                    return Ok(is_written);
                }
            }
        }
    }

    /// A read of one partition at SERIAL or LOCAL_SERIAL. It sees every conditional statement that was decided before,
    /// none that was overtaken, and all of one moment, up to `rows` living rows and [`SERIAL_BYTES_MAX`]; what comes
    /// after that is another read.
    ///
    /// It is a conditional statement that decides to write nothing: a quorum promises its ballot and sends what it has;
    /// what they answer at several moments counts only if a quorum confirms the ballot afterwards.
    ///
    /// # Errors
    /// When too few replicas live or answer in time.
    pub async fn serial_read(
        self: &Rc<Self>,
        table: &Arc<Table>,
        read: CasRead,
        rows: usize,
        serial: Consistency,
        now: u32,
        deadline: Instant,
    ) -> Result<ReadResult, CoordinatorError> {
        let Extent::Partition { key, .. } = &read.extent else {
            return Err(CoordinatorError::Internal(
                "a serial read is of one partition".to_owned(),
            ));
        };
        let request = CasRequest {
            table: Arc::clone(table),
            key: key.clone(),
            reads: vec![read],
            now,
            serial,
            commit: Consistency::Any,
            deadline,
            contention_deadline: runtime::now() + self.context.timeouts().cas_contention,
            timestamp_us: runtime::wall_clock_us(),
            // A read has at most SERIAL_BYTES_MAX and a block.
            memory: None,
        };
        let mut result = ReadResult {
            blocks: Vec::new(),
            is_all: true,
        };
        let mut decide = |found: &mut [ReadResult], _| {
            let has_rows: usize = found[0].blocks.iter().map(|block| live_rows(table, block, now)).sum();
            let has_bytes: usize = found[0].blocks.iter().map(PartitionBlock::size).sum();
            if !found[0].is_all && has_rows < rows && has_bytes < SERIAL_BYTES_MAX {
                return Decision::ReadOn(0);
            }
            result.is_all = found[0].is_all;
            result.blocks = std::mem::take(&mut found[0].blocks);
            Decision::Keep
        };
        let done = self.compare_and_set(&request, &mut decide).await;
        done.map_err(|error| match error {
            CoordinatorError::CasTimeout { tally, .. } | CoordinatorError::CasUnknown { tally, .. } => {
                CoordinatorError::ReadTimeout {
                    tally,
                    data_present: false,
                    missing: "a quorum of acceptors".to_owned(),
                }
            }
            other => other,
        })?;
        Ok(result)
    }

    /// Keeps promises of ballots with those of the node's other shards.
    pub fn keep_promises(&self, promises: Arc<Promises>) {
        self.acceptor.keep_promises(promises);
    }

    /// Forgets what is in memory of conditional statements on a table whose states were dropped.
    pub fn forget_states(&self, table: TableId) {
        self.acceptor.forget(table);
    }

    /// Forgets what this shard's acceptors have in memory of tokens that are not its own any more. In the step in which
    /// the tablets of `changed` left.
    pub fn forget_left(&self, changed: &[Rc<TableStore>]) {
        for store in changed {
            // Those of a table's states leave with the table's.
            let table = store.table().id;
            if self.context.shard.store(paxos_state_id(table)).is_some() {
                self.acceptor.forget_left(table, |token| store.tablet(token).is_none());
            }
        }
    }

    /// Writes what is known of conditional statements in memory alone; before the node ends.
    ///
    /// # Errors
    /// The sentence says what could not be written; later statements on the partitions find it out.
    pub async fn note_learned(&self) -> Result<(), String> {
        let noted = self.acceptor.write_notes(&self.context.shard).await;
        noted.map_err(|e| format!("cannot record what Paxos acceptors have learned: {e}"))
    }

    /// The number of partitions on which statements of this shard have a turn, wait for one, or wait for the log after
    /// one.
    #[must_use]
    pub fn contended_partitions(&self) -> usize {
        self.turns.partitions()
    }

    /// Refuses conditional statements on a node that is apart from the other members of its cluster, even where one
    /// acceptor would do: the metadata that it goes by may be older than a move of the partition, whose next replicas
    /// decide without it.
    fn refuse_apart(&self, request: &CasRequest) -> Result<(), CoordinatorError> {
        let has_peers = || self.context.with_view(|view| view.topology.members().count() > 1);
        if self.context.rpc.is_some() || !has_peers() {
            return Ok(());
        }
        self.context.count(|m| m.unavailable += 1);
        Err(CoordinatorError::Unavailable(Unavailable {
            consistency: request.serial,
            required: 1,
            alive: 0,
            datacenter: None,
        }))
    }

    async fn cas_turn(&self, request: &CasRequest) -> Result<Turn, CoordinatorError> {
        let turn = self.turns.take(request.table.id, &request.key);
        let turn = runtime::timeout_at(request.deadline, turn).await;
        turn.map_err(|_| CoordinatorError::CasTimeout {
            tally: Tally {
                consistency: request.serial,
                received: 0,
                block_for: 1,
            },
            contentions: 1,
        })
    }

    /// Whether this shard may decide about a partition alone, as of this view.
    fn decides_alone(&self, view: &ClusterView, request: &CasRequest, token: Token) -> bool {
        let table = request.table.id;
        let (Some(route), Some(store)) = (view.route(table), self.context.shard.store(table)) else {
            return false;
        };
        let targets = WriteTargets::new(&route.map.tablet_of(token));
        let mut others = targets
            .all()
            .filter(|replica| *replica != self.context.this_replica(view));
        let is_only = targets.natural.len() == 1 && others.next().is_none();
        // At no level: a truncation, a fence, or a lost sstable.
        let is_withdrawn = store.reads_here.get() == 0 || store.writes_here.get() == 0;
        let is_quiet =
            self.acceptor.is_quiet(&self.context.shard, table, token) || planted::is_planted(Bug::UnheededAcceptor);
        is_only && !is_withdrawn && is_quiet
    }

    /// Whether one replica is enough for the levels of a statement: there may be fewer nodes than a keyspace wants
    /// copies.
    fn suffices_alone(&self, view: &ClusterView, request: &CasRequest, token: Token) -> bool {
        let Some(route) = view.route(request.table.id) else {
            return false;
        };
        let tablet = route.map.tablet_of(token);
        [request.serial, request.commit].into_iter().all(|level| {
            let requirement = route.write_requirement(level, &tablet, &view.locality);
            let alone = requirement.count([self.context.this_replica(view)], &view.locality);
            requirement.is_sufficient(&alone).is_ok()
        })
    }

    async fn cas_alone(
        self: &Rc<Self>,
        request: &CasRequest,
        turn: &Turn,
        decide: &mut dyn FnMut(&mut [ReadResult], i64) -> Decision,
    ) -> Result<Alone, CoordinatorError> {
        let (view, token) = (self.context.view(), token_of(&request.key));
        let store = self.context.shard.store(request.table.id);
        let Some(tablet) = store.and_then(|store| store.tablet(token)) else {
            return Ok(Alone::Quorum);
        };
        if !self.decides_alone(&view, request, token) || !self.suffices_alone(&view, request, token) {
            return Ok(Alone::Quorum);
        }
        trace::note(|| "Deciding on this shard alone, as no other replica takes part".to_owned());
        let mut all = Vec::with_capacity(request.reads.len());
        let mut left: Vec<Option<Extent>> = Vec::with_capacity(request.reads.len());
        for read in &request.reads {
            let mut found = ReadResult {
                blocks: Vec::new(),
                is_all: false,
            };
            match self
                .read_alone(&view, request, read, read.extent.clone(), &mut found)
                .await
            {
                Ok(rest) => left.push(rest),
                Err(error) => return self.stopped_alone(request, error),
            }
            all.push(found);
        }
        let mut floor_us = i64::MIN;
        loop {
            let timestamp = request.timestamp_us.max(floor_us.saturating_add(1));
            match decide(&mut all, timestamp) {
                Decision::Keep => return Ok(Alone::Decided(false)),
                Decision::Above(i64::MAX) => {
                    let reason = "the row was written at the last of all timestamps; nothing can come after it";
                    return Err(CoordinatorError::Internal(reason.to_owned()));
                }
                Decision::Above(written) => floor_us = floor_us.max(written),
                Decision::ReadOn(number) => {
                    let Some(extent) = left.get_mut(number).and_then(Option::take) else {
                        let reason = "a conditional statement asks for more than everything";
                        return Err(CoordinatorError::Internal(reason.to_owned()));
                    };
                    request.hold(&all).await?;
                    let read = &request.reads[number];
                    match self.read_alone(&view, request, read, extent, &mut all[number]).await {
                        Ok(rest) => left[number] = rest,
                        Err(error) => return self.stopped_alone(request, error),
                    }
                }
                Decision::Write(bytes) => {
                    return self.write_alone(&view, request, (&tablet, token), turn, &bytes).await;
                }
            }
        }
    }

    /// Reads the next stretch of an extent; returns what is left after it.
    async fn read_alone(
        &self,
        view: &Arc<ClusterView>,
        request: &CasRequest,
        read: &CasRead,
        extent: Extent,
        found: &mut ReadResult,
    ) -> Result<Option<Extent>, ReplicaError> {
        let command = ReadCommand {
            table: request.table.id,
            extent: extent.clone(),
            now: request.now,
            rows: read.stretch.rows,
            bytes: read.stretch.bytes,
            until: None,
            digest_only: false,
            bypasses_cache: false,
            withholds: false,
            listing: None,
        };
        let stamp = Stamp::of(view, request.table.id);
        let answer = service::read_undigested(&self.context.shard, command, stamp).await?;
        let order = &request.table.clustering_order;
        let rest = answer.end.as_ref().and_then(|end| extent.behind_place(end, order));
        found.is_all = rest.is_none();
        found.blocks.extend(answer.blocks);
        Ok(rest)
    }

    /// Writes a decision to the tablet that it was made of, and hands it to the kernel; it is not durable yet.
    async fn write_alone(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        request: &CasRequest,
        (tablet, token): (&Tablet, Token),
        turn: &Turn,
        bytes: &[u8],
    ) -> Result<Alone, CoordinatorError> {
        let mutation = Mutation::new(bytes).expect("it was packed just now");
        let stamp = Stamp::of(view, request.table.id);
        let mut aside = None;
        loop {
            let Some(store) = self.context.shard.store(request.table.id) else {
                return Ok(Alone::Quorum);
            };
            match stamp.check(&store) {
                // Others may have decided where it went, even if it has come back.
                _ if tablet.has_left() => return Ok(Alone::Again),
                Ok(true) if self.decides_alone(view, request, token) => {}
                Ok(true) => return Ok(Alone::Quorum),
                Ok(false) | Err(_) => return Ok(Alone::Again),
            }
            if self.context.refuses_here(&store, &mutation) {
                self.writes.require_for_decision(view, bytes, [Consistency::One; 2])?;
            }
            if aside.is_none() && is_long_alone(&store, &mutation) {
                let merged = self.context.shard.merge_aside(&[(store, token, mutation)]).await;
                aside = merged.map_err(|e| self.failed_alone(request, e.into()))?;
                match aside {
                    Some(_) => continue,
                    None => return Ok(Alone::Again),
                }
            }
            let applied = match aside.take() {
                Some(aside) => match self.context.shard.write_aside(&[(store, token, mutation)], aside) {
                    Ok(None) => continue,
                    Err(WriteError::MemoryFull) => Ok(None),
                    written => written.map_err(ReplicaError::from),
                },
                None => apply_to(&self.context.shard, &store, Located { token, mutation }),
            };
            let written = match applied {
                Ok(Some(logged)) => {
                    let committed = apply::commit(&self.context.shard, logged.place().mark);
                    committed.map(|()| logged.place())
                }
                Ok(None) => match self.context.shard.room().await {
                    Ok(()) => continue,
                    Err(e) => Err(e.into()),
                },
                Err(e) => Err(e),
            };
            let place = written.map_err(|e| self.failed_alone(request, e))?;
            turn.wrote(place.position);
            self.acceptor.decided_alone(place);
            return Ok(Alone::Decided(true));
        }
    }

    /// A read of this shard's own data failed.
    fn stopped_alone(&self, request: &CasRequest, error: ReplicaError) -> Result<Alone, CoordinatorError> {
        match error {
            // The view is over, or about to be: the participants in the next one decide.
            ReplicaError::Stale(_) => Ok(Alone::Quorum),
            error => Err(self.failed_alone(request, error)),
        }
    }

    fn failed_alone(&self, request: &CasRequest, error: ReplicaError) -> CoordinatorError {
        let tally = Tally {
            consistency: request.serial,
            received: 0,
            block_for: 1,
        };
        let failures = self.context.with_view(|view| vec![(view.address(view.me), 0)]);
        let reason = error.to_string();
        match error {
            ReplicaError::Overloaded(_) => CoordinatorError::Overloaded(format!("{reason}.")),
            ReplicaError::TooLarge(_) => CoordinatorError::Rejected(reason),
            ReplicaError::Read(_) | ReplicaError::NotIndexed(_) | ReplicaError::CannotLead(_) => {
                CoordinatorError::ReadFailure {
                    tally,
                    data_present: false,
                    failures,
                    reason,
                }
            }
            ReplicaError::Log(_) | ReplicaError::Partial(_) => CoordinatorError::WriteFailure {
                tally,
                kind: WriteKind::Simple,
                failures,
                reason,
            },
            ReplicaError::UnknownTable(_)
            | ReplicaError::NotHere(_)
            | ReplicaError::DiskFull(_)
            | ReplicaError::Malformed(_)
            | ReplicaError::Stale(_) => CoordinatorError::Internal(reason),
        }
    }
}

fn live_rows(table: &Table, block: &PartitionBlock, now: u32) -> usize {
    let is_live = |(clustering, row): &(&[u8], RowView<'_>)| {
        let deletion = block.deletion_of(&table.clustering_order, clustering);
        LiveRow::new(*row, &table.layout, deletion, now).is_live()
    };
    block.rows().filter(is_live).count()
}
