//! What the clients say: statements drawn by chance, with what each does to the model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::model::{CellAddress, Change, Element, Partition, Seconds, TTL_MAX, Value};

pub(crate) const PARTITIONS: u64 = 6;
const ROWS: u64 = 8;
/// Statements without an answer after which a partition is cleared, so that they do not pile up.
const UNANSWERED_MAX: usize = 5;
const HISTORY_LINES: usize = 40;

/// A client's keyspace, and what the node promised it.
pub(crate) struct Worker {
    pub(crate) keyspace: String,
    pub(crate) has_keyspace: bool,
    /// Whether everything was read back since the node started.
    pub(crate) is_settled: bool,
    pub(crate) tables: Vec<Table>,
    /// The ids of prepared statements, by their text.
    pub(crate) prepared: BTreeMap<String, Vec<u8>>,
    pub(crate) paging: Option<Paging>,
    pub(crate) history: VecDeque<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SchemaChange {
    Create,
    Drop,
    Truncate,
    AddColumn(String),
    DropColumn(String),
}

/// A table and the model of what it holds.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) has_rows: bool,
    pub(crate) exists: bool,
    pub(crate) columns: BTreeSet<String>,
    pub(crate) partitions: BTreeMap<i32, Partition>,
    /// A change that was sent and not acknowledged.
    pub(crate) pending: Option<SchemaChange>,
}

/// A walk through a table page by page that has not ended.
pub(crate) struct Paging {
    pub(crate) table: usize,
    /// The state from which the next page continues.
    pub(crate) state: Vec<u8>,
    /// Partition and clustering key of the last row that was read.
    pub(crate) last: (Option<Value>, Option<Value>),
}

/// A statement that writes.
pub(crate) struct Drawn {
    pub(crate) text: String,
    /// Table, partition key, and what it does there.
    parts: Vec<(usize, i32, Vec<Change>)>,
    ttl: Option<i64>,
    is_logged: bool,
}

pub(crate) fn below(bound: u64) -> u64 {
    runtime::random_u64() % bound
}

pub(crate) fn number(bound: u64) -> i32 {
    i32::try_from(below(bound)).expect("a small number")
}

fn base_columns(has_rows: bool) -> BTreeSet<String> {
    let clustered: &[&str] = if has_rows { &["c", "st"] } else { &[] };
    ["k", "a", "b", "s", "m", "l"]
        .iter()
        .chain(clustered)
        .map(|c| (*c).to_owned())
        .collect()
}

impl Table {
    /// A schema change has happened.
    pub(crate) fn apply(&mut self, change: &SchemaChange) {
        match change {
            SchemaChange::Create => {
                self.exists = true;
                self.columns = base_columns(self.has_rows);
                self.partitions.clear();
            }
            SchemaChange::Drop => {
                self.exists = false;
                self.columns.clear();
                self.partitions.clear();
            }
            SchemaChange::Truncate => self.partitions.clear(),
            SchemaChange::AddColumn(column) => {
                self.columns.insert(column.clone());
            }
            SchemaChange::DropColumn(column) => {
                self.columns.remove(column);
                self.partitions.values_mut().for_each(|p| p.drop_column(column));
            }
        }
    }

    /// The columns that the node says the table has: those that were promised, or with the change that got no answer.
    pub(crate) fn take_schema(&mut self, found: &BTreeSet<String>) -> Result<(), String> {
        let pending = self.pending.take();
        if *found == self.columns {
            return Ok(());
        }
        let mut after = self.columns.clone();
        match &pending {
            Some(SchemaChange::Create) => after = base_columns(self.has_rows),
            Some(SchemaChange::Drop) => after.clear(),
            Some(SchemaChange::AddColumn(column)) => {
                after.insert(column.clone());
            }
            Some(SchemaChange::DropColumn(column)) => {
                after.remove(column);
            }
            Some(SchemaChange::Truncate) | None => {}
        }
        match pending {
            Some(change) if *found == after => {
                self.apply(&change);
                Ok(())
            }
            _ => Err(format!(
                "the acknowledged schema is not there: expected the columns {:?} (pending {pending:?}), found {found:?}",
                self.columns
            )),
        }
    }

