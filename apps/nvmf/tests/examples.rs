//! The examples of docs/embedding.md, as their programs run them: each verifies its data.

#![allow(clippy::duplicate_mod, reason = "each example is a program of its own, with its own copy of what they share")]

#[path = "../examples/foreign_memory.rs"]
mod foreign_memory;
#[path = "../examples/host_in_own_loop.rs"]
mod host_in_own_loop;
#[path = "../examples/own_protocol.rs"]
mod own_protocol;
#[path = "../examples/own_storage.rs"]
mod own_storage;
#[cfg(feature = "reactor")]
#[path = "../examples/target_on_reactor.rs"]
mod target_on_reactor;

use frwr_mempool::DeviceMemory;
use frwr_nvmf::{
    conformance::{Medium, Suite},
    storage::Storage,
};
use frwr_support::storage_harness::memory;
use std::fs;

/// What a storage of the examples keeps its blocks in: another one over the same memory finds them.
struct Kept(DeviceMemory);

impl Medium for Kept {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        Some(Box::new(own_storage::Scrambled::new(self.0.clone()).unwrap()))
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        self.open()
    }
}

#[test]
fn a_storage_of_ones_own_keeps_what_storages_promise() {
    let report = Suite::new("Scrambled", || Kept(memory(256 << 10))).run();
    report.assert_unbroken();
    assert!(report.is_shown("a_storage_that_is_dropped_leaves_everything_alone"));
}

#[cfg(feature = "reactor")]
#[test]
fn a_key_value_store_keeps_what_storages_promise() {
    use frwr_nvmf::conformance::Only;
    Suite::new("KeyValue", || Only::new(target_on_reactor::KeyValue::new(64).unwrap())).run().assert_unbroken();
}

#[test]
fn a_storage_of_ones_own_serves() {
    own_storage::main().unwrap();
}

#[test]
fn the_host_runs_in_a_host_in_own_loop() {
    host_in_own_loop::main().unwrap();
}

#[test]
fn both_live_in_foreign_memory() {
    foreign_memory::main().unwrap();
}

#[test]
fn a_protocol_of_ones_own_runs_on_reactors() {
    own_protocol::main().unwrap();
}

#[cfg(feature = "reactor")]
#[test]
fn a_target_on_a_reactor_serves_and_tells_its_host_of_its_end() {
    target_on_reactor::main().unwrap();
}

#[test]
fn a_storage_takes_less_than_a_hundred_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let lines = fs::read_to_string(format!("{folder}/own_storage.rs")).unwrap().lines().count();
    assert!(lines < 100, "{lines} lines");
}

#[test]
fn the_guide_names_every_example() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let guide = fs::read_to_string(format!("{root}/docs/embedding.md")).unwrap();
    for entry in fs::read_dir(format!("{root}/apps/nvmf/examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(guide.contains(&format!("apps/nvmf/examples/{name}")), "{name}");
    }
}
