//! The start-up self-test of the verbs provider, on devices that are not there.
#![cfg(feature = "verbs")]

use frwr_engine::provider::verbs::{OpenError, Outcome, PostInterface, Registration, VerbsDevice, VerbsOptions};
use frwr_engine::provider::{
    Answer, Command, CommandError, CompletionBatch, CompletionQueue, Contiguity, Device, DeviceEvent, Errno, Port,
    QueueSizes, Ticket,
};
use frwr_fake::{FakeDevice, FakeLists, FakeOptions, Refusable};

fn options(device: &FakeDevice, post: PostInterface) -> VerbsOptions {
    VerbsOptions::new(device.name()).post(post).registration(Registration::Windows)
}

#[test]
fn u13_a_strict_device_is_as_specified_in_everything() {
    for post in [PostInterface::Automatic, PostInterface::List, PostInterface::Builder] {
        let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
        let device = VerbsDevice::open_with(frwr_fake::library(), &options(&fake, post));
        let device = device.unwrap_or_else(|error| panic!("{error}"));
        let rows = device.findings().rows();
        assert!(rows.len() >= 12, "{} findings", rows.len());
        assert!(rows.iter().all(|row| row.outcome == Outcome::AsSpecified), "{rows:?}");
        assert_eq!(device.uses_builder(), post != PostInterface::List);
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

/// Without them, or not asked for them, it is as it was before there were any.
#[test]
fn queue_pairs_are_in_thread_domains_where_there_are_any() {
    const ROW: &str = "queue pairs of a core have a doorbell register of their own, never run on hardware";
    for (driver, has_any, wants_them, expected) in [
        ("mlx5", true, true, Some(Outcome::AsSpecified)),
        ("mlx5", false, true, Some(Outcome::Deviates)),
        ("mlx5", true, false, None),
        ("irdma", true, true, None),
    ] {
        let fake = FakeDevice::new(FakeOptions { thread_domains: has_any, ..FakeOptions::windows(driver) });
        let options = options(&fake, PostInterface::Automatic).thread_domains(wants_them);
        let mut device =
            VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"));
        let row = device.findings().rows().iter().find(|row| row.name == ROW);
        assert_eq!(row.map(|row| row.outcome), expected, "{driver}");
        assert_eq!(fake.thread_domains(), 0, "what was tried is gone");
        let port = device.open_port(8, 8);
        assert!(port.is_ok());
        assert_eq!(fake.thread_domains(), usize::from(expected == Some(Outcome::AsSpecified)), "one for each port");
        drop((port, device));
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
    let error = VerbsDevice::open_with(frwr_fake::library(), &VerbsOptions::new("mlx5_7")).unwrap_err();
    let OpenError::NoDevice { device, known } = error else { panic!("{error}") };
    assert_eq!(device, "mlx5_7");
    assert!(known.split(", ").any(|name| name == fake.name()), "{known}");
}

fn open(fake: &FakeDevice, registration: Registration) -> Result<VerbsDevice, OpenError> {
    let options = VerbsOptions::new(fake.name()).registration(registration);
    VerbsDevice::open_with(frwr_fake::library(), &options)
}

/// The kernel lists a device no longer before it tells every process that it was removed.
#[test]
fn a_device_that_was_removed_is_not_present() {
    let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
    let device = open(&fake, Registration::Windows).unwrap_or_else(|error| panic!("{error}"));
    assert!(device.is_present());
    drop(fake);
    assert!(!device.is_present());
}

/// The one of its name that the system lists then is another.
#[test]
fn a_device_that_was_reset_is_not_present() {
    let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
    let device = open(&fake, Registration::Windows).unwrap_or_else(|error| panic!("{error}"));
    fake.reset();
    assert!(!device.is_present());
    assert!(open(&fake, Registration::Windows).is_ok_and(|again| again.is_present()));
}

/// Names of what a device does otherwise than specified.
fn deviations(device: &VerbsDevice) -> Vec<&'static str> {
    let rows = device.findings().rows().iter();
    rows.filter(|row| row.outcome != Outcome::AsSpecified).map(|row| row.name).collect()
}

#[test]
fn u10_u13_lists_are_tried_and_what_their_keys_lack_is_told() {
    const FIXED: &str = "keys of lists change from use to use";
    const HERE: &str = "peers may invalidate keys of lists";
    for (updates_tags, remote_invalidation, expected) in [
        (true, true, &[][..]),
        (false, true, &[FIXED]),
        (true, false, &[HERE, "SEND_WITH_INV"]),
        (false, false, &[FIXED, HERE, "SEND_WITH_INV"]),
    ] {
        let lists = FakeLists { updates_tags, remote_invalidation, entries: 8 };
        let fake = FakeDevice::new(FakeOptions::lists(lists));
        let device = open(&fake, Registration::Lists).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(deviations(&device), expected);
        let capabilities = device.capabilities();
        assert_eq!(
            capabilities.attributes.max_fast_reg_page_list_len, 8,
            "what its queue pairs take, not what was asked"
        );
        assert_eq!(capabilities.contiguity, Contiguity::Gaps { page_size: 0 });
        // 512 bytes for each entry of the send queue, of 2 MiB: the longest message takes more of it than the longest list.
        assert_eq!(capabilities.attributes.max_qp_wr, (2 << 20) / 512);
        assert_eq!(capabilities.rotating_key_bits, if updates_tags { 8 } else { 0 });
        assert_eq!(capabilities.remote_invalidation, remote_invalidation);
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

#[test]
fn u13_lists_are_chosen_where_their_keys_rotate_and_windows_where_there_are_any() {
    let lists = |updates_tags| {
        FakeDevice::new(FakeOptions::lists(FakeLists { updates_tags, remote_invalidation: true, entries: 8 }))
    };
    // A device without windows registers lists, whatever its keys.
    for fake in [lists(true), lists(false)] {
        assert!(open(&fake, Registration::Automatic).is_ok_and(|device| device.registers_lists()));
        let error = open(&fake, Registration::Windows).unwrap_err();
        assert!(matches!(error, OpenError::NoWindows { .. }), "{error}");
    }
    let windows = FakeDevice::new(FakeOptions::windows("rxe"));
    assert!(open(&windows, Registration::Automatic).is_ok_and(|device| !device.registers_lists()));
    let error = open(&windows, Registration::Lists).unwrap_err();
    assert!(error.to_string().contains("only mlx5 devices"), "{error}");
}

/// Whoever has a ConnectX, and looks for lists, is told why there are none.
#[test]
fn u13_an_mlx5_device_that_registers_windows_says_why() {
    const REGISTERED: &str = "lists are registered by UMR work requests, never run on hardware";
    let fixed = FakeLists { updates_tags: false, remote_invalidation: true, entries: 8 };
    for (lists, expected) in [(Some(fixed), "would not change"), (None, "another copy")] {
        let fake = FakeDevice::new(FakeOptions { lists, ..FakeOptions::windows("mlx5") });
        let device = open(&fake, Registration::Automatic).unwrap_or_else(|error| panic!("{error}"));
        assert!(!device.registers_lists());
        assert_eq!(deviations(&device), [REGISTERED]);
        let rows = device.findings().rows();
        assert!(rows[0].text.contains(expected), "{}", rows[0].text);
        drop(device);
        let device = open(&fake, Registration::Windows).unwrap_or_else(|error| panic!("{error}"));
        assert!(deviations(&device).is_empty(), "they were asked for");
    }
}

/// What stands for a device answers as strictly as it can, which is not what is expected of hardware in every point.
#[test]
fn what_nobody_has_run_on_hardware_is_asked_and_answered() {
    const OUTSIDE: &str = "status of a registration outside of its memory";
    const TWICE: &str = "LOCAL_INV of a free key";
    const STALE: &str = "bind with another low byte in the old key";
    const FOREIGN: &str = "list with a local key of nobody";
    let lists = FakeLists { updates_tags: true, remote_invalidation: true, entries: 8 };
    for (options, registration, otherwise) in [
        (FakeOptions::windows("mlx5"), Registration::Windows, STALE),
        (FakeOptions::lists(lists), Registration::Lists, FOREIGN),
    ] {
        let fake = FakeDevice::new(options);
        let options = VerbsOptions::new(fake.name()).unsettled(true).registration(registration);
        let device = VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(deviations(&device), [OUTSIDE, TWICE, otherwise]);
        let rows = device.findings().rows().iter().filter(|row| row.text.contains("expected from source"));
        assert_eq!(rows.count(), 4);
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
    // The host of others may not survive the questions.
    let fake = FakeDevice::new(FakeOptions::windows("rxe"));
    let options = VerbsOptions::new(fake.name()).unsettled(true);
    let device = VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(device.findings().rows().iter().all(|row| !row.text.contains("expected from source")));
}

/// A queue pair of the most work requests that a device says can be made, with the longest messages; one more cannot.
#[test]
fn u13_the_longest_send_queue_has_room_for_lists_and_messages() {
    let lists = |entries| {
        let all = FakeLists { updates_tags: true, remote_invalidation: true, entries: 52 };
        (FakeOptions::lists(all), VerbsOptions::new("").list_entries(entries))
    };
    let windows = |post| (FakeOptions::windows("mlx5"), VerbsOptions::new("").post(post));
    let both = [PostInterface::List, PostInterface::Builder].map(windows);
    for (fake, options) in [4, 8, 20, 24, 52].map(lists).into_iter().chain(both) {
        let fake = FakeDevice::new(fake);
        let options = options.device(fake.name().to_owned()).self_test(false);
        let mut device =
            VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"));
        let limits = device.capabilities().attributes;
        let port = device.open_port(16, 16).unwrap();
        assert!(device.submit(Ticket(0), Command::AllocateDomain).is_ok());
        let Some(DeviceEvent::Answered { result: Ok(Answer::Domain(domain)), .. }) = device.poll() else { panic!() };
        for (send, good) in [(limits.max_qp_wr, true), (limits.max_qp_wr + 1, false)] {
            let sizes = QueueSizes { send, receive: 16, max_send_sge: limits.max_send_sge };
            let create = Command::CreateQueuePair { port: port.id(), domain, sizes, shared_receives: None };
            assert!(device.submit(Ticket(1), create).is_ok());
            let Some(DeviceEvent::Answered { result, .. }) = device.poll() else { panic!() };
            assert_eq!(result.is_ok(), good, "{options:?}, {send}: {result:?}");
        }
    }
}

/// EIO is said by a device that is gone, with all that it had, and by one that works badly and keeps everything.
#[test]
fn fault33_what_a_device_refuses_that_is_there_is_not_gone_with_it() {
    const SIZES: QueueSizes = QueueSizes { send: 16, receive: 16, max_send_sge: 4 };
    let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
    let mut device = open(&fake, Registration::Windows).unwrap_or_else(|error| panic!("{error}"));
    let (context, mut port) = (fake.newest_context().unwrap(), device.open_port(16, 16).unwrap());
    let port_id = port.id();
    let mut run = |command: Command| {
        assert!(device.submit(Ticket(0), command).is_ok());
        // What is destroyed is taken from its port first.
        port.poll(CompletionQueue::Send, &mut CompletionBatch::new());
        let Some(DeviceEvent::Answered { result, .. }) = device.poll() else { panic!() };
        result
    };
    let Ok(Answer::Domain(domain)) = run(Command::AllocateDomain) else { panic!() };
    let create = Command::CreateQueuePair { port: port_id, domain, sizes: SIZES, shared_receives: None };
    let Ok(Answer::QueuePair { queue_pair, .. }) = run(create) else { panic!() };
    for code in [libc::EBUSY, libc::EIO] {
        context.refuse(Refusable::FailQueuePair, code, 1);
        assert_eq!(run(Command::FailQueuePair { queue_pair }), Err(CommandError::Busy(Errno(code))));
        context.refuse(Refusable::DestroyQueuePair, code, 2);
        for _ in 0..2 {
            assert_eq!(run(Command::DestroyQueuePair { queue_pair }), Err(CommandError::Busy(Errno(code))));
        }
    }
    assert_eq!((context.refused(Refusable::FailQueuePair), context.refused(Refusable::DestroyQueuePair)), (2, 4));
    assert_eq!(run(Command::FailQueuePair { queue_pair }), Ok(Answer::Done), "it is there, and complies");
    // The number goes on as it came.
    let allocate = Command::AllocateRegistration { port: port_id, domain, queue_pair, depth: 1 };
    for code in [libc::ENOMEM, libc::ENOSPC, libc::EINVAL, libc::EPERM] {
        context.refuse(Refusable::MakeRegistration, code, 1);
        assert_eq!(run(allocate.clone()), Err(CommandError::Exhausted(Errno(code))));
    }
    let Ok(Answer::Registration { object, .. }) = run(allocate) else { panic!() };
    context.refuse(Refusable::DestroyRegistration, libc::EINVAL, 1);
    assert_eq!(run(Command::FreeRegistration { object }), Err(CommandError::Busy(Errno(libc::EINVAL))));
    assert_eq!(run(Command::FreeRegistration { object }), Ok(Answer::Done));
    // The kernel lists it no longer, but the one that it became.
    fake.reset();
    context.refuse(Refusable::DestroyQueuePair, libc::EIO, 1);
    assert_eq!(run(Command::DestroyQueuePair { queue_pair }), Err(CommandError::DEVICE_GONE));
}
