//! One shard's life: recover, serve, drain.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use ::cluster::Cluster;
use commitlog::{Commitlog, SyncMode};
use config::{CommitlogSync, Config};
use coordinator::{AcceptedLoss, Coordinator};
use cql_server::{Server, TabletRoute};
use front::{ClientMemory, Endpoints, Front, Listeners};
use hints::Hints;
use query::Engine;
use replica::{Shard, ShardOptions};
use rpc::Rpc;
use runtime::ShardId;

use crate::cluster;
use crate::directories::{self, Directory};
use crate::disks;
use crate::dynamodb;
use crate::follow::Follower;
use crate::identity;
use crate::maintenance;
use crate::open;
use crate::operator::{OperatorListeners, snapshots};
use crate::reread;
use crate::standalone;
use crate::start::{Shared, Stage};

/// How long an address that is in use is tried again.
const BIND_WAIT_MAX: Duration = Duration::from_secs(1);
/// What the process needs besides what is counted: code, stacks, buffers of the runtime.
const UNCOUNTED_BYTES: u64 = 48 << 20;

/// How long a draining node waits until the log of an earlier run is removed.
const OLD_LOG_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long it waits until batches for several shards are finished.
const BATCHES_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long it waits before it tries again to finish them.
const BATCH_RETRY_DELAY: Duration = Duration::from_millis(5);
/// How long it waits until the requests of clients are answered.
pub(crate) const CLIENTS_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long it still answers other nodes, whose last requests may be on their way.
const LAST_REQUESTS_WAIT: Duration = Duration::from_millis(50);

pub(crate) async fn run(shared: Arc<Shared>) {
    if let Err(e) = live(&shared).await {
        shared.fail(e);
    }
}

async fn live(shared: &Arc<Shared>) -> Result<(), String> {
    let id = runtime::shard();
    let config = &shared.config;
    if shared.embedded.is_none() {
        shared.begin_with_clock();
    }
    // From here a signal requests a drain instead of ending the process.
    let mut terminated = runtime::on_signal_terminate();
    shared.tasks.size_pool();
    runtime::set_start_phase(Some("opening sstables"));
    let memory = usize::try_from(config.memory.saturating_sub(UNCOUNTED_BYTES) / u64::from(config.smp)).unwrap_or(0);
    let (shard, log) = new_shard(shared, memory);
    let Some(stats) = open::open(shared, &shard).await? else {
        return Ok(());
    };
    runtime::set_start_phase(Some("entering the cluster"));
    shared.promises.wait_for_clock().await;
    let view = shared.first_view();
    let rpc = if shared.embedded.is_some() || config.maintenance_mode {
        None
    } else {
        match cluster::accept_nodes(shared).await? {
            Some(rpc) => {
                runtime::set_local(rpc.clone());
                Some(rpc)
            }
            None => return Ok(()),
        }
    };
    let coordinator = Coordinator::new(shard.clone(), rpc.clone(), view);
    coordinator.context.set_timeouts(config.timeouts);
    coordinator.cas.keep_promises(shared.promises.clone());
    if shared.embedded.is_none() {
        let kept = identity::take_counter_source(&config.workdir, id.0)?;
        // What was counted under the name may be missing: other replicas would take what is counted under it now for
        // older.
        let is_whole = shard.work().quarantined == 0;
        coordinator
            .counters
            .set_source(if is_whole { kept } else { replica::new_counter_source() });
    }
    // Also where none are kept now: an operator may want them later, and what an earlier run kept is handed over.
    if shared.embedded.is_none() {
        coordinator.keep_hints(Hints::start(hint_options(config)).map_err(|e| e.to_string())?);
    }
    runtime::set_local(coordinator.clone());
    let engine = Engine::new(coordinator, shared.node.clone(), shared.schema.clone());
    set_limits(&engine, config);
    runtime::set_local(engine.clone());
    crate::compaction_history::keep(&engine);
    upkeep::repairs::history::keep(&engine);
    if !shared.meet(Stage::Recovered).await {
        return Ok(());
    }
    let has_unfinished = !stats.unfinished_batches.is_empty();
    for (id, batch) in stats.unfinished_batches {
        engine.coordinator.batches.resume(id, batch).await?;
    }
    // Now where this node can, else in the background.
    if has_unfinished && let Err(e) = engine.coordinator.writes.finish_batches().await {
        log::warn!("cannot finish a logged batch yet; the node retries in the background: {e}");
    }
    if id == ShardId(0) {
        runtime::set_local(Follower::new(engine.clone(), shared.clone()));
        if shared.embedded.is_some() {
            standalone::keep(shared, &engine);
        }
        let are_whole = shard.stores().iter().all(|store| store.is_whole.get());
        if let Err(e) = disks::check_start(shared, are_whole) {
            shared.fail(e);
        }
    }
    // No request may read what another shard has not finished.
    if !shared.meet(Stage::Finished).await {
        return Ok(());
    }
    if id == ShardId(0) {
        // Requests to these tables wait until it is done.
        follower().finish_truncations().await;
    }
    begin_chores(shared, &engine, log);
    if let Some(main) = &shared.embedded {
        runtime::set_start_phase(None);
        main(engine).await;
        shared.meet(Stage::Drained).await;
        return Ok(());
    }
    let member = serve(
        shared,
        engine.clone(),
        rpc.clone(),
        ClientMemory::of_shard(memory),
        &mut terminated,
    )
    .await?;
    let mut drained = drain(shared, &engine, &shard).await;
    if drained.is_ok() {
        drained = identity::keep_counter_source(&config.workdir, id.0, engine.coordinator.counters.source_to_keep());
    }
    // Only now: what was asked before the listeners closed may need the others.
    if let Some(cluster) = member {
        cluster.stop().await;
    }
    if let Some(rpc) = rpc {
        rpc.stop();
    }
    if shared.drain_is_wanted() {
        stay_drained(shared, &drained, &mut terminated).await;
    }
    if id == ShardId(0) && drained.is_ok() {
        shared.activity.summarize();
        log::info!("drained; the node ends");
    }
    drained
}

