//! Expressions over a row, and their values.

use std::borrow::Cow;

use types::{CollectionBuilder, CollectionIter, Comparator, MapIter, TupleIter};

use crate::Operand;
use crate::bind::{BindContext, Evaluated};
use crate::error::PlanError;
use crate::function::Operation;
use crate::row::{NO_TIMESTAMP, Row};

/// What expressions look at.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Positions in `table.columns`.
    pub(super) columns: Vec<usize>,
    /// Whether they ask when a column was written, or how long it has to live.
    pub(super) times: bool,
    /// One more than the highest place of an aggregate.
    pub(super) aggregates: usize,
    /// Whether they call a function that a user has defined.
    pub(super) user_functions: bool,
}

/// What an expression is evaluated over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    /// The row; none when a group has no rows.
    pub(super) row: Option<&'a Row>,
    /// What the aggregates of a group found out.
    pub(super) group: &'a [Option<Vec<u8>>],
    pub(super) ctx: &'a BindContext<'a>,
}

/// Which of the elements' times are selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementTimes {
    /// That of the one element.
    One,
    /// Those of all, as a list.
    All,
    /// The latest.
    Latest,
}

/// How a value is made of a row or of a group of rows.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A column: its position in `table.columns`.
    Column(usize),
    /// A value that does not depend on the row.
    Term(Operand),
    /// An operation on other expressions.
    Apply {
        /// What is done.
        operation: Operation,
        /// With what.
        arguments: Vec<Expression>,
    },
    /// When a column was written, or how long it has to live.
    OfCell {
        /// The column's position in `table.columns`.
        column: usize,
        /// How long it has to live.
        is_ttl: bool,
        /// The part of the column that is asked about: the result is null when it is.
        part: Option<Box<Expression>>,
    },
    /// The map of a multi-cell column's elements, by path, to what [`Expression::OfCells`] knows how to read.
    Cells(usize),
    /// When elements of a multi-cell column were written, or how long they have to live.
    OfCells {
        /// [`Expression::Cells`], or an element or slice of it.
        cells: Box<Expression>,
        /// How long they have to live.
        is_ttl: bool,
        /// Which of them are selected.
        selected: ElementTimes,
    },
    /// A value that is null when a part of the row is.
    WhenThere {
        /// The part.
        part: Box<Expression>,
        /// The value.
        value: Box<Expression>,
    },
    /// An aggregate: its place in the group.
    Aggregate(usize),
    /// The element of a set, or the value of a map, by key.
    Element {
        /// The collection's name, for errors.
        name: String,
        /// The collection.
        collection: Box<Expression>,
        /// Whether it is a map.
        is_map: bool,
        /// The order of its keys.
        comparator: Comparator,
        /// The key.
        key: Operand,
    },
    /// The part of a set or map between two keys, both included.
    Slice {
        /// The collection's name, for errors.
        name: String,
        /// The collection.
        collection: Box<Expression>,
        /// Whether it is a map.
        is_map: bool,
        /// The order of its keys.
        comparator: Comparator,
        /// The lowest key.
        from: Option<Operand>,
        /// The highest key.
        to: Option<Operand>,
        /// Whether there is no empty collection of this type: a multi-cell one without elements is null.
        is_multi_cell: bool,
    },
    /// A field of a user-defined type.
    Field {
        /// The value.
        value: Box<Expression>,
        /// The field's place.
        index: usize,
    },
}

impl Expression {
    /// An operation on expressions.
    ///
    /// # Errors
    /// When it is a mask with constants that mask nothing, such as a padding of two characters: it would fail for each
    /// row.
    pub fn applied(operation: Operation, arguments: Vec<Self>) -> Result<Self, PlanError> {
        if let Some((mask, name)) = operation.as_mask() {
            let constant = |argument: &Self| match argument {
                Self::Term(operand) => operand
                    .as_constant()
                    .map(|bytes| bytes.map(|bytes| Cow::Owned(bytes.to_vec()))),
                _ => None,
            };
            let constants: Option<Vec<_>> = arguments.iter().skip(1).map(constant).collect();
            if let Some(constants) = constants {
                let of_null: Vec<_> = std::iter::once(None).chain(constants).collect();
                mask.apply(name, &of_null)?;
            }
        }
        Ok(Self::Apply { operation, arguments })
    }

