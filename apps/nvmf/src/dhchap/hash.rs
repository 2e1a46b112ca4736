//! The hash functions of DH-HMAC-CHAP, and HMAC by each.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

/// A hash function (Base figure 433).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// 32 bytes.
    Sha256,
    /// 48 bytes.
    Sha384,
    /// 64 bytes.
    Sha512,
}

/// With a state that takes keys of any length.
macro_rules! mac {
    ($hash:ty, $key:expr, $parts:expr, |$mac:ident| $end:expr, $refused:expr) => {
        match <Hmac<$hash> as Mac>::new_from_slice($key) {
            Ok(mut $mac) => {
                for part in $parts {
                    $mac.update(part);
                }
                $end
            }
            // HMAC takes keys of any length.
            Err(_) => $refused,
        }
    };
}

impl Hash {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// By its identifier.
    #[must_use]
    pub const fn of(identifier: u8) -> Option<Self> {
        match identifier {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha384),
            3 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Its identifier.
    #[must_use]
    pub const fn identifier(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    /// Bytes of a value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The value of some bytes.
    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// HMAC of all parts, one behind the other.
    pub(super) fn authenticate(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac!(Sha256, key, parts, |mac| mac.finalize().into_bytes().to_vec(), Vec::new()),
            Self::Sha384 => mac!(Sha384, key, parts, |mac| mac.finalize().into_bytes().to_vec(), Vec::new()),
            Self::Sha512 => mac!(Sha512, key, parts, |mac| mac.finalize().into_bytes().to_vec(), Vec::new()),
        }
    }

    /// Whether that is the HMAC of all parts; it takes as long whatever differs.
    pub(super) fn verify(self, key: &[u8], parts: &[&[u8]], value: &[u8]) -> bool {
        match self {
            Self::Sha256 => mac!(Sha256, key, parts, |mac| mac.verify_slice(value).is_ok(), false),
            Self::Sha384 => mac!(Sha384, key, parts, |mac| mac.verify_slice(value).is_ok(), false),
            Self::Sha512 => mac!(Sha512, key, parts, |mac| mac.verify_slice(value).is_ok(), false),
        }
    }
}
