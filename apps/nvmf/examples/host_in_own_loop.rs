//! The host used as a library from a poll loop that is not frwr's: it is polled, asked for completions, flushed, and says
//! when it has to be polled again although nothing arrives.
//!
//! `cargo run -p frwr-nvmf --example host_in_own_loop`; docs/embedding.md leads through it.

mod common;

use common::{BLOCK, BLOCKS, Error, HostSide, TargetSide, pattern, region, segment};
use core::time::Duration;
use frwr_nvmf::frwr_engine::provider::soft::SoftFabric;
use frwr_nvmf::{host::HostCompletion, storage::MemoryStorage};
use std::time::Instant;

/// How long the example may take before it is taken to hang.
const HANG_GUARD: Duration = Duration::from_secs(60);

/// Somebody else's loop: it knows tasks, and the time since it began.
struct ForeignLoop<'a> {
    tasks: Vec<Box<dyn FnMut(Duration) -> Outcome + 'a>>,
}

/// What a task tells the loop.
enum Outcome {
    /// Call me again.
    Again,
    /// I have ended, and so does the loop.
    Over(Result<(), Error>),
}

impl ForeignLoop<'_> {
    #[allow(clippy::disallowed_methods, reason = "whose loop it is, his is the clock")]
    fn run(mut self) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let now = began.elapsed();
            for task in &mut self.tasks {
                if let Outcome::Over(result) = task(now) {
                    return result;
                }
            }
            if now > HANG_GUARD {
                return Err("it hangs".into());
            }
        }
    }
}

/// An application on top of the host: writes all blocks, reads them back, compares.
struct Copy {
    side: HostSide,
    state: State,
    /// When the host has to be polled although nothing arrives. A loop that sleeps would sleep no longer.
    poll_at: Option<Duration>,
}

/// What it is doing.
enum State {
    Connecting,
    Writing(Progress),
    Flushing,
    Reading(Progress),
    Stopping,
}

/// Requests submitted and ended.
#[derive(Default)]
struct Progress {
    submitted: usize,
    ended: usize,
}

/// The one Flush.
const FLUSH: u64 = u64::MAX;

impl Copy {
    fn new(mut side: HostSide) -> Self {
        side.host.start();
        Self { side, state: State::Connecting, poll_at: None }
    }

    /// One call of the loop.
    fn step(&mut self, now: Duration) -> Outcome {
        // Slow things first: a program with several cores does this on a thread of its own.
        self.side.control.poll();
        self.side.host.poll(now);
        while let Some(completion) = self.side.host.next_completion() {
            if let Err(error) = self.completed(completion) {
                return Outcome::Over(Err(error));
            }
        }
        if let Some(failure) = self.side.host.failure() {
            return Outcome::Over(Err(failure.to_string().into()));
        }
        if let Err(error) = self.submit() {
            return Outcome::Over(Err(error));
        }
        // All that this call submitted goes out by one doorbell.
        self.side.host.flush();
        self.poll_at = self.side.host.poll_at();
        let stopped = matches!(self.state, State::Stopping) && self.side.host.is_stopped();
        if stopped { Outcome::Over(Ok(())) } else { Outcome::Again }
    }

    fn submit(&mut self) -> Result<(), Error> {
        let HostSide { host, data, data_id, .. } = &mut self.side;
        match &mut self.state {
            State::Connecting if host.is_ready() => self.state = State::Writing(Progress::default()),
            State::Writing(progress) => {
                while progress.submitted < BLOCKS && host.free_requests() > 0 {
                    let at = progress.submitted;
                    data.write(at * BLOCK, &pattern(at))?;
                    let segment = segment(*data_id, at);
                    host.write(at as u64, &[segment], at as u64)?;
                    progress.submitted += 1;
                }
                if progress.ended == BLOCKS {
                    host.flush_namespace(FLUSH)?;
                    self.state = State::Flushing;
                }
            }
            State::Reading(progress) => {
                while progress.submitted < BLOCKS && host.free_requests() > 0 {
                    let at = progress.submitted;
                    let segment = segment(*data_id, BLOCKS + at);
                    host.read(at as u64, &[segment], at as u64)?;
                    progress.submitted += 1;
                }
                if progress.ended == BLOCKS {
                    host.shut_down();
                    self.state = State::Stopping;
                }
            }
            State::Connecting | State::Flushing | State::Stopping => {}
        }
        Ok(())
    }

    /// A request ended: its memory is nobody else's any more.
    fn completed(&mut self, completion: HostCompletion) -> Result<(), Error> {
        completion.result?;
        match &mut self.state {
            State::Writing(progress) => progress.ended += 1,
            State::Flushing if completion.cookie == FLUSH => self.state = State::Reading(Progress::default()),
            State::Reading(progress) => {
                progress.ended += 1;
                let (lba, mut bytes) = (completion.cookie as usize, vec![0; BLOCK]);
                self.side.data.read((BLOCKS + lba) * BLOCK, &mut bytes)?;
                if bytes != pattern(lba) {
                    return Err(format!("block {lba} came back with other bytes").into());
                }
            }
            State::Connecting | State::Flushing | State::Stopping => return Err("nobody asked for that".into()),
        }
        Ok(())
    }
}

pub(crate) fn main() -> Result<(), Error> {
    let fabric = SoftFabric::new();
    let (mut near, mut far) = (region()?, region()?);
    let medium = far.carve(BLOCKS * BLOCK, BLOCK)?.into_device_memory();
    let mut target = TargetSide::new(&fabric, &mut far, MemoryStorage::new(medium, BLOCK as u32, 64)?)?;
    let mut copy = Copy::new(HostSide::new(&fabric, &mut near)?);
    let tasks: Vec<Box<dyn FnMut(Duration) -> Outcome>> = vec![
        Box::new(|now| {
            target.step(now);
            Outcome::Again
        }),
        Box::new(|now| copy.step(now)),
    ];
    ForeignLoop { tasks }.run()?;
    println!("{BLOCKS} blocks went there and back from a foreign loop");
    Ok(())
}
