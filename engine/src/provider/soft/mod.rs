//! The software NIC: a strict RDMA device of this process, for products without hardware and for tests.
//!
//! Two NICs of one [`SoftFabric`] are joined by lanes of packets; where it is [`SoftFabric::between_processes`], so are those of
//! several processes, by sockets that the packets cross between the lanes of both ends. Every access of a peer is checked packet by packet
//! against the key table of the port it goes to, by the core that owns the port. [`SoftProfile`]s make it behave like
//! the kernel's REG_MR, type 2B windows, mlx5 UMR mkeys, or rxe with its leniencies.

mod bases;
mod commands;
mod connection_manager;
mod device;
mod fabric;
mod interference;
mod keys;
mod link;
mod names;
mod nic;
mod port;
mod profile;
mod queue_pair;
mod queue_pair_table;
mod receive_queue;
mod register_checks;
mod registration;
mod requester;
mod responder;
mod send_queue;
mod sockets;
pub mod vendor_code;
mod wire;

pub use device::SoftDevice;
pub use fabric::SoftFabric;
pub use interference::Interference;
pub use keys::OpenKey;
pub use nic::SoftMonitor;
pub use port::SoftPort;
pub use profile::{MAX_MTU, MIN_MTU, SoftOptions, SoftProfile, UnknownProfile};
pub use sockets::{RendezvousError, runtime_directory};
