//! Guardrails of changes of the schema: what the next schema has that the present one has not.

use std::sync::Arc;

use ddl::{Definition, TableChange};
use schema::{Keyspace, Schema, Table};
use topology::Copies;

use super::{Mode, SchemaGuardrails, check_limit, refused};
use crate::QueryError;

const LOCATOR: &str = "org.apache.cassandra.locator.";
const TIME_WINDOWS: &str = "TimeWindowCompactionStrategy";

/// Refuses definitions of a forbidden kind, and properties of tables. The answer is the warnings.
///
/// # Errors
/// When a guardrail refuses the definition.
pub(crate) fn check_definition(limits: &SchemaGuardrails, definition: &Definition) -> Result<Vec<String>, QueryError> {
    let mut warnings = Vec::new();
    let forbidden = match definition {
        Definition::DropKeyspace(_) if limits.forbids_drop_keyspace => {
            Some("DROP KEYSPACE is refused: drop_keyspace_enabled")
        }
        Definition::DropTable(_) if limits.forbids_drop_table => {
            Some("DROP TABLE is refused: drop_truncate_table_enabled")
        }
        Definition::CreateIndex(_) if limits.forbids_indexes => {
            Some("CREATE INDEX is refused: secondary_indexes_enabled")
        }
        Definition::AlterTable(_) if limits.forbids_alter_table => Some("ALTER TABLE is refused: alter_table_enabled"),
        Definition::AlterTable(alter)
            if matches!(alter.change, TableChange::DropCompactStorage) && limits.forbids_drop_compact =>
        {
            Some("DROP COMPACT STORAGE is refused: drop_compact_storage_enabled")
        }
        _ => None,
    };
    if let Some(why) = forbidden {
        return Err(refused(format_args!("{why} is false")));
    }
    for property in definition.table_properties() {
        let options = ("table_properties_warned", "table_properties_disallowed");
        let what = format_args!("The statement gives the table property {property}");
        limits
            .properties
            .check(&property.to_owned(), options, what, &mut warnings)?;
    }
    Ok(warnings)
}

/// Checks what is new or other in a schema. Keyspaces of the system are not looked at. The answer is the warnings.
///
/// # Errors
/// When a guardrail refuses it.
pub(crate) fn check_change(
    limits: &SchemaGuardrails,
    before: &Schema,
    after: &Schema,
) -> Result<Vec<String>, QueryError> {
    let mut warnings = Vec::new();
    let of_users = |schema: &Schema| {
        let keyspaces = schema.keyspaces.values().filter(|keyspace| is_of_users(keyspace));
        keyspaces.fold((0, 0), |(keyspaces, tables), keyspace| {
            (keyspaces + 1, tables + keyspace.tables.len() as u64)
        })
    };
    let (keyspaces_before, tables_before): (u64, u64) = of_users(before);
    let (keyspaces, tables) = of_users(after);
    if keyspaces > keyspaces_before {
        let what = format_args!("With this one there are {keyspaces} keyspaces");
        limits
            .keyspaces
            .check_max(keyspaces, "keyspaces", what, &mut warnings)?;
    }
    if tables > tables_before {
        let what = format_args!("With this one there are {tables} tables");
        limits.tables.check_max(tables, "tables", what, &mut warnings)?;
    }
    for keyspace in after.keyspaces.values().filter(|keyspace| is_of_users(keyspace)) {
        let former = before.keyspaces.get(&keyspace.name);
        if former.is_none_or(|former| former.replication != keyspace.replication) {
            check_replication(limits, keyspace, &mut warnings)?;
        }
        for table in keyspace.tables.values() {
            let former = former
                .and_then(|former| former.tables.get(&table.name))
                .filter(|former| former.id == table.id);
            if former.is_none_or(|former| !Arc::ptr_eq(former, table) && former != table) {
                check_table(limits, former.map(|former| &**former), table, &mut warnings)?;
            }
        }
    }
    Ok(warnings)
}

fn is_of_users(keyspace: &Keyspace) -> bool {
    system_tables::kind(&keyspace.name).is_none()
}

