//! Reads.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use schema::{ColumnKind, Table, push_component};
use types::token::KeyHash;

use crate::restrict::{KeyMarkers, NullRule, PartitionRestriction, Restrictions, no_column, partition_key_bytes};
use crate::selection::{GroupFunction, Selection, SelectionKind};
use crate::{BindContext, Bound, Evaluated, Operand, PlanError, own_timeout};

/// What a read says. [`SelectPlan::new`] checks it.
#[derive(Clone, Debug)]
pub struct Select {
    /// What it reads.
    pub table: Arc<Table>,
    /// What it returns of each row, or of each group of rows.
    pub selection: Selection,
    /// Which rows.
    pub restrictions: Restrictions,
    /// How many rows at most, an int.
    pub limit: Option<Operand>,
    /// How many rows of each partition at most, an int.
    pub per_partition_limit: Option<Operand>,
    /// How long it may take, a duration.
    pub timeout: Option<Operand>,
    /// Whether rows come in the opposite of their clustering order.
    pub reversed: bool,
    /// Whether each partition gives one row.
    pub distinct: bool,
    /// Whether it reads past the caches of the replicas, and puts nothing into them.
    pub bypasses_cache: bool,
    /// The table whose mutations it reads, source by source, on this node; `table` is what they look like.
    pub fragments_of: Option<Arc<Table>>,
    /// By how many of their first clustering columns the rows of several named partitions are sorted into one order;
    /// those that are equal in them stay in the order of their partitions.
    pub sorted: Option<usize>,
    /// The columns that make a group: positions in `table.columns`. Rows of one group follow each other.
    pub group_by: Vec<usize>,
    /// What of the last of these columns makes a group, when it is not the column's value.
    pub group_function: Option<GroupFunction>,
    /// What a comparison with null means.
    pub nulls: NullRule,
}

/// A read that fits its table, and what follows from it.
#[derive(Debug)]
pub struct SelectPlan {
    select: Select,
    /// By column id, up to the last that is needed: the position in `table.columns`, or [`NOT_NEEDED`].
    by_id: Vec<u16>,
    /// Present when one row is named and no static column is returned.
    point: Option<Vec<PointSource>>,
}

/// Hash of the partition key, partition key and clustering key of a row.
pub type PointKey = (KeyHash, Vec<u8>, Vec<u8>);

/// In [`SelectPlan::by_id`]: the column is not needed.
const NOT_NEEDED: u16 = u16::MAX;

/// Where a result column of a point read comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointSource {
    /// Component of the partition key.
    PartitionKey(u16),
    /// Component of the clustering key.
    Clustering(u16),
    /// Regular column id.
    Cell(u16),
    /// Regular column id of a counter.
    Counter(u16),
    /// A collection or user-defined type of several cells.
    Elements {
        /// Regular column id.
        id: u16,
        /// Its position in `table.columns`.
        column: u16,
    },
}

impl Select {
    /// A read of whole rows' selection in clustering order, without limits.
    pub const fn new(table: Arc<Table>, selection: Selection, restrictions: Restrictions) -> Self {
        Self {
            table,
            selection,
            restrictions,
            limit: None,
            per_partition_limit: None,
            timeout: None,
            reversed: false,
            distinct: false,
            bypasses_cache: false,
            fragments_of: None,
            sorted: None,
            group_by: Vec::new(),
            group_function: None,
            nulls: NullRule::Error,
        }
    }

