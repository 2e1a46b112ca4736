//! An open image.

use super::{
    Errno, check,
    cluster::Handle,
    functions::{ConfigOption, EVENT_TYPE_EVENTFD, RbdFunctions, THICK_PROVISION},
};
use arrayvec::ArrayVec;
use core::ffi::{CStr, c_char, c_int, c_void};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    ffi::CString,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// Ends of operations that are taken by one call.
const BATCH: usize = crate::storage::MAX_COMPLETIONS_PER_POLL;

/// Bytes of the longest identifier of an image, and some.
const ID_BYTES: usize = 256;

/// What [`Image::take`] fills.
pub(in super::super) type TakenBatch = ArrayVec<Taken, BATCH>;

/// An operation that has ended.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Taken {
    /// As it was given.
    pub(in super::super) token: usize,
    /// Bytes read, 0 or more, or a negated errno.
    pub(in super::super) result: i64,
}

/// What librbd is asked to do, at a byte of the image.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Step {
    Read {
        at: u64,
        bytes: u32,
        buffer: usize,
    },
    Write {
        at: u64,
        bytes: u32,
        buffer: usize,
    },
    WriteZeroes {
        at: u64,
        bytes: u32,
        keeps_space: bool,
    },
    Discard {
        at: u64,
        bytes: u32,
    },
    /// Its buffer has what is expected, what is written then, and room for where they differ.
    CompareAndWrite {
        at: u64,
        bytes: u32,
        buffer: usize,
    },
    Flush,
}

/// What could not be opened.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum NotOpened {
    Pool(Errno),
    Image(Errno),
    /// It tells of no ends.
    Events(Errno),
}

/// `rbd_open` and `rbd_open_read_only`.
type OpenFunction = unsafe extern "C" fn(*mut c_void, *const c_char, *mut *mut c_void, *const c_char) -> c_int;

/// Opens an image so that it hears of others that change its size and snapshots, which one that is opened for reading only does not. A
/// user who may only read has that.
fn open_as(
    functions: &RbdFunctions,
    read_only: bool,
    mut open: impl FnMut(OpenFunction) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match open(functions.rbd_open) {
        Err(Errno(libc::EPERM | libc::EACCES | libc::EROFS)) if read_only => open(functions.rbd_open_read_only),
        opened => opened,
    }
}

/// A pool, as librados knows it.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) cluster: Arc<Handle>,
    pointer: *mut c_void,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the image of it was closed before.
        unsafe { (self.cluster.library.rados.rados_ioctx_destroy)(self.pointer) };
    }
}

/// A `rbd_image_t` and what becomes readable when an operation of it has ended.
#[derive(Debug)]
pub(in super::super) struct Image {
    pub(super) pointer: *mut c_void,
    event: OwnedFd,
    /// What it was opened at.
    snapshot: Option<CString>,
    /// The object that it is not without; `None` for an image of the first format, which has no identifier.
    header: Option<CString>,
    pub(super) pool: Pool,
}

