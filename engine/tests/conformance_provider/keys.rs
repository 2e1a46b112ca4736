//! Keys: rotation, wrap, and the peer's SEND_WITH_INV.

use crate::harness::deviations::Row;
use crate::harness::subject::{Subject, on, on_all, on_row};
use frwr_engine::provider::{Access, Command, ConnectionParameters, FailureStatus, KeyScope, Port, Success};

/// Why a test is not run where keys are not made for it.
const HERE_ONLY: &str = "only the owner invalidates its keys";
use crate::harness::{Builder, SIZES, statuses};

/// The first keys of objects: distinct indices, never index 0, a random low byte, and never a local key.
#[test]
fn s37_first_keys_are_distinct_and_not_local_keys() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let keys: Vec<u32> = (0..64).map(|_| pair.owner.slot(ends.owner).key).collect();
        let mut indices: Vec<u32> = keys.iter().map(|key| key >> 8).chain([pair.owner.lkey >> 8]).collect();
        indices.sort_unstable();
        indices.dedup();
        assert_eq!(indices.len(), 65);
        assert!(indices.iter().all(|index| *index != 0));
        let first_byte = keys[0] & 0xff;
        let differ = keys.iter().any(|key| key & 0xff != first_byte);
        // Indirect keys of mlx5 begin with the same low byte.
        assert_eq!(differ, pair.owner.capabilities().rotating_key_bits > 0 && !subject.has_lists());
    });
}

/// 300 registrations of one object: the low byte wraps, only the newest key works, nothing is left open.
#[test]
fn s37_f24_the_key_byte_wraps_after_256_registrations() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let mut slot = pair.owner.slot(ends.owner);
        let rotates = pair.owner.capabilities().rotating_key_bits > 0;
        let element = [pair.owner.element(0, 4096)];
        let mut keys = Vec::new();
        for _ in 0..300 {
            let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
            pair.owner_runs(ends.owner, &chain.signalled(), 1);
            let chain = Builder::new().write(&[pair.peer.element(0, 8)], grant.at(0)).signalled();
            assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [None]);
            keys.push(slot.key);
            pair.owner_runs(ends.owner, &Builder::new().invalidate(slot).signalled(), 1);
        }
        assert_eq!(keys[0], keys[256], "256 values of the low byte");
        assert_eq!(keys[0] != keys[1], rotates);
        pair.owner.assert_open(0);
    });
}

/// A stale key is noticed after the next registration where keys rotate; where they do not, it opens the new layout.
#[test]
fn u10_a_stale_key_is_noticed_only_where_keys_rotate() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 4096)];
        let (chain, stale) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
        let chain = chain.invalidate(slot);
        let (chain, _) = chain.register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        let chain = Builder::new().write(&[pair.peer.element(0, 8)], stale.at(0)).signalled();
        let rotates = pair.owner.capabilities().rotating_key_bits > 0;
        let expected = rotates.then_some(FailureStatus::RemoteAccess);
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [expected]);
    });
}

#[test]
fn u18_s58_the_right_key_is_invalidated_and_named() {
    on(Subject::invalidates_remotely, HERE_ONLY, |subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        pair.owner.post_receives(ends.owner, 0, 2);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 4096)];
        for round in 0..2 {
            let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
            pair.owner_runs(ends.owner, &chain.signalled(), 1);
            let chain = Builder::new()
                .write(&[pair.peer.element(0, 64)], grant.at(0))
                .send_invalidating(&[pair.peer.element(0, 24)], slot.key)
                .signalled();
            assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [None]);
            pair.until("the reply", |pair| pair.owner.received.len() == round + 1);
            let said = pair.owner.received[round].result;
            assert_eq!(said, Ok(Success { bytes: 24, invalidated: Some(slot.key) }));
            pair.owner.assert_open(0);
        }
    });
}

/// A wrong byte, a key of memory, garbage: the sender succeeds, the receiver's completion fails and its queue pair dies.
#[test]
fn f17_a_wrong_remote_invalidation_kills_only_the_owner() {
    on_all(|subject| {
        for wrong in 0..3 {
            let mut pair = subject.pair();
            let (owner, peer) = (pair.owner.domain, pair.peer.domain);
            // Retries of real devices take seconds each.
            let once = ConnectionParameters::default().retry_count(1);
            let ends = pair.connect_with(owner, peer, SIZES, once);
            pair.owner.post_receives(ends.owner, 0, 3);
            let mut slot = pair.owner.slot(ends.owner);
            let element = [pair.owner.element(0, 4096)];
            let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
            pair.owner_runs(ends.owner, &chain.signalled(), 1);
            let key = [slot.key ^ 1, pair.owner.lkey, 0xdead_beef][wrong];
            let chain = Builder::new().send_invalidating(&[], key).signalled();
            assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [None], "the sender succeeds");
            pair.until("the owner's receives", |pair| pair.owner.received.len() == 3);
            let flushed = Some(FailureStatus::Flushed);
            let expected = [Some(FailureStatus::RemoteInvalidRequest), flushed, flushed];
            assert_eq!(statuses(&pair.owner.received), expected);
            pair.owner.assert_open(4096); // the registration lives on
            // The peer's queue pair is alive and takes a send, which nobody answers.
            let done = pair.peer_runs(ends.peer, &Builder::new().send(&[]), 1);
            assert_eq!(statuses(&done), [Some(FailureStatus::RetryExceeded)]);
        }
    });
}

