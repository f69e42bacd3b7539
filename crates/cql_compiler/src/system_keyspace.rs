//! The keyspaces that every node has, and how statements may touch them.

use schema::Table;

/// How a keyspace of the node's own may be touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemKeyspace {
    /// Each node has its own; nobody may change it.
    Local,
    /// Stored as others are; its replication may be altered.
    Replicated,
}

/// Keyspaces and the replication factor of those that are replicated.
pub const SYSTEM_KEYSPACES: [(&str, SystemKeyspace, &str); 7] = [
    ("system", SystemKeyspace::Local, ""),
    ("system_auth", SystemKeyspace::Replicated, "1"),
    ("system_distributed", SystemKeyspace::Replicated, "3"),
    ("system_schema", SystemKeyspace::Local, ""),
    ("system_traces", SystemKeyspace::Replicated, "2"),
    ("system_views", SystemKeyspace::Local, ""),
    ("system_virtual_schema", SystemKeyspace::Local, ""),
];

/// What kind of system keyspace has this name; None for a user's.
pub fn system_keyspace(name: &str) -> Option<SystemKeyspace> {
    let found = SYSTEM_KEYSPACES.iter().find(|(known, ..)| *known == name);
    found.map(|(_, kind, _)| *kind)
}

/// Whether the table is each node's own.
pub(crate) fn is_local(table: &Table) -> bool {
    system_keyspace(&table.keyspace) == Some(SystemKeyspace::Local)
}
