//! The machines of a cluster: one for each node, one for all clients, in one world.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use config::Config;
use node::Directory;
use rpc::Limits;
use runtime::ShardId;
use runtime::sim::{CrashKind, NodeId, Simulation};
use topology::Replaced;

use super::contents::Inventory;
use super::items::API_PORT;
use crate::machine::{Durability, Setup, Start, live, node_config};

const CQL_PORT: u16 = 9042;
const INTERNODE_PORT: u16 = 7000;

/// How the nodes of a cluster are set up.
#[derive(Clone, Debug)]
pub struct ClusterSetup {
    /// Shards of each node; one node for each.
    pub shards: Vec<u32>,
    /// The datacenter and the rack of each node.
    pub places: Vec<(String, String)>,
    /// Whether writes that a replica missed are kept for it.
    pub hints: bool,
    /// How long nodes wait for writes, one node after the other.
    pub write_timeouts: Vec<Duration>,
    /// How long the token ring rests before nodes remove what others own now.
    pub ring_cleanup_delay: Duration,
    /// When they acknowledge.
    pub durability: Durability,
    /// How many of the nodes, from the first on, are the seeds of all nodes.
    pub seeds: usize,
    /// Memory of each shard.
    pub shard_bytes: u64,
    /// Size of a commitlog segment of each node. A node refuses a write that is larger than half of its own.
    pub segment_bytes: Vec<u64>,
    /// The limits of connections between nodes.
    pub limits: Limits,
    /// Whether they serve the DynamoDB API.
    pub serves_items: bool,
}

/// Memory of a shard that has enough for what clients do: so little that it flushes by itself.
pub const SHARD_BYTES: u64 = 2 << 20;
/// Size of a commitlog segment, unless a test says otherwise.
pub const SEGMENT_BYTES: u64 = 64 << 10;
/// How long `ceto recover-metadata` may take.
const COMMAND_WAIT_MAX: Duration = Duration::from_mins(2);

/// A command that an operator runs on a machine while its node is stopped.
#[derive(Default)]
enum Rejoin {
    /// The next start is that of the node.
    #[default]
    None,
    /// The next start runs `ceto recover-metadata --rejoin` with this confirmation.
    Asked(Option<String>),
    /// What the command printed.
    Done(Result<String, String>),
}

struct Member {
    machine: NodeId,
    start: Rc<RefCell<Start>>,
    runs: Cell<bool>,
    /// How many it has from its next start on.
    shards: Rc<Cell<u32>>,
    rejoin: Rc<RefCell<Rejoin>>,
    /// The nodes that its first start asks, where these are not the common seeds.
    seeds: RefCell<Option<Vec<usize>>>,
    /// The member whose place it takes at its first start.
    replaces: Cell<Option<Replaced>>,
    /// What its operator has changed in its configuration.
    amended: Rc<RefCell<Option<Amendment>>>,
}

/// A change of a node's configuration.
type Amendment = Box<dyn Fn(&mut Config)>;

/// Nodes, clients, and the world around them.
pub struct Cluster {
    /// The world.
    pub sim: Simulation,
    members: Vec<Member>,
    clients: NodeId,
    setup: ClusterSetup,
    /// How many of the machines are not used at first.
    spares: usize,
    tickets: Cell<u64>,
    /// What the nodes hold, when it is asked for.
    pub(crate) inventory: Rc<Inventory>,
}

impl Cluster {
    /// Machines on which nothing runs yet.
    #[must_use]
    pub fn new(seed: u64, setup: &ClusterSetup) -> Self {
        let mut sim = Simulation::new(seed);
        let member = |shards: &u32| Member {
            machine: sim.add_node(*shards),
            start: Rc::default(),
            runs: Cell::new(false),
            shards: Rc::new(Cell::new(*shards)),
            rejoin: Rc::default(),
            seeds: RefCell::default(),
            replaces: Cell::default(),
            amended: Rc::default(),
        };
        let members = setup.shards.iter().map(member).collect();
        let clients = sim.add_node(1);
        Self {
            sim,
            members,
            clients,
            setup: setup.clone(),
            spares: 0,
            tickets: Cell::new(0),
            inventory: Rc::default(),
        }
    }

