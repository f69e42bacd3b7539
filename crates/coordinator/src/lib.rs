//! The coordinator: which replicas a request needs, and what results from their answers.
//!
//! Each shard has a [`Coordinator`], which is its components: each owns the state and the functions of one concern, and
//! holds the components that it needs (docs/dev/request-path.md lists them). All of them use the [`Context`]: the
//! shard's [`ClusterView`], an immutable value that says where every table's tokens live, and its knowledge of which
//! nodes are alive.
//!
//! A request that this node cannot answer alone ([`Route::read_here`], [`Route::write_here`]) comes here:
//! [`Writes::write`] sends mutations to all replicas and waits for as many as the consistency level wants; a
//! [`ReplicatedRead`] asks one replica for data and the others for digests, and where they differ merges all, repairs
//! and continues. A replica's side of both is [`service`], which the same calls reach on another shard of this node.
//!
//! Invariants
//! - Whether a write may be acknowledged is decided by `topology::Acks` alone; which of two cells wins, by `mutation`
//!   alone.
//! - A request holds one view from beginning to end.
//! - What a read returns at a level has been written to as many replicas as the level wants before it is returned.
//! - A coordinator names no file.
//! - No component holds another one that holds it.

#[cfg(test)]
extern crate self as coordinator;

mod batchlog;
mod cas;
mod context;
mod counter;
mod error;
mod fence;
#[doc(hidden)]
pub mod fuzz;
mod handoff;
mod limits;
mod message;
pub mod near;
mod own;
mod read;
pub mod service;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod tablet_version;
mod tombstones;
pub mod trace;
mod truncate;
mod verbs;
mod view;
mod virtual_tables;
mod write;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use hints::Hints;
use replica::{QuarantineChange, Shard};
use rpc::Rpc;
use runtime::ShardId;
use schema::TableId;
use topology::{DiskLevel, NodeNumber};

use write::deadlines::Flights;

pub use self::cas::{Cas, CasRead, CasRequest, Decision, ReadResult, SERIAL_BYTES_MAX};
pub use batchlog::{Batches, NOTE_SEGMENTS_MAX};
pub use cas::acceptor::{Promises, paxos_state_of};
pub use cas::turns::{Ended, PartitionTurns, Turn};
pub use commitlog::Logged;
pub use context::{Context, Metrics, Timeouts};
pub use counter::Counters;
pub use error::{CoordinatorError, Tally, TargetError, WriteKind};
pub use fence::Stamp;
pub use handoff::Handoff;
pub use limits::{Admission, Limits, Operation};
pub use message::{Answer, Extent, Malformed, ReadCommand, difference};
pub use near::NearWork;
pub use near::spread::{Share, Spread};
pub use own::{
    LoadedRow, Own, OwnPartition, OwnRead, OwnRow, OwnSource, OwnTable, TokenOwners, Unsynced, on_metadata_shard,
    on_shard,
};
pub use read::point::{Confirmation, PointRead, ReadDone};
pub use read::{Reads, ReplicatedRead, Stretch};
pub use replica::{InMemory, ReadOptions, RowBuffers, RowName, RowProjection};
pub use replica::{Measured, MeasuredRow, Recorded, Touched};
pub use tablet_version::VersionedTablet;
pub use tombstones::{AcceptedLoss, HeldTombstones, Tombstones};
pub use trace::Traces;
pub use truncate::replicas_to_truncate;
pub use verbs::{ReplicaHandler, Verb};
pub use view::{ClusterView, Forgotten, Levels, NotAMember, Ring, Route};
pub use virtual_tables::register_system_tables;
pub use write::apply::{Origin, apply};
pub use write::dated::{Dated, Deadline};
pub use write::{Atomicity, Mutations, WriteDone, Writes};

type Job = Pin<Box<dyn Future<Output = ()>>>;

/// One shard's coordinator: its components, each with the state and the functions of one concern. See the module.
pub struct Coordinator {
    /// What every component uses.
    pub context: Rc<Context>,
    /// What this shard has and may answer alone.
    pub own: Own,
    /// Limits of requests.
    pub limits: Limits,
    /// Reads at a level.
    pub reads: Rc<Reads>,
    /// Writes.
    pub writes: Rc<Writes>,
    /// Conditional statements.
    pub cas: Rc<Cas>,
    /// Additions to counters.
    pub counters: Rc<Counters>,
    /// Notes of logged batches.
    pub batches: Rc<Batches>,
    /// Hints, and their delivery.
    pub hints: Rc<Handoff>,
    /// How long tombstones are kept.
    pub tombstones: Rc<Tombstones>,
    /// Work near the data.
    pub near: Rc<NearWork>,
    /// Traces of this shard as a replica.
    pub traces: Traces,
}

