//! Repairs that an operator asks for, as tasks: of this node (`upkeep::repairs`), or of all nodes.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use admin::operator::{RepairedTable, Repairs, Selection};
use query::Engine;
use repair::{IncrementalMode, Mode, Repaired};
use schema::{Table, TableId};
use tasks::{Class, Kind, Module, Spec, Task, Tasks};
use upkeep::repairs::{Outcome, RepairFilters, mode_of, repair_everywhere, repair_requested};

use super::HostId;
use super::operations::{as_task, spec_of, tables_of};

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
    let filters = RepairFilters {
        is_primary: wanted.is_primary,
        range: wanted.range,
        datacenters: wanted.datacenters,
        hosts: wanted.hosts,
    };
    engine.coordinator.context.with_view(|view| filters.check(view))?;
    let tables = tables_of(engine, &wanted.what)?;
    let incremental = mode_of(engine, &tables, wanted.incremental_mode.as_deref())?;
    let mode = if wanted.is_preview { Mode::Preview } else { Mode::Repair };
    let how = (mode, incremental.unwrap_or(IncrementalMode::Incremental));
    let outcomes = repair_requested(engine, &tables, filters, how, task).await;
    told(&tables, outcomes)
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
    if failures.is_empty() {
        Ok(found.into_values().collect())
    } else {
        Err(format!("not everything is repaired: {}", failures.join("; ")))
    }
}

/// Makes every node repair the ranges of these tables of which it is the first replica, and waits until none is left.
/// How many there were.
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
    let repairing = async |task: &Task| {
        let tables = tables_of(engine, &what)?;
        let mode = mode_of(engine, &tables, mode.as_deref())?;
        repair_everywhere(engine, is_live, (&tables, mode), task).await
    };
    as_task(tasks, spec, repairing).await
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
