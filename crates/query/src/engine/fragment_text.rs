//! What a fragment says, as the JSON texts of ScyllaDB's `dump-data`: times and kinds apart from values.

use mutation::row::Complex;
use mutation::{Cell, Column, RowView, Tombstone};
use schema::Table;
use serde_json::{Map, Value, json};
use types::CqlType;

/// `{}` for none.
pub(super) fn tombstone_text(tombstone: Tombstone) -> String {
    of_tombstone(tombstone).to_string()
}

fn of_tombstone(tombstone: Tombstone) -> Value {
    if tombstone.is_none() {
        json!({})
    } else {
        json!({"timestamp": tombstone.timestamp, "deletion_time": time(tombstone.deletion_time)})
    }
}

/// Seconds since the epoch.
fn time(seconds: u32) -> String {
    CqlType::Timestamp.format_unquoted(&(i64::from(seconds) * 1000).to_be_bytes())
}

/// Marker, deletion and cells of a row, without their values.
pub(super) fn metadata_of_row(table: &Table, row: &RowView<'_>) -> String {
    let mut out = Map::new();
    if !row.tombstone.is_none() {
        out.insert("tombstone".to_owned(), of_tombstone(row.tombstone));
    }
    if let Some(marker) = row.marker {
        let mut text = json!({"timestamp": marker.timestamp});
        put_expiry(&mut text, marker.ttl, marker.expiry);
        out.insert("marker".to_owned(), text);
    }
    out.insert("columns".to_owned(), columns(table, row, &metadata));
    Value::Object(out).to_string()
}

/// The cells of a static row, without their values.
pub(super) fn metadata_of_static(table: &Table, row: &RowView<'_>) -> String {
    columns(table, row, &metadata).to_string()
}

/// The values of a row.
pub(super) fn values(table: &Table, row: &RowView<'_>) -> String {
    columns(table, row, &value).to_string()
}

fn columns(table: &Table, row: &RowView<'_>, text: &dyn Fn(&CqlType, &Column<'_>) -> Option<Value>) -> Value {
    let mut out = Map::new();
    for (id, column) in row.columns(&table.layout) {
        let of_id = table.columns.iter().find(|c| usize::from(c.id.0) == id);
        if let Some(c) = of_id
            && let Some(text) = text(&c.cql_type, &column)
        {
            out.insert(c.name.clone(), text);
        }
    }
    Value::Object(out)
}

fn metadata(cql_type: &CqlType, column: &Column<'_>) -> Option<Value> {
    Some(match column {
        Column::Simple(cell) if cql_type.is_collection() => of_cell(cell, "frozen-collection"),
        Column::Simple(cell) => of_cell(cell, "regular"),
        Column::Complex(shards) if cql_type.is_counter() => {
            let written = shards.elements().map(|(_, cell)| cell.timestamp).max();
            json!({"is_live": true, "type": "counter-shards", "timestamp": written})
        }
        Column::Complex(complex) => {
            let cells = complex.elements();
            let cells =
                cells.map(|(path, cell)| json!({"key": key(cql_type, path), "value": of_cell(&cell, "regular")}));
            let mut text = json!({"type": "collection", "cells": cells.collect::<Vec<_>>()});
            if !complex.tombstone.is_none() {
                text["tombstone"] = of_tombstone(complex.tombstone);
            }
            text
        }
    })
}

fn of_cell(cell: &Cell<'_>, kind: &str) -> Value {
    let mut text = json!({"is_live": !cell.dead, "type": kind, "timestamp": cell.timestamp});
    if cell.dead {
        text["deletion_time"] = time(cell.deletion_time).into();
    } else {
        put_expiry(&mut text, cell.ttl, cell.deletion_time);
    }
    text
}

fn put_expiry(text: &mut Value, ttl: u32, expiry: u32) {
    if ttl > 0 {
        text["ttl"] = format!("{ttl}s").into();
        text["expiry"] = time(expiry).into();
    }
}

fn value(cql_type: &CqlType, column: &Column<'_>) -> Option<Value> {
    match column {
        Column::Simple(cell) => (!cell.dead).then(|| cql_type.format_unquoted(cell.value).into()),
        Column::Complex(shards) if cql_type.is_counter() => Some(of_shards(shards)),
        Column::Complex(complex) => {
            let living = complex.elements().filter(|(_, cell)| !cell.dead);
            let cells = living.map(|(path, cell)| {
                let value = element_type(cql_type, path).format_unquoted(cell.value);
                json!({"key": key(cql_type, path), "value": value})
            });
            Some(cells.collect())
        }
    }
}

fn of_shards(shards: &Complex<'_>) -> Value {
    let of_shard = |(path, cell): (&[u8], Cell<'_>)| {
        let value = cell.value.try_into().map_or(0, i64::from_be_bytes);
        json!({"id": CqlType::Uuid.format_unquoted(path), "value": value, "clock": cell.timestamp})
    };
    shards.elements().map(of_shard).collect()
}

/// How an element is named: by its key, its value in a set, its cell's name in a list, or its field.
fn key(cql_type: &CqlType, path: &[u8]) -> String {
    match cql_type {
        CqlType::List(_) => CqlType::TimeUuid.format_unquoted(path),
        CqlType::Set(t) | CqlType::Map(t, _) => t.format_unquoted(path),
        CqlType::Udt(udt) => {
            let number = path.try_into().map(u16::from_be_bytes).ok();
            let field = number.and_then(|n| udt.fields.get(usize::from(n)));
            field.map_or_else(|| CqlType::Blob.format_unquoted(path), |(name, _)| name.clone())
        }
        _ => CqlType::Blob.format_unquoted(path),
    }
}

fn element_type(cql_type: &CqlType, path: &[u8]) -> CqlType {
    match cql_type {
        CqlType::List(t) | CqlType::Map(_, t) => (**t).clone(),
        CqlType::Udt(udt) => {
            let number = path.try_into().map(u16::from_be_bytes).ok();
            let field = number.and_then(|n| udt.fields.get(usize::from(n)));
            field.map_or(CqlType::Blob, |(_, t)| t.clone())
        }
        _ => CqlType::Blob,
    }
}
