//! Conditions that are checked row by row.

use std::borrow::Cow;

use schema::Table;
use types::{CollectionIter, Comparator, CqlType, MapIter};

use super::Comparison;
use crate::{BindContext, Evaluated, InOperand, Operand, PlanError, Row};

/// One condition on one column. Null on either side is not true.
#[derive(Clone, Debug)]
pub struct Filter {
    column: usize,
    test: Test,
}

/// What a column must be.
#[derive(Clone, Debug)]
pub enum FilterTest {
    /// In this relation to a value of its type.
    Compare(Comparison, Operand),
    /// Equal to one of the alternatives.
    In(InOperand),
    /// A collection with this element, or a map with this value.
    Contains(Operand),
    /// A map with this key.
    ContainsKey(Operand),
    /// A map with this entry.
    Entry {
        /// Its key.
        key: Operand,
        /// Its value.
        value: Operand,
    },
}

#[derive(Clone, Debug)]
enum Test {
    Compare(Comparison, Operand, Comparator),
    In(InOperand, Comparator),
    Contains(Operand, CqlType),
    ContainsKey(Operand, CqlType),
    Element { key: Operand, value: Operand, map: CqlType },
}

fn value<'v>(operand: &'v Operand, ctx: &BindContext<'v>) -> Result<Cow<'v, [u8]>, PlanError> {
    let refuse = |what: &str| PlanError::Invalid(format!("Unsupported {what} value for a condition"));
    match operand.eval(ctx)? {
        Evaluated::Value(v) => Ok(v),
        Evaluated::Null => Err(refuse("null")),
        Evaluated::Unset => Err(refuse("unset")),
    }
}

impl Filter {
    /// A test of a column, by its position in `table.columns`.
    ///
    /// # Errors
    /// When the table has no such column, the column's type does not have the test, or the column is compared with a constant null.
    pub fn new(table: &Table, column: usize, test: FilterTest) -> Result<Self, PlanError> {
        let Some(declared) = table.columns.get(column) else {
            return Err(super::no_column(table, column));
        };
        let inner = declared.cql_type.unfrozen();
        let refuse = |what: &str| {
            let name = &declared.name;
            PlanError::Invalid(format!("Column {name} of type {inner} cannot be {what}"))
        };
        if let FilterTest::Compare(_, operand) | FilterTest::Contains(operand) | FilterTest::ContainsKey(operand) =
            &test
            && operand.as_constant() == Some(None)
        {
            return Err(PlanError::Invalid(format!(
                "Unsupported null value for column {}",
                declared.name
            )));
        }
        let test = match test {
            FilterTest::Compare(comparison, operand) => {
                Test::Compare(comparison, operand, declared.cql_type.comparator())
            }
            FilterTest::In(operand) => Test::In(operand, declared.cql_type.comparator()),
            FilterTest::Contains(operand) => match inner {
                CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) => Test::Contains(operand, inner.clone()),
                _ => return Err(refuse("searched for an element")),
            },
            FilterTest::ContainsKey(operand) => match inner {
                CqlType::Map(..) => Test::ContainsKey(operand, inner.clone()),
                _ => return Err(refuse("searched for a key")),
            },
            FilterTest::Entry { key, value } => match inner {
                CqlType::Map(..) => Test::Element {
                    key,
                    value,
                    map: inner.clone(),
                },
                _ => return Err(refuse("searched for an entry")),
            },
        };
        Ok(Self { column, test })
    }

    /// The column it looks at, by position in `table.columns`.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What it tests of the column.
    pub(crate) fn test(&self) -> FilterTest {
        match &self.test {
            Test::Compare(comparison, operand, _) => FilterTest::Compare(*comparison, operand.clone()),
            Test::In(operand, _) => FilterTest::In(operand.clone()),
            Test::Contains(operand, _) => FilterTest::Contains(operand.clone()),
            Test::ContainsKey(operand, _) => FilterTest::ContainsKey(operand.clone()),
            Test::Element { key, value, .. } => FilterTest::Entry {
                key: key.clone(),
                value: value.clone(),
            },
        }
    }

    /// Checks the values of one execution, whether or not there are rows to test.
    ///
    /// # Errors
    /// When a value is null, unset or none of its type.
    pub fn check(&self, table: &Table, ctx: &BindContext<'_>) -> Result<(), PlanError> {
        let check = |operand: &Operand, what: &str| {
            let kind = match operand.eval(ctx)? {
                Evaluated::Value(_) => return Ok(()),
                Evaluated::Null => "null",
                Evaluated::Unset => "unset",
            };
            let name = table.columns.get(self.column).map_or("", |column| &column.name);
            Err(PlanError::Invalid(format!(
                "Unsupported {kind} {what} for column {name}"
            )))
        };
        match &self.test {
            Test::Compare(_, operand, _) | Test::Contains(operand, _) | Test::ContainsKey(operand, _) => {
                check(operand, "value")
            }
            Test::In(operand, _) => operand.eval(ctx).map(|_| ()),
            Test::Element { key, value, .. } => {
                check(key, "map key")?;
                check(value, "map value")
            }
        }
    }

    /// Whether the row passes.
    pub fn passes(&self, row: &Row, ctx: &BindContext<'_>) -> Result<bool, PlanError> {
        let have = row.get(self.column);
        Ok(match &self.test {
            Test::Compare(op, operand, comparator) => {
                let want = value(operand, ctx)?;
                let Some(have) = have else { return Ok(false) };
                let order = comparator.compare(have, &want);
                op.holds(order)
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
