//! The one room of this crate with `unsafe` code. What the kernel is given here are addresses in a [`DeviceMemory`], which
//! stays mapped for as long as an operation may run, and which nobody has a Rust reference to: to this process, a kernel
//! that moves bytes there is a device like any other.

use super::{
    lock::LockedFile,
    task::{Fallocate, Kind, MAX_REFUSALS, Step},
};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use frwr_mempool::DeviceMemory;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::{
    fs::File,
    io::{self, Seek as _, SeekFrom},
    os::fd::AsRawFd as _,
    sync::Arc,
};

/// Bytes of one registered buffer at most: the kernel's limit (io_uring_register(2), IORING_REGISTER_BUFFERS). Data buffers
/// are powers of two below it, so none crosses a boundary.
const REGISTERED_BYTES: usize = 1 << 30;

/// What zeros are written from where the medium cannot be told to make some.
pub(super) const ZERO_BYTES: u32 = 64 << 10;

/// Aligned for every medium.
#[repr(align(65536))]
struct Zeros([u8; ZERO_BYTES as usize]);

static ZEROS: Zeros = Zeros([0; ZERO_BYTES as usize]);

/// A ring of io_uring over one file, and the memory of the buffers. At most as many steps as `entries` may be in it.
pub(super) struct Ring {
    ring: IoUring,
    file: Arc<LockedFile>,
    buffers: Option<DeviceMemory>,
    registered: bool,
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
        Ok(Self {
            ring,
            file,
            buffers: None,
            registered: false,
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
        unsafe { self.ring.submission().push(&entry.user_data(tag)) }.is_ok()
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
            Step::Fallocate { how, at, bytes } => opcode::Fallocate::new(fd, bytes).offset(at).mode(mode(how)).build(),
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

/// What flock(2) is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Exclusive,
    Shared,
    None,
}

/// Takes or gives back the lock of an open file; never waits.
pub(super) fn lock(file: &File, how: Lock) -> io::Result<()> {
    let operation = match how {
        Lock::Exclusive => libc::LOCK_EX,
        Lock::Shared => libc::LOCK_SH,
        Lock::None => libc::LOCK_UN,
    };
    // SAFETY: numbers only.
    match unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of a medium now; `None` where nobody knows. A file's server is not asked (AT_STATX_DONT_SYNC), so this never waits for a
/// network.
pub(super) fn length(mut file: &File, kind: Kind) -> Option<u64> {
    // Devices have no length, but an end; where they are is used by nobody else.
    if kind == Kind::Device {
        return file.seek(SeekFrom::End(0)).ok();
    }
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path that ends in a zero, and memory for the answer.
    let done = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_SIZE, found.as_mut_ptr()) };
    if done != 0 {
        // Where statx(2) is refused.
        return file.metadata().ok().map(|metadata| metadata.len());
    }
    // SAFETY: integers only, of which zeros are values; the kernel has filled them.
    Some(unsafe { found.assume_init() }.stx_size)
}

/// Bytes of a device's logical block: what the ranges of fallocate(2) are multiples of. `None` where it does not say.
pub(super) fn logical_block_bytes(device: &File) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: an integer for the answer (BLKSSZGET).
    let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::BLKSSZGET, &raw mut bytes) };
    u32::try_from(bytes).ok().filter(|bytes| done == 0 && bytes.is_power_of_two())
}

/// As system calls take it. Nothing is ever accessed through it in this process.
fn pointer(address: usize) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address)
}

fn mode(how: Fallocate) -> i32 {
    libc::FALLOC_FL_KEEP_SIZE
        | match how {
            Fallocate::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
            Fallocate::PunchHole => libc::FALLOC_FL_PUNCH_HOLE,
        }
}

/// Carries a step out and waits for it: bytes moved, or a negated errno, as [`Ended::result`].
pub(super) fn perform(file: &File, buffers: Option<&DeviceMemory>, step: Step) -> i32 {
    let fd = file.as_raw_fd();
    let slice = |buffer, bytes: u32| buffers?.slice(buffer, bytes as usize).ok();
    let moved = match step {
        Step::Read { at, buffer, bytes } => {
            let Some(to) = slice(buffer, bytes) else { return -libc::EFAULT };
            // SAFETY: `to` is mapped for the length of the call, and only ever accessed as memory that a device changes.
            unsafe { libc::pread(fd, pointer(to.address() as usize).cast(), to.len(), at.cast_signed()) }
        }
        Step::Write { at, buffer, bytes } => {
            let Some(from) = slice(buffer, bytes) else { return -libc::EFAULT };
            // SAFETY: as above.
            unsafe { libc::pwrite(fd, pointer(from.address() as usize).cast(), from.len(), at.cast_signed()) }
        }
        Step::WriteZeros { at, bytes } => {
            let length = bytes.min(ZERO_BYTES) as usize;
            // SAFETY: `length` bytes of static memory are read.
            unsafe { libc::pwrite(fd, ZEROS.0.as_ptr().cast(), length, at.cast_signed()) }
        }
        Step::Sync => return file.sync_data().map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0),
        // SAFETY: numbers only.
        Step::Fallocate { how, at, bytes } => unsafe {
            libc::fallocate(fd, mode(how), at.cast_signed(), bytes.cast_signed()) as isize
        },
    };
    if moved < 0 {
        return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    // Lengths have 32 bits, and one call moves at most 2 GiB - 4 KiB (read(2)).
    i32::try_from(moved).unwrap_or(i32::MAX)
}
