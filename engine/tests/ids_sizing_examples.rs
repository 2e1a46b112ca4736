//! The worked sizing examples: every row with every column.

use frwr_engine::provider::DeviceAttributes;
use frwr_engine::sizing::{MrType, Sizing, SizingError, SizingVersion, Wishes, size};

/// The columns prl, rd, sge, wr, gaps; extensions on, completion queues without limit.
fn device(page_list: u32, sge_rd: u32, send_sge: u32, qp_wr: u32, sg_gaps: bool) -> DeviceAttributes {
    DeviceAttributes {
        memory_management_extensions: true,
        max_fast_reg_page_list_len: page_list,
        sg_gaps,
        max_send_sge: send_sge,
        max_sge_rd: sge_rd,
        max_qp_wr: qp_wr,
        max_cqe: u32::MAX,
        max_registrations: u32::MAX,
        max_rdma_reads: 16,
        max_srq: 0,
        max_srq_wr: 0,
    }
}

/// The columns fr, depth, requests, max_send_wr, max_recv_wr of N, segs.
fn row(sizing: &Sizing) -> (u32, u32, u32, u32, u32, u32) {
    (
        sizing.mr_depth,
        sizing.work_requests_per_request,
        sizing.max_requests,
        sizing.max_send_wr,
        sizing.max_recv_wr,
        sizing.max_rdma_segments,
    )
}

fn newest(attributes: &DeviceAttributes) -> Result<Sizing, SizingError> {
    size(attributes, &Wishes::default())
}

/// O agrees with N but for the receive queue, which is 7 lower.
#[track_caller]
fn accepted(attributes: &DeviceAttributes, wishes: &Wishes, expected: (u32, u32, u32, u32, u32, u32)) -> Sizing {
    let sizing = size(attributes, wishes).expect("accepted");
    assert_eq!(row(&sizing), expected);
    let five_x = wishes.version(SizingVersion::FiveX);
    let older = size(attributes, &five_x).expect("accepted by 5.x");
    assert_eq!(older, Sizing { max_recv_wr: expected.4 - 7, receive_cq_entries: expected.4 - 7, ..sizing });
    sizing
}

/// The columns of B: send, receive, requests, segments.
#[track_caller]
fn four_x(attributes: &DeviceAttributes, expected: (u32, u32, u32, u32)) -> Sizing {
    let sizing = size(attributes, &Wishes::of(SizingVersion::FourX)).expect("accepted by 4.1x");
    let row = (sizing.max_send_wr, sizing.max_recv_wr, sizing.max_requests, sizing.max_rdma_segments);
    assert_eq!(row, expected);
    sizing
}

fn large_pages() -> Wishes {
    Wishes::default().page_size(65536)
}

#[test]
fn e01_mlx5_like() {
    let attributes = device(65535, 30, 30, 32768, true);
    let sizing = accepted(&attributes, &Wishes::default(), (30, 23, 128, 2977, 168, 11));
    assert_eq!(sizing.mr_type, MrType::SgGaps);
    assert_eq!(four_x(&attributes, (959, 137, 128, 1)).mr_depth, 257);
}

#[test]
fn e01_other_wishes() {
    let attributes = device(65535, 30, 30, 32768, true);
    for (requests, send, receive) in [(1, 56, 41), (4, 125, 44), (16, 401, 56), (256, 5921, 296), (1000, 23033, 1040)] {
        let sizing = size(&attributes, &Wishes::default().requests(requests)).expect("accepted");
        assert_eq!((sizing.max_requests, sizing.max_send_wr, sizing.max_recv_wr), (requests, send, receive));
    }
}

#[test]
fn e02_read_elements_at_the_edge() {
    let attributes = device(511, 16, 32, 16351, false);
    let sizing = accepted(&attributes, &Wishes::default(), (257, 7, 128, 929, 168, 3));
    assert_eq!(sizing.mr_type, MrType::MemReg);
    four_x(&attributes, (959, 137, 128, 1));
}

#[test]
fn e03_one_element_short() {
    let attributes = device(256, 1, 8, 2048, false);
    accepted(&attributes, &Wishes::default(), (256, 9, 128, 1185, 168, 4));
    four_x(&attributes, (1233, 137, 128, 1));
}

#[test]
fn e04_queue_limited() {
    let attributes = device(128, 0, 4, 1024, false);
    accepted(&attributes, &Wishes::default(), (128, 11, 90, 1023, 130, 5));
    four_x(&attributes, (1023, 102, 93, 2));
}

#[test]
fn e05_least_depth() {
    let attributes = device(17, 1, 4, 8192, false);
    accepted(&attributes, &Wishes::default(), (17, 37, 128, 4769, 168, 16));
    four_x(&attributes, (5069, 137, 128, 15));
}