    fn place(&self, row: i32, column: &str) -> CellAddress {
        let row = if column == "st" { None } else { Some(row) };
        CellAddress {
            row,
            column: column.to_owned(),
        }
    }
}

impl Worker {
    pub(crate) fn new(number: usize) -> Self {
        let table = |(name, has_rows): (&str, bool)| Table {
            name: name.to_owned(),
            has_rows,
            exists: false,
            columns: BTreeSet::new(),
            partitions: BTreeMap::new(),
            pending: None,
        };
        Self {
            keyspace: format!("ks{number}"),
            has_keyspace: false,
            is_settled: false,
            tables: [("plain", false), ("clustered", true)].map(table).into(),
            prepared: BTreeMap::new(),
            paging: None,
            history: VecDeque::new(),
        }
    }

    fn partition(&mut self, table: usize, key: i32) -> &mut Partition {
        self.tables[table].partitions.entry(key).or_default()
    }

    /// Notes a statement that is about to be sent.
    pub(crate) fn send(&mut self, timestamp: i64, drawn: &Drawn) {
        self.note(&drawn.text);
        self.send_once(timestamp, drawn);
    }

    /// Notes a statement that is about to be sent, perhaps again.
    pub(crate) fn send_once(&mut self, timestamp: i64, drawn: &Drawn) {
        let expires = drawn.ttl.map(|ttl| Seconds {
            first: runtime::wall_clock_us() / 1_000_000 + ttl,
            last: i64::MAX,
        });
        for (table, key, changes) in &drawn.parts {
            let partition = self.partition(*table, *key);
            if !partition.has_sent(timestamp) {
                partition.send(timestamp, changes.clone(), expires, drawn.is_logged);
            }
        }
    }

    /// Notes that a statement was acknowledged at most so many seconds after it was sent.
    pub(crate) fn acknowledge(&mut self, timestamp: i64, drawn: &Drawn, waited: i64) {
        for (table, key, _) in &drawn.parts {
            self.partition(*table, *key)
                .acknowledge(timestamp, runtime::now(), waited);
        }
    }

    /// A table changes: the pages after a paging state are not the ones from before.
    pub(crate) fn forget_paging(&mut self, table: usize) {
        self.paging = self.paging.take().filter(|p| p.table != table);
    }

    pub(crate) fn note(&mut self, text: &str) {
        if self.history.len() == HISTORY_LINES {
            self.history.pop_front();
        }
        let text: String = text.replace("zzz", "").chars().take(300).collect();
        self.history
            .push_back(format!("{} {text}", runtime::now().as_nanos() / 1000));
    }

    pub(crate) fn names(&self, index: usize) -> (String, String) {
        (self.keyspace.clone(), self.tables[index].name.clone())
    }

    pub(crate) fn schema_statement(&self, index: usize, change: &SchemaChange) -> String {
        let (keyspace, name) = self.names(index);
        let name = format!("{keyspace}.{name}");
        match change {
            SchemaChange::Create => {
                let keys = if self.tables[index].has_rows {
                    "c int, st int static, PRIMARY KEY (k, c)"
                } else {
                    "PRIMARY KEY (k)"
                };
                let options = match below(3) {
                    0 => " WITH gc_grace_seconds = 0",
                    1 => {
                        " WITH gc_grace_seconds = 0 AND compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': 2}"
                    }
                    _ => "",
                };
                format!(
                    "CREATE TABLE {name} (k int, a int, b text, s set<int>, m map<int, int>, l list<int>, {keys}){options}"
                )
            }
            SchemaChange::Drop => format!("DROP TABLE {name}"),
            SchemaChange::Truncate => format!("TRUNCATE {name}"),
            SchemaChange::AddColumn(column) => format!("ALTER TABLE {name} ADD {column} int"),
            SchemaChange::DropColumn(column) => format!("ALTER TABLE {name} DROP {column}"),
        }
    }

