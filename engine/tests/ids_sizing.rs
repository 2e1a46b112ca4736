//! Capability query and sizing: S1 to S17 and the defects F1 to F3.

use frwr_engine::provider::DeviceAttributes;
use frwr_engine::sizing::{MrType, ReceiveBatch, Sizing, SizingError, SizingVersion, Wishes, size};
use proptest::prelude::*;

fn roomy() -> DeviceAttributes {
    DeviceAttributes {
        memory_management_extensions: true,
        max_fast_reg_page_list_len: 512,
        sg_gaps: false,
        max_send_sge: 32,
        max_sge_rd: 1,
        max_qp_wr: u32::MAX,
        max_cqe: u32::MAX,
        max_registrations: u32::MAX,
        max_rdma_reads: 16,
        max_srq: 0,
        max_srq_wr: 0,
    }
}

fn with_depth(page_list: u32) -> DeviceAttributes {
    DeviceAttributes { max_fast_reg_page_list_len: page_list, ..roomy() }
}

fn newest(attributes: &DeviceAttributes) -> Result<Sizing, SizingError> {
    size(attributes, &Wishes::default())
}

fn name_of(result: Result<Sizing, SizingError>) -> &'static str {
    result.expect_err("refused").name()
}

#[test]
fn s01_capability_gate() {
    for (extensions, length, error) in
        [(false, 512, "no_memory_extensions"), (true, 0, "no_page_list"), (false, 0, "no_memory_extensions")]
    {
        let attributes = DeviceAttributes { memory_management_extensions: extensions, ..with_depth(length) };
        assert_eq!(name_of(newest(&attributes)), error);
    }
    // One entry passes this gate and is caught by the last one.
    assert_eq!(name_of(newest(&with_depth(1))), "segments_too_few");
}

#[test]
fn s02_send_elements() {
    for (have, expected) in [(3, 3), (18, 18), (19, 19), (64, 19)] {
        let sizing = newest(&DeviceAttributes { max_send_sge: have, ..roomy() }).expect("accepted");
        assert_eq!((sizing.max_send_sge, sizing.max_recv_sge), (expected, 1));
    }
    let few = DeviceAttributes { max_send_sge: 2, ..roomy() };
    assert_eq!(newest(&few), Err(SizingError::TooFewSendElements { have: 2, need: 3 }));
    // The gate stands behind S1 and before every other.
    assert_eq!(
        name_of(newest(&DeviceAttributes { memory_management_extensions: false, ..few })),
        "no_memory_extensions"
    );
    assert_eq!(name_of(newest(&DeviceAttributes { max_qp_wr: 1, ..few })), "too_few_send_elements");
}

#[test]
fn s03_registration_type() {
    for (sg_gaps, mr_type, name) in [(false, MrType::MemReg, "mem_reg"), (true, MrType::SgGaps, "sg_gaps")] {
        let sizing = newest(&DeviceAttributes { sg_gaps, ..roomy() }).expect("accepted");
        assert_eq!((sizing.mr_type, sizing.mr_type.name()), (mr_type, name));
    }
}

#[test]
fn s04_d16_registration_depth() {
    for (sge_rd, length, depth) in [(16, 30, 30), (17, 512, 17), (1000, 65535, 257), (1, 65535, 257)] {
        let attributes = DeviceAttributes { max_sge_rd: sge_rd, ..with_depth(length) };
        assert_eq!(newest(&attributes).expect("accepted").mr_depth, depth);
    }
    // Switched off, the list's length alone decides.
    let attributes = DeviceAttributes { max_sge_rd: 17, ..with_depth(512) };
    let plain = size(&attributes, &Wishes::default().depth_hint(false)).expect("accepted");
    assert_eq!(plain.mr_depth, 257);
}

#[test]
fn f14_hint_never_exceeds_the_page_list() {
    let attributes = DeviceAttributes { max_sge_rd: 300, ..with_depth(100) };
    assert_eq!(newest(&attributes).expect("accepted").mr_depth, 100);
}

#[test]
fn s05_work_requests_per_request() {
    let wishes = Wishes::default().header_segments(256).payload_bytes(1 << 20);
    for (depth, work_requests) in [(257, 7), (256, 9), (128, 11), (30, 23), (17, 37), (16, 39)] {
        let sizing = size(&with_depth(depth), &wishes).expect("accepted");
        assert_eq!(sizing.work_requests_per_request, work_requests, "depth {depth}");
    }
    // A depth of one passes no gate but shows its need in the error.
    let small = DeviceAttributes { max_qp_wr: 100, ..with_depth(1) };
    assert_eq!(newest(&small), Err(SizingError::RequestsDoNotFit { budget: 67, need: 519 }));
}

