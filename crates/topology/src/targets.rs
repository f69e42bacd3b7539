//! The replicas that a coordinator reads from and writes to, for one tablet.

use smallvec::SmallVec;
use stdx::planted::{self, Bug};
use types::Token;

use crate::node::{Liveness, Locality};
use crate::tablet_map::{Replica, ReplicaList, Selector, Stage, Tablet};

/// How good a replica is to read from, the best first: what it is (the bits below), how far, and its place among the
/// replicas.
type Rank = u32;
/// Bits of the place.
const PLACE_BITS: u32 = 16;
/// A replica that takes no writes, or none that add data, ranks as farther than any other: a read that finds it stale
/// could not repair it, or would make its disk fuller.
const REFUSES_WRITES: Rank = 1 << 30;
const IS_DEAD: Rank = 1 << 31;

impl<'m> Tablet<'m> {
    /// The replicas that are read.
    #[inline]
    #[must_use]
    pub fn read_replicas(&self) -> &'m [Replica] {
        match self.transition {
            Some(t) if t.stage.reads_new() => &t.next,
            _ => self.replicas,
        }
    }

    /// The replicas that are not read and are written to, besides those that are; None while the tablet does not move,
    /// or is written to only where it is read.
    #[inline]
    #[must_use]
    pub fn other_replicas(&self) -> Option<&'m [Replica]> {
        let transition = self.transition.filter(|t| t.stage.writes() == Selector::Both)?;
        if transition.stage == Stage::Streaming && planted::is_planted(Bug::UndoubledWrite) {
            return None;
        }
        Some(if transition.stage.reads_new() {
            self.replicas
        } else {
            &transition.next
        })
    }
}

/// The replicas of a read, the best first.
///
/// Live replicas come before the others, and of the live ones those that take writes that add data; of those the
/// coordinator itself, then its rack, its datacenter, the rest. Those that are equally good are in the order of
/// replicas, rotated by an amount that the token determines, so that reads of different partitions use different
/// replicas, and reads of one partition use the same replica, whose cache has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadTargets {
    /// All replicas that are read, in order.
    pub replicas: ReplicaList,
    /// How many of them are alive: the first ones.
    pub live: usize,
}

impl ReadTargets {
    /// The order for a partition.
    #[inline]
    #[must_use]
    pub fn new(tablet: &Tablet<'_>, token: Token, locality: &Locality, liveness: &Liveness) -> Self {
        let mut ranked: SmallVec<[(Rank, Replica); 6]> = SmallVec::new();
        let mut live = 0;
        for (place, replica) in (0..).zip(tablet.read_replicas()) {
            let mut rank = (locality.proximity(replica.node) as Rank) << PLACE_BITS | place;
            if !liveness.is_live(replica.node) {
                rank |= IS_DEAD;
            } else {
                live += 1;
                if !liveness.takes_growth(replica.node) {
                    rank |= REFUSES_WRITES;
                }
            }
            ranked.push((rank, *replica));
        }
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        // The high bits of a token are the same all over a tablet; the low ones are as good as chance.
        let turn = usize::from(token.0.to_le_bytes()[0]);
        let are_equal = |(a, _): &(Rank, Replica), (b, _): &(Rank, Replica)| a >> PLACE_BITS == b >> PLACE_BITS;
        let mut replicas = ReplicaList::new();
        for equals in ranked.chunk_by(are_equal) {
            let mut next = turn % equals.len();
            for _ in equals {
                replicas.push(equals[next].1);
                next += 1;
                if next == equals.len() {
                    next = 0;
                }
            }
        }
        Self { replicas, live }
    }

    /// The replicas that are alive, the best first.
    #[inline]
    #[must_use]
    pub fn live(&self) -> &[Replica] {
        &self.replicas[..self.live]
    }
}

/// The replicas of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteTargets {
    /// Those that are read.
    pub natural: ReplicaList,
    /// The others, which get the write because the tablet moves. See [`crate::Requirement::and`] for how the level is
    /// counted.
    pub pending: SmallVec<[Replica; 2]>,
}

impl WriteTargets {
    /// The replicas that a write to this tablet goes to.
    #[inline]
    #[must_use]
    pub fn new(tablet: &Tablet<'_>) -> Self {
        let mut natural = ReplicaList::new();
        natural.extend_from_slice(tablet.read_replicas());
        let mut pending = SmallVec::new();
        if let Some(others) = tablet.other_replicas() {
            pending.extend(others.iter().filter(|replica| !natural.contains(replica)).copied());
        }
        Self { natural, pending }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = Replica> {
        self.natural.iter().chain(&self.pending).copied()
    }
}
