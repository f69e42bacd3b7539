//! What clients did and saw, and whether a cluster may have shown it to them.
//!
//! The model. A *register* is one value that a table holds under one key. Every write has a timestamp of its own, which
//! is also the value that it sets, so a value that is read names its write. Of two writes the one with the larger
//! timestamp wins. What a level promises is the [`Least`] number of replicas that have it, in all and in each
//! datacenter. For each register and each such promise, a *floor* is the largest timestamp of which it is known that so
//! many replicas at least have it or a later one: because a write was acknowledged at that level, or because a read at
//! that level has returned it.
//!
//! A read at a level meets every write whose replicas cannot all be others than those it asks. So what it returns is
//! never below the floors of the promises that it overlaps with, as they were when it was sent. It may be above: a
//! write that is under way, or whose outcome is unknown, is seen or not, but once seen by enough it stays. What a read
//! returns was written by a client; nothing that a coordinator refused to begin (`Unavailable`) is ever seen; that
//! nothing is there means that a deletion is the latest, or a value whose time has ended.

use std::collections::BTreeMap;

/// Most datacenters.
pub const DATACENTERS: usize = 3;

/// The value of a register that is there or not, such as an element of a set: it does not name its write.
pub const PRESENT: i32 = -1;

/// A table's number, a partition key, a clustering key.
pub type Key = (u8, i32, i32);

/// How many replicas must have done it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant is the consistency level of that name")]
pub enum Level {
    One,
    Quorum,
    All,
    LocalQuorum,
    EachQuorum,
    LocalOne,
    Serial,
}

impl Level {
    /// The level of a number in the protocol; LOCAL_SERIAL asks as many as LOCAL_QUORUM.
    #[must_use]
    pub fn of_code(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::One,
            4 => Self::Quorum,
            8 => Self::Serial,
            5 => Self::All,
            6 | 9 => Self::LocalQuorum,
            7 => Self::EachQuorum,
            10 => Self::LocalOne,
            _ => return None,
        })
    }

    /// Its number in the protocol.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::One => 1,
            Self::Quorum => 4,
            Self::All => 5,
            Self::LocalQuorum => 6,
            Self::EachQuorum => 7,
            Self::LocalOne => 10,
            Self::Serial => 8,
        }
    }
}

/// A level, and the datacenter of the node that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The level.
    pub level: Level,
    /// The datacenter's number.
    pub datacenter: usize,
}

/// Replicas of every key, by datacenter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copies(pub [usize; DATACENTERS]);

/// How many replicas have something at least, whichever they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Least {
    total: usize,
    by_datacenter: [usize; DATACENTERS],
}

impl Least {
    /// Whether so many in each datacenter are enough.
    #[must_use]
    pub fn is_met(&self, by_datacenter: &[usize; DATACENTERS]) -> bool {
        let pairs = self.by_datacenter.iter().zip(by_datacenter);
        by_datacenter.iter().sum::<usize>() >= self.total && pairs.into_iter().all(|(least, has)| has >= least)
    }
}

fn quorum(copies: usize) -> usize {
    if copies == 0 { 0 } else { copies / 2 + 1 }
}

impl Copies {
    fn total(self) -> usize {
        self.0.iter().sum()
    }

    /// What a level promises.
    #[must_use]
    pub fn least(self, asked: Asked) -> Least {
        let anywhere = |total| Least {
            total,
            by_datacenter: [0; DATACENTERS],
        };
        let there = |count| {
            let mut by_datacenter = [0; DATACENTERS];
            by_datacenter[asked.datacenter] = count;
            Least {
                total: count,
                by_datacenter,
            }
        };
        match asked.level {
            Level::One => anywhere(1),
            Level::Quorum | Level::Serial => anywhere(quorum(self.total())),
            Level::All => self.all(),
            Level::LocalOne => there(1),
            Level::LocalQuorum => there(quorum(self.0[asked.datacenter])),
            Level::EachQuorum => Least {
                total: self.0.map(quorum).iter().sum(),
                by_datacenter: self.0.map(quorum),
            },
        }
    }

