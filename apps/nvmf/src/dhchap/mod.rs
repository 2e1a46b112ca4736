//! DH-HMAC-CHAP (Base 8.13.5): hosts and controllers that prove who they are by keys that both sides have.
//!
//! [`ControllerSide`] and [`HostSide`] are the protocol, as values that know neither queues nor threads: a message in, and what comes of
//! it. [`DhChap`] is who a target or a host is given: it has the keys, and a thread of its own for what takes milliseconds.
//!
//! Keys and whatever follows from them are in no Debug and no error, and are wiped when they are dropped.

mod controller_side;
mod group;
mod hash;
mod host_side;
mod message;
mod moduli;
mod proof;
mod random;
mod secret;
mod service;
mod sides;

pub use controller_side::ControllerSide;
pub use group::Group;
pub use hash::Hash;
pub use host_side::HostSide;
pub use random::{NoRandomNumbers, Random, SystemRandom};
pub use secret::{DhChapKey, KeyError};
pub use service::DhChap;
pub use sides::{HostKeys, Permitted};
