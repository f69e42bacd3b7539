//! Starting a node and waiting for its end.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use ::cluster::Metadata;
use commitlog::OldLog;
use config::{Config, SetOptions};
use coordinator::{AcceptedLoss, ClusterView, Promises, Ring};
use query::Engine;
use query::engine::{NodeState, SharedStatements};
use record::Known;
use replica::{Activity, CompactionRoom, NotedBatches, TableFiles};
use runtime::{ShardId, SharedNotify};
use schema::{Schema, TableId};
use sstable::Generations;
use system_tables::Registry;
use tasks::{Class, Tasks};
use topology::{HostId, Topology, TopologyCommand};
use types::Token;
use uuid::Uuid;

use crate::directories;
use crate::disk_space::DiskMonitor;
use crate::disks::Disks;
use crate::identity::{self, WorkdirLock};
use crate::live_options::LiveOptions;
use crate::maintenance;
use crate::shard_main;
use crate::view::{cluster_view, forgotten, ring_of, stored_tables};
use crate::virtual_tables::{About, NodeInfo, PeerInfo, registry};

/// What each shard of an embedded node runs.
pub type Embedded = Arc<dyn Fn(Rc<Engine>) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// What the shards need of each other while they start and stop.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Reads the options again, as at a SIGHUP.
    pub(crate) reread: OnceLock<Reread>,
    pub(crate) host_id: Uuid,
    pub(crate) boot_id: u128,
    /// What the operator has accepted to be lost since the last start.
    pub(crate) lost: AcceptedLoss,
    pub(crate) schema: Arc<Schema>,
    /// The view that the shards begin with. Dropped when all have it: a wait for requests with an old view would wait
    /// for this reference too.
    pub(crate) view: Mutex<Option<Arc<ClusterView>>>,
    /// What the node knew of its cluster when it ended; None for one that has never been in any.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) node: Arc<NodeState>,
    /// The options as they are now.
    pub(crate) options: Arc<LiveOptions>,
    /// What this node says of itself and of the others.
    pub(crate) about: Arc<About>,
    /// What the shards share of their clients.
    pub(crate) front: Arc<front::NodeState>,
    pub(crate) generations: Arc<Generations>,
    /// What the tables' directories hold, until every shard has its part.
    pub(crate) files: Mutex<HashMap<TableId, Arc<TableFiles>>>,
    /// The log of earlier runs.
    pub(crate) old_log: OldLog,
    pub(crate) old_log_users: AtomicU32,
    /// No crash brings the old log back any more.
    pub(crate) old_log_is_gone: AtomicBool,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) noted_batches: Arc<NotedBatches>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) compaction_room: Arc<CompactionRoom>,
    pub(crate) promises: Arc<Promises>,
    pub(crate) stages: [AtomicU32; 13],
    pub(crate) failure: Mutex<Option<String>>,
    /// A signal came before the node served.
    ends_early: AtomicBool,
    /// An operator wants the node to drain and stay.
    drain_is_wanted: AtomicBool,
    has_left: AtomicBool,
    /// Shards that have drained and stay.
    drained_shards: AtomicU32,
    /// An operator wants no CQL clients.
    pub(crate) refuses_clients: AtomicBool,
    /// Notified when a shard reaches a stage or fails, when the addresses are bound, when the old log is gone, and when
    /// a commitlog begins or ceases to take writes.
    pub(crate) changed: SharedNotify,
    /// Why the commitlog of each shard takes no writes; None where it does.
    pub(crate) log_troubles: Mutex<Vec<Option<String>>>,
    /// What to do when a disk fails.
    pub(crate) disks: Disks,
    /// Whether the disks have room.
    pub(crate) disk_monitor: DiskMonitor,
    /// Where CQL and the shard-aware port listen, once shard 0 has bound them.
    pub(crate) addresses: Mutex<Option<(SocketAddr, Option<SocketAddr>)>>,
    /// Where other nodes are listened to, once shard 0 has bound it.
    internode: Mutex<Option<SocketAddr>>,
    pub(crate) embedded: Option<Embedded>,
    /// Whether to say on standard output that the node serves.
    pub(crate) announces: bool,
    /// Held until the last shard has ended.
    _lock: WorkdirLock,
}

