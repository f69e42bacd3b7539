//! What replicas compare: the units of a partition and their hashes.
//!
//! A unit is the deletion of a partition, its static row, a row, or a range tombstone. Its hash is over the partition
//! key, the unit's position, and what counts of it ([`mutation::counting`]): in a repair that marks sstables everything
//! as it was written, but what replicas may have purged ([`Side::prepare_to_mark`]).
//!
//! A range tombstone is one unit from where it begins to where it ends, however blocks cut it. The hash of several
//! units is the sum of their hashes, so it does not depend on blocks either.
//!
//! [`Side::prepare_to_mark`]: crate::side::Side::prepare_to_mark

use std::ops::Range;
use std::sync::Arc;

use mutation::counting::{Counting, Material};
use mutation::{Bound, Cell, Liveness, PartitionBlock, RangeTombstone, RowView, Tombstone};
use schema::Table;
use stdx::planted::{self, Bug};
use stdx::vint;
use types::token::murmur3_x64_128;

/// A unit of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// The deletion of the partition.
    Deletion,
    /// The static row.
    Static,
    /// The row with this number.
    Row(usize),
    /// The range tombstones with these numbers, which are one. Of several blocks: those of the last block.
    Range(Range<usize>),
}

/// What is known of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hash {
    /// Over what counts of it.
    pub(crate) hash: u128,
    /// Whether it has deletions that do not count.
    pub(crate) is_partly_hidden: bool,
}

const DELETION: u8 = 1;
const STATIC: u8 = 2;
const ROW: u8 = 3;
const RANGE: u8 = 4;
const MARKER: u8 = 5;
const SIMPLE: u8 = 6;
const COMPLEX: u8 = 7;
const ELEMENT: u8 = 8;
const DELETED: u8 = 9;
const LIVING: u8 = 10;
const EXPIRED_MARKER: u8 = 11;

/// A range tombstone of which more may follow.
struct OpenRange {
    start: Bound,
    end: Bound,
    tombstone: Tombstone,
    numbers: Range<usize>,
}

/// What is being hashed.
struct Hashing {
    /// The partition key, then what counts of a unit.
    bytes: Vec<u8>,
    /// Where the key ends.
    head: usize,
    /// Whether the unit has deletions that do not count.
    is_partly_hidden: bool,
    /// Whether the seconds of deletions count.
    is_exact: bool,
}

/// Hashes the units of blocks that come in the order of the table.
pub(crate) struct Hasher {
    table: Arc<Table>,
    counting: Counting,
    material: Hashing,
    range: Option<OpenRange>,
    /// Bytes hashed since the start.
    pub(crate) bytes: usize,
}

impl Hasher {
    pub(crate) fn new(table: Arc<Table>, counting: Counting) -> Self {
        Self {
            table,
            counting,
            material: Hashing {
                bytes: Vec::new(),
                head: 0,
                is_partly_hidden: false,
                is_exact: counting.is_exact,
            },
            range: None,
            bytes: 0,
        }
    }

    /// Calls `unit` with each unit of a block and its hash. With `begins`, the block has the deletion and the static
    /// row of its partition. The last range tombstone comes with the next block of another position, or with
    /// [`Hasher::end`].
    pub(crate) fn add(&mut self, block: &PartitionBlock, begins: bool, unit: &mut impl FnMut(Unit, Hash)) {
        let table = self.table.clone();
        if begins {
            self.end(unit);
        }
        self.material.bytes.clear();
        self.material.sized(block.key());
        self.material.head = self.material.bytes.len();
        if begins {
            self.material.restart(DELETION);
            if self
                .counting
                .deletion(block.tombstone, Tombstone::NONE, &mut self.material)
            {
                unit(Unit::Deletion, self.hash());
            }
            if let Some(row) = block.static_row() {
                self.material.restart(STATIC);
                if self.row(&table, row, block.tombstone) {
                    unit(Unit::Static, self.hash());
                }
            }
        }
        for (number, (clustering, row)) in block.rows().enumerate() {
            let covering = block.deletion_of(&table.clustering_order, clustering);
            self.material.restart(ROW);
            self.material.sized(clustering);
            if self.row(&table, row, covering) {
                unit(Unit::Row(number), self.hash());
            }
        }
        for (number, range) in block.range_tombstones.iter().enumerate() {
            if self.counting.counts_range(range, block.tombstone) {
                self.add_range(range, number, unit);
            }
        }
    }

    fn row(&mut self, table: &Table, row: RowView<'_>, covering: Tombstone) -> bool {
        self.counting.row(&table.layout, row, covering, &mut self.material)
    }

