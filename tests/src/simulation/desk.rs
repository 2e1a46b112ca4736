//! One host's memory, and its requests in flight.

use frwr_engine::{
    gather::{MemoryId, Segment},
    provider::Access,
};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::host::report_bytes;
use frwr_support::Random;
use frwr_support::nvmf_harness::reservations::HOSTS;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Blocks to memory.
    Read,
    /// Memory to blocks.
    Write,
    /// Whether memory and blocks are equal.
    Compare,
    /// What was written becomes durable.
    Flush,
    /// Zeros to blocks.
    WriteZeroes,
    /// Blocks are needed no more.
    Deallocate,
    /// Memory to blocks if they hold what is expected, as one step (fused Compare and Write).
    Pair,
    /// A change of registrations or of the reservation.
    Reserve,
    /// What there is of those, to memory.
    Report,
}

impl Kind {
    /// Those that are drawn by weight.
    pub(super) const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Compare, Self::Flush, Self::WriteZeroes, Self::Deallocate];

    /// It changes blocks.
    pub(super) const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::Deallocate | Self::Pair)
    }

    /// Whoever may only read may not do it.
    pub(super) const fn writes(self) -> bool {
        self.changes() || matches!(self, Self::Flush)
    }

    /// It asks about who may read and write, which everybody may.
    pub(super) const fn is_of_reservations(self) -> bool {
        matches!(self, Self::Reserve | Self::Report)
    }

    /// The right that a target needs at the request's memory.
    const fn needs(self) -> Option<Access> {
        match self {
            Self::Read | Self::Report => Some(Access::RemoteWrite),
            Self::Write | Self::Compare | Self::Pair => Some(Access::RemoteRead),
            Self::Flush | Self::WriteZeroes | Self::Deallocate | Self::Reserve => None,
        }
    }
}

/// A request that was submitted and has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// What it does.
    pub(super) kind: Kind,
    /// First block.
    pub(super) lba: u64,
    /// A read or write with Force Unit Access.
    pub(super) forced: bool,
    /// Number of blocks; 0 for a flush.
    pub(super) blocks: u64,
    /// What a write writes, or a compare compares with.
    pub(super) version: u32,
    /// What a pair compares with.
    pub(super) expected: u32,
    /// What had happened to reservations when it was submitted.
    pub(super) begun: u64,
    /// Commands that its host had sent more than once then.
    pub(super) sent_again: u64,
    /// What had ended when it was submitted.
    pub(super) since: u64,
    /// Power cuts at that time.
    pub(super) power_cuts: u32,
    /// Bytes of its memory that lie behind the others although they come first; 0 for memory in order.
    pub(super) turn: usize,
}

impl Pending {
    /// Its blocks.
    pub(super) const fn range(&self) -> core::ops::Range<usize> {
        self.lba as usize..(self.lba + self.blocks) as usize
    }

    /// Bytes of its memory, where it has blocks of so many.
    const fn bytes(&self, block_bytes: usize) -> usize {
        let bytes = self.blocks as usize * block_bytes;
        match self.kind {
            Kind::Pair => 2 * bytes,
            Kind::Report => REPORT_BYTES,
            _ => bytes,
        }
    }
}

/// Of all hosts that there are at most.
const REPORT_BYTES: usize = report_bytes(HOSTS as u32) as usize;

/// The part of the memory that one request uses.
#[derive(Clone, Copy, Debug)]
struct Slot {
    pending: Option<Pending>,
    /// Of what it held when its last request ended, or was submitted; nobody may have written to it since.
    digest: u64,
    generation: u32,
}

/// One host's memory, and its requests in flight.
pub(super) struct Desk {
    /// Whose it is.
    pub(super) host: usize,
    memory: DeviceMemory,
    /// By which its engine knows that.
    pub(super) id: MemoryId,
    slot_bytes: usize,
    slots: Vec<Slot>,
    /// Taken from the end; what ended last goes to the front.
    free: std::collections::VecDeque<usize>,
    ghosts: Vec<Pending>,
    /// Bytes that the requests in flight may have open.
    open_bytes: u64,
    block_bytes: usize,
    bytes: Vec<u8>,
    turned: Vec<u8>,
}

/// What a slot holds before a read.
const NOTHING: u8 = 0xEE;

impl Desk {
    /// A desk for requests of up to `slot_bytes`.
    pub(super) fn new(host: usize, memory: DeviceMemory, id: MemoryId, slot_bytes: usize) -> Self {
        let count = memory.len() / slot_bytes;
        let digest = digest(&vec![0; slot_bytes]);
        let slots = vec![Slot { pending: None, digest, generation: 0 }; count];
        let free = (0..count).collect();
        let (ghosts, bytes, turned) = (Vec::new(), vec![0; slot_bytes], Vec::new());
        Self { host, memory, id, slot_bytes, slots, free, ghosts, open_bytes: 0, block_bytes: 0, bytes, turned }
    }

