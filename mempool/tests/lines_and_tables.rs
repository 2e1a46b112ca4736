//! Tables, slots that are dropped where they are, and lines of device memory.

mod common;

use frwr_mempool::{
    DeviceMemory, Region, Slab,
    device_memory::LINE,
    slab::{Ring, Table},
};
use std::rc::Rc;

fn region() -> Region {
    common::region(1 << 16)
}

#[test]
fn a_table_has_all_its_values_from_the_start_and_drops_each_once() {
    let mut region = region();
    let counted = Rc::new(());
    let mut table = Table::new_in(&mut region, 5, |_| Rc::clone(&counted)).unwrap();
    assert_eq!((table.len(), Rc::strong_count(&counted)), (5, 6));
    assert!(table.get(5).is_none());
    *table.get_mut(4).unwrap() = Rc::new(());
    assert_eq!(Rc::strong_count(&counted), 5);
    drop(table);
    assert_eq!(Rc::strong_count(&counted), 1);
    let made = Table::of(&mut region, vec![Rc::clone(&counted); 3]).unwrap();
    assert_eq!((made.len(), Rc::strong_count(&counted)), (3, 4));
    drop(made);
    assert_eq!(Rc::strong_count(&counted), 1);
    assert!(Table::of(&mut region, vec![[Rc::clone(&counted); 1]; 1 << 14]).is_err(), "more than the region has");
    assert_eq!(Rc::strong_count(&counted), 1, "what finds no room is dropped");
    assert!(Table::new_in(&mut region, usize::MAX, |_| 0_u64).is_err(), "more than the region has");
    assert!(Table::new_in(&mut region, 0, |_| 0_u64).unwrap().is_empty());
}

#[test]
fn a_slot_that_was_discarded_is_free_and_its_handle_finds_nothing() {
    let mut region = region();
    let counted = Rc::new(());
    let mut slab = Slab::new_in(&mut region, 2).unwrap();
    let (handle, value) = slab.insert_new(|| Rc::clone(&counted)).unwrap();
    assert_eq!(Rc::strong_count(value), 2);
    assert!(slab.discard_at(handle.index()));
    assert_eq!((slab.len(), Rc::strong_count(&counted)), (0, 1));
    assert!(!slab.discard_at(handle.index()), "twice");
    assert!(!slab.discard_at(9), "no such slot");
    assert_eq!(slab.get(handle), None);
    let again = slab.insert_with(|| Rc::clone(&counted)).unwrap();
    assert_eq!((again.index(), slab.get(handle)), (handle.index(), None));
    let free = slab.vacant().unwrap().index();
    assert_eq!((slab.len(), slab.handle_at(free)), (1, None), "one that was only looked at stays free");
    let vacant = slab.vacant().unwrap();
    let (handle, value) = vacant.insert(|| Rc::clone(&counted));
    assert_eq!((handle.index(), Rc::strong_count(value), slab.len()), (free, 3, 2));
    assert!(slab.vacant().is_none(), "all slots are taken");
    assert!(slab.insert_new(|| Rc::clone(&counted)).is_none());
}

#[test]
fn entries_of_a_device_table_are_lines_inside_of_the_memory_only() {
    let memory = region().carve(4 * LINE, LINE).unwrap().into_device_memory();
    let line: [u8; LINE] = core::array::from_fn(|at| at as u8);
    let table = memory.table(0, LINE, 4);
    assert_eq!((table.len(), table.address(3)), (4, memory.address() + 3 * LINE as u64));
    assert!(table.write_line(1, &line));
    let mut bytes = [0; 4 * LINE];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes[LINE..2 * LINE], line);
    assert!(bytes[..LINE].iter().chain(&bytes[2 * LINE..]).all(|byte| *byte == 0));
    assert_eq!(table.read_line(1), Some(line));
    assert!(table.write_line(3, &line), "the last one");
    for index in [4, 5, u32::MAX] {
        assert_eq!((table.read_line(index), table.write_line(index, &line)), (None, false), "{index}");
        assert_eq!(table.read_front::<2>(index), None, "{index}");
    }
    let bytes: Vec<u8> = table.read_front::<2>(1).unwrap().concat();
    assert_eq!(bytes, line[..16]);
    // One that begins within a line, with entries of a line and a word, of which the memory has two.
    let table = memory.table(LINE - 8, LINE + 8, 9);
    assert_eq!(
        (table.len(), table.read_line(1)),
        (2, Some(core::array::from_fn(|at| bytes_at(&memory, 2 * LINE + at))))
    );
}

