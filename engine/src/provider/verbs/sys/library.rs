//! The functions of libibverbs, librdmacm and libmlx5: looked up in the shared libraries of the machine, or given.

use super::super::system::SystemView;
use super::cm_abi::{ConnectionParameters, Event, EventChannel, Identifier};
use super::mlx5_abi::{Mkey, MkeyAttributes, QueuePairAttributes, QueuePairEx};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use ibverbs_sys::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr,
};
use std::sync::OnceLock;

/// Why RDMA devices cannot be reached at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
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
    #[error("{library} has no function {function}; rdma-core 25 (2019) or later is needed")]
    TooOld {
        /// Its file name.
        library: &'static str,
        /// The function.
        function: &'static str,
    },
}

/// Declares the functions of one library: a table of pointers, how to fill it, and, where the library is bound by
/// ibverbs-sys, a comparison with the binding's type, which fails to compile where a signature is wrong.
macro_rules! functions {
    ($(#[$meta:meta])* bound $table:ident; $($function:tt)*) => {
        functions! { $(#[$meta])* $table; $($function)* }
        functions! { @compare $($function)* }
    };
    ($(#[$meta:meta])* $table:ident; $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $table {
            $(
                #[doc = concat!("`", stringify!($name), "`, as its manual page says.")]
                pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,
            )*
        }

        impl $table {
            fn load(library: &'static libloading::Library, file: &'static str) -> Result<Self, LibraryError> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the symbol of this name has this type: for libibverbs see the comparison below, for
                        // librdmacm rdma_cma.h, for libmlx5 mlx5dv.h.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        };
                        *found.map_err(|_| LibraryError::TooOld { library: file, function: stringify!($name) })?
                    },)*
                })
            }
        }
    };
    (@compare $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        const _: () = {
            $(let _: unsafe extern "C" fn($($argument),*) $(-> $result)? = ibverbs_sys::$name;)*
        };
    };
}

functions! {
    /// What is used of libibverbs.
    bound VerbsFunctions;
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list: fn(*mut *mut ibv_device);
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char;
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: fn(*mut ibv_context) -> c_int;
    ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event: fn(*mut ibv_async_event);
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
    ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut ibv_cq, c_uint);
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
    ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
    ibv_qp_to_qp_ex: fn(*mut ibv_qp) -> *mut ibv_qp_ex;
}

functions! {
    /// What is used of librdmacm (rdma_cma.h).
    ConnectionManagerFunctions;
    rdma_create_event_channel: fn() -> *mut EventChannel;
    rdma_destroy_event_channel: fn(*mut EventChannel);
    rdma_create_id: fn(*mut EventChannel, *mut *mut Identifier, *mut c_void, c_int) -> c_int;
    rdma_destroy_id: fn(*mut Identifier) -> c_int;
    rdma_bind_addr: fn(*mut Identifier, *mut libc::sockaddr) -> c_int;
    rdma_listen: fn(*mut Identifier, c_int) -> c_int;
    rdma_resolve_addr: fn(*mut Identifier, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    rdma_resolve_route: fn(*mut Identifier, c_int) -> c_int;
    rdma_connect: fn(*mut Identifier, *mut ConnectionParameters) -> c_int;
    rdma_accept: fn(*mut Identifier, *mut ConnectionParameters) -> c_int;
    rdma_reject: fn(*mut Identifier, *const c_void, u8) -> c_int;
    rdma_establish: fn(*mut Identifier) -> c_int;
    rdma_disconnect: fn(*mut Identifier) -> c_int;
    rdma_init_qp_attr: fn(*mut Identifier, *mut ibv_qp_attr, *mut c_int) -> c_int;
    rdma_get_cm_event: fn(*mut EventChannel, *mut *mut Event) -> c_int;
    rdma_ack_cm_event: fn(*mut Event) -> c_int;
}

functions! {
    /// What is used of libmlx5 (mlx5dv.h).
    Mlx5Functions;
    mlx5dv_is_supported: fn(*mut ibv_device) -> bool;
    mlx5dv_create_qp: fn(*mut ibv_context, *mut ibv_qp_init_attr_ex, *mut QueuePairAttributes) -> *mut ibv_qp;
    mlx5dv_qp_ex_from_ibv_qp_ex: fn(*mut ibv_qp_ex) -> *mut QueuePairEx;
    mlx5dv_create_mkey: fn(*mut MkeyAttributes) -> *mut Mkey;
    mlx5dv_destroy_mkey: fn(*mut Mkey) -> c_int;
}

/// What a device is reached through: functions, and what the system says of devices.
#[derive(Clone, Copy, Debug)]
pub struct FunctionTables {
    /// Of libibverbs.
    pub verbs: VerbsFunctions,
    /// Of librdmacm.
    pub connection_manager: ConnectionManagerFunctions,
    /// Of libmlx5, where there is one.
    pub mlx5: Option<Mlx5Functions>,
    /// Of the kernel.
    pub system: SystemView,
}

/// The libraries that devices are opened with; kept for the life of the process.
#[derive(Debug)]
pub struct Library {
    pub(super) verbs: VerbsFunctions,
    pub(super) connection_manager: ConnectionManagerFunctions,
    mlx5: Result<Mlx5Functions, NoMlx5>,
    pub(in super::super) system: SystemView,
}

/// Why lists cannot be registered, whatever the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMlx5 {
    /// libmlx5 cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// It is not looked for.
    #[error("this program was built without the feature mlx5; build it with --features mlx5")]
    NotBuilt,
    /// The tables that were given have none.
    #[error("no functions of libmlx5 were given")]
    NotGiven,
}

