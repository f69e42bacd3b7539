//! Samples: where each [`SAMPLE`](crate::SAMPLE)-th row of the sstable begins in Data.db, and where its partition does.
//!
//! ```text
//! group  = partition (u64), row (u64), for each of the 15 other samples: partition - the group's partition, in bits,
//!          row - the group's row, in bits; lowest bits first
//! ```
//! The widths of the two differences are those of the file, so that all groups have the same length and a sample is
//! found by its number, with one page. The last group is filled with zeros.

use crate::page::{Address, PAYLOAD_MAX};
use crate::{Damage, reader_at};

/// The samples of a group.
pub(crate) const GROUP: u64 = 16;
const BASES: usize = 16;

/// Where the samples of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Samples {
    /// Of the first group.
    pub(crate) address: Address,
    pub(crate) count: u64,
    /// The bits of a difference of partitions, and of rows.
    pub(crate) widths: [u32; 2],
}

impl Samples {
    /// `None` if no samples have such widths, or the first group does not fit on its page.
    pub(crate) fn new(address: Address, count: u64, widths: [u32; 2]) -> Option<Self> {
        let samples = Self { address, count, widths };
        let is_right = widths.iter().all(|width| *width <= 64)
            && (count == 0 || address.offset() + samples.group_len() <= PAYLOAD_MAX);
        is_right.then_some(samples)
    }

    /// The bytes of a group, 256 at most.
    pub(crate) fn group_len(&self) -> usize {
        BASES + ((self.widths[0] + self.widths[1]) as usize * (GROUP as usize - 1)).div_ceil(8)
    }

    fn groups_on_first_page(&self) -> u64 {
        ((PAYLOAD_MAX - self.address.offset()) / self.group_len()) as u64
    }

    /// The address of the group that has a sample.
    pub(crate) fn group(&self, number: u64) -> Address {
        assert!(number < self.count, "sample {number} of {}", self.count);
        let (page, offset) = self.locate(number / GROUP);
        Address::new(page, offset)
    }

    /// The page and the offset of a group.
    fn locate(&self, group: u64) -> (u64, usize) {
        let (on_first, on_page) = (self.groups_on_first_page(), (PAYLOAD_MAX / self.group_len()) as u64);
        let (page, in_page, start) = match group.checked_sub(on_first) {
            None => (self.address.page(), group, self.address.offset()),
            Some(after) => (self.address.page() + 1 + after / on_page, after % on_page, 0),
        };
        let in_page = usize::try_from(in_page).expect("a page has few groups");
        (page, start + in_page * self.group_len())
    }

    /// The page after the last that has samples.
    pub(crate) fn pages_end(&self) -> u64 {
        match self.count {
            0 => 0,
            count => self.locate((count - 1) / GROUP).0 + 1,
        }
    }

    /// Reads a sample of the group at offset `at` of a page.
    pub(crate) fn get(&self, page: &[u8], at: usize, number: u64) -> Result<(u64, u64), Damage> {
        let mut reader = reader_at(page, at)?;
        let (partition, row) = (reader.get_u64()?, reader.get_u64()?);
        let bits = reader.get_slice(self.group_len() - BASES)?;
        let in_group = usize::try_from(number % GROUP).expect("few");
        let Some(before) = in_group.checked_sub(1) else {
            return Ok((partition, row));
        };
        let [partition_width, row_width] = self.widths;
        let bit = before * (partition_width + row_width) as usize;
        let partition = partition.checked_add(get_bits(bits, bit, partition_width));
        let row = row.checked_add(get_bits(bits, bit + partition_width as usize, row_width));
        partition.zip(row).ok_or(Damage::new(at, "samples of 64 bits"))
    }

    /// Appends a group of samples: up to [`GROUP`], at least one.
    pub(crate) fn put(&self, group: &[(u64, u64)], out: &mut Vec<u8>) {
        let start = out.len();
        let (partition, row) = group[0];
        out.extend_from_slice(&partition.to_be_bytes());
        out.extend_from_slice(&row.to_be_bytes());
        out.resize(start + self.group_len(), 0);
        let mut bit = 0;
        for (other_partition, other_row) in &group[1..] {
            for (difference, width) in [other_partition - partition, other_row - row]
                .into_iter()
                .zip(self.widths)
            {
                put_bits(&mut out[start + BASES..], bit, difference, width);
                bit += width as usize;
            }
        }
    }
}

/// Reads up to 64 bits that begin at a bit of `bytes`; they end inside.
fn get_bits(bytes: &[u8], bit: usize, width: u32) -> u64 {
    let end = (bit + width as usize).div_ceil(8);
    let nine = bytes[bit / 8..end].iter().rev();
    let word = nine.fold(0_u128, |word, byte| word << 8 | u128::from(*byte));
    let mask = (1_u128 << width) - 1;
    u64::try_from(word >> (bit % 8) & mask).expect("the mask has 64 bits")
}

fn put_bits(bytes: &mut [u8], bit: usize, number: u64, width: u32) {
    let word = u128::from(number) << (bit % 8);
    let end = (bit + width as usize).div_ceil(8);
    for (byte, part) in bytes[bit / 8..end].iter_mut().zip(word.to_le_bytes()) {
        *byte |= part;
    }
}

/// The widths that the samples of a file need, learned as they come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Widths {
    count: u64,
    bases: [u64; 2],
    bits: [u64; 2],
}

impl Widths {
    pub(crate) fn add(&mut self, sample: [u64; 2]) {
        if self.count.is_multiple_of(GROUP) {
            self.bases = sample;
        }
        self.count += 1;
        for (bits, (value, base)) in self.bits.iter_mut().zip(sample.into_iter().zip(self.bases)) {
            *bits |= value - base;
        }
    }

    /// How many samples there were, and the bits of their greatest differences.
    pub(crate) fn finish(&self) -> (u64, [u32; 2]) {
        (self.count, self.bits.map(|bits| 64 - bits.leading_zeros()))
    }
}
