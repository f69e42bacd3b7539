//! The operations of the cluster as tasks of this node, with how far they are and how long they take.
//!
//! The operations in progress follow from the metadata ([`Cluster::operations`]), so each node reports the same ones.
//! Each node keeps a task of its own for each operation: `nodetool tasks` lists it, waits for it and aborts it, at any
//! node. The metadata say what is left. The total and the start time are what this node has seen: after a restart both
//! begin again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::cluster::{Cluster, Metadata, Operation, OperationKind, pause_behind};
use admin::operations::Progress;
use admin::operator::Local;
use runtime::{Instant, Semaphore};
use tasks::{Class, Kind, Module, Origin, Spec, Task, Tasks};
use topology::{HostId, NodeState};
use uuid::Uuid;

/// Between two looks while an operation is in progress.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

macro_rules! kinds {
    ($($name:ident: $text:literal, $is_abortable:literal;)*) => {
        $(const $name: Kind = Kind {
            name: $text,
            module: Module::NodeOps,
            class: Class::Streaming,
            units: "parts",
            is_abortable: $is_abortable,
        };)*
    };
}

kinds! {
    JOIN: "join", true;
    LEAVE: "leave", true;
    REMOVE: "remove", false;
    REPLACE: "replace", false;
    REPLICATION: "replication", true;
    BALANCE: "balance", false;
}

fn kind(kind: OperationKind) -> &'static Kind {
    match kind {
        OperationKind::Join => &JOIN,
        OperationKind::Leave => &LEAVE,
        OperationKind::Remove => &REMOVE,
        OperationKind::Replace => &REPLACE,
        OperationKind::Replication => &REPLICATION,
        OperationKind::Balance => &BALANCE,
    }
}

/// What identifies an operation.
type Name = (OperationKind, Option<HostId>, Option<String>);

/// What a keyspace says of its replication and of tablets.
type KeyspaceOptions = (BTreeMap<String, String>, Option<BTreeMap<String, String>>);

/// Why the task of a change ends that another ALTER KEYSPACE has taken the goal from.
const TAKEN_BACK: &str = "the keyspace was altered back, or an operator took the change back, before it was reached";

/// An operation in progress, as this node has seen it.
struct Seen {
    operation: Operation,
    task: Task,
    begun: Instant,
    meter: Meter,
    /// An abort was passed on.
    is_aborting: bool,
    /// Of a keyspace that is altered: what it wants.
    goal: Option<KeyspaceOptions>,
}

/// How far something is of which only the rest is known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Meter {
    /// The most that was ever left, and what was done before that.
    total: u64,
    done: u64,
}

impl Meter {
    /// Records how many parts are left; None if unknown. New parts enlarge the total. If at least the total is left,
    /// nothing is done of this attempt, and the count restarts.
    fn set_left(&mut self, left: Option<u64>) {
        let Some(left) = left else {
            *self = Self::default();
            return;
        };
        let before = self.total - self.done;
        if left > before && left >= self.total {
            *self = Self { total: left, done: 0 };
        } else if left > before {
            self.total += left - before;
        } else {
            self.done += before - left;
        }
    }

    /// How long the rest takes, by what was done in this time; None before anything was.
    fn remaining(self, elapsed: Duration) -> Option<Duration> {
        let done = u32::try_from(self.done).unwrap_or(u32::MAX);
        let left = u32::try_from(self.total - self.done).unwrap_or(u32::MAX);
        (done > 0).then(|| elapsed.saturating_mul(left) / done)
    }
}

/// Watches the operations in progress. Lives on shard 0.
pub(super) struct Watch {
    cluster: Rc<Cluster>,
    tasks: Arc<Tasks>,
    seen: RefCell<BTreeMap<Name, Seen>>,
    /// The metadata of the last look.
    looked: RefCell<Option<Arc<Metadata>>>,
    turn: Semaphore,
}

impl Watch {
    /// Begins to watch.
    pub(super) fn start(cluster: Rc<Cluster>, tasks: Arc<Tasks>) -> Rc<Self> {
        let watch = Rc::new(Self {
            cluster,
            tasks,
            seen: RefCell::default(),
            looked: RefCell::default(),
            turn: Semaphore::new(1),
        });
        drop(runtime::spawn(watch.clone().run()));
        watch
    }

