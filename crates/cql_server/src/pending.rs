//! Requests that replicas of other shards and nodes are working on: an entry each, and no task.

use std::cell::RefCell;
use std::iter;
use std::rc::Rc;
use std::time::Duration;

use cql_protocol::{Consistency, Extras, write_void};
use query::{Confirmation, CoordinatorError, Prepared, QueryError, ReadDone, WriteDone};
use runtime::{Instant, Permit};
use schema::TableId;
use types::Token;

use crate::connection::Connection;
use crate::counts::OWNER_EVERY;
use crate::dispatch::{Later, kind_of};
use crate::respond::Reply;
use crate::running::{Asked, RunningTask};
use crate::slow::{SlowRequest, level_parameter};

/// A write that waits for its replicas.
struct PendingWrite {
    reply: Reply,
    statement: Rc<Prepared>,
    table: TableId,
    token: Token,
    /// When it came, microseconds of the wall clock.
    began_us: i64,
    /// Held to the end: the connection's share of requests, and the shard's room for them.
    _permits: (Permit, Permit),
}

/// A read whose answer waits for other replicas to confirm it.
struct PendingRead {
    /// The whole answer, if they do.
    answer: Vec<u8>,
    /// The request, if they do not.
    again: Later,
    began: Instant,
    in_flight: Permit,
    room: Permit,
}

/// Requests that wait or run, by number.
pub(crate) struct Slots<T> {
    slots: RefCell<Vec<Option<T>>>,
    free: RefCell<Vec<u32>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: RefCell::default(),
            free: RefCell::default(),
        }
    }
}

impl<T> Slots<T> {
    pub(crate) fn add(&self, request: T) -> u32 {
        let mut slots = self.slots.borrow_mut();
        if let Some(number) = self.free.borrow_mut().pop() {
            slots[number as usize] = Some(request);
            return number;
        }
        slots.push(Some(request));
        u32::try_from(slots.len() - 1).expect("a connection has few requests in flight")
    }

    pub(crate) fn take(&self, number: u32) -> Option<T> {
        let request = self.slots.borrow_mut().get_mut(number as usize)?.take()?;
        self.free.borrow_mut().push(number);
        Some(request)
    }
}

/// The requests of a connection that wait or run.
#[derive(Default)]
pub(crate) struct Pending {
    writes: Slots<PendingWrite>,
    reads: Slots<PendingRead>,
    /// Those that a task works on.
    pub(crate) tasks: Slots<RunningTask>,
}

/// One of them, to be shown.
pub(crate) struct Waiting<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) consistency: Consistency,
    pub(crate) stream: i16,
    pub(crate) queued: Duration,
    pub(crate) running: Duration,
}

impl Pending {
    /// Shows all of them.
    pub(crate) fn each(&self, mut show: impl FnMut(Waiting<'_>)) {
        let now_us = runtime::wall_clock_us();
        for write in self.writes.slots.borrow().iter().flatten() {
            show(Waiting {
                asked: &Asked::One(Rc::clone(&write.statement)),
                consistency: write.reply.consistency,
                stream: write.reply.stream,
                queued: Duration::ZERO,
                running: Duration::from_micros(u64::try_from(now_us - write.began_us).unwrap_or(0)),
            });
        }
        for read in self.reads.slots.borrow().iter().flatten() {
            show(Waiting {
                asked: &read.again.asked(),
                consistency: read.again.reply.consistency,
                stream: read.again.reply.stream,
                queued: Duration::ZERO,
                running: read.began.elapsed(),
            });
        }
        for task in self.tasks.slots.borrow().iter().flatten() {
            show(Waiting {
                asked: &task.asked,
                consistency: task.consistency,
                stream: task.stream,
                queued: task.queued,
                running: task.began.elapsed(),
            });
        }
    }
}

impl Connection {
    /// Notes a write that is sent to its replicas. Returns what is notified of its outcome; None if it must wait for
    /// room first.
    pub(crate) fn begin_pending(
        self: &Rc<Self>,
        reply: Reply,
        (statement, table, token): (&Rc<Prepared>, TableId, Token),
        bytes: usize,
        began_us: i64,
    ) -> Option<(Rc<dyn WriteDone>, u32)> {
        let permits = (self.in_flight.try_acquire(1)?, self.room_for(bytes)?);
        let number = self.pending.writes.add(PendingWrite {
            reply,
            statement: Rc::clone(statement),
            table,
            token,
            began_us,
            _permits: permits,
        });
        let counts = &self.server.counts;
        let of_all = counts.later.get();
        counts.later.set(of_all + 1);
        if of_all.is_multiple_of(OWNER_EVERY) {
            self.server.note_owner(table, token);
        }
        Some((self.clone(), number))
    }

    /// Keeps the answer to a read until other replicas have confirmed it, and the request should they not; `room` is
    /// for both. None: the connection has too many requests in flight, and this one runs in the general way.
    pub(crate) fn begin_confirming(
        self: &Rc<Self>,
        answer: Vec<u8>,
        again: Later,
        room: Permit,
    ) -> Option<(Rc<dyn ReadDone>, u32)> {
        let Some(in_flight) = self.in_flight.try_acquire(1) else {
            self.run_later(again, room);
            return None;
        };
        // This shard has the partition.
        let counts = &self.server.counts;
        counts.owned.set(counts.owned.get() + 1);
        let number = self.pending.reads.add(PendingRead {
            answer,
            again,
            began: runtime::now(),
            in_flight,
            room,
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
            room,
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
                return self.run_later(again, room);
            }
            Confirmation::Failed(error) => {
                answer.clear();
                again.reply.error(&mut answer, &QueryError::of_replicas(error));
            }
        }
        self.outbox.push(&mut answer);
    }
}

impl WriteDone for Connection {
    fn write_done(self: Rc<Self>, number: u32, result: Result<(), CoordinatorError>) {
        let Some(write) = self.pending.writes.take(number) else {
            return;
        };
        let took = u64::try_from(runtime::wall_clock_us() - write.began_us).unwrap_or(0);
        self.server.counts.writes.add(took, 1);
        self.note_slow(Duration::from_micros(took), &write.reply, || {
            let (statement, parameters) = (&write.statement, vec![level_parameter(write.reply.consistency)]);
            let text = statement.text.to_string();
            SlowRequest::new(kind_of(statement), text, parameters, iter::once(&**statement))
        });
        self.server
            .record(Some(write.table), |recorded| recorded.writes.add(took, 1));
        let unsent = &self.server.unsent_room;
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
        self.outbox.push(&mut out);
        unsent.give_back(out);
    }
}
