//! Repairs that mark sstables, so that the next one need not read them. See docs/dev/incremental-repair.md.
//!
//! Such a repair is of the whole of one tablet on all its replicas. On each of them it fixes a set of sstables when it
//! opens. It marks them when every replica has, durably, what any of them had: each replica settles first, then each
//! marks. It compares elements as they were written, not what lives: equal parts of replicas must stay equal whatever
//! is merged with them later.

use std::cell::{Cell, RefCell};

use mutation::compact::Purge;
use mutation::merge::merge_blocks;
use mutation::{ClusteringSlice, Mutation, PartitionBlock};
use replica::{BlockLimits, MarkError, PartitionRead, PartitionReader, RepairSet};
use sstable::{FileHosts, RepairRecord};
use stdx::planted::{self, Bug};
use types::Token;
use types::token::KeyHash;
use types::token::murmur3_x64_128;
use uuid::Uuid;

use crate::asking::Participant;
use crate::error::{RepairError, Trouble};
use crate::message::{self, MarkOpen, MarkSet, MarkStep, Opened};
use crate::part::{Missing, append, missing_beside, missing_of, without_forgotten};
use crate::run::Run;
use crate::side::Side;

/// How much is read of what a replica has before something is written to it. Beyond that it is written, whatever the
/// replica has.
const HAVE_BYTES_MAX: usize = 1 << 20;

/// What an operator asks for, by ScyllaDB's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IncrementalMode {
    /// Read what no repair has marked, and mark it.
    Incremental,
    /// Read everything, and mark it.
    Full,
    /// Read everything, and mark nothing.
    Disabled,
}

impl IncrementalMode {
    /// By its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "incremental" => Some(Self::Incremental),
            "full" => Some(Self::Full),
            "disabled" => Some(Self::Disabled),
            _ => None,
        }
    }

    /// Its number in messages.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Incremental => 1,
            Self::Full => 2,
            Self::Disabled => 3,
        }
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        [Self::Incremental, Self::Full, Self::Disabled]
            .into_iter()
            .find(|mode| mode.number() == number)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Incremental => "incremental",
            Self::Full => "full",
            Self::Disabled => "disabled",
        }
    }
}

/// What a repair does with marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Whether it reads marked sstables too, and marks them again.
    pub reads_all: bool,
    /// It does so as well where the last repair that did has a mark below this, in milliseconds.
    pub full_before: i64,
}

/// A hash of the hosts of a tablet's replicas.
pub(crate) fn replicas_of(hosts: impl Iterator<Item = Uuid>) -> u128 {
    let mut hosts: Vec<[u8; 16]> = hosts.map(Uuid::into_bytes).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let (low, high) = murmur3_x64_128(&hosts.concat(), 0);
    u128::from(high) << 64 | u128::from(low)
}

/// One replica's part of a repair that marks.
pub(crate) struct Marking {
    set: RefCell<Option<RepairSet>>,
    pub(crate) is_full: bool,
    pub(crate) replicas: u128,
    /// The record that was here when it began.
    pub(crate) before: Option<RepairRecord>,
    /// Everything is durable here, and was as it should be.
    is_settled: Cell<bool>,
    pub(crate) skipped_bytes: u64,
}

impl From<MarkError> for Trouble {
    fn from(error: MarkError) -> Self {
        match error {
            MarkError::NotOneTablet => Self::NotHere,
            MarkError::Changed | MarkError::Failed(_) => Self::Unmarked(error.to_string()),
        }
    }
}

impl Marking {
    /// Flushes a side's tablet and fixes what is to be marked of it. An incremental repair has the replicas of the
    /// record, which are those of the last full one.
    pub(crate) async fn begin(side: &Side, is_full: bool, replicas: u128) -> Result<Self, Trouble> {
        let set = side.shard.begin_repair_set(&side.store, side.range, is_full).await?;
        let before = side.shard.repair_record(&side.store, side.range).await;
        let before = before.map_err(Trouble::Unmarked)?;
        Ok(Self {
            skipped_bytes: set.skipped_bytes,
            set: RefCell::new(Some(set)),
            is_full,
            replicas: before.filter(|_| !is_full).map_or(replicas, |record| record.replicas),
            before,
            is_settled: Cell::new(false),
        })
    }