    /// Adds what it looks at.
    pub(super) fn uses(&self, uses: &mut Uses) {
        match self {
            Self::Column(column) => uses.columns.push(*column),
            Self::Term(_) => {}
            Self::Apply { operation, arguments } => {
                uses.user_functions |= operation.is_of_user();
                arguments.iter().for_each(|argument| argument.uses(uses));
            }
            Self::OfCell { column, part, .. } => {
                uses.columns.push(*column);
                uses.times = true;
                part.iter().for_each(|part| part.uses(uses));
            }
            Self::Cells(column) => {
                uses.columns.push(*column);
                uses.times = true;
            }
            Self::OfCells { cells, .. } => cells.uses(uses),
            Self::WhenThere { part, value } => {
                part.uses(uses);
                value.uses(uses);
            }
            Self::Aggregate(place) => uses.aggregates = uses.aggregates.max(place.saturating_add(1)),
            Self::Element { collection, .. } | Self::Slice { collection, .. } => collection.uses(uses),
            Self::Field { value, .. } => value.uses(uses),
        }
    }

    /// Checks the bound values in it, whether or not there are rows.
    pub(super) fn check(&self, ctx: &BindContext<'_>) -> Result<(), PlanError> {
        match self {
            Self::Term(marker @ Operand::Marker { .. }) => marker.eval(ctx).map(drop),
            Self::Column(_) | Self::Term(_) | Self::Cells(_) | Self::Aggregate(_) => Ok(()),
            Self::Apply { operation, arguments } => {
                for (index, argument) in arguments.iter().enumerate() {
                    argument.check(ctx)?;
                    if let Self::Term(marker @ Operand::Marker { .. }) = argument
                        && matches!(operation, Operation::Call(_))
                        && marker.eval(ctx)? == Evaluated::Unset
                    {
                        return Err(operation.unset_error(index));
                    }
                }
                Ok(())
            }
            Self::OfCell { part, .. } => part.as_ref().map_or(Ok(()), |part| part.check(ctx)),
            Self::OfCells { cells, .. } => cells.check(ctx),
            Self::WhenThere { part, value } => {
                part.check(ctx)?;
                value.check(ctx)
            }
            Self::Element {
                name, collection, key, ..
            } => {
                element_key(name, key, ctx)?;
                collection.check(ctx)
            }
            Self::Slice {
                name,
                collection,
                from,
                to,
                ..
            } => {
                slice_bound(name, from.as_ref(), ctx)?;
                slice_bound(name, to.as_ref(), ctx)?;
                collection.check(ctx)
            }
            Self::Field { value, .. } => value.check(ctx),
        }
    }

    /// As [`Expression::eval`]; a marker may be unset too.
    pub(super) fn eval_argument<'a>(&'a self, input: &Input<'a>) -> Result<Evaluated<'a>, PlanError> {
        match self {
            Self::Term(operand) => operand.eval(input.ctx),
            other => Ok(other.eval(input)?.map_or(Evaluated::Null, Evaluated::Value)),
        }
    }

