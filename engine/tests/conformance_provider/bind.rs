//! Bind and invalidate errors: the owner's queue pair dies, the peer's learns nothing.

use crate::harness::deviations::Row;
use crate::harness::pair::Ends;
use crate::harness::subject::{Subject, on, on_all};
use crate::harness::{Builder, SIZES, Slot, TestPair, fields, memory, status, statuses};
use frwr_engine::provider::soft::{SoftOptions, SoftProfile};
use frwr_engine::provider::{
    Access, AsyncEvent, Capabilities, Command, CommandError, ConnectionParameters, Contiguity, DeviceEvent,
    ElementRange, FailureStatus, KeyScope, Operation, PostModel, PostRefusal, RegistrationFields, ScatterElement,
};

/// How a registration was refused: by its completion, or by the provider that looked at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Completion(FailureStatus),
    Post(PostRefusal),
}

/// How a subject's device refuses a registration.
fn failure(subject: Subject) -> Result<(), Refusal> {
    subject.register_failure().map(Refusal::Completion).map_or(Ok(()), Err)
}

/// How a registration is refused whose fault a real device would not see.
fn unseen_failure(subject: Subject) -> Result<(), Refusal> {
    let by_provider = Err(Refusal::Post(PostRefusal::Invalid));
    subject.expects(Row::FieldsThatTheDeviceDoesNotSee, failure(subject), by_provider)
}

/// How a registration is refused that the provider does not let through to lists, and every other device refuses.
fn failure_but_of_lists(subject: Subject) -> Result<(), Refusal> {
    if subject.has_lists() { Err(Refusal::Post(PostRefusal::Invalid)) } else { failure(subject) }
}

/// How a registration of no byte is refused.
fn nothing_to_cover(subject: Subject) -> Result<(), Refusal> {
    if subject.deviates(Row::RegistrationOfNothing) {
        return Err(Refusal::Post(PostRefusal::Invalid));
    }
    if subject.has_lists() { failure_but_of_lists(subject) } else { looked_at(subject) }
}

/// How a registration is refused by who looks at more than its form.
fn looked_at(subject: Subject) -> Result<(), Refusal> {
    subject.expects(Row::LooksOfARegistration, failure(subject), Ok(()))
}

/// Posts one registration with changed fields and elements; says how it ended.
fn try_register(
    pair: &mut TestPair,
    ends: Ends,
    slot: Slot,
    elements: &[ScatterElement],
    access: Access,
    change: impl FnOnce(&mut RegistrationFields, &Capabilities),
) -> Result<(), Refusal> {
    let range = ElementRange { first: 0, count: elements.len() as u32 };
    let mut fields = fields(&pair.owner, &slot, elements, access, range);
    change(&mut fields, &pair.owner.capabilities());
    let mut chain = Builder::new();
    chain.elements = elements.to_vec();
    let chain = chain.push(Operation::Register(fields)).signalled();
    let before = pair.owner.sent.len();
    pair.owner.post(ends.owner, &chain).map_err(|error| Refusal::Post(error.reason))?;
    pair.until("the registration", |pair| pair.owner.sent.len() > before);
    pair.owner.sent[before].result.map(|_| ()).map_err(|failure| Refusal::Completion(failure.status))
}

fn fresh(subject: Subject) -> (TestPair, Ends, Slot) {
    let mut pair = subject.pair();
    let ends = pair.connect();
    let slot = pair.owner.slot(ends.owner);
    (pair, ends, slot)
}

#[test]
fn i32_a_bad_range_is_refused() {
    on_all(|subject| {
        let bad: [fn(&mut ScatterElement); 3] = [
            |element| element.address = element.address.wrapping_sub(1 << 30),
            |element| element.address = element.address.wrapping_add(1 << 30),
            |element| element.length = 0,
        ];
        for change in bad {
            let (mut pair, ends, slot) = fresh(subject);
            let mut element = pair.owner.element(4096, 4096);
            change(&mut element);
            let status = try_register(&mut pair, ends, slot, &[element], Access::RemoteRead, |_, _| {});
            let nothing = element.length == 0;
            let expected = if nothing { nothing_to_cover(subject) } else { looked_at(subject) };
            assert_eq!(status, expected, "{element:?}");
            pair.owner.assert_open(0);
        }
    });
}

