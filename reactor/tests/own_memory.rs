//! The lanes to a reactor are made by its own thread, which is pinned by then: they lie where that thread's memory lies.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use frwr_reactor::{Context, Now, Options, Outbox, Placement, Reactors, Seat, Source};

/// Nothing else of this process is allocated in pieces of so many bytes and more.
const LARGE: usize = 1 << 20;

thread_local! {
    static LARGE_PIECES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; the counter is a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            LARGE_PIECES.with(|count| count.set(count.get() + 1));
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Tells {
    pieces_of_its_thread: usize,
}

impl Context for Tells {
    type Message = [u64; 128];

    fn message(&mut self, _: Source, _: [u64; 128], _: &Now) {}
}

#[test]
fn lanes_are_made_by_the_thread_that_reads_them() {
    let start = |seat: Seat<[u64; 128]>, _: Outbox<[u64; 128]>| {
        Ok::<_, Infallible>(seat.reactor(Tells { pieces_of_its_thread: LARGE_PIECES.get() }))
    };
    let options = Options { lane_capacity: 2 * LARGE / size_of::<[u64; 128]>(), ..Options::default() };
    let before = LARGE_PIECES.get();
    let reactors = Reactors::new(Placement::Unpinned { reactors: 3 }).options(options).foreign(1);
    let running = reactors.launch(|_| start).unwrap();
    assert_eq!(LARGE_PIECES.get(), before, "the launching thread made lanes");
    for ended in running.shutdown(Duration::ZERO) {
        assert_eq!(
            ended.unwrap().context.pieces_of_its_thread,
            4,
            "one from each reactor and one from the foreign thread"
        );
    }
}
