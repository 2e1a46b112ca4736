//! Side-by-side measurements, and what they need.

pub mod compare;
pub mod freelist;
pub mod null_device;
pub mod requester;
