//! Repairs that all nodes of the cluster do at an operator's request: one node asks all others for it, again and again,
//! until they have nothing left.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use query::Engine;
use repair::{IncrementalMode, Left, RepairRequest, Selected};
use rpc::{Peer, Rpc};
use schema::Table;
use tasks::Task;
use topology::{HostId, NodeState};

use super::continuous::want;

/// How often nodes are asked what is left.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// How long nothing may be done before a failure counts as lasting.
const STANDSTILL_MAX: Duration = Duration::from_mins(2);

/// Makes every node repair the ranges of these tables of which it is the first replica, as a part of a task, and waits
/// until none is left. How many there were.
///
/// # Errors
/// A sentence with what is not repaired: a node is down, or a range fails again and again.
pub async fn repair_everywhere(
    engine: &Rc<Engine>,
    is_live: impl Fn(HostId) -> bool,
    (tables, mode): (&[Arc<Table>], Option<IncrementalMode>),
    task: &Task,
) -> Result<u64, String> {
    let seconds = runtime::wall_clock_us() / 1_000_000;
    let wanted = RepairRequest {
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
            return Err("aborted: each node finishes the ranges that it has begun to repair".to_owned());
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
            let is_changing = engine
                .coordinator
                .context
                .with_view(|view| view.topology.has_ring_change());
            is_changing.then_some("ranges of the token ring are repaired when the change of its owners has ended")
        };
        if left.failure.is_empty() {
            task.set_waits(waits_for_ring().unwrap_or_default())
        } else {
            task.set_waits(&format!(
                "the last repair of a range failed, and is tried again: {}",
                left.failure
            ))
        }
        let stands_still = runtime::now().saturating_duration_since(changed_at) >= STANDSTILL_MAX;
        if stands_still && !left.failure.is_empty() {
            return Err(format!("{} ranges are not repaired: {}", left.ranges, left.failure));
        }
        runtime::sleep(LOOK_PERIOD).await;
    }
}

/// Repairs the tablets that are selected, as a part of a task: asks all nodes for it until nothing is left.
///
/// # Errors
/// A sentence with what is not repaired.
pub async fn repair_selected(
    engine: &Rc<Engine>,
    is_live: impl Fn(HostId) -> bool,
    wanted: RepairRequest,
    task: &Task,
) -> Result<(), String> {
    let done = ask_until_done(engine, &is_live, &wanted, task).await;
    if done.is_err() {
        // A node that does not receive this ends the repair by itself once it is no longer asked for it.
        let over = wanted.selected.map(|selected| Selected {
            is_over: true,
            ..selected
        });
        let over = RepairRequest {
            selected: over,
            ..wanted
        };
        if let Some(rpc) = runtime::local::<Rpc>() {
            let _ = left_everywhere(engine, &rpc, &is_live, &over).await;
        }
    }
    done
}

async fn ask_until_done(
    engine: &Rc<Engine>,
    is_live: &impl Fn(HostId) -> bool,
    wanted: &RepairRequest,
    task: &Task,
) -> Result<(), String> {
    let rpc = runtime::local::<Rpc>().ok_or("this node has no connections to others")?;
    let control = task.control();
    let (mut total, mut told) = (0, 0);
    loop {
        if control.is_aborted() {
            return Err("aborted: each node stops after the range that it repairs now".to_owned());
        }
        let left = left_everywhere(engine, &rpc, is_live, wanted).await?;
        total = total.max(left.ranges);
        task.set_total(total);
        let done = total - left.ranges;
        task.advance(done.saturating_sub(told));
        told = told.max(done);
        match (left.ranges, left.failure.is_empty()) {
            (0, true) => return Ok(()),
            (0, false) => return Err(format!("not everything is repaired: {}", left.failure)),
            _ => runtime::sleep(LOOK_PERIOD).await,
        }
    }
}

/// What is left on all nodes.
async fn left_everywhere(
    engine: &Rc<Engine>,
    rpc: &Rc<Rpc>,
    is_live: impl Fn(HostId) -> bool,
    wanted: &RepairRequest,
) -> Result<Left, String> {
    let mut all = want(wanted.clone()).await;
    // Nodes that are not meant need not be up.
    let is_meant = |host: HostId| {
        let hosts = wanted.selected.as_ref().map(|selected| &selected.hosts);
        hosts.is_none_or(|hosts| hosts.is_empty() || hosts.contains(&host.0))
    };
    let peers: Vec<(HostId, Option<Peer>)> = engine.coordinator.context.with_view(|view| {
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
