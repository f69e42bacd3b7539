//! The process's allocator: mimalloc, with a count of each thread's allocations for `ceto perf`.
//!
//! The count costs one addition to a thread's own memory; nothing is shared and nothing is timed.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

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

#[inline]
fn note() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call is handed to mimalloc with the same arguments, and mimalloc keeps the contract; counting touches no memory
// that was allocated and does not unwind, because the counter would take centuries to overflow.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
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
}
