//! Repairs that an operator asks for: of each table the ranges that this node has, each made equal on all its replicas.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::operator::{RepairedTable, Repairs, Selection};
use coordinator::ClusterView;
use query::Engine;
use repair::{IncrementalMode, Left, Mode, Repaired, Wanted};
use replica::TokenRange;
use rpc::{Peer, Rpc};
use schema::{Table, TableId};
use tasks::{Class, JobControl, Kind, Module, Origin, Spec, Task, Tasks};
use topology::{NodeState, Replica};

use super::HostId;
use super::operations::{as_task, spec_of, tables_of};
use crate::continuous_repair;
use crate::repairs::{How, Part, Planned, has_tablets, knows_marks, parts, repair_range};

/// A repair of tables, as an operator asks for it. It takes no worker: its ranges do.
const REPAIR: Kind = Kind {
    name: "repair",
    module: Module::Repair,
    class: Class::Repair,
    units: "ranges",
    is_abortable: true,
};

/// A repair of tables by all nodes.
const REPAIR_CLUSTER: Kind = Kind {
    name: "repair cluster",
    ..REPAIR
};

/// How often nodes are asked what is left.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// How long nothing may be done before a failure counts as lasting.
const STANDSTILL_MAX: Duration = Duration::from_mins(2);

/// Repairs, and says of each table what differed.
///
/// # Errors
/// A sentence with what was not repaired; the rest was.
pub(super) async fn run(
    engine: &Rc<Engine>,
    tasks: &Arc<Tasks>,
    wanted: Repairs,
) -> Result<Vec<RepairedTable>, String> {
    let spec = Spec {
        entity: wanted.incremental_mode.clone().unwrap_or_default(),
        ..spec_of(&REPAIR, "node", &wanted.what)
    };
    as_task(tasks, spec, async |task| run_as(engine, wanted, task).await).await
}

async fn run_as(engine: &Rc<Engine>, wanted: Repairs, task: &Task) -> Result<Vec<RepairedTable>, String> {
    engine.coordinator.with_view(|view| check_filters(view, &wanted))?;
    let tables = tables_of(engine, &wanted.what)?;
    let incremental = mode_of(engine, &tables, wanted.incremental_mode.as_deref())?;
    let how = How {
        mode: if wanted.is_preview { Mode::Preview } else { Mode::Repair },
        incremental: incremental.unwrap_or(IncrementalMode::Incremental),
        full_after: None,
        rest: 0,
    };
    let (by_shard, failures) = {
        let view = engine.coordinator.view();
        let all = tables.iter().map(|table| (table.id, wanted.range));
        parts_of(engine, &view, &wanted, all)
    };
    let total: usize = by_shard.values().map(Vec::len).sum();
    task.set_total(total as u64);
    let plan = Rc::new(Plan {
        engine: engine.clone(),
        wanted,
        how,
        origin: task.as_origin(),
        control: task.control(),
    });
    let one_by_one = |parts: Vec<Part>| {
        let plan = plan.clone();
        runtime::spawn(async move { plan.repair_all(parts).await })
    };
    let running: Vec<_> = by_shard.into_values().map(one_by_one).collect();
    let mut outcomes: Vec<Outcome> = failures.into_iter().map(|(id, why)| (id, Err(why))).collect();
    for on_shard in running {
        outcomes.extend(on_shard.await);
    }
    told(&tables, outcomes)
}

/// Refuses datacenters and nodes that the cluster does not have: otherwise a misspelt name would repair nothing,
/// without an error.
fn check_filters(view: &ClusterView, wanted: &Repairs) -> Result<(), String> {
    check_datacenters(view, &wanted.datacenters)?;
    let is_member = |host: &&String| view.topology.members().any(|node| is_named(node, host));
    match wanted.hosts.iter().find(|host| !is_member(host)) {
        None => Ok(()),
        Some(host) => Err(format!("node {host} is no member of the cluster")),
    }
}

/// Refuses datacenters that the cluster does not have.
pub(super) fn check_datacenters(view: &ClusterView, wanted: &[String]) -> Result<(), String> {
    let there = view.topology.datacenters();
    let is_there = |name: &&String| there.contains(name.as_str());
    match wanted.iter().find(|name| !is_there(name)) {
        None => Ok(()),
        Some(name) => Err(format!("the cluster has no datacenter '{name}'")),
    }
}

/// Whether an operator means this node: by its host id or its address.
fn is_named(node: &topology::Node, host: &str) -> bool {
    node.host_id.to_string() == host || node.internode.ip().to_string() == host
}

/// What is reported of each table.
///
/// # Errors
/// A sentence with what is not repaired.
fn told(tables: &[Arc<Table>], outcomes: Vec<Outcome>) -> Result<Vec<RepairedTable>, String> {
    let mut found: BTreeMap<TableId, RepairedTable> = BTreeMap::new();
    let mut failures = Vec::new();
    for (id, outcome) in outcomes {
        let Some(table) = tables.iter().find(|table| table.id == id) else {
            continue;
        };
        match outcome {
            Ok(repaired) => add(found.entry(table.id).or_insert_with(|| of(table)), &repaired),
            Err(why) => failures.push(format!("{}.{}: {why}", table.keyspace, table.name)),
        }
    }
    failures.sort_unstable();
    failures.dedup();
    match failures.is_empty() {
        true => Ok(found.into_values().collect()),
        false => Err(format!("not everything is repaired: {}", failures.join("; "))),
    }
}

