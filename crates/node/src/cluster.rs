//! A node's part in its cluster: the connections from other nodes, and what follows on each shard when the cluster
//! changes.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{self, Rc};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::cluster::{ChangeError, Cluster, Drain, Listener, Local, Metadata, RACK_OPTION, Reach};
use config::{Config, InternodeScope};
use coordinator::{ClusterView, Coordinator, ReplicaHandler};
use cql_server::{MemberEvent, Server};
use dynamodb_engine::backups;
use front::Front;
use query::Engine;
use query::engine::{KeepError, SchemaKeeper};
use rpc::{Handler, Peer, RemoteError, RemoteErrorKind, Reply, Request, Rpc};
use runtime::{Notify, ShardId, SharedNotify};
use schema::{Schema, TableId};
use topology::{DiskLevel, HostId, Node, NodeNumber};
use types::Token;
use uuid::Uuid;

use crate::client_events::{events, first_announcements, is_superseded, next_announcements};
use crate::disk_space;
use crate::disks;
use crate::early_words::EarlyWords;
use crate::recover::METADATA_DIR;
use crate::shard_main::{CLIENTS_WAIT_MAX, follower};
use crate::start::{Shared, Stage};
use crate::tablets;
use crate::view::view_of;
use crate::virtual_tables::PeerInfo;

/// How long a change of the cluster waits for requests that began before it.
const OLD_REQUESTS_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long to wait until the shards have the version of the cluster that contains a new member.
const NEW_MEMBER_WAIT: Duration = Duration::from_secs(2);
/// How long a node that comes back looks for newer metadata before it serves with what it has.
const CATCH_UP_MAX: Duration = Duration::from_secs(3);
/// How long clients of a node wait for it to catch up when the other nodes refuse its requests.
const FENCED_WAIT_MAX: Duration = Duration::from_mins(5);
/// The release of Cassandra that every node is to be taken for.
const RELEASE_VERSION: &str = "4.1.7";
/// How long a commitlog that takes no writes rests before it tries again.
const LOG_RETRY_DELAY: Duration = Duration::from_millis(500);
/// A member is down for so long at least before what it holds for others is forgotten, however short the window of
/// hints is.
const FORGET_HINTS_AFTER_MIN: Duration = Duration::from_mins(1);
/// Between two attempts to listen for clients again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Gives each request of another node to the crate whose verb it is.
struct InternodeHandler {
    shared: Arc<Shared>,
    replica: ReplicaHandler,
    cluster: Rc<dyn Handler>,
    streaming: Rc<dyn Handler>,
    repair: Rc<dyn Handler>,
    backups: Rc<dyn Handler>,
}

impl Handler for InternodeHandler {
    fn handle(&self, request: Request<'_>) -> Reply {
        match request.verb {
            ::cluster::FIRST_VERB..=::cluster::LAST_VERB => self.cluster.handle(request),
            streaming::FIRST_VERB..=backups::LAST_VERB if !self.shared.have_met(Stage::Finished) => {
                Reply::Err(RemoteError {
                    kind: RemoteErrorKind::Refused,
                    message: "the node is starting".to_owned(),
                })
            }
            streaming::FIRST_VERB..=streaming::LAST_VERB => self.streaming.handle(request),
            repair::FIRST_VERB..=repair::LAST_VERB => self.repair.handle(request),
            backups::FIRST_VERB..=backups::LAST_VERB => self.backups.handle(request),
            // A peer that did not notice that this node stopped still sends requests. Refuse them: they may not read
            // what another shard has not finished.
            verb if verb < ::cluster::FIRST_VERB && !self.shared.have_met(Stage::Finished) => {
                Reply::Err(RemoteError::failed("the node is starting"))
            }
            verb if verb < ::cluster::FIRST_VERB => self.replica.handle(request),
            verb => Reply::Err(RemoteError::unknown_verb(verb)),
        }
    }

