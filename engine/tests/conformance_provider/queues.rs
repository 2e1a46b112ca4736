//! Limits of queues: partial posts, room, completion queues that overrun.

use crate::harness::pair::Pair;
use crate::harness::soft::{ADDRESS, pair, pair_with};
use crate::harness::subject::{Network, Subject, on, on_all, on_soft};
use crate::harness::{Builder, Host, SIZES, statuses};
use frwr_engine::provider::soft::{SoftFabric, SoftOptions};
use frwr_engine::provider::{
    Access, Answer, AsyncEvent, Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent, Port,
    PostModel, PostRefusal, QueueSizes, ReceiveRequest, SendQueueCost, Ticket, Token,
};

const SMALL: QueueSizes = QueueSizes { send: 15, receive: 8, max_send_sge: 2 };

fn sends(count: usize) -> Builder {
    (0..count).fold(Builder::new(), |chain, _| chain.send(&[]))
}

/// 64 work requests into a queue of 15: a prefix of 15 is executed, or nothing.
#[test]
fn u15_a_queue_that_is_full_takes_a_prefix_or_nothing() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let ends = pair.connect_with(owner, peer, QueueSizes { receive: 64, ..SMALL }, Default::default());
        let granted = pair.owner.granted(ends.owner).send as usize;
        pair.peer.post_receives(ends.peer, 0, 64);
        let mut chain = sends(4 * granted + 1);
        for request in &mut chain.requests {
            request.signalled = true;
        }
        let error = pair.owner.post(ends.owner, &chain).expect_err("too many");
        let taken = match pair.owner.capabilities().post_model {
            PostModel::Prefix => granted,
            PostModel::AllOrNothing => 0,
        };
        assert_eq!((error.accepted, error.reason), (taken, PostRefusal::QueueFull));
        pair.until("the prefix", |pair| pair.peer.received.len() == taken && pair.owner.sent.len() == taken);
        pair.settle();
        assert_eq!((pair.owner.sent.len(), pair.peer.received.len()), (taken, taken), "and no more");
        // The queue pair is as good as before.
        assert_eq!(statuses(&pair.owner_runs(ends.owner, &Builder::new().send(&[]).signalled(), 1)), [None]);
    });
}

/// Any place of a chain may be the first that is refused.
#[test]
fn u15_f03_a_bad_work_request_at_any_place() {
    on_all(|subject| {
        for bad in 0..4 {
            let mut pair = subject.pair();
            let ends = pair.connect();
            pair.peer.post_receives(ends.peer, 0, 8);
            let mut chain = sends(4);
            for request in &mut chain.requests {
                request.signalled = true;
            }
            let many = vec![pair.owner.element(0, 1); pair.owner.granted(ends.owner).max_send_sge as usize + 1];
            let range = chain.range(&many);
            let frwr_engine::provider::Operation::Send { local, .. } = &mut chain.requests[bad].operation else {
                panic!("a send");
            };
            *local = range;
            let error = pair.owner.post(ends.owner, &chain).expect_err("one element more than fits");
            let taken = if pair.owner.capabilities().post_model == PostModel::Prefix { bad } else { 0 };
            assert_eq!((error.accepted, error.reason), (taken, PostRefusal::Invalid));
            pair.settle();
            assert_eq!(statuses(&pair.owner.sent), vec![None; taken]);
            assert_eq!(pair.peer.received.len(), taken);
            // A range that does not lie in the table is refused as well.
            let mut wild = sends(1);
            wild.requests[0].operation = frwr_engine::provider::Operation::Send {
                local: frwr_engine::provider::ElementRange { first: u32::MAX, count: 2 },
                invalidate: None,
            };
            let error = pair.owner.post(ends.owner, &wild).expect_err("outside the table");
            assert_eq!((error.accepted, error.reason), (0, PostRefusal::Invalid));
        }
    });
}

