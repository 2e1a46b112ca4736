//! Where real devices are lax now and then, and the software NIC never is.

mod harness;

use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftProfile};
use frwr_engine::provider::{
    Access, Answer, AsyncEvent, BaseId, Command, CommandError, CompletionBatch, CompletionQueue, ConnectionEvent,
    ConnectionParameters, Contiguity, Device, DeviceEvent, FailureStatus, Operation, Port, QueuePairId, QueueSizes,
    RemoteRange, SendQueueCost, Ticket,
};
use harness::pair::{Ends, Pair};
use harness::soft::{ADDRESS, on, on_all, pair, pair_with};
use harness::{Builder, Host, SIZES, fields, statuses};

const FLUSHED: Option<FailureStatus> = Some(FailureStatus::Flushed);

fn fatal_queue_pairs(host: &Host<SoftDevice>) -> Vec<QueuePairId> {
    let fatal = |event: &DeviceEvent| match event {
        DeviceEvent::Async(AsyncEvent::QueuePairFatal(queue_pair)) => Some(*queue_pair),
        _ => None,
    };
    host.events.iter().filter_map(fatal).collect()
}

/// A completion that was lost takes every queue pair of its port along, those that had no part in it too.
#[test]
fn f13_a_lost_completion_ends_all_queue_pairs_of_its_port() {
    on_all(|profile| {
        let fabric = SoftFabric::new();
        let options = SoftOptions::new(profile);
        let owner = Host::with_completion_queues(fabric.device(options), 4, 64);
        let mut pair = Pair::of(owner, Host::new(fabric.device(options)), ADDRESS);
        let (guilty, innocent) = (pair.connect(), pair.connect());
        pair.peer.post_receives(guilty.peer, 0, 16);
        let mut chain = Builder::new();
        for _ in 0..5 {
            chain = chain.send(&[]).signalled();
        }
        pair.owner.post(guilty.owner, &chain).expect("room");
        for _ in 0..50 {
            pair.owner.step_without_taking();
            pair.peer.step();
        }
        pair.settle();
        assert_eq!(statuses(&pair.owner.sent), [None; 4], "the fifth is lost");
        assert_eq!(statuses(&pair.owner_runs(innocent.owner, &Builder::new().send(&[]), 1)), [FLUSHED]);
        let mut told = fatal_queue_pairs(&pair.owner);
        told.sort_unstable();
        let both = if profile == SoftProfile::Rxe { vec![] } else { vec![guilty.owner, innocent.owner] };
        assert_eq!(told, both);
    });
}

/// On a device that needs a fence behind a registration, a message without one never gets away with it.
#[test]
fn k19_a_message_behind_a_registration_needs_its_fence() {
    on_all(|profile| {
        let mut options = SoftOptions::new(profile);
        options.capabilities.fence_after_registration = true;
        for fenced in [true, false] {
            let mut pair = pair_with(options);
            let ends = pair.connect();
            pair.peer.post_receives(ends.peer, 0, 3);
            let mut slot = pair.owner.slot(ends.owner);
            let (chain, _) =
                Builder::new().register(&pair.owner, &mut slot, &[pair.owner.element(0, 64)], Access::RemoteRead);
            let chain = chain.send(&[]);
            let chain = if fenced { chain.fenced() } else { chain };
            let done = pair.owner_runs(ends.owner, &chain.signalled().send(&[]).signalled(), 2);
            let failure = Some(FailureStatus::LocalOperation);
            assert_eq!(statuses(&done), if fenced { [None, None] } else { [failure, FLUSHED] });
        }
    });
}

/// The local invalidation waits for all before it, so nothing overtakes the registration behind it.
#[test]
fn k19_an_invalidation_is_a_fence_too() {
    on_all(|profile| {
        let mut options = SoftOptions::new(profile);
        options.capabilities.fence_after_registration = true;
        let mut pair = pair_with(options);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 1);
        let mut slot = pair.owner.slot(ends.owner);
        let (chain, _) =
            Builder::new().register(&pair.owner, &mut slot, &[pair.owner.element(0, 64)], Access::RemoteRead);
        let chain = chain.invalidate(slot).send(&[]).signalled();
        assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [None]);
    });
}

