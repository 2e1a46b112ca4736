//! What survives a loss of power: all that a host was told of, from the moment that it was.

use super::hosts::{Hosts, host_id};
use frwr_nvmf::controller::{ReservationFileError, Reservations};
use frwr_nvmf::wire::{
    AcquireAction, BROADCAST_NAMESPACE, PersistChange, RegisterAction, ReleaseAction, ReservationType, Select, Status,
    feature,
};
use std::path::{Path, PathBuf};

/// A folder of its own that goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("frwr-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("reservations")
    }

    /// What a power loss at this moment leaves.
    fn lost_power(&self, name: &str) -> Self {
        let copy = Self::new(name);
        std::fs::copy(self.file(), copy.file()).unwrap();
        copy
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn reported(path: &Path) -> (u8, Vec<([u8; 16], u64, bool)>) {
    let mut all = Hosts::new(&Reservations::open(path).unwrap(), &[9]);
    let io = all.io(0, 0);
    let (head, registrants) = all.report(io);
    (head.kind, registrants)
}

#[test]
fn what_a_host_was_told_survives_and_what_nobody_asked_for_does_not() {
    let folder = Folder::new("kept");
    let reservations = Reservations::open(&folder.file()).unwrap();
    let mut all = Hosts::new(&reservations, &[1, 2]);
    let (first, second) = (all.io(0, 0), all.io(1, 1));
    assert_eq!(all.register(first, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert_eq!(reported(&folder.lost_power("none").file()), (0, Vec::new()), "nobody asked for it");
    let set = all.register_as(second, RegisterAction::Register, PersistChange::Set, (0, 20));
    assert_eq!(set, Status::SUCCESS);
    let kind = ReservationType::WriteExclusive;
    let both = vec![(host_id(1), 10, false), (host_id(2), 20, false)];
    assert_eq!(reported(&folder.lost_power("registered").file()), (0, both));
    assert_eq!(all.acquire(second, AcquireAction::Acquire, kind, (20, 0)), Status::SUCCESS);
    let held = vec![(host_id(1), 10, false), (host_id(2), 20, true)];
    assert_eq!(reported(&folder.lost_power("acquired").file()), (kind as u8, held));
    // It is in force again before anybody asks.
    {
        let folder = folder.lost_power("again");
        let mut again = Hosts::new(&Reservations::open(&folder.file()).unwrap(), &[1, 2]);
        let (first, second) = (again.io(0, 1), again.io(1, 0));
        assert_eq!((again.write(first, 1), again.write(second, 2)), (Status::RESERVATION_CONFLICT, Status::SUCCESS));
    }
    assert_eq!(all.release(second, ReleaseAction::Clear, kind, 20), Status::SUCCESS);
    assert_eq!(reported(&folder.lost_power("cleared").file()), (0, Vec::new()));
    assert_eq!(reservations.fault(), None);
    all.raw.shut_down();
}

#[test]
fn what_shall_not_survive_any_more_does_not() {
    let folder = Folder::new("unset");
    let reservations = Reservations::open(&folder.file()).unwrap();
    let mut all = Hosts::new(&reservations, &[1]);
    let io = all.io(0, 0);
    for (persist, expected) in [(PersistChange::Set, 1), (PersistChange::None, 1), (PersistChange::Clear, 0)] {
        assert_eq!(all.register_as(io, RegisterAction::Register, persist, (0, 10)), Status::SUCCESS);
        assert_eq!(all.report(io).0.persists, u8::from(expected > 0));
        assert_eq!(reported(&folder.lost_power("later").file()).1.len(), expected);
    }
}

#[test]
fn a_host_is_not_told_that_something_survives_which_does_not() {
    let folder = Folder::new("lost");
    let reservations = Reservations::open(&folder.file()).unwrap();
    let mut all = Hosts::new(&reservations, &[1]);
    let io = all.io(0, 0);
    std::fs::remove_dir_all(&folder.0).unwrap();
    let told = all.register_as(io, RegisterAction::Register, PersistChange::Set, (0, 10));
    assert_eq!(told, Status::INTERNAL_ERROR);
    assert!(reservations.fault().unwrap().contains("reservations"));
    // It is in force all the same, and kept when that can be done again.
    std::fs::create_dir_all(&folder.0).unwrap();
    assert_eq!(all.register(io, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert_eq!(reservations.fault(), None);
    assert_eq!(reported(&folder.lost_power("mended").file()).1.len(), 1);
}

/// What it asks for is in force already, and nothing of it is on the medium.
#[test]
fn a_host_that_asks_again_is_not_told_that_something_survives_either() {
    let folder = Folder::new("again-lost");
    let reservations = Reservations::open(&folder.file()).unwrap();
    let mut all = Hosts::new(&reservations, &[1]);
    let (io, kind) = (all.io(0, 0), ReservationType::WriteExclusive);
    assert_eq!(all.register_as(io, RegisterAction::Register, PersistChange::Set, (0, 10)), Status::SUCCESS);
    std::fs::remove_dir_all(&folder.0).unwrap();
    for _ in 0..2 {
        assert_eq!(all.acquire(io, AcquireAction::Acquire, kind, (10, 0)), Status::INTERNAL_ERROR);
    }
    std::fs::create_dir_all(&folder.0).unwrap();
    assert_eq!(all.acquire(io, AcquireAction::Acquire, kind, (10, 0)), Status::SUCCESS);
    let held = vec![(host_id(1), 10, true)];
    assert_eq!(reported(&folder.lost_power("again-acquired").file()), (kind as u8, held));
}

#[test]
fn a_file_that_says_something_else_is_refused_by_its_name() {
    let folder = Folder::new("damaged");
    let path = folder.file();
    let reservations = Reservations::open(&path).unwrap();
    let error = Reservations::open(&path).unwrap_err();
    assert!(matches!(error, ReservationFileError::InUse(_)), "{error}");
    let mut all = Hosts::new(&reservations, &[1]);
    let io = all.io(0, 0);
    assert_eq!(all.register_as(io, RegisterAction::Register, PersistChange::Set, (0, 10)), Status::SUCCESS);
    drop((all, reservations));
    let good = std::fs::read(&path).unwrap();
    for bytes in [&good[..good.len() - 1], &good[..good.len() / 2], b"", b"something else\n", &[0xff; 100]] {
        std::fs::write(&path, bytes).unwrap();
        let error = Reservations::open(&path).unwrap_err();
        assert!(matches!(error, ReservationFileError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing was written over it");
    }
    std::fs::write(&path, &good).unwrap();
    assert_eq!(reported(&path).1.len(), 1);
    let error = Reservations::open(&folder.0.join("nowhere/file")).unwrap_err();
    assert!(matches!(error, ReservationFileError::Io { .. }), "{error}");
}

#[test]
fn persistence_is_the_namespaces_whoever_sets_it() {
    let folder = Folder::new("feature");
    let reservations = Reservations::open(&folder.file()).unwrap();
    let mut all = Hosts::new(&reservations, &[1, 2]);
    all.register_all(&[10, 20]);
    let feature = feature::RESERVATION_PERSISTENCE;
    for (namespace, persists) in [(1, 1), (1, 0), (BROADCAST_NAMESPACE, 1), (BROADCAST_NAMESPACE, 0)] {
        assert_eq!(all.set(1, feature, namespace, persists), Status::SUCCESS);
        assert_eq!(all.get(0, feature, 1, Select::Current), Ok(persists.into()));
        let io = all.io(0, 1);
        assert_eq!(u32::from(all.report(io).0.persists), persists);
        // On the medium when it is answered.
        let survives = reported(&folder.lost_power("of_a_feature").file());
        assert_eq!(survives.1.len(), 2 * persists as usize);
    }
    let io = all.io(0, 0);
    assert_eq!(all.register_as(io, RegisterAction::Register, PersistChange::Set, (0, 10)), Status::SUCCESS);
    assert_eq!(all.get(1, feature, 1, Select::Current), Ok(1));
    all.raw.shut_down();
}
