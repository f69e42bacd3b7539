//! Compiled terms: what one is worth in an execution.

use std::borrow::Cow;

use stdx::{LongVec, preempt};
use types::sorted::checked;
use types::{CollectionIter, CqlType, Malformed, TupleIter};

use crate::bind::{BindContext, Bound, BoundValues, Evaluated};
use crate::error::PlanError;
use crate::function::Operation;

/// Values that something is compared with; None is null.
pub(crate) type Alternatives<'v> = Vec<Option<Cow<'v, [u8]>>>;

/// A compiled term.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A serialised value.
    Constant(Box<[u8]>),
    /// Null.
    Null,
    /// A bound value.
    Marker {
        /// Its place among the bound values.
        index: usize,
        /// The type that it must be of.
        cql_type: CqlType,
    },
    /// What an operation makes of other terms.
    Computed(Box<Computed>),
}

/// An operation and the terms it works on.
#[derive(Clone, Debug)]
pub struct Computed {
    pub(crate) operation: Operation,
    pub(crate) arguments: LongVec<Operand>,
}

impl Operand {
    /// The term's worth in one execution.
    ///
    /// # Errors
    /// When a bound value is none of its type, or a function fails.
    #[inline]
    pub fn eval<'v>(&'v self, ctx: &BindContext<'v>) -> Result<Evaluated<'v>, PlanError> {
        match self {
            Self::Constant(bytes) => Ok(Evaluated::Value(Cow::Borrowed(bytes))),
            Self::Null => Ok(Evaluated::Null),
            Self::Marker { index, cql_type } => match ctx.values.get(*index) {
                Some(Bound::Value(bytes)) => check_bound(cql_type, bytes).map(Evaluated::Value),
                Some(Bound::Null) => Ok(Evaluated::Null),
                Some(Bound::Unset) => Ok(Evaluated::Unset),
                None => Err(PlanError::invalid("Invalid amount of bind variables")),
            },
            Self::Computed(computed) => computed.eval(ctx),
        }
    }

    /// The value when it is the same in every execution: `Some(None)` is a constant null.
    pub fn as_constant(&self) -> Option<Option<&[u8]>> {
        match self {
            Self::Constant(bytes) => Some(Some(bytes)),
            Self::Null => Some(None),
            Self::Marker { .. } | Self::Computed(_) => None,
        }
    }

    /// The elements of a term whose type is a list: the alternatives of `IN ?`. `receiver` is the name of what they are
    /// compared with.
    ///
    /// # Errors
    /// As [`Operand::eval`], and when the list or one of its elements is null or unset.
    pub fn eval_list<'v>(&'v self, receiver: &str, ctx: &BindContext<'v>) -> Result<Vec<Cow<'v, [u8]>>, PlanError> {
        let bytes = match (self, self.raw_bound(ctx)) {
            // Null elements have their own error here, so the list is not validated as a whole before it is read.
            (Self::Marker { cql_type, .. }, Some(raw)) => {
                return split_in_list(raw, list_element(cql_type), receiver, Cow::Borrowed);
            }
            _ => self.eval(ctx)?,
        };
        match bytes {
            Evaluated::Null if is_of_columns(receiver) => {
                Err(PlanError::invalid("Invalid null value for IN restriction"))
            }
            Evaluated::Null => Err(PlanError::invalid(format!("Invalid null value for column {receiver}"))),
            Evaluated::Unset if is_of_columns(receiver) => {
                Err(PlanError::invalid(format!("Invalid unset value for in{receiver}")))
            }
            Evaluated::Unset => Err(PlanError::invalid(format!("Invalid unset value for column {receiver}"))),
            Evaluated::Value(Cow::Borrowed(bytes)) => split_in_list(bytes, None, receiver, Cow::Borrowed),
            Evaluated::Value(Cow::Owned(bytes)) => {
                split_in_list(&bytes, None, receiver, |element| Cow::Owned(element.to_vec()))
            }
        }
    }

