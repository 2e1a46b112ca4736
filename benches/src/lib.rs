//! Side-by-side measurements, and what they need.

pub mod freelist;
pub mod null_device;
pub mod per_request;
pub mod requester;
pub mod storm;
