//! A handle of a cluster.

use super::{
    Errno, check,
    functions::{Library, RbdLibraryError},
};
use core::ffi::{CStr, c_char, c_void};

/// Bytes of the longest value of an option that is asked for: numbers.
const VALUE_BYTES: usize = 128;

/// A `rados_t`.
#[derive(Debug)]
pub(in super::super) struct Handle {
    pub(super) library: &'static Library,
    pub(super) pointer: *mut c_void,
}

// SAFETY: librados locks what a handle holds; what may not be called beside something else takes `&mut self`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Why there is no handle.
#[derive(Debug)]
pub(in super::super) enum NoHandle {
    Library(RbdLibraryError),
    Refused(Errno),
}

impl Handle {
    /// Of the user of this whole name, `client.admin`; not connected, and without any configuration.
    ///
    /// # Errors
    /// [`NoHandle`].
    pub(in super::super) fn new(user: &CStr) -> Result<Self, NoHandle> {
        let library = Library::get().map_err(NoHandle::Library)?;
        let mut pointer = core::ptr::null_mut();
        // SAFETY: a place for the handle, and two strings that live through the call.
        let made = unsafe { (library.rados.rados_create2)(&raw mut pointer, c"ceph".as_ptr(), user.as_ptr(), 0) };
        check(made).map_err(NoHandle::Refused)?;
        Ok(Self { library, pointer })
    }

    /// Reads a configuration file; without a path the first that there is where librados looks for one.
    pub(in super::super) fn read_file(&mut self, path: Option<&CStr>) -> Result<(), Errno> {
        let path = path.map_or(core::ptr::null(), CStr::as_ptr);
        // SAFETY: the handle is not connected, as `&mut` and `connect` have it; a string, or none.
        check(unsafe { (self.library.rados.rados_conf_read_file)(self.pointer, path) })
    }

    /// Reads CEPH_ARGS and the like.
    pub(in super::super) fn parse_environment(&mut self) -> Result<(), Errno> {
        // SAFETY: as `read_file`; its static buffer is used by the one thread that holds the lock of all clusters (`cluster`).
        check(unsafe { (self.library.rados.rados_conf_parse_env)(self.pointer, core::ptr::null()) })
    }

    /// Sets an option, over what a file or the cluster says.
    pub(in super::super) fn set(&mut self, name: &CStr, value: &CStr) -> Result<(), Errno> {
        // SAFETY: as `read_file`; two strings.
        check(unsafe { (self.library.rados.rados_conf_set)(self.pointer, name.as_ptr(), value.as_ptr()) })
    }

    /// The value of an option; `None` where there is no such one, or it is long.
    pub(in super::super) fn value(&self, name: &CStr) -> Option<String> {
        let mut value: [c_char; VALUE_BYTES] = [0; VALUE_BYTES];
        // SAFETY: a string, and memory of the length that is said.
        let found = unsafe {
            (self.library.rados.rados_conf_get)(self.pointer, name.as_ptr(), value.as_mut_ptr(), VALUE_BYTES - 1)
        };
        check(found).ok()?;
        // SAFETY: its last byte was 0 before the call, and not given away.
        Some(unsafe { CStr::from_ptr(value.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Connects it, for good. Blocks.
    pub(in super::super) fn connect(&mut self) -> Result<(), Errno> {
        // SAFETY: the handle is there and not connected.
        check(unsafe { (self.library.rados.rados_connect)(self.pointer) })
    }
}

impl Drop for Handle {
    /// Blocks.
    fn drop(&mut self) {
        // SAFETY: images and pools hold an `Arc` of it, so that none is left.
        unsafe { (self.library.rados.rados_shutdown)(self.pointer) };
    }
}
