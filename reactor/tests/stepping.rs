//! One reactor stepped by hand on a virtual clock: order, poller kinds, budgets, time.

mod common;

use common::{Journal, Scribe, alone, ns, take_log};
use frwr_reactor::{
    Cause, LENGTHS, LONG_ITERATION, MAX_POLLERS, Now, Options, PollerError, PollerHandle, Schedule, Step, TIMED_BUDGET,
    poll_fn,
};

#[test]
fn iteration_polls_in_order_and_flushes_in_reverse() {
    let (clock, mut reactor) = alone(Options::default());
    reactor.add("first", Schedule::Busy, Scribe::with_work("first", vec![3])).unwrap();
    reactor.add("timed", Schedule::Every(ns(10)), Scribe::with_work("timed", vec![0, 4])).unwrap();
    reactor.add("second", Schedule::Busy, Scribe::new("second")).unwrap();
    assert_eq!(reactor.context_mut().outbox.send(common::FIRST, 7), Ok(()));
    clock.advance(ns(10));
    assert_eq!(reactor.step(), Step::Worked(4), "one message and three work units");
    let all =
        ["message 7", "poll first 10", "poll second 10", "poll timed 10", "flush second", "flush timed", "flush first"];
    assert_eq!(take_log(&mut reactor), all);
    clock.advance(ns(5));
    assert_eq!(reactor.step(), Step::Idle);
    assert_eq!(take_log(&mut reactor), ["poll first 15", "poll second 15"], "who found nothing hands nothing over");
    clock.advance(ns(5));
    assert_eq!(reactor.step(), Step::Worked(4));
}

#[test]
fn one_that_finds_something_is_enough_for_all_to_be_flushed() {
    let (_clock, mut reactor) = alone(Options::default());
    reactor.add("finds", Schedule::Busy, Scribe::with_work("finds", vec![0, 1, 0])).unwrap();
    reactor.add("finds nothing", Schedule::Busy, Scribe::new("finds nothing")).unwrap();
    let mut flushes = || {
        reactor.step();
        take_log(&mut reactor).into_iter().filter(|line| line.starts_with("flush")).collect::<Vec<_>>()
    };
    let both = ["flush finds nothing", "flush finds"];
    assert_eq!(flushes(), both, "the first iteration looks at everything");
    assert_eq!(flushes(), both, "a work unit of the first one");
    assert!(flushes().is_empty(), "nothing was found");
    assert_eq!(reactor.context_mut().outbox.send(common::FIRST, 7), Ok(()));
    reactor.step();
    assert_eq!(take_log(&mut reactor).len(), 1 + 2 + 2, "a message");
}

#[test]
fn same_inputs_give_the_same_run() {
    let run = || {
        let (clock, mut reactor) = alone(Options::default());
        for name in ["a", "b", "c"] {
            reactor.add(name, Schedule::Every(ns(3)), Scribe::with_work(name, vec![1, 0, 2])).unwrap();
            reactor.add(name, Schedule::Busy, Scribe::with_work(name, vec![0, 5])).unwrap();
        }
        let steps: Vec<Step> = (0..20)
            .map(|_| {
                clock.advance(ns(1));
                reactor.step()
            })
            .collect();
        (steps, take_log(&mut reactor), reactor.statistics())
    };
    assert_eq!(run(), run());
}

#[test]
fn timed_poller_skips_missed_periods() {
    let (clock, mut reactor) = alone(Options::default());
    reactor.add("timed", Schedule::Every(ns(10)), Scribe::new("timed")).unwrap();
    let mut polled_at = |time| {
        clock.set(ns(time));
        reactor.step();
        take_log(&mut reactor).iter().filter(|line| line.starts_with("poll")).count()
    };
    assert_eq!([9, 10, 11, 20, 55, 56, 64, 65].map(&mut polled_at), [0, 1, 0, 1, 1, 0, 0, 1]);
}

#[test]
fn timed_pollers_have_a_budget_and_none_starves() {
    let (clock, mut reactor) = alone(Options::default());
    for _ in 0..TIMED_BUDGET + 3 {
        reactor.add("timed", Schedule::Every(ns(100)), Scribe::with_work("timed", vec![1])).unwrap();
    }
    clock.advance(ns(100));
    assert_eq!(reactor.step(), Step::Worked(u32::try_from(TIMED_BUDGET).unwrap()));
    assert_eq!(reactor.step(), Step::Worked(3));
    assert_eq!(reactor.step(), Step::Idle);
}

