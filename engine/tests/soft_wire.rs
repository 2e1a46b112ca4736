//! What happens between packets: depth of reads, retries, full lanes, memory that goes away.

mod harness;

use frwr_engine::provider::soft::{MIN_MTU, SoftDevice, SoftOptions, SoftProfile};
use frwr_engine::provider::{
    Access, Answer, Command, ConnectionParameters, FailureStatus, QueueSizes, RemoteRange, ScatterElement,
};
use harness::pair::{Ends, Pair};
use harness::soft::{on, on_all, pair, pair_with};
use harness::{Builder, MEMORY, SIZES, Slot, memory, pattern, statuses};

const FLUSHED: Option<FailureStatus> = Some(FailureStatus::Flushed);

/// The smallest packets, one at a time.
fn narrow(profile: SoftProfile) -> Pair<SoftDevice> {
    pair_with(SoftOptions::new(profile).mtu(MIN_MTU).wire_packets(1))
}

fn connect(pair: &mut Pair<SoftDevice>, limits: ConnectionParameters) -> Ends {
    let (owner, peer) = (pair.owner.domain, pair.peer.domain);
    pair.connect_with(owner, peer, SIZES, limits)
}

/// The owner opens the first `length` bytes of its memory.
fn open(pair: &mut Pair<SoftDevice>, ends: Ends, length: u32, access: Access) -> (Slot, RemoteRange) {
    let mut slot = pair.owner.slot(ends.owner);
    let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &[pair.owner.element(0, length)], access);
    pair.owner_runs(ends.owner, &chain.signalled(), 1);
    (slot, grant.at(0))
}

/// With a depth of one the second RDMA READ leaves when the first is answered: a key that dies in between stops it.
#[test]
fn u23_no_more_reads_are_outstanding_than_agreed() {
    let defaults = ConnectionParameters::default();
    for limits in [defaults.initiator_depth(1), defaults.responder_resources(1)] {
        on_all(|profile| {
            let mut pair = pair(profile);
            let ends = connect(&mut pair, limits);
            let (slot, remote) = open(&mut pair, ends, 64, Access::RemoteRead);
            let local = [pair.peer.element(0, 64)];
            let reads = Builder::new().read(&local, remote).signalled().read(&local, remote).signalled();
            pair.peer.post(ends.peer, &reads).expect("room");
            pair.peer.step();
            pair.owner.post(ends.owner, &Builder::new().invalidate(slot)).expect("room");
            pair.owner.step();
            pair.until("both completions", |pair| pair.peer.sent.len() == 2);
            assert_eq!(statuses(&pair.peer.sent), [None, Some(FailureStatus::RemoteAccess)]);
        });
    }
}

/// A message has at most 2 GiB, however many elements it has.
#[test]
fn u09_a_message_has_a_longest_length() {
    let mut options = SoftOptions::new(SoftProfile::RegMr);
    options.capabilities.attributes.max_send_sge = 4096;
    let mut pair = pair_with(options);
    let (owner, peer) = (pair.owner.domain, pair.peer.domain);
    let sizes = QueueSizes { send: 2, receive: 2, max_send_sge: 4096 };
    let ends = pair.connect_with(owner, peer, sizes, Default::default());
    let elements = vec![pair.owner.element(0, MEMORY as u32); (1 << 31) / MEMORY + 1];
    let done = pair.owner_runs(ends.owner, &Builder::new().send(&elements), 1);
    assert_eq!(statuses(&done), [Some(FailureStatus::LocalLength)]);
}

/// Memory that is deregistered while it is being sent sends no further byte: the message never arrives.
#[test]
fn z01_memory_that_goes_in_mid_message_is_sent_no_further() {
    on_all(|profile| {
        let mut pair = narrow(profile);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 1);
        let source = memory(4096);
        let address = source.address();
        let (base, lkey) = pair.owner.register(pair.owner.domain, source, true);
        let element = ScatterElement { address, length: 2 * MIN_MTU, lkey };
        pair.owner.post(ends.owner, &Builder::new().send(&[element])).expect("room");
        pair.owner.step();
        assert_eq!(pair.owner.command(Command::DeregisterMemory { base }), Ok(Answer::Done));
        pair.settle();
        assert_eq!(statuses(&pair.owner.sent), [Some(FailureStatus::LocalProtection)]);
        assert_eq!(pair.peer.received, []);
    });
}

