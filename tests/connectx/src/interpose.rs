//! The functions of libc that programs and libraries call instead of the real ones. Each asks whether path or descriptor is
//! ours, and passes on everything else as a system call.

use crate::{
    files::{self, Kind, Node},
    kernel::Answer,
    world,
};
use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::ffi::CString;

/// Sets errno, as a function of libc does that fails.
fn fail(errno: c_int) -> c_int {
    // SAFETY: the place of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// What a path is called with in the place of the one that was given.
///
/// # Safety
/// Null, or a C string.
unsafe fn path_for(path: *const c_char) -> Option<CString> {
    // SAFETY: the caller's promise.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }).and_then(files::redirected)
}

/// openat(2), or what stands for it.
///
/// # Safety
/// As openat(2).
unsafe fn open_any(folder: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: a C string, by the caller's promise.
    let node = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }).and_then(files::node);
    if let Some(node) = node {
        let opened = match node {
            Node::Verbs => world::open_verbs(),
            Node::ConnectionManager => world::open_connection_manager(),
        };
        return opened.unwrap_or_else(fail);
    }
    // SAFETY: as above.
    let other = unsafe { path_for(path) };
    let path = other.as_ref().map_or(path, |other| other.as_ptr());
    // SAFETY: the caller's promise, or a C string of ours.
    unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode) as c_int }
}

/// open(2).
///
/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(libc::AT_FDCWD, path, flags, mode) }
}

/// open(2).
///
/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(libc::AT_FDCWD, path, flags, mode) }
}

/// openat(2).
///
/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(folder, path, flags, mode) }
}

/// openat(2).
///
/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(folder, path, flags, mode) }
}

/// close(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn close(descriptor: c_int) -> c_int {
    if let Some(kind) = files::kind_of(descriptor) {
        files::set_kind(descriptor, None);
        if world::close(kind, descriptor) {
            return 0;
        }
    }
    // SAFETY: no memory is named.
    unsafe { libc::syscall(libc::SYS_close, descriptor) as c_int }
}

/// ioctl(2).
///
/// # Safety
/// As ioctl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if files::kind_of(descriptor) == Some(Kind::Verbs) {
        let done = world::with(|world| world.kernel.ioctl(descriptor, request, argument.addr() as u64));
        return done.map_or_else(fail, |()| 0);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, argument) as c_int }
}

/// write(2).
///
/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(descriptor: c_int, buffer: *const c_void, bytes: usize) -> isize {
    let kind = files::kind_of(descriptor);
    if matches!(kind, Some(Kind::Verbs | Kind::ConnectionManager)) && !buffer.is_null() {
        // SAFETY: so many bytes may be read, by the caller's promise.
        let command = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), bytes) };
        let done = match kind {
            Some(Kind::Verbs) => world::with(|world| world.kernel.write(descriptor, command)),
            _ => world::connection_manager_write(descriptor, command),
        };
        return match done {
            Ok(()) => bytes as isize,
            Err(errno) => fail(errno) as isize,
        };
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_write, descriptor, buffer, bytes) as isize }
}

/// read(2).
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(descriptor: c_int, buffer: *mut c_void, bytes: usize) -> isize {
    if files::kind_of(descriptor) == Some(Kind::Events) && !buffer.is_null() {
        return loop {
            match world::with(|world| world.kernel.read_event(descriptor)) {
                Answer::Event(event) if bytes >= event.len() => {
                    // SAFETY: so many bytes may be written, by the caller's promise.
                    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(event.as_ptr(), event.len()) };
                    break event.len() as isize;
                }
                Answer::Event(_) => break fail(libc::EINVAL) as isize,
                Answer::None => {
                    if let Err(errno) = world::wait(descriptor) {
                        break fail(errno) as isize;
                    }
                }
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_read, descriptor, buffer, bytes) as isize }
}

/// mmap(2), or ordinary memory where a program maps a card's pages: doorbells are read from their records.
///
/// # Safety
/// As mmap(2).
unsafe fn map_any(
    address: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    let ours = descriptor >= 0 && files::kind_of(descriptor) == Some(Kind::Verbs);
    let (flags, descriptor, offset) =
        if ours { (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) } else { (flags, descriptor, offset) };
    let rights = if ours { rights | libc::PROT_READ | libc::PROT_WRITE } else { rights };
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, address, bytes, rights, flags, descriptor, offset) };
    core::ptr::with_exposed_provenance_mut(mapped as usize)
}

