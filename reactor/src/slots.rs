//! All pollers of a reactor: those that are polled in every iteration apart from the others, so that it looks at no others.

use crate::poller::MAX_POLLERS;
use crate::slot::Slot;

/// Where a slot is.
#[derive(Clone, Copy)]
enum Place {
    Busy(usize),
    Other(usize),
}

/// The slots of a reactor. Their numbers are the order of registration, without gaps.
pub(crate) struct Slots<C> {
    /// Those that are polled in every iteration, in the order of registration.
    busy: Vec<Slot<C>>,
    /// Timed and paused ones, likewise.
    others: Vec<Slot<C>>,
    /// By number.
    places: Vec<Place>,
    /// All of them for a moment, while they are put where they belong: handles pause and resume pollers at any time, and that
    /// does not allocate.
    moving: Vec<Slot<C>>,
}

impl<C> Slots<C> {
    pub(crate) fn new() -> Self {
        Self {
            busy: Vec::with_capacity(MAX_POLLERS),
            others: Vec::with_capacity(MAX_POLLERS),
            places: Vec::with_capacity(MAX_POLLERS),
            moving: Vec::with_capacity(MAX_POLLERS),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Those that are polled in every iteration, in the order of registration.
    #[inline(always)]
    pub(crate) fn busy_mut(&mut self) -> &mut [Slot<C>] {
        &mut self.busy
    }

    /// The number of the first of them.
    pub(crate) fn first_busy(&self) -> Option<usize> {
        self.busy.first().map(|slot| slot.number)
    }

    /// Timed and paused ones.
    pub(crate) fn others(&self) -> &[Slot<C>] {
        &self.others
    }

    /// The same.
    pub(crate) fn others_mut(&mut self) -> &mut [Slot<C>] {
        &mut self.others
    }

    /// All, in the order of registration.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<C>> + Clone {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Slot<C>> {
        match *self.places.get(number)? {
            Place::Busy(at) => self.busy.get(at),
            Place::Other(at) => self.others.get(at),
        }
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Slot<C>> {
        match *self.places.get(number)? {
            Place::Busy(at) => self.busy.get_mut(at),
            Place::Other(at) => self.others.get_mut(at),
        }
    }

    /// All, in no order.
    pub(crate) fn for_each_mut(&mut self, each: impl FnMut(&mut Slot<C>)) {
        self.busy.iter_mut().chain(&mut self.others).for_each(each);
    }

    /// Charges those that found work with a long iteration that is over. Returns the one that it was, where it was one alone.
    pub(crate) fn charge_long(&mut self) -> Option<usize> {
        let (mut worked, mut last) = (0, None);
        self.for_each_mut(|slot| {
            if slot.charge_long() {
                (worked, last) = (worked + 1, Some(slot.number));
            }
        });
        last.filter(|_| worked == 1)
    }

    /// Adds one behind all others.
    pub(crate) fn push(&mut self, mut slot: Slot<C>) {
        slot.number = self.len();
        let (slots, place) = if slot.busy {
            let place = Place::Busy(self.busy.len());
            (&mut self.busy, place)
        } else {
            let place = Place::Other(self.others.len());
            (&mut self.others, place)
        };
        slots.push(slot);
        self.places.push(place);
    }

    /// Does what handles of pollers wish, from the iteration of this number on. Returns how many were dropped.
    pub(crate) fn follow(&mut self, iteration: u64) -> usize {
        let before = self.len();
        let mut moved = false;
        for slots in [&mut self.busy, &mut self.others] {
            slots.retain_mut(|slot| {
                let was_busy = slot.busy;
                let stays = slot.follow(iteration);
                moved |= slot.busy != was_busy || !stays;
                stays
            });
        }
        if moved {
            self.arrange();
        }
        before - self.len()
    }

    /// Puts each where it belongs.
    #[cold]
    fn arrange(&mut self) {
        let mut all = core::mem::take(&mut self.moving);
        all.extend(self.busy.drain(..).chain(self.others.drain(..)));
        all.sort_unstable_by_key(|slot| slot.number);
        self.places.clear();
        all.drain(..).for_each(|slot| self.push(slot));
        self.moving = all;
    }
}
