//! The texts that values of options have: switches, sizes, durations, rates, host names and processor lists.
//!
//! A parser answers `None` for what it does not take; the caller knows the option's name and says what was expected.

use std::time::Duration;

/// A switch, in the forms that YAML and command lines use.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Bytes: `512M`, `1.5G`, `16MiB`, `64 KiB`, `4096`, `4096B`. A unit is always binary: the field writes `512M` for 512
/// MiB.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    scale(number, 1 << shift)
}

/// A duration with its unit: `10000ms`, `10s`, `5m`, `1h`, `1d`, `200us`, `50ns`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let number: u64 = number.parse().ok()?;
    let seconds = |factor: u64| number.checked_mul(factor).map(Duration::from_secs);
    match unit {
        "ns" => Some(Duration::from_nanos(number)),
        "us" | "µs" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3_600),
        "d" => seconds(86_400),
        _ => None,
    }
}

/// A fraction from 0.01 to 1 with at most six digits, in millionths.
pub(super) fn fraction(text: &str) -> Option<u32> {
    let (whole, digits) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_number = whole.len() == 1 && digits.len() <= 6 && digits.bytes().all(|digit| digit.is_ascii_digit());
    let millionths = whole
        .parse::<u32>()
        .ok()
        .filter(|_| is_number)?
        .checked_mul(1_000_000)?;
    let part: u32 = format!("{digits:0<6}").parse().ok()?;
    Some(millionths + part).filter(|level| (10_000..=1_000_000).contains(level))
}

/// A fraction in millionths as text.
pub(super) fn fraction_text(millionths: u32) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole percentage, or None for -1.
pub(super) fn percentage(text: &str) -> Option<Option<u32>> {
    match text.trim() {
        "-1" => Some(None),
        text => text
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .map(Some),
    }
}

/// A rate: `64MiB/s`, `500KiB/s`, `0`.
pub(super) fn rate(text: &str) -> Option<u64> {
    let per_second = text.strip_suffix("/s").or_else(|| (text == "0").then_some(text))?;
    size(per_second)
}

/// The items of a list: `a,b`, or as a list of YAML or JSON writes them, `["a", 'b', c]`.
pub(super) fn list(text: &str) -> Vec<&str> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let items = inner.unwrap_or(text).split(',').map(str::trim);
    items.map(unquoted).filter(|item| !item.is_empty()).collect()
}

/// A text without the quotes around it.
fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(text).trim()
}

/// Whether a text may be the name of a host: labels of letters, digits, `-` and `_`, not all of them numbers.
pub(super) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= HOST_NAME_LEN_MAX && name.split('.').all(is_label) && name.bytes().any(|b| b.is_ascii_alphabetic())
}

/// The domain name system has no longer ones.
const HOST_NAME_LEN_MAX: usize = 253;

/// Processors as the kernel writes sets of them: `0-3,8,10-11`; ascending, each once.
pub(super) fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// No kernel numbers a processor above this.
const CPU_MAX: usize = 8_191;

/// The leading number, and what follows it.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// A decimal number times a factor, exactly: what a double would round is refused or cut to whole bytes.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    if fraction.len() > 9 {
        return None;
    }
    let parts = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor) / u128::from(parts);
    whole.checked_add(u64::try_from(fraction).ok()?)
}

/// A size as 4.1 and later write it: in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}
