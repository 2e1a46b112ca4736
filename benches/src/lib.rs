//! Side-by-side measurements, and what they need.

pub mod arguments;
pub mod asleep;
pub mod connected;
pub mod cores;
pub mod detached;
pub mod freelist;
pub mod idle;
pub mod lane;
pub mod metered;
pub mod null_device;
pub mod null_queue_pairs;
pub mod nvmf;
pub mod per_request;
pub mod ping_pong;
pub mod requester;
pub mod scaling;
pub mod storm;
pub mod turns;
pub mod watched;
pub mod writes;
