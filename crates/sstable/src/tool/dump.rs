//! A file's partitions as JSON, item by item in the order of the file, in the format of `sstabledump`.

use std::io::Write;
use std::path::Path;

use mutation::row::Complex;
use mutation::{BoundKind, Cell, Column, RowView, Tombstone};
use schema::{ColumnKind, Table, components};
use types::{CqlType, UdtType};

use super::json;
use crate::data::chunks::Chunks;
use crate::data::clustering::kind;
use crate::data::decode::{ItemKind, RowDecoder, Stop, item_head, marker_deletions, partition_head};
use crate::data::window::Window;
use crate::directory::component::Component;
use crate::error::{Damage, Error};
use crate::read::reader::Reader;

/// Writes the partitions of the sstable that `path` is a component of. `now` (seconds since the epoch) says what has
/// expired.
///
/// # Errors
/// When the sstable is damaged, or `out` refuses.
pub fn dump(path: &Path, now: u32, out: &mut dyn Write) -> Result<(), Error> {
    let (reader, table) = super::open(path)?;
    let mut walk = Walk {
        reader: &reader,
        table: &table,
        now,
        window: Window::default(),
        raw: Vec::new(),
    };
    walk.window.seek(0, &reader.data);
    let mut put = |text: &str| out.write_all(text.as_bytes()).map_err(Error::io(Path::new("output")));
    put("[")?;
    let mut is_first = true;
    while walk.window.position() < reader.data.len() {
        put(if is_first { "\n" } else { ",\n" })?;
        is_first = false;
        walk.partition(&mut put)?;
    }
    put("\n]\n")
}

struct Walk<'r> {
    reader: &'r Reader,
    table: &'r Table,
    now: u32,
    window: Window,
    raw: Vec<u8>,
}

