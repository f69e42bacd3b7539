//! Conditions that are checked row by row.

use std::borrow::Cow;

use schema::{Index, IndexKind, IndexPart, Table};
use stdx::preempt;
use types::analyzer::{Analyzer, PATTERNS_MAX};
use types::like::is_like;
use types::{CollectionIter, Comparator, CqlType, MapIter};

use super::{Comparison, check_pattern};
use crate::{BindContext, Evaluated, InOperand, Operand, PlanError, Row};

/// One condition on one column. Null on either side is not true.
#[derive(Clone, Debug)]
pub struct Filter {
    pub(super) column: usize,
    pub(super) test: Test,
    /// What an index of the column makes of both texts before they are compared.
    pub(super) analyzer: Analyzer,
}

/// What a column must be.
#[derive(Clone, Debug)]
pub enum FilterTest {
    /// In this relation to a value of its type.
    Compare(Comparison, Operand),
    /// Equal to one of the alternatives.
    In(InOperand),
    /// There, and equal to none of the alternatives.
    NotIn(InOperand),
    /// There.
    NotNull,
    /// A text like this pattern.
    Like(Operand),
    /// A collection that is there, without this element, or a map without this value.
    NotContains(Operand),
    /// A map that is there, without this key.
    NotContainsKey(Operand),
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
pub(super) enum Test {
    Compare(Comparison, Operand, Comparator),
    In {
        alternatives: InOperand,
        comparator: Comparator,
        is_negated: bool,
    },
    NotNull,
    Like(Operand),
    Contains {
        element: Operand,
        of: CqlType,
        is_negated: bool,
    },
    ContainsKey {
        key: Operand,
        map: CqlType,
        is_negated: bool,
    },
    Element {
        key: Operand,
        value: Operand,
        map: CqlType,
    },
}

/// The alternatives of one filter in one execution, in order: a row is compared with few of them, however many there
/// are.
#[derive(Clone, Debug)]
pub struct Alternatives(Vec<Vec<u8>>);

pub(super) fn value<'v>(operand: &'v Operand, ctx: &BindContext<'v>) -> Result<Cow<'v, [u8]>, PlanError> {
    let refuse = |what: &str| PlanError::Invalid(format!("Unsupported {what} value for a condition"));
    match operand.eval(ctx)? {
        Evaluated::Value(v) => Ok(v),
        Evaluated::Null => Err(refuse("null")),
        Evaluated::Unset => Err(refuse("unset")),
    }
}

/// The analyzer of the index that answers a test: of SAI for `=`, of SASI for LIKE too. A longer IN and the bounds of
/// ranges compare texts as they are, as in Cassandra.
fn analyzer_of(table: &Table, column: &str, test: &Test) -> Analyzer {
    let is_answering = |index: &&Index| match test {
        // The parts of a text answer LIKE alone.
        Test::Compare(Comparison::Equal, ..) => index.part == IndexPart::Value && index.analyzer().delimiter.is_none(),
        Test::Like(_) => index.kind == IndexKind::Sasi,
        _ => false,
    };
    let indexes = table.indexes.iter().filter(|index| index.column == column);
    let mut analyzers = indexes.filter(is_answering).map(Index::analyzer);
    analyzers
        .find(|analyzer| !analyzer.is_plain())
        .unwrap_or(Analyzer::PLAIN)
}

/// The patterns of the parts of a pattern of LIKE.
///
/// # Errors
/// When it has too many parts.
pub(super) fn patterns(analyzer: &Analyzer, pattern: &[u8]) -> Result<Vec<Vec<u8>>, PlanError> {
    let patterns = analyzer.patterns(pattern);
    patterns.ok_or_else(|| PlanError::Invalid(format!("LIKE takes a text of at most {PATTERNS_MAX} parts here")))
}

impl Filter {
    /// A test of a column, by its position in `table.columns`.
    ///
    /// # Errors
    /// When the table has no such column, or the column's type does not have the test.
    pub fn new(table: &Table, column: usize, test: FilterTest) -> Result<Self, PlanError> {
        let Some(declared) = table.columns.get(column) else {
            return Err(super::no_column(table, column));
        };
        let inner = declared.cql_type.unfrozen();
        let refuse = |what: &str| {
            let name = &declared.name;
            PlanError::Invalid(format!("Column {name} of type {inner} cannot be {what}"))
        };
        let test = match test {
            FilterTest::Compare(comparison, operand) => {
                Test::Compare(comparison, operand, declared.cql_type.comparator())
            }
            FilterTest::In(alternatives) => Test::In {
                alternatives,
                comparator: declared.cql_type.comparator(),
                is_negated: false,
            },
            FilterTest::NotIn(alternatives) => Test::In {
                alternatives,
                comparator: declared.cql_type.comparator(),
                is_negated: true,
            },
            FilterTest::NotNull => Test::NotNull,
            FilterTest::Like(pattern) => match inner {
                CqlType::Text | CqlType::Ascii => Test::Like(pattern),
                _ => return Err(refuse("compared with LIKE")),
            },
            FilterTest::Contains(_) | FilterTest::NotContains(_) if !inner.is_collection() => {
                return Err(refuse("searched for an element"));
            }
            FilterTest::ContainsKey(_) | FilterTest::NotContainsKey(_) if !matches!(inner, CqlType::Map(..)) => {
                return Err(refuse("searched for a key"));
            }
            FilterTest::Contains(element) => Test::Contains {
                element,
                of: inner.clone(),
                is_negated: false,
            },
            FilterTest::NotContains(element) => Test::Contains {
                element,
                of: inner.clone(),
                is_negated: true,
            },
            FilterTest::ContainsKey(key) => Test::ContainsKey {
                key,
                map: inner.clone(),
                is_negated: false,
            },
            FilterTest::NotContainsKey(key) => Test::ContainsKey {
                key,
                map: inner.clone(),
                is_negated: true,
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
        let analyzer = analyzer_of(table, &declared.name, &test);
        Ok(Self { column, test, analyzer })
    }

    /// The column it looks at, by position in `table.columns`.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What it tests of the column.
    pub(crate) fn test(&self) -> FilterTest {
        match &self.test {
            Test::Compare(comparison, operand, _) => FilterTest::Compare(*comparison, operand.clone()),
            Test::In {
                alternatives,
                is_negated,
                ..
            } => {
                if *is_negated {
                    FilterTest::NotIn(alternatives.clone())
                } else {
                    FilterTest::In(alternatives.clone())
                }
            }
            Test::NotNull => FilterTest::NotNull,
            Test::Like(pattern) => FilterTest::Like(pattern.clone()),
            Test::Contains {
                element, is_negated, ..
            } => {
                if *is_negated {
                    FilterTest::NotContains(element.clone())
                } else {
                    FilterTest::Contains(element.clone())
                }
            }
            Test::ContainsKey { key, is_negated, .. } => {
                if *is_negated {
                    FilterTest::NotContainsKey(key.clone())
                } else {
                    FilterTest::ContainsKey(key.clone())
                }
            }
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
            Test::Compare(_, operand, _)
            | Test::Contains { element: operand, .. }
            | Test::ContainsKey { key: operand, .. } => check(operand, "value"),
            Test::Like(pattern) => {
                check(pattern, "value")?;
                check_pattern(&value(pattern, ctx)?)
            }
            // [`Filter::alternatives`] checks them.
            Test::In { .. } => Ok(()),
            Test::NotNull => Ok(()),
            Test::Element { key, value, .. } => {
                check(key, "map key")?;
                check(value, "map value")
            }
        }
    }

    /// The alternatives of IN in one execution, which every row is compared with.
    ///
    /// # Errors
    /// As [`InOperand::eval`].
    pub fn alternatives(&self, ctx: &BindContext<'_>) -> Result<Alternatives, PlanError> {
        let Test::In {
            alternatives,
            comparator,
            ..
        } = &self.test
        else {
            return Ok(Alternatives(Vec::new()));
        };
        let alternatives = alternatives.eval(ctx)?.into_iter().map(Cow::into_owned);
        let mut alternatives: Vec<Vec<u8>> = preempt::collect(alternatives);
        preempt::sort_by(&mut alternatives, |a, b| comparator.compare(a, b));
        Ok(Alternatives(alternatives))
    }

    /// Whether the row passes. `alternatives` are those of this filter in this execution.
    pub fn passes(&self, row: &Row, ctx: &BindContext<'_>, alternatives: &Alternatives) -> Result<bool, PlanError> {
        let have = row.get(self.column);
        Ok(match &self.test {
            Test::Compare(op, operand, comparator) => {
                let want = value(operand, ctx)?;
                let Some(have) = have else { return Ok(false) };
                let order = if self.analyzer.is_plain() {
                    comparator.compare(have, &want)
                } else {
                    comparator.compare(&self.analyzer.apply(have), &self.analyzer.apply(&want))
                };
                op.holds(order)
            }
            Test::In {
                comparator, is_negated, ..
            } => {
                let Some(have) = have else { return Ok(false) };
                let found = alternatives.0.binary_search_by(|v| comparator.compare(v, have));
                found.is_ok() != *is_negated
            }
            Test::NotNull => have.is_some(),
            Test::Like(pattern) => {
                let pattern = value(pattern, ctx)?;
                if self.analyzer.delimiter.is_some() {
                    let patterns = patterns(&self.analyzer, &pattern)?;
                    let is_like_part =
                        |have, pattern: &Vec<u8>| self.analyzer.parts(have).any(|part| is_like(part, pattern));
                    let is_like_all = |have| patterns.iter().all(|pattern| is_like_part(have, pattern));
                    return Ok(!patterns.is_empty() && have.is_some_and(is_like_all));
                }
                let pattern = self.analyzer.apply(&pattern);
                have.is_some_and(|have| is_like(&self.analyzer.apply(have), &pattern))
            }
            Test::Contains {
                element,
                of,
                is_negated,
            } => {
                let want = value(element, ctx)?;
                let Some(have) = have else { return Ok(false) };
                let has = match of {
                    CqlType::Map(_, v) => {
                        let c = v.comparator();
                        MapIter::new(have).is_ok_and(|m| {
                            m.flatten()
                                .inspect(|_| preempt::point())
                                .any(|(_, v)| c.compare(v, &want).is_eq())
                        })
                    }
                    CqlType::List(e) | CqlType::Set(e) => {
                        let c = e.comparator();
                        CollectionIter::new(have).is_ok_and(|l| {
                            l.flatten()
                                .inspect(|_| preempt::point())
                                .any(|v| c.compare(v, &want).is_eq())
                        })
                    }
                    _ => false,
                };
                has != *is_negated
            }
            Test::ContainsKey { key, map, is_negated } => {
                let want = value(key, ctx)?;
                let (Some(have), CqlType::Map(k, _)) = (have, map) else {
                    return Ok(false);
                };
                let c = k.comparator();
                let has = MapIter::new(have).is_ok_and(|m| {
                    m.flatten()
                        .inspect(|_| preempt::point())
                        .any(|(k, _)| c.compare(k, &want).is_eq())
                });
                has != *is_negated
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
                        .inspect(|_| preempt::point())
                        .any(|(a, b)| k.compare(a, &key).is_eq() && v.compare(b, &want).is_eq())
                })
            }
        })
    }
}