/// Has every node repair the ranges of these tables of which it is the first replica, and waits until none is left. How
/// many there were.
///
/// # Errors
/// A sentence with what is not repaired: a node is down, or a range fails again and again.
pub(super) async fn run_everywhere(
    engine: &Rc<Engine>,
    tasks: &Arc<Tasks>,
    is_live: impl Fn(HostId) -> bool,
    (what, mode): (Selection, Option<String>),
) -> Result<u64, String> {
    let spec = Spec {
        entity: mode.clone().unwrap_or_default(),
        ..spec_of(&REPAIR_CLUSTER, "cluster", &what)
    };
    let repairing = async |task: &Task| everywhere(engine, is_live, (&what, mode.as_deref()), task).await;
    as_task(tasks, spec, repairing).await
}

async fn everywhere(
    engine: &Rc<Engine>,
    is_live: impl Fn(HostId) -> bool,
    (what, mode): (&Selection, Option<&str>),
    task: &Task,
) -> Result<u64, String> {
    let tables = tables_of(engine, what)?;
    let mode = mode_of(engine, &tables, mode)?.filter(|_| knows_marks(engine));
    let seconds = runtime::wall_clock_us() / 1_000_000;
    let wanted = Wanted {
        since: u32::try_from(seconds).unwrap_or(0),
        tables: tables.iter().map(|table| table.id).collect(),
        mode,
        selected: None,
    };
    let rpc = runtime::local::<Rpc>().ok_or("this node has no connections to others")?;
    let control = task.control();
    let (mut total, mut told) = (0, 0);
    let (mut left_before, mut changed_at) = (u64::MAX, runtime::now());
    loop {
        if control.is_aborted() {
            return Err("aborted; nodes go on with the ranges that they have begun".to_owned());
        }
        let left = left_everywhere(engine, &rpc, &is_live, &wanted).await?;
        total = total.max(left.ranges);
        task.set_total(total);
        let done = total - left.ranges;
        task.advance(done.saturating_sub(told));
        told = told.max(done);
        if left.ranges == 0 {
            return Ok(total);
        }
        if left.ranges != left_before {
            (left_before, changed_at) = (left.ranges, runtime::now());
        }
        let waits_for_ring = || {
            let is_changing = engine.coordinator.with_view(|view| view.topology.has_ring_change());
            is_changing.then_some("ranges of the token ring are repaired when the change of its owners has ended")
        };
        match left.failure.is_empty() {
            true => task.set_waits(waits_for_ring().unwrap_or_default()),
            false => task.set_waits(&format!(
                "the last repair of a range failed, and is tried again: {}",
                left.failure
            )),
        }
        let stands_still = runtime::now().saturating_duration_since(changed_at) >= STANDSTILL_MAX;
        if stands_still && !left.failure.is_empty() {
            return Err(format!("{} ranges are not repaired: {}", left.ranges, left.failure));
        }
        runtime::sleep(LOOK_PERIOD).await;
    }
}

/// What is left on all nodes.
pub(super) async fn left_everywhere(
    engine: &Rc<Engine>,
    rpc: &Rc<Rpc>,
    is_live: impl Fn(HostId) -> bool,
    wanted: &Wanted,
) -> Result<Left, String> {
    let mut all = continuous_repair::want(wanted.clone()).await;
    // Nodes that are not meant need not be up.
    let is_meant = |host: HostId| {
        let hosts = wanted.selected.as_ref().map(|selected| &selected.hosts);
        hosts.is_none_or(|hosts| hosts.is_empty() || hosts.contains(&host.0))
    };
    let peers: Vec<(HostId, Option<Peer>)> = engine.coordinator.with_view(|view| {
        let members = view.topology.numbered_nodes();
        let others = members.filter(|(number, node)| *number != view.me && node.state != NodeState::Left);
        others
            .filter(|(_, node)| node.loss.is_none() && node.state != NodeState::Joining && is_meant(node.host_id))
            .map(|(number, node)| (node.host_id, view.peer(number)))
            .collect()
    });
    for (host, peer) in peers {
        let peer = peer.filter(|_| is_live(host));
        let peer = peer.ok_or_else(|| format!("node {} is down: what it has copies of is not repaired", host.0))?;
        // One that is late is asked again.
        match repair::want(rpc, &peer, wanted).await {
            Ok(left) => {
                all.ranges += left.ranges;
                if all.failure.is_empty() {
                    all.failure = left.failure;
                }
            }
            Err(why) => {
                all.ranges += 1;
                all.failure = format!("node {}: {why}", host.0);
            }
        }
    }
    Ok(all)
}

/// Why a range of a table is not repaired.
type Unrepaired = (TableId, String);

/// How the repair of a range of a table ended, or why it did not begin.
type Outcome = (TableId, Result<Repaired, String>);

