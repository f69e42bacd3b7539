//! A simulated cluster of members: a transport over TCP that loses, repeats and delays, a machine that notes what it
//! applies, and the checks that hold at every moment.

use consensus::{Consensus, MembershipError, Options, ProposeError, Start, StateMachine, Status, Transport};
use consensus::{changes_towards, choose_voters};
use runtime::Notify;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::sim::{NodeId, Simulation};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

pub const GROUP: u64 = 0xce70;
const PORT: u16 = 7000;
const QUEUE_MAX: usize = 512;

pub fn dir() -> PathBuf {
    PathBuf::from("/metadata/raft")
}

/// What all members did, as an observer sees it that is everywhere.
#[derive(Default)]
pub struct Record {
    /// Index and command, as the first member that reached the index applied it.
    pub log: BTreeMap<u64, u64>,
    /// The leader of each term.
    pub leaders: BTreeMap<u64, u64>,
    /// Command and index of what was confirmed to its proposer.
    pub confirmed: BTreeMap<u64, u64>,
    /// What certainly did not happen.
    pub refused: BTreeSet<u64>,
    pub next_command: u64,
    /// Of each member of now, what it has applied.
    pub histories: BTreeMap<u64, Vec<(u64, u64)>>,
    pub status: BTreeMap<u64, Status>,
    pub barriers: u64,
    pub snapshots_restored: u64,
    /// How long a member takes to restore one.
    pub restore_takes: Duration,
    pub changes_made: u64,
    /// The highest term in which a member has granted a vote, and to which candidate.
    pub votes: BTreeMap<u64, (u64, u64)>,
}

impl Record {
    /// Looks at what a member sends: a vote that it granted binds it permanently, whatever happens to its machine.
    fn watch(&mut self, from: u64, to: u64, message: &[u8]) {
        // See the layout in `message.rs`: the type follows the header, then the term; the refusal follows seven
        // numbers.
        let (kind, term, is_refusal) = match message {
            [_, ..] if message.len() > 99 && message[41] == 1 => {
                let term = u64::from_be_bytes(message[43..51].try_into().expect("eight bytes"));
                (message[42], term, message[99] != 0)
            }
            _ => return,
        };
        // Appends, heartbeats and their answers, and answers to candidates; not those of a pre-vote: its term is only
        // proposed.
        if ![2, 3, 5, 7, 8].contains(&kind) {
            return;
        }
        if let Some((promised, _)) = self.votes.get(&from) {
            assert!(
                term >= *promised,
                "member {from} speaks in term {term} after it voted in term {promised}"
            );
        }
        if kind == 5 && !is_refusal {
            let before = self.votes.insert(from, (term, to));
            assert!(
                before.is_none_or(|(before, whom)| before < term || whom == to),
                "member {from} voted twice in term {term}: {before:?}, then for {to}"
            );
        }
    }
}

pub type Shared = Rc<RefCell<Record>>;

/// Notes every command, in order.
struct Ledger {
    id: u64,
    record: Shared,
}

impl StateMachine for Ledger {
    fn apply<'a>(&'a self, index: u64, command: &'a [u8]) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        let command = u64::from_be_bytes(
            command[..8]
                .try_into()
                .expect("commands of this test have 8 bytes and more"),
        );
        Box::pin(async move {
            if runtime::random_u64().is_multiple_of(8) {
                runtime::sleep(Duration::from_millis(runtime::random_u64() % 40)).await;
            }
            let record = &mut *self.record.borrow_mut();
            let before = record.log.range(..index).next_back().map(|(index, _)| *index);
            let history = record.histories.entry(self.id).or_default();
            assert_eq!(
                history.last().map(|(index, _)| *index),
                before,
                "member {} applies index {index} without what others applied before it",
                self.id
            );
            let known = *record.log.entry(index).or_insert(command);
            assert_eq!(
                known, command,
                "member {} applies another command at index {index}",
                self.id
            );
            assert!(
                !history.iter().any(|(_, other)| *other == command),
                "member {} applies command {command} twice",
                self.id
            );
            history.push((index, command));
        })
    }

    fn snapshot(&self) -> Vec<u8> {
        let record = self.record.borrow();
        let history = record.histories.get(&self.id).cloned().unwrap_or_default();
        history
            .iter()
            .flat_map(|(index, command)| [index.to_be_bytes(), command.to_be_bytes()].concat())
            .collect()
    }

    fn restore<'a>(&'a self, _index: u64, snapshot: &'a [u8]) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        let history = snapshot
            .chunks(16)
            .map(|pair| (number(&pair[..8]), number(&pair[8..])))
            .collect();
        let restore_takes = {
            let mut record = self.record.borrow_mut();
            record.snapshots_restored += 1;
            record.histories.insert(self.id, history);
            record.restore_takes
        };
        Box::pin(async move {
            if !restore_takes.is_zero() {
                runtime::sleep(restore_takes).await;
            }
        })
    }

    fn check_command(&self, command: &[u8]) -> Result<(), String> {
        match command.len() {
            8.. => Ok(()),
            bytes => Err(format!("{bytes} bytes are no command of this test")),
        }
    }

    fn check_snapshot(&self, _index: u64, snapshot: &[u8]) -> Result<(), String> {
        match snapshot.len() % 16 {
            0 => Ok(()),
            _ => Err("it ends within a command".to_owned()),
        }
    }
}