    fn is_repeatable(&self, verb: u16) -> bool {
        match verb {
            ::cluster::FIRST_VERB..=::cluster::LAST_VERB => self.cluster.is_repeatable(verb),
            streaming::FIRST_VERB..=streaming::LAST_VERB => self.streaming.is_repeatable(verb),
            repair::FIRST_VERB..=repair::LAST_VERB => self.repair.is_repeatable(verb),
            backups::FIRST_VERB..=backups::LAST_VERB => self.backups.is_repeatable(verb),
            verb => self.replica.is_repeatable(verb),
        }
    }
}

/// Starts to accept connections from other nodes on this shard. The first shard chooses the port where any will do.
pub(crate) async fn accept_nodes(shared: &Arc<Shared>) -> Result<Option<Rc<Rpc>>, String> {
    let config = &shared.config;
    let wanted = SocketAddr::new(config.listen_address, config.storage_port);
    let address = if runtime::shard() == ShardId(0) {
        wanted
    } else {
        if !shared.meet(Stage::DoorOpened).await {
            return Ok(None);
        }
        shared.internode_address().unwrap_or(wanted)
    };
    let encryption = config.encryption.as_ref();
    let is_plain = encryption.is_none_or(|e| e.between != InternodeScope::All);
    let address_tls = encryption.map(|_| SocketAddr::new(config.listen_address, config.ssl_storage_port));
    if runtime::shard() == ShardId(0) {
        let listened = is_plain.then_some(address).into_iter().chain(address_tls);
        crate::shard_main::probe("other nodes", listened).await?;
    }
    let compresses = config.internode_compression != InternodeScope::None;
    let rpc_config = rpc::Config {
        // If every connection must be encrypted, the node does not listen for unencrypted ones.
        listen: is_plain.then_some(address),
        listen_tls: address_tls,
        tls: tls_files(config),
        join_secret: config.join_secret.clone(),
        compression: if compresses {
            config.internode_compression_algorithms.clone()
        } else {
            Vec::new()
        },
        features: all_features(),
        hidden_features: config.held_back_features.clone(),
        control_verbs: ::cluster::FIRST_VERB..=::cluster::LAST_VERB,
        limits: config.internode_limits.clone(),
        ..rpc::Config::new(&config.cluster_name, shared.host_id)
    };
    let handler = InternodeHandler {
        shared: shared.clone(),
        replica: ReplicaHandler::default(),
        cluster: ::cluster::handler(),
        streaming: streaming::handler(),
        repair: repair::handler(),
        backups: backups::handler(),
    };
    let rpc = Rpc::start(rpc_config, Rc::new(handler))
        .map_err(|e| format!("cannot listen for other nodes on {address}: {e}"))?;
    if runtime::shard() == ShardId(0) {
        if is_plain && config.join_secret.is_none() && !address.ip().is_loopback() {
            log::warn!(
                "any host that reaches port {} can join the cluster and speak for its nodes: give all nodes the same join_secret, or use TLS \
                 (server_encryption_options)",
                address.port()
            );
        }
        let bound = rpc.address().unwrap_or(address);
        shared.set_internode_address(bound);
        // The configured port may be 0, which takes any free one.
        shared.about.change(|info| info.storage_port = bound.port());
        if !shared.meet(Stage::DoorOpened).await {
            return Ok(None);
        }
    }
    Ok(Some(rpc))
}

/// What TLS with other nodes needs, where there is any.
pub(crate) fn tls_files(config: &Config) -> Option<rpc::TlsFiles> {
    config.encryption.as_ref().map(|encryption| rpc::TlsFiles {
        certificate: encryption.certificate.clone(),
        key: encryption.key.clone(),
        trust: encryption.trust.clone(),
        verify_endpoint: encryption.verify_endpoint,
    })
}

