//! The main job: write a file into a namespace, or take the namespace as it is; read it in random order, check its digest,
//! then keep a load going in which every block read is checked.
//!
//! The job says what to do next and is told what became of it; it knows nothing of transports or clocks.
//!
//! Several cores may share its load, each in blocks of its own: one of them has the job, and hands out a [`Share`] to every other
//! one when the load begins.

mod layout;
mod pattern;
mod random;

pub use layout::Layout;
pub use pattern::Mismatch;
use random::Random;

use core::{ops::Range, time::Duration};
use frwr_mempool::DeviceMemory;
use hdrhistogram::Histogram;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Bytes of the read-back file hashed per poll: some 20 microseconds with the processor's SHA instructions.
const HASH_BYTES_PER_POLL: usize = 32 << 10;

/// Longest latency told apart, in nanoseconds: a minute. More counts as a minute.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Significant decimal digits of a latency: 3, as fio and perftest print.
const LATENCY_DIGITS: u8 = 3;

/// Tries to find a block that no request works on before the job waits for completions.
const PICK_TRIES: u32 = 8;

/// What the namespace shall hold.
#[derive(Clone, Debug)]
pub enum Content {
    /// A file, which the job writes first.
    File {
        /// Its bytes, at least one.
        bytes: Arc<[u8]>,
        /// Their SHA-256.
        digest: [u8; 32],
    },
    /// What is there already. The job never writes, and holds every later read against its first one.
    Found {
        /// How many bytes of it, at least one.
        bytes: u64,
        /// Their SHA-256, where it is known from elsewhere.
        expected: Option<[u8; 32]>,
    },
}

impl Content {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => bytes.len() as u64,
            Self::Found { bytes, .. } => *bytes,
        }
    }
}

/// What the job is.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// What is moved.
    pub content: Content,
    /// Bytes of the namespace's blocks: no request is shorter, and the last of a round may be as short.
    pub sector_bytes: u32,
    /// Bytes of a block of the job, a power of two: what one request moves.
    pub block_bytes: u32,
    /// Pieces of a request's memory, with gaps between them; 1 for none.
    pub pieces: u32,
    /// Blocks in flight at the same time.
    pub queue_depth: u32,
    /// Share of reads in the load, in percent; all of it where the content was found.
    pub read_share: u8,
    /// How long the load goes on.
    pub runtime: Duration,
    /// Chooses order and patterns.
    pub seed: u64,
}

/// A part of a job's load, for another core.
#[derive(Clone, Debug)]
pub struct Share {
    /// What the namespace holds, as the job has read it back, up to a whole block of the namespace.
    pub copy: Arc<Vec<u8>>,
    /// Which of the job's blocks are this core's alone; at least one.
    pub blocks: Range<u64>,
    /// When the load ends, on the clock of all cores.
    pub ends: Duration,
}

/// How far the job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Writing the file, block by block.
    Write,
    /// Making it durable.
    Flush,
    /// Reading it back in random order.
    Read,
    /// Checking its digest.
    Digest,
    /// Load: mixed, or reads only where the content was found.
    Load,
    /// No more to submit; waiting for what is in flight.
    Drain,
    /// Everything ended.
    Done,
}

/// What to submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read a block into the slot's buffer.
    Read,
    /// Write a block out of the slot's buffer.
    Write,
    /// Flush; no buffer.
    Flush,
}

/// One request of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// Which of the job's blocks.
    pub lba: u64,
    /// How much of it: the last one may be short.
    pub bytes: u32,
    /// Which slot; [`Layout::pieces`] says where its buffer lies in the job's memory. Comes back with the completion.
    pub slot: u32,
}

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Caught {
    /// A block is not what was written.
    #[error(
        "block {lba}: byte {} is {:#x}, but {:#x} was written or read before", mismatch.offset, mismatch.found, mismatch.expected
    )]
    Block {
        /// Which.
        lba: u64,
        /// Where.
        mismatch: Mismatch,
    },
    /// The file that came back is not the one that was written, or that was expected.
    #[error("what was read has another SHA-256 than what was written or expected")]
    Digest,
    /// A request failed.
    #[error("a request for block {lba} failed")]
    Failed {
        /// Which block.
        lba: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    request: Option<Request>,
    version: u32,
    started: Duration,
}

