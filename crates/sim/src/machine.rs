//! The two machines of a scenario: one for the node, one for its clients.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use config::{AutoSnapshot, CommitlogSync, Config, Machine};
use node::Prepared;
use query::engine::PageLimits;
use runtime::ShardId;
use runtime::net::TcpStream;
use runtime::sim::{NodeId, Simulation};

const WORKDIR: &str = "/ceto";
const PORT: u16 = 9042;
/// While the cluster rests, an operator does one in so many of the things that it would do else: there is nothing new
/// to flush or to compact.
const RESTS_TIMES: u64 = 8;
/// What the node subtracts from its memory before it gives the rest to its shards.
const UNCOUNTED_BYTES: u64 = 48 << 20;

/// When the node acknowledges a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Once the kernel has it; it is synced within that period.
    Periodic(Duration),
    /// Once it is synced.
    Batch,
}

/// How the node is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Shards at the first start.
    pub shards: u32,
    /// When it acknowledges.
    pub durability: Durability,
    /// Memory of one shard, small, so that it flushes by itself.
    pub shard_bytes: u64,
    /// Size of a segment of the log.
    pub segment_bytes: u64,
    /// Log beyond which memtables are flushed, over all shards.
    pub log_bytes: u64,
}

/// The node's machine, the clients' machine, and the world around them.
pub struct Machines {
    /// The world.
    pub sim: Simulation,
    /// Where the node runs.
    pub node: NodeId,
    /// Where the clients run.
    pub clients: NodeId,
    /// Where the node serves CQL.
    pub address: SocketAddr,
    start: Rc<RefCell<Start>>,
    /// How many shards the node has from its next start on.
    shards: Rc<Cell<u32>>,
}

/// How far the process of the node has come.
#[derive(Default)]
pub(crate) struct Start {
    prepared: Option<Result<Prepared, String>>,
    /// What the operator is to ask of the REST API: method and path.
    orders: VecDeque<String>,
    /// The answers to those, oldest first, with their heads; None where the API did not answer.
    pub(crate) answers: VecDeque<Option<String>>,
    /// Orders that no other order waits for, because they take long, with their tickets.
    apart: VecDeque<(u64, String)>,
    /// The answers to those; None while there is none.
    pub(crate) apart_answers: BTreeMap<u64, Option<String>>,
    /// Whether no client writes for some time.
    pub(crate) rests: bool,
    /// The operator executes orders, and does nothing else.
    pub(crate) only_obeys: bool,
}

impl Start {
    /// Makes the operator send a request to the REST API.
    pub(crate) fn order(&mut self, request: String) {
        self.orders.push_back(request);
    }

    /// Makes the operator send a request that may take long, beside everything else.
    pub(crate) fn order_apart(&mut self, ticket: u64, request: String) {
        self.apart_answers.insert(ticket, None);
        self.apart.push_back((ticket, request));
    }

    /// Why the node ended by itself, or did not start.
    pub(crate) fn failure(&self) -> Option<String> {
        match &self.prepared {
            Some(Ok(prepared)) => prepared.failure(),
            Some(Err(error)) => Some(error.clone()),
            None => None,
        }
    }
}

/// How often nodes look for rows that have expired.
pub(crate) const ROW_EXPIRY_PERIOD: Duration = Duration::from_secs(20);

pub(crate) fn node_config(setup: &Setup, shards: u32, address: SocketAddr) -> Config {
    let workdir = PathBuf::from(WORKDIR);
    Config {
        background_hog: false,
        clock_wrong_by_s: 0,
        data_dir: workdir.join("data"),
        commitlog_dir: workdir.join("commitlog"),
        workdir,
        smp: shards,
        cpus: None,
        overprovisioned: true,
        memory: UNCOUNTED_BYTES + setup.shard_bytes * u64::from(shards),
        developer_mode: true,
        listen_address: address.ip(),
        rpc_address: address.ip(),
        broadcast_address: address.ip(),
        broadcast_rpc_address: address.ip(),
        native_transport_port: address.port(),
        maintenance_mode: false,
        maintenance_socket: None,
        shard_aware_port: None,
        api: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        prometheus: None,
        table_metrics: false,
        commitlog_sync: match setup.durability {
            Durability::Periodic(period) => CommitlogSync::Periodic { period },
            Durability::Batch => CommitlogSync::Batch,
        },
        commitlog_segment_size: setup.segment_bytes,
        commitlog_total_space: setup.log_bytes,
        cluster_name: "simulated".to_owned(),
        data_center: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        native_transport_max_frame_size: 1 << 20,
        max_connections_per_shard: 100,
        // The model takes a change of the schema that failed for one that does not happen later. A node whose disk
        // keeps it from following the metadata is restarted within this time.
        schema_timeout: Duration::from_secs(10),
        auto_snapshot: AutoSnapshot { is_on: true, ttl: None },
        compaction_throughput: None,
        stream_throughput: None,
        backend: runtime::Backend::Auto,
        log_level: log::LevelFilter::Info,
        settings: std::collections::BTreeMap::new(),
        warnings: Vec::new(),
        // What nodes lose is looked for, and a repair would mend it.
        repair_threshold: None,
        row_expiry_period: ROW_EXPIRY_PERIOD,
        // Tables are small: pages end at tombstones and rejected rows all the same.
        page_limits: PageLimits {
            page: 8,
            rejected: 8,
            ..PageLimits::default()
        },
        ..Config::defaults(&Machine {
            cpus: vec![0],
            cpu_quota: None,
            memory_bytes: 1 << 30,
        })
    }
}

