//! Room on the disk for compactions.
//!
//! A compaction writes its outputs before its inputs are removed, so for a while both are there. It begins only when
//! the file system has room for outputs as large as the inputs, besides what the compactions that run have been
//! promised. What they have written already counts twice: the limit errs on the side of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the running compactions of a node have been promised. One value serves the node; all of its shards reserve from
/// it.
#[derive(Default, Debug)]
pub struct CompactionRoom {
    promised: AtomicU64,
}

/// Bytes that a compaction may write; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    room: Arc<CompactionRoom>,
    bytes: u64,
}

impl CompactionRoom {
    /// Reserves bytes of a file system with so many available; None: they are not there.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64, available: u64) -> Option<Reserved> {
        let with_it = |promised: u64| promised.checked_add(bytes).filter(|sum| *sum <= available);
        let reserved = self
            .promised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it);
        reserved.ok().map(|_| Reserved {
            room: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.room.promised.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_not_promised_again_until_it_is_given_back() {
        let room: Arc<CompactionRoom> = Arc::default();
        let first = room.reserve(60, 100).expect("there is room");
        assert!(room.reserve(41, 100).is_none());
        let second = room.reserve(40, 100).expect("just enough");
        assert!(room.reserve(1, 100).is_none());
        drop(first);
        assert!(room.reserve(60, 100).is_some(), "and given back at once");
        assert!(room.reserve(61, 100).is_none());
        drop(second);
        assert!(room.reserve(u64::MAX, 100).is_none());
        assert!(room.reserve(100, 100).is_some());
    }
}
