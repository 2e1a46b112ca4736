//! How objects get to a port and back, on a device that is not there.
#![cfg(feature = "verbs")]

mod harness;

use frwr_engine::provider::{
    Access, Answer, Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent, Port, Ticket,
};
use frwr_fake::Refusable;
use harness::{
    Builder, Host, SIZES, Slot, TestPair,
    fake::{Fake, FakeNetwork},
    statuses,
};

/// More than are reported at once.
const MANY: usize = 5000;

/// Whoever was told of an object posts it at once, also where all that the port has to say was not heard yet.
#[test]
fn what_was_made_can_be_posted_however_much_the_port_has_to_report() {
    for fake in [Fake::Windows, Fake::Lists] {
        let network = FakeNetwork::new(fake);
        let mut pair = TestPair::new(network.open(), network.open(), network.address());
        let ends = pair.connect();
        let mut doomed: Vec<Slot> = (0..MANY).map(|_| pair.owner.slot(ends.owner)).collect();
        let owner = &mut pair.owner;
        let mut batch = CompletionBatch::new();
        let mut ticket = 1 << 40;
        // The port takes them all, and the device hears of none: as behind a burst of answers.
        while let Some(Slot { object, .. }) = doomed.pop() {
            ticket += 1;
            while owner.device.submit(Ticket(ticket), Command::FreeRegistration { object }).is_err() {
                owner.port.poll(CompletionQueue::Send, &mut batch);
            }
        }
        ticket += 1;
        let (port, domain, queue_pair) = (owner.port.id(), owner.domain, ends.owner);
        let depth = owner.capabilities().attributes.max_fast_reg_page_list_len;
        let allocate = Command::AllocateRegistration { port, domain, queue_pair, depth };
        owner.device.submit(Ticket(ticket), allocate).expect("the port has taken what was there");
        let told = owner.device.poll();
        let Some(DeviceEvent::Answered { result: Ok(Answer::Registration { object, key }), .. }) = told else {
            panic!("{told:?}")
        };
        let element = owner.element(0, 8);
        let mut slot = Slot { object, key };
        let (chain, _) = Builder::new().register(owner, &mut slot, &[element], Access::RemoteRead);
        let chain = chain.send(&[element]).signalled();
        pair.peer.post_receives(ends.peer, 0, 1);
        assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [None]);
        pair.until("all destroyed", |pair| pair.owner.device.live().registrations.len() == 1);
    }
}

/// A queue pair that is destroyed under a bound window blocks for 50 s: windows go first each time.
#[test]
fn what_a_device_keeps_of_a_queue_pair_is_tried_in_front_of_it_each_time() {
    for fake in [Fake::Windows, Fake::Lists] {
        let network = FakeNetwork::new(fake);
        let mut host = Host::new(network.open());
        let queue_pair = host.queue_pair(SIZES);
        let object = host.slot(queue_pair).object;
        let context = host.device.fake().unwrap();
        context.refuse(Refusable::DestroyRegistration, libc::EBUSY, u32::MAX);
        context.refuse(Refusable::DestroyQueuePair, libc::EBUSY, 2);
        for (expected, asked) in [(Err(CommandError::BUSY), 1), (Err(CommandError::BUSY), 2), (Ok(Answer::Done), 3)] {
            assert_eq!(host.command(Command::DestroyQueuePair { queue_pair }), expected);
            assert_eq!(context.refused(Refusable::DestroyRegistration), asked);
        }
        assert_eq!(host.command(Command::FreeRegistration { object }), Err(CommandError::BUSY));
        context.refuse(Refusable::DestroyRegistration, 0, 0);
        assert_eq!(host.command(Command::FreeRegistration { object }), Ok(Answer::Done));
    }
}
