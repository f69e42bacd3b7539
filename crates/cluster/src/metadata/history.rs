//! Whether two nodes have applied the same changes.
//!
//! The *history* of a node's metadata is a hash over every command that was applied, with its index and the history
//! before it. So two nodes with one history at an index have applied the same commands up to it, and two that differ
//! have not, even where the values happen to be equal. It begins with the first command, and it is part of the value:
//! the metadata file, snapshots and what a node that joins is given carry it.
//!
//! Each node keeps the histories of its last [`HISTORIES_MAX`] commands, and compares them with what others say in
//! detector messages.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use topology::HostId;
use types::token::murmur3_x64_128;

/// Commands whose histories a node keeps for comparison: a peer that lags more is compared when it has caught up.
pub(crate) const HISTORIES_MAX: usize = 1024;

/// A hash over all commands up to one, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct History(pub u128);

impl History {
    /// The history after the command of an index; `former` is None before the first one.
    pub(crate) fn next(former: Option<Self>, index: u64, command: &[u8]) -> Self {
        let former = former.map_or(0, |history| history.0);
        let (high, low) = murmur3_x64_128(command, 0);
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&former.to_be_bytes());
        bytes[16..24].copy_from_slice(&index.to_be_bytes());
        bytes[24..32].copy_from_slice(&high.to_be_bytes());
        bytes[32..].copy_from_slice(&low.to_be_bytes());
        let (high, low) = murmur3_x64_128(&bytes, 0);
        Self(u128::from(high) << 64 | u128::from(low))
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The histories of the last commands, by index.
#[derive(Default)]
pub(crate) struct Histories(VecDeque<(u64, History)>);

impl Histories {
    /// A command was applied.
    pub(crate) fn push(&mut self, index: u64, history: Option<History>) {
        let Some(history) = history else {
            return;
        };
        if self.0.len() == HISTORIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((index, history));
    }

    /// Another value altogether was taken.
    pub(crate) fn reset(&mut self, index: u64, history: Option<History>) {
        self.0.clear();
        self.push(index, history);
    }

    pub(crate) fn last(&self) -> Option<(u64, History)> {
        self.0.back().copied()
    }

    /// The history that is kept for an index.
    pub(crate) fn at(&self, index: u64) -> Option<(u64, History)> {
        let place = self.0.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(self.0[place])
    }

    /// Whether another node that had this history at an index has the same; None when that cannot be known from what is
    /// kept.
    pub(crate) fn is_same(&self, index: u64, history: History) -> Option<bool> {
        let (first, last) = (self.0.front()?.0, self.0.back()?.0);
        match self.at(index) {
            Some((_, own)) => Some(own == history),
            // It has applied a command where none was applied here.
            None => (first < index && index < last).then_some(false),
        }
    }
}

/// Result of a comparison with another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// The index at which both were compared.
    pub(crate) index: u64,
    pub(crate) is_same: bool,
}

/// What other nodes have said of their histories.
#[derive(Default)]
pub(crate) struct Comparisons {
    /// The last index and history that each has said.
    told: BTreeMap<HostId, (u64, History)>,
    verdicts: BTreeMap<HostId, Verdict>,
}

impl Comparisons {
    pub(crate) fn told(&self, host: HostId) -> Option<(u64, History)> {
        self.told.get(&host).copied()
    }

    pub(crate) fn retain(&mut self, is_member: impl Fn(HostId) -> bool) {
        self.told.retain(|host, _| is_member(*host));
        self.verdicts.retain(|host, _| is_member(*host));
    }

    /// Takes what a node says: its own last index and history, and its history at the last index that it heard from
    /// here.
    pub(crate) fn note(
        &mut self,
        host: HostId,
        own: &Histories,
        last: (u64, History),
        at_ours: Option<(u64, History)>,
    ) {
        self.told.insert(host, last);
        for (index, history) in at_ours.into_iter().chain([last]) {
            if let Some(is_same) = own.is_same(index, history) {
                self.judge(host, Verdict { index, is_same });
            }
        }
    }

