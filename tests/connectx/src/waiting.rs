//! Descriptors that are readable as long as something waits: one count each, as poll(2) of a program sees it.

use std::os::fd::RawFd;

/// Makes one; nothing waits. Whoever closes it closes it as a system call, since it may be one of ours by then.
///
/// # Errors
/// EMFILE where the process may have no more.
pub(crate) fn descriptor() -> Result<RawFd, i32> {
    // SAFETY: no memory is named.
    let made = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
    if made < 0 { Err(libc::EMFILE) } else { Ok(made) }
}

/// One more waits.
pub(crate) fn add(descriptor: RawFd) {
    let one = 1u64;
    // SAFETY: eight bytes, as are said.
    unsafe { libc::syscall(libc::SYS_write, descriptor, &raw const one, size_of::<u64>()) };
}

/// One fewer waits; one at least did, so that this does not.
pub(crate) fn take(descriptor: RawFd) {
    let mut one = 0u64;
    // SAFETY: eight bytes, as are said.
    unsafe { libc::syscall(libc::SYS_read, descriptor, &raw mut one, size_of::<u64>()) };
}
