//! The writes of the clients: to which registers, by which statements.

use std::time::Duration;

use super::clients::{A, ANSWER_WAIT_MAX, B, Clients, E, FRESH, I, Mix, R, ROWS, T, millis, partition_of_b};
use super::history::{Effect, Key};

/// A statement that is prepared, and the values for this time.
pub(crate) struct Bound {
    pub(crate) text: &'static str,
    pub(crate) values: Vec<Vec<u8>>,
}

/// A write that is about to be sent.
pub(crate) struct Planned {
    /// As it would be written with its values.
    pub(crate) text: String,
    pub(crate) bound: Option<Bound>,
    pub(crate) keys: Vec<Key>,
    pub(crate) effect: Effect,
    pub(crate) timestamp: i32,
}

impl Clients {
    /// The partition and the row of a request.
    pub(crate) fn place(&self, dice: u64) -> (i32, i32) {
        let partitions = if self.workload.is_hot { 2 } else { 12 };
        let number = |n: u64| i32::try_from(n).expect("few partitions of few rows");
        (number(dice % partitions), number((dice >> 8) % 3))
    }

    /// Whether a request is to the table that forgets deletions at once.
    pub(crate) fn uses_immediate(&self, dice: u64) -> bool {
        self.workload.grace.is_some() && (dice >> 41).is_multiple_of(6)
    }

    /// Where tombstones are forgotten, some writes give themselves more time than the nodes' timeout, or less: what
    /// waits in a coordinator that long may be a deletion's last copy.
    pub(crate) fn with_own_time(&self, text: &str, timestamp: i32) -> String {
        let is_chosen = self.workload.grace.is_some() && timestamp % 4 == 0;
        let using = format!("USING TIMESTAMP {timestamp}");
        match text.split_once(&using) {
            Some((before, after)) if is_chosen => {
                let seconds = 1 + timestamp / 4 % 60;
                format!("{before}{using} AND TIMEOUT {seconds}s{after}")
            }
            _ => text.to_owned(),
        }
    }

    /// Where tombstones are forgotten, some deletions are executed at a second that their client says: long ago, so
    /// that their grace is over as soon as they are written, or a while ahead.
    pub(crate) fn own_second(&self, text: &str, timestamp: i32) -> Option<i32> {
        let is_chosen = self.workload.grace.is_some() && timestamp % 4 == 2 && text.starts_with("DELETE");
        let now = i32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(i32::MAX);
        is_chosen.then(|| now + [-10_000, -100, -3, 100][timestamp.unsigned_abs() as usize / 4 % 4])
    }

    pub(crate) fn plan(&self, dice: u64) -> Planned {
        let (p, c) = self.place(dice);
        let timestamp = self.timestamp(dice >> 16);
        let v = timestamp;
        let row = |c| (R, p, c);
        let kind = match self.workload.mix {
            Mix::Batches => 9,
            Mix::Everything | Mix::Reads | Mix::Serial | Mix::Counters => (dice >> 32) % 20,
        };
        let (text, keys, effect) = match kind {
            _ if self.workload.truncates_with_traffic && (dice >> 45).is_multiple_of(2) => {
                let text = format!("INSERT INTO k.t (p, v) VALUES ({p}, {v}) USING TIMESTAMP {v}");
                (text, vec![(T, p, 0)], Effect::Set)
            }
            _ if self.uses_immediate(dice) => plan_immediate(kind, (p, c), v),
            0 => {
                let text = format!("DELETE FROM k.r USING TIMESTAMP {v} WHERE p = {p}");
                (text, (0..ROWS).map(row).collect(), Effect::Delete)
            }
            1 => {
                let text = format!("DELETE FROM k.r USING TIMESTAMP {v} WHERE p = {p} AND c >= {c}");
                (text, (c..ROWS).map(row).collect(), Effect::DeleteRange)
            }
            2 => {
                let text = format!("DELETE v FROM k.r USING TIMESTAMP {v} WHERE p = {p} AND c = {c}");
                (text, vec![row(c)], Effect::Delete)
            }
            3..=4 => {
                let text = format!("DELETE FROM k.r USING TIMESTAMP {v} WHERE p = {p} AND c = {c}");
                (text, vec![row(c)], Effect::Delete)
            }
            5..=7 => {
                let text = format!("UPDATE k.r USING TIMESTAMP {v} SET v = {v} WHERE p = {p} AND c = {c}");
                (text, vec![row(c)], Effect::Set)
            }
            8 => {
                let inserts = (0..ROWS).map(|c| format!("INSERT INTO k.r (p, c, v) VALUES ({p}, {c}, {v}); "));
                let inserts: String = inserts.collect();
                let text = format!("BEGIN UNLOGGED BATCH USING TIMESTAMP {v} {inserts}APPLY BATCH");
                (text, (0..ROWS).map(row).collect(), Effect::Set)
            }
            9..=11 => {
                // A partition that no other statement writes stays as its batch left it.
                let is_fresh = (dice >> 40).is_multiple_of(3) || self.workload.mix == Mix::Batches;
                let p = if is_fresh { FRESH + v } else { p };
                // Other partitions in the other table, so that other replicas take part.
                let other = partition_of_b(p);
                let text = format!(
                    "BEGIN BATCH USING TIMESTAMP {v} INSERT INTO k.a (p, v) VALUES ({p}, {v}); INSERT INTO k.b (p, v) VALUES ({other}, \
                     {v}); APPLY BATCH"
                );
                (text, vec![(A, p, 0), (B, other, 0)], Effect::Set)
            }
            12 => {
                let text = format!("INSERT INTO k.t (p, v) VALUES ({p}, {v}) USING TIMESTAMP {v}");
                (text, vec![(T, p, 0)], Effect::Set)
            }
            13..=14 => {
                let seconds = 1 + (dice >> 40) % 8;
                let text = format!("INSERT INTO k.e (p, v) VALUES ({p}, {v}) USING TIMESTAMP {v} AND TTL {seconds}");
                (text, vec![(E, p, 0)], self.expiry(seconds))
            }
            _ => {
                let text = format!("INSERT INTO k.r (p, c, v) VALUES ({p}, {c}, {v}) USING TIMESTAMP {v}");
                (text, vec![row(c)], Effect::Set)
            }
        };
        // What has a prepared form is executed by it at times.
        let is_prepared = effect == Effect::Set && keys.len() == 1 && (dice >> 44).is_multiple_of(2);
        let values = |keys: &[i32]| -> Vec<Vec<u8>> {
            let ints = keys.iter().chain([&v]).map(|n| n.to_be_bytes().to_vec());
            ints.chain([i64::from(v).to_be_bytes().to_vec()]).collect()
        };
        let bound = match keys[0].0 {
            R if is_prepared => Some(Bound {
                text: "INSERT INTO k.r (p, c, v) VALUES (?, ?, ?) USING TIMESTAMP ?",
                values: values(&[p, c]),
            }),
            T if is_prepared => Some(Bound {
                text: "INSERT INTO k.t (p, v) VALUES (?, ?) USING TIMESTAMP ?",
                values: values(&[p]),
            }),
            _ => None,
        };
        Planned {
            text,
            bound,
            keys,
            effect,
            timestamp,
        }
    }

