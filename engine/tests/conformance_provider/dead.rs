//! What a dead queue pair reports, receiver-not-ready, and peers that are gone.

use crate::harness::deviations::Row;
use crate::harness::pair::Ends;
use crate::harness::subject::{Subject, on_all, on_row, on_soft};
use crate::harness::{Builder, Host, SIZES, TestPair, status, statuses};
use frwr_engine::provider::{
    Access, Command, CommandError, ConnectionParameters, Device, FailureStatus, PostRefusal, RemoteRange, Token,
};

const FLUSHED: Option<FailureStatus> = Some(FailureStatus::Flushed);
const BAD: RemoteRange = RemoteRange { address: 64, key: 0xdead_beef };

fn tokens<D: Device>(host: &Host<D>) -> Vec<Token> {
    host.sent.iter().map(|completion| completion.token).collect()
}

fn in_order(chain: &Builder) -> Vec<Token> {
    chain.requests.iter().map(|request| request.token).collect()
}

/// Every work request behind a failure completes, in order, signalled or not; the failure itself too.
#[test]
fn s113_everything_behind_a_failure_is_flushed_in_order() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let (mut a, mut b) = (pair.owner.slot(ends.owner), pair.owner.slot(ends.owner));
        let element = [pair.owner.element(0, 64)];
        let chain = Builder::new().write(&element, BAD);
        let (chain, _) = chain.register(&pair.owner, &mut a, &element, Access::RemoteRead);
        let (chain, _) = chain.register(&pair.owner, &mut b, &element, Access::RemoteRead);
        let chain = chain.invalidate(a).send(&[]).send(&[]).signalled();
        let done = pair.owner_runs(ends.owner, &chain, 6);
        let mut expected = vec![FLUSHED; 6];
        expected[0] = Some(FailureStatus::RemoteAccess);
        assert_eq!(statuses(&done), expected);
        assert_eq!(tokens(&pair.owner), in_order(&chain));
        pair.settle();
        assert_eq!(pair.owner.sent.len(), 6, "each once");
    });
}

/// Whether a flushed registration took effect is what tells rxe from the others.
#[test]
fn f05_a_flushed_registration_is_live_only_on_rxe() {
    on_row(Row::FlushedRegistration, |subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 64)];
        // No receive is posted: the SEND is not answered, and the registration runs past it.
        let chain = Builder::new().send(&[]);
        let (chain, _) = chain.register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner.post(ends.owner, &chain).expect("room");
        for _ in 0..4 {
            pair.step();
        }
        pair.owner.assert_open(64); // runs past the SEND
        pair.owner.command(Command::FailQueuePair { queue_pair: ends.owner }).expect("fails");
        pair.until("two flushes", |pair| pair.owner.sent.len() == 2);
        assert_eq!(statuses(&pair.owner.sent), [FLUSHED; 2]);
        let may_be_live = pair.owner.capabilities().quirks.flushed_registration_may_be_live;
        // The provider promises no more than libibverbs does, and what stands for a device does no better.
        assert_eq!(may_be_live, subject.is_real() || subject.deviates(Row::FlushedRegistration));
        pair.owner.assert_open(if may_be_live { 64 } else { 0 });
    });
}

/// What was executed before the failure stays silent, and its keys live.
#[test]
fn f07_what_was_executed_before_a_failure_stays_silent() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 64)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        let chain = chain.write(&element, BAD).send(&[]).signalled();
        let done = pair.owner_runs(ends.owner, &chain, 2);
        assert_eq!(statuses(&done), [Some(FailureStatus::RemoteAccess), FLUSHED]);
        pair.owner.assert_open(64);
    });
}

