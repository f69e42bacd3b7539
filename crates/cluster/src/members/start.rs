//! How a node starts in its cluster: it forms one, joins one, or rejoins.
//!
//! Until a node is in, it writes nothing; so a node that is refused can be started again, elsewhere or otherwise, as if
//! nothing had been.

use crate::config::{Config, Drain, Listener};
use crate::error::ClusterError;
use crate::members::claims::Claims;
use crate::members::peers::{Peers, RaftTransport, parts};
use crate::members::seeds::Seeds;
use crate::messages::verbs::LocalCluster;
use crate::messages::wire::{self, JoinAnswer, Who};
use crate::metadata::Metadata;
use crate::metadata::bytes::Malformed;
use crate::metadata::file;
use crate::metadata::lineage::{RUN_TIMEOUT, ask_runs, is_older, may_vote_at_once, older_directory, own_raft_id};
use crate::metadata::machine::Machine;
use crate::ring::tokens;
use crate::service::Cluster;
use crate::tablets::mover::Copies;
use consensus::{Consensus, Options, Part, Start};
use rpc::{NodeAddress, Peer, Rpc, RpcError};
use runtime::Notify;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use topology::{Admission, HostId, JoinFacts, JoinRequest, Node, NodeState, Topology, TopologyCommand, admit};
use types::Token;
use uuid::Uuid;

/// How long a node may take to identify itself.
const WHO_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a node that comes back listens whether its seeds are of its cluster; it serves without them.
const CHECK_TIMEOUT: Duration = RUN_TIMEOUT;
/// How long a member may take to let a node in.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two rounds of asking the seeds.
const ROUND: Duration = Duration::from_millis(500);
/// How often a node that waits for its seeds says so.
const TELL_INTERVAL: Duration = Duration::from_secs(3);

/// The Raft group of a cluster.
pub(crate) fn group_of(cluster_id: Uuid) -> u64 {
    let (high, low) = cluster_id.as_u64_pair();
    high ^ low
}

/// How a node begins.
struct Beginning {
    metadata: Metadata,
    start: Start,
    /// The listener has not seen this metadata.
    is_new: bool,
    /// The node may vote only when a peer has said that it knows no later run.
    awaits_peer: bool,
}

impl Cluster {
    /// Brings the node into its cluster: back into the one of its files (`initial`, from [`crate::load`]), else into
    /// that of its seeds, else into one that it forms. To be called on shard 0, when `rpc` answers with
    /// [`crate::handler`] there.
    ///
    /// A node that comes back waits for no other node, even if it has no place yet. One that joins returns when it has
    /// all metadata and its place: a full member, or one that still copies its ranges.
    /// When the metadata is not `initial`, [`Listener::changed`] is called before this returns.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn start(
        config: Config,
        rpc: Rc<Rpc>,
        listener: Rc<dyn Listener>,
        initial: Option<Metadata>,
    ) -> Result<Rc<Self>, ClusterError> {
        let incarnation = runtime::random_u64();
        let local = Rc::new(LocalCluster {
            incarnation,
            cluster_id: Cell::new(initial.as_ref().map(|metadata| metadata.topology.cluster_id())),
            metadata: RefCell::new(initial.clone().map(Arc::new)),
            cluster: RefCell::new(None),
        });
        runtime::set_local(local.clone());
        let seeds = Seeds::new(&config.seeds);
        let candidate = Candidate {
            config: &config,
            seeds: &seeds,
            rpc: &rpc,
            listener: &*listener,
            incarnation,
        };
        let joins = initial.is_none();
        let beginning = match initial {
            Some(metadata) => candidate.come_back(metadata).await?,
            None => candidate.form_or_join().await?,
        };
        let cluster = begin((config, seeds), rpc, listener, incarnation, beginning).await?;
        local.cluster_id.set(Some(cluster.metadata().topology.cluster_id()));
        *local.cluster.borrow_mut() = Some(cluster.clone());
        local.metadata.take();
        cluster.peers.broadcast();
        // A node that joins has to copy before it has its place.
        drop(runtime::spawn(cluster.clone().run_copies()));
        if joins {
            cluster.take_place().await;
        }
        cluster.spawn_own();
        Ok(cluster)
    }
}

