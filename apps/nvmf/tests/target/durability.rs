//! What a target brings to its media, and when: at shutdowns, and before blocks are read with FUA.

use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_nvmf::controller::{NewNamespace, Subsystem};
use frwr_nvmf::storage::{Backing, FileMedium, Operation, Storage};
use frwr_nvmf::wire::{
    BlockRange, Command, ConnectData, ControllerConfiguration, ControllerStatus, DYNAMIC_CONTROLLER, ErrorLogEntry,
    GetLogPage, Nqn, Property, PropertyGet, PropertySet, PropertySize, SetFeatures, ShutdownStatus, Status, feature,
    log_page,
};
use frwr_support::nvmf_harness::cached::{Cache, Cached};
use frwr_support::nvmf_harness::raw::{Raw, connect_data, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use frwr_support::storage_harness::disks::{JOURNAL_LATER, OVERCOMMITTED_BYTES, Overcommitted, skipped};
use frwr_support::storage_harness::{self, BUFFER_BYTES, attached};
use std::rc::Rc;
use zerocopy::FromBytes;

const BLOCK: u32 = 512;

fn range(namespace: u32) -> BlockRange {
    BlockRange { namespace, lba: 0, blocks: 1, data: keyed(BLOCK) }
}

fn write<S: Storage>(raw: &mut Raw<S>, io: ConnectionId, namespace: u32) {
    let written = raw.command(io, Command::Write(range(namespace)), Some((Access::RemoteRead, BLOCK)));
    assert!(written.status().is_success(), "{}", written.status());
}

fn configure<S: Storage>(raw: &mut Raw<S>, admin: ConnectionId, value: u32) {
    let set = PropertySet { property: Property::Configuration, size: PropertySize::Four, value: value.into() };
    assert!(raw.command(admin, Command::PropertySet(set), None).status().is_success());
}

fn status<S: Storage>(raw: &mut Raw<S>, admin: ConnectionId) -> ControllerStatus {
    let get = PropertyGet { property: Property::Status, size: PropertySize::Four };
    ControllerStatus(raw.command(admin, Command::PropertyGet(get), None).result.get() as u32)
}

const NORMAL: u32 = ControllerConfiguration::NORMAL_SHUTDOWN.0;
const ABRUPT: u32 = ControllerConfiguration::ENABLED.0 | 2 << 14;

fn two_caches() -> (Raw<Cached>, [Rc<Cache>; 2]) {
    let [(first, one), (second, other)] = [Cached::new(8, BLOCK), Cached::new(8, BLOCK)];
    (Raw::with(target_options(), vec![first, second]), [one, other])
}

#[test]
fn a_normal_shutdown_is_complete_when_every_cache_was_brought_to_its_medium() {
    let (mut raw, caches) = two_caches();
    let (admin, io) = raw.io_queue();
    (1..=2).for_each(|namespace| write(&mut raw, io, namespace));
    caches.iter().for_each(|cache| cache.held.set(true));
    configure(&mut raw, admin, NORMAL);
    raw.steps(100);
    assert_eq!(status(&mut raw, admin).shutdown(), ShutdownStatus::Occurring);
    caches[1].held.set(false);
    raw.steps(100);
    assert_eq!(status(&mut raw, admin).shutdown(), ShutdownStatus::Occurring, "one of two");
    // A host that says it again asks for nothing new.
    configure(&mut raw, admin, NORMAL);
    caches[0].held.set(false);
    raw.steps(100);
    let after = status(&mut raw, admin);
    assert!(after.shutdown() == ShutdownStatus::Complete && !after.is_fatal());
    assert!(caches.iter().all(|cache| !cache.dirty.get() && cache.flushes() == 1));
    assert_eq!(raw.target.statistics().failed_commits, 0);
}

/// A namespace that comes while a shutdown waits has nothing that the shutdown was asked for.
#[test]
fn a_shutdown_does_not_wait_for_a_namespace_that_was_added_behind_it() {
    let [(first, cache), (second, other)] = [Cached::new(8, BLOCK), Cached::new(8, BLOCK)];
    let mut raw = Raw::with(target_options().namespaces(2), vec![first]);
    let (admin, io) = raw.io_queue();
    write(&mut raw, io, 1);
    cache.held.set(true);
    configure(&mut raw, admin, NORMAL);
    let new = NewNamespace { identifier: 2, nguid: None, ana_group: 1, active: true, storage: second };
    raw.target.add_namespace(&subsystem(), new).unwrap();
    raw.steps(100);
    assert_eq!(status(&mut raw, admin).shutdown(), ShutdownStatus::Occurring);
    cache.held.set(false);
    raw.until("complete", |raw| status(raw, admin).shutdown() == ShutdownStatus::Complete);
    assert_eq!((cache.flushes(), other.flushes()), (1, 0));
}

#[test]
fn only_what_hosts_can_change_and_may_be_lost_is_flushed_at_a_shutdown() {
    let [(first, cache), (second, protected)] = [Cached::new(8, BLOCK), Cached::new(8, BLOCK)];
    let mut raw = Raw::with(target_options(), vec![first, second.read_only()]);
    let (admin, io) = raw.io_queue();
    write(&mut raw, io, 1);
    // Who wants it at once gets it at once.
    configure(&mut raw, admin, ABRUPT);
    assert_eq!(status(&mut raw, admin).shutdown(), ShutdownStatus::Complete);
    assert_eq!(cache.flushes(), 0);
    configure(&mut raw, admin, 0);
    configure(&mut raw, admin, ControllerConfiguration::ENABLED.0);
    configure(&mut raw, admin, NORMAL);
    raw.until("complete", |raw| status(raw, admin).shutdown() == ShutdownStatus::Complete);
    assert_eq!((cache.flushes(), protected.flushes()), (1, 0));
    let mut memory_only = Raw::default();
    let (admin, _) = memory_only.io_queue();
    configure(&mut memory_only, admin, NORMAL);
    assert_eq!(status(&mut memory_only, admin).shutdown(), ShutdownStatus::Complete, "memory has no cache");
}

#[test]
fn a_shutdown_that_lost_something_is_never_complete_and_says_so() {
    let (mut raw, caches) = two_caches();
    let (admin, io) = raw.io_queue();
    write(&mut raw, io, 2);
    caches[1].failing.set(true);
    configure(&mut raw, admin, NORMAL);
    raw.steps(200);
    let after = status(&mut raw, admin);
    assert!(after.shutdown() == ShutdownStatus::Occurring && after.is_fatal());
    let statistics = raw.target.statistics();
    assert_eq!((statistics.failed_commits, statistics.media_errors), (1, 1));
    // A reset begins anew.
    caches[1].failing.set(false);
    configure(&mut raw, admin, 0);
    configure(&mut raw, admin, ControllerConfiguration::ENABLED.0);
    let again = status(&mut raw, admin);
    assert!(again.is_ready() && !again.is_fatal() && again.shutdown() == ShutdownStatus::Normal);
    configure(&mut raw, admin, NORMAL);
    raw.until("complete", |raw| status(raw, admin).shutdown() == ShutdownStatus::Complete);
    // A controller that was never ready shuts down as well.
    configure(&mut raw, admin, 0);
    configure(&mut raw, admin, 0x0046_0061);
    assert!(status(&mut raw, admin).is_fatal());
    configure(&mut raw, admin, 0x0046_4061);
    raw.until("complete", |raw| status(raw, admin).shutdown() == ShutdownStatus::Complete);
}

#[test]
fn a_controller_that_is_gone_or_reset_meanwhile_is_not_told_of_flushes_of_its_former_shutdown() {
    let (mut raw, caches) = two_caches();
    let (admin, controller) = raw.controller();
    caches.iter().for_each(|cache| cache.held.set(true));
    configure(&mut raw, admin, NORMAL);
    configure(&mut raw, admin, 0);
    configure(&mut raw, admin, ControllerConfiguration::ENABLED.0);
    let io = raw.another_queue(controller, 1);
    write(&mut raw, io, 1);
    configure(&mut raw, admin, NORMAL);
    caches.iter().for_each(|cache| cache.failing.set(true));
    raw.steps(100);
    // Those that run now began before that write.
    caches.iter().for_each(|cache| cache.held.set(false));
    raw.until("one failed", |raw| raw.target.statistics().failed_commits > 0);
    caches.iter().for_each(|cache| cache.failing.set(false));
    raw.until("complete", |raw| status(raw, admin).shutdown() == ShutdownStatus::Complete);
    assert!(!status(&mut raw, admin).is_fatal() && caches.iter().all(|cache| cache.flushes() == 2));
    configure(&mut raw, admin, NORMAL);
    raw.engine.disconnect(admin);
    raw.until("ended", |raw| raw.disconnected.contains(&admin));
    raw.controller();
}

/// What the admin queue's host reads of one failed command or shutdown: SQID, CID, status, LBA and NSID.
fn error(raw: &mut Raw<Cached>, admin: ConnectionId) -> (u64, [u16; 3], u64, u32) {
    let (page, length) = (log_page::ERRORS, 64);
    let get = GetLogPage {
        page,
        specific: 0,
        retain_event: false,
        length,
        offset: 0,
        offset_is_index: false,
        namespace: 0xffff_ffff,
        data: keyed(64),
    };
    assert!(raw.command(admin, Command::GetLogPage(get), Some((Access::RemoteWrite, 64))).status().is_success());
    let mut bytes = [0; 64];
    raw.data.read(0, &mut bytes).unwrap();
    let entry = ErrorLogEntry::read_from_bytes(&bytes).unwrap();
    let of_command = [entry.queue_id.get(), entry.command_id.get(), entry.status.get()];
    (entry.count.get(), of_command, entry.lba.get(), entry.namespace.get())
}

/// Neither command nor block is to be blamed: the namespace is, by the number that it has for its host.
#[test]
fn what_a_shutdown_lost_is_in_the_error_log_and_in_the_statistics() {
    let names = [subsystem(), Nqn::new("nqn.second").unwrap()];
    for broken in [false, true] {
        let (mut storages, caches): (Vec<_>, Vec<_>) = (0..4).map(|_| Cached::new(8, BLOCK)).unzip();
        let second = storages.split_off(1);
        let subsystems =
            names.into_iter().zip([storages, second]).map(|(name, storages)| Subsystem::new(name, storages));
        let mut raw = Raw::with_subsystems(target_options(), subsystems.collect());
        let host = ConnectData { subsystem: names[1], ..connect_data(DYNAMIC_CONTROLLER) };
        let (admin, _) = raw.controller_of(&host);
        // The third namespace of the second subsystem.
        caches[3].failing.set(true);
        caches[3].broken.set(broken);
        configure(&mut raw, admin, NORMAL);
        raw.until("lost", |raw| status(raw, admin).is_fatal());
        let failed = Status::WRITE_FAULT.to_wire();
        assert_eq!(error(&mut raw, admin), (1, [0, 0xffff, failed], 0, 3));
        let statistics = raw.target.statistics();
        let counted = (statistics.failed_commits, statistics.media_errors, statistics.broken_operations);
        assert_eq!(counted, (1, u64::from(!broken), u64::from(broken)));
        assert_eq!(caches.iter().map(|cache| cache.flushes()).collect::<Vec<_>>(), [0, 1, 1, 1], "nothing of others'");
    }
}

#[test]
fn a_flush_that_fails_for_one_shutdown_is_no_failure_of_an_earlier_one() {
    let (mut raw, caches) = two_caches();
    let [first, second] = [(); 2].map(|()| raw.controller().0);
    caches[1].held.set(true);
    configure(&mut raw, first, NORMAL);
    raw.until("half of it", |_| caches[0].flushes() == 1);
    raw.steps(100);
    caches[0].failing.set(true);
    configure(&mut raw, second, NORMAL);
    raw.until("lost", |raw| status(raw, second).is_fatal());
    let waits = status(&mut raw, first);
    assert!(waits.shutdown() == ShutdownStatus::Occurring && !waits.is_fatal());
    caches[1].held.set(false);
    raw.until("complete", |raw| status(raw, first).shutdown() == ShutdownStatus::Complete);
    assert!(!status(&mut raw, first).is_fatal());
}

#[test]
fn a_host_that_is_gone_before_its_shutdown_is_complete_has_nothing_flushed_twice() {
    let (mut raw, caches) = two_caches();
    let (admin, _) = raw.controller();
    caches.iter().for_each(|cache| cache.held.set(true));
    configure(&mut raw, admin, NORMAL);
    raw.engine.disconnect(admin);
    raw.until("gone", |raw| raw.target.engine().is_disconnected());
    raw.steps(100);
    caches.iter().for_each(|cache| cache.held.set(false));
    raw.steps(200);
    assert!(caches.iter().all(|cache| cache.flushes() == 1));
}

/// The disk below a file has run full, and nothing that was acknowledged since gets there. The kernel tells it once.
#[test]
fn nothing_is_said_to_be_durable_once_a_file_could_not_be_flushed() {
    for backing in [Backing::Ring, Backing::Thread] {
        let Some(disk) = Overcommitted::new(&JOURNAL_LATER.0, JOURNAL_LATER.1) else {
            return skipped("no disk can be mounted here: not root, or no losetup, mkfs.ext4 or loop device");
        };
        let medium = FileMedium::open(&disk.options(true)).unwrap();
        let mut filler = attached(medium.storage(backing, 4).unwrap().0);
        let batch = BUFFER_BYTES / storage_harness::BLOCK;
        let full =
            (0..OVERCOMMITTED_BYTES / BUFFER_BYTES).any(|at| filler.write((at * batch) as u64, batch, 1).is_err());
        assert!(full, "it holds more than it can");
        let mut raw = Raw::with(target_options(), vec![medium.storage(backing, 8).unwrap().0]);
        let (admin, io) = raw.io_queue();
        let block = storage_harness::BLOCK as u32;
        let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(block) };
        let [read, written] = [Access::RemoteWrite, Access::RemoteRead].map(|access| Some((access, block)));
        let with_unit_access = |command: Command| {
            let mut entry = command.encode(0).unwrap();
            entry.dwords_10_15[2] = (entry.dwords_10_15[2].get() | 1 << 30).into();
            entry
        };
        for _ in 0..3 {
            let flushed = raw.command(io, Command::Flush { namespace: 1 }, None).status();
            assert!(!flushed.is_success() && flushed.is_final(), "{backing:?}: {flushed}");
            for (command, data) in [(Command::Read(range), read), (Command::Write(range), written)] {
                let done = raw.exchange(io, with_unit_access(command), data).status();
                assert!(!done.is_success(), "{backing:?} {command:?}: {done}");
            }
        }
        // Without a volatile cache every write has to be there.
        let off = SetFeatures { feature: feature::VOLATILE_WRITE_CACHE, save: false, namespace: 0, value: 0 };
        assert!(raw.command(admin, Command::SetFeatures(off), None).status().is_success());
        assert!(!raw.command(io, Command::Write(range), written).status().is_success());
        configure(&mut raw, admin, NORMAL);
        raw.until("lost", |raw| status(raw, admin).is_fatal());
        assert_eq!(status(&mut raw, admin).shutdown(), ShutdownStatus::Occurring);
        raw.target.shut_down();
        raw.until("drained", |raw| raw.target.is_drained());
        assert_eq!(raw.target.statistics().failed_commits, 2);
        drop((raw, filler, medium));
        disk.give_room();
    }
}

