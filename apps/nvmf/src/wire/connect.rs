//! The data of the Connect command (Base 6.3, figure 380).

use arrayvec::ArrayString;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of Connect's data.
pub const CONNECT_DATA_BYTES: usize = 1024;

/// CNTLID of an admin queue's Connect: the controller is for the subsystem to choose (dynamic controller model).
pub const DYNAMIC_CONTROLLER: u16 = 0xffff;

/// In the result of a Connect that succeeded, beside the controller's identifier: an authentication transaction is required on this
/// queue (ATR of AUTHREQ, Base figure 381).
pub const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

/// Bytes of an NVMe Qualified Name without its terminating zero (Base 4.5).
const MAX_NQN_BYTES: usize = 223;
/// Bytes of the field that holds it.
const NQN_FIELD_BYTES: usize = 256;
const _: () = assert!(MAX_NQN_BYTES < NQN_FIELD_BYTES);

/// The least that a name can start with.
const NQN_PREFIX: &str = "nqn.";

/// An NVMe Qualified Name: at most 223 bytes of UTF-8 that start with `nqn.` (Base 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nqn(ArrayString<MAX_NQN_BYTES>);

/// Why text is no NVMe Qualified Name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NqnError {
    /// Too long.
    #[error("an NQN has at most {MAX_NQN_BYTES} bytes, this one has {0}; choose a shorter name")]
    Length(usize),
    /// Not UTF-8 up to a terminating zero.
    #[error("an NQN is UTF-8 text that ends with a zero byte")]
    Encoding,
    /// Does not start as the standard says.
    #[error("an NQN starts with `{NQN_PREFIX}`")]
    Prefix,
}

impl Nqn {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NqnError`].
    pub fn new(name: &str) -> Result<Self, NqnError> {
        if !name.starts_with(NQN_PREFIX) {
            return Err(NqnError::Prefix);
        }
        if name.contains('\0') {
            return Err(NqnError::Encoding);
        }
        ArrayString::from(name).map(Self).map_err(|_| NqnError::Length(name.len()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// 16 bytes that differ between names and between numbers, and are the same after a restart: the name by FNV-1a
    /// (64 bit), then the number.
    #[must_use]
    pub fn identifier(&self, number: u64) -> [u8; 16] {
        let name = self
            .0
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        (u128::from(name) << 64 | u128::from(number)).to_be_bytes()
    }

    /// The name in a field of a data structure, padded with zeros.
    #[must_use]
    pub fn to_field(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        for (to, from) in field.iter_mut().zip(self.0.bytes()) {
            *to = from;
        }
        field
    }

    /// Reads a name from a field of a data structure.
    ///
    /// # Errors
    /// [`NqnError`].
    pub fn from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<Self, NqnError> {
        let end = field.iter().position(|byte| *byte == 0).ok_or(NqnError::Encoding)?;
        let name = field.get(..end).ok_or(NqnError::Encoding)?;
        Self::new(core::str::from_utf8(name).map_err(|_| NqnError::Encoding)?)
    }
}

/// Connect's data.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireConnectData {
    host_id: [u8; 16],
    controller_id: U16,
    reserved: [u8; 238],
    subsystem: [u8; NQN_FIELD_BYTES],
    host: [u8; NQN_FIELD_BYTES],
    reserved_end: [u8; 256],
}

layout!(WireConnectData, CONNECT_DATA_BYTES; controller_id: 16, subsystem: 256, host: 512);

/// Connect's data, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// CNTLID: [`DYNAMIC_CONTROLLER`] for an admin queue, the controller's for an I/O queue.
    pub controller_id: u16,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// HOSTNQN; `None` where the field is empty: spdk_nvme_perf gives no name unless it is told one.
    pub host: Option<Nqn>,
}

impl ConnectData {
    /// The bytes that travel.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CONNECT_DATA_BYTES] {
        let mut wire = WireConnectData::new_zeroed();
        wire.host_id = self.host_id;
        wire.controller_id = self.controller_id.into();
        wire.subsystem = self.subsystem.to_field();
        wire.host = self.host.map_or([0; NQN_FIELD_BYTES], |host| host.to_field());
        zerocopy::transmute!(wire)
    }
}

/// Which parameter of a Connect is invalid: the result of [`CONNECT_INVALID_PARAMETERS`](super::Status::CONNECT_INVALID_PARAMETERS) (Base figure 382).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidParameter {
    /// By its offset in the submission queue entry.
    Command(u16),
    /// By its offset in Connect's data.
    Data(u16),
}

impl InvalidParameter {
    /// QID in the submission queue entry.
    pub const QUEUE_ID: Self = Self::Command(42);
    /// SQSIZE in the submission queue entry.
    pub const QUEUE_SIZE: Self = Self::Command(44);
    /// CNTLID in the data.
    pub const CONTROLLER_ID: Self = Self::Data(16);
    /// SUBNQN in the data.
    pub const SUBSYSTEM: Self = Self::Data(256);
    /// HOSTNQN in the data.
    pub const HOST: Self = Self::Data(512);

    /// The result of the completion: IPO in bits 15:0, IATTR in bit 16.
    #[must_use]
    pub const fn to_result(self) -> u64 {
        match self {
            Self::Command(offset) => offset as u64,
            Self::Data(offset) => offset as u64 | 1 << 16,
        }
    }
}

/// The name in a field that may be empty.
fn optional_name(field: &[u8; NQN_FIELD_BYTES]) -> Result<Option<Nqn>, NqnError> {
    if field[0] == 0 { Ok(None) } else { Nqn::from_field(field).map(Some) }
}

/// Why Connect's data cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectDataError {
    /// It has another length.
    #[error("Connect's data has {CONNECT_DATA_BYTES} bytes, not {0}")]
    Length(usize),
    /// SUBNQN.
    #[error("SUBNQN: {0}")]
    Subsystem(NqnError),
    /// HOSTNQN.
    #[error("HOSTNQN: {0}")]
    Host(NqnError),
}

/// Reads Connect's data.
///
/// # Errors
/// [`ConnectDataError`].
pub fn parse_connect_data(bytes: &[u8]) -> Result<ConnectData, ConnectDataError> {
    let wire = WireConnectData::read_from_bytes(bytes).map_err(|_| ConnectDataError::Length(bytes.len()))?;
    Ok(ConnectData {
        host_id: wire.host_id,
        controller_id: wire.controller_id.get(),
        subsystem: Nqn::from_field(&wire.subsystem).map_err(ConnectDataError::Subsystem)?,
        host: optional_name(&wire.host).map_err(ConnectDataError::Host)?,
    })
}
