//! `tablets` of a table: how many tablets it is to have.
//!
//! The names and their meaning are ScyllaDB's (cql/ddl, "Per-table tablet options"); what follows from them:
//! docs/dev/tablets.md.

use std::fmt;

/// The options as a statement gives them; None is what the statement does not say.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TabletOptions {
    /// `min_tablet_count`: the table has at least so many tablets.
    pub min_tablet_count: Option<u32>,
    /// `max_tablet_count`: the table has at most so many tablets.
    pub max_tablet_count: Option<u32>,
    /// `min_per_shard_tablet_count`: each shard has so many replicas of tablets on average, in each datacenter that has
    /// copies.
    pub min_per_shard_tablet_count: Option<f64>,
    /// `expected_data_size_in_gb`: GiB that one copy of the table is expected to have.
    pub expected_data_size_in_gb: Option<u32>,
    /// `pow2_count`: the number of tablets is a power of two, as it always is here.
    pub pow2_count: Option<bool>,
}

impl TabletOptions {
    /// The names of the options.
    pub const NAMES: [&'static str; 5] = [
        "expected_data_size_in_gb",
        "max_tablet_count",
        "min_per_shard_tablet_count",
        "min_tablet_count",
        "pow2_count",
    ];

    /// Those that are given, in the order of [`Self::NAMES`].
    pub fn named(&self) -> impl Iterator<Item = (&'static str, String)> {
        let values = [
            self.expected_data_size_in_gb.map(|n| n.to_string()),
            self.max_tablet_count.map(|n| n.to_string()),
            self.min_per_shard_tablet_count.map(|n| n.to_string()),
            self.min_tablet_count.map(|n| n.to_string()),
            self.pow2_count.map(|n| n.to_string()),
        ];
        let all = Self::NAMES.into_iter().zip(values);
        all.filter_map(|(name, value)| Some((name, value?)))
    }

    /// Whether nothing is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// As a literal of CQL.
impl fmt::Display for TabletOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self
            .named()
            .map(|(name, value)| format!("'{name}': '{value}'"))
            .collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}
