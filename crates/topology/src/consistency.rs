//! How many replicas must answer.
//!
//! With RF copies in all and RF(dc) in a datacenter, a level needs
//!
//! | level | answers |
//! |---|---|
//! | ANY | one, or a hint of the coordinator (writes) |
//! | ONE, TWO, THREE | 1, 2, 3, from anywhere |
//! | QUORUM, SERIAL | RF / 2 + 1, from anywhere |
//! | ALL | RF |
//! | LOCAL_ONE | 1 from the coordinator's datacenter |
//! | LOCAL_QUORUM, LOCAL_SERIAL | RF(dc) / 2 + 1 from the coordinator's datacenter |
//! | EACH_QUORUM | RF(dc) / 2 + 1 from every datacenter that has copies, for reads too |
//!
//! Where datacenters do not count (SimpleStrategy), the quorums of datacenters are those of all copies, and LOCAL_ONE is ONE.
//!
//! While a tablet moves, every replica that it gains (a *pending* one) raises the need of a write by one, in its datacenter where
//! datacenters count: whichever of the answers come from pending replicas, the old replicas have their quorum, and so have the new ones.

use std::fmt;

use smallvec::SmallVec;
use stdx::planted::{self, Bug};

use crate::node::{DatacenterNumber, Locality};
use crate::replication::Replication;
use crate::tablet_map::{Replica, Tablet};

/// A consistency level. `cql_protocol` has the same with the numbers of the wire; siblings do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each variant is the consistency level of that name")]
pub enum Consistency {
    Any,
    One,
    Two,
    Three,
    Quorum,
    All,
    LocalQuorum,
    EachQuorum,
    Serial,
    LocalSerial,
    LocalOne,
}

impl Consistency {
    const ALL_LEVELS: [Self; 11] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
    ];

    /// The level of a number of CQL's protocol.
    #[inline]
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL_LEVELS.get(usize::from(number)).copied()
    }

    /// All levels.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL_LEVELS.into_iter()
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "ANY",
            Self::One => "ONE",
            Self::Two => "TWO",
            Self::Three => "THREE",
            Self::Quorum => "QUORUM",
            Self::All => "ALL",
            Self::LocalQuorum => "LOCAL_QUORUM",
            Self::EachQuorum => "EACH_QUORUM",
            Self::Serial => "SERIAL",
            Self::LocalSerial => "LOCAL_SERIAL",
            Self::LocalOne => "LOCAL_ONE",
        })
    }
}

/// Numbers of replicas by datacenter; in place for up to four datacenters.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ReplicaCounts(SmallVec<[(DatacenterNumber, u16); 4]>);

impl ReplicaCounts {
    /// Counts the replicas that `counts` is true for.
    #[inline]
    #[must_use]
    pub fn of(replicas: &[Replica], locality: &Locality, mut counts: impl FnMut(Replica) -> bool) -> Self {
        let mut found = Self::default();
        for replica in replicas {
            if counts(*replica) {
                found.add(locality.datacenter(replica.node), 1);
            }
        }
        found
    }

    /// Adds to a datacenter's number.
    #[inline]
    pub fn add(&mut self, datacenter: DatacenterNumber, count: u16) {
        match self.0.iter_mut().find(|(d, _)| *d == datacenter) {
            Some((_, n)) => *n += count,
            None => self.0.push((datacenter, count)),
        }
    }

    /// A datacenter's number.
    #[inline]
    #[must_use]
    pub fn get(&self, datacenter: DatacenterNumber) -> u16 {
        self.0.iter().find(|(d, _)| *d == datacenter).map_or(0, |(_, n)| *n)
    }

    /// Whether there is no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The datacenters and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (DatacenterNumber, u16)> + '_ {
        self.0.iter().copied()
    }

    /// The sum.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u16 {
        self.0.iter().map(|(_, n)| n).sum()
    }
}

/// A keyspace's copies by datacenter number. Made once per keyspace and topology version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Factors {
    /// All copies.
    pub total: u16,
    /// Copies in each datacenter that has any; empty where datacenters do not count.
    pub by_datacenter: ReplicaCounts,
}