    /// The value; `None` is null.
    pub(super) fn eval<'a>(&'a self, input: &Input<'a>) -> Result<Option<Cow<'a, [u8]>>, PlanError> {
        Ok(match self {
            Self::Column(column) => input.row.and_then(|row| row.get(*column)).map(Cow::Borrowed),
            Self::Term(operand) => eval_term(operand, input)?,
            Self::Apply { operation, arguments } => {
                let mut values = Vec::with_capacity(arguments.len());
                for (index, argument) in arguments.iter().enumerate() {
                    let is_call = matches!(operation, Operation::Call(_));
                    values.push(match argument.eval_argument(input)? {
                        Evaluated::Value(value) => Some(value),
                        Evaluated::Unset if is_call => return Err(operation.unset_error(index)),
                        Evaluated::Null | Evaluated::Unset => None,
                    });
                }
                match operation {
                    // A list that is only returned may hold nulls; one that is stored may not.
                    Operation::List if values.iter().any(Option::is_none) => Some(Cow::Owned(list_with_nulls(&values))),
                    _ => operation.apply(&values, input.ctx)?.map(Cow::Owned),
                }
            }
            Self::OfCell { column, is_ttl, part } => {
                let Some(row) = input.row else { return Ok(None) };
                if let Some(part) = part
                    && part.eval(input)?.is_none()
                {
                    return Ok(None);
                }
                let bytes = if *is_ttl {
                    row.ttl(*column).map(|ttl| ttl.to_be_bytes().to_vec())
                } else {
                    row.timestamp(*column).map(|timestamp| timestamp.to_be_bytes().to_vec())
                };
                bytes.map(Cow::Owned)
            }
            Self::Cells(column) => input.row.and_then(|row| row.cells(*column)).map(Cow::Borrowed),
            Self::OfCells {
                cells,
                is_ttl,
                selected,
            } => {
                let Some(cells) = cells.eval(input)? else {
                    return Ok(None);
                };
                of_cells(&cells, *is_ttl, *selected).map(Cow::Owned)
            }
            Self::WhenThere { part, value } => match part.eval(input)? {
                Some(_) => value.eval(input)?,
                None => None,
            },
            Self::Aggregate(place) => input
                .group
                .get(*place)
                .and_then(|value| value.as_deref())
                .map(Cow::Borrowed),
            Self::Element {
                name,
                collection,
                is_map,
                comparator,
                key,
            } => {
                let key = element_key(name, key, input.ctx)?;
                let Some(collection) = collection.eval(input)? else {
                    return Ok(None);
                };
                part(collection, |bytes| element(bytes, *is_map, comparator, &key))
            }
            Self::Slice {
                name,
                collection,
                is_map,
                comparator,
                from,
                to,
                is_multi_cell,
            } => {
                let Some(collection) = collection.eval(input)? else {
                    return Ok(None);
                };
                let bound = |operand: &'a Option<Operand>| slice_bound(name, operand.as_ref(), input.ctx);
                let (from, to) = (bound(from)?, bound(to)?);
                let slice = slice(&collection, *is_map, comparator, from.as_deref(), to.as_deref());
                let is_empty = slice == [0; 4];
                (!(is_empty && *is_multi_cell)).then_some(Cow::Owned(slice))
            }
            Self::Field { value, index } => {
                let Some(value) = value.eval(input)? else {
                    return Ok(None);
                };
                part(value, |bytes| TupleIter::new(bytes).nth(*index)?.ok()?)
            }
        })
    }
}

/// One of the two times of a cell, which are stored together.
fn time_of(times: &[u8], is_ttl: bool) -> Option<Vec<u8>> {
    let (timestamp, ttl) = times.split_at_checked(size_of::<i64>())?;
    if is_ttl {
        ttl.iter().any(|b| *b != 0).then(|| ttl.to_vec())
    } else {
        (timestamp != NO_TIMESTAMP.to_be_bytes()).then(|| timestamp.to_vec())
    }
}

fn of_cells(cells: &[u8], is_ttl: bool, selected: ElementTimes) -> Option<Vec<u8>> {
    if selected == ElementTimes::One {
        return time_of(cells, is_ttl);
    }
    let all = MapIter::new(cells).into_iter().flatten().flatten();
    let times: Vec<_> = all.map(|(_, times)| time_of(times, is_ttl).map(Cow::Owned)).collect();
    if times.is_empty() {
        return None;
    }
    match selected {
        ElementTimes::One | ElementTimes::All => Some(list_with_nulls(&times)),
        ElementTimes::Latest => {
            let number = |time: &Cow<'_, [u8]>| time.first_chunk().copied().map(i64::from_be_bytes);
            let latest = times.iter().flatten().filter_map(number).max();
            latest.map(|latest| latest.to_be_bytes().to_vec())
        }
    }
}

