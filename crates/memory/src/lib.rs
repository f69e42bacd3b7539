//! Memory that requests of clients reserve before they use it.
//!
//! [`ResultMemory`] is a shard's memory for results in the making; each result has a [`Reservation`] of it. Readers of
//! sstables know neither: they reserve memory for long rows through the trait [`RowMemory`].
//!
//! A crate of its own, because the front of a client protocol decides how much memory there is, the engine's results
//! take it, and readers of sstables ask for it: three crates of which none should depend on another for this.

mod result;
mod row;

use std::fmt;

pub use result::{GROWTH_WAIT_MAX, LateReservation, READ_BYTES, Reservation, ResultMemory, SMALL_BYTES_MAX};
pub use row::{NoLongRows, Reserving, RowMemory, UNRESERVED_ROW_BYTES_MAX};

/// Too little memory is left for a result; the text is for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overloaded(pub String);

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Overloaded {}
