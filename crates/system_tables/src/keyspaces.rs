//! The keyspaces of system tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{Keyspace, Table};

/// Keyspaces, and the replication factor of the replicated ones.
const KEYSPACES: [(&str, KeyspaceKind, &str); 7] = [
    ("system", KeyspaceKind::Local, ""),
    ("system_auth", KeyspaceKind::Replicated, "1"),
    ("system_distributed", KeyspaceKind::Replicated, "3"),
    ("system_schema", KeyspaceKind::Local, ""),
    ("system_traces", KeyspaceKind::Replicated, "2"),
    ("system_views", KeyspaceKind::Local, ""),
    ("system_virtual_schema", KeyspaceKind::Local, ""),
];

/// How users may change a system keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyspaceKind {
    /// Each node has its own; users cannot change it.
    Local,
    /// Stored like users' keyspaces; users may alter its replication.
    Replicated,
}

/// The kind of the system keyspace with this name; None for a user's keyspace.
#[must_use]
pub fn kind(keyspace: &str) -> Option<KeyspaceKind> {
    let mut keyspaces = KEYSPACES.iter();
    keyspaces.find(|(name, ..)| *name == keyspace).map(|(_, kind, _)| *kind)
}

/// The system keyspaces with these tables, by keyspace and name.
pub(crate) fn with_tables(mut tables: BTreeMap<String, BTreeMap<String, Arc<Table>>>) -> Vec<Keyspace> {
    let keyspaces = KEYSPACES.iter().map(|(name, kind, factor)| {
        let replication: &[(&str, &str)] = match kind {
            KeyspaceKind::Local => &[("class", "org.apache.cassandra.locator.LocalStrategy")],
            KeyspaceKind::Replicated => &[
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
            types: BTreeMap::new(),
            functions: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            tables: tables.remove(*name).unwrap_or_default(),
        }
    });
    keyspaces.collect()
}
