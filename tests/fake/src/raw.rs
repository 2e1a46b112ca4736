//! Small things of C: errno, descriptors, the layout of a work completion.

use std::os::fd::RawFd;

/// Sets errno.
pub(crate) fn set_errno(code: i32) {
    // SAFETY: the address is that of this thread's errno.
    unsafe { *libc::__errno_location() = code };
}

/// Refuses with a null pointer.
pub(crate) fn null<T>(code: i32) -> *mut T {
    set_errno(code);
    core::ptr::null_mut()
}

/// Refuses as librdmacm does: -1 and errno.
pub(crate) fn minus_one(code: i32) -> i32 {
    set_errno(code);
    -1
}

/// A descriptor that can be read as long as something waits: one read takes one off.
#[derive(Debug)]
pub(crate) struct Signal(RawFd);

impl Signal {
    pub(crate) fn new() -> Self {
        // SAFETY: no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
        assert!(fd >= 0, "no eventfd: {}", std::io::Error::last_os_error());
        Self(fd)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0
    }

    /// Whether a read of it returns at once.
    pub(crate) fn is_nonblocking(&self) -> bool {
        // SAFETY: no pointer.
        unsafe { libc::fcntl(self.0, libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }

    /// One more waits.
    pub(crate) fn raise(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from it.
        unsafe { libc::write(self.0, (&raw const one).cast(), size_of::<u64>()) };
    }

    /// One was taken; never blocks, since each was raised.
    pub(crate) fn lower(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are written to it.
        unsafe { libc::read(self.0, (&raw mut count).cast(), size_of::<u64>()) };
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { libc::close(self.0) };
    }
}

/// `struct ibv_wc`, whose first members are private in Rust.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct WorkCompletion {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

const _: () = {
    use core::mem::offset_of;
    use ibverbs_sys::ibv_wc;
    assert!(size_of::<WorkCompletion>() == size_of::<ibv_wc>());
    assert!(offset_of!(WorkCompletion, imm_data) == offset_of!(ibv_wc, imm_data));
    assert!(offset_of!(WorkCompletion, wc_flags) == offset_of!(ibv_wc, wc_flags));
};
