//! Memory that is removed while connections are open: nothing new uses it, and it is handed back when nothing reaches it any more.

use frwr_engine::{
    Access, Chunk, DomainPolicy, EngineOptions, FetchRequest, MemoryAccess, MemoryId, OnPostError, RemoteRange,
    RemoteSegment, RemoveMemoryError, ReturnPolicy, Segment, SubmitError, TransferError, WriteRequest,
    provider::{CommandError, TokenKind, fault::CommandKind},
};
use frwr_support::engine_harness::{DATA_BYTES, PROFILES, Setup, Side, WatchedDevice, address, scripted::Scripted};

/// Where the memory that is removed lies in the data of the harness, and its bytes.
const FROM: usize = DATA_BYTES / 2;
const BYTES: u32 = 4096;

/// Iterations in which whatever can happen has happened.
const A_WHILE: u32 = 40;

fn declare(side: &mut Side<WatchedDevice>) -> MemoryId {
    let bytes = side.data.slice(FROM, BYTES as usize).unwrap();
    side.engine.add_memory(bytes, MemoryAccess::ReadWrite).unwrap()
}

/// Of it, so many bytes from its start.
fn segment(memory: MemoryId, length: u32) -> Segment {
    Segment { memory, offset: 0, length }
}

/// A connected pair whose host has one memory more than that of the harness.
fn with(profile: &str, options: EngineOptions) -> (Scripted, MemoryId) {
    let mut test = Scripted::unconnected(profile, options);
    let memory = declare(&mut test.host);
    test.connect();
    test.posted();
    (test, memory)
}

fn pair(profile: &str) -> (Scripted, MemoryId) {
    with(profile, EngineOptions::default())
}

fn remove(test: &mut Scripted, memory: MemoryId) {
    test.host.engine.remove_memory(memory).unwrap();
}

fn told(side: &Side<WatchedDevice>) -> usize {
    side.events.iter().filter(|event| event.starts_with("MemoryRemoved")).count()
}

/// Base registrations that the host's device was asked to give up, and did.
fn deregistered(test: &Scripted) -> u64 {
    test.faults.succeeded(CommandKind::DeregisterMemory)
}

/// Nothing is told, and nothing is given up, however long one waits.
fn stays(test: &mut Scripted, why: &str) {
    let before = (told(&test.host), deregistered(test));
    test.steps(A_WHILE);
    assert_eq!((told(&test.host), deregistered(test)), before, "{why}");
}

/// It is told once, behind all of its base registrations, which no device had to refuse; and the engine has nothing to do.
fn until_removed(test: &mut Scripted) {
    let before = told(&test.host);
    test.until("removed", |pair| told(&pair.host) > before);
    test.steps(A_WHILE);
    assert_eq!(told(&test.host), before + 1);
    let statistics = test.host.control.statistics();
    assert_eq!(statistics.memories_kept, 0, "it was asked for while it was in use");
}

fn answered(test: &mut Scripted) {
    test.until("answered", |pair| {
        pair.serve(true);
        pair.host.outstanding.is_empty()
    });
}

/// All ways of naming it are refused.
fn is_refused(test: &mut Scripted, memory: MemoryId) {
    let refused = Err(SubmitError::UnknownMemory);
    let (here, named) = (test.host.segment(0, 64), segment(memory, 64));
    let connection = test.host.connection.unwrap();
    for list in [vec![named], vec![here, named], vec![named, here]] {
        assert_eq!(test.host.submit(700, Access::RemoteWrite, &list, true), refused);
        assert_eq!(test.host.engine.coverage(connection, &list, 4).map(|_| ()), Err(SubmitError::UnknownMemory));
    }
    let lists = [[here], [named]];
    let [usual, other] = lists.each_ref().map(|segments| Chunk { access: Access::RemoteRead, segments });
    assert_eq!(test.host.submit_chunks(700, &[usual, other], false), refused);
    assert_eq!(test.host.submit_with_inline(700, Access::RemoteWrite, &[], &[named], false), refused);
    assert_eq!(test.host.send(700, &[named]), refused);
    let host = &mut test.pair.host;
    assert_eq!(host.engine.register_now(connection, &other, 700, &mut host.protocol), refused);
    assert!(host.engine.memory(memory).is_none());
}

