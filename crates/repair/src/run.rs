//! The side of the shard that repairs: [`repair`] reads the range once, stretch by stretch, and has each stretch
//! checked while it reads the next.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use commitlog::LogMark;
use mutation::counting::Counting;
use replica::{RepairedRange, Shard, TokenRange};
use rpc::Rpc;
use runtime::{Group, JoinHandle};
use schema::TableId;
use sstable::RepairRecord;
use stdx::planted::{self, Bug};
use tasks::Task;
use uuid::Uuid;

use crate::asking::{Asking, Participant, Stop};
use crate::error::RepairError;
use crate::kinds::UNITS;
use crate::marking::{IncrementalMode, Marking, Marks, replicas_of};
use crate::message::{self, Bucket, Compare, Open, RepairId};
use crate::position::Position;
use crate::repairs::Repairs;
use crate::serve::{SESSION_IDLE, WALK_IDLE};
use crate::side::{Side, bytes_of};
use crate::units::Hasher;
use crate::walk::Walk;

/// Units of a bucket, at least; inside a partition a bucket ends where a block does.
const BUCKET_UNITS: u64 = 16;
/// Bytes of what counts, with which a bucket is full too.
const BUCKET_HASHED_MAX: usize = 16 << 10;
/// Bytes that were read, with which a bucket is full whatever counts of them.
const BUCKET_BYTES_MAX: usize = 1 << 20;
/// Bytes that were read, with which a stretch is full.
const STRETCH_BYTES: usize = 4 << 20;
/// Most buckets of a stretch.
const BUCKETS_MAX: usize = 2_048;
/// Bytes of keys and bounds, with which a stretch is full, and with which a request to exchange is.
pub(crate) const POSITIONS_BYTES_MAX: usize = 1 << 20;
/// Stretches that are being checked while the next is read.
const STRETCHES_MAX: usize = 4;
/// Timeout of notifying a participant that all replicas are equal.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest rest of a repair that rests.
const REST_MAX: Duration = Duration::from_secs(10);
/// How often participants are notified that the repair is in progress.
const KEEP_OPEN_PERIOD: Duration = SESSION_IDLE.checked_div(4).expect("four is not zero");

/// Whether differences are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They are.
    Repair,
    /// They are counted only. The counts are those that a repair would have.
    Preview,
}

/// What to make equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The table.
    pub table: TableId,
    /// The tokens. This shard has them, and each participant has them.
    pub range: TokenRange,
    /// The other replicas.
    pub others: Vec<Participant>,
    /// The second since the epoch at which cells expire or not, and from which the grace period of deletions is
    /// counted.
    pub now: u32,
    /// Whether anything is written.
    pub mode: Mode,
    /// It rests this many times as long as it works; 0 if an operator waits for it.
    pub rest: u32,
    /// Whether it marks what it has made equal. Only where the range is the whole of one tablet on each replica, the
    /// other replicas are all that there are, and none of them joins or leaves. A preview marks nothing.
    pub marks: Option<Marks>,
}

/// What a repair did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// The wall clock when it began, microseconds: all replicas have every write that any of them had applied before
    /// it.
    pub began_at: i64,
    /// Partitions that this replica had.
    pub partitions: u64,
    /// Units that this replica had: rows, static rows, range tombstones and deletions of partitions.
    pub rows: u64,
    /// Units that a replica lacked, or had older: this one first, then the others in the order of the request.
    pub differed: Vec<Differed>,
    /// Bytes of requests to other nodes, with mutations for them; a preview counts those and sends none.
    pub sent_bytes: u64,
    /// Bytes of answers.
    pub received_bytes: u64,
    /// For how long it rested.
    pub rested: Duration,
    /// Whether it left out sstables that earlier repairs have marked.
    pub is_incremental: bool,
    /// Bytes of rows that this replica read to compare them.
    pub read_bytes: u64,
    /// Bytes of sstables that this replica left unread, because they are marked.
    pub skipped_bytes: u64,
    /// Sstables of this replica that it marked.
    pub marked_sstables: u64,
}

/// What one replica lacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Differed {
    /// Its node; nil for this one.
    pub host: Uuid,
    /// Its shard.
    pub shard: u32,
    /// Units that it lacked, or had older.
    pub rows: u64,
}

