//! Row A21: requests per second of one core, and of two with an engine, a device and a queue pair each.

use core::hint::black_box;
use std::error::Error;
use std::sync::Barrier;
use std::time::Instant;

use frwr_engine::{
    Chunk, Engine, Submission,
    gather::Segment,
    provider::{Access, soft::SoftProfile},
};

use crate::{
    arguments::unknown,
    cores::on_each,
    null_device::{NullDevice, NullPort},
    requester::{self, InOrder, MESSAGE_BYTES, Requester, usual_options},
};

/// Requests per iteration of the engine.
const BATCH: u64 = 32;
/// Words of the floor's memory: it stays in the first cache.
const WORDS: usize = 512;
/// A run is cut into so many blocks, of which the best counts: what else happens on a machine hits some of them, and of two
/// cores it is enough to hit one.
const BLOCKS: u64 = 40;

/// Words that the wide floor works on at once: enough that the processor waits for nothing.
const LANES: usize = 8;
/// Objects of a block of `turns`: some milliseconds.
const BLOCK_REQUESTS: u64 = 100_000;
const BLOCK_CHAINS: u64 = 8_000;
const BLOCK_WIDE: u64 = 24_000;

/// What one core does again and again.
pub(crate) enum Load {
    /// Requests of an engine.
    Engine(Box<Core>),
    /// Computes on memory of its own, each step with the last one's result.
    Floor(Vec<u64>),
    /// The same with [`LANES`] that do not wait for each other, so that it needs what a core has as much as an engine does.
    Wide(Vec<[u64; LANES]>),
}

/// A load by its name.
pub(crate) fn open(name: &str) -> Result<Load, String> {
    match name {
        "engine" => Core::open().map(Box::new).map(Load::Engine).map_err(|error| error.to_string()),
        "floor" => Ok(Load::Floor(vec![1; WORDS])),
        "wide" => Ok(Load::Wide(vec![[1; LANES]; WORDS / LANES])),
        _ => Err(unknown(name, "engine, floor, wide")),
    }
}

impl Load {
    /// Objects of a block.
    pub(crate) fn block(&self) -> u64 {
        match self {
            Self::Engine(_) => BLOCK_REQUESTS,
            Self::Floor(_) => BLOCK_CHAINS,
            Self::Wide(_) => BLOCK_WIDE,
        }
    }

    /// Does so many.
    pub(crate) fn run(&mut self, objects: u64) -> Result<(), String> {
        match self {
            Self::Engine(core) => core.requests(objects).map_err(|error| error.to_string())?,
            Self::Floor(words) => chains(words, objects),
            Self::Wide(words) => wide(words, objects),
        }
        Ok(())
    }
}

fn chains(words: &mut [u64], objects: u64) {
    for object in 0..objects {
        let mut carried = object;
        for word in black_box(&mut *words).iter_mut() {
            carried = carried.rotate_left(5) ^ *word;
            *word = carried;
        }
    }
}

fn wide(words: &mut [[u64; LANES]], objects: u64) {
    for object in 0..objects {
        let mut carried = [object; LANES];
        for group in black_box(&mut *words).iter_mut() {
            for (carried, word) in carried.iter_mut().zip(group) {
                *carried = carried.rotate_left(5) ^ *word;
                *word = *carried;
            }
        }
    }
}

/// What one core has; nothing of it is another's.
pub(crate) struct Core {
    requester: Requester<NullDevice<NullPort>>,
    segments: Vec<Segment>,
}

