//! Received messages in the caller's hands: read, and given back.

use super::Engine;
use crate::{
    connection::{Opening, Phase},
    event::Received,
    provider::Port,
};
use frwr_mempool::{DeviceMemory, mutant};

impl<P: Port> Engine<P> {
    /// Copies a received message, from its byte `from` on. Returns how many bytes were copied: also when its connection has ended
    /// meanwhile, until it is released.
    #[inline(always)]
    pub fn message(&self, received: &Received, from: u32, into: &mut [u8]) -> usize {
        self.receives.read(received.buffer, received.generation, from, into)
    }

    /// Copies `bytes` of a received message, from its byte `from` on, to memory of the caller's from byte `at` on, such as data that came
    /// in a capsule to the buffer that a disk writes. Returns how many bytes were copied: fewer where the message ends before, none where
    /// they are not all inside the memory; as [`Engine::message`] until the message is released.
    pub fn copy_message(&self, received: &Received, from: u32, bytes: u32, to: &DeviceMemory, at: usize) -> usize {
        self.receives.copy(received.buffer, received.generation, from, bytes, to, at)
    }

    /// Gives a receive buffer back; the next flush posts it again.
    #[inline(always)]
    pub fn release(&mut self, received: Received) {
        let Received { buffer, generation, is_reply, .. } = received;
        let Some(held) = self.receives.held_mut(buffer, generation) else { return };
        let owner = held.connection();
        // Those of former connections are nobody's.
        if let Some(connection) = self.connections.get_mut(usize::from(owner))
            && (connection.is_ready() || mutant!(released_to_ending))
        {
            connection.credits.reply_released(is_reply);
            let receive = held.post(connection.message_lkey);
            if connection.receive_queue.post_next(receive) {
                connection.mark_dirty(&mut self.dirty);
            } else if let Some(shared) = &mut self.shared {
                shared.post_next(receive);
            }
            return;
        }
        held.put_by();
        self.release_otherwise(buffer, owner, is_reply);
    }

    /// The rest of [`Engine::release`] for a receive of a connection that is not ready, or one that was held since a former
    /// connection and joins that in its place, for its replies. Apart, so that the usual release has no part in it.
    #[inline(never)]
    fn release_otherwise(&mut self, buffer: u32, owner: u16, is_reply: bool) {
        let mut owner = owner;
        if self.shared.is_none()
            && let Some(place) = self.receives.bring_home(buffer)
        {
            owner = place;
            if let Some(connection) = self.connections.get_mut(usize::from(place)) {
                connection.credits.add_reply_receive();
            }
        } else if let Some(connection) = self.connections.get_mut(usize::from(owner)).filter(|_| self.shared.is_some())
        {
            // It may await another reply in it.
            connection.credits.reply_released(is_reply);
        }
        self.repost(buffer, owner);
    }

    /// A buffer goes back to its queue pair with the next flush.
    #[inline]
    fn repost(&mut self, buffer: u32, owner: u16) {
        if let Some(shared) = &mut self.shared {
            shared.post_next(self.receives.post(buffer, 0));
            return;
        }
        let connection = &mut self.connections[usize::from(owner)];
        if matches!(
            connection.phase(),
            Phase::Ready | Phase::Opening(Opening::Handshake { .. } | Opening::Filling { .. })
        ) {
            connection.receive_queue.post_next(self.receives.post(buffer, connection.message_lkey));
            self.mark_dirty(owner);
        }
    }
}
