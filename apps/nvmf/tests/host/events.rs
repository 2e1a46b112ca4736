//! What a host makes of the controller's news: ANA states, sizes that change, aborts; and of discovery services.

use core::time::Duration;
use frwr_nvmf::controller::{AllowedHosts, MAX_SUBSYSTEMS, Subsystem};
use frwr_nvmf::host::{HostFailure, HostOptions, IoError, MAX_DISCOVERED, RequestError};
use frwr_nvmf::storage::{MemoryStorage, Storage};
use frwr_nvmf::wire::{AnaState, DISCOVERY_SUBSYSTEM, Nqn, Status};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::{BLOCK, PROFILES, Pair, host_options, memory, subsystem, target_options};
use std::rc::Rc;

/// A host that is ready, over a namespace that does what the test says.
fn gated(options: HostOptions) -> (Pair<Gated>, Rc<Switch>) {
    let (storage, switch) = Gated::new(128, BLOCK, 64);
    let subsystems = vec![Subsystem::new(subsystem(), vec![storage])];
    let mut pair = Pair::with_subsystems("reg_mr", options, target_options(), subsystems, 8);
    pair.bring_up();
    settle(&mut pair);
    (pair, switch)
}

/// Steps until what is under way has arrived, such as the event request.
fn settle<S: Storage>(pair: &mut Pair<S>) {
    for _ in 0..200 {
        pair.step();
    }
}

#[test]
fn requests_wait_while_the_namespace_cannot_be_reached_and_go_on_then() {
    for profile in PROFILES {
        for state in [AnaState::Inaccessible, AnaState::Change] {
            let mut pair = Pair::ready(profile);
            settle(&mut pair);
            pair.fill(0, 0x5a);
            pair.host.write(0, &[pair.segment(0, 1)], 1).unwrap();
            assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
            pair.target.set_ana_state(&subsystem(), None, state).unwrap();
            pair.until("told", |pair| pair.host.ana_state() == state);
            let (before, reads) = (pair.host.statistics(), pair.target.statistics().reads);
            assert_eq!(before.ana_events, 1, "{profile}");
            for lba in 0..4 {
                pair.host.read(lba, &[pair.segment(10 + lba, 1)], lba).unwrap();
            }
            pair.tick = Duration::from_millis(10);
            settle(&mut pair);
            assert!(pair.completions.is_empty() && pair.target.statistics().reads == reads, "{profile}: they wait");
            assert_eq!(pair.host.statistics().submissions, before.submissions, "{profile}");
            pair.target.set_ana_state(&subsystem(), None, AnaState::NonOptimized).unwrap();
            assert!(pair.completed(4).iter().all(|ended| ended.result == Ok(())), "{profile}");
            assert_eq!((pair.block(10)[7], pair.host.ana_state()), (0x5a, AnaState::NonOptimized), "{profile}");
            assert_eq!((pair.host.statistics().sessions, pair.host.statistics().failures), (1, 0), "{profile}");
            pair.finish();
        }
    }
}

#[test]
fn a_command_that_is_refused_for_its_path_is_sent_again_without_a_notice() {
    let mut pair = Pair::ready("reg_mr");
    // The host has sent no event request yet: it learns of the state by the refusal.
    pair.target.set_ana_state(&subsystem(), None, AnaState::Inaccessible).unwrap();
    pair.host.read(0, &[pair.segment(0, 1)], 1).unwrap();
    pair.until("refused", |pair| pair.host.ana_state() == AnaState::Inaccessible);
    assert!(pair.completions.is_empty());
    pair.target.set_ana_state(&subsystem(), None, AnaState::Optimized).unwrap();
    pair.tick = Duration::from_millis(10);
    assert_eq!(pair.completed(1)[0].result, Ok(()));
    pair.finish();
}

