//! SELECT: compiled once; answered from memory in one call where that is possible, else page by page.

mod compile;
mod page;
mod point;

use std::sync::Arc;

use schema::Table;
use uuid::Uuid;

use crate::restrict::{PartitionRestriction, Restrictions};
use crate::selection::Selection;
use crate::term::Operand;

pub use compile::compile_select;
pub(crate) use page::put_collection;
pub use page::{Consumer, Flow, PageRequest, PagingState, Position};
pub(crate) use point::key_component;
pub use point::{PointKey, PointOutcome, PointScratch};

/// A compiled SELECT.
#[derive(Debug)]
pub struct SelectPlan {
    /// What it reads.
    pub table: Arc<Table>,
    /// What it returns of each row.
    pub selection: Selection,
    pub(crate) restrictions: Restrictions,
    pub(crate) limit: Option<Operand>,
    pub(crate) per_partition_limit: Option<Operand>,
    /// Rows come in the opposite of their clustering order.
    pub(crate) reversed: bool,
    pub(crate) distinct: bool,
    /// Rows of several partitions are sorted into one clustering order.
    pub(crate) sorted: bool,
    /// `GROUP BY`: positions in `table.columns` of the columns that make a group.
    pub(crate) group_by: Vec<usize>,
    /// By column id: the position in `table.columns` of a column that is needed, or [`NOT_NEEDED`].
    pub(crate) by_id: Vec<u16>,
    /// Present when one row is named and only columns of one value are returned.
    pub(crate) point: Option<Vec<PointSource>>,
    /// Present when other nodes may do parts of it.
    pub(crate) source: Option<Source>,
}

/// What a plan was compiled from: whoever compiles it under the same schema has the same plan.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) keyspace: Option<String>,
    pub(crate) schema_version: Uuid,
}

/// In [`SelectPlan::by_id`]: the column is not needed.
pub(crate) const NOT_NEEDED: u16 = u16::MAX;

/// Where a result column of a point read comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PointSource {
    /// Component of the partition key.
    PartitionKey(u16),
    /// Component of the clustering key.
    Clustering(u16),
    /// Regular column id.
    Cell(u16),
    /// Regular column id of a counter.
    Counter(u16),
}

impl SelectPlan {
    /// Whether it is one aggregate whose parts can be computed apart, wherever the rows are.
    pub(crate) fn is_mergeable(&self) -> bool {
        self.selection.is_mergeable() && self.group_by.is_empty()
    }

    /// What Cassandra warns of: an aggregate over more than one partition.
    pub fn warning(&self) -> Option<&'static str> {
        if !self.selection.is_aggregate() || !self.group_by.is_empty() || crate::system::is_virtual(self.table.id) {
            return None;
        }
        match &self.restrictions.partition {
            PartitionRestriction::Key(_) => None,
            PartitionRestriction::Keys(_) => Some("Aggregation query used on multiple partition keys (IN restriction)"),
            PartitionRestriction::All | PartitionRestriction::Token { .. } => {
                Some("Aggregation query used without partition key")
            }
        }
    }

    /// For each partition key column the marker that it is compared with, when each has one.
    pub fn key_markers(&self) -> Vec<u16> {
        self.restrictions.partition.key_markers()
    }
}
