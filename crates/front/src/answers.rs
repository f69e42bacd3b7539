//! Memory for the answers of a session's requests: how large the next one is taken to be, and when it may be made.

use std::cell::Cell;
use std::sync::Arc;

use memory::{READ_BYTES, Reservation};
use runtime::Permit;

use crate::client_memory::LITTLE_UNSENT_BYTES;
use crate::session::{ANSWER_BYTES_MAX, Session};

/// A waiting request's answer is taken to need at least this much.
const ANSWER_BYTES_MIN: usize = 4 << 10;

/// How large the first answer of several rows is taken to be.
const ROWS_BYTES_FIRST: usize = 1 << 20;
/// How large the first answer of one row is taken to be.
pub const ROW_BYTES_FIRST: usize = 16 << 10;

/// How large the next answer of a kind is taken to be, as the ones before.
#[derive(Debug)]
pub struct AnswerSize(Cell<usize>);

impl AnswerSize {
    /// Of answers of one row.
    #[must_use]
    pub const fn of_row() -> Self {
        Self(Cell::new(ROW_BYTES_FIRST))
    }

    /// Of answers of several rows.
    #[must_use]
    pub const fn of_rows() -> Self {
        Self(Cell::new(ROWS_BYTES_FIRST))
    }

    /// Bytes of the next one.
    pub fn get(&self) -> usize {
        self.0.get()
    }

    /// Takes the next ones to be as large as this one, or on the way to it when it is smaller.
    pub fn learn(&self, bytes: usize) {
        let before = self.get();
        let is_first = before == ROWS_BYTES_FIRST;
        self.0.set(if bytes > before || is_first {
            bytes
        } else {
            (before + bytes) / 2
        });
    }
}

impl Session {
    /// Waits until a result of about so many bytes may be made, and blocks read for it: until the client, and others,
    /// have taken enough of the answers before it, and there is memory for it.
    pub async fn reserve_answer(&self, estimate: usize, read_bytes: usize) -> (Permit, Arc<Reservation>) {
        let results = &self.front.memory.results;
        loop {
            self.outbox.until_free(estimate).await;
            let of_session = estimate.clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX);
            let of_session = self.answers.acquire(of_session).await;
            let reservation = results.reserve(estimate + read_bytes).await;
            if self.outbox.is_free(estimate) {
                return (of_session, reservation);
            }
        }
    }

    /// Whether a result whose size is unknown begins with a trial, because there is no memory for a large one.
    #[must_use]
    pub fn begins_with_trial(&self, estimate: usize, read_bytes: usize) -> bool {
        estimate == ROWS_BYTES_FIRST
            && self.outbox.is_free(0)
            && !(self.outbox.is_free(estimate) && self.front.memory.results.is_free(estimate + read_bytes))
    }

    /// Reserves memory for a result that does not grow beyond [`LITTLE_UNSENT_BYTES`]: it waits for no client that has
    /// more unsent.
    pub async fn reserve_trial(&self) -> (Permit, Arc<Reservation>) {
        let of_session = self.answers.acquire(LITTLE_UNSENT_BYTES).await;
        let trial = self
            .front
            .memory
            .results
            .reserve_trial(LITTLE_UNSENT_BYTES + READ_BYTES);
        (of_session, trial.await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_to_be_as_large_as_the_ones_before() {
        let size = AnswerSize::of_rows();
        assert_eq!(size.get(), ROWS_BYTES_FIRST);
        size.learn(1000);
        assert_eq!(size.get(), 1000, "nothing was known of it");
        size.learn(5000);
        assert_eq!(size.get(), 5000, "a larger one counts at once");
        size.learn(1000);
        assert_eq!(size.get(), 3000, "a smaller one by half");
    }
}