// SAFETY: librbd's images are used by any number of threads at once, as QEMU and rbd-nbd use them; what is called is documented so, or
// takes librbd's own locks. Its cluster, which it keeps alive, is `Send` and `Sync`.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Opens one. Blocks for as long as its cluster does not answer.
    pub(in super::super) fn open(
        cluster: &Arc<Handle>,
        [pool, namespace, image]: [&CStr; 3],
        snapshot: Option<&CStr>,
        read_only: bool,
    ) -> Result<Self, NotOpened> {
        let (rados, rbd) = (&cluster.library.rados, &cluster.library.rbd);
        let mut pointer = core::ptr::null_mut();
        // SAFETY: the cluster is connected; a string, and a place for the pool.
        let made = unsafe { (rados.rados_ioctx_create)(cluster.pointer, pool.as_ptr(), &raw mut pointer) };
        check(made).map_err(NotOpened::Pool)?;
        let pool = Pool { cluster: Arc::clone(cluster), pointer };
        // SAFETY: nobody else has the pool; a string.
        unsafe { (rados.rados_ioctx_set_namespace)(pool.pointer, namespace.as_ptr()) };
        // A full pool is told, in place of being waited for.
        // SAFETY: nobody else has the pool.
        unsafe { (rados.rados_set_pool_full_try)(pool.pointer) };
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|errno| NotOpened::Events(Errno(errno.raw_os_error())))?;
        let at = snapshot.map_or(core::ptr::null(), CStr::as_ptr);
        let mut pointer = core::ptr::null_mut();
        // SAFETY: a pool, two strings, of which the second may be null, and a place for the image.
        let open = |open: OpenFunction| check(unsafe { open(pool.pointer, image.as_ptr(), &raw mut pointer, at) });
        open_as(rbd, read_only, open).map_err(NotOpened::Image)?;
        let mut image = Self { pointer, event, snapshot: snapshot.map(CStr::to_owned), header: None, pool };
        image.header = image.header_name();
        // SAFETY: the descriptor is open for as long as the image.
        let told =
            unsafe { (rbd.rbd_set_image_notification)(image.pointer, image.event.as_raw_fd(), EVENT_TYPE_EVENTFD) };
        check(told).map_err(NotOpened::Events)?;
        Ok(image)
    }

    pub(super) fn functions(&self) -> &'static RbdFunctions {
        &self.pool.cluster.library.rbd
    }

    /// Its bytes, or those of its snapshot. May block.
    pub(in super::super) fn size(&self) -> Result<u64, Errno> {
        let mut bytes = 0;
        // SAFETY: an open image, and a place for a number.
        check(unsafe { (self.functions().rbd_get_size)(self.pointer, &raw mut bytes) })?;
        Ok(bytes)
    }

    /// That it is there, and the snapshot that it was opened at, if it was: librbd knows its size also when it is not. May block.
    pub(in super::super) fn check_existence(&self) -> Result<(), Errno> {
        if let Some(header) = &self.header {
            let (mut bytes, mut changed) = (0, 0);
            let stat = self.pool.cluster.library.rados.rados_stat;
            // SAFETY: a pool, a string, and places for two numbers.
            check(unsafe { stat(self.pool.pointer, header.as_ptr(), &raw mut bytes, &raw mut changed) })?;
        }
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let mut id = 0;
        // SAFETY: an open image, a string, and a place for a number.
        check(unsafe { (self.functions().rbd_snap_get_id)(self.pointer, snapshot.as_ptr(), &raw mut id) })
    }

    fn header_name(&self) -> Option<CString> {
        let mut id: [c_char; ID_BYTES] = [0; ID_BYTES];
        // SAFETY: an open image, and memory of more than the length that is said.
        check(unsafe { (self.functions().rbd_get_id)(self.pointer, id.as_mut_ptr(), ID_BYTES - 1) }).ok()?;
        // SAFETY: its last byte was 0 before the call, and not given away.
        let id = unsafe { CStr::from_ptr(id.as_ptr()) };
        CString::new([b"rbd_header.", id.to_bytes()].concat()).ok()
    }

    /// The value of an option that images may have of their own; `None` where there is no such option. May block.
    pub(in super::super) fn option(&self, name: &CStr) -> Result<Option<String>, Errno> {
        let functions = self.functions();
        let mut count: c_int = 0;
        // SAFETY: room for none, which asks for how many there are.
        let asked = unsafe { (functions.rbd_config_image_list)(self.pointer, core::ptr::null_mut(), &raw mut count) };
        match check(asked) {
            Ok(()) | Err(Errno(libc::ERANGE)) => {}
            Err(errno) => return Err(errno),
        }
        let mut options = vec![ConfigOption::EMPTY; usize::try_from(count).unwrap_or(0)];
        // SAFETY: room for as many as are said.
        check(unsafe { (functions.rbd_config_image_list)(self.pointer, options.as_mut_ptr(), &raw mut count) })?;
        let filled = options.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default();
        // SAFETY: both strings of each that was filled in live until the call below.
        let text = |pointer| unsafe { CStr::from_ptr(pointer) };
        let found = filled.iter().find(|option| text(option.name) == name);
        let found = found.map(|option| text(option.value).to_string_lossy().into_owned());
        // SAFETY: what was filled in, which nobody has any more.
        unsafe { (functions.rbd_config_image_list_cleanup)(options.as_mut_ptr(), count) };
        Ok(found)
    }

    /// Gives librbd something to do; [`Image::take`] tells of its end with this token.
    ///
    /// # Safety
    /// `memory` is where the step's buffer begins, and is mapped for all its bytes until the end was taken. Nobody has a Rust reference
    /// into it.
    ///
    /// # Errors
    /// What librbd says; nothing was begun, and no end is told.
    pub(super) unsafe fn start(&self, token: usize, step: Step, memory: *mut u8) -> Result<(), Errno> {
        let functions = self.functions();
        let mut completion = core::ptr::null_mut();
        let argument = core::ptr::without_provenance_mut(token);
        // SAFETY: no callback, so that the argument is a number; a place for the completion.
        check(unsafe { (functions.rbd_aio_create_completion)(argument, None, &raw mut completion) })?;
        let image = self.pointer;
        // SAFETY: an open image, a completion of this operation alone, and memory as the caller promises.
        let begun = unsafe {
            match step {
                Step::Read { at, bytes, .. } => {
                    (functions.rbd_aio_read)(image, at, bytes as usize, memory.cast(), completion)
                }
                Step::Write { at, bytes, .. } => {
                    (functions.rbd_aio_write)(image, at, bytes as usize, memory.cast(), completion)
                }
                Step::WriteZeroes { at, bytes, keeps_space } => {
                    let flags = if keeps_space { THICK_PROVISION } else { 0 };
                    (functions.rbd_aio_write_zeroes)(image, at, bytes as usize, completion, flags, 0)
                }
                Step::Discard { at, bytes } => (functions.rbd_aio_discard)(image, at, bytes.into(), completion),
                Step::CompareAndWrite { at, bytes, .. } => {
                    let (length, expected) = (bytes as usize, memory.cast::<c_char>());
                    // Both of a sector's length, behind which there is room for a number.
                    let (written, differs) = (expected.wrapping_add(length), expected.wrapping_add(2 * length));
                    let compare = functions.rbd_aio_compare_and_write;
                    compare(image, at, length, expected, written, completion, differs.cast(), 0)
                }
                Step::Flush => (functions.rbd_aio_flush)(image, completion),
            }
        };
        check(begun).inspect_err(|_| {
            // SAFETY: librbd has not taken it.
            unsafe { (functions.rbd_aio_release)(completion) };
        })
    }

    /// Operations that have ended, whoever began them, each once. Never blocks; the queue that they come from has no lock.
    pub(in super::super) fn take(&self, out: &mut TakenBatch) {
        let functions = self.functions();
        let mut completions = [core::ptr::null_mut::<c_void>(); BATCH];
        let room = out.remaining_capacity().min(BATCH);
        // SAFETY: an open image that has an event, and room for as many as are said, which are fewer than 2^31.
        let found = unsafe { (functions.rbd_poll_io_events)(self.pointer, completions.as_mut_ptr(), room as c_int) };
        for completion in completions.into_iter().take(usize::try_from(found).unwrap_or(0)) {
            // SAFETY: it was handed to us, and to nobody else.
            let (argument, result) =
                unsafe { ((functions.rbd_aio_get_arg)(completion), (functions.rbd_aio_get_return_value)(completion)) };
            // SAFETY: as above, for the last time.
            unsafe { (functions.rbd_aio_release)(completion) };
            out.push(Taken { token: argument.addr(), result: result as i64 });
        }
    }

    /// Readable once an operation has ended, and written at each end.
    pub(in super::super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Image {
    /// Blocks until its operations have ended.
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more. What it comes to changes nothing: its cache is off.
        unsafe { (self.functions().rbd_close)(self.pointer) };
    }
}
