//! Relations on the clustering key.

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject, Term};
use plan::Operand;
use plan::restrict::{Choice, ClusteringBound, ClusteringRestriction};
use schema::Column;
use smallvec::SmallVec;
use stdx::LongVec;
use types::CqlType;

use super::{NEEDS_FILTERING, Relations, Scope, StatementKind, flip, single_alternative};
use crate::CompileError;

/// The names of the columns that a relation is about.
fn columns_of(r: &Relation) -> &[String] {
    match &r.subject {
        Subject::Column(c) => std::slice::from_ref(c),
        Subject::Columns(cs) => cs,
        _ => &[],
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
    residue: &mut Relations<'r>,
) -> Result<ClusteringRestriction, CompileError> {
    let table = scope.table;
    if relations.is_empty() {
        return Ok(ClusteringRestriction::new(table, Vec::new(), None, None)?);
    }
    let columns: SmallVec<[&Column; 4]> = table.clustering().collect();
    let allow_filtering = kind == StatementKind::Select { allow_filtering: true };
    let (mut prefix, mut fixed) = (Vec::with_capacity(columns.len().min(relations.len())), 0);
    let (mut lower, mut upper) = (None, None);
    for r in relations {
        check_tuple_order(r, &columns)?;
    }
    let mut left = Relations::from_slice(relations);
    // The prefix: relations of equality that begin at its next column.
    while fixed < columns.len() {
        let next = &columns[fixed].name;
        let mine: Relations<'r> = left.iter().copied().filter(|r| columns_of(r).contains(next)).collect();
        let Some(equal) = mine.iter().copied().find(|r| is_equal(r)) else {
            break;
        };
        if mine.len() > 1 {
            return Err(CompileError::invalid(format!(
                "{next} cannot be restricted by more than one relation if it includes an Equal"
            )));
        }
        if columns_of(equal)[0] != *next {
            break;
        }
        let n = columns_of(equal).len();
        prefix.push(compile_choice(equal, &columns[fixed..fixed + n], scope)?);
        fixed += n;
        left.retain(|r| !std::ptr::eq(*r, equal));
    }
    // Then bounds that begin at the column after it.
    if let Some(next) = columns.get(fixed) {
        let from = &columns[fixed..];
        left.retain(|r| {
            let takes = columns_of(r).first() == Some(&next.name)
                && matches!(&r.predicate, Predicate::Compare(op, _) if flip(*op).is_some());
            !takes
        });
        for r in relations {
            if columns_of(r).first() != Some(&next.name) {
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
            let slot = if is_lower { &mut lower } else { &mut upper };
            if slot.is_some() {
                return Err(CompileError::invalid(format!(
                    "More than one restriction was found for the {} bound on {}",
                    if is_lower { "start" } else { "end" },
                    next.name
                )));
            }
            *slot = Some(ClusteringBound {
                values,
                tuple,
                inclusive,
            });
        }
    }
    if let Some(r) = left.first() {
        if allow_filtering {
            residue.extend(left);
            return Ok(ClusteringRestriction::new(scope.table, prefix, lower, upper)?);
        }
        let name = &columns_of(r)[0];
        let at = columns.iter().position(|c| c.name == *name).unwrap_or(0);
        if matches!(&r.predicate, Predicate::Compare(op, _) if *op == ComparisonOperator::Contains
            || *op == ComparisonOperator::ContainsKey)
        {
            return Err(CompileError::invalid(
                "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering",
            ));
        }
        // A row of a compact table may lack the last columns.
        if kind == StatementKind::Update && lower.is_none() && upper.is_none() && scope.table.compact.is_none() {
            let named = |c: &Column| relations.iter().any(|r| columns_of(r).contains(&c.name));
            let missing: Vec<&str> = columns.iter().filter(|c| !named(c)).map(|c| c.name.as_str()).collect();
            if !missing.is_empty() {
                return Err(CompileError::Invalid(format!(
                    "Some clustering keys are missing: {}",
                    missing.join(", ")
                )));
            }
        }
        let preceding = &columns[at.saturating_sub(1)].name;
        return Err(if lower.is_some() || upper.is_some() {
            CompileError::Invalid(format!(
                "Clustering column \"{name}\" cannot be restricted (preceding column \"{}\" is restricted by a non-EQ \
                 relation)",
                columns[fixed].name
            ))
        } else {
            preceding_is_not_restricted(name, preceding)
        });
    }
    Ok(ClusteringRestriction::new(scope.table, prefix, lower, upper)?)
}

pub(crate) fn preceding_is_not_restricted(name: &str, preceding: &str) -> CompileError {
    CompileError::Invalid(format!(
        "PRIMARY KEY column \"{name}\" cannot be restricted as preceding column \"{preceding}\" is not restricted"
    ))
}

fn check_tuple_order(r: &Relation, columns: &[&Column]) -> Result<(), CompileError> {
    let Subject::Columns(names) = &r.subject else {
        return Ok(());
    };
    let positions: SmallVec<[usize; 4]> = names
        .iter()
        .filter_map(|n| columns.iter().position(|c| &c.name == n))
        .collect();
    for pair in positions.windows(2) {
        if pair[0] == pair[1] {
            return Err(CompileError::invalid(format!(
                "Column \"{}\" appeared twice in a relation: {r}",
                columns[pair[0]].name
            )));
        }
        if pair[1] != pair[0] + 1 {
            return Err(CompileError::invalid(format!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: {r}"
            )));
        }
    }
    Ok(())
}

fn tuple_type(columns: &[&Column]) -> CqlType {
    CqlType::Tuple(columns.iter().map(|c| c.cql_type.clone()).collect())
}

fn tuple_name(columns: &[&Column]) -> String {
    format!(
        "({})",
        columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(",")
    )
}

/// The operands of a comparison: one for each column, or one that holds a whole tuple of so many.
fn compile_values(
    r: &Relation,
    term: &Term,
    columns: &[&Column],
    scope: &mut Scope<'_>,
) -> Result<(Vec<Operand>, Option<usize>), CompileError> {
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

fn compile_tuple(terms: &[Term], columns: &[&Column], scope: &mut Scope<'_>) -> Result<Vec<Operand>, CompileError> {
    if terms.len() != columns.len() {
        return Err(CompileError::invalid(format!(
            "Expected {} elements in value tuple, but got {}: ({})",
            columns.len(),
            terms.len(),
            terms.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        )));
    }
    stdx::preempt::point();
    let mut operands = Vec::with_capacity(terms.len());
    for (term, column) in terms.iter().zip(columns) {
        operands.push(scope.term(term, &column.name, &column.cql_type)?);
    }
    Ok(operands)
}

fn compile_choice(r: &Relation, columns: &[&Column], scope: &mut Scope<'_>) -> Result<Choice, CompileError> {
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
        Predicate::Compare(_, Term::Tuple(terms)) => Ok(Choice::Tuples {
            columns: columns.len(),
            alternatives: vec![compile_tuple(terms, columns, scope)?].into(),
        }),
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
            let mut all = LongVec::new();
            for term in terms {
                if let Term::Tuple(parts) = term {
                    all.push(compile_tuple(parts, columns, scope)?);
                }
            }
            Ok(Choice::Tuples {
                columns: columns.len(),
                alternatives: all,
            })
        }
        Predicate::In { values, .. } => Ok(Choice::TupleValues(
            scope.alternatives(values, &tuple_name(columns), &tuple_type(columns))?,
            columns.len(),
        )),
        _ => Err(CompileError::invalid(NEEDS_FILTERING)),
    }
}
