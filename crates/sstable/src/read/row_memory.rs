//! Reserves memory for long rows before they are read from a file. The length of a row precedes it there.

use std::path::Path;
use std::sync::Arc;

use memory::{RowMemory, UNRESERVED_ROW_BYTES_MAX};

use crate::error::Error;

/// Reserves memory for an item of `bytes` bytes if it is long and `memory` is given.
#[inline]
pub(crate) async fn reserve(memory: Option<&Arc<dyn RowMemory>>, bytes: usize, path: &Path) -> Result<(), Error> {
    let Some(memory) = memory.filter(|_| bytes > UNRESERVED_ROW_BYTES_MAX) else {
        return Ok(());
    };
    memory.reserve_row(bytes).await.map_err(|why| Error::NoRowMemory {
        path: path.to_owned(),
        why,
    })
}
