//! Lengths of values, and numbers of bytes and times as people read them.
//!
//! Cassandra has these functions since its release 6; they are written from its documentation.

use num_bigint::BigInt;
use num_traits::{Signed, Zero};
use types::CqlType;

use super::native::{cannot_infer, wrong_count};
use super::number::Number;
use super::{Argument, Resolved, Scalar};
use crate::error::PlanError;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) enum Measure {
    /// `length(text)`: how many characters it has.
    Characters,
    /// `octet_length(value)`: how many bytes its serialised form has.
    Bytes,
    /// `format_bytes(count [[, from], to])` of a number or text of that type.
    FormatBytes(CqlType),
    /// `format_time(count [[, from], to])` of a number or text of that type.
    FormatTime(CqlType),
}

/// A unit and how many of the least one it is.
type Unit = (&'static str, u64);

/// Units of bytes, the greatest first.
const BYTES: [Unit; 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Units of time, the greatest first, in nanoseconds.
const TIMES: [Unit; 8] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// The types of what is formatted.
const COUNTS: [CqlType; 7] = [
    CqlType::Int,
    CqlType::TinyInt,
    CqlType::SmallInt,
    CqlType::BigInt,
    CqlType::VarInt,
    CqlType::Text,
    CqlType::Ascii,
];

impl Measure {
    /// The function of that name for its arguments; `None` when none of these has the name.
    pub(crate) fn resolve(name: &str, arguments: &[&dyn Argument]) -> Result<Option<Resolved>, PlanError> {
        let signature = match name {
            "length" => {
                let scalar = Scalar::Measure(Self::Characters);
                return Ok(Some(Resolved::scalar(name, vec![CqlType::Text], CqlType::Int, scalar)));
            }
            "octet_length" => "any",
            "format_bytes" | "format_time" => "number, [text], [text]",
            _ => return Ok(None),
        };
        let names_max = if name == "octet_length" { 0 } else { 2 };
        let (argument, names) = match arguments.split_first() {
            Some(split) if split.1.len() <= names_max => split,
            _ => return Err(wrong_count(name, signature)),
        };
        let cql_type = argument.known_type();
        let cql_type = cql_type.ok_or_else(|| cannot_infer(name, signature, *argument))?;
        if name == "octet_length" {
            let scalar = Scalar::Measure(Self::Bytes);
            return Ok(Some(Resolved::scalar(name, vec![cql_type], CqlType::Int, scalar)));
        }
        if !COUNTS.contains(&cql_type) {
            return Err(PlanError::Invalid(format!(
                "Function system.{name} requires a whole number or a text, but found argument {} of type {cql_type}",
                argument.text()
            )));
        }
        let measure = match name {
            "format_bytes" => Self::FormatBytes(cql_type.clone()),
            _ => Self::FormatTime(cql_type.clone()),
        };
        let mut takes = vec![cql_type];
        takes.resize(1 + names.len(), CqlType::Text);
        Ok(Some(Resolved::scalar(
            name,
            takes,
            CqlType::Text,
            Scalar::Measure(measure),
        )))
    }

    /// The value for arguments that are not null.
    pub(crate) fn apply(&self, name: &str, arguments: &[&[u8]]) -> Result<Option<Vec<u8>>, PlanError> {
        let (value, names) = arguments
            .split_first()
            .ok_or_else(|| PlanError::Internal("a function of one value was called without it".to_owned()))?;
        let length = |count: usize| i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes().to_vec();
        let (cql_type, units, written_in) = match self {
            Self::Characters => return Ok(Some(length(String::from_utf8_lossy(value).chars().count()))),
            Self::Bytes => return Ok(Some(length(value.len()))),
            Self::FormatBytes(cql_type) => (cql_type, &BYTES[..], "B"),
            Self::FormatTime(cql_type) => (cql_type, &TIMES[..], "ms"),
        };
        let Some(count) = count_of(name, cql_type, value)? else {
            return Ok(None);
        };
        let (from, to) = match names {
            [from, to] => (unit(name, units, from)?, Some(unit(name, units, to)?)),
            [to] => (named(units, written_in), Some(unit(name, units, to)?)),
            _ => (named(units, written_in), None),
        };
        let least = count * from.1;
        let to = to.unwrap_or_else(|| {
            let fitting = units.iter().find(|unit| BigInt::from(unit.1) <= least);
            *fitting.unwrap_or(&from)
        });
        Ok(Some(format!("{} {}", in_hundredths(&least, to.1), to.0).into_bytes()))
    }
}

/// The number to be written; `None` for an empty value.
fn count_of(name: &str, cql_type: &CqlType, value: &[u8]) -> Result<Option<BigInt>, PlanError> {
    let count = match cql_type {
        CqlType::Text | CqlType::Ascii => {
            let text = String::from_utf8_lossy(value);
            // A varint of more digits than this is no count of anything.
            let parsed = (text.len() <= 40).then(|| text.parse::<BigInt>().ok()).flatten();
            Some(parsed.ok_or_else(|| {
                PlanError::Function(format!("Function system.{name} cannot read '{text}' as a whole number"))
            })?)
        }
        _ => match Number::read(cql_type, value).map_err(PlanError::Function)? {
            Some(Number::Integer(count)) => Some(BigInt::from(count)),
            Some(Number::VarInt(count)) => Some(count),
            _ => None,
        },
    };
    match count {
        Some(count) if count.is_negative() => Err(PlanError::Function(format!(
            "Function system.{name} takes no negative number, but {count} is one"
        ))),
        count => Ok(count),
    }
}

fn named(units: &[Unit], name: &str) -> Unit {
    let found = units.iter().find(|unit| unit.0 == name);
    *found.expect("the unit of a number without one is among them")
}

/// The unit that a call names.
fn unit(name: &str, units: &[Unit], given: &[u8]) -> Result<Unit, PlanError> {
    let given = String::from_utf8_lossy(given);
    let found = units.iter().find(|unit| unit.0 == given);
    found.copied().ok_or_else(|| {
        let known: Vec<_> = units.iter().map(|unit| unit.0).collect();
        PlanError::Invalid(format!(
            "Function system.{name} knows no unit '{given}'; it knows {}",
            known.join(", ")
        ))
    })
}

/// A quotient with at most two digits after the point, half to even, without zeros at its end.
fn in_hundredths(count: &BigInt, unit: u64) -> String {
    let (unit, scaled) = (BigInt::from(unit), count * 100);
    let (mut hundredths, rest) = (&scaled / &unit, &scaled % &unit);
    let twice: BigInt = rest * 2;
    if twice > unit || (twice == unit && (&hundredths % 2_u8) != BigInt::zero()) {
        hundredths += 1;
    }
    let (whole, part): (BigInt, BigInt) = (&hundredths / 100, &hundredths % 100);
    let digits = format!("{whole}.{part:0>2}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(name: &str, count: i64, units: &[&str]) -> Result<String, String> {
        let measure = match name {
            "format_bytes" => Measure::FormatBytes(CqlType::BigInt),
            _ => Measure::FormatTime(CqlType::BigInt),
        };
        let count = count.to_be_bytes();
        let mut arguments = vec![&count[..]];
        arguments.extend(units.iter().map(|unit| unit.as_bytes()));
        let bytes = measure.apply(name, &arguments).map_err(|error| error.to_string())?;
        let bytes = bytes.expect("a number gives a text");
        Ok(String::from_utf8(bytes).expect("the text is UTF-8"))
    }

    /// The first four are those of Cassandra's documentation.
    #[test]
    fn numbers_are_written_in_the_greatest_unit_that_fits() {
        for (name, count, units, expected) in [
            ("format_bytes", 60_000, &[][..], "58.59 KiB"),
            ("format_bytes", 1_234_234, &[], "1.18 MiB"),
            ("format_bytes", 12_342_341_234_234, &[], "11494.7 GiB"),
            ("format_bytes", 43, &[], "43 B"),
            ("format_bytes", 0, &[], "0 B"),
            ("format_bytes", 1024, &[], "1 KiB"),
            ("format_bytes", 1023, &[], "1023 B"),
            ("format_bytes", 1536, &["MiB"], "0 MiB"),
            ("format_bytes", 1536, &["KiB"], "1.5 KiB"),
            ("format_bytes", 2, &["GiB", "KiB"], "2097152 KiB"),
            ("format_time", 7_200_000, &[], "2 h"),
            ("format_time", 1_500, &[], "1.5 s"),
            ("format_time", 0, &[], "0 ms"),
            ("format_time", 90, &["s", "m"], "1.5 m"),
            ("format_time", 5, &["µs", "ns"], "5000 ns"),
            (
                "format_time",
                i64::MAX,
                &["d", "ns"],
                "796899343984252629724800000000000 ns",
            ),
        ] {
            assert_eq!(
                formatted(name, count, units),
                Ok(expected.to_owned()),
                "{count} {units:?}"
            );
        }
    }

    #[test]
    fn what_is_no_number_and_no_unit_is_refused() {
        assert!(formatted("format_bytes", -1, &[]).is_err());
        for unit in ["kib", "KB", ""] {
            let refusal = formatted("format_bytes", 1, &[unit]);
            assert!(
                refusal.as_ref().is_err_and(|text| text.contains("GiB, MiB, KiB, B")),
                "{refusal:?}"
            );
        }
        let text = Measure::FormatTime(CqlType::Text);
        assert_eq!(text.apply("format_time", &[b"120000"]), Ok(Some(b"2 m".to_vec())));
        assert!(text.apply("format_time", &[b"1.5"]).is_err());
        assert!(text.apply("format_time", &[&[b'9'; 1000]]).is_err());
    }

    #[test]
    fn lengths_are_those_of_characters_and_of_bytes() {
        let length = |measure: &Measure, text: &str| measure.apply("length", &[text.as_bytes()]);
        assert_eq!(length(&Measure::Characters, "héllo😀"), Ok(Some(vec![0, 0, 0, 6])));
        assert_eq!(length(&Measure::Bytes, "héllo😀"), Ok(Some(vec![0, 0, 0, 10])));
        assert_eq!(length(&Measure::Bytes, ""), Ok(Some(vec![0; 4])));
    }
}
