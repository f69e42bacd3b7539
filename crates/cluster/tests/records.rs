//! The bytes of commands and metadata, pinned: they are stored in logs, files and snapshots.
//!
//! `testdata/records.txt` has them. A line may be added, for a field with a feature of its own; none may change or go.
//! `CETO_REWRITE=1 cargo test -p cluster --test records` writes the file.

use cluster::{
    Altered, ClientRoute, ClientRouteKey, ClientRoutesChange, Command, Conversion, Forgotten, Metadata,
    PER_PARTITION_RATE_LIMIT, RingState, RingStep, SchemaChange, TabletsChange,
};
use record::Known;
use schema::{Keyspace, Schema, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use topology::{
    Boundaries, HostId, Location, Node, NodeNumber, NodeState, Replica, TabletChange, TabletEdit, TabletId, TabletMap,
    Topology, TopologyCommand,
};
use types::Token;
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(7));
const HOST: HostId = HostId(Uuid::from_u128(3));

fn node() -> Node {
    let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
    Node {
        host_id: HOST,
        internode: address(7000),
        native: SocketAddr::new("fe80::1".parse().expect("an address"), 9042),
        native_shard_aware_port: Some(19042),
        location: Location {
            datacenter: "dc".to_owned(),
            rack: "r".to_owned(),
        },
        shards: 2,
        tokens: vec![Token(-5), Token(9)],
        state: NodeState::Normal,
        features: BTreeSet::from([PER_PARTITION_RATE_LIMIT.to_owned()]),
        release: "1".to_owned(),
        loss: None,
    }
}

fn topology_commands() -> Vec<TopologyCommand> {
    let (host_id, node) = (HOST, node());
    vec![
        TopologyCommand::AddNode(Box::new(node.clone())),
        TopologyCommand::SetState {
            host_id,
            state: NodeState::Leaving,
        },
        TopologyCommand::SetTokens {
            host_id,
            tokens: vec![Token(-1), Token(1)],
        },
        TopologyCommand::ChangeAddress {
            host_id,
            internode: node.native,
            native: node.internode,
            native_shard_aware_port: Some(1),
        },
        TopologyCommand::SetShards { host_id, shards: 4 },
        TopologyCommand::SetFeatures {
            host_id,
            features: node.features.clone(),
            release: "2".to_owned(),
        },
        TopologyCommand::EnableFeatures(node.features),
        TopologyCommand::RemoveNode { host_id },
        TopologyCommand::GiveUp {
            host_id,
            replaced_by: Some(HOST),
        },
        TopologyCommand::BecomeZeroToken { host_id },
        TopologyCommand::Exclude { host_id },
        TopologyCommand::Stay {
            host_id,
            tokens: vec![Token(-1), Token(1)],
        },
    ]
}

fn schema(version: u128, names: &[&str]) -> Schema {
    let keyspace = |name: &&str| Keyspace {
        name: (*name).to_owned(),
        replication: BTreeMap::from([("class".to_owned(), "SimpleStrategy".to_owned())]),
        durable_writes: true,
        tablets: None,
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: BTreeMap::new(),
    };
    let keyspaces = names.iter().map(|name| ((*name).to_owned(), Arc::new(keyspace(name))));
    Schema {
        version: Uuid::from_u128(version),
        keyspaces: keyspaces.collect(),
    }
}