    fn add_range(&mut self, range: &RangeTombstone, number: usize, unit: &mut impl FnMut(Unit, Hash)) {
        if planted::is_planted(Bug::UncomparedRanges) {
            return;
        }
        let order = self.table.clustering_order.clone();
        if let Some(open) = &mut self.range
            && self.counting.are_same(open.tombstone, range.tombstone)
            && range.start.compare(&order, &open.end).is_le()
        {
            open.end = range.end.clone();
            open.numbers = open.numbers.start.min(number)..number + 1;
            return;
        }
        self.end(unit);
        self.range = Some(OpenRange {
            start: range.start.clone(),
            end: range.end.clone(),
            tombstone: range.tombstone,
            numbers: number..number + 1,
        });
    }

    /// Ends the last range tombstone: what comes next does not continue it.
    pub(crate) fn end(&mut self, unit: &mut impl FnMut(Unit, Hash)) {
        let Some(range) = self.range.take() else { return };
        self.material.restart(RANGE);
        for bound in [&range.start, &range.end] {
            self.material.bytes.push(bound.kind as u8);
            self.material.sized(&bound.prefix);
        }
        self.material.times_of(range.tombstone);
        unit(Unit::Range(range.numbers), self.hash());
    }

    fn hash(&mut self) -> Hash {
        self.bytes += self.material.bytes.len();
        let (low, high) = murmur3_x64_128(&self.material.bytes, 0);
        Hash {
            hash: u128::from(high) << 64 | u128::from(low),
            is_partly_hidden: self.material.is_partly_hidden,
        }
    }
}

impl Hashing {
    fn restart(&mut self, kind: u8) {
        self.is_partly_hidden = false;
        self.bytes.truncate(self.head);
        self.bytes.push(kind);
    }

    fn sized(&mut self, bytes: &[u8]) {
        vint::put_unsigned(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn times_of(&mut self, tombstone: Tombstone) {
        self.bytes.extend_from_slice(&tombstone.timestamp.to_le_bytes());
        if self.is_exact {
            self.bytes.extend_from_slice(&tombstone.deletion_time.to_le_bytes());
        }
    }

    fn life(&mut self, ttl: u32, expiry: u32) {
        self.bytes.push(u8::from(ttl > 0));
        if ttl > 0 {
            self.bytes.extend_from_slice(&ttl.to_le_bytes());
            self.bytes.extend_from_slice(&expiry.to_le_bytes());
        }
    }
}

impl Material for Hashing {
    fn deletion(&mut self, tombstone: Tombstone) {
        self.bytes.push(DELETED);
        self.times_of(tombstone);
    }

    fn hidden_deletion(&mut self) {
        self.is_partly_hidden = true;
    }

    fn marker(&mut self, marker: Liveness) {
        self.bytes.push(MARKER);
        self.bytes.extend_from_slice(&marker.timestamp.to_le_bytes());
        self.life(marker.ttl, marker.expiry);
    }

    fn expired_marker(&mut self, tombstone: Tombstone) {
        self.bytes.push(EXPIRED_MARKER);
        self.deletion(tombstone);
    }

    fn column(&mut self, id: usize, is_simple: bool) {
        self.bytes.push(if is_simple { SIMPLE } else { COMPLEX });
        vint::put_unsigned(&mut self.bytes, id as u64);
    }

    fn element(&mut self, path: &[u8]) {
        self.bytes.push(ELEMENT);
        self.sized(path);
    }

    fn cell(&mut self, cell: &Cell<'_>) {
        self.bytes.push(LIVING);
        self.bytes.extend_from_slice(&cell.timestamp.to_le_bytes());
        self.life(cell.ttl, cell.deletion_time);
        self.sized(cell.value);
    }

    fn taken(&self) -> usize {
        self.bytes.len()
    }

    fn give_back(&mut self, taken: usize) {
        self.bytes.truncate(taken);
    }
}

#[cfg(test)]
#[path = "../tests/support/random.rs"]
mod random;

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of the hashes of all units of random partitions, mixed with which units are partly hidden.
    fn hash_of_all(counting: Counting) -> u128 {
        let table = Arc::new(random::table());
        let (mut sum, mut hidden) = (0u128, 0u128);
        for (_, block) in random::blocks(&table) {
            let mut hasher = Hasher::new(table.clone(), counting);
            let mut note = |_, hash: Hash| {
                sum = sum.rotate_left(1).wrapping_add(hash.hash);
                hidden = hidden.rotate_left(1) ^ u128::from(hash.is_partly_hidden);
            };
            hasher.add(&block, true, &mut note);
            hasher.end(&mut note);
        }
        sum ^ hidden
    }

    /// Participants of the release before compare these: their bytes may not change.
    #[test]
    fn hashes_of_random_units_are_those_of_earlier_releases() {
        let table = random::table();
        let found = [Counting::of_table(&table, random::NOW), Counting::EVERYTHING].map(hash_of_all);
        assert_eq!(
            found,
            [
                277_251_459_370_747_670_718_114_027_108_771_173_706,
                228_413_288_045_351_014_047_853_776_747_821_280_094,
            ]
        );
    }
}