impl Core {
    fn open() -> Result<Self, Box<dyn Error>> {
        let device = NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(true));
        let requester = Requester::open(device, &usual_options())?;
        let segments = requester.pages(BATCH, 1);
        Ok(Self { requester, segments })
    }

    fn requests(&mut self, requests: u64) -> Result<(), Box<dyn Error>> {
        let Self { requester, segments } = self;
        let Requester { engine, connection, protocol, .. } = requester;
        let message = [0u8; MESSAGE_BYTES];
        let submit = |engine: &mut Engine<NullPort>, protocol: &mut InOrder, of_all: u64| {
            let at = (of_all % BATCH) as usize;
            let chunk = [Chunk { access: Access::RemoteWrite, segments: &segments[at..=at] }];
            let submission = Submission {
                message: &message,
                inline: &[],
                chunks: &chunk,
                invite_invalidation: true,
                iova_cookie: 0,
                cookie: of_all,
            };
            let handle = engine.submit(*connection, &submission, protocol)?;
            protocol.sent(handle);
            Ok(())
        };
        requester::run(engine, protocol, requester::Load { requests, batch: BATCH }, submit, || {})?;
        Ok(())
    }
}

/// Requests per second of this many cores together, `requests` on each: of the "engine", or of a "floor" that only computes on
/// memory of its own and so shows what the machine's second core is worth.
///
/// # Errors
/// A text: a name that is neither, a core that cannot be had, or what the engine refuses.
pub fn run(what: &str, cores: usize, requests: u64) -> Result<f64, String> {
    let of_cores = match what {
        "engine" => on_each(cores, |_, barrier| engine(requests, barrier))?,
        "floor" => on_each(cores, |_, barrier| Ok(floor(requests, barrier)))?,
        _ => return Err(unknown(what, "engine, floor")),
    };
    Ok(best_block(requests, &of_cores.into_iter().collect::<Result<Vec<_>, String>>()?))
}

/// Requests of each block.
fn blocks(requests: u64) -> impl Iterator<Item = u64> {
    (0..BLOCKS).map(move |block| requests * (block + 1) / BLOCKS - requests * block / BLOCKS)
}

/// Requests per second of all cores in the best block; a block is over when its slowest core is done.
fn best_block(requests: u64, of_cores: &[Vec<f64>]) -> f64 {
    let rate = |(block, requests): (usize, u64)| {
        let slowest =
            of_cores.iter().filter_map(|seconds| seconds.get(block)).fold(0.0, |most: f64, one| most.max(*one));
        if slowest > 0.0 { requests as f64 * of_cores.len() as f64 / slowest } else { 0.0 }
    };
    blocks(requests).enumerate().map(rate).fold(0.0, f64::max)
}

/// Runs the blocks, all cores at the same time. Returns the seconds of each.
fn timed(requests: u64, barrier: &Barrier, mut run: impl FnMut(u64)) -> Vec<f64> {
    let block = |requests| {
        barrier.wait();
        let began = Instant::now();
        run(requests);
        began.elapsed().as_secs_f64()
    };
    blocks(requests).map(block).collect()
}

fn engine(requests: u64, barrier: &Barrier) -> Result<Vec<f64>, String> {
    let mut core = Core::open().map_err(|error| error.to_string());
    // One that failed comes to every barrier all the same: others wait there.
    let seconds = timed(requests, barrier, |requests| {
        if let Ok(ready) = &mut core
            && let Err(error) = ready.requests(requests)
        {
            core = Err(error.to_string());
        }
    });
    core.map(|_| seconds)
}

fn floor(requests: u64, barrier: &Barrier) -> Vec<f64> {
    let mut words = vec![1_u64; WORDS];
    timed(requests, barrier, |requests| chains(&mut words, requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_all_requests_and_the_best_counts_as_its_slowest_core_has_it() {
        assert_eq!(blocks(1003).sum::<u64>(), 1003);
        let mut seconds = vec![vec![1.0; BLOCKS as usize]; 2];
        seconds[0][3] = 0.5;
        assert!((best_block(4000, &seconds) - 200.0).abs() < 1e-9, "100 requests on each of two cores in a second");
        seconds[1][3] = 0.25;
        assert!((best_block(4000, &seconds) - 400.0).abs() < 1e-9);
    }
}