    /// A row that is new, see [`Mix::Reads`].
    pub(crate) fn plan_first(&self, (p, c): (i32, i32), dice: u64) -> Planned {
        let v = self.timestamp(dice >> 16);
        let text = format!("INSERT INTO k.r (p, c, v) VALUES ({p}, {c}, {v}) USING TIMESTAMP {v}");
        self.unprepared(text, vec![(R, p, c)], Effect::Set, v)
    }

    /// What is done to it at once: two in three are deletions.
    pub(crate) fn plan_second(&self, (p, c): (i32, i32), dice: u64) -> Planned {
        let v = self.timestamp(dice >> 24);
        let place = format!("p = {p} AND c = {c}");
        let (text, effect) = match (dice >> 32) % 3 {
            0 => (
                format!("DELETE v FROM k.r USING TIMESTAMP {v} WHERE {place}"),
                Effect::Delete,
            ),
            1 => (
                format!("DELETE FROM k.r USING TIMESTAMP {v} WHERE {place}"),
                Effect::Delete,
            ),
            _ => (
                format!("UPDATE k.r USING TIMESTAMP {v} SET v = {v} WHERE {place}"),
                Effect::Set,
            ),
        };
        self.unprepared(text, vec![(R, p, c)], effect, v)
    }

    /// A timestamp of a write. Where tombstones are kept for a short time, one from before is not older than that:
    /// nothing would hide the write any more that it is older than.
    fn timestamp(&self, dice: u64) -> i32 {
        let mut history = self.history.borrow_mut();
        let now = millis();
        if let Some(grace) = self.workload.grace
            && now > self.drawn_since.get() + u64::from(grace) * 1000 / 4
        {
            history.forget_drawn();
            self.drawn_since.set(now);
        }
        history.timestamp(dice)
    }

    fn unprepared(&self, text: String, keys: Vec<Key>, effect: Effect, timestamp: i32) -> Planned {
        Planned {
            text,
            bound: None,
            keys,
            effect,
            timestamp,
        }
    }

    /// A value that is written now and lives for some seconds, by a clock of which only the largest error is known.
    fn expiry(&self, seconds: u64) -> Effect {
        let now = millis();
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("an age of the world is shorter");
        // The time of the end is in whole seconds, rounded by two machines.
        let error = millis(2 * self.promises.clock_error + Duration::from_secs(2));
        Effect::Expire {
            from: (now + seconds * 1000).saturating_sub(error),
            until: now + millis(ANSWER_WAIT_MAX) + seconds * 1000 + error,
        }
    }
}

/// A write to the table that forgets deletions at once; a third of them are deletions.
fn plan_immediate(kind: u64, (p, c): (i32, i32), v: i32) -> (String, Vec<Key>, Effect) {
    let row = |c| (I, p, c);
    match kind % 9 {
        0 => {
            let text = format!("DELETE FROM k.i USING TIMESTAMP {v} WHERE p = {p}");
            (text, (0..ROWS).map(row).collect(), Effect::DeleteForgotten)
        }
        1..=2 => {
            let text = format!("DELETE FROM k.i USING TIMESTAMP {v} WHERE p = {p} AND c = {c}");
            (text, vec![row(c)], Effect::DeleteForgotten)
        }
        _ => {
            let text = format!("INSERT INTO k.i (p, c, v) VALUES ({p}, {c}, {v}) USING TIMESTAMP {v}");
            (text, vec![row(c)], Effect::Set)
        }
    }
}
