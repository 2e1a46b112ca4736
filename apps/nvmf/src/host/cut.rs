//! Where requests are cut into commands: at the controller's limits, at what its keys cover, and inside blocks only where
//! these go through a bounce buffer.

use super::bounce::Bounce;
use super::context::Context;
use super::error::IoError;
use super::options::MAX_SEGMENTS;
use super::parts::{Extent, Part};
use super::path::Path;
use super::requests::{Kind, Request};
use arrayvec::ArrayVec;
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, SubmitError};

/// One segment of as many bytes has one key on every device: the smallest page list that sizing makes covers it.
pub(super) const SURE_BYTES: u32 = 32 << 10;

/// Where the data of a command lies.
pub(super) type Location = ArrayVec<Segment, MAX_SEGMENTS>;

/// Why no command is made now.
pub(super) enum Uncut {
    /// When a bounce buffer is free, which a command or request behind it may hold.
    NoBuffer,
    /// Later.
    NoRoom,
    /// Never.
    Impossible(IoError),
}

/// One cut: of which request, to be sent where, out of which bounce buffers.
struct Cutter<'a, P: Port> {
    request: &'a Request,
    connection: ConnectionId,
    path: &'a Path<'a>,
    bounce: &'a mut Bounce,
    context: &'a mut Context<P>,
}

/// How much of a request, of which `rest` blocks are left behind the first `first`, the next command takes. A bounce buffer
/// is taken where it needs one.
#[inline(always)]
pub(super) fn cut<P: Port>(
    request: &Request,
    (first, rest): (u32, u32),
    connection: ConnectionId,
    path: &Path<'_>,
    bounce: &mut Bounce,
    context: &mut Context<P>,
) -> Result<Extent, Uncut> {
    let extent = |blocks, keys| Extent { blocks, rest: rest - blocks, keys, bounce: None, session: path.session };
    match request.kind {
        Kind::Flush => Ok(extent(0, 0)),
        Kind::Deallocate { .. } | Kind::Reserve { .. } | Kind::ReservationReport { .. } => Ok(extent(0, 1)),
        Kind::WriteZeroes { .. } => Ok(extent(rest.min(path.limits.zeroes(path.block)), 0)),
        Kind::Read { .. } | Kind::Write { .. } | Kind::Compare | Kind::CompareAndWrite => {
            // What the controller moves at a time, and what the keys of one command cover.
            let most = rest.min(path.limits.transfer(path.block).max(1));
            let (from, bytes) = (u64::from(first) * u64::from(path.block), most * path.block);
            if lie_in_one(&request.segments, from, bytes)
                && (bytes <= SURE_BYTES || fits_capsule(&request.kind, true, bytes, path, context))
            {
                return Ok(extent(most, 1));
            }
            let cutter = Cutter { request, connection, path, bounce, context };
            let (blocks, keys, buffer) = cutter.listed(first, most)?;
            Ok(Extent { bounce: buffer, ..extent(blocks, keys) })
        }
    }
}

/// Cuts a command again by the limits of this session, which may be below those that it was cut by: what is too much for
/// one command follows when that has ended.
pub(super) fn cut_again<P: Port>(
    request: &Request,
    part: &Part,
    connection: ConnectionId,
    path: &Path<'_>,
    bounce: &mut Bounce,
    context: &mut Context<P>,
) -> Result<Extent, Uncut> {
    let all = part.extent.blocks + part.extent.rest;
    if part.extent.bounce.is_none() {
        return cut(request, (part.first, all), connection, path, bounce, context);
    }
    // Its buffer may have been taken for fewer; buffers are far smaller than 4 GiB.
    let most = path.limits.transfer(path.block).min(bounce.bytes() as u32 / path.block);
    let blocks = all.min(most.max(1));
    Ok(Extent { blocks, rest: all - blocks, session: path.session, ..part.extent })
}

/// Blocks, keys, and the bounce buffer of one command.
type Taken = (u32, u8, Option<u16>);

