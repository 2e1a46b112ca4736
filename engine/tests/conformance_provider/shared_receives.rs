//! Shared receive queues: who takes which receive, what is left of them when a queue pair ends, and their limits.

use crate::harness::deviations::Row;
use crate::harness::pair::Ends;
use crate::harness::subject::{Network, Subject, on_all, on_soft};
use crate::harness::{Builder, MEMORY, SIZES, TestPair, pattern, statuses};
use frwr_engine::provider::{
    Answer, AsyncEvent, Command, CommandError, ConnectionParameters, Device, DeviceEvent, FailureStatus, Port,
    PostRefusal, QueuePairId, SharedReceiveQueueId,
};

/// Receives of a queue that is never too small.
const ENTRIES: u32 = 64;

/// Runs a test on every subject that has shared receive queues.
fn on_sharing(test: impl Fn(Subject)) {
    on_all(|subject| {
        if Network::new(subject).device().capabilities().attributes.max_srq == 0 {
            subject.not_run("the device has no shared receive queues");
        } else {
            test(subject);
        }
    });
}

/// Connections whose peer's ends share one receive queue. Their senders try for ever.
fn sharing(pair: &mut TestPair, connections: usize) -> (SharedReceiveQueueId, Vec<Ends>) {
    let queue = pair.peer.shared_receive_queue(ENTRIES);
    let ends = (0..connections).map(|_| joined(pair, queue)).collect();
    (queue, ends)
}

fn joined(pair: &mut TestPair, queue: SharedReceiveQueueId) -> Ends {
    let ends = Ends { owner: pair.owner.queue_pair(SIZES), peer: pair.peer.queue_pair_sharing(queue) };
    pair.join(ends, ConnectionParameters::default().rnr_retry_count(7));
    ends
}

/// Sends one message of the owner's memory, and waits until it has arrived.
fn send(pair: &mut TestPair, ends: Ends, offset: u64, length: u32) {
    let before = pair.peer.received.len();
    let chain = Builder::new().send(&[pair.owner.element(offset, length)]).signalled();
    assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [None]);
    pair.until("the message", |pair| pair.peer.received.len() > before);
}

fn last_receive_events(pair: &TestPair) -> Vec<QueuePairId> {
    let queue_pair = |event: &DeviceEvent| match event {
        DeviceEvent::Async(AsyncEvent::LastReceiveReached(queue_pair)) => Some(*queue_pair),
        _ => None,
    };
    pair.peer.events.iter().filter_map(queue_pair).collect()
}

/// Receives are taken in order by whichever queue pair receives, and the completion names it.
#[test]
fn receives_are_taken_in_order_by_all_queue_pairs() {
    on_sharing(|subject| {
        let mut pair = subject.pair();
        let (queue, ends) = sharing(&mut pair, 3);
        let bytes = pattern(3, 4096);
        pair.owner.write_memory(0, &bytes);
        pair.peer.post_shared_receives(queue, 0, 12);
        let order = [0, 1, 2, 2, 0, 0, 1, 2, 1, 1, 0, 2];
        for (at, &which) in order.iter().enumerate() {
            let (offset, length) = (at * 64, 100 + at);
            send(&mut pair, ends[which], offset as u64, length as u32);
            let done = pair.peer.received[at];
            assert_eq!((done.token.index(), done.queue_pair), (at as u32, ends[which].peer));
            assert_eq!(done.result.map(|done| done.bytes), Ok(length as u32));
            assert_eq!(pair.peer.read_memory(MEMORY / 2 + at * 1024, length), bytes[offset..offset + length]);
        }
    });
}

/// A queue pair takes each receive once, also where many messages are under way on all of them.
#[test]
fn each_receive_is_taken_once() {
    on_sharing(|subject| {
        let mut pair = subject.pair();
        let (queue, ends) = sharing(&mut pair, 4);
        pair.peer.post_shared_receives(queue, 0, 60);
        for ends in &ends {
            let chain = (0..15).fold(Builder::new(), |chain, _| chain.send(&[pair.owner.element(0, 900)]));
            pair.owner.post(ends.owner, &chain.signalled()).expect("room");
        }
        pair.until("all messages", |pair| pair.peer.received.len() == 60 && pair.owner.sent.len() == 4);
        let mut taken: Vec<_> = pair.peer.received.iter().map(|done| done.token.index()).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..60).collect::<Vec<_>>());
        for ends in &ends {
            let of_this = pair.peer.received.iter().filter(|done| done.queue_pair == ends.peer);
            assert_eq!(of_this.count(), 15);
        }
    });
}

