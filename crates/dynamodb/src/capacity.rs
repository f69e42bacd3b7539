//! Capacity units of reads and writes ("Read and write operations" of the developer guide).
//!
//! A unit of reading is 4 KB, a unit of writing 1 KB, rounded up: of each item for writes and for reads of single
//! items, and of the sum for Query and Scan. An eventually consistent read costs half, a transaction twice.

/// Bytes that a unit reads.
const READ_BYTES: usize = 4096;
/// Bytes that a unit writes.
const WRITE_BYTES: usize = 1024;

/// How a read is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consistency {
    /// It may miss the latest writes: half a unit.
    Eventual,
    /// It sees all earlier writes.
    Strong,
    /// It is part of a transaction: two units.
    Transactional,
}

impl Consistency {
    /// What `ConsistentRead` of a request means.
    pub fn of(consistent_read: bool) -> Self {
        if consistent_read { Self::Strong } else { Self::Eventual }
    }
}

/// Capacity units, counted in halves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Units {
    halves: u64,
}

impl Units {
    /// Whole units.
    pub const fn whole(units: u64) -> Self {
        Self {
            halves: units.saturating_mul(2),
        }
    }

    /// Half units.
    pub const fn halves(halves: u64) -> Self {
        Self { halves }
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            halves: self.halves.saturating_add(other.halves),
        }
    }

    /// Whether there are none.
    pub const fn is_zero(self) -> bool {
        self.halves == 0
    }

    /// The number, for JSON: with one digit after the point.
    pub fn text(self) -> String {
        let half = if self.halves.is_multiple_of(2) { 0 } else { 5 };
        format!("{}.{half}", self.halves / 2)
    }
}

fn rounded(bytes: usize, unit: usize) -> u64 {
    u64::try_from(bytes.div_ceil(unit).max(1)).unwrap_or(u64::MAX)
}

/// What a read of so many bytes costs: of one item, or of all items that a Query or Scan has read. At least one unit is
/// rounded to, so an item that is not there costs as much as a small one.
pub fn read_units(bytes: usize, consistency: Consistency) -> Units {
    let units = rounded(bytes, READ_BYTES);
    match consistency {
        Consistency::Eventual => Units::halves(units),
        Consistency::Strong => Units::whole(units),
        Consistency::Transactional => Units::whole(units.saturating_mul(2)),
    }
}

/// What a write costs: of the larger of the item before and after, in bytes (0 for none).
pub fn write_units(before: usize, after: usize, is_transactional: bool) -> Units {
    let units = rounded(before.max(after), WRITE_BYTES);
    if is_transactional {
        Units::whole(units.saturating_mul(2))
    } else {
        Units::whole(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_count_4_kb_and_writes_1_kb() {
        let read = |bytes, consistency| read_units(bytes, consistency).text();
        assert_eq!(read(0, Consistency::Eventual), "0.5");
        assert_eq!(read(4096, Consistency::Strong), "1.0");
        assert_eq!(read(4097, Consistency::Strong), "2.0");
        assert_eq!(read(4097, Consistency::Eventual), "1.0");
        assert_eq!(read(8193, Consistency::Eventual), "1.5");
        assert_eq!(read(100, Consistency::Transactional), "2.0");
        assert_eq!(write_units(0, 1025, false).text(), "2.0");
        assert_eq!(write_units(3000, 10, false).text(), "3.0", "the larger item counts");
        assert_eq!(write_units(0, 0, true).text(), "2.0");
        let sum = Units::halves(1).plus(Units::whole(2));
        assert_eq!((sum.text().as_str(), sum.is_zero()), ("2.5", false));
    }
}
