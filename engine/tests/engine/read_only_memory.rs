//! Memory that is declared as read-only: read by peers and sent, and refused by name wherever it would be written to.

use frwr_engine::{
    Access, Chunk, EngineOptions, FetchRequest, GatherError, MemoryAccess, MemoryId, RemoteRange, RemoteSegment,
    ResponseRequest, Segment, SubmitError, TransferError, WriteRequest, mr::Grant,
};
use frwr_support::engine_harness::{DATA_BYTES, HEADER, PROFILES, Side, WatchedDevice, scripted::Scripted};

const PAGE: u32 = 4096;
/// Where the part of a side's data that is declared once more begins, and its bytes: more than one registration of some devices covers.
const FROM: usize = DATA_BYTES / 2;
const BYTES: u32 = (DATA_BYTES - FROM) as u32;

const READ_ONLY: SubmitError = SubmitError::Segment(GatherError::ReadOnly);
const NOT_FETCHED: TransferError = TransferError::Segment(GatherError::ReadOnly);
const WRITES: [Access; 2] = [Access::RemoteWrite, Access::RemoteReadWrite];

/// Declares the upper half of a side's data once more.
fn declare(side: &mut Side<WatchedDevice>) -> MemoryId {
    let bytes = side.data.slice(FROM, BYTES as usize).unwrap();
    side.engine.add_memory(bytes, MemoryAccess::ReadOnly).unwrap()
}

/// A connected pair whose host has such a memory.
fn pair(profile: &str, options: EngineOptions) -> (Scripted, MemoryId) {
    let mut test = Scripted::unconnected(profile, options);
    let memory = declare(&mut test.host);
    test.connect();
    test.posted();
    (test, memory)
}

fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8).collect()
}

/// Pages of it, and pieces of less, that need a registration for each or for all, by the device.
fn lists(memory: MemoryId) -> [Vec<Segment>; 6] {
    let segment = |offset: u32, length| Segment { memory, offset: offset.into(), length };
    [
        vec![segment(300, 512)],
        (0..4).map(|page| segment(page * PAGE, PAGE)).collect(),
        vec![segment(PAGE, PAGE), segment(2 * PAGE, 100)],
        vec![segment(8, 16), segment(7 * PAGE + 8, 3000)],
        vec![segment(5, 1), segment(6, 1), segment(7, 1)],
        vec![segment(0, BYTES)],
    ]
}

/// What a refusal must not change.
fn state(test: &mut Scripted) -> (bool, u64, [u32; 4], u64) {
    let statistics = test.host.engine.statistics();
    (test.host.engine.is_idle(), statistics.request_slots_used, test.descriptors(), test.open_bytes())
}

#[test]
fn a_chunk_that_the_peer_could_write_to_is_refused_and_leaves_nothing_behind() {
    for profile in PROFILES {
        let (mut test, memory) = pair(profile, EngineOptions::default());
        test.round_trip(1);
        test.posted();
        let before = state(&mut test);
        let writable = [test.host.segment(0, 512)];
        for (access, refused) in WRITES.into_iter().flat_map(|access| lists(memory).map(|list| (access, list))) {
            let chunk = Chunk { access, segments: &refused };
            let read = Chunk { access: Access::RemoteRead, segments: &refused };
            let other = Chunk { access, segments: &writable };
            for chunks in [&[chunk][..], &[other, chunk], &[chunk, other], &[read, chunk], &[read, other, chunk]] {
                assert_eq!(test.host.submit_chunks(2, chunks, true), Err(READ_ONLY), "{profile} {chunks:?}");
            }
            let mixed: Vec<_> = writable.iter().chain(&refused).copied().collect();
            assert_eq!(test.host.submit(2, access, &mixed, true), Err(READ_ONLY), "{profile} {mixed:?}");
            let host = &mut test.pair.host;
            let refused = host.engine.register_now(host.connection.unwrap(), &chunk, 2, &mut host.protocol);
            assert_eq!(refused, Err(READ_ONLY), "{profile} {chunk:?}");
        }
        test.steps(3);
        assert_eq!(test.posted(), [], "{profile}");
        assert_eq!(state(&mut test), before, "{profile}");
        test.round_trip(2);
    }
}

