//! Slabs: against a map, stale handles, and every value dropped once.

mod common;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use common::region;
use frwr_mempool::region::CarveError;
use frwr_mempool::slab::MAX_CAPACITY;
use frwr_mempool::{Full, Handle, Slab};
use proptest::prelude::*;

fn slab<T>(capacity: u32) -> Slab<T> {
    Slab::new_in(&mut region(Slab::<T>::bytes_needed(capacity).unwrap()), capacity).unwrap()
}

struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_stale_handle_finds_nothing() {
    let mut slab = slab(2);
    let first = slab.insert(1).unwrap();
    assert_eq!(slab.remove(first), Some(1));
    let second = slab.insert(2).unwrap();
    assert_eq!(first.index(), second.index());
    assert_ne!(first.generation(), second.generation());
    assert_eq!(slab.get(first), None);
    assert_eq!(slab.get_mut(first), None);
    assert_eq!(slab.remove(first), None);
    assert_eq!(slab.get(Handle::from_parts(second.index(), second.generation())), Some(&2));
}

#[test]
fn made_up_handles_find_nothing() {
    let mut slab = slab(4);
    let handle = slab.insert(1).unwrap();
    for (index, generation) in [(handle.index(), 0), (1, 0), (1, 1), (4, 1), (u32::MAX, u32::MAX), (u32::MAX, 0)] {
        let handle = Handle::from_parts(index, generation);
        assert_eq!(slab.get(handle), None);
        assert_eq!(slab.remove(handle), None);
    }
    assert_eq!(slab.len(), 1);
    assert!([1, 4, u32::MAX].iter().all(|index| slab.at(*index).is_none() && slab.handle_at(*index).is_none()));
}

#[test]
fn a_full_slab_hands_the_value_back() {
    let mut slab = slab(1);
    let handle = slab.insert(1).unwrap();
    assert_eq!(slab.insert(2), Err(Full(2)));
    slab.remove(handle);
    assert!(slab.insert(3).is_ok());
    let mut empty = Slab::new_in(&mut region(1), 0).unwrap();
    assert_eq!(empty.insert(1), Err(Full(1)));
}

#[test]
fn a_slot_freed_last_is_taken_first() {
    let mut slab = slab(4);
    let handles: Vec<Handle> = (0..4).map(|value| slab.insert(value).unwrap()).collect();
    for freed in [2, 0, 3] {
        slab.remove(handles[freed]);
    }
    let taken: Vec<u32> = (0..3).map(|value| slab.insert(value).unwrap().index()).collect();
    assert_eq!(taken, [3, 0, 2]);
}

#[test]
fn values_of_a_cache_line_start_one_and_odd_alignments_are_kept() {
    #[repr(align(256))]
    struct Wide(u8);

    let mut region = region(1 << 16);
    drop(region.carve(1, 1).unwrap());
    let mut lines = Slab::new_in(&mut region, 7).unwrap();
    let mut wide = Slab::new_in(&mut region, 7).unwrap();
    for value in 0..7 {
        let handle = lines.insert([value; 64]).unwrap();
        assert_eq!(lines.get(handle).unwrap().as_ptr() as usize % 64, 0);
        let handle = wide.insert(Wide(value)).unwrap();
        assert_eq!(std::ptr::from_ref(wide.get(handle).unwrap()) as usize % 256, 0);
    }
    assert!(lines.iter().zip(wide.iter()).all(|((_, line), (_, wide))| line[63] == wide.0));
}

#[test]
fn values_without_size_work_too() {
    let mut slab = slab::<()>(3);
    let handle = slab.insert(()).unwrap();
    assert_eq!((slab.get(handle), slab.len()), (Some(&()), 1));
    assert_eq!(slab.remove(handle), Some(()));
}

#[test]
fn every_value_is_dropped_once_and_the_slab_outlives_its_region() {
    let drops = Rc::new(Cell::new(0));
    let mut slab = slab(4);
    let first = slab.insert(Counted(drops.clone())).unwrap();
    for _ in 0..2 {
        slab.insert(Counted(drops.clone())).unwrap();
    }
    drop(slab.remove(first));
    assert_eq!(drops.get(), 1);
    drop(slab);
    assert_eq!(drops.get(), 3);
}

#[test]
fn a_slab_too_large_is_refused_and_takes_nothing() {
    let mut region = region(1 << 16);
    let before = region.remaining();
    assert!(matches!(Slab::<u64>::new_in(&mut region, 1 << 16).unwrap_err(), CarveError::TooFewBytes { .. }));
    let too_many = CarveError::Overflow { count: u32::MAX, size: 8 };
    assert_eq!(Slab::<u64>::new_in(&mut region, u32::MAX).unwrap_err(), too_many);
    assert!(Slab::<[u64; 1 << 40]>::new_in(&mut region, MAX_CAPACITY).is_err());
    assert_eq!(region.remaining(), before);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_slab_equals_a_map(capacity in 0..20_u32, steps in prop::collection::vec((0..4_u8, 0..64_usize), 1..200)) {
        let mut slab = slab::<Box<usize>>(capacity);
        let mut model: HashMap<Handle, usize> = HashMap::new();
        let mut seen: Vec<Handle> = Vec::new();
        for (step, (kind, pick)) in steps.into_iter().enumerate() {
            let known = if seen.is_empty() { Handle::from_parts(0, 0) } else { seen[pick % seen.len()] };
            match kind {
                0 | 1 => match slab.insert(Box::new(step)) {
                    Ok(handle) => {
                        prop_assert!(!seen.contains(&handle), "{:?} was given out before", handle);
                        seen.push(handle);
                        model.insert(handle, step);
                    }
                    Err(Full(value)) => prop_assert_eq!((model.len() as u32, *value), (capacity, step)),
                },
                2 => prop_assert_eq!(slab.remove(known).map(|value| *value), model.remove(&known)),
                _ => {
                    let value = slab.get_mut(known).map(|value| core::mem::replace(&mut **value, step));
                    prop_assert_eq!(value, model.get_mut(&known).map(|value| core::mem::replace(value, step)));
                }
            }
            prop_assert_eq!(slab.len() as usize, model.len());
            for handle in &seen {
                prop_assert_eq!(slab.get(*handle).map(|value| &**value), model.get(handle));
                let current = slab.handle_at(handle.index());
                prop_assert_eq!(current == Some(*handle), model.contains_key(handle));
                let found = slab.at_mut(handle.index()).map(|(handle, value)| (handle, **value));
                prop_assert_eq!(found.map(|found| found.0), current);
            }
        }
        let mut visited = HashMap::new();
        slab.iter().for_each(|(handle, value)| assert_eq!(visited.insert(handle, **value), None));
        prop_assert_eq!(visited, model);
        prop_assert_eq!(slab.iter().count(), slab.len() as usize);
    }
}
