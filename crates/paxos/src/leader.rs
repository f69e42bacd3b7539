//! One statement from its first ballot to its end.

use crate::{Ballot, Fate, Proposal, Round, Standing};

/// What a leader does with a round in which a quorum has promised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<R> {
    /// A proposal of another leader: have it accepted and learned by a quorum, then begin a new round.
    Finish(Proposal),
    /// Make these replicas learn it, report that to the round, and ask again.
    Teach(Proposal, Vec<R>),
    /// Read and decide. If there is something to propose, continue with [`Leader::propose`].
    Decide,
    /// The leader's own: have it accepted. When a quorum has, it is chosen.
    Propose(Proposal),
    /// The leader's own proposal was chosen in an earlier round, and a quorum has learned it.
    Chosen,
    /// Whether it was chosen cannot be found out any more.
    Unknown,
}

/// What a leader remembers of its statement from one round to the next.
#[derive(Clone, Default, Debug)]
pub struct Leader {
    /// What was perhaps accepted by some, and the origin of the proposal chosen before it was decided.
    pending: Option<(Proposal, Option<Ballot>)>,
    /// The proposal that was chosen last, as of the round under way.
    last: Option<Proposal>,
}

impl Leader {
    /// What comes next, in a round in which a quorum has promised. Proposals decided before `oldest_us` are too old to
    /// take effect, and are neither finished nor taught: the deletions that would hide what they write may be purged
    /// already. A statement may last long, so that moment is another one in each round.
    pub fn next<R: Copy + PartialEq>(&mut self, round: &Round<R>, oldest_us: i64) -> Step<R> {
        let ballot = round.ballot();
        match round.standing(oldest_us) {
            Standing::Unfinished(proposal) => match &self.pending {
                Some((mine, _)) if mine.origin == proposal.origin => Step::Propose(proposal.at(ballot)),
                _ => Step::Finish(proposal.at(ballot)),
            },
            Standing::Unlearned(proposal, missing) => Step::Teach(proposal, missing),
            Standing::Clear(last) => {
                self.last = last;
                let Some((mine, before)) = &self.pending else {
                    return Step::Decide;
                };
                match Fate::of(mine.origin, *before, self.last.as_ref()) {
                    Fate::Chosen => Step::Chosen,
                    Fate::Open => Step::Propose(mine.at(ballot)),
                    Fate::Unknown => Step::Unknown,
                    Fate::Overtaken => {
                        self.pending = None;
                        Step::Decide
                    }
                }
            }
        }
    }

    /// What was decided in this round, as a proposal. From here on the statement may take effect.
    pub fn propose(&mut self, ballot: Ballot, value: &[u8]) -> Proposal {
        let proposal = Proposal::new(ballot, self.last.as_ref(), value);
        let before = self.last.as_ref().map(|last| last.origin);
        self.pending = Some((proposal.clone(), before));
        proposal
    }

    /// Whether the statement may take effect though its leader stops here.
    #[must_use]
    pub fn may_happen(&self) -> bool {
        self.pending.is_some()
    }
}
