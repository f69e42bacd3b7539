//! What a SELECT returns of each row, or of each group of rows.
//!
//! A selection of nothing but columns is *plain*: their values are copied. Any other is a list of expressions, each a tree
//! of columns, terms and operations. With an aggregate among them the rows of a group give one result: aggregates see
//! every row, everything else the first one.

mod compile;
mod expression;
mod infer;
mod names;
mod partial;

use cql::ast::Select;
use schema::{Schema, Table};
use types::CqlType;

use crate::bind::{BindContext, ResultColumn};
use crate::error::QueryError;
use crate::function::{Accumulator, Aggregate, json};
use crate::row::Row;
use crate::term::Markers;

use expression::{Expression, Input};

/// A compiled selection.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The columns of the result.
    pub columns: Vec<ResultColumn>,
    /// How they are made.
    pub kind: SelectionKind,
    /// Which columns of the table must be fetched: positions in `table.columns`, sorted.
    pub needed: Vec<usize>,
    /// Whether write timestamps and ttls are needed too.
    pub needs_times: bool,
}

/// How the columns of a result are made.
#[derive(Clone, Debug)]
pub enum SelectionKind {
    /// Columns only: positions in `table.columns`, in the result's order.
    Plain(Vec<usize>),
    /// Expressions over one row.
    Computed(Expressions),
    /// Expressions over a group of rows.
    Aggregate(Group),
}

/// One expression for each column of the result, or for each member of the JSON object that is its only column.
#[derive(Clone, Debug)]
pub struct Expressions {
    items: Vec<Expression>,
    json: Option<Vec<ResultColumn>>,
}

/// Expressions over what aggregates found out.
#[derive(Clone, Debug)]
pub struct Group {
    expressions: Expressions,
    aggregates: Vec<AggregateCall>,
    /// Whether an expression looks at the first row.
    needs_first: bool,
}

/// An aggregate and what it is about; without an argument it counts rows.
#[derive(Clone, Debug)]
struct AggregateCall {
    aggregate: Aggregate,
    argument: Option<Expression>,
}

/// A group of rows, as far as it was seen.
#[derive(Clone, Debug)]
pub struct AggregateState {
    accumulators: Vec<Accumulator>,
    first: Option<Row>,
}

/// Compiles what a SELECT selects.
///
/// # Errors
/// When a name is not known, a function does not take its arguments, or the type of an expression cannot be told.
pub fn compile_selection(
    select: &Select,
    table: &Table,
    markers: &mut Markers,
    schema: &Schema,
) -> Result<Selection, QueryError> {
    compile::compile(select, table, markers, schema)
}

impl Selection {
    /// Whether a group of rows gives one result.
    pub fn is_aggregate(&self) -> bool {
        matches!(self.kind, SelectionKind::Aggregate(_))
    }

    /// Appends the cells of one row's result: each an i32 length, -1 for null, and the bytes.
    ///
    /// # Errors
    /// When a function fails.
    pub fn write_row(&self, row: &Row, ctx: &BindContext<'_>, out: &mut Vec<u8>) -> Result<(), QueryError> {
        match &self.kind {
            SelectionKind::Plain(columns) => {
                for &column in columns {
                    write_cell(row.get(column), out);
                }
                Ok(())
            }
            SelectionKind::Computed(expressions) => expressions.write(
                &Input {
                    row: Some(row),
                    group: &[],
                    ctx,
                },
                out,
            ),
            SelectionKind::Aggregate(_) => {
                let mut state = self.new_group();
                self.accumulate(&mut state, row, ctx)?;
                self.write_group(state, ctx, out)
            }
        }
    }

    /// A group without rows.
    pub fn new_group(&self) -> AggregateState {
        let accumulators = match &self.kind {
            SelectionKind::Aggregate(group) => group.aggregates.iter().map(|call| call.aggregate.start()).collect(),
            SelectionKind::Plain(_) | SelectionKind::Computed(_) => Vec::new(),
        };
        AggregateState {
            accumulators,
            first: None,
        }
    }

    /// Takes one more row into a group.
    ///
    /// # Errors
    /// When a function fails.
    pub fn accumulate(&self, state: &mut AggregateState, row: &Row, ctx: &BindContext<'_>) -> Result<(), QueryError> {
        let needs_first = match &self.kind {
            SelectionKind::Aggregate(group) => {
                for (call, accumulator) in group.aggregates.iter().zip(&mut state.accumulators) {
                    let input = Input {
                        row: Some(row),
                        group: &[],
                        ctx,
                    };
                    let value = call
                        .argument
                        .as_ref()
                        .map(|argument| argument.eval(&input))
                        .transpose()?
                        .flatten();
                    accumulator.add(value.as_deref())?;
                }
                group.needs_first
            }
            SelectionKind::Plain(_) | SelectionKind::Computed(_) => true,
        };
        if needs_first && state.first.is_none() {
            state.first = Some(row.clone());
        }
        Ok(())
    }

    /// Appends the cells of a group's result. A group without rows has nulls, and counts of zero.
    ///
    /// # Errors
    /// When a function fails.
    pub fn write_group(
        &self,
        state: AggregateState,
        ctx: &BindContext<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        let AggregateState { accumulators, first } = state;
        let found = accumulators
            .into_iter()
            .map(Accumulator::finish)
            .collect::<Result<Vec<_>, _>>()?;
        let input = Input {
            row: first.as_ref(),
            group: &found,
            ctx,
        };
        match &self.kind {
            SelectionKind::Plain(columns) => {
                for &column in columns {
                    write_cell(first.as_ref().and_then(|row| row.get(column)), out);
                }
                Ok(())
            }
            SelectionKind::Computed(expressions) => expressions.write(&input, out),
            SelectionKind::Aggregate(group) => group.expressions.write(&input, out),
        }
    }
}

impl Expressions {
    fn write<'a>(&'a self, input: &Input<'a>, out: &mut Vec<u8>) -> Result<(), QueryError> {
        let Some(members) = &self.json else {
            for item in &self.items {
                write_cell(item.eval(input)?.as_deref(), out);
            }
            return Ok(());
        };
        let mut object = String::from("{");
        for (index, (member, item)) in members.iter().zip(&self.items).enumerate() {
            object.push_str(if index == 0 { "" } else { ", " });
            json::write_name(&mut object, &member.name);
            object.push_str(": ");
            json::write(&mut object, &member.cql_type, item.eval(input)?.as_deref());
        }
        object.push('}');
        write_cell(Some(object.as_bytes()), out);
        Ok(())
    }
}

/// The only column of `SELECT JSON`.
fn json_column() -> ResultColumn {
    ResultColumn {
        name: "[json]".to_owned(),
        cql_type: CqlType::Text,
    }
}

#[inline]
fn write_cell(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(bytes) => {
            let len = i32::try_from(bytes.len()).expect("a value is smaller than 2 GiB");
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
    }
}
