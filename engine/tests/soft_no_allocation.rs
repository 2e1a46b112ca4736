//! In steady state the hot half of the software NIC does not allocate: neither in posts nor in polls, with every operation,
//! under every profile, over several packets per message, with refused posts and with a dead queue pair.

mod harness;

use frwr_allocations::allocations;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_engine::provider::{
    Access, Chain, CompletionBatch, CompletionQueue, Operation, Port, QueuePairId, ReceiveRequest, RemoteRange, Token,
};
use harness::pair::{Ends, Pair};
use harness::soft::{ADDRESS, on_all, pair, pair_with};
use harness::{Builder, Host, SIZES, Slot};

#[global_allocator]
static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;

/// Bytes of each message: more than one packet.
const LENGTH: u32 = 10_000;
/// Rounds that are counted, each of seven work requests and two receives.
const ROUNDS: usize = 1_000;

type Soft = Host<SoftDevice>;

/// Allocations made by `act`.
fn counted(act: impl FnOnce()) -> u64 {
    let before = allocations();
    act();
    allocations() - before
}

/// Polls both queues of a port; returns how many completions came out, and how many of them had failed.
fn poll(port: &mut SoftPort, batch: &mut CompletionBatch) -> (usize, usize) {
    batch.clear();
    port.poll(CompletionQueue::Receive, batch);
    port.poll(CompletionQueue::Send, batch);
    (batch.len(), batch.iter().filter(|completion| completion.result.is_err()).count())
}

/// Posts a chain with a receive for it on the other side, and polls both until each has its completion.
fn exchange(from: &mut Soft, to: &mut Soft, ends: (QueuePairId, QueuePairId), builder: &Builder) -> u64 {
    let receive = ReceiveRequest { token: Token(1), element: to.element(500_000, LENGTH) };
    let chain = Chain { requests: &builder.requests, elements: &builder.elements };
    let receives = usize::from(builder.requests.iter().any(|r| matches!(r.operation, Operation::Send { .. })));
    let mut batch = CompletionBatch::new();
    counted(|| {
        to.port.post_receives(ends.1, &[receive][..receives]).expect("room");
        from.port.post(ends.0, chain).expect("room");
        let mut left = 1 + receives;
        while left > 0 {
            for port in [&mut from.port, &mut to.port] {
                let (taken, failed) = poll(port, &mut batch);
                assert_eq!(failed, 0);
                left -= taken;
            }
        }
    })
}

/// The owner opens two keys and says so; the peer reads, writes and invalidates one; the owner invalidates the other.
fn round(pair: &mut Pair<SoftDevice>, ends: Ends, slots: &mut [Slot; 2]) -> u64 {
    let Pair { owner, peer, .. } = pair;
    let (out, back) = ((ends.owner, ends.peer), (ends.peer, ends.owner));
    let sources = [[owner.element(0, LENGTH)], [owner.element(65_536, LENGTH)]];
    let (chain, read) = Builder::new().register(owner, &mut slots[0], &sources[0], Access::RemoteRead);
    let (chain, write) = chain.register(owner, &mut slots[1], &sources[1], Access::RemoteWrite);
    let opening = chain.send(&[owner.element(200_000, LENGTH)]).signalled();
    let local = [peer.element(0, LENGTH)];
    let answer = Builder::new().read(&local, read.at(0)).write(&local, write.at(0));
    let answer = answer.send_invalidating(&local, slots[0].key).fenced().signalled();
    let closing = Builder::new().invalidate(slots[1]).signalled();
    exchange(owner, peer, out, &opening) + exchange(peer, owner, back, &answer) + exchange(owner, peer, out, &closing)
}

#[test]
fn a13_posts_and_polls_do_not_allocate() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let ends = pair.connect();
        let mut slots = [pair.owner.slot(ends.owner), pair.owner.slot(ends.owner)];
        let allocations: u64 = (0..ROUNDS).map(|_| round(&mut pair, ends, &mut slots)).sum();
        assert_eq!(allocations, 0);
    });
}

#[test]
fn a13_posts_and_polls_between_processes_do_not_allocate() {
    let place = tempfile::tempdir().expect("a directory");
    on_all(|profile| {
        let device = || {
            let fabric = SoftFabric::between_processes(&place.path().join("nics")).expect("a directory of our own");
            fabric.device(SoftOptions::new(profile))
        };
        let mut pair = Pair::new(device(), device(), ADDRESS);
        let ends = pair.connect();
        let mut slots = [pair.owner.slot(ends.owner), pair.owner.slot(ends.owner)];
        let allocations: u64 = (0..ROUNDS).map(|_| round(&mut pair, ends, &mut slots)).sum();
        assert_eq!(allocations, 0);
    });
}

/// A full queue pair that is refused more, fails and is flushed, again and again.
#[test]
fn a13_refusals_and_flushes_do_not_allocate() {
    on_all(|profile| {
        // A failed queue pair flushes at once what a doorbell starts; here it is to be full first.
        let mut pair = pair_with(SoftOptions::new(profile).starts_at_doorbell(false));
        let ends = pair.connect();
        let mut full = Builder::new();
        for _ in 0..SIZES.send {
            full = full.write(&[pair.owner.element(0, LENGTH)], RemoteRange { address: 0, key: 0x1234 });
        }
        let chain = Chain { requests: &full.requests, elements: &full.elements };
        let receive = ReceiveRequest { token: Token(1), element: pair.owner.element(0, 1) };
        let receives = vec![receive; SIZES.receive as usize];
        let mut batch = CompletionBatch::new();
        let allocations = counted(|| {
            for _ in 0..100 {
                pair.owner.port.post_receives(ends.owner, &receives).expect("room");
                pair.owner.port.post(ends.owner, chain).expect("room");
                assert!(pair.owner.port.post_receives(ends.owner, &receives).is_err());
                assert!(pair.owner.port.post(ends.owner, chain).is_err());
                let mut left = full.requests.len() + receives.len();
                while left > 0 {
                    let (taken, failed) = poll(&mut pair.owner.port, &mut batch);
                    assert_eq!(taken, failed);
                    left -= taken;
                    poll(&mut pair.peer.port, &mut batch);
                }
            }
        });
        assert_eq!(allocations, 0);
    });
}
