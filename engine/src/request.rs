//! The requester's slot: a message, the MRs that it opened, and the bits that free it.

use crate::event::{Received, RequestStatus};
use crate::options::{MAX_CHUNKS, MAX_MRS_PER_REQUEST};
use crate::provider::Access;
use arrayvec::ArrayVec;
use frwr_mempool::slab::Handle;

/// Bytes of a cold cache line pair: the budget of one slot (goal A23).
const MAX_SLOT_BYTES: usize = 256;
const _: () = assert!(size_of::<Request>() <= MAX_SLOT_BYTES, "a request slot stays within its cache budget");

/// A request in flight. Its generation makes the name of an ended request harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestHandle(pub(crate) Handle);

impl RequestHandle {
    /// A handle by its numbers, for protocols whose messages carry them. One that names no request in flight is harmless.
    #[must_use]
    pub fn from_parts(index: u32, generation: u32) -> Self {
        Self(Handle::from_parts(index, generation))
    }

    /// The slot's index: below the engine's number of request slots, for tables of the upper layer.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0.index()
    }

    /// The slot's generation.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.0.generation()
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for MRs, send queue entries or receives, in order, and holds none of them.
    Waiting,
    /// Its memory is mapped, its message is written, and neither is in a chain: it was taken out of it.
    Queued,
    /// Its message is posted, or in the chain that the next flush posts, and no reply was seen.
    Posted,
    /// Its registration was made by `register_now` and is valid.
    Open,
    /// Its end is known; `fences` keys are not dead yet.
    Fencing { fences: u8 },
    /// Its end is reported or about to be; only Hold keeps the slot.
    Ended,
}

/// What the caller will be told when the fence is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Unknown,
    Replied { buffer: u32, generation: u32, length: u32 },
    Cancelled,
    PostRefused,
    Lost,
    Unannounced,
    TooFewRegistrations,
}

impl Outcome {
    /// What the caller is told.
    #[cold]
    pub(crate) fn status(self) -> RequestStatus {
        match self {
            Self::Replied { buffer, generation, length } => {
                RequestStatus::Replied(Received { buffer, generation, length })
            }
            Self::Cancelled | Self::Unknown => RequestStatus::Cancelled,
            Self::PostRefused => RequestStatus::PostRefused,
            Self::Lost => RequestStatus::Lost,
            Self::Unannounced => RequestStatus::Unannounced,
            Self::TooFewRegistrations => RequestStatus::TooFewRegistrations,
        }
    }
}

/// A reason for the slot to live on after its end was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The message is posted or to be posted, and no completion has passed it: the device may still read it (K9, K10).
    pub(crate) message: bool,
    /// The event of its end was not taken yet.
    pub(crate) event: bool,
}

/// One chunk as it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingChunk {
    pub(crate) access: Access,
    pub(crate) segments: u16,
}

/// Bytes of one request's slot, hot while the request lives (goal A23); its message is elsewhere.
pub const REQUEST_SLOT_BYTES: usize = size_of::<Request>();

/// One slot. 256 bytes at most, asserted above.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) cookie: u64,
    pub(crate) iova_cookie: u32,
    pub(crate) message_length: u32,
    pub(crate) connection: u16,
    pub(crate) phase: Phase,
    pub(crate) outcome: Outcome,
    pub(crate) hold: Hold,
    /// The peer was asked to invalidate one of the keys.
    pub(crate) invited: bool,
    /// Made by `register_now`: no message, and its registration is waited for.
    pub(crate) standalone: bool,
    /// The message carries bytes out of the caller's memory: the end waits for the message's completion too (S51).
    pub(crate) awaits_message: bool,
    /// MRs that its chunks take.
    pub(crate) pieces: u8,
    /// Elements of the message beyond its first.
    pub(crate) inline_segments: u8,
    /// Where its message stands in the send queue's ring, once it is staged; of a standalone one its registration.
    pub(crate) message_position: u32,
    /// MRs whose keys are not known to be dead.
    pub(crate) mrs: ArrayVec<u32, MAX_MRS_PER_REQUEST>,
    /// What to map once a request that had to wait is admitted.
    pub(crate) chunks: ArrayVec<WaitingChunk, MAX_CHUNKS>,
}

/// What a slot is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) cookie: u64,
    pub(crate) iova_cookie: u32,
    pub(crate) message_length: u32,
    pub(crate) connection: u16,
    pub(crate) invited: bool,
    pub(crate) standalone: bool,
    pub(crate) pieces: u8,
    pub(crate) inline_segments: u8,
    /// Its message goes into the chain at once.
    pub(crate) staged: bool,
}

impl Request {
    #[inline(always)]
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self {
            cookie: wanted.cookie,
            iova_cookie: wanted.iova_cookie,
            message_length: wanted.message_length,
            connection: wanted.connection,
            phase: if wanted.staged { Phase::Posted } else { Phase::Waiting },
            outcome: Outcome::Unknown,
            hold: Hold { message: wanted.staged, event: false },
            invited: wanted.invited,
            standalone: wanted.standalone,
            awaits_message: wanted.inline_segments > 0,
            pieces: wanted.pieces,
            inline_segments: wanted.inline_segments,
            message_position: 0,
            mrs: ArrayVec::new(),
            chunks: ArrayVec::new(),
        }
    }

    /// Only Hold keeps the slot (it counts for signalling pressure).
    pub(crate) fn is_held_only(&self) -> bool {
        self.phase == Phase::Ended && self.hold.message && !self.hold.event
    }

    /// Nothing keeps the slot any more.
    pub(crate) fn is_recyclable(&self) -> bool {
        self.phase == Phase::Ended && self.hold == Hold::default()
    }
}
