//! Identifies the sstables of one table, and names new ones.
//!
//! A name that is a number is unique among the files that the node has seen. A file from a backup, a snapshot or
//! another node may have the same one, and copying it into the table's directory overwrites data. So new sstables are
//! named by UUIDs of version 1, in the spelling of Cassandra 4.1 and ScyllaDB:
//!
//! | characters | what, in base 36 |
//! |---|---|
//! | 0..4 | days since 1582-10-15 |
//! | 4 | `_` |
//! | 5..9 | seconds of the day |
//! | 9 | `_` |
//! | 10..15 | tenths of microseconds of the second |
//! | 15..28 | the last 64 bits of the UUID |

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ticks of 100 ns from 1582-10-15 to 1970-01-01 (RFC 9562, section 5.1).
const UNIX_EPOCH_TICKS: u64 = 0x01B2_1DD2_1381_4000;
const TICKS_PER_SECOND: u64 = 10_000_000;
const SECONDS_PER_DAY: u64 = 86_400;
/// Characters of a UUID in file names.
const UUID_CHARS: usize = 28;

/// Identifies an sstable of a table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Generation {
    /// A counter.
    Number(u64),
    /// A time-UUID in the spelling of file names.
    Uuid(String),
}

impl From<u64> for Generation {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Uuid(text) => f.write_str(text),
        }
    }
}

impl Generation {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(n) = text.parse() {
            return Some(Self::Number(n));
        }
        let is_uuid = text.len() == UUID_CHARS
            && text.bytes().enumerate().all(|(at, b)| match at {
                4 | 9 => b == b'_',
                _ => b.is_ascii_lowercase() || b.is_ascii_digit(),
            });
        is_uuid.then(|| Self::Uuid(text.to_owned()))
    }

    /// The name of a UUID: `ticks` of 100 ns since 1582-10-15 and its last 64 bits.
    fn of_uuid(ticks: u64, low: u64) -> Self {
        let seconds = ticks / TICKS_PER_SECOND;
        Self::Uuid(format!(
            "{}_{}_{}{}",
            Base36(seconds / SECONDS_PER_DAY, 4),
            Base36(seconds % SECONDS_PER_DAY, 4),
            Base36(ticks % TICKS_PER_SECOND, 5),
            Base36(low, 13)
        ))
    }
}

/// A number in base 36 with leading zeros up to so many digits.
struct Base36(u64, usize);

impl fmt::Display for Base36 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut number, mut digits) = (self.0, Vec::with_capacity(self.1));
        while number > 0 || digits.len() < self.1 {
            let digit = u32::try_from(number % 36).expect("a digit is below 36");
            digits.push(char::from_digit(digit, 36).expect("a digit is below 36"));
            number /= 36;
        }
        digits.iter().rev().try_for_each(|digit| write!(f, "{digit}"))
    }
}

/// Names for the sstables that a node writes, shared by its shards and their background threads.
#[derive(Debug)]
pub enum Generations {
    /// Numbers above this one, which is the largest so far.
    Numbers(AtomicU64),
    /// UUIDs, whose time is above this one in ticks.
    Uuids(AtomicU64),
}

impl Default for Generations {
    /// Numbers from 1.
    fn default() -> Self {
        Self::above(0)
    }
}

impl Generations {
    /// Numbers above one.
    #[must_use]
    pub fn above(largest: u64) -> Self {
        Self::Numbers(AtomicU64::new(largest))
    }

    /// UUIDs.
    #[must_use]
    pub fn uuids() -> Self {
        Self::Uuids(AtomicU64::new(0))
    }

    /// A name that no sstable of the node has; a UUID is no other file's either.
    pub fn next(&self) -> Generation {
        match self {
            Self::Numbers(largest) => Generation::Number(largest.fetch_add(1, Ordering::Relaxed) + 1),
            Self::Uuids(last) => {
                let unix_ticks = u64::try_from(runtime::wall_clock_us()).unwrap_or(0) * 10;
                let now = UNIX_EPOCH_TICKS + unix_ticks;
                // The clock may be set back.
                let later = |last: u64| now.max(last + 1);
                let before = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(later(last)));
                let ticks = later(before.unwrap_or_else(|last| last));
                // The two highest bits hold the variant of RFC 9562.
                let low = runtime::random_u64() >> 2 | 1 << 63;
                Generation::of_uuid(ticks, low)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_spelled_as_cassandra_spells_them() {
        // A file that ScyllaDB wrote: me-3gsm_0lob_1zdg02we44my8dy25w-big-Data.db.
        let digits = |text: &str| u64::from_str_radix(text, 36).expect("base 36");
        let seconds = digits("3gsm") * SECONDS_PER_DAY + digits("0lob");
        let ticks = seconds * TICKS_PER_SECOND + digits("1zdg0");
        let generation = Generation::of_uuid(ticks, digits("2we44my8dy25w"));
        assert_eq!(generation.to_string(), "3gsm_0lob_1zdg02we44my8dy25w");
        assert_eq!(Generation::parse("3gsm_0lob_1zdg02we44my8dy25w"), Some(generation));
    }

    #[test]
    fn names_are_read_back_and_no_two_are_the_same() {
        let generations = Generations::uuids();
        let names: Vec<String> = (0..1000).map(|_| generations.next().to_string()).collect();
        for name in &names {
            assert_eq!(
                Generation::parse(name).map(|read| read.to_string()).as_ref(),
                Some(name)
            );
        }
        // The times of one node differ, whatever chance says.
        assert!(
            names.windows(2).all(|pair| pair[0][..15] < pair[1][..15]),
            "{:?}",
            &names[..3]
        );
        let numbers = Generations::above(7);
        assert_eq!(
            [numbers.next(), numbers.next()],
            [Generation::Number(8), Generation::Number(9)]
        );
    }

    #[test]
    fn what_is_no_name_is_none() {
        for text in [
            "",
            "x",
            "-1",
            "3gsm_0lob_1zdg02we44my8dy25",
            "3gsm_0lob_1zdg02we44my8dy25W",
            "3gsm00lob_1zdg02we44my8dy25w",
        ] {
            assert_eq!(Generation::parse(text), None, "{text}");
        }
    }
}