/// What a bind does not carry is checked by devices that see it.
#[test]
fn i32_fields_that_do_not_agree_are_refused() {
    on_all(|subject| {
        let (mut pair, ends, slot) = fresh(subject);
        let mut element = pair.owner.element(4096, 4096);
        element.lkey ^= 1;
        let status = try_register(&mut pair, ends, slot, &[element], Access::RemoteRead, |_, _| {});
        // For a bind provider and device look at the base registration alone, and bind that.
        let unseen = subject.has_windows() && subject.deviates(Row::FieldsThatTheDeviceDoesNotSee);
        let right = if unseen { Ok(()) } else { looked_at(subject) };
        assert_eq!(status, right, "a key of no base registration");
        if status.is_err() {
            pair.owner.assert_open(0);
        }
    });
}

/// Length and elements say the same, and something is covered.
#[test]
fn i32_a_length_that_is_not_that_of_the_elements_is_refused() {
    on_all(|subject| {
        let (mut pair, ends, slot) = fresh(subject);
        let element = [pair.owner.element(4096, 4096)];
        let longer = |fields: &mut RegistrationFields, _: &Capabilities| fields.length += 1;
        let status = try_register(&mut pair, ends, slot, &element, Access::RemoteRead, longer);
        assert_eq!(status, unseen_failure(subject));
        let (mut pair, ends, slot) = fresh(subject);
        let status = try_register(&mut pair, ends, slot, &[], Access::RemoteRead, |_, _| {});
        assert_eq!(status, nothing_to_cover(subject), "nothing to cover");
    });
}

#[test]
fn i32_remote_write_needs_local_write_on_the_base() {
    on_all(|subject| {
        for (access, expected) in [(Access::RemoteRead, Ok(())), (Access::RemoteWrite, looked_at(subject))] {
            let (mut pair, ends, slot) = fresh(subject);
            let domain = pair.owner.domain;
            let read_only = memory(8192);
            let address = read_only.address();
            let (_, lkey) = pair.owner.register(domain, read_only, false);
            let element = [ScatterElement { address, length: 4096, lkey }];
            assert_eq!(try_register(&mut pair, ends, slot, &element, access, |_, _| {}), expected);
        }
    });
}

/// C10-72; rxe looks at the window's domain but forgets that of the memory region.
#[test]
fn i32_objects_of_a_foreign_domain_are_refused() {
    on_all(|subject| {
        let (mut pair, ends, _) = fresh(subject);
        let foreign = pair.owner.new_domain();
        let slot = pair.owner.slot_in(foreign, ends.owner);
        let element = [pair.owner.element(0, 4096)];
        let status = try_register(&mut pair, ends, slot, &element, Access::RemoteRead, |_, _| {});
        assert_eq!(status, failure(subject), "registration object of a foreign domain");

        let (mut pair, ends, slot) = fresh(subject);
        let foreign = pair.owner.new_domain();
        let other = memory(4096);
        let address = other.address();
        let (_, lkey) = pair.owner.register(foreign, other, true);
        let element = [ScatterElement { address, length: 4096, lkey }];
        let status = try_register(&mut pair, ends, slot, &element, Access::RemoteWrite, |_, _| {});
        let expected = subject.expects(Row::DomainOfABase, looked_at(subject), Ok(()));
        assert_eq!(status, expected, "memory of a foreign domain");
    });
}