#[test]
fn inbox_has_a_budget_and_no_lane_starves() {
    let options = Options::default().lane_capacity(256);
    let mut world = common::world(2, 0, options);
    for message in 0..200 {
        for reactor in &mut world.reactors {
            reactor.context_mut().outbox.send(common::FIRST, message).unwrap();
        }
    }
    let reactor = &mut world.reactors[0];
    let mut from_second = 0;
    for _ in 0..2 {
        assert_eq!(reactor.step(), Step::Worked(u32::try_from(frwr_reactor::INBOX_BUDGET).unwrap()));
        from_second = reactor
            .context()
            .received
            .iter()
            .filter(|(from, _)| *from == frwr_reactor::Source::Core(common::SECOND))
            .count();
    }
    assert_eq!(from_second, frwr_reactor::INBOX_BUDGET, "the second lane has its turn in the second iteration");
    while reactor.step() != Step::Idle {}
    assert_eq!(reactor.context().received.len(), 400);
}

#[test]
fn paused_pollers_rest_and_removed_ones_are_dropped() {
    let (clock, mut reactor) = alone(Options::default());
    let busy = reactor.add("busy", Schedule::Busy, Scribe::new("busy")).unwrap();
    let timed = reactor.add("timed", Schedule::Every(ns(10)), Scribe::new("timed")).unwrap();
    busy.pause();
    timed.pause();
    clock.advance(ns(30));
    reactor.step();
    assert!(take_log(&mut reactor).is_empty(), "neither polled nor flushed");
    busy.resume();
    timed.resume();
    reactor.step();
    assert_eq!(take_log(&mut reactor), ["poll busy 30", "poll timed 30", "flush timed", "flush busy"]);
    busy.remove();
    busy.resume();
    reactor.step();
    assert!(take_log(&mut reactor).is_empty(), "removal is final");
    assert_eq!(reactor.statistics().pollers.len(), 1);
}

#[test]
fn pollers_add_pause_and_remove_each_other_and_themselves() {
    let (_clock, mut reactor) = alone(Options::default());
    let victim = reactor.add("victim", Schedule::Busy, Scribe::new("victim")).unwrap();
    let adder = reactor.adder();
    let own = std::rc::Rc::new(std::cell::RefCell::new(None::<PollerHandle>));
    let mine = std::rc::Rc::clone(&own);
    let acts = move |_: &mut Journal, _: &Now| {
        victim.pause();
        adder.add("child", Schedule::Busy, Scribe::new("child")).unwrap();
        if let Some(me) = mine.borrow().as_ref() {
            me.remove();
        }
        1
    };
    *own.borrow_mut() = Some(reactor.add("actor", Schedule::Busy, poll_fn(acts)).unwrap());
    reactor.step();
    assert_eq!(take_log(&mut reactor), ["poll victim 0", "flush victim"], "changes wait for the next visit");
    reactor.step();
    assert_eq!(take_log(&mut reactor), ["poll child 0", "flush child"]);
    assert_eq!(reactor.statistics().pollers.iter().map(|poller| poller.name).collect::<Vec<_>>(), ["victim", "child"]);
}

#[test]
fn too_many_pollers_are_refused_and_places_come_back() {
    let (_clock, mut reactor) = alone(Options::default());
    let handles: Vec<_> =
        (0..MAX_POLLERS).map(|_| reactor.add("one", Schedule::Busy, Scribe::new("one")).unwrap()).collect();
    assert_eq!(reactor.add("more", Schedule::Busy, Scribe::new("more")).unwrap_err(), PollerError::TooMany);
    assert_eq!(reactor.adder().add("more", Schedule::Busy, Scribe::new("more")).unwrap_err(), PollerError::TooMany);
    handles[5].remove();
    reactor.step();
    reactor.add("more", Schedule::Busy, Scribe::new("more")).unwrap();
}

#[test]
fn time_that_goes_back_is_held() {
    let (clock, mut reactor) = alone(Options::default());
    reactor.add("busy", Schedule::Busy, Scribe::new("busy")).unwrap();
    for time in [50, 20, 60] {
        clock.set(ns(time));
        reactor.step();
    }
    let log = take_log(&mut reactor);
    let polls: Vec<_> = log.iter().filter(|line| line.starts_with("poll")).collect();
    assert_eq!(polls, ["poll busy 50", "poll busy 50", "poll busy 60"]);
}