/// What an operator wants, while it is done.
struct Plan {
    engine: Rc<Engine>,
    wanted: Repairs,
    how: How,
    origin: Origin,
    control: JobControl,
}

impl Plan {
    /// Repairs ranges one after another, each with the replicas that it has when its turn comes.
    async fn repair_all(&self, parts: Vec<Part>) -> Vec<Outcome> {
        let mut done = Vec::with_capacity(parts.len());
        for planned in parts {
            let table = planned.table;
            let plan = |range| self.parts_now(table, range, planned.is_here_first);
            let repaired = repair_range(planned.range, self.how, &self.origin, plan).await;
            done.extend(repaired.into_iter().map(|repaired| (table, repaired)));
            self.control.advance(1);
        }
        done
    }

    /// The parts that a range has now, and why some cannot be repaired. `was_here_first`: no other node repairs it,
    /// where nodes repair only what they are the first replica of.
    fn parts_now(&self, table: TableId, range: TokenRange, was_here_first: bool) -> Planned {
        // The view is not held while repairs run: the next version of the cluster waits for it.
        let view = self.engine.coordinator.view();
        if view.route(table).is_none() {
            return (Vec::new(), vec!["the table was dropped".to_owned()]);
        }
        let wanted = Repairs {
            is_primary: self.wanted.is_primary && !was_here_first,
            ..self.wanted.clone()
        };
        let range = [(table, Some((range.after.0, range.to.0)))];
        let (by_shard, failures) = parts_of(&self.engine, &view, &wanted, range);
        let mut failures: Vec<String> = failures.into_iter().map(|(_, why)| why).collect();
        if by_shard.is_empty() && failures.is_empty() && self.wanted.is_primary {
            failures.push("a range went to other nodes before its turn came: repair again".to_owned());
        }
        (by_shard.into_values().flatten().collect(), failures)
    }
}

/// The parts of these ranges of tables that are meant, by the shard that repairs them; where a replica cannot be asked,
/// a sentence that says so instead.
fn parts_of(
    engine: &Engine,
    view: &ClusterView,
    wanted: &Repairs,
    ranges: impl IntoIterator<Item = (TableId, Option<(i64, i64)>)>,
) -> (BTreeMap<u16, Vec<Part>>, Vec<Unrepaired>) {
    let is_meant = |replica: &Replica| {
        let node = view.topology.numbered(replica.node);
        let in_datacenter = |name: &String| node.is_some_and(|node| node.location.datacenter == *name);
        let is_host = |host: &String| node.is_some_and(|node| is_named(node, host));
        (wanted.datacenters.is_empty() || wanted.datacenters.iter().any(in_datacenter))
            && (wanted.hosts.is_empty() || wanted.hosts.iter().any(is_host))
    };
    let (mut by_shard, mut failures) = (BTreeMap::<u16, Vec<Part>>::new(), Vec::new());
    for (table, range) in ranges {
        let Some(route) = view.route(table) else { continue };
        for part in parts(view, &route.map, table, range, is_meant) {
            if wanted.is_primary && !part.is_here_first {
                continue;
            }
            match part.obstacle(engine) {
                Some(why) => failures.push((table, why)),
                None => by_shard.entry(part.shard).or_default().push(part),
            }
        }
    }
    (by_shard, failures)
}

fn of(table: &Table) -> RepairedTable {
    RepairedTable {
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
        ..RepairedTable::default()
    }
}

fn add(sum: &mut RepairedTable, repaired: &Repaired) {
    sum.ranges += 1;
    sum.rows += repaired.rows;
    sum.differing += repaired.differed.iter().map(|differed| differed.rows).sum::<u64>();
    sum.sent_bytes += repaired.sent_bytes;
    sum.received_bytes += repaired.received_bytes;
    sum.read_bytes += repaired.read_bytes;
    sum.skipped_bytes += repaired.skipped_bytes;
    sum.incremental_ranges += u64::from(repaired.is_incremental);
}

/// The mode that an operator names; None: what is possible.
///
/// # Errors
/// A sentence, where a table cannot be repaired in that mode.
pub(super) fn mode_of(
    engine: &Engine,
    tables: &[Arc<Table>],
    name: Option<&str>,
) -> Result<Option<IncrementalMode>, String> {
    let Some(name) = name else { return Ok(None) };
    let unknown = || format!("expected incremental mode 'incremental', 'full' or 'disabled', got '{name}'");
    let mode = IncrementalMode::parse(name).ok_or_else(unknown)?;
    if mode != IncrementalMode::Incremental {
        return Ok(Some(mode));
    }
    if let Some(table) = tables.iter().find(|table| !has_tablets(engine, table.id)) {
        return Err(format!(
            "{}.{} is on the token ring, where repairs cannot be incremental; use mode 'full' or 'disabled', or a keyspace with tablets",
            table.keyspace, table.name
        ));
    }
    if !knows_marks(engine) {
        return Err("not all nodes are of a release that repairs incrementally; use mode 'disabled'".to_owned());
    }
    Ok(Some(mode))
}
