//! The wire formats of NVMe over Fabrics with the RDMA transport: capsules, data descriptors, Connect, properties and
//! the data structures that host and target exchange.
//!
//! Everything here is a plain value or a pure function on bytes. Every bit pattern that a peer can send decodes to a value
//! or to a [`Status`] that can be returned to it; nothing panics. Section names are those of the NVM Express
//! Base Specification 2.0 ("Base"), the NVM Command Set Specification 1.0 ("NVM") and the RDMA Transport
//! Specification 1.0 ("RDMA"); the first two hold what was "NVMe over Fabrics 1.1" before.
//!
//! All multi-byte fields are little-endian (Base 1.4.2), and no structure needs alignment: they can be read in place
//! from a received message.

/// Checks that a structure has as many bytes as the standard's, and its fields the standard's offsets.
macro_rules! layout {
    ($structure:ident, $bytes:expr; $($field:ident: $offset:expr),*) => {
        const _: () = assert!(size_of::<$structure>() == $bytes);
        $(const _: () = assert!(core::mem::offset_of!($structure, $field) == $offset);)*
    };
}

mod capsule;
mod command;
mod connect;
mod discovery;
mod encode;
mod identify;
mod log;
mod private_data;
mod property;
mod reservation;
mod serial;
mod sgl;
mod status;

pub use capsule::{
    COMMAND_CAPSULE_BYTES, CapsuleError, CompletionQueueEntry, Fuse, RESPONSE_CAPSULE_BYTES, SubmissionQueueEntry,
    parse_command, parse_response,
};
// All of it, so that a new command has its place there alone.
pub use command::*;
pub use connect::{
    AUTHENTICATION_REQUIRED, CONNECT_DATA_BYTES, ConnectData, ConnectDataError, DYNAMIC_CONTROLLER, InvalidParameter,
    Nqn, NqnError, parse_connect_data,
};
pub use discovery::{DISCOVERY_ENTRY_BYTES, DISCOVERY_SUBSYSTEM, DiscoveryEntry, DiscoveryHeader};
pub use identify::{
    DATASET_RANGE_BYTES, DatasetRange, IDENTIFY_BYTES, IdentifyActiveNamespaces, IdentifyController,
    IdentifyDescriptors, IdentifyNamespace, IdentifyNvmController, LbaFormat, MAX_DATASET_RANGES, UnsupportedFormat,
};
pub use log::{AnaGroup, AnaLogHeader, AnaState, EffectsLog, ErrorLogEntry, FirmwareLog, HealthLog, log_page};
pub use private_data::{
    AcceptPrivateData, PrivateDataError, QueueRequest, QueueRequestError, RejectPrivateData, RejectStatus,
    RequestPrivateData,
};
pub use property::{
    ControllerCapabilities, ControllerConfiguration, ControllerStatus, Property, ShutdownNotification, ShutdownStatus,
    VERSION,
};
pub use reservation::{
    AcquireAction, PersistChange, RELEASE_KEY_BYTES, RESERVATION_KEYS_BYTES, RegisterAction, RegisteredController,
    RegisteredControllerExtended, ReleaseAction, ReservationAcquire, ReservationKeys, ReservationNotification,
    ReservationNotificationKind, ReservationRegister, ReservationRelease, ReservationReport, ReservationStatus,
    ReservationType,
};
pub use serial::{SERIAL_BYTES, SerialNumber, SerialNumberError};
pub(crate) use sgl::PreparedBlock;
pub use sgl::{
    DataPointer, KEYED_DATA_BLOCK_LIMIT, KeyedDataBlock, SGL_DESCRIPTOR_BYTES, in_capsule_data, last_segment,
    listed_blocks,
};
pub use status::Status;

/// Queue 0 is the admin queue, all others are I/O queues (Base 1.5).
pub const ADMIN_QUEUE: u16 = 0;

/// The port that IANA assigned to NVMe over Fabrics (RDMA 3.1).
pub const DEFAULT_PORT: u16 = 4420;

/// The namespace identifier that means all of them (Base 3.2.1.2).
pub const BROADCAST_NAMESPACE: u32 = 0xffff_ffff;
