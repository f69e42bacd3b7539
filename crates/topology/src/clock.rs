//! Whether this node's wall clock is right, by the clocks of its peers and by its own steady clock.
//!
//! All values are *offsets* in microseconds: a wall clock less this node's steady clock, which is never set. So a
//! sample of a peer stays comparable while this node's wall clock jumps, and a jump of this node is a change of its own
//! offset.
//!
//! A node is *ahead* of a peer by its own offset less the peer's; the round trip of the sample bounds the error, which
//! counts in favour of the node. The node *votes* with its peers: the median of 0 (itself) and of how far it is ahead
//! of each peer. A median between two values with 0 between them is 0, so with a single peer neither outvotes the
//! other.
//!
//! | what is seen | state |
//! |---|---|
//! | the median is beyond `out_of_service`, for [`OUT_AFTER`] | `OutOfService` |
//! | the median is beyond `suspect` | `Suspect`: outvoted |
//! | the clock is within `suspect` of where it was when it was last trusted | `Trusted` |
//! | it has stepped, and more trusted peers agree with it than disagree | `Trusted`, after [`CALM`] |
//! | it has stepped | `Suspect`: stepped |
//! | it was never trusted in this run, and there are no peers | `Trusted` |
//! | never trusted, and no peer was heard yet | `Suspect`: unheard |
//! | never trusted, and at least as many peers agree as disagree | `Trusted` |
//! | never trusted, and more peers disagree | `Suspect`: outvoted |
//!
//! Only trusted peers confirm a step: nodes that follow one wrong time server jump together, and none of them is a
//! witness for another. A state that is better than the present one must last for [`CALM`]; a worse one counts at once,
//! `OutOfService` apart.
//!
//! While the clock is not trusted, the time is that of the *believed* offset: of the last moment of trust where there
//! was one, and of the peers where they outvote the node or it was never trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::admission::CLOCK_OFFSET_MAX;
use crate::node::HostId;

/// A sample that is older says nothing of now.
pub const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);
/// How long a better state must last before it counts.
pub const CALM: Duration = Duration::from_secs(5);
/// How long the peers must outvote a node beyond the second limit before it leaves service.
pub const OUT_AFTER: Duration = Duration::from_secs(5);
/// A wall clock farther from 1970 than this is not a time: some 30,000 years.
const OFFSET_US_MAX: i64 = 1 << 60;

/// How far a clock may be off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockLimits {
    /// Beyond it the clock is not trusted: nothing expires permanently and no tombstone is purged.
    pub suspect: Duration,
    /// Beyond it the node leaves service.
    pub out_of_service: Duration,
}

impl Default for ClockLimits {
    fn default() -> Self {
        Self {
            suspect: CLOCK_OFFSET_MAX,
            out_of_service: Duration::from_mins(1),
        }
    }
}

/// A peer's wall clock, as an answer brought it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockSample {
    /// The peer's wall clock less this node's steady clock in the middle of the round trip.
    pub offset_us: i64,
    /// Half the round trip: the truth is at most so far away.
    pub error_us: i64,
    /// The peer trusts its clock.
    pub is_trusted: bool,
    /// When it came, by the steady clock.
    pub taken_us: i64,
}

impl ClockSample {
    /// The sample of an answer; None when the peer's clock says no time.
    #[must_use]
    pub fn of_answer(asked_us: i64, answered_us: i64, peer_wall_us: i64, is_trusted: bool) -> Option<Self> {
        let error_us = (answered_us - asked_us).max(0) / 2;
        let offset_us = peer_wall_us.checked_sub(asked_us + error_us)?;
        (offset_us.abs() <= OFFSET_US_MAX).then_some(Self {
            offset_us,
            error_us,
            is_trusted,
            taken_us: answered_us,
        })
    }

    /// How far a node with this offset is ahead of the peer for certain; negative when the peer is ahead.
    fn ahead_us(&self, own_us: i64) -> i64 {
        let ahead = own_us.saturating_sub(self.offset_us);
        ahead.signum() * ahead.saturating_abs().saturating_sub(self.error_us).max(0)
    }
}

/// Why a clock is not trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockDoubt {
    /// No peer has been heard since the start.
    Unheard,
    /// It is not where it was when it was last trusted.
    Stepped,
    /// More peers disagree than agree.
    Outvoted,
}

/// What a node makes of its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockState {
    /// It is the time.
    Trusted,
    /// It is not: nothing is purged, and the believed offset gives the time.
    Suspect(ClockDoubt),
    /// As `Suspect`, and the node leaves service.
    OutOfService,
}

