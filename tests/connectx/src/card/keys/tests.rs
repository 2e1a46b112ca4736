use super::{
    super::wqe::{Change, Element, Rights},
    ANY_QUEUE_PAIR, Accessor, Denied, Keys, MemoryKey, Range, Right,
};
use zerocopy::FromBytes;

const DOMAIN: u32 = 3;
const MINE: Accessor = Accessor { domain: DOMAIN, queue_pair: 0x123 };
const ANOTHER: Accessor = Accessor { queue_pair: 0x124, ..MINE };
const FOREIGN: Accessor = Accessor { domain: 4, ..MINE };
const START: u64 = 0x5_0000;

fn element(bytes: u32, key: u32, address: u64) -> Element {
    let all = [&bytes.to_be_bytes()[..], &key.to_be_bytes(), &address.to_be_bytes()].concat();
    Element::read_from_bytes(&all).expect("16 bytes")
}

fn region(keys: &mut Keys, address: u64, access: u32) -> u32 {
    keys.create(MemoryKey::Region { domain: DOMAIN, address, length: 8192, access, zero_based: false }, 7)
}

/// A list of 4096 and 1000 bytes in two regions, live for one queue pair and for remote reads.
fn live_list(keys: &mut Keys) -> u32 {
    let (first, second) = (region(keys, 0x1_0000, 0), region(keys, 0x2_0000, 0));
    let made = keys.create(MemoryKey::List { domain: DOMAIN, entries: 4, remote_invalidation: true }, 0x10);
    let change = Change {
        free: Some(false),
        low_byte: Some(0x11),
        queue_pair: Some(MINE.queue_pair),
        access: Some(Rights { remote_read: true, ..Rights::default() }),
        start: Some(START),
        length: Some(5096),
        list: Some(vec![element(4096, first, 0x1_1000), element(1000, second, 0x2_0010)]),
        check_free: true,
        check_queue_pair: false,
    };
    keys.change(MINE, made, &change).expect("free");
    made & !0xff | 0x11
}

#[test]
fn a_list_leads_to_the_memory_of_its_pieces() {
    let mut keys = Keys::default();
    let key = live_list(&mut keys);
    let reaches = |offset, bytes| keys.translate(MINE, key, START + offset, bytes, Right::RemoteRead);
    assert_eq!(reaches(0, 4096), Ok(vec![Range { address: 0x1_1000, bytes: 4096 }]));
    let both = vec![Range { address: 0x1_1ff0, bytes: 16 }, Range { address: 0x2_0010, bytes: 100 }];
    assert_eq!(reaches(4080, 116), Ok(both));
    assert_eq!(reaches(5095, 1), Ok(vec![Range { address: 0x2_0010 + 999, bytes: 1 }]));
    for (offset, bytes) in [(5096, 1), (0, 5097), (5095, 2), (u64::MAX, 1), (0, u64::MAX)] {
        let address = START.wrapping_add(offset);
        assert_eq!(keys.translate(MINE, key, address, bytes, Right::RemoteRead), Err(Denied), "{offset} {bytes}");
    }
}

#[test]
fn a_key_is_one_right_for_one_queue_pair_until_it_dies() {
    let mut keys = Keys::default();
    let key = live_list(&mut keys);
    let may = |keys: &Keys, who, key, right| keys.translate(who, key, START, 8, right).is_ok();
    assert!(may(&keys, MINE, key, Right::RemoteRead));
    assert!(!may(&keys, MINE, key, Right::RemoteWrite));
    assert!(!may(&keys, MINE, key ^ 1, Right::RemoteRead), "another low byte");
    assert!(!may(&keys, ANOTHER, key, Right::RemoteRead) && !may(&keys, FOREIGN, key, Right::RemoteRead));
    assert_eq!(keys.invalidate(ANOTHER, key), Err(Denied));
    assert_eq!(keys.invalidate(MINE, key ^ 1), Err(Denied));
    assert_eq!(keys.invalidate(MINE, key), Ok(()));
    assert!(!may(&keys, MINE, key, Right::RemoteRead));
    assert_eq!(keys.invalidate(MINE, key), Err(Denied), "it is dead");
}

#[test]
fn a_live_window_is_not_bound_again() {
    let mut keys = Keys::default();
    let base = region(&mut keys, 0x1_0000, 0);
    let window = keys.create(MemoryKey::Window { domain: DOMAIN }, 0);
    let change = Change {
        free: Some(false),
        queue_pair: Some(ANY_QUEUE_PAIR),
        list: Some(vec![element(8, base, 0x1_0000)]),
        check_free: true,
        ..Change::default()
    };
    assert_eq!(keys.change(MINE, window, &change), Ok(()));
    assert_eq!(keys.change(MINE, window, &change), Err(Denied));
    assert_eq!(keys.change(FOREIGN, window, &Change::default()), Err(Denied));
    assert_eq!(keys.change(MINE, base, &Change::default()), Err(Denied), "memory is no work request's to change");
    let long = Change { list: Some(vec![element(8, base, 0x1_0000); 5]), ..Change::default() };
    assert_eq!(keys.change(MINE, window, &long), Err(Denied), "a window has room for one piece and its padding");
}

#[test]
fn memory_that_went_is_not_reached_through_a_live_list() {
    let mut keys = Keys::default();
    let key = live_list(&mut keys);
    let of_the_first_piece = 1 << 8 | 7;
    keys.destroy(of_the_first_piece).expect("it is there");
    assert_eq!(keys.translate(MINE, key, START, 8, Right::RemoteRead), Err(Denied));
    assert!(keys.translate(MINE, key, START + 4096, 8, Right::RemoteRead).is_ok());
}
