//! Access errors: the peer's work request fails, both queue pairs die, nothing moves.

use crate::harness::deviations::Row;
use crate::harness::pair::Ends;
use crate::harness::subject::{Subject, on, on_all};
use crate::harness::{Builder, Grant, Slot, TestPair, memory, pattern, status, statuses};
use frwr_engine::provider::{
    Access, AsyncEvent, Command, DeviceEvent, FailureStatus, KeyScope, Port, ReceiveRequest, RemoteRange,
    ScatterElement, Token,
};

const REMOTE_ACCESS: Option<FailureStatus> = Some(FailureStatus::RemoteAccess);
/// Where the registration lies in the owner's memory, and how long it is.
const PLACE: u64 = 16384;
const LENGTH: u32 = 8192;
/// Writes that the peer of [`z01_revocation_bites_in_mid_transfer`] has outstanding until one is refused.
const WRITES_AHEAD: usize = 8;

/// A pair whose owner opened one registration.
fn opened(subject: Subject, access: Access) -> (TestPair, Ends, Slot, Grant) {
    let mut pair = subject.pair();
    let ends = pair.connect();
    let mut slot = pair.owner.slot(ends.owner);
    let element = [pair.owner.element(PLACE, LENGTH)];
    let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, access);
    assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain.signalled(), 1)), [None]);
    (pair, ends, slot, grant)
}

fn write_to(pair: &TestPair, remote: RemoteRange, length: u32) -> Builder {
    pair.peer.write_memory(0, &pattern(77, length as usize));
    Builder::new().write(&[pair.peer.element(0, length)], remote).signalled()
}

fn read_from(pair: &TestPair, remote: RemoteRange, length: u32) -> Builder {
    Builder::new().read(&[pair.peer.element(0, length)], remote).signalled()
}

/// The peer's access fails and kills both ends; the owner's posted receive is flushed, and its send queue says nothing.
fn is_refused(pair: &mut TestPair, ends: Ends, chain: &Builder) {
    pair.owner.post_receives(ends.owner, 0, 1);
    let before = pair.owner.sent.len();
    let peer_before = pair.peer.sent.len();
    pair.peer.post(ends.peer, chain).expect("room");
    pair.until("a refused access", |pair| pair.peer.sent.len() > peer_before);
    assert_eq!(status(&pair.peer.sent[peer_before]), REMOTE_ACCESS);
    pair.until("a flushed receive", |pair| !pair.owner.received.is_empty());
    assert_eq!(statuses(&pair.owner.received), [Some(FailureStatus::Flushed)]);
    assert_eq!(pair.owner.sent.len(), before);
}

#[test]
fn s32_only_the_granted_direction_works() {
    on_all(|subject| {
        let (mut pair, ends, _, grant) = opened(subject, Access::RemoteRead);
        let chain = write_to(&pair, grant.at(0), 64);
        is_refused(&mut pair, ends, &chain);
        assert_eq!(pair.owner.read_memory(PLACE as usize, 64), vec![0; 64]);
        let (mut pair, ends, _, grant) = opened(subject, Access::RemoteWrite);
        let chain = read_from(&pair, grant.at(0), 64);
        is_refused(&mut pair, ends, &chain);
        let (mut pair, ends, _, grant) = opened(subject, Access::RemoteReadWrite);
        let both = Builder::new()
            .write(&[pair.peer.element(0, 64)], grant.at(0))
            .read(&[pair.peer.element(64, 64)], grant.at(0))
            .signalled();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &both, 1)), [None]);
    });
}

#[test]
fn u22_a_dead_key_opens_nothing() {
    on_all(|subject| {
        let (mut pair, ends, slot, grant) = opened(subject, Access::RemoteReadWrite);
        pair.owner_runs(ends.owner, &Builder::new().invalidate(slot).signalled(), 1);
        let chain = write_to(&pair, grant.at(0), 64);
        is_refused(&mut pair, ends, &chain);

        let (mut pair, ends, slot, grant) = opened(subject, Access::RemoteReadWrite);
        pair.owner.command(Command::FreeRegistration { object: slot.object }).expect("freed with its key");
        pair.owner.assert_open(0);
        let chain = read_from(&pair, grant.at(0), 64);
        is_refused(&mut pair, ends, &chain);
    });
}