fn commands() -> Vec<Command> {
    let replica = Replica {
        node: NodeNumber(0),
        shard: 1,
    };
    let map = TabletMap::new(1, Boundaries::PowerOfTwo(0), &[[replica].into_iter().collect()]).expect("one tablet");
    let edit = TabletEdit {
        tablet: TabletId(0),
        replicas: [replica].into_iter().collect(),
        transition: None,
    };
    let part = TabletChange {
        from_version: 1,
        version: 2,
        edits: vec![edit],
    };
    let tablets = |change| Command::Tablets { table: TABLE, change };
    let schema_change = SchemaChange {
        tablets: [(TABLE, Arc::new(map.clone()))].into(),
        ..SchemaChange::between(&schema(1, &["old"]), &schema(2, &["new"]))
    };
    let mut commands = vec![
        Command::Schema(schema_change),
        tablets(TabletsChange::Whole(Arc::new(map))),
        tablets(TabletsChange::Part(part)),
        Command::RemoveTablets { table: TABLE },
        Command::Fence { index: 5 },
        Command::Truncate { table: TABLE },
        Command::Run {
            host_id: HOST,
            generation: 1,
            former: 2,
            name: 3,
        },
        Command::Rejoin {
            host_id: HOST,
            generation: 4,
        },
        Command::RemoveNode { host_id: HOST },
        Command::Exclude { hosts: vec![HOST] },
        Command::RackValid(Box::new(Command::RemoveNode { host_id: HOST })),
        moves(),
        Command::Balance { is_balanced: false },
        Command::Balance { is_balanced: true },
        Command::Resize {
            table: TABLE,
            from_version: 300,
            tablet_count: 64,
        },
    ];
    let steps = [
        Conversion::Begin { tablet_count: 64 },
        Conversion::Align { from_version: 300 },
        Conversion::Cut { from_version: 301 },
        Conversion::End { from_version: 302 },
    ];
    commands.extend(steps.map(|step| Command::Convert { table: TABLE, step }));
    let ring = [
        RingStep::Advance {
            stage: topology::Stage::WriteBothReadNew,
        },
        RingStep::Done { host_id: HOST },
        RingStep::End,
    ];
    commands.extend(ring.map(|step| Command::Ring { version: 300, step }));
    commands.push(Command::Reached {
        keyspace: "ks".to_owned(),
        version: 300,
    });
    commands.extend(topology_commands().into_iter().map(Command::Topology));
    commands.push(Command::Forget {
        host_id: HOST,
        before: 1_700_000_000,
    });
    commands.push(Command::ClientRoutes(ClientRoutesChange {
        put: client_routes(),
        removed: BTreeSet::from([client_route_key("x")]),
    }));
    commands
}

fn client_route_key(connection_id: &str) -> ClientRouteKey {
    ClientRouteKey {
        connection_id: connection_id.to_owned(),
        host_id: HOST.0,
    }
}

fn client_routes() -> cluster::ClientRoutes {
    let all = ClientRoute {
        address: "proxy".to_owned(),
        port: Some(9042),
        tls_port: Some(9142),
        alternator_port: Some(8000),
        alternator_https_port: Some(8043),
    };
    let one = ClientRoute {
        tls_port: None,
        alternator_port: None,
        alternator_https_port: None,
        ..all.clone()
    };
    BTreeMap::from([(client_route_key("a"), all), (client_route_key("b"), one)])
}

fn moves() -> Command {
    let replica = |node| topology::Replica {
        node: topology::NodeNumber(node),
        shard: 1,
    };
    let tablet = topology::TabletId(2);
    let begin = topology::MoveStep::Begin {
        tablet,
        replicas: [replica(1), replica(2)].into_iter().collect(),
        next: [replica(1), replica(300)].into_iter().collect(),
    };
    let advance = topology::MoveStep::Advance {
        tablet,
        version: 9,
        stage: topology::Stage::WriteBothReadNew,
    };
    let end = topology::MoveStep::End { tablet, version: 300 };
    Command::Moves(vec![cluster::TableMoves {
        table: TABLE,
        steps: vec![begin, advance, end],
    }])
}

/// Metadata with something in every field but tablets, which a command has.
fn metadata() -> Metadata {
    let mut metadata = Metadata::new(Arc::new(schema(1, &["ks"])), Topology::new("sea", Uuid::from_u128(9)));
    let commands = [
        Command::Topology(TopologyCommand::AddNode(Box::new(node()))),
        Command::Topology(TopologyCommand::EnableFeatures(node().features)),
        Command::Run {
            host_id: HOST,
            generation: 0,
            former: 0,
            name: 3,
        },
        Command::Truncate { table: TABLE },
        Command::Fence { index: 2 },
    ];
    for (index, command) in (2..).zip(commands) {
        metadata = metadata.step(index, &command.encode(), metadata.apply(index, &command));
    }
    assert_eq!(metadata.rejected.len(), 1, "a table that is not there is not truncated");
    Metadata {
        truncations: [(TABLE, 4)].into(),
        ..metadata
    }
}

