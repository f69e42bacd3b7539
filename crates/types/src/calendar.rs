//! Dates, times of day and timestamps as text.
//!
//! The calendar is that of [`crate::civil`].
//!
//! ```text
//! date      = [+-] year - month - day
//!             four digits of year, or a sign and more; before a time, no sign is needed
//! time      = hour : minute : second [. fraction of up to 9 digits]
//! timestamp = milliseconds | date [ (T | space) hour : minute [: second [. fraction]]] [[space] zone]
//! zone      = Z | UTC | GMT | [UTC | GMT] (+|-) hour [[:] minute] | name
//! ```
//! A timestamp without a zone is UTC. Names of zones (`CET`, `Europe/Paris`) have a space before them (`zone.rs`).

use std::fmt::Write as _;

use crate::civil::{date_of, days_of, days_of_last_until};
use crate::zone;

/// The serialised form of 1970-01-01.
pub(crate) const EPOCH_DAY: i64 = 1 << 31;
pub(crate) const NANOS_PER_DAY: i64 = 86_400 * NANOS_PER_SECOND;
const MILLIS_PER_DAY: i64 = 86_400_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const OFFSET_MINUTES_MAX: i64 = 18 * 60;
/// More than any date or timestamp that CQL can hold; keeps the arithmetic far from overflow.
const YEAR_MAX: i64 = 999_999_999;

/// Days since 1970-01-01 of an ISO date.
pub(crate) fn parse_date(text: &str) -> Option<i64> {
    let mut cursor = Cursor { rest: text };
    let lacks_sign = cursor.is_long_year_without_sign();
    let (year, month, day) = cursor.date(2)?;
    let is_whole = !lacks_sign && cursor.rest.is_empty();
    is_whole.then(|| days_of(year, month, day)).flatten()
}

/// Nanoseconds since midnight.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let mut cursor = Cursor { rest: text };
    let hour = cursor.number(1, 9)?;
    cursor.expect(':')?;
    let minute = cursor.number(1, 9)?;
    cursor.expect(':')?;
    let second = cursor.number(1, 9)?;
    let nanos = if cursor.take('.') { cursor.fraction(1)? } else { 0 };
    let is_time = hour < 24 && minute < 60 && second < 60 && cursor.rest.is_empty();
    is_time.then(|| ((hour * 60 + minute) * 60 + second) * NANOS_PER_SECOND + nanos)
}

/// Milliseconds since 1970-01-01 UTC. A day beyond the end of its month is the last of it.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    let mut cursor = Cursor { rest: text };
    let needs_time = cursor.is_long_year_without_sign();
    let (year, month, day) = cursor.date(1)?;
    // If the month or the day has one digit, a time must follow, and the year must have no sign.
    let written = &text[..text.len() - cursor.rest.len()];
    let is_short = written.rsplit('-').take(2).any(|part| part.len() < 2);
    let needs_time = needs_time || is_short;
    if is_short && text.starts_with(['-', '+']) {
        return None;
    }
    let days = days_of_last_until(year, month, day)?;
    let has_time = cursor.rest.starts_with('T')
        || cursor
            .rest
            .strip_prefix(' ')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if needs_time && !has_time {
        return None;
    }
    let millis_of_day = if has_time { cursor.time_of_timestamp()? } else { 0 };
    let offset_millis = match cursor.zone()? {
        Zone::Offset(minutes) => minutes * 60_000,
        Zone::Named(name) => 1_000 * zone::offset_at(name, days.checked_mul(86_400)? + millis_of_day / 1_000)?,
    };
    // The first day that a timestamp reaches begins before it does, so the sum is narrowed, not its parts.
    let millis = i128::from(days) * i128::from(MILLIS_PER_DAY) + i128::from(millis_of_day - offset_millis);
    i64::try_from(millis).ok()
}

/// Appends an ISO date: four digits of year, or a sign and more.
pub(crate) fn write_date(out: &mut String, days: i64) {
    let (year, month, day) = date_of(days);
    let _ = match year {
        0..=9_999 => write!(out, "{year:04}-{month:02}-{day:02}"),
        10_000.. => write!(out, "+{year}-{month:02}-{day:02}"),
        _ => write!(out, "-{:04}-{month:02}-{day:02}", year.unsigned_abs()),
    };
}

