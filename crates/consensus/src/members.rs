//! The choice of voters. Pure decisions about membership.

use std::collections::{BTreeMap, BTreeSet};

/// Voters of a group at most: five survive the loss of two, and more would only make every change slower.
pub const VOTERS_MAX: usize = 5;

/// A node that may vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Raft id.
    pub id: u64,
    /// Its data centre.
    pub datacenter: String,
    /// Its rack there.
    pub rack: String,
    /// Whether it does not answer.
    pub is_down: bool,
}

/// A change of one member's role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// It gets the log and has no vote; a voter loses its vote.
    Learner(u64),
    /// It votes.
    Voter(u64),
    /// It is no member any more. Its id is never used again.
    Remove(u64),
}

impl Change {
    /// The member that it is about.
    #[must_use]
    pub fn id(self) -> u64 {
        match self {
            Self::Learner(id) | Self::Voter(id) | Self::Remove(id) => id,
        }
    }
}

/// The voters among `members`: an odd number, at most [`VOTERS_MAX`], spread over data centres first and racks second,
/// so that the loss of one of them costs as few votes as possible. With three data centres or more, none has most of
/// the votes: if need be, fewer members vote, but at least three. Among equals, members that vote already come first,
/// then members that answer, then lower ids. The order of `members` does not matter.
#[must_use]
pub fn choose_voters(members: &[Member], current: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut wanted = match members.len().min(VOTERS_MAX) {
        0 => 0,
        count => count - (count + 1) % 2,
    };
    let datacenters: BTreeSet<&str> = members.iter().map(|member| member.datacenter.as_str()).collect();
    loop {
        let voters = spread(members, current, wanted);
        let votes = |datacenter: &str| {
            let voting = members.iter().filter(|member| voters.contains(&member.id));
            voting.filter(|member| member.datacenter == datacenter).count()
        };
        let is_dominated = datacenters
            .iter()
            .any(|datacenter| 2 * votes(datacenter) > voters.len());
        if datacenters.len() < 3 || wanted <= 3 || !is_dominated {
            return voters;
        }
        wanted -= 2;
    }
}

/// So many voters, spread as far as can be.
fn spread(members: &[Member], current: &BTreeSet<u64>, wanted: usize) -> BTreeSet<u64> {
    let mut in_datacenter: BTreeMap<&str, usize> = BTreeMap::new();
    let mut in_rack: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut voters = BTreeSet::new();
    while voters.len() < wanted {
        let best = members
            .iter()
            .filter(|member| !voters.contains(&member.id))
            .min_by_key(|member| {
                let datacenter = member.datacenter.as_str();
                (
                    in_datacenter.get(datacenter).copied().unwrap_or(0),
                    in_rack.get(&(datacenter, member.rack.as_str())).copied().unwrap_or(0),
                    !current.contains(&member.id),
                    member.is_down,
                    member.id,
                )
            });
        let Some(best) = best else {
            break;
        };
        voters.insert(best.id);
        *in_datacenter.entry(&best.datacenter).or_default() += 1;
        *in_rack.entry((&best.datacenter, &best.rack)).or_default() += 1;
    }
    voters
}

