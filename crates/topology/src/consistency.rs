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
//! Where datacenters do not count (SimpleStrategy), the quorums of datacenters are those of all copies, and LOCAL_ONE
//! is ONE.
//!
//! While a tablet moves, a write must meet its level among the replicas that are read **and** among those of the other
//! set (those after the move, or those before it; see [`Requirement::and`]). An answer of a replica that is in both
//! counts in both. So an acknowledged write is on a quorum of either set, whichever replicas answered and whether the
//! move ends or is abandoned.

use std::fmt;

use smallvec::SmallVec;
use stdx::planted::{self, Bug};

use crate::node::{DatacenterNumber, Locality, NodeNumber};
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

    /// Takes one from a datacenter's number.
    fn remove(&mut self, datacenter: DatacenterNumber) {
        if let Some((_, n)) = self.0.iter_mut().find(|(d, _)| *d == datacenter) {
            *n = n.saturating_sub(1);
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
                    // Datacenters without nodes share one number, and a quorum of theirs never answers.
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
        self.of_replicas(tablet.read_replicas(), locality)
    }

    /// The copies that a tablet with these replicas has, counted as these are: by datacenter or not.
    #[must_use]
    pub fn of_replicas(&self, replicas: &[Replica], locality: &Locality) -> Self {
        let has = ReplicaCounts::of(replicas, locality, |_| true);
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

impl Need {
    /// Where answers lack, how many there must be and how many there are.
    #[inline]
    fn shortage(&self, counts: &ReplicaCounts) -> Option<(Option<DatacenterNumber>, u16, u16)> {
        let found = match self {
            Self::Anywhere(need) => (None, *need, counts.total()),
            Self::In(datacenter, need) => (Some(*datacenter), *need, counts.get(*datacenter)),
            Self::Each(needs) => {
                let of =
                    |(datacenter, need): &(DatacenterNumber, u16)| (Some(*datacenter), *need, counts.get(*datacenter));
                return needs.0.iter().map(of).find(|(_, need, count)| count < need);
            }
        };
        (found.2 < found.1).then_some(found)
    }

    fn total(&self) -> u16 {
        match self {
            Self::Anywhere(need) | Self::In(_, need) => *need,
            Self::Each(needs) => needs.total(),
        }
    }

    /// Those of the answers that count.
    fn counted(&self, received: &ReplicaCounts) -> u16 {
        match self {
            Self::In(datacenter, _) => received.get(*datacenter),
            Self::Anywhere(_) | Self::Each(_) => received.total(),
        }
    }
}

/// How many answers a request needs, and from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    consistency: Consistency,
    need: Need,
    /// What a write to a tablet that moves needs besides.
    other: Option<Box<OtherSet>>,
}

/// The need among the replicas of a tablet that moves which are not the ones that are read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OtherSet {
    need: Need,
    /// Whose answers count for it,
    members: SmallVec<[NodeNumber; 6]>,
    /// and whose for the first need.
    read: SmallVec<[NodeNumber; 6]>,
}

/// Replicas, or their answers, counted as a requirement wants them: for each set of replicas in which it must be met.
/// Made by [`Requirement::count`].
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    read: ReplicaCounts,
    other: Option<Box<ReplicaCounts>>,
}

impl Counts {
    /// Adds a replica.
    #[inline]
    pub fn add(&mut self, requirement: &Requirement, node: NodeNumber, datacenter: DatacenterNumber) {
        match &requirement.other {
            None => self.read.add(datacenter, 1),
            Some(other) => self.add_by_set(other, node, datacenter),
        }
    }

    #[cold]
    fn add_by_set(&mut self, set: &OtherSet, node: NodeNumber, datacenter: DatacenterNumber) {
        if set.read.contains(&node) {
            self.read.add(datacenter, 1);
        }
        if set.members.contains(&node) {
            self.other.get_or_insert_default().add(datacenter, 1);
        }
    }

    fn remove(&mut self, requirement: &Requirement, node: NodeNumber, datacenter: DatacenterNumber) {
        let other = requirement.other.as_deref();
        if other.is_none_or(|set| set.read.contains(&node)) {
            self.read.remove(datacenter);
        }
        if let Some(counts) = &mut self.other
            && other.is_some_and(|set| set.members.contains(&node))
        {
            counts.remove(datacenter);
        }
    }

