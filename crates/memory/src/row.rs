//! Memory for long rows, which a read reserves before it has the bytes of the row.
//!
//! A block ends soon after its limit of bytes, so a reader holds little of its files unless one row is long. The length
//! of a row precedes it in the file.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest row, or other item of a partition, that is read without a reservation.
pub const UNRESERVED_ROW_BYTES_MAX: usize = 128 << 10;

/// A reservation under way; the error says why there is no memory.
pub type Reserving<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// Reserves memory for long rows.
pub trait RowMemory: Send + Sync {
    /// Waits until memory is reserved for a row of `bytes` bytes and the copies of it that its reader makes.
    fn reserve_row(&self, bytes: usize) -> Reserving<'_>;

    /// Waits until memory is reserved for `bytes` bytes that were read so far, and for the next block.
    fn hold(&self, bytes: usize) -> Reserving<'_>;
}

/// Refuses long rows, and records the length of the last one.
#[derive(Default, Debug)]
pub struct NoLongRows(AtomicUsize);

impl NoLongRows {
    /// Records a long row that was found elsewhere than in a file.
    pub fn note(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// The length of the last long row, if there was one.
    #[must_use]
    pub fn refused(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

impl RowMemory for NoLongRows {
    fn reserve_row(&self, bytes: usize) -> Reserving<'_> {
        self.note(bytes);
        Box::pin(ready(Err(format!("rows of {bytes} bytes are not read here"))))
    }

    fn hold(&self, _: usize) -> Reserving<'_> {
        Box::pin(ready(Ok(())))
    }
}