    /// All replicas.
    #[must_use]
    pub fn all(self) -> Least {
        Least {
            total: self.total(),
            by_datacenter: self.0,
        }
    }

    /// Whether a promise outlives a replica that is lost permanently, or a copy less: what the next replicas copy keeps
    /// what a quorum has, of all replicas or of those of one datacenter ([`topology::fills`]).
    #[must_use]
    pub fn is_kept(self, least: &Least) -> bool {
        let is_quorum = |(copies, has): (&usize, &usize)| *has > 0 && *has >= quorum(*copies);
        least.total >= quorum(self.total()) || self.0.iter().zip(&least.by_datacenter).any(is_quorum)
    }

    /// Whether there is a replica in both, whichever they are. Both as small as they may be, and apart in each
    /// datacenter if that is possible, what each lacks to its total must fit into the replicas that are left.
    #[must_use]
    pub fn overlap(self, one: &Least, other: &Least) -> bool {
        let mut left = self.total();
        for datacenter in 0..DATACENTERS {
            let taken = one.by_datacenter[datacenter] + other.by_datacenter[datacenter];
            if taken > self.0[datacenter] {
                return true;
            }
            left -= taken;
        }
        let lacks = |least: &Least| least.total - least.by_datacenter.iter().sum::<usize>();
        lacks(one) + lacks(other) > left
    }
}

/// What a write does to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Its timestamp becomes the value.
    Set,
    /// There is no value any more. A replica has all of the deletion or nothing.
    Delete,
    /// There is no value any more in a range of rows. A read of some of them may repair these alone.
    DeleteRange,
    /// There is no value any more in a table whose replicas forget deletions at once: what the deletion removes may
    /// come back from a replica that has missed it.
    DeleteForgotten,
    /// Its timestamp becomes the value for some time.
    Expire {
        /// When it may be gone.
        from: u64,
        /// When it must be gone.
        until: u64,
    },
}

impl Effect {
    /// Whether it is a deletion.
    #[must_use]
    pub fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteRange | Self::DeleteForgotten)
    }

    /// Whether replicas keep it for as long as it hides something.
    fn is_kept(self) -> bool {
        self != Self::DeleteForgotten
    }
}

/// When a read was sent and answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// When it was sent.
    pub sent: u64,
    /// When it was answered.
    pub answered: u64,
    /// How often promises had been weakened when it was sent ([`History::weakened`]).
    pub weakened: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Under way, or the outcome is unknown.
    Unknown,
    Acknowledged(Asked),
    /// Not begun.
    Refused,
}

#[derive(Debug)]
struct Write {
    effect: Effect,
    fate: Fate,
    truncation: Truncation,
    /// When it was begun: how often promises had begun to be weak.
    weak: u64,
    story: String,
}

/// What a truncation of its table means for a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Truncation {
    /// There was none since.
    None,
    /// It was acknowledged before one began, which has ended: it is gone.
    Gone,
    /// It was begun before one ended: it is gone or not.
    InDoubt,
}

#[derive(Default)]
struct Register {
    writes: BTreeMap<i32, Write>,
    /// By what was promised of it.
    floors: BTreeMap<Least, i32>,
    /// What was acknowledged up to here and set a value was truncated since.
    truncated: Option<i32>,
}

impl Register {
    fn floor(&self, copies: Copies, least: &Least) -> i32 {
        let met = self
            .floors
            .iter()
            .filter(|(promised, _)| copies.overlap(promised, least));
        met.map(|(_, floor)| *floor).max().unwrap_or(0)
    }

    /// Whether a deletion that is at least as new as a floor may be forgotten, and what it deletes with it.
    fn may_be_forgotten(&self, floor: i32) -> bool {
        let mut newer = self.writes.range(floor..);
        newer.any(|(_, write)| !write.effect.is_kept() && write.fate != Fate::Refused)
    }

