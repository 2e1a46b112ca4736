//! Jobs without a transport: everything is done at once, or as late as a test wants.

use super::{
    AddressOrder, Caught, Change, Content, Job, JobOptions, Layout, LoadOptions, Mix, Operation, Phase, Rate, Request,
    Sizes, Tally,
};
use crate::options::few_bytes_with_unit;
use core::{num::NonZeroU64, time::Duration};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use std::sync::Arc;

const BLOCK: u32 = 512;
/// Units of a namespace that has no file.
const UNITS: u64 = 64;
const DEPTH: u32 = 4;
/// The longest load of all tests.
const LONG: Duration = Duration::from_secs(1);

/// A namespace of zeros and what is written, and the memory of a job's requests.
struct Medium {
    memory: DeviceMemory,
    layout: Layout,
    bytes: Vec<u8>,
}

impl Medium {
    fn new(bytes: usize, options: &JobOptions) -> Self {
        let layout = Layout::new(options.load.sizes.most(), options.pieces);
        let room = layout.slot_bytes() * options.queue_depth as usize;
        let plain = PagePolicy::Exactly(PageSize::Plain);
        let mut region = Region::map(&RegionOptions::new(room.next_multiple_of(4096)).pages(plain)).unwrap();
        let memory = region.carve(room, 64).unwrap().into_device_memory();
        Self { memory, layout, bytes: vec![0; bytes] }
    }

    fn job(&self, options: &JobOptions) -> Job {
        Job::new(options.clone(), self.memory.clone(), Tally::new().unwrap(), Duration::ZERO)
    }

    /// Does what a request asks for.
    fn serve(&mut self, request: Request) {
        let at = request.lba as usize * BLOCK as usize;
        for (offset, range) in self.layout.pieces(request.slot, request.bytes as usize) {
            let place = &mut self.bytes[at + range.start..at + range.end];
            match request.operation {
                Operation::Read => self.memory.write(offset, place).unwrap(),
                Operation::Write => self.memory.read(offset, place).unwrap(),
                Operation::Trim => place.fill(0),
                Operation::Flush => {}
            }
        }
    }

    /// The next request of a job begins and ends, if it wants one.
    fn step(&mut self, job: &mut Job, now: Duration) -> Option<Request> {
        job.poll(now);
        let request = job.next_request(now)?;
        job.submitted(request, now);
        self.serve(request);
        job.completed(request.slot, true, now);
        Some(request)
    }
}

fn load(mix: Mix, order: AddressOrder) -> LoadOptions {
    LoadOptions {
        order,
        mix,
        sizes: Sizes::uniform(BLOCK),
        verify: true,
        rate: None,
        ramp: Duration::ZERO,
        runtime: LONG,
        bytes: None,
        number: 0,
        loads: 1,
    }
}

fn options(content: Content, load: LoadOptions) -> JobOptions {
    JobOptions { content, first: 0, sector_bytes: BLOCK, pieces: 1, queue_depth: DEPTH, load, seed: 3 }
}

const HALF: Mix = Mix { reads: 50, change: Change::Write };
const WRITES: Mix = Mix { reads: 0, change: Change::Write };
const READS: Mix = Mix { reads: 100, change: Change::Write };

fn of_file(blocks: usize) -> JobOptions {
    let bytes: Arc<[u8]> = vec![7; blocks * BLOCK as usize].into();
    let digest = sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(&bytes)).into();
    options(Content::File { bytes, digest }, load(HALF, AddressOrder::Random))
}

fn of_range(load: LoadOptions) -> JobOptions {
    options(Content::Range { bytes: UNITS * u64::from(BLOCK) }, load)
}

fn mixed(text: &str) -> Sizes {
    Sizes::parse(text, few_bytes_with_unit, 1 << 20).unwrap()
}

