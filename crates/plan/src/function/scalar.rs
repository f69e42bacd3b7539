//! Functions of one row's values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use num_bigint::BigInt;
use schema::UserFunction;
use types::{CqlType, timeuuid};
use uuid::Uuid;

use super::arithmetic::{self, Arithmetic};
use super::collection::CollectionFunction;
use super::mask::Mask;
use super::measure::Measure;
use super::number::{DIGITS_MAX, Number, Problem, ten_to};
use super::operation::Arguments;
use super::time::{self, Moment};
use stdx::random::SplitMix64;

use super::{cast, json, json_read, transcendental, user};
use crate::bind::BindContext;
use crate::error::PlanError;

/// A function. Unless it says otherwise, a null argument makes its result null.
#[derive(Clone, Debug)]
pub(crate) enum Scalar {
    /// `now()`: a version 1 UUID of the execution's moment, another at each call.
    Now(Site),
    /// `uuid()`: a random UUID, another at each call.
    RandomUuid(Site),
    CurrentTimestamp,
    CurrentDate,
    CurrentTime,
    /// The least UUID of a timestamp.
    MinTimeUuid,
    /// The greatest UUID of a timestamp.
    MaxTimeUuid,
    /// A moment in another type.
    Convert {
        from: Moment,
        to: Moment,
    },
    /// `floor(moment, duration [, start])`
    Floor(CqlType),
    /// The value's bytes.
    AsBlob,
    /// Bytes as a value.
    FromBlob(CqlType),
    /// The token of a partition key with so many columns.
    Token,
    Arithmetic(Arithmetic),
    Negate(CqlType),
    Cast {
        from: CqlType,
        to: CqlType,
    },
    Math {
        function: Math,
        cql_type: CqlType,
    },
    Collection(CollectionFunction),
    /// Masks nulls too.
    Mask(Mask),
    Measure(Measure),
    /// The similarity of two vectors of floats.
    Similarity(Similarity),
    ToJson(CqlType),
    FromJson(CqlType),
    /// A user-defined function, which may be called with nulls.
    User(Arc<UserFunction>),
}

/// The place in a statement where a function is called that gives something else at each call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    /// The place's number in its statement.
    pub(crate) number: u64,
    /// How often it was called.
    calls: Arc<AtomicU64>,
}

impl Site {
    fn random(&self, seed: u64) -> (u64, u64) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let first = scramble(seed ^ scramble(self.number).wrapping_add(scramble(call.wrapping_mul(2))));
        (first, scramble(first ^ seed.rotate_left(32)))
    }
}

const fn scramble(seed: u64) -> u64 {
    SplitMix64::new(seed).draw()
}

/// Functions of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Math {
    Abs,
    Exp,
    Log,
    Log10,
    Round,
}

/// Measures of how alike two vectors are, from 0 to 1 for the first two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Similarity {
    Cosine,
    Euclidean,
    DotProduct,
}

impl Scalar {
    /// Whether the same arguments always give the same. What a user-defined function gives is found out in the
    /// execution: it may fail there.
    pub(crate) const fn is_pure(&self) -> bool {
        !matches!(
            self,
            Self::User(_)
                | Self::Now(_)
                | Self::RandomUuid(_)
                | Self::CurrentTimestamp
                | Self::CurrentDate
                | Self::CurrentTime
        )
    }

    /// Gives the place of a call its number.
    pub(crate) fn at_site(mut self, number: u64) -> Self {
        if let Self::Now(site) | Self::RandomUuid(site) = &mut self {
            site.number = number;
        }
        self
    }

    /// The number of the place of its call, if it has one.
    pub(crate) const fn site(&self) -> u64 {
        match self {
            Self::Now(site) | Self::RandomUuid(site) => site.number,
            _ => 0,
        }
    }

