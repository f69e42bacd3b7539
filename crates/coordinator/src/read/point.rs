//! Reads of one row that this shard has in memory, confirmed by other replicas without a task.
//!
//! The reader of a point query has its answer at once; what is left is that as many replicas as the level wants have
//! the same. They are asked for digests of the row, and when those agree the answer may be sent. Otherwise (a digest
//! differs, a replica fails and no other can replace it) the read is begun again in the general way (`read.rs`), which
//! repairs and knows the errors.
//!
//! Only *plain* rows are read so: no source has a static row or a range tombstone in the partition, two sources at most
//! have the row, and no file has to be read. Their digest is the one that [`crate::service::read`] computes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use replica::{PlainRow, RowBuffers, RowName};
use rpc::{AnswerTaker, RpcError, Sent};
use runtime::Instant;
use schema::{Table, TableId, components};
use smallvec::SmallVec;
use stdx::planted::{self, Bug};
use stdx::probe::{self, Answered};
use topology::{Acks, Consistency, Counts, ReadTargets, Replica, ReplicaList, Requirement};
use types::Token;
use types::token::KeyHash;

use crate::fence::Stamp;
use crate::message::{Answer, PointCommand, digest_of_answer};
use crate::read::Reads;
use crate::read::digest::Digest;
use crate::read::latency::TableLatencies;
use crate::verbs::Verb;
use crate::write::deadlines::{Expiring, FlightId};
use crate::{ClusterView, CoordinatorError, Tally, TargetError};

/// The outcome of a read that other replicas were to confirm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Confirmation {
    /// They have the same.
    Agreed,
    /// They do not, or could not say: the read has to be done again in the general way.
    Open,
    /// They did not answer in time.
    Failed(CoordinatorError),
}

/// Receives the outcome of a read.
pub trait ReadDone {
    /// The outcome of the read that was begun with this number, once. It may come while the read is begun.
    fn read_done(self: Rc<Self>, number: u32, confirmation: Confirmation);
}

/// Buffers that point reads reuse.
#[derive(Default)]
pub(crate) struct Scratch {
    row: RowBuffers,
    material: Vec<u8>,
}

/// A read of one row that this shard takes part in.
pub struct PointRead {
    view: Arc<ClusterView>,
    requirement: Requirement,
    /// Those that live, the best first; the first of them is this shard.
    replicas: ReplicaList,
    /// How many of them are asked.
    asked: usize,
}

impl PointRead {
    /// Whether this shard's answer is enough.
    #[inline]
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.asked == 1
    }
}

impl Reads {
    /// How a row is read at a level, if this shard is the replica to read it from. None: in the general way.
    #[must_use]
    pub fn begin_point(&self, table: TableId, token: Token, level: Consistency) -> Option<PointRead> {
        let store = self.context.shard.store(table)?;
        let view = self.context.view.borrow();
        let route = view.route(table)?;
        if Stamp::of(&view, table).check(&store) != Ok(true) || view.version < self.context.fence(&view) {
            return None;
        }
        let tablet = route.map.tablet_of(token);
        let requirement = route.requirement(level, &tablet, &view.locality);
        let mut targets = ReadTargets::new(&tablet, token, &view.locality, &self.context.liveness.borrow());
        targets.replicas.truncate(targets.live);
        let replicas = targets.replicas;
        if *replicas.first()? != self.context.this_replica(&view) {
            return None;
        }
        // One that does not count for the level is for the general way.
        let asked = requirement.first_of(&replicas, &view.locality)?;
        Some(PointRead {
            view: Arc::clone(&view),
            requirement,
            replicas,
            asked,
        })
    }

    /// The digest of a row, as a replica answers a read of it.
    #[must_use]
    pub fn digest_of_row(&self, table: &Table, name: RowName<'_>, row: &PlainRow<'_>, now: u32) -> u128 {
        let material = std::mem::take(&mut self.scratch.borrow_mut().material);
        let (digest, material) = Digest::of_plain_row(material, table, name.key, name.clustering, row, now);
        self.scratch.borrow_mut().material = material;
        digest
    }

    /// A replica's part: the digest of a row that memory has. None: in the general way.
    pub(crate) fn digest_at_once(&self, point: &PointCommand<'_>, stamp: Stamp) -> Option<u128> {
        let (digest, ()) = self.row_at_once(point, stamp, |_, _| ())?;
        Some(digest)
    }

