//! The usual list of segments: equal pieces of one memory that one registration covers, gathered in one pass.
//!
//! Whatever else a list may be (several memories, odd lengths, more than one registration, mistakes) is for `resolve` and
//! `gather`, which say why a list is refused; here it is merely not the usual one.

use crate::{
    gather::{Limits, Segment, Shape},
    provider::{BaseId, ScatterElement},
    reach::Reach,
};
use frwr_mempool::slab::Table;

/// Segments per step of the loops, which the compiler keeps rolled otherwise.
const UNROLLED: usize = 8;
/// The same where each is copied as well: up to so many the compiler keeps both halves of a segment in one vector register.
const COPIED: usize = 6;

/// What a registration of the list covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Of the first byte.
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) base: BaseId,
    /// Elements of the table that it takes.
    pub(super) elements: u32,
}

/// Fills the front of `table` with the elements of `segments`. `None`, with anything in the table, where they are not the usual
/// list: the same piece of one memory again and again, the last one perhaps shorter, as the device's lists take them. `writes`: to have
/// them written.
#[inline]
pub(super) fn gather_run(
    reach: &Table<Reach>,
    limits: &Limits,
    segments: &[Segment],
    writes: bool,
    table: &mut [ScatterElement],
) -> Option<Run> {
    let (last, equal) = segments.split_last()?;
    let first = equal.first()?;
    let reach = reach.get(usize::from(first.memory.place()))?;
    let length = first.length;
    // Where there are several, each is short enough for a registration wherever it begins.
    if !reach.covers(first, writes) || last.length == 0 || last.length > length || last.memory != first.memory {
        return None;
    }
    // Both factors are 32 bit.
    let bytes = u64::from(length) * equal.len() as u64 + u64::from(last.length);
    let bytes = limits.bytes_of(bytes)?;
    let elements = match limits.shape() {
        Shape::Range => merge(reach, segments, bytes, table)?,
        Shape::Pieces { page_size } => {
            if (page_size != 0 && length != page_size) || !limits.holds(segments.len()) {
                return None;
            }
            let places = table.get_mut(..segments.len())?;
            let offsets = copy(reach, equal, places)?;
            let fits = last.offset <= reach.bytes.checked_sub(last.length.into())?;
            let place = places.last_mut().filter(|_| fits)?;
            *place = reach.element(last);
            if (offsets | last.offset | reach.start) & u64::from(page_size.saturating_sub(1)) != 0 {
                return None;
            }
            // At most the depth of a list, which is 32 bit.
            segments.len() as u32
        }
    };
    Some(Run { address: reach.start.wrapping_add(first.offset), bytes, base: reach.base, elements })
}

/// Adjacent segments become one element.
#[inline]
fn merge(reach: &Reach, segments: &[Segment], bytes: u32, table: &mut [ScatterElement]) -> Option<u32> {
    let (last, equal) = segments.split_last()?;
    let Segment { memory, offset, length } = *equal.first()?;
    if offset > reach.bytes.checked_sub(bytes.into())? {
        return None;
    }
    let kind = Segment { memory, offset, length }.kind();
    // Ends inside the memory, as was just seen.
    let mut expected = offset;
    let (blocks, rest) = equal.as_chunks::<UNROLLED>();
    for block in blocks {
        for segment in block {
            if segment.offset != expected || segment.kind() != kind {
                return None;
            }
            expected += u64::from(length);
        }
    }
    for segment in rest {
        if segment.offset != expected || segment.kind() != kind {
            return None;
        }
        expected += u64::from(length);
    }
    if last.offset != expected {
        return None;
    }
    *table.first_mut()? = ScatterElement { address: reach.start.wrapping_add(offset), length: bytes, lkey: reach.lkey };
    Some(1)
}

