//! Slow requests: answered later after they were read than the node's threshold says.
//!
//! Such a request is logged with its text; the front door keeps it where operators find it. A shard does this for so
//! many of them in [`PERIOD`] and counts the others: when everything is slow, that is not another load. Requests that
//! memory answers at once are not looked at.

use std::borrow::Cow;
use std::time::Duration;

use logging::LineLimit;

use crate::session::Session;

/// Slow requests that a shard logs in [`PERIOD`].
const MAX: u32 = 5;
const PERIOD: Duration = Duration::from_secs(5);
/// Of a slow request's text, so much is logged.
const CHARS_MAX: usize = 1000;

/// The shard's account of slow requests.
pub(crate) const fn limit() -> LineLimit {
    LineLimit::of((MAX, PERIOD), |lines| {
        log::warn!("{lines} more slow requests are not logged")
    })
}

/// What is said of a request that was slow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowRequest {
    /// What kind of request it is, in the protocol's words.
    pub kind: &'static str,
    /// Its text.
    pub text: String,
    /// Names and values that describe it, but its text.
    pub parameters: Vec<(Cow<'static, str>, String)>,
    /// The tables that it is about, with their keyspaces.
    pub tables: Vec<String>,
}

impl Session {
    /// Logs a request if it was slow. Returns it then, to be kept.
    #[inline]
    pub fn note_slow(&self, took: Duration, request: impl FnOnce() -> SlowRequest) -> Option<SlowRequest> {
        let threshold = self.front.node.slow_request.get()?;
        (took >= threshold && self.front.slow.admits()).then(|| self.log_slow((took, threshold), request()))
    }

    #[cold]
    fn log_slow(&self, (took, threshold): (Duration, Duration), request: SlowRequest) -> SlowRequest {
        log::warn!(
            "slow request of client {}: {took:?}, threshold {threshold:?}: {}",
            self.peer,
            shortened(&request.text, CHARS_MAX)
        );
        request
    }
}

/// A text in one line and of so many characters at the most.
#[must_use]
pub fn shortened(text: &str, chars_max: usize) -> String {
    let cut: String = text.chars().take(chars_max).collect();
    let more = if cut.len() < text.len() { " …" } else { "" };
    format!("{}{more}", cut.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_put_into_one_line() {
        assert_eq!(shortened("SELECT\n1", 20), "SELECT 1");
        assert_eq!(shortened("äöü", 2), "äö …");
        assert_eq!(shortened("äöü", 3), "äöü");
    }
}
