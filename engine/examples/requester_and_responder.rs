//! A protocol like RPC-over-RDMA, without a reactor: both ends of one connection call each other.
//!
//! A call opens three chunks: the peer reads its arguments from the first, writes bulk data into the second and a long reply into the
//! third. Each reply says how many calls its sender takes from then on, and a message that nobody answers takes that back in the end.
//! Then both withdraw their memory, while the connection goes on.
#![allow(clippy::print_stdout, reason = "a program that tells what it does")]
#![allow(clippy::disallowed_methods, reason = "the engine reads no clock, its loop does")]

use frwr_engine::{
    Access, AnnounceError, Announcement, Chunk, ConnectionId, ConnectionOptions, Control, Engine, EngineOptions, Event,
    FetchRequest, MemoryAccess, Message, Protocol, Received, RemoteRange, RemoteSegment, RequestHandle, RequestStatus,
    ResponseRequest, Segment, SendRequest, Submission,
    provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort},
};
use frwr_mempool::{DeviceMemory, Region};
use std::{error::Error, time::Instant};

const ADDRESS: &str = "127.0.0.1:2049";
/// Calls of each side.
const CALLS: u32 = 12;
/// Calls of one side at a time: each has a slot, whose number is its name in messages.
const SLOTS: usize = 4;
/// Calls that a side takes at first, and at last. With one receive less neither end could say that it has obeyed, as the news that it
/// sent itself still has the one that is left.
const FEWEST: u32 = 2;
/// Turns of the loop behind which something is wrong.
const TURNS: u32 = 1_000_000;
/// Bytes of a slot's memory, for calls of ours and behind those for calls of the peer.
const SLOT_BYTES: usize = 16 << 10;
/// Arguments: two pieces with a gap between them.
const ARGUMENTS: [(usize, u32); 2] = [(0, 1000), (4096, 500)];
const BULK: (usize, u32) = (8192, 1500);
const LONG_REPLY: (usize, u32) = (12288, 8);
/// Kind, slot, calls that the sender takes, grants of each chunk; then the grants.
const HEADER: usize = 16;
const GRANT: usize = 16;
const MESSAGE: usize = HEADER + 8 * GRANT;
const CALL: u32 = 0;
const REPLY: u32 = 1;
/// The sender takes fewer calls from now on; nobody answers.
const CREDITS: u32 = 2;
/// The sender has obeyed, and has posted the receive again that it was told in; nobody answers that either.
const OBEYED: u32 = 3;

type Outcome = Result<(), Box<dyn Error>>;

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(u32::MAX, u32::from_le_bytes)
}