impl Machines {
    /// Two machines: the node runs on one, `client` on the other. `client` gets the address at which the node serves.
    pub fn new(
        seed: u64,
        setup: &Setup,
        client: impl Fn(SocketAddr) -> Pin<Box<dyn Future<Output = ()>>> + 'static,
    ) -> Self {
        let mut sim = Simulation::new(seed);
        let node = sim.add_node(setup.shards);
        let clients = sim.add_node(1);
        let address = SocketAddr::new(sim.address(node), PORT);
        let mut machines = Self {
            sim,
            node,
            clients,
            address,
            start: Rc::default(),
            shards: Rc::new(Cell::new(setup.shards)),
        };
        let (setup, start, shards) = (setup.clone(), machines.start.clone(), machines.shards.clone());
        machines.sim.start(node, move |shard| {
            Box::pin(live(
                shard,
                node_config(&setup, shards.get(), address),
                start.clone(),
                1,
            ))
        });
        machines.sim.start(clients, move |_| client(address));
        machines
    }

    /// The node has another number of shards from its next start on.
    pub fn set_shards(&mut self, shards: u32) {
        self.shards.set(shards);
        self.sim.set_shards(self.node, shards);
    }

    /// Starts the node, which must not run, and its clients, which must not run either.
    pub fn restart(&mut self) {
        *self.start.borrow_mut() = Start::default();
        self.sim.restart(self.node);
        self.sim.restart(self.clients);
    }

    /// Why the node ended by itself, or did not start.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.start.borrow().failure()
    }

    /// Bytes of files on the node's disk.
    #[must_use]
    pub fn used_bytes(&mut self) -> u64 {
        let space = self.sim.on_node(self.node, || runtime::fs::disk_space("/"));
        space.map_or(0, |space| space.used)
    }
}

/// One shard of the node's process. Shard 0 does first what `node::start` does before its shards.
///
/// `machines` that run nodes share one clock, which every blocking file operation moves for all of them: each operator
/// does less, lest all are slow.
pub(crate) async fn live(shard: ShardId, config: Config, start: Rc<RefCell<Start>>, machines: u64) {
    if shard == ShardId(0) {
        let prepared = node::prepare(config);
        start.borrow_mut().prepared = Some(prepared);
        drop(runtime::spawn(operate(machines, start.clone())));
    }
    let prepared = loop {
        if let Some(prepared) = start.borrow().prepared.clone() {
            break prepared;
        }
        runtime::sleep(Duration::from_micros(100)).await;
    };
    if let Ok(prepared) = prepared {
        prepared.run_shard().await;
    }
}

/// An operator: flushes and compacts by the REST API, now and then, and executes orders.
async fn operate(machines: u64, start: Rc<RefCell<Start>>) {
    loop {
        let apart: Vec<(u64, String)> = start.borrow_mut().apart.drain(..).collect();
        for (ticket, order) in apart {
            drop(runtime::spawn(operate_apart(ticket, order, start.clone())));
        }
        loop {
            let Some(order) = start.borrow_mut().orders.pop_front() else {
                break;
            };
            let answer = request(&order).await;
            log::info!(
                "simulation: {order}: {}",
                answer.as_deref().map_or("no answer", body_of)
            );
            // Nothing waits for tasks that are only begun.
            if !order.starts_with("POST /ceto/tasks/") {
                start.borrow_mut().answers.push_back(answer);
            }
        }
        let pause = (20 + runtime::random_u64() % 300) * machines;
        runtime::sleep(Duration::from_millis(pause)).await;
        let (rests, only_obeys) = (start.borrow().rests, start.borrow().only_obeys);
        if only_obeys || (rests && !runtime::random_u64().is_multiple_of(RESTS_TIMES)) {
            continue;
        }
        let command = if runtime::random_u64().is_multiple_of(3) {
            "compact"
        } else {
            "flush"
        };
        // It fails while the node starts, or when the disk does; the node says so to the clients.
        let _ = request(&format!("POST /storage_service/{command}")).await;
    }
}

/// Executes an order that takes long. An order that the API does not answer, because it does not serve yet or the node
/// ends, was not executed as far as is known.
async fn operate_apart(ticket: u64, order: String, start: Rc<RefCell<Start>>) {
    let answer = request(&order).await;
    let answer = answer.unwrap_or_else(|| "no answer".to_owned());
    log::info!("simulation: {order}: {}", body_of(&answer));
    start.borrow_mut().apart_answers.insert(ticket, Some(answer));
}

pub(crate) fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or(answer, |(_, body)| body)
}

/// The answer of the REST API to a request of this method and path.
async fn request(request: &str) -> Option<String> {
    let text = runtime::fs::read(PathBuf::from(WORKDIR).join("api")).ok()?;
    let address: SocketAddr = String::from_utf8(text).ok()?.trim().parse().ok()?;
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("{request} HTTP/1.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.into_bytes()).await.0.ok()?;
    let (mut answer, mut part) = (Vec::new(), Vec::new());
    loop {
        part.clear();
        part.reserve(1024);
        let (result, filled) = stream.read(part).await;
        part = filled;
        if result.ok()? == 0 {
            return String::from_utf8(answer).ok();
        }
        answer.extend_from_slice(&part);
    }
}
