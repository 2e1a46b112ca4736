//! Type 2 memory windows over libibverbs, connections by librdmacm: any device with such windows. Where libmlx5 knows the
//! device (feature `mlx5`), indirect keys over lists of ranges instead, configured by UMR work requests.
//!
//! A registration is BIND_MW, its end is LOCAL_INV or the peer's SEND_WITH_INV. Base registrations have no remote right, so
//! that a peer reaches memory through windows only. What devices do differently is in [`KNOWN_DEVICES`], and is tried at
//! start-up ([`Findings`]):
//!
//! | driver | devices | state |
//! |---|---|---|
//! | `rxe` | Soft-RoCE of the Linux kernel | run: the conformance suite of every test run, in a virtual machine |
//! | `mlx5` | ConnectX-4 and later | **not run on hardware**: from manual pages and source; windows and lists alike |
//! | `mlx4` | ConnectX-3 | **not run on hardware** |
//! | `irdma` | Intel E810 over RoCE v2 (iWARP is refused) | **not run on hardware** |
//! | others | whatever has type 2 windows | **not run on hardware**; the careful choice everywhere |
//!
//! siw, efa, erdma, hns, cxgb4 and bnxt_re have no windows in user space and are refused by name.
//!
//! libibverbs, librdmacm and libmlx5 are loaded when the first device is opened or listed; a binary with this provider runs
//! on hosts without them.

mod admit;
mod commands;
mod completion_queues;
mod connection_manager;
mod device;
mod errno;
mod findings;
pub mod hardware;
mod keys;
mod lists;
mod open;
mod options;
mod port;
mod publish;
mod quirks;
mod self_test;
mod sys;
pub mod system;
mod thread_domains;

pub use device::VerbsDevice;
pub use findings::{Finding, Findings, Outcome, SelfTestError};
pub use lists::NoLists;
pub use open::OpenError;
pub use options::{
    MAX_ACK_TIMEOUT, MAX_INLINE_BYTES, MAX_LIST_ENTRIES, MAX_MTU, MAX_RNR_TIMER, MIN_MTU, OptionError, PostInterface,
    Registration, Role, VerbsOptions,
};
pub use port::VerbsPort;
pub use quirks::{Evidence, KNOWN_DEVICES, KnownDevice, known_device};
pub use sys::library::{
    ConnectionManagerFunctions, FunctionTables, Library, LibraryError, Mlx5Functions, NoMlx5, VerbsFunctions,
};

/// What [`FunctionTables`] speak in, where ibverbs-sys has no type for it.
pub mod abi {
    pub use super::sys::{
        cm_abi as connection_manager, mlx5_abi as mlx5,
        verbs_abi::{AllocateParentDomain, AllocateThreadDomain, ContextHead, CreateQueuePairEx, FreeThreadDomain},
    };
}
