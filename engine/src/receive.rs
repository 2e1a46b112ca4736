//! Receive buffers of one core: each is posted, in the caller's hands, or idle.

use crate::mr::ConnectionKey;
use crate::provider::{ReceiveRequest, ScatterElement, Token, TokenKind};
use frwr_mempool::mutant;
use frwr_mempool::{DeviceMemory, Region, device_memory::DeviceTable, region::CarveError, slab::Table};

/// No connection: a core has fewer.
const NOBODY: u16 = u16::MAX;
/// A connection that took a shared receive and has ended: its grant is free again as far as its buffers are back. A core has fewer, too.
pub(crate) const ENDED: u16 = NOBODY - 1;

/// The bit of a token above its buffer's generation.
const GENERATION_CARRY: u64 = 1 << 31;

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Idle,
    Posted,
    Held,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// Under which it was posted last; its generation is the buffer's.
    token: Token,
    /// Bytes of the message in it, where it is held.
    length: u32,
    /// Whose it is; nobody's where the caller holds it since a former connection in the place of its own. Where they are shared: whose
    /// queue pair took it, until it is posted again.
    connection: u16,
    place: Place,
}

impl Buffer {
    /// Hands a posted buffer to the caller.
    #[inline(always)]
    pub(crate) fn hold(&mut self, length: u32) {
        self.place = Place::Held;
        self.length = length;
    }

    /// Whose it is. Where all share them, of the connection that took it.
    #[inline(always)]
    pub(crate) fn connection(&self) -> u16 {
        self.connection
    }

    /// A connection's queue pair took it, of those that all share.
    #[inline(always)]
    pub(crate) fn taken_by(&mut self, connection: u16) {
        self.connection = connection;
    }

    fn is(&self, place: Place, generation: u32) -> bool {
        self.place == place && self.token.generation() == generation
    }

    /// Posts it under a new generation, of 31 bits: what is carried out of them goes no further.
    #[inline(always)]
    fn post(&mut self) -> Token {
        self.place = Place::Posted;
        self.token = Token((self.token.0 + u64::from(!mutant!(S7_receive_generation))) & !GENERATION_CARRY);
        self.token
    }
}

/// A buffer in the caller's hands that comes back.
pub(crate) struct HeldBuffer<'a> {
    entry: &'a mut Buffer,
    address: u64,
    length: u32,
}

impl HeldBuffer<'_> {
    /// Whose it is.
    #[inline(always)]
    pub(crate) fn connection(&self) -> u16 {
        self.entry.connection
    }

    /// Marks it as posted; see [`Receives::post`].
    #[inline(always)]
    pub(crate) fn post(self, lkey: u32) -> ReceiveRequest {
        let element = ScatterElement { address: self.address, length: self.length, lkey };
        ReceiveRequest { token: self.entry.post(), element }
    }

    /// It is not posted for now.
    pub(crate) fn put_by(self) {
        self.entry.place = Place::Idle;
    }
}

/// All receive buffers of one core. A connection owns the run of `depth` buffers at `connection * depth`, unless all
/// share them.
#[derive(Debug)]
pub(crate) struct Receives {
    buffers: Table<Buffer>,
    /// By whose message each was filled that the caller was told of last: when it is, the connection may be gone.
    told: Table<ConnectionKey>,
    memory: DeviceMemory,
    /// The buffers in it.
    messages: DeviceTable,
    /// Offset of the first buffer in the memory.
    offset: usize,
    stride: u32,
    depth: u32,
}

impl Receives {
    pub(crate) fn new_in(
        region: &mut Region,
        memory: DeviceMemory,
        offset: usize,
        stride: u32,
        depth: u32,
        buffers: u32,
        shared: bool,
    ) -> Result<Self, CarveError> {
        let owner = |buffer| if shared { NOBODY } else { (buffer / depth.max(1)) as u16 };
        let idle = |buffer: u32| Buffer {
            token: Token::new(TokenKind::Receive, buffer, 0),
            length: 0,
            connection: owner(buffer),
            place: Place::Idle,
        };
        let buffers = Table::new_in(region, buffers as usize, |buffer| idle(buffer as u32))?;
        let told = Table::new_in(region, buffers.len(), |_| ConnectionKey::default())?;
        let messages = memory.table(offset, stride as usize, buffers.len() as u32);
        debug_assert_eq!(messages.len() as usize, buffers.len());
        Ok(Self { buffers, told, messages, memory, offset, stride, depth })
    }

