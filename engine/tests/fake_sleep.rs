//! A port of libibverbs whose core sleeps: what completes makes its descriptor readable, once, and nothing is lost on the way. On devices
//! that are not there, whose events are libmlx5's: a notification that is asked for too early is none.
#![cfg(feature = "verbs")]

mod harness;

use core::task::Waker;
use frwr_engine::provider::{
    Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent, Port, Ticket,
    verbs::{PostInterface, Registration, VerbsDevice, VerbsOptions},
};
use frwr_fake::{FakeContext, FakeDevice, FakeLists, FakeOptions, Refusable};
use harness::{
    Builder, Host,
    pair::{Ends, Pair},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Wake,
};

const LISTS: FakeLists = FakeLists { updates_tags: true, remote_invalidation: true, entries: 20 };

/// Windows of any device, and lists of mlx5.
const KINDS: [(FakeOptions, PostInterface, Registration); 2] = [
    (FakeOptions::windows("rxe"), PostInterface::List, Registration::Windows),
    (FakeOptions::lists(LISTS), PostInterface::Automatic, Registration::Lists),
];

fn open(fake: &FakeDevice, kind: (FakeOptions, PostInterface, Registration), sleeps: bool) -> VerbsDevice {
    let (_, post, registration) = kind;
    let options = VerbsOptions::new(fake.name()).post(post).registration(registration).self_test(false);
    let opened = VerbsDevice::open_with(frwr_fake::library(), &options.completion_channels(sleeps));
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// Two machines; the owner's core may sleep, whatever moves is moved by the other one's polls.
struct Network {
    pair: Pair<VerbsDevice>,
    ends: Ends,
    /// The owner's device.
    context: FakeContext,
    // Behind what is open.
    fake: FakeDevice,
}

impl Network {
    fn new(kind: (FakeOptions, PostInterface, Registration)) -> Self {
        let fake = FakeDevice::new(kind.0);
        let owner = open(&fake, kind, true);
        let context = fake.newest_context().unwrap();
        let mut pair = Pair::new(owner, open(&fake, kind, false), SocketAddr::new(fake.address(), 4420));
        let ends = pair.connect();
        Self { pair, ends, context, fake }
    }

    fn owner(&mut self) -> &mut Host<VerbsDevice> {
        &mut self.pair.owner
    }

    /// Armed, polled once more, and nothing was found.
    fn sleeps(&mut self) -> bool {
        let owner = &mut self.pair.owner;
        let (armed, heard) = (owner.port.arm(), owner.heard());
        let mut batch = CompletionBatch::new();
        owner.port.poll(CompletionQueue::Receive, &mut batch);
        owner.received.extend(batch.drain(..));
        owner.port.poll(CompletionQueue::Send, &mut batch);
        owner.sent.extend(batch.drain(..));
        armed && owner.heard() == heard && owner.port.rests()
    }

    /// What a wait would find.
    fn is_woken(&self) -> bool {
        let descriptor = self.pair.owner.port.descriptor().expect("a channel");
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).expect("poll(2)") > 0
    }

    /// A message for the owner, whose receive is there.
    fn peer_sends(&mut self) {
        self.pair.owner.post_receives(self.ends.owner, 0, 1);
        let message = [self.pair.peer.element(0, 64)];
        let before = self.pair.peer.sent.len();
        self.pair.peer.post(self.ends.peer, &Builder::new().send(&message).signalled()).expect("it fits");
        for _ in 0..1000 {
            self.pair.peer.step();
            if self.pair.peer.sent.len() > before {
                return;
            }
        }
        panic!("it never arrived");
    }

    fn end(self) {
        let Self { pair, fake, .. } = self;
        drop(pair);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_message_wakes_who_sleeps_and_so_does_the_end_of_a_request() {
    for kind in KINDS {
        let mut network = Network::new(kind);
        // Each time by an event of its own, which is acknowledged at the end or with others.
        for message in 1..=200 {
            assert!(network.sleeps() && !network.is_woken(), "{message}");
            network.peer_sends();
            assert!(network.is_woken(), "{message}");
            assert!(!network.sleeps(), "what woke it is found");
            assert_eq!(network.pair.owner.received.len(), message);
        }
        assert!(network.sleeps() && !network.is_woken());
        network.pair.peer.post_receives(network.ends.peer, 0, 1);
        let (queue_pair, message) = (network.ends.owner, [network.pair.owner.element(0, 8)]);
        network.owner().post(queue_pair, &Builder::new().send(&message).signalled()).unwrap();
        for _ in 0..1000 {
            network.pair.peer.step();
        }
        assert!(network.is_woken());
        assert!(!network.sleeps() && network.pair.owner.sent.len() == 1);
        network.end();
    }
}

/// It came before anybody wanted to hear of it: the poll behind the arming finds it.
#[test]
fn what_completes_before_it_is_armed_is_found_by_the_poll_behind() {
    for kind in KINDS {
        let mut network = Network::new(kind);
        network.peer_sends();
        assert!(!network.is_woken(), "nobody asked");
        assert!(!network.sleeps() && network.pair.owner.received.len() == 1);
        assert!(network.sleeps());
        network.end();
    }
}

/// Between arming and the poll: it is found, and its event keeps nobody from sleeping later, nor from being woken then.
#[test]
fn what_completes_between_arming_and_the_poll_is_found_once_and_told_once() {
    for kind in KINDS {
        let mut network = Network::new(kind);
        assert!(network.owner().port.arm());
        network.peer_sends();
        assert!(!network.sleeps());
        assert_eq!((network.pair.owner.received.len(), network.context.events()), (1, 0));
        assert!(network.sleeps() && !network.is_woken());
        network.peer_sends();
        assert!(network.is_woken() && !network.sleeps());
        network.end();
    }
}

/// A core under load was armed once, and has no time to take events: there is one for each queue, however much completes.
#[test]
fn events_do_not_pile_up_while_nobody_sleeps() {
    for kind in KINDS {
        let mut network = Network::new(kind);
        assert!(network.sleeps());
        for _ in 0..300 {
            network.peer_sends();
            network.owner().step();
        }
        assert_eq!((network.pair.owner.received.len(), network.context.events()), (300, 1));
        assert!(network.sleeps(), "the event of long ago says nothing new");
        assert!(!network.is_woken());
        network.peer_sends();
        assert!(network.is_woken());
        network.end();
    }
}

/// Who polls on has no channel, and a core that asks to sleep all the same is told that it cannot.
#[test]
fn a_device_that_nobody_sleeps_on_has_no_channel() {
    for kind in KINDS {
        let fake = FakeDevice::new(kind.0);
        let mut host = Host::new(open(&fake, kind, false));
        assert!(host.port.descriptor().is_none() && !host.port.arm());
        assert_eq!(fake.newest_context().map(FakeContext::channels), Some(0));
        drop(host);
        let host = Host::new(open(&fake, kind, true));
        assert_eq!(fake.newest_context().map(FakeContext::channels), Some(1), "one of each port");
        drop(host);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_device_without_a_channel_or_a_notification_says_so() {
    for kind in KINDS {
        let fake = FakeDevice::new(kind.0);
        let mut device = open(&fake, kind, true);
        let context = fake.newest_context().unwrap();
        context.refuse(Refusable::MakeChannel, libc::EMFILE, 1);
        let refused = device.open_port(16, 16).err();
        assert!(matches!(refused, Some(CommandError::Exhausted(errno)) if errno.0 == libc::EMFILE), "{refused:?}");
        let mut port = device.open_port(16, 16).unwrap();
        context.refuse(Refusable::RequestNotification, libc::EIO, 1);
        assert!(!port.arm(), "it is polled on");
        assert!(port.arm());
        drop((port, device));
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The device waits for what its ports let go of: a core that sleeps is woken for it.
#[test]
fn a_port_that_has_to_let_go_of_something_is_woken() {
    for kind in KINDS {
        let mut network = Network::new(kind);
        let woken = Arc::<Woken>::default();
        network.owner().port.wakes(&Waker::from(Arc::clone(&woken)));
        assert!(network.sleeps());
        let owner = network.owner();
        let base = owner.base;
        owner.device.submit(Ticket(1 << 40), Command::DeregisterMemory { base }).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(!owner.port.rests() && owner.device.poll().is_none());
        assert!(network.sleeps());
        let told = network.owner().device.poll();
        assert!(
            matches!(told, Some(DeviceEvent::Answered { ticket: Ticket(ticket), .. }) if ticket == 1 << 40),
            "{told:?}"
        );
        network.end();
    }
}
