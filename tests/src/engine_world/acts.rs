//! What the host's callers do.

use super::{
    flight::{CHUNK_BYTES, CHUNKS, Flight, INLINE_AT, INLINE_BYTES, Opened, PLACE_BYTES, PLACES, Range},
    protocol,
    scenario::{ACTS, Act},
    world::{OPENED_AT, STANDALONE_AT, STANDALONES, TRANSFERS_AT, Transfer, World, address},
};
use core::time::Duration;
use frwr_engine::{
    Access, Chunk, ConnectionId, FetchRequest, Grant, RemoteRange, RemoteSegment, RequestHandle, ResponseRequest,
    Segment, Submission, WriteRequest,
};

/// Bytes of what the target opens for the host's transfers: a page that is read, a page that is written.
pub(super) const OPENED_BYTES: usize = 2 * 4096;
/// Bytes of one operation of such a transfer.
const OPERATION_BYTES: usize = 128;
/// Bytes that `register_now` opens.
const STANDALONE_BYTES: usize = 512;
/// While the host finds no work, one in so many requests is tried behind one that was refused.
const REFUSED_AGAIN: u64 = 8;
/// Replies to nobody in one run: fewer than one connection may send unasked.
const STRAYS: u64 = 24;
/// Longest that `cancel_now` may take, in microseconds of a clock that ticks with every reading.
const CANCEL_NOW_MICROS: u64 = 20;

/// Parts of a chunk: all but the last have whole words.
const SMALL: [&[Range]; 5] =
    [&[(256, 512)], &[(256, 504)], &[(8, 64)], &[(0, 128), (128, 101)], &[(256, 296), (4352, 512)]];
const LARGE: [&[Range]; 4] =
    [&[(0, 4096), (4096, 4096)], &[(0, 4096), (4096, 100)], &[(512, 7000)], &[(0, 1024), (1024, 1024)]];
/// What a message carries of its caller's memory.
const INLINES: [&[usize]; 3] = [&[INLINE_BYTES], &[8, 24], &[1, 30, 1]];

/// What the host sends behind its message.
pub(super) fn inline_pattern(cookie: u64) -> [u8; INLINE_BYTES] {
    core::array::from_fn(|at| (cookie as usize + at * 7) as u8)
}

