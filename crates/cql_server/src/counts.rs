//! What a shard's CQL server counts: messages by kind, and errors. What is counted of their requests is in
//! [`front::Counts`].

use std::cell::Cell;

use cql_protocol::ErrorCode;
use front::increment;

/// What a shard's CQL server counts.
#[derive(Default, Debug)]
pub struct Counts {
    /// Frames of clients.
    pub frames: Cell<u64>,
    /// Statements that came as text.
    pub queries: Cell<u64>,
    /// Prepared statements.
    pub executes: Cell<u64>,
    /// Statements that were prepared.
    pub prepares: Cell<u64>,
    /// BATCH messages.
    pub batches: Cell<u64>,
    /// ERROR responses, by the position of their code in [`ErrorCode::ALL`].
    errors: [Cell<u64>; ErrorCode::ALL.len()],
}

impl Counts {
    /// ERROR responses by code.
    pub fn errors(&self) -> impl Iterator<Item = (ErrorCode, u64)> + '_ {
        ErrorCode::ALL.into_iter().zip(self.errors.iter().map(Cell::get))
    }

    /// Counts an ERROR response.
    #[cold]
    pub(crate) fn count_error(&self, code: ErrorCode) {
        if let Some(at) = ErrorCode::ALL.iter().position(|known| *known == code) {
            increment(&self.errors[at]);
        }
    }
}