#[test]
fn a_namespace_that_is_lost_for_ever_or_for_too_long_fails_its_requests() {
    for (state, patience) in [(AnaState::PersistentLoss, 0), (AnaState::Inaccessible, 5), (AnaState::Change, 5)] {
        let options = host_options().inaccessible_timeout(Duration::from_secs(5));
        let mut pair = Pair::with("reg_mr", options, target_options());
        pair.bring_up();
        settle(&mut pair);
        pair.target.set_ana_state(&subsystem(), None, state).unwrap();
        pair.until("told", |pair| pair.host.ana_state() == state);
        let begin = pair.now;
        pair.host.read(0, &[pair.segment(0, 1)], 1).unwrap();
        pair.tick = Duration::from_millis(10);
        assert_eq!(pair.completed(1)[0].result, Err(IoError::Inaccessible(state)));
        let waited = pair.now - begin;
        assert!(waited >= Duration::from_secs(patience).saturating_sub(pair.tick), "{state:?} {waited:?}");
        assert!(waited < Duration::from_secs(patience + 1), "{state:?} {waited:?}");
        // The session is there for better times.
        pair.target.set_ana_state(&subsystem(), None, AnaState::Optimized).unwrap();
        pair.until("better times", |pair| pair.host.ana_state() == AnaState::Optimized);
        pair.host.read(0, &[pair.segment(0, 1)], 2).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        assert_eq!(pair.host.statistics().sessions, 1);
        pair.finish();
    }
}

fn resize(pair: &mut Pair<Gated>, blocks: u64) {
    pair.target.resize_namespace(&subsystem(), 1, blocks, Duration::ZERO).unwrap();
}

#[test]
fn a_namespace_has_another_size_while_it_is_used() {
    let (mut pair, _) = gated(host_options());
    assert_eq!(pair.host.geometry().unwrap().blocks(), 128);
    for (round, blocks) in [100, 120, 60].into_iter().enumerate() {
        resize(&mut pair, blocks);
        pair.until("known", |pair| pair.host.geometry().unwrap().blocks() == blocks);
        assert_eq!(pair.host.statistics().namespace_events, round as u64 + 1);
        assert_eq!(pair.host.read(blocks, &[pair.segment(0, 1)], 1), Err(RequestError::OutOfRange));
        pair.host.read(blocks - 1, &[pair.segment(0, 1)], 2).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        settle(&mut pair);
    }
    // Before the host knows, the controller says it.
    resize(&mut pair, 10);
    pair.host.write(9, &[pair.segment(0, 2)], 3).unwrap();
    let Err(IoError::Status(status)) = pair.completed(1)[0].result else { panic!("written") };
    assert_eq!(status.code(), Status::LBA_OUT_OF_RANGE.code());
    assert!(pair.target.resize_namespace(&subsystem(), 2, 10, Duration::ZERO).is_err());
    assert_eq!((pair.host.statistics().sessions, pair.host.statistics().failures), (1, 0));
    pair.finish();
}

/// It says by its NGUID that it is the same one.
#[test]
fn a_namespace_of_another_size_behind_a_reconnect_is_used_on() {
    for blocks in [200, 100] {
        let (storage, _) = Gated::new(256, BLOCK, 64);
        let mut pair = Pair::with_subsystems(
            "reg_mr",
            host_options(),
            target_options(),
            vec![Subsystem::new(subsystem(), vec![storage])],
            8,
        );
        resize(&mut pair, 128);
        pair.bring_up();
        settle(&mut pair);
        assert_eq!(pair.host.geometry().unwrap().blocks(), 128);
        pair.fill(0, 0x5a);
        // What has no answer goes out again; behind an end that is nearer by then it is refused as in a session that goes on.
        for block in [99, 127] {
            pair.host.write(block, &[pair.segment(0, 1)], block).unwrap();
        }
        pair.host.flush();
        pair.host.drop_connections();
        resize(&mut pair, blocks);
        pair.tick = Duration::from_millis(1);
        let ended = pair.completed(2);
        let of = |block: u64| ended.iter().find(|ended| ended.cookie == block).unwrap().result;
        assert_eq!((of(99), of(127).is_ok()), (Ok(()), blocks > 127), "{ended:?}");
        assert_eq!(pair.host.geometry().unwrap().blocks(), blocks);
        pair.host.read(blocks - 1, &[pair.segment(1, 1)], 3).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        assert_eq!((pair.host.failure(), pair.host.statistics().sessions), (None, 2));
        pair.finish();
    }
}

