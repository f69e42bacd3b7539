//! Counters: how one replica adds to them, and how the others learn of it.
//!
//! A counter's cell holds an element for each *source*: a shard of a node that has added to it, with the sum of what it
//! added and the clock of its last addition as write timestamp. The counter's value is the sum over the elements. Only
//! the source itself changes its element, and the later one wins like in any collection; so replicas merge in any
//! order, again and again, to the same value.
//!
//! A statement's additions travel to one live replica of the partition, the *leader*: here if there is one. It takes
//! its turn on the partition, reads its own element, writes the new one to its log and memtable, and then sends it to
//! the other replicas as an ordinary write, at the statement's level. A write that times out leaves one source's newer
//! element: it arrives as a hint, by repair, or with the next addition, once.
//!
//! Invariants
//! - An addition is sent to one leader. It is sent to another only when the first certainly did nothing.
//! - A source never adds to an element that may be older than one that others have of it: a shard that did not end in
//!   order adds under a new name ([`Counters::set_source`]), and so does one whose data of the counter came
//!   from another node ([`TableStore::counter_source`]). Elements of former names stay as they are.
//! - An element's clock is above the one before, above the deletions that the leader knows of, and at least its wall
//!   clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use mutation::compact::{LiveColumn, LiveRow};
use mutation::row::{Cell, Column, RowBuilder, RowView, Shared};
use mutation::{Addressed, ClusteringSlice, Located, Mutation, MutationBuilder, MutationItem, Tombstone};
use replica::{BlockLimits, PartitionRead, PartitionReader, Shard, TableStore, new_counter_source};
use runtime::{Instant, ShardId};
use schema::Table;
use stdx::bytes::{Reader, put_sized};
use topology::{Consistency, Replica, WriteTargets};
use types::Token;
use types::token::KeyHash;

use crate::fence::Stamp;
use crate::message::{Malformed, decode_mutations, encode_mutations, sized};
use crate::service::{self, ReplicaError};
use crate::trace;
use crate::verbs::Verb;
use crate::write::apply::{self, Origin};
use crate::write::dated::{Dated, Deadline};
use crate::write::{Atomicity, Manner, Mutations};
use crate::{
    ClusterView, Context, Coordinator, CoordinatorError, PartitionTurns, Tally, TargetError, WriteKind, Writes,
};

/// Bytes that one step of a leader's read takes.
const BLOCK_BYTES: usize = 256 << 10;

/// Additions that one leader makes.
struct Share {
    mutations: Vec<Addressed>,
    /// The replicas that may lead, best first.
    leaders: Vec<Replica>,
}

/// The additions to counters that this shard leads.
pub struct Counters {
    context: Rc<Context>,
    writes: Rc<Writes>,
    /// The name under which it adds.
    source: std::cell::Cell<[u8; 16]>,
    /// How many sstables the shard had lost when it took that name.
    sstables_lost: std::cell::Cell<u64>,
    turns: PartitionTurns,
}

impl Counters {
    pub(crate) fn new(context: Rc<Context>, writes: Rc<Writes>) -> Self {
        let source = new_counter_source();
        Self {
            context,
            writes,
            source: std::cell::Cell::new(source),
            sstables_lost: std::cell::Cell::new(0),
            turns: PartitionTurns::default(),
        }
    }

    /// Under which name this shard adds to counters. It must be new to all replicas, or have been this shard's when it
    /// last ended in order, with everything it had written.
    pub fn set_source(&self, source: [u8; 16]) {
        self.source.set(source);
    }

    /// Under which name this shard may add to counters in its next run, if it ends in order.
    #[must_use]
    pub fn source_to_keep(&self) -> [u8; 16] {
        let source = self.own_source();
        if self.context.shard.stores().iter().any(|store| store.has_arrivals()) {
            new_counter_source()
        } else {
            source
        }
    }

    /// Under which name this shard adds to the counters of a token.
    fn source(&self, store: &TableStore, token: Token) -> [u8; 16] {
        let own = self.own_source();
        store.counter_source(token).unwrap_or(own)
    }