/// What the network does on top of what the simulated one does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost_percent: u64,
    pub repeated_percent: u64,
    pub late_percent: u64,
}

struct Peer {
    queue: RefCell<VecDeque<Vec<u8>>>,
    wake: Notify,
}

struct Tcp {
    peers: BTreeMap<u64, Rc<Peer>>,
    weather: Weather,
    id: u64,
    record: Shared,
}

impl Peer {
    fn push(&self, message: Vec<u8>) {
        let mut queue = self.queue.borrow_mut();
        if queue.len() < QUEUE_MAX {
            queue.push_back(message);
            self.wake.notify_all();
        }
    }

    /// Sends over connections that are given up every second, so that a machine that lost its power is noticed.
    async fn run(self: Rc<Self>, from: u64, address: SocketAddr) {
        loop {
            let connected = runtime::timeout(Duration::from_millis(500), TcpStream::connect(address)).await;
            let Ok(Ok(mut stream)) = connected else {
                self.queue.borrow_mut().clear();
                runtime::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let opened = runtime::now();
            while opened.elapsed() < Duration::from_secs(1) {
                let wake = self.wake.notified();
                let Some(message) = self.queue.borrow_mut().pop_front() else {
                    let _ = runtime::timeout(Duration::from_millis(500), wake).await;
                    continue;
                };
                let mut frame = u32::try_from(message.len()).expect("small").to_be_bytes().to_vec();
                frame.extend_from_slice(&from.to_be_bytes());
                frame.extend_from_slice(&message);
                let sent = runtime::timeout(Duration::from_secs(1), stream.write_all(frame)).await;
                if !matches!(sent, Ok((Ok(()), _))) {
                    break;
                }
            }
        }
    }
}

impl Transport for Tcp {
    fn send(&self, to: u64, message: Vec<u8>) {
        let Some(peer) = self.peers.get(&to) else {
            return;
        };
        self.record.borrow_mut().watch(self.id, to, &message);
        let percent = |limit: u64| runtime::random_u64() % 100 < limit;
        if percent(self.weather.lost_percent) {
            return;
        }
        if percent(self.weather.repeated_percent) || percent(self.weather.late_percent) {
            let (peer, message) = (Rc::clone(peer), message.clone());
            drop(runtime::spawn(async move {
                runtime::sleep(Duration::from_millis(runtime::random_u64() % 1500)).await;
                peer.push(message);
            }));
            if percent(50) {
                return;
            }
        }
        peer.push(message);
    }
}

async fn listen(consensus: Consensus) {
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
    let listener = TcpListener::bind(any, ListenOptions::default()).expect("the port is free on this machine");
    loop {
        let Ok(mut stream) = listener.accept().await else {
            continue;
        };
        let consensus = consensus.clone();
        drop(runtime::spawn(async move {
            let mut buffer = Vec::new();
            loop {
                buffer.reserve(64 << 10);
                let (read, filled) = stream.read(buffer).await;
                buffer = filled;
                if !matches!(read, Ok(1..)) {
                    return;
                }
                while let Some(header) = buffer.first_chunk::<12>() {
                    let length = u32::from_be_bytes(header[..4].try_into().expect("four bytes")) as usize;
                    let from = u64::from_be_bytes(header[4..].try_into().expect("eight bytes"));
                    if buffer.len() < 12 + length {
                        break;
                    }
                    consensus.receive(from, buffer[12..12 + length].to_vec());
                    buffer.drain(..12 + length);
                }
            }
        }));
    }
}

/// How a cluster is set up. Member `n` runs on machine `n - 1`.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub nodes: u64,
    /// The first so many are the first voters, the others join.
    pub voters: u64,
    pub weather: Weather,
    pub log_bytes_max: u64,
    pub entries_kept: u64,
    /// Every member proposes and asks.
    pub has_workload: bool,
    /// Members change the set of voters.
    pub moves_votes: bool,
}

