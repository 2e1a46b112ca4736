//! Memory that is declared while connections are open.

use frwr_engine::{
    Access, AddMemoryError, DomainPolicy, EngineOptions, FetchRequest, MAX_MEMORIES, MemoryAccess, MemoryId,
    RemoteRange, RemoteSegment, Segment, SubmitError,
    provider::{CommandError, fault::CommandKind},
};
use frwr_support::engine_harness::{DATA_BYTES, PROFILES, Setup, address, scripted::*};

/// As many as the engine's options allow are found by each connection, whether it opens before or behind them.
#[test]
fn as_many_memories_as_were_asked_for_are_used_and_one_more_is_refused_by_name() {
    for memories in [2, 16, 17, MAX_MEMORIES] {
        let mut test = Scripted::of(Setup::new("reg_mr").host(|host| host.memories = memories));
        // The engine's own, and that of the harness.
        let mut declared = Vec::new();
        while declared.len() < usize::from(memories) - 2 {
            let bytes = test.host.data.slice(LATE, 4096).unwrap();
            match test.host.engine.add_memory(bytes, MemoryAccess::ReadWrite) {
                Ok(memory) => declared.push(memory),
                Err(AddMemoryError::WouldBlock) => test.steps(1),
                Err(error) => panic!("{error}"),
            }
        }
        let bytes = test.host.data.slice(LATE, 4096).unwrap();
        let refused = test.host.engine.add_memory(bytes, MemoryAccess::ReadWrite).unwrap_err();
        assert_eq!(refused, AddMemoryError::TooMany { limit: memories });
        assert!(refused.to_string().contains(&format!("{memories} memories")), "{refused}");
        test.connect();
        for (cookie, memory) in (1..).zip(declared.iter().rev().take(3).chain(&declared[..declared.len().min(3)])) {
            let segment = Segment { memory: *memory, offset: 0, length: 4096 };
            test.host.submit(cookie, Access::RemoteWrite, &[segment], true).unwrap();
            test.until("answered", |pair| {
                pair.serve(true);
                pair.host.outstanding.is_empty()
            });
        }
        assert_eq!((test.host.disconnected, test.host.open_failed), (0, 0), "{memories}");
    }
}

/// Where the late memory begins in the data of the harness.
const LATE: usize = DATA_BYTES / 2;

/// Declares the upper half of the host's data once more.
fn declare(test: &mut Scripted) -> MemoryId {
    let bytes = test.host.data.slice(LATE, 4096).unwrap();
    test.host.engine.add_memory(bytes, MemoryAccess::ReadWrite).unwrap()
}

fn told(test: &Scripted) -> Vec<&String> {
    test.host.events.iter().filter(|event| event.starts_with("MemoryRegistered")).collect()
}

#[test]
fn i18_a_memory_that_is_declared_later_is_used_on_an_open_connection_once_that_is_told() {
    for profile in PROFILES {
        for domain in [DomainPolicy::ByKeyScope, DomainPolicy::Shared, DomainPolicy::PerConnection] {
            let mut test = Scripted::of(Setup::new(profile).host(|host| host.domain = domain));
            test.connect();
            test.submit(1, 1, false);
            let late = declare(&mut test);
            let segment = Segment { memory: late, offset: 0, length: 4096 };
            let refused = test.host.submit(2, Access::RemoteWrite, &[segment], true);
            assert_eq!(refused, Err(SubmitError::UnknownMemory), "{profile} {domain:?}: not yet");
            test.until("told", |pair| pair.host.events.iter().any(|event| event.starts_with("MemoryRegistered")));
            test.steps(5);
            let of_both = told(&test);
            assert!(of_both.len() == 1 && of_both[0].contains("result: Ok(())"), "{profile} {domain:?}: {of_both:?}");
            // Written by the peer, and sent behind a message.
            test.host.submit(2, Access::RemoteWrite, &[segment], true).unwrap();
            test.until("answered", |pair| {
                pair.serve(true);
                pair.host.outstanding.is_empty()
            });
            assert_eq!(test.status(2), Some("replied"), "{profile} {domain:?}");
            test.host.send(3, &[segment]).unwrap();
            test.until("sent", |pair| pair.host.ended.len() == 3);
            assert_eq!((test.host.disconnected, test.host.engine.statistics().posts_refused), (0, 0));
        }
    }
}