    fn own_source(&self) -> [u8; 16] {
        // What was counted under the former names may be missing here: other replicas would take what is counted under
        // them now for older.
        let lost = self.context.shard.sstables_lost();
        if self.sstables_lost.replace(lost) != lost {
            self.source.set(new_counter_source());
            self.context
                .shard
                .stores()
                .iter()
                .for_each(|store| store.forget_arrivals());
        }
        self.source.get()
    }

    /// Adds to counters. In each mutation the cell of a counter has one element without a path: the number to add.
    ///
    /// # Errors
    /// When too few replicas live, answer, or can write. After a timeout or a failure the addition may have happened;
    /// it is not tried again.
    pub async fn add(self: &Rc<Self>, additions: Vec<Addressed>, dated: &Dated) -> Result<(), CoordinatorError> {
        let deadline = dated.deadline.or_after(self.context.timeouts().counter);
        let mut results = Vec::new();
        let mut left = additions;
        // One round for each view that its replicas have moved past: a node that catches up has hundreds.
        while !left.is_empty() {
            let round = match self.add_once(std::mem::take(&mut left), dated.level, deadline).await {
                Ok(round) => round,
                Err(error) => vec![Err(error)],
            };
            for result in round {
                match result {
                    Ok(again) if again.is_empty() => results.push(Ok(())),
                    Ok(again) => left.extend(again),
                    Err(error) => results.push(Err(error)),
                }
            }
        }
        joined(results, dated.level)
    }

    /// For each share of the additions: what is to be added again in a newer view, of which nothing was.
    async fn add_once(
        self: &Rc<Self>,
        additions: Vec<Addressed>,
        level: Consistency,
        deadline: Instant,
    ) -> Result<Vec<Result<Vec<Addressed>, CoordinatorError>>, CoordinatorError> {
        self.writes.require(&additions, level, WriteKind::Counter)?;
        let view = self.context.view();
        let mut shares: Vec<Share> = Vec::new();
        for addition in additions {
            let leaders = self.leaders(&view, &addition)?;
            match shares.iter_mut().find(|share| share.leaders.first() == leaders.first()) {
                Some(share) => {
                    share.leaders.retain(|leader| leaders.contains(leader));
                    share.mutations.push(addition);
                }
                None => shares.push(Share {
                    mutations: vec![addition],
                    leaders,
                }),
            }
        }
        let last = shares.pop();
        let others: Vec<_> = shares
            .into_iter()
            .map(|share| {
                let (counters, view) = (Rc::clone(self), Arc::clone(&view));
                runtime::spawn(async move { counters.have_added(&view, share, level, deadline).await })
            })
            .collect();
        let mut results = Vec::with_capacity(others.len() + 1);
        if let Some(share) = last {
            results.push(self.have_added(&view, share, level, deadline).await);
        }
        for other in others {
            results.push(other.await);
        }
        Ok(results)
    }

    /// The replicas of a partition that live and take writes, those near first, this shard before all.
    fn leaders(&self, view: &ClusterView, addition: &Addressed) -> Result<Vec<Replica>, CoordinatorError> {
        let token = addition.token();
        let route = view.route(addition.table()).ok_or_else(|| {
            CoordinatorError::Internal("a write to a table that is not in the cluster's map".to_owned())
        })?;
        let tablet = route.map.tablet_of(token);
        let read = tablet.read_replicas().iter().copied();
        let grows = self.context.grows(addition.table(), &addition.mutation());
        let leads = |replica: &Replica| {
            if grows {
                self.context.takes_growth(replica.node)
            } else {
                self.context.takes_writes(replica.node)
            }
        };
        let mut leaders: Vec<Replica> = read.filter(leads).collect();
        let here = view.locality.local_datacenter();
        let turn = token.0.cast_unsigned() as usize % leaders.len().max(1);
        leaders.rotate_left(turn);
        leaders.sort_by_key(|r| (r.node != view.me, view.locality.datacenter(r.node) != here));
        Ok(leaders)
    }

