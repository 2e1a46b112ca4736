//! The software NIC on two threads: what the single-threaded suite cannot show.

mod harness;

use frwr_engine::provider::soft::{SoftDevice, SoftPort};
use frwr_engine::provider::{
    Access, Chain, CompletionBatch, CompletionQueue, Port, QueuePairId, ReceiveRequest, ScatterElement, Token,
};
use harness::pair::{Ends, Pair};
use harness::soft::{on_all, pair};
use harness::{Builder, Host, pattern};

/// Takes the port out of a host, so that it can go to a thread of its own.
fn split(host: Host<SoftDevice>) -> (SoftDevice, SoftPort, frwr_mempool::DeviceMemory) {
    let Host { device, port, memory, .. } = host;
    (device, port, memory)
}

/// Sends `count` messages, each signalled by the eighth; returns when all have completed.
fn send_all(port: &mut SoftPort, queue_pair: QueuePairId, element: ScatterElement, count: u32) {
    let (mut posted, mut done) = (0, 0);
    let mut batch = CompletionBatch::new();
    while done < count {
        if posted < count && posted - done < 32 {
            let mut chain = Builder::new();
            for _ in 0..8 {
                chain = chain.send(&[element]);
            }
            let chain = chain.signalled();
            port.post(queue_pair, Chain { requests: &chain.requests, elements: &chain.elements }).expect("room");
            posted += 8;
        }
        batch.clear();
        done += 8 * port.poll(CompletionQueue::Send, &mut batch) as u32;
        assert!(batch.iter().all(|completion| completion.result.is_ok()));
    }
}

/// Receives `count` messages and posts each receive again.
fn receive_all(port: &mut SoftPort, queue_pair: QueuePairId, element: ScatterElement, count: u32) {
    let mut batch = CompletionBatch::new();
    let mut next = 0;
    while next < count {
        batch.clear();
        port.poll(CompletionQueue::Receive, &mut batch);
        for completion in &batch {
            assert_eq!(completion.token, Token(u64::from(next % 64)), "in order");
            assert_eq!(completion.result.map(|done| done.bytes), Ok(element.length));
            let receive = ReceiveRequest { token: completion.token, element };
            port.post_receives(queue_pair, &[receive]).expect("room for what was taken");
            next += 1;
        }
    }
}

#[test]
fn k27_messages_cross_between_two_cores_in_order() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let Ends { owner: from, peer: to } = pair.connect();
        let source = pair.owner.element(0, 64);
        let target = pair.peer.element(0, 64);
        for index in 0..64 {
            let receive = ReceiveRequest { token: Token(index), element: target };
            pair.peer.port.post_receives(to, &[receive]).expect("room");
        }
        let Pair { owner, peer, .. } = pair;
        let (_device, mut sender, _) = split(owner);
        let (_other, mut receiver, _) = split(peer);
        let count = 20_000;
        std::thread::scope(|scope| {
            let receiving = scope.spawn(move || {
                receive_all(&mut receiver, to, target, count);
                receiver
            });
            send_all(&mut sender, from, source, count);
            while !receiving.is_finished() {
                sender.poll(CompletionQueue::Send, &mut CompletionBatch::new());
            }
            receiving.join().expect("the receiver ran to its end");
        });
    });
}

/// A peer reads through a key while its owner only polls; every byte is right.
#[test]
fn f38_reads_cross_between_two_cores_whole() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let ends = pair.connect();
        let mut slot = pair.owner.slot(ends.owner);
        let length = 65_536;
        let element = [pair.owner.element(4096, length)];
        pair.owner.write_memory(4096, &pattern(11, length as usize));
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        let Pair { owner, mut peer, .. } = pair;
        let (_device, mut port, _) = split(owner);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Acquire) {
                    port.poll(CompletionQueue::Receive, &mut CompletionBatch::new());
                }
            });
            for round in 0..50 {
                let place = (round % 4) * u64::from(length);
                let chain = Builder::new().read(&[peer.element(place, length)], grant.at(0)).signalled();
                peer.post(ends.peer, &chain).expect("room");
                while peer.sent.len() <= round as usize {
                    peer.step();
                }
                assert!(peer.sent[round as usize].result.is_ok());
                assert_eq!(peer.read_memory(place as usize, length as usize), pattern(11, length as usize));
            }
            stop.store(true, std::sync::atomic::Ordering::Release);
        });
    });
}