    /// The function's value; `None` is null.
    pub(crate) fn apply(
        &self,
        name: &str,
        arguments: Arguments<'_, '_>,
        ctx: &BindContext<'_>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        if let Self::ToJson(cql_type) = self {
            let value = arguments.first().and_then(|argument| argument.as_deref());
            // As in Cassandra, where no bytes are no value of these types.
            let value = value.filter(|bytes| !bytes.is_empty() || !json::is_null_of_no_bytes(cql_type));
            return Ok(Some(json::write_text(cql_type, value).into_bytes()));
        }
        if let Self::Mask(mask) = self {
            return mask.apply(name, arguments);
        }
        if let Self::User(function) = self {
            return user::call(function, arguments);
        }
        let mut values: [&[u8]; 3] = [&[]; 3];
        let mut rest = Vec::new();
        for (index, argument) in arguments.iter().enumerate() {
            let Some(value) = argument.as_deref() else {
                return Ok(None);
            };
            match values.get_mut(index) {
                Some(place) => *place = value,
                None => rest.push(value),
            }
        }
        let [a, b, c] = values;
        Ok(match self {
            Self::Now(site) => {
                let (high, low) = site.random(ctx.random);
                let [c0, c1, n0, n1, n2, n3, n4, n5] = low.to_be_bytes();
                // The lowest bit of the first byte says that the node is not a network card's address.
                let node = [n0 | 1, n1, n2, n3, n4, n5];
                let ticks = ctx
                    .now_us
                    .saturating_mul(10)
                    .saturating_add(i64::from((high & 7) as u8));
                Some(
                    timeuuid::from_parts(ticks, u16::from_be_bytes([c0, c1]), node)
                        .as_bytes()
                        .to_vec(),
                )
            }
            Self::RandomUuid(site) => {
                let (high, low) = site.random(ctx.random);
                let uuid = Uuid::from_u64_pair(high, low).into_bytes();
                Some(uuid::Builder::from_random_bytes(uuid).into_uuid().as_bytes().to_vec())
            }
            Self::CurrentTimestamp => Some(ctx.now_us.div_euclid(1_000).to_be_bytes().to_vec()),
            Self::CurrentDate => Some(time::date_of_millis(ctx.now_us.div_euclid(1_000))),
            Self::CurrentTime => Some(time::time_of_micros(ctx.now_us)),
            Self::MinTimeUuid => millis_of(a).map(|t| timeuuid::min_for_millis(t).as_bytes().to_vec()),
            Self::MaxTimeUuid => millis_of(a).map(|t| timeuuid::max_for_millis(t).as_bytes().to_vec()),
            Self::Convert { from, to } => time::convert(*from, *to, a),
            Self::Floor(cql_type) => {
                let start = (arguments.len() > 2).then_some(c);
                time::floor(cql_type, a, b, start).map_err(PlanError::Invalid)?
            }
            Self::AsBlob => Some(a.to_vec()),
            Self::FromBlob(cql_type) => {
                cql_type.validate(a).map_err(|_| {
                    PlanError::Invalid(format!(
                        "In call to function system.{name}, value {} is not a valid binary representation for type \
                         {cql_type}",
                        CqlType::Blob.format(a)
                    ))
                })?;
                Some(a.to_vec())
            }
            Self::Token if arguments.len() == 1 => Some(types::token::token_of(a).0.to_be_bytes().to_vec()),
            Self::Token => {
                let mut key = Vec::new();
                for value in values.into_iter().take(arguments.len()).chain(rest) {
                    let len = u16::try_from(value.len())
                        .map_err(|_| PlanError::invalid("Key may not be longer than 65535 bytes"))?;
                    key.extend_from_slice(&len.to_be_bytes());
                    key.extend_from_slice(value);
                    key.push(0);
                }
                Some(types::token::token_of(&key).0.to_be_bytes().to_vec())
            }
            Self::Arithmetic(arithmetic) => arithmetic.apply(a, b)?,
            Self::Negate(cql_type) => arithmetic::negate(cql_type, a)?,
            Self::Cast { from, to } => cast::apply(from, to, a)?,
            Self::Math { function, cql_type } => function.apply(cql_type, a)?,
            Self::Collection(function) => function.apply(a, b)?,
            Self::Measure(measure) => measure.apply(name, &values[..arguments.len().min(values.len())])?,
            Self::Similarity(similarity) => similarity.apply(a, b)?,
            Self::FromJson(cql_type) => json_read::read(name, cql_type, a)?,
            Self::ToJson(_) | Self::Mask(_) | Self::User(_) => None,
        })
    }
}

