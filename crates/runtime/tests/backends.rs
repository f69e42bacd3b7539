//! One suite for all backends: what holds on io_uring holds on epoll and in the simulator.

#[path = "backends/files.rs"]
mod files;
#[path = "backends/network.rs"]
mod network;
#[path = "backends/shards.rs"]
mod shards;
#[path = "backends/storm.rs"]
mod storm;
#[path = "backends/tasks.rs"]
mod tasks;

use runtime::sim::Simulation;
use runtime::{Backend, Options, ShardId};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// Simulated runs of each test.
const SEEDS: u64 = 5;

/// Runs the test on a fresh node with that many shards, for each backend that this machine allows, with and without
/// polling before sleep, then in the simulator.
pub fn on_every_backend<F, Fut>(shards: u32, test: F)
where
    F: Fn(ShardId) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    on_every_kernel_backend(shards, test.clone());
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(shards);
        let test = test.clone();
        simulation.start(node, move |shard| Box::pin(test(shard)));
        let ended = simulation.run_until_ended(node, Duration::from_secs(1800));
        assert!(ended, "the simulated node hangs with seed {seed}");
    }
}

/// Runs the test on a fresh node for each backend that this machine allows, without the simulator.
pub fn on_every_kernel_backend<F, Fut>(shards: u32, test: F)
where
    F: Fn(ShardId) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let spin = Duration::from_micros(200);
    for (backend, spin) in [Backend::IoUring, Backend::Epoll]
        .into_iter()
        .flat_map(|backend| [(backend, Duration::ZERO), (backend, spin)])
    {
        let test = test.clone();
        let options = Options {
            shards,
            pin_cpus: None,
            backend,
            spin,
        };
        match runtime::run(options, move |shard| Box::pin(test(shard))) {
            Ok(()) => {}
            Err(error) if backend == Backend::IoUring => eprintln!("io_uring is not tested on this machine: {error}"),
            Err(error) => panic!("a node on {backend:?} did not run: {error}"),
        }
    }
}

/// An empty directory that is removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes it; the name shows which test left it after a crash.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "ceto-runtime-{}-{name}-{:x}",
            std::process::id(),
            runtime::random_u64()
        ));
        runtime::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    /// A path inside it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(runtime::fs::remove_dir_all(&self.0));
    }
}