#[test]
fn a_memory_that_nothing_uses_is_removed_and_its_place_has_another_name() {
    for profile in PROFILES {
        for domain in [DomainPolicy::ByKeyScope, DomainPolicy::Shared, DomainPolicy::PerConnection] {
            let (mut test, memory) = with(profile, EngineOptions::default().domain(domain).memories(3));
            test.host.submit(1, Access::RemoteWrite, &[segment(memory, BYTES)], true).unwrap();
            answered(&mut test);
            remove(&mut test, memory);
            is_refused(&mut test, memory);
            assert!(!test.host.engine.is_idle());
            until_removed(&mut test);
            assert!(test.host.engine.is_idle() && deregistered(&test) == 1, "{profile} {domain:?}");
            // There is one place.
            let next = declare(&mut test.host);
            assert_ne!(next, memory);
            test.until("told", |pair| pair.host.events.iter().any(|event| event.starts_with("MemoryRegistered")));
            is_refused(&mut test, memory);
            test.host.submit(2, Access::RemoteWrite, &[segment(next, BYTES)], true).unwrap();
            answered(&mut test);
            assert_eq!((test.host.disconnected, test.status(2)), (0, Some("replied")), "{profile} {domain:?}");
            test.round_trip(3);
        }
    }
}

#[test]
fn names_of_one_place_differ_and_memories_come_and_go_without_end() {
    let (mut test, first) = with("reg_mr", EngineOptions::default().memories(3));
    let (mut names, mut memory) = (vec![first], first);
    for _ in 0..50 {
        remove(&mut test, memory);
        until_removed(&mut test);
        memory = declare(&mut test.host);
        assert!(!names.contains(&memory));
        names.push(memory);
    }
}

#[test]
fn what_is_no_memory_of_the_caller_or_leaves_already_is_not_removed() {
    let (mut test, memory) = pair("reg_mr");
    let host = &mut test.pair.host.engine;
    for unknown in [MemoryId(0), MemoryId(9), MemoryId(memory.0 | 1 << 16), MemoryId(u32::MAX)] {
        assert_eq!(host.remove_memory(unknown), Err(RemoveMemoryError::UnknownMemory), "{unknown:?}");
    }
    assert_eq!(host.remove_memory(memory), Ok(()));
    assert_eq!(host.remove_memory(memory), Err(RemoveMemoryError::UnknownMemory));
    until_removed(&mut test);
    assert_eq!(test.host.engine.remove_memory(memory), Err(RemoveMemoryError::UnknownMemory));
}

#[test]
fn hold_a_memory_with_an_open_key_is_kept_until_that_is_dead() {
    for profile in PROFILES {
        let (mut test, memory) = pair(profile);
        let connection = test.host.connection.unwrap();
        let named = [segment(memory, 512)];
        let chunk = Chunk { access: Access::RemoteWrite, segments: &named };
        let host = &mut test.pair.host;
        let key = host.engine.register_now(connection, &chunk, 1, &mut host.protocol).unwrap();
        host.outstanding.insert(1, 512);
        test.until("open", |pair| !pair.host.grants.is_empty());
        remove(&mut test, memory);
        stays(&mut test, profile);
        test.round_trip(2);
        stays(&mut test, profile);
        test.host.engine.cancel(key).unwrap();
        until_removed(&mut test);
        assert_eq!((test.host.disconnected, test.open_bytes()), (0, 0), "{profile}");
    }
}

/// Wherever it stands in a list that one key opens; and what does not tell which memories it opens may open any.
#[test]
fn hold_a_memory_among_others_under_one_key_is_removed_behind_it() {
    for profile in ["reg_mr", "umr"] {
        let (mut test, memory) = pair(profile);
        let elsewhere = test.host.data.slice(FROM + DATA_BYTES / 4, BYTES as usize).unwrap();
        let other = test.host.engine.add_memory(elsewhere, MemoryAccess::ReadWrite).unwrap();
        test.until("told", |pair| pair.host.events.iter().any(|event| event.starts_with("MemoryRegistered")));
        let segments = [test.host.segment(0, BYTES), segment(memory, BYTES)];
        let chunk = Chunk { access: Access::RemoteWrite, segments: &segments };
        let connection = test.host.connection.unwrap();
        let host = &mut test.pair.host;
        let key = host.engine.register_now(connection, &chunk, 1, &mut host.protocol).unwrap();
        host.outstanding.insert(1, u64::from(2 * BYTES));
        test.until("open", |pair| !pair.host.grants.is_empty());
        for removed in [memory, other] {
            remove(&mut test, removed);
            stays(&mut test, profile);
        }
        test.host.engine.cancel(key).unwrap();
        test.until("both", |pair| told(&pair.host) == 2);
        assert_eq!(test.host.disconnected, 0, "{profile}");
        test.round_trip(2);
    }
}