    fn promise(&mut self, least: Option<Least>, timestamp: i32) {
        let is_kept = self.writes.get(&timestamp).is_none_or(|write| write.effect.is_kept());
        if let Some(least) = least.filter(|_| is_kept) {
            self.raise(least, timestamp);
        }
    }

    fn raise(&mut self, least: Least, timestamp: i32) {
        let floor = self.floors.entry(least).or_default();
        *floor = timestamp.max(*floor);
    }

    /// `least` is what the read promises, if anything.
    fn check(&mut self, floor: i32, least: Option<Least>, span: Span, value: Option<i32>) -> Result<(), String> {
        if let Some(timestamp) = self.explain(floor, span, value)? {
            self.promise(least, timestamp);
        }
        Ok(())
    }

    /// The write that explains what a read has returned; None where no write has to.
    fn explain(&self, floor: i32, span: Span, value: Option<i32>) -> Result<Option<i32>, String> {
        let Some(value) = value else {
            // Whichever deletion it is, it is this one or a later one.
            let is_gone = |effect| match effect {
                Effect::Set => false,
                Effect::Delete | Effect::DeleteRange | Effect::DeleteForgotten => true,
                Effect::Expire { from, .. } => from <= span.answered,
            };
            let mut deletions = self.writes.range(floor..).filter(|(_, w)| is_gone(w.effect));
            let seen = deletions.find(|(_, w)| w.fate != Fate::Refused).map(|(t, _)| *t);
            return match seen {
                // Perhaps nothing has come there yet: a deletion in doubt need not be the reason.
                _ if floor == 0 => Ok(None),
                Some(timestamp) => Ok(Some(timestamp)),
                None if self.truncated.is_some_and(|t| floor <= t) => Ok(None),
                None => Err(format!("nothing is there, but {floor} was promised")),
            };
        };
        if value == PRESENT {
            // Whichever write it is, it is this one or a later one.
            let is_set = |write: &&Write| write.effect == Effect::Set && write.fate != Fate::Refused;
            let mut writes = self.writes.range(floor..);
            let seen = writes.find(|(_, write)| is_set(write)).map(|(t, _)| *t);
            return match seen {
                Some(timestamp) => Ok(Some(timestamp)),
                None => Err(format!(
                    "it is there, but {floor}, which deletes it, or a later one was promised"
                )),
            };
        }
        match self.writes.get(&value) {
            None => return Err(format!("{value} is there, which no client wrote")),
            Some(write) if write.effect.deletes() => {
                return Err(format!("{value} is there, which was the timestamp of a deletion"));
            }
            Some(write) if write.fate == Fate::Refused => {
                return Err(format!(
                    "{value} is there, although its coordinator said that it did not begin"
                ));
            }
            Some(write) => {
                if let Effect::Expire { until, .. } = write.effect
                    && until < span.sent
                {
                    return Err(format!("{value} is there, although its time has ended"));
                }
                if write.truncation == Truncation::Gone {
                    return Err(format!(
                        "{value} is there, which was acknowledged before a truncation that has ended"
                    ));
                }
                if matches!(write.fate, Fate::Acknowledged(_)) && self.truncated.is_some_and(|t| value <= t) {
                    return Err(format!("{value} is there, although the table was truncated since"));
                }
            }
        }
        if value < floor && !self.may_be_forgotten(floor) {
            return Err(format!("{value} is there, but {floor} or a later one was promised"));
        }
        Ok(Some(value))
    }

    /// Whether a read that returns what meets a condition may leave this register out: it may have no value, or one
    /// that does not meet it.
    fn may_be_left_out(&self, floor: i32, span: Span, meets: impl Fn(i32) -> bool) -> bool {
        let may_be = |value: Option<i32>| self.explain(floor, span, value).is_ok();
        may_be(None) || self.writes.keys().any(|value| !meets(*value) && may_be(Some(*value)))
    }
}

