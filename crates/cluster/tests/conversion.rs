//! Tables go from the token ring to tablets and back, whatever happens to the nodes during that: no node has a replica
//! of what it has not copied.

use crate::support::{SECOND, Sea, host};
use cluster::{Cluster, Command, Conversion, Metadata, OperationKind, Rejected};
use runtime::sim::CrashKind;
use schema::TableId;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use topology::{Boundaries, HostId, NodeState, Replication, TabletMap, ring_map};
use types::Token;
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(0x7ab1e));

/// A cluster with a table on the ring, and one node more that has not been started.
fn with_table(seed: u64, count: usize, copies: usize) -> Sea {
    let mut sea = Sea::new(seed, count + 1);
    (0..count).for_each(|number| sea.start(number));
    sea.expect_normal(0..count);
    sea.make_ring_table(TABLE, copies);
    sea.expect_voters(if count < 5 { 3 } else { 5 });
    sea
}

fn ring_of(metadata: &Metadata) -> TabletMap {
    let keyspace = &metadata.schema.keyspaces["ks"];
    let datacenters = metadata.topology.datacenters();
    let replication = Replication::parse(&keyspace.replication, &datacenters).expect("a replication");
    ring_map(&metadata.topology, &replication).expect("a map")
}

fn is_even(map: &TabletMap) -> bool {
    matches!(map.boundaries(), Boundaries::PowerOfTwo(_)) && map.moving().next().is_none()
}

fn has_tablets(view: &Rc<Cluster>) -> bool {
    view.metadata().tablets.get(&TABLE).is_some_and(|map| is_even(map))
}

fn is_of_ring(view: &Rc<Cluster>) -> bool {
    !view.metadata().tablets.contains_key(&TABLE)
}

/// The present map of the table, whatever kind it has.
fn map_of(metadata: &Metadata) -> TabletMap {
    metadata
        .tablets
        .get(&TABLE)
        .map_or_else(|| ring_of(metadata), |map| (**map).clone())
}

/// The hosts that have a replica of a token, and are read.
fn owners(metadata: &Metadata, token: Token) -> BTreeSet<HostId> {
    let map = map_of(metadata);
    let name = |replica: &topology::Replica| metadata.topology.numbered(replica.node).expect("a node").host_id;
    map.tablet_of(token).read_replicas().iter().map(name).collect()
}

/// Tokens at and after each place where one of the maps is cut.
fn tokens(maps: &[&TabletMap]) -> Vec<Token> {
    let ids = maps
        .iter()
        .flat_map(|map| map.tablets().filter_map(|tablet| map.token_range(tablet.id)));
    ids.flat_map(|(_, last)| [last, Token(last.0.saturating_add(1))])
        .collect()
}

/// Each node that has a replica now, and had none before, has copied it.
fn expect_copied(sea: &Sea, before: &Metadata) {
    let after = sea.cluster(0).metadata();
    for token in tokens(&[&map_of(before), &map_of(&after)]) {
        for gained in owners(&after, token).difference(&owners(before, token)) {
            let number = (0..sea.nodes.len())
                .find(|number| host(*number) == *gained)
                .expect("one of these");
            let copied = sea.nodes[number].seen.copied.borrow();
            let has_token = |copy: &cluster::Copy| {
                let covers = |(after, to): &(Token, Token)| (*after < token || *after == Token::MIN) && *to >= token;
                copy.ranges.iter().any(covers) && !copy.sources.is_empty()
            };
            assert!(copied.iter().any(has_token), "node {number} has not copied {token:?}");
        }
    }
}

/// Waits for something, and looks all the time that no token has fewer replicas that are read than its keyspace wants.
fn expect(sea: &mut Sea, story: &str, copies: usize, holds: impl Fn(&Rc<Cluster>) -> bool) {
    let mut seen = 0;
    sea.expect(story, |views| {
        for view in views {
            let metadata = view.metadata();
            let map = metadata.tablets.get(&TABLE).filter(|_| metadata.index > seen);
            for tablet in map.into_iter().flat_map(|map| map.tablets()) {
                assert!(
                    tablet.read_replicas().len() >= copies,
                    "{tablet:?} has too few replicas"
                );
            }
            seen = seen.max(metadata.index);
        }
        views.iter().all(&holds)
    });
}

#[test]
fn a_table_goes_from_the_ring_to_tablets_and_back() {
    for seed in 0..4 {
        let mut sea = with_table(3000 + seed, 4, 3);
        let before = sea.cluster(0).metadata();
        sea.set_tablets("ks", true);
        expect(&mut sea, "it has tablets", 3, has_tablets);
        expect_copied(&sea, &before);
        let between = sea.cluster(0).metadata();
        sea.set_tablets("ks", false);
        expect(&mut sea, "it is of the ring", 3, is_of_ring);
        expect_copied(&sea, &between);
        let metadata = sea.cluster(1).metadata();
        for token in tokens(&[&map_of(&before), &map_of(&metadata)]) {
            assert_eq!(
                owners(&before, token),
                owners(&metadata, token),
                "the ring is as before"
            );
        }
    }
}

