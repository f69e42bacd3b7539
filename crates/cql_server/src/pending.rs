//! Requests that replicas of other shards and nodes are working on: an entry each, and no task.

use std::iter;
use std::rc::Rc;
use std::time::Duration;

use cql_protocol::{Extras, write_void};
use front::{RunningRequest, RunningTask, Slots};
use query::{Confirmation, CoordinatorError, Prepared, QueryError, ReadDone, WriteDone};
use runtime::{Instant, Permit};
use schema::TableId;
use types::Token;

use crate::connection::Connection;
use crate::dispatch::{DeferredRequest, kind_of};
use crate::respond::Reply;
use crate::running::{Asked, Statements};
use crate::slow::{level_parameter, slow_request};

/// A write that waits for its replicas.
struct PendingWrite {
    reply: Reply,
    statement: Rc<Prepared>,
    table: TableId,
    token: Token,
    /// When it came, microseconds of the wall clock.
    began_us: i64,
    /// Held to the end: that it is in flight, and its memory.
    _permits: (Permit, Permit),
}

/// A read whose answer waits for other replicas to confirm it.
struct PendingRead {
    /// The whole answer, if they do.
    answer: Vec<u8>,
    /// The request, if they do not.
    again: DeferredRequest,
    began: Instant,
    in_flight: Permit,
    memory: Permit,
}

/// The requests of a connection that wait or run.
#[derive(Default)]
pub(crate) struct Pending {
    writes: Slots<PendingWrite>,
    reads: Slots<PendingRead>,
    /// Those that a task works on.
    pub(crate) tasks: Rc<Slots<RunningTask<Asked>>>,
}

impl Pending {
    /// Shows all of them.
    pub(crate) fn each(&self, show: &mut dyn FnMut(RunningRequest)) {
        let now_us = runtime::wall_clock_us();
        self.writes.each(|write| {
            let asked = Asked::new(Statements::One(Rc::clone(&write.statement)), &write.reply);
            let running = u64::try_from(now_us - write.began_us).unwrap_or(0);
            show(asked.running(Duration::ZERO, Duration::from_micros(running)));
        });
        self.reads.each(|read| {
            let asked = Asked::new(read.again.statements(), &read.again.reply);
            show(asked.running(Duration::ZERO, read.began.elapsed()));
        });
        self.tasks
            .each(|task| show(task.asked.running(task.queued, task.began.elapsed())));
    }
}

impl Connection {
    /// Notes a write that is sent to its replicas. Returns what is notified of its outcome; None if it must wait for
    /// memory first.
    pub(crate) fn begin_pending(
        self: &Rc<Self>,
        reply: Reply,
        (statement, table, token): (&Rc<Prepared>, TableId, Token),
        bytes: usize,
        began_us: i64,
    ) -> Option<(Rc<dyn WriteDone>, u32)> {
        let permits = self.session.try_begin(bytes)?;
        let number = self.pending.writes.add(PendingWrite {
            reply,
            statement: Rc::clone(statement),
            table,
            token,
            began_us,
            _permits: permits,
        });
        if self.session.front.counts.note_later() {
            self.server.note_owner(table, token);
        }
        Some((self.clone(), number))
    }

    /// Keeps the answer to a read until other replicas have confirmed it, and the request should they not; `memory`
    /// is for both. None: the connection has too many requests in flight, and this one runs in the general way.
    pub(crate) fn begin_confirming(
        self: &Rc<Self>,
        answer: Vec<u8>,
        again: DeferredRequest,
        memory: Permit,
    ) -> Option<(Rc<dyn ReadDone>, u32)> {
        let Some(in_flight) = self.session.try_in_flight() else {
            self.run_later(again, memory);
            return None;
        };
        // This shard has the partition.
        let counts = &self.session.front.counts;
        counts.owned.set(counts.owned.get() + 1);
        let number = self.pending.reads.add(PendingRead {
            answer,
            again,
            began: runtime::now(),
            in_flight,
            memory,
        });
        Some((self.clone(), number))
    }
}

impl ReadDone for Connection {
    fn read_done(self: Rc<Self>, number: u32, confirmation: Confirmation) {
        let Some(PendingRead {
            mut answer,
            mut again,
            began,
            in_flight,
            memory,
        }) = self.pending.reads.take(number)
        else {
            return;
        };
        match confirmation {
            Confirmation::Agreed => {
                self.server.note_latency(&again);
                self.note_slow(began.elapsed(), &again.reply, || again.slow());
            }
            Confirmation::Open => {
                drop(in_flight);
                again.request.waited = began.elapsed();
                return self.run_later(again, memory);
            }
            Confirmation::Failed(error) => {
                answer.clear();
                again.reply.error(&mut answer, &QueryError::of_replicas(error));
            }
        }
        self.session.outbox.push(&mut answer);
    }
}

impl WriteDone for Connection {
    fn write_done(self: Rc<Self>, number: u32, result: Result<(), CoordinatorError>) {
        let Some(write) = self.pending.writes.take(number) else {
            return;
        };
        let took = u64::try_from(runtime::wall_clock_us() - write.began_us).unwrap_or(0);
        self.session.front.counts.writes.add(took, 1);
        self.note_slow(Duration::from_micros(took), &write.reply, || {
            let (statement, parameters) = (&write.statement, vec![level_parameter(write.reply.consistency)]);
            let text = statement.text.to_string();
            slow_request(kind_of(statement), text, parameters, iter::once(&**statement))
        });
        self.server
            .record(Some(write.table), |recorded| recorded.writes.add(took, 1));
        let unsent = &self.session.front.memory.unsent;
        let mut out = unsent.spare();
        match result {
            Ok(()) => {
                // Looked up after the write has run: by now the tablet may have moved.
                let route = self.route(&write.reply, || Some((write.table, write.token)));
                let payload = route.as_ref().map(|(key, route)| (*key, &**route));
                let extras = Extras {
                    custom_payload: payload.as_slice(),
                    ..write.reply.extras()
                };
                write_void(&mut out, write.reply.version, write.reply.stream, &extras);
            }
            Err(error) => write.reply.error(&mut out, &QueryError::of_replicas(error)),
        }
        self.session.outbox.push(&mut out);
        unsent.give_back(out);
    }
}
