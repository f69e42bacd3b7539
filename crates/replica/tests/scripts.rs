//! What one shard does with writes, flushes, reads, compactions, truncations and restarts: the scripts of
//! `tests/suites`.
//!
//! Each case is a script on a new simulated machine with one shard and the table `sea.t (k int, c int, p text static, a
//! int, b text, m map<int, text>, PRIMARY KEY (k, c))`. Arguments set its limits: `gc_grace=SECONDS`, `memory=BYTES`,
//! `segment=BYTES`, `log=BYTES`. Rows are in the notation of the suites of `mutation`.
//!
//! ```text
//! write K: LINE [| LINE…]     one mutation of partition K, committed
//! together K: LINE | K: LINE  one record of the log with several mutations
//! flush · compact · truncate · drop
//! alter drop C @T · alter add C   a column is dropped as of a timestamp, or added again
//! read K                      what the partition says, over all sources
//! row K C                     one row by its name, and whether memory alone could answer
//! sstables · memory · log     what the shard holds
//! note ID K: LINE · end ID    a batch for several shards begins here, and ends
//! hold FROM [A-B…]            replicas may have missed deletions from a second on, and in these spans
//! damage N COMPONENT          a bit of sstable N is flipped; `look` looks into damage, `accept` accepts the loss
//! wait SECONDS
//! restart · kill · power loss the process ends in order, by a signal, with the machine; the next one replays the log
//! old log gone                the files of earlier runs' logs are removed after a flush, as a start does
//! ```

#[path = "../../mutation/tests/notation/mod.rs"]
mod notation;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{options, whole};
use commitlog::Logged;
use mutation::{ClusteringSlice, Mutation, PartitionBlock};
use replica::{
    PartitionRead, PartitionReader, ReadError, RowName, Shard, TableStore, TombstoneHold, WantedTable, WriteError,
};
use runtime::ShardId;
use runtime::sim::{CrashKind, Simulation};
use schema::{Table, TableOptions};
use test_node::{Hosted, Options};
use testkit::{Case, path};
use types::token::token_of;

const HOUR: Duration = Duration::from_hours(1);
const DIR: &str = "/data/sea/t-00000000000000000000000000000007";

/// How a process of a script ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Script,
    Restart,
    Crash(CrashKind),
}

/// A script that is played: what is shared by the processes of it.
struct Script {
    lines: Vec<String>,
    next: Cell<usize>,
    out: RefCell<Vec<String>>,
    end: Cell<Option<End>>,
    options: Options,
    table: RefCell<Arc<Table>>,
}

impl Script {
    fn new(case: &Case) -> Self {
        let columns = "c int key\np text static\na int\nb text\nm map<int, text>";
        let mut table = notation::table(columns);
        table.options = TableOptions {
            gc_grace_seconds: case.number("gc_grace", 864_000),
            ..TableOptions::default()
        };
        Self {
            lines: case.input().lines().map(notation::lengthen).collect(),
            next: Cell::new(0),
            out: RefCell::default(),
            end: Cell::new(None),
            options: Options {
                dirty_bytes_max: case.number("memory", 16 << 20),
                segment_bytes: case.number("segment", 1 << 20),
                log_bytes_max: case.number("log", 64 << 20),
                ..options(1 << 20)
            },
            table: RefCell::new(Arc::new(table)),
        }
    }

    fn table(&self) -> Arc<Table> {
        self.table.borrow().clone()
    }

    fn say(&self, text: impl Into<String>) {
        self.out.borrow_mut().push(text.into());
    }
}

/// Plays a script; the answer is what its lines say.
fn play(case: &Case) -> String {
    assert_eq!(case.command(), "script", "line {}", case.line);
    let script = Rc::new(Script::new(case));
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    loop {
        script.end.set(None);
        let process = script.clone();
        simulation.start(node, move |_| Box::pin(run(process.clone())));
        let has_ended = simulation.run_until(HOUR, || script.end.get().is_some());
        assert!(
            has_ended,
            "line {}: the script stands still",
            case.line + script.next.get()
        );
        match script.end.get() {
            Some(End::Crash(kind)) => simulation.crash(node, kind),
            end => {
                assert!(simulation.run_until_ended(node, HOUR), "the process does not end");
                if end == Some(End::Script) {
                    return script.out.borrow().join("\n");
                }
            }
        }
    }
}