    /// Bytes of the region that it takes, beside the buffers themselves.
    pub(crate) fn bytes_needed(buffers: u32) -> Option<usize> {
        let buffers = buffers as usize;
        Table::<Buffer>::bytes_needed(buffers)?.checked_add(Table::<ConnectionKey>::bytes_needed(buffers)?)
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

    /// What stands in the buffers.
    #[inline(always)]
    pub(crate) fn messages(&self) -> &DeviceTable {
        &self.messages
    }

    /// Offset of a buffer in the engine's memory.
    fn offset_of(&self, buffer: u32) -> usize {
        self.offset + buffer as usize * self.stride as usize
    }

    /// Bytes of a buffer.
    #[inline]
    pub(crate) fn stride(&self) -> u32 {
        self.stride
    }

    /// Marks a buffer as posted, under a new generation, and returns the work request for it. Who does not post that, or is refused,
    /// takes it back by [`Receives::unpost`].
    #[inline]
    pub(crate) fn post(&mut self, buffer: u32, lkey: u32) -> ReceiveRequest {
        let entry = &mut self.buffers[buffer as usize];
        let address = self.messages.address(buffer);
        debug_assert_eq!(entry.place, Place::Idle, "a buffer is posted once");
        ReceiveRequest { token: entry.post(), element: ScatterElement { address, length: self.stride, lkey } }
    }

    /// Takes a posted buffer back: flushed, or refused by the device. False for a completion that is none of ours.
    pub(crate) fn unpost(&mut self, buffer: u32, generation: u32) -> bool {
        let Some(entry) = self.buffers.get_mut(buffer as usize).filter(|entry| entry.is(Place::Posted, generation))
        else {
            return false;
        };
        entry.place = Place::Idle;
        true
    }

    /// A buffer that all share is in the queue again. Returns the connection that had taken it: [`ENDED`], or none, where nobody is
    /// given credit for it.
    #[inline(always)]
    pub(crate) fn forget_taker(&mut self, buffer: u32) -> u16 {
        let entry = self.buffers.get_mut(buffer as usize);
        entry.map_or(NOBODY, |entry| core::mem::replace(&mut entry.connection, NOBODY))
    }

    /// A connection has ended, whose queue pair took buffers that all share. Returns how many of them are not posted again.
    pub(crate) fn taker_ended(&mut self, connection: u16) -> u32 {
        let mut held = 0;
        for entry in self.buffers.iter_mut().filter(|entry| entry.connection == connection) {
            entry.connection = if mutant!(S7_shared_taker) { connection } else { ENDED };
            held += 1;
        }
        held
    }

    /// A buffer, wherever it is.
    pub(crate) fn get_mut(&mut self, buffer: u32) -> Option<&mut Buffer> {
        self.buffers.get_mut(buffer as usize)
    }

    /// The buffer that is posted under this token.
    #[inline(always)]
    pub(crate) fn posted_mut(&mut self, token: Token) -> Option<&mut Buffer> {
        self.buffers.get_mut(token.index() as usize).filter(|entry| {
            // S7, K6: a late or a doubled completion counts.
            (entry.token == token || (mutant!(S7_receive) && entry.token.kind() == token.kind()))
                && (entry.place == Place::Posted || mutant!(K6_twice))
        })
    }

    /// A buffer that the caller holds, with what posts it again under a new generation.
    #[inline(always)]
    pub(crate) fn held_mut(&mut self, buffer: u32, generation: u32) -> Option<HeldBuffer<'_>> {
        let entry = self.buffers.get_mut(buffer as usize).filter(|entry| entry.is(Place::Held, generation))?;
        let address = self.messages.address(buffer);
        Some(HeldBuffer { entry, address, length: self.stride })
    }

    /// The caller is to be told of the message in a buffer, which came by this connection.
    #[inline(always)]
    pub(crate) fn tell(&mut self, buffer: u32, connection: ConnectionKey) {
        if let Some(told) = self.told.get_mut(buffer as usize) {
            *told = connection;
        }
    }

    /// What it is told: the connection, and generation and bytes of the message.
    #[inline(always)]
    pub(crate) fn told(&self, buffer: u32) -> Option<(ConnectionKey, u32, u32)> {
        let (generation, length) = self.held(buffer)?;
        Some((*self.told.get(buffer as usize)?, generation, length))
    }

    /// Generation and bytes of the message in a buffer, where there is one that was not released.
    #[inline(always)]
    pub(crate) fn held(&self, buffer: u32) -> Option<(u32, u32)> {
        let entry = self.buffers.get(buffer as usize).filter(|entry| entry.place == Place::Held)?;
        Some((entry.token.generation(), entry.length))
    }

