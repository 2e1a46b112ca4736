//! All C of the provider: libibverbs, librdmacm and libmlx5 behind safe types. The only unsafe code of the engine crate.
//!
//! The libraries are loaded at run time, so that one binary runs on hosts with and without them; ibverbs-sys gives the
//! types, and every function's type is compared with its binding at compile time. What ibverbs-sys lacks, librdmacm, libmlx5
//! and the head of `struct verbs_context`, is declared here with assertions of its layout.
//!
//! Objects own their C counterparts and keep alive what those depend on, so that C's order of destruction holds by
//! construction. All of them may be used by any thread: libibverbs' functions are thread-safe (ibv_post_send(3) and
//! others lock their queue, unless it is in a thread domain: then only its port posts to it), and librdmacm's are but for two calls on one id, which [`connection::Identifier`] excludes by
//! `&mut`.
#![allow(unsafe_code, reason = "the one room of this crate that calls C; docs/architecture.md")]

#[cfg(test)]
mod abi_test;
pub(super) mod batch;
pub(super) mod builder;
mod builder_functions;
pub mod cm_abi;
pub(super) mod completion_channel;
pub(super) mod completion_queue;
pub(super) mod connection;
pub(super) mod context;
pub(super) mod data;
pub(super) mod library;
pub(super) mod memory_region;
pub(super) mod mkey;
pub mod mlx5_abi;
pub(super) mod protection_domain;
pub(super) mod queue_pair;
mod receive_list;
pub(super) mod registered;
pub(super) mod shared_receive_queue;
pub(super) mod thread_domain;
pub(super) mod verbs_abi;
pub(super) mod wait;
pub(super) mod window;

use std::io;

/// The result of a C function that returns an errno, or -1 with the errno in its usual place.
fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code if code > 0 => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Index of the entry at `refused` in the list of `count` at `start`; 0 where the library did not set it.
fn place_of<T>(start: *const T, refused: *const T, count: usize) -> usize {
    let bytes = refused.addr().wrapping_sub(start.addr());
    let place = bytes / size_of::<T>();
    if refused.is_null() || place >= count { 0 } else { place }
}
