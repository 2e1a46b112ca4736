//! Instructions of an engine that has nothing to do (goal A6): `idle-cost ITERATIONS` polls and flushes one that many times,
//! with one ready connection. A port has two completion queues, and each poll looks at both.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::{hint::black_box, time::Duration};
use frwr_benches::{
    null_device::{NullDevice, NullPort},
    requester::{Requester, usual_options},
};
use frwr_engine::provider::soft::SoftProfile;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, iterations] = &arguments[..] else { return Err("usage: idle-cost ITERATIONS".into()) };
    let iterations: u64 = iterations.parse()?;
    let mut requester =
        Requester::open(NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(true)), &usual_options())?;
    let (engine, protocol) = (&mut requester.engine, &mut requester.protocol);
    let mut work = 0;
    for at in 0..iterations {
        work += engine.poll(Duration::from_nanos(black_box(at)), protocol);
        work += engine.flush();
    }
    println!("{iterations} iterations of 1 empty poll and flush, {work} pieces of work");
    Ok(())
}
