//! What a comparison with null means.
//!
//! Cassandra refuses it in WHERE. In SQL and in ScyllaDB it is neither true nor false: a relation with null, and so a
//! WHERE that has one, is true of no row. `IN` is true of the alternatives that are not null; `NOT IN` with a null
//! among them is true of no row. A tuple with a null in it is as good as null.

use std::borrow::Cow;

use schema::Table;
use stdx::{LongVec, preempt};
use types::TupleIter;

use super::clustering::{Choice, ClusteringBound, ClusteringRestriction};
use super::filter::{Filter, Test};
use super::indexed::IndexedTest;
use super::partition::{PartitionRestriction, TokenBound};
use super::{Restrictions, no_column};
use crate::operand::Alternatives;
use crate::{BindContext, Evaluated, InOperand, Operand, PlanError};

/// What a statement takes a comparison with null for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum NullRule {
    /// A mistake: Cassandra's rule.
    #[default]
    Error,
    /// Neither true nor false: the rule of SQL and of ScyllaDB.
    Unknown,
}

/// What is left of a restriction without its nulls.
enum Left<T> {
    /// All of it: it has none.
    All,
    /// This.
    Part(T),
    /// It is true of nothing.
    Nothing,
}

fn is_null(operand: &Operand, ctx: &BindContext<'_>) -> Result<bool, PlanError> {
    Ok(matches!(operand.eval(ctx)?, Evaluated::Null))
}

