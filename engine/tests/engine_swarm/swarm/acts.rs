//! What the callers on both sides do.

use super::{
    CHUNK_BYTES, Flight, INLINE_AT, INLINE_BYTES, PLACE_BYTES, PLACES, REPLIES, STANDALONE_AT, Swarm, TRANSFERS_AT,
    inline_pattern,
};
use crate::{
    chance::TARGET_RECEIVES,
    engine_harness::{GRANT, HEADER, address},
};
use core::time::Duration;
use frwr_engine::{
    Chunk, ConnectionId, FetchRequest, Received, RemoteSegment, RequestHandle, ResponseRequest, TransferError,
    WriteRequest,
    gather::Segment,
    provider::{Access, RemoteRange},
};

impl Swarm {
    pub(super) fn act(&mut self) {
        match self.random.below(24) {
            0..=8 => self.submit(),
            9 => self.register(),
            10..=11 if !self.is_quiet() && !self.handles.is_empty() => {
                let at = self.random.below(self.handles.len() as u64) as usize;
                let handle = self.handles.swap_remove(at);
                self.cancel(handle);
            }
            12 if !self.is_quiet() && self.random.one_in(8) => {
                if let Some(connection) = self.some_connection() {
                    self.test.host.engine.disconnect(connection);
                }
            }
            13 if !self.is_quiet() && self.random.one_in(8) => {
                let all: Vec<_> = self.test.target.engine.connections().collect();
                if !all.is_empty() {
                    let connection = self.random.of(&all);
                    self.test.target.engine.disconnect(connection);
                }
            }
            14..=17 => self.transfer(),
            18..=19 => self.connect(),
            _ => {}
        }
    }

    fn some_connection(&mut self) -> Option<ConnectionId> {
        let all: Vec<_> = self.test.host.engine.connections().collect();
        if all.is_empty() { None } else { Some(self.random.of(&all)) }
    }

    fn connect(&mut self) {
        let host = &mut self.test.pair.host;
        if host.engine.connect(address(), b"hello", &host.connection_options()).is_ok() {
            self.opened += 1;
        }
    }

    fn cancel(&mut self, handle: RequestHandle) {
        if self.random.one_in(4) {
            let Self { test, .. } = self;
            let pair = &mut test.pair;
            let (mut now, deadline) = (pair.now, pair.now + Duration::from_micros(20));
            let clock = || {
                now += Duration::from_micros(1);
                now
            };
            let _ = pair.host.engine.cancel_now(handle, deadline, clock, &mut pair.host.protocol);
            pair.now = now;
        } else {
            // Refusing is an answer; ending twice is not.
            let _ = self.test.host.engine.cancel(handle);
        }
    }

    fn submit(&mut self) {
        let Some(connection) = self.some_connection() else { return };
        let free: Vec<_> =
            (0..PLACES).filter(|place| !self.flights.values().any(|flight| flight.place == *place)).collect();
        if free.is_empty() {
            return;
        }
        self.cookie += 1;
        let (cookie, place) = (self.cookie, self.random.of(&free));
        let start = (place * PLACE_BYTES) as u64;
        let access = if self.random.one_in(4) { Access::RemoteRead } else { Access::RemoteWrite };
        let shapes: [&[(u64, u32)]; 6] = [
            &[(256, 512)],
            &[(256, 512)],
            &[(0, 4096), (4096, 4096)],
            &[(0, 4096), (4096, 100)],
            &[(256, 300), (4352, 512)],
            &[(0, 1024), (1024, 1024)],
        ];
        let mut chunks: Vec<Vec<Segment>> = Vec::new();
        for chunk in 0..self.random.of(&[0, 1, 1, 1, 2, 3]) {
            let shape = self.random.of(&shapes);
            let segment = |&(offset, length)| self.test.host.segment(start + chunk * CHUNK_BYTES + offset, length);
            chunks.push(shape.iter().map(segment).collect());
        }
        let inline = self.random.one_in(5);
        let pieces: &[&[u32]] = if inline { &[&[INLINE_BYTES], &[8, 24], &[1, 30, 1]] } else { &[&[]] };
        let mut inline_at = start + INLINE_AT;
        let piece = |&length: &u32| {
            inline_at += u64::from(length);
            self.test.host.segment(inline_at - u64::from(length), length)
        };
        let inlined: Vec<_> = self.random.of(pieces).iter().map(piece).collect();
        self.check_place(place);
        self.rest[place] = None;
        self.test.host.data.write((start + INLINE_AT) as usize, &inline_pattern(cookie)).unwrap();
        let invite = self.random.one_in(2);
        let host = &mut self.test.pair.host;
        host.protocol.refuse = self.random.one_in(20);
        host.connection = Some(connection);
        let all: Vec<_> = chunks.iter().map(|segments| Chunk { access, segments }).collect();
        let taken = host.submit_mixed(cookie, &all, &inlined, invite);
        host.protocol.refuse = false;
        if let Ok(handle) = taken {
            self.handles.push(handle);
            let ranges = chunks.iter().flatten().map(|segment| (segment.offset, segment.length)).collect();
            self.flights
                .insert(cookie, Flight { place, connection, access, ranges, inline, invited: invite, written: false });
        }
    }

