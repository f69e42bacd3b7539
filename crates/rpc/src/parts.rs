//! Long answers: what is longer than a part goes to the outbox part by part, as the other end takes them.
//!
//! Short answers of the same connection go in between, so that one client's large row delays no other answer for longer
//! than a part takes. One answer is sent at a time. The parts of an answer are never mixed with another answer to the
//! same call: a call that comes twice is answered once.

use crate::config::Limits;
use crate::frame::{Header, Kind};
use crate::outbox::Outbox;
use runtime::Signal;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

struct LongAnswer {
    id: u64,
    body: Vec<u8>,
    sent: usize,
}

/// The long answers of one connection that are not sent.
#[derive(Default)]
pub(crate) struct LongAnswers {
    line: RefCell<VecDeque<LongAnswer>>,
    bytes: Cell<usize>,
    is_running: Cell<bool>,
    room: Signal,
}

impl LongAnswers {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether the answer to this call is among them.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.line.borrow().iter().any(|answer| answer.id == id)
    }

    /// Takes an answer, unless too much waits already.
    ///
    /// # Errors
    /// With why it is not taken.
    pub(crate) fn push(
        self: &Rc<Self>,
        outbox: &Rc<Outbox>,
        limits: &Limits,
        id: u64,
        body: Vec<u8>,
    ) -> Result<(), String> {
        if body.len() > limits.long_answer_bytes_max {
            return Err(format!(
                "an answer of {} bytes is above the {} that an answer may have",
                body.len(),
                limits.long_answer_bytes_max
            ));
        }
        let waiting = self.bytes.get();
        if waiting > 0 && waiting + body.len() > limits.long_waiting_bytes_max {
            return Err("the request ran, but too many bytes of answers wait to be read".to_owned());
        }
        self.bytes.set(waiting + body.len());
        self.line.borrow_mut().push_back(LongAnswer { id, body, sent: 0 });
        if !self.is_running.replace(true) {
            drop(runtime::spawn(send(
                Rc::clone(self),
                Rc::clone(outbox),
                limits.part_bytes,
            )));
        }
        Ok(())
    }

    /// Drops an answer that is not awaited any more.
    pub(crate) fn cancel(&self, id: u64) {
        let mut line = self.line.borrow_mut();
        line.retain(|answer| answer.id != id);
        self.bytes
            .set(line.iter().map(|answer| answer.body.len() - answer.sent).sum());
    }

    /// The outbox has room, or is closed.
    pub(crate) fn drained(&self) {
        self.room.ring();
    }

    /// Moves the next part to the outbox; false when nothing is left.
    fn send_part(&self, outbox: &Outbox, part_bytes: usize) -> bool {
        let mut line = self.line.borrow_mut();
        let Some(answer) = line.front_mut() else { return false };
        let rest = &answer.body[answer.sent..];
        let part = &rest[..rest.len().min(part_bytes)];
        let is_last = part.len() == rest.len();
        let kind = if is_last { Kind::Response } else { Kind::Part };
        outbox.push(Header::plain(kind, answer.id), part);
        answer.sent += part.len();
        self.bytes.set(self.bytes.get() - part.len());
        if is_last {
            line.pop_front();
        }
        true
    }
}

/// Sends until nothing is left or the connection has ended.
async fn send(answers: Rc<LongAnswers>, outbox: Rc<Outbox>, part_bytes: usize) {
    loop {
        answers
            .room
            .wait_until(|| outbox.is_closed() || outbox.bytes() < part_bytes)
            .await;
        if outbox.is_closed() || !answers.send_part(&outbox, part_bytes) {
            answers.is_running.set(false);
            return;
        }
    }
}
