//! Logged batches of several partitions: noted on three nodes before they are written, so that one of them finishes
//! them.
//!
//! Model. The coordinator notes the whole batch in its shard's log and on two other nodes of its datacenter, in other
//! racks where there are any; then it writes the batch; then the notes are removed. A batch that is *open* on a shard
//! is in that shard's log as one that began and did not end. Its coordinator writes it again until the level is met. A
//! *holder* does so when the batch is older than twice the write timeout and the coordinator is down, or answers that
//! it does not know the batch.
//!
//! An open batch must not hold what others need. Before its note is [`NOTE_SEGMENTS_MAX`] segments back from the end of
//! the log, it is written again at the end, so the segments before it are released. And the batch ends: when its level
//! was not met for `LEVEL_TIME_MAX`, it is written to the replicas that take it, and durable hints are kept for the
//! others. A batch whose hints cannot be kept stays open; beyond `OPEN_BYTES_MAX` a shard refuses new ones.
//!
//! Invariants
//! - A batch ends when its level is met, or when every replica of every part has its part or a durable hint of it.
//! - Nothing of a batch is written before it is noted here and, where the datacenter has more nodes, on at least one of
//!   them.
//! - A batch is written again as it was: same cells, same timestamps, same level. Doing so twice changes nothing.
//! - What was truncated does not come back: the note has the version of the view that the batch was noted by, and the
//!   node that finishes the batch leaves out tables that were truncated by a later one.
//!
//! The first mutation of a noted batch is its *note*: a mutation of a table that no node has, whose key is `[u8; 16]
//! batch id, [u8; 16] host id of the coordinator, u16 its shard, u64 microseconds, u8 consistency level, u64 version of
//! the view`, little endian.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::{Addressed, Mutation, MutationBuilder};
use runtime::Instant;
use schema::TableId;
use stdx::planted::{self, Bug};
use topology::{Consistency, HostId, Node, NodeNumber, Replica, ReplicaList, Unavailable, WriteTargets};
use uuid::Uuid;

use crate::fence::Stamp;
use crate::handoff::Handoff;
use crate::message::{Malformed, decode_mutations, encode_mutations};
use crate::read::gather::Gather;
use crate::service::ReplicaError;
use crate::verbs::Verb;
use crate::write::Mutations;
use crate::write::birth::birth_us;
use crate::write::dated::Deadline;
use crate::{ClusterView, Context, CoordinatorError, Tally, TargetError, WriteKind, spawn};

/// The table of notes. It has no rows anywhere.
const NOTES: TableId = TableId(Uuid::from_u128(0xce70_ba7c_0000_4000_8000_0000_0000_0001));
const NOTE_BYTES: usize = 16 + 16 + 2 + 8 + 1 + 8;
/// The protocol's code of a failure without a code of its own.
const UNKNOWN_FAILURE: u16 = 0;
/// On how many other nodes a batch is noted.
const HOLDERS: usize = 2;
/// Most bytes of open batches of one shard; what is above is refused, unless it is the only one.
const OPEN_BYTES_MAX: usize = 16 << 20;
/// How many segments a note may be back from the end of the log before it is written again: open batches hold about as
/// many.
pub const NOTE_SEGMENTS_MAX: u64 = 2;
/// How often open batches are looked at.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// Which shard wrote a batch, when and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    id: u128,
    coordinator: HostId,
    shard: u16,
    noted_us: i64,
    level: Consistency,
    /// The version of the view that it was noted by: its part of a table that was truncated since is not written again.
    version: u64,
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(NOTE_BYTES);
        key.extend_from_slice(&self.id.to_le_bytes());
        key.extend_from_slice(self.coordinator.0.as_bytes());
        key.extend_from_slice(&self.shard.to_le_bytes());
        key.extend_from_slice(&self.noted_us.to_le_bytes());
        key.push(self.level as u8);
        key.extend_from_slice(&self.version.to_le_bytes());
        let mut out = Vec::new();
        MutationBuilder::begin(&mut out, NOTES, &key);
        out
    }

    fn addressed(&self) -> Addressed {
        Addressed::new(self.encode()).expect("a note is a mutation")
    }

    pub(crate) fn decode(mutation: &[u8]) -> Option<Self> {
        let mutation = Mutation::new(mutation).filter(|m| m.table == NOTES)?;
        let key: &[u8; NOTE_BYTES] = mutation.key.try_into().ok()?;
        Some(Self {
            id: u128::from_le_bytes(*key[..16].first_chunk()?),
            coordinator: HostId(Uuid::from_bytes(*key[16..32].first_chunk()?)),
            shard: u16::from_le_bytes(*key[32..34].first_chunk()?),
            noted_us: i64::from_le_bytes(*key[34..42].first_chunk()?),
            level: Consistency::from_number(u16::from(key[42]))?,
            version: u64::from_le_bytes(*key[43..].first_chunk()?),
        })
    }
}

