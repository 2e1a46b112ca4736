//! Proving who somebody is (Base 8.13), as a target and a host see it: messages that they carry between the peer and whoever can judge
//! them. How that is done, and what secrets it needs, only that one knows: `crate::dhchap`, with the feature of that name, or yours.
//!
//! A core that polls hands a message over and asks later for what comes of it. It never waits for that: a Diffie-Hellman exchange takes
//! milliseconds.

use crate::wire::Nqn;
use core::fmt::Debug;
use core::task::Waker;

/// Bytes of the largest message that is taken: a DH-HMAC-CHAP reply with two values of SHA-512 and a public value of 8192 bits has
/// 1168, and hosts give the buffer of an Authentication Receive 4096.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// Whom a transaction is between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parties {
    /// HOSTNQN.
    pub host: Nqn,
    /// SUBNQN.
    pub subsystem: Nqn,
}

/// What is asked of a host that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing.
    None,
    /// It has to prove itself on each of its queues.
    Proof,
    /// It would have to, and nobody knows it.
    Unknown,
}

/// Why somebody is not believed, or does not believe us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticationFailure {
    /// The peer's answer does not follow from the key.
    #[error("the peer's proof does not follow from the key; give both sides the same one")]
    Response,
    /// The peer offers no protocol that is known here.
    #[error("the peer offers another protocol than DH-HMAC-CHAP")]
    Protocol,
    /// The peer wants a secure channel, or none where there has to be one.
    #[error("the peer asks for a secure channel, which RDMA does not have")]
    Concatenation,
    /// None of the peer's hash functions may be used.
    #[error("no hash function is permitted on both sides; permit SHA-256, SHA-384 or SHA-512 on both")]
    Hash,
    /// None of the peer's groups may be used.
    #[error("no Diffie-Hellman group is permitted on both sides; permit one on both")]
    Group,
    /// A message cannot be read.
    #[error("a message of the peer's cannot be read")]
    Payload,
    /// A message is not the one that is awaited.
    #[error("a message of the peer's is not the one that is awaited, or belongs to another transaction")]
    Message,
    /// There is no key for this host, or none any more.
    #[error("there is no key for the host; give it one")]
    NoKey,
    /// The peer says that we are not believed: its reason code explanation.
    #[error("the peer refused it: {}; compare the keys", explained(*.0))]
    ByPeer(u8),
    /// Nothing came in time.
    #[error("it was not over within the time for a connection")]
    Late,
    /// The machine has no random numbers.
    #[error("the operating system gave no random numbers")]
    NoRandomNumbers,
}

impl AuthenticationFailure {
    /// A number for each, the same for those that differ in their figures only.
    pub(crate) fn kind(self) -> u32 {
        match self {
            Self::Response => 0,
            Self::Protocol => 1,
            Self::Concatenation => 2,
            Self::Hash => 3,
            Self::Group => 4,
            Self::Payload => 5,
            Self::Message => 6,
            Self::NoKey => 7,
            Self::ByPeer(_) => 8,
            Self::Late => 9,
            Self::NoRandomNumbers => 10,
        }
    }
}

/// A reason code explanation (Base figure 425), for people.
fn explained(explanation: u8) -> &'static str {
    match explanation {
        1 => "authentication failed",
        2 => "authentication protocol not usable",
        3 => "secure channel concatenation mismatch",
        4 => "hash function not usable",
        5 => "DH group not usable",
        6 => "incorrect payload",
        7 => "incorrect protocol message",
        _ => "a reason that the standard does not name",
    }
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The peer's next message is awaited.
    Open,
    /// The host is who it says, and is going to say whether the controller is: its next message is awaited.
    HostProven,
    /// Whoever had to be proven is, and nothing follows.
    Proven,
    /// It is not, or does not believe us: nothing follows.
    Failed(AuthenticationFailure),
}

/// What comes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What the peer is to be told.
    pub say: Option<Vec<u8>>,
    /// What it comes to once that was said.
    pub verdict: Verdict,
}

/// One transaction of one queue, on one side.
pub trait Exchange: Debug + Send {
    /// Hands over a message of the peer's, [`MAX_MESSAGE_BYTES`] at most; a host begins with an empty one. Not to be called before
    /// [`Exchange::poll`] has told what came of the one before. `waker` is called when that is known, if it is not already.
    fn tell(&mut self, message: &[u8], waker: Option<&Waker>);

    /// What comes of the latest message, once, as soon as it is known. Never blocks.
    fn poll(&mut self) -> Option<Turn>;
}

/// Who proves hosts and controllers. All cores share one; its calls never block.
pub trait Authenticator: Debug + Send + Sync {
    /// What is asked of a host that connects to a subsystem; `None` where that cannot be said now: it is to be asked again.
    fn demand(&self, host: Option<&Nqn>, subsystem: &Nqn) -> Option<Demand>;

    /// Whether a host begins a transaction also where the controller asks for none, since the controller is to prove itself; `None` as
    /// above.
    fn insists(&self, host: &Nqn) -> Option<bool>;

    /// A controller's side of a transaction, which the host begins.
    fn controller_side(&self, parties: Parties) -> Box<dyn Exchange>;

    /// A host's side of one.
    fn host_side(&self, parties: Parties) -> Box<dyn Exchange>;
}