#[test]
fn what_members_have_answered_is_on_the_medium_when_a_shutdown_is_complete() {
    let (medium, cache) = (memory(64 << 10), Rc::default());
    let options = target_options().cores(2).io_queues(2);
    let mut raw =
        Raw::spread(options, |_| vec![Subsystem::new(subsystem(), vec![Cached::over(medium.clone(), BLOCK, &cache)])]);
    let (admin, controller) = raw.controller();
    let queues = [1, 2].map(|queue| raw.another_queue(controller, queue));
    assert!(raw.cores().all(|core| core.statistics().queues > 0));
    for io in queues {
        write(&mut raw, io, 1);
    }
    configure(&mut raw, admin, NORMAL);
    raw.until("complete", |raw| status(raw, admin).shutdown() == ShutdownStatus::Complete);
    assert!(!cache.dirty.get());
    for io in queues {
        write(&mut raw, io, 1);
    }
    raw.shut_down();
    assert!(!cache.dirty.get());
}

#[test]
fn a_target_is_drained_when_its_caches_are_on_their_media_or_it_is_said_that_they_are_not() {
    for failing in [false, true] {
        let (mut raw, caches) = two_caches();
        let (_, io) = raw.io_queue();
        write(&mut raw, io, 1);
        caches.iter().for_each(|cache| cache.held.set(true));
        caches[0].failing.set(failing);
        raw.target.shut_down();
        raw.until("ended", |raw| raw.disconnected.len() == 2);
        raw.steps(200);
        assert!(!raw.target.is_drained());
        caches.iter().for_each(|cache| cache.held.set(false));
        raw.until("drained", |raw| raw.target.is_drained());
        assert_eq!(caches[0].dirty.get(), failing);
        assert_eq!(raw.target.statistics().failed_commits, u64::from(failing));
    }
}

