//! Merges the scans of several sstables, partition by partition, block by block.
//!
//! A scan gives a partition in one block, or in several that each say how far they go. Where several sstables have the
//! partition, one step merges what all of them are complete up to: the nearest `covered` of their blocks; what reaches
//! beyond waits for the next step.

use std::cmp::Ordering;

use mutation::merge::merge_blocks;
use mutation::{Bound, PartitionBlock, RangeTombstone};
use schema::{ClusteringOrder, Table};
use sstable::BlockingScan;

/// A scan and the block that it gave last.
struct Source {
    scan: BlockingScan,
    head: Option<PartitionBlock>,
}

/// The merge of scans in (token, key) order.
pub(crate) struct Merge {
    sources: Vec<Source>,
    /// Sources that have the current partition, in the order of `sources`.
    current: Vec<usize>,
    /// Bytes of blocks that were read since the last [`Merge::take_read_bytes`].
    read_bytes: u64,
}

impl Merge {
    pub(crate) fn new(scans: Vec<BlockingScan>) -> Result<Self, sstable::Error> {
        let mut sources = Vec::with_capacity(scans.len());
        let mut read_bytes = 0;
        for mut scan in scans {
            let head = scan.next_block()?;
            read_bytes += head.as_ref().map_or(0, |block| block.size() as u64);
            sources.push(Source { scan, head });
        }
        Ok(Self {
            sources,
            current: Vec::new(),
            read_bytes,
        })
    }

    /// Bytes of blocks that were read since the last call.
    pub(crate) fn take_read_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.read_bytes)
    }

    /// The next merged block; None at the end.
    pub(crate) fn next_block(&mut self, table: &Table) -> Result<Option<PartitionBlock>, sstable::Error> {
        if self.current.is_empty() {
            self.choose();
        }
        match self.current[..] {
            [] => Ok(None),
            [only] => {
                let block = self.advance(only)?;
                if block.covered.is_none() {
                    self.current.clear();
                }
                Ok(Some(block))
            }
            _ => self.merge(table).map(Some),
        }
    }

    /// Finds the sources whose next partition is the least.
    fn choose(&mut self) {
        for (i, source) in self.sources.iter().enumerate() {
            let Some(head) = &source.head else { continue };
            let order = self.current.first().map_or(Ordering::Less, |&f| {
                let first = self.sources[f].head.as_ref().expect("chosen for its head");
                (head.token, head.key()).cmp(&(first.token, first.key()))
            });
            match order {
                Ordering::Less => {
                    self.current.clear();
                    self.current.push(i);
                }
                Ordering::Equal => self.current.push(i),
                Ordering::Greater => {}
            }
        }
    }

    /// Takes a source's block and fetches the next.
    fn advance(&mut self, i: usize) -> Result<PartitionBlock, sstable::Error> {
        let source = &mut self.sources[i];
        let block = source
            .head
            .take()
            .expect("a source with the current partition has a block of it");
        source.head = source.scan.next_block()?;
        self.read_bytes += source.head.as_ref().map_or(0, |block| block.size() as u64);
        Ok(block)
    }

    fn merge(&mut self, table: &Table) -> Result<PartitionBlock, sstable::Error> {
        let order = &table.clustering_order;
        let nearest = self
            .current
            .iter()
            .filter_map(|&i| self.sources[i].head.as_ref()?.covered.clone())
            .min_by(|a, b| a.compare(order, b));
        let mut parts = Vec::with_capacity(self.current.len());
        let mut still = Vec::with_capacity(self.current.len());
        for i in std::mem::take(&mut self.current) {
            let head = self.sources[i]
                .head
                .as_ref()
                .expect("a source with the current partition has a block of it");
            let Some(bound) = &nearest else {
                parts.push(self.advance(i)?);
                continue;
            };
            // A source stays current: its partition has more blocks, or this block reaches beyond the bound.
            let is_exact = head
                .covered
                .as_ref()
                .is_some_and(|c| c.compare(order, bound) == Ordering::Equal);
            if is_exact {
                parts.push(self.advance(i)?);
            } else {
                let (near, far) = split(head, bound, order);
                self.sources[i].head = Some(far);
                parts.push(near);
            }
            still.push(i);
        }
        self.current = still;
        let parts: Vec<&PartitionBlock> = parts.iter().collect();
        let mut merged = merge_blocks(&table.layout, order, &parts).expect("at least two parts");
        merged.covered = nearest;
        Ok(merged)
    }
}

/// Cuts a block at a bound. What belongs to the partition as a whole stays with the first part.
fn split(block: &PartitionBlock, bound: &Bound, order: &ClusteringOrder) -> (PartitionBlock, PartitionBlock) {
    let mut near = PartitionBlock::new(block.token, block.key());
    let mut far = PartitionBlock::new(block.token, block.key());
    near.tombstone = block.tombstone;
    if let Some(row) = block.static_row() {
        near.set_static_row(row.bytes());
    }
    for (key, row) in block.rows() {
        let part = if bound.compare_key(order, key) == Ordering::Greater {
            &mut near
        } else {
            &mut far
        };
        part.push_row(key, row.bytes());
    }
    for r in &block.range_tombstones {
        if r.end.compare(order, bound) != Ordering::Greater {
            near.range_tombstones.push(r.clone());
        } else if r.start.compare(order, bound) != Ordering::Less {
            far.range_tombstones.push(r.clone());
        } else {
            near.range_tombstones.push(RangeTombstone {
                end: bound.clone(),
                ..r.clone()
            });
            far.range_tombstones.push(RangeTombstone {
                start: bound.clone(),
                ..r.clone()
            });
        }
    }
    near.covered = Some(bound.clone());
    far.covered = block.covered.clone();
    (near, far)
}
