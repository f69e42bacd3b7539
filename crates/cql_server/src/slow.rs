//! Slow requests ([`front::SlowRequest`]) in Cassandra's words, and where they are kept: for a day in
//! `system_traces.node_slow_log` ([`query::engine::traces`]).

use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use front::{SlowRequest, shortened};
use plan::{Execution, OwnedBound};
use query::Prepared;
use query::engine::traces::{Parameter, Session, SlowRow};

use crate::connection::Connection;
use crate::respond::Reply;

/// Of a slow request's text, so much is kept.
const KEPT_CHARS_MAX: usize = 10_000;
/// Of each bound value in what describes a request, so much is kept.
const BOUND_CHARS_MAX: usize = 1000;

/// What is said of a request that was slow.
pub(crate) fn slow_request<'s>(
    kind: &'static str,
    text: String,
    parameters: Vec<Parameter>,
    statements: impl Iterator<Item = &'s Prepared>,
) -> SlowRequest {
    let tables = statements.filter_map(|prepared| prepared.table.as_deref());
    SlowRequest {
        kind,
        text,
        parameters,
        tables: tables
            .map(|table| format!("{}.{}", table.keyspace, table.name))
            .collect(),
    }
}

/// Names and values that describe a request, but its text: as Cassandra has them in a session of `system_traces`.
pub(crate) fn parameters_of(request: &query::Request) -> Vec<Parameter> {
    let level = if request.is_serial {
        request.serial_level
    } else {
        request.level
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
        if let Some(request) = self.session.note_slow(took, request) {
            self.keep_slow(took, reply, request);
        }
    }

    #[cold]
    fn keep_slow(&self, took: Duration, reply: &Reply, request: SlowRequest) {
        let SlowRequest {
            kind,
            text,
            parameters,
            tables,
        } = request;
        let text = shortened(&text, KEPT_CHARS_MAX);
        let session = Session {
            client: self.session.peer,
            request: kind,
            duration: took,
            parameters: with_text(parameters, text.clone()),
        };
        let row = SlowRow {
            trace: reply.trace.map(|trace| trace.id),
            session,
            text,
            tables,
        };
        let engine = Rc::clone(&self.server.engine);
        drop(runtime::spawn(async move { engine.keep_slow(row).await }));
    }
}
