//! Tables of ScyllaDB's about the node and its cluster: versions, servers, snapshots, the ring, tablets, the metadata
//! group. Columns are those that its documentation has.
//!
//! What only the shard knows that answers operators is asked of it; where there is none, as in a node without sockets,
//! a table has no rows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use admin::operator::Snapshot;
use query::Engine;
use runtime::ShardId;
use schema::TableId;
use system_tables::Builder;
use topology::{Boundaries, NodeNumber, NodeState, Replication, TabletMap, ring_map};
use uuid::Uuid;

use super::measured::{Cell, Gathering, Row, add};
use crate::follow::on_all_shards;
use crate::operator::{self, AdminFacts};

const VERSIONS: &str =
    "versions (key text PRIMARY KEY, build_id text, build_mode text, compatible_version text, version text)";
const PROTOCOL_SERVERS: &str = "protocol_servers (name text PRIMARY KEY, is_running boolean, listen_addresses frozen<list<text>>, \
     protocol text, protocol_version text)";
const RUNTIME_INFO: &str = "runtime_info (group text, item text, value text, PRIMARY KEY (group, item))";
const SNAPSHOTS: &str = "snapshots (keyspace_name text, table_name text, snapshot_name text, live bigint, total bigint, \
     PRIMARY KEY (keyspace_name, table_name, snapshot_name))";
const SNAPSHOT_VIEWS: &str = "snapshots (name text, keyspace_name text, table_name text, created_at timestamp, ephemeral boolean, \
     expires_at timestamp, size_on_disk bigint, true_size bigint, PRIMARY KEY (name, keyspace_name, table_name))";
const TOKEN_RING: &str = "token_ring (keyspace_name text, start_token text, endpoint inet, dc text, end_token text, rack text, \
     PRIMARY KEY (keyspace_name, start_token, endpoint))";
const LOAD_PER_NODE: &str = "load_per_node (node uuid PRIMARY KEY, dc text, rack text, storage_allocated_load bigint, \
     storage_allocated_utilization double, storage_capacity bigint, tablets_allocated bigint, tablets_allocated_per_shard double)";
const TABLET_SIZES: &str = "tablet_sizes (table_id uuid, last_token bigint, missing_replicas frozen<set<uuid>>, \
     replicas frozen<map<uuid, bigint>>, PRIMARY KEY (table_id, last_token))";
const RAFT_STATE: &str = "raft_state (group_id uuid, disposition text, server_id uuid, can_vote boolean, \
     PRIMARY KEY (group_id, disposition, server_id))";
const BUILT_VIEWS: &str = "built_views (keyspace_name text, view_name text, PRIMARY KEY (keyspace_name, view_name))";
const MAX_SSTABLE_SIZE: &str = "max_sstable_size (keyspace_name text, table_name text, mebibytes bigint, PRIMARY KEY ((keyspace_name, table_name)))";

pub(super) fn register(tables: &mut Builder) {
    add(tables, "system", 1, VERSIONS, |_| now(versions()));
    add(tables, "system", 1, PROTOCOL_SERVERS, |_| Box::pin(protocol_servers()));
    add(tables, "system", 1, RUNTIME_INFO, |_| Box::pin(runtime_info()));
    add(tables, "system", 1, SNAPSHOTS, |_| Box::pin(snapshots()));
    add(
        tables,
        "system_views",
        1,
        SNAPSHOT_VIEWS,
        |_| Box::pin(snapshot_views()),
    );
    add(tables, "system", 1, TOKEN_RING, |_| now(token_ring()));
    add(tables, "system", 1, LOAD_PER_NODE, |_| Box::pin(load_per_node()));
    add(tables, "system", 1, TABLET_SIZES, |_| Box::pin(tablet_sizes()));
    add(tables, "system", 1, RAFT_STATE, |_| Box::pin(raft_state()));
    // No view is built yet.
    add(tables, "system", 1, BUILT_VIEWS, |_| now(Vec::new()));
    add(tables, "system_views", 2, MAX_SSTABLE_SIZE, |_| {
        Box::pin(max_sstable_size())
    });
}