    /// The sources of a point read's result columns, when it is one.
    fn point(&self) -> Option<Vec<PointSource>> {
        let SelectionKind::Plain(columns) = &self.selection.kind else {
            return None;
        };
        let table = &*self.table;
        let one_row = matches!(self.restrictions.partition, PartitionRestriction::Key(_))
            && (table.clustering_order.is_empty() || self.restrictions.clustering.names_one_row(table))
            && self.restrictions.filters.is_empty()
            && !self.distinct
            && !self.bypasses_cache
            && self.fragments_of.is_none()
            && !self.selection.needs_times
            && self.limit.is_none()
            && self.per_partition_limit.is_none()
            && self.group_by.is_empty()
            && (self.nulls == NullRule::Error || self.restrictions.has_nulls_of_values_only());
        if !one_row {
            return None;
        }
        columns
            .iter()
            .map(|&i| {
                let c = &table.columns[i];
                Some(match c.kind {
                    ColumnKind::PartitionKey => PointSource::PartitionKey(c.position),
                    ColumnKind::Clustering => PointSource::Clustering(c.position),
                    ColumnKind::Regular if c.cql_type.is_counter() => PointSource::Counter(c.id.0),
                    ColumnKind::Regular if !c.cql_type.is_multi_cell() => PointSource::Cell(c.id.0),
                    ColumnKind::Regular => PointSource::Elements {
                        id: c.id.0,
                        column: u16::try_from(i).ok()?,
                    },
                    ColumnKind::Static => return None,
                })
            })
            .collect()
    }
}

impl Deref for SelectPlan {
    type Target = Select;

    #[inline]
    fn deref(&self) -> &Select {
        &self.select
    }
}

impl SelectPlan {
    /// Checks a read against its table.
    ///
    /// # Errors
    /// When it names columns that the table does not have, or asks for what its other parts do not allow.
    pub fn new(select: Select) -> Result<Self, PlanError> {
        let table = &*select.table;
        let restrictions = &select.restrictions;
        restrictions.partition.check(table)?;
        restrictions.clustering.check(table)?;
        let filtered = || restrictions.filters.iter().map(crate::restrict::Filter::column);
        let needed = || select.selection.needed.iter().copied().chain(filtered());
        let named = needed().chain(select.group_by.iter().copied());
        if let Some(column) = named.max().filter(|column| *column >= table.columns.len()) {
            return Err(no_column(table, column));
        }
        if select.sorted.is_some() && !restrictions.partition.is_keys() {
            return Err(PlanError::invalid(
                "only rows of named partitions are sorted into one order",
            ));
        }
        let mut by_id = vec![NOT_NEEDED; table.layout.len()];
        for column in needed() {
            let c = &table.columns[column];
            if matches!(c.kind, ColumnKind::Static | ColumnKind::Regular) {
                by_id[usize::from(c.id.0)] = u16::try_from(column).expect("a table has fewer than 65,535 columns");
            }
        }
        let ids = by_id
            .iter()
            .rposition(|at| *at != NOT_NEEDED)
            .map_or(0, |last| last + 1);
        by_id.truncate(ids);
        Ok(Self {
            point: select.point(),
            by_id,
            select,
        })
    }

    /// Columns from this id on are not needed.
    #[inline]
    pub const fn needed_ids(&self) -> usize {
        self.by_id.len()
    }

    /// The position in `table.columns` of the column of that id, when its value is needed.
    #[inline]
    pub fn needed_position(&self, id: usize) -> Option<usize> {
        let at = self.by_id.get(id).copied().filter(|at| *at != NOT_NEEDED);
        at.map(usize::from)
    }

    /// Where the result's columns come from, when one row is named and no static column is returned: then memory
    /// answers in one call.
    #[inline]
    pub fn point(&self) -> Option<&[PointSource]> {
        self.point.as_deref()
    }

    /// The serialised partition key and clustering key of the row that a point read names, into emptied buffers. False:
    /// it does not name one partition.
    ///
    /// # Errors
    /// When a value of the key is null or unset, or cannot be stored.
    #[inline]
    pub fn point_names(
        &self,
        ctx: &BindContext<'_>,
        key: &mut Vec<u8>,
        clustering: &mut Vec<u8>,
    ) -> Result<bool, PlanError> {
        let PartitionRestriction::Key(operands) = &self.restrictions.partition else {
            return Ok(false);
        };
        key.clear();
        partition_key_bytes(&self.table, operands, ctx, key)?;
        clustering.clear();
        let mut bad = None;
        self.restrictions
            .clustering
            .each_single(|operand| match operand.eval(ctx) {
                Ok(Evaluated::Value(v)) => push_component(clustering, &v),
                Ok(Evaluated::Null) => {
                    bad = Some(PlanError::invalid(
                        "Invalid null value in condition for clustering column",
                    ))
                }
                Ok(Evaluated::Unset) => bad = Some(PlanError::invalid("Invalid unset value for clustering column")),
                Err(e) => bad = Some(e),
            });
        bad.map_or(Ok(true), Err)
    }

