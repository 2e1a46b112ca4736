//! Credits of a live connection: the receives that its peer offers.

use super::Engine;
use crate::{event::ConnectionId, provider::Port};

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
}

impl<P: Port> Engine<P> {
    /// The peer says, as the upper protocol has it say such things, that it posted so many receives again of those that messages
    /// without a reply took. What waits for them goes with the next poll.
    ///
    /// # Errors
    /// [`CreditError`]; nothing has changed.
    pub fn return_peer_receives(&mut self, connection: ConnectionId, returned: u32) -> Result<(), CreditError> {
        let index = self.index_of(connection).ok_or(CreditError::NotConnected)?;
        let entry = &mut self.connections[index];
        if !entry.is_ready() {
            return Err(CreditError::NotConnected);
        }
        let taken = entry.unreturned;
        entry.unreturned = taken.checked_sub(returned).ok_or(CreditError::NotTaken { returned, taken })?;
        entry.peer_receives += u64::from(returned);
        Ok(())
    }
}