    /// Takes a buffer back from the caller, and says whose it is. `None` for one that the caller does not hold.
    #[inline]
    pub(crate) fn release(&mut self, buffer: u32, generation: u32) -> Option<u16> {
        let entry = self.buffers.get_mut(buffer as usize).filter(|entry| entry.is(Place::Held, generation))?;
        entry.place = Place::Idle;
        Some(entry.connection)
    }

    /// A connection opens in the place of a former one: what the caller still holds of that is missing from it.
    pub(crate) fn hold_over(&mut self, connection: u16) {
        for buffer in self.of(connection) {
            let entry = &mut self.buffers[buffer as usize];
            if entry.place == Place::Held {
                entry.connection = NOBODY;
            }
        }
    }

    /// A buffer that is nobody's came back. Where it was held since a former connection it is of its place again, which is told.
    pub(crate) fn bring_home(&mut self, buffer: u32) -> Option<u16> {
        let depth = self.depth.max(1);
        let entry = self.buffers.get_mut(buffer as usize).filter(|entry| entry.connection == NOBODY)?;
        entry.connection = (buffer / depth) as u16;
        Some(entry.connection)
    }

    /// Copies a message out, from its byte `from` on. Returns how many bytes were copied. Part of who reads so many, where the compiler
    /// knows how many that are.
    #[inline(always)]
    pub(crate) fn read(&self, buffer: u32, generation: u32, from: u32, into: &mut [u8]) -> usize {
        let Some((offset, behind)) = self.within(buffer, generation, from) else { return 0 };
        if behind < into.len() {
            return self.read_end(offset, &mut into[..behind]);
        }
        self.memory.read(offset, into).map_or(0, |()| into.len())
    }

    /// The same of a message that ends before.
    #[cold]
    fn read_end(&self, offset: usize, into: &mut [u8]) -> usize {
        self.memory.read(offset, into).map_or(0, |()| into.len())
    }

    /// The same into memory, `bytes` at most, from its byte `at` on.
    pub(crate) fn copy(
        &self,
        buffer: u32,
        generation: u32,
        from: u32,
        bytes: u32,
        to: &DeviceMemory,
        at: usize,
    ) -> usize {
        let Some((offset, behind)) = self.within(buffer, generation, from) else { return 0 };
        let bytes = behind.min(bytes as usize);
        match self.memory.copy_within_to(offset, to, at, bytes) {
            Ok(()) => bytes,
            Err(_) => 0,
        }
    }

    /// Where the byte `from` of a message that the caller holds lies in the engine's memory, and how many bytes there are from it on.
    #[inline(always)]
    fn within(&self, buffer: u32, generation: u32, from: u32) -> Option<(usize, usize)> {
        let entry = self.buffers.get(buffer as usize).filter(|entry| entry.is(Place::Held, generation))?;
        let behind = entry.length.checked_sub(from)?;
        Some((self.offset_of(buffer) + from as usize, behind as usize))
    }

    /// The queue pair is gone with everything posted to it. What the caller holds stays readable until it is released.
    pub(crate) fn reset(&mut self, connection: u16) {
        for buffer in self.of(connection) {
            let entry = &mut self.buffers[buffer as usize];
            if entry.place == Place::Posted {
                entry.place = Place::Idle;
            }
        }
    }

    /// Whether a buffer can be posted.
    pub(crate) fn is_idle(&self, buffer: u32) -> bool {
        self.buffers.get(buffer as usize).is_some_and(|entry| entry.place == Place::Idle)
    }

    /// Whether any of them is since a former connection.
    pub(crate) fn is_held_over(&self, connection: u16) -> bool {
        self.of(connection).any(|buffer| self.owner(buffer) == Some(NOBODY))
    }

    /// How many buffers of a connection are in the caller's hands.
    pub(crate) fn held_of(&self, connection: u16) -> usize {
        let held = |buffer: &u32| self.buffers.get(*buffer as usize).is_some_and(|entry| entry.place == Place::Held);
        self.of(connection).filter(held).count()
    }

    /// How many buffers are posted, in the caller's hands, and idle.
    pub(crate) fn counts(&self) -> (u32, u32, u32) {
        let count = |wanted| self.buffers.iter().filter(|entry| entry.place == wanted).count() as u32;
        (count(Place::Posted), count(Place::Held), count(Place::Idle))
    }
}
