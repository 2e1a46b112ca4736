//! Device attributes and wishes in, queue depths and limits out: a pure function (S1 to S17, D26).
//!
//! The answer is the whole set or one error that names the gate; on an error nothing of the caller's has changed (S12).

mod error;
mod formula;

pub use error::SizingError;
pub use formula::size;

/// Payload of the largest request: 1 MiB, as every version of the kernel's transport.
pub const DEFAULT_PAYLOAD_BYTES: u32 = 1 << 20;
/// Concurrency asked for by default (RPCRDMA_DEF_SLOT_TABLE).
pub const DEFAULT_REQUESTS: u32 = 128;
/// Highest concurrency that can be asked for (RPCRDMA_MAX_SLOT_TABLE).
pub const MAX_REQUESTS: u32 = 16384;
/// RDMA segments in one transport header (RPCRDMA_MAX_HDR_SEGS); 8 in 4.1x (D17).
pub const DEFAULT_HEADER_SEGMENTS: u32 = 16;
/// Most RDMA segments that a header may be asked to hold: its buffer stays below 8 KiB (S17).
pub const MAX_HEADER_SEGMENTS: u32 = 256;
/// Work requests reserved for the reverse direction (RPCRDMA_BACKWARD_WRS); 8 in 4.1x, 0 without it.
pub const DEFAULT_BACKWARD_REQUESTS: u32 = 32;
/// Receives posted beyond the need per refill (RPCRDMA_MAX_RECV_BATCH); 0 in 5.x (S8).
pub const DEFAULT_RECEIVE_BATCH: u32 = 7;
/// Bytes of a SEND and of a receive buffer by default.
pub const DEFAULT_INLINE_BYTES: u32 = 4096;

/// Smallest queue budget that is worth a connection (RPCRDMA_MIN_SLOT_TABLE, S6).
const LEAST_BUDGET: u32 = 4;
/// Transport header, head and tail: scatter elements that a SEND needs at least (S2).
const MIN_SEND_ELEMENTS: u32 = 3;
/// Bytes of page data in the largest inline message (S2).
const INLINE_PAGE_BYTES: u32 = 65536;
/// Head, tail and one page crossing: segments of a request beside its payload pages (RPCRDMA_MAX_IOV_SEGS).
const EXTRA_SEGMENTS: u32 = 3;
/// Slots for the marker that ends a drain: one on each queue (S6, U19).
const DRAIN_SLOTS: u32 = 1;
/// The pad MR's registration (D19).
const PAD_SLOTS: u32 = 1;
/// One request gets this share of the batch of unsignalled work requests (S13).
const SEND_BATCH_SHIFT: u32 = 3;
/// Every user of the engine receives into one element (S2).
const RECEIVE_ELEMENTS: u32 = 1;

const _: () = assert!(DEFAULT_REQUESTS <= MAX_REQUESTS);
const _: () = assert!(DEFAULT_HEADER_SEGMENTS <= MAX_HEADER_SEGMENTS);

/// Whose formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizingVersion {
    /// The newest, with their defects F1, F2 and F14 repaired.
    #[default]
    Newest,
    /// Those of 5.x: no batch in the receive queue's size.
    FiveX,
    /// Those of 4.1x (S14 to S16, F3), for comparison: the reserve is multiplied and then lost, and more requests may
    /// come out than were asked for.
    FourX,
}

/// Receives posted beyond the need per refill (D20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveBatch {
    /// This many.
    Fixed(u32),
    /// A quarter of the requests, as upstream does since 2026.
    QuarterOfRequests,
}

