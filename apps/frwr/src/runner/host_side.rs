//! A host's core: the job, or its part of it, over an NVMe-oF host.

use super::{
    command_line::Inject,
    host_end::HostEnd,
    host_plan::HostPlan,
    host_team::Team,
    host_waits::{HostWaits, Wait},
    intervals::IntervalSource,
    job_plan::JobPlan,
    load_paths::{LoadedPath, state_name},
    memory::map,
    messages::{Message, News},
    path_log::{PathDesk, PathOrder},
    progress::{Asks, Doing, IoCounters, Progress},
    report::MemoryReport,
};
use crate::{
    Error,
    job::{Job, Layout, Operation, Phase, Request, Tally},
};
use arrayvec::ArrayVec;
use core::{task::Waker, time::Duration};
use frwr_engine::{
    CoreLink, Engine, MemoryAccess, Statistics, TraceRecord, WatchedClock,
    gather::{MemoryId, Segment},
    provider::Port,
};
use frwr_mempool::{DeviceMemory, lane};
use frwr_nvmf::host::{
    Host, HostFailure, HostStatistics, IoError, MAX_REQUEST_BYTES, MAX_SEGMENTS, PathChange, PathState, Paths,
    RequestError,
};
use frwr_reactor::Outbox;
use std::{net::SocketAddr, sync::Arc};

/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 64 << 10;

/// Alignment of buffers: a page.
const PAGE: usize = 4096;

/// The job, which can begin only when the namespace is known.
enum Work {
    /// It waits for a session.
    Planned { plan: Box<JobPlan>, data: DeviceMemory, tally: Box<Tally> },
    /// It was ended before there was a session.
    Abandoned,
    /// It goes on, or is done.
    Begun(Box<Job>),
    /// The namespace does not suit it.
    Refused { reason: String },
}

/// Longest sleep at a time, as that of a target.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// How the host's session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The job goes on, or waits for a session.
    Running,
    /// The job has ended; the session is being shut down.
    Closing,
    /// That took too long: its connections are dropped.
    Dropping,
    /// All connections are gone.
    Finished,
}

/// The host, the job, and what they live in.
pub(super) struct HostSide<P: Port> {
    host: Paths<P>,
    /// Where each of them leads, or led last.
    addresses: Vec<Option<SocketAddr>>,
    desk: Option<PathDesk>,
    /// What the main thread asked for when orders were looked for last.
    heard: Asks,
    /// One that found no room on its way.
    untold: Option<PathChange>,
    /// How each of them was when it was told of last.
    states: Vec<PathState>,
    attempts: u32,
    namespace: u32,
    work: Work,
    memory: MemoryId,
    layout: Layout,
    /// Bytes of the job's largest request.
    most_bytes: u32,
    /// Bytes of the job's units, in which it counts its places.
    unit_bytes: u32,
    /// Bytes of the namespace's blocks.
    sector_bytes: u32,
    queues: usize,
    progress: Progress,
    team: Team,
    inject: Option<Inject>,
    tolerated_failures: u64,
    kill_at: Option<Duration>,
    runtime: Duration,
    intervals: Option<IntervalSource>,
    stage: Stage,
    load_began: Option<Duration>,
    first: Option<Duration>,
    last: Duration,
    /// When it was polled last.
    polled: Duration,
    caught: Option<String>,
    interrupted: bool,
    /// By which it passes that nothing ends; whether this poll judges.
    clock: WatchedClock,
    judges: bool,
    end: HostEnd,
    waits: HostWaits,
    remote_bytes_open: Option<u64>,
    memory_report: MemoryReport,
}

