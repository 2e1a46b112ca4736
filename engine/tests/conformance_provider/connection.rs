//! Connection management: the event flow of rdma_cm.

use crate::harness::pair::{Ends, Pair};
use crate::harness::subject::{Network, on_all, on_soft};
use crate::harness::{Builder, SIZES, TestPair, statuses};
use frwr_engine::provider::{
    Access, Answer, Command, CommandError, ConnectionEvent, ConnectionParameters, RejectReason,
};

/// Reason and private data, without what a real connection manager fills it up with.
fn rejection(events: &[ConnectionEvent]) -> Option<(RejectReason, Vec<u8>)> {
    let text = |data: &[u8]| data.iter().copied().take_while(|byte| *byte != 0).collect();
    events.iter().find_map(|event| match event {
        ConnectionEvent::Rejected { reason, private_data, .. } => Some((*reason, text(private_data))),
        _ => None,
    })
}

#[test]
fn f31_nobody_listens() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let (listener, address) = (pair.listener, pair.address);
        pair.peer.command(Command::StopListening { listener }).expect("stopped");
        let mut queue_pair = pair.owner.queue_pair(SIZES);
        pair.owner.connect(queue_pair, address, ConnectionParameters::default());
        let heard = pair.until_owner_hears();
        assert_eq!(rejection(&heard), Some((RejectReason::NoListener, Vec::new())));
        // The address is free again, and the queue pair can try once more; a real one is past its first states.
        let Ok(Answer::Listener(listener)) = pair.peer.command(Command::Listen { address }) else {
            panic!("the address is free");
        };
        pair.listener = listener;
        if pair.owner.has_verbs() {
            queue_pair = pair.owner.queue_pair(SIZES);
        }
        let peer = pair.peer.queue_pair(SIZES);
        pair.join(Ends { owner: queue_pair, peer }, ConnectionParameters::default());
    });
}

#[test]
fn f31_a_request_is_rejected_with_data() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let queue_pair = pair.owner.queue_pair(SIZES);
        let address = pair.address;
        pair.owner.connect(queue_pair, address, ConnectionParameters::default());
        let [ConnectionEvent::Request { incoming, parameters, local, .. }] = pair.until_peer_hears()[..] else {
            panic!("one request");
        };
        assert_eq!(local, Some(address), "as the owner called it");
        assert_eq!(parameters, ConnectionParameters::default());
        let private_data: frwr_engine::provider::PrivateData = b"no".iter().copied().collect();
        let reject = Command::Reject { incoming, private_data };
        assert!(pair.peer.command(reject.clone()).is_ok());
        assert_eq!(pair.peer.command(reject), Err(CommandError::Unknown), "once");
        let heard = pair.until_owner_hears();
        assert_eq!(rejection(&heard), Some((RejectReason::Consumer, b"no".to_vec())));
    });
}

#[test]
fn f31_an_address_is_taken_once() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let address = pair.address;
        let again = pair.owner.command(Command::Listen { address });
        assert!(matches!(again, Err(CommandError::Address(_))), "{again:?}");
    });
}

/// A device that goes tells those who wait for it and those who are connected.
#[test]
fn f33_a_device_that_goes_is_noticed() {
    on_all(|subject| {
        let network = Network::new(subject);
        let address = network.address();
        let mut pair = Pair::new(network.device(), network.device(), address);
        let ends = pair.connect();
        let waiting = pair.owner.queue_pair(SIZES);
        pair.owner.connect(waiting, address, ConnectionParameters::default());
        if subject.is_real() {
            // A request that is still on its way would be sent again for a minute.
            pair.until_peer_hears();
        }
        let Pair { mut owner, peer, .. } = pair;
        drop(peer);
        let mut events = Vec::new();
        let mut patience = owner.patience();
        while events.len() < 2 && patience.is_left() {
            owner.step();
            events.extend(owner.connection_events());
        }
        let gone = |wanted| {
            events
                .iter()
                .any(|event| matches!(event, ConnectionEvent::Disconnected { queue_pair } if *queue_pair == wanted))
        };
        let unreachable = |wanted| {
            events.iter().any(|event| match event {
                ConnectionEvent::Unreachable { queue_pair, .. } => *queue_pair == wanted,
                // The kernel rejects in the name of a program that is gone.
                ConnectionEvent::Rejected { queue_pair, .. } => *queue_pair == wanted && subject.is_real(),
                _ => false,
            })
        };
        assert!(gone(ends.owner) && unreachable(waiting), "{events:?}");
        // Its address is free.
        let mut next = network.host();
        assert!(next.command(Command::Listen { address }).is_ok());
    });
}

/// The peer hears of a disconnect once; the queue pairs stay as they are; a second disconnect says nothing (I35).
#[test]
fn i35_a_disconnect_is_told_once_and_leaves_the_queue_pairs_alone() {
    on_all(|subject| {
        let mut pair = subject.pair();
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
        // Of rdma_cm both sides hear it, each once.
        let heard = pair.owner.connection_events();
        assert!(heard.len() <= usize::from(subject.is_real()), "{heard:?}");
        let done = pair.owner_runs(ends.owner, &Builder::new().send(&[]).signalled(), 1);
        assert_eq!(statuses(&done), [None]);
    });
}

/// A queue pair that was destroyed while it was connecting.
#[test]
fn f31_an_accept_that_comes_too_late_ends_the_other_side() {
    on_soft("rdma_cm sends an accept that nobody answers for a minute", |profile| {
        let mut pair = crate::harness::soft::pair(profile);
        let queue_pair = pair.owner.queue_pair(SIZES);
        let address = pair.address;
        pair.owner.connect(queue_pair, address, ConnectionParameters::default());
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
    on_all(|subject| {
        let mut pair = subject.pair_with(|options| options.wire_packets = 2);
        // Of a real device the engine's suite makes the thousand, at a sixth of a second each in the guest.
        let rounds = if subject.is_real() { 100 } else { 1000 };
        for round in 0..rounds {
            connect_once(&mut pair, round);
        }
        let live = pair.owner.device.live();
        assert_eq!((live.queue_pairs.len(), live.registrations.len()), (0, 0));
        let (base, domain) = (pair.owner.base, pair.owner.domain);
        assert!(pair.owner.command(Command::DeregisterMemory { base }).is_ok());
        assert!(pair.owner.command(Command::FreeDomain { domain }).is_ok(), "nothing lives in it");
    });
}

/// A connection from its first to its last object, with a registration and a message.
fn connect_once(pair: &mut TestPair, round: u32) {
    let ends = pair.connect();
    pair.peer.post_receives(ends.peer, 0, 1);
    let mut slot = pair.owner.slot(ends.owner);
    let element = [pair.owner.element(0, 64)];
    let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
    let done = pair.owner_runs(ends.owner, &chain.send(&element).signalled(), 1);
    assert_eq!(statuses(&done), [None], "round {round}");
    pair.until("the message", |pair| pair.peer.received.len() == 1);
    assert!(pair.owner.command(Command::Disconnect { queue_pair: ends.owner }).is_ok());
    pair.until_peer_hears();
    assert!(pair.peer.command(Command::Disconnect { queue_pair: ends.peer }).is_ok());
    pair.owner.command(Command::FreeRegistration { object: slot.object }).expect("freed");
    pair.owner.command(Command::DestroyQueuePair { queue_pair: ends.owner }).expect("destroyed");
    pair.peer.command(Command::DestroyQueuePair { queue_pair: ends.peer }).expect("destroyed");
    pair.owner.connection_events();
    pair.owner.sent.clear();
    pair.peer.received.clear();
}