/// mmap(2).
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map_any(address, bytes, rights, flags, descriptor, offset) }
}

/// mmap(2).
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map_any(address, bytes, rights, flags, descriptor, offset) }
}

/// fstatat(2).
///
/// # Safety
/// As fstatat(2).
unsafe fn stat_any(folder: c_int, path: *const c_char, found: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: a C string, by the caller's promise.
    let other = unsafe { path_for(path) };
    let path = other.as_ref().map_or(path, |other| other.as_ptr());
    // SAFETY: the caller's promise, or a C string of ours.
    unsafe { libc::syscall(libc::SYS_newfstatat, folder, path, found, flags) as c_int }
}

/// stat(2).
///
/// # Safety
/// As stat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stat(path: *const c_char, found: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { stat_any(libc::AT_FDCWD, path, found, 0) }
}

/// stat(2).
///
/// # Safety
/// As stat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stat64(path: *const c_char, found: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise; the two structures are one here.
    unsafe { stat_any(libc::AT_FDCWD, path, found, 0) }
}

/// fstat(2): a connection manager's descriptor says that it is a character device, as librdmacm expects.
///
/// # Safety
/// As fstat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstat(descriptor: c_int, found: *mut libc::stat) -> c_int {
    if files::kind_of(descriptor) == Some(Kind::ConnectionManager) {
        // SAFETY: a C string of ours; the place is the caller's.
        return unsafe { stat_any(libc::AT_FDCWD, c"/dev/null".as_ptr(), found, 0) };
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_fstat, descriptor, found) as c_int }
}

/// fstat(2).
///
/// # Safety
/// As fstat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstat64(descriptor: c_int, found: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise; the two structures are one here.
    unsafe { fstat(descriptor, found) }
}

/// statx(2).
///
/// # Safety
/// As statx(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: u32,
    found: *mut c_void,
) -> c_int {
    // SAFETY: a C string, by the caller's promise.
    let other = unsafe { path_for(path) };
    let path = other.as_ref().map_or(path, |other| other.as_ptr());
    // SAFETY: the caller's promise, or a C string of ours.
    unsafe { libc::syscall(libc::SYS_statx, folder, path, flags, mask, found) as c_int }
}

/// access(2).
///
/// # Safety
/// As access(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: a C string, by the caller's promise.
    let other = unsafe { path_for(path) };
    let path = other.as_ref().map_or(path, |other| other.as_ptr());
    // SAFETY: the caller's promise, or a C string of ours.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, mode, 0) as c_int }
}

/// readlink(2).
///
/// # Safety
/// As readlink(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, bytes: usize) -> isize {
    // SAFETY: a C string, by the caller's promise.
    let other = unsafe { path_for(path) };
    let path = other.as_ref().map_or(path, |other| other.as_ptr());
    // SAFETY: the caller's promise, or a C string of ours.
    unsafe { libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path, buffer, bytes) as isize }
}

/// opendir(3).
///
/// # Safety
/// As opendir(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    type Real = unsafe extern "C" fn(*const c_char) -> *mut libc::DIR;
    // SAFETY: a C string, by the caller's promise.
    let other = unsafe { path_for(path) };
    let path = other.as_ref().map_or(path, |other| other.as_ptr());
    // SAFETY: the next function of that name is libc's, which has this type.
    let real =
        unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(libc::dlsym(libc::RTLD_NEXT, c"opendir".as_ptr())) };
    // SAFETY: the caller's promise, or a C string of ours.
    real.map_or(core::ptr::null_mut(), |real| unsafe { real(path) })
}

/// socket(2): the kernel has no RDMA devices to list by netlink, so that libibverbs looks into sysfs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    // NETLINK_RDMA of linux/netlink.h.
    const NETLINK_RDMA: c_int = 20;
    if family == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return fail(libc::EPROTONOSUPPORT);
    }
    // SAFETY: no memory is named.
    let made: c_long = unsafe { libc::syscall(libc::SYS_socket, family, kind, protocol) };
    made as c_int
}
