//! Messages that nobody answers.

use super::{
    Engine, Submission, SubmitError,
    issue::{Issue, Seat},
    pieces::NoMemory,
    refusal::Hindrance,
};
use crate::{
    event::ConnectionId,
    gather::Segment,
    protocol::{AnnounceError, Announcement, Message, Protocol},
    provider::Port,
    request::RequestHandle,
};

/// A message without a reply. It opens no memory: only a reply, or the fence behind one, could say when the peer is done with that.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The message, whole.
    pub message: &'a [u8],
    /// Memory whose bytes follow the message in the same SEND, straight out of the caller's memory: the device's until the end is told.
    pub inline: &'a [Segment],
    /// Comes back with the end.
    pub cookie: u64,
}

/// Nothing is announced of a message without keys, and nothing is received by it.
struct Nobody;

impl Protocol for Nobody {
    fn announce(&mut self, _: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
        Err(AnnounceError)
    }

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        Message::Malformed
    }
}

impl<P: Port> Engine<P> {
    /// Sends a message that nobody answers: it ends as [`RequestStatus::Sent`](crate::RequestStatus::Sent) when its completion
    /// comes. Nothing is posted before [`Engine::flush`]; it takes its turn among the requests of its connection, and waits as they do for
    /// send queue entries and for a receive of the peer, but for none of ours. That of the peer does not come back by a reply: the upper
    /// protocol says when it is posted again ([`Engine::return_peer_receives`]).
    ///
    /// # Errors
    /// [`SubmitError`]; nothing is left behind.
    pub fn send(&mut self, connection: ConnectionId, request: &SendRequest<'_>) -> Result<RequestHandle, SubmitError> {
        let &SendRequest { message, inline, cookie } = request;
        let (index, waits) = (usize::from(connection.index), self.must_wait(connection)?);
        if message.is_empty() || message.len() > self.plan.message_bytes as usize {
            return Err(SubmitError::MessageLength);
        }
        let submission =
            Submission { message, inline, chunks: &[], invite_invalidation: false, iova_cookie: 0, cookie };
        let issue = Issue { answered: false, ..submission.issue() };
        let issued =
            if waits { Err(Hindrance::Wait) } else { self.issue(index, Seat::New, issue, NoMemory, &mut Nobody) };
        match issued {
            Ok(handle) => Ok(RequestHandle(handle)),
            Err(Hindrance::NoSlot) => Err(SubmitError::NoSlot),
            Err(Hindrance::Refused(error)) => Err(error),
            Err(_) => self.park(index, &submission, false, !waits),
        }
    }
}
