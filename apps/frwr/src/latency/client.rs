//! A client's core: it connects, warms up, measures, and leaves. Its room `client_open` is about connections, `client_requests`
//! about requests.

use super::{
    board::{Board, Step},
    client_open::Link,
    counters::Counters,
    doorbells::Doorbells,
    failure,
    layout::{Layout, PAGE},
    parameters::{KeyKind, Parameters},
    plan,
    silence::Pings,
    sleep::sleeps_until,
    slots::Slots,
    summary::histogram,
};
use crate::{
    Error,
    runner::{CLOSE_TIME, END_TIME, MemoryReport, map},
    schedule::Schedule,
};
use core::{task::Waker, time::Duration};
use frwr_engine::{
    CoreLink, Engine, Event, MemoryAccess, RequestHandle, Statistics, Timestamp, TraceRecord, WatchedClock,
    gather::{MemoryId, Segment},
    provider::{Capabilities, ConnectionParameters, Port, RemoteMemory},
};
use frwr_mempool::{DeviceMemory, lane, region::PagePolicy};
use frwr_reactor::{Clock, Now, PageFaults};
use hdrhistogram::Histogram;
use std::{collections::VecDeque, net::SocketAddr, os::fd::BorrowedFd};

/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 64 << 10;
/// How long nothing may come of what is owed: far beyond every retry of a device, and short for whoever waits at the screen.
const SILENCE: Duration = Duration::from_secs(15);
/// So much of that time, and of others in which somebody else has to do something, counts of any in which this core did not poll.
const STANDSTILL: Duration = Duration::from_secs(1);

/// When a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// After this time.
    Time(Duration),
    /// After so many requests of this core.
    Requests(u64),
}

/// What a client's core needs to begin.
#[derive(Clone)]
pub(super) struct ClientPlan {
    pub(super) parameters: Parameters,
    /// Connections of this core.
    pub(super) connections: u16,
    /// This core's number among the client's, and how many there are.
    pub(super) core: usize,
    pub(super) cores: usize,
    pub(super) address: SocketAddr,
    pub(super) private_data: Vec<u8>,
    pub(super) negotiated: ConnectionParameters,
    pub(super) extent: Extent,
    pub(super) warm_up: Duration,
    /// Requests per second of all cores.
    pub(super) rate: Option<u64>,
    /// Requests begin in rounds.
    pub(super) rounds: Option<Doorbells>,
    /// The server may begin to listen later than this connects.
    pub(super) patient: bool,
    pub(super) pages: PagePolicy,
    pub(super) capabilities: Capabilities,
}

/// How far a core is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Connections are opened, until then at most.
    Opening { deadline: Duration },
    /// Other cores open theirs.
    Waiting,
    /// Requests are not counted yet.
    WarmUp { until: Duration },
    /// Those of the warm-up end.
    Settling,
    /// Requests are counted.
    Measuring,
    /// No more begin.
    Draining,
    /// What was written is read back.
    Checking,
    /// Other cores still measure.
    Measured,
    /// Keys die, the server is told, connections end.
    Leaving,
    /// Nothing is left to do, or something went wrong.
    Done,
}

