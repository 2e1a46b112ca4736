//! The pair on software NICs that record every post and completion and that do on command what devices do rarely.

use super::{Pair, Setup, Watch, WatchedDevice, Wr};
use core::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use frwr_engine::{
    Chunk, ConnectionId, EngineOptions, FetchRequest, OnPostError, RemoteSegment,
    mr::Grant,
    provider::{
        Access, Completion, CompletionQueue, FailureStatus, Port, PostRefusal, QueuePairId, RemoteRange, TokenKind,
        fault::{CompletionFault, CompletionFilter, FaultHandle},
        record::RecordedOperation,
        soft::{SoftMonitor, SoftOptions},
    },
};

/// Host and target with a script each, and with a record of all that the host's port did.
pub struct Scripted {
    pub pair: Pair<WatchedDevice>,
    pub faults: FaultHandle,
    pub target_faults: FaultHandle,
    pub monitor: SoftMonitor,
    pub target_monitor: SoftMonitor,
    pub watch: Watch,
}

impl Deref for Scripted {
    type Target = Pair<WatchedDevice>;
    fn deref(&self) -> &Self::Target {
        &self.pair
    }
}

impl DerefMut for Scripted {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.pair
    }
}

impl Drop for Scripted {
    /// What takes the imitated device's host down happens in no test.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(!self.monitor.crashed(), "a key was invalidated twice");
            assert!(!self.target_monitor.crashed(), "a key was invalidated twice");
        }
    }
}

impl Scripted {
    pub fn new(profile: &str) -> Self {
        Self::with(profile, EngineOptions::default())
    }

    /// With this policy for refused posts.
    pub fn policy(profile: &str, on_post_error: OnPostError) -> Self {
        Self::with(profile, EngineOptions::default().on_post_error(on_post_error))
    }

    pub fn with(profile: &str, options: EngineOptions) -> Self {
        let mut scripted = Self::unconnected(profile, options);
        scripted.connect();
        scripted.watch.clear();
        scripted
    }

    pub fn unconnected(profile: &str, options: EngineOptions) -> Self {
        Self::on(SoftOptions::new(profile.parse().unwrap()), options)
    }

    pub fn on(soft: SoftOptions, options: EngineOptions) -> Self {
        let mut setup = Setup::new(soft.profile.name());
        (setup.host_device, setup.target_device) = (soft, soft);
        Self::of(setup.host(|host| *host = options.connections(2)))
    }

    pub fn of(setup: Setup) -> Self {
        let super::Watched { pair, host, target } = setup.watched_apart();
        let monitor = |side: &super::Side<WatchedDevice>| side.control.device().inner().inner().monitor();
        Self {
            monitor: monitor(&pair.host),
            target_monitor: monitor(&pair.target),
            faults: host.faults.clone(),
            target_faults: target.faults.clone(),
            watch: host,
            pair,
        }
    }

    /// The work requests posted since the last look, oldest first.
    pub fn posted(&mut self) -> Vec<Wr> {
        let wrs = self.watch.wrs();
        self.watch.clear();
        wrs
    }

    /// The right of the latest registration under this key since the last look.
    pub fn opened_with(&mut self, wanted: u32) -> Option<Access> {
        self.watch.wrs().iter().rev().find_map(|wr| match wr.operation {
            RecordedOperation::Register { key, access, .. } if key == wanted => Some(access),
            _ => None,
        })
    }

    /// The letters of the posts since the last look, as [`Wr::letter`] has them.
    pub fn chains(&mut self) -> Vec<String> {
        let chains = self.watch.chains();
        self.watch.clear();
        chains
    }

    pub fn queue_pair(&self) -> QueuePairId {
        self.host.engine.queue_pair(self.host.connection.unwrap()).unwrap()
    }

    /// The host's next post is accepted up to `accepted` work requests.
    pub fn refuse(&self, accepted: usize) {
        self.faults.refuse_post(self.queue_pair(), accepted, PostRefusal::Invalid);
    }

    pub fn hold(&self, kind: TokenKind) {
        self.faults.on_all_completions(CompletionFilter::kind(kind), CompletionFault::Hold);
    }

    pub fn fail(&self, kind: TokenKind, status: FailureStatus) {
        self.faults.on_completions(CompletionFilter::kind(kind), CompletionFault::Fail(status.into()), 1);
    }

    /// A completion out of nowhere on the host's port.
    pub fn inject(&self, queue: CompletionQueue, completion: Completion) {
        self.faults.inject(self.watch.port, queue, completion);
    }

    /// Submits one request with `mrs` MRs of half a kilobyte each, on every profile: each has a chunk of its own up to
    /// the most that a request may have.
    pub fn submit(&mut self, cookie: u64, mrs: u64, invite: bool) -> frwr_engine::RequestHandle {
        self.try_submit(cookie, mrs, invite).unwrap()
    }