/// A responder that cannot say why it dies, because its peer died first and left the lane full, dies all the same.
#[test]
fn f31_a_full_lane_to_a_dead_peer_blocks_no_flush() {
    on_all(|profile| {
        let mut pair = narrow(profile);
        let ends = pair.connect();
        let (_, remote) = open(&mut pair, ends, 2 * MIN_MTU, Access::RemoteRead);
        pair.owner.post_receives(ends.owner, 0, 1);
        let local = [pair.peer.element(0, 2 * MIN_MTU)];
        let chain = Builder::new().read(&local, remote).write(&local, remote);
        pair.peer.post(ends.peer, &chain).expect("room");
        // The peer takes the first half, sends the WRITE, and dies before it takes the second.
        pair.peer.step_without_taking();
        pair.owner.step_without_taking();
        pair.peer.step_without_taking();
        pair.owner.step_without_taking();
        let Pair { mut owner, peer, .. } = pair;
        drop(peer);
        for _ in 0..10 {
            owner.step();
        }
        assert_eq!(statuses(&owner.received), [FLUSHED]);
    });
}

/// What a list with gaps opens is read as one range, across the gaps.
#[test]
fn s29_s31_a_list_is_read_across_its_gaps() {
    on(&[SoftProfile::RegMr, SoftProfile::Umr { rotating_key_bits: 8 }], |profile| {
        let mut pair = pair(profile);
        let ends = pair.connect();
        let page = 4096;
        pair.owner.write_memory(0, &pattern(7, 8 * page));
        let mut slot = pair.owner.slot(ends.owner);
        // The second follows the first, the others stand apart, one of them in front.
        let places = [4, 5, 7, 1];
        let elements = places.map(|place| pair.owner.element((place * page) as u64, page as u32));
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &elements, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        let whole: Vec<u8> = places.iter().flat_map(|place| pair.owner.read_memory(place * page, page)).collect();
        for (offset, length) in [(0, 4 * page), (2 * page, page), (3 * page - 1, 2), (page, 3 * page)] {
            let chain = Builder::new().read(&[pair.peer.element(0, length as u32)], grant.at(offset as u64));
            assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain.signalled(), 1)), [None]);
            assert_eq!(pair.peer.read_memory(0, length), whole[offset..offset + length]);
        }
    });
}

/// A receive that a message had begun to fill is flushed with the others, once and first.
#[test]
fn s113_a_receive_that_is_half_filled_is_flushed() {
    on_all(|profile| {
        let mut pair = narrow(profile);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 2);
        let chain = Builder::new().send(&[pair.owner.element(0, 2 * MIN_MTU)]);
        pair.owner.post(ends.owner, &chain).expect("room");
        pair.owner.step_without_taking();
        pair.peer.step_without_taking();
        pair.peer.command(Command::FailQueuePair { queue_pair: ends.peer }).expect("failed");
        pair.peer.step();
        assert_eq!(statuses(&pair.peer.received), [FLUSHED; 2]);
        let indices: Vec<u32> = pair.peer.received.iter().map(|completion| completion.token.index()).collect();
        assert_eq!(indices, [0, 1]);
    });
}

/// One call of poll gives every queue pair its share, however much another has to do.
#[test]
fn k27_one_busy_queue_pair_does_not_starve_another() {
    on_all(|profile| {
        let mut pair = pair_with(SoftOptions::new(profile).wire_packets(512));
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let sizes = QueueSizes { send: 400, receive: 400, max_send_sge: 1 };
        let mut chain = Builder::new();
        for _ in 0..sizes.send {
            chain = chain.send(&[]);
        }
        let both = [0, 1].map(|_| pair.connect_with(owner, peer, sizes, Default::default()));
        for ends in both {
            pair.peer.post_receives(ends.peer, 0, sizes.receive);
            pair.owner.post(ends.owner, &chain).expect("room");
        }
        pair.owner.step_without_taking();
        for _ in 0..10 {
            pair.peer.step();
        }
        for ends in both {
            let arrived = pair.peer.received.iter().filter(|completion| completion.queue_pair == ends.peer).count();
            assert!((1..400).contains(&arrived), "{arrived}");
        }
    });
}
