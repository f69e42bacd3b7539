//! What other nodes ask of this one. The handler finds the shard's local, so that it can be given to `rpc` before the
//! cluster is known.

use crate::error::ChangeError;
use crate::members::peers;
use crate::members::start::wall_clock;
use crate::messages::wire::{self, Greeting, JoinAnswer, State, Who};
use crate::metadata::Metadata;
use crate::service::Cluster;
use rpc::{Handler, RemoteError, RemoteErrorKind, Reply, Request};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use topology::{HostId, NodeState};
use uuid::Uuid;

/// The first verb that [`handler`] answers.
pub const FIRST_VERB: u16 = 100;
/// The last verb that [`handler`] answers.
pub const LAST_VERB: u16 = 199;

/// This shard's answers to verbs [`FIRST_VERB`] to [`LAST_VERB`]. To be called on shard 0; before [`Cluster::start`] it
/// says that the node starts.
#[must_use]
pub fn handler() -> Rc<dyn Handler> {
    Rc::new(Verbs)
}

/// What of this node others may know at any time since its start.
pub(crate) struct LocalCluster {
    pub(crate) incarnation: u64,
    pub(crate) cluster_id: Cell<Option<Uuid>>,
    /// What the node's files said when it started; the cluster knows better once it is there.
    pub(crate) metadata: RefCell<Option<Arc<Metadata>>>,
    pub(crate) cluster: RefCell<Option<Rc<Cluster>>>,
}

struct Verbs;

impl Handler for Verbs {
    fn handle(&self, request: Request<'_>) -> Reply {
        let Some(local) = runtime::local::<LocalCluster>() else {
            return starting();
        };
        let cluster = local.cluster.borrow().clone();
        if request.verb == wire::WHO {
            let who = Who {
                incarnation: local.incarnation,
                cluster_id: local.cluster_id.get(),
                peers: cluster.map(|cluster| cluster.peers.addresses()).unwrap_or_default(),
            };
            return Reply::Now(who.encode());
        }
        if request.verb == wire::RUN {
            let known = local.metadata.borrow().clone();
            let metadata = cluster.map(|cluster| cluster.metadata()).or(known);
            let run = metadata.and_then(|metadata| metadata.run_of(HostId(request.peer.host_id)));
            return match run {
                Some(run) => Reply::Now(wire::encode_run(run)),
                None => starting(),
            };
        }
        let Some(cluster) = cluster.filter(|cluster| !cluster.is_stopping.get()) else {
            return starting();
        };
        answer(cluster, &request)
    }
}

fn starting() -> Reply {
    Reply::Err(RemoteError::failed("the node is starting or stopping"))
}