    pub(crate) fn select_all(&self, index: usize) -> String {
        format!("SELECT * FROM {}", self.full_name(index))
    }

    fn full_name(&self, index: usize) -> String {
        format!("{}.{}", self.keyspace, self.tables[index].name)
    }

    fn can_be_written(&self, index: usize) -> bool {
        self.tables[index].exists && self.tables[index].pending.is_none()
    }

    /// A statement that writes, and what it does to which partitions.
    pub(crate) fn statement(&self, index: usize, timestamp: i64) -> Drawn {
        let table = &self.tables[index];
        let name = self.full_name(index);
        let key = number(PARTITIONS);
        let one = |text: String, changes: Vec<Change>, ttl: Option<i64>| Drawn {
            text,
            parts: vec![(index, key, changes)],
            ttl,
            is_logged: false,
        };
        if table
            .partitions
            .get(&key)
            .is_some_and(|p| p.unanswered() > UNANSWERED_MAX)
        {
            let text = format!("DELETE FROM {name} USING TIMESTAMP {timestamp} WHERE k = {key}");
            return one(text, vec![Change::DeletePartition], None);
        }
        let row = table.some_row();
        let ttl = (below(6) == 0).then(|| 1 + i64::from(number(4)) % TTL_MAX);
        let using = match ttl {
            Some(ttl) => format!("USING TIMESTAMP {timestamp} AND TTL {ttl}"),
            None => format!("USING TIMESTAMP {timestamp}"),
        };
        match below(100) {
            0..45 => {
                let (text, changes) = table.insert(&name, key, row, timestamp);
                one(format!("{text} {using}"), changes, ttl)
            }
            45..75 => {
                let (head, tail, changes) = table.update(&name, key, row, timestamp);
                one(format!("{head} {using} {tail}"), changes, ttl)
            }
            75..88 => {
                let (text, changes) = table.delete(&name, key, row, timestamp);
                one(text, changes, None)
            }
            _ => self.batch(index, key, row, timestamp),
        }
    }

    /// Two rows of one partition, one of another, and perhaps one of the other table.
    fn batch(&self, index: usize, key: i32, row: i32, timestamp: i64) -> Drawn {
        let table = &self.tables[index];
        let other_key = (key + 1) % i32::try_from(PARTITIONS).expect("a small number");
        let mut parts = vec![(index, key, Vec::new()), (index, other_key, Vec::new())];
        let mut rows = vec![(0, row), (1, row)];
        if table.has_rows {
            rows.push((0, (row + 1) % i32::try_from(ROWS).expect("small")));
        }
        let other = 1 - index;
        if self.can_be_written(other) && below(2) == 0 {
            parts.push((other, number(PARTITIONS), Vec::new()));
            rows.push((2, self.tables[other].some_row()));
        }
        let mut lines = Vec::new();
        for (part, row) in rows {
            let (table, key, changes) = &mut parts[part];
            let (text, more) = self.tables[*table].insert(&self.full_name(*table), *key, row, timestamp);
            lines.push(text);
            changes.extend(more);
        }
        let is_logged = below(3) != 0;
        let kind = if is_logged { "" } else { "UNLOGGED " };
        Drawn {
            text: format!(
                "BEGIN {kind}BATCH USING TIMESTAMP {timestamp} {}; APPLY BATCH",
                lines.join("; ")
            ),
            parts,
            ttl: None,
            is_logged,
        }
    }

