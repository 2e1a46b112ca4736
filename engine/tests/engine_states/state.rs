//! The states of a request, and how one is brought into each.

use frwr_engine::{
    Chunk, EngineOptions,
    provider::{Access, TokenKind},
};
use frwr_support::engine_harness::{Setup, scripted::Scripted};

/// The request that is in the state; those beside it have others.
pub(crate) const COOKIE: u64 = 100;

/// MRs that a connection has here.
const REGISTRATIONS: u32 = 8;

/// How far a request has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No MR is left for it.
    WaitsForMrs,
    /// The peer has no receive for its message.
    WaitsForCredit,
    /// It stands in the chain and was not posted.
    Staged,
    /// It is posted, and nobody has looked at the device since.
    Posted,
    /// The peer has its message and may use its keys.
    Sent,
    /// The peer has answered, and the reply was not polled.
    Answered,
    /// The same, and its reply invalidates its first key.
    Invalidated,
    /// Its LOCAL_INV are posted, and no completion says that they ran.
    Fenced,
    /// The same, because it was cancelled.
    Cancelled,
    /// It ended, and no completion has passed its message.
    Held,
    /// A registration without a message whose completion nobody has seen.
    Opening,
    /// The same, told to be open.
    Open,
}

pub(crate) const STATES: [State; 12] = [
    State::WaitsForMrs,
    State::WaitsForCredit,
    State::Staged,
    State::Posted,
    State::Sent,
    State::Answered,
    State::Invalidated,
    State::Fenced,
    State::Cancelled,
    State::Held,
    State::Opening,
    State::Open,
];

impl State {
    /// Others wait behind it.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::WaitsForMrs | Self::WaitsForCredit)
    }

    /// A connected pair with the request in this state, and the name of a command that the peer has taken and not answered.
    pub(crate) fn reached(self, profile: &str) -> (Scripted, Option<[u8; 8]>) {
        let options = EngineOptions::default().registrations(REGISTRATIONS).connections(2);
        let mut setup = Setup::new(profile).host(|host| *host = options);
        (setup.host_device.watches_buffers, setup.target_device.watches_buffers) = (true, true);
        let receives = if self == Self::WaitsForCredit { 1 } else { 32 };
        let mut test = Scripted::of(setup.peer_receives(receives));
        test.connect();
        test.watch.clear();
        let unanswered = self.bring(&mut test);
        (test, unanswered)
    }

    fn bring(self, test: &mut Scripted) -> Option<[u8; 8]> {
        match self {
            Self::WaitsForMrs => {
                for cookie in 1..=4 {
                    test.submit(cookie, 2, false);
                }
                test.submit(COOKIE, 2, false);
                test.steps(4);
                assert!(test.host.engine.statistics().requests_waited > 0);
            }
            Self::WaitsForCredit => {
                test.submit(1, 0, false);
                test.submit(COOKIE, 2, false);
                test.steps(4);
                assert!(test.host.engine.statistics().requests_waited > 0);
            }
            Self::Staged => drop(test.submit(COOKIE, 2, false)),
            Self::Posted => {
                test.submit(COOKIE, 2, false);
                test.host.engine.flush();
            }
            Self::Sent => return Some(sent(test, false).0),
            Self::Answered | Self::Invalidated => {
                let (name, key) = sent(test, self == Self::Invalidated);
                test.reply(name, (self == Self::Invalidated).then_some(key));
                test.target.engine.flush();
            }
            Self::Fenced => {
                let (name, _) = sent(test, false);
                test.hold(TokenKind::Invalidate);
                test.reply(name, None);
                test.until("LOCAL_INV", |pair| pair.host.engine.statistics().local_inv_needed == 2);
                test.steps(2);
            }
            Self::Cancelled => {
                let request = test.submit(COOKIE, 2, false);
                let (name, _) = test.command();
                test.hold(TokenKind::Invalidate);
                test.host.engine.cancel(request).unwrap();
                test.steps(2);
                assert!(test.host.ended.is_empty(), "not before its keys are dead");
                return Some(name);
            }
            Self::Held => {
                test.submit(COOKIE, 0, false);
                let (name, _) = test.command();
                test.reply(name, None);
                test.until("the end", |pair| pair.host.ended.len() == 1);
                assert!(test.host.engine.statistics().slots_held > 0);
            }
            Self::Opening | Self::Open => {
                let host = &mut test.pair.host;
                let segment = [host.segment(524_288, 256)];
                let chunk = Chunk { access: Access::RemoteRead, segments: &segment };
                let connection = host.connection.unwrap();
                let request = host.engine.register_now(connection, &chunk, COOKIE, &mut host.protocol).unwrap();
                host.protocol.names.insert(COOKIE, request);
                host.outstanding.insert(COOKIE, 256);
                host.engine.flush();
                if self == Self::Open {
                    test.until("open", |pair| pair.host.grants.len() == 1);
                }
            }
        }
        None
    }
}

/// The peer has the message of a request with two keys: its name, and the first of them.
fn sent(test: &mut Scripted, invite: bool) -> ([u8; 8], u32) {
    test.submit(COOKIE, 2, invite);
    let (name, grants) = test.command();
    (name, grants[0].key)
}
