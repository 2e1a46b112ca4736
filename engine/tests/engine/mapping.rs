//! Section 1.C as far as the engine is concerned: from the caller's segments to what the device and the peer are told.

use frwr_engine::{
    Chunk, IovaPolicy, MemoryAccess, RequestHandle, SubmitError,
    gather::{GatherError, MemoryId, Segment},
    mr::Grant,
    provider::{Access, Port, record::RecordedOperation},
};
use frwr_support::engine_harness::{self, DATA_BYTES, PROFILES, Pair, Setup, Watched};

const COOKIE: u64 = 0x0A0B_0C0D;

/// A page of the host's data memory; its address starts a page.
fn pages(pair: &Watched, first: u64, count: u64) -> Vec<Segment> {
    (first..first + count).map(|page| pair.pair.host.segment(page * 4096, 4096)).collect()
}

/// What the peer decodes from the next message.
fn decoded(pair: &mut Watched) -> ([u8; 8], Vec<Grant>) {
    pair.until("arrived", |pair| !pair.target.commands.is_empty());
    pair.pair.target.take_command().unwrap()
}

/// The registrations that the host posted: key, access, base address, elements and length.
fn registrations(pair: &mut Watched) -> Vec<(u32, Access, u64, u32, u64)> {
    let wrs = pair.host.wrs();
    let fields = wrs.iter().filter_map(|wr| match wr.operation {
        RecordedOperation::Register { key, access, iova, elements, .. } => {
            Some((key, access, iova, elements, wr.length))
        }
        _ => None,
    });
    fields.collect()
}

fn finish(pair: &mut Watched, name: [u8; 8], key: Option<u32>) {
    let ended = pair.pair.host.ended.len();
    pair.pair.target.answer(name, &[], key);
    pair.until("ended", |pair| pair.host.ended.len() > ended);
}

/// A registration depth of three pages.
fn depth_three() -> Setup {
    Setup::new("reg_mr")
        .device(|soft| soft.capabilities.attributes.max_fast_reg_page_list_len = 3)
        .host(|host| (host.wishes.payload_bytes, host.queue_depth) = (4 * 4096, 8))
}

#[test]
fn s28_f18_the_window_is_the_list_of_the_device() {
    let mut pair = depth_three().watched();
    pair.clear();
    let segments = pages(&pair, 0, 5);
    pair.pair.host.submit(1, Access::RemoteWrite, &segments, false).unwrap();
    let (name, grants) = decoded(&mut pair);
    let elements: Vec<_> = registrations(&mut pair).iter().map(|fields| (fields.3, fields.4)).collect();
    assert_eq!(elements, [(3, 3 * 4096), (2, 2 * 4096)]);
    assert_eq!(grants.iter().map(|grant| grant.length).collect::<Vec<_>>(), [3 * 4096, 2 * 4096]);
    finish(&mut pair, name, None);
}

/// Requests whose MRs lie side by side, each of more segments than its MR has elements: they continue one another.
#[test]
fn s28_f18_segments_that_share_an_entry_leave_the_neighbours_alone() {
    for (profile, depth, length) in [("window", 1, 4096), ("rxe", 1, 4096), ("reg_mr", 2, 1000)] {
        let mut pair = Setup::new(profile)
            .device(|soft| soft.capabilities.attributes.max_fast_reg_page_list_len = depth)
            .host(|host| (host.wishes.payload_bytes, host.queue_depth) = (2 * 4096, 8))
            .watched();
        pair.clear();
        // All in one chain, so that each still needs its elements when the next one is mapped.
        for request in 0..4 {
            let at = |part: u64| pair.pair.host.segment(request * 16384 + part * u64::from(length), length);
            let segments: Vec<_> = (0..4).map(at).collect();
            pair.pair.host.submit(request, Access::RemoteWrite, &segments, false).unwrap();
        }
        for request in 0..4 {
            let (name, grants) = decoded(&mut pair);
            let sum: u32 = grants.iter().map(|grant| grant.length).sum();
            assert_eq!(sum, 4 * length, "{profile}");
            let ended = pair.pair.host.ended.len();
            pair.pair.target.answer(name, &grants, None);
            pair.until("ended", |pair| pair.host.ended.len() > ended);
            assert_eq!(pair.pair.host.ended[request].1, "replied", "{profile}");
        }
    }
}