#[test]
fn s06_f01_negative_budget_is_refused() {
    for entries in [0, 16, 32, 33, 36] {
        let attributes = DeviceAttributes { max_qp_wr: entries, ..roomy() };
        assert_eq!(newest(&attributes), Err(SizingError::QueueTooSmall { have: entries, need: 37 }));
    }
    let attributes = DeviceAttributes { max_qp_wr: 37, ..roomy() };
    assert_eq!(newest(&attributes), Err(SizingError::RequestsDoNotFit { budget: 4, need: 7 }));
}

#[test]
fn s07_requests_and_send_queue() {
    let attributes = DeviceAttributes { max_qp_wr: 1024, ..with_depth(128) };
    let sizing = newest(&attributes).expect("accepted");
    assert_eq!((sizing.max_requests, sizing.max_send_wr), (90, 90 * 11 + 33));
    let modest = size(&attributes, &Wishes::default().requests(5)).expect("accepted");
    assert_eq!((modest.max_requests, modest.max_send_wr), (5, 5 * 11 + 33));
}

#[test]
fn s07_d19_pad_slot() {
    let wishes = Wishes::default().pad_slot(true);
    assert_eq!(size(&roomy(), &wishes).expect("accepted").max_send_wr, 930);
    // The slot is taken before the requests are counted.
    let exact = DeviceAttributes { max_qp_wr: 929, ..roomy() };
    let sizing = size(&exact, &wishes).expect("accepted");
    assert_eq!((sizing.max_requests, sizing.max_send_wr), (127, 923));
}

#[test]
fn s08_d20_receive_queue() {
    for (receive_batch, expected) in [
        (ReceiveBatch::Fixed(7), 168),
        (ReceiveBatch::Fixed(0), 161),
        (ReceiveBatch::QuarterOfRequests, 128 + 32 + 32 + 1),
    ] {
        let sizing = size(&roomy(), &Wishes::default().receive_batch(receive_batch)).expect("accepted");
        assert_eq!((sizing.max_recv_wr, sizing.receive_cq_entries), (expected, expected));
    }
    let no_reverse = Wishes::default().backward_requests(0);
    assert_eq!(size(&roomy(), &no_reverse).expect("accepted").max_recv_wr, 136);
}

#[test]
fn f02_receive_queue_is_checked() {
    let attributes = DeviceAttributes { max_qp_wr: 40, ..roomy() };
    let error = newest(&attributes).expect_err("41 receives on a device that holds 40");
    assert_eq!(error.name(), "receive_queue_exceeds_limit");
    assert!(error.to_string().contains("41") && error.to_string().contains("40"), "{error}");
    assert!(newest(&DeviceAttributes { max_qp_wr: 41, ..roomy() }).is_ok());
}

#[test]
fn s09_d17_segments_per_chunk_list() {
    for (depth, segments) in [(257, 3), (128, 5), (30, 11), (20, 15), (19, 16), (17, 16)] {
        assert_eq!(newest(&with_depth(depth)).expect("accepted").max_rdma_segments, segments, "depth {depth}");
    }
    let wider = Wishes::default().header_segments(20);
    assert_eq!(size(&with_depth(17), &wider).expect("accepted").max_rdma_segments, 18);
}

#[test]
fn s10_least_useful_device() {
    assert_eq!(newest(&with_depth(16)), Err(SizingError::SegmentsTooFew { segments: 16, depth: 16, need: 260 }));
    assert!(newest(&with_depth(17)).is_ok());
    // Payload pages alone are not enough: head, tail and a page crossing come on top.
    let one = Wishes::default().header_segments(1);
    assert_eq!(size(&with_depth(512), &one), Err(SizingError::SegmentsTooFew { segments: 1, depth: 257, need: 260 }));
    let older = Wishes::default().header_segments(8);
    assert_eq!(name_of(size(&with_depth(32), &older)), "segments_too_few");
    assert!(size(&with_depth(33), &older).is_ok());
}

#[test]
fn s11_page_size() {
    let wishes = Wishes::default().page_size(65536);
    let sizing = size(&with_depth(512), &wishes).expect("accepted");
    assert_eq!(
        (sizing.mr_depth, sizing.max_send_sge, sizing.work_requests_per_request, sizing.max_rdma_segments),
        (17, 4, 7, 3)
    );
    assert!(size(&with_depth(2), &wishes).is_ok());
    assert_eq!(size(&with_depth(1), &wishes), Err(SizingError::SegmentsTooFew { segments: 16, depth: 1, need: 20 }));
}

