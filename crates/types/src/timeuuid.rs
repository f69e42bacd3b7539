//! Version 1 UUIDs: the time in them, and those made for a time.
//!
//! ```text
//! time_low (32) time_mid (16) version (4) time_high (12) | clock sequence and node (64)
//! ```
//! The time counts 100 ns since 1582-10-15. The second half is compared by signed bytes, so 0x80 eight times is the
//! least and 0x7f eight times the greatest of a time.

use uuid::Uuid;

/// Milliseconds from 1970-01-01 back to 1582-10-15.
const GREGORIAN_MILLIS: i64 = 12_219_292_800_000;
const TICKS_PER_MILLI: i64 = 10_000;
const TICKS_MAX: i64 = (1 << 60) - 1;

/// The time in `uuid`, in whole milliseconds since 1970-01-01, rounded down.
#[must_use]
pub fn unix_millis(uuid: &Uuid) -> i64 {
    ticks(uuid).div_euclid(TICKS_PER_MILLI) - GREGORIAN_MILLIS
}

/// The time in `uuid`, in whole microseconds since 1970-01-01, rounded down.
#[must_use]
pub fn unix_micros(uuid: &Uuid) -> i64 {
    ticks(uuid).div_euclid(10) - GREGORIAN_MILLIS * 1_000
}

/// The least UUID of a millisecond; of one beyond what a UUID can hold, the nearest.
#[must_use]
pub fn min_for_millis(millis: i64) -> Uuid {
    from_ticks(first_tick(millis), 0x8080_8080_8080_8080)
}

/// The greatest UUID of a millisecond; of one beyond what a UUID can hold, the nearest.
#[must_use]
pub fn max_for_millis(millis: i64) -> Uuid {
    from_ticks(
        first_tick(millis).saturating_add(TICKS_PER_MILLI - 1),
        0x7f7f_7f7f_7f7f_7f7f,
    )
}

/// The UUID of a time in units of 100 ns since 1970-01-01, a clock sequence of 14 bits, and a node.
#[must_use]
pub fn from_parts(unix_ticks: i64, clock_sequence: u16, node: [u8; 6]) -> Uuid {
    let [n0, n1, n2, n3, n4, n5] = node;
    let [c0, c1] = (clock_sequence & 0x3fff | 0x8000).to_be_bytes();
    let low = u64::from_be_bytes([c0, c1, n0, n1, n2, n3, n4, n5]);
    from_ticks(unix_ticks.saturating_add(GREGORIAN_MILLIS * TICKS_PER_MILLI), low)
}

fn first_tick(millis: i64) -> i64 {
    millis.saturating_add(GREGORIAN_MILLIS).saturating_mul(TICKS_PER_MILLI)
}

fn from_ticks(ticks: i64, low: u64) -> Uuid {
    let ticks = ticks.clamp(0, TICKS_MAX).cast_unsigned();
    let high = (ticks << 32) | ((ticks >> 16) & 0xffff_0000) | 0x1000 | (ticks >> 48);
    Uuid::from_u64_pair(high, low)
}

/// Units of 100 ns since 1582-10-15.
fn ticks(uuid: &Uuid) -> i64 {
    let (high, _) = uuid.as_u64_pair();
    let ticks = ((high & 0xfff) << 48) | ((high & 0xffff_0000) << 16) | (high >> 32);
    ticks.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds that Apache Cassandra 5.0's minTimeuuid and maxTimeuuid give.
    #[test]
    fn bounds_as_cassandra() {
        let table = [
            (
                0,
                "13814000-1dd2-11b2-8080-808080808080",
                "1381670f-1dd2-11b2-7f7f-7f7f7f7f7f7f",
            ),
            (
                1_611_111_111_111,
                "72382d70-5aca-11eb-8080-808080808080",
                "7238547f-5aca-11eb-7f7f-7f7f7f7f7f7f",
            ),
            (
                -1,
                "138118f0-1dd2-11b2-8080-808080808080",
                "13813fff-1dd2-11b2-7f7f-7f7f7f7f7f7f",
            ),
            (
                -12_219_292_800_000,
                "00000000-0000-1000-8080-808080808080",
                "0000270f-0000-1000-7f7f-7f7f7f7f7f7f",
            ),
        ];
        for (millis, min, max) in table {
            assert_eq!(min_for_millis(millis).to_string(), min, "least of {millis} ms");
            assert_eq!(max_for_millis(millis).to_string(), max, "greatest of {millis} ms");
            assert_eq!(
                unix_millis(&min_for_millis(millis)),
                millis,
                "time of the least of {millis} ms"
            );
            assert_eq!(
                unix_millis(&max_for_millis(millis)),
                millis,
                "time of the greatest of {millis} ms"
            );
        }
    }

    #[test]
    fn times_as_cassandra() {
        let table = [
            ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", 854_991_792_216),
            ("00000000-0000-1000-8080-808080808080", -12_219_292_800_000),
            ("ffffffff-ffff-1fff-8080-808080808080", 103_072_857_660_684),
        ];
        for (text, millis) in table {
            let uuid = Uuid::parse_str(text).expect("a UUID");
            assert_eq!(unix_millis(&uuid), millis, "milliseconds of {text}");
            assert_eq!(unix_micros(&uuid).div_euclid(1_000), millis, "microseconds of {text}");
        }
    }

    #[test]
    fn parts_come_back_and_times_beyond_are_clamped() {
        let uuid = from_parts(16_111_111_111_111_234, 0x2345, [1, 2, 3, 4, 5, 6]);
        assert_eq!(uuid.get_version_num(), 1);
        assert_eq!(uuid.get_node_id(), Some([1, 2, 3, 4, 5, 6]));
        assert_eq!(unix_micros(&uuid), 1_611_111_111_111_123);
        assert_eq!(uuid.as_bytes()[8..10], [0xa3, 0x45]);
        for millis in [i64::MIN, i64::MAX] {
            assert_eq!(min_for_millis(millis).get_version_num(), 1, "version at {millis} ms");
            assert_eq!(max_for_millis(millis).get_version_num(), 1, "version at {millis} ms");
        }
    }
}
