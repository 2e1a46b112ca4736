//! Pairs whose devices record every post and completion, and follow a script of faults.

use super::{Pair, Side};
use core::ops::{Deref, DerefMut};
use frwr_engine::gather::Segment;
use frwr_engine::provider::{
    Access, Completion, CompletionQueue, Port, PortId, QueuePairId, Token, TokenKind,
    fault::{FaultHandle, Faulty},
    record::{Counters, Record, Recorded, RecordedOperation, RecordedPort, Tap, Taps},
    soft::SoftDevice,
};

/// Records what the engine posts and what it gets to see; the faults are between the recorder and the NIC.
pub type WatchedDevice = Recorded<Faulty<SoftDevice>>;

/// Distance of scattered segments.
const SCATTER_BYTES: u64 = 16384;

/// Records kept until they are looked at.
const RECORDS: usize = 1 << 16;

/// A work request as it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wr {
    pub token: Token,
    pub signalled: bool,
    pub fence: bool,
    pub accepted: bool,
    pub length: u64,
    pub operation: RecordedOperation,
}

impl Wr {
    /// R for a registration, L for a LOCAL_INV, S for a SEND, I for a SEND_WITH_INV, G for an RDMA READ (get), P for an
    /// RDMA WRITE (put), D for the marker of a drain; a star behind it where it asks for a completion.
    pub fn letter(&self) -> String {
        let letter = match self.operation {
            _ if self.token.kind() == TokenKind::Drain => 'D',
            RecordedOperation::Register { .. } => 'R',
            RecordedOperation::Invalidate { .. } => 'L',
            RecordedOperation::Send { invalidate: None } => 'S',
            RecordedOperation::Send { .. } => 'I',
            RecordedOperation::Read { .. } => 'G',
            RecordedOperation::Write { .. } => 'P',
        };
        format!("{letter}{}", if self.signalled { "*" } else { "" })
    }
}

/// What one iteration posted to one queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    pub iteration: u64,
    pub queue_pair: QueuePairId,
    pub wrs: Vec<Wr>,
}

impl Post {
    /// Such as `RRS*`.
    pub fn letters(&self) -> String {
        self.wrs.iter().map(Wr::letter).collect()
    }
}

/// One side's recorder and script.
pub struct Watch {
    pub faults: FaultHandle,
    pub port: PortId,
    taps: Taps,
    tap: Option<Tap>,
    log: Vec<Record>,
}

impl Watch {
    pub fn over(device: SoftDevice) -> (WatchedDevice, Self) {
        let (device, faults) = Faulty::new(device);
        let (device, taps) = Recorded::new(device, RECORDS);
        (device, Self { faults, port: PortId(0), taps, tap: None, log: Vec::new() })
    }

    /// Takes the tap of a side's port and has the side tell the port of its steps.
    pub fn of(mut self, side: &mut Side<WatchedDevice>) -> Self {
        side.begin = RecordedPort::mark_iteration;
        self.port = side.engine.port().id();
        self.tap = self.taps.take(self.port);
        self
    }

    /// Everything recorded since the last [`Watch::clear`].
    pub fn log(&mut self) -> &[Record] {
        let tap = self.tap.as_mut().unwrap();
        while let Some(record) = tap.pop() {
            self.log.push(record);
        }
        assert_eq!(tap.counters().dropped_records, 0, "the recorder's lane is too short for this test");
        &self.log
    }

    pub fn clear(&mut self) {
        self.log();
        self.log.clear();
    }

    pub fn counters(&self) -> Counters {
        self.tap.as_ref().unwrap().counters()
    }

    /// Posts to send queues, in order.
    pub fn posts(&mut self) -> Vec<Post> {
        let mut posts: Vec<Post> = Vec::new();
        for record in self.log() {
            let Record::Posted { iteration, queue_pair, token, signalled, fence, accepted, length, operation } =
                *record
            else {
                continue;
            };
            let same = posts.last().is_some_and(|post| (post.iteration, post.queue_pair) == (iteration, queue_pair));
            if !same {
                posts.push(Post { iteration, queue_pair, wrs: Vec::new() });
            }
            let wr = Wr { token, signalled, fence, accepted, length, operation };
            posts.last_mut().unwrap().wrs.push(wr);
        }
        posts
    }

    /// The letters of all posts, such as `["RS", "L*"]`.
    pub fn chains(&mut self) -> Vec<String> {
        self.posts().iter().map(Post::letters).collect()
    }

    /// Work requests posted, in order.
    pub fn wrs(&mut self) -> Vec<Wr> {
        self.posts().into_iter().flat_map(|post| post.wrs).collect()
    }

    /// Completions that the engine saw of a queue.
    pub fn completions(&mut self, of: CompletionQueue) -> Vec<Completion> {
        let taken = |record: &Record| match *record {
            Record::Completed { queue, completion, .. } if queue == of => Some(completion),
            _ => None,
        };
        self.log().iter().filter_map(taken).collect()
    }
}

/// A pair with the watches of both sides; stepping it is stepping the pair.
pub struct Watched {
    pub pair: Pair<WatchedDevice>,
    pub host: Watch,
    pub target: Watch,
}

impl Watched {
    /// The host's queue pair.
    pub fn queue_pair(&self) -> QueuePairId {
        let connection = self.pair.host.connection.unwrap();
        self.pair.host.engine.queue_pair(connection).unwrap()
    }

    /// `count` segments of the host that no two of which share an MR: each starts and ends inside a page.
    pub fn scattered(&self, count: u64) -> Vec<Segment> {
        (0..count).map(|at| self.pair.host.segment(SCATTER_BYTES * at + 8, 100)).collect()
    }

    /// Runs one request that opens `mrs` MRs for writing to its end; the peer invalidates the first key if asked to.
    pub fn request(&mut self, cookie: u64, mrs: u64, inline: bool, invalidate: bool) {
        let (segments, ended) = (self.scattered(mrs), self.pair.host.ended.len());
        let inline: &[Segment] = if inline { &[self.pair.host.segment(0, 64)] } else { &[] };
        self.pair.host.submit_with_inline(cookie, Access::RemoteWrite, &segments, inline, invalidate).unwrap();
        self.pair.until("ended", |pair| {
            pair.serve(invalidate);
            pair.host.ended.len() > ended
        });
    }

    /// Forgets what was recorded on both sides.
    pub fn clear(&mut self) {
        self.host.clear();
        self.target.clear();
    }
}

impl Deref for Watched {
    type Target = Pair<WatchedDevice>;

    fn deref(&self) -> &Self::Target {
        &self.pair
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.pair
    }
}
