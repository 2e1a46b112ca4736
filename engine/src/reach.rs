//! A declared memory as segments of one connection find it: bounds and keys in one place.

use crate::{
    gather::{GatherError, MemoryId, Segment},
    link::{BaseKey, DeclaredMemory},
    provider::{BaseId, ScatterElement},
};
use frwr_mempool::slab::Table;

/// Why a segment cannot be used on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// Its memory is not registered there, or is none.
    UnknownMemory,
    /// It is not acceptable in its memory.
    Segment(GatherError),
}

/// See the module. A cache line, so that its place in a table is a shift away.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Reach {
    /// Address of the first byte.
    pub(crate) start: u64,
    /// Bytes; 0 where the memory has no base registration in the connection's domain, so that no segment lies in it.
    pub(crate) bytes: u64,
    name: MemoryId,
    /// Bytes of the longest segment that lies in it somewhere and that one registration covers wherever it begins: of one that is only
    /// read, and of one that is written, which none is where nobody may write. So the same comparison refuses it.
    covered: [u64; 2],
    /// The same of a segment that no registration has to cover.
    longest: [u64; 2],
    pub(crate) base: BaseId,
    pub(crate) lkey: u32,
}
const _: () = assert!(size_of::<Reach>() == 64, "a cache line");

impl Reach {
    /// Of a memory that cannot be used.
    pub(crate) const NONE: Self =
        Self { start: 0, bytes: 0, name: MemoryId(0), covered: [0; 2], longest: [0; 2], base: BaseId(0), lkey: 0 };

    /// `anywhere`: see [`crate::gather::Limits::anywhere`].
    pub(crate) fn of(name: MemoryId, memory: &DeclaredMemory, key: BaseKey, anywhere: u32) -> Self {
        let (start, bytes) = (memory.bytes.address(), memory.bytes.len() as u64);
        Self::at(name, [start, bytes], memory.access.permits_write(), key, anywhere)
    }

    /// Of a memory by its first address and its bytes.
    pub(crate) fn at(
        name: MemoryId,
        [start, bytes]: [u64; 2],
        permits_write: bool,
        key: BaseKey,
        anywhere: u32,
    ) -> Self {
        // No mapping wraps around; said so here, so that no segment can.
        let bytes = bytes.min(u64::MAX - start);
        let longest = bytes.min(u32::MAX.into());
        let of_both = |longest| [longest, if permits_write { longest } else { 0 }];
        Self {
            start,
            bytes,
            name,
            covered: of_both(longest.min(anywhere.into())),
            longest: of_both(longest),
            base: key.base,
            lkey: key.lkey,
        }
    }

    /// The memory was withdrawn: no segment lies in it any more. Its key still tells what lies there already.
    pub(crate) fn withdraw(&mut self) {
        (self.bytes, self.covered, self.longest) = (0, [0; 2], [0; 2]);
    }

    /// The local key of the memory of this name, where it is, or was, registered for the connection.
    pub(crate) fn key_of(&self, name: MemoryId) -> Option<u32> {
        // Those that never were have the name of the engine's own, which is not withdrawn.
        (self.name == name).then_some(self.lkey)
    }

    /// Whether a segment is of this memory, and one registration covers it wherever it begins; not, whether it lies inside. `writes`: the
    /// device is to write there.
    #[inline(always)]
    pub(crate) fn covers(&self, segment: &Segment, writes: bool) -> bool {
        self.fits(segment, self.covered[usize::from(writes)])
    }

    /// An empty segment becomes longer than any.
    #[inline(always)]
    fn fits(&self, segment: &Segment, longest: u64) -> bool {
        u64::from(segment.length.wrapping_sub(1)) < longest && segment.memory == self.name
    }

    /// Whether a segment that has no more bytes than the memory lies inside.
    #[inline(always)]
    fn holds(&self, segment: &Segment) -> bool {
        segment.offset <= self.bytes - u64::from(segment.length)
    }

    /// The element of a segment that lies inside.
    #[inline(always)]
    pub(crate) fn element(&self, segment: &Segment) -> ScatterElement {
        // It does not wrap around.
        let address = self.start.wrapping_add(segment.offset);
        ScatterElement { address, length: segment.length, lkey: self.lkey }
    }

    /// Why a segment does not lie in it.
    #[cold]
    #[inline(never)]
    fn misplaced(&self, segment: &Segment) -> Misplaced {
        let length = u64::from(segment.length);
        // Without a base registration on this connection: there is none of an empty memory.
        if self.bytes == 0 || segment.memory != self.name {
            Misplaced::UnknownMemory
        } else if length == 0 {
            Misplaced::Segment(GatherError::EmptySegment)
        } else if length > self.bytes || segment.offset > self.bytes - length {
            Misplaced::Segment(GatherError::OutOfBounds)
        } else {
            Misplaced::Segment(GatherError::ReadOnly)
        }
    }
}

