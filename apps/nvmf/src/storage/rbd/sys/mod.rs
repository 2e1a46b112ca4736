//! All calls of librados and librbd, behind safe types. The libraries are loaded at run time, so that one binary runs on hosts with and
//! without them. Both say that their handles may be used by several threads at once; what is not so is `&mut` here.
//!
//! librbd moves bytes straight from and to the target's buffers. What it is given are addresses in a `DeviceMemory`, which stays
//! mapped for as long as an operation may run ([`way::Way`]), and which nobody has a Rust reference to: to this process, a library that
//! moves bytes there is a device like any other.

mod cluster;
mod end;
mod functions;
mod image;
mod lock;
mod way;

pub(super) use cluster::{Handle, NoHandle};
pub use functions::{RbdLibraryError, rbd_version};
pub(super) use image::{Image, NotOpened, Step};
pub(super) use way::Way;

use core::{ffi::c_int, fmt};
use std::io;

/// What a function of Ceph returned in place of success: an errno, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(pub(super) i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// Ceph's functions return negated errnos.
fn check(result: c_int) -> Result<(), Errno> {
    if result < 0 { Err(Errno(result.saturating_neg())) } else { Ok(()) }
}