#[test]
fn u24_bounds_are_those_of_the_registration() {
    on(Subject::is_strict, "it keeps the bounds of the base registration only, see below", |subject| {
        for (offset, length) in [(u64::MAX, 64), (u64::from(LENGTH) - 63, 64), (u64::from(LENGTH), 1), (1 << 40, 8)] {
            let (mut pair, ends, _, grant) = opened(subject, Access::RemoteReadWrite);
            let chain = write_to(&pair, grant.at(offset), length);
            is_refused(&mut pair, ends, &chain);
            let (mut pair, ends, _, grant) = opened(subject, Access::RemoteReadWrite);
            let chain = read_from(&pair, grant.at(offset), length);
            is_refused(&mut pair, ends, &chain);
        }
        // A range that only begins inside is refused whole: not one byte arrives.
        let (mut pair, ends, _, grant) = opened(subject, Access::RemoteWrite);
        let chain = write_to(&pair, grant.at(0), LENGTH + 4096);
        is_refused(&mut pair, ends, &chain);
        assert_eq!(pair.owner.read_memory(PLACE as usize, LENGTH as usize), vec![0; LENGTH as usize]);
    });
}

/// rxe cannot pass the row above: outside the window but inside the memory region it executes. Outside
/// the region it refuses.
#[test]
fn u24_rxe_keeps_only_the_bounds_of_the_base_registration() {
    on(
        |subject| subject.deviates(Row::BoundsOfARegistration),
        "it keeps the bounds of every registration",
        |subject| {
            let (mut pair, ends, _, grant) = opened(subject, Access::RemoteWrite);
            let chain = write_to(&pair, grant.at(u64::from(LENGTH)), 64);
            assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [None]);
            assert_eq!(pair.owner.read_memory((PLACE + u64::from(LENGTH)) as usize, 64), pattern(77, 64));
            let chain = write_to(&pair, grant.at(crate::harness::MEMORY as u64), 64);
            is_refused(&mut pair, ends, &chain);
        },
    );
}

#[test]
fn u14_windows_work_only_through_their_queue_pair() {
    on_all(|subject| {
        let (mut pair, ends, _, grant) = opened(subject, Access::RemoteWrite);
        let others = pair.connect();
        let chain = write_to(&pair, grant.at(0), 64);
        match pair.owner.capabilities().key_scope {
            KeyScope::QueuePair => is_refused(&mut pair, others, &chain),
            KeyScope::ProtectionDomain => {
                assert_eq!(statuses(&pair.peer_runs(others.peer, &chain, 1)), [None]);
            }
        }
        // The pair that owns the key lives on.
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)).last(), Some(&None));
    });
}

#[test]
fn z01_a_key_of_another_domain_opens_nothing() {
    on_all(|subject| {
        let (mut pair, _, _, grant) = opened(subject, Access::RemoteWrite);
        let domain = pair.owner.new_domain();
        let peer_domain = pair.peer.domain;
        let others = pair.connect_with(domain, peer_domain, crate::harness::SIZES, Default::default());
        let chain = write_to(&pair, grant.at(0), 64);
        // The receive that is flushed lies in the other domain; only its flush matters.
        is_refused(&mut pair, others, &chain);
    });
}

#[test]
fn u24_no_byte_no_check() {
    on_all(|subject| {
        let (mut pair, ends, _, _) = opened(subject, Access::RemoteRead);
        let garbage = RemoteRange { address: 0xdead, key: 0xdead_beef };
        let chain = Builder::new().write(&[], garbage).signalled().read(&[], garbage).signalled();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 2)), [None, None]);
        for key in [0, 0xff, 0x8000_0000, u32::MAX, pair.owner.lkey] {
            let (mut pair, ends, _, _) = opened(subject, Access::RemoteReadWrite);
            let address = pair.owner.memory.address() + PLACE;
            let chain = write_to(&pair, RemoteRange { address, key }, 1);
            is_refused(&mut pair, ends, &chain);
        }
    });
}

