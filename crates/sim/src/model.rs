//! What a table must hold, naively: for each partition the statements in the order of their timestamps.
//!
//! A client writes each partition in one order with rising timestamps, so "the newest timestamp wins" is "play the
//! statements in order". A statement is *sure* or in *doubt*: in doubt while it has no answer, when its answer was an
//! error, and when it was acknowledged too shortly before a power loss. What a statement with a TTL wrote lives until
//! some second between that of its sending and that of its answer, plus the TTL; from then on it is as if the statement
//! had deleted what it wrote. A partition is right when some choice of the doubtful statements, each wholly or not at
//! all, and of those whose TTL may have ended, played with all the sure ones, gives what was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use runtime::Instant;

/// The static column.
const STATIC: &str = "st";

/// Choices of a partition up to which all are tried.
const CHOICES_MAX: usize = 1 << 14;

/// The longest TTL that is written, in seconds.
pub const TTL_MAX: i64 = 4;

/// Orders the elements of a list: those that were written later are at the back, those that were prepended at the
/// front.
pub type Element = (i64, i32);

/// A value of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `int`
    Int(i32),
    /// `text`
    Text(String),
    /// `set<int>`
    Set(BTreeSet<i32>),
    /// `map<int, int>`
    Map(BTreeMap<i32, i32>),
    /// `list<int>`; in what was read the elements are numbered.
    List(BTreeMap<Element, i32>),
}

impl Value {
    /// A list as it is read.
    pub fn list(values: impl IntoIterator<Item = i32>) -> Self {
        Self::List((0..).zip(values).map(|(i, v)| ((i, 0), v)).collect())
    }
}

/// The seconds of wall clocks in which something happened: the first and the last that are possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seconds {
    /// It did not happen before.
    pub first: i64,
    /// It did not happen after.
    pub last: i64,
}

/// What a statement does to a partition.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// INSERT: the row is there even if all its columns are null.
    Marker(i32),
    /// The end of an INSERT's TTL.
    Unmark(i32),
    /// A whole value, or null.
    Set(CellAddress, Option<Value>),
    /// Entries of a set, map or list.
    Add(CellAddress, Value),
    /// Entries removed by key.
    Remove(CellAddress, BTreeSet<i32>),
    /// Elements of a list removed.
    RemoveElements(CellAddress, BTreeSet<Element>),
    /// Rows removed, both ends inclusive.
    DeleteRows(i32, i32),
    /// Everything removed.
    DeletePartition,
}

/// A column of a row, or of the partition where there is no row.
#[derive(Clone, PartialEq, Debug)]
pub struct CellAddress {
    /// The clustering key; 0 in tables without one.
    pub row: Option<i32>,
    /// The column.
    pub column: String,
}

impl Change {
    /// The column it is about, if it is about one.
    fn place(&self) -> Option<&CellAddress> {
        match self {
            Self::Set(p, _) | Self::Add(p, _) | Self::Remove(p, _) | Self::RemoveElements(p, _) => Some(p),
            Self::Marker(_) | Self::Unmark(_) | Self::DeleteRows(..) | Self::DeletePartition => None,
        }
    }

    /// What is left of it once its TTL has ended.
    fn expired(&self) -> Self {
        match self {
            Self::Marker(row) => Self::Unmark(*row),
            Self::Set(place, _) => Self::Set(place.clone(), None),
            Self::Add(place, Value::Set(keys)) => Self::Remove(place.clone(), keys.clone()),
            Self::Add(place, Value::Map(entries)) => Self::Remove(place.clone(), entries.keys().copied().collect()),
            Self::Add(place, Value::List(elements)) => {
                Self::RemoveElements(place.clone(), elements.keys().copied().collect())
            }
            other => other.clone(),
        }
    }
}

/// A statement's part in one partition.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its write timestamp.
    pub timestamp: i64,
    /// What it does.
    pub changes: Vec<Change>,
    /// The seconds at which what it wrote may expire.
    pub expires: Option<Seconds>,
    /// Whether it is part of a logged batch, which counts all or not at all over partitions and tables.
    pub is_logged: bool,
    /// When it was acknowledged.
    pub acknowledged: Option<Instant>,
    /// Whether it may be missing although it was acknowledged.
    pub lost_maybe: bool,
}

