//! Groups of rows that are aggregated in parts.

use schema::Table;
use stdx::bytes::{Reader, Truncated};
use stdx::vint;

use super::expression::Uses;
use super::{AggregateState, Group, Selection, SelectionKind};
use crate::error::PlanError;
use crate::function::Accumulator;
use crate::row::Row;

/// Appends a value or null: a vint 0, or one more than the value's length, and its bytes.
pub fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    vint::put_unsigned(out, value.map_or(0, |value| value.len() as u64 + 1));
    out.extend_from_slice(value.unwrap_or_default());
}

/// What [`put_value`] wrote.
///
/// # Errors
/// When the bytes end early.
pub fn get_value<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Truncated> {
    match reader.get_vint()? {
        0 => Ok(None),
        more => {
            let len = usize::try_from(more - 1).unwrap_or(usize::MAX);
            reader.get_slice(len).map(Some)
        }
    }
}

impl Selection {
    /// Whether a group may be aggregated in parts that are joined afterwards: nothing but aggregates, and each allows
    /// it.
    pub fn is_mergeable(&self) -> bool {
        let SelectionKind::Aggregate(group) = &self.kind else {
            return false;
        };
        !group.needs_first && group.aggregates.iter().all(|call| call.aggregate.is_mergeable())
    }

    /// Whether parts of the rows of one group of several may be aggregated apart. Of its first row the values alone are
    /// kept.
    pub fn has_mergeable_groups(&self) -> bool {
        let of_group = self.aggregates().iter().all(|call| call.aggregate.is_mergeable());
        of_group && !self.needs_times
    }

    /// The columns of which each group keeps the values of its first row, by position in `table.columns`, in order.
    pub fn columns_of_first(&self) -> Vec<usize> {
        let mut uses = Uses::default();
        match &self.kind {
            SelectionKind::Plain(columns) => uses.columns.extend(columns),
            SelectionKind::Computed(expressions) | SelectionKind::Aggregate(Group { expressions, .. }) => {
                expressions.items.iter().for_each(|item| item.uses(&mut uses));
            }
        }
        uses.columns.sort_unstable();
        uses.columns.dedup();
        uses.columns
    }

    /// A part of a group, from bytes.
    ///
    /// # Errors
    /// When the bytes end early.
    pub fn decode_group(&self, reader: &mut Reader<'_>) -> Result<AggregateState, Truncated> {
        let mut group = self.new_group();
        for accumulator in &mut group.accumulators {
            accumulator.decode(reader)?;
        }
        Ok(group)
    }

    /// A part of one group of several, from the bytes of [`AggregateState::encode`] and of the first row's values.
    ///
    /// # Errors
    /// When the bytes end early.
    pub fn decode_one_of_groups(
        &self,
        table: &Table,
        columns: &[usize],
        reader: &mut Reader<'_>,
    ) -> Result<AggregateState, Truncated> {
        let mut group = self.decode_group(reader)?;
        let mut row = Row::new(table);
        for column in columns {
            if let Some(value) = get_value(reader)? {
                row.set(*column, value);
            }
        }
        group.first = Some(row);
        Ok(group)
    }
}

impl AggregateState {
    /// Takes over what was found in the rows after its own.
    ///
    /// # Errors
    /// When a sum cannot be made.
    pub fn merge(&mut self, behind: Self) -> Result<(), PlanError> {
        for (this, more) in self.accumulators.iter_mut().zip(behind.accumulators) {
            this.merge(more)?;
        }
        Ok(())
    }

    /// About how many bytes of memory it takes.
    pub fn held_bytes(&self) -> usize {
        let of_aggregates: usize = self.accumulators.iter().map(Accumulator::held_bytes).sum();
        size_of::<Self>() + of_aggregates + self.first.as_ref().map_or(0, Row::held_bytes)
    }

    /// The values of its first row, as bytes, after those of [`AggregateState::encode`].
    pub fn encode_first(&self, columns: &[usize], out: &mut Vec<u8>) {
        for column in columns {
            put_value(out, self.first.as_ref().and_then(|row| row.get(*column)));
        }
    }

    /// As bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for accumulator in &self.accumulators {
            accumulator.encode(out);
        }
    }
}