#[test]
fn shares_of_a_load_are_disjoint_and_are_all_of_it() {
    for (blocks, others, shares) in [(10, 2, 2), (3, 5, 2), (1, 3, 0), (8, 0, 0)] {
        let options = of_file(blocks);
        let mut medium = Medium::new(blocks * BLOCK as usize, &options);
        let mut job = medium.job(&options);
        assert!(job.divide(others).is_empty(), "the load has not begun");
        while job.phase() != Phase::Load {
            medium.step(&mut job, Duration::ZERO);
        }
        let divided = job.divide(others);
        assert_eq!(divided.len(), shares);
        let part = |share| Job::of_share(options.clone(), share, medium.memory.clone(), Tally::new().unwrap());
        let mut jobs: Vec<Job> = divided.into_iter().map(part).collect();
        jobs.insert(0, job);
        let mut owner = vec![None; blocks];
        for _ in 0..200 {
            for (index, job) in jobs.iter_mut().enumerate() {
                let Some(request) = medium.step(job, Duration::ZERO) else { continue };
                let lba = request.lba as usize;
                assert_eq!(*owner[lba].get_or_insert(index), index, "block {lba} has one owner");
            }
        }
        assert!(owner.iter().all(Option::is_some), "no block is left out");
        for job in &mut jobs {
            while job.phase() != Phase::Done {
                medium.step(job, 2 * LONG);
            }
            assert_eq!(job.caught(), None);
        }
    }
}

/// What a load without a file has done until its end: requests, in order.
fn requests_of(options: &JobOptions, steps: usize) -> (Job, Vec<Request>) {
    let mut medium = Medium::new((options.first + UNITS) as usize * BLOCK as usize, options);
    let mut job = medium.job(options);
    assert_eq!(job.phase(), Phase::Load, "there is nothing in front of it");
    let mut requests: Vec<_> = (0..steps).filter_map(|_| medium.step(&mut job, Duration::ZERO)).collect();
    while job.phase() != Phase::Done {
        requests.extend(medium.step(&mut job, LONG));
    }
    assert_eq!(job.caught(), None);
    (job, requests)
}

#[test]
fn a_sequential_load_goes_through_its_range_again_and_again_each_kind_by_itself() {
    let mut options = of_range(load(HALF, AddressOrder::Sequential));
    options.first = 100;
    let (_, requests) = requests_of(&options, 500);
    for kind in [Operation::Read, Operation::Write] {
        let places: Vec<_> = requests.iter().filter(|request| request.operation == kind).map(|it| it.lba).collect();
        assert!(places.len() > 2 * UNITS as usize);
        assert_eq!(places, (0..places.len() as u64).map(|at| 100 + at % UNITS).collect::<Vec<_>>());
    }
}

#[test]
fn requests_of_all_sizes_stay_inside_of_the_range_and_leave_nothing_of_it_out() {
    for order in [AddressOrder::Random, AddressOrder::Sequential] {
        let sizes = mixed("512/30:1K/30:3K/40");
        let (job, requests) = requests_of(&of_range(LoadOptions { sizes, ..load(HALF, order) }), 2000);
        let mut touched = [false; UNITS as usize];
        for request in &requests {
            let units = u64::from(request.bytes / BLOCK);
            assert!([1, 2, 6].contains(&units) && request.lba + units <= UNITS, "{request:?}");
            (request.lba..request.lba + units).for_each(|unit| touched[unit as usize] = true);
        }
        assert!(touched.iter().all(|touched| *touched));
        assert_eq!(job.bytes(), requests.iter().map(|request| u64::from(request.bytes)).sum::<u64>());
        assert!(job.verified() && job.tally().reads().requests > 900 && job.tally().writes().requests > 900);
    }
}

/// Whatever was written by this load is known, and whatever else is there is not.
#[test]
fn a_block_that_is_not_what_was_written_is_caught_without_a_copy_of_the_range() {
    let sizes = mixed("512/50:2K/50");
    let options = of_range(LoadOptions { sizes, ..load(HALF, AddressOrder::Random) });
    let mut medium = Medium::new(UNITS as usize * BLOCK as usize, &options);
    medium.bytes.fill(0x55);
    let mut job = medium.job(&options);
    for _ in 0..2000 {
        medium.step(&mut job, Duration::ZERO);
    }
    assert!(job.caught().is_none() && job.unchecked_bytes() > 0);
    // An old version of a block, which has a sum of its own that is right.
    let place = 17 * BLOCK as usize..18 * BLOCK as usize;
    let old = medium.bytes[place.clone()].to_vec();
    while medium.bytes[place.clone()] == old[..] {
        medium.step(&mut job, Duration::ZERO);
    }
    medium.bytes[place].copy_from_slice(&old);
    while job.phase() != Phase::Done {
        let before = medium.bytes.clone();
        medium.step(&mut job, Duration::ZERO);
        if before != medium.bytes && job.caught().is_none() {
            medium.bytes[17 * BLOCK as usize..18 * BLOCK as usize].copy_from_slice(&old);
        }
    }
    assert!(matches!(job.caught(), Some(Caught::Block { lba: 17, .. })), "{:?}", job.caught());
    assert!(!job.verified());
}