/// The job's state. All memory is taken at the start.
pub struct Job {
    options: JobOptions,
    memory: DeviceMemory,
    layout: Layout,
    phase: Phase,
    blocks: u64,
    next: u64,
    order: random::Order,
    random: Random,
    slots: Box<[Slot]>,
    in_flight: u32,
    versions: Box<[u32]>,
    busy: Box<[bool]>,
    /// Nobody else has it before it is whole.
    read_back: Arc<Vec<u8>>,
    block: Box<[u8]>,
    hasher: Sha256,
    digest: Option<[u8; 32]>,
    load_ends: Option<Duration>,
    /// Blocks of the load.
    load: Range<u64>,
    stopping: bool,
    latency: Histogram<u64>,
    caught: Option<Caught>,
    requests: u64,
    bytes: u64,
}

impl Job {
    /// A job over `memory`, which holds [`Layout::slot_bytes`] per slot. `latency` is where it counts.
    #[must_use]
    pub fn new(options: JobOptions, memory: DeviceMemory, latency: Histogram<u64>) -> Self {
        let bytes = options.content.bytes().next_multiple_of(options.sector_bytes.into());
        let phase = if matches!(options.content, Content::File { .. }) { Phase::Write } else { Phase::Read };
        Self::beginning(phase, Arc::new(vec![0; bytes as usize]), options, memory, latency)
    }

    /// A share of another core's job with the same options: nothing but load, in the blocks of that share.
    #[must_use]
    pub fn of_share(options: JobOptions, share: Share, memory: DeviceMemory, latency: Histogram<u64>) -> Self {
        let mut job = Self::beginning(Phase::Load, share.copy, options, memory, latency);
        (job.load, job.load_ends) = (share.blocks, Some(share.ends));
        job
    }

    fn beginning(
        phase: Phase,
        read_back: Arc<Vec<u8>>,
        options: JobOptions,
        memory: DeviceMemory,
        latency: Histogram<u64>,
    ) -> Self {
        let block_bytes = options.block_bytes as usize;
        let blocks = options.content.bytes().div_ceil(block_bytes as u64);
        let idle = Slot { request: None, version: 0, started: Duration::ZERO };
        Self {
            memory,
            layout: Layout::new(options.block_bytes, options.pieces),
            phase,
            blocks,
            next: 0,
            order: random::Order::new(blocks, options.seed),
            random: Random::new(options.seed),
            slots: vec![idle; options.queue_depth as usize].into(),
            in_flight: 0,
            versions: vec![0; blocks as usize].into(),
            busy: vec![false; blocks as usize].into(),
            read_back,
            block: vec![0; block_bytes].into(),
            hasher: Sha256::new(),
            digest: None,
            load_ends: None,
            load: 0..blocks,
            stopping: false,
            latency,
            caught: None,
            requests: 0,
            bytes: 0,
            options,
        }
    }

    /// Divides the blocks of the load, which has just begun, among this core and at most `others` other ones: what is
    /// theirs. This one keeps the first part.
    #[must_use]
    pub fn divide(&mut self, others: usize) -> Vec<Share> {
        let Some(ends) = self.load_ends.filter(|_| self.phase == Phase::Load) else { return Vec::new() };
        let parts = (others as u64 + 1).min(self.blocks).max(1);
        let part = |index: u64| self.blocks * index / parts..self.blocks * (index + 1) / parts;
        let copy = || Arc::clone(&self.read_back);
        let shares = (1..parts).map(|index| Share { copy: copy(), blocks: part(index), ends }).collect();
        self.load = part(0);
        shares
    }

    /// Blocks that the namespace must have.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
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