impl Library {
    /// The libraries of this machine; loads them at the first call.
    ///
    /// # Errors
    /// [`LibraryError`], the same at every call.
    pub fn get() -> Result<&'static Self, LibraryError> {
        static LIBRARY: OnceLock<Result<Library, LibraryError>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    /// Functions that stand for the libraries: tests hand in devices of their own.
    ///
    /// # Safety
    /// Every function does what the manual page of its name says of memory: it reads and writes only what its arguments
    /// point to, and what it returns lives as long as there. Any thread may call it.
    #[must_use]
    pub unsafe fn given(tables: &FunctionTables) -> Self {
        let FunctionTables { verbs, connection_manager, mlx5, system } = *tables;
        Self { verbs, connection_manager, mlx5: mlx5.ok_or(NoMlx5::NotGiven), system }
    }

    pub(super) fn mlx5(&self) -> Option<&Mlx5Functions> {
        self.mlx5.as_ref().ok()
    }

    /// Whether there is a libmlx5.
    ///
    /// # Errors
    /// Why there is none.
    pub fn has_mlx5(&self) -> Result<(), NoMlx5> {
        self.mlx5.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn load() -> Result<Self, LibraryError> {
        const VERBS: &str = "libibverbs.so.1";
        const CONNECTION_MANAGER: &str = "librdmacm.so.1";
        let verbs = VerbsFunctions::load(open(VERBS, "libibverbs1 ibverbs-providers")?, VERBS)?;
        let connection_manager =
            ConnectionManagerFunctions::load(open(CONNECTION_MANAGER, "librdmacm1")?, CONNECTION_MANAGER)?;
        Ok(Self { verbs, connection_manager, mlx5: load_mlx5(), system: SystemView::LINUX })
    }
}

fn load_mlx5() -> Result<Mlx5Functions, NoMlx5> {
    const MLX5: &str = "libmlx5.so.1";
    if !cfg!(feature = "mlx5") {
        return Err(NoMlx5::NotBuilt);
    }
    Ok(Mlx5Functions::load(open(MLX5, "ibverbs-providers")?, MLX5)?)
}

/// Loads a library for ever: its functions are handed out as plain pointers.
fn open(library: &'static str, package: &'static str) -> Result<&'static libloading::Library, LibraryError> {
    // SAFETY: rdma-core's libraries have no initialisers that depend on anything of this process.
    let loaded = unsafe { libloading::Library::new(library) };
    let missing = |error: libloading::Error| LibraryError::Missing { library, package, reason: error.to_string() };
    Ok(Box::leak(Box::new(loaded.map_err(missing)?)))
}

/// A C string as it came, or nothing where it is none.
///
/// # Safety
/// Null, or a NUL-terminated string that lives through the call.
pub(super) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
