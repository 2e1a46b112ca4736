//! Doorbells, work requests and completions per request, counted by the recorder between engine and null port (goals A10 to A12).

use crate::{
    null_device::{NullDevice, NullPort},
    requester::{self, InOrder, Load, MESSAGE_BYTES, Requester, usual_options},
};
use frwr_engine::{
    Chunk, Engine, Submission,
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
    let options = usual_options().queue_depth(depth).registrations(depth * mrs);
    let mut requester = Requester::open(device, &options)?;
    let segments = requester.pages(mrs.into(), 2);
    let (connection, engine, protocol) = (requester.connection, &mut requester.engine, &mut requester.protocol);
    let before = engine.port().counters();
    let message = [0u8; MESSAGE_BYTES];
    let submit = |engine: &mut Engine<_>, protocol: &mut InOrder, at: u64| {
        let chunk = [Chunk { access: Access::RemoteWrite, segments: &segments }];
        let submission = Submission {
            message: &message,
            inline: &[],
            chunks: &chunk,
            invite_invalidation: remote,
            iova_cookie: 0,
            cookie: at,
        };
        let handle = engine.submit(connection, &submission, protocol)?;
        protocol.sent(handle);
        Ok(())
    };
    requester::run(engine, protocol, Load { requests, batch: depth.into() }, submit, || {})?;
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