    /// The memory, for the engine of its next program.
    pub(super) const fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes that they may have open.
    pub(super) const fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// The cookie of some request in flight.
    pub(super) fn some_request(&self, random: &mut Random) -> Option<u64> {
        let chosen = random.below(self.in_flight() as u64) as usize;
        let mut used = (0..self.slots.len()).filter(|&slot| self.slots[slot].pending.is_some());
        used.nth(chosen).map(|slot| self.cookie(slot))
    }

    /// What is in flight, for messages.
    pub(super) fn describe(&self) -> String {
        let pending: Vec<_> = self.slots.iter().filter_map(|slot| slot.pending).collect();
        format!("{pending:?}")
    }

    fn cookie(&self, slot: usize) -> u64 {
        u64::from(self.slots[slot].generation) << 32 | slot as u64
    }

    fn load(&mut self, slot: usize) -> u64 {
        let _ = self.memory.read(slot * self.slot_bytes, &mut self.bytes);
        digest(&self.bytes)
    }

    /// The memory of the next request: what it writes is in place.
    ///
    /// # Errors
    /// It had changed although nobody used it.
    pub(super) fn prepare(
        &mut self,
        mut pending: Pending,
        block_bytes: usize,
        random: &mut Random,
    ) -> Result<Option<(u64, Pending)>, String> {
        let Some(&slot) = self.free.back() else { return Ok(None) };
        self.check_rest(slot)?;
        self.block_bytes = block_bytes;
        let length = pending.bytes(block_bytes);
        let may_turn = pending.kind.needs().is_some() && !matches!(pending.kind, Kind::Pair | Kind::Report);
        if may_turn && length > TURN && random.one_in(8) {
            pending.turn = (random.below((length / TURN) as u64) as usize) * TURN;
        }
        self.bytes.fill(NOTHING);
        if matches!(pending.kind, Kind::Write | Kind::Compare | Kind::Pair) {
            let half = pending.blocks as usize * block_bytes;
            for (at, part) in self.bytes[..length].chunks_exact_mut(half).enumerate() {
                // What a pair expects is in front of what it writes.
                let version = if pending.kind == Kind::Pair && at == 0 { pending.expected } else { pending.version };
                for (lba, part) in (pending.lba..).zip(part.chunks_exact_mut(block_bytes)) {
                    fill(part, lba, version);
                }
            }
            self.bytes[..length].rotate_left(pending.turn);
        }
        let _ = self.memory.write(slot * self.slot_bytes, &self.bytes);
        self.slots[slot].digest = digest(&self.bytes);
        Ok(Some((self.cookie(slot), pending)))
    }

    /// Where the data of a prepared request lies.
    pub(super) fn segments(&self, cookie: u64, pending: &Pending) -> arrayvec::ArrayVec<Segment, 2> {
        let offset = (cookie as u32 as usize * self.slot_bytes) as u64;
        let length = pending.bytes(self.block_bytes);
        let at = length - pending.turn;
        let first = Segment { memory: self.id, offset: offset + at as u64, length: pending.turn as u32 };
        let second = Segment { memory: self.id, offset, length: at as u32 };
        [first, second].into_iter().filter(|segment| segment.length > 0).collect()
    }

    /// Both halves of a prepared pair: what it expects, and what it writes.
    pub(super) fn halves(&self, cookie: u64, pending: &Pending) -> [Segment; 2] {
        let length = pending.blocks as u32 * self.block_bytes as u32;
        let offset = (cookie as u32 as usize * self.slot_bytes) as u64;
        [offset, offset + u64::from(length)].map(|offset| Segment { memory: self.id, offset, length })
    }

    /// A prepared request was taken.
    pub(super) fn submitted(&mut self, cookie: u64, pending: Pending) {
        self.free.pop_back();
        self.slots[cookie as u32 as usize].pending = Some(pending);
        self.open_bytes += self.opens(&pending);
    }

    fn opens(&self, pending: &Pending) -> u64 {
        if pending.kind.needs().is_some() { pending.bytes(self.block_bytes) as u64 } else { 0 }
    }

    /// A request ended.
    ///
    /// # Errors
    /// It was not in flight.
    pub(super) fn ended(&mut self, cookie: u64) -> Result<Pending, String> {
        let slot = self.slots.get_mut(cookie as u32 as usize);
        let slot = slot.filter(|slot| slot.generation == (cookie >> 32) as u32);
        let pending = slot.and_then(|slot| {
            slot.generation += 1;
            slot.pending.take()
        });
        let pending = pending.ok_or_else(|| format!("request {cookie:#x} ended, but was not in flight"))?;
        self.free.push_front(cookie as u32 as usize);
        self.open_bytes -= self.opens(&pending);
        Ok(pending)
    }

