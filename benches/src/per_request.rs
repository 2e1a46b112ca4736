//! Doorbells, work requests and completions per request, counted by the recorder between engine and null port (goals A10 to A12).

use crate::{
    null_device::{NullDevice, NullPort},
    requester::{MESSAGE_BYTES, Requester, usual_options},
};
use core::time::Duration;
use frwr_engine::{
    Chunk, EngineOptions, Event, RequestStatus, Submission,
    provider::{
        Access,
        record::{Counters, Recorded},
        soft::SoftProfile,
    },
};
use std::error::Error;

/// Records that nobody reads; the counters are what counts.
const RECORDS: usize = 2;

/// What `requests` requests of `mrs` registrations each do at a port, `depth` of them in flight and submitted together. With
/// `remote` the peer invalidates one of each request's keys. The counters are of the run alone; all requests have ended.
///
/// # Errors
/// What the engine or the system refuses.
pub fn run(remote: bool, mrs: u32, depth: u32, requests: u64) -> Result<Counters, Box<dyn Error>> {
    // A single range each, so that every piece takes a registration of its own.
    let device = NullDevice::new(SoftProfile::Window.capabilities(), NullPort::new(remote));
    let (device, _taps) = Recorded::new(device, RECORDS);
    let options = EngineOptions { queue_depth: depth, registrations: depth * mrs, ..usual_options() };
    let mut requester = Requester::open(device, &options)?;
    let segments = requester.pages(mrs.into(), 2);
    let (connection, engine, protocol) = (requester.connection, &mut requester.engine, &mut requester.protocol);
    let before = engine.port().counters();
    let message = [0u8; MESSAGE_BYTES];
    let (mut done, mut submitted) = (0, 0);
    while done < requests {
        engine.poll(Duration::from_nanos(done), protocol);
        while let Some(Event::Completed { status: RequestStatus::Replied(received), .. }) = engine.next_event() {
            engine.release(received);
            done += 1;
        }
        while submitted < requests && submitted - done < u64::from(depth) {
            let chunk = [Chunk { access: Access::RemoteWrite, segments: &segments }];
            let submission = Submission {
                message: &message,
                inline: &[],
                chunks: &chunk,
                invite_invalidation: remote,
                iova_cookie: 0,
                cookie: submitted,
            };
            let handle = engine.submit(connection, &submission, protocol)?;
            protocol.sent(handle);
            submitted += 1;
        }
        engine.flush();
    }
    Ok(less(engine.port().counters(), before))
}

/// What was counted since `before`.
fn less(now: Counters, before: Counters) -> Counters {
    Counters {
        doorbells: now.doorbells - before.doorbells,
        pairs: now.pairs - before.pairs,
        refused_posts: now.refused_posts - before.refused_posts,
        registers: now.registers - before.registers,
        invalidates: now.invalidates - before.invalidates,
        sends: now.sends - before.sends,
        signalled: now.signalled - before.signalled,
        send_completions: now.send_completions - before.send_completions,
        receive_completions: now.receive_completions - before.receive_completions,
        failures: now.failures - before.failures,
        receive_doorbells: now.receive_doorbells - before.receive_doorbells,
        receives: now.receives - before.receives,
        ..now
    }
}