async fn begin(
    (config, seeds): (Config, Rc<Seeds>),
    rpc: Rc<Rpc>,
    listener: Rc<dyn Listener>,
    incarnation: u64,
    beginning: Beginning,
) -> Result<Rc<Cluster>, ClusterError> {
    let metadata = Arc::new(beginning.metadata);
    let topology = &metadata.topology;
    let own_raft_id = own_raft_id(&metadata, config.host_id).ok_or_else(|| {
        ClusterError::Refused(format!(
            "node {} is not in the metadata that it was given",
            config.host_id
        ))
    })?;
    if beginning.is_new {
        // No request has begun yet.
        let _: Drain = listener.changed(metadata.clone()).await;
    }
    let mut options = Options::new(
        file::raft_dir(&config.dir),
        group_of(topology.cluster_id()),
        own_raft_id,
    );
    if beginning.awaits_peer {
        options.part = Part::Silent;
    }
    let machine = Rc::new(Machine::new(
        (config.dir.clone(), config.host_id),
        metadata.clone(),
        listener.clone(),
        config.known(),
    ));
    let peers = Rc::new(Peers::new(&config, rpc.clone(), machine.clone(), listener.clone()));
    let transport = Rc::new(RaftTransport {
        own_id: own_raft_id,
        peers: peers.clone(),
    });
    let consensus = Consensus::start(options, beginning.start, transport, machine.clone())
        .await
        .map_err(ClusterError::Consensus)?;
    // The log of this Raft id is there now, and must not be begun once more if it is lost.
    let dir = config.dir.clone();
    runtime::offload(move || file::forget_rejoined(&dir))
        .await
        .map_err(|e| ClusterError::Disk(e.to_string()))?;
    let cluster = Rc::new(Cluster {
        config,
        rpc,
        listener,
        seeds,
        machine,
        peers,
        consensus,
        own_raft_id,
        incarnation,
        is_stopping: Cell::new(false),
        stop: Notify::new(),
        is_fatal: Cell::new(false),
        awaits_peer: Cell::new(beginning.awaits_peer),
        withdrawn: RefCell::default(),
        told_differing: RefCell::default(),
        is_open: Cell::new(false),
        is_closed: Cell::new(false),
        is_in_service: Cell::new(true),
        is_retired: Cell::new(false),
        is_departing: Cell::new(false),
        greeted: RefCell::default(),
        told_serving: RefCell::default(),
        claims: Claims::default(),
        is_told_left: Cell::new(false),
        left_out_since: RefCell::default(),
        copies: Copies::default(),
        balancing: Cell::default(),
        balance_report: RefCell::default(),
    });
    cluster.spawn_shared();
    Ok(cluster)
}

/// How the node at an address answers.
enum SeedAnswer {
    /// It answers.
    Node(HostId, Who),
    /// It answers, and is not ready to identify itself.
    Starting,
    /// It does not talk to this node, for this reason.
    Refuses(String),
    /// No node answers.
    Silent,
}

/// A node that is not in yet.
struct Candidate<'a> {
    config: &'a Config,
    seeds: &'a Rc<Seeds>,
    rpc: &'a Rc<Rpc>,
    listener: &'a dyn Listener,
    incarnation: u64,
}