/// What the options say of statements.
fn set_limits(engine: &Engine, config: &Config) {
    engine.set_page_limits(config.page_limits);
    engine.set_guardrails(&config.guardrails);
    engine.set_lists_racks(config.enforce_rack_list);
    engine.set_dialect(config.dialect);
    engine.set_has_functions(config.user_defined_functions_enabled);
    functions::set_limits(config.function_limits);
    sstable::set_large_thresholds(config.large, config.large_limits);
}

/// Begins what a shard does beside requests until the node ends.
fn begin_chores(shared: &Arc<Shared>, engine: &Rc<Engine>, log: Rc<Commitlog>) {
    let shard = &engine.coordinator.context.shard;
    if shard.id() == ShardId(0) {
        drop(runtime::spawn(snapshots::remove_expired(engine.clone())));
        drop(runtime::spawn(reread::at_hangups(shared.clone())));
        let activity = shared.activity.clone();
        drop(runtime::spawn(async move { activity.report().await }));
    }
    drop(runtime::spawn(forget_old_log(shared.clone(), shard.clone())));
    drop(runtime::spawn(log.run_periodic()));
    drop(runtime::spawn(shard.clone().watch_log()));
    drop(runtime::spawn(shard.clone().flush_periodically()));
    drop(runtime::spawn_in(
        runtime::Group::BACKGROUND,
        shard.clone().compact_periodically(),
    ));
    disks::watch(shared, shard);
    drop(runtime::spawn(shard.clone().watch_damage()));
    if let Some(collector) = runtime::memory_collector() {
        drop(runtime::spawn_in(
            runtime::Group::BACKGROUND,
            give_back_memory(collector),
        ));
    }
}

/// Connections of a shard: as configured, and no more than leave a quarter of the open files to the node's own.
fn connections_max(config: &Config, open_files_max: Option<u64>) -> usize {
    let of_files = open_files_max.map_or(u64::MAX, |files| files / 4 * 3 / u64::from(config.smp));
    let of_files = usize::try_from(of_files).unwrap_or(usize::MAX);
    config.max_connections_per_shard.min(of_files)
}

