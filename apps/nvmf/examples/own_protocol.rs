//! A protocol of one's own over engine and reactors, without NVMe: a server's core keeps pages, a client's core writes and reads them.
//!
//! For each command the client opens one page of its memory and sends the key. What it writes the server fetches by RDMA READ, what
//! it reads the server brings by RDMA WRITE; the reply kills the key on arrival. The main thread runs Control for both.

use frwr_engine::provider::soft::{SoftFabric, SoftOptions, SoftPort};
use frwr_engine::{
    Access, AnnounceError, Announcement, Chunk, ConnectionId, ConnectionOptions, Control, Engine, EngineBuilder,
    EngineOptions, Event, FetchRequest, MemoryAccess, MemoryId, Message, Protocol, RemoteRange, RemoteSegment,
    RequestHandle, RequestStatus, ResponseRequest, Segment, Submission, Timestamp, TransferStatus,
};
use frwr_mempool::{DeviceMemory, PagePolicy, Region, RegionOptions};
use frwr_reactor::{
    Context, CoreIndex, Now, Outbox, Placement, Poller, Reactor, Reactors, Schedule, Seat, ShutdownHandle, Sleep,
    Source,
};
use std::{convert::Infallible, time::Duration};

const ADDRESS: &str = "10.0.0.1:7000";
const SERVER: CoreIndex = CoreIndex(0);
const PAGE: usize = 4096;
const PAGES: u32 = 64;
/// Commands in flight, a part of the protocol: both sides know how many a client may send before the first reply.
const DEPTH: u32 = 8;
/// A command is slot, page, whether to write, key and address; a reply is the slot.
const COMMAND: usize = 24;
/// How long the cores may drain at the end.
const GRACE: Duration = Duration::from_secs(10);

/// Whatever may go wrong.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Number `index` of four bytes in a message; what is not there is 0.
fn number(message: &[u8], index: usize) -> u32 {
    message.as_chunks().0.get(index).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// What a page is to hold.
fn pattern(page: u32) -> Vec<u8> {
    (0..PAGE as u32).map(|at| (at / 7 + 31 * page + 1) as u8).collect()
}

/// Engine and memory of a core. Its data are pages: the server's store, or one for each slot of the client.
struct Side {
    engine: Engine<SoftPort>,
    memory: MemoryId,
    data: DeviceMemory,
}

impl Side {
    fn new(builder: EngineBuilder<SoftPort>, node: Option<u32>, pages: u32) -> Result<Self, Error> {
        let data = pages as usize * PAGE;
        let bytes = builder.region_bytes() + data + PAGE;
        let pages = PagePolicy::Ladder { allow_plain: true };
        let mut region = Region::map(&RegionOptions::new(bytes).pages(pages).node(node))?;
        let mut engine = builder.build(&mut region)?;
        let data = region.carve(data, PAGE)?.into_device_memory();
        // Before there is a connection: those that are open would not have it.
        let memory = engine.add_memory(data.clone(), MemoryAccess::ReadWrite)?;
        Ok(Self { engine, memory, data })
    }

    fn page(&self, page: u32) -> Segment {
        Segment { memory: self.memory, offset: u64::from(page) * PAGE as u64, length: PAGE as u32 }
    }

    fn server_event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Incoming { incoming, .. } => {
                self.engine.accept(incoming, b"", &ConnectionOptions::default())?;
            }
            Event::Received { connection, received } => {
                let mut command = [0; COMMAND];
                let length = self.engine.message(&received, 0, &mut command);
                // At once: the client may use this receive when it has the reply.
                self.engine.release(received);
                let [slot, page, writes, key] = [0, 1, 2, 3].map(|index| number(&command, index));
                let address = u64::from(number(&command, 4)) | u64::from(number(&command, 5)) << 32;
                if length != COMMAND || page >= PAGES {
                    self.engine.disconnect(connection);
                    return Ok(());
                }
                let (local, cookie) = (&[self.page(page)], u64::from(slot) << 32 | u64::from(key));
                let remote = &[RemoteSegment { remote: RemoteRange { address, key }, length: PAGE as u32 }];
                match writes {
                    0 => self.reply(cookie, local, remote)?,
                    _ => self.engine.fetch(connection, &FetchRequest { local, remote, cookie })?,
                }
            }
            Event::Fetched { cookie, status: TransferStatus::Done } => self.reply(cookie, &[], &[])?,
            // What is lost ends with its connection.
            _ => {}
        }
        Ok(())
    }

    /// Answers a command of the only client, behind the data that it asked for.
    fn reply(&mut self, cookie: u64, local: &[Segment], remote: &[RemoteSegment]) -> Result<(), Error> {
        let (slot, key) = ((cookie >> 32) as u32, cookie as u32);
        let (message, invalidate) = (&slot.to_le_bytes(), Some(key));
        let connection = self.engine.connections().next().ok_or("no connection")?;
        Ok(self.engine.respond(connection, &ResponseRequest { local, remote, message, invalidate, cookie })?)
    }
}