fn millis_of(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

impl Math {
    fn apply(self, cql_type: &CqlType, bytes: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
        let Some(number) = Number::read(cql_type, bytes).map_err(PlanError::Function)? else {
            return Ok(None);
        };
        let result = match (self, &number) {
            (Self::Abs, Number::Integer(n)) => Number::Integer(n.wrapping_abs()),
            (Self::Abs, Number::Float(x)) => Number::Float(x.abs()),
            (Self::Abs, Number::Double(x)) => Number::Double(x.abs()),
            (Self::Abs, Number::VarInt(n)) => Number::VarInt(num_traits::Signed::abs(n)),
            (Self::Abs, Number::Decimal(d)) => Number::Decimal(types::Decimal {
                unscaled: num_traits::Signed::abs(&d.unscaled),
                scale: d.scale,
            }),
            (Self::Round, Number::Float(x)) => Number::Float(round_float(*x)),
            (Self::Round, Number::Double(x)) => Number::Double(round_double(*x)),
            (Self::Round, Number::Decimal(d)) => Number::Decimal(round(d).map_err(PlanError::Function)?),
            (Self::Round, integer) => integer.clone(),
            (_, Number::Decimal(_) | Number::VarInt(_)) => {
                let decimal = number.to_decimal().and_then(|decimal| match self {
                    Self::Exp => transcendental::exp(&decimal),
                    Self::Log => transcendental::log(&decimal),
                    _ => transcendental::log10(&decimal),
                });
                Number::Decimal(decimal.map_err(PlanError::Function)?)
            }
            (Self::Exp, number) => Number::Double(number.to_f64().exp()),
            (Self::Log, number) => Number::Double(number.to_f64().ln()),
            (Self::Log10, number) => Number::Double(number.to_f64().log10()),
        };
        // A NaN that a function makes of a number has a sign, on every machine: Cassandra's has the one of the
        // processor.
        let result = match result {
            Number::Double(x) if x.is_nan() && !number.to_f64().is_nan() => Number::Double(-f64::NAN),
            result => result,
        };
        result.write(cql_type).map(Some).map_err(PlanError::Function)
    }
}

/// To a whole number, half up. Numbers beyond those of 64 bits become the nearest of these, as in Java, and NaN zero.
fn round_double(x: f64) -> f64 {
    let whole = x.floor();
    let rounded = if x - whole >= 0.5 { whole + 1.0 } else { whole };
    #[expect(clippy::cast_possible_truncation, reason = "saturates, as Java's conversion does")]
    let integer = rounded as i64;
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is the result")]
    let rounded = integer as f64;
    rounded
}

/// To a whole number, half up, as [`round_double`] with the limits of 32 bits.
fn round_float(x: f32) -> f32 {
    let whole = x.floor();
    let rounded = if x - whole >= 0.5 { whole + 1.0 } else { whole };
    #[expect(clippy::cast_possible_truncation, reason = "saturates, as Java's conversion does")]
    let integer = rounded as i32;
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is the result")]
    let rounded = integer as f32;
    rounded
}

/// To a whole number without an exponent, half away from zero.
fn round(decimal: &types::Decimal) -> Result<types::Decimal, Problem> {
    let power = i64::from(decimal.scale).abs();
    let whole = |unscaled| types::Decimal { unscaled, scale: 0 };
    let Some(unit) = ten_to(power) else {
        // More digits after the point than there are: less than a half.
        let bits = i64::try_from(decimal.unscaled.bits()).unwrap_or(i64::MAX);
        return if decimal.scale > 0 && bits < power || bits == 0 {
            Ok(whole(BigInt::ZERO))
        } else {
            Err(format!("more than {DIGITS_MAX} digits are needed"))
        };
    };
    if decimal.scale <= 0 {
        return Ok(whole(&decimal.unscaled * unit));
    }
    let half = &unit / 2 * num_traits::Signed::signum(&decimal.unscaled);
    Ok(whole((&decimal.unscaled + half) / unit))
}

impl Similarity {
    fn apply(self, left: &[u8], right: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
        let floats = |bytes: &[u8]| {
            bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|c| f32::from_be_bytes(*c))
                .collect::<Vec<_>>()
        };
        let (left, right) = (floats(left), floats(right));
        if left.len() != right.len() {
            return Err(PlanError::invalid("All arguments must have the same vector dimensions"));
        }
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
        let similarity = match self {
            Self::Cosine => {
                let (left_norm, right_norm) = (dot(&left, &left), dot(&right, &right));
                if left_norm == 0.0 || right_norm == 0.0 {
                    return Err(PlanError::invalid(
                        "Function system.similarity_cosine doesn't support all-zero vectors.",
                    ));
                }
                let norms = (f64::from(left_norm) * f64::from(right_norm)).sqrt();
                let cosine = (f64::from(dot(&left, &right)) / norms) as f32;
                (1.0 + cosine) / 2.0
            }
            Self::Euclidean => {
                let distance = left.iter().zip(&right).map(|(x, y)| (x - y) * (x - y)).sum::<f32>();
                1.0 / (1.0 + distance)
            }
            Self::DotProduct => (1.0 + dot(&left, &right)) / 2.0,
        };
        Ok(Some(similarity.to_be_bytes().to_vec()))
    }
}
