//! Functions of a group of rows. Nulls are passed over, unless a user-defined aggregate wants them.

use std::cmp::Ordering;
use std::sync::Arc;

use num_bigint::BigInt;
use num_traits::{Signed, Zero};
use types::{Comparator, CqlType, Decimal};

use super::arithmetic::{self, ArithmeticOperator};
use super::number::Number;
use super::user::{UserAggregation, UserState};
use super::{Argument, NATIVE, Resolved, What, native};
use crate::error::PlanError;

/// What is found out about a group of rows.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// How many rows there are.
    CountRows,
    /// How many rows have a value.
    Count,
    /// The least value.
    Min(CqlType),
    /// The greatest value.
    Max(CqlType),
    /// The sum, in the type of what is added.
    Sum(CqlType),
    /// The mean, in the type of what is added: of integers the whole part.
    Avg(CqlType),
    /// What a user-defined aggregate makes of it. Its arguments are one tuple.
    User(Arc<UserAggregation>),
}

impl Aggregate {
    /// The signatures of the aggregate of that name.
    pub(crate) fn candidates(name: &str, arguments: &[&dyn Argument]) -> Result<Option<Vec<Resolved>>, PlanError> {
        let signature = |cql_type: &CqlType, returns: CqlType, aggregate: Self| Resolved {
            keyspace: NATIVE.to_owned(),
            name: name.to_owned(),
            arguments: vec![cql_type.clone()],
            returns,
            is_generic: false,
            what: What::Aggregate(aggregate),
        };
        let of_numbers = |aggregate: fn(CqlType) -> Self| {
            let of = |t: &CqlType| signature(t, t.clone(), aggregate(t.clone()));
            arithmetic::numeric_types().iter().map(of).collect()
        };
        let of_any = |aggregate: fn(CqlType) -> Self| {
            let cql_type = native::any_argument(name, arguments)?.frozen();
            Ok::<_, PlanError>(vec![
                signature(&cql_type, cql_type.clone(), aggregate(cql_type.clone())).generic(),
            ])
        };
        Ok(Some(match name {
            "count" => {
                let known = arguments.first().and_then(|argument| argument.known_type());
                vec![signature(&known.unwrap_or(CqlType::Blob), CqlType::BigInt, Self::Count)]
            }
            "min" => of_any(Self::Min)?,
            "max" => of_any(Self::Max)?,
            "sum" => of_numbers(Self::Sum),
            "avg" => of_numbers(Self::Avg),
            _ => return Ok(None),
        }))
    }

    /// Starts with no row.
    pub(crate) fn start(&self) -> Accumulator {
        match self {
            Self::CountRows => Accumulator::Count {
                rows: 0,
                with_null: true,
            },
            Self::Count => Accumulator::Count {
                rows: 0,
                with_null: false,
            },
            Self::Min(t) => Accumulator::Extreme {
                comparator: t.comparator(),
                wanted: Ordering::Less,
                best: None,
            },
            Self::Max(t) => Accumulator::Extreme {
                comparator: t.comparator(),
                wanted: Ordering::Greater,
                best: None,
            },
            Self::Sum(t) => Accumulator::Total {
                cql_type: t.clone(),
                total: Total::of(t),
                rows: None,
            },
            Self::User(of) => Accumulator::User(UserState::start(of)),
            Self::Avg(t) => {
                let total = match Total::of(t) {
                    Total::Decimal(zero) => Total::DecimalMean(zero),
                    total => total,
                };
                Accumulator::Total {
                    cql_type: t.clone(),
                    total,
                    rows: Some(0),
                }
            }
        }
    }
}

/// An aggregate over the rows seen so far.
#[derive(Clone, Debug)]
pub(crate) enum Accumulator {
    Count {
        rows: i64,
        with_null: bool,
    },
    Extreme {
        comparator: Comparator,
        wanted: Ordering,
        best: Option<Vec<u8>>,
    },
    /// A sum, or a mean when rows are counted.
    Total {
        cql_type: CqlType,
        total: Total,
        rows: Option<i64>,
    },
    User(UserState),
}

/// A sum of floating point numbers.
#[derive(Clone, Default, Debug)]
pub(crate) struct FloatingTotal {
    /// Kahan's sum.
    pub(crate) sum: f64,
    /// What was rounded away from it.
    pub(crate) lost: f64,
    /// The sum without correction: keeps infinities and NaN.
    pub(crate) simple: f64,
    /// The sum in decimals, once finite numbers have led beyond the largest double: the mean is taken from it.
    pub(crate) exact: Option<Decimal>,
}

impl FloatingTotal {
    fn add(&mut self, value: f64) -> Result<(), String> {
        let before = self.sum;
        self.simple += value;
        let corrected = value - self.lost;
        self.sum = before + corrected;
        self.lost = (self.sum - before) - corrected;
        self.exact = match self.exact.take() {
            None if self.sum.is_finite() || !before.is_finite() => None,
            _ if !value.is_finite() => None,
            exact => {
                let exact = exact.map_or_else(|| Number::Double(before).to_decimal(), Ok)?;
                let value = Number::Double(value).to_decimal()?;
                Some(arithmetic::in_decimals(ArithmeticOperator::Add, &exact, &value)?)
            }
        };
        Ok(())
    }

    /// The sum in decimals; `None` when a number was infinite or NaN.
    fn in_decimals(&self) -> Result<Option<Decimal>, String> {
        match &self.exact {
            None if self.sum.is_finite() => Number::Double(self.sum).to_decimal().map(Some),
            exact => Ok(exact.clone()),
        }
    }

