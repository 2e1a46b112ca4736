//! Waiting for descriptors: poll(2).

use core::time::Duration;
use std::{io, os::fd::RawFd};

/// Blocks until one of the descriptors can be read, at most `at_most` long, rounded up to milliseconds. Returns whether
/// one can. A signal ends the wait early.
pub(in super::super) fn wait_readable<const N: usize>(descriptors: [RawFd; N], at_most: Duration) -> bool {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let milliseconds = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: the array lives through the call and has the given number of entries.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    ready > 0
}

/// Makes reads of a descriptor return at once.
pub(super) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: two calls of fcntl(2) without pointers.
    let result = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 { flags } else { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
