//! The normal path, on every profile.

use crate::harness::subject::{Subject, on, on_all, on_soft};
use crate::harness::{Builder, MEMORY, SIZES, pattern, statuses};
use frwr_engine::provider::{
    Access, Chain, CompletionBatch, CompletionQueue, ConnectionParameters, Contiguity, Device, FailureStatus, Port,
    PostError, PostRefusal, Success,
};

const KIB64: u32 = 64 << 10;

/// `[BIND, BIND, SEND sig]`: one completion; the peer writes and reads 64 KiB at odd addresses through the two keys.
#[test]
fn s32_two_registrations_and_a_send_give_one_completion() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 4);
        let (mut first, mut second) = (pair.owner.slot(ends.owner), pair.owner.slot(ends.owner));
        let target = pair.owner.element(4096 + 1, KIB64);
        let source = pair.owner.element(200_000, KIB64);
        let (chain, write) = Builder::new().register(&pair.owner, &mut first, &[target], Access::RemoteWrite);
        let (chain, read) = chain.register(&pair.owner, &mut second, &[source], Access::RemoteRead);
        let chain = chain.send(&[pair.owner.element(0, 48)]).signalled();
        let done = pair.owner_runs(ends.owner, &chain, 1);
        assert_eq!(statuses(&done), [None]);
        assert_eq!(done[0].token, chain.requests[2].token);
        pair.owner.assert_open(2 * u64::from(KIB64));

        pair.owner.write_memory(200_000, &pattern(9, KIB64 as usize));
        pair.peer.write_memory(0, &pattern(5, KIB64 as usize));
        let local = [pair.peer.element(0, KIB64)];
        let back = [pair.peer.element(100_001, KIB64)];
        let chain = Builder::new().write(&local, write.at(0)).read(&back, read.at(0)).signalled();
        let done = pair.peer_runs(ends.peer, &chain, 1);
        assert_eq!(statuses(&done), [None]);
        assert_eq!(pair.owner.read_memory(4097, KIB64 as usize), pattern(5, KIB64 as usize));
        assert_eq!(pair.peer.read_memory(100_001, KIB64 as usize), pattern(9, KIB64 as usize));

        let chain = Builder::new().invalidate(first).invalidate(second).signalled();
        let done = pair.owner_runs(ends.owner, &chain, 1);
        assert_eq!(done[0].result, Ok(Success::default()));
        pair.owner.assert_open(0);
        pair.settle();
        assert_eq!(pair.owner.sent.len(), 2, "unsignalled successes are silent");
    });
}

/// Pieces of memory in any order, of any length, are one range to the peer, and nothing beside them is reached.
#[test]
fn u08_scattered_pieces_are_one_range_to_the_peer() {
    let gaps = |subject: Subject| matches!(subject.pair().owner.capabilities().contiguity, Contiguity::Gaps { .. });
    on(gaps, "it registers ranges or whole pages", |subject| {
        const PIECES: [(u64, u32); 5] = [(70_001, 3000), (5, 1), (40_000, 4097), (9, 2), (200_003, 8191)];
        let total: u32 = PIECES.iter().map(|(_, length)| length).sum();
        let mut pair = subject.pair();
        let ends = pair.connect();
        pair.owner.write_memory(0, &vec![0xee; 300_000]);
        let mut slot = pair.owner.slot(ends.owner);
        let list: Vec<_> = PIECES.iter().map(|(offset, length)| pair.owner.element(*offset, *length)).collect();
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &list, Access::RemoteReadWrite);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        pair.owner.assert_open(total.into());

        let data = pattern(3, total as usize);
        pair.peer.write_memory(0, &data);
        let there = [pair.peer.element(0, total)];
        // Back from the third byte on, so that it begins inside of a piece.
        let back = [pair.peer.element(100_000, total - 2)];
        let chain = Builder::new().write(&there, grant.at(0)).read(&back, grant.at(2)).signalled();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [None]);
        assert_eq!(pair.peer.read_memory(100_000, total as usize - 2), data[2..]);
        let mut expected = vec![0xee; 300_000];
        let mut done = 0;
        for (offset, length) in PIECES {
            let (offset, length) = (offset as usize, length as usize);
            expected[offset..offset + length].copy_from_slice(&data[done..done + length]);
            done += length;
        }
        assert!(pair.owner.read_memory(0, 300_000) == expected, "{subject}");

        let beyond = Builder::new().write(&[pair.peer.element(0, 2)], grant.at(u64::from(total) - 1)).signalled();
        let refused = statuses(&pair.peer_runs(ends.peer, &beyond, 1));
        assert_eq!(refused, [Some(FailureStatus::RemoteAccess)]);
        assert!(pair.owner.read_memory(0, 300_000) == expected, "{subject}");
    });
}

/// A chain may register, invalidate and register again: the last key works, the first does not.
#[test]
fn u02_a_chain_registers_invalidates_and_registers_again() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 2);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(8192, 4096)];
        let (chain, first) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
        let chain = chain.invalidate(slot);
        let (chain, second) = chain.register(&pair.owner, &mut slot, &element, Access::RemoteWrite);
        let chain = chain.send(&[]).signalled();
        assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [None]);
        let local = [pair.peer.element(0, 64)];
        let good = Builder::new().write(&local, second.at(10)).signalled();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &good, 1)), [None]);
        if pair.owner.capabilities().rotating_key_bits > 0 {
            let stale = Builder::new().write(&local, first.at(10)).signalled();
            assert_eq!(statuses(&pair.peer_runs(ends.peer, &stale, 1)), [Some(FailureStatus::RemoteAccess)]);
        }
    });
}

