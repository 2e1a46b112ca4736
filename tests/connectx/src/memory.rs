//! The program's memory, by address: what commands point to, queues, doorbell records, data.
//!
//! Addresses are the program's word. A kernel and a card would find out by their page tables where one is not its own; here the
//! program dies of it.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Reads so many bytes.
pub(crate) fn read(address: u64, bytes: &mut [u8]) {
    let from = core::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the range lies in memory that the program registered, gave to a queue or names in a command that it waits for; what it
    // writes meanwhile is read torn, as a device would.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(from, bytes.len()) };
}

/// Writes so many bytes, each once and in their order, whole words at a time: a program that polls for the last of them may answer
/// there at once, and memcpy may store a byte twice, the second time over that answer.
pub(crate) fn write(address: u64, bytes: &[u8]) {
    let unaligned = (address.wrapping_neg() % 8) as usize;
    let (head, rest) = bytes.split_at(unaligned.min(bytes.len()));
    let (words, tail) = rest.as_chunks::<8>();
    let tail_at = address + (bytes.len() - tail.len()) as u64;
    write_bytes(address, head);
    for (word, at) in words.iter().zip((address + head.len() as u64..).step_by(8)) {
        let to = core::ptr::with_exposed_provenance_mut::<u64>(at as usize);
        // SAFETY: as above, and aligned.
        unsafe { AtomicU64::from_ptr(to) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    write_bytes(tail_at, tail);
}

fn write_bytes(address: u64, bytes: &[u8]) {
    for (&byte, at) in bytes.iter().zip(address..) {
        let to = core::ptr::with_exposed_provenance_mut::<u8>(at as usize);
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(to) }.store(byte, Ordering::Relaxed);
    }
}

/// Reads so many bytes; none at the address 0.
pub(crate) fn bytes(address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; if address == 0 { 0 } else { count }];
    read(address, &mut bytes);
    bytes
}

/// Reads one plain value; nothing at the address 0.
pub(crate) fn take<T: FromBytes>(address: u64) -> Option<T> {
    T::read_from_bytes(&bytes(address, size_of::<T>())).ok()
}

/// Writes one plain value; nothing at the address 0.
pub(crate) fn put<T: IntoBytes + Immutable>(address: u64, value: &T) {
    answer(address, size_of::<T>(), value.as_bytes());
}

/// Writes an answer to where a command asks for it, if it does: as much as the program has room for.
pub(crate) fn answer(address: u64, room: usize, bytes: &[u8]) {
    if address != 0 {
        write(address, &bytes[..room.min(bytes.len())]);
    }
}

/// A word of a doorbell record, and all that the program wrote in front of it.
pub(crate) fn doorbell(address: u64) -> u32 {
    let word = core::ptr::with_exposed_provenance_mut::<u32>(address as usize);
    // SAFETY: as above; records are aligned.
    u32::from_be(unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Acquire))
}

/// Writes an entry of a completion queue, the byte last that tells the program that it is there.
pub(crate) fn publish(address: u64, entry: &[u8; 64]) {
    write(address, &entry[..63]);
    fence(Ordering::Release);
    let last = core::ptr::with_exposed_provenance_mut::<u8>(address as usize + 63);
    // SAFETY: as above.
    unsafe { AtomicU8::from_ptr(last) }.store(entry[63], Ordering::Release);
}
