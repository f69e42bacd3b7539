//! Metadata as a value: what commands make of it, and what bytes make of both.

use cluster::{Command, Metadata, Rejected, SchemaChange, TabletCounts, TabletsChange};
use proptest::prelude::*;
use record::Known;
use schema::{Keyspace, Schema, Table, TableId, TableOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use topology::{
    Boundaries, HostId, Location, Node, NodeState, Replica, ReplicaList, TabletChange, TabletEdit, TabletId, TabletMap,
    Topology, TopologyCommand,
};
use types::Token;
use uuid::Uuid;

fn node(number: u128) -> Node {
    let address = SocketAddr::from(([10, 0, 0, u8::try_from(number).expect("few nodes")], 7000));
    Node {
        host_id: HostId(Uuid::from_u128(number)),
        internode: address,
        native: address,
        native_shard_aware_port: None,
        location: Location {
            datacenter: "dc".to_owned(),
            rack: "rack".to_owned(),
        },
        shards: 2,
        tokens: vec![Token(i64::try_from(number).expect("few nodes"))],
        state: if number == 1 {
            NodeState::Normal
        } else {
            NodeState::Joining
        },
        features: BTreeSet::new(),
        release: "1".to_owned(),
        loss: None,
    }
}

fn table(number: u128) -> TableId {
    TableId(Uuid::from_u128(0x7ab1e000 + number))
}

fn keyspace(name: &str, tables: &[u128]) -> Arc<Keyspace> {
    let tables = tables.iter().map(|number| {
        let table_name = format!("t{number}");
        let table = Table {
            keyspace: name.to_owned(),
            name: table_name.clone(),
            id: table(*number),
            columns: Vec::new(),
            dropped: Vec::new(),
            next_column_id: 0,
            options: TableOptions::default(),
            compact: None,
            row_ttl: None,
            indexes: Vec::new(),
            next_index_id: 0,
            layout: Arc::default(),
            clustering_order: Arc::default(),
        };
        (table_name, Arc::new(table))
    });
    Arc::new(Keyspace {
        name: name.to_owned(),
        replication: BTreeMap::new(),
        durable_writes: true,
        tablets: None,
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: tables.collect(),
    })
}

fn schema(version: u128, keyspaces: &[Arc<Keyspace>]) -> Schema {
    Schema {
        version: Uuid::from_u128(version),
        keyspaces: keyspaces.iter().map(|k| (k.name.clone(), k.clone())).collect(),
    }
}

fn map(version: u64) -> Arc<TabletMap> {
    let replica = |number| Replica {
        node: topology::NodeNumber(number),
        shard: 0,
    };
    let replicas: Vec<ReplicaList> = (0..4).map(|_| [replica(0)].into_iter().collect()).collect();
    Arc::new(TabletMap::new(version, Boundaries::PowerOfTwo(2), &replicas).expect("four tablets"))
}

fn start() -> Metadata {
    let mut topology = Topology::new("sea", Uuid::from_u128(9));
    topology
        .apply(&TopologyCommand::AddNode(Box::new(node(1))))
        .expect("the first node");
    let schema = schema(1, &[keyspace("system", &[])]);
    Metadata::new(Arc::new(schema), topology)
}

fn schema_command(base: &Schema, next: &Schema, tablets: &[(u128, u64)]) -> Command {
    Command::Schema(SchemaChange {
        tablets: tablets
            .iter()
            .map(|(number, version)| (table(*number), map(*version)))
            .collect(),
        ..SchemaChange::between(base, next)
    })
}

/// Applies a command as the log does: from its bytes, and with the value going through its bytes too.
fn apply(metadata: &Metadata, index: u64, command: &Command) -> (Metadata, Option<Rejected>) {
    let bytes = command.encode();
    let again = Command::decode(&bytes, &Known::everything()).expect("what was encoded");
    assert_eq!(&again, command, "a command changes by its bytes");
    let next = metadata.step(index, &bytes, metadata.apply(index, &again));
    let bytes = next.encode();
    assert_eq!(
        Metadata::decode(&bytes, &Known::everything()).expect("what was encoded"),
        next,
        "metadata changes by its bytes"
    );
    let rejected = next.rejected.get(&index).cloned();
    (next, rejected)
}

#[test]
fn of_two_schema_changes_from_one_version_the_second_is_a_conflict() {
    let metadata = start();
    let one = schema(2, &[keyspace("system", &[]), keyspace("one", &[])]);
    let two = schema(3, &[keyspace("system", &[]), keyspace("two", &[])]);
    let (metadata, rejected) = apply(&metadata, 5, &schema_command(&start().schema, &one, &[]));
    assert_eq!(rejected, None);
    assert_eq!(*metadata.schema, one);
    let (after, rejected) = apply(&metadata, 6, &schema_command(&start().schema, &two, &[]));
    assert!(matches!(rejected, Some(Rejected::Conflict { .. })), "{rejected:?}");
    assert_eq!(
        (&after.schema, &after.topology, after.index),
        (&metadata.schema, &metadata.topology, 6)
    );
    let (after, rejected) = apply(&after, 7, &schema_command(&one, &two, &[]));
    assert_eq!(
        (rejected, &*after.schema),
        (None, &two),
        "a keyspace that is not in the next schema is dropped"
    );
}

#[test]
fn tables_that_did_not_change_are_shared() {
    let one = schema(2, &[keyspace("ks", &[1])]);
    let two = schema(3, &[keyspace("ks", &[1, 2])]);
    let (before, _) = apply(&start(), 5, &schema_command(&start().schema, &one, &[]));
    let (after, _) = apply(&before, 6, &schema_command(&one, &two, &[]));
    let of = |metadata: &Metadata| metadata.schema.table("ks", "t1").expect("it is there").clone();
    assert!(
        Arc::ptr_eq(&of(&before), &of(&after)),
        "an unchanged table is another after a change beside it"
    );
}

#[test]
fn tablets_come_and_go_with_their_tables_and_change_in_parts() {
    let one = schema(2, &[keyspace("ks", &[1])]);
    let (metadata, rejected) = apply(&start(), 5, &schema_command(&start().schema, &one, &[(1, 1)]));
    assert_eq!(rejected, None);
    assert_eq!(metadata.tablets.keys().copied().collect::<Vec<_>>(), [table(1)]);
    let part = |from_version| Command::Tablets {
        table: table(1),
        change: TabletsChange::Part(TabletChange {
            from_version,
            version: from_version + 1,
            edits: vec![TabletEdit {
                tablet: TabletId(2),
                replicas: [Replica {
                    node: topology::NodeNumber(0),
                    shard: 1,
                }]
                .into_iter()
                .collect(),
                transition: None,
            }],
        }),
    };
    let (metadata, rejected) = apply(&metadata, 6, &part(1));
    assert_eq!((rejected, metadata.tablets[&table(1)].version()), (None, 2));
    let (metadata, rejected) = apply(&metadata, 7, &part(1));
    assert!(
        matches!(rejected, Some(Rejected::Conflict { .. })),
        "a change of an old map: {rejected:?}"
    );
    let whole = |number| Command::Tablets {
        table: table(number),
        change: TabletsChange::Whole(map(9)),
    };
    let (metadata, rejected) = apply(&metadata, 8, &whole(1));
    assert_eq!((rejected, metadata.tablets[&table(1)].version()), (None, 9));
    let (metadata, rejected) = apply(&metadata, 9, &whole(2));
    assert!(
        matches!(rejected, Some(Rejected::Invalid { .. })),
        "tablets without a table: {rejected:?}"
    );
    let remove = Command::RemoveTablets { table: table(2) };
    let (metadata, rejected) = apply(&metadata, 10, &remove);
    assert!(rejected.is_some(), "what is not there cannot be removed");
    let none = schema(4, &[keyspace("ks", &[])]);
    let (metadata, rejected) = apply(&metadata, 11, &schema_command(&one, &none, &[]));
    assert_eq!(
        (rejected, metadata.tablets.len()),
        (None, 0),
        "a dropped table leaves its tablets"
    );
}

#[test]
fn a_topology_command_that_cannot_be_is_rejected_with_its_reason() {
    let add = |number| Command::Topology(TopologyCommand::AddNode(Box::new(node(number))));
    let (metadata, rejected) = apply(&start(), 5, &add(2));
    assert_eq!((rejected, metadata.topology.nodes().len()), (None, 2));
    let (metadata, rejected) = apply(&metadata, 6, &add(2));
    assert!(
        matches!(&rejected, Some(Rejected::Invalid { why }) if why.contains("added before")),
        "{rejected:?}"
    );
    let mut metadata = metadata;
    for index in 7..7 + 2 * cluster::REJECTED_MAX as u64 {
        metadata = metadata.step(index, b"a command", metadata.apply(index, &add(2)));
    }
    assert_eq!(
        metadata.rejected.len(),
        cluster::REJECTED_MAX,
        "rejections are remembered without limit"
    );
}

proptest! {
    #[test]
    fn damaged_bytes_are_refused(at in 0_usize..400, bit in 0_u8..8, cut in 0_usize..400) {
        let one = schema(2, &[keyspace("ks", &[1])]);
        let command = schema_command(&start().schema, &one, &[(1, 1)]).encode();
        let metadata = start().encode();
        for bytes in [command, metadata] {
            let mut damaged = bytes.clone();
            let place = at % damaged.len();
            damaged[place] ^= 1 << bit;
            prop_assert!(Command::decode(&damaged, &Known::everything()).is_err() && Metadata::decode(&damaged, &Known::everything()).is_err());
            let short = &bytes[..cut % bytes.len()];
            prop_assert!(Command::decode(short, &Known::everything()).is_err() && Metadata::decode(short, &Known::everything()).is_err());
        }
    }

    #[test]
    fn bytes_that_pass_the_checksum_are_read_or_refused(kind in prop::sample::select(vec![b'c', b'm']), body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = vec![kind, 1];
        bytes.extend_from_slice(&body);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        drop(Command::decode(&bytes, &Known::everything()));
        drop(Metadata::decode(&bytes, &Known::everything()));
    }
}

/// A cluster of nodes with two tokens each, and a keyspace with a table on the ring.
fn ring(nodes: u16, factor: u16) -> Metadata {
    let mut topology = Topology::new("sea", Uuid::from_u128(9));
    for number in 0..nodes {
        let added = TopologyCommand::AddNode(Box::new(topology::Node {
            tokens: [1, 2]
                .map(|turn| types::Token(i64::from(number) * 1000 + turn))
                .to_vec(),
            ..node(u128::from(number) + 1)
        }));
        let normal = TopologyCommand::SetState {
            host_id: HostId(Uuid::from_u128(u128::from(number) + 1)),
            state: NodeState::Normal,
        };
        for command in [added, normal] {
            // The first comes as a full member.
            let _ = topology.apply(&command);
        }
    }
    let mut shelf = Keyspace::clone(&keyspace("shelf", &[7]));
    let replication = [
        ("class", "SimpleStrategy".to_owned()),
        ("replication_factor", factor.to_string()),
    ];
    shelf.replication = replication.map(|(name, value)| (name.to_owned(), value)).into();
    let schema = schema(1, &[keyspace("system", &[]), Arc::new(shelf)]);
    Metadata::new(Arc::new(schema), topology)
}

#[test]
fn a_node_that_owns_data_of_the_ring_or_has_tablets_is_not_removed_at_once() {
    let remove = |metadata: &Metadata, number: u128| {
        let command = Command::RemoveNode {
            host_id: HostId(Uuid::from_u128(number)),
        };
        let (next, rejected) = apply(metadata, 8, &command);
        let why = rejected.map(|rejected| rejected.to_string());
        (next, why)
    };
    for (nodes, factor) in [(3, 3), (2, 3), (4, 3), (3, 1)] {
        let (_, why) = remove(&ring(nodes, factor), 2);
        let why = why.expect("it owns ranges");
        assert!(
            why.contains("owns ranges of the token ring, which others must copy before it is removed"),
            "{nodes} nodes, factor {factor}: {why}"
        );
    }
    // A keyspace without tables has no data, and tablets keep their node.
    let mut metadata = ring(4, 3);
    let schema = schema(2, &[keyspace("system", &[]), keyspace("shelf", &[])]);
    metadata.schema = Arc::new(schema);
    let (next, why) = remove(&metadata, 2);
    assert_eq!(why, None);
    let node = next.topology.node(HostId(Uuid::from_u128(2))).expect("it stays known");
    assert_eq!((node.state, node.tokens.len()), (NodeState::Left, 0));
    let mut metadata = ring(2, 2);
    metadata.tablets.insert(table(7), map(1));
    let (_, why) = remove(&metadata, 1);
    let why = why.expect("it has tablets");
    assert!(why.contains("4 tablets of table shelf.t7"), "{why}");
    assert_eq!(remove(&metadata, 2).1, None, "the tablets stand on the other node");
}

#[test]
fn nodes_are_excluded_together_or_not_at_all() {
    let host = |number: u128| HostId(Uuid::from_u128(number));
    let exclude = |metadata: &Metadata, numbers: &[u128]| {
        let hosts = numbers.iter().copied().map(host).collect();
        let (next, rejected) = apply(metadata, 8, &Command::Exclude { hosts });
        let excluded: Vec<u128> = (1..=4)
            .filter(|number| next.topology.is_excluded(host(*number)))
            .collect();
        (excluded, rejected.is_some())
    };
    let metadata = ring(4, 3);
    assert_eq!(exclude(&metadata, &[2, 3]), (vec![2, 3], false));
    assert_eq!(exclude(&metadata, &[2, 9]), (vec![], true), "there is no node 9");
    assert_eq!(exclude(&metadata, &[]), (vec![], false));
}

#[test]
fn starts_are_noted_one_after_the_other_and_a_node_that_rejoins_begins_anew() {
    let mut metadata = start();
    let host_id = HostId(Uuid::from_u128(1));
    let run = |generation, former, name| Command::Run {
        host_id,
        generation,
        former,
        name,
    };
    let rejoin = |generation| Command::Rejoin { host_id, generation };
    // Command, whether it is applied, and the run that is noted then.
    let steps = [
        (run(0, 0, 7), true, (0, 7)),
        (run(0, 0, 8), false, (0, 7)),
        (run(0, 7, 8), true, (0, 8)),
        (rejoin(2), false, (0, 8)),
        (rejoin(1), true, (1, 0)),
        (rejoin(1), false, (1, 0)),
        (run(0, 8, 9), false, (1, 0)),
        (run(1, 0, 9), true, (1, 9)),
    ];
    for (index, (command, is_applied, expected)) in (7..).zip(steps) {
        let before = metadata.history;
        let rejected;
        (metadata, rejected) = apply(&metadata, index, &command);
        assert_eq!(rejected.is_none(), is_applied, "{command:?}: {rejected:?}");
        let noted = metadata.run_of(host_id).expect("it is a member");
        assert_eq!((noted.generation, noted.name), expected, "{command:?}");
        assert_ne!(
            metadata.history, before,
            "a rejected command is part of the history too"
        );
    }
    let unknown = Command::Rejoin {
        host_id: HostId(Uuid::from_u128(9)),
        generation: 1,
    };
    let (_, rejected) = apply(&metadata, 30, &unknown);
    assert!(
        matches!(&rejected, Some(Rejected::Invalid { why }) if why.contains("not a member")),
        "{rejected:?}"
    );
}

/// `'initial': 1000000000` took 10 GB on each node, and the keyspace could not be dropped.
#[test]
fn a_table_has_no_more_tablets_than_the_shards_have_room_for_and_its_user_is_told() {
    let topology = start().topology;
    let one_copy = topology::Replication::Simple { factor: 1 };
    let counts = |initial: &str| {
        let mut keyspace = Keyspace::clone(&keyspace("k", &[]));
        keyspace.tablets = Some([("initial".to_owned(), initial.to_owned())].into());
        TabletCounts::of(&topology, Some(&one_copy), Some(&keyspace), None, 5 << 30)
    };
    let shards = u32::from(node(1).shards);
    let room = (shards * 1_024).next_power_of_two();
    for (initial, expected) in [("1", 1), ("1000", 1_024), ("1000000000", room), ("4294967295", room)] {
        let counts = counts(initial);
        assert_eq!(counts.first(&topology, &one_copy), Some(expected), "{initial}");
        let warning = counts.warning("keyspace k");
        assert_eq!(
            warning.is_some(),
            expected == room && room != 1_024,
            "{initial}: {warning:?}"
        );
    }
    let warning = counts("1000000000").warning("keyspace k").expect("it has fewer");
    assert!(
        warning.contains("keyspace k") && warning.contains(&room.to_string()),
        "{warning}"
    );
}
