//! The file on a medium that a test steps by hand: what is done to it, in which order, and when hosts are answered.

use super::hosts::Hosts;
use frwr_nvmf::controller::{ReservationMedium, Reservations};
use frwr_nvmf::wire::{AcquireAction, PersistChange, RegisterAction, ReservationType, Status};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Steps in which whatever goes on by itself has ended.
const ENOUGH: usize = 2000;

/// What was done to it.
#[derive(Clone, Default)]
struct Recorded(Rc<RefCell<Vec<&'static str>>>);

impl Recorded {
    fn note(&self, what: &'static str) -> io::Result<()> {
        self.0.borrow_mut().push(what);
        Ok(())
    }
}

impl ReservationMedium for Recorded {
    fn path(&self) -> &Path {
        Path::new("recorded")
    }

    fn read(&mut self, _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn write_beside(&mut self, _: &[u8]) -> io::Result<()> {
        self.note("written")
    }

    fn flush_beside(&mut self) -> io::Result<()> {
        self.note("flushed")
    }

    fn replace(&mut self) -> io::Result<()> {
        self.note("replaced")
    }

    fn flush_folder(&mut self) -> io::Result<()> {
        self.note("folder flushed")
    }
}

#[test]
fn a_host_is_answered_behind_the_last_step_of_writing_what_it_is_told() {
    let medium = Recorded::default();
    let (reservations, mut writer) = Reservations::open_on(medium.clone()).unwrap();
    let mut all = Hosts::new(&reservations, &[1]);
    let (io, kind) = (all.io(0, 0), ReservationType::WriteExclusive);
    assert_eq!(all.register(io, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert!(!writer.step(), "nobody asked for it");
    medium.0.borrow_mut().clear();
    all.raw.responses.clear();
    all.begin_to_register(io, PersistChange::Set, (0, 10), 900);
    for expected in [&["written"][..], &["flushed"], &["replaced"], &["folder flushed"]] {
        all.raw.steps(ENOUGH);
        assert!(all.raw.responses.is_empty(), "it may be lost, but for {expected:?}");
        assert!(writer.step());
        assert_eq!(medium.0.borrow_mut().drain(..).collect::<Vec<_>>(), expected);
    }
    all.raw.steps(ENOUGH);
    assert_eq!(all.raw.responses.len(), 1);
    assert!(!writer.step());
    // What comes while the file is written is in the next one.
    all.begin_to_acquire(io, AcquireAction::Acquire, kind, (10, 0), 901);
    all.raw.steps(ENOUGH);
    assert!(writer.step());
    all.begin_to_register(io, PersistChange::Clear, (0, 10), 902);
    all.raw.steps(ENOUGH);
    all.raw.responses.clear();
    for answers in [0, 0, 1, 1, 1, 1, 2] {
        assert!(writer.step());
        all.raw.steps(ENOUGH);
        assert_eq!(all.raw.responses.len(), answers);
    }
    drop((all, reservations));
    assert!(!writer.step(), "nobody has them any more");
}