/// Whoever was there has gone: nothing but what was written is left to do, and it is not done when the end is asked for.
#[test]
fn an_end_without_hosts_takes_what_was_written_to_the_media_first() {
    let (mut raw, caches) = two_caches();
    let (admin, io) = raw.io_queue();
    write(&mut raw, io, 1);
    [admin, io].iter().for_each(|connection| raw.engine.disconnect(*connection));
    raw.until("gone", |raw| raw.target.is_drained());
    assert!(caches[0].dirty.get());
    raw.target.end(raw.now);
    assert!(!raw.target.is_drained());
    raw.until("drained", |raw| raw.target.is_drained());
    assert!(!caches[0].dirty.get());
}

/// Nobody would hear of that flush, and the target would never be drained.
#[test]
fn a_storage_is_not_taken_back_while_the_end_flushes_it() {
    let (storage, cache) = Cached::new(8, BLOCK);
    let options = target_options().cores(2).namespaces(2);
    let mut raw = Raw::spread(options, |_| vec![Subsystem::new(subsystem(), vec![Cached::new(8, BLOCK).0])]);
    let member = &mut raw.members[0];
    member.supply_namespace(&subsystem(), 2, storage).unwrap();
    cache.held.set(true);
    member.shut_down();
    raw.until("flushing", |_| cache.flushes() > 0);
    assert!(raw.members[0].withdraw_namespace(&subsystem(), 2).is_none());
    cache.held.set(false);
    raw.until("drained", |raw| raw.members[0].is_drained());
}

