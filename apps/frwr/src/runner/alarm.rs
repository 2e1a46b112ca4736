//! What wakes the main thread where it waits: whoever has something for it rings, and descriptors become ready.

use crate::Error;
use core::{task::Waker, time::Duration};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, read, write},
};
use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
    task::Wake,
};

/// Bytes taken of a descriptor that only wakes: of an eventfd all, of a pipe as many signals as anybody sends between
/// two looks.
const TAKEN: usize = 64;

/// Any thread may ring it.
#[derive(Debug)]
struct Event(OwnedFd);

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Fails where the counter is full: then it is readable.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Its time was over, or a signal arrived that nothing tells of.
    TimeOver,
    /// It was rung, or told.
    Rung,
    /// One of the others is ready.
    OthersReady,
}

/// Where the main thread waits.
#[derive(Debug)]
pub(super) struct Alarm(Arc<Event>);

impl Alarm {
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn new() -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| Error::setup(format!("no eventfd: {error}; raise `ulimit -n`")))?;
        Ok(Self(Arc::new(Event(event))))
    }

    /// Ends the wait that is under way, or the next one.
    pub(super) fn waker(&self) -> Waker {
        Arc::clone(&self.0).into()
    }

    /// Waits until it is rung, `told` becomes readable (which is emptied), one of the `others` is ready, a signal
    /// arrives, or so much time is over. Returns what ended it, of several the last one in the order of [`Woken`].
    pub(super) fn wait(&self, told: Option<BorrowedFd<'_>>, others: Vec<PollFd<'_>>, at_most: Duration) -> Woken {
        let own: Vec<_> = [Some(self.0.0.as_fd()), told].into_iter().flatten().collect();
        let mut polled: Vec<_> = own.iter().map(|one| PollFd::from_borrowed_fd(*one, PollFlags::IN)).collect();
        polled.extend(others);
        while has_errors_alone(&mut polled, at_most) {
            // They would say so at once and for ever, as the events of a device that was removed.
            let quiet = || PollFd::from_borrowed_fd(self.0.0.as_fd(), PollFlags::empty());
            polled.iter_mut().filter(|one| !one.revents().is_empty()).for_each(|one| *one = quiet());
        }
        let (of_own, others) = polled.split_at(own.len());
        let mut woken = Woken::TimeOver;
        for (one, _) in own.iter().zip(of_own).filter(|(_, polled)| is_ready(polled)) {
            empty(*one);
            woken = Woken::Rung;
        }
        if others.iter().any(is_ready) { Woken::OthersReady } else { woken }
    }
}

/// It has what it was asked for.
fn is_ready(polled: &PollFd<'_>) -> bool {
    polled.revents().intersects(PollFlags::IN | PollFlags::OUT)
}

/// Waits. Whether there is nothing but errors, and no reason not to wait again.
fn has_errors_alone(polled: &mut [PollFd<'_>], at_most: Duration) -> bool {
    // Seconds far below 2^63.
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    match poll(polled, Some(&timeout)) {
        Ok(ready) => ready > 0 && !polled.iter().any(is_ready),
        Err(Errno::INTR) => false,
        Err(_) => {
            // There is nothing to wait by.
            sleep(at_most);
            false
        }
    }
}

/// What was written to wake is not read for anything else.
fn empty(descriptor: BorrowedFd<'_>) {
    let _ = read(descriptor, &mut [0_u8; TAKEN]);
}

/// The main thread is no reactor: it makes room for them.
#[allow(clippy::disallowed_methods, reason = "the main thread may sleep")]
fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Woken};
    use core::time::Duration;
    use rustix::event::{PollFd, PollFlags};
    use std::{
        io::{Write as _, pipe},
        os::fd::AsFd as _,
        thread,
    };

    /// Nobody waits so long.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn who_rings_before_or_while_it_waits_ends_that() {
        let alarm = Alarm::new().unwrap();
        let waker = alarm.waker();
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(alarm.wait(None, Vec::new(), LONG), Woken::Rung);
        let rings = thread::spawn(move || waker.wake());
        assert_eq!(alarm.wait(None, Vec::new(), LONG), Woken::Rung);
        rings.join().unwrap();
    }

    #[test]
    fn what_tells_of_signals_is_emptied_and_what_others_have_is_left_to_them() {
        let alarm = Alarm::new().unwrap();
        let [(told, mut tells), (other, mut sends)] = [pipe().unwrap(), pipe().unwrap()];
        let others = || vec![PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN)];
        tells.write_all(b"xx").unwrap();
        assert_eq!(alarm.wait(Some(told.as_fd()), others(), LONG), Woken::Rung);
        sends.write_all(b"x").unwrap();
        for _ in 0..2 {
            assert_eq!(alarm.wait(Some(told.as_fd()), others(), LONG), Woken::OthersReady);
        }
        assert_eq!(alarm.wait(Some(told.as_fd()), Vec::new(), Duration::ZERO), Woken::TimeOver, "it was emptied");
    }

    #[test]
    fn what_only_has_an_error_ends_no_wait() {
        let alarm = Alarm::new().unwrap();
        let (gone, writer) = pipe().unwrap();
        drop(writer);
        let others = || vec![PollFd::from_borrowed_fd(gone.as_fd(), PollFlags::IN)];
        assert_eq!(alarm.wait(None, others(), Duration::from_millis(1)), Woken::TimeOver);
        alarm.waker().wake();
        assert_eq!(alarm.wait(None, others(), LONG), Woken::Rung);
    }
}
