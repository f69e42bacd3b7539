//! IF: what must hold of a row before it is written.
//!
//! A condition is compiled against the table, then bound to the values of one execution, then asked of a row. The row
//! may be missing; then all its columns are null. What null means:
//!
//! - `= null` and `!= null` ask whether there is a value; no other operator may be compared with null.
//! - A column that is null is different from every value, and in no other relation to it.
//! - A multi-cell collection without elements is null and empty at once; a frozen one is either.
//! - `IN` is `=` with one of its alternatives, null among them.

use std::sync::Arc;

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject};
use schema::{Column, ColumnKind};
use types::{CollectionIter, Comparator, CqlType, MapIter, TupleIter};

use crate::restrict::{Scope, operator_text};
use crate::term::{InOperand, Operand};
use crate::{BindContext, Evaluated, QueryError, Row};

/// The IF clause of one statement.
#[derive(Debug, Default)]
pub(crate) enum Conditions {
    /// There is none.
    #[default]
    None,
    /// `IF NOT EXISTS`
    NotExists,
    /// `IF EXISTS`
    Exists,
    /// `IF a = 1 AND …`
    Columns(Vec<Arc<ColumnCondition>>),
}

/// One condition on one column.
#[derive(Debug)]
pub(crate) struct ColumnCondition {
    /// Position in `table.columns`.
    pub(crate) column: usize,
    access: Access,
    test: Test,
    /// Of what is compared: the column's value, or its element's.
    comparator: Comparator,
    /// A collection whose cells are its elements: no element is as good as no value.
    multi_cell: bool,
    /// The column is a map.
    is_map: bool,
}

/// Which part of the column is compared.
#[derive(Debug)]
enum Access {
    Whole,
    /// An element of a list.
    Index(Operand),
    /// A value of a map.
    Key(Operand, Comparator),
}

#[derive(Debug)]
enum Test {
    Compare(ComparisonOperator, Operand),
    In(InOperand, CqlType),
    Contains(Operand, CqlType),
    ContainsKey(Operand),
}

fn invalid<T>(text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::invalid(text))
}

/// Compiles one relation of an IF clause.
pub(super) fn compile(relation: &Relation, scope: &mut Scope<'_>) -> Result<ColumnCondition, QueryError> {
    let name = match &relation.subject {
        Subject::Column(name) | Subject::Element { column: name, .. } | Subject::Field { column: name, .. } => name,
        Subject::Columns(_) | Subject::Token(_) | Subject::Index(_) => {
            return Err(QueryError::Syntax("IF compares single columns".to_owned()));
        }
    };
    let (at, column) = scope.column(name)?;
    let column = column.clone();
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
    let (access, compared, receiver) = match &relation.subject {
        Subject::Element { key, .. } => match inner {
            CqlType::List(element) => {
                let index = scope.term(key, &format!("idx({name})"), &CqlType::Int)?;
                (Access::Index(index), (**element).clone(), format!("value({name})"))
            }
            CqlType::Map(k, value) => {
                let operand = scope.term(key, &format!("key({name})"), k)?;
                let access = Access::Key(operand, k.comparator());
                (access, (**value).clone(), format!("value({name})"))
            }
            CqlType::Set(_) => return invalid(format!("Invalid element access syntax for set column {name}")),
            _ => {
                return invalid(format!(
                    "Invalid element access syntax for non-collection column {name}"
                ));
            }
        },
        Subject::Field { .. } => {
            return invalid(format!(
                "Invalid field access for column {name}: its type is not user-defined"
            ));
        }
        _ => (Access::Whole, column.cql_type.clone(), name.clone()),
    };
    let test = compile_test(relation, &column, &compared, &receiver, scope)?;
    let comparator = match &test {
        Test::Contains(_, element) => element.comparator(),
        Test::ContainsKey(_) => match inner {
            CqlType::Map(k, _) => k.comparator(),
            _ => compared.comparator(),
        },
        Test::Compare(..) | Test::In(..) => compared.comparator(),
    };
    Ok(ColumnCondition {
        column: at,
        multi_cell: column.cql_type.is_multi_cell() && matches!(access, Access::Whole),
        is_map: matches!(inner, CqlType::Map(..)),
        access,
        test,
        comparator,
    })
}

