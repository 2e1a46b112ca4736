//! Steady state allocates nothing: submit, poll and flush of host and target, with the software NIC inside.

use core::time::Duration;
use frwr_allocations::allocations;
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, FetchRequest,
    MemoryAccess, Message, Protocol, ReceiveQueues, RemoteSegment, RequestHandle, RequestStatus, ResponseRequest,
    Submission, WriteRequest,
    control::Control,
    gather::{MemoryId, Segment},
    mr::Grant,
    provider::{
        Access, Device, RemoteRange,
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort, SoftProfile},
    },
};
use frwr_mempool::{PagePolicy, Region, region::RegionOptions};

#[global_allocator]
static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;

const ADDRESS: &str = "127.0.0.1:4420";
const DEPTH: usize = 32;
const MESSAGE: usize = 24;
const REPLY: u8 = 1;
/// The cookie of what is no request.
const OTHER: u64 = 1000;

/// Commands are a zero, the cookie and one grant; replies are a one and the cookie. No table grows.
struct Names([RequestHandle; DEPTH]);

impl Protocol for Names {
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let grant = announced.grants().first().ok_or(AnnounceError)?;
        message[8..16].copy_from_slice(&grant.address.to_le_bytes());
        message[16..20].copy_from_slice(&grant.key.to_le_bytes());
        message[20..24].copy_from_slice(&grant.length.to_le_bytes());
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, prefix: &[u8], _: u32) -> Message {
        match prefix {
            [REPLY, cookie, ..] => Message::Reply(self.0[usize::from(*cookie) % DEPTH]),
            _ => Message::Command,
        }
    }
}

struct Side {
    control: Control<SoftDevice>,
    engine: Engine<SoftPort>,
    memory: MemoryId,
    connection: Option<ConnectionId>,
    names: Names,
    free: Vec<u8>,
    ended: u64,
    /// What the peer may write under.
    open: Option<Grant>,
    /// Registrations and transfers without an end.
    others: u32,
    invalidate: bool,
    _region: Region,
}

impl Side {
    fn new(device: SoftDevice, options: EngineOptions) -> Self {
        let mut control = Control::new(device);
        let capabilities = *control.device().capabilities();
        let bytes = Engine::<SoftPort>::region_bytes(&options, &capabilities).unwrap();
        let pages = PagePolicy::Ladder { allow_plain: true };
        let mut region = Region::map(&RegionOptions::new(bytes + (1 << 20)).pages(pages)).unwrap();
        let (send, receive) = Engine::<SoftPort>::completion_entries(&options, &capabilities).unwrap();
        let (port, link) = control.open_core(send, receive).unwrap();
        let mut engine = Engine::new(port, link, &mut region, options, &capabilities).unwrap();
        let data = region.carve(DEPTH * 4096, 4096).unwrap().into_device_memory();
        let memory = engine.add_memory(data, MemoryAccess::ReadWrite).unwrap();
        let names = Names([RequestHandle::NONE; DEPTH]);
        let free = (0..DEPTH as u8).collect();
        let (connection, open) = (None, None);
        Self {
            control,
            engine,
            memory,
            connection,
            names,
            free,
            ended: 0,
            open,
            others: 0,
            invalidate: true,
            _region: region,
        }
    }

