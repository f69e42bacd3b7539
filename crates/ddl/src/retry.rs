//! The policies of `speculative_retry` and `additional_write_policy`: `99p`, `50ms`, `MIN(99p,50ms)`, `ALWAYS`,
//! `NEVER`.

use crate::error::DdlError;

/// One term of a policy.
enum Policy {
    /// Of the latencies so far.
    Percentile(f64),
    /// After so many milliseconds.
    Fixed(f64),
}

/// The policy in the spelling that it is kept and shown in.
pub(crate) fn canonical(option: &str, text: &str) -> Result<String, DdlError> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "never" | "none" => return Ok("NEVER".to_owned()),
        "always" => return Ok("ALWAYS".to_owned()),
        _ => {}
    }
    let invalid = || DdlError::Config(format!("Invalid value {text} for option '{option}'"));
    let function = ["min", "max"].into_iter().find(|f| lower.starts_with(f));
    if let Some(function) = function {
        let inner = lower[function.len()..]
            .strip_prefix('(')
            .and_then(|t| t.strip_suffix(')'))
            .ok_or_else(invalid)?;
        let (left, right) = inner.split_once(',').ok_or_else(invalid)?;
        let left = policy(option, text, left.trim_end())?;
        let right = policy(option, text, right.trim_start())?;
        let (percentile, fixed) = match (&left, &right) {
            (Policy::Percentile(_), Policy::Fixed(_)) => (left, right),
            (Policy::Fixed(_), Policy::Percentile(_)) => (right, left),
            _ => {
                let kind = if matches!(left, Policy::Fixed(_)) {
                    "FIXED"
                } else {
                    "PERCENTILE"
                };
                return Err(DdlError::Config(format!(
                    "Invalid value {text} for option '{option}': MIN()/MAX() arguments should be of different types, but \
                     both are of type {kind}"
                )));
            }
        };
        return Ok(format!(
            "{}({},{})",
            function.to_ascii_uppercase(),
            print(&percentile),
            print(&fixed)
        ));
    }
    policy(option, text, &lower).map(|p| print(&p))
}

fn policy(option: &str, whole: &str, term: &str) -> Result<Policy, DdlError> {
    let digits = term.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = term.split_at(digits);
    let number: Option<f64> = number.parse().ok();
    match (number, unit) {
        (Some(n), "p" | "percentile") => {
            if n <= 0.0 || n >= 100.0 {
                return Err(DdlError::Config(format!(
                    "Invalid value {whole} for PERCENTILE option '{option}': must be between (0.0 and 100.0)"
                )));
            }
            Ok(Policy::Percentile(n))
        }
        (Some(n), "ms") if n <= f64::from(i32::MAX) => Ok(Policy::Fixed(n)),
        _ => Err(DdlError::Config(format!("Invalid value {whole} for option '{option}'"))),
    }
}

/// Percentiles to four digits, milliseconds whole.
fn print(policy: &Policy) -> String {
    match policy {
        Policy::Percentile(n) => {
            let text = format!("{n:.4}");
            format!("{}p", text.trim_end_matches('0').trim_end_matches('.'))
        }
        Policy::Fixed(n) => format!("{}ms", n.trunc()),
    }
}
