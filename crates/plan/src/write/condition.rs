//! What must hold of a row before it is written.
//!
//! A condition is built for the table, then bound to the values of one execution, then asked of a row. The row
//! may be missing; then all its columns are null. What null means:
//!
//! - `= null` and `!= null` ask whether there is a value; no other operator may be compared with null, or such a
//!   condition does not hold ([`NullRule`]).
//! - A column that is null is different from every value, and in no other relation to it.
//! - A multi-cell collection without elements is null and empty at once; a frozen one is either.
//! - A multi-cell user-defined type without fields is null. A field of null is null, and so is one that was added
//!   later.
//! - `IN` is `=` with one of its alternatives, null among them, and `NOT IN` is `!=` with each.

use std::sync::Arc;

use schema::{ColumnKind, Table};
use stdx::preempt;
use types::like::is_like;
use types::{CollectionIter, Comparator, CqlType, MapIter, TupleIter};

use crate::operand::{elements_with_nulls, is_as_null};
use crate::restrict::{Comparison, NullRule, check_pattern, no_column};
use crate::{BindContext, Evaluated, InOperand, Operand, PlanError, Row};

/// What must hold of the rows before they are written.
#[derive(Clone, Debug, Default)]
pub enum Conditions {
    /// Nothing.
    #[default]
    None,
    /// They do not exist.
    NotExists,
    /// They exist.
    Exists,
    /// Each of these.
    Columns(Vec<Arc<ColumnCondition>>),
}

impl Conditions {
    /// Whether a column that is not static has a condition.
    pub fn concern_rows(&self, table: &Table) -> bool {
        let is_regular = |c: &Arc<ColumnCondition>| {
            let column = table.columns.get(c.column);
            column.is_some_and(|column| column.kind == ColumnKind::Regular)
        };
        match self {
            Self::Columns(conditions) => conditions.iter().any(is_regular),
            Self::None | Self::Exists | Self::NotExists => false,
        }
    }
}

/// One condition on one column.
#[derive(Debug)]
pub struct ColumnCondition {
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
    nulls: NullRule,
    /// What it is called if it is a collection.
    kind: &'static str,
}

/// Which part of a column a condition is about.
#[derive(Clone, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// An element of a list, by its place.
    Index(Operand),
    /// A value of a map, by its key.
    Key(Operand),
    /// A field of a user-defined type, by its place.
    Field(usize),
}

/// What a condition asks of a column or its part.
#[derive(Clone, Debug)]
pub enum ConditionTest {
    /// It is in this relation to a value of its type.
    Compare(Comparison, Operand),
    /// It is one of the alternatives.
    In(InOperand),
    /// It is none of them.
    NotIn(InOperand),
    /// It is a text that matches this pattern.
    Like(Operand),
    /// To have this element, or this value of a map.
    Contains(Operand),
    /// To have this key.
    ContainsKey(Operand),
}

/// Which part of the column is compared.
#[derive(Debug)]
enum Access {
    Whole,
    /// An element of a list.
    Index(Operand),
    /// A value of a map.
    Key(Operand, Comparator),
    /// A field of a user-defined type.
    Field(usize),
}

#[derive(Debug)]
enum Test {
    Compare(Comparison, Operand),
    In(InOperand, CqlType),
    NotIn(InOperand, CqlType),
    Like(Operand),
    Contains(Operand),
    ContainsKey(Operand),
}

fn invalid<T>(text: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::invalid(text))
}

/// A condition with the values of one execution.
#[derive(Debug)]
pub(crate) struct BoundCondition {
    condition: Arc<ColumnCondition>,
    /// Whether a null in it makes it true of no row.
    is_unknown: bool,
    /// Serialised index or map key.
    key: Vec<u8>,
    /// One value, or the alternatives of IN. None is null.
    wanted: Vec<Option<Vec<u8>>>,
}

fn owned(value: Evaluated<'_>) -> Result<Option<Vec<u8>>, PlanError> {
    match value {
        Evaluated::Value(v) => Ok(Some(v.into_owned())),
        Evaluated::Null => Ok(None),
        Evaluated::Unset => invalid("Invalid 'unset' value in condition"),
    }
}