    fn register(&mut self) {
        let Some(connection) = self.some_connection() else { return };
        self.cookie += 1;
        let host = &mut self.test.pair.host;
        let segment = host.segment(STANDALONE_AT + (self.cookie % 16) * 4096, 512);
        let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
        if let Ok(handle) = host.engine.register_now(connection, &chunk, self.cookie, &mut host.protocol) {
            host.outstanding.insert(self.cookie, 512);
            self.handles.push(handle);
        }
    }

    /// The host writes or reads what the target opened for it, or answers what the target did not ask.
    fn transfer(&mut self) {
        let Some(ours) = self.some_connection() else { return };
        let Some(&theirs) = self.pairs.get(&ours) else { return };
        let Self { test, random, .. } = self;
        let pair = &mut test.pair;
        self.cookie += 1;
        let cookie = self.cookie;
        if !self.opened_for.contains(&theirs) {
            let chunk =
                Chunk { access: Access::RemoteReadWrite, segments: &[pair.target.segment(STANDALONE_AT, 4096)] };
            if let Ok(handle) = pair.target.engine.register_now(theirs, &chunk, cookie, &mut pair.target.protocol) {
                pair.target.outstanding.insert(cookie, 4096);
                self.opening.insert(handle, theirs);
                self.opened_for.insert(theirs);
            }
            return;
        }
        let opened = pair.target.grants.iter().find(|(handle, _)| self.opening.get(handle) == Some(&theirs));
        let Some(&(_, grant)) = opened else { return };
        let operations = random.of(&[1, 1, 2, 5, 16]);
        let ranges: Vec<_> = (0..operations)
            .map(|at| RemoteSegment {
                remote: RemoteRange { address: grant.address + 128 * at, key: grant.key },
                length: 128,
            })
            .collect();
        let host = &mut pair.host;
        let (local, remote) = (&[host.segment(TRANSFERS_AT, 128 * operations as u32)][..], &ranges[..]);
        // A reply to nobody takes a receive of the target that nothing gives back.
        let replies = self.replies < REPLIES && host.peer_receives == TARGET_RECEIVES;
        let begun = match random.below(if replies { 4 } else { 3 }) {
            0 => host.engine.fetch(ours, &FetchRequest { local, remote, cookie }),
            1..=2 => host.engine.write(ours, &WriteRequest { local, remote, cookie }),
            _ => {
                self.replies += 1;
                let (local, remote) = if random.one_in(2) { (local, remote) } else { (&[][..], &[][..]) };
                let message = &[0xFF; 12];
                host.engine.respond(ours, &ResponseRequest { local, remote, message, invalidate: None, cookie })
            }
        };
        if begun.is_ok() {
            self.transfers.push(cookie);
        }
    }

    /// The target answers, mostly well.
    pub(super) fn serve(&mut self, well: bool) {
        let mut commands = core::mem::take(&mut self.unanswered);
        commands.append(self.test.target.every_command.as_mut().unwrap());
        for (connection, received) in commands {
            self.test.target.connection = Some(connection);
            let (name, grants) = self.test.target.read_command(&received);
            let cookie = u64::from_le_bytes(name);
            let first = self.seen.insert(cookie);
            if first {
                self.look_at_command(connection, cookie, &received);
            }
            let flight = self.flights.get_mut(&cookie);
            let writes = flight.as_ref().is_some_and(|flight| flight.access == Access::RemoteWrite);
            let writes = writes && self.random.one_in(2);
            let written = if writes { grants.clone() } else { Vec::new() };
            // What nobody asked for takes an imitated device's host down.
            let rude = !well && !self.is_rxe;
            let asked = flight.as_ref().is_some_and(|flight| flight.invited) || (rude && self.random.one_in(8));
            let key = grants.first().map(|grant| grant.key).filter(|_| asked && self.random.one_in(2));
            let bad = rude && self.random.one_in(60);
            let key = if bad { Some(self.random.next() as u32) } else { key };
            let key = key.filter(|_| self.test.host.engine.capabilities().remote_invalidation);
            match self.test.target.try_answer(name, &written, key) {
                Ok(()) => {
                    if let Some(flight) = flight {
                        flight.written = writes;
                    }
                    self.test.target.engine.release(received);
                }
                Err(TransferError::NoSlot) => {
                    self.seen.remove(&cookie);
                    self.unanswered.push((connection, received));
                }
                Err(_) => self.test.target.engine.release(received),
            }
        }
    }

    fn look_at_command(&mut self, connection: ConnectionId, cookie: u64, received: &Received) {
        let Some(flight) = self.flights.get(&cookie) else { return };
        self.pairs.insert(flight.connection, connection);
        let length = HEADER + 16 * GRANT;
        let mut inline = [0; INLINE_BYTES as usize];
        let found = self.test.target.engine.message(received, length as u32, &mut inline);
        assert_eq!(found, if flight.inline { inline.len() } else { 0 }, "request {cookie}");
        assert!(!flight.inline || inline == inline_pattern(cookie), "request {cookie}: its inline memory was not held");
    }
}