/// How often freed memory is given back to the system.
const MEMORY_PERIOD: Duration = Duration::from_secs(1);

/// Gives freed memory back to the system, where the process's allocator has to be asked. Spawn this; it never returns.
async fn give_back_memory(collector: runtime::MemoryCollector) {
    loop {
        runtime::sleep(MEMORY_PERIOD).await;
        (collector.of_thread)();
        if runtime::shard() == ShardId(0) {
            runtime::offload_background(collector.of_process).await;
        }
    }
}

/// Begins what a shard of a member does beside requests until the node ends.
fn begin_member_chores(shared: &Arc<Shared>, engine: &Rc<Engine>, has_peers: bool) {
    let group = runtime::Group::BACKGROUND;
    drop(runtime::spawn_in(group, engine.coordinator.hints.clone().run()));
    drop(runtime::spawn_in(
        group,
        engine.coordinator.writes.clone().run_batchlog(),
    ));
    let expiry = upkeep::row_expiry::run(engine.clone(), shared.options.current().config.row_expiry_period);
    drop(runtime::spawn_in(group, expiry));
    if has_peers {
        let shared = shared.clone();
        let threshold = move || shared.options.current().config.repair_threshold;
        let repairs = upkeep::repairs::run(engine.clone(), threshold);
        drop(runtime::spawn_in(group, repairs));
    }
    if engine.coordinator.context.shard.id() == ShardId(0) {
        repair::on_request(Box::new(|wanted| Box::pin(upkeep::repairs::want(wanted))));
    }
}

/// Begins to clean up after changes of the token ring. On shard 0 of a member.
fn begin_ring_cleanup(shared: &Arc<Shared>, engine: &Rc<Engine>, cluster: &Rc<Cluster>) {
    let (tasks, workdir) = (shared.tasks.clone(), shared.config.workdir.clone());
    let shared = shared.clone();
    let delay = move || shared.options.current().config.ring_cleanup_delay;
    let cleanup = upkeep::cleanup::ring::run(engine.clone(), cluster.clone(), tasks, workdir, delay);
    drop(runtime::spawn_in(runtime::Group::BACKGROUND, cleanup));
}

/// Stays until a signal ends the process, where an operator has had the node drain. What fails ends all shards.
async fn stay_drained(shared: &Arc<Shared>, drained: &Result<(), String>, terminated: &mut runtime::TerminateSignal) {
    if let Err(e) = drained {
        return shared.fail_everywhere(e.clone());
    }
    shared.note_drained();
    if runtime::shard() == ShardId(0) {
        shared.changed.until(|| shared.is_drained() || shared.failed()).await;
        log::info!("drained; the node serves nothing and waits for the end of its process");
    }
    let has_left = shared.changed.until(|| shared.has_left());
    let _ = shared.unless_failed(unless_terminated(terminated, has_left)).await;
}

/// What follows the cluster's metadata. On shard 0.
pub(crate) fn follower() -> Rc<Follower> {
    runtime::local::<Follower>().expect("shard 0 has it from when all shards are recovered")
}

/// This shard without tables, and its log; `memory` is its part of the process's.
fn new_shard(shared: &Arc<Shared>, memory: usize) -> (Rc<Shard>, Rc<Commitlog>) {
    let (id, config) = (runtime::shard(), &shared.config);
    let log = Commitlog::new(commitlog::Options {
        dir: config.commitlog_dir.clone(),
        shard: id.0,
        shards: config.smp,
        segment_bytes: config.commitlog_segment_size,
        sync: match config.commitlog_sync {
            CommitlogSync::Periodic { period } => SyncMode::Periodic(period),
            CommitlogSync::Batch => SyncMode::Batch,
        },
        boot_id: shared.boot_id,
        first_segment: shared.old_log.last_segment + 1,
    });
    let shard = Shard::new(
        ShardOptions {
            shard: id,
            shards: config.smp,
            data_dir: config.data_dir.clone(),
            dirty_bytes_max: memory * 3 / 10,
            cache_bytes_max: memory * 2 / 10,
            log_bytes_max: config.commitlog_total_space / u64::from(config.smp),
            generations: shared.generations.clone(),
            tasks: shared.tasks.clone(),
            noted_batches: shared.noted_batches.clone(),
            activity: shared.activity.clone(),
            compaction_room: shared.compaction_room.clone(),
            host_id: shared.host_id,
        },
        log.clone(),
    );
    (shard, log)
}