/// Work and receives posted to a dead queue pair are accepted and flushed; that is how a drain ends (U19).
#[test]
fn u19_a_dead_queue_pair_takes_work_and_flushes_it() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        pair.owner.post_receives(ends.owner, 0, 2);
        pair.owner.command(Command::FailQueuePair { queue_pair: ends.owner }).expect("fails");
        pair.until("flushed receives", |pair| pair.owner.received.len() == 2);
        for _ in 0..3 {
            let chain = Builder::new().send(&[]).send(&[]);
            assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 2)), [FLUSHED; 2]);
        }
        pair.owner.post_receives(ends.owner, 7, 1);
        if subject.deviates(Row::ReceiveOnADeadQueuePair) {
            pair.owner.command(Command::FailQueuePair { queue_pair: ends.owner }).expect("fails again");
        }
        pair.until("the marker", |pair| pair.owner.received.len() == 3);
        assert_eq!((pair.owner.received[2].token.index(), status(&pair.owner.received[2])), (7, FLUSHED));
    });
}

/// A queue pair that is not connected takes receives, and no sends.
#[test]
fn i27_a_queue_pair_takes_no_sends_before_it_is_connected() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let queue_pair = pair.owner.queue_pair(SIZES);
        pair.owner.post_receives(queue_pair, 0, 1);
        let error = pair.owner.post(queue_pair, &Builder::new().send(&[])).expect_err("not connected");
        // Of a real one EINVAL, which is said of bad fields too; libmlx5 says ENOMEM of a list.
        let told: &[PostRefusal] = match (subject.is_connectx(), subject.is_real()) {
            (true, _) => &[PostRefusal::Invalid, PostRefusal::QueueFull],
            (_, true) => &[PostRefusal::Invalid],
            _ => &[PostRefusal::NotReady],
        };
        assert!(error.accepted == 0 && told.contains(&error.reason), "{error:?}");
        pair.owner.command(Command::DestroyQueuePair { queue_pair }).expect("destroyed");
        let error = pair.owner.post(queue_pair, &Builder::new().send(&[])).expect_err("gone");
        assert_eq!(error.reason, PostRefusal::NotReady);
        pair.settle();
        assert!(pair.owner.received.is_empty(), "dropped without completion");
    });
}

fn connected_with(subject: Subject, rnr_retry_count: u8) -> (TestPair, Ends) {
    connected(subject, ConnectionParameters::default().rnr_retry_count(rnr_retry_count))
}

fn connected(subject: Subject, limits: ConnectionParameters) -> (TestPair, Ends) {
    let mut pair = subject.pair();
    let (owner, peer) = (pair.owner.domain, pair.peer.domain);
    let ends = pair.connect_with(owner, peer, SIZES, limits);
    (pair, ends)
}

/// A SEND without a receive waits for one; everything behind it follows, once and in order.
#[test]
fn f30_receiver_not_ready_passes_when_a_receive_comes() {
    on_all(|subject| {
        let (mut pair, ends) = connected_with(subject, 7);
        let chain = Builder::new().send(&[]).send(&[pair.owner.element(0, 100)]).signalled();
        pair.owner.post(ends.owner, &chain).expect("room");
        pair.settle();
        assert!(pair.owner.sent.is_empty());
        pair.peer.post_receives(ends.peer, 0, 2);
        pair.until("the completion", |pair| pair.owner.sent.len() == 1);
        pair.until("both messages", |pair| pair.peer.received.len() == 2);
        assert_eq!(statuses(&pair.owner.sent), [None]);
        assert_eq!(pair.peer.received[1].result.map(|done| done.bytes), Ok(100));
    });
}

#[test]
fn f30_receiver_not_ready_is_exhausted_after_its_retries() {
    on_all(|subject| {
        let (mut pair, ends) = connected_with(subject, 2);
        let done = pair.owner_runs(ends.owner, &Builder::new().send(&[]).send(&[]), 2);
        assert_eq!(statuses(&done), [Some(FailureStatus::RnrRetryExceeded), FLUSHED]);
    });
}

