//! Rebuilding: this node gets the data of its replicas again from other replicas, by the streams that moves use. What
//! it has stays, and is merged.
//!
//! Each range is copied from as many replicas, the nearest first, as a write at QUORUM may have missed: what was
//! acknowledged at QUORUM is here afterwards, whatever this node has lost.

use std::rc::Rc;
use std::sync::Arc;

use cluster::Copy;
use coordinator::{ClusterView, Route};
use query::Engine;
use schema::{Table, TableId};
use tasks::{Origin, Task};
use topology::{HostId, Replica};

use super::copy;

/// How many copies are made at once.
const COPIES_AT_ONCE: usize = 8;

/// What a rebuild has copied.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rebuilt {
    /// Tables of which something was copied.
    pub tables: u64,
    /// Ranges of them.
    pub ranges: u64,
    /// Bytes of sstables.
    pub bytes: u64,
}

/// Refuses a datacenter that has no data to copy.
///
/// # Errors
/// A sentence.
pub fn check_datacenter(view: &ClusterView, name: &str) -> Result<(), String> {
    if view.topology.datacenters_of_data().contains(name) {
        Ok(())
    } else {
        Err(format!("there is no datacenter {name} with data"))
    }
}

/// Rebuilds tables as a part of a task, from replicas in any datacenter or in one, and says how much was copied.
///
/// # Errors
/// A sentence with what was not copied; the rest was.
pub async fn rebuild(
    engine: &Rc<Engine>,
    tables: Vec<Arc<Table>>,
    datacenter: Option<&str>,
    is_live: impl Fn(HostId) -> bool,
    task: &Task,
) -> Result<Rebuilt, String> {
    let view = engine.coordinator.context.view();
    let mut parts = Vec::new();
    let mut rebuilt = Rebuilt::default();
    for table in tables {
        let Some(route) = view.route(table.id) else { continue };
        let of_table = parts_of(&view, route, table.id, datacenter, &is_live);
        let of_table =
            of_table.map_err(|why| format!("{}.{}: {why}. Nothing was copied", table.keyspace, table.name))?;
        rebuilt.tables += u64::from(!of_table.is_empty());
        parts.extend(of_table.into_iter().map(|part| (table.clone(), part)));
    }
    drop(view);
    let all: usize = parts.iter().map(|(_, part)| part.ranges.len()).sum();
    task.set_total(all as u64);
    for together in parts.chunks(COPIES_AT_ONCE) {
        let running: Vec<_> = together
            .iter()
            .map(|(_, part)| {
                let (engine, part, origin) = (engine.clone(), part.clone(), task.as_origin());
                runtime::spawn(async move { copy_again(&engine, part, origin).await })
            })
            .collect();
        let mut failure = None;
        for ((table, _), copied) in together.iter().zip(running) {
            match copied.await {
                Ok((ranges, bytes)) => {
                    rebuilt.ranges += ranges;
                    rebuilt.bytes += bytes;
                    task.advance(ranges);
                }
                Err(why) => failure = Some(format!("{}.{}: {why}", table.keyspace, table.name)),
            }
        }
        if let Some(why) = failure {
            let done = rebuilt.ranges;
            return Err(format!("{done} of {all} ranges were copied, and then {why}"));
        }
    }
    Ok(rebuilt)
}

/// Makes a copy, in however many pieces: of how many ranges, and how many bytes.
async fn copy_again(engine: &Rc<Engine>, mut part: Copy, origin: Origin) -> Result<(u64, u64), String> {
    let (ranges, mut bytes) = (part.ranges.len() as u64, 0);
    while !part.ranges.is_empty() {
        let (copied, of_piece) = copy::copy_again(engine, part.clone(), origin.clone()).await?;
        part.ranges.drain(..copied.clamp(1, part.ranges.len()));
        bytes += of_piece;
    }
    Ok((ranges, bytes))
}

/// The ranges of a table that this node is a replica of, with the replicas that they are copied from. Ranges that no
/// other node has are left out.
fn parts_of(
    view: &ClusterView,
    route: &Route,
    table: TableId,
    datacenter: Option<&str>,
    is_live: &impl Fn(HostId) -> bool,
) -> Result<Vec<Copy>, String> {
    let map = &route.map;
    let mut parts: Vec<(Vec<Replica>, Copy)> = Vec::new();
    // Names the attempt for the sources.
    let version = runtime::random_u64();
    for tablet in map.tablets() {
        let replicas = tablet.read_replicas();
        let Some(mine) = replicas.iter().find(|replica| replica.node == view.me) else {
            continue;
        };
        let Some((after, to)) = map.token_range(tablet.id) else {
            continue;
        };
        let sources = sources_of(view, replicas, datacenter, is_live)?;
        if sources.is_empty() {
            continue;
        }
        let is_alike = |(same, part): &&mut (Vec<Replica>, Copy)| part.shard == mine.shard && *same == sources;
        match parts.iter_mut().find(is_alike) {
            // Ranges of the token ring with the same sources are one copy, tablets of their own one each.
            Some((_, part)) if !route.has_own_tablets => match part.ranges.last_mut() {
                Some(last) if last.1 == after => last.1 = to,
                _ => part.ranges.push((after, to)),
            },
            _ => {
                let source = |replica: &Replica| Some((view.peer(replica.node)?, replica.shard));
                let copy = Copy {
                    table,
                    ranges: vec![(after, to)],
                    shard: mine.shard,
                    is_replica: true,
                    sources: sources.iter().filter_map(source).collect(),
                    version,
                };
                parts.push((sources, copy));
            }
        }
    }
    Ok(parts.into_iter().map(|(_, copy)| copy).collect())
}

/// The replicas that a range is copied from: of all, or of a datacenter, as many as a quorum of them may lack, this
/// node's own copy not counted.
fn sources_of(
    view: &ClusterView,
    replicas: &[Replica],
    datacenter: Option<&str>,
    is_live: &impl Fn(HostId) -> bool,
) -> Result<Vec<Replica>, String> {
    let place = datacenter.map(|name| view.locality.datacenter_number(name));
    let is_meant = |replica: &&Replica| place.is_none_or(|place| view.locality.datacenter(replica.node) == place);
    let meant: Vec<Replica> = replicas.iter().filter(is_meant).copied().collect();
    let others = meant.iter().filter(|replica| replica.node != view.me).copied();
    let mut others: Vec<Replica> = others.collect();
    // If no other node, in any datacenter, has a copy, there is no source.
    if replicas.iter().all(|replica| replica.node == view.me) {
        return Ok(Vec::new());
    }
    if let (true, Some(name)) = (others.is_empty(), datacenter) {
        return Err(format!("no other replica of a range is in datacenter {name}"));
    }
    let all = others.len();
    let quorum = meant.len() / 2 + 1;
    let needed = (meant.len() - quorum + 1).min(all);
    others.retain(|replica| {
        let node = view.topology.numbered(replica.node);
        node.is_some_and(|node| !view.topology.is_lost(node) && is_live(node.host_id))
    });
    if others.len() < needed {
        let live = others.len();
        return Err(format!(
            "a range is copied from {needed} of the {all} other replicas, and {live} of them answer"
        ));
    }
    others.sort_by_key(|replica| view.locality.proximity(replica.node));
    others.truncate(needed);
    // In one order, so that neighbours with the same sources are found.
    others.sort_by_key(|replica| (view.locality.proximity(replica.node), replica.node, replica.shard));
    Ok(others)
}
