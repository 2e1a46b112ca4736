//! Private data of the connection manager's messages (RDMA 3.4, figures 4 to 7).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The only record format that is defined.
const RECORD_FORMAT: u16 = 0;

/// RDMA_CM_REQUEST private data.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RequestPrivateData {
    /// RECFMT.
    pub record_format: U16,
    /// QID.
    pub queue_id: U16,
    /// HRQSIZE: receives that the host posted; not 0-based.
    pub host_receive_queue: U16,
    /// HSQSIZE: entries of the host's submission queue, 0-based.
    pub host_send_queue: U16,
    /// CNTLID, from record format 1.1 on; reserved before, and not interpreted here: Connect carries it.
    pub controller_id: U16,
    reserved: [u8; 22],
}

/// RDMA_CM_ACCEPT private data.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AcceptPrivateData {
    /// RECFMT.
    pub record_format: U16,
    /// CRQSIZE: receives that the controller posted.
    pub controller_receive_queue: U16,
    reserved: [u8; 28],
}

/// RDMA_CM_REJECT private data.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RejectPrivateData {
    /// RECFMT.
    pub record_format: U16,
    /// STS.
    pub status: U16,
}

layout!(RequestPrivateData, 32; host_send_queue: 6);
const _: () = assert!(size_of::<AcceptPrivateData>() == 32 && size_of::<RejectPrivateData>() == 4);

/// Why a controller rejects a connection (RDMA figure 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum RejectStatus {
    /// 1.
    #[error("invalid private data length")]
    InvalidPrivateDataLength = 1,
    /// 2.
    #[error("invalid RECFMT")]
    InvalidRecordFormat = 2,
    /// 3.
    #[error("invalid queue ID")]
    InvalidQueueId = 3,
    /// 4.
    #[error("invalid HSQSIZE")]
    InvalidHostSendQueue = 4,
    /// 5.
    #[error("invalid HRQSIZE")]
    InvalidHostReceiveQueue = 5,
    /// 6.
    #[error("no resources")]
    NoResources = 6,
    /// 7: the host takes no RDMA READs.
    #[error("invalid IRD")]
    InvalidInboundReads = 7,
    /// 8.
    #[error("invalid ORD")]
    InvalidOutboundReads = 8,
    /// 9.
    #[error("invalid CNTLID")]
    InvalidControllerId = 9,
}

impl RejectStatus {
    /// From STS; `None` where it is not defined.
    #[must_use]
    pub const fn from_wire(status: u16) -> Option<Self> {
        Some(match status {
            1 => Self::InvalidPrivateDataLength,
            2 => Self::InvalidRecordFormat,
            3 => Self::InvalidQueueId,
            4 => Self::InvalidHostSendQueue,
            5 => Self::InvalidHostReceiveQueue,
            6 => Self::NoResources,
            7 => Self::InvalidInboundReads,
            8 => Self::InvalidOutboundReads,
            9 => Self::InvalidControllerId,
            _ => return None,
        })
    }
}

/// Why the private data of an accept or reject cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateDataError {
    /// Too short.
    #[error("private data has {got} bytes, {wanted} are needed")]
    Length {
        /// Bytes present.
        got: usize,
        /// Bytes needed.
        wanted: usize,
    },
    /// A record format that is not defined.
    #[error("private data has record format {0}, only {RECORD_FORMAT} is known")]
    RecordFormat(u16),
}

/// Why a connect request is not one for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueRequestError {
    /// Its private data is not that of an NVMe host: there is none, it is too short, or it has another format.
    #[error("no NVMe over Fabrics private data: another program than an NVMe host connects here")]
    Foreign {
        /// The status that comes nearest.
        status: RejectStatus,
    },
    /// QID.
    #[error("QID {value}, must be from 0 to {most}")]
    QueueId {
        /// Its value.
        value: u16,
        /// The highest.
        most: u16,
    },
    /// HSQSIZE.
    #[error("HSQSIZE {value}, must be from 1 to {most}")]
    SendQueue {
        /// Its value.
        value: u16,
        /// The highest.
        most: u16,
    },
    /// HRQSIZE.
    #[error("HRQSIZE {value}, must be at least HSQSIZE, which is {least}")]
    ReceiveQueue {
        /// Its value.
        value: u16,
        /// The lowest.
        least: u16,
    },
}

impl QueueRequestError {
    /// The status to reject the connection with.
    #[must_use]
    pub const fn status(self) -> RejectStatus {
        match self {
            Self::Foreign { status } => status,
            Self::QueueId { .. } => RejectStatus::InvalidQueueId,
            Self::SendQueue { .. } => RejectStatus::InvalidHostSendQueue,
            Self::ReceiveQueue { .. } => RejectStatus::InvalidHostReceiveQueue,
        }
    }
}

