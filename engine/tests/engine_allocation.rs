//! Steady state allocates nothing: submit, poll and flush of host and target, with the software NIC inside.

use core::{
    alloc::Layout,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use frwr_engine::{
    AnnounceError, Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, Message, Protocol,
    RemoteSegment, RequestHandle, RequestStatus, ResponseRequest, Submission,
    control::Control,
    gather::{MemoryId, Segment},
    mr::Grant,
    provider::{
        Access, Device, RemoteRange,
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort, SoftProfile},
    },
};
use frwr_mempool::{PagePolicy, Region, region::RegionOptions};
use std::alloc::{GlobalAlloc, System};

/// Allocations of the whole process; this binary has one test.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ADDRESS: &str = "127.0.0.1:4420";
const DEPTH: usize = 32;
const MESSAGE: usize = 24;
const REPLY: u8 = 1;

/// Commands are a zero, the cookie and one grant; replies are a one and the cookie. No table grows.
struct Names([RequestHandle; DEPTH]);

impl Protocol for Names {
    fn announce(&mut self, message: &mut [u8], grants: &[Grant]) -> Result<(), AnnounceError> {
        let grant = grants.first().ok_or(AnnounceError)?;
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
        let memory = engine.add_memory(data).unwrap();
        let names = Names([RequestHandle::NONE; DEPTH]);
        let free = (0..DEPTH as u8).collect();
        Self { control, engine, memory, connection: None, names, free, ended: 0, invalidate: true, _region: region }
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
            Event::Received { connection, received } => {
                let mut command = [0; MESSAGE];
                self.engine.message(&received, 0, &mut command);
                self.engine.release(received);
                let key = u32::from_le_bytes(command[16..20].try_into().unwrap());
                let address = u64::from_le_bytes(command[8..16].try_into().unwrap());
                let local = [Segment { memory: self.memory, offset: 0, length: 4096 }];
                let remote = [RemoteSegment { remote: RemoteRange { address, key }, length: 4096 }];
                let message = [REPLY, command[1]];
                let invalidate = self.invalidate.then_some(key);
                let response =
                    ResponseRequest { local: &local, remote: &remote, message: &message, invalidate, cookie: 0 };
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

#[test]
fn nothing_is_allocated_in_steady_state() {
    for profile in SoftProfile::ALL {
        let fabric = SoftFabric::new();
        let options = EngineOptions { connections: 1, queue_depth: DEPTH as u32, ..EngineOptions::default() };
        let target = EngineOptions { transfer_depth: 64, ..options.clone() };
        let mut host = Side::new(fabric.device(SoftOptions::new(profile)), options);
        let mut target = Side::new(fabric.device(SoftOptions::new(profile)), target);
        let mut now = Duration::ZERO;
        let mut step = |host: &mut Side, target: &mut Side| {
            now += Duration::from_micros(1);
            host.step(now);
            target.step(now);
        };
        target.engine.listen(ADDRESS.parse().unwrap()).unwrap();
        let connect = ConnectionOptions { peer_receives: DEPTH as u32, ..ConnectionOptions::default() };
        target.control.poll();
        target.control.poll();
        host.connection = Some(host.engine.connect(ADDRESS.parse().unwrap(), b"", &connect).unwrap());
        while !(host.is_ready() && target.is_ready()) {
            host.control.poll();
            target.control.poll();
            step(&mut host, &mut target);
        }
        for invalidate in [true, false] {
            target.invalidate = invalidate;
            let mut allocated = 0;
            // The first rounds may still fill what starts empty.
            for warm in [true, false] {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                let until = host.ended + 1000;
                while host.ended < until {
                    host.submit_all();
                    step(&mut host, &mut target);
                }
                allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
                assert!(warm || host.ended >= until);
            }
            assert_eq!(allocated, 0, "{profile}, invalidation by the peer {invalidate}");
        }
    }
}