/// Entries come free when a completion is taken, not before: unsignalled work alone fills the queue for ever (I31).
#[test]
fn i31_f15_unsignalled_work_fills_the_send_queue() {
    on_soft("rxe frees an entry once it is executed, whether a completion says so or not", |profile| {
        let mut pair = pair(profile);
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let ends = pair.connect_with(owner, peer, QueueSizes { receive: 64, ..SMALL }, Default::default());
        pair.peer.post_receives(ends.peer, 0, 64);
        pair.owner.post(ends.owner, &sends(14)).expect("room");
        pair.settle();
        assert_eq!(pair.peer.received.len(), 14);
        assert_eq!(pair.owner.post(ends.owner, &sends(2)).expect_err("one is left").reason, PostRefusal::QueueFull);
        let last = sends(1).signalled();
        if pair.owner.capabilities().post_model == PostModel::AllOrNothing {
            pair.owner.post(ends.owner, &last).expect("the last entry");
            for _ in 0..50 {
                pair.owner.step_without_taking();
                pair.peer.step();
            }
            assert!(pair.owner.post(ends.owner, &sends(1)).is_err(), "the completion was not taken yet");
            pair.until("the completion", |pair| pair.owner.sent.len() == 1);
            pair.owner.post(ends.owner, &sends(15)).expect("all are free again");
        } else {
            // The prefix took the last entry, unsignalled: nothing will ever free one.
            pair.settle();
            assert!(pair.owner.post(ends.owner, &last).is_err());
        }
    });
}

/// Work requests that take several entries are counted as such.
#[test]
fn s45_work_requests_cost_what_the_device_says() {
    on_soft("a device says one number", |profile| {
        let mut options = SoftOptions::new(profile);
        options.capabilities.send_queue_cost = SendQueueCost { register: 4, invalidate: 2, message: 1 };
        let mut pair = pair_with(options);
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let ends = pair.connect_with(owner, peer, SMALL, Default::default());
        pair.peer.post_receives(ends.peer, 0, 8);
        let element = [pair.owner.element(0, 64)];
        let mut slot = pair.owner.slot(ends.owner);
        for _ in 0..3 {
            // 4 + 2 + 4 + 2 + 1 + 2 = 15
            let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
            let chain = chain.invalidate(slot);
            let (chain, _) = chain.register(&pair.owner, &mut slot, &element, Access::RemoteRead);
            let chain = chain.invalidate(slot).send(&[]).twice();
            pair.owner.post(ends.owner, &chain).expect("exactly full");
            assert!(pair.owner.post(ends.owner, &sends(1)).is_err());
            pair.until("the completion", |pair| !pair.owner.sent.is_empty());
            pair.owner.sent.clear();
        }
    });
}

trait SendTwice {
    fn twice(self) -> Self;
}

impl SendTwice for Builder {
    /// Two entries of SENDs, the last one signalled.
    fn twice(self) -> Self {
        self.send(&[]).send(&[]).signalled()
    }
}

#[test]
fn u15_the_receive_queue_has_a_limit() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let ends = pair.connect_with(owner, peer, SMALL, Default::default());
        let receive = ReceiveRequest { token: Token(0), element: pair.owner.element(0, 64) };
        let granted = pair.owner.granted(ends.owner).receive as usize;
        // A real device rounds up and need not say so.
        let receives = vec![receive; 4 * granted];
        let error = pair.owner.port.post_receives(ends.owner, &receives).expect_err("far too many");
        assert_eq!(error.reason, PostRefusal::QueueFull);
        assert!(error.accepted == granted || subject.is_real() && error.accepted > granted, "{error:?}");
    });
}

/// A completion queue that is too small loses completions, and says so once.
#[test]
fn f13_a_completion_queue_overrun_is_told() {
    on_soft("nobody keeps a kernel from rounding a completion queue of four entries up", |profile| {
        let fabric = SoftFabric::new();
        let options = SoftOptions::new(profile);
        let owner = Host::with_completion_queues(fabric.device(options), 4, 64);
        let peer = Host::new(fabric.device(options));
        let mut pair = Pair::of(owner, peer, ADDRESS);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 16);
        let mut chain = sends(10);
        for request in &mut chain.requests {
            request.signalled = true;
        }
        pair.owner.post(ends.owner, &chain).expect("room");
        for _ in 0..50 {
            pair.owner.step_without_taking();
            pair.peer.step();
        }
        pair.settle();
        assert_eq!(pair.owner.sent.len(), 4);
        let port = pair.owner.port.id();
        let told = pair.owner.events.iter().filter(
            |event| matches!(event, DeviceEvent::Async(AsyncEvent::CompletionQueueOverrun(which)) if *which == port),
        );
        assert_eq!(told.count(), 1);
    });
}