impl<P: Port> Cutter<'_, P> {
    /// Cuts data that lies in several ranges, or in one that may take several keys.
    #[inline(never)]
    fn listed(mut self, first: u32, most: u32) -> Result<Taken, Uncut> {
        let block = self.path.block;
        let bytes = most * block;
        let location = slice(&self.request.segments, u64::from(first) * u64::from(block), bytes);
        match self.covered(&location)? {
            (covered, _) if covered < block => self.bounced(first, most),
            (covered, keys) if covered == bytes => Ok((most, keys, None)),
            (covered, _) => {
                // Whole blocks, which may take fewer keys.
                let blocks = covered / block;
                let (_, keys) = self.covered(&slice(&location, 0, blocks * block))?;
                Ok((blocks, keys, None))
            }
        }
    }

    /// How many bytes of a list the keys of one command cover, and how many keys these are.
    fn covered(&mut self, location: &[Segment]) -> Result<(u32, u8), Uncut> {
        let keys = self.path.limits.keys(self.context.options.data_blocks);
        match self.context.transport.engine_mut().coverage(self.connection, location, keys.into()) {
            // As many keys as were allowed, which is 8 bit.
            Ok(coverage) => Ok((coverage.bytes, coverage.keys as u8)),
            Err(SubmitError::NotConnected) => Err(Uncut::NoRoom),
            Err(error) => Err(Uncut::Impossible(IoError::Submit(error))),
        }
    }

    /// The first block lies in too many ranges: it goes through a bounce buffer, with those behind it that do as well.
    fn bounced(&mut self, first: u32, most: u32) -> Result<Taken, Uncut> {
        let block = self.path.block;
        let mut blocks = 1;
        // Buffers are far smaller than 4 GiB.
        let room = self.bounce.bytes() as u32 / block;
        while blocks < most.min(room) {
            let from = u64::from(first + blocks) * u64::from(block);
            let next = slice(&self.request.segments, from, block);
            if self.covered(&next).is_ok_and(|(bytes, _)| bytes >= block) {
                break;
            }
            blocks += 1;
        }
        if room == 0 || !self.bounce.exists() {
            return Err(Uncut::Impossible(IoError::TooManyKeys));
        }
        let buffer = self.bounce.take((blocks * block) as usize).ok_or(Uncut::NoBuffer)?;
        Ok((blocks, 1, Some(buffer)))
    }
}

/// The data of a command travels behind it, without a key. `in_one`: it lies in one range.
#[inline(always)]
pub(super) fn fits_capsule<P: Port>(
    kind: &Kind,
    in_one: bool,
    bytes: u32,
    path: &Path<'_>,
    context: &Context<P>,
) -> bool {
    context.options.in_capsule_data
        && matches!(kind, Kind::Write { .. } | Kind::Deallocate { .. } | Kind::Reserve { .. })
        && in_one
        && u64::from(bytes) <= path.limits.in_capsule_bytes
}

/// As many bytes of a list of segments from byte `from` on are part of one of them.
#[inline(always)]
fn lie_in_one(segments: &[Segment], from: u64, bytes: u32) -> bool {
    let mut skip = from;
    for segment in segments {
        let length = u64::from(segment.length);
        if skip < length {
            return length - skip >= bytes.into();
        }
        skip -= length;
    }
    false
}

/// `bytes` bytes of a list of segments from byte `from` on.
pub(super) fn slice(segments: &[Segment], from: u64, bytes: u32) -> Location {
    let mut location = Location::new();
    slice_into(&mut location, segments, from, bytes);
    location
}

/// [`slice()`] into an empty location, in its place: it is large.
#[inline(always)]
pub(super) fn slice_into(location: &mut Location, segments: &[Segment], from: u64, bytes: u32) {
    let (mut skip, mut rest) = (from, bytes);
    for segment in segments {
        let length = u64::from(segment.length);
        if skip >= length {
            skip -= length;
            continue;
        }
        // Below the segment's length, which is 32 bit.
        let taken = (length - skip).min(u64::from(rest)) as u32;
        if taken == 0 || location.is_full() {
            break;
        }
        location.push(Segment { memory: segment.memory, offset: segment.offset + skip, length: taken });
        (skip, rest) = (0, rest - taken);
    }
}

#[cfg(test)]
mod tests {
    use super::slice;
    use frwr_engine::gather::{MemoryId, Segment};

    #[test]
    fn a_slice_of_a_list_is_what_lies_there() {
        let at = |offset, length| Segment { memory: MemoryId(1), offset, length };
        let list = [at(0, 100), at(500, 50), at(1000, 200)];
        let all = [at(0, 100), at(500, 50), at(1000, 200)];
        assert_eq!(slice(&list, 0, 350).as_slice(), all);
        assert_eq!(slice(&list, 0, 100).as_slice(), [at(0, 100)]);
        assert_eq!(slice(&list, 90, 70).as_slice(), [at(90, 10), at(500, 50), at(1000, 10)]);
        assert_eq!(slice(&list, 150, 1).as_slice(), [at(1000, 1)]);
        assert_eq!(slice(&list, 350, 1).as_slice(), []);
    }
}
