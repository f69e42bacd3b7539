//! `system.local` and `system_views.settings`: what a node says of itself.

use std::sync::Arc;

use system_tables::{Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable, ready};
use topology::NodeState;
use uuid::Uuid;

use super::info::{About, NodeInfo};

/// How the shard of a token is found; what drivers that know shards ask for.
const SHARDING_ALGORITHM: &str = "biased-token-round-robin";

/// What nodes of this release can do, by ScyllaDB's names of it: its drivers look for a name here before they ask for
/// more. `ceto cluster status` reports the features of ceto's own in which releases differ.
pub(super) const SUPPORTED_FEATURES: &str = "COUNTERS_WITH_TABLETS,LWT_WITH_TABLETS,RACK_LIST_RF,TABLETS,TABLET_MERGE,\
    TABLET_OPTIONS,TYPED_ERRORS_IN_READ_RPC,WRITETIME_TTL_INDIVIDUAL_ELEMENT";

static LOCAL: Definition = Definition {
    keyspace: "system",
    cql: "local (key text PRIMARY KEY, bootstrapped text, broadcast_address inet, broadcast_port int, \
     cluster_name text, cql_version text, data_center text, gossip_generation int, host_id uuid, listen_address inet, \
     listen_port int, native_protocol_version text, partitioner text, rack text, release_version text, \
     rpc_address inet, rpc_port int, schema_version uuid, supported_features text, tokens set<text>, \
     truncated_at map<uuid, blob>, \
     scylla_cpu_sharding_algorithm text, scylla_nr_shards int, scylla_msb_ignore int)",
    options: Options::NO_GRACE,
};

static SETTINGS: Definition = Definition {
    keyspace: "system_views",
    cql: "settings (name text PRIMARY KEY, value text)",
    options: Options::USUAL,
};

/// `system.local`.
pub(super) struct Local(pub(super) Arc<About>);

/// `system_views.settings`. A partition is a setting.
pub(super) struct Settings(pub(super) Arc<About>);

impl VirtualTable for Local {
    fn definition(&self) -> &'static Definition {
        &LOCAL
    }

    fn open(&self, request: Request) -> Opening<'_> {
        ready(LocalContent {
            node: self.0.info(),
            schema_version: request.schema.version,
        })
    }
}

struct LocalContent {
    node: Arc<NodeInfo>,
    schema_version: Uuid,
}

impl Content for LocalContent {
    fn partitions(&self, partitions: &mut Partitions) {
        partitions.add(0, &[Value::Text("local")]);
    }

    fn rows(&self, _: usize, rows: &mut Rows<'_>) {
        let node = &self.node;
        let bootstrapped = match node.state {
            NodeState::Joining => "IN_PROGRESS",
            NodeState::Normal | NodeState::Leaving => "COMPLETED",
            NodeState::Left => "DECOMMISSIONED",
        };
        rows.push(&[
            ("key", Value::Text("local")),
            ("bootstrapped", Value::Text(bootstrapped)),
            ("broadcast_address", Value::Inet(node.broadcast_address)),
            ("broadcast_port", Value::Int(i32::from(node.storage_port))),
            ("cluster_name", Value::Text(&node.cluster_name)),
            ("cql_version", Value::Text(&node.cql_version)),
            ("data_center", Value::Text(&node.data_center)),
            ("gossip_generation", Value::Int(node.gossip_generation)),
            ("host_id", Value::Uuid(node.host_id)),
            ("listen_address", Value::Inet(node.listen_address)),
            ("listen_port", Value::Int(i32::from(node.storage_port))),
            ("native_protocol_version", Value::Text(&node.native_protocol_version)),
            ("partitioner", Value::Text(&node.partitioner)),
            ("rack", Value::Text(&node.rack)),
            ("release_version", Value::Text(&node.release_version)),
            ("rpc_address", Value::Inet(node.rpc_address)),
            ("rpc_port", Value::Int(i32::from(node.port))),
            ("schema_version", Value::Uuid(self.schema_version)),
            ("supported_features", Value::Text(SUPPORTED_FEATURES)),
            ("tokens", Value::Texts(node.tokens.iter().map(String::as_str).collect())),
            ("truncated_at", Value::Null),
            ("scylla_cpu_sharding_algorithm", Value::Text(SHARDING_ALGORITHM)),
            ("scylla_nr_shards", Value::count(node.shards)),
            ("scylla_msb_ignore", Value::Int(i32::from(node.shard_bits_ignored))),
        ]);
    }
}

impl VirtualTable for Settings {
    fn definition(&self) -> &'static Definition {
        &SETTINGS
    }

    fn open(&self, request: Request) -> Opening<'_> {
        let info = self.0.info();
        let wanted = info
            .settings
            .iter()
            .filter(|(name, _)| request.wanted.includes(name.as_bytes()));
        ready(SettingsContent(
            wanted.map(|(name, value)| (name.clone(), value.clone())).collect(),
        ))
    }
}

struct SettingsContent(Vec<(String, Option<String>)>);

impl Content for SettingsContent {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, (name, _)) in self.0.iter().enumerate() {
            partitions.add(number, &[Value::Text(name)]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let (name, value) = &self.0[partition];
        rows.push(&[("name", Value::Text(name)), ("value", Value::text(value.as_deref()))]);
    }
}
