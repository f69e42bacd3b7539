//! Whether a history of operations on one register is linearizable: the search of Wing and Gong, with Lowe's memory of
//! what was tried.

use std::collections::BTreeSet;

/// What an operation did, as far as its client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// It saw this.
    Read(u64),
    /// It changed one value to another.
    Swapped(u64, u64),
    /// It did not, because it saw this.
    Kept(u64),
    /// It would change one value to another, and perhaps has, or will.
    Unknown(u64, u64),
}

/// One operation and the moments of its beginning and end; the end of one whose outcome is unknown never comes.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub began: u64,
    pub ended: u64,
    pub did: Did,
}

/// The value after the operation, if it can happen at this value.
fn after(value: u64, did: Did) -> Option<u64> {
    match did {
        Did::Read(seen) | Did::Kept(seen) => (seen == value).then_some(value),
        Did::Swapped(from, to) | Did::Unknown(from, to) => (from == value).then_some(to),
    }
}

/// Whether the operations can be put in one order that every client's observations fit, beginning at 0.
pub fn is_linearizable(ops: &[Op]) -> bool {
    assert!(ops.len() <= 128, "the search is for short histories");
    let mut tried: BTreeSet<(u128, u64)> = BTreeSet::new();
    let mut paths: Vec<(u128, u64)> = vec![(0, 0)];
    let known = ops
        .iter()
        .enumerate()
        .filter(|(_, op)| !matches!(op.did, Did::Unknown(..)))
        .fold(0u128, |set, (i, _)| set | 1 << i);
    while let Some((done, value)) = paths.pop() {
        if done & known == known {
            return true;
        }
        if !tried.insert((done, value)) {
            continue;
        }
        let open = || ops.iter().enumerate().filter(move |(i, _)| done >> i & 1 == 0);
        let first_end = open().map(|(_, op)| op.ended).min().unwrap_or(u64::MAX);
        for (i, op) in open().filter(|(_, op)| op.began <= first_end) {
            if let Some(next) = after(value, op.did) {
                paths.push((done | 1 << i, next));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(began: u64, ended: u64, did: Did) -> Op {
        Op { began, ended, did }
    }

    #[test]
    fn the_checker_tells_histories_apart() {
        let swap = op(1, 4, Did::Swapped(0, 1));
        let lost = op(2, u64::MAX, Did::Unknown(1, 2));
        for (name, ops, expected) in [
            (
                "a read of the old value within the swap",
                vec![swap, op(2, 3, Did::Read(0))],
                true,
            ),
            (
                "a read of the old value behind the swap",
                vec![swap, op(5, 6, Did::Read(0))],
                false,
            ),
            (
                "two swaps from one value",
                vec![swap, op(2, 3, Did::Swapped(0, 2))],
                false,
            ),
            (
                "new, then old",
                vec![swap, op(2, 2, Did::Read(1)), op(3, 3, Did::Read(0))],
                false,
            ),
            (
                "a lost swap that comes late",
                vec![swap, lost, op(5, 6, Did::Read(1)), op(7, 8, Did::Read(2))],
                true,
            ),
            (
                "a lost swap that is taken back",
                vec![swap, lost, op(5, 6, Did::Read(2)), op(7, 8, Did::Read(1))],
                false,
            ),
        ] {
            assert_eq!(is_linearizable(&ops), expected, "{name}");
        }
    }
}
