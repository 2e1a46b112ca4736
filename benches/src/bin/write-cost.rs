//! Instructions of an unprotected WRITE on the engine's own code: begin, post, complete, tell.
//!
//! `write-cost MODE WRITES` runs that many WRITEs on a device that completes at once. Count it with callgrind at two numbers and divide the
//! difference. Modes, as rows A17 and A18 have them:
//!
//! * `one`: one at a time.
//! * `list`: two operations of 16 ranges each in an iteration.
//! * `each`: 32 operations in an iteration.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use frwr_benches::{
    null_device::{NullDevice, NullPort},
    writes::{self, Round},
};
use frwr_engine::provider::soft::SoftProfile;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, writes] = &arguments[..] else { return Err("usage: write-cost one|list|each WRITES".into()) };
    let round = Round::named(mode).ok_or_else(|| format!("the mode is {mode}, but must be one, list or each"))?;
    let device = NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(false));
    println!("{}", writes::run(device, round, writes.parse()?)?);
    Ok(())
}