impl<P: Port> HostSide<P> {
    /// Makes everything on the calling core. It may sleep where there is a waker.
    pub(super) fn new(
        ports: Vec<(P, CoreLink)>,
        plan: HostPlan,
        node: Option<u32>,
        progress: Progress,
        team: Team,
        waker: Option<&Waker>,
    ) -> Result<Self, Error> {
        let engine_options = plan.options.engine();
        let layout = Layout::new(plan.job.most(), plan.job.pieces);
        let data_bytes = plan.job.queue_depth as usize * layout.slot_bytes();
        let engine_bytes = Engine::<P>::region_bytes(&engine_options, &plan.capabilities)?;
        let admin_bytes = plan.options.memory_bytes();
        let bytes = data_bytes + ports.len() * (engine_bytes + admin_bytes + SLACK);
        let mut region = map(bytes, plan.pages, node)?;
        waker.into_iter().for_each(|waker| progress.wakes_core(waker));
        // Of several paths each core has controllers of its own: what one of them may still execute is then known on that core alone.
        let make = if team.is_first() || ports.len() > 1 { Host::new } else { Host::follower };
        let places = ports.len();
        let mut hosts = Vec::with_capacity(places);
        // A place that is vacant has any address.
        let addresses = plan.addresses.iter().chain(core::iter::repeat(&plan.options.address));
        for ((port, link), address) in ports.into_iter().zip(addresses) {
            let mut engine = Engine::new(port, link, &mut region, engine_options.clone(), &plan.capabilities)?;
            if let Some(waker) = waker {
                engine.wakes(waker);
            }
            let admin = region.carve(admin_bytes, PAGE)?.into_device_memory();
            let mut host = make(engine, admin, plan.options.clone().address(*address))?;
            if let Some(authenticator) = &plan.authenticator {
                host.authenticates(Arc::clone(authenticator));
            }
            hosts.push(host);
        }
        let data = region.carve(data_bytes, PAGE)?.into_device_memory();
        let mut host = Paths::new(hosts, plan.paths)?;
        let memory = host.add_memory(&data, MemoryAccess::ReadWrite)?;
        let namespace = plan.options.namespace;
        // At most MAX_PATHS.
        (plan.addresses.len()..places).for_each(|path| host.retire_path(path as u16));
        host.start();
        let (most_bytes, unit_bytes, runtime) = (plan.job.most(), plan.job.load.sizes.unit(), plan.job.load.runtime);
        let tally = Tally::new().map_err(|error| Error::setup(format!("no latency histogram: {error:?}")))?;
        Ok(Self {
            states: vec![PathState::Connecting; places],
            host,
            addresses: (0..places).map(|path| plan.addresses.get(path).copied()).collect(),
            desk: plan.desk,
            heard: progress.asks(),
            untold: None,
            attempts: plan.attempts,
            namespace,
            work: Work::Planned { plan: Box::new(plan.job), data, tally: Box::new(tally) },
            memory,
            layout,
            most_bytes,
            unit_bytes,
            sector_bytes: unit_bytes,
            queues: 0,
            progress,
            team,
            inject: plan.inject,
            tolerated_failures: plan.tolerated_failures,
            kill_at: None,
            runtime,
            intervals: plan.intervals,
            stage: Stage::Running,
            load_began: None,
            first: None,
            last: Duration::ZERO,
            polled: Duration::ZERO,
            caught: None,
            interrupted: false,
            clock: WatchedClock::new(WatchedClock::STANDSTILL),
            judges: false,
            end: HostEnd::new(plan.drain_time),
            waits: HostWaits::default(),
            remote_bytes_open: None,
            memory_report: MemoryReport::of(&region),
        })
    }

    /// Tells what becomes of its keys.
    pub(super) fn trace_keys(&mut self, records: lane::Sender<TraceRecord>) {
        if let Some(host) = self.host.host_mut(0) {
            host.engine_mut().trace_to(records);
        }
    }

    /// The ports of its engines.
    pub(super) fn ports(&self) -> impl Iterator<Item = &P> {
        self.host.hosts().map(|host| host.engine().port())
    }

    /// Until when its core may sleep if nothing arrives, as of the last poll, which found nothing; no longer than a
    /// target, since silence is judged by time in which somebody polled. `None`: not now.
    pub(super) fn sleeps_until(&self) -> Option<Duration> {
        let until = self.polled.saturating_add(LONGEST_SLEEP);
        let until = self.host.poll_at().map_or(until, |at| at.min(until));
        let of_job = self.job().and_then(|job| job.due_at(self.polled));
        let of_interval = self.intervals.as_ref().and_then(IntervalSource::due_at);
        let due = [self.kill_at, of_job, of_interval].into_iter().flatten().filter(|at| *at > self.polled).min();
        let until = due.map_or(until, |at| at.min(until));
        (until > self.polled && self.host.hosts().all(|host| host.engine().rests())).then_some(until)
    }

    /// What arrives wakes its core, and what the main thread asks for.
    pub(super) fn arm(&mut self) -> bool {
        self.progress.arm_core();
        (0..self.host.count()).all(|path| self.host.host_mut(path).is_none_or(|host| host.engine_mut().arm()))
    }