fn bytes_at(memory: &DeviceMemory, offset: usize) -> u8 {
    let mut byte = [0];
    memory.read(offset, &mut byte).unwrap();
    byte[0]
}

#[test]
fn a_device_table_has_no_entry_that_it_could_not_copy_whole() {
    let memory = region().carve(4 * LINE, LINE).unwrap().into_device_memory();
    for (offset, stride, len, entries) in [
        (0, LINE, 3, 3),
        (0, LINE, 9, 4),
        (0, 2 * LINE, 9, 2),
        (8, LINE, 9, 3),
        (4 * LINE, LINE, 1, 0),
        (5 * LINE, LINE, 1, 0),
        (usize::MAX - 7, LINE, 1, 0),
        (1, LINE, 1, 0),
        (0, LINE + 4, 1, 0),
        (0, LINE - 8, 1, 0),
        (0, 0, 1, 0),
        (0, usize::MAX - 7, 1, 0),
        (0, LINE, 0, 0),
    ] {
        let table = memory.table(offset, stride, len);
        assert_eq!((table.len(), table.is_empty()), (entries, entries == 0), "{offset} {stride} {len}");
        assert_eq!(table.read_line(entries), None);
    }
}

#[test]
fn a_ring_keeps_the_newest_value_of_each_place_at_any_position() {
    for entries in [0, 1, 3, 4, 5] {
        let mut ring = Ring::new_in(&mut region(), entries, 7_u64).unwrap();
        let places = ring.capacity() as u64;
        assert_eq!(places, entries.max(1).next_power_of_two() as u64);
        assert!((0..places).all(|position| ring.at(position) == 7));
        for first in [0, 1, u64::MAX - places, u64::MAX - 1] {
            for at in 0..2 * places {
                ring.set(first.wrapping_add(at), at);
            }
            for at in places..2 * places {
                assert_eq!(ring.at(first.wrapping_add(at)), at);
                assert_eq!(ring.as_slice()[(first.wrapping_add(at) % places) as usize], at);
            }
        }
        for first in [0, 3, u64::MAX - 1, u64::MAX] {
            ring.set_run(first, [1, 2].into_iter());
            let expected = if places == 1 { 2 } else { 1 };
            assert_eq!([ring.at(first), ring.at(first.wrapping_add(1))], [expected, 2]);
        }
        ring.fill(9);
        assert!(ring.as_slice().iter().all(|value| *value == 9));
    }
}

/// Whoever adds up what is needed gets by with exactly that, and no two blocks share a line.
#[test]
fn tables_and_rings_take_what_they_say_and_start_lines_of_their_own() {
    let mut region = region();
    let mut ends = region.address();
    for entries in [0, 1, 3, 16, 17] {
        let before = region.remaining();
        let table = Table::new_in(&mut region, entries, |_| 7_u32).unwrap();
        assert_eq!(before - region.remaining(), Table::<u32>::bytes_needed(entries).unwrap(), "{entries} in a table");
        assert!(table.as_ptr().addr() as u64 >= ends && table.as_ptr().addr().is_multiple_of(LINE));
        ends = region.address() + (region.len() - region.remaining()) as u64;
        let before = region.remaining();
        let ring = Ring::new_in(&mut region, entries, 7_u32).unwrap();
        assert_eq!(before - region.remaining(), Ring::<u32>::bytes_needed(entries).unwrap(), "{entries} in a ring");
        assert!(ring.as_slice().as_ptr().addr() as u64 >= ends && ring.as_slice().as_ptr().addr().is_multiple_of(LINE));
        ends = region.address() + (region.len() - region.remaining()) as u64;
    }
    assert_eq!(Table::<u64>::bytes_needed(usize::MAX), None);
    assert_eq!(Ring::<u8>::bytes_needed(usize::MAX), None);
    let remaining = region.remaining();
    assert!(
        Ring::new_in(&mut region, remaining, 0_u16).is_err() && Ring::new_in(&mut region, usize::MAX, 0_u8).is_err()
    );
    assert_eq!(region.remaining(), remaining, "unchanged");
}