/// Makes the replicas of a range equal: when this returns Ok, each has every write that any of them had applied before
/// the call, as durably as a write that is acknowledged. `task` is of [`crate::kinds::REPAIR_RANGE`]
/// ([`crate::kinds::repair_range`]) and has not begun; the caller ends it.
///
/// Call it again after any failure: writing twice what a replica lacked changes nothing. Dropping the future ends the
/// repair.
///
/// # Errors
/// See [`RepairError`]. Nothing is known of what is equal then; what was written before stays.
pub async fn repair(rpc: &Rc<Rpc>, shard: &Rc<Shard>, request: &Request, task: &Task) -> Result<Repaired, RepairError> {
    let worker = task.worker().await?;
    let stop = Stop::new(task.control());
    let _guard = GivesUp(stop.clone());
    let (rpc, shard, request) = (rpc.clone(), shard.clone(), request.clone());
    // A task of its own: what it has begun is waited for, though the caller gives up.
    let repairing = async move {
        let _worker = worker;
        let repairs = Repairs::local();
        repairs.count(|metrics| metrics.running += 1);
        let repaired = run_with_marks(&rpc, &repairs, &shard, request, stop).await;
        repairs.count(|metrics| {
            metrics.running -= 1;
            metrics.failed += u64::from(repaired.is_err());
        });
        repaired
    };
    runtime::spawn_in(Group::BACKGROUND, repairing).await
}

/// Notifies this shard and the other replicas that a range is equal on all of them. `others` are the participants of a
/// repair of all replicas; the caller has seen to it that there was none besides. A node that does not hear of it keeps
/// tombstones for longer. `mode`: how they were repaired.
pub async fn tell_equal(rpc: &Rc<Rpc>, others: &[Participant], equal: RepairedRange, mode: IncrementalMode) {
    Repairs::local().note_equal(equal, mode);
    let body = message::encode_equal(&equal, mode);
    let told: Vec<_> = others
        .iter()
        .map(|Participant { peer, shard }| rpc.call(peer, *shard, message::EQUAL, body.clone(), TELL_TIMEOUT))
        .collect();
    for told in told {
        let _ = told.await;
    }
}

/// Ends the repair when it is dropped: the caller no longer waits for it.
struct GivesUp(Rc<Stop>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A repair that runs.
pub(crate) struct Run {
    pub(crate) id: RepairId,
    pub(crate) request: Request,
    pub(crate) side: Side,
    pub(crate) asking: Asking,
    pub(crate) repaired: RefCell<Repaired>,
    /// The greatest mark that a replica has a record of.
    pub(crate) last_mark: Cell<i64>,
    /// Participants need no further notice that the repair is in progress.
    is_over: Cell<bool>,
    /// Units of progress that were reported to the task.
    done: Cell<u64>,
}

/// How a repair ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Repaired,
    /// Replicas do not agree on what is marked: it must read everything.
    RecordsDiffer,
}

/// Part of the range, with a hash for each bucket.
pub(crate) struct Hashed {
    pub(crate) from: Position,
    pub(crate) buckets: Vec<Bucket>,
    /// Bytes of each bucket that were read.
    pub(crate) bytes: Vec<usize>,
}

/// Repairs incrementally if it may, and else reads everything.
async fn run_with_marks(
    rpc: &Rc<Rpc>,
    repairs: &Rc<Repairs>,
    shard: &Rc<Shard>,
    request: Request,
    stop: Rc<Stop>,
) -> Result<Repaired, RepairError> {
    let marks = request.marks.filter(|_| request.mode == Mode::Repair);
    let Some(marks) = marks else {
        let done = run(rpc, repairs, shard, request, stop, None).await?;
        return Ok(done.expect("no records are compared"));
    };
    if !marks.reads_all
        && let Some(done) = run(rpc, repairs, shard, request.clone(), stop.clone(), Some(false)).await?
    {
        return Ok(done);
    }
    let done = run(rpc, repairs, shard, request, stop, Some(true)).await?;
    Ok(done.expect("no records are compared"))
}