impl Walk<'_> {
    fn fetch(&mut self, n: usize) -> Result<(), Error> {
        let data: &Chunks = &self.reader.data;
        let wanted = self.window.want(n, data)?;
        self.window.compact();
        let len = self.window.bytes.len() + wanted;
        while self.window.bytes.len() < len {
            let next = self.window.next_chunk;
            self.window.next_chunk += data.read_blocking(next, 1 << 18, &mut self.raw, &mut self.window.bytes)?;
        }
        Ok(())
    }

    /// Decodes at the window's place, fetching what is missing.
    fn decode<T>(&mut self, mut f: impl FnMut(&[u8]) -> Result<T, Stop>) -> Result<T, Error> {
        loop {
            match f(self.window.rest()) {
                Ok(t) => return Ok(t),
                Err(Stop::More(n)) => self.fetch(n)?,
                Err(Stop::Damage(d)) => return Err(self.damage(d)),
            }
        }
    }

    fn damage(&self, d: Damage) -> Error {
        d.in_file(&self.reader.descriptor().path(Component::Data), self.window.position())
    }

    fn partition(&mut self, put: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
        let head = self.decode(partition_head)?;
        let key_types = &self.reader.meta().statistics.header.partition_key;
        let key = json::key(key_types, &self.window.rest()[head.key.clone()]);
        let start = self.window.position();
        self.window.consume(head.len);
        let kind = if self.table.is_counter() { "COUNTER" } else { "REGULAR" };
        put(&format!(
            "  {{\n    \"table kind\" : \"{kind}\",\n    \"partition\" : {{\n      \"key\" : {key},\n      \"position\" : {start}"
        ))?;
        if !head.tombstone.is_none() {
            put(&format!(",\n      \"deletion_info\" : {}", deletion(head.tombstone)))?;
        }
        put("\n    },\n    \"rows\" : [")?;
        let mut is_first = true;
        let mut open: Option<Tombstone> = None;
        let mut clustering = Vec::new();
        let format = self.reader.shape.format.clone();
        loop {
            let item = self.decode(|bytes| item_head(&format, bytes, &mut clustering))?;
            let text = match item.kind {
                ItemKind::End => {
                    if open.is_some() {
                        return Err(self.damage(Damage::new(0, "the end of a range tombstone")));
                    }
                    self.window.consume(1);
                    put(if is_first { " ]\n  }" } else { "\n    ]\n  }" })?;
                    return Ok(());
                }
                ItemKind::StaticRow | ItemKind::Row => {
                    let mut rows = RowDecoder::default();
                    let rest = self.window.rest();
                    rows.read(&format, &self.table.layout, rest, &item)
                        .map_err(|d| self.damage(d))?;
                    if item.kind == ItemKind::StaticRow && rows.is_empty() {
                        String::new()
                    } else {
                        let mut packed = Vec::new();
                        rows.pack(&self.table.layout, rest, &mut packed);
                        let row = RowView::new(&packed).expect("just packed");
                        self.row(&row, (item.kind == ItemKind::Row).then_some(&clustering))
                    }
                }
                ItemKind::Marker { kind, side } => {
                    let deletions =
                        marker_deletions(&format, self.window.rest(), &item, kind).map_err(|d| self.damage(d))?;
                    if open != deletions.ends {
                        let expected = if open.is_some() {
                            "the end of the range tombstone that is open"
                        } else {
                            "the start of a range tombstone"
                        };
                        return Err(self.damage(Damage::new(0, expected)));
                    }
                    open = deletions.begins;
                    self.marker(kind, side, &clustering, deletions.begins, deletions.ends)
                }
            };
            self.window.consume(item.body.end);
            if !text.is_empty() {
                put(if is_first { "\n" } else { ",\n" })?;
                put(&text)?;
                is_first = false;
            }
        }
    }

    fn row(&self, row: &RowView<'_>, clustering: Option<&Vec<u8>>) -> String {
        let mut fields = Vec::new();
        let kind = if clustering.is_some() { "row" } else { "static_block" };
        fields.push(format!("\"type\" : \"{kind}\""));
        fields.push(format!("\"position\" : {}", self.window.position()));
        if let Some(key) = clustering
            && !key.is_empty()
        {
            let values: Vec<String> = components(key)
                .zip(self.table.clustering())
                .map(|(v, c)| component(&c.cql_type, v))
                .collect();
            fields.push(format!("\"clustering\" : [ {} ]", values.join(", ")));
        }
        if let Some(m) = row.marker {
            let mut text = format!("\"tstamp\" : {}", json::quoted(&json::micros(m.timestamp)));
            if m.ttl > 0 {
                text.push_str(&self.ttl(m.ttl, m.expiry));
            }
            fields.push(format!("\"liveness_info\" : {{ {text} }}"));
        }
        if !row.tombstone.is_none() {
            fields.push(format!("\"deletion_info\" : {}", deletion(row.tombstone)));
        }
        let mut cells = Vec::new();
        // Simple columns come before multi-cell ones, as in the file.
        for wants_complex in [false, true] {
            for (id, column) in row.columns(&self.table.layout) {
                let Some(c) = self.column(id) else { continue };
                match column {
                    Column::Simple(cell) if !wants_complex => {
                        cells.push(self.cell(&c.name, &c.cql_type, None, &cell, row))
                    }
                    Column::Complex(counter) if c.cql_type.is_counter() && !wants_complex => {
                        cells.push(self.counter(&c.name, &counter, row));
                    }
                    Column::Complex(complex) if wants_complex && !c.cql_type.is_counter() => {
                        if !complex.tombstone.is_none() {
                            cells.push(format!(
                                "{{ \"name\" : {}, \"deletion_info\" : {} }}",
                                json::quoted(&c.name),
                                deletion(complex.tombstone)
                            ));
                        }
                        for (path, cell) in complex.elements() {
                            let (path, value_type) = element(&c.cql_type, path);
                            cells.push(self.cell(&c.name, &value_type, Some(&path), &cell, row));
                        }
                    }
                    _ => {}
                }
            }
        }
        if cells.is_empty() {
            fields.push("\"cells\" : [ ]".to_owned());
        } else {
            fields.push(format!(
                "\"cells\" : [\n          {}\n        ]",
                cells.join(",\n          ")
            ));
        }
        format!("      {{\n        {}\n      }}", fields.join(",\n        "))
    }

    fn column(&self, id: usize) -> Option<&schema::Column> {
        let is_cell = |k| matches!(k, ColumnKind::Static | ColumnKind::Regular);
        self.table
            .columns
            .iter()
            .find(|c| is_cell(c.kind) && usize::from(c.id.0) == id)
    }

    /// A counter as one cell: its sum at the time of the last addition, or its deletion.
    fn counter(&self, name: &str, counter: &Complex<'_>, row: &RowView<'_>) -> String {
        let added = counter
            .elements()
            .map(|(_, cell)| cell.value.try_into().map_or(0, i64::from_be_bytes));
        let sum = added.fold(0, i64::wrapping_add).to_be_bytes();
        let last = counter.elements().map(|(_, cell)| cell.timestamp).max();
        let cell = Cell {
            timestamp: last.unwrap_or(counter.tombstone.timestamp),
            ttl: 0,
            deletion_time: counter.tombstone.deletion_time,
            dead: last.is_none(),
            value: &sum,
        };
        self.cell(name, &CqlType::Counter, None, &cell, row)
    }

    fn ttl(&self, ttl: u32, expiry: u32) -> String {
        let expires_at = json::quoted(&json::seconds(expiry));
        format!(
            ", \"ttl\" : {ttl}, \"expires_at\" : {expires_at}, \"expired\" : {}",
            expiry <= self.now
        )
    }

    fn cell(&self, name: &str, cql_type: &CqlType, path: Option<&str>, cell: &Cell<'_>, row: &RowView<'_>) -> String {
        let mut out = format!("{{ \"name\" : {}", json::quoted(name));
        if let Some(path) = path {
            out.push_str(&format!(", \"path\" : [ {path} ]"));
        }
        if cell.dead {
            let time = json::quoted(&json::seconds(cell.deletion_time));
            out.push_str(&format!(", \"deletion_info\" : {{ \"local_delete_time\" : {time} }}"));
        } else {
            out.push_str(&format!(", \"value\" : {}", json::value(cql_type, cell.value)));
        }
        if row.marker.is_none_or(|m| m.timestamp != cell.timestamp) {
            out.push_str(&format!(
                ", \"tstamp\" : {}",
                json::quoted(&json::micros(cell.timestamp))
            ));
        }
        if !cell.dead && cell.ttl > 0 && row.marker.is_none_or(|m| m.ttl != cell.ttl) {
            out.push_str(&self.ttl(cell.ttl, cell.deletion_time));
        }
        out.push_str(" }");
        out
    }

    fn marker(
        &self,
        kind: u8,
        side: BoundKind,
        prefix: &[u8],
        begins: Option<Tombstone>,
        ends: Option<Tombstone>,
    ) -> String {
        let total = self.table.clustering().count();
        let mut values: Vec<String> = components(prefix)
            .zip(self.table.clustering())
            .map(|(v, c)| component(&c.cql_type, v))
            .collect();
        if !values.is_empty() {
            values.resize(total, "\"*\"".to_owned());
        }
        let edge = |name: &str, inclusive: bool, t: Tombstone| {
            let how = if inclusive { "inclusive" } else { "exclusive" };
            let clustering = if values.is_empty() {
                String::new()
            } else {
                format!("\n          \"clustering\" : [ {} ],", values.join(", "))
            };
            format!(
                "        \"{name}\" : {{\n          \"type\" : \"{how}\",{clustering}\n          \"deletion_info\" : {}\n        }}",
                deletion(t)
            )
        };
        let mut edges = Vec::new();
        edges.extend(begins.map(|t| edge("start", side == BoundKind::Before, t)));
        edges.extend(ends.map(|t| edge("end", side == BoundKind::After, t)));
        let is_boundary = matches!(kind, kind::EXCL_END_INCL_START | kind::INCL_END_EXCL_START);
        let what = if is_boundary {
            "range_tombstone_boundary"
        } else {
            "range_tombstone_bound"
        };
        format!(
            "      {{\n        \"type\" : \"{what}\",\n{}\n      }}",
            edges.join(",\n")
        )
    }
}

