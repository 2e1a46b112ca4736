//! Where a reactor's thread sleeps, and how it is woken: parked, or, where it has descriptors to wait for, in epoll_wait(2).

use core::time::Duration;
#[cfg(not(loom))]
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
};

use crate::primitive::{Thread, current, park, park_timeout};

/// How others wake it.
#[derive(Debug)]
pub(crate) enum Wakeup {
    Thread(Thread),
    #[cfg(not(loom))]
    Event(Arc<OwnedFd>),
}

impl Wakeup {
    /// One that comes before the reactor sleeps keeps it from that.
    pub(crate) fn wake(&self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            #[cfg(not(loom))]
            // Fails where the counter is full: then it is readable.
            Self::Event(event) => drop(rustix::io::write(event, &1_u64.to_ne_bytes())),
        }
    }
}

/// Where it sleeps. The reactor's own, and that of who adds pollers later: those have it wait for more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bed {
    /// Once it is there it stays; [`Bed::add`], the reactor's alone, puts it there.
    #[cfg(not(loom))]
    descriptors: Arc<OnceLock<Descriptors>>,
}

/// What is refused where the reactor parks: how it is woken is settled when it begins to run.
#[cfg(not(loom))]
const PARKS: &str =
    "this reactor sleeps without descriptors, and takes none while it runs; give it one before (Reactor::wake_by)";

/// What it waits for beside others' wish to wake it. Edge-triggered, so that nobody has to read what only wakes: what became ready while
/// nobody waited is told by the next wait.
#[cfg(not(loom))]
#[derive(Debug)]
struct Descriptors {
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
    /// Ends a wait to the nanosecond. A limit of the wait itself is whole milliseconds, rounded up, where epoll_pwait2(2) cannot be counted
    /// on.
    timer: OwnedFd,
}

#[cfg(not(loom))]
impl Descriptors {
    fn new() -> io::Result<Self> {
        use rustix::{
            event::{EventfdFlags, epoll, eventfd},
            time::{TimerfdClockId, TimerfdFlags, timerfd_create},
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let all = Self { epoll, event: Arc::new(event), timer };
        all.add(&all.event)?;
        all.add(&all.timer)?;
        Ok(all)
    }

    fn add(&self, descriptor: impl AsFd) -> io::Result<()> {
        use rustix::event::epoll;
        // Nobody asks which of them it was: pollers look at what they have.
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET);
        Ok(epoll::add(&self.epoll, descriptor, data, flags)?)
    }

    fn sleep(&self, limit: Option<Duration>) {
        use core::mem::MaybeUninit;
        use rustix::event::epoll;
        /// Descriptors that are told of at a time; what is ready beside them is told by the next wait.
        const TOLD: usize = 8;
        let mut told = [const { MaybeUninit::<epoll::Event>::uninit() }; TOLD];
        if limit.is_some_and(|limit| !self.wakes_in(limit)) {
            return;
        }
        // A signal may end it before: whoever sleeps looks and sleeps again. So may the timer of a sleep before.
        let _ = epoll::wait(&self.epoll, &mut told, None);
    }

    /// Whether the timer ends the next wait then.
    fn wakes_in(&self, limit: Duration) -> bool {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // A time beyond what the kernel counts is never. None at all would stop the timer.
        let Ok(it_value) = Timespec::try_from(limit.max(Duration::from_nanos(1))) else { return true };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok()
    }
}

impl Bed {
    /// Wakes the reactor too where this descriptor becomes readable. Before the reactor runs.
    #[cfg(not(loom))]
    pub(crate) fn add(&mut self, descriptor: impl AsFd) -> io::Result<()> {
        if self.descriptors.get().is_none() {
            // Nobody else makes them: the reactor is being built.
            let _ = self.descriptors.set(Descriptors::new()?);
        }
        self.add_later(descriptor)
    }

    /// The same of one that waits for descriptors already, from any thread: it may be asleep.
    #[cfg(not(loom))]
    pub(crate) fn add_later(&self, descriptor: impl AsFd) -> io::Result<()> {
        let descriptors = self.descriptors.get();
        descriptors.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, PARKS))?.add(descriptor)
    }

    /// How the calling thread is woken, which sleeps here.
    pub(crate) fn wakeup(&self) -> Wakeup {
        #[cfg(not(loom))]
        if let Some(descriptors) = self.descriptors.get() {
            return Wakeup::Event(Arc::clone(&descriptors.event));
        }
        Wakeup::Thread(current())
    }

    /// Sleeps until it is woken, or the time is over; or for no reason.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        #[cfg(not(loom))]
        if let Some(descriptors) = self.descriptors.get() {
            return descriptors.sleep(limit);
        }
        match limit {
            None => park(),
            Some(limit) => park_timeout(limit),
        }
    }
}
