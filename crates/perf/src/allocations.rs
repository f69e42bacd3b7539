//! How often a thread allocates: the binary owns the allocator and lends its counter.

use std::sync::OnceLock;

static COUNTER: OnceLock<fn() -> u64> = OnceLock::new();

/// Sets how to count the allocations of the calling thread. The first call holds.
pub fn set_allocation_counter(count: fn() -> u64) {
    COUNTER.get_or_init(|| count);
}

/// Allocations of this thread since it began; None when the allocator does not count.
pub(crate) fn allocation_count() -> Option<u64> {
    COUNTER.get().map(|count| count())
}