    /// The engine's figures.
    pub(super) fn engine(&self) -> Statistics {
        self.host.hosts().map(|host| host.engine().statistics()).fold(Statistics::default(), |sum, one| sum + one)
    }

    /// The job, for its report; `None` where it never began.
    pub(super) fn job(&self) -> Option<&Job> {
        if let Work::Begun(job) = &self.work { Some(job) } else { None }
    }

    fn job_mut(&mut self) -> Option<&mut Job> {
        if let Work::Begun(job) = &mut self.work { Some(job) } else { None }
    }

    /// What its requests have moved.
    pub(super) fn io(&self) -> IoCounters {
        self.job().map_or(IoCounters::default(), |job| IoCounters { commands: job.requests(), bytes: job.bytes() })
    }

    /// What its requests came to, as far as they count.
    pub(super) fn tally(&self) -> Option<&Tally> {
        self.job().map(Job::tally)
    }

    /// Why the namespace does not suit the job.
    pub(super) fn refusal(&self) -> Option<&str> {
        if let Work::Refused { reason, .. } = &self.work { Some(reason) } else { None }
    }

    /// Where the host gave up without ever having had a session: how many attempts there were, and why the last failed.
    pub(super) fn never_connected(&self) -> Option<(u64, HostFailure)> {
        let statistics = self.host.statistics();
        let failure = self.host.failure().filter(|_| statistics.sessions == 0);
        let last = self.last_failure().filter(|_| failure.is_some() || self.is_hopeless())?;
        Some((statistics.failures, last))
    }

    /// None of several paths has had a session, and each was tried often enough.
    fn is_hopeless(&self) -> bool {
        let used = |path: &u16| self.host.state(*path).is_some_and(|state| state != PathState::Vacant);
        let hosts = (0..).zip(self.host.hosts()).filter(|(path, _)| used(path));
        let mut hosts = hosts.map(|(_, host)| host.statistics()).peekable();
        let is_lost = |host: HostStatistics| host.sessions == 0 && host.failures > self.attempts.into();
        self.host.count() > 1 && hosts.peek().is_some() && hosts.all(is_lost)
    }

    /// Why its last session ended.
    pub(super) fn last_failure(&self) -> Option<HostFailure> {
        self.host.hosts().find_map(Host::last_failure)
    }

    /// What its paths did, where there are several.
    pub(super) fn paths(&self) -> Vec<LoadedPath> {
        let several = if self.host.count() > 1 { self.host.count() } else { 0 };
        let of = |path: u16| {
            let address = (*self.addresses.get(usize::from(path))?)?;
            let (state, counted) = (self.states.get(usize::from(path))?, self.host.path_statistics(path));
            Some(LoadedPath::new((self.team.member(), self.namespace), address, *state, counted))
        };
        (0..several).filter_map(of).collect()
    }

    /// The host gave the target up.
    pub(super) fn gave_up(&self) -> bool {
        self.host.failure().is_some() || self.host.serves_no_more() || self.is_hopeless()
    }

