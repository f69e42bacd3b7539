//! Encoded metadata of prepared statements, made once and copied at each answer.

use std::cell::OnceCell;

use cql_protocol::{ColumnSpec, EncodedMetadata, ProtocolVersion};
use query::write::ConditionalAnswer;
use query::{MarkerSpec, Prepared, ResultColumn};

/// The metadata of one statement for each protocol version.
#[derive(Default)]
pub(crate) struct StatementMetadata {
    result: [OnceCell<EncodedMetadata>; 3],
    variables: [OnceCell<EncodedMetadata>; 3],
    /// Of a conditional statement whose answer is `[applied]` alone.
    applied: [OnceCell<EncodedMetadata>; 3],
}

fn index(version: ProtocolVersion) -> usize {
    usize::from(version.number()) - 3
}

/// Encodes result columns.
pub(crate) fn of_columns(
    version: ProtocolVersion,
    keyspace: &str,
    table: &str,
    columns: &[ResultColumn],
) -> EncodedMetadata {
    let specs: Vec<ColumnSpec<'_>> = columns
        .iter()
        .map(|c| ColumnSpec {
            keyspace,
            table,
            name: &c.name,
            column_type: &c.cql_type,
        })
        .collect();
    EncodedMetadata::new(version, &specs)
}

fn of_markers(version: ProtocolVersion, keyspace: &str, table: &str, markers: &[MarkerSpec]) -> EncodedMetadata {
    let specs: Vec<ColumnSpec<'_>> = markers
        .iter()
        .map(|c| ColumnSpec {
            keyspace,
            table,
            name: &c.name,
            column_type: &c.cql_type,
        })
        .collect();
    EncodedMetadata::new(version, &specs)
}

fn names(prepared: &Prepared) -> (&str, &str) {
    prepared.table.as_ref().map_or(("", ""), |t| (&t.keyspace, &t.name))
}

fn metadata(prepared: &Prepared) -> &StatementMetadata {
    prepared
        .attachment
        .get_or_init(|| Box::new(StatementMetadata::default()))
        .downcast_ref()
        .expect("this front door is the only one that attaches to statements")
}

/// The result's metadata.
#[inline]
pub(crate) fn result(prepared: &Prepared, version: ProtocolVersion) -> &EncodedMetadata {
    metadata(prepared).result[index(version)].get_or_init(|| {
        let (keyspace, table) = names(prepared);
        of_columns(version, keyspace, table, &prepared.columns)
    })
}

/// That of a conditional statement's answer.
pub(crate) fn of_answer(version: ProtocolVersion, answer: &ConditionalAnswer) -> EncodedMetadata {
    of_columns(version, &answer.table.keyspace, &answer.table.name, &answer.columns())
}

/// The same for one that shows no columns of the table: it is that of every other such answer of the statement.
pub(crate) fn applied<'p>(
    prepared: &'p Prepared,
    version: ProtocolVersion,
    answer: &ConditionalAnswer,
) -> &'p EncodedMetadata {
    metadata(prepared).applied[index(version)].get_or_init(|| of_answer(version, answer))
}

/// The markers' metadata.
pub(crate) fn variables(prepared: &Prepared, version: ProtocolVersion) -> &EncodedMetadata {
    metadata(prepared).variables[index(version)].get_or_init(|| {
        let (keyspace, table) = names(prepared);
        of_markers(version, keyspace, table, &prepared.markers)
    })
}
