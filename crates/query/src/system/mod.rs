//! The keyspaces that every node has: what they look like, and what is in those that are computed.
//!
//! The definitions stand in `tables.cql` and are those of Cassandra 4.1, so that drivers and cqlsh find what they ask
//! for; `system.clients`, `system.cluster_status` and `system.tablets` are ScyllaDB's. A table's id is the name-based UUID of its keyspace's and its own name, as in Cassandra: the same on every node
//! and in every release. Tables of [`SystemKeyspace::Local`] keyspaces are *virtual*: nothing of them is stored, and
//! [`contents`] computes their rows from the schema and the node at the moment of the read. Those of
//! [`SystemKeyspace::Replicated`] keyspaces are ordinary tables.

mod clients;
mod content;
mod node;
mod peer;
mod rows;
mod tablets;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock};

use cql::ast::Statement;
use cql_compiler::SYSTEM_KEYSPACES;
use schema::{Keyspace, Schema, Table, TableId};
use uuid::{Builder, Uuid};

use crate::ddl;

pub use cql_compiler::{SystemKeyspace, system_keyspace as kind};

pub use clients::{Client, Clients, Listed};
pub use content::contents;
pub use node::{ClientInfo, NodeInfo};
pub use peer::PeerInfo;

const DEFINITIONS: &str = include_str!("tables.cql");

/// The definitions of all system keyspaces.
pub fn keyspaces() -> Vec<Keyspace> {
    let mut tables: BTreeMap<String, BTreeMap<String, Arc<Table>>> = BTreeMap::new();
    for text in DEFINITIONS.split(';').filter(|t| !t.trim().is_empty()) {
        let table = define(text);
        tables
            .entry(table.keyspace.clone())
            .or_default()
            .insert(table.name.clone(), Arc::new(table));
    }
    SYSTEM_KEYSPACES
        .iter()
        .map(|(name, kind, factor)| {
            let replication: &[(&str, &str)] = match kind {
                SystemKeyspace::Local => &[("class", "org.apache.cassandra.locator.LocalStrategy")],
                SystemKeyspace::Replicated => &[
                    ("class", "org.apache.cassandra.locator.SimpleStrategy"),
                    ("replication_factor", factor),
                ],
            };
            Keyspace {
                name: (*name).to_owned(),
                replication: replication
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
                durable_writes: true,
                tablets: None,
                tables: tables.remove(*name).expect("every system keyspace has tables"),
            }
        })
        .collect()
}

/// A schema that came from elsewhere, with this release's definitions of the keyspaces that each node has for itself.
pub fn with_system_keyspaces(schema: &Schema) -> Schema {
    let mut schema = schema.clone();
    for keyspace in keyspaces() {
        let is_local = kind(&keyspace.name) == Some(SystemKeyspace::Local);
        if is_local || !schema.keyspaces.contains_key(&keyspace.name) {
            schema.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        }
    }
    schema
}

fn define(text: &str) -> Table {
    let parsed = cql::parse(text).expect("the definitions of system tables are CQL");
    let Statement::CreateTable(statement) = parsed.statement else {
        panic!("the definitions of system tables are CREATE TABLE statements, not {text}");
    };
    let keyspace = statement
        .table
        .keyspace
        .as_deref()
        .expect("system tables are named with their keyspace");
    let id = table_id(keyspace, &statement.table.name);
    ddl::define(keyspace, &statement, id).expect("the definitions of system tables are valid")
}

/// The id of a system table.
fn table_id(keyspace: &str, table: &str) -> TableId {
    let digest = md5::compute([keyspace.as_bytes(), table.as_bytes()].concat());
    TableId(Builder::from_md5_bytes(digest.0).into_uuid())
}

/// Whether the table tells who is connected, which changes while nothing else does.
pub fn is_of_clients(table: &Table) -> bool {
    table.name == "clients" && kind(&table.keyspace) == Some(SystemKeyspace::Local)
}

/// Whether the table's content is computed, not stored.
pub fn is_virtual(table: TableId) -> bool {
    static VIRTUAL: LazyLock<HashSet<Uuid>> = LazyLock::new(|| {
        let local = keyspaces()
            .into_iter()
            .filter(|k| kind(&k.name) == Some(SystemKeyspace::Local));
        local.flat_map(|k| k.tables.into_values()).map(|t| t.id.0).collect()
    });
    // Only name-based ids can be of system tables: a bit test answers for nearly all others.
    table.0.get_version_num() == 3 && VIRTUAL.contains(&table.0)
}
