//! One error per gate of the sizing function (D18). Where a kernel knows only ENOMEM or EINVAL, these tell what was short.

/// Why a device cannot serve the wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizingError {
    /// A wish is outside its range.
    #[error("{wish} is {value}, its range is {least} to {most}; ask for a value inside")]
    WishOutOfRange {
        /// Field of `Wishes`.
        wish: &'static str,
        /// What was asked for.
        value: u32,
        /// Lowest value.
        least: u32,
        /// Highest value.
        most: u32,
    },
    /// The page size is not a power of two.
    #[error("page_size is {page_size}; it must be a power of two")]
    PageSizeInvalid {
        /// What was asked for.
        page_size: u32,
    },
    /// No registration by work request (S1).
    #[error("the device has no memory management extensions; use a provider with windows, mkeys or REG_MR")]
    NoMemoryExtensions,
    /// The page list has no entry (S1).
    #[error("max_fast_reg_page_list_len is 0; the device cannot register page lists, use another registration type")]
    NoPageList,
    /// A SEND takes too few scatter elements (S2).
    #[error("max_send_sge is {have}, a message needs {need}: header, head and tail; use another device")]
    TooFewSendElements {
        /// What the device has.
        have: u32,
        /// What is needed.
        need: u32,
    },
    /// The send queue does not even hold the reserve (S6, F1).
    #[error(
        "max_qp_wr is {have}, the reserve and the least budget need {need}; lower backward_requests or use another device"
    )]
    QueueTooSmall {
        /// What the device has.
        have: u32,
        /// What is needed.
        need: u32,
    },
    /// Not one request fits into the send queue (S7, S14).
    #[error(
        "{budget} send queue entries are left for requests, one takes {need}; \
         lower payload_bytes or ranges_per_request, or use another device"
    )]
    RequestsDoNotFit {
        /// Entries left after the reserve.
        budget: u32,
        /// Entries that one request takes.
        need: u32,
    },
    /// The receive queue would be larger than the device permits (F2).
    #[error(
        "the receive queue needs {need} entries, max_qp_wr is {limit}; lower requests, receive_batch or backward_requests"
    )]
    ReceiveQueueExceedsLimit {
        /// What would be needed.
        need: u32,
        /// What the device has.
        limit: u32,
    },
    /// A completion queue would be larger than the device permits (S13).
    #[error("a completion queue needs {need} entries, max_cqe is {limit}; lower requests")]
    CompletionQueueExceedsLimit {
        /// What would be needed.
        need: u32,
        /// What the device has.
        limit: u32,
    },
    /// The largest request does not fit into one header's segments (S10).
    #[error(
        "{segments} segments of {depth} elements cover fewer than the {need} that the largest request has; \
         raise header_segments, lower payload_bytes or use another device"
    )]
    SegmentsTooFew {
        /// RDMA segments of a header.
        segments: u32,
        /// Elements of one MR.
        depth: u32,
        /// Elements of the largest request.
        need: u32,
    },
    /// More ranges than a header has segments (U7).
    #[error(
        "{ranges} ranges per request, a header has {limit} segments; raise header_segments or lower ranges_per_request"
    )]
    TooManyRanges {
        /// What was asked for.
        ranges: u32,
        /// What a header holds.
        limit: u32,
    },
}

impl SizingError {
    /// Stable name for JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WishOutOfRange { .. } => "wish_out_of_range",
            Self::PageSizeInvalid { .. } => "page_size_invalid",
            Self::NoMemoryExtensions => "no_memory_extensions",
            Self::NoPageList => "no_page_list",
            Self::TooFewSendElements { .. } => "too_few_send_elements",
            Self::QueueTooSmall { .. } => "queue_too_small",
            Self::RequestsDoNotFit { .. } => "requests_do_not_fit",
            Self::ReceiveQueueExceedsLimit { .. } => "receive_queue_exceeds_limit",
            Self::CompletionQueueExceedsLimit { .. } => "completion_queue_exceeds_limit",
            Self::SegmentsTooFew { .. } => "segments_too_few",
            Self::TooManyRanges { .. } => "too_many_ranges",
        }
    }
}
