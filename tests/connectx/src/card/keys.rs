//! Memory keys: what each gives access to.

use super::{
    context::{MemoryKey, Refusal},
    wqe::{Change, Element, Rights},
};
use std::collections::BTreeMap;

/// A key that no queue pair is the only one to use.
const ANY_QUEUE_PAIR: u32 = 0x00ff_ffff;

/// Entries of a window's list: one, and what it is padded with.
const WINDOW_ENTRIES: u32 = 4;

/// `IBV_ACCESS_*`.
mod access {
    pub(super) const LOCAL_WRITE: u32 = 1;
    pub(super) const REMOTE_WRITE: u32 = 1 << 1;
    pub(super) const REMOTE_READ: u32 = 1 << 2;
}

/// What an access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// The card reads for its own queue pair.
    LocalRead,
    /// The card writes for its own queue pair.
    LocalWrite,
    /// The peer reads.
    RemoteRead,
    /// The peer writes.
    RemoteWrite,
}

/// Who asks for an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accessor {
    pub(super) domain: u32,
    pub(super) queue_pair: u32,
}

/// Memory of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// A key's misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denied;

#[derive(Clone, Debug)]
struct Key {
    domain: u32,
    low_byte: u8,
    free: bool,
    queue_pair: u32,
    rights: Rights,
    /// The first address that it is used with.
    start: u64,
    length: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Memory, where its first byte really is.
    Region { address: u64 },
    /// A list with room for so many entries.
    Indirect { room: u32, may_be_invalidated: bool, entries: Vec<Element> },
}

/// All keys, by their index.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: BTreeMap<u32, Key>,
    last: u32,
}

impl Keys {
    /// Makes one. It has the full 32 bits.
    pub(super) fn create(&mut self, wanted: MemoryKey, low_byte: u8) -> u32 {
        self.last += 1;
        let indirect = |domain, room, may_be_invalidated| Key {
            domain,
            low_byte,
            free: true,
            queue_pair: ANY_QUEUE_PAIR,
            rights: Rights::default(),
            start: 0,
            length: 0,
            what: What::Indirect { room, may_be_invalidated, entries: Vec::new() },
        };
        let key = match wanted {
            MemoryKey::Region { domain, address, length, access, zero_based } => Key {
                domain,
                low_byte,
                free: false,
                queue_pair: ANY_QUEUE_PAIR,
                rights: Rights {
                    remote_read: access & access::REMOTE_READ != 0,
                    remote_write: access & access::REMOTE_WRITE != 0,
                    local_write: access & access::LOCAL_WRITE != 0,
                },
                start: if zero_based { 0 } else { address },
                length,
                what: What::Region { address },
            },
            MemoryKey::Window { domain } => indirect(domain, WINDOW_ENTRIES, true),
            MemoryKey::List { domain, entries, remote_invalidation } => indirect(domain, entries, remote_invalidation),
        };
        self.keys.insert(self.last, key);
        self.last << 8 | u32::from(low_byte)
    }

    /// Destroys it, whatever refers to it.
    pub(super) fn destroy(&mut self, key: u32) -> Result<(), Refusal> {
        self.keys.remove(&(key >> 8)).map(|_| ()).ok_or(Refusal::Unknown)
    }

    /// What an access by a key reaches.
    pub(super) fn translate(
        &self,
        who: Accessor,
        full: u32,
        address: u64,
        bytes: u64,
        right: Right,
    ) -> Result<Vec<Range>, Denied> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let key = self.keys.get(&(full >> 8)).ok_or(Denied)?;
        let has_right = match right {
            Right::LocalRead => true,
            Right::LocalWrite => key.rights.local_write,
            Right::RemoteRead => key.rights.remote_read,
            Right::RemoteWrite => key.rights.remote_write,
        };
        let is_his =
            key.domain == who.domain && matches!(key.queue_pair, ANY_QUEUE_PAIR) | (key.queue_pair == who.queue_pair);
        if key.free || key.low_byte != full as u8 || !has_right || !is_his {
            return Err(Denied);
        }
        let offset = address.checked_sub(key.start).ok_or(Denied)?;
        if offset.checked_add(bytes).is_none_or(|end| end > key.length) {
            return Err(Denied);
        }
        match &key.what {
            What::Region { address } => Ok(vec![Range { address: address + offset, bytes }]),
            What::Indirect { entries, .. } => self.through(who, entries, offset, bytes, right),
        }
    }

    /// What a part of a list reaches: what the list's own key permits is permitted, as far as its memory's keys do for us.
    fn through(
        &self,
        who: Accessor,
        entries: &[Element],
        mut offset: u64,
        mut bytes: u64,
        right: Right,
    ) -> Result<Vec<Range>, Denied> {
        let mut found = Vec::new();
        for entry in entries {
            let length = u64::from(entry.bytes());
            if offset >= length {
                offset -= length;
                continue;
            }
            let part = bytes.min(length - offset);
            let below = match right {
                Right::RemoteWrite | Right::LocalWrite => Right::LocalWrite,
                Right::RemoteRead | Right::LocalRead => Right::LocalRead,
            };
            let is_list = matches!(self.keys.get(&(entry.key() >> 8)), Some(Key { what: What::Indirect { .. }, .. }));
            if is_list {
                return Err(Denied);
            }
            found.extend(self.translate(who, entry.key(), entry.address().wrapping_add(offset), part, below)?);
            offset = 0;
            bytes -= part;
            if bytes == 0 {
                return Ok(found);
            }
        }
        Err(Denied)
    }

    /// A work request of a queue pair changes a key.
    pub(super) fn change(&mut self, who: Accessor, full: u32, change: &Change) -> Result<(), Denied> {
        let key = self.keys.get_mut(&(full >> 8)).filter(|key| key.domain == who.domain).ok_or(Denied)?;
        let What::Indirect { room, entries, .. } = &mut key.what else { return Err(Denied) };
        let is_his = key.queue_pair == ANY_QUEUE_PAIR || key.queue_pair == who.queue_pair;
        if change.check_free && !key.free || change.check_queue_pair && !is_his {
            return Err(Denied);
        }
        if let Some(list) = &change.list {
            if list.len() > *room as usize {
                return Err(Denied);
            }
            entries.clone_from(list);
        }
        key.free = change.free.unwrap_or(key.free);
        key.low_byte = change.low_byte.unwrap_or(key.low_byte);
        key.queue_pair = change.queue_pair.unwrap_or(key.queue_pair);
        key.rights = change.access.unwrap_or(key.rights);
        key.start = change.start.unwrap_or(key.start);
        key.length = change.length.unwrap_or(key.length);
        Ok(())
    }

    /// A peer's SEND_WITH_INV ends a key.
    pub(super) fn invalidate(&mut self, who: Accessor, full: u32) -> Result<(), Denied> {
        let key = self.keys.get_mut(&(full >> 8)).filter(|key| key.domain == who.domain).ok_or(Denied)?;
        let is_his = key.queue_pair == ANY_QUEUE_PAIR || key.queue_pair == who.queue_pair;
        let may_be = matches!(key.what, What::Indirect { may_be_invalidated: true, .. });
        if key.free || key.low_byte != full as u8 || !is_his || !may_be {
            return Err(Denied);
        }
        key.free = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
