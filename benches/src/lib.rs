//! Side-by-side measurements, and what they need.

pub mod compare;
pub mod arguments;
pub mod cores;
pub mod freelist;
pub mod idle;
pub mod lane;
pub mod null_device;
pub mod requester;
pub mod ping_pong;
pub mod scaling;
