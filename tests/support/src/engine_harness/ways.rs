//! The ways of a request into the chain: a promise that holds on one of them is easily broken on another.

use super::{Setup, scripted::Scripted};
use frwr_engine::{Chunk, RequestHandle, SubmitError, gather::Segment, provider::Access};

/// How a request's work requests come into the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One segment and nothing to wait for: made where it is submitted.
    AtOnce,
    /// The same of a list that one registration covers.
    List,
    /// Several registrations: staged one by one.
    Staged,
    /// It finds no receive of the peer, and is staged by a later poll.
    Waited,
    /// The same with several registrations.
    WaitedWithSeveral,
}

pub const WAYS: [Way; 5] = [Way::AtOnce, Way::List, Way::Staged, Way::Waited, Way::WaitedWithSeveral];

/// Cookies of the requests that others wait behind.
const IN_FRONT: u64 = 1 << 40;

/// Bytes of a segment of one of several registrations.
const PIECE: u32 = 512;
/// Bytes of a segment of a list.
const PAGE: u32 = 4096;

impl Way {
    pub fn waits(self) -> bool {
        matches!(self, Self::Waited | Self::WaitedWithSeveral)
    }

    /// Registrations of a request.
    pub fn mrs(self) -> usize {
        if matches!(self, Self::Staged | Self::WaitedWithSeveral) { 3 } else { 1 }
    }

    pub fn segments_per_mr(self) -> usize {
        if self == Self::List { 2 } else { 1 }
    }

    /// Bytes that a request opens.
    pub fn bytes(self) -> u64 {
        u64::from(if self == Self::List { 2 * PAGE } else { PIECE }) * self.mrs() as u64
    }

    /// A pair whose host can send one message unasked where requests are to wait.
    pub fn setup(self, profile: &str) -> Setup {
        let setup = Setup::new(profile);
        if self.waits() { setup.peer_receives(1) } else { setup }
    }

    pub fn connected(self, setup: Setup) -> Scripted {
        let mut test = Scripted::of(setup);
        test.connect();
        test.watch.clear();
        test
    }

    /// The segments of the request with this cookie, a chunk each, or all in one for a list.
    pub fn segments(self, test: &Scripted, cookie: u64) -> Vec<Segment> {
        let first = (cookie % 16) * 4 * u64::from(PAGE);
        let piece = |at: u64| match self {
            Self::List => test.host.segment(first + at * u64::from(PAGE), PAGE),
            _ => test.host.segment(first + at * u64::from(PAGE) + 256, PIECE),
        };
        (0..(self.mrs() * self.segments_per_mr()) as u64).map(piece).collect()
    }

    /// Submits a request whose chunks have these rights. One that waits has another one in front of it, which [`Way::admit`] ends.
    pub fn submit(self, test: &mut Scripted, cookie: u64, rights: [Access; 3], invite: bool) -> RequestHandle {
        if self.waits() {
            test.submit(IN_FRONT + cookie, 0, false);
        }
        let before = test.host.engine.statistics().requests;
        let request = self.submit_alone(test, cookie, rights, invite).unwrap();
        let admitted = test.host.engine.statistics().requests - before;
        assert_eq!(admitted, u64::from(!self.waits()), "{self:?} is not the way that it went");
        request
    }

    /// The same with nothing put in front of it.
    pub fn submit_alone(
        self,
        test: &mut Scripted,
        cookie: u64,
        rights: [Access; 3],
        invite: bool,
    ) -> Result<RequestHandle, SubmitError> {
        let segments = self.segments(test, cookie);
        let chunk = |(access, segments)| Chunk { access, segments };
        let chunks: Vec<_> = rights.into_iter().zip(segments.chunks(self.segments_per_mr())).map(chunk).collect();
        test.host.submit_chunks(cookie, &chunks, invite)
    }

    /// The request can go: the one in front of it is answered. It is posted by now.
    pub fn admit(self, test: &mut Scripted, cookie: u64) {
        if self.waits() {
            let (name, _) = test.command();
            test.reply(name, None);
            test.until("the one in front has ended", |pair| {
                pair.host.ended.iter().any(|(ended, _)| *ended == IN_FRONT + cookie)
            });
        }
    }

    /// The same without a flush behind it: it stands in the chain.
    pub fn admit_unposted(self, test: &mut Scripted, cookie: u64) {
        if !self.waits() {
            return;
        }
        let (name, _) = test.command();
        test.reply(name, None);
        let now = test.pair.now;
        for _ in 0..20 {
            test.pair.target.step(now);
            let host = &mut test.pair.host;
            host.engine.poll(now, &mut host.protocol);
            while let Some(event) = host.engine.next_event() {
                host.event(event);
            }
        }
        assert_eq!(test.status(IN_FRONT + cookie), Some("replied"));
    }

    /// The same right for all.
    pub fn submit_for(self, test: &mut Scripted, cookie: u64, access: Access, invite: bool) -> RequestHandle {
        self.submit(test, cookie, [access; 3], invite)
    }

    /// Posts a request and has the target take its command: its name, and its grants.
    pub fn command(self, test: &mut Scripted, cookie: u64, invite: bool) -> ([u8; 8], Vec<frwr_engine::mr::Grant>) {
        self.submit_for(test, cookie, Access::RemoteWrite, invite);
        self.admit(test, cookie);
        let command = test.command();
        assert_eq!((u64::from_le_bytes(command.0), command.1.len()), (cookie, self.mrs()));
        command
    }

    /// Letters of the work requests that open memory, as [`super::Wr::letter`] has them.
    pub fn letters(self) -> String {
        format!("{}S", "R".repeat(self.mrs()))
    }
}
