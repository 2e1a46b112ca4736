//! Keys, from every first byte and whatever becomes of those that are given out.

use super::super::{ConnectionKey, Mr, Opening, ReturnPolicy, Step, tag_mask};
use super::world::OPENING;
use crate::provider::{Operation, RegistrationId, Token, TokenKind, WorkRequest};

const CONNECTION: ConnectionKey = ConnectionKey { index: 3, epoch: 1 };
const INDEX: u32 = 0xABCD_EF00;
const TAGS: usize = 256;

/// What becomes of a key, once it was given out.
type Use = fn(&mut Mr);

/// Tags, one bit for each.
type Tags = [u64; TAGS / 64];

fn only(tag: u8) -> Tags {
    let mut tags = Tags::default();
    tags[usize::from(tag) / 64] = 1 << (tag % 64);
    tags
}

/// A free MR whose last key was this one, where the device has that.
fn free(step: Step, last: u8, device: u8) -> Mr {
    let mut mr = Mr::numbered(9, 90);
    mr.install(RegistrationId(4), INDEX | u32::from(last), CONNECTION).expect("absent");
    // Of one that was never opened no key is spent.
    (mr.token, mr.step, mr.device_tag) = (Token::new(TokenKind::Register, 9, 1), step, device);
    mr
}

/// Opens it, where so many bits of a key change. Returns the key before, as the device knows it,
/// and the next.
fn open(mr: &mut Mr, bits: u8) -> (u32, u32) {
    let opening = Opening { key_mask: tag_mask(bits), ..OPENING };
    let (mut place, mut begins_round) = (WorkRequest::VACANT, false);
    let key = mr.open(CONNECTION, &opening, &mut place, &mut begins_round).expect("free");
    let Operation::Register(fields) = place.operation else { panic!("{place:?}") };
    assert_eq!((fields.key, mr.key(), mr.device_tag), (key, key, key as u8));
    assert_eq!(begins_round, key & opening.key_mask == 0, "a round begins with its first key");
    (fields.old_key, key)
}

/// The same, and the MR stays as it was.
fn next(mr: &Mr, bits: u8) -> (u32, u32) {
    open(&mut mr.clone(), bits)
}

/// By the last tag the next ones, each with the tags of the device's keys that lead to it; of all pairs of both: with the same index, never the one that the device has, and
/// in front of it the one that the device has. An MR that was invalidated (`Spent`) is one whose last key the device has.
fn successors(bits: u8) -> Vec<Vec<(u8, Tags)>> {
    let mask = tag_mask(bits);
    let of = |last: u8, device: u8| {
        let (old_key, key) = next(&free(Step::Idle, last, device), bits);
        assert_eq!(next(&free(Step::IdlePending, last, device), bits), (old_key, key));
        if last == device {
            assert_eq!(next(&free(Step::Spent, last, device), bits), (old_key, key));
        }
        // The bits of a key that never change are those of its first.
        let own_index = (u32::from(last) ^ u32::from(device)) & !mask == 0;
        assert!(!own_index || (old_key ^ key) & !mask == 0, "{last} {device}: {old_key:x} {key:x}");
        assert_eq!((old_key & 0xFF, key & !0xFF), (u32::from(device), INDEX));
        assert_eq!(u32::from(last) & !mask, key & 0xFF & !mask, "{bits} bits: only those change");
        assert!(mask == 0 || key as u8 != device, "{bits} bits: {device} follows on itself");
        key as u8
    };
    let by_key = |last| {
        let mut keys = Vec::new();
        (0..=u8::MAX).for_each(|device| add(&mut keys, of(last, device), only(device)));
        keys
    };
    (0..=u8::MAX).map(by_key).collect()
}

/// From every first byte, and whatever the device has: no key is given out a second time within as
/// many as there are less one. A key may be registered, or be burnt by a post that is refused and
/// then given back: the device has it then, or has it not.
#[test]
fn i20_d14_no_key_repeats_within_255_whatever_is_burnt() {
    for bits in [1, 2, 8] {
        let (successors, mask) = (successors(bits), tag_mask(bits) as u8);
        for first in 0..=u8::MAX {
            // What the device may have when this key was given out: it itself, or any other of the same index.
            let mut layer = vec![(first, all_of_index(first, mask))];
            for given in 1..usize::from(mask) {
                layer = step(&successors, &layer);
                let repeated = layer.iter().any(|(last, _)| *last == first);
                assert!(!repeated, "{bits} bits: {first} is given out again after {given}");
            }
        }
    }
}

