//! Where requests are cut into commands: at the controller's limits, at what its keys cover, and inside blocks only where
//! these go through a bounce buffer.

use super::Host;
use super::options::MAX_SEGMENTS;
use super::request::{IoError, Kind};
use crate::wire::{KEYED_DATA_BLOCK_LIMIT, SGL_DESCRIPTOR_BYTES};
use arrayvec::ArrayVec;
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, SubmitError};

/// NLB is 16 bit and 0-based.
const MAX_BLOCKS: u32 = 1 << 16;
/// One segment of as many bytes has one key on every device: the smallest page list that sizing makes covers it.
const SURE_BYTES: u32 = 32 << 10;

/// Where the data of a command lies.
pub(super) type Location = ArrayVec<Segment, MAX_SEGMENTS>;

/// How a request's next command is to be made.
pub(super) enum Cut {
    /// Straight out of the request's memory.
    Blocks { blocks: u32, keys: u8 },
    /// Through a bounce buffer, which has one key.
    Bounced { blocks: u32, buffer: u16 },
    /// When a bounce buffer is free.
    NoBuffer,
    /// Later.
    NoRoom,
    /// Never.
    Impossible(IoError),
}

/// What came of fitting a command to a session.
pub(super) enum Fit {
    /// It can be submitted.
    Fits,
    /// It waits for a bounce buffer, which a command behind it may hold.
    NoBuffer,
    /// It waits for the session.
    NoRoom,
    /// It ended.
    Ended,
}

impl<P: Port> Host<P> {
    /// Bytes of the largest command: MDTS, NLB and the length of a keyed data block.
    pub(super) fn transfer_limit(&self) -> u32 {
        let block = self.geometry.map_or(1, |geometry| geometry.block_bytes());
        let limit = self.controller.max_transfer.unwrap_or(u64::MAX);
        let limit = limit.min(u64::from(block) * u64::from(MAX_BLOCKS)).min(u64::from(KEYED_DATA_BLOCK_LIMIT));
        // At most KEYED_DATA_BLOCK_LIMIT.
        limit as u32 / block * block
    }

    /// Blocks of one Write Zeroes at most: WZSL and NLB.
    fn zeroes_limit(&self) -> u32 {
        let block = self.geometry.map_or(1, |geometry| geometry.block_bytes());
        let limit = self.controller.max_zeroes.map_or(MAX_BLOCKS.into(), |bytes| bytes / u64::from(block));
        // At most MAX_BLOCKS; what is less than a block is refused by the controller.
        limit.clamp(1, MAX_BLOCKS.into()) as u32
    }

    /// Keys of one command at most: the controller's data blocks (MSDBD; 0 for no limit), whose descriptors have to fit into
    /// its capsules behind the command where there are several.
    fn key_limit(&self) -> u8 {
        let offered = match self.controller.max_data_blocks {
            0 => u8::MAX,
            blocks => blocks,
        };
        let room = self.controller.in_capsule_bytes / SGL_DESCRIPTOR_BYTES as u64;
        let room = u8::try_from(room).unwrap_or(u8::MAX);
        self.context.options.data_blocks.min(offered).min(room).max(1)
    }

    /// How much of a request, of which `rest` blocks are left behind the first `first`, the next command takes.
    pub(super) fn cut(&mut self, index: u16, first: u32, rest: u32, connection: ConnectionId) -> Cut {
        let Some(Some(request)) = self.requests.get(usize::from(index)) else { return Cut::NoRoom };
        match request.kind {
            Kind::Flush => Cut::Blocks { blocks: 0, keys: 0 },
            Kind::Deallocate { .. } => Cut::Blocks { blocks: 0, keys: 1 },
            Kind::WriteZeroes { .. } => Cut::Blocks { blocks: rest.min(self.zeroes_limit()), keys: 0 },
            Kind::Read { .. } | Kind::Write { .. } | Kind::Compare => self.cut_data(index, first, rest, connection),
        }
    }

