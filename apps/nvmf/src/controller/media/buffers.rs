//! The fixed pool of data buffers of one core, and what of it each namespace has for itself.
//!
//! A disk that hangs keeps what it was given, and would have all buffers after a while. So a part of them is kept for the admin
//! queues, and a part for each namespace that there is; the rest is for whoever comes first.

use crate::storage::are_equal;
use core::ops::Range;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::{Engine, Received, provider::Port};
use frwr_mempool::DeviceMemory;
use frwr_mempool::device_memory::OutOfBounds;

/// What namespaces have for themselves is one in so many of the buffers, in equal parts: little enough that a single busy one
/// has three quarters and its own part, and enough to go on where all the others hang.
const KEPT_SHARE: u32 = 4;
/// The same where there are so many namespaces that their parts would be too small. Where they still are, several share one.
const MOST_KEPT_SHARE: u32 = 2;
/// The smallest part: what one command may need ([`super::super::work::Work::buffers`]).
const LEAST_PART: u32 = 2;

/// The part of what belongs to no namespace.
const ADMIN_PART: u32 = 0;

/// One data buffer in use. Whoever holds it gives it back by [`Buffers::put`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the buffer is lost to the pool until it is put back"]
pub(in super::super) struct Buffer {
    index: u32,
    /// For whom it was taken.
    part: u32,
}

/// Of the buffers, what one namespace has, or several, or the admin queues.
#[derive(Clone, Copy, Debug)]
struct Part {
    held: u32,
    /// Of these many nobody else takes any.
    kept: u32,
}

impl Part {
    /// One more is none of those that are for all.
    fn has_own(self) -> bool {
        self.held < self.kept
    }

    /// Of so many more, those that it takes of what is for all.
    fn beyond(self, more: u32) -> u32 {
        (self.held + more).saturating_sub(self.kept.max(self.held))
    }
}

/// Equal buffers in one memory, the last used first.
#[derive(Debug)]
pub(in super::super) struct Buffers {
    memory: DeviceMemory,
    id: MemoryId,
    bytes: u32,
    count: u32,
    free: Vec<u32>,
    /// The admin queues' first.
    parts: Vec<Part>,
    /// Free ones that are kept for nobody.
    common: u32,
}

impl Buffers {
    /// As many buffers as fit, of which so many are kept for admin queues. `namespaces`: places of those that there may be.
    pub(in super::super) fn new(memory: DeviceMemory, id: MemoryId, bytes: u32, admin: u32, namespaces: usize) -> Self {
        // An index times the size lies in the memory, so it fits; more than u32::MAX buffers are not used.
        let count = u32::try_from(memory.len() / bytes.max(1) as usize).unwrap_or(u32::MAX);
        let others = count.saturating_sub(admin);
        let parts = namespaces.min((others / MOST_KEPT_SHARE / LEAST_PART) as usize).max(1);
        let admin = Part { held: 0, kept: admin.min(count) };
        let parts = core::iter::once(admin).chain((0..parts).map(|_| Part { held: 0, kept: 0 })).collect();
        let common = count - admin.kept;
        Self { memory, id, bytes, count, free: (0..count).rev().collect(), parts, common }
    }

    /// Keeps parts for the namespaces that there are, by their places, of so many places. False where others hold some of what is to be
    /// kept: that is theirs until they put it back, and this is to be called again.
    pub(in super::super) fn share(&mut self, places: usize, is_taken: impl Fn(usize) -> bool) -> bool {
        let kept_for_admin = self.parts.first().map_or(0, |admin| admin.kept);
        let others = self.count.saturating_sub(kept_for_admin);
        let parts = self.parts.len().saturating_sub(1);
        let has_own = |part: usize| (part..places).step_by(parts.max(1)).any(&is_taken);
        // Few enough for 32 bits.
        let sharing = (0..parts).filter(|part| has_own(*part)).count() as u32;
        // One that has nobody beside it needs nothing for itself.
        let kept = if sharing > 1 { (others / KEPT_SHARE / sharing).max(LEAST_PART) } else { 0 };
        let wanted = |part: usize| if has_own(part) { kept } else { 0 };
        let mut namespaces = self.parts.iter_mut().skip(1).enumerate();
        namespaces.by_ref().for_each(|(at, part)| part.kept = part.kept.min(wanted(at)));
        let spoken_for: u32 = self.parts.iter().map(|part| part.kept.max(part.held)).sum();
        self.common = self.count.saturating_sub(spoken_for);
        let mut is_done = true;
        for (at, part) in self.parts.iter_mut().skip(1).enumerate() {
            // Those that it holds are kept for it at no cost.
            let (wanted, at_no_cost) = (wanted(at), part.held.max(part.kept));
            let more = wanted.saturating_sub(at_no_cost).min(self.common);
            part.kept = wanted.min(at_no_cost + more);
            self.common -= more;
            is_done &= part.kept == wanted;
        }
        is_done
    }