/// How other nodes are reached.
pub(crate) fn reach(config: &Config) -> Reach {
    Reach {
        encryption: config.encryption.as_ref().map_or(InternodeScope::None, |e| e.between),
        tls_port: config.ssl_storage_port,
        compression: config.internode_compression,
    }
}

/// How one node is reached.
pub(crate) fn peer(config: &Config, node: &Node) -> Peer {
    reach(config).peer(node.host_id.0, node.internode, &config.location, Some(&node.location))
}

/// What this release can do.
fn all_features() -> Vec<String> {
    ::cluster::FEATURES
        .iter()
        .map(|feature| (*feature).to_owned())
        .collect()
}

/// Holds back what the cluster has not enabled, so that it is not enabled and the way back to an older release stays
/// open. What is held back, in words.
pub(crate) fn hold_back_all_but(enabled: &BTreeSet<String>, config: &mut Config) -> String {
    let held_back = all_features().into_iter().filter(|feature| !enabled.contains(feature));
    config.held_back_features.extend(held_back);
    if config.held_back_features.is_empty() {
        "none".to_owned()
    } else {
        config.held_back_features.join(", ")
    }
}

/// What this node can do: all of it, less what is held back.
pub(crate) fn features(config: &Config) -> BTreeSet<String> {
    let mut features: BTreeSet<String> = all_features().into_iter().collect();
    features.retain(|feature| !config.held_back_features.contains(feature));
    features
}

fn cluster_config(shared: &Shared) -> ::cluster::Config {
    let config: &Config = &shared.config;
    let internode = shared
        .internode_address()
        .unwrap_or(SocketAddr::new(config.listen_address, config.storage_port));
    let addresses = shared.bound_addresses();
    let native_port = addresses.map_or(config.native_transport_port, |(cql, _)| cql.port());
    let aware_port = addresses.and_then(|(_, aware)| aware).map(|a| a.port());
    let base = ::cluster::Config::new(
        config.workdir.join(METADATA_DIR),
        &config.cluster_name,
        HostId(shared.host_id),
        SocketAddr::new(config.broadcast_address, internode.port()),
        shared.schema.clone(),
    );
    ::cluster::Config {
        native: SocketAddr::new(config.broadcast_rpc_address, native_port),
        native_shard_aware_port: aware_port,
        location: topology::Location {
            datacenter: config.data_center.clone(),
            rack: config.rack.clone(),
        },
        shards: u16::try_from(config.smp).unwrap_or(u16::MAX),
        num_tokens: config.num_tokens,
        initial_tokens: config.initial_tokens.clone(),
        seeds: config.seeds.clone(),
        auto_bootstrap: config.auto_bootstrap,
        joins_ring: config.joins_ring,
        rack_rules: config.checks_racks(),
        replaces: config.replaces,
        ignores: config.ignores.clone(),
        reach: reach(config),
        features: features(config),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        clock_limits: config.clock_limits,
        propose_timeout: config.request_timeout,
        schema_timeout: config.schema_timeout,
        forget_hints_after: config.hints.window.max(FORGET_HINTS_AFTER_MIN),
        ..base
    }
}

