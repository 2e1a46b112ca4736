//! Secrets: bytes that nobody prints, and that are wiped when they are dropped; and the text that `nvme gen-dhchap-key` prints.

use super::hash::Hash;
use crate::wire::Nqn;
use base64ct::{Base64, Encoding};
use core::fmt;
use zeroize::{Zeroize, Zeroizing};

/// What the text of a key begins with.
const PREFIX: &str = "DHHC-1:";
/// Bytes of CRC-32 behind the key.
const CHECK_BYTES: usize = 4;
/// What a key is transformed with, behind the name of its owner (Base 8.13.5.7).
const PURPOSE: &[u8] = b"NVMe-over-Fabrics";
/// Longest text: 64 bytes and their check are 92 characters.
const MAX_TEXT: usize = 256;

/// Bytes that are wiped when they are dropped, and that no Debug shows.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(Vec<u8>);

impl Secret {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}

/// A key as `nvme gen-dhchap-key` prints it. Its bytes leave it by no call; Debug does not show them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DhChapKey {
    secret: Secret,
    /// By which it is transformed; as it is where there is none.
    transformation: Option<Hash>,
}

/// Why text is no key. None of the text is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not of this form.
    #[error(
        "a key begins with `DHHC-1:`, has two hexadecimal digits, `:`, base64 and `:`; make one by nvme gen-dhchap-key"
    )]
    Form,
    /// Not a hash function.
    #[error("hash function {0:02x} of the key: must be from 00 to 03; make one by nvme gen-dhchap-key")]
    Hash(u8),
    /// Not base64.
    #[error("what stands between the second and the third colon of the key is no base64; copy all of it")]
    Base64,
    /// A length that no key has.
    #[error("the key has {0} bytes: must have 32, 48 or 64; make one by nvme gen-dhchap-key")]
    Length(usize),
    /// A length that another hash function has.
    #[error("the key has {bytes} bytes, and its hash function {wanted}; make one by nvme gen-dhchap-key")]
    OtherLength {
        /// Bytes of the key.
        bytes: usize,
        /// Bytes of the hash function's values.
        wanted: usize,
    },
    /// A mistyped one.
    #[error("the key's check sum (CRC-32) is wrong; copy all of it")]
    Check,
}

impl DhChapKey {
    /// Reads a key, with white space around it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX_TEXT).ok_or(KeyError::Form)?;
        let (hash, rest) = rest.split_once(':').ok_or(KeyError::Form)?;
        let encoded = rest.strip_suffix(':').ok_or(KeyError::Form)?;
        let is_hex = hash.len() == 2 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
        let hash = u8::from_str_radix(hash, 16).ok().filter(|_| is_hex).ok_or(KeyError::Form)?;
        let transformation = match hash {
            0 => None,
            id => Some(Hash::of(id).ok_or(KeyError::Hash(id))?),
        };
        let decoded = Zeroizing::new(Base64::decode_vec(encoded).map_err(|_| KeyError::Base64)?);
        let (bytes, check) = decoded.split_last_chunk::<CHECK_BYTES>().ok_or(KeyError::Length(decoded.len()))?;
        if !matches!(bytes.len(), 32 | 48 | 64) {
            return Err(KeyError::Length(bytes.len()));
        }
        if let Some(wanted) = transformation.map(Hash::bytes).filter(|wanted| *wanted != bytes.len()) {
            return Err(KeyError::OtherLength { bytes: bytes.len(), wanted });
        }
        if crc32fast::hash(bytes) != u32::from_le_bytes(*check) {
            return Err(KeyError::Check);
        }
        Ok(Self { secret: Secret::new(bytes.to_vec()), transformation })
    }

    /// The key that its owner proves itself with (Base 8.13.5.7).
    pub(super) fn transformed(&self, owner: &Nqn) -> Secret {
        match self.transformation {
            None => self.secret.clone(),
            Some(hash) => {
                let parts: [&[u8]; 2] = [owner.as_str().as_bytes(), PURPOSE];
                Secret::new(hash.authenticate(self.secret.bytes(), &parts))
            }
        }
    }
}
