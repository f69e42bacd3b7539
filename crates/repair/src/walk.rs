//! Reading what a shard has between two positions, block by block.

use std::cmp::Ordering;
use std::sync::Arc;

use mutation::{Bound, ClusteringSlice, PartitionBlock};
use replica::{BlockLimits, PartitionRead, PartitionReader, Shard, TableStore, TabletScan, TokenRange, split_block};
use schema::Table;
use types::Token;
use types::token::KeyHash;

use crate::error::Trouble;
use crate::position::Position;

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

/// Reads a table from one position to another, and then on to the next.
pub(crate) struct Walk {
    table: Arc<Table>,
    /// Where it stops, until [`Walk::go_on`] says another position.
    to: Position,
    /// Reads the rest of the partition in which the walk begins.
    inside: Option<PartitionReader>,
    scan: TabletScan,
    /// The partition of the last block.
    current: Option<Token>,
    current_key: Vec<u8>,
    /// What was read and comes next: it is after the position where the walk stopped, or was put back.
    ahead: Option<Piece>,
    is_over: bool,
}

impl Walk {
    /// Reads with this schema of the table, whose tablets are here. With `reads_unrepaired` it leaves out sstables that
    /// a repair has marked. It can continue up to `end`.
    pub(crate) fn new(
        shard: &Shard,
        store: &TableStore,
        table: &Arc<Table>,
        (from, to, end): (&Position, &Position, Token),
        reads_unrepaired: bool,
    ) -> Result<Self, Trouble> {
        let lowest = TokenRange::ALL.after;
        let (after, first, inside) = match from {
            Position::Token(token) if *token == lowest => (lowest, (lowest, Vec::new()), None),
            Position::Token(token) => (*token, (Token(token.0.saturating_add(1)), Vec::new()), None),
            Position::Inside { token, key, bound } => {
                let mut next = key.clone();
                next.push(0);
                let after = Token(token.0.saturating_sub(1));
                (after, (*token, next), Some((*token, key.clone(), bound.clone())))
            }
        };
        let range = TokenRange {
            after,
            to: to.token().max(after).max(end),
        };
        let inside = match inside {
            Some((token, key, bound)) if bound != Bound::top() => {
                let tablet = store.tablet(token).ok_or(Trouble::NotHere)?;
                let read = PartitionRead {
                    hash: KeyHash::of(&key),
                    key,
                    slices: vec![ClusteringSlice {
                        start: bound,
                        end: Bound::top(),
                    }],
                    reversed: false,
                    limits: BLOCK,
                };
                let version = if reads_unrepaired {
                    tablet.unrepaired()
                } else {
                    tablet.version()
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
            current_key: Vec::new(),
            ahead: None,
        })
    }

    /// Continues from where it stopped.
    pub(crate) fn go_on(&mut self, to: &Position) {
        self.is_over = self.to.compare(to, &self.table.clustering_order).is_ge();
        self.to = to.clone();
    }

    /// Whether it stopped at this position, and nothing that it reads has been replaced since.
    pub(crate) fn can_go_on(&self, from: &Position, store: &TableStore) -> bool {
        self.is_over && self.to == *from && self.is_current(store)
    }

    /// Whether nothing that it reads has been replaced.
    pub(crate) fn is_current(&self, store: &TableStore) -> bool {
        self.inside.is_none() && self.scan.is_current(store)
    }

    /// Gives a piece again that it has just given.
    pub(crate) fn put_back(&mut self, piece: Piece) {
        self.ahead = Some(piece);
    }

    /// The next block; None where it stops.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, Trouble> {
        while !self.is_over {
            let piece = match self.ahead.take() {
                Some(piece) => Some(piece),
                None => self.read().await?,
            };
            let Some(piece) = piece else {
                self.is_over = true;
                break;
            };
            if let Some(piece) = self.clip(piece) {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<Option<Piece>, Trouble> {
        if let Some(reader) = &mut self.inside {
            if let Some(block) = reader.next_block().await? {
                return Ok(Some(Piece { block, begins: false }));
            }
            self.inside = None;
        }
        let Some(block) = self.scan.next_block().await? else {
            return Ok(None);
        };
        let begins = self.current != Some(block.token) || self.current_key != block.key();
        if begins {
            self.current = Some(block.token);
            self.current_key.clear();
            self.current_key.extend_from_slice(block.key());
        }
        Ok(Some(Piece { block, begins }))
    }

    /// The part of a piece that is not after the end.
    fn clip(&mut self, mut piece: Piece) -> Option<Piece> {
        let block = &mut piece.block;
        let is_behind = match &self.to {
            Position::Token(to) => block.token > *to,
            Position::Inside { token, key, bound } => match (block.token, block.key()).cmp(&(*token, &key[..])) {
                Ordering::Less => false,
                Ordering::Greater => true,
                Ordering::Equal => {
                    let order = &self.table.clustering_order;
                    let covered = block.covered.as_ref();
                    if covered.is_none_or(|covered| covered.compare(order, bound).is_ge()) {
                        self.is_over = true;
                        let is_cut = match covered {
                            Some(covered) => covered != bound,
                            None => *bound != Bound::top(),
                        };
                        if is_cut {
                            let block = split_block(block, bound, order, false);
                            self.ahead = Some(Piece { block, begins: false });
                        }
                    }
                    false
                }
            },
        };
        if is_behind {
            self.is_over = true;
            self.ahead = Some(piece);
            return None;
        }
        Some(piece)
    }
}
