//! Instructions of an unprotected WRITE of 8 bytes by engine and verbs port, 32 behind one doorbell, over a library that only completes
//! what is posted (row A18). Its peer is benches/peers/null_write.c.
//!
//! `verbs-write-cost MODE WRITES` runs that many, in the modes `one`, `list` and `each` of write-cost. Count it with callgrind at two
//! numbers and divide the difference. No mode of verbs-cost: the port would be compiled otherwise there, beside an engine.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use frwr_benches::{
    connected::ConnectedAtOnce,
    writes::{self, Round},
};
use frwr_engine::provider::verbs::{PostInterface, VerbsDevice, VerbsOptions};
use frwr_fake::{FakeDevice, FakeOptions};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, writes] = &arguments[..] else { return Err("usage: verbs-write-cost one|list|each WRITES".into()) };
    let round = Round::named(mode).ok_or_else(|| format!("the mode is {mode}, but must be one, list or each"))?;
    // A driver that the provider knows to have no deviations.
    let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
    let options = VerbsOptions::new(fake.name()).post(PostInterface::List).self_test(false);
    let device = ConnectedAtOnce::new(VerbsDevice::open_with(frwr_fake::completing_library(), &options)?);
    println!("{}", writes::run(device, round, writes.parse()?)?);
    Ok(())
}
