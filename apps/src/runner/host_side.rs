//! The host's core: the job over an NVMe-oF host, and the poller that runs it.

use super::{
    command_line::Inject, cores::Core, error::SetupError, progress::Progress, report::MemoryReport, target_side::map,
};
use crate::{
    host::{ADMIN_DATA_BYTES, Host, HostOptions},
    job::{Job, JobOptions, Operation, Phase, Request},
};
use core::time::Duration;
use frwr_engine::{
    CoreLink, Engine, Statistics,
    gather::{MemoryId, Segment},
    provider::{Capabilities, Port},
};
use frwr_mempool::region::PagePolicy;
use frwr_reactor::{Poller, Sleep};

/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 64 << 10;
/// Alignment of buffers: a page.
const PAGE: usize = 4096;

/// What the host's core needs to begin.
#[derive(Clone)]
pub(super) struct HostPlan {
    pub(super) options: HostOptions,
    pub(super) job: JobOptions,
    pub(super) pages: PagePolicy,
    pub(super) capabilities: Capabilities,
    pub(super) inject: Option<Inject>,
}

/// How the host's session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The job goes on, or waits for the host to be ready.
    Running,
    /// The job has ended; the session is being shut down.
    Closing,
    /// All connections are gone.
    Finished,
}

/// The host, the job, and what they live in.
pub(super) struct HostSide<P: Port> {
    host: Host<P>,
    job: Job,
    memory: MemoryId,
    block_bytes: u32,
    progress: Progress,
    inject: Option<Inject>,
    kill_at: Option<Duration>,
    runtime: Duration,
    stage: Stage,
    load_began: Option<Duration>,
    first: Option<Duration>,
    last: Duration,
    caught: Option<String>,
    interrupted: bool,
    remote_bytes_open: Option<u64>,
    memory_report: MemoryReport,
}

impl<P: Port> HostSide<P> {
    /// Makes everything on the calling core.
    pub(super) fn new(
        port: P,
        link: CoreLink,
        plan: HostPlan,
        node: Option<u32>,
        progress: Progress,
    ) -> Result<Self, SetupError> {
        let engine_options = plan.options.engine();
        let data_bytes = plan.job.queue_depth as usize * plan.job.block_bytes as usize;
        let engine_bytes = Engine::<P>::region_bytes(&engine_options, &plan.capabilities)?;
        let bytes = engine_bytes + data_bytes + ADMIN_DATA_BYTES + SLACK;
        let mut region = map(bytes, plan.pages, node)?;
        let mut engine = Engine::new(port, link, &mut region, engine_options, &plan.capabilities)?;
        let data = region.carve(data_bytes, PAGE)?.into_device_memory();
        let admin = region.carve(ADMIN_DATA_BYTES, PAGE)?.into_device_memory();
        let memory = engine.add_memory(data.clone()).map_err(crate::host::HostError::from)?;
        let mut host = Host::new(engine, admin, plan.options)?;
        host.start();
        let (block_bytes, runtime) = (plan.job.block_bytes, plan.job.runtime);
        let job = Job::new(plan.job, data).map_err(|error| SetupError::Histogram(format!("{error:?}")))?;
        Ok(Self {
            host,
            job,
            memory,
            block_bytes,
            progress,
            inject: plan.inject,
            kill_at: None,
            runtime,
            stage: Stage::Running,
            load_began: None,
            first: None,
            last: Duration::ZERO,
            caught: None,
            interrupted: false,
            remote_bytes_open: None,
            memory_report: MemoryReport::of(&region),
        })
    }

    /// The engine's figures.
    pub(super) fn engine(&self) -> Statistics {
        self.host.engine().statistics()
    }

    /// The job, for its report.
    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// What was wrong first.
    pub(super) fn caught(&self) -> Option<String> {
        self.caught.clone().or_else(|| self.job.caught().map(|caught| caught.to_string()))
    }

    /// Whether somebody ended the run early.
    pub(super) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Bytes open to the peer when the job had ended and the connection was still up.
    pub(super) fn remote_bytes_open(&self) -> Option<u64> {
        self.remote_bytes_open
    }

    /// What its memory is made of.
    pub(super) fn memory(&self) -> &MemoryReport {
        &self.memory_report
    }

    /// Sessions beyond the first, and requests submitted again.
    pub(super) fn recovery(&self) -> (u64, u64) {
        let host = self.host.statistics();
        (host.sessions.saturating_sub(1), host.resubmitted)
    }

    /// Time from the first request's submission to the last one's end.
    pub(super) fn elapsed(&self) -> Duration {
        self.first.map_or(Duration::ZERO, |first| self.last.saturating_sub(first))
    }

