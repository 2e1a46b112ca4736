//! The functions of librados and librbd (librados.h, librbd.h), looked up in the shared libraries of the machine.

use core::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// Why images of Ceph cannot be reached at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RbdLibraryError {
    /// A library is not installed.
    #[error("{library} cannot be loaded ({reason}); on Debian: apt-get install {package}")]
    Missing {
        /// Its file name.
        library: &'static str,
        /// Debian's package that has it.
        package: &'static str,
        /// What the dynamic linker says.
        reason: String,
    },
    /// A library is too old.
    #[error("{library} has no function {function}; Ceph 16 (2021) or later is needed")]
    TooOld {
        /// Its file name.
        library: &'static str,
        /// The function.
        function: &'static str,
    },
}

/// An option of an image, as librbd.h lists them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigOption {
    pub(super) name: *mut c_char,
    pub(super) value: *mut c_char,
    pub(super) source: c_int,
}

impl ConfigOption {
    pub(super) const EMPTY: Self = Self { name: core::ptr::null_mut(), value: core::ptr::null_mut(), source: 0 };
}

/// A client that has an image open, as librbd.h lists them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Watcher {
    pub(super) address: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

impl Watcher {
    pub(super) const EMPTY: Self = Self { address: core::ptr::null_mut(), id: 0, cookie: 0 };
}

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(super) const LOCK_MODE_EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(super) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`: the space of zeros is kept.
pub(super) const THICK_PROVISION: c_int = 1;

/// Declares the functions of one library: a table of pointers, and how to fill it.
macro_rules! functions {
    ($table:ident; $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            fn load(file: &'static str, package: &'static str) -> Result<Self, RbdLibraryError> {
                // SAFETY: Ceph's libraries have no initialisers that depend on anything of this process.
                let loaded = unsafe { libloading::Library::new(file) };
                let missing = |error: libloading::Error| {
                    RbdLibraryError::Missing { library: file, package, reason: error.to_string() }
                };
                // For ever: its functions are plain pointers here.
                let library: &'static libloading::Library = Box::leak(Box::new(loaded.map_err(missing)?));
                Ok(Self {
                    $($name: {
                        // SAFETY: the symbol of this name has this type in its header.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        };
                        *found.map_err(|_| RbdLibraryError::TooOld { library: file, function: stringify!($name) })?
                    },)*
                })
            }
        }
    };
}

functions! {
    RadosFunctions;
    rados_create2: fn(*mut *mut c_void, *const c_char, *const c_char, u64) -> c_int;
    rados_conf_read_file: fn(*mut c_void, *const c_char) -> c_int;
    rados_conf_parse_env: fn(*mut c_void, *const c_char) -> c_int;
    rados_conf_set: fn(*mut c_void, *const c_char, *const c_char) -> c_int;
    rados_conf_get: fn(*mut c_void, *const c_char, *mut c_char, usize) -> c_int;
    rados_connect: fn(*mut c_void) -> c_int;
    rados_shutdown: fn(*mut c_void);
    rados_ioctx_create: fn(*mut c_void, *const c_char, *mut *mut c_void) -> c_int;
    rados_ioctx_destroy: fn(*mut c_void);
    rados_ioctx_set_namespace: fn(*mut c_void, *const c_char);
    rados_set_pool_full_try: fn(*mut c_void);
    rados_wait_for_latest_osdmap: fn(*mut c_void) -> c_int;
    rados_stat: fn(*mut c_void, *const c_char, *mut u64, *mut libc::time_t) -> c_int;
}

functions! {
    RbdFunctions;
    rbd_version: fn(*mut c_int, *mut c_int, *mut c_int);
    rbd_open: fn(*mut c_void, *const c_char, *mut *mut c_void, *const c_char) -> c_int;
    rbd_open_read_only: fn(*mut c_void, *const c_char, *mut *mut c_void, *const c_char) -> c_int;
    rbd_close: fn(*mut c_void) -> c_int;
    rbd_get_id: fn(*mut c_void, *mut c_char, usize) -> c_int;
    rbd_get_size: fn(*mut c_void, *mut u64) -> c_int;
    rbd_snap_get_id: fn(*mut c_void, *const c_char, *mut u64) -> c_int;
    rbd_get_features: fn(*mut c_void, *mut u64) -> c_int;
    rbd_is_exclusive_lock_owner: fn(*mut c_void, *mut c_int) -> c_int;
    rbd_lock_acquire: fn(*mut c_void, c_int) -> c_int;
    rbd_lock_release: fn(*mut c_void) -> c_int;
    rbd_lock_get_owners: fn(*mut c_void, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd_lock_get_owners_cleanup: fn(*mut *mut c_char, usize);
    rbd_lock_break: fn(*mut c_void, c_int, *const c_char) -> c_int;
    rbd_watchers_list: fn(*mut c_void, *mut Watcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup: fn(*mut Watcher, usize);
    rbd_config_image_list: fn(*mut c_void, *mut ConfigOption, *mut c_int) -> c_int;
    rbd_config_image_list_cleanup: fn(*mut ConfigOption, c_int);
    rbd_aio_create_completion: fn(*mut c_void, Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>, *mut *mut c_void) -> c_int;
    rbd_aio_get_return_value: fn(*mut c_void) -> isize;
    rbd_aio_release: fn(*mut c_void);
    rbd_aio_read: fn(*mut c_void, u64, usize, *mut c_char, *mut c_void) -> c_int;
    rbd_aio_write: fn(*mut c_void, u64, usize, *const c_char, *mut c_void) -> c_int;
    rbd_aio_discard: fn(*mut c_void, u64, u64, *mut c_void) -> c_int;
    rbd_aio_write_zeroes: fn(*mut c_void, u64, usize, *mut c_void, c_int, c_int) -> c_int;
    rbd_aio_compare_and_write: fn(*mut c_void, u64, usize, *const c_char, *const c_char, *mut c_void, *mut u64, c_int) -> c_int;
    rbd_aio_flush: fn(*mut c_void, *mut c_void) -> c_int;
}

/// Both libraries; kept for the life of the process.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) rados: RadosFunctions,
    pub(super) rbd: RbdFunctions,
}

impl Library {
    /// Those of this machine; loads them at the first call.
    ///
    /// # Errors
    /// [`RbdLibraryError`], the same at every call.
    pub(super) fn get() -> Result<&'static Self, RbdLibraryError> {
        static LIBRARY: OnceLock<Result<Library, RbdLibraryError>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, RbdLibraryError> {
        let rados = RadosFunctions::load("librados.so.2", "librados2")?;
        Ok(Self { rados, rbd: RbdFunctions::load("librbd.so.1", "librbd1")? })
    }
}

/// The version of librbd's interface on this machine, as `1.16.0`; loads it.
///
/// # Errors
/// [`RbdLibraryError`]: images of Ceph cannot be served here.
pub fn rbd_version() -> Result<String, RbdLibraryError> {
    let library = Library::get()?;
    let (mut major, mut minor, mut extra) = (0, 0, 0);
    // SAFETY: three numbers to write to.
    unsafe { (library.rbd.rbd_version)(&raw mut major, &raw mut minor, &raw mut extra) };
    Ok(format!("{major}.{minor}.{extra}"))
}