/// Tags that differ in the bits that change.
fn all_of_index(tag: u8, mask: u8) -> Tags {
    let others = (0..=u8::MAX).filter(|other| (other ^ tag) & !mask == 0).map(only);
    others.fold(Tags::default(), |all, one| core::array::from_fn(|word| all[word] | one[word]))
}

/// Everything that the next key may be, with what the device may have: that key, or what it had.
fn step(successors: &[Vec<(u8, Tags)>], layer: &[(u8, Tags)]) -> Vec<(u8, Tags)> {
    let mut after: Vec<(u8, Tags)> = Vec::new();
    for (last, may_have) in layer {
        for (key, devices) in &successors[usize::from(*last)] {
            let had: Tags = core::array::from_fn(|word| may_have[word] & devices[word]);
            if had != Tags::default() {
                add(&mut after, *key, had);
                add(&mut after, *key, only(*key));
            }
        }
    }
    after
}

fn add(all: &mut Vec<(u8, Tags)>, key: u8, devices: Tags) {
    match all.iter_mut().find(|(known, _)| *known == key) {
        Some((_, tags)) => tags.iter_mut().zip(devices).for_each(|(tags, more)| *tags |= more),
        None => all.push((key, devices)),
    }
}

/// What becomes of a key that was given out, with the MR's own calls: afterwards the device has it, or what it had before.
#[test]
fn i20_d14_what_becomes_of_a_key_is_one_of_the_two() {
    let uses: [(bool, Use); 5] = [
        (false, |mr| mr.register_refused().and_then(|()| mr.give_back()).expect("registering")),
        (true, |mr| mr.remotely_invalidated(OPENING.owner, CONNECTION, mr.key()).expect("registering")),
        (true, |mr| {
            mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidateCompleted).expect("registering");
            mr.invalidated(mr.generation()).expect("invalidating");
        }),
        (true, |mr| {
            mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidatePosted).expect("registering");
        }),
        (true, |mr| mr.registered(mr.generation()).expect("registering")),
    ];
    for (last, device) in (0..=u8::MAX).flat_map(|last| (0..=u8::MAX).map(move |device| (last, device))) {
        for (at, (device_has_it, become_of)) in uses.iter().enumerate() {
            let mut mr = free(Step::Idle, last, device);
            let key = open(&mut mr, 8).1 as u8;
            become_of(&mut mr);
            assert_eq!(mr.device_tag, if *device_has_it { key } else { device }, "use {at} behind {last} {device}");
        }
    }
}

/// An object that was given up and made anew has whatever key its device gave it: the next one follows on that.
#[test]
fn i20_s103_a_repaired_mr_goes_on_from_its_new_key() {
    for (last, anew) in (0..=u8::MAX).flat_map(|last| (0..=u8::MAX).map(move |anew| (last, anew))) {
        let mut mr = free(Step::Idle, last, last);
        open(&mut mr, 8);
        mr.register_failed(mr.generation()).expect("registering");
        let key = (INDEX + 0x100) | u32::from(anew);
        mr.begin_recovery().and_then(|()| mr.destroyed()).expect("stale");
        mr.install(RegistrationId(5), key, CONNECTION).expect("absent");
        let after = (INDEX + 0x100) | u32::from(anew.wrapping_add(1));
        assert_eq!(next(&mr, 8), (key, after));
    }
}

/// With keys that never change there is one, and it never has another.
#[test]
fn u10_a_fixed_key_stays_whatever_becomes_of_it() {
    for tag in 0..=u8::MAX {
        for step in [Step::Idle, Step::Spent, Step::IdlePending] {
            let key = INDEX | u32::from(tag);
            assert_eq!(next(&free(step, tag, tag), 0), (key, key));
        }
    }
}
