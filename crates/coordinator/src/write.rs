//! Writes: to all replicas at once, acknowledged when as many have them as the consistency level wants.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::Mutation;
use smallvec::SmallVec;
use topology::{Acks, Consistency, DatacenterNumber, Replica, ReplicaCounts, Requirement, WriteTargets};
use types::Token;

use crate::gather::Gather;
use crate::{ClusterView, Coordinator, CoordinatorError, Tally, TargetError, WriteKind, spawn};

/// The mutations that one replica gets, and which of the request's they are.
#[derive(Default)]
struct Share {
    mutations: Vec<(Token, Vec<u8>)>,
    numbers: SmallVec<[u32; 2]>,
}

/// One partition's write.
struct Part {
    acks: Acks,
    replicas: SmallVec<[Replica; 6]>,
    /// A hint is stored for one of its replicas.
    is_hinted: bool,
}

impl Part {
    /// Whether it may be acknowledged: at ANY a stored hint is enough.
    fn is_satisfied(&self) -> bool {
        self.acks.is_satisfied() || self.is_hinted && self.acks.requirement().hint_suffices()
    }

    /// A replica has it. Whether that satisfies it.
    fn ack(&mut self, datacenter: DatacenterNumber) -> bool {
        let before = self.is_satisfied();
        self.acks.ack(datacenter);
        !before && self.is_satisfied()
    }

    /// A hint is stored. Whether that satisfies it.
    fn hinted(&mut self) -> bool {
        let before = self.is_satisfied();
        self.is_hinted = true;
        !before && self.is_satisfied()
    }
}

/// What came of the part that one replica had.
struct Outcome {
    replica: Replica,
    numbers: SmallVec<[u32; 2]>,
    result: Result<(), TargetError>,
    is_hinted: bool,
}

/// How long a write at ANY waits for the hints of replicas that did not answer in time.
const HINT_WAIT: Duration = Duration::from_millis(100);

impl Coordinator {
    /// Writes packed mutations with their tokens and waits until the level is met for each. `all_or_nothing` holds for each replica.
    ///
    /// # Errors
    /// When too few replicas live, answer, or can write.
    pub async fn write(
        self: &Rc<Self>,
        mutations: Vec<(Token, Vec<u8>)>,
        level: Consistency,
        kind: WriteKind,
        all_or_nothing: bool,
    ) -> Result<(), CoordinatorError> {
        self.count(|m| m.writes += 1);
        let view = self.view();
        let mut parts: Vec<Part> = Vec::with_capacity(mutations.len());
        let mut shares: BTreeMap<Replica, Share> = BTreeMap::new();
        for (number, (token, bytes)) in (0..).zip(mutations) {
            let part = self.part(&view, token, &bytes, level)?;
            for replica in &part.replicas {
                let share = shares.entry(*replica).or_default();
                share.mutations.push((token, bytes.clone()));
                share.numbers.push(number);
            }
            parts.push(part);
        }
        // Sent to all that live; the others would only be waited for.
        let gather: Rc<Gather<Outcome>> = Gather::new();
        let mut asked = Vec::with_capacity(shares.len());
        for (replica, share) in shares {
            if !self.is_live(replica.node) {
                if self.missed(&view, replica, &share.mutations, level == Consistency::Any) {
                    for number in share.numbers {
                        parts[number as usize].hinted();
                    }
                }
                continue;
            }
            asked.push(replica);
            self.send(&view, replica, share, (level, all_or_nothing), &gather);
        }
        self.await_acks(&view, parts, &gather, asked, (level, kind)).await
    }

    /// Whether enough replicas live to write these at a level.
    ///
    /// # Errors
    /// When too few do.
    pub fn require(&self, mutations: &[(Token, Vec<u8>)], level: Consistency) -> Result<(), CoordinatorError> {
        let view = self.view();
        let mut parts = mutations
            .iter()
            .map(|(token, bytes)| self.part(&view, *token, bytes, level));
        parts.try_for_each(|part| part.map(drop))
    }

    /// Where one mutation goes, if enough of it lives.
    fn part(
        &self,
        view: &Arc<ClusterView>,
        token: Token,
        bytes: &[u8],
        level: Consistency,
    ) -> Result<Part, CoordinatorError> {
        let unknown = || CoordinatorError::Internal("a write to a table that is not in the cluster's map".to_owned());
        let table = Mutation::new(bytes).ok_or_else(unknown)?.table;
        let route = view.route(table).ok_or_else(unknown)?;
        let tablet = route.map.tablet_of(token);
        let targets = WriteTargets::new(&tablet);
        let pending = ReplicaCounts::of(&targets.pending, &view.locality, |_| true);
        let requirement =
            Requirement::of(level, &route.factors, view.locality.local_datacenter()).with_pending(&pending);
        let replicas: SmallVec<[Replica; 6]> = targets.all().collect();
        let live = ReplicaCounts::of(&replicas, &view.locality, |r| self.is_live(r.node));
        requirement
            .is_sufficient(&live)
            .inspect_err(|_| self.count(|m| m.unavailable += 1))?;
        Ok(Part {
            acks: Acks::new(requirement, live),
            replicas,
            is_hinted: false,
        })
    }

