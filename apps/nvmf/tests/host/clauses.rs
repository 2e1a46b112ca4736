//! What the standards demand of a host, and what a host must not accept of a controller.

use core::time::Duration;
use frwr_nvmf::host::{HostFailure, HostOptions};
use frwr_nvmf::wire::{
    Command, ControllerCapabilities, ControllerStatus, DISCOVERY_SUBSYSTEM, DataPointer, DiscoveryHeader,
    IdentifyController, Nqn, Property, ShutdownStatus, Status, SubmissionQueueEntry, opcode,
};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted, part};
use zerocopy::IntoBytes;

const KEEP_ALIVE: Duration = Duration::from_secs(7);

/// A session with reads, writes and a flush in it, and its end.
fn whole_session(options: HostOptions) -> Scripted {
    let mut scripted = Scripted::ready("reg_mr", options, |_| {});
    let segments = [scripted.segment(0, 2)];
    scripted.lone.host.read(0, &segments, 1).unwrap();
    scripted.lone.host.write(4, &segments, 2).unwrap();
    scripted.lone.host.flush_namespace(3).unwrap();
    scripted.until("ended", |scripted| scripted.completions.len() == 3);
    scripted.finish();
    scripted
}

#[test]
fn connects_say_what_the_standard_wants_of_each_kind_of_queue() {
    let depth = host_options().queue_depth;
    let scripted = whole_session(host_options().keep_alive(KEEP_ALIVE));
    let connects = scripted.controller.asked.iter().filter_map(|asked| match asked.command {
        Command::Connect(connect) => Some((asked.queue_id, connect)),
        _ => None,
    });
    let connects: Vec<_> = connects.collect();
    let [(0, admin), (1, io)] = connects[..] else { panic!("{connects:?}") };
    // An admin queue has at least 32 entries; sizes are 0-based, and one entry is never used.
    assert_eq!((admin.queue_id, admin.queue_size, admin.keep_alive_timeout), (0, 31, 7000));
    assert_eq!((io.queue_id, io.queue_size, io.keep_alive_timeout), (1, depth, 0), "KATO is of the controller");
    for connect in [admin, io] {
        assert_eq!((connect.record_format, connect.attributes), (0, 0));
        let DataPointer::Keyed(block) = connect.data else { panic!("{connect:?}") };
        assert_eq!(block.length, 1024);
    }
}

#[test]
fn commands_are_sgls_with_identifiers_of_their_own_and_come_in_the_order_of_the_standard() {
    let scripted = whole_session(host_options());
    let asked = &scripted.controller.asked;
    for (at, one) in asked.iter().enumerate() {
        assert_eq!(one.entry.flags, SubmissionQueueEntry::FLAGS_SGL, "{one:?}");
        assert_ne!(one.entry.command_id.get(), u16::MAX, "{one:?}");
        // All are answered before the next but the event request.
        let waits =
            |other: &&Asked| other.entry.opcode == opcode::ASYNCHRONOUS_EVENT_REQUEST && other.queue_id == one.queue_id;
        let same = |other: &Asked| other.entry.command_id == one.entry.command_id;
        assert!(!asked[..at].iter().filter(waits).any(same), "{one:?}");
    }
    let place = |wanted: fn(&Asked) -> bool| asked.iter().position(wanted).unwrap();
    let enabled = place(|asked| matches!(asked.command, Command::PropertySet(_)));
    let ready = place(|asked| matches!(asked.command, Command::PropertyGet(get) if get.property == Property::Status));
    assert!(asked[..=ready].iter().all(|asked| asked.entry.opcode == opcode::FABRICS), "before CSTS.RDY");
    let io = place(|asked| asked.queue_id == 1);
    assert!(enabled < ready && ready < io && matches!(asked[io].command, Command::Connect(_)));
    let last_io = asked.iter().rposition(|asked| asked.queue_id == 1).unwrap();
    let shutdown = asked.iter().rposition(|asked| matches!(asked.command, Command::PropertySet(_))).unwrap();
    assert!(last_io < shutdown, "nothing is sent behind the notification of a shutdown");
}

#[test]
fn force_unit_access_is_asked_for_where_the_caller_asks_for_it_and_nowhere_else() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |_| {});
    let segments = [scripted.segment(0, 2)];
    let host = &mut scripted.lone.host;
    host.read(0, &segments, 1).unwrap();
    host.read_force_unit_access(0, &segments, 2).unwrap();
    host.write(4, &segments, 3).unwrap();
    host.write_force_unit_access(4, &segments, 4).unwrap();
    scripted.until("ended", |scripted| scripted.completions.len() == 4);
    let io = scripted.controller.asked.iter().filter_map(|asked| match asked.command {
        Command::Read(_) | Command::Write(_) => Some((asked.entry.opcode, asked.entry.dwords_10_15[2].get())),
        _ => None,
    });
    // Dword 12: FUA is bit 30, and two blocks are 1, 0-based.
    let forced = 1 << 30 | 1;
    let wanted = [(opcode::READ, 1), (opcode::READ, forced), (opcode::WRITE, 1), (opcode::WRITE, forced)];
    assert_eq!(io.collect::<Vec<_>>(), wanted);
    scripted.finish();
}

