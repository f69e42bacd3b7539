//! Repairs that an operator asks for: of each table the ranges that this node has, each made equal on all its replicas.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use admin::operator::{RepairedTable, Repairs, Selection};
use coordinator::ClusterView;
use query::Engine;
use repair::{Mode, Participant, Repaired, Request};
use replica::TokenRange;
use rpc::Rpc;
use runtime::ShardId;
use schema::{Table, TableId};
use tasks::{Class, Kind, Module, Origin, Spec, Task, Tasks};
use topology::{Replica, TabletMap};
use types::Token;

use super::HostId;

/// A repair of tables, as an operator asks for it. It takes no worker: its ranges do.
const REPAIR: Kind = Kind {
    name: "repair",
    module: Module::Repair,
    class: Class::Repair,
    units: "ranges",
    is_abortable: true,
};

/// A range of a table that this node repairs.
#[derive(Clone)]
struct Part {
    table: TableId,
    range: TokenRange,
    others: Vec<Participant>,
}

/// Repairs, and says of each table what differed.
///
/// # Errors
/// A sentence with what was not repaired; the rest was.
pub(super) async fn run(
    engine: &Rc<Engine>,
    tasks: &Arc<Tasks>,
    is_live: impl Fn(HostId) -> bool,
    wanted: Repairs,
) -> Result<Vec<RepairedTable>, String> {
    let spec = Spec {
        scope: "node",
        keyspace: wanted.what.keyspaces.join(","),
        table: wanted.what.tables.join(","),
        ..Spec::of(&REPAIR)
    };
    let task = tasks.start(spec, &Origin::Operator);
    task.begin();
    let done = run_as(engine, is_live, &wanted, &task).await;
    task.end(&done);
    done
}

async fn run_as(
    engine: &Rc<Engine>,
    is_live: impl Fn(HostId) -> bool,
    wanted: &Repairs,
    task: &Task,
) -> Result<Vec<RepairedTable>, String> {
    let view = engine.coordinator.view();
    let tables = tables_of(engine, &wanted.what)?;
    let mut by_shard: BTreeMap<u16, Vec<Part>> = BTreeMap::new();
    let mut failures = Vec::new();
    for table in &tables {
        let Some(route) = view.route(table.id) else { continue };
        for (shard, part) in parts(&view, &route.map, table.id, wanted) {
            let down = part.others.iter().find(|other| !is_live(HostId(other.peer.host_id)));
            match down {
                Some(other) => failures.push(format!(
                    "{}.{}: node {} has a copy and is down",
                    table.keyspace, table.name, other.peer.host_id
                )),
                None => by_shard.entry(shard).or_default().push(part),
            }
        }
    }
    let total: usize = by_shard.values().map(Vec::len).sum();
    task.set_total(total as u64);
    let mode = if wanted.is_preview { Mode::Preview } else { Mode::Repair };
    let running: Vec<_> = by_shard
        .into_iter()
        .map(|(shard, parts)| {
            let origin = task.as_origin();
            let shard = ShardId(u32::from(shard));
            runtime::submit_async_to(shard, move || async move { on_shard(parts, mode, &origin).await })
        })
        .collect();
    let mut found: BTreeMap<TableId, RepairedTable> = BTreeMap::new();
    for on_shard in running {
        for (part, outcome) in on_shard.await {
            task.advance(1);
            let Some(table) = tables.iter().find(|table| table.id == part.table) else {
                continue;
            };
            match outcome {
                Ok(repaired) => add(found.entry(table.id).or_insert_with(|| of(table)), &repaired),
                Err(why) => failures.push(format!("{}.{}: {why}", table.keyspace, table.name)),
            }
        }
    }
    failures.sort_unstable();
    failures.dedup();
    match failures.is_empty() {
        true => Ok(found.into_values().collect()),
        false => Err(format!("not everything is repaired: {}", failures.join("; "))),
    }
}