/// SENDs of several sizes arrive whole, in order, with their length.
#[test]
fn u18_messages_arrive_in_order_with_their_length() {
    on_all(|subject| {
        let mut pair = subject.pair_with(|options| (options.mtu, options.wire_packets) = (256, 2));
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 4);
        pair.owner.write_memory(0, &pattern(3, 2048));
        let mut chain = Builder::new();
        for length in [0, 1, 256, 1000] {
            let halves = [pair.owner.element(0, length / 2), pair.owner.element(1024, length - length / 2)];
            chain = chain.send(&halves).signalled();
        }
        assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 4)), [None; 4]);
        pair.until("four receives", |pair| pair.peer.received.len() == 4);
        let bytes: Vec<u32> = pair.peer.received.iter().map(|c| c.result.map_or(0, |done| done.bytes)).collect();
        assert_eq!(bytes, [0, 1, 256, 1000]);
        let place = MEMORY / 2 + 3 * 1024;
        assert_eq!(pair.peer.read_memory(place, 500), pattern(3, 2048)[..500]);
        assert_eq!(pair.peer.read_memory(place + 500, 500), pattern(3, 2048)[1024..1524]);
    });
}

/// What a provider copies into its work requests arrives as what its device fetches does; and what is posted may be overwritten by
/// nobody before it ends, whichever it is.
#[test]
fn u18_short_messages_and_writes_arrive_as_long_ones_do() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let ends = pair.connect();
        let mut slot = pair.owner.slot(ends.owner);
        let target = pair.owner.element(0, 8192);
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &[target], Access::RemoteWrite);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        for length in [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 900] {
            let data = pattern(length as u8, length as usize);
            // At an odd address.
            pair.peer.write_memory(4097, &data);
            let local = [pair.peer.element(4097, length)];
            pair.owner.post_receives(ends.owner, 0, 1);
            let chain = Builder::new().write(&local, grant.at(3)).send(&local).signalled();
            assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [None], "{subject}: {length}");
            pair.until("the message", |pair| !pair.owner.received.is_empty());
            let received = pair.owner.received.pop().and_then(|received| received.result.ok());
            assert_eq!(received.map(|received| received.bytes), Some(length), "{subject}");
            assert_eq!(pair.owner.read_memory(MEMORY / 2, length as usize), data, "{subject}: {length}");
            assert_eq!(pair.owner.read_memory(3, length as usize), data, "{subject}: {length}");
        }
    });
}

/// More RDMA READs than may be outstanding are held back, not refused; a fence waits for all of them.
#[test]
fn u23_reads_beyond_the_depth_wait_and_a_fence_waits_for_reads() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let limits = ConnectionParameters::default().initiator_depth(2);
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let ends = pair.connect_with(owner, peer, SIZES, limits);
        pair.owner.post_receives(ends.owner, 0, 2);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 65536)];
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        pair.owner.write_memory(0, &pattern(1, 65536));
        let mut chain = Builder::new();
        for index in 0..16 {
            chain = chain.read(&[pair.peer.element(index * 4096, 4096)], grant.at(index * 4096)).signalled();
        }
        // The fenced SEND carries what the last READ brought.
        let chain = chain.send(&[pair.peer.element(15 * 4096, 16)]).signalled().fenced();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 17)), [None; 17]);
        pair.until("the message", |pair| pair.owner.received.len() == 1);
        assert_eq!(pair.owner.read_memory(MEMORY / 2, 16), pattern(1, 65536)[15 * 4096..15 * 4096 + 16]);
        assert_eq!(pair.peer.read_memory(0, 65536), pattern(1, 65536));
    });
}

/// Two queue pairs on one port do not disturb each other; a port of another core has its own.
#[test]
fn s94_queue_pairs_and_ports_are_apart() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let (first, second) = (pair.connect(), pair.connect());
        let mut other_port = pair.owner.device.open_port(16, 16).expect("a second port");
        assert_ne!(other_port.id(), pair.owner.port.id());
        let chain = Builder::new().send(&[]).signalled();
        let refused = Chain { requests: &chain.requests, elements: &chain.elements };
        let error = other_port.post(first.owner, refused).expect_err("another core's queue pair");
        assert_eq!(error, PostError::new(0, PostRefusal::NotReady));
        // The new port takes part in what concerns every port.
        let mut batch = CompletionBatch::new();
        other_port.poll(CompletionQueue::Send, &mut batch);

        pair.peer.post_receives(first.peer, 0, 1);
        pair.peer.post_receives(second.peer, 10, 1);
        for ends in [first, second] {
            let done = pair.owner_runs(ends.owner, &chain, 1);
            assert_eq!((done[0].queue_pair, done[0].result.is_ok()), (ends.owner, true));
        }
        pair.until("both messages", |pair| pair.peer.received.len() == 2);
        let from: Vec<_> = pair.peer.received.iter().map(|c| (c.queue_pair, c.token.index())).collect();
        assert_eq!(from, [(first.peer, 0), (second.peer, 10)]);
    });
}

/// The same calls give the same results.
#[test]
fn f40_equal_seeds_and_calls_give_equal_results() {
    on_soft("nobody seeds a kernel", |profile| {
        let run = || {
            let mut pair = crate::harness::soft::pair(profile);
            let ends = pair.connect();
            pair.peer.post_receives(ends.peer, 0, 8);
            let slots: Vec<u32> = (0..8).map(|_| pair.owner.slot(ends.owner).key).collect();
            let chain = Builder::new().send(&[]).send(&[]).signalled().send(&[]).signalled();
            let done = pair.owner_runs(ends.owner, &chain, 2);
            (slots, done, pair.peer.received)
        };
        assert_eq!(run(), run());
    });
}