/// What a valid connect request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRequest {
    /// 0 for the admin queue.
    pub queue_id: u16,
    /// Entries of the queue, not 0-based: commands that the host has outstanding at most.
    pub entries: u16,
    /// Receives that the host posted for responses.
    pub receives: u16,
}

impl RequestPrivateData {
    /// For a queue of `entries` entries; both sizes follow from it as hosts commonly choose them.
    #[must_use]
    pub fn new(queue_id: u16, entries: u16) -> Self {
        Self {
            record_format: RECORD_FORMAT.into(),
            queue_id: queue_id.into(),
            host_receive_queue: entries.into(),
            host_send_queue: entries.saturating_sub(1).into(),
            controller_id: 0.into(),
            reserved: [0; 22],
        }
    }

    /// Reads a connect request's private data; bytes behind the record are padding of the connection manager.
    ///
    /// # Errors
    /// The record is too short or of another format, the queue identifier is above `max_queue_id`, the queue has less than two or
    /// more than `max_entries` entries, or there are fewer receives than commands. What is wrong in a record that no NVMe host
    /// fills in so is [`QueueRequestError::Foreign`]: connection managers pad with zeros what other programs leave out.
    pub fn parse(bytes: &[u8], max_queue_id: u16, max_entries: u16) -> Result<QueueRequest, QueueRequestError> {
        let foreign = |status| QueueRequestError::Foreign { status };
        let (record, _) = Self::read_from_prefix(bytes).map_err(|_| foreign(RejectStatus::InvalidPrivateDataLength))?;
        if record.record_format.get() != RECORD_FORMAT {
            return Err(foreign(RejectStatus::InvalidRecordFormat));
        }
        record
            .queue(max_queue_id, max_entries)
            .map_err(|error| if record.is_of_a_host() { error } else { foreign(error.status()) })
    }

    /// Hosts give their queues sizes, and leave what is reserved alone.
    fn is_of_a_host(&self) -> bool {
        let has_sizes = self.host_send_queue.get() != 0 || self.host_receive_queue.get() != 0;
        has_sizes && self.reserved == [0; 22]
    }

    fn queue(&self, max_queue_id: u16, max_entries: u16) -> Result<QueueRequest, QueueRequestError> {
        let queue_id = self.queue_id.get();
        if queue_id > max_queue_id {
            return Err(QueueRequestError::QueueId { value: queue_id, most: max_queue_id });
        }
        let last = self.host_send_queue.get();
        if last == 0 || last >= max_entries {
            return Err(QueueRequestError::SendQueue { value: last, most: max_entries.saturating_sub(1) });
        }
        // `last < max_entries <= u16::MAX`: the sum cannot overflow.
        let entries = last + 1;
        // One receive per outstanding command is what keeps responses from meeting an empty receive queue. Hosts that
        // keep one entry of the ring free post as many receives as HSQSIZE says.
        let receives = self.host_receive_queue.get();
        if receives < last {
            return Err(QueueRequestError::ReceiveQueue { value: receives, least: last });
        }
        Ok(QueueRequest { queue_id, entries, receives })
    }
}

impl AcceptPrivateData {
    /// For a controller that posted `receives` receives.
    #[must_use]
    pub fn new(receives: u16) -> Self {
        Self { record_format: RECORD_FORMAT.into(), controller_receive_queue: receives.into(), reserved: [0; 28] }
    }

    /// Reads an accept's private data: the receives that the controller posted.
    ///
    /// # Errors
    /// [`PrivateDataError`].
    pub fn parse(bytes: &[u8]) -> Result<u16, PrivateDataError> {
        let wanted = size_of::<Self>();
        let (record, _) =
            Self::read_from_prefix(bytes).map_err(|_| PrivateDataError::Length { got: bytes.len(), wanted })?;
        known_format(record.record_format)?;
        Ok(record.controller_receive_queue.get())
    }
}

impl RejectPrivateData {
    /// With a status.
    #[must_use]
    pub fn new(status: RejectStatus) -> Self {
        Self { record_format: RECORD_FORMAT.into(), status: (status as u16).into() }
    }

    /// Reads a reject's private data: STS, which [`RejectStatus::from_wire`] may know.
    ///
    /// # Errors
    /// [`PrivateDataError`].
    pub fn parse(bytes: &[u8]) -> Result<u16, PrivateDataError> {
        let wanted = size_of::<Self>();
        let (record, _) =
            Self::read_from_prefix(bytes).map_err(|_| PrivateDataError::Length { got: bytes.len(), wanted })?;
        known_format(record.record_format)?;
        Ok(record.status.get())
    }
}

fn known_format(format: U16) -> Result<(), PrivateDataError> {
    match format.get() {
        RECORD_FORMAT => Ok(()),
        other => Err(PrivateDataError::RecordFormat(other)),
    }
}
