//! Moves of tablets between nodes: the steps that change a map, and what a replica must copy before it is read.
//!
//! A tablet moves from its replicas (*old*) to others (*next*) through the stages of [`Stage`]. Each step is a command of the metadata's log. Its effect is a
//! function of the map, so every node applies it alike; a step that no longer fits changes nothing.
//!
//! ```text
//! Begin                        Advance (each one stage)                                        End
//! -----> AllowWriteBothReadOld -> WriteBothReadOld -> Streaming -> WriteBothReadNew -> UseNew -----> the replicas are the next ones
//!                 |                      |                |
//!                 +----------------------+----------------+--> CleanupTarget ------------------End-> the replicas are the old ones
//! ```
//!
//! **Why quorums meet.** Let a tablet have n old replicas, and let q(n) = n / 2 + 1. A write that a quorum acknowledged before stage `WriteBothReadOld` may be
//! missing on n - q(n) of the old replicas. Writes since then wait for every pending replica besides the quorum ([`crate::WriteTargets`]). So only writes from
//! before can be missing on the next replicas, and [`fills`] says what must be copied so that no quorum of the next replicas consists of such that lack one:
//!
//! - A replica that takes the place of one that leaves copies that one. It then lacks what the other lacked, so as many replicas lack a write as before.
//! - Any other new replica copies n - q(n) + 1 of the old replicas. One of them has the write.
//! - When more replicas leave at once than quorums allow, every next replica copies so many.
//!
//! The same count is kept for each datacenter, because LOCAL_QUORUM counts there.

use smallvec::SmallVec;

use crate::node::{DatacenterNumber, NodeNumber};
use crate::tablet_map::{
    MapError, Replica, ReplicaList, Stage, TabletChange, TabletEdit, TabletId, TabletMap, Transition, check_replicas,
};

/// The feature of a cluster whose nodes all move tablets to other nodes.
pub const TABLET_MOVES: &str = "tablet_moves";

/// One step of one tablet's move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MoveStep {
    /// A tablet begins to move.
    Begin {
        /// The tablet.
        tablet: TabletId,
        /// Its replicas. When they are others, the step does not fit.
        replicas: ReplicaList,
        /// Its replicas after the move.
        next: ReplicaList,
    },
    /// A tablet that moves enters a stage.
    Advance {
        /// The tablet.
        tablet: TabletId,
        /// The version in which its present stage began.
        version: u64,
        /// The stage that it enters: the next one, or `CleanupTarget`.
        stage: Stage,
    },
    /// The move ends.
    End {
        /// The tablet.
        tablet: TabletId,
        /// The version in which its last stage began.
        version: u64,
    },
}

impl MoveStep {
    /// The tablet that moves.
    #[must_use]
    pub fn tablet(&self) -> TabletId {
        match self {
            Self::Begin { tablet, .. } | Self::Advance { tablet, .. } | Self::End { tablet, .. } => *tablet,
        }
    }

    /// What the step makes of its tablet; None when it does not fit the map.
    fn edit(&self, map: &TabletMap, version: u64) -> Option<TabletEdit> {
        let tablet = map.tablet(self.tablet())?;
        let edit = |replicas: &[Replica], transition| TabletEdit {
            tablet: tablet.id,
            replicas: replicas.iter().copied().collect(),
            transition,
        };
        match self {
            Self::Begin { replicas, next, .. } => {
                let fits = tablet.transition.is_none() && tablet.replicas == &replicas[..] && replicas != next;
                let transition = Transition {
                    stage: Stage::AllowWriteBothReadOld,
                    next: next.clone(),
                    version,
                };
                fits.then(|| edit(tablet.replicas, Some(transition)))
            }
            Self::Advance {
                version: began, stage, ..
            } => {
                let now = tablet
                    .transition
                    .filter(|now| now.version == *began && now.stage.may_enter(*stage))?;
                let transition = Transition {
                    stage: *stage,
                    next: now.next.clone(),
                    version,
                };
                Some(edit(tablet.replicas, Some(transition)))
            }
            Self::End { version: began, .. } => {
                let now = tablet.transition.filter(|now| now.version == *began)?;
                match now.stage {
                    Stage::UseNew => Some(edit(&now.next, None)),
                    Stage::CleanupTarget => Some(edit(tablet.replicas, None)),
                    _ => None,
                }
            }
        }
    }
}

