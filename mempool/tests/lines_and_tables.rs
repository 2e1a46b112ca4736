//! Tables, slots that are dropped where they are, and lines of device memory.

use frwr_mempool::{
    Region, Slab,
    device_memory::LINE,
    region::{PagePolicy, RegionOptions},
    slab::Table,
};
use std::rc::Rc;

fn region() -> Region {
    Region::map(&RegionOptions::new(1 << 16).pages(PagePolicy::Ladder { allow_plain: true })).unwrap()
}

#[test]
fn a_table_has_all_its_values_from_the_start_and_drops_each_once() {
    let mut region = region();
    let counted = Rc::new(());
    let mut table = Table::new_in(&mut region, 5, || Rc::clone(&counted)).unwrap();
    assert_eq!((table.len(), Rc::strong_count(&counted)), (5, 6));
    assert!(table.get(5).is_none());
    *table.get_mut(4).unwrap() = Rc::new(());
    assert_eq!(Rc::strong_count(&counted), 5);
    drop(table);
    assert_eq!(Rc::strong_count(&counted), 1);
    assert!(Table::new_in(&mut region, u32::MAX, || 0_u64).is_err(), "more than the region has");
    assert!(Table::new_in(&mut region, 0, || 0_u64).unwrap().is_empty());
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
    assert!(slab.insert_new(|| Rc::clone(&counted)).is_some());
    assert!(slab.insert_new(|| Rc::clone(&counted)).is_none(), "all slots are taken");
}

#[test]
fn lines_are_copied_whole_inside_of_the_memory_only() {
    let memory = region().carve(4 * LINE, LINE).unwrap().into_device_memory();
    let line: [u8; LINE] = core::array::from_fn(|at| at as u8);
    assert!(memory.write_line(LINE, &line));
    let mut bytes = [0; 4 * LINE];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes[LINE..2 * LINE], line);
    assert!(bytes[..LINE].iter().chain(&bytes[2 * LINE..]).all(|byte| *byte == 0));
    assert_eq!(memory.read_line(LINE), Some(line));
    assert!(memory.write_line(3 * LINE, &line), "the last one");
    for offset in [1, LINE + 4, 3 * LINE + 8, 4 * LINE, usize::MAX, usize::MAX - LINE + 1] {
        assert_eq!((memory.read_line(offset), memory.write_line(offset, &line)), (None, false), "{offset}");
    }
    let short = memory.slice(0, LINE - 8).unwrap();
    assert_eq!((short.read_line(0), short.write_line(0, &line)), (None, false));
}
