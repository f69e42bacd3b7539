//! The clients: each has a keyspace of its own, two tables in it, and the model of what they hold.
//!
//! A client sends bunches of statements, reads back what it wrote, and changes its schema now and then, all drawn from the world's
//! chance. Before a statement leaves it stands in the model, so that a client may be stopped anywhere. After a start of the node a
//! client first *settles*: it reads the schema and every table, and only then goes on.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::Instant;

use crate::client::{Answer, Client, query};
use crate::decode::Rows;
use crate::model::{Change, Partition, Place, Shown, Value};

const PARTITIONS: u64 = 6;
const ROWS: u64 = 8;
const BUNCH_MAX: u64 = 6;
/// Statements without an answer after which a partition is cleared, so that they do not pile up.
const UNANSWERED_MAX: usize = 5;
/// How long a node that runs may take to answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_mins(1);
const HISTORY_LINES: usize = 40;
/// The protocol's error for a write that was refused because memory is full.
const OVERLOADED: i32 = 0x1001;

/// What clients may see besides answers.
#[derive(Default)]
pub struct Tolerance {
    /// Statements may be answered by errors: a fault is at work, or was since the node started.
    pub errors: Cell<bool>,
    /// Reads may be answered by errors, which name a file.
    pub read_errors: Cell<bool>,
}

/// How often things happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Statements that write and were acknowledged.
    pub acknowledged: u64,
    /// Statements answered by an error.
    pub refused: u64,
    /// Partitions that were read and found right.
    pub partitions_checked: u64,
    /// Partitions with too many doubts to be looked into.
    pub partitions_unchecked: u64,
    /// Schema changes and truncations that were acknowledged.
    pub schema_changes: u64,
    /// Times that a client settled after a start.
    pub settled: u64,
}

/// What the clients of a run share with whoever steers it.
pub struct Clients {
    /// Where the period is not zero, what syncs may lag behind acknowledgements.
    pub(crate) lag: Option<Duration>,
    /// What is allowed just now.
    pub tolerance: Tolerance,
    counts: Cell<Counts>,
    failure: RefCell<Option<String>>,
    workers: Vec<RefCell<Worker>>,
    last_timestamp: Cell<i64>,
    /// A TRUNCATE that was interrupted has happened or not, in each partition. Else it is repeated before the table is read.
    pub(crate) expects_whole_truncations: bool,
    /// False: clients only settle.
    pub(crate) writes: Cell<bool>,
}

struct Worker {
    keyspace: String,
    has_keyspace: bool,
    /// Whether everything was read back since the node started.
    is_settled: bool,
    tables: Vec<Table>,
    history: VecDeque<String>,
}

#[derive(Clone, PartialEq, Debug)]
enum SchemaChange {
    Create,
    Drop,
    Truncate,
    AddColumn(String),
    DropColumn(String),
}

struct Table {
    name: String,
    has_rows: bool,
    exists: bool,
    columns: BTreeSet<String>,
    partitions: BTreeMap<i32, Partition>,
    /// A change that was sent and not acknowledged.
    pending: Option<SchemaChange>,
}

/// Why a client's session ended.
enum Stop {
    /// The connection was lost: the node has crashed, or will be found to have.
    Lost,
    /// A promise was broken.
    Broken(String),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Lost
    }
}

fn below(bound: u64) -> u64 {
    runtime::random_u64() % bound
}

fn number(bound: u64) -> i32 {
    i32::try_from(below(bound)).expect("a small number")
}

fn base_columns(has_rows: bool) -> BTreeSet<String> {
    let clustered: &[&str] = if has_rows { &["c", "st"] } else { &[] };
    ["k", "a", "b", "s", "m"]
        .iter()
        .chain(clustered)
        .map(|c| (*c).to_owned())
        .collect()
}