    /// Everything was read, and nothing wrong was found anywhere.
    #[must_use]
    pub fn verified(&self) -> bool {
        self.digest.is_some() && self.caught.is_none()
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

    /// The first thing that was wrong.
    #[must_use]
    pub fn caught(&self) -> Option<Caught> {
        self.caught
    }

    /// Latencies of all requests in nanoseconds, from submission to the end of the fence.
    #[must_use]
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Submits nothing more; ends when all in flight has.
    pub fn stop(&mut self) {
        self.stopping = true;
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
            Phase::Load if self.load_ends.is_some_and(|end| now >= end) => self.enter(Phase::Drain),
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
            };
            if expected.is_some_and(|expected| expected != digest) {
                self.caught.get_or_insert(Caught::Digest);
            }
            self.load_ends = Some(now + self.options.runtime);
            // Without a load the namespace keeps the file.
            self.enter(if self.options.runtime.is_zero() { Phase::Drain } else { Phase::Load });
        }
    }

    /// The next request to submit, if the job wants one and has a slot for it. The caller either submits it and says
    /// [`Job::submitted`], or drops it and is offered one again.
    pub fn next_request(&mut self) -> Option<Request> {
        if self.in_flight as usize == self.slots.len() {
            return None;
        }
        let slot = self.slots.iter().position(|slot| slot.request.is_none())? as u32;
        let (operation, lba) = match self.phase {
            Phase::Write if self.next < self.blocks => (Operation::Write, self.next),
            Phase::Flush if self.next == 0 => (Operation::Flush, 0),
            Phase::Read if self.next < self.blocks => (Operation::Read, self.order.at(self.next)),
            Phase::Load => {
                let lba = self.pick()?;
                let found = matches!(self.options.content, Content::Found { .. });
                let read = found || self.random.below(100) < u64::from(self.options.read_share);
                (if read { Operation::Read } else { Operation::Write }, lba)
            }
            _ => return None,
        };
        let request = Request { operation, lba, bytes: self.extent(lba).len() as u32, slot };
        if operation == Operation::Write {
            self.fill(request);
        }
        Some(request)
    }

    fn pick(&mut self) -> Option<u64> {
        let Range { start, end } = self.load;
        (0..PICK_TRIES).map(|_| start + self.random.below(end - start)).find(|&lba| !self.busy[lba as usize])
    }

    fn fill(&mut self, request: Request) {
        let (lba, bytes) = (request.lba, request.bytes as usize);
        let block = &mut self.block[..bytes];
        if self.phase == Phase::Write {
            let content = file_block(&self.options, lba);
            let (held, padding) = block.split_at_mut(content.len().min(bytes));
            held.copy_from_slice(&content[..held.len()]);
            padding.fill(0);
        } else {
            let version = self.versions[lba as usize].wrapping_add(1).max(1);
            pattern::fill(block, self.options.seed, lba, version);
        }
        for (offset, range) in self.layout.pieces(request.slot, bytes) {
            // The memory has room for every slot.
            let _ = self.memory.write(offset, &block[range]);
        }
    }

    /// Where a block lies in the read-back memory; only the last may be short.
    fn extent(&self, lba: u64) -> Range<usize> {
        let first = (lba as usize * self.block.len()).min(self.read_back.len());
        first..(first + self.block.len()).min(self.read_back.len())
    }

    /// The request of [`Job::next_request`] is on its way.
    pub fn submitted(&mut self, request: Request, now: Duration) {
        let loading = self.phase == Phase::Load;
        let version = self.versions[request.lba as usize];
        let version = match request.operation {
            Operation::Write if loading => version.wrapping_add(1).max(1),
            _ => version,
        };
        self.slots[request.slot as usize] = Slot { request: Some(request), version, started: now };
        self.busy[request.lba as usize] = request.operation != Operation::Flush;
        self.in_flight += 1;
        if !loading {
            self.next += 1;
        }
    }

    /// A request ended, with success or not. A slot without a request is ignored.
    pub fn completed(&mut self, slot: u32, success: bool, now: Duration) {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        let Some(request) = entry.request.take() else { return };
        let (version, started) = (entry.version, entry.started);
        self.in_flight -= 1;
        self.requests += 1;
        self.busy[request.lba as usize] = false;
        let nanoseconds = u64::try_from(now.saturating_sub(started).as_nanos()).unwrap_or(MAX_LATENCY_NS);
        self.latency.saturating_record(nanoseconds.clamp(1, MAX_LATENCY_NS));
        if !success {
            self.caught.get_or_insert(Caught::Failed { lba: request.lba });
            return;
        }
        if request.operation != Operation::Flush {
            self.bytes += u64::from(request.bytes);
        }
        match request.operation {
            Operation::Write => self.versions[request.lba as usize] = version,
            Operation::Read => self.check(request, version),
            Operation::Flush => {}
        }
    }

    fn check(&mut self, request: Request, version: u32) {
        let (lba, bytes) = (request.lba, request.bytes as usize);
        let extent = self.extent(lba);
        let block = &mut self.block[..bytes];
        for (offset, range) in self.layout.pieces(request.slot, bytes) {
            let _ = self.memory.read(offset, &mut block[range]);
        }
        if self.phase == Phase::Read
            && let Some(read_back) = Arc::get_mut(&mut self.read_back)
        {
            read_back[extent.clone()].copy_from_slice(block);
        }
        let checked = match &self.options.content {
            _ if version != 0 => pattern::check(block, self.options.seed, lba, version),
            Content::File { .. } if self.phase == Phase::Read => {
                pattern::check_bytes(block, file_block(&self.options, lba))
            }
            // What was read first has been compared with the file.
            Content::File { .. } | Content::Found { .. } => pattern::check_bytes(block, &self.read_back[extent]),
        };
        if let Err(mismatch) = checked {
            self.caught.get_or_insert(Caught::Block { lba, mismatch });
        }
    }
}

