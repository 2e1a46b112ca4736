//! A block of the namespace, as it must be: what a read may find, and what a power cut may leave.

/// A version that a power cut may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    version: u32,
    /// When its write ended with success; `None` where it did not, so that nobody knows when it took effect.
    since: Option<u64>,
}

/// A block. Version 0 is zeros.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// What a read may find: one version, or several behind writes that failed, hints and power cuts.
    current: Vec<u32>,
    /// What the medium may hold, in the order of the writes.
    kept: Vec<Kept>,
    /// Reads and compares in flight.
    pub(super) readers: u32,
    /// Something that changes it is in flight, other than pairs.
    pub(super) written: bool,
    /// Pairs in flight, and writes beside them, whichever of their blocks those are to: what a block holds is known when all have ended.
    pairs: u32,
    /// What reads in flight may find besides, since pairs were or are.
    beside: Vec<u32>,
}

impl Block {
    /// One of zeros.
    pub(super) fn new() -> Self {
        let (current, kept) = (vec![0], vec![Kept { version: 0, since: Some(0) }]);
        Self { current, kept, readers: 0, written: false, pairs: 0, beside: Vec::new() }
    }

    /// What a read may find.
    pub(super) fn versions(&self) -> &[u32] {
        &self.current
    }

    /// Nothing that changes it is in flight, or looks at it.
    pub(super) fn rests(&self) -> bool {
        !self.written && self.readers == 0 && self.pairs == 0
    }

    /// Pairs are in flight, or a write beside them.
    pub(super) fn has_pairs(&self) -> bool {
        self.pairs > 0
    }

    /// A pair begins, which may write that.
    pub(super) fn pair_begins(&mut self, version: u32) {
        self.pairs += 1;
        self.beside.push(version);
    }

    /// It ended. `wrote`: it may have written.
    pub(super) fn pair_ends(&mut self, version: u32, wrote: bool) {
        self.pairs -= 1;
        self.beside.retain(|beside| wrote || *beside != version);
    }

    /// A write begins beside pairs to this block and others, to all of these or some.
    pub(super) fn write_begins_beside(&mut self) {
        self.pairs += 1;
    }

    /// It ended.
    pub(super) fn write_ends_beside(&mut self) {
        self.pairs -= 1;
    }

    /// All pairs have ended: reads in flight may find what there was before. What there is now follows.
    pub(super) fn pairs_end(&mut self) {
        self.written = false;
        self.beside.extend_from_slice(&self.current);
        self.look_no_more();
    }

    /// A read or compare ended.
    pub(super) fn reader_ends(&mut self) {
        self.readers -= 1;
        self.look_no_more();
    }

    fn look_no_more(&mut self) {
        if self.readers == 0 && self.pairs == 0 {
            self.beside.clear();
        }
    }

    /// What reads in flight may find besides.
    pub(super) fn beside(&self) -> &[u32] {
        &self.beside
    }

    /// It holds none of these.
    pub(super) fn was_not(&mut self, versions: &[u32]) {
        self.current.retain(|version| !versions.contains(version));
    }

    /// A change ended; it is what the block holds now.
    pub(super) fn is(&mut self, version: u32, now: u64) {
        self.current.clear();
        self.current.push(version);
        self.kept.push(Kept { version, since: Some(now) });
    }

    /// A change ended of which nobody knows whether it was made.
    pub(super) fn may_be(&mut self, version: u32) {
        if !self.current.contains(&version) {
            self.current.push(version);
        }
        self.kept.push(Kept { version, since: None });
    }

    /// It was found to hold a version, and nothing has changed it since.
    pub(super) fn was_found(&mut self, version: u32) {
        self.current.clear();
        self.current.push(version);
    }

    /// It was found on the medium, and nothing has changed it since.
    pub(super) fn is_durable(&mut self, version: u32, now: u64) {
        self.kept.clear();
        self.kept.push(Kept { version, since: Some(now) });
    }

    /// Everything that had ended at a time is durable.
    pub(super) fn flushed(&mut self, at: u64) {
        let last = self.kept.iter().rposition(|kept| kept.since.is_some_and(|since| since < at));
        if let Some(last) = last {
            self.kept.drain(..last);
        }
    }

    /// The power was cut: it may hold whatever may have been on the medium.
    pub(super) fn lost_power(&mut self) {
        for kept in &self.kept {
            if !self.current.contains(&kept.version) {
                self.current.push(kept.version);
            }
        }
        // From now on all of these are what the next power cut may leave.
        self.kept.iter_mut().for_each(|kept| kept.since = None);
    }

    /// What has ended is durable at once.
    pub(super) fn forget_former(&mut self) {
        if let Some(last) = self.kept.iter().rposition(|kept| kept.since.is_some()) {
            self.kept.drain(..last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Block;

    #[test]
    fn a_block_is_of_pairs_until_the_write_beside_them_has_ended() {
        let mut block = Block::new();
        block.pair_begins(7);
        block.write_begins_beside();
        block.pair_ends(7, true);
        assert!(block.has_pairs() && !block.rests());
        block.write_ends_beside();
        assert!(!block.has_pairs() && block.rests());
    }

    #[test]
    fn a_power_cut_leaves_what_was_flushed_or_what_came_later() {
        let mut block = Block::new();
        block.is(1, 10);
        block.is(2, 20);
        block.flushed(15);
        block.is(3, 30);
        block.may_be(4);
        assert_eq!(block.versions(), [3, 4]);
        block.lost_power();
        assert_eq!(block.versions(), [3, 4, 1, 2]);
        block.was_found(2);
        block.is(5, 40);
        block.flushed(41);
        block.lost_power();
        assert_eq!(block.versions(), [5]);
    }
}
