//! Functions of time: sums of moments and durations, and conversions between the types that hold a moment.

use types::civil::{date_of, days_of_last_until};
use types::{CqlType, Duration, timeuuid};
use uuid::Uuid;

use super::number::Problem;

const MILLIS_PER_DAY: i64 = 86_400_000;
const NANOS_PER_MILLI: i64 = 1_000_000;
/// The serialised date of 1970-01-01.
const EPOCH_DAY: i64 = 1 << 31;

/// The day with the same number some months later; in a shorter month, its last day. None beyond the calendar.
fn plus_months(days: i64, months: i64) -> Option<i64> {
    let (year, month, day) = date_of(days);
    let count = (year * 12 + (month - 1)).checked_add(months)?;
    days_of_last_until(count.div_euclid(12), count.rem_euclid(12) + 1, day)
}

fn signed(duration: Duration, is_taken: bool) -> (i64, i64, i64) {
    let sign = if is_taken { -1 } else { 1 };
    (
        i64::from(duration.months) * sign,
        i64::from(duration.days) * sign,
        duration.nanoseconds.wrapping_mul(sign),
    )
}

pub(crate) fn add_to_timestamp(bytes: &[u8], duration: Duration, is_taken: bool) -> Result<Vec<u8>, Problem> {
    let millis = bytes
        .try_into()
        .map(i64::from_be_bytes)
        .map_err(|_| "the timestamp is malformed")?;
    if duration.nanoseconds % NANOS_PER_MILLI != 0 {
        return Err(format!(
            "The duration must have a millisecond precision. Was: {duration}"
        ));
    }
    let (months, days, nanos) = signed(duration, is_taken);
    let sum = plus_months(millis.div_euclid(MILLIS_PER_DAY), months)
        .and_then(|day| (day + days).checked_mul(MILLIS_PER_DAY))
        .and_then(|sum| sum.checked_add(millis.rem_euclid(MILLIS_PER_DAY)))
        .and_then(|sum| sum.checked_add(nanos / NANOS_PER_MILLI))
        .ok_or("the timestamp is out of range")?;
    Ok(sum.to_be_bytes().to_vec())
}

pub(crate) fn add_to_date(bytes: &[u8], duration: Duration, is_taken: bool) -> Result<Vec<u8>, Problem> {
    if duration.nanoseconds != 0 {
        return Err(format!("The duration must have a day precision. Was: {duration}"));
    }
    let date = bytes
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| "the date is malformed")?;
    let (months, days, _) = signed(duration, is_taken);
    let date = plus_months(i64::from(date) - EPOCH_DAY, months)
        .and_then(|day| u32::try_from(day + days + EPOCH_DAY).ok())
        .ok_or("the date is out of range")?;
    Ok(date.to_be_bytes().to_vec())
}

/// What of a moment another type can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    TimeUuid,
    Timestamp,
    Date,
    /// Milliseconds since the epoch in a bigint.
    UnixMillis,
}

impl Moment {
    pub(crate) const fn cql_type(self) -> CqlType {
        match self {
            Self::TimeUuid => CqlType::TimeUuid,
            Self::Timestamp => CqlType::Timestamp,
            Self::Date => CqlType::Date,
            Self::UnixMillis => CqlType::BigInt,
        }
    }

    /// Milliseconds since the epoch; `None` for an empty value.
    fn read(self, bytes: &[u8]) -> Option<i64> {
        match self {
            Self::TimeUuid => Some(timeuuid::unix_millis(&Uuid::from_bytes(bytes.try_into().ok()?))),
            Self::Timestamp | Self::UnixMillis => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
            Self::Date => Some((i64::from(u32::from_be_bytes(bytes.try_into().ok()?)) - EPOCH_DAY) * MILLIS_PER_DAY),
        }
    }

    fn write(self, millis: i64) -> Vec<u8> {
        match self {
            Self::Date => date_of_millis(millis),
            _ => millis.to_be_bytes().to_vec(),
        }
    }
}

/// Converts a moment to another type.
pub(crate) fn convert(from: Moment, to: Moment, bytes: &[u8]) -> Option<Vec<u8>> {
    from.read(bytes).map(|millis| to.write(millis))
}

/// The serialised date on which a moment is, the nearest one that there is.
pub(crate) fn date_of_millis(millis: i64) -> Vec<u8> {
    let day = (millis.div_euclid(MILLIS_PER_DAY) + EPOCH_DAY).clamp(0, i64::from(u32::MAX));
    u32::try_from(day).unwrap_or(u32::MAX).to_be_bytes().to_vec()
}