/// A batch that is noted in this shard's log and has not ended.
struct Open {
    note: Note,
    mutations: Rc<Vec<Addressed>>,
    bytes: usize,
    /// Since when it is open in this run.
    since: Instant,
    /// It is being written; no other task begins to.
    is_writing: bool,
    /// When it is looked at next.
    due: Instant,
}

/// The logged batches that are noted on this shard and have not ended.
pub struct Batches {
    context: Rc<Context>,
    hints: Rc<Handoff>,
    /// By id.
    open: RefCell<BTreeMap<u128, Open>>,
}

/// A batch that is noted, here and on other nodes, and is about to be written.
pub(crate) struct NotedBatch<'b> {
    writing: Writing<'b>,
    view: Arc<ClusterView>,
    holders: Vec<Replica>,
}

/// An open batch that is to be written again.
pub(crate) struct UnfinishedBatch<'b> {
    writing: Writing<'b>,
    /// What of it is still to be written.
    pub(crate) mutations: Mutations,
    pub(crate) level: Consistency,
    pub(crate) noted_us: i64,
    /// Since when it is open in this run.
    pub(crate) since: Instant,
}

/// Lets others write the batch again however this attempt ends.
struct Writing<'b>(&'b Batches, u128);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0.open.borrow_mut().get_mut(&self.1) {
            open.is_writing = false;
            open.due = runtime::now() + PERIOD;
        }
    }
}

type Stored = (Replica, Result<(), TargetError>);

impl Batches {
    pub(crate) fn new(context: Rc<Context>, hints: Rc<Handoff>) -> Self {
        Self {
            context,
            hints,
            open: RefCell::default(),
        }
    }

    fn bytes(&self) -> usize {
        self.open.borrow().values().map(|open| open.bytes).sum()
    }