    fn poll(&mut self, now: Duration) -> u32 {
        let mut work = self.host.poll(now);
        while let Some(completion) = self.host.next_completion() {
            // The cookie is the job's slot.
            if let Err(error) = completion.result {
                self.caught.get_or_insert_with(|| format!("a request failed: {error}"));
            }
            self.job.completed(completion.cookie as u32, completion.result.is_ok(), now);
            self.last = now;
            work += 1;
        }
        if self.stage == Stage::Running {
            work += self.run(now);
        } else if self.stage == Stage::Closing && self.host.is_stopped() {
            self.stage = Stage::Finished;
            self.progress.finish();
        }
        work
    }

    fn run(&mut self, now: Duration) -> u32 {
        if self.progress.wants_stop() && self.job.phase() != Phase::Done {
            self.interrupted = true;
            self.job.stop();
        }
        self.watch();
        let mut work = self.job.poll(now);
        if self.host.is_ready() {
            work += self.submit(now);
        }
        if self.job.phase() == Phase::Load && self.load_began.is_none() {
            self.load_began = Some(now);
            self.kill_at = (self.inject == Some(Inject::KillPeer)).then(|| now + self.runtime / 2);
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.progress.kill_peer();
        }
        if self.job.phase() == Phase::Done || self.host.failure().is_some() {
            self.close();
        }
        self.progress.publish(self.job.requests(), self.job.phase() as u8);
        work
    }

    /// Looks for what must not happen: an end of the connection that nobody asked for, and more bytes open to the peer
    /// than requests in flight can have opened (goal Z1).
    fn watch(&mut self) {
        if self.caught.is_some() {
            return;
        }
        let expected = u64::from(self.inject == Some(Inject::KillPeer));
        if self.host.statistics().failures > expected
            && let Some(failure) = self.host.last_failure()
        {
            self.stop(format!("the session ended by itself: {failure}"));
            return;
        }
        // While the job runs nothing but its requests opens memory.
        if self.host.is_ready()
            && let Some(open) = self.host.engine().port().remote_bytes_open()
        {
            let most = u64::from(self.job.in_flight()) * u64::from(self.block_bytes);
            if open > most {
                self.stop(format!("{open} bytes are open to the peer, but requests in flight opened at most {most}"));
            }
        }
    }

    fn stop(&mut self, caught: String) {
        self.caught = Some(caught);
        self.job.stop();
    }

    fn submit(&mut self, now: Duration) -> u32 {
        let mut submitted = 0;
        while let Some(request) = self.job.next_request() {
            if !self.submit_one(request) {
                break;
            }
            self.first.get_or_insert(now);
            self.job.submitted(request, now);
            submitted += 1;
        }
        submitted
    }

    fn submit_one(&mut self, request: Request) -> bool {
        let offset = u64::from(request.slot) * u64::from(self.block_bytes);
        let segments = [Segment { memory: self.memory, offset, length: self.block_bytes }];
        let cookie = u64::from(request.slot);
        match request.operation {
            Operation::Read => self.host.read(request.lba, &segments, cookie).is_ok(),
            Operation::Write => self.host.write(request.lba, &segments, cookie).is_ok(),
            Operation::Flush => self.host.flush_namespace(cookie).is_ok(),
        }
    }

    fn close(&mut self) {
        if let Some(failure) = self.host.failure() {
            self.caught.get_or_insert_with(|| format!("the host gave up: {failure}"));
        } else if self.host.is_ready() {
            // Everything has ended and the connection is up: now the table must be empty.
            self.remote_bytes_open = self.host.engine().port().remote_bytes_open();
        }
        if self.remote_bytes_open.is_some_and(|bytes| bytes > 0) {
            let bytes = self.remote_bytes_open.unwrap_or_default();
            self.caught.get_or_insert_with(|| {
                format!("{bytes} bytes are still open to the peer although every request has ended")
            });
        }
        self.stage = Stage::Closing;
        self.host.shut_down();
    }
}

/// Runs the host's half of a core.
pub(super) struct HostPoller;

impl<T: Port, H: Port> Poller<Core<T, H>> for HostPoller {
    fn poll(&mut self, core: &mut Core<T, H>, now: Duration) -> u32 {
        core.host.as_mut().map_or(0, |side| side.poll(now))
    }

    fn flush(&mut self, core: &mut Core<T, H>, _: Duration) {
        if let Some(side) = &mut core.host {
            side.host.flush();
        }
    }

    fn sleep_until(&self, _: &Core<T, H>) -> Sleep {
        // Completions arrive unannounced.
        Sleep::Busy
    }

    fn begin_shutdown(&mut self, core: &mut Core<T, H>, _: Duration) {
        if let Some(side) = &mut core.host
            && side.stage == Stage::Running
        {
            side.interrupted = true;
            side.job.stop();
        }
    }

    fn drained(&self, core: &Core<T, H>) -> bool {
        core.host.as_ref().is_none_or(|side| side.stage == Stage::Finished)
    }
}
