//! Which partitions, which rows of them, and what is checked row by row.

mod clustering;
mod combinations;
mod filter;
mod indexed;
mod nulls;
mod partition;

use std::cmp::Ordering;

use schema::Table;
use types::like::PATTERN_BYTES_MAX;

use crate::{BindContext, PlanError};

pub use clustering::{Choice, ClusteringBound, ClusteringRestriction};
pub use filter::{Alternatives, Filter, FilterTest};
pub use indexed::IndexedTest;
pub use nulls::NullRule;
pub use partition::{
    KEY_BYTES_MAX, KeyMarkers, PartitionRestriction, Partitions, TokenBound, partition_key_bytes,
    validate_partition_key,
};

/// Refuses a pattern of LIKE that takes too long to be searched.
pub(crate) fn check_pattern(pattern: &[u8]) -> Result<(), PlanError> {
    match pattern.len() {
        0..=PATTERN_BYTES_MAX => Ok(()),
        bytes => Err(PlanError::invalid(format!(
            "The pattern of LIKE has {bytes} bytes, and at most {PATTERN_BYTES_MAX} are allowed"
        ))),
    }
}

/// What a plan reads of its table.
#[derive(Clone, Debug)]
pub struct Restrictions {
    /// Which partitions.
    pub partition: PartitionRestriction,
    /// Which rows.
    pub clustering: ClusteringRestriction,
    /// What must be checked row by row.
    pub filters: Vec<Filter>,
    /// What indexes know of the rows, whichever of the others checks it.
    pub indexed: Vec<IndexedTest>,
}

impl Restrictions {
    /// The memory that the rows take which are named by IN, as [`ClusteringRestriction::combination_bytes`]. An empty
    /// IN names nothing, and the other values are not looked at then.
    ///
    /// # Errors
    /// When a value is null, unset or too long.
    pub fn row_combination_bytes(&self, table: &Table, ctx: &BindContext<'_>) -> Result<usize, PlanError> {
        if self.partition.product(ctx)? == 0 || self.clustering.product(ctx)? == 0 {
            return Ok(0);
        }
        self.clustering.combination_bytes(table, ctx)
    }
}

/// A relation between two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// Every relation.
    pub const ALL: [Self; 6] = [
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
    ];

    /// Whether two values of this order are in the relation.
    #[inline]
    pub const fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// How it is written.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// The error of a plan that names a column by a position that its table does not have.
pub(crate) fn no_column(table: &Table, position: usize) -> PlanError {
    PlanError::Invalid(format!(
        "{}.{} has {} columns, none at position {position}",
        table.keyspace,
        table.name,
        table.columns.len()
    ))
}