fn answer(cluster: Rc<Cluster>, request: &Request<'_>) -> Reply {
    let from = HostId(request.peer.host_id);
    match request.verb {
        wire::RAFT => {
            if let Some((id, message)) = request.body.split_first_chunk::<8>() {
                cluster.receive(from, u64::from_be_bytes(*id), message.to_vec());
            }
            Reply::None
        }
        wire::STATE => {
            match State::decode(request.body) {
                Ok(state) if state.has_left => cluster.doubt_membership(from),
                Ok(state) if from != cluster.config.host_id => {
                    cluster.peers.on_state(from, &state);
                    cluster.on_lineage(from, &state);
                }
                Ok(_) => {}
                Err(error) => log::warn!("node {from} sent what cannot be read: {error}"),
            }
            Reply::None
        }
        wire::JOIN => match wire::decode_join(request.body) {
            Ok(join) if join.node.host_id == from => Reply::Later(Box::pin(async move {
                let arrived = wall_clock();
                // A task of its own: what is proposed is not forgotten when the caller gives up.
                let answer = runtime::spawn(async move { cluster.admit(join, arrived).await }).await;
                Ok(answer.encode())
            })),
            Ok(_) => {
                Reply::Now(JoinAnswer::Refused("The request names another node than its sender.".to_owned()).encode())
            }
            Err(error) => Reply::Now(JoinAnswer::Refused(error.to_string()).encode()),
        },
        wire::REJOIN => Reply::Later(Box::pin(async move {
            let answer = runtime::spawn(async move { cluster.let_rejoin(from).await }).await;
            Ok(answer.encode())
        })),
        wire::LOAD => Reply::Later(Box::pin(async move {
            let load = cluster.listener.load().await;
            Ok(wire::encode_load(load))
        })),
        wire::RING_COPIED => match wire::decode_ring_copied(request.body) {
            Ok(version) => Reply::Now(wire::encode_ring_copied(cluster.own_ring_copies(version))),
            Err(error) => Reply::Err(RemoteError::failed(error.to_string())),
        },
        wire::RING_COPY_FAILURE => match wire::decode_ring_copied(request.body) {
            Ok(version) => Reply::Now(wire::encode_ring_copy_failure(&cluster.own_ring_copy_failure(version))),
            Err(error) => Reply::Err(RemoteError::failed(error.to_string())),
        },
        wire::TABLET_BYTES => match wire::decode_splits(request.body) {
            Ok(splits) => Reply::Later(Box::pin(async move {
                let report = cluster.listener.tablet_report(splits).await;
                Ok(wire::encode_tablet_report(&report))
            })),
            Err(error) => Reply::Err(RemoteError::failed(error.to_string())),
        },
        wire::BALANCE => {
            if cluster.leads() {
                Reply::Now(cluster.own_balance_report().encode())
            } else {
                Reply::Err(RemoteError::failed("the node does not lead the metadata group"))
            }
        }
        wire::EXCLUDE => match wire::decode_hosts(request.body) {
            Ok(hosts) => Reply::Later(Box::pin(async move {
                // A task of its own: what is proposed is not forgotten when the caller gives up.
                let decided = runtime::spawn(async move { cluster.decide_exclusion(&hosts).await }).await;
                decided.map(|()| Vec::new()).map_err(|e| match e {
                    ChangeError::Refused(message) | ChangeError::Rejected(message) => RemoteError {
                        kind: RemoteErrorKind::Refused,
                        message,
                    },
                    // No decision was made against the exclusion.
                    later => RemoteError::failed(later.to_string()),
                })
            })),
            Err(error) => Reply::Err(RemoteError::failed(error.to_string())),
        },
        wire::GOODBYE => {
            cluster.peers.on_goodbye(from);
            Reply::Later(Box::pin(async move {
                cluster.listener.liveness_taken().await;
                Ok(Vec::new())
            }))
        }
        wire::GREETING => match Greeting::decode(request.body) {
            Ok(greeting) => Reply::Later(Box::pin(async move {
                Ok(cluster.greeted_by(from, greeting).await.encode())
            })),
            Err(error) => Reply::Err(RemoteError::failed(error.to_string())),
        },
        verb => Reply::Err(RemoteError::unknown_verb(verb)),
    }
}

impl Cluster {
    /// Takes a message of the group, from the node to which its Raft id belongs.
    fn receive(self: &Rc<Self>, from: HostId, raft_id: u64, message: Vec<u8>) {
        let metadata = self.metadata();
        if raft_id == 0 {
            return;
        }
        let (generation, number) = peers::parts(raft_id);
        let is_true = match (metadata.topology.numbered(number), metadata.topology.node(from)) {
            // A node has its own id only, and no former one.
            (Some(node), _) => {
                let is_gone = node.state == NodeState::Left || metadata.topology.is_excluded(from);
                node.host_id == from && !is_gone && generation >= metadata.generation_of(number)
            }
            (None, Some(_)) => false,
            // One that this node has not heard of yet may be a member all the same.
            (None, None) => {
                let is_vouched = self.is_vouched(from);
                if !is_vouched {
                    self.ask_about_strangers();
                }
                is_vouched
            }
        };
        if is_true {
            self.consensus.receive(raft_id, message);
        }
    }
}