/// The serialised time of day of a moment.
pub(crate) fn time_of_micros(micros: i64) -> Vec<u8> {
    let millis = micros.div_euclid(1_000).rem_euclid(MILLIS_PER_DAY);
    (millis * NANOS_PER_MILLI).to_be_bytes().to_vec()
}

/// A timestamp in UTC with milliseconds: `2021-01-02T03:04:05.678Z`.
pub(crate) fn timestamp_text(millis: i64, separator: char) -> String {
    let (year, month, day) = date_of(millis.div_euclid(MILLIS_PER_DAY));
    let of_day = millis.rem_euclid(MILLIS_PER_DAY);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    let milli = of_day % 1_000;
    let sign = if year < 0 { "-" } else { "" };
    let year = year.unsigned_abs();
    format!("{sign}{year:04}-{month:02}-{day:02}{separator}{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The start of the interval of `duration`, counted from `start` or the epoch, in which a moment is.
pub(crate) fn floor(
    cql_type: &CqlType,
    moment: &[u8],
    duration: &[u8],
    start: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, Problem> {
    let written = || CqlType::Duration.format(duration);
    let duration = Duration::deserialize(duration).map_err(|error| error.to_string())?;
    if *cql_type == CqlType::Time {
        refuse_negative(duration)?;
        return floor_time(moment, duration);
    }
    let (from, to) = match cql_type {
        CqlType::TimeUuid => (Moment::TimeUuid, Moment::Timestamp),
        CqlType::Date => (Moment::Date, Moment::Date),
        _ => (Moment::Timestamp, Moment::Timestamp),
    };
    if *cql_type == CqlType::Date && duration.nanoseconds != 0 {
        return Err(format!(
            "The floor on date values cannot be computed for the {} duration as precision is below 1 day",
            written()
        ));
    }
    if duration.nanoseconds % NANOS_PER_MILLI != 0 {
        return Err(format!(
            "The floor cannot be computed for the {} duration as precision is below 1 millisecond",
            written()
        ));
    }
    let Some(millis) = from.read(moment) else {
        return Ok(None);
    };
    let start = match start {
        Some(bytes) => match to.read(bytes) {
            Some(start) => start,
            None => return Ok(None),
        },
        None => 0,
    };
    if start > millis {
        return Err("The floor function starting time is greater than the provided time".to_owned());
    }
    refuse_negative(duration)?;
    Ok(floor_millis(millis, start, duration).map(|floor| to.write(floor)))
}

fn refuse_negative(duration: Duration) -> Result<(), Problem> {
    if duration.months < 0 || duration.days < 0 || duration.nanoseconds < 0 {
        Err("Negative durations are not supported by the floor function".to_owned())
    } else {
        Ok(())
    }
}

fn floor_time(moment: &[u8], duration: Duration) -> Result<Option<Vec<u8>>, Problem> {
    if duration.months != 0 || duration.days != 0 || duration.nanoseconds > 86_400_000_000_000 {
        return Err("For time values, the floor can only be computed for durations smaller that a day".to_owned());
    }
    let Ok(nanos) = moment.try_into().map(i64::from_be_bytes) else {
        return Ok(None);
    };
    let floor = match duration.nanoseconds {
        0 => nanos,
        interval => nanos - nanos.rem_euclid(interval),
    };
    Ok(Some(floor.to_be_bytes().to_vec()))
}

/// The last `start + n * duration` that is not after `millis`, by bisection: months have no fixed length.
fn floor_millis(millis: i64, start: i64, duration: Duration) -> Option<i64> {
    let step = |n: i64| -> Option<i64> {
        let months = i64::from(duration.months).checked_mul(n)?;
        let day = plus_months(start.div_euclid(MILLIS_PER_DAY), months)?
            .checked_add(i64::from(duration.days).checked_mul(n)?)?;
        day.checked_mul(MILLIS_PER_DAY)?
            .checked_add(start.rem_euclid(MILLIS_PER_DAY))?
            .checked_add((duration.nanoseconds / NANOS_PER_MILLI).checked_mul(n)?)
    };
    if duration == Duration::default() {
        return Some(millis);
    }
    let is_within = |n: i64| step(n).is_some_and(|moment| moment <= millis);
    let (mut low, mut high) = (0, 1_i64);
    while is_within(high) {
        low = high;
        high = high.checked_mul(2)?;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_within(middle) { low = middle } else { high = middle }
    }
    step(low)
}
