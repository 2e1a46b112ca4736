//! The Diffie-Hellman groups of DH-HMAC-CHAP (RFC 7919), and exchanges in them.

use super::moduli;
use super::random::{NoRandomNumbers, Random};
use super::secret::Secret;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use zeroize::{Zeroize, Zeroizing};

/// Bits of an exponent: twice the strength of SHA-512's values is more than any of the groups asks for (RFC 7919, 5.2 has 400 at most),
/// and an exchange takes a sixteenth of what exponents as long as the largest modulus would take.
const EXPONENT_BITS: u32 = 512;
const EXPONENT_BYTES: usize = EXPONENT_BITS as usize / 8;

/// A group (Base figure 434).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// None: the challenge is used as it is.
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

impl Group {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Null, Self::Ffdhe2048, Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192];

    /// By its identifier.
    #[must_use]
    pub fn of(identifier: u8) -> Option<Self> {
        Self::ALL.get(usize::from(identifier)).copied()
    }

    /// Its identifier.
    #[must_use]
    pub const fn identifier(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 1,
            Self::Ffdhe3072 => 2,
            Self::Ffdhe4096 => 3,
            Self::Ffdhe6144 => 4,
            Self::Ffdhe8192 => 5,
        }
    }

    /// Bytes of a public value; 0 without a group.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    const fn modulus(self) -> &'static str {
        match self {
            Self::Null => "",
            Self::Ffdhe2048 => moduli::FFDHE2048,
            Self::Ffdhe3072 => moduli::FFDHE3072,
            Self::Ffdhe4096 => moduli::FFDHE4096,
            Self::Ffdhe6144 => moduli::FFDHE6144,
            Self::Ffdhe8192 => moduli::FFDHE8192,
        }
    }

    /// Bits of its numbers.
    const fn bits(self) -> u32 {
        // At most 8192.
        self.bytes() as u32 * 8
    }

    /// What calculations with its modulus need; `None` without a group.
    fn parameters(self) -> Option<BoxedMontyParams> {
        if self == Self::Null {
            return None;
        }
        let modulus = Option::<BoxedUint>::from(BoxedUint::from_be_hex(self.modulus(), self.bits()))?;
        Option::<Odd<BoxedUint>>::from(Odd::new(modulus)).map(BoxedMontyParams::new)
    }
}

/// One side's half of an exchange. The exponent is wiped when it is dropped.
#[derive(Debug)]
pub(super) struct Half {
    group: Group,
    exponent: Secret,
    public: Vec<u8>,
}

impl Half {
    /// A new one.
    pub(super) fn new(group: Group, random: &mut dyn Random) -> Result<Self, NoRandomNumbers> {
        let mut exponent = vec![0; if group == Group::Null { 0 } else { EXPONENT_BYTES }];
        random.fill(&mut exponent)?;
        let exponent = Secret::new(exponent);
        let public = power(group, &BoxedUint::from(2_u8), &exponent).map_or_else(Vec::new, |public| public.to_vec());
        Ok(Self { group, exponent, public })
    }

    /// What the peer is told of it; empty without a group.
    pub(super) fn public(&self) -> &[u8] {
        &self.public
    }

    /// What both sides have in common then: its bytes as many as the modulus has. `None` where the peer's value is none (0, 1, the
    /// modulus less 1 and all above it), with which an exchange would have a result that anybody knows; empty without a group.
    pub(super) fn shared(&self, peer: &[u8]) -> Option<Secret> {
        if self.group == Group::Null {
            return peer.is_empty().then(|| Secret::new(Vec::new()));
        }
        let value = BoxedUint::from_be_slice(peer, self.group.bits()).ok()?;
        let modulus = Option::<BoxedUint>::from(BoxedUint::from_be_hex(self.group.modulus(), self.group.bits()))?;
        let one = BoxedUint::one_with_precision(self.group.bits());
        if value <= one || value >= modulus.wrapping_sub(&one) {
            return None;
        }
        power(self.group, &value, &self.exponent).map(|shared| Secret::new(shared.to_vec()))
    }
}

/// A power in a group, as many bytes as its modulus has. It takes as long whatever the exponent is.
fn power(group: Group, base: &BoxedUint, exponent: &Secret) -> Option<Zeroizing<Box<[u8]>>> {
    let parameters = group.parameters()?;
    let mut exponent = BoxedUint::from_be_slice(exponent.bytes(), EXPONENT_BITS).ok()?;
    let base = BoxedMontyForm::new(base.resize(group.bits()), &parameters);
    let mut residue = base.pow_bounded_exp(&exponent, EXPONENT_BITS);
    exponent.zeroize();
    let mut power = residue.retrieve();
    residue.zeroize();
    let bytes = Zeroizing::new(power.to_be_bytes());
    power.zeroize();
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{EXPONENT_BYTES, Group, Half, power};
    use crate::dhchap::random::SystemRandom;
    use crate::dhchap::secret::Secret;
    use crypto_bigint::BoxedUint;

    #[test]
    fn both_halves_of_an_exchange_have_the_same_in_common() {
        for group in Group::ALL {
            let mut random = SystemRandom;
            let (one, other) = (Half::new(group, &mut random).unwrap(), Half::new(group, &mut random).unwrap());
            assert_eq!(one.public().len(), group.bytes());
            let shared = one.shared(other.public()).unwrap();
            assert_eq!(shared.bytes().len(), group.bytes());
            assert!(shared == other.shared(one.public()).unwrap());
            assert_eq!(group.modulus().len(), group.bytes() * 2);
            assert_eq!(Group::of(group.identifier()), Some(group));
        }
        assert_eq!(Group::of(6), None);
    }

    /// From Python: `pow(2, int.from_bytes(bytes(range(64))), p)`, its first eight and last four bytes.
    #[test]
    fn powers_are_those_of_another_implementation() {
        const EXPECTED: [(Group, &str, &str); 5] = [
            (Group::Ffdhe2048, "06b173e56d38cadb", "599adb69"),
            (Group::Ffdhe3072, "e79eda6f69d7c183", "892011d9"),
            (Group::Ffdhe4096, "e56be1ebd35b1df2", "0b66c347"),
            (Group::Ffdhe6144, "1f831c19df18cf27", "df4b5ab0"),
            (Group::Ffdhe8192, "0c01f6c267d267f9", "ba6caecb"),
        ];
        let exponent = Secret::new((0..EXPONENT_BYTES as u8).collect());
        for (group, first, last) in EXPECTED {
            let power = power(group, &BoxedUint::from(2_u8), &exponent).unwrap();
            let hex: String = power.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(hex.starts_with(first) && hex.ends_with(last), "{group:?}: {hex}");
        }
    }

    #[test]
    fn public_values_with_results_that_anybody_knows_are_refused() {
        let half = Half::new(Group::Ffdhe2048, &mut SystemRandom).unwrap();
        let modulus: Vec<u8> = (0..256)
            .map(|at| u8::from_str_radix(&Group::Ffdhe2048.modulus()[at * 2..at * 2 + 2], 16).unwrap())
            .collect();
        let mut less = modulus.clone();
        *less.last_mut().unwrap() -= 1;
        for value in [vec![], vec![0], vec![1], vec![0; 256], less, modulus, vec![0xff; 256], vec![0xff; 257]] {
            assert!(half.shared(&value).is_none(), "{value:x?}");
        }
        assert!(half.shared(&[2]).is_some());
        assert!(Half::new(Group::Null, &mut SystemRandom).unwrap().shared(&[2]).is_none());
    }
}
