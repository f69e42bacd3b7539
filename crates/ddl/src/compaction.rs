//! `compaction = {'class': …}`: which strategies there are, and which options each of them takes.

use std::collections::BTreeMap;

use schema::java_double;

use crate::error::DdlError;

const PACKAGE: &str = "org.apache.cassandra.db.compaction.";

const COMMON: [&str; 9] = [
    "enabled",
    "log_all",
    "max_threshold",
    "min_threshold",
    "only_purge_repaired_tombstones",
    "provide_overlapping_tombstones",
    "tombstone_compaction_interval",
    "tombstone_threshold",
    "unchecked_tombstone_compaction",
];
const SIZE_TIERED: [&str; 3] = ["bucket_high", "bucket_low", "min_sstable_size"];
const LEVELED: [&str; 3] = ["fanout_size", "single_sstable_uplevel", "sstable_size_in_mb"];
const TIME_WINDOW: [&str; 5] = [
    "compaction_window_size",
    "compaction_window_unit",
    "expired_sstable_check_frequency_seconds",
    "timestamp_resolution",
    "unsafe_aggressive_sstable_expiration",
];
/// How many times more bytes than the level before a level has, unless `fanout_size` says otherwise.
const LEVEL_FANOUT_DEFAULT: i64 = 10;
/// The highest level that leveled compaction fills.
const LEVEL_MAX: f64 = 8.0;
const TIME_UNITS: [&str; 7] = [
    "NANOSECONDS",
    "MICROSECONDS",
    "MILLISECONDS",
    "SECONDS",
    "MINUTES",
    "HOURS",
    "DAYS",
];

/// The names of all sub-options but `class`.
#[cfg(test)]
pub(crate) fn sub_options() -> impl Iterator<Item = &'static str> {
    let groups: [&'static [&'static str]; 4] = [&COMMON, &SIZE_TIERED, &LEVELED, &TIME_WINDOW];
    groups.into_iter().flatten().copied()
}