    /// Makes one of the replicas lead a share of additions. Returns what has to be added again in a newer view.
    async fn have_added(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        share: Share,
        level: Consistency,
        deadline: Instant,
    ) -> Result<Vec<Addressed>, CoordinatorError> {
        let tally = || {
            let table = share.mutations.first().map(Addressed::table);
            Tally {
                consistency: level,
                received: 0,
                block_for: table.map_or(1, |table| self.context.block_for(table, level)),
            }
        };
        let (mut refused, mut is_stale) = (String::new(), false);
        for leader in share.leaders.iter().copied() {
            let error = match self.lead_at(view, leader, &share.mutations, level, deadline).await {
                Ok(result) => return result.map(|()| Vec::new()),
                Err(error) => error,
            };
            let name = view.names(std::iter::once(leader));
            match error {
                TargetError::Silent => {
                    self.context.count(|m| m.timeouts += 1);
                    return Err(CoordinatorError::WriteTimeout {
                        tally: tally(),
                        kind: WriteKind::Counter,
                        missing: name,
                    });
                }
                TargetError::Failed(reason) => {
                    return Err(CoordinatorError::WriteFailure {
                        tally: tally(),
                        kind: WriteKind::Counter,
                        failures: vec![(view.address(leader.node), 0)],
                        reason: format!("{name}: {reason}"),
                    });
                }
                // It certainly did nothing.
                TargetError::Stale(reason) => (refused, is_stale) = (format!("{name}: {reason}"), true),
                TargetError::Overloaded(reason)
                | TargetError::Refused(reason)
                | TargetError::NotIndexed(reason)
                | TargetError::Unreachable(reason) => refused = format!("{name}: {reason}"),
                TargetError::Rejected(reason) => return Err(CoordinatorError::Rejected(format!("{name}: {reason}"))),
            }
        }
        if is_stale && self.context.newer_view(view, deadline).await.is_some() {
            return Ok(share.mutations);
        }
        Err(CoordinatorError::Overloaded(format!(
            "no replica takes the addition, and nothing was added; the last one: {refused}"
        )))
    }

    /// Asks one replica to lead. Ok is what it says; Err is that it does not.
    async fn lead_at(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        leader: Replica,
        additions: &[Addressed],
        level: Consistency,
        deadline: Instant,
    ) -> Result<Result<(), CoordinatorError>, TargetError> {
        let stamp = Stamp::of_tables(view, additions.iter().map(Addressed::table));
        if leader.node != view.me {
            let mut body = vec![level as u8];
            body.extend(encode_mutations(false, additions.iter()));
            stamp.sign(&mut body);
            let answer = self.context.call(view, leader, Verb::Add, body, deadline).await?;
            return decode_answer(&answer, level).map_err(|e| TargetError::Failed(e.to_string()));
        }
        let shard = ShardId(u32::from(leader.shard));
        let additions = additions.to_vec();
        let led = if shard == self.context.shard.id() {
            self.lead(additions, level, deadline, Origin::Local, stamp).await
        } else {
            let traced = trace::current_id();
            runtime::submit_async_to(shard, move || {
                trace::beside(traced, async move {
                    let counters = &Coordinator::local().counters;
                    counters.lead(additions, level, deadline, Origin::Local, stamp).await
                })
            })
            .await
        };
        led.map_err(TargetError::from)
    }

