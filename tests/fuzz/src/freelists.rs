//! A freelist, beside sets that know where each index has to be.

use crate::script::Script;
use frwr_mempool::freelist::{BATCH_CAPACITY, Batch, FreeError, Freelist, List, Order, Returner};
use std::collections::HashSet;

/// Indices: few, so that each is used again soon, and no power of two.
const CAPACITY: u32 = 11;

/// The freelist and two lists of it, with what has to be on them.
struct Model {
    freelist: Freelist,
    returner: Returner,
    lists: [(List, HashSet<u32>); 2],
    batch: Batch,
    batched: HashSet<u32>,
    handed_out: HashSet<u32>,
    /// On their way back, in order; of a batch, or alone.
    returned: Vec<(u32, bool)>,
    refused: u64,
}

/// Operations, one to three bytes each.
pub(crate) fn freelist(bytes: &[u8]) {
    let freelist = Freelist::new(CAPACITY);
    let list = |order| (freelist.list(order), HashSet::new());
    let mut model = Model {
        returner: freelist.returner(),
        lists: [list(Order::LastInFirstOut), list(Order::FirstInFirstOut)],
        batch: freelist.batch(),
        batched: HashSet::new(),
        handed_out: (0..CAPACITY).collect(),
        returned: Vec::new(),
        refused: 0,
        freelist,
    };
    let mut script = Script::new(bytes);
    while !script.is_over() {
        model.step(&mut script);
        model.check();
    }
}

impl Model {
    fn step(&mut self, script: &mut Script<'_>) {
        let (operation, list) = (script.below(9), usize::from(script.below(2)));
        match operation {
            0 => self.push(list, script.below(13).into()),
            1 => self.pop(list),
            2 => self.push_bulk(list, script),
            3 => self.pop_batch(list, script.below(BATCH_CAPACITY as u8 + 2).into()),
            4 => self.push_batch(list),
            5 => self.move_one(script),
            6 => self.give_back(script),
            7 => self.drain(list),
            _ => self.append(list),
        }
    }

    /// Each index is in one place, and lists hold what they should.
    fn check(&mut self) {
        let away = self.returned.iter().filter(|(_, of_a_batch)| *of_a_batch).count();
        let listed: usize = self.lists.iter().map(|(_, model)| model.len()).sum();
        assert_eq!(listed + self.batched.len() + self.handed_out.len() + away, CAPACITY as usize);
        for (list, model) in &self.lists {
            assert_eq!(self.freelist.count(list) as usize, model.len());
            assert!(
                self.freelist.holds(list, model.len() as u32) && !self.freelist.holds(list, model.len() as u32 + 1)
            );
        }
        let out: HashSet<u32> = (0..CAPACITY + 2).filter(|index| self.freelist.is_handed_out(*index)).collect();
        assert_eq!(out, self.handed_out);
        assert_eq!(self.batch.indices().iter().copied().collect::<HashSet<_>>(), self.batched);
        assert_eq!(self.freelist.refused_returns().count, self.refused);
    }

    /// What putting an index that is not handed out comes to.
    fn refusal(index: u32) -> FreeError {
        if index < CAPACITY { FreeError::DoubleFree { index } } else { FreeError::Foreign { index } }
    }

    fn push(&mut self, list: usize, index: u32) {
        let (list, model) = &mut self.lists[list];
        let pushed = self.freelist.push(list, index);
        if self.handed_out.remove(&index) {
            assert_eq!(pushed, Ok(()));
            model.insert(index);
        } else {
            assert_eq!(pushed, Err(Self::refusal(index)));
        }
    }

    fn push_bulk(&mut self, list: usize, script: &mut Script<'_>) {
        let indices: Vec<u32> =
            script.bytes().iter().take(CAPACITY as usize).map(|byte| u32::from(byte % 13)).collect();
        let (list, model) = &mut self.lists[list];
        let mut expected = Ok(());
        for &index in &indices {
            if !self.handed_out.remove(&index) {
                expected = Err(Self::refusal(index));
                break;
            }
            model.insert(index);
        }
        assert_eq!(self.freelist.push_bulk(list, &indices), expected);
    }

    fn pop(&mut self, list: usize) {
        let (list, model) = &mut self.lists[list];
        match self.freelist.pop(list) {
            Some(index) => assert!(model.remove(&index) && self.handed_out.insert(index)),
            None => assert!(model.is_empty()),
        }
    }

    fn pop_batch(&mut self, list: usize, wanted: usize) {
        let (list, model) = &mut self.lists[list];
        let before = self.batch.len();
        let moved = self.freelist.pop_batch(list, &mut self.batch, wanted);
        assert_eq!(moved, wanted.min(model.len()).min(BATCH_CAPACITY - before));
        for index in &self.batch.indices()[before..] {
            assert!(model.remove(index) && self.batched.insert(*index));
        }
    }

    fn push_batch(&mut self, list: usize) {
        let (list, model) = &mut self.lists[list];
        assert_eq!(self.freelist.push_batch(list, &mut self.batch), Ok(self.batched.len()));
        model.extend(self.batched.drain());
    }

    /// Between the batch and who holds indices.
    fn move_one(&mut self, script: &mut Script<'_>) {
        let index = u32::from(script.below(14));
        if index == CAPACITY + 2 {
            match self.freelist.pop_from_batch(&mut self.batch) {
                Some(index) => assert!(self.batched.remove(&index) && self.handed_out.insert(index)),
                None => assert!(self.batched.is_empty()),
            }
            return;
        }
        let pushed = self.freelist.push_to_batch(&mut self.batch, index);
        if self.batched.len() == BATCH_CAPACITY {
            assert_eq!(pushed, Err(FreeError::BatchFull));
        } else if self.handed_out.remove(&index) {
            assert_eq!(pushed, Ok(()));
            self.batched.insert(index);
        } else {
            assert_eq!(pushed, Err(Self::refusal(index)));
        }
    }

    fn give_back(&mut self, script: &mut Script<'_>) {
        if script.next() {
            // Refused where too many are on their way; the batch keeps its indices then.
            if self.returner.give_back_batch(&mut self.batch).is_ok() {
                self.returned.extend(self.batched.drain().map(|index| (index, true)));
            }
            return;
        }
        let indices: Vec<u32> = script.bytes().iter().take(4).map(|byte| u32::from(byte % 13)).collect();
        let mut seen: HashSet<u32> = self.returned.iter().filter(|entry| !entry.1).map(|entry| entry.0).collect();
        let wrong = indices.iter().find(|index| **index >= CAPACITY || !seen.insert(**index));
        match (self.returner.give_back(&indices), wrong) {
            (Ok(()), None) => self.returned.extend(indices.iter().map(|index| (*index, false))),
            (Err(FreeError::ReturnsFull { .. }), _) => {}
            (refused, wrong) => assert_eq!(refused.err(), wrong.map(|index| Self::refusal(*index))),
        }
    }

    fn drain(&mut self, list: usize) {
        let (list, model) = &mut self.lists[list];
        let before = model.len();
        for (index, of_a_batch) in self.returned.drain(..) {
            if of_a_batch || self.handed_out.remove(&index) {
                model.insert(index);
            } else {
                self.refused += 1;
            }
        }
        assert_eq!(self.freelist.drain_returns(list), model.len() - before);
    }

    fn append(&mut self, to: usize) {
        let [first, second] = &mut self.lists;
        let (to, from) = if to == 0 { (first, second) } else { (second, first) };
        self.freelist.append(&mut to.0, &mut from.0).expect("both are of this freelist");
        to.1.extend(from.1.drain());
    }
}
