//! SELECT: compiled once; answered from memory in one call where that is possible, else page by page.

mod compile;
mod page;
mod patience;
mod point;

use std::sync::Arc;
use std::time::Duration;

use schema::Table;
use uuid::Uuid;

use crate::restrict::{PartitionRestriction, Restrictions};
use crate::selection::Selection;
use crate::term::Operand;
use crate::{BindContext, Evaluated, QueryError};

pub use compile::compile_select;
pub(crate) use page::put_collection;
pub use page::{Consumer, Flow, PageRequest, PagingState, Position};
pub(crate) use patience::{Patience, Waiting};
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
    /// `USING TIMEOUT`.
    pub(crate) timeout: Option<Operand>,
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

    /// Whether it may read much more than one page shows, and has a time for the whole of it.
    pub(crate) fn may_read_much(&self) -> bool {
        let partitions = &self.restrictions.partition;
        self.selection.is_aggregate()
            || !self.group_by.is_empty()
            || !self.restrictions.filters.is_empty()
            || matches!(
                partitions,
                PartitionRestriction::All | PartitionRestriction::Token { .. }
            )
    }

    /// The time that the statement gives itself.
    pub(crate) fn own_timeout(&self, ctx: &BindContext<'_>) -> Result<Option<Duration>, QueryError> {
        let Some(operand) = &self.timeout else { return Ok(None) };
        let refuse = |why: &str| QueryError::invalid(format!("Invalid USING TIMEOUT: {why}"));
        let bytes = match operand.eval(ctx)? {
            Evaluated::Value(bytes) => bytes,
            Evaluated::Unset => return Ok(None),
            Evaluated::Null => return Err(refuse("expected a duration, got null")),
        };
        let duration = types::Duration::deserialize(&bytes).map_err(|e| refuse(&e.to_string()))?;
        if duration.months != 0 || duration.days != 0 {
            return Err(refuse("expected hours and what is shorter, got days or months"));
        }
        let nanoseconds = u64::try_from(duration.nanoseconds).ok().filter(|n| *n >= 1_000_000);
        let nanoseconds = nanoseconds.ok_or_else(|| refuse("expected a millisecond at least"))?;
        Ok(Some(Duration::from_nanos(nanoseconds)))
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
