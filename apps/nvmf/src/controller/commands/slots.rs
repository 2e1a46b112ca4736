//! A slot for each command, and the numbers by which engine and storages name it.

use super::slot::Slot;
use frwr_mempool::mutant;

/// All slots of one core. Nothing grows after it was made.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<(u32, Option<Slot>)>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self { slots: (0..count).map(|_| (0, None)).collect(), free: (0..count).rev().collect() }
    }

    pub(super) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Indices are below this.
    pub(super) fn count(&self) -> u32 {
        // As many as it was made with.
        self.slots.len() as u32
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// The slot's index; `None` where all are taken: what the command holds would be lost then.
    #[inline(always)]
    pub(super) fn insert(&mut self, command: Slot) -> Option<u32> {
        let index = self.free.pop()?;
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        *generation = generation.wrapping_add(1);
        *slot = Some(command);
        Some(index)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)?.1.as_ref()
    }

    /// Two of them.
    pub(super) fn pair(&mut self, one: u32, other: u32) -> Option<(&mut Slot, &mut Slot)> {
        let [(_, one), (_, other)] = self.slots.get_disjoint_mut([one as usize, other as usize]).ok()?;
        Some((one.as_mut()?, other.as_mut()?))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize)?.1.as_mut()
    }

    /// A command, and what engine and storage are given to name it.
    #[inline]
    pub(super) fn with_cookie(&mut self, index: u32) -> Option<(u64, &mut Slot)> {
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        Some((cookie(*generation, index), slot.as_mut()?))
    }

    /// The command that a cookie names, unless its slot was used again since.
    #[inline]
    pub(super) fn named(&mut self, cookie: u64) -> Option<(u32, &mut Slot)> {
        // The lower and the upper half.
        let (index, generation) = (cookie as u32, (cookie >> 32) as u32);
        let (now, slot) = self.slots.get_mut(index as usize)?;
        // S7: what is said of a former command is said of this one.
        let is_it = *now == generation || mutant!(S7_target_slot);
        Some((index, slot.as_mut().filter(|_| is_it)?))
    }

    /// The first one of which that is so.
    pub(super) fn position(&self, is_it: impl Fn(&Slot) -> bool) -> Option<u32> {
        let found = self.slots.iter().position(|(_, slot)| slot.as_ref().is_some_and(&is_it));
        // There are fewer slots than an index can name.
        found.map(|index| index as u32)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter_map(|(_, slot)| slot.as_ref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().filter_map(|(_, slot)| slot.as_mut())
    }

    /// Frees a slot, whose command `end` has give back what it holds, where it is: it is large. False where there is none.
    #[inline(always)]
    pub(super) fn remove(&mut self, index: u32, end: impl FnOnce(&mut Slot)) -> bool {
        let Some((_, place)) = self.slots.get_mut(index as usize) else { return false };
        let Some(slot) = place else { return false };
        end(slot);
        *place = None;
        if !mutant!(S10_target_slot) {
            self.free.push(index);
        }
        true
    }

    /// The same by what names it, unless its slot was used again since.
    #[inline(always)]
    pub(super) fn remove_named(&mut self, cookie: u64, end: impl FnOnce(&mut Slot)) -> bool {
        match self.named(cookie) {
            Some((index, _)) => self.remove(index, end),
            None => false,
        }
    }

    /// What engine and storage give back with a completion.
    pub(super) fn cookie(&self, index: u32) -> u64 {
        let generation = self.slots.get(index as usize).map_or(0, |(generation, _)| *generation);
        cookie(generation, index)
    }

    /// The index of the slot that a cookie names, unless it was used again since.
    pub(super) fn index_of(&mut self, cookie: u64) -> Option<u32> {
        self.named(cookie).map(|(index, _)| index)
    }
}

fn cookie(generation: u32, index: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::super::super::work::Work;
    use super::super::slot::{Data, Slot};
    use super::Slots;
    use frwr_engine::ConnectionId;

    #[test]
    fn a_cookie_names_its_own_command_and_none_that_has_its_slot_later() {
        let command = || Slot::new(ConnectionId { index: 0, epoch: 1 }, 7, Work::Nothing, Data::None, 0);
        let mut slots = Slots::new(1);
        let first = slots.insert(command()).unwrap();
        let former = slots.cookie(first);
        assert_eq!(slots.index_of(former), Some(first));
        assert!(slots.remove(first, |_| {}));
        assert_eq!(slots.index_of(former), None, "it has ended");
        let second = slots.insert(command()).unwrap();
        assert_eq!(second, first, "there is one slot");
        assert_eq!(slots.index_of(former), None, "of a former command");
        assert_eq!(slots.index_of(slots.cookie(second)), Some(second));
    }
}