    fn step(&mut self, now: Duration) {
        self.engine.poll(now, &mut self.names);
        while let Some(event) = self.engine.next_event() {
            self.event(event);
        }
        self.engine.flush();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Incoming { incoming, .. } => {
                let options = ConnectionOptions::default();
                self.connection = Some(self.engine.accept(incoming, b"", &options).unwrap());
            }
            Event::Completed { cookie, status: RequestStatus::Replied(received), .. } => {
                self.engine.release(received);
                self.free.push(cookie as u8);
                self.ended += 1;
            }
            Event::Completed { cookie: OTHER, .. } | Event::Written { .. } | Event::Fetched { .. } => self.others -= 1,
            Event::Completed { cookie, .. } => self.free.push(cookie as u8),
            Event::Registered { cookie: OTHER, request, .. } => self.engine.cancel(request).unwrap(),
            Event::Registered { grant, .. } => self.open = Some(grant),
            Event::Received { connection, received } => {
                let mut command = [0; MESSAGE];
                self.engine.message(&received, 0, &mut command);
                self.engine.release(received);
                let key = u32::from_le_bytes(command[16..20].try_into().unwrap());
                let address = u64::from_le_bytes(command[8..16].try_into().unwrap());
                let local = [Segment { memory: self.memory, offset: 0, length: 4096 }];
                let remote = [RemoteSegment { remote: RemoteRange { address, key }, length: 4096 }];
                let message = [REPLY, command[1]];
                let has_memory = key != 0;
                let (local, remote) = if has_memory { (&local[..], &remote[..]) } else { (&[][..], &[][..]) };
                let invalidate = (self.invalidate && has_memory).then_some(key);
                let response = ResponseRequest { local, remote, message: &message, invalidate, cookie: 0 };
                self.engine.respond(connection, &response).unwrap();
            }
            Event::Disconnected { cause, .. } => panic!("{cause}"),
            _ => {}
        }
    }

    fn submit_all(&mut self) {
        while let Some(cookie) = self.free.pop() {
            let segments = [Segment { memory: self.memory, offset: u64::from(cookie) * 4096, length: 4096 }];
            let mut message = [0; MESSAGE];
            message[1] = cookie;
            let submission = Submission {
                message: &message,
                inline: &[],
                chunks: &[Chunk { access: Access::RemoteWrite, segments: &segments }],
                invite_invalidation: true,
                iova_cookie: u32::from(cookie),
                cookie: u64::from(cookie),
            };
            let handle = self.engine.submit(self.connection.unwrap(), &submission, &mut self.names).unwrap();
            self.names.0[usize::from(cookie)] = handle;
        }
    }

    fn is_ready(&self) -> bool {
        self.connection.is_some_and(|connection| self.engine.is_ready(connection))
    }
}

/// Both sides, connected.
fn connected(profile: SoftProfile, host: EngineOptions, target: EngineOptions) -> (Side, Side) {
    let fabric = SoftFabric::new();
    let mut host = Side::new(fabric.device(SoftOptions::new(profile)), host);
    let mut target = Side::new(fabric.device(SoftOptions::new(profile)), target);
    target.engine.listen(ADDRESS.parse().unwrap()).unwrap();
    let connect = ConnectionOptions::default().peer_receives(DEPTH as u32);
    target.control.poll();
    target.control.poll();
    host.connection = Some(host.engine.connect(ADDRESS.parse().unwrap(), b"", &connect).unwrap());
    while !(host.is_ready() && target.is_ready()) {
        host.control.poll();
        target.control.poll();
        step(&mut host, &mut target);
    }
    (host, target)
}

/// Time stands still.
fn step(host: &mut Side, target: &mut Side) {
    host.step(Duration::from_micros(1));
    target.step(Duration::from_micros(1));
}

#[test]
fn nothing_is_allocated_in_steady_state() {
    for profile in SoftProfile::ALL {
        let options = EngineOptions::default().connections(1).queue_depth(DEPTH as u32);
        let (mut host, mut target) = connected(profile, options.clone(), options.transfer_depth(64));
        for invalidate in [true, false] {
            target.invalidate = invalidate;
            let mut allocated = 0;
            // The first rounds may still fill what starts empty.
            for warm in [true, false] {
                let before = allocations();
                let until = host.ended + 1000;
                while host.ended < until {
                    host.submit_all();
                    step(&mut host, &mut target);
                }
                allocated = allocations() - before;
                assert!(warm || host.ended >= until);
            }
            assert_eq!(allocated, 0, "{profile}, invalidation by the peer {invalidate}");
        }
    }
}

