use super::{BLOCK, Change, Control, Element, Local, Rights, UNIT, Work, flag, mask, opcode, parse};

/// Where things stand in a registration, from its first byte.
const CONTROL_FLAGS: usize = 16;
const CONTROL_OCTOWORDS: usize = 20;
const CONTROL_MASK: usize = 24;
const CONTEXT: usize = 64;
const LIST: usize = 128;

/// All that a registration by libmlx5 changes.
const ALL: u64 = mask::LENGTH | mask::START | mask::LOW_BYTE | mask::QUEUE_PAIR | mask::ACCESS | mask::FREE;

/// A work request of so many bytes: its control segment, and zeroes.
fn work_request(opcode: u8, bytes: usize, immediate: u32) -> Vec<u8> {
    let mut all = vec![0; bytes];
    all[..4].copy_from_slice(&(7u32 << 8 | u32::from(opcode)).to_be_bytes());
    all[4..8].copy_from_slice(&(0x123u32 << 8 | (bytes / UNIT) as u32).to_be_bytes());
    all[12..16].copy_from_slice(&immediate.to_be_bytes());
    all
}

fn put(all: &mut [u8], at: usize, bytes: &[u8]) {
    all[at..at + bytes.len()].copy_from_slice(bytes);
}

fn element(bytes: u32, key: u32, address: u64) -> [u8; UNIT] {
    let mut element = [0; UNIT];
    put(&mut element, 0, &bytes.to_be_bytes());
    put(&mut element, 4, &key.to_be_bytes());
    put(&mut element, 8, &address.to_be_bytes());
    element
}

/// A key of two pieces of 4096 bytes, padded as the card wants it.
fn registration() -> Vec<u8> {
    let mut all = work_request(opcode::REGISTER, LIST + 4 * UNIT, 0x0500);
    all[CONTROL_FLAGS] = flag::INLINE | flag::CHECK_FREE;
    put(&mut all, CONTROL_OCTOWORDS, &4u16.to_be_bytes());
    put(&mut all, CONTROL_MASK, &ALL.to_be_bytes());
    // Not free; remote reads; queue pair and low byte; start and length.
    all[CONTEXT + 2] = 1 << 4 | 1 << 2;
    put(&mut all, CONTEXT + 4, &(0x123u32 << 8 | 0x42).to_be_bytes());
    put(&mut all, CONTEXT + 16, &0x1000u64.to_be_bytes());
    put(&mut all, CONTEXT + 24, &8192u64.to_be_bytes());
    put(&mut all, LIST, &element(4096, 0x0901, 0x7000));
    put(&mut all, LIST + UNIT, &element(4096, 0x0a01, 0x1_0000));
    all
}

fn parsed(all: &[u8]) -> Result<Work, &'static str> {
    let mut first = [0; BLOCK];
    let count = all.len().min(BLOCK);
    first[..count].copy_from_slice(&all[..count]);
    parse(&Control::parse(&first)?, all)
}

#[test]
fn a_control_segment_says_where_it_stands_and_how_long_it_is() {
    let mut block = [0; BLOCK];
    put(&mut block, 0, &(0xfffe_u32 << 8 | u32::from(opcode::SEND)).to_be_bytes());
    put(&mut block, 4, &(0x00ab_cdef_u32 << 8 | 5).to_be_bytes());
    block[11] = 2 << 2;
    put(&mut block, 12, &0x0102_0304_u32.to_be_bytes());
    let control = Control::parse(&block).expect("well formed");
    assert_eq!((control.position, control.opcode, control.queue_pair), (0xfffe, opcode::SEND, 0x00ab_cdef));
    assert_eq!((control.bytes, control.blocks(), control.signalled), (80, 2, true));
    assert_eq!(control.immediate, 0x0102_0304);
    for (at, value) in [(7, 0), (7, 64), (0, 1)] {
        let mut wrong = block;
        wrong[at] = value;
        assert!(Control::parse(&wrong).is_err(), "byte {at}: {value}");
    }
}

#[test]
fn a_registration_is_read_as_libmlx5_writes_it() {
    let Ok(Work::Register { key, change }) = parsed(&registration()) else { panic!("a registration") };
    assert_eq!(key, 0x0500);
    let list = change.list.clone().expect("a list");
    let read: Vec<_> = list.iter().map(|piece| (piece.bytes(), piece.key(), piece.address())).collect();
    assert_eq!(read, [(4096, 0x0901, 0x7000), (4096, 0x0a01, 0x1_0000), (0, 0, 0), (0, 0, 0)]);
    let expected = Change {
        free: Some(false),
        low_byte: Some(0x42),
        queue_pair: Some(0x123),
        access: Some(Rights { remote_read: true, remote_write: false, local_write: false }),
        start: Some(0x1000),
        length: Some(8192),
        list: Some(list),
        check_free: true,
        check_queue_pair: false,
    };
    assert_eq!(change, expected);
}