impl Setup {
    pub fn calm(seed: u64, nodes: u64, voters: u64) -> Self {
        Self {
            seed,
            nodes,
            voters,
            weather: Weather::default(),
            log_bytes_max: 16 << 10,
            entries_kept: 16,
            has_workload: false,
            moves_votes: false,
        }
    }
}

/// What a test wants a member to do, as a task on its machine.
pub type Wish = Box<dyn FnOnce(Consensus) -> Pin<Box<dyn Future<Output = ()>>>>;

pub struct Cluster {
    pub sim: Simulation,
    pub setup: Setup,
    pub record: Shared,
    wishes: Rc<RefCell<BTreeMap<u64, VecDeque<Wish>>>>,
}

impl Cluster {
    pub fn start(setup: Setup) -> Self {
        let mut sim = Simulation::new(setup.seed);
        let record = Shared::default();
        let wishes: Rc<RefCell<BTreeMap<u64, VecDeque<Wish>>>> = Rc::default();
        let nodes: Vec<NodeId> = (0..setup.nodes).map(|_| sim.add_node(1)).collect();
        let addresses: BTreeMap<u64, SocketAddr> = (1..)
            .zip(&nodes)
            .map(|(id, node)| (id, SocketAddr::new(sim.address(*node), PORT)))
            .collect();
        for (id, node) in (1..).zip(&nodes) {
            let (setup, record, wishes, addresses) = (setup.clone(), record.clone(), wishes.clone(), addresses.clone());
            sim.start(*node, move |_| {
                let (setup, record, wishes, addresses) =
                    (setup.clone(), record.clone(), wishes.clone(), addresses.clone());
                Box::pin(live(id, setup, record, wishes, addresses))
            });
        }
        Self {
            sim,
            setup,
            record,
            wishes,
        }
    }

    pub fn node(&self, id: u64) -> NodeId {
        NodeId(u32::try_from(id - 1).expect("few nodes"))
    }

    pub fn ids(&self) -> Vec<u64> {
        (1..=self.setup.nodes).collect()
    }

    pub fn status(&self, id: u64) -> Option<Status> {
        self.record.borrow().status.get(&id).cloned()
    }