/// A core without queues gives the news no time, and says no sooner than the others that it has ended.
#[test]
fn an_end_takes_what_members_have_written_to_the_media_too() {
    for with_hosts in [true, false] {
        let medium = memory(64 << 10);
        let caches: [Rc<Cache>; 2] = Default::default();
        let options = target_options().cores(2).io_queues(2);
        let mut raw = Raw::spread(options, |core| {
            vec![Subsystem::new(subsystem(), vec![Cached::over(medium.clone(), BLOCK, &caches[usize::from(core)])])]
        });
        let (admin, controller) = raw.controller();
        let queues = [1, 2].map(|queue| raw.another_queue(controller, queue));
        queues.iter().for_each(|io| write(&mut raw, *io, 1));
        assert!(caches.iter().all(|cache| cache.dirty.get()));
        if !with_hosts {
            [admin, queues[0], queues[1]].iter().for_each(|connection| raw.engine.disconnect(*connection));
            raw.until("gone", |raw| raw.cores().all(|core| core.is_drained()));
        }
        let now = raw.now;
        raw.target.end(now);
        raw.members[0].end(now);
        assert!(raw.cores().all(|core| !core.is_drained()));
        if with_hosts {
            // In which hosts hear that nothing more is executed.
            raw.pass(core::time::Duration::from_millis(1100));
        }
        raw.until("drained", |raw| raw.cores().all(|core| core.is_drained()));
        assert!(caches.iter().all(|cache| !cache.dirty.get()), "{with_hosts}");
    }
}

