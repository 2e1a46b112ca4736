//! Row A21: requests per second of one core, and of two with an engine, a device and a queue pair each.

use core::hint::black_box;
use core::time::Duration;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::Barrier;
use std::time::Instant;

use frwr_engine::{
    AnnounceError, Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, Message, Protocol,
    RequestHandle, RequestStatus, Submission, control::Control, gather::Segment, mr::Grant, provider::Access,
    provider::Device, provider::soft::SoftProfile,
};
use frwr_mempool::{
    Region,
    region::{PagePolicy, RegionOptions},
};

use crate::{
    arguments::unknown,
    cores::on_each,
    null_device::{NullDevice, NullPort},
};

/// Requests per iteration of the engine.
const BATCH: u64 = 32;
/// Bytes of the one page that a request opens.
const PAGE: u32 = 4096;
/// Words of the floor's memory: it stays in the first cache.
const WORDS: usize = 512;

/// Replies come in order: the oldest request is meant.
struct InOrder(VecDeque<RequestHandle>);

impl Protocol for InOrder {
    fn announce(&mut self, message: &mut [u8], grants: &[Grant]) -> Result<(), AnnounceError> {
        let grant = grants.first().ok_or(AnnounceError)?;
        let place = message.get_mut(24..36).ok_or(AnnounceError)?;
        place[..8].copy_from_slice(&grant.address.to_le_bytes());
        place[8..].copy_from_slice(&grant.key.to_le_bytes());
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        self.0.pop_front().map_or(Message::Malformed, Message::Reply)
    }
}

/// What one core has; nothing of it is another's.
struct Core {
    engine: Engine<<NullDevice<NullPort> as Device>::Port>,
    connection: ConnectionId,
    protocol: InOrder,
    segments: Vec<[Segment; 1]>,
    // Mapped as long as the engine lives; Control too, whose lanes the engine looks into.
    _held: (Region, Control<NullDevice<NullPort>>),
}

impl Core {
    fn open() -> Result<Self, Box<dyn Error>> {
        let mut control = Control::new(NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(true)));
        let capabilities = *control.device().capabilities();
        let options = EngineOptions { connections: 1, queue_depth: 32, ..EngineOptions::default() };
        let bytes =
            Engine::<<NullDevice<NullPort> as Device>::Port>::region_bytes(&options, &capabilities)? + (1 << 20);
        let mut region = Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Ladder { allow_plain: true }))?;
        let (port, link) = control.open_core(0, 0)?;
        let mut engine = Engine::new(port, link, &mut region, options, &capabilities)?;
        let memory = engine.add_memory(region.carve(1 << 18, PAGE as usize)?.into_device_memory())?;
        let connect = ConnectionOptions { peer_receives: 32, ..ConnectionOptions::default() };
        let connection = engine.connect("127.0.0.1:1".parse()?, b"", &connect)?;
        let mut protocol = InOrder(VecDeque::with_capacity(2 * BATCH as usize));
        while !engine.is_ready(connection) {
            control.poll();
            engine.poll(Duration::ZERO, &mut protocol);
            while engine.next_event().is_some() {}
            engine.flush();
        }
        let segment = |at| [Segment { memory, offset: at * u64::from(PAGE), length: PAGE }];
        let segments = (0..BATCH).map(segment).collect();
        Ok(Self { engine, connection, protocol, segments, _held: (region, control) })
    }

    fn requests(&mut self, requests: u64) -> Result<(), Box<dyn Error>> {
        let (message, mut done, mut submitted) = ([0u8; 64], 0, 0);
        while done < requests {
            self.engine.poll(Duration::from_nanos(done), &mut self.protocol);
            while let Some(event) = self.engine.next_event() {
                if let Event::Completed { status: RequestStatus::Replied(received), .. } = event {
                    self.engine.release(received);
                    done += 1;
                }
            }
            while submitted < requests && submitted - done < BATCH {
                let segments = &self.segments[(submitted % BATCH) as usize];
                let chunk = [Chunk { access: Access::RemoteWrite, segments }];
                let submission = Submission {
                    message: &message,
                    inline: &[],
                    chunks: &chunk,
                    invite_invalidation: true,
                    iova_cookie: 0,
                    cookie: submitted,
                };
                let handle = self.engine.submit(self.connection, &submission, &mut self.protocol)?;
                self.protocol.0.push_back(handle);
                submitted += 1;
            }
            self.engine.flush();
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
