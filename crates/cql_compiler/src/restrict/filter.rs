//! Relations that are checked row by row.

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject, Term};
use plan::restrict::{Filter, FilterTest};
use schema::Column;
use types::CqlType;

use super::{Scope, comparison};
use crate::CompileError;

/// Splits a relation on several columns at once into relations on single columns, by which rows are filtered; `None`
/// for other relations.
///
/// # Errors
/// When it is no equality of the columns with as many terms, and no IN of one column.
pub(super) fn of_single_columns(r: &Relation) -> Result<Option<Vec<Relation>>, CompileError> {
    let Subject::Columns(names) = &r.subject else {
        return Ok(None);
    };
    let of = |name: &String, predicate| Relation {
        subject: Subject::Column(name.clone()),
        predicate,
    };
    let refuse = |what: &str| Err(CompileError::invalid(what));
    match &r.predicate {
        Predicate::Compare(ComparisonOperator::Equal, Term::Tuple(terms)) if terms.len() == names.len() => {
            let equal = |term: &Term| Predicate::Compare(ComparisonOperator::Equal, term.clone());
            Ok(Some(
                names
                    .iter()
                    .zip(terms)
                    .map(|(name, term)| of(name, equal(term)))
                    .collect(),
            ))
        }
        Predicate::Compare(ComparisonOperator::Equal, _) => refuse("This relation is not supported in WHERE"),
        Predicate::In {
            negated: false,
            values: InValues::Terms(tuples),
        } if names.len() == 1 => {
            let single = |tuple: &Term| match tuple {
                Term::Tuple(terms) if terms.len() == 1 => Some(terms[0].clone()),
                _ => None,
            };
            let Some(terms) = tuples.iter().map(single).collect() else {
                return refuse("Multicolumn IN filters are not supported");
            };
            let values = InValues::Terms(terms);
            Ok(Some(vec![of(&names[0], Predicate::In { negated: false, values })]))
        }
        Predicate::In { negated: false, .. } => refuse("Multicolumn IN filters are not supported"),
        _ => refuse("Multi-column slice restrictions cannot be used for filtering."),
    }
}

pub(super) fn compile(r: &Relation, scope: &mut Scope<'_>) -> Result<Filter, CompileError> {
    let unsupported = || CompileError::invalid("This relation is not supported in WHERE");
    match &r.subject {
        Subject::Column(name) => {
            let (column, c) = scope.column(name)?;
            let cql_type = &c.cql_type;
            let inner = cql_type.unfrozen();
            let test = match &r.predicate {
                Predicate::Compare(op @ (ComparisonOperator::Contains | ComparisonOperator::NotContains), term) => {
                    let element = match inner {
                        CqlType::List(e) | CqlType::Set(e) | CqlType::Map(_, e) => e,
                        _ => return Err(unsupported()),
                    };
                    let element = scope.term(term, &format!("value({name})"), element)?;
                    match op {
                        ComparisonOperator::NotContains => FilterTest::NotContains(element),
                        _ => FilterTest::Contains(element),
                    }
                }
                Predicate::Compare(
                    op @ (ComparisonOperator::ContainsKey | ComparisonOperator::NotContainsKey),
                    term,
                ) => {
                    let CqlType::Map(key_type, _) = inner else {
                        return Err(CompileError::invalid(format!(
                            "Cannot use {op} on non-map column {name}"
                        )));
                    };
                    let key = scope.term(term, &format!("key({name})"), key_type)?;
                    match op {
                        ComparisonOperator::NotContainsKey => FilterTest::NotContainsKey(key),
                        _ => FilterTest::ContainsKey(key),
                    }
                }
                Predicate::Compare(ComparisonOperator::Like, term) => {
                    FilterTest::Like(scope.term(term, name, cql_type)?)
                }
                Predicate::IsNotNull => FilterTest::NotNull,
                Predicate::Compare(op, term) => {
                    let comparison = comparison(*op).ok_or_else(unsupported)?;
                    FilterTest::Compare(comparison, scope.term(term, name, cql_type)?)
                }
                Predicate::In { negated, values } => {
                    let alternatives = scope.alternatives(values, name, cql_type)?;
                    if *negated {
                        FilterTest::NotIn(alternatives)
                    } else {
                        FilterTest::In(alternatives)
                    }
                }
                _ => return Err(unsupported()),
            };
            Ok(Filter::new(scope.table, column, test)?)
        }
        Subject::Element { column: name, key } => {
            let (column, c) = scope.column(name)?;
            let (k, v) = map_of(c)?;
            let Predicate::Compare(ComparisonOperator::Equal, term) = &r.predicate else {
                return Err(CompileError::invalid("Only EQ relations are supported on map entries"));
            };
            let key = scope.term(key, &format!("key({name})"), k)?;
            let value = scope.term(term, &format!("value({name})"), v)?;
            Ok(Filter::new(scope.table, column, FilterTest::Entry { key, value })?)
        }
        _ => Err(unsupported()),
    }
}

/// The types of keys and values of a column of which a relation names an element.
///
/// # Errors
/// When it is no map.
pub(super) fn map_of(column: &Column) -> Result<(&CqlType, &CqlType), CompileError> {
    match column.cql_type.unfrozen() {
        CqlType::Map(key, value) => Ok((key, value)),
        CqlType::List(_) => Err(CompileError::invalid(
            "Indexes on list entries (l[index] = value) are not currently supported.",
        )),
        _ => Err(CompileError::invalid(format!(
            "Column {} cannot be used as a map",
            column.name
        ))),
    }
}
