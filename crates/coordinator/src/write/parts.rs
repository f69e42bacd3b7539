//! Where the parts of a write go.

use std::collections::BTreeMap;

use mutation::{Addressed, Mutation};
use rpc::Sent;
use schema::TableId;
use smallvec::{SmallVec, smallvec};
use stdx::planted::{self, Bug};
use stdx::preempt;
use stdx::probe::Answered;
use topology::{Acks, Consistency, Counts, DatacenterNumber, Replica, Requirement, Tablet, WriteTargets};
use types::Token;
use types::token::token_of;

use super::{Manner, Numbers, Writes};
use crate::{ClusterView, CoordinatorError, Route, Tally, WriteKind};

/// One partition's write.
pub(crate) struct Part {
    pub(super) acks: Acks,
    /// Those that the acks are of.
    pub(super) answered: Answered<Replica>,
    /// A hint is stored for one of its replicas.
    is_hinted: bool,
    /// Nodes whose disks are full refuse it.
    pub(super) grows: bool,
}

impl Part {
    /// Whether it may be acknowledged: at ANY a stored hint is enough.
    pub(super) fn is_satisfied(&self) -> bool {
        self.acks.is_satisfied() || self.is_hinted && self.acks.requirement().hint_suffices()
    }

    /// A replica has it. Whether that satisfies it.
    pub(super) fn ack(&mut self, replica: Replica, datacenter: DatacenterNumber) -> bool {
        let before = self.is_satisfied();
        self.acks.ack(replica.node, datacenter);
        self.answered.add(replica);
        if planted::is_planted(Bug::CountedTwice) {
            self.acks.ack(replica.node, datacenter);
        }
        !before && self.is_satisfied()
    }

    /// A hint is stored. Whether that satisfies it.
    pub(super) fn hinted(&mut self) -> bool {
        let before = self.is_satisfied();
        self.is_hinted = true;
        !before && self.is_satisfied()
    }
}

/// What is known of a replica's share.
pub(crate) enum State {
    /// It was not asked, or its outcome is known.
    Settled,
    /// It works on it here.
    Here,
    /// It was asked on another node.
    There(Sent),
}

/// A replica and its share of the request.
pub(crate) struct Target {
    pub(crate) replica: Replica,
    pub(crate) numbers: Numbers,
    pub(crate) state: State,
}

impl Writes {
    /// Whether enough replicas live, and have room, to write these at a level.
    ///
    /// # Errors
    /// When too few do.
    pub fn require(
        &self,
        mutations: &[Addressed],
        level: Consistency,
        kind: WriteKind,
    ) -> Result<(), CoordinatorError> {
        let view = self.context.view();
        let mut parts = mutations.iter().map(|m| self.part(&view, m, level, kind));
        parts.try_for_each(|part| part.map(drop))
    }

    /// Where one mutation goes, if enough of its replicas live and have room.
    pub(crate) fn part(
        &self,
        view: &ClusterView,
        mutation: &Addressed,
        level: Consistency,
        kind: WriteKind,
    ) -> Result<(Part, WriteTargets), CoordinatorError> {
        let place = Place::new(view, mutation.table(), mutation.token())?;
        let grows = self.context.grows(mutation.table(), &mutation.mutation());
        let part = Part {
            acks: self.acks(view, &place, grows, level, kind)?,
            answered: Answered::default(),
            is_hinted: false,
            grows,
        };
        Ok((part, place.targets))
    }