/// The client's half of a core.
pub(super) struct ClientSide<P: Port> {
    pub(super) engine: Engine<P>,
    pub(super) slots: Slots,
    pub(super) links: Vec<Link>,
    pub(super) plan: ClientPlan,
    pub(super) layout: Layout,
    pub(super) memory: MemoryId,
    pub(super) data: DeviceMemory,
    pub(super) phase: Phase,
    /// The time that requests begin and end at: see docs/latency.md.
    pub(super) time: Duration,
    clock: Clock,
    /// The clock is read for each request.
    precise: bool,
    /// It was read for a key that died in this iteration.
    read_for_keys: bool,
    /// Until then an iteration in which the engine found nothing has nothing to begin, to end or to give up.
    rests_until: Timestamp,
    /// The pieces of each slot's memory, one slot behind the other.
    pub(super) pieces: Box<[Segment]>,
    /// Slots without a request, the one that was free longest first.
    pub(super) free: VecDeque<u32>,
    /// Slots with one.
    pub(super) outstanding: u32,
    /// Keys of the batches of each slot.
    pub(super) keys: Box<[Option<RequestHandle>]>,
    /// Keys of a batch that system calls make.
    pub(super) memories: Vec<RemoteMemory>,
    /// Slots whose memory is to be read back.
    pub(super) unchecked: VecDeque<u32>,
    pub(super) message: Box<[u8]>,
    /// Requests begun so far; the low bits name them.
    pub(super) sequence: u64,
    /// Requests ended so far, those of the warm-up included.
    pub(super) ended: u64,
    recording: bool,
    histogram: Histogram<u64>,
    schedule: Option<Schedule>,
    /// Requests that are left to begin.
    left: u64,
    before: Counters,
    counters: Counters,
    faults_before: Option<PageFaults>,
    faults: Option<PageFaults>,
    began: Duration,
    last: Duration,
    /// Until when requests could begin.
    until: Duration,
    /// When something happened last, or was begun.
    pub(super) heard: Duration,
    /// By which that, and what others have for the opening, passes; whether this poll judges them.
    watch: WatchedClock,
    pub(super) judges: bool,
    pub(super) pings: Pings,
    missed: u64,
    /// When all requests of a run by numbers have been due, and those that began later.
    all_due: Duration,
    late: u64,
    interrupted: bool,
    /// When it found that it was told to end.
    told_at: Option<Duration>,
    pub(super) board: Board,
    /// Connect requests that a core of the server takes at a time, if it said that there were more.
    pub(super) crowded: Option<u16>,
    /// When it began to connect.
    pub(super) opening_since: Duration,
    memory_report: MemoryReport,
}

/// What a core measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) histogram: Histogram<u64>,
    pub(super) counters: Counters,
    /// From the beginning of the measurement to the end of its last request: of this core's thread, and of the process.
    pub(super) page_faults: Option<PageFaults>,
    /// The beginning of the measurement.
    pub(super) began: Duration,
    /// The end of its last request; at a rate also of the last request's period, if that is later.
    pub(super) last: Duration,
    /// Requests that have ended, those of the warm-up included.
    pub(super) ended: u64,
    /// Requests that were meant to begin, and did not.
    pub(super) missed: u64,
    /// Requests that began when all had been due for long: more of them than slots.
    pub(super) late: u64,
    pub(super) interrupted: bool,
    pub(super) memory: MemoryReport,
}

/// A clock that has looked.
fn watched_from(time: Duration) -> WatchedClock {
    let mut clock = WatchedClock::new(STANDSTILL);
    let _ = clock.is_due(time);
    clock
}