#[test]
fn s28_f14_f18_a_long_segment_is_cut_by_pages_not_by_elements() {
    // The hint of the device's RDMA READ elements lies above its list; the list decides.
    let mut pair = depth_three().device(|soft| soft.capabilities.attributes.max_sge_rd = 1000).watched();
    pair.clear();
    let segment = pair.pair.host.segment(100, 5 * 4096);
    pair.pair.host.submit(1, Access::RemoteWrite, &[segment], false).unwrap();
    let (name, grants) = decoded(&mut pair);
    let lengths: Vec<_> = grants.iter().map(|grant| u64::from(grant.length)).collect();
    assert_eq!(lengths, [3 * 4096 - 100, 2 * 4096 + 100]);
    let recorded: Vec<_> = registrations(&mut pair).iter().map(|fields| fields.4).collect();
    assert_eq!(recorded, lengths, "what the device registers is what the peer is told");
    finish(&mut pair, name, None);
}

#[test]
fn s32_d28_the_peer_has_the_one_right_that_the_chunk_gives() {
    for profile in PROFILES {
        for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteReadWrite] {
            for write in [false, true] {
                let mut pair = Setup::new(profile).watched();
                pair.clear();
                let segment = pair.pair.host.segment(4096, 4096);
                pair.pair.host.submit(1, access, &[segment], false).unwrap();
                let (name, grants) = decoded(&mut pair);
                assert_eq!(registrations(&mut pair)[0].1, access);
                let permitted = if write { access.permits_write() } else { access.permits_read() };
                if write {
                    pair.pair.target.answer(name, &grants, None);
                } else {
                    fetch(&mut pair.pair.target, &grants[0]);
                }
                pair.until("executed or refused", |pair| {
                    pair.target.fetched + pair.host.disconnected > 0 || pair.host.ended.len() == 1
                });
                pair.steps(100);
                let done = pair.pair.target.disconnected + pair.pair.host.disconnected == 0;
                assert_eq!(done, permitted, "{profile} {access:?} write {write}");
            }
        }
    }
}

fn fetch<D: frwr_engine::provider::Device>(target: &mut engine_harness::Side<D>, grant: &Grant) {
    let remote = frwr_engine::RemoteSegment {
        remote: frwr_engine::provider::RemoteRange { address: grant.address, key: grant.key },
        length: grant.length,
    };
    let local = [target.segment(0, grant.length)];
    let request = frwr_engine::FetchRequest { local: &local, remote: &[remote], cookie: 1 };
    target.engine.fetch(target.connection.unwrap(), &request).unwrap();
}

#[test]
fn s32_chunks_of_one_request_have_rights_of_their_own() {
    let mut pair = Setup::new("reg_mr").watched();
    pair.clear();
    let (read, write) = (pages(&pair, 0, 2), pages(&pair, 2, 1));
    let chunks = [
        Chunk { access: Access::RemoteRead, segments: &read },
        Chunk { access: Access::RemoteWrite, segments: &write },
    ];
    pair.pair.host.submit_chunks(1, &chunks, false).unwrap();
    let (name, grants) = decoded(&mut pair);
    let recorded = registrations(&mut pair);
    assert_eq!(recorded.len(), 2, "chunks never share an MR");
    assert_eq!((recorded[0].1, recorded[0].4), (Access::RemoteRead, 8192));
    assert_eq!((recorded[1].1, recorded[1].4), (Access::RemoteWrite, 4096));
    // S39: handle, offset and length are those of the recorded work requests, in order.
    for (grant, fields) in grants.iter().zip(recorded) {
        assert_eq!((grant.key, grant.address, u64::from(grant.length)), (fields.0, fields.2, fields.4));
    }
    finish(&mut pair, name, None);
}