/// One attempt. `marks`: none are set; or they are, and whether marked sstables are read too. None where they would
/// have to be.
async fn run(
    rpc: &Rc<Rpc>,
    repairs: &Rc<Repairs>,
    shard: &Rc<Shard>,
    request: Request,
    stop: Rc<Stop>,
    marks: Option<bool>,
) -> Result<Option<Repaired>, RepairError> {
    let began_at = runtime::wall_clock_us();
    let store = shard.store(request.table).ok_or(RepairError::UnknownTable)?;
    let truncated_at = store.truncated_at.get();
    if store.truncation() > truncated_at {
        return Err(RepairError::NotTruncated);
    }
    let mut counting = Counting::of_table(&store.table(), request.now);
    let mut side = Side::new(shard, &store, request.range, counting, stop.control.clone());
    side.check_whole()?;
    let mark = shard.log.mark();
    let mut marking = None;
    if let Some(is_full) = marks {
        if is_full {
            // The participants compare by the same second.
            let forgotten = shard.forgotten_before(&store, request.range);
            counting.gc_before = counting.gc_before.min(forgotten);
            side.counting.gc_before = counting.gc_before;
        }
        side.prepare_to_mark(is_full);
        let replicas = replicas_of(Run::hosts(shard.host_id(), &request.others));
        let begun = Marking::begin(&side, is_full, replicas).await?;
        let is_usable = |record: &RepairRecord| record.since >= request.marks.map_or(0, |marks| marks.full_before);
        if !is_full && !begun.before.as_ref().is_some_and(is_usable) {
            return Ok(None);
        }
        marking = Some(begun);
    }
    let nobody = (Uuid::nil(), shard.id().0);
    let replicas = request.others.iter().map(|other| (other.peer.host_id, other.shard));
    let differed = std::iter::once(nobody)
        .chain(replicas)
        .map(|(host, shard)| Differed { host, shard, rows: 0 });
    let repaired = Repaired {
        began_at,
        partitions: 0,
        rows: 0,
        differed: differed.collect(),
        sent_bytes: 0,
        received_bytes: 0,
        rested: Duration::ZERO,
        is_incremental: marks == Some(false),
        read_bytes: 0,
        skipped_bytes: marking.as_ref().map_or(0, |marking| marking.skipped_bytes),
        marked_sstables: 0,
    };
    let run = Rc::new(Run {
        id: RepairId(u128::from(runtime::random_u64()) << 64 | u128::from(runtime::random_u64())),
        request,
        side,
        asking: Asking {
            rpc: rpc.clone(),
            repairs: repairs.clone(),
            stop: stop.clone(),
        },
        repaired: RefCell::new(repaired),
        last_mark: Cell::new(0),
        is_over: Cell::new(false),
        done: Cell::new(0),
    });
    let done = run.all(counting, (truncated_at, mark), marking.as_ref()).await;
    run.is_over.set(true);
    if !matches!(done, Ok(Ended::Repaired)) {
        run.give_up();
    }
    if done? == Ended::RecordsDiffer {
        return Ok(None);
    }
    stop.end();
    let repaired = run.repaired.borrow().clone();
    repairs.count(|metrics| {
        metrics.skipped_bytes += repaired.skipped_bytes;
        metrics.marked_sstables += repaired.marked_sstables;
    });
    Ok(Some(repaired))
}

impl Run {
    async fn all(
        self: &Rc<Self>,
        counting: Counting,
        (truncated_at, mark): (u64, LogMark),
        marking: Option<&Marking>,
    ) -> Result<Ended, RepairError> {
        let open = Open {
            id: self.id,
            table: self.request.table,
            range: self.request.range,
            truncated_at,
            now: counting.now,
            gc_before: counting.gc_before,
            columns: self.side.columns,
        };
        match marking {
            None => drop(self.ask_all(message::OPEN, &open.encode()).await?),
            Some(marking) if self.open_marking(open, marking).await? => {}
            Some(_) => return Ok(Ended::RecordsDiffer),
        }
        drop(runtime::spawn_in(Group::BACKGROUND, self.clone().keep_open()));
        let walked = self.walk().await;
        if let Some(marking) = marking
            && walked.is_err()
            && planted::is_planted(Bug::MarkedUnrepaired)
        {
            self.mark_all_the_same(marking).await;
        }
        walked?;
        self.side.check_whole()?;
        self.side.persist(mark).await?;
        self.side.sync().await?;
        match marking {
            None => drop(self.ask_all(message::CLOSE, &self.id.encode()).await?),
            Some(marking) => self.settle_and_mark(marking).await?,
        }
        self.side.check_whole()?;
        Ok(Ended::Repaired)
    }

