//! Side-by-side measurements, and what they need.

pub mod arguments;
pub mod compare;
pub mod cores;
pub mod freelist;
pub mod idle;
// The engine's own file, which it shows to nobody: what is counted here is what it uses.
#[allow(dead_code, reason = "what only the engine asks of it")]
#[path = "../../engine/src/idle.rs"]
mod idle_ring;
pub mod lane;
pub mod null_device;
pub mod per_request;
pub mod ping_pong;
pub mod requester;
pub mod scaling;
pub mod storm;
pub mod turns;
