//! FRWR without our reactor: a plain loop, one thread, and memory that the program allocated.
//!
//! A host opens a page to a target and sends it the key; the target fills the page by RDMA WRITE and kills the key.
#![allow(clippy::print_stdout, reason = "a program that tells what it does")]
#![allow(clippy::disallowed_methods, reason = "the engine reads no clock, its loop does")]

use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_engine::provider::{Access, RemoteRange};
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, MemoryAccess,
    Message, Protocol, RemoteSegment, RequestHandle, RequestStatus, ResponseRequest, Submission, control::Control,
    gather::Segment,
};
use frwr_mempool::{DeviceMemory, Region};
use std::{error::Error, time::Duration, time::Instant};

const ADDRESS: &str = "127.0.0.1:4420";
const PAGE: usize = 4096;
const REQUESTS: u64 = 3;
type Outcome = Result<(), Box<dyn Error>>;

/// The upper protocol. A command is one grant. One request at a time, so a reply needs no name.
struct Page(Option<RequestHandle>);

impl Protocol for Page {
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let grant = announced.grants().first().ok_or(AnnounceError)?;
        message[..8].copy_from_slice(&grant.address.to_le_bytes());
        message[8..12].copy_from_slice(&grant.key.to_le_bytes());
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        self.0.map_or(Message::Command, Message::Reply)
    }
}

struct Side {
    control: Control<SoftDevice>,
    engine: Engine<SoftPort>,
    page: Segment,
    data: DeviceMemory,
    protocol: Page,
    connection: Option<ConnectionId>,
}

fn side(fabric: &SoftFabric, options: EngineOptions) -> Result<Side, Box<dyn Error>> {
    let mut control = Control::new(fabric.device(SoftOptions::default()));
    let builder = control.open_engine(options)?;
    let mut region = Region::from_owned(vec![0; builder.region_bytes() + 2 * PAGE]);
    let mut engine = builder.build(&mut region)?;
    let data = region.carve(PAGE, PAGE)?.into_device_memory();
    let page =
        Segment { memory: engine.add_memory(data.clone(), MemoryAccess::ReadWrite)?, offset: 0, length: PAGE as u32 };
    Ok(Side { control, engine, page, data, protocol: Page(None), connection: None })
}

impl Side {
    /// One turn of the loop; the engine never reads a clock. Control makes the system calls: give it another thread.
    fn turn(&mut self, now: Duration, on: fn(&mut Self, Event) -> Outcome) -> Outcome {
        self.control.poll();
        self.engine.poll(now, &mut self.protocol);
        while let Some(event) = self.engine.next_event() {
            on(self, event)?;
        }
        self.engine.flush();
        Ok(())
    }

    /// Opens the page for writing and sends its key; both are posted by the next flush, with one doorbell.
    fn submit(&mut self, connection: ConnectionId, number: u64) -> Outcome {
        let submission = Submission {
            message: &[0; 12],
            inline: &[],
            chunks: &[Chunk { access: Access::RemoteWrite, segments: &[self.page] }],
            invite_invalidation: true,
            iova_cookie: number as u32,
            cookie: number,
        };
        self.protocol.0 = Some(self.engine.submit(connection, &submission, &mut self.protocol)?);
        Ok(())
    }
}

fn on_host(host: &mut Side, event: Event) -> Outcome {
    let mut first = [0];
    match event {
        Event::Connected { connection, .. } => host.submit(connection, 1)?,
        // The key is dead: nobody changes the page any more.
        Event::Completed { cookie, status: RequestStatus::Replied(reply), .. } => {
            host.engine.release(reply);
            host.data.read(0, &mut first)?;
            println!("request {cookie}: the page is full of {first:?}");
            match host.connection.ok_or("not connected")? {
                connection if cookie < REQUESTS => host.submit(connection, cookie + 1)?,
                connection => host.engine.disconnect(connection),
            }
        }
        other => println!("{other:?}"),
    }
    Ok(())
}

fn on_target(target: &mut Side, event: Event) -> Outcome {
    match event {
        Event::Incoming { incoming, .. } => {
            target.connection = Some(target.engine.accept(incoming, b"", &ConnectionOptions::default())?);
        }
        Event::Received { connection, received } => {
            let mut command = [0; 12];
            target.engine.message(&received, 0, &mut command);
            target.engine.release(received);
            let address = u64::from_le_bytes(command[..8].try_into()?);
            let key = u32::from_le_bytes(command[8..].try_into()?);
            target.data.fill(0, PAGE, key as u8)?;
            let remote = &[RemoteSegment { remote: RemoteRange { address, key }, length: target.page.length }];
            // The write, and behind it a reply that kills the host's key on arrival (SEND_WITH_INV).
            let (local, invalidate) = (&[target.page], Some(key));
            let reply = ResponseRequest { local, remote, message: b"done", invalidate, cookie: 0 };
            target.engine.respond(connection, &reply)?;
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn main() -> Outcome {
    let (fabric, started) = (SoftFabric::new(), Instant::now());
    let common = EngineOptions::default().connections(1).queue_depth(1);
    let mut host = side(&fabric, common.clone())?;
    let mut target = side(&fabric, common.transfer_depth(8))?;
    target.engine.listen(ADDRESS.parse()?)?;
    let options = ConnectionOptions::default().peer_receives(1);
    host.connection = Some(host.engine.connect(ADDRESS.parse()?, b"", &options)?);
    while !(host.engine.is_disconnected() && target.engine.is_disconnected()) {
        target.turn(started.elapsed(), on_target)?;
        host.turn(started.elapsed(), on_host)?;
    }
    println!("{REQUESTS} requests, {} doorbells", host.engine.statistics().doorbells);
    Ok(())
}
