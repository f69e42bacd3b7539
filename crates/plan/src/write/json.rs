//! `INSERT … JSON ?`: the values of a whole row come as one bound text.
//!
//! The plan is that of an insertion of every column, whose terms are markers after those of the statement. Each
//! execution reads the text once, and gives these markers the values that the text has for the columns.

use std::borrow::Cow;

use stdx::preempt;

use super::WritePlan;
use crate::function::decode_json_row;
use crate::{Bound, Execution, Operand, OwnedBound, PlanError};

/// Where the text comes from, and where its values go.
#[derive(Debug)]
pub struct JsonRow {
    /// The bound text.
    pub text: usize,
    /// The marker of the table's first column; the others follow in the order of `table.columns`.
    pub first: usize,
    /// Columns that the text does not name keep their values (`DEFAULT UNSET`), rather than become null.
    pub is_default_unset: bool,
}

impl JsonRow {
    /// The term of a column, by its position in `table.columns`.
    pub fn operand(&self, column: usize, cql_type: &types::CqlType) -> Operand {
        Operand::Marker {
            index: self.first + column,
            cql_type: cql_type.clone(),
        }
    }
}

impl WritePlan {
    /// This write, with its row given as JSON.
    #[must_use]
    pub fn of_json(self, json: JsonRow) -> Self {
        Self {
            json: Some(json),
            is_of_steps: true,
            ..self
        }
    }

    /// Whether the row comes as JSON, so that values must be read ([`WritePlan::read_json`]) before anything else is
    /// asked of the plan.
    pub const fn is_of_json(&self) -> bool {
        self.json.is_some()
    }

    /// The values of one execution, and after them those of a row that comes as JSON.
    ///
    /// # Errors
    /// When the text is null, unset or no JSON object, names a column that the table does not have, or a value that its
    /// column does not take.
    pub fn read_json<'r>(&self, run: &'r Execution) -> Result<Cow<'r, Execution>, PlanError> {
        let Some(json) = &self.json else {
            return Ok(Cow::Borrowed(run));
        };
        if run.values.len() < json.first {
            return Err(PlanError::invalid("Invalid amount of bind variables"));
        }
        let text = match run.values.get(json.text).map(OwnedBound::borrow) {
            Some(Bound::Value(text)) => text,
            Some(Bound::Null) => return Err(PlanError::invalid("Got null for INSERT JSON values")),
            Some(Bound::Unset) => return Err(PlanError::invalid("Got unset for INSERT JSON values")),
            None => return Err(PlanError::invalid("Invalid amount of bind variables")),
        };
        let columns: Vec<_> = self
            .table
            .columns
            .iter()
            .map(|c| (c.name.as_str(), &c.cql_type))
            .collect();
        let row = preempt::allowed(|| decode_json_row(text, &columns))?;
        let mut values = run.values[..json.first].to_vec();
        values.extend(row.into_iter().map(|value| match value {
            Some(Some(bytes)) => OwnedBound::Value(bytes),
            Some(None) => OwnedBound::Null,
            None if json.is_default_unset => OwnedBound::Unset,
            None => OwnedBound::Null,
        }));
        Ok(Cow::Owned(Execution {
            values,
            now_us: run.now_us,
            now_in_seconds: run.now_in_seconds,
            random: run.random,
        }))
    }
}
