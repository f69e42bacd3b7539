//! How a scan is spread over the shards of a cluster.

use std::collections::BTreeMap;

use crate::support::{Cluster, Shape};
use coordinator::{CoordinatorError, Spread};
use topology::{Consistency, NodeNumber, Replica, Replication};
use types::Token;

const WHOLE: (Token, Token) = (Token(i64::MIN), Token(i64::MAX));

fn spread(cluster: &Cluster, range: (Token, Token), level: Consistency) -> Result<Spread, CoordinatorError> {
    let coordinator = &cluster.local(0).coordinator;
    let spread = coordinator
        .near
        .spread(&coordinator.context.view(), cluster.table.id, range, level);
    spread.map(|found| found.expect("the table has replicas"))
}

/// The tokens that each shard reads first, in parts of all.
#[track_caller]
fn loads(spread: &Spread, (after, to): (Token, Token)) -> BTreeMap<Replica, f64> {
    let mut at = after;
    let mut loads = BTreeMap::new();
    for share in &spread.shares {
        assert_eq!(share.after, at, "the shares leave no gap");
        assert!(share.to > share.after, "{share:?} has no token");
        at = share.to;
        let width = i128::from(share.to.0) - i128::from(share.after.0);
        let part = width as f64 / (i128::from(to.0) - i128::from(after.0)) as f64;
        *loads.entry(share.readers[0]).or_insert(0.0) += part;
    }
    assert_eq!(at, to, "the shares go to the end");
    loads
}

#[test]
fn every_live_shard_gets_about_as_much_and_dead_ones_nothing() {
    for (factor, shards) in [(1, 2), (2, 2), (3, 1), (3, 2)] {
        let shape = Shape {
            shards,
            replication: Replication::Simple { factor },
            ..Shape::default()
        };
        let mut cluster = Cluster::new(1, shape);
        let all = loads(&spread(&cluster, WHOLE, Consistency::One).expect("all live"), WHOLE);
        let fair = 1.0 / all.len() as f64;
        if factor == 3 {
            assert_eq!(all.len(), 3 * shards as usize, "every shard has tokens: {all:?}");
            let is_fair = all.values().all(|part| (fair / 2.0..fair * 2.0).contains(part));
            assert!(is_fair, "RF {factor}, {shards} shards: {all:?}");
        }
        cluster.set_live(2, false);
        if factor == 1 {
            let none = spread(&cluster, WHOLE, Consistency::One);
            assert!(matches!(none, Err(CoordinatorError::Unavailable(_))), "{none:?}");
            continue;
        }
        let rest = spread(&cluster, WHOLE, Consistency::One).expect("each token has a replica that lives");
        let dead = cluster.topology.numbered_nodes().nth(2).map(|(number, _)| number);
        let is_dead = |node: NodeNumber| Some(node) == dead;
        assert!(rest.shares.iter().flat_map(|s| &s.readers).all(|r| !is_dead(r.node)));
        if factor == 3 {
            assert_eq!(loads(&rest, WHOLE).len(), 2 * shards as usize);
        }
        let all = spread(&cluster, WHOLE, Consistency::All);
        assert!(matches!(all, Err(CoordinatorError::Unavailable(_))), "{all:?}");
    }
}

#[test]
fn a_range_of_tokens_is_cut_as_fairly_and_one_token_is_one_share() {
    let cluster = Cluster::new(1, Shape::default());
    for range in [
        (Token(-1000), Token(1000)),
        (Token(i64::MIN), Token(-5)),
        (Token(7), Token(8)),
    ] {
        let spread = spread(&cluster, range, Consistency::Quorum).expect("all live");
        assert_eq!(spread.block_for, 2);
        let loads = loads(&spread, range);
        let width = i128::from(range.1.0) - i128::from(range.0.0);
        assert_eq!(loads.len(), if width == 1 { 1 } else { 3 }, "{range:?}: {loads:?}");
    }
}

#[test]
fn shards_of_this_datacenter_read_what_is_in_both() {
    let factors = BTreeMap::from([("north".to_owned(), 2.into()), ("south".to_owned(), 2.into())]);
    let shape = Shape {
        datacenters: vec!["north", "south", "north", "south"],
        replication: Replication::NetworkTopology(factors),
        ..Shape::default()
    };
    let mut cluster = Cluster::new(1, shape);
    let numbers: Vec<NodeNumber> = cluster.topology.numbered_nodes().map(|(number, _)| number).collect();
    let readers = |cluster: &Cluster| -> Vec<NodeNumber> {
        let spread = spread(cluster, WHOLE, Consistency::Quorum).expect("three of four live");
        spread
            .shares
            .iter()
            .flat_map(|s| s.readers.iter().map(|r| r.node))
            .collect()
    };
    assert!(readers(&cluster).iter().all(|n| [numbers[0], numbers[2]].contains(n)));
    cluster.set_live(2, false);
    assert!(
        readers(&cluster).iter().all(|n| *n == numbers[0]),
        "one of this datacenter lives"
    );
}