impl ColumnCondition {
    /// A condition on a column, by its position in `table.columns`.
    ///
    /// # Errors
    /// When the table has no such column, it is a key column or a counter, or its type has no such part or test.
    pub fn new(table: &Table, column: usize, part: Part, test: ConditionTest) -> Result<Self, PlanError> {
        let Some(declared) = table.columns.get(column) else {
            return Err(no_column(table, column));
        };
        let name = &declared.name;
        match declared.kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => {
                return invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions"));
            }
            ColumnKind::Static | ColumnKind::Regular => {}
        }
        if declared.cql_type.is_counter() {
            return invalid("Conditions on counters are not supported");
        }
        let inner = declared.cql_type.unfrozen();
        let (access, compared) = match (part, inner) {
            (Part::Whole, _) => (Access::Whole, &declared.cql_type),
            (Part::Index(index), CqlType::List(element)) => (Access::Index(index), &**element),
            (Part::Key(key, ..), CqlType::Map(key_type, value)) => (Access::Key(key, key_type.comparator()), &**value),
            (Part::Field(at), CqlType::Udt(udt)) if at < udt.fields.len() => (Access::Field(at), &udt.fields[at].1),
            (Part::Index(_) | Part::Key(_) | Part::Field(_), _) => {
                return invalid(format!("Column {name} of type {inner} has no such part"));
            }
        };
        let (test, comparator) = match (test, inner) {
            (ConditionTest::Compare(comparison, operand), _) => {
                (Test::Compare(comparison, operand), compared.comparator())
            }
            (ConditionTest::In(operand), _) => (Test::In(operand, compared.clone()), compared.comparator()),
            (ConditionTest::NotIn(operand), _) => (Test::NotIn(operand, compared.clone()), compared.comparator()),
            (ConditionTest::Like(operand), _) if matches!(compared, CqlType::Text | CqlType::Ascii) => {
                (Test::Like(operand), compared.comparator())
            }
            (ConditionTest::Like(_), _) => {
                return invalid(format!("Column {name} of type {inner} cannot be compared with LIKE"));
            }
            (ConditionTest::Contains(operand), CqlType::List(e) | CqlType::Set(e) | CqlType::Map(_, e)) => {
                (Test::Contains(operand), e.comparator())
            }
            (ConditionTest::Contains(_), _) => {
                return invalid(format!("Cannot use CONTAINS on non-collection column {name}"));
            }
            (ConditionTest::ContainsKey(operand), CqlType::Map(key, _)) => {
                (Test::ContainsKey(operand), key.comparator())
            }
            (ConditionTest::ContainsKey(_), _) => {
                return invalid(format!("Cannot use CONTAINS KEY on non-map column {name}"));
            }
        };
        Ok(Self {
            column,
            multi_cell: declared.cql_type.is_multi_cell()
                && declared.cql_type.is_collection()
                && matches!(access, Access::Whole),
            is_map: matches!(inner, CqlType::Map(..)),
            nulls: NullRule::Error,
            kind: match inner {
                CqlType::Map(..) => "map",
                CqlType::Set(_) => "set",
                _ => "list",
            },
            access,
            test,
            comparator,
        })
    }

    /// This condition with that meaning of null in the positions where only a value has a meaning: what comes after
    /// `<`, `LIKE` and `CONTAINS`, a list after `IN`, and the brackets of an element.
    #[must_use]
    pub fn with_nulls(self, nulls: NullRule) -> Self {
        Self { nulls, ..self }
    }

    /// Whether a null makes it neither true nor false in this execution.
    fn is_unknown(&self, ctx: &BindContext<'_>) -> Result<bool, PlanError> {
        if self.nulls == NullRule::Error {
            return Ok(false);
        }
        let is_null = |operand: &Operand| Ok::<_, PlanError>(matches!(operand.eval(ctx)?, Evaluated::Null));
        let of_part = match &self.access {
            Access::Whole | Access::Field(_) => false,
            Access::Index(operand) | Access::Key(operand, _) => is_null(operand)?,
        };
        let of_value = match &self.test {
            Test::Compare(Comparison::Equal | Comparison::NotEqual, _) => false,
            Test::Compare(_, operand) | Test::Like(operand) | Test::Contains(operand) | Test::ContainsKey(operand) => {
                is_null(operand)?
            }
            Test::In(InOperand::List { operand, .. }, _) | Test::NotIn(InOperand::List { operand, .. }, _) => {
                // Its elements may be null, so it is not read as a whole.
                matches!(operand, Operand::Marker { index, .. } if ctx.values.get(*index) == Some(crate::Bound::Null))
            }
            Test::In(..) | Test::NotIn(..) => false,
        };
        Ok(of_part || of_value)
    }

    /// Takes the values of one execution.
    pub(super) fn bind(self: &Arc<Self>, ctx: &BindContext<'_>) -> Result<BoundCondition, PlanError> {
        if self.is_unknown(ctx)? {
            return Ok(BoundCondition {
                condition: self.clone(),
                is_unknown: true,
                key: Vec::new(),
                wanted: Vec::new(),
            });
        }
        let key = match &self.access {
            Access::Whole | Access::Field(_) => Vec::new(),
            Access::Index(operand) => {
                let Some(index) = owned(operand.eval(ctx)?)? else {
                    return invalid("Invalid null value for list element access");
                };
                let index: [u8; 4] = index
                    .try_into()
                    .map_err(|_| PlanError::invalid("Invalid value for list element access"))?;
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
        let not_null = |operand: &Operand, operator: &str| {
            let value = owned(operand.eval(ctx)?)?;
            if value.is_none() {
                return invalid(format!("Invalid comparison with null for operator \"{}\"", operator));
            }
            Ok(vec![value])
        };
        let wanted = match &self.test {
            Test::Compare(Comparison::Equal | Comparison::NotEqual, operand) => {
                vec![owned(operand.eval(ctx)?)?]
            }
            Test::Compare(operator, operand) => {
                let wanted = not_null(operand, operator.sign())?;
                if self.multi_cell && wanted[0].as_deref() == Some(EMPTY) {
                    let (kind, operator) = (self.kind, operator.sign());
                    return invalid(format!(
                        "Invalid comparison with an empty {kind} for operator \"{operator}\""
                    ));
                }
                wanted
            }
            Test::Contains(operand) => not_null(operand, "CONTAINS")?,
            Test::ContainsKey(operand) => not_null(operand, "CONTAINS KEY")?,
            Test::Like(operand) => {
                let wanted = not_null(operand, "LIKE")?;
                wanted.iter().flatten().try_for_each(|pattern| check_pattern(pattern))?;
                wanted
            }
            Test::In(operand, cql_type) | Test::NotIn(operand, cql_type) => alternatives(operand, cql_type, ctx)?,
        };
        Ok(BoundCondition {
            condition: self.clone(),
            is_unknown: false,
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
) -> Result<Vec<Option<Vec<u8>>>, PlanError> {
    match operand {
        InOperand::Terms { operands, .. } => {
            let known = operands.iter().filter_map(|operand| {
                preempt::point();
                match operand.eval(ctx) {
                    Ok(Evaluated::Unset) => None,
                    Ok(value) => Some(owned(value)),
                    Err(e) => Some(Err(e)),
                }
            });
            preempt::try_collect(known)
        }
        InOperand::List {
            operand: Operand::Marker { index, .. },
            ..
        } => {
            let bytes = match ctx.values.get(*index) {
                Some(crate::Bound::Value(bytes)) => bytes,
                Some(crate::Bound::Null) => return invalid("Invalid null list in IN condition"),
                Some(crate::Bound::Unset) => return invalid("Invalid 'unset' value in condition"),
                None => return invalid("Invalid amount of bind variables"),
            };
            let mut elements = elements_with_nulls(bytes)?;
            for element in &mut elements {
                preempt::point();
                *element = element.filter(|element| !is_as_null(cql_type, element));
            }
            for element in elements.iter().flatten() {
                preempt::point();
                let valid = cql_type.validate(element);
                valid.map_err(|e| PlanError::Invalid(e.to_string()))?;
            }
            let owned = |element: Option<&[u8]>| element.map(<[u8]>::to_vec);
            Ok(preempt::collect(elements.into_iter().map(owned)))
        }
        InOperand::List { .. } => invalid("IN takes a list of values or one marker"),
    }
}

/// A collection without elements.
const EMPTY: &[u8] = &[0; 4];

impl BoundCondition {
    /// Whether it holds of a row; None is a row that is not there.
    pub(super) fn holds(&self, row: Option<&Row>) -> bool {
        if self.is_unknown {
            return false;
        }
        let c = &*self.condition;
        let stored = row.and_then(|r| r.get(c.column));
        let actual = match &c.access {
            Access::Whole if c.multi_cell => Some(stored.unwrap_or(EMPTY)),
            Access::Whole => stored,
            Access::Index(_) => stored.and_then(|list| self.element(list)),
            Access::Field(at) => stored.and_then(|value| TupleIter::new(value).nth(*at)?.ok()?),
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
                .any(|w| self.compare(Comparison::Equal, actual, w.as_deref())),
            Test::NotIn(..) => self
                .wanted
                .iter()
                .all(|w| self.compare(Comparison::NotEqual, actual, w.as_deref())),
            Test::Like(_) => match (actual, self.wanted.first()) {
                (Some(actual), Some(Some(pattern))) => is_like(actual, pattern),
                _ => false,
            },
            Test::Contains(_) | Test::ContainsKey(_) => actual.is_some_and(|a| self.contains(a)),
        }
    }

    fn compare(&self, operator: Comparison, actual: Option<&[u8]>, wanted: Option<&[u8]>) -> bool {
        let c = &*self.condition;
        let Some(wanted) = wanted else {
            let is_null = actual.is_none() || (c.multi_cell && actual == Some(EMPTY));
            return is_null == (operator == Comparison::Equal);
        };
        let Some(actual) = actual else {
            return operator == Comparison::NotEqual;
        };
        // A collection without elements is null, which is neither less nor more than anything.
        let is_null = c.multi_cell && actual == EMPTY;
        let orders = !matches!(operator, Comparison::Equal | Comparison::NotEqual);
        !(is_null && orders) && operator.holds(c.comparator.compare(actual, wanted))
    }

    fn contains(&self, collection: &[u8]) -> bool {
        let c = &*self.condition;
        let Some(Some(wanted)) = self.wanted.first() else {
            return false;
        };
        let same = |v: &[u8]| {
            preempt::point();
            c.comparator.compare(v, wanted).is_eq()
        };
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
        pairs.find_map(|(k, v)| {
            preempt::point();
            comparator.compare(k, &self.key).is_eq().then_some(v)
        })
    }
}
