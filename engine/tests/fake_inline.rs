//! What the verbs provider copies into work requests, on devices that are not there.
#![cfg(feature = "verbs")]

mod harness;

use frwr_engine::provider::{
    Access, FailureStatus, QueueSizes, ScatterElement,
    verbs::{PostInterface, Registration, VerbsDevice, VerbsOptions},
};
use frwr_fake::{Carried, FakeDevice, FakeLists, FakeOptions};
use harness::{Builder, MEMORY, SIZES, TestPair, any::AnyDevice, memory, pair::Ends, pattern, statuses};
use std::{net::SocketAddr, sync::Arc};

const LISTS: FakeLists = FakeLists { updates_tags: true, remote_invalidation: true, entries: 20 };

/// Every way in which work requests get to a device.
const WAYS: [(FakeOptions, PostInterface, Registration); 3] = [
    (FakeOptions::windows("mlx5"), PostInterface::List, Registration::Windows),
    (FakeOptions::windows("mlx5"), PostInterface::Builder, Registration::Windows),
    (FakeOptions::lists(LISTS), PostInterface::Automatic, Registration::Lists),
];

struct Network {
    fake: Arc<FakeDevice>,
    pair: TestPair,
    ends: Ends,
}

impl Network {
    fn new(way: &(FakeOptions, PostInterface, Registration), inline_bytes: u32, sizes: QueueSizes) -> Self {
        let (kind, post, registration) = *way;
        let fake = Arc::new(FakeDevice::new(kind));
        let open = || {
            let options = VerbsOptions::new(fake.name())
                .post(post)
                .registration(registration)
                .inline_bytes(Some(inline_bytes))
                .self_test(false);
            let device = VerbsDevice::open_with(frwr_fake::library(), &options);
            AnyDevice::over_fake(device.unwrap_or_else(|error| panic!("{error}")), Arc::clone(&fake))
        };
        let mut pair = TestPair::new(open(), open(), SocketAddr::new(fake.address(), 4420));
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let ends = pair.connect_with(owner, peer, sizes, Default::default());
        Self { fake, pair, ends }
    }

    /// Sends these elements, and says how it ended and what was carried how.
    fn send(&mut self, elements: &[ScatterElement]) -> (Option<FailureStatus>, Carried) {
        self.run(&Builder::new().send(elements).signalled())
    }

    fn run(&mut self, chain: &Builder) -> (Option<FailureStatus>, Carried) {
        let before = self.fake.carried();
        self.pair.peer.post_receives(self.ends.peer, 0, 1);
        let done = self.pair.owner_runs(self.ends.owner, chain, 1);
        let after = self.fake.carried();
        let carried = Carried { inline: after.inline - before.inline, fetched: after.fetched - before.fetched };
        (statuses(&done)[0], carried)
    }
}

const INLINE: Carried = Carried { inline: 1, fetched: 0 };
const FETCHED: Carried = Carried { inline: 0, fetched: 1 };

#[test]
fn messages_up_to_the_limit_are_inline_and_longer_ones_are_fetched() {
    for way in &WAYS {
        let mut network = Network::new(way, 48, SIZES);
        for (length, expected) in [(1, INLINE), (47, INLINE), (48, INLINE), (49, FETCHED), (1000, FETCHED)] {
            let data = pattern(length as u8, length as usize);
            network.pair.owner.write_memory(500, &data);
            let message = network.pair.owner.element(500, length);
            assert_eq!(network.send(&[message]), (None, expected), "{length}");
            network.pair.until("the message", |pair| !pair.peer.received.is_empty());
            let received = network.pair.peer.received.pop().and_then(|received| received.result.ok());
            assert_eq!(received.map(|received| received.bytes), Some(length));
            let at = harness::receives(&network.pair.peer, 0, 1).next().map(|receive| receive.element.address);
            let offset = at.unwrap() - network.pair.peer.memory.address();
            assert_eq!(network.pair.peer.read_memory(offset as usize, length as usize), data);
        }
        // In pieces, although they are short.
        let pieces = [network.pair.owner.element(0, 4), network.pair.owner.element(100, 4)];
        assert_eq!(network.send(&pieces), (None, FETCHED));
        assert_eq!(network.send(&[]), (None, FETCHED), "nothing at all");
        // What a READ in front of it brings is not there yet.
        let fenced = Builder::new().send(&pieces[..1]).signalled().fenced();
        assert_eq!(network.run(&fenced), (None, FETCHED));
        assert_eq!(network.fake.violations(), Vec::<String>::new());
    }
}

