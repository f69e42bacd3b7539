//! Clients of conditional statements: a few partitions of table `l (p, c, v)`, which nothing else writes to.
//!
//! Each partition has two rows, and is asked for at one of SERIAL and LOCAL_SERIAL always, by nodes of one datacenter
//! in the second case, because the two do not see each other. All that clients see of a partition must fit one order
//! ([`testkit::linearizable`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::clients::{
    ANSWER_WAIT_MAX, CAS_WRITE_UNKNOWN, Clients, Mix, OVERLOADED, Outcome, READ_FAILURE, READ_TIMEOUT, UNAVAILABLE,
};
use super::clients::{WRITE_FAILURE, WRITE_TIMEOUT};
use super::history::Level;
use crate::client::{Answer, Client};
use crate::decode::Rows;
use crate::model::Value;
use testkit::linearizable::{self, Change, Operation, ROWS, Requires};

/// Most partitions; those with an odd number at LOCAL_SERIAL.
pub(crate) const PARTITIONS: usize = 16;
/// Partitions that are used where no statement is to wait for another.
const SPREAD: usize = PARTITIONS;
/// Partitions otherwise.
const USUAL: usize = 4;
/// What a statement says whose acceptors forgot it by a truncation.
const TRUNCATED: &str = "the table was truncated meanwhile";
/// The protocol's numbers of the levels.
const SERIAL: u16 = 8;
const LOCAL_SERIAL: u16 = 9;

/// What was asked and answered, by partition.
#[derive(Default)]
pub(crate) struct Conditional {
    operations: [RefCell<Vec<Operation>>; PARTITIONS],
    /// What was seen last of each row: the guess of conditions.
    seen: RefCell<[[Option<i32>; ROWS]; PARTITIONS]>,
    last: Cell<i32>,
    /// By TRUNCATE without an answer yet, the number of its operation in each partition.
    truncations: RefCell<Vec<[usize; PARTITIONS]>>,
    /// When the last TRUNCATE was answered.
    truncated: Cell<u64>,
}

/// A statement, and what it requires and does if it is applied.
struct Planned {
    text: String,
    requires: [Requires; ROWS],
    changes: [Change; ROWS],
}

impl Conditional {
    fn value(&self) -> i32 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    fn plan(&self, p: usize, dice: u64) -> Planned {
        let c = usize::from(dice & 1 == 1);
        let guess = self.seen.borrow()[p];
        let (v, row) = (self.value(), format!("p = {p} AND c = {c}"));
        let one = |text: String, requires, change| {
            let mut planned = Planned {
                text,
                requires: [Requires::Anything; ROWS],
                changes: [Change::Keep; ROWS],
            };
            planned.requires[c] = requires;
            planned.changes[c] = change;
            planned
        };
        match ((dice >> 1) % 12, guess[c]) {
            (0..=1, Some(old)) => {
                let text = format!("DELETE FROM k.l WHERE {row} IF v = {old}");
                one(text, Requires::Is(Some(old)), Change::Delete)
            }
            (2, _) => one(
                format!("DELETE FROM k.l WHERE {row} IF EXISTS"),
                Requires::Exists,
                Change::Delete,
            ),
            (3, _) => one(
                format!("UPDATE k.l SET v = {v} WHERE {row} IF EXISTS"),
                Requires::Exists,
                Change::Set(v),
            ),
            (4..=5, Some(_)) if guess[1 - c].is_some() => {
                let update = |c: usize| {
                    let old = guess[c].unwrap_or_default();
                    format!("UPDATE k.l SET v = {v} WHERE p = {p} AND c = {c} IF v = {old}; ")
                };
                Planned {
                    text: format!("BEGIN BATCH {}{}APPLY BATCH", update(0), update(1)),
                    requires: guess.map(Requires::Is),
                    changes: [Change::Set(v); ROWS],
                }
            }
            (6..=11, Some(old)) => {
                let text = format!("UPDATE k.l SET v = {v} WHERE {row} IF v = {old}");
                one(text, Requires::Is(Some(old)), Change::Set(v))
            }
            _ => {
                let text = format!("INSERT INTO k.l (p, c, v) VALUES ({p}, {c}, {v}) IF NOT EXISTS");
                one(text, Requires::Is(None), Change::Set(v))
            }
        }
    }