impl<P: Port> ClientSide<P> {
    /// Makes everything on the calling core. It may sleep where there is a waker.
    pub(super) fn new(
        port: P,
        link: CoreLink,
        plan: ClientPlan,
        node: Option<u32>,
        clock: Clock,
        board: Board,
        waker: Option<&Waker>,
    ) -> Result<Self, Error> {
        let Parameters { depth, batch, operation, key, .. } = plan.parameters;
        let options = plan::client(&plan.parameters, plan.connections, &plan.capabilities);
        let data_bytes = plan::data_bytes(&plan.parameters, plan.connections);
        let bytes = Engine::<P>::region_bytes(&options, &plan.capabilities)? + data_bytes + SLACK;
        let mut region = map(bytes, plan.pages, node)?;
        let message = vec![0; options.message_bytes as usize].into();
        let mut engine = Engine::new(port, link, &mut region, options, &plan.capabilities)?;
        if let Some(waker) = waker {
            engine.wakes(waker);
            board.wakes(plan.core, waker);
        }
        let data = region.carve(data_bytes, PAGE)?.into_device_memory();
        let memory = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).map_err(Error::setup)?;
        let layout = Layout::new(&plan.parameters);
        let slots = Slots::new(plan.connections, depth, &layout);
        let pieces = slots.offsets().flat_map(|offset| layout.pieces(memory, offset)).collect();
        let histogram = histogram().map_err(|error| Error::setup(format!("no latency histogram: {error:?}")))?;
        let keys = if operation.makes_keys_alone() { slots.len() as usize * usize::from(batch) } else { 0 };
        let time = clock.now();
        Ok(Self {
            engine,
            links: (0..plan.connections).map(|_| Link::new(time)).collect(),
            layout,
            memory,
            data,
            phase: Phase::Opening { deadline: time + super::client_open::OPENING_TIMEOUT },
            time,
            clock,
            // System calls take far longer than reading the clock.
            precise: depth == 1 || (key == KeyKind::Memory && !operation.is_transfer()),
            read_for_keys: false,
            rests_until: Timestamp::EPOCH,
            pieces,
            free: slots.in_turn().collect(),
            outstanding: 0,
            keys: vec![None; keys].into(),
            memories: Vec::with_capacity(usize::from(batch)),
            unchecked: VecDeque::new(),
            message,
            sequence: 0,
            ended: 0,
            recording: false,
            histogram,
            schedule: None,
            left: 0,
            before: Counters::default(),
            counters: Counters::default(),
            faults_before: None,
            faults: None,
            began: time,
            last: time,
            until: time,
            heard: time,
            watch: watched_from(time),
            judges: false,
            pings: Pings::none(),
            missed: 0,
            all_due: Duration::MAX,
            late: 0,
            interrupted: false,
            told_at: None,
            board,
            crowded: None,
            opening_since: time,
            memory_report: MemoryReport::of(&region),
            slots,
            plan,
        })
    }

    /// Tells what becomes of keys.
    pub(super) fn trace_keys(&mut self, records: lane::Sender<TraceRecord>) {
        self.engine.trace_to(records);
    }

    /// The engine's figures.
    pub(super) fn engine(&self) -> Statistics {
        self.engine.statistics()
    }

    /// What it measured.
    pub(super) fn measured(self) -> Measured {
        Measured {
            histogram: self.histogram,
            counters: self.counters,
            page_faults: self.faults,
            began: self.began,
            last: self.last,
            ended: self.ended,
            missed: self.missed,
            late: self.late.saturating_sub(self.slots.len().into()),
            interrupted: self.interrupted,
            memory: self.memory_report,
        }
    }

    pub(super) fn poll(&mut self, now: &Now) -> u32 {
        let time = Timestamp::from_nanoseconds(now.nanoseconds());
        let read = self.engine.poll(time, &mut self.slots);
        let mut work = read;
        // Most iterations of a core that waits end here: how long one takes is part of what it measures.
        if work == 0 && time < self.rests_until && !self.board.wants_stop() {
            return 0;
        }
        let now = now.time();
        self.time = now;
        self.read_for_keys = false;
        let looks = self.look(now);
        while let Some(event) = self.engine.next_event() {
            work += 1;
            let (heard, awaited) = (core::mem::replace(&mut self.heard, now), self.pings.awaited());
            let taken = self.event(event);
            if self.pings.awaited() < awaited {
                // An answered ping is no sign that what is owed will come.
                self.heard = heard;
            }
            self.unless_failed(taken);
        }
        work += self.answers(now);
        self.judges = looks && self.watch.judges(self.engine.may_have_unread(read), self.engine.polls_of_full_queues());
        let stepped = self.step(now);
        work += self.unless_failed(stepped);
        self.rests_until = self.rest().into();
        self.board.count(self.plan.core, self.ended);
        work
    }

    /// What the server wrote since the last poll: it is in memory, and no event.
    fn answers(&mut self, now: Duration) -> u32 {
        if !self.plan.parameters.operation.rallies() || self.outstanding == 0 {
            return 0;
        }
        let found = self.look_for_answers();
        if found > 0 {
            self.heard = now;
        }
        found
    }

    /// Time in which nobody polled is nobody's. Whether silence may be judged in this poll.
    fn look(&mut self, now: Duration) -> bool {
        let before = self.watch.stood_still();
        if !self.watch.is_due(now) {
            return false;
        }
        let stood_still = self.watch.stood_still() - before;
        self.heard += stood_still;
        self.opening_since += stood_still;
        self.told_at = match self.told_at {
            None => self.board.wants_stop().then_some(now),
            Some(told_at) => Some(told_at + stood_still),
        };
        if let Phase::Opening { deadline } = &mut self.phase {
            *deadline += stood_still;
        }
        true
    }

    /// Until when it does nothing by itself; [`Duration::ZERO`] where it may do something at any time.
    fn rest(&self) -> Duration {
        if self.plan.parameters.operation.rallies() && self.outstanding > 0 {
            return Duration::ZERO;
        }
        let end = match self.phase {
            Phase::WarmUp { until } => until,
            Phase::Measuring if self.left > 0 => self.measures_until(),
            _ => return Duration::ZERO,
        };
        let waits = self.free.is_empty() || (self.plan.rounds.is_some() && self.outstanding > 0);
        let begins = match &self.schedule {
            _ if waits => Duration::MAX,
            Some(schedule) => schedule.next(),
            None => Duration::ZERO,
        };
        end.min(begins).min(self.pings.due).min(self.watch.looks_at())
    }

    pub(super) fn flush(&mut self) {
        self.engine.flush();
    }

    /// Its port's descriptor, if it has one.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.engine.port().descriptor()
    }

    /// Until when its core may sleep if nothing arrives; `None`: not now.
    pub(super) fn sleeps_until(&self) -> Option<Duration> {
        sleeps_until(&self.engine, self.rests_until)
    }

    /// Whatever arrives, and the end of the run, wakes its core from now on.
    pub(super) fn arm(&mut self) -> bool {
        self.board.arm(self.plan.core);
        self.engine.arm()
    }

    /// Connections end, whatever they do.
    pub(super) fn shut_down(&mut self) {
        self.phase = Phase::Done;
        self.rests_until = Timestamp::EPOCH;
        let connections: Vec<_> = self.engine.connections().collect();
        connections.into_iter().for_each(|connection| self.engine.disconnect(connection));
    }

    pub(super) fn is_drained(&self) -> bool {
        self.engine.is_disconnected()
    }

    fn unless_failed<T: Default>(&mut self, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|failure| {
            if self.phase != Phase::Done {
                self.phase = Phase::Done;
                self.board.fail(failure);
            }
            T::default()
        })
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Connected { connection, .. } => self.connected(connection),
            Event::OpenFailed { connection, reason, private_data } => {
                self.open_failed(connection, reason, &private_data)
            }
            Event::Received { connection, received } => self.greeted(connection, received),
            Event::Registered { request, cookie, grant } => self.registered(request, cookie, grant),
            Event::Completed { cookie, status, .. } => self.completed(cookie, status),
            Event::Fetched { cookie, status } | Event::Written { cookie, status } => self.transferred(cookie, status),
            Event::Responded { cookie, status } => {
                self.told(cookie, status);
                Ok(())
            }
            Event::Disconnected { connection, cause, .. } => self.disconnected(connection, cause),
            Event::QueuePairKept { connection } => {
                self.kept(connection);
                Ok(())
            }
            // It does not listen, and shares its completion queues with nobody.
            _ => Ok(()),
        }
    }

    /// Takes the time at which something ended, or begins behind it.
    pub(super) fn read_clock(&mut self) {
        if self.precise {
            self.time = self.clock.now();
        }
    }

    /// The same for keys of a batch: those that one poll finds dead died together.
    pub(super) fn read_clock_for_keys(&mut self) {
        if !core::mem::replace(&mut self.read_for_keys, true) {
            self.read_clock();
        }
    }

    /// The request in a slot begins now, unless it was meant to begin at a time of its own. What the program itself does in
    /// front of it is no part of it.
    pub(super) fn begins_now(&mut self, slot: u32) {
        if self.precise && self.schedule.is_none() {
            self.time = self.clock.now();
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.start = self.time;
            }
        }
    }

    /// A request ended now: it is counted if the measurement has begun.
    pub(super) fn count(&mut self, start: Duration, requests: u64) {
        self.ended += requests;
        self.last = self.time;
        if self.recording {
            let nanoseconds = self.time.saturating_sub(start).as_nanos();
            // 0 is less than the clock tells apart.
            let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX).max(1);
            self.histogram.saturating_record_n(nanoseconds, requests);
        }
    }

    /// Something is owed by the server or the device, and nothing has come for long.
    fn is_in_vain(&self, now: Duration) -> bool {
        if !self.judges {
            return false;
        }
        let owed = match self.phase {
            Phase::WarmUp { .. } | Phase::Settling | Phase::Measuring | Phase::Draining | Phase::Measured => {
                self.outstanding > 0 || self.pings.awaited() > 0
            }
            Phase::Checking => true,
            Phase::Leaving => self.awaits_an_end(),
            _ => false,
        };
        owed && now > self.waits_until()
    }

    /// Until when it waits for what is owed: as long as anything may take, or who has told it to end waits.
    fn waits_until(&self) -> Duration {
        let Some(told_at) = self.told_at else { return self.heard.saturating_add(SILENCE) };
        let closing = if self.phase == Phase::Leaving { CLOSE_TIME } else { Duration::ZERO };
        told_at.saturating_add(END_TIME + closing)
    }

    fn step(&mut self, now: Duration) -> Result<u32, Error> {
        if self.is_in_vain(now) {
            if self.phase == Phase::Leaving {
                // All is counted: what the server owes now is a word of leave.
                self.shut_down();
                self.board.reach(self.plan.core, Step::Finished);
                return Ok(0);
            }
            return Err(match self.told_at {
                Some(_) => failure::unended(END_TIME.as_secs(), self.ended),
                None => failure::silent(SILENCE.as_secs(), self.ended),
            });
        }
        if now >= self.pings.due && !matches!(self.phase, Phase::Leaving | Phase::Done) {
            self.ping(now)?;
        }
        let quiet = self.outstanding == 0 && self.pings.awaited() == 0;
        match self.phase {
            Phase::Opening { .. } | Phase::Waiting if self.board.wants_stop() => {
                self.interrupted = true;
                self.shut_down();
                self.board.reach(self.plan.core, Step::Finished);
            }
            Phase::Opening { deadline } => self.open_links(now, deadline)?,
            Phase::Waiting if self.board.all_reached(Step::Ready) => {
                self.schedule(now);
                self.phase = Phase::WarmUp { until: now.saturating_add(self.plan.warm_up) };
            }
            Phase::WarmUp { until } if now >= until || self.board.wants_stop() => self.phase = Phase::Settling,
            Phase::WarmUp { .. } => {
                self.left = u64::MAX;
                return self.begin_requests(now, Duration::MAX);
            }
            Phase::Settling if quiet => self.begin_measurement(),
            Phase::Measuring => return self.measure(now),
            Phase::Draining if quiet => self.end_measurement(),
            Phase::Checking => return self.read_back(),
            Phase::Measured if quiet && self.board.all_reached(Step::Measured) => {
                self.pings.end();
                self.phase = Phase::Leaving;
                self.heard = now;
                self.leave()?;
            }
            Phase::Waiting | Phase::Settling | Phase::Draining | Phase::Measured | Phase::Leaving | Phase::Done => {}
        }
        Ok(0)
    }

    /// All connections are open.
    pub(super) fn opened(&mut self) {
        self.phase = Phase::Waiting;
        self.board.reach(self.plan.core, Step::Ready);
    }

    /// All connections are gone.
    pub(super) fn left_all(&mut self) {
        self.phase = Phase::Done;
        self.board.reach(self.plan.core, Step::Finished);
    }

    fn schedule(&mut self, start: Duration) {
        let (core, cores) = (self.plan.core as u64, self.plan.cores as u64);
        self.schedule = self.plan.rate.map(|rate| Schedule::new(start, rate, core, cores));
    }

    fn begin_measurement(&mut self) {
        self.phase = Phase::Measuring;
        self.recording = true;
        self.before = Counters::from(self.engine.statistics());
        let _ = self.pings.take_cost();
        self.faults_before = PageFaults::so_far();
        self.time = self.clock.now();
        (self.began, self.last) = (self.time, self.time);
        self.schedule(self.time);
        self.left = match self.plan.extent {
            Extent::Requests(requests) => requests,
            Extent::Time(_) => u64::MAX,
        };
        let requests = Some(self.left).filter(|left| *left < u64::MAX);
        self.all_due = self.schedule.zip(requests).map_or(Duration::MAX, |(schedule, all)| schedule.end_of(all));
    }

    /// When the measurement is over at the latest.
    fn measures_until(&self) -> Duration {
        match self.plan.extent {
            Extent::Time(runtime) => self.began.saturating_add(runtime),
            Extent::Requests(_) => Duration::MAX,
        }
    }

    fn measure(&mut self, now: Duration) -> Result<u32, Error> {
        let end = self.measures_until();
        let stopped = self.board.wants_stop();
        if self.left > 0 && self.time < end && !stopped {
            return self.begin_requests(now, end);
        }
        self.interrupted = stopped;
        self.until = if stopped { self.time } else { end };
        // What fell due since the last iteration, and finds a slot, is late but not missed.
        let last = if self.schedule.is_some() && !stopped { self.begin_requests(now, end)? } else { 0 };
        if let (Some(schedule), Extent::Time(_)) = (&self.schedule, self.plan.extent) {
            self.missed = schedule.missed(end.min(self.time));
        }
        self.phase = Phase::Draining;
        Ok(last)
    }

    /// Begins what is due, as far as there are slots. Returns how many.
    fn begin_requests(&mut self, now: Duration, end: Duration) -> Result<u32, Error> {
        let mut begun = 0;
        let (rounds, is_idle) = (self.plan.rounds, self.outstanding == 0);
        if rounds.is_some() && self.outstanding > 0 {
            return Ok(0);
        }
        while let Some(&slot) = self.free.front()
            && self.left > 0
        {
            let start = match &self.schedule {
                None => self.time,
                Some(schedule) => match schedule.next() {
                    due if due <= now && due < end => due,
                    _ => break,
                },
            };
            let requests = self.begin(slot, start, self.left)?;
            if requests == 0 {
                break;
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.take(now);
                self.late += u64::from(now > self.all_due);
            }
            self.left = self.left.saturating_sub(requests);
            begun += 1;
            if rounds == Some(Doorbells::Each) {
                self.engine.flush();
            }
            if self.plan.parameters.registers_by_call() {
                // It is over already: others have their turn.
                break;
            }
        }
        if begun > 0 {
            if is_idle {
                // From now on something is owed. One more of those that are owed already is no sign of life.
                self.heard = now;
            }
            if self.plan.parameters.operation.sends_messages() {
                self.pings.spoke(now);
            }
        }
        Ok(begun)
    }

    fn end_measurement(&mut self) {
        self.recording = false;
        if let Some(schedule) = &self.schedule {
            self.last = self.last.max(schedule.covered().min(self.until));
        }
        self.faults = PageFaults::so_far().zip(self.faults_before).map(|(all, before)| all - before);
        self.counters = Counters::from(self.engine.statistics()) - self.before - self.pings.take_cost();
        if self.plan.parameters.operation.reads_back() {
            let used = self.slots.in_turn().filter(|&slot| self.slots.get(slot).is_some_and(|slot| slot.sequence > 0));
            self.unchecked = used.collect();
            self.heard = self.time;
            self.phase = Phase::Checking;
        } else {
            self.checked();
        }
    }

    /// Nothing of it is left to be looked at.
    pub(super) fn checked(&mut self) {
        self.phase = Phase::Measured;
        self.board.reach(self.plan.core, Step::Measured);
    }
}