/// The possible outcomes of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Living,
    Expired,
    Missing,
}

impl Statement {
    fn in_doubt(&self) -> bool {
        self.acknowledged.is_none() || self.lost_maybe
    }

    /// What a read in these seconds may find it to be; what is likely first.
    fn states(&self, read: Seconds) -> Vec<State> {
        let mut states = Vec::new();
        if self.expires.is_none_or(|e| read.first < e.last) {
            states.push(State::Living);
        }
        if self.expires.is_some_and(|e| read.last >= e.first) {
            states.push(State::Expired);
        }
        if self.in_doubt() {
            states.push(State::Missing);
        }
        states
    }

    fn play(&self, state: State, content: &mut Content) {
        match state {
            State::Living => self.changes.iter().for_each(|c| content.play(c)),
            State::Expired => self.changes.iter().for_each(|c| content.play(&c.expired())),
            State::Missing => {}
        }
    }
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Row {
    marker: bool,
    cells: BTreeMap<String, Value>,
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Content {
    statics: BTreeMap<String, Value>,
    rows: BTreeMap<i32, Row>,
}

/// What a SELECT shows of a partition: rows by clustering key, each with its values and the static ones; a partition of
/// static values only is one row without a key.
pub type Shown = BTreeMap<Option<i32>, BTreeMap<String, Value>>;

/// A partition: what is sure since the last time it was settled, and the statements after it.
#[derive(Clone, Default, Debug)]
pub struct Partition {
    base: Content,
    statements: Vec<Statement>,
    /// The table lost a column: rows that had nothing else are not looked at, as the node still shows them.
    may_show_empty_rows: bool,
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Set(s) => s.is_empty(),
        Value::Map(m) => m.is_empty(),
        Value::List(l) => l.is_empty(),
        Value::Int(_) | Value::Text(_) => false,
    }
}

impl Content {
    fn cells(&mut self, row: Option<i32>) -> &mut BTreeMap<String, Value> {
        match row {
            None => &mut self.statics,
            Some(row) => &mut self.rows.entry(row).or_default().cells,
        }
    }

    fn play(&mut self, change: &Change) {
        match change {
            Change::Marker(row) => self.rows.entry(*row).or_default().marker = true,
            Change::Unmark(row) => self.rows.entry(*row).or_default().marker = false,
            Change::Set(place, value) => {
                let cells = self.cells(place.row);
                match value {
                    Some(value) if !is_empty(value) => cells.insert(place.column.clone(), value.clone()),
                    _ => cells.remove(&place.column),
                };
            }
            Change::Add(place, more) => {
                let cells = self.cells(place.row);
                match (cells.get_mut(&place.column), more) {
                    (Some(Value::Set(set)), Value::Set(more)) => set.extend(more),
                    (Some(Value::Map(map)), Value::Map(more)) => map.extend(more),
                    (Some(Value::List(list)), Value::List(more)) => list.extend(more),
                    _ => {
                        cells.insert(place.column.clone(), more.clone());
                    }
                }
            }
            Change::Remove(place, keys) => self.remove(place, |value| match value {
                Value::Set(set) => set.retain(|k| !keys.contains(k)),
                Value::Map(map) => map.retain(|k, _| !keys.contains(k)),
                Value::Int(_) | Value::Text(_) | Value::List(_) => {}
            }),
            Change::RemoveElements(place, elements) => self.remove(place, |value| {
                if let Value::List(list) = value {
                    list.retain(|e, _| !elements.contains(e));
                }
            }),
            Change::DeleteRows(from, to) => self.rows.retain(|row, _| row < from || row > to),
            Change::DeletePartition => *self = Self::default(),
        }
    }

    /// Takes entries out of a collection; an empty one is null.
    fn remove(&mut self, place: &CellAddress, remove: impl FnOnce(&mut Value)) {
        let cells = self.cells(place.row);
        if let Some(value) = cells.get_mut(&place.column) {
            remove(value);
            if is_empty(value) {
                cells.remove(&place.column);
            }
        }
    }