impl Candidate<'_> {
    /// From the node's own files.
    async fn come_back(&self, metadata: Metadata) -> Result<Beginning, ClusterError> {
        restart_commands(self.config, &metadata).map_err(ClusterError::Refused)?;
        let topology = &metadata.topology;
        let node = topology
            .node(self.config.host_id)
            .expect("a restart is of a known node");
        if node.internode != self.config.internode
            && has_identity_elsewhere(
                self.config,
                self.rpc,
                self.config.host_id,
                node.internode,
                self.incarnation,
            )
            .await
        {
            return Err(ClusterError::Refused(duplicate(self.config, node.internode)));
        }
        let is_alone = topology.nodes().len() == 1;
        let generation = own_raft_id(&metadata, self.config.host_id).map(|id| parts(id).0);
        let may_begin_log = file::rejoined(&self.config.dir).is_some_and(|rejoined| Some(rejoined) == generation);
        let start = if file::has_log(&self.config.dir) || may_begin_log || node.state == NodeState::Joining {
            Start::Joining
        } else if is_alone && metadata.index == 1 {
            // It crashed while it formed the cluster.
            Start::Voters(vec![1])
        } else {
            return Err(ClusterError::Refused(format!(
                "The metadata is there and its log in {} is not. Restore the directory that ran last, or have the node take the metadata from the other \
                 members (ceto recover-metadata --rejoin; `ceto page rejoin`).",
                file::raft_dir(&self.config.dir).display(),
            )));
        };
        let awaits_peer = self.check_peers(&metadata).await?;
        Ok(Beginning {
            metadata,
            start,
            is_new: false,
            awaits_peer,
        })
    }

    /// Fails if a peer that answers at once speaks against continuing from the node's files: a seed of another cluster,
    /// or a member that knows a later run of the node. True when the node must not vote before a peer has spoken.
    async fn check_peers(&self, metadata: &Metadata) -> Result<bool, ClusterError> {
        let topology = &metadata.topology;
        let Some(id) = own_raft_id(metadata, self.config.host_id).filter(|_| metadata.history.is_some()) else {
            self.check_seeds(topology).await?;
            return Ok(false);
        };
        let (config, rpc, known) = (self.config.clone(), self.rpc.clone(), metadata.clone());
        let asks = runtime::spawn(async move { ask_runs(&config, &rpc, &known).await });
        self.check_seeds(topology).await?;
        let answers = asks.await;
        let (dir, group) = (file::raft_dir(&self.config.dir), group_of(topology.cluster_id()));
        let log = runtime::offload(move || consensus::look(&dir, group, id)).await;
        let log = log.map_err(|e| ClusterError::Consensus(consensus::StartError::Store(e)))?;
        let runs = log.as_ref().map_or(&[][..], |log| &log.runs);
        let generation = parts(id).0;
        if let Some(noted) = answers.iter().find(|noted| is_older(**noted, generation, runs)) {
            let reason = older_directory(self.config.host_id, *noted, generation);
            return Err(ClusterError::Refused(reason));
        }
        // Without a log it has no vote, and has promised nothing under this Raft id.
        Ok(log.is_some_and(|log| !may_vote_at_once(&log.voters, id, &answers)))
    }

    /// Whether the seeds that answer at once are of the cluster that the node's files are of.
    async fn check_seeds(&self, topology: &Topology) -> Result<(), ClusterError> {
        let own = self.config.internode;
        let others = self.seeds.addresses().into_iter().filter(|seed| *seed != own);
        for (seed, found) in ask(self.config, self.rpc, others.collect()).await {
            match found {
                SeedAnswer::Node(_, who) if who.cluster_id.is_some_and(|id| id != topology.cluster_id()) => {
                    let reason = other_cluster(topology, seed, who.cluster_id.unwrap_or_default());
                    return Err(ClusterError::Refused(reason));
                }
                SeedAnswer::Refuses(reason) => {
                    return Err(ClusterError::Refused(format!("the seed {seed} says: {reason}")));
                }
                SeedAnswer::Silent => self.seeds.note_silent(seed),
                SeedAnswer::Node(..) | SeedAnswer::Starting => {}
            }
        }
        Ok(())
    }

    async fn form_or_join(&self) -> Result<Beginning, ClusterError> {
        let own = self.config.internode;
        let begun = runtime::now();
        let mut last_reason = "no seed answers".to_owned();
        let mut told_at = begun;
        loop {
            // Names may have led elsewhere since the last round.
            let seeds = self.seeds.addresses();
            let mut may_form = seeds.first().is_none_or(|seed| *seed == own);
            let others: BTreeSet<SocketAddr> = seeds.into_iter().filter(|seed| *seed != own).collect();
            let mut all_answered = true;
            for seed in &others {
                match self.who(*seed).await {
                    SeedAnswer::Node(host, who) if host == self.config.host_id => {
                        if who.incarnation != self.incarnation {
                            return Err(ClusterError::Refused(duplicate(self.config, *seed)));
                        }
                    }
                    SeedAnswer::Node(host, who) if who.cluster_id.is_some() => {
                        may_form = false;
                        let member = self.config.reach.peer(host.0, *seed, &self.config.location, None);
                        match self.join(member).await? {
                            Ok(beginning) => return Ok(beginning),
                            Err(reason) => last_reason = format!("{seed}: {reason}"),
                        }
                    }
                    SeedAnswer::Node(..) => {}
                    SeedAnswer::Starting => may_form = false,
                    SeedAnswer::Refuses(reason) => {
                        return Err(ClusterError::Refused(format!("the seed {seed} says: {reason}")));
                    }
                    SeedAnswer::Silent => {
                        all_answered = false;
                        self.seeds.note_silent(*seed);
                    }
                }
            }
            let waited = runtime::now() - begun;
            if may_form && (all_answered || waited >= self.config.ring_delay) {
                return self.form().await;
            }
            if waited >= self.config.join_timeout {
                return Err(ClusterError::Unreachable(format!(
                    "in {:.0} s none of the seeds let it in ({last_reason})",
                    waited.as_secs_f64()
                )));
            }
            if runtime::now() - told_at >= TELL_INTERVAL {
                told_at = runtime::now();
                let others = self.seeds.all().into_iter().filter(|seed| seed.address != own);
                let seeds: Vec<String> = others.map(|seed| seed.to_string()).collect();
                log::info!("waiting to be let in by the seeds {}: {last_reason}", seeds.join(", "));
            }
            runtime::sleep(ROUND).await;
        }
    }

    /// A cluster of this node.
    async fn form(&self) -> Result<Beginning, ClusterError> {
        let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        let cluster_id = uuid::Builder::from_random_bytes(*id.as_bytes()).into_uuid();
        let mut topology = Topology::new(&self.config.cluster_name, cluster_id);
        let request = join_request(self.config, None, wanted_tokens(self.config));
        let facts = facts(BTreeSet::new(), request.wall_clock, self.config);
        let admission = admit(&topology, &request, &facts).map_err(|e| ClusterError::Refused(e.to_string()))?;
        let (Admission::Join { commands, .. } | Admission::Restart { commands }) = admission;
        for command in &commands {
            topology
                .apply(command)
                .map_err(|e| ClusterError::Refused(e.to_string()))?;
        }
        let mut metadata = Metadata::new(self.config.initial_schema.clone(), topology);
        metadata.index = 1;
        self.keep(&metadata).await?;
        log::info!("formed cluster '{}' with id {cluster_id}", self.config.cluster_name);
        Ok(Beginning {
            metadata,
            start: Start::Voters(vec![1]),
            is_new: true,
            awaits_peer: false,
        })
    }

    /// Asks a member to be let in. The inner error is a reason to try again.
    async fn join(&self, member: Peer) -> Result<Result<Beginning, String>, ClusterError> {
        if self.listener.has_user_data().await {
            return Err(ClusterError::Refused(
                "The node holds data from when it was alone, and the seeds have a cluster of their own. Start it on an empty data directory, and load \
                 its data with the tools if it is needed."
                    .to_owned(),
            ));
        }
        let request = join_request(self.config, None, wanted_tokens(self.config));
        let (body, asked) = (wire::encode_join(&request), runtime::now());
        let answer = match self.rpc.call(&member, 0, wire::JOIN, body, JOIN_TIMEOUT).await {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let metadata = match JoinAnswer::decode(&answer) {
            // The clock that the request names was right when it was asked; a member that took so long cannot judge it.
            Ok(JoinAnswer::Refused(reason)) if asked.elapsed() > self.config.clock_limits.suspect / 2 => {
                return Ok(Err(format!(
                    "{reason} It took {:.1} s to say so",
                    asked.elapsed().as_secs_f64()
                )));
            }
            Ok(JoinAnswer::Refused(reason)) => return Err(ClusterError::Refused(reason)),
            Ok(JoinAnswer::Later(reason)) => return Ok(Err(reason)),
            Ok(JoinAnswer::Welcome(bytes)) => Metadata::decode(&bytes, &self.config.known()).map_err(unreadable)?,
            Err(error) => return Err(unreadable(error)),
        };
        let topology = &metadata.topology;
        if topology.node(self.config.host_id).is_none() || topology.cluster_name() != self.config.cluster_name {
            return Ok(Err("the metadata that it gave does not have this node".to_owned()));
        }
        self.keep(&metadata).await?;
        log::info!(
            "joining cluster '{}' with id {}",
            topology.cluster_name(),
            topology.cluster_id()
        );
        Ok(Ok(Beginning {
            metadata,
            start: Start::Joining,
            is_new: true,
            awaits_peer: false,
        }))
    }

    async fn keep(&self, metadata: &Metadata) -> Result<(), ClusterError> {
        let (dir, metadata) = (self.config.dir.clone(), metadata.clone());
        let kept = runtime::offload(move || {
            file::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            file::save_whole(&dir, &metadata)
        });
        kept.await.map_err(ClusterError::Disk)
    }

    async fn who(&self, address: SocketAddr) -> SeedAnswer {
        who(self.config, self.rpc, address).await
    }
}