    /// A change of a list; to be sent when nothing else is on its way, as some read before they write.
    pub(crate) fn list_statement(&self, index: usize, timestamp: i64) -> Drawn {
        let table = &self.tables[index];
        let (name, key, row) = (self.full_name(index), number(PARTITIONS), table.some_row());
        let place = table.place(row, "l");
        let clustering = table.clustering(row);
        let present: Vec<(Element, i32)> = table
            .partitions
            .get(&key)
            .and_then(|p| p.list(&place))
            .map_or_else(Vec::new, |l| l.into_iter().collect());
        let value = number(1000);
        let add = |element: Element| Change::Add(place.clone(), Value::List(BTreeMap::from([(element, value)])));
        let (set, change) = match below(6) {
            0 => (format!("l = [{value}] + l"), add((-timestamp, 0))),
            kind @ 1..5 if !present.is_empty() => {
                let at = usize::try_from(below(present.len() as u64)).expect("below a length");
                let (element, found) = present[at];
                match kind {
                    1 | 2 => (format!("l[{at}] = {value}"), add(element)),
                    3 => {
                        let text = format!(
                            "DELETE l[{at}] FROM {name} USING TIMESTAMP {timestamp} WHERE k = {key}{clustering}"
                        );
                        let change = Change::RemoveElements(place.clone(), BTreeSet::from([element]));
                        return Drawn {
                            text,
                            parts: vec![(index, key, vec![change])],
                            ttl: None,
                            is_logged: false,
                        };
                    }
                    _ => {
                        let equal = present.iter().filter(|(_, v)| *v == found).map(|(e, _)| *e).collect();
                        (
                            format!("l = l - [{found}]"),
                            Change::RemoveElements(place.clone(), equal),
                        )
                    }
                }
            }
            _ => (format!("l = l + [{value}]"), add((timestamp, 0))),
        };
        Drawn {
            text: format!("UPDATE {name} USING TIMESTAMP {timestamp} SET {set} WHERE k = {key}{clustering}"),
            parts: vec![(index, key, vec![change])],
            ttl: None,
            is_logged: false,
        }
    }

    /// An INSERT to be prepared, and its values.
    pub(crate) fn prepared_insert(&self, index: usize, timestamp: i64) -> (Drawn, Vec<Vec<u8>>) {
        let table = &self.tables[index];
        let (key, row, value) = (number(PARTITIONS), table.some_row(), number(1000));
        let int = |n: i32| n.to_be_bytes().to_vec();
        let (columns, markers) = if table.has_rows {
            ("k, c, a", "?, ?, ?")
        } else {
            ("k, a", "?, ?")
        };
        let mut values = vec![int(key)];
        values.extend(table.has_rows.then(|| int(row)));
        values.extend([int(value), timestamp.to_be_bytes().to_vec()]);
        let change = Change::Set(table.place(row, "a"), Some(Value::Int(value)));
        let drawn = Drawn {
            text: format!(
                "INSERT INTO {} ({columns}) VALUES ({markers}) USING TIMESTAMP ?",
                self.full_name(index)
            ),
            parts: vec![(index, key, vec![Change::Marker(row), change])],
            ttl: None,
            is_logged: false,
        };
        (drawn, values)
    }
}

fn text_value() -> (String, Value) {
    let length = if below(4) == 0 { below(1500) } else { below(30) };
    let text = format!("{}{}", below(1000), "z".repeat(usize::try_from(length).expect("short")));
    (format!("'{text}'"), Value::Text(text))
}

fn int_value() -> (String, Value) {
    let n = number(100_000);
    (n.to_string(), Value::Int(n))
}

fn set_value() -> (String, Value) {
    let set: BTreeSet<i32> = (0..=below(3)).map(|_| number(6)).collect();
    let text: Vec<String> = set.iter().map(i32::to_string).collect();
    (format!("{{{}}}", text.join(", ")), Value::Set(set))
}

fn map_value() -> (String, Value) {
    let map: BTreeMap<i32, i32> = (0..=below(3)).map(|_| (number(6), number(1000))).collect();
    let text: Vec<String> = map.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    (format!("{{{}}}", text.join(", ")), Value::Map(map))
}

fn list_value(timestamp: i64) -> (String, Value) {
    let list: Vec<i32> = (0..=below(3)).map(|_| number(1000)).collect();
    let elements = (0..).zip(&list).map(|(i, &v)| ((timestamp, i), v)).collect();
    (format!("{list:?}"), Value::List(elements))
}

fn value_of(column: &str, timestamp: i64) -> (String, Value) {
    match column {
        "l" => list_value(timestamp),
        "b" => text_value(),
        "s" => set_value(),
        "m" => map_value(),
        _ => int_value(),
    }
}

