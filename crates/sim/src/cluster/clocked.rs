//! Clients of table `u`, whose write timestamps are the coordinators' clocks; on half of its partitions conditional
//! statements mix with plain writes.
//!
//! The timestamp of a write is not known before it is read, but all of these must hold, if no clock is wrong by more
//! than an error:
//! - `WRITETIME` of a value is within the request that wrote it, give or take the error, and is always the same.
//! - A read at a level has nothing older than what an earlier read or write at an overlapping level promises. A read
//!   promises the timestamp that it returned; a write one that is not before it was sent, less the error.
//! - Of two plain writes over one connection the later one wins, whatever the clocks do: a connection is of one shard.
//! - What a conditional statement returns as found, or what it expected when it was applied, counts as a read at
//!   SERIAL: it has what plain writes at QUORUM were acknowledged before the statement was sent, or something newer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::clients::{
    ANSWER_WAIT_MAX, CAS_WRITE_UNKNOWN, Clients, LACKS_A_FILE, OVERLOADED, Outcome, READ_FAILURE, READ_TIMEOUT,
};
use super::clients::{UNAVAILABLE, WRITE_FAILURE, WRITE_TIMEOUT};
use super::history::{Asked, Copies, Least, Level};
use crate::client::{Answer, Client};
use crate::decode::Rows;
use crate::model::Value;

/// Partitions; conditional statements are about those with an odd number.
const PARTITIONS: i32 = 6;
/// What a request may be off besides the clocks: timestamps that are one above another, and the time between two looks
/// at a clock.
const SLACK_US: i64 = 10_000;

/// Of conditional statements: their timestamps are ballots, above all that they read, where plain writes have the clock
/// of their shard.
const NO_CONNECTION: u64 = 0;

/// What is known of one value.
struct Write {
    /// How often promises had been weakened when it was sent.
    weakened: u64,
    sent_us: i64,
    /// When it had its timestamp at the latest.
    ended_us: i64,
    is_refused: bool,
    connection: u64,
    timestamp: Option<i64>,
}

#[derive(Default)]
struct Partition {
    writes: BTreeMap<i32, Write>,
    /// By what is promised, the least timestamp of which it is known.
    floors: BTreeMap<Least, i64>,
    /// By what was promised and connection, the last value.
    last: BTreeMap<(Least, u64), i32>,
    /// What was seen last: the guess of conditions.
    seen: Option<i32>,
}

/// What a read must have, as it was sent.
struct Promised {
    /// How often promises had been weakened.
    weakened: u64,
    floor: i64,
    /// The last value of each connection.
    last: Vec<(u64, i32)>,
}

