//! Which rows of a partition a plan is about.

use std::borrow::Cow;
use std::cmp::Ordering;

use mutation::{Bound, ClusteringSlice};
use schema::{Column, Table, pad_with_nulls, push_component};
use stdx::{LongVec, preempt};
use types::TupleIter;

use super::combinations::{Size, check_bytes, combine};
use super::partition::key_too_long;
use crate::{BindContext, Evaluated, InOperand, Operand, PlanError};

/// Alternatives for the next one or several columns of the prefix.
#[derive(Clone, Debug)]
pub enum Choice {
    /// One value of one column.
    One(Operand),
    /// Alternatives for one column.
    Many(InOperand),
    /// Alternatives for several columns at once: each has one operand a column.
    Tuples {
        /// How many columns.
        columns: usize,
        /// The alternatives.
        alternatives: LongVec<Vec<Operand>>,
    },
    /// Alternatives that are whole tuples: each value is split into so many columns.
    TupleValues(InOperand, usize),
}

impl Choice {
    /// How many columns it fixes.
    fn columns(&self) -> usize {
        match self {
            Self::One(_) | Self::Many(_) => 1,
            Self::Tuples { columns, .. } | Self::TupleValues(_, columns) => *columns,
        }
    }

    /// The serialised values of its columns, in the order they were given.
    fn alternatives(&self, columns: &[&Column], ctx: &BindContext<'_>) -> Result<Vec<Vec<u8>>, PlanError> {
        match self {
            Self::One(operand) => {
                let mut part = Vec::new();
                push_operand(&mut part, operand, ctx, &columns[0].name)?;
                Ok(vec![part])
            }
            Self::Many(operand) => {
                let part = |value: Cow<'_, [u8]>| {
                    check_length(&value)?;
                    let mut part = Vec::new();
                    push_component(&mut part, &value);
                    Ok(part)
                };
                preempt::try_collect(operand.eval(ctx)?.into_iter().map(part))
            }
            Self::Tuples { alternatives, .. } => {
                let is_alternative = alternatives.len() > 1;
                let part = |tuple: &Vec<Operand>| tuple_prefix(tuple, columns, is_alternative, ctx);
                preempt::try_collect(alternatives.iter().map(part))
            }
            Self::TupleValues(operand, _) => {
                let part = |value: Cow<'_, [u8]>| split_tuple(&value, columns);
                preempt::try_collect(operand.eval(ctx)?.into_iter().map(part))
            }
        }
    }
}

/// A bound of one or several clustering columns.
#[derive(Clone, Debug)]
pub struct ClusteringBound {
    /// One value for each column, or one that is a tuple.
    pub values: Vec<Operand>,
    /// Some(n): the one value is a tuple of n.
    pub tuple: Option<usize>,
    /// Whether rows with these values are inside.
    pub inclusive: bool,
}

impl ClusteringBound {
    fn columns(&self) -> usize {
        self.tuple.unwrap_or(self.values.len())
    }
}

/// Which rows of a partition, by their clustering key.
#[derive(Clone, Debug, Default)]
pub struct ClusteringRestriction {
    pub(crate) prefix: Vec<Choice>,
    /// How many columns the prefix fixes.
    columns: usize,
    pub(crate) lower: Option<ClusteringBound>,
    pub(crate) upper: Option<ClusteringBound>,
}

fn push_operand(prefix: &mut Vec<u8>, operand: &Operand, ctx: &BindContext<'_>, name: &str) -> Result<(), PlanError> {
    match operand.eval(ctx)? {
        Evaluated::Value(v) => {
            check_length(&v)?;
            push_component(prefix, &v);
            Ok(())
        }
        Evaluated::Null => Err(PlanError::invalid(format!(
            "Invalid null value in condition for column {name}"
        ))),
        Evaluated::Unset => Err(PlanError::invalid(format!("Invalid unset value for column {name}"))),
    }
}

/// The serialised values of a tuple of terms.
fn tuple_prefix(
    terms: &[Operand],
    columns: &[&Column],
    is_alternative: bool,
    ctx: &BindContext<'_>,
) -> Result<Vec<u8>, PlanError> {
    let mut prefix = Vec::new();
    for (i, operand) in terms.iter().enumerate() {
        match operand.eval(ctx)? {
            Evaluated::Value(v) => {
                check_length(&v)?;
                push_component(&mut prefix, &v);
            }
            Evaluated::Null if is_alternative => {
                let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                return Err(PlanError::Invalid(format!(
                    "Invalid null value in condition for columns: [{}]",
                    names.join(", ")
                )));
            }
            Evaluated::Null => {
                let name = &columns[i].name;
                return Err(PlanError::Invalid(format!("Invalid null value for column {name}")));
            }
            Evaluated::Unset => return Err(unset_field(i)),
        }
    }
    Ok(prefix)
}

