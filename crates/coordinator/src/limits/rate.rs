//! How many reads and writes of one partition are taken in a second, where its table says `per_partition_rate_limit`.
//!
//! One shard counts for the whole cluster: that of the partition's first live replica, the *gate*. A coordinator on it
//! looks at its own count; any other asks by ADMIT before it sends anything, so what is refused has been done nowhere.
//! What is taken in any second is then at most the limit, whichever node coordinates; while coordinators disagree about
//! which nodes live there may be two gates, each with the limit. If the gate does not answer within [`PATIENCE`], the
//! request continues: a limit protects a cluster, it does not stop it.
//!
//! Counted are reads and writes of one partition. Batches, scans, counters and conditional statements are not.
//!
//! A count is a sliding window over two seconds: of the second before counts the share that is less than a second old.
//! Partitions share [`SLOTS`] slots; one without a slot takes that of the least count among [`NEIGHBOURS`], so the busy
//! ones keep theirs. Only what was taken counts, so a client that is refused a hundred thousand times a second is taken
//! at the limit all the same.
//!
//! ```text
//! ADMIT  [u8; 16] table, i64 token, u8 operation (0 read, 1 write), u32 operations in a second; the answer is u8 1
//!        when it is taken, else 0
//! ```

use std::cell::{Cell, RefCell};
use std::time::Duration;

use runtime::{Instant, ShardId};
use schema::TableId;
use stdx::bytes::Reader;
use topology::{Replica, WriteTargets};
use types::Token;
use uuid::Uuid;

use super::Limits;
use crate::message::Malformed;
use crate::{Coordinator, CoordinatorError, Verb};

/// How long the gate's answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// Partitions that are counted apart on a shard: 128 KiB when there are any.
const SLOTS: usize = 4096;
/// Slots in which a partition may be counted.
const NEIGHBOURS: usize = 8;
/// Parts of a second, for the share of the second before.
const PARTS: u64 = 1 << 10;

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A read of one partition.
    Read,
    /// A write of one partition.
    Write,
}

/// One operation on one partition that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// The table.
    pub table: TableId,
    /// The partition's.
    pub token: Token,
    /// What is to be done.
    pub operation: Operation,
    /// How often it may be in a second.
    pub limit: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Of partition and operation; 0 when it is free.
    name: u64,
    second: u64,
    /// Operations in that second, and in the one before.
    now: u32,
    before: u32,
}

impl Slot {
    /// This slot with its counts as of a second since the start.
    fn at(self, second: u64) -> Self {
        let (now, before) = match second - self.second.min(second) {
            0 => (self.now, self.before),
            1 => (0, self.now),
            _ => (0, 0),
        };
        Self {
            second,
            now,
            before,
            ..self
        }
    }

    /// Operations in the last second, times [`PARTS`]. Of the present second `part` of so many parts have passed.
    fn estimate(self, part: u64) -> u64 {
        u64::from(self.now) * PARTS + u64::from(self.before) * (PARTS - part)
    }
}

/// A shard's counts.
#[derive(Default)]
pub(crate) struct Rates {
    slots: RefCell<Vec<Slot>>,
    began: Cell<Option<Instant>>,
}

impl Rates {
    /// Takes one operation at a moment, if there is room for it.
    fn take(&self, admission: Admission, now: Instant) -> bool {
        let began = self.began.get().unwrap_or(now);
        self.began.set(Some(began));
        let passed = now.saturating_duration_since(began);
        let part = u64::from(passed.subsec_nanos()) * PARTS / 1_000_000_000;
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            slots.resize(SLOTS, Slot::default());
        }
        let name = admission.name();
        let first = usize::try_from(name >> 32).unwrap_or(0);
        let mut chosen = (u64::MAX, 0);
        for at in (first..first + NEIGHBOURS).map(|at| at % SLOTS) {
            let slot = slots[at].at(passed.as_secs());
            if slot.name == name {
                slots[at] = slot;
                chosen = (slot.estimate(part), at);
                break;
            }
            chosen = chosen.min((slot.estimate(part), at));
        }
        let slot = &mut slots[chosen.1];
        if slot.name != name {
            *slot = Slot {
                name,
                second: passed.as_secs(),
                ..Slot::default()
            };
            chosen.0 = 0;
        }
        let has_room = chosen.0 + PARTS <= u64::from(admission.limit) * PARTS;
        slot.now += u32::from(has_room);
        has_room
    }
}