impl ClockState {
    /// Whether the clock is the time.
    #[must_use]
    pub fn is_trusted(self) -> bool {
        self == Self::Trusted
    }

    /// A larger one is worse.
    fn rank(self) -> u8 {
        match self {
            Self::Trusted => 0,
            Self::Suspect(_) => 1,
            Self::OutOfService => 2,
        }
    }
}

/// What follows from what is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockVerdict {
    /// The state.
    pub state: ClockState,
    /// How far the clock is ahead, in microseconds: of the cluster's median, or where only a step is seen, of where it
    /// was.
    pub ahead_us: i64,
    /// The offset by which the node computes the time.
    pub believed_us: i64,
}

/// Everything that a verdict is made of.
#[derive(Clone, Debug)]
struct Evidence<'s> {
    limits: ClockLimits,
    /// This node's wall clock less its steady clock.
    own_us: i64,
    /// What that was when the clock was last trusted in this run.
    trusted_us: Option<i64>,
    /// Fresh samples of the peers.
    samples: &'s [ClockSample],
    /// There are peers, heard or not.
    has_peers: bool,
}

fn is_beyond(us: i64, limit: Duration) -> bool {
    u128::from(us.unsigned_abs()) > limit.as_micros()
}

/// How far a node is ahead of the median of itself and its peers. Of two middle values and what is between them it is
/// the one nearest to 0.
fn ahead_of_median(own_us: i64, samples: &[ClockSample]) -> i64 {
    let mut votes: Vec<i64> = samples.iter().map(|s| s.ahead_us(own_us)).chain([0]).collect();
    votes.sort_unstable();
    let (low, high) = (votes[(votes.len() - 1) / 2], votes[votes.len() / 2]);
    0.clamp(low, high)
}

fn decide(evidence: &Evidence<'_>) -> ClockVerdict {
    let own_us = evidence.own_us;
    let is_off = |us: i64| is_beyond(us, evidence.limits.suspect);
    let ahead_us = ahead_of_median(own_us, evidence.samples);
    let verdict = |state, ahead_us, believed_us| ClockVerdict {
        state,
        ahead_us,
        believed_us,
    };
    if is_off(ahead_us) {
        let state = if is_beyond(ahead_us, evidence.limits.out_of_service) {
            ClockState::OutOfService
        } else {
            ClockState::Suspect(ClockDoubt::Outvoted)
        };
        return verdict(state, ahead_us, peers_offset(evidence));
    }
    let count = |counts: &dyn Fn(&ClockSample) -> bool| evidence.samples.iter().filter(|s| counts(s)).count();
    let disagrees = |s: &ClockSample| is_off(s.ahead_us(own_us));
    if let Some(trusted_us) = evidence.trusted_us {
        let step_us = own_us.saturating_sub(trusted_us);
        let confirming = count(&|s| s.is_trusted && !disagrees(s));
        if !is_off(step_us) || confirming > count(&|s| s.is_trusted && disagrees(s)) {
            return verdict(ClockState::Trusted, ahead_us, own_us);
        }
        return verdict(ClockState::Suspect(ClockDoubt::Stepped), step_us, trusted_us);
    }
    if !evidence.has_peers {
        return verdict(ClockState::Trusted, 0, own_us);
    }
    if evidence.samples.is_empty() {
        return verdict(ClockState::Suspect(ClockDoubt::Unheard), 0, own_us);
    }
    let disagreeing = count(&disagrees);
    let agreeing = evidence.samples.len() - disagreeing;
    if agreeing >= 1 && agreeing >= disagreeing {
        return verdict(ClockState::Trusted, ahead_us, own_us);
    }
    // A peer that was trusted before this node started knows better than a node that no peer has confirmed.
    let has_witness = count(&|s| s.is_trusted) > 0;
    let believed_us = if has_witness { peers_offset(evidence) } else { own_us };
    let ahead_us = own_us.saturating_sub(peers_offset(evidence));
    verdict(ClockState::Suspect(ClockDoubt::Outvoted), ahead_us, believed_us)
}

/// The median offset of the peers: of those that trust their clocks, or of all if none does.
fn peers_offset(evidence: &Evidence<'_>) -> i64 {
    let sorted = |only_trusted: bool| {
        let samples = evidence.samples.iter().filter(|s| s.is_trusted || !only_trusted);
        let mut offsets: Vec<i64> = samples.map(|s| s.offset_us).collect();
        offsets.sort_unstable();
        offsets
    };
    let offsets = Some(sorted(true)).filter(|o| !o.is_empty());
    let offsets = offsets.unwrap_or_else(|| sorted(false));
    // The lower of two: a time that is too early expires nothing.
    offsets
        .get((offsets.len().max(1) - 1) / 2)
        .copied()
        .unwrap_or(evidence.own_us)
}

