//! Moves of tablets between nodes: the steps that change a map, and what a replica must copy before it is read.
//!
//! A tablet moves from its replicas (*old*) to others (*next*) through the stages of [`Stage`]. Each step is a command
//! of the metadata's log. Its effect is a function of the map, so every node applies it alike; a step that no longer
//! fits changes nothing.
//!
//! ```text
//! Begin                       Advance (each one stage)                                      End: the replicas are
//! ----> AllowWriteBothReadOld -> WriteBothReadOld -> Streaming -> WriteBothReadNew -> UseNew -----> the next ones
//!                |                      |                |
//!                +----------------------+----------------+--> CleanupTarget ----------------------> the old ones
//! ```
//!
//! **What an acknowledged write is on.** Let a tablet have n replicas, and let q(n) = n / 2 + 1. *A write that QUORUM
//! acknowledged is on q(n) of them, at any time.* That any quorum of them has it is not enough: of three replicas that
//! become two and then three again, a write would be on two, then on one, and then missed. Writes that are acknowledged
//! while both sets are written to are on a quorum of both ([`crate::Requirement::and`]). The older ones may be missing
//! on n - q(n) of the old replicas, and [`fills`] says what must be copied so that they are on q(m) of the m next ones:
//!
//! - A replica that takes the place of one that leaves copies that one, and waits for it while it is down: what ONE
//!   acknowledged may be nowhere else. It then has what the other had, so as many have a write as before. (A move does
//!   not end while a replica that leaves is down, in any case.) If an operator declares it permanently down, the
//!   replica copies as any other new one.
//! - Any other new replica copies n - q(n) + 1 of the old replicas. One of them has the write, so it has everything: it
//!   is *complete*.
//! - Of a replica that an operator has given up, what it alone had is gone. Where fewer than n - q(n) + 1 old replicas
//!   are left, a replica copies all that are left.
//! - So a write is on q(n) + m - n of the next replicas, or more. Where that is less than q(m), which is when an odd
//!   number of replicas becomes a smaller even one (or loses more), q(m) of the next replicas become complete: the new
//!   ones, and as many of those that stay as are needed.
//!
//! Which replicas copy, and which leaving replica each of them replaces, depends on the two sets alone. From which
//! replicas they copy depends on which can be read when each begins: a replica whose counterpart is given up becomes
//! complete, and then it does not matter what the others have copied before.
//!
//! This is also guaranteed within each datacenter, because LOCAL_QUORUM counts there.
//!
//! All this is about writes that a quorum acknowledged. A write that fewer replicas have waits for the others as hints,
//! which reach the new replicas as well, also after the move (crate `coordinator`, `handoff.rs`).
//!
//! Where several copy, each is noted when it has ([`MoveStep::Copied`]), and the stage ends when all have.

use smallvec::SmallVec;
use stdx::planted::{self, Bug};

use crate::node::{DatacenterNumber, NodeNumber};
use crate::tablet_map::{
    MapError, Replica, ReplicaList, Stage, TabletChange, TabletEdit, TabletId, TabletMap, Transition, check_replicas,
};

