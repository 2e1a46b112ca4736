//! Devices whose libraries have manners of their own, under the verbs provider: those that open no keys, and those that open them in
//! another way.
#![cfg(feature = "verbs")]

use frwr_engine::provider::verbs::{Finding, OpenError, Outcome, Registration, Role, VerbsDevice, VerbsOptions};
use frwr_engine::provider::{Answer, Command, CommandError, Device, DeviceEvent, Port, QueueSizes, Ticket};
use frwr_fake::{FakeDevice, FakeInvalidate, FakeLists, FakeOptions, FakeWindows, Manners};

const OPENS_KEYS: &str = "keys are opened by work requests";
const INVALIDATES: &str = "keys of peers are invalidated by SEND_WITH_INV";

fn open_with(fake: &FakeDevice, options: VerbsOptions) -> Result<VerbsDevice, OpenError> {
    let options = options.device(fake.name().to_owned());
    VerbsDevice::open_with(frwr_fake::library(), &options)
}

fn open(fake: &FakeDevice, role: Role) -> Result<VerbsDevice, OpenError> {
    open_with(fake, VerbsOptions::new("").role(role))
}

fn opened(fake: &FakeDevice, role: Role) -> VerbsDevice {
    open(fake, role).unwrap_or_else(|error| panic!("{error}"))
}

fn finding<'a>(device: &'a VerbsDevice, name: &str) -> &'a Finding {
    let rows = device.findings().rows();
    rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no finding {name}: {rows:?}"))
}

/// The answer to a command.
fn run(device: &mut VerbsDevice, command: Command) -> Result<Answer, CommandError> {
    assert!(device.submit(Ticket(0), command).is_ok());
    let Some(DeviceEvent::Answered { result, .. }) = device.poll() else { panic!("no answer") };
    result
}

