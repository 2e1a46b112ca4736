//! Draining with a deadline, by hand.

mod common;

use std::sync::Arc;

use common::{Journal, Scribe, alone, ns, take_log, world};
use frwr_reactor::{Now, Options, PollerError, Schedule, Sleep, Step, poll_fn};

#[test]
fn drained_pollers_end_the_loop() {
    let (_clock, mut reactor) = alone(Options::default());
    reactor.add("slow", Schedule::Busy, Scribe { drains_after: Some(3), ..Scribe::new("slow") }).unwrap();
    reactor.add("quick", Schedule::Busy, Scribe::new("quick")).unwrap();
    reactor.shutdown_handle().request(ns(1_000_000));
    let steps = (0..20).take_while(|_| reactor.step() != Step::Stopped).count();
    assert!((3..=6).contains(&steps), "{steps} iterations");
    let log = take_log(&mut reactor);
    assert_eq!(log.iter().filter(|line| *line == "shutdown slow").count(), 1);
    assert_eq!(
        log.iter().filter(|line| line.starts_with("poll")).count(),
        log.iter().filter(|line| line.starts_with("flush")).count()
    );
    let report = reactor.finish().report;
    assert!(report.undrained.is_empty() && report.messages_left == 0);
}

#[test]
fn deadline_lists_who_did_not_drain() {
    let (clock, mut reactor) = alone(Options::default());
    reactor.add("stuck", Schedule::Busy, Scribe { drains_after: None, ..Scribe::new("stuck") }).unwrap();
    reactor.add("quick", Schedule::Busy, Scribe::new("quick")).unwrap();
    let timed = Scribe { drains_after: None, ..Scribe::new("stuck timer") };
    reactor.add("stuck timer", Schedule::Every(ns(1)), timed).unwrap();
    reactor.shutdown_handle().request(ns(50));
    let mut steps = 0;
    while reactor.step() != Step::Stopped {
        clock.advance(ns(10));
        steps += 1;
    }
    assert_eq!(steps, 6, "times 0 to 50");
    assert_eq!(reactor.finish().report.undrained, ["stuck", "stuck timer"]);
}

/// A process that is stopped while it drains goes on draining when it is continued; a loop that is always slow comes to its end.
#[test]
fn time_in_which_nobody_polled_is_none_of_the_grace() {
    let second = ns(1_000_000_000);
    for (period, most) in [(second / 1000, 10_001), (60 * second, 101), (3600 * second, 101)] {
        let (clock, mut reactor) = alone(Options::default());
        reactor.add("stuck", Schedule::Busy, Scribe { drains_after: None, ..Scribe::new("stuck") }).unwrap();
        reactor.shutdown_handle().request(10 * second);
        let mut steps = 0;
        while reactor.step() != Step::Stopped {
            clock.advance(period);
            steps += 1;
        }
        assert!(steps > 99 && steps <= most, "{period:?} {steps}");
        assert_eq!(reactor.finish().report.undrained, ["stuck"]);
    }
}

#[test]
fn shorter_grace_wins() {
    let (_clock, mut reactor) = alone(Options::default());
    reactor.add("stuck", Schedule::Busy, Scribe { drains_after: None, ..Scribe::new("stuck") }).unwrap();
    let handle = reactor.shutdown_handle();
    handle.request(ns(1_000_000));
    assert_eq!(reactor.step(), Step::Idle);
    handle.request(ns(0));
    handle.request(ns(2_000_000));
    reactor.step();
    assert_eq!(reactor.step(), Step::Stopped);
    assert_eq!(reactor.finish().report.undrained, ["stuck"]);
}

#[test]
fn drained_reactor_serves_the_others_until_all_are_drained() {
    let mut world = world(2, 0, Options::default());
    let needs_time = Scribe { drains_after: Some(10), ..Scribe::new("needs time") };
    world.reactors[1].add("needs time", Schedule::Busy, needs_time).unwrap();
    world.shutdown.request(ns(1_000_000));
    for _ in 0..5 {
        assert_ne!(world.reactors[0].step(), Step::Stopped);
        world.reactors[1].step();
    }
    // A drained reactor still takes messages.
    world.reactors[1].context_mut().outbox.send(common::FIRST, 9).unwrap();
    assert_eq!(world.reactors[0].step(), Step::Worked(1));
    let mut stopped = [false; 2];
    for _ in 0..20 {
        for (reactor, stopped) in world.reactors.iter_mut().zip(&mut stopped) {
            *stopped = reactor.step() == Step::Stopped;
        }
    }
    assert_eq!(stopped, [true; 2]);
}

#[test]
fn messages_left_are_counted() {
    let mut world = world(1, 1, Options::default());
    world.shutdown.request(ns(0));
    let reactor = &mut world.reactors[0];
    reactor.step();
    assert_eq!(reactor.step(), Step::Stopped);
    world.foreign[0].send(common::FIRST, 1).unwrap();
    world.foreign[0].send(common::FIRST, 2).unwrap();
    assert_eq!(world.reactors.remove(0).finish().report.messages_left, 2);
}

#[test]
fn a_sleepy_poller_does_not_delay_draining() {
    let (_clock, mut reactor) =
        alone(Options::default().idle(frwr_reactor::Idle::SleepAfter(std::time::Duration::ZERO)));
    reactor.add("sleepy", Schedule::Busy, Scribe { sleep: Sleep::Forever, ..Scribe::new("sleepy") }).unwrap();
    reactor.shutdown_handle().request(ns(1_000));
    reactor.run();
    assert!(reactor.finish().report.undrained.is_empty());
}

#[test]
fn messages_left_are_counted_in_lanes_that_were_rounded_up() {
    let mut world = world(2, 0, Options::default().lane_capacity(3));
    let outbox = &mut world.reactors[0].context_mut().outbox;
    let sent = (0..9).take_while(|&message| outbox.send(common::SECOND, message).is_ok()).count();
    assert_eq!(world.reactors.remove(1).finish().report.messages_left, sent);
}

#[test]
fn a_reactor_that_ended_takes_no_pollers_and_keeps_none() {
    for finished in [false, true] {
        let (_clock, mut reactor) = alone(Options::default());
        let adder = reactor.adder();
        let alive = Arc::new(());
        let poller = || {
            // Whoever adds others has an adder of its own.
            let holds = (Arc::clone(&alive), adder.clone());
            poll_fn(move |_: &mut Journal, _: &Now| u32::from(Arc::strong_count(&holds.0) == 0))
        };
        reactor.step();
        adder.add("never seen", Schedule::Busy, poller()).unwrap();
        if finished {
            assert!(reactor.finish().report.statistics.pollers.is_empty());
        } else {
            drop(reactor);
        }
        assert_eq!(Arc::strong_count(&alive), 1, "it is dropped with the reactor");
        assert_eq!(adder.add("late", Schedule::Busy, poller()).unwrap_err(), PollerError::Ended);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
