//! Row A21: requests per second of one core, and of two with an engine, a device and a queue pair each.

use core::hint::black_box;
use core::time::Duration;
use std::error::Error;
use std::sync::Barrier;
use std::time::Instant;

use frwr_engine::{
    Chunk, Event, RequestStatus, Submission,
    gather::Segment,
    provider::{Access, soft::SoftProfile},
};

use crate::{
    arguments::unknown,
    cores::on_each,
    null_device::{NullDevice, NullPort},
    requester::{MESSAGE_BYTES, Requester, usual_options},
};

/// Requests per iteration of the engine.
const BATCH: u64 = 32;
/// Words of the floor's memory: it stays in the first cache.
const WORDS: usize = 512;

/// What one core has; nothing of it is another's.
struct Core {
    requester: Requester<NullDevice<NullPort>>,
    segments: Vec<Segment>,
}

impl Core {
    fn open() -> Result<Self, Box<dyn Error>> {
        let device = NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(true));
        let requester = Requester::open(device, &usual_options())?;
        let segments = requester.pages(BATCH, 1);
        Ok(Self { requester, segments })
    }

    fn requests(&mut self, requests: u64) -> Result<(), Box<dyn Error>> {
        let Requester { engine, connection, protocol, .. } = &mut self.requester;
        let (message, mut done, mut submitted) = ([0u8; MESSAGE_BYTES], 0, 0);
        while done < requests {
            engine.poll(Duration::from_nanos(done), protocol);
            // Anything else than a reply ends the run: `done` would never get there.
            while let Some(Event::Completed { status: RequestStatus::Replied(received), .. }) = engine.next_event() {
                engine.release(received);
                done += 1;
            }
            while submitted < requests && submitted - done < BATCH {
                let at = (submitted % BATCH) as usize;
                let segments = &self.segments[at..=at];
                let chunk = [Chunk { access: Access::RemoteWrite, segments }];
                let submission = Submission {
                    message: &message,
                    inline: &[],
                    chunks: &chunk,
                    invite_invalidation: true,
                    iova_cookie: 0,
                    cookie: submitted,
                };
                let handle = engine.submit(*connection, &submission, protocol)?;
                protocol.sent(handle);
                submitted += 1;
            }
            engine.flush();
        }
        Ok(())
    }
}

/// Requests per second of this many cores together, `requests` on each: of the "engine", or of a "floor" that only computes on
/// memory of its own and so shows what the machine's second core is worth.
///
/// # Errors
/// A text: a name that is neither, a core that cannot be had, or what the engine refuses.
pub fn run(what: &str, cores: usize, requests: u64) -> Result<f64, String> {
    let seconds = match what {
        "engine" => on_each(cores, |_, barrier| engine(requests, barrier))?,
        "floor" => on_each(cores, |_, barrier| floor(requests, barrier))?,
        _ => return Err(unknown(what, "engine, floor")),
    };
    let slowest = seconds.into_iter().try_fold(0.0, |slowest: f64, core| core.map(|core| slowest.max(core)))?;
    Ok(requests as f64 * cores as f64 / slowest)
}

fn engine(requests: u64, barrier: &Barrier) -> Result<f64, String> {
    let core = Core::open();
    barrier.wait();
    let mut core = core.map_err(|error| error.to_string())?;
    let began = Instant::now();
    core.requests(requests).map_err(|error| error.to_string())?;
    Ok(began.elapsed().as_secs_f64())
}

fn floor(requests: u64, barrier: &Barrier) -> Result<f64, String> {
    let mut words = vec![1_u64; WORDS];
    barrier.wait();
    let began = Instant::now();
    for request in 0..requests {
        let mut carried = request;
        for word in black_box(&mut words).iter_mut() {
            carried = carried.rotate_left(5) ^ *word;
            *word = carried;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}