/// A request that was taken before ends as it does, wherever its memory stands in it, and whoever kills its key.
#[test]
fn hold_requests_that_were_taken_before_end_as_ever_and_the_memory_goes_behind_them() {
    for profile in PROFILES {
        for return_policy in [ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted] {
            for invite in [false, true] {
                let (mut test, memory) = with(profile, EngineOptions::default().return_policy(return_policy));
                let (here, named) = (test.host.segment(0, 512), segment(memory, 512));
                test.host.submit(1, Access::RemoteWrite, &[named], invite).unwrap();
                let lists = [[here], [named]];
                let chunks = lists.each_ref().map(|segments| Chunk { access: Access::RemoteWrite, segments });
                test.host.submit_chunks(2, &chunks, invite).unwrap();
                // Not even posted yet.
                remove(&mut test, memory);
                stays(&mut test, profile);
                test.until("answered", |pair| {
                    pair.serve(invite);
                    pair.host.outstanding.is_empty()
                });
                until_removed(&mut test);
                assert_eq!([1, 2].map(|cookie| test.status(cookie)), [Some("replied"); 2], "{profile}");
                assert_eq!(test.host.disconnected, 0, "{profile}");
                test.round_trip(3);
            }
        }
    }
}

/// Nothing else is posted behind what no completion would tell of: a barrier is, whose completion is awaited.
#[test]
fn hold_a_completion_passes_all_that_was_posted_before_the_memory_goes() {
    for profile in PROFILES {
        for inline in [false, true] {
            let (mut test, memory) = pair(profile);
            let (named, chunk) = ([segment(memory, 512)], [test.host.segment(0, 512)]);
            let (opened, sent) = if inline { (&chunk, &named[..]) } else { (&named, &[][..]) };
            test.hold(TokenKind::Message);
            test.hold(TokenKind::Invalidate);
            test.hold(TokenKind::Drain);
            test.host.submit_with_inline(1, Access::RemoteWrite, opened, sent, true).unwrap();
            test.until("replied to", |pair| {
                pair.serve(true);
                pair.target.responded > 0
            });
            test.posted();
            remove(&mut test, memory);
            stays(&mut test, profile);
            let barriers = test.posted().iter().filter(|wr| wr.letter().starts_with('D')).count();
            assert!(barriers <= 1, "{profile}");
            test.faults.clear();
            test.faults.release();
            until_removed(&mut test);
            assert_eq!((test.status(1), test.host.disconnected), (Some("replied"), 0), "{profile} {inline}");
        }
    }
}

/// Those that wait and name the memory end, once each; the others go on, in their order.
#[test]
fn requests_that_wait_with_it_end_at_once_and_others_go_on() {
    for profile in PROFILES {
        let options = EngineOptions::default().registrations(2);
        let (mut test, memory) = with(profile, options);
        let (here, named) = (test.host.segment(0, 512), segment(memory, 512));
        test.submit(1, 2, true);
        let submit = |test: &mut Scripted, cookie, list: &[Segment], inline: &[Segment]| {
            test.host.submit_with_inline(cookie, Access::RemoteWrite, list, inline, true).unwrap();
        };
        submit(&mut test, 2, &[named], &[]);
        submit(&mut test, 3, &[here], &[]);
        submit(&mut test, 4, &[here], &[named]);
        submit(&mut test, 5, &[], &[named]);
        submit(&mut test, 6, &[], &[here]);
        let connection = test.host.connection.unwrap();
        let host = &mut test.pair.host;
        let chunk = Chunk { access: Access::RemoteRead, segments: &[named] };
        host.engine.register_now(connection, &chunk, 7, &mut host.protocol).unwrap();
        test.steps(3);
        assert_eq!(test.host.ended, [], "{profile}");
        remove(&mut test, memory);
        test.steps(3);
        let removed: Vec<_> = [2, 4, 5, 7].map(|cookie| (cookie, "memory removed")).into();
        assert_eq!(test.host.ended, removed, "{profile}");
        answered(&mut test);
        if told(&test.host) == 0 {
            until_removed(&mut test);
        }
        assert_eq!([1, 3, 6].map(|cookie| test.status(cookie)), [Some("replied"); 3], "{profile}");
        assert_eq!((test.host.ended.len(), test.host.disconnected), (7, 0), "{profile}");
    }
}