fn hint_options(config: &Config) -> hints::Options {
    hints::Options {
        dir: Directory::Hints.path(config),
        shard: runtime::shard().0,
        shards: config.smp,
        bytes_max: hints::BYTES_MAX_DEFAULT / u64::from(config.smp),
        window: config.hints.window,
        allowed: config.hints.allowed.clone(),
        segment_bytes: hints::SEGMENT_BYTES_DEFAULT,
        bytes_per_second: hints::BYTES_PER_SECOND_DEFAULT,
    }
}

/// Begins to report what nodes have missed, and what the operator has accepted to be lost here.
async fn begin_reports(shared: &Arc<Shared>, coordinator: &Coordinator) -> Result<(), String> {
    coordinator.tombstones.begin_reports(shared.lost).await?;
    if shared.lost == AcceptedLoss::default() {
        return Ok(());
    }
    let workdir = shared.config.workdir.clone();
    runtime::offload(move || directories::forget_accepted(&workdir)).await
}

/// A future's output; None when a signal wants the process to end before.
async fn unless_terminated<F: Future>(terminated: &mut runtime::TerminateSignal, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if Pin::new(&mut *terminated).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Opens the listeners, waits for the end, closes them.
async fn serve(
    shared: &Arc<Shared>,
    engine: Rc<Engine>,
    rpc: Option<Rc<Rpc>>,
    memory: ClientMemory,
    terminated: &mut runtime::TerminateSignal,
) -> Result<Option<Rc<Cluster>>, String> {
    let id = runtime::shard();
    let config = &shared.config;
    let Some((cql, aware)) = addresses(shared).await else {
        return Ok(None);
    };
    let mut options = cql_options(shared, (cql, aware));
    let listeners = bind_patiently(|| Listeners::bind(&options.endpoints))
        .await
        .map_err(|e| e.to_string());
    let listeners = match listeners {
        Ok(l) => l,
        Err(e) => {
            shared.fail(e);
            return Ok(None);
        }
    };
    let dynamodb_ports = match bind_patiently(|| dynamodb::bind(config)).await {
        Ok(ports) => ports,
        Err(e) => {
            shared.fail(e.to_string());
            return Ok(None);
        }
    };
    let mut for_operators = None;
    if id == ShardId(0) {
        match OperatorListeners::bind(shared).await {
            Ok(bound) => for_operators = Some(bound),
            Err(e) => {
                shared.fail(e);
                return Ok(None);
            }
        }
        let port = |l: &runtime::net::ReservedAddress| l.local_addr().map_err(|e| e.to_string());
        options.endpoints.address = listeners.address.as_ref().map(port).transpose()?;
        options.endpoints.shard_aware_address = listeners.shard_aware.as_ref().map(port).transpose()?;
        if let Some(address) = options.endpoints.address {
            shared.about.change(|info| info.port = address.port());
            shared.set_bound_addresses((address, options.endpoints.shard_aware_address));
        }
    }
    if !shared.meet(Stage::Bound).await {
        return Ok(None);
    }
    let mut member = None;
    if id == ShardId(0) {
        member = enter(shared, &engine, rpc.as_ref(), terminated).await;
    }
    if !shared.meet(Stage::Entered).await {
        return Ok(None);
    }
    if id == ShardId(0) {
        match begin_reports(shared, &engine.coordinator).await {
            Ok(()) => drop(runtime::spawn(engine.coordinator.tombstones.clone().run_reports())),
            Err(e) => shared.fail(e),
        }
    }
    begin_member_chores(shared, &engine, rpc.is_some());
    let front = Front::new(shared.front.clone(), front_options(config, memory));
    runtime::set_local(front.clone());
    let server = Server::new(engine.clone(), front.clone(), options);
    set_routes(&server, engine.clone());
    runtime::set_local(server.clone());
    if id == ShardId(0)
        && let Err(e) = probe("CQL", cql.into_iter().chain(aware)).await
    {
        shared.fail(e);
    }
    if !shared.meet(Stage::Serving).await {
        return Ok(None);
    }
    runtime::set_start_phase(None);
    if let Err(e) = front::listeners::open(&server, listeners) {
        shared.fail(e.to_string());
    }
    if let Err(e) = dynamodb::open(shared, &engine, &front, dynamodb_ports).await {
        shared.fail(e);
    }
    if !shared.meet(Stage::Opened).await {
        return Ok(member);
    }
    if id == ShardId(0) {
        drop(runtime::spawn(upkeep::repairs::history::recall(engine.clone())));
        if let Some(cluster) = &member {
            cluster.open();
            begin_ring_cleanup(shared, &engine, cluster);
        }
        if let Some(listeners) = for_operators {
            listeners.open(shared, &engine, member.as_ref())?;
        }
        if shared.announces {
            announce(shared);
        }
    }
    if config.background_hog {
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, hog()));
    }
    let must_drain = shared.changed.until(|| shared.drain_is_wanted() || shared.has_left());
    let _ = shared.unless_failed(unless_terminated(terminated, must_drain)).await;
    if runtime::shard() == ShardId(0) {
        let then = if shared.drain_is_wanted() { "stays" } else { "ends" };
        log::info!("draining: no new requests; memtables are flushed, then the node {then}");
    }
    // The others begin no requests here any more before the first is refused.
    if let Some(cluster) = &member {
        cluster.leave().await;
    }
    shared.meet(Stage::Left).await;
    front.drain(CLIENTS_WAIT_MAX).await;
    Ok(member)
}