/// A medium may have a command for long after its connection is gone.
#[test]
fn a_target_that_ends_flushes_behind_what_its_media_still_write() {
    let (mut raw, [cache, _]) = two_caches();
    let (_, io) = raw.io_queue();
    cache.others_held.set(true);
    raw.send(io, Command::Write(range(1)).encode(9).unwrap(), Some((Access::RemoteRead, BLOCK)));
    raw.until("written", |_| cache.dirty.get());
    raw.target.shut_down();
    raw.until("ended", |raw| raw.target.engine().is_disconnected());
    raw.steps(200);
    assert!(!raw.target.is_drained() && cache.flushes() == 0);
    cache.others_held.set(false);
    raw.until("drained", |raw| raw.target.is_drained());
    assert_eq!(cache.flushes(), 1);
}

#[test]
fn a_target_that_ended_its_connections_serves_the_next_and_drains_again() {
    let (mut raw, caches) = two_caches();
    for _ in 0..2 {
        let (_, io) = raw.io_queue();
        write(&mut raw, io, 1);
        raw.target.shut_down();
        raw.until("drained", |raw| raw.target.is_drained());
        assert!(!caches[0].dirty.get());
    }
}

/// As the last two operations of a namespace, what a command with FUA or without asks for, and how it ends.
fn read_with(raw: &mut Raw<Cached>, io: ConnectionId, command: Command, access: Access, unit_access: bool) -> u16 {
    let mut entry = command.encode(0).unwrap();
    entry.dwords_10_15[2] = (entry.dwords_10_15[2].get() | u32::from(unit_access) << 30).into();
    raw.exchange(io, entry, Some((access, BLOCK))).status().code()
}

