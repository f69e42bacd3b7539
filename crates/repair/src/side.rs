//! What a shard does on either side of a repair: read, compare, write.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::LogMark;
use mutation::counting::Counting;
use mutation::{Bound, Mutation, PartitionBlock};
use replica::{Baseline, PurgeHold, Shard, TableStore, TokenRange, WriteError, split_block};
use runtime::Instant;
use schema::Table;
use stdx::planted::{self, Bug};
use tasks::JobControl;
use types::Token;
use types::token::token_of;

use crate::error::Trouble;
use crate::message::{Bucket, Malformed, columns_of};
use crate::part::{Part, append};
use crate::position::Position;
use crate::repairs::Repairs;
use crate::units::{Hash, Hasher};
use crate::walk::{Piece, Walk};

/// Bytes that a comparison reads before it ends early.
pub(crate) const COMPARE_BYTES_MAX: usize = 32 << 20;
/// As many stretches of one request are read in one pass.
const DENSE_MIN: usize = 12;
/// How long a request is worked on before it ends early.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// Bytes that are accounted for at once.
const SPEND_BYTES: usize = 256 << 10;

/// No write reaches a replica later than this many seconds after it was made, except as a hint or as a part of a batch:
/// clocks differ, and requests take time. Generous, since timeouts are the operator's.
const LATE_SECONDS: u32 = 120;

/// One replica, as it is for the length of a repair.
pub(crate) struct Side {
    pub(crate) shard: Rc<Shard>,
    pub(crate) store: Rc<TableStore>,
    pub(crate) table: Arc<Table>,
    pub(crate) range: TokenRange,
    pub(crate) counting: Counting,
    pub(crate) columns: u128,
    pub(crate) control: JobControl,
    /// Whether bytes that are read are the progress of the task.
    pub(crate) counts_bytes: bool,
    /// Whether marked sstables are left out.
    pub(crate) reads_unrepaired: bool,
    /// Whether what is here already is not written again.
    pub(crate) leaves_out_known: bool,
    /// The second of the repair.
    pub(crate) now: u32,
    /// Deletions made before this second are not written where they hide nothing.
    pub(crate) forgets_before: u32,
    baseline: Baseline,
    /// What this replica is about to get may be older than a deletion that arrives concurrently.
    _hold: PurgeHold,
}

/// What a replica has of a stretch.
pub(crate) struct Gathered {
    pub(crate) parts: Vec<Part>,
    /// Where it ends, when that is before the end of the stretch.
    pub(crate) end: Option<Position>,
    /// Bytes of it, about.
    pub(crate) bytes: usize,
}

/// What was read of a stretch so far.
#[derive(Default)]
struct Gathering {
    parts: Vec<Part>,
    /// The partition that is being read.
    open: Option<Piece>,
    bytes: usize,
}

impl Gathering {
    fn add(&mut self, side: &Side, piece: Piece) {
        self.bytes += bytes_of(&piece.block);
        match &mut self.open {
            Some(whole) if is_same_partition(&whole.block, &piece.block) => {
                append(&side.table.clustering_order, &mut whole.block, &piece.block);
            }
            open => {
                let before = open.replace(piece);
                self.parts.extend(before.map(|piece| part_of(side, &piece)));
            }
        }
    }

    /// What was read of a stretch up to `to`; it ends at `end` when that is before.
    fn end(mut self, side: &Side, to: &Position, end: Option<Position>) -> Gathered {
        let order = &side.table.clustering_order;
        self.parts.extend(self.open.map(|piece| part_of(side, &piece)));
        Gathered {
            parts: self.parts,
            end: end.filter(|end| end.compare(to, order).is_lt()),
            bytes: self.bytes,
        }
    }
}

fn part_of(side: &Side, piece: &Piece) -> Part {
    Part::new(&side.table, side.counting, &piece.block, piece.begins)
}

/// Bytes that were read and not accounted for.
pub(crate) struct Unpaid<'a> {
    side: &'a Side,
    bytes: usize,
    since: Instant,
}

