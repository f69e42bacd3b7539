//! Which rows of a partition a statement is about.

use std::cmp::Ordering;

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject, Term};
use mutation::{Bound, ClusteringSlice};
use schema::{Column, Table, push_component};
use types::{CqlType, TupleIter};

use super::{BoundTerms, NEEDS_FILTERING, Scope, StatementKind, flip, single_alternative};
use crate::term::{InOperand, Operand};
use crate::{BindContext, Evaluated, QueryError};

/// Alternatives for the next one or several columns of the prefix.
#[derive(Debug)]
enum Choice {
    One(Operand),
    Many(InOperand),
    /// `(a, b) IN ((1, 2), …)`: each alternative has one operand a column.
    Tuples(Vec<Vec<Operand>>),
    /// `(a, b) IN ?`, or alternatives that are whole tuples: one value that is split into so many columns.
    TupleValues(InOperand, usize),
}

/// What WHERE says of the clustering key.
#[derive(Debug, Default)]
pub struct ClusteringRestriction {
    prefix: Vec<Choice>,
    /// How many columns the prefix fixes.
    columns: usize,
    lower: Option<BoundTerms>,
    upper: Option<BoundTerms>,
}

fn columns_of(r: &Relation) -> Vec<&str> {
    match &r.subject {
        Subject::Column(c) => vec![c],
        Subject::Columns(cs) => cs.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_equal(r: &Relation) -> bool {
    matches!(
        r.predicate,
        Predicate::Compare(ComparisonOperator::Equal, _) | Predicate::In { negated: false, .. }
    )
}

pub(super) fn compile<'r>(
    relations: &[&'r Relation],
    kind: StatementKind,
    scope: &mut Scope<'_>,
    residue: &mut Vec<&'r Relation>,
) -> Result<ClusteringRestriction, QueryError> {
    let columns: Vec<Column> = scope.table.clustering().cloned().collect();
    let allow_filtering = kind == StatementKind::Select { allow_filtering: true };
    let mut out = ClusteringRestriction::default();
    for r in relations {
        check_tuple_order(r, &columns)?;
    }
    let mut left: Vec<&Relation> = relations.to_vec();
    // The prefix: relations of equality that begin at its next column.
    while out.columns < columns.len() {
        let next = &columns[out.columns].name;
        let mine: Vec<&Relation> = left
            .iter()
            .copied()
            .filter(|r| columns_of(r).contains(&next.as_str()))
            .collect();
        let Some(equal) = mine.iter().copied().find(|r| is_equal(r)) else {
            break;
        };
        if mine.len() > 1 {
            return Err(QueryError::invalid(format!(
                "{next} cannot be restricted by more than one relation if it includes an Equal"
            )));
        }
        if columns_of(equal)[0] != next {
            break;
        }
        let n = columns_of(equal).len();
        out.prefix
            .push(compile_choice(equal, &columns[out.columns..out.columns + n], scope)?);
        out.columns += n;
        left.retain(|r| !std::ptr::eq(*r, equal));
    }
    // Then bounds that begin at the column behind it.
    if let Some(next) = columns.get(out.columns) {
        let from = &columns[out.columns..];
        left.retain(|r| {
            let takes = columns_of(r).first() == Some(&next.name.as_str())
                && matches!(&r.predicate, Predicate::Compare(op, _) if flip(*op).is_some());
            !takes
        });
        for r in relations {
            if columns_of(r).first() != Some(&next.name.as_str()) {
                continue;
            }
            let Predicate::Compare(op, term) = &r.predicate else {
                continue;
            };
            let Some((is_lower, inclusive)) = flip(*op) else {
                continue;
            };
            let n = columns_of(r).len();
            let (values, tuple) = compile_values(r, term, &from[..n], scope)?;
            let slot = if is_lower { &mut out.lower } else { &mut out.upper };
            if slot.is_some() {
                return Err(QueryError::invalid(format!(
                    "More than one restriction was found for the {} bound on {}",
                    if is_lower { "start" } else { "end" },
                    next.name
                )));
            }
            *slot = Some(BoundTerms {
                values,
                tuple,
                inclusive,
            });
        }
    }
    if let Some(r) = left.first() {
        if allow_filtering {
            residue.extend(left);
            return Ok(out);
        }
        let name = columns_of(r)[0];
        let at = columns.iter().position(|c| c.name == name).unwrap_or(0);
        if matches!(&r.predicate, Predicate::Compare(op, _) if *op == ComparisonOperator::Contains
            || *op == ComparisonOperator::ContainsKey)
        {
            return Err(QueryError::invalid(NEEDS_FILTERING));
        }
        let preceding = &columns[at.saturating_sub(1)].name;
        return Err(QueryError::invalid(if out.lower.is_some() || out.upper.is_some() {
            format!(
                "Clustering column \"{name}\" cannot be restricted (preceding column \"{}\" is restricted by a non-EQ \
                 relation)",
                columns[out.columns].name
            )
        } else {
            format!(
                "PRIMARY KEY column \"{name}\" cannot be restricted as preceding column \"{preceding}\" is not restricted"
            )
        }));
    }
    Ok(out)
}

fn check_tuple_order(r: &Relation, columns: &[Column]) -> Result<(), QueryError> {
    let Subject::Columns(names) = &r.subject else {
        return Ok(());
    };
    let positions: Vec<usize> = names
        .iter()
        .filter_map(|n| columns.iter().position(|c| &c.name == n))
        .collect();
    for pair in positions.windows(2) {
        if pair[0] == pair[1] {
            return Err(QueryError::invalid(format!(
                "Column \"{}\" appeared twice in a relation: ({})",
                names[0],
                names.join(", ")
            )));
        }
        if pair[1] != pair[0] + 1 {
            return Err(QueryError::invalid(format!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: ({})",
                names.join(", ")
            )));
        }
    }
    Ok(())
}

fn tuple_type(columns: &[Column]) -> CqlType {
    CqlType::Tuple(columns.iter().map(|c| c.cql_type.clone()).collect())
}

fn tuple_name(columns: &[Column]) -> String {
    format!(
        "({})",
        columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(",")
    )
}

/// The operands of a comparison: one for each column, or one that holds a whole tuple of so many.
fn compile_values(
    r: &Relation,
    term: &Term,
    columns: &[Column],
    scope: &mut Scope<'_>,
) -> Result<(Vec<Operand>, Option<usize>), QueryError> {
    if let Subject::Column(_) = r.subject {
        return Ok((vec![scope.term(term, &columns[0].name, &columns[0].cql_type)?], None));
    }
    if let Term::Tuple(terms) = term {
        return Ok((compile_tuple(terms, columns, scope)?, None));
    }
    Ok((
        vec![scope.term(term, &tuple_name(columns), &tuple_type(columns))?],
        Some(columns.len()),
    ))
}

fn compile_tuple(terms: &[Term], columns: &[Column], scope: &mut Scope<'_>) -> Result<Vec<Operand>, QueryError> {
    if terms.len() != columns.len() {
        return Err(QueryError::invalid(format!(
            "Expected {} elements in value tuple, but got {}: ({})",
            columns.len(),
            terms.len(),
            terms.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        )));
    }
    terms
        .iter()
        .zip(columns)
        .map(|(t, c)| scope.term(t, &c.name, &c.cql_type))
        .collect()
}

fn compile_choice(r: &Relation, columns: &[Column], scope: &mut Scope<'_>) -> Result<Choice, QueryError> {
    let single = matches!(r.subject, Subject::Column(_));
    match &r.predicate {
        Predicate::Compare(_, term) if single => {
            Ok(Choice::One(scope.term(term, &columns[0].name, &columns[0].cql_type)?))
        }
        Predicate::In { values, .. } if single => Ok(Choice::Many(scope.alternatives(
            values,
            &columns[0].name,
            &columns[0].cql_type,
        )?)),
        Predicate::Compare(_, Term::Tuple(terms)) => Ok(Choice::Tuples(vec![compile_tuple(terms, columns, scope)?])),
        Predicate::Compare(_, term) => {
            let value = scope.term(term, &tuple_name(columns), &tuple_type(columns))?;
            Ok(Choice::TupleValues(
                single_alternative(&tuple_name(columns), value),
                columns.len(),
            ))
        }
        Predicate::In {
            values: InValues::Terms(terms),
            ..
        } if terms.iter().all(|t| matches!(t, Term::Tuple(_))) => {
            let mut all = Vec::new();
            for term in terms {
                if let Term::Tuple(parts) = term {
                    all.push(compile_tuple(parts, columns, scope)?);
                }
            }
            Ok(Choice::Tuples(all))
        }
        Predicate::In { values, .. } => Ok(Choice::TupleValues(
            scope.alternatives(values, &tuple_name(columns), &tuple_type(columns))?,
            columns.len(),
        )),
        _ => Err(QueryError::invalid(NEEDS_FILTERING)),
    }
}

fn push_operand(prefix: &mut Vec<u8>, operand: &Operand, ctx: &BindContext<'_>, name: &str) -> Result<(), QueryError> {
    match operand.eval(ctx)? {
        Evaluated::Value(v) => {
            check_length(&v)?;
            push_component(prefix, &v);
            Ok(())
        }
        Evaluated::Null => Err(QueryError::invalid(format!(
            "Invalid null value in condition for column {name}"
        ))),
        Evaluated::Unset => Err(QueryError::invalid(format!("Invalid unset value for column {name}"))),
    }
}

fn check_length(value: &[u8]) -> Result<(), QueryError> {
    if value.len() > super::partition::KEY_BYTES_MAX {
        return Err(QueryError::invalid(format!(
            "Key length of {} is longer than maximum of {}",
            value.len(),
            super::partition::KEY_BYTES_MAX
        )));
    }
    Ok(())
}

/// The values of a bound, split out of a tuple when they come as one.
fn bound_values(bound: &BoundTerms, columns: &[&Column], ctx: &BindContext<'_>) -> Result<Vec<Vec<u8>>, QueryError> {
    let null = |i: usize| {
        QueryError::invalid(format!(
            "Invalid null value in condition for column {}",
            columns.get(i).map_or("", |c| &c.name)
        ))
    };
    let mut values = Vec::new();
    for (i, operand) in bound.values.iter().enumerate() {
        match operand.eval(ctx)? {
            Evaluated::Value(v) => values.push(v.into_owned()),
            Evaluated::Null => return Err(null(i)),
            Evaluated::Unset => {
                return Err(QueryError::invalid(format!(
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
    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        self.columns == 0 && self.lower.is_none() && self.upper.is_none()
    }

    /// The one value of each clustering column when it names exactly one row; otherwise itself again.
    #[expect(clippy::result_large_err, reason = "once a statement's compilation")]
    pub fn into_single_row(self, table: &Table) -> Result<Vec<Operand>, Self> {
        let single = |c: &Choice| match c {
            Choice::One(_) => true,
            Choice::Tuples(t) => t.len() == 1,
            _ => false,
        };
        if !self.is_full(table) || self.has_bounds() || !self.prefix.iter().all(single) {
            return Err(self);
        }
        Ok(self
            .prefix
            .into_iter()
            .flat_map(|c| match c {
                Choice::One(o) => vec![o],
                Choice::Tuples(mut t) => t.swap_remove(0),
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

    /// Whether a prefix or more is fixed by IN.
    pub fn has_in(&self) -> bool {
        self.prefix.iter().any(|c| match c {
            Choice::One(_) => false,
            Choice::Tuples(t) => t.len() > 1,
            _ => true,
        })
    }

    /// Whether it may name several rows by IN. An IN of one alternative is as good as `=`.
    pub fn has_alternatives(&self) -> bool {
        self.prefix.iter().any(|c| match c {
            Choice::One(_) => false,
            Choice::Tuples(t) => t.len() > 1,
            Choice::Many(o) | Choice::TupleValues(o, _) => o.len() != Some(1),
        })
    }

    /// How many columns the prefix fixes.
    pub fn prefix_columns(&self) -> usize {
        self.columns
    }

    /// Whether a range follows the prefix.
    pub fn has_bounds(&self) -> bool {
        self.lower.is_some() || self.upper.is_some()
    }

    /// The serialised prefixes, each once.
    pub fn prefixes(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Vec<Vec<u8>>, QueryError> {
        let columns: Vec<&Column> = table.clustering().collect();
        let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
        let mut at = 0;
        for choice in &self.prefix {
            let mut alternatives: Vec<Vec<u8>> = Vec::new();
            match choice {
                Choice::One(operand) => {
                    let mut part = Vec::new();
                    push_operand(&mut part, operand, ctx, &columns[at].name)?;
                    alternatives.push(part);
                    at += 1;
                }
                Choice::Many(operand) => {
                    for v in operand.eval(ctx)? {
                        check_length(&v)?;
                        let mut part = Vec::new();
                        push_component(&mut part, &v);
                        alternatives.push(part);
                    }
                    at += 1;
                }
                Choice::Tuples(tuples) => {
                    for tuple in tuples {
                        let mut part = Vec::new();
                        for (i, operand) in tuple.iter().enumerate() {
                            push_operand(&mut part, operand, ctx, &columns[at + i].name)?;
                        }
                        alternatives.push(part);
                    }
                    at += tuples.first().map_or(0, Vec::len);
                }
                Choice::TupleValues(operand, n) => {
                    for v in operand.eval(ctx)? {
                        let mut part = Vec::new();
                        for (i, value) in TupleIter::new(&v).take(*n).enumerate() {
                            let Ok(Some(value)) = value else {
                                return Err(QueryError::invalid(format!(
                                    "Invalid null value in condition for column {}",
                                    columns[at + i].name
                                )));
                            };
                            check_length(value)?;
                            push_component(&mut part, value);
                        }
                        alternatives.push(part);
                    }
                    at += n;
                }
            }
            prefixes = prefixes
                .iter()
                .flat_map(|p| alternatives.iter().map(move |a| [&p[..], &a[..]].concat()))
                .collect();
        }
        if self.has_in() {
            let order = &table.clustering_order;
            prefixes.sort_by(|a, b| order.compare(a, b));
            prefixes.dedup_by(|a, b| order.compare(a, b).is_eq());
        }
        Ok(prefixes)
    }

    /// The slices that it means in this execution: sorted, disjoint, none of them empty.
    pub fn slices(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Vec<ClusteringSlice>, QueryError> {
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
        let mut slices = Vec::new();
        for prefix in self.prefixes(table, ctx)? {
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
                        slices.push(slice);
                    }
                }
            }
        }
        slices.sort_by(|a, b| {
            a.start
                .compare(order, &b.start)
                .then_with(|| a.end.compare(order, &b.end))
        });
        // Neighbours that touch become one; repeated alternatives vanish.
        let mut joined: Vec<ClusteringSlice> = Vec::with_capacity(slices.len());
        for s in slices {
            match joined.last_mut() {
                Some(last) if s.start.compare(order, &last.end) != Ordering::Greater => {
                    if s.end.compare(order, &last.end) == Ordering::Greater {
                        last.end = s.end;
                    }
                }
                _ => joined.push(s),
            }
        }
        Ok(joined)
    }
}

/// The rows behind `prefix` whose next columns are above (or below) the given values, by value, whatever the direction
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
