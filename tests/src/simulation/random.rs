//! The one source of chance of a simulation.

/// splitmix64: every 64-bit seed is a good one, equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The numbers of a seed.
    #[must_use]
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub(super) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where `end` is 0. The bias of the remainder is of no concern here.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.bits() % end }
    }

    /// True once in `count` times.
    pub(super) const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of several.
    pub(super) fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// An index, each as likely as its weight says; 0 where all weights are 0.
    pub(super) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (index, &weight) in weights.iter().enumerate() {
            if at < weight {
                return index;
            }
            at -= weight;
        }
        0
    }

    /// A weight as swarm testing draws it: half of all seeds do without, the others differ by powers of two.
    pub(super) const fn weight(&mut self) -> u64 {
        if self.one_in(2) { 0 } else { 1 << self.below(6) }
    }
}

/// FNV-1a over what happened, so that two runs can be compared without keeping them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceHash(pub(super) u64);

impl TraceHash {
    /// Of nothing yet.
    #[must_use]
    pub(super) const fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    /// Adds a number.
    pub(super) const fn add(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x0000_0100_0000_01B3);
        self.0 ^= self.0 >> 29;
    }
}

impl Default for TraceHash {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Write for TraceHash {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        Ok(())
    }
}
