//! Preemption: whose commands end before the command that preempts them does.

use super::hosts::Hosts;
use frwr_engine::provider::Access;
use frwr_nvmf::controller::Reservations;
use frwr_nvmf::wire::{AcquireAction, BlockRange, Command, RegisterAction, ReservationType, Status};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::memory;
use frwr_support::nvmf_harness::raw::keyed;
use std::rc::Rc;

/// Steps in which whatever goes on by itself has ended.
const ENOUGH: usize = 2000;

/// Each core's storage holds so many operations.
fn held(hosts: &[u8], depth: usize) -> (Hosts<Gated>, Rc<Switch>) {
    let (medium, switch) = (memory(64 << 10), Gated::new(128, 512, 1).1);
    let storage = |_| Gated::over(medium.clone(), 512, depth, &switch);
    (Hosts::over(&Reservations::new(), hosts, storage), Rc::clone(&switch))
}

/// Hosts 1, 2 and so on have these keys, and the second one the reservation. Nothing that it has is completed from now on: a write on the
/// second core, number 900.
fn begin(keys: &[u64], depth: usize) -> (Hosts<Gated>, Rc<Switch>) {
    let hosts: Vec<u8> = (1..).take(keys.len()).collect();
    let (mut all, switch) = held(&hosts, depth);
    for (session, key) in keys.iter().enumerate() {
        let io = all.io(session, 0);
        assert_eq!(all.register(io, RegisterAction::Register, (0, *key)), Status::SUCCESS);
    }
    let io = all.io(1, 1);
    let taken = all.acquire(io, AcquireAction::Acquire, ReservationType::WriteExclusive, (keys[1], 0));
    assert_eq!(taken, Status::SUCCESS);
    switch.gate.set(Gate::Running);
    all.raw.responses.clear();
    let range = BlockRange { namespace: 1, lba: 1, blocks: 1, data: keyed(512) };
    all.raw.send(io, Command::Write(range).encode(900).unwrap(), Some((Access::RemoteRead, 512)));
    all.raw.steps(ENOUGH);
    (all, switch)
}

fn answer(all: &Hosts<Gated>, command_id: u16) -> Option<Status> {
    let found = all.raw.responses.iter().find(|response| response.command_id.get() == command_id);
    found.map(|response| response.status().without_flags())
}

#[test]
fn commands_of_a_preempted_host_end_on_every_core_before_it_is_said() {
    for preempts_from in [0, 1] {
        let (mut all, switch) = held(&[1, 2], 64);
        let (first, second) = (all.io(0, preempts_from), all.io(1, 0));
        assert_eq!(all.register(first, RegisterAction::Register, (0, 10)), Status::SUCCESS);
        assert_eq!(all.register(second, RegisterAction::Register, (0, 20)), Status::SUCCESS);
        let kind = ReservationType::WriteExclusive;
        assert_eq!(all.acquire(second, AcquireAction::Acquire, kind, (20, 0)), Status::SUCCESS);
        // A write of the victim's on each core, which the storage has and does not finish.
        switch.gate.set(Gate::Running);
        all.raw.responses.clear();
        for (core, id) in [(0, 900), (1, 901)] {
            let range = BlockRange { namespace: 1, lba: core as u64, blocks: 1, data: keyed(512) };
            let io = all.io(1, core);
            all.raw.send(io, Command::Write(range).encode(id).unwrap(), Some((Access::RemoteRead, 512)));
        }
        all.raw.steps(ENOUGH);
        let preempt = AcquireAction::PreemptAndAbort;
        all.begin_to_acquire(first, preempt, kind, (10, 20), 902);
        all.raw.steps(ENOUGH);
        assert_eq!(answer(&all, 902), None, "writes of the host that is shut out may still reach the medium");
        // Nothing new of it is executed meanwhile, and nothing of others is held up by that.
        let read = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) };
        let write = Command::Write(read).encode(903).unwrap();
        all.raw.send(second, write, Some((Access::RemoteRead, 512)));
        all.raw.until("refused", |raw| raw.responses.iter().any(|response| response.command_id.get() == 903));
        assert_eq!(answer(&all, 903), Some(Status::RESERVATION_CONFLICT));
        assert_eq!((answer(&all, 900), answer(&all, 901)), (None, None));
        switch.gate.set(Gate::Open);
        all.raw.until("preempted", |raw| raw.responses.iter().any(|response| response.command_id.get() == 902));
        let position =
            |id| all.raw.responses.iter().position(|response| response.command_id.get() == id).expect("answered");
        assert!(position(900) < position(902) && position(901) < position(902), "their answers came first");
        assert_eq!(answer(&all, 902), Some(Status::SUCCESS));
        assert_eq!(all.write(first, 1), Status::SUCCESS);
        all.raw.shut_down();
    }
}

