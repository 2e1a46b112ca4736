//! Requests of the host that have not ended, and where their memory is.

use super::pattern::{Pattern, Writer};
use frwr_engine::{Access, ConnectionId, RequestHandle};
use frwr_mempool::DeviceMemory;
use frwr_support::TraceHash;

/// Bytes of a chunk's room in a place: two pages, so that a list of pages can have two.
pub(super) const CHUNK_BYTES: usize = 8 << 10;
/// Chunks of one request at most.
pub(super) const CHUNKS: usize = 3;
/// Where in its place a request has what it sends behind its message.
pub(super) const INLINE_AT: usize = CHUNKS * CHUNK_BYTES;
/// Bytes of that.
pub(super) const INLINE_BYTES: usize = 32;
/// Bytes of a request's place: whole pages.
pub(super) const PLACE_BYTES: usize = INLINE_AT + 4096;
/// Places.
pub(super) const PLACES: usize = 16;

/// A part of a chunk: where in the host's data, and how long.
pub(super) type Range = (usize, usize);

/// A chunk as it was submitted.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) access: Access,
    pub(super) ranges: Vec<Range>,
    /// How many bytes from the front the target has begun to write.
    pub(super) writing: usize,
}

impl Opened {
    pub(super) fn length(&self) -> usize {
        self.ranges.iter().map(|(_, length)| length).sum()
    }
}

/// How a request ended, as far as its bytes are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// All that the target sent in front of its reply is there.
    Whole,
    /// What the target was sending is there or not, word by word.
    Partial,
}

/// A request of the host that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) connection: ConnectionId,
    pub(super) handle: RequestHandle,
    pub(super) place: usize,
    pub(super) chunks: Vec<Opened>,
    pub(super) inline: bool,
    pub(super) invited: bool,
    /// Made by `register_now`.
    pub(super) standalone: bool,
    /// Somebody asked for its end.
    pub(super) cancelled: bool,
}

fn pattern(writer: Writer, cookie: u64, chunk: usize) -> Pattern {
    Pattern { writer, cookie, chunk }
}

impl Flight {
    /// Puts what the host has there into the memory of a request that is about to be submitted.
    pub(super) fn prepare(memory: &DeviceMemory, cookie: u64, chunks: &[Opened]) {
        for (index, chunk) in chunks.iter().enumerate() {
            let mut position = 0;
            for &(offset, length) in &chunk.ranges {
                pattern(Writer::Host, cookie, index).write(memory, offset, position, length);
                position += length;
            }
        }
    }

    /// What is wrong with the bytes of a request that ended.
    pub(super) fn check(&self, memory: &DeviceMemory, cookie: u64, data: Data) {
        for (index, chunk) in self.chunks.iter().enumerate() {
            let (host, target) = (pattern(Writer::Host, cookie, index), pattern(Writer::Target, cookie, index));
            let mut position = 0;
            for &(offset, length) in &chunk.ranges {
                let mut bytes = vec![0; length];
                memory.read(offset, &mut bytes).expect("the simulation knows its memory");
                // What was begun is written up to somewhere in this range.
                let written = chunk.writing.saturating_sub(position).min(length);
                let (front, rest) = bytes.split_at(written);
                let wrong = match data {
                    Data::Whole => target.differs(position, front),
                    Data::Partial => target.differs_from_both(host, position, front),
                };
                assert!(wrong.is_none(), "request {cookie}, chunk {index}: its data is not what was sent ({data:?})");
                let untouched = host.differs(position + written, rest);
                assert!(untouched.is_none(), "request {cookie}, chunk {index}: somebody wrote what nobody sent");
                position += length;
            }
        }
    }

    /// A number for what its memory holds.
    pub(super) fn digest(&self, memory: &DeviceMemory) -> u64 {
        let mut hash = TraceHash::new();
        for &(offset, length) in self.chunks.iter().flat_map(|chunk| &chunk.ranges) {
            let mut bytes = vec![0; length];
            memory.read(offset, &mut bytes).expect("the simulation knows its memory");
            hash.add(TraceHash::of(&bytes));
        }
        hash.value()
    }
}
