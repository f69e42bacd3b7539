//! TRUNCATE: what it removes on one shard, and which nodes it needs.
//!
//! A truncation is a command of the cluster's metadata, so all nodes agree on it and on its place among their other
//! changes. The version of the command is the table's *truncation*. From the moment a node has it:
//!
//! 1. The view that has the truncation is set on every shard. Requests about the table that were routed by an older one
//!    are refused, and no hint is noted for what they did not do. Newer requests wait, and the node answers none alone.
//! 2. Every shard forgets what waits to be written (hints; proposals of conditional statements), and then the data.
//!    Logged batches that were noted by an older view leave out their part of the table when they are finished
//!    (`batchlog.rs`).
//! 3. A file beside the table's data says which truncation is done, durably ([`replica::TruncationMark`]).
//! 4. The table's stores take requests again. The node reports the version as taken over.
//!
//! A crash anywhere before 3 leaves the older mark, so the start does all of it again before the table takes a request.
//! No newer data is lost: the table takes none before 4. A crash after 3 leaves nothing to do.
//!
//! TRUNCATE is answered when every replica of the table has reported the version, pending replicas included. So each
//! replica that a later read may ask, at any level, has forgotten the table or waits. A node that has no replica is not
//! waited for: what it sends with an older view is refused. It then knows whether a replica did its part before the
//! truncation (`flight.rs`), and writes again what no replica did.

use std::collections::BTreeSet;
use std::rc::Rc;

use schema::TableId;
use stdx::planted::{self, Bug};
use topology::{HostId, NodeNumber, WriteTargets};

use crate::Context;
use crate::cas::acceptor::{self, Acceptor};
use crate::handoff::Handoff;

/// The nodes that have replicas of a table: those that a truncation waits for.
///
/// # Errors
/// When one of them is down; the sentence names it.
pub fn replicas_to_truncate(context: &Context, table: TableId) -> Result<Vec<HostId>, String> {
    let view = context.view();
    let Some(route) = view.route(table) else {
        return Err("the table is not in the cluster's map".to_owned());
    };
    let replicas = route
        .map
        .tablets()
        .flat_map(|tablet| WriteTargets::new(&tablet).all().collect::<Vec<_>>());
    let mut nodes: BTreeSet<NodeNumber> = replicas.map(|replica| replica.node).collect();
    // One that is lost does not come back with what it has.
    nodes.retain(|node| {
        let node = view.topology.numbered(*node);
        node.is_some_and(|node| !view.topology.is_lost(node))
    });
    if let Some(dead) = nodes.iter().find(|node| !context.is_live(**node)) {
        return Err(format!(
            "node {} is down, and TRUNCATE needs all replicas of the table. Nothing was removed",
            view.address(*dead)
        ));
    }
    let hosts = nodes.iter().filter_map(|node| view.topology.numbered(*node));
    Ok(hosts.map(|node| node.host_id).collect())
}

/// Forgets a table's data on this shard, and what waits to be written to it. The shard has the view with the
/// truncation.
///
/// # Errors
/// When something cannot be forgotten permanently; it can be tried again.
pub(crate) async fn forget(
    (context, hints, acceptor): (&Context, &Handoff, &Rc<Acceptor>),
    table: TableId,
) -> Result<(), String> {
    let Some(store) = context.shard.store(table) else {
        return Ok(());
    };
    if let Some(hints) = hints.kept() {
        hints.truncate(table).await.map_err(|e| e.to_string())?;
    }
    if !planted::is_planted(Bug::TruncationForgetsNoProposal) {
        let forgotten = acceptor::forget(&context.shard, acceptor, table).await;
        forgotten.map_err(|e| e.to_string())?;
    }
    context.shard.truncate(&store).await
}