    /// A replica's part: the digest of a row that memory has, with the row unless only the digest is asked for. This is
    /// what [`crate::service::read`] answers. None: in the general way.
    pub(crate) fn answer_at_once(&self, point: &PointCommand<'_>, stamp: Stamp) -> Option<Answer> {
        if point.digest_only {
            return self.digest_at_once(point, stamp).map(Answer::of_digest);
        }
        let (digest, block) = self.row_at_once(point, stamp, |token, plain| {
            let is_known = plain.row.is_some() || !plain.partition.is_none();
            is_known.then(|| plain.block(token, point.key, point.clustering))
        })?;
        Some(Answer {
            digest,
            blocks: block.into_iter().collect(),
            ..Answer::default()
        })
    }

    /// Runs `f` on a row that memory has; its digest too. None: in the general way.
    #[inline]
    fn row_at_once<R>(
        &self,
        point: &PointCommand<'_>,
        stamp: Stamp,
        f: impl FnOnce(Token, &PlainRow<'_>) -> R,
    ) -> Option<(u128, R)> {
        let store = self.context.shard.store(point.table)?;
        if stamp.check(&store) != Ok(true) {
            return None;
        }
        let table = store.table.borrow();
        if components(point.clustering).count() != table.clustering_order.len() {
            return None;
        }
        let hash = KeyHash::of(point.key);
        let tablet = store.tablet(hash.token())?;
        tablet.count_request();
        store.metrics.note_read(point.key);
        let scratch = &mut *self.scratch.borrow_mut();
        let material = std::mem::take(&mut scratch.material);
        let read = tablet.with_version(|version| {
            let name = RowName {
                hash,
                key: point.key,
                clustering: point.clustering,
            };
            version.read_plain_row(&table, name, &mut scratch.row, |row| {
                let digest = Digest::of_plain_row(material, &table, point.key, point.clustering, &row, point.now);
                (digest, f(hash.token(), &row))
            })
        });
        let ((digest, material), result) = read?;
        scratch.material = material;
        Some((digest, result))
    }

    /// Asks other replicas to confirm what this shard has read of a row, by its digest. `done` receives the outcome.
    pub fn confirm_point(
        self: &Rc<Self>,
        read: PointRead,
        table: &Arc<Table>,
        (key, clustering, now): (&[u8], &[u8], u32),
        digest: u128,
        done: (Rc<dyn ReadDone>, u32),
    ) {
        self.context.count(|m| m.reads += 1);
        let began = runtime::now();
        let latencies = self.latencies_of(table);
        let speculates = latencies.partition.delay().map(|delay| began + delay);
        let stamp = Stamp::of(&read.view, table.id);
        let command = PointCommand {
            table: table.id,
            now,
            key,
            clustering,
            digest_only: true,
        };
        let mut body = command.encode();
        stamp.sign(&mut body);
        let mut acks = Acks::new(read.requirement, Counts::default());
        acks.ack(read.view.me, read.view.locality.datacenter(read.view.me));
        let flight = Rc::new(PointFlight {
            reads: Rc::clone(self),
            view: read.view,
            latencies,
            body,
            digest,
            began,
            deadline: began + self.context.timeouts().read,
            speculates: Cell::new(speculates),
            id: Cell::default(),
            state: RefCell::new(PointState {
                replicas: read.replicas,
                next: 1,
                outstanding: SmallVec::new(),
                acks,
                answered: Answered::default(),
            }),
            done: RefCell::new(Some(done)),
        });
        for _ in 1..read.asked {
            if !flight.ask_next() {
                return flight.end(Confirmation::Open);
            }
        }
        let first = speculates.unwrap_or(flight.deadline).min(flight.deadline);
        flight.id.set(self.flights.add(flight.clone(), first));
    }
}

/// What of a read's confirmation changes.
struct PointState {
    /// Those that live, the best first.
    replicas: ReplicaList,
    /// The first of them that was not asked.
    next: usize,
    /// Those that were asked and have not answered, by their number among the replicas.
    outstanding: SmallVec<[(u32, Sent); 3]>,
    acks: Acks,
    answered: Answered<Replica>,
}

/// A read whose answer waits for other replicas.
struct PointFlight {
    reads: Rc<Reads>,
    view: Arc<ClusterView>,
    latencies: Rc<TableLatencies>,
    /// The request, as replicas are sent it.
    body: Vec<u8>,
    digest: u128,
    began: Instant,
    deadline: Instant,
    /// When one more replica is asked.
    speculates: Cell<Option<Instant>>,
    id: Cell<FlightId>,
    state: RefCell<PointState>,
    done: RefCell<Option<(Rc<dyn ReadDone>, u32)>>,
}

impl AnswerTaker for PointFlight {
    fn take_answer(self: Rc<Self>, number: u32, answer: Result<&[u8], RpcError>) {
        let mut state = self.state.borrow_mut();
        state.outstanding.retain(|(asked, _)| *asked != number);
        let replica = state.replicas[number as usize];
        probe::step(|| format!("coordinator: Answer of {}", self.view.name(replica)));
        match answer.map(digest_of_answer) {
            Ok(Some(digest)) if digest == self.digest || planted::is_planted(Bug::IgnoredDigest) => {
                state
                    .acks
                    .ack(replica.node, self.view.locality.datacenter(replica.node));
                state.answered.add(replica);
                if !state.acks.is_satisfied() {
                    return;
                }
                state.answered.add(self.reads.context.this_replica(&self.view));
                let level = state.acks.requirement().consistency();
                let answered = std::mem::take(&mut state.answered);
                drop(state);
                self.reads.context.tell_answered(&self.view, "read", level, &answered);
                self.latencies.partition.record(self.began.elapsed());
                self.end(Confirmation::Agreed);
            }
            Ok(_) => {
                drop(state);
                self.end(Confirmation::Open);
            }
            Err(error) => {
                drop(state);
                let is_stale = matches!(TargetError::from(error), TargetError::Stale(_));
                if is_stale || !self.ask_next() {
                    self.end(Confirmation::Open);
                }
            }
        }
    }
}

impl Expiring for PointFlight {
    fn birth_us(&self) -> Option<i64> {
        None
    }

