//! Durations: months, days and nanoseconds, which no common unit measures, all of one sign.
//!
//! ```text
//! serialised  = signed vint months, signed vint days, signed vint nanoseconds
//! text        = [-] quantity unit ...       units y mo w d h m s ms us ns, each once, from large to small
//!             | [-] P [nY][nM][nD][T[nH][nM][nS]]
//!             | [-] P nW
//!             | [-] P years-months-daysThours:minutes:seconds
//! ```

use std::fmt;

use stdx::bytes::Reader;
use stdx::vint;

use crate::error::TypeError;

const MONTHS_PER_YEAR: i64 = 12;
const DAYS_PER_WEEK: i64 = 7;
const NANOS_PER_MICRO: i64 = 1_000;
const NANOS_PER_MILLI: i64 = 1_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_MINUTE: i64 = 60 * NANOS_PER_SECOND;
const NANOS_PER_HOUR: i64 = 60 * NANOS_PER_MINUTE;

/// A span of time as CQL has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Duration {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

impl Duration {
    /// The duration these bytes are.
    ///
    /// # Errors
    /// When they are too short, out of range, or of mixed signs.
    pub fn deserialize(bytes: &[u8]) -> Result<Self, TypeError> {
        if bytes.len() < 3 {
            let message = format!("Expected at least 3 bytes for a duration ({})", bytes.len());
            return Err(TypeError::Malformed(message));
        }
        let mut reader = Reader::new(bytes);
        let mut next = || {
            reader
                .get_signed_vint()
                .map_err(|_| TypeError::Malformed("Not enough bytes to read a duration".to_owned()))
        };
        let (months, days, nanoseconds) = (next()?, next()?, next()?);
        let narrow = |value: i64, what: &str| {
            i32::try_from(value).map_err(|_| {
                TypeError::Malformed(format!(
                    "The duration {what} must be a 32 bits integer but was: {value}"
                ))
            })
        };
        let duration = Self {
            months: narrow(months, "months")?,
            days: narrow(days, "days")?,
            nanoseconds,
        };
        let is_of_one_sign =
            (months >= 0 && days >= 0 && nanoseconds >= 0) || (months <= 0 && days <= 0 && nanoseconds <= 0);
        if !is_of_one_sign {
            let message = format!(
                "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanoseconds})"
            );
            return Err(TypeError::Malformed(message));
        }
        Ok(duration)
    }

    /// Appends the serialised form.
    pub fn serialize_into(self, out: &mut Vec<u8>) {
        vint::put_signed(out, i64::from(self.months));
        vint::put_signed(out, i64::from(self.days));
        vint::put_signed(out, self.nanoseconds);
    }

    /// Reads any of the text forms.
    ///
    /// # Errors
    /// [`TypeError::Unreadable`] when `text` has none of them, or is out of range.
    pub fn parse(text: &str) -> Result<Self, TypeError> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let parts = match text.strip_prefix('P') {
            None => parse_quantities(text)?,
            Some(iso) if iso.contains('-') => parse_alternative(iso).ok_or_else(|| unreadable(text))?,
            Some(iso) => parse_iso(iso, text)?,
        };
        parts.into_duration(is_negative)
    }
}

/// The form that [`Duration::parse`] reads back; of no time at all, `0s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.write_str("0s");
        }
        if self.months < 0 || self.days < 0 || self.nanoseconds < 0 {
            f.write_str("-")?;
        }
        let months = u64::from(self.months.unsigned_abs());
        let days = u64::from(self.days.unsigned_abs());
        let nanos = self.nanoseconds.unsigned_abs();
        let [second, milli, micro] = [NANOS_PER_SECOND, NANOS_PER_MILLI, NANOS_PER_MICRO].map(i64::unsigned_abs);
        let parts = [
            (months / 12, "y"),
            (months % 12, "mo"),
            (days, "d"),
            (nanos / (3_600 * second), "h"),
            (nanos / (60 * second) % 60, "m"),
            (nanos / second % 60, "s"),
            (nanos / milli % 1_000, "ms"),
            (nanos / micro % 1_000, "us"),
            (nanos % 1_000, "ns"),
        ];
        for (quantity, unit) in parts.into_iter().filter(|(quantity, _)| *quantity > 0) {
            write!(f, "{quantity}{unit}")?;
        }
        Ok(())
    }
}

fn unreadable(text: &str) -> TypeError {
    TypeError::Unreadable(format!("Unable to convert '{text}' to a duration"))
}

/// From large to small, which is also the order they must come in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Years,
    Months,
    Weeks,
    Days,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Years => "years",
            Self::Months => "months",
            Self::Weeks => "weeks",
            Self::Days => "days",
            Self::Hours => "hours",
            Self::Minutes => "minutes",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        }
    }

    fn from_symbol(symbol: &str) -> Option<Self> {
        Some(match symbol.to_ascii_lowercase().as_str() {
            "y" => Self::Years,
            "mo" => Self::Months,
            "w" => Self::Weeks,
            "d" => Self::Days,
            "h" => Self::Hours,
            "m" => Self::Minutes,
            "s" => Self::Seconds,
            "ms" => Self::Milliseconds,
            "us" | "µs" => Self::Microseconds,
            "ns" => Self::Nanoseconds,
            _ => return None,
        })
    }
}

