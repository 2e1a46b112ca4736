//! A client's requests: how each kind begins, what ends it, and whether it moved what it should.

use super::{
    client::ClientSide,
    failure,
    message::{HEADER_BYTES, Header, Kind, REPLY_BYTES, command_bytes, name_ranges, word},
    operation::Operation,
    parameters::{KeyKind, PeerDoes},
    slots::{Rally, Slot, stamp},
};
use crate::Error;
use core::{ops::Range, time::Duration};
use frwr_engine::{
    Chunk, ConnectionId, FetchRequest, Received, RequestHandle, RequestStatus, Submission, SubmitError, TransferError,
    TransferStatus, WriteRequest,
    mr::Grant,
    provider::{Contiguity, Port},
};

/// Bytes of what is checked at both ends of a request's memory.
const WORD: usize = size_of::<u64>();
/// Cookies of RDMA READs that read back what was written.
const CHECK_COOKIE: u64 = 1 << 62;

/// Where a request is.
struct Place {
    connection: ConnectionId,
    link: usize,
    number: u16,
    sequence: u32,
    /// Of its slot's memory.
    offset: usize,
    /// Its slot's among the pieces of all of them.
    pieces: Range<usize>,
}

impl<P: Port> ClientSide<P> {
    /// Begins what belongs into a slot, `most` requests at most. Returns how many; 0 where there is no room now.
    pub(super) fn begin(&mut self, slot: u32, start: Duration, most: u64) -> Result<u64, Error> {
        let Some(place) = self.take_slot(slot, start) else { return Ok(0) };
        let begun = match self.plan.parameters.operation {
            Operation::Register if self.plan.parameters.registers_by_call() => {
                return self.register_memories(&place, slot, most);
            }
            Operation::Register => self.begin_batch(&place, slot, most)?,
            Operation::Request => self.begin_request(&place, slot)?,
            Operation::Send => self.begin_send(&place, slot)?,
            Operation::Write | Operation::Read => self.begin_transfer(&place, slot)?,
            Operation::Pingpong => self.begin_rally(&place, slot)?,
        };
        if begun > 0 {
            self.free.pop_front();
            self.outstanding += 1;
        }
        Ok(begun)
    }

    fn take_slot(&mut self, slot: u32, start: Duration) -> Option<Place> {
        let found = self.slots.get_mut(slot)?;
        let link = usize::from(found.link);
        let connection = self.links.get(link)?.id?;
        self.sequence += 1;
        // The low bits name it.
        found.sequence = self.sequence as u32;
        found.start = start;
        let (number, sequence, offset) = (found.number, found.sequence, found.offset);
        Some(Place { connection, link, number, sequence, offset, pieces: self.pieces_of(slot) })
    }