/// Kills each of four nodes at four moments while a table goes one way.
fn goes_on_after_a_kill(first_seed: u64, to_tablets: bool) {
    for seed in 0..16_u64 {
        let mut sea = with_table(first_seed + seed, 4, 2);
        go_before(&mut sea, to_tablets);
        let before = sea.cluster(0).metadata();
        sea.set_tablets("ks", to_tablets);
        sea.sim.run_for(Duration::from_millis(20 + seed / 4 * 150));
        let killed = usize::try_from(seed % 4).expect("four nodes");
        sea.crash(killed, CrashKind::Kill);
        sea.sim.run_for(SECOND);
        sea.restart(killed);
        arrives(&mut sea, to_tablets);
        sea.expect_normal(0..4);
        expect_copied(&sea, &before);
    }
}

/// A table with two copies is where it begins to go to the tablets, or to the ring.
fn go_before(sea: &mut Sea, to_tablets: bool) {
    if !to_tablets {
        sea.set_tablets("ks", true);
        expect(sea, "it has tablets", 2, has_tablets);
    }
}

fn arrives(sea: &mut Sea, to_tablets: bool) {
    if to_tablets {
        expect(sea, "it has tablets", 2, has_tablets)
    } else {
        expect(sea, "it is of the ring", 2, is_of_ring)
    }
}

#[test]
fn the_way_to_tablets_goes_on_after_any_node_was_killed_at_any_moment_of_it() {
    goes_on_after_a_kill(3010, true);
}

#[test]
fn the_way_to_the_ring_goes_on_after_any_node_was_killed_at_any_moment_of_it() {
    goes_on_after_a_kill(3050, false);
}

#[test]
fn a_node_joins_while_a_table_goes_either_way() {
    for seed in 0..8_u64 {
        let to_tablets = seed % 2 == 0;
        let mut sea = with_table(3100 + seed, 3, 2);
        go_before(&mut sea, to_tablets);
        let before = sea.cluster(0).metadata();
        sea.set_tablets("ks", to_tablets);
        sea.sim.run_for(Duration::from_millis(seed / 2 * 50));
        sea.start(3);
        sea.expect_normal(0..4);
        arrives(&mut sea, to_tablets);
        sea.expect("the ring is at rest", |views| {
            views.iter().all(|view| view.metadata().ring.is_none())
        });
        expect_copied(&sea, &before);
    }
}

#[test]
fn a_node_leaves_while_a_table_goes_either_way() {
    for seed in 0..8_u64 {
        let to_tablets = seed % 2 == 0;
        let mut sea = with_table(3120 + seed, 4, 2);
        go_before(&mut sea, to_tablets);
        let before = sea.cluster(0).metadata();
        sea.set_tablets("ks", to_tablets);
        sea.sim.run_for(Duration::from_millis(seed / 2 * 50));
        sea.spawn(3, |cluster| async move { cluster.decommission().await });
        let has_left = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            metadata
                .topology
                .node(host(3))
                .is_none_or(|node| node.state == NodeState::Left)
        };
        sea.expect(&format!("it has left (seed {seed})"), |views| {
            views.iter().take(3).all(has_left)
        });
        sea.expect("it goes on", |views| {
            let holds = if to_tablets { has_tablets } else { is_of_ring };
            views.iter().take(3).all(holds)
        });
        expect_copied(&sea, &before);
    }
}

#[test]
fn a_node_that_is_lost_for_good_is_removed_while_a_table_goes_either_way() {
    for seed in 0..8_u64 {
        let to_tablets = seed % 2 == 0;
        let mut sea = with_table(3240 + seed, 5, 3);
        if !to_tablets {
            sea.set_tablets("ks", true);
            expect(&mut sea, "it has tablets", 3, has_tablets);
        }
        sea.set_tablets("ks", to_tablets);
        sea.sim.run_for(Duration::from_millis(seed / 2 * 60));
        sea.crash(4, CrashKind::PowerLoss);
        sea.sim.run_for(10 * SECOND);
        sea.spawn(1, |cluster| async move { cluster.remove_node(host(4)).await });
        let has_left = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            let node = metadata.topology.node(host(4));
            node.is_none_or(|node| node.state == NodeState::Left)
        };
        sea.expect(&format!("it is gone (seed {seed})"), |views| {
            views.len() == 4 && views.iter().all(has_left)
        });
        let holds = if to_tablets { has_tablets } else { is_of_ring };
        sea.expect(&format!("it goes on (seed {seed})"), |views| views.iter().all(holds));
        let metadata = sea.cluster(0).metadata();
        let lost = metadata.topology.number(host(4));
        for tablet in map_of(&metadata).tablets() {
            assert_eq!(tablet.replicas.len(), 3, "seed {seed}");
            assert!(tablet.replicas.iter().all(|replica| Some(replica.node) != lost));
        }
    }
}

