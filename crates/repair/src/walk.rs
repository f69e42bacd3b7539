//! Reading what a shard has between two places, block by block.

use std::cmp::Ordering;
use std::sync::Arc;

use mutation::{Bound, ClusteringSlice, PartitionBlock};
use replica::{BlockLimits, PartitionRead, PartitionReader, Shard, TableStore, TabletScan, TokenRange, split_block};
use schema::Table;
use types::Token;

use crate::error::Trouble;
use crate::place::Place;

/// How much of a partition one step reads from each memtable and sstable. A bucket inside a partition is as long.
const BLOCK: BlockLimits = BlockLimits {
    rows: 128,
    bytes: 64 << 10,
};

/// A block, and whether it begins its partition: the static row and the deletion of the partition belong to that one.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) block: PartitionBlock,
    pub(crate) begins: bool,
}

/// Reads a table from one place to another.
pub(crate) struct Walk {
    table: Arc<Table>,
    to: Place,
    /// Reads the rest of the partition in which the walk begins.
    inside: Option<PartitionReader>,
    scan: TabletScan,
    current: Option<(Token, Vec<u8>)>,
    is_over: bool,
}

impl Walk {
    /// Reads by this form of the table, whose tablets are here; with `reads_unrepaired` without the sstables that a repair has marked.
    pub(crate) fn new(
        shard: &Shard,
        store: &TableStore,
        table: &Arc<Table>,
        (from, to): (&Place, &Place),
        reads_unrepaired: bool,
    ) -> Result<Self, Trouble> {
        let lowest = TokenRange::ALL.after;
        let (after, first, inside) = match from {
            Place::Token(token) if *token == lowest => (lowest, (lowest, Vec::new()), None),
            Place::Token(token) => (*token, (Token(token.0.saturating_add(1)), Vec::new()), None),
            Place::Inside { token, key, bound } => {
                let mut next = key.clone();
                next.push(0);
                let after = Token(token.0.saturating_sub(1));
                (after, (*token, next), Some((*token, key.clone(), bound.clone())))
            }
        };
        let range = TokenRange {
            after,
            to: to.token().max(after),
        };
        let inside = match inside {
            Some((token, key, bound)) if bound != Bound::top() => {
                let tablet = store.tablet(token).ok_or(Trouble::NotHere)?;
                let read = PartitionRead {
                    token,
                    key,
                    slices: vec![ClusteringSlice {
                        start: bound,
                        end: Bound::top(),
                    }],
                    reversed: false,
                    limits: BLOCK,
                };
                let version = match reads_unrepaired {
                    true => tablet.unrepaired(),
                    false => tablet.version(),
                };
                let reader = PartitionReader::new(table.clone(), version, shard.cache.clone(), read);
                Some(reader)
            }
            _ => None,
        };
        let scan = TabletScan::new(table.clone(), store, shard.cache.clone(), range, first, BLOCK);
        Ok(Self {
            scan: if reads_unrepaired { scan.of_unrepaired() } else { scan },
            is_over: from.compare(to, &table.clustering_order).is_ge(),
            table: table.clone(),
            to: to.clone(),
            inside,
            current: None,
        })
    }

    /// The next block; None at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, Trouble> {
        while !self.is_over {
            if let Some(reader) = &mut self.inside {
                match reader.next_block().await? {
                    Some(block) => return Ok(self.clip(block).map(|block| Piece { block, begins: false })),
                    None => self.inside = None,
                }
                continue;
            }
            let Some(block) = self.scan.next_block().await? else {
                break;
            };
            let begins = self
                .current
                .as_ref()
                .is_none_or(|(token, key)| (*token, &key[..]) != (block.token, block.key()));
            if begins {
                self.current = Some((block.token, block.key().to_vec()));
            }
            return Ok(self.clip(block).map(|block| Piece { block, begins }));
        }
        self.is_over = true;
        Ok(None)
    }

    /// The part of a block that is not behind the end.
    fn clip(&mut self, mut block: PartitionBlock) -> Option<PartitionBlock> {
        let Place::Inside { token, key, bound } = &self.to else {
            return Some(block);
        };
        match (block.token, block.key()).cmp(&(*token, &key[..])) {
            Ordering::Less => Some(block),
            Ordering::Greater => {
                self.is_over = true;
                None
            }
            Ordering::Equal => {
                let order = &self.table.clustering_order;
                let covered = block.covered.as_ref();
                if covered.is_none_or(|covered| covered.compare(order, bound).is_ge()) {
                    self.is_over = true;
                    if covered.is_some_and(|covered| covered != bound) || covered.is_none() && *bound != Bound::top() {
                        split_block(&mut block, bound, order, false);
                    }
                }
                Some(block)
            }
        }
    }
}

/// Lets other tasks of the shard have their turn when this one has had its own.
pub(crate) async fn give_way() {
    if runtime::should_yield() {
        runtime::yield_now().await;
    }
}