    /// A request of this slot has ended.
    fn free_slot(&mut self, slot: u32) {
        self.free.push_back(slot);
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    fn pieces_of(&self, slot: u32) -> Range<usize> {
        let (slot, of_slot) = (slot as usize, usize::from(self.layout.segments));
        slot * of_slot..(slot + 1) * of_slot
    }

    /// Writes both ends of a slot's memory.
    fn mark(&self, offset: usize, value: u64) {
        for at in [offset, self.layout.last_word(offset)] {
            // Slots lie in the memory.
            let _ = self.data.write(at, &value.to_le_bytes());
        }
    }

    /// Both ends of a slot's memory, against what they should be.
    fn expect(&self, offset: usize, wanted: u64) -> Result<(), Error> {
        for at in [offset, self.layout.last_word(offset)] {
            let mut bytes = [0; WORD];
            let _ = self.data.read(at, &mut bytes);
            self.same(u64::from_le_bytes(bytes), wanted)?;
        }
        Ok(())
    }

    fn same(&self, found: u64, wanted: u64) -> Result<(), Error> {
        if found == wanted { Ok(()) } else { Err(failure::not_moved(self.ended, found, wanted)) }
    }

    fn begin_request(&mut self, place: &Place, slot: u32) -> Result<u64, Error> {
        let parameters = self.plan.parameters;
        let mark = stamp(place.number, place.sequence);
        self.mark(place.offset, if parameters.peer_does == PeerDoes::Write { !mark } else { mark });
        let length = command_bytes(usize::from(parameters.segments));
        Header::new(Kind::Request, place.number, place.sequence).encode(&mut self.message);
        self.begins_now(slot);
        let access = self.access();
        let opened;
        let chunks: &[Chunk<'_>] = match parameters.key {
            KeyKind::Request => {
                opened = [Chunk { access, segments: &self.pieces[place.pieces.clone()] }];
                &opened
            }
            KeyKind::Static => {
                let grant = self.links[place.link].grant.map(|grant| (grant.address, grant.key));
                let (address, key) = grant.ok_or_else(|| failure::ended("without a key"))?;
                let first = self.layout.slot_offset(place.link, 0) as u64;
                self.name_pieces(place, length, address, first, key)?;
                &[]
            }
            KeyKind::Memory => {
                let key = self.register_memory(place, slot)?;
                self.name_pieces(place, length, self.data.address(), 0, key)?;
                &[]
            }
        };
        let submission = Submission {
            message: &self.message[..length],
            inline: &[],
            chunks,
            invite_invalidation: parameters.is_killed_by_reply(),
            iova_cookie: slot,
            cookie: slot.into(),
        };
        let submitted = self.engine.submit(place.connection, &submission, &mut self.slots);
        let begun = self.submitted(slot, submitted)?;
        if begun == 0 {
            self.deregister_memory(slot)?;
        }
        Ok(begun)
    }

    /// Names a request's pieces under one key, whose address is that of the byte `first` of the memory.
    fn name_pieces(&mut self, place: &Place, length: usize, address: u64, first: u64, key: u32) -> Result<(), Error> {
        let pieces = self.pieces[place.pieces.clone()].iter();
        let ranges = pieces.map(|piece| (address.wrapping_add(piece.offset - first), key, piece.length));
        name_ranges(&mut self.message[..length], ranges).ok_or_else(|| failure::ended("without room for its keys"))
    }

    fn submitted(&mut self, slot: u32, submitted: Result<RequestHandle, SubmitError>) -> Result<u64, Error> {
        match submitted {
            Ok(handle) => {
                if let Some(slot) = self.slots.get_mut(slot) {
                    slot.handle = Some(handle);
                }
                Ok(1)
            }
            // Slots that only wait for a completion come back; a connection that ends says so by itself.
            Err(SubmitError::NoSlot | SubmitError::NotConnected) => Ok(0),
            Err(SubmitError::TooManyRegistrations) => Err(self.beyond_a_key()),
            Err(error) => Err(error.into()),
        }
    }

    /// A key of this device does not reach as far as a request does.
    fn beyond_a_key(&self) -> Error {
        let (bytes, pieces) = (self.plan.parameters.size, self.plan.parameters.segments);
        let remedy = match (pieces, self.plan.capabilities.contiguity) {
            (1, _) => "--size",
            (_, Contiguity::Gaps { .. }) => "--size or --segments",
            _ => {
                "--size or --segments, or use --registration lists, whose keys cover pieces, where the device has them"
            }
        };
        failure::key(bytes, pieces, remedy)
    }

    fn begin_send(&mut self, place: &Place, slot: u32) -> Result<u64, Error> {
        let size = self.plan.parameters.size as usize;
        Header::new(Kind::Echo, place.number, place.sequence).encode(&mut self.message);
        if size >= HEADER_BYTES + WORD {
            self.message[size - WORD..size].copy_from_slice(&stamp(place.number, place.sequence).to_le_bytes());
        }
        self.begins_now(slot);
        let submission = Submission {
            message: &self.message[..size],
            inline: &[],
            chunks: &[],
            invite_invalidation: false,
            iova_cookie: 0,
            cookie: slot.into(),
        };
        let submitted = self.engine.submit(place.connection, &submission, &mut self.slots);
        self.submitted(slot, submitted)
    }

    fn begin_transfer(&mut self, place: &Place, slot: u32) -> Result<u64, Error> {
        let writes = self.plan.parameters.operation.writes();
        // The server's memory never changes: ours does, so that what did not arrive is seen.
        self.mark(place.offset, if writes { stamp(place.number, place.sequence) } else { 0 });
        self.transfer(place, slot.into(), writes)
    }

    /// Writes to the server's memory; what comes back differs in every bit of both ends, so that it is seen.
    fn begin_rally(&mut self, place: &Place, slot: u32) -> Result<u64, Error> {
        self.mark(place.offset, stamp(place.number, place.sequence));
        let begun = self.transfer(place, slot.into(), true)?;
        if let Some(slot) = self.slots.get_mut(slot).filter(|_| begun > 0) {
            slot.rally = Rally::Begun;
        }
        Ok(begun)
    }

    /// Looks for WRITEs of the server's in the memory of requests. Returns how many there are.
    pub(super) fn look_for_answers(&mut self) -> u32 {
        let mut found = 0;
        for index in 0..self.slots.len() {
            let Some(&slot) = self.slots.get(index) else { break };
            if !matches!(slot.rally, Rally::Begun | Rally::Written) || !self.is_answered(&slot) {
                continue;
            }
            found += 1;
            self.read_clock();
            let seen = self.time;
            match slot.rally {
                Rally::Written => self.end_rally(index, seen),
                _ => self.set_rally(index, Rally::Answered(seen)),
            }
        }
        found
    }

    /// The last word of a WRITE arrives last, as perftest counts on; a device that brings the first one later is waited for.
    fn is_answered(&self, slot: &Slot) -> bool {
        let wanted = !stamp(slot.number, slot.sequence);
        [self.layout.last_word(slot.offset), slot.offset].into_iter().all(|at| {
            let mut bytes = [0; WORD];
            // Slots lie in the memory.
            self.data.read(at, &mut bytes).is_ok() && u64::from_le_bytes(bytes) == wanted
        })
    }

    fn set_rally(&mut self, index: u32, rally: Rally) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.rally = rally;
        }
    }

    /// Both WRITEs are over; the second one was seen at that time.
    fn end_rally(&mut self, index: u32, seen: Duration) {
        self.set_rally(index, Rally::Over);
        let Some(start) = self.slots.get(index).map(|slot| slot.start) else { return };
        let now = core::mem::replace(&mut self.time, seen);
        self.count(start, 1);
        self.time = now;
        self.free_slot(index);
    }

    /// Posts a transfer between a slot and its place at the server. Returns 1, or 0 where there is no room now.
    fn transfer(&mut self, place: &Place, cookie: u64, writes: bool) -> Result<u64, Error> {
        // What is read back is in no figure.
        self.begins_now((cookie & !CHECK_COOKIE) as u32);
        let (local, connection) = (&self.pieces[place.pieces.clone()], place.connection);
        let (number, ranges) = (usize::from(place.number), usize::from(self.layout.ranges));
        let remote = self.links[place.link].remote.get(number * ranges..(number + 1) * ranges);
        let remote = remote.ok_or_else(|| failure::ended("without a key of the server's"))?;
        let taken = if writes {
            self.engine.write(connection, &WriteRequest { local, remote, cookie })
        } else {
            self.engine.fetch(connection, &FetchRequest { local, remote, cookie })
        };
        match taken {
            Ok(()) => Ok(1),
            Err(TransferError::NoSlot | TransferError::NotConnected) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn transferred(&mut self, cookie: u64, status: TransferStatus) -> Result<(), Error> {
        if status == TransferStatus::Lost {
            // The connection's end follows, and says why.
            return Ok(());
        }
        self.read_clock();
        // Cookies are ours: a slot, and whether it was only looked at.
        let slot = (cookie & !CHECK_COOKIE) as u32;
        let Some(found) = self.slots.get(slot).copied() else { return Ok(()) };
        let offset = found.offset;
        if cookie & CHECK_COOKIE != 0 {
            self.outstanding = self.outstanding.saturating_sub(1);
            return self.expect(offset, stamp(found.number, found.sequence));
        }
        if self.plan.parameters.operation.rallies() {
            match found.rally {
                Rally::Answered(seen) => self.end_rally(slot, seen),
                _ => self.set_rally(slot, Rally::Written),
            }
            return Ok(());
        }
        if !self.plan.parameters.operation.writes() {
            self.expect(offset, stamp(found.number, 0))?;
        }
        self.count(found.start, 1);
        self.free_slot(slot);
        Ok(())
    }

    /// Reads back what was written last into each slot's place, and looks at it.
    pub(super) fn read_back(&mut self) -> Result<u32, Error> {
        let mut begun = 0;
        while let Some(&slot) = self.unchecked.front() {
            let Some(found) = self.slots.get(slot).copied() else { break };
            let link = usize::from(found.link);
            let Some(connection) = self.links[link].id else { break };
            let Slot { number, sequence, offset, .. } = found;
            let place = Place { connection, link, number, sequence, offset, pieces: self.pieces_of(slot) };
            self.mark(offset, 0);
            if self.transfer(&place, CHECK_COOKIE | u64::from(slot), false)? == 0 {
                break;
            }
            self.outstanding += 1;
            self.unchecked.pop_front();
            begun += 1;
        }
        if self.unchecked.is_empty() && self.outstanding == 0 {
            self.checked();
        }
        Ok(begun)
    }

    pub(super) fn completed(&mut self, cookie: u64, status: RequestStatus) -> Result<(), Error> {
        if Self::is_of_link(cookie) {
            self.key_died(cookie);
            return Ok(());
        }
        // The cookie is ours: a slot.
        let slot = cookie as u32;
        match status {
            RequestStatus::Replied(received) => self.replied(slot, received),
            RequestStatus::Cancelled => {
                self.key_of_batch_died(slot);
                Ok(())
            }
            // The connection's end follows, and says why.
            RequestStatus::Lost => Ok(()),
            RequestStatus::Sent => Err(failure::ended("without a reply")),
            RequestStatus::PostRefused => Err(failure::ended("refused by the device")),
            RequestStatus::Unannounced => Err(failure::ended("without room for its keys")),
            RequestStatus::MemoryRemoved => Err(failure::ended("its memory was removed")),
            RequestStatus::TooFewRegistrations => Err(failure::ended("the device has too few memory registrations")),
        }
    }

    fn replied(&mut self, slot: u32, received: Received) -> Result<(), Error> {
        self.deregister_memory(slot)?;
        self.read_clock();
        let Some(found) = self.slots.get_mut(slot) else { return Ok(()) };
        found.handle = None;
        let found = *found;
        let looked = self.look_at(&found, &received);
        self.engine.release(received);
        looked?;
        self.count(found.start, 1);
        self.free_slot(slot);
        Ok(())
    }

    /// Whether a request moved what it should.
    fn look_at(&mut self, slot: &Slot, received: &Received) -> Result<(), Error> {
        let parameters = self.plan.parameters;
        let mark = stamp(slot.number, slot.sequence);
        if parameters.operation.is_message_alone() {
            let size = parameters.size;
            let mut last = mark.to_le_bytes();
            self.same(received.length().into(), size.into())?;
            if size as usize >= HEADER_BYTES + WORD {
                self.engine.message(received, size - WORD as u32, &mut last);
            }
            return self.same(u64::from_le_bytes(last), mark);
        }
        if parameters.peer_does == PeerDoes::Write {
            return self.expect(slot.offset, mark);
        }
        let mut reply = [0; REPLY_BYTES];
        let length = self.engine.message(received, 0, &mut reply);
        for at in [HEADER_BYTES, HEADER_BYTES + WORD] {
            self.same(word(&reply[..length.min(REPLY_BYTES)], at).unwrap_or(0), mark)?;
        }
        Ok(())
    }

    /// Opens a slot's memory by a system call; returns the key.
    fn register_memory(&mut self, place: &Place, slot: u32) -> Result<u32, Error> {
        let access = self.access();
        let queue_pair = self.engine.queue_pair(place.connection).ok_or(SubmitError::NotConnected)?;
        let span = self.layout.span(self.memory, place.offset);
        // Slots lie in the memory.
        let bytes = self.data.slice(place.offset, span.length as usize);
        let bytes = bytes.map_err(|_| failure::ended("outside of its memory"))?;
        let memory = self.engine.port_mut().register_memory(queue_pair, &bytes, access).map_err(failure::memory)?;
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.memory = Some(memory);
        }
        Ok(memory.key)
    }

    fn deregister_memory(&mut self, slot: u32) -> Result<(), Error> {
        match self.slots.get_mut(slot).and_then(|slot| slot.memory.take()) {
            Some(memory) => self.engine.port_mut().deregister_memory(memory).map_err(failure::memory),
            None => Ok(()),
        }
    }

    /// Keys of a batch made and killed by system calls, all of them now.
    fn register_memories(&mut self, place: &Place, slot: u32, most: u64) -> Result<u64, Error> {
        let keys = u64::from(self.plan.parameters.batch).min(most);
        self.begins_now(slot);
        let start = self.slots.get(slot).map_or(self.time, |slot| slot.start);
        for _ in 0..keys {
            self.register_memory(place, slot)?;
            self.memories.extend(self.slots.get_mut(slot).and_then(|slot| slot.memory.take()));
        }
        while let Some(memory) = self.memories.pop() {
            self.engine.port_mut().deregister_memory(memory).map_err(failure::memory)?;
        }
        self.read_clock();
        self.count(start, keys);
        self.free.rotate_left(1);
        Ok(keys)
    }

    fn begin_batch(&mut self, place: &Place, slot: u32, most: u64) -> Result<u64, Error> {
        self.begins_now(slot);
        let (batch, access) = (self.plan.parameters.batch, self.access());
        let chunk = Chunk { access, segments: &self.pieces[place.pieces.clone()] };
        let first = slot as usize * usize::from(batch);
        let mut keys = 0;
        for place_of_key in &mut self.keys[first..first + usize::from(batch)] {
            if u64::from(keys) == most {
                break;
            }
            match self.engine.register_now(place.connection, &chunk, slot.into(), &mut self.slots) {
                Ok(handle) => *place_of_key = Some(handle),
                Err(SubmitError::NoSlot | SubmitError::NotConnected) => break,
                Err(SubmitError::TooManyRegistrations) => return Err(self.beyond_a_key()),
                Err(error) => return Err(error.into()),
            }
            keys += 1;
        }
        if let Some(slot) = self.slots.get_mut(slot) {
            (slot.keys, slot.left) = (keys, keys);
        }
        Ok(keys.into())
    }

    pub(super) fn registered(&mut self, _: RequestHandle, cookie: u64, grant: Grant) -> Result<(), Error> {
        if Self::is_of_link(cookie) {
            self.key_made(cookie, grant);
            return Ok(());
        }
        let slot = cookie as u32;
        let Some(found) = self.slots.get_mut(slot) else { return Ok(()) };
        found.left = found.left.saturating_sub(1);
        if found.left > 0 {
            return Ok(());
        }
        // All are valid: all are killed, by one chain.
        found.left = found.keys;
        let first = slot as usize * usize::from(self.plan.parameters.batch);
        let keys = usize::from(found.keys);
        for key in self.keys[first..first + keys].iter_mut().filter_map(Option::take) {
            self.engine.cancel(key).map_err(|_| failure::ended("a key that was dead already"))?;
        }
        Ok(())
    }

    fn key_of_batch_died(&mut self, slot: u32) {
        self.read_clock_for_keys();
        let Some(found) = self.slots.get_mut(slot) else { return };
        found.left = found.left.saturating_sub(1);
        let (left, start) = (found.left, found.start);
        self.count(start, 1);
        if left == 0 {
            self.free_slot(slot);
        }
    }
}