/// A node that has its identity and holds its workdir: what its shards run. The simulator makes one on a simulated
/// machine.
#[derive(Clone)]
pub struct Prepared(Arc<Shared>);

/// The places where all shards wait for each other.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    FilesOpened,
    TablesOpened,
    Replayed,
    DoorOpened,
    Recovered,
    Finished,
    Bound,
    Entered,
    Serving,
    Opened,
    Left,
    Finishing,
    Drained,
}

/// Wakes this shard's waiting tasks when the node fails while it serves.
struct Failing(runtime::Notify);

impl Failing {
    fn local() -> Rc<Self> {
        runtime::local::<Self>().unwrap_or_else(|| {
            let failing = Rc::new(Self(runtime::Notify::new()));
            runtime::set_local(failing.clone());
            failing
        })
    }
}

impl Shared {
    /// Waits until every shard is here; false when one has failed.
    pub(crate) async fn meet(&self, stage: Stage) -> bool {
        let here = &self.stages[stage as usize];
        here.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        let all = || here.load(Ordering::Acquire) >= self.config.smp;
        self.changed.until(|| all() || self.failed()).await;
        !self.failed()
    }

    /// Whether every shard has been here.
    pub(crate) fn have_met(&self, stage: Stage) -> bool {
        self.stages[stage as usize].load(Ordering::Acquire) >= self.config.smp
    }