/// One process of the script, from its start to its end.
async fn run(script: Rc<Script>) {
    let process = Process::start(script.clone()).await;
    while let Some(line) = script.lines.get(script.next.get()) {
        script.next.set(script.next.get() + 1);
        let end = match line.as_str() {
            "restart" => {
                process.shard.flush_all().await.expect("the disk works");
                process.shard.log.close().await.expect("the disk works");
                End::Restart
            }
            "kill" => End::Crash(CrashKind::Kill),
            "power loss" => End::Crash(CrashKind::PowerLoss),
            line => {
                process.step(line).await;
                continue;
            }
        };
        script.end.set(Some(end));
        if end != End::Restart {
            // It does nothing any more, and is not closed.
            std::future::pending::<()>().await;
        }
        return;
    }
    script.end.set(Some(End::Script));
}

/// The segment files of the log, by number.
fn segments() -> Vec<u64> {
    let entries = runtime::fs::read_dir("/log").expect("the disk works");
    let number = |name: &str| name.strip_prefix("commitlog-0-")?.strip_suffix(".log")?.parse().ok();
    let mut found: Vec<u64> = entries.iter().filter_map(|entry| number(&entry.name)).collect();
    found.sort_unstable();
    found
}

struct Process {
    script: Rc<Script>,
    shard: Rc<Shard>,
    store: Rc<TableStore>,
    node: test_node::Process,
}

impl Process {
    /// A node's start: files are opened, the log is replayed.
    async fn start(script: Rc<Script>) -> Self {
        let table = script.table();
        let hosted = Hosted::on_ring(table.clone(), 1);
        let node = test_node::Process::start(script.options.clone(), vec![hosted]);
        let shard = node.open(ShardId(0));
        let store = shard.store(table.id).expect("it was opened");
        if node.has_old_log() {
            let stats = node.replay(std::slice::from_ref(&shard)).await.swap_remove(0);
            script.say(format!("start: {} mutations replayed", stats.mutations));
            for (id, mutations) in stats.unfinished_batches {
                script.say(format!(
                    "start: batch {id} is not finished, {} mutations",
                    mutations.len()
                ));
            }
        }
        drop(runtime::spawn(shard.log.clone().run_periodic()));
        Self {
            script,
            shard,
            store,
            node,
        }
    }

    /// Partition key and mutation of `K: LINE | LINE`.
    fn mutation(&self, text: &str) -> (Vec<u8>, Vec<u8>) {
        let (key, lines) = text.split_once(": ").unwrap_or_else(|| panic!("K: LINE in {text}"));
        let key = key.trim().parse::<i32>().expect("a partition key").to_be_bytes();
        let lines = lines.replace(" | ", "\n");
        (key.to_vec(), notation::mutation(&self.script.table(), &key, &lines))
    }