fn compile_test(
    relation: &Relation,
    column: &Column,
    compared: &CqlType,
    receiver: &str,
    scope: &mut Scope<'_>,
) -> Result<Test, QueryError> {
    let name = &column.name;
    let inner = column.cql_type.unfrozen();
    Ok(match &relation.predicate {
        Predicate::Compare(ComparisonOperator::Contains, term) => {
            let element = match inner {
                CqlType::List(e) | CqlType::Set(e) | CqlType::Map(_, e) => (**e).clone(),
                _ => return invalid(format!("Cannot use CONTAINS on non-collection column {name}")),
            };
            Test::Contains(scope.term(term, &format!("value({name})"), &element)?, element)
        }
        Predicate::Compare(ComparisonOperator::ContainsKey, term) => {
            let CqlType::Map(key, _) = inner else {
                return invalid(format!("Cannot use CONTAINS KEY on non-map column {name}"));
            };
            Test::ContainsKey(scope.term(term, &format!("key({name})"), key)?)
        }
        Predicate::Compare(operator, term) => {
            if is_slice(*operator) && compared.unfrozen() == &CqlType::Duration {
                return invalid(format!(
                    "Slice conditions ( {} ) are not supported on durations",
                    operator_text(*operator)
                ));
            }
            Test::Compare(*operator, scope.term(term, receiver, compared)?)
        }
        Predicate::In { negated: false, values } => {
            let alternatives: &InValues = values;
            Test::In(scope.alternatives(alternatives, receiver, compared)?, compared.clone())
        }
        Predicate::In { negated: true, .. } | Predicate::Between(..) | Predicate::IsNotNull | Predicate::Matches(_) => {
            return Err(QueryError::Syntax("This operator is not supported in IF".to_owned()));
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

/// A condition with the values of one execution.
#[derive(Debug)]
pub(crate) struct BoundCondition {
    condition: Arc<ColumnCondition>,
    /// Serialised index or map key.
    key: Vec<u8>,
    /// One value, or the alternatives of IN. None is null.
    wanted: Vec<Option<Vec<u8>>>,
}

fn owned(value: Evaluated<'_>) -> Result<Option<Vec<u8>>, QueryError> {
    match value {
        Evaluated::Value(v) => Ok(Some(v.into_owned())),
        Evaluated::Null => Ok(None),
        Evaluated::Unset => invalid("Invalid 'unset' value in condition"),
    }
}

impl ColumnCondition {
    /// Takes the values of one execution.
    pub(super) fn bind(self: &Arc<Self>, ctx: &BindContext<'_>) -> Result<BoundCondition, QueryError> {
        let key = match &self.access {
            Access::Whole => Vec::new(),
            Access::Index(operand) => {
                let Some(index) = owned(operand.eval(ctx)?)? else {
                    return invalid("Invalid null value for list element access");
                };
                let index: [u8; 4] = index
                    .try_into()
                    .map_err(|_| QueryError::invalid("Invalid value for list element access"))?;
                if i32::from_be_bytes(index) < 0 {
                    return invalid(format!("Invalid negative list index {}", i32::from_be_bytes(index)));
                }
                index.to_vec()
            }
            Access::Key(operand, _) => match owned(operand.eval(ctx)?)? {
                Some(key) => key,
                None => return invalid("Invalid null value for map element access"),
            },
        };
        let not_null = |operand: &Operand, operator: ComparisonOperator| {
            let value = owned(operand.eval(ctx)?)?;
            if value.is_none() {
                return invalid(format!(
                    "Invalid comparison with null for operator \"{}\"",
                    operator_text(operator)
                ));
            }
            Ok(vec![value])
        };
        let wanted = match &self.test {
            Test::Compare(ComparisonOperator::Equal | ComparisonOperator::NotEqual, operand) => {
                vec![owned(operand.eval(ctx)?)?]
            }
            Test::Compare(operator, operand) => not_null(operand, *operator)?,
            Test::Contains(operand, _) => not_null(operand, ComparisonOperator::Contains)?,
            Test::ContainsKey(operand) => not_null(operand, ComparisonOperator::ContainsKey)?,
            Test::In(operand, cql_type) => alternatives(operand, cql_type, ctx)?,
        };
        Ok(BoundCondition {
            condition: self.clone(),
            key,
            wanted,
        })
    }
}

/// The alternatives of IN, null among them; those that are unset are left out.
fn alternatives(
    operand: &InOperand,
    cql_type: &CqlType,
    ctx: &BindContext<'_>,
) -> Result<Vec<Option<Vec<u8>>>, QueryError> {
    match operand {
        InOperand::Terms { operands, .. } => operands
            .iter()
            .filter_map(|o| match o.eval(ctx) {
                Ok(Evaluated::Unset) => None,
                Ok(value) => Some(owned(value)),
                Err(e) => Some(Err(e)),
            })
            .collect(),
        InOperand::List {
            operand: Operand::Marker { index, .. },
            ..
        } => {
            let bytes = match ctx.values.get(*index) {
                Some(crate::Bound::Value(bytes)) => *bytes,
                Some(crate::Bound::Null) => return invalid("Invalid null list in IN condition"),
                Some(crate::Bound::Unset) => return invalid("Invalid 'unset' value in condition"),
                None => return invalid("Invalid amount of bind variables"),
            };
            let truncated = || QueryError::invalid("Not enough bytes to read a list");
            let (count, elements) = bytes.split_first_chunk::<4>().ok_or_else(truncated)?;
            let count = usize::try_from(i32::from_be_bytes(*count)).unwrap_or(0);
            // Behind its count a list is laid out as a tuple is, and may hold nulls here.
            let mut out = Vec::new();
            for element in TupleIter::new(elements).take(count) {
                let element = element.map_err(|_| truncated())?;
                if let Some(bytes) = element {
                    cql_type
                        .validate(bytes)
                        .map_err(|e| QueryError::Invalid(e.to_string()))?;
                }
                out.push(element.map(<[u8]>::to_vec));
            }
            if out.len() < count {
                return Err(truncated());
            }
            Ok(out)
        }
        InOperand::List { .. } => invalid("IN takes a list of values or one marker"),
    }
}

/// A collection without elements.
const EMPTY: &[u8] = &[0; 4];

impl BoundCondition {
    /// Whether it holds of a row; None is a row that is not there.
    pub(super) fn holds(&self, row: Option<&Row>) -> bool {
        let c = &*self.condition;
        let stored = row.and_then(|r| r.get(c.column));
        let actual = match &c.access {
            Access::Whole if c.multi_cell => Some(stored.unwrap_or(EMPTY)),
            Access::Whole => stored,
            Access::Index(_) => stored.and_then(|list| self.element(list)),
            Access::Key(_, comparator) => stored.and_then(|map| self.entry(map, comparator)),
        };
        match &c.test {
            Test::Compare(operator, _) => self
                .wanted
                .iter()
                .all(|w| self.compare(*operator, actual, w.as_deref())),
            Test::In(..) => self
                .wanted
                .iter()
                .any(|w| self.compare(ComparisonOperator::Equal, actual, w.as_deref())),
            Test::Contains(..) | Test::ContainsKey(_) => actual.is_some_and(|a| self.contains(a)),
        }
    }

    fn compare(&self, operator: ComparisonOperator, actual: Option<&[u8]>, wanted: Option<&[u8]>) -> bool {
        let c = &*self.condition;
        let Some(wanted) = wanted else {
            let is_null = actual.is_none() || (c.multi_cell && actual == Some(EMPTY));
            return is_null == (operator == ComparisonOperator::Equal);
        };
        let Some(actual) = actual else {
            return operator == ComparisonOperator::NotEqual;
        };
        let order = c.comparator.compare(actual, wanted);
        match operator {
            ComparisonOperator::Equal => order.is_eq(),
            ComparisonOperator::NotEqual => order.is_ne(),
            ComparisonOperator::Less => order.is_lt(),
            ComparisonOperator::LessOrEqual => order.is_le(),
            ComparisonOperator::Greater => order.is_gt(),
            ComparisonOperator::GreaterOrEqual => order.is_ge(),
            ComparisonOperator::Contains
            | ComparisonOperator::ContainsKey
            | ComparisonOperator::NotContains
            | ComparisonOperator::NotContainsKey
            | ComparisonOperator::Like => false,
        }
    }

    fn contains(&self, collection: &[u8]) -> bool {
        let c = &*self.condition;
        let Some(Some(wanted)) = self.wanted.first() else {
            return false;
        };
        let same = |v: &[u8]| c.comparator.compare(v, wanted).is_eq();
        if !c.is_map {
            return CollectionIter::new(collection).is_ok_and(|mut i| i.any(|e| e.is_ok_and(same)));
        }
        let keys = matches!(&c.test, Test::ContainsKey(_));
        MapIter::new(collection).is_ok_and(|mut i| i.any(|e| e.is_ok_and(|(k, v)| same(if keys { k } else { v }))))
    }

    fn element<'r>(&self, list: &'r [u8]) -> Option<&'r [u8]> {
        let index = i32::from_be_bytes(self.key.as_slice().try_into().ok()?);
        CollectionIter::new(list).ok()?.nth(usize::try_from(index).ok()?)?.ok()
    }

    fn entry<'r>(&self, map: &'r [u8], comparator: &Comparator) -> Option<&'r [u8]> {
        let mut pairs = MapIter::new(map).ok()?.flatten();
        pairs.find_map(|(k, v)| comparator.compare(k, &self.key).is_eq().then_some(v))
    }
}
