//! What a node does so that its replicas have all that they should, and no more.
//!
//! - [`repairs`] decide which ranges of which tables are made equal on their replicas, when, and with which of them.
//! - [`copies`] bring the data of ranges from other nodes: of those that move here, and of those that a node has lost.
//! - [`cleanup`] removes what a node has of ranges that are not its own any more.
//! - [`row_expiry`] deletes the rows that a column of their own says have expired.
//!
//! The crates `repair`, `streaming` and `query` do the work on one range; this one chooses the ranges. It knows the
//! options of a node as values that it is given, and operators by the tasks that they start.

pub mod cleanup;
pub mod copies;
pub mod local_rows;
pub mod repairs;
pub mod row_expiry;

use std::sync::Arc;

use query::Engine;
use schema::Table;

/// The tables that upkeep is for: those of users that several nodes have, in the order of their names.
fn tables_of_users(engine: &Engine) -> Vec<Arc<Table>> {
    let schema = engine.schema();
    let keyspaces = schema.keyspaces.values();
    let of_users = keyspaces.filter(|keyspace| system_tables::kind(&keyspace.name).is_none());
    of_users
        .flat_map(|keyspace| keyspace.tables.values().cloned())
        .collect()
}

/// The second since the epoch of a wall clock's microsecond.
fn second(us: i64) -> u32 {
    u32::try_from(us / 1_000_000).unwrap_or(0)
}