    /// Leads additions to partitions of this shard. The outer error says that nothing was added.
    pub(crate) async fn lead(
        self: &Rc<Self>,
        additions: Vec<Addressed>,
        level: Consistency,
        deadline: Instant,
        origin: Origin,
        stamp: Stamp,
    ) -> Result<Result<(), CoordinatorError>, ReplicaError> {
        // The other replicas are sent what is read from now on.
        let view = self.context.view();
        let mut added = Mutations::with_capacity(additions.len());
        let mut outcome = Ok(());
        for addition in &additions {
            match self.add_here(addition.located(), deadline, origin, stamp).await {
                Ok(mutation) => added.push(mutation),
                Err(error) if added.is_empty() && error.did_nothing() => return Err(error),
                // This addition, or those before it, may be there: the caller may not be answered that nothing
                // happened, and the other replicas are sent them.
                Err(error) => {
                    outcome = Err(self.failed_here(level, &error));
                    break;
                }
            }
        }
        let has_others = |m: &Addressed| {
            let route = view.route(m.table());
            route.is_some_and(|route| WriteTargets::new(&route.map.tablet_of(m.token())).all().count() > 1)
        };
        if !added.iter().any(has_others) {
            return Ok(outcome);
        }
        let manner = Manner {
            deadline: Deadline::at(deadline),
            ..Manner::new(level, WriteKind::Counter, Atomicity::Mutation)
        };
        let told = self.writes.write_from(Arc::clone(&view), added, manner).await;
        // Even if nothing was sent to the other replicas, the addition is done here.
        Ok(outcome.and(told.map_err(|error| match error {
            CoordinatorError::Unavailable(unavailable) => CoordinatorError::WriteTimeout {
                tally: Tally {
                    consistency: level,
                    received: 1,
                    block_for: unavailable.required,
                },
                kind: WriteKind::Counter,
                missing: "replicas that went down meanwhile".to_owned(),
            },
            // That says that nothing was done.
            CoordinatorError::Overloaded(reason) | CoordinatorError::Rejected(reason) => {
                failure(level, Vec::new(), told_of(&reason))
            }
            CoordinatorError::DiskFull { failures, full, .. } => {
                let reason = format!("the disks of {full} are full");
                failure(level, failures, told_of(&reason))
            }
            other => other,
        })))
    }

    fn failed_here(&self, level: Consistency, error: &ReplicaError) -> CoordinatorError {
        let view = self.context.view();
        failure(level, vec![(view.address(view.me), 0)], error.to_string())
    }

    /// Adds to one partition on this shard, and returns what others are to write.
    async fn add_here(
        &self,
        Located {
            token,
            mutation: addition,
        }: Located<'_>,
        deadline: Instant,
        origin: Origin,
        stamp: Stamp,
    ) -> Result<Addressed, ReplicaError> {
        let store = service::store_of(&self.context.shard, addition.table).await?;
        let table = store.table();
        if origin == Origin::Peer {
            let valid = addition.validate(&table.layout);
            valid.map_err(|e| ReplicaError::Malformed(e.to_string()))?;
        }
        apply::ready(std::iter::once((&*store, token)), stamp).await?;
        let _turn = self.turns.take(addition.table, addition.key).await;
        let was_truncated_at = store.truncated_at.get();
        if runtime::now() >= deadline {
            return Err(ReplicaError::Overloaded(
                "its turn on the partition came too late".to_owned(),
            ));
        }
        let source = self.source(&store, token);
        let own = own_elements(&self.context.shard, &store, &table, token, &addition, &source).await;
        let own = own.map_err(|e| stamp.or_moved(&store, e).before_adding())?;
        if self.source(&store, token) != source {
            let reason = "what this node had was replaced while the counter was read";
            return Err(ReplicaError::CannotLead(reason.to_owned()));
        }
        let mutation = own.after(&table, &addition, &source)?;
        // What was read is gone after a truncation.
        let stamp = if store.truncated_at.get() == was_truncated_at {
            stamp
        } else {
            Stamp::default()
        };
        let mutation = Addressed::at(token, mutation).expect("it was packed just now");
        apply::apply(&self.context.shard, &[mutation.located()], false, Origin::Local, stamp).await?;
        Ok(mutation)
    }
}

/// The outcome of several shares. It says that nothing was done only if that is true of all of them.
fn joined(results: Vec<Result<(), CoordinatorError>>, level: Consistency) -> Result<(), CoordinatorError> {
    let did_nothing = |r: &Result<(), CoordinatorError>| {
        matches!(
            r,
            Err(CoordinatorError::Unavailable(_) | CoordinatorError::Overloaded(_) | CoordinatorError::Rejected(_))
        )
    };
    let is_whole = results.iter().all(Result::is_ok) || results.iter().all(did_nothing);
    let (nothing, other): (Vec<_>, Vec<_>) = results.into_iter().partition(did_nothing);
    if is_whole {
        return nothing.into_iter().chain(other).find(Result::is_err).unwrap_or(Ok(()));
    }
    if let Some(error) = other.into_iter().find(Result::is_err) {
        return error;
    }
    let reasons: Vec<String> = nothing
        .into_iter()
        .filter_map(Result::err)
        .map(|e| e.to_string())
        .collect();
    let reason = format!(
        "a part of the batch was added, and a part was not: {}",
        reasons.join("; ")
    );
    Err(failure(level, Vec::new(), reason))
}