    fn send(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        replica: Replica,
        share: Share,
        (level, all_or_nothing): (Consistency, bool),
        gather: &Rc<Gather<Outcome>>,
    ) {
        let (coordinator, view, gather) = (Rc::clone(self), Arc::clone(view), Rc::clone(gather));
        spawn(async move {
            let Share { mutations, numbers } = share;
            let mutations = Rc::new(mutations);
            let result = coordinator
                .mutate(&view, replica, Rc::clone(&mutations), all_or_nothing)
                .await;
            let is_hinted = result.is_err()
                && replica.node != view.me
                && coordinator.missed(&view, replica, &mutations, level == Consistency::Any);
            gather.put(Outcome {
                replica,
                numbers,
                result,
                is_hinted,
            });
        });
    }

    async fn await_acks(
        &self,
        view: &ClusterView,
        mut parts: Vec<Part>,
        gather: &Gather<Outcome>,
        asked: Vec<Replica>,
        (level, kind): (Consistency, WriteKind),
    ) -> Result<(), CoordinatorError> {
        let mut deadline = runtime::now() + self.timeouts.get().write;
        if level == Consistency::Any {
            deadline = deadline + HINT_WAIT;
        }
        let mut unsatisfied = parts.iter().filter(|part| !part.is_satisfied()).count();
        let mut outstanding = asked.len();
        // Those of whom nobody knows whether they have it.
        let mut silent = asked;
        let mut failures: Vec<(Replica, TargetError)> = Vec::new();
        while unsatisfied > 0 {
            let next = if outstanding == 0 {
                None
            } else {
                gather.next(deadline).await
            };
            let Some(outcome) = next else {
                return Err(self.write_timeout(view, &parts, &silent, level, kind));
            };
            let Outcome {
                replica,
                numbers,
                result,
                is_hinted,
            } = outcome;
            outstanding -= 1;
            if is_hinted {
                for number in &numbers {
                    unsatisfied -= usize::from(parts[*number as usize].hinted());
                }
            }
            let datacenter = view.locality.datacenter(replica.node);
            match result {
                Ok(()) => {
                    silent.retain(|other| *other != replica);
                    for number in numbers {
                        unsatisfied -= usize::from(parts[number as usize].ack(datacenter));
                    }
                }
                Err(TargetError::Silent) => {}
                Err(error) => {
                    silent.retain(|other| *other != replica);
                    failures.push((replica, error));
                    for number in numbers {
                        let part = &mut parts[number as usize];
                        if part.acks.fail(datacenter) && !part.is_satisfied() {
                            return Err(write_failure(view, part, &failures, level, kind));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn write_timeout(
        &self,
        view: &ClusterView,
        parts: &[Part],
        silent: &[Replica],
        level: Consistency,
        kind: WriteKind,
    ) -> CoordinatorError {
        self.count(|m| m.timeouts += 1);
        let part = parts.iter().find(|part| !part.is_satisfied()).unwrap_or(&parts[0]);
        CoordinatorError::WriteTimeout {
            tally: tally(part, level),
            kind,
            missing: Self::names(view, silent.iter().copied()),
        }
    }
}

fn tally(part: &Part, consistency: Consistency) -> Tally {
    Tally {
        consistency,
        received: part.acks.received(),
        block_for: part.acks.requirement().block_for(),
    }
}

fn write_failure(
    view: &ClusterView,
    part: &Part,
    failures: &[(Replica, TargetError)],
    level: Consistency,
    kind: WriteKind,
) -> CoordinatorError {
    let all_refused = failures.iter().all(|(_, e)| matches!(e, TargetError::Refused(_)));
    let reasons: Vec<String> = failures
        .iter()
        .map(|(replica, e)| {
            let name = Coordinator::names(view, std::iter::once(*replica));
            match e {
                TargetError::Silent => format!("{name} did not answer"),
                TargetError::Refused(reason) | TargetError::Failed(reason) => format!("{name}: {reason}"),
            }
        })
        .collect();
    let reason = reasons.join("; ");
    if all_refused && part.acks.received() == 0 && reason.contains("refuses the write") {
        return CoordinatorError::Overloaded(reason);
    }
    CoordinatorError::WriteFailure {
        tally: tally(part, level),
        kind,
        failures: failures
            .iter()
            .map(|(r, e)| (Coordinator::address(view, r.node), e.code()))
            .collect(),
        reason,
    }
}
