//! A queue pair: its queues, and how far the card has come in them.

use super::{
    context::{QueuePairContext, QueuePairState},
    wqe::{self, BLOCK, Control, Element, NO_KEY, Work},
};
use crate::memory;
use zerocopy::FromBytes;

/// Bytes of an element.
const ELEMENT_BYTES: usize = 16;

/// `IBV_ACCESS_REMOTE_READ`, `IBV_ACCESS_REMOTE_WRITE`.
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_WRITE: u32 = 1 << 1;

#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) context: QueuePairContext,
    pub(super) state: QueuePairState,
    pub(super) destination: u32,
    pub(super) receiver_retries: u8,
    access: u32,
    /// Position of the next block of the send queue.
    sent: u16,
    /// Position of the next receive.
    received: u16,
    /// Steps in which the work request at hand could not go on.
    pub(super) waited: u32,
}

impl QueuePair {
    pub(super) fn new(context: QueuePairContext) -> Self {
        Self {
            context,
            state: QueuePairState::Reset,
            destination: 0,
            receiver_retries: 0,
            access: 0,
            sent: 0,
            received: 0,
            waited: 0,
        }
    }

    /// Forgets what was posted.
    pub(super) fn reset(&mut self) {
        (self.sent, self.received, self.waited) = (0, 0, 0);
    }

    pub(super) fn set_access(&mut self, access: u32) {
        self.access = access;
    }

    pub(super) fn permits_read(&self) -> bool {
        self.access & REMOTE_READ != 0
    }

    pub(super) fn permits_write(&self) -> bool {
        self.access & REMOTE_WRITE != 0
    }

    /// The next work request, if there is one.
    pub(super) fn next_control(&self, number: u32) -> Option<Result<Control, &'static str>> {
        let posted = memory::doorbell(self.context.doorbell + 4) as u16;
        let blocks = posted.wrapping_sub(self.sent);
        if blocks == 0 {
            return None;
        }
        Some(self.control(number, blocks))
    }

    fn control(&self, number: u32, blocks: u16) -> Result<Control, &'static str> {
        if u32::from(blocks) > self.context.send_blocks {
            return Err("more blocks are posted than the send queue has");
        }
        let mut block = [0; BLOCK];
        memory::read(self.block(self.sent), &mut block);
        let control = Control::parse(&block)?;
        if control.position != self.sent {
            return Err("a work request says another position than it has");
        }
        if control.queue_pair != number {
            return Err("a work request says another queue pair than its own");
        }
        if control.blocks() > blocks {
            return Err("a work request is longer than what is posted");
        }
        Ok(control)
    }

    /// All of a work request.
    pub(super) fn work(&self, control: &Control) -> Result<Work, &'static str> {
        let mut bytes = vec![0; usize::from(control.blocks()) * BLOCK];
        for (at, block) in (0u16..).zip(bytes.chunks_mut(BLOCK)) {
            memory::read(self.block(self.sent.wrapping_add(at)), block);
        }
        wqe::parse(control, &bytes)
    }

    /// Address of a block by its position; the queue is a ring.
    fn block(&self, position: u16) -> u64 {
        self.context.send_queue + u64::from(u32::from(position) & (self.context.send_blocks - 1)) * BLOCK as u64
    }

    /// The work request is done with.
    pub(super) fn advance(&mut self, control: &Control) {
        self.sent = self.sent.wrapping_add(control.blocks());
        self.waited = 0;
    }

    /// Nothing that is posted will be looked at any more: nobody knows where the next work request begins.
    pub(super) fn skip_all(&mut self) {
        self.sent = memory::doorbell(self.context.doorbell + 4) as u16;
    }

    /// Whether a receive of its own is posted.
    pub(super) fn has_receive(&self) -> bool {
        self.context.receive_entries > 0 && memory::doorbell(self.context.doorbell) as u16 != self.received
    }

    /// Takes its next receive.
    pub(super) fn take_receive(&mut self) -> Vec<Element> {
        let place = u64::from(u32::from(self.received) & (self.context.receive_entries - 1));
        let stride = self.context.receive_stride;
        self.received = self.received.wrapping_add(1);
        scatter_list(self.context.receive_queue + place * u64::from(stride), stride as usize)
    }
}

/// The elements at an address, up to the one that ends the list or fills its room.
pub(super) fn scatter_list(address: u64, room: usize) -> Vec<Element> {
    let mut bytes = vec![0; room];
    memory::read(address, &mut bytes);
    let (elements, _) = bytes.as_chunks::<ELEMENT_BYTES>();
    let elements = elements.iter().filter_map(|bytes| Element::read_from_bytes(bytes).ok());
    elements.take_while(|element| element.key() != NO_KEY).collect()
}
