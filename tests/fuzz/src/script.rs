//! What parts that decode are told to do, out of any bytes. Bytes that are over are zeros, which mean the usual.

use arbitrary::{Arbitrary, Unstructured};

/// The bytes that are left.
pub(crate) struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    /// The next value.
    pub(crate) fn next<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// The next number, below a limit.
    pub(crate) fn below(&mut self, limit: u8) -> u8 {
        self.next::<u8>() % limit
    }

    /// The next bytes: as many as the first of them says, and not more than there are.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let wanted = usize::from(self.next::<u8>());
        self.0.bytes(wanted.min(self.0.len())).unwrap_or_default()
    }
}