    /// Notes a batch here and on other nodes, before anything of it is written at that level.
    ///
    /// # Errors
    /// When it could not be noted. Another node that has the note and was not heard may write it.
    pub(crate) async fn note(
        &self,
        view: &Arc<ClusterView>,
        mutations: &Rc<Vec<Addressed>>,
        (level, deadline): (Consistency, Deadline),
    ) -> Result<NotedBatch<'_>, CoordinatorError> {
        let id = (u128::from(runtime::random_u64()) << 64) | u128::from(runtime::random_u64());
        let note = Note {
            id,
            coordinator: view.with(|_, me| me),
            shard: u16::try_from(self.context.shard.id().0).unwrap_or(u16::MAX),
            noted_us: runtime::wall_clock_us(),
            level,
            version: view.version,
        };
        let (holders, is_alone) = self.holders(view, id);
        if holders.is_empty() && !is_alone && level != Consistency::Any {
            self.context.count(|m| m.unavailable += 1);
            return Err(CoordinatorError::Unavailable(Unavailable {
                consistency: Consistency::One,
                required: 1,
                alive: 0,
                datacenter: None,
            }));
        }
        let noted = self.note_here(note, mutations, true).await;
        let batch = NotedBatch {
            writing: Writing(self, id),
            view: Arc::clone(view),
            holders,
        };
        noted.map_err(|e| match e {
            ReplicaError::Overloaded(_) => CoordinatorError::Overloaded(e.to_string()),
            ReplicaError::Log(reason) => CoordinatorError::WriteFailure {
                tally: Tally {
                    consistency: Consistency::One,
                    received: 0,
                    block_for: 1,
                },
                kind: WriteKind::BatchLog,
                failures: vec![(view.address(view.me), UNKNOWN_FAILURE)],
                reason,
            },
            e => CoordinatorError::Internal(e.to_string()),
        })?;
        let until = deadline.or_after(self.context.timeouts().write);
        let stored = self.store_at(view, &batch.holders, &note, (mutations, until)).await;
        match stored {
            Ok(()) => Ok(batch),
            Err(e) => {
                batch.end();
                Err(e)
            }
        }
    }

    /// Which other nodes note a batch, and whether this datacenter has no other node at all.
    fn holders(&self, view: &ClusterView, id: u128) -> (Vec<Replica>, bool) {
        let me = view.topology.numbered(view.me).expect("a view is of a member");
        let others: Vec<(NodeNumber, &Node)> = view
            .topology
            .numbered_nodes()
            .filter(|(number, node)| {
                let is_near = node.location.datacenter == me.location.datacenter;
                let has_data = node.state.serves_reads() && !view.topology.is_zero_token(node.host_id);
                *number != view.me && is_near && has_data
            })
            .collect();
        let is_alone = others.is_empty();
        let mut left: Vec<(NodeNumber, &Node)> = others
            .into_iter()
            .filter(|(n, _)| self.context.takes_writes(*n))
            .collect();
        if !left.is_empty() {
            // Different batches on different nodes.
            let count = left.len() as u128;
            left.rotate_left(usize::try_from(id % count).expect("less than the nodes"));
        }
        let mut racks = vec![&me.location.rack];
        let mut holders = Vec::new();
        while holders.len() < HOLDERS && !left.is_empty() {
            let elsewhere = left.iter().position(|(_, node)| !racks.contains(&&node.location.rack));
            let (number, node) = left.remove(elsewhere.unwrap_or(0));
            racks.push(&node.location.rack);
            let shard = u16::try_from(self.context.shard.id().0).unwrap_or(0) % node.shards.max(1);
            holders.push(Replica { node: number, shard });
        }
        (holders, is_alone)
    }

    /// Notes a batch on other nodes and waits until one of them has it: a holder that is slow delays nothing, and its
    /// note is as good when it comes later.
    async fn store_at(
        &self,
        view: &Arc<ClusterView>,
        holders: &[Replica],
        note: &Note,
        (mutations, until): (&[Addressed], Instant),
    ) -> Result<(), CoordinatorError> {
        let note = note.addressed();
        let all = std::iter::once(&note).chain(mutations);
        let mut body = encode_mutations(false, all);
        Stamp::of_tables(view, mutations.iter().map(Addressed::table)).sign(&mut body);
        let gather: Rc<Gather<Stored>> = Gather::new();
        for holder in holders {
            let (context, view, gather) = (Rc::clone(&self.context), view.clone(), Rc::clone(&gather));
            let (holder, body) = (*holder, body.clone());
            spawn(async move {
                let stored = context.call(&view, holder, Verb::BatchStore, body, until).await;
                gather.put((holder, stored.map(|_| ())));
            });
        }
        let mut silent = holders.to_vec();
        let mut refusals = Vec::new();
        while !silent.is_empty() {
            let Some((holder, result)) = gather.next(until).await else {
                break;
            };
            match result {
                Ok(()) => return Ok(()),
                Err(TargetError::Silent) => continue,
                Err(error) => refusals.push(error.about(&view.names(std::iter::once(holder)))),
            }
            silent.retain(|other| *other != holder);
        }
        if holders.is_empty() {
            return Ok(());
        }
        self.context.count(|m| m.timeouts += 1);
        let missing: Vec<String> = std::iter::once(view.names(silent.iter().copied()))
            .filter(|names| !names.is_empty())
            .chain(refusals)
            .collect();
        Err(CoordinatorError::WriteTimeout {
            tally: Tally {
                consistency: Consistency::One,
                received: 0,
                block_for: 1,
            },
            kind: WriteKind::BatchLog,
            missing: missing.join("; "),
        })
    }

    /// Notes a batch in this shard's log and waits until that may be acknowledged.
    async fn note_here(
        &self,
        note: Note,
        mutations: &Rc<Vec<Addressed>>,
        is_writing: bool,
    ) -> Result<(), ReplicaError> {
        let bytes = mutations.iter().map(|m| m.bytes().len()).sum();
        let taken = self.bytes();
        if taken > 0 && taken + bytes > OPEN_BYTES_MAX {
            return Err(ReplicaError::Overloaded(format!(
                "{taken} bytes of logged batches wait to be finished"
            )));
        }
        let note_bytes = note.encode();
        let all = std::iter::once(note_bytes.as_slice()).chain(mutations.iter().map(Addressed::bytes));
        let position = self.context.shard.begin_batch(note.id, all)?;
        let open = Open {
            note,
            mutations: Rc::clone(mutations),
            bytes,
            since: runtime::now(),
            is_writing,
            due: runtime::now() + PERIOD,
        };
        self.open.borrow_mut().insert(note.id, open);
        if self.context.shard.log.is_batch() {
            let synced = self.context.shard.log.synced(position).await;
            synced.map_err(|e| ReplicaError::Log(e.to_string()))?;
        }
        Ok(())
    }

    /// The open batches of this node that no task is writing.
    pub(crate) fn own(&self) -> Vec<u128> {
        let me = self.context.view().with(|_, me| me);
        let batches = self.open.borrow();
        let own = batches
            .values()
            .filter(|open| open.note.coordinator == me && !open.is_writing);
        own.map(|open| open.note.id).collect()
    }

    /// The open batches that are to be looked at now.
    pub(crate) fn due(&self) -> Vec<u128> {
        let (now, batches) = (runtime::now(), self.open.borrow());
        let due = batches.values().filter(|open| !open.is_writing && open.due <= now);
        due.map(|open| open.note.id).collect()
    }

    /// An open batch, to be written again. None: it has ended, or another task writes it.
    pub(crate) fn take_up(&self, id: u128) -> Option<UnfinishedBatch<'_>> {
        let (note, mutations, since) = {
            let mut batches = self.open.borrow_mut();
            let open = batches.get_mut(&id).filter(|open| !open.is_writing)?;
            open.is_writing = true;
            (open.note, Rc::clone(&open.mutations), open.since)
        };
        let writing = Writing(self, id);
        // Tombstones here wait for the batches that are noted here: such a batch is finished however old it is.
        let is_of_this_node = self
            .context
            .with_view(|view| mutations.iter().all(|m| is_only_here(view, m)));
        let (wanted, unwanted): (Vec<&Addressed>, Vec<_>) = mutations
            .iter()
            .partition(|m| self.is_wanted(&note, m, is_of_this_node));
        unwanted.into_iter().for_each(|part| self.miss_part(&note, part));
        Some(UnfinishedBatch {
            writing,
            mutations: wanted.into_iter().cloned().collect(),
            level: note.level,
            noted_us: note.noted_us,
            since,
        })
    }

    /// Ends a batch here.
    fn forget(&self, id: u128) {
        if self.open.borrow_mut().remove(&id).is_some() {
            self.context.shard.end_batch(id);
            if let Err(e) = self.context.shard.log.write() {
                log::warn!("cannot record the end of a logged batch: {e}");
            }
        }
    }

    /// A holder's part: keeps what another node's coordinator is about to write.
    pub(crate) async fn hold(&self, body: &[u8]) -> Result<(), ReplicaError> {
        let (mut mutations, _) = decode_mutations(body)?;
        let note = mutations.first().and_then(|m| Note::decode(m.bytes()));
        let note = note.ok_or(Malformed("the note of a logged batch"))?;
        mutations.remove(0);
        self.note_here(note, &Rc::new(mutations), false).await
    }

    /// A holder's part: the batch was written.
    pub(crate) fn release(&self, body: &[u8]) -> Result<(), ReplicaError> {
        self.forget(batch_id(body)?);
        Ok(())
    }

    /// Whether this shard will still finish a batch itself.
    pub(crate) fn knows(&self, body: &[u8]) -> Result<bool, ReplicaError> {
        let id = batch_id(body)?;
        Ok(self.open.borrow().contains_key(&id))
    }

    /// Takes over a batch that an earlier run left open in the log: it is finished by
    /// `Writes::finish_batches` or in the background.
    ///
    /// # Errors
    /// When it has no note, or cannot be noted in this run's log; that of the earlier run must stay then.
    pub async fn resume(&self, id: u128, batch: Vec<Vec<u8>>) -> Result<(), String> {
        let note = batch.first().and_then(|bytes| Note::decode(bytes));
        let note = note.ok_or_else(|| format!("logged batch {id:032x} does not begin with its note"))?;
        let mutations: Vec<Addressed> = batch[1..].iter().filter_map(|m| Addressed::new(m.clone())).collect();
        let failed = |e: &dyn std::fmt::Display| format!("an unfinished logged batch cannot be kept: {e}");
        // They were all open once: their bound does not apply.
        let note_bytes = note.encode();
        let all = std::iter::once(note_bytes.as_slice()).chain(mutations.iter().map(Addressed::bytes));
        self.context.shard.begin_batch(note.id, all).map_err(|e| failed(&e))?;
        let open = Open {
            note,
            bytes: mutations.iter().map(|m| m.bytes().len()).sum(),
            mutations: Rc::new(mutations),
            since: runtime::now(),
            is_writing: false,
            due: runtime::now(),
        };
        self.open.borrow_mut().insert(note.id, open);
        self.context.shard.log.sync().await.map_err(|e| failed(&e))
    }

    /// Keeps open batches from holding old segments of the log.
    pub(crate) async fn note_old_again(&self) -> Result<(), commitlog::LogError> {
        if planted::is_planted(Bug::BatchPinsLog) {
            return Ok(());
        }
        let (mark, mut again) = (self.context.shard.log.mark(), Vec::new());
        for id in self.context.shard.batches_noted_before(NOTE_SEGMENTS_MAX) {
            let batches = self.open.borrow();
            let Some(open) = batches.get(&id) else { continue };
            let note_bytes = open.note.encode();
            let all = std::iter::once(note_bytes.as_slice()).chain(open.mutations.iter().map(Addressed::bytes));
            again.push((id, self.context.shard.note_batch_again(id, all)?));
        }
        if again.is_empty() {
            return Ok(());
        }
        self.context.shard.release_older_notes(&again, mark).await
    }

    /// Whether this shard has to finish a batch, because no other does.
    pub(crate) async fn is_left_to_us(&self, id: u128) -> bool {
        let (view, patience) = (self.context.view(), self.context.timeouts().write * 2);
        let note = match self.open.borrow_mut().get_mut(&id) {
            Some(open) => {
                open.due = runtime::now() + patience;
                open.note
            }
            None => return false,
        };
        if note.coordinator == view.with(|_, me| me) {
            return true;
        }
        let age_us = runtime::wall_clock_us().saturating_sub(note.noted_us);
        if u128::from(age_us.max(0).cast_unsigned()) < patience.as_micros() {
            if let Some(open) = self.open.borrow_mut().get_mut(&id) {
                open.due = runtime::now() + PERIOD;
            }
            return false;
        }
        let number = view
            .topology
            .number(note.coordinator)
            .filter(|n| self.context.is_live(*n));
        let node = number.and_then(|number| view.topology.numbered(number));
        let (Some(number), Some(node)) = (number, node) else {
            return true;
        };
        let shard = note.shard % node.shards.max(1);
        let replica = Replica { node: number, shard };
        let body = id.to_le_bytes().to_vec();
        let answer = self
            .context
            .call(
                &view,
                replica,
                Verb::BatchKnown,
                body,
                runtime::now() + self.context.timeouts().write,
            )
            .await;
        // Without an answer it is asked again, until it is down.
        matches!(answer, Ok(known) if known == [0])
    }

    /// Counts a part that is given up for its age as missed by all its replicas: it is unknown which of them have it.
    fn miss_part(&self, note: &Note, part: &Addressed) {
        let view = self.context.view();
        let is_truncated = view.truncated_at(part.table()) > note.version;
        let route = view.route(part.table()).filter(|_| !is_truncated);
        let birth_us = birth_us(&self.context.shard, [part], note.noted_us);
        let (Some(hints), Some(route), Some(write)) =
            (self.hints.kept(), route, self.hints.missed_write(&view, part, birth_us))
        else {
            return;
        };
        for replica in WriteTargets::new(&route.map.tablet_of(part.token())).all() {
            if let Some(node) = view.topology.numbered(replica.node) {
                hints.miss_write(node.host_id, write);
            }
        }
    }

    /// A table that was dropped or truncated takes its part of a batch with it. So does the end of its grace period,
    /// and what the cluster does when this node is down for long: the tombstones that would hide the part may be
    /// forgotten then.
    fn is_wanted(&self, note: &Note, part: &Addressed, is_of_this_node: bool) -> bool {
        let mutation = part.mutation();
        let Some(store) = self.context.shard.store(mutation.table) else {
            return false;
        };
        let table = store.table();
        let birth_us = birth_us(&self.context.shard, [part], note.noted_us);
        let age_us = runtime::wall_clock_us().saturating_sub(birth_us);
        let forgotten = self.context.with_view(ClusterView::own_forgotten);
        let is_given_up = forgotten.is_some_and(|forgotten| birth_us < i64::from(forgotten.before) * 1_000_000);
        let is_young = age_us <= i64::from(table.options.late_write_seconds()) * 1_000_000;
        let is_in_time = is_of_this_node || is_young && !is_given_up;
        let is_there = self.context.with_view(|view| {
            let is_truncated = view.truncated_at(mutation.table) > note.version;
            view.route(mutation.table).is_some() && (!is_truncated || planted::is_planted(Bug::BatchOutlivesTruncation))
        });
        is_in_time && is_there && mutation.validate(&table.layout).is_ok()
    }

    /// When the oldest logged batch that is noted here and has not ended was born; microseconds since the epoch. Reads
    /// all of them.
    pub(crate) fn oldest_us(&self) -> Option<i64> {
        let batches = self.open.borrow();
        let births = batches
            .values()
            .map(|open| birth_us(&self.context.shard, &*open.mutations, open.note.noted_us));
        births.min()
    }

    /// How many logged batches are noted on this shard and have not ended.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.borrow().len()
    }
}

