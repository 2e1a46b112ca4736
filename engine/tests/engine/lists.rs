//! Lists of segments that one flush posts share their room, whichever connections they are of: what finds none goes
//! with the next flush, and is what it was.

use frwr_engine::{ConnectionId, Segment, provider::Access};
use frwr_support::engine_harness::{GRANT, HEADER, Setup, scripted::Scripted};

/// Devices whose registrations cover a list.
const PROFILES: [&str; 2] = ["reg_mr", "umr"];

const PAGE: u64 = 4096;
/// Segments of the longest list, and requests of one connection at a time.
const LONGEST: u64 = 8;
const DEPTH: u64 = 2;

/// Two connections of a host, which its target serves both.
fn connected(profile: &str) -> (Scripted, [ConnectionId; 2]) {
    let setup = Setup::new(profile).peer_receives(8).target(|target| target.connections = 2).host(|host| {
        (host.connections, host.queue_depth, host.max_segments) = (2, DEPTH as u32, LONGEST as u32);
    });
    let mut test = Scripted::of(setup);
    test.target.every_command = Some(Vec::new());
    let connections = [1, 2].map(|ready| {
        test.connect();
        test.until("both ends", |pair| pair.target.connections.len() == ready);
        test.host.connection.unwrap()
    });
    (test, connections)
}

/// Answers each command on its connection until all requests have ended. Returns the bytes behind each message, by
/// cookie.
fn answered(test: &mut Scripted) -> Vec<(u64, Vec<u8>)> {
    let mut behind = Vec::new();
    test.until("answered", |pair| {
        let target = &mut pair.target;
        let commands: Vec<_> = target.every_command.as_mut().unwrap().drain(..).collect();
        for (connection, received) in commands {
            let (name, grants) = target.read_command(&received);
            let mut bytes = vec![0; received.length() as usize - HEADER - 16 * GRANT];
            target.engine.message(&received, (HEADER + 16 * GRANT) as u32, &mut bytes);
            behind.push((u64::from_le_bytes(name), bytes));
            target.engine.release(received);
            target.connection = Some(connection);
            target.answer(name, &grants, None);
        }
        pair.host.outstanding.is_empty()
    });
    behind.sort();
    behind
}

/// Every second page, from one that no other list has.
fn pages(test: &Scripted, list: u64) -> Vec<Segment> {
    (0..LONGEST).map(|at| test.host.segment((list * LONGEST + at) * 2 * PAGE, PAGE as u32)).collect()
}

#[test]
fn what_finds_no_room_for_its_list_goes_with_the_next_flush() {
    for profile in PROFILES {
        let (mut test, connections) = connected(profile);
        for page in 0..LONGEST {
            test.target.data.write((page * PAGE) as usize, &[page as u8 + 1; PAGE as usize]).unwrap();
        }
        // There is room for all lists of one connection, and for few of another.
        for list in 0..2 * DEPTH {
            test.host.connection = Some(connections[(list / DEPTH) as usize]);
            let segments = pages(&test, list);
            test.host.submit(list, Access::RemoteWrite, &segments, false).unwrap();
        }
        let waiting = test.host.engine.waiting().requests;
        assert_eq!(
            (test.host.engine.statistics().requests, waiting.send_entries, waiting.order),
            (2, 1, 1),
            "{profile}"
        );
        assert_eq!(test.host.engine.flush(), 1, "{profile}");
        test.steps(1);
        assert_eq!((test.host.engine.statistics().requests, test.host.engine.waiting().requests.total()), (4, 0));
        answered(&mut test);
        for page in 0..2 * DEPTH * 2 * LONGEST {
            let mut found = [0; 1];
            test.host.data.read((page * PAGE) as usize, &mut found).unwrap();
            let expected = if page % 2 == 0 { (page / 2 % LONGEST) as u8 + 1 } else { 0 };
            assert_eq!(found, [expected], "{profile}: page {page}");
        }
        assert_eq!(test.host.disconnected, 0, "{profile}");
    }
}

#[test]
fn what_finds_no_room_behind_its_message_goes_with_the_next_flush() {
    /// Segments behind a message, and bytes of each.
    const SEGMENTS: u64 = 15;
    const BYTES: u64 = 16;
    for profile in PROFILES {
        let (mut test, connections) = connected(profile);
        // As many messages as one connection has slots, and one of the other.
        for cookie in 0..5 {
            test.host.connection = Some(connections[cookie as usize / 4]);
            let first = cookie * SEGMENTS;
            let inline: Vec<_> = (first..first + SEGMENTS)
                .map(|at| {
                    test.host.data.write((at * PAGE) as usize, &[at as u8; BYTES as usize]).unwrap();
                    test.host.segment(at * PAGE, BYTES as u32)
                })
                .collect();
            test.host.submit_with_inline(cookie, Access::RemoteRead, &[], &inline, false).unwrap();
        }
        assert_eq!(test.host.engine.statistics().requests, 4, "{profile}");
        assert_eq!(test.host.engine.waiting().requests.send_entries, 1, "{profile}");
        let behind = answered(&mut test);
        let all = |cookie: u64| (cookie * SEGMENTS..(cookie + 1) * SEGMENTS).flat_map(|at| [at as u8; BYTES as usize]);
        let expected: Vec<_> = (0..5).map(|cookie| (cookie, all(cookie).collect::<Vec<_>>())).collect();
        assert_eq!((behind, test.host.disconnected), (expected, 0), "{profile}");
    }
}

/// Each flush gives all room back, whatever became of what had taken it.
#[test]
fn room_comes_back_from_what_is_not_posted() {
    for profile in PROFILES {
        let (mut test, _) = connected(profile);
        for round in 0..20 {
            let (list, inline) = (pages(&test, 0), [test.host.segment(PAGE, 16); 15]);
            test.host.protocol.refuse = round % 2 == 0;
            let submitted = test.host.submit_with_inline(round, Access::RemoteRead, &list, &inline, false);
            if let Ok(request) = submitted {
                test.host.engine.cancel(request).unwrap();
            }
            assert_eq!(submitted.is_ok(), round % 2 == 1, "{profile}: {submitted:?}");
            assert_eq!(test.host.engine.waiting().requests.total(), 0, "{profile} {round}");
            test.steps(1);
        }
        test.host.protocol.refuse = false;
        let list = pages(&test, 0);
        test.host.submit(100, Access::RemoteWrite, &list, false).unwrap();
        answered(&mut test);
        assert_eq!((test.status(100), test.host.disconnected), (Some("replied"), 0), "{profile}");
    }
}