impl Clients {
    pub(crate) fn new(count: usize, lag: Option<Duration>, expects_whole_truncations: bool) -> Rc<Self> {
        let worker = |i| {
            let table = |(name, has_rows): (&str, bool)| Table {
                name: name.to_owned(),
                has_rows,
                exists: false,
                columns: BTreeSet::new(),
                partitions: BTreeMap::new(),
                pending: None,
            };
            RefCell::new(Worker {
                keyspace: format!("ks{i}"),
                has_keyspace: false,
                is_settled: false,
                tables: [("plain", false), ("clustered", true)].map(table).into(),
                history: VecDeque::new(),
            })
        };
        Rc::new(Self {
            lag,
            expects_whole_truncations,
            tolerance: Tolerance::default(),
            counts: Cell::default(),
            failure: RefCell::default(),
            workers: (0..count).map(worker).collect(),
            last_timestamp: Cell::new(0),
            writes: Cell::new(true),
        })
    }

    /// How often things happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    fn count(&self, f: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        f(&mut counts);
        self.counts.set(counts);
    }

    /// The first broken promise.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Whether every client has read everything back since the node started.
    #[must_use]
    pub fn are_settled(&self) -> bool {
        self.workers.iter().all(|w| w.borrow().is_settled)
    }

    /// The node's process has ended.
    pub(crate) fn node_stopped(&self) {
        for worker in &self.workers {
            worker.borrow_mut().is_settled = false;
        }
    }

    /// The node's machine lost power; what was acknowledged after `since` may be gone.
    pub(crate) fn power_lost(&self, since: Instant) {
        for worker in &self.workers {
            for table in &mut worker.borrow_mut().tables {
                table.partitions.values_mut().for_each(|p| p.lose_power(since));
            }
        }
    }

    /// The program of the clients' machine.
    pub(crate) async fn run(self: Rc<Self>, address: SocketAddr) {
        let workers: Vec<_> = (0..self.workers.len())
            .map(|i| runtime::spawn(self.clone().run_worker(i, address)))
            .collect();
        for worker in workers {
            worker.await;
        }
        // A machine whose program ends stays up until it is told.
        loop {
            runtime::sleep(Duration::from_hours(1)).await;
        }
    }

    async fn run_worker(self: Rc<Self>, index: usize, address: SocketAddr) {
        loop {
            if let Ok(mut client) = Client::connect(address).await
                && let Err(Stop::Broken(text)) = self.session(index, &mut client).await
            {
                let history: Vec<String> = self.workers[index].borrow().history.iter().cloned().collect();
                let text = format!("{text}\n last statements of this client:\n  {}", history.join("\n  "));
                self.failure.borrow_mut().get_or_insert(text);
                return;
            }
            runtime::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn session(&self, index: usize, client: &mut Client) -> Result<(), Stop> {
        let worker = &self.workers[index];
        if !worker.borrow().is_settled {
            self.settle(worker, client).await?;
            worker.borrow_mut().is_settled = true;
            self.count(|c| c.settled += 1);
        }
        while self.writes.get() {
            self.step(worker, client).await?;
            let pause = if below(20) == 0 { below(20_000) } else { below(1500) };
            runtime::sleep(Duration::from_micros(pause)).await;
        }
        Err(Stop::Lost)
    }

    async fn answer(&self, client: &mut Client) -> Result<(u16, Answer), Stop> {
        match runtime::timeout(ANSWER_WAIT_MAX, client.answer()).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Stop::Broken("a request was not answered within a minute".to_owned())),
        }
    }

    async fn ask(&self, worker: &RefCell<Worker>, client: &mut Client, text: &str) -> Result<Answer, Stop> {
        worker.borrow_mut().note(text);
        client.send(query(0, text)).await?;
        let answer = self.answer(client).await?.1;
        if let Answer::Error { code, message } = &answer {
            worker.borrow_mut().note(&format!("  -> error {code:#x}: {message}"));
        }
        Ok(answer)
    }

    /// An error that a client got: is it one that it may get?
    fn tolerate(&self, code: i32, message: &str, is_read: bool, text: &str) -> Result<(), Stop> {
        self.count(|c| c.refused += 1);
        let allowed = if is_read {
            self.tolerance.read_errors.get()
        } else {
            code == OVERLOADED || self.tolerance.errors.get()
        };
        if !allowed {
            return Err(Stop::Broken(format!(
                "a statement was refused without a reason: {code:#x} {message}\n  {text}"
            )));
        }
        if is_read && !message.contains("/ceto/") {
            return Err(Stop::Broken(format!(
                "a failed read does not name the file: {message}\n  {text}"
            )));
        }
        Ok(())
    }

    async fn settle(&self, worker: &RefCell<Worker>, client: &mut Client) -> Result<(), Stop> {
        let keyspace = worker.borrow().keyspace.clone();
        if !worker.borrow().has_keyspace {
            let text = format!(
                "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            );
            match self.ask(worker, client, &text).await? {
                Answer::Error { code, message } => {
                    self.tolerate(code, &message, false, &text)?;
                    return Err(Stop::Lost);
                }
                _ => worker.borrow_mut().has_keyspace = true,
            }
        }
        let tables = worker.borrow().tables.len();
        for table in 0..tables {
            self.settle_table(worker, client, table).await?;
        }
        Ok(())
    }

    async fn settle_table(&self, worker: &RefCell<Worker>, client: &mut Client, index: usize) -> Result<(), Stop> {
        let (keyspace, name) = worker.borrow().names(index);
        let text = format!(
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{keyspace}' AND table_name = '{name}'"
        );
        let rows = self.read(worker, client, &text).await?;
        let found: BTreeSet<String> = rows
            .iter()
            .filter_map(|row| match row.get("column_name") {
                Some(Value::Text(name)) => Some(name.clone()),
                _ => None,
            })
            .collect();
        let was_truncating = worker.borrow().tables[index].pending == Some(SchemaChange::Truncate);
        worker.borrow_mut().tables[index]
            .take_schema(&found)
            .map_err(|e| Stop::Broken(format!("{keyspace}.{name}: {e}")))?;
        if !worker.borrow().tables[index].exists {
            return Ok(());
        }
        if was_truncating && !self.expects_whole_truncations {
            return self.change_schema(worker, client, index, SchemaChange::Truncate).await;
        }
        let text = format!("SELECT * FROM {keyspace}.{name}");
        let rows = self.read(worker, client, &text).await?;
        self.check(worker, index, &rows, None, true)
    }

    /// Asks for rows; an error that is tolerated ends the session, which begins again.
    async fn read(&self, worker: &RefCell<Worker>, client: &mut Client, text: &str) -> Result<Rows, Stop> {
        match self.ask(worker, client, text).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Error { code, message } => {
                self.tolerate(code, &message, true, text)?;
                Err(Stop::Lost)
            }
            Answer::Done => Err(Stop::Broken(format!("a SELECT returned no rows: {text}"))),
        }
    }

    /// Compares what was read with the model: one partition, or all.
    fn check(
        &self,
        worker: &RefCell<Worker>,
        index: usize,
        rows: &Rows,
        only: Option<i32>,
        settles: bool,
    ) -> Result<(), Stop> {
        let mut read: BTreeMap<i32, Shown> = BTreeMap::new();
        for row in rows {
            let mut cells = row.clone();
            let Some(Value::Int(key)) = cells.remove("k") else {
                return Err(Stop::Broken(format!("a row without its partition key: {row:?}")));
            };
            let has_rows = worker.borrow().tables[index].has_rows;
            let clustering = match cells.remove("c") {
                Some(Value::Int(c)) => Some(c),
                _ if has_rows => None,
                _ => Some(0),
            };
            if read.entry(key).or_default().insert(clustering, cells).is_some() {
                return Err(Stop::Broken(format!("the row {key}, {clustering:?} came twice")));
            }
        }
        let mut worker = worker.borrow_mut();
        let (keyspace, name) = worker.names(index);
        let table = &mut worker.tables[index];
        let keys: BTreeSet<i32> = match only {
            Some(key) => BTreeSet::from([key]),
            None => read.keys().chain(table.partitions.keys()).copied().collect(),
        };
        for key in keys {
            let partition = table.partitions.entry(key).or_default();
            let shown = read.remove(&key).unwrap_or_default();
            let explained = partition
                .explain(&shown)
                .map_err(|story| Stop::Broken(format!("{keyspace}.{name}, partition {key} is wrong:\n{story}")))?;
            if explained.is_checked() {
                self.count(|c| c.partitions_checked += 1);
            } else {
                self.count(|c| c.partitions_unchecked += 1);
            }
            if settles {
                partition.settle(explained);
            }
        }
        Ok(())
    }

    async fn step(&self, worker: &RefCell<Worker>, client: &mut Client) -> Result<(), Stop> {
        let index = usize::try_from(below(2)).expect("0 or 1");
        let (exists, is_pending) = {
            let worker = worker.borrow();
            (worker.tables[index].exists, worker.tables[index].pending.is_some())
        };
        if is_pending {
            // A change that failed with an error: whether it is there is only known after the next start. But a truncation can
            // be repeated.
            if worker.borrow().tables[index].pending == Some(SchemaChange::Truncate) {
                return self.change_schema(worker, client, index, SchemaChange::Truncate).await;
            }
            return Ok(());
        }
        let other_is_pending = worker.borrow().tables[1 - index].pending.is_some();
        if !exists {
            return self.change_schema(worker, client, index, SchemaChange::Create).await;
        }
        let extra = format!("x{}", below(3));
        match below(1000) {
            0..700 => self.write(worker, client, index).await,
            700..930 => {
                let key = number(PARTITIONS);
                let (keyspace, name) = worker.borrow().names(index);
                let rows = self
                    .read(
                        worker,
                        client,
                        &format!("SELECT * FROM {keyspace}.{name} WHERE k = {key}"),
                    )
                    .await?;
                self.check(worker, index, &rows, Some(key), false)
            }
            930..970 => {
                let (keyspace, name) = worker.borrow().names(index);
                let rows = self
                    .read(worker, client, &format!("SELECT * FROM {keyspace}.{name}"))
                    .await?;
                self.check(worker, index, &rows, None, false)
            }
            // Something must stay to be written to.
            970.. if other_is_pending => Ok(()),
            970..982 => self.change_schema(worker, client, index, SchemaChange::Truncate).await,
            982..996 => {
                let has = worker.borrow().tables[index].columns.contains(&extra);
                let change = if has {
                    SchemaChange::DropColumn(extra)
                } else {
                    SchemaChange::AddColumn(extra)
                };
                self.change_schema(worker, client, index, change).await
            }
            _ => self.change_schema(worker, client, index, SchemaChange::Drop).await,
        }
    }

    fn timestamp(&self) -> i64 {
        // Two apart: replacing a collection deletes just below its timestamp.
        let next = runtime::wall_clock_us().max(self.last_timestamp.get() + 2);
        self.last_timestamp.set(next);
        next
    }

    /// Sends a bunch of statements at once and waits for all answers.
    async fn write(&self, worker: &RefCell<Worker>, client: &mut Client, index: usize) -> Result<(), Stop> {
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        for stream in 0..=u16::try_from(below(BUNCH_MAX)).expect("a small number") {
            let timestamp = self.timestamp();
            let (text, parts) = worker.borrow().statement(index, timestamp);
            bytes.extend(query(stream, &text));
            let mut worker = worker.borrow_mut();
            worker.note(&text);
            for (key, changes) in &parts {
                worker.tables[index]
                    .partitions
                    .entry(*key)
                    .or_default()
                    .send(timestamp, changes.clone());
            }
            let keys: Vec<i32> = parts.into_iter().map(|p| p.0).collect();
            sent.push((timestamp, keys, text));
        }
        client.send(bytes).await?;
        for _ in 0..sent.len() {
            let (stream, answer) = self.answer(client).await?;
            let Some((timestamp, keys, text)) = sent.get(usize::from(stream)) else {
                return Err(Stop::Broken(format!("an answer to no request: stream {stream}")));
            };
            match answer {
                Answer::Error { code, message } => {
                    worker
                        .borrow_mut()
                        .note(&format!("  -> error {code:#x}: {message} ({timestamp})"));
                    self.tolerate(code, &message, false, text)?;
                }
                _ => {
                    self.count(|c| c.acknowledged += 1);
                    let mut worker = worker.borrow_mut();
                    for key in keys {
                        let partition = worker.tables[index].partitions.entry(*key).or_default();
                        partition.acknowledge(*timestamp, runtime::now());
                    }
                }
            }
        }
        // Long acknowledged: no later power loss takes it back.
        let lag = self.lag.unwrap_or_default();
        let mut worker = worker.borrow_mut();
        for partition in worker.tables[index].partitions.values_mut() {
            partition.settle_before(Instant::from_nanos(
                runtime::now()
                    .as_nanos()
                    .saturating_sub(u64::try_from(lag.as_nanos()).expect("a short time")),
            ));
        }
        Ok(())
    }

    async fn change_schema(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        index: usize,
        change: SchemaChange,
    ) -> Result<(), Stop> {
        let text = worker.borrow().schema_statement(index, &change);
        if change == SchemaChange::Truncate {
            // Without an answer each partition is as before or empty.
            let timestamp = self.timestamp();
            let mut worker = worker.borrow_mut();
            for partition in worker.tables[index].partitions.values_mut() {
                partition.send(timestamp, vec![Change::DeletePartition]);
            }
        }
        worker.borrow_mut().tables[index].pending = Some(change.clone());
        match self.ask(worker, client, &text).await? {
            Answer::Error { code, message } => self.tolerate(code, &message, false, &text),
            _ => {
                self.count(|c| c.schema_changes += 1);
                let mut worker = worker.borrow_mut();
                worker.tables[index].pending = None;
                worker.tables[index].apply(&change);
                Ok(())
            }
        }
    }
}

