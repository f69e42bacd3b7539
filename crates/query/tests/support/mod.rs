//! One shard's engine on a simulated machine.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Commitlog, OldLog, Options, SyncMode};
use coordinator::{ClusterView, Coordinator};
use cql_compiler::describe::DescribedNode;
use cql_compiler::{DdlContext, compile_ddl};
use query::Engine;
use query::engine::{NodeState, SharedStatements};
use replica::{Shard, ShardOptions, TableFiles};
use runtime::ShardId;
use schema::{Schema, Table};
use system_tables::{Builder, Kind, Registry};
use topology::{HostId, Location, Node, Replication, Topology};
use types::Token;
use uuid::Uuid;

/// The system tables that need nothing but this shard.
pub fn system_tables() -> Builder {
    let mut tables = Builder::new();
    coordinator::register_system_tables(&mut tables);
    tables
}

/// The engine of a shard over what an earlier life of it left on the disk. It has the tables of users and the local
/// ones.
pub async fn engine(boot_id: u128, schema: Schema, system_tables: Registry) -> Rc<Engine> {
    let log_dir = PathBuf::from("/log");
    for dir in ["/log", "/data"] {
        runtime::fs::create_dir_all(dir).expect("the simulated disk works here");
    }
    runtime::fs::sync_dir("/").expect("the simulated disk works here");
    let old_log = OldLog::take(&log_dir).expect("the simulated disk works here");
    let log = Commitlog::new(Options {
        dir: log_dir.clone(),
        shard: 0,
        shards: 1,
        segment_bytes: 1 << 20,
        // Nothing is synced but what conditional statements sync.
        sync: SyncMode::Periodic(Duration::from_secs(10)),
        boot_id,
        first_segment: old_log.last_segment + 1,
    });
    let options = ShardOptions {
        shard: ShardId(0),
        shards: 1,
        data_dir: "/data".into(),
        dirty_bytes_max: 1 << 20,
        cache_bytes_max: 1 << 20,
        log_bytes_max: 16 << 20,
        generations: Arc::default(),
        tasks: tasks::Tasks::new(1, uuid::Uuid::nil()),
        noted_batches: Arc::default(),
        activity: Arc::default(),
        compaction_room: Arc::default(),
        host_id: Uuid::from_u128(7),
    };
    let shard = Shard::new(options, log);
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let is_kept = |table: &&Arc<Table>| system_tables.kind(table.id) != Some(Kind::Replicated);
    for table in tables
        .filter(is_kept)
        .flat_map(|table| system_tables.kept_tables(table))
    {
        let files = TableFiles::open(&table, &shard.table_dir(&table)).expect("the simulated disk works here");
        shard.open_table(&table, &[shard.token_range()], &files);
    }
    let replayed = shard.replay(&log_dir, boot_id, async |_| Ok(())).await;
    replayed.expect("the log is whole");
    shard.end_replay();
    let node = NodeState {
        system_tables: Arc::new(system_tables),
        described: Box::new(|| DescribedNode {
            cluster_name: "test".to_owned(),
            partitioner: "Murmur3Partitioner".to_owned(),
            endpoint: SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 7000),
            tokens: vec!["0".to_owned()],
        }),
        statements: SharedStatements::default(),
    };
    let host_id = HostId(Uuid::from_u128(7));
    let topology = Arc::new(Topology::alone("test", member(host_id)));
    let of_users = schema
        .keyspaces
        .values()
        .filter(|keyspace| system_tables::kind(&keyspace.name).is_none());
    let keyspaces = of_users.map(|keyspace| {
        let tables = keyspace.tables.values().map(|table| table.id).collect();
        (keyspace.name.as_str(), Replication::Simple { factor: 1 }, tables)
    });
    let view = ClusterView::new(topology, host_id, keyspaces, &BTreeMap::new()).expect("the node is a member");
    let coordinator = Coordinator::new(shard.clone(), None, Arc::new(view));
    runtime::set_local(coordinator.clone());
    let engine = Engine::new(coordinator, Arc::new(node), Arc::new(schema));
    runtime::set_local(engine.clone());
    engine
}

fn member(host_id: HostId) -> Node {
    let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 7000);
    Node {
        host_id,
        internode: address,
        native: address,
        native_shard_aware_port: None,
        location: Location {
            datacenter: "dc".to_owned(),
            rack: "rack".to_owned(),
        },
        shards: 1,
        tokens: vec![Token(0)],
        state: topology::NodeState::Normal,
        features: Default::default(),
        release: "1".to_owned(),
        loss: None,
    }
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
            has_tombstone_gc: false,
            has_functions: true,
            racks: &BTreeMap::new(),
            lists_racks: false,
        };
        let changed = ddl::apply(&schema, &definition.expect("it asks for something"), &ctx).expect(text);
        schema = changed.expect("it changes something").schema;
    }
    schema
}
