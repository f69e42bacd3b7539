//! Groups of rows that are aggregated in parts.

use stdx::bytes::{Reader, Truncated};

use super::{AggregateState, Selection, SelectionKind};
use crate::error::PlanError;

impl Selection {
    /// Whether a group may be aggregated in parts that are joined afterwards: nothing but aggregates, and each allows it.
    pub fn is_mergeable(&self) -> bool {
        let SelectionKind::Aggregate(group) = &self.kind else {
            return false;
        };
        !group.needs_first && group.aggregates.iter().all(|call| call.aggregate.is_mergeable())
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
}

impl AggregateState {
    /// Takes over what was found in the rows behind its own.
    ///
    /// # Errors
    /// When a sum cannot be made.
    pub fn merge(&mut self, behind: Self) -> Result<(), PlanError> {
        for (this, more) in self.accumulators.iter_mut().zip(behind.accumulators) {
            this.merge(more)?;
        }
        Ok(())
    }

    /// As bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for accumulator in &self.accumulators {
            accumulator.encode(out);
        }
    }
}