impl Table {
    /// A schema change has happened.
    fn apply(&mut self, change: &SchemaChange) {
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
    fn take_schema(&mut self, found: &BTreeSet<String>) -> Result<(), String> {
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

    fn place(&self, row: i32, column: &str) -> Place {
        let row = if column == "st" { None } else { Some(row) };
        Place {
            row,
            column: column.to_owned(),
        }
    }
}

impl Worker {
    fn note(&mut self, text: &str) {
        if self.history.len() == HISTORY_LINES {
            self.history.pop_front();
        }
        let text: String = text.replace("zzz", "").chars().take(300).collect();
        self.history
            .push_back(format!("{} {text}", runtime::now().as_nanos() / 1000));
    }

    fn names(&self, index: usize) -> (String, String) {
        (self.keyspace.clone(), self.tables[index].name.clone())
    }

    fn schema_statement(&self, index: usize, change: &SchemaChange) -> String {
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
                format!("CREATE TABLE {name} (k int, a int, b text, s set<int>, m map<int, int>, {keys}){options}")
            }
            SchemaChange::Drop => format!("DROP TABLE {name}"),
            SchemaChange::Truncate => format!("TRUNCATE {name}"),
            SchemaChange::AddColumn(column) => format!("ALTER TABLE {name} ADD {column} int"),
            SchemaChange::DropColumn(column) => format!("ALTER TABLE {name} DROP {column}"),
        }
    }