/// A poll takes no more than its batch holds, and the rest stays in order.
#[test]
fn s107_a_poll_takes_no_more_than_its_batch() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        let sizes = QueueSizes { send: 200, receive: 200, max_send_sge: 1 };
        let ends = pair.connect_with(owner, peer, sizes, Default::default());
        pair.peer.post_receives(ends.peer, 0, 200);
        let mut chain = sends(200);
        for request in &mut chain.requests {
            request.signalled = true;
        }
        pair.owner.post(ends.owner, &chain).expect("room");
        let mut patience = pair.owner.patience();
        while pair.peer.received.len() < 200 && patience.is_left() {
            pair.owner.step_without_taking();
            pair.peer.step();
        }
        for _ in 0..100 {
            pair.owner.step_without_taking();
        }
        let mut indices = Vec::new();
        let mut counts = Vec::new();
        while indices.len() < 200 && patience.is_left() {
            let mut batch = CompletionBatch::new();
            counts.push(pair.owner.port.poll(CompletionQueue::Send, &mut batch));
            indices.extend(batch.iter().map(|completion| completion.token.index()));
        }
        // The acknowledgements of a real device come when they come.
        assert!(subject.is_real() || counts == [64, 64, 64, 8], "{counts:?}");
        assert_eq!(pair.owner.port.poll(CompletionQueue::Send, &mut CompletionBatch::new()), 0);
        assert_eq!(indices, (0..200).collect::<Vec<_>>());
    });
}

/// What a device cannot give is refused by name, and nothing stays behind.
#[test]
fn fault33_what_the_device_cannot_give_is_refused() {
    on_soft("a real device has more than a test should take", |profile| {
        let mut options = SoftOptions::new(profile);
        options.capabilities.attributes.max_registrations = 2;
        options.capabilities.attributes.max_qp_wr = 16;
        options.capabilities.attributes.max_cqe = 64;
        let fabric = SoftFabric::new();
        let mut host = Host::with_completion_queues(fabric.device(options), 64, 64);
        let (port, domain) = (host.port.id(), host.domain);
        assert_eq!(host.device.open_port(65, 1).err(), Some(CommandError::EXHAUSTED));
        for sizes in [
            QueueSizes { send: 17, receive: 1, max_send_sge: 1 },
            QueueSizes { send: 1, receive: 17, max_send_sge: 1 },
            QueueSizes { send: 0, receive: 1, max_send_sge: 1 },
            QueueSizes { send: 1, receive: 1, max_send_sge: 17 },
        ] {
            let create = Command::CreateQueuePair { port, domain, sizes, shared_receives: None };
            assert!(matches!(host.command(create), Err(CommandError::Invalid(_))), "{sizes:?}");
        }
        let queue_pair = host.queue_pair(QueueSizes { send: 16, receive: 16, max_send_sge: 1 });
        let first = host.slot(queue_pair);
        host.slot(queue_pair);
        let depth = 1;
        let third = Command::AllocateRegistration { port, domain, queue_pair, depth };
        assert!(matches!(host.command(third.clone()), Err(CommandError::Exhausted(_))));
        let too_deep = Command::AllocateRegistration { port, domain, queue_pair, depth: 1 << 20 };
        assert!(matches!(host.command(too_deep), Err(CommandError::Invalid(_))));
        host.command(Command::FreeRegistration { object: first.object }).expect("freed");
        assert_eq!(host.command(Command::FreeRegistration { object: first.object }), Err(CommandError::Unknown));
        assert!(host.command(third).is_ok());
        let foreign = frwr_engine::provider::DomainId(u32::MAX);
        let create = Command::CreateQueuePair { port, domain: foreign, sizes: SIZES, shared_receives: None };
        assert_eq!(host.command(create), Err(CommandError::Unknown));
    });
}

/// A device that is given commands faster than its port takes them hands them back, and answers all it took.
#[test]
fn f29_a_device_hands_commands_back_when_it_is_full() {
    on_soft("verbs answers every command at once", |profile| {
        let mut host = Host::new(SoftFabric::new().device(SoftOptions::new(profile)));
        let queue_pair = host.queue_pair(SIZES);
        let mut taken = 0;
        for ticket in 0..10_000 {
            let command = Command::FailQueuePair { queue_pair };
            if host.device.submit(frwr_engine::provider::Ticket(1 << 40 | ticket), command).is_err() {
                break;
            }
            taken += 1;
        }
        assert!((1..10_000).contains(&taken));
        for _ in 0..1000 {
            host.step();
        }
        let answers = host.events.iter().filter(|event| matches!(event, DeviceEvent::Answered { result: Ok(_), .. }));
        assert_eq!(answers.count(), taken);
    });
}