#[test]
fn s12_d18_one_error_per_gate() {
    let limits = |max_qp_wr| DeviceAttributes { max_qp_wr, ..roomy() };
    let results = [
        newest(&DeviceAttributes { memory_management_extensions: false, ..roomy() }),
        newest(&with_depth(0)),
        newest(&DeviceAttributes { max_send_sge: 2, ..roomy() }),
        newest(&limits(36)),
        newest(&limits(37)),
        newest(&limits(40)),
        newest(&DeviceAttributes { max_cqe: 928, ..roomy() }),
        newest(&with_depth(16)),
        size(&roomy(), &Wishes::default().ranges_per_request(Some(17))),
        size(&roomy(), &Wishes::default().page_size(4095)),
        size(&roomy(), &Wishes::default().requests(0)),
    ];
    let mut names = results.map(name_of).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), results.len(), "{names:?}");
}

#[test]
fn s13_derived_values() {
    let sizing = newest(&roomy()).expect("accepted");
    assert_eq!((sizing.send_batch, sizing.send_cq_entries, sizing.receive_cq_entries), (16, 929, 168));
    let seven = size(&roomy(), &Wishes::default().requests(7)).expect("accepted");
    assert_eq!((seven.max_requests, seven.send_batch), (7, 0));
    assert!(newest(&DeviceAttributes { max_cqe: 929, ..roomy() }).is_ok());
    assert_eq!(
        newest(&DeviceAttributes { max_cqe: 928, ..roomy() }),
        Err(SizingError::CompletionQueueExceedsLimit { need: 929, limit: 928 })
    );
}

#[test]
fn s14_f03_reserve_is_multiplied_then_lost() {
    let attributes = DeviceAttributes { max_qp_wr: 929, ..roomy() };
    let older = size(&attributes, &Wishes::of(SizingVersion::FourX)).expect("accepted");
    assert_eq!((older.max_requests, older.max_send_wr), (132, 924));
    for (max_qp_wr, requests, send) in [(959, 128, 959), (958, 136, 952)] {
        let sizing = size(&DeviceAttributes { max_qp_wr, ..roomy() }, &Wishes::of(SizingVersion::FourX));
        assert_eq!(sizing.map(|sizing| (sizing.max_requests, sizing.max_send_wr)), Ok((requests, send)));
    }
    // The newest formula never grants more than was asked for.
    let newer = newest(&attributes).expect("accepted");
    assert_eq!((newer.max_requests, newer.max_send_wr), (128, 929));
    let tiny = DeviceAttributes { max_qp_wr: 6, ..roomy() };
    assert_eq!(
        size(&tiny, &Wishes::of(SizingVersion::FourX)),
        Err(SizingError::RequestsDoNotFit { budget: 6, need: 7 })
    );
}

#[test]
fn s15_largest_payload() {
    for (depth, pages) in [(16, 128), (30, 240), (32, 256), (33, 257), (257, 257)] {
        let older = size(&with_depth(depth), &Wishes::of(SizingVersion::FourX)).expect("accepted");
        assert_eq!(older.max_payload_pages, pages, "depth {depth}");
    }
    assert_eq!(newest(&with_depth(17)).expect("accepted").max_payload_pages, 257);
}

#[test]
fn s16_older_segment_count() {
    for (depth, older, newer) in [(257, 1, 3), (128, 2, 5), (30, 8, 11), (17, 15, 16)] {
        let sizing = size(&with_depth(depth), &Wishes::of(SizingVersion::FourX)).expect("accepted");
        assert_eq!(sizing.max_rdma_segments, older, "depth {depth}");
        assert_eq!(newest(&with_depth(depth)).expect("accepted").max_rdma_segments, newer, "depth {depth}");
    }
}

#[test]
fn s17_inline_limits() {
    let sizing = newest(&roomy()).expect("accepted");
    assert_eq!((sizing.max_inline_call, sizing.max_inline_reply, sizing.header_buffer_bytes), (3972, 4012, 128));
    assert_eq!(newest(&with_depth(30)).expect("accepted").header_buffer_bytes, 512);
    // Where the header leaves no room, nothing fits inline.
    let tiny = Wishes::default().inline_send_bytes(64).inline_receive_bytes(64);
    let sizing = size(&roomy(), &tiny).expect("accepted");
    assert_eq!((sizing.max_inline_call, sizing.max_inline_reply), (0, 0));
}

