//! What both sides of a transaction have in common.

use super::group::Group;
use super::hash::Hash;
use super::message::Message;
use super::random::{NoRandomNumbers, Random};
use super::secret::DhChapKey;
use crate::authentication::{AuthenticationFailure, Turn, Verdict};

/// The keys of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeys {
    /// The host proves itself with it.
    pub host: DhChapKey,
    /// The controller proves itself to this host with it, where there is one. A host that has one insists on that.
    pub controller: Option<DhChapKey>,
}

/// Which hash functions and groups are permitted, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permitted {
    /// Hash functions.
    pub hashes: Vec<Hash>,
    /// Groups.
    pub groups: Vec<Group>,
}

impl Default for Permitted {
    /// All of them. 3072 bits are as strong as SHA-256 is, and an exchange takes a few milliseconds; without one an eavesdropper may
    /// try keys at leisure, which does not help him with those that `nvme gen-dhchap-key` makes.
    fn default() -> Self {
        Self {
            hashes: vec![Hash::Sha256, Hash::Sha384, Hash::Sha512],
            groups: vec![
                Group::Ffdhe3072,
                Group::Ffdhe4096,
                Group::Ffdhe2048,
                Group::Ffdhe6144,
                Group::Ffdhe8192,
                Group::Null,
            ],
        }
    }
}

impl AuthenticationFailure {
    /// The reason code explanation (Base figure 425).
    pub(super) const fn explanation(self) -> u8 {
        match self {
            Self::Protocol => 2,
            Self::Concatenation => 3,
            Self::Hash => 4,
            Self::Group => 5,
            Self::Payload => 6,
            Self::Message => 7,
            Self::Response | Self::NoKey | Self::ByPeer(_) | Self::Late | Self::NoRandomNumbers => 1,
        }
    }
}

impl From<NoRandomNumbers> for AuthenticationFailure {
    fn from(_: NoRandomNumbers) -> Self {
        Self::NoRandomNumbers
    }
}

/// The peer is to be told this, and its answer is awaited.
pub(super) fn say(message: &Message<'_>) -> Turn {
    Turn { say: Some(message.encode()), verdict: Verdict::Open }
}

/// A challenge that nobody can foretell, and its sequence number, which is not 0.
pub(super) fn challenge(hash: Hash, random: &mut dyn Random) -> Result<(Vec<u8>, u32), NoRandomNumbers> {
    let (mut value, mut sequence) = (vec![0; hash.bytes()], [0; 4]);
    random.fill(&mut value)?;
    random.fill(&mut sequence)?;
    Ok((value, u32::from_le_bytes(sequence).max(1)))
}
