//! Messages between reactors that are stepped on one thread, and from foreign threads.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::{FIRST, SECOND, world};
use frwr_reactor::{
    Clock, Context, CoreIndex, Now, Options, SendError, Source, Step, VirtualClock, Wiring, WiringError,
};

fn small() -> Options {
    Options::default().lane_capacity(4).panic_grace(Duration::ZERO)
}

#[test]
fn full_lane_gives_the_message_back() {
    let mut world = world(2, 0, small());
    for message in 0..4 {
        world.reactors[0].context_mut().outbox.send(SECOND, message).unwrap();
    }
    assert_eq!(world.reactors[0].context_mut().outbox.send(SECOND, 4), Err(SendError::Full(4)));
    assert_eq!(world.reactors[0].statistics().would_blocks, 1);
    assert_eq!(world.reactors[1].step(), Step::Worked(4));
    world.reactors[0].context_mut().outbox.send(SECOND, 5).unwrap();
    world.reactors[1].step();
    let received: Vec<_> = world.reactors[1].context().received.iter().map(|&(_, message)| message).collect();
    assert_eq!(received, [0, 1, 2, 3, 5], "in order");
    assert_eq!(world.reactors[1].statistics().messages, 5);
    assert_eq!(world.reactors[1].statistics().would_blocks, 0);
}

/// Neither waits for the other: both go on, and what was given back arrives once there is room.
#[test]
fn two_full_lanes_stand_in_nobodys_way() {
    let mut world = world(2, 0, small());
    let ends = [(0, SECOND), (1, FIRST)];
    for (from, to) in ends {
        let outbox = &mut world.reactors[from].context_mut().outbox;
        (0..4).for_each(|message| outbox.send(to, message).unwrap());
        assert_eq!(outbox.send(to, 4), Err(SendError::Full(4)));
    }
    for round in 0..100 {
        for (from, to) in ends {
            assert_eq!(world.reactors[from].step(), Step::Worked(4), "{round}: it reads, whatever it may not send");
            let outbox = &mut world.reactors[from].context_mut().outbox;
            // The other one has not read yet in the first round, and has in all others.
            let expected = if (round, from) == (0, 0) { Err(SendError::Full(4)) } else { Ok(()) };
            assert_eq!(outbox.send(to, 4), expected, "{round}");
            while outbox.send(to, 5).is_ok() {}
        }
    }
}

#[test]
fn each_pair_has_its_own_lane() {
    let mut world = world(3, 0, small());
    for message in 0..4 {
        world.reactors[0].context_mut().outbox.send(SECOND, message).unwrap();
    }
    world.reactors[2].context_mut().outbox.send(SECOND, 20).unwrap();
    world.reactors[1].context_mut().outbox.send(SECOND, 10).unwrap();
    world.reactors[1].step();
    let received = &world.reactors[1].context().received;
    assert!(received.contains(&(Source::Core(CoreIndex(2)), 20)) && received.contains(&(Source::Core(SECOND), 10)));
    assert_eq!(received.len(), 6);
}

#[test]
fn unknown_and_gone_receivers_are_told_apart() {
    let mut world = world(2, 1, small());
    assert_eq!(world.foreign[0].send(CoreIndex(2), 1), Err(SendError::NoSuchReactor(1)));
    drop(world.reactors.remove(1));
    assert_eq!(world.foreign[0].send(SECOND, 2), Err(SendError::Closed(2)));
    assert_eq!(world.reactors[0].context_mut().outbox.send(SECOND, 3).unwrap_err().into_message(), 3);
    world.foreign[0].send(FIRST, 4).unwrap();
    assert_eq!(world.reactors[0].step(), Step::Worked(1));
}

#[test]
fn foreign_threads_have_lanes_of_their_own() {
    const EACH: u32 = 10_000;
    let mut world = world(1, 2, small());
    let reactor = &mut world.reactors[0];
    std::thread::scope(|scope| {
        for mut outbox in world.foreign {
            scope.spawn(move || {
                for mut message in 0..EACH {
                    while let Err(refused) = outbox.send(FIRST, message) {
                        assert!(matches!(refused, SendError::Full(_)));
                        message = refused.into_message();
                        std::thread::yield_now();
                    }
                }
            });
        }
        while reactor.context().received.len() < 2 * EACH as usize {
            if reactor.step() == Step::Idle {
                std::thread::yield_now();
            }
        }
    });
    for number in 0..2 {
        let from = |&&(from, _): &&(Source, u32)| from == Source::Foreign(number);
        assert!(reactor.context().received.iter().filter(from).map(|&(_, message)| message).eq(0..EACH));
    }
}

#[test]
fn messages_behind_one_that_panics_are_received_in_the_next_iteration() {
    let wiring = Wiring::new(1, 1, &Clock::from(&VirtualClock::new()), small()).unwrap();
    let (seat, _outbox) = wiring.seats.into_iter().next().unwrap();
    let mut reactor = seat.reactor(Picky::default());
    let [mut foreign] = <[_; 1]>::try_from(wiring.foreign).unwrap();
    for message in 0..3 {
        foreign.send(FIRST, message).unwrap();
    }
    assert!(catch_unwind(AssertUnwindSafe(|| reactor.step())).is_err());
    assert_eq!(reactor.step(), Step::Worked(2), "nothing else has to come for them to be seen");
    assert_eq!(reactor.context().0, [1, 2]);
}

/// Panics at message 0.
#[derive(Default)]
struct Picky(Vec<u32>);

impl Context for Picky {
    type Message = u32;

    fn message(&mut self, _from: Source, message: u32, _now: &Now) {
        assert_ne!(message, 0, "not this one");
        self.0.push(message);
    }
}

#[test]
fn wirings_beyond_the_limits_are_refused() {
    let refused = |reactors, foreign, lane_capacity| {
        Wiring::<u32>::new(reactors, foreign, &Clock::system(), small().lane_capacity(lane_capacity)).unwrap_err()
    };
    assert_eq!(refused(0, 0, 4), WiringError::Reactors(0));
    assert_eq!(refused(65, 0, 4), WiringError::Reactors(65));
    // Nothing is made for them first.
    assert_eq!(refused(usize::MAX, 0, 4), WiringError::Reactors(usize::MAX));
    assert_eq!(refused(1, usize::MAX, 4), WiringError::Foreign(usize::MAX));
    assert_eq!(refused(1, 65, 4), WiringError::Foreign(65));
    assert_eq!(refused(1, 0, 0), WiringError::LaneCapacity(0));
    assert_eq!(refused(1, 0, usize::MAX), WiringError::LaneCapacity(usize::MAX));
}
