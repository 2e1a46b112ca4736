//! The wrappers `record` and `fault`, over the software NIC.

mod harness;

use frwr_engine::provider::fault::{CommandKind, CompletionFault, CompletionFilter, FaultHandle, Faulty};
use frwr_engine::provider::record::{Record, Recorded, RecordedOperation, Tap};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftProfile};
use frwr_engine::provider::{
    Access, Command, CommandError, Completion, CompletionQueue, Device, FailureStatus, Port, PostRefusal, Success,
    Token, TokenKind,
};
use harness::pair::{Ends, Pair};
use harness::soft::{ADDRESS, on_all};
use harness::{Builder, Host, statuses};

fn recorded(profile: SoftProfile, capacity: usize) -> (Pair<Recorded<SoftDevice>>, Tap) {
    let fabric = SoftFabric::new();
    let (owner, taps) = Recorded::new(fabric.device(SoftOptions::new(profile)), capacity);
    let (peer, _) = Recorded::new(fabric.device(SoftOptions::new(profile)), 1);
    let pair = Pair::new(owner, peer, ADDRESS);
    let tap = taps.take(pair.owner.port.id()).expect("the port was opened");
    assert!(taps.take(pair.owner.port.id()).is_none(), "once");
    (pair, tap)
}

#[test]
fn d01_records_say_what_was_posted_and_what_completed() {
    on_all(|profile| {
        let (mut pair, mut tap) = recorded(profile, 256);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 2);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 64)];
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        tap.mark_iteration(41);
        pair.owner_runs(ends.owner, &chain.send(&element).signalled(), 1);
        let first = tap.pop().expect("the registration");
        let Record::Posted { iteration: 41, accepted: true, signalled: false, length: 64, operation, .. } = first
        else {
            panic!("{first:?}");
        };
        let RecordedOperation::Register { key, access: Access::RemoteRead, iova, elements: 1, .. } = operation else {
            panic!("{operation:?}");
        };
        assert_eq!((key, iova), (grant.key, grant.address));
        assert!(matches!(tap.pop(), Some(Record::Posted { signalled: true, length: 64, .. })));
        assert!(matches!(tap.pop(), Some(Record::Completed { queue: CompletionQueue::Send, .. })));
        assert_eq!(tap.pop(), None);
        let counters = tap.counters();
        assert_eq!(counters, pair.owner.port.counters());
        assert_eq!((counters.doorbells, counters.registers, counters.sends, counters.signalled), (1, 1, 1, 1));
    });
}

/// One doorbell per queue pair and iteration: the two counters are equal exactly then.
#[test]
fn d02_doorbells_equal_pairs_of_iteration_and_queue_pair() {
    let (mut pair, tap) = recorded(SoftProfile::RegMr, 4);
    let (a, b) = (pair.connect(), pair.connect());
    pair.peer.post_receives(a.peer, 0, 8);
    pair.peer.post_receives(b.peer, 8, 8);
    let chain = Builder::new().send(&[]).signalled();
    for iteration in 0..3 {
        tap.mark_iteration(iteration);
        pair.owner.post(a.owner, &chain).expect("room");
        pair.owner.post(b.owner, &chain).expect("room");
    }
    assert_eq!((tap.counters().doorbells, tap.counters().pairs), (6, 6));
    pair.owner.post(a.owner, &chain).expect("room");
    assert_eq!((tap.counters().doorbells, tap.counters().pairs), (7, 6));
    pair.settle();
    assert_eq!(tap.counters().send_completions, 7);
    assert_eq!(tap.counters().dropped_records, 14 - 4, "nobody drained: dropped, counted, and nothing waited");
}

fn faulty(profile: SoftProfile) -> (Pair<Faulty<SoftDevice>>, Ends, FaultHandle) {
    let fabric = SoftFabric::new();
    let (owner, handle) = Faulty::new(fabric.device(SoftOptions::new(profile)));
    let (peer, _) = Faulty::new(fabric.device(SoftOptions::new(profile)));
    let mut pair = Pair::new(owner, peer, ADDRESS);
    let ends = pair.connect();
    pair.peer.post_receives(ends.peer, 0, 16);
    (pair, ends, handle)
}

fn three_sends() -> Builder {
    Builder::new().send(&[]).signalled().send(&[]).signalled().send(&[]).signalled()
}