    /// Adds the sum of the rows after its own.
    pub(crate) fn merge(&mut self, behind: &Self) -> Result<(), String> {
        let before = self.sum;
        let corrected = behind.sum - (self.lost + behind.lost);
        let sum = before + corrected;
        let overflows = self.exact.is_some() || behind.exact.is_some() || (before.is_finite() && !sum.is_finite());
        let both = if overflows {
            self.in_decimals()?.zip(behind.in_decimals()?)
        } else {
            None
        };
        // A sum beyond the largest double is infinite, and stays so whatever finite numbers follow.
        if both.is_none() || self.exact.is_none() {
            self.simple += behind.simple;
        }
        let exact = both.map(|(a, b)| arithmetic::in_decimals(ArithmeticOperator::Add, &a, &b));
        self.exact = exact.transpose()?;
        self.lost = (sum - before) - corrected;
        self.sum = sum;
        Ok(())
    }

    fn finish(self, rows: Option<i64>) -> f64 {
        if let (Some(exact), Some(rows)) = (self.exact, rows) {
            return Number::Decimal(part_of(exact, rows)).to_f64();
        }
        let corrected = self.sum - self.lost;
        let total = if corrected.is_nan() && self.simple.is_infinite() {
            self.simple
        } else {
            corrected
        };
        #[expect(clippy::cast_precision_loss, reason = "a count of rows beyond 2^53 is not reached")]
        let mean = total / rows.unwrap_or(1).max(1) as f64;
        mean
    }
}

/// A sum of any width.
#[derive(Clone, Debug)]
pub(crate) enum Total {
    Integer(BigInt),
    Floating(FloatingTotal),
    Decimal(Decimal),
    /// The mean so far, as Cassandra keeps it: each row moves it by its part of the difference.
    DecimalMean(Decimal),
}

impl Total {
    fn of(cql_type: &CqlType) -> Self {
        match cql_type {
            CqlType::Float | CqlType::Double => Self::Floating(FloatingTotal::default()),
            CqlType::Decimal => Self::Decimal(Decimal {
                unscaled: BigInt::zero(),
                scale: 0,
            }),
            _ => Self::Integer(BigInt::zero()),
        }
    }

    /// Takes the number of the `row`th row, counted from 1.
    fn add(&mut self, number: &Number, row: i64) -> Result<(), String> {
        match self {
            Self::Integer(sum) => match number {
                Number::Integer(n) => *sum += *n,
                other => *sum += other.to_varint()?,
            },
            Self::Floating(total) => total.add(number.to_f64())?,
            Self::Decimal(sum) => {
                *sum = arithmetic::in_decimals(ArithmeticOperator::Add, sum, &number.to_decimal()?)?;
            }
            Self::DecimalMean(mean) => {
                let difference = arithmetic::in_decimals(ArithmeticOperator::Subtract, &number.to_decimal()?, mean)?;
                *mean = arithmetic::in_decimals(ArithmeticOperator::Add, mean, &part_of(difference, row))?;
            }
        }
        Ok(())
    }

    fn finish(self, rows: Option<i64>) -> Number {
        match self {
            Self::Integer(sum) => Number::VarInt(sum / rows.unwrap_or(1).max(1)),
            Self::Floating(total) => Number::Double(total.finish(rows)),
            Self::Decimal(sum) | Self::DecimalMean(sum) => Number::Decimal(sum),
        }
    }
}

/// A decimal divided by a count, with as many digits after the point; half a digit goes to the even side.
fn part_of(decimal: Decimal, count: i64) -> Decimal {
    let count = BigInt::from(count.max(1));
    let (mut quotient, remainder) = (&decimal.unscaled / &count, &decimal.unscaled % &count);
    let twice = remainder.abs() * 2;
    let is_odd = !(&quotient % BigInt::from(2)).is_zero();
    if twice > count || (twice == count && is_odd) {
        quotient += if decimal.unscaled.is_negative() { -1 } else { 1 };
    }
    Decimal {
        unscaled: quotient,
        scale: decimal.scale,
    }
}

impl Accumulator {
    /// Takes one row's value.
    pub(crate) fn add(&mut self, value: Option<&[u8]>) -> Result<(), PlanError> {
        match self {
            Self::User(state) => state.add(value)?,
            Self::Count { rows, with_null } => *rows += i64::from(*with_null || value.is_some()),
            Self::Extreme {
                comparator,
                wanted,
                best,
            } => {
                let Some(value) = value else { return Ok(()) };
                match best {
                    Some(best) if comparator.compare(value, best) != *wanted => {}
                    Some(best) => {
                        best.clear();
                        best.extend_from_slice(value);
                    }
                    None => *best = Some(value.to_vec()),
                }
            }
            Self::Total { cql_type, total, rows } => {
                let number = value.map(|value| Number::read(cql_type, value)).transpose();
                let Some(number) = number.map_err(PlanError::Function)?.flatten() else {
                    return Ok(());
                };
                if let Some(rows) = rows {
                    *rows += 1;
                }
                total.add(&number, rows.unwrap_or(1)).map_err(PlanError::Function)?;
            }
        }
        Ok(())
    }

    /// The value for the group; `None` is null.
    pub(crate) fn finish(self) -> Result<Option<Vec<u8>>, PlanError> {
        match self {
            Self::Count { rows, .. } => Ok(Some(rows.to_be_bytes().to_vec())),
            Self::Extreme { best, .. } => Ok(best),
            Self::User(state) => state.finish(),
            Self::Total { cql_type, total, rows } => {
                let number = total.finish(rows);
                number.write(&cql_type).map(Some).map_err(PlanError::Function)
            }
        }
    }
}