#[test]
fn statistics_split_time_into_busy_and_idle() {
    let (clock, mut reactor) = alone(Options::default());
    reactor.add("worker", Schedule::Busy, Scribe::with_work("worker", vec![2, 0, 5])).unwrap();
    reactor.add("idler", Schedule::Busy, Scribe::new("idler")).unwrap();
    for time in [100, 130, 200, 210] {
        clock.set(ns(time));
        reactor.step();
    }
    let figures = reactor.statistics();
    assert_eq!((figures.iterations, figures.busy_iterations, figures.work), (4, 2, 7));
    assert_eq!((figures.busy, figures.idle), (ns(40), ns(70)), "the fourth iteration has not ended");
    assert_eq!((figures.longest_iteration.duration, figures.longest_iteration.at), (ns(70), ns(130)));
    let [worker, idler] = figures.pollers.as_slice() else { panic!("two pollers") };
    assert_eq!((worker.polls, worker.empty_polls, worker.work), (4, 2, 7));
    assert_eq!((worker.longest_iteration.duration, worker.longest_iteration.at), (ns(30), ns(100)));
    assert_eq!((idler.polls, idler.empty_polls, idler.longest_iteration.duration), (4, 4, ns(0)));
    assert_eq!(worker.time, ns(0), "not timed unless asked");
}

#[test]
fn iterations_above_the_limit_are_counted() {
    let (clock, mut reactor) = alone(Options::default());
    reactor.add("worker", Schedule::Busy, Scribe::with_work("worker", vec![1, 0, 0, 0])).unwrap();
    let mut time = ns(100);
    // The first one follows none; what is as long as the limit is not above it.
    for longer in [ns(0), LONG_ITERATION, LONG_ITERATION + ns(1), ns(70), LONG_ITERATION * 9] {
        time += longer;
        clock.set(time);
        reactor.step();
    }
    let figures = reactor.statistics();
    assert_eq!((figures.long_iterations, figures.pollers[0].long_iterations), (2, 0), "it found nothing in them");
}

#[test]
fn long_iterations_are_told_by_cause_and_length_and_charged_to_who_found_work() {
    let (clock, mut reactor) = alone(Options::default().stall_threshold(LONG_ITERATION * 4));
    reactor.add("worker", Schedule::Busy, Scribe::with_work("worker", vec![3, 0, 1, 0])).unwrap();
    reactor.add("other", Schedule::Busy, Scribe::with_work("other", vec![0, 0, 1, 0])).unwrap();
    for long in [1, 3, 9, 0] {
        reactor.step();
        clock.advance(LONG_ITERATION * long + ns(1));
    }
    reactor.step();
    let figures = reactor.statistics();
    let told = |cause| figures.long.of(cause).counts().map(|(_, count)| count).collect::<Vec<_>>();
    assert_eq!((figures.long_iterations, figures.long.total(), figures.stalls), (3, 3, 1), "that of 45 us");
    assert_eq!(told(Cause::Work)[..4], [1, 0, 0, 1], "up to 10 us, and up to 80");
    assert_eq!(told(Cause::Unknown)[..4], [0, 1, 0, 0]);
    assert!([Cause::Switch, Cause::PageFault, Cause::Wait].into_iter().all(|cause| told(cause) == [0; LENGTHS]));
    assert_eq!(figures.pollers.iter().map(|poller| poller.long_iterations).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn pollers_are_timed_on_demand() {
    let (clock, mut reactor) = alone(Options::default().time_pollers(true));
    let hand = clock.clone();
    let slow = move |_: &mut Journal, _: &Now| {
        hand.advance(ns(40));
        1
    };
    reactor.add("slow", Schedule::Busy, poll_fn(slow)).unwrap();
    reactor.add("fast", Schedule::Busy, Scribe::new("fast")).unwrap();
    reactor.step();
    reactor.step();
    let figures = reactor.statistics();
    assert_eq!((figures.pollers[0].time, figures.pollers[1].time), (ns(80), ns(0)));
    assert_eq!(figures.pollers[0].longest_poll.duration, ns(40));
}
