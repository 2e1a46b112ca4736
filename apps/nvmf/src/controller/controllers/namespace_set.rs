//! A set of a subsystem's namespaces.

use super::super::options::MAX_NAMESPACES;

/// Namespaces by their identifiers, a bit each.
#[derive(Debug, Default)]
pub(in super::super) struct NamespaceSet([u64; MAX_NAMESPACES.div_ceil(64)]);

impl NamespaceSet {
    /// One is in it, or is not.
    pub(in super::super) fn put(&mut self, identifier: u32, is_in: bool) {
        let bit = identifier.saturating_sub(1);
        if let Some(word) = self.0.get_mut(bit as usize / 64) {
            *word = *word & !(1 << (bit % 64)) | u64::from(is_in) << (bit % 64);
        }
    }

    pub(in super::super) fn has(&self, identifier: u32) -> bool {
        let bit = identifier.saturating_sub(1);
        self.0.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 != 0)
    }

    pub(in super::super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Identifiers in ascending order.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = u32> {
        // MAX_NAMESPACES bits.
        (1..=MAX_NAMESPACES as u32).filter(|identifier| self.has(*identifier))
    }
}
