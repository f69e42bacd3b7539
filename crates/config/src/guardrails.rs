//! The options of guardrails: limits of statements. By default they refuse nothing that Cassandra takes by default;
//! ScyllaDB's warnings are on, and where its default refuses what Cassandra takes, the client is warned if there is an
//! option for that.

use ddl::TABLE_PROPERTIES;
use query::Level;
use query::engine::PageLimits;
use query::guardrails::{BatchGuardrails, Guardrails, LargeDataGuardrails, Lists, Mode, SchemaGuardrails, Thresholds};

use super::options::Options;
use super::{SWITCH, value};

const DAY_US: u64 = 86_400_000_000;

/// Of the names of two options: that of the warning, that of the refusal.
type Names = (&'static str, &'static str);

pub(super) fn guardrails(options: &mut Options<'_>, large_data: LargeDataGuardrails) -> Guardrails {
    let mut levels = |names: Names| Lists {
        warned: levels(options, names.0),
        refused: levels(options, names.1),
    };
    let read_levels = levels(("read_consistency_levels_warned", "read_consistency_levels_disallowed"));
    let write_levels = levels(("write_consistency_levels_warned", "write_consistency_levels_disallowed"));
    Guardrails {
        schema: of_schema(options),
        forbids_filtering: forbids(options, "allow_filtering_enabled"),
        forbids_group_by: forbids(options, "group_by_enabled"),
        forbids_list_reads: forbids(options, "read_before_write_list_operations_enabled"),
        forbids_timestamps: forbids(options, "user_timestamps_enabled"),
        partitions_in_select: counts(
            options,
            (
                "partition_keys_in_select_warn_threshold",
                "partition_keys_in_select_fail_threshold",
            ),
            None,
        ),
        product_in_select: counts(
            options,
            (
                "in_select_cartesian_product_warn_threshold",
                "in_select_cartesian_product_fail_threshold",
            ),
            None,
        ),
        relations_max: count(options, "max_relations_in_where_clause", None),
        partition_product_max: count(options, "max_partition_key_restrictions_per_query", None),
        clustering_product_max: count(options, "max_clustering_key_restrictions_per_query", None),
        page_rows: counts(options, ("page_size_warn_threshold", "page_size_fail_threshold"), None),
        read_levels,
        write_levels,
        restricts_future: switch(options, "restrict_future_timestamp", false),
        ahead_us: durations(
            options,
            ("maximum_timestamp_warn_threshold", "maximum_timestamp_fail_threshold"),
            Some(3 * DAY_US),
        ),
        behind_us: durations(
            options,
            ("minimum_timestamp_warn_threshold", "minimum_timestamp_fail_threshold"),
            None,
        ),
        collection_items: counts(
            options,
            (
                "items_per_collection_warn_threshold",
                "items_per_collection_fail_threshold",
            ),
            None,
        ),
        collection_bytes: sizes(
            options,
            ("collection_size_warn_threshold", "collection_size_fail_threshold"),
        ),
        value_bytes: sizes(
            options,
            ("column_value_size_warn_threshold", "column_value_size_fail_threshold"),
        ),
        large_data,
        batches: of_batches(options),
    }
}

pub(super) fn page_limits(options: &mut Options<'_>) -> PageLimits {
    let usual = PageLimits::default();
    let mut limit = |option: &'static str, usual: u64| {
        let count = |text: &str| match text {
            "-1" | "0" => Some(u64::MAX),
            text => text.parse().ok(),
        };
        let limit = options.get(option, "a number; 0 for no limit", count);
        let limit = limit.unwrap_or(usual);
        options.note(option, if limit == u64::MAX { 0 } else { limit });
        limit
    };
    let counts = PageLimits {
        warn: limit("tombstone_warn_threshold", usual.warn),
        failure: limit("tombstone_failure_threshold", usual.failure),
        page: limit("query_tombstone_page_limit", usual.page),
        rejected: limit("query_rejected_rows_page_limit", usual.rejected),
        ..usual
    };
    let mut bytes = |option: &'static str, (least, most): (u64, u64), usual: u64| {
        let what = format!("a number of bytes, or a size such as 64KiB, from {least} to {most}");
        let in_range = |text: &str| value::size(text).filter(|bytes| (least..=most).contains(bytes));
        let bytes = options.get(option, &what, in_range).unwrap_or(usual);
        options.note(option, bytes);
        bytes
    };
    let hard = ("max_memory_for_unlimited_query_hard_limit", (1 << 20, 256 << 20));
    let soft = ("max_memory_for_unlimited_query_soft_limit", (0, u64::MAX));
    let warn = match bytes(soft.0, soft.1, 0) {
        0 => usual.unpaged_bytes_warn,
        bytes => bytes,
    };
    PageLimits {
        page_bytes: bytes("query_page_size_in_bytes", (1 << 10, 64 << 20), usual.page_bytes),
        unpaged_bytes_warn: warn,
        result_bytes: bytes(hard.0, hard.1, usual.result_bytes),
        ..counts
    }
}

