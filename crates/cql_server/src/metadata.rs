//! Encoded metadata of prepared statements, made once and copied at each answer.

use std::cell::OnceCell;

use cql_protocol::{ColumnSpec, EncodedMetadata, ProtocolVersion, QueryParams};
use plan::ResultColumn;
use plan::write::ConditionalAnswer;
use query::{MarkerSpec, Prepared};
use types::CqlType;

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
    encode(
        version,
        keyspace,
        table,
        columns.iter().map(|c| (&c.name[..], &c.cql_type)),
    )
}

fn of_markers(version: ProtocolVersion, keyspace: &str, table: &str, markers: &[MarkerSpec]) -> EncodedMetadata {
    let specs = markers.iter().map(|marker| {
        let of = marker.of.as_ref();
        ColumnSpec {
            keyspace: of.map_or(keyspace, |(keyspace, _)| keyspace),
            table: of.map_or(table, |(_, table)| table),
            name: &marker.name,
            column_type: &marker.cql_type,
        }
    });
    EncodedMetadata::new(version, &specs.collect::<Vec<_>>())
}

fn encode<'a>(
    version: ProtocolVersion,
    keyspace: &'a str,
    table: &'a str,
    columns: impl Iterator<Item = (&'a str, &'a CqlType)>,
) -> EncodedMetadata {
    let spec = |(name, column_type)| ColumnSpec {
        keyspace,
        table,
        name,
        column_type,
    };
    let specs: Vec<ColumnSpec<'_>> = columns.map(spec).collect();
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
        .expect("the CQL server alone attaches to statements")
}

/// The result's metadata.
#[inline]
pub(crate) fn result(prepared: &Prepared, version: ProtocolVersion) -> &EncodedMetadata {
    metadata(prepared).result[index(version)].get_or_init(|| {
        let (keyspace, table) = names(prepared);
        of_columns(version, keyspace, table, &prepared.columns)
    })
}

/// Whether the client does without the metadata of the result. A client that sends no metadata id cannot be notified
/// that its metadata is stale.
#[inline]
pub(crate) fn is_skipped(prepared: &Prepared, params: &QueryParams<'_>, known_id: Option<&[u8]>) -> bool {
    params.skip_metadata && (known_id.is_some() || !prepared.was_altered)
}

/// The name of the column that says whether a conditional statement was applied.
const APPLIED: &str = "[applied]";

/// The metadata of a conditional statement's answer.
pub(crate) fn of_answer(version: ProtocolVersion, answer: &ConditionalAnswer) -> EncodedMetadata {
    let table = &*answer.table;
    let shown = answer.shown.iter().map(|&column| &table.columns[column]);
    let shown = shown.map(|column| (&column.name[..], &column.cql_type));
    let columns = std::iter::once((APPLIED, &CqlType::Boolean)).chain(shown);
    encode(version, &table.keyspace, &table.name, columns)
}

/// The metadata of an answer that shows no columns of the table: all such answers of the statement share it.
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
