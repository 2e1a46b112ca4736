//! What a thread allocates, and what a process has allocated: for tests and programs that promise something of it. A package of its own,
//! without dependencies, so that each of the others can be tested with it in whatever way it is built.
//!
//! ```text
//! #[global_allocator]
//! static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;
//! ```

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Of all threads, and of those that are gone.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Allocations that this thread made so far, those that it gave back included.
#[must_use]
pub fn allocations() -> u64 {
    COUNT.get()
}

/// Bytes of them.
#[must_use]
pub fn allocated_bytes() -> usize {
    BYTES.get()
}

/// Bytes that all threads together have and did not give back.
#[must_use]
pub fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// The system's allocator, which counts.
pub struct Counting;

fn count(bytes: usize) {
    COUNT.set(COUNT.get() + 1);
    BYTES.set(BYTES.get() + bytes);
    LIVE.fetch_add(bytes, Ordering::Relaxed);
}

fn uncount(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are cells without a destructor, and an atomic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        uncount(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        uncount(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