#[test]
fn what_is_read_or_compared_with_fua_is_on_the_medium_first() {
    let (mut raw, [cache, _]) = two_caches();
    let (_, io) = raw.io_queue();
    let [read, compare] = [Command::Read(range(1)), Command::Compare(range(1))];
    for (command, access) in [(read, Access::RemoteWrite), (compare, Access::RemoteRead)] {
        write(&mut raw, io, 1);
        cache.log.borrow_mut().clear();
        assert_eq!(read_with(&mut raw, io, command, access, false), 0);
        assert!(cache.dirty.get() && cache.flushes() == 0);
        assert_eq!(read_with(&mut raw, io, command, access, true), 0);
        let log = cache.log.borrow();
        let [Operation::Read { .. }, Operation::Flush, Operation::Read { .. }] = log[..] else { panic!("{log:?}") };
        assert!(!cache.dirty.get());
    }
    assert_eq!(raw.target.statistics().reads, 2);
    // Nothing was read where the flush failed; a second one would say nothing of what this one could not keep.
    write(&mut raw, io, 1);
    cache.failing.set(true);
    cache.log.borrow_mut().clear();
    let mut entry = read.encode(0).unwrap();
    entry.dwords_10_15[2] = (entry.dwords_10_15[2].get() | 1 << 30).into();
    let failed = raw.exchange(io, entry, Some((Access::RemoteWrite, BLOCK))).status();
    assert!(failed.code() == Status::UNRECOVERED_READ_ERROR.code() && failed.is_final());
    assert_eq!(cache.log.borrow()[..], [Operation::Flush]);
}

#[test]
fn media_without_a_volatile_cache_are_read_with_fua_as_ever() {
    let (storage, cache) = Cached::new(8, BLOCK);
    let mut raw = Raw::with(target_options(), vec![storage.read_only()]);
    let (_, io) = raw.io_queue();
    assert_eq!(read_with(&mut raw, io, Command::Read(range(1)), Access::RemoteWrite, true), 0);
    assert_eq!(cache.flushes(), 0);
    // A host that switched its cache off asks for nothing more with a read.
    let (mut raw, [cache, _]) = two_caches();
    let (admin, io) = raw.io_queue();
    let off = SetFeatures { feature: feature::VOLATILE_WRITE_CACHE, save: false, namespace: 0, value: 0 };
    assert!(raw.command(admin, Command::SetFeatures(off), None).status().is_success());
    assert_eq!(read_with(&mut raw, io, Command::Read(range(1)), Access::RemoteWrite, false), 0);
    assert_eq!(cache.flushes(), 0);
}