impl Factors {
    /// The copies that a replication means on these nodes.
    #[must_use]
    pub fn of(replication: &Replication, locality: &Locality) -> Self {
        let without_datacenters = |total| Self {
            total,
            by_datacenter: ReplicaCounts::default(),
        };
        match replication {
            Replication::Simple { factor } => without_datacenters(*factor),
            Replication::Local => without_datacenters(1),
            Replication::Everywhere => without_datacenters(locality.nodes_by_datacenter.iter().sum()),
            Replication::NetworkTopology(factors) => {
                let mut by_datacenter = ReplicaCounts::default();
                for (name, copies) in factors.iter().filter(|(_, copies)| copies.number() > 0) {
                    // Those that no node stands in share a number, and a quorum of theirs never answers.
                    by_datacenter.add(locality.datacenter_number(name), copies.number());
                }
                Self {
                    total: by_datacenter.total(),
                    by_datacenter,
                }
            }
        }
    }
}

impl Factors {
    /// The copies that one tablet has now, counted as these are: by datacenter or not.
    #[must_use]
    pub fn of_tablet(&self, tablet: &Tablet<'_>, locality: &Locality) -> Self {
        let has = ReplicaCounts::of(tablet.read_replicas(), locality, |_| true);
        Self {
            total: has.total(),
            by_datacenter: if self.by_datacenter.is_empty() {
                ReplicaCounts::default()
            } else {
                has
            },
        }
    }
}

/// Not enough replicas are alive. The numbers are those that drivers decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unavailable {
    /// The level that cannot be met.
    pub consistency: Consistency,
    /// How many must answer; of one datacenter when that is what lacks.
    pub required: u16,
    /// How many could.
    pub alive: u16,
    /// The datacenter that lacks them, where datacenters count.
    pub datacenter: Option<DatacenterNumber>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Cannot achieve consistency level for cl {}. Requires {}, alive {}",
            self.consistency, self.required, self.alive
        )
    }
}

impl std::error::Error for Unavailable {}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Need {
    Anywhere(u16),
    In(DatacenterNumber, u16),
    Each(ReplicaCounts),
}

/// How many answers a request needs, and from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    consistency: Consistency,
    need: Need,
}

fn quorum(factor: u16) -> u16 {
    factor / 2 + 1
}

impl Requirement {
    /// What a level needs, while nothing moves.
    #[inline]
    #[must_use]
    pub fn of(consistency: Consistency, factors: &Factors, local: DatacenterNumber) -> Self {
        let by_datacenter = &factors.by_datacenter;
        let datacenters_count = !by_datacenter.0.is_empty();
        let need = match consistency {
            Consistency::Any | Consistency::One => Need::Anywhere(1),
            Consistency::Two => Need::Anywhere(2),
            Consistency::Three => Need::Anywhere(3),
            Consistency::All => Need::Anywhere(factors.total),
            Consistency::LocalOne if datacenters_count => Need::In(local, 1),
            Consistency::LocalOne => Need::Anywhere(1),
            Consistency::LocalQuorum | Consistency::LocalSerial if datacenters_count => {
                Need::In(local, quorum(by_datacenter.get(local)))
            }
            Consistency::EachQuorum if datacenters_count => {
                let quorums = by_datacenter.0.iter().map(|(d, factor)| (*d, quorum(*factor)));
                Need::Each(ReplicaCounts(quorums.collect()))
            }
            Consistency::Quorum
            | Consistency::Serial
            | Consistency::LocalQuorum
            | Consistency::LocalSerial
            | Consistency::EachQuorum => Need::Anywhere(quorum(factors.total)),
        };
        Self { consistency, need }
    }

    /// What a write needs while its tablet gains these replicas.
    #[inline]
    #[must_use]
    pub fn with_pending(mut self, pending: &ReplicaCounts) -> Self {
        match &mut self.need {
            Need::Anywhere(need) => *need += pending.total(),
            Need::In(datacenter, need) => *need += pending.get(*datacenter),
            Need::Each(needs) => {
                for (datacenter, need) in &mut needs.0 {
                    *need += pending.get(*datacenter);
                }
            }
        }
        self
    }

    /// The level.
    #[must_use]
    pub fn consistency(&self) -> Consistency {
        self.consistency
    }

