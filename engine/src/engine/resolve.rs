//! From a caller's segments to addresses and elements.

use super::SubmitError;
use crate::{
    connection::Reach,
    gather::{GatherError, Limits, Resolved, Segment},
    provider::ScatterElement,
};

/// Notes what a registration covers, and in how many elements; most cover one. Depth counts entries of the device's list, and
/// several segments may share one where they continue one another, in a range or in a page: where there are more segments than
/// elements, those become one.
#[inline]
pub(super) fn copy_elements(table: &mut [ScatterElement], covered: &[Resolved]) -> u32 {
    if let ([place, ..], [only]) = (&mut *table, covered) {
        *place = only.element;
        return 1;
    }
    if covered.len() <= table.len() {
        for (place, resolved) in table.iter_mut().zip(covered) {
            *place = resolved.element;
        }
        return covered.len() as u32;
    }
    join_elements(table, covered)
}

#[cold]
fn join_elements(table: &mut [ScatterElement], covered: &[Resolved]) -> u32 {
    let (mut count, mut end) = (0, None);
    for Resolved { element, .. } in covered {
        match table.get_mut(..count).and_then(<[_]>::last_mut) {
            Some(last) if end == Some(element.address) && last.lkey == element.lkey => last.length += element.length,
            // What does not continue anything takes an entry of its own, so that there is a place for it.
            _ => {
                table[count] = *element;
                count += 1;
            }
        }
        end = element.address.checked_add(element.length.into());
    }
    count as u32
}

/// Fills `resolved` with the addresses of segments, cut where one registration ends. `writes`: to have them written.
#[inline]
pub(super) fn resolve(
    reach: &[Reach],
    gather: &Limits,
    segments: &[Segment],
    writes: bool,
    resolved: &mut Vec<Resolved>,
) -> Result<(), SubmitError> {
    for segment in segments {
        let whole = locate(reach, segment, writes)?;
        if gather.covers(&whole.element) && resolved.len() < resolved.capacity() {
            resolved.push(whole);
        } else {
            cut_up(gather, whole, resolved)?;
        }
    }
    Ok(())
}

/// The address of a segment that lies in a memory of this connection (I18).
#[inline(always)]
pub(super) fn locate(reach: &[Reach], segment: &Segment, writes: bool) -> Result<Resolved, SubmitError> {
    let reach = reach.get(segment.memory.0 as usize).ok_or(SubmitError::UnknownMemory)?;
    let length = u64::from(segment.length);
    // Where the difference would be negative no offset is small enough.
    if length == 0 || length > reach.bytes || segment.offset > reach.bytes - length {
        return Err(misplaced(segment, reach));
    }
    reach.check_write(writes)?;
    // The reach of a memory does not wrap around.
    let address = reach.start.wrapping_add(segment.offset);
    let element = ScatterElement { address, length: segment.length, lkey: reach.lkey };
    Ok(Resolved { element, base: reach.base })
}

/// [`locate`] of a segment that one registration covers wherever it begins; `None` for every other one, and for those that
/// `locate` refuses.
#[inline(always)]
pub(super) fn locate_whole(reach: &[Reach], segment: &Segment, writes: bool) -> Option<Resolved> {
    whole(reach.get(segment.memory.0 as usize)?, segment, writes)
}

#[inline(always)]
fn whole(reach: &Reach, segment: &Segment, writes: bool) -> Option<Resolved> {
    // An empty one becomes longer than any.
    let longest = reach.longest(writes);
    if segment.length.wrapping_sub(1) >= longest || segment.offset > reach.bytes - u64::from(segment.length) {
        return None;
    }
    // As above.
    let address = reach.start.wrapping_add(segment.offset);
    let element = ScatterElement { address, length: segment.length, lkey: reach.lkey };
    Some(Resolved { element, base: reach.base })
}

#[cold]
fn misplaced(segment: &Segment, reach: &Reach) -> SubmitError {
    match (reach.bytes, segment.length) {
        // Without a base registration on this connection: there is none of an empty memory.
        (0, _) => SubmitError::UnknownMemory,
        (_, 0) => GatherError::EmptySegment.into(),
        _ => GatherError::OutOfBounds.into(),
    }
}

/// The slow way: a segment that takes more than one registration.
#[cold]
fn cut_up(gather: &Limits, whole: Resolved, resolved: &mut Vec<Resolved>) -> Result<(), SubmitError> {
    let mut rest = Some(whole);
    while let Some(part) = rest {
        let (front, behind) = gather.cut(part)?;
        if resolved.len() == resolved.capacity() {
            return Err(SubmitError::TooManyRegistrations);
        }
        resolved.push(front);
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Reach, whole};
    use crate::{
        gather::{GatherRules, Limits, MemoryId, Segment},
        provider::{BaseId, Contiguity},
    };

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
                let longest = bytes.min(limits.anywhere().into()) as u32;
                let reach = Reach { start: 4096, bytes, base: BaseId(3), lkey: 7, longest: [longest, 0] };
                for length in [0, 1, 2, 4095, 4096, 4097, 5000, 5001, 12_288, 12_289, u32::MAX] {
                    let ends =
                        [0, bytes].map(|end: u64| [end.saturating_sub(length.into()), end, end.saturating_add(1)]);
                    for offset in [0, 1, 4096, u64::MAX].into_iter().chain(ends.into_iter().flatten()) {
                        let segment = Segment { memory: MemoryId(0), offset, length };
                        let resolved = segment.resolve(reach.start, bytes, reach.base, reach.lkey).ok();
                        let expected = resolved.filter(|_| length <= limits.anywhere());
                        assert_eq!(whole(&reach, &segment, false), expected, "{segment:?} {reach:?} {contiguity:?}");
                        assert_eq!(whole(&reach, &segment, true), None, "{segment:?} {reach:?}: read-only");
                    }
                }
            }
        }
    }
}
