//! Messages between reactors, each of which may sleep.

use std::time::Duration;

use frwr_reactor::{
    Clock, Context, CoreIndex, Idle, Now, Options, Outbox, Poller, Schedule, Seat, SendError, ShutdownHandle, Sleep,
    Source, VirtualClock, Wiring,
};
use loom::thread::{self, JoinHandle};

const SECOND: CoreIndex = CoreIndex(1);

/// A core of two, and what it expects. It ends both when it got all that.
struct Core {
    outbox: Outbox<u32>,
    /// What the next message that comes is to be.
    expected: u32,
    /// So many come.
    count: u32,
    /// Answers each message.
    answers: bool,
    shutdown: ShutdownHandle,
}

impl Context for Core {
    type Message = u32;

    fn message(&mut self, from: Source, message: u32, _: &Now) {
        assert_eq!(message, self.expected, "in order, and once");
        self.expected += 1;
        let Source::Core(sender) = from else { panic!("{from:?}") };
        if self.answers {
            assert_eq!(self.outbox.send(sender, message), Ok(()));
        } else if self.expected == self.count {
            self.shutdown.request(Duration::ZERO);
        }
    }
}

/// Sends its message once.
struct Asks(Option<u32>);

impl Poller<Core> for Asks {
    fn poll(&mut self, core: &mut Core, _: &Now) -> u32 {
        let Some(message) = self.0.take() else { return 0 };
        assert_eq!(core.outbox.send(SECOND, message), Ok(()));
        1
    }

    fn sleep_until(&self, _: &Core) -> Sleep {
        Sleep::Forever
    }
}

fn two() -> [(Seat<u32>, Outbox<u32>); 2] {
    // Threads that sleep as soon as they may.
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO)).lane_capacity(2);
    let wiring = Wiring::new(2, 0, &Clock::from(&VirtualClock::new()), options).unwrap();
    wiring.seats.try_into().unwrap()
}

fn run(seat: Seat<u32>, outbox: Outbox<u32>, asks: Option<u32>, count: u32, answers: bool) -> JoinHandle<u64> {
    thread::spawn(move || {
        let shutdown = seat.shutdown_handle();
        let mut reactor = seat.reactor(Core { outbox, expected: 0, count, answers, shutdown });
        reactor.add("asks", Schedule::Busy, Asks(asks)).unwrap();
        reactor.run();
        reactor.finish().report.statistics.messages
    })
}

/// A request and its answer wake whoever falls asleep for them, and so does the wish to end.
#[test]
fn of_two_reactors_neither_sleeps_over_what_the_other_sends() {
    loom::model(|| {
        let [(first, first_outbox), (second, second_outbox)] = two();
        let second = run(second, second_outbox, None, 0, true);
        let first = run(first, first_outbox, Some(0), 1, false);
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (1, 1));
    });
}

/// What one core tells another about connections that are handed over arrives whole and in order, though the lane is full meanwhile: it
/// is carried as the cores of a target do that. Of the first reactor there is its outbox only, or there would be too many orders.
#[test]
fn what_a_full_lane_refuses_is_carried_later() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let [(_first, mut outbox), (second, second_outbox)] = two();
        let second = run(second, second_outbox, None, 3, false);
        let mut left = 0..3;
        let mut kept = None;
        while let Some(message) = kept.take().or_else(|| left.next()) {
            match outbox.send(SECOND, message) {
                Err(SendError::Full(message)) => {
                    kept = Some(message);
                    thread::yield_now();
                }
                Ok(()) | Err(SendError::Closed(_) | SendError::NoSuchReactor(_)) => {}
            }
        }
        assert_eq!(second.join().unwrap(), 3);
    });
}
