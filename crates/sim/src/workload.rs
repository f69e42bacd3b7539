//! The clients: each has a keyspace of its own, two tables in it, and the model of what they hold.
//!
//! A client sends bunches of statements, reads back what it wrote, wholly, by partition or page by page, and changes
//! its schema now and then, all drawn from the world's chance. After a restart it continues with the prepared
//! statements and the paging states that it had before. A statement is noted in the model before it is sent, so that a
//! client may be stopped anywhere. After a start of the node a client first *settles*: it reads the schema and every
//! table, and only then continues.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::Instant;

use crate::client::{Answer, Client, execute, prepare, query};
use crate::model::Change;
use crate::statements::{Drawn, PARTITIONS, SchemaChange, Worker, below, number};

const BUNCH_MAX: u64 = 6;
/// How long a node that runs may take to answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_mins(1);
/// The protocol's error for a write that was refused because memory is full.
const OVERLOADED: i32 = 0x1001;
/// The protocol's error for an id of a prepared statement that the node does not know.
const UNPREPARED: i32 = 0x2500;

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
    /// Logged batches without an answer of which several parts were looked at.
    pub batches_checked: u64,
    /// Pages read after a paging state from before a restart.
    pub pages_resumed: u64,
    /// Prepared statements that the node did not know after a restart.
    pub prepared_again: u64,
}

/// What the clients of a run share with the code that steers it.
pub struct Clients {
    /// How much later than acknowledgements syncs may be, where the period is not zero.
    pub(crate) lag: Option<Duration>,
    /// What is allowed just now.
    pub tolerance: Tolerance,
    counts: Cell<Counts>,
    failure: RefCell<Option<String>>,
    workers: Vec<RefCell<Worker>>,
    last_timestamp: Cell<i64>,
    /// A TRUNCATE that was interrupted has happened or not, in each partition. Else it is repeated before the table is
    /// read.
    pub(crate) expects_whole_truncations: bool,
    /// A logged batch without an answer has happened or not, over partitions and tables.
    pub(crate) expects_whole_batches: bool,
    /// False: clients only settle.
    pub(crate) writes: Cell<bool>,
}

