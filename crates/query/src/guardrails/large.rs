//! Guardrails of tables with `large_data_guardrails_enabled`: what a statement writes, and what there is already where
//! it writes.

use std::fmt;

use coordinator::Measured;
use plan::write::WrittenValue;
use plan::{Execution, WritePlan};
use schema::{ColumnKind, Table};

use super::statement::{is_collection, measure};
use super::{Names, Thresholds, refused};
use crate::QueryError;
use crate::engine::tombstones::key_text;

/// The limits. The warnings are those above which something is listed as large.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LargeDataGuardrails {
    /// Bytes of a partition in an sstable.
    pub partition_bytes: Thresholds,
    /// Rows of a partition in an sstable.
    pub rows: Thresholds,
    /// Bytes of a row.
    pub row_bytes: Thresholds,
    /// Bytes of a cell.
    pub cell_bytes: Thresholds,
    /// Elements of a collection.
    pub elements: Thresholds,
    /// `large_data_cql_warnings`: clients too are warned of what is logged.
    pub warns_clients: bool,
}

const PARTITION_BYTES: Names<'_> = Names::Both(
    "compaction_large_partition_warning_threshold",
    "large_partition_fail_threshold",
);
const ROWS: Names<'_> = Names::Both("compaction_rows_count_warning_threshold", "rows_count_fail_threshold");
const ROW_BYTES: Names<'_> = Names::Both("compaction_large_row_warning_threshold", "large_row_fail_threshold");
const CELL_BYTES: Names<'_> = Names::Both("compaction_large_cell_warning_threshold", "large_cell_fail_threshold");
const ELEMENTS: Names<'_> = Names::Both(
    "compaction_collection_elements_count_warning_threshold",
    "large_collection_elements_fail_threshold",
);

impl LargeDataGuardrails {
    /// Checks what one statement writes.
    pub(crate) fn check_written(
        &self,
        write: &WritePlan,
        run: &Execution,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        let Table { keyspace, name, .. } = &*write.table;
        let (mut row, mut static_row) = (0, 0);
        run.with(|ctx| {
            write.each_value(ctx, |column, value| {
                let (WrittenValue::Whole(bytes) | WrittenValue::Element(bytes)) = value;
                match column.kind {
                    ColumnKind::Static => static_row += bytes.len() as u64,
                    _ => row += bytes.len() as u64,
                }
                let is_whole = matches!(value, WrittenValue::Whole(_));
                let mut longest = bytes.len();
                if is_whole && is_collection(&column.cql_type) && column.cql_type.is_multi_cell() {
                    let (elements, longest_element) = measure(&column.cql_type, bytes);
                    longest = longest_element;
                    let what = format_args!(
                        "The statement writes {elements} elements of the collection {keyspace}.{name}.{}",
                        column.name
                    );
                    check(self.elements, ELEMENTS, elements, what, warnings)?;
                }
                let what = format_args!(
                    "A value of the column {keyspace}.{name}.{} has {longest} bytes",
                    column.name
                );
                check(self.cell_bytes, CELL_BYTES, longest as u64, what, warnings)
            })
        })?;
        let bytes = static_row.max(row);
        let what = format_args!("A row that is written to {keyspace}.{name} has {bytes} bytes");
        check(self.row_bytes, ROW_BYTES, bytes, what, warnings)
    }

    /// Checks what there is already of a partition, and of the rows of it that the statement names.
    pub(crate) fn check_present(
        &self,
        write: &WritePlan,
        (key, rows): (&[u8], &[Vec<u8>]),
        measured: &Measured,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        if *measured == Measured::default() {
            return Ok(());
        }
        let checked = self.compare(write, (key, rows), measured, warnings);
        checked.map_err(|refusal| {
            refused(format_args!(
                "{refusal}. DELETE … BYPASS LARGE_DATA_GUARDRAILS is taken"
            ))
        })
    }

    fn compare(
        &self,
        write: &WritePlan,
        (key, rows): (&[u8], &[Vec<u8>]),
        measured: &Measured,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        let table = &*write.table;
        let key = key_text(table, key);
        let partition = format!("{}.{} has a partition where {key}", table.keyspace, table.name);
        let what = format_args!("{partition} of {} bytes", measured.bytes);
        check(self.partition_bytes, PARTITION_BYTES, measured.bytes, what, warnings)?;
        let what = format_args!("{partition} with {} rows", measured.rows);
        check(self.rows, ROWS, measured.rows, what, warnings)?;
        for row in rows.iter().filter_map(|row| measured.of_rows.get(row)) {
            let what = format_args!("{partition} with a row of {} bytes", row.bytes);
            check(self.row_bytes, ROW_BYTES, row.bytes, what, warnings)?;
            for column in write.changed_columns() {
                if let Some(elements) = row.elements.get(&column.id.0) {
                    let what = format_args!("{partition} with {elements} elements in the collection {}", column.name);
                    check(self.elements, ELEMENTS, *elements, what, warnings)?;
                }
            }
        }
        Ok(())
    }
}

fn check(
    limits: Thresholds,
    names: Names<'_>,
    value: u64,
    what: fmt::Arguments<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    limits.check(|limit| value > limit, names, what, warnings)
}
