//! The responder's half: RDMA READs from and WRITEs to what a peer granted, and the reply behind them.

use super::{Engine, transfers::Data};
use crate::{
    event::ConnectionId,
    gather::{GatherError, Segment},
    options::{MAX_TRANSFER_ELEMENTS, MAX_TRANSFER_OPERATIONS},
    provider::Port,
    reach::Misplaced,
    transfer::{CutError, Kind, RemoteSegment},
};

/// RDMA READs into our memory.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// Where the data goes.
    pub local: &'a [Segment],
    /// Where it comes from; as many bytes.
    pub remote: &'a [RemoteSegment],
    /// Comes back with [`crate::Event::Fetched`].
    pub cookie: u64,
}

/// RDMA WRITEs out of our memory, of which the peer is not told.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    /// Where the data comes from.
    pub local: &'a [Segment],
    /// Where it goes; as many bytes.
    pub remote: &'a [RemoteSegment],
    /// Comes back with [`crate::Event::Written`].
    pub cookie: u64,
}

/// RDMA WRITEs out of our memory, and the reply that tells the peer of them.
#[derive(Clone, Copy, Debug)]
pub struct ResponseRequest<'a> {
    /// Where the data comes from.
    pub local: &'a [Segment],
    /// Where it goes; as many bytes.
    pub remote: &'a [RemoteSegment],
    /// The reply.
    pub message: &'a [u8],
    /// The peer's key that its device invalidates when the reply arrives (SEND_WITH_INV). Only one of the request that is answered,
    /// and best where that invited it: the peer ends a connection on which any other key is killed, that of a request which it has
    /// cancelled included.
    pub invalidate: Option<u32>,
    /// Comes back with [`crate::Event::Responded`].
    pub cookie: u64,
}

/// Why a transfer was not taken. [`TransferError::NoSlot`] is worth another try after a poll, [`TransferError::NoPeerReceives`]
/// after [`crate::Event::Received`], all others never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// All transfer slots are in use; for ever, where [`crate::EngineOptions::transfer_depth`] is 0.
    #[error(
        "all transfer slots of this core are in use; poll, take events and try again (with a transfer_depth of 0 there are none)"
    )]
    NoSlot,
    /// The connection is not ready, ends, or is a former one.
    #[error("the connection is not ready for transfers")]
    NotConnected,
    /// The peer has no receive for the reply, and no reply of its own is due that would bring one: this one answers nothing, beyond what
    /// may be sent unasked ([`ConnectionOptions::peer_receives`](crate::ConnectionOptions::peer_receives)).
    #[error(
        "the peer has no receive for the reply, which answers none of its messages; say in ConnectionOptions::peer_receives how many \
         messages may be sent unasked"
    )]
    NoPeerReceives,
    /// The reply is longer than the engine's message buffers, or empty.
    #[error("a reply has 1 byte up to the engine's message_bytes")]
    MessageLength,
    /// A local segment is empty, out of its memory's bounds, or to be fetched into a memory that is read-only.
    #[error("a local segment is not acceptable: {0}")]
    Segment(#[from] GatherError),
    /// As [`SubmitError::UnknownMemory`](crate::SubmitError::UnknownMemory), of a local segment's.
    #[error(
        "a local segment's memory is unknown, removed, or not registered on the connection; await Event::MemoryRegistered"
    )]
    UnknownMemory,
    /// Local and remote ranges do not have the same number of bytes, or one is empty.
    #[error("local and remote ranges differ in length, or one is empty")]
    LengthMismatch,
    /// The ranges need more RDMA operations, or the segments more elements, than a transfer may have.
    #[error(
        "the transfer needs more than {MAX_TRANSFER_OPERATIONS} RDMA operations, one for each range, or more than \
         {MAX_TRANSFER_ELEMENTS} elements, one for each segment in each range; split it"
    )]
    TooManyOperations,
}

impl<P: Port> Engine<P> {
    /// Fetches what a peer offers by RDMA READ; ends with [`crate::Event::Fetched`]. Posted by the next flush with room.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is left behind.
    pub fn fetch(&mut self, connection: ConnectionId, request: &FetchRequest<'_>) -> Result<(), TransferError> {
        self.transfer(
            connection,
            request.cookie,
            Kind::Fetch,
            Data { local: request.local, remote: request.remote },
            &[],
        )
    }

    /// Writes data to a peer without telling it; ends with [`crate::Event::Written`]: the peer's device has acknowledged all of it.
    /// Posted by the next flush with room. What one flush posts to a connection ends together: the device is asked for one
    /// completion behind it, not for one per WRITE.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is left behind.
    pub fn write(&mut self, connection: ConnectionId, request: &WriteRequest<'_>) -> Result<(), TransferError> {
        self.transfer(
            connection,
            request.cookie,
            Kind::Write,
            Data { local: request.local, remote: request.remote },
            &[],
        )
    }

    /// Asks the peer's device whether it is there, without a word to the peer: an RDMA WRITE of no bytes, which names no memory, so
    /// that no key is looked at (InfiniBand Architecture Specification 1.4, C9-88). Ends with [`crate::Event::Written`]: the peer's
    /// device has acknowledged it. A device whose peer is gone ends the connection once its retries are used up. Posted by the next
    /// flush with room.
    ///
    /// # Errors
    /// [`TransferError::NoSlot`], [`TransferError::NotConnected`]; nothing is left behind.
    pub fn probe(&mut self, connection: ConnectionId, cookie: u64) -> Result<(), TransferError> {
        self.transfer_nothing(connection, cookie)
    }

    /// Writes data to a peer and replies behind it; ends with [`crate::Event::Responded`] when the device is done with both.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is left behind.
    pub fn respond(&mut self, connection: ConnectionId, request: &ResponseRequest<'_>) -> Result<(), TransferError> {
        if request.message.is_empty() || request.message.len() > self.plan.message_bytes as usize {
            return Err(TransferError::MessageLength);
        }
        self.transfer(
            connection,
            request.cookie,
            Kind::Respond { invalidate: request.invalidate },
            Data { local: request.local, remote: request.remote },
            request.message,
        )
    }
}

impl From<Misplaced> for TransferError {
    fn from(misplaced: Misplaced) -> Self {
        match misplaced {
            Misplaced::UnknownMemory => Self::UnknownMemory,
            Misplaced::Segment(error) => Self::Segment(error),
        }
    }
}

impl From<CutError<Misplaced>> for TransferError {
    fn from(error: CutError<Misplaced>) -> Self {
        match error {
            CutError::Piece(misplaced) => misplaced.into(),
            CutError::Length => Self::LengthMismatch,
            CutError::Operations => Self::TooManyOperations,
        }
    }
}