/// Why an addition that its leader has made did not reach enough other replicas.
fn told_of(reason: &str) -> String {
    format!("added by its leader; of those to be told of it: {reason}")
}

/// An addition that may have been made.
fn failure(level: Consistency, failures: Vec<(IpAddr, u16)>, reason: String) -> CoordinatorError {
    CoordinatorError::WriteFailure {
        tally: Tally {
            consistency: level,
            received: 0,
            block_for: 1,
        },
        kind: WriteKind::Counter,
        failures,
        reason,
    }
}

/// A row by its clustering key; None is the static row. And a column's id.
type Name = (Option<Vec<u8>>, usize);

/// What a source has added so far to the counters of an addition, and the latest moment that a new element must be
/// after.
#[derive(Default)]
struct OwnElements {
    sums: BTreeMap<Name, i64>,
    after: i64,
}

async fn own_elements(
    shard: &Rc<Shard>,
    store: &TableStore,
    table: &Arc<Table>,
    token: Token,
    addition: &Mutation<'_>,
    source: &[u8; 16],
) -> Result<OwnElements, ReplicaError> {
    let tablet = store.tablet(token).ok_or(ReplicaError::NotHere(token))?;
    let rows = addition.items().filter_map(|item| match item {
        MutationItem::Row { clustering, .. } => Some(ClusteringSlice::exactly(clustering)),
        _ => None,
    });
    let mut slices: Vec<ClusteringSlice> = rows.collect();
    let rows_max = if slices.is_empty() { 1 } else { usize::MAX };
    if slices.is_empty() {
        // The static row comes with any row, or none.
        slices.push(ClusteringSlice::all());
    }
    let read = PartitionRead {
        hash: KeyHash::of(addition.key),
        key: addition.key.to_vec(),
        slices,
        reversed: false,
        limits: BlockLimits {
            rows: rows_max,
            bytes: BLOCK_BYTES,
        },
    };
    let mut reader = PartitionReader::new(Arc::clone(table), tablet.version(), shard.cache.clone(), read);
    let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
    let mut own = OwnElements {
        after: runtime::wall_clock_us() - 1,
        ..OwnElements::default()
    };
    while let Some(block) = reader.next_block().await? {
        if let Some(row) = block.static_row() {
            own.see(table, None, row, block.tombstone, now, source);
        }
        for (clustering, row) in block.rows() {
            let deletion = block.deletion_of(&table.clustering_order, clustering);
            own.see(table, Some(clustering), row, deletion, now, source);
        }
        own.after = own.after.max(block.tombstone.timestamp);
        for range in &block.range_tombstones {
            own.after = own.after.max(range.tombstone.timestamp);
        }
    }
    Ok(own)
}

impl OwnElements {
    fn see(
        &mut self,
        table: &Table,
        clustering: Option<&[u8]>,
        row: RowView<'_>,
        deletion: Tombstone,
        now: u32,
        source: &[u8; 16],
    ) {
        self.after = self.after.max(row.tombstone.timestamp);
        for (_, column) in row.columns(&table.layout) {
            let Column::Complex(counter) = column else { continue };
            let own = counter.elements().filter(|(path, _)| path == source);
            self.after = own.fold(self.after.max(counter.tombstone.timestamp), |after, (_, cell)| {
                after.max(cell.timestamp)
            });
        }
        for (id, column) in LiveRow::new(row, &table.layout, deletion, now).columns() {
            let LiveColumn::Complex(mut elements) = column else {
                continue;
            };
            if let Some((_, cell)) = elements.find(|(path, _)| path == source) {
                let name = (clustering.map(<[u8]>::to_vec), id);
                self.sums.insert(name, number(cell.value).unwrap_or(0));
            }
        }
    }