impl World<'_> {
    pub(super) fn act(&mut self) {
        let Some(act) = self.random.weighted(&self.scenario.acts) else { return };
        match ACTS[act] {
            Act::Submit => self.submit(),
            Act::Register => self.register(),
            Act::Cancel => self.cancel_some(false),
            Act::CancelNow => self.cancel_some(true),
            Act::HostDisconnects => {
                if let Some(connection) = self.host.some_connection(&mut self.random) {
                    self.may_end = Some("the host disconnects");
                    self.host.engine.disconnect(connection);
                }
            }
            Act::TargetDisconnects => {
                if let Some(connection) = self.target.some_connection(&mut self.random) {
                    self.may_end = Some("the target disconnects");
                    self.target.engine.disconnect(connection);
                }
            }
            Act::Transfer => self.transfer(),
            Act::Connect => self.connect(),
            Act::Idle => {}
        }
    }

    pub(super) fn connect(&mut self) {
        let name = self.opened;
        let options = self.host.connection;
        if let Ok(connection) = self.host.engine.connect(address(), &name.to_le_bytes(), &options) {
            self.opened += 1;
            self.opening.insert(name, connection);
            self.run.event(|| format!("{connection:?} is being opened"));
        }
    }

    pub(super) fn submit(&mut self) {
        let Some(connection) = self.host.some_connection(&mut self.random) else { return };
        let Some(place) = (0..PLACES).find(|place| !self.busy_places[*place]) else { return };
        if !self.calm && !self.run.takes_requests() {
            return;
        }
        // Most of the time a seed has would go by with what is refused.
        if self.refused && !self.random.one_in(REFUSED_AGAIN) {
            return;
        }
        let chunks = self.chunks(place);
        let inline: &[usize] = if self.random.one_in(5) { self.random.of(&INLINES) } else { &[] };
        let (invited, refuses) = (self.random.one_in(2), self.random.one_in(40));
        self.cookie += 1;
        let cookie = self.cookie;
        self.check_rest(place);
        self.rests[place] = None;
        Flight::prepare(&self.host.data, cookie, &chunks);
        let start = place * PLACE_BYTES;
        self.host.data.write(start + INLINE_AT, &inline_pattern(cookie)).expect("within the data");
        let mut inline_at = start + INLINE_AT;
        let host = &mut self.host;
        let inlined: Vec<Segment> = inline
            .iter()
            .map(|&length| {
                inline_at += length;
                host.segment(inline_at - length, length)
            })
            .collect();
        let segments: Vec<Vec<Segment>> = chunks
            .iter()
            .map(|chunk| chunk.ranges.iter().map(|&(offset, length)| host.segment(offset, length)).collect())
            .collect();
        let all: Vec<Chunk<'_>> =
            chunks.iter().zip(&segments).map(|(chunk, segments)| Chunk { access: chunk.access, segments }).collect();
        let submission = Submission {
            message: &protocol::command(cookie),
            inline: &inlined,
            chunks: &all,
            invite_invalidation: invited,
            iova_cookie: 0x0A0B_0C0D,
            cookie,
        };
        host.protocol.refuses = refuses;
        let taken = host.engine.submit(connection, &submission, &mut host.protocol);
        host.protocol.refuses = false;
        self.refused = taken.is_err();
        self.run.note(u64::from(taken.is_ok()));
        if let Ok(handle) = taken {
            host.protocol.name(cookie, handle);
            self.busy_places[place] = true;
            let flight = Flight {
                connection,
                handle,
                place,
                chunks,
                inline: !inline.is_empty(),
                invited,
                standalone: false,
                cancelled: false,
            };
            self.run.submitted();
            self.run.event(|| format!("request {cookie} {flight:?}"));
            self.flights.insert(cookie, flight);
        }
    }

    /// What a request opens of its place.
    fn chunks(&mut self, place: usize) -> Vec<Opened> {
        let count = self.random.of(&[0, 1, 1, 1, 2, CHUNKS]);
        let one_right = self.random.one_in(2);
        let mut access = Access::RemoteWrite;
        (0..count)
            .map(|chunk| {
                if chunk == 0 || !one_right {
                    access = if self.random.one_in(3) { Access::RemoteRead } else { Access::RemoteWrite };
                }
                let large = self.scenario.large && self.random.one_in(2);
                let shape = if large { self.random.of(&LARGE) } else { self.random.of(&SMALL) };
                let start = place * PLACE_BYTES + chunk * CHUNK_BYTES;
                let ranges = shape.iter().map(|&(offset, length)| (start + offset, length)).collect();
                Opened { access, ranges, writing: 0 }
            })
            .collect()
    }

    fn cancel_some(&mut self, now: bool) {
        let all: Vec<(u64, RequestHandle)> =
            self.flights.iter().map(|(cookie, flight)| (*cookie, flight.handle)).collect();
        if all.is_empty() {
            return;
        }
        let (cookie, handle) = self.random.of(&all);
        self.run.event(|| format!("request {cookie} is cancelled, at once: {now}"));
        // Whoever is writing there is refused, and his connection ends.
        self.may_end.get_or_insert("a request was cancelled while it was answered");
        let host = &mut self.host;
        let done = if now {
            let (mut time, start) = (self.now + host.ahead, self.now + host.ahead);
            let clock = || {
                time += Duration::from_micros(1);
                time
            };
            let deadline = start + Duration::from_micros(CANCEL_NOW_MICROS);
            let done = host.engine.cancel_now(handle, deadline, clock, &mut host.protocol).is_ok();
            self.now += time - start;
            done
        } else {
            // Refusing is an answer; ending twice is not.
            host.engine.cancel(handle).is_ok()
        };
        self.run.note(u64::from(done));
        if let Some(flight) = self.flights.get_mut(&cookie) {
            flight.cancelled = true;
        }
    }

    fn register(&mut self) {
        let Some(connection) = self.host.some_connection(&mut self.random) else { return };
        if !self.run.takes_requests() {
            return;
        }
        self.cookie += 1;
        let cookie = self.cookie;
        let Some(offset) = self.free_standalone() else { return };
        let opened = Opened { access: Access::RemoteRead, ranges: vec![(offset, STANDALONE_BYTES)], writing: 0 };
        Flight::prepare(&self.host.data, cookie, core::slice::from_ref(&opened));
        let host = &mut self.host;
        let segment = host.segment(offset, STANDALONE_BYTES);
        let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
        if let Ok(handle) = host.engine.register_now(connection, &chunk, cookie, &mut host.protocol) {
            let flight = Flight {
                connection,
                handle,
                place: PLACES,
                chunks: vec![opened],
                inline: false,
                invited: false,
                standalone: true,
                cancelled: false,
            };
            self.run.submitted();
            self.run.event(|| format!("request {cookie} is a key of its own on {connection:?}"));
            self.flights.insert(cookie, flight);
        }
    }

    /// Memory for a key of its own that no other one opens.
    fn free_standalone(&self) -> Option<usize> {
        let offset = |at: usize| STANDALONE_AT + at * 4096;
        let opens = |flight: &Flight, at: usize| flight.chunks.iter().any(|chunk| chunk.ranges[0].0 == offset(at));
        (0..STANDALONES).find(|&at| !self.flights.values().any(|flight| opens(flight, at))).map(offset)
    }

    /// Keys of `register_now` end when somebody cancels them.
    pub(super) fn close_standalones(&mut self) {
        let open: Vec<(u64, RequestHandle)> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.standalone && !flight.cancelled)
            .map(|(cookie, flight)| (*cookie, flight.handle))
            .collect();
        for (cookie, handle) in open {
            let _ = self.host.engine.cancel(handle);
            if let Some(flight) = self.flights.get_mut(&cookie) {
                flight.cancelled = true;
            }
        }
    }

    /// The host writes or reads what the target opened for it, or answers what the target did not ask.
    fn transfer(&mut self) {
        let Some(ours) = self.host.some_connection(&mut self.random) else { return };
        let Some(&theirs) = self.pairs.get(&ours) else { return };
        let Some(&granted) = self.granted.get(&theirs) else { return self.open_for_transfers(theirs) };
        if let Some(grant) = granted {
            self.transfer_with(ours, grant);
        }
    }

    fn open_for_transfers(&mut self, theirs: ConnectionId) {
        self.cookie += 1;
        let target = &mut self.target;
        let segment = target.segment(OPENED_AT, OPENED_BYTES);
        let chunk = Chunk { access: Access::RemoteReadWrite, segments: &[segment] };
        if target.engine.register_now(theirs, &chunk, self.cookie, &mut target.protocol).is_ok() {
            self.granted.insert(theirs, None);
            self.target_requests.insert(self.cookie, theirs);
        }
    }

    fn transfer_with(&mut self, ours: ConnectionId, grant: Grant) {
        self.cookie += 1;
        let cookie = self.cookie;
        let operations = self.random.of(&[1, 1, 2, 5, 16]);
        let strays = self.strays < STRAYS && self.sends_all_unasked();
        let kind = match self.random.below(if strays { 4 } else { 3 }) {
            0 => Transfer::Fetch,
            1..=2 => Transfer::Write,
            _ => Transfer::Respond,
        };
        let half = if kind == Transfer::Fetch { 0 } else { OPENED_BYTES / 2 };
        let ranges: Vec<RemoteSegment> = (0..operations)
            .map(|at| half + OPERATION_BYTES * at)
            .map(|offset| RemoteSegment {
                remote: RemoteRange { address: grant.address + offset as u64, key: grant.key },
                length: OPERATION_BYTES as u32,
            })
            .collect();
        let host = &mut self.host;
        let bare = kind == Transfer::Respond && self.random.one_in(2);
        let local = [host.segment(TRANSFERS_AT + half, OPERATION_BYTES * operations)];
        let (local, remote) = if bare { (&[][..], &[][..]) } else { (&local[..], &ranges[..]) };
        let begun = match kind {
            Transfer::Fetch => host.engine.fetch(ours, &FetchRequest { local, remote, cookie }),
            Transfer::Write => host.engine.write(ours, &WriteRequest { local, remote, cookie }),
            Transfer::Respond => {
                let message = &protocol::reply(u64::MAX);
                host.engine.respond(ours, &ResponseRequest { local, remote, message, invalidate: None, cookie })
            }
        };
        if begun.is_ok() {
            self.strays += u64::from(kind == Transfer::Respond);
            self.transfers.insert(cookie, kind);
            self.run.event(|| format!("transfer {cookie}, {kind:?} of {operations} operations"));
        }
    }
}
