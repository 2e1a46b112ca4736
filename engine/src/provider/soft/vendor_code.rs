//! The vendor codes of the software NIC ([`crate::provider::Failure::vendor_code`]): one per cause, so that two failures of one
//! status can be told apart. Of a message that the peer's NIC refused it is the peer's cause. 0 is a flush: it has no cause of its own.

/// The message is longer than 2 GiB.
pub const MESSAGE_LENGTH: u32 = 0x11;
/// A local element lies in no base registration of the queue pair's domain, or may not be written.
pub const LOCAL_ELEMENT: u32 = 0x12;
/// A base registration went away while the message was on its way.
pub const BASE_GONE: u32 = 0x13;
/// The registration is not one that the device makes: object, key, elements, base or right.
pub const REGISTRATION: u32 = 0x21;
/// The key of a local invalidation is not one of this queue pair's that is valid.
pub const LOCAL_INVALIDATION: u32 = 0x22;
/// A message behind a registration came without the fence that this device asks for.
pub const UNFENCED: u32 = 0x23;
/// The device sends no SEND_WITH_INV.
pub const NO_SEND_WITH_INVALIDATE: u32 = 0x24;
/// RDMA READs were not negotiated.
pub const NO_READS: u32 = 0x31;
/// The peer's queue pair does not answer any more.
pub const NO_ANSWER: u32 = 0x41;
/// The peer has no receive posted.
pub const NO_RECEIVE: u32 = 0x42;
/// The message is longer than the receive that it came to.
pub const RECEIVE_LENGTH: u32 = 0x51;
/// The receive lies in no base registration of its domain, or not any more.
pub const RECEIVE_ELEMENT: u32 = 0x52;
/// The key of the peer's SEND_WITH_INV is not one that it may invalidate.
pub const REMOTE_INVALIDATION: u32 = 0x53;
/// An RDMA WRITE goes to what its key does not open.
pub const WRITE_REFUSED: u32 = 0x61;
/// An RDMA READ goes to what its key does not open.
pub const READ_REFUSED: u32 = 0x62;