impl Stage {
    /// Whether a tablet in this stage may enter another one next.
    #[must_use]
    pub fn may_enter(self, next: Self) -> bool {
        self.next() == Some(next) || (next == Self::CleanupTarget && self.may_be_abandoned())
    }

    /// Whether a move in this stage may end where it began: nobody has read the new replicas yet.
    #[must_use]
    pub fn may_be_abandoned(self) -> bool {
        matches!(
            self,
            Self::AllowWriteBothReadOld | Self::WriteBothReadOld | Self::Streaming
        )
    }
}

impl TabletMap {
    /// Applies the steps that fit, as of a command of the metadata's log at `index`. How many did.
    ///
    /// The version of the map becomes the index: so the version of a transition is the index of the command with which its stage began.
    ///
    /// # Errors
    /// When replicas cannot be those of a tablet; the map is as before then.
    pub fn step(&mut self, index: u64, steps: &[MoveStep]) -> Result<usize, MapError> {
        for step in steps {
            if let MoveStep::Begin { tablet, next, .. } = step {
                check_replicas(*tablet, next)?;
            }
        }
        let version = index.max(self.version() + 1);
        let mut edits: Vec<TabletEdit> = steps.iter().filter_map(|step| step.edit(self, version)).collect();
        edits.sort_by_key(|edit| edit.tablet);
        // Two steps of one tablet in one command: the first counts.
        edits.dedup_by_key(|edit| edit.tablet);
        let applied = edits.len();
        if applied > 0 {
            let change = TabletChange {
                from_version: self.version(),
                version,
                edits,
            };
            self.apply(&change)?;
        }
        Ok(applied)
    }
}

/// What a replica copies before it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The replica that copies.
    pub target: Replica,
    /// Whose data it copies: all that each of them has of the tablet.
    pub sources: ReplicaList,
}

/// A tablet cannot be copied: too few of its replicas can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFewSources {
    /// How many must be read.
    pub needed: usize,
    /// How many can.
    pub readable: usize,
}

impl std::fmt::Display for TooFewSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a copy needs the data of {} of the tablet's replicas, and {} can be read",
            self.needed, self.readable
        )
    }
}

impl std::error::Error for TooFewSources {}

/// What must be copied, and from whom, before the next replicas of a tablet are read; nothing for replicas that need no copy. See the module for why.
///
/// `datacenter` tells where a node stands, `is_readable` whether its data can be read: a node that is lost for good, or down, cannot be.
///
/// # Errors
/// When too few old replicas can be read: what a quorum acknowledged might be missing.
pub fn fills(
    old: &[Replica],
    next: &[Replica],
    datacenter: impl Fn(NodeNumber) -> DatacenterNumber,
    is_readable: impl Fn(NodeNumber) -> bool,
) -> Result<Vec<Fill>, TooFewSources> {
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let is_in = |replicas: &[Replica], node| replicas.iter().any(|replica| replica.node == node);
    let mut leaving: ReplicaList = old.iter().filter(|r| !is_in(next, r.node)).copied().collect();
    leaving.retain(|replica| is_readable(replica.node));
    let may_lack = quorums_meet(old, next, &datacenter);
    let mut all = Vec::new();
    for target in next {
        let place = datacenter(target.node);
        let is_new = !is_in(old, target.node);
        let replaced = leaving.iter().position(|replica| datacenter(replica.node) == place);
        let sources = match replaced.filter(|_| is_new && may_lack) {
            Some(at) => SmallVec::from_slice(&[leaving.remove(at)]),
            None if is_new || !may_lack => enough_of(old, *target, &datacenter, &is_readable)?,
            None => continue,
        };
        all.push(Fill {
            target: *target,
            sources,
        });
    }
    Ok(all)
}