    /// What was wrong first.
    pub(super) fn caught(&self) -> Option<String> {
        let of_job = || self.job()?.caught().map(|caught| caught.to_string());
        self.caught.clone().or_else(of_job)
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

    /// The host's counters. Of several paths each has a first session, of which one is no other's.
    pub(super) fn session(&self) -> HostStatistics {
        let mut statistics = self.host.statistics();
        let connected = self.host.hosts().filter(|host| host.statistics().sessions > 0).count() as u64;
        statistics.sessions -= connected.saturating_sub(1);
        statistics
    }

    /// Most I/O queues of a session.
    pub(super) fn queues(&self) -> usize {
        self.queues
    }

    /// When the first request was submitted, or the first that counts was meant to be, and when the last one ended.
    pub(super) fn span(&self) -> Option<(Duration, Duration)> {
        let only_load = |job: &&Job| job.digest().is_none();
        let counts = self.job().filter(only_load).and_then(Job::counts_from);
        self.first.map(|first| (counts.map_or(first, |counts| counts.max(first)), self.last))
    }

    /// It has the job, of which others may have shares.
    pub(super) fn leads(&self) -> bool {
        self.team.is_first()
    }

    /// It takes part in the sessions of another core.
    pub(super) fn follows(&self) -> bool {
        !self.leads() && self.host.count() == 1
    }

    /// The namespace that it is in.
    pub(super) fn namespace(&self) -> u32 {
        self.namespace
    }

    /// It follows the first core, and got no queue.
    pub(super) fn had_no_queue(&self) -> bool {
        self.host.hosts().all(Host::has_no_queue)
    }

    /// News of another core that shares the job.
    pub(super) fn hear(&mut self, from: u16, news: News) {
        if let Some(host) = self.host.host_mut(0) {
            self.team.hear(from, news, host);
        }
    }

    pub(super) fn poll(&mut self, now: Duration) -> u32 {
        self.polled = now;
        self.judges = self.clock.is_due(now);
        let mut work = self.host.poll(now);
        self.tell_changes();
        while let Some(completion) = self.host.next_completion() {
            match completion.result {
                // What the host gave up is told with why it gave up.
                Ok(()) | Err(IoError::Abandoned) => {}
                Err(error) => {
                    self.caught.get_or_insert_with(|| format!("a request failed: {error}"));
                }
            }
            if let Work::Begun(job) = &mut self.work {
                // The cookie is the job's slot.
                job.completed(completion.cookie as u32, completion.result.is_ok(), now);
            }
            self.last = now;
            work += 1;
        }
        if self.stage == Stage::Running {
            work += self.run(now);
        } else {
            self.end_session();
        }
        work
    }

    /// The time in which it polled.
    fn watched(&self) -> Duration {
        self.clock.watched(self.polled)
    }

    /// Waits for the session to end, and where somebody waits for that, no longer than a target that answers takes.
    fn end_session(&mut self) {
        if self.stage == Stage::Finished {
            return;
        }
        if self.host.is_stopped() {
            self.stage = Stage::Finished;
            self.progress.finish();
        } else if self.stage == Stage::Closing && self.judges && self.end.drops(self.watched()) {
            self.stage = Stage::Dropping;
            for path in 0..self.host.count() {
                if let Some(host) = self.host.host_mut(path) {
                    host.drop_connections();
                }
            }
        }
    }

    fn run(&mut self, now: Duration) -> u32 {
        if !self.is_over() {
            let asks = self.progress.asks();
            if asks != self.heard {
                self.hear_of_paths(asks);
            }
            if let Work::Begun(job) = &mut self.work
                && asks.to_end_load()
            {
                job.end_load(now);
            }
            if asks.to_stop() {
                self.interrupted = true;
                self.end.told(self.clock.watched(now));
                self.stop_job();
            } else if self.team.wants_end() {
                self.stop_job();
            }
        }
        if self.had_no_queue() && self.has_part() {
            return self.give_up("the target grants no I/O queue for one of the cores any more; name fewer in --cores");
        }
        if let Some(reason) = self.waits_in_vain() {
            return self.give_up(&reason);
        }
        if self.judges && self.desk.is_some() && !self.is_wrong() {
            self.tell_waits();
        }
        self.watch();
        let mut work = 0;
        if self.host.is_ready() {
            self.queues = self.queues.max(self.host.hosts().map(Host::queues).sum());
            self.begin(now);
        }
        let mut doing = Doing::Connecting;
        if let Work::Begun(job) = &mut self.work {
            if let Some(intervals) = &mut self.intervals {
                intervals.pass(job, now);
            }
            work += job.poll(now);
            doing = Doing::Job(job.phase());
        } else if !self.team.is_first() {
            // Nothing of its own to do yet: what the first does is told.
            doing = Doing::Job(Phase::Done);
        }
        if doing == Doing::Job(Phase::Load) && self.load_began.is_none() {
            self.load_began = Some(now);
            self.kill_at = (self.inject == Some(Inject::KillPeer)).then(|| now + self.runtime / 2);
            if let (Work::Begun(job), Some(host)) = (&mut self.work, self.host.hosts().next()) {
                let of_its_own = self.host.count() > 1;
                self.team.divide(job, |other| of_its_own || host.follower_queues(other) > 0);
            }
        }
        // Behind the division: what is another core's is never begun here.
        if self.host.is_ready() {
            work += self.submit(now);
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.progress.kill_peer();
        }
        let given_up = self.gave_up();
        if self.is_over() || given_up {
            let failed = given_up || self.is_wrong();
            if self.team.may_leave(failed) || given_up {
                self.close();
            }
        }
        self.progress.publish(self.io(), doing);
        work
    }

    /// Why requests are waited for no longer that have not ended since the load was over, or was told to end.
    fn waits_in_vain(&mut self) -> Option<String> {
        if !self.judges || self.is_over() || self.stage != Stage::Running {
            return None;
        }
        let watched = self.watched();
        if self.job().is_some_and(|job| job.phase() == Phase::Drain) {
            self.end.over(watched);
        }
        self.end.gives_up(watched)
    }

    /// What this core has to do would be waited for in vain: a session began in which there is no queue for it, or nobody answers.
    fn give_up(&mut self, reason: &str) -> u32 {
        self.caught.get_or_insert_with(|| reason.to_owned());
        self.team.may_leave(true);
        self.close();
        1
    }

    /// There is something for this core to do of the load, begun or not.
    fn has_part(&self) -> bool {
        !self.is_over() && (self.job().is_some() || self.team.has_share())
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.caught.is_some() || self.job().is_some_and(|job| job.caught().is_some())
    }

    /// Makes the job once the namespace is known, and what this core is to do of it.
    fn begin(&mut self, now: Duration) {
        let Work::Planned { plan, data, tally } = &mut self.work else { return };
        let Some(geometry) = self.host.geometry() else { return };
        let share = self.team.take_share();
        if share.is_none() && !self.team.is_first() {
            return;
        }
        // Empty: nothing was counted yet.
        let tally = Tally::clone(tally);
        self.work = match JobPlan::clone(plan).options(geometry, MAX_REQUEST_BYTES) {
            Ok(options) => Work::Begun(Box::new(match share {
                Some(share) => Job::of_share(options, share, data.clone(), tally),
                None => Job::new(options, data.clone(), tally, now),
            })),
            Err(reason) => Work::Refused { reason },
        };
        self.sector_bytes = geometry.block_bytes();
    }

    /// Nothing is left to do.
    fn is_over(&self) -> bool {
        match &self.work {
            Work::Planned { .. } => false,
            Work::Begun(job) => job.phase() == Phase::Done,
            Work::Abandoned | Work::Refused { .. } => true,
        }
    }

    pub(super) fn stop_job(&mut self) {
        match &mut self.work {
            Work::Planned { .. } => self.work = Work::Abandoned,
            Work::Begun(job) => job.stop(),
            Work::Abandoned | Work::Refused { .. } => {}
        }
    }

    /// Looks for what must not happen: an end of the connection that is not tolerated, and more bytes open to the peer than
    /// requests in flight can have opened.
    fn watch(&mut self) {
        if self.caught.is_some() {
            return;
        }
        if self.host.statistics().failures > self.tolerated_failures
            && let Some(failure) = self.last_failure()
        {
            self.stop(format!("the session ended by itself: {failure}"));
            return;
        }
        // While the job runs nothing but its requests opens memory, and what the host reads for itself.
        if self.host.is_ready()
            && let Some(open) = self.bytes_open()
        {
            let requests = u64::from(self.job().map_or(0, Job::in_flight)) * u64::from(self.most_bytes);
            let most = requests + self.admin_bytes_open();
            if open > most {
                self.stop(format!("{open} bytes are open to the peer, but requests in flight opened at most {most}"));
            }
        }
    }

    /// Bytes open to peers, over all paths, where their devices can be asked.
    fn bytes_open(&self) -> Option<u64> {
        self.ports().map(Port::remote_bytes_open).sum()
    }

    /// Those of them that hosts opened for what they read for themselves.
    fn admin_bytes_open(&self) -> u64 {
        self.host.hosts().map(Host::admin_bytes_open).sum()
    }

    /// Paths come and go as the main thread says.
    fn hear_of_paths(&mut self, asks: Asks) {
        let before = core::mem::replace(&mut self.heard, asks);
        if !asks.has_orders_since(before) {
            return;
        }
        while let Some(PathOrder { path, to }) = self.desk.as_mut().and_then(|desk| desk.orders.pop()) {
            match to {
                None => self.host.retire_path(path),
                Some(address) if self.host.connect_path(path, address).is_ok() => {
                    if let (Some(known), Some(state)) =
                        (self.addresses.get_mut(usize::from(path)), self.states.get_mut(usize::from(path)))
                    {
                        (*known, *state) = (Some(address), PathState::Connecting);
                    }
                }
                // The main thread has heard before that it is vacant.
                Some(_) => {}
            }
        }
    }

    /// Tells what requests wait for where none of them ends.
    #[cold]
    fn tell_waits(&mut self) {
        let (ended, in_flight) = self.job().map_or((0, 0), |job| (job.requests(), job.in_flight()));
        // Without a session none begins either.
        let in_hand = in_flight > 0 || (self.job().is_some() && !self.is_over() && !self.host.is_ready());
        let watched = self.watched();
        let mut news = self.waits.look(ended, in_hand, watched);
        if in_hand && news.is_none() {
            let wait = Wait { waits_for: self.waits.waits_for(&self.host), end: self.end.of_wait() };
            news = self.waits.tell(wait, watched);
        }
        if let (Some(news), Some(desk)) = (news, &mut self.desk) {
            // It has room for what there is to say while the main thread looks at something else.
            let _ = desk.waits.push(news);
        }
    }

    /// Tells of paths that came and went.
    fn tell_changes(&mut self) {
        let Some(PathDesk { changes, .. }) = &mut self.desk else { return };
        while let Some(change) = self.untold.take().or_else(|| self.host.next_change()) {
            if let Some(state) = self.states.get_mut(usize::from(change.path)).filter(|_| self.stage == Stage::Running)
            {
                *state = change.now;
            }
            if self.stage == Stage::Running && changes.push(change).is_err() {
                self.untold = Some(change);
                return;
            }
        }
    }

    fn stop(&mut self, caught: String) {
        self.caught = Some(caught);
        self.stop_job();
    }

    fn submit(&mut self, now: Duration) -> u32 {
        let mut submitted = 0;
        while let Some(request) = self.job_mut().and_then(|job| job.next_request(now)) {
            if !self.submit_one(request) {
                break;
            }
            self.first.get_or_insert(now);
            if let Some(job) = self.job_mut() {
                job.submitted(request, now);
            }
            submitted += 1;
        }
        submitted
    }

    fn submit_one(&mut self, request: Request) -> bool {
        let memory = self.memory;
        let pieces = self.layout.pieces(request.slot, request.bytes as usize);
        // A piece is no longer than a request, which is 32 bit.
        let segments = pieces.map(|(at, range)| Segment { memory, offset: at as u64, length: range.len() as u32 });
        let segments: ArrayVec<Segment, MAX_SEGMENTS> = segments.take(MAX_SEGMENTS).collect();
        // The namespace's blocks are no larger than units, which are of whole blocks.
        let (cookie, lba) = (u64::from(request.slot), request.lba * u64::from(self.unit_bytes / self.sector_bytes));
        let taken = match request.operation {
            Operation::Read => self.host.read(lba, &segments, cookie),
            Operation::Write => self.host.write(lba, &segments, cookie),
            Operation::Trim => self.host.deallocate(&[(lba, request.bytes / self.sector_bytes)], cookie),
            Operation::Flush => self.host.flush_namespace(cookie),
        };
        match taken {
            Ok(()) => return true,
            // Later.
            Err(RequestError::QueueFull | RequestError::NotReady | RequestError::NoBounceBuffer) => {}
            // Never, such as behind the end of a namespace that has become smaller.
            Err(refusal) => self.stop(format!("a request was refused: {refusal}")),
        }
        false
    }

    /// Nothing of it is left.
    pub(super) fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    /// Its reactor is to end.
    pub(super) fn begin_shutdown(&mut self) {
        if self.stage == Stage::Running {
            self.interrupted = true;
            self.stop_job();
        }
    }

    /// Sends what its core says to the others of its job.
    pub(super) fn carry(&mut self, outbox: &mut Outbox<Message>) {
        if let Some(host) = self.host.host_mut(0) {
            self.team.carry(host, outbox);
        }
    }

    /// Posts what the iteration submitted.
    pub(super) fn flush(&mut self) {
        self.host.flush();
    }

    fn close(&mut self) {
        if let Some(failure) = self.host.failure() {
            let last = self.last_failure().unwrap_or(failure);
            self.caught.get_or_insert_with(|| match failure {
                HostFailure::TooManyAttempts => format!("the host gave up; its last attempt failed: {last}"),
                failure => format!("the host gave up: {failure}"),
            });
        } else if let Some(state) = self.host.state(0).filter(|_| self.host.serves_no_more()) {
            let first = state_name(state);
            self.caught.get_or_insert_with(|| format!("none of the paths will serve again; the first is {first}"));
        } else if self.host.is_ready() && self.is_over() {
            // Everything has ended and the connection is up: now the table must be empty, but for what the host reads for itself.
            self.remote_bytes_open = self.bytes_open().map(|bytes| bytes.saturating_sub(self.admin_bytes_open()));
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
