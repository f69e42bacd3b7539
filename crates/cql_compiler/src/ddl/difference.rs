//! What is different between two schemas: what clients are told, and what goes.

use std::sync::Arc;

use schema::{Schema, TableId};

use super::{ChangeKind, SchemaChange};

/// The way from one schema to another.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SchemaDifference {
    /// In the order in which clients are told.
    pub changes: Vec<SchemaChange>,
    /// Tables of the first that the second does not have.
    pub dropped_tables: Vec<TableId>,
}

/// Compares two schemas.
#[must_use]
pub fn schema_difference(before: &Schema, after: &Schema) -> SchemaDifference {
    let mut difference = SchemaDifference::default();
    let keyspace_change = |change, name: &str| SchemaChange::Keyspace {
        change,
        keyspace: name.to_owned(),
    };
    for (name, old) in &before.keyspaces {
        let tables = old.tables.values();
        let survives = |id: TableId| {
            after
                .keyspaces
                .get(name)
                .is_some_and(|k| k.tables.values().any(|t| t.id == id))
        };
        difference
            .dropped_tables
            .extend(tables.map(|t| t.id).filter(|id| !survives(*id)));
        if !after.keyspaces.contains_key(name) {
            difference.changes.push(keyspace_change(ChangeKind::Dropped, name));
        }
    }
    for (name, new) in &after.keyspaces {
        let Some(old) = before.keyspaces.get(name) else {
            difference.changes.push(keyspace_change(ChangeKind::Created, name));
            for table in new.tables.keys() {
                difference.changes.push(table_change(ChangeKind::Created, name, table));
            }
            continue;
        };
        if Arc::ptr_eq(old, new) {
            continue;
        }
        if (&old.replication, old.durable_writes) != (&new.replication, new.durable_writes) {
            difference.changes.push(keyspace_change(ChangeKind::Updated, name));
        }
        for (table, was) in &old.tables {
            match new.tables.get(table) {
                None => difference.changes.push(table_change(ChangeKind::Dropped, name, table)),
                Some(is) if is.id != was.id => {
                    difference.changes.push(table_change(ChangeKind::Dropped, name, table));
                    difference.changes.push(table_change(ChangeKind::Created, name, table));
                }
                Some(is) if !Arc::ptr_eq(is, was) && is != was => {
                    difference.changes.push(table_change(ChangeKind::Updated, name, table));
                }
                Some(_) => {}
            }
        }
        for table in new.tables.keys().filter(|t| !old.tables.contains_key(*t)) {
            difference.changes.push(table_change(ChangeKind::Created, name, table));
        }
    }
    difference
}

fn table_change(change: ChangeKind, keyspace: &str, table: &str) -> SchemaChange {
    SchemaChange::Table {
        change,
        keyspace: keyspace.to_owned(),
        table: table.to_owned(),
    }
}