/// How many of n replicas have to be read so that one of them has any write that a quorum acknowledged.
fn readers_of(n: usize) -> usize {
    n - quorum(n) + 1
}

fn quorum(n: usize) -> usize {
    n / 2 + 1
}

/// So many old replicas that each write is among them which a quorum acknowledged: of all replicas, or of those in the target's datacenter. What the target has
/// itself counts.
fn enough_of(
    old: &[Replica],
    target: Replica,
    datacenter: &impl Fn(NodeNumber) -> DatacenterNumber,
    is_readable: &impl Fn(NodeNumber) -> bool,
) -> Result<ReplicaList, TooFewSources> {
    let here = datacenter(target.node);
    let is_local = |replica: &&Replica| datacenter(replica.node) == here;
    let has_own = usize::from(old.iter().any(|replica| replica.node == target.node));
    let local_count = old.iter().filter(is_local).count();
    let needed_local = if local_count == 0 { 0 } else { readers_of(local_count) }.saturating_sub(has_own);
    let needed = readers_of(old.len()).saturating_sub(has_own);
    let readable = |replica: &&Replica| replica.node != target.node && is_readable(replica.node);
    let mut sources: ReplicaList = old.iter().filter(readable).filter(is_local).copied().collect();
    if sources.len() < needed_local {
        return Err(TooFewSources {
            needed: needed_local,
            readable: sources.len(),
        });
    }
    // No more local ones than one of the two counts needs.
    sources.truncate(needed_local.max(needed));
    let others = old.iter().filter(readable).filter(|replica| !is_local(replica));
    sources.extend(others.copied().take(needed.saturating_sub(sources.len())));
    if sources.len() < needed {
        return Err(TooFewSources {
            needed,
            readable: sources.len(),
        });
    }
    Ok(sources)
}

