//! Secondary indexes: they are created and dropped while clients write, and rows are read by their values.
//!
//! A value names its write ([`super::history`]), so a read by values is checked by both of its sides. A row that it
//! returns has the value, and is checked as by any other read. A row that it leaves out has, as far as the history
//! knows, perhaps no value, or one that was not asked for. The statements allow filtering: they are asked whether
//! there is an index or not, and while one is built.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::cells;
use super::clients::{
    A, ANSWER_WAIT_MAX, B, CHANGE_WAIT_MAX, Clients, E, OVERLOADED, Outcome, Phase, R, READ_FAILURE, READ_TIMEOUT, T,
    UNAVAILABLE, W, first_twice, millis, registers_of,
};
use super::history::{Key, Level, Span};
use crate::client::{Answer, Client};

const SERVER_ERROR: i32 = 0x0000;
const INVALID: i32 = 0x2200;
/// Tables of which one register is a row: number, name, columns.
const TABLES: [(u8, &str, &str); 5] = [
    (R, "r", "p, c, v"),
    (A, "a", "p, v"),
    (B, "b", "p, v"),
    (T, "t", "p, v"),
    (E, "e", "p, v"),
];
/// Indexes: table and target. Only those of `v` and of the entries are asked for values; what the others list is
/// compared with the rows in the end, on each replica ([`super::contents`]).
const INDEXES: [(&str, &str); 11] = [
    ("r", "v"),
    ("a", "v"),
    ("b", "v"),
    ("t", "v"),
    ("e", "v"),
    ("r", "c"),
    ("w", "entries(m)"),
    ("w", "v"),
    ("w", "s"),
    ("w", "e"),
    ("l", "v"),
];
/// Values that one statement asks for at most.
const VALUES_MAX: usize = 6;
/// Values are asked for that are at most so much older than the newest.
const RECENT: u64 = 120;
const ROWS_PER_PAGE: i32 = 100;

/// What a statement asks for.
enum Condition {
    OneOf(Vec<i32>),
    /// After the first one, up to and with the second one.
    Between(i32, i32),
}

impl Condition {
    fn draw(dice: u64, last: i32) -> Self {
        let recent = |dice: u64| (last - i32::try_from(dice % RECENT).expect("a small number")).max(1);
        match dice % 8 {
            0 => Self::Between(0, i32::MAX),
            1..=2 => {
                let (one, other) = (recent(dice >> 4), recent(dice >> 12));
                Self::Between(one.min(other), one.max(other))
            }
            number => {
                let number = usize::try_from(number - 2).expect("below 6");
                Self::OneOf((0..number).map(|at| recent(dice >> (3 * at))).collect())
            }
        }
    }

    fn is_met(&self, value: i32) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::Between(after, to) => *after < value && value <= *to,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::OneOf(values) => match &values[..] {
                [value] => format!("v = {value}"),
                _ => format!(
                    "v IN ({})",
                    values.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
                ),
            },
            Self::Between(after, to) => format!("v > {after} AND v <= {to}"),
        }
    }
}

/// A read by values.
struct ByValue {
    text: String,
    /// The registers that the condition is about.
    keys: Vec<Key>,
    condition: Condition,
    rows_per_page: Option<i32>,
}

fn name((table, target): (&str, &str)) -> String {
    let target: String = target.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("of_{table}_{target}")
}

fn create(index: (&str, &str)) -> String {
    format!(
        "CREATE INDEX IF NOT EXISTS {} ON k.{} ({})",
        name(index),
        index.0,
        index.1
    )
}

/// The indexes that tables have from the beginning: half of all.
pub(super) fn first_indexes() -> Vec<String> {
    let dice = runtime::random_u64();
    let of = |(at, index): (usize, &(&str, &str))| (dice >> at & 1 == 1).then(|| create(*index));
    INDEXES.iter().enumerate().filter_map(of).collect()
}