/// A window is bound to the base registration that its work request names, and to no other.
#[test]
fn u03_a_window_lies_in_the_base_that_it_names() {
    on(&[SoftProfile::Window, SoftProfile::Rxe], |profile| {
        let mut pair = pair(profile);
        let Ends { owner: queue_pair, .. } = pair.connect();
        let slot = pair.owner.slot(queue_pair);
        let mut chain = Builder::new();
        let elements = [pair.owner.element(0, 64)];
        let range = chain.range(&elements);
        let mut fields = fields(&pair.owner, &slot, &elements, Access::RemoteRead, range);
        fields.base = BaseId(fields.base.0 + 1);
        let chain = chain.push(Operation::Register(fields));
        assert_eq!(statuses(&pair.owner_runs(queue_pair, &chain, 1)), [Some(FailureStatus::Bind)]);
        assert_eq!(fatal_queue_pairs(&pair.owner).is_empty(), profile == SoftProfile::Rxe);
    });
}

/// Requests that nobody answers, or reads, take a bounded place; whoever finds none is told so.
#[test]
fn f31_connect_requests_wait_in_a_bounded_place() {
    for reads in [true, false] {
        let mut pair = pair(SoftProfile::Window);
        let sizes = QueueSizes { send: 1, receive: 1, max_send_sge: 1 };
        let mut waiting = 0;
        let unreachable = loop {
            let queue_pair = pair.owner.queue_pair(sizes);
            pair.owner.connect(queue_pair, ADDRESS, ConnectionParameters::default());
            if reads {
                pair.peer.step();
            }
            pair.owner.step();
            match pair.owner.connection_events().as_slice() {
                [] => waiting += 1,
                [ConnectionEvent::Unreachable { queue_pair: which, .. }] => break *which == queue_pair,
                other => panic!("{other:?}"),
            }
        };
        assert!(unreachable);
        assert_eq!(waiting, 1024);
    }
}

/// What the peer grants is no more than what the device can do.
#[test]
fn u23_a_device_without_reads_gets_none_from_its_peer() {
    let fabric = SoftFabric::new();
    let options = SoftOptions::new(SoftProfile::RegMr);
    let mut without = options;
    without.capabilities.attributes.max_rdma_reads = 0;
    let (owner, peer) = (fabric.device(without), fabric.device(options));
    let mut pair = Pair::new(owner, peer, ADDRESS);
    let ends = pair.connect();
    let read = Builder::new().read(&[pair.owner.element(0, 8)], RemoteRange { address: 0, key: 0 });
    assert_eq!(statuses(&pair.owner_runs(ends.owner, &read, 1)), [Some(FailureStatus::LocalOperation)]);
}

/// Numbers that make no sense are moved to ones that do, and the device says so.
#[test]
fn u13_options_are_brought_into_range() {
    on_all(|profile| {
        let mut options = SoftOptions::new(profile);
        options.mtu = 1;
        options.wire_packets = 0;
        options.capabilities.send_queue_cost = SendQueueCost { register: 0, invalidate: 0, message: 0 };
        if let Contiguity::PageList { page_size } = &mut options.capabilities.contiguity {
            *page_size = 0;
        }
        let mut pair = pair_with(options);
        let one = SendQueueCost { register: 1, invalidate: 1, message: 1 };
        assert_eq!(pair.owner.capabilities().send_queue_cost, one);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 1);
        let mut slot = pair.owner.slot(ends.owner);
        let element = [pair.owner.element(0, 1)];
        let (chain, grant) = Builder::new().register(&pair.owner, &mut slot, &element, Access::RemoteRead);
        let chain = chain.send(&[pair.owner.element(0, 1000)]).signalled();
        assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [None]);
        let read = Builder::new().read(&[pair.peer.element(0, 1)], grant.at(0)).signalled();
        assert_eq!(statuses(&pair.peer_runs(ends.peer, &read, 1)), [None]);
    });
}

#[test]
fn s06_a_completion_queue_has_entries() {
    let mut device = SoftFabric::new().device(SoftOptions::default());
    for (send, receive) in [(0, 1), (1, 0)] {
        assert_eq!(device.open_port(send, receive).err(), Some(CommandError::INVALID));
    }
}

/// A device whose events nobody takes takes no more commands.
#[test]
fn f29_answers_that_nobody_takes_are_bounded() {
    let mut device = SoftFabric::new().device(SoftOptions::default());
    let taken =
        (0..10_000).take_while(|ticket| device.submit(Ticket(*ticket), Command::AllocateDomain).is_ok()).count();
    assert!(taken < 10_000);
    let answers = std::iter::from_fn(|| device.poll()).count();
    assert_eq!(answers, taken);
    assert!(device.submit(Ticket(0), Command::AllocateDomain).is_ok());
}

