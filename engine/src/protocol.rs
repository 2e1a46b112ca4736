//! What the engine asks of the layer above: only that layer can read its messages.

use crate::{event::ConnectionId, mr::Grant, request::RequestHandle};

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
    /// It breaks the protocol: the connection ends ([`DisconnectCause::Protocol`](crate::DisconnectCause)).
    Malformed,
}

/// A message could not be completed with the keys of its request; everything is undone (S85, S87).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message has no room for the keys of its request")]
pub struct AnnounceError;

/// The upper layer's half of a message. Dispatched statically, once per message; called on the engine's core, from
/// inside `Engine::poll` and `Engine::submit`, and must not block.
///
/// A request needs a name in the upper protocol, in its message and in the reply. That cannot be its [`RequestHandle`], which
/// `Engine::submit` returns when the message has been written. So the upper layer has names of its own, most simply the places of a
/// table; it notes there the handle that `submit` returned, and `classify` looks it up. No reply is classified
/// before `submit` has returned.
///
/// Who submits nothing needs no keys announced, and all it receives are commands:
///
/// ```
/// use frwr_engine::{AnnounceError, ConnectionId, Message, Protocol, mr::Grant};
///
/// struct Responder;
///
/// impl Protocol for Responder {
///     const CLASSIFIED_BYTES: usize = 0;
///
///     fn announce(&mut self, _: &mut [u8], _: &[Grant]) -> Result<(), AnnounceError> {
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

    /// Writes what the peer needs to reach the memory of a request into its message. Called once per request, when it
    /// gets its MRs: inside `Engine::submit`, or inside a later `Engine::poll` where the request has to wait. `message` is what was
    /// submitted. `grants` are in the order of the request's chunks, and of the segments in a chunk; a chunk has one where one
    /// registration covers it ([`Engine::coverage`](crate::Engine::coverage)), and a request without chunks has none.
    ///
    /// # Errors
    /// [`AnnounceError`] when the message has no room (S43); the request then ends as refused, nothing is posted.
    fn announce(&mut self, message: &mut [u8], grants: &[Grant]) -> Result<(), AnnounceError>;

    /// Says what a received message is. `prefix` holds its first [`Protocol::CLASSIFIED_BYTES`] bytes, or all of a shorter one;
    /// `length` is that of the whole message. The bytes come from the peer: nothing in them may be trusted.
    fn classify(&mut self, connection: ConnectionId, prefix: &[u8], length: u32) -> Message;
}