frwr_mempool::options! {
    /// What the caller would like.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Wishes {
        /// Whose formulas.
        pub version: SizingVersion,
        /// Requests in flight, 1 to [`MAX_REQUESTS`]; the result may be lower.
        pub requests: u32,
        /// Bytes per page, a power of two (S11).
        pub page_size: u32,
        /// Bytes of the largest request's payload.
        pub payload_bytes: u32,
        /// RDMA segments that a transport header holds, 1 to [`MAX_HEADER_SEGMENTS`] (D17).
        pub header_segments: u32,
        /// Work requests reserved on each queue for the reverse direction.
        pub backward_requests: u32,
        /// Receives posted beyond the need.
        pub receive_batch: ReceiveBatch,
        /// Takes the device's `max_sge_rd` for its best registration depth, where that is more than `header_segments` (S4, D16).
        /// Never above the page-list length (F14).
        pub depth_hint: bool,
        /// One more send queue slot, for the registration of the pad (D19, S92).
        pub pad_slot: bool,
        /// Contiguous ranges of one request, each an MR of its own. Set exactly where `Capabilities::contiguity` is
        /// `SingleRange`: a window covers one range, so the page-list formulas do not apply (U7).
        pub ranges_per_request: Option<u32>,
        /// Bytes of a SEND (S17).
        pub inline_send_bytes: u32,
        /// Bytes of a receive buffer (S17).
        pub inline_receive_bytes: u32,
    }
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            version: SizingVersion::Newest,
            requests: DEFAULT_REQUESTS,
            page_size: 4096,
            payload_bytes: DEFAULT_PAYLOAD_BYTES,
            header_segments: DEFAULT_HEADER_SEGMENTS,
            backward_requests: DEFAULT_BACKWARD_REQUESTS,
            receive_batch: ReceiveBatch::Fixed(DEFAULT_RECEIVE_BATCH),
            depth_hint: true,
            pad_slot: false,
            ranges_per_request: None,
            inline_send_bytes: DEFAULT_INLINE_BYTES,
            inline_receive_bytes: DEFAULT_INLINE_BYTES,
        }
    }
}

impl Wishes {
    /// The constants of a version; everything else by default.
    #[must_use]
    pub fn of(version: SizingVersion) -> Self {
        let newest = Self { version, ..Self::default() };
        match version {
            SizingVersion::Newest => newest,
            SizingVersion::FiveX => Self { receive_batch: ReceiveBatch::Fixed(0), ..newest },
            SizingVersion::FourX => Self {
                header_segments: 8,
                backward_requests: 8,
                receive_batch: ReceiveBatch::Fixed(0),
                depth_hint: false,
                ..newest
            },
        }
    }
}

/// What an MR is made of (S3, U1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrType {
    /// A list that takes gaps.
    SgGaps,
    /// A page list.
    MemReg,
    /// A type 2 memory window.
    Window,
}

impl MrType {
    /// Stable name for JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SgGaps => "sg_gaps",
            Self::MemReg => "mem_reg",
            Self::Window => "window",
        }
    }
}

/// The sizes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Scatter elements of a SEND (S2).
    pub max_send_sge: u32,
    /// Scatter elements of a receive.
    pub max_recv_sge: u32,
    /// Send queue entries (S7); never above the device's `max_qp_wr`.
    pub max_send_wr: u32,
    /// Receive queue entries (S8); never above the device's `max_qp_wr`.
    pub max_recv_wr: u32,
    /// Requests in flight, and the credits asked of the peer (S7, S13).
    pub max_requests: u32,
    /// Elements of one MR (S4).
    pub mr_depth: u32,
    /// What an MR is made of (S3).
    pub mr_type: MrType,
    /// Send queue entries that one request may take: registrations, invalidations, message (S5).
    pub work_requests_per_request: u32,
    /// RDMA segments of one chunk list (S9, S16).
    pub max_rdma_segments: u32,
    /// Pages of the largest payload (S10, S15).
    pub max_payload_pages: u32,
    /// Batch of `SignalPolicy::KernelBudget` (S13).
    pub send_batch: u32,
    /// Entries of the send completion queue that this connection may fill (S13).
    pub send_cq_entries: u32,
    /// Entries of the receive completion queue that this connection may fill (S13).
    pub receive_cq_entries: u32,
    /// Bytes of the largest call without chunks; 0 where the header leaves no room (S17).
    pub max_inline_call: u32,
    /// Bytes of the largest reply without chunks; 0 where the header leaves no room (S17).
    pub max_inline_reply: u32,
    /// Bytes of a request's header buffer, a power of two (S17).
    pub header_buffer_bytes: u32,
}
