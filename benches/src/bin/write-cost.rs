//! Instructions of an unprotected WRITE on the engine's own code: begin, post, complete, tell.
//!
//! `write-cost MODE WRITES` runs that many WRITEs on a device that completes at once. Count it with callgrind at two numbers and divide the
//! difference. Modes, as rows A17 and A18 have them:
//!
//! * `one`: one at a time.
//! * `list`: two operations of 16 ranges each in an iteration.
//! * `each`: 32 operations in an iteration.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::time::Duration;
use frwr_benches::{
    null_device::{NullDevice, NullPort},
    requester::{PAGE, Requester, posted, usual_options},
};
use frwr_engine::{
    EngineOptions, Event, RemoteSegment, TransferStatus, WriteRequest,
    gather::Segment,
    provider::{RemoteRange, soft::SoftProfile},
};
use std::error::Error;

/// Bytes of one range.
const RANGE: u32 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, writes] = &arguments[..] else { return Err("usage: write-cost one|list|each WRITES".into()) };
    let (operations, ranges) = match mode.as_str() {
        "one" => (1, 1),
        "list" => (2, 16),
        "each" => (32, 1),
        other => return Err(format!("the mode is {other}, but must be one, list or each").into()),
    };
    let options =
        EngineOptions { transfer_depth: operations as u32, transfer_operations: ranges as u32, ..usual_options() };
    let requester =
        Requester::open(NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(false)), &options)?;
    run(requester, operations, ranges, writes.parse()?)
}

fn run(
    mut requester: Requester<NullDevice<NullPort>>,
    operations: u64,
    ranges: u64,
    writes: u64,
) -> Result<(), Box<dyn Error>> {
    // A range that was granted begins a line of the peer's.
    let range = |at: u64| RemoteSegment { remote: RemoteRange { address: at * 64, key: 77 }, length: RANGE };
    let remote: Vec<_> = (0..ranges).map(range).collect();
    let local = [Segment { length: ranges as u32 * RANGE, ..requester.pages(1, 1)[0] }];
    debug_assert!(local[0].length <= PAGE, "all ranges lie in a page");
    let (connection, engine, protocol) = (requester.connection, &mut requester.engine, &mut requester.protocol);
    let before = engine.statistics();
    let (mut done, mut begun) = (0, 0);
    while done < writes {
        engine.poll(Duration::from_nanos(done), protocol);
        // Anything else than its end ends the run: `done` would never get there.
        while let Some(Event::Written { status: TransferStatus::Done, .. }) = engine.next_event() {
            done += ranges;
        }
        if done == begun {
            for cookie in 0..operations {
                engine.write(connection, &WriteRequest { local: &local, remote: &remote, cookie })?;
            }
            begun += operations * ranges;
        }
        engine.flush();
    }
    println!("{done} iterations of 1 WRITE, {}", posted(&before, &engine.statistics()));
    Ok(())
}