    /// Lets a member do something and waits for it.
    pub fn ask<T: 'static>(
        &mut self,
        id: u64,
        limit: Duration,
        wish: impl AsyncFnOnce(Consensus) -> T + 'static,
    ) -> Option<T> {
        let answer: Rc<RefCell<Option<T>>> = Rc::default();
        let slot = answer.clone();
        let wish: Wish = Box::new(move |consensus| {
            Box::pin(async move {
                let value = wish(consensus).await;
                *slot.borrow_mut() = Some(value);
            })
        });
        self.wishes.borrow_mut().entry(id).or_default().push_back(wish);
        let waiting = answer.clone();
        self.sim.run_until(limit, move || waiting.borrow().is_some());
        answer.borrow_mut().take()
    }

    /// Proposes a new command and notes its outcome.
    pub fn propose(&mut self, id: u64, timeout: Duration) -> Result<u64, ProposeError> {
        let record = self.record.clone();
        self.ask(id, timeout + Duration::from_secs(5), async move |consensus| {
            propose(&consensus, &record, timeout).await
        })
        .unwrap_or(Err(ProposeError::Timeout))
    }

    pub fn leader(&self) -> Option<u64> {
        let record = self.record.borrow();
        let leads = |id: &&u64| record.status.get(id).is_some_and(|status| status.leader == Some(**id));
        let up: Vec<u64> = self
            .ids()
            .into_iter()
            .filter(|id| self.sim.is_running(self.node(*id)))
            .collect();
        up.iter().filter(leads).max_by_key(|id| record.status[id].term).copied()
    }

    pub fn wait_for_leader(&mut self) -> u64 {
        for _ in 0..400 {
            self.sim.run_for(Duration::from_millis(50));
            if let Some(leader) = self.leader() {
                return leader;
            }
        }
        panic!("seed {}: no leader in 20 seconds", self.setup.seed);
    }

    /// Everything works again; what was promised is there, everywhere, and the group keeps working.
    pub fn heal_and_check(&mut self) {
        let seed = self.setup.seed;
        let nodes: Vec<NodeId> = self.ids().into_iter().map(|id| self.node(id)).collect();
        self.sim.heal(&nodes, &nodes);
        for node in &nodes {
            self.sim.clear_file_faults(*node);
            self.sim.set_disk_delay(*node, Duration::ZERO);
            if !self.sim.is_running(*node) {
                self.sim.restart(*node);
            }
        }
        let mut last = None;
        for _ in 0..20 {
            let record = self.record.clone();
            let done = self.ask(1, Duration::from_secs(10), async move |consensus| {
                propose(&consensus, &record, Duration::from_secs(5)).await
            });
            if let Some(Ok(index)) = done {
                last = Some(index);
                break;
            }
        }
        let last = last.unwrap_or_else(|| panic!("seed {seed}: the healed group takes no proposals"));
        let record = self.record.clone();
        let ids = self.ids();
        let members: Vec<u64> = {
            let status = &record.borrow().status[&1];
            ids.into_iter()
                .filter(|id| status.voters.contains(id) || status.learners.contains(id))
                .collect()
        };
        let (r, m) = (record.clone(), members.clone());
        let is_level = self.sim.run_until(Duration::from_secs(60), move || {
            let record = r.borrow();
            m.iter().all(|id| {
                let history = record.histories.get(id);
                history.is_some_and(|history| history.last().is_some_and(|(index, _)| *index >= last))
            })
        });
        let record = record.borrow();
        assert!(is_level, "seed {seed}: not all members catch up: {:#?}", record.status);
        for (command, index) in &record.confirmed {
            assert_eq!(
                record.log.get(index),
                Some(command),
                "seed {seed}: command {command} was confirmed at {index}"
            );
        }
        for command in &record.refused {
            let found = record.log.iter().find(|(_, other)| *other == command);
            assert_eq!(
                found, None,
                "seed {seed}: command {command} happened, though it was said not to have"
            );
        }
        for id in members {
            let history: BTreeMap<u64, u64> = record.histories[&id].iter().copied().collect();
            let expected: BTreeMap<u64, u64> = record.log.range(..=last).map(|(i, c)| (*i, *c)).collect();
            let upto: BTreeMap<u64, u64> = history.range(..=last).map(|(i, c)| (*i, *c)).collect();
            assert_eq!(upto, expected, "seed {seed}: member {id} has another history");
        }
    }
}

pub async fn propose(consensus: &Consensus, record: &Shared, timeout: Duration) -> Result<u64, ProposeError> {
    let command = {
        let mut record = record.borrow_mut();
        record.next_command += 1;
        record.next_command
    };
    let mut bytes = command.to_be_bytes().to_vec();
    bytes.resize(8 + (runtime::random_u64() % 400) as usize, 7);
    let result = consensus.propose(bytes, timeout).await;
    let mut record = record.borrow_mut();
    match &result {
        Ok(index) => {
            record.confirmed.insert(command, *index);
        }
        Err(ProposeError::NoQuorum | ProposeError::Overloaded) => {
            record.refused.insert(command);
        }
        Err(_) => {}
    }
    result
}

