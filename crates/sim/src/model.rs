//! What a table must hold, naively: for each partition the statements in the order of their timestamps.
//!
//! A client writes each partition in one order with rising timestamps, so "the newest timestamp wins" is "play the statements in
//! order". A statement is *sure* or in *doubt*: in doubt while it has no answer, when its answer was an error, and when it was
//! acknowledged too shortly before a power loss. A partition is right when some choice of the doubtful statements, each wholly or
//! not at all, played with all the sure ones, gives what was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use runtime::Instant;

/// The static column.
const STATIC: &str = "st";

/// Doubtful statements of a partition up to which every choice is tried.
const DOUBTS_MAX: usize = 14;

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
}

/// What a statement does to a partition.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// INSERT: the row is there even if all its columns are null.
    Marker(i32),
    /// A whole value, or null.
    Set(Place, Option<Value>),
    /// Entries of a set or map.
    Add(Place, Value),
    /// Entries removed by key.
    Remove(Place, BTreeSet<i32>),
    /// Rows removed, both ends inclusive.
    DeleteRows(i32, i32),
    /// Everything removed.
    DeletePartition,
}

/// A column of a row, or of the partition where there is no row.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The clustering key; 0 in tables without one.
    pub row: Option<i32>,
    /// The column.
    pub column: String,
}

/// A statement's part in one partition.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its write timestamp.
    pub timestamp: i64,
    /// What it does.
    pub changes: Vec<Change>,
    /// When it was acknowledged.
    pub acknowledged: Option<Instant>,
    /// Whether it may be missing although it was acknowledged.
    pub lost_maybe: bool,
}