impl Side {
    /// Requests of all shapes, of which most wait and some are taken back.
    fn submit_mixed(&mut self) {
        let connection = self.connection.unwrap();
        while let Some(cookie) = self.free.pop() {
            // Apart from each other, so that nothing makes one of two.
            let page = |at: u64| Segment { memory: self.memory, offset: (2 * at) % DEPTH as u64 * 4096, length: 4096 };
            let segments = [page(cookie.into()), page(u64::from(cookie) + 1), page(u64::from(cookie) + 2)];
            let chunk = |segments| Chunk { access: Access::RemoteWrite, segments };
            let inline = [Segment { length: 64, ..segments[2] }];
            let (one, list) = (chunk(&segments[..1]), chunk(&segments[..]));
            let two = [one, chunk(&segments[1..2])];
            let mut message = [0; MESSAGE];
            message[1] = cookie;
            let submission = Submission {
                message: &message,
                inline: if cookie % 5 == 0 { &inline } else { &[] },
                chunks: [&[][..], core::slice::from_ref(&one), core::slice::from_ref(&list), &two]
                    [usize::from(cookie) % 4],
                invite_invalidation: true,
                iova_cookie: 0,
                cookie: cookie.into(),
            };
            let handle = self.engine.submit(connection, &submission, &mut self.names).unwrap();
            self.names.0[usize::from(cookie)] = handle;
            if cookie % 7 == 0 {
                self.engine.cancel(handle).unwrap();
                break;
            }
        }
    }

    /// A registration, a READ and WRITEs under a grant of the peer.
    fn begin_others(&mut self, grant: &Grant) {
        let (connection, memory) = (self.connection.unwrap(), self.memory);
        let remote: [_; 16] = core::array::from_fn(|at| RemoteSegment {
            remote: RemoteRange { address: grant.address + 64 * at as u64, key: grant.key },
            length: 64,
        });
        let local = [Segment { memory, offset: 0, length: 1024 }];
        let chunk = Chunk { access: Access::RemoteRead, segments: &local };
        let taken = self.engine.register_now(connection, &chunk, OTHER, &mut self.names);
        self.others += u32::from(taken.is_ok());
        let request = FetchRequest { local: &local, remote: &remote, cookie: OTHER };
        self.others += u32::from(self.engine.fetch(connection, &request).is_ok());
        let request = WriteRequest { local: &local, remote: &remote, cookie: OTHER };
        self.others += u32::from(self.engine.write(connection, &request).is_ok());
    }
}

/// Lists, waiting requests and transfers, what is cancelled, keys without a message, shared receives, traces.
#[test]
fn nothing_is_allocated_where_much_waits() {
    for profile in SoftProfile::ALL {
        for receive_queues in [ReceiveQueues::PerConnection, ReceiveQueues::Shared { entries: 0 }] {
            let options = EngineOptions::default()
                .connections(1)
                .queue_depth(DEPTH as u32)
                .registrations(5)
                .transfer_depth(2)
                .receive_queues(receive_queues)
                .trace_records(64);
            let responder = options.clone().transfer_depth(64);
            let (mut host, mut target) = connected(profile, options, responder);
            let segment = [Segment { memory: target.memory, offset: 0, length: 1024 }];
            let chunk = Chunk { access: Access::RemoteReadWrite, segments: &segment };
            target.engine.register_now(target.connection.unwrap(), &chunk, 1, &mut target.names).unwrap();
            while target.open.is_none() {
                step(&mut host, &mut target);
            }
            let grant = target.open.unwrap();
            let mut allocated = 0;
            // The first rounds may still fill what starts empty.
            for _ in 0..2 {
                let (before, until) = (allocations(), host.ended + 400);
                while host.ended < until {
                    host.submit_mixed();
                    host.begin_others(&grant);
                    step(&mut host, &mut target);
                }
                allocated = allocations() - before;
            }
            let statistics = host.engine.statistics();
            assert!(statistics.requests_waited > 100 && statistics.transfers > 100, "{statistics:?}");
            assert_eq!(allocated, 0, "{profile} {receive_queues:?}");
        }
    }
}
