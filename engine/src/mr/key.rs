//! What the peer is told: keys and base addresses, as pure functions.

use crate::provider::BaseAddress;

/// Low bits of a key that a registration may change; the bits above are the index of the device object (S37, U5).
pub const KEY_TAG_BITS: u8 = 8;

/// The largest page that a page list is made of, 64 KiB: below it a base address keeps the bits of the first byte's (S36).
const LARGEST_PAGE_BYTES: u64 = 1 << 16;

/// The low bits of a key that change, by their number
/// ([`crate::provider::Capabilities::rotating_key_bits`]), as a mask. More of them than
/// [`KEY_TAG_BITS`] no device rotates, and they would reach into the index: they are left out
/// (I20).
#[must_use]
pub const fn tag_mask(rotating_bits: u8) -> u32 {
    let bits = if rotating_bits > KEY_TAG_BITS { KEY_TAG_BITS } else { rotating_bits };
    (1u32 << bits) - 1
}

/// The key of the next registration: the bits that change plus one, modulo their number; the index
/// never changes, and where no bits change neither does the key (S37, I20, U10).
#[inline(always)]
pub(super) const fn next_key(key: u32, mask: u32) -> u32 {
    key ^ ((key ^ key.wrapping_add(1)) & mask)
}

/// Which base address the peer is told (D13). A device with a rule of its own overrides the policy (U11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IovaPolicy {
    /// The address of the first byte.
    Raw,
    /// The low half of that address under a 32-bit cookie of the request, such as its XID: a stale access shows itself,
    /// and two requests on one buffer differ (S36).
    #[default]
    Cookie,
    /// Zero, but for the offset in a page where the device leaves the choice: one with page lists adds base address and
    /// page addresses, so both must have it.
    ZeroBased,
}

/// Policy and the device's rule together, decided once: which bits of a base address come from the
/// first byte's, and which from the cookie.
#[derive(Clone, Copy, Debug)]
pub struct IovaRule {
    address: u64,
    cookie: u64,
}

impl IovaRule {
    /// What follows from a policy on a device with this rule.
    #[must_use]
    pub const fn of(policy: IovaPolicy, rule: BaseAddress) -> Self {
        match (rule, policy) {
            (BaseAddress::Zero, _) => Self { address: 0, cookie: 0 },
            (BaseAddress::Any, IovaPolicy::ZeroBased) => Self { address: LARGEST_PAGE_BYTES - 1, cookie: 0 },
            (BaseAddress::Virtual, _) | (BaseAddress::Any, IovaPolicy::Raw) => Self { address: u64::MAX, cookie: 0 },
            (BaseAddress::Any, IovaPolicy::Cookie) => Self { address: 0xFFFF_FFFF, cookie: !0xFFFF_FFFF },
        }
    }

    /// The base address under which the peer reaches the first byte at `address`. Where the bytes
    /// do not wrap around, from their base address on they do not either (I18).
    ///
    /// A range may carry from the low half into the cookie and stays linear (S36). Only the highest
    /// cookie could carry out of 64 bits; it is published as the one below.
    #[inline]
    #[must_use]
    pub const fn apply(self, address: u64, cookie: u32) -> u64 {
        let cookie = if cookie == u32::MAX { u32::MAX - 1 } else { cookie };
        (address & self.address) | (((cookie as u64) << 32) & self.cookie)
    }
}
