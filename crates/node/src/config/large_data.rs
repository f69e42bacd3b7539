//! Above which size partitions, rows and cells count as large.

use sstable::LargeThresholds;

use super::options::Options;
use super::value;

pub(super) fn thresholds(options: &mut Options<'_>) -> LargeThresholds {
    let usual = LargeThresholds::default();
    LargeThresholds {
        partition_bytes: size(
            options,
            "compaction_large_partition_warning_threshold",
            usual.partition_bytes,
        ),
        row_bytes: size(options, "compaction_large_row_warning_threshold", usual.row_bytes),
        cell_bytes: size(options, "compaction_large_cell_warning_threshold", usual.cell_bytes),
        rows: count(options, "compaction_rows_count_warning_threshold", usual.rows),
        elements: count(
            options,
            "compaction_collection_elements_count_warning_threshold",
            usual.elements,
        ),
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
