//! What a device does, without an engine, over every provider: each profile of the software NIC, or the real device that the
//! environment names (`harness/subject.rs`). One program, because each would build the harness over every device once more; a module
//! of it runs by its name: `cargo test -p frwr-engine --test conformance_provider bind::`.

#[path = "../harness/mod.rs"]
mod harness;

mod access;
mod bind;
mod connection;
mod dead;
mod keys;
mod normal;
mod queues;
mod shared_receives;