    /// Writes one row whatever it has. See [`Mix::Serial`].
    fn plan_update(&self, p: usize, c: usize) -> Planned {
        let (v, is_there) = (self.value(), self.seen.borrow()[p][c].is_some());
        let text = if is_there {
            format!("UPDATE k.l SET v = {v} WHERE p = {p} AND c = {c} IF EXISTS")
        } else {
            format!("INSERT INTO k.l (p, c, v) VALUES ({p}, {c}, {v}) IF NOT EXISTS")
        };
        let mut planned = Planned {
            text,
            requires: [Requires::Anything; ROWS],
            changes: [Change::Keep; ROWS],
        };
        planned.requires[c] = if is_there { Requires::Exists } else { Requires::Is(None) };
        planned.changes[c] = Change::Set(v);
        planned
    }

    /// A TRUNCATE is about to be sent: both rows of each partition are gone at one moment, or nothing is.
    pub(crate) fn begin_truncation(&self) {
        let sent = now();
        let numbers = std::array::from_fn(|p| {
            let mut operations = self.operations[p].borrow_mut();
            operations.push(Operation {
                sent,
                answered: None,
                requires: [Requires::Anything; ROWS],
                changes: [Change::Delete; ROWS],
                may_be_left_out: false,
                story: format!("TRUNCATE sent at {sent} us"),
            });
            operations.len() - 1
        });
        self.truncations.borrow_mut().push(numbers);
    }

    /// The one that was sent last was acknowledged; those before it, which failed, empty nothing any more.
    pub(crate) fn end_truncation(&self) {
        let mut is_last = true;
        for numbers in self.truncations.take().into_iter().rev() {
            for (p, number) in numbers.into_iter().enumerate() {
                let operation = &mut self.operations[p].borrow_mut()[number];
                operation.answered = Some(now());
                operation.may_be_left_out = !is_last;
            }
            is_last = false;
        }
        *self.seen.borrow_mut() = Default::default();
        self.truncated.set(now());
    }

    /// Whether a TRUNCATE was under way at some time since: acceptors of a statement may have forgotten it.
    fn was_truncated_since(&self, time: u64) -> bool {
        !self.truncations.borrow().is_empty() || self.truncated.get() >= time
    }

    /// Whether all that was answered fits one order.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (p, operations) in self.operations.iter().enumerate() {
            let checked = linearizable::check(&operations.borrow());
            checked.map_err(|objection| format!("partition {p} of conditional statements: {objection}"))?;
        }
        Ok(())
    }
}

fn now() -> u64 {
    runtime::now().as_nanos() / 1000
}

impl Clients {
    /// One conditional statement, or one serial read. Whether the connection is still good.
    pub(crate) async fn act_conditionally(&self, client: &mut Client, node: usize, dice: u64) -> bool {
        let partitions = match self.workload.mix {
            // Few meet another on their partition, or all would take turns.
            Mix::Serial => SPREAD,
            _ if self.workload.is_hot => 1,
            _ => USUAL,
        };
        let mut p = usize::try_from(dice % partitions as u64).expect("few partitions");
        if !self.asks_serially(node, p) {
            p -= 1;
        }
        let is_mix = self.workload.mix == Mix::Serial;
        if (dice >> 4).is_multiple_of(3) || is_mix && !(dice >> 8).is_multiple_of(3) {
            return self.read_serially(client, node, p).await.is_some();
        }
        if is_mix {
            // One after the other, so that the second is decided before all replicas have learned the first.
            for c in 0..ROWS {
                let planned = self.conditional.plan_update(p, c);
                if !self.decide(client, node, p, Level::One, planned).await {
                    return false;
                }
            }
            return true;
        }
        let level = match dice >> 12 & 7 {
            0 => Level::One,
            1 => Level::All,
            2 => Level::LocalQuorum,
            3 => Level::EachQuorum,
            _ => Level::Quorum,
        };
        let planned = self.conditional.plan(p, dice >> 16);
        self.decide(client, node, p, level, planned).await
    }

