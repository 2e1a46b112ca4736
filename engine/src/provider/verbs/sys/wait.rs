//! Descriptors: whether they have something, and that reads of them return.

use std::{io, os::fd::RawFd};

/// Whether one of the descriptors can be read now: poll(2). One that has an error and nothing to read, as the events of
/// a device that was removed, is none.
pub(in super::super) fn is_any_readable<const N: usize>(descriptors: [RawFd; N]) -> bool {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: the array lives through the call and has the given number of entries.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, 0) };
    ready > 0 && polled.iter().any(|one| one.revents & libc::POLLIN != 0)
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
    use super::is_any_readable;
    use std::{
        io::{Write as _, pipe},
        os::fd::AsRawFd as _,
    };

    #[test]
    fn what_only_has_an_error_is_not_news() {
        let (gone, writer) = pipe().unwrap();
        drop(writer);
        let (quiet, mut writer) = pipe().unwrap();
        let both = [gone.as_raw_fd(), quiet.as_raw_fd()];
        assert!(!is_any_readable(both) && !is_any_readable([gone.as_raw_fd()]));
        writer.write_all(b"x").unwrap();
        assert!(is_any_readable(both));
    }
}
