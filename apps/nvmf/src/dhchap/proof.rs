//! What follows from a key and a challenge (Base 8.13.5.4 and 8.13.5.6).

use super::hash::Hash;
use super::secret::Secret;
use crate::wire::Nqn;

/// Whose proof it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prover {
    Host,
    Controller,
}

impl Prover {
    /// It is in the proof, so that nobody's own proof can be shown to him as somebody else's.
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Host => b"HostHost",
            Self::Controller => b"Controller",
        }
    }
}

/// A challenge, and all else that its proof follows from beside the key.
#[derive(Debug)]
pub(super) struct Proof<'a> {
    pub(super) hash: Hash,
    /// What a Diffie-Hellman exchange made; empty without one.
    pub(super) shared: &'a Secret,
    pub(super) challenge: &'a [u8],
    pub(super) sequence: u32,
    pub(super) transaction: u16,
    pub(super) prover: Prover,
    /// The prover's name, and the other one's.
    pub(super) names: (&'a Nqn, &'a Nqn),
}

impl Proof<'_> {
    /// The proof, by the prover's transformed key.
    pub(super) fn make(&self, key: &Secret) -> Vec<u8> {
        self.with_parts(|parts| self.hash.authenticate(key.bytes(), parts))
    }

    /// Whether that is the proof; it takes as long whatever differs.
    pub(super) fn verify(&self, key: &Secret, response: &[u8]) -> bool {
        self.with_parts(|parts| self.hash.verify(key.bytes(), parts, response))
    }

    fn with_parts<T>(&self, make: impl FnOnce(&[&[u8]]) -> T) -> T {
        // Without an exchange the challenge is used as it is.
        let augmented = match self.shared.bytes() {
            [] => Secret::new(self.challenge.to_vec()),
            shared => {
                let key = Secret::new(self.hash.digest(shared));
                Secret::new(self.hash.authenticate(key.bytes(), &[self.challenge]))
            }
        };
        let (own, other) = self.names;
        make(&[
            augmented.bytes(),
            &self.sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            // No secure channel.
            &[0],
            self.prover.label(),
            own.as_str().as_bytes(),
            &[0],
            other.as_str().as_bytes(),
        ])
    }
}
