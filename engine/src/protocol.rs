//! What the engine asks of the layer above: only that layer can read its messages.

use crate::{event::ConnectionId, mr::Grant, provider::Access, request::RequestHandle};

/// Bytes of a received message that [`Protocol::classify`] sees. 64 holds an NVMe command capsule's entry and the
/// transport header of RPC-over-RDMA up to its first chunk; both carry the name of the request in their first 16 bytes.
pub const CLASSIFY_BYTES: usize = 64;

/// What a received message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// It answers this request, which then ends with it. Also what a reply is whose request is known to nobody any more, as after
    /// [`Engine::cancel`](crate::Engine::cancel): under its former handle, or [`RequestHandle::NONE`], it is counted
    /// (`Statistics::bad_reply_count`) and dropped, and the receive that was kept for it is free.
    Reply(RequestHandle),
    /// It opens an exchange of the peer's: the caller gets it as [`crate::Event::Received`].
    Command,
    /// The same, but the peer expects no answer, and has posted no receive for one.
    OneWay,
    /// It breaks the protocol: the connection ends ([`DisconnectCause::Protocol`](crate::DisconnectCause)).
    Malformed,
}

/// A message could not be completed with the keys of its request; everything is undone (S85, S87).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message has no room for the keys of its request")]
pub struct AnnounceError;

/// How many keys one chunk of a request has, and what they permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkKeys {
    /// What the peer may do with each.
    pub access: Access,
    /// One where one registration covers the chunk ([`Engine::coverage`](crate::Engine::coverage)); never 0, and at most
    /// [`MAX_MRS_PER_REQUEST`](crate::MAX_MRS_PER_REQUEST) of all chunks together.
    pub keys: u8,
}

/// What the peer may be told of one chunk of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkGrants<'a> {
    /// What the peer may do, as the chunk asked for.
    pub access: Access,
    /// In the order of the chunk's segments: at least one.
    pub grants: &'a [Grant],
}

/// What [`Protocol::announce`] is told of a request: a view, which is gone when that returns.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    request: RequestHandle,
    cookie: u64,
    grants: &'a [Grant],
    chunks: &'a [ChunkKeys],
}

impl<'a> Announcement<'a> {
    /// Of a request with these grants, in the order of its chunks, which have so many of them each. The engine makes them; whoever tests
    /// a protocol of his own may as well.
    #[inline(always)]
    #[must_use]
    pub const fn new(request: RequestHandle, cookie: u64, grants: &'a [Grant], chunks: &'a [ChunkKeys]) -> Self {
        Self { request, cookie, grants, chunks }
    }

    /// What `Engine::submit` returns, or has returned where the request had to wait.
    #[inline(always)]
    #[must_use]
    pub const fn request(&self) -> RequestHandle {
        self.request
    }

    /// As given at submission.
    #[inline(always)]
    #[must_use]
    pub const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// All grants of the request, in the order of its chunks, and of the segments in a chunk: at least one, and at most
    /// [`MAX_MRS_PER_REQUEST`](crate::MAX_MRS_PER_REQUEST).
    #[inline(always)]
    #[must_use]
    pub const fn grants(&self) -> &'a [Grant] {
        self.grants
    }

    /// The same chunk by chunk, in the order of the submission: the first is of its first chunk, and none is missing.
    #[inline(always)]
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = ChunkGrants<'a>> + use<'a> {
        let mut rest = self.grants;
        self.chunks.iter().map(move |&ChunkKeys { access, keys }| {
            let (grants, behind) = rest.split_at_checked(usize::from(keys)).unwrap_or((rest, &[]));
            rest = behind;
            ChunkGrants { access, grants }
        })
    }
}

/// The upper layer's half of a message. Dispatched statically, once per message; called on the engine's core, from
/// inside `Engine::poll` and `Engine::submit`, and must not block.
///
/// A request needs a name in the upper protocol, in its message and in the reply. One that opens memory may have its
/// [`RequestHandle`] there ([`Announcement::request`]); of others that is known when `Engine::submit` returns, too late for the message.
/// So the upper layer has names of its own, most simply the places of a table; it notes there the handle that `submit` returned, and
/// `classify` looks it up. No reply is classified before `submit` has returned.
///
/// Who submits nothing needs no keys announced, and all it receives are commands:
///
/// ```
/// use frwr_engine::{AnnounceError, Announcement, ConnectionId, Message, Protocol};
///
/// struct Responder;
///
/// impl Protocol for Responder {
///     const CLASSIFIED_BYTES: usize = 0;
///
///     fn announce(&mut self, _: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
///         Err(AnnounceError)
///     }
///
///     fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
///         Message::Command
///     }
/// }
/// ```
pub trait Protocol {
    /// Bytes of a received message that [`Protocol::classify`] asks for, at most [`CLASSIFY_BYTES`]: fewer are read faster, and 16
    /// hold the name of a request in most protocols.
    const CLASSIFIED_BYTES: usize = CLASSIFY_BYTES;

    /// Writes what the peer needs to reach the memory of a request into its message. Called once per request that opens
    /// memory, when it gets its MRs: inside `Engine::submit`, or inside a later `Engine::poll` where the request has to wait. `message`
    /// is what was submitted.
    ///
    /// # Errors
    /// [`AnnounceError`] when the message has no room (S43); the request then ends as refused, nothing is posted.
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError>;

    /// Says what a received message is. `prefix` holds its first [`Protocol::CLASSIFIED_BYTES`] bytes, or all of a shorter one;
    /// `length` is that of the whole message. The bytes come from the peer: nothing in them may be trusted.
    fn classify(&mut self, connection: ConnectionId, prefix: &[u8], length: u32) -> Message;
}
