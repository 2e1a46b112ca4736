//! A compare and write: two commands of one request, and what both come to.

use super::error::{IoError, RequestError};
use super::options::MAX_SEGMENTS;
use super::parts::Part;
use super::requests::{Asked, Kind, MAX_REQUEST_BYTES, Request};
use crate::storage::Geometry;
use crate::wire::{Fuse, Status};
use arrayvec::ArrayVec;
use frwr_engine::gather::Segment;

/// Which half of a pair a command is. The second one's data is behind that of the first.
pub(super) fn fuse_of(request: &Request, part: &Part) -> Fuse {
    match request.kind {
        Kind::CompareAndWrite if part.first == 0 => Fuse::First,
        Kind::CompareAndWrite => Fuse::Second,
        _ => Fuse::None,
    }
}

/// How much an error of one half says. What was compared and is different was not written, whatever became of the other
/// answer; that one half failed because the other one did says nothing.
fn weight(error: IoError) -> u8 {
    match error {
        IoError::Status(status) if status.without_flags() == Status::ABORTED_FAILED_FUSED => 0,
        IoError::Status(status) if status.without_flags() == Status::COMPARE_FAILURE => 3,
        // It may have been executed.
        IoError::GivenBack { in_flight: true } | IoError::Undecided | IoError::Abandoned => 2,
        _ => 1,
    }
}

/// A request of a pair ends with this error, in place of what is known of it.
pub(super) fn outranks(error: IoError, before: Result<(), IoError>) -> bool {
    before.map_or_else(|before| weight(error) > weight(before), |()| true)
}

/// The segments of both halves, one behind the other.
pub(super) type Both = ArrayVec<Segment, MAX_SEGMENTS>;

/// What asks to compare and write, where the namespace has its blocks. `most`: blocks that the controller takes.
///
/// # Errors
/// [`RequestError`].
pub(super) fn pair<'a>(
    (geometry, most): (Geometry, u32),
    lba: u64,
    [expected, written]: [&'a [Segment]; 2],
    both: &'a mut Both,
    cookie: u64,
) -> Result<Asked<'a>, RequestError> {
    let bytes_of = |half: &[Segment]| half.iter().map(|segment| u64::from(segment.length)).sum::<u64>();
    let [bytes, of_written] = [expected, written].map(bytes_of);
    if bytes != of_written {
        return Err(RequestError::Halves { expected: bytes, written: of_written });
    }
    let block_bytes = geometry.block_bytes();
    let limit = most.saturating_mul(block_bytes).min(MAX_REQUEST_BYTES);
    if bytes == 0 || bytes > MAX_REQUEST_BYTES.into() || !bytes.is_multiple_of(block_bytes.into()) {
        return Err(RequestError::Length { bytes, limit });
    }
    // Compared with the limit, which is 32 bit.
    let blocks = (bytes / u64::from(block_bytes)) as u32;
    if blocks > most {
        return Err(RequestError::CompareAndWrite { blocks, limit: most });
    }
    geometry.extent(lba, blocks).map_err(|_| RequestError::OutOfRange)?;
    both.clear();
    for half in [expected, written] {
        both.try_extend_from_slice(half).map_err(|_| RequestError::Segments(expected.len() + written.len()))?;
    }
    Ok(Asked::new(Kind::CompareAndWrite, lba, blocks, both, cookie))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_most_is_what_a_pair_comes_to() {
        let failed = IoError::Status(Status::ABORTED_FAILED_FUSED.do_not_retry());
        let differs = IoError::Status(Status::COMPARE_FAILURE.do_not_retry());
        let other = IoError::Status(Status::INTERNAL_ERROR);
        let lost = IoError::GivenBack { in_flight: true };
        for (at, error) in [failed, other, lost, differs].into_iter().enumerate() {
            assert!(outranks(error, Ok(())));
            for (before, former) in [failed, other, lost, differs].into_iter().enumerate() {
                assert_eq!(outranks(error, Err(former)), at > before, "{error} behind {former}");
            }
        }
    }
}
