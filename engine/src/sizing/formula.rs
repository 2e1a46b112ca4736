//! The formulas. All sums are 64 bit and signed, so that no attribute or wish can wrap one around (F1).

use super::{
    DRAIN_SLOTS, EXTRA_SEGMENTS, INLINE_PAGE_BYTES, LEAST_BUDGET, MAX_HEADER_SEGMENTS, MAX_REQUESTS, MIN_SEND_ELEMENTS,
    MrType, PAD_SLOTS, RECEIVE_ELEMENTS, ReceiveBatch, SEND_BATCH_SHIFT, Sizing, SizingError, SizingVersion, Wishes,
};
use crate::provider::DeviceAttributes;
use frwr_mempool::mutant;

/// Bytes of an inline call's header without its segments: 28 fixed, and 4 + 16 + 4 for the chunk lists' ends (S17).
const CALL_HEADER_BYTES: u32 = 28 + 4 + 16 + 4;
/// Bytes of a read segment: position, key, length, offset (S17).
const READ_SEGMENT_BYTES: u32 = 24;
/// Bytes of an inline reply's header without its segments (S17).
const REPLY_HEADER_BYTES: u32 = 28 + 4 + 4;
/// Bytes of a write segment: key, length, offset (S17).
const WRITE_SEGMENT_BYTES: u32 = 16;
/// Words of a header buffer without its segments: four fixed ones, three list ends (S17).
const HEADER_WORDS: u32 = 4 + 3;
/// Words of the largest segment in a header buffer (S17).
const SEGMENT_WORDS: u32 = 6;
/// Work requests of a request whose payload fits one MR: register and invalidate for head, pages and tail, one SEND (S5).
const LEAST_WORK_REQUESTS: i64 = 7;

/// The sizes of a connection on a device with `attributes`.
///
/// # Errors
/// The first gate that the device or the wishes do not pass, in the order of S1 to S13.
pub fn size(attributes: &DeviceAttributes, wishes: &Wishes) -> Result<Sizing, SizingError> {
    check_wishes(wishes)?;
    check_extensions(attributes, wishes)?;
    let max_send_sge = send_elements(attributes, wishes)?;
    let request = request_shape(attributes, wishes);
    // F3: the reserve is multiplied, and lost.
    let queues = if wishes.version == SizingVersion::FourX || mutant!(F3) {
        queues_multiplying_reserve(attributes, wishes, request.work_requests)?
    } else {
        queues_adding_reserve(attributes, wishes, request.work_requests)?
    };
    let max_recv_wr = receive_queue(attributes, wishes, queues.requests)?;
    check_completion_queues(attributes, queues.send.max(max_recv_wr))?;
    let max_rdma_segments = rdma_segments(wishes, &request)?;
    Ok(Sizing {
        max_send_sge,
        max_recv_sge: RECEIVE_ELEMENTS,
        max_send_wr: queues.send,
        max_recv_wr,
        max_requests: queues.requests,
        mr_depth: request.depth,
        mr_type: mr_type(attributes, wishes),
        work_requests_per_request: narrow(request.work_requests),
        max_rdma_segments,
        max_payload_pages: payload_pages(wishes, &request),
        send_batch: queues.requests >> SEND_BATCH_SHIFT,
        send_cq_entries: queues.send,
        receive_cq_entries: max_recv_wr,
        max_inline_call: inline_bytes(
            wishes.inline_send_bytes,
            CALL_HEADER_BYTES,
            READ_SEGMENT_BYTES,
            max_rdma_segments,
        ),
        max_inline_reply: inline_bytes(
            wishes.inline_receive_bytes,
            REPLY_HEADER_BYTES,
            WRITE_SEGMENT_BYTES,
            max_rdma_segments,
        ),
        header_buffer_bytes: header_buffer_bytes(max_rdma_segments),
    })
}

/// What one request needs.
struct Shape {
    /// Pages of the largest payload, with one more for its misalignment (RPCRDMA_MAX_DATA_SEGS).
    data_pages: u32,
    /// Elements of one MR.
    depth: u32,
    /// Send queue entries.
    work_requests: i64,
}

/// Requests in flight and the send queue that they take.
struct Queues {
    requests: u32,
    send: u32,
}