fn component(cql_type: &CqlType, component: Option<&[u8]>) -> String {
    component.map_or_else(|| "null".to_owned(), |component| json::value(cql_type, component))
}

fn deletion(t: Tombstone) -> String {
    format!(
        "{{ \"marked_deleted\" : {}, \"local_delete_time\" : {} }}",
        json::quoted(&json::micros(t.timestamp)),
        json::quoted(&json::seconds(t.deletion_time))
    )
}

/// The path of an element as JSON, and the type of its value.
fn element(cql_type: &CqlType, path: &[u8]) -> (String, CqlType) {
    match cql_type {
        CqlType::List(t) => (json::text(&CqlType::TimeUuid, path), (**t).clone()),
        CqlType::Set(t) => (json::text(t, path), CqlType::Empty),
        CqlType::Map(k, t) => (json::text(k, path), (**t).clone()),
        CqlType::Udt(udt) => field(udt, path),
        _ => (json::text(&CqlType::Blob, path), CqlType::Blob),
    }
}

fn field(udt: &UdtType, path: &[u8]) -> (String, CqlType) {
    let number = path.try_into().map(u16::from_be_bytes).ok();
    match number.and_then(|n| udt.fields.get(usize::from(n))) {
        Some((name, t)) => (json::quoted(name), t.clone()),
        None => (json::text(&CqlType::Blob, path), CqlType::Blob),
    }
}
