//! Days and dates of the Gregorian calendar, which also holds before its introduction and has a year 0, as in ISO 8601.
//!
//! The library that knows the time zones (`zone.rs`) computes them. Its years have 32 bits: more than a CQL date
//! (±5.9 million years) or timestamp (±292 million years) reaches.

use tz::UtcDateTime;

const DAY_SECONDS: i64 = 86_400;

/// Days since 1970-01-01 of a date; None if the calendar does not have it.
#[must_use]
pub fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let (year, month, day) = (year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?);
    let midnight = UtcDateTime::new(year, month, day, 0, 0, 0, 0).ok()?;
    Some(midnight.unix_time() / DAY_SECONDS)
}

/// Days since 1970-01-01 of a date, or of the last day of its month if the month has fewer days.
#[must_use]
pub fn days_of_last_until(year: i64, month: i64, day: i64) -> Option<i64> {
    (28.min(day)..=day).rev().find_map(|day| days_of(year, month, day))
}

/// Year, month and day of a count of days since 1970-01-01; the last or first date of 32-bit years beyond them.
#[must_use]
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let nearest = if days < 0 { UtcDateTime::MIN } else { UtcDateTime::MAX };
    let midnight = UtcDateTime::from_timespec(days.saturating_mul(DAY_SECONDS), 0).unwrap_or(nearest);
    (
        midnight.year().into(),
        midnight.month().into(),
        midnight.month_day().into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_eight_hundred_years_follows_the_one_before() {
        let first = days_of(1600, 1, 1).expect("a date");
        let (mut year, mut month, mut day) = (1600, 1, 1);
        for days in first..first + 2 * 146_097 {
            assert_eq!(date_of(days), (year, month, day));
            assert_eq!(days_of(year, month, day), Some(days), "{year}-{month}-{day}");
            day += 1;
            if days_of(year, month, day).is_none() {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!((year, month, day), (2400, 1, 1));
    }

    #[test]
    fn known_days_to_the_ends_of_dates_and_timestamps() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (-719_528, (0, 1, 1)),
            (-719_529, (-1, 12, 31)),
            (i64::from(i32::MAX), (5_881_580, 7, 11)),
            (i64::from(i32::MIN), (-5_877_641, 6, 23)),
            (i64::MAX / 86_400_000, (292_278_994, 8, 17)),
            (i64::MIN / 86_400_000 - 1, (-292_275_055, 5, 16)),
        ] {
            assert_eq!(date_of(days), date);
            assert_eq!(days_of(date.0, date.1, date.2), Some(days));
        }
    }

    #[test]
    fn a_day_beyond_the_end_of_a_month_is_no_date_or_the_last_day_of_it() {
        for (year, month, last) in [
            (2023, 2, 28),
            (2024, 2, 29),
            (1900, 2, 28),
            (2000, 2, 29),
            (2023, 4, 30),
        ] {
            assert_eq!(days_of(year, month, 31), None);
            assert_eq!(days_of_last_until(year, month, 31), days_of(year, month, last));
            assert_eq!(days_of_last_until(year, month, 5), days_of(year, month, 5));
        }
        for (year, month, day) in [
            (2023, 0, 1),
            (2023, 13, 1),
            (2023, 1, 0),
            (2023, 1, 32),
            (1 << 32, 1, 1),
        ] {
            assert_eq!(days_of(year, month, day), None, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn beyond_all_years_is_the_nearest_date() {
        assert_eq!(date_of(i64::MAX), (i64::from(i32::MAX), 12, 31));
        assert_eq!(date_of(i64::MIN), (i64::from(i32::MIN), 1, 1));
    }
}
