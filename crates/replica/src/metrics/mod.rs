//! What is recorded of tables, partitions and tablets, for operators, balancing and guardrails.

pub(crate) mod activity;
pub(crate) mod large;
pub(crate) mod load;
pub(crate) mod table_metrics;
pub(crate) mod top_partitions;