/// The memory of this connection that a segment lies in (I18).
///
/// # Errors
/// [`Misplaced`]; [`GatherError::ReadOnly`] where it lies there and the device is to write to it, and may not.
#[inline(always)]
pub(crate) fn locate<'a>(reach: &'a Table<Reach>, segment: &Segment, writes: bool) -> Result<&'a Reach, Misplaced> {
    let reach = reach.get(usize::from(segment.memory.place())).ok_or(Misplaced::UnknownMemory)?;
    if reach.fits(segment, reach.longest[usize::from(writes)]) && reach.holds(segment) {
        Ok(reach)
    } else {
        Err(reach.misplaced(segment))
    }
}

/// [`locate`] of a segment that one registration covers wherever it begins; `None` for every other one, and for those that
/// `locate` refuses.
#[inline(always)]
pub(crate) fn covering<'a>(reach: &'a Table<Reach>, segment: &Segment, writes: bool) -> Option<&'a Reach> {
    let reach = reach.get(usize::from(segment.memory.place()))?;
    (reach.covers(segment, writes) && reach.holds(segment)).then_some(reach)
}

#[cfg(test)]
mod tests {
    use super::{Misplaced, Reach, covering, locate};
    use crate::{
        gather::{GatherError, GatherRules, Limits, MemoryId, Resolved, Segment},
        link::BaseKey,
        provider::{BaseId, Contiguity},
    };
    use frwr_mempool::{
        Region,
        region::{PagePolicy, RegionOptions},
        slab::Table,
    };

    const KEY: BaseKey = BaseKey { base: BaseId(3), lkey: 7 };
    const NAME: MemoryId = MemoryId::of(1, 4);

    /// A memory of so many bytes in the second place.
    fn reach(bytes: u64, permits_write: bool, anywhere: u32) -> Table<Reach> {
        let pages = RegionOptions::new(4096).pages(PagePolicy::Ladder { allow_plain: true });
        let made = vec![Reach::NONE, Reach::at(NAME, [4096, bytes], permits_write, KEY, anywhere)];
        Table::of(&mut Region::map(&pages).unwrap(), made).unwrap()
    }

    fn resolved(reach: &Reach, segment: &Segment) -> Resolved {
        Resolved { element: reach.element(segment), base: reach.base }
    }

    /// What is found at once is what lies in the memory and in one registration, wherever it begins; nothing else is.
    #[test]
    fn i18_a_segment_is_located_at_once_where_it_lies_in_its_memory_and_in_one_registration() {
        let lists = Contiguity::PageList { page_size: 4096 };
        for (contiguity, depth, max_bytes) in [
            (Contiguity::SingleRange, 1, u64::MAX),
            (Contiguity::SingleRange, 1, 5000),
            (lists, 4, u64::MAX),
            (lists, 1, 1 << 20),
        ] {
            let limits = Limits::of(GatherRules { contiguity, depth, max_bytes }).unwrap();
            for bytes in [0, 1, 4096, 12_289, 1 << 32, u64::MAX - 4096] {
                let read_only = reach(bytes, false, limits.anywhere());
                let writable = reach(bytes, true, limits.anywhere());
                for length in [0, 1, 2, 4095, 4096, 4097, 5000, 5001, 12_288, 12_289, u32::MAX] {
                    let ends =
                        [0, bytes].map(|end: u64| [end.saturating_sub(length.into()), end, end.saturating_add(1)]);
                    for offset in [0, 1, 4096, u64::MAX].into_iter().chain(ends.into_iter().flatten()) {
                        let segment = Segment { memory: NAME, offset, length };
                        let inside = segment.resolve(4096, bytes, KEY.base, KEY.lkey).ok();
                        let covered = inside.filter(|_| length <= limits.anywhere());
                        let said = format!("{segment:?} of {bytes} {contiguity:?}");
                        for (table, writes) in [(&read_only, false), (&writable, false), (&writable, true)] {
                            let found = covering(table, &segment, writes);
                            assert_eq!(found.map(|found| resolved(found, &segment)), covered, "{said}");
                            let found = locate(table, &segment, writes).ok();
                            assert_eq!(found.map(|found| resolved(found, &segment)), inside, "{said}");
                        }
                        assert!(covering(&read_only, &segment, true).is_none(), "{said}: read-only");
                        let written = locate(&read_only, &segment, true).err();
                        let is_said = written == Some(Misplaced::Segment(GatherError::ReadOnly));
                        assert_eq!(is_said, inside.is_some(), "{said}: {written:?}");
                    }
                }
            }
        }
    }

    /// Whatever its length says, a segment of another name is none of this memory.
    #[test]
    fn a_segment_is_of_the_memory_that_has_its_whole_name() {
        let found = reach(u64::from(u32::MAX) + 1, true, u32::MAX);
        for name in [MemoryId::of(0, 4), MemoryId::of(1, 3), MemoryId::of(1, 5), MemoryId::of(1, 0), MemoryId(u32::MAX)]
        {
            for length in [0, 1, 2, 4096, u32::MAX - 1, u32::MAX] {
                let segment = Segment { memory: name, offset: 0, length };
                assert_eq!(locate(&found, &segment, false).err(), Some(Misplaced::UnknownMemory), "{segment:?}");
                assert!(covering(&found, &segment, true).is_none(), "{segment:?}");
            }
        }
        let segment = Segment { memory: NAME, offset: 0, length: u32::MAX };
        assert!(locate(&found, &segment, true).is_ok() && covering(&found, &segment, true).is_some());
    }
}
