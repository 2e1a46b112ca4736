//! What the target has to answer.

use super::flight::{CHUNK_BYTES, CHUNKS, Opened};
use frwr_engine::{Access, ConnectionId, Grant, Received};

/// Bytes of the memory in which the target has what it sends and fetches for one command.
pub(super) const SLOT_BYTES: usize = CHUNKS * CHUNK_BYTES;
/// Commands that it has memory for at the same time.
pub(super) const SLOTS: usize = 64;

/// A grant, and which part of which chunk it opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) chunk: usize,
    pub(super) position: usize,
    pub(super) grant: Grant,
}

impl Piece {
    /// Where the target has its bytes in a slot.
    pub(super) const fn place(&self) -> usize {
        self.chunk * CHUNK_BYTES + self.position
    }
}

/// How far the answer to a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was done.
    New,
    /// What the host offers is being fetched.
    Fetching,
    /// Part of the data is being written ahead of the reply.
    Writing,
    /// All but the reply was done.
    Ready,
    /// The reply is under way; the slot's bytes are the device's.
    Responding,
}

/// A command that the target has not answered, or whose answer its device is not done with.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) connection: ConnectionId,
    pub(super) cookie: u64,
    pub(super) reads: Vec<Piece>,
    pub(super) writes: Vec<Piece>,
    pub(super) invited: bool,
    /// A key of the request, if it has any.
    pub(super) key: Option<u32>,
    pub(super) stage: Stage,
    pub(super) slot: usize,
    /// In the target's hands until it answers.
    pub(super) received: Option<Received>,
}

/// Parts grants among the chunks that they open, in order: (to be read, to be written). Grants of a request that is unknown by now open
/// nothing that the target would dare to use.
pub(super) fn parts(chunks: &[Opened], grants: &[Grant]) -> (Vec<Piece>, Vec<Piece>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut grants = grants.iter();
    for (index, chunk) in chunks.iter().enumerate() {
        let mut position = 0;
        while position < chunk.length() {
            let Some(&grant) = grants.next() else { panic!("chunk {index} has fewer bytes granted than it has") };
            let piece = Piece { chunk: index, position, grant };
            if chunk.access == Access::RemoteRead {
                reads.push(piece)
            } else {
                writes.push(piece)
            }
            position += grant.length as usize;
        }
        assert_eq!(position, chunk.length(), "the grants of chunk {index} cover it and no more");
    }
    assert!(grants.next().is_none(), "a grant that belongs to no chunk");
    (reads, writes)
}
