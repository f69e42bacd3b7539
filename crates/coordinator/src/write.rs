//! Writes: to all replicas at once, acknowledged when as many have them as the consistency level wants.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use mutation::Mutation;
use runtime::{Instant, ShardId};
use smallvec::{SmallVec, smallvec};
use stdx::planted::{self, Bug};
use stdx::probe::Answered;
use topology::{Acks, Consistency, DatacenterNumber, Replica, ReplicaCounts, Requirement, WriteTargets};
use types::Token;

use crate::fan::Fan;
use crate::fence::Stamp;
use crate::message::{Addressed, encode_mutations};
use crate::service::AtOnce;
use crate::tombstones::UnderWay;
use crate::{ClusterView, Coordinator, CoordinatorError, Tally, TargetError, Verb, WriteKind, service, spawn};

/// Which of the request's mutations one replica gets.
type Numbers = SmallVec<[u32; 2]>;

/// One partition's write.
struct Part {
    acks: Acks,
    /// Those that the acks are of.
    answered: Answered<Replica>,
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
    fn ack(&mut self, replica: Replica, datacenter: DatacenterNumber) -> bool {
        let before = self.is_satisfied();
        self.acks.ack(datacenter);
        self.answered.add(replica);
        if planted::is_planted(Bug::CountedTwice) {
            self.acks.ack(datacenter);
        }
        !before && self.is_satisfied()
    }

    /// A hint is stored. Whether that satisfies it.
    fn hinted(&mut self) -> bool {
        let before = self.is_satisfied();
        self.is_hinted = true;
        !before && self.is_satisfied()
    }
}