fn check_wishes(wishes: &Wishes) -> Result<(), SizingError> {
    if !wishes.page_size.is_power_of_two() {
        return Err(SizingError::PageSizeInvalid { page_size: wishes.page_size });
    }
    let batch = match wishes.receive_batch {
        ReceiveBatch::Fixed(batch) => batch,
        ReceiveBatch::QuarterOfRequests => 0,
    };
    for (wish, value, least, most) in [
        ("requests", wishes.requests, 1, MAX_REQUESTS),
        ("payload_bytes", wishes.payload_bytes, 1, u32::MAX),
        ("header_segments", wishes.header_segments, 1, MAX_HEADER_SEGMENTS),
        ("backward_requests", wishes.backward_requests, 0, MAX_REQUESTS),
        ("receive_batch", batch, 0, MAX_REQUESTS),
        ("ranges_per_request", wishes.ranges_per_request.unwrap_or(1), 1, u32::MAX),
    ] {
        if value < least || value > most {
            return Err(SizingError::WishOutOfRange { wish, value, least, most });
        }
    }
    Ok(())
}

/// S1; a window needs no page list (U13).
fn check_extensions(attributes: &DeviceAttributes, wishes: &Wishes) -> Result<(), SizingError> {
    if !attributes.memory_management_extensions {
        return Err(SizingError::NoMemoryExtensions);
    }
    if wishes.ranges_per_request.is_none() && attributes.max_fast_reg_page_list_len == 0 {
        return Err(SizingError::NoPageList);
    }
    Ok(())
}

/// S2.
fn send_elements(attributes: &DeviceAttributes, wishes: &Wishes) -> Result<u32, SizingError> {
    let most = MIN_SEND_ELEMENTS + INLINE_PAGE_BYTES / wishes.page_size;
    let elements = attributes.max_send_sge.min(most);
    if elements < MIN_SEND_ELEMENTS {
        return Err(SizingError::TooFewSendElements { have: elements, need: MIN_SEND_ELEMENTS });
    }
    Ok(elements)
}

/// S4, S5; for windows one range each (U7).
fn request_shape(attributes: &DeviceAttributes, wishes: &Wishes) -> Shape {
    let data_pages = narrow(i64::from(wishes.payload_bytes) / i64::from(wishes.page_size) + 1);
    if let Some(ranges) = wishes.ranges_per_request {
        return Shape { data_pages, depth: 1, work_requests: 1 + 2 * i64::from(ranges) };
    }
    let page_list = attributes.max_fast_reg_page_list_len;
    let hinted = wishes.depth_hint && attributes.max_sge_rd > wishes.header_segments;
    // F14: a hint above the page list's length would only fail later, at allocation.
    let hint = if mutant!(F14) { attributes.max_sge_rd } else { attributes.max_sge_rd.min(page_list) };
    let depth = if hinted { hint } else { page_list }.min(data_pages);
    // A request that one MR covers takes the least; every further MR of its payload one registration and invalidation.
    let further = i64::from(data_pages.div_ceil(depth)) - 1;
    Shape { data_pages, depth, work_requests: LEAST_WORK_REQUESTS + 2 * further }
}

/// S3.
fn mr_type(attributes: &DeviceAttributes, wishes: &Wishes) -> MrType {
    match (wishes.ranges_per_request, attributes.sg_gaps) {
        (Some(_), _) => MrType::Window,
        (None, true) => MrType::SgGaps,
        (None, false) => MrType::MemReg,
    }
}

/// S6, S7: the reserve stands beside the requests.
fn queues_adding_reserve(
    attributes: &DeviceAttributes,
    wishes: &Wishes,
    work_requests: i64,
) -> Result<Queues, SizingError> {
    let pad = if wishes.pad_slot { PAD_SLOTS } else { 0 };
    let reserve = i64::from(wishes.backward_requests) + i64::from(DRAIN_SLOTS) + i64::from(pad);
    let budget = i64::from(attributes.max_qp_wr) - reserve;
    // F1: compared without its sign.
    let too_small = if mutant!(F1) { (budget as u32) < LEAST_BUDGET } else { budget < i64::from(LEAST_BUDGET) };
    if too_small {
        let need = narrow(reserve + i64::from(LEAST_BUDGET));
        return Err(SizingError::QueueTooSmall { have: attributes.max_qp_wr, need });
    }
    let requests = i64::from(wishes.requests).min(budget).min(budget / work_requests);
    if requests == 0 {
        return Err(SizingError::RequestsDoNotFit { budget: narrow(budget), need: narrow(work_requests) });
    }
    Ok(Queues { requests: narrow(requests), send: narrow(requests * work_requests + reserve) })
}

