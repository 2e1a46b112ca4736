//! The messages that one engine sends, in memory that the device reads: those of requests and replies, by slot. A message of which a
//! part is not known yet is completed beside it, where nobody else reaches.

use frwr_mempool::{
    DeviceMemory, Region,
    device_memory::{DeviceTable, LINE},
    region::CarveError,
    slab::Table,
};

/// See the module.
pub(crate) struct Messages {
    /// All messages of the engine, received ones as well.
    memory: DeviceMemory,
    /// Those of requests in it.
    requests: DeviceTable,
    /// Offset of the first reply.
    first_reply: usize,
    /// Bytes between two messages.
    stride: usize,
    /// As long as the longest message.
    scratch: Table<u8>,
}

impl Messages {
    /// Messages of so many bytes at most: those of so many requests first, and those of replies from `first_reply` on.
    pub(crate) fn new_in(
        region: &mut Region,
        memory: DeviceMemory,
        message_bytes: u32,
        requests: u32,
        first_reply: usize,
    ) -> Result<Self, CarveError> {
        let stride = message_bytes as usize;
        let slots = memory.table(0, stride, requests);
        debug_assert_eq!(slots.len(), requests);
        let scratch = Table::new_in(region, stride, |_| 0)?;
        Ok(Self { memory, requests: slots, first_reply, stride, scratch })
    }

    /// Bytes of the region that it takes beside the memory.
    pub(crate) fn bytes_needed(message_bytes: u32) -> Option<usize> {
        Table::<u8>::bytes_needed(message_bytes as usize)
    }

    /// Address of the memory.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Address of a request's message.
    pub(crate) fn of_request(&self, slot: u32) -> u64 {
        self.requests.address(slot)
    }

    /// Address of a transfer's reply.
    pub(crate) fn of_reply(&self, slot: u32) -> u64 {
        self.memory.address() + self.reply_at(slot) as u64
    }

    /// A request's message of the usual size, known to the compiler. False where there is no such slot.
    #[inline(always)]
    pub(crate) fn write_line(&self, slot: u32, line: &[u8; LINE]) -> bool {
        self.requests.write_line(slot, line)
    }

    /// A request's message, once `complete` has completed it. False where that says no, or the message is longer than any may be.
    #[inline(always)]
    pub(crate) fn write(&mut self, slot: u32, message: &[u8], complete: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let Some(scratch) = self.scratch.get_mut(..message.len()) else { return false };
        scratch.copy_from_slice(message);
        complete(scratch) && self.memory.write(request_at(&self.memory, &self.requests, slot), scratch).is_ok()
    }

    /// The same of the message of so many bytes that was kept there.
    #[inline(always)]
    pub(crate) fn write_kept(&mut self, slot: u32, length: u32, complete: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let at = request_at(&self.memory, &self.requests, slot);
        let Some(scratch) = self.scratch.get_mut(..length as usize) else { return false };
        self.memory.read(at, scratch).is_ok() && complete(scratch) && self.memory.write(at, scratch).is_ok()
    }

    /// Keeps the message of a request that waits, which is no longer than any may be.
    pub(crate) fn keep(&self, slot: u32, message: &[u8]) {
        let _ = self.memory.write(request_at(&self.memory, &self.requests, slot), message);
    }

    /// The message of a reply, which is no longer than any may be.
    #[inline(always)]
    pub(crate) fn write_reply(&self, slot: u32, message: &[u8]) {
        let _ = self.memory.write(self.reply_at(slot), message);
    }

    #[inline(always)]
    fn reply_at(&self, slot: u32) -> usize {
        self.first_reply + slot as usize * self.stride
    }
}

/// Where a slot's message stands in the memory of all of them.
#[inline(always)]
fn request_at(memory: &DeviceMemory, requests: &DeviceTable, slot: u32) -> usize {
    (requests.address(slot) - memory.address()) as usize
}