    /// A future's output; None when the node fails before, or has failed.
    pub(crate) async fn unless_failed<F: Future>(&self, future: F) -> Option<F::Output> {
        let failing = Failing::local();
        let mut future = pin!(future);
        let mut told = pin!(failing.0.notified());
        poll_fn(|context| {
            if self.failed() || told.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Believes the wall clock as it is now, until the cluster judges it. A node with peers purges nothing by it before
    /// it has heard one.
    pub(crate) fn begin_with_clock(&self) {
        let members = |metadata: &Metadata| metadata.topology.members().count();
        runtime::believe_clock(runtime::ClockBelief {
            offset_us: runtime::clock_offset_us(),
            limit: self.config.clock_limits.suspect,
            is_trusted: self.metadata.as_ref().is_none_or(|metadata| members(metadata) <= 1),
        });
    }

    /// The cluster as it was known at the start, for the shards to begin with.
    pub(crate) fn first_view(&self) -> Arc<ClusterView> {
        let view = self.view.lock().expect("no thread panics while holding the view");
        view.clone().expect("shards begin before the node enters its cluster")
    }

    /// All shards have the first view.
    pub(crate) fn forget_first_view(&self) {
        *self.view.lock().expect("no thread panics while holding the view") = None;
    }

    pub(crate) fn internode_address(&self) -> Option<SocketAddr> {
        *self
            .internode
            .lock()
            .expect("no thread panics while holding the address")
    }

    pub(crate) fn set_internode_address(&self, address: SocketAddr) {
        *self
            .internode
            .lock()
            .expect("no thread panics while holding the address") = Some(address);
    }

    /// What the system tables say of the node and the other members from here on.
    pub(crate) fn note_members(&self, tokens: Vec<String>, state: topology::NodeState, peers: Vec<PeerInfo>) {
        self.about
            .change(|info| (info.tokens, info.state, info.peers) = (tokens, state, peers));
    }

    /// The client routes, as this node knows them.
    pub(crate) fn client_routes(&self) -> Arc<::cluster::ClientRoutes> {
        self.about.info().client_routes.clone()
    }

    /// What the system tables say of client routes from here on. The routes before.
    pub(crate) fn note_client_routes(&self, routes: &Arc<::cluster::ClientRoutes>) -> Arc<::cluster::ClientRoutes> {
        let mut former = routes.clone();
        self.about
            .change(|info| std::mem::swap(&mut info.client_routes, &mut former));
        former
    }

    /// The new options hold from here on; `set` are those that clients have set.
    pub(crate) fn replace_options(&self, config: Config, set: SetOptions) {
        let settings = config.settings.clone();
        self.options.replace(config, set);
        self.about.change(|info| info.settings = settings);
    }

    /// Where CQL and the shard-aware port listen, once they do.
    pub(crate) fn bound_addresses(&self) -> Option<(SocketAddr, Option<SocketAddr>)> {
        *self
            .addresses
            .lock()
            .expect("no thread panics while holding the addresses")
    }

    pub(crate) fn fail(&self, message: String) {
        let mut failure = self.failure.lock().expect("no thread panics while holding the failure");
        failure.get_or_insert(message);
        drop(failure);
        self.changed.notify_all();
    }

    pub(crate) fn set_bound_addresses(&self, bound: (SocketAddr, Option<SocketAddr>)) {
        *self
            .addresses
            .lock()
            .expect("no thread panics while holding the addresses") = Some(bound);
        self.changed.notify_all();
    }

    /// The commitlog of this shard takes no writes, and why, or takes them again.
    pub(crate) fn set_log_trouble(&self, trouble: Option<String>) {
        let shard = runtime::shard().0 as usize;
        self.log_troubles
            .lock()
            .expect("no thread panics while holding the troubles")[shard] = trouble;
        self.changed.notify_all();
    }

    /// Why a commitlog takes no writes, if any does not.
    pub(crate) fn log_trouble(&self) -> Option<String> {
        let troubles = self
            .log_troubles
            .lock()
            .expect("no thread panics while holding the troubles");
        troubles.iter().flatten().next().cloned()
    }

    /// Has all shards drain, and stay.
    pub(crate) fn want_drain(&self) {
        self.drain_is_wanted.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether an operator wants the node to drain and stay.
    pub(crate) fn drain_is_wanted(&self) -> bool {
        self.drain_is_wanted.load(Ordering::Acquire)
    }

    /// Makes all shards drain and end, because the node has left its cluster.
    pub(crate) fn end_as_left(&self) {
        self.has_left.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether the node has left its cluster.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// This shard has drained and stays.
    pub(crate) fn note_drained(&self) {
        self.drained_shards.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
    }

    /// Whether all shards have drained and stay.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained_shards.load(Ordering::Acquire) >= self.config.smp
    }

    /// Fails the node while it serves, on all shards: it drains.
    pub(crate) fn fail_everywhere(&self, message: String) {
        self.fail(message);
        for shard in 0..runtime::shard_count() {
            drop(runtime::submit_to(ShardId(shard), || Failing::local().0.notify_all()));
        }
    }

    /// Whether the node stops: it failed, or a signal came before it served.
    pub(crate) fn failed(&self) -> bool {
        let failure = self.failure.lock().expect("no thread panics while holding the failure");
        failure.is_some() || self.ends_early.load(Ordering::Acquire)
    }

    /// Makes all shards shut down cleanly, without an error.
    pub(crate) fn end_early(&self) {
        self.ends_early.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

/// A node that may have fewer open files says so at its start.
const OPEN_FILES_MIN: u64 = 10_000;

fn open_files_warning(open_files_max: u64) -> Option<String> {
    (open_files_max < OPEN_FILES_MIN).then(|| {
        format!(
            "this process may have {open_files_max} open files, and each connection and each sstable is one: without more it refuses connections and cannot \
             open its data. Set at least {OPEN_FILES_MIN} (ulimit -n, or LimitNOFILE of a systemd unit)"
        )
    })
}

/// Reads a node's options as they are now. Blocks.
pub type Reread = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// Why a node does not start, or ended by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartError {
    /// For this reason.
    Failed(String),
    /// It has left its cluster, or was removed: no start from these directories can succeed.
    HasLeft(String),
}

impl From<String> for StartError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(reason) | Self::HasLeft(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for StartError {}

/// Runs a node until SIGTERM or SIGINT has drained it, or it has left its cluster. At SIGHUP it takes over what
/// `reread` gives, as far as that can change while it runs.
pub fn start(config: Config, reread: Reread) -> Result<(), StartError> {
    run(config, None, Some(reread))
}

/// Runs a node without sockets: `main` on each shard with its engine; ends when all of them have.
pub fn embed(config: Config, main: Embedded) -> Result<(), String> {
    run(config, Some(main), None).map_err(|e| e.to_string())
}

fn run(config: Config, embedded: Option<Embedded>, reread: Option<Reread>) -> Result<(), StartError> {
    if reread.is_some() {
        // From here on: the end of a terminal must not end a node, not even one that still starts.
        drop(runtime::on_signal_hangup());
    }
    for warning in &config.warnings {
        log::warn!("{warning}");
    }
    if let Some(warning) = runtime::open_files_max().and_then(open_files_warning) {
        log::warn!("{warning}");
    }
    if config.clock_wrong_by_s != 0 {
        log::warn!(
            "this node runs with its clock off by {} s (--clock-wrong-by)",
            config.clock_wrong_by_s
        );
        runtime::set_wall_clock_wrong_by(config.clock_wrong_by_s.saturating_mul(1_000_000));
    }
    let options = runtime::Options {
        shards: config.smp,
        pin_cpus: config.cpus.clone(),
        backend: config.backend,
        spin: if config.overprovisioned {
            Duration::ZERO
        } else {
            Duration::from_micros(20)
        },
    };
    let prepared = prepare_as(config, embedded, true)?;
    if let Some(reread) = reread {
        let _ = prepared.0.reread.set(reread);
    }
    let for_shards = prepared.clone();
    runtime::run(options, move |_| Box::pin(for_shards.clone().run_shard()))
        .map_err(|e| format!("the shards did not start: {e}"))?;
    match prepared.failure() {
        None => Ok(()),
        Some(reason) if prepared.0.has_left() => Err(StartError::HasLeft(reason)),
        Some(reason) => Err(StartError::Failed(reason)),
    }
}

/// Locks the workdir, determines the node's identity, and loads the schema: the steps before the shards start. Blocks.
pub fn prepare(config: Config) -> Result<Prepared, String> {
    prepare_as(config, None, false).map_err(|e| e.to_string())
}

impl Prepared {
    /// The life of the shard that runs this, to its end.
    pub async fn run_shard(self) {
        shard_main::run(self.0).await;
    }

    /// Why the node failed, if it has.
    pub fn failure(&self) -> Option<String> {
        self.0
            .failure
            .lock()
            .expect("no thread panics while holding the failure")
            .clone()
    }

    /// Where CQL listens, once it does.
    pub fn cql_address(&self) -> Option<SocketAddr> {
        self.0
            .addresses
            .lock()
            .expect("no thread panics while holding the addresses")
            .map(|(cql, _)| cql)
    }
}

/// The cluster's metadata as stored on disk; None before a node's first start in a cluster. An embedded node is a
/// cluster of its own.
fn load_metadata(
    config: &mut Config,
    host_id: Uuid,
    system_tables: &Registry,
    is_embedded: bool,
) -> Result<Option<Metadata>, String> {
    let dir = config.workdir.join(crate::recover::METADATA_DIR);
    if is_embedded {
        let node = first_node(config, host_id);
        let schema = Arc::new(initial_schema(system_tables));
        return ::cluster::load_standalone(&dir, &config.cluster_name, node, schema).map(Some);
    }
    let known = Known::features(crate::cluster::features(config));
    let metadata = ::cluster::load(&dir, &known).map_err(|e| e.to_string())?;
    check_member(config, metadata.as_ref())?;
    if let Some(metadata) = metadata.as_ref().filter(|_| !config.enable_new_features) {
        let enabled = metadata.topology.enabled_features();
        let held_back = crate::cluster::hold_back_all_but(enabled, config);
        log::info!("this node holds back the features that its cluster has not enabled: {held_back}");
    }
    Ok(metadata)
}

/// Refuses the start of a node that has left its cluster. In maintenance mode it may start: it takes part in no cluster
/// then.
fn check_not_left(config: &Config, host_id: Uuid, metadata: Option<&Metadata>) -> Result<(), StartError> {
    let node = metadata.and_then(|metadata| metadata.topology.node(HostId(host_id)));
    let has_left = node.is_some_and(|node| node.state == topology::NodeState::Left);
    if config.maintenance_mode || !(has_left || identity::is_noted_as_left(&config.workdir)) {
        return Ok(());
    }
    Err(StartError::HasLeft(format!(
        "node {host_id} has left its cluster, or was removed, and cannot start from the directories in {}. Start a new node on an empty data directory, or remove these directories and disable \
         the service",
        config.workdir.display()
    )))
}

fn prepare_as(mut config: Config, embedded: Option<Embedded>, announces: bool) -> Result<Prepared, StartError> {
    let lock = identity::lock(&config.workdir)?;
    let host_id = identity::host_id(&config.workdir)?;
    check_not_left(&config, host_id, None)?;
    let lost = directories::check(&config, host_id)?;
    if lost.writes {
        // What other replicas hold as repaired may have been in the lost log alone.
        replica::forget_all_records(&config.data_dir)?;
    }
    let promises = Promises::open(&config.workdir)?;
    identity::note_encryption(&config.workdir, config.encryption.is_some())?;
    let about = Arc::new(About::new(NodeInfo::of(&config, host_id)));
    let options = Arc::new(LiveOptions::new(&config));
    let front = front::NodeState::new(config.smp);
    front.slow_request.set(config.slow_request);
    let system_tables = Arc::new(registry(&about, &front.clients, &options));
    let metadata = load_metadata(&mut config, host_id, &system_tables, embedded.is_some())?;
    check_not_left(&config, host_id, metadata.as_ref())?;
    let schema = Arc::new(match &metadata {
        Some(metadata) => system_tables.with_system_keyspaces(&metadata.schema),
        None => initial_schema(&system_tables),
    });
    let old_log = OldLog::take(&config.commitlog_dir).map_err(|e| e.to_string())?;
    let largest = largest_generation(&config.data_dir, &schema, &system_tables)?;
    let generations = Arc::new(if config.uuid_generations {
        Generations::uuids()
    } else {
        Generations::above(largest)
    });
    let (topology, tablets, truncations, version, fence) = match &metadata {
        Some(metadata) => (
            with_shards(&metadata.topology, host_id, config.smp),
            metadata.tablets.clone(),
            metadata.truncations.clone(),
            metadata.index,
            metadata.fence,
        ),
        None => {
            let alone = Topology::alone(&config.cluster_name, first_node(&config, host_id));
            (Arc::new(alone), BTreeMap::new(), BTreeMap::new(), 0, 0)
        }
    };
    if let Some(metadata) = &metadata {
        about.change(|info| info.client_routes = metadata.client_routes.clone());
    }
    let ring = metadata.as_ref().map(|metadata| ring_of(metadata, &topology));
    let ring = ring.unwrap_or_else(|| Ring::at_rest(&topology));
    let view = cluster_view(&schema, &topology, HostId(host_id), (&tablets, &ring), None);
    let view = view
        .map_err(|e| e.to_string())?
        .at(version, fence)
        .truncated(truncations)
        .forgetting(metadata.as_ref().map(forgotten).unwrap_or_default());
    let view = Arc::new(view.reached_by(|node| crate::cluster::peer(&config, node)));
    let tasks = tasks_of(&config, host_id);
    let node = Arc::new(NodeState {
        system_tables: system_tables.clone(),
        described: {
            let about = about.clone();
            Box::new(move || about.info().described())
        },
        statements: SharedStatements::default(),
    });
    let shared = Arc::new(Shared {
        reread: OnceLock::new(),
        host_id,
        boot_id: runtime::boot_id(),
        lost,
        schema,
        view: Mutex::new(Some(view)),
        metadata,
        node,
        options,
        about,
        front,
        generations,
        files: Mutex::default(),
        tasks,
        noted_batches: Arc::new(NotedBatches::new()),
        activity: Arc::default(),
        compaction_room: Arc::default(),
        promises,
        old_log_users: AtomicU32::new(config.smp),
        old_log_is_gone: AtomicBool::new(old_log.segments.is_empty()),
        old_log,
        stages: Default::default(),
        failure: Mutex::new(None),
        ends_early: AtomicBool::new(false),
        drain_is_wanted: AtomicBool::new(false),
        has_left: AtomicBool::new(false),
        drained_shards: AtomicU32::new(0),
        refuses_clients: AtomicBool::new(false),
        changed: SharedNotify::new(),
        log_troubles: Mutex::new(vec![None; config.smp as usize]),
        disks: Disks::new(config.disk_failure_policy),
        disk_monitor: DiskMonitor::new(config.disk_limits),
        addresses: Mutex::new(None),
        internode: Mutex::new(None),
        embedded,
        announces,
        _lock: lock,
        config,
    });
    Ok(Prepared(shared))
}

fn tasks_of(config: &Config, host_id: Uuid) -> Arc<Tasks> {
    let tasks = Tasks::new(config.smp, host_id);
    tasks.set_bytes_per_second(Class::Compaction, config.compaction_throughput.unwrap_or(0));
    tasks.set_bytes_per_second(Class::Streaming, config.stream_throughput.unwrap_or(0));
    tasks.set_ttl(config.task_ttl);
    tasks.set_user_ttl(config.user_task_ttl);
    tasks
}

/// Refuses a node whose metadata is lost before it touches its data: without the schema, writes in the log would be
/// taken for those of dropped tables. Refuses maintenance mode for one that never had any.
fn check_member(config: &Config, metadata: Option<&Metadata>) -> Result<(), String> {
    if let Some(metadata) = metadata {
        return identity::note_member(&config.workdir, metadata.topology.cluster_name());
    }
    let metadata_dir = config.workdir.join(crate::recover::METADATA_DIR);
    match identity::noted_cluster(&config.workdir) {
        None if config.maintenance_mode => Err(maintenance::needs_metadata(&metadata_dir)),
        None => Ok(()),
        Some(cluster) => Err(format!(
            "this node is a member of cluster '{cluster}', and its metadata in {} is gone. Restore the directory that ran last, or have the node take the \
             metadata from the other members: ceto recover-metadata --workdir {} --rejoin (`ceto page rejoin`). Nothing was changed",
            metadata_dir.display(),
            config.workdir.display()
        )),
    }
}

/// The topology with the number of shards that this node has now; the others hear of it when it enters the cluster.
pub(crate) fn with_shards(topology: &Arc<Topology>, host_id: Uuid, shards: u32) -> Arc<Topology> {
    let (host_id, shards) = (HostId(host_id), u16::try_from(shards).unwrap_or(u16::MAX));
    if topology.node(host_id).is_some_and(|node| node.shards == shards) {
        return topology.clone();
    }
    let mut next = Topology::clone(topology);
    match next.apply(&TopologyCommand::SetShards { host_id, shards }) {
        Ok(()) => Arc::new(next),
        Err(_) => topology.clone(),
    }
}

/// This node as the first of a cluster, with the whole ring.
fn first_node(config: &Config, host_id: Uuid) -> topology::Node {
    topology::Node {
        host_id: HostId(host_id),
        internode: SocketAddr::new(config.listen_address, config.storage_port),
        native: SocketAddr::new(config.rpc_address, config.native_transport_port),
        native_shard_aware_port: config.shard_aware_port,
        location: topology::Location {
            datacenter: config.data_center.clone(),
            rack: config.rack.clone(),
        },
        shards: u16::try_from(config.smp).unwrap_or(u16::MAX),
        tokens: vec![Token(0)],
        state: topology::NodeState::Normal,
        features: Default::default(),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        loss: None,
    }
}

/// The schema that a node begins with: the system keyspaces of this release.
fn initial_schema(system_tables: &Registry) -> Schema {
    let empty = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    };
    let mut schema = system_tables.with_system_keyspaces(&empty);
    schema.version = ddl::schema_version(&schema);
    schema
}

/// The largest generation of any sstable in the tables' directories; what was left half written is removed.
fn largest_generation(data_dir: &Path, schema: &Schema, system_tables: &Registry) -> Result<u64, String> {
    let mut largest = 0;
    for (_, table) in stored_tables(schema, system_tables) {
        largest = largest.max(replica::clean_directory(&replica::table_dir(data_dir, &table))?);
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_may_open_few_files_says_so() {
        assert_eq!(open_files_warning(OPEN_FILES_MIN), None);
        let warning = open_files_warning(80).expect("80 files are few");
        assert!(warning.starts_with("this process may have 80 open files"), "{warning}");
    }
}