/// A write on its way.
struct Write {
    coordinator: Rc<Coordinator>,
    view: Arc<ClusterView>,
    mutations: Rc<Vec<Addressed>>,
    level: Consistency,
    parts: Vec<Part>,
    /// How many of the parts are not satisfied.
    unsatisfied: usize,
    /// Who is sent what.
    shares: SmallVec<[(Replica, Numbers); 4]>,
    fan: Fan<()>,
    /// Of the only mutation, where there is one.
    stamp: Option<Stamp>,
    /// A replica takes no requests of this view.
    is_stale: bool,
    /// A replica did its part, or may have.
    is_begun: bool,
    /// Replicas that had no room. They get hints unless the request is answered as not done anywhere.
    overloaded: SmallVec<[Replica; 2]>,
    /// Replicas that will never take their share. They get hints if others may have taken theirs: a replica whose schema is behind takes it later.
    rejected: SmallVec<[Replica; 2]>,
    /// Replicas that have neither their share nor hints of it.
    without: SmallVec<[Replica; 2]>,
    /// When the write was made, if that is not now; microseconds.
    made_us: Option<i64>,
}

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
        self.write_from(self.view(), mutations, level, kind, all_or_nothing)
            .await
    }

    /// The same, for mutations that were made of what the table had in this view: a truncation since then makes them stale.
    ///
    /// # Errors
    /// As [`Coordinator::write`].
    pub(crate) async fn write_from(
        self: &Rc<Self>,
        mut view: Arc<ClusterView>,
        mutations: Vec<(Token, Vec<u8>)>,
        level: Consistency,
        kind: WriteKind,
        all_or_nothing: bool,
    ) -> Result<(), CoordinatorError> {
        self.count(|m| m.writes += 1);
        let mut mutations = Rc::new(mutations);
        let deadline = runtime::now() + self.timeouts.get().write;
        let mut refused = None;
        loop {
            let mut write = match (self.begin(&view, &mutations, level), refused) {
                (Ok(write), _) => write,
                // That too few live says that nothing was written, and some of it may be.
                (Err(_), Some(refused)) => return Err(refused),
                (Err(error), None) => return Err(error),
            };
            write.send(all_or_nothing);
            let result = write.acknowledged(deadline, kind).await;
            let is_stale = write.is_stale;
            let may_be_done = kind == WriteKind::Counter || write.may_be_done();
            write.go_on(deadline);
            let error = match result {
                Err(error) if is_stale => error,
                result => return result,
            };
            let Some(newer) = self.newer_view(&view, deadline).await else {
                return Err(error);
            };
            // What a replica has before a truncation the truncation takes, on the others too: that is done, and may not be done again behind it, because
            // somebody may have seen it.
            let is_truncated = |bytes: &[u8]| {
                let table = Mutation::new(bytes).map(|m| m.table);
                table.is_some_and(|table| newer.truncated_at(table) > view.truncated_at(table))
            };
            if may_be_done && mutations.iter().any(|(_, bytes)| is_truncated(bytes)) {
                Rc::make_mut(&mut mutations).retain(|(_, bytes)| !is_truncated(bytes));
                if mutations.is_empty() {
                    return Ok(());
                }
            }
            (view, refused) = (newer, Some(error));
        }
    }

    fn begin(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        mutations: &Rc<Vec<Addressed>>,
        level: Consistency,
    ) -> Result<Write, CoordinatorError> {
        let mut parts: Vec<Part> = Vec::with_capacity(mutations.len());
        for (token, bytes) in &**mutations {
            parts.push(self.part(view, *token, bytes, level)?);
        }
        Ok(Write {
            coordinator: Rc::clone(self),
            view: Arc::clone(view),
            mutations: Rc::clone(mutations),
            level,
            unsatisfied: parts.iter().filter(|part| !part.is_satisfied()).count(),
            shares: shares(&parts),
            parts,
            fan: Fan::new(),
            stamp: match &mutations[..] {
                [(_, only)] => Some(Stamp::of_mutations(view, std::iter::once(&only[..]))),
                _ => None,
            },
            is_stale: false,
            is_begun: false,
            overloaded: SmallVec::new(),
            rejected: SmallVec::new(),
            without: SmallVec::new(),
            made_us: None,
        })
    }

    /// Writes mutations that were made at `made_us` to every replica, and where one does not take them keeps hints for it, durably. Afterwards all
    /// replicas have them or will, though no level may be met.
    ///
    /// # Errors
    /// When a replica has neither. Others may have the mutations then.
    pub(crate) async fn write_or_hint(
        self: &Rc<Self>,
        mutations: Vec<(Token, Vec<u8>)>,
        made_us: i64,
    ) -> Result<(), String> {
        let view = self.view();
        let deadline = runtime::now() + self.timeouts.get().write;
        let begun = self.begin(&view, &Rc::new(mutations), Consistency::Any);
        let mut write = begun.map_err(|e| e.to_string())?;
        write.made_us = Some(made_us);
        write.send(true);
        while let Some((replica, result)) = write.fan.next(deadline).await {
            match result {
                Ok(_) => write.is_begun = true,
                Err(error) => write.failed(replica, &error),
            }
        }
        for replica in write.silent() {
            write.failed(replica, &TargetError::Silent);
        }
        write.hint_rejected();
        if !write.without.is_empty() {
            let names = Self::names(&view, write.without.iter().copied());
            return Err(format!("no hints can be kept for {names}"));
        }
        match self.hints() {
            Some(hints) => hints.sync(None).await.map_err(|e| e.to_string()),
            None => Ok(()),
        }
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
        let live = ReplicaCounts::of(&replicas, &view.locality, |r| self.takes_writes(r.node));
        requirement
            .is_sufficient(&live)
            .inspect_err(|_| self.count(|m| m.unavailable += 1))?;
        Ok(Part {
            acks: Acks::new(requirement, live),
            answered: Answered::default(),
            replicas,
            is_hinted: false,
        })
    }
}

/// Who is sent which mutations.
fn shares(parts: &[Part]) -> SmallVec<[(Replica, Numbers); 4]> {
    if let [part] = parts {
        return part.replicas.iter().map(|replica| (*replica, smallvec![0])).collect();
    }
    let mut shares: BTreeMap<Replica, Numbers> = BTreeMap::new();
    for (number, part) in (0..).zip(parts) {
        for replica in &part.replicas {
            shares.entry(*replica).or_default().push(number);
        }
    }
    shares.into_iter().collect()
}

/// Those of the mutations that have these numbers.
fn numbered<'m>(mutations: &'m [Addressed], numbers: &[u32]) -> impl Iterator<Item = &'m Addressed> + Clone {
    numbers.iter().map(|number| &mutations[*number as usize])
}