/// Copies equal segments; returns all bits that any of their offsets has.
///
/// A segment and its element are two numbers each, and what is done with both is the same, so that a vector unit does it at once:
/// what is expected of offset and kind is taken away, what is left noted, and what the device is told added. Nothing branches. No
/// offset is larger than the bits of all of them together, so that these usually tell that all lie inside; where they do not, as
/// in a memory whose length is no power of two, each is looked at once more.
#[inline]
fn copy(reach: &Reach, segments: &[Segment], table: &mut [ScatterElement]) -> Option<u64> {
    let &Segment { memory, length, .. } = segments.first()?;
    // Exactly as many places: both are cut into the same blocks.
    let table = table.get_mut(..segments.len())?;
    let last = reach.bytes.checked_sub(length.into())?;
    let lanes = Lanes {
        expected: [0, Segment { memory, offset: 0, length }.kind()],
        told: [reach.start, u64::from(length) | u64::from(reach.lkey) << 32],
    };
    let [offsets, kinds] = copy_lanes(segments, table, &lanes);
    (kinds == 0 && (offsets <= last || lie_inside(segments, last))).then_some(offsets)
}

/// Whether no offset is larger than the last one that is inside.
#[inline(never)]
fn lie_inside(segments: &[Segment], last: u64) -> bool {
    let (blocks, rest) = segments.as_chunks::<UNROLLED>();
    for block in blocks {
        for segment in block {
            if segment.offset > last {
                return false;
            }
        }
    }
    rest.iter().all(|segment| segment.offset <= last)
}

/// What is done with all offsets, in the first lane, and kinds, in the second. Sums and differences wrap.
struct Lanes {
    /// Of an offset nothing, of a kind all of it.
    expected: [u64; 2],
    /// What the element says beyond the difference.
    told: [u64; 2],
}

/// Makes elements of segments. Returns the bits that any of their differences to what is expected has. A function of its own that finds its numbers in memory, so that the compiler cannot see through them and do with each lane what is best for
/// it alone.
#[inline(never)]
fn copy_lanes(segments: &[Segment], table: &mut [ScatterElement], lanes: &Lanes) -> [u64; 2] {
    let Lanes { expected, told } = *lanes;
    let mut any = [0; 2];
    let mut element = |segment: &Segment| {
        let [offset, kind] = [segment.offset.wrapping_sub(expected[0]), segment.kind().wrapping_sub(expected[1])];
        any[0] |= offset;
        any[1] |= kind;
        let [address, kind] = [offset.wrapping_add(told[0]), kind.wrapping_add(told[1])];
        ScatterElement { address, length: kind as u32, lkey: (kind >> 32) as u32 }
    };
    let (blocks, rest) = segments.as_chunks::<COPIED>();
    let (block_places, rest_places) = table.as_chunks_mut::<COPIED>();
    for (block, places) in blocks.iter().zip(block_places) {
        for (segment, place) in block.iter().zip(places) {
            *place = element(segment);
        }
    }
    for (segment, place) in rest.iter().zip(rest_places) {
        *place = element(segment);
    }
    any
}

#[cfg(test)]
mod tests {
    use super::{copy, merge};
    use crate::{
        gather::{MemoryId, Segment},
        link::BaseKey,
        provider::{BaseId, ScatterElement},
        reach::Reach,
    };

    const START: u64 = 0x10_0000;

    /// Of 200 pages.
    fn usual() -> Reach {
        reach(START, 200 * 4096, 7)
    }

    fn reach(start: u64, bytes: u64, lkey: u32) -> Reach {
        Reach::at(MemoryId(1), [start, bytes], true, BaseKey { base: BaseId(3), lkey }, u32::MAX)
    }

    /// Longer than two blocks of either loop.
    const MOST: u64 = 19;

    fn pages(count: u64, stride: u64) -> Vec<Segment> {
        (0..count).map(|at| Segment { memory: MemoryId(1), offset: at * stride * 4096, length: 4096 }).collect()
    }

    /// Ways of spoiling a segment.
    const WAYS: usize = 10;

    /// The list with each segment spoiled in each way, one at a time.
    fn spoiled(list: &[Segment]) -> impl Iterator<Item = Vec<Segment>> {
        let ways: [fn(&mut Segment); WAYS] = [
            |segment| segment.offset = 200 * 4096 - 4095,
            |segment| segment.offset = 200 * 4096,
            // Negative as signed numbers, near zero and far from it.
            |segment| segment.offset = u64::MAX - 4095,
            |segment| segment.offset = 1 << 63,
            |segment| segment.offset = (1 << 63) + 199 * 4096,
            |segment| segment.offset = (1 << 63) + 200 * 4096,
            |segment| segment.length = 4097,
            |segment| segment.length = 0,
            |segment| segment.length = 4095,
            |segment| segment.memory = MemoryId(2),
        ];
        let places = (0..list.len()).flat_map(move |at| ways.map(|spoil| (at, spoil)));
        places.map(|(at, spoil)| {
            let mut list = list.to_vec();
            spoil(&mut list[at]);
            list
        })
    }

