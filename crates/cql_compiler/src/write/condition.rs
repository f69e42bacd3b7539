//! Relations of an IF clause.

use cql::ast::{ComparisonOperator, Predicate, Relation, Subject};
use plan::write::{ColumnCondition, ConditionTest, Part};
use schema::{Column, ColumnKind};
use types::CqlType;

use crate::CompileError;
use crate::restrict::{Scope, comparison, holder_of_durations};

fn invalid<T>(text: impl Into<String>) -> Result<T, CompileError> {
    Err(CompileError::invalid(text))
}

/// Compiles one relation of an IF clause.
pub(super) fn compile(relation: &Relation, scope: &mut Scope<'_>) -> Result<ColumnCondition, CompileError> {
    let name = match &relation.subject {
        Subject::Column(name) | Subject::Element { column: name, .. } | Subject::Field { column: name, .. } => name,
        Subject::Columns(_) | Subject::Token(_) | Subject::Index(_) => {
            return Err(CompileError::Syntax("IF compares single columns".to_owned()));
        }
    };
    let (at, column) = scope.column(name)?;
    match column.kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering => {
            return invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions"));
        }
        ColumnKind::Static | ColumnKind::Regular => {}
    }
    if column.cql_type.is_counter() {
        return invalid("Conditions on counters are not supported");
    }
    let inner = column.cql_type.unfrozen();
    let (part, compared, receiver) = match &relation.subject {
        Subject::Element { key, .. } => match inner {
            CqlType::List(element) => {
                let index = scope.term(key, &format!("idx({name})"), &CqlType::Int)?;
                (Part::Index(index), (**element).clone(), format!("value({name})"))
            }
            CqlType::Map(k, value) => {
                let operand = scope.term(key, &format!("key({name})"), k)?;
                (Part::Key(operand), (**value).clone(), format!("value({name})"))
            }
            CqlType::Set(_) => return invalid(format!("Invalid element access syntax for set column {name}")),
            _ => {
                return invalid(format!(
                    "Invalid element access syntax for non-collection column {name}"
                ));
            }
        },
        Subject::Field { field, .. } => {
            let CqlType::Udt(udt) = inner else {
                return invalid(format!(
                    "Invalid field access for column {name}: its type is not user-defined"
                ));
            };
            let Some(at) = udt.position(field) else {
                return invalid(format!("Unknown field {field} for column {name}"));
            };
            (Part::Field(at), udt.fields[at].1.clone(), format!("{name}.{field}"))
        }
        _ => (Part::Whole, column.cql_type.clone(), name.clone()),
    };
    let test = compile_test(relation, column, &compared, &receiver, scope)?;
    Ok(ColumnCondition::new(scope.table, at, part, test)?.with_nulls(scope.nulls))
}

fn compile_test(
    relation: &Relation,
    column: &Column,
    compared: &CqlType,
    receiver: &str,
    scope: &mut Scope<'_>,
) -> Result<ConditionTest, CompileError> {
    let name = &column.name;
    let inner = column.cql_type.unfrozen();
    Ok(match &relation.predicate {
        Predicate::Compare(ComparisonOperator::Contains, term) => {
            let element = match inner {
                CqlType::List(e) | CqlType::Set(e) | CqlType::Map(_, e) => (**e).clone(),
                _ => return invalid(format!("Cannot use CONTAINS on non-collection column {name}")),
            };
            ConditionTest::Contains(scope.term(term, &format!("value({name})"), &element)?)
        }
        Predicate::Compare(ComparisonOperator::ContainsKey, term) => {
            let CqlType::Map(key, _) = inner else {
                return invalid(format!("Cannot use CONTAINS KEY on non-map column {name}"));
            };
            ConditionTest::ContainsKey(scope.term(term, &format!("key({name})"), key)?)
        }
        Predicate::Compare(ComparisonOperator::Like, term) => {
            if !matches!(compared, CqlType::Text | CqlType::Ascii) {
                return invalid(format!(
                    "LIKE is allowed only on text and ascii columns, which {name} of type {compared} is not"
                ));
            }
            ConditionTest::Like(scope.term(term, receiver, compared)?)
        }
        Predicate::Compare(operator, term) => {
            if is_slice(*operator) && compared.unfrozen() == &CqlType::Duration {
                return invalid(format!(
                    "Slice conditions ( {operator} ) are not supported on durations"
                ));
            }
            if is_slice(*operator)
                && let Some(holder) = holder_of_durations(compared)
            {
                return invalid(format!(
                    "Slice conditions are not supported on {holder} containing durations"
                ));
            }
            let Some(comparison) = comparison(*operator) else {
                return Err(CompileError::Syntax("This operator is not supported in IF".to_owned()));
            };
            ConditionTest::Compare(comparison, scope.term(term, receiver, compared)?)
        }
        Predicate::In { negated, values } => {
            let alternatives = scope.alternatives(values, receiver, compared)?;
            if *negated {
                ConditionTest::NotIn(alternatives)
            } else {
                ConditionTest::In(alternatives)
            }
        }
        Predicate::Between(..) | Predicate::IsNotNull | Predicate::Matches(_) => {
            return Err(CompileError::Syntax("This operator is not supported in IF".to_owned()));
        }
    })
}

fn is_slice(operator: ComparisonOperator) -> bool {
    matches!(
        operator,
        ComparisonOperator::Less
            | ComparisonOperator::LessOrEqual
            | ComparisonOperator::Greater
            | ComparisonOperator::GreaterOrEqual
    )
}