    /// The part of a command that is about a namespace, or about none.
    #[inline(always)]
    pub(in super::super) fn part(&self, namespace: Option<usize>) -> u32 {
        let Some(namespace) = namespace else { return ADMIN_PART };
        let parts = self.parts.len() - 1;
        // A division is not for every command, and there are fewer parts than buffers.
        1 + if namespace < parts { namespace } else { namespace % parts } as u32
    }

    /// Parts that there are.
    pub(in super::super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// So many can be taken for a part.
    pub(in super::super) fn has(&self, part: u32, wanted: usize) -> bool {
        // One command wants two at most.
        self.parts.get(part as usize).is_some_and(|part| part.beyond(wanted as u32) <= self.common)
    }

    /// The same without what is for all.
    pub(in super::super) fn has_kept(&self, part: u32, wanted: usize) -> bool {
        self.parts.get(part as usize).is_some_and(|part| part.beyond(wanted as u32) == 0)
    }

    /// All of them.
    pub(in super::super) fn count(&self) -> u32 {
        self.count
    }

    pub(in super::super) fn available(&self) -> usize {
        self.free.len()
    }

    #[inline(always)]
    pub(in super::super) fn take(&mut self, part: u32) -> Option<Buffer> {
        let of = self.parts.get_mut(part as usize)?;
        if !of.has_own() {
            self.common = self.common.checked_sub(1)?;
        }
        of.held += 1;
        // There is one, because those of `common` and those that are kept and not held are all free.
        self.free.pop().map(|index| Buffer { index, part })
    }

    #[inline(always)]
    pub(in super::super) fn put(&mut self, buffer: Buffer) {
        self.free.push(buffer.index);
        if let Some(part) = self.parts.get_mut(buffer.part as usize) {
            part.held -= 1;
            self.common += u32::from(!part.has_own());
        }
    }

    /// The memory of all.
    pub(in super::super) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Where the buffer lies in the memory that storage knows.
    pub(in super::super) fn offset(&self, buffer: &Buffer) -> usize {
        buffer.index as usize * self.bytes as usize
    }

    /// The first `length` bytes for the engine.
    pub(in super::super) fn segment(&self, buffer: &Buffer, length: u32) -> Segment {
        Segment { memory: self.id, offset: self.offset(buffer) as u64, length: length.min(self.bytes) }
    }

    /// So many bytes from `from` on, for the engine.
    pub(in super::super) fn segment_from(&self, buffer: &Buffer, from: u32, length: u32) -> Segment {
        let length = length.min(self.bytes.saturating_sub(from));
        Segment { memory: self.id, offset: self.offset(buffer) as u64 + u64::from(from), length }
    }

    /// Makes the first `length` bytes zeros.
    pub(in super::super) fn clear(&self, buffer: &Buffer, length: usize) -> Result<(), OutOfBounds> {
        self.memory.fill(self.offset(buffer), length, 0)
    }

    pub(in super::super) fn read(&self, buffer: &Buffer, from: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        self.memory.read(self.offset(buffer) + from, into)
    }

    pub(in super::super) fn write(&self, buffer: &Buffer, to: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.memory.write(self.offset(buffer) + to, bytes)
    }

    /// Copies data that came in a capsule to a buffer. Returns how many of its bytes were there.
    pub(in super::super) fn take_from_capsule<P: Port>(
        &self,
        engine: &Engine<P>,
        received: &Received,
        range: Range<u32>,
        buffer: &Buffer,
        to: usize,
    ) -> usize {
        engine.copy_message(received, range.start, range.end - range.start, &self.memory, self.offset(buffer) + to)
    }
}

impl Buffers {
    /// The first `bytes` of both are equal.
    pub(in super::super) fn are_equal(&self, one: &Buffer, other: &Buffer, bytes: usize) -> Result<bool, OutOfBounds> {
        are_equal(&self.memory, self.offset(one), self.offset(other), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frwr_mempool::{PagePolicy, PageSize, Region, RegionOptions};

    fn buffers(count: usize, admin: u32, namespaces: usize) -> Buffers {
        let bytes = count * 4096;
        let mut region = Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain))).unwrap();
        let memory = region.carve(bytes, 4096).unwrap().into_device_memory();
        let mut buffers = Buffers::new(memory, MemoryId(0), 4096, admin, namespaces);
        buffers.share(namespaces, |_| true);
        buffers
    }