    #[test]
    fn i18_every_segment_of_a_list_is_copied_and_checked_wherever_blocks_end() {
        for count in 1..=MOST {
            let list = pages(count, 3);
            // More room than segments: the rest stays as it is.
            let mut table = vec![ScatterElement::default(); count as usize + 5];
            assert!(copy(&usual(), &list, &mut table).is_some());
            for (at, element) in table.iter().enumerate() {
                let expected = match list.get(at) {
                    Some(segment) => ScatterElement { address: 0x10_0000 + segment.offset, length: 4096, lkey: 7 },
                    None => ScatterElement::default(),
                };
                assert_eq!(*element, expected, "{at} of {count}");
            }
            for list in spoiled(&list).skip(WAYS) {
                assert_eq!(copy(&usual(), &list, &mut table), None, "{list:?}");
            }
            assert_eq!(copy(&usual(), &list, &mut table[..count as usize - 1]), None, "too little room");
        }
    }

    #[test]
    fn i18_a_segment_at_the_very_end_of_its_memory_is_copied_and_one_byte_behind_it_is_not() {
        // With the bits of this one, the last offset's are too large in the first memory and the last, although both lie inside.
        let other = 57 * 4096;
        let power_of_two = reach(START, 256 * 4096, 7);
        let half = reach(0, (1 << 63) + 4095, 7);
        let most = reach(0, u64::MAX, 7);
        let ends = [199 * 4096, 255 * 4096, (1 << 63) - 1, u64::MAX - 4096];
        for (reach, end) in [usual(), power_of_two, half, most].into_iter().zip(ends) {
            for at in 1..=MOST as usize {
                let mut list = pages(MOST + 1, 0);
                let mut table = vec![ScatterElement::default(); list.len()];
                list[at].offset = end;
                list[at - 1].offset = other;
                assert_eq!(copy(&reach, &list, &mut table), Some(end | other), "{at}");
                assert_eq!([table[at - 1].address, table[at].address], [other, end].map(|offset| reach.start + offset));
                list[at].offset = end + 1;
                assert_eq!(copy(&reach, &list, &mut table), None, "{at}");
            }
        }
        let list = pages(MOST, 0);
        let mut table = vec![ScatterElement::default(); list.len()];
        assert_eq!(copy(&reach(START, 4095, 7), &list, &mut table), None);
    }

    #[test]
    fn i18_the_largest_kinds_do_not_spill_into_addresses() {
        let reach = reach(START, 1 << 40, u32::MAX);
        let list = [Segment { memory: MemoryId(u32::MAX), offset: 5, length: u32::MAX }; 7];
        let mut table = [ScatterElement::default(); 7];
        assert_eq!(copy(&reach, &list, &mut table), Some(5));
        assert_eq!(table, [ScatterElement { address: 0x10_0005, length: u32::MAX, lkey: u32::MAX }; 7]);
    }

    #[test]
    fn i18_adjacent_segments_become_one_and_nothing_else_does() {
        for count in 2..=MOST {
            let list = pages(count, 1);
            let bytes = count as u32 * 4096;
            let mut table = [ScatterElement::default(); 2];
            assert_eq!(merge(&usual(), &list, bytes, &mut table), Some(1));
            assert_eq!(
                table,
                [ScatterElement { address: 0x10_0000, length: bytes, lkey: 7 }, ScatterElement::default()]
            );
            // The last one's memory and length are looked at before.
            for list in spoiled(&list).skip(WAYS).take(WAYS * (count as usize - 2)) {
                assert_eq!(merge(&usual(), &list, bytes, &mut table), None, "{list:?}");
            }
            let mut moved = list.clone();
            moved[count as usize - 1].offset += 4096;
            assert_eq!(merge(&usual(), &moved, bytes, &mut table), None);
            let mut outside = list;
            outside.iter_mut().for_each(|segment| segment.offset += 199 * 4096);
            assert_eq!(merge(&usual(), &outside, bytes, &mut table), None);
        }
    }
}