/// The serialised values of the columns, which one value has as a tuple.
fn split_tuple(value: &[u8], columns: &[&Column]) -> Result<Vec<u8>, PlanError> {
    let mut part = Vec::new();
    for (column, value) in columns.iter().zip(TupleIter::new(value)) {
        let Ok(Some(value)) = value else {
            return Err(PlanError::invalid(format!(
                "Invalid null value in condition for column {}",
                column.name
            )));
        };
        check_length(value)?;
        push_component(&mut part, value);
    }
    Ok(part)
}

fn unset_field(i: usize) -> PlanError {
    PlanError::Invalid(format!("Invalid unset value for tuple field number {i}"))
}

fn check_length(value: &[u8]) -> Result<(), PlanError> {
    if value.len() > super::KEY_BYTES_MAX {
        return Err(key_too_long(value.len()));
    }
    Ok(())
}

/// The values of a bound, split out of a tuple when they come as one.
fn bound_values(
    bound: &ClusteringBound,
    columns: &[&Column],
    ctx: &BindContext<'_>,
) -> Result<Vec<Vec<u8>>, PlanError> {
    let null = |i: usize| {
        PlanError::invalid(format!(
            "Invalid null value in condition for column {}",
            columns.get(i).map_or("", |c| &c.name)
        ))
    };
    let mut values = Vec::new();
    for (i, operand) in bound.values.iter().enumerate() {
        match operand.eval(ctx)? {
            Evaluated::Value(v) => values.push(v.into_owned()),
            Evaluated::Null => return Err(null(i)),
            Evaluated::Unset if bound.tuple.is_some() => {
                let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                return Err(PlanError::Invalid(format!(
                    "Invalid unset value for tuple ({})",
                    names.join(",")
                )));
            }
            Evaluated::Unset if bound.values.len() > 1 => return Err(unset_field(i)),
            Evaluated::Unset => {
                return Err(PlanError::invalid(format!(
                    "Invalid unset value for column {}",
                    columns[i].name
                )));
            }
        }
    }
    if let Some(n) = bound.tuple {
        let tuple = values.remove(0);
        for (i, part) in TupleIter::new(&tuple).take(n).enumerate() {
            match part {
                Ok(Some(v)) => values.push(v.to_vec()),
                _ => return Err(null(i)),
            }
        }
    }
    Ok(values)
}

impl ClusteringRestriction {
    /// The rows whose first clustering columns are one of the choices, in the columns' order, and whose next columns
    /// lie between the bounds.
    ///
    /// # Errors
    /// When the table has fewer clustering columns, or a choice or a bound is not whole.
    pub fn new(
        table: &Table,
        prefix: Vec<Choice>,
        lower: Option<ClusteringBound>,
        upper: Option<ClusteringBound>,
    ) -> Result<Self, PlanError> {
        let restriction = Self {
            columns: prefix.iter().map(Choice::columns).sum(),
            prefix,
            lower,
            upper,
        };
        restriction.check(table)?;
        Ok(restriction)
    }