#[test]
fn a_responder_opens_a_device_without_windows_and_a_requester_is_told_why_not() {
    for driver in ["bnxt_re", "hns", "irdma", "mana", "never_heard_of"] {
        let manners = Manners::responds_only(FakeInvalidate::Works);
        let fake = FakeDevice::new(FakeOptions::with_manners(driver, manners));
        let error = open(&fake, Role::Requester).unwrap_err();
        assert!(matches!(error, OpenError::NoWindows { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(driver) && said.contains("it can only respond"), "{said}");
        assert_eq!(said.contains("windows by version of rdma-core"), driver != "never_heard_of", "{said}");
        let device = opened(&fake, Role::Responder);
        let attributes = device.capabilities().attributes;
        assert!(!attributes.memory_management_extensions);
        assert_eq!((attributes.max_registrations, attributes.max_fast_reg_page_list_len), (0, 0));
        assert!(!device.capabilities().remote_invalidation && device.capabilities().send_with_invalidate);
        let keys = finding(&device, OPENS_KEYS);
        assert_eq!(keys.outcome, Outcome::Deviates);
        assert!(keys.text.contains("it serves, and does not request"), "{}", keys.text);
        assert_eq!(finding(&device, INVALIDATES).outcome, Outcome::AsSpecified);
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

/// Whatever is typed of registrations: a responder has none.
#[test]
fn a_responder_is_asked_for_no_kind_of_key() {
    let fake = FakeDevice::new(FakeOptions::with_manners("bnxt_re", Manners::responds_only(FakeInvalidate::Works)));
    for registration in [Registration::Automatic, Registration::Windows, Registration::Lists] {
        let options = VerbsOptions::new("").registration(registration).role(Role::Responder);
        assert!(open_with(&fake, options.clone()).is_ok(), "{registration:?}");
        assert!(open_with(&fake, options.role(Role::Requester)).is_err(), "{registration:?}");
    }
}

/// Nor does what was typed keep a device from being tested by the keys that it has.
#[test]
fn a_responder_is_tested_by_the_keys_that_there_are() {
    let fake = FakeDevice::new(FakeOptions::windows("rxe"));
    for registration in [Registration::Automatic, Registration::Windows, Registration::Lists] {
        let options = VerbsOptions::new("").registration(registration).role(Role::Responder);
        let device = open_with(&fake, options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(finding(&device, "RDMA WRITE through the window").outcome, Outcome::AsSpecified, "{registration:?}");
    }
}

/// Who looks at the findings of a card is told that nobody has run one.
#[test]
fn what_was_never_run_says_so() {
    const KNOWN: &str = "the driver as source has it, never run on hardware";
    for (driver, says) in [
        ("mlx5", Some("2 GiB")),
        ("mlx4", Some("strongly")),
        ("ionic", Some("inline")),
        ("new", Some("not in the table")),
        ("rxe", None),
    ] {
        let fake = FakeDevice::new(FakeOptions::windows(driver));
        let device = opened(&fake, Role::Requester);
        let row = device.findings().rows().iter().find(|row| row.name == KNOWN);
        assert_eq!(row.map(|row| row.outcome), says.map(|_| Outcome::AsSpecified), "{driver}");
        assert!(says.is_none_or(|says| row.is_some_and(|row| row.text.contains(says))), "{driver}: {row:?}");
    }
}

/// What a device says of SEND_WITH_INV counts for nothing: how it ends does.
#[test]
fn a_send_with_inv_that_fails_makes_replies_plain() {
    for (invalidate, works, said) in [
        (FakeInvalidate::Works, true, "yes"),
        (FakeInvalidate::Fails, false, "plain SEND; failed: "),
        (FakeInvalidate::NotPosted, false, "plain SEND; not posted: "),
        (FakeInvalidate::Plain, false, "plain SEND; no key is named"),
    ] {
        let manners = Manners::responds_only(invalidate);
        let fake = FakeDevice::new(FakeOptions::with_manners("bnxt_re", manners));
        let device = opened(&fake, Role::Responder);
        assert_eq!(device.capabilities().send_with_invalidate, works, "{invalidate:?}");
        let found = finding(&device, INVALIDATES);
        assert_eq!(found.outcome == Outcome::AsSpecified, works, "{invalidate:?}");
        assert!(found.text.contains(said), "{}", found.text);
        drop(device);
        // With windows too: a requester's keys then end by LOCAL_INV, and its replies are plain.
        let manners = Manners { send_with_invalidate: invalidate, ..Manners::STRICT };
        let fake = FakeDevice::new(FakeOptions::with_manners("never_heard_of", manners));
        let device = opened(&fake, Role::Requester);
        let capabilities = device.capabilities();
        assert_eq!((capabilities.remote_invalidation, capabilities.send_with_invalidate), (works, works));
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
    // Untried it is not relied on.
    let fake = FakeDevice::new(FakeOptions::with_manners("bnxt_re", Manners::responds_only(FakeInvalidate::Works)));
    let options = VerbsOptions::new("").role(Role::Responder).self_test(false);
    assert!(open_with(&fake, options).is_ok_and(|device| !device.capabilities().send_with_invalidate));
}

/// Keys that peers cannot invalidate say nothing of whether we can invalidate theirs.
#[test]
fn a_device_whose_own_keys_peers_cannot_invalidate_still_invalidates_theirs() {
    let lists = FakeLists { updates_tags: true, remote_invalidation: false, entries: 8 };
    let fake = FakeDevice::new(FakeOptions::lists(lists));
    for role in [Role::Requester, Role::Responder] {
        let device = opened(&fake, role);
        let capabilities = device.capabilities();
        assert_eq!((capabilities.remote_invalidation, capabilities.send_with_invalidate), (false, true), "{role:?}");
    }
}

/// Libraries that speak of windows and have none that work: who only responds need not care.
#[test]
fn windows_that_do_not_work_are_passed_over() {
    for (driver, windows, step) in
        [("irdma", FakeWindows::NotAllocated, "allocating a window"), ("mana", FakeWindows::NotBound, "bind in front")]
    {
        let manners = Manners { windows, ..Manners::STRICT };
        let fake = FakeDevice::new(FakeOptions::with_manners(driver, manners));
        let error = open(&fake, Role::Requester).unwrap_err();
        assert!(error.to_string().contains(step), "{error}");
        let device = opened(&fake, Role::Responder);
        let passed = finding(&device, "type 2 memory windows");
        assert_eq!(passed.outcome, Outcome::Deviates);
        assert!(passed.text.contains(step), "{}", passed.text);
        assert!(!device.capabilities().attributes.memory_management_extensions);
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

/// A responder's device that has windows is tested with them.
#[test]
fn a_responder_takes_a_device_with_windows_as_it_is() {
    let fake = FakeDevice::new(FakeOptions::windows("rxe"));
    let device = opened(&fake, Role::Responder);
    assert!(device.capabilities().attributes.memory_management_extensions);
    assert_eq!(finding(&device, "RDMA WRITE through the window").outcome, Outcome::AsSpecified);
}

#[test]
fn a_device_without_keys_gives_memory_and_queue_pairs_and_no_registration() {
    let fake = FakeDevice::new(FakeOptions::with_manners("bnxt_re", Manners::responds_only(FakeInvalidate::Works)));
    let mut device = opened(&fake, Role::Responder);
    let mut port = device.open_port(16, 16).unwrap();
    let Ok(Answer::Domain(domain)) = run(&mut device, Command::AllocateDomain) else { panic!() };
    let sizes = QueueSizes { send: 8, receive: 8, max_send_sge: 4 };
    let create = Command::CreateQueuePair { port: port.id(), domain, sizes, shared_receives: None };
    let Ok(Answer::QueuePair { queue_pair, .. }) = run(&mut device, create) else { panic!() };
    let allocate = Command::AllocateRegistration { port: port.id(), domain, queue_pair, depth: 1 };
    assert_eq!(run(&mut device, allocate), Err(CommandError::INVALID));
    let memory = {
        use frwr_mempool::{Region, RegionOptions};
        let mut region = Region::map(&RegionOptions::new(1 << 16)).unwrap();
        region.carve(4096, 4096).unwrap().into_device_memory()
    };
    let register = Command::RegisterMemory { domain, memory: memory.clone(), local_write: true };
    assert!(
        matches!(run(&mut device, register), Ok(Answer::Base { .. })),
        "not registered for windows, which it refuses"
    );
    let access = frwr_engine::provider::Access::RemoteRead;
    let key = port.register_memory(queue_pair, &memory, access);
    assert!(key.is_ok_and(|key| key.key != 0), "a key of a system call it has");
}

/// ionic never writes a window's key, and irdma always; ionic refuses binds that mean nothing, irdma memory that is zero-based. None of that
/// is ever asked of them.
#[test]
fn libraries_that_note_keys_and_those_that_do_not_serve_alike() {
    for (driver, manners) in [("ionic", Manners::IONIC), ("irdma", Manners::IRDMA)] {
        let fake = FakeDevice::new(FakeOptions::with_manners(driver, manners));
        let device = opened(&fake, Role::Requester);
        assert_eq!(device.known().driver, driver);
        let rows = device.findings().rows();
        assert!(rows.iter().all(|row| row.outcome == Outcome::AsSpecified), "{driver}: {rows:?}");
        assert!(!device.registers_lists() && !device.uses_builder());
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

/// NVIDIA has windows on physical functions and native machines: on a virtual one both ways are tried, lists first.
#[test]
fn a_virtual_function_is_named_and_both_ways_are_tried() {
    const VIRTUAL: &str = "virtual function, never run on hardware";
    let of = |windows, updates_tags| {
        let lists = FakeLists { updates_tags, remote_invalidation: true, entries: 8 };
        let manners = Manners { windows, is_virtual: true, ..Manners::STRICT };
        let device = match windows {
            FakeWindows::Working => FakeOptions { lists: Some(lists), ..FakeOptions::windows("mlx5") },
            _ => FakeOptions::lists(lists),
        };
        FakeDevice::new(FakeOptions { manners, ..device })
    };
    // (windows, keys rotate, what is registered)
    for (windows, rotates, lists) in [
        (FakeWindows::Working, false, false),
        (FakeWindows::NotAllocated, false, true),
        (FakeWindows::NotBound, false, true),
    ] {
        let fake = of(windows, rotates);
        let device = opened(&fake, Role::Requester);
        assert_eq!(device.registers_lists(), lists, "{windows:?}");
        assert!(finding(&device, VIRTUAL).text.contains("NVIDIA"));
        let says_no_lists = device.findings().rows().iter().any(|row| row.text.starts_with("no, but windows"));
        assert_eq!(says_no_lists, !lists, "{windows:?}");
        if windows != FakeWindows::Working {
            assert_eq!(finding(&device, "type 2 memory windows").outcome, Outcome::Deviates);
        }
    }
    let plain = FakeDevice::new(FakeOptions::windows("mlx5"));
    let device = opened(&plain, Role::Requester);
    assert!(device.findings().rows().iter().all(|row| row.name != VIRTUAL));
}