/// A second registration over a live key: refused, but mkeys replace silently.
#[test]
fn u25_a_live_key_is_not_registered_again() {
    on_all(|subject| {
        let (mut pair, ends, mut slot) = fresh(subject);
        let elements = [pair.owner.element(0, 4096)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &elements, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        let longer = [pair.owner.element(8192, 8192)];
        let status = try_register(&mut pair, ends, slot, &longer, Access::RemoteRead, |_, _| {});
        if pair.owner.capabilities().refuses_live_registration {
            assert_eq!(status, failure_but_of_lists(subject));
            pair.owner.assert_open(4096); // the old one lives on
        } else {
            assert_eq!(status, Ok(()));
            pair.owner.assert_open(8192);
        }
    });
}

#[test]
fn u25_i20_the_key_may_differ_in_its_rotating_bits_only() {
    on_all(|subject| {
        let (mut pair, ends, slot) = fresh(subject);
        let elements = [pair.owner.element(0, 4096)];
        let foreign = |fields: &mut RegistrationFields, _: &Capabilities| fields.key ^= 1 << 8;
        let status = try_register(&mut pair, ends, slot, &elements, Access::RemoteRead, foreign);
        assert_eq!(status, unseen_failure(subject));
        if pair.owner.capabilities().rotating_key_bits == 0 {
            let (mut pair, ends, slot) = fresh(subject);
            let rotated = |fields: &mut RegistrationFields, _: &Capabilities| fields.key ^= 1;
            let status = try_register(&mut pair, ends, slot, &elements, Access::RemoteRead, rotated);
            assert_eq!(status, unseen_failure(subject));
        }
    });
}

#[test]
fn u05_a_window_wants_its_current_key() {
    on(Subject::has_windows, "only windows name it", |subject| {
        let (mut pair, ends, slot) = fresh(subject);
        let elements = [pair.owner.element(0, 4096)];
        let stale = |fields: &mut RegistrationFields, _: &Capabilities| fields.old_key ^= 1;
        let status = try_register(&mut pair, ends, slot, &elements, Access::RemoteRead, stale);
        assert_eq!(status, looked_at(subject));
    });
}

#[test]
fn u11_the_base_address_is_what_the_device_can_publish() {
    on_all(|subject| {
        let (mut pair, ends, slot) = fresh(subject);
        let elements = [pair.owner.element(100, 4096)];
        let other = |fields: &mut RegistrationFields, _: &Capabilities| fields.iova += 8;
        let status = try_register(&mut pair, ends, slot, &elements, Access::RemoteRead, other);
        assert_eq!(status, unseen_failure(subject));
    });
}

#[test]
fn s29_s31_u07_u08_each_layout_takes_what_it_can() {
    let gaps = |pair: &TestPair| vec![pair.owner.element(100, 50), pair.owner.element(5000, 7)];
    let pages = |pair: &TestPair| vec![pair.owner.element(4000, 96), pair.owner.element(12288, 4096)];
    let run = |pair: &TestPair| vec![pair.owner.element(100, 50), pair.owner.element(150, 9)];
    let too_deep = |pair: &TestPair| (0..33).map(|i| pair.owner.element(i * 4096, 4096)).collect();
    on_all(|subject| {
        let status = |elements: &dyn Fn(&TestPair) -> Vec<ScatterElement>, options: SoftOptions| {
            let mut pair = subject.pair_with(|device| *device = options);
            let ends = pair.connect();
            let slot = pair.owner.slot(ends.owner);
            let elements = elements(&pair);
            try_register(&mut pair, ends, slot, &elements, Access::RemoteRead, |_, _| {})
        };
        let options = subject.profile().map_or_else(SoftOptions::default, SoftOptions::new);
        let bad = unseen_failure(subject);
        let (list, gap, range) = match subject.pair().owner.capabilities().contiguity {
            Contiguity::PageList { .. } => (Ok(()), bad, bad),
            Contiguity::Gaps { .. } => (Ok(()), Ok(()), Ok(())),
            Contiguity::SingleRange => (bad, bad, Ok(())),
        };
        assert_eq!(status(&pages, options), list);
        assert_eq!(status(&gaps, options), gap);
        assert_eq!(status(&run, options), range);
        if subject == Subject::Soft(SoftProfile::RegMr) {
            assert_eq!(status(&gaps, options.with_gaps()), Ok(()));
            let mut shallow = options;
            shallow.capabilities.attributes.max_fast_reg_page_list_len = 33;
            assert_eq!(status(&too_deep, shallow), Ok(()));
        }
    });
}

/// Too many entries fail the post itself (U8); `ibv_wr_complete` drops the whole batch.
#[test]
fn u08_u15_a_list_that_is_too_long_fails_the_whole_post() {
    let list =
        |subject: Subject| subject.has_lists() || subject == Subject::Soft(SoftProfile::Umr { rotating_key_bits: 8 });
    on(list, "windows have no lists", |subject| {
        let (mut pair, ends, mut slot) = fresh(subject);
        pair.peer.post_receives(ends.peer, 0, 4);
        let limit = u64::from(pair.owner.capabilities().attributes.max_fast_reg_page_list_len);
        let several = |pair: &TestPair, count| (0..count).map(|at| pair.owner.element(at * 64, 8)).collect::<Vec<_>>();
        let many = several(&pair, limit + 1);
        let mut refused = slot;
        let chain = Builder::new().send(&[]);
        let (chain, _) = chain.register(&pair.owner, &mut refused, &many, Access::RemoteRead);
        let error = pair.owner.post(ends.owner, &chain).expect_err("one entry more than fits");
        assert_eq!((error.accepted, error.reason), (0, PostRefusal::Invalid));
        pair.owner.assert_open(0);
        // At the limit and below; nothing is left of what was refused.
        for count in [limit, limit - 1, 1] {
            let (chain, _) =
                Builder::new().register(&pair.owner, &mut slot, &several(&pair, count), Access::RemoteRead);
            assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain.send(&[]).signalled(), 1)), [None]);
            pair.owner.assert_open(count * 8);
            pair.owner_runs(ends.owner, &Builder::new().invalidate(slot).signalled(), 1);
        }
    });
}