/// What would have to wait is refused as it is submitted, not when its turn comes.
#[test]
fn a_request_that_would_wait_is_refused_at_once() {
    for profile in PROFILES {
        let (mut test, memory) = pair(profile, EngineOptions::default().registrations(1));
        test.submit(1, 1, false);
        for waits in 0..2 {
            for (access, refused) in WRITES.into_iter().flat_map(|access| lists(memory).map(|list| (access, list))) {
                assert_eq!(test.host.submit(9, access, &refused[..1], false), Err(READ_ONLY), "{profile} {refused:?}");
                let chunk = Chunk { access, segments: &refused };
                let host = &mut test.pair.host;
                let refused = host.engine.register_now(host.connection.unwrap(), &chunk, 9, &mut host.protocol);
                assert_eq!(refused, Err(READ_ONLY), "{profile}");
            }
            let used = test.host.engine.statistics().request_slots_used;
            assert_eq!(used, 1 + waits, "{profile}: those that were taken");
            // Behind one that waits for the MR.
            test.submit(2 + waits, 1, false);
        }
        test.until("ended", |pair| {
            pair.serve(true);
            pair.host.ended.len() == 3
        });
    }
}

/// The peer's grant of so many bytes.
fn granted(grant: &Grant) -> RemoteSegment {
    RemoteSegment { remote: RemoteRange { address: grant.address, key: grant.key }, length: grant.length }
}

/// The target opens the front of its data.
fn target_opens(test: &mut Scripted, length: u32) -> RemoteSegment {
    let segments = [test.target.segment(0, length)];
    let target = &mut test.pair.target;
    let chunk = Chunk { access: Access::RemoteReadWrite, segments: &segments };
    target.engine.register_now(target.connection.unwrap(), &chunk, 1, &mut target.protocol).unwrap();
    target.outstanding.insert(1, length.into());
    test.until("registered", |pair| !pair.target.grants.is_empty());
    granted(&test.target.grants[0].1)
}

#[test]
fn a_fetch_into_it_is_refused_and_leaves_nothing_behind() {
    for profile in PROFILES {
        let (mut test, memory) = pair(profile, EngineOptions::default().transfer_depth(2));
        let remote = target_opens(&mut test, 8 * PAGE);
        test.posted();
        let part = |length| RemoteSegment { length, ..remote };
        let segment = |offset, length| Segment { memory, offset, length };
        let writable = test.host.segment(0, 512);
        let connection = test.host.connection.unwrap();
        for (local, remote) in [
            (vec![segment(0, 512)], vec![part(512)]),
            (vec![segment(0, 512)], vec![part(256), part(256)]),
            (vec![segment(0, 256), segment(300, 256)], vec![part(512)]),
            (vec![writable, segment(0, 256)], vec![part(512), part(256)]),
            (vec![segment(4, 256), writable], vec![part(768)]),
        ] {
            let request = FetchRequest { local: &local, remote: &remote, cookie: 1 };
            for _ in 0..3 {
                assert_eq!(test.host.engine.fetch(connection, &request), Err(NOT_FETCHED), "{profile} {local:?}");
            }
        }
        test.steps(3);
        assert_eq!(test.posted(), [], "{profile}");
        assert!(test.host.engine.is_idle(), "{profile}: no slot is taken");
        let request = FetchRequest { local: &[writable], remote: &[part(512)], cookie: 1 };
        test.host.engine.fetch(connection, &request).unwrap();
        test.until("fetched", |pair| pair.host.fetched == 1);
    }
}

#[test]
fn the_peer_reads_it() {
    for profile in PROFILES {
        let (mut test, memory) = pair(profile, EngineOptions::default());
        for (cookie, list) in (1..).zip(lists(memory)) {
            let bytes = pattern(BYTES);
            test.host.data.write(FROM, &bytes).unwrap();
            let connection = test.host.connection.unwrap();
            let usual: Vec<_> = list
                .iter()
                .map(|segment| Segment { memory: test.host.memory, offset: segment.offset + FROM as u64, ..*segment })
                .collect();
            let covered = [&list, &usual].map(|list| test.host.engine.coverage(connection, list, 16).unwrap());
            assert_eq!(covered[0], covered[1], "{profile} {list:?}: as of other memory");
            if test.host.submit(cookie, Access::RemoteRead, &list, false).is_err() {
                // More than one request opens on this device, in whatever memory.
                let refused = test.host.submit(cookie, Access::RemoteRead, &usual, false);
                assert_eq!(refused, Err(SubmitError::TooManyRegistrations), "{profile} {list:?}");
                continue;
            }
            let (name, grants) = test.command();
            let mut at = 0;
            for grant in &grants {
                let target = &mut test.pair.target;
                let local = [target.segment(at, grant.length)];
                let request = FetchRequest { local: &local, remote: &[granted(grant)], cookie: 1 };
                let before = target.fetched;
                target.engine.fetch(target.connection.unwrap(), &request).unwrap();
                test.until("fetched", |pair| pair.target.fetched > before);
                at += u64::from(grant.length);
            }
            let part = |segment: &Segment| &bytes[segment.offset as usize..][..segment.length as usize];
            let expected: Vec<u8> = list.iter().flat_map(part).copied().collect();
            let mut found = vec![0; at as usize];
            test.target.data.read(0, &mut found).unwrap();
            assert!(found == expected, "{profile} {list:?}");
            test.reply(name, None);
            test.until("answered", |pair| pair.host.outstanding.is_empty());
        }
        assert_eq!((test.host.disconnected, test.host.engine.statistics().posts_refused), (0, 0), "{profile}");
    }
}

