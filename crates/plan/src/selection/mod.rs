//! What a SELECT returns of each row, or of each group of rows.
//!
//! A selection of nothing but columns is *plain*: their values are copied. Any other is a list of expressions, each a
//! tree of columns, terms and operations. With an aggregate among them the rows of a group give one result: aggregates
//! see every row, everything else the first one.

mod expression;
mod partial;

use std::sync::Arc;

use schema::Table;
use types::CqlType;

use crate::bind::{BindContext, Evaluated, ResultColumn};
use crate::error::PlanError;
use crate::function::{Accumulator, Aggregate, json};
use crate::restrict::no_column;
use crate::row::Row;
use crate::sink::RowSink;

pub use expression::{ElementTimes, Expression};
use expression::{Input, Uses};
pub use partial::{get_value, put_value};

/// What is returned.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The columns of the result; what is prepared shares them.
    pub columns: Arc<[ResultColumn]>,
    /// How they are made.
    pub kind: SelectionKind,
    /// Which columns of the table must be fetched: positions in `table.columns`, sorted.
    pub needed: Vec<usize>,
    /// Whether write timestamps and ttls are needed too.
    pub needs_times: bool,
    /// Whether functions that users have defined are called, each of which may take milliseconds.
    pub calls_user_functions: bool,
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

/// A column of a result and how it is made.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name and type.
    pub column: ResultColumn,
    /// How it is made.
    pub expression: Expression,
}

impl Item {
    /// A column of the table under its own name, by its position in `table.columns`.
    ///
    /// # Errors
    /// When the table has no such column.
    pub(crate) fn of_column(table: &Table, position: usize) -> Result<Self, PlanError> {
        let column = table.columns.get(position).ok_or_else(|| no_column(table, position))?;
        Ok(Self {
            column: ResultColumn {
                name: column.name.clone(),
                cql_type: column.cql_type.clone(),
            },
            expression: Expression::Column(position),
        })
    }
}

/// Expressions over what aggregates found out.
#[derive(Clone, Debug)]
pub struct Group {
    expressions: Expressions,
    aggregates: Vec<AggregateCall>,
    /// Whether an expression looks at the first row.
    needs_first: bool,
}

/// A function of a clustering column that grows with it, so that rows of one result follow each other.
#[derive(Clone, Debug)]
pub struct GroupFunction {
    expression: Expression,
}

impl GroupFunction {
    /// The function that an expression over one row is.
    ///
    /// # Errors
    /// When an aggregate is in it.
    pub fn new(expression: Expression) -> Result<Self, PlanError> {
        let mut uses = Uses::default();
        expression.uses(&mut uses);
        match uses.aggregates {
            0 => Ok(Self { expression }),
            _ => Err(PlanError::invalid("a group of rows cannot be made by an aggregate")),
        }
    }

    /// Checks the bound values in it.
    ///
    /// # Errors
    /// When one is none of its type, or is unset.
    pub fn check(&self, ctx: &BindContext<'_>) -> Result<(), PlanError> {
        self.expression.check(ctx)
    }

    /// What it makes of a row; `None` is null.
    ///
    /// # Errors
    /// When the function fails.
    pub fn eval(&self, row: &Row, ctx: &BindContext<'_>) -> Result<Option<Vec<u8>>, PlanError> {
        let input = Input {
            row: Some(row),
            group: &[],
            ctx,
        };
        Ok(self.expression.eval(&input)?.map(std::borrow::Cow::into_owned))
    }
}

/// An aggregate and what it is about; without an argument it counts rows.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// What is found out.
    pub aggregate: Aggregate,
    /// Over the values of this.
    pub argument: Option<Expression>,
}

/// A group of rows, as far as it was seen.
#[derive(Clone, Debug)]
pub struct AggregateState {
    accumulators: Vec<Accumulator>,
    first: Option<Row>,
}

