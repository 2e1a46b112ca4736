//! Command identifiers that are in use on one queue.

/// One bit for each of the 2^16 identifiers.
const WORDS: usize = (1 << 16) / u64::BITS as usize;

/// The set of identifiers of commands that were not answered yet. Made once per queue's place: it never allocates later.
#[derive(Debug)]
pub(super) struct IdentifiersInUse(Box<[u64; WORDS]>);

impl IdentifiersInUse {
    pub(super) fn new() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// Takes an identifier into use. False where it is already.
    pub(super) fn insert(&mut self, command_id: u16) -> bool {
        let (word, bit) = self.place(command_id);
        let was_free = *word & bit == 0;
        *word |= bit;
        was_free
    }

    pub(super) fn remove(&mut self, command_id: u16) {
        let (word, bit) = self.place(command_id);
        *word &= !bit;
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    fn place(&mut self, command_id: u16) -> (&mut u64, u64) {
        // There is a bit for every identifier.
        (&mut self.0[usize::from(command_id) / u64::BITS as usize], 1 << (u32::from(command_id) % u64::BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::IdentifiersInUse;

    #[test]
    fn an_identifier_is_free_again_once_it_was_removed() {
        let mut used = IdentifiersInUse::new();
        for id in [0, 63, 64, u16::MAX] {
            assert!(used.insert(id) && !used.insert(id));
        }
        used.remove(64);
        assert!(used.insert(64) && !used.insert(63));
        used.clear();
        assert!(used.insert(u16::MAX));
    }
}
