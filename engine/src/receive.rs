//! Receive buffers of one core: each is posted, in the caller's hands, or idle.

use crate::event::Received;
use crate::provider::{ReceiveRequest, ScatterElement, Token, TokenKind};
use frwr_mempool::DeviceMemory;

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Posted,
    Held { length: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    state: State,
    generation: u32,
    /// Whose it is where they are not shared.
    pub(crate) connection: u16,
}

impl Buffer {
    /// Hands a posted buffer to the caller.
    #[inline(always)]
    pub(crate) fn hold(&mut self, length: u32) {
        self.state = State::Held { length };
    }
}

/// All receive buffers of one core. A connection owns the run of `depth` buffers at `connection * depth`, unless all
/// share them.
#[derive(Debug)]
pub(crate) struct Receives {
    buffers: Box<[Buffer]>,
    memory: DeviceMemory,
    /// Its address.
    address: u64,
    /// Offset of the first buffer in the memory.
    offset: usize,
    stride: u32,
    depth: u32,
}

impl Receives {
    pub(crate) fn new(memory: DeviceMemory, offset: usize, stride: u32, depth: u32, buffers: u32) -> Self {
        // One core has at most u16::MAX connections; of shared buffers nobody asks whose they are.
        let idle = |buffer| Buffer { state: State::Idle, generation: 0, connection: (buffer / depth.max(1)) as u16 };
        Self { buffers: (0..buffers).map(idle).collect(), address: memory.address(), memory, offset, stride, depth }
    }

    /// The buffers of a connection.
    pub(crate) fn of(&self, connection: u16) -> core::ops::Range<u32> {
        let first = u32::from(connection) * self.depth;
        first..first + self.depth
    }

    /// The connection that owns a buffer, if there is such a buffer.
    #[inline]
    pub(crate) fn owner(&self, buffer: u32) -> Option<u16> {
        self.buffers.get(buffer as usize).map(|entry| entry.connection)
    }

    /// Offset of a buffer in the engine's memory.
    #[inline]
    pub(crate) fn offset_of(&self, buffer: u32) -> usize {
        self.offset + buffer as usize * self.stride as usize
    }

    /// Bytes of a buffer.
    #[inline]
    pub(crate) fn stride(&self) -> u32 {
        self.stride
    }

    /// Marks a buffer as posted, under a new generation, and returns the work request for it.
    #[inline]
    pub(crate) fn post(&mut self, buffer: u32, lkey: u32) -> ReceiveRequest {
        let address = self.address + self.offset_of(buffer) as u64;
        let entry = &mut self.buffers[buffer as usize];
        debug_assert_eq!(entry.state, State::Idle, "a buffer is posted once");
        entry.state = State::Posted;
        entry.generation = entry.generation.wrapping_add(1);
        ReceiveRequest {
            token: Token::new(TokenKind::Receive, buffer, entry.generation),
            element: ScatterElement { address, length: self.stride, lkey },
        }
    }

    /// Takes a posted buffer back: flushed, or refused by the device. False for a completion that is none of ours.
    pub(crate) fn unpost(&mut self, buffer: u32, generation: u32) -> bool {
        self.leave(buffer, generation, State::Idle)
    }

    /// Hands a filled buffer to the caller. `None` for a late, duplicated or foreign completion.
    #[inline]
    pub(crate) fn fill(&mut self, buffer: u32, generation: u32, length: u32) -> Option<Received> {
        let length = length.min(self.stride);
        self.leave(buffer, generation, State::Held { length }).then_some(Received { buffer, generation, length })
    }

    /// A buffer that is posted under this generation.
    #[inline(always)]
    pub(crate) fn posted_mut(&mut self, buffer: u32, generation: u32) -> Option<&mut Buffer> {
        self.buffers
            .get_mut(buffer as usize)
            .filter(|entry| entry.state == State::Posted && entry.generation == generation)
    }

    #[inline]
    fn leave(&mut self, buffer: u32, generation: u32, to: State) -> bool {
        match self.buffers.get_mut(buffer as usize) {
            Some(entry) if entry.state == State::Posted && entry.generation == generation => {
                entry.state = to;
                true
            }
            _ => false,
        }
    }

    /// Takes a buffer back from the caller, and says whose it is. `None` for one that the caller does not hold.
    #[inline]
    pub(crate) fn release(&mut self, buffer: u32, generation: u32) -> Option<u16> {
        match self.buffers.get_mut(buffer as usize) {
            Some(entry) if matches!(entry.state, State::Held { .. }) && entry.generation == generation => {
                entry.state = State::Idle;
                Some(entry.connection)
            }
            _ => None,
        }
    }

    /// Copies a message out, from its byte `from` on. Returns how many bytes were copied.
    pub(crate) fn read(&self, buffer: u32, generation: u32, from: u32, into: &mut [u8]) -> usize {
        let Some(entry) = self.buffers.get(buffer as usize) else { return 0 };
        let State::Held { length } = entry.state else { return 0 };
        if entry.generation != generation || from > length {
            return 0;
        }
        let bytes = into.len().min((length - from) as usize);
        match self.memory.read(self.offset_of(buffer) + from as usize, &mut into[..bytes]) {
            Ok(()) => bytes,
            Err(_) => 0,
        }
    }

    /// The queue pair is gone with everything posted to it. What the caller holds stays readable until it is released.
    pub(crate) fn reset(&mut self, connection: u16) {
        for buffer in self.of(connection) {
            let entry = &mut self.buffers[buffer as usize];
            if entry.state == State::Posted {
                entry.state = State::Idle;
            }
        }
    }

    /// The buffers of a connection that can be posted.
    pub(crate) fn idle_of(&self, connection: u16) -> impl Iterator<Item = u32> {
        self.of(connection).filter(|&buffer| self.buffers[buffer as usize].state == State::Idle)
    }

    /// How many buffers of a connection are in the caller's hands.
    pub(crate) fn held_of(&self, connection: u16) -> usize {
        let held = |buffer: &u32| matches!(self.buffers[*buffer as usize].state, State::Held { .. });
        self.of(connection).filter(held).count()
    }

    /// How many buffers are posted, in the caller's hands, and idle.
    pub(crate) fn counts(&self) -> (u32, u32, u32) {
        let count =
            |wanted: fn(&State) -> bool| self.buffers.iter().filter(|entry| wanted(&entry.state)).count() as u32;
        (
            count(|state| *state == State::Posted),
            count(|state| matches!(state, State::Held { .. })),
            count(|state| *state == State::Idle),
        )
    }
}