#[test]
fn s36_s38_s39_d13_the_peer_is_told_the_base_address_of_the_policy() {
    for (policy, expected) in
        [(IovaPolicy::Raw, None), (IovaPolicy::Cookie, Some(COOKIE << 32)), (IovaPolicy::ZeroBased, Some(0))]
    {
        let mut pair = Setup::new("reg_mr").host(|host| host.iova = policy).watched();
        pair.clear();
        let address = pair.pair.host.data.address() + 4096 + 0xA10;
        let segment = pair.pair.host.segment(4096 + 0xA10, 1000);
        pair.pair.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        let (name, grants) = decoded(&mut pair);
        let expected = match expected {
            None => address,
            Some(0) => address & 0xFFFF,
            Some(cookie) => cookie | (address & 0xFFFF_FFFF),
        };
        assert_eq!(grants[0].address, expected, "{policy:?}");
        assert_eq!(registrations(&mut pair)[0].2, expected);
        // The peer reaches all of it, also the last byte.
        pair.pair.target.data.fill(0, 1000, 0x5A).unwrap();
        pair.pair.target.answer(name, &grants, Some(grants[0].key));
        pair.until("ended", |pair| pair.host.ended.len() == 1);
        let mut bytes = [0; 1002];
        pair.pair.host.data.read(4096 + 0xA0F, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[1], bytes[1000], bytes[1001]), (0, 0x5A, 0x5A, 0));
    }
}

#[test]
fn s36_u11_the_rule_of_the_device_overrides_the_policy() {
    for (profile, zero) in [("window", false), ("rxe", false), ("umr", true), ("umr:fixed-key", true)] {
        let mut pair = Setup::new(profile).host(|host| host.iova = IovaPolicy::Cookie).watched();
        pair.clear();
        let segment = pair.pair.host.segment(4096 + 16, 1000);
        pair.pair.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        let (name, grants) = decoded(&mut pair);
        let expected = if zero { 0 } else { pair.pair.host.data.address() + 4096 + 16 };
        assert_eq!(grants[0].address, expected, "{profile}");
        finish(&mut pair, name, None);
    }
}

#[test]
fn s37_s39_the_low_byte_of_the_key_counts_and_the_index_stays() {
    let mut pair = Setup::new("reg_mr").host(|host| (host.queue_depth, host.registrations) = (1, 1)).watched();
    pair.clear();
    let mut keys = Vec::new();
    for cookie in 0..257u64 {
        let segment = pair.pair.host.segment(0, 64);
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[segment], true).unwrap();
        let (name, grants) = decoded(&mut pair);
        assert_eq!(registrations(&mut pair)[0].0, grants[0].key, "the handle is the key of the work request");
        keys.push(grants[0].key);
        finish(&mut pair, name, Some(grants[0].key));
        pair.clear();
    }
    for pair in keys.windows(2) {
        assert_eq!(pair[0] & !0xFF, pair[1] & !0xFF);
        assert_eq!(pair[1] & 0xFF, (pair[0] + 1) & 0xFF);
    }
    assert_eq!(keys[0], keys[256], "256 cycles return to the start");
}

#[test]
fn s37_s58_the_previous_key_is_refused() {
    for profile in PROFILES.iter().filter(|profile| **profile != "umr:fixed-key") {
        let mut pair = Setup::new(profile).host(|host| (host.queue_depth, host.registrations) = (1, 1)).watched();
        let segment = pair.pair.host.segment(0, 64);
        pair.pair.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        let (name, old) = decoded(&mut pair);
        finish(&mut pair, name, Some(old[0].key));
        pair.pair.host.submit(2, Access::RemoteWrite, &[segment], true).unwrap();
        let (name, _) = decoded(&mut pair);
        pair.pair.target.data.fill(0, 64, 0xEE).unwrap();
        pair.pair.target.answer(name, &old, None);
        pair.until("refused", |pair| pair.host.disconnected == 1);
        let mut bytes = [0; 64];
        pair.pair.host.data.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 64], "{profile}: nothing is written through a dead key");
        assert_eq!(pair.pair.host.ended, [(1, "replied"), (2, "lost")]);
    }
}