    /// The elements of such a list, None where one is null; None when the list is.
    ///
    /// # Errors
    /// As [`Operand::eval`], and when the list is unset.
    pub(crate) fn eval_list_with_nulls<'v>(
        &'v self,
        receiver: &str,
        ctx: &BindContext<'v>,
    ) -> Result<Option<Alternatives<'v>>, PlanError> {
        let Some(raw) = self.raw_bound(ctx) else {
            return match self.eval(ctx)? {
                Evaluated::Null => Ok(None),
                _ => Ok(Some(self.eval_list(receiver, ctx)?.into_iter().map(Some).collect())),
            };
        };
        let element = match self {
            Self::Marker { cql_type, .. } => list_element(cql_type),
            _ => None,
        };
        let value = |item: Option<&'v [u8]>| match (item, element) {
            (Some(item), Some(element)) if !is_as_null(element, item) => check_bound(element, item).map(Some),
            (Some(item), None) => Ok(Some(Cow::Borrowed(item))),
            _ => Ok(None),
        };
        let elements = elements_with_nulls(raw)?;
        elements.into_iter().map(value).collect::<Result<_, _>>().map(Some)
    }

    fn raw_bound<'v>(&self, ctx: &BindContext<'v>) -> Option<&'v [u8]> {
        match self {
            Self::Marker { index, .. } => match ctx.values.get(*index) {
                Some(Bound::Value(bytes)) => Some(bytes),
                _ => None,
            },
            _ => None,
        }
    }

    /// An operation on terms; done at once when they are constants and it always gives the same.
    ///
    /// # Errors
    /// When a constant literal cannot be made.
    pub fn computed(operation: Operation, arguments: Vec<Self>) -> Result<Self, PlanError> {
        let is_constant = arguments.iter().all(|argument| argument.as_constant().is_some());
        let is_literal = operation.is_literal();
        let computed = Self::Computed(Box::new(Computed {
            operation,
            arguments: arguments.into(),
        }));
        let Self::Computed(inner) = &computed else {
            return Ok(computed);
        };
        if !is_constant || !(is_literal || inner.operation.is_pure()) {
            return Ok(computed);
        }
        let moment = BindContext {
            values: BoundValues::NONE,
            now_us: 0,
            now_in_seconds: None,
            random: 0,
        };
        let folded = match inner.eval(&moment) {
            Ok(Evaluated::Value(bytes)) => Some(Self::Constant(bytes.into_owned().into())),
            Ok(Evaluated::Null) => Some(Self::Null),
            Err(error) if is_literal => return Err(error),
            // A function that fails does so in the execution, as it would with bound arguments.
            Ok(Evaluated::Unset) | Err(_) => None,
        };
        Ok(folded.unwrap_or(computed))
    }
}

impl Computed {
    fn eval<'v>(&'v self, ctx: &BindContext<'v>) -> Result<Evaluated<'v>, PlanError> {
        let mut arguments = LongVec::from(Vec::with_capacity(self.arguments.len()));
        for (index, argument) in self.arguments.iter().enumerate() {
            preempt::point();
            match argument.eval(ctx)? {
                Evaluated::Value(bytes) => arguments.push(Some(bytes)),
                Evaluated::Null => arguments.push(None),
                Evaluated::Unset if self.operation.passes_unset() => return Ok(Evaluated::Unset),
                Evaluated::Unset => return Err(self.operation.unset_error(index)),
            }
        }
        Ok(match self.operation.apply(&arguments, ctx)? {
            Some(bytes) => Evaluated::Value(Cow::Owned(bytes)),
            None => Evaluated::Null,
        })
    }
}

/// Checks a bound value, and sorts the sets and maps in it that are out of order.
#[inline]
fn check_bound<'v>(cql_type: &CqlType, bytes: &'v [u8]) -> Result<Cow<'v, [u8]>, PlanError> {
    if let CqlType::Blob = cql_type {
        return Ok(Cow::Borrowed(bytes));
    }
    check_count(cql_type, bytes)?;
    let found = match cql_type.unfrozen() {
        CqlType::Set(_)
        | CqlType::Map(..)
        | CqlType::List(_)
        | CqlType::Tuple(_)
        | CqlType::Udt(_)
        | CqlType::Vector(..) => checked(cql_type, bytes),
        _ => cql_type.validate(bytes).map(|()| Cow::Borrowed(bytes)),
    };
    found.map_err(|error| PlanError::Invalid(error.to_string()))
}

/// Refuses a collection of a negative number of elements.
pub(crate) fn check_count(cql_type: &CqlType, bytes: &[u8]) -> Result<(), PlanError> {
    let name = match cql_type.unfrozen() {
        CqlType::List(_) => "list",
        CqlType::Set(_) => "set",
        CqlType::Map(..) => "map",
        _ => return Ok(()),
    };
    match bytes.first_chunk() {
        Some(count) if i32::from_be_bytes(*count) < 0 => Err(PlanError::Invalid(format!(
            "The data cannot be deserialized as a {name}"
        ))),
        _ => Ok(()),
    }
}

/// Whether the name is that of several columns: `(a,b)`.
fn is_of_columns(receiver: &str) -> bool {
    receiver.starts_with('(')
}

fn list_element(cql_type: &CqlType) -> Option<&CqlType> {
    match cql_type.unfrozen() {
        CqlType::List(element) => Some(element),
        _ => None,
    }
}

