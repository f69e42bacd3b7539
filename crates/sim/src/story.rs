//! Stories of a small cluster, step by step: a test says which node is asked what, and what happens to the machines in
//! between.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use node::Directory;
use rpc::Limits;
use runtime::sim::{CrashKind, DirectoryCopy};

use crate::client::{Answer, Client};
use crate::cluster::{Cluster, ClusterSetup, SEGMENT_BYTES, SHARD_BYTES};
use crate::machine::Durability;
use crate::model::Value;

/// The protocol's number of the level.
pub const ONE: u16 = 1;
/// The protocol's number of the level.
pub const QUORUM: u16 = 4;
/// The protocol's number of the level.
pub const ALL: u16 = 5;
/// The protocol's number of the level.
pub const EACH_QUORUM: u16 = 7;

const SECOND: Duration = Duration::from_secs(1);
/// Everything that a node keeps.
const WORKDIR: &str = "/ceto";
/// How long a node may take until it serves or says why it does not start: one that joins asks its seeds for two
/// minutes.
const START_WAIT_MAX: Duration = Duration::from_mins(3);
/// How long a story waits for an answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_mins(2);

/// A statement for a node.
struct Said {
    address: SocketAddr,
    statement: String,
    level: u16,
    page: Option<Page>,
}

/// The rows that a page may have, and the state that the page before returned.
type Page = (i32, Option<Vec<u8>>);

/// What the clients' machine is to say, and what it was answered; no answer while the node accepts no client.
#[derive(Default)]
struct Script {
    said: RefCell<VecDeque<Said>>,
    answer: RefCell<Option<Option<Answer>>>,
}