/// One retry means: told once that there is no receive, the sender tries again, and not at once.
#[test]
fn f30_a_sender_tries_as_often_as_agreed() {
    on_all(|subject| {
        for (rnr_retry_count, expected) in [(0, Some(FailureStatus::RnrRetryExceeded)), (1, None)] {
            if subject.is_real() && rnr_retry_count > 0 {
                // How long a real sender waits is not ours to say; that it goes on is shown below.
                continue;
            }
            let (mut pair, ends) = connected_with(subject, rnr_retry_count);
            pair.owner.post(ends.owner, &Builder::new().send(&[]).signalled()).expect("room");
            pair.steps(10);
            pair.peer.post_receives(ends.peer, 0, 1);
            pair.until("the completion", |pair| pair.owner.sent.len() == 1);
            assert_eq!(statuses(&pair.owner.sent), [expected]);
        }
    });
}

/// A SEND that met no receive until its sender gave up was never received, and neither was the WRITE behind it.
#[test]
fn f30_what_a_sender_gave_up_never_arrives() {
    on_all(|subject| {
        let (mut pair, ends) = connected_with(subject, 1);
        let mut slot = pair.owner.slot(ends.owner);
        let (chain, grant) =
            Builder::new().register(&pair.owner, &mut slot, &[pair.owner.element(0, 64)], Access::RemoteWrite);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        pair.peer.write_memory(0, &[0x5a; 64]);
        let source = [pair.peer.element(0, 64)];
        let done = pair.peer_runs(ends.peer, &Builder::new().send(&source).write(&source, grant.at(0)), 2);
        assert_eq!(statuses(&done), [Some(FailureStatus::RnrRetryExceeded), FLUSHED]);
        pair.owner.post_receives(ends.owner, 0, 1);
        pair.settle();
        assert_eq!(statuses(&pair.owner.received), []);
        assert_eq!(pair.owner.read_memory(0, 64), [0; 64]);
    });
}

/// An invalidation waits for a SEND that is not answered; the key lives on meanwhile.
#[test]
fn u04_an_invalidation_waits_for_all_earlier_work() {
    on_all(|subject| {
        let (mut pair, ends) = connected_with(subject, 7);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 64)];
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
        let chain = chain.send(&[]).invalidate(slot).signalled();
        pair.owner.post(ends.owner, &chain).expect("room");
        pair.settle();
        let write = Builder::new().write(&[pair.peer.element(0, 8)], grant.at(0)).signalled();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &write, 1)), [None]);
        pair.peer.post_receives(ends.peer, 0, 1);
        pair.until("the invalidation", |pair| pair.owner.sent.len() == 1);
        pair.owner.assert_open(0);
    });
}

/// A receive that is too short fails at both ends, each with its own status.
#[test]
fn s113_a_message_longer_than_its_receive_fails_at_both_ends() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 2);
        let done = pair.owner_runs(ends.owner, &Builder::new().send(&[pair.owner.element(0, 1025)]), 1);
        pair.until("the receives", |pair| pair.peer.received.len() == 2);
        let told = statuses(&pair.peer.received);
        let found = (status(&done[0]), told[0]);
        let right = (Some(FailureStatus::RemoteInvalidRequest), Some(FailureStatus::LocalLength));
        let known = (Some(FailureStatus::RemoteOperation), Some(FailureStatus::LocalOperation));
        assert_eq!(found, subject.expects(Row::StatusOfAShortReceive, right, known));
        assert_eq!(told[1], FLUSHED);
    });
}

