//! Device memory: copies at every alignment, against a plain vector.

mod common;

use frwr_mempool::DeviceMemory;
use proptest::prelude::*;

/// Bytes of the memories under test: larger than the bounce buffer several times.
const BYTES: usize = 2048;

fn memory() -> DeviceMemory {
    common::region(BYTES).carve(BYTES, 8).unwrap().into_device_memory()
}

fn bytes_of(memory: &DeviceMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|position| (position * 7 + seed * 31 + 1) as u8).collect()
}

#[test]
fn short_copies_at_every_alignment() {
    let memory = memory();
    let (offsets, lengths) = if cfg!(miri) { (9, 20) } else { (24, 40) };
    for offset in 0..offsets {
        for len in 0..lengths {
            memory.fill(0, BYTES, 0xEE).unwrap();
            let written = pattern(offset, len);
            memory.write(offset, &written).unwrap();
            let all = bytes_of(&memory);
            assert!(all[..offset].iter().chain(&all[offset + len..]).all(|byte| *byte == 0xEE));
            assert_eq!(all[offset..offset + len], written);
            let mut read = vec![0; len];
            memory.read(offset, &mut read).unwrap();
            assert_eq!(read, written);
        }
    }
}

#[test]
fn an_access_outside_is_refused_and_copies_nothing() {
    let memory = memory();
    for (offset, len) in [(BYTES, 1), (BYTES + 1, 0), (usize::MAX, 2), (1, usize::MAX), (0, BYTES + 1)] {
        let error = memory.fill(offset, len, 1).unwrap_err();
        assert_eq!((error.offset, error.len, error.limit), (offset, len, BYTES));
        assert!(memory.copy_within_to(offset, &memory, 0, len).is_err());
        assert!(memory.copy_within_to(0, &memory, offset, len).is_err());
        assert!(memory.slice(offset, len).is_err());
    }
    assert!(memory.write(BYTES - 1, &[1, 2]).is_err());
    assert!(memory.read(BYTES - 1, &mut [1, 2]).is_err());
    assert_eq!(bytes_of(&memory), vec![0; BYTES]);
    memory.read(BYTES, &mut []).unwrap();
}

#[test]
fn a_slice_is_the_same_memory() {
    let memory = memory();
    let slice = memory.slice(13, 20).unwrap();
    assert_eq!((slice.address(), slice.len()), (memory.address() + 13, 20));
    slice.write(0, &pattern(1, 20)).unwrap();
    assert_eq!(bytes_of(&memory)[13..33], pattern(1, 20));
    assert!(slice.write(20, &[1]).is_err());
}

#[test]
fn writers_of_neighbouring_bytes_do_not_lose_each_others_writes() {
    const ROUNDS: usize = if cfg!(miri) { 200 } else { 20_000 };
    let memory = memory();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let slice = memory.slice(writer * 5, 5).unwrap();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let written = [round as u8; 5];
                    slice.write(0, &written).unwrap();
                    let mut read = [0; 5];
                    slice.read(0, &mut read).unwrap();
                    assert_eq!(read, written, "writer {writer}, round {round}");
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fills_writes_and_copies_equal_those_of_a_vector(
        steps in prop::collection::vec((0..3_u8, 0..BYTES, 0..BYTES, 0..BYTES), 1..40)
    ) {
        let memory = memory();
        let mut model = vec![0_u8; BYTES];
        for (kind, from, to, len) in steps {
            let len = len.min(BYTES - from.max(to));
            match kind {
                0 => {
                    memory.fill(to, len, from as u8).unwrap();
                    model[to..to + len].fill(from as u8);
                }
                1 => {
                    memory.write(to, &pattern(from, len)).unwrap();
                    model[to..to + len].copy_from_slice(&pattern(from, len));
                }
                _ => {
                    memory.copy_within_to(from, &memory, to, len).unwrap();
                    model.copy_within(from..from + len, to);
                }
            }
        }
        prop_assert_eq!(bytes_of(&memory), model);
    }
}