impl Promised {
    /// What is promised by both. It was asked for when the first one was.
    fn and(self, other: Self) -> Self {
        let last = self.last.iter().filter_map(|(connection, value)| {
            let also = other.last.iter().find(|(of, _)| of == connection);
            also.map(|(_, other)| (*connection, *value.min(other)))
        });
        Self {
            weakened: self.weakened,
            floor: self.floor.min(other.floor),
            last: last.collect(),
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Clocked {
    partitions: RefCell<[Partition; PARTITIONS as usize]>,
    last: Cell<i32>,
    connections: Cell<u64>,
}

impl Partition {
    fn promised(&self, copies: Copies, least: &Least, weakened: u64) -> Promised {
        let met = |promised: &&Least| copies.overlap(promised, least);
        let floors = self.floors.iter().filter(|(promised, _)| met(promised));
        let last = self.last.iter().filter(|((promised, _), _)| met(&promised));
        Promised {
            weakened,
            floor: floors.map(|(_, floor)| *floor).max().unwrap_or(i64::MIN),
            last: last.map(|((_, connection), value)| (*connection, *value)).collect(),
        }
    }

    /// What fewer than a quorum of replicas have may be lost.
    fn weaken(&mut self, copies: Copies) {
        self.floors.retain(|least, _| copies.is_kept(least));
        self.last.retain(|(least, _), _| copies.is_kept(least));
    }

    fn raise(&mut self, least: Least, timestamp: i64) {
        let floor = self.floors.entry(least).or_insert(i64::MIN);
        *floor = timestamp.max(*floor);
    }

    /// A read at this level has returned a value, and its timestamp if it was asked for.
    fn check(
        &mut self,
        promised: &Promised,
        least: Option<Least>,
        found: Option<(i32, Option<i64>)>,
        error_us: i64,
    ) -> Result<(), String> {
        let Some((value, timestamp)) = found else {
            let is_promised = promised.floor != i64::MIN;
            return if is_promised {
                Err("nothing is there, and there are no deletions".to_owned())
            } else {
                Ok(())
            };
        };
        let Some(write) = self.writes.get_mut(&value) else {
            return Err(format!("{value} is there, which no client wrote"));
        };
        if write.is_refused {
            return Err(format!(
                "{value} is there, although its coordinator said that it did not begin"
            ));
        }
        let (from, until) = (write.sent_us - error_us, write.ended_us + error_us);
        if let Some(timestamp) = timestamp {
            if !(from..=until).contains(&timestamp) {
                return Err(format!(
                    "{value} was written at {timestamp}, which is not within {from} and {until}"
                ));
            }
            if write.timestamp.is_some_and(|before| before != timestamp) {
                return Err(format!(
                    "{value} was written at {:?} before, and at {timestamp} now",
                    write.timestamp
                ));
            }
            write.timestamp = Some(timestamp);
        }
        let latest = write.timestamp.unwrap_or(until);
        if latest < promised.floor {
            return Err(format!(
                "{value} is there, of {latest} at the latest, but {} or later was promised",
                promised.floor
            ));
        }
        let connection = write.connection;
        if let Some((_, later)) = promised
            .last
            .iter()
            .find(|(of, last)| *of == connection && *of != NO_CONNECTION && *last > value)
        {
            return Err(format!(
                "{value} is there, but {later} was written after it over the same connection"
            ));
        }
        self.seen = Some(value);
        let timestamp = self.writes[&value].timestamp.unwrap_or(from);
        if let Some(least) = least {
            self.raise(least, timestamp);
        }
        Ok(())
    }
}

fn now_us() -> i64 {
    runtime::wall_clock_us()
}

/// The value and its timestamp.
fn found(rows: &Rows) -> Option<(i32, Option<i64>)> {
    let row = rows.first()?;
    let Some(Value::Int(value)) = row.get("v") else {
        return None;
    };
    let timestamp = match row.get("t") {
        Some(Value::Text(text)) => text.parse().ok(),
        _ => None,
    };
    Some((*value, timestamp))
}

impl Clients {
    /// The number of a new connection.
    pub(crate) fn number_connection(&self) -> u64 {
        self.clocked.connections.set(self.clocked.connections.get() + 1);
        self.clocked.connections.get()
    }

    /// One write or read. Whether the connection is still good.
    pub(crate) async fn act_by_clock(
        &self,
        client: &mut Client,
        (node, connection): (usize, u64),
        level: Level,
        dice: u64,
    ) -> bool {
        let p = i32::try_from(dice % u64::from(PARTITIONS.unsigned_abs())).expect("few partitions");
        let is_serial = p % 2 == 1 && (dice >> 8).is_multiple_of(2);
        match (dice >> 16) % 2 {
            0 => {
                let level = if is_serial { Level::Serial } else { level };
                self.read_by_clock(client, node, level, p).await
            }
            _ => {
                self.write_by_clock(client, (node, connection), level, (p, is_serial))
                    .await
            }
        }
    }

    /// See [`super::history::History::begin_weak`].
    pub(crate) fn weaken_clocked(&self) {
        let copies = self.layout.copies;
        let mut partitions = self.clocked.partitions.borrow_mut();
        partitions.iter_mut().for_each(|partition| partition.weaken(copies));
    }

    fn error_us(&self) -> i64 {
        i64::try_from(self.promises.clock_error.as_micros()).expect("seconds") + SLACK_US
    }

    fn promised_by_clock(&self, p: i32, asked: Asked) -> (Promised, Least) {
        let least = self.layout.copies.least(asked);
        let weakened = self.history.borrow().weakened();
        let partitions = self.clocked.partitions.borrow();
        (
            partitions[p.unsigned_abs() as usize].promised(self.layout.copies, &least, weakened),
            least,
        )
    }

    fn check_by_clock(&self, p: i32, read: (Promised, Least), found: Option<(i32, Option<i64>)>, story: &str) {
        let mut partitions = self.clocked.partitions.borrow_mut();
        let partition = &mut partitions[p.unsigned_abs() as usize];
        let (promised, least) = read;
        let history = self.history.borrow();
        let promised = if promised.weakened == history.weakened() {
            promised
        } else {
            // What was promised when it was sent may be lost since.
            promised.and(partition.promised(self.layout.copies, &least, history.weakened()))
        };
        let least = Some(least).filter(|least| history.counts_read(least, promised.weakened));
        drop(history);
        if let Err(text) = partition.check(&promised, least, found, self.error_us()) {
            self.fail(format!("{story}: {text}"));
        }
    }

    async fn read_by_clock(&self, client: &mut Client, node: usize, level: Level, p: i32) -> bool {
        let asked = self.asked(node, level);
        let read = self.promised_by_clock(p, asked);
        let text = format!("SELECT v, WRITETIME(v) AS t FROM k.u WHERE p = {p}");
        let (was_faulty, story) = (
            self.faulty.get(),
            format!("{text} by node {node} at {level:?} at {} us", now_us()),
        );
        let why = match self.within(ANSWER_WAIT_MAX, client.ask_at(&text, level.code())).await {
            Outcome::Answer(Answer::Rows(rows, None)) => {
                self.check_by_clock(p, read, found(&rows), &story);
                self.count(|c| c.clocked += 1);
                self.note_served(node, level);
                return true;
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                let usual = [
                    UNAVAILABLE,
                    OVERLOADED,
                    READ_TIMEOUT,
                    READ_FAILURE,
                    WRITE_TIMEOUT,
                    CAS_WRITE_UNKNOWN,
                ];
                if !usual.contains(&code) {
                    self.fail(format!(
                        "{story}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                let lacks_files = level == Level::All && code == READ_FAILURE && message.contains(LACKS_A_FILE);
                let is_explained = was_faulty || self.promises.may_lack_files && lacks_files;
                self.explain(is_explained, || format!("{story}: {message}"));
                return true;
            }
            Outcome::Answer(other) => format!("{other:?}"),
            Outcome::Lost(why) => why,
        };
        self.explain(was_faulty, || format!("{story}: {why}"));
        false
    }

    async fn write_by_clock(
        &self,
        client: &mut Client,
        (node, connection): (usize, u64),
        level: Level,
        (p, is_conditional): (i32, bool),
    ) -> bool {
        self.clocked.last.set(self.clocked.last.get() + 1);
        let (v, at) = (self.clocked.last.get(), p.unsigned_abs() as usize);
        let guess = self.clocked.partitions.borrow()[at].seen.filter(|_| is_conditional);
        let text = match guess {
            Some(guess) => format!("UPDATE k.u SET v = {v} WHERE p = {p} IF v = {guess}"),
            None => format!("INSERT INTO k.u (p, v) VALUES ({p}, {v})"),
        };
        let wait_us = i64::try_from(ANSWER_WAIT_MAX.as_micros()).expect("seconds");
        let sent_us = now_us();
        let write = Write {
            weakened: self.history.borrow().weakened(),
            sent_us,
            // A request without an answer may begin until then, and a conditional statement may take its ballot.
            ended_us: sent_us + 2 * wait_us,
            is_refused: false,
            connection: connection.min(if guess.is_some() { NO_CONNECTION } else { u64::MAX }),
            timestamp: None,
        };
        self.clocked.partitions.borrow_mut()[at].writes.insert(v, write);
        let read = self.promised_by_clock(p, self.asked(node, Level::Serial));
        let (was_faulty, story) = (
            self.faulty.get(),
            format!("{text} by node {node} at {level:?} at {sent_us} us"),
        );
        let outcome = match guess {
            Some(_) => {
                let asking = client.ask_serially(&text, level.code(), Level::Serial.code());
                self.within(ANSWER_WAIT_MAX, asking).await
            }
            None => self.within(ANSWER_WAIT_MAX, client.ask_at(&text, level.code())).await,
        };
        let why = match outcome {
            Outcome::Answer(Answer::Done) => {
                self.acknowledged_by_clock(p, v, self.asked(node, level));
                self.note_served(node, level);
                return true;
            }
            Outcome::Answer(Answer::Rows(rows, None)) => {
                let is_applied = rows.first().and_then(|row| row.get("[applied]")) == Some(&Value::Int(1));
                let saw = if is_applied {
                    guess.map(|guess| (guess, None))
                } else {
                    found(&rows)
                };
                self.check_by_clock(p, read, saw, &format!("{story}, applied: {is_applied}"));
                if is_applied {
                    self.acknowledged_by_clock(p, v, self.asked(node, level));
                    self.clocked.partitions.borrow_mut()[at].seen = Some(v);
                } else if let Some(write) = self.clocked.partitions.borrow_mut()[at].writes.get_mut(&v) {
                    write.is_refused = true;
                }
                self.count(|c| c.clocked += 1);
                return true;
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                if code == UNAVAILABLE
                    && let Some(write) = self.clocked.partitions.borrow_mut()[at].writes.get_mut(&v)
                {
                    write.is_refused = true;
                }
                let usual = [
                    OVERLOADED,
                    WRITE_TIMEOUT,
                    WRITE_FAILURE,
                    CAS_WRITE_UNKNOWN,
                    READ_TIMEOUT,
                    READ_FAILURE,
                ];
                if code != UNAVAILABLE && !usual.contains(&code) {
                    self.fail(format!(
                        "{story}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                // A replica without the state of its acceptor cannot take a decision.
                let lacks_state = guess.is_some() && level == Level::All && code == WRITE_TIMEOUT;
                let is_explained = was_faulty || self.promises.may_lack_files && lacks_state;
                self.explain(is_explained, || format!("{story}: {message}"));
                return true;
            }
            Outcome::Answer(other) => format!("{other:?}"),
            Outcome::Lost(why) => why,
        };
        self.explain(was_faulty, || format!("{story}: {why}"));
        false
    }

    fn acknowledged_by_clock(&self, p: i32, v: i32, asked: Asked) {
        let least = self.layout.copies.least(asked);
        let error_us = self.error_us();
        let mut partitions = self.clocked.partitions.borrow_mut();
        let partition = &mut partitions[p.unsigned_abs() as usize];
        if let Some(write) = partition.writes.get_mut(&v) {
            write.ended_us = now_us();
            let weakened = write.weakened;
            let (connection, earliest) = (write.connection, write.timestamp.unwrap_or(write.sent_us - error_us));
            if self.history.borrow().counts(&least, weakened) {
                partition.raise(least, earliest);
                let last = partition.last.entry((least, connection)).or_default();
                *last = v.max(*last);
            }
        }
    }

    /// Each node reads all of it, at QUORUM and at ALL.
    pub(crate) async fn look_at_clocks(&self) -> Result<(), String> {
        for level in [Level::Quorum, Level::All] {
            for node in self.members() {
                let mut client = self.connect_patiently(node).await?;
                for p in 0..PARTITIONS {
                    if !self.read_by_clock(&mut client, node, level, p).await {
                        return Err(format!(
                            "partition {p} of u cannot be read by node {node} when all is quiet"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPIES: Copies = Copies([3, 0, 0]);

    /// Two writes of a second each, one after the other, over these connections; the later one acknowledged at QUORUM.
    /// Then a read at QUORUM.
    fn seen(connections: [u64; 2], found: Option<(i32, Option<i64>)>, error_us: i64) -> Result<(), String> {
        let quorum = COPIES.least(Asked {
            level: Level::Quorum,
            datacenter: 0,
        });
        let mut partition = Partition::default();
        for (value, connection) in (1..).zip(connections) {
            let write = Write {
                weakened: 0,
                sent_us: i64::from(value) * 2_000_000,
                ended_us: i64::from(value) * 2_000_000 + 1_000_000,
                is_refused: false,
                connection,
                timestamp: None,
            };
            partition.writes.insert(value, write);
        }
        partition.raise(quorum, 4_000_000 - error_us);
        partition.last.insert((quorum, connections[1]), 2);
        let promised = partition.promised(COPIES, &quorum, 0);
        partition.check(&promised, Some(quorum), found, error_us)
    }

    #[test]
    fn a_read_has_the_last_write_unless_the_clocks_may_differ_by_more_than_was_between_the_two() {
        for (connections, found, error_us, is_right) in [
            ([1, 2], Some((2, Some(4_500_000))), 0, true),
            ([1, 2], Some((2, Some(5_500_000))), 0, false),
            ([1, 2], Some((2, Some(3_500_000))), 0, false),
            ([1, 2], Some((2, Some(5_500_000))), 600_000, true),
            ([1, 2], Some((1, Some(2_500_000))), 0, false),
            ([1, 2], Some((1, None)), 0, false),
            ([1, 2], Some((1, Some(3_500_000))), 600_000, true),
            ([1, 2], Some((1, Some(2_500_000))), 600_000, false),
            ([1, 1], Some((1, Some(3_500_000))), 600_000, false),
            ([1, 2], Some((3, None)), 0, false),
            ([1, 2], None, 0, false),
        ] {
            let checked = seen(connections, found, error_us);
            assert_eq!(
                checked.is_ok(),
                is_right,
                "{connections:?}, {found:?}, {error_us}: {checked:?}"
            );
        }
    }
}