/// A queue without receives is receiver-not-ready for all its queue pairs, until some come.
#[test]
fn an_empty_queue_is_not_ready_for_all() {
    on_sharing(|subject| {
        let mut pair = subject.pair();
        let (queue, ends) = sharing(&mut pair, 2);
        for ends in &ends {
            let chain = Builder::new().send(&[pair.owner.element(0, 64)]).signalled();
            pair.owner.post(ends.owner, &chain).expect("room");
        }
        pair.settle();
        assert_eq!((pair.owner.sent.len(), pair.peer.received.len()), (0, 0));
        pair.peer.post_shared_receives(queue, 0, 2);
        pair.until("both messages", |pair| pair.owner.sent.len() == 2 && pair.peer.received.len() == 2);
        assert_eq!(statuses(&pair.owner.sent), [None; 2]);
    });
}

/// The receives of a shared queue are not those of a queue pair: none is flushed with it, and the others go on. The
/// queue pair says that it takes no more, and its number is not used for anything else until it is destroyed.
#[test]
fn a_queue_pair_that_fails_leaves_the_receives_to_the_others() {
    on_sharing(|subject| {
        let mut pair = subject.pair();
        let (queue, ends) = sharing(&mut pair, 3);
        pair.peer.post_shared_receives(queue, 0, 8);
        send(&mut pair, ends[0], 0, 64);
        pair.peer.command(Command::FailQueuePair { queue_pair: ends[0].peer }).expect("fails");
        pair.settle();
        assert_eq!(pair.peer.received.len(), 1, "nothing is flushed");
        let silent = pair.peer.capabilities().quirks.silent_about_last_receive;
        let told = if silent { Vec::new() } else { vec![ends[0].peer] };
        assert_eq!(last_receive_events(&pair), told);
        pair.peer.command(Command::FailQueuePair { queue_pair: ends[0].peer }).expect("fails again");
        pair.peer.command(Command::DestroyQueuePair { queue_pair: ends[0].peer }).expect("destroyed");
        pair.settle();
        assert_eq!(last_receive_events(&pair), told, "once");
        for (at, which) in [(1, 1), (2, 2), (3, 1)] {
            send(&mut pair, ends[which], 0, 64);
            let done = pair.peer.received[at];
            assert_eq!((done.token.index(), done.queue_pair), (at as u32, ends[which].peer));
        }
        // One that comes later takes its turn. A connection manager has told the owner of the one that went.
        pair.owner.connection_events();
        let late = joined(&mut pair, queue);
        send(&mut pair, late, 0, 64);
        assert_eq!((pair.peer.received[4].token.index(), pair.peer.received[4].queue_pair), (4, late.peer));
    });
}

/// A receive that a message has begun to fill is flushed with its queue pair, before that says that it took its last one.
#[test]
fn a_receive_that_is_being_filled_is_flushed() {
    on_soft("a kernel fills a receive faster than a test can act", |profile| {
        let subject = Subject::Soft(profile);
        let mut pair = subject.pair_with(|options| {
            options.mtu = 256;
            options.wire_packets = 1;
        });
        let (queue, ends) = sharing(&mut pair, 2);
        pair.peer.post_shared_receives(queue, 0, 3);
        let chain = Builder::new().send(&[pair.owner.element(0, 1024)]).signalled();
        pair.owner.post(ends[0].owner, &chain).expect("room");
        pair.peer.step();
        pair.peer.command(Command::FailQueuePair { queue_pair: ends[0].peer }).expect("fails");
        pair.settle();
        assert_eq!(statuses(&pair.peer.received), [Some(FailureStatus::Flushed)]);
        let flushed = pair.peer.received[0];
        assert_eq!((flushed.token.index(), flushed.queue_pair), (0, ends[0].peer));
        send(&mut pair, ends[1], 0, 64);
        assert_eq!(pair.peer.received[1].token.index(), 1);
    });
}