/// The tables that are meant: of users, and stored on several nodes.
fn tables_of(engine: &Rc<Engine>, what: &Selection) -> Result<Vec<Table>, String> {
    let schema = engine.schema();
    for name in &what.keyspaces {
        let keyspace = schema.keyspaces.get(name);
        let keyspace = keyspace.ok_or_else(|| format!("there is no keyspace {name}"))?;
        if let Some(table) = what.tables.iter().find(|table| !keyspace.tables.contains_key(*table)) {
            return Err(format!("there is no table {name}.{table}"));
        }
    }
    let is_named = |name: &str| what.keyspaces.iter().any(|named| named == name);
    let of_users = |name: &str| system_tables::kind(name).is_none() || is_named(name);
    let keyspaces = schema.keyspaces.values().filter(|keyspace| of_users(&keyspace.name));
    let tables = keyspaces.flat_map(|keyspace| keyspace.tables.values());
    let tables = tables.filter(|table| what.has(&table.keyspace, &table.name));
    Ok(tables.map(|table| Table::clone(table)).collect())
}

/// The ranges of a table that this node repairs, with the shard that does.
fn parts(view: &ClusterView, map: &TabletMap, table: TableId, wanted: &Repairs) -> Vec<(u16, Part)> {
    let is_meant = |replica: &&Replica| {
        let node = view.topology.numbered(replica.node);
        let in_datacenter = |name: &String| node.is_some_and(|node| node.location.datacenter == *name);
        let is_host = |host: &String| {
            node.is_some_and(|node| node.host_id.to_string() == *host || node.internode.ip().to_string() == *host)
        };
        (wanted.datacenters.is_empty() || wanted.datacenters.iter().any(in_datacenter))
            && (wanted.hosts.is_empty() || wanted.hosts.iter().any(is_host))
    };
    let mut parts: Vec<(u16, Part)> = Vec::new();
    for tablet in map.tablets() {
        let replicas = tablet.read_replicas();
        let Some(mine) = replicas.iter().find(|replica| replica.node == view.me) else {
            continue;
        };
        let is_first = replicas.first().is_some_and(|first| first.node == view.me);
        let Some(range) = map.token_range(tablet.id).and_then(|range| within(range, wanted.range)) else {
            continue;
        };
        let others = replicas
            .iter()
            .filter(|replica| replica.node != view.me)
            .filter(is_meant);
        let others: Vec<Participant> = others
            .filter_map(|replica| {
                let peer = view.peer(replica.node)?;
                let shard = u32::from(replica.shard);
                Some(Participant { peer, shard })
            })
            .collect();
        if others.is_empty() || (wanted.is_primary && !is_first) {
            continue;
        }
        match parts.last_mut() {
            // Ranges of the token ring with the same owners are one.
            Some((shard, last)) if *shard == mine.shard && last.range.to == range.after && last.others == others => {
                last.range.to = range.to;
            }
            _ => parts.push((mine.shard, Part { table, range, others })),
        }
    }
    parts
}

/// What of a range is in another one.
fn within((after, to): (Token, Token), bounds: Option<(i64, i64)>) -> Option<TokenRange> {
    let (first, last) = bounds.map_or((after, to), |(first, last)| (Token(first), Token(last)));
    let range = TokenRange {
        after: after.max(first),
        to: to.min(last),
    };
    (range.after < range.to).then_some(range)
}

/// Repairs ranges one after another on the shard that has them.
async fn on_shard(parts: Vec<Part>, mode: Mode, origin: &Origin) -> Vec<(Part, Result<Repaired, String>)> {
    let mut done = Vec::with_capacity(parts.len());
    for part in parts {
        let outcome = one(&part, mode, origin).await;
        done.push((part, outcome));
    }
    done
}

async fn one(part: &Part, mode: Mode, origin: &Origin) -> Result<Repaired, String> {
    let engine = Engine::local();
    let rpc = runtime::local::<Rpc>();
    let rpc = rpc.ok_or_else(|| "this node has no connections to others".to_owned())?;
    let store = engine.shard.store(part.table);
    let store = store.ok_or_else(|| "the table was dropped".to_owned())?;
    let seconds = runtime::wall_clock_us() / 1_000_000;
    let request = Request {
        table: part.table,
        range: part.range,
        others: part.others.clone(),
        now: u32::try_from(seconds).unwrap_or(0),
        mode,
    };
    let task = repair::kinds::repair_range(&engine.shard, &store, part.range, origin);
    let repaired = repair::repair(&rpc, &engine.shard, &request, &task).await;
    task.end(&repaired);
    repaired.map_err(|e| e.to_string())
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
}