/// A wrong key, a key of memory, a key that is not live: a local operation error, and the registration lives on.
#[test]
fn i05_i06_a_wrong_local_invalidation_is_refused() {
    on_all(|subject| {
        let wrong: [fn(Slot, u32) -> u32; 3] = [|slot, _| slot.key ^ 1, |_, lkey| lkey, |_, _| 0xdead_beef];
        for wrong_key in wrong {
            let (mut pair, ends, mut slot) = fresh(subject);
            let elements = [pair.owner.element(0, 4096)];
            let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &elements, Access::RemoteRead);
            let key = wrong_key(slot, pair.owner.lkey);
            let chain = chain.push(Operation::Invalidate { object: slot.object, key });
            if key >> 8 != slot.key >> 8 && subject.deviates(Row::InvalidationOfAnotherKey) {
                let refused = pair.owner.post(ends.owner, &chain).expect_err("the device could crash");
                assert_eq!(refused.reason, PostRefusal::Invalid);
                continue;
            }
            if key >> 8 == slot.key >> 8 && subject.deviates(Row::LooksOfALocalInvalidation) {
                assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain.signalled(), 1)), [None]);
                continue;
            }
            let done = pair.owner_runs(ends.owner, &chain, 1);
            assert_eq!(statuses(&done), [Some(FailureStatus::LocalOperation)]);
            pair.owner.assert_open(4096);
        }
    });
}

#[test]
fn i05_a_second_local_invalidation_is_refused() {
    on(
        |subject| !subject.deviates(Row::SecondLocalInvalidation),
        "its host could crash, see below",
        |subject| {
            let (mut pair, ends, mut slot) = fresh(subject);
            let elements = [pair.owner.element(0, 4096)];
            let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &elements, Access::RemoteRead);
            let chain = chain.invalidate(slot).invalidate(slot).signalled();
            let refused = Some(FailureStatus::LocalOperation);
            let expected = subject.expects(Row::LooksOfALocalInvalidation, refused, None);
            assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [expected]);
        },
    );
}

/// The same on rxe takes the host down: the model says so and does nothing more, and the provider of a real one refuses
/// the post, in one chain and in two.
#[test]
fn i05_rxe_crashes_on_a_double_invalidation() {
    on(
        |subject| subject.deviates(Row::SecondLocalInvalidation),
        "it refuses, see above",
        |subject| {
            let (mut pair, ends, mut slot) = fresh(subject);
            let elements = [pair.owner.element(0, 4096)];
            let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &elements, Access::RemoteRead);
            let Some(monitor) = pair.owner.device.monitor() else {
                let error = pair.owner.post(ends.owner, &chain.invalidate(slot).invalidate(slot).signalled());
                let error = error.expect_err("the device would crash");
                let taken = if pair.owner.capabilities().post_model == PostModel::Prefix { 2 } else { 0 };
                assert_eq!((error.accepted, error.reason), (taken, PostRefusal::Invalid));
                let again = pair.owner.post(ends.owner, &Builder::new().invalidate(slot).signalled());
                let again = again.expect_err("the device would crash");
                assert_eq!((again.accepted, again.reason), (0, PostRefusal::Invalid));
                // Nothing of it reached the device: the queue pair lives.
                pair.peer.post_receives(ends.peer, 0, 1);
                let done = pair.owner_runs(ends.owner, &Builder::new().send(&[]).signalled(), 1);
                assert_eq!(statuses(&done), [None]);
                return;
            };
            let chain = chain.invalidate(slot).signalled();
            assert_eq!(statuses(&pair.owner_runs(ends.owner, &chain, 1)), [None]);
            assert!(!monitor.crashed());
            pair.owner.post(ends.owner, &Builder::new().invalidate(slot)).expect("accepted");
            pair.settle();
            assert!(monitor.crashed());
            assert!(pair.owner.events.iter().any(|event| matches!(event, DeviceEvent::Async(AsyncEvent::DeviceFatal))));
            let error = pair.owner.post(ends.owner, &Builder::new().send(&[])).expect_err("nothing works any more");
            assert_eq!(error.reason, PostRefusal::DeviceGone);
            assert!(matches!(pair.owner.command(Command::AllocateDomain), Err(CommandError::DeviceGone(_))));
        },
    );
}