    /// Spawn this; it never returns.
    async fn run(self: Rc<Self>) {
        loop {
            let changed = self.cluster.members_changed();
            let begun = runtime::now();
            self.look().await;
            if self.seen.borrow().is_empty() {
                runtime::sleep(pause_behind(begun.elapsed(), LOOK_INTERVAL)).await;
                changed.await;
            } else {
                // Looks again without a change: the time that has passed is reported too, and an abort is passed on.
                runtime::sleep(LOOK_INTERVAL).await;
            }
        }
    }

    /// The operations in progress, by the newest metadata of this node.
    pub(super) async fn progress(&self) -> Vec<Progress> {
        let is_copying = self.cluster.ask_ring_copies().await;
        let metadata = self.cluster.metadata();
        let is_seen = self
            .looked
            .borrow()
            .as_ref()
            .is_some_and(|at| Arc::ptr_eq(at, &metadata));
        if is_copying || !is_seen {
            self.look().await;
        }
        self.seen.borrow().values().map(|seen| seen.told(&metadata)).collect()
    }

    /// Updates the tasks from the metadata. Calls wait for each other, so that an older view never overwrites a newer
    /// one.
    async fn look(&self) {
        let _turn = self.turn.acquire(1).await;
        // The goals are read first, so they are at most as new as the operations: a change that is taken back is found
        // at the next look at the latest.
        let wanted = self.cluster.metadata();
        let mut operations = self.cluster.operations().await;
        self.say_what_lacks(&mut operations).await;
        let metadata = self.cluster.metadata();
        *self.looked.borrow_mut() = Some(wanted.clone());
        let mut seen = self.seen.borrow_mut();
        let mut before = std::mem::take(&mut *seen);
        let me = self.cluster.host_id();
        let is_own = |operation: &Operation| operation.host == Some(me);
        for operation in operations {
            let name = (operation.kind, operation.host, operation.keyspace.clone());
            let goal = goal_of(&wanted, &name);
            let mut now = match before.remove(&name) {
                Some(seen) if operation.is_abortable || seen.goal == goal => seen,
                // The way back is an operation of its own.
                Some(seen) => {
                    seen.task.end(&Err::<(), _>(TAKEN_BACK));
                    self.begin(&operation)
                }
                None => self.begin(&operation),
            };
            now.goal = goal;
            let before = now.meter;
            now.meter.set_left(operation.left);
            if now.meter.done < before.done {
                now.begun = runtime::now();
            }
            now.task.set_progress(now.meter.done, now.meter.total);
            if let Some(waits) = operation.waits.as_ref().filter(|_| is_own(&operation))
                && now.operation.waits.as_ref() != Some(waits)
            {
                log::warn!("operation {} of this node waits: {waits}", operation.kind.name());
            }
            now.operation = operation;
            if now.task.is_aborted() && !now.is_aborting {
                now.is_aborting = true;
                self.abort(&now.operation);
            }
            seen.insert(name, now);
        }
        for (name, ended) in before {
            // Of a keyspace that was dropped nothing is left to do.
            let is_reached = goal_of(&metadata, &name).is_none_or(|goal| ended.goal == Some(goal));
            let outcome = outcome(&metadata, &name);
            ended.task.end(&if is_reached {
                outcome
            } else {
                Err(TAKEN_BACK.to_owned())
            });
        }
    }

    /// Says of keyspaces that change their replication what the leader finds lacking, say room on disks, where nothing
    /// else is known that they wait for.
    async fn say_what_lacks(&self, operations: &mut [Operation]) {
        let is_stuck = |operation: &&mut Operation| {
            operation.kind == OperationKind::Replication && operation.waits.is_none() && operation.left > Some(0)
        };
        if !operations.iter_mut().any(|operation| is_stuck(&operation)) {
            return;
        }
        let Ok(report) = self.cluster.balance_report().await else {
            return;
        };
        for operation in operations.iter_mut().filter(is_stuck) {
            let of_table = operation
                .keyspace
                .as_ref()
                .map(|keyspace| format!(" of table {keyspace}."));
            let lack = of_table.and_then(|of| report.lacks.iter().find(|lack| lack.contains(&of)));
            operation.waits = lack.cloned();
        }
    }

    fn begin(&self, operation: &Operation) -> Seen {
        let spec = Spec {
            scope: "cluster",
            keyspace: operation.keyspace.clone().unwrap_or_default(),
            entity: operation.host.map(|host| host.to_string()).unwrap_or_default(),
            ..Spec::of(kind(operation.kind))
        };
        let task = self.tasks.start(spec, &Origin::Operator);
        task.begin();
        Seen {
            operation: Operation {
                waits: None,
                ..operation.clone()
            },
            task,
            begun: runtime::now(),
            meter: Meter::default(),
            is_aborting: false,
            goal: None,
        }
    }

