//! Traces of requests: because their client asked for it (`TRACING ON` in cqlsh) or by chance (`nodetool
//! settraceprobability`); [`front::RequestTrace`] decides.
//!
//! A traced request takes the general way, in a task. What is noted of it is written when it has been answered
//! ([`query::engine::traces`]); clients ask again until the session has its duration.

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use query::engine::traces::{Parameter, Session};
use query::trace::Trace;
use query::{Engine, QueryError};

use crate::slow::text_parameter;

/// A request that is being traced.
pub(crate) struct Traced {
    pub(crate) trace: Rc<Trace>,
    pub(crate) client: SocketAddr,
    /// What kind of request it is, in Cassandra's words.
    pub(crate) kind: &'static str,
    /// Names and values that describe it.
    pub(crate) parameters: Vec<Parameter>,
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

/// Keeps the trace of a PREPARE that has been answered, which takes no task: drivers that trace a query look for that
/// of its PREPARE too.
pub(crate) fn note_prepare(engine: &Rc<Engine>, trace: Option<Rc<Trace>>, client: SocketAddr, text: &str) {
    let Some(trace) = trace else { return };
    trace.note("Request complete".to_owned());
    let session = Session {
        client,
        request: "Preparing CQL3 query",
        duration: trace.elapsed(),
        parameters: vec![text_parameter(text.to_owned())],
    };
    let engine = Rc::clone(engine);
    drop(runtime::spawn(
        async move { engine.keep_trace(&trace, Some(session)).await },
    ));
}