fn header(kind: u32, slot: u32, credits: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (place, word) in bytes.chunks_mut(4).zip([kind, slot, credits]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The upper protocol: the handles of our calls by their slots.
struct Rpc([RequestHandle; SLOTS]);

impl Protocol for Rpc {
    /// Chunk by chunk, as many grants as each has. The slot is the call's cookie.
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let (header, mut list) = message.split_at_mut_checked(HEADER).ok_or(AnnounceError)?;
        for (count, chunk) in header[12..].iter_mut().zip(announced.chunks()) {
            *count = chunk.grants.len() as u8;
            for grant in chunk.grants {
                let (place, behind) = list.split_at_mut_checked(GRANT).ok_or(AnnounceError)?;
                place[..8].copy_from_slice(&grant.address.to_le_bytes());
                place[8..12].copy_from_slice(&grant.length.to_le_bytes());
                place[12..].copy_from_slice(&grant.key.to_le_bytes());
                list = behind;
            }
        }
        *self.0.get_mut(announced.cookie() as usize).ok_or(AnnounceError)? = announced.request();
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, prefix: &[u8], _: u32) -> Message {
        match word(prefix, 0) {
            CALL => Message::Command,
            REPLY => Message::Reply(self.0.get(word(prefix, 4) as usize).copied().unwrap_or(RequestHandle::NONE)),
            CREDITS | OBEYED => Message::OneWay,
            _ => Message::Malformed,
        }
    }
}

/// What a caller opened, chunk by chunk.
fn chunks(message: &[u8]) -> [Vec<RemoteSegment>; 3] {
    let mut grants = message[HEADER..].chunks(GRANT).map(|grant| RemoteSegment {
        remote: RemoteRange {
            address: u64::from(word(grant, 0)) | u64::from(word(grant, 4)) << 32,
            key: word(grant, 12),
        },
        length: word(grant, 8),
    });
    core::array::from_fn(|chunk| grants.by_ref().take(message[12 + chunk].into()).collect())
}

/// One end, which calls and is called.
struct Peer {
    name: &'static str,
    control: Control<SoftDevice>,
    engine: Engine<SoftPort>,
    protocol: Rpc,
    /// Memory of `2 * SLOTS` slots.
    data: DeviceMemory,
    segments: Segment,
    connection: Option<ConnectionId>,
    begun: u32,
    ended: u32,
    served: u32,
    /// What calls of the peer opened for bulk data and long replies.
    answers: [Vec<RemoteSegment>; SLOTS],
    /// What the peer takes at most, whatever replies say that were sent in front of that.
    most: u32,
    /// The peer has obeyed.
    is_done: bool,
    /// Neither the device nor the peer reaches the data any more.
    has_memory: bool,
}

impl Peer {
    fn new(name: &'static str, fabric: &SoftFabric) -> Result<Self, Box<dyn Error>> {
        let options = EngineOptions::default()
            .connections(1)
            .queue_depth(SLOTS as u32)
            .transfer_depth(2 * SLOTS as u32)
            .transfer_operations(4)
            .registrations(4 * SLOTS as u32);
        let mut control = Control::new(fabric.device(SoftOptions::default()));
        let builder = control.open_engine(options)?;
        let bytes = 2 * SLOTS * SLOT_BYTES;
        let mut region = Region::from_owned(vec![0; builder.region_bytes() + bytes + 4096]);
        let mut engine = builder.build(&mut region)?;
        let data = region.carve(bytes, 4096)?.into_device_memory();
        let segments =
            Segment { memory: engine.add_memory(data.clone(), MemoryAccess::ReadWrite)?, offset: 0, length: 0 };
        let protocol = Rpc([RequestHandle::NONE; SLOTS]);
        let (connection, answers) = (None, [const { Vec::new() }; SLOTS]);
        Ok(Self {
            name,
            control,
            engine,
            protocol,
            data,
            segments,
            connection,
            begun: 0,
            ended: 0,
            served: 0,
            answers,
            most: u32::MAX,
            is_done: false,
            has_memory: false,
        })
    }

    fn segment(&self, slot: usize, (offset, length): (usize, u32)) -> Segment {
        Segment { offset: (slot * SLOT_BYTES + offset) as u64, length, ..self.segments }
    }

    fn turn(&mut self, started: Instant) -> Outcome {
        self.control.poll();
        self.engine.poll(started.elapsed(), &mut self.protocol);
        while let Some(event) = self.engine.next_event() {
            self.event(event)?;
        }
        self.engine.flush();
        Ok(())
    }

    fn event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Incoming { incoming, .. } => {
                self.engine.accept(incoming, b"", &options())?;
            }
            Event::Connected { connection, .. } => {
                self.connection = Some(connection);
                (0..SLOTS).try_for_each(|slot| self.call(connection, slot))?;
            }
            Event::Received { connection, received } => self.received(connection, received)?,
            Event::Fetched { cookie, .. } => self.answer(cookie as usize)?,
            Event::Completed { cookie, status: RequestStatus::Replied(reply), .. } => {
                self.replied(cookie as usize, reply)?;
            }
            Event::MemoryRemoved { .. } => {
                self.has_memory = true;
                println!("{}: has its memory back", self.name);
            }
            Event::Disconnected { cause, .. } => println!("{}: {cause}", self.name),
            _ => {}
        }
        Ok(())
    }

    /// The next call, in a slot that is free. It waits inside the engine for the peer's credits.
    fn call(&mut self, connection: ConnectionId, slot: usize) -> Outcome {
        if self.begun == CALLS {
            return Ok(());
        }
        self.begun += 1;
        for (offset, length) in ARGUMENTS {
            self.data.fill(slot * SLOT_BYTES + offset, length as usize, self.begun as u8)?;
        }
        let [arguments, more] = ARGUMENTS.map(|piece| self.segment(slot, piece));
        let (bulk, reply) = (self.segment(slot, BULK), self.segment(slot, LONG_REPLY));
        let mut message = [0; MESSAGE];
        message[..HEADER].copy_from_slice(&header(CALL, slot as u32, 0));
        let submission = Submission {
            message: &message,
            inline: &[],
            chunks: &[
                Chunk { access: Access::RemoteRead, segments: &[arguments, more] },
                Chunk { access: Access::RemoteWrite, segments: &[bulk] },
                Chunk { access: Access::RemoteWrite, segments: &[reply] },
            ],
            invite_invalidation: true,
            iova_cookie: self.begun,
            cookie: slot as u64,
        };
        self.engine.submit(connection, &submission, &mut self.protocol)?;
        Ok(())
    }

    fn received(&mut self, connection: ConnectionId, received: Received) -> Outcome {
        let mut message = [0; MESSAGE];
        self.engine.message(&received, 0, &mut message);
        self.engine.release(received);
        let (slot, credits) = (word(&message, 4) as usize, word(&message, 8));
        match word(&message, 0) {
            CALL => {
                let [arguments, bulk, reply] = chunks(&message);
                *self.answers.get_mut(slot).ok_or("no such slot")? = [bulk, reply].concat();
                let local = ARGUMENTS.map(|piece| self.segment(SLOTS + slot, piece));
                let fetch = FetchRequest { local: &local, remote: &arguments, cookie: slot as u64 };
                self.engine.fetch(connection, &fetch)?;
            }
            CREDITS => {
                self.most = credits;
                self.engine.set_peer_receives(connection, credits)?;
                println!("{}: obeys, {credits} calls at a time", self.name);
                self.send(connection, OBEYED, 0)?;
            }
            _ => {
                // The receive that took the news is posted again, and what is granted less is for replies.
                self.engine.return_peer_receives(connection, 1)?;
                self.engine.set_granted_receives(connection, FEWEST)?;
                self.is_done = true;
            }
        }
        Ok(())
    }

    fn send(&mut self, connection: ConnectionId, kind: u32, credits: u32) -> Outcome {
        let request = SendRequest { message: &header(kind, 0, credits), inline: &[], cookie: 0 };
        self.engine.send(connection, &request)?;
        Ok(())
    }

    /// The arguments are here: bulk data and long reply are written in front of the reply, which kills a key.
    fn answer(&mut self, slot: usize) -> Outcome {
        let connection = self.connection.ok_or("not connected")?;
        let start = (SLOTS + slot) * SLOT_BYTES;
        let mut sum = 0_u64;
        for (offset, length) in ARGUMENTS {
            let mut bytes = vec![0; length as usize];
            self.data.read(start + offset, &mut bytes)?;
            sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        }
        self.data.fill(start + BULK.0, BULK.1 as usize, sum as u8)?;
        self.data.write(start + LONG_REPLY.0, &sum.to_le_bytes())?;
        self.served += 1;
        // Granted in front of the message that says so.
        let credits = self.served.clamp(FEWEST, SLOTS as u32);
        self.engine.set_granted_receives(connection, credits)?;
        let local = [BULK, LONG_REPLY].map(|piece| self.segment(SLOTS + slot, piece));
        let remote = core::mem::take(&mut self.answers[slot]);
        let (message, invalidate) = (&header(REPLY, slot as u32, credits), remote.first().map(|one| one.remote.key));
        let reply = ResponseRequest { local: &local, remote: &remote, message, invalidate, cookie: slot as u64 };
        self.engine.respond(connection, &reply)?;
        if self.served == CALLS {
            self.send(connection, CREDITS, FEWEST)?;
        }
        Ok(())
    }

    /// Every key of the call is dead: nobody changes its memory any more.
    fn replied(&mut self, slot: usize, reply: Received) -> Outcome {
        let mut message = [0; HEADER];
        self.engine.message(&reply, 0, &mut message);
        self.engine.release(reply);
        let (credits, connection) = (word(&message, 8).min(self.most), self.connection.ok_or("not connected")?);
        self.engine.set_peer_receives(connection, credits)?;
        let (mut argument, mut sum, mut bulk) = ([0], [0; 8], vec![0; BULK.1 as usize]);
        let start = slot * SLOT_BYTES;
        self.data.read(start, &mut argument)?;
        self.data.read(start + LONG_REPLY.0, &mut sum)?;
        self.data.read(start + BULK.0, &mut bulk)?;
        let right = u64::from(argument[0]) * ARGUMENTS.map(|(_, length)| u64::from(length)).iter().sum::<u64>();
        if u64::from_le_bytes(sum) != right || bulk.iter().any(|&byte| byte != right as u8) {
            return Err(format!("{}: a call of {} was answered wrongly", self.name, argument[0]).into());
        }
        self.ended += 1;
        println!("{}: the sum of call {} is {right}; the peer takes {credits} calls", self.name, argument[0]);
        self.call(connection, slot)
    }
}

