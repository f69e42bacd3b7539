//! Combinations of the values of several columns, which the IN relations of a statement name.
//!
//! They are built whole, as sorted keys: a statement of some kilobytes could take gigabytes, by their count or by their
//! length. So both have a limit, which is checked before they are built.

use stdx::preempt;

use crate::PlanError;

/// So many combinations of the values of several columns may be named by IN.
const COMBINATIONS_MAX: usize = 100_000;

/// The bytes that the combinations of a statement may have: as many as a request.
const COMBINATION_BYTES_MAX: usize = 16 << 20;

/// What a combination takes of the memory besides its bytes.
const ENTRY_BYTES: usize = 48;

/// How many combinations there are and how many bytes they have, while they are not built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    count: usize,
    bytes: usize,
}

impl Size {
    /// One combination of no values.
    pub(super) const EMPTY: Self = Self { count: 1, bytes: 0 };

    /// Each of them, followed by each of the values of these lengths.
    pub(super) fn with(self, lengths: impl Iterator<Item = usize>) -> Self {
        let (mut count, mut bytes) = (0_usize, 0_usize);
        for length in lengths {
            preempt::point();
            count += 1;
            bytes = bytes.saturating_add(length);
        }
        let behind = bytes.saturating_mul(self.count);
        Self {
            count: self.count.saturating_mul(count),
            bytes: self.bytes.saturating_mul(count).saturating_add(behind),
        }
    }

    /// The memory that they take when they are built. Too many, or too long ones, are refused before.
    pub(super) fn memory(self) -> usize {
        self.bytes.min(COMBINATION_BYTES_MAX) + self.count.min(COMBINATIONS_MAX) * ENTRY_BYTES
    }
}

/// Each of `so_far`, followed by each of the alternatives of the next columns, in their order.
///
/// # Errors
/// When they exceed a limit.
pub(super) fn combine(so_far: Vec<Vec<u8>>, alternatives: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, PlanError> {
    if let [only] = &so_far[..]
        && only.is_empty()
    {
        return Ok(alternatives);
    }
    let count = so_far.len().saturating_mul(alternatives.len());
    if so_far.len() > 1 && alternatives.len() > 1 && count > COMBINATIONS_MAX {
        return Err(PlanError::invalid(format!(
            "The IN relations name {count} combinations of values or more, and at most {COMBINATIONS_MAX} are allowed"
        )));
    }
    let size = Size::EMPTY.with(so_far.iter().map(Vec::len));
    check_bytes(size.with(alternatives.iter().map(Vec::len)).bytes)?;
    let combined = so_far
        .iter()
        .flat_map(|first| alternatives.iter().map(move |next| [&first[..], &next[..]].concat()));
    let combined = preempt::collect(combined);
    preempt::drop_each(so_far);
    preempt::drop_each(alternatives);
    Ok(combined)
}

/// Refuses combinations of so many bytes in all.
pub(super) fn check_bytes(bytes: usize) -> Result<(), PlanError> {
    if bytes <= COMBINATION_BYTES_MAX {
        return Ok(());
    }
    Err(PlanError::invalid(format!(
        "The IN relations name combinations of values of {bytes} bytes or more, and at most {COMBINATION_BYTES_MAX} \
         are allowed"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, bytes: usize) -> Vec<Vec<u8>> {
        vec![vec![7; bytes]; count]
    }

    #[test]
    fn combinations_have_a_count_and_a_length() {
        let combined = combine(vec![vec![1], vec![2]], vec![vec![3], vec![4]]).expect("few and short ones");
        assert_eq!(combined, [[1, 3], [1, 4], [2, 3], [2, 4]]);
        // The values of one column are no combinations: their request has them all.
        assert!(combine(vec![Vec::new()], values(COMBINATIONS_MAX + 1, 200)).is_ok());
        assert!(combine(values(10, 1), values(COMBINATIONS_MAX / 10, 1)).is_ok());
        let refused = combine(values(10, 1), values(COMBINATIONS_MAX / 10 + 1, 1));
        assert!(refused.is_err(), "too many");
        for (first, next) in [(10, 10_000), (1, 10_000), (10_000, 1)] {
            let long = |count: usize| if count == 10_000 { 4 } else { 60_000 };
            let refused = combine(values(first, long(first)), values(next, long(next)));
            assert!(refused.is_err(), "{first} and {next}: too long");
        }
    }
}