impl NotedBatch<'_> {
    /// The batch needs no note any more, here or elsewhere.
    pub(crate) fn end(&self) {
        let Writing(batches, id) = self.writing;
        batches.forget(id);
        let until = runtime::now() + batches.context.timeouts().write;
        for holder in &self.holders {
            let (context, view, holder) = (Rc::clone(&batches.context), self.view.clone(), *holder);
            spawn(async move {
                let body = id.to_le_bytes().to_vec();
                // A holder that does not hear of it asks later.
                let _ = context.call(&view, holder, Verb::BatchRemove, body, until).await;
            });
        }
    }
}

impl UnfinishedBatch<'_> {
    /// The batch is written: it ends here.
    pub(crate) fn end(self) {
        let Writing(batches, id) = self.writing;
        drop(self);
        batches.forget(id);
    }
}

/// Whether all replicas of a mutation's partition are on this node. A table that was dropped has none.
fn is_only_here(view: &ClusterView, mutation: &Addressed) -> bool {
    view.route(mutation.table()).is_none_or(|route| {
        let targets = WriteTargets::new(&route.map.tablet_of(mutation.token()));
        targets.all().all(|replica| replica.node == view.me)
    })
}

/// The replicas of a mutation's tablet, sorted; None where its table has no route.
fn replicas_of(view: &ClusterView, mutation: &Addressed) -> Option<ReplicaList> {
    let route = view.route(mutation.table())?;
    let mut replicas: ReplicaList = WriteTargets::new(&route.map.tablet_of(mutation.token()))
        .all()
        .collect();
    replicas.sort_unstable();
    Some(replicas)
}

