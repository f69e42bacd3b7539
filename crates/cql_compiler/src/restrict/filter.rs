//! Relations that are checked row by row.

use cql::ast::{ComparisonOperator, Predicate, Relation, Subject};
use plan::restrict::{Filter, FilterTest};
use types::CqlType;

use super::{Scope, comparison};
use crate::CompileError;

pub(super) fn compile(r: &Relation, scope: &mut Scope<'_>) -> Result<Filter, CompileError> {
    let unsupported = || CompileError::invalid("This relation is not supported in WHERE");
    match &r.subject {
        Subject::Column(name) => {
            let (column, c) = scope.column(name)?;
            let (name, cql_type) = (c.name.clone(), c.cql_type.clone());
            let inner = cql_type.unfrozen().clone();
            let test = match &r.predicate {
                Predicate::Compare(ComparisonOperator::Contains, term) => {
                    let element = match &inner {
                        CqlType::List(e) | CqlType::Set(e) | CqlType::Map(_, e) => (**e).clone(),
                        _ => return Err(unsupported()),
                    };
                    FilterTest::Contains(scope.term(term, &format!("value({name})"), &element)?)
                }
                Predicate::Compare(ComparisonOperator::ContainsKey, term) => {
                    let CqlType::Map(k, _) = &inner else {
                        return Err(CompileError::invalid(format!(
                            "Cannot use CONTAINS KEY on non-map column {name}"
                        )));
                    };
                    let key = (**k).clone();
                    FilterTest::ContainsKey(scope.term(term, &format!("key({name})"), &key)?)
                }
                Predicate::Compare(op, term) => {
                    let comparison = comparison(*op).ok_or_else(unsupported)?;
                    FilterTest::Compare(comparison, scope.term(term, &name, &cql_type)?)
                }
                Predicate::In { negated: false, values } => {
                    FilterTest::In(scope.alternatives(values, &name, &cql_type)?)
                }
                _ => return Err(unsupported()),
            };
            Ok(Filter::new(scope.table, column, test)?)
        }
        Subject::Element { column: name, key } => {
            let (column, c) = scope.column(name)?;
            let map = c.cql_type.unfrozen().clone();
            let CqlType::Map(k, v) = &map else {
                return Err(CompileError::invalid(format!("Column {name} cannot be used as a map")));
            };
            let Predicate::Compare(ComparisonOperator::Equal, term) = &r.predicate else {
                return Err(CompileError::invalid(format!(
                    "Only EQ relations are supported on map entries, column {name}"
                )));
            };
            let key = scope.term(key, &format!("key({name})"), k)?;
            let value = scope.term(term, &format!("value({name})"), v)?;
            Ok(Filter::new(scope.table, column, FilterTest::Entry { key, value })?)
        }
        _ => Err(unsupported()),
    }
}