#[test]
fn e06_too_shallow() {
    let attributes = device(16, 1, 4, 8192, false);
    assert_eq!(newest(&attributes), Err(SizingError::SegmentsTooFew { segments: 16, depth: 16, need: 260 }));
    four_x(&attributes, (5343, 137, 128, 16));
}

#[test]
fn e07_too_few_send_elements() {
    let attributes = device(512, 1, 2, 8192, false);
    assert_eq!(newest(&attributes), Err(SizingError::TooFewSendElements { have: 2, need: 3 }));
}

#[test]
fn e08_no_extensions() {
    let attributes = DeviceAttributes { memory_management_extensions: false, ..device(512, 1, 8, 8192, false) };
    assert_eq!(newest(&attributes), Err(SizingError::NoMemoryExtensions));
    assert_eq!(size(&attributes, &Wishes::of(SizingVersion::FourX)), Err(SizingError::NoMemoryExtensions));
}

#[test]
fn e09_no_page_list() {
    let attributes = device(0, 30, 8, 8192, false);
    assert_eq!(newest(&attributes), Err(SizingError::NoPageList));
    assert_eq!(size(&attributes, &Wishes::of(SizingVersion::FourX)), Err(SizingError::NoPageList));
}

#[test]
fn e10_queue_of_36() {
    let attributes = device(512, 1, 8, 36, false);
    assert_eq!(newest(&attributes), Err(SizingError::QueueTooSmall { have: 36, need: 37 }));
    four_x(&attributes, (35, 14, 5, 1));
}

#[test]
fn e11_queue_of_37() {
    let attributes = device(512, 1, 8, 37, false);
    assert_eq!(newest(&attributes), Err(SizingError::RequestsDoNotFit { budget: 4, need: 7 }));
    four_x(&attributes, (35, 14, 5, 1));
}

/// By the kernel's formula 41 receives are accepted on a device that holds 40 (F2); here they are refused by name.
#[test]
fn e12_f02_queue_of_40() {
    let attributes = device(512, 1, 8, 40, false);
    assert_eq!(newest(&attributes), Err(SizingError::ReceiveQueueExceedsLimit { need: 41, limit: 40 }));
    let five_x = size(&attributes, &Wishes::of(SizingVersion::FiveX)).expect("34 receives fit");
    assert_eq!(row(&five_x), (257, 7, 1, 40, 34, 3));
    let one_more = newest(&device(512, 1, 8, 41, false)).expect("41 receives fit");
    assert_eq!(row(&one_more), (257, 7, 1, 40, 41, 3));
    four_x(&attributes, (35, 14, 5, 1));
}

#[test]
fn e13_queue_of_16() {
    let attributes = device(512, 1, 8, 16, false);
    assert_eq!(newest(&attributes), Err(SizingError::QueueTooSmall { have: 16, need: 37 }));
    four_x(&attributes, (14, 11, 2, 1));
}

#[test]
fn e14_read_elements_just_above() {
    let attributes = device(512, 17, 8, 32768, false);
    accepted(&attributes, &Wishes::default(), (17, 37, 128, 4769, 168, 16));
    four_x(&attributes, (959, 137, 128, 1));
}

/// By the kernel's formula the depth is 257 on a list of 30 (F14); here the list's length holds.
#[test]
fn e15_f14_read_elements_huge() {
    let attributes = device(30, 1000, 64, 4096, false);
    accepted(&attributes, &Wishes::default(), (30, 23, 128, 2977, 168, 11));
    four_x(&attributes, (3151, 137, 128, 8));
}

#[test]
fn e16_exact_fit() {
    let attributes = device(512, 1, 8, 929, false);
    accepted(&attributes, &Wishes::default(), (257, 7, 128, 929, 168, 3));
    four_x(&attributes, (924, 141, 132, 1));
}

#[test]
fn e17_one_below_the_fit() {
    let attributes = device(512, 1, 8, 928, false);
    accepted(&attributes, &Wishes::default(), (257, 7, 127, 922, 167, 3));
    four_x(&attributes, (924, 141, 132, 1));
}

#[test]
fn e18_large_pages() {
    let sizing = accepted(&device(65535, 30, 30, 32768, true), &large_pages(), (17, 7, 128, 929, 168, 3));
    assert_eq!(sizing.max_send_sge, 4);
    assert_eq!(sizing.mr_type, MrType::SgGaps);
}

#[test]
fn e19_large_pages_two_entries() {
    accepted(&device(2, 1, 4, 8192, false), &large_pages(), (2, 23, 128, 2977, 168, 11));
}

#[test]
fn e20_large_pages_one_entry() {
    assert_eq!(
        size(&device(1, 1, 4, 8192, false), &large_pages()),
        Err(SizingError::SegmentsTooFew { segments: 16, depth: 1, need: 20 })
    );
}
