//! A peer that breaks the rules of an NVMe-oF target on purpose, over any device. What each attack may cost is the
//! connection that it uses; and the target has one line to say of it.

mod attacks;
mod capsules;
mod peer;

pub use attacks::{Attack, Names, all};
pub use peer::{Dialed, Peer, World};
