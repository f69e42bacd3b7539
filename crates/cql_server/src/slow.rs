//! Requests that were slow: answered later than `slow_query_log_timeout` after they were read.
//!
//! Such a request is logged with its text, and kept for a day in `system_traces.node_slow_log`
//! ([`query::engine::traces`]). A shard does this for so many of them in [`PERIOD`] and counts the others: when
//! everything is slow, that is not another load. Requests that memory answers at once are not looked at.

use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use logging::LineLimit;
use plan::{Execution, OwnedBound};
use query::Prepared;
use query::engine::traces::{Parameter, Session, SlowRow};

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
/// Of each bound value in what describes a request, so much is kept.
const BOUND_CHARS_MAX: usize = 1000;

/// The shard's account of slow requests.
pub(crate) const fn limit() -> LineLimit {
    LineLimit::of((MAX, PERIOD), |lines| {
        log::warn!("{lines} more slow requests are not logged")
    })
}

/// What is said of a request that was slow.
pub(crate) struct SlowRequest {
    /// What kind of request it is, in Cassandra's words.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    /// Names and values that describe it, but its text.
    pub(crate) parameters: Vec<Parameter>,
    /// The tables that it is about, with their keyspaces.
    pub(crate) tables: Vec<String>,
}

impl SlowRequest {
    pub(crate) fn new<'s>(
        kind: &'static str,
        text: String,
        parameters: Vec<Parameter>,
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

/// Names and values that describe a request, but its text: as Cassandra has them in a session of `system_traces`.
pub(crate) fn parameters_of(request: &query::Request) -> Vec<Parameter> {
    let level = match request.is_serial {
        true => request.serial_level,
        false => request.level,
    };
    let mut parameters = vec![level_parameter(level)];
    parameters.extend(request.page_rows.map(|rows| ("page_size".into(), rows.to_string())));
    let serial = request.serial_level.to_string();
    parameters.push(("serial_consistency_level".into(), serial));
    parameters
}

/// The values of a statement's markers, each as a literal under its number and name. Long ones are cut.
pub(crate) fn bound_parameters<'s>(prepared: &'s Prepared, run: &'s Execution) -> impl Iterator<Item = Parameter> + 's {
    let markers = prepared.markers.iter().zip(&run.values).enumerate();
    markers.map(|(number, (marker, bound))| {
        let value = match bound {
            OwnedBound::Value(value) => shortened(&marker.cql_type.format(value), BOUND_CHARS_MAX),
            OwnedBound::Null => "null".to_owned(),
            OwnedBound::Unset => "unset".to_owned(),
        };
        (format!("bound_var_{number}_{}", marker.name).into(), value)
    })
}

/// The one that each request has.
pub(crate) fn level_parameter(level: impl Display) -> Parameter {
    ("consistency_level".into(), level.to_string())
}

/// The text of a request among what describes it.
pub(crate) fn text_parameter(text: String) -> Parameter {
    ("query".into(), text)
}

/// What describes a request, with its text.
pub(crate) fn with_text(mut parameters: Vec<Parameter>, text: String) -> Vec<Parameter> {
    parameters.push(text_parameter(text));
    parameters
}

impl Connection {
    /// Logs and keeps a request if it was slow.
    #[inline]
    pub(crate) fn note_slow(&self, took: Duration, reply: &Reply, request: impl FnOnce() -> SlowRequest) {
        let threshold = self.server.engine.node.slow_request.get();
        if let Some(threshold) = threshold.filter(|threshold| took >= *threshold)
            && self.server.slow.admits()
        {
            self.keep_slow((took, threshold), reply, request());
        }
    }

    #[cold]
    fn keep_slow(&self, (took, threshold): (Duration, Duration), reply: &Reply, request: SlowRequest) {
        let SlowRequest {
            kind,
            text,
            parameters,
            tables,
        } = request;
        log::warn!(
            "slow request of client {}: {took:?}, threshold {threshold:?}: {}",
            self.peer,
            shortened(&text, CHARS_MAX)
        );
        let text = shortened(&text, KEPT_CHARS_MAX);
        let session = Session {
            client: self.peer,
            request: kind,
            duration: took,
            parameters: with_text(parameters, text.clone()),
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