/// Whether a batch has to be noted before it is written to the replicas that a view has: whether some of it could be
/// there without the rest.
pub(crate) fn needs_note_in(view: &ClusterView, mutations: &[Addressed]) -> bool {
    needs_note(|m| replicas_of(view, m), mutations)
}

/// Whether some of the mutations could be there without the others. Not where one replica alone has all of them, and
/// not where they are of one partition key and have the same replicas: each of these has them as one record. Tables of
/// one keyspace have their tablets on different shards.
fn needs_note(replicas_of: impl Fn(&Addressed) -> Option<ReplicaList>, mutations: &[Addressed]) -> bool {
    let Some((first, others)) = mutations.split_first() else {
        return false;
    };
    let is_beside = |m: &Addressed| m.token() == first.token() && m.mutation().key == first.mutation().key;
    if others.iter().all(|m| m.table() == first.table() && is_beside(m)) {
        return false;
    }
    let Some(replicas) = replicas_of(first) else {
        return true;
    };
    let is_one_record = |m: &Addressed| {
        let same = m.table() == first.table() && is_beside(m);
        same || ((replicas.len() == 1 || is_beside(m)) && replicas_of(m).as_ref() == Some(&replicas))
    };
    !others.iter().all(is_one_record)
}

pub(crate) fn batch_id(body: &[u8]) -> Result<u128, Malformed> {
    let id = body.try_into().map_err(|_| Malformed("a batch id"))?;
    Ok(u128::from_le_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TableId = TableId(Uuid::from_u128(1));
    const U: TableId = TableId(Uuid::from_u128(2));

    fn part((table, key): (TableId, &[u8])) -> Addressed {
        let mut out = Vec::new();
        MutationBuilder::begin(&mut out, table, key);
        Addressed::new(out).expect("a mutation without rows is one")
    }

    /// Whether a batch of these parts needs a note where the partitions of `T` are on shard 0 of `nodes` nodes, and
    /// those of `U` on `shard_of_u` of theirs.
    fn is_noted<const N: usize>(nodes: u16, shard_of_u: u16, parts: [(TableId, &[u8]); N]) -> bool {
        let replicas = |m: &Addressed| {
            let shard = if m.table() == U { shard_of_u } else { 0 };
            let replica = |node| Replica {
                node: NodeNumber(node),
                shard,
            };
            Some((0..nodes).map(replica).collect())
        };
        needs_note(replicas, &parts.map(part))
    }

    #[test]
    fn a_batch_is_noted_where_its_parts_go_to_different_logs() {
        for nodes in [1, 3] {
            assert!(!is_noted(nodes, 1, [(T, b"a")]));
            assert!(!is_noted(nodes, 1, [(T, b"a"), (T, b"a")]), "one partition");
            assert!(!is_noted(nodes, 0, [(T, b"a"), (U, b"a")]), "one key, the same shards");
            assert!(is_noted(nodes, 1, [(T, b"a"), (U, b"a")]), "one key, different shards");
            assert!(is_noted(nodes, 1, [(T, b"a"), (T, b"a"), (U, b"a")]), "the same, last");
        }
        assert!(!is_noted(1, 0, [(T, b"a"), (T, b"b")]), "two partitions of one shard");
        assert!(is_noted(3, 0, [(T, b"a"), (T, b"b")]), "two partitions of three nodes");
        assert!(is_noted(1, 1, [(T, b"a"), (U, b"b")]), "two partitions of two shards");
    }
}