#[test]
fn another_goal_may_be_named_in_the_middle() {
    for seed in 0..6_u64 {
        let mut sea = with_table(3140 + seed, 4, 3);
        let before = sea.cluster(0).metadata();
        sea.set_tablets("ks", true);
        sea.sim.run_for(Duration::from_millis(50 + seed * 60));
        sea.set_tablets("ks", false);
        sea.sim.run_for(Duration::from_millis(50 + seed * 60));
        sea.set_tablets("ks", seed % 2 == 0);
        if seed % 2 == 0 {
            expect(&mut sea, "it has tablets", 3, has_tablets)
        } else {
            expect(&mut sea, "it is of the ring", 3, is_of_ring)
        }
        expect_copied(&sea, &before);
    }
}

#[test]
fn copies_and_kind_change_together() {
    let mut sea = with_table(3160, 4, 3);
    sea.set_tablets("ks", true);
    sea.replicate("ks", 2);
    let has = |copies: usize| {
        move |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            let map = map_of(&metadata);
            metadata.ring.is_none() && map.tablets().all(|tablet| tablet.read_replicas().len() == copies)
        }
    };
    sea.expect("two copies, as tablets", |views| {
        views.iter().all(has_tablets) && views.iter().all(has(2))
    });
    let before = sea.cluster(0).metadata();
    sea.set_tablets("ks", false);
    sea.replicate("ks", 3);
    sea.expect("three copies, on the ring", |views| {
        views.iter().all(is_of_ring) && views.iter().all(has(3))
    });
    expect_copied(&sea, &before);
}

#[test]
fn a_table_does_not_leave_the_ring_while_it_changes_and_operators_see_why() {
    let mut sea = with_table(3170, 3, 2);
    sea.nodes[3].seen.copies_that_fail.set(u32::MAX);
    sea.start(3);
    sea.sim.run_for(20 * SECOND);
    sea.set_tablets("ks", true);
    sea.sim.run_for(10 * SECOND);
    let metadata = sea.cluster(0).metadata();
    assert!(metadata.ring.is_some() && !metadata.tablets.contains_key(&TABLE));
    let begin = Command::Convert {
        table: TABLE,
        step: Conversion::Begin { tablet_count: 4 },
    };
    let refused = metadata
        .apply(metadata.index + 1, &begin)
        .expect_err("the ring changes");
    assert!(matches!(refused, Rejected::Conflict { .. }), "{refused}");
    let live = (0..4).map(host).collect();
    let shown = metadata.operations(host(0), &live).into_iter();
    let shown: Vec<_> = shown
        .filter(|operation| operation.kind == OperationKind::Replication)
        .collect();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].left, Some(1));
    let waits = shown[0].waits.clone().expect("it waits");
    assert!(waits.contains("the token ring"), "{waits}");
    sea.nodes[3].seen.copies_that_fail.set(0);
    sea.expect("it has tablets", |views| views.iter().all(has_tablets));
    let metadata = sea.cluster(0).metadata();
    let shown = metadata.operations(host(0), &live).into_iter();
    assert_eq!(
        shown
            .filter(|operation| operation.kind == OperationKind::Replication)
            .count(),
        0
    );
}

