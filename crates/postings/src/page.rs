//! Pages: what the file is read and checked by, and the addresses of structures in them.
//!
//! ```text
//! page = payload, CRC-32 of the payload (u32, big-endian)
//! ```
//! A page has [`PAGE`] bytes on disk, the last one has as many as it needs. No structure crosses a page; what is left
//! at the end of a payload is zero.

use crate::Damage;

/// The bytes of a page on disk, its checksum included; the last page of a file may have fewer.
pub const PAGE: usize = 16 << 10;
/// The bytes of structures that a page has at most.
pub const PAYLOAD_MAX: usize = PAGE - CRC;
const CRC: usize = 4;
const OFFSET_BITS: u32 = PAGE.trailing_zeros();

/// The payload of a page as it is on disk; `None` if its checksum does not match or it is longer than a page.
#[must_use]
pub fn check_page(raw: &[u8]) -> Option<&[u8]> {
    let (payload, crc) = raw.split_last_chunk::<CRC>()?;
    let is_right = payload.len() <= PAYLOAD_MAX && crc32fast::hash(payload) == u32::from_be_bytes(*crc);
    is_right.then_some(payload)
}

/// Where a structure begins: a page and an offset in its payload. As a number: page * [`PAGE`] + offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address(u64);

impl Address {
    /// Of an entry that has nothing elsewhere.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(page: u64, offset: usize) -> Self {
        debug_assert!(offset < PAGE, "an offset is inside of a page");
        Self(page << OFFSET_BITS | offset as u64)
    }

    /// An address that was read at `at`; its page must exist.
    pub(crate) fn checked(number: u64, pages: u64, at: usize) -> Result<Self, Damage> {
        if number >> OFFSET_BITS < pages {
            Ok(Self(number))
        } else {
            Err(Damage::new(at, "an address inside of the file"))
        }
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    pub(crate) const fn page(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    #[expect(clippy::cast_possible_truncation, reason = "an offset is less than PAGE")]
    pub(crate) const fn offset(self) -> usize {
        (self.0 & (PAGE as u64 - 1)) as usize
    }
}

/// Puts structures into pages, and gives each page away when it is full.
#[derive(Debug)]
pub(crate) struct PageWriter {
    page: Vec<u8>,
    number: u64,
}

impl PageWriter {
    pub(crate) fn new() -> Self {
        Self {
            page: Vec::with_capacity(PAGE),
            number: 0,
        }
    }

    /// Appends a structure, on the next page if this one has no space for it.
    pub(crate) fn put<E>(
        &mut self,
        structure: &[u8],
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Address, E> {
        assert!(structure.len() <= PAYLOAD_MAX, "a structure has one page");
        if self.page.len() + structure.len() > PAYLOAD_MAX {
            self.page.resize(PAYLOAD_MAX, 0);
            self.seal(out)?;
        }
        let address = self.next_address();
        self.page.extend_from_slice(structure);
        Ok(address)
    }

    /// Where a structure begins that still fits on this page.
    pub(crate) fn next_address(&self) -> Address {
        Address::new(self.number, self.page.len())
    }

    /// Gives the last page away, and returns how many there are.
    pub(crate) fn finish<E>(mut self, out: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<u64, E> {
        self.seal(out)?;
        Ok(self.number)
    }

    fn seal<E>(&mut self, out: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        put_crc(&mut self.page);
        out(&self.page)?;
        self.page.clear();
        self.number += 1;
        Ok(())
    }
}

/// Makes a page of a payload.
pub(crate) fn put_crc(payload: &mut Vec<u8>) {
    let crc = crc32fast::hash(payload);
    payload.extend_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_that_does_not_fit_begins_the_next_page() {
        let mut pages: Vec<Vec<u8>> = Vec::new();
        let mut out = |page: &[u8]| -> Result<(), ()> {
            pages.push(page.to_vec());
            Ok(())
        };
        let mut writer = PageWriter::new();
        let mut addresses = Vec::new();
        for len in [10_000, 6_380, 1, PAYLOAD_MAX, 3] {
            addresses.push(writer.put(&vec![7; len], &mut out).expect("no error"));
        }
        assert_eq!(writer.finish(&mut out), Ok(4));
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| (address.page(), address.offset()))
            .collect();
        assert_eq!(addresses, [(0, 0), (0, 10_000), (1, 0), (2, 0), (3, 0)]);
        let lens: Vec<_> = pages
            .iter()
            .map(|page| check_page(page).expect("whole").len())
            .collect();
        assert_eq!(lens, [PAYLOAD_MAX, PAYLOAD_MAX, PAYLOAD_MAX, 3]);
        assert_eq!(
            pages[1][1..PAYLOAD_MAX],
            [0; PAYLOAD_MAX - 1],
            "the rest of a page is zero"
        );
        assert_eq!(check_page(&vec![0; PAGE + 1]), None);
        assert_eq!(check_page(&[0; 3]), None);
    }
}
