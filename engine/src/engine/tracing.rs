//! Trace records, for who asked for them. Without a trace each of these is one comparison, or is not called.

use super::{Engine, life::keys_at_stake};
use crate::{
    mr::Mr,
    provider::{ElementRange, Operation, Port, PostError, TokenKind},
    trace::{TracePoint, TraceRecord, Tracer},
};
use frwr_mempool::lane;

impl<P: Port> Engine<P> {
    /// [`Engine::trace_to`] a lane of its own; `None` unless [`EngineOptions::trace_records`] says how many records have room in it.
    ///
    /// [`EngineOptions::trace_records`]: crate::EngineOptions::trace_records
    pub fn trace(&mut self) -> Option<lane::Receiver<TraceRecord>> {
        if self.options.trace_records == 0 {
            return None;
        }
        let (sender, receiver) = lane::bounded(self.options.trace_records.next_power_of_two());
        self.trace_to(sender);
        Some(receiver)
    }

    /// Takes trace records from now on, in place of a trace that there is; an engine that was made has none. Keys that live already are told
    /// of from their next step on. The receiving end may be on another thread; what it does not take in time is lost, and counted
    /// ([`Statistics::trace_records_dropped`]). While it traces, an engine allocates. A receiving end that is gone ends the trace, at the
    /// latest when its lane is full.
    ///
    /// [`Statistics::trace_records_dropped`]: crate::Statistics::trace_records_dropped
    pub fn trace_to(&mut self, records: lane::Sender<TraceRecord>) {
        let mut trace = Tracer::new(records, self.pool.len());
        for descriptor in 0..self.pool.len() as u32 {
            self.living_keys(descriptor).into_iter().flatten().for_each(|life| trace.begin(life));
        }
        self.forget_staged(&mut trace);
        self.trace = Some(Box::new(trace));
    }

    /// Ends the trace: what was recorded is in the lane, whose sending end this returns; `None` where there is no trace. Nothing
    /// is left of it that costs an instruction.
    pub fn end_trace(&mut self) -> Option<lane::Sender<TraceRecord>> {
        self.trace.take().map(|trace| trace.into_sender())
    }

    /// Keys of a descriptor that live, in the order of their registrations: where an MR was taken again early (D2), of the first one no
    /// more is known than its number.
    fn living_keys(&self, descriptor: u32) -> [Option<TraceRecord>; 2] {
        let Some(mr) = self.pool.get(descriptor) else { return [None; 2] };
        let now = self.describe(TracePoint::MrRegister, self.pool.connection_of(descriptor), Some(descriptor), 0);
        let (owner, length, offset, access) = (u32::MAX, 0, 0, None);
        match keys_at_stake(mr) {
            0 => [None; 2],
            1 => [Some(TraceRecord { handle: mr.device_key(), ..now }), None],
            _ => [Some(TraceRecord { handle: mr.former_key(), owner, length, offset, access, ..now }), Some(now)],
        }
    }

    /// What waits for the next flush does not live yet.
    fn forget_staged(&self, trace: &mut Tracer) {
        for request in self.connections.iter().flat_map(|connection| connection.sending.chain()) {
            if let Operation::Register(fields) = request.operation {
                trace.end(request.token.index(), Some(fields.key));
            }
        }
    }

    #[inline]
    pub(super) fn record(&mut self, point: TracePoint, connection: u16, mr: Option<u32>, length: u32) {
        if self.trace.is_none() {
            return;
        }
        self.record_slow(point, connection, mr, length);
    }

    #[cold]
    fn record_slow(&mut self, point: TracePoint, connection: u16, descriptor: Option<u32>, length: u32) {
        let record = self.describe(point, connection, descriptor, length);
        self.push_record(record);
    }

    /// What is known of an MR now.
    fn describe(&self, point: TracePoint, connection: u16, descriptor: Option<u32>, length: u32) -> TraceRecord {
        let mr = descriptor.and_then(|descriptor| self.pool.get(descriptor));
        let grant = mr.and_then(Mr::grant);
        TraceRecord {
            time_ns: self.now_ns(),
            point,
            connection,
            mr: descriptor.unwrap_or(u32::MAX),
            owner: mr.and_then(Mr::owner).unwrap_or(u32::MAX),
            handle: mr.map_or(0, Mr::key),
            length: grant.map_or(length, |grant| grant.length),
            offset: grant.map_or(0, |grant| grant.address),
            access: mr.and_then(Mr::access),
        }
    }

    fn push_record(&mut self, record: TraceRecord) {
        if let Some(trace) = &mut self.trace
            && !trace.push(record)
        {
            self.record_lost();
        }
    }

    /// A record found no room.
    #[cold]
    fn record_lost(&mut self) {
        if self.trace.as_ref().is_some_and(|trace| trace.is_closed()) {
            self.trace = None;
        } else {
            self.counters.trace_record_dropped();
        }
    }

    /// The device took a registration: a key's life begins.
    #[cold]
    pub(super) fn record_registered(&mut self, index: usize, descriptor: u32) {
        let record = self.describe(TracePoint::MrRegister, index as u16, Some(descriptor), 0);
        if let Some(trace) = &mut self.trace {
            trace.begin(record);
        }
        self.push_record(record);
    }