    /// The shortage among those of the other set.
    #[cold]
    fn other_shortage(&self, set: &OtherSet) -> Option<(Option<DatacenterNumber>, u16, u16)> {
        let none = ReplicaCounts::default();
        set.need.shortage(self.other.as_deref().unwrap_or(&none))
    }
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
        Self {
            consistency,
            need,
            other: None,
        }
    }

    /// What a write needs while its tablet moves: this among `read`, and `other` among `others`.
    #[must_use]
    pub fn and(mut self, read: &[Replica], other: Self, others: &[Replica]) -> Self {
        let nodes = |replicas: &[Replica]| replicas.iter().map(|replica| replica.node).collect();
        self.other = Some(Box::new(OtherSet {
            need: other.need,
            members: nodes(others),
            read: nodes(read),
        }));
        self
    }

    /// Counts replicas.
    #[inline]
    #[must_use]
    pub fn count(&self, replicas: impl IntoIterator<Item = Replica>, locality: &Locality) -> Counts {
        let mut counts = Counts::default();
        for replica in replicas {
            counts.add(self, replica.node, locality.datacenter(replica.node));
        }
        counts
    }

    /// How many of these replicas have to answer, the first of them first. None where one of those would count for
    /// nothing, or all of them are too few.
    #[must_use]
    pub fn first_of(&self, replicas: &[Replica], locality: &Locality) -> Option<usize> {
        if planted::is_planted(Bug::SkippedQuorum) {
            return Some(1);
        }
        if let (Need::Anywhere(need), None) = (&self.need, &self.other) {
            let need = usize::from(*need);
            return (need <= replicas.len()).then_some(need);
        }
        let mut acks = Acks::new(self.clone(), Counts::default());
        let mut asked = 0;
        while !acks.is_satisfied() {
            let replica = replicas.get(asked)?;
            let before = acks.received();
            acks.ack(replica.node, locality.datacenter(replica.node));
            if acks.received() == before {
                return None;
            }
            asked += 1;
        }
        Some(asked)
    }

    /// The level.
    #[must_use]
    pub fn consistency(&self) -> Consistency {
        self.consistency
    }

    /// How many answers in all: what errors report as required. Of a tablet that moves, among the replicas that are
    /// read.
    #[inline]
    #[must_use]
    pub fn block_for(&self) -> u16 {
        self.need.total()
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
    /// The shortage, as it is reported to drivers.
    #[inline]
    pub fn is_sufficient(&self, live: &Counts) -> Result<(), Unavailable> {
        if self.hint_suffices() {
            return Ok(());
        }
        self.unavailable(live).map_or(Ok(()), Err)
    }

    /// What lacks where only these replicas live; a hint counts for nothing.
    #[inline]
    fn unavailable(&self, live: &Counts) -> Option<Unavailable> {
        let (datacenter, required, alive) = self.shortage(live)?;
        Some(Unavailable {
            consistency: self.consistency,
            required,
            alive,
            datacenter,
        })
    }

    /// Where answers lack, how many there must be and how many there are.
    #[inline]
    fn shortage(&self, counts: &Counts) -> Option<(Option<DatacenterNumber>, u16, u16)> {
        let of_read = self.need.shortage(&counts.read);
        match &self.other {
            None => of_read,
            Some(set) => of_read.or_else(|| counts.other_shortage(set)),
        }
    }
}

/// The answers to one request so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acks {
    requirement: Requirement,
    /// Replicas that may answer still, and those that have.
    possible: Counts,
    received: Counts,
    /// Those are enough.
    is_satisfied: bool,
    answers: u16,
    failed: u16,
}

impl Acks {
    /// A request that was sent to these replicas.
    #[inline]
    #[must_use]
    pub fn new(requirement: Requirement, contacted: Counts) -> Self {
        let received = Counts::default();
        Self {
            is_satisfied: requirement.shortage(&received).is_none(),
            requirement,
            possible: contacted,
            received,
            answers: 0,
            failed: 0,
        }
    }

    /// What is needed.
    #[must_use]
    pub fn requirement(&self) -> &Requirement {
        &self.requirement
    }

    /// A replica in this datacenter answered. Returns whether this was the answer that completes the request.
    #[inline]
    pub fn ack(&mut self, node: NodeNumber, datacenter: DatacenterNumber) -> bool {
        let before = self.is_satisfied;
        self.received.add(&self.requirement, node, datacenter);
        self.answers += 1;
        self.is_satisfied =
            before || self.requirement.shortage(&self.received).is_none() || planted::is_planted(Bug::SkippedQuorum);
        !before && self.is_satisfied
    }

    /// A replica in this datacenter will not answer, or answered with an error. Returns whether the request cannot
    /// succeed any more.
    pub fn fail(&mut self, node: NodeNumber, datacenter: DatacenterNumber) -> bool {
        self.possible.remove(&self.requirement, node, datacenter);
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

    /// What lacks when those that failed count as down, if that is too much; a hint counts for nothing.
    #[must_use]
    pub fn unavailable(&self) -> Option<Unavailable> {
        self.requirement.unavailable(&self.possible)
    }

    /// Answers that count for the level, and how many it needs: what errors report. Of a tablet that moves, for the set
    /// of replicas that has not enough.
    #[must_use]
    pub fn tally(&self) -> (u16, u16) {
        let Requirement { need, other, .. } = &self.requirement;
        if let Some(set) = other
            && need.shortage(&self.received.read).is_none()
            && self.received.other_shortage(set).is_some()
        {
            let received = self.received.other.as_deref();
            return (
                received.map_or(0, |received| set.need.counted(received)),
                set.need.total(),
            );
        }
        (need.counted(&self.received.read), need.total())
    }

    /// Answers that count for the level among the replicas that are read.
    #[must_use]
    pub fn received(&self) -> u16 {
        self.requirement.need.counted(&self.received.read)
    }

    /// All answers, those that count for nothing too.
    #[must_use]
    pub fn answers(&self) -> u16 {
        self.answers
    }

    /// How many failed.
    #[must_use]
    pub fn failed(&self) -> u16 {
        self.failed
    }
}