    async fn step(&self, line: &str) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let tablet = self.store.tablets()[0].clone();
        let failed = |done: Result<(), String>| done.map_or_else(|e| format!("{command}: {e}"), |()| String::new());
        let said = match command {
            "write" => self.write(rest),
            "together" => self.write_together(rest),
            "flush" => failed(self.shard.flush(&self.store, &tablet).await),
            "compact" => failed(self.shard.compact_table(&self.store).await),
            "truncate" => failed(self.shard.truncate(&self.store).await),
            "alter" => failed(self.alter(rest).await),
            "drop" => failed(self.shard.drop_table(self.store.table().id).await),
            "read" => format!("{line}: {}", self.read(rest).await),
            "row" => format!("{line}: {}", self.read_row(rest).await),
            "sstables" => format!("sstables: {}", self.sstables()),
            "memory" => format!("memory: {}", self.memory()),
            "log" => format!("log: segments {:?}", segments()),
            "note" => self.note(rest),
            "end" => {
                self.shard.end_batch(rest.parse().expect("the batch's id"));
                String::new()
            }
            "hold" => {
                self.hold(rest);
                String::new()
            }
            "damage" => {
                damage(rest);
                String::new()
            }
            "look" => {
                let lost = self.shard.sstables_lost();
                let done = self.shard.look_into_damage().await;
                done.map_or_else(
                    |e| e,
                    |()| format!("look: {} moved aside", self.shard.sstables_lost() - lost),
                )
            }
            "accept" => match self.shard.accept_loss(&self.store).await {
                Ok(names) => format!("accept: {}", names.join(", ")),
                Err(e) => e,
            },
            "wait" => {
                runtime::sleep(Duration::from_secs(rest.parse().expect("seconds"))).await;
                String::new()
            }
            "old" => self.remove_old_log().await,
            _ => panic!("no command is: {line}"),
        };
        if !said.is_empty() {
            self.script.say(notation::shorten(&said));
        }
    }

    /// `drop COLUMN @T`, or `add COLUMN` of one that was dropped.
    async fn alter(&self, text: &str) -> Result<(), String> {
        let mut table = (*self.script.table()).clone();
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["drop", column, at] => table.drop_column(column, at[1..].parse().expect("a timestamp")),
            ["add", column] => {
                let dropped = table.last_dropped().find(|d| d.name == column).cloned();
                let dropped = dropped.expect("it was dropped");
                table.add_column(column, dropped.cql_type, dropped.kind);
            }
            _ => panic!("drop COLUMN @T, or add COLUMN, in {text}"),
        }
        let table = Arc::new(table);
        *self.script.table.borrow_mut() = table.clone();
        let ranges = vec![self.shard.token_range()];
        self.shard.reconcile(&[WantedTable {
            table,
            ranges,
            keeps_shards: false,
        }]);
        match words[0] {
            "add" => self.shard.reopen_sstables(&self.store).await,
            _ => Ok(()),
        }
    }

    fn write(&self, text: &str) -> String {
        let (key, bytes) = self.mutation(text);
        let mutation = Mutation::new(&bytes).expect("a mutation");
        self.commit("write", self.shard.write(&self.store, token_of(&key), &mutation))
    }

    fn write_together(&self, text: &str) -> String {
        let packed: Vec<_> = text.split(" | ").map(|one| self.mutation(one)).collect();
        let mutations: Vec<_> = packed
            .iter()
            .map(|(key, bytes)| {
                (
                    self.store.clone(),
                    token_of(key),
                    Mutation::new(bytes).expect("a mutation"),
                )
            })
            .collect();
        self.commit("together", self.shard.write_batch(&mutations))
    }

    /// Commits what was written; says why it is not written.
    fn commit(&self, what: &str, written: Result<Logged, WriteError>) -> String {
        let logged = match written {
            Ok(logged) => logged,
            Err(e) => return format!("{what}: {e}"),
        };
        let committed = self.shard.commit(&logged);
        committed.map_or_else(|e| format!("{what}: {e}"), |_| String::new())
    }

    /// Begins a batch, and writes this shard's part of it.
    fn note(&self, text: &str) -> String {
        let (id, mutation) = text.split_once(' ').expect("ID K: LINE");
        let (_, bytes) = self.mutation(mutation);
        let begun = self
            .shard
            .begin_batch(id.parse().expect("an id"), [&bytes[..]].into_iter());
        if let Err(e) = begun {
            return format!("note: {e}");
        }
        self.write(mutation)
    }

    fn hold(&self, text: &str) {
        let mut words = text.split(' ');
        let second = |text: &str| text.parse::<u32>().expect("a second");
        let hold = TombstoneHold {
            from: second(words.next().expect("a second")),
            spans: words
                .map(|span| {
                    span.split_once('-')
                        .map(|(from, to)| second(from)..=second(to))
                        .expect("A-B")
                })
                .collect(),
            ..TombstoneHold::ALONE
        };
        self.shard.hold_tombstones(Box::new(move |_, _| hold.clone()));
    }

    fn partition(key: &str) -> PartitionRead {
        whole(&key.parse::<i32>().expect("a partition key").to_be_bytes(), 100)
    }

    async fn blocks(&self, read: PartitionRead) -> Result<Vec<PartitionBlock>, ReadError> {
        let version = self.store.tablets()[0].version();
        let mut reader = PartitionReader::new(self.store.table(), version, self.shard.cache.clone(), read);
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block().await? {
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// The partition at once, whose rows are the same when it is read row by row.
    async fn read(&self, key: &str) -> String {
        let table = &self.script.table();
        let text = |block: &PartitionBlock| notation::block_text(table, block);
        let rows = |blocks: &[PartitionBlock]| {
            let all = blocks.iter().map(text).collect::<Vec<_>>().join("\n");
            all.lines()
                .filter(|line| line.starts_with("row"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let at_once = match self.blocks(Self::partition(key)).await {
            Ok(blocks) => blocks,
            Err(e) => return error_text(&e),
        };
        let mut read = Self::partition(key);
        read.limits.rows = 1;
        let one_by_one = self.blocks(read).await.expect("it was read before");
        assert_eq!(rows(&one_by_one), rows(&at_once), "row by row, and at once");
        let texts: Vec<String> = at_once.iter().map(text).collect();
        if texts.is_empty() {
            return "nothing".to_owned();
        }
        texts.join("\n").replace('\n', " | ")
    }

    /// One row by its name, which says what its partition says of it.
    async fn read_row(&self, text: &str) -> String {
        let table = &self.script.table();
        let (key, clustering) = text.split_once(' ').expect("K C");
        let mut read = Self::partition(key);
        let clustering = notation::prefix(table, clustering);
        let key = read.key.clone();
        let version = self.store.tablets()[0].version();
        let from_memory = version
            .read_memory(RowName::new(&key, &clustering), &mut Vec::new(), |_, _| ())
            .is_some();
        let by_name = version
            .read_row(table, &self.shard.cache, RowName::new(&key, &clustering))
            .await;
        let block = match by_name {
            Ok(block) => block,
            Err(e) => return error_text(&e),
        };
        let text = |block: Option<&PartitionBlock>| {
            let block = block.filter(|block| !block.is_empty());
            block.map_or_else(|| "nothing".to_owned(), |block| notation::block_text(table, block))
        };
        read.slices = vec![ClusteringSlice::exactly(&clustering)];
        let in_partition = self.blocks(read).await.expect("it was read before");
        assert_eq!(
            text(block.as_ref()),
            text(in_partition.first()),
            "by its name, and in its partition"
        );
        let place = if from_memory { "memory" } else { "files" };
        format!("{}, from {place}", text(block.as_ref()).replace('\n', " | "))
    }

    fn sstables(&self) -> String {
        let version = self.store.tablets()[0].version();
        let mut names: Vec<String> = version
            .sstables
            .iter()
            .map(|reader| reader.descriptor().generation.to_string())
            .collect();
        names.sort();
        let missing: Vec<String> = version.missing.iter().map(sstable::Quarantined::name).collect();
        let mut text = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        if !missing.is_empty() {
            text += &format!("; missing {}", missing.join(", "));
        }
        text
    }

    /// What the shard counts as dirty is what its memtables hold.
    fn memory(&self) -> String {
        let version = self.store.tablets()[0].version();
        let frozen: usize = version.frozen.iter().map(|f| f.memtable.bytes()).sum();
        let active = version.active.borrow();
        let is_empty = active.is_empty() && version.frozen.is_empty();
        let counted = self.shard.memory().dirty;
        if counted == 0 || is_empty {
            return format!(
                "{counted} bytes, memtables {}",
                if is_empty { "empty" } else { "not empty" }
            );
        }
        assert_eq!(
            counted,
            active.bytes() + frozen,
            "dirty bytes are those of the memtables"
        );
        format!(
            "that of {} memtables",
            version.frozen.len() + usize::from(!active.is_empty())
        )
    }

    async fn remove_old_log(&self) -> String {
        self.node.forget_old_log(std::slice::from_ref(&self.shard)).await;
        String::new()
    }
}

fn error_text(error: &ReadError) -> String {
    match error {
        ReadError::Missing { name, .. } => format!("refused: {name} is missing"),
        ReadError::NoRowMemory(why) => format!("refused: {why}"),
        ReadError::NoIndex | ReadError::NotIndexed { .. } => format!("refused: {error}"),
        ReadError::File(_) => "refused: damage".to_owned(),
    }
}

/// Flips a bit in the middle of a component.
fn damage(text: &str) {
    let (generation, component) = text.split_once(' ').expect("N COMPONENT");
    let path = Path::new(DIR).join(format!("me-{generation}-big-{component}"));
    let mut bytes = runtime::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    runtime::fs::write(&path, &bytes).expect("the disk works");
    let file = runtime::fs::File::open(&path, runtime::fs::OpenOptions::READ).expect("it is there");
    file.sync_all_blocking().expect("the disk works");
}

#[test]
fn writes_flushes_and_reads() {
    testkit::run(path!("tests/suites/reads.txt"), play);
}

#[test]
fn compactions_and_what_they_forget() {
    testkit::run(path!("tests/suites/compactions.txt"), play);
}

#[test]
fn restarts_and_what_the_log_keeps() {
    testkit::run(path!("tests/suites/restarts.txt"), play);
}

#[test]
fn damaged_sstables() {
    testkit::run(path!("tests/suites/damage.txt"), play);
}

#[test]
fn dropped_columns_that_are_added_again() {
    testkit::run(path!("tests/suites/dropped.txt"), play);
}