/// Rows that this shard has at once.
pub(super) fn now(rows: Vec<Row>) -> Gathering {
    Box::pin(std::future::ready(rows))
}

/// What the shard that answers operators knows; None in a node without it.
pub(super) async fn of_operator<T: Send + 'static>(
    ask: impl AsyncFnOnce(Rc<AdminFacts>) -> T + Send + 'static,
) -> Option<T> {
    let asked = runtime::submit_async_to(ShardId(0), move || async move {
        match runtime::local::<AdminFacts>() {
            Some(facts) => Some(ask(facts).await),
            None => None,
        }
    });
    asked.await
}

fn versions() -> Vec<Row> {
    let mode = if cfg!(debug_assertions) { "debug" } else { "release" };
    vec![vec![
        ("key", Cell::text("local")),
        ("build_id", Cell::Null),
        ("build_mode", Cell::text(mode)),
        ("compatible_version", Cell::text(super::info::RELEASE_VERSION)),
        ("version", Cell::text(env!("CARGO_PKG_VERSION"))),
    ]]
}

async fn protocol_servers() -> Vec<Row> {
    let known = of_operator(async |facts: Rc<AdminFacts>| (facts.serves_cql(), facts.native_addresses())).await;
    let Some((is_running, addresses)) = known else {
        return Vec::new();
    };
    let addresses = if is_running { addresses } else { Vec::new() };
    vec![vec![
        ("name", Cell::text("native")),
        ("is_running", Cell::Boolean(is_running)),
        ("listen_addresses", Cell::TextList(addresses)),
        ("protocol", Cell::text("cql")),
        ("protocol_version", Cell::text(super::info::CQL_VERSION)),
    ]]
}

async fn runtime_info() -> Vec<Row> {
    let of_shard = async |engine: Rc<Engine>| {
        let (chunks, rows) = (
            &engine.coordinator.context.shard.cache,
            &engine.coordinator.context.shard.row_cache_budget,
        );
        let memory = engine.coordinator.context.shard.memory();
        [
            chunks.budget() as u64,
            chunks.used() as u64,
            rows.bytes_max() as u64,
            rows.bytes() as u64,
            memory.dirty as u64,
            memory.dirty_max as u64,
        ]
    };
    let mut sums = [0_u64; 6];
    for of_shard in on_all_shards(of_shard).await {
        for (sum, part) in sums.iter_mut().zip(of_shard) {
            *sum += part;
        }
    }
    let load = operator::load().await;
    let known = of_operator(async |facts: Rc<AdminFacts>| {
        (
            facts.serves_cql(),
            facts.uptime_ms(),
            facts.memory(),
            facts.trace_probability(),
        )
    });
    let known = known.await;
    let mut items: Vec<(&str, &str, String)> = vec![
        ("cache", "chunks_capacity_bytes", sums[0].to_string()),
        ("cache", "chunks_size_bytes", sums[1].to_string()),
        ("cache", "rows_capacity_bytes", sums[2].to_string()),
        ("cache", "rows_size_bytes", sums[3].to_string()),
        ("generic", "load_bytes", load.to_string()),
        ("memtable", "memory_max_bytes", sums[5].to_string()),
        ("memtable", "memory_total_bytes", sums[4].to_string()),
    ];
    if let Some((serves_cql, uptime_ms, memory, probability)) = known {
        items.extend([
            ("generic", "uptime_ms", uptime_ms.to_string()),
            ("memory", "total_bytes", memory.to_string()),
            ("native_transport", "active", serves_cql.to_string()),
            ("trace_probability", "trace_probability", probability.to_string()),
        ]);
    }
    items.sort_unstable();
    let row = |(group, item, value)| {
        vec![
            ("group", Cell::text(group)),
            ("item", Cell::text(item)),
            ("value", Cell::Text(value)),
        ]
    };
    items.into_iter().map(row).collect()
}

