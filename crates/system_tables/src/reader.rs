//! One read of a virtual table: the partitions that it wants in token order, each in blocks of rows in clustering
//! order.

use std::sync::Arc;

use mutation::{Bound, ClusteringSlice, PartitionBlock};
use schema::Table;
use types::Token;
use types::token::token_of;

use crate::rows::{Rows, Shape};
use crate::virtual_table::{Content, Partition, Partitions, Request, VirtualTable, Wanted};

/// How large a block may become. A block may exceed them by what a content adds between two questions whether it is
/// full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLimits {
    /// Rows.
    pub rows: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Reads a virtual table for one statement. The facts are those of the moment when it was opened.
pub struct Reader {
    /// The table as the statement knows it.
    table: Arc<Table>,
    shape: Shape,
    content: Box<dyn Content>,
    wanted: Wanted,
    now_us: i64,
}

impl Reader {
    /// Gathers the facts. `now_us` is the write timestamp that the rows show.
    pub async fn open(source: &dyn VirtualTable, table: Arc<Table>, request: Request, now_us: i64) -> Self {
        let wanted = request.wanted.clone();
        Self {
            shape: Shape::of(source.definition(), &table),
            table,
            content: source.open(request).await,
            wanted,
            now_us,
        }
    }

    /// The blocks of slices of a partition. Slices are in clustering order and disjoint. When the read is `reversed`,
    /// one block has all rows.
    #[must_use]
    pub fn partition(
        &self,
        key: Vec<u8>,
        slices: Vec<ClusteringSlice>,
        reversed: bool,
        limits: BlockLimits,
    ) -> PartitionBlocks<'_> {
        let number = self.content.find(&key);
        let token = token_of(&key);
        PartitionBlocks {
            reader: self,
            left: number.map(|number| (Partition { token, key, number }, slices)),
            has_begun: false,
            limits: (!reversed).then_some(limits),
        }
    }

    /// The blocks of all partitions that the read wants, from this token and key on.
    #[must_use]
    pub fn scan(&self, from: (Token, Vec<u8>), limits: BlockLimits) -> ScanBlocks<'_> {
        let mut partitions = Partitions::new(self.wanted.clone());
        self.content.partitions(&mut partitions);
        let mut partitions = partitions.in_order();
        partitions.retain(|partition| (partition.token, &partition.key) >= (from.0, &from.1));
        ScanBlocks {
            partitions: partitions.into_iter(),
            current: PartitionBlocks {
                reader: self,
                left: None,
                has_begun: false,
                limits: Some(limits),
            },
        }
    }
}

/// The blocks of one partition.
pub struct PartitionBlocks<'r> {
    reader: &'r Reader,
    /// The partition and what is not read of it yet.
    left: Option<(Partition, Vec<ClusteringSlice>)>,
    /// Whether blocks of the partition have come.
    has_begun: bool,
    limits: Option<BlockLimits>,
}

impl PartitionBlocks<'_> {
    /// The next block; None at the end. The last block has no `covered`; it has no rows when the one before had all
    /// that were left.
    pub fn next_block(&mut self) -> Option<PartitionBlock> {
        let (partition, mut slices) = self.left.take()?;
        let reader = self.reader;
        let table = (&*reader.table, &reader.shape);
        let mut rows = Rows::new(table, &partition.key, &slices, self.limits, reader.now_us);
        reader.content.rows(partition.number, &mut rows);
        let block = rows.into_block(partition.token, self.has_begun)?;
        self.has_begun = true;
        if let Some(covered) = &block.covered {
            cut_before(&mut slices, covered, &reader.table);
            self.left = Some((partition, slices));
        }
        Some(block)
    }
}

/// Removes from the slices everything before a bound.
fn cut_before(slices: &mut Vec<ClusteringSlice>, bound: &Bound, table: &Table) {
    let order = &table.clustering_order;
    slices.retain(|slice| slice.end.compare(order, bound).is_gt());
    if let Some(first) = slices.first_mut()
        && first.start.compare(order, bound).is_lt()
    {
        first.start = bound.clone();
    }
}

/// The blocks of partitions in token order.
pub struct ScanBlocks<'r> {
    partitions: std::vec::IntoIter<Partition>,
    current: PartitionBlocks<'r>,
}

impl ScanBlocks<'_> {
    /// The next block; None at the end. The last block of a partition has no `covered`.
    pub fn next_block(&mut self) -> Option<PartitionBlock> {
        loop {
            if let Some(block) = self.current.next_block() {
                return Some(block);
            }
            let partition = self.partitions.next()?;
            self.current.left = Some((partition, vec![ClusteringSlice::all()]));
            self.current.has_begun = false;
        }
    }

    /// Leaves the rest of the current partition unread.
    pub fn skip_partition(&mut self) {
        self.current.left = None;
    }
}
