//! An open image.

use super::{
    Errno, check,
    cluster::Handle,
    end::{End, ended},
    functions::{ConfigOption, RbdFunctions, THICK_PROVISION},
};
use core::ffi::{CStr, c_char, c_int, c_void};
use std::{ffi::CString, sync::Arc};

/// Bytes of the longest identifier of an image, and some.
const ID_BYTES: usize = 256;

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

/// A `rbd_image_t`.
#[derive(Debug)]
pub(in super::super) struct Image {
    pub(super) pointer: *mut c_void,
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
        let at = snapshot.map_or(core::ptr::null(), CStr::as_ptr);
        let mut pointer = core::ptr::null_mut();
        // SAFETY: a pool, two strings, of which the second may be null, and a place for the image.
        let open = |open: OpenFunction| check(unsafe { open(pool.pointer, image.as_ptr(), &raw mut pointer, at) });
        open_as(rbd, read_only, open).map_err(NotOpened::Image)?;
        let mut image = Self { pointer, snapshot: snapshot.map(CStr::to_owned), header: None, pool };
        image.header = image.header_name();
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

    /// Gives librbd something to do; its end is put where `end` says.
    ///
    /// # Safety
    /// `end` lives until that end was taken. `memory` is where the step's buffer begins, and is mapped for all its bytes until then. Nobody
    /// has a mutable reference to the one, or any to the other.
    ///
    /// # Errors
    /// What librbd says; nothing was begun, and no end is told.
    pub(super) unsafe fn start(&self, end: *const End, step: Step, memory: *mut u8) -> Result<(), Errno> {
        let functions = self.functions();
        let mut completion = core::ptr::null_mut();
        let argument = end.cast_mut().cast();
        // SAFETY: the callback is given its argument, which lives as the caller promises; a place for the completion.
        check(unsafe { (functions.rbd_aio_create_completion)(argument, Some(ended), &raw mut completion) })?;
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
}

impl Drop for Image {
    /// Blocks until its operations have ended.
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more. What it comes to changes nothing: its cache is off.
        unsafe { (self.functions().rbd_close)(self.pointer) };
    }
}
