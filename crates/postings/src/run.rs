//! Runs: what a builder puts aside when its memory is full.
//!
//! ```text
//! run   = pages (see `page`)
//! terms = for each term, ascending: length (vint), bytes, length of what follows (vint), first ordinal (vint),
//!         differences (vints)
//! ```
//! Here a structure may cross pages: a page is what has a checksum. Run 0 has samples: for each the differences of
//! partition and row to the sample before it (vints). A run is not a durable format.

use stdx::vint;

use crate::page::{PAGE, PAYLOAD_MAX, check_page, put_crc};

/// The runs of a builder, in files or in memory. They live as long as the builder.
pub trait Spill {
    /// Why a run cannot be written or read.
    type Error;

    /// Appends bytes to a run. Runs are numbered from 0; one that has not been written to is empty.
    ///
    /// # Errors
    /// The bytes cannot be written.
    fn write(&mut self, run: usize, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Appends to `out` what a run has from `offset` on: `max` bytes, or what there is up to its end.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&mut self, run: usize, offset: u64, max: usize, out: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// The error for a run that does not have what was written, from `offset` on.
    fn damaged(&self, run: usize, offset: u64) -> Self::Error;
}

/// Writes a run, page by page.
#[derive(Debug)]
pub(crate) struct RunWriter {
    run: usize,
    page: Vec<u8>,
}

impl RunWriter {
    pub(crate) fn new(run: usize) -> Self {
        Self {
            run,
            page: Vec::with_capacity(PAGE),
        }
    }

    pub(crate) fn write<S: Spill>(&mut self, spill: &mut S, mut bytes: &[u8]) -> Result<(), S::Error> {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(PAYLOAD_MAX - self.page.len()));
            self.page.extend_from_slice(part);
            bytes = rest;
            if self.page.len() == PAYLOAD_MAX {
                self.flush(spill)?;
            }
        }
        Ok(())
    }

    /// Writes the last page, shorter than the others. Nothing may be written after it.
    pub(crate) fn flush<S: Spill>(&mut self, spill: &mut S) -> Result<(), S::Error> {
        if !self.page.is_empty() {
            put_crc(&mut self.page);
            spill.write(self.run, &self.page)?;
            self.page.clear();
        }
        Ok(())
    }
}

/// Reads a run from its start, with one page in memory.
#[derive(Debug)]
pub(crate) struct RunReader {
    run: usize,
    /// Of the page after the one in memory.
    offset: u64,
    page: Vec<u8>,
    at: usize,
    /// There is no page after the one in memory.
    is_last: bool,
}

impl RunReader {
    pub(crate) const fn new(run: usize) -> Self {
        Self {
            run,
            offset: 0,
            page: Vec::new(),
            at: 0,
            is_last: false,
        }
    }

    /// Reads what would have become a run.
    pub(crate) const fn of_bytes(run: usize, bytes: Vec<u8>) -> Self {
        Self {
            run,
            offset: 0,
            page: bytes,
            at: 0,
            is_last: true,
        }
    }

    /// False at the end of the run.
    pub(crate) fn has_more<S: Spill>(&mut self, spill: &mut S) -> Result<bool, S::Error> {
        if self.at < self.page.len() {
            return Ok(true);
        }
        if self.is_last {
            return Ok(false);
        }
        self.page.clear();
        self.at = 0;
        spill.read(self.run, self.offset, PAGE, &mut self.page)?;
        if self.page.is_empty() {
            return Ok(false);
        }
        let Some(payload) = check_page(&self.page).map(<[u8]>::len).filter(|len| *len > 0) else {
            return Err(spill.damaged(self.run, self.offset));
        };
        self.offset += self.page.len() as u64;
        self.page.truncate(payload);
        Ok(true)
    }

    fn byte<S: Spill>(&mut self, spill: &mut S) -> Result<u8, S::Error> {
        if !self.has_more(spill)? {
            return Err(spill.damaged(self.run, self.offset));
        }
        self.at += 1;
        Ok(self.page[self.at - 1])
    }

    /// A vint, and the bytes that it took.
    pub(crate) fn vint<S: Spill>(&mut self, spill: &mut S) -> Result<(u64, usize), S::Error> {
        if let Some((number, len)) = vint::get_unsigned(&self.page[self.at..]) {
            self.at += len;
            return Ok((number, len));
        }
        // It crosses pages.
        let mut bytes = vec![self.byte(spill)?];
        for _ in 0..bytes[0].leading_ones() {
            bytes.push(self.byte(spill)?);
        }
        vint::get_unsigned(&bytes).ok_or_else(|| spill.damaged(self.run, self.offset))
    }

    /// Replaces `out` by so many bytes.
    pub(crate) fn bytes<S: Spill>(&mut self, spill: &mut S, len: usize, out: &mut Vec<u8>) -> Result<(), S::Error> {
        out.clear();
        while out.len() < len {
            if !self.has_more(spill)? {
                return Err(spill.damaged(self.run, self.offset));
            }
            let rest = &self.page[self.at..];
            let part = &rest[..rest.len().min(len - out.len())];
            out.extend_from_slice(part);
            self.at += part.len();
        }
        Ok(())
    }

    /// The error of bytes that were not written so.
    pub(crate) fn damaged<S: Spill>(&self, spill: &S) -> S::Error {
        spill.damaged(self.run, self.offset)
    }
}
