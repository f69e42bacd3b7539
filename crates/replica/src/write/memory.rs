//! How much memory a shard's memtables may hold.

use std::cell::Cell;

use runtime::Notify;

/// A shard's memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Held by memtables, frozen ones included.
    pub dirty: usize,
    /// The most they may hold.
    pub dirty_max: usize,
}

/// Counts dirty bytes and makes writers wait.
pub(crate) struct DirtyMemory {
    bytes: Cell<usize>,
    bytes_max: Cell<usize>,
    room: Notify,
}

impl DirtyMemory {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Cell::new(0),
            bytes_max: Cell::new(bytes_max),
            room: Notify::new(),
        }
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            dirty: self.bytes.get(),
            dirty_max: self.bytes_max.get(),
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.get() >= self.bytes_max.get()
    }

    /// Whether it is time to flush: half of the limit is held, so that a flush has the other half's time.
    #[inline]
    pub(crate) fn wants_flush(&self) -> bool {
        self.bytes.get() >= self.bytes_max.get() / 2
    }

    /// From now on there is no room, whatever is released. Wakes the tasks that wait for it.
    pub(crate) fn close(&self) {
        self.bytes_max.set(0);
        self.room.notify_all();
    }

    /// Whether waiting for room is in vain.
    pub(crate) fn is_closed(&self) -> bool {
        self.bytes_max.get() == 0
    }

    #[inline]
    pub(crate) fn change(&self, before: usize, after: usize) {
        self.bytes.set((self.bytes.get() + after).saturating_sub(before));
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.room.notify_all();
    }

    /// Waits until something was released.
    pub(crate) async fn released(&self) {
        self.room.notified().await;
    }
}
