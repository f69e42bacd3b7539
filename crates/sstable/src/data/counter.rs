//! A counter's cell, as Cassandra since 2.1 has it.
//!
//! ```text
//! i16 n, then n header elements: i16 number of a shard; -32768 is added to it when the shard is a global one
//! shards: [u8; 16] id, i64 clock, i64 count, ascending by id
//! ```
//!
//! Numbers are big endian. Of several copies of a shard the one with the greatest clock counts; the counter is the sum
//! of the counts. What ceto writes are global shards, one for each source. Shards of other kinds (Cassandra before 2.1)
//! are read as global ones.
//!
//! A file has either a counter's deletion or its shards. Where a counter was deleted and then added to, the deletion
//! must not be lost, or an older file would add what it deleted: it is written as a shard that counts nothing, with an
//! id of zeros and its timestamp as clock.

use mutation::Tombstone;
use mutation::row::Complex;

const SHARD_BYTES: usize = 32;
/// The id of a deletion among the shards.
const DELETION: [u8; 16] = [0; 16];

/// Where a shard is in a cell's value.
pub(crate) struct Shard {
    pub(crate) id_at: u32,
    pub(crate) clock: i64,
    pub(crate) count_at: u32,
    is_deletion: bool,
}

impl Shard {
    /// The deletion that it represents, if it is one.
    pub(crate) fn deletion(&self) -> Option<Tombstone> {
        self.is_deletion.then(|| Tombstone {
            timestamp: self.clock,
            deletion_time: u32::try_from(self.clock / 1_000_000).unwrap_or(0),
        })
    }
}

/// The shards of a cell's value; None when it is no counter's.
pub(crate) fn shards(value: &[u8]) -> Option<impl Iterator<Item = Shard>> {
    let (n, rest) = value.split_first_chunk::<2>()?;
    let skip = usize::try_from(i16::from_be_bytes(*n)).ok()?.checked_mul(2)?;
    let (shards, tail) = rest.get(skip..)?.as_chunks::<SHARD_BYTES>();
    if !tail.is_empty() {
        return None;
    }
    Some(shards.iter().enumerate().map(move |(i, shard)| {
        let at = u32::try_from(2 + skip + i * SHARD_BYTES).expect("a value is smaller than 4 GiB");
        let number = |from: usize| i64::from_be_bytes(*shard[from..].first_chunk().expect("a shard has 32 bytes"));
        Shard {
            id_at: at,
            clock: number(16),
            count_at: at + 24,
            is_deletion: shard[..16] == DELETION && number(24) == 0,
        }
    }))
}

/// Appends the value of a counter's cell, and returns the cell's timestamp; None when the counter is only deleted.
pub(crate) fn encode(counter: &Complex<'_>, out: &mut Vec<u8>) -> Option<i64> {
    let deletion = (!counter.tombstone.is_none()).then_some(counter.tombstone.timestamp);
    let zero = [0; 8];
    let elements = || {
        let deletion = deletion.map(|at| (&DELETION[..], at, &zero[..]));
        let own = counter
            .elements()
            .filter(|(path, cell)| path.len() == 16 && cell.value.len() == 8);
        deletion
            .into_iter()
            .chain(own.map(|(path, cell)| (path, cell.timestamp, cell.value)))
    };
    let timestamp = counter.elements().map(|(_, cell)| cell.timestamp).max()?;
    // A counter with more shards than a header can number has them as remote ones, which merge the same.
    let count = i16::try_from(elements().count()).unwrap_or(0);
    out.extend_from_slice(&count.to_be_bytes());
    for i in 0..count {
        out.extend_from_slice(&(i + i16::MIN).to_be_bytes());
    }
    for (id, clock, count) in elements() {
        out.extend_from_slice(id);
        out.extend_from_slice(&clock.to_be_bytes());
        out.extend_from_slice(count);
    }
    Some(timestamp)
}

#[cfg(test)]
mod tests {
    use mutation::row::{Cell, Column, RowBuilder, RowView, Shared};
    use schema::RowLayout;
    use types::CqlType;

    use super::*;

    type Element = ([u8; 16], i64, i64);

    /// The cell that these elements make, and its timestamp.
    fn encoded(tombstone: Tombstone, elements: &[Element]) -> (Option<i64>, Vec<u8>) {
        let layout = RowLayout::from_types(&[CqlType::Counter]);
        let counts: Vec<[u8; 8]> = elements.iter().map(|(_, _, count)| count.to_be_bytes()).collect();
        let cells = elements.iter().zip(&counts).map(|((id, clock, _), count)| {
            let cell = Cell {
                timestamp: *clock,
                ttl: 0,
                deletion_time: 0,
                dead: false,
                value: count,
            };
            (&id[..], cell)
        });
        let shared = Shared {
            timestamp: 1,
            ttl: 0,
            expiry: 0,
        };
        let mut row = Vec::new();
        RowBuilder::begin(&mut row, &layout, shared, None, Tombstone::NONE, false, 1).complex(0, tombstone, cells);
        let row = RowView::new(&row).expect("it was packed just now");
        let column = row.columns(&layout).next().expect("one column");
        let (_, Column::Complex(counter)) = column else {
            panic!("a counter has elements");
        };
        let mut out = Vec::new();
        (encode(&counter, &mut out), out)
    }

    fn decoded(value: &[u8]) -> (Tombstone, Vec<Element>) {
        let mut tombstone = Tombstone::NONE;
        let mut elements = Vec::new();
        for shard in shards(value).expect("a counter's value") {
            if let Some(deletion) = shard.deletion() {
                tombstone = deletion;
                continue;
            }
            let id = *value[shard.id_at as usize..].first_chunk().expect("an id");
            let count = *value[shard.count_at as usize..].first_chunk().expect("a count");
            elements.push((id, shard.clock, i64::from_be_bytes(count)));
        }
        (tombstone, elements)
    }

    #[test]
    fn a_counter_is_the_cell_that_cassandra_writes() {
        let (timestamp, cell) = encoded(Tombstone::NONE, &[([1; 16], 70, 5), ([0xf0; 16], 60, -2)]);
        let expected = [
            // Two global shards, numbers 0 and 1.
            &[0, 2, 0x80, 0, 0x80, 1][..],
            &[1; 16],
            &[0, 0, 0, 0, 0, 0, 0, 70, 0, 0, 0, 0, 0, 0, 0, 5],
            &[0xf0; 16],
            &[0, 0, 0, 0, 0, 0, 0, 60, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe],
        ];
        assert_eq!(cell, expected.concat());
        assert_eq!(timestamp, Some(70), "the cell is as new as its newest shard");
    }

    #[test]
    fn what_was_added_after_a_deletion_keeps_the_deletion() {
        let deletion = Tombstone {
            timestamp: 5_000_000,
            deletion_time: 5,
        };
        let elements = [([7; 16], 6_000_000, 3)];
        let (_, cell) = encoded(deletion, &elements);
        assert_eq!(decoded(&cell), (deletion, elements.to_vec()));
        assert_eq!(encoded(deletion, &[]).0, None, "only deleted: the cell is a tombstone");
    }

    #[test]
    fn a_cell_that_is_no_counter_is_refused() {
        let (_, cell) = encoded(Tombstone::NONE, &[([1; 16], 70, 5)]);
        for cut in (0..cell.len()).filter(|cut| *cut != 4) {
            assert!(shards(&cell[..cut]).is_none(), "a value cut to {cut} bytes");
        }
        assert!(shards(&[0x80, 0]).is_none(), "a negative count of header elements");
    }
}