async fn say(script: Rc<Script>, watched: Rc<Cell<Option<SocketAddr>>>, events: Events) {
    loop {
        if let Some(address) = watched.take() {
            drop(runtime::spawn(watch(address, events.clone())));
        }
        let next = script.said.borrow_mut().pop_front();
        let Some(said) = next else {
            runtime::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let answer = async {
            let mut client = Client::connect(said.address).await.ok()?;
            let (statement, level) = (&said.statement, said.level);
            match &said.page {
                Some((rows, state)) => client.ask_page(statement, level, *rows, state.as_deref()).await.ok(),
                None => client.ask_at(statement, level).await.ok(),
            }
        };
        let answer = answer.await;
        *script.answer.borrow_mut() = Some(answer);
    }
}

/// The events of members that a client has received, oldest first.
type Events = Rc<RefCell<Vec<(String, SocketAddr)>>>;

/// A client that registers for the events of members at one node, and notes them until its connection is lost.
async fn watch(address: SocketAddr, events: Events) -> io::Result<()> {
    let mut client = Client::connect(address).await?;
    client.register_for_members().await?;
    loop {
        let event = client.member_event().await?;
        events.borrow_mut().push(event);
    }
}

/// A cluster with one client, which asks one thing after the other.
pub struct Story {
    /// The machines.
    pub cluster: Cluster,
    script: Rc<Script>,
    /// Where a client is to register for events.
    watched: Rc<Cell<Option<SocketAddr>>>,
    events: Events,
}

impl Story {
    /// Nodes of one datacenter, with one shard each, that keep hints and sync their log ten times a second.
    #[must_use]
    pub fn setup(nodes: usize) -> ClusterSetup {
        ClusterSetup {
            shards: vec![1; nodes],
            places: vec![("datacenter1".to_owned(), "rack1".to_owned()); nodes],
            hints: true,
            write_timeouts: vec![Duration::from_secs(2)],
            ring_cleanup_delay: Duration::from_mins(5),
            durability: Durability::Periodic(Duration::from_millis(100)),
            seeds: 1,
            shard_bytes: SHARD_BYTES,
            segment_bytes: vec![SEGMENT_BYTES; nodes],
            limits: Limits::default(),
            serves_items: false,
        }
    }

    /// A cluster of which all nodes serve.
    #[must_use]
    pub fn begin(seed: u64, setup: &ClusterSetup) -> Self {
        let mut story = Self::of_machines(seed, setup);
        for node in 0..setup.shards.len() {
            story.cluster.start(node);
            story.until_served(node);
        }
        story.cluster.sim.run_for(5 * SECOND);
        story
    }

    /// Machines on which no node runs yet.
    #[must_use]
    pub fn of_machines(seed: u64, setup: &ClusterSetup) -> Self {
        let mut cluster = Cluster::new(seed, setup);
        let script = Rc::new(Script::default());
        let (watched, events): (Rc<Cell<Option<SocketAddr>>>, Events) = Default::default();
        let (said, asked, noted) = (script.clone(), watched.clone(), events.clone());
        cluster.start_clients(move || Box::pin(say(said.clone(), asked.clone(), noted.clone())));
        Self {
            cluster,
            script,
            watched,
            events,
        }
    }

    /// Makes a further client register for the events of members at a node. [`Self::take_events`] has what it receives.
    pub fn watch_members(&mut self, node: usize) {
        self.watched.set(Some(self.cluster.addresses()[node]));
        self.cluster.sim.run_for(SECOND);
    }

    /// The events of members that came since this was called last, oldest first, with the addresses that they are
    /// about.
    pub fn take_events(&mut self) -> Vec<(String, SocketAddr)> {
        self.events.take()
    }

    /// Makes the client ask a node; None when it does not answer.
    ///
    /// # Panics
    /// When the client learns nothing for minutes.
    pub fn ask(&mut self, node: usize, statement: &str, level: u16) -> Option<Answer> {
        self.say(node, statement, level, None)
    }

    /// Asks a node, as the client, for a page of at most this many rows, the first one or the one after a state; None
    /// when the node does not answer.
    ///
    /// # Panics
    /// When the client learns nothing for minutes.
    pub fn ask_page(
        &mut self,
        node: usize,
        statement: &str,
        level: u16,
        rows: i32,
        state: Option<Vec<u8>>,
    ) -> Option<Answer> {
        self.say(node, statement, level, Some((rows, state)))
    }

    fn say(&mut self, node: usize, statement: &str, level: u16, page: Option<Page>) -> Option<Answer> {
        self.script.answer.take();
        let said = Said {
            address: self.cluster.addresses()[node],
            statement: statement.to_owned(),
            level,
            page,
        };
        self.script.said.borrow_mut().push_back(said);
        let script = self.script.clone();
        let is_answered = || script.answer.borrow().is_some();
        assert!(
            self.cluster.sim.run_until(ANSWER_WAIT_MAX, is_answered),
            "no end of {:.200}",
            statement
        );
        self.script.answer.take().expect("it has just been answered")
    }

    /// Asks a node, as the client, for what must succeed. Returns the number that the first row has as `n`, if there is
    /// one.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn must(&mut self, node: usize, statement: &str, level: u16) -> Option<i32> {
        match self.ask(node, statement, level) {
            Some(Answer::Rows(rows, _)) => match rows.first()?.get("n") {
                Some(Value::Int(n)) => Some(*n),
                _ => None,
            },
            Some(Answer::Done | Answer::Prepared(_)) => None,
            other => panic!("{statement}: {other:?}"),
        }
    }

    /// Whether a node lets clients in.
    pub fn is_served(&mut self, node: usize) -> bool {
        self.ask(node, "SELECT key FROM system.local", ONE).is_some()
    }

    /// After how many seconds a node serves.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub fn until_served(&mut self, node: usize) -> usize {
        let served = (0..60).find(|_| {
            let is_served = self.is_served(node);
            self.cluster.sim.run_for(SECOND);
            is_served
        });
        served.unwrap_or_else(|| panic!("node {node} serves no client: {:?}", self.cluster.failure(node)))
    }

    /// Asks a node's REST API. Its answer, with the head.
    ///
    /// # Panics
    /// When there is none.
    pub fn operate(&mut self, node: usize, request: &str) -> String {
        self.cluster.order(node, request);
        for _ in 0..60 {
            self.cluster.sim.run_for(SECOND);
            if let Some(answer) = self.cluster.take_answer(node) {
                return answer.unwrap_or_else(|| panic!("{request}: no answer"));
            }
        }
        panic!("{request}: no answer within a minute");
    }

    /// Starts a node that is stopped, and waits until it serves.
    ///
    /// # Errors
    /// Why it does not start, in the words for its operator.
    ///
    /// # Panics
    /// When it does neither for minutes.
    pub fn restart(&mut self, node: usize) -> Result<(), String> {
        self.cluster.restart(node);
        let end = self.cluster.sim.now() + START_WAIT_MAX;
        while self.cluster.sim.now() < end {
            if let Some(reason) = self.cluster.failure(node) {
                return Err(reason);
            }
            if self.is_served(node) {
                return Ok(());
            }
            self.cluster.sim.run_for(SECOND);
        }
        panic!("node {node} neither serves nor says why");
    }

    /// Ends a node in order, as its operator does.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub fn stop(&mut self, node: usize) {
        let machine = self.cluster.machine(node);
        self.cluster.sim.terminate(machine);
        let has_ended = self.cluster.sim.run_until_ended(machine, 60 * SECOND);
        assert!(has_ended, "node {node} does not end");
        self.cluster.crash(node, CrashKind::Kill);
    }

    /// Copies everything that a node keeps. End the node first.
    pub fn copy_workdir(&mut self, node: usize) -> DirectoryCopy {
        let machine = self.cluster.machine(node);
        self.cluster.sim.copy_directory(machine, WORKDIR)
    }

    /// Puts a copy of a node's files in the place of what the node has. End the node first.
    pub fn put_back(&mut self, node: usize, copy: &DirectoryCopy) {
        let machine = self.cluster.machine(node);
        self.cluster.sim.put_directory(machine, copy);
    }

    /// Empties a directory in the workdir of a node, or the workdir itself, which has no name. End the node first.
    pub fn empty_directory(&mut self, node: usize, name: &str) {
        let machine = self.cluster.machine(node);
        self.cluster.sim.empty_directory(machine, Path::new(WORKDIR).join(name));
    }

    /// Makes the operator of a node run `ceto recover-metadata --rejoin`, and confirm it with the sentence that the
    /// command asks for. Returns what the command prints then. End the node first.
    ///
    /// # Errors
    /// What the command says.
    pub fn rejoin(&mut self, node: usize) -> Result<String, String> {
        let explanation = self.cluster.rejoin(node, None)?;
        self.cluster.rejoin(node, Some(sentence_of(&explanation)?))
    }

    /// Makes the operator of a node run `ceto recover-directory --accept`, and confirm it with the sentence that the
    /// command asks for. Returns what the command prints then. End the node first.
    ///
    /// # Errors
    /// What the command says.
    pub fn accept_loss(&mut self, node: usize, directory: Directory) -> Result<String, String> {
        let explanation = self.cluster.recover_directory(node, directory, None)?;
        let sentence = sentence_of(&explanation)?;
        self.cluster.recover_directory(node, directory, Some(sentence))
    }

    /// The host id of a node, as its operator sees it.
    pub fn host_id(&mut self, node: usize) -> String {
        let answer = self.operate(node, "GET /storage_service/hostid/local");
        let body = answer.rsplit("\r\n\r\n").next().unwrap_or_default();
        body.trim().trim_matches('"').to_owned()
    }

    /// The files below a directory of a node whose names end so.
    pub fn files(&mut self, node: usize, directory: &str, end: &str) -> Vec<PathBuf> {
        let machine = self.cluster.machine(node);
        self.cluster
            .sim
            .on_node(machine, || files_below(Path::new(directory), end))
    }

    /// Changes every byte of some files of a node while it runs.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn damage(&mut self, node: usize, files: &[PathBuf]) {
        let machine = self.cluster.machine(node);
        self.cluster.sim.on_node(machine, || {
            for file in files {
                let mut bytes = runtime::fs::read(file).expect("it is there");
                bytes.iter_mut().for_each(|byte| *byte ^= 1);
                runtime::fs::write(file, &bytes).expect("the disk works");
            }
        });
    }
}

/// The sentence that an offline command asks its operator to confirm.
fn sentence_of(explanation: &str) -> Result<&str, String> {
    let sentence = explanation.split("--confirm \"").nth(1);
    let sentence = sentence.and_then(|rest| rest.split('"').next());
    sentence.ok_or_else(|| format!("no sentence to confirm: {explanation}"))
}

/// The files below a directory whose names end so, but those of quarantined sstables. Run this on the machine.
#[must_use]
pub fn files_below(directory: &Path, end: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in runtime::fs::read_dir(directory).unwrap_or_default() {
        let path = directory.join(&entry.name);
        if entry.is_dir && entry.name != "damaged" {
            files.extend(files_below(&path, end));
        } else if !entry.is_dir && entry.name.ends_with(end) {
            files.push(path);
        }
    }
    files
}
