//! Random numbers that a seed repeats, and what they choose among.

use frwr_engine::provider::TokenKind;

/// All kinds of tokens that an engine gives.
pub const TOKEN_KINDS: [TokenKind; 7] = [
    TokenKind::Receive,
    TokenKind::Register,
    TokenKind::Invalidate,
    TokenKind::Message,
    TokenKind::Transfer,
    TokenKind::Reply,
    TokenKind::Drain,
];

/// xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}
