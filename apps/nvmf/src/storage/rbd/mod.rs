//! An image of a Ceph cluster as a namespace, by librbd, which is loaded when the first image is opened. Operations are given to librbd
//! by the core that polls the storage; of ours only a callback runs on threads of librbd, which puts each end into the mailbox of its core. All images of a
//! process that reach their cluster in the same way share one connection to it (`cluster`), and all cores one open image (`shared`).

mod cluster;
mod environment;
mod lock;
mod mailbox;
mod medium;
mod name;
mod shared;
mod storage;
#[allow(unsafe_code, reason = "the one room that calls librados and librbd; docs/architecture.md")]
mod sys;
mod task;

pub use lock::{RbdLock, RbdLockFrom, RbdLockTaken};
pub use medium::{RbdError, RbdLook, RbdMedium};
pub use name::{RbdNameError, RbdOptions, is_rbd_name};
pub use storage::RbdStorage;
pub use sys::{RbdLibraryError, rbd_version};
