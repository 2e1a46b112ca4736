//! Connection management: the event flow of rdma_cm.

mod harness;

use frwr_engine::provider::soft::{SoftFabric, SoftOptions, SoftProfile};
use frwr_engine::provider::{
    Access, Answer, Command, CommandError, ConnectionEvent, ConnectionParameters, RejectReason,
};
use harness::pair::{Ends, Pair};
use harness::soft::{ADDRESS, on_all, pair};
use harness::{Builder, Host, SIZES, statuses};

fn rejection(events: &[ConnectionEvent]) -> Option<(RejectReason, Vec<u8>)> {
    events.iter().find_map(|event| match event {
        ConnectionEvent::Rejected { reason, private_data, .. } => Some((*reason, private_data.to_vec())),
        _ => None,
    })
}

#[test]
fn f31_nobody_listens() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let listener = pair.listener;
        pair.peer.command(Command::StopListening { listener }).expect("stopped");
        let queue_pair = pair.owner.queue_pair(SIZES);
        pair.owner.connect(queue_pair, ADDRESS, ConnectionParameters::default());
        pair.settle();
        assert_eq!(rejection(&pair.owner.connection_events()), Some((RejectReason::NoListener, Vec::new())));
        // The address is free again, and the queue pair can try once more.
        let Ok(Answer::Listener(listener)) = pair.peer.command(Command::Listen { address: ADDRESS }) else {
            panic!("the address is free");
        };
        pair.listener = listener;
        let peer = pair.peer.queue_pair(SIZES);
        pair.join(Ends { owner: queue_pair, peer }, ConnectionParameters::default());
    });
}

#[test]
fn f31_a_request_is_rejected_with_data() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let queue_pair = pair.owner.queue_pair(SIZES);
        pair.owner.connect(queue_pair, ADDRESS, ConnectionParameters::default());
        pair.settle();
        let [ConnectionEvent::Request { incoming, parameters, .. }] = pair.peer.connection_events()[..] else {
            panic!("one request");
        };
        assert_eq!(parameters, ConnectionParameters::default());
        let private_data: frwr_engine::provider::PrivateData = b"no".iter().copied().collect();
        let reject = Command::Reject { incoming, private_data };
        assert!(pair.peer.command(reject.clone()).is_ok());
        assert_eq!(pair.peer.command(reject), Err(CommandError::Unknown), "once");
        pair.settle();
        assert_eq!(rejection(&pair.owner.connection_events()), Some((RejectReason::Consumer, b"no".to_vec())));
    });
}

#[test]
fn f31_an_address_is_taken_once() {
    on_all(|profile| {
        let mut pair = pair(profile);
        assert_eq!(pair.owner.command(Command::Listen { address: ADDRESS }), Err(CommandError::Address));
    });
}

/// A device that goes tells those who wait for it and those who are connected.
#[test]
fn f33_a_device_that_goes_is_noticed() {
    on_all(|profile| {
        let fabric = SoftFabric::new();
        let options = SoftOptions::new(profile);
        let mut pair = Pair::new(fabric.device(options), fabric.device(options), ADDRESS);
        let ends = pair.connect();
        let waiting = pair.owner.queue_pair(SIZES);
        pair.owner.connect(waiting, ADDRESS, ConnectionParameters::default());
        let Pair { mut owner, peer, .. } = pair;
        drop(peer);
        for _ in 0..100 {
            owner.step();
        }
        let events = owner.connection_events();
        let gone = |wanted| {
            events
                .iter()
                .any(|event| matches!(event, ConnectionEvent::Disconnected { queue_pair } if *queue_pair == wanted))
        };
        let unreachable = |wanted| {
            events
                .iter()
                .any(|event| matches!(event, ConnectionEvent::Unreachable { queue_pair } if *queue_pair == wanted))
        };
        assert!(gone(ends.owner) && unreachable(waiting), "{events:?}");
        // Its address is free.
        let mut next = Host::new(fabric.device(options));
        assert!(next.command(Command::Listen { address: ADDRESS }).is_ok());
    });
}

/// The peer hears of a disconnect once; the queue pairs stay as they are; a second disconnect says nothing (I35).
#[test]
fn i35_a_disconnect_is_told_once_and_leaves_the_queue_pairs_alone() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 1);
        for _ in 0..2 {
            assert!(pair.owner.command(Command::Disconnect { queue_pair: ends.owner }).is_ok());
            pair.settle();
            assert!(pair.peer.command(Command::Disconnect { queue_pair: ends.peer }).is_ok());
            pair.settle();
        }
        let heard = pair.peer.connection_events();
        assert!(matches!(heard[..], [ConnectionEvent::Disconnected { queue_pair }] if queue_pair == ends.peer));
        assert!(pair.owner.connection_events().is_empty());
        let done = pair.owner_runs(ends.owner, &Builder::new().send(&[]).signalled(), 1);
        assert_eq!(statuses(&done), [None]);
    });
}

/// A queue pair that was destroyed while it was connecting.
#[test]
fn f31_an_accept_that_comes_too_late_ends_the_other_side() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let queue_pair = pair.owner.queue_pair(SIZES);
        pair.owner.connect(queue_pair, ADDRESS, ConnectionParameters::default());
        pair.settle();
        pair.owner.command(Command::DestroyQueuePair { queue_pair }).expect("destroyed");
        let [ConnectionEvent::Request { incoming, .. }] = pair.peer.connection_events()[..] else {
            panic!("one request");
        };
        let there = pair.peer.queue_pair(SIZES);
        let (private_data, parameters) = Default::default();
        let accept = Command::Accept { incoming, queue_pair: there, private_data, parameters };
        assert!(pair.peer.command(accept).is_ok());
        pair.settle();
        let heard = pair.peer.connection_events();
        assert!(
            matches!(heard[..], [ConnectionEvent::Disconnected { queue_pair }] if queue_pair == there),
            "{heard:?}"
        );
        let done = pair.peer_runs(there, &Builder::new().send(&[]), 1);
        assert_eq!(done.len(), 1);
    });
}

/// 1,000 connections one after the other, each with traffic, leave nothing behind.
#[test]
fn f32_a_thousand_connections_leave_nothing_behind() {
    let options = SoftOptions { wire_packets: 2, ..SoftOptions::new(SoftProfile::RegMr) };
    let mut pair = harness::soft::pair_with(options);
    for round in 0..1000 {
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 1);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 64)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        let done = pair.owner_runs(ends.owner, &chain.send(&element).signalled(), 1);
        assert_eq!(statuses(&done), [None], "round {round}");
        pair.until("the message", |pair| pair.peer.received.len() == 1);
        assert!(pair.owner.command(Command::Disconnect { queue_pair: ends.owner }).is_ok());
        pair.until("the disconnect", |pair| !pair.peer.connection_events().is_empty());
        pair.owner.command(Command::FreeRegistration { object: slot.object }).expect("freed");
        pair.owner.command(Command::DestroyQueuePair { queue_pair: ends.owner }).expect("destroyed");
        pair.peer.command(Command::DestroyQueuePair { queue_pair: ends.peer }).expect("destroyed");
        pair.owner.sent.clear();
        pair.peer.received.clear();
    }
    let (base, domain) = (pair.owner.base, pair.owner.domain);
    assert!(pair.owner.command(Command::DeregisterMemory { base }).is_ok());
    assert!(pair.owner.command(Command::FreeDomain { domain }).is_ok(), "nothing lives in it");
}