#[test]
fn a_namespace_that_is_taken_away_ends_the_host_with_the_reason() {
    let mut pair = Pair::ready("reg_mr");
    settle(&mut pair);
    pair.target.set_namespace_active(&subsystem(), 1, false).unwrap();
    pair.until("failed", |pair| pair.host.failure().is_some());
    assert!(matches!(pair.host.failure(), Some(HostFailure::Format(_))), "{:?}", pair.host.failure());
    assert_eq!(pair.host.read(0, &[pair.segment(0, 1)], 1), Err(RequestError::NotReady));
}

#[test]
fn a_slow_command_is_aborted_and_the_session_goes_on() {
    for gate in [Gate::Full, Gate::Unstarted] {
        let (command_timeout, step_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
        let (mut pair, switch) = gated(host_options().command_timeout(command_timeout).step_timeout(step_timeout));
        pair.fill(0, 0x11);
        pair.host.write(0, &[pair.segment(0, 1)], 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        switch.gate.set(gate);
        pair.fill(0, 0x22);
        let begin = pair.now;
        pair.host.write(0, &[pair.segment(0, 1)], 2).unwrap();
        pair.tick = Duration::from_millis(10);
        assert_eq!(pair.completed(1)[0].result, Err(IoError::TimedOut), "{gate:?}");
        assert!(pair.now - begin >= command_timeout, "{gate:?}");
        switch.gate.set(Gate::Open);
        pair.host.read(0, &[pair.segment(5, 1)], 3).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        assert_eq!(pair.block(5)[0], 0x11, "{gate:?}: it was never executed");
        let statistics = pair.host.statistics();
        assert_eq!((statistics.aborts, statistics.sessions, statistics.failures), (1, 1, 0));
        assert_eq!(pair.target.statistics().aborted_commands, 1);
        pair.finish();
    }
}

#[test]
fn a_command_that_cannot_be_aborted_any_more_has_its_own_answer() {
    let (command_timeout, step_timeout) = (Duration::from_secs(2), Duration::from_secs(5));
    let (mut pair, switch) = gated(host_options().command_timeout(command_timeout).step_timeout(step_timeout));
    switch.gate.set(Gate::Running);
    pair.host.write(0, &[pair.segment(0, 1)], 1).unwrap();
    pair.tick = Duration::from_millis(10);
    pair.until("aborted", |pair| pair.host.statistics().aborts == 1);
    settle(&mut pair);
    assert!(pair.completions.is_empty());
    switch.gate.set(Gate::Open);
    assert_eq!(pair.completed(1)[0].result, Ok(()));
    assert_eq!((pair.host.statistics().failures, pair.target.statistics().aborted_commands), (0, 0));
    pair.finish();
}

/// Subsystems of a namespace each, every other one for another host.
fn subsystems(count: usize) -> Vec<Subsystem<MemoryStorage>> {
    let one = |number: usize| {
        let namespace = MemoryStorage::new(memory(BLOCK as usize), BLOCK, 8).unwrap();
        let hosts = AllowedHosts::Listed(vec![Nqn::new("nqn.other").unwrap()]);
        let subsystem = Subsystem::new(Nqn::new(&format!("nqn.disk{number}")).unwrap(), vec![namespace]);
        if number.is_multiple_of(2) { subsystem } else { Subsystem { hosts, ..subsystem } }
    };
    (0..count).map(one).collect()
}

#[test]
fn a_discovery_service_is_read_to_its_end() {
    for (profile, count) in [("reg_mr", 1), ("window", 7), ("rxe", 8), ("umr", 31), ("reg_mr", MAX_SUBSYSTEMS)] {
        let options = host_options().subsystem(Nqn::new(DISCOVERY_SUBSYSTEM).unwrap());
        let mut pair = Pair::with_subsystems(profile, options, target_options(), subsystems(count), 8);
        pair.bring_up();
        let found: Vec<_> = pair.host.discovered().iter().map(|entry| entry.subsystem.as_str().to_owned()).collect();
        let expected: Vec<_> = (0..count).step_by(2).map(|number| format!("nqn.disk{number}")).collect();
        assert_eq!(found, expected, "{profile}");
        const { assert!(MAX_SUBSYSTEMS <= MAX_DISCOVERED) };
        let first = &pair.host.discovered()[0];
        assert_eq!((first.transport, first.address_family, first.subsystem_type), (1, 1, 2));
        assert_eq!((first.address.as_str(), first.service.as_str()), ("127.0.0.1", "4420"));
        // There is nothing to read and write.
        assert_eq!(pair.host.read(0, &[pair.segment(0, 1)], 1), Err(RequestError::NotReady));
        assert_eq!(pair.target.statistics().queues, 1);
        pair.finish();
    }
}

#[test]
fn a_discovery_log_that_changes_while_it_is_read_is_read_again() {
    let options = host_options().subsystem(Nqn::new(DISCOVERY_SUBSYSTEM).unwrap());
    let mut again = 0;
    for steps in 0..60 {
        let mut pair = Pair::with_subsystems("reg_mr", options.clone(), target_options(), subsystems(24), 8);
        pair.host.start();
        pair.until("asked", |pair| pair.target.statistics().queues == 1);
        for _ in 0..steps {
            pair.step();
        }
        // From now on nobody may see the first, and all the second.
        let nobody = AllowedHosts::Listed(Vec::new());
        pair.target.set_allowed_hosts(&Nqn::new("nqn.disk0").unwrap(), nobody, Duration::ZERO).unwrap();
        pair.target.set_allowed_hosts(&Nqn::new("nqn.disk1").unwrap(), AllowedHosts::Any, Duration::ZERO).unwrap();
        let commands = pair.target.statistics().commands;
        pair.until("ready", |pair| pair.host.is_ready());
        let found: Vec<_> = pair.host.discovered().iter().map(|entry| entry.subsystem.as_str()).collect();
        let (old, new) = (found[0] == "nqn.disk0", found[0] == "nqn.disk1");
        assert!(old ^ new && found.len() == 12, "{steps}: one generation, {found:?}");
        assert!(found[1..].iter().all(|name| *name != "nqn.disk0" && *name != "nqn.disk1"));
        again += u64::from(new && pair.target.statistics().commands - commands >= 3);
        pair.finish();
    }
    assert!(again > 0, "it never changed in the middle");
}

#[test]
fn a_discovery_service_that_is_asked_to_stay_tells_of_changes_and_is_read_again() {
    let discovery = || host_options().subsystem(Nqn::new(DISCOVERY_SUBSYSTEM).unwrap());
    for (keep_alive, follows) in [(Duration::from_secs(30), true), (Duration::ZERO, false)] {
        let options = discovery().keep_alive(keep_alive);
        let mut pair = Pair::with_subsystems("reg_mr", options, target_options(), subsystems(24), 8);
        pair.bring_up();
        let listed = |pair: &Pair| pair.host.discovered().len();
        let reads = |pair: &Pair| pair.host.statistics().discovery_reads;
        assert_eq!((pair.host.follows_discovery(), listed(&pair), reads(&pair)), (follows, 12, 1));
        for change in 1..4 {
            // One more is seen, of several parts of the page.
            let name = Nqn::new(&format!("nqn.disk{}", 2 * change - 1)).unwrap();
            pair.target.set_allowed_hosts(&name, AllowedHosts::Any, Duration::ZERO).unwrap();
            if !follows {
                (0..1000).for_each(|_| pair.step());
                assert_eq!((listed(&pair), reads(&pair)), (12, 1), "it was read once");
                continue;
            }
            pair.until("read again", |pair| reads(pair) == 1 + change as u64);
            assert_eq!(listed(&pair), 12 + change);
        }
        let told = pair.host.statistics().discovery_events;
        assert_eq!((told, pair.host.statistics().failures), (if follows { 3 } else { 0 }, 0));
        pair.finish();
    }
}