/// The changes that turn the `current` voters into the `wanted` ones; a member that loses its vote stays a learner.
#[must_use]
pub fn changes_towards(current: &BTreeSet<u64>, wanted: &BTreeSet<u64>) -> Vec<Change> {
    let promote = wanted.difference(current).map(|id| Change::Voter(*id));
    let demote = current.difference(wanted).map(|id| Change::Learner(*id));
    promote.chain(demote).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `id:datacenter/rack`, separated by blanks; a `!` at the end means that the member is down.
    fn members(text: &str) -> Vec<Member> {
        text.split_whitespace()
            .map(|word| {
                let (id, place) = word.split_once(':').expect("id:place");
                let (datacenter, rack) = place.split_once('/').expect("datacenter/rack");
                let down = rack.strip_suffix('!');
                Member {
                    id: id.parse().expect("a number"),
                    datacenter: datacenter.to_owned(),
                    rack: down.unwrap_or(rack).to_owned(),
                    is_down: down.is_some(),
                }
            })
            .collect()
    }

    #[test]
    fn voters_are_few_odd_and_spread() {
        let cases: &[(&str, &str, &[u64], &[u64])] = &[
            ("nobody", "", &[], &[]),
            ("one node", "1:a/r", &[], &[1]),
            (
                "two nodes: a second vote would only be a second way to stop",
                "1:a/r 2:a/r",
                &[],
                &[1],
            ),
            ("three", "1:a/r 2:a/r 3:a/r", &[], &[1, 2, 3]),
            ("four", "1:a/r 2:a/r 3:a/r 4:a/r", &[], &[1, 2, 3]),
            (
                "seven",
                "1:a/r 2:a/r 3:a/r 4:a/r 5:a/r 6:a/r 7:a/r",
                &[],
                &[1, 2, 3, 4, 5],
            ),
            (
                "who votes already stays",
                "1:a/r 2:a/r 3:a/r 4:a/r",
                &[2, 3, 4],
                &[2, 3, 4],
            ),
            ("racks", "1:a/r 2:a/r 3:a/r 4:a/s 5:a/s 6:a/t", &[], &[1, 2, 4, 5, 6]),
            (
                "data centres",
                "1:a/r 2:a/s 3:a/t 4:b/r 5:b/s 6:b/t 7:c/r 8:c/s 9:c/t",
                &[],
                &[1, 2, 4, 5, 7],
            ),
            (
                "two data centres and an arbiter: any of the three may go",
                "1:a/r 2:a/s 3:a/t 4:b/r 5:b/s 6:b/t 7:c/r",
                &[],
                &[1, 2, 4, 5, 7],
            ),
            (
                "one data centre is large: fewer vote, so that it has not most of the votes",
                "1:a/r 2:a/s 3:a/t 4:a/u 5:a/v 6:b/r 7:c/r",
                &[1, 2, 3, 6, 7],
                &[1, 6, 7],
            ),
            (
                "of two data centres one has most of the votes in any case",
                "1:a/r 2:a/s 3:a/t 4:a/u 5:b/r",
                &[],
                &[1, 2, 3, 4, 5],
            ),
            (
                "spread is worth a move",
                "1:a/r 2:a/r 3:a/r 4:a/s 5:b/r",
                &[1, 2, 3],
                &[1, 2, 3, 4, 5],
            ),
            (
                "of those who vote, one that answers keeps the vote",
                "2:a/r! 3:a/r",
                &[1, 2, 3],
                &[3],
            ),
            (
                "one that is down for a moment keeps its vote",
                "1:a/r! 2:a/r 3:a/r 4:a/r",
                &[1, 2, 3],
                &[1, 2, 3],
            ),
            (
                "spread wins over votes held",
                "1:a/r 2:a/r 3:a/r 4:b/r",
                &[1, 2, 3],
                &[1, 2, 4],
            ),
        ];
        for (story, nodes, current, expected) in cases {
            let mut nodes = members(nodes);
            let current: BTreeSet<u64> = current.iter().copied().collect();
            let expected: BTreeSet<u64> = expected.iter().copied().collect();
            assert_eq!(choose_voters(&nodes, &current), expected, "{story}");
            nodes.reverse();
            assert_eq!(choose_voters(&nodes, &current), expected, "{story}, in another order");
        }
    }

    /// With three data centres or more, a majority of the voters is left when any one of them is lost, however many
    /// nodes each has.
    #[test]
    fn any_data_centre_may_go_where_there_are_three() {
        for sizes in (1..=6).flat_map(|a| (1..=6).flat_map(move |b| (1..=6).map(move |c| [a, b, c]))) {
            let places = ["a", "b", "c"].into_iter().zip(sizes);
            let places = places.flat_map(|(datacenter, size)| (0..size).map(move |rack| (datacenter, rack)));
            let words = (1..)
                .zip(places)
                .map(|(id, (datacenter, rack))| format!("{id}:{datacenter}/{rack}"));
            let nodes = members(&words.collect::<Vec<_>>().join(" "));
            let voters = choose_voters(&nodes, &BTreeSet::new());
            for lost in ["a", "b", "c"] {
                let left = nodes
                    .iter()
                    .filter(|node| node.datacenter != lost && voters.contains(&node.id));
                assert!(2 * left.count() > voters.len(), "{sizes:?} without {lost}: {voters:?}");
            }
        }
    }

    #[test]
    fn changes_lead_from_one_set_of_voters_to_the_other() {
        let current = BTreeSet::from([1, 2, 3]);
        let wanted = BTreeSet::from([2, 3, 4]);
        assert_eq!(
            changes_towards(&current, &wanted),
            [Change::Voter(4), Change::Learner(1)]
        );
        assert_eq!(changes_towards(&wanted, &wanted), []);
    }
}