#[test]
fn what_was_trimmed_may_hold_anything_until_it_is_written_again() {
    let mix = Mix { reads: 50, change: Change::Trim };
    let (job, requests) = requests_of(&of_range(load(mix, AddressOrder::Random)), 500);
    assert!(requests.iter().any(|request| request.operation == Operation::Trim));
    assert_eq!(job.unchecked_bytes(), job.tally().reads().bytes, "nothing was ever written");
    assert_eq!(job.tally().others().requests + job.tally().reads().requests, job.requests());
}

#[test]
fn nothing_is_checked_where_that_is_not_wanted_and_places_may_meet() {
    let options = of_range(LoadOptions { verify: false, ..load(WRITES, AddressOrder::Random) });
    let options = JobOptions { content: Content::Range { bytes: BLOCK.into() }, ..options };
    let medium = Medium::new(BLOCK as usize, &options);
    let mut job = medium.job(&options);
    for slot in 0..DEPTH {
        let request = job.next_request(Duration::ZERO).unwrap();
        assert_eq!((request.slot, request.lba), (slot, 0));
        job.submitted(request, Duration::ZERO);
    }
    let mut written = [0; BLOCK as usize];
    medium.memory.read(0, &mut written).unwrap();
    assert!(written.iter().any(|byte| *byte != 0), "what is written is no page of zeros, which media may leave out");
    assert_eq!(job.next_request(Duration::ZERO), None, "no slot is left");
    // With verification nobody knows what two at a time leave there.
    let checked = JobOptions { load: LoadOptions { verify: true, ..options.load.clone() }, ..options.clone() };
    let mut job = medium.job(&checked);
    let request = job.next_request(Duration::ZERO).unwrap();
    job.submitted(request, Duration::ZERO);
    assert_eq!(job.next_request(Duration::ZERO), None);
    job.completed(request.slot, true, Duration::ZERO);
    assert!(job.next_request(Duration::ZERO).is_some());
}

#[test]
fn a_request_that_found_no_room_is_offered_again_as_it_was() {
    let mut job = {
        let options = of_range(load(HALF, AddressOrder::Random));
        Medium::new(UNITS as usize * BLOCK as usize, &options).job(&options)
    };
    let request = job.next_request(Duration::ZERO).unwrap();
    for _ in 0..20 {
        assert_eq!(job.next_request(Duration::ZERO), Some(request));
    }
}

#[test]
fn what_is_offered_again_is_not_filled_again_and_what_follows_is() {
    let options = of_range(load(WRITES, AddressOrder::Sequential));
    let medium = Medium::new(UNITS as usize * BLOCK as usize, &options);
    let mut job = medium.job(&options);
    let held = |request: Request| {
        let mut held = [0; BLOCK as usize];
        let (at, _) = medium.layout.pieces(request.slot, BLOCK as usize).next().unwrap();
        medium.memory.read(at, &mut held).unwrap();
        medium.memory.write(at, &[0; BLOCK as usize]).unwrap();
        held != [0; BLOCK as usize]
    };
    for _ in 0..3 {
        let request = job.next_request(Duration::ZERO).unwrap();
        assert!(held(request), "it was filled");
        assert_eq!(job.next_request(Duration::ZERO), Some(request));
        assert!(!held(request), "it waits for room");
        job.submitted(request, Duration::ZERO);
        job.completed(request.slot, true, Duration::ZERO);
    }
}

