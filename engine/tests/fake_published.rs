//! How objects get to a port and back, on a device that is not there.
#![cfg(feature = "verbs")]

mod harness;

use frwr_engine::provider::{
    Access, Answer, Command, CompletionBatch, CompletionQueue, Device, DeviceEvent, Port, Ticket,
};
use harness::{
    Builder, Slot, TestPair,
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
