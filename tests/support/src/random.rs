//! The one source of chance of a simulation.

/// splitmix64: every 64-bit seed is a good one, equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Numbers of their own for a part: whatever it takes, and whether it takes any, changes nothing for the others.
    #[must_use]
    pub const fn part(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// A number below `end`; 0 where `end` is 0. The bias of the remainder is of no concern here.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.bits() % end }
    }

    /// True once in `count` times; never where that is 0.
    pub const fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.below(count) == 0
    }

    /// One of several.
    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// An index, each as likely as its weight says; `None` where all weights are 0.
    pub fn weighted(&mut self, weights: &[u64]) -> Option<usize> {
        let mut at = self.below(weights.iter().sum());
        weights.iter().position(|&weight| {
            let found = at < weight;
            at = at.saturating_sub(weight);
            found
        })
    }

    /// A weight as swarm testing draws it: half of all seeds do without, the others differ by powers of two.
    pub const fn weight(&mut self) -> u64 {
        if self.one_in(2) { 0 } else { 1 << self.below(6) }
    }
}