#[test]
fn a_transfer_lands_in_a_memory_that_was_declared_later() {
    let mut test = Scripted::of(Setup::new("reg_mr"));
    test.connect();
    let bytes = test.target.data.slice(LATE, 512).unwrap();
    let late = test.target.engine.add_memory(bytes.clone(), MemoryAccess::ReadWrite).unwrap();
    test.host.data.fill(0, 512, 0xA7).unwrap();
    let segment = test.host.segment(0, 512);
    test.host.submit(1, Access::RemoteRead, &[segment], false).unwrap();
    let (name, grants) = test.command();
    test.until("told", |pair| pair.target.events.iter().any(|event| event.starts_with("MemoryRegistered")));
    let remote = RemoteSegment { remote: RemoteRange { address: grants[0].address, key: grants[0].key }, length: 512 };
    let local = [Segment { memory: late, offset: 0, length: 512 }];
    let connection = test.target.connection.unwrap();
    let fetch = FetchRequest { local: &local, remote: &[remote], cookie: 1 };
    test.target.engine.fetch(connection, &fetch).unwrap();
    test.until("fetched", |pair| pair.target.fetched == 1);
    let mut found = [0; 512];
    bytes.read(0, &mut found).unwrap();
    assert_eq!(found, [0xA7; 512]);
    test.reply(name, None);
    test.until("answered", |pair| pair.host.outstanding.is_empty());
}

#[test]
fn a_memory_that_the_device_refuses_is_told_and_the_connection_goes_on_without_it() {
    let mut test = Scripted::of(Setup::new("reg_mr"));
    test.connect();
    test.faults.fail_command(CommandKind::RegisterMemory, CommandError::EXHAUSTED, 1);
    let refused = declare(&mut test);
    test.until("told", |pair| pair.host.events.iter().any(|event| event.starts_with("MemoryRegistered")));
    assert!(told(&test)[0].contains("Err("), "{:?}", told(&test));
    let segment = Segment { memory: refused, offset: 0, length: 64 };
    assert_eq!(test.host.submit(1, Access::RemoteWrite, &[segment], true), Err(SubmitError::UnknownMemory));
    assert_eq!(test.host.control.statistics().memories_refused, 1);
    test.round_trip(2);
    // With the next one it is asked again.
    let next = declare(&mut test);
    test.until("told", |pair| {
        pair.host.events.iter().filter(|event| event.starts_with("MemoryRegistered")).count() == 3
    });
    for (cookie, memory) in [(3, refused), (4, next)] {
        let segment = Segment { memory, offset: 0, length: 64 };
        test.host.submit(cookie, Access::RemoteWrite, &[segment], true).unwrap();
    }
    test.until("answered", |pair| {
        pair.serve(true);
        pair.host.outstanding.is_empty()
    });
}

#[test]
fn whenever_it_is_declared_a_connection_that_opens_has_it_and_so_has_the_one_behind_one_that_ends() {
    for steps in 0..12 {
        let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
        let options = test.host.connection_options();
        let connection = test.host.engine.connect(address(), b"hello", &options).unwrap();
        test.steps(steps);
        let late = declare(&mut test);
        let segment = Segment { memory: late, offset: 0, length: 64 };
        test.until("open, and it can be used", |pair| {
            pair.host.is_ready() && pair.host.engine.coverage(connection, &[segment], 1).is_ok()
        });
        test.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        test.until("answered", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
        let another = declare(&mut test);
        test.host.engine.disconnect(connection);
        test.until_gone();
        assert!(told(&test).len() <= 2, "{steps}: {:?}", told(&test));
        test.reconnect_works();
        let segment = Segment { memory: another, offset: 0, length: 64 };
        test.host.submit(90, Access::RemoteWrite, &[segment], true).unwrap();
        test.until("answered", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
    }
}
