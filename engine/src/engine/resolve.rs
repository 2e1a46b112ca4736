//! From a caller's segments to addresses and elements.

use super::SubmitError;
use crate::{
    gather::{Limits, Resolved, Segment},
    provider::ScatterElement,
    reach::{Misplaced, Reach, locate},
};
use frwr_mempool::slab::Table;

impl From<Misplaced> for SubmitError {
    fn from(misplaced: Misplaced) -> Self {
        match misplaced {
            Misplaced::UnknownMemory => Self::UnknownMemory,
            Misplaced::Segment(error) => Self::Segment(error),
        }
    }
}

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
    reach: &Table<Reach>,
    gather: &Limits,
    segments: &[Segment],
    writes: bool,
    resolved: &mut Vec<Resolved>,
) -> Result<(), SubmitError> {
    for segment in segments {
        let found = locate(reach, segment, writes)?;
        let whole = Resolved { element: found.element(segment), base: found.base };
        if gather.covers(&whole.element) && resolved.len() < resolved.capacity() {
            resolved.push(whole);
        } else {
            cut_up(gather, whole, resolved)?;
        }
    }
    Ok(())
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
