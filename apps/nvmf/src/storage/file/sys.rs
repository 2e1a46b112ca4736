//! One of the two rooms of this crate with `unsafe` code (`rbd/sys` is the other). What the kernel is given here are addresses in a [`DeviceMemory`], which
//! stays mapped for as long as an operation may run, and which nobody has a Rust reference to: to this process, a kernel
//! that moves bytes there is a device like any other.

use super::{
    lock::LockedFile,
    task::{Fallocate, MAX_REFUSALS, Step, ZERO_BYTES},
};
use core::ffi::c_void;
use frwr_mempool::DeviceMemory;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, BorrowedFd},
        unix::fs::FileExt as _,
    },
    sync::Arc,
};

/// Bytes of one registered buffer at most: the kernel's limit (io_uring_register(2), IORING_REGISTER_BUFFERS). Data buffers
/// are powers of two below it, so none crosses a boundary.
const REGISTERED_BYTES: usize = 1 << 30;

/// Aligned for every medium.
#[repr(align(65536))]
struct Zeros([u8; ZERO_BYTES as usize]);

static ZEROS: Zeros = Zeros([0; ZERO_BYTES as usize]);

/// File systems whose server is a program, virtiofs included (statfs(2), FUSE_SUPER_MAGIC).
const FUSE: u32 = 0x6573_5546;

/// A ring of io_uring over one file, and the memory of the buffers. At most as many steps as `entries` may be in it.
pub(super) struct Ring {
    ring: IoUring,
    file: Arc<LockedFile>,
    buffers: Option<DeviceMemory>,
    registered: bool,
    /// What every entry asks for.
    flags: squeue::Flags,
    /// Steps that the kernel has taken and that were not reaped.
    running: usize,
    #[cfg(test)]
    refusal: Option<i32>,
}

/// What a step of the ring came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// As given to [`Ring::push`].
    pub(super) tag: u64,
    /// Bytes moved, or a negated errno.
    pub(super) result: i32,
}

impl Ring {
    /// # Errors
    /// What io_uring_setup(2) says, or `Unsupported` where the kernel lacks one of the operations.
    pub(super) fn new(entries: u32, file: Arc<LockedFile>) -> io::Result<Self> {
        // Plain completion queues are filled while the reactor computes. With COOP_TASKRUN or DEFER_TASKRUN it would have to
        // make a system call to see completions.
        let mut ring = IoUring::new(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if needed.into_iter().any(|code| !probe.is_supported(code)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's io_uring lacks operations of Linux 5.6",
            ));
        }
        try_out(&mut ring)?;
        let flags = if may_wait(&file) { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        Ok(Self {
            ring,
            file,
            buffers: None,
            registered: false,
            flags,
            running: 0,
            #[cfg(test)]
            refusal: None,
        })
    }

    /// Takes the memory of all buffers, once, and registers it. False where it has one already.
    pub(super) fn attach(&mut self, buffers: DeviceMemory) -> bool {
        if self.buffers.is_some() {
            return false;
        }
        let base = buffers.address() as usize;
        let parts: Vec<_> = (0..buffers.len())
            .step_by(REGISTERED_BYTES)
            .map(|at| libc::iovec {
                iov_base: pointer(base + at).cast::<c_void>(),
                iov_len: REGISTERED_BYTES.min(buffers.len() - at),
            })
            .collect();
        // SAFETY: the memory is mapped, and stays so until `self.buffers` is dropped, after the ring has come to rest.
        // Without room for it (RLIMIT_MEMLOCK) every transfer names its pages anew.
        self.registered = unsafe { self.ring.submitter().register_buffers(&parts) }.is_ok();
        self.buffers = Some(buffers);
        true
    }

    /// Readable when there is something to reap.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is open for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// What it is over.
    pub(super) fn file(&self) -> &LockedFile {
        &self.file
    }

    /// The memory of all buffers.
    pub(super) fn buffers(&self) -> Option<&DeviceMemory> {
        self.buffers.as_ref()
    }

    /// The kernel knows the buffers already.
    pub(super) fn is_registered(&self) -> bool {
        self.registered
    }

    /// Queues a step; it starts with the next [`Ring::enter`]. False where there is no room, or its buffer lies outside.
    pub(super) fn push(&mut self, tag: u64, step: Step) -> bool {
        let Some(entry) = self.entry(step) else { return false };
        // SAFETY: the file is open for as long as `self.file`, and `entry` has checked that the buffer lies in
        // `self.buffers`, or took static memory that is only read; both live until the ring has come to rest (`drop`).
        unsafe { self.ring.submission().push(&entry.flags(self.flags).user_data(tag)) }.is_ok()
    }

    fn entry(&self, step: Step) -> Option<squeue::Entry> {
        let fd = types::Fd(self.file.as_raw_fd());
        Some(match step {
            Step::Read { at, buffer, bytes } => match self.place(buffer, bytes)? {
                (to, Some(index)) => opcode::ReadFixed::new(fd, to, bytes, index).offset(at).build(),
                (to, None) => opcode::Read::new(fd, to, bytes).offset(at).build(),
            },
            Step::Write { at, buffer, bytes } => match self.place(buffer, bytes)? {
                (from, Some(index)) => opcode::WriteFixed::new(fd, from, bytes, index).offset(at).build(),
                (from, None) => opcode::Write::new(fd, from, bytes).offset(at).build(),
            },
            Step::WriteZeros { at, bytes } => {
                opcode::Write::new(fd, ZEROS.0.as_ptr(), bytes.min(ZERO_BYTES)).offset(at).build()
            }
            Step::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Step::Fallocate { how, at, bytes } => {
                opcode::Fallocate::new(fd, bytes).offset(at).mode(mode(how).bits().cast_signed()).build()
            }
        })
    }