#[test]
fn s40_s43_s85_s87_a_message_without_room_undoes_everything() {
    let mut pair = Setup::new("reg_mr").watched();
    let connection = pair.pair.host.connection.unwrap();
    let before = pair.pair.host.engine.descriptors(connection);
    let chains = pair.host.counters();
    pair.pair.host.protocol.refuse = true;
    let segments = pair.scattered(3);
    let refused = pair.pair.host.submit(1, Access::RemoteWrite, &segments, true);
    assert_eq!(refused, Err(SubmitError::Unannounced));
    pair.steps(10);
    assert_eq!(pair.pair.host.engine.descriptors(connection), before);
    assert_eq!(pair.host.counters().doorbells, chains.doorbells, "nothing was posted");
    assert_eq!(pair.pair.host.engine.statistics().failed_marshal_count, 1);
    assert_eq!(pair.pair.host.engine.statistics().request_slots_used, 0);
    pair.pair.host.protocol.refuse = false;
    pair.request(2, 3, false, true);
}

#[test]
fn s41_mapping_posts_nothing() {
    let mut pair = Setup::new("reg_mr").watched();
    let before = pair.host.counters();
    let segments = pair.scattered(3);
    pair.pair.host.submit(1, Access::RemoteWrite, &segments, true).unwrap();
    let counters = pair.host.counters();
    assert_eq!((counters.doorbells, counters.registers), (before.doorbells, before.registers));
    assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(0), "the device knows of no key");
    pair.steps(1);
    assert_eq!(pair.host.counters().doorbells, before.doorbells + 1);
}

#[test]
fn s43_more_pieces_than_a_header_holds_are_refused() {
    let mut pair = Setup::new("reg_mr").watched();
    let connection = pair.pair.host.connection.unwrap();
    let before = pair.pair.host.engine.descriptors(connection);
    let segments = pair.scattered(17);
    let submit = |pair: &mut Watched, count: usize| -> Result<RequestHandle, SubmitError> {
        pair.pair.host.submit(1, Access::RemoteWrite, &segments[..count], true)
    };
    assert_eq!(submit(&mut pair, 17), Err(SubmitError::TooManyRegistrations));
    assert_eq!(pair.pair.host.engine.descriptors(connection), before);
    assert!(submit(&mut pair, 16).is_ok());
    // What the connection never has is refused as well, or it would wait for ever.
    let mut small = Setup::new("reg_mr").host(|host| host.registrations = 4).watched();
    assert_eq!(submit(&mut small, 5), Err(SubmitError::TooManyRegistrations));
    assert!(submit(&mut small, 4).is_ok());
}

#[test]
fn s40_i18_bad_segments_are_refused_and_leave_nothing_behind() {
    let mut pair = Pair::new("reg_mr");
    let memory = pair.host.memory;
    let bytes = DATA_BYTES as u64;
    let segment = |offset, length| Segment { memory, offset, length };
    let out = SubmitError::Segment(GatherError::OutOfBounds);
    let cases = [
        (segment(0, 0), SubmitError::Segment(GatherError::EmptySegment)),
        (segment(bytes, 1), out),
        (segment(bytes - 1, 2), out),
        (segment(u64::MAX, 2), out),
        (Segment { memory: MemoryId(9), offset: 0, length: 1 }, SubmitError::UnknownMemory),
    ];
    for (bad, error) in cases {
        for segments in [vec![bad], vec![segment(0, 64), bad]] {
            assert_eq!(pair.host.submit(1, Access::RemoteWrite, &segments, true), Err(error), "{bad:?}");
            let inline = pair.host.submit_with_inline(1, Access::RemoteWrite, &[], &segments, true);
            assert_eq!(inline, Err(error), "{bad:?} inline");
        }
    }
    let many = vec![segment(0, 64); 33];
    let refused = pair.host.submit(1, Access::RemoteWrite, &many, true);
    assert_eq!(refused, Err(SubmitError::TooManySegments));
    assert_eq!(pair.host.engine.statistics().request_slots_used, 0);
    assert!(pair.host.engine.is_idle());
}

#[test]
fn i18_a_memory_that_is_not_registered_on_the_connection_yet_is_refused() {
    let mut pair = Pair::new("reg_mr");
    let late = pair.host.engine.add_memory(pair.host.data.slice(0, 4096).unwrap(), MemoryAccess::ReadWrite).unwrap();
    let segment = Segment { memory: late, offset: 0, length: 64 };
    let refused = pair.host.submit(1, Access::RemoteWrite, &[segment], true);
    assert_eq!(refused, Err(SubmitError::UnknownMemory));
}
