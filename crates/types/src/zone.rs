//! Time zones with names: `Europe/Berlin`, `CET`, `PST`.
//!
//! Names and rules are those of the time zone database that the binary was built with ([`tzdb_data::VERSION`]), so a
//! text means the same moment on each node of a release. The short names of North America mean the zone, in summer too,
//! as in Cassandra: `EST` is the time in New York. Short names that belong to several zones (`IST`, `BST`) are refused.

use tz::TimeZoneRef;

/// Short names that the time zone database does not have, or has without summer time, and the zones that they mean.
const SHORT: [(&str, &str); 28] = [
    ("ADT", "America/Halifax"),
    ("AEDT", "Australia/Sydney"),
    ("AEST", "Australia/Sydney"),
    ("AKDT", "America/Anchorage"),
    ("AKST", "America/Anchorage"),
    ("AST", "America/Halifax"),
    ("AWST", "Australia/Perth"),
    ("CDT", "America/Chicago"),
    ("CEST", "CET"),
    ("CST", "America/Chicago"),
    ("EDT", "America/New_York"),
    ("EEST", "EET"),
    ("EST", "America/New_York"),
    ("HKT", "Asia/Hong_Kong"),
    ("HST", "Pacific/Honolulu"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("MDT", "America/Denver"),
    ("MSK", "Europe/Moscow"),
    ("MST", "America/Denver"),
    ("NDT", "America/St_Johns"),
    ("NST", "America/St_Johns"),
    ("NZDT", "Pacific/Auckland"),
    ("NZST", "Pacific/Auckland"),
    ("PDT", "America/Los_Angeles"),
    ("PST", "America/Los_Angeles"),
    ("SGT", "Asia/Singapore"),
    ("WEST", "WET"),
];

const DAY_SECONDS: i64 = 86_400;

/// The offset from UTC, in seconds, of a zone at a local time in seconds since 1970-01-01 of its own clock; None for a
/// name that no zone has.
///
/// A local time that comes twice, when clocks are turned back, is the first of the two. One that is skipped is read
/// with the offset before.
pub(crate) fn offset_at(name: &str, local: i64) -> Option<i64> {
    let zone = find(name)?;
    let before = offset(zone, local.checked_sub(DAY_SECONDS)?)?;
    let after = offset(zone, local.checked_add(DAY_SECONDS)?)?;
    let fits = |of: &i64| offset(zone, local - of) == Some(*of);
    // The greater offset is the earlier moment.
    let (first, second) = (before.max(after), before.min(after));
    Some([first, second].into_iter().find(fits).unwrap_or(before))
}

/// The zone of that name, which is written as in the time zone database.
fn find(name: &str) -> Option<&'static TimeZoneRef<'static>> {
    let short = SHORT.binary_search_by_key(&name, |(short, _)| short);
    let name = short.map_or(name, |at| SHORT[at].1);
    // The search of the database itself knows no case.
    tzdb_data::TZ_NAMES
        .contains(&name)
        .then(|| tzdb_data::find_tz(name.as_bytes()))?
}

/// The offset at a moment in seconds since 1970.
fn offset(zone: &TimeZoneRef<'_>, moment: i64) -> Option<i64> {
    zone.find_local_time_type(moment)
        .ok()
        .map(|found| found.ut_offset().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_name_is_in_order_and_means_a_zone() {
        assert!(SHORT.is_sorted());
        for (short, _) in SHORT {
            assert!(offset_at(short, 0).is_some(), "{short}");
        }
    }

    #[test]
    fn a_time_that_comes_twice_is_the_first_and_one_that_is_skipped_has_the_offset_before() {
        let hour = 3_600;
        for (zone, local, hours) in [
            // 2024-03-31 01:30, 02:30 (skipped), 03:30; 2024-10-27 01:30, 02:30 (twice), 03:30.
            ("Europe/Berlin", 1_711_848_600, 1),
            ("Europe/Berlin", 1_711_852_200, 1),
            ("Europe/Berlin", 1_711_855_800, 2),
            ("Europe/Berlin", 1_729_992_600, 2),
            ("Europe/Berlin", 1_729_996_200, 2),
            ("Europe/Berlin", 1_729_999_800, 1),
            // 2024-11-03 01:30, twice; 2024-03-10 02:30, skipped.
            ("America/New_York", 1_730_597_400, -4),
            ("America/New_York", 1_710_037_800, -5),
            ("EST", 1_719_792_000, -4),
        ] {
            assert_eq!(offset_at(zone, local), Some(hours * hour), "{zone} at {local}");
        }
        for unknown in [
            "",
            "europe/berlin",
            "cet",
            "Nowhere/City",
            "IST",
            "BST",
            "Europe/Berlin ",
        ] {
            assert_eq!(offset_at(unknown, 0), None, "{unknown}");
        }
        assert_eq!(offset_at("Europe/Berlin", i64::MIN), None);
        assert_eq!(offset_at("Europe/Berlin", i64::MAX), None);
    }
}
