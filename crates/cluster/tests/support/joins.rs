//! A node joins a ring that is written to.

use super::{Dice, SECOND, Sea, Seen, host};
use cluster::Cluster;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use topology::NodeState;

/// Rows of a writer.
const ROWS: u64 = 8;

/// Writes rows to all nodes that have tokens, by what the coordinator knows; a row takes its time.
async fn write_rows(cluster: Rc<Cluster>, seen: Vec<Rc<Seen>>, own: usize, tag: u64) {
    for row in 0..ROWS {
        runtime::sleep(Duration::from_millis(runtime::random_u64() % 400)).await;
        let metadata = cluster.metadata();
        seen[own].in_flight.set(seen[own].in_flight.get() + 1);
        runtime::sleep(Duration::from_millis(runtime::random_u64() % 300)).await;
        for (number, seen) in seen.iter().enumerate() {
            let node = metadata.topology.node(host(number));
            if node.is_some_and(|node| !node.tokens.is_empty()) {
                seen.rows.borrow_mut().insert(row * 10 + tag);
            }
        }
        seen[own].in_flight.set(seen[own].in_flight.get() - 1);
    }
}

/// A writer on each node that is in, whose rows have tags from this one on.
fn begin_to_write(sea: &mut Sea, first_tag: u64, writers: &mut Vec<Rc<RefCell<Option<()>>>>) {
    let seen: Vec<_> = sea.nodes.iter().map(|node| node.seen.clone()).collect();
    for (number, tag) in (0..seen.len()).zip(first_tag..) {
        if seen[number].cluster.borrow().is_some() {
            let seen = seen.clone();
            writers.push(sea.spawn(number, move |cluster| write_rows(cluster, seen, number, tag)));
        }
    }
}

/// Nodes join while all of them write, with any delays between them. The error says which of them owns rows that it
/// does not have.
pub fn join_meets_writes(seed: u64) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut sea = Sea::new(seed, 3);
    let seen: Vec<_> = sea.nodes.iter().map(|node| node.seen.clone()).collect();
    sea.start(0);
    sea.expect_normal(0..1);
    // Each node is to have each row.
    sea.make_ring_table(schema::TableId(uuid::Uuid::from_u128(7)), 3);
    sea.sim.run_for(Duration::from_millis(dice.below(4000)));
    sea.start(1);
    let mut writers = Vec::new();
    let ids: Vec<_> = sea.nodes.iter().map(|node| node.id).collect();
    for from in &ids {
        for to in &ids {
            sea.sim
                .set_delay(*from, *to, Duration::from_millis(dice.below(4) * dice.below(150)));
        }
    }
    if dice.below(3) > 0 {
        sea.sim.run_for(Duration::from_millis(dice.below(3000)));
    }
    begin_to_write(&mut sea, 0, &mut writers);
    sea.start(2);
    sea.sim.run_for(Duration::from_millis(dice.below(8000)));
    begin_to_write(&mut sea, 5, &mut writers);
    sea.sim.run_for(60 * SECOND);
    if !writers.iter().all(|writer| writer.borrow().is_some()) {
        return Err(format!("seed {seed}: writes do not end"));
    }
    let written: BTreeSet<u64> = seen.iter().flat_map(|seen| seen.rows.borrow().clone()).collect();
    let metadata = sea.cluster(0).metadata();
    for (number, seen) in seen.iter().enumerate() {
        let Some(node) = metadata.topology.node(host(number)) else {
            return Err(format!("seed {seed}: node {number} is not in"));
        };
        let is_owner = node.state == NodeState::Normal && !node.tokens.is_empty();
        if !is_owner {
            return Err(format!("seed {seed}: node {number} has no place"));
        }
        if *seen.rows.borrow() != written {
            return Err(format!("seed {seed}: node {number} owns rows that it does not have"));
        }
    }
    Ok(())
}
