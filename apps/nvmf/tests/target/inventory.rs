//! What a target tells of what it has, beside what is known to be there.

use frwr_nvmf::controller::{AllowedHosts, CommandKind, QueuePhase, TargetListening};
use frwr_nvmf::wire::{AnaState, Nqn, Status};
use frwr_support::nvmf_harness::{Pair, subsystem, target_options};

#[test]
fn subsystems_and_namespaces_are_told_as_they_were_changed() {
    let mut pair = Pair::ready("reg_mr");
    let before = pair.target.inventory();
    let [listener] = &before.listeners[..] else { panic!("{before:?}") };
    assert_eq!((listener.address, listener.port), (target_options().addresses[0], 1));
    assert_eq!((before.core, listener.listening, before.ending), (0, TargetListening::Listens, false));
    let [one] = &before.subsystems[..] else { panic!("{before:?}") };
    assert_eq!((one.name, &one.hosts, one.ana()), (subsystem(), &AllowedHosts::Any, Some(AnaState::Optimized)));
    assert_eq!(one.namespaces as usize, before.namespaces.len());
    assert!(before.namespaces.iter().all(|namespace| namespace.active && namespace.blocks > 0));
    let allowed = AllowedHosts::Listed(vec![Nqn::new("nqn.2026-11.x:y").unwrap()]);
    pair.target.set_allowed_hosts(&subsystem(), allowed.clone(), core::time::Duration::ZERO).unwrap();
    pair.target.set_ana_state(&subsystem(), None, AnaState::Inaccessible).unwrap();
    pair.target.set_namespace_active(&subsystem(), 1, false).unwrap();
    let behind = pair.target.inventory();
    assert_eq!((&behind.subsystems[0].hosts, behind.subsystems[0].ana()), (&allowed, Some(AnaState::Inaccessible)));
    assert!(!behind.namespaces[0].active);
}

#[test]
fn a_host_has_a_controller_with_its_queues_until_it_goes() {
    let mut pair = Pair::ready("reg_mr");
    let there = pair.target.inventory();
    let [controller] = &there.controllers[..] else { panic!("{there:?}") };
    assert!(controller.at_home && controller.ready && controller.subsystem == Some(0) && controller.host.is_some());
    let is_its = |queue: &&frwr_nvmf::controller::QueueState| {
        queue.controller == Some(controller.id) && queue.host == controller.host && queue.phase == QueuePhase::Queue
    };
    let mut queues: Vec<_> = there.queues.iter().filter(is_its).map(|queue| queue.id).collect();
    queues.sort_unstable();
    assert!(queues.len() == there.queues.len() && queues.starts_with(&[0, 1]), "{there:?}");
    assert_eq!(there.waiting, Default::default());
    pair.finish();
    let gone = pair.target.inventory();
    assert!(gone.controllers.is_empty() && gone.queues.is_empty(), "{gone:?}");
}

#[test]
fn what_was_read_and_written_is_told_of_the_namespace_and_the_queue_that_it_went_through() {
    let mut pair = Pair::ready("reg_mr");
    let before = pair.target.inventory();
    for (block, write) in [(0, true), (1, true), (0, false)] {
        let segment = pair.segment(block, 1);
        let submitted =
            if write { pair.host.write(block, &[segment], 0) } else { pair.host.read(block, &[segment], 0) };
        submitted.unwrap();
        assert_eq!(pair.completed(1).len(), 1);
    }
    let behind = pair.target.inventory();
    let namespace = behind.namespaces[0];
    let bytes = u64::from(namespace.block_bytes);
    assert_eq!((namespace.bytes_read, namespace.bytes_written), (bytes, 2 * bytes));
    assert!(behind.namespaces[1..].iter().all(|other| (other.bytes_read, other.bytes_written) == (0, 0)));
    let commands = |inventory: &frwr_nvmf::controller::Inventory| -> u64 {
        inventory.queues.iter().filter(|queue| queue.id != 0).map(|queue| queue.commands).sum()
    };
    assert_eq!(commands(&behind) - commands(&before), 3);
    pair.finish();
}

#[test]
fn how_long_commands_took_is_told_by_kind_and_why_others_failed_by_status() {
    let mut pair = Pair::ready("reg_mr");
    for (block, write) in [(0, true), (1, true), (0, false)] {
        let segment = pair.segment(block, 1);
        let submitted =
            if write { pair.host.write(block, &[segment], 0) } else { pair.host.read(block, &[segment], 0) };
        submitted.unwrap();
        assert_eq!(pair.completed(1).len(), 1);
    }
    pair.host.flush_namespace(0).unwrap();
    pair.completed(1);
    let there = pair.target.inventory();
    let told: Vec<_> = there.latencies.iter().map(|one| (one.identifier, one.kind, one.latencies.count())).collect();
    assert_eq!(told, [(1, CommandKind::Read, 1), (1, CommandKind::Write, 2), (1, CommandKind::Other, 1)]);
    // The medium is memory: each was answered in the iteration that found it, and took as long as that.
    assert!(there.latencies.iter().all(|one| !one.latencies.sum().is_zero()), "{there:?}");
    assert_eq!(there.errors, []);
    pair.target.set_namespace_active(&subsystem(), 1, false).unwrap();
    let segment = pair.segment(0, 1);
    pair.host.read(0, &[segment], 0).unwrap();
    assert!(pair.completed(1)[0].result.is_err());
    let behind = pair.target.inventory();
    assert_eq!(behind.latencies, there.latencies);
    let errors: Vec<_> = behind.errors.iter().map(|one| (one.identifier, one.status, one.count)).collect();
    assert_eq!(errors, [(1, Status::INVALID_FIELD, 1)]);
    pair.finish();
}