fn any_null<'o>(operands: impl IntoIterator<Item = &'o Operand>, ctx: &BindContext<'_>) -> Result<bool, PlanError> {
    for operand in operands {
        if is_null(operand, ctx)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether one of the first `fields` of a serialised tuple is null or missing.
fn has_null_field(tuple: &[u8], fields: usize) -> bool {
    let mut parts = TupleIter::new(tuple);
    (0..fields).any(|_| !matches!(parts.next(), Some(Ok(Some(_)))))
}

/// The alternatives that are not null; those that are tuples of so many fields must not have a null in them either.
fn alternatives(from: &InOperand, fields: Option<usize>, ctx: &BindContext<'_>) -> Result<Left<InOperand>, PlanError> {
    let (values, receiver): (Alternatives<'_>, _) = match from {
        InOperand::List { receiver, operand } => match operand.eval_list_with_nulls(receiver, ctx)? {
            None => return Ok(Left::Nothing),
            Some(values) => (values, receiver),
        },
        InOperand::Terms { receiver, operands } => {
            let mut values = Vec::with_capacity(operands.len());
            for operand in operands {
                preempt::point();
                values.push(match operand.eval(ctx)? {
                    Evaluated::Value(value) => Some(value),
                    Evaluated::Null => None,
                    // Refused where the values are read.
                    Evaluated::Unset => return Ok(Left::All),
                });
            }
            (values, receiver)
        }
    };
    let is_whole = |value: &&Cow<'_, [u8]>| fields.is_none_or(|fields| !has_null_field(value, fields));
    let left = || values.iter().flatten().filter(is_whole);
    if left().count() == values.len() {
        return Ok(Left::All);
    }
    Ok(Left::Part(InOperand::Terms {
        receiver: receiver.clone(),
        operands: left().map(|value| Operand::Constant(value.as_ref().into())).collect(),
    }))
}

/// What is left of several: nothing, if nothing is left of one; a part, if only a part is left of one.
fn each<T: Clone>(
    all: &[T],
    mut left_of: impl FnMut(&T) -> Result<Left<T>, PlanError>,
) -> Result<Left<Vec<T>>, PlanError> {
    let mut parts: Option<Vec<T>> = None;
    for (at, one) in all.iter().enumerate() {
        match left_of(one)? {
            Left::Nothing => return Ok(Left::Nothing),
            Left::All => {}
            Left::Part(part) => parts.get_or_insert_with(|| all.to_vec())[at] = part,
        }
    }
    Ok(parts.map_or(Left::All, Left::Part))
}

impl PartitionRestriction {
    fn without_nulls(&self, ctx: &BindContext<'_>) -> Result<Left<Self>, PlanError> {
        let any_bound = |start: &Option<TokenBound>, end: &Option<TokenBound>| {
            any_null(start.iter().chain(end).map(|bound| &bound.value), ctx)
        };
        let keys_left = |keys: &[InOperand]| each(keys, |key| alternatives(key, None, ctx));
        Ok(match self {
            Self::All => Left::All,
            Self::Key(operands) if any_null(operands, ctx)? => Left::Nothing,
            Self::Token { start, end } if any_bound(start, end)? => Left::Nothing,
            Self::KeysWithin { start, end, .. } if any_bound(start, end)? => Left::Nothing,
            Self::Key(_) | Self::Token { .. } => Left::All,
            Self::Keys(keys) => match keys_left(keys)? {
                Left::All => Left::All,
                Left::Part(keys) => Left::Part(Self::Keys(keys)),
                Left::Nothing => Left::Nothing,
            },
            Self::KeysWithin { keys, start, end } => match keys_left(keys)? {
                Left::All => Left::All,
                Left::Part(keys) => Left::Part(Self::KeysWithin {
                    keys,
                    start: start.clone(),
                    end: end.clone(),
                }),
                Left::Nothing => Left::Nothing,
            },
        })
    }

    /// A restriction of a table's partition key that names no partition.
    fn of_none(table: &Table) -> Self {
        let none = |column: &schema::Column| InOperand::Terms {
            receiver: column.name.clone(),
            operands: LongVec::new(),
        };
        Self::Keys(table.partition_key().map(none).collect())
    }
}

impl Choice {
    fn without_nulls(&self, ctx: &BindContext<'_>) -> Result<Left<Self>, PlanError> {
        let of_values = |operand: &InOperand, fields, whole: &dyn Fn(InOperand) -> Self| {
            Ok::<_, PlanError>(match alternatives(operand, fields, ctx)? {
                Left::All => Left::All,
                Left::Part(operand) => Left::Part(whole(operand)),
                Left::Nothing => Left::Nothing,
            })
        };
        match self {
            Self::One(operand) if is_null(operand, ctx)? => Ok(Left::Nothing),
            Self::One(_) => Ok(Left::All),
            Self::Many(operand) => of_values(operand, None, &Self::Many),
            Self::TupleValues(operand, columns) => {
                of_values(operand, Some(*columns), &|operand| Self::TupleValues(operand, *columns))
            }
            Self::Tuples { columns, alternatives } => {
                let mut left = LongVec::new();
                for tuple in alternatives {
                    preempt::point();
                    if !any_null(tuple, ctx)? {
                        left.push(tuple.clone());
                    }
                }
                Ok(match left.len() {
                    0 if !alternatives.is_empty() => Left::Nothing,
                    all if all == alternatives.len() => Left::All,
                    _ => Left::Part(Self::Tuples {
                        columns: *columns,
                        alternatives: left,
                    }),
                })
            }
        }
    }
}

impl ClusteringBound {
    fn has_null(&self, ctx: &BindContext<'_>) -> Result<bool, PlanError> {
        let (Some(fields), [whole]) = (self.tuple, &self.values[..]) else {
            return any_null(&self.values, ctx);
        };
        Ok(match whole.eval(ctx)? {
            Evaluated::Value(tuple) => has_null_field(&tuple, fields),
            Evaluated::Null => true,
            Evaluated::Unset => false,
        })
    }
}

impl ClusteringRestriction {
    fn without_nulls(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Left<Self>, PlanError> {
        for bound in self.lower.iter().chain(&self.upper) {
            if bound.has_null(ctx)? {
                return Ok(Left::Nothing);
            }
        }
        Ok(match each(&self.prefix, |choice| choice.without_nulls(ctx))? {
            Left::All => Left::All,
            Left::Nothing => Left::Nothing,
            Left::Part(prefix) => Left::Part(Self::new(table, prefix, self.lower.clone(), self.upper.clone())?),
        })
    }
}

impl Filter {
    /// The one value that it compares with.
    fn value(&self) -> Option<&Operand> {
        match &self.test {
            Test::Compare(_, operand, _)
            | Test::Like(operand)
            | Test::Contains { element: operand, .. }
            | Test::ContainsKey { key: operand, .. } => Some(operand),
            Test::In { .. } | Test::NotNull | Test::Element { .. } => None,
        }
    }

    fn without_nulls(&self, ctx: &BindContext<'_>) -> Result<Left<Self>, PlanError> {
        let has_null = match &self.test {
            Test::Element { key, value, .. } => any_null([key, value], ctx)?,
            Test::In {
                alternatives: all,
                comparator,
                is_negated,
            } => match alternatives(all, None, ctx)? {
                Left::All => false,
                Left::Part(alternatives) if !is_negated => {
                    return Ok(Left::Part(Self {
                        analyzer: self.analyzer,
                        test: Test::In {
                            alternatives,
                            comparator: comparator.clone(),
                            is_negated: false,
                        },
                        column: self.column,
                    }));
                }
                Left::Part(_) | Left::Nothing => true,
            },
            _ => any_null(self.value(), ctx)?,
        };
        Ok(if has_null { Left::Nothing } else { Left::All })
    }

    /// Refuses a comparison with a constant null, which could only ever fail.
    ///
    /// # Errors
    /// When it is one.
    pub fn refuse_constant_null(&self, table: &Table) -> Result<(), PlanError> {
        if !matches!(self.value(), Some(Operand::Null)) {
            return Ok(());
        }
        let column = table.columns.get(self.column());
        let name = &column.ok_or_else(|| no_column(table, self.column()))?.name;
        Err(PlanError::Invalid(format!("Unsupported null value for column {name}")))
    }
}

impl Restrictions {
    /// Whether the key can be null by a bound value alone.
    pub(crate) fn has_nulls_of_values_only(&self) -> bool {
        let is_plain = |operand: &Operand| matches!(operand, Operand::Constant(_) | Operand::Marker { .. });
        let mut is_all = true;
        self.clustering.each_single(|operand| is_all &= is_plain(operand));
        let PartitionRestriction::Key(operands) = &self.partition else {
            return false;
        };
        is_all && operands.iter().all(is_plain)
    }

    /// What is true of the same rows in one execution and has no nulls, where a comparison with null is true of none;
    /// None when this has none.
    pub(crate) fn without_nulls(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Option<Self>, PlanError> {
        let nothing = || Self {
            partition: PartitionRestriction::of_none(table),
            clustering: ClusteringRestriction::default(),
            filters: Vec::new(),
            indexed: Vec::new(),
        };
        let partition = self.partition.without_nulls(ctx)?;
        let clustering = self.clustering.without_nulls(table, ctx)?;
        let filters = each(&self.filters, |filter| filter.without_nulls(ctx))?;
        Ok(match (partition, clustering, filters) {
            (Left::Nothing, ..) | (_, Left::Nothing, _) | (.., Left::Nothing) => Some(nothing()),
            (Left::All, Left::All, Left::All) => None,
            (partition, clustering, filters) => Some(Self {
                partition: partition.or(&self.partition),
                clustering: clustering.or(&self.clustering),
                filters: filters.or(&self.filters),
                indexed: self.indexed_without_nulls(ctx)?,
            }),
        })
    }
}

impl Restrictions {
    /// What indexes know of the rows; nothing of conditions that no row fulfils.
    fn indexed_without_nulls(&self, ctx: &BindContext<'_>) -> Result<Vec<IndexedTest>, PlanError> {
        let mut left = Vec::with_capacity(self.indexed.len());
        for test in &self.indexed {
            match test.filter().without_nulls(ctx)? {
                Left::All => left.push(test.clone()),
                Left::Part(filter) => left.push(test.with_filter(filter)),
                Left::Nothing => {}
            }
        }
        Ok(left)
    }
}

impl<T: Clone> Left<T> {
    fn or(self, all: &T) -> T {
        match self {
            Self::Part(part) => part,
            Self::All | Self::Nothing => all.clone(),
        }
    }
}