/// Sums of absolute quantities on the way to a duration.
#[derive(Default)]
struct Parts {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

impl Parts {
    fn add(&mut self, quantity: i64, unit: Unit) -> Result<(), TypeError> {
        let (sum, each, max, what) = match unit {
            Unit::Years => (&mut self.months, MONTHS_PER_YEAR, i64::from(i32::MAX), "months"),
            Unit::Months => (&mut self.months, 1, i64::from(i32::MAX), "months"),
            Unit::Weeks => (&mut self.days, DAYS_PER_WEEK, i64::from(i32::MAX), "days"),
            Unit::Days => (&mut self.days, 1, i64::from(i32::MAX), "days"),
            Unit::Hours => (&mut self.nanoseconds, NANOS_PER_HOUR, i64::MAX, "nanoseconds"),
            Unit::Minutes => (&mut self.nanoseconds, NANOS_PER_MINUTE, i64::MAX, "nanoseconds"),
            Unit::Seconds => (&mut self.nanoseconds, NANOS_PER_SECOND, i64::MAX, "nanoseconds"),
            Unit::Milliseconds => (&mut self.nanoseconds, NANOS_PER_MILLI, i64::MAX, "nanoseconds"),
            Unit::Microseconds => (&mut self.nanoseconds, NANOS_PER_MICRO, i64::MAX, "nanoseconds"),
            Unit::Nanoseconds => (&mut self.nanoseconds, 1, i64::MAX, "nanoseconds"),
        };
        match quantity
            .checked_mul(each)
            .and_then(|amount| sum.checked_add(amount))
            .filter(|sum| *sum <= max)
        {
            Some(total) => {
                *sum = total;
                Ok(())
            }
            None => Err(TypeError::Unreadable(format!(
                "Invalid duration. The total number of {what} must be less or equal to {max}"
            ))),
        }
    }

    fn into_duration(self, is_negative: bool) -> Result<Duration, TypeError> {
        let sign = if is_negative { -1 } else { 1 };
        let narrow = |sum: i64| i32::try_from(sign * sum).expect("add keeps months and days within 32 bits");
        Ok(Duration {
            months: narrow(self.months),
            days: narrow(self.days),
            nanoseconds: sign * self.nanoseconds,
        })
    }
}

/// Splits the digits at the start of `text` off, as a number.
fn split_number(text: &str) -> Option<(i64, &str)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(len);
    digits.parse().ok().map(|number| (number, rest))
}

/// `1y2mo3d`
fn parse_quantities(text: &str) -> Result<Parts, TypeError> {
    let mut parts = Parts::default();
    let mut previous: Option<Unit> = None;
    let mut rest = text;
    while previous.is_none() || !rest.is_empty() {
        let (quantity, tail) = split_number(rest).ok_or_else(|| unreadable(text))?;
        let symbol_len = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (symbol, tail) = tail.split_at(symbol_len);
        let unit = Unit::from_symbol(symbol).ok_or_else(|| unreadable(text))?;
        check_order(previous, unit)?;
        parts.add(quantity, unit)?;
        previous = Some(unit);
        rest = tail;
    }
    Ok(parts)
}

fn check_order(previous: Option<Unit>, unit: Unit) -> Result<(), TypeError> {
    match previous {
        Some(previous) if previous == unit => Err(TypeError::Unreadable(format!(
            "Invalid duration. The {} are specified multiple times",
            unit.name()
        ))),
        Some(previous) if previous > unit => Err(TypeError::Unreadable(format!(
            "Invalid duration. The {} should be after {}",
            previous.name(),
            unit.name()
        ))),
        _ => Ok(()),
    }
}

/// `1Y2M3DT4H5M6S` and `2W`, after the P.
fn parse_iso(iso: &str, text: &str) -> Result<Parts, TypeError> {
    let mut parts = Parts::default();
    if let Some(weeks) = iso.strip_suffix('W') {
        let (weeks, rest) = split_number(weeks).ok_or_else(|| unreadable(text))?;
        parts.add(weeks, Unit::Weeks)?;
        return if rest.is_empty() {
            Ok(parts)
        } else {
            Err(unreadable(text))
        };
    }
    let (date, time) = iso.split_once('T').unwrap_or((iso, ""));
    for (section, units) in [
        (date, [('Y', Unit::Years), ('M', Unit::Months), ('D', Unit::Days)]),
        (time, [('H', Unit::Hours), ('M', Unit::Minutes), ('S', Unit::Seconds)]),
    ] {
        let mut rest = section;
        for (symbol, unit) in units {
            let Some((quantity, tail)) = split_number(rest) else {
                break;
            };
            if let Some(tail) = tail.strip_prefix(symbol) {
                parts.add(quantity, unit)?;
                rest = tail;
            }
        }
        if !rest.is_empty() {
            return Err(unreadable(text));
        }
    }
    Ok(parts)
}

/// `0001-02-03T04:05:06`, after the P.
fn parse_alternative(iso: &str) -> Option<Parts> {
    let (date, time) = iso.split_once('T')?;
    let widths = [4, 2, 2, 2, 2, 2];
    let units = [
        Unit::Years,
        Unit::Months,
        Unit::Days,
        Unit::Hours,
        Unit::Minutes,
        Unit::Seconds,
    ];
    let fields: Vec<&str> = date.split('-').chain(time.split(':')).collect();
    if date.split('-').count() != 3 || fields.len() != 6 {
        return None;
    }
    let mut parts = Parts::default();
    for ((field, width), unit) in fields.into_iter().zip(widths).zip(units) {
        let (quantity, rest) = split_number(field)?;
        if field.len() != width || !rest.is_empty() {
            return None;
        }
        parts.add(quantity, unit).ok()?;
    }
    Some(parts)
}