/// Brings the node into its cluster. On shard 0, when every shard has its engine and accepts connections from other
/// nodes. Returns when the node and those of its peers that are there take each other for up: clients may be let in.
pub(crate) async fn enter(shared: &Arc<Shared>, engine: &Rc<Engine>, rpc: &Rc<Rpc>) -> Result<Rc<Cluster>, String> {
    let listener = Rc::new(NodeListener {
        shared: shared.clone(),
        engine: engine.clone(),
        early_words: EarlyWords::default(),
        taken: Notify::new(),
    });
    shared.forget_first_view();
    let initial = shared.metadata.clone();
    if shared.config.checks_racks()
        && let Some(why) = initial
            .as_ref()
            .and_then(|metadata| metadata.rack_violations().into_iter().next())
    {
        return Err(format!(
            "{why}. With {RACK_OPTION} a node does not start while a keyspace does not fit the racks: start it without the option, and alter the keyspace or the racks"
        ));
    }
    let cluster = Cluster::start(cluster_config(shared), rpc.clone(), listener, initial)
        .await
        .map_err(|e| e.to_string())?;
    crate::identity::note_member(&shared.config.workdir, cluster.metadata().topology.cluster_name())?;
    engine.set_keeper(Rc::new(Keeper {
        cluster: Rc::downgrade(&cluster),
        truncate_timeout: shared.config.timeouts.truncate,
    }));
    drop(runtime::spawn(describe_members(shared.clone(), cluster.clone())));
    drop(runtime::spawn(watch_logs(shared.clone(), cluster.clone())));
    runtime::set_local(cluster.clone());
    cluster.set_balancing(shared.config.balancing);
    let told = cluster.clone();
    disk_space::watch(shared, Box::new(move |level| told.set_disk_level(level)));
    drop(runtime::spawn(disks::retire_when_told(shared.clone(), cluster.clone())));
    let meeting = {
        let cluster = cluster.clone();
        runtime::spawn(async move { cluster.meet_peers().await })
    };
    // Changes that were in progress when the node stopped are applied before it serves clients. If most voters are
    // away, it continues without them.
    let barrier = runtime::timeout(CATCH_UP_MAX, cluster.barrier());
    if let Some(Err(_)) = shared.unless_failed(barrier).await {
        log::warn!(
            "the metadata may not be the newest: a majority of its voters has not confirmed them in {CATCH_UP_MAX:?}"
        );
    }
    let _ = shared.unless_failed(meeting).await;
    // Until it has caught up, the other nodes would refuse what it routes, and its clients' requests would fail.
    let caught_up = cluster.catch_up(FENCED_WAIT_MAX);
    if let Some(false) = shared.unless_failed(caught_up).await {
        log::warn!("it serves clients without what the others have: requests that they refuse will fail");
    }
    Ok(cluster)
}

/// The cluster's group as the keeper of the schema. The cluster's listener holds the engine, which holds its keeper.
struct Keeper {
    cluster: rc::Weak<Cluster>,
    truncate_timeout: Duration,
}

impl Keeper {
    fn cluster(&self) -> Rc<Cluster> {
        self.cluster
            .upgrade()
            .expect("the shard keeps it while its engine is asked")
    }
}

impl SchemaKeeper for Keeper {
    fn change(
        &self,
        base: Uuid,
        next: Arc<Schema>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<String>, KeepError>> + '_>> {
        Box::pin(async move {
            let cluster = self.cluster();
            let (tablets, warnings) = tablets::for_schema(&cluster.metadata(), &next, cluster.tablet_bytes_goal());
            match cluster.propose_schema_with_tablets(base, next, tablets).await {
                Ok(()) => Ok(warnings),
                Err(ChangeError::Conflict) => {
                    // What it lost to is on its way here.
                    let caught_up = cluster.barrier().await;
                    caught_up.map_err(|e| KeepError::Failed(e.to_string()))?;
                    Err(KeepError::Conflict)
                }
                Err(ChangeError::NeedsFeature(why)) => Err(KeepError::Refused(why)),
                Err(ChangeError::Rejected(why)) if why.contains(RACK_OPTION) => Err(KeepError::Refused(why)),
                Err(e) => Err(KeepError::Failed(format!("The schema change failed: {e}"))),
            }
        })
    }

    fn truncate(
        &self,
        table: TableId,
        replicas: Vec<HostId>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + '_>> {
        Box::pin(async move {
            let deadline = runtime::now() + timeout.unwrap_or(self.truncate_timeout);
            self.cluster().truncate(table, &replicas, deadline).await
        })
    }
}

/// What a node does when its cluster changes.
struct NodeListener {
    shared: Arc<Shared>,
    engine: Rc<Engine>,
    early_words: EarlyWords,
    /// The shards have taken a version of the cluster over.
    taken: Notify,
}