/// See the module.
pub struct History {
    copies: Copies,
    registers: BTreeMap<Key, Register>,
    last: i32,
    /// Timestamps that were drawn and will be used later, out of order.
    kept: Vec<i32>,
    truncations: Vec<UnderTraffic>,
    /// Operations under way that may cost what fewer than a quorum of replicas have.
    weak: usize,
    /// How often such an operation has begun or ended.
    weakened: u64,
    /// Replicas become others, or may still do so.
    moves: bool,
    /// What was acknowledged when the repair of everything was asked for.
    repaired: Option<Vec<(Key, i32)>>,
}

/// A truncation while others write.
struct UnderTraffic {
    table: u8,
    sent: u64,
    /// None while it is not known whether it has taken place.
    ended: Option<u64>,
    /// What was acknowledged before.
    before: Vec<(Key, i32)>,
}

impl History {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(copies: Copies) -> Self {
        Self {
            copies,
            registers: BTreeMap::new(),
            last: 0,
            kept: Vec::new(),
            truncations: Vec::new(),
            weak: 0,
            weakened: 0,
            moves: false,
            repaired: None,
        }
    }

    /// An operation begins that takes replicas away permanently, or leaves fewer copies: what fewer than a quorum have
    /// may be lost, until it has ended and for what was under way then.
    pub fn begin_weak(&mut self) {
        self.weak += 1;
        self.weaken();
    }

    /// It has ended.
    pub fn end_weak(&mut self) {
        self.weak -= 1;
        self.weaken();
    }

    fn weaken(&mut self) {
        self.weakened += 1;
        self.repaired = None;
        let copies = self.copies;
        for register in self.registers.values_mut() {
            register.floors.retain(|least, _| copies.is_kept(least));
        }
    }

    /// Whether what was asked at a moment promises nothing with fewer than a quorum of replicas.
    #[must_use]
    pub fn weakened(&self) -> u64 {
        self.weakened
    }

    /// Whether a promise counts that was asked for when promises had been weakened so often.
    #[must_use]
    pub fn counts(&self, least: &Least, weakened: u64) -> bool {
        self.copies.is_kept(least) || (self.weak == 0 && weakened == self.weakened)
    }

    /// Whether what a read that is answered now has seen must be seen later too ([`History::begin_move`]).
    #[must_use]
    pub fn counts_read(&self, least: &Least, weakened: u64) -> bool {
        !self.moves && self.counts(least, weakened)
    }

    /// Some tablets or ranges are about to get other replicas. A read asks the previous replicas until the next ones
    /// have copied. What reached the replicas that it asked after the copy, and did not reach the next ones, is
    /// promised only as far as its writer got an acknowledgement. So what writes promise counts as ever, and what reads
    /// have seen does not.
    pub fn begin_move(&mut self) {
        self.moves = true;
    }

    /// All replicas are where they stay.
    pub fn end_moves(&mut self) {
        self.moves = false;
    }

    /// A repair of everything is about to be asked for.
    pub fn begin_repair(&mut self) {
        self.repaired = Some(self.newest_acknowledged());
    }

    /// The operator changes the replicas. Besides, the repair that was asked for promises nothing.
    pub fn begin_change(&mut self) {
        self.begin_move();
        self.repaired = None;
    }

    /// It was done: all replicas have what was acknowledged before, unless the replicas changed during it.
    pub fn end_repair(&mut self) {
        let all = self.copies.all();
        for (key, timestamp) in self.repaired.take().into_iter().flatten() {
            let Some(register) = self.registers.get_mut(&key) else {
                continue;
            };
            let is_there = |write: &Write| write.truncation == Truncation::None;
            if register.writes.get(&timestamp).is_some_and(is_there)
                && register.truncated.is_none_or(|truncated| truncated < timestamp)
            {
                register.raise(all, timestamp);
            }
        }
    }

    /// Whether a repair is asked for of which nothing took the meaning.
    #[must_use]
    pub fn awaits_repair(&self) -> bool {
        self.repaired.is_some()
    }

