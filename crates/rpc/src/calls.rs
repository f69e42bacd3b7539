//! The calls of one connection: a table of what waits for each answer, and the line of requests that are not sent yet.
//!
//! This is the part without sockets and tasks. A call's id is its slot and the slot's generation, so an answer that
//! comes after its call was given up matches no call. A request is sent at once while few are in flight and the outbox
//! has room; otherwise it waits in a line of bounded length and bytes, beyond which it is refused.
//!
//! Invariants: `in_flight` and `in_flight_bytes` count the entries that are [`State::InFlight`], `waiting` and
//! `waiting_bytes` those that are [`State::Waiting`]; each of the latter is in `line` once. Tickets in `line` whose
//! entry is gone are at most as many as the rest plus [`STALE_MAX`].

use crate::Purpose;
use crate::config::Limits;
use crate::error::RpcError;
use runtime::Instant;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

/// Given-up tickets that may be in the line before it is swept.
const STALE_MAX: usize = 64;

/// A call's place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// The id in frames.
    pub(crate) fn id(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_id(id: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the id")]
        Self {
            slot: id as u32,
            generation: (id >> 32) as u32,
        }
    }
}

enum State {
    Free,
    Waiting {
        purpose: Purpose,
        body: Vec<u8>,
        is_one_way: bool,
    },
    /// `parts`: of a long answer, what has come of it.
    InFlight {
        bytes: usize,
        parts: Vec<u8>,
    },
    Done(Result<Vec<u8>, RpcError>),
}

fn in_flight(bytes: usize) -> State {
    let parts = Vec::new();
    State::InFlight { bytes, parts }
}

/// Takes the answers of calls as they come, without a task that waits for them.
pub trait AnswerTaker {
    /// The answer to the call that was made with this number, once. It is called from the reader of the connection, so
    /// it should be short; never while the call is being made.
    fn take_answer(self: Rc<Self>, number: u32, answer: Result<&[u8], RpcError>);
}

/// The receiver of the answer to a call.
#[derive(Clone)]
pub(crate) struct Taker {
    pub(crate) taker: Rc<dyn AnswerTaker>,
    pub(crate) number: u32,
}

impl Taker {
    pub(crate) fn give(self, answer: Result<&[u8], RpcError>) {
        self.taker.take_answer(self.number, answer);
    }
}

/// What waits for a call.
#[derive(Default)]
enum Waiter {
    /// Nothing has asked for the result yet.
    #[default]
    None,
    Task(Waker),
    Taker(Taker),
}

/// What is to be done, outside the table, about a call whose result is known.
#[must_use]
pub(crate) enum Notice {
    Wake(Waker),
    Give(Taker, Result<Vec<u8>, RpcError>),
}

impl Notice {
    pub(crate) fn deliver(self) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Give(taker, Ok(answer)) => taker.give(Ok(&answer)),
            Self::Give(taker, Err(error)) => taker.give(Err(error)),
        }
    }
}

struct Entry {
    generation: u32,
    deadline: Instant,
    waiter: Waiter,
    state: State,
}

/// What a call was when it was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenUp {
    /// Not sent.
    Waiting,
    /// Sent and not answered.
    InFlight,
    /// Answered, or not known.
    Done,
}

/// A request that is to be sent now.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// `None` of one-way messages.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) purpose: Purpose,
    pub(crate) body: Vec<u8>,
    pub(crate) deadline: Instant,
}

/// The result of a call that was in this state: the parts that came are put before the rest.
fn joined(state: State, result: Result<Vec<u8>, RpcError>) -> Result<Vec<u8>, RpcError> {
    match (state, result) {
        (State::InFlight { mut parts, .. }, Ok(last)) if !parts.is_empty() => {
            parts.extend_from_slice(&last);
            Ok(parts)
        }
        (_, whole) => whole,
    }
}

/// The table.
pub(crate) struct Calls {
    in_flight_max: usize,
    in_flight_bytes_max: usize,
    waiting_max: usize,
    waiting_bytes_max: usize,
    outbox_bytes_max: usize,
    entries: Vec<Entry>,
    free: Vec<u32>,
    line: VecDeque<Ticket>,
    pub(crate) waiting: usize,
    pub(crate) waiting_bytes: usize,
    one_way_waiting: usize,
    pub(crate) in_flight: usize,
    pub(crate) in_flight_bytes: usize,
}

