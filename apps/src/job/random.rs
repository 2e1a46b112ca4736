//! Seeded choices: the same seed makes the same job.

/// A small generator (xorshift64*): choices of blocks and operations, not secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; every seed gives another sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Zero is the one state that xorshift never leaves.
        Self(seed ^ 0x9E37_79B9_7F4A_7C15 | 1)
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`; 0 where that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product: no division, and a bias below 2^-32 for limits of 32 bits.
        ((u128::from(self.next_number()) * u128::from(limit)) >> 64) as u64
    }
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
            let mixed = (right ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 29;
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
    fn numbers_stay_below_their_limit() {
        let mut random = Random::new(0);
        for limit in 1..200u64 {
            assert!(random.below(limit) < limit);
        }
        assert_eq!(random.below(0), 0);
    }
}
