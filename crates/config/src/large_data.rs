//! Above which size partitions, rows and cells count as large, and beyond which tables with
//! `large_data_guardrails_enabled` refuse writes to them.

use query::guardrails::{LargeDataGuardrails, Thresholds};
use sstable::LargeThresholds;

use super::cluster::switch;
use super::options::Options;
use super::value;

/// Above which size something is listed, and beyond which writes are refused.
pub(super) struct LargeData {
    pub(super) thresholds: LargeThresholds,
    pub(super) limits: LargeThresholds,
    pub(super) warns_clients: bool,
}

impl LargeData {
    /// What tables with `large_data_guardrails_enabled` meet.
    pub(super) fn guardrails(&self) -> LargeDataGuardrails {
        let both = |of: fn(&LargeThresholds) -> u64| {
            let unless_never = |threshold| (threshold != u64::MAX).then_some(threshold);
            Thresholds {
                warn: unless_never(of(&self.thresholds)),
                fail: unless_never(of(&self.limits)),
            }
        };
        LargeDataGuardrails {
            partition_bytes: both(|of| of.partition_bytes),
            rows: both(|of| of.rows),
            row_bytes: both(|of| of.row_bytes),
            cell_bytes: both(|of| of.cell_bytes),
            elements: both(|of| of.elements),
            warns_clients: self.warns_clients,
        }
    }
}

pub(super) fn resolve(options: &mut Options<'_>) -> LargeData {
    let usual = LargeThresholds::default();
    let warn = [
        "compaction_large_partition_warning_threshold",
        "compaction_rows_count_warning_threshold",
        "compaction_large_row_warning_threshold",
        "compaction_large_cell_warning_threshold",
        "compaction_collection_elements_count_warning_threshold",
    ];
    let fail = [
        "large_partition_fail_threshold",
        "rows_count_fail_threshold",
        "large_row_fail_threshold",
        "large_cell_fail_threshold",
        "large_collection_elements_fail_threshold",
    ];
    let mut of = |[partition, rows, row, cell, elements]: [&'static str; 5], times: u64| LargeThresholds {
        partition_bytes: size(options, partition, usual.partition_bytes * times),
        rows: count(options, rows, usual.rows * times),
        row_bytes: size(options, row, usual.row_bytes * times),
        cell_bytes: size(options, cell, usual.cell_bytes * times),
        elements: count(options, elements, usual.elements * times),
    };
    LargeData {
        thresholds: of(warn, 1),
        limits: of(fail, 2),
        warns_clients: switch(options, "large_data_cql_warnings", true),
    }
}

fn size(options: &mut Options<'_>, option: &'static str, usual: u64) -> u64 {
    let bytes = options
        .get(option, "a size such as 1MiB; 0 for never", value::size)
        .unwrap_or(usual);
    options.note(option, value::size_text(bytes));
    or_never(bytes)
}

fn count(options: &mut Options<'_>, option: &'static str, usual: u64) -> u64 {
    let count = options
        .get(option, "a number; 0 for never", |text| text.parse().ok())
        .unwrap_or(usual);
    options.note(option, count);
    or_never(count)
}

const fn or_never(threshold: u64) -> u64 {
    match threshold {
        0 => u64::MAX,
        threshold => threshold,
    }
}
