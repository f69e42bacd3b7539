//! The errors of reads that too few replicas have answered.

use topology::{Acks, Replica};

use super::ReplicatedRead;
use crate::{CoordinatorError, Tally, TargetError};

impl ReplicatedRead {
    fn tally(&self, acks: &Acks) -> Tally {
        Tally {
            consistency: self.level,
            received: acks.received(),
            block_for: self.requirement.block_for(),
        }
    }

    pub(super) fn read_timeout(&self, acks: &Acks, data_present: bool, missing: &[Replica]) -> CoordinatorError {
        CoordinatorError::ReadTimeout {
            tally: self.tally(acks),
            data_present,
            missing: self.view.names(missing.iter().copied()),
        }
    }

    /// The error of a read that too few replicas could do: a timeout when some of them were only silent; unavailable
    /// when those that failed could not be reached, as it is when that is known before.
    pub(super) fn read_failure(
        &self,
        acks: &Acks,
        data_present: bool,
        failures: &[(Replica, TargetError)],
        outstanding: &[Replica],
    ) -> CoordinatorError {
        let is_silent = |e: &TargetError| *e == TargetError::Silent;
        let failed = failures.iter().filter(|(_, e)| !is_silent(e));
        let is_unreachable = |e: &TargetError| matches!(e, TargetError::Unreachable(_));
        if failed.clone().all(|(_, e)| is_unreachable(e)) {
            let is_reached = |replica: &&Replica| !failed.clone().any(|(other, _)| other == *replica);
            let reached = self.targets.live().iter().filter(is_reached);
            let reached = self.requirement.count(reached.copied(), &self.view.locality);
            if let Err(unavailable) = self.requirement.is_sufficient(&reached) {
                self.reads.context.count(|m| m.unavailable += 1);
                return unavailable.into();
            }
            // The others were enough, and did not answer.
            let silent = failures
                .iter()
                .filter(|(_, e)| is_silent(e))
                .map(|(replica, _)| *replica);
            let silent: Vec<Replica> = silent.chain(outstanding.iter().copied()).collect();
            return self.read_timeout(acks, data_present, &silent);
        }
        let reasons: Vec<String> = failed
            .clone()
            .map(|(replica, e)| {
                let name = self.view.names(std::iter::once(*replica));
                e.about(&name)
            })
            .collect();
        CoordinatorError::ReadFailure {
            tally: self.tally(acks),
            data_present,
            failures: failed.map(|(r, e)| (self.view.address(r.node), e.code())).collect(),
            reason: reasons.join("; "),
        }
    }
}