impl Statement {
    fn in_doubt(&self) -> bool {
        self.acknowledged.is_none() || self.lost_maybe
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

/// What a SELECT shows of a partition: rows by clustering key, each with its values and the static ones; a partition of static
/// values only is one row without a key.
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
                    _ => {
                        cells.insert(place.column.clone(), more.clone());
                    }
                }
            }
            Change::Remove(place, keys) => {
                let cells = self.cells(place.row);
                match cells.get_mut(&place.column) {
                    Some(Value::Set(set)) => set.retain(|k| !keys.contains(k)),
                    Some(Value::Map(map)) => map.retain(|k, _| !keys.contains(k)),
                    _ => {}
                }
                if cells.get(&place.column).is_some_and(is_empty) {
                    cells.remove(&place.column);
                }
            }
            Change::DeleteRows(from, to) => self.rows.retain(|row, _| row < from || row > to),
            Change::DeletePartition => *self = Self::default(),
        }
    }

    fn shown(&self) -> Shown {
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
    pub fn send(&mut self, timestamp: i64, changes: Vec<Change>) {
        self.statements.push(Statement {
            timestamp,
            changes,
            acknowledged: None,
            lost_maybe: false,
        });
    }

    /// Notes that a statement was acknowledged.
    pub fn acknowledge(&mut self, timestamp: i64, now: Instant) {
        for statement in self.statements.iter_mut().filter(|s| s.timestamp == timestamp) {
            statement.acknowledged = Some(now);
        }
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

    /// Statements that can no longer be in doubt become part of what is sure.
    pub fn settle_before(&mut self, instant: Instant) {
        while self
            .statements
            .first()
            .is_some_and(|s| !s.in_doubt() && s.acknowledged.is_some_and(|at| at < instant))
        {
            let statement = self.statements.remove(0);
            statement.changes.iter().for_each(|c| self.base.play(c));
        }
    }

    /// A column is gone.
    pub fn drop_column(&mut self, column: &str) {
        self.may_show_empty_rows = true;
        self.base.drop_column(column);
        for statement in &mut self.statements {
            statement.changes.retain(|c| match c {
                Change::Set(p, _) | Change::Add(p, _) | Change::Remove(p, _) => p.column != column,
                Change::Marker(_) | Change::DeleteRows(..) | Change::DeletePartition => true,
            });
        }
    }

    fn play(&self, takes: impl Fn(usize) -> bool) -> Content {
        let mut content = self.base.clone();
        for (i, statement) in self.statements.iter().enumerate() {
            if takes(i) {
                statement.changes.iter().for_each(|c| content.play(c));
            }
        }
        content
    }

    /// Looks for a choice of the doubtful statements that explains what was read. Err tells the partition's story.
    ///
    /// # Errors
    /// When no choice does.
    pub fn explain(&self, read: &Shown) -> Result<Explained, String> {
        let mut read = read.clone();
        if self.may_show_empty_rows {
            read.retain(|_, cells| cells.keys().any(|c| c != STATIC));
        }
        let read = &read;
        let doubts: Vec<usize> = (0..self.statements.len())
            .filter(|&i| self.statements[i].in_doubt())
            .collect();
        if doubts.len() > DOUBTS_MAX {
            return Ok(Explained(None));
        }
        // All taken first: that is what happens most.
        for chosen in (0..1_u32 << doubts.len()).rev() {
            let content = self.play(|i| {
                doubts
                    .iter()
                    .position(|&d| d == i)
                    .is_none_or(|place| chosen >> place & 1 == 1)
            });
            let mut shown = content.shown();
            if self.may_show_empty_rows {
                shown.retain(|_, cells| cells.keys().any(|c| c != STATIC));
            }
            if shown == *read {
                return Ok(Explained(Some(content)));
            }
        }
        Err(self.story(read))
    }

    /// After a start everything was read back: from here on what was read is sure.
    pub fn settle(&mut self, explained: Explained) {
        if let Explained(Some(content)) = explained {
            self.base = content;
            self.statements.clear();
        }
    }

    fn story(&self, read: &Shown) -> String {
        let mut text = format!("  sure before: {}\n", short(&self.base.shown()));
        for statement in &self.statements {
            let state = match (statement.acknowledged, statement.lost_maybe) {
                (None, _) => "not acknowledged",
                (Some(_), true) => "acknowledged shortly before a power loss",
                (Some(_), false) => "acknowledged",
            };
            let _ = writeln!(text, "  {} {state}: {}", statement.timestamp, short(&statement.changes));
        }
        let _ = writeln!(text, "  expected (all taken): {}", short(&self.play(|_| true).shown()));
        let _ = write!(text, "  read: {}", short(read));
        text
    }
}

/// The content that explains a read; None when there were too many doubts to look.
pub struct Explained(Option<Content>);

impl Explained {
    /// Whether it was looked for.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.0.is_some()
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

    fn insert(row: i32, value: i32) -> Vec<Change> {
        let place = Place {
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
            partition.send(i64::from(i), insert(i, i));
            if acknowledged {
                partition.acknowledge(i64::from(i), runtime::now());
            }
        }
        partition
    }

    #[test]
    fn a_lost_acknowledged_statement_is_noticed() {
        let partition = partition(&[true, true]);
        assert!(partition.explain(&shown(&[(1, 1), (2, 2)])).is_ok());
        assert!(partition.explain(&shown(&[(1, 1)])).is_err(), "row 2 was acknowledged");
    }

    #[test]
    fn a_statement_without_answer_may_be_missing_but_not_torn() {
        let mut partition = partition(&[true, false]);
        assert!(partition.explain(&shown(&[(1, 1), (2, 2)])).is_ok());
        assert!(partition.explain(&shown(&[(1, 1)])).is_ok());
        let both = [insert(3, 3), insert(4, 4)].concat();
        partition.send(9, both);
        assert!(
            partition.explain(&shown(&[(1, 1), (3, 3)])).is_err(),
            "half a statement is no statement"
        );
    }

    #[test]
    fn what_was_deleted_may_not_come_back() {
        let mut partition = partition(&[true]);
        partition.send(5, vec![Change::DeleteRows(0, 9)]);
        partition.acknowledge(5, runtime::now());
        assert!(partition.explain(&Shown::new()).is_ok());
        assert!(partition.explain(&shown(&[(1, 1)])).is_err());
    }
}
