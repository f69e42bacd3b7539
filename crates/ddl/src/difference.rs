//! The difference of two schemas: the changes of which clients are notified, and the tables that are dropped.

use std::sync::Arc;

use schema::{Keyspace, Schema, Table, TableId};

use crate::function::{aggregate_change, function_change};
use crate::{ChangeKind, SchemaChange};

/// The way from one schema to another.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SchemaDifference {
    /// In the order in which clients are notified.
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
        let next = after.keyspaces.get(name);
        // A table keeps its name, so the one of that name is looked at.
        let survives = |table: &Table| {
            next.is_some_and(|next| next.tables.get(&table.name).is_some_and(|other| other.id == table.id))
        };
        let gone = old.tables.values().filter(|table| !survives(table));
        difference.dropped_tables.extend(gone.map(|table| table.id));
        if next.is_none() {
            // As Cassandra: drivers that keep a list of tables hear of each.
            put_dropped_tables(&mut difference.changes, old);
            put_dropped(&mut difference.changes, old, None);
            difference.changes.push(keyspace_change(ChangeKind::Dropped, name));
        }
    }
    for (name, new) in &after.keyspaces {
        let Some(old) = before.keyspaces.get(name) else {
            difference.changes.push(keyspace_change(ChangeKind::Created, name));
            for udt in new.types.keys() {
                difference.changes.push(type_change(ChangeKind::Created, name, udt));
            }
            put_functions(&mut difference.changes, None, new);
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
        // A type comes before the tables that use it, and goes after them.
        for (udt, is) in &new.types {
            match old.types.get(udt) {
                None => difference.changes.push(type_change(ChangeKind::Created, name, udt)),
                Some(was) if is != was => difference.changes.push(type_change(ChangeKind::Updated, name, udt)),
                Some(_) => {}
            }
        }
        put_functions(&mut difference.changes, Some(old), new);
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
        put_dropped(&mut difference.changes, old, Some(new));
    }
    difference
}

/// The tables of a keyspace that is dropped.
fn put_dropped_tables(changes: &mut Vec<SchemaChange>, old: &Keyspace) {
    let dropped = old.tables.keys();
    changes.extend(dropped.map(|table| table_change(ChangeKind::Dropped, &old.name, table)));
}

/// What is gone besides tables: aggregates, the functions that they called, and types.
fn put_dropped(changes: &mut Vec<SchemaChange>, old: &Keyspace, new: Option<&Keyspace>) {
    let aggregates = old.aggregates.iter();
    let gone = aggregates.filter(|(signature, _)| new.is_none_or(|new| !new.aggregates.contains_key(*signature)));
    changes.extend(gone.map(|(_, aggregate)| aggregate_change(ChangeKind::Dropped, aggregate)));
    let functions = old.functions.iter();
    let gone = functions.filter(|(signature, _)| new.is_none_or(|new| !new.functions.contains_key(*signature)));
    changes.extend(gone.map(|(_, function)| function_change(ChangeKind::Dropped, function)));
    let gone = old
        .types
        .keys()
        .filter(|udt| new.is_none_or(|new| !new.types.contains_key(*udt)));
    changes.extend(gone.map(|udt| type_change(ChangeKind::Dropped, &old.name, udt)));
}

/// Functions that are new or not as they were, then aggregates.
fn put_functions(changes: &mut Vec<SchemaChange>, old: Option<&Keyspace>, new: &Keyspace) {
    for (signature, is) in &new.functions {
        match old.and_then(|old| old.functions.get(signature)) {
            None => changes.push(function_change(ChangeKind::Created, is)),
            Some(was) if is != was => changes.push(function_change(ChangeKind::Updated, is)),
            Some(_) => {}
        }
    }
    for (signature, is) in &new.aggregates {
        match old.and_then(|old| old.aggregates.get(signature)) {
            None => changes.push(aggregate_change(ChangeKind::Created, is)),
            Some(was) if is != was => changes.push(aggregate_change(ChangeKind::Updated, is)),
            Some(_) => {}
        }
    }
}

fn type_change(change: ChangeKind, keyspace: &str, name: &str) -> SchemaChange {
    SchemaChange::Type {
        change,
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
    }
}

fn table_change(change: ChangeKind, keyspace: &str, table: &str) -> SchemaChange {
    SchemaChange::Table {
        change,
        keyspace: keyspace.to_owned(),
        table: table.to_owned(),
    }
}
