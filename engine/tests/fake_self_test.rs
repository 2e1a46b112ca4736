//! The start-up self-test of the verbs provider, on devices that are not there.
#![cfg(feature = "verbs")]

use frwr_engine::provider::verbs::{OpenError, Outcome, PostInterface, VerbsDevice, VerbsOptions};
use frwr_fake::{FakeDevice, FakeOptions};

fn options(device: &FakeDevice, post: PostInterface) -> VerbsOptions {
    VerbsOptions { post, ..VerbsOptions::new(device.name()) }
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

#[test]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
    let error = VerbsDevice::open_with(frwr_fake::library(), &VerbsOptions::new("mlx5_7")).unwrap_err();
    let OpenError::NoDevice { device, known } = error else { panic!("{error}") };
    assert_eq!(device, "mlx5_7");
    assert!(known.split(", ").any(|name| name == fake.name()), "{known}");
}
