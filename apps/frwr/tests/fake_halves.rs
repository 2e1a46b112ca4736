//! `serve` and `load` against each other through the verbs provider, over a device that is not there: windows, and lists as on
//! ConnectX.
#![cfg(feature = "verbs")]

mod halves_harness;

use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{DiscoverConfig, ServeConfig, discover, serve};
use frwr::{CommandLine, Task};
use frwr_engine::provider::verbs::{Registration, Role, VerbsDevice, VerbsOptions};
use frwr_fake::{FakeDevice, FakeInvalidate, FakeLists, FakeOptions, Manners, Refusable};
use halves_harness::{Temporary, move_a_file, task};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

fn open(fake: &FakeDevice, registration: Registration) -> VerbsDevice {
    let options = VerbsOptions::new(fake.name()).registration(registration);
    VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Writes a file, reads it back, and loads for a second.
fn a_file_goes_there_and_back(name: &str, options: FakeOptions, registration: Registration) {
    let (reconnects, _) = halves(name, &FakeDevice::new(options), registration, |_| {});
    assert_eq!(reconnects, 0);
}

/// As [`a_file_goes_there_and_back`], on devices that are `spoilt` once both are open, the host's as the newest; returns how often
/// the host connected again, and what it said.
fn halves(
    name: &str,
    fake: &FakeDevice,
    registration: Registration,
    spoilt: impl FnOnce(&FakeDevice),
) -> (u64, Vec<String>) {
    let (target, host) = (open(fake, registration), open(fake, registration));
    // Not in the self-test of either.
    spoilt(fake);
    let told = move_a_file(name, &format!("{}:4420", fake.address()), target, host);
    assert_eq!((fake.remote_bytes(), fake.violations()), (0, Vec::new()));
    told
}

#[test]
fn a_file_goes_through_windows() {
    a_file_goes_there_and_back("windows", FakeOptions::windows("mlx5"), Registration::Windows);
}

#[test]
fn a_file_goes_through_lists() {
    for (name, updates_tags, remote_invalidation) in [("lists", true, true), ("oldest", false, false)] {
        let lists = FakeLists { updates_tags, remote_invalidation, entries: 20 };
        a_file_goes_there_and_back(name, FakeOptions::lists(lists), Registration::Lists);
    }
}

/// A target on a card that opens no keys, in every way in which its SEND_WITH_INV may fail; the host's is another card.
#[test]
fn a_card_that_opens_no_keys_serves_a_host_on_one_that_does() {
    let (works, fails) =
        (FakeInvalidate::Works, [FakeInvalidate::Fails, FakeInvalidate::NotPosted, FakeInvalidate::Plain]);
    for (at, invalidate) in [works].into_iter().chain(fails).enumerate() {
        let manners = Manners::responds_only(invalidate);
        let card = FakeDevice::new(FakeOptions::with_manners("bnxt_re", manners));
        let other = FakeDevice::new(FakeOptions::windows("mlx5"));
        let options = VerbsOptions::new(card.name()).role(Role::Responder);
        let target = VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"));
        let host = open(&other, Registration::Windows);
        let (reconnects, _) = move_a_file(&format!("keyless{at}"), &format!("{}:4420", card.address()), target, host);
        assert_eq!(reconnects, 0, "{invalidate:?}");
        for fake in [&card, &other] {
            assert_eq!((fake.remote_bytes(), fake.violations()), (0, Vec::new()), "{invalidate:?}");
        }
    }
}

/// Libraries that write the keys of windows, and those that never do and take binds less lightly.
#[test]
fn a_file_goes_through_windows_of_other_manners() {
    for (name, manners) in [("ionic", Manners::IONIC), ("irdma", Manners::IRDMA)] {
        a_file_goes_there_and_back(name, FakeOptions::with_manners(name, manners), Registration::Automatic);
    }
}

/// ibv_poll_cq(3) may fail; what it took is lost, so that no connection of that core can go on as if nothing had happened.
#[test]
fn a_completion_that_cannot_be_read_ends_connections_and_the_host_comes_again() {
    for readable in [90, 91, 92, 93] {
        let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
        let (reconnects, _) =
            halves("garbled", &fake, Registration::Windows, |fake| fake.garble_completion_after(readable));
        assert!(reconnects > 0, "after {readable}");
    }
}

/// What `load` says of it is what every program says, and its run is as good as any other.
#[test]
fn a_queue_pair_that_the_device_refuses_to_destroy_is_told_of_and_waited_for() {
    /// Fewer than the last attempts, when the device is dropped, would need.
    const REFUSALS: u32 = 10;
    let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
    let (_, said) = halves("refused", &fake, Registration::Windows, |fake| {
        let host = fake.newest_context().unwrap();
        host.refuse(Refusable::FailQueuePair, libc::EBUSY, 1);
        host.refuse(Refusable::DestroyQueuePair, libc::EBUSY, REFUSALS);
    });
    let of_it = said.iter().filter(|line| line.starts_with("the device refuses to destroy "));
    // A line for each of the two queue pairs at most.
    assert!((1..=2).contains(&of_it.count()), "{said:?}");
    assert_eq!(fake.violations(), Vec::<String>::new(), "its end was waited for, or the device were closed with it");
}

/// What `discover` says of it is the same line, once, and its list is whole.
#[test]
fn discover_tells_of_a_queue_pair_that_the_device_refuses_to_destroy_and_waits_for_it() {
    /// Fewer than the last attempts, when the device is dropped, would need.
    const REFUSALS: u32 = 10;
    let (fake, file) = (FakeDevice::new(FakeOptions::windows("mlx5")), Temporary::new("listed"));
    let address = format!("{}:4420", fake.address());
    let Task::Serve(arguments) = task("serve", &["--listen", &address, "--namespace", file.text()]) else { panic!() };
    let served = ServeConfig::new(arguments).unwrap();
    let line = ["frwr", "discover", "--device", "test", "--connect", &address];
    let Some(Task::Discover(arguments)) = CommandLine::try_parse_from(line).unwrap().task else { panic!() };
    let asked = DiscoverConfig::new(arguments).unwrap();

    let (target_device, device) = (open(&fake, Registration::Windows), open(&fake, Registration::Windows));
    let context = fake.newest_context().unwrap();
    context.refuse(Refusable::FailQueuePair, libc::EBUSY, 1);
    context.refuse(Refusable::DestroyQueuePair, libc::EBUSY, REFUSALS);
    let (stop, (sender, lines)) = (AtomicBool::new(false), mpsc::channel());
    let (mut said, mut left) = (Vec::new(), 0);
    thread::scope(|scope| {
        let target = scope.spawn(|| {
            serve(vec![target_device], &served, &stop, &mut |line| {
                let _ = sender.send(line.to_owned());
            })
        });
        assert!(lines.iter().any(|line| line.starts_with("listening on")));
        let found = discover(device, &asked, &AtomicBool::new(false), &mut |line| {
            left = context.queue_pairs();
            said.push(line.to_owned());
        });
        stop.store(true, Relaxed);
        assert_eq!(found.unwrap_or_else(|error| panic!("{error}")).len(), 1);
        assert!(target.join().unwrap().unwrap_or_else(|error| panic!("{error}")).passed());
    });
    assert!(
        matches!(&said[..], [line] if line.starts_with("the device refuses to destroy 1 queue pair(s) ")),
        "{said:?}"
    );
    assert_eq!((left, fake.violations()), (1, Vec::<String>::new()), "it was there when that was said, and waited for");
}