impl NodeListener {
    /// Has the coordinator of each shard note something of a member; false when the shards do not know the node yet.
    fn tell(&self, host: HostId, note: impl Fn(&Coordinator, NodeNumber) + Clone + Send + 'static) -> bool {
        let number = self
            .engine
            .coordinator
            .context
            .with_view(|view| view.topology.number(host));
        let Some(number) = number else { return false };
        for shard in 0..runtime::shard_count() {
            let note = note.clone();
            drop(runtime::submit_to(ShardId(shard), move || {
                note(&Coordinator::local(), number)
            }));
        }
        true
    }

    /// Shows client routes in the system table, and notifies clients of those that changed: afterwards, because clients
    /// read the table when they hear the event.
    fn take_client_routes(&self, next: &Metadata) {
        let former = self.shared.note_client_routes(&next.client_routes);
        if Arc::ptr_eq(&former, &next.client_routes) {
            return;
        }
        let changed = ::cluster::changed_client_routes(&former, &next.client_routes);
        let named = changed
            .into_iter()
            .map(|key| (key.connection_id, key.host_id.to_string()));
        let named: Arc<[(String, String)]> = named.collect();
        for shard in 0..runtime::shard_count() {
            let named = named.clone();
            drop(runtime::submit_to(ShardId(shard), move || {
                if let Some(server) = runtime::local::<Server>() {
                    server.client_routes_changed(&named);
                }
            }));
        }
    }

    /// Passes to the shards what was heard of new members before they knew them.
    fn tell_early_words(&self) {
        for (host, word) in self.early_words.take() {
            if let Some(is_live) = word.is_live {
                self.liveness(host, is_live);
            }
            if let Some(takes) = word.takes_writes {
                self.takes_writes(host, takes);
            }
            if let Some(level) = word.disk {
                self.disk_level(host, level);
            }
        }
        // Those that are unknown still have left.
        self.early_words.take();
        self.taken.notify_all();
    }
}

/// Sends events of members to the clients of all shards, in order.
fn announce(events: &[(MemberEvent, SocketAddr)]) {
    if events.is_empty() {
        return;
    }
    for shard in 0..runtime::shard_count() {
        let events = events.to_vec();
        drop(runtime::submit_to(ShardId(shard), move || {
            if let Some(server) = runtime::local::<Server>() {
                for (event, native) in events {
                    server.member_changed(event, native);
                }
            }
        }));
    }
}

/// Lets clients in on this shard, or out.
pub(crate) async fn set_serving(is_open: bool) {
    let Some(front) = runtime::local::<Front>() else {
        return;
    };
    if !is_open {
        return front.close(CLIENTS_WAIT_MAX).await;
    }
    while let Err(e) = front.reopen() {
        log::error!("{e}; clients are not let in on this shard, and it is tried again");
        runtime::sleep(REOPEN_PAUSE).await;
    }
}

/// Watches whether the commitlogs of all shards take writes, and lets the other nodes know. Spawn this on shard 0; it
/// never returns.
async fn watch_logs(shared: Arc<Shared>, cluster: Rc<Cluster>) {
    watch_logs_here(shared, |trouble| cluster.set_write_trouble(trouble)).await;
}

/// Watches whether the commitlogs of all shards take writes. Calls `tell` at the start and after each change: with the
/// reason why a commitlog takes no writes, or `None` if all do.
pub(crate) async fn watch_logs_here<F: Future<Output = ()>>(shared: Arc<Shared>, tell: impl Fn(Option<String>) -> F) {
    for shard in 0..runtime::shard_count() {
        let shared = shared.clone();
        drop(runtime::submit_to(ShardId(shard), move || {
            drop(runtime::spawn(watch_log_here(shared)));
        }));
    }
    loop {
        let seen = shared.changed.changes();
        tell(shared.log_trouble()).await;
        shared.changed.changed_since(seen).await;
    }
}