    /// How many answers in all: what errors report as required.
    #[inline]
    #[must_use]
    pub fn block_for(&self) -> u16 {
        match &self.need {
            Need::Anywhere(need) | Need::In(_, need) => *need,
            Need::Each(needs) => needs.total(),
        }
    }

    /// Whether only answers of the coordinator's datacenter count.
    #[inline]
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self.need, Need::In(..))
    }

    /// Whether a hint that the coordinator stores is enough.
    #[inline]
    #[must_use]
    pub fn hint_suffices(&self) -> bool {
        self.consistency == Consistency::Any
    }

    /// Whether the live replicas could meet it. For ANY they always do: the hint is asked for later.
    ///
    /// # Errors
    /// The shortage, as drivers are told it.
    #[inline]
    pub fn is_sufficient(&self, live: &ReplicaCounts) -> Result<(), Unavailable> {
        if self.hint_suffices() {
            return Ok(());
        }
        match self.shortage(live) {
            None => Ok(()),
            Some((datacenter, required, alive)) => Err(Unavailable {
                consistency: self.consistency,
                required,
                alive,
                datacenter,
            }),
        }
    }

    /// Where answers lack, how many there must be and how many there are.
    fn shortage(&self, counts: &ReplicaCounts) -> Option<(Option<DatacenterNumber>, u16, u16)> {
        let found = match &self.need {
            Need::Anywhere(need) => (None, *need, counts.total()),
            Need::In(datacenter, need) => (Some(*datacenter), *need, counts.get(*datacenter)),
            Need::Each(needs) => {
                let of =
                    |(datacenter, need): &(DatacenterNumber, u16)| (Some(*datacenter), *need, counts.get(*datacenter));
                return needs.0.iter().map(of).find(|(_, need, count)| count < need);
            }
        };
        (found.2 < found.1).then_some(found)
    }
}

/// The answers to one request so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acks {
    requirement: Requirement,
    /// Replicas that may answer still, and those that have.
    possible: ReplicaCounts,
    received: ReplicaCounts,
    /// Those are enough.
    is_satisfied: bool,
    failed: u16,
}

impl Acks {
    /// A request that was sent to these replicas.
    #[inline]
    #[must_use]
    pub fn new(requirement: Requirement, contacted: ReplicaCounts) -> Self {
        let received = ReplicaCounts::default();
        Self {
            is_satisfied: requirement.shortage(&received).is_none(),
            requirement,
            possible: contacted,
            received,
            failed: 0,
        }
    }

    /// What is needed.
    #[must_use]
    pub fn requirement(&self) -> &Requirement {
        &self.requirement
    }

    /// One more replica was contacted, as a speculative retry does.
    pub fn contacted(&mut self, datacenter: DatacenterNumber) {
        self.possible.add(datacenter, 1);
    }

    /// A replica of this datacenter answered. Returns whether this was the answer that completes the request.
    #[inline]
    pub fn ack(&mut self, datacenter: DatacenterNumber) -> bool {
        let before = self.is_satisfied;
        self.received.add(datacenter, 1);
        self.is_satisfied =
            before || self.requirement.shortage(&self.received).is_none() || planted::is_planted(Bug::SkippedQuorum);
        !before && self.is_satisfied
    }

    /// A replica of this datacenter will not answer, or answered with an error. Returns whether the request cannot succeed any more.
    pub fn fail(&mut self, datacenter: DatacenterNumber) -> bool {
        if let Some((_, possible)) = self.possible.0.iter_mut().find(|(d, _)| *d == datacenter) {
            *possible = possible.saturating_sub(1);
        }
        self.failed += 1;
        self.is_hopeless()
    }

    /// Whether enough have answered.
    #[inline]
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        self.is_satisfied
    }

    /// Whether enough can never answer. A hint may still save a write at ANY.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        self.requirement.shortage(&self.possible).is_some()
    }

    /// Answers that count: those that errors report as received.
    #[must_use]
    pub fn received(&self) -> u16 {
        match &self.requirement.need {
            Need::In(datacenter, _) => self.received.get(*datacenter),
            Need::Anywhere(_) | Need::Each(_) => self.received.total(),
        }
    }

    /// How many failed.
    #[must_use]
    pub fn failed(&self) -> u16 {
        self.failed
    }
}
