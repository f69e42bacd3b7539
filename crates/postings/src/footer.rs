//! The footer: the last bytes of the last page, and what a reader needs to know before it reads others.
//!
//! ```text
//! magic        4 bytes, "cIdx"
//! format       u32, 1
//! index id     u32
//! levels       u32, the levels of the dictionary; 0 if there are no terms
//! rows         u64, rows of the sstable: ordinals are less
//! postings     u64, ordinals in all lists
//! terms        u64
//! root         u64, address of the topmost block of the dictionary
//! samples      u64, address of the first group
//! sample count u64
//! widths       2 * u32, bits of a difference of partitions and of rows in the samples
//! ```
//! All numbers are big-endian.

use std::ops::Bound;

use stdx::bytes::Reader;

use crate::page::Address;
use crate::samples::Samples;
use crate::{Cursor, Damage, List, Pages, SAMPLE, Terms, reader_at, terms};

const MAGIC: [u8; 4] = *b"cIdx";
const FORMAT: u32 = 1;
const LEN: usize = 72;
/// A block of the dictionary has two children or more, so that more levels would have more terms than 64 bits count.
const LEVELS_MAX: u32 = 64;

/// A file that is open: its footer. Pages are read through [`Pages`] each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    pub(crate) index_id: u32,
    /// How many pages the file has.
    pub(crate) pages: u64,
    pub(crate) levels: u32,
    pub(crate) rows: u64,
    pub(crate) postings: u64,
    pub(crate) terms: u64,
    pub(crate) root: Address,
    pub(crate) samples: Samples,
}

impl File {
    /// Opens a file of `pages` pages by the payload of its last page.
    ///
    /// # Errors
    /// [`Damage`] of the last page.
    pub fn open(last_page: &[u8], pages: u64) -> Result<Self, Damage> {
        let Some(start) = last_page.len().checked_sub(LEN) else {
            return Err(Damage::new(0, "a footer"));
        };
        let mut reader = reader_at(last_page, start)?;
        if reader.get_array()? != MAGIC {
            return Err(Damage::new(start, "the magic number of an index file"));
        }
        if reader.get_u32()? != FORMAT {
            return Err(Damage::new(start + 4, "format 1"));
        }
        let index_id = reader.get_u32()?;
        let levels = reader.get_u32()?;
        let (rows, postings, terms) = (reader.get_u64()?, reader.get_u64()?, reader.get_u64()?);
        if levels > LEVELS_MAX || (levels == 0) != (terms == 0) || terms > postings {
            return Err(Damage::new(start + 12, "levels and postings for the terms"));
        }
        let root = get_address(&mut reader, pages)?;
        let address = get_address(&mut reader, pages)?;
        let at = reader.at();
        let count = reader.get_u64()?;
        let samples = Samples::new(address, count, [reader.get_u32()?, reader.get_u32()?]);
        let samples = samples.filter(|samples| count == rows.div_ceil(SAMPLE) && samples.pages_end() <= pages);
        Ok(Self {
            index_id,
            pages,
            levels,
            rows,
            postings,
            terms,
            root,
            samples: samples.ok_or(Damage::new(at, "samples of all rows inside of the file"))?,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend([FORMAT, self.index_id, self.levels].map(u32::to_be_bytes).concat());
        let addresses = [self.root.number(), self.samples.address.number()];
        out.extend([self.rows, self.postings, self.terms].map(u64::to_be_bytes).concat());
        out.extend(addresses.map(u64::to_be_bytes).concat());
        out.extend(self.samples.count.to_be_bytes());
        out.extend(self.samples.widths.map(u32::to_be_bytes).concat());
    }

    /// The id of the index.
    #[must_use]
    pub const fn index_id(&self) -> u32 {
        self.index_id
    }

    /// How many rows the sstable has: ordinals are less.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// How many ordinals all posting lists have.
    #[must_use]
    pub const fn postings(&self) -> u64 {
        self.postings
    }

    /// How many terms the dictionary has.
    #[must_use]
    pub const fn terms_count(&self) -> u64 {
        self.terms
    }

    /// The terms between two bounds, in order.
    ///
    /// # Errors
    /// Those of `pages`, and [`Pages::damaged`].
    pub async fn terms<P: Pages>(&self, pages: &P, from: Bound<&[u8]>, to: Bound<Vec<u8>>) -> Result<Terms, P::Error> {
        Terms::new(self, pages, from, to).await
    }

    /// How many postings the terms between two bounds have: a row that has two of the terms counts twice. Reads one or
    /// two blocks of each level of the dictionary.
    ///
    /// # Errors
    /// Those of `pages`, and [`Pages::damaged`].
    pub async fn count<P: Pages>(&self, pages: &P, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64, P::Error> {
        let after = match to {
            Bound::Included(term) => terms::rank(self, pages, term, true).await?,
            Bound::Excluded(term) => terms::rank(self, pages, term, false).await?,
            Bound::Unbounded => self.postings,
        };
        let before = match from {
            Bound::Included(term) => terms::rank(self, pages, term, false).await?,
            Bound::Excluded(term) => terms::rank(self, pages, term, true).await?,
            Bound::Unbounded => 0,
        };
        Ok(after.saturating_sub(before))
    }

    /// A cursor before the first ordinal of a posting list of this file. Reads nothing.
    #[must_use]
    pub const fn cursor(&self, list: List) -> Cursor {
        Cursor::new(self, list)
    }

    /// A sample: where the row of ordinal `number * SAMPLE` begins in Data.db, and before it the start of its
    /// partition. Reads one page.
    ///
    /// # Errors
    /// Those of `pages`, and [`Pages::damaged`].
    ///
    /// # Panics
    /// If there are no rows of that number: `number * SAMPLE` must be less than [`File::rows`].
    pub async fn sample<P: Pages>(&self, pages: &P, number: u64) -> Result<(u64, u64), P::Error> {
        let address = self.samples.group(number);
        let page = pages.page(address.page()).await?;
        let sample = self.samples.get(&page, address.offset(), number);
        sample.map_err(|damage| damage.on(pages, address.page()))
    }
}

fn get_address(reader: &mut Reader<'_>, pages: u64) -> Result<Address, Damage> {
    let at = reader.at();
    Address::checked(reader.get_u64()?, pages, at)
}