impl Coordinator {
    /// The coordinator of a shard. Without an `rpc` it reaches its own node only.
    pub fn new(shard: Rc<Shard>, rpc: Option<Rc<Rpc>>, view: Arc<ClusterView>) -> Rc<Self> {
        let context = Context::new(shard, rpc, view);
        let flights = Rc::new(Flights::default());
        let hints = Rc::new(Handoff::new(context.clone()));
        let batches = Rc::new(Batches::new(context.clone(), hints.clone()));
        let reads = Rc::new(Reads::new(context.clone(), flights.clone(), hints.clone()));
        let writes = Rc::new(Writes::new(context.clone(), flights, hints.clone(), batches.clone()));
        Rc::new(Self {
            own: Own::new(context.clone()),
            limits: Limits::new(context.clone()),
            cas: Rc::new(Cas::new(context.clone(), reads.clone(), writes.clone())),
            counters: Rc::new(Counters::new(context.clone(), writes.clone())),
            tombstones: Rc::new(Tombstones::new(context.clone(), hints.clone())),
            near: Rc::new(NearWork::new(context.clone())),
            traces: Traces::default(),
            context,
            reads,
            writes,
            batches,
            hints,
        })
    }

    /// The coordinator of the shard that runs this.
    #[must_use]
    pub fn local() -> Rc<Self> {
        runtime::local::<Self>().expect("every shard keeps its coordinator before it takes messages")
    }

    /// Gives this shard its hints. From here on its compactions keep what other replicas may have missed.
    pub fn keep_hints(&self, hints: Rc<Hints>) {
        self.hints.keep(hints);
        self.tombstones.hold();
    }

    /// Begins to answer alone as the view says, and to follow what becomes of the tables' files.
    pub fn begin_alone(&self) {
        self.take_view(self.context.view());
        let tombstones = Rc::downgrade(&self.tombstones);
        self.context.shard.on_quarantine(Box::new(move |table, change| {
            let is_missing = change == QuarantineChange::Missing;
            if let Some(tombstones) = tombstones.upgrade().filter(|_| is_missing) {
                tombstones.note_loss(table);
            }
            spawn(async move {
                on_all_shards(
                    move |coordinator, _| async move { coordinator.context.look_for_quarantined(table).await },
                )
                .await;
                if is_missing {
                    // The next report says the same, and logs what fails.
                    let _ = Tombstones::report_loss().await;
                }
            });
        }));
    }

    /// Takes over a newer version of the cluster, and says to each table's store what it means. In the same step the
    /// stores get their tablets.
    pub fn take_view(&self, view: Arc<ClusterView>) {
        self.context.set_levels_of_all(&view);
        self.set_view(view);
    }

    /// Takes over a newer version of the cluster. Requests that have begun end with the one they have.
    pub fn set_view(&self, view: Arc<ClusterView>) {
        self.reads.forget_latencies(&view);
        self.hints.forget_own(&view);
        self.context.set_view(view);
    }

    /// Takes over whether a node is alive.
    pub fn set_live(&self, node: NodeNumber, is_live: bool) {
        self.context.set_live(node, is_live);
        self.hints.set_live(node);
    }

    /// Takes over whether a node's log takes writes. For writes, one whose does not counts as down; it is read from
    /// where the others do not suffice.
    pub fn set_takes_writes(&self, node: NodeNumber, takes: bool) {
        self.context.set_takes_writes(node, takes);
        self.hints.set_live(node);
    }

    /// Takes over how full a node's disks are. Of this node the shard learns it too.
    pub fn set_disk_level(&self, node: NodeNumber, level: DiskLevel) {
        self.context.set_disk_level(node, level);
        if level.takes_growth() {
            self.hints.has_room();
        }
    }

    /// Forgets a table's data on this shard, and what waits to be written to it. The shard has the view with the
    /// truncation.
    ///
    /// # Errors
    /// When something cannot be forgotten permanently; it can be tried again.
    pub async fn forget_table(&self, table: TableId) -> Result<(), String> {
        let waits = (&*self.context, &*self.hints, &self.cas.acceptor);
        truncate::forget(waits, table).await
    }
}

/// Runs `work` with the coordinator and the hints of every shard of this node, on all at once, and gives the results in
/// order.
async fn on_all_shards<T, F>(work: impl Fn(Rc<Coordinator>, Option<Rc<Hints>>) -> F + Clone + Send + 'static) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let asked: Vec<_> = (0..runtime::shard_count())
        .map(|shard| {
            let work = work.clone();
            runtime::submit_async_to(ShardId(shard), move || {
                let coordinator = Coordinator::local();
                let hints = coordinator.hints.kept();
                work(coordinator, hints)
            })
        })
        .collect();
    let mut results = Vec::with_capacity(asked.len());
    for result in asked {
        results.push(result.await);
    }
    results
}

fn spawn(job: impl Future<Output = ()> + 'static) {
    let job: Job = Box::pin(job);
    drop(runtime::spawn(job));
}