/// The snapshots on the disk, in the order of keyspaces, tables and names. None can be seen where the disk cannot be
/// read; the log says why.
async fn found_snapshots() -> Vec<Snapshot> {
    let mut found = operator::snapshots::list(&Engine::local()).await.unwrap_or_else(|e| {
        log::warn!("cannot list snapshots: {e}");
        Vec::new()
    });
    // What a node keeps beside a user's table is no table to a client; no user's table has such a name.
    found.retain(|one| !one.table.contains('$'));
    let key = |one: &Snapshot| (one.keyspace.clone(), one.table.clone(), one.tag.clone());
    found.sort_by_key(key);
    // Of a table that was dropped and made again under its name there are two directories.
    found.dedup_by(|next, former| {
        let is_one = key(next) == key(former);
        if is_one {
            former.bytes += next.bytes;
            former.own_bytes += next.own_bytes;
        }
        is_one
    });
    found
}

async fn snapshots() -> Vec<Row> {
    let row = |one: Snapshot| {
        vec![
            ("keyspace_name", Cell::Text(one.keyspace)),
            ("table_name", Cell::Text(one.table)),
            ("snapshot_name", Cell::Text(one.tag)),
            ("live", Cell::count(one.own_bytes)),
            ("total", Cell::count(one.bytes)),
        ]
    };
    found_snapshots().await.into_iter().map(row).collect()
}

async fn snapshot_views() -> Vec<Row> {
    let row = |one: Snapshot| {
        vec![
            ("name", Cell::Text(one.tag)),
            ("keyspace_name", Cell::Text(one.keyspace)),
            ("table_name", Cell::Text(one.table)),
            ("created_at", one.created_ms.map_or(Cell::Null, Cell::Timestamp)),
            ("ephemeral", Cell::Boolean(false)),
            ("expires_at", one.expires_ms.map_or(Cell::Null, Cell::Timestamp)),
            ("size_on_disk", Cell::count(one.bytes)),
            ("true_size", Cell::count(one.own_bytes)),
        ]
    };
    found_snapshots().await.into_iter().map(row).collect()
}

/// The ranges of each keyspace whose tables are of the token ring, each with its replicas. Tablets are in
/// `system.tablets`.
fn token_ring() -> Vec<Row> {
    let engine = Engine::local();
    let (schema, view) = (engine.schema(), engine.coordinator.context.view());
    let mut rows = Vec::new();
    for keyspace in schema.keyspaces.values() {
        let datacenters = view.topology.datacenters();
        let Ok(replication) = Replication::parse(&keyspace.replication, &datacenters) else {
            continue;
        };
        let of_ring = keyspace.tables.values().find_map(|table| {
            let route = view.route(table.id)?;
            matches!(route.map.boundaries(), Boundaries::LastTokens(_)).then(|| route.map.clone())
        });
        let has_tablets = keyspace.tables.values().any(|table| view.route(table.id).is_some());
        let made;
        let map: &TabletMap = match (&of_ring, has_tablets) {
            (Some(map), _) => map,
            (None, true) => continue,
            (None, false) => match ring_map(&view.topology, &replication) {
                Ok(map) => {
                    made = map;
                    &made
                }
                Err(_) => continue,
            },
        };
        let mut ranges: BTreeMap<(String, IpAddr), Row> = BTreeMap::new();
        for tablet in map.tablets() {
            let Some((after, to)) = map.token_range(tablet.id) else {
                continue;
            };
            for replica in tablet.replicas {
                let Some(node) = view.topology.numbered(replica.node) else {
                    continue;
                };
                let (start, endpoint) = (after.0.to_string(), node.internode.ip());
                let row = vec![
                    ("keyspace_name", Cell::text(&*keyspace.name)),
                    ("start_token", Cell::text(&*start)),
                    ("endpoint", Cell::Inet(endpoint)),
                    ("dc", Cell::text(&*node.location.datacenter)),
                    ("end_token", Cell::Text(to.0.to_string())),
                    ("rack", Cell::text(&*node.location.rack)),
                ];
                ranges.insert((start, endpoint), row);
            }
        }
        rows.extend(ranges.into_values());
    }
    rows
}