impl Admission {
    fn name(&self) -> u64 {
        let (high, low) = self.table.0.as_u64_pair();
        let mut name = self.token.0.cast_unsigned() ^ high ^ low.rotate_left(32) ^ self.operation as u64;
        // Tokens are hashes already, but of both operations of a partition one slot should not be the other's
        // neighbour.
        name = (name ^ (name >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (name ^ (name >> 33)).max(1)
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(32);
        body.extend_from_slice(self.table.0.as_bytes());
        body.extend_from_slice(&self.token.0.to_le_bytes());
        body.push(self.operation as u8);
        body.extend_from_slice(&self.limit.to_le_bytes());
        body
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let cut = |_| Malformed("a table id, a token, an operation and a limit");
        Ok(Self {
            table: TableId(Uuid::from_bytes(reader.get_array().map_err(cut)?)),
            token: Token(i64::from_le_bytes(reader.get_array().map_err(cut)?)),
            operation: match reader.get_u8().map_err(cut)? {
                0 => Operation::Read,
                1 => Operation::Write,
                _ => return Err(Malformed("operation 0 or 1")),
            },
            limit: u32::from_le_bytes(reader.get_array().map_err(cut)?),
        })
    }
}

impl Limits {
    /// Takes an operation on a partition whose table limits them, if that many were not taken in the last second.
    ///
    /// # Errors
    /// [`CoordinatorError::RateLimited`]; nothing was done.
    pub async fn admit(&self, admission: Admission) -> Result<(), CoordinatorError> {
        let view = self.context.view();
        let Some(route) = view.route(admission.table) else {
            return Ok(());
        };
        let tablet = route.map.tablet_of(admission.token);
        let gate: Option<Replica> = WriteTargets::new(&tablet).all().find(|r| self.context.is_live(r.node));
        let Some(gate) = gate else { return Ok(()) };
        let shard = ShardId(u32::from(gate.shard));
        let is_here = gate.node == view.me;
        let is_taken = if !is_here {
            let body = admission.encode();
            let answer = self
                .context
                .call(&view, gate, Verb::Admit, body, runtime::now() + PATIENCE)
                .await;
            answer.map_or(true, |answer| answer != [0])
        } else if shard == self.context.shard.id() {
            self.rates.take(admission, runtime::now())
        } else {
            let take = move || Coordinator::local().limits.rates.take(admission, runtime::now());
            runtime::submit_to(shard, take).await
        };
        if is_taken {
            return Ok(());
        }
        self.context.count(|m| m.rate_limited += 1);
        Err(CoordinatorError::RateLimited {
            admission,
            by_coordinator: is_here,
        })
    }

    /// Answers another coordinator: the gate is here.
    pub(crate) fn admit_for(&self, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let admission = Admission::decode(body)?;
        Ok(vec![u8::from(self.rates.take(admission, runtime::now()))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn writes(token: i64, limit: u32) -> Admission {
        Admission {
            table: TableId(Uuid::from_u128(7)),
            token: Token(token),
            operation: Operation::Write,
            limit,
        }
    }

    /// How many of `attempts` at equal distances in a span are taken.
    fn taken(rates: &Rates, admission: Admission, from: Instant, span: Duration, attempts: u32) -> u32 {
        let moments = (0..attempts).map(|n| from + span * n / attempts);
        moments.map(|now| u32::from(rates.take(admission, now))).sum()
    }

    #[test]
    fn as_many_are_taken_as_the_limit_says_however_many_come() {
        let start = runtime::now();
        for (attempts, expected) in [(50, 50), (100, 100), (1_000, 100), (100_000, 100)] {
            let rates = Rates::default();
            let second = Duration::from_secs(1);
            let first = taken(&rates, writes(1, 100), start, second, attempts);
            assert_eq!(first, expected.min(attempts), "of {attempts} in the first second");
            let ten = taken(&rates, writes(1, 100), start + second, 10 * second, 10 * attempts);
            let most = 10 * expected.min(attempts);
            assert!(
                (most * 9 / 10..=most).contains(&ten),
                "{ten} of {attempts} a second were taken in ten seconds, and {most} should"
            );
        }
    }

    #[test]
    fn a_burst_over_the_end_of_a_second_is_one_burst() {
        let (rates, start) = (Rates::default(), runtime::now());
        assert!(rates.take(writes(1, 100), start));
        let burst = start + Duration::from_millis(900);
        let got = taken(&rates, writes(1, 100), burst, Duration::from_millis(200), 10_000);
        assert!(
            (95..=120).contains(&got),
            "{got} writes were taken in 200 ms, and the limit is 100 a second"
        );
    }

    #[test]
    fn partitions_tables_reads_and_writes_are_counted_apart() {
        let (rates, now) = (Rates::default(), runtime::now());
        let other_table = Admission {
            table: TableId(Uuid::from_u128(8)),
            ..writes(1, 1)
        };
        let read = Admission {
            operation: Operation::Read,
            ..writes(1, 1)
        };
        for admission in [writes(1, 1), writes(2, 1), other_table, read] {
            assert!(rates.take(admission, now), "{admission:?}");
            assert!(!rates.take(admission, now), "{admission:?} again");
        }
    }

    #[test]
    fn a_busy_partition_keeps_its_count_among_many_others() {
        let (rates, start) = (Rates::default(), runtime::now());
        let mut got = 0;
        for n in 0..100_000u32 {
            let now = start + Duration::from_micros(9) * n;
            got += u32::from(rates.take(writes(-1, 50), now));
            rates.take(writes(i64::from(n), 50), now);
        }
        assert!(
            (50..=60).contains(&got),
            "{got} writes of the busy partition were taken in a second, and its limit is 50"
        );
    }

    #[test]
    fn what_is_asked_is_what_arrives() {
        let read = Admission {
            operation: Operation::Read,
            ..writes(-5, 9)
        };
        for admission in [writes(i64::MIN, u32::MAX), read] {
            assert_eq!(Admission::decode(&admission.encode()), Ok(admission));
        }
        assert!(
            Admission::decode(&writes(1, 1).encode()[..20]).is_err(),
            "an end that is missing"
        );
    }
}
