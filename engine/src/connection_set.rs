//! A set of connections, by their indices, that is walked in their order.

use frwr_mempool::{Region, region::CarveError, slab::Table};

/// Connections of a word.
const WORD: usize = u64::BITS as usize;

/// See the module.
#[derive(Debug)]
pub(crate) struct ConnectionSet {
    /// A bit for each connection.
    words: Table<u64>,
    len: u32,
}

impl ConnectionSet {
    /// An empty one, for so many connections.
    pub(crate) fn new_in(region: &mut Region, connections: usize) -> Result<Self, CarveError> {
        Ok(Self { words: Table::new_in(region, connections.div_ceil(WORD), |_| 0)?, len: 0 })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(connections: usize) -> Option<usize> {
        Table::<u64>::bytes_needed(connections.div_ceil(WORD))
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many are in it.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.words.get(index / WORD).is_some_and(|word| word & bit(index) != 0)
    }

    /// Puts one in, if it is not there.
    pub(crate) fn insert(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / WORD) {
            self.len += u32::from(*word & bit(index) == 0);
            *word |= bit(index);
        }
    }

    /// Takes one out, if it is there.
    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / WORD) {
            self.len -= u32::from(*word & bit(index) != 0);
            *word &= !bit(index);
        }
    }

    /// Takes out all.
    pub(crate) fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word = 0);
        self.len = 0;
    }

    /// All of them, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        core::iter::successors(self.next(0), |last| self.next(last + 1))
    }

    /// The first one from this index on: who walks over all asks for the one behind each. What is put in or taken out meanwhile in front
    /// of that changes nothing.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from / WORD;
        let mut word = *self.words.get(at)? & (u64::MAX << (from % WORD));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at * WORD + word.trailing_zeros() as usize)
    }
}

const fn bit(index: usize) -> u64 {
    1 << (index % WORD)
}

#[cfg(test)]
mod tests {
    use super::ConnectionSet;
    use frwr_mempool::{Region, RegionOptions};

    fn set(connections: usize) -> ConnectionSet {
        let bytes = ConnectionSet::bytes_needed(connections).unwrap() + 4096;
        let mut region = Region::map(&RegionOptions::new(bytes)).unwrap();
        ConnectionSet::new_in(&mut region, connections).unwrap()
    }

    fn all(set: &ConnectionSet) -> Vec<usize> {
        set.iter().collect()
    }

    #[test]
    fn it_is_walked_in_the_order_of_indices_over_the_edges_of_words() {
        let mut set = set(200);
        for index in [199, 63, 0, 64, 127, 128] {
            set.insert(index);
            set.insert(index);
        }
        assert_eq!((all(&set), set.len()), (vec![0, 63, 64, 127, 128, 199], 6));
        set.remove(64);
        set.remove(65);
        assert_eq!((all(&set), set.len()), (vec![0, 63, 127, 128, 199], 5));
        assert!(set.contains(63) && !set.contains(64) && !set.contains(10_000));
        set.clear();
        assert_eq!((all(&set), set.len(), set.is_empty()), (vec![], 0, true));
    }

    #[test]
    fn what_comes_behind_who_walks_is_met_and_what_comes_in_front_is_not() {
        let mut set = set(130);
        set.insert(5);
        let mut met = Vec::new();
        let mut from = 0;
        while let Some(index) = set.next(from) {
            from = index + 1;
            met.push(index);
            if index == 5 {
                [1, 5, 129].into_iter().for_each(|other| set.insert(other));
                set.remove(5);
            }
        }
        assert_eq!((met, all(&set)), (vec![5, 129], vec![1, 129]));
    }
}
