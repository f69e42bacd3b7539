//! The engine of a shard of a simulated node.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::SyncMode;
use coordinator::{ClusterView, Coordinator};
use cql_compiler::describe::DescribedNode;
use cql_compiler::{DdlContext, compile_ddl};
use query::Engine;
use query::engine::{NodeState, SharedStatements};
use replica::Shard;
use schema::{Schema, Table};
use system_tables::{Builder, Kind, Registry};
use test_node::{Hosted, Options, Process};
use topology::{HostId, Replication, Topology};
use uuid::Uuid;

const HOST: HostId = HostId(Uuid::from_u128(7));
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 7000);

/// The system tables that need nothing but this shard.
pub fn system_tables() -> Builder {
    let mut tables = Builder::new();
    coordinator::register_system_tables(&mut tables);
    tables
}

/// What a node is made of whose log is synced only by conditional statements.
pub fn options(shards: u32) -> Options {
    Options {
        host_id: HOST.0,
        shards,
        sync: SyncMode::Periodic(Duration::from_secs(10)),
        log_bytes_max: 16 << 20,
        dirty_bytes_max: 1 << 20,
        ..Options::default()
    }
}

/// The engine of a node of one shard, over what an earlier life of it left on the disk. It has the tables of users and
/// the local ones.
pub async fn engine(schema: Schema, system_tables: Registry) -> Rc<Engine> {
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let is_kept = |table: &&Arc<Table>| system_tables.kind(table.id) != Some(Kind::Replicated);
    let kept = tables
        .filter(is_kept)
        .flat_map(|table| system_tables.kept_tables(table));
    let hosted = kept.map(|table| Hosted::on_ring(table, 1)).collect();
    let process = Process::start(options(1), hosted);
    let shard = process.open(runtime::shard());
    process.replay(std::slice::from_ref(&shard)).await;
    let node = NodeState {
        system_tables: Arc::new(system_tables),
        described: Box::new(|| DescribedNode {
            cluster_name: "test".to_owned(),
            partitioner: "Murmur3Partitioner".to_owned(),
            endpoint: ADDRESS,
            tokens: vec!["0".to_owned()],
        }),
        statements: SharedStatements::default(),
    };
    engine_on(&shard, node, schema)
}

/// The engine of a shard, whose node is alone in its cluster.
pub fn engine_on(shard: &Rc<Shard>, node: NodeState, schema: Schema) -> Rc<Engine> {
    let coordinator = Coordinator::new(shard.clone(), None, Arc::new(view(&schema)));
    runtime::set_local(shard.clone());
    runtime::set_local(coordinator.clone());
    let engine = Engine::new(coordinator, Arc::new(node), Arc::new(schema));
    runtime::set_local(engine.clone());
    engine
}

/// A node that is alone, and has the only copy of every table of users.
pub fn view(schema: &Schema) -> ClusterView {
    let shards = u16::try_from(runtime::shard_count()).expect("a node has few shards");
    let topology = Arc::new(Topology::alone("test", test_node::member(HOST, ADDRESS, shards)));
    let of_users = schema
        .keyspaces
        .values()
        .filter(|keyspace| system_tables::kind(&keyspace.name).is_none());
    let keyspaces = of_users.map(|keyspace| {
        let tables = keyspace.tables.values().map(|table| table.id).collect();
        (keyspace.name.as_str(), Replication::Simple { factor: 1 }, tables)
    });
    ClusterView::new(topology, HOST, keyspaces, &BTreeMap::new()).expect("the node is a member")
}

/// The tables of the system, and keyspace `ks` of one copy with a table that this statement makes.
pub fn schema_of(create_table: &str) -> Schema {
    let mut schema = system_tables().build().with_system_keyspaces(&Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    });
    let create_keyspace = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    for text in [create_keyspace, create_table] {
        let statement = cql::parse(text).expect("the test's statements are CQL").statement;
        let ctx = DdlContext {
            keyspace: None,
            now_us: 1,
        };
        let definition = compile_ddl(&schema, &statement, &ctx).expect(text);
        let ctx = ddl::Context {
            new_id: Uuid::from_u128(1),
            nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
            has_functions: true,
            racks: &BTreeMap::new(),
            lists_racks: false,
        };
        let changed = ddl::apply(&schema, &definition.expect("it asks for something"), &ctx).expect(text);
        schema = changed.expect("it changes something").schema;
    }
    schema
}