    /// Of each register the newest write that was acknowledged, if nothing truncated it.
    fn newest_acknowledged(&self) -> Vec<(Key, i32)> {
        let acknowledged = |write: &Write| {
            write.effect.is_kept()
                && matches!(write.fate, Fate::Acknowledged(_))
                && write.truncation == Truncation::None
        };
        let newest = |(key, register): (&Key, &Register)| {
            let last = register.writes.iter().rev().find(|(_, write)| acknowledged(write));
            let timestamp = *last?.0;
            let is_there = register.truncated.is_none_or(|truncated| truncated < timestamp);
            is_there.then_some((*key, timestamp))
        };
        self.registers.iter().filter_map(newest).collect()
    }

    /// A timestamp that no other write has; now and then one from before, so that writes do not come in order.
    pub fn timestamp(&mut self, dice: u64) -> i32 {
        if dice.is_multiple_of(16) {
            self.last += 1;
            self.kept.push(self.last);
        } else if dice.is_multiple_of(17)
            && let Some(kept) = self.kept.pop()
        {
            return kept;
        }
        self.last += 1;
        self.last
    }

    /// No timestamp from before is used any more.
    pub fn forget_drawn(&mut self) {
        self.kept.clear();
    }

    /// A timestamp that is later than those of all writes.
    pub fn newest_timestamp(&mut self) -> i32 {
        self.last += 1;
        self.last
    }

    /// A write is about to be sent.
    pub fn begin(&mut self, keys: &[Key], timestamp: i32, effect: Effect, story: &str) {
        for key in keys {
            let write = Write {
                effect,
                fate: Fate::Unknown,
                truncation: Truncation::None,
                weak: self.weakened,
                story: story.to_owned(),
            };
            self.registers.entry(*key).or_default().writes.insert(timestamp, write);
        }
    }

    /// It was acknowledged.
    pub fn acknowledged(&mut self, keys: &[Key], timestamp: i32, asked: Asked) {
        self.settle(keys, timestamp, Fate::Acknowledged(asked));
        let least = self.copies.least(asked);
        for key in keys {
            let counts = |write: &Write| {
                write.effect.is_kept() && write.truncation == Truncation::None && self.counts(&least, write.weak)
            };
            let write = self
                .registers
                .get(key)
                .and_then(|register| register.writes.get(&timestamp));
            if write.is_some_and(counts) {
                self.registers.entry(*key).or_default().raise(least, timestamp);
            }
        }
    }

    /// Its coordinator said that it did not begin.
    pub fn refused(&mut self, keys: &[Key], timestamp: i32) {
        self.settle(keys, timestamp, Fate::Refused);
    }

    /// It ended one way or another.
    pub fn in_doubt(&mut self, keys: &[Key], timestamp: i32, why: &str) {
        for key in keys {
            if let Some(write) = self.registers.entry(*key).or_default().writes.get_mut(&timestamp) {
                write.story.push_str(" -> ");
                write.story.push_str(why);
            }
        }
    }

    fn settle(&mut self, keys: &[Key], timestamp: i32, fate: Fate) {
        for key in keys {
            let register = self.registers.entry(*key).or_default();
            if let Some(write) = register.writes.get_mut(&timestamp) {
                write.fate = fate;
            }
        }
    }

    /// What a read that is sent now must not go below.
    #[must_use]
    pub fn floor(&self, key: Key, asked: Asked) -> i32 {
        let least = self.copies.least(asked);
        self.registers.get(&key).map_or(0, |r| r.floor(self.copies, &least))
    }

    /// A read that was sent when the floor was that has returned this.
    ///
    /// # Errors
    /// When it must not.
    pub fn check(&mut self, key: Key, floor: i32, asked: Asked, span: Span, value: Option<i32>) -> Result<(), String> {
        let promised = self.copies.least(asked);
        let least = Some(promised).filter(|least| self.counts_read(least, span.weakened));
        // What was promised when it was sent may be lost since.
        let floor = if span.weakened == self.weakened {
            floor
        } else {
            floor.min(self.floor(key, asked))
        };
        let is_truncated_meanwhile = self.is_truncated_meanwhile(key.0, span);
        let register = self.registers.entry(key).or_default();
        if is_truncated_meanwhile {
            let is_written = value.is_none_or(|value| value == PRESENT || register.writes.contains_key(&value));
            return if is_written {
                Ok(())
            } else {
                Err(format!("{key:?}: {value:?} is there, which no client wrote"))
            };
        }
        let checked = register.check(floor, least, span, value);
        checked.map_err(|text| format!("{key:?} read at {:?}: {text}\n{}", asked.level, story(register)))
    }