impl Unpaid<'_> {
    /// Accounts for bytes, and gives way.
    pub(crate) async fn add(&mut self, bytes: usize) -> Result<(), Trouble> {
        self.bytes += bytes;
        if self.bytes >= SPEND_BYTES {
            self.settle().await?;
        }
        runtime::give_way().await;
        Ok(())
    }

    /// Whether it has run for so long that the caller should have an answer: with little bandwidth a request ends
    /// early.
    fn is_long(&self) -> bool {
        runtime::now().saturating_duration_since(self.since) >= ANSWER_TIME
    }

    /// Accounts for what was put off.
    pub(crate) async fn settle(&mut self) -> Result<(), Trouble> {
        let bytes = std::mem::take(&mut self.bytes) as u64;
        Repairs::local().count(|metrics| metrics.read_bytes += bytes);
        let control = &self.side.control;
        control.spend_on_shard(bytes).await;
        if self.side.counts_bytes {
            control.advance(bytes);
        }
        if control.is_aborted() {
            Err(Trouble::Aborted)
        } else {
            Ok(())
        }
    }
}

impl Side {
    /// The replica as it is now.
    pub(crate) fn new(
        shard: &Rc<Shard>,
        store: &Rc<TableStore>,
        range: TokenRange,
        counting: Counting,
        control: JobControl,
    ) -> Self {
        let table = store.table();
        // What may not be forgotten yet may be on its way to another replica, which the repair reads without it.
        let held_from = shard
            .forgets_before(store, range)
            .min(counting.now.saturating_sub(LATE_SECONDS));
        Self {
            baseline: Baseline::of(shard, store),
            columns: columns_of(&table),
            shard: shard.clone(),
            store: store.clone(),
            table,
            range,
            counting,
            control,
            counts_bytes: false,
            reads_unrepaired: false,
            leaves_out_known: false,
            now: counting.now,
            forgets_before: 0,
            _hold: store.hold_purges(range, held_from),
        }
    }

    /// Compares elements as they were written, for a repair that marks sstables. With `reads_all` those of marked
    /// sstables are compared too, and what may be purged here is not: it matters where it hides what another replica
    /// shows, and is sent then. Without, what is here is a part of the replica, and what may be purged can hide
    /// something of the other part, here or on another replica: all is compared.
    pub(crate) fn prepare_to_mark(&mut self, reads_all: bool) {
        self.reads_unrepaired = !reads_all;
        self.leaves_out_known = true;
        self.forgets_before = self.shard.forgets_before(&self.store, self.range);
        if planted::is_planted(Bug::InexactElements) {
            return;
        }
        self.counting = if reads_all {
            Counting {
                gc_before: self.counting.gc_before.min(self.forgets_before),
                is_exact: true,
                ..self.counting
            }
        } else {
            Counting::EVERYTHING
        };
    }

