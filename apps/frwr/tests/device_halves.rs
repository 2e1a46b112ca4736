//! `serve` and `load` against each other, both in this process, over the device that the environment names as it does for the
//! conformance suite: `FRWR_CONFORMANCE_DEVICE` and `FRWR_CONFORMANCE_ADDRESS`.
#![cfg(feature = "verbs")]

mod halves_harness;

use frwr_engine::provider::verbs::{PostInterface, Registration, VerbsDevice, VerbsOptions};
use halves_harness::move_a_file;
use std::env::var;

/// Moves a file by one kind of registration, posted in one way.
fn a_file_goes_there_and_back(registration: Registration, post: PostInterface) {
    let (Ok(name), Ok(address)) = (var("FRWR_CONFORMANCE_DEVICE"), var("FRWR_CONFORMANCE_ADDRESS")) else {
        println!("SKIPPED: FRWR_CONFORMANCE_DEVICE and FRWR_CONFORMANCE_ADDRESS name no device");
        return;
    };
    let options = VerbsOptions::new(&name).registration(registration).post(post);
    let open = || VerbsDevice::open(&options).unwrap_or_else(|error| panic!("{error}"));
    let (reconnects, _) = move_a_file("file", &format!("{address}:4420"), open(), open());
    assert_eq!(reconnects, 0);
}

// One test: both would listen at one address.
#[test]
fn a_file_goes_through_windows_and_lists() {
    for post in [PostInterface::List, PostInterface::Builder] {
        a_file_goes_there_and_back(Registration::Windows, post);
    }
    a_file_goes_there_and_back(Registration::Lists, PostInterface::Automatic);
}
