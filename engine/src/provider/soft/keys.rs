//! One port's key table: what can be registered by work request, and what a peer reaches through a live key.

use super::bases::{Base, BaseTable, index_of};
use super::profile::Rules;
use super::register_checks;
use super::registration::{Asker, KEY_BYTE, Live, Piece, REMOTE_KEY_BIT, Registration};
use crate::provider::{
    Access, Capabilities, KeyScope, QueuePairId, RegistrationFields, RegistrationId, ScatterElement,
};
use frwr_mempool::DeviceMemory;

/// Why an invalidation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidateError {
    /// Not the current key of a live registration that the asker may invalidate.
    Refused,
    /// The imitated device takes its host down.
    Crash,
}

/// A key that peers can use now, as the device's own table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenKey {
    /// The key.
    pub key: u32,
    /// The queue pair that it was registered on.
    pub queue_pair: QueuePairId,
    /// What peers may do.
    pub access: Access,
    /// The virtual address and length of each range that they reach, in their order.
    pub ranges: Vec<(u64, u64)>,
}

/// A refused remote access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denied;

/// All registrations of one port.
#[derive(Debug)]
pub(super) struct KeyTable {
    entries: Vec<Option<Registration>>,
    remote_bytes: u64,
    capabilities: Capabilities,
    rules: Rules,
}

impl KeyTable {
    pub(super) fn new(capabilities: Capabilities, rules: Rules) -> Self {
        Self { entries: Vec::new(), remote_bytes: 0, capabilities, rules }
    }

    /// Bytes of live registrations; each has a remote right.
    pub(super) fn remote_bytes(&self) -> u64 {
        self.remote_bytes
    }

    pub(super) fn insert(&mut self, registration: Registration) {
        let index = registration.object.0 as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(registration);
    }

    /// Destroys an object; a live key dies with it.
    pub(super) fn remove(&mut self, object: RegistrationId, bases: &mut BaseTable) {
        self.kill(object, bases);
        if let Some(slot) = self.entries.get_mut(object.0 as usize) {
            *slot = None;
        }
    }

    /// Whether a queue pair still has a live registration.
    pub(super) fn is_bound(&self, queue_pair: QueuePairId) -> bool {
        self.entries.iter().flatten().any(|entry| entry.live.is_some_and(|live| live.queue_pair == queue_pair))
    }

    fn by_key(&self, key: u32) -> Option<&Registration> {
        let index = index_of(key & !REMOTE_KEY_BIT) as usize;
        if key & REMOTE_KEY_BIT == 0 { None } else { self.entries.get(index)?.as_ref() }
    }

    /// What peers may reach now.
    pub(super) fn open<'a>(&'a self, bases: &'a BaseTable) -> impl Iterator<Item = OpenKey> + 'a {
        self.entries.iter().flatten().filter_map(|entry| {
            let Live { queue_pair, access, .. } = entry.live?;
            let range = |piece: &Piece| Some((bases.get(piece.base)?.address_of(piece.offset), piece.length));
            Some(OpenKey {
                key: entry.key,
                queue_pair,
                access,
                ranges: entry.pieces.iter().filter_map(range).collect(),
            })
        })
    }

    /// Executes a registration. False where the device refuses it.
    pub(super) fn register(
        &mut self,
        fields: &RegistrationFields,
        elements: &[ScatterElement],
        asker: Asker,
        bases: &mut BaseTable,
    ) -> bool {
        let Some(Some(entry)) = self.entries.get(fields.object.0 as usize) else { return false };
        if !register_checks::is_acceptable(&self.capabilities, &self.rules, entry, fields, elements, asker, bases) {
            return false;
        }
        self.kill(fields.object, bases);
        let Some(Some(entry)) = self.entries.get_mut(fields.object.0 as usize) else { return false };
        let mut start = 0;
        for element in elements {
            let base_index = index_of(element.lkey);
            let Some(base) = bases.get_mut(base_index) else { continue };
            let length = u64::from(element.length);
            let Some(offset) = base.offset_of(element.address, length) else { continue };
            start += length;
            match entry.pieces.last_mut() {
                Some(last) if last.base == base_index && last.offset + last.length == offset => last.length += length,
                _ => {
                    base.covers += 1;
                    entry.pieces.push(Piece { start: start - length, base: base_index, offset, length });
                }
            }
        }
        entry.key = (entry.key & !KEY_BYTE) | (fields.key & KEY_BYTE);
        entry.key_was_used = true;
        entry.live =
            Some(Live { queue_pair: asker.queue_pair, access: fields.access, iova: fields.iova, length: start });
        self.remote_bytes += start;
        true
    }

    /// Ends a registration whatever its key; nothing happens where it is not live.
    pub(super) fn kill(&mut self, object: RegistrationId, bases: &mut BaseTable) {
        let Some(Some(entry)) = self.entries.get_mut(object.0 as usize) else { return };
        let Some(live) = entry.live.take() else { return };
        self.remote_bytes -= live.length;
        for piece in entry.pieces.drain(..) {
            if let Some(base) = bases.get_mut(piece.base) {
                base.covers = base.covers.saturating_sub(1);
            }
        }
    }