    /// The address of a buffer, and which of the registered ones holds all of it.
    fn place(&self, buffer: usize, bytes: u32) -> Option<(*mut u8, Option<u16>)> {
        let buffers = self.buffers.as_ref()?.slice(buffer, bytes as usize).ok()?;
        let index = buffer / REGISTERED_BYTES;
        let whole = (buffer + bytes as usize).saturating_sub(1) / REGISTERED_BYTES == index;
        let index = u16::try_from(index).ok().filter(|_| self.registered && whole);
        Some((pointer(buffers.address() as usize), index))
    }

    /// One system call: starts what was queued, and returns how many steps, the oldest first. What the kernel had no room
    /// for stays queued.
    ///
    /// # Errors
    /// The errno of io_uring_enter(2); nothing was started.
    pub(super) fn enter(&mut self) -> Result<usize, i32> {
        #[cfg(test)]
        if let Some(errno) = self.refusal {
            return Err(errno);
        }
        let taken = self.ring.submit().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        self.running += taken;
        Ok(taken)
    }

    /// From now on the kernel refuses every call with this errno; `None` for no more.
    #[cfg(test)]
    pub(super) fn refuse(&mut self, errno: Option<i32>) {
        self.refusal = errno;
    }

    /// The next step that has ended; no system call.
    pub(super) fn reap(&mut self) -> Option<Ended> {
        let entry = self.ring.completion().next()?;
        self.running = self.running.saturating_sub(1);
        Some(Ended { tag: entry.user_data(), result: entry.result() })
    }

    /// Waits until one more step has ended. False where that cannot be waited for.
    fn wait(&self) -> bool {
        const GET_EVENTS: u32 = 1;
        // SAFETY: IORING_ENTER_GETEVENTS without a signal mask; nothing is submitted.
        let waited = unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, GET_EVENTS, None) };
        match waited {
            Ok(_) => true,
            Err(error) => matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)),
        }
    }
}

impl Drop for Ring {
    /// Waits for what runs: its buffers must stay mapped until then. What was only queued never starts.
    fn drop(&mut self) {
        while self.running > 0 {
            while self.reap().is_some() {}
            if self.running > 0 && !self.wait() {
                // They stay mapped for ever.
                core::mem::forget(self.buffers.take());
                return;
            }
        }
    }
}

/// io_uring_enter(2) itself waits for its file system, which says that it never would: then each step has to be asked for by a thread of
/// the kernel's (IOSQE_ASYNC). Seen of FUSE on Linux 6.18, whose reads past the page cache wait for the answer of their server.
fn may_wait(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| i128::from(found.f_type) == i128::from(FUSE))
}

/// One step that does nothing: a profile may let a ring be set up and refuse to enter it (seccomp(2)).
fn try_out(ring: &mut IoUring) -> io::Result<()> {
    // SAFETY: it names neither a file nor memory.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(|_| io::Error::other("a new ring has no room"))?;
    for _ in 0..MAX_REFUSALS {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        if let Some(ended) = ring.completion().next() {
            return if ended.result() < 0 { Err(io::Error::from_raw_os_error(-ended.result())) } else { Ok(()) };
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "a ring was set up, and its first entry did not end"))
}

/// As system calls take it. Nothing is ever accessed through it in this process.
fn pointer(address: usize) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address)
}

fn mode(how: Fallocate) -> FallocateFlags {
    FallocateFlags::KEEP_SIZE
        | match how {
            Fallocate::ZeroRange => FallocateFlags::ZERO_RANGE,
            Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE,
        }
}

/// Carries a step out and waits for it: bytes moved, or a negated errno, as [`Ended::result`].
pub(super) fn perform(file: &File, buffers: Option<&DeviceMemory>, step: Step) -> i32 {
    let slice = |buffer, bytes: u32| {
        buffers.and_then(|all| all.slice(buffer, bytes as usize).ok()).ok_or(io::Error::from_raw_os_error(libc::EFAULT))
    };
    let done = match step {
        Step::Read { at, buffer, bytes } => slice(buffer, bytes).and_then(|to| read(file, &to, at)),
        Step::Write { at, buffer, bytes } => slice(buffer, bytes).and_then(|from| write(file, &from, at)),
        Step::WriteZeros { at, bytes } => file.write_at(&ZEROS.0[..bytes.min(ZERO_BYTES) as usize], at),
        Step::Sync => file.sync_data().map(|()| 0),
        Step::Fallocate { how, at, bytes } => {
            fallocate(file, mode(how), at, bytes).map(|()| 0).map_err(io::Error::from)
        }
    };
    match done {
        // Lengths have 32 bits, and one call moves at most 2 GiB - 4 KiB (read(2)).
        Ok(moved) => i32::try_from(moved).unwrap_or(i32::MAX),
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// pread(2): no safe call takes memory that a device may change, since there is no slice of it.
fn read(file: &File, to: &DeviceMemory, at: u64) -> io::Result<usize> {
    let into = pointer(to.address() as usize).cast();
    // SAFETY: `to` is mapped for the length of the call, and only ever accessed as memory that a device changes.
    moved(unsafe { libc::pread(file.as_raw_fd(), into, to.len(), at.cast_signed()) })
}

/// pwrite(2), for the same reason.
fn write(file: &File, from: &DeviceMemory, at: u64) -> io::Result<usize> {
    let bytes = pointer(from.address() as usize).cast();
    // SAFETY: `from` is mapped for the length of the call, and only ever accessed as memory that a device changes.
    moved(unsafe { libc::pwrite(file.as_raw_fd(), bytes, from.len(), at.cast_signed()) })
}

fn moved(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