fn element_key<'a>(name: &str, key: &'a Operand, ctx: &BindContext<'a>) -> Result<Cow<'a, [u8]>, PlanError> {
    let refuse = |what| PlanError::Invalid(format!("Invalid {what} value for element selection on {name}"));
    match key.eval(ctx)? {
        Evaluated::Value(key) => Ok(key),
        Evaluated::Null => Err(refuse("null")),
        Evaluated::Unset => Err(refuse("unset")),
    }
}

/// A bound of a slice; an unset one is none.
fn slice_bound<'a>(
    name: &str,
    bound: Option<&'a Operand>,
    ctx: &BindContext<'a>,
) -> Result<Option<Cow<'a, [u8]>>, PlanError> {
    match bound.map(|bound| bound.eval(ctx)).transpose()? {
        Some(Evaluated::Value(key)) => Ok(Some(key)),
        Some(Evaluated::Unset) | None => Ok(None),
        Some(Evaluated::Null) => Err(PlanError::Invalid(format!(
            "Invalid null value for slice selection on {name}"
        ))),
    }
}

fn eval_term<'a>(operand: &'a Operand, input: &Input<'a>) -> Result<Option<Cow<'a, [u8]>>, PlanError> {
    match operand.eval(input.ctx)? {
        Evaluated::Value(bytes) => Ok(Some(bytes)),
        Evaluated::Null | Evaluated::Unset => Ok(None),
    }
}

/// A part of a value, borrowed as the value is.
fn part<'a>(value: Cow<'a, [u8]>, find: impl Fn(&[u8]) -> Option<&[u8]>) -> Option<Cow<'a, [u8]>> {
    match value {
        Cow::Borrowed(bytes) => find(bytes).map(Cow::Borrowed),
        Cow::Owned(bytes) => find(&bytes).map(|found| Cow::Owned(found.to_vec())),
    }
}

fn element<'b>(bytes: &'b [u8], is_map: bool, comparator: &Comparator, key: &[u8]) -> Option<&'b [u8]> {
    let is_wanted = |candidate: &[u8]| comparator.compare(candidate, key).is_eq();
    if is_map {
        let mut pairs = MapIter::new(bytes).ok()?.flatten();
        pairs
            .find(|(candidate, _)| is_wanted(candidate))
            .map(|(_, value)| value)
    } else {
        CollectionIter::new(bytes)
            .ok()?
            .flatten()
            .find(|candidate| is_wanted(candidate))
    }
}

fn slice(bytes: &[u8], is_map: bool, comparator: &Comparator, from: Option<&[u8]>, to: Option<&[u8]>) -> Vec<u8> {
    let is_within = |key: &[u8]| {
        from.is_none_or(|from| comparator.compare(key, from).is_ge())
            && to.is_none_or(|to| comparator.compare(key, to).is_le())
    };
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::new(&mut out);
    if is_map {
        for (key, value) in MapIter::new(bytes)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|(key, _)| is_within(key))
        {
            builder.push_pair(key, value);
        }
    } else {
        for key in CollectionIter::new(bytes)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|key| is_within(key))
        {
            builder.push(key);
        }
    }
    builder.finish();
    out
}

fn list_with_nulls(values: &[Option<Cow<'_, [u8]>>]) -> Vec<u8> {
    let count = i32::try_from(values.len()).expect("a statement has fewer than 2^31 terms");
    let mut out = count.to_be_bytes().to_vec();
    let mut elements = types::TupleBuilder::new(&mut out);
    values.iter().for_each(|value| elements.push(value.as_deref()));
    out
}
