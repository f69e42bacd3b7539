//! `CAST(value AS type)`: conversions between native types.

use types::{CqlType, Value};

use super::arithmetic::numeric_types;
use super::number::{Number, decimal_in_java, double_text, float_text, read_decimal};
use super::time::{self, Moment};
use super::{Argument, Resolved, Scalar};
use crate::error::PlanError;

/// The types that are cast to a text besides numbers.
const TEXT_SOURCES: [CqlType; 7] = [
    CqlType::Boolean,
    CqlType::Timestamp,
    CqlType::Date,
    CqlType::Time,
    CqlType::TimeUuid,
    CqlType::Uuid,
    CqlType::Inet,
];

/// The function that casts an argument to a type; `None` when the argument is of that type.
pub fn resolve(argument: &dyn Argument, to: &CqlType) -> Result<Option<Resolved>, PlanError> {
    if argument
        .known_type()
        .is_some_and(|from| from.unfrozen() == to.unfrozen())
    {
        return Ok(None);
    }
    let candidates = candidates(&format!("cast_as_{to}"), to);
    if candidates.is_empty() {
        return Err(PlanError::Invalid(format!(
            "{} cannot be cast to {to}",
            argument.text()
        )));
    }
    let name = format!("system.cast_as_{to}");
    super::choose(&name, candidates, &[argument], None, None).map(Some)
}

/// The casts that may also be called by name, `cast_as_int` or `castasint`.
pub(crate) fn candidates_of_name(name: &str) -> Option<Vec<Resolved>> {
    let target = name.strip_prefix("cast_as_").or_else(|| name.strip_prefix("castas"))?;
    let to = CqlType::parse_native(target).ok()?;
    Some(candidates(name, &to)).filter(|found| !found.is_empty())
}

fn candidates(name: &str, to: &CqlType) -> Vec<Resolved> {
    let of = |from: &CqlType| {
        let scalar = Scalar::Cast {
            from: from.clone(),
            to: to.clone(),
        };
        Resolved::scalar(name, vec![from.clone()], to.clone(), scalar)
    };
    let numbers = numeric_types().iter().filter(|from| *from != to);
    match to {
        CqlType::Counter => Vec::new(),
        CqlType::Text => numbers.chain(&TEXT_SOURCES).chain(&[CqlType::Ascii]).map(of).collect(),
        CqlType::Ascii => numbers.chain(&TEXT_SOURCES).map(of).collect(),
        CqlType::Date => [CqlType::TimeUuid, CqlType::Timestamp].iter().map(of).collect(),
        CqlType::Timestamp => [CqlType::TimeUuid, CqlType::Date].iter().map(of).collect(),
        to if numeric_types().contains(to) => numbers.map(of).collect(),
        _ => Vec::new(),
    }
}

/// The value in the other type; `None` is null.
pub(crate) fn apply(from: &CqlType, to: &CqlType, bytes: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
    match to {
        CqlType::Text | CqlType::Ascii => Ok(text_of(from, bytes).map(String::into_bytes)),
        CqlType::Date | CqlType::Timestamp => {
            let moment = |t: &CqlType| match t {
                CqlType::TimeUuid => Moment::TimeUuid,
                CqlType::Date => Moment::Date,
                _ => Moment::Timestamp,
            };
            Ok(time::convert(moment(from), moment(to), bytes))
        }
        _ => match Number::read(from, bytes).map_err(PlanError::Function)? {
            // Cassandra takes the digits of the float here, and those of the double of its value in arithmetic.
            Some(Number::Float(x)) if *to == CqlType::Decimal && x.is_finite() => {
                Ok(read_decimal(&float_text(x)).map(|decimal| Value::Decimal(decimal).serialize()))
            }
            Some(number) => number.write(to).map(Some).map_err(PlanError::Function),
            None => Ok(None),
        },
    }
}

fn text_of(from: &CqlType, bytes: &[u8]) -> Option<String> {
    Some(match from.deserialize(bytes).ok()? {
        Value::Ascii(text) | Value::Text(text) => text,
        Value::Empty => return None,
        Value::Float(x) => float_text(x),
        Value::Double(x) => double_text(x),
        Value::Decimal(d) => decimal_in_java(&d),
        Value::Timestamp(millis) => time::timestamp_text(millis, 'T'),
        _ => from.format_unquoted(bytes),
    })
}