    fn shown(&self) -> Shown {
        let mut shown = self.shown_elements();
        for value in shown.values_mut().flat_map(BTreeMap::values_mut) {
            if let Value::List(elements) = value {
                *value = Value::list(elements.values().copied());
            }
        }
        shown
    }

    fn shown_elements(&self) -> Shown {
        let mut shown = Shown::new();
        for (key, row) in &self.rows {
            if row.marker || !row.cells.is_empty() {
                let mut cells = row.cells.clone();
                cells.extend(self.statics.clone());
                shown.insert(Some(*key), cells);
            }
        }
        if shown.is_empty() && !self.statics.is_empty() {
            shown.insert(None, self.statics.clone());
        }
        shown
    }

    fn drop_column(&mut self, column: &str) {
        self.statics.remove(column);
        for row in self.rows.values_mut() {
            row.cells.remove(column);
        }
    }
}

impl Partition {
    /// Notes a statement that is about to be sent.
    pub fn send(&mut self, timestamp: i64, changes: Vec<Change>, expires: Option<Seconds>, is_logged: bool) {
        self.statements.push(Statement {
            timestamp,
            changes,
            expires,
            is_logged,
            acknowledged: None,
            lost_maybe: false,
        });
    }

    /// Notes that a statement was acknowledged, `waited` seconds later at most than the last at which it can have been
    /// sent.
    pub fn acknowledge(&mut self, timestamp: i64, now: Instant, waited: i64) {
        for statement in self.statements.iter_mut().filter(|s| s.timestamp == timestamp) {
            statement.acknowledged = Some(now);
            if let Some(expires) = &mut statement.expires {
                expires.last = expires.first + waited;
            }
        }
    }

    /// The elements of a list, where no statement is in doubt and none may expire.
    #[must_use]
    pub fn list(&self, place: &CellAddress) -> Option<BTreeMap<Element, i32>> {
        if self.statements.iter().any(|s| s.in_doubt() || s.expires.is_some()) {
            return None;
        }
        let content = self.play(|_| State::Living);
        let row = content.rows.get(&place.row?)?;
        match row.cells.get(&place.column) {
            Some(Value::List(elements)) => Some(elements.clone()),
            _ => None,
        }
    }

    /// Whether a statement was noted.
    #[must_use]
    pub fn has_sent(&self, timestamp: i64) -> bool {
        self.statements.iter().any(|s| s.timestamp == timestamp)
    }

    /// Whether a static value may have ended during a walk by pages: rows of different pages then differ in it.
    #[must_use]
    pub fn statics_may_end(&self, walk: Seconds) -> bool {
        let writes_static = |c: &Change| c.place().is_some_and(|p| p.row.is_none());
        self.statements.iter().any(|s| {
            s.expires.is_some_and(|e| walk.first < e.last && walk.last >= e.first)
                && s.changes.iter().any(writes_static)
        })
    }

    /// Statements without an acknowledgement.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.statements.iter().filter(|s| s.acknowledged.is_none()).count()
    }

    /// The power was lost: what was acknowledged after `since` may be gone.
    pub fn lose_power(&mut self, since: Instant) {
        for statement in &mut self.statements {
            statement.lost_maybe |= statement.acknowledged.is_some_and(|at| at > since);
        }
    }

    /// Statements that can no longer be in doubt nor take effect later become part of what is sure.
    pub fn settle_before(&mut self, instant: Instant, second: i64) {
        let at = Seconds {
            first: second,
            last: second,
        };
        while let Some(statement) = self.statements.first()
            && !statement.in_doubt()
            && statement.acknowledged.is_some_and(|at| at < instant)
            && statement.expires.is_none_or(|e| second >= e.last)
        {
            let state = statement.states(at)[0];
            let statement = self.statements.remove(0);
            statement.play(state, &mut self.base);
        }
    }

    /// A column is gone.
    pub fn drop_column(&mut self, column: &str) {
        self.may_show_empty_rows = true;
        self.base.drop_column(column);
        for statement in &mut self.statements {
            statement
                .changes
                .retain(|c| c.place().is_none_or(|p| p.column != column));
        }
    }

