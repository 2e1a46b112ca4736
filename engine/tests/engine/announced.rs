//! What the protocol is told of a request: its name, and which of its keys are of which chunk.

use frwr_engine::{Access, Announcement, Chunk, ChunkKeys, EngineOptions, Grant, RequestHandle, Segment};
use frwr_support::engine_harness::{Announced, PROFILES, scripted::*};

/// Chunks of a request, as right, first byte, segments with a gap behind each, and bytes of each of these.
type Shape = &'static [(Access, u64, u64, u32)];

/// From one segment to as many chunks as an RPC-over-RDMA header has, of one segment and of several.
const SHAPES: [Shape; 5] = [
    &[(Access::RemoteWrite, 0, 1, 4096)],
    &[(Access::RemoteRead, 256, 1, 512), (Access::RemoteWrite, 8192, 1, 512)],
    &[(Access::RemoteRead, 0, 4, 4096)],
    &[
        (Access::RemoteRead, 0, 3, 512),
        (Access::RemoteRead, 65536, 1, 4096),
        (Access::RemoteWrite, 131_072, 5, 512),
        (Access::RemoteReadWrite, 262_144, 2, 4096),
    ],
    &[(Access::RemoteWrite, 0, 2, 4096), (Access::RemoteRead, 65536, 1, 100), (Access::RemoteWrite, 131_072, 1, 1)],
];

fn segments(test: &Scripted, shape: Shape) -> Vec<(Access, Vec<Segment>)> {
    let of_chunk = |&(access, first, count, length): &(Access, u64, u64, u32)| {
        let segment = |at: u64| test.host.segment(first + at * (u64::from(length) + 4096), length);
        (access, (0..count).map(segment).collect())
    };
    shape.iter().map(of_chunk).collect()
}

fn submit(test: &mut Scripted, cookie: u64, shape: Shape) -> RequestHandle {
    let segments = segments(test, shape);
    let chunks: Vec<_> = segments.iter().map(|(access, segments)| Chunk { access: *access, segments }).collect();
    test.host.submit_chunks(cookie, &chunks, true).unwrap()
}

/// What was told fits what was submitted, what the chain opens, and what the peer has.
fn check(test: &mut Scripted, told: &Announced, request: RequestHandle, cookie: u64, shape: Shape, peer: &[Grant]) {
    let context = format!("{shape:?}");
    assert_eq!((told.request, told.cookie), (request, cookie), "{context}");
    let rights: Vec<_> = told.chunks.iter().map(|(access, _)| *access).collect();
    assert_eq!(rights, shape.iter().map(|chunk| chunk.0).collect::<Vec<_>>(), "{context}");
    let connection = test.host.connection.unwrap();
    for ((_, grants), (_, segments)) in told.chunks.iter().zip(segments(test, shape)) {
        let covered = test.host.engine.coverage(connection, &segments, 16).unwrap();
        assert_eq!(grants.len() as u32, covered.keys, "{context}");
        assert_eq!(grants.iter().map(|grant| grant.length).sum::<u32>(), covered.bytes, "{context}");
    }
    let all: Vec<_> = told.chunks.iter().flat_map(|(_, grants)| grants.clone()).collect();
    assert_eq!(all, peer, "{context}");
    for (access, grant) in told.chunks.iter().flat_map(|(access, grants)| grants.iter().map(move |one| (access, one))) {
        assert_eq!(test.opened_with(grant.key), Some(*access), "{context}");
    }
}

#[test]
fn s32_s39_the_protocol_is_told_which_keys_are_of_which_chunk_and_what_they_permit() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(16));
        for (cookie, shape) in (1..).zip(SHAPES) {
            let request = submit(&mut test, cookie, shape);
            let told = test.host.protocol.announced.pop().unwrap();
            let (name, grants) = test.command();
            check(&mut test, &told, request, cookie, shape, &grants);
            test.reply(name, Some(grants[0].key));
            test.until("ended", |pair| pair.host.outstanding.is_empty());
        }
    }
}

#[test]
fn s32_s39_a_request_that_waited_is_told_of_by_the_name_that_its_caller_has() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(16));
        for (cookie, shape) in (1..).zip(SHAPES) {
            // All MRs are in use.
            test.submit(1000, 4, false);
            for at in 0..12 {
                test.submit(2000 + at, 1, false);
            }
            test.host.protocol.announced.clear();
            let request = submit(&mut test, cookie, shape);
            assert_eq!(test.host.protocol.announced, [], "{profile}: it waits");
            test.until("all but it", |pair| {
                if pair.host.protocol.announced.is_empty() {
                    pair.serve(false);
                }
                pair.target.commands.len() == 1 && pair.host.ended.len() == 13
            });
            let told = test.host.protocol.announced.pop().unwrap();
            let (name, grants) = test.command();
            check(&mut test, &told, request, cookie, shape, &grants);
            test.reply(name, None);
            test.until("ended", |pair| pair.host.outstanding.is_empty());
            test.host.ended.clear();
        }
    }
}

#[test]
fn a_request_without_memory_is_not_announced() {
    let mut test = Scripted::new("reg_mr");
    test.submit(1, 0, false);
    test.until("ended", |pair| {
        pair.serve(false);
        pair.host.outstanding.is_empty()
    });
    assert_eq!(test.host.protocol.announced, []);
}

#[test]
fn whoever_tests_a_protocol_makes_an_announcement_of_his_own() {
    let grant = |key| Grant { key, address: 4096 * u64::from(key), length: 4096 };
    let (grants, request) = ([grant(1), grant(2), grant(3)], RequestHandle::from_parts(5, 1));
    let keys = [ChunkKeys { access: Access::RemoteRead, keys: 2 }, ChunkKeys { access: Access::RemoteWrite, keys: 1 }];
    let announced = Announcement::new(request, 7, &grants, &keys);
    assert_eq!((announced.request(), announced.cookie(), announced.grants()), (request, 7, &grants[..]));
    let chunks: Vec<_> = announced.chunks().map(|chunk| (chunk.access, chunk.grants)).collect();
    assert_eq!(chunks, [(Access::RemoteRead, &grants[..2]), (Access::RemoteWrite, &grants[2..])]);
    // More keys than there are grants: the rest, and then none.
    let keys = [keys[0], keys[0], keys[1]];
    let counted: Vec<_> = Announcement::new(request, 7, &grants, &keys).chunks().map(|one| one.grants.len()).collect();
    assert_eq!(counted, [2, 1, 0]);
}
