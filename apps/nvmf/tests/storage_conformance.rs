//! Every storage of this crate keeps what storages promise (`frwr_nvmf::conformance`): memory,
//! files by io_uring and by a worker thread, on disks whose power fails and which run full, block
//! devices, exports of an NBD server, and images of a Ceph cluster.

use frwr_nvmf::conformance::{Medium, Suite};
use frwr_nvmf::storage::Backing;
use frwr_support::storage_harness::ceph::{Cluster, OnRbd};
use frwr_support::storage_harness::disks::skipped;
use frwr_support::storage_harness::media::{InFile, InMemory, OnDevice, OnDisk, OnNbdkit, time};
use frwr_support::storage_harness::nbd::OnNbd;

/// What those leave out that offer all commands.
const OFFERED: &str = "what_is_not_offered_is_refused";
/// What those leave out that do not compare and write.
const COMPARED: [&str; 4] = [
    "only_what_was_expected_is_overwritten",
    "of_those_that_expect_the_same_one_writes",
    "a_write_beside_it_is_in_front_or_behind",
    "ways_that_count_lose_nothing",
];
/// What those leave out that are polled while they have operations.
const POLLED: &str = "who_sleeps_is_woken_by_what_ends";
/// What those with a cache do not promise.
const CACHED: &str = "what_is_written_through_needs_no_flush";
/// What a loss of power would show.
const POWER: [&str; 4] = [
    "what_was_flushed_survives_a_loss_of_power",
    "a_flush_covers_what_every_way_wrote",
    CACHED,
    "no_flush_succeeds_over_what_is_lost",
];
/// Of what has no cache.
const LOST: &str = "no_flush_succeeds_over_what_is_lost";
/// Of what has one size for ever.
const ONE_SIZE: [&str; 3] = [
    "fewer_blocks_end_where_they_end",
    "blocks_are_there_again_when_it_has_them_again",
    "more_blocks_are_had_when_the_medium_has_them",
];
const FULL: &str = "a_full_medium_is_told_as_full";
const CUT: &str = "what_was_cut_off_is_never_read_again";

/// Nothing is broken, and nothing but this is not shown.
fn keeps_its_promises<M: Medium>(name: &str, new_medium: impl FnMut() -> M, not_shown: &[&str]) {
    let report = Suite::new(name, new_medium).clock(time()).run();
    report.assert_unbroken();
    assert_eq!(report.not_shown(), not_shown, "{report}");
}

/// The same of media that not every machine has.
fn keeps_them_where_it_can_be_had<M: Medium>(name: &str, new_medium: impl Fn() -> Option<M>, not_shown: &[&str]) {
    let Some(first) = new_medium() else {
        return skipped("no disk can be mounted here: not root, or no losetup, mkfs.ext4, perl, loop device or nbdkit");
    };
    let mut first = Some(first);
    let next = || first.take().or_else(&new_medium).expect("as the first");
    keeps_its_promises(name, next, not_shown);
}

#[test]
fn memory_keeps_them() {
    let not_shown =
        [&[OFFERED, POLLED][..], &POWER, &[FULL, CUT, "more_blocks_are_had_when_the_medium_has_them"]].concat();
    keeps_its_promises("memory", InMemory::new, &not_shown);
}

#[test]
fn a_file_by_io_uring_keeps_them() {
    let not_shown = [&[OFFERED][..], &POWER, &[FULL]].concat();
    keeps_its_promises("file by io_uring", || InFile::new(Backing::Ring), &not_shown);
}

#[test]
fn a_file_by_a_worker_thread_keeps_them() {
    let not_shown = [&[OFFERED][..], &POWER, &[FULL]].concat();
    keeps_its_promises("file by a worker thread", || InFile::new(Backing::Thread), &not_shown);
}

#[test]
fn a_file_on_a_disk_that_fails_keeps_them_by_io_uring() {
    keeps_them_where_it_can_be_had("failing disk by io_uring", || OnDisk::new(Backing::Ring), &[OFFERED, CACHED]);
}

#[test]
fn a_file_on_a_disk_that_fails_keeps_them_by_a_worker_thread() {
    keeps_them_where_it_can_be_had(
        "failing disk by a worker thread",
        || OnDisk::new(Backing::Thread),
        &[OFFERED, CACHED],
    );
}

#[test]
fn a_block_device_keeps_them_by_io_uring() {
    let not_shown = [OFFERED, CACHED, "no_flush_succeeds_over_what_is_lost", FULL];
    keeps_them_where_it_can_be_had("block device by io_uring", || OnDevice::new(Backing::Ring), &not_shown);
}

#[test]
fn a_block_device_keeps_them_by_a_worker_thread() {
    let not_shown = [OFFERED, CACHED, "no_flush_succeeds_over_what_is_lost", FULL];
    keeps_them_where_it_can_be_had("block device by a worker thread", || OnDevice::new(Backing::Thread), &not_shown);
}

#[test]
fn an_nbd_export_keeps_them() {
    let not_shown = [&COMPARED[..], &[CACHED, FULL], &ONE_SIZE].concat();
    keeps_its_promises("NBD", || OnNbd::new(false), &not_shown);
}

#[test]
fn an_nbd_export_that_is_written_through_keeps_them() {
    let not_shown = [&COMPARED[..], &[LOST, FULL], &ONE_SIZE].concat();
    keeps_its_promises("NBD with FUA", || OnNbd::new(true), &not_shown);
}

#[test]
fn an_export_of_nbdkit_on_a_disk_that_fails_keeps_them() {
    let not_shown = [&COMPARED[..], &[CACHED, "a_read_only_way_changes_nothing", CUT], &ONE_SIZE].concat();
    keeps_them_where_it_can_be_had("NBD by nbdkit", OnNbdkit::new, &not_shown);
}

#[test]
fn an_image_of_ceph_keeps_them() {
    let Some(cluster) = Cluster::find() else { return };
    let image = cluster.image();
    keeps_its_promises("RBD", || OnRbd::new(&image), &[&COMPARED[..], &[LOST]].concat());
}

#[test]
fn an_image_of_ceph_in_sectors_compares_and_writes() {
    let Some(cluster) = Cluster::find() else { return };
    let image = cluster.image();
    for promise in COMPARED {
        let suite = Suite::new("RBD in sectors", || OnRbd::in_sectors(&image)).clock(time()).only(promise);
        let report = suite.run();
        report.assert_unbroken();
        assert!(report.is_shown(promise), "{report}");
    }
}
