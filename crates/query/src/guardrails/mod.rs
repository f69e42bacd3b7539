//! Guardrails: limits that an operator sets, at which a statement is refused or its client warned. They are about what
//! is unwise, where the statement itself is right: many copies too few, a product of long IN lists, a timestamp of next
//! year.
//!
//! They hold for requests of clients, never for what a node does by itself, and never for its own keyspaces. What the
//! text of a statement decides is decided when it is compiled ([`Guardrails::check_text`]). The rest is decided at each
//! execution ([`Guardrails::check`]), before anything is read or written. A statement that memory would answer in one
//! call takes the general way only if a guardrail watches it ([`Guardrails::watches`]): while there is none, a plain
//! read or write costs one test of a flag. Changes of the schema are checked against the schema before and after
//! ([`definition`]).
//!
//! The default has no limit at all; the node's options have their own defaults.

mod definition;
mod large;
mod statement;

use std::fmt;

use topology::Consistency;

use crate::QueryError;

pub(crate) use definition::{check_change, check_definition};
pub use large::LargeDataGuardrails;

/// Where the client is warned, and where the statement is refused. None is never.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Thresholds {
    /// The client is warned beyond this.
    pub warn: Option<u64>,
    /// The statement is refused beyond this.
    pub fail: Option<u64>,
}

/// What is warned of, and what is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lists<T> {
    /// The client is warned of these.
    pub warned: Vec<T>,
    /// A statement with these is refused.
    pub refused: Vec<T>,
}

/// What becomes of something unwise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// It is taken.
    #[default]
    Allow,
    /// It is taken, and the client warned.
    Warn,
    /// It is refused.
    Refuse,
}

/// The limits of changes of the schema.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SchemaGuardrails {
    /// `minimum_replication_factor`: copies in a datacenter below which; no copies at all are always taken.
    pub copies_min: Thresholds,
    /// `maximum_replication_factor`.
    pub copies_max: Thresholds,
    /// `replication_strategy_warn_list` and `replication_strategy_fail_list`, without their package.
    pub strategies: Lists<String>,
    /// `simplestrategy_enabled` is false.
    pub forbids_simple_strategy: bool,
    /// `keyspaces`: of users.
    pub keyspaces: Thresholds,
    /// `tables`: of users.
    pub tables: Thresholds,
    /// `columns_per_table`.
    pub columns: Thresholds,
    /// `secondary_indexes_per_table`.
    pub indexes: Thresholds,
    /// `table_properties_warned` and `table_properties_disallowed`.
    pub properties: Lists<String>,
    /// `twcs_max_window_count`.
    pub windows_max: Option<u64>,
    /// `restrict_twcs_without_default_ttl`.
    pub windows_without_ttl: Mode,
    /// `uncompressed_tables_enabled` is false.
    pub forbids_uncompressed: bool,
    /// `secondary_indexes_enabled` is false.
    pub forbids_indexes: bool,
    /// `drop_keyspace_enabled` is false.
    pub forbids_drop_keyspace: bool,
    /// `drop_truncate_table_enabled` is false.
    pub forbids_drop_table: bool,
    /// `alter_table_enabled` is false.
    pub forbids_alter_table: bool,
    /// `compact_tables_enabled` is false.
    pub forbids_compact_tables: bool,
    /// `drop_compact_storage_enabled` is false.
    pub forbids_drop_compact: bool,
}

/// Every limit.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Guardrails {
    /// Those of changes of the schema.
    pub schema: SchemaGuardrails,
    /// `allow_filtering_enabled` is false.
    pub forbids_filtering: bool,
    /// `group_by_enabled` is false.
    pub forbids_group_by: bool,
    /// `read_before_write_list_operations_enabled` is false.
    pub forbids_list_reads: bool,
    /// `user_timestamps_enabled` is false.
    pub forbids_timestamps: bool,
    /// `partition_keys_in_select`.
    pub partitions_in_select: Thresholds,
    /// `in_select_cartesian_product`.
    pub product_in_select: Thresholds,
    /// `max_relations_in_where_clause`.
    pub relations_max: Option<u64>,
    /// `max_partition_key_restrictions_per_query`.
    pub partition_product_max: Option<u64>,
    /// `max_clustering_key_restrictions_per_query`.
    pub clustering_product_max: Option<u64>,
    /// `page_size`, in rows.
    pub page_rows: Thresholds,
    /// `read_consistency_levels`.
    pub read_levels: Lists<Consistency>,
    /// `write_consistency_levels`.
    pub write_levels: Lists<Consistency>,
    /// `restrict_future_timestamp`.
    pub restricts_future: bool,
    /// `maximum_timestamp`: microseconds that USING TIMESTAMP may be ahead of the node's clock.
    pub ahead_us: Thresholds,
    /// `minimum_timestamp`: microseconds by which USING TIMESTAMP may be earlier than the node's clock.
    pub behind_us: Thresholds,
    /// `items_per_collection`, of what one statement writes.
    pub collection_items: Thresholds,
    /// `collection_size`, of what one statement writes.
    pub collection_bytes: Thresholds,
    /// `column_value_size`.
    pub value_bytes: Thresholds,
    /// Those of tables that guard themselves.
    pub large_data: LargeDataGuardrails,
    /// Those of batches.
    pub batches: BatchGuardrails,
}

