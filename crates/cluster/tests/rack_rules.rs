//! `rf_rack_valid_keyspaces`: nothing makes a keyspace with tablets unfit for the racks, neither another replication
//! nor a node that joins or leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{SECOND, Sea, host};
use cluster::{ChangeError, Command, Metadata, RACK_OPTION, Rejected, SchemaChange};
use runtime::sim::CrashKind;
use schema::{Keyspace, Schema};
use topology::{NodeState, TopologyCommand};
use uuid::Uuid;

/// The schema with a keyspace of so many copies in the only datacenter.
fn with_keyspace(schema: &Schema, name: &str, copies: &str, has_tablets: bool) -> Schema {
    let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
    let replication = [("class", class), ("datacenter1", copies)];
    let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let keyspace = Keyspace {
        name: name.to_owned(),
        replication: replication.map(text).into(),
        durable_writes: true,
        tablets: Some(BTreeMap::from([("enabled".to_owned(), has_tablets.to_string())])),
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: schema
            .keyspaces
            .get(name)
            .map(|former| former.tables.clone())
            .unwrap_or_default(),
    };
    let mut next = schema.clone();
    next.keyspaces.insert(name.to_owned(), Arc::new(keyspace));
    next.version = Uuid::from_u128(next.version.as_u128() + 1);
    next
}

fn replicate(sea: &mut Sea, name: &'static str, copies: &'static str, has_tablets: bool) -> Result<(), ChangeError> {
    sea.on(0, move |cluster| async move {
        let now = cluster.metadata().schema.clone();
        let next = with_keyspace(&now, name, copies, has_tablets);
        cluster.propose_schema(now.version, Arc::new(next)).await
    })
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T, ChangeError>, words: &str) {
    match result {
        Err(ChangeError::Rejected(why)) => assert!(why.contains(RACK_OPTION) && why.contains(words), "{why}"),
        other => panic!("expected a refusal with {words:?}: {other:?}"),
    }
}

/// Nodes 0 to 2 in a rack each; node 3 in the first of these, node 4 in a fourth one.
fn racks(seed: u64) -> Sea {
    let mut sea = Sea::new(seed, 5);
    for (number, node) in sea.nodes.iter().enumerate() {
        let mut config = node.config.borrow_mut();
        config.rack_rules = true;
        config.location.datacenter = "datacenter1".to_owned();
        config.location.rack = format!("rack{}", [0, 1, 2, 0, 3][number]);
    }
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea
}

#[test]
fn a_keyspace_has_no_copy_one_or_one_in_each_rack() {
    let mut sea = racks(1);
    is_refused(
        replicate(&mut sea, "two", "2", true),
        "2 copies in datacenter datacenter1, with 3 racks",
    );
    is_refused(replicate(&mut sea, "four", "4", true), "4 copies");
    for (name, copies) in [("one", "1"), ("three", "3"), ("listed", "['rack0', 'rack2']")] {
        assert_eq!(replicate(&mut sea, name, copies, true), Ok(()), "{copies}");
    }
    is_refused(replicate(&mut sea, "elsewhere", "['rack0', 'rack7']", true), "rack7");
    assert_eq!(replicate(&mut sea, "ring", "2", false), Ok(()), "it has no tablets");
    is_refused(replicate(&mut sea, "ring", "2", true), "Keyspace ring");
    is_refused(replicate(&mut sea, "three", "2", true), "Keyspace three");
    assert_eq!(replicate(&mut sea, "three", "1", true), Ok(()));
}

#[test]
fn a_node_that_would_bring_another_rack_does_not_join_and_the_last_one_of_a_rack_does_not_leave() {
    let mut sea = racks(2);
    assert_eq!(replicate(&mut sea, "three", "3", true), Ok(()));
    sea.start(4);
    let refusal = sea.refusal(4).to_string();
    assert!(
        refusal.contains(RACK_OPTION) && refusal.contains("4 racks"),
        "{refusal}"
    );
    sea.start(3);
    sea.expect_normal(0..4);
    let left = sea.on(1, |cluster| async move { cluster.decommission().await });
    is_refused(left, "2 racks");
    sea.crash(2, CrashKind::Kill);
    sea.sim.run_for(60 * SECOND);
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(2)).await });
    is_refused(removed, "2 racks");
    // Rack 0 has another node.
    let left = sea.on(3, |cluster| async move { cluster.decommission().await });
    assert_eq!(left, Ok(()));
    // With one copy the rack may go.
    assert_eq!(replicate(&mut sea, "three", "1", true), Ok(()));
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(2)).await });
    assert_eq!(removed, Ok(()));
}

#[test]
fn a_zero_token_node_adds_no_rack() {
    let mut sea = racks(3);
    assert_eq!(replicate(&mut sea, "three", "3", true), Ok(()));
    sea.nodes[4].config.borrow_mut().joins_ring = false;
    sea.start(4);
    sea.expect("it is a member", |views| {
        let state =
            |view: &std::rc::Rc<cluster::Cluster>| view.metadata().topology.node(host(4)).map(|node| node.state);
        views.iter().all(|view| state(view) == Some(NodeState::Normal))
    });
    assert_eq!(replicate(&mut sea, "other", "3", true), Ok(()));
}

/// A proposed command is checked where it is applied: after a node that joined in the meantime.
#[test]
fn the_rule_holds_at_the_place_in_the_log() {
    let mut sea = racks(4);
    assert_eq!(replicate(&mut sea, "one", "1", true), Ok(()));
    sea.start(3);
    sea.expect_normal(0..4);
    let metadata = sea.cluster(0).metadata();
    let next = with_keyspace(&metadata.schema, "three", "3", true);
    let plain = Command::Schema(SchemaChange::between(&metadata.schema, &next));
    let checked = Command::RackValid(Box::new(plain.clone()));
    assert!(metadata.apply(100, &checked).is_ok());
    // The command is what it was when it comes back from its bytes.
    assert_eq!(
        Command::decode(&checked.encode(), &record::Known::everything()),
        Ok(checked.clone())
    );
    let fourth = |metadata: &Metadata| {
        let mut node = metadata.topology.node(host(3)).expect("it is a member").clone();
        node.host_id = host(9);
        node.state = NodeState::Joining;
        node.internode.set_port(7009);
        node.native.set_port(9049);
        node.tokens.clear();
        node.location.rack = "rack9".to_owned();
        TopologyCommand::AddNode(Box::new(node))
    };
    let after = metadata
        .apply(100, &Command::Topology(fourth(&metadata)))
        .expect("it may come");
    let refused = after.apply(101, &checked);
    assert!(
        matches!(&refused, Err(Rejected::Invalid { why }) if why.contains("4 racks")),
        "{refused:?}"
    );
    // A node without the option proposes what it likes, and a keyspace that is unfit already hinders no command.
    let unfit = after.apply(101, &plain).expect("nobody asked");
    assert_eq!(unfit.rack_violations().len(), 1);
    let more = with_keyspace(&unfit.schema, "one", "0", true);
    let other = Command::RackValid(Box::new(Command::Schema(SchemaChange::between(&unfit.schema, &more))));
    assert!(unfit.apply(102, &other).is_ok());
}