/// Checks what was given and adds what is always shown: the full class and both thresholds.
pub(crate) fn prepare(mut given: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, DdlError> {
    let Some(class) = given.remove("class") else {
        return Err(config(
            "Missing sub-option 'class' for the 'compaction' option".to_owned(),
        ));
    };
    let class = if class.contains('.') {
        class
    } else {
        format!("{PACKAGE}{class}")
    };
    let (short, own): (&str, &[&str]) = match class.strip_prefix(PACKAGE) {
        Some(short @ "SizeTieredCompactionStrategy") => (short, &[]),
        Some(short @ "LeveledCompactionStrategy") => (short, &LEVELED),
        Some(short @ "TimeWindowCompactionStrategy") => (short, &TIME_WINDOW),
        _ => return Err(config(format!("Unable to find compaction strategy class '{class}'"))),
    };
    check_common(&given)?;
    check_size_tiered(&given)?;
    if own == LEVELED {
        check_leveled(&given)?;
    } else if own == TIME_WINDOW {
        check_time_window(&given)?;
    }
    let known = |name: &&String| {
        let name = name.as_str();
        COMMON.contains(&name) || SIZE_TIERED.contains(&name) || own.contains(&name)
    };
    let strangers: Vec<&str> = given.keys().filter(|k| !known(k)).map(String::as_str).collect();
    if !strangers.is_empty() {
        return Err(config(format!(
            "Properties specified [{}] are not understood by {short}",
            strangers.join(", ")
        )));
    }
    check_thresholds(&given)?;
    given
        .entry("min_threshold".to_owned())
        .or_insert_with(|| "4".to_owned());
    given
        .entry("max_threshold".to_owned())
        .or_insert_with(|| "32".to_owned());
    given.insert("class".to_owned(), class);
    Ok(given)
}

fn config(text: String) -> DdlError {
    DdlError::Config(text)
}

fn check_common(given: &BTreeMap<String, String>) -> Result<(), DdlError> {
    if let Some(n) = double(given, "tombstone_threshold", "int (base10)")?
        && n < 0.0
    {
        return Err(config(format!(
            "tombstone_threshold must be greater than 0, but was {n:.6}"
        )));
    }
    if let Some(n) = integer(given, "tombstone_compaction_interval", i64::MAX)?
        && n < 0
    {
        return Err(config(format!(
            "tombstone_compaction_interval must be greater than 0, but was {n}"
        )));
    }
    let strange = |name: &str| given.get(name).filter(|v| !is_boolean(v));
    if let Some(v) = strange("unchecked_tombstone_compaction") {
        return Err(config(format!(
            "'unchecked_tombstone_compaction' should be either 'true' or 'false', not '{v}'"
        )));
    }
    if let Some(v) = strange("log_all") {
        return Err(config(format!("'log_all' should either be 'true' or 'false', not {v}")));
    }
    if let Some(v) = strange("only_purge_repaired_tombstones") {
        return Err(config(format!(
            "'only_purge_repaired_tombstones' should be either 'true' or 'false', not '{v}'"
        )));
    }
    if let Some(v) = strange("enabled") {
        return Err(config(format!("enabled should either be 'true' or 'false', not {v}")));
    }
    if let Some(v) = given.get("provide_overlapping_tombstones") {
        let upper = v.to_ascii_uppercase();
        if !matches!(upper.as_str(), "NONE" | "ROW" | "CELL") {
            return Err(config(format!(
                "Invalid value {upper} for 'provide_overlapping_tombstones' compaction sub-option - must be one of the \
                 following [NONE, ROW, CELL]."
            )));
        }
    }
    Ok(())
}

fn check_size_tiered(given: &BTreeMap<String, String>) -> Result<(), DdlError> {
    let low = double(given, "bucket_low", "float")?.unwrap_or(0.5);
    let high = double(given, "bucket_high", "float")?.unwrap_or(1.5);
    if high <= low {
        return Err(config(format!(
            "bucket_high value ({}) is less than or equal to the bucket_low value ({})",
            java_double(high),
            java_double(low)
        )));
    }
    if let Some(n) = integer(given, "min_sstable_size", i64::MAX)?
        && n < 0
    {
        return Err(config(format!("min_sstable_size must be non negative: {n}")));
    }
    Ok(())
}

fn check_leveled(given: &BTreeMap<String, String>) -> Result<(), DdlError> {
    let least_one = |name: &str| match integer(given, name, i64::from(i32::MAX))? {
        Some(n) if n < 1 => Err(config(format!("{name} must be larger than 0, but was {n}"))),
        n => Ok(n),
    };
    let size_mb = least_one("sstable_size_in_mb")?.unwrap_or(1);
    let fanout = least_one("fanout_size")?.unwrap_or(LEVEL_FANOUT_DEFAULT);
    let level_bytes = (fanout as f64).powf(LEVEL_MAX) * (size_mb << 20) as f64;
    if level_bytes > i64::MAX as f64 {
        return Err(config(format!(
            "At most {} bytes may be in a compaction level; your maxSSTableSize must be absurdly high to compute \
             {level_bytes}",
            i64::MAX
        )));
    }
    Ok(())
}

fn check_time_window(given: &BTreeMap<String, String>) -> Result<(), DdlError> {
    if let Some(v) = given.get("timestamp_resolution")
        && !TIME_UNITS.contains(&v.as_str())
    {
        return Err(config(format!("{v} is not valid for timestamp_resolution")));
    }
    if let Some(v) = given.get("compaction_window_unit")
        && !matches!(v.as_str(), "MINUTES" | "HOURS" | "DAYS")
    {
        return Err(config(format!("{v} is not valid for compaction_window_unit")));
    }
    if let Some(n) = integer(given, "compaction_window_size", i64::from(i32::MAX))?
        && n < 1
    {
        return Err(config(format!("{n} must be greater than 1 for compaction_window_size")));
    }
    if let Some(n) = integer(given, "expired_sstable_check_frequency_seconds", i64::MAX)?
        && n < 0
    {
        return Err(config(format!(
            "expired_sstable_check_frequency_seconds must not be negative, but was {n}"
        )));
    }
    match given.get("unsafe_aggressive_sstable_expiration") {
        Some(v) if v.eq_ignore_ascii_case("true") => Err(config(
            "unsafe_aggressive_sstable_expiration is requested but not allowed".to_owned(),
        )),
        Some(v) if !is_boolean(v) => Err(config(format!(
            "unsafe_aggressive_sstable_expiration is not 'true' or 'false' ({v})"
        ))),
        _ => Ok(()),
    }
}

fn check_thresholds(given: &BTreeMap<String, String>) -> Result<(), DdlError> {
    let threshold = |name: &str, default: i32| match given.get(name) {
        None => Ok(default),
        Some(v) if v.bytes().all(|b| b.is_ascii_digit()) && v.parse::<i32>().is_ok() => {
            Ok(v.parse().expect("it just did"))
        }
        Some(v) => Err(config(format!(
            "Invalid value {v} for '{name}' compaction sub-option - must be an integer"
        ))),
    };
    let (min, max) = (threshold("min_threshold", 4)?, threshold("max_threshold", 32)?);
    if min == 0 || max == 0 {
        return Err(config(
            "Disabling compaction by setting compaction thresholds to 0 has been removed, set the compaction option \
             'enabled' to false instead."
                .to_owned(),
        ));
    }
    if min < 2 {
        return Err(config(format!(
            "Min compaction threshold cannot be less than 2 (got {min})"
        )));
    }
    if min > max {
        return Err(config(format!(
            "Min compaction threshold (got {min}) cannot be greater than max compaction threshold (got {max})"
        )));
    }
    Ok(())
}

fn is_boolean(text: &str) -> bool {
    text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
}

/// A whole number of at most `most`; one that is below zero is left to the caller.
fn integer(given: &BTreeMap<String, String>, name: &str, most: i64) -> Result<Option<i64>, DdlError> {
    let Some(text) = given.get(name) else { return Ok(None) };
    match text.parse() {
        Ok(n) if n <= most => Ok(Some(n)),
        _ => Err(config(format!("{text} is not a parsable int (base10) for {name}"))),
    }
}

fn double(given: &BTreeMap<String, String>, name: &str, kind: &str) -> Result<Option<f64>, DdlError> {
    let Some(text) = given.get(name) else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() => Ok(Some(n)),
        _ => Err(config(format!("{text} is not a parsable {kind} for {name}"))),
    }
}