/// How a host ends that finds such a controller, at its first attempt.
fn failure(prepare: impl FnOnce(&mut Controller)) -> Option<HostFailure> {
    let options = host_options().max_attempts(0);
    let mut scripted = Scripted::new("reg_mr", options, prepare);
    scripted.until("given up", |scripted| scripted.lone.host.is_stopped());
    let io = scripted.controller.count(|asked| asked.queue_id > 0);
    assert_eq!(io, 0, "no queue of a controller that cannot be used");
    scripted.lone.host.last_failure()
}

#[test]
fn a_controller_that_lacks_what_this_host_needs_is_not_used() {
    let unsupported = |found: Option<HostFailure>, word: &str| match found {
        Some(HostFailure::Unsupported(what)) => assert!(what.contains(word), "{what}"),
        other => panic!("{word}: {other:?}"),
    };
    unsupported(failure(|controller| controller.capabilities.0 &= !(1 << 37)), "NVM command set");
    unsupported(failure(|controller| controller.capabilities.0 |= 1 << 48), "MPSMIN");
    unsupported(failure(|controller| controller.identify.sgl_support = 1.into()), "SGLS");
    unsupported(
        failure(|controller| {
            controller.identify.sgl_support = (IdentifyController::SGL_KEYED | 3).into();
        }),
        "SGLS",
    );
    unsupported(failure(|controller| controller.identify.io_command_capsule = 3.into()), "IOCCSZ");
    unsupported(failure(|controller| controller.identify.io_response_capsule = 0.into()), "IORCSZ");
    let other = Nqn::new("nqn.other").unwrap().to_field();
    unsupported(failure(|controller| controller.identify.subsystem = other), "SUBNQN");
    let depth = failure(|controller| controller.capabilities = ControllerCapabilities::new(4, 1));
    assert_eq!(depth, Some(HostFailure::QueueDepth { wanted: host_options().queue_depth, limit: 3 }));
    let commands = failure(|controller| controller.identify.max_commands = 2.into());
    assert_eq!(commands, Some(HostFailure::QueueDepth { wanted: host_options().queue_depth, limit: 2 }));
    let format = failure(|controller| controller.namespace.lba_formats[0].metadata_size = 8.into());
    assert!(matches!(format, Some(HostFailure::Format(_))), "{format:?}");
}

#[test]
fn a_controller_that_is_not_the_one_that_connect_named_is_not_used() {
    let found = failure(|controller| {
        controller.rule =
            Box::new(|asked| matches!(asked.command, Command::Connect(_)).then(|| Answer::Status(Status::SUCCESS, 2)));
    });
    assert!(matches!(found, Some(HostFailure::Unsupported(what)) if what.contains("CNTLID")), "{found:?}");
}

#[test]
fn a_controller_that_reports_a_fatal_status_is_given_up() {
    let fatal =
        ControllerStatus(ControllerStatus::new(false, ShutdownStatus::Normal).0 | ControllerStatus::FATAL_STATUS.0);
    let found = failure(|controller| {
        controller.rule = Box::new(move |asked| match asked.command {
            Command::PropertyGet(get) if get.property == Property::Status => {
                Some(Answer::Status(Status::SUCCESS, fatal.0.into()))
            }
            _ => None,
        });
    });
    assert_eq!(found, Some(HostFailure::ControllerFatal));
}

/// Data that may travel in the capsule starts where ICDOFF says. This host knows but one place, right behind the command.
#[test]
fn in_capsule_data_is_sent_only_where_it_may_stand_right_behind_the_command() {
    for (offset, support, in_capsule) in
        [(0, IdentifyController::SGL_OFFSET, 1), (1, IdentifyController::SGL_OFFSET, 0), (0, 0, 0)]
    {
        let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
            controller.identify.io_command_capsule = 260.into();
            controller.identify.in_capsule_data_offset = offset.into();
            let support = IdentifyController::SGL_SUPPORTED | IdentifyController::SGL_KEYED | support;
            controller.identify.sgl_support = support.into();
        });
        let segments = [scripted.segment(0, 1)];
        scripted.lone.host.write(0, &segments, 1).unwrap();
        scripted.until("ended", |scripted| scripted.completions.len() == 1);
        assert_eq!(scripted.lone.host.statistics().in_capsule_writes, in_capsule, "ICDOFF {offset}, SGLS {support:#x}");
        let write = scripted.controller.last(|asked| matches!(asked.command, Command::Write(_))).unwrap();
        let Command::Write(range) = write.command else { panic!("{write:?}") };
        assert_eq!(matches!(range.data, DataPointer::InCapsule { offset: 0, .. }), in_capsule == 1);
        scripted.finish();
    }
}

/// RECFMT of the discovery log says how entries are to be read; this host knows format 0.
#[test]
fn a_discovery_log_of_another_format_is_not_read() {
    let (like, subsystem) = (host_options(), Nqn::new(DISCOVERY_SUBSYSTEM).unwrap());
    let options = HostOptions::new(like.address, subsystem, like.host).max_attempts(0);
    let mut scripted = Scripted::new("reg_mr", options, |controller| {
        controller.rule = Box::new(|asked| {
            let mut header = DiscoveryHeader::new(1, 1);
            header.record_format = 1.into();
            part(header.as_bytes(), asked)
        });
    });
    scripted.until("given up", |scripted| scripted.lone.host.is_stopped());
    let found = scripted.lone.host.failure();
    assert!(matches!(found, Some(HostFailure::Unsupported(what)) if what.contains("record format")), "{found:?}");
    assert!(scripted.lone.host.discovered().is_empty());
}