    fn play(&self, state: impl Fn(usize) -> State) -> Content {
        let mut content = self.base.clone();
        for (i, statement) in self.statements.iter().enumerate() {
            statement.play(state(i), &mut content);
        }
        content
    }

    /// Looks for a choice that explains what was read in these seconds; for `all` of them where the answer must say
    /// what became of logged batches. Err has the partition's story.
    ///
    /// # Errors
    /// When no choice does.
    pub fn explain(&self, read: &Shown, at: Seconds, all: bool) -> Result<Explained, String> {
        let mut read = read.clone();
        if self.may_show_empty_rows {
            read.retain(|_, cells| cells.keys().any(|c| c != STATIC));
        }
        let read = &read;
        let states: Vec<Vec<State>> = self.statements.iter().map(|s| s.states(at)).collect();
        let choices = states
            .iter()
            .try_fold(1_usize, |n, s| n.checked_mul(s.len()).filter(|&n| n <= CHOICES_MAX));
        let Some(choices) = choices else {
            return Ok(Explained::default());
        };
        // What is hidden by a value that expires shows later.
        let has_expiring = self.statements.iter().any(|s| s.expires.is_some());
        let mut explained = Explained::default();
        // All taken first: that is what happens most.
        for choice in 0..choices {
            let mut rest = choice;
            let chosen: Vec<State> = states
                .iter()
                .map(|s| {
                    let state = s[rest % s.len()];
                    rest /= s.len();
                    state
                })
                .collect();
            let mut shown = self.play(|i| chosen[i]).shown();
            if self.may_show_empty_rows {
                shown.retain(|_, cells| cells.keys().any(|c| c != STATIC));
            }
            if shown != *read {
                continue;
            }
            for (statement, state) in self.statements.iter().zip(&chosen) {
                let told = if statement.is_logged {
                    &mut explained.batches
                } else if self.may_show_empty_rows || has_expiring {
                    &mut explained.others
                } else {
                    continue;
                };
                let may_be = told.entry(statement.timestamp).or_default();
                may_be.there |= *state != State::Missing;
                may_be.missing |= *state == State::Missing;
            }
            explained.chosen.get_or_insert(chosen);
            if !all {
                break;
            }
        }
        if explained.chosen.is_none() {
            return Err(self.story(read));
        }
        Ok(explained)
    }

    /// After a start everything was read back, in these seconds: from here on what was read is sure, with three
    /// exceptions. A part of a logged batch may show nothing, such as the marker of a row that has other columns: what
    /// another table has of the batch may say later whether it is there. Some values show only when others have
    /// expired. A static value may be alone where rows without columns are not looked at: a later row shows it.
    pub fn settle(&mut self, explained: &Explained, at: Seconds) {
        let Some(chosen) = &explained.chosen else { return };
        let mut states = chosen.iter();
        let is_unsure = |s: &Statement| {
            let told = if s.is_logged {
                &explained.batches
            } else {
                &explained.others
            };
            told.get(&s.timestamp)
                .is_some_and(|may_be| may_be.there && may_be.missing)
        };
        self.statements
            .retain(|s| states.next().is_some_and(|state| *state != State::Missing) || is_unsure(s));
        for statement in self.statements.iter_mut().filter(|s| !is_unsure(s)) {
            statement.acknowledged = Some(Instant::from_nanos(0));
            statement.lost_maybe = false;
            if let Some(expires) = &mut statement.expires {
                // It was executed before it was read.
                expires.last = expires.last.min(expires.first.max(at.last + TTL_MAX));
            }
        }
        self.settle_before(Instant::from_nanos(1), at.first);
    }

    fn story(&self, read: &Shown) -> String {
        let mut text = format!("  sure before: {}\n", short(&self.base.shown()));
        for statement in &self.statements {
            let state = match (statement.acknowledged, statement.lost_maybe) {
                (None, _) => "not acknowledged",
                (Some(_), true) => "acknowledged shortly before a power loss",
                (Some(_), false) => "acknowledged",
            };
            let expires = statement
                .expires
                .map_or_else(String::new, |e| format!(", expires at {} to {}", e.first, e.last));
            let _ = writeln!(
                text,
                "  {} {state}{expires}: {}",
                statement.timestamp,
                short(&statement.changes)
            );
        }
        let _ = writeln!(
            text,
            "  expected (all taken): {}",
            short(&self.play(|_| State::Living).shown())
        );
        let _ = write!(text, "  read: {}", short(read));
        text
    }
}

