//! What the caller is told: the oldest event is taken, and the slot that it was told by is left.

use super::Engine;
use crate::{
    event::{Event, Received, RequestStatus},
    events::Told,
    provider::Port,
    request::RequestHandle,
};
use frwr_mempool::mutant;

impl<P: Port> Engine<P> {
    /// The next event, oldest first.
    #[inline(always)]
    pub fn next_event(&mut self) -> Option<Event> {
        let slot = match self.events.pop()? {
            Told::Ended(slot) => slot,
            Told::Transferred(slot) => return self.transferred(slot),
            Told::Received(buffer) => return self.received_event(buffer),
            Told::Registered(slot) => return self.told_registered(slot),
            Told::Whole => return self.told_whole(),
        };
        let (handle, request) = self.requests.at_mut(slot)?;
        // The usual status, known to the compiler.
        let &RequestStatus::Replied(Received { buffer, generation, length, .. }) = request.outcome() else {
            return self.ended_without_reply(slot);
        };
        let cookie = request.cookie();
        self.leave_slot(slot);
        let status = RequestStatus::Replied(Received { buffer, generation, length, is_reply: true });
        Some(Event::Completed { request: RequestHandle(handle), cookie, status })
    }

    /// The event of a message, whose buffer is the caller's from here on. Apart, so that a request's end has no part in it.
    #[inline(never)]
    fn received_event(&self, buffer: u32) -> Option<Event> {
        let (connection, generation, length) = self.receives.told(buffer)?;
        let received = Received { buffer, generation, length, is_reply: false };
        Some(Event::Received { connection, received })
    }

    /// The event of a registration, or what comes behind it where that is over.
    #[cold]
    #[inline(never)]
    fn told_registered(&mut self, slot: u32) -> Option<Event> {
        self.registered_event(slot).or_else(|| self.next_event())
    }

    /// Behind the end of a connection its index is free for another one.
    #[cold]
    #[inline(never)]
    fn told_whole(&mut self) -> Option<Event> {
        let event = self.events.pop_whole();
        if let Some(Event::Disconnected { connection, .. } | Event::OpenFailed { connection, .. }) = &event
            && let Some(entry) = self.connections.get_mut(usize::from(connection.index))
        {
            entry.end_told();
        }
        event
    }

    #[cold]
    #[inline(never)]
    fn ended_without_reply(&mut self, slot: u32) -> Option<Event> {
        let (handle, request) = self.requests.at_mut(slot)?;
        let status = request.take_outcome();
        let cookie = request.cookie();
        self.leave_slot(slot);
        Some(Event::Completed { request: RequestHandle(handle), cookie, status })
    }

    /// A slot is kept until its event is taken; nothing but Hold keeps it from here on.
    #[inline(always)]
    fn leave_slot(&mut self, slot: u32) {
        self.requests.leave(slot, |connection, position| match self.connections.get_mut(connection) {
            // K10: the reply frees a slot that the device may read again.
            Some(connection) if connection.sending.queue().is_pending(position) && !mutant!(K10) => {
                if !mutant!(held_unawaited) {
                    connection.sending.await_at(position);
                }
                true
            }
            _ => false,
        });
    }
}