/// Watches the commitlog of this shard. While it takes no writes it is tried again and again: a node that is sent none
/// would not find out that it does.
async fn watch_log_here(shared: Arc<Shared>) {
    let log = Engine::local().coordinator.context.shard.log.clone();
    let mut told = None;
    loop {
        let changed = log.changed.notified();
        let trouble = log.trouble().map(|e| e.to_string());
        let is_in_trouble = trouble.is_some();
        if trouble != told {
            told.clone_from(&trouble);
            shared.set_log_trouble(trouble);
        }
        if is_in_trouble {
            drop(changed);
            runtime::sleep(LOG_RETRY_DELAY).await;
            log.try_again();
        } else {
            changed.await;
        }
    }
}

pub(crate) fn in_decimal(tokens: &[Token]) -> Vec<String> {
    tokens.iter().map(|token| token.0.to_string()).collect()
}

/// What the system tables say of the other members.
pub(crate) fn describe_peers(
    metadata: &Metadata,
    me: HostId,
    schema_version: impl Fn(HostId) -> Option<Uuid>,
    is_live: impl Fn(HostId) -> bool,
) -> Vec<PeerInfo> {
    let others = metadata.topology.members().filter(|node| node.host_id != me);
    let peers = others.map(|node| PeerInfo {
        host_id: node.host_id.0,
        internode: node.internode,
        native: node.native,
        data_center: node.location.datacenter.clone(),
        rack: node.location.rack.clone(),
        release_version: RELEASE_VERSION.to_owned(),
        schema_version: schema_version(node.host_id),
        tokens: in_decimal(&node.tokens),
        state: node.state,
        is_zero_token: metadata.topology.is_zero_token(node.host_id),
        is_superseded: is_superseded(&metadata.topology, node),
        up: is_live(node.host_id),
    });
    peers.collect()
}

/// Keeps the members in the system tables up to date and sends clients the events of changes, after the tables have
/// changed: drivers read the tables when they get an event. Spawn this; it never returns.
async fn describe_members(shared: Arc<Shared>, cluster: Rc<Cluster>) {
    let serves_clients = |host| cluster.serves_clients(host);
    let mut announced = first_announcements(&cluster.metadata().topology, serves_clients);
    loop {
        let changed = cluster.members_changed();
        let metadata = cluster.metadata();
        let versions = cluster.peer_schema_versions();
        let me = HostId(shared.host_id);
        let peers = describe_peers(
            &metadata,
            me,
            |host| versions.get(&host).copied(),
            |host| cluster.is_live(host),
        );
        if let Some(node) = metadata.topology.node(me) {
            shared.note_members(in_decimal(&node.tokens), node.state, peers);
        }
        let next = next_announcements(&metadata.topology, &announced, serves_clients);
        announce(&events(&announced, &next));
        announced = next;
        changed.await;
    }
}

/// Waits for the requests of a view, whose end is notified; false when some do not end in time.
async fn requests_end(view: Weak<ClusterView>, at_end: Arc<SharedNotify>) -> bool {
    let have_ended = at_end.until(|| view.strong_count() == 0);
    let _ = runtime::timeout(OLD_REQUESTS_WAIT_MAX, have_ended).await;
    let left = view.strong_count();
    if left > 0 {
        log::warn!(
            "{left} requests that began before a change of the cluster did not end in {} s: replicas will refuse them",
            OLD_REQUESTS_WAIT_MAX.as_secs()
        );
    }
    left == 0
}