    /// What a read has read, in order; its memory rests now.
    ///
    /// # Errors
    /// It wrote behind its own bytes.
    pub(super) fn take_read(&mut self, cookie: u64, pending: &Pending, length: usize) -> Result<&[u8], String> {
        let slot = cookie as u32 as usize;
        self.slots[slot].digest = self.load(slot);
        let (data, rest) = self.bytes.split_at(pending.blocks as usize * length);
        if rest.iter().any(|&byte| byte != NOTHING) {
            return Err(format!("{pending:?} wrote behind its own bytes"));
        }
        self.turned.clear();
        self.turned.extend_from_slice(data);
        self.turned.rotate_right(pending.turn);
        Ok(&self.turned)
    }

    /// What a report has brought; its memory rests now.
    pub(super) fn take_report(&mut self, cookie: u64) -> &[u8] {
        let slot = cookie as u32 as usize;
        self.slots[slot].digest = self.load(slot);
        &self.bytes[..REPORT_BYTES]
    }

    /// A request ended whose bytes nobody looks at: only a read may have changed them.
    ///
    /// # Errors
    /// Something else did.
    pub(super) fn check_memory(&mut self, cookie: u64, may_differ: bool) -> Result<(), String> {
        let slot = cookie as u32 as usize;
        if may_differ {
            self.slots[slot].digest = self.load(slot);
            return Ok(());
        }
        self.check_rest(slot)
    }

    fn check_rest(&mut self, slot: usize) -> Result<(), String> {
        if self.load(slot) == self.slots[slot].digest {
            return Ok(());
        }
        Err(format!("memory of slot {slot} changed although nobody may change it"))
    }

    /// One of the slots without a request is looked at.
    ///
    /// # Errors
    /// It changed: its key was not dead.
    pub(super) fn check_some_rest(&mut self, random: &mut Random) -> Result<(), String> {
        let chosen = random.below(self.free.len() as u64) as usize;
        self.free.get(chosen).copied().map_or(Ok(()), |slot| self.check_rest(slot))
    }

    /// All of them are.
    ///
    /// # Errors
    /// As [`Desk::check_some_rest`].
    pub(super) fn check_all_rest(&mut self) -> Result<(), String> {
        (0..self.slots.len()).try_for_each(|slot| match self.slots[slot].pending {
            None => self.check_rest(slot),
            Some(_) => Ok(()),
        })
    }

    /// Whether a request in flight opens these bytes, at offsets of the memory, for that.
    pub(super) fn covers(&self, offset: u64, length: u64, access: Access) -> bool {
        let slot = offset as usize / self.slot_bytes;
        let within = offset - (slot * self.slot_bytes) as u64;
        let pending = self.slots.get(slot).and_then(|slot| slot.pending);
        pending.is_some_and(|pending| {
            pending.kind.needs() == Some(access) && within + length <= pending.bytes(self.block_bytes) as u64
        })
    }

    /// Its program is gone: all requests, and those that change blocks once more, since they may still be executed.
    pub(super) fn abandon(&mut self) -> Vec<Pending> {
        let mut gone = Vec::new();
        for slot in 0..self.slots.len() {
            let digest = self.load(slot);
            let Some(pending) = self.slots[slot].pending.take() else { continue };
            self.slots[slot] = Slot { pending: None, digest, generation: self.slots[slot].generation + 1 };
            self.free.push_front(slot);
            gone.push(pending);
        }
        self.open_bytes = 0;
        self.ghosts.extend(gone.iter().filter(|pending| pending.kind.changes()));
        gone
    }

    /// What is under way to change blocks, by this program or an earlier one.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Pending> {
        let pending = self.slots.iter().filter_map(|slot| slot.pending.as_ref());
        pending.filter(|pending| pending.kind.changes()).chain(&self.ghosts)
    }

    /// What of an earlier program changes blocks, for the last time.
    pub(super) fn exorcise(&mut self) -> Vec<Pending> {
        core::mem::take(&mut self.ghosts)
    }
}

/// Where memory in several segments is cut: what every device can register.
const TURN: usize = 512;

/// Numbers that bytes are mixed with, one for each lane.
const LANES: [u64; 4] = [0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xD6E8_FEB8_6659_FD93];

/// One number of many bytes, in four lanes: a simulation looks at all memory again and again.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mut lanes = LANES;
    for chunk in bytes.as_chunks::<32>().0 {
        for (lane, word) in lanes.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(LANES[0]);
            *lane ^= *lane >> 32;
        }
    }
    lanes.iter().fold(bytes.len() as u64, |all, lane| (all ^ lane).wrapping_mul(LANES[1]) ^ (lane >> 29))
}

/// The bytes of a version of a block; version 0 is zeros.
pub(super) fn fill(bytes: &mut [u8], lba: u64, version: u32) {
    if version == 0 {
        return bytes.fill(0);
    }
    let mut random = Random::new(lba << 32 | u64::from(version));
    for chunk in bytes.as_chunks_mut::<8>().0 {
        chunk.copy_from_slice(&random.bits().to_le_bytes());
    }
}
