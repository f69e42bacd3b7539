//! How much memory reading one input takes: the allocator of this crate counts, for each thread, the bytes that are
//! allocated and their peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    // Constant and without a destructor: reading them allocates nothing and works until the thread is gone.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    let live = LIVE.get().saturating_add_unsigned(bytes as u64);
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

fn subtract(bytes: usize) {
    LIVE.set(LIVE.get().saturating_sub_unsigned(bytes as u64));
}

/// Bytes that this thread has allocated at once since a moment, beyond those it had then.
pub struct Peak(i64);

impl Peak {
    /// Counts from now on, in the place of a count that was begun earlier.
    pub fn begin() -> Self {
        let before = LIVE.get();
        PEAK.set(before);
        Self(before)
    }

    /// The most so far.
    pub fn bytes(&self) -> u64 {
        u64::try_from(PEAK.get() - self.0).unwrap_or(0)
    }
}

// SAFETY: every call is handed to the system's allocator with the same arguments, which keeps the contract; counting
// touches no memory that was allocated, and saturates instead of unwinding.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        subtract(layout.size());
        add(new_size);
        // SAFETY: the caller keeps the contract of `realloc`, and the pointer came from the system's allocator.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`, and the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::Peak;
    use std::hint::black_box;

    #[test]
    fn the_peak_counts_what_is_allocated_at_once_and_not_what_was_freed() {
        let before = vec![0_u8; 5000];
        let peak = Peak::begin();
        for _ in 0..10 {
            drop(black_box(vec![0_u8; 1000]));
        }
        let mut grown = Vec::<u8>::with_capacity(black_box(16));
        grown.reserve_exact(black_box(2000));
        drop(black_box(grown));
        drop(before);
        assert_eq!(peak.bytes(), 2000);
    }
}