/// With seven retries rxe waits for a dead peer for ever, and only then; to fail the queue pair still flushes it.
#[test]
fn f31_seven_retries_never_end_on_rxe() {
    on_all(|profile| {
        let fabric = SoftFabric::new();
        let options = SoftOptions::new(profile);
        let mut pair = Pair::new(fabric.device(options), fabric.device(options), ADDRESS);
        let limits = ConnectionParameters::default().retry_count(7);
        let domains = (pair.owner.domain, pair.peer.domain);
        let queue_pair = pair.connect_with(domains.0, domains.1, SIZES, limits).owner;
        let Pair { mut owner, peer, .. } = pair;
        drop(peer);
        owner.post(queue_pair, &Builder::new().send(&[])).expect("room");
        for _ in 0..1000 {
            owner.step();
        }
        let is_endless = profile == SoftProfile::Rxe;
        assert_eq!(statuses(&owner.sent), if is_endless { vec![] } else { vec![Some(FailureStatus::RetryExceeded)] });
        owner.command(Command::FailQueuePair { queue_pair }).expect("failed");
        owner.step();
        assert_eq!(owner.sent.len(), 1);
    });
}

/// A registration behind a SEND that meets no receive hangs the queue pair on rxe; elsewhere both complete later.
#[test]
fn f30_rxe_hangs_when_a_registration_stands_behind_a_message_without_receive() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let limits = ConnectionParameters::default().rnr_retry_count(7);
        let domains = (pair.owner.domain, pair.peer.domain);
        let ends = pair.connect_with(domains.0, domains.1, SIZES, limits);
        let mut slot = pair.owner.slot(ends.owner);
        let chain = Builder::new().send(&[]);
        let (chain, _) = chain.register(&pair.owner, &mut slot, &[pair.owner.element(0, 64)], Access::RemoteRead);
        pair.owner.post(ends.owner, &chain.signalled()).expect("room");
        pair.settle();
        pair.peer.post_receives(ends.peer, 0, 1);
        pair.settle();
        let hangs = profile == SoftProfile::Rxe;
        assert_eq!(statuses(&pair.owner.sent), if hangs { vec![] } else { vec![None] });
        pair.owner.command(Command::FailQueuePair { queue_pair: ends.owner }).expect("failed");
        pair.settle();
        assert_eq!(statuses(&pair.owner.sent), if hangs { vec![FLUSHED, FLUSHED] } else { vec![None] });
    });
}

/// A port that is opened while a memory is being deregistered knows it exactly if it stays registered.
#[test]
fn i33_a_port_opened_during_a_deregistration_agrees_with_the_others() {
    // Opened before the others have let go of it, and after.
    for (is_covered, steps) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let mut pair = pair(SoftProfile::RegMr);
        let ends = pair.connect();
        if is_covered {
            let mut slot = pair.owner.slot(ends.owner);
            let (chain, _) =
                Builder::new().register(&pair.owner, &mut slot, &[pair.owner.element(0, 64)], Access::RemoteRead);
            pair.owner_runs(ends.owner, &chain.signalled(), 1);
        }
        let base = pair.owner.base;
        for ticket in [Ticket(1 << 40), Ticket(1 << 41)] {
            pair.owner.device.submit(ticket, Command::DeregisterMemory { base }).expect("taken");
        }
        for _ in 0..steps {
            pair.owner.step();
        }
        let mut port = pair.owner.device.open_port(64, 64).expect("a second port");
        for _ in 0..20 {
            pair.step();
            port.poll(CompletionQueue::Send, &mut CompletionBatch::new());
        }
        let results: Vec<_> = pair
            .owner
            .events
            .drain(..)
            .filter_map(|event| match event {
                DeviceEvent::Answered { ticket, result } => Some((ticket.0 >> 40, result)),
                _ => None,
            })
            .collect();
        let first = if is_covered { Err(CommandError::BUSY) } else { Ok(Answer::Done) };
        assert_eq!(results, [(2, Err(CommandError::BUSY)), (1, first)]);
        // The new port's own view: it can send from that memory, or not.
        std::mem::swap(&mut pair.owner.port, &mut port);
        let sends = pair.connect();
        pair.peer.post_receives(sends.peer, 0, 1);
        let chain = Builder::new().send(&[pair.owner.element(0, 64)]).signalled();
        let expected = if is_covered { None } else { Some(FailureStatus::LocalProtection) };
        assert_eq!(statuses(&pair.owner_runs(sends.owner, &chain, 1)), [expected]);
    }
}