fn of_batches(options: &mut Options<'_>) -> BatchGuardrails {
    let usual = BatchGuardrails::default();
    let mut size = |option: &'static str, usual: Option<u64>| {
        let in_range = |text: &str| value::size(text).filter(|size| *size >= 1 << 10);
        let size = options.get(option, "a size such as 50KiB or 1MiB, at least 1KiB", in_range);
        let size = size.or(usual);
        options.note(option, size.map_or_else(String::new, value::size_text));
        size
    };
    let names = ("batch_size_warn_threshold", "batch_size_fail_threshold");
    let bytes = Thresholds {
        warn: size(names.0, usual.bytes.warn),
        fail: size(names.1, usual.bytes.fail),
    };
    BatchGuardrails {
        bytes: in_order(options, names, bytes, usual.bytes.warn),
        unlogged_partitions: count(
            options,
            "unlogged_batch_across_partitions_warn_threshold",
            usual.unlogged_partitions,
        ),
    }
}

fn of_schema(options: &mut Options<'_>) -> SchemaGuardrails {
    let minimum = (
        "minimum_replication_factor_warn_threshold",
        "minimum_replication_factor_fail_threshold",
    );
    let maximum = (
        "maximum_replication_factor_warn_threshold",
        "maximum_replication_factor_fail_threshold",
    );
    let columns = ("columns_per_table_warn_threshold", "columns_per_table_fail_threshold");
    let indexes = (
        "secondary_indexes_per_table_warn_threshold",
        "secondary_indexes_per_table_fail_threshold",
    );
    SchemaGuardrails {
        copies_min: Thresholds {
            warn: count(options, minimum.0, Some(3)),
            fail: count(options, minimum.1, None),
        },
        copies_max: counts(options, maximum, None),
        strategies: Lists {
            warned: strategies(options, "replication_strategy_warn_list", "SimpleStrategy"),
            refused: strategies(options, "replication_strategy_fail_list", ""),
        },
        forbids_simple_strategy: forbids(options, "simplestrategy_enabled"),
        keyspaces: counts(options, ("keyspaces_warn_threshold", "keyspaces_fail_threshold"), None),
        tables: counts(options, ("tables_warn_threshold", "tables_fail_threshold"), None),
        columns: counts(options, columns, None),
        indexes: counts(options, indexes, None),
        properties: Lists {
            warned: properties(options, "table_properties_warned"),
            refused: properties(options, "table_properties_disallowed"),
        },
        windows_max: count(options, "twcs_max_window_count", None),
        windows_without_ttl: mode(options, "restrict_twcs_without_default_ttl"),
        forbids_uncompressed: forbids(options, "uncompressed_tables_enabled"),
        forbids_indexes: forbids(options, "secondary_indexes_enabled"),
        forbids_drop_keyspace: forbids(options, "drop_keyspace_enabled"),
        forbids_drop_table: forbids(options, "drop_truncate_table_enabled"),
        forbids_alter_table: forbids(options, "alter_table_enabled"),
        forbids_compact_tables: forbids(options, "compact_tables_enabled"),
        forbids_drop_compact: !switch(options, "drop_compact_storage_enabled", false),
    }
}

/// A switch that is true by default: whether it is off.
fn forbids(options: &mut Options<'_>, option: &'static str) -> bool {
    !switch(options, option, true)
}

fn switch(options: &mut Options<'_>, option: &'static str, default: bool) -> bool {
    let is_on = options.get(option, SWITCH, value::switch).unwrap_or(default);
    options.note(option, is_on);
    is_on
}

fn counts(options: &mut Options<'_>, (warn, fail): Names, warn_default: Option<u64>) -> Thresholds {
    let limits = Thresholds {
        warn: count(options, warn, warn_default),
        fail: count(options, fail, None),
    };
    in_order(options, (warn, fail), limits, warn_default)
}

/// Refuses a warning above the refusal: it could never come. A default may be above what a user says.
fn in_order(
    options: &mut Options<'_>,
    (warn, fail): Names,
    limits: Thresholds,
    warn_default: Option<u64>,
) -> Thresholds {
    let is_above = limits.warn.zip(limits.fail).is_some_and(|(warn, fail)| warn > fail);
    if is_above && limits.warn != warn_default {
        options.refuse(warn, &format!("at most what {fail} says"));
    }
    limits
}

