//! Repairs of tablets of one table, as ScyllaDB's `POST /storage_service/tablets/repair` asks for them: any node takes
//! the request and has those repair that have the tablets.

use std::rc::Rc;
use std::sync::Arc;

use ::cluster::Cluster;
use admin::operator::{Selection, TabletRepair};
use query::Engine;
use repair::{RepairRequest, Selected};
use tasks::{Class, Kind, Module, Origin, Spec, Tasks};
use upkeep::repairs::{check_datacenters, has_tablets, mode_of, repair_selected};
use uuid::Uuid;

use super::operations::tables_of;

/// It takes no worker: its ranges do.
const REPAIR_TABLETS: Kind = Kind {
    name: "repair tablets",
    module: Module::Repair,
    class: Class::Repair,
    units: "ranges",
    is_abortable: true,
};

/// Begins a repair of tablets as a task. The task's id, when it has begun, or when it has ended if that is awaited.
///
/// # Errors
/// A sentence: nothing was begun, or, if the end is awaited, what is not repaired.
pub(super) async fn start(
    engine: &Rc<Engine>,
    tasks: &Arc<Tasks>,
    cluster: Rc<Cluster>,
    asked: TabletRepair,
) -> Result<Uuid, String> {
    let wanted = wanted(engine, &asked)?;
    let spec = Spec {
        scope: "table",
        keyspace: asked.keyspace.clone(),
        table: asked.table.clone(),
        entity: asked.incremental_mode.clone().unwrap_or_default(),
        ..Spec::of(&REPAIR_TABLETS)
    };
    let task = tasks.start(spec, &Origin::Operator);
    task.begin();
    let (id, engine) = (task.id(), Rc::clone(engine));
    let running = runtime::spawn(async move {
        let done = repair_selected(&engine, |host| cluster.is_live(host), wanted, &task).await;
        task.end(&done);
        done
    });
    if asked.is_awaited {
        running.await.map(|()| id)
    } else {
        drop(running);
        Ok(id)
    }
}

/// What all nodes are asked for.
fn wanted(engine: &Rc<Engine>, asked: &TabletRepair) -> Result<RepairRequest, String> {
    let selection = Selection {
        keyspaces: vec![asked.keyspace.clone()],
        tables: vec![asked.table.clone()],
    };
    let tables = tables_of(engine, &selection)?;
    let [table] = &tables[..] else {
        return Err(format!("{}.{} is no table of users", asked.keyspace, asked.table));
    };
    if !has_tablets(engine, table.id) {
        return Err(format!(
            "{}.{} has no tablets: its keyspace is on the token ring; use nodetool repair",
            asked.keyspace, asked.table
        ));
    }
    let view = engine.coordinator.context.view();
    let members = || view.topology.members();
    if let Some(host) = asked
        .hosts
        .iter()
        .find(|host| members().all(|node| node.host_id.0 != **host))
    {
        return Err(format!("hosts_filter: node {host} is no member of the cluster"));
    }
    check_datacenters(&view, &asked.datacenters).map_err(|why| format!("dcs_filter: {why}"))?;
    let is_meant = |node: &&topology::Node| {
        (asked.hosts.is_empty() || asked.hosts.contains(&node.host_id.0))
            && (asked.datacenters.is_empty() || asked.datacenters.contains(&node.location.datacenter))
    };
    let hosts: Vec<Uuid> = if asked.hosts.is_empty() && asked.datacenters.is_empty() {
        Vec::new()
    } else {
        members().filter(is_meant).map(|node| node.host_id.0).collect()
    };
    if hosts.is_empty() && !(asked.hosts.is_empty() && asked.datacenters.is_empty()) {
        return Err("no node is in both hosts_filter and dcs_filter".to_owned());
    }
    if asked.tokens.len().max(hosts.len()) > repair::SELECTED_MAX {
        return Err(format!("at most {} tokens and hosts", repair::SELECTED_MAX));
    }
    let mode = mode_of(engine, &tables, asked.incremental_mode.as_deref())?;
    Ok(RepairRequest {
        since: u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0),
        tables: vec![table.id],
        mode,
        selected: Some(Selected {
            id: u128::from(runtime::random_u64()) << 64 | u128::from(runtime::random_u64()),
            tokens: asked.tokens.clone(),
            hosts,
            is_over: false,
        }),
    })
}
