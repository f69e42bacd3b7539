//! What the fuzzer needs of a node: the small files of its directories to begin with, and everything that reads them.

use crate::directories;

/// The markers of directories and their note.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    directories::samples().into_iter().map(String::into_bytes).collect()
}

/// Reads the bytes as each of the small files.
pub fn read(bytes: &[u8]) {
    directories::read_sample(&String::from_utf8_lossy(bytes));
}