impl Selection {
    /// Some columns of a table, by their positions in `table.columns`.
    ///
    /// # Errors
    /// When the table has no such column.
    pub fn plain(table: &Table, positions: &[usize]) -> Result<Self, PlanError> {
        let items = positions.iter().map(|position| Item::of_column(table, *position));
        let items = items.collect::<Result<_, PlanError>>()?;
        Self::new(table, items, Vec::new(), false)
    }

    /// Columns of a table, by their positions in `table.columns`, and what each is called in the result.
    ///
    /// # Errors
    /// When the table has no such column, or not every column has a name.
    pub fn of_columns(table: &Table, positions: Vec<usize>, columns: Arc<[ResultColumn]>) -> Result<Self, PlanError> {
        if positions.len() != columns.len() {
            return Err(PlanError::invalid("a selection names each of its columns"));
        }
        Ok(Self {
            needed: needed(positions.clone(), table)?,
            columns,
            kind: SelectionKind::Plain(positions),
            needs_times: false,
            calls_user_functions: false,
        })
    }

    /// Expressions over a row; with aggregates, over a group of rows. As JSON, the items are the members of one object.
    ///
    /// # Errors
    /// When an expression names a column that the table does not have, an aggregate that is not among `aggregates`, or
    /// an aggregate is in the argument of another.
    pub fn new(
        table: &Table,
        items: Vec<Item>,
        aggregates: Vec<AggregateCall>,
        is_json: bool,
    ) -> Result<Self, PlanError> {
        let mut of_groups = Uses {
            columns: Vec::with_capacity(items.len()),
            ..Uses::default()
        };
        items.iter().for_each(|item| item.expression.uses(&mut of_groups));
        let mut of_rows = Uses::default();
        aggregates
            .iter()
            .filter_map(|call| call.argument.as_ref())
            .for_each(|argument| argument.uses(&mut of_rows));
        if of_rows.aggregates > 0 || of_groups.aggregates > aggregates.len() {
            return Err(PlanError::invalid(
                "an expression uses an aggregate that is not computed",
            ));
        }
        let is_of_user = |call: &AggregateCall| matches!(call.aggregate, Aggregate::User(_));
        let calls_user_functions =
            of_groups.user_functions || of_rows.user_functions || aggregates.iter().any(is_of_user);
        let needs_first = !of_groups.columns.is_empty();
        let mut columns = of_groups.columns;
        columns.extend(of_rows.columns);
        let needed = needed(columns, table)?;
        let (columns, items): (Vec<_>, Vec<_>) = items.into_iter().map(|item| (item.column, item.expression)).unzip();
        let position = |item: &Expression| match item {
            Expression::Column(column) => Some(*column),
            _ => None,
        };
        let is_plain = !is_json && items.iter().all(|item| position(item).is_some());
        let positions = is_plain.then(|| {
            let mut positions = Vec::with_capacity(items.len());
            positions.extend(items.iter().filter_map(position));
            positions
        });
        let expressions = Expressions {
            items,
            json: is_json.then(|| columns.clone()),
        };
        Ok(Self {
            columns: if is_json {
                Arc::from([json_column()])
            } else {
                columns.into()
            },
            kind: match positions {
                _ if !aggregates.is_empty() => SelectionKind::Aggregate(Group {
                    expressions,
                    aggregates,
                    needs_first,
                }),
                Some(positions) => SelectionKind::Plain(positions),
                None => SelectionKind::Computed(expressions),
            },
            needed,
            needs_times: of_groups.times || of_rows.times,
            calls_user_functions,
        })
    }

    /// What is found out about a group of rows, when one gives one result.
    pub fn aggregates(&self) -> &[AggregateCall] {
        match &self.kind {
            SelectionKind::Aggregate(group) => &group.aggregates,
            SelectionKind::Plain(_) | SelectionKind::Computed(_) => &[],
        }
    }