    /// How many nodes there are, running or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Where the nodes serve CQL.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |m: &Member| SocketAddr::new(self.sim.address(m.machine), CQL_PORT);
        self.members.iter().map(address).collect()
    }

    /// The last machines are not used at first.
    pub fn set_spares(&mut self, spares: usize) {
        self.spares = spares;
    }

    /// Where a node is.
    #[must_use]
    pub fn address(&self, node: usize) -> IpAddr {
        self.sim.address(self.members[node].machine)
    }

    /// Starts a node for the first time when there is a cluster already, whose members it asks. It takes the place of a
    /// member, if one is named.
    pub fn start_late(&mut self, node: usize, members: &[usize], replaces: Option<Replaced>) {
        *self.members[node].seeds.borrow_mut() = Some(members.to_vec());
        self.members[node].replaces.set(replaces);
        self.start(node);
    }

    /// Changes the configuration of a node from its next start on, in place of a former change.
    pub fn amend(&mut self, node: usize, amend: impl Fn(&mut Config) + 'static) {
        *self.members[node].amended.borrow_mut() = Some(Box::new(amend));
    }

    /// A second address of a node's machine, to which its operator may move it.
    #[must_use]
    pub fn second_address(&self, node: usize) -> IpAddr {
        self.sim.second_address(self.members[node].machine)
    }

    /// Starts a node for the first time.
    pub fn start(&mut self, node: usize) {
        let member = &self.members[node];
        member.runs.set(true);
        let (start, inventory) = (member.start.clone(), self.inventory.clone());
        let (shards, rejoin) = (member.shards.clone(), member.rejoin.clone());
        let amended = member.amended.clone();
        let machines = (self.members.len() - self.spares) as u64;
        let config_of = self.config_of(node);
        self.sim.start(member.machine, move |shard| {
            let mut config = config_of(shards.get());
            if let Some(amend) = &*amended.borrow() {
                amend(&mut config);
            }
            let (start, inventory, rejoin) = (start.clone(), inventory.clone(), rejoin.clone());
            Box::pin(async move {
                let confirmation = match &*rejoin.borrow() {
                    Rejoin::None => None,
                    Rejoin::Asked(confirmation) => Some(confirmation.clone()),
                    Rejoin::Done(_) => return,
                };
                if let Some(confirmation) = confirmation {
                    if shard == ShardId(0) {
                        let printed = node::rejoin(&config, confirmation.as_deref()).await;
                        *rejoin.borrow_mut() = Rejoin::Done(printed);
                    }
                    return;
                }
                drop(runtime::spawn(inventory.serve(config.rpc_address)));
                live(shard, config, start, machines).await;
            })
        });
    }

    /// The configuration of a node, by its number of shards.
    fn config_of(&self, node: usize) -> impl Fn(u32) -> Config + 'static {
        let own = self.members[node].seeds.borrow();
        let seeds = own.clone().unwrap_or_else(|| (0..self.setup.seeds).collect());
        let seeds: Vec<_> = seeds
            .into_iter()
            .map(|seed| &self.members[seed])
            .map(|m| SocketAddr::new(self.sim.address(m.machine), INTERNODE_PORT).into())
            .collect();
        let (datacenter, rack) = self.setup.places[node].clone();
        let address = SocketAddr::new(self.sim.address(self.members[node].machine), CQL_PORT);
        let setup = self.setup.clone();
        let replaces = self.members[node].replaces.get();
        move |shards| {
            let node_setup = Setup {
                shards,
                durability: setup.durability,
                shard_bytes: setup.shard_bytes,
                segment_bytes: setup.segment_bytes[node],
                log_bytes: 16 * setup.segment_bytes[node] * u64::from(shards),
            };
            let mut config = Config {
                seeds: seeds.clone(),
                storage_port: INTERNODE_PORT,
                data_center: datacenter.clone(),
                rack: rack.clone(),
                internode_limits: setup.limits.clone(),
                ..node_config(&node_setup, shards, address)
            };
            config.location.datacenter.clone_from(&datacenter);
            config.location.rack.clone_from(&rack);
            config.replaces = replaces;
            config.dynamodb.address = address.ip();
            config.dynamodb.port = setup.serves_items.then_some(API_PORT);
            config.hints.allowed.is_enabled = setup.hints;
            config.ring_cleanup_delay = setup.ring_cleanup_delay;
            // Options are of each node: what one takes for late another one may still send.
            config.timeouts.write = setup.write_timeouts[node % setup.write_timeouts.len()];
            // A conditional statement that contends with eight others over slow links may wait as long as for anything
            // else.
            config.timeouts.cas_contention = Duration::from_secs(10);
            config
        }
    }

    /// Makes the operator of a node that is stopped run `ceto recover-metadata --rejoin`. Returns what it prints, or
    /// why it failed.
    ///
    /// # Panics
    /// When the command does not end.
    pub fn rejoin(&mut self, node: usize, confirmation: Option<&str>) -> Result<String, String> {
        let (machine, rejoin) = (self.members[node].machine, self.members[node].rejoin.clone());
        *rejoin.borrow_mut() = Rejoin::Asked(confirmation.map(str::to_owned));
        self.sim.restart(machine);
        let is_done = || matches!(*rejoin.borrow(), Rejoin::Done(_));
        assert!(
            self.sim.run_until(COMMAND_WAIT_MAX, is_done),
            "the command does not end"
        );
        self.crash(node, CrashKind::Kill);
        match rejoin.take() {
            Rejoin::Done(printed) => printed,
            Rejoin::None | Rejoin::Asked(_) => unreachable!("it is done"),
        }
    }

    /// Makes the operator of a node that is stopped run `ceto recover-directory`. Returns what it prints, or why it
    /// failed.
    ///
    /// # Errors
    /// What the command says.
    pub fn recover_directory(
        &mut self,
        node: usize,
        directory: Directory,
        confirmation: Option<&str>,
    ) -> Result<String, String> {
        let config = self.config_of(node)(self.members[node].shards.get());
        let machine = self.machine(node);
        self.sim
            .on_node(machine, || node::recover_directory(&config, directory, confirmation))
    }

    /// A node has another number of shards from its next start on.
    pub fn set_shards(&mut self, node: usize, shards: u32) {
        self.members[node].shards.set(shards);
        self.sim.set_shards(self.members[node].machine, shards);
    }

    /// Starts what the clients' machine runs.
    pub fn start_clients(&mut self, clients: impl Fn() -> Pin<Box<dyn Future<Output = ()>>> + 'static) {
        self.sim.start(self.clients, move |_| clients());
    }

    /// Starts a node again that has been stopped.
    pub fn restart(&mut self, node: usize) {
        let member = &self.members[node];
        *member.start.borrow_mut() = Start::default();
        member.runs.set(true);
        self.sim.restart(member.machine);
    }

    /// Stops a node without warning.
    pub fn crash(&mut self, node: usize, kind: CrashKind) {
        self.members[node].runs.set(false);
        self.sim.crash(self.members[node].machine, kind);
        self.sim.clear_file_faults(self.members[node].machine);
    }

    /// Whether the node's process runs.
    #[must_use]
    pub fn is_running(&self, node: usize) -> bool {
        self.sim.is_running(self.members[node].machine)
    }

    /// Why a node ended by itself, or did not start; None for one that was not started or that was crashed.
    #[must_use]
    pub fn failure(&self, node: usize) -> Option<String> {
        let member = &self.members[node];
        if !member.runs.get() {
            return None;
        }
        member.start.borrow().failure()
    }

    /// Whether no client writes for some time: operators flush and compact less often.
    pub fn set_rest(&mut self, rests: bool) {
        for member in &self.members {
            member.start.borrow_mut().rests = rests;
        }
    }

    /// From now on operators flush and compact only on order: a test compares what happens.
    pub fn operators_only_obey(&mut self) {
        for member in &self.members {
            member.start.borrow_mut().only_obeys = true;
        }
    }

    /// Has a node's operator ask something of its REST API, such as `POST /storage_service/flush`; the answer comes
    /// within some seconds.
    pub fn order(&self, node: usize, request: &str) {
        self.members[node].start.borrow_mut().order(request.to_owned());
    }

    /// Has a node's operator ask something that may take long, beside everything else. The ticket is for the answer.
    #[must_use]
    pub fn order_apart(&self, node: usize, request: &str) -> u64 {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        self.members[node]
            .start
            .borrow_mut()
            .order_apart(ticket, request.to_owned());
        ticket
    }

    /// The answer to a ticket, with its head. None: not yet. It comes as an error when the node was started again
    /// since.
    #[must_use]
    pub fn answer_to(&self, node: usize, ticket: u64) -> Option<String> {
        let start = self.members[node].start.borrow();
        match start.apart_answers.get(&ticket) {
            Some(answer) => answer.clone(),
            None => Some("the node was started again".to_owned()),
        }
    }

    /// The next answer to an order, with its head: Some(None) where the API did not answer. None: not yet.
    #[must_use]
    pub fn take_answer(&self, node: usize) -> Option<Option<String>> {
        self.members[node].start.borrow_mut().answers.pop_front()
    }

    /// The machine of a node.
    #[must_use]
    pub fn machine(&self, node: usize) -> NodeId {
        self.members[node].machine
    }

    /// The links of a node to all other nodes, and from them, are up or not. Clients reach it all the same.
    pub fn set_links(&mut self, node: usize, to_others: bool, from_others: bool) {
        for other in 0..self.size() {
            if other != node {
                let (here, there) = (self.machine(node), self.machine(other));
                self.sim.set_link_up(here, there, to_others);
                self.sim.set_link_up(there, here, from_others);
            }
        }
    }

    /// The links between two groups of nodes are cut, both ways. Clients reach all.
    pub fn split(&mut self, one: &[usize], other: &[usize]) {
        let machines = |nodes: &[usize]| nodes.iter().map(|node| self.machine(*node)).collect::<Vec<NodeId>>();
        let (one, other) = (machines(one), machines(other));
        self.sim.partition(&one, &other);
    }

    /// Between a node and the others segments take longer, and some are lost.
    pub fn set_link_quality(&mut self, node: usize, delay: Duration, lost_per_million: u64) {
        for other in 0..self.size() {
            if other != node {
                let (here, there) = (self.machine(node), self.machine(other));
                for (from, to) in [(here, there), (there, here)] {
                    self.sim.set_delay(from, to, delay);
                    self.sim.set_loss(from, to, lost_per_million);
                }
            }
        }
    }

    /// Of a million requests between two nodes, so many come twice, and so many after later ones.
    pub fn disturb_messages(&mut self, repeated_per_million: u64, overtaken_per_million: u64) {
        for from in 0..self.size() {
            for to in (0..self.size()).filter(|to| *to != from) {
                let (from, to) = (self.machine(from), self.machine(to));
                self.sim
                    .set_message_faults(from, to, repeated_per_million, overtaken_per_million);
            }
        }
    }

    /// Leaves a node's disk that much room; None ends that.
    pub fn set_disk_room(&mut self, node: usize, room: Option<u64>) {
        let machine = self.machine(node);
        let Some(room) = room else {
            return self.sim.set_disk_capacity(machine, None);
        };
        let space = self.sim.on_node(machine, || runtime::fs::disk_space("/"));
        let used = space.map_or(0, |space| space.used);
        self.sim.set_disk_capacity(machine, Some(used + room));
    }
}
