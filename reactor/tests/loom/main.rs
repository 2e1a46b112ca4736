//! Model checking of what a reactor shares with other threads: above all, that no wake-up is lost. Its own build:
//!
//! `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test --release -p frwr-reactor --test loom`
//!
//! A reactor that sleeps although there is something for it never ends, and loom says that all threads are blocked. Here a reactor takes
//! one message per iteration, so that its budget runs out.

#![cfg(loom)]

mod bell;
mod cores;
mod worker;

use std::time::Duration;

use frwr_reactor::{
    Clock, Context, CoreIndex, ForeignOutbox, Idle, Now, Options, Outbox, Poller, PollerHandle, Report, Schedule, Seat,
    ShutdownHandle, Sleep, Source, VirtualClock, Wiring,
};
use loom::sync::mpsc;
use loom::thread::{self, JoinHandle};

const FIRST: CoreIndex = CoreIndex(0);

/// Ends the reactors when it got as many messages as it waits for.
struct Waits {
    messages: u32,
    shutdown: ShutdownHandle,
}

impl Waits {
    /// Ends them where nothing is awaited any more.
    fn end(&self) {
        if self.messages == 0 {
            self.shutdown.request(Duration::ZERO);
        }
    }
}

impl Context for Waits {
    type Message = u32;

    fn message(&mut self, _: Source, message: u32, _: &Now) {
        // The number of each is what is awaited then, but for one beside a device's completions.
        assert!(message == self.messages || message == 0, "in order, and once");
        self.messages -= 1;
        self.end();
    }
}

/// Lets the reactor sleep; ends it at its first poll if it is told to.
struct Rests {
    ends: bool,
}

impl Poller<Waits> for Rests {
    fn poll(&mut self, context: &mut Waits, _: &Now) -> u32 {
        if self.ends {
            context.shutdown.request(Duration::ZERO);
        }
        u32::from(self.ends)
    }

    fn sleep_until(&self, _: &Waits) -> Sleep {
        Sleep::Forever
    }
}

/// What there is of one reactor and one thread that is none.
struct Parts {
    seat: Seat<u32>,
    foreign: ForeignOutbox<u32>,
    shutdown: ShutdownHandle,
    _outbox: Outbox<u32>,
}

fn parts() -> Parts {
    // A thread that sleeps as soon as it may.
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO)).lane_capacity(2);
    let wiring = Wiring::new(1, 1, &Clock::from(&VirtualClock::new()), options).unwrap();
    let (seat, _outbox) = wiring.seats.into_iter().next().unwrap();
    let foreign = wiring.foreign.into_iter().next().unwrap();
    Parts { seat, foreign, shutdown: wiring.shutdown, _outbox }
}

/// Runs a reactor that waits for so many messages, with what `prepare` adds.
fn run(
    seat: Seat<u32>,
    messages: u32,
    prepare: impl FnOnce(&mut frwr_reactor::Reactor<Waits>) + Send + 'static,
) -> JoinHandle<Report> {
    thread::spawn(move || {
        let shutdown = seat.shutdown_handle();
        let mut reactor = seat.reactor(Waits { messages, shutdown });
        prepare(&mut reactor);
        reactor.run();
        reactor.finish().report
    })
}

#[test]
fn a_message_wakes_whoever_falls_asleep() {
    loom::model(|| {
        let Parts { seat, mut foreign, .. } = parts();
        let reactor = run(seat, 2, |_| ());
        for message in [2, 1] {
            assert_eq!(foreign.send(FIRST, message), Ok(()));
        }
        assert_eq!(reactor.join().unwrap().statistics.messages, 2);
    });
}

#[test]
fn a_wish_to_shut_down_wakes_whoever_falls_asleep() {
    loom::model(|| {
        let Parts { seat, shutdown, .. } = parts();
        let reactor = run(seat, u32::MAX, |_| ());
        shutdown.request(Duration::ZERO);
        assert!(reactor.join().unwrap().undrained.is_empty());
    });
}

#[test]
fn a_poller_that_is_added_wakes_whoever_falls_asleep() {
    loom::model(|| {
        let Parts { seat, .. } = parts();
        let (send, adders) = mpsc::channel();
        let reactor = run(seat, u32::MAX, move |reactor| send.send(reactor.adder()).unwrap());
        let adder = adders.recv().unwrap();
        adder.add("ends", Schedule::Busy, Rests { ends: true }).unwrap();
        assert!(reactor.join().unwrap().statistics.work > 0);
    });
}

#[test]
fn of_two_that_ask_for_attention_neither_is_overlooked() {
    loom::model(|| {
        let Parts { seat, .. } = parts();
        let (send, handles) = mpsc::channel::<[PollerHandle; 2]>();
        let reactor = run(seat, u32::MAX, move |reactor| {
            let mut paused = |name, ends| {
                let handle = reactor.add(name, Schedule::Busy, Rests { ends }).unwrap();
                handle.pause();
                handle
            };
            send.send([paused("removed", false), paused("ends", true)]).unwrap();
        });
        let [removed, ends] = handles.recv().unwrap();
        let other = thread::spawn(move || removed.remove());
        ends.resume();
        other.join().unwrap();
        assert!(reactor.join().unwrap().statistics.work > 0);
    });
}