    /// Ends a registration with this very key, as if it had never been executed. The object keeps the key.
    pub(super) fn roll_back(&mut self, fields: &RegistrationFields, bases: &mut BaseTable) {
        if self.by_key(fields.key).is_some_and(|entry| entry.key == fields.key && entry.object == fields.object) {
            self.kill(fields.object, bases);
        }
    }

    /// Executes an invalidation, local or remote.
    pub(super) fn invalidate(&mut self, key: u32, asker: Asker, bases: &mut BaseTable) -> Result<(), InvalidateError> {
        let entry = self.by_key(key).filter(|entry| entry.key == key).ok_or(InvalidateError::Refused)?;
        let object = entry.object;
        let Some(live) = entry.live else {
            let crash = self.capabilities.quirks.crashes_on_double_invalidate;
            return Err(if crash { InvalidateError::Crash } else { InvalidateError::Refused });
        };
        if self.rules.checks_invalidator && !self.reaches(entry, &live, asker) {
            return Err(InvalidateError::Refused);
        }
        self.kill(object, bases);
        Ok(())
    }

    fn reaches(&self, entry: &Registration, live: &Live, asker: Asker) -> bool {
        entry.domain == asker.domain
            && (self.capabilities.key_scope == KeyScope::ProtectionDomain || live.queue_pair == asker.queue_pair)
    }

    /// Checks a remote access of `length` bytes and hands out what it reaches. No byte, no check: as InfiniBand demands.
    pub(super) fn reach<'a>(
        &'a self,
        key: u32,
        address: u64,
        length: u64,
        write: bool,
        asker: Asker,
        bases: &'a BaseTable,
    ) -> Result<Reach<'a>, Denied> {
        if length == 0 {
            return Ok(Reach { target: Target::Nothing, length });
        }
        let entry = self.by_key(key).filter(|entry| entry.key == key).ok_or(Denied)?;
        let live = entry.live.as_ref().ok_or(Denied)?;
        let right = if write { live.access.permits_write() } else { live.access.permits_read() };
        if !right || !self.reaches(entry, live, asker) {
            return Err(Denied);
        }
        let target = match self.loose_base(entry, bases) {
            Some(base) => Target::Base { base, offset: base.offset_of(address, length).ok_or(Denied)? },
            None => {
                let position = offset_in(live, address, length).ok_or(Denied)?;
                Target::Pieces { pieces: &entry.pieces, bases, position }
            }
        };
        Ok(Reach { target, length })
    }

    /// The base registration whose bounds count instead of the registration's own, on devices that are lax.
    fn loose_base<'a>(&self, entry: &Registration, bases: &'a BaseTable) -> Option<&'a Base> {
        if self.capabilities.enforces_bounds { None } else { bases.get(entry.pieces.first()?.base) }
    }
}

/// What a checked remote access reaches. There is no way to memory but through one.
pub(super) struct Reach<'a> {
    target: Target<'a>,
    length: u64,
}

enum Target<'a> {
    Nothing,
    /// Bounds were those of the base registration.
    Base {
        base: &'a Base,
        offset: u64,
    },
    Pieces {
        pieces: &'a [Piece],
        bases: &'a BaseTable,
        /// First byte, counted from the start of the registration.
        position: u64,
    },
}

impl Reach<'_> {
    /// Hands the memory behind the first `length` bytes to `copy`, piece by piece, with the range of the access that each
    /// belongs to. More bytes than were checked are refused.
    pub(super) fn copy(
        &self,
        length: usize,
        mut copy: impl FnMut(&DeviceMemory, usize, core::ops::Range<usize>) -> bool,
    ) -> Result<(), Denied> {
        if length as u64 > self.length {
            return Err(Denied);
        }
        let (pieces, bases, mut position) = match self.target {
            Target::Nothing => return Ok(()),
            Target::Base { base, offset } => {
                return if copy(&base.memory, offset as usize, 0..length) { Ok(()) } else { Err(Denied) };
            }
            Target::Pieces { pieces, bases, position } => (pieces, bases, position),
        };
        let mut done = 0;
        let mut index = pieces.partition_point(|piece| piece.start + piece.length <= position);
        while done < length {
            let piece = pieces.get(index).ok_or(Denied)?;
            let within = position - piece.start;
            let run = (piece.length - within).min((length - done) as u64) as usize;
            let base = bases.get(piece.base).ok_or(Denied)?;
            if !copy(&base.memory, (piece.offset + within) as usize, done..done + run) {
                return Err(Denied);
            }
            done += run;
            position += run as u64;
            index += 1;
        }
        Ok(())
    }
}

/// Where a range begins in what a live key opens; `None` where it does not lie inside.
fn offset_in(live: &Live, address: u64, length: u64) -> Option<u64> {
    let start = address.checked_sub(live.iova)?;
    let end = start.checked_add(length)?;
    (end <= live.length).then_some(start)
}