impl Listener for NodeListener {
    fn changed(&self, next: Arc<Metadata>) -> Local<'_, Drain> {
        Box::pin(async move {
            upkeep::cleanup::ring::see(&next);
            let former = self.engine.coordinator.context.view();
            let view = match view_of(&self.shared, &next, &former) {
                Ok(view) => Arc::new(view),
                Err(e) => {
                    // The other nodes removed this one: it keeps its former view until it is stopped.
                    log::error!("{e}");
                    return Drain(Box::pin(std::future::ready(true)));
                }
            };
            let (old, at_end) = (Arc::downgrade(&former), former.at_end());
            drop(former);
            follower().follow(&next.schema, view).await;
            self.tell_early_words();
            self.take_client_routes(&next);
            Drain(Box::pin(requests_end(old, at_end)))
        })
    }

    fn fenced_off(&self, before: u64) {
        for shard in 0..runtime::shard_count() {
            drop(runtime::submit_to(ShardId(shard), move || {
                Coordinator::local().context.set_fenced_off(before)
            }));
        }
    }

    fn liveness(&self, host: HostId, is_live: bool) {
        let is_known = self.tell(host, move |coordinator, number| {
            if let Some(rpc) = runtime::local::<Rpc>().filter(|_| is_live) {
                rpc.retry_now(host.0);
            }
            coordinator.set_live(number, is_live);
        });
        if !is_known {
            self.early_words.note(host, |word| word.is_live = Some(is_live));
        }
    }

    fn liveness_taken(&self) -> Local<'_, ()> {
        Box::pin(async {
            let _ = runtime::timeout(NEW_MEMBER_WAIT, async {
                while !self.early_words.is_empty() {
                    self.taken.notified().await;
                }
            })
            .await;
            // Messages between two shards arrive in order.
            for shard in 0..runtime::shard_count() {
                runtime::submit_to(ShardId(shard), || ()).await;
            }
        })
    }

    fn takes_writes(&self, host: HostId, takes: bool) {
        if !self.tell(host, move |coordinator, number| {
            coordinator.set_takes_writes(number, takes)
        }) {
            self.early_words.note(host, |word| word.takes_writes = Some(takes));
        }
    }

    fn disk_level(&self, host: HostId, level: DiskLevel) {
        if !self.tell(host, move |coordinator, number| {
            coordinator.set_disk_level(number, level)
        }) {
            self.early_words.note(host, |word| word.disk = Some(level));
        }
    }

    fn set_in_service(&self, is_in_service: bool) -> Local<'_, ()> {
        Box::pin(async move {
            // An operator wants none.
            if is_in_service && self.shared.refuses_clients.load(Ordering::Acquire) {
                return;
            }
            let shards = (0..runtime::shard_count()).map(ShardId);
            let asked: Vec<_> = shards
                .map(|shard| runtime::submit_async_to(shard, move || set_serving(is_in_service)))
                .collect();
            for done in asked {
                done.await;
            }
        })
    }

    fn has_user_data(&self) -> Local<'_, bool> {
        Box::pin(crate::sizes::has_data())
    }

    fn tablet_report(&self, splits: ::cluster::Splits) -> Local<'_, ::cluster::TabletReport> {
        Box::pin(crate::sizes::tablet_report(&self.engine, &self.shared.config, splits))
    }

    fn load(&self) -> Local<'_, u64> {
        Box::pin(crate::operator::load())
    }

    fn discard(&self, discard: ::cluster::Discard) -> Local<'_, Result<(), String>> {
        Box::pin(upkeep::copies::discard(&self.engine, discard))
    }

    fn copy(&self, copy: ::cluster::Copy) -> Local<'_, Result<usize, String>> {
        Box::pin(upkeep::copies::copy(&self.engine, copy))
    }

    fn left(&self, removed: Option<String>) {
        let shared = self.shared.clone();
        drop(runtime::spawn(async move {
            let workdir = shared.config.workdir.clone();
            if let Err(e) = runtime::offload(move || crate::identity::note_left(&workdir)).await {
                log::warn!("cannot note in the workdir that this node has left its cluster: {e}");
            }
            shared.end_as_left();
            if let Some(reason) = removed {
                shared.fail_everywhere(reason);
            }
        }));
    }

    fn fatal(&self, reason: String) {
        self.shared.fail_everywhere(reason);
    }
}
