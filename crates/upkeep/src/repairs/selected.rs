//! Repairs of some tablets, or with some replicas, that an operator asks a node of the cluster for.
//!
//! The node that is asked sends the request to all nodes (`everywhere.rs`), again and again, and each shard says how
//! many ranges it has left. A shard repairs a range when its node is the first of the replicas that are meant. What a
//! shard has begun it knows by the id of the request, in memory: a node that restarts begins again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use coordinator::ClusterView;
use query::Engine;
use repair::{IncrementalMode, Left, Mode, RepairRequest, Selected};
use replica::TokenRange;
use runtime::{Group, Instant};
use schema::TableId;
use tasks::Origin;
use topology::Replica;

use super::part::{Part, Planned, RepairOptions, parts, repair_range};

/// How long a request is remembered after a node last asked for it. Then it ends by itself.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// One request on one shard.
struct Job {
    left: Cell<u64>,
    failure: RefCell<String>,
    is_over: Cell<bool>,
    asked_at: Cell<Instant>,
}

/// The requests that a shard knows, by their ids.
#[derive(Default)]
struct Jobs(RefCell<BTreeMap<u128, Rc<Job>>>);

impl Jobs {
    fn local() -> Rc<Self> {
        runtime::local().unwrap_or_else(|| {
            let jobs = Rc::new(Self::default());
            runtime::set_local(Rc::clone(&jobs));
            jobs
        })
    }
}

/// Begins what is requested of this shard, if it has not. Returns what is left of it.
pub(super) fn want_here(engine: &Rc<Engine>, view: &ClusterView, wanted: &RepairRequest, selected: &Selected) -> Left {
    let (jobs, now) = (Jobs::local(), runtime::now());
    let mut jobs = jobs.0.borrow_mut();
    jobs.retain(|_, job| {
        let is_asked_for = now.saturating_duration_since(job.asked_at.get()) < FORGET_AFTER;
        job.is_over.set(job.is_over.get() || !is_asked_for);
        is_asked_for
    });
    if selected.is_over {
        if let Some(job) = jobs.get(&selected.id) {
            job.is_over.set(true);
        }
        return Left::default();
    }
    let job = jobs
        .entry(selected.id)
        .or_insert_with(|| begin(engine, view, wanted, selected));
    job.asked_at.set(now);
    Left {
        ranges: job.left.get(),
        failure: job.failure.borrow().clone(),
    }
}

fn begin(engine: &Rc<Engine>, view: &ClusterView, wanted: &RepairRequest, selected: &Selected) -> Rc<Job> {
    let shard = engine.coordinator.context.shard.id().0;
    let own: Vec<Part> = wanted
        .tables
        .iter()
        .flat_map(|table| own_parts(view, *table, selected, shard))
        .collect();
    let job = Rc::new(Job {
        left: Cell::new(own.len() as u64),
        failure: RefCell::default(),
        is_over: Cell::new(false),
        asked_at: Cell::new(runtime::now()),
    });
    let how = RepairOptions {
        mode: Mode::Repair,
        incremental: wanted.mode.unwrap_or(IncrementalMode::Incremental),
        full_after: None,
        rest: 0,
    };
    if !own.is_empty() {
        let (engine, job, selected) = (Rc::clone(engine), Rc::clone(&job), selected.clone());
        drop(runtime::spawn_in(Group::BACKGROUND, async move {
            run(&engine, &job, &selected, own, how).await
        }));
    }
    job
}

/// Repairs ranges one after another, each with the replicas that it has when its turn comes.
async fn run(engine: &Engine, job: &Job, selected: &Selected, parts: Vec<Part>, how: RepairOptions) {
    for planned in parts {
        if job.is_over.get() {
            return;
        }
        let plan = |range| parts_now(engine, planned.table, range, selected);
        for repaired in repair_range(planned.range, how, &Origin::Node, plan).await {
            if let Err(why) = repaired {
                *job.failure.borrow_mut() = why;
            }
        }
        job.left.set(job.left.get().saturating_sub(1));
    }
}

/// The parts that a selected range has now. This node repairs them wherever it has a replica that is meant: no other
/// node does.
fn parts_now(engine: &Engine, table: TableId, range: TokenRange, selected: &Selected) -> Planned {
    // The view is not held while repairs run: the next version of the cluster waits for it.
    let view = engine.coordinator.context.view();
    if view.route(table).is_none() {
        return (Vec::new(), vec!["the table was dropped".to_owned()]);
    }
    let is_here_meant =
        selected.hosts.is_empty() || selected.hosts.contains(&engine.coordinator.context.shard.host_id());
    let found = selected_parts(&view, table, Some((range.after.0, range.to.0)), selected);
    if found.is_empty() || !is_here_meant {
        let why = "a range went to other nodes before its turn came: repair again";
        return (Vec::new(), vec![why.to_owned()]);
    }
    let (mut now, mut failures) = (Vec::new(), Vec::new());
    for part in found {
        match part.obstacle(engine) {
            Some(why) => failures.push(why),
            None => now.push(part),
        }
    }
    (now, failures)
}

/// The selected ranges of a table that a shard of this node repairs.
fn own_parts(view: &ClusterView, table: TableId, selected: &Selected, shard: u32) -> Vec<Part> {
    let Some(route) = view.route(table) else {
        return Vec::new();
    };
    let is_own = |part: &Part| {
        let tablet = route.map.tablet_of(part.range.to);
        let first = tablet
            .read_replicas()
            .iter()
            .find(|replica| is_meant(view, selected, replica));
        u32::from(part.shard) == shard && first.is_some_and(|first| first.node == view.me)
    };
    let mut parts = selected_parts(view, table, None, selected);
    parts.retain(is_own);
    parts
}

/// The selected ranges of a table of which this node has a replica.
fn selected_parts(view: &ClusterView, table: TableId, bounds: Option<(i64, i64)>, selected: &Selected) -> Vec<Part> {
    let Some(route) = view.route(table) else {
        return Vec::new();
    };
    let is_selected = |part: &Part| {
        let has = |token: &i64| part.range.after.0 < *token && *token <= part.range.to.0;
        selected.tokens.is_empty() || selected.tokens.iter().any(has)
    };
    let mut parts = parts(view, &route.map, table, bounds, |replica| {
        is_meant(view, selected, replica)
    });
    parts.retain(is_selected);
    parts
}

fn is_meant(view: &ClusterView, selected: &Selected, replica: &Replica) -> bool {
    let node = view.topology.numbered(replica.node);
    selected.hosts.is_empty() || node.is_some_and(|node| selected.hosts.contains(&node.host_id.0))
}