fn unreadable(error: Malformed) -> ClusterError {
    ClusterError::Refused(format!("{error}; start the node with the release of the other nodes"))
}

/// Why a node does not start if its seed is in another cluster. Both clusters have the same name: nodes refuse the
/// connections of clusters with other names.
fn other_cluster(topology: &Topology, seed: SocketAddr, theirs: Uuid) -> String {
    let ours = topology.cluster_id();
    let clusters =
        format!("The node's files are of cluster {ours}, and the seed {seed} is in cluster {theirs} of the same name.");
    let remedy = "Do not empty this node's directories. Stop the seed, and give it other seeds than itself or remove it from this node's cluster \
                  (`ceto page rejoin`). Then start this node again.";
    let member = topology.members().find(|node| node.internode == seed);
    match member {
        Some(member) => format!(
            "{clusters} The seed has the address of node {} of this node's cluster: it has probably lost its files and formed a cluster of its own. {remedy}",
            member.host_id
        ),
        None => format!(
            "{clusters} If the seed was a member of this node's cluster, it has probably lost its files and formed a cluster of its own. {remedy} Otherwise this node has wrong seeds. \
             Correct the seeds, or, if nothing of this node's data is needed, start it on an empty data directory."
        ),
    }
}

fn duplicate(config: &Config, address: SocketAddr) -> String {
    format!(
        "Host id {} is alive at {address}, and starts at {}: two nodes have one identity. Stop one of them; if the data directory was copied, start \
         the copy on an empty one.",
        config.host_id, config.internode
    )
}

