//! The usual list of segments: equal pieces of one memory that one registration covers, gathered in one pass.
//!
//! Whatever else a list may be (several memories, odd lengths, more than one registration, mistakes) is for `resolve` and
//! `gather`, which say why a list is refused; here it is merely not the usual one.

use crate::{
    connection::{Connection, Reach},
    gather::{Limits, Segment, Shape},
    provider::{BaseId, ScatterElement},
};

/// Segments per step of the loops, which the compiler keeps rolled otherwise.
const UNROLLED: usize = 8;
/// The same where each is copied as well: with more the compiler runs out of registers.
const COPIED: usize = 4;

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
/// list: the same piece of one memory again and again, the last one perhaps shorter, as the device's lists take them.
#[inline]
pub(super) fn gather_run(
    connection: &Connection,
    limits: &Limits,
    segments: &[Segment],
    table: &mut [ScatterElement],
) -> Option<Run> {
    let (last, equal) = segments.split_last()?;
    let first = equal.first()?;
    let reach = connection.reach.get(first.memory.0 as usize)?;
    let length = first.length;
    if length == 0 || last.length == 0 || last.length > length || last.memory != first.memory {
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
            let misplaced = copy(reach, equal, places)?;
            let fits = last.offset <= reach.bytes.checked_sub(last.length.into())?;
            let place = places.last_mut().filter(|_| fits)?;
            *place = element(reach, last);
            if (misplaced | last.offset | reach.start) & u64::from(page_size.saturating_sub(1)) != 0 {
                return None;
            }
            // At most the depth of a list, which is 32 bit.
            segments.len() as u32
        }
    };
    Some(Run { address: reach.start.wrapping_add(first.offset), bytes, base: reach.base, elements })
}

#[inline(always)]
fn element(reach: &Reach, segment: &Segment) -> ScatterElement {
    // The reach of a memory does not wrap around.
    let address = reach.start.wrapping_add(segment.offset);
    ScatterElement { address, length: segment.length, lkey: reach.lkey }
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
#[inline]
fn copy(reach: &Reach, segments: &[Segment], table: &mut [ScatterElement]) -> Option<u64> {
    let first = segments.first()?;
    let (kind, length) = (first.kind(), first.length);
    // Exactly as many places: both are cut into the same blocks.
    let table = table.get_mut(..segments.len())?;
    let limit = reach.bytes.checked_sub(length.into())?;
    let (start, lkey) = (reach.start, reach.lkey);
    let mut bits = 0;
    let (blocks, rest) = segments.as_chunks::<COPIED>();
    let (block_places, rest_places) = table.as_chunks_mut::<COPIED>();
    for (block, places) in blocks.iter().zip(block_places) {
        for (segment, place) in block.iter().zip(places) {
            if segment.offset > limit || segment.kind() != kind {
                return None;
            }
            bits |= segment.offset;
            *place = ScatterElement { address: start.wrapping_add(segment.offset), length, lkey };
        }
    }
    for (segment, place) in rest.iter().zip(rest_places) {
        if segment.offset > limit || segment.kind() != kind {
            return None;
        }
        bits |= segment.offset;
        *place = ScatterElement { address: start.wrapping_add(segment.offset), length, lkey };
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::{copy, merge};
    use crate::{
        connection::Reach,
        gather::{MemoryId, Segment},
        provider::{BaseId, ScatterElement},
    };

    const REACH: Reach = Reach { start: 0x10_0000, bytes: 200 * 4096, base: BaseId(3), lkey: 7 };

    /// Longer than two blocks of either loop.
    const MOST: u64 = 19;

    fn pages(count: u64, stride: u64) -> Vec<Segment> {
        (0..count).map(|at| Segment { memory: MemoryId(1), offset: at * stride * 4096, length: 4096 }).collect()
    }

    /// The list with each segment spoiled in each way, one at a time.
    fn spoiled(list: &[Segment]) -> impl Iterator<Item = Vec<Segment>> {
        let ways: [fn(&mut Segment); 3] = [
            |segment| segment.offset = 200 * 4096 - 4095,
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
            assert!(copy(&REACH, &list, &mut table).is_some());
            for (at, element) in table.iter().enumerate() {
                let expected = match list.get(at) {
                    Some(segment) => ScatterElement { address: 0x10_0000 + segment.offset, length: 4096, lkey: 7 },
                    None => ScatterElement::default(),
                };
                assert_eq!(*element, expected, "{at} of {count}");
            }
            for list in spoiled(&list).skip(3) {
                assert_eq!(copy(&REACH, &list, &mut table), None, "{list:?}");
            }
            assert_eq!(copy(&REACH, &list, &mut table[..count as usize - 1]), None, "too little room");
        }
    }

    #[test]
    fn i18_adjacent_segments_become_one_and_nothing_else_does() {
        for count in 2..=MOST {
            let list = pages(count, 1);
            let bytes = count as u32 * 4096;
            let mut table = [ScatterElement::default(); 2];
            assert_eq!(merge(&REACH, &list, bytes, &mut table), Some(1));
            assert_eq!(
                table,
                [ScatterElement { address: 0x10_0000, length: bytes, lkey: 7 }, ScatterElement::default()]
            );
            // The last one's memory and length are looked at before.
            for list in spoiled(&list).skip(3).take(3 * (count as usize - 2)) {
                assert_eq!(merge(&REACH, &list, bytes, &mut table), None, "{list:?}");
            }
            let mut moved = list.clone();
            moved[count as usize - 1].offset += 4096;
            assert_eq!(merge(&REACH, &moved, bytes, &mut table), None);
            let mut outside = list;
            outside.iter_mut().for_each(|segment| segment.offset += 199 * 4096);
            assert_eq!(merge(&REACH, &outside, bytes, &mut table), None);
        }
    }
}