#[test]
fn u07_windows() {
    let wishes = Wishes::default().ranges_per_request(Some(2)).requests(32);
    // No page list is needed, but work requests that register are.
    let sizing = size(&with_depth(0), &wishes).expect("accepted");
    assert_eq!((sizing.mr_type.name(), sizing.mr_depth), ("window", 1));
    assert_eq!((sizing.work_requests_per_request, sizing.max_send_wr), (5, 32 * 5 + 33));
    assert_eq!(sizing.max_rdma_segments, 2);
    assert_eq!(
        size(&roomy(), &wishes.ranges_per_request(Some(17))),
        Err(SizingError::TooManyRanges { ranges: 17, limit: 16 })
    );
    assert_eq!(name_of(size(&roomy(), &wishes.ranges_per_request(Some(0)))), "wish_out_of_range");
    let none = DeviceAttributes { memory_management_extensions: false, ..roomy() };
    assert_eq!(name_of(size(&none, &wishes)), "no_memory_extensions");
}

#[test]
fn errors_name_limit_value_and_remedy() {
    let error = newest(&DeviceAttributes { max_qp_wr: 36, ..roomy() }).expect_err("refused").to_string();
    assert!(error.contains("max_qp_wr is 36") && error.contains("37") && error.contains("lower"), "{error}");
}

fn any_attributes() -> impl Strategy<Value = DeviceAttributes> {
    let number = || prop_oneof![0u32..64, 0u32..70_000, any::<u32>()];
    (any::<bool>(), any::<bool>(), number(), number(), number(), number(), number()).prop_map(
        |(extensions, sg_gaps, page_list, sge_rd, send_sge, qp_wr, cqe)| DeviceAttributes {
            memory_management_extensions: extensions,
            max_fast_reg_page_list_len: page_list,
            sg_gaps,
            max_send_sge: send_sge,
            max_sge_rd: sge_rd,
            max_qp_wr: qp_wr,
            max_cqe: cqe,
            max_registrations: u32::MAX,
            max_rdma_reads: 16,
            max_srq: 0,
            max_srq_wr: 0,
        },
    )
}

fn any_wishes() -> impl Strategy<Value = Wishes> {
    let number = || prop_oneof![0u32..64, any::<u32>()];
    let version = prop_oneof![Just(SizingVersion::Newest), Just(SizingVersion::FiveX), Just(SizingVersion::FourX)];
    let shape = (0u32..32, any::<bool>(), any::<bool>(), proptest::option::of(number()));
    (version, 0u32..20_000, number(), 0u32..300, number(), shape, number(), number()).prop_map(
        |(version, requests, payload_bytes, header_segments, backward_requests, shape, batch, inline)| {
            Wishes::default()
                .version(version)
                .requests(requests)
                .page_size(1 << shape.0)
                .payload_bytes(payload_bytes)
                .header_segments(header_segments)
                .backward_requests(backward_requests)
                .receive_batch(ReceiveBatch::Fixed(batch))
                .depth_hint(shape.1)
                .pad_slot(shape.2)
                .ranges_per_request(shape.3)
                .inline_send_bytes(inline)
                .inline_receive_bytes(inline)
        },
    )
}

proptest! {
    /// Whatever a device says and a caller wishes: no panic, and no result beyond the device or the wish.
    #[test]
    fn s07_s08_results_stay_inside_device_and_wish(attributes in any_attributes(), wishes in any_wishes()) {
        if let Ok(sizing) = size(&attributes, &wishes) {
            prop_assert!(sizing.max_send_wr <= attributes.max_qp_wr);
            prop_assert!(sizing.max_recv_wr <= attributes.max_qp_wr);
            prop_assert!(sizing.send_cq_entries.max(sizing.receive_cq_entries) <= attributes.max_cqe);
            prop_assert!(sizing.max_send_sge <= attributes.max_send_sge);
            prop_assert!(sizing.max_requests >= 1);
            let taken = u64::from(sizing.max_requests) * u64::from(sizing.work_requests_per_request);
            prop_assert!(taken <= u64::from(sizing.max_send_wr));
            if wishes.version != SizingVersion::FourX {
                prop_assert!(sizing.max_requests <= wishes.requests);
                prop_assert!(sizing.max_rdma_segments <= wishes.header_segments);
            }
            if wishes.ranges_per_request.is_none() {
                prop_assert!(sizing.mr_depth >= 1);
                prop_assert!(sizing.mr_depth <= attributes.max_fast_reg_page_list_len);
            }
        }
    }

    /// A device that passes keeps passing when it gets more queue entries.
    #[test]
    fn s07_more_queue_never_hurts(depth in 17u32..600, entries in 0u32..4096) {
        let attributes = DeviceAttributes { max_qp_wr: entries, ..with_depth(depth) };
        let larger = DeviceAttributes { max_qp_wr: entries + 1, ..attributes };
        if let Ok(sizing) = newest(&attributes) {
            let more = newest(&larger);
            prop_assert!(more.is_ok_and(|more| more.max_requests >= sizing.max_requests));
        }
    }
}