    /// Stops the operation of a task; the error says why it continues. None if the task belongs to no operation, or if
    /// the operation cannot be stopped.
    pub(super) fn stop(&self, task: Uuid) -> Option<Local<'_, Result<(), String>>> {
        let mut seen = self.seen.borrow_mut();
        let mut all = seen.iter_mut();
        let (name, found) = all.find(|(_, seen)| seen.task.id() == task)?;
        if !kind(found.operation.kind).is_abortable {
            return None;
        }
        // Passed on here, and not at the next look.
        found.is_aborting = true;
        let (name, kind, host) = (name.clone(), found.operation.kind, found.operation.host);
        Some(Box::pin(async move {
            let stopped = self.cluster.abort_operation(kind, host, name.2.as_deref()).await;
            if stopped.is_err()
                && let Some(goes_on) = self.seen.borrow_mut().get_mut(&name)
            {
                goes_on.is_aborting = false;
            }
            stopped.map_err(|e| e.to_string())
        }))
    }

    fn abort(&self, operation: &Operation) {
        let (cluster, kind, host) = (self.cluster.clone(), operation.kind, operation.host);
        let keyspace = operation.keyspace.clone();
        drop(runtime::spawn(async move {
            if let Err(error) = cluster.abort_operation(kind, host, keyspace.as_deref()).await {
                log::warn!("operation {} is not aborted: {error}", kind.name());
            }
        }));
    }
}

impl Seen {
    fn told(&self, metadata: &Metadata) -> Progress {
        let (operation, elapsed) = (&self.operation, self.begun.elapsed());
        let address = operation.host.and_then(|host| metadata.topology.node(host));
        let remaining = self.meter.remaining(elapsed).filter(|_| operation.waits.is_none());
        Progress {
            task: self.task.id(),
            kind: operation.kind.name(),
            host_id: operation.host.map(|host| host.0),
            address: address.map(|node| node.internode.ip()),
            keyspace: operation.keyspace.clone(),
            stage: operation.stage.clone(),
            waits: operation.waits.clone(),
            total: self.meter.total,
            done: self.meter.done,
            elapsed,
            remaining,
            is_abortable: operation.is_abortable,
        }
    }
}

/// What the keyspace of an operation wants; None where the operation is of none, or the keyspace is not there.
fn goal_of(metadata: &Metadata, (_, _, keyspace): &Name) -> Option<KeyspaceOptions> {
    let keyspace = metadata.schema.keyspaces.get(keyspace.as_ref()?)?;
    Some((keyspace.replication.clone(), keyspace.tablets.clone()))
}

/// The outcome of an operation that has ended.
fn outcome(metadata: &Metadata, (kind, host, _): &Name) -> Result<(), String> {
    let state = host
        .and_then(|host| metadata.topology.node(host))
        .map(|node| node.state);
    match (kind, state) {
        (OperationKind::Join, Some(NodeState::Left)) => Err("the node was removed before it had joined".to_owned()),
        (OperationKind::Leave, Some(NodeState::Normal)) => Err("an operator had the node stay".to_owned()),
        (OperationKind::Leave, Some(NodeState::Leaving)) => {
            Err("the node was given up, and its copies are rebuilt".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_tells_how_much_is_done_and_how_long_the_rest_takes() {
        let mut meter = Meter::default();
        let mut told = Vec::new();
        // Ten parts, of which some go; then three more come.
        for left in [
            Some(10),
            Some(8),
            Some(5),
            Some(8),
            Some(2),
            Some(0),
            Some(14),
            Some(7),
            None,
        ] {
            meter.set_left(left);
            let remaining = meter.remaining(Duration::from_secs(10)).map(|rest| rest.as_secs());
            told.push((meter.total, meter.done, remaining));
        }
        assert_eq!(
            told,
            [
                (10, 0, None),
                (10, 2, Some(40)),
                (10, 5, Some(10)),
                (13, 5, Some(16)),
                (13, 11, Some(1)),
                (13, 13, Some(0)),
                // A second attempt starts from 0; a node that lost its tokens does not know its parts.
                (14, 0, None),
                (14, 7, Some(10)),
                (0, 0, None)
            ]
        );
    }
}