#[test]
fn what_the_mask_leaves_out_is_not_changed() {
    let mut all = work_request(opcode::REGISTER, LIST, 0x0500);
    all[CONTROL_FLAGS] = flag::CHECK_QUEUE_PAIR;
    put(&mut all, CONTROL_MASK, &mask::FREE.to_be_bytes());
    all[CONTEXT] = 1 << 6;
    // Left over, and not looked at.
    all[CONTEXT + 2] = 0xff;
    let change = Change { free: Some(true), check_queue_pair: true, ..Change::default() };
    assert_eq!(parsed(&all), Ok(Work::Register { key: 0x0500, change }));
}

#[test]
fn one_wrong_thing_in_a_registration_is_found() {
    type Break = fn(&mut Vec<u8>);
    let table: [(&str, Break); 11] = [
        ("reserved bytes of its control", |all| all[CONTROL_FLAGS + 1] = 1),
        ("reserved bytes behind the mask", |all| all[CONTROL_MASK + 8] = 1),
        ("a flag that nobody knows", |all| all[CONTROL_FLAGS] |= 1),
        ("a mask that nobody knows", |all| put(all, CONTROL_MASK, &(ALL | 1 << 40).to_be_bytes())),
        ("a signature", |all| put(all, CONTROL_OCTOWORDS + 2, &4u16.to_be_bytes())),
        ("a list that is not inline", |all| all[CONTROL_FLAGS] &= !flag::INLINE),
        ("a list of another length than is said", |all| put(all, CONTROL_OCTOWORDS, &8u16.to_be_bytes())),
        ("a list of no length", |all| put(all, CONTROL_OCTOWORDS, &0u16.to_be_bytes())),
        ("half of the rights", |all| put(all, CONTROL_MASK, &(ALL & !mask::REMOTE_READ).to_be_bytes())),
        ("no room for the key's context", |all| all[7] = (LIST / UNIT) as u8 - 1),
        ("more bytes than there are", |all| all[7] += 1),
    ];
    for (what, breaks) in table {
        let mut all = registration();
        breaks(&mut all);
        assert!(parsed(&all).is_err(), "{what}");
    }
}

#[test]
fn data_is_inline_or_in_elements() {
    let mut all = work_request(opcode::SEND, 48, 0);
    put(&mut all, 16, &element(100, 0x0901, 0x7000));
    put(&mut all, 32, &element(28, 0x0901, 0x8000));
    let Ok(Work::Send { local: Local::Elements(elements), invalidate: None }) = parsed(&all) else { panic!("a SEND") };
    assert_eq!(elements.iter().map(Element::bytes).collect::<Vec<_>>(), [100, 28]);

    let mut all = work_request(opcode::SEND_INVALIDATE, 48, 0x0542);
    put(&mut all, 16, &(1u32 << 31 | 20).to_be_bytes());
    put(&mut all, 20, &[9; 20]);
    let expected = Work::Send { local: Local::Inline(vec![9; 20]), invalidate: Some(0x0542) };
    assert_eq!(parsed(&all), Ok(expected));

    // Inline data that is said to be longer than its work request.
    put(&mut all, 16, &(1u32 << 31 | 29).to_be_bytes());
    assert!(parsed(&all).is_err());
}

#[test]
fn remote_operations_have_an_address_and_a_key() {
    let mut all = work_request(opcode::READ, 48, 0);
    put(&mut all, 16, &0x9000u64.to_be_bytes());
    put(&mut all, 24, &0x0642u32.to_be_bytes());
    put(&mut all, 32, &element(64, 0x0901, 0x7000));
    let Ok(Work::Read { local, key: 0x0642, address: 0x9000 }) = parsed(&all) else { panic!("an RDMA READ") };
    assert_eq!(local.len(), 1);
    let mut inline = all.clone();
    put(&mut inline, 32, &(1u32 << 31 | 8).to_be_bytes());
    assert!(parsed(&inline).is_err(), "a READ's answer has nowhere to go");
    all[28] = 1;
    assert!(parsed(&all).is_err(), "reserved bytes");
    assert!(parsed(&work_request(opcode::WRITE, 16, 0)).is_err(), "nothing behind the control segment");
    assert!(parsed(&work_request(0x7f, 32, 0)).is_err(), "an operation that nobody knows");
}