/// The elements of a serialised list; `element` checks each of them when the list was not checked as a whole.
fn split_in_list<'v, 'b>(
    bytes: &'b [u8],
    element: Option<&CqlType>,
    receiver: &str,
    hold: impl Fn(&'b [u8]) -> Cow<'v, [u8]>,
) -> Result<Vec<Cow<'v, [u8]>>, PlanError> {
    let malformed = |problem: Malformed| match problem {
        Malformed::Null => null_in_condition(receiver),
        Malformed::Truncated => PlanError::invalid("Not enough bytes to read a list"),
        Malformed::Extraneous(_) => extraneous(),
    };
    // A literal has been checked.
    if bytes.first().is_some_and(|first| *first >= 0x80) {
        return Err(no_list());
    }
    let items = CollectionIter::new(bytes).map_err(malformed)?;
    let mut out = Vec::with_capacity(items.len_max());
    for item in items {
        let item = item.map_err(malformed)?;
        let Some(element) = element else {
            out.push(hold(item));
            continue;
        };
        if is_as_null(element, item) {
            return Err(null_in_condition(receiver));
        }
        match check_bound(element, item)? {
            Cow::Borrowed(_) => out.push(hold(item)),
            Cow::Owned(sorted) => out.push(Cow::Owned(sorted)),
        }
    }
    Ok(out)
}

/// The elements of a serialised list that may hold nulls, as drivers send the alternatives of IN.
pub(crate) fn elements_with_nulls(list: &[u8]) -> Result<Vec<Option<&[u8]>>, PlanError> {
    let truncated = || PlanError::invalid("Not enough bytes to read a list");
    let (count, elements) = list.split_first_chunk::<4>().ok_or_else(truncated)?;
    let count = usize::try_from(i32::from_be_bytes(*count)).map_err(|_| no_list())?;
    // After its count a list is laid out as a tuple is.
    let mut rest = TupleIter::new(elements);
    let elements = rest.by_ref().take(count).collect::<Result<Vec<_>, _>>();
    let elements = elements.map_err(|_| truncated())?;
    if elements.len() < count {
        return Err(truncated());
    }
    match rest.next() {
        None => Ok(elements),
        Some(_) => Err(extraneous()),
    }
}

fn no_list() -> PlanError {
    PlanError::invalid("The data cannot be deserialized as a list")
}

fn extraneous() -> PlanError {
    PlanError::invalid("Unexpected extraneous bytes after list value")
}

/// Whether an alternative is as good as null: it is empty, and its type has no empty values.
pub(crate) fn is_as_null(element: &CqlType, item: &[u8]) -> bool {
    item.is_empty() && !matches!(element, CqlType::Text | CqlType::Ascii | CqlType::Blob)
}

fn null_in_condition(receiver: &str) -> PlanError {
    PlanError::invalid(format!("Invalid null value in condition for column {receiver}"))
}

/// The compiled alternatives of IN.
#[derive(Clone, Debug)]
pub enum InOperand {
    /// `(a, b)`
    Terms {
        /// The name of what they are compared with.
        receiver: String,
        /// The alternatives.
        operands: LongVec<Operand>,
    },
    /// `?`: a list.
    List {
        /// The name of what its elements are compared with.
        receiver: String,
        /// The marker.
        operand: Operand,
    },
}

impl InOperand {
    /// The alternatives in one execution, in the order they were given.
    ///
    /// # Errors
    /// As [`Operand::eval`], and when one of them is null or unset.
    pub fn eval<'v>(&'v self, ctx: &BindContext<'v>) -> Result<Vec<Cow<'v, [u8]>>, PlanError> {
        match self {
            Self::List { receiver, operand } => operand.eval_list(receiver, ctx),
            Self::Terms { receiver, operands } => {
                let eval = |operand: &'v Operand| match operand.eval(ctx)? {
                    Evaluated::Value(bytes) => Ok(bytes),
                    Evaluated::Null => Err(null_in_condition(receiver)),
                    Evaluated::Unset if is_of_columns(receiver) => {
                        Err(PlanError::invalid(format!("Invalid unset value for tuple {receiver}")))
                    }
                    Evaluated::Unset => Err(PlanError::invalid(format!("Invalid unset value for column {receiver}"))),
                };
                preempt::try_collect(operands.iter().map(eval))
            }
        }
    }

    /// How many different alternatives there are in one execution.
    ///
    /// # Errors
    /// As [`InOperand::eval`].
    pub fn distinct(&self, ctx: &BindContext<'_>) -> Result<u64, PlanError> {
        let mut values = self.eval(ctx)?;
        preempt::sort_by(&mut values, Ord::cmp);
        values.dedup();
        let count = values.len() as u64;
        preempt::drop_each(values);
        Ok(count)
    }

    /// How many alternatives there are, when the text of the statement says it.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Terms { operands, .. } => Some(operands.len()),
            Self::List { .. } => None,
        }
    }

    /// Whether the statement's text says that there is no alternative.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}