    pub fn try_submit(
        &mut self,
        cookie: u64,
        mrs: u64,
        invite: bool,
    ) -> Result<frwr_engine::RequestHandle, frwr_engine::SubmitError> {
        let segments: Vec<_> =
            (0..mrs).map(|at| self.host.segment((cookie % 8) * 65536 + at * 4096 + 256, 512)).collect();
        let chunk = |segment| Chunk { access: Access::RemoteWrite, segments: core::slice::from_ref(segment) };
        let chunks: Vec<_> = segments.iter().map(chunk).collect();
        self.host.submit_chunks(cookie, &chunks, invite)
    }

    /// Steps until the target has a command, and takes it.
    pub fn command(&mut self) -> ([u8; 8], Vec<Grant>) {
        self.until("a command", |pair| !pair.target.commands.is_empty());
        self.target.take_command().unwrap()
    }

    /// The target answers without writing anything.
    pub fn reply(&mut self, name: [u8; 8], invalidate: Option<u32>) {
        self.target.answer(name, &[], invalidate);
    }

    /// The host opens 512 bytes of 0xAA, and the target's RDMA READ of them is on its way to the bytes from 4096 on. Returns the
    /// target's connection.
    pub fn target_fetches(&mut self) -> ConnectionId {
        self.host.data.write(0, &[0xAA; 512]).unwrap();
        let offered = [self.host.segment(0, 512)];
        self.host.submit(1, Access::RemoteRead, &offered, false).unwrap();
        let (_, grants) = self.command();
        let target = &mut self.pair.target;
        let remote = [RemoteSegment {
            remote: RemoteRange { address: grants[0].address, key: grants[0].key },
            length: grants[0].length,
        }];
        let local = [target.segment(4096, 512)];
        let connection = target.connection.unwrap();
        target.engine.fetch(connection, &FetchRequest { local: &local, remote: &remote, cookie: 3 }).unwrap();
        target.engine.flush();
        connection
    }

    /// The memory of [`Scripted::target_fetches`] is the caller's again: what it writes there stays, whatever both devices still do.
    pub fn nobody_writes_what_was_fetched(&mut self, now: Duration) {
        self.target.data.write(4096, &[0x55; 512]).unwrap();
        for _ in 0..20 {
            let Pair { host, target, .. } = &mut self.pair;
            host.engine.poll(now, &mut host.protocol);
            target.engine.poll(now, &mut target.protocol);
        }
        let mut found = [0; 512];
        self.target.data.read(4096, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0x55), "the old queue pair wrote {:#x}", found[0]);
    }

    /// Bytes that the host's device lets peers reach now, in its own table.
    pub fn open_bytes(&self) -> u64 {
        self.host.engine.port().remote_bytes_open().unwrap()
    }

    pub fn status(&self, cookie: u64) -> Option<&'static str> {
        self.host.ended.iter().find(|(ended, _)| *ended == cookie).map(|(_, status)| *status)
    }

    /// Steps until the host's connection is gone and nothing is left of it, on either side.
    pub fn until_gone(&mut self) {
        self.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        assert!(self.host.outstanding.is_empty(), "lost requests {:?}", self.host.outstanding);
        assert_eq!(self.open_bytes(), 0, "no key survives its connection");
        self.everything_is_back();
    }

    /// Slots and receive buffers of the host are nobody's, but for messages that the test has (promise Conservation).
    fn everything_is_back(&self) {
        let (statistics, buffers) = (self.host.engine.statistics(), self.host.engine.receive_buffers());
        assert_eq!((statistics.request_slots_used, statistics.slots_held), (0, 0), "slots of ended requests");
        assert_eq!(buffers.held as usize, self.host.commands.len(), "receive buffers that nobody gave back");
    }

    /// The promise of every failure: the next connection works at once, its first registration succeeds (S96, fault 32).
    pub fn reconnect_works(&mut self) {
        self.faults.clear();
        self.faults.release();
        self.target_faults.clear();
        self.target_faults.release();
        self.connect();
        self.round_trip(1_000_000 + self.host.ended.len() as u64);
    }

    /// One request with one MR, answered and ended.
    pub fn round_trip(&mut self, cookie: u64) {
        self.submit(cookie, 1, true);
        self.until("a round trip", |pair| {
            pair.serve(true);
            pair.host.ended.iter().any(|(ended, _)| *ended == cookie)
        });
        assert_eq!(self.status(cookie), Some("replied"));
    }

    /// Commands that the host's device refused, by itself or by the script.
    pub fn control_failures(&self) -> u64 {
        self.host.control.statistics().commands_failed
    }

    /// Whether a request is taken now; it has no MRs.
    pub fn submit_now(&mut self) -> Result<(), frwr_engine::SubmitError> {
        self.try_submit(999_999, 0, false).map(|_| ())
    }

    /// Free, used, quarantined and absent descriptors of the host's connection.
    pub fn descriptors(&self) -> [u32; 4] {
        let counts = self.host.engine.descriptors(self.host.connection.unwrap());
        [counts.free, counts.used, counts.quarantined, counts.absent]
    }
}
