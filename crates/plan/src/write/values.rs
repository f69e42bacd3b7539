//! What a write is about to store, for limits that are checked before it is packed.

use schema::Column;

use super::pack::WRITE_BYTES_MAX;
use super::{Change, Target, WritePlan};
use crate::{BindContext, Evaluated, PlanError};

/// What a row takes besides the values that the statement gives it.
const ROW_BYTES: usize = 32;

/// A value that a write gives a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrittenValue<'v> {
    /// The value of the column, or the elements that are added to its collection.
    Whole(&'v [u8]),
    /// The value of one element of its collection.
    Element(&'v [u8]),
}

impl WritePlan {
    /// Calls `f` with each column that gets a value in this execution. Columns that are deleted, or left as they are,
    /// get none.
    ///
    /// # Errors
    /// Those of `f`, and when a value does not fit.
    pub fn each_value<E: From<PlanError>>(
        &self,
        ctx: &BindContext<'_>,
        mut f: impl FnMut(&Column, WrittenValue<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for assignment in self.statics.iter().chain(&self.regulars) {
            let column = &self.table.columns[assignment.column];
            let (operand, is_element) = match &assignment.change {
                Change::Set(value) | Change::Replace(value) | Change::Append(value) | Change::Prepend(value) => {
                    (value, false)
                }
                Change::Put { value, .. } | Change::PutField { value, .. } | Change::PutAt { value, .. } => {
                    (value, true)
                }
                Change::Delete
                | Change::Remove(_)
                | Change::Take(_)
                | Change::TakeAt(_)
                | Change::Discard(_)
                | Change::Count(_)
                | Change::Compute(_) => continue,
            };
            if let Evaluated::Value(value) = operand.eval(ctx)? {
                f(
                    column,
                    if is_element {
                        WrittenValue::Element(&value)
                    } else {
                        WrittenValue::Whole(&value)
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Whether it gives any column a value that is no counter's.
    pub fn has_values(&self) -> bool {
        let has_columns = !self.statics.is_empty() || !self.regulars.is_empty();
        has_columns && !self.table.is_counter()
    }

    /// Whether it may name several partitions, or several rows of one, by IN.
    pub fn has_alternatives(&self) -> bool {
        let rows = match &self.target {
            Target::Rows(rows) | Target::Range(rows) | Target::WholeRows(rows) => rows.has_alternatives(),
            Target::Row(_) | Target::Partition | Target::Statics => false,
        };
        rows || self.partition.has_alternatives()
    }

    /// Whether its table refuses writes to what is too large already, and this one too.
    #[inline]
    pub fn guards_large_data(&self) -> bool {
        self.table.options.guards_large_data && !self.bypasses_large_data_guardrails
    }

    /// The clustering keys that it names in each of its partitions; none when it is about static columns, a range or
    /// the partition.
    ///
    /// # Errors
    /// When a value is null or unset.
    pub fn named_rows(&self, ctx: &BindContext<'_>) -> Result<Vec<Vec<u8>>, PlanError> {
        match &self.target {
            Target::Row(operands) => Ok(vec![self.clustering_key(operands, ctx)?]),
            Target::Rows(rows) | Target::WholeRows(rows) => rows.rows(&self.table, ctx),
            Target::Partition if self.table.clustering_order.is_empty() => Ok(vec![Vec::new()]),
            // What a range is made of is checked, though it names no rows.
            Target::Range(range) => range.slices(&self.table, ctx).map(|_| Vec::new()),
            Target::Partition | Target::Statics => Ok(Vec::new()),
        }
    }

    /// The clustering keys of the rows that it changes in each of its partitions, as far as it names them; an empty one
    /// is that of the static row.
    ///
    /// # Errors
    /// When a value is null or unset.
    pub fn touched_rows(&self, ctx: &BindContext<'_>) -> Result<Vec<Vec<u8>>, PlanError> {
        let mut rows = self.named_rows(ctx)?;
        if !self.statics.is_empty() {
            rows.push(Vec::new());
        }
        Ok(rows)
    }

    /// The columns that it changes.
    pub fn changed_columns(&self) -> impl Iterator<Item = &Column> {
        let changes = self.statics.iter().chain(&self.regulars);
        changes.map(|change| &self.table.columns[change.column])
    }

    /// The memory that it takes besides its values to pack them for each partition and row that its IN relations name;
    /// 0 where these name one.
    ///
    /// # Errors
    /// When a value is null or unset.
    pub fn multiplied_bytes(&self, ctx: &BindContext<'_>) -> Result<usize, PlanError> {
        if !self.has_alternatives() {
            return Ok(0);
        }
        let (partitions, rows_of_each) = self.products(ctx)?;
        if partitions == 0 || rows_of_each == 0 {
            // An empty IN names nothing, and the other values are not looked at.
            return Ok(0);
        }
        let rows = match &self.target {
            Target::Rows(rows) | Target::Range(rows) | Target::WholeRows(rows) => {
                rows.combination_bytes(&self.table, ctx)?
            }
            Target::Row(_) | Target::Partition | Target::Statics => 0,
        };
        let named = self.partition.combination_bytes(ctx)? + rows;
        let mut bytes_of_row = ROW_BYTES;
        self.each_value(ctx, |_, value| {
            let (WrittenValue::Whole(value) | WrittenValue::Element(value)) = value;
            bytes_of_row += value.len();
            Ok::<_, PlanError>(())
        })?;
        for change in self.statics.iter().chain(&self.regulars) {
            if let Change::Remove(elements) = &change.change
                && let Evaluated::Value(elements) = elements.eval(ctx)?
            {
                bytes_of_row += elements.len();
            }
        }
        let rows = usize::try_from(partitions.saturating_mul(rows_of_each)).unwrap_or(usize::MAX);
        Ok(named + rows.saturating_mul(bytes_of_row).min(WRITE_BYTES_MAX))
    }

    /// How many partitions it names by IN in this execution, and how many prefixes of clustering keys in each.
    ///
    /// # Errors
    /// When a value is null or unset.
    pub fn products(&self, ctx: &BindContext<'_>) -> Result<(u64, u64), PlanError> {
        let rows = match &self.target {
            Target::Rows(rows) | Target::Range(rows) | Target::WholeRows(rows) => rows.product(ctx)?,
            Target::Row(_) | Target::Partition | Target::Statics => 1,
        };
        Ok((self.partition.product(ctx)?, rows))
    }
}
