//! Repairs that an operator asks this node for: of each table the ranges that it has, each made equal on all its
//! replicas, or on those that are meant.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::ClusterView;
use query::Engine;
use repair::{IncrementalMode, Mode, Repaired};
use replica::TokenRange;
use schema::{Table, TableId};
use tasks::{JobControl, Origin, Task};
use topology::Replica;

use super::part::{Part, Planned, RepairOptions, has_tablets, parts, repair_range};

/// Which ranges of tables are repaired, and with which of their replicas.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RepairFilters {
    /// Only ranges of which this node is the first replica.
    pub is_primary: bool,
    /// Only tokens after the first and up to the second of these.
    pub range: Option<(i64, i64)>,
    /// Only with replicas in these datacenters; none: all.
    pub datacenters: Vec<String>,
    /// Only with replicas on these nodes, by host id or address; none: all.
    pub hosts: Vec<String>,
}

impl RepairFilters {
    /// Refuses datacenters and nodes that the cluster does not have: otherwise a misspelt name would repair nothing,
    /// without an error.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, view: &ClusterView) -> Result<(), String> {
        check_datacenters(view, &self.datacenters)?;
        let is_member = |host: &&String| view.topology.members().any(|node| is_named(node, host));
        match self.hosts.iter().find(|host| !is_member(host)) {
            None => Ok(()),
            Some(host) => Err(format!("node {host} is no member of the cluster")),
        }
    }
}

/// Why a range of a table is not repaired.
type Unrepaired = (TableId, String);

/// How the repair of a range of a table ended, or why it did not begin.
pub type Outcome = (TableId, Result<Repaired, String>);

/// Repairs tables as a part of a task, on each shard one range after another. One outcome for each range, and for each
/// that cannot be repaired.
pub async fn repair_requested(
    engine: &Rc<Engine>,
    tables: &[Arc<Table>],
    filters: RepairFilters,
    (mode, incremental): (Mode, IncrementalMode),
    task: &Task,
) -> Vec<Outcome> {
    let how = RepairOptions {
        mode,
        incremental,
        full_after: None,
        rest: 0,
    };
    let (by_shard, failures) = {
        let view = engine.coordinator.context.view();
        let all = tables.iter().map(|table| (table.id, filters.range));
        parts_of(engine, &view, &filters, all)
    };
    let total: usize = by_shard.values().map(Vec::len).sum();
    task.set_total(total as u64);
    let plan = Rc::new(Plan {
        engine: engine.clone(),
        filters,
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
    outcomes
}

/// What an operator wants, while it is done.
struct Plan {
    engine: Rc<Engine>,
    filters: RepairFilters,
    how: RepairOptions,
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
        let view = self.engine.coordinator.context.view();
        if view.route(table).is_none() {
            return (Vec::new(), vec!["the table was dropped".to_owned()]);
        }
        let filters = RepairFilters {
            is_primary: self.filters.is_primary && !was_here_first,
            ..self.filters.clone()
        };
        let range = [(table, Some((range.after.0, range.to.0)))];
        let (by_shard, failures) = parts_of(&self.engine, &view, &filters, range);
        let mut failures: Vec<String> = failures.into_iter().map(|(_, why)| why).collect();
        if by_shard.is_empty() && failures.is_empty() && self.filters.is_primary {
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
    filters: &RepairFilters,
    ranges: impl IntoIterator<Item = (TableId, Option<(i64, i64)>)>,
) -> (BTreeMap<u16, Vec<Part>>, Vec<Unrepaired>) {
    let is_meant = |replica: &Replica| {
        let node = view.topology.numbered(replica.node);
        let in_datacenter = |name: &String| node.is_some_and(|node| node.location.datacenter == *name);
        let is_host = |host: &String| node.is_some_and(|node| is_named(node, host));
        (filters.datacenters.is_empty() || filters.datacenters.iter().any(in_datacenter))
            && (filters.hosts.is_empty() || filters.hosts.iter().any(is_host))
    };
    let (mut by_shard, mut failures) = (BTreeMap::<u16, Vec<Part>>::new(), Vec::new());
    for (table, range) in ranges {
        let Some(route) = view.route(table) else { continue };
        for part in parts(view, &route.map, table, range, is_meant) {
            if filters.is_primary && !part.is_here_first {
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

/// The mode that an operator names; None: what is possible.
///
/// # Errors
/// A sentence, where a table cannot be repaired in that mode.
pub fn mode_of(engine: &Engine, tables: &[Arc<Table>], name: Option<&str>) -> Result<Option<IncrementalMode>, String> {
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
    Ok(Some(mode))
}

/// Refuses datacenters that the cluster does not have.
///
/// # Errors
/// A sentence.
pub fn check_datacenters(view: &ClusterView, wanted: &[String]) -> Result<(), String> {
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