fn with_operations() -> Metadata {
    let mut metadata = metadata();
    let other = Node {
        host_id: HostId(Uuid::from_u128(4)),
        internode: SocketAddr::from(([10, 0, 0, 2], 7000)),
        tokens: Vec::new(),
        state: NodeState::Joining,
        ..node()
    };
    let host_id = other.host_id;
    let topology = Arc::make_mut(&mut metadata.topology);
    for command in [
        TopologyCommand::AddNode(Box::new(other)),
        TopologyCommand::BecomeZeroToken { host_id },
        TopologyCommand::Exclude { host_id },
    ] {
        topology.apply(&command).expect("it may be");
    }
    metadata
}

fn replications(class: &str) -> cluster::Replications {
    let options = BTreeMap::from([("class".to_owned(), class.to_owned())]);
    BTreeMap::from([("ks".to_owned(), options)])
}

fn line(out: &mut String, name: &str, bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let _ = writeln!(out, "{name}\n----\n{hex}\n");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "rewrites its own expectations, outside any simulation"
)]
fn commands_and_metadata_have_the_bytes_that_stand_on_disks() {
    let mut found = String::new();
    for command in commands() {
        let bytes = command.encode();
        assert_eq!(Command::decode(&bytes, &Known::everything()).as_ref(), Ok(&command));
        line(&mut found, &format!("{command:?}"), &bytes);
    }
    let bytes = metadata().encode();
    assert_eq!(Metadata::decode(&bytes, &Known::everything()), Ok(metadata()));
    line(&mut found, "metadata", &bytes);
    let moving = Metadata {
        is_balanced: false,
        ring: Some(RingState {
            version: 9,
            stage: topology::Stage::Streaming,
            done: BTreeSet::from([NodeNumber(0), NodeNumber(300)]),
            former: replications("x"),
            towards: BTreeMap::new(),
            leaving: BTreeSet::new(),
        }),
        ..metadata()
    };
    let bytes = moving.encode();
    assert_eq!(Metadata::decode(&bytes, &Known::everything()).as_ref(), Ok(&moving));
    line(&mut found, "metadata while the ring moves and tablets do not", &bytes);
    let altered = Altered {
        version: 300,
        replication: replications("y")["ks"].clone(),
        tablets: Some(BTreeMap::from([("enabled".to_owned(), "true".to_owned())])),
    };
    let waiting = Metadata {
        ring: moving.ring.clone().map(|ring| RingState {
            stage: topology::Stage::UseNew,
            towards: replications("y"),
            leaving: BTreeSet::from([NodeNumber(1), NodeNumber(301)]),
            ..ring
        }),
        altered: BTreeMap::from([("ks".to_owned(), altered)]),
        ..moving
    };
    let bytes = waiting.encode();
    assert_eq!(Metadata::decode(&bytes, &Known::everything()), Ok(waiting));
    line(
        &mut found,
        "metadata with what waits for the ring and a keyspace that was altered",
        &bytes,
    );
    let bytes = with_operations().encode();
    assert_eq!(Metadata::decode(&bytes, &Known::everything()), Ok(with_operations()));
    line(&mut found, "metadata with a zero-token node that is excluded", &bytes);
    let forgetting = Metadata {
        forgotten: BTreeMap::from([(
            HOST,
            Forgotten {
                before: 1_700_000_000,
                index: 300,
            },
        )]),
        ..metadata()
    };
    let bytes = forgetting.encode();
    assert_eq!(Metadata::decode(&bytes, &Known::everything()), Ok(forgetting));
    line(&mut found, "metadata while a node is down for long", &bytes);
    let routed = Metadata {
        client_routes: Arc::new(client_routes()),
        ..metadata()
    };
    let bytes = routed.encode();
    assert_eq!(Metadata::decode(&bytes, &Known::everything()), Ok(routed));
    line(&mut found, "metadata with client routes", &bytes);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/records.txt");
    if std::env::var_os("CETO_REWRITE").is_some() {
        std::fs::write(&path, found).expect("the source tree is writable");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("the file is part of the crate");
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "a durable format has changed");
    }
    assert_eq!(found, expected, "a durable format has changed");
}