/// A peer awaits them: they go on, posted or not, and the memory goes behind them.
#[test]
fn hold_transfers_that_were_taken_before_are_done_and_the_memory_goes_behind_them() {
    for profile in PROFILES {
        let mut test = Scripted::of(Setup::new(profile).target(|target| target.transfer_depth = 16));
        let memory = declare(&mut test.target);
        test.connect();
        let offered = [test.host.segment(0, 512)];
        test.host.data.fill(0, 512, 0xA7).unwrap();
        test.host.submit(1, Access::RemoteRead, &offered, false).unwrap();
        let (name, grants) = test.command();
        let remote =
            [RemoteSegment { remote: RemoteRange { address: grants[0].address, key: grants[0].key }, length: 512 }];
        let local = [segment(memory, 512)];
        let connection = test.target.connection.unwrap();
        let target = &mut test.pair.target;
        // More than its send queue has room for at once: some wait.
        let all = u64::from(target.engine.connection_sizes(connection).unwrap().usable_entries).min(30) + 2;
        let mut begun = 0;
        for cookie in 0..all {
            match target.engine.fetch(connection, &FetchRequest { local: &local, remote: &remote, cookie }) {
                Ok(()) => begun += 1,
                Err(TransferError::NoSlot) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(begun > 1, "{profile}");
        target.engine.remove_memory(memory).unwrap();
        let fetch = FetchRequest { local: &local, remote: &remote, cookie: 99 };
        assert_eq!(target.engine.fetch(connection, &fetch), Err(TransferError::UnknownMemory));
        let write = WriteRequest { local: &local, remote: &remote, cookie: 99 };
        assert_eq!(target.engine.write(connection, &write), Err(TransferError::UnknownMemory));
        test.until("removed", |pair| {
            assert!(told(&pair.target) == 0 || pair.target.fetched == begun, "{profile}");
            told(&pair.target) == 1
        });
        assert_eq!(test.target.control.statistics().memories_kept, 0, "{profile}");
        let mut found = [0; 512];
        test.target.data.read(FROM, &mut found).unwrap();
        assert_eq!(found, [0xA7; 512]);
        test.reply(name, None);
        answered(&mut test);
        assert_eq!((test.host.disconnected, test.status(1)), (0, Some("replied")), "{profile}");
    }
}

/// Whoever always has more to send than there is room for does not keep the barrier out.
#[test]
fn a_memory_is_removed_although_transfers_always_wait_for_entries() {
    for profile in PROFILES {
        let mut test = Scripted::of(Setup::new(profile).target(|target| target.transfer_depth = 64));
        let memory = declare(&mut test.target);
        test.connect();
        let offered = [test.host.segment(0, 512)];
        test.host.submit(1, Access::RemoteRead, &offered, false).unwrap();
        let (name, grants) = test.command();
        let connection = test.target.connection.unwrap();
        let usable = test.target.engine.connection_sizes(connection).unwrap().usable_entries;
        // So many fetches take all entries.
        let each = (1..=16).rev().find(|each| usable.is_multiple_of(*each)).unwrap();
        let remote = RemoteRange { address: grants[0].address, key: grants[0].key };
        let remote = vec![RemoteSegment { remote, length: 8 }; each as usize];
        let local = [test.target.segment(0, 8 * each)];
        let mut begun = 0;
        let mut fill = |target: &mut Side<WatchedDevice>| {
            loop {
                let fetch = FetchRequest { local: &local, remote: &remote, cookie: 99 };
                match target.engine.fetch(connection, &fetch) {
                    Ok(()) => begun += 1,
                    Err(TransferError::NoSlot) => break,
                    Err(other) => panic!("{other}"),
                }
            }
        };
        for _ in 0..A_WHILE {
            fill(&mut test.pair.target);
            test.steps(1);
        }
        test.target.engine.remove_memory(memory).unwrap();
        test.until("removed", |pair| {
            fill(&mut pair.target);
            told(&pair.target) == 1
        });
        test.until("fetched", |pair| pair.target.fetched == begun);
        test.reply(name, None);
        answered(&mut test);
        assert_eq!((test.host.disconnected, test.status(1)), (0, Some("replied")), "{profile}");
    }
}

#[test]
fn hold_a_connection_that_ends_keeps_the_memory_until_it_has_ended() {
    for profile in PROFILES {
        for removed_first in [false, true] {
            let (mut test, memory) = pair(profile);
            test.host.submit(1, Access::RemoteWrite, &[segment(memory, 512)], true).unwrap();
            test.steps(3);
            let connection = test.host.connection.unwrap();
            test.hold(TokenKind::Drain);
            if removed_first {
                remove(&mut test, memory);
                test.steps(2);
            }
            test.host.engine.disconnect(connection);
            if !removed_first {
                remove(&mut test, memory);
            }
            test.steps(A_WHILE);
            assert_eq!((told(&test.host), test.host.disconnected), (0, 0), "{profile}");
            test.faults.clear();
            test.faults.release();
            test.until("removed", |pair| {
                assert!(told(&pair.host) == 0 || pair.host.disconnected == 1, "{profile}");
                told(&pair.host) == 1
            });
            assert_eq!((test.status(1), test.host.control.statistics().memories_kept), (Some("lost"), 0));
            test.until_gone();
            test.reconnect_works();
            is_refused(&mut test, memory);
        }
    }
}

/// Whatever stands in the chain that the device refuses, a barrier among it: another one is posted.
#[test]
fn a_barrier_that_the_device_refuses_is_posted_again() {
    for profile in PROFILES {
        let (mut test, memory) =
            with(profile, EngineOptions::default().on_post_error(OnPostError::DeregisterAndContinue));
        test.hold(TokenKind::Message);
        test.host.submit(1, Access::RemoteWrite, &[segment(memory, 512)], true).unwrap();
        test.until("replied", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
        test.refuse(0);
        remove(&mut test, memory);
        test.steps(3);
        assert_eq!(test.host.engine.statistics().posts_refused, 1, "{profile}");
        until_removed(&mut test);
        test.faults.clear();
        test.faults.release();
        test.steps(3);
        assert_eq!(test.host.disconnected, 0, "{profile}");
        test.round_trip(2);
    }
}

/// It moves up where a request in front of it is cancelled in the chain.
#[test]
fn a_request_that_is_cancelled_in_front_of_a_barrier_leaves_nothing_open() {
    for profile in PROFILES {
        let (mut test, memory) = pair(profile);
        test.submit(1, 1, true);
        let handle = test.submit(2, 1, true);
        remove(&mut test, memory);
        let host = &mut test.pair.host;
        // The barrier is staged by the poll.
        host.engine.poll(test.pair.now, &mut host.protocol);
        host.engine.cancel(handle).unwrap();
        answered(&mut test);
        if told(&test.host) == 0 {
            until_removed(&mut test);
        }
        assert_eq!((test.status(1), test.status(2)), (Some("replied"), Some("cancelled")), "{profile}");
        test.round_trip(3);
    }
}

#[test]
fn a_base_registration_that_the_device_keeps_is_asked_for_again_and_told_behind_that() {
    let (mut test, memory) = pair("reg_mr");
    test.faults.fail_command(CommandKind::DeregisterMemory, CommandError::BUSY, 2);
    remove(&mut test, memory);
    test.until("kept", |pair| pair.host.control.statistics().memories_kept == 1);
    stays(&mut test, "kept");
    test.until("complied", |pair| pair.host.control.statistics().memories_kept == 0);
    test.until("told", |pair| told(&pair.host) == 1);
    assert_eq!(deregistered(&test), 1);
    test.round_trip(1);
}

/// Whenever it is removed a connection that opens does so without it, also where the device refuses it.
#[test]
fn a_connection_opens_while_a_memory_is_removed() {
    for refused in [false, true] {
        for domain in [DomainPolicy::Shared, DomainPolicy::PerConnection] {
            for steps in 0..12 {
                let options = EngineOptions::default().domain(domain);
                let mut test = Scripted::unconnected("reg_mr", options);
                let options = test.host.connection_options();
                let connection = test.host.engine.connect(address(), b"hello", &options).unwrap();
                test.steps(2);
                let memory = declare(&mut test.host);
                test.steps(steps);
                if refused {
                    test.faults.fail_command(CommandKind::RegisterMemory, CommandError::EXHAUSTED, 1);
                }
                remove(&mut test, memory);
                test.until("removed", |pair| told(&pair.host) == 1);
                test.until("open", |pair| pair.host.is_ready() || pair.host.open_failed > 0);
                test.faults.clear();
                assert!(test.host.engine.is_ready(connection) || refused, "{domain:?} {steps}");
                test.steps(A_WHILE);
                assert_eq!(told(&test.host), 1, "{domain:?} {steps}");
                if test.host.is_ready() {
                    is_refused(&mut test, memory);
                    test.round_trip(1);
                }
                assert_eq!(test.host.control.statistics().memories_kept, 0);
            }
        }
    }
}

/// The registration of one that was declared later is on its way when it is removed: its answer is no news any more.
#[test]
fn a_memory_is_removed_while_it_is_being_registered() {
    for refused in [false, true] {
        let mut test = Scripted::new("reg_mr");
        test.faults.hold_answers(CommandKind::RegisterMemory);
        if refused {
            test.faults.fail_command(CommandKind::RegisterMemory, CommandError::EXHAUSTED, 1);
        }
        let memory = declare(&mut test.host);
        test.steps(3);
        remove(&mut test, memory);
        if !refused {
            stays(&mut test, "being registered");
        }
        test.faults.release_answers();
        test.until("removed", |pair| told(&pair.host) == 1);
        test.steps(A_WHILE);
        // The refusal was told before it was removed.
        let registered = test.host.events.iter().filter(|event| event.starts_with("MemoryRegistered")).count();
        assert_eq!(registered, usize::from(refused));
        assert_eq!((told(&test.host), deregistered(&test)), (1, u64::from(!refused)));
        test.round_trip(1);
    }
}

#[test]
fn a_lane_without_room_is_said_or_waited_for() {
    let (mut test, memory) = pair("reg_mr");
    test.host.fill_lane();
    assert_eq!(test.host.engine.remove_memory(memory), Err(RemoveMemoryError::WouldBlock));
    test.host.submit(1, Access::RemoteWrite, &[segment(memory, 512)], true).unwrap();
    answered(&mut test);
    test.steps(5);
    remove(&mut test, memory);
    // What is to be released finds no room at first.
    test.host.fill_lane();
    let host = &mut test.pair.host;
    host.engine.poll(test.pair.now, &mut host.protocol);
    until_removed(&mut test);
}

/// Several leave at once: more than one poll looks at everything for.
#[test]
fn many_memories_are_removed_together() {
    let (mut test, memory) = with("reg_mr", EngineOptions::default().memories(40));
    let mut all = vec![memory];
    all.extend((0..30).map(|_| declare(&mut test.host)));
    test.until("told", |pair| {
        pair.host.events.iter().filter(|event| event.starts_with("MemoryRegistered")).count() == 30
    });
    for (cookie, &memory) in (1..).zip(&all) {
        test.host.submit(cookie, Access::RemoteWrite, &[segment(memory, 64)], true).unwrap();
    }
    test.hold(TokenKind::Message);
    answered(&mut test);
    test.posted();
    for &memory in &all {
        remove(&mut test, memory);
    }
    test.until("removed", |pair| told(&pair.host) == all.len());
    let barriers = test.posted().iter().filter(|wr| wr.letter().starts_with('D')).count();
    assert!(barriers <= 1, "{barriers} barriers of one connection");
    for memory in all {
        is_refused(&mut test, memory);
    }
}