impl Clients {
    /// Creates and drops indexes, each statement by any node. Spawn this; it never returns.
    pub(crate) async fn change_indexes(self: Rc<Self>) {
        loop {
            runtime::sleep(Duration::from_millis(300 + runtime::random_u64() % 2500)).await;
            let node = self.any_member();
            if self.phase.get() != Phase::Work {
                continue;
            }
            let Some(mut client) = self.connect(node).await else {
                continue;
            };
            let dice = runtime::random_u64();
            let index = INDEXES[usize::try_from(dice % INDEXES.len() as u64).expect("a few")];
            let text = match (dice >> 8) % 3 {
                0 => format!("DROP INDEX IF EXISTS k.{}", name(index)),
                _ => create(index),
            };
            self.change_index(&mut client, node, index.0, &text).await;
        }
    }

    async fn change_index(&self, client: &mut Client, node: usize, table: &str, text: &str) {
        let (was_faulty, times_faulty) = (self.faulty.get(), self.times_faulty.get());
        let why = match runtime::timeout(CHANGE_WAIT_MAX, client.ask(text)).await {
            Ok(Ok(Answer::Done)) => return self.count(|c| c.index_changes += 1),
            Ok(Ok(Answer::Error { code, message })) => {
                // The table may be dropped and made again just now.
                if code == INVALID && table == "t" {
                    return;
                }
                if code != SERVER_ERROR {
                    self.fail(format!(
                        "{text} by node {node}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                message
            }
            Ok(Ok(other)) => return self.fail(format!("{text}: {other:?}")),
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("no answer within {CHANGE_WAIT_MAX:?}"),
        };
        let was_faulty = was_faulty || self.times_faulty.get() != times_faulty;
        self.explain(was_faulty, || format!("{text} by node {node}: {why}"));
    }

    fn plan_by_value(&self, dice: u64) -> ByValue {
        let history = self.history.borrow();
        let last = history.last_timestamp();
        let rows_per_page = (dice >> 40)
            .is_multiple_of(3)
            .then(|| i32::try_from(1 + (dice >> 42) % 4).expect("few rows"));
        if dice.is_multiple_of(6) {
            let (element, registers) = cells::registers_of_entry(dice >> 8);
            let value = (last - i32::try_from((dice >> 16) % RECENT).expect("a small number")).max(1);
            return ByValue {
                text: format!("SELECT p, c, m FROM k.w WHERE m[{element}] = {value} ALLOW FILTERING"),
                keys: registers,
                condition: Condition::OneOf(vec![value]),
                rows_per_page,
            };
        }
        let (table, name, columns) = TABLES[usize::try_from((dice >> 4) % TABLES.len() as u64).expect("a few")];
        let condition = Condition::draw(dice >> 16, last);
        ByValue {
            text: format!(
                "SELECT {columns} FROM k.{name} WHERE {} ALLOW FILTERING",
                condition.text()
            ),
            keys: history.keys(table),
            condition,
            rows_per_page,
        }
    }

    /// Reads some rows by their values. Whether the connection is still good.
    pub(crate) async fn read_by_value(&self, client: &mut Client, node: usize, level: Level, dice: u64) -> bool {
        let planned = self.plan_by_value(dice);
        let is_at_truncated = planned.keys.first().is_some_and(|key| key.0 == T);
        if is_at_truncated && self.waits_for_truncation() {
            return true;
        }
        let under_way = self.at_truncated_table.get();
        self.at_truncated_table.set(under_way + usize::from(is_at_truncated));
        let is_connected = self.ask_by_value(client, node, level, &planned).await;
        let under_way = self.at_truncated_table.get();
        self.at_truncated_table.set(under_way - usize::from(is_at_truncated));
        is_connected
    }

    async fn ask_by_value(&self, client: &mut Client, node: usize, level: Level, planned: &ByValue) -> bool {
        let asked = self.asked(node, level);
        let floor = |key: &Key| (*key, self.history.borrow().floor(*key, asked));
        let floors: BTreeMap<Key, i32> = planned.keys.iter().map(floor).collect();
        let (was_faulty, sent) = (self.faulty.get(), millis());
        let weakened = self.history.borrow().weakened();
        let story = || format!("{} by node {node} at {level:?} at {sent} ms", planned.text);
        let outcome = match planned.rows_per_page {
            None => self.ask(client, &planned.text, level, ANSWER_WAIT_MAX).await,
            Some(rows) => self.walk(client, &planned.text, level, rows).await,
        };
        let Some(table) = planned.keys.first().map(|key| key.0) else {
            return true;
        };
        match outcome {
            Outcome::Answer(Answer::Rows(rows, None)) => {
                let found = registers_of(table, &rows);
                if let Some(twice) = first_twice(table, &rows) {
                    self.fail(format!("{}: {twice:?} is there twice", story()));
                }
                let span = Span {
                    sent,
                    answered: millis(),
                    weakened,
                };
                let checked = self.check_by_value(planned, &found, |key, value| {
                    let floor = floors.get(&key).copied().unwrap_or(0);
                    let mut history = self.history.borrow_mut();
                    match value {
                        Some(value) => history.check(key, floor, asked, span, Some(value)),
                        None => {
                            history.check_left_out(key, floor, asked, span, |value| planned.condition.is_met(value))
                        }
                    }
                });
                if let Err(text) = checked {
                    self.fail(format!("{}: {text}", story()));
                }
                self.count(|c| c.by_value += 1);
                self.note_served(node, level);
                true
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                if !matches!(code, UNAVAILABLE | OVERLOADED | READ_TIMEOUT | READ_FAILURE) {
                    self.fail(format!(
                        "{}: an error that the test does not expect, {code:#x}: {message}",
                        story()
                    ));
                }
                self.explain(was_faulty || self.promises.may_lack_files, || {
                    format!("{}: {message}", story())
                });
                true
            }
            Outcome::Answer(other) => {
                self.fail(format!("{}: {other:?}", story()));
                false
            }
            Outcome::Lost(why) => {
                self.explain(was_faulty, || format!("{}: {why}", story()));
                false
            }
        }
    }

    /// Checks what was found, and what was not.
    fn check_by_value(
        &self,
        planned: &ByValue,
        found: &BTreeMap<Key, i32>,
        mut check: impl FnMut(Key, Option<i32>) -> Result<(), String>,
    ) -> Result<(), String> {
        for (key, value) in found {
            // A row of `w` shows the other entries of its map too.
            let is_asked = key.0 != W || planned.keys.contains(key);
            if is_asked && !planned.condition.is_met(*value) {
                return Err(format!("{key:?} is {value}, which does not meet the condition"));
            }
            check(*key, Some(*value))?;
        }
        planned
            .keys
            .iter()
            .filter(|key| !found.contains_key(key))
            .try_for_each(|key| check(*key, None))
    }

    /// When all replicas hold the same, each node finds the rows at ONE by their values: all, and those of a few
    /// values.
    pub(crate) async fn look_by_value(&self, registers: &BTreeMap<Key, i32>) -> Result<(), String> {
        for node in self.members() {
            let mut client = self.connect_patiently(node).await?;
            for (table, name, columns) in TABLES {
                let of_table = |(key, value): (&Key, &i32)| (key.0 == table).then_some((*key, *value));
                let rows: Vec<(Key, i32)> = registers.iter().filter_map(of_table).collect();
                if table == E && rows.is_empty() {
                    continue;
                }
                let some = rows
                    .chunks(VALUES_MAX)
                    .map(|rows| Condition::OneOf(rows.iter().map(|(_, v)| *v).collect()));
                for condition in some.chain([Condition::Between(0, i32::MAX)]) {
                    let text = format!(
                        "SELECT {columns} FROM k.{name} WHERE {} ALLOW FILTERING",
                        condition.text()
                    );
                    let found = match self.walk(&mut client, &text, Level::One, ROWS_PER_PAGE).await {
                        Outcome::Answer(Answer::Rows(rows, None)) => registers_of(table, &rows),
                        Outcome::Answer(other) => return Err(format!("{text} when all is quiet: {other:?}")),
                        Outcome::Lost(why) => return Err(format!("{text} when all is quiet: {why}")),
                    };
                    let expected = rows.iter().filter(|(_, value)| condition.is_met(*value));
                    let expected: BTreeMap<Key, i32> = expected.copied().collect();
                    if found != expected {
                        return Err(format!(
                            "{text} by node {node} at ONE when all replicas are equal: {found:?}, and the rows are {expected:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