/// What explains a read; nothing when there were too many choices to look.
#[derive(Default)]
pub struct Explained {
    chosen: Option<Vec<State>>,
    /// By timestamp, the possible effects of the logged batches in this partition.
    pub batches: BTreeMap<i64, MayBe>,
    /// By timestamp, the possible effects of other statements in this partition, where some of what they write is not
    /// checked.
    others: BTreeMap<i64, MayBe>,
}

/// Whether a part of a batch may be there, and whether it may be missing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MayBe {
    /// It explains what was read.
    pub there: bool,
    /// What was read needs no such statement.
    pub missing: bool,
}

impl Explained {
    /// Whether it was looked for.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.chosen.is_some()
    }
}

/// Debug text with the filling of long texts left out.
fn short(value: &dyn std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let mut out = String::with_capacity(text.len());
    let (mut last, mut repeated) = ('\0', 0);
    for c in text.chars() {
        repeated = if c == last { repeated + 1 } else { 0 };
        last = c;
        if repeated < 3 {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds { first: 100, last: 100 };

    fn insert(row: i32, value: i32) -> Vec<Change> {
        let place = CellAddress {
            row: Some(row),
            column: "a".to_owned(),
        };
        vec![Change::Marker(row), Change::Set(place, Some(Value::Int(value)))]
    }

    fn shown(rows: &[(i32, i32)]) -> Shown {
        rows.iter()
            .map(|&(row, value)| (Some(row), BTreeMap::from([("a".to_owned(), Value::Int(value))])))
            .collect()
    }

    fn partition(acknowledged: &[bool]) -> Partition {
        let mut partition = Partition::default();
        for (i, &acknowledged) in (1..).zip(acknowledged) {
            partition.send(i64::from(i), insert(i, i), None, false);
            if acknowledged {
                partition.acknowledge(i64::from(i), runtime::now(), 0);
            }
        }
        partition
    }

    #[test]
    fn a_lost_acknowledged_statement_is_noticed() {
        let partition = partition(&[true, true]);
        assert!(partition.explain(&shown(&[(1, 1), (2, 2)]), NOW, false).is_ok());
        assert!(
            partition.explain(&shown(&[(1, 1)]), NOW, false).is_err(),
            "row 2 was acknowledged"
        );
    }

    #[test]
    fn a_statement_without_answer_may_be_missing_but_not_torn() {
        let mut partition = partition(&[true, false]);
        assert!(partition.explain(&shown(&[(1, 1), (2, 2)]), NOW, false).is_ok());
        assert!(partition.explain(&shown(&[(1, 1)]), NOW, false).is_ok());
        let both = [insert(3, 3), insert(4, 4)].concat();
        partition.send(9, both, None, false);
        assert!(
            partition.explain(&shown(&[(1, 1), (3, 3)]), NOW, false).is_err(),
            "half a statement is no statement"
        );
    }

    #[test]
    fn what_was_deleted_may_not_come_back() {
        let mut partition = partition(&[true]);
        partition.send(5, vec![Change::DeleteRows(0, 9)], None, false);
        partition.acknowledge(5, runtime::now(), 0);
        assert!(partition.explain(&Shown::new(), NOW, false).is_ok());
        assert!(partition.explain(&shown(&[(1, 1)]), NOW, false).is_err());
    }

    #[test]
    fn a_row_with_a_ttl_may_be_there_or_not_only_in_the_seconds_around_its_end() {
        let mut partition = partition(&[true]);
        let expires = Seconds {
            first: 102,
            last: i64::MAX,
        };
        partition.send(5, insert(1, 7), Some(expires), false);
        partition.acknowledge(5, runtime::now(), 1);
        let at = |second| Seconds {
            first: second,
            last: second,
        };
        for (second, lives, is_gone) in [(101, true, false), (102, true, true), (103, false, true)] {
            let there = partition.explain(&shown(&[(1, 7)]), at(second), false).is_ok();
            let gone = partition.explain(&Shown::new(), at(second), false).is_ok();
            assert_eq!((there, gone), (lives, is_gone), "at second {second}");
            let former = partition.explain(&shown(&[(1, 1)]), at(second), false);
            assert!(former.is_err(), "an expired value does not uncover an older one");
        }
    }

    #[test]
    fn list_elements_stand_in_the_order_of_their_writing() {
        let place = CellAddress {
            row: Some(1),
            column: "l".to_owned(),
        };
        let add = |element, value| Change::Add(place.clone(), Value::List(BTreeMap::from([(element, value)])));
        let mut partition = Partition::default();
        for (timestamp, change) in [
            (1, add((1, 0), 10)),
            (2, add((2, 0), 20)),
            (3, add((-3, 0), 30)),
            (4, add((1, 0), 11)),
            (5, Change::RemoveElements(place.clone(), BTreeSet::from([(2, 0)]))),
        ] {
            partition.send(timestamp, vec![change], None, false);
            partition.acknowledge(timestamp, runtime::now(), 0);
        }
        let list = BTreeMap::from([("l".to_owned(), Value::list([30, 11]))]);
        let read = Shown::from([(Some(1), list)]);
        assert!(partition.explain(&read, NOW, false).is_ok());
    }

    #[test]
    fn a_part_of_a_batch_that_shows_nothing_stays_in_doubt() {
        let mut partition = partition(&[true]);
        partition.send(5, vec![Change::Marker(1)], None, true);
        for _ in 0..2 {
            let explained = partition
                .explain(&shown(&[(1, 1)]), NOW, true)
                .expect("a marker shows nothing");
            let either = MayBe {
                there: true,
                missing: true,
            };
            assert_eq!(explained.batches[&5], either);
            partition.settle(&explained, NOW);
        }
    }

    #[test]
    fn what_an_expiring_row_hides_stays_in_doubt() {
        let second = |second| Seconds {
            first: second,
            last: second,
        };
        for survives in [true, false] {
            let mut partition = Partition::default();
            partition.send(1, insert(1, 1), Some(second(100)), false);
            partition.acknowledge(1, Instant::from_nanos(5), 0);
            partition.send(2, vec![Change::Marker(1)], None, false);
            partition.acknowledge(2, Instant::from_nanos(7), 0);
            partition.lose_power(Instant::from_nanos(6));
            let hidden = partition.explain(&shown(&[(1, 1)]), second(50), true);
            partition.settle(&hidden.expect("the first one shows"), second(50));
            let read = if survives {
                Shown::from([(Some(1), BTreeMap::new())])
            } else {
                Shown::new()
            };
            assert!(
                partition.explain(&read, second(150), false).is_ok(),
                "survives: {survives}"
            );
        }
    }

    #[test]
    fn a_static_value_that_no_row_shows_stays_in_doubt() {
        let mut partition = Partition::default();
        partition.drop_column("b");
        let place = CellAddress {
            row: None,
            column: STATIC.to_owned(),
        };
        partition.send(5, vec![Change::Set(place, Some(Value::Int(7)))], None, false);
        let explained = partition.explain(&Shown::new(), NOW, true);
        partition.settle(&explained.expect("nothing shows it"), NOW);
        partition.send(6, insert(1, 1), None, false);
        partition.acknowledge(6, runtime::now(), 0);
        let mut read = shown(&[(1, 1)]);
        assert!(partition.explain(&read, NOW, false).is_ok(), "it was never executed");
        let row = read.get_mut(&Some(1)).expect("a row");
        row.insert(STATIC.to_owned(), Value::Int(7));
        assert!(partition.explain(&read, NOW, false).is_ok(), "it was executed");
    }

    #[test]
    fn what_became_of_a_part_of_a_batch_is_told() {
        let mut partition = partition(&[true]);
        partition.send(5, insert(2, 2), None, true);
        for (read, there) in [(&[(1, 1), (2, 2)][..], true), (&[(1, 1)][..], false)] {
            let explained = partition.explain(&shown(read), NOW, true).expect("both are possible");
            let expected = MayBe { there, missing: !there };
            assert_eq!(explained.batches[&5], expected);
        }
    }
}