    /// Where several mutations go, and which of them each replica is sent.
    #[cold]
    pub(super) fn parts(
        &self,
        view: &ClusterView,
        mutations: &[Addressed],
        manner: &Manner,
    ) -> Result<Shares, CoordinatorError> {
        let mut parts = SmallVec::with_capacity(mutations.len());
        let mut of_parts = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            preempt::allowed(preempt::point);
            let (part, targets) = self.part(view, mutation, manner.level, manner.kind)?;
            parts.push(part);
            of_parts.push(targets);
        }
        Ok((parts, shares(&of_parts)))
    }

    /// What a write at a level waits for, if enough replicas live and have room.
    fn acks(
        &self,
        view: &ClusterView,
        place: &Place<'_>,
        grows: bool,
        level: Consistency,
        kind: WriteKind,
    ) -> Result<Acks, CoordinatorError> {
        let requirement = place.route.write_requirement(level, &place.tablet, &view.locality);
        let live = self.require_live(view, &requirement, (place.targets.all(), grows), kind)?;
        Ok(Acks::new(requirement, live))
    }

    /// How many replicas take a write, and whether these suffice.
    ///
    /// # Errors
    /// `Unavailable` when too few live or take writes; `DiskFull` when enough do, and the disks of too many are full.
    fn require_live(
        &self,
        view: &ClusterView,
        requirement: &Requirement,
        (replicas, grows): (impl Iterator<Item = Replica>, bool),
        kind: WriteKind,
    ) -> Result<Counts, CoordinatorError> {
        let mut live = Counts::default();
        let mut full: SmallVec<[Replica; 3]> = SmallVec::new();
        let add = |counts: &mut Counts, replica: Replica| {
            counts.add(requirement, replica.node, view.locality.datacenter(replica.node));
        };
        for replica in replicas.filter(|replica| self.context.takes_writes(replica.node)) {
            if grows && !self.context.takes_growth(replica.node) {
                full.push(replica)
            } else {
                add(&mut live, replica)
            }
        }
        let Err(unavailable) = requirement.is_sufficient(&live) else {
            return Ok(live);
        };
        let mut with_full = live;
        full.iter().for_each(|replica| add(&mut with_full, *replica));
        if full.is_empty() || requirement.is_sufficient(&with_full).is_err() {
            self.context.count(|m| m.unavailable += 1);
            return Err(unavailable.into());
        }
        self.context.count(|m| m.refused_full += 1);
        Err(CoordinatorError::DiskFull {
            tally: Tally {
                consistency: unavailable.consistency,
                received: 0,
                block_for: unavailable.required,
            },
            kind,
            failures: full.iter().map(|r| (view.address(r.node), 0)).collect(),
            full: view.names(full.iter().copied()),
        })
    }

    /// Whether a decision of a conditional statement may be proposed: enough replicas live for each of the levels, and
    /// have room for it.
    ///
    /// # Errors
    /// As [`Writes::require_live`].
    pub(crate) fn require_for_decision(
        &self,
        view: &ClusterView,
        value: &[u8],
        levels: [Consistency; 2],
    ) -> Result<(), CoordinatorError> {
        let Some(mutation) = Mutation::new(value) else {
            return Ok(());
        };
        let place = Place::new(view, mutation.table, token_of(mutation.key))?;
        let grows = self.context.grows(mutation.table, &mutation);
        levels
            .into_iter()
            .try_for_each(|level| self.acks(view, &place, grows, level, WriteKind::Cas).map(drop))
    }
}

/// The parts of a write, and which of them each replica is sent.
pub(super) type Shares = (SmallVec<[Part; 1]>, SmallVec<[Target; 3]>);

/// Where a mutation goes.
struct Place<'v> {
    route: &'v Route,
    tablet: Tablet<'v>,
    targets: WriteTargets,
}

impl<'v> Place<'v> {
    fn new(view: &'v ClusterView, table: TableId, token: Token) -> Result<Self, CoordinatorError> {
        let unknown = || CoordinatorError::Internal("a write to a table that is not in the cluster's map".to_owned());
        let route = view.route(table).ok_or_else(unknown)?;
        let tablet = route.map.tablet_of(token);
        Ok(Self {
            route,
            tablet,
            targets: WriteTargets::new(&tablet),
        })
    }
}

/// The replicas that are sent the only mutation.
pub(super) fn share(targets: &WriteTargets) -> SmallVec<[Target; 3]> {
    let target = |replica| Target {
        replica,
        numbers: smallvec![0],
        state: State::Settled,
    };
    targets.all().map(target).collect()
}

/// Which mutations each replica is sent.
fn shares(of_parts: &[WriteTargets]) -> SmallVec<[Target; 3]> {
    let target = |(replica, numbers)| Target {
        replica,
        numbers,
        state: State::Settled,
    };
    let mut shares: BTreeMap<Replica, Numbers> = BTreeMap::new();
    for (number, targets) in (0..).zip(of_parts) {
        for replica in targets.all() {
            shares.entry(replica).or_default().push(number);
        }
    }
    shares.into_iter().map(target).collect()
}

/// Those of the mutations that have these numbers.
pub(crate) fn numbered<'m>(
    mutations: &'m [Addressed],
    numbers: &'m [u32],
) -> impl Iterator<Item = &'m Addressed> + Clone {
    numbers.iter().map(|number| &mutations[*number as usize])
}
