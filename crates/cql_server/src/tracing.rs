//! Requests that are traced because their client asked for it (`TRACING ON` in cqlsh) or by chance (`nodetool settraceprobability`), and requests that were slow.
//!
//! A traced request takes the general way, in a task. What is noted of it is written when it has been answered ([`query::engine::traces`]); clients ask again
//! until the session has its duration.
//!
//! A request is slow when its answer came later than `slow_query_log_timeout` after it was read. It is logged with its text. A shard logs so many of them in
//! [`SLOW_PERIOD`] and counts the others: when everything is slow, the log is not another load. Requests that memory answers at once are not looked at.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use query::engine::traces::Session;
use query::trace::Trace;
use query::{Engine, QueryError};
use runtime::Instant;

/// Slow requests that a shard logs in [`SLOW_PERIOD`].
const SLOW_MAX: u32 = 5;
const SLOW_PERIOD: Duration = Duration::from_secs(5);
/// Of a slow request's text, so much is logged.
const SLOW_CHARS_MAX: usize = 1000;

/// A request that is being traced.
pub(crate) struct Traced {
    pub(crate) trace: Rc<Trace>,
    pub(crate) client: SocketAddr,
    /// What kind of request it is, in Cassandra's words.
    pub(crate) kind: &'static str,
    /// Names and values that describe it.
    pub(crate) parameters: Vec<(&'static str, String)>,
}

/// Does a request's work, with its trace where there is one, which is written when the work has ended.
pub(crate) async fn traced<T>(
    traced: Option<Traced>,
    engine: &Rc<Engine>,
    work: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, QueryError> {
    let Some(traced) = traced else { return work.await };
    let Traced {
        trace,
        client,
        kind,
        parameters,
    } = traced;
    let result = trace.during(work).await;
    trace.note(match &result {
        Ok(_) => "Request complete".to_owned(),
        Err(e) => format!("Request failed: {}", e.message()),
    });
    let session = Session {
        client,
        request: kind,
        duration: trace.elapsed(),
        parameters,
    };
    let engine = Rc::clone(engine);
    drop(runtime::spawn(
        async move { engine.keep_trace(&trace, Some(session)).await },
    ));
    result
}

/// Keeps the trace of a PREPARE that has been answered, which takes no task: drivers that trace a query look for that of its PREPARE too.
pub(crate) fn note_prepare(engine: &Rc<Engine>, trace: Option<Rc<Trace>>, client: SocketAddr, text: &str) {
    let Some(trace) = trace else { return };
    trace.note("Request complete".to_owned());
    let session = Session {
        client,
        request: "Preparing CQL3 query",
        duration: trace.elapsed(),
        parameters: vec![("query", text.to_owned())],
    };
    let engine = Rc::clone(engine);
    drop(runtime::spawn(
        async move { engine.keep_trace(&trace, Some(session)).await },
    ));
}

/// The shard's account of slow requests.
#[derive(Default)]
pub(crate) struct SlowRequests {
    period_began: Cell<Option<Instant>>,
    /// Those of the period.
    seen: Cell<u32>,
}

impl SlowRequests {
    /// Logs a request that took longer than the threshold, unless the period has had its share.
    #[cold]
    pub(crate) fn log(&self, took: Duration, threshold: Duration, client: SocketAddr, text: &str) {
        let now = runtime::now();
        let is_over = |began: Instant| now.saturating_duration_since(began) >= SLOW_PERIOD;
        if self.period_began.get().is_none_or(is_over) {
            let unlogged = self.seen.replace(0).saturating_sub(SLOW_MAX);
            self.period_began.set(Some(now));
            if unlogged > 0 {
                log::warn!("{unlogged} more slow requests are not logged");
            }
        }
        self.seen.set(self.seen.get() + 1);
        if self.seen.get() <= SLOW_MAX {
            log::warn!(
                "slow request of client {client}: {took:?}, threshold {threshold:?}: {}",
                shortened(text, SLOW_CHARS_MAX)
            );
        }
    }
}

/// A text in one line and of so many characters at the most.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    let cut: String = text.chars().take(chars_max).collect();
    let more = if cut.len() < text.len() { " …" } else { "" };
    format!("{}{more}", cut.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_stands_in_one_line() {
        assert_eq!(shortened("SELECT\n1", 20), "SELECT 1");
        assert_eq!(shortened("äöü", 2), "äö …");
        assert_eq!(shortened("äöü", 3), "äöü");
    }
}