#[test]
fn rdma_writes_are_inline_and_reads_are_not() {
    for way in &WAYS {
        let mut network = Network::new(way, 64, SIZES);
        let Network { fake, pair, ends } = &mut network;
        pair.peer.post_receives(ends.peer, 0, 1);
        let mut slot = pair.owner.slot(ends.owner);
        let target = pair.owner.element(4096, 64);
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &[target], Access::RemoteReadWrite);
        let chain = chain.send(&[pair.owner.element(0, 16)]).signalled();
        assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [None]);
        assert_eq!(fake.carried(), INLINE);
        pair.peer.write_memory(0, &pattern(7, 64));
        let (there, back) = ([pair.peer.element(0, 64)], [pair.peer.element(1000, 64)]);
        let chain = Builder::new().write(&there, grant.at(0)).read(&back, grant.at(0)).signalled();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &chain, 1)), [None]);
        assert_eq!(pair.peer.read_memory(1000, 64), pattern(7, 64));
        assert_eq!(fake.carried(), Carried { inline: 2, fetched: 0 });
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

/// Nobody checks the local key of what is inline, and the library reads whatever address it is given.
#[test]
fn what_is_not_registered_for_the_queue_pair_is_left_to_the_device_which_refuses_it() {
    type Change = fn(&mut TestPair, &mut ScatterElement);
    let changes: [Change; 6] = [
        |_, element| element.lkey ^= 0xff00,
        |_, element| element.address = 8,
        |_, element| element.address = u64::MAX - 4,
        |pair, element| element.address = pair.owner.memory.address() - 1,
        |pair, element| element.address = pair.owner.memory.address() + MEMORY as u64 - 7,
        |pair, element| {
            let domain = pair.owner.new_domain();
            element.lkey = pair.owner.register(domain, pair.owner.memory.clone(), true).1;
        },
    ];
    for way in &WAYS {
        for (number, change) in changes.iter().enumerate() {
            let mut network = Network::new(way, 64, SIZES);
            let mut element = network.pair.owner.element(0, 8);
            assert_eq!(network.send(&[element]), (None, INLINE));
            change(&mut network.pair, &mut element);
            assert_eq!(network.send(&[element]), (Some(FailureStatus::LocalProtection), FETCHED), "{number}");
            assert_eq!(network.fake.violations(), Vec::<String>::new());
        }
    }
}

/// Memory that is taken back is not read any more.
#[test]
fn memory_that_was_deregistered_is_not_read() {
    for way in &WAYS {
        let mut network = Network::new(way, 64, SIZES);
        let other = memory(4096);
        let domain = network.pair.owner.domain;
        let (base, lkey) = network.pair.owner.register(domain, other.clone(), true);
        let element = ScatterElement { address: other.address(), length: 8, lkey };
        assert_eq!(network.send(&[element]), (None, INLINE));
        let gone = network.pair.owner.command(frwr_engine::provider::Command::DeregisterMemory { base });
        assert!(gone.is_ok(), "{gone:?}");
        drop(other);
        assert_eq!(network.send(&[element]), (Some(FailureStatus::LocalProtection), FETCHED));
        assert_eq!(network.fake.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_device_that_has_not_so_much_room_has_queue_pairs_without() {
    // More than the stand-in has room for in queue pairs without lists, and nothing.
    for (inline_bytes, expected) in [(1024, FETCHED), (0, FETCHED)] {
        let mut network = Network::new(&WAYS[0], inline_bytes, SIZES);
        let message = network.pair.owner.element(0, 1);
        assert_eq!(network.send(&[message]), (None, expected), "{inline_bytes}");
        assert_eq!(network.fake.violations(), Vec::<String>::new());
    }
}
