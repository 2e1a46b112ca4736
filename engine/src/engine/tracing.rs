//! Trace records, for who asked for them. Without a trace each of these is one comparison, or is not called.

use super::Engine;
use crate::{
    elements::Elements,
    mr::{Mr, State},
    options::MAX_MRS_PER_REQUEST,
    pool::Pool,
    provider::{Operation, Port, PostError, TokenKind, WorkRequest},
    request::Mrs,
    trace::{Keys, Life, NONE, TracePoint, TraceRecord, Tracer},
};
use frwr_mempool::{lane, slab::Handle};

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
            self.note_living(&mut trace.keys, descriptor);
        }
        self.trace = Some(Box::new(trace));
    }

    /// Ends the trace: what was recorded is in the lane, whose sending end this returns; `None` where there is no trace. Nothing
    /// is left of it that costs an instruction.
    pub fn end_trace(&mut self) -> Option<lane::Sender<TraceRecord>> {
        self.trace.take().map(|trace| trace.into_sender())
    }

    /// Keys of a descriptor whose end is under way: where its MR was taken again since then (D2), no more is known than
    /// their number.
    fn note_living(&self, keys: &mut Keys, descriptor: u32) {
        let Some(mr) = self.pool.get(descriptor) else { return };
        match mr.state() {
            State::Registering { pending: Some(_), .. } => keys.dies(descriptor, Life::of(mr.former_key(), 0)),
            // Its latest one was burnt.
            _ if mr.is_live() && mr.device_key() != mr.key() => keys.dies(descriptor, Life::of(mr.device_key(), 0)),
            State::IdlePending { .. } | State::Recovering => keys.dies(descriptor, Life::latest(mr)),
            _ => {}
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
            mr: descriptor.unwrap_or(NONE),
            owner: mr.and_then(Mr::owner).unwrap_or(NONE),
            handle: mr.map_or(0, Mr::key),
            length: grant.map_or(length, |grant| grant.length),
            offset: grant.map_or(0, |grant| grant.address),
            access: mr.and_then(Mr::access),
        }
    }

    fn push_record(&mut self, record: TraceRecord) {
        if let Some(trace) = &mut self.trace {
            trace.at(record.time_ns, &mut self.counters).0.push(|| record);
            if trace.is_closed() {
                self.trace = None;
            }
        }
    }

    /// Something that befalls a key, with what it opened.
    fn record_life(&mut self, point: TracePoint, descriptor: u32, life: Life) {
        let (time_ns, connection) = (self.now_ns(), self.pool.connection_of(descriptor));
        if let Some(trace) = &mut self.trace {
            trace.at(time_ns, &mut self.counters).0.put(point, connection, descriptor, life);
        }
    }

    /// That of the latest key of an MR.
    fn latest_life(&self, descriptor: u32) -> Life {
        self.pool.get(descriptor).map_or(Life::of(0, 0), Life::latest)
    }

    /// A pad's key lives, and whoever asks may tell the peer of it.
    pub(super) fn record_pad(&mut self, descriptor: u32) {
        if self.trace.is_some() {
            self.record_of_latest(TracePoint::MrRegister { told: true }, descriptor);
        }
    }

    /// Something befell the latest key of an MR.
    #[cold]
    pub(super) fn record_of_latest(&mut self, point: TracePoint, descriptor: u32) {
        self.record_life(point, descriptor, self.latest_life(descriptor));
    }

    /// The same of its living key that was registered first.
    #[cold]
    pub(super) fn record_of_first(&mut self, point: TracePoint, descriptor: u32) {
        let first = self.trace.as_ref().and_then(|trace| trace.keys.of(descriptor).first().copied());
        self.record_life(point, descriptor, first.unwrap_or_else(|| self.latest_life(descriptor)));
    }

    /// All keys of an MR whose object is to be destroyed.
    #[cold]
    pub(super) fn record_doomed(&mut self, descriptor: u32) {
        let (Some(trace), Some(mr)) = (&mut self.trace, self.pool.get(descriptor)) else { return };
        // One that was burnt never lived.
        if mr.is_live() && mr.device_key() == mr.key() {
            trace.keys.dies(descriptor, Life::latest(mr));
        }
        let dying = trace.keys.of(descriptor).to_vec();
        dying.into_iter().for_each(|life| self.record_life(TracePoint::KeyDoomed, descriptor, life));
    }

    /// All keys of an MR whose object is destroyed, or kept for good.
    #[cold]
    pub(super) fn record_all_dead(&mut self, point: TracePoint, descriptor: u32) {
        while let Some(life) = self.trace.as_mut().and_then(|trace| trace.keys.end_first(descriptor)) {
            self.record_life(point, descriptor, life);
        }
    }

    /// The device took the first `accepted` of a chain.
    #[inline(never)]
    pub(super) fn record_accepted(&mut self, index: usize, accepted: usize, all: usize) {
        let Some(trace) = &mut self.trace else { return };
        let (time_ns, connection) = (self.polls.now().nanoseconds(), index as u16);
        let (mut records, keys) = trace.at(time_ns, &mut self.counters);
        let mut rest = self.connections[index].sending.chain()[..accepted].iter();
        while let Some(request) = rest.next() {
            let descriptor = request.token.index_of(TokenKind::Register);
            if let Some(mr) = self.pool.get(descriptor) {
                let (_, _, owner) = mr.latest();
                let told = if rest.as_slice().first().is_some_and(|next| is_message_of(next, owner)) {
                    // It kills no key, and is no more than this.
                    rest.next().is_some()
                } else {
                    is_told(rest.as_slice(), owner)
                };
                records.put_latest(TracePoint::MrRegister { told }, descriptor, mr);
            } else if !request.token.is(TokenKind::Message) {
                let other = accepted_other(keys, request, &self.pool, &self.elements);
                if let Some((point, mr, life)) = other {
                    records.put(point, connection, mr, life);
                }
            }
        }
        records.put(TracePoint::PostSend, connection, NONE, Life::of(0, all as u32));
        drop(records);
        if trace.is_closed() {
            self.trace = None;
        }
        if accepted < all {
            self.record_unposted_from(index, accepted);
        }
    }

    /// From here on a connection's chain is not posted: what it would have registered was mapped all the same.
    #[cold]
    pub(super) fn record_unposted_from(&mut self, index: usize, from: usize) {
        for at in from..self.connections[index].sending.chain().len() {
            let request = self.connections[index].sending.chain()[at];
            if matches!(request.operation, Operation::Register(_)) {
                self.record(TracePoint::MrMapped, index as u16, Some(request.token.index()), 0);
            }
        }
    }

    /// The same of one request of it.
    #[cold]
    pub(super) fn record_unposted(&mut self, handle: Handle) {
        let Some(request) = self.requests.get(handle) else { return };
        let (index, mrs) = (request.connection(), request.mrs().iter().copied().collect::<Mrs>());
        for descriptor in mrs {
            self.record(TracePoint::MrMapped, index as u16, Some(descriptor), 0);
        }
    }

    /// The keys of a request whose grant its caller has.
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
    #[inline(never)]
    pub(super) fn record_invalidations(&mut self, index: usize, word: u64, mut dead: u64) {
        while dead != 0 {
            let token = self.connections[index].sending.queue().token_at(word + u64::from(dead.trailing_zeros()));
            dead &= dead - 1;
            let descriptor = token.index();
            let life = self.trace.as_mut().and_then(|trace| trace.keys.end_first(descriptor));
            let life = life.unwrap_or_else(|| self.latest_life(descriptor));
            self.record_life(TracePoint::LocalInvalidateDone, descriptor, life);
        }
    }

    /// The peer killed the key of this MR by a reply that was taken; [`Engine::record_killed`] is to follow.
    #[inline(always)]
    pub(super) fn note_killed(&mut self, descriptor: Option<u32>) {
        if let (Some(descriptor), Some(trace)) = (descriptor, &mut self.trace) {
            trace.killed(descriptor);
        }
    }

    /// Replies were taken that killed keys.
    #[inline(never)]
    pub(super) fn record_killed(&mut self) {
        let Some(trace) = &mut self.trace else { return };
        let (mut records, killed) = trace.of_killed(self.polls.now().nanoseconds(), &mut self.counters);
        for descriptor in killed {
            if let Some(mr) = self.pool.get(descriptor) {
                records.put_latest(TracePoint::MrRemoteInvalidate, descriptor, mr);
            }
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

/// What the device took and is neither a registration nor the message of a request, which kills no key: what is recorded
/// of it, of which MR.
#[inline(never)]
fn accepted_other(
    keys: &mut Keys,
    request: &WorkRequest,
    pool: &Pool,
    elements: &Elements,
) -> Option<(TracePoint, u32, Life)> {
    let descriptor = request.token.index();
    let bytes = |local| elements.range(local).iter().map(|element| element.length).sum();
    Some(match (request.operation, pool.get(descriptor)) {
        (Operation::Invalidate { .. }, Some(mr)) => {
            keys.dies(descriptor, Life::latest(mr));
            (TracePoint::MrLocalInvalidate, descriptor, Life::latest(mr))
        }
        (Operation::Send { invalidate: Some(key), .. }, _) => (TracePoint::PeerKeyInvalidated, NONE, Life::of(key, 0)),
        (Operation::Read { remote, local }, _) => (TracePoint::PeerKeyRead, NONE, Life::of(remote.key, bytes(local))),
        (Operation::Write { remote, local }, _) => {
            (TracePoint::PeerKeyWritten, NONE, Life::of(remote.key, bytes(local)))
        }
        _ => return None,
    })
}

/// Whether this is the message of the request in this slot.
#[inline(always)]
fn is_message_of(work: &WorkRequest, slot: u32) -> bool {
    work.token.index_of(TokenKind::Message) == slot
}

/// Whether the message of the request in this slot stands behind the rest of its registrations.
#[inline(never)]
fn is_told(behind: &[WorkRequest], slot: u32) -> bool {
    let mut rest = behind.iter().take(MAX_MRS_PER_REQUEST);
    rest.find(|next| !next.token.is(TokenKind::Register)).is_some_and(|next| is_message_of(next, slot))
}
