//! What a shard's server counts of requests.

use std::cell::Cell;

use front::increment;
use stdx::latencies::Latencies;

/// The operations of the API that are counted by name; others are counted as unknown.
pub const OPERATIONS: [&str; 29] = [
    "BatchExecuteStatement",
    "BatchGetItem",
    "BatchWriteItem",
    "CreateTable",
    "DeleteItem",
    "DeleteTable",
    "DescribeContinuousBackups",
    "DescribeEndpoints",
    "DescribeLimits",
    "DescribeStream",
    "DescribeTable",
    "DescribeTimeToLive",
    "ExecuteStatement",
    "ExecuteTransaction",
    "GetItem",
    "GetRecords",
    "GetShardIterator",
    "ListStreams",
    "ListTables",
    "ListTagsOfResource",
    "PutItem",
    "Query",
    "Scan",
    "TagResource",
    "TransactGetItems",
    "TransactWriteItems",
    "UntagResource",
    "UpdateItem",
    "UpdateTable",
];

/// What a shard's server counts.
#[derive(Default, Debug)]
pub struct Counts {
    /// Requests of clients, with those that are refused.
    pub requests: Cell<u64>,
    /// Requests that were refused because of their signature.
    pub authentication_failures: Cell<u64>,
    /// Operations without a valid signature that ran, where that is counted.
    pub authentication_warnings: Cell<u64>,
    /// Access keys that were looked up in the table: the others were in memory.
    pub access_key_lookups: Cell<u64>,
    /// Of these lookups, those that failed.
    pub access_key_lookup_failures: Cell<u64>,
    /// Answers with a status of 400 to 499.
    pub client_errors: Cell<u64>,
    /// Answers with a status of 500 and more.
    pub server_errors: Cell<u64>,
    /// From a whole request to its answer, in microseconds.
    pub latencies: Latencies,
    operations: [Cell<u64>; OPERATIONS.len()],
    unknown_operations: Cell<u64>,
}

impl Counts {
    /// Operations that ran, by name; `unknown` for all others together.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let known = OPERATIONS.into_iter().zip(self.operations.iter().map(Cell::get));
        known.chain([("unknown", self.unknown_operations.get())])
    }

    /// Counts an operation.
    pub(crate) fn count_operation(&self, name: &str) {
        let at = OPERATIONS.binary_search(&name).ok();
        increment(at.map_or(&self.unknown_operations, |at| &self.operations[at]));
    }

    /// Counts an answer.
    pub(crate) fn count_answer(&self, status: u16) {
        match status {
            400..=499 => increment(&self.client_errors),
            500.. => increment(&self.server_errors),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_name() {
        assert!(OPERATIONS.is_sorted(), "names are looked up by halving");
        let counts = Counts::default();
        counts.count_operation("UpdateItem");
        counts.count_operation("Nothing");
        let counted: Vec<_> = counts.operations().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("UpdateItem", 1), ("unknown", 1)]);
    }
}