    fn expire(self: Rc<Self>, now: Instant) -> Option<Instant> {
        if now >= self.deadline {
            let error = self.timeout();
            self.end(Confirmation::Failed(error));
            return None;
        }
        if self.speculates.take().is_some_and(|at| at <= now) && self.ask_next() {
            self.reads.context.count(|m| m.speculations += 1);
        }
        Some(self.deadline)
    }
}

impl PointFlight {
    /// Asks the next replica for its digest. Whether there is one.
    fn ask_next(self: &Rc<Self>) -> bool {
        let mut state = self.state.borrow_mut();
        while let Some(replica) = state.replicas.get(state.next).copied() {
            let number = u32::try_from(state.next).expect("a row has few replicas");
            state.next += 1;
            let (Some(rpc), Some(peer)) = (&self.reads.context.rpc, self.view.peer(replica.node)) else {
                continue;
            };
            if replica.node == self.view.me {
                continue;
            }
            let taker: Rc<dyn AnswerTaker> = self.clone();
            let sent = rpc.call_for(
                (&peer, u32::from(replica.shard)),
                ((Verb::Read as u16).into(), self.deadline),
                (self.body.len(), |out: &mut Vec<u8>| out.extend_from_slice(&self.body)),
                (taker, number),
            );
            if let Ok(sent) = sent {
                probe::step(|| format!("coordinator: Asking {} for a digest", self.view.name(replica)));
                state.outstanding.push((number, sent));
                return true;
            }
        }
        false
    }

    fn timeout(&self) -> CoordinatorError {
        self.reads.context.count(|m| m.timeouts += 1);
        let state = self.state.borrow();
        let silent = state
            .outstanding
            .iter()
            .map(|(number, _)| state.replicas[*number as usize]);
        let requirement = state.acks.requirement();
        CoordinatorError::ReadTimeout {
            tally: Tally {
                consistency: requirement.consistency(),
                received: state.acks.received(),
                block_for: requirement.block_for(),
            },
            data_present: true,
            missing: self.view.names(silent),
        }
    }

    /// Delivers the outcome to the waiting request, once, and cancels what is not answered.
    fn end(&self, confirmation: Confirmation) {
        let outstanding = std::mem::take(&mut self.state.borrow_mut().outstanding);
        for (_, sent) in outstanding {
            sent.give_up();
        }
        self.reads.flights.remove(self.id.take());
        if let Some((done, number)) = self.done.take() {
            probe::step(|| format!("coordinator: the read is {confirmation:?}"));
            done.read_done(number, confirmation);
        }
    }
}