#[test]
fn u15_f03_a_scripted_refusal_takes_a_prefix_or_nothing() {
    on_all(|profile| {
        for wanted in 0..=3 {
            let (mut pair, ends, faults) = faulty(profile);
            faults.refuse_post(ends.owner, wanted, PostRefusal::QueueFull);
            let error = pair.owner.post(ends.owner, &three_sends()).expect_err("scripted");
            let taken = if matches!(profile, SoftProfile::Umr { .. }) { 0 } else { wanted };
            assert_eq!((error.accepted, error.reason), (taken, PostRefusal::QueueFull));
            pair.settle();
            assert_eq!((pair.owner.sent.len(), pair.peer.received.len()), (taken, taken));
            pair.owner_runs(ends.owner, &three_sends(), 3);
            assert_eq!(faults.faults(), 1);
        }
    });
}

#[test]
fn f11_held_completions_come_late_and_in_order() {
    let (mut pair, ends, faults) = faulty(SoftProfile::Window);
    faults.hold(CompletionQueue::Send);
    pair.owner.post(ends.owner, &three_sends()).expect("room");
    pair.settle();
    assert!(pair.owner.sent.is_empty());
    faults.release();
    pair.owner.post(ends.owner, &three_sends()).expect("room");
    pair.until("six completions", |pair| pair.owner.sent.len() == 6);
    let indices: Vec<u32> = pair.owner.sent.iter().map(|completion| completion.token.index()).collect();
    assert_eq!(indices, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn f08_f10_f11_completions_are_dropped_repeated_and_replaced() {
    let (mut pair, ends, faults) = faulty(SoftProfile::RegMr);
    faults.on_completions(CompletionFilter::queue_pair(ends.owner), CompletionFault::Drop, 1);
    faults.on_completions(CompletionFilter::kind(TokenKind::Message), CompletionFault::Duplicate, 1);
    pair.owner.post(ends.owner, &three_sends()).expect("room");
    pair.until("three completions", |pair| pair.owner.sent.len() == 3);
    let indices: Vec<u32> = pair.owner.sent.iter().map(|completion| completion.token.index()).collect();
    assert_eq!(indices, [1, 1, 2]);
    faults.fail_from_now(ends.owner, FailureStatus::RemoteOperation);
    let done = pair.owner_runs(ends.owner, &three_sends(), 3);
    let flushed = Some(FailureStatus::Flushed);
    assert_eq!(statuses(&done), [Some(FailureStatus::RemoteOperation), flushed, flushed]);
    faults.clear();
    let done = pair.owner_runs(ends.owner, &three_sends(), 3);
    assert_eq!(statuses(&done), [None; 3]);
}

#[test]
fn f12_a_completion_out_of_nowhere() {
    let (mut pair, ends, faults) = faulty(SoftProfile::RegMr);
    let success = Success { bytes: u32::MAX, invalidated: Some(0xdead_beef) };
    let garbage = Completion { token: Token(u64::MAX), queue_pair: ends.owner, result: Ok(success) };
    faults.inject(pair.owner.port.id(), CompletionQueue::Receive, garbage);
    pair.settle();
    assert_eq!(pair.owner.received, [garbage]);
}

#[test]
fn f21_f33_commands_fail_by_kind() {
    on_all(|profile| {
        let fabric = SoftFabric::new();
        let (device, faults) = Faulty::new(fabric.device(SoftOptions::new(profile)));
        let mut host = Host::new(device);
        faults.fail_command(CommandKind::AllocateDomain, CommandError::EXHAUSTED, 2);
        for _ in 0..2 {
            assert_eq!(host.command(Command::AllocateDomain), Err(CommandError::EXHAUSTED));
        }
        assert!(host.command(Command::AllocateDomain).is_ok());
    });
}

/// Wrappers go around each other.
#[test]
fn d01_wrappers_nest() {
    let fabric = SoftFabric::new();
    let (faulty, _faults) = Faulty::new(fabric.device(SoftOptions::default()));
    let (mut device, taps) = Recorded::new(faulty, 16);
    let port = device.open_port(4, 4).expect("a port");
    assert!(taps.take(port.id()).is_some());
    assert_eq!(port.remote_bytes_open(), Some(0));
}

/// A profile's name is what the command line takes.
#[test]
fn u13_profiles_are_named() {
    for profile in SoftProfile::ALL {
        assert_eq!(profile.to_string().parse(), Ok(profile));
    }
    assert!("umr:8".parse::<SoftProfile>().is_err());
}
