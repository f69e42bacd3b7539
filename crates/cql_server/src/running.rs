//! What a shard is doing for its clients at a moment: what `system_views.queries` lists. Nothing is kept for it but the
//! requests that wait or run anyway; one that memory answers at once is never among them.

use std::rc::Rc;
use std::time::Duration;

use cql_protocol::Consistency;
use query::Prepared;
use query::engine::UNPREPARED;
use runtime::Instant;

use crate::Server;
use crate::connection::Connection;
use crate::pending::Waiting;
use crate::respond::Reply;
use crate::tracing::shortened;

/// Of a request's text, so much is shown.
const TEXT_CHARS_MAX: usize = 1000;

/// A request that a shard works on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunningRequest {
    /// Tells it from the others of the node: its shard, its client and the client's number for it.
    pub name: String,
    /// How long it waited for its turn.
    pub queued: Duration,
    /// How long it has been worked on since.
    pub running: Duration,
    /// What it asks: its kind, its text and its consistency level.
    pub text: String,
}

/// The statements of a request.
pub(crate) enum Asked {
    /// One statement.
    One(Rc<Prepared>),
    /// A BATCH message: how many, and the first.
    Batch(usize, Option<Rc<Prepared>>),
}

impl Asked {
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

/// A request that is worked on by a task.
pub(crate) struct RunningTask {
    pub(crate) asked: Asked,
    pub(crate) consistency: Consistency,
    pub(crate) stream: i16,
    pub(crate) queued: Duration,
    pub(crate) began: Instant,
}

/// A task's place among what its connection has running; gives it back at the end.
pub(crate) struct Place {
    connection: Rc<Connection>,
    number: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.pending.tasks.take(self.number);
    }
}

impl Connection {
    /// A task begins to work on a request, which came at the first moment and had its turn at the second.
    pub(crate) fn note_running(
        self: &Rc<Self>,
        asked: Asked,
        reply: &Reply,
        (came, began): (Instant, Instant),
    ) -> Place {
        let number = self.pending.tasks.add(RunningTask {
            asked,
            consistency: reply.consistency,
            stream: reply.stream,
            queued: began.saturating_duration_since(came),
            began,
        });
        Place {
            connection: Rc::clone(self),
            number,
        }
    }
}

impl Server {
    /// What this shard works on now, in no order.
    pub fn running_requests(&self) -> Vec<RunningRequest> {
        let mut requests = Vec::new();
        let shard = runtime::shard().0;
        for connection in self.open_connections() {
            connection.pending.each(|waiting: Waiting<'_>| {
                requests.push(RunningRequest {
                    name: format!("shard {shard}, client {}, stream {}", connection.peer, waiting.stream),
                    queued: waiting.queued,
                    running: waiting.running,
                    text: format!("{} at consistency {}", waiting.asked.text(), waiting.consistency),
                });
            });
        }
        requests
    }
}