/// A moment in seconds since 1970 as ISO 8601 has it, in UTC: `2024-07-29T15:48:55Z`.
#[must_use]
pub fn iso_seconds(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let mut out = String::new();
    write_date(&mut out, days);
    let _ = write!(
        out,
        "T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    );
    out
}

/// Appends a time of day; of nanoseconds that are none, the bare number.
pub(crate) fn write_time(out: &mut String, nanos: i64) {
    if !(0..NANOS_PER_DAY).contains(&nanos) {
        let _ = write!(out, "{nanos}");
        return;
    }
    let (seconds, nanos) = (nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND);
    let _ = write!(
        out,
        "{:02}:{:02}:{:02}.{nanos:09}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    );
}

/// Appends date, time and `Z`.
pub(crate) fn write_timestamp(out: &mut String, millis: i64) {
    write_date(out, millis.div_euclid(MILLIS_PER_DAY));
    let millis = millis.rem_euclid(MILLIS_PER_DAY);
    let seconds = millis / 1_000;
    let _ = write!(
        out,
        "T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60,
        millis % 1_000
    );
}

/// What follows a timestamp's time.
enum Zone<'a> {
    /// Minutes that its clock is ahead of UTC.
    Offset(i64),
    /// The name of a zone.
    Named(&'a str),
}

struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.take(c).then_some(())
    }

    /// The digits here, as many as there are, when that is an allowed count.
    fn digits(&mut self, len_min: usize, len_max: usize) -> Option<&str> {
        let len = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(len_min..=len_max).contains(&len) {
            return None;
        }
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(digits)
    }

    fn number(&mut self, len_min: usize, len_max: usize) -> Option<i64> {
        self.digits(len_min, len_max)?.parse().ok()
    }

    /// A fraction of a second, in nanoseconds.
    fn fraction(&mut self, len_min: usize) -> Option<i64> {
        let digits = self.digits(len_min, 9)?;
        format!("{digits:0<9}").parse().ok()
    }

    /// Whether a year of more than four digits is next: a date has a sign before it, a time of a day does without.
    fn is_long_year_without_sign(&self) -> bool {
        self.rest.bytes().take_while(u8::is_ascii_digit).count() > 4
    }

    /// Year, month and day, these of so many digits at least; the day may still be beyond the end of the month.
    fn date(&mut self, len_min_of_day: usize) -> Option<(i64, i64, i64)> {
        // A plus is allowed only before a year of more than four digits.
        let (sign, len_min, len_max) = match (self.take('-'), self.take('+')) {
            (true, true) => return None,
            (true, false) => (-1, 4, 9),
            (false, true) => (1, 5, 9),
            (false, false) => (1, 4, 9),
        };
        let year = self.number(len_min, len_max).filter(|year| *year <= YEAR_MAX)? * sign;
        self.expect('-')?;
        let month = self
            .number(len_min_of_day, 2)
            .filter(|month| (1..=12).contains(month))?;
        self.expect('-')?;
        let day = self.number(len_min_of_day, 2).filter(|day| (1..=31).contains(day))?;
        Some((year, month, day))
    }

    /// `T04:05:06.789` in milliseconds of the day. 24:00 is the end of it.
    fn time_of_timestamp(&mut self) -> Option<i64> {
        self.rest = &self.rest[1..];
        let hour = self.number(1, 2)?;
        self.expect(':')?;
        let minute = self.number(1, 2)?;
        let (mut second, mut nanos) = (0, 0);
        if self.take(':') {
            second = self.number(1, 2)?;
            if self.take('.') {
                nanos = self.fraction(0)?;
            }
        }
        let is_time = (hour < 24 && minute < 60 && second < 60) || (hour, minute, second, nanos) == (24, 0, 0, 0);
        is_time.then(|| ((hour * 60 + minute) * 60 + second) * 1_000 + nanos / 1_000_000)
    }

    /// What is left is a zone.
    fn zone(&mut self) -> Option<Zone<'a>> {
        let spaced = self.take(' ');
        if self.rest.is_empty() {
            return (!spaced).then_some(Zone::Offset(0));
        }
        // `Z` and an offset may follow the time at once, a name may not.
        let name = self.rest;
        if !spaced && name.starts_with(['U', 'G']) {
            return None;
        }
        match self.offset() {
            Some(minutes) => Some(Zone::Offset(minutes)),
            None => spaced.then_some(Zone::Named(name)),
        }
    }

    /// What is left is an offset from UTC, in minutes.
    fn offset(&mut self) -> Option<i64> {
        if matches!(self.rest, "Z" | "UTC" | "GMT" | "UT") {
            return Some(0);
        }
        for name in ["UTC", "GMT"] {
            self.rest = self.rest.strip_prefix(name).unwrap_or(self.rest);
        }
        let sign = match (self.take('+'), self.take('-')) {
            (true, false) => 1,
            (false, true) => -1,
            _ => return None,
        };
        let (hours, minutes) = match self.rest.as_bytes() {
            [_, _] => (self.number(2, 2)?, 0),
            [_, _, b':', _, _] => {
                let hours = self.number(2, 2)?;
                self.expect(':')?;
                (hours, self.number(2, 2)?)
            }
            [_, _, _, _] => self.number(4, 4).map(|both| (both / 100, both % 100))?,
            _ => return None,
        };
        let offset = hours * 60 + minutes;
        (minutes < 60 && offset <= OFFSET_MINUTES_MAX).then_some(sign * offset)
    }
}