/// One step of one tablet's move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MoveStep {
    /// A tablet begins to move.
    Begin {
        /// The tablet.
        tablet: TabletId,
        /// Its replicas. If they differ, the step does not fit.
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
    /// A replica has copied what it was to copy, where several do. Only where all members know [`PARALLEL_COPIES`].
    Copied {
        /// The tablet.
        tablet: TabletId,
        /// The version in which its present stage began.
        version: u64,
        /// The replica's node.
        node: NodeNumber,
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
            Self::Begin { tablet, .. }
            | Self::Advance { tablet, .. }
            | Self::Copied { tablet, .. }
            | Self::End { tablet, .. } => *tablet,
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
                    copied: SmallVec::new(),
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
                    copied: SmallVec::new(),
                };
                Some(edit(tablet.replicas, Some(transition)))
            }
            Self::Copied {
                version: began, node, ..
            } => {
                let is_awaited = |now: &&Transition| {
                    now.version == *began && now.stage == Stage::Streaming && is_in(&now.next, *node)
                };
                let now = tablet
                    .transition
                    .filter(is_awaited)
                    .filter(|now| !now.copied.contains(node))?;
                let mut transition = now.clone();
                transition.copied.push(*node);
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

    /// Whether a move in this stage may return to the old replicas: no coordinator has read the new ones yet.
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
    /// The version of the map becomes the index: so the version of a transition is the index of the command with which
    /// its stage began.
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

/// What an old replica is worth to those that copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// It can be read.
    Readable,
    /// It is down, and what it has is waited for.
    Down,
    /// An operator says that it is permanently down, and it is not given up yet: it counts as a replica, and no replica
    /// waits for what it alone has.
    Excluded,
    /// An operator has given it up: what it alone had is gone.
    Gone,
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

/// What must be copied, and from which replicas, before the next replicas of a tablet are read; nothing for replicas
/// that need no copy. The module explains why.
///
/// `datacenter` returns the datacenter of a node, `source` whether its data can be read. Where so many old replicas are
/// gone that fewer are left than must be read, those that are left are enough: no other node has anything. A fill
/// without sources is of a tablet of which nothing is left, in this datacenter and in the others.
///
/// # Errors
/// When too few old replicas can be read: what a quorum acknowledged might be missing, or what a replica acknowledged
/// that leaves and is down.
pub fn fills(
    old: &[Replica],
    next: &[Replica],
    datacenter: impl Fn(NodeNumber) -> DatacenterNumber,
    source: impl Fn(NodeNumber) -> Source,
) -> Result<Vec<Fill>, TooFewSources> {
    let complete = completed(old, next, &datacenter);
    // Paired regardless of which replicas can be read, because each new replica evaluates this at a different time. If
    // one took the counterpart of another because a counterpart was lost in between, a write would be left on too few.
    let mut leaving: ReplicaList = old.iter().filter(|r| !is_in(next, r.node)).copied().collect();
    let mut all = Vec::new();
    for target in targets(old, next, &datacenter) {
        let place = datacenter(target.node);
        let replaced = leaving.iter().position(|replica| datacenter(replica.node) == place);
        let replaced = replaced.filter(|_| complete.is_empty()).map(|at| leaving.remove(at));
        let sources = match replaced.map(|replaced| (replaced, source(replaced.node))) {
            Some((_, Source::Down)) => return Err(TooFewSources { needed: 1, readable: 0 }),
            Some((replaced, Source::Readable)) => SmallVec::from_slice(&[replaced]),
            Some((_, Source::Excluded | Source::Gone)) | None => enough_of(old, target, &datacenter, &source)?,
        };
        all.push(Fill { target, sources });
    }
    Ok(all)
}

/// The next replicas that must copy before they are read, regardless of which replicas can be read: [`fills`] has one
/// entry for each.
pub fn targets(old: &[Replica], next: &[Replica], datacenter: impl Fn(NodeNumber) -> DatacenterNumber) -> ReplicaList {
    if old.is_empty() {
        return ReplicaList::new();
    }
    let complete = completed(old, next, &datacenter);
    let copies = |replica: &&Replica| !is_in(old, replica.node) || is_in(&complete, replica.node);
    next.iter().filter(copies).copied().collect()
}

fn is_in(replicas: &[Replica], node: NodeNumber) -> bool {
    replicas.iter().any(|replica| replica.node == node)
}

/// The next replicas that must have every write which a quorum of the old ones acknowledged, so that a quorum of the
/// next has each; none where enough have it as it is. New replicas come before those that stay.
fn completed(old: &[Replica], next: &[Replica], datacenter: &impl Fn(NodeNumber) -> DatacenterNumber) -> ReplicaList {
    let mut complete = ReplicaList::new();
    let (stay, new): (ReplicaList, ReplicaList) = next.iter().copied().partition(|replica| is_in(old, replica.node));
    let mut complete_in = |place: Option<DatacenterNumber>| {
        let is_here = |replica: &&Replica| place.is_none_or(|place| datacenter(replica.node) == place);
        let [n, m] = [old, next].map(|replicas| replicas.iter().filter(is_here).count());
        if n == 0 || quorum(n) + m >= quorum(m) + n {
            return;
        }
        let has = complete.iter().filter(is_here).count();
        let others = new.iter().chain(&stay).filter(is_here);
        let more = others.filter(|replica| !is_in(&complete, replica.node)).copied();
        let more: ReplicaList = more.take(quorum(m).saturating_sub(has)).collect();
        complete.extend(more);
    };
    let mut places: SmallVec<[DatacenterNumber; 4]> = next.iter().map(|replica| datacenter(replica.node)).collect();
    places.sort_unstable();
    places.dedup();
    for place in places {
        complete_in(Some(place));
    }
    complete_in(None);
    complete
}

/// How many of n replicas have to be read so that one of them has any write that a quorum acknowledged.
fn readers_of(n: usize) -> usize {
    if planted::is_planted(Bug::OneSource) {
        1
    } else {
        n - quorum(n) + 1
    }
}

fn quorum(n: usize) -> usize {
    n / 2 + 1
}

/// So many old replicas that each write is among them which a quorum acknowledged: of all replicas, or of those in the
/// target's datacenter. What the target has itself counts. Of replicas that are gone nothing is waited for: all others
/// are enough then.
fn enough_of(
    old: &[Replica],
    target: Replica,
    datacenter: &impl Fn(NodeNumber) -> DatacenterNumber,
    source: &impl Fn(NodeNumber) -> Source,
) -> Result<ReplicaList, TooFewSources> {
    let here = datacenter(target.node);
    let is_local = |replica: &&Replica| datacenter(replica.node) == here;
    let has_own = usize::from(old.iter().any(|replica| replica.node == target.node));
    let local_count = old.iter().filter(is_local).count();
    let is_left = |replica: &&Replica| replica.node != target.node && source(replica.node) != Source::Gone;
    let left_local = old.iter().filter(is_left).filter(is_local).count();
    let needed_local = if local_count == 0 { 0 } else { readers_of(local_count) };
    let needed_local = needed_local.saturating_sub(has_own).min(left_local);
    let left = old.iter().filter(is_left).count();
    let needed = readers_of(old.len()).saturating_sub(has_own).min(left);
    let readable = |replica: &&Replica| replica.node != target.node && source(replica.node) == Source::Readable;
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

    /// Nodes below 10 are in one datacenter, the others in another.
    fn datacenter(node: NodeNumber) -> DatacenterNumber {
        DatacenterNumber(node.0 / 10)
    }

    fn filled(old: &[u16], next: &[u16], lost: &[u16]) -> Result<Vec<(u16, Vec<u16>)>, TooFewSources> {
        filled_when(old, next, |node| {
            if lost.contains(&node) {
                Source::Excluded
            } else {
                Source::Readable
            }
        })
    }

    fn filled_when(
        old: &[u16],
        next: &[u16],
        source: impl Fn(u16) -> Source,
    ) -> Result<Vec<(u16, Vec<u16>)>, TooFewSources> {
        let fills = fills(&replicas(old), &replicas(next), datacenter, |node| source(node.0))?;
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
    fn a_replica_that_takes_the_place_of_one_that_is_down_waits_for_it() {
        let down = |nodes: &'static [u16]| {
            move |node: u16| {
                if nodes.contains(&node) {
                    Source::Down
                } else {
                    Source::Readable
                }
            }
        };
        let too_few = TooFewSources { needed: 1, readable: 0 };
        assert_eq!(filled_when(&[1, 2, 3], &[1, 2, 4], down(&[3])), Err(too_few));
        assert_eq!(filled_when(&[1, 2], &[1, 3], down(&[2])), Err(too_few));
        // Also where another one that leaves can be read: the move ends when both can.
        assert_eq!(filled_when(&[1, 2, 3, 4], &[1, 2, 5], down(&[3])), Err(too_few));
        assert_eq!(
            filled_when(&[1, 2, 3, 4], &[1, 2, 5], down(&[4])),
            Ok(vec![(5, vec![3])])
        );
        // Another one that is down stays.
        assert_eq!(filled_when(&[1, 2, 3], &[1, 2, 4], down(&[2])), Ok(vec![(4, vec![3])]));
    }

    #[test]
    fn of_replicas_that_are_gone_for_ever_nothing_is_waited_for() {
        let gone = |gone: &'static [u16], down: &'static [u16]| {
            move |node: u16| match (gone.contains(&node), down.contains(&node)) {
                (true, _) => Source::Gone,
                (false, true) => Source::Down,
                (false, false) => Source::Readable,
            }
        };
        // As many as a quorum may have missed are left.
        assert_eq!(
            filled_when(&[1, 2, 3], &[1, 2, 4], gone(&[3], &[])),
            Ok(vec![(4, vec![1, 2])])
        );
        // Only one is left: it has what there is.
        assert_eq!(
            filled_when(&[1, 2, 3], &[1, 4, 5], gone(&[2, 3], &[])),
            Ok(vec![(4, vec![1]), (5, vec![1])])
        );
        let too_few = TooFewSources { needed: 1, readable: 0 };
        assert_eq!(filled_when(&[1, 2, 3], &[1, 4, 5], gone(&[2, 3], &[1])), Err(too_few));
        // The only copy of a datacenter is gone, and another datacenter has one.
        assert_eq!(
            filled_when(&[1, 11], &[2, 11], gone(&[1], &[])),
            Ok(vec![(2, vec![11])])
        );
        assert_eq!(filled_when(&[1, 11], &[2, 11], gone(&[], &[1])), Err(too_few));
        assert_eq!(filled_when(&[1, 11], &[2, 11], gone(&[1], &[11])), Err(too_few));
        // Nothing is left anywhere.
        assert_eq!(filled_when(&[1], &[2], gone(&[1], &[])), Ok(vec![(2, vec![])]));
    }

    #[test]
    fn more_replicas_copy_a_quorum_of_the_others() {
        assert_eq!(filled(&[1], &[1, 2, 3], &[]), Ok(vec![(2, vec![1]), (3, vec![1])]));
        assert_eq!(filled(&[1, 2], &[1, 2, 3], &[]), Ok(vec![(3, vec![1])]));
        assert_eq!(filled(&[1, 2, 3], &[1, 2, 3, 4], &[]), Ok(vec![(4, vec![1, 2])]));
    }

    #[test]
    fn replicas_that_stay_copy_each_other_where_fewer_would_have_a_write_than_a_quorum_of_them() {
        assert_eq!(filled(&[1, 2, 3], &[1, 2], &[]), Ok(vec![(1, vec![2]), (2, vec![1])]));
        assert_eq!(filled(&[1, 2], &[1], &[]), Ok(vec![]));
        assert_eq!(filled(&[1, 2, 3], &[1], &[]), Ok(vec![(1, vec![2])]));
        assert_eq!(filled(&[1, 2, 3, 4], &[1, 2, 3], &[]), Ok(vec![]));
        assert_eq!(
            filled(&[1, 2, 3, 4, 5], &[1, 2, 3, 4], &[]),
            Ok(vec![(1, vec![2, 3]), (2, vec![1, 3]), (3, vec![1, 2])])
        );
        // Of a quorum of four of six, one may be left.
        assert_eq!(
            filled(&[1, 2, 3, 11, 12, 13], &[1, 2, 3], &[]),
            Ok(vec![(1, vec![2, 3]), (2, vec![1, 3])])
        );
    }

    #[test]
    fn who_copies_does_not_depend_on_who_can_be_read() {
        assert_eq!(filled(&[1, 2, 3], &[1, 2], &[3]), Ok(vec![(1, vec![2]), (2, vec![1])]));
        assert_eq!(filled(&[1, 2, 3], &[1, 2], &[2]), Ok(vec![(1, vec![3]), (2, vec![1])]));
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

    fn subsets(nodes: &[u16], size: usize) -> Vec<Vec<u16>> {
        let all = 0..1_u32 << nodes.len();
        let chosen = all.filter(|set| set.count_ones() as usize == size);
        let pick = |set: u32| {
            let chosen = (0..nodes.len()).filter(|i| set >> i & 1 == 1);
            chosen.map(|i| nodes[i]).collect()
        };
        chosen.map(pick).collect()
    }

    /// Those of the next replicas that have a write of these holders.
    fn have(fills: &[(u16, Vec<u16>)], next: &[u16], holders: &[u16]) -> Vec<u16> {
        let has = |node: &&u16| {
            let mut copies = fills.iter().filter(|(target, _)| target == *node);
            holders.contains(node) || copies.any(|(_, sources)| sources.iter().any(|source| holders.contains(source)))
        };
        next.iter().filter(has).copied().collect()
    }

    /// By induction, then, nothing that was acknowledged is missed after any number of moves.
    #[test]
    fn a_write_on_a_quorum_of_the_old_replicas_is_on_a_quorum_of_the_next_ones() {
        for old_count in 1..=6_u16 {
            for kept in 0..=old_count {
                for added in 0..=4_u16 {
                    let old: Vec<u16> = (1..=old_count).collect();
                    let next: Vec<u16> = (1..=kept).chain(6..6 + added).collect();
                    if next.is_empty() || old == next || old.contains(&6) && next.contains(&6) {
                        continue;
                    }
                    let lost = (kept + 1..=old_count).map(|node| vec![node]).chain([vec![]]);
                    for lost in lost {
                        let Ok(fills) = filled(&old, &next, &lost) else {
                            continue;
                        };
                        for holders in subsets(&old, quorum(old.len())) {
                            let count = have(&fills, &next, &holders).len();
                            assert!(
                                count >= quorum(next.len()),
                                "{old:?} to {next:?} without {lost:?}: {holders:?} had it, {count} have it"
                            );
                        }
                    }
                }
            }
        }
    }

    /// One old replica is lost while the next ones copy: some have seen it, others have not.
    #[test]
    fn a_write_is_on_a_quorum_whenever_each_replica_looked_who_can_be_read() {
        for old_count in 1..=5_u16 {
            for kept in 0..=old_count {
                for added in 0..=3_u16 {
                    let old: Vec<u16> = (1..=old_count).collect();
                    let next: Vec<u16> = (1..=kept).chain(6..6 + added).collect();
                    if next.is_empty() || old == next {
                        continue;
                    }
                    for lost in 1..=old_count {
                        let before = filled(&old, &next, &[]).expect("all can be read");
                        let Ok(after) = filled(&old, &next, &[lost]) else {
                            continue;
                        };
                        for late in 0..1_u32 << before.len() {
                            let pick = |at: usize| if late >> at & 1 == 1 { &after[at] } else { &before[at] };
                            let fills: Vec<_> = (0..before.len()).map(|at| pick(at).clone()).collect();
                            for holders in subsets(&old, quorum(old.len())) {
                                let count = have(&fills, &next, &holders).len();
                                assert!(
                                    count >= quorum(next.len()),
                                    "{old:?} to {next:?}, {lost} is lost meanwhile, {fills:?}: {holders:?} had it, {count} have it"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    /// As above, for QUORUM and LOCAL_QUORUM in two datacenters.
    #[test]
    fn the_quorums_of_each_datacenter_are_kept_too() {
        let set = |[first, second]: [std::ops::Range<u16>; 2]| -> Vec<u16> { first.chain(second).collect() };
        let in_place =
            |nodes: &[u16], place: u16| nodes.iter().filter(|n| *n / 10 == place).copied().collect::<Vec<_>>();
        let sizes = |max: u16| (0..=max).flat_map(move |a| (0..=max).map(move |b| (a, b)));
        for (old_first, old_second) in sizes(3).filter(|(a, b)| a + b > 0) {
            for (kept_first, kept_second) in sizes(3).filter(|(a, b)| *a <= old_first && *b <= old_second) {
                for (new_first, new_second) in sizes(2) {
                    let old = set([0..old_first, 10..10 + old_second]);
                    let kept = set([0..kept_first, 10..10 + kept_second]);
                    let added = set([5..5 + new_first, 15..15 + new_second]);
                    let next: Vec<u16> = kept.into_iter().chain(added).collect();
                    if next.is_empty() || old == next {
                        continue;
                    }
                    let fills = filled(&old, &next, &[]).expect("all can be read");
                    for holders in subsets(&old, quorum(old.len())) {
                        let count = have(&fills, &next, &holders).len();
                        assert!(count >= quorum(next.len()), "{old:?} to {next:?}: {holders:?}");
                    }
                    for place in [0, 1] {
                        let (old_here, next_here) = (in_place(&old, place), in_place(&next, place));
                        if old_here.is_empty() || next_here.is_empty() {
                            continue;
                        }
                        for holders in subsets(&old_here, quorum(old_here.len())) {
                            let count = have(&fills, &next_here, &holders).len();
                            assert!(
                                count >= quorum(next_here.len()),
                                "{old:?} to {next:?}: {holders:?} in {place}"
                            );
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
    fn it_is_noted_who_has_copied_until_the_stage_ends() {
        let mut map = map();
        let tablet = TabletId(0);
        let copied = |version, node| MoveStep::Copied {
            tablet,
            version,
            node: NodeNumber(node),
        };
        let who = |map: &TabletMap| {
            let transition = map.tablet(tablet).expect("it is there").transition.expect("it moves");
            transition.copied.iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(map.step(10, &[begin(&[1, 3])]), Ok(1));
        assert_eq!(map.step(11, &[copied(10, 3)]), Ok(0), "nothing is copied yet");
        for (index, stage) in [(11, Stage::WriteBothReadOld), (12, Stage::Streaming)] {
            let version = index - 1;
            assert_eq!(map.step(index, &[MoveStep::Advance { tablet, version, stage }]), Ok(1));
        }
        assert_eq!(map.step(13, &[copied(11, 3)]), Ok(0), "an old word counts");
        assert_eq!(map.step(13, &[copied(12, 2)]), Ok(0), "one that is no next replica");
        assert_eq!(map.step(13, &[copied(12, 3)]), Ok(1));
        assert_eq!(
            map.step(14, &[copied(12, 3)]),
            Ok(0),
            "a word that is said twice counts once"
        );
        assert_eq!(map.step(14, &[copied(12, 1)]), Ok(1));
        assert_eq!(who(&map), [3, 1]);
        let stage = Stage::WriteBothReadNew;
        assert_eq!(
            map.step(
                15,
                &[MoveStep::Advance {
                    tablet,
                    version: 12,
                    stage
                }]
            ),
            Ok(1)
        );
        assert_eq!(who(&map), Vec::<u16>::new());
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
