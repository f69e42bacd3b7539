//! Where the parts of a write go.

use std::collections::BTreeMap;

use mutation::Addressed;
use rpc::Sent;
use schema::TableId;
use smallvec::{SmallVec, smallvec};
use stdx::planted::{self, Bug};
use stdx::preempt;
use stdx::probe::Answered;
use topology::{Acks, Consistency, DatacenterNumber, Replica, Tablet, WriteTargets};
use types::Token;

use super::{Manner, Numbers};
use crate::{ClusterView, Coordinator, CoordinatorError, Route, WriteKind};

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

impl Coordinator {
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
        let view = self.view();
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
        let grows = self.grows(mutation.table(), &mutation.mutation());
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
    pub(crate) fn acks(
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
}

/// The parts of a write, and which of them each replica is sent.
pub(super) type Shares = (SmallVec<[Part; 1]>, SmallVec<[Target; 3]>);

/// Where a mutation goes.
pub(crate) struct Place<'v> {
    route: &'v Route,
    tablet: Tablet<'v>,
    targets: WriteTargets,
}

impl<'v> Place<'v> {
    pub(crate) fn new(view: &'v ClusterView, table: TableId, token: Token) -> Result<Self, CoordinatorError> {
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