/// One process life of a member.
async fn live(
    id: u64,
    setup: Setup,
    record: Shared,
    wishes: Rc<RefCell<BTreeMap<u64, VecDeque<Wish>>>>,
    addresses: BTreeMap<u64, SocketAddr>,
) {
    record.borrow_mut().histories.remove(&id);
    record.borrow_mut().status.remove(&id);
    let peers: BTreeMap<u64, Rc<Peer>> = addresses
        .iter()
        .filter(|(peer, _)| **peer != id)
        .map(|(peer, _)| {
            let queue = Peer {
                queue: RefCell::default(),
                wake: Notify::new(),
            };
            (*peer, Rc::new(queue))
        })
        .collect();
    for (peer, queue) in &peers {
        drop(runtime::spawn(queue.clone().run(id, addresses[peer])));
    }
    let transport = Rc::new(Tcp {
        peers,
        weather: setup.weather,
        id,
        record: record.clone(),
    });
    let start = if id <= setup.voters {
        Start::Voters((1..=setup.voters).collect())
    } else {
        Start::Joining
    };
    let mut options = Options::new(dir(), GROUP, id);
    options.log_bytes_max = setup.log_bytes_max;
    options.entries_kept = setup.entries_kept;
    options.snapshot_ticks = 40;
    let ledger = Rc::new(Ledger {
        id,
        record: record.clone(),
    });
    let consensus = loop {
        let started = Consensus::start(options.clone(), start.clone(), transport.clone(), ledger.clone()).await;
        match started {
            Ok(consensus) => break consensus,
            // A disk that fails once; everything else is a fault of ours.
            Err(consensus::StartError::Store(consensus::StoreError::Io { .. })) => {
                runtime::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => panic!("seed {}: member {id} does not start: {error}", setup.seed),
        }
    };
    drop(runtime::spawn(listen(consensus.clone())));
    if setup.has_workload {
        for _ in 0..3 {
            drop(runtime::spawn(work(consensus.clone(), setup.clone(), record.clone())));
        }
    }
    if setup.moves_votes {
        drop(runtime::spawn(move_votes(
            consensus.clone(),
            setup.clone(),
            record.clone(),
        )));
    }
    loop {
        let status = consensus.status();
        if status.leader == Some(id) {
            let other = *record.borrow_mut().leaders.entry(status.term).or_insert(id);
            assert_eq!(other, id, "seed {}: term {} has two leaders", setup.seed, status.term);
        }
        record.borrow_mut().status.insert(id, status);
        let wish = wishes.borrow_mut().get_mut(&id).and_then(VecDeque::pop_front);
        if let Some(wish) = wish {
            drop(runtime::spawn(wish(consensus.clone())));
        }
        runtime::sleep(Duration::from_millis(10)).await;
    }
}

/// Proposes, and asks whether this member is up to date.
async fn work(consensus: Consensus, setup: Setup, record: Shared) {
    loop {
        runtime::sleep(Duration::from_millis(runtime::random_u64() % 300)).await;
        if runtime::random_u64().is_multiple_of(4) {
            let confirmed = record.borrow().confirmed.values().max().copied().unwrap_or(0);
            if let Ok(applied) = consensus.read_barrier(Duration::from_secs(3)).await {
                assert!(
                    applied >= confirmed,
                    "seed {}: a barrier passed at {applied}, and {confirmed} was confirmed before it began",
                    setup.seed
                );
                record.borrow_mut().barriers += 1;
            }
        } else {
            let _ = propose(
                &consensus,
                &record,
                Duration::from_millis(500 + runtime::random_u64() % 3000),
            )
            .await;
        }
    }
}

/// Wants other voters now and then.
async fn move_votes(consensus: Consensus, setup: Setup, record: Shared) {
    loop {
        runtime::sleep(Duration::from_millis(1000 + runtime::random_u64() % 4000)).await;
        let members: Vec<consensus::Member> = (1..=setup.nodes)
            .filter(|_| !runtime::random_u64().is_multiple_of(4))
            .map(|id| consensus::Member {
                id,
                datacenter: "dc".to_owned(),
                rack: format!("rack{}", runtime::random_u64() % 3),
                is_down: false,
            })
            .collect();
        let current: BTreeSet<u64> = consensus.status().voters.into_iter().collect();
        let wanted = choose_voters(&members, &BTreeSet::new());
        if wanted.is_empty() || current.is_empty() {
            continue;
        }
        let result = consensus
            .change_members(changes_towards(&current, &wanted), Duration::from_secs(3))
            .await;
        match result {
            Ok(()) => record.borrow_mut().changes_made += 1,
            Err(MembershipError::InvalidId(id)) => panic!("{id} is a valid id"),
            Err(_) => {}
        }
    }
}

/// Chance for what strikes the cluster from outside.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}