    /// Whether what was found out since the beginning still holds.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        if self.control.is_aborted() {
            return Err(Trouble::Aborted);
        }
        self.baseline.check_range(self.range)?;
        if !self.store.covers(self.range.after, self.range.to) {
            return Err(Trouble::NotHere);
        }
        let now = self.store.table();
        if !Arc::ptr_eq(&now, &self.table) && columns_of(&now) != self.columns {
            return Err(Trouble::SchemaDiffers);
        }
        Ok(())
    }

    /// Like [`Self::check`]; also checks that every sstable of the range is there and trusted.
    pub(crate) fn check_whole(&self) -> Result<(), Trouble> {
        self.check()?;
        let tokens = (Token(self.range.after.0.saturating_add(1)), self.range.to);
        for tablet in self.store.tablets().iter() {
            if !tablet.range.intersects(self.range) {
                continue;
            }
            let version = tablet.version();
            version.check_whole(tokens)?;
            let is_suspect = version
                .sstables
                .iter()
                .any(|sstable| sstable.is_suspect() && self.range.overlaps(sstable.tokens()));
            if is_suspect {
                let reason = "damage was found in an sstable of the range, and it is being examined";
                return Err(Trouble::Missing(reason.to_owned()));
            }
        }
        Ok(())
    }

    pub(crate) fn unpaid(&self) -> Unpaid<'_> {
        Unpaid {
            side: self,
            bytes: 0,
            since: runtime::now(),
        }
    }

    pub(crate) fn walk(&self, from: &Position, to: &Position) -> Result<Walk, Trouble> {
        self.walk_on((from, to), to.token(), None)
    }

    /// Continues `kept` if that walk stopped where this one begins and still can; else begins one that can continue up
    /// to `end`.
    fn walk_on(&self, (from, to): (&Position, &Position), end: Token, kept: Option<Walk>) -> Result<Walk, Trouble> {
        self.check()?;
        if let Some(mut walk) = kept.filter(|walk| walk.can_go_on(from, &self.store)) {
            walk.go_on(to);
            return Ok(walk);
        }
        Walk::new(
            &self.shard,
            &self.store,
            &self.table,
            (from, to, end),
            self.reads_unrepaired,
        )
    }

    /// What is here of consecutive stretches: of as many as have about `bytes_max` bytes together, of the first at
    /// least.
    pub(crate) async fn gather(
        &self,
        stretches: &[(&Position, &Position)],
        bytes_max: usize,
    ) -> Result<Vec<Gathered>, Trouble> {
        let is_token = |position: &Position| matches!(position, Position::Token(_));
        let is_dense =
            stretches.len() >= DENSE_MIN && stretches.iter().all(|(from, to)| is_token(from) && is_token(to));
        if is_dense {
            return self.gather_dense(stretches, bytes_max).await;
        }
        let (mut all, mut left) = (Vec::new(), bytes_max);
        for (from, to) in stretches {
            let gathered = self.gather_one(from, to, left).await?;
            left = left.saturating_sub(gathered.bytes);
            all.push(gathered);
            if left == 0 {
                break;
            }
        }
        Ok(all)
    }

    async fn gather_one(&self, from: &Position, to: &Position, bytes_max: usize) -> Result<Gathered, Trouble> {
        let mut walk = self.walk(from, to)?;
        let mut unpaid = self.unpaid();
        let mut gathering = Gathering::default();
        let mut end = None;
        while let Some(piece) = walk.next().await? {
            let (bytes, behind) = (bytes_of(&piece.block), Position::behind(&piece.block));
            gathering.add(self, piece);
            unpaid.add(bytes).await?;
            if gathering.bytes >= bytes_max || unpaid.is_long() {
                end = Some(behind);
                break;
            }
        }
        unpaid.settle().await?;
        self.check_whole()?;
        Ok(gathering.end(self, to, end))
    }

    /// Also reads the gaps between the stretches. Where stretches are near each other, seeking to each of them in every
    /// sstable would cost more.
    async fn gather_dense(
        &self,
        stretches: &[(&Position, &Position)],
        bytes_max: usize,
    ) -> Result<Vec<Gathered>, Trouble> {
        let [(first, _), .., (_, last)] = stretches else {
            return Ok(Vec::new());
        };
        let mut walk = self.walk(first, last)?;
        let mut unpaid = self.unpaid();
        let (mut all, mut gathering) = (Vec::new(), Gathering::default());
        let (mut read, mut bytes_before) = (0, 0);
        while let Some(piece) = walk.next().await? {
            let (bytes, token) = (bytes_of(&piece.block), piece.block.token);
            unpaid.add(bytes).await?;
            read += bytes;
            while let Some((_, to)) = stretches.get(all.len())
                && token > to.token()
            {
                bytes_before += gathering.bytes;
                all.push(std::mem::take(&mut gathering).end(self, to, None));
            }
            let Some((from, to)) = stretches.get(all.len()) else {
                break;
            };
            let is_inside = token > from.token() || from.token() == TokenRange::ALL.after;
            let behind = Position::behind(&piece.block);
            if is_inside {
                gathering.add(self, piece);
            }
            let is_much = bytes_before + gathering.bytes >= bytes_max || read >= COMPARE_BYTES_MAX;
            if is_much || (unpaid.is_long() && (is_inside || !all.is_empty())) {
                if is_inside {
                    all.push(gathering.end(self, to, Some(behind)));
                }
                unpaid.settle().await?;
                self.check_whole()?;
                return Ok(all);
            }
        }
        while let Some((_, to)) = stretches.get(all.len()) {
            all.push(std::mem::take(&mut gathering).end(self, to, None));
        }
        unpaid.settle().await?;
        self.check_whole()?;
        Ok(all)
    }

    /// Which of these consecutive buckets differ here. Ends early when there is much to read. `kept` is the walk of the
    /// previous comparison; it is replaced by one that can continue after these buckets.
    pub(crate) async fn compare(
        &self,
        from: &Position,
        buckets: &[Bucket],
        kept: &RefCell<Option<Walk>>,
    ) -> Result<Vec<bool>, Trouble> {
        let Some(last) = buckets.last() else {
            return Ok(Vec::new());
        };
        let mut comparison = Comparison {
            hasher: Hasher::new(self.table.clone(), self.counting),
            table: self.table.clone(),
            buckets,
            differs: Vec::with_capacity(buckets.len()),
            sum: 0,
        };
        let before = kept.take();
        let mut walk = self.walk_on((from, &last.end), self.range.to, before)?;
        let (mut unpaid, mut read) = (self.unpaid(), 0);
        while let Some(piece) = walk.next().await? {
            let bytes = bytes_of(&piece.block);
            comparison.add(piece);
            unpaid.add(bytes).await?;
            read += bytes;
            let is_left = comparison.differs.len() < buckets.len();
            let is_late = unpaid.is_long();
            if is_left && (is_late || read >= COMPARE_BYTES_MAX) {
                // What was read of the bucket is read again, in the next request or in an exchange.
                if !is_late || comparison.differs.is_empty() {
                    comparison.differs.push(true);
                }
                unpaid.settle().await?;
                self.check_whole()?;
                return Ok(comparison.differs);
            }
        }
        while comparison.differs.len() < buckets.len() {
            comparison.close();
        }
        unpaid.settle().await?;
        self.check_whole()?;
        kept.replace(Some(walk));
        Ok(comparison.differs)
    }

    /// The token of a mutation that a peer sent, if the table takes it.
    pub(crate) fn token_of_peers(&self, bytes: &[u8]) -> Result<Token, Malformed> {
        let mutation = Mutation::new(bytes).ok_or(Malformed("a mutation is cut short"))?;
        if mutation.table != self.table.id {
            return Err(Malformed("a mutation is of another table"));
        }
        let valid = mutation.validate(&self.table.layout);
        valid.map_err(|_| Malformed("a mutation is not of the table's layout"))?;
        let token = token_of(mutation.key);
        if self.range.contains(token) {
            Ok(token)
        } else {
            Err(Malformed("a mutation is outside the range"))
        }
    }

    /// Writes mutations of the range, as durably as what is acknowledged. In a repair that marks: how many units were
    /// not here.
    pub(crate) async fn write(&self, mutations: &[&[u8]]) -> Result<u64, Trouble> {
        let mut units = 0;
        let mark = self.shard.log.mark();
        for bytes in mutations {
            let mutation = Mutation::new(bytes).expect("it was packed or checked just now");
            let token = token_of(mutation.key);
            let lacking = if self.leaves_out_known {
                self.lacking(token, &mutation).await?
            } else {
                None
            };
            let mutation = match &lacking {
                Some(lacking) => {
                    units += lacking.units;
                    Mutation::new(&lacking.mutation).expect("it was packed just now")
                }
                None if self.leaves_out_known => continue,
                None => mutation,
            };
            if !self.shard.takes_growth() && mutation.adds_data(&self.table.layout) {
                return Err(Trouble::DiskFull);
            }
            loop {
                // In the step of the write.
                self.check()?;
                match self.shard.write(&self.store, token, &mutation) {
                    Ok(logged) => {
                        logged.is_covered_by(mark);
                        break;
                    }
                    Err(WriteError::NotHere(_)) => return Err(Trouble::NotHere),
                    Err(WriteError::Log(error)) => return Err(Trouble::Log(error.to_string())),
                    Err(WriteError::MemoryFull) => {
                        let room = self.shard.room().await;
                        room.map_err(|error| Trouble::Full(error.to_string()))?;
                    }
                }
            }
            runtime::give_way().await;
        }
        self.persist(mark).await?;
        Ok(units)
    }

    /// Makes what was applied here so far durable, whatever acknowledgements ask for: once all replicas are known to
    /// have a deletion, they forget it. What an earlier failure has left in memory alone is flushed.
    pub(crate) async fn sync(&self) -> Result<(), Trouble> {
        if self.shard.log.has_ever_lost() {
            for tablet in self.store.tablets().iter() {
                if tablet.range.intersects(self.range) {
                    let flushed = self.shard.flush(&self.store, tablet).await;
                    flushed.map_err(Trouble::Log)?;
                }
            }
        }
        let synced = self.shard.log.sync().await;
        synced.map_err(|error| Trouble::Log(error.to_string()))
    }

    /// Makes what was applied here since a mark as durable as what is acknowledged.
    pub(crate) async fn persist(&self, mark: LogMark) -> Result<(), Trouble> {
        let log = &self.shard.log;
        let position = self.shard.commit_since(mark);
        let position = position.map_err(|error| Trouble::Log(error.to_string()))?;
        if log.is_batch() {
            let synced = log.synced(position).await;
            synced.map_err(|error| Trouble::Log(error.to_string()))?;
        }
        Ok(())
    }
}

