//! The process's allocator: mimalloc, with a count of each thread's allocations for `ceto perf`.
//!
//! The count costs one addition to a thread's own memory; nothing is shared and nothing is timed.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

/// mimalloc, counting.
pub struct Counting;

thread_local! {
    // Constant and without a destructor: reading it allocates nothing and works until the thread is gone.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations that this thread has made, growing in place included.
pub fn count() -> u64 {
    ALLOCATIONS.get()
}

unsafe extern "C" {
    /// mimalloc's: frees the empty pages of the calling thread. With `force` it also gives to the system what all
    /// threads have freed, and without it what they freed before the purge delay.
    safe fn mi_collect(force: bool);
    /// mimalloc's: sets an option by its number in `mi_option_t`.
    safe fn mi_option_set(option: c_int, value: c_long);
}

/// The number of mimalloc's option for the purge delay, in milliseconds: how long memory that was freed stays before a
/// thread that allocates gives it to the system.
const PURGE_DELAY: c_int = 15;

/// A purge delay of 25 days.
const NEVER: c_long = 1 << 31;

/// Frees the empty pages of the calling thread.
pub fn collect_thread() {
    mi_collect(false);
}

/// From here on mimalloc gives no freed memory to the system by itself: [`collect_process`] does. Some megabytes take
/// milliseconds, and mimalloc would do it in the middle of an allocation of a shard, at most once a second, and never
/// in a process that allocates little.
pub fn leave_purges_to_collector() {
    mi_option_set(PURGE_DELAY, NEVER);
}

/// Gives memory to the system that the threads of this process have freed.
pub fn collect_process() {
    mi_collect(true);
}

#[inline]
fn note() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

/// Whether mimalloc's blocks have the requested alignment without asking for it: all of 16 bytes and more are to 16,
/// smaller ones to 8. To ask costs some twenty instructions, and above a kilobyte more.
#[inline]
fn is_aligned_anyway(layout: Layout) -> bool {
    layout.align() <= 8 || layout.align() == 16 && layout.size() >= 16
}

// SAFETY: every call is handed to mimalloc with the same arguments, and mimalloc keeps the contract; counting touches
// no memory that was allocated and does not unwind, because the counter would take centuries to overflow.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        if is_aligned_anyway(layout) {
            // SAFETY: any size may be asked for, and the result is aligned as the layout wants.
            return unsafe { libmimalloc_sys::mi_malloc(layout.size()).cast() };
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note();
        if is_aligned_anyway(layout) && new_size >= layout.size() {
            // SAFETY: the pointer came from mimalloc by this type, and the result is aligned as the layout wants.
            return unsafe { libmimalloc_sys::mi_realloc(pointer.cast(), new_size).cast() };
        }
        // SAFETY: the caller keeps the contract of `realloc`, and the pointer came from mimalloc by this type.
        unsafe { MiMalloc.realloc(pointer, layout, new_size) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the pointer came from mimalloc by this type.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout};
    use std::hint::black_box;

    #[test]
    fn each_allocation_of_this_thread_counts_once() {
        let allocations = |f: &dyn Fn()| {
            let before = super::count();
            f();
            super::count() - before
        };
        assert_eq!(allocations(&|| ()), 0, "doing nothing");
        assert_eq!(allocations(&|| drop(black_box(Box::new(7_u64)))), 1, "a box");
        assert_eq!(allocations(&|| drop(black_box(vec![0_u8; 100]))), 1, "zeroed bytes");
        let grown = || {
            let mut bytes = Vec::<u8>::with_capacity(black_box(16));
            bytes.reserve_exact(black_box(1 << 20));
            drop(black_box(bytes));
        };
        assert_eq!(allocations(&grown), 2, "bytes, and their growth");
    }

    #[test]
    fn purges_are_left_to_the_collector_by_the_option_of_the_purge_delay() {
        unsafe extern "C" {
            safe fn mi_option_get(option: std::ffi::c_int) -> std::ffi::c_long;
        }
        let (delay, reset) = (
            mi_option_get(super::PURGE_DELAY),
            mi_option_get(super::PURGE_DELAY - 10),
        );
        assert_eq!(
            (delay, reset),
            (1000, 1),
            "mimalloc has numbered its options anew: see mi_option_t"
        );
        super::leave_purges_to_collector();
        assert_eq!(mi_option_get(super::PURGE_DELAY), super::NEVER);
    }

    #[test]
    fn blocks_are_aligned_as_wanted_whatever_their_size() {
        for align in [1, 2, 4, 8, 16, 32, 64] {
            for size in (1..3000).chain([5000, 70_000, 3 << 20]) {
                let layout = Layout::from_size_align(size, align).expect("a valid layout");
                // SAFETY: the size is not zero, and the block is freed with the layout that it was last given.
                unsafe {
                    let block = super::Counting.alloc(layout);
                    assert_eq!(block as usize % align, 0, "{size} bytes aligned to {align}");
                    let grown = super::Counting.realloc(block, layout, size * 2);
                    assert_eq!(grown as usize % align, 0, "{size} bytes aligned to {align}, grown");
                    let layout = Layout::from_size_align(size * 2, align).expect("a valid layout");
                    super::Counting.dealloc(grown, layout);
                }
            }
        }
    }
}