/// How to reach an address when the node there is not known.
pub(crate) fn place(config: &Config, address: SocketAddr) -> NodeAddress {
    let peer = config.reach.peer(Uuid::nil(), address, &config.location, None);
    NodeAddress {
        address: peer.address,
        tls: peer.tls,
    }
}

/// Time since 1970 by this node's clock.
pub(crate) fn wall_clock() -> Duration {
    Duration::from_micros(u64::try_from(runtime::wall_clock_us()).unwrap_or(0))
}

/// What a request that came at this time is judged by.
pub(crate) fn facts(alive: BTreeSet<HostId>, wall_clock: Duration, config: &Config) -> JoinFacts {
    JoinFacts {
        wall_clock,
        alive,
        clock_offset_max: config.clock_limits.suspect,
    }
}

/// The tokens that a node takes when it gets some.
pub(crate) fn wanted_tokens(config: &Config) -> Vec<Token> {
    if config.initial_tokens.is_empty() {
        return tokens::choose(config.host_id, config.num_tokens);
    }
    let tokens: BTreeSet<Token> = config.initial_tokens.iter().copied().collect();
    tokens.into_iter().collect()
}

/// What the node says of itself when it wants to be a member.
fn join_request(config: &Config, cluster_id: Option<Uuid>, tokens: Vec<Token>) -> JoinRequest {
    JoinRequest {
        cluster_name: config.cluster_name.clone(),
        cluster_id,
        node: Node {
            host_id: config.host_id,
            internode: config.internode,
            native: config.native,
            native_shard_aware_port: config.native_shard_aware_port,
            location: config.location.clone(),
            shards: config.shards,
            tokens,
            state: NodeState::Joining,
            features: config.features.clone(),
            release: config.release.clone(),
            loss: None,
        },
        wall_clock: wall_clock(),
        auto_bootstrap: config.auto_bootstrap,
        joins_ring: config.joins_ring,
        replaces: config.replaces,
        ignored: config.ignores.clone(),
    }
}