/// A node's judgement of its own clock over time. See the module.
#[derive(Clone, Debug)]
pub struct ClockJudge {
    limits: ClockLimits,
    samples: BTreeMap<HostId, ClockSample>,
    trusted_us: Option<i64>,
    verdict: ClockVerdict,
    /// Since when a better state than the present one is seen.
    better_since_us: Option<i64>,
    /// Since when the peers outvote the node beyond the second limit.
    out_since_us: Option<i64>,
}

impl ClockJudge {
    /// A node that starts, with the offset of its clock: nothing is known yet.
    #[must_use]
    pub fn new(limits: ClockLimits, own_us: i64) -> Self {
        Self {
            limits,
            samples: BTreeMap::new(),
            trusted_us: None,
            verdict: ClockVerdict {
                state: ClockState::Suspect(ClockDoubt::Unheard),
                ahead_us: 0,
                believed_us: own_us,
            },
            better_since_us: None,
            out_since_us: None,
        }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> ClockLimits {
        self.limits
    }

    /// The last verdict.
    #[must_use]
    pub fn verdict(&self) -> ClockVerdict {
        self.verdict
    }

    /// Keeps samples of these peers only.
    pub fn set_peers(&mut self, peers: &BTreeSet<HostId>) {
        self.samples.retain(|host, _| peers.contains(host));
    }

    /// Takes the newest sample of a peer.
    pub fn note(&mut self, peer: HostId, sample: ClockSample) {
        self.samples.insert(peer, sample);
    }

    fn fresh(&self, steady_us: i64) -> Vec<ClockSample> {
        let age_max = i64::try_from(SAMPLE_AGE_MAX.as_micros()).expect("seconds");
        let fresh = self.samples.values().filter(|s| steady_us - s.taken_us <= age_max);
        fresh.copied().collect()
    }

    fn decide(&self, own_us: i64, steady_us: i64, has_peers: bool) -> ClockVerdict {
        decide(&Evidence {
            limits: self.limits,
            own_us,
            trusted_us: self.trusted_us,
            samples: &self.fresh(steady_us),
            has_peers,
        })
    }

    /// Judges the clock, whose offset is `own_us` at this moment of the steady clock. The former state is returned too.
    pub fn judge(&mut self, own_us: i64, steady_us: i64, has_peers: bool) -> (ClockState, ClockVerdict) {
        let before = self.verdict.state;
        let mut next = self.decide(own_us, steady_us, has_peers);
        let has_lasted = |since: &mut Option<i64>, limit: Duration| {
            let since = *since.get_or_insert(steady_us);
            steady_us - since >= i64::try_from(limit.as_micros()).expect("seconds")
        };
        if next.state == ClockState::OutOfService {
            let is_lasting = has_lasted(&mut self.out_since_us, OUT_AFTER);
            if before != ClockState::OutOfService && !is_lasting {
                next.state = ClockState::Suspect(ClockDoubt::Outvoted);
            }
        } else {
            self.out_since_us = None;
        }
        // The first trust of a run is no return.
        let is_return = next.state.rank() < before.rank() && self.trusted_us.is_some()
            || before == ClockState::OutOfService && next.state != before;
        if !is_return {
            self.better_since_us = None;
        } else if !has_lasted(&mut self.better_since_us, CALM) {
            let believed_us = if next.state.is_trusted() {
                self.verdict.believed_us
            } else {
                next.believed_us
            };
            next = ClockVerdict {
                state: before,
                believed_us,
                ..next
            };
        }
        if next.state.is_trusted() {
            self.trusted_us = Some(own_us);
        }
        self.verdict = next;
        (before, next)
    }

    /// An operator's word that the clock is right: a step counts as confirmed.
    ///
    /// # Errors
    /// How far the clock is ahead of the median, in microseconds, when the peers outvote the node: then the clock is
    /// wrong, or all of theirs are.
    pub fn confirm(&mut self, own_us: i64, steady_us: i64) -> Result<(), i64> {
        let ahead_us = ahead_of_median(own_us, &self.fresh(steady_us));
        if is_beyond(ahead_us, self.limits.suspect) {
            return Err(ahead_us);
        }
        self.trusted_us = Some(own_us);
        self.better_since_us = None;
        self.verdict = ClockVerdict {
            state: ClockState::Trusted,
            ahead_us: 0,
            believed_us: own_us,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