    /// A statement that writes, and what it does to which partitions.
    fn statement(&self, index: usize, timestamp: i64) -> (String, Vec<(i32, Vec<Change>)>) {
        let table = &self.tables[index];
        let (keyspace, name) = self.names(index);
        let name = format!("{keyspace}.{name}");
        let key = number(PARTITIONS);
        if table
            .partitions
            .get(&key)
            .is_some_and(|p| p.unanswered() > UNANSWERED_MAX)
        {
            let text = format!("DELETE FROM {name} USING TIMESTAMP {timestamp} WHERE k = {key}");
            return (text, vec![(key, vec![Change::DeletePartition])]);
        }
        let row = if table.has_rows { number(ROWS) } else { 0 };
        match below(100) {
            0..45 => {
                let (text, changes) = table.insert(&name, key, row);
                (format!("{text} USING TIMESTAMP {timestamp}"), vec![(key, changes)])
            }
            45..75 => {
                let (head, tail, changes) = table.update(&name, key, row);
                (
                    format!("{head} USING TIMESTAMP {timestamp} {tail}"),
                    vec![(key, changes)],
                )
            }
            75..88 => table.delete(&name, key, row, timestamp),
            _ => {
                // Two rows of one partition, and one of another.
                let other = (key + 1) % i32::try_from(PARTITIONS).expect("a small number");
                let mut lines = Vec::new();
                let mut parts = vec![(key, Vec::new()), (other, Vec::new())];
                let second = if table.has_rows {
                    Some((0, (row + 1) % i32::try_from(ROWS).expect("small")))
                } else {
                    None
                };
                for (part, row) in [Some((0, row)), second, Some((1, row))].into_iter().flatten() {
                    let (text, changes) = table.insert(&name, parts[part].0, row);
                    lines.push(text);
                    parts[part].1.extend(changes);
                }
                let kind = if below(2) == 0 { "UNLOGGED " } else { "" };
                (
                    format!(
                        "BEGIN {kind}BATCH USING TIMESTAMP {timestamp} {}; APPLY BATCH",
                        lines.join("; ")
                    ),
                    parts,
                )
            }
        }
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

fn value_of(column: &str) -> (String, Value) {
    match column {
        "b" => text_value(),
        "s" => set_value(),
        "m" => map_value(),
        _ => int_value(),
    }
}

impl Table {
    /// Some of the columns that are no key.
    fn some_columns(&self) -> Vec<&str> {
        let values = self
            .columns
            .iter()
            .map(String::as_str)
            .filter(|c| !matches!(*c, "k" | "c"));
        values.filter(|_| below(3) != 0).collect()
    }

    fn insert(&self, name: &str, key: i32, row: i32) -> (String, Vec<Change>) {
        let mut columns = vec!["k".to_owned()];
        let mut values = vec![key.to_string()];
        if self.has_rows {
            columns.push("c".to_owned());
            values.push(row.to_string());
        }
        let mut changes = vec![Change::Marker(row)];
        // A batch that writes the static column twice at one moment would leave the larger value: only UPDATE writes it.
        for column in self.some_columns().into_iter().filter(|c| *c != "st") {
            let (text, value) = value_of(column);
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

    /// The parts before and behind USING.
    fn update(&self, name: &str, key: i32, row: i32) -> (String, String, Vec<Change>) {
        let mut columns = self.some_columns();
        if columns.is_empty() {
            columns.push("a");
        }
        let mut sets = Vec::new();
        let mut changes = Vec::new();
        for column in columns {
            let place = self.place(row, column);
            let (text, value) = value_of(column);
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
        let clustering = if self.has_rows && touches_row {
            format!(" AND c = {row}")
        } else {
            String::new()
        };
        (
            format!("UPDATE {name}"),
            format!("SET {} WHERE k = {key}{clustering}", sets.join(", ")),
            changes,
        )
    }

    fn delete(&self, name: &str, key: i32, row: i32, timestamp: i64) -> (String, Vec<(i32, Vec<Change>)>) {
        let end = row + number(4);
        let (what, filter, change) = match below(8) {
            0 => ("", String::new(), Change::DeletePartition),
            1..4 if self.has_rows => (
                "",
                format!(" AND c >= {row} AND c <= {end}"),
                Change::DeleteRows(row, end),
            ),
            4 | 5 => {
                let filter = if self.has_rows {
                    format!(" AND c = {row}")
                } else {
                    String::new()
                };
                ("b ", filter, Change::Set(self.place(row, "b"), None))
            }
            _ if self.has_rows => ("", format!(" AND c = {row}"), Change::DeleteRows(row, row)),
            _ => ("", String::new(), Change::DeletePartition),
        };
        let text = format!("DELETE {what}FROM {name} USING TIMESTAMP {timestamp} WHERE k = {key}{filter}");
        (text, vec![(key, vec![change])])
    }
}