/// Why a client's session ended.
pub(crate) enum Stop {
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

impl Clients {
    pub(crate) fn new(
        count: usize,
        lag: Option<Duration>,
        expects_whole_truncations: bool,
        expects_whole_batches: bool,
    ) -> Rc<Self> {
        let worker = |i| RefCell::new(Worker::new(i));
        Rc::new(Self {
            lag,
            expects_whole_truncations,
            expects_whole_batches,
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

    pub(crate) fn count(&self, f: impl FnOnce(&mut Counts)) {
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
        // When the workers have ended, the machine stays up until it is stopped.
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

    pub(crate) async fn answer(&self, client: &mut Client) -> Result<(u16, Answer), Stop> {
        match runtime::timeout(ANSWER_WAIT_MAX, client.answer()).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Stop::Broken("a request was not answered within a minute".to_owned())),
        }
    }

    pub(crate) async fn ask(&self, worker: &RefCell<Worker>, client: &mut Client, text: &str) -> Result<Answer, Stop> {
        self.ask_frame(worker, client, text, query(0, text)).await
    }

    /// Sends a request, which the text describes, and waits for its answer.
    pub(crate) async fn ask_frame(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        text: &str,
        frame: Vec<u8>,
    ) -> Result<Answer, Stop> {
        worker.borrow_mut().note(text);
        client.send(frame).await?;
        let answer = self.answer(client).await?.1;
        if let Answer::Error { code, message } = &answer {
            worker.borrow_mut().note(&format!("  -> error {code:#x}: {message}"));
        }
        Ok(answer)
    }

    /// An error that a client got: is it one that it may get?
    pub(crate) fn tolerate(&self, code: i32, message: &str, is_read: bool, text: &str) -> Result<(), Stop> {
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

    async fn step(&self, worker: &RefCell<Worker>, client: &mut Client) -> Result<(), Stop> {
        let index = usize::try_from(below(2)).expect("0 or 1");
        let (exists, is_pending) = {
            let worker = worker.borrow();
            (worker.tables[index].exists, worker.tables[index].pending.is_some())
        };
        if is_pending {
            // A change that failed with an error: whether it is there is only known after the next start. But a
            // truncation can be repeated.
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
            0..560 => self.write(worker, client, index).await,
            560..640 => self.change_list(worker, client, index).await,
            640..700 => self.insert_prepared(worker, client, index).await,
            700..930 => self.read_partition(worker, client, index, number(PARTITIONS)).await,
            930..950 => self.read_table(worker, client, index).await,
            950..970 => self.read_pages(worker, client, index).await,
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
            let drawn = worker.borrow().statement(index, timestamp);
            bytes.extend(query(stream, &drawn.text));
            worker.borrow_mut().send(timestamp, &drawn);
            sent.push((timestamp, drawn));
        }
        let second = runtime::wall_clock_us() / 1_000_000;
        client.send(bytes).await?;
        for _ in 0..sent.len() {
            let (stream, answer) = self.answer(client).await?;
            let Some((timestamp, drawn)) = sent.get(usize::from(stream)) else {
                return Err(Stop::Broken(format!("an answer to no request: stream {stream}")));
            };
            self.take_answer(worker, *timestamp, drawn, second, answer)?;
        }
        self.settle_old(worker);
        Ok(())
    }

    /// Sends one statement that writes, alone: its answer comes before anything else is sent.
    async fn write_alone(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        timestamp: i64,
        drawn: &Drawn,
        values: Option<&[Vec<u8>]>,
    ) -> Result<(), Stop> {
        let second = runtime::wall_clock_us() / 1_000_000;
        if values.is_none() {
            worker.borrow_mut().send(timestamp, drawn);
        }
        let answer = match values {
            None => {
                client.send(query(0, &drawn.text)).await?;
                self.answer(client).await?.1
            }
            Some(values) => {
                self.execute(worker, client, &drawn.text, values, Some((timestamp, drawn)))
                    .await?
            }
        };
        self.take_answer(worker, timestamp, drawn, second, answer)?;
        self.settle_old(worker);
        Ok(())
    }

    fn take_answer(
        &self,
        worker: &RefCell<Worker>,
        timestamp: i64,
        drawn: &Drawn,
        second: i64,
        answer: Answer,
    ) -> Result<(), Stop> {
        if let Answer::Error { code, message } = answer {
            let line = format!("  -> error {code:#x}: {message} ({timestamp})");
            worker.borrow_mut().note(&line);
            return self.tolerate(code, &message, false, &drawn.text);
        }
        self.count(|c| c.acknowledged += 1);
        let waited = runtime::wall_clock_us() / 1_000_000 - second;
        worker.borrow_mut().acknowledge(timestamp, drawn, waited);
        Ok(())
    }

    /// What was acknowledged long ago no later power loss takes back.
    fn settle_old(&self, worker: &RefCell<Worker>) {
        let lag = u64::try_from(self.lag.unwrap_or_default().as_nanos()).expect("a short time");
        let before = Instant::from_nanos(runtime::now().as_nanos().saturating_sub(lag));
        let second = runtime::wall_clock_us() / 1_000_000;
        for table in &mut worker.borrow_mut().tables {
            table
                .partitions
                .values_mut()
                .for_each(|p| p.settle_before(before, second));
        }
    }

    /// Changes a list by its ends, by place or by value; the places are those of the model.
    async fn change_list(&self, worker: &RefCell<Worker>, client: &mut Client, index: usize) -> Result<(), Stop> {
        let timestamp = self.timestamp();
        let drawn = worker.borrow().list_statement(index, timestamp);
        self.write_alone(worker, client, timestamp, &drawn, None).await
    }

    async fn insert_prepared(&self, worker: &RefCell<Worker>, client: &mut Client, index: usize) -> Result<(), Stop> {
        let timestamp = self.timestamp();
        let (drawn, values) = worker.borrow().prepared_insert(index, timestamp);
        self.write_alone(worker, client, timestamp, &drawn, Some(&values)).await
    }

    /// Executes a statement by the id that an earlier PREPARE gave, perhaps before a restart. The node may have
    /// forgotten it; then it is prepared again, and has the same id.
    pub(crate) async fn execute(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        text: &str,
        values: &[Vec<u8>],
        writes: Option<(i64, &Drawn)>,
    ) -> Result<Answer, Stop> {
        let mut known = worker.borrow().prepared.get(text).cloned();
        for _ in 0..3 {
            let Some(id) = known.clone() else {
                match self
                    .ask_frame(worker, client, &format!("PREPARE {text}"), prepare(0, text))
                    .await?
                {
                    Answer::Prepared(id) => {
                        let before = worker.borrow_mut().prepared.insert(text.to_owned(), id.clone());
                        if before.is_some_and(|before| before != id) {
                            return Err(Stop::Broken(format!("a prepared statement got another id: {text}")));
                        }
                        known = Some(id);
                        continue;
                    }
                    other => return Ok(other),
                }
            };
            if let Some((timestamp, drawn)) = writes {
                worker.borrow_mut().send_once(timestamp, drawn);
            }
            let request = format!("EXECUTE {text} {values:?}");
            match self
                .ask_frame(worker, client, &request, execute(0, &id, values))
                .await?
            {
                Answer::Error { code: UNPREPARED, .. } => {
                    self.count(|c| c.prepared_again += 1);
                    known = None;
                }
                answer => return Ok(answer),
            }
        }
        Err(Stop::Broken(format!("prepared and still unknown: {text}")))
    }

    pub(crate) async fn change_schema(
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
                partition.send(timestamp, vec![Change::DeletePartition], None, false);
            }
        }
        worker.borrow_mut().forget_paging(index);
        worker.borrow_mut().tables[index].pending = Some(change.clone());
        match self.ask(worker, client, &text).await? {
            // As if there had been no answer: what a node that drains has proposed may be agreed on.
            Answer::Error { message, .. }
                if message.contains("the node stops; the metadata change may have happened") =>
            {
                Err(Stop::Lost)
            }
            Answer::Error { code, message } => {
                self.tolerate(code, &message, false, &text)?;
                if change == SchemaChange::Truncate {
                    return Ok(());
                }
                // What failed has not happened, and does not happen later.
                self.take_schema(worker, client, index).await?;
                Ok(())
            }
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