fn count(options: &mut Options<'_>, option: &'static str, default: Option<u64>) -> Option<u64> {
    let given = options.get(option, "a number, or -1 for no limit", |text| match text {
        "-1" | "0" => Some(None),
        text => text.parse().ok().map(Some),
    });
    let limit = given.unwrap_or(default);
    options.note(option, limit.map_or_else(|| "-1".to_owned(), |limit| limit.to_string()));
    limit
}

fn sizes(options: &mut Options<'_>, (warn, fail): Names) -> Thresholds {
    let mut size = |option: &'static str| {
        let given = options.get(option, "a size such as 64KiB, or none", |text| match text {
            "none" | "null" | "-1" => Some(None),
            text => value::size(text).filter(|size| *size > 0).map(Some),
        });
        let limit = given.flatten();
        options.note(option, limit.map_or_else(|| "none".to_owned(), value::size_text));
        limit
    };
    let limits = Thresholds {
        warn: size(warn),
        fail: size(fail),
    };
    in_order(options, (warn, fail), limits, None)
}

fn durations(options: &mut Options<'_>, (warn, fail): Names, warn_default: Option<u64>) -> Thresholds {
    let mut microseconds = |option: &'static str, default: Option<u64>| {
        let given = options.get(option, "a duration such as 1h or 3d, or none", |text| match text {
            "none" | "null" | "-1" => Some(None),
            text => u64::try_from(value::duration(text)?.as_micros()).ok().map(Some),
        });
        let limit = given.unwrap_or(default);
        let text = match limit {
            None => "none".to_owned(),
            Some(us) if us % DAY_US == 0 => format!("{}d", us / DAY_US),
            Some(us) => format!("{us}us"),
        };
        options.note(option, text);
        limit
    };
    let limits = Thresholds {
        warn: microseconds(warn, warn_default),
        fail: microseconds(fail, None),
    };
    in_order(options, (warn, fail), limits, warn_default)
}

fn mode(options: &mut Options<'_>, option: &'static str) -> Mode {
    let given = options.get(option, "true, false or warn", |text| match text {
        "warn" => Some(Mode::Warn),
        text => value::switch(text).map(|refuses| if refuses { Mode::Refuse } else { Mode::Allow }),
    });
    let mode = given.unwrap_or(Mode::Warn);
    let text = match mode {
        Mode::Allow => "false",
        Mode::Warn => "warn",
        Mode::Refuse => "true",
    };
    options.note(option, text);
    mode
}

/// Texts separated by commas, also in the brackets and quotes of a list of YAML or JSON; `none` for none of them.
fn words(options: &mut Options<'_>, option: &'static str, default: &str) -> Vec<String> {
    let given = options.get(option, "names separated by commas, or none", |text| {
        Some(text.to_owned())
    });
    let text = given.unwrap_or_else(|| default.to_owned());
    let words = value::list(&text).into_iter().filter(|word| *word != "none");
    let words: Vec<String> = words.map(str::to_owned).collect();
    options.note(
        option,
        if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(",")
        },
    );
    words
}

/// Names of properties of tables.
fn properties(options: &mut Options<'_>, option: &'static str) -> Vec<String> {
    let mut names = words(options, option, "");
    names.iter_mut().for_each(|name| name.make_ascii_lowercase());
    if let Some(unknown) = names.iter().find(|name| !TABLE_PROPERTIES.contains(&name.as_str())) {
        options.refuse(
            option,
            &format!("properties of tables such as compaction,comment, or none (there is no property {unknown})"),
        );
    }
    names
}

/// Names of replication strategies, which may have their package before them.
fn strategies(options: &mut Options<'_>, option: &'static str, default: &str) -> Vec<String> {
    const STRATEGIES: [&str; 3] = ["SimpleStrategy", "NetworkTopologyStrategy", "EverywhereStrategy"];
    let mut classes = words(options, option, default);
    for class in &mut classes {
        *class = class.rsplit('.').next().unwrap_or_default().to_owned();
    }
    if classes.iter().any(|class| !STRATEGIES.contains(&class.as_str())) {
        options.refuse(
            option,
            "some of SimpleStrategy, NetworkTopologyStrategy and EverywhereStrategy, or none",
        );
    }
    classes
}

fn levels(options: &mut Options<'_>, option: &'static str) -> Vec<Level> {
    let level = |word: &String| Level::all().find(|level| level.to_string().eq_ignore_ascii_case(word));
    let names = words(options, option, "");
    let levels: Option<Vec<Level>> = names.iter().map(level).collect();
    levels.unwrap_or_else(|| {
        options.refuse(option, "consistency levels such as ONE,LOCAL_QUORUM, or none");
        Vec::new()
    })
}