#[test]
fn a_preemption_without_an_abort_waits_for_nobody() {
    let (mut all, switch) = held(&[1, 2], 64);
    let (first, second) = (all.io(0, 0), all.io(1, 1));
    assert_eq!(all.register(first, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert_eq!(all.register(second, RegisterAction::Register, (0, 20)), Status::SUCCESS);
    switch.gate.set(Gate::Running);
    let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) };
    all.raw.send(second, Command::Write(range).encode(900).unwrap(), Some((Access::RemoteRead, 512)));
    all.raw.steps(ENOUGH);
    let kind = ReservationType::ExclusiveAccess;
    assert_eq!(all.acquire(first, AcquireAction::Preempt, kind, (10, 20)), Status::SUCCESS);
    assert_eq!(all.acquire(first, AcquireAction::Acquire, kind, (10, 0)), Status::SUCCESS);
    assert_eq!(all.read(second), Status::RESERVATION_CONFLICT);
    switch.gate.set(Gate::Open);
    all.raw.until("written", |raw| raw.responses.iter().any(|response| response.command_id.get() == 900));
    all.raw.shut_down();
}

#[test]
fn what_a_preempted_host_sends_later_is_executed_where_the_reservation_lets_it() {
    let (mut all, switch) = begin(&[10, 20], 1);
    let (first, second) = (all.io(0, 0), all.io(1, 1));
    let kind = ReservationType::WriteExclusive;
    all.begin_to_acquire(first, AcquireAction::PreemptAndAbort, kind, (10, 20), 901);
    all.raw.steps(ENOUGH);
    // All may read.
    let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) };
    all.raw.send(second, Command::Read(range).encode(902).unwrap(), Some((Access::RemoteWrite, 512)));
    all.raw.steps(ENOUGH);
    assert_eq!([900, 901, 902].map(|id| answer(&all, id)), [None; 3]);
    switch.gate.set(Gate::Open);
    all.raw.until("all are answered", |raw| raw.responses.len() == 3);
    assert_eq!((answer(&all, 901), answer(&all, 902)), (Some(Status::SUCCESS), Some(Status::SUCCESS)));
    all.raw.shut_down();
}

#[test]
fn a_preemption_does_not_wait_for_what_another_one_waits_for() {
    let (mut all, switch) = begin(&[10, 20, 30], 64);
    let first = all.io(0, 0);
    let kind = ReservationType::WriteExclusive;
    all.begin_to_acquire(first, AcquireAction::PreemptAndAbort, kind, (10, 20), 901);
    all.raw.steps(ENOUGH);
    all.begin_to_acquire(first, AcquireAction::PreemptAndAbort, kind, (10, 30), 902);
    all.raw.until("the other one", |raw| raw.responses.iter().any(|response| response.command_id.get() == 902));
    assert_eq!((answer(&all, 901), answer(&all, 902)), (None, Some(Status::SUCCESS)));
    switch.gate.set(Gate::Open);
    all.raw.until("this one", |raw| raw.responses.iter().any(|response| response.command_id.get() == 901));
    assert_eq!(answer(&all, 901), Some(Status::SUCCESS));
    all.raw.shut_down();
}

#[test]
fn a_preemption_that_waits_ends_with_its_connection() {
    let reservations = Reservations::new();
    let mut first = Hosts::new(&reservations, &[1, 2]);
    // A device that nobody polls any more, as one that has ended before the others.
    let second = Hosts::new(&reservations, &[2]);
    let (holder, other) = (first.io(0, 0), first.io(1, 0));
    assert_eq!(first.register(holder, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert_eq!(first.register(other, RegisterAction::Register, (0, 20)), Status::SUCCESS);
    first.raw.responses.clear();
    let kind = ReservationType::ExclusiveAccess;
    first.begin_to_acquire(holder, AcquireAction::PreemptAndAbort, kind, (10, 20), 900);
    first.raw.steps(ENOUGH);
    assert!(first.raw.responses.is_empty());
    first.raw.shut_down();
    drop(second);
}

/// Two devices of one process, each with a target of its own.
#[test]
fn a_host_that_is_shut_out_is_so_on_all_devices() {
    let reservations = Reservations::new();
    let mut first = Hosts::new(&reservations, &[1, 2]);
    let mut second = Hosts::new(&reservations, &[2]);
    let (holder, same, elsewhere) = (first.io(0, 0), first.io(1, 1), second.io(0, 1));
    assert_eq!(first.register(holder, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert_eq!(second.register(elsewhere, RegisterAction::Register, (0, 20)), Status::SUCCESS);
    let kind = ReservationType::ExclusiveAccessRegistrants;
    assert_eq!(first.acquire(holder, AcquireAction::Acquire, kind, (10, 0)), Status::SUCCESS);
    assert_eq!((first.write(same, 1), second.write(elsewhere, 2)), (Status::SUCCESS, Status::SUCCESS));
    // It ends once the cores of the other device have looked, too.
    first.begin_to_acquire(holder, AcquireAction::PreemptAndAbort, kind, (10, 20), 900);
    first.raw.responses.clear();
    first.raw.steps(ENOUGH);
    assert!(first.raw.responses.is_empty());
    assert_eq!(second.write(elsewhere, 3), Status::RESERVATION_CONFLICT);
    second.raw.step();
    first.raw.until("preempted", |raw| !raw.responses.is_empty());
    assert!(first.raw.responses[0].status().is_success());
    assert_eq!(first.read(same), Status::RESERVATION_CONFLICT);
    // A device that is gone holds nobody up.
    let again = first.io(1, 0);
    assert_eq!(first.register(again, RegisterAction::Register, (0, 20)), Status::SUCCESS);
    drop(second);
    assert_eq!(first.acquire(holder, AcquireAction::PreemptAndAbort, kind, (10, 20)), Status::SUCCESS);
    first.raw.shut_down();
}