#[test]
fn a_queue_in_use_is_not_destroyed() {
    on_sharing(|subject| {
        let mut pair = subject.pair();
        let (queue, ends) = sharing(&mut pair, 2);
        pair.peer.post_shared_receives(queue, 0, 4);
        let destroy = || Command::DestroySharedReceiveQueue { queue };
        for ends in &ends {
            assert!(matches!(pair.peer.command(destroy()), Err(CommandError::Busy(_))));
            pair.peer.command(Command::DestroyQueuePair { queue_pair: ends.peer }).expect("destroyed");
        }
        assert_eq!(pair.peer.command(destroy()), Ok(Answer::Done));
        assert_eq!(pair.peer.command(destroy()), Err(CommandError::Unknown));
        let error = pair.peer.port.post_shared_receives(queue, &[]).map_err(|error| error.reason);
        assert_eq!(error, Err(PostRefusal::NotReady));
        let (port, domain) = (pair.peer.port.id(), pair.peer.domain);
        let create = Command::CreateQueuePair { port, domain, sizes: SIZES, shared_receives: Some(queue) };
        assert_eq!(pair.peer.command(create), Err(CommandError::Unknown));
        assert!(pair.peer.device.live().shared_receive_queues.is_empty());
    });
}

/// A domain with a shared receive queue in it stays.
#[test]
fn a_domain_goes_after_its_queues() {
    on_sharing(|subject| {
        let mut host = Network::new(subject).host();
        let (port, domain) = (host.port.id(), host.new_domain());
        let create = Command::CreateSharedReceiveQueue { port, domain, entries: 4 };
        let Ok(Answer::SharedReceiveQueue { queue, .. }) = host.command(create) else { panic!("no queue") };
        assert!(matches!(host.command(Command::FreeDomain { domain }), Err(CommandError::Busy(_))));
        assert_eq!(host.command(Command::DestroySharedReceiveQueue { queue }), Ok(Answer::Done));
        assert_eq!(host.command(Command::FreeDomain { domain }), Ok(Answer::Done));
    });
}

/// What a shared queue, and a queue pair that uses one, refuse.
#[test]
fn limits_of_a_shared_queue() {
    on_sharing(|subject| {
        let mut host = Network::new(subject).host();
        let limits = host.capabilities().attributes;
        let (port, domain) = (host.port.id(), host.domain);
        for entries in [0, limits.max_srq_wr.saturating_add(1)] {
            let create = Command::CreateSharedReceiveQueue { port, domain, entries };
            assert!(matches!(host.command(create), Err(CommandError::Invalid(_))), "{entries} entries");
        }
        let queue = host.shared_receive_queue(8);
        // A real device rounds up, and need not say so.
        let many = 4 * ENTRIES;
        let receives: Vec<_> = crate::harness::receives(&host, 0, many).collect();
        let error = host.port.post_shared_receives(queue, &receives).expect_err("far too many");
        assert_eq!(error.reason, PostRefusal::QueueFull);
        assert!(error.accepted == 8 || subject.is_real() && (8..many as usize).contains(&error.accepted), "{error:?}");
        // Its receives are posted to the queue, not to the queue pair.
        let queue_pair = host.queue_pair_sharing(queue);
        let error = host.port.post_receives(queue_pair, &receives[..1]).expect_err("it has no queue of its own");
        assert_eq!((error.accepted, error.reason), (0, PostRefusal::Invalid));
        // A queue belongs to a port, and so do its queue pairs.
        let other = host.device.open_port(16, 16).expect("a second port");
        let create = Command::CreateQueuePair { port: other.id(), domain, sizes: SIZES, shared_receives: Some(queue) };
        assert!(matches!(host.command(create), Err(CommandError::Invalid(_))));
    });
}

/// Local keys of a shared queue's receives are those of the queue's domain, whichever the queue pair's is.
#[test]
fn receives_are_of_the_domain_of_their_queue() {
    on_sharing(|subject| {
        let mut pair = subject.pair();
        let queue = pair.peer.shared_receive_queue(ENTRIES);
        let domain = pair.peer.new_domain();
        let ends = Ends { owner: pair.owner.queue_pair(SIZES), peer: pair.peer.queue_pair_sharing_in(domain, queue) };
        pair.join(ends, ConnectionParameters::default());
        pair.peer.post_shared_receives(queue, 0, 2);
        let done = pair.owner_runs(ends.owner, &Builder::new().send(&[pair.owner.element(0, 64)]).signalled(), 1);
        pair.until("the receive", |pair| !pair.peer.received.is_empty());
        let failed = done[0].result.is_err() && pair.peer.received[0].result.is_err();
        assert_eq!(failed, subject.expects(Row::DomainOfASharedReceive, false, true), "{done:?}");
    });
}