    /// A read that was sent when the floor was that has returned all registers whose values meet a condition, but not
    /// this one.
    ///
    /// # Errors
    /// When every value that it may have meets the condition.
    pub fn check_left_out(
        &self,
        key: Key,
        floor: i32,
        asked: Asked,
        span: Span,
        meets: impl Fn(i32) -> bool,
    ) -> Result<(), String> {
        let Some(register) = self.registers.get(&key) else {
            return Ok(());
        };
        let floor = if span.weakened == self.weakened {
            floor
        } else {
            floor.min(self.floor(key, asked))
        };
        if self.is_truncated_meanwhile(key.0, span) || register.may_be_left_out(floor, span, meets) {
            return Ok(());
        }
        Err(format!(
            "{key:?} is left out at {:?}, though {floor} was promised and every value that it may have since meets the condition\n{}",
            asked.level,
            story(register)
        ))
    }

    /// The latest timestamp of a write.
    #[must_use]
    pub fn last_timestamp(&self) -> i32 {
        self.last
    }

    fn is_truncated_meanwhile(&self, table: u8, span: Span) -> bool {
        let meets = |t: &UnderTraffic| {
            t.table == table && t.sent <= span.answered && t.ended.is_none_or(|ended| ended >= span.sent)
        };
        self.truncations.iter().any(meets)
    }

    /// What one read of one moment has returned of several registers, each of which was checked. Where nothing is
    /// there, and one deletion alone can be the reason, a replica that was asked has that deletion, and so everything
    /// else that it deletes is gone in this read too, and stays gone.
    ///
    /// # Errors
    /// When something is there that it deletes.
    pub fn check_together(
        &mut self,
        read: &[(Key, Option<i32>)],
        floors: &BTreeMap<Key, i32>,
        asked: Asked,
        span: Span,
    ) -> Result<(), String> {
        let least = self.copies.least(asked);
        let is_excused = span.weakened != self.weakened || !self.counts(&least, span.weakened);
        if is_excused || read.iter().any(|(key, _)| self.is_truncated_meanwhile(key.0, span)) {
            return Ok(());
        }
        let reason = |(key, value): &(Key, Option<i32>)| {
            let floor = floors.get(key).copied().filter(|floor| *floor > 0 && value.is_none())?;
            let register = self
                .registers
                .get(key)
                .filter(|register| register.truncated.is_none())?;
            let is_reason = |write: &Write| write.effect != Effect::Set && write.fate != Fate::Refused;
            let mut reasons = register.writes.range(floor..).filter(|(_, write)| is_reason(write));
            let (timestamp, write) = reasons.next()?;
            let is_alone =
                reasons.next().is_none() && write.effect == Effect::Delete && write.truncation == Truncation::None;
            is_alone.then_some((*key, *timestamp))
        };
        let reasons: Vec<(Key, i32)> = read.iter().filter_map(reason).collect();
        for (gone, timestamp) in reasons {
            for (key, value) in read {
                let Some(register) = self.registers.get_mut(key) else {
                    continue;
                };
                let is_deleted = register
                    .writes
                    .get(&timestamp)
                    .is_some_and(|write| write.effect == Effect::Delete);
                if !is_deleted {
                    continue;
                }
                if let Some(value) = value.filter(|value| *value != PRESENT && *value < timestamp) {
                    return Err(format!(
                        "{value} of {key:?} is there, but {gone:?} is gone, which {timestamp} alone can have deleted, and that deletes both\n{}\n{}",
                        story(register),
                        self.registers.get(&gone).map(story).unwrap_or_default()
                    ));
                }
                if !self.moves {
                    register.raise(least, timestamp);
                }
            }
        }
        Ok(())
    }