#[test]
fn with_a_rate_a_request_counts_from_when_it_was_meant_to_begin() {
    let thousand = NonZeroU64::new(1000).unwrap();
    for (rate, sizes, first) in [
        (Rate::Requests(thousand), mixed("512"), 1),
        (Rate::Bytes(NonZeroU64::new(1000 * u64::from(BLOCK)).unwrap()), mixed("512"), 1),
        (Rate::Bytes(NonZeroU64::new(1000 * u64::from(BLOCK)).unwrap()), mixed("1K"), 2),
    ] {
        let options = of_range(LoadOptions { rate: Some(rate), sizes, ..load(READS, AddressOrder::Random) });
        let mut medium = Medium::new(UNITS as usize * BLOCK as usize, &options);
        let mut job = medium.job(&options);
        let at = Duration::from_millis;
        assert!(medium.step(&mut job, at(0)).is_some());
        assert!(medium.step(&mut job, at(first) - Duration::from_nanos(1)).is_none(), "nothing is due");
        // Who sleeps until then, and not longer, is not late.
        assert_eq!(job.due_at(at(0)), Some(at(first)));
        assert!(
            job.due_at(at(first)).is_some_and(|next| next > at(first)),
            "what is due waits for nothing but a place"
        );
        // A stall of 100 ms: all that were meant to begin meanwhile do so now, and show it.
        let stalled = core::iter::from_fn(|| medium.step(&mut job, at(100))).count() as u64;
        assert_eq!(stalled, 100 / first);
        let latency = &job.tally().reads().latency;
        assert!(latency.max().abs_diff(at(100 - first).as_nanos() as u64) < 100_000, "{}", latency.max());
        assert!(latency.value_at_quantile(0.5).abs_diff(50_000_000) < 2_000_000);
        // Nobody came by until the end: that is how far it is behind.
        job.poll(LONG);
        assert_eq!(job.behind(), Some(LONG - at(100 + first - 100 % first).min(LONG)));
    }
}

#[test]
fn parts_of_a_load_begin_as_much_as_one_load_would() {
    let options = of_range(LoadOptions {
        rate: NonZeroU64::new(1000).map(Rate::Requests),
        bytes: Some(30 * u64::from(BLOCK)),
        ..load(WRITES, AddressOrder::Random)
    });
    let mut medium = Medium::new(UNITS as usize * BLOCK as usize, &options);
    let mut job = medium.job(&options);
    let part = |share| Job::of_share(options.clone(), share, medium.memory.clone(), Tally::new().unwrap());
    let mut jobs: Vec<Job> = job.divide(2).into_iter().map(part).collect();
    jobs.push(job);
    assert_eq!(jobs.len(), 3);
    let mut begun = 0;
    for time in (0..100).map(Duration::from_millis) {
        for job in &mut jobs {
            begun += u64::from(medium.step(job, time).is_some());
        }
        assert_eq!(begun, (time.as_millis() as u64 + 1).min(30), "at {time:?}");
    }
    assert!(jobs.iter().all(|job| job.phase() == Phase::Done), "they end with the last byte");
}

#[test]
fn what_begins_before_the_load_counts_is_done_and_not_counted() {
    let ramp = Duration::from_millis(500);
    let options = of_range(LoadOptions { ramp, ..load(HALF, AddressOrder::Random) });
    let mut medium = Medium::new(UNITS as usize * BLOCK as usize, &options);
    let mut job = medium.job(&options);
    assert_eq!(job.counts_from(), Some(ramp));
    for at in 0..1600 {
        medium.step(&mut job, Duration::from_millis(at));
        if at == 900 {
            assert!(job.exchange_interval(Box::new(Tally::new().unwrap())).is_none());
        }
    }
    assert_eq!(job.phase(), Phase::Done);
    assert_eq!((job.requests(), job.tally().requests()), (1500, 1000), "the ramp is no part of the runtime");
    assert_eq!(job.tally().total().latency.len(), 1000);
    let interval = job.exchange_interval(Box::new(Tally::new().unwrap())).unwrap();
    assert_eq!(interval.requests(), 599);
}

#[test]
fn a_load_can_be_told_that_it_has_gone_on_for_long_enough() {
    let options = of_range(load(HALF, AddressOrder::Random));
    let mut medium = Medium::new(UNITS as usize * BLOCK as usize, &options);
    let mut job = medium.job(&options);
    let request = job.next_request(Duration::ZERO).unwrap();
    job.submitted(request, Duration::ZERO);
    job.end_load(Duration::from_millis(1));
    assert_eq!((job.phase(), job.next_request(Duration::from_millis(1))), (Phase::Drain, None));
    medium.serve(request);
    job.completed(request.slot, true, Duration::from_millis(2));
    job.poll(Duration::from_millis(2));
    assert!(job.phase() == Phase::Done && job.verified());
}
