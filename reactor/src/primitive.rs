//! The types that threads meet at, from `std` or from loom: the same source is what runs and what is checked.

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park, yield_now},
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park, park_timeout, yield_now},
};

/// loom knows no time: it is over at any moment.
#[cfg(loom)]
pub(crate) fn park_timeout(_: core::time::Duration) {
    yield_now();
}