/// Whether each quorum of the next replicas has one that has a write which a quorum of the old ones acknowledged, when as many of them lack it as of the old ones.
fn quorums_meet(old: &[Replica], next: &[Replica], datacenter: &impl Fn(NodeNumber) -> DatacenterNumber) -> bool {
    let places: SmallVec<[DatacenterNumber; 4]> = next.iter().map(|replica| datacenter(replica.node)).collect();
    let meets = |n: usize, m: usize| m == 0 || quorum(m) > n - quorum(n.max(1)).min(n);
    let in_place = |replicas: &[Replica], place| replicas.iter().filter(|r| datacenter(r.node) == place).count();
    meets(old.len(), next.len())
        && places.iter().all(|place| {
            let before = in_place(old, *place);
            before == 0 || meets(before, in_place(next, *place))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tablet_map::Boundaries;

    fn replicas(nodes: &[u16]) -> ReplicaList {
        let replica = |node: &u16| Replica {
            node: NodeNumber(*node),
            shard: 0,
        };
        nodes.iter().map(replica).collect()
    }

    /// Nodes below 10 stand in one datacenter, the others in another.
    fn datacenter(node: NodeNumber) -> DatacenterNumber {
        DatacenterNumber(node.0 / 10)
    }

    fn filled(old: &[u16], next: &[u16], lost: &[u16]) -> Result<Vec<(u16, Vec<u16>)>, TooFewSources> {
        let fills = fills(&replicas(old), &replicas(next), datacenter, |node| {
            !lost.contains(&node.0)
        })?;
        let numbers = |fill: &Fill| {
            let sources = fill.sources.iter().map(|replica| replica.node.0).collect();
            (fill.target.node.0, sources)
        };
        Ok(fills.iter().map(numbers).collect())
    }

    #[test]
    fn a_replica_that_takes_the_place_of_another_copies_that_one() {
        assert_eq!(filled(&[1, 2, 3], &[1, 2, 4], &[]), Ok(vec![(4, vec![3])]));
        assert_eq!(filled(&[1], &[2], &[]), Ok(vec![(2, vec![1])]));
    }

    #[test]
    fn a_replica_that_takes_the_place_of_a_lost_one_copies_all_that_may_have_the_only_acknowledged_copy() {
        assert_eq!(filled(&[1, 2, 3], &[1, 2, 4], &[3]), Ok(vec![(4, vec![1, 2])]));
        let too_few = TooFewSources { needed: 2, readable: 1 };
        assert_eq!(filled(&[1, 2, 3], &[1, 2, 4], &[2, 3]), Err(too_few));
        assert_eq!(filled(&[1], &[2], &[1]), Err(TooFewSources { needed: 1, readable: 0 }));
    }

    #[test]
    fn more_replicas_copy_a_quorum_of_the_others() {
        assert_eq!(filled(&[1], &[1, 2, 3], &[]), Ok(vec![(2, vec![1]), (3, vec![1])]));
        assert_eq!(filled(&[1, 2], &[1, 2, 3], &[]), Ok(vec![(3, vec![1])]));
        assert_eq!(filled(&[1, 2, 3], &[1, 2, 3, 4], &[]), Ok(vec![(4, vec![1, 2])]));
    }

    #[test]
    fn fewer_replicas_copy_each_other_only_where_quorums_would_miss() {
        assert_eq!(filled(&[1, 2, 3], &[1, 2], &[]), Ok(vec![]));
        assert_eq!(filled(&[1, 2], &[1], &[]), Ok(vec![]));
        assert_eq!(filled(&[1, 2, 3], &[1], &[]), Ok(vec![(1, vec![2])]));
        assert_eq!(
            filled(&[1, 2, 3, 4, 5], &[1, 2, 3], &[]),
            Ok(vec![(1, vec![2, 3]), (2, vec![1, 3]), (3, vec![1, 2])])
        );
    }

    #[test]
    fn a_new_datacenter_copies_a_quorum_of_the_old_one() {
        assert_eq!(
            filled(&[1, 2, 3], &[1, 2, 3, 11, 12], &[]),
            Ok(vec![(11, vec![1, 2]), (12, vec![1, 2])])
        );
        // A global quorum of six is four, so a write may be missing on two of a datacenter of three.
        assert_eq!(
            filled(&[1, 2, 3, 11, 12, 13], &[1, 2, 3, 4, 11, 12, 13], &[]),
            Ok(vec![(4, vec![1, 2, 3])])
        );
    }

    /// Every write that a quorum of the old replicas acknowledged is on some replica of every quorum of the next ones, for all small cases and whatever set has it.
    #[test]
    fn a_quorum_of_the_next_replicas_always_has_what_a_quorum_of_the_old_ones_acknowledged() {
        let subsets = |nodes: &[u16], size: usize| -> Vec<Vec<u16>> {
            let all = 0..1_u32 << nodes.len();
            let chosen = all.filter(|set| set.count_ones() as usize == size);
            let pick = |set: u32| {
                (0..nodes.len())
                    .filter(|i| set >> i & 1 == 1)
                    .map(|i| nodes[i])
                    .collect()
            };
            chosen.map(pick).collect()
        };
        for old_count in 1..=5_u16 {
            for kept in 0..=old_count {
                for added in 0..=4_u16 {
                    let old: Vec<u16> = (1..=old_count).collect();
                    let next: Vec<u16> = (1..=kept).chain(6..6 + added).collect();
                    if next.is_empty() || old == next {
                        continue;
                    }
                    let fills = filled(&old, &next, &[]).expect("all can be read");
                    for holders in subsets(&old, quorum(old.len())) {
                        let has = |node: u16| {
                            let copies = fills.iter().filter(|(target, _)| *target == node);
                            holders.contains(&node)
                                || copies
                                    .flat_map(|(_, sources)| sources)
                                    .any(|source| holders.contains(source))
                        };
                        for readers in subsets(&next, quorum(next.len())) {
                            let found = readers.iter().any(|node| has(*node));
                            assert!(found, "{old:?} to {next:?}: {holders:?} have it, {readers:?} are read");
                        }
                    }
                }
            }
        }
    }

    fn map() -> TabletMap {
        TabletMap::new(3, Boundaries::PowerOfTwo(1), &[replicas(&[1, 2]), replicas(&[2, 1])]).expect("a map")
    }

    fn begin(next: &[u16]) -> MoveStep {
        MoveStep::Begin {
            tablet: TabletId(0),
            replicas: replicas(&[1, 2]),
            next: replicas(next),
        }
    }

    #[test]
    fn a_move_goes_through_its_stages_in_order_and_ends_at_the_next_replicas() {
        let mut map = map();
        let tablet = TabletId(0);
        assert_eq!(map.step(10, &[begin(&[1, 3])]), Ok(1));
        for (index, stage) in [
            (11, Stage::WriteBothReadOld),
            (12, Stage::Streaming),
            (13, Stage::WriteBothReadNew),
            (14, Stage::UseNew),
        ] {
            let version = index - 1;
            let end = MoveStep::End { tablet, version };
            assert_eq!(map.step(index, &[end]), Ok(0), "it ends before {stage:?}");
            let stale = MoveStep::Advance {
                tablet,
                version: version - 1,
                stage,
            };
            assert_eq!(map.step(index, &[stale]), Ok(0), "an old word counts before {stage:?}");
            let step = MoveStep::Advance { tablet, version, stage };
            assert_eq!(map.step(index, &[step]), Ok(1));
        }
        assert_eq!(map.step(15, &[MoveStep::End { tablet, version: 14 }]), Ok(1));
        let moved = map.tablet(tablet).expect("it is there");
        assert_eq!((moved.replicas, moved.transition), (&replicas(&[1, 3])[..], None));
        assert_eq!(map.version(), 15);
    }

    #[test]
    fn a_move_is_abandoned_only_before_its_new_replicas_are_read() {
        for abandoned_at in 0..4_u64 {
            let mut map = map();
            let tablet = TabletId(0);
            assert_eq!(map.step(10, &[begin(&[3, 2])]), Ok(1));
            let stages = [Stage::WriteBothReadOld, Stage::Streaming, Stage::WriteBothReadNew];
            for (stage, index) in stages.into_iter().zip(11..11 + abandoned_at) {
                let version = index - 1;
                assert_eq!(map.step(index, &[MoveStep::Advance { tablet, version, stage }]), Ok(1));
            }
            let version = 10 + abandoned_at;
            let stage = Stage::CleanupTarget;
            let may = usize::from(abandoned_at < 3);
            assert_eq!(map.step(20, &[MoveStep::Advance { tablet, version, stage }]), Ok(may));
            assert_eq!(map.step(21, &[MoveStep::End { tablet, version: 20 }]), Ok(may));
        }
    }

    #[test]
    fn a_move_of_other_replicas_or_of_a_tablet_that_moves_does_not_begin() {
        let mut map = map();
        let other = MoveStep::Begin {
            tablet: TabletId(1),
            replicas: replicas(&[1, 2]),
            next: replicas(&[1, 3]),
        };
        assert_eq!(map.step(10, &[other, begin(&[1, 2])]), Ok(0));
        assert_eq!(map.version(), 3, "nothing changed");
        assert_eq!(map.step(10, &[begin(&[1, 3]), begin(&[1, 4])]), Ok(1));
        assert_eq!(map.step(11, &[begin(&[1, 4])]), Ok(0));
        assert!(map.step(12, &[begin(&[3, 3])]).is_err(), "two replicas on one node");
    }
}
