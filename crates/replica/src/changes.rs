//! What a write changes, for those that derive something from it: views, indexes, change logs.

use std::rc::Rc;
use std::sync::Arc;

use mutation::merge::merge_blocks;
use mutation::{Mutation, PartitionBlock, touched_slices};
use schema::Table;
use types::Token;

use crate::read::{BlockLimits, PartitionRead, PartitionReader, ReadError};
use crate::shard::Shard;
use crate::tablet::TableStore;

/// The rows of one partition that a write touches, with the partition's static row and its deletion. What is dead is there too.
#[derive(Clone, Debug)]
pub struct Change {
    /// As they were; None: nothing is known of them.
    pub before: Option<PartitionBlock>,
    /// As they are.
    pub after: PartitionBlock,
}

impl Change {
    /// What mutations of one partition make of the rows that they touch. None: there are no mutations.
    #[must_use]
    pub fn by(table: &Table, token: Token, mutations: &[Mutation<'_>], before: Option<PartitionBlock>) -> Option<Self> {
        let (layout, order) = (&table.layout, &table.clustering_order);
        let own = mutations.iter();
        let own = own.map(|mutation| PartitionBlock::of_mutation(layout, order, token, mutation));
        let all: Vec<PartitionBlock> = before.iter().cloned().chain(own).collect();
        let after = merge_blocks(layout, order, &all.iter().collect::<Vec<_>>())?;
        Some(Self { before, after })
    }
}

/// Is told what is written to a table on this shard, whoever wrote it: clients, other nodes, hints, repairs.
pub trait Observer {
    /// A write was applied. Writes of one partition are told in the order in which they were applied, before they are acknowledged. A write whose acknowledgement fails
    /// behind this may be applied again.
    fn changed(&self, table: &Arc<Table>, change: Change);
}

impl TableStore {
    /// Has every write to the table told to an observer, or to nobody any more. Writes that are under way may not be told.
    pub fn observe(&self, observer: Option<Rc<dyn Observer>>) {
        self.is_observed.set(observer.is_some());
        *self.observer.borrow_mut() = observer;
    }

    /// Who is told of writes.
    #[must_use]
    pub fn observer(&self) -> Option<Rc<dyn Observer>> {
        self.observer.borrow().clone()
    }

    /// Whether somebody is told of writes.
    #[inline]
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.is_observed.get()
    }
}

impl Shard {
    /// The rows that mutations of one partition of this shard touch, as they are. None: nothing is known of them.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub async fn rows_touched_by(
        self: &Rc<Self>,
        store: &TableStore,
        token: Token,
        mutations: &[Mutation<'_>],
    ) -> Result<Option<PartitionBlock>, ReadError> {
        let table = store.table();
        let (Some(tablet), Some(first)) = (store.tablet(token), mutations.first()) else {
            return Ok(None);
        };
        let read = PartitionRead {
            token,
            key: first.key.to_vec(),
            slices: touched_slices(&table.clustering_order, mutations),
            reversed: false,
            limits: BlockLimits {
                rows: usize::MAX,
                bytes: usize::MAX,
            },
        };
        let mut reader = PartitionReader::new(table, tablet.version(), self.cache.clone(), read);
        let mut all: Option<PartitionBlock> = None;
        while let Some(block) = reader.next_block().await? {
            match &mut all {
                // The next slice.
                Some(all) => {
                    for (clustering, row) in block.rows() {
                        all.push_row(clustering, row.bytes());
                    }
                    all.range_tombstones.extend(block.range_tombstones);
                }
                None => all = Some(block),
            }
        }
        if let Some(all) = &mut all {
            all.covered = None;
        }
        Ok(all)
    }
}