fn check_replication(
    limits: &SchemaGuardrails,
    keyspace: &Keyspace,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let name = &keyspace.name;
    let class = keyspace
        .replication
        .get("class")
        .map_or("", |class| class.strip_prefix(LOCATOR).unwrap_or(class));
    let is_simple = class == "SimpleStrategy";
    if is_simple && limits.forbids_simple_strategy {
        return Err(refused(format_args!(
            "The keyspace {name} has SimpleStrategy, and simplestrategy_enabled is false"
        )));
    }
    let options = ("replication_strategy_warn_list", "replication_strategy_fail_list");
    let what = format_args!("The keyspace {name} has the replication strategy {class}");
    limits.strategies.check(&class.to_owned(), options, what, warnings)?;
    for (option, value) in keyspace.replication.iter().filter(|(option, _)| *option != "class") {
        // What does not parse was refused before.
        let Ok(copies) = Copies::parse(option, value) else {
            continue;
        };
        let copies = u64::from(copies.number());
        if copies == 0 {
            continue;
        }
        let place = if is_simple {
            String::new()
        } else {
            format!(" in the datacenter {option}")
        };
        let what = format_args!("The keyspace {name} has the replication factor {copies}{place}");
        limits
            .copies_min
            .check_min(copies, "minimum_replication_factor", what, warnings)?;
        limits
            .copies_max
            .check_max(copies, "maximum_replication_factor", what, warnings)?;
    }
    Ok(())
}

/// Checks a table that is new (nothing before) or was altered.
fn check_table(
    limits: &SchemaGuardrails,
    before: Option<&Table>,
    table: &Table,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let name = format_args!("{}.{}", table.keyspace, table.name).to_string();
    let columns = table.columns.len() as u64;
    if before.is_none_or(|before| (before.columns.len() as u64) < columns) {
        let what = format_args!("The table {name} has {columns} columns");
        limits.columns.check_max(columns, "columns_per_table", what, warnings)?;
    }
    let indexes = table.indexes.len() as u64;
    if before.map_or(0, |before| before.indexes.len() as u64) < indexes {
        let what = format_args!("The table {name} has {indexes} secondary indexes");
        limits
            .indexes
            .check_max(indexes, "secondary_indexes_per_table", what, warnings)?;
    }
    if limits.forbids_compact_tables && table.compact.is_some() && before.is_none() {
        return Err(refused(format_args!(
            "The table {name} has COMPACT STORAGE, and compact_tables_enabled is false"
        )));
    }
    let options = &table.options;
    let is_off = options
        .compression
        .get("enabled")
        .is_some_and(|enabled| enabled.eq_ignore_ascii_case("false"));
    let is_uncompressed = is_off || options.compression.is_empty();
    let was = |same: fn(&schema::TableOptions, &schema::TableOptions) -> bool| {
        before.is_some_and(|before| same(&before.options, options))
    };
    if limits.forbids_uncompressed && is_uncompressed && !was(|a, b| a.compression == b.compression) {
        return Err(refused(format_args!(
            "The table {name} has no compression, and uncompressed_tables_enabled is false"
        )));
    }
    if was(|a, b| a.compaction == b.compaction && a.default_time_to_live == b.default_time_to_live) {
        return Ok(());
    }
    check_windows(limits, &name, table, warnings)
}

fn check_windows(
    limits: &SchemaGuardrails,
    name: &str,
    table: &Table,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let compaction = &table.options.compaction;
    if compaction
        .get("class")
        .is_none_or(|class| !class.ends_with(TIME_WINDOWS))
    {
        return Ok(());
    }
    let ttl = u64::try_from(table.options.default_time_to_live).unwrap_or(0);
    if ttl == 0 {
        let what = format_args!(
            "The table {name} has {TIME_WINDOWS} and no default_time_to_live (see restrict_twcs_without_default_ttl)"
        );
        match limits.windows_without_ttl {
            Mode::Allow => {}
            Mode::Warn => warnings.push(what.to_string()),
            Mode::Refuse => return Err(refused(what)),
        }
        return Ok(());
    }
    let size = compaction
        .get("compaction_window_size")
        .and_then(|size| size.parse::<u64>().ok());
    let unit = match compaction.get("compaction_window_unit").map(String::as_str) {
        Some("SECONDS") => 1,
        Some("MINUTES") => 60,
        Some("HOURS") => 3_600,
        None | Some("DAYS") => 86_400,
        // Units of less than a second are none of a window.
        Some(_) => return Ok(()),
    };
    let windows = ttl.div_ceil(size.unwrap_or(1).max(1).saturating_mul(unit));
    let what = format_args!("The rows of the table {name} live for {windows} windows of compaction");
    check_limit(limits.windows_max, windows, "twcs_max_window_count", what)
}
