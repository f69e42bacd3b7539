//! The file of one index of one sstable: which rows have which terms.
//!
//! A row is named by its *ordinal*, its number in the order of the sstable. The file has
//!
//! - the *dictionary*: the terms in order, each with the number of its rows and its posting list;
//! - *posting lists*: the ordinals of the rows of one term, ascending;
//! - *samples*: where each [`SAMPLE`]-th row begins in Data.db;
//! - a *footer* at the end of the last page, which has the addresses of these.
//!
//! Modules, from the bytes up: `page`, `block` (posting blocks), `list` (skip nodes), `dictionary`, `samples`, `footer`
//! describe what they write and read. [`Builder`] makes a file in one pass. [`File`], [`Terms`] and [`Cursor`] read
//! one, page by page, through [`Pages`].
//!
//! Invariants:
//! - A structure is on one page, and every page has a checksum.
//! - A file is written front to back, and whatever points to a structure is written after it.
//! - The writer keeps one block or node of each level in memory, the reader one page at a time and one block for each
//!   cursor: no memory grows with the length of a list or the number of terms.
//! - Whatever the bytes say, reading ends with an error of [`Pages::damaged`] or without one: the levels of a tree are
//!   counted down, and terms and ordinals must ascend.

mod block;
mod builder;
mod cursor;
mod dictionary;
mod footer;
#[doc(hidden)]
pub mod fuzz;
mod list;
mod page;
mod run;
mod samples;
mod terms;

pub use builder::{Builder, Totals};
pub use cursor::Cursor;
pub use footer::File;
pub use list::List;
pub use page::{PAGE, PAYLOAD_MAX, check_page};
pub use run::Spill;
pub use terms::Terms;

use std::rc::Rc;

use stdx::bytes::{Reader, Truncated};

/// The length of the longest term, in bytes.
pub const TERM_MAX: usize = 1024;
/// The file has the position in Data.db of each row whose ordinal is a multiple of this.
pub const SAMPLE: u64 = 32;

/// The pages of a file, for readers on the thread of a shard.
#[expect(async_fn_in_trait, reason = "a shard's futures stay on its thread")]
pub trait Pages {
    /// Why a file cannot be read.
    type Error;

    /// The payload of a page ([`check_page`]), counted from 0.
    ///
    /// # Errors
    /// The page cannot be read, or its checksum does not match.
    async fn page(&self, number: u64) -> Result<Rc<Vec<u8>>, Self::Error>;

    /// The error for a page whose checksum matches and whose bytes are wrong at offset `at` of its payload.
    fn damaged(&self, page: u64, at: usize, expected: &str) -> Self::Error;
}

/// Bytes of a page are not what the format has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Their offset in the payload of the page.
    pub at: usize,
    /// What the format has there.
    pub expected: &'static str,
}

impl Damage {
    const fn new(at: usize, expected: &'static str) -> Self {
        Self { at, expected }
    }

    /// The error for this damage of a page.
    fn on<P: Pages>(self, pages: &P, page: u64) -> P::Error {
        pages.damaged(page, self.at, self.expected)
    }
}

impl From<Truncated> for Damage {
    fn from(truncated: Truncated) -> Self {
        Self::new(truncated.at, "more bytes")
    }
}

/// Reads the payload of a page from an offset on; the offsets of the reader are those of the page.
fn reader_at(page: &[u8], at: usize) -> Result<Reader<'_>, Damage> {
    let mut reader = Reader::new(page);
    reader.get_slice(at)?;
    Ok(reader)
}