/// Where a job counts latencies.
///
/// # Errors
/// The reason why no histogram could be made.
pub fn latency_histogram() -> Result<Histogram<u64>, hdrhistogram::CreationError> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, LATENCY_DIGITS)
}

/// The file's bytes of a block; the last may be short, and there are none where the content was found.
fn file_block(options: &JobOptions, lba: u64) -> &[u8] {
    let Content::File { bytes, .. } = &options.content else { return &[] };
    let first = lba as usize * options.block_bytes as usize;
    let end = (first + options.block_bytes as usize).min(bytes.len());
    &bytes[first.min(end)..end]
}

#[cfg(test)]
mod tests {
    use super::{Content, Job, JobOptions, Layout, Operation, Phase, latency_histogram};
    use core::time::Duration;
    use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
    use std::sync::Arc;

    const BLOCK: u32 = 512;

    fn memory() -> DeviceMemory {
        let plain = PagePolicy::Exactly(PageSize::Plain);
        let mut region = Region::map(&RegionOptions::new(4096).pages(plain)).unwrap();
        region.carve(Layout::new(BLOCK, 1).slot_bytes(), 64).unwrap().into_device_memory()
    }

    fn options(blocks: usize) -> JobOptions {
        let bytes: Arc<[u8]> = vec![7; blocks * BLOCK as usize].into();
        let digest = sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(&bytes)).into();
        JobOptions {
            content: Content::File { bytes, digest },
            sector_bytes: BLOCK,
            block_bytes: BLOCK,
            pieces: 1,
            queue_depth: 1,
            read_share: 50,
            runtime: Duration::from_secs(1),
            seed: 3,
        }
    }

    /// Everything is done at once, in a namespace of zeros and what is written.
    fn step(job: &mut Job, memory: &DeviceMemory, medium: &mut [u8], now: Duration) -> Option<u64> {
        job.poll(now);
        let request = job.next_request()?;
        job.submitted(request, now);
        let block = &mut medium[request.lba as usize * BLOCK as usize..][..request.bytes as usize];
        match request.operation {
            Operation::Read => memory.write(0, block).unwrap(),
            Operation::Write => memory.read(0, block).unwrap(),
            Operation::Flush => {}
        }
        job.completed(request.slot, true, now);
        (job.phase() == Phase::Load).then_some(request.lba)
    }

    #[test]
    fn shares_of_a_load_are_disjoint_and_are_all_of_it() {
        for (blocks, others, shares) in [(10, 2, 2), (3, 5, 2), (1, 3, 0), (8, 0, 0)] {
            let (memory, mut medium) = (memory(), vec![0; blocks * BLOCK as usize]);
            let histogram = || latency_histogram().unwrap();
            let mut job = Job::new(options(blocks), memory.clone(), histogram());
            assert!(job.divide(others).is_empty(), "the load has not begun");
            while job.phase() != Phase::Load {
                step(&mut job, &memory, &mut medium, Duration::ZERO);
            }
            let divided = job.divide(others);
            assert_eq!(divided.len(), shares);
            let part = |share| Job::of_share(options(blocks), share, memory.clone(), histogram());
            let mut jobs: Vec<Job> = divided.into_iter().map(part).collect();
            jobs.insert(0, job);
            let mut owner = vec![None; blocks];
            for _ in 0..200 {
                for (index, job) in jobs.iter_mut().enumerate() {
                    let Some(lba) = step(job, &memory, &mut medium, Duration::ZERO) else { continue };
                    assert_eq!(*owner[lba as usize].get_or_insert(index), index, "block {lba} has one owner");
                }
            }
            assert!(owner.iter().all(Option::is_some), "no block is left out");
            for job in &mut jobs {
                while job.phase() != Phase::Done {
                    step(job, &memory, &mut medium, Duration::from_secs(2));
                }
                assert_eq!(job.caught(), None);
            }
        }
    }
}