/// A memory that is on its way out is registered no more, by any port, until it is clear that it stays.
#[test]
fn i33_nothing_is_registered_in_memory_that_is_being_deregistered() {
    let mut pair = pair(SoftProfile::RegMr);
    let ends = pair.connect();
    let mut slot = pair.owner.slot(ends.owner);
    let mut other = pair.owner.device.open_port(64, 64).expect("a second port");
    let base = pair.owner.base;
    pair.owner.device.submit(Ticket(1 << 40), Command::DeregisterMemory { base }).expect("taken");
    pair.owner.step();
    let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &[pair.owner.element(0, 64)], Access::RemoteRead);
    let done = pair.owner_runs(ends.owner, &chain.signalled(), 1);
    assert_eq!(statuses(&done), [Some(FailureStatus::LocalOperation)]);
    for _ in 0..20 {
        pair.step();
        other.poll(CompletionQueue::Send, &mut CompletionBatch::new());
    }
    let is_done = |event: &DeviceEvent| matches!(event, DeviceEvent::Answered { result: Ok(Answer::Done), .. });
    assert!(pair.owner.events.iter().any(is_done));
}

/// No address wraps around, no registration is longer than the device says.
#[test]
fn i18_a_registration_neither_wraps_around_nor_exceeds_the_limit() {
    let page = 4096;
    let cases = [(u64::MAX - u64::from(page) + 1, page, false), (u64::MAX - 2 * u64::from(page) + 1, page, true)];
    for (iova, length, is_good) in cases.into_iter().chain([(0, 3 * page, true), (0, 3 * page + 1, false)]) {
        let mut options = SoftOptions::new(SoftProfile::RegMr);
        options.capabilities.max_registration_bytes = 3 * u64::from(page);
        let mut pair = pair_with(options);
        let Ends { owner: queue_pair, .. } = pair.connect();
        let slot = pair.owner.slot(queue_pair);
        let mut chain = Builder::new();
        let elements = [pair.owner.element(0, length)];
        let range = chain.range(&elements);
        let mut fields = fields(&pair.owner, &slot, &elements, Access::RemoteRead, range);
        fields.iova = iova;
        let chain = chain.push(Operation::Register(fields)).signalled();
        let expected = if is_good { None } else { Some(FailureStatus::LocalOperation) };
        assert_eq!(statuses(&pair.owner_runs(queue_pair, &chain, 1)), [expected], "{iova:#x} {length}");
    }
}

/// The number of a queue pair that is gone is not that of a later one, so nothing is posted to the wrong one.
#[test]
fn i24_queue_pair_numbers_are_not_reused_soon() {
    let mut host = Host::new(SoftFabric::new().device(SoftOptions::default()));
    let mut numbers = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let queue_pair = host.queue_pair(QueueSizes { send: 1, receive: 1, max_send_sge: 1 });
        assert!(numbers.insert(queue_pair));
        host.command(Command::DestroyQueuePair { queue_pair }).expect("destroyed");
    }
    let last = host.queue_pair(SIZES);
    for queue_pair in numbers {
        assert_ne!(queue_pair, last);
        assert!(host.post(queue_pair, &Builder::new()).is_err());
    }
}

/// What was being made on a port that died was not made; what was being destroyed there is gone.
#[test]
fn f31_commands_to_a_port_that_dies_are_answered() {
    let mut host = Host::new(SoftFabric::new().device(SoftOptions::default()));
    let (port, domain) = (host.port.id(), host.domain);
    let queue_pair = host.queue_pair(SIZES);
    let create = Command::CreateQueuePair { port, domain, sizes: SIZES, shared_receives: None };
    host.device.submit(Ticket(1 << 40), create.clone()).expect("taken");
    host.device.submit(Ticket(1 << 41), Command::DestroyQueuePair { queue_pair }).expect("taken");
    let Host { mut device, port, .. } = host;
    drop(port);
    device.submit(Ticket(1 << 42), create).expect("taken");
    let answers = std::iter::from_fn(|| device.poll()).filter_map(|event| match event {
        DeviceEvent::Answered { ticket, result } => Some((ticket.0 >> 40, result)),
        _ => None,
    });
    let gone = Err(CommandError::DEVICE_GONE);
    assert_eq!(answers.collect::<Vec<_>>(), [(1, gone), (2, Ok(Answer::Done)), (4, gone)]);
}
