//! When a write was born: the earliest moment that counts for what a compaction may purge.
//!
//! Everything that waits for a write or remembers one that was missed is dated by this one moment: flights, hints,
//! missed-write spans, notes of batches, and proposals that are learned. It is taken from the bytes of the write
//! itself, so no path can make it later. It is the least of
//!
//! - the moment at which the coordinator dated the write,
//! - the seconds of the deletions that it carries,
//! - its write timestamp, where that is at most [`CLIENT_TIMESTAMP_AGE_MAX`] older: drivers set it when they send the
//!   request, which may wait in sockets. An older timestamp is the client's intention (a load of old data), and such a
//!   write is as old as its arrival.

use std::time::Duration;

use mutation::Addressed;
use replica::Shard;
use stdx::planted::{self, Bug};

/// How much older than its arrival the timestamp of a write may be and still count as the moment at which it was made.
const CLIENT_TIMESTAMP_AGE_MAX: Duration = Duration::from_mins(10);
const MICROS_PER_SECOND: i64 = 1_000_000;

/// When the earliest of these mutations was born, microseconds since the epoch; `dated_us` is when the coordinator
/// dated them.
pub(crate) fn birth_us<'m>(shard: &Shard, mutations: impl IntoIterator<Item = &'m Addressed>, dated_us: i64) -> i64 {
    let of_clients = dated_us.saturating_sub(i64::try_from(CLIENT_TIMESTAMP_AGE_MAX.as_micros()).unwrap_or(i64::MAX));
    let mut birth = dated_us;
    if planted::is_planted(Bug::LateBirth) {
        return birth;
    }
    for mutation in mutations {
        let Some(store) = shard.store(mutation.table()) else {
            continue;
        };
        let (table, mutation) = (store.table(), mutation.mutation());
        if let Some(seconds) = mutation.deletion_seconds(&table.layout) {
            birth = birth.min(i64::from(*seconds.start()) * MICROS_PER_SECOND);
        }
        let timestamp = mutation.min_timestamp(&table.layout);
        birth = timestamp
            .filter(|us| *us >= of_clients)
            .map_or(birth, |us| birth.min(us));
    }
    birth
}