/// What must be changed in the topology for this node to be as it was started now.
///
/// # Errors
/// Why it may not come back so.
pub(crate) fn restart_commands(config: &Config, metadata: &Metadata) -> Result<Vec<TopologyCommand>, String> {
    let topology = &metadata.topology;
    let tokens = match topology.node(config.host_id) {
        Some(node) if config.initial_tokens.is_empty() => node.tokens.clone(),
        Some(_) => wanted_tokens(config),
        None => {
            return Err(format!(
                "The metadata in {} is of another node: cluster '{}' has none with host id {}. Restore the node's own data directory.",
                config.dir.display(),
                topology.cluster_name(),
                config.host_id
            ));
        }
    };
    let request = join_request(config, Some(topology.cluster_id()), tokens);
    match admit(topology, &request, &facts(BTreeSet::new(), request.wall_clock, config)) {
        Ok(Admission::Join { commands, .. } | Admission::Restart { commands }) => Ok(commands),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// Whether a process answers at an address with an identity, and is not that of an incarnation.
pub(crate) async fn has_identity_elsewhere(
    config: &Config,
    rpc: &Rc<Rpc>,
    host_id: HostId,
    address: SocketAddr,
    incarnation: u64,
) -> bool {
    match rpc
        .ask(place(config, address), wire::WHO, Vec::new(), WHO_TIMEOUT)
        .await
    {
        Ok((host, _)) if host != host_id.0 => false,
        Ok((_, Ok(answer))) => Who::decode(&answer).is_ok_and(|who| who.incarnation != incarnation),
        // It has the identity and is not ready to say more; this process would have been.
        Ok((_, Err(_))) => true,
        Err(_) => false,
    }
}

/// The node that answers at an address.
async fn who(config: &Config, rpc: &Rc<Rpc>, address: SocketAddr) -> SeedAnswer {
    match rpc
        .ask(place(config, address), wire::WHO, Vec::new(), WHO_TIMEOUT)
        .await
    {
        Ok((host, Ok(answer))) => match Who::decode(&answer) {
            Ok(who) => SeedAnswer::Node(HostId(host), who),
            Err(error) => SeedAnswer::Refuses(error.to_string()),
        },
        Ok((_, Err(_))) => SeedAnswer::Starting,
        Err(RpcError::Refused(reason)) => SeedAnswer::Refuses(reason),
        Err(_) => SeedAnswer::Silent,
    }
}

/// The nodes that answer at these addresses at once.
async fn ask(config: &Config, rpc: &Rc<Rpc>, addresses: BTreeSet<SocketAddr>) -> Vec<(SocketAddr, SeedAnswer)> {
    let asked: Vec<_> = addresses
        .into_iter()
        .map(|address| {
            let (config, rpc) = (config.clone(), rpc.clone());
            let asks = async move { runtime::timeout(CHECK_TIMEOUT, who(&config, &rpc, address)).await };
            (address, runtime::spawn(asks))
        })
        .collect();
    let mut found = Vec::with_capacity(asked.len());
    for (address, answer) in asked {
        found.push((address, answer.await.unwrap_or(SeedAnswer::Silent)));
    }
    found
}

impl Cluster {
    /// Asks seeds and members where all nodes are. Returns where this node's identity is said to be, if that is
    /// elsewhere.
    pub(crate) async fn find_members(&self) -> Option<SocketAddr> {
        let own = self.config.internode;
        let members = self.peers.addresses().into_iter().map(|(_, address)| address);
        let addresses = members.chain(self.seeds.addresses()).filter(|address| *address != own);
        let mut elsewhere = None;
        for (address, found) in ask(&self.config, &self.rpc, addresses.collect()).await {
            let SeedAnswer::Node(host, who) = found else {
                if matches!(found, SeedAnswer::Silent) {
                    self.seeds.note_silent(address);
                }
                continue;
            };
            if who.cluster_id != Some(self.metadata().topology.cluster_id()) || host == self.config.host_id {
                continue;
            }
            self.peers.note_address(host, address);
            for (host, address) in who.peers {
                if host != self.config.host_id {
                    self.peers.note_address(host, address);
                } else if address != own {
                    elsewhere = Some(address);
                }
            }
        }
        elsewhere
    }
}
