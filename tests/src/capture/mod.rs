//! What a capture of RoCE v2 traffic says of keys: each is announced by one command capsule, used inside its bytes and with
//! its right while that command is unanswered, and not announced again for a while.
//!
//! The capture is of NVMe over Fabrics; neither end's program is asked for anything.

mod frame;
mod keys;

pub use frame::{Frame, Headers, frames};
pub use keys::{Keys, MIN_USES_BETWEEN_EQUAL_KEYS, Violation};
