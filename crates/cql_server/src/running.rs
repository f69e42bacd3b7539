//! The statements of requests that wait or run, as `system_views.queries` lists them.

use std::rc::Rc;
use std::time::Duration;

use cql_protocol::Consistency;
use front::{RunningRequest, RunningTask, Slot, shortened};
use query::Prepared;
use query::engine::UNPREPARED;
use runtime::Instant;

use crate::connection::Connection;
use crate::respond::Reply;

/// Of a request's text, so much is shown.
const TEXT_CHARS_MAX: usize = 1000;

/// The statements of a request.
pub(crate) enum Statements {
    /// One statement.
    One(Rc<Prepared>),
    /// A BATCH message: how many, and the first.
    Batch(usize, Option<Rc<Prepared>>),
}

impl Statements {
    pub(crate) fn batch<T>(statements: &[(Rc<Prepared>, T)]) -> Self {
        Self::Batch(statements.len(), statements.first().map(|(first, _)| Rc::clone(first)))
    }

    fn text(&self) -> String {
        let text = |prepared: &Prepared| shortened(&prepared.text, TEXT_CHARS_MAX);
        match self {
            Self::One(prepared) if prepared.id == UNPREPARED => format!("QUERY {}", text(prepared)),
            Self::One(prepared) => format!("EXECUTE {}", text(prepared)),
            Self::Batch(_, None) => "BATCH of no statements".to_owned(),
            Self::Batch(1, Some(first)) => format!("BATCH of {}", text(first)),
            Self::Batch(count, Some(first)) => format!("BATCH of {count} statements, the first: {}", text(first)),
        }
    }
}

/// What a request asks.
pub(crate) struct Asked {
    pub(crate) statements: Statements,
    pub(crate) consistency: Consistency,
    pub(crate) stream: i16,
}

impl Asked {
    /// A request that is answered with this reply.
    pub(crate) fn new(statements: Statements, reply: &Reply) -> Self {
        Self {
            statements,
            consistency: reply.consistency,
            stream: reply.stream,
        }
    }

    /// How it is shown.
    pub(crate) fn running(&self, queued: Duration, running: Duration) -> RunningRequest {
        RunningRequest {
            name: format!("stream {}", self.stream),
            queued,
            running,
            text: format!("{} at consistency {}", self.statements.text(), self.consistency),
        }
    }
}

impl Connection {
    /// A task begins to work on a request, which came at the first moment and had its turn at the second.
    pub(crate) fn note_running(
        &self,
        statements: Statements,
        reply: &Reply,
        times: (Instant, Instant),
    ) -> Slot<RunningTask<Asked>> {
        let task = RunningTask::new(Asked::new(statements, reply), times);
        self.pending.tasks.hold(task)
    }
}
