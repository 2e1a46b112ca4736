//! The lanes to a reactor are made by its own thread, which is pinned by then: they lie where that thread's memory lies.

use std::convert::Infallible;
use std::time::Duration;

use frwr_allocations::allocated_bytes;
use frwr_reactor::{Context, Now, Options, Outbox, Placement, Reactors, Seat, Source};

/// Bytes of a lane: more than all else together that a thread allocates here.
const LANE: usize = 2 << 20;

#[global_allocator]
static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;

struct Tells {
    lanes_of_its_thread: usize,
}

impl Context for Tells {
    type Message = [u64; 128];

    fn message(&mut self, _: Source, _: [u64; 128], _: &Now) {}
}

#[test]
fn lanes_are_made_by_the_thread_that_reads_them() {
    let start = |seat: Seat<[u64; 128]>, _: Outbox<[u64; 128]>| {
        Ok::<_, Infallible>(seat.reactor(Tells { lanes_of_its_thread: allocated_bytes() / LANE }))
    };
    let options = Options::default().lane_capacity(LANE / size_of::<[u64; 128]>());
    let before = allocated_bytes();
    let reactors = Reactors::new(Placement::Unpinned { reactors: 3 }).options(options).foreign(1);
    let running = reactors.launch(|_| start).unwrap();
    assert!(allocated_bytes() < before + LANE, "the launching thread made lanes");
    for ended in running.shutdown(Duration::ZERO) {
        assert_eq!(
            ended.unwrap().context.lanes_of_its_thread,
            4,
            "one from each reactor and one from the foreign thread"
        );
    }
}
