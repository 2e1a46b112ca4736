//! Cores that sleep while an NBD server thinks, or is away: what comes of it wakes them, and is done as ever.

use core::{task::Waker, time::Duration};
use frwr_nvmf::storage::{Completion, CompletionBatch, NbdMedium, Operation, Storage, StorageError};
use frwr_support::storage_harness::{
    BLOCK,
    nbd::{Action, Export, FLUSH_COMMAND, NbdBench, READ, Server, WRITE},
};
use rustix::event::epoll;
use std::{os::fd::OwnedFd, sync::mpsc};

const WRITE_ONE: Operation = Operation::Write { lba: 1, blocks: 1, buffer: 0 };

/// A core that sleeps whenever the storage lets it, and is woken by its descriptor.
struct Core {
    bench: NbdBench,
    epoll: OwnedFd,
    sleeps: u64,
}

impl Core {
    fn of(mut bench: NbdBench) -> Self {
        bench.storage.wakes(Waker::noop());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&epoll, bench.storage.descriptor().unwrap(), data, flags).unwrap();
        Self { bench, epoll, sleeps: 0 }
    }

    fn new(server: &Server) -> Self {
        Self::of(NbdBench::open(server.options(), 32).unwrap())
    }

    /// As a reactor goes to sleep; what it found instead, or nothing where it has slept, or may not.
    fn turn(&mut self) -> Vec<Completion> {
        let (armed, mut out) = (self.bench.storage.arm(), CompletionBatch::new());
        let now = self.bench.now();
        self.bench.storage.poll(now, &mut out);
        self.bench.storage.flush();
        if out.is_empty() && armed && self.bench.storage.rests() {
            self.sleeps += 1;
            let mut told = Vec::with_capacity(1);
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut told), None).unwrap();
        }
        out.into_iter().collect()
    }

    /// Until as many operations have ended.
    fn completions(&mut self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.turn());
        }
        assert_eq!(all.len(), count);
        all
    }

    /// Until it has slept so often more, without anything ending.
    fn sleeps(&mut self, count: u64) {
        let until = self.sleeps + count;
        while self.sleeps < until {
            assert!(self.turn().is_empty());
        }
    }
}

#[test]
fn a_core_sleeps_while_a_server_holds_a_request_and_has_the_answer() {
    let server = Server::new(Export::new(64));
    let (go, waits) = mpsc::channel();
    server.script(move |seen| {
        if seen.command == WRITE {
            waits.recv().unwrap();
        }
        Action::Do
    });
    let mut core = Core::new(&server);
    for _ in 0..3 {
        core.bench.submit(1, WRITE_ONE);
        core.sleeps(3);
        go.send(()).unwrap();
        assert_eq!(core.completions(1)[0].result, Ok(()));
        core.bench.submit(2, Operation::Flush);
        assert_eq!(core.completions(1)[0].result, Ok(()));
    }
}

#[test]
fn a_core_sleeps_while_its_server_is_away_and_finds_the_next_one() {
    for mut server in [Server::new(Export::new(64)), Server::tcp(Export::new(64))] {
        let mut core = Core::of(NbdBench::open(server.options().connections(2), 32).unwrap());
        server.script(|seen| if seen.command == WRITE { Action::Hold } else { Action::Do });
        core.bench.submit(1, WRITE_ONE);
        while !server.seen().iter().any(|seen| seen.command == WRITE) {
            assert!(core.turn().is_empty());
        }
        server.stop();
        core.bench.submit(2, Operation::Read { lba: 3, blocks: 1, buffer: BLOCK });
        core.sleeps(3);
        server.script(|_| Action::Do);
        server.start();
        assert!(core.completions(2).iter().all(|ended| ended.result.is_ok()));
        assert!(server.connections() > 2);
    }
}

#[test]
fn a_core_that_sleeps_is_no_longer_patient_than_another_one() {
    let mut server = Server::new(Export::new(64));
    let mut core = Core::of(NbdBench::open(server.options().patience(Duration::from_millis(1)), 32).unwrap());
    core.bench.submit(1, WRITE_ONE);
    assert_eq!(core.completions(1)[0].result, Ok(()));
    server.stop();
    core.bench.submit(2, Operation::Read { lba: 3, blocks: 1, buffer: BLOCK });
    assert_eq!(core.completions(1)[0].result, Err(StorageError::Unreachable));
}

#[test]
fn what_another_core_finds_wrong_ends_what_a_core_sleeps_over() {
    let server = Server::new(Export::new(64));
    let medium = NbdMedium::open(server.options()).unwrap();
    let (mut one, mut other) = (NbdBench::of(medium.clone(), 8).unwrap(), Core::of(NbdBench::of(medium, 8).unwrap()));
    server.script(|seen| match seen.command {
        WRITE => Action::Hold,
        READ => Action::Say(vec![0; 16]),
        _ => Action::Do,
    });
    other.bench.submit(1, WRITE_ONE);
    other.sleeps(1);
    one.submit(2, Operation::Read { lba: 0, blocks: 1, buffer: 0 });
    assert_eq!(one.completions(1)[0].result, Err(StorageError::Broken));
    assert_eq!(other.completions(1)[0].result, Err(StorageError::Broken));
}

#[test]
fn who_has_something_that_no_server_has_is_polled_on() {
    let server = Server::new(Export::new(8));
    let medium = NbdMedium::open(server.options()).unwrap();
    let (mut other, mut core) = (NbdBench::of(medium.clone(), 8).unwrap(), Core::of(NbdBench::of(medium, 8).unwrap()));
    assert!(core.bench.storage.arm(), "it has nothing");
    core.bench.storage.submit(frwr_nvmf::storage::Cookie(1), WRITE_ONE).unwrap();
    assert!(!core.bench.storage.arm(), "it was not started");
    core.bench.storage.flush();
    assert!(core.bench.storage.arm());
    core.completions(1);
    // Out of reach: it ends in the storage itself, and only a poll tells of it.
    core.bench.submit(2, Operation::Write { lba: 8, blocks: 1, buffer: 0 });
    assert!(!core.bench.storage.arm());
    core.completions(1);
    assert!(core.bench.storage.arm());
    // A flush that is answered, beside another core's that is not.
    let mut flushes = 0;
    server.script(move |seen| {
        flushes += usize::from(seen.command == FLUSH_COMMAND);
        if flushes == 1 { Action::Hold } else { Action::Do }
    });
    other.submit(3, Operation::Flush);
    while server.seen().iter().all(|seen| seen.command != FLUSH_COMMAND) {
        assert!(other.poll().is_empty());
    }
    core.bench.submit(4, Operation::Flush);
    while core.bench.storage.arm() {
        assert!(core.bench.poll().is_empty());
    }
    server.hang_up(0);
    drop(other);
    core.completions(1);
}

#[test]
fn a_storage_whose_core_never_sleeps_has_no_descriptor_and_is_polled_for_what_it_has() {
    let server = Server::new(Export::new(8));
    let mut bench = NbdBench::open(server.options(), 8).unwrap();
    assert!(bench.storage.descriptor().is_none() && bench.storage.arm());
    bench.submit(1, WRITE_ONE);
    assert!(!bench.storage.arm());
    bench.completions(1);
}