fn options() -> ConnectionOptions {
    ConnectionOptions::default().peer_receives(FEWEST).granted_receives(Some(FEWEST))
}

pub(crate) fn main() -> Outcome {
    let (fabric, started) = (SoftFabric::new(), Instant::now());
    let mut peers = [Peer::new("left", &fabric)?, Peer::new("right", &fabric)?];
    peers[1].engine.listen(ADDRESS.parse()?)?;
    peers[0].engine.connect(ADDRESS.parse()?, b"", &options())?;
    turn_until(&mut peers, started, |peer| peer.is_done && peer.ended == CALLS)?;
    // Withdrawn while the connection goes on; it may be unmapped as soon as that is told.
    for peer in &mut peers {
        peer.engine.remove_memory(peer.segments.memory)?;
    }
    turn_until(&mut peers, started, |peer| peer.has_memory)?;
    for peer in &mut peers {
        let connection = peer.connection.ok_or("not connected")?;
        println!("{}: {:?}", peer.name, peer.engine.connection_sizes(connection));
        peer.engine.disconnect(connection);
    }
    turn_until(&mut peers, started, |peer| peer.engine.is_disconnected())
}

fn turn_until(peers: &mut [Peer], started: Instant, done: fn(&Peer) -> bool) -> Outcome {
    for _ in 0..TURNS {
        if peers.iter().all(done) {
            return Ok(());
        }
        peers.iter_mut().try_for_each(|peer| peer.turn(started))?;
    }
    Err("the calls never end".into())
}