    /// The key of a point read, hashed, and its clustering key.
    ///
    /// # Errors
    /// As [`SelectPlan::point_names`].
    pub fn point_key(&self, ctx: &BindContext<'_>) -> Result<Option<PointKey>, PlanError> {
        let (mut key, mut clustering) = (Vec::new(), Vec::new());
        let is_point = self.point_names(ctx, &mut key, &mut clustering)?;
        Ok(is_point.then(|| (KeyHash::of(&key), key, clustering)))
    }

    /// This read without the nulls in its restrictions, where a comparison with null is neither true nor false; None
    /// when the plan can run as it is.
    ///
    /// # Errors
    /// When a value is none of its type.
    pub fn without_nulls(&self, ctx: &BindContext<'_>) -> Result<Option<Self>, PlanError> {
        if self.nulls == NullRule::Error {
            return Ok(None);
        }
        let Some(restrictions) = self.restrictions.without_nulls(&self.table, ctx)? else {
            return Ok(None);
        };
        let select = Select {
            restrictions,
            nulls: NullRule::Error,
            ..self.select.clone()
        };
        Self::new(select).map(Some)
    }

    /// Whether an execution with these values may have a null in a condition that is no mistake.
    #[inline]
    pub fn may_have_nulls(&self, values: &[Bound<'_>]) -> bool {
        self.nulls == NullRule::Unknown && values.iter().any(|value| matches!(value, Bound::Null))
    }

    /// Whether several rows make one of its result.
    pub fn aggregates_rows(&self) -> bool {
        self.selection.is_aggregate() || !self.group_by.is_empty()
    }

    /// Whether it is a point read.
    #[inline]
    pub fn is_point(&self) -> bool {
        self.point.is_some()
    }

    /// Makes this a read of the mutations of a table on this node, source by source; the plan's own table describes how
    /// they look.
    #[must_use]
    pub fn of_fragments(mut self, of: Arc<Table>) -> Self {
        self.select.fragments_of = Some(of);
        self.point = None;
        self
    }

    /// Whether it is one aggregate whose parts can be computed apart, wherever the rows are.
    pub fn is_mergeable(&self) -> bool {
        self.selection.is_mergeable() && self.group_by.is_empty() && self.fragments_of.is_none()
    }

    /// Whether it makes groups of the rows of many partitions, of which parts can be computed apart, wherever the rows
    /// are.
    pub fn has_groups_apart(&self) -> bool {
        !self.group_by.is_empty()
            && self.selection.has_mergeable_groups()
            && self.per_partition_limit.is_none()
            && !self.distinct
            && self.sorted.is_none()
            && self.fragments_of.is_none()
    }

    /// Whether it may read much more than one page shows, and has a time for the whole of it.
    pub fn may_read_much(&self) -> bool {
        let partitions = &self.restrictions.partition;
        self.selection.is_aggregate()
            || !self.group_by.is_empty()
            || !self.restrictions.filters.is_empty()
            || partitions.has_alternatives()
            || self.restrictions.clustering.has_alternatives()
            || matches!(
                partitions,
                PartitionRestriction::All | PartitionRestriction::Token { .. }
            )
    }

    /// The time that the read gives itself.
    ///
    /// # Errors
    /// When the value is no duration that a read may have.
    pub fn own_timeout(&self, ctx: &BindContext<'_>) -> Result<Option<Duration>, PlanError> {
        own_timeout(self.timeout.as_ref(), ctx)
    }

    /// For each partition key column the marker that it is compared with, when each has one.
    pub fn key_markers(&self) -> KeyMarkers {
        self.restrictions.partition.key_markers()
    }
}