/// The server asks nothing of anybody: all it receives are commands.
struct Commands;

impl Protocol for Commands {
    const CLASSIFIED_BYTES: usize = 0;

    fn announce(&mut self, _: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
        Err(AnnounceError)
    }

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        Message::Command
    }
}

/// The client's requests by slot: the name that commands and replies carry.
struct Slots([RequestHandle; DEPTH as usize]);

impl Protocol for Slots {
    const CLASSIFIED_BYTES: usize = 16;

    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let grant = announced.grants().first().ok_or(AnnounceError)?;
        message[12..16].copy_from_slice(&grant.key.to_le_bytes());
        message[16..24].copy_from_slice(&grant.address.to_le_bytes());
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, prefix: &[u8], _: u32) -> Message {
        Message::Reply(self.0.get(number(prefix, 0) as usize).copied().unwrap_or(RequestHandle::NONE))
    }
}

struct Client {
    slots: Slots,
    free: Vec<u32>,
    connection: ConnectionId,
    /// Commands submitted and done: first each page is written, then each is read.
    next: u32,
    done: u32,
}

impl Client {
    fn event(&mut self, side: &mut Side, event: Event, shutdown: &ShutdownHandle) -> Result<(), Error> {
        match event {
            Event::Connected { .. } => self.submit(side),
            // The key is dead: nobody changes the page any more.
            Event::Completed { cookie, status: RequestStatus::Replied(reply), .. } => {
                side.engine.release(reply);
                let (slot, page) = ((cookie >> 32) as u32, cookie as u32 % PAGES);
                let mut data = [0; PAGE];
                side.data.read(slot as usize * PAGE, &mut data)?;
                if data[..] != pattern(page) {
                    return Err(format!("page {page} came back with other bytes").into());
                }
                self.free.push(slot);
                self.done += 1;
                self.submit(side)
            }
            Event::Disconnected { .. } if self.done == 2 * PAGES => {
                shutdown.request(GRACE);
                Ok(())
            }
            other => Err(format!("{other:?}").into()),
        }
    }

    /// Submits while there are slots. Nothing is posted before the flush, which rings one doorbell for all.
    fn submit(&mut self, side: &mut Side) -> Result<(), Error> {
        if self.done == 2 * PAGES {
            side.engine.disconnect(self.connection);
        }
        while self.next < PAGES || (self.done >= PAGES && self.next < 2 * PAGES) {
            let Some(slot) = self.free.pop() else { break };
            let (page, writes) = (self.next % PAGES, self.next < PAGES);
            let bytes = if writes { pattern(page) } else { vec![0; PAGE] };
            side.data.write(slot as usize * PAGE, &bytes)?;
            let mut message = [0; COMMAND];
            for (into, number) in message.chunks_exact_mut(4).zip([slot, page, u32::from(writes)]) {
                into.copy_from_slice(&number.to_le_bytes());
            }
            let access = if writes { Access::RemoteRead } else { Access::RemoteWrite };
            let submission = Submission {
                message: &message,
                inline: &[],
                chunks: &[Chunk { access, segments: &[side.page(slot)] }],
                invite_invalidation: true,
                iova_cookie: self.next,
                cookie: u64::from(slot) << 32 | u64::from(self.next),
            };
            self.slots.0[slot as usize] = side.engine.submit(self.connection, &submission, &mut self.slots)?;
            self.next += 1;
        }
        Ok(())
    }
}