    /// What the source has added to a counter. A clustering key may be written in several ways (1.0 and 1.00), so the
    /// row is found by order if its bytes are not.
    fn sum(&self, table: &Table, clustering: Option<&[u8]>, id: usize) -> i64 {
        let name = (clustering.map(<[u8]>::to_vec), id);
        let is_same = |known: &Name| match (&known.0, clustering) {
            (Some(known), Some(clustering)) => table.clustering_order.compare(known, clustering).is_eq(),
            _ => false,
        };
        let by_order = || self.sums.iter().find(|(known, _)| known.1 == id && is_same(known));
        self.sums
            .get(&name)
            .or_else(|| by_order().map(|(_, sum)| sum))
            .copied()
            .unwrap_or(0)
    }

    /// The source's elements with an addition.
    fn after(&self, table: &Table, addition: &Mutation<'_>, source: &[u8; 16]) -> Result<Vec<u8>, ReplicaError> {
        let expected = |what: &str| ReplicaError::Malformed(format!("expected {what}"));
        let clock = self.after.saturating_add(1);
        let mut bytes = Vec::with_capacity(addition.bytes().len() + 32);
        let mut builder = MutationBuilder::begin(&mut bytes, table.id, addition.key);
        for item in addition.items() {
            let (clustering, row) = match item {
                MutationItem::StaticRow(row) => (None, row),
                MutationItem::Row { clustering, row } => (Some(clustering), row),
                _ => return Err(expected("rows in an addition")),
            };
            let row = RowView::new(row).ok_or_else(|| expected("a whole row"))?;
            let mut sums: Vec<(usize, [u8; 8])> = Vec::new();
            for (id, column) in row.columns(&table.layout) {
                let added = match column {
                    Column::Complex(counter) => counter.elements().find(|(path, _)| path.is_empty()),
                    Column::Simple(_) => None,
                };
                let added = added.and_then(|(_, cell)| number(cell.value));
                let added = added.ok_or_else(|| expected("a number of 8 bytes to add"))?;
                let before = self.sum(table, clustering, id);
                sums.push((id, before.wrapping_add(added).to_be_bytes()));
            }
            let pack = |out: &mut Vec<u8>| {
                let shared = Shared {
                    timestamp: clock,
                    ttl: 0,
                    expiry: 0,
                };
                let columns = sums.last().map_or(0, |(id, _)| id + 1);
                let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, columns);
                for (id, sum) in &sums {
                    let cell = Cell {
                        timestamp: clock,
                        ttl: 0,
                        deletion_time: 0,
                        dead: false,
                        value: sum,
                    };
                    row.complex(*id, Tombstone::NONE, std::iter::once((&source[..], cell)));
                }
            };
            match clustering {
                None => builder.static_row(pack),
                Some(clustering) => builder.row(clustering, pack),
            }
        }
        Ok(bytes)
    }
}

fn number(value: &[u8]) -> Option<i64> {
    value.try_into().ok().map(i64::from_be_bytes)
}

/// The message `ADD`: u8 level, then as `MUTATE`.
pub(crate) fn decode_additions(body: &[u8]) -> Result<(Consistency, Vec<Addressed>), Malformed> {
    let (level, rest) = body.split_first().ok_or(Malformed("a consistency level"))?;
    let level = Consistency::all().find(|known| *known as u8 == *level);
    let (additions, _) = decode_mutations(rest)?;
    Ok((level.ok_or(Malformed("a consistency level"))?, additions))
}

