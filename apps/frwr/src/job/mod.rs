//! The main job: write a file into a namespace, or take the namespace as it is; read it in random order, check its digest,
//! then keep a load going in which every block read is checked. Where there is no file, and nothing is to be compared with
//! what was there, the load is all of it.
//!
//! The job says what to do next and is told what became of it; it knows nothing of transports or clocks. What the load is
//! made of is a policy each: places and sizes of its requests, when they begin, whether they are checked, when it ends.
//!
//! Several cores may share its load, each in blocks of its own: one of them has the job, and hands out a [`Share`] to every other
//! one when the load begins.

mod ended;
mod layout;
mod ledger;
mod load;
mod next;
mod options;
mod pattern;
mod random;
mod request;
mod sizes;
mod tally;
#[cfg(test)]
mod tests;

pub use layout::Layout;
pub(crate) use ledger::{MAX_UNITS, UNIT_BYTES};
pub use load::Times;
pub use options::{AddressOrder, Change, Content, JobOptions, LoadOptions, Mix, Rate};
pub use pattern::Mismatch;
pub use request::{Caught, Operation, Phase, Request};
pub use sizes::Sizes;
pub use tally::{Side, Tally};

use core::{ops::Range, time::Duration};
use frwr_mempool::DeviceMemory;
use ledger::Ledger;
use load::{LoadState, Part};
use random::Random;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Bytes of the read-back file hashed per poll: some 20 microseconds with the processor's SHA instructions.
const HASH_BYTES_PER_POLL: usize = 32 << 10;

/// A part of a job's load, for another core.
#[derive(Clone, Debug)]
pub struct Share {
    /// What the namespace holds, as the job has read it back, up to a whole block of the namespace.
    copy: Arc<Vec<u8>>,
    /// Which of the job's units are this core's alone, at least as many as its largest request has.
    part: Part,
    /// When it goes on.
    times: Times,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    request: Option<Request>,
    started: Duration,
    /// Its memory has been filled once, for writes that nobody checks.
    filled: bool,
}

/// The job's state. All memory is taken at the start.
pub struct Job {
    options: JobOptions,
    memory: DeviceMemory,
    layout: Layout,
    phase: Phase,
    /// Bytes of the content, in whole blocks of the namespace.
    bytes_in_all: u64,
    /// Requests of each phase before the load.
    blocks: u64,
    next: u64,
    order: random::Order,
    random: Random,
    slots: Box<[Slot]>,
    in_flight: u32,
    /// What was offered last and is not on its way: its slot's memory has what it writes.
    offered: Option<Request>,
    /// What was written where; none where nothing is checked.
    ledger: Option<Ledger>,
    /// Nobody else has it before it is whole.
    read_back: Arc<Vec<u8>>,
    block: Box<[u8]>,
    hasher: Sha256,
    digest: Option<[u8; 32]>,
    load: LoadState,
    stopping: bool,
    tally: Tally,
    interval: Option<Box<Tally>>,
    caught: Option<Caught>,
    requests: u64,
    bytes: u64,
    unchecked_bytes: u64,
    behind: Option<Duration>,
}

impl Job {
    /// A job that begins now, over `memory`, which holds [`Layout::slot_bytes`] per slot. `tally` is where it counts.
    #[must_use]
    pub fn new(options: JobOptions, memory: DeviceMemory, tally: Tally, now: Duration) -> Self {
        let bytes = options.content.copied_bytes().next_multiple_of(options.sector_bytes.into());
        let phase = match options.content {
            Content::File { .. } => Phase::Write,
            Content::Found { .. } => Phase::Read,
            Content::Range { .. } => Phase::Load,
        };
        let units = 0..units(&options);
        let mut job = Self::beginning(phase, Arc::new(vec![0; bytes as usize]), units, options, memory, tally);
        if phase == Phase::Load {
            job.load.begin(now);
        }
        job
    }

    /// A share of another core's job with the same options: nothing but load, in the blocks of that share.
    #[must_use]
    pub fn of_share(options: JobOptions, share: Share, memory: DeviceMemory, tally: Tally) -> Self {
        let Share { copy, part, times } = share;
        let mut job = Self::beginning(Phase::Load, copy, part.units.clone(), options, memory, tally);
        job.load.begin_part(part, times);
        job
    }

    fn beginning(
        phase: Phase,
        read_back: Arc<Vec<u8>>,
        units: Range<u64>,
        options: JobOptions,
        memory: DeviceMemory,
        tally: Tally,
    ) -> Self {
        let block_bytes = options.load.sizes.most();
        let bytes_in_all = bytes_in_all(&options);
        let blocks = bytes_in_all.div_ceil(block_bytes.into());
        let idle = Slot { request: None, started: Duration::ZERO, filled: false };
        Self {
            memory,
            layout: Layout::new(block_bytes, options.pieces),
            phase,
            bytes_in_all,
            blocks,
            next: 0,
            order: random::Order::new(blocks, options.seed),
            random: Random::new(options.seed),
            slots: vec![idle; options.queue_depth as usize].into(),
            in_flight: 0,
            offered: None,
            ledger: options.load.verify.then(|| Ledger::new(units.clone())),
            read_back,
            block: vec![0; block_bytes as usize].into(),
            hasher: Sha256::new(),
            digest: None,
            load: LoadState::new(options.load.clone(), units),
            stopping: false,
            tally,
            interval: None,
            caught: None,
            requests: 0,
            bytes: 0,
            unchecked_bytes: 0,
            behind: None,
            options,
        }
    }