fn is_same_partition(a: &PartitionBlock, b: &PartitionBlock) -> bool {
    (a.token, a.key()) == (b.token, b.key())
}

/// The bytes of a block, about.
pub(crate) fn bytes_of(block: &PartitionBlock) -> usize {
    block.size() + 64 * block.range_tombstones.len()
}

/// Hashes what is here, bucket by bucket.
struct Comparison<'a> {
    hasher: Hasher,
    table: Arc<Table>,
    buckets: &'a [Bucket],
    /// Of the buckets that are closed.
    differs: Vec<bool>,
    /// Of the units in the bucket that is not.
    sum: u128,
}

/// Where a bucket ends, seen from a block.
enum End {
    /// Before it.
    Before,
    /// In it.
    Inside(Bound),
    /// At its end, or after it.
    Behind,
}

impl Comparison<'_> {
    fn close(&mut self) {
        let sum = &mut self.sum;
        self.hasher.end(&mut |_, hash| *sum = sum.wrapping_add(hash.hash));
        if let Some(bucket) = self.buckets.get(self.differs.len()) {
            self.differs.push(*sum != bucket.hash);
        }
        *sum = 0;
    }

    fn end_in(&self, block: &PartitionBlock) -> Option<End> {
        let end = &self.buckets.get(self.differs.len())?.end;
        Some(match end {
            Position::Token(token) if *token < block.token => End::Before,
            Position::Token(_) => End::Behind,
            Position::Inside { token, key, bound } => match (*token, &key[..]).cmp(&(block.token, block.key())) {
                std::cmp::Ordering::Less => End::Before,
                std::cmp::Ordering::Greater => End::Behind,
                std::cmp::Ordering::Equal => {
                    let order = &self.table.clustering_order;
                    let covered = block.covered.as_ref();
                    let is_inside =
                        covered.map_or(*bound != Bound::top(), |covered| bound.compare(order, covered).is_lt());
                    if is_inside {
                        End::Inside(bound.clone())
                    } else {
                        End::Behind
                    }
                }
            },
        })
    }

    fn add(&mut self, mut piece: Piece) {
        while let Some(end) = self.end_in(&piece.block) {
            match end {
                End::Before => self.close(),
                End::Inside(bound) => {
                    let far = split_block(&mut piece.block, &bound, &self.table.clustering_order, false);
                    self.hash(&piece);
                    self.close();
                    piece = Piece {
                        block: far,
                        begins: false,
                    };
                }
                End::Behind => return self.hash(&piece),
            }
        }
    }

    fn hash(&mut self, piece: &Piece) {
        let sum = &mut self.sum;
        let mut add = |_, hash: Hash| *sum = sum.wrapping_add(hash.hash);
        self.hasher.add(&piece.block, piece.begins, &mut add);
    }
}
