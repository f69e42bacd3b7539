//! Conditions that are checked row by row.

use cql::ast::{ComparisonOperator, Predicate, Relation, Subject};
use types::{CollectionIter, Comparator, CqlType, MapIter};

use super::Scope;
use crate::term::{InOperand, Operand};
use crate::{BindContext, Evaluated, QueryError, Row};

/// One condition on one column. Null on either side is not true.
#[derive(Debug)]
pub struct Filter {
    column: usize,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Compare(ComparisonOperator, Operand, Comparator),
    In(InOperand, Comparator),
    Contains(Operand, CqlType),
    ContainsKey(Operand, CqlType),
    Element { key: Operand, value: Operand, map: CqlType },
}

pub(super) fn compile(r: &Relation, scope: &mut Scope<'_>) -> Result<Filter, QueryError> {
    let filter = compile_any(r, scope)?;
    let (Test::Compare(_, operand, _) | Test::Contains(operand, _) | Test::ContainsKey(operand, _)) = &filter.test
    else {
        return Ok(filter);
    };
    if operand.as_constant() == Some(None) {
        let column = &scope.table.columns[filter.column].name;
        return Err(QueryError::invalid(format!(
            "Unsupported null value for column {column}"
        )));
    }
    Ok(filter)
}

fn compile_any(r: &Relation, scope: &mut Scope<'_>) -> Result<Filter, QueryError> {
    let unsupported = || QueryError::invalid("This relation is not supported in WHERE");
    match &r.subject {
        Subject::Column(name) => {
            let (column, c) = scope.column(name)?;
            let (name, cql_type) = (c.name.clone(), c.cql_type.clone());
            let comparator = cql_type.comparator();
            let inner = cql_type.unfrozen().clone();
            let test = match &r.predicate {
                Predicate::Compare(ComparisonOperator::Contains, term) => {
                    let element = match &inner {
                        CqlType::List(e) | CqlType::Set(e) | CqlType::Map(_, e) => (**e).clone(),
                        _ => return Err(unsupported()),
                    };
                    Test::Contains(scope.term(term, &format!("value({name})"), &element)?, inner)
                }
                Predicate::Compare(ComparisonOperator::ContainsKey, term) => {
                    let CqlType::Map(k, _) = &inner else {
                        return Err(QueryError::invalid(format!(
                            "Cannot use CONTAINS KEY on non-map column {name}"
                        )));
                    };
                    let key = (**k).clone();
                    Test::ContainsKey(scope.term(term, &format!("key({name})"), &key)?, inner)
                }
                Predicate::Compare(op, term) => Test::Compare(*op, scope.term(term, &name, &cql_type)?, comparator),
                Predicate::In { negated: false, values } => {
                    Test::In(scope.alternatives(values, &name, &cql_type)?, comparator)
                }
                _ => return Err(unsupported()),
            };
            Ok(Filter { column, test })
        }
        Subject::Element { column: name, key } => {
            let (column, c) = scope.column(name)?;
            let map = c.cql_type.unfrozen().clone();
            let CqlType::Map(k, v) = &map else {
                return Err(QueryError::invalid(format!("Column {name} cannot be used as a map")));
            };
            let Predicate::Compare(ComparisonOperator::Equal, term) = &r.predicate else {
                return Err(QueryError::invalid(format!(
                    "Only EQ relations are supported on map entries, column {name}"
                )));
            };
            let key = scope.term(key, &format!("key({name})"), k)?;
            let value = scope.term(term, &format!("value({name})"), v)?;
            Ok(Filter {
                column,
                test: Test::Element {
                    key,
                    value,
                    map: map.clone(),
                },
            })
        }
        _ => Err(unsupported()),
    }
}

fn value<'v>(operand: &'v Operand, ctx: &BindContext<'v>) -> Result<std::borrow::Cow<'v, [u8]>, QueryError> {
    match operand.eval(ctx)? {
        Evaluated::Value(v) => Ok(v),
        Evaluated::Null => Err(QueryError::invalid("Unsupported null value for a condition")),
        Evaluated::Unset => Err(QueryError::invalid("Unsupported unset value for a condition")),
    }
}

impl Filter {
    /// The column it looks at, by position in `table.columns`.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Whether the row passes.
    pub fn passes(&self, row: &Row, ctx: &BindContext<'_>) -> Result<bool, QueryError> {
        let have = row.get(self.column);
        Ok(match &self.test {
            Test::Compare(op, operand, comparator) => {
                let want = value(operand, ctx)?;
                let Some(have) = have else { return Ok(false) };
                let order = comparator.compare(have, &want);
                match op {
                    ComparisonOperator::Equal => order.is_eq(),
                    ComparisonOperator::Less => order.is_lt(),
                    ComparisonOperator::LessOrEqual => order.is_le(),
                    ComparisonOperator::Greater => order.is_gt(),
                    ComparisonOperator::GreaterOrEqual => order.is_ge(),
                    _ => false,
                }
            }
            Test::In(operand, comparator) => {
                let Some(have) = have else { return Ok(false) };
                operand.eval(ctx)?.iter().any(|v| comparator.compare(have, v).is_eq())
            }
            Test::Contains(operand, of) => {
                let want = value(operand, ctx)?;
                let Some(have) = have else { return Ok(false) };
                match of {
                    CqlType::Map(_, v) => {
                        let c = v.comparator();
                        MapIter::new(have).is_ok_and(|m| m.flatten().any(|(_, v)| c.compare(v, &want).is_eq()))
                    }
                    CqlType::List(e) | CqlType::Set(e) => {
                        let c = e.comparator();
                        CollectionIter::new(have).is_ok_and(|l| l.flatten().any(|v| c.compare(v, &want).is_eq()))
                    }
                    _ => false,
                }
            }
            Test::ContainsKey(operand, of) => {
                let want = value(operand, ctx)?;
                let (Some(have), CqlType::Map(k, _)) = (have, of) else {
                    return Ok(false);
                };
                let c = k.comparator();
                MapIter::new(have).is_ok_and(|m| m.flatten().any(|(k, _)| c.compare(k, &want).is_eq()))
            }
            Test::Element {
                key,
                value: operand,
                map,
            } => {
                let (key, want) = (value(key, ctx)?, value(operand, ctx)?);
                let (Some(have), CqlType::Map(k, v)) = (have, map) else {
                    return Ok(false);
                };
                let (k, v) = (k.comparator(), v.comparator());
                MapIter::new(have).is_ok_and(|m| {
                    m.flatten()
                        .any(|(a, b)| k.compare(a, &key).is_eq() && v.compare(b, &want).is_eq())
                })
            }
        })
    }
}