/// Windows are invalidated through their own queue pair only; rxe forgets to look.
#[test]
fn i23_a_window_is_invalidated_through_its_own_queue_pair() {
    on_all(|subject| {
        let (mut pair, ends, mut slot) = fresh(subject);
        let others = pair.connect();
        let elements = [pair.owner.element(0, 4096)];
        let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &elements, Access::RemoteRead);
        pair.owner_runs(ends.owner, &chain.signalled(), 1);
        let done = pair.owner_runs(others.owner, &Builder::new().invalidate(slot).signalled(), 1);
        // MRs and mkeys of the same domain fall; rxe forgets to look.
        let bound = pair.owner.capabilities().key_scope == KeyScope::QueuePair;
        let right = bound.then_some(FailureStatus::LocalOperation);
        let expected = subject.expects(Row::InvalidationThroughAnotherQueuePair, right, None);
        assert_eq!(statuses(&done), [expected]);
    });
}

/// Whatever went wrong at the owner, the peer is told nothing until it sends.
#[test]
fn u24_the_peer_of_a_failed_registration_learns_nothing() {
    on_all(|subject| {
        let mut pair = subject.pair();
        let (owner, peer) = (pair.owner.domain, pair.peer.domain);
        // Retries of real devices take seconds each.
        let once = ConnectionParameters::default().retry_count(1);
        let ends = pair.connect_with(owner, peer, SIZES, once);
        let slot = pair.owner.slot(ends.owner);
        pair.peer.post_receives(ends.peer, 0, 1);
        let mut element = [pair.owner.element(0, 4096)];
        element[0].address = element[0].address.wrapping_sub(1 << 30);
        let refused = try_register(&mut pair, ends, slot, &element, Access::RemoteRead, |_, _| {});
        assert_eq!(refused, looked_at(subject));
        if refused.is_ok() {
            // Nothing went wrong yet.
            return;
        }
        pair.settle();
        assert!(pair.peer.received.is_empty() && pair.peer.sent.is_empty() && pair.peer.events.is_empty());
        let done = pair.peer_runs(ends.peer, &Builder::new().send(&[]), 1);
        assert_eq!(statuses(&done), [Some(FailureStatus::RetryExceeded)]);
    });
}

/// A base registration that something covers stays; it goes once the key is dead or its object freed.
#[test]
fn i33_memory_is_not_deregistered_under_a_live_key() {
    on_all(|subject| {
        for free in [false, true] {
            let (mut pair, ends, mut slot) = fresh(subject);
            let (base, domain) = (pair.owner.base, pair.owner.domain);
            let elements = [pair.owner.element(0, 4096)];
            let (chain, _) = Builder::new().register(&pair.owner, &mut slot, &elements, Access::RemoteRead);
            pair.owner_runs(ends.owner, &chain.signalled(), 1);
            if subject.deviates(Row::DeregistrationUnderALiveKey) {
                assert!(pair.owner.command(Command::DeregisterMemory { base }).is_ok());
                continue;
            }
            assert!(matches!(pair.owner.command(Command::DeregisterMemory { base }), Err(CommandError::Busy(_))));
            assert!(matches!(pair.owner.command(Command::FreeDomain { domain }), Err(CommandError::Busy(_))));
            if free {
                pair.owner.command(Command::FreeRegistration { object: slot.object }).expect("freed");
            } else {
                pair.owner_runs(ends.owner, &Builder::new().invalidate(slot).signalled(), 1);
            }
            assert!(pair.owner.command(Command::DeregisterMemory { base }).is_ok());
            assert_eq!(pair.owner.command(Command::DeregisterMemory { base }), Err(CommandError::Unknown));
            let chain = Builder::new().send(&[pair.owner.element(0, 8)]);
            let done = pair.owner_runs(ends.owner, &chain, 1);
            assert!(subject.is_local_failure(status(&done[0])), "{done:?}");
        }
    });
}
