//! What is left of reactors that do not start.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

use frwr_reactor::{Context, CoreIndex, LaunchError, Now, Outbox, Placement, Reactors, Seat, Source};

/// Takes its time to go, and then is no longer heard of.
struct Slow(#[expect(dead_code, reason = "its end is what the test sees")] mpsc::Sender<()>);

impl Context for Slow {
    type Message = u32;

    fn message(&mut self, _from: Source, _message: u32, _now: &Now) {}
}

impl Drop for Slow {
    fn drop(&mut self) {
        for _ in 0..1000 {
            std::thread::yield_now();
        }
    }
}

fn unpinned(reactors: usize) -> Reactors<u32> {
    Reactors::new(Placement::Unpinned { reactors })
}

#[test]
fn panic_of_prepare_is_its_callers_once_all_threads_are_gone() {
    let (alive, gone) = mpsc::channel();
    let prepare = move |core: CoreIndex| {
        if core.0 == 2 {
            resume_unwind(Box::new("no plan for this core"));
        }
        let slow = Slow(alive.clone());
        move |seat: Seat<u32>, _: Outbox<u32>| Ok::<_, Infallible>(seat.reactor(slow))
    };
    let panic = catch_unwind(AssertUnwindSafe(|| unpinned(3).launch(prepare))).expect_err("it panics");
    assert_eq!(panic.downcast_ref(), Some(&"no plan for this core"));
    assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Disconnected), "a thread has outlived its launch");
}

#[test]
fn what_prepare_holds_is_gone_before_threads_are_waited_for() {
    for panics in [false, true] {
        let (held, end_of_held) = mpsc::channel::<()>();
        let mut end_of_held = Some(end_of_held);
        let prepare = move |core: CoreIndex| {
            let _ = &held;
            if panics && core.0 == 1 {
                resume_unwind(Box::new("no plan for this core"));
            }
            let end_of_held = end_of_held.take();
            move |_: Seat<u32>, _: Outbox<u32>| {
                // Held for ever, this thread would never end.
                let _ = end_of_held.map(|end| end.recv());
                Err::<frwr_reactor::Reactor<Slow>, _>(std::io::Error::other("not today"))
            }
        };
        match catch_unwind(AssertUnwindSafe(|| unpinned(2).launch(prepare))) {
            Ok(launched) => assert!(!panics && matches!(launched, Err(LaunchError::Init { core: CoreIndex(0), .. }))),
            Err(_) => assert!(panics),
        }
    }
}