/// The tables that have tablets, as this shard sees the cluster.
fn tablet_maps(engine: &Engine) -> Vec<(TableId, TabletMap)> {
    let (schema, view) = (engine.schema(), engine.coordinator.context.view());
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let maps = tables.filter_map(|table| {
        let map = &view.route(table.id)?.map;
        let has_tablets = !matches!(map.boundaries(), Boundaries::LastTokens(_));
        has_tablets.then(|| (table.id, (**map).clone()))
    });
    maps.collect()
}

/// How many copies of tablets each member has. A node knows the disks of no other, so the columns of capacities are
/// null.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
async fn load_per_node() -> Vec<Row> {
    let engine = Engine::local();
    let mut copies: BTreeMap<NodeNumber, u64> = BTreeMap::new();
    for (_, map) in tablet_maps(&engine) {
        for tablet in map.tablets() {
            for replica in tablet.replicas {
                *copies.entry(replica.node).or_default() += 1;
            }
        }
    }
    let goal = of_operator(async |facts: Rc<AdminFacts>| facts.tablet_bytes_goal()).await;
    let view = engine.coordinator.context.view();
    let members = view.topology.numbered_nodes();
    let row = |(number, node): (NodeNumber, &topology::Node)| {
        let tablets = copies.get(&number).copied().unwrap_or(0);
        let load = goal.filter(|goal| *goal > 0).map(|goal| goal.saturating_mul(tablets));
        vec![
            ("node", Cell::Uuid(node.host_id.0)),
            ("dc", Cell::text(&*node.location.datacenter)),
            ("rack", Cell::text(&*node.location.rack)),
            ("storage_allocated_load", load.map_or(Cell::Null, Cell::count)),
            ("storage_allocated_utilization", Cell::Null),
            ("storage_capacity", Cell::Null),
            ("tablets_allocated", Cell::count(tablets)),
            (
                "tablets_allocated_per_shard",
                Cell::Double(tablets as f64 / f64::from(node.shards.max(1))),
            ),
        ]
    };
    members
        .filter(|(_, node)| node.state != NodeState::Left)
        .map(row)
        .collect()
}

/// The bytes of tablets on this node. What other replicas have is not known here: they are named as missing.
async fn tablet_sizes() -> Vec<Row> {
    let of_shard = async |engine: Rc<Engine>| {
        let mut sizes: Vec<((TableId, i64), u64)> = Vec::new();
        for (id, _) in tablet_maps(&engine) {
            let Some(store) = engine.coordinator.context.shard.store(id) else {
                continue;
            };
            for tablet in store.tablets().iter() {
                let bytes = tablet.with_version(|version| {
                    version
                        .sstables
                        .iter()
                        .map(|reader| reader.meta().data_len)
                        .sum::<u64>()
                });
                sizes.push(((id, tablet.range.to.0), bytes));
            }
        }
        sizes
    };
    let sizes: BTreeMap<(TableId, i64), u64> = on_all_shards(of_shard).await.into_iter().flatten().collect();
    let engine = Engine::local();
    let view = engine.coordinator.context.view();
    let mut rows = Vec::new();
    for (id, map) in tablet_maps(&engine) {
        for tablet in map.tablets() {
            let Some((_, to)) = map.token_range(tablet.id) else {
                continue;
            };
            let (mut known, mut missing) = (Vec::new(), Vec::new());
            for replica in tablet.replicas {
                let Some(host) = view.topology.numbered(replica.node).map(|node| node.host_id.0) else {
                    continue;
                };
                match sizes.get(&(id, to.0)) {
                    Some(bytes) if replica.node == view.me => known.push((host, *bytes)),
                    _ => missing.push(host),
                }
            }
            rows.push(vec![
                ("table_id", Cell::Uuid(id.0)),
                ("last_token", Cell::BigInt(to.0)),
                ("missing_replicas", Cell::Bytes(set_of_uuids(missing))),
                ("replicas", Cell::Bytes(map_of_sizes(known))),
            ]);
        }
    }
    rows
}

fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&i32::try_from(bytes.len()).expect("at most 16 bytes").to_be_bytes());
    out.extend_from_slice(bytes);
}

fn count_of(elements: usize) -> [u8; 4] {
    i32::try_from(elements)
        .expect("a tablet has few replicas")
        .to_be_bytes()
}

/// The serialised value of a `set<uuid>`.
fn set_of_uuids(mut uuids: Vec<Uuid>) -> Vec<u8> {
    uuids.sort_unstable();
    let mut out = count_of(uuids.len()).to_vec();
    for uuid in uuids {
        put_sized(&mut out, uuid.as_bytes());
    }
    out
}

/// The serialised value of a `map<uuid, bigint>`.
fn map_of_sizes(mut sizes: Vec<(Uuid, u64)>) -> Vec<u8> {
    sizes.sort_unstable();
    let mut out = count_of(sizes.len()).to_vec();
    for (uuid, bytes) in sizes {
        put_sized(&mut out, uuid.as_bytes());
        put_sized(&mut out, &i64::try_from(bytes).unwrap_or(i64::MAX).to_be_bytes());
    }
    out
}

/// The members of the metadata group, and which of them vote. The group is named by the id of the cluster.
async fn raft_state() -> Vec<Row> {
    let known = of_operator(async |facts: Rc<AdminFacts>| facts.voters())
        .await
        .flatten();
    let Some(voters) = known else {
        return Vec::new();
    };
    let engine = Engine::local();
    let view = engine.coordinator.context.view();
    let members = view.topology.nodes().values();
    let row = |node: &topology::Node| {
        vec![
            ("group_id", Cell::Uuid(view.topology.cluster_id())),
            ("disposition", Cell::text("CURRENT")),
            ("server_id", Cell::Uuid(node.host_id.0)),
            ("can_vote", Cell::Boolean(voters.contains(&node.host_id.0))),
        ]
    };
    let mut members: Vec<_> = members.filter(|node| node.state != NodeState::Left).collect();
    members.sort_by_key(|node| node.host_id.0);
    members.into_iter().map(row).collect()
}

async fn max_sstable_size() -> Vec<Row> {
    let of_shard = async |engine: Rc<Engine>| {
        let mut largest: BTreeMap<TableId, u64> = BTreeMap::new();
        for store in engine.coordinator.context.shard.stores() {
            let of_table = largest.entry(store.table().id).or_default();
            for tablet in store.tablets().iter() {
                tablet.with_version(|version| {
                    for reader in &version.sstables {
                        *of_table = (*of_table).max(reader.meta().data_len);
                    }
                });
            }
        }
        largest
    };
    let mut largest: BTreeMap<TableId, u64> = BTreeMap::new();
    for (id, bytes) in on_all_shards(of_shard).await.into_iter().flatten() {
        let of_table = largest.entry(id).or_default();
        *of_table = (*of_table).max(bytes);
    }
    let schema = Engine::local().schema();
    let row = |(id, bytes): (TableId, u64)| {
        let table = schema.table_by_id(id)?;
        Some(vec![
            ("keyspace_name", Cell::text(&*table.keyspace)),
            ("table_name", Cell::text(&*table.name)),
            ("mebibytes", Cell::count(bytes.div_ceil(1 << 20))),
        ])
    };
    largest.into_iter().filter_map(row).collect()
}
