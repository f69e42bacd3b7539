//! ScyllaDB's `SELECT … FROM MUTATION_FRAGMENTS(table)`: what such a statement reads looks like a table of its own.
//!
//! Source: the page "Reading mutation fragments" of ScyllaDB's documentation.

use std::sync::Arc;

use schema::{Column, ColumnKind, Table, TableOptions};
use types::CqlType;

use crate::CompileError;

/// What each node has of a table, one row for each fragment: the partition key as it is; where the fragment is, as the
/// clustering key; what it says.
///
/// # Errors
/// When the table has a key column with a name that is needed.
pub(crate) fn fragments_table(of: &Table) -> Result<Arc<Table>, CompileError> {
    let clustering = |name: &str, cql_type: CqlType| Column::new(name, cql_type, ColumnKind::Clustering);
    let regular = |name: &str| Column::new(name, CqlType::Text, ColumnKind::Regular);
    let mut place = vec![
        clustering("mutation_source", CqlType::Text),
        clustering("partition_region", CqlType::TinyInt),
    ];
    place.extend(of.clustering().cloned());
    place.push(clustering("position_weight", CqlType::TinyInt));
    for (position, column) in (0..).zip(&mut place) {
        column.position = position;
    }
    let mut columns: Vec<Column> = of.partition_key().cloned().chain(place).collect();
    columns.extend(["metadata", "mutation_fragment_kind", "value"].map(regular));
    for (i, c) in columns.iter().enumerate() {
        if columns[..i].iter().any(|before| before.name == c.name) {
            return Err(CompileError::invalid(format!(
                "MUTATION_FRAGMENTS({}) cannot be read: {} is a key column of the table and of its fragments",
                of.quoted_name(),
                c.name
            )));
        }
    }
    let name = format!("{}_$mutation_fragments", of.name);
    let table = Table::new(&of.keyspace, &name, of.id, columns, TableOptions::default());
    Ok(Arc::new(table))
}
