//! Every order of taking and freeing slots of a small slab, with every handle that was ever given out coming late, at every moment.
//!
//! Exhaustive enumeration in plain tests; the domain is small enough without a model checker. The walk goes on from each state by a
//! copy of what the slab knows, so that no order is walked twice.

use super::{BEFORE_FIRST, GENERATION_STEP, Handle, Meta, OCCUPIED, Slab};
use crate::region::{PagePolicy, Region, RegionOptions};

/// Slots of the largest slab.
const SLOTS: u32 = 4;
/// Steps of the longest order.
const STEPS: u32 = 10;

/// A slot's value tells which insert it is of.
type Value = u32;

fn slab(capacity: u32) -> Slab<Value> {
    let options = RegionOptions::new(1 << 16).pages(PagePolicy::Ladder { allow_plain: true });
    Slab::new_in(&mut Region::map(&options).expect("a few pages"), capacity).expect("it fits")
}

/// What a slab knows.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Kept {
    metas: Vec<Meta>,
    values: Vec<Value>,
    len: u32,
    free: u32,
}

impl core::fmt::Debug for Meta {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{}", self.generation, self.next)
    }
}

fn keep(slab: &Slab<Value>) -> Kept {
    let metas: Vec<Meta> = (0..slab.capacity()).map(|index| slab.meta(index).expect("below the capacity")).collect();
    let values = (0..slab.capacity()).map(|index| slab.at(index).map_or(0, |(_, value)| *value)).collect();
    Kept { metas, values, len: slab.len, free: slab.free }
}

fn restore(slab: &mut Slab<Value>, kept: &Kept) {
    for (index, meta) in (0..).zip(&kept.metas) {
        *slab.meta_mut(index).expect("below the capacity") = *meta;
    }
    (slab.len, slab.free) = (kept.len, kept.free);
    for (index, value) in (0..).zip(&kept.values) {
        if let Some((_, place)) = slab.at_mut(index) {
            *place = *value;
        }
    }
}

/// The slab, and what an outsider knows of it: each handle that was given out, and whether its value is still there.
struct Walk {
    slab: Slab<Value>,
    given: Vec<(Handle, bool)>,
    orders: u64,
}

impl Walk {
    /// All that comes late, and what is there: found, replaced and removed if it is there, and else nothing happens.
    fn check(&mut self) {
        let kept = keep(&self.slab);
        assert_eq!(self.slab.len() as usize, self.given.iter().filter(|(_, lives)| *lives).count());
        for (value, (handle, lives)) in (0..).zip(self.given.clone()) {
            let expected = lives.then_some(value);
            assert_eq!(self.slab.get(handle).copied(), expected, "{handle:?} in {kept:?}");
            assert_eq!(self.slab.get_mut(handle).copied(), expected, "{handle:?} in {kept:?}");
            assert_eq!(self.slab.handle_at(handle.index()) == Some(handle), lives);
            assert!(handle.generation() % 2 == 1 && handle.index() < self.slab.capacity());
            if !lives {
                assert_eq!(self.slab.remove(handle), None, "{handle:?} in {kept:?}");
                assert_eq!(keep(&self.slab), kept, "{handle:?} changed something");
            }
        }
        for index in 0..self.slab.capacity() {
            let generation = self.slab.meta(index).map_or(0, |meta| meta.generation);
            for made_up in [0, generation.wrapping_sub(1), generation.wrapping_add(GENERATION_STEP)] {
                assert_eq!(self.slab.remove(Handle::from_parts(index, made_up)), None, "of a value that never was");
            }
        }
        assert_eq!(keep(&self.slab), kept);
    }

    /// Goes on from here by each step.
    fn go(&mut self, steps: u32) {
        self.check();
        if steps == 0 {
            self.orders += 1;
            return;
        }
        let kept = keep(&self.slab);
        if self.insert(&kept) {
            self.go(steps - 1);
            self.given.pop();
        }
        for at in 0..self.given.len() {
            let (handle, lives) = self.given[at];
            if lives {
                restore(&mut self.slab, &kept);
                self.remove(at, handle);
                self.go(steps - 1);
                self.given[at].1 = true;
            }
        }
    }

    /// By each of the ways that there are, which agree.
    fn insert(&mut self, kept: &Kept) -> bool {
        let value = self.given.len() as Value;
        let handles = [
            self.slab.insert(value).ok(),
            self.again(kept, |slab| slab.insert_with(|| value)),
            self.again(kept, |slab| slab.vacant().map(|vacant| vacant.insert(|| value).0)),
        ];
        assert!(handles.iter().all(|handle| *handle == handles[0]), "{handles:?}");
        let Some(handle) = handles[0] else {
            assert_eq!((keep(&self.slab), kept.len), (kept.clone(), self.slab.capacity()), "only a full one says no");
            return false;
        };
        assert!(self.given.iter().all(|(given, _)| *given != handle), "{handle:?} was given out before");
        self.given.push((handle, true));
        true
    }

    fn again<R>(&mut self, kept: &Kept, step: impl FnOnce(&mut Slab<Value>) -> R) -> R {
        restore(&mut self.slab, kept);
        step(&mut self.slab)
    }

    fn remove(&mut self, at: usize, handle: Handle) {
        let before = keep(&self.slab);
        assert!(self.slab.discard_at(handle.index()));
        assert!(!self.slab.discard_at(handle.index()), "once");
        let discarded = keep(&self.slab);
        restore(&mut self.slab, &before);
        assert_eq!(self.slab.remove(handle), Some(at as Value));
        assert_eq!(keep(&self.slab), discarded, "discarding is removing");
        self.given[at].1 = false;
    }
}

/// No order of inserts and removals makes a slab find by a handle what is not its value; from the first generation on, and from those
/// around which generations come round.
#[test]
fn u16_no_handle_of_a_former_value_finds_anything_in_any_order() {
    for (slots, before_last) in (0..=SLOTS).flat_map(|slots| [0, 1, 3].map(|before| (slots, before))) {
        let mut walk = Walk { slab: slab(slots), given: Vec::new(), orders: 0 };
        for index in 0..slots {
            walk.slab.meta_mut(index).expect("below the capacity").generation =
                BEFORE_FIRST.wrapping_sub(before_last * GENERATION_STEP);
        }
        walk.go(STEPS);
        println!("{slots} slots: {} orders of {STEPS} steps", walk.orders);
        assert!(slots == 0 || walk.orders > 0);
    }
}

/// A handle is accepted again when its slot was taken 2^31 times since, and not at any other of the times that are near to that or near
/// to now.
#[test]
fn u16_a_generation_is_used_again_after_all_others() {
    const PERIOD: u64 = 1 << 31;
    const NEAR: u64 = 1 << 16;
    let mut slab = slab(1);
    for first in [1, 3, (1 << 31) - 1, (1 << 31) + 1, u32::MAX - 2, u32::MAX] {
        let handle = Handle::from_parts(0, first);
        for since in (1..NEAR).chain(PERIOD - NEAR..PERIOD + NEAR) {
            // The one before that many times later.
            let before = u64::from(first) + u64::from(GENERATION_STEP) * (since - 1);
            *slab.meta_mut(0).expect("it has one") = Meta { generation: before as u32, next: super::END };
            (slab.free, slab.len) = (0, 0);
            let later = slab.insert(7).expect("free");
            assert_eq!(slab.get(handle).is_some(), since == PERIOD, "{since} inserts after {first}");
            assert!(later.generation() % 2 == 1 && slab.meta(0).is_some_and(|meta| meta.next == OCCUPIED));
        }
    }
}