impl Write {
    /// Sends it to all that live and take writes; the others would only be waited for.
    fn send(&mut self, all_or_nothing: bool) {
        let coordinator = Rc::clone(&self.coordinator);
        let view = Arc::clone(&self.view);
        let timeout = coordinator.timeouts.get().write;
        for at in 0..self.shares.len() {
            let replica = self.shares[at].0;
            if !coordinator.takes_writes(replica.node) {
                self.missed(replica);
                continue;
            }
            let numbers = &self.shares[at].1;
            let share = numbered(&self.mutations, numbers).map(|(_, bytes)| &bytes[..]);
            let stamp = self.stamp.unwrap_or_else(|| Stamp::of_mutations(&view, share.clone()));
            if replica.node != view.me {
                let mut body = encode_mutations(all_or_nothing, share);
                stamp.sign(&mut body);
                self.fan
                    .call((&coordinator, &view), replica, Verb::Mutate, body, timeout);
            } else if ShardId(u32::from(replica.shard)) == coordinator.shard.id() {
                if let &[only] = &numbers[..] {
                    let (token, bytes) = &self.mutations[only as usize];
                    match service::apply_at_once(&coordinator.shard, *token, bytes, false, stamp) {
                        Ok(AtOnce::Wait) => {}
                        Ok(AtOnce::Written(position)) => {
                            let shard = coordinator.shard.clone();
                            self.fan
                                .here(replica, async move { service::durable(&shard, position).await });
                            continue;
                        }
                        Ok(AtOnce::Done) => {
                            self.fan.known(replica, Ok(()));
                            continue;
                        }
                        Err(error) => {
                            self.fan.known(replica, Err(error));
                            continue;
                        }
                    }
                }
                let (shard, mutations, numbers) = (coordinator.shard.clone(), self.mutations.clone(), numbers.clone());
                let applied = async move {
                    let share: SmallVec<[(Token, &[u8]); 2]> = numbered(&mutations, &numbers)
                        .map(|(token, bytes)| (*token, &bytes[..]))
                        .collect();
                    service::apply(&shard, &share, all_or_nothing, false, stamp).await
                };
                self.fan.here(replica, applied);
            } else {
                let share: Vec<Addressed> = numbered(&self.mutations, numbers).cloned().collect();
                let applied = move |there: Rc<Coordinator>| async move {
                    service::apply(&there.shard, &share, all_or_nothing, false, stamp).await
                };
                self.fan.beside(replica, applied);
            }
        }
    }

    /// A replica did not get its share: a hint is stored for it, where there can be one. At ANY that is as good.
    fn missed(&mut self, replica: Replica) {
        if replica.node == self.view.me {
            self.without.push(replica);
            return;
        }
        let Some((_, numbers)) = self.shares.iter().find(|(other, _)| *other == replica) else {
            return;
        };
        let mutations = numbered(&self.mutations, numbers);
        let is_acknowledgement = self.level == Consistency::Any;
        let made_us = self.made_us.unwrap_or_else(runtime::wall_clock_us);
        let is_noted = self
            .coordinator
            .missed(&self.view, replica, mutations, made_us, is_acknowledgement);
        if !is_noted {
            self.without.push(replica);
        } else {
            for number in numbers {
                self.unsatisfied -= usize::from(self.parts[*number as usize].hinted());
            }
        }
    }

    fn silent(&self) -> SmallVec<[Replica; 4]> {
        self.fan.silent().collect()
    }