    pub(crate) fn settle(&self) {
        self.is_settled.set(true);
    }

    /// Marks the set, once.
    pub(crate) async fn mark(&self, session: u128, range: (Token, Token), since: i64, at: i64) -> Result<u64, Trouble> {
        if !self.is_settled.get() && !planted::is_planted(Bug::MarkedUnrepaired) {
            return Err(Trouble::Unmarked("it has not settled".to_owned()));
        }
        let Some(set) = self.set.take() else {
            return Err(Trouble::Unmarked("it is being marked".to_owned()));
        };
        let record = RepairRecord {
            after: range.0,
            to: range.1,
            session,
            replicas: self.replicas,
            since,
            at,
            hosts: FileHosts::default(),
        };
        Ok(set.mark(record).await? as u64)
    }
}

impl Run {
    /// Opens a session on each participant, with the sets to mark. False: replicas have records of different sessions,
    /// so a repair must read everything.
    pub(crate) async fn open_marking(&self, open: message::Open, marking: &Marking) -> Result<bool, RepairError> {
        self.last_mark.set(marking.before.map_or(0, |record| record.at));
        let open = MarkOpen {
            open,
            is_full: marking.is_full,
            replicas: marking.replicas,
            session: marking
                .before
                .filter(|_| !marking.is_full)
                .map_or(0, |record| record.session),
        };
        let body = MarkStep::Open(open).encode();
        let mut do_agree = true;
        for (other, content) in self
            .request
            .others
            .iter()
            .zip(self.ask_all(message::MARK, &body).await?)
        {
            let opened = Opened::decode(&content).map_err(|malformed| other.malformed(malformed))?;
            do_agree &= opened.is_open;
            self.last_mark.set(self.last_mark.get().max(opened.last_mark));
        }
        Ok(do_agree)
    }

    /// Makes every replica settle, then mark.
    pub(crate) async fn settle_and_mark(&self, marking: &Marking) -> Result<(), RepairError> {
        self.ask_all(message::MARK, &MarkStep::Settle(self.id).encode()).await?;
        self.side.check_whole()?;
        marking.settle();
        let mark = self.mark_of(marking);
        let body = MarkStep::Mark(mark).encode();
        let range = (self.request.range.after, self.request.range.to);
        // Participants first: the next repair is likely this node's, and its own record then shows that one of them has
        // not marked.
        self.ask_all(message::MARK, &body).await?;
        let marked = marking.mark(self.id.0, range, mark.since, mark.at).await?;
        self.repaired.borrow_mut().marked_sstables = marked;
        Ok(())
    }

    fn mark_of(&self, marking: &Marking) -> MarkSet {
        let before = marking.before.filter(|_| !marking.is_full);
        let at = (runtime::wall_clock_us() / 1_000).max(self.last_mark.get().saturating_add(1));
        MarkSet {
            id: self.id,
            since: before.map_or(at, |record| record.since),
            at,
        }
    }

    /// The planted bug: marks whatever has failed.
    pub(crate) async fn mark_all_the_same(&self, marking: &Marking) {
        let mark = self.mark_of(marking);
        let body = MarkStep::Mark(mark).encode();
        for other in &self.request.others {
            let _ = self.asking.call(other, message::MARK, &body).await;
        }
        let range = (self.request.range.after, self.request.range.to);
        let _ = marking.mark(self.id.0, range, mark.since, mark.at).await;
    }

    /// The hosts of all replicas, this one's first.
    pub(crate) fn hosts(here: Uuid, others: &[Participant]) -> impl Iterator<Item = Uuid> {
        std::iter::once(here).chain(others.iter().map(|other| other.peer.host_id))
    }
}

