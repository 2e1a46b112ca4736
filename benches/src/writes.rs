//! Unprotected RDMA WRITEs of 8 bytes through the engine, over any device that completes what is posted.

use crate::requester::{PAGE, Requester, posted, usual_options};
use core::time::Duration;
use frwr_engine::{
    Event, RemoteSegment, TransferStatus, WriteRequest,
    gather::Segment,
    provider::{Device, RemoteRange},
};
use std::error::Error;

/// Bytes of one range.
const RANGE: u32 = 8;

/// WRITEs of an iteration: behind one doorbell, and told of by one completion.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    operations: u64,
    /// Of each operation: as many work requests.
    ranges: u64,
}

impl Round {
    /// One, or 32: as two operations of 16 ranges each, or one each.
    pub const ALL: [(&'static str, Self); 3] = [
        ("one", Self { operations: 1, ranges: 1 }),
        ("list", Self { operations: 2, ranges: 16 }),
        ("each", Self { operations: 32, ranges: 1 }),
    ];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, round)| *round)
    }
}

/// Runs at least so many WRITEs, a round at a time. Returns what the program prints.
///
/// # Errors
/// What the engine or the system refuses.
pub fn run<D: Device>(device: D, round: Round, writes: u64) -> Result<String, Box<dyn Error>> {
    let Round { operations, ranges } = round;
    let options = usual_options().transfer_depth(operations as u32).transfer_operations(ranges as u32);
    let mut requester = Requester::open(device, &options)?;
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
        if done == begun && done < writes {
            for cookie in 0..operations {
                engine.write(connection, &WriteRequest { local: &local, remote: &remote, cookie })?;
            }
            begun += operations * ranges;
        }
        engine.flush();
    }
    Ok(format!("{done} iterations of 1 WRITE, {}", posted(&before, &engine.statistics())))
}