/// Devices of InfiniBand raise an event at the owner; rxe raises none.
#[test]
fn s113_the_owner_hears_of_a_refused_access_by_an_event() {
    on_all(|subject| {
        let (mut pair, ends, _, grant) = opened(subject, Access::RemoteRead);
        let chain = write_to(&pair, grant.at(0), 64);
        is_refused(&mut pair, ends, &chain);
        pair.settle();
        let expected = AsyncEvent::QueuePairAccessError(ends.owner);
        let heard =
            pair.owner.events.iter().any(|event| matches!(event, DeviceEvent::Async(event) if *event == expected));
        assert_eq!(heard, subject.expects(Row::EventOfAnAccessError, true, false));
    });
}

/// A key that dies in mid-transfer bites at the next packet: earlier messages are whole, the later ones fail.
///
/// The peer goes on writing until it is refused: a real device works by itself while this thread waits for a processor,
/// and a fixed number of writes would be done before the key died.
#[test]
fn z01_revocation_bites_in_mid_transfer() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let mut slot = pair.owner.slot(ends.owner);
        let length = 65536 * 4;
        // Page lists of the default profile have room for this; windows and lists take it as one range.
        let element = [pair.owner.element(0, length)];
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        pair.peer.write_memory(0, &pattern(1, length as usize));
        let write = Builder::new().write(&[pair.peer.element(0, length)], grant.at(0)).signalled();
        let mut invalidation = Some(Builder::new().invalidate(slot).signalled());
        let mut posted = 0;
        pair.until("a refusal", |pair| {
            while posted < pair.peer.sent.len() + WRITES_AHEAD {
                pair.peer.post(ends.peer, &write).expect("room");
                posted += 1;
            }
            if pair.peer.sent.len() >= 2
                && let Some(invalidation) = invalidation.take()
            {
                pair.owner.post(ends.owner, &invalidation).expect("room");
            }
            pair.peer.sent.iter().any(|completion| completion.result.is_err())
        });
        pair.until("all completions", |pair| pair.peer.sent.len() == posted);
        pair.until("the invalidation", |pair| pair.owner.sent.len() == 2);
        // The refused access that it causes moves the queue pair to the error state, on a real device perhaps before its
        // own completion is written: it took effect, and is flushed.
        let ended = status(&pair.owner.sent[1]);
        let overtaken = subject.is_real() && ended == Some(FailureStatus::Flushed);
        assert!(ended.is_none() || overtaken, "{ended:?} {:?}", pair.peer.sent);
        let found = statuses(&pair.peer.sent);
        let good = found.iter().take_while(|status| status.is_none()).count();
        assert!(good >= 2, "{found:?}");
        assert_eq!(found[good], REMOTE_ACCESS);
        assert!(found[good + 1..].iter().all(|status| *status == Some(FailureStatus::Flushed)));
        // Nothing arrives after the invalidation completed.
        pair.owner.write_memory(0, &vec![0xee; length as usize]);
        pair.settle();
        assert_eq!(pair.owner.read_memory(0, length as usize), vec![0xee; length as usize]);
    });
}

/// Memory without local write takes neither a message nor what an RDMA READ brings.
#[test]
fn z01_memory_without_local_write_is_not_written_to() {
    on_all(|subject| {
        for reads in [true, false] {
            let mut pair = subject.pair();
            let ends = pair.connect();
            let mut slot = pair.owner.slot(ends.owner);
            let element = [pair.owner.element(0, 64)];
            let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
            pair.owner_runs(ends.owner, &chain.signalled(), 1);
            let target = memory(4096);
            let address = target.address();
            let (_, lkey) = pair.peer.register(pair.peer.domain, target, false);
            let element = ScatterElement { address, length: 64, lkey };
            if reads {
                let done = pair.peer_runs(ends.peer, &Builder::new().read(&[element], grant.at(0)), 1);
                assert!(subject.is_local_failure(status(&done[0])), "{done:?}");
            } else {
                let receive = ReceiveRequest { token: Token(0), element };
                pair.peer.port.post_receives(ends.peer, &[receive]).expect("room");
                let chain = Builder::new().send(&[pair.owner.element(0, 64)]);
                let done = pair.owner_runs(ends.owner, &chain, 1);
                assert_eq!(statuses(&done), [Some(FailureStatus::RemoteOperation)]);
                pair.until("the receive", |pair| !pair.peer.received.is_empty());
                assert!(subject.is_local_failure(status(&pair.peer.received[0])), "{:?}", pair.peer.received);
            }
        }
    });
}
