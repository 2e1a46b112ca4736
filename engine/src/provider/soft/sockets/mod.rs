//! Software NICs of other processes of the same user, over Unix sockets (decision 171).
//!
//! Cold: a [`Gateway`] stands on the fabric for the devices of other processes. Each conversation of connection managers
//! is a socket that it speaks on, and a device number of its own on the fabric, so that the connection manager of this
//! process knows nothing of sockets. Hot: a [`Bridge`] moves the packets of one queue pair between the lanes of its wire
//! and two sockets, requests and responses apart as on lanes. Everything that another process says is looked at here, on
//! its way in.

mod border;
mod bridge;
mod bridges;
mod bytes;
mod channel;
mod conversation;
mod gateway;
mod message;
mod packet;
mod rendezvous;

pub(super) use bridge::Bridge;
pub(super) use bridges::Bridges;
pub(super) use gateway::Gateway;
pub(super) use rendezvous::Rendezvous;
pub use rendezvous::{RendezvousError, runtime_directory};