/// How leading ended, for the coordinator that asked: u8 0 done, 1 timeout, 2 failure, 3 other; then for those u16
/// received, u16 needed, vint length and text.
pub(crate) fn encode_answer(result: &Result<(), CoordinatorError>) -> Vec<u8> {
    let (kind, tally, text) = match result {
        Ok(()) => return vec![0],
        Err(CoordinatorError::WriteTimeout { tally, missing, .. }) => (1, Some(tally), missing.clone()),
        Err(CoordinatorError::WriteFailure { tally, reason, .. }) => (2, Some(tally), reason.clone()),
        Err(other) => (3, None, other.to_string()),
    };
    let mut out = vec![kind];
    for number in tally.map_or([0, 0], |t| [t.received, t.block_for]) {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_sized(&mut out, text.as_bytes());
    out
}

pub(crate) fn decode_answer(bytes: &[u8], level: Consistency) -> Result<Result<(), CoordinatorError>, Malformed> {
    const WHAT: &str = "how an addition ended";
    let mut reader = Reader::new(bytes);
    let kind = reader.get_u8().map_err(|_| Malformed(WHAT))?;
    if kind == 0 {
        return Ok(Ok(()));
    }
    let mut number = || -> Result<u16, Malformed> {
        let bytes = reader.get_slice(2).map_err(|_| Malformed(WHAT))?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let tally = Tally {
        consistency: level,
        received: number()?,
        block_for: number()?,
    };
    let text = String::from_utf8_lossy(sized(&mut reader, WHAT)?).into_owned();
    Ok(Err(match kind {
        1 => CoordinatorError::WriteTimeout {
            tally,
            kind: WriteKind::Counter,
            missing: text,
        },
        2 => CoordinatorError::WriteFailure {
            tally,
            kind: WriteKind::Counter,
            failures: Vec::new(),
            reason: text,
        },
        _ => CoordinatorError::Internal(text),
    }))
}

#[cfg(test)]
mod tests {
    use schema::{Column, ColumnKind, TableId, TableOptions};
    use types::CqlType;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_addition_finds_what_was_counted_under_another_spelling_of_the_row() {
        let columns = vec![
            Column::new("k", CqlType::Int, ColumnKind::PartitionKey),
            Column::new("c", CqlType::Decimal, ColumnKind::Clustering),
            Column::new("v", CqlType::Counter, ColumnKind::Regular),
        ];
        let table = Table::new("ks", "t", TableId(Uuid::nil()), columns, TableOptions::default());
        let key = |unscaled: u8, scale: u8| vec![5, 0, 0, 0, scale, unscaled];
        let own = OwnElements {
            sums: BTreeMap::from([((Some(key(10, 1)), 0), 5), ((None, 1), 7)]),
            after: 0,
        };
        assert_eq!(own.sum(&table, Some(&key(10, 1)), 0), 5);
        assert_eq!(own.sum(&table, Some(&key(100, 2)), 0), 5, "1.00 names the row of 1.0");
        assert_eq!(own.sum(&table, Some(&key(11, 1)), 0), 0);
        assert_eq!(own.sum(&table, None, 1), 7);
        assert_eq!(own.sum(&table, None, 0), 0);
    }

    #[test]
    fn a_batch_of_which_a_part_was_added_is_not_called_undone() {
        let refused = || Err(CoordinatorError::Overloaded("no room".to_owned()));
        let lost = || {
            let tally = Tally {
                consistency: Consistency::One,
                received: 0,
                block_for: 1,
            };
            Err(CoordinatorError::WriteTimeout {
                tally,
                kind: WriteKind::Counter,
                missing: "a node".to_owned(),
            })
        };
        let joined = |results| joined(results, Consistency::One);
        assert_eq!(joined(vec![Ok(()), Ok(())]), Ok(()));
        assert_eq!(joined(Vec::new()), Ok(()));
        assert_eq!(joined(vec![refused(), refused()]), refused());
        assert_eq!(joined(vec![refused(), lost()]), lost());
        assert_eq!(joined(vec![Ok(()), lost()]), lost());
        for results in [vec![Ok(()), refused()], vec![refused(), Ok(())]] {
            let Err(CoordinatorError::WriteFailure { reason, .. }) = joined(results) else {
                panic!("a part was added");
            };
            assert!(
                reason.contains("a part of the batch was added") && reason.contains("no room"),
                "{reason}"
            );
        }
    }
}
