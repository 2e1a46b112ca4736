//! What DH-HMAC-CHAP may use, as options name it.

use clap::ValueEnum;
use frwr_nvmf::dhchap::{Group, Hash, Permitted};
use serde::{Deserialize, Serialize};

/// A hash function of DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[value(rename_all = "lower")]
#[serde(rename_all = "lowercase")]
pub enum DhChapDigest {
    /// 32 bytes.
    Sha256,
    /// 48 bytes.
    Sha384,
    /// 64 bytes.
    Sha512,
}

/// A Diffie-Hellman group of DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[value(rename_all = "lower")]
#[serde(rename_all = "lowercase")]
pub enum DhChapGroup {
    /// No exchange: who listens may try keys at leisure.
    Null,
    /// 2048 bits.
    Ffdhe2048,
    /// 3072 bits.
    Ffdhe3072,
    /// 4096 bits.
    Ffdhe4096,
    /// 6144 bits.
    Ffdhe6144,
    /// 8192 bits.
    Ffdhe8192,
}

impl DhChapDigest {
    const fn hash(self) -> Hash {
        match self {
            Self::Sha256 => Hash::Sha256,
            Self::Sha384 => Hash::Sha384,
            Self::Sha512 => Hash::Sha512,
        }
    }

    /// Those that are permitted unless somebody says otherwise, in the order of [`Permitted`].
    pub(super) fn usual() -> Vec<Self> {
        let usual = Permitted::default().hashes;
        usual.iter().filter_map(|hash| Self::value_variants().iter().copied().find(|one| one.hash() == *hash)).collect()
    }
}

impl DhChapGroup {
    const fn group(self) -> Group {
        match self {
            Self::Null => Group::Null,
            Self::Ffdhe2048 => Group::Ffdhe2048,
            Self::Ffdhe3072 => Group::Ffdhe3072,
            Self::Ffdhe4096 => Group::Ffdhe4096,
            Self::Ffdhe6144 => Group::Ffdhe6144,
            Self::Ffdhe8192 => Group::Ffdhe8192,
        }
    }

    /// As [`DhChapDigest::usual`].
    pub(super) fn usual() -> Vec<Self> {
        let usual = Permitted::default().groups;
        usual
            .iter()
            .filter_map(|group| Self::value_variants().iter().copied().find(|one| one.group() == *group))
            .collect()
    }
}

/// What a target permits, the best first.
pub(super) fn permitted(digests: &[DhChapDigest], groups: &[DhChapGroup]) -> Permitted {
    Permitted {
        hashes: digests.iter().map(|one| one.hash()).collect(),
        groups: groups.iter().map(|one| one.group()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_the_library_has_its_name_and_the_usual_ones_are_its_own() {
        assert_eq!(permitted(&DhChapDigest::usual(), &DhChapGroup::usual()), Permitted::default());
        assert!(Hash::ALL.iter().all(|hash| DhChapDigest::value_variants().iter().any(|one| one.hash() == *hash)));
        assert!(Group::ALL.iter().all(|group| DhChapGroup::value_variants().iter().any(|one| one.group() == *group)));
    }
}