    /// Refuses a restriction of more columns than the table has, and choices and bounds that are not whole.
    pub(crate) fn check(&self, table: &Table) -> Result<(), PlanError> {
        if self.prefix.is_empty() && self.lower.is_none() && self.upper.is_none() {
            return Ok(());
        }
        let refuse = |what: &str| {
            let (keyspace, name) = (&table.keyspace, &table.name);
            Err(PlanError::Invalid(format!(
                "The restriction of the clustering key of {keyspace}.{name} {what}"
            )))
        };
        let has = table.clustering_order.len();
        let bounded = |bound: &Option<ClusteringBound>| bound.as_ref().map_or(0, ClusteringBound::columns);
        let named = self
            .columns
            .saturating_add(bounded(&self.lower).max(bounded(&self.upper)));
        if named > has {
            return refuse(&format!("names more columns than the {has} that it has"));
        }
        let is_whole = |choice: &Choice| match choice {
            Choice::One(_) | Choice::Many(_) => true,
            Choice::Tuples { columns, alternatives } => {
                *columns > 0 && alternatives.iter().all(|tuple| tuple.len() == *columns)
            }
            Choice::TupleValues(_, columns) => *columns > 0,
        };
        if !self.prefix.iter().all(is_whole) {
            return refuse("has a tuple of another length than its columns");
        }
        let is_whole = |bound: &ClusteringBound| match bound.tuple {
            Some(columns) => columns > 0 && bound.values.len() == 1,
            None => !bound.values.is_empty(),
        };
        if !self.lower.iter().chain(&self.upper).all(is_whole) {
            return refuse("has a bound without values");
        }
        Ok(())
    }

    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        self.columns == 0 && self.lower.is_none() && self.upper.is_none()
    }

    /// The one value of each clustering column when it names exactly one row; otherwise itself again.
    #[expect(clippy::result_large_err, reason = "once a statement's compilation")]
    pub fn into_single_row(self, table: &Table) -> Result<Vec<Operand>, Self> {
        let single = |c: &Choice| match c {
            Choice::One(_) => true,
            Choice::Tuples { alternatives, .. } => alternatives.len() == 1,
            _ => false,
        };
        if !self.names_rows(table) || !self.prefix.iter().all(single) {
            return Err(self);
        }
        Ok(self
            .prefix
            .into_iter()
            .flat_map(|c| match c {
                Choice::One(o) => vec![o],
                Choice::Tuples { mut alternatives, .. } => alternatives.swap_remove(0),
                _ => Vec::new(),
            })
            .collect())
    }

    /// Whether it names exactly one row, by one value for each clustering column.
    pub fn names_one_row(&self, table: &Table) -> bool {
        self.is_full(table) && !self.has_bounds() && self.prefix.iter().all(|c| matches!(c, Choice::One(_)))
    }

    /// Calls `f` with the operand of each column, of a restriction that names one row.
    #[inline]
    pub fn each_single<'o>(&'o self, mut f: impl FnMut(&'o Operand)) {
        for choice in &self.prefix {
            if let Choice::One(operand) = choice {
                f(operand);
            }
        }
    }

    /// Whether whole rows are named: every column by equality or IN.
    pub fn is_full(&self, table: &Table) -> bool {
        self.columns == table.clustering_order.len()
    }

    /// Whether a write may take it for names of rows: all columns of one, or of compact storage the first ones.
    pub fn names_rows(&self, table: &Table) -> bool {
        table.is_row_name(self.columns) && !self.has_bounds()
    }

    /// Whether a prefix or more is fixed by IN.
    pub fn has_in(&self) -> bool {
        self.prefix.iter().any(|c| match c {
            Choice::One(_) => false,
            Choice::Tuples { alternatives, .. } => alternatives.len() > 1,
            _ => true,
        })
    }

    /// Whether it may name several rows by IN. An IN of one alternative is as good as `=`.
    pub fn has_alternatives(&self) -> bool {
        self.prefix.iter().any(|c| match c {
            Choice::One(_) => false,
            Choice::Tuples { alternatives, .. } => alternatives.len() > 1,
            Choice::Many(o) | Choice::TupleValues(o, _) => o.len() != Some(1),
        })
    }

    /// How many prefixes it names by IN in this execution: the product of the distinct alternatives, which is not built
    /// for that.
    ///
    /// # Errors
    /// As [`InOperand::eval`].
    pub fn product(&self, ctx: &BindContext<'_>) -> Result<u64, PlanError> {
        self.prefix.iter().try_fold(1_u64, |product, choice| {
            let alternatives = match choice {
                Choice::One(_) => 1,
                Choice::Many(operand) | Choice::TupleValues(operand, _) => operand.distinct(ctx)?,
                Choice::Tuples { alternatives, .. } => alternatives.len() as u64,
            };
            Ok(product.saturating_mul(alternatives))
        })
    }

    /// The memory that the rows take which it names by IN in several columns, or by IN before a range; 0 of others,
    /// which take what their request does.
    ///
    /// # Errors
    /// As [`ClusteringRestriction::slices`].
    pub fn combination_bytes(&self, table: &Table, ctx: &BindContext<'_>) -> Result<usize, PlanError> {
        if !self.has_alternatives() || self.prefix.len() < 2 && !self.has_bounds() {
            return Ok(0);
        }
        let columns: Vec<&Column> = table.clustering().collect();
        let (mut size, mut at) = (Size::EMPTY, 0);
        for choice in &self.prefix {
            let of = &columns[at..at + choice.columns()];
            size = size.with(choice.alternatives(of, ctx)?.iter().map(Vec::len));
            at += choice.columns();
        }
        for bound in self.lower.iter().chain(&self.upper) {
            let values = bound_values(bound, &columns[at..], ctx)?;
            size = size.with(std::iter::once(values.iter().map(Vec::len).sum()));
        }
        // Each is a prefix, and the start and the end of a slice.
        Ok(3 * size.memory())
    }

    /// How many columns the prefix fixes.
    pub fn prefix_columns(&self) -> usize {
        self.columns
    }

    /// Whether a range follows the prefix.
    pub fn has_bounds(&self) -> bool {
        self.lower.is_some() || self.upper.is_some()
    }

    /// The clustering keys of the rows that it names (see [`ClusteringRestriction::names_rows`]), each once.
    pub(crate) fn rows(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Vec<Vec<u8>>, PlanError> {
        let mut rows = self.prefixes(table, ctx)?;
        // Of compact storage: a null has two bytes.
        let nulls = table.clustering_order.len().saturating_sub(self.columns);
        check_bytes(rows.len().saturating_mul(2 * nulls))?;
        for row in &mut rows {
            preempt::point();
            pad_with_nulls(row, self.columns, &table.clustering_order);
        }
        Ok(rows)
    }

    /// The serialised prefixes, each once.
    fn prefixes(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Vec<Vec<u8>>, PlanError> {
        let columns: Vec<&Column> = table.clustering().collect();
        let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
        let mut at = 0;
        for choice in &self.prefix {
            let of = &columns[at..at + choice.columns()];
            prefixes = combine(prefixes, choice.alternatives(of, ctx)?)?;
            at += choice.columns();
            // IN () names no row, whatever the columns after it are compared with.
            if prefixes.is_empty() {
                break;
            }
        }
        if self.has_in() {
            let order = &table.clustering_order;
            preempt::sort_by(&mut prefixes, |a, b| order.compare(a, b));
            prefixes.dedup_by(|a, b| {
                preempt::point();
                order.compare(a, b).is_eq()
            });
        }
        Ok(prefixes)
    }

    /// The slices that it means in this execution: sorted, disjoint, none of them empty.
    ///
    /// # Errors
    /// When a value is null or unset, and when the slices are too many or too long.
    pub fn slices(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Vec<ClusteringSlice>, PlanError> {
        let order = &table.clustering_order;
        let columns: Vec<&Column> = table.clustering().skip(self.columns).collect();
        let lower = self
            .lower
            .as_ref()
            .map(|b| bound_values(b, &columns, ctx))
            .transpose()?;
        let upper = self
            .upper
            .as_ref()
            .map(|b| bound_values(b, &columns, ctx))
            .transpose()?;
        let (mut slices, mut bytes) = (Vec::new(), 0);
        for prefix in self.prefixes(table, ctx)? {
            preempt::point();
            let all = vec![ClusteringSlice::exactly(&prefix)];
            let above = match (&lower, &self.lower) {
                (Some(v), Some(b)) => tuple_slices(&prefix, &columns, v, true, b.inclusive),
                _ => all.clone(),
            };
            let below = match (&upper, &self.upper) {
                (Some(v), Some(b)) => tuple_slices(&prefix, &columns, v, false, b.inclusive),
                _ => all,
            };
            for a in &above {
                for b in &below {
                    preempt::point();
                    let start = if a.start.compare(order, &b.start) == Ordering::Less {
                        &b.start
                    } else {
                        &a.start
                    };
                    let end = if a.end.compare(order, &b.end) == Ordering::Less {
                        &a.end
                    } else {
                        &b.end
                    };
                    let slice = ClusteringSlice {
                        start: start.clone(),
                        end: end.clone(),
                    };
                    if !slice.is_empty(order) {
                        bytes += slice.start.prefix.len() + slice.end.prefix.len();
                        // A start and an end for each.
                        check_bytes(bytes / 2)?;
                        preempt::push(&mut slices, slice);
                    }
                }
            }
        }
        // Neighbours that touch become one; repeated alternatives vanish.
        Ok(ClusteringSlice::joined(slices, order))
    }
}

/// The rows under `prefix` whose next columns are above (or below) the given values, by value, whatever the direction
/// of each column: for `(a, b) > (x, y)` those with `a > x`, and those with `a = x` and `b > y`.
fn tuple_slices(
    prefix: &[u8],
    columns: &[&Column],
    values: &[Vec<u8>],
    above: bool,
    inclusive: bool,
) -> Vec<ClusteringSlice> {
    let mut slices = Vec::new();
    let mut fixed = prefix.to_vec();
    for (i, value) in values.iter().enumerate() {
        let last = i + 1 == values.len();
        let mut with = fixed.clone();
        push_component(&mut with, value);
        let include = last && inclusive;
        // In a descending column the greater values come first.
        let behind = above != columns[i].descending;
        slices.push(if behind {
            let start = if include {
                Bound::before(&with)
            } else {
                Bound::after(&with)
            };
            ClusteringSlice {
                start,
                end: Bound::after(&fixed),
            }
        } else {
            let end = if include {
                Bound::after(&with)
            } else {
                Bound::before(&with)
            };
            ClusteringSlice {
                start: Bound::before(&fixed),
                end,
            }
        });
        fixed = with;
    }
    slices
}
