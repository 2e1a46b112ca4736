//! What may happen because of a fault, and never by itself.

use core::ops::{BitOr, BitOrAssign};

/// Things that happen only where a fault explains them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects(u16);

impl Effects {
    /// Nothing that a caller could notice: it heals, or is borne.
    pub(super) const NONE: Self = Self(0);
    /// Commands, and steps of a session, take longer than their time-outs: they are aborted, or their session ends.
    pub(super) const TIME_OUTS: Self = Self(1);
    /// Connections end, or do not come up: sessions are set up again, and commands are submitted once more.
    pub(super) const ENDS: Self = Self(1 << 1);
    /// A controller refuses commands for the time being: they are repeated.
    pub(super) const REPEATS: Self = Self(1 << 2);
    /// Requests fail with what the controller says.
    pub(super) const ERRORS: Self = Self(1 << 3);
    /// A caller gives requests up.
    pub(super) const ABORTS: Self = Self(1 << 4);
    /// One side sees the other break the protocol.
    pub(super) const BREACHES: Self = Self(1 << 5);
    /// A message meets no receive.
    pub(super) const NO_RECEIVES: Self = Self(1 << 6);
    /// A target gives a host up that says nothing.
    pub(super) const SILENCE: Self = Self(1 << 7);
    /// A completion queue overruns, because a device kept back what was in it.
    pub(super) const OVERRUNS: Self = Self(1 << 8);

    /// All of these are among them.
    pub(super) const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These, where something is so.
    pub(super) const fn when(self, so: bool) -> Self {
        if so { self } else { Self::NONE }
    }
}

impl BitOr for Effects {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Effects {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}