    /// Something that befalls a living key: the one with this number, or the one that its MR had first.
    #[cold]
    pub(super) fn record_of_key(&mut self, point: TracePoint, descriptor: u32, key: Option<u32>) {
        let life = self.trace.as_ref().and_then(|trace| trace.living(descriptor, key));
        self.record_life(point, descriptor, life);
    }

    /// The same, and it is the end.
    #[cold]
    pub(super) fn record_dead(&mut self, point: TracePoint, descriptor: u32, key: Option<u32>) {
        let life = self.trace.as_mut().and_then(|trace| trace.end(descriptor, key));
        self.record_life(point, descriptor, life);
    }

    /// With what the record of its beginning says; of one that the trace does not know, what is known now.
    #[inline(always)]
    fn record_life(&mut self, point: TracePoint, descriptor: u32, life: Option<TraceRecord>) {
        let time_ns = self.now_ns();
        let record = life.map_or_else(
            || self.describe(point, self.pool.connection_of(descriptor), Some(descriptor), 0),
            |life| TraceRecord { time_ns, point, ..life },
        );
        self.push_record(record);
    }

    /// All keys of an MR whose object is to be destroyed.
    #[cold]
    pub(super) fn record_doomed(&mut self, descriptor: u32) {
        let count = self.trace.as_ref().map_or(0, |trace| trace.count(descriptor));
        for at in 0..count {
            let life = self.trace.as_ref().and_then(|trace| trace.nth(descriptor, at));
            self.record_life(TracePoint::KeyDoomed, descriptor, life);
        }
    }

    /// All keys of an MR whose object is destroyed, or kept for good.
    #[cold]
    pub(super) fn record_all_dead(&mut self, point: TracePoint, descriptor: u32) {
        while let Some(life) = self.trace.as_mut().and_then(|trace| trace.end(descriptor, None)) {
            self.record_life(point, descriptor, Some(life));
        }
    }

    /// The device took the first `accepted` of a chain.
    #[cold]
    pub(super) fn record_accepted(&mut self, index: usize, accepted: usize, all: usize) {
        for at in 0..accepted {
            let request = self.connections[index].sending.chain()[at];
            let slot = request.token.index();
            match request.operation {
                Operation::Register(_) => self.record_registered(index, slot),
                Operation::Invalidate { key, .. } => {
                    self.record_of_key(TracePoint::MrLocalInvalidate, slot, Some(key));
                }
                Operation::Send { invalidate, .. } => {
                    if request.token.is(TokenKind::Message) {
                        self.record_told(index, slot);
                    }
                    if let Some(key) = invalidate {
                        self.record_of_peer(TracePoint::PeerKeyInvalidated, index, key, 0);
                    }
                }
                Operation::Read { remote, local } => {
                    let bytes = self.bytes_of(local);
                    self.record_of_peer(TracePoint::PeerKeyRead, index, remote.key, bytes);
                }
                Operation::Write { remote, local } => {
                    let bytes = self.bytes_of(local);
                    self.record_of_peer(TracePoint::PeerKeyWritten, index, remote.key, bytes);
                }
            }
        }
        self.record(TracePoint::PostSend, index as u16, None, all as u32);
    }

    /// What the device took of a work request that names a key of the peer.
    fn record_of_peer(&mut self, point: TracePoint, index: usize, key: u32, length: u32) {
        let record = TraceRecord { handle: key, ..self.describe(point, index as u16, None, length) };
        self.push_record(record);
    }

    fn bytes_of(&self, local: ElementRange) -> u32 {
        self.elements.range(local).iter().map(|element| element.length).sum()
    }

    /// The keys of a request whose message the device took, or whose grant its caller has.
    #[cold]
    pub(super) fn record_told(&mut self, index: usize, slot: u32) {
        let mr = |engine: &Self, at: usize| engine.requests.at(slot)?.1.mrs().get(at).copied();
        let mut at = 0;
        while let Some(descriptor) = mr(self, at) {
            self.record(TracePoint::KeyTold, index as u16, Some(descriptor), 0);
            at += 1;
        }
    }

    /// Invalidations completed: those at the positions from `word` on whose bits are set.
    #[cold]
    pub(super) fn record_invalidations(&mut self, index: usize, word: u64, mut dead: u64) {
        while dead != 0 {
            let token = self.connections[index].sending.queue().token_at(word + u64::from(dead.trailing_zeros()));
            dead &= dead - 1;
            self.record_dead(TracePoint::LocalInvalidateDone, token.index(), None);
        }
    }

    /// A reply was taken, which killed the key of this MR.
    #[cold]
    pub(super) fn record_killed(&mut self, descriptor: Option<u32>) {
        if let Some(descriptor) = descriptor.filter(|_| self.trace.is_some()) {
            let key = self.pool.get(descriptor).map(Mr::key);
            self.record_dead(TracePoint::MrRemoteInvalidate, descriptor, key);
        }
    }

    /// The device refused a post on a connection's queue pair, in whole or in part.
    #[cold]
    pub(super) fn note_refused(&mut self, index: usize, error: PostError) {
        self.counters.post_refused(error);
        self.record(TracePoint::PostSendRefused(error), index as u16, None, error.accepted as u32);
    }

    /// The same of receives.
    #[cold]
    pub(super) fn note_receives_refused(&mut self, index: usize, error: PostError) {
        self.counters.post_refused(error);
        self.record(TracePoint::PostReceivesRefused(error), index as u16, None, error.accepted as u32);
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.polls.now().nanoseconds()
    }
}