    /// One conditional statement. Whether the connection is still good.
    async fn decide(&self, client: &mut Client, node: usize, p: usize, level: Level, planned: Planned) -> bool {
        let sent = now();
        let was_faulty = self.faulty.get();
        let story = format!("{} by node {node} at {level:?}, sent at {sent} us", planned.text);
        let Some(number) = self.begin(p, sent, &planned, &story) else {
            return true;
        };
        let asking = client.ask_serially(&planned.text, level.code(), serial_level(p));
        let why = match self.within(ANSWER_WAIT_MAX, asking).await {
            Outcome::Answer(Answer::Rows(rows, None)) => {
                match outcome(&rows) {
                    Some((true, _)) => self.note(p, number, &planned.requires, &planned.changes, "applied"),
                    Some((false, found)) => {
                        let requires = requirements(&planned, &found);
                        self.note(
                            p,
                            number,
                            &requires,
                            &[Change::Keep; ROWS],
                            &format!("not applied: {found:?}"),
                        );
                    }
                    None => self.fail(format!("{story}: an answer without [applied]: {rows:?}")),
                }
                self.count(|c| c.conditional += 1);
                self.note_served(node, Level::Quorum);
                return true;
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                if code == UNAVAILABLE {
                    self.note(
                        p,
                        number,
                        &[Requires::Anything; ROWS],
                        &[Change::Keep; ROWS],
                        "unavailable",
                    );
                } else if !matches!(
                    code,
                    // The rows that the condition is about are read first.
                    OVERLOADED | WRITE_TIMEOUT | WRITE_FAILURE | CAS_WRITE_UNKNOWN | READ_TIMEOUT | READ_FAILURE
                ) {
                    self.fail(format!(
                        "{story}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                // A decision that all replicas are to know: one that has no state of its acceptor cannot note it.
                let lacks_state = level == Level::All && code == WRITE_TIMEOUT;
                let is_explained = was_faulty
                    || self.promises.may_lack_files && lacks_state
                    || message.contains(TRUNCATED) && self.conditional.was_truncated_since(sent);
                self.explain(is_explained, || format!("{story}: {message}"));
                return true;
            }
            Outcome::Answer(other) => {
                self.fail(format!("{story}: {other:?}"));
                return true;
            }
            Outcome::Lost(why) => why,
        };
        self.explain(was_faulty, || format!("{story}: {why}"));
        false
    }

    /// Whether a node asks for a partition: at LOCAL_SERIAL only those of one datacenter do.
    fn asks_serially(&self, node: usize, p: usize) -> bool {
        p.is_multiple_of(2) || self.layout.datacenter(node) == p / 2 % self.layout.datacenters()
    }

    /// Reads a partition serially. None when the connection is lost, nothing within after an error.
    async fn read_serially(&self, client: &mut Client, node: usize, p: usize) -> Option<bool> {
        let text = format!("SELECT c, v FROM k.l WHERE p = {p}");
        let sent = now();
        let was_faulty = self.faulty.get();
        let level = serial_level(p);
        let story = format!("{text} by node {node} at serial level {level}, sent at {sent} us");
        let asking = client.ask_at(&text, level);
        match self.within(ANSWER_WAIT_MAX, asking).await {
            Outcome::Answer(Answer::Rows(rows, None)) => {
                let mut found = [None; ROWS];
                for (c, value) in rows_of(&rows) {
                    found[c] = value;
                }
                let operation = Operation {
                    sent,
                    answered: Some(now()),
                    requires: found.map(Requires::Is),
                    changes: [Change::Keep; ROWS],
                    may_be_left_out: false,
                    story: format!("{story}: {found:?}"),
                };
                self.conditional.operations[p].borrow_mut().push(operation);
                self.conditional.seen.borrow_mut()[p] = found;
                self.count(|c| c.serial_reads += 1);
                Some(true)
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                // Before version 5 of the protocol a read that must finish a statement has no error of its own.
                if !matches!(
                    code,
                    UNAVAILABLE | OVERLOADED | READ_TIMEOUT | READ_FAILURE | WRITE_TIMEOUT | CAS_WRITE_UNKNOWN
                ) {
                    self.fail(format!(
                        "{story}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                self.explain(was_faulty, || format!("{story}: {message}"));
                Some(false)
            }
            Outcome::Answer(other) => {
                self.fail(format!("{story}: {other:?}"));
                None
            }
            Outcome::Lost(why) => {
                self.explain(was_faulty, || format!("{story}: {why}"));
                None
            }
        }
    }

    /// A statement is about to be sent: whatever becomes of it, it may take place from now on.
    fn begin(&self, p: usize, sent: u64, planned: &Planned, story: &str) -> Option<usize> {
        let mut operations = self.conditional.operations[p].borrow_mut();
        operations.push(Operation {
            sent,
            answered: None,
            requires: planned.requires,
            changes: planned.changes,
            may_be_left_out: false,
            story: story.to_owned(),
        });
        operations.len().checked_sub(1)
    }

    fn note(&self, p: usize, number: usize, requires: &[Requires; ROWS], changes: &[Change; ROWS], what: &str) {
        let mut seen = self.conditional.seen.borrow_mut();
        for c in 0..ROWS {
            match (changes[c], requires[c]) {
                (Change::Set(value), _) => seen[p][c] = Some(value),
                (Change::Delete, _) => seen[p][c] = None,
                (Change::Keep, Requires::Is(value)) => seen[p][c] = value,
                (Change::Keep, Requires::Exists | Requires::Anything) => {}
            }
        }
        let operation = &mut self.conditional.operations[p].borrow_mut()[number];
        operation.answered = Some(now());
        operation.requires = *requires;
        operation.changes = *changes;
        operation.story.push_str(": ");
        operation.story.push_str(what);
    }

    /// Each node reads each partition once more; then all must fit one order.
    pub(crate) async fn look_at_conditional_statements(&self) -> Result<(), String> {
        for node in self.members() {
            let mut client = self.connect_patiently(node).await?;
            for p in (0..PARTITIONS).filter(|p| self.asks_serially(node, *p)) {
                if self.read_serially(&mut client, node, p).await != Some(true) && self.failure().is_none() {
                    return Err(format!(
                        "partition {p} cannot be read serially by node {node} when all is quiet"
                    ));
                }
            }
        }
        self.conditional.check()
    }
}

fn serial_level(p: usize) -> u16 {
    if p.is_multiple_of(2) { SERIAL } else { LOCAL_SERIAL }
}

fn int(row: &BTreeMap<String, Value>, column: &str) -> Option<i32> {
    match row.get(column) {
        Some(Value::Int(n)) => Some(*n),
        _ => None,
    }
}

/// The rows of a result, by number.
fn rows_of(rows: &Rows) -> Vec<(usize, Option<i32>)> {
    let row = |row: &BTreeMap<String, Value>| {
        let c = usize::try_from(int(row, "c")?).ok().filter(|c| *c < ROWS)?;
        Some((c, int(row, "v")))
    };
    rows.iter().filter_map(row).collect()
}

/// Whether a statement was applied, and else what it has found: rows without a number belong to the only one that was
/// asked for.
type OutcomeRows = Vec<(Option<usize>, Option<i32>)>;

fn outcome(rows: &Rows) -> Option<(bool, OutcomeRows)> {
    let applied = int(rows.first()?, "[applied]")? == 1;
    let found = rows.iter().map(|row| {
        let c = int(row, "c")
            .and_then(|c| usize::try_from(c).ok())
            .filter(|c| *c < ROWS);
        (c, int(row, "v"))
    });
    Some((applied, found.collect()))
}

/// What an answer says of the rows when the statement was not applied.
fn requirements(planned: &Planned, found: &OutcomeRows) -> [Requires; ROWS] {
    let mut requires = [Requires::Anything; ROWS];
    let asked: Vec<usize> = (0..ROWS)
        .filter(|c| planned.requires[*c] != Requires::Anything)
        .collect();
    for (c, value) in found {
        match (c, &asked[..]) {
            (Some(c), _) => requires[*c] = Requires::Is(*value),
            (None, [only]) => requires[*only] = Requires::Is(*value),
            (None, _) => {}
        }
    }
    requires
}
