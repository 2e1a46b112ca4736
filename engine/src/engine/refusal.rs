//! Why a request is not taken, or does not go now.

use crate::{gather::GatherError, options::MAX_CHUNKS, plan::MAX_SEND_ELEMENTS};

/// Segments that one SEND carries beside its message.
const MAX_INLINE_SEGMENTS: usize = MAX_SEND_ELEMENTS as usize - 1;

/// Why a request was not taken. The caller keeps everything. [`SubmitError::NoSlot`] is worth another try after a poll,
/// [`SubmitError::NotConnected`] after [`crate::Event::Connected`], [`SubmitError::NoPeerReceives`] after
/// [`crate::Event::Received`], all others never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// All request slots are in use; or the request would wait, and those that do have so many segments, behind their
    /// messages as well, that there is no room for its own: there is for four of each, and for one of as many as a
    /// request may have.
    #[error(
        "all request slots of this core are in use, or all room for those that wait; poll, take events and try again"
    )]
    NoSlot,
    /// The connection is not ready, ends, or is a former one (I24, I27).
    #[error("the connection is not ready for requests")]
    NotConnected,
    /// The peer has no receive for a message, and no reply is due that would bring one: what may be sent unasked
    /// ([`ConnectionOptions::peer_receives`](crate::ConnectionOptions::peer_receives), 0 by default) was not said, or is used up by
    /// responses that nobody asked for. Only a message that the peer sends unasked could change that; behind one, submit again.
    #[error(
        "the peer has no receive for the message, and no reply is due that would bring one; say in ConnectionOptions::peer_receives how \
         many messages may be sent unasked, or submit when the peer has sent something"
    )]
    NoPeerReceives,
    /// No receive of the connection is for replies: all are granted to the peer.
    #[error(
        "all receives of the connection are granted to its peer, none is for a reply; raise EngineOptions::queue_depth or receive_depth, \
         or lower ConnectionOptions::granted_receives"
    )]
    NoReplyReceives,
    /// The message is longer than the engine's message buffers, or empty.
    #[error("a message has 1 byte up to the engine's message_bytes")]
    MessageLength,
    /// Too many chunks, segments or inline segments.
    #[error(
        "the request has more than {MAX_CHUNKS} chunks, more segments than EngineOptions::max_segments, or more inline segments than \
         one SEND of the device has elements beside its message ({MAX_INLINE_SEGMENTS} at most); raise max_segments, or split it"
    )]
    TooManySegments,
    /// The segments need more MRs than a request may have, or than its connection will ever have (S43).
    #[error(
        "the segments need more MRs than one request may have: 16, what its connection has, what its send queue holds"
    )]
    TooManyRegistrations,
    /// A segment is empty, or out of its memory's bounds (I18), or to be written to in a memory that is read-only.
    #[error("a segment is not acceptable: {0}")]
    Segment(#[from] GatherError),
    /// A memory is not registered on this connection: it is unknown, was removed ([`Engine::remove_memory`](super::Engine::remove_memory)), or was declared after the
    /// connection was opened and [`crate::Event::MemoryRegistered`] has not said yet that it can be used, or said why it cannot.
    #[error(
        "a segment's memory is unknown, removed, or not registered on the connection; await Event::MemoryRegistered"
    )]
    UnknownMemory,
    /// The message had no room for the keys; everything was undone (S85, S87).
    #[error("the message has no room for the keys")]
    Unannounced,
}

/// Why a request does not go now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hindrance {
    /// It finds too little of something that comes back.
    Wait,
    /// Something stands in front of it, or it cannot be.
    Unusual,
    /// Its memory has to be gathered first.
    Gather,
    /// There is no slot that it could wait in.
    NoSlot,
    /// Never.
    Refused(SubmitError),
}

impl From<SubmitError> for Hindrance {
    fn from(error: SubmitError) -> Self {
        Self::Refused(error)
    }
}