#[test]
fn it_is_sent_behind_messages() {
    for profile in PROFILES {
        let (mut test, memory) = pair(profile, EngineOptions::default());
        test.host.data.write(FROM, &pattern(512)).unwrap();
        let segment = [Segment { memory, offset: 0, length: 512 }];
        for cookie in 1..=2 {
            if cookie == 1 {
                test.host.send(cookie, &segment).unwrap();
            } else {
                test.host.submit_with_inline(cookie, Access::RemoteRead, &segment, &segment, false).unwrap();
            }
            test.until("received", |pair| !pair.target.commands.is_empty());
            let received = test.target.commands.remove(0);
            let mut found = [0; 512];
            assert!(received.length() as usize >= HEADER + found.len());
            test.target.engine.message(&received, received.length() - 512, &mut found);
            assert!(found[..] == pattern(512), "{profile} {cookie}");
            let (name, _) = test.target.read_command(&received);
            test.target.engine.release(received);
            if cookie == 2 {
                test.reply(name, None);
            }
            test.until("ended", |pair| pair.host.outstanding.is_empty());
        }
    }
}

#[test]
fn it_is_written_to_the_peer() {
    for profile in PROFILES {
        let mut test = Scripted::unconnected(profile, EngineOptions::default().transfer_depth(2));
        let (memory, source) = (declare(&mut test.host), declare(&mut test.target));
        test.connect();
        // By a WRITE that the peer does not hear of, in two pieces.
        test.host.data.write(FROM, &pattern(1024)).unwrap();
        let remote = target_opens(&mut test, 1024);
        let local = [0, 512].map(|offset| Segment { memory, offset, length: 512 });
        let request = WriteRequest { local: &local, remote: &[remote], cookie: 1 };
        test.pair.host.engine.write(test.pair.host.connection.unwrap(), &request).unwrap();
        let done = "Written { cookie: 1, status: Done }";
        test.until("written", |pair| pair.host.events.iter().any(|event| event == done));
        let mut found = vec![0; 1024];
        test.target.data.read(0, &mut found).unwrap();
        assert!(found == pattern(1024), "{profile}");
        // In front of a reply.
        test.target.data.write(FROM, &pattern(700)).unwrap();
        let wanted = [test.host.segment(64, 700)];
        test.host.submit(2, Access::RemoteWrite, &wanted, false).unwrap();
        let (name, grants) = test.command();
        let mut message = [0xFF; HEADER];
        message[..8].copy_from_slice(&name);
        let local = [Segment { memory: source, offset: 0, length: 700 }];
        let remote = [granted(&grants[0])];
        let response =
            ResponseRequest { local: &local, remote: &remote, message: &message, invalidate: None, cookie: 1 };
        test.pair.target.engine.respond(test.pair.target.connection.unwrap(), &response).unwrap();
        test.until("answered", |pair| pair.host.outstanding.is_empty());
        let mut found = vec![0; 700];
        test.host.data.read(64, &mut found).unwrap();
        assert!(found == pattern(700), "{profile}");
    }
}

/// It is the name that is read-only: the harness's own name of the same bytes is not.
#[test]
fn the_same_bytes_are_written_under_a_name_that_is_not_read_only() {
    for profile in PROFILES {
        let (mut test, _) = pair(profile, EngineOptions::default());
        let segment = [test.host.segment(FROM as u64, 512)];
        test.target.data.write(0, &pattern(512)).unwrap();
        test.host.submit(1, Access::RemoteReadWrite, &segment, true).unwrap();
        test.until("answered", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
        let mut found = [0; 512];
        test.host.data.read(FROM, &mut found).unwrap();
        assert!(found[..] == pattern(512), "{profile}");
    }
}
