//! Seeded choices: the same seed makes the same job.

/// What the state grows by: odd, so that all states come up before one does again.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A small generator (SplitMix64): choices of blocks and operations, not secrets. Each number is its state, mixed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// A generator. Every seed gives another sequence, which begins with a number of its own: states follow from seeds, and numbers from
    /// states, one to one. The seed is mixed as well, or seeds that are a step apart would give one sequence a number later.
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next number.
    pub(super) fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `limit`; 0 where that is 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product: no division, and a bias below 2^-32 for limits of 32 bits.
        ((u128::from(self.next_number()) * u128::from(limit)) >> 64) as u64
    }
}

/// Every bit of the result depends on all bits; no two numbers have the same.
fn mix(number: u64) -> u64 {
    let mut mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A random order of the numbers below `count` without a table: a four-round Feistel network over the next power of
/// four, walked until it hits a number in range.
#[derive(Clone, Debug)]
pub(super) struct Order {
    count: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Order {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mut random = Random::new(seed);
        Self { count, half_bits: bits.div_ceil(2).max(1), keys: [(); 4].map(|()| random.next_number()) }
    }

    /// The `index`-th number of the order.
    pub(super) fn at(&self, index: u64) -> u64 {
        let mut number = index;
        loop {
            number = self.permute(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn permute(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(STEP) >> 29;
            (left, right) = (right, left ^ (mixed & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Random};

    #[test]
    fn an_order_visits_every_number_once() {
        for count in [1u64, 2, 3, 5, 64, 1000, 4097] {
            let order = Order::new(count, 7);
            let mut seen = vec![false; count as usize];
            for index in 0..count {
                let number = order.at(index) as usize;
                assert!(!seen[number], "{number} of {count} twice");
                seen[number] = true;
            }
        }
    }

    #[test]
    fn every_seed_has_a_sequence_of_its_own() {
        let first = |seed| {
            [(); 4].map({
                let mut random = Random::new(seed);
                move |()| random.next_number()
            })
        };
        let mut seen = std::collections::HashSet::new();
        let close = (0..10_000).chain(u64::MAX - 10_000..=u64::MAX);
        let apart = (0..64).map(|bit| (1u64 << bit).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for seed in close.chain(apart) {
            assert!(seen.insert(first(seed)), "seed {seed} has the sequence of another one");
        }
        // Nor does any begin inside of another one's first numbers, as seeds that are steps of the generator would.
        let numbers: std::collections::HashSet<u64> = seen.iter().flatten().copied().collect();
        assert_eq!(numbers.len(), 4 * seen.len());
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        let mut random = Random::new(0);
        for limit in 1..200u64 {
            assert!(random.below(limit) < limit);
        }
        assert_eq!(random.below(0), 0);
    }
}
