//! Where random numbers come from.

/// There are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomNumbers;

/// A source of random numbers that nobody can foretell. Tests have others.
pub trait Random {
    /// Fills bytes.
    ///
    /// # Errors
    /// There are none.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomNumbers>;
}

/// That of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomNumbers> {
        getrandom::fill(bytes).map_err(|_| NoRandomNumbers)
    }
}