    /// What the controller moves at a time, and what the keys of one command cover.
    fn cut_data(&mut self, index: u16, first: u32, rest: u32, connection: ConnectionId) -> Cut {
        let Some(geometry) = self.geometry else { return Cut::NoRoom };
        let block = geometry.block_bytes();
        let most = rest.min((self.transfer_limit() / block).max(1));
        let Some(Some(request)) = self.requests.get(usize::from(index)) else { return Cut::NoRoom };
        let (from, kind) = (u64::from(first) * u64::from(block), request.kind);
        let location = slice(&request.segments, from, most * block);
        if location.len() == 1 && (most * block <= SURE_BYTES || self.fits_capsule(kind, &location, most * block)) {
            return Cut::Blocks { blocks: most, keys: 1 };
        }
        match self.covered(connection, &location) {
            Ok((bytes, _)) if bytes < block => self.cut_bounced(index, first, most, connection),
            Ok((bytes, keys)) if bytes == most * block => Cut::Blocks { blocks: most, keys },
            Ok((bytes, _)) => {
                // Whole blocks, which may take fewer keys.
                let blocks = bytes / block;
                match self.covered(connection, &slice(&location, 0, blocks * block)) {
                    Ok((_, keys)) => Cut::Blocks { blocks, keys },
                    Err(cut) => cut,
                }
            }
            Err(cut) => cut,
        }
    }

    /// How many bytes of a list the keys of one command cover, and how many keys these are.
    fn covered(&mut self, connection: ConnectionId, location: &[Segment]) -> Result<(u32, u8), Cut> {
        let keys = self.key_limit();
        match self.context.transport.engine_mut().coverage(connection, location, keys.into()) {
            // As many keys as were allowed, which is 8 bit.
            Ok(coverage) => Ok((coverage.bytes, coverage.keys as u8)),
            Err(SubmitError::NotConnected) => Err(Cut::NoRoom),
            Err(error) => Err(Cut::Impossible(IoError::Submit(error))),
        }
    }

    /// The first block lies in too many ranges: it goes through a bounce buffer, with those behind it that do as well.
    fn cut_bounced(&mut self, index: u16, first: u32, most: u32, connection: ConnectionId) -> Cut {
        let Some(geometry) = self.geometry else { return Cut::NoRoom };
        let block = geometry.block_bytes();
        let Some(Some(request)) = self.requests.get(usize::from(index)) else { return Cut::NoRoom };
        let segments = request.segments.clone();
        let mut blocks = 1;
        // Buffers are far smaller than 4 GiB.
        let room = self.bounce.bytes() as u32 / block;
        while blocks < most.min(room) {
            let from = u64::from(first + blocks) * u64::from(block);
            let next = slice(&segments, from, block);
            if self.covered(connection, &next).is_ok_and(|(bytes, _)| bytes >= block) {
                break;
            }
            blocks += 1;
        }
        if room == 0 || !self.bounce.exists() {
            return Cut::Impossible(IoError::TooManyKeys);
        }
        match self.bounce.take((blocks * block) as usize) {
            Some(buffer) => Cut::Bounced { blocks, buffer },
            None => Cut::NoBuffer,
        }
    }

    /// Fits a command to this session, whose limits may be below those that it was cut by: what is too much for one
    /// command follows when that has ended.
    pub(super) fn fit_again(&mut self, slot: u16) -> Fit {
        let Some(&Some(mut part)) = self.parts.get(usize::from(slot)) else { return Fit::Fits };
        if part.cut_in == self.statistics.sessions {
            return Fit::Fits;
        }
        let (Some((_, connection)), Some(geometry)) = (self.roomiest_queue(), self.geometry) else {
            return Fit::NoRoom;
        };
        let all = part.blocks + part.rest;
        if part.bounce.is_some() {
            // Its buffer may have been taken for fewer; buffers are far smaller than 4 GiB.
            let most = self.transfer_limit().min(self.bounce.bytes() as u32) / geometry.block_bytes();
            part.blocks = all.min(most.max(1));
        } else {
            match self.cut(part.request, part.first, all, connection) {
                Cut::Blocks { blocks, keys } => (part.blocks, part.keys) = (blocks, keys),
                Cut::Bounced { blocks, buffer } => {
                    (part.blocks, part.keys, part.bounce) = (blocks, 1, Some(buffer));
                    self.statistics.bounced_commands += 1;
                }
                Cut::NoBuffer => return Fit::NoBuffer,
                Cut::NoRoom => return Fit::NoRoom,
                Cut::Impossible(error) => {
                    self.resend.remove(slot);
                    self.command_ended(slot, Err(error));
                    return Fit::Ended;
                }
            }
        }
        (part.rest, part.cut_in) = (all - part.blocks, self.statistics.sessions);
        if let Some(place) = self.parts.get_mut(usize::from(slot)) {
            *place = Some(part);
        }
        self.copy_bounced(slot, true);
        Fit::Fits
    }
}

/// `bytes` bytes of a list of segments from byte `from` on.
pub(super) fn slice(segments: &[Segment], from: u64, bytes: u32) -> Location {
    let (mut skip, mut rest) = (from, bytes);
    let mut location = Location::new();
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
    location
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
