//! Waiting for descriptors: poll(2).

use core::time::Duration;
use std::{io, os::fd::RawFd};

/// Blocks until one of the descriptors can be read, at most `at_most` long, rounded up to milliseconds. Returns whether
/// one can. A signal ends the wait early. One that has an error and nothing to read, as the events of a device that was removed, is
/// waited for no longer: poll(2) says so at once and for ever, and its caller would never rest again.
pub(in super::super) fn wait_readable<const N: usize>(descriptors: [RawFd; N], at_most: Duration) -> bool {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let milliseconds = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    loop {
        // SAFETY: the array lives through the call and has the given number of entries.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
        if ready <= 0 || polled.iter().any(|one| one.revents & libc::POLLIN != 0) {
            return ready > 0;
        }
        // Negative ones are passed over; with each round there are more.
        polled.iter_mut().filter(|one| one.revents != 0).for_each(|one| one.fd = -1);
    }
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

#[cfg(test)]
mod tests {
    use super::wait_readable;
    use core::time::Duration;
    use std::{
        io::{Write as _, pipe},
        os::fd::AsRawFd as _,
    };

    #[test]
    fn what_only_has_an_error_is_not_news() {
        let short = Duration::from_millis(1);
        let (gone, writer) = pipe().unwrap();
        drop(writer);
        let (quiet, mut writer) = pipe().unwrap();
        let both = [gone.as_raw_fd(), quiet.as_raw_fd()];
        assert!(!wait_readable(both, short) && !wait_readable([gone.as_raw_fd()], short));
        writer.write_all(b"x").unwrap();
        assert!(wait_readable(both, short));
    }
}