    /// Hints have been handed over: from now on all replicas have what was acknowledged at any level.
    pub fn all_have_everything(&mut self) {
        self.begin_repair();
        self.end_repair();
    }

    /// A table was truncated while no client wrote to it: what was written before is gone, and must not return.
    pub fn truncated(&mut self, table: u8) {
        let last = self.last;
        // A write that used one later would seem to come from before the truncation.
        self.forget_drawn();
        for (_, register) in self
            .registers
            .range_mut((table, i32::MIN, i32::MIN)..=(table, i32::MAX, i32::MAX))
        {
            register.truncated = Some(last);
            register.floors.clear();
        }
    }

    /// A truncation is about to be sent, while others write.
    pub fn begin_truncation(&mut self, table: u8, now: u64) {
        let all = (table, i32::MIN, i32::MIN)..=(table, i32::MAX, i32::MAX);
        let mut before = Vec::new();
        for (key, register) in self.registers.range(all) {
            let writes = register.writes.iter();
            let acknowledged = writes.filter(|(_, write)| matches!(write.fate, Fate::Acknowledged(_)));
            before.extend(acknowledged.map(|(timestamp, _)| (*key, *timestamp)));
        }
        self.truncations.push(UnderTraffic {
            table,
            sent: now,
            ended: None,
            before,
        });
    }

    /// The truncation that was begun last is acknowledged: what was acknowledged before it began is gone, and what was
    /// begun until now may be.
    pub fn end_truncation(&mut self, table: u8, now: u64) {
        let all = (table, i32::MIN, i32::MIN)..=(table, i32::MAX, i32::MAX);
        for (_, register) in self.registers.range_mut(all) {
            register.floors.clear();
            for write in register.writes.values_mut() {
                if write.truncation == Truncation::None {
                    write.truncation = Truncation::InDoubt;
                }
            }
        }
        // One that failed before it has done less.
        for truncation in self.truncations.iter_mut().filter(|t| t.table == table) {
            truncation.ended.get_or_insert(now);
            for (key, timestamp) in std::mem::take(&mut truncation.before) {
                let register = self.registers.get_mut(&key);
                if let Some(write) = register.and_then(|r| r.writes.get_mut(&timestamp)) {
                    write.truncation = Truncation::Gone;
                }
            }
        }
    }

    /// Whether a register can have this value while another that is always written with it has that one, because its
    /// table was truncated since.
    #[must_use]
    pub fn may_be_truncated(&self, key: Key, value: Option<&i32>, other: Option<&i32>) -> bool {
        let write = other.and_then(|other| self.registers.get(&key)?.writes.get(other));
        value < other && write.is_some_and(|write| write.truncation != Truncation::None)
    }

    /// The registers of a table that were written, or were to be.
    #[must_use]
    pub fn keys(&self, table: u8) -> Vec<Key> {
        let all = (table, i32::MIN, i32::MIN)..=(table, i32::MAX, i32::MAX);
        self.registers.range(all).map(|(key, _)| *key).collect()
    }

    /// The registers of one partition of a table that were written, or were to be.
    #[must_use]
    pub fn keys_of(&self, table: u8, partition: i32) -> Vec<Key> {
        let all = (table, partition, i32::MIN)..=(table, partition, i32::MAX);
        self.registers.range(all).map(|(key, _)| *key).collect()
    }

    /// Writes that were begun.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.registers.values().map(|r| r.writes.len()).sum()
    }
}

/// The last writes to a register, and what is known of them.
fn story(register: &Register) -> String {
    let lines = register.writes.iter().rev().take(12);
    let lines = lines.map(|(timestamp, write)| format!("  {timestamp}: {:?}, {}", write.fate, write.story));
    let lines: Vec<String> = lines.collect();
    format!(
        "  floors by replicas: {:?}; truncated up to {:?}\n{}",
        register.floors,
        register.truncated,
        lines.join("\n")
    )
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
