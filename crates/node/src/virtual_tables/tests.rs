//! What a node alone, and one in a cluster, shows in its tables.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::cluster::{ClientRoute, ClientRouteKey};
use config::{Config, Machine};
use front::Clients;
use schema::Schema;
use system_tables::rows_of;
use topology::NodeState;
use uuid::Uuid;

use super::{About, NodeInfo, PeerInfo, registry};
use crate::live_options::LiveOptions;

fn alone() -> NodeInfo {
    NodeInfo {
        tokens: vec!["5".to_owned(), "-7".to_owned()],
        settings: [
            ("cluster_name".to_owned(), Some("ceto".to_owned())),
            ("role_manager".to_owned(), None),
        ]
        .into(),
        ..NodeInfo::alone(Uuid::from_u128(7), IpAddr::V4(Ipv4Addr::LOCALHOST), 9042, 2)
    }
}

/// The node has others around it: two members in another rack, of which one does not answer, another process on the
/// address of the first, a zero-token node, a replaced one, one that joins and one that left.
fn in_a_cluster() -> NodeInfo {
    let peer = |number: u8, state| PeerInfo {
        host_id: Uuid::from_u128(u128::from(number)),
        internode: SocketAddr::from(([127, 0, 0, number], 7000)),
        native: SocketAddr::from(([10, 0, 0, number], 9042)),
        data_center: "datacenter1".to_owned(),
        rack: "rack2".to_owned(),
        release_version: "4.1.7".to_owned(),
        schema_version: Some(Uuid::from_u128(1)),
        tokens: Vec::new(),
        state,
        is_zero_token: false,
        is_superseded: false,
        up: true,
    };
    let quarters = |tokens: [i64; 2]| tokens.map(|quarter| (quarter << 61).to_string()).to_vec();
    let peers = vec![
        PeerInfo {
            schema_version: None,
            tokens: quarters([1, -2]),
            up: false,
            ..peer(3, NodeState::Leaving)
        },
        PeerInfo {
            tokens: quarters([2, -4]),
            ..peer(2, NodeState::Normal)
        },
        PeerInfo {
            host_id: Uuid::from_u128(22),
            internode: SocketAddr::from(([127, 0, 0, 2], 7001)),
            native: SocketAddr::from(([10, 0, 0, 2], 9043)),
            up: false,
            ..peer(2, NodeState::Normal)
        },
        PeerInfo {
            is_zero_token: true,
            ..peer(6, NodeState::Normal)
        },
        PeerInfo {
            is_superseded: true,
            ..peer(7, NodeState::Leaving)
        },
        peer(4, NodeState::Joining),
        peer(5, NodeState::Left),
    ];
    let key = |connection_id: &str, node: u128| ClientRouteKey {
        connection_id: connection_id.to_owned(),
        host_id: Uuid::from_u128(node),
    };
    let route = |tls_port| ClientRoute {
        address: "proxy".to_owned(),
        port: Some(19042),
        tls_port,
        ..ClientRoute::default()
    };
    let routes = [
        (key("east", 2), route(None)),
        (key("east", 9), route(Some(19142))),
        (key("west", 2), route(None)),
    ];
    NodeInfo {
        tokens: vec!["0".to_owned()],
        client_routes: Arc::new(routes.into()),
        peers,
        ..alone()
    }
}

#[test]
fn a_node_tells_of_itself_and_of_the_members() {
    let about = Arc::new(About::new(alone()));
    let options = Arc::new(LiveOptions::new(&Config::defaults(&Machine::detect())));
    let tables = registry(&about, &Arc::new(Clients::new(1)), &options);
    let schema = Arc::new(tables.with_system_keyspaces(&Schema {
        version: Uuid::from_u128(1),
        keyspaces: BTreeMap::new(),
    }));
    testkit::run(testkit::path!("src/virtual_tables/tables.txt"), |case| {
        if case.text == "join a cluster" {
            about.change(|info| *info = in_a_cluster());
            return String::new();
        }
        let (keyspace, name) = case.text.split_once('.').expect("KEYSPACE.TABLE");
        let table = schema.table(keyspace, name).expect("the node has the table");
        let source = &tables.virtual_table(table.id).expect("it is virtual").source;
        let mut rows = rows_of(&**source, &schema);
        rows.sort();
        let row = |row: &system_tables::NamedRow| {
            let columns = row.iter().map(|(name, value)| format!("{name}: {value}"));
            columns.collect::<Vec<_>>().join(", ") + "\n"
        };
        rows.iter().map(row).collect()
    });
}

#[test]
fn describe_cluster_and_the_tables_tell_the_same_tokens() {
    let about = About::new(alone());
    about.change(|info| info.tokens = vec!["11".to_owned()]);
    assert_eq!(about.info().described().tokens, about.info().tokens);
    assert_eq!(
        about.info().described().endpoint,
        SocketAddr::from(([127, 0, 0, 1], 7000))
    );
}