    /// Asks every participant the same, at once. The contents of their answers.
    pub(crate) async fn ask_all(&self, verb: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, RepairError> {
        let others = &self.request.others;
        let calls: Vec<_> = others.iter().map(|other| self.asking.call(other, verb, body)).collect();
        let mut contents = Vec::with_capacity(others.len());
        for (other, call) in others.iter().zip(calls) {
            let answer = self.asking.answer(other, (verb, body), call).await?;
            self.count_bytes(body.len(), answer.len());
            contents.push(other.content(&answer)?.to_vec());
        }
        Ok(contents)
    }

    pub(crate) fn count_bytes(&self, sent: usize, received: usize) {
        let mut repaired = self.repaired.borrow_mut();
        repaired.sent_bytes += sent as u64;
        repaired.received_bytes += received as u64;
    }

    /// Notifies participants that the repair is over, so that they need not wait.
    fn give_up(self: &Rc<Self>) {
        for other in &self.request.others {
            let call = self.asking.call(other, message::CLOSE, &self.id.encode());
            // One that does not hear of it ends by itself.
            drop(runtime::spawn(async move { drop(call.await) }));
        }
    }

    /// Notifies participants that the repair is in progress, until it is over.
    async fn keep_open(self: Rc<Self>) {
        let nothing = Compare::encode(self.id, &Position::Token(self.request.range.after), &[]);
        while self.asking.stop.or(runtime::sleep(KEEP_OPEN_PERIOD)).await.is_ok() && !self.is_over.get() {
            for other in &self.request.others {
                let call = self.asking.call(other, message::COMPARE, &nothing);
                // What is wrong shows where the repair asks.
                drop(runtime::spawn(async move { drop(call.await) }));
            }
        }
    }

    /// Reads the range and has it checked.
    async fn walk(self: &Rc<Self>) -> Result<(), RepairError> {
        let mut checking: VecDeque<JoinHandle<()>> = VecDeque::new();
        let read = self.read_all(&mut checking).await;
        if let Err(error) = read {
            self.asking.stop.fail(error);
        }
        // Nothing is written after the end of a repair, however it ends.
        for check in checking {
            check.await;
        }
        match self.asking.stop.failure.take() {
            Some(error) => Err(error),
            None => self.asking.stop.check(),
        }
    }

    async fn read_all(self: &Rc<Self>, checking: &mut VecDeque<JoinHandle<()>>) -> Result<(), RepairError> {
        let range = self.request.range;
        let (mut from, end) = (Position::Token(range.after), Position::Token(range.to));
        let mut walk = None;
        while from != end {
            self.asking.stop.check()?;
            let began = runtime::now();
            let hashed = self.read(&from, &end, &mut walk).await?;
            from = hashed
                .buckets
                .last()
                .map_or_else(|| end.clone(), |last| last.end.clone());
            if checking.len() >= STRETCHES_MAX
                && let Some(mut check) = checking.pop_front()
                && runtime::timeout(WALK_IDLE, &mut check).await.is_err()
            {
                walk = None;
                check.await;
            }
            let (run, to) = (self.clone(), from.token());
            let check = async move {
                match run.check(hashed).await {
                    Ok(()) => run.progress(to),
                    Err(error) => run.asking.stop.fail(error),
                }
            };
            checking.push_back(runtime::spawn_in(Group::BACKGROUND, check));
            let rest = self.request.rest;
            if rest > 0 {
                let worked = runtime::now().saturating_duration_since(began);
                let rest = worked.saturating_mul(rest).min(REST_MAX);
                self.repaired.borrow_mut().rested += rest;
                walk = walk.filter(|_| rest < WALK_IDLE);
                self.asking.stop.or(runtime::sleep(rest)).await?;
            }
        }
        Ok(())
    }

    /// Reports that everything up to a token is checked, or nearly so: stretches end in another order than they begin.
    fn progress(&self, to: types::Token) {
        let range = self.request.range;
        let span = |to: i64| i128::from(to) - i128::from(range.after.0);
        let done = span(to.0) * i128::from(UNITS) / span(range.to.0).max(1);
        self.progress_to(u64::try_from(done).unwrap_or(0));
    }

    fn progress_to(&self, units: u64) {
        let before = self.done.get();
        if units > before {
            self.done.set(units);
            self.side.control.advance(units - before);
        }
    }

    /// Reads a stretch and hashes it, bucket by bucket. `kept` is the walk of the stretch before, which is where this
    /// one begins.
    async fn read(&self, from: &Position, end: &Position, kept: &mut Option<Walk>) -> Result<Hashed, RepairError> {
        let side = &self.side;
        let mut walk = match kept.take().filter(|walk| walk.is_current(&side.store)) {
            Some(walk) => walk,
            None => side.walk(from, end)?,
        };
        let mut hashing = Hashing::new(Hasher::new(side.table.clone(), side.counting));
        let mut unpaid = side.unpaid();
        let mut token = None;
        while let Some(piece) = walk.next().await? {
            // Partitions of one token are not parted.
            if let Some(token) = token.filter(|token| piece.begins && *token != piece.block.token)
                && hashing.is_bucket_full()
            {
                hashing.close(Position::Token(token));
                if hashing.is_full() {
                    walk.put_back(piece);
                    break;
                }
            }
            token = Some(piece.block.token);
            hashing.partitions += u64::from(piece.begins);
            hashing.add(&piece);
            unpaid.add(bytes_of(&piece.block)).await?;
            if piece.block.covered.is_some() && hashing.is_bucket_full() {
                hashing.close(Position::behind(&piece.block));
                if hashing.is_full() {
                    break;
                }
            }
        }
        if !hashing.is_full() {
            hashing.close(end.clone());
        }
        unpaid.settle().await?;
        side.check()?;
        *kept = Some(walk);
        let mut repaired = self.repaired.borrow_mut();
        repaired.partitions += hashing.partitions;
        repaired.rows += hashing.all_units;
        repaired.read_bytes += hashing.all_bytes as u64;
        let compared = hashing.all_units;
        self.asking.repairs.count(|metrics| metrics.compared_rows += compared);
        Ok(Hashed {
            from: from.clone(),
            buckets: hashing.buckets,
            bytes: hashing.bytes,
        })
    }
}

/// The buckets of a stretch that is being read.
struct Hashing {
    hasher: Hasher,
    buckets: Vec<Bucket>,
    bytes: Vec<usize>,
    partitions: u64,
    all_units: u64,
    all_bytes: usize,
    positions_bytes: usize,
    /// Of the bucket that is not closed.
    sum: u128,
    units: u64,
    bucket_bytes: usize,
    hashed_before: usize,
}

impl Hashing {
    fn new(hasher: Hasher) -> Self {
        Self {
            hasher,
            buckets: Vec::new(),
            bytes: Vec::new(),
            partitions: 0,
            all_units: 0,
            all_bytes: 0,
            positions_bytes: 0,
            sum: 0,
            units: 0,
            bucket_bytes: 0,
            hashed_before: 0,
        }
    }

