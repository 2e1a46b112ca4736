//! A slab, beside a map that knows what has to be in it.

use crate::script::Script;
use frwr_mempool::slab::{Handle, Slab};
use frwr_mempool::{PagePolicy, PageSize, Region, RegionOptions};
use std::collections::HashMap;

/// Slots: few, so that each is used again soon.
const CAPACITY: u32 = 8;
/// Handles that are kept although their values are gone.
const STALE: usize = 64;

/// A value that says when it is dropped twice, to whoever looks for leaks and frees.
type Value = Box<u64>;

/// Operations, one or two bytes each.
pub(crate) fn slab(bytes: &[u8]) {
    let room = Slab::<Value>::bytes_needed(CAPACITY).expect("a few bytes");
    let options = RegionOptions::new(room).pages(PagePolicy::Exactly(PageSize::Plain));
    let mut region = Region::map(&options).expect("a page");
    let mut slab = Slab::new_in(&mut region, CAPACITY).expect("the region was made for it");
    let (mut model, mut stale, mut script) = (HashMap::new(), Vec::new(), Script::new(bytes));
    while !script.is_over() {
        step(&mut slab, &mut model, &mut stale, &mut script);
        assert_eq!(slab.len() as usize, model.len());
        assert_eq!(slab.is_empty(), model.is_empty());
        stale.truncate(STALE);
    }
    let mut left: Vec<_> = slab.iter().map(|(handle, value)| (handle, **value)).collect();
    left.sort_by_key(|(handle, _)| handle.index());
    assert_eq!(left.len(), model.len());
    assert!(left.iter().all(|(handle, value)| model.get(handle) == Some(value)));
}

fn step(slab: &mut Slab<Value>, model: &mut HashMap<Handle, u64>, stale: &mut Vec<Handle>, script: &mut Script<'_>) {
    let chosen = |script: &mut Script<'_>, slab: &Slab<Value>| slab.handle_at(u32::from(script.below(10)));
    match script.below(6) {
        0 | 1 => {
            let value = script.next::<u64>();
            match slab.insert(Box::new(value)) {
                Ok(handle) => assert_eq!(model.insert(handle, value), None, "a handle comes once"),
                Err(refused) => assert!(*refused.0 == value && model.len() == CAPACITY as usize),
            }
        }
        2 => {
            let Some(handle) = chosen(script, slab) else { return };
            let expected = model.remove(&handle);
            assert_eq!(slab.remove(handle).map(|value| *value), expected);
            assert!(expected.is_some());
            stale.insert(0, handle);
        }
        3 => {
            let index = u32::from(script.below(10));
            let handle = slab.handle_at(index);
            assert_eq!(slab.discard_at(index), handle.is_some());
            if let Some(handle) = handle {
                assert!(model.remove(&handle).is_some());
                stale.insert(0, handle);
            }
        }
        4 => {
            let Some(handle) = chosen(script, slab) else { return };
            assert_eq!(slab.get(handle).map(|value| **value), model.get(&handle).copied());
            assert_eq!(slab.at(handle.index()).map(|(handle, _)| handle), Some(handle));
        }
        _ => {
            let Some(&handle) = stale.get(usize::from(script.next::<u8>())) else { return };
            assert!(slab.get(handle).is_none() && slab.remove(handle).is_none(), "what is gone stays gone");
        }
    }
}