/// What a replica has of the rows and ranges of a block.
enum Have {
    /// This; None: nothing.
    All(Option<PartitionBlock>),
    /// More than is read.
    Much,
}

impl Side {
    /// What this replica lacks of a mutation, in marked sstables or elsewhere. None when it has all of it, or would
    /// forget it at once: what it has already would be unrepaired again, and replicas would send it back and forth
    /// without end.
    pub(crate) async fn lacking(&self, token: Token, mutation: &Mutation<'_>) -> Result<Option<Missing>, Trouble> {
        let order = &self.table.clustering_order;
        let (layout, table) = (&self.table.layout, &self.table);
        let wanted = PartitionBlock::of_mutation(layout, order, token, mutation);
        let (have, is_all) = match self.have(&wanted).await? {
            Have::All(have) => (have, true),
            Have::Much => (None, false),
        };
        let blocks: Vec<&PartitionBlock> = std::iter::once(&wanted).chain(&have).collect();
        let merged = merge_blocks(layout, order, &blocks).expect("at least one block");
        let Some(missing) = missing_beside(table, &merged, have.as_ref()) else {
            return Ok(None);
        };
        if !is_all || self.forgets_before == 0 {
            return Ok(Some(missing));
        }
        // A replica that has it would send it back once this one has forgotten it, and so on without end.
        let packed = Mutation::new(&missing.mutation).expect("it was packed just now");
        let lacking = PartitionBlock::of_mutation(layout, order, token, &packed);
        let purge = Purge {
            now: self.now,
            gc_before: self.forgets_before,
            max_purgeable_timestamp: self.shard.forgets_below(),
            held: &[],
            keeps_expired: true,
        };
        Ok(without_forgotten(table, &purge, lacking, have.as_ref()).map(|left| missing_of(table, &left)))
    }

    /// What this replica has of the rows and ranges of a block.
    async fn have(&self, wanted: &PartitionBlock) -> Result<Have, Trouble> {
        let order = &self.table.clustering_order;
        let tablet = self.store.tablet(wanted.token).ok_or(Trouble::NotHere)?;
        let rows = wanted
            .rows()
            .map(|(clustering, _)| ClusteringSlice::exactly(clustering));
        let ranges = wanted.range_tombstones.iter().map(|range| ClusteringSlice {
            start: range.start.clone(),
            end: range.end.clone(),
        });
        let mut slices = ClusteringSlice::joined(rows.chain(ranges).collect(), order);
        let is_of_partition = slices.is_empty();
        if is_of_partition {
            slices.push(ClusteringSlice::all());
        }
        let read = PartitionRead {
            hash: KeyHash::of(wanted.key()),
            key: wanted.key().to_vec(),
            slices,
            reversed: false,
            limits: BlockLimits {
                rows: if is_of_partition { 1 } else { 128 },
                bytes: 64 << 10,
            },
        };
        let mut reader = PartitionReader::new(self.table.clone(), tablet.version(), self.shard.cache.clone(), read);
        let (mut have, mut bytes): (Option<PartitionBlock>, usize) = (None, 0);
        while let Some(block) = reader.next_block().await? {
            let read = crate::side::bytes_of(&block);
            bytes += read;
            self.control.spend_on_shard(read as u64).await;
            match &mut have {
                Some(whole) => append(order, whole, &block),
                none => *none = Some(block),
            }
            if is_of_partition {
                break;
            }
            if bytes > HAVE_BYTES_MAX {
                return Ok(Have::Much);
            }
        }
        Ok(Have::All(have))
    }
}

/// Whether the record here lets an incremental repair go by marks. That the replicas are those of the session before is
/// not asked: each that has its record holds what all of them had.
pub(crate) fn is_usable(before: Option<&RepairRecord>, session: u128, replicas: u128) -> bool {
    before.is_some_and(|record| record.session == session && record.replicas == replicas)
}