    fn add(&mut self, piece: &crate::walk::Piece) {
        let (sum, units) = (&mut self.sum, &mut self.units);
        self.hasher.add(&piece.block, piece.begins, &mut |_, hash| {
            *sum = sum.wrapping_add(hash.hash);
            *units += 1;
        });
        self.bucket_bytes += bytes_of(&piece.block);
    }

    fn is_bucket_full(&self) -> bool {
        self.units >= BUCKET_UNITS
            || self.hasher.bytes - self.hashed_before >= BUCKET_HASHED_MAX
            || self.bucket_bytes >= BUCKET_BYTES_MAX
    }

    fn is_full(&self) -> bool {
        self.all_bytes >= STRETCH_BYTES
            || self.buckets.len() >= BUCKETS_MAX
            || self.positions_bytes >= POSITIONS_BYTES_MAX
    }

    fn close(&mut self, end: Position) {
        let (sum, units) = (&mut self.sum, &mut self.units);
        self.hasher.end(&mut |_, hash| {
            *sum = sum.wrapping_add(hash.hash);
            *units += 1;
        });
        self.positions_bytes += end.len();
        self.buckets.push(Bucket { end, hash: *sum });
        self.bytes.push(self.bucket_bytes);
        self.all_units += *units;
        self.all_bytes += self.bucket_bytes;
        self.hashed_before = self.hasher.bytes;
        (*sum, *units, self.bucket_bytes) = (0, 0, 0);
    }
}