/// Brings the node into its cluster, or has it stay apart in maintenance mode. On shard 0. None where it is not in it:
/// apart, failed, or asked to end.
async fn enter(
    shared: &Arc<Shared>,
    engine: &Rc<Engine>,
    rpc: Option<&Rc<Rpc>>,
    terminated: &mut runtime::TerminateSignal,
) -> Option<Rc<Cluster>> {
    let Some(rpc) = rpc else {
        if let Err(e) = maintenance::enter(shared, engine) {
            shared.fail(e);
        }
        return None;
    };
    match unless_terminated(terminated, cluster::enter(shared, engine, rpc)).await {
        Some(Ok(cluster)) => return Some(cluster),
        Some(Err(e)) => shared.fail(e),
        None => {
            log::info!("a signal ends the node before it serves");
            shared.end_early();
        }
    }
    None
}

/// Where proxies of clients are listened to: on the CQL port of them, or the shard-aware one. In maintenance mode
/// nowhere.
fn proxied(config: &Config, which: usize) -> Option<SocketAddr> {
    let port = config.proxied_ports[which].filter(|_| !config.maintenance_mode);
    port.map(|port| SocketAddr::new(config.rpc_address, port))
}

/// The options of the CQL server; it may listen on other addresses where one of these is free to choose.
fn cql_options(shared: &Shared, (cql, aware): Addresses) -> cql_server::Options {
    let config = &shared.config;
    // There is one file: the first shard accepts, and shares the connections out.
    let socket = config.maintenance_socket.clone();
    cql_server::Options {
        endpoints: Endpoints {
            protocol: "CQL",
            address: cql,
            shard_aware_address: aware,
            proxied_address: proxied(config, 0),
            proxied_shard_aware_address: proxied(config, 1),
            maintenance_socket: socket.filter(|_| runtime::shard() == ShardId(0)),
        },
        frame_bytes_max: config.native_transport_max_frame_size,
        host_id: shared.host_id,
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        cql_version: shared.about.info().cql_version.clone(),
        tablets_routing_v2: config.experimental.tablets_routing_v2,
    }
}