    /// Divides the units of the load, which has just begun, among this core and at most `others` other ones: what is
    /// theirs. This one keeps the first part.
    #[must_use]
    pub fn divide(&mut self, others: usize) -> Vec<Share> {
        let Some(times) = self.load.times().filter(|_| self.phase == Phase::Load) else { return Vec::new() };
        let units = units(&self.options);
        let largest = u64::from(self.options.load.sizes.most() / self.unit_bytes());
        let parts = (others as u64 + 1).min(units / largest).max(1);
        let part =
            |number: u64| Part { units: units * number / parts..units * (number + 1) / parts, number, of: parts };
        let copy = || Arc::clone(&self.read_back);
        let shares = (1..parts).map(|number| Share { copy: copy(), part: part(number), times }).collect();
        self.load.begin_part(part(0), times);
        shares
    }

    fn unit_bytes(&self) -> u32 {
        self.options.load.sizes.unit()
    }

    /// How far it has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Requests ended.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Bytes that the requests which succeeded have read and written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Nothing wrong was found anywhere, and everything was read once; of a range whatever was to be checked.
    #[must_use]
    pub fn verified(&self) -> bool {
        let read = self.digest.is_some() || matches!(self.options.content, Content::Range { .. });
        read && self.options.load.verify && self.caught.is_none()
    }

    /// SHA-256 of what was read; `None` until all of it was.
    #[must_use]
    pub fn digest(&self) -> Option<[u8; 32]> {
        self.digest
    }

    /// What was read first; whole once there is a digest.
    #[must_use]
    pub fn read_back(&self) -> &[u8] {
        &self.read_back[..self.content_bytes()]
    }

    /// Bytes of the content.
    #[must_use]
    pub fn content_in_all(&self) -> u64 {
        self.options.content.bytes()
    }

    /// The first thing that was wrong.
    #[must_use]
    pub fn caught(&self) -> Option<Caught> {
        self.caught
    }

    /// What its requests came to, those of the load from when it counts on. Latencies are from submission, or with a rate from
    /// when a request was meant to begin, to the end of the fence.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Bytes that were read and not checked, since the load had not written them before.
    #[must_use]
    pub fn unchecked_bytes(&self) -> u64 {
        self.unchecked_bytes
    }

    /// How far the load was behind its rate when it ended; `None` without a rate.
    #[must_use]
    pub fn behind(&self) -> Option<Duration> {
        self.behind
    }

    /// When it has to be looked at although no request ends; `None` where only that brings it on.
    #[must_use]
    pub fn due_at(&self, now: Duration) -> Option<Duration> {
        self.load.due_at(now)
    }

    /// When its load counts; `None` before it has begun.
    #[must_use]
    pub fn counts_from(&self) -> Option<Duration> {
        self.load.times().map(|times| times.counts)
    }

    /// From now on the load is counted in `interval` as well, which is of nothing yet. Returns what was counted in until now.
    pub fn exchange_interval(&mut self, interval: Box<Tally>) -> Option<Box<Tally>> {
        self.interval.replace(interval)
    }

    /// Submits nothing more; ends when all in flight has.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Submits nothing more of the load, which has gone on for long enough.
    pub fn end_load(&mut self, now: Duration) {
        if self.phase == Phase::Load {
            self.drain(now);
        }
    }

    fn drain(&mut self, now: Duration) {
        self.behind = self.load.behind(now);
        self.enter(Phase::Drain);
    }

    /// Moves on where nothing has to be submitted: phase changes, and some of the digest. Returns the work done.
    pub fn poll(&mut self, now: Duration) -> u32 {
        let stop = self.stopping || self.caught.is_some();
        if stop && !matches!(self.phase, Phase::Drain | Phase::Done) {
            self.phase = Phase::Drain;
        }
        match self.phase {
            Phase::Write if self.next == self.blocks && self.in_flight == 0 => self.enter(Phase::Flush),
            Phase::Flush if self.next == 1 && self.in_flight == 0 => self.enter(Phase::Read),
            Phase::Read if self.next == self.blocks && self.in_flight == 0 => self.enter(Phase::Digest),
            Phase::Digest => self.hash(now),
            Phase::Load if self.load.is_over(now) => self.drain(now),
            Phase::Drain if self.in_flight == 0 => self.enter(Phase::Done),
            _ => return 0,
        }
        1
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.next = 0;
    }

    /// What is hashed and kept: shorter than the read-back memory, which ends with a block of the namespace.
    fn content_bytes(&self) -> usize {
        (self.options.content.bytes() as usize).min(self.read_back.len())
    }

    fn hash(&mut self, now: Duration) {
        let (at, all) = (self.next as usize, self.content_bytes());
        let end = (at + HASH_BYTES_PER_POLL).min(all);
        self.hasher.update(&self.read_back[at..end]);
        self.next = end as u64;
        if end == all {
            let digest: [u8; 32] = self.hasher.finalize_reset().into();
            self.digest = Some(digest);
            let expected = match &self.options.content {
                Content::File { digest, .. } => Some(*digest),
                Content::Found { expected, .. } => *expected,
                Content::Range { .. } => None,
            };
            if expected.is_some_and(|expected| expected != digest) {
                self.caught.get_or_insert(Caught::Digest);
            }
            // Without a load the namespace keeps the file.
            if self.options.load.runtime.is_zero() {
                self.enter(Phase::Drain);
            } else {
                self.load.begin(now);
                self.enter(Phase::Load);
            }
        }
    }
}

/// In whole blocks of the namespace; of a range no part of a unit.
fn bytes_in_all(options: &JobOptions) -> u64 {
    let bytes = options.content.bytes();
    match options.content {
        Content::Range { .. } => bytes - bytes % u64::from(options.load.sizes.unit()),
        Content::File { .. } | Content::Found { .. } => bytes.next_multiple_of(options.sector_bytes.into()),
    }
}

/// How many the content is of; the last may be short.
fn units(options: &JobOptions) -> u64 {
    bytes_in_all(options).div_ceil(options.load.sizes.unit().into())
}