    /// A difference is kept until both histories are equal at the same index or a later one: messages come late.
    fn judge(&mut self, host: HostId, verdict: Verdict) {
        let stands = self.verdicts.get(&host).is_some_and(|former| {
            let is_later = verdict.index >= former.index;
            !former.is_same && verdict.is_same != is_later
        });
        if !stands {
            self.verdicts.insert(host, verdict);
        }
    }

    /// The nodes that differ, and the lowest index at which each was found to.
    pub(crate) fn differing(&self) -> impl Iterator<Item = (HostId, u64)> {
        let differ = self.verdicts.iter().filter(|(_, verdict)| !verdict.is_same);
        differ.map(|(host, verdict)| (*host, verdict.index))
    }

    pub(crate) fn differs(&self, host: HostId) -> bool {
        self.verdicts.get(&host).is_some_and(|verdict| !verdict.is_same)
    }

    /// Whether a node is known to have this node's history at an index.
    pub(crate) fn agrees(&self, host: HostId, index: u64) -> bool {
        let verdict = self.verdicts.get(&host);
        verdict.is_some_and(|verdict| verdict.is_same && verdict.index >= index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn host(number: u128) -> HostId {
        HostId(Uuid::from_u128(number))
    }

    /// Histories of these commands, one after the other.
    fn of(commands: &[(u64, &str)]) -> Histories {
        let mut histories = Histories::default();
        let mut last = None;
        for (index, command) in commands {
            last = Some(History::next(last, *index, command.as_bytes()));
            histories.push(*index, last);
        }
        histories
    }

    #[test]
    fn a_history_tells_command_place_and_what_was_before() {
        let one = of(&[(3, "a"), (4, "b")]);
        let same = of(&[(3, "a"), (4, "b")]);
        assert_eq!(one.last(), same.last());
        for other in [
            of(&[(3, "a"), (5, "b")]),
            of(&[(3, "c"), (4, "b")]),
            of(&[(3, "a"), (4, "c")]),
            of(&[(4, "b")]),
        ] {
            assert_ne!(
                one.last().map(|(_, history)| history),
                other.last().map(|(_, history)| history)
            );
        }
    }

    #[test]
    fn what_is_not_kept_is_not_compared() {
        let own = of(&[(3, "a"), (5, "b"), (8, "c")]);
        let other = of(&[(3, "a"), (5, "x"), (6, "y"), (8, "c"), (9, "d")]);
        let cases = [
            (3, Some(true)),
            (5, Some(false)),
            (6, Some(false)),
            (8, Some(false)),
            (9, None),
        ];
        for (index, expected) in cases {
            let (_, history) = other.at(index).expect("it is kept there");
            assert_eq!(own.is_same(index, history), expected, "index {index}");
        }
        assert_eq!(
            own.is_same(2, own.last().expect("it is kept").1),
            None,
            "before the first"
        );
    }

    #[test]
    fn as_many_as_the_limit_are_kept() {
        let mut kept = Histories::default();
        for index in 0..HISTORIES_MAX as u64 + 5 {
            kept.push(index, Some(History(u128::from(index))));
        }
        assert_eq!((kept.0.len(), kept.0[0].0), (HISTORIES_MAX, 5));
    }

    #[test]
    fn a_difference_stands_until_it_is_known_to_be_gone() {
        let mut comparisons = Comparisons::default();
        let own = of(&[(3, "a"), (5, "b"), (8, "c")]);
        let other = of(&[(3, "a"), (5, "x"), (8, "c")]);
        let at = |histories: &Histories, index| histories.at(index).expect("it is kept");
        comparisons.note(host(1), &own, at(&own, 3), None);
        assert!(comparisons.agrees(host(1), 3) && !comparisons.agrees(host(1), 4));
        comparisons.note(host(1), &own, at(&other, 8), Some(at(&other, 5)));
        comparisons.note(host(1), &own, at(&own, 3), None);
        let differing: Vec<_> = comparisons.differing().collect();
        assert_eq!(differing, [(host(1), 5)], "a late message changes nothing");
        comparisons.note(host(1), &own, at(&own, 8), None);
        assert!(comparisons.agrees(host(1), 8), "it took the value that this node has");
        assert_eq!(comparisons.differing().count(), 0);
    }
}