/// Limits of the batches that are about several partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchGuardrails {
    /// `batch_size`, in bytes as Cassandra counts them.
    pub bytes: Thresholds,
    /// `unlogged_batch_across_partitions_warn_threshold`.
    pub unlogged_partitions: Option<u64>,
}

impl Default for BatchGuardrails {
    fn default() -> Self {
        Self {
            bytes: Thresholds {
                warn: Some(128 << 10),
                fail: Some(1 << 20),
            },
            unlogged_partitions: Some(10),
        }
    }
}

impl Thresholds {
    /// Whether there is neither.
    pub(crate) const fn is_none(self) -> bool {
        self.warn.is_none() && self.fail.is_none()
    }

    /// Refuses or warns of a value above a threshold. `option` is the part that the names of both options have.
    fn check_max(
        self,
        value: u64,
        option: &str,
        what: fmt::Arguments<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        self.check(|limit| value > limit, Names::Of(option), what, warnings)
    }

    /// Refuses or warns of a value below a threshold.
    fn check_min(
        self,
        value: u64,
        option: &str,
        what: fmt::Arguments<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        self.check(|limit| value < limit, Names::Of(option), what, warnings)
    }

    fn check(
        self,
        is_beyond: impl Fn(u64) -> bool,
        names: Names<'_>,
        what: fmt::Arguments<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        if let Some(limit) = self.fail.filter(|limit| is_beyond(*limit)) {
            let option = names.fail();
            return Err(refused(format_args!("{what}, and {option} is {limit}")));
        }
        if let Some(limit) = self.warn.filter(|limit| is_beyond(*limit)) {
            let option = names.warn();
            warnings.push(format!("{what}, and {option} is {limit}"));
        }
        Ok(())
    }
}

/// The names of the two options of a threshold.
#[derive(Clone, Copy)]
enum Names<'n> {
    /// The part that both have before `_warn_threshold` and `_fail_threshold`.
    Of(&'n str),
    /// That of the warning and that of the refusal.
    Both(&'n str, &'n str),
}

impl Names<'_> {
    fn warn(self) -> String {
        match self {
            Self::Of(option) => format!("{option}_warn_threshold"),
            Self::Both(warn, _) => warn.to_owned(),
        }
    }

    fn fail(self) -> String {
        match self {
            Self::Of(option) => format!("{option}_fail_threshold"),
            Self::Both(_, fail) => fail.to_owned(),
        }
    }
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self {
            warned: Vec::new(),
            refused: Vec::new(),
        }
    }
}

impl<T: PartialEq> Lists<T> {
    /// Whether both are empty.
    fn is_empty(&self) -> bool {
        self.warned.is_empty() && self.refused.is_empty()
    }

    /// Refuses or warns of what is in a list; `options` are the names of both.
    fn check(
        &self,
        value: &T,
        (warned, refused_by): (&str, &str),
        what: fmt::Arguments<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        if self.refused.contains(value) {
            return Err(refused(format_args!("{what} (see {refused_by})")));
        }
        if self.warned.contains(value) {
            warnings.push(format!("{what} (see {warned})"));
        }
        Ok(())
    }
}

/// Refuses a number above a limit that has no warning.
fn check_limit(limit: Option<u64>, value: u64, option: &str, what: fmt::Arguments<'_>) -> Result<(), QueryError> {
    match limit.filter(|limit| value > *limit) {
        Some(limit) => Err(refused(format_args!("{what}, and {option} is {limit}"))),
        None => Ok(()),
    }
}

/// The error of a statement that a guardrail refuses.
#[cold]
fn refused(why: fmt::Arguments<'_>) -> QueryError {
    QueryError::invalid(why.to_string())
}

#[cfg(test)]
mod tests;