/// The options of a shard's front; `memory` is what its clients may take.
fn front_options(config: &Config, memory: ClientMemory) -> front::Options {
    front::Options {
        connections_max: connections_max(config, runtime::open_files_max()),
        handshakes_max: config.handshakes_per_shard,
        uninitialized_max: front::UNINITIALIZED_MAX,
        shards: config.smp,
        memory,
    }
}

/// Lets the CQL server report to drivers where a tablet is.
fn set_routes(server: &Server, engine: Rc<Engine>) {
    server.set_routes(Box::new(move |table, token| {
        let place = engine.tablet_elsewhere(table, token)?;
        Some(TabletRoute {
            after_token: place.after.0,
            last_token: place.last.0,
            replicas: place
                .replicas
                .iter()
                .map(|(host, shard)| (*host.0.as_bytes(), u32::from(*shard)))
                .collect(),
            version: None,
        })
    }));
}

/// Computes permanently in the background, and yields whenever a request waits: for measurements of what that costs a
/// request.
async fn hog() {
    let mut x = 1u64;
    loop {
        for _ in 0..1000 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
}

/// Runs `bind` again for a while where the address is in use: the kernel may still be closing the sockets of a process
/// that was killed a moment ago.
async fn bind_patiently<T>(mut bind: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let deadline = runtime::now() + BIND_WAIT_MAX;
    loop {
        match bind() {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && runtime::now() < deadline => {
                runtime::sleep(Duration::from_millis(20)).await;
            }
            result => return result,
        }
    }
}

/// All shards share a port, which would let a second node share it too, and each would get a part of the connections:
/// look first whether it is free.
pub(crate) async fn probe(what: &str, addresses: impl Iterator<Item = SocketAddr>) -> Result<(), String> {
    for address in addresses.filter(|address| address.port() != 0) {
        let listen = || runtime::net::TcpListener::bind(address, runtime::net::ListenOptions::default());
        let probed = bind_patiently(listen).await;
        probed.map_err(|e| format!("cannot listen for {what} on {address}: {e}"))?;
    }
    Ok(())
}

/// Where CQL and the shard-aware port listen, if they do.
type Addresses = (Option<SocketAddr>, Option<SocketAddr>);

/// Where to listen: as configured; a port of 0 is chosen by shard 0 and then taken by all. In maintenance mode nowhere.
/// None when the node fails before it is known.
async fn addresses(shared: &Shared) -> Option<Addresses> {
    let config = &shared.config;
    if config.maintenance_mode {
        return Some((None, None));
    }
    let aware = config.shard_aware_port.map(|p| SocketAddr::new(config.rpc_address, p));
    let wanted = (SocketAddr::new(config.rpc_address, config.native_transport_port), aware);
    if runtime::shard() == ShardId(0) {
        if let Err(e) = probe(
            "CQL",
            std::iter::once(wanted.0)
                .chain(wanted.1)
                .chain((0..2).filter_map(|which| proxied(config, which))),
        )
        .await
        {
            shared.fail(e);
            return None;
        }
        if let Err(e) = probe(
            "the DynamoDB API",
            dynamodb::addresses(config).map(|(address, _)| address),
        )
        .await
        {
            shared.fail(e);
            return None;
        }
        return Some((Some(wanted.0), wanted.1));
    }
    let is_known = || shared.bound_addresses().is_some() || shared.failed();
    shared.changed.until(is_known).await;
    shared.bound_addresses().map(|(cql, aware)| (Some(cql), aware))
}

/// Says on standard output that the node serves, where, and how to connect.
fn announce(shared: &Shared) {
    let config = &shared.config;
    let (shards, workdir) = (config.smp, config.workdir.display());
    let text = match (shared.bound_addresses(), &config.maintenance_socket) {
        (Some((cql, aware)), _) => {
            let aware = aware.map_or_else(String::new, |a| format!(" (shard-aware port {})", a.port()));
            let (ip, port) = (cql.ip(), cql.port());
            format!(
                "serving CQL on {cql}{aware}, {shards} shards, data in {workdir}\nconnect with: cqlsh {ip} {port}\n"
            )
        }
        (None, Some(socket)) => format!(
            "maintenance mode: serving CQL on the socket {}, {shards} shards, data in {workdir}\n",
            socket.path.display()
        ),
        (None, None) => return,
    };
    let text = text + &dynamodb::announcement(config).unwrap_or_default();
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Flushes what was replayed and then, with the last shard, removes the log it came from. Until that log is removed, no
/// shard may forget a tombstone: after a crash the log would bring back what it covers.
async fn forget_old_log(shared: Arc<Shared>, shard: Rc<Shard>) {
    while let Err(e) = shard.flush_all().await {
        log::error!("cannot flush the replayed mutations: {e}; the old commitlog is kept, and the flush is retried");
        runtime::sleep(Duration::from_secs(5)).await;
    }
    if shared.old_log_users.fetch_sub(1, Ordering::AcqRel) == 1 {
        loop {
            let for_job = shared.clone();
            match runtime::offload(move || for_job.old_log.remove()).await {
                Ok(()) => break,
                Err(e) => {
                    log::error!("cannot remove the old commitlog; retrying: {e}");
                    runtime::sleep(Duration::from_secs(5)).await;
                }
            }
        }
        shared.old_log_is_gone.store(true, Ordering::Release);
        shared.changed.notify_all();
    }
    old_log_is_gone(&shared).await;
    shard.forget_old_log().await;
}

async fn old_log_is_gone(shared: &Shared) {
    let is_gone = || shared.old_log_is_gone.load(Ordering::Acquire);
    shared.changed.until(is_gone).await;
}

/// Puts everything into sstables, so that the next start has nothing to replay.
async fn drain(shared: &Shared, engine: &Rc<Engine>, shard: &Rc<Shard>) -> Result<(), String> {
    runtime::sleep(LAST_REQUESTS_WAIT).await;
    shard.log.write().map_err(|e| e.to_string())?;
    // A batch that is not finished needs all shards, or the note of it that is in the log.
    let deadline = runtime::now() + BATCHES_WAIT_MAX;
    while shard.has_open_batches() && runtime::now() < deadline {
        let ended = shard.batch_ended.notified();
        if let Err(e) = engine.coordinator.writes.finish_batches().await {
            log::warn!("cannot finish a partly written logged batch yet; retrying: {e}");
            runtime::sleep(BATCH_RETRY_DELAY).await;
        } else if shard.has_open_batches() {
            let _ = runtime::timeout_at(deadline, ended).await;
        }
    }
    shared.meet(Stage::Finishing).await;
    if shard.id() == ShardId(0) {
        engine.coordinator.tombstones.end_reports().await;
    }
    if let Err(e) = engine.coordinator.cas.note_learned().await {
        log::warn!("{e}");
    }
    // Requests that still wait are refused: a write after the flush would be lost with the log.
    shard.close();
    let flushed = shard.flush_all().await;
    shared.meet(Stage::Drained).await;
    // The new log says what of the old one is not needed: it must not go first.
    if flushed.is_ok() {
        let _ = runtime::timeout(OLD_LOG_WAIT_MAX, old_log_is_gone(shared)).await;
    }
    match flushed {
        Ok(()) if shard.has_open_batches() => {
            log::error!("a logged batch is unfinished; the next start replays the commitlog");
            shard.log.sync().await.map_err(|e| e.to_string())
        }
        Ok(()) if !shared.old_log_is_gone.load(Ordering::Acquire) => {
            log::error!("the commitlog of an earlier run was not removed; the next start replays it");
            shard.log.sync().await.map_err(|e| e.to_string())
        }
        Ok(()) => shard.log.close().await.map_err(|e| e.to_string()),
        // What could not be flushed is in the log, which stays for the next start.
        Err(e) => {
            log::error!("cannot flush: {e}; the next start replays the commitlog");
            shard.log.sync().await.map_err(|e| e.to_string())
        }
    }
}
