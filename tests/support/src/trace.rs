//! What happened, as one number.

/// FNV-1a over what happened, so that two runs can be compared without keeping them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl TraceHash {
    /// Of nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    /// Adds a number.
    pub const fn add(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x0000_0100_0000_01B3);
        self.0 ^= self.0 >> 29;
    }

    /// The number.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::new();
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.add(u64::from_le_bytes(word));
        }
        hash.0
    }
}

impl Default for TraceHash {
    fn default() -> Self {
        Self::new()
    }
}

/// Hashes whatever has a `Hash` of its own, without formatting it.
impl core::hash::Hasher for TraceHash {
    fn write(&mut self, bytes: &[u8]) {
        self.add(Self::of(bytes));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl core::fmt::Write for TraceHash {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.add(Self::of(text.as_bytes()));
        Ok(())
    }
}