impl Calls {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            in_flight_max: limits.in_flight_max,
            in_flight_bytes_max: limits.in_flight_bytes_max,
            waiting_max: limits.waiting_max,
            waiting_bytes_max: limits.waiting_bytes_max,
            outbox_bytes_max: limits.outbox_bytes_max,
            entries: Vec::new(),
            free: Vec::new(),
            line: VecDeque::new(),
            waiting: 0,
            waiting_bytes: 0,
            one_way_waiting: 0,
            in_flight: 0,
            in_flight_bytes: 0,
        }
    }

    /// Whether a request of so many bytes may be handed to an outbox that holds so many. One that alone is above a
    /// limit may go alone.
    fn may_send(&self, bytes: usize, outbox_bytes: usize) -> bool {
        self.in_flight < self.in_flight_max
            && (self.in_flight == 0 || self.in_flight_bytes + bytes <= self.in_flight_bytes_max)
            && (outbox_bytes == 0 || outbox_bytes + bytes <= self.outbox_bytes_max)
    }

    /// As `may_send`, and no request is in line before it.
    pub(crate) fn may_send_at_once(&self, bytes: usize, outbox_bytes: usize) -> bool {
        self.waiting == 0 && self.may_send(bytes, outbox_bytes)
    }

    /// Whether a one-way message of so many bytes may be handed to the outbox. It passes the calls in line: it waits
    /// for no answer, and a check whether a busy node lives must not wait for the node's work.
    pub(crate) fn may_pass(&self, bytes: usize, outbox_bytes: usize) -> bool {
        self.one_way_waiting == 0 && (outbox_bytes == 0 || outbox_bytes + bytes <= self.outbox_bytes_max)
    }

    fn insert(&mut self, deadline: Instant, state: State, taker: Option<Taker>) -> Ticket {
        let waiter = taker.map_or(Waiter::None, Waiter::Taker);
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.deadline = deadline;
            entry.state = state;
            entry.waiter = waiter;
            let generation = entry.generation;
            return Ticket { slot, generation };
        }
        let slot = u32::try_from(self.entries.len()).expect("calls in flight and in line are bounded far below");
        self.entries.push(Entry {
            generation: 0,
            deadline,
            waiter,
            state,
        });
        Ticket { slot, generation: 0 }
    }

    fn entry(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        self.entries
            .get_mut(ticket.slot as usize)
            .filter(|entry| entry.generation == ticket.generation)
    }

    /// Frees the slot and gives back what it held.
    fn remove(&mut self, ticket: Ticket) -> Option<State> {
        let entry = self.entry(ticket)?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.waiter = Waiter::None;
        let state = std::mem::replace(&mut entry.state, State::Free);
        self.free.push(ticket.slot);
        match &state {
            State::Waiting { body, is_one_way, .. } => {
                self.waiting -= 1;
                self.waiting_bytes -= body.len();
                self.one_way_waiting -= usize::from(*is_one_way);
            }
            State::InFlight { bytes, .. } => {
                self.in_flight -= 1;
                self.in_flight_bytes -= bytes;
            }
            State::Free | State::Done(_) => {}
        }
        Some(state)
    }

    /// Takes up a call that is sent at once.
    pub(crate) fn start(&mut self, deadline: Instant, bytes: usize, taker: Option<Taker>) -> Ticket {
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
        self.insert(deadline, in_flight(bytes), taker)
    }

    /// Puts a request in line.
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        deadline: Instant,
        purpose: Purpose,
        body: Vec<u8>,
        is_one_way: bool,
        taker: Option<Taker>,
    ) -> Result<Ticket, RpcError> {
        let has_room = |calls: &Self| {
            calls.waiting < calls.waiting_max
                && (calls.waiting == 0 || calls.waiting_bytes + body.len() <= calls.waiting_bytes_max)
        };
        if !has_room(self) {
            self.forget_expired_messages(now);
            if !has_room(self) {
                return Err(RpcError::Overloaded);
            }
        }
        self.waiting += 1;
        self.waiting_bytes += body.len();
        self.one_way_waiting += usize::from(is_one_way);
        let ticket = self.insert(
            deadline,
            State::Waiting {
                purpose,
                body,
                is_one_way,
            },
            taker,
        );
        self.line.push_back(ticket);
        Ok(ticket)
    }

    /// One-way messages have no caller whose timer takes them out of the line.
    fn forget_expired_messages(&mut self, now: Instant) {
        if self.one_way_waiting == 0 {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        line.retain(|&ticket| {
            let Some(entry) = self.entry(ticket) else { return false };
            let is_expired = matches!(entry.state, State::Waiting { is_one_way: true, .. }) && entry.deadline <= now;
            if is_expired {
                self.remove(ticket);
            }
            !is_expired
        });
        self.line = line;
    }

    /// Takes the next request in line, if it may be sent now. It is in flight afterwards. Requests whose deadline
    /// passed are not sent; `notices` receives what is to be delivered for them.
    pub(crate) fn next(&mut self, now: Instant, outbox_bytes: usize, notices: &mut Vec<Notice>) -> Option<Outgoing> {
        loop {
            let &ticket = self.line.front()?;
            let Some(entry) = self.entry(ticket) else {
                self.line.pop_front();
                continue;
            };
            let deadline = entry.deadline;
            let State::Waiting { body, is_one_way, .. } = &entry.state else {
                self.line.pop_front();
                continue;
            };
            let (bytes, is_one_way) = (body.len(), *is_one_way);
            if deadline <= now {
                self.line.pop_front();
                if is_one_way {
                    self.remove(ticket);
                } else {
                    notices.extend(self.complete(ticket.id(), Err(RpcError::Timeout { may_have_run: false })));
                }
                continue;
            }
            if !self.may_send(bytes, outbox_bytes) {
                return None;
            }
            self.line.pop_front();
            let entry = self.entry(ticket).expect("it was found above");
            let State::Waiting { purpose, body, .. } = std::mem::replace(&mut entry.state, in_flight(bytes)) else {
                unreachable!("it was waiting above");
            };
            self.waiting -= 1;
            self.waiting_bytes -= bytes;
            self.in_flight += 1;
            self.in_flight_bytes += bytes;
            if is_one_way {
                self.one_way_waiting -= 1;
                self.remove(ticket);
            }
            return Some(Outgoing {
                ticket: (!is_one_way).then_some(ticket),
                purpose,
                body,
                deadline,
            });
        }
    }

    /// Adds a part of a long answer. A late part matches no call, and is left out.
    ///
    /// # Errors
    /// When the answer is longer than answers may be: so many bytes.
    pub(crate) fn add_part(&mut self, id: u64, part: &[u8], bytes_max: usize) -> Result<(), usize> {
        if let Some(entry) = self.entry(Ticket::from_id(id))
            && let State::InFlight { parts, .. } = &mut entry.state
        {
            let bytes = parts.len() + part.len();
            if bytes > bytes_max {
                return Err(bytes);
            }
            parts.extend_from_slice(part);
        }
        Ok(())
    }

    /// The whole answer to a call in flight has come, in one piece; its taker, if it has one. The call is over then.
    pub(crate) fn answered(&mut self, id: u64) -> Option<Taker> {
        let ticket = Ticket::from_id(id);
        let entry = self.entry(ticket)?;
        let (Waiter::Taker(_), State::InFlight { parts, .. }) = (&entry.waiter, &entry.state) else {
            return None;
        };
        if !parts.is_empty() {
            return None;
        }
        let Waiter::Taker(taker) = std::mem::take(&mut entry.waiter) else {
            return None;
        };
        self.remove(ticket);
        Some(taker)
    }

    /// Completes a call with its result. Returns the notice to deliver, if something waits. A late result matches no
    /// call.
    pub(crate) fn complete(&mut self, id: u64, result: Result<Vec<u8>, RpcError>) -> Option<Notice> {
        let ticket = Ticket::from_id(id);
        let entry = self.entry(ticket)?;
        if !matches!(entry.state, State::InFlight { .. } | State::Waiting { .. }) {
            return None;
        }
        if let Waiter::Taker(taker) = &entry.waiter {
            let taker = taker.clone();
            let state = self.remove(ticket).expect("it was found above");
            return Some(Notice::Give(taker, joined(state, result)));
        }
        let waiter = std::mem::take(&mut entry.waiter);
        match std::mem::replace(&mut entry.state, State::Free) {
            State::InFlight { bytes, parts } => {
                let state = State::InFlight { bytes, parts };
                entry.state = State::Done(joined(state, result));
                self.in_flight -= 1;
                self.in_flight_bytes -= bytes;
            }
            State::Waiting { body, is_one_way, .. } => {
                entry.state = State::Done(result);
                self.waiting -= 1;
                self.waiting_bytes -= body.len();
                self.one_way_waiting -= usize::from(is_one_way);
            }
            State::Free | State::Done(_) => unreachable!("it was looked at above"),
        }
        match waiter {
            Waiter::Task(waker) => Some(Notice::Wake(waker)),
            Waiter::None | Waiter::Taker(_) => None,
        }
    }

    /// The result, if it has come; the call is over then. Otherwise the waker is kept.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Option<Result<Vec<u8>, RpcError>> {
        let entry = self.entry(ticket).expect("a call is asked for until it is over");
        if !matches!(entry.state, State::Done(_)) {
            match &mut entry.waiter {
                Waiter::Task(known) => known.clone_from(waker),
                waiter => *waiter = Waiter::Task(waker.clone()),
            }
            return None;
        }
        match self.remove(ticket) {
            Some(State::Done(result)) => Some(result),
            _ => unreachable!("it was done above"),
        }
    }

    /// Removes a call whose result is not awaited any more.
    pub(crate) fn give_up(&mut self, ticket: Ticket) -> GivenUp {
        let given_up = match self.remove(ticket) {
            Some(State::Waiting { .. }) => GivenUp::Waiting,
            Some(State::InFlight { .. }) => GivenUp::InFlight,
            Some(State::Done(_) | State::Free) | None => GivenUp::Done,
        };
        if given_up == GivenUp::Waiting && self.line.len() > 2 * self.waiting + STALE_MAX {
            let entries = &self.entries;
            self.line
                .retain(|ticket| entries[ticket.slot as usize].generation == ticket.generation);
        }
        given_up
    }

    /// Fails all calls of a lost connection, each with what is known of it. Returns the notices to deliver.
    pub(crate) fn fail_all(&mut self, refused: Option<&str>) -> Vec<Notice> {
        let mut notices = Vec::new();
        for slot in 0..self.entries.len() {
            let entry = &self.entries[slot];
            let ticket = Ticket {
                slot: u32::try_from(slot).expect("slots are 32-bit numbers"),
                generation: entry.generation,
            };
            let error = match &entry.state {
                State::Waiting { is_one_way: true, .. } => {
                    self.remove(ticket);
                    continue;
                }
                State::Waiting { .. } => match refused {
                    Some(reason) => RpcError::Refused(reason.to_owned()),
                    None => RpcError::Disconnected { may_have_run: false },
                },
                State::InFlight { .. } => RpcError::Disconnected { may_have_run: true },
                State::Free | State::Done(_) => continue,
            };
            notices.extend(self.complete(ticket.id(), Err(error)));
        }
        self.line.clear();
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn calls() -> Calls {
        Calls::new(&Limits {
            in_flight_max: 2,
            in_flight_bytes_max: 100,
            waiting_max: 3,
            waiting_bytes_max: 100,
            outbox_bytes_max: 50,
            ..Limits::default()
        })
    }

    fn enqueue(calls: &mut Calls, bytes: usize) -> Result<Ticket, RpcError> {
        calls.enqueue(at(0), at(1000), 7.into(), vec![0; bytes], false, None)
    }

    #[test]
    fn a_request_goes_at_once_only_while_little_is_in_flight_and_the_outbox_has_room() {
        let mut calls = calls();
        assert!(calls.may_send_at_once(1000, 0), "a large request alone has to go");
        assert!(calls.may_send_at_once(10, 40));
        assert!(!calls.may_send_at_once(11, 40), "the outbox is full");
        calls.start(at(1000), 90, None);
        assert!(!calls.may_send_at_once(11, 0), "too many bytes are in flight");
        calls.start(at(1000), 5, None);
        assert!(!calls.may_send_at_once(0, 0), "too many calls are in flight");
    }

    #[test]
    fn who_finds_the_line_full_is_refused_and_who_stands_in_it_goes_first() {
        let mut calls = calls();
        let first = enqueue(&mut calls, 60).expect("there is room");
        assert_eq!(enqueue(&mut calls, 41), Err(RpcError::Overloaded), "too many bytes");
        let second = enqueue(&mut calls, 1).expect("there is room");
        let third = enqueue(&mut calls, 1).expect("there is room");
        assert_eq!(enqueue(&mut calls, 1), Err(RpcError::Overloaded), "too many requests");
        assert!(!calls.may_send_at_once(0, 0), "others wait longer");
        let next = |calls: &mut Calls| {
            calls
                .next(at(1), 0, &mut Vec::new())
                .and_then(|outgoing| outgoing.ticket)
        };
        assert_eq!(next(&mut calls), Some(first));
        assert_eq!(next(&mut calls), Some(second));
        assert_eq!(next(&mut calls), None, "two are in flight");
        assert!(calls.complete(first.id(), Ok(vec![])).is_none(), "nobody polled it");
        assert_eq!(next(&mut calls), Some(third));
    }

    #[test]
    fn a_late_answer_finds_nobody_even_when_the_slot_has_a_new_call() {
        let mut calls = calls();
        let first = calls.start(at(1000), 5, None);
        assert_eq!(calls.give_up(first), GivenUp::InFlight);
        let second = calls.start(at(1000), 5, None);
        assert_ne!(first.id(), second.id());
        assert!(calls.complete(first.id(), Ok(b"late".to_vec())).is_none());
        assert_eq!(calls.poll(second, Waker::noop()), None);
        assert!(
            calls.complete(second.id(), Ok(b"right".to_vec())).is_some(),
            "it was polled"
        );
        assert_eq!(calls.poll(second, Waker::noop()), Some(Ok(b"right".to_vec())));
        assert_eq!((calls.in_flight, calls.in_flight_bytes), (0, 0));
        assert!(calls.complete(u64::MAX, Ok(vec![])).is_none());
    }

    #[test]
    fn calls_that_were_given_up_do_not_pile_up_in_the_line() {
        let mut calls = calls();
        calls.start(at(1000), 5, None);
        calls.start(at(1000), 5, None);
        for _ in 0..10_000 {
            let ticket = enqueue(&mut calls, 50).expect("the one before was given up");
            assert_eq!(calls.give_up(ticket), GivenUp::Waiting);
        }
        assert!(
            calls.line.len() <= STALE_MAX + 1,
            "{} tickets are left",
            calls.line.len()
        );
        assert!(calls.entries.len() < 5);
        assert_eq!((calls.waiting, calls.waiting_bytes), (0, 0));
    }

    #[test]
    fn one_way_messages_that_expired_make_room() {
        let mut calls = calls();
        for _ in 0..3 {
            calls
                .enqueue(at(0), at(10), 7.into(), vec![0; 20], true, None)
                .expect("there is room");
        }
        assert_eq!(
            calls.enqueue(at(9), at(1000), 7.into(), vec![], false, None),
            Err(RpcError::Overloaded)
        );
        let call = calls
            .enqueue(at(10), at(1000), 7.into(), vec![], false, None)
            .expect("the messages are too late");
        let outgoing = calls.next(at(11), 0, &mut Vec::new()).expect("one is in line");
        assert_eq!(outgoing.ticket, Some(call));
        assert_eq!(calls.waiting, 0);
    }

    #[test]
    fn a_message_passes_calls_that_wait_for_answers_but_no_message_and_no_full_outbox() {
        let mut calls = calls();
        let outbox_bytes_max = calls.outbox_bytes_max;
        while calls.may_send_at_once(1, 0) {
            calls.start(at(1000), 1, None);
        }
        enqueue(&mut calls, 5).expect("there is room");
        assert!(calls.may_pass(10, 0), "a call in line holds a message up");
        assert!(calls.may_pass(outbox_bytes_max - 5, 5));
        assert!(!calls.may_pass(outbox_bytes_max, 5), "the outbox is full");
        calls
            .enqueue(at(0), at(1000), 7.into(), vec![], true, None)
            .expect("there is room");
        assert!(!calls.may_pass(10, 0), "a message passes another");
    }

    #[test]
    fn a_lost_connection_tells_each_call_whether_it_may_have_run() {
        let mut calls = calls();
        let sent = calls.start(at(1000), 5, None);
        let waiting = enqueue(&mut calls, 5).expect("there is room");
        assert_eq!(calls.fail_all(None).len(), 0, "nobody has polled");
        let waker = Waker::noop();
        assert_eq!(
            calls.poll(sent, waker),
            Some(Err(RpcError::Disconnected { may_have_run: true }))
        );
        assert_eq!(
            calls.poll(waiting, waker),
            Some(Err(RpcError::Disconnected { may_have_run: false }))
        );
        let waiting = enqueue(&mut calls, 5).expect("there is room");
        assert_eq!(calls.fail_all(Some("no")).len(), 0, "nobody has polled");
        assert_eq!(
            calls.poll(waiting, waker),
            Some(Err(RpcError::Refused("no".to_owned())))
        );
        assert_eq!((calls.waiting, calls.in_flight, calls.in_flight_bytes), (0, 0, 0));
    }

    /// Keeps the answers that it is given, by the numbers of their calls.
    #[derive(Default)]
    struct Given(std::cell::RefCell<Vec<GivenAnswer>>);

    type GivenAnswer = (u32, Result<Vec<u8>, RpcError>);

    impl AnswerTaker for Given {
        fn take_answer(self: Rc<Self>, number: u32, answer: Result<&[u8], RpcError>) {
            self.0.borrow_mut().push((number, answer.map(<[u8]>::to_vec)));
        }
    }

    #[test]
    fn a_taker_is_given_every_answer_once_however_the_call_ends() {
        let (mut calls, given) = (calls(), Rc::new(Given::default()));
        let taker = |number| {
            let taker: Rc<dyn AnswerTaker> = given.clone();
            Some(Taker { taker, number })
        };
        let plain = calls.start(at(1000), 5, taker(1));
        calls.answered(plain.id()).expect("it has a taker").give(Ok(b"one"));
        assert!(calls.answered(plain.id()).is_none() && calls.complete(plain.id(), Ok(vec![])).is_none());
        let long = calls.start(at(1000), 5, taker(2));
        calls.add_part(long.id(), b"two ", 100).expect("it is short");
        assert!(calls.answered(long.id()).is_none(), "its parts are to be joined");
        calls
            .complete(long.id(), Ok(b"parts".to_vec()))
            .expect("it has a taker")
            .deliver();
        let given_up = calls.start(at(1000), 5, taker(3));
        assert_eq!(calls.give_up(given_up), GivenUp::InFlight);
        assert!(calls.answered(given_up.id()).is_none() && calls.complete(given_up.id(), Ok(vec![])).is_none());
        let _lost = calls.start(at(1000), 5, taker(4));
        let late = calls.enqueue(at(0), at(10), 7.into(), vec![], false, taker(5));
        let mut notices = Vec::new();
        assert!(late.is_ok() && calls.next(at(10), 0, &mut notices).is_none());
        notices.into_iter().for_each(Notice::deliver);
        calls.fail_all(None).into_iter().for_each(Notice::deliver);
        let disconnected = Err(RpcError::Disconnected { may_have_run: true });
        let expected = [
            (1, Ok(b"one".to_vec())),
            (2, Ok(b"two parts".to_vec())),
            (5, Err(RpcError::Timeout { may_have_run: false })),
            (4, disconnected),
        ];
        assert_eq!(*given.0.borrow(), expected);
        assert_eq!((calls.in_flight, calls.in_flight_bytes, calls.waiting), (0, 0, 0));
    }

    #[test]
    fn a_request_whose_time_is_over_is_not_sent() {
        let mut calls = calls();
        let late = enqueue(&mut calls, 5).expect("there is room");
        assert!(calls.next(at(1000), 0, &mut Vec::new()).is_none());
        assert_eq!(
            calls.poll(late, Waker::noop()),
            Some(Err(RpcError::Timeout { may_have_run: false }))
        );
    }
}