    /// All that a part gets, by commands that want so many each.
    fn take_all(buffers: &mut Buffers, part: u32, wanted: usize) -> Vec<Buffer> {
        let mut taken = Vec::new();
        while buffers.has(part, wanted) {
            taken.extend((0..wanted).map(|_| buffers.take(part).unwrap()));
        }
        assert!(wanted > 1 || buffers.take(part).is_none());
        taken
    }

    /// A namespace comes while another one has all buffers: what is kept for it is its own as they come back, and nothing is lost when
    /// it goes.
    #[test]
    fn what_is_kept_for_a_namespace_that_comes_is_given_back_by_the_others() {
        let mut buffers = buffers(40, 3, 4);
        assert!(buffers.share(4, |place| place == 0));
        let (first, second) = (buffers.part(Some(0)), buffers.part(Some(1)));
        let mut held = take_all(&mut buffers, first, 1);
        assert_eq!(held.len(), 37, "nobody is beside it");
        let both = |place: usize| place < 2;
        assert!(!buffers.share(4, both));
        assert!(buffers.take(second).is_none() && !buffers.has(second, 1) && buffers.take(first).is_none());
        for count in 1..=4 {
            buffers.put(held.pop().unwrap());
            assert_eq!(buffers.share(4, both), count == 4);
            assert!(buffers.take(first).is_none(), "they are the other's");
        }
        held.extend(take_all(&mut buffers, second, 1));
        assert_eq!((held.len(), buffers.available()), (37, 3), "those of the admin queues are theirs");
        assert!(buffers.share(4, |place| place == 0));
        held.drain(..).for_each(|buffer| buffers.put(buffer));
        assert_eq!((buffers.available(), take_all(&mut buffers, first, 1).len()), (40, 37));
    }

    #[test]
    fn every_part_has_its_own_whoever_came_before() {
        for (count, admin, namespaces) in [(40, 3, 2), (193, 4, 40), (18, 3, 1), (17, 2, 64), (4, 9, 3), (1000, 17, 7)]
        {
            for last in 0..=namespaces {
                let mut buffers = buffers(count, admin, namespaces);
                let part_of = |buffers: &Buffers, at: usize| buffers.part(at.checked_sub(1));
                let own = part_of(&buffers, last);
                let mut taken = Vec::new();
                for wanted in [2, 1] {
                    for other in (0..=namespaces).filter(|other| *other != last) {
                        let part = part_of(&buffers, other);
                        if part != own {
                            taken.extend(take_all(&mut buffers, part, wanted));
                        }
                    }
                }
                let left = take_all(&mut buffers, own, 1);
                let least =
                    if admin as usize > count || (namespaces == 1 && last > 0) { 0 } else { LEAST_PART as usize };
                assert!(left.len() >= least, "{count} {admin} {namespaces} {last}: {}", left.len());
                taken.into_iter().chain(left).for_each(|buffer| buffers.put(buffer));
                assert_eq!(buffers.available(), count);
                // All that is for all, and its own.
                let all = take_all(&mut buffers, own, 1);
                let kept: u32 = buffers.parts.iter().map(|part| part.kept).sum();
                assert_eq!(all.len() as u32, count as u32 - kept + buffers.parts[own as usize].kept);
            }
        }
    }
}
