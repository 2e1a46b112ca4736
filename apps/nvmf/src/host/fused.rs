//! A compare and write: two commands of one request, and what both come to.

use super::error::RequestError;
use super::options::MAX_SEGMENTS;
use super::parts::Part;
use super::requests::{Asked, Kind, MAX_REQUEST_BYTES, Request};
use crate::storage::Geometry;
use crate::wire::Fuse;
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