/// Local keys, bounds and domains are checked when a message is sent.
#[test]
fn z01_local_elements_are_checked() {
    on_all(|subject| {
        for case in 0..4 {
            let mut pair = subject.pair();
            let ends = pair.connect();
            pair.peer.post_receives(ends.peer, 0, 1);
            let mut element = pair.owner.element(0, 64);
            match case {
                0 => element.lkey ^= 1,
                1 => element.address += crate::harness::MEMORY as u64 - 63,
                2 => element.lkey = 0,
                _ => {
                    let domain = pair.owner.new_domain();
                    let other = crate::harness::memory(4096);
                    element.address = other.address();
                    element.lkey = pair.owner.register(domain, other, true).1;
                }
            }
            let done = pair.owner_runs(ends.owner, &Builder::new().send(&[element]).send(&[]), 2);
            assert!(subject.is_local_failure(status(&done[0])), "{done:?}");
            assert_eq!(status(&done[1]), FLUSHED);
            pair.settle();
            assert!(pair.peer.received.is_empty(), "nothing was sent");
        }
    });
}

/// A peer that is gone, in three ways, ends every message; nothing blocks, and other queue pairs live on.
#[test]
fn f31_a_dead_peer_never_blocks() {
    on_all(|subject| {
        // The port of a real device does not die alone: a process takes everything along.
        for way in 0..if subject.is_real() { 2 } else { 3 } {
            // Retries of real devices take seconds each.
            let once = ConnectionParameters::default().retry_count(1);
            let (mut pair, ends) = connected(subject, once);
            let others = pair.connect();
            let queue_pair = ends.peer;
            match way {
                0 => drop(pair.peer.command(Command::DestroyQueuePair { queue_pair })),
                1 => drop(pair.peer.command(Command::FailQueuePair { queue_pair })),
                _ => {
                    let replacement = pair.peer.device.open_port(16, 16).expect("another port");
                    drop(std::mem::replace(&mut pair.peer.port, replacement));
                }
            }
            let mut chain = Builder::new();
            for _ in 0..40 {
                chain = chain.send(&[pair.owner.element(0, 65536)]);
            }
            let done = pair.owner_runs(ends.owner, &chain, 40);
            assert_eq!(status(&done[0]), Some(FailureStatus::RetryExceeded));
            assert!(done[1..].iter().all(|completion| status(completion) == FLUSHED));
            if way < 2 {
                pair.peer.post_receives(others.peer, 0, 1);
                let done = pair.owner_runs(others.owner, &Builder::new().send(&[]).signalled(), 1);
                assert_eq!(statuses(&done), [None]);
            } else {
                // Commands for a port that is gone are answered.
                pair.peer.command(Command::DestroyQueuePair { queue_pair }).expect("gone with its port");
                let domain = pair.peer.domain;
                let port = frwr_engine::provider::PortId(0);
                let create = Command::CreateQueuePair { port, domain, sizes: SIZES, shared_receives: None };
                assert!(matches!(pair.peer.command(create), Err(CommandError::DeviceGone(_))));
            }
        }
    });
}

/// A peer that stands still is not dead: the message waits, and arrives when the peer goes on.
#[test]
fn f28_a_peer_that_stands_still_is_not_dead() {
    on_soft("the kernel acknowledges for a program that stands still", |profile| {
        let mut pair = crate::harness::soft::pair(profile);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 1);
        pair.owner.post(ends.owner, &Builder::new().send(&[]).signalled()).expect("room");
        for _ in 0..crate::harness::pace::PATIENCE {
            pair.owner.step();
        }
        assert!(pair.owner.sent.is_empty());
        pair.until("the message", |pair| pair.owner.sent.len() == 1 && pair.peer.received.len() == 1);
    });
}

/// Destroying a queue pair under a live window takes rxe 50 s; the model counts it.
#[test]
fn rxe_counts_destroys_that_would_stall() {
    on_row(Row::DestroyUnderALiveKey, |subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let Some(monitor) = pair.owner.device.monitor() else {
            subject.not_run("nobody counts, and whatever drops a device measures it");
            return;
        };
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 64)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        pair.owner.command(Command::DestroyQueuePair { queue_pair: ends.owner }).expect("destroyed");
        assert_eq!(monitor.stalled_destroys(), u64::from(subject.deviates(Row::DestroyUnderALiveKey)));
    });
}
