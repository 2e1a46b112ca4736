//! A reactor whose figures somebody reads while it runs (goal A27: no instruction more in an iteration).
//!
//! What reads is counted with it, since callgrind counts a program: so it reads at told iterations, on the reactor's
//! own thread, by the calls that any other thread makes, and a program that only reads says what that costs by itself.

use core::{convert::Infallible, hint::black_box, time::Duration};
use frwr_reactor::{
    Clock, Context, CoreIndex, Now, Options, Outbox, Placement, Poller, Reactors, Running, Schedule, Seat,
    ShutdownHandle, Sleep, Source, VirtualClock,
};
use std::{
    error::Error,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
};

/// Iterations from one reading to the next: far fewer than ten readings in a second leave between them, so that what an
/// iteration did for a reading would show.
const PERIOD: u64 = 10;
/// As long as no run takes.
const LONG: Duration = Duration::from_secs(60 * 60);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Iterations that find nothing.
    Alone,
    /// The same, with a reading in each tenth.
    Read,
    /// As many readings in one iteration.
    Readings,
}

struct Nothing;

impl Context for Nothing {
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: &Now) {
        match message {}
    }
}

/// The reactor as others see it, once it is known to them.
type Seen = Arc<Mutex<Option<Running<Infallible, Nothing>>>>;

/// All that others read of it.
// A function of its own, so that it costs the same wherever it is called.
#[inline(never)]
fn read(seen: &Seen) {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = seen.as_ref() {
        black_box(running.statistics());
        black_box(running.pulses().last());
        black_box(running.last_stall(CoreIndex(0)));
    }
}

struct Finder {
    seen: Option<Seen>,
    left: u64,
    until_read: u64,
    /// Of its first poll.
    readings: u64,
    begin: Receiver<()>,
    has_begun: bool,
    end: ShutdownHandle,
    /// Goes with the reactor's pollers, when it ends.
    _ended: Sender<()>,
}

impl Poller<Nothing> for Finder {
    fn poll(&mut self, _: &mut Nothing, _: &Now) -> u32 {
        if !self.has_begun {
            self.has_begun = self.begin.recv().is_ok();
            if let Some(seen) = &self.seen {
                (0..self.readings).for_each(|_| read(seen));
            }
        }
        self.left = self.left.saturating_sub(1);
        self.until_read -= 1;
        if self.until_read == 0 {
            self.until_read = PERIOD;
            if let Some(seen) = &self.seen {
                read(seen);
            }
        }
        if self.left == 0 {
            self.end.request(LONG);
        }
        0
    }

    fn sleep_until(&self, _: &Nothing) -> Sleep {
        Sleep::Busy
    }
}

/// So many iterations, or readings for as many.
///
/// # Errors
/// What the reactor refuses.
pub fn run(what: What, iterations: u64) -> Result<(), Box<dyn Error>> {
    let seen = Seen::default();
    let ((begins, begin), (ended, ends)) = (channel(), channel());
    let (of_poller, mut parts) = (Arc::clone(&seen), Some((begin, ended)));
    // Time stands still: an iteration is none that took long because something was read in it.
    let clock = Clock::from(&VirtualClock::new());
    let reactors = Reactors::<Infallible>::new(Placement::Unpinned { reactors: 1 }).clock(clock);
    let options = Options::default().stall_threshold(Duration::MAX);
    let (count, readings) = match what {
        What::Readings => (1, iterations / PERIOD),
        What::Alone | What::Read => (iterations, 0),
    };
    let running = reactors.options(options).launch(move |_: CoreIndex| {
        let (seen, parts) = (Arc::clone(&of_poller), parts.take());
        move |seat: Seat<Infallible>, _: Outbox<Infallible>| {
            let (begin, ended) = parts.ok_or("there is one reactor")?;
            let seen = (what != What::Alone).then_some(seen);
            let end = seat.shutdown_handle();
            let mut reactor = seat.reactor(Nothing);
            let (left, until_read, has_begun) = (count, PERIOD, false);
            let finder = Finder { seen, left, until_read, readings, begin, has_begun, end, _ended: ended };
            reactor.add("finder", Schedule::Busy, finder).map_err(|_| "no room for a poller")?;
            Ok::<_, &'static str>(reactor)
        }
    })?;
    *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    begins.send(())?;
    // It never sends: this ends with the reactor.
    let _ = ends.recv();
    let running = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    let all_ended = running.is_some_and(|running| running.join().into_iter().all(|ended| ended.is_ok()));
    if all_ended { Ok(()) } else { Err("the reactor panicked".into()) }
}
