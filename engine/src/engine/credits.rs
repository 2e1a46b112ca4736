//! Credits of a live connection: the receives that its peer offers, and those that the peer is granted.

use super::Engine;
use crate::{credits::Credits, event::ConnectionId, provider::Port};

/// Why the numbers of receives on a live connection stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreditError {
    /// The connection is not ready, ends, or is a former one.
    #[error("the connection is not ready")]
    NotConnected,
    /// Messages without a reply took fewer.
    #[error(
        "the peer is said to have posted {returned} receives again, but messages without a reply took {taken}; a receive that a \
         request took comes back with its reply"
    )]
    NotTaken {
        /// What was said.
        returned: u32,
        /// Receives of the peer that messages without a reply took and that did not come back yet.
        taken: u32,
    },
    /// The connection has fewer receives that are not kept for replies.
    #[error(
        "the peer is to be granted {wanted} receives, but {most} can be: the others are for replies that are awaited, or in the \
         caller's hands; grant fewer, release replies, or raise EngineOptions::receive_depth"
    )]
    Granted {
        /// Receives that were to be granted.
        wanted: u32,
        /// Those that are granted now, and those for replies of which none is in use.
        most: u32,
    },
}

impl<P: Port> Engine<P> {
    /// The peer says, as the upper protocol has it say such things, that it posted so many receives again of those that messages
    /// without a reply took. What waits for them goes with the next poll.
    ///
    /// # Errors
    /// [`CreditError`]; nothing has changed.
    pub fn return_peer_receives(&mut self, connection: ConnectionId, returned: u32) -> Result<(), CreditError> {
        let credits = self.ready_credits(connection)?;
        credits.returned(returned).map_err(|taken| CreditError::NotTaken { returned, taken })
    }

    /// The peer says, as the upper protocol has it say such things, that it offers so many receives for what we send unasked from now on,
    /// in place of [`ConnectionOptions::peer_receives`](crate::ConnectionOptions) or of what it said last: requests that it has not
    /// answered, and messages without a reply that it was not said to have posted a receive for again, are so many at most. Where more are
    /// under way than that, nothing happens to them, and what is sent next waits until enough have ended, responses as well; with 0 and
    /// nothing under way it is refused ([`SubmitError::NoPeerReceives`](crate::SubmitError)). What waits for the receives that are more
    /// than before goes with the next poll. There is no other limit than what the engine has of its own, for which requests wait.
    ///
    /// # Errors
    /// [`CreditError::NotConnected`].
    pub fn set_peer_receives(&mut self, connection: ConnectionId, offered: u32) -> Result<(), CreditError> {
        self.ready_credits(connection)?.set_offered(offered);
        Ok(())
    }

    /// Grants the peer so many receives for what it sends unasked, in place of [`ConnectionOptions::granted_receives`]
    /// or of what was set last: those that are more are taken from the receives for replies, those that are fewer are given to them. All of
    /// them are posted as they were, so that what the connection has for both stays what it was made with.
    ///
    /// The peer is not told. Raise the number in front of the message that says so, and lower it when the peer has obeyed: what it
    /// sends by the former number would meet receives that are meant for replies.
    ///
    /// # Errors
    /// [`CreditError`]; nothing has changed.
    ///
    /// [`ConnectionOptions::granted_receives`]: crate::ConnectionOptions::granted_receives
    pub fn set_granted_receives(&mut self, connection: ConnectionId, granted: u32) -> Result<(), CreditError> {
        let credits = self.ready_credits(connection)?;
        credits.set_granted(granted).map_err(|most| CreditError::Granted { wanted: granted, most })
    }

    fn ready_credits(&mut self, connection: ConnectionId) -> Result<&mut Credits, CreditError> {
        let index = self.index_of(connection).ok_or(CreditError::NotConnected)?;
        let entry = &mut self.connections[index];
        if entry.is_ready() { Ok(&mut entry.credits) } else { Err(CreditError::NotConnected) }
    }
}