#[test]
fn f18_a_second_remote_invalidation_is_refused() {
    let can = |subject: Subject| subject.is_strict() && subject.invalidates_remotely();
    on(can, "its host would crash, see below, or only the owner invalidates its keys", |subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        pair.owner.post_receives(ends.owner, 0, 2);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 4096)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        let chain = Builder::new().send_invalidating(&[], slot.key).send_invalidating(&[], slot.key).signalled();
        pair.peer_runs(ends.peer, &chain, 1);
        pair.until("both", |pair| pair.owner.received.len() == 2);
        assert_eq!(statuses(&pair.owner.received), [None, Some(FailureStatus::RemoteInvalidRequest)]);
    });
}

/// A key that was not made for it survives the peer's invalidation, and the queue pair does not.
#[test]
fn u18_a_key_that_only_its_owner_invalidates_survives_the_peer() {
    on(
        |subject| !subject.invalidates_remotely(),
        "its keys are the peer's to invalidate, see above",
        |subject| {
            let mut pair = subject.pair();
            let ends = pair.connect();
            assert!(!pair.owner.capabilities().remote_invalidation);
            pair.owner.post_receives(ends.owner, 0, 2);
            let mut slot = pair.owner.slot(ends.owner);
            let element = [pair.owner.element(0, 4096)];
            let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
            pair.owner_runs(ends.owner, &chain.signalled(), 1);
            pair.peer_runs(ends.peer, &Builder::new().send_invalidating(&[], slot.key).signalled(), 1);
            pair.until("both", |pair| pair.owner.received.len() == 2);
            let expected = [Some(FailureStatus::RemoteInvalidRequest), Some(FailureStatus::Flushed)];
            assert_eq!(statuses(&pair.owner.received), expected);
            pair.owner.assert_open(4096);
        },
    );
}

#[test]
fn f18_rxe_crashes_on_a_second_remote_invalidation() {
    on_row(Row::SecondRemoteInvalidation, |subject| {
        if !subject.deviates(Row::SecondRemoteInvalidation) {
            return;
        }
        let mut pair = subject.pair();
        let ends = pair.connect();
        let monitor = pair.owner.device.monitor().expect("a software NIC");
        pair.owner.post_receives(ends.owner, 0, 2);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 4096)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        let chain = Builder::new().send_invalidating(&[], slot.key).send_invalidating(&[], slot.key);
        pair.peer.post(ends.peer, &chain).expect("room");
        pair.settle();
        assert!(monitor.crashed());
    });
}

/// A key of another queue pair's window: refused; mkeys and MRs of the same domain fall, and rxe forgets to look.
#[test]
fn f17_a_window_of_another_queue_pair_is_not_invalidated() {
    on(Subject::invalidates_remotely, HERE_ONLY, |subject| {
        let mut pair = subject.pair();
        let (ends, others) = (pair.connect(), pair.connect());
        pair.owner.post_receives(others.owner, 0, 1);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 4096)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        pair.peer_runs(others.peer, &Builder::new().send_invalidating(&[], slot.key).signalled(), 1);
        pair.until("the message", |pair| pair.owner.received.len() == 1);
        let bound = pair.owner.capabilities().key_scope == KeyScope::QueuePair;
        let refused = subject.expects(Row::InvalidationThroughAnotherQueuePair, bound, false);
        let expected = refused.then_some(FailureStatus::RemoteInvalidRequest);
        assert_eq!(statuses(&pair.owner.received), [expected]);
        pair.owner.assert_open(if refused { 4096 } else { 0 });
    });
}

/// A domain per peer keeps peers apart where keys are domain-wide; rxe forgets to look.
#[test]
fn z05_a_key_of_another_domain_is_not_invalidated() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let domain = pair.owner.new_domain();
        let peer_domain = pair.peer.domain;
        let others = pair.connect_with(domain, peer_domain, SIZES, Default::default());
        let place = crate::harness::memory(4096);
        let address = place.address();
        let (_, lkey) = pair.owner.register(domain, place, true);
        let token = frwr_engine::provider::Token(1);
        let receive = frwr_engine::provider::ReceiveRequest {
            token,
            element: frwr_engine::provider::ScatterElement { address, length: 64, lkey },
        };
        pair.owner.port.post_receives(others.owner, &[receive]).expect("room");
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 4096)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        pair.peer_runs(others.peer, &Builder::new().send_invalidating(&[], slot.key).signalled(), 1);
        pair.until("the message", |pair| pair.owner.received.len() == 1);
        let right = Some(FailureStatus::RemoteInvalidRequest);
        let expected = subject.expects(Row::InvalidationThroughAnotherQueuePair, right, None);
        assert_eq!(statuses(&pair.owner.received), [expected]);
    });
}

/// An index that was freed does not come back at once: a stale key meets nobody.
#[test]
fn k01_freed_indices_come_back_late() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let first = pair.owner.slot(ends.owner);
        pair.owner.command(Command::FreeRegistration { object: first.object }).expect("freed");
        for _ in 0..100 {
            let slot = pair.owner.slot(ends.owner);
            assert_ne!(slot.key >> 8, first.key >> 8);
            pair.owner.command(Command::FreeRegistration { object: slot.object }).expect("freed");
        }
    });
}
