//! An engine that only writes asks for receives rarely, and hears what comes all the same.

use core::time::Duration;
use frwr_benches::{
    null_device::{NullDevice, NullPort},
    requester::{PAGE, Requester, usual_options},
};
use frwr_engine::{
    EngineOptions, Event, RemoteSegment, RequestStatus, Submission, TransferStatus, WriteRequest,
    provider::{
        Chain, CompletionBatch, CompletionQueue, Port, PortId, PostError, QueuePairId, ReceiveRequest, RemoteRange,
        SharedReceiveQueueId, soft::SoftProfile,
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Polls of a port, by queue.
#[derive(Clone, Default)]
struct Polls {
    receive: Arc<AtomicU64>,
    send: Arc<AtomicU64>,
}

impl Polls {
    fn taken(&self) -> (u64, u64) {
        (self.receive.swap(0, Relaxed), self.send.swap(0, Relaxed))
    }
}

/// A null port that counts how often it is polled, and that has no look.
struct Counting {
    port: NullPort,
    polls: Polls,
}

impl Port for Counting {
    fn id(&self) -> PortId {
        self.port.id()
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        self.port.post(queue_pair, chain)
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.port.post_receives(queue_pair, receives)
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        self.port.post_shared_receives(queue, receives)
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        let polls = if queue == CompletionQueue::Receive { &self.polls.receive } else { &self.polls.send };
        polls.fetch_add(1, Relaxed);
        self.port.poll(queue, batch)
    }
}

/// One of so many polls asks a silent receive queue (engine/src/engine/complete.rs).
const ASKED: u64 = 8;

struct Writer {
    requester: Requester<NullDevice<Counting>>,
    polls: Polls,
}

impl Writer {
    fn new() -> Self {
        let polls = Polls::default();
        let port = Counting { port: NullPort::new(false), polls: polls.clone() };
        let options = EngineOptions { transfer_depth: 8, ..usual_options() };
        let requester = Requester::open(NullDevice::new(SoftProfile::RegMr.capabilities(), port), &options).unwrap();
        Self { requester, polls }
    }

    /// Posts one WRITE, which is done when the port is polled next.
    fn post(&mut self) {
        let local = self.requester.pages(1, 1);
        let remote = [RemoteSegment { remote: RemoteRange { address: 4096, key: 77 }, length: PAGE }];
        let request = WriteRequest { local: &local, remote: &remote, cookie: 5 };
        let Requester { engine, connection, .. } = &mut self.requester;
        engine.write(*connection, &request).unwrap();
        assert_eq!(engine.flush(), 1);
    }

    /// Polls once. The cookies of what ended.
    fn poll(&mut self) -> Vec<u64> {
        let Requester { engine, protocol, .. } = &mut self.requester;
        engine.poll(Duration::ZERO, protocol);
        let mut ended = Vec::new();
        while let Some(event) = engine.next_event() {
            match event {
                Event::Written { cookie, status: TransferStatus::Done } => ended.push(cookie),
                Event::Completed { cookie, status: RequestStatus::Replied(received), .. } => {
                    engine.release(received);
                    ended.push(cookie);
                }
                other => panic!("{other:?}"),
            }
        }
        ended
    }

    fn write(&mut self, count: u64) {
        for _ in 0..count {
            self.post();
            assert_eq!(self.poll(), [5]);
        }
    }
}

#[test]
fn who_only_writes_asks_for_receives_in_one_of_eight_polls() {
    let mut writer = Writer::new();
    // Nothing is known of the queue at first.
    writer.write(16);
    let _ = writer.polls.taken();
    writer.write(10 * ASKED);
    assert_eq!(writer.polls.taken(), (10, 10 * ASKED));
    // A poll that finds nothing asks both.
    for _ in 0..5 {
        assert!(writer.poll().is_empty());
    }
    assert_eq!(writer.polls.taken(), (5, 5));
}

#[test]
fn a_message_is_heard_while_writes_go_on_and_ends_the_silence() {
    for written in 16..16 + ASKED {
        let mut writer = Writer::new();
        writer.write(written);
        // A request, whose reply is there together with the completion of a WRITE.
        let submission = Submission {
            message: &[0; 64],
            inline: &[],
            chunks: &[],
            invite_invalidation: false,
            iova_cookie: 0,
            cookie: 9,
        };
        let Requester { engine, connection, protocol, .. } = &mut writer.requester;
        let handle = engine.submit(*connection, &submission, protocol).unwrap();
        protocol.sent(handle);
        let mut polls = 0;
        let mut ended = Vec::new();
        while !ended.contains(&9) {
            writer.post();
            ended = writer.poll();
            polls += 1;
            assert!(ended.contains(&5), "each poll has the end of its WRITE");
            assert!(polls <= ASKED, "{written} written before");
        }
        let _ = writer.polls.taken();
        writer.write(10);
        assert_eq!(writer.polls.taken(), (10, 10), "the queue is asked each time again");
    }
}