/// What was made for a port goes with it, whether the port had heard of it or not.
#[test]
fn s95_what_a_dropped_port_had_can_be_destroyed() {
    on(Subject::is_real, "the software NIC is moved on by its ports: one that is gone executes nothing", |subject| {
        let mut host = Network::new(subject).host();
        let (domain, depth) = (host.domain, host.capabilities().attributes.max_fast_reg_page_list_len);
        let dropped = host.device.open_port(16, 16).expect("a second port");
        let sizes = QueueSizes { send: 16, receive: 16, max_send_sge: 1 };
        let create = Command::CreateQueuePair { port: dropped.id(), domain, sizes, shared_receives: None };
        let Ok(Answer::QueuePair { queue_pair, .. }) = host.command(create) else { panic!("no queue pair") };
        let allocate = Command::AllocateRegistration { port: dropped.id(), domain, queue_pair, depth };
        let Ok(Answer::Registration { object, .. }) = host.command(allocate) else { panic!("no object") };
        let (base, _) = host.register(domain, crate::harness::memory(4096), true);
        // It was never polled.
        drop(dropped);
        for command in [
            Command::FreeRegistration { object },
            Command::DestroyQueuePair { queue_pair },
            Command::DeregisterMemory { base },
        ] {
            assert_eq!(host.command(command.clone()), Ok(Answer::Done), "{command:?}");
        }
    });
}

/// A queue pair that goes takes its registration objects along, and answers the commands that were given for them.
#[test]
fn s94_an_object_that_is_freed_while_its_queue_pair_goes_is_not_the_next_one() {
    on_all(|subject| {
        let mut host = Network::new(subject).host();
        let (port, domain) = (host.port.id(), host.domain);
        let depth = host.capabilities().attributes.max_fast_reg_page_list_len;
        let (first, second) = (host.queue_pair(SIZES), host.queue_pair(SIZES));
        let object = host.slot(first).object;
        let tickets = [1 << 40, (1 << 40) + 1, (1 << 40) + 2].map(Ticket);
        for (ticket, command) in tickets.into_iter().zip([
            Command::DestroyQueuePair { queue_pair: first },
            Command::FreeRegistration { object },
            Command::AllocateRegistration { port, domain, queue_pair: second, depth },
        ]) {
            assert!(host.device.submit(ticket, command).is_ok());
        }
        let mut answers = Vec::new();
        let mut patience = host.patience();
        while answers.len() < tickets.len() {
            assert!(patience.is_left(), "{answers:?}");
            host.step();
            for event in host.events.drain(..) {
                if let DeviceEvent::Answered { ticket, result } = event {
                    answers.push((ticket, result));
                }
            }
        }
        let answer = |ticket| answers.iter().find(|(of, _)| *of == ticket).map(|(_, result)| *result);
        assert_eq!(answer(tickets[0]), Some(Ok(Answer::Done)));
        // Freed by itself or gone with its queue pair.
        assert!(matches!(answer(tickets[1]), Some(Ok(Answer::Done) | Err(CommandError::Unknown))), "{answers:?}");
        let Some(Ok(Answer::Registration { object: next, .. })) = answer(tickets[2]) else { panic!("{answers:?}") };
        assert_eq!(host.command(Command::FreeRegistration { object: next }), Ok(Answer::Done));
    });
}

/// Who was refused before asks once more when the queue pair is gone: until then the name is nobody else's.
#[test]
fn s105_an_object_that_went_with_its_queue_pair_keeps_its_name_until_it_is_freed() {
    on_all(|subject| {
        let mut host = Network::new(subject).host();
        let (first, second) = (host.queue_pair(SIZES), host.queue_pair(SIZES));
        let object = host.slot(first).object;
        assert_eq!(host.command(Command::DestroyQueuePair { queue_pair: first }), Ok(Answer::Done));
        let next = host.slot(second).object;
        let freed = host.command(Command::FreeRegistration { object });
        assert!(matches!(freed, Ok(Answer::Done) | Err(CommandError::Unknown)), "{freed:?}");
        assert_eq!(host.command(Command::FreeRegistration { object: next }), Ok(Answer::Done), "not the other one");
    });
}
