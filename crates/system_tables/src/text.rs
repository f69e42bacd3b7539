//! Rows of a virtual table as text, for tests.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use mutation::row::{Column as PackedColumn, RowView};
use schema::{ColumnKind, Schema, Table, components};
use types::CqlType;

use crate::reader::{BlockLimits, Reader};
use crate::virtual_table::{Request, VirtualTable, Wanted};

/// A row's columns in the order of SELECT *, each with its value as a literal.
pub type NamedRow = Vec<(String, String)>;

/// All rows of a table, those of the schema's definition of it, in the order in which a scan reads them.
///
/// # Panics
/// When the table waits for its facts, or a row is not well-formed.
#[must_use]
pub fn rows_of(source: &dyn VirtualTable, schema: &Arc<Schema>) -> Vec<NamedRow> {
    let definition = source.definition();
    let table = schema.table(definition.keyspace, definition.name());
    let table = table.map_or_else(|| Arc::new(definition.table()), Arc::clone);
    let request = Request {
        schema: schema.clone(),
        wanted: Wanted::ALL,
    };
    let opening = pin!(Reader::open(source, table.clone(), request, 5));
    let Poll::Ready(reader) = opening.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("{}.{} waits for its facts", definition.keyspace, definition.name());
    };
    let limits = BlockLimits {
        rows: 2,
        bytes: 1 << 20,
    };
    let mut blocks = reader.scan((types::Token(i64::MIN), Vec::new()), limits);
    let mut rows = Vec::new();
    while let Some(block) = blocks.next_block() {
        for (clustering, view) in block.rows() {
            rows.push(named_row(&table, block.key(), clustering, view));
        }
    }
    rows
}

fn named_row(table: &Table, key: &[u8], clustering: &[u8], view: RowView<'_>) -> NamedRow {
    let mut key = key_parts(table, key).into_iter();
    let mut clustering = components(clustering);
    let value = |column: &schema::Column| match column.kind {
        ColumnKind::PartitionKey => column.cql_type.format(key.next().expect("a whole partition key")),
        ColumnKind::Clustering => column
            .cql_type
            .format(clustering.next().flatten().expect("a whole clustering key")),
        ColumnKind::Static | ColumnKind::Regular => {
            let id = usize::from(column.id.0);
            let packed = view.columns(&table.layout).find(|(packed, _)| *packed == id);
            packed.map_or_else(|| "null".to_owned(), |(_, packed)| cell(&column.cql_type, &packed))
        }
    };
    let names = table.columns.iter().map(|column| column.name.clone());
    names.zip(table.columns.iter().map(value)).collect()
}

fn cell(cql_type: &CqlType, packed: &PackedColumn<'_>) -> String {
    match (packed, cql_type) {
        (PackedColumn::Simple(cell), _) => cql_type.format(cell.value),
        (PackedColumn::Complex(complex), CqlType::Set(element)) => {
            let elements = complex.elements().map(|(path, _)| element.format(path));
            format!("{{{}}}", elements.collect::<Vec<_>>().join(", "))
        }
        (PackedColumn::Complex(complex), CqlType::Map(key, value)) => {
            let elements = complex.elements();
            let pairs = elements.map(|(path, cell)| format!("{}: {}", key.format(path), value.format(cell.value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        (PackedColumn::Complex(_), _) => panic!("sets and maps are computed in cells, not {cql_type}"),
    }
}

/// The values of the partition key columns.
fn key_parts<'k>(table: &Table, key: &'k [u8]) -> Vec<&'k [u8]> {
    if table.partition_key().count() == 1 {
        return vec![key];
    }
    let mut parts = Vec::new();
    let mut rest = key;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (part, behind) = behind.split_at(usize::from(u16::from_be_bytes(*length)));
        parts.push(part);
        rest = &behind[1..];
    }
    parts
}
