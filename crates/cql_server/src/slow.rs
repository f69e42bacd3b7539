//! Requests that were slow: answered later than `slow_query_log_timeout` after they were read.
//!
//! Such a request is logged with its text, and kept for a day in `system_traces.node_slow_log` ([`query::engine::traces`]). A shard does this for so many of them in
//! [`PERIOD`] and counts the others: when everything is slow, that is not another load. Requests that memory answers at once are not looked at.

use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use query::engine::traces::{Session, SlowRow};
use query::{Params, Prepared};
use runtime::Instant;

use crate::connection::Connection;
use crate::respond::Reply;
use crate::tracing::shortened;

/// Slow requests that a shard logs in [`PERIOD`].
const MAX: u32 = 5;
const PERIOD: Duration = Duration::from_secs(5);
/// Of a slow request's text, so much is logged.
const CHARS_MAX: usize = 1000;
/// Of a slow request's text, so much is kept.
const KEPT_CHARS_MAX: usize = 10_000;

/// The shard's account of slow requests.
#[derive(Default)]
pub(crate) struct SlowRequests {
    period_began: Cell<Option<Instant>>,
    /// Those of the period.
    seen: Cell<u32>,
}

impl SlowRequests {
    /// Counts a slow request: whether it is among those of the period that are logged.
    fn is_logged(&self) -> bool {
        let now = runtime::now();
        let is_over = |began: Instant| now.saturating_duration_since(began) >= PERIOD;
        if self.period_began.get().is_none_or(is_over) {
            let unlogged = self.seen.replace(0).saturating_sub(MAX);
            self.period_began.set(Some(now));
            if unlogged > 0 {
                log::warn!("{unlogged} more slow requests are not logged");
            }
        }
        self.seen.set(self.seen.get() + 1);
        self.seen.get() <= MAX
    }
}

/// What is said of a request that was slow.
pub(crate) struct SlowRequest {
    /// What kind of request it is, in Cassandra's words.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    /// Names and values that describe it.
    pub(crate) parameters: Vec<(&'static str, String)>,
    /// The tables that it is about, with their keyspaces.
    pub(crate) tables: Vec<String>,
}

impl SlowRequest {
    pub(crate) fn new<'s>(
        kind: &'static str,
        text: String,
        parameters: Vec<(&'static str, String)>,
        statements: impl Iterator<Item = &'s Prepared>,
    ) -> Self {
        let tables = statements.filter_map(|prepared| prepared.table.as_deref());
        Self {
            kind,
            text,
            parameters,
            tables: tables
                .map(|table| format!("{}.{}", table.keyspace, table.name))
                .collect(),
        }
    }
}

/// Names and values that describe a request: as Cassandra has them in a session of `system_traces`.
pub(crate) fn parameters_of(params: &Params, text: String) -> Vec<(&'static str, String)> {
    let level = match params.serial {
        true => params.serial_consistency,
        false => params.consistency,
    };
    let mut parameters = usual_parameters(level, text);
    parameters.extend(params.page_rows.map(|rows| ("page_size", rows.to_string())));
    parameters.push(("serial_consistency_level", params.serial_consistency.to_string()));
    parameters
}

/// Those that each request has.
pub(crate) fn usual_parameters(level: impl Display, text: String) -> Vec<(&'static str, String)> {
    vec![("consistency_level", level.to_string()), ("query", text)]
}

impl Connection {
    /// Logs and keeps a request if it was slow.
    #[inline]
    pub(crate) fn note_slow(&self, took: Duration, reply: &Reply, request: impl FnOnce() -> SlowRequest) {
        let threshold = self.server.engine.node.slow_request.get();
        if let Some(threshold) = threshold.filter(|threshold| took >= *threshold)
            && self.server.slow.is_logged()
        {
            self.keep_slow((took, threshold), reply, request());
        }
    }

    #[cold]
    fn keep_slow(&self, (took, threshold): (Duration, Duration), reply: &Reply, request: SlowRequest) {
        let SlowRequest {
            kind,
            text,
            mut parameters,
            tables,
        } = request;
        log::warn!(
            "slow request of client {}: {took:?}, threshold {threshold:?}: {}",
            self.peer,
            shortened(&text, CHARS_MAX)
        );
        let text = shortened(&text, KEPT_CHARS_MAX);
        for (_, value) in parameters.iter_mut().filter(|(name, _)| *name == "query") {
            value.clone_from(&text);
        }
        let session = Session {
            client: self.peer,
            request: kind,
            duration: took,
            parameters,
        };
        let row = SlowRow {
            trace: reply.tracing_id,
            session,
            text,
            tables,
        };
        let engine = Rc::clone(&self.server.engine);
        drop(runtime::spawn(async move { engine.keep_slow(row).await }));
    }
}