    /// Waits until the level is met for each part.
    async fn acknowledged(&mut self, deadline: Instant, kind: WriteKind) -> Result<(), CoordinatorError> {
        let mut failures: Vec<(Replica, TargetError)> = Vec::new();
        // Of whom nobody knows whether they have it, besides those that have not answered.
        let mut unknown: Vec<Replica> = Vec::new();
        while self.unsatisfied > 0 {
            let Some((replica, result)) = self.fan.next(deadline).await else {
                let silent = self.silent();
                if self.level == Consistency::Any {
                    silent.iter().for_each(|replica| self.missed(*replica));
                    if self.unsatisfied == 0 {
                        self.fan = Fan::new();
                        return Ok(());
                    }
                }
                return Err(self.timeout(unknown.into_iter().chain(silent), kind));
            };
            let datacenter = self.view.locality.datacenter(replica.node);
            let Err(error) = result else {
                self.is_begun = true;
                let share = self.shares.iter().find(|(other, _)| *other == replica);
                for number in share.into_iter().flat_map(|(_, numbers)| numbers) {
                    self.unsatisfied -= usize::from(self.parts[*number as usize].ack(replica, datacenter));
                }
                continue;
            };
            self.failed(replica, &error);
            self.is_stale |= matches!(error, TargetError::Stale(_));
            if error == TargetError::Silent {
                unknown.push(replica);
                continue;
            }
            failures.push((replica, error));
            let share = self.shares.iter().find(|(other, _)| *other == replica);
            for number in share.into_iter().flat_map(|(_, numbers)| numbers) {
                let part = &mut self.parts[*number as usize];
                if part.acks.fail(datacenter) && !part.is_satisfied() {
                    let is_known = self.fan.outstanding() == 0 && unknown.is_empty();
                    let did_nothing = is_known && self.parts.iter().all(|part| part.acks.received() == 0);
                    let part = &self.parts[*number as usize];
                    let error = write_failure(&self.view, part, &failures, did_nothing, self.level, kind);
                    // A counter's leader has made its addition; the others must learn of it.
                    if kind != WriteKind::Counter && matches!(error, CoordinatorError::Overloaded(_)) {
                        self.overloaded.clear();
                    }
                    return Err(error);
                }
            }
        }
        for part in &self.parts {
            self.coordinator
                .tell_answered(&self.view, "write", self.level, &part.answered);
        }
        Ok(())
    }

    /// Whether a replica did its part, or may still.
    fn may_be_done(&self) -> bool {
        self.is_begun || self.fan.outstanding() > 0
    }

    /// A replica did not do its share. It gets a hint; for what it refuses for good, or had no room for, later.
    fn failed(&mut self, replica: Replica, error: &TargetError) {
        self.is_begun |= matches!(error, TargetError::Silent | TargetError::Failed(_));
        match error {
            TargetError::Rejected(_) => self.rejected.push(replica),
            TargetError::Overloaded(_) if self.level != Consistency::Any => self.overloaded.push(replica),
            _ => self.missed(replica),
        }
    }

    /// What every replica refuses is written nowhere, and needs no hint. What some have taken the others must get, or be seen to refuse it still
    /// when hints are handed over.
    fn hint_rejected(&mut self) {
        if self.is_begun {
            for replica in std::mem::take(&mut self.rejected) {
                self.missed(replica);
            }
        }
    }

    /// Goes on without the request, for the replicas that it did not wait for.
    fn go_on(mut self, deadline: Instant) {
        for replica in std::mem::take(&mut self.overloaded) {
            self.missed(replica);
        }
        if self.fan.outstanding() == 0 {
            self.hint_rejected();
            return;
        }
        let under_way = UnderWay::new(&self.coordinator);
        spawn(async move {
            let _under_way = under_way;
            while let Some((replica, result)) = self.fan.next(deadline).await {
                match result {
                    Ok(_) => self.is_begun = true,
                    Err(error @ TargetError::Rejected(_)) => self.failed(replica, &error),
                    Err(error) => {
                        self.is_begun |= matches!(error, TargetError::Silent | TargetError::Failed(_));
                        self.missed(replica);
                    }
                }
            }
            for replica in self.silent() {
                self.is_begun = true;
                self.missed(replica);
            }
            self.hint_rejected();
        });
    }

    fn timeout(&self, missing: impl Iterator<Item = Replica>, kind: WriteKind) -> CoordinatorError {
        self.coordinator.count(|m| m.timeouts += 1);
        let part = self.parts.iter().find(|part| !part.is_satisfied());
        CoordinatorError::WriteTimeout {
            tally: tally(part.unwrap_or(&self.parts[0]), self.level),
            kind,
            missing: Coordinator::names(&self.view, missing),
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
    did_nothing: bool,
    level: Consistency,
    kind: WriteKind,
) -> CoordinatorError {
    let reasons: Vec<String> = failures
        .iter()
        .map(|(replica, e)| e.about(&Coordinator::names(view, std::iter::once(*replica))))
        .collect();
    let reason = reasons.join("; ");
    if did_nothing {
        let all = |is: fn(&TargetError) -> bool| failures.iter().all(|(_, e)| is(e));
        if all(|e| matches!(e, TargetError::Overloaded(_))) {
            return CoordinatorError::Overloaded(reason);
        }
        if all(|e| matches!(e, TargetError::Rejected(_))) {
            return CoordinatorError::Rejected(reason);
        }
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
