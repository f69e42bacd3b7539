//! Nodes under the simulator: what a caller is told when the other end dies, hangs, lies or is far away.

mod support;

use rpc::{Compression, Config, Limits, Peer, RemoteError, RemoteErrorKind, Rpc, RpcError};
use runtime::ShardId;
use runtime::net::TcpStream;
use runtime::sim::{CrashKind, NodeId, Simulation};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use support::{COUNT, ECHO, ECHO_LATER, FAIL, HANG, LARGE, Service, WHO, config, host, service};

const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7000;

/// Each node's `Rpc` of shard 0, and its service, while it runs.
#[derive(Default)]
struct Seen {
    rpcs: RefCell<Vec<Option<Rc<Rpc>>>>,
    services: RefCell<Vec<Rc<Service>>>,
}

struct Cluster {
    simulation: Simulation,
    seen: Rc<Seen>,
    ids: Vec<NodeId>,
}

fn short_limits() -> Limits {
    Limits {
        ping_interval: SECOND,
        ..Limits::default()
    }
}

impl Cluster {
    /// Nodes that serve, with these shards each.
    fn new(seed: u64, shards: &[u32], change: impl Fn(u32, &mut Config)) -> Self {
        let mut cluster = Self {
            simulation: Simulation::new(seed),
            seen: Rc::default(),
            ids: Vec::new(),
        };
        for (number, &shards) in (0..).zip(shards) {
            let id = cluster.simulation.add_node(shards);
            let mut config = config(number);
            config.limits = short_limits();
            config.listen = Some(SocketAddr::new(cluster.simulation.address(id), PORT));
            change(number, &mut config);
            cluster.ids.push(id);
            cluster.seen.rpcs.borrow_mut().push(None);
            cluster.seen.services.borrow_mut().push(service());
            let seen = cluster.seen.clone();
            cluster.simulation.start(id, move |shard| {
                let (seen, config) = (seen.clone(), config.clone());
                Box::pin(async move {
                    let service = seen.services.borrow()[number as usize].clone();
                    let rpc = Rpc::start(config, service).expect("the port is free");
                    if shard == ShardId(0) {
                        seen.rpcs.borrow_mut()[number as usize] = Some(rpc);
                    }
                    std::future::pending::<()>().await;
                })
            });
        }
        cluster.simulation.run_for(Duration::from_millis(10));
        cluster
    }

    fn peer(&self, number: u32) -> Peer {
        let id = self.ids[number as usize];
        Peer::new(host(number), SocketAddr::new(self.simulation.address(id), PORT))
    }

    fn rpc(&self, number: u32) -> Rc<Rpc> {
        self.seen.rpcs.borrow()[number as usize].clone().expect("the node runs")
    }

    fn service(&self, number: u32) -> Rc<Service> {
        self.seen.services.borrow()[number as usize].clone()
    }

    /// Begins a task on shard 0 of a node; the cell gets its output.
    fn spawn<T: 'static, Fut: Future<Output = T> + 'static>(
        &mut self,
        number: u32,
        task: impl FnOnce(Rc<Rpc>) -> Fut + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        // A node of its own kind: it has the caller's identity and runs what the test wants.
        let output = Rc::new(RefCell::new(None));
        let (result, rpc) = (output.clone(), self.rpc(number));
        let task = RefCell::new(Some(task));
        let machine = self.ids[number as usize];
        self.simulation.on_shard(machine, ShardId(0), move || {
            let task = task.take().expect("it is run once");
            drop(runtime::spawn(async move {
                let value = task(rpc).await;
                *result.borrow_mut() = Some(value);
            }));
        });
        output
    }

    /// Runs a task on shard 0 of a node to its end.
    fn on<T: 'static, Fut: Future<Output = T> + 'static>(
        &mut self,
        number: u32,
        task: impl FnOnce(Rc<Rpc>) -> Fut + 'static,
    ) -> T {
        let output = self.spawn(number, task);
        let is_done = self
            .simulation
            .run_until(Duration::from_mins(10), || output.borrow().is_some());
        assert!(is_done, "the task hangs");
        output.take().expect("it is done")
    }

    fn call(&mut self, from: u32, to: u32, verb: u16, body: &[u8], timeout: Duration) -> Result<Vec<u8>, RpcError> {
        let (peer, body) = (self.peer(to), body.to_vec());
        self.on(from, move |rpc| async move { rpc.call(&peer, 0, verb, body, timeout).await })
    }

    fn echo(&mut self, from: u32, to: u32) -> Result<Vec<u8>, RpcError> {
        self.call(from, to, ECHO, b"hello", SECOND)
    }
}
