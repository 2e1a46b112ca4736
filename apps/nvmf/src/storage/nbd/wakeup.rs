//! What wakes a core that sleeps while servers think: all sockets of a storage, and a timer, behind one descriptor.

use super::socket::Socket;
use core::time::Duration;
use rustix::{
    event::epoll,
    io::Errno,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The longest sleep over operations. What no socket tells of is found so late: the next attempt to connect, the end of patience, what
/// another core has found wrong with the export, that the kernel has memory again. Ten looks in a second cost nothing.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Of one storage. Nobody reads it: what was told is known by looking.
#[derive(Debug)]
pub(super) struct Wakeup {
    epoll: OwnedFd,
    timer: OwnedFd,
}

/// Edge-triggered: a socket that is ready all the time tells of what comes.
fn told_of(sends: bool) -> epoll::EventFlags {
    let sends = if sends { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
    epoll::EventFlags::IN | epoll::EventFlags::ET | sends
}

/// Nobody asks which it was.
const fn nobody() -> epoll::EventData {
    epoll::EventData::new_u64(0)
}

impl Wakeup {
    /// Takes two descriptors.
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &timer, nobody(), told_of(false))?;
        Ok(Self { epoll, timer })
    }

    /// Readable while a socket is, or the timer has ended.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Tells of a socket until that is closed: where something has come, and with `sends` where it takes bytes.
    pub(super) fn add(&self, socket: &Socket, sends: bool) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket.descriptor(), nobody(), told_of(sends))
    }

    /// Tells something else of one that was added. What is so already is told as well.
    pub(super) fn change(&self, socket: &Socket, sends: bool) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket.descriptor(), nobody(), told_of(sends))
    }

    /// The timer begins anew.
    pub(super) fn begin(&self) -> Result<(), Errno> {
        let nothing = Timespec::default();
        let it_value = Timespec { tv_nsec: LONGEST_SLEEP.subsec_nanos().into(), ..nothing };
        let once = Itimerspec { it_interval: nothing, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).map(drop)
    }
}

const _: () = assert!(LONGEST_SLEEP.as_secs() == 0 && !LONGEST_SLEEP.is_zero(), "the timer is given nanoseconds alone");

#[cfg(test)]
mod tests;
