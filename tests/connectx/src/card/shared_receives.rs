//! Shared receive queues: entries that are linked, taken from the front.

use super::{context::SharedReceiveContext, queue_pair::scatter_list, wqe::Element};
use crate::memory;

/// Bytes in front of an entry's elements: reserved, the number of the next one, and more that is reserved.
const LINK_BYTES: u64 = 16;

#[derive(Debug)]
pub(super) struct SharedReceives {
    context: SharedReceiveContext,
    /// Number of the next entry.
    head: u16,
    taken: u16,
    /// Queue pairs that use it.
    pub(super) users: u32,
}

impl SharedReceives {
    pub(super) fn new(context: SharedReceiveContext) -> Self {
        Self { context, head: 0, taken: 0, users: 0 }
    }

    /// Whose memory its receives may be.
    pub(super) fn domain(&self) -> u32 {
        self.context.domain
    }

    pub(super) fn has_receive(&self) -> bool {
        memory::doorbell(self.context.doorbell) as u16 != self.taken
    }

    /// Takes the next entry: its number and its elements. `None`: it is linked to one that is not there.
    pub(super) fn take(&mut self) -> Option<(u16, Vec<Element>)> {
        let number = self.head;
        if u32::from(number) >= self.context.entries {
            return None;
        }
        let address = self.context.buffer + u64::from(number) * u64::from(self.context.stride);
        let mut next = [0; 2];
        memory::read(address + 2, &mut next);
        self.head = u16::from_be_bytes(next);
        self.taken = self.taken.wrapping_add(1);
        let room = u64::from(self.context.stride).saturating_sub(LINK_BYTES);
        Some((number, scatter_list(address + LINK_BYTES, room as usize)))
    }
}
