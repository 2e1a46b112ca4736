//! What a request costs on a core that has many connections, and what a connection costs that has nothing to do (goal A25).
//!
//! `connections-cost MODE CONNECTIONS REQUESTS` makes that many connections ready and runs that many requests of one page, whose key the
//! peer invalidates, eight per iteration. Count it with callgrind at two numbers of requests and divide the difference. Modes:
//!
//! * `one`: all of one connection, while the others have nothing to do.
//! * `turns`: each of the next connection, so that an iteration's requests are of eight.
//! * `end`: no requests, but the ends of that many connections, one behind the other, while the others have nothing to
//!   do: all that the core and Control do from `Engine::disconnect` to the event.
//! * `bytes`: none; prints what a connection has of memory at a depth of 32, its receives apart.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use frwr_benches::{
    null_device::NullDevice,
    null_queue_pairs::NullQueuePairs,
    requester::{self, InOrder, Load, MESSAGE_BYTES, Requester, posted, usual_options, write_grant},
};
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, Engine, EngineOptions, Event, Message, Protocol, RequestHandle,
    Submission,
    provider::{Access, Capabilities, soft::SoftProfile},
};
use std::{collections::VecDeque, error::Error};

/// Requests of an iteration, and of one connection at a time.
const BATCH: u64 = 8;
/// That of most hosts.
const USUAL_DEPTH: u32 = 32;
/// Steps within which a connection is gone: each of its MRs is destroyed by a command of its own.
const STEPS_TO_END: u32 = 1_000;
/// Connections between two readings of what memory they take: each takes the same.
const MORE: u16 = 64;

#[global_allocator]
static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, connections, requests] = &arguments[..] else {
        return Err("usage: connections-cost one|turns|end|bytes CONNECTIONS REQUESTS".into());
    };
    let most = if mode == "bytes" { u16::MAX - MORE } else { u16::MAX };
    let connections = connections.parse().ok().filter(|asked| (1..=most).contains(asked)).ok_or_else(|| {
        format!("CONNECTIONS is {connections}, but must be 1 to {most} for `{mode}`; name a number inside")
    })?;
    let requests: u64 = requests.parse()?;
    match mode.as_str() {
        "one" => Core::open(connections, BATCH as u32)?.run(1, requests),
        "turns" => Core::open(connections, BATCH as u32)?.run(connections.into(), requests),
        "end" => Core::open(connections, BATCH as u32)?.end(requests),
        "bytes" => {
            let (few, many) = (bytes(connections)?, bytes(connections + MORE)?);
            println!("bytes {}", (many - few) / usize::from(MORE));
            Ok(())
        }
        other => Err(format!("the mode is {other}, but must be one, turns, end or bytes").into()),
    }
}

/// Replies of each connection come in order; what is posted first of several is for the engine to decide.
#[derive(Default)]
struct InOrderOfEach(Vec<VecDeque<RequestHandle>>);

impl InOrderOfEach {
    fn sent(&mut self, connection: ConnectionId, handle: RequestHandle) {
        let index = usize::from(connection.index);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, VecDeque::new);
        }
        self.0[index].push_back(handle);
    }
}

impl Protocol for InOrderOfEach {
    const CLASSIFIED_BYTES: usize = InOrder::CLASSIFIED_BYTES;

    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let grant = announced.grants().first().ok_or(AnnounceError)?;
        write_grant(message.first_chunk_mut().ok_or(AnnounceError)?, grant);
        Ok(())
    }

    fn classify(&mut self, connection: ConnectionId, _: &[u8], _: u32) -> Message {
        let oldest = self.0.get_mut(usize::from(connection.index)).and_then(VecDeque::pop_front);
        oldest.map_or(Message::Malformed, Message::Reply)
    }
}

/// An engine, and its connections, all ready.
struct Core {
    requester: Requester<NullDevice<NullQueuePairs>, InOrderOfEach>,
    connections: Vec<ConnectionId>,
}

/// Of a device whose completion queues are long enough for all.
fn capabilities() -> Capabilities {
    let mut capabilities = SoftProfile::RegMr.capabilities();
    capabilities.attributes.max_cqe = 1 << 22;
    capabilities
}

fn options(connections: u16, queue_depth: u32) -> EngineOptions {
    usual_options().connections(connections).queue_depth(queue_depth).message_bytes(MESSAGE_BYTES as u32)
}

impl Core {
    fn open(connections: u16, queue_depth: u32) -> Result<Self, Box<dyn Error>> {
        let options = options(connections, queue_depth);
        let port = NullQueuePairs::new(connections.into(), true);
        let mut requester = Requester::with_protocol(NullDevice::new(capabilities(), port), &options)?;
        let mut all = vec![requester.connection];
        for _ in 1..connections {
            all.push(requester.connect(&options)?);
        }
        Ok(Self { requester, connections: all })
    }

    /// Requests of the first `active` connections in turns.
    #[inline(never)]
    fn run(mut self, active: usize, requests: u64) -> Result<(), Box<dyn Error>> {
        let segments = self.requester.pages(BATCH, 1);
        let (engine, protocol) = (&mut self.requester.engine, &mut self.requester.protocol);
        let before = engine.statistics();
        let message = [0u8; MESSAGE_BYTES];
        let mut turn = 0;
        let submit = |engine: &mut Engine<NullQueuePairs>, protocol: &mut InOrderOfEach, of_all: u64| {
            let at = (of_all % BATCH) as usize;
            let chunk = [Chunk { access: Access::RemoteWrite, segments: &segments[at..=at] }];
            let submission = Submission {
                message: &message,
                inline: &[],
                chunks: &chunk,
                invite_invalidation: true,
                iova_cookie: 0,
                cookie: of_all,
            };
            let connection = self.connections[turn];
            let handle = engine.submit(connection, &submission, protocol)?;
            protocol.sent(connection, handle);
            turn = if turn + 1 == active { 0 } else { turn + 1 };
            Ok(())
        };
        let done = requester::run(engine, protocol, Load { requests, batch: BATCH }, submit, || {})?;
        println!("{done} iterations of 1 request, {}", posted(&before, &engine.statistics()));
        Ok(())
    }
}

impl Core {
    /// Ends the first connections, each when the one before it is gone.
    #[inline(never)]
    fn end(mut self, count: u64) -> Result<(), Box<dyn Error>> {
        let ended = usize::try_from(count)?;
        let ending = self.connections.get(..ended).ok_or("CONNECTIONS are fewer than are to end")?;
        for connection in ending {
            self.requester.engine.disconnect(*connection);
            let mut steps = 0..STEPS_TO_END;
            while !self.requester.engine.next_event().is_some_and(|event| is_end_of(&event, *connection)) {
                steps.next().ok_or("a connection does not end")?;
                self.requester.step();
            }
        }
        println!("{count} iterations of 1 end");
        Ok(())
    }
}

fn is_end_of(event: &Event, of: ConnectionId) -> bool {
    matches!(event, Event::Disconnected { connection, .. } if *connection == of)
}

/// What is allocated with so many connections ready, and what they have of the region, their receives apart.
fn bytes(connections: u16) -> Result<usize, Box<dyn Error>> {
    let before = frwr_allocations::live_bytes();
    let core = Core::open(connections, USUAL_DEPTH)?;
    let options = options(connections, USUAL_DEPTH);
    let of_region = Engine::<NullQueuePairs>::region_bytes(&options, &capabilities())?;
    let buffers = core.requester.engine.receive_buffers();
    let receives = (buffers.posted + buffers.held + buffers.idle) as usize * MESSAGE_BYTES;
    Ok(frwr_allocations::live_bytes() - before + of_region - receives)
}