/// S14: the reserve is multiplied, and lost where the queue is too small (F3).
fn queues_multiplying_reserve(
    attributes: &DeviceAttributes,
    wishes: &Wishes,
    work_requests: i64,
) -> Result<Queues, SizingError> {
    let limit = i64::from(attributes.max_qp_wr);
    let wished =
        (i64::from(wishes.requests) + i64::from(wishes.backward_requests) + i64::from(DRAIN_SLOTS)) * work_requests;
    if wished <= limit {
        return Ok(Queues { requests: wishes.requests, send: narrow(wished) });
    }
    let requests = limit / work_requests;
    if requests == 0 {
        return Err(SizingError::RequestsDoNotFit { budget: attributes.max_qp_wr, need: narrow(work_requests) });
    }
    Ok(Queues { requests: narrow(requests), send: narrow(requests * work_requests) })
}

/// S8, F2.
fn receive_queue(attributes: &DeviceAttributes, wishes: &Wishes, requests: u32) -> Result<u32, SizingError> {
    let batch = match (wishes.version, wishes.receive_batch) {
        (SizingVersion::FiveX | SizingVersion::FourX, _) => 0,
        (SizingVersion::Newest, ReceiveBatch::Fixed(batch)) => batch,
        (SizingVersion::Newest, ReceiveBatch::QuarterOfRequests) => requests / 4,
    };
    let need =
        narrow(i64::from(requests) + i64::from(wishes.backward_requests) + i64::from(batch) + i64::from(DRAIN_SLOTS));
    if need > attributes.max_qp_wr && !mutant!(F2) {
        return Err(SizingError::ReceiveQueueExceedsLimit { need, limit: attributes.max_qp_wr });
    }
    Ok(need)
}

fn check_completion_queues(attributes: &DeviceAttributes, need: u32) -> Result<(), SizingError> {
    if need > attributes.max_cqe {
        return Err(SizingError::CompletionQueueExceedsLimit { need, limit: attributes.max_cqe });
    }
    Ok(())
}

/// S9, S10, S16.
fn rdma_segments(wishes: &Wishes, request: &Shape) -> Result<u32, SizingError> {
    let limit = wishes.header_segments;
    if let Some(ranges) = wishes.ranges_per_request {
        return if ranges > limit { Err(SizingError::TooManyRanges { ranges, limit }) } else { Ok(ranges) };
    }
    if wishes.version == SizingVersion::FourX {
        // At least one: the depth was cut at the pages of the payload.
        return Ok(request.data_pages / request.depth);
    }
    // Two more, for head and tail of a reply chunk.
    let segments = request.data_pages.div_ceil(request.depth).saturating_add(2).min(limit);
    let need = request.data_pages.saturating_add(EXTRA_SEGMENTS);
    if u64::from(segments) * u64::from(request.depth) < u64::from(need) {
        return Err(SizingError::SegmentsTooFew { segments, depth: request.depth, need });
    }
    Ok(segments)
}

/// S15; elsewhere S10 guarantees the largest payload.
fn payload_pages(wishes: &Wishes, request: &Shape) -> u32 {
    match wishes.version {
        SizingVersion::FourX => request.data_pages.min(wishes.header_segments.saturating_mul(request.depth)),
        SizingVersion::Newest | SizingVersion::FiveX => request.data_pages,
    }
}

/// S17: what a message has left beside its header.
fn inline_bytes(message: u32, header: u32, segment: u32, segments: u32) -> u32 {
    // 4.1x has no cap on segments, hence the care.
    message.saturating_sub(header.saturating_add(segments.saturating_mul(segment)))
}

/// S17.
fn header_buffer_bytes(segments: u32) -> u32 {
    let bytes = HEADER_WORDS.saturating_add(segments.saturating_mul(SEGMENT_WORDS)).saturating_mul(4);
    bytes.checked_next_power_of_two().unwrap_or(u32::MAX)
}

/// To 32 bits; what does not fit is cut off at the ends, never wrapped around.
fn narrow(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}