    /// Whether a group of rows gives one result.
    pub fn is_aggregate(&self) -> bool {
        matches!(self.kind, SelectionKind::Aggregate(_))
    }

    /// Gives the row that one row of the table makes.
    ///
    /// # Errors
    /// When a function fails.
    pub fn write_row(&self, row: &Row, ctx: &BindContext<'_>, out: &mut impl RowSink) -> Result<(), PlanError> {
        match &self.kind {
            SelectionKind::Plain(columns) => {
                for &column in columns {
                    out.value(row.get(column));
                }
                out.end_row();
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

    /// Checks the bound values of one execution, whether or not there are rows.
    ///
    /// # Errors
    /// When one is none of its type, is null or unset as the key of an element, or is unset as the argument of a
    /// function.
    pub fn check(&self, ctx: &BindContext<'_>) -> Result<(), PlanError> {
        if ctx.values.is_empty() {
            return Ok(());
        }
        let (items, aggregates) = match &self.kind {
            SelectionKind::Plain(_) => return Ok(()),
            SelectionKind::Computed(expressions) => (&expressions.items, &[][..]),
            SelectionKind::Aggregate(group) => (&group.expressions.items, &group.aggregates[..]),
        };
        let arguments = aggregates.iter().filter_map(|call| call.argument.as_ref());
        items
            .iter()
            .chain(arguments)
            .try_for_each(|expression| expression.check(ctx))
    }

    /// Takes one more row into a group.
    ///
    /// # Errors
    /// When a function fails.
    pub fn accumulate(&self, state: &mut AggregateState, row: &Row, ctx: &BindContext<'_>) -> Result<(), PlanError> {
        let needs_first = match &self.kind {
            SelectionKind::Aggregate(group) => {
                for (call, accumulator) in group.aggregates.iter().zip(&mut state.accumulators) {
                    let input = Input {
                        row: Some(row),
                        group: &[],
                        ctx,
                    };
                    let argument = call.argument.as_ref().map(|argument| argument.eval_argument(&input));
                    let value = match argument.transpose()? {
                        Some(Evaluated::Value(value)) => Some(value),
                        Some(Evaluated::Unset) => {
                            return Err(PlanError::invalid(
                                "Invalid unset value for the argument of an aggregate",
                            ));
                        }
                        Some(Evaluated::Null) | None => None,
                    };
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

    /// Gives the row that a group makes. A group without rows has nulls, and counts of zero.
    ///
    /// # Errors
    /// When a function fails.
    pub fn write_group(
        &self,
        state: AggregateState,
        ctx: &BindContext<'_>,
        out: &mut impl RowSink,
    ) -> Result<(), PlanError> {
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
                    out.value(first.as_ref().and_then(|row| row.get(column)));
                }
                out.end_row();
                Ok(())
            }
            SelectionKind::Computed(expressions) => expressions.write(&input, out),
            SelectionKind::Aggregate(group) => group.expressions.write(&input, out),
        }
    }
}

impl Expressions {
    fn write<'a>(&'a self, input: &Input<'a>, out: &mut impl RowSink) -> Result<(), PlanError> {
        let Some(members) = &self.json else {
            for item in &self.items {
                out.value(item.eval(input)?.as_deref());
            }
            out.end_row();
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
        out.value(Some(object.as_bytes()));
        out.end_row();
        Ok(())
    }
}

/// The columns in order, each once; an error when the table has not all of them.
fn needed(mut columns: Vec<usize>, table: &Table) -> Result<Vec<usize>, PlanError> {
    columns.sort_unstable();
    columns.dedup();
    match columns.last() {
        Some(&column) if column >= table.columns.len() => Err(no_column(table, column)),
        _ => Ok(columns),
    }
}

/// The only column of `SELECT JSON`.
fn json_column() -> ResultColumn {
    ResultColumn {
        name: "[json]".to_owned(),
        cql_type: CqlType::Text,
    }
}
