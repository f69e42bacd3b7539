//! Room for long rows: a read of a shard's asks for it before the bytes of one come to memory.
//!
//! A block of rows ends soon after its limit, so what a read holds of its files is small, unless one row is long. How long it is stands before it in the file.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use crate::error::Error;

/// Rows, or other items of a partition, of at most so many bytes are read without asking.
pub const ROW_BYTES_UNASKED: usize = 128 << 10;

/// Gives room for long rows.
pub trait RowRoom {
    /// Waits for room for a row of so many bytes of its file, and for the copies of it that are made on its way to the answer. Err: why there is none.
    fn for_row(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Result<(), String>> + '_>>;
}

/// Asks for room before an item of so many bytes is read, where somebody is to be asked.
#[inline]
pub(crate) async fn ask(room: Option<&Rc<dyn RowRoom>>, bytes: usize, path: &Path) -> Result<(), Error> {
    let Some(room) = room.filter(|_| bytes > ROW_BYTES_UNASKED) else {
        return Ok(());
    };
    room.for_row(bytes).await.map_err(|why| Error::NoRoom {
        path: path.to_owned(),
        why,
    })
}