#[test]
fn pieces_wait_for_a_node_that_is_down_and_operators_see_for_which() {
    let mut sea = with_table(3180, 4, 3);
    sea.set_tablets("ks", true);
    expect(&mut sea, "it has tablets", 3, has_tablets);
    sea.crash(3, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    sea.set_tablets("ks", false);
    sea.sim.run_for(20 * SECOND);
    let metadata = sea.cluster(0).metadata();
    assert!(metadata.tablets.contains_key(&TABLE), "node 3 cannot say what it has");
    let live = (0..3).map(host).collect();
    let operations = metadata.operations(host(0), &live);
    let shown = operations
        .iter()
        .find(|operation| operation.kind == OperationKind::Replication);
    let waits = shown.and_then(|operation| operation.waits.clone()).expect("it waits");
    assert!(waits.contains(&host(3).to_string()), "{waits}");
    sea.restart(3);
    expect(&mut sea, "it is of the ring", 3, is_of_ring);
}

#[test]
fn steps_that_were_decided_by_an_older_state_change_nothing() {
    let mut sea = with_table(3200, 4, 3);
    let told = sea.on(0, |cluster| async move { cluster.set_balanced(false).await });
    told.expect("nothing moves for balance");
    sea.set_tablets("ks", true);
    expect(&mut sea, "it has tablets", 3, has_tablets);
    let metadata = sea.cluster(0).metadata();
    let version = metadata.tablets[&TABLE].version();
    let tried = |step| metadata.apply(metadata.index + 1, &Command::Convert { table: TABLE, step });
    for step in [
        Conversion::Begin { tablet_count: 4 },
        Conversion::Align {
            from_version: version - 1,
        },
        Conversion::Cut { from_version: version },
        Conversion::End { from_version: version },
    ] {
        let refused = tried(step).expect_err("it does not fit");
        assert!(matches!(refused, Rejected::Conflict { .. }), "{step:?}: {refused}");
    }
    let unknown = Command::Convert {
        table: TableId(Uuid::from_u128(1)),
        step: Conversion::Begin { tablet_count: 4 },
    };
    assert!(matches!(
        metadata.apply(metadata.index + 1, &unknown),
        Err(Rejected::Invalid { .. })
    ));
    // On the way to the ring, a map that does not say what the ring says is kept.
    sea.set_tablets("ks", false);
    let mut late = (*sea.cluster(0).metadata()).clone();
    late.tablets.insert(TABLE, metadata.tablets[&TABLE].clone());
    assert!(
        !ring_of(&late).says_the_same(&late.tablets[&TABLE]),
        "the test needs another map"
    );
    let end = Command::Convert {
        table: TABLE,
        step: Conversion::End { from_version: version },
    };
    assert!(matches!(
        late.apply(late.index + 1, &end),
        Err(Rejected::Conflict { .. })
    ));
    let cut = Command::Convert {
        table: TABLE,
        step: Conversion::Cut { from_version: version },
    };
    let cut = late.apply(late.index + 1, &cut).expect("it is cut");
    assert!(cut.tablets[&TABLE].says_the_same(&metadata.tablets[&TABLE]));
}

#[test]
fn a_begin_with_an_impossible_count_is_refused() {
    let mut sea = with_table(3210, 3, 2);
    sea.set_tablets("ks", true);
    let metadata = (*sea.cluster(0).metadata()).clone();
    let mut metadata = metadata;
    metadata.tablets.clear();
    for tablet_count in [0, 3, 1 << 23] {
        let begin = Command::Convert {
            table: TABLE,
            step: Conversion::Begin { tablet_count },
        };
        let refused = metadata.apply(metadata.index + 1, &begin).expect_err("no such count");
        assert!(matches!(refused, Rejected::Invalid { .. }), "{refused}");
    }
}

fn take_back(sea: &mut Sea) -> Result<(), cluster::ChangeError> {
    sea.on(1, |cluster| async move {
        cluster
            .abort_operation(OperationKind::Replication, None, Some("ks"))
            .await
    })
}

#[test]
fn a_conversion_that_an_operator_aborts_goes_back() {
    let mut sea = with_table(3060, 4, 2);
    // Nothing said before where its tables are.
    sea.nodes
        .iter()
        .for_each(|node| node.seen.copies_that_fail.set(u32::MAX));
    sea.set_tablets("ks", true);
    sea.expect("it is on its way", |views| views.iter().all(|view| !is_of_ring(view)));
    let why = take_back(&mut sea).expect_err("nobody knows where to").to_string();
    assert!(
        why.contains("did not say before whether its tables have tablets"),
        "{why}"
    );
    sea.nodes.iter().for_each(|node| node.seen.copies_that_fail.set(0));
    sea.set_tablets("ks", false);
    sea.expect("it is of the ring", |views| {
        views
            .iter()
            .all(|view| is_of_ring(view) && view.metadata().altered.is_empty())
    });
    let before = sea.cluster(0).metadata();
    sea.nodes
        .iter()
        .for_each(|node| node.seen.copies_that_fail.set(u32::MAX));
    sea.set_tablets("ks", true);
    sea.expect("it is on its way again", |views| {
        views.iter().all(|view| !is_of_ring(view))
    });
    sea.sim.run_for(2 * SECOND);
    take_back(&mut sea).expect("it is to be of the ring");
    sea.nodes.iter().for_each(|node| node.seen.copies_that_fail.set(0));
    expect(&mut sea, "it is of the ring as before", 2, |view| {
        is_of_ring(view) && view.metadata().schema.keyspaces["ks"].tablets == before.schema.keyspaces["ks"].tablets
    });
    let metadata = sea.cluster(1).metadata();
    for token in tokens(&[&map_of(&before), &map_of(&metadata)]) {
        assert_eq!(owners(&before, token), owners(&metadata, token));
    }
}