impl Table {
    fn some_row(&self) -> i32 {
        if self.has_rows { number(ROWS) } else { 0 }
    }

    /// What restricts a statement to a row, after its partition key.
    fn clustering(&self, row: i32) -> String {
        if self.has_rows {
            format!(" AND c = {row}")
        } else {
            String::new()
        }
    }

    /// Some of the columns that are no key.
    fn some_columns(&self) -> Vec<&str> {
        let values = self
            .columns
            .iter()
            .map(String::as_str)
            .filter(|c| !matches!(*c, "k" | "c"));
        values.filter(|_| below(3) != 0).collect()
    }

    fn insert(&self, name: &str, key: i32, row: i32, timestamp: i64) -> (String, Vec<Change>) {
        let mut columns = vec!["k".to_owned()];
        let mut values = vec![key.to_string()];
        if self.has_rows {
            columns.push("c".to_owned());
            values.push(row.to_string());
        }
        let mut changes = vec![Change::Marker(row)];
        // A batch that writes the static column twice at one moment would leave the larger value: only UPDATE writes
        // it.
        for column in self.some_columns().into_iter().filter(|c| *c != "st") {
            let (text, value) = value_of(column, timestamp);
            columns.push(column.to_owned());
            values.push(text);
            changes.push(Change::Set(self.place(row, column), Some(value)));
        }
        (
            format!(
                "INSERT INTO {name} ({}) VALUES ({})",
                columns.join(", "),
                values.join(", ")
            ),
            changes,
        )
    }

    /// The parts before and after USING.
    fn update(&self, name: &str, key: i32, row: i32, timestamp: i64) -> (String, String, Vec<Change>) {
        let mut columns = self.some_columns();
        if columns.is_empty() {
            columns.push("a");
        }
        let mut sets = Vec::new();
        let mut changes = Vec::new();
        for column in columns {
            let place = self.place(row, column);
            let (text, value) = value_of(column, timestamp);
            let (text, change) = match (column, below(5)) {
                (_, 0) => (format!("{column} = null"), Change::Set(place, None)),
                ("s" | "m", 1 | 2) => (format!("{column} = {column} + {text}"), Change::Add(place, value)),
                ("s" | "m", 3) => {
                    let (text, keys) = set_value();
                    let Value::Set(keys) = keys else {
                        unreachable!("a set was made")
                    };
                    (format!("{column} = {column} - {text}"), Change::Remove(place, keys))
                }
                ("m", _) => {
                    let (at, to) = (number(6), number(1000));
                    let entry = Value::Map(BTreeMap::from([(at, to)]));
                    (format!("m[{at}] = {to}"), Change::Add(place, entry))
                }
                _ => (format!("{column} = {text}"), Change::Set(place, Some(value))),
            };
            sets.push(text);
            changes.push(change);
        }
        let touches_row = changes.iter().any(|c| match c {
            Change::Set(p, _) | Change::Add(p, _) | Change::Remove(p, _) => p.row.is_some(),
            _ => true,
        });
        let clustering = if touches_row {
            self.clustering(row)
        } else {
            String::new()
        };
        (
            format!("UPDATE {name}"),
            format!("SET {} WHERE k = {key}{clustering}", sets.join(", ")),
            changes,
        )
    }

    fn delete(&self, name: &str, key: i32, row: i32, timestamp: i64) -> (String, Vec<Change>) {
        let end = row + number(4);
        let (what, filter, change) = match below(8) {
            0 => ("", String::new(), Change::DeletePartition),
            1..4 if self.has_rows => (
                "",
                format!(" AND c >= {row} AND c <= {end}"),
                Change::DeleteRows(row, end),
            ),
            4 | 5 => ("b ", self.clustering(row), Change::Set(self.place(row, "b"), None)),
            _ if self.has_rows => ("", format!(" AND c = {row}"), Change::DeleteRows(row, row)),
            _ => ("", String::new(), Change::DeletePartition),
        };
        let text = format!("DELETE {what}FROM {name} USING TIMESTAMP {timestamp} WHERE k = {key}{filter}");
        (text, vec![change])
    }
}
