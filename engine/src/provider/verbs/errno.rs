//! Errors of the system as answers.

use crate::provider::{CommandError, Errno};
use std::io;

/// An errno as an answer.
pub(super) fn command_error(error: &io::Error) -> CommandError {
    let errno = errno(error);
    match errno.0 {
        libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::EAGAIN => CommandError::Exhausted(errno),
        libc::EBUSY => CommandError::Busy(errno),
        libc::EADDRINUSE | libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EHOSTUNREACH => CommandError::Address(errno),
        libc::EIO | libc::ENODEV => CommandError::DeviceGone(errno),
        _ => CommandError::Invalid(errno),
    }
}

/// The number of an error; of those that a library makes without one, the one of a bad argument.
pub(super) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EINVAL, Errno)
}

#[cfg(test)]
mod tests {
    use super::command_error;
    use crate::provider::{CommandError, Errno};
    use std::io;

    #[test]
    fn an_errno_is_an_answer() {
        for (code, expected) in [
            (libc::ENOMEM, CommandError::EXHAUSTED),
            (libc::EAGAIN, CommandError::EXHAUSTED),
            (libc::EBUSY, CommandError::BUSY),
            (libc::EADDRINUSE, CommandError::ADDRESS),
            (libc::EADDRNOTAVAIL, CommandError::ADDRESS),
            (libc::ENODEV, CommandError::DEVICE_GONE),
            (libc::EIO, CommandError::DEVICE_GONE),
            (libc::EINVAL, CommandError::INVALID),
        ] {
            let found = command_error(&io::Error::from_raw_os_error(code));
            assert_eq!(core::mem::discriminant(&found), core::mem::discriminant(&expected), "{code}");
            assert_eq!(found.errno(), Errno(code), "the number goes on as it came");
        }
    }
}