/// What a core has. All reactors that are started together have one type of context: here the client's has what it asked.
struct Core {
    side: Side,
    client: Option<Client>,
    shutdown: ShutdownHandle,
}

impl Context for Core {
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: &Now) {
        match message {}
    }
}

/// The poller of a core.
struct Turn;

impl Poller<Core> for Turn {
    fn poll(&mut self, core: &mut Core, now: &Now) -> u32 {
        let Core { side, client, shutdown } = core;
        let now = Timestamp::from_nanoseconds(now.nanoseconds());
        let work = match client {
            Some(client) => side.engine.poll(now, &mut client.slots),
            None => side.engine.poll(now, &mut Commands),
        };
        while let Some(event) = side.engine.next_event() {
            let done = match client {
                Some(client) => client.event(side, event, shutdown),
                None => side.server_event(event),
            };
            if let Err(error) = done {
                eprintln!("{error}");
                shutdown.request(GRACE);
            }
        }
        work
    }

    fn flush(&mut self, core: &mut Core, _: &Now) {
        core.side.engine.flush();
    }

    fn sleep_until(&self, _: &Core) -> Sleep {
        // A peer's messages come unannounced.
        Sleep::Busy
    }

    fn begin_shutdown(&mut self, core: &mut Core, _: &Now) {
        for connection in core.side.engine.connections().collect::<Vec<_>>() {
            core.side.engine.disconnect(connection);
        }
    }

    fn drained(&self, core: &Core) -> bool {
        core.side.engine.is_disconnected()
    }
}

/// On the core's own thread, so that its memory is near.
fn start(seat: Seat<Infallible>, opened: EngineBuilder<SoftPort>) -> Result<Reactor<Core>, Error> {
    let serves = seat.core() == SERVER;
    let mut side = Side::new(opened, seat.node(), if serves { PAGES } else { DEPTH })?;
    let client = if serves {
        side.engine.listen(ADDRESS.parse()?)?;
        None
    } else {
        let options = ConnectionOptions::default().peer_receives(DEPTH);
        let connection = side.engine.connect(ADDRESS.parse()?, b"", &options)?;
        let slots = Slots([RequestHandle::NONE; DEPTH as usize]);
        Some(Client { slots, free: (0..DEPTH).collect(), connection, next: 0, done: 0 })
    };
    let shutdown = seat.shutdown_handle();
    let mut reactor = seat.reactor(Core { side, client, shutdown });
    reactor.add("engine", Schedule::Busy, Turn)?;
    Ok(reactor)
}

/// Runs both cores until every page was written and read back.
pub(crate) fn main() -> Result<(), Error> {
    let fabric = SoftFabric::new();
    let mut controls = [(); 2].map(|()| Control::new(fabric.device(SoftOptions::default())));
    let common = EngineOptions::default().connections(1).message_bytes(COMMAND as u32);
    let server = common.clone().queue_depth(0).transfer_depth(DEPTH).receive_depth(DEPTH);
    let client = common.queue_depth(DEPTH);
    let mut opened = [controls[0].open_engine(server)?, controls[1].open_engine(client)?].into_iter();
    let prepare = |_| {
        let opened = opened.next();
        move |seat: Seat<Infallible>, _: Outbox<Infallible>| start(seat, opened.ok_or("no port")?)
    };
    // On cores of their own: Placement::Spread.
    let running = Reactors::new(Placement::Unpinned { reactors: 2 }).launch(prepare)?;
    // The cores need Control also to drain: it is polled until they have ended, not until they are asked to.
    while !running.is_finished() {
        if controls.iter_mut().map(Control::poll).sum::<u32>() == 0 {
            std::thread::yield_now();
        }
    }
    for ended in running.join() {
        let finished = ended?;
        let (core, engine) = (finished.core, finished.context.side.engine.statistics());
        println!(
            "core {core}: {} requests, {} transfers, {} doorbells",
            engine.requests, engine.transfers, engine.doorbells
        );
        let done = finished.context.client.is_none_or(|client| client.done == 2 * PAGES);
        if !done || !finished.report.undrained.is_empty() {
            return Err(format!("core {core} did not finish").into());
        }
    }
    Ok(())
}
