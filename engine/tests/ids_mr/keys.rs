//! Keys, base addresses, and what the device and the peer are told of them.

use crate::common::*;
use frwr_engine::mr::{Grant, IovaPolicy, IovaRule, KEY_TAG_BITS, Mr, Opening, tag_mask};
use frwr_engine::provider::{Access, BaseAddress, BaseId, ElementRange, RegistrationId, TokenKind};

/// The generation in front of the first one.
const NEVER_OPENED: u32 = u32::MAX;

/// A fresh MR whose device object has this key.
fn with_key(key: u32) -> Mr {
    let mut mr = absent();
    mr.install(RegistrationId(1), key, CONNECTION).expect("absent");
    mr
}

/// The key before and the next one, where so many bits change.
fn after(key: u32, rotating_bits: u8) -> (u32, u32) {
    let opening = Opening { key_mask: tag_mask(rotating_bits), ..OPENING };
    open(&mut with_key(key), &opening).map(|fields| (fields.old_key, fields.key)).expect("idle")
}

/// Opens it; the peer kills the key. Returns the key.
fn used(mr: &mut Mr, opening: &Opening) -> u32 {
    let key = open(mr, opening).expect("free").key;
    mr.remotely_invalidated(OWNER, CONNECTION, key).expect("held");
    key
}

fn iova(policy: IovaPolicy, rule: BaseAddress, address: u64, cookie: u32) -> u64 {
    IovaRule::of(policy, rule).apply(address, cookie)
}

#[test]
fn s32_u06_d28_one_remote_right() {
    for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteReadWrite] {
        let mut mr = idle();
        assert_eq!(open(&mut mr, &Opening { access, ..OPENING }).map(|fields| fields.access), Ok(access));
        assert_eq!(mr.access(), Some(access));
    }
}

#[test]
fn s36_d13_cookie_in_the_upper_half() {
    let cookie = |address, cookie| iova(IovaPolicy::Cookie, BaseAddress::Any, address, cookie);
    assert_eq!(cookie(0x0000_0012_3456_7A10, 0x0A0B_0C0D), 0x0A0B_0C0D_3456_7A10);
    assert_eq!(cookie(0x0000_0012_3456_7A10, 0), 0x3456_7A10);
    assert_ne!(cookie(0x5000, 1), cookie(0x5000, 2));
    assert_eq!(IovaPolicy::default(), IovaPolicy::Cookie);
}

#[test]
fn s36_range_may_carry_into_the_cookie() {
    for xid in [0, 7, u32::MAX - 1, u32::MAX] {
        let iova = iova(IovaPolicy::Cookie, BaseAddress::Any, 0xFFFF_F000, xid);
        let mut mr = idle();
        open(&mut mr, &Opening { bytes: 0x2000, iova, ..OPENING }).expect("linear");
        let grant = mr.grant().expect("registering");
        assert_eq!((grant.address, grant.length), (iova, 0x2000));
        assert!(iova.checked_add(0x1FFF).is_some(), "the peer can reach the last byte");
    }
}

#[test]
fn u11_d13_device_rule_overrides_the_policy() {
    for policy in [IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased] {
        assert_eq!(iova(policy, BaseAddress::Virtual, 0x7000, 5), 0x7000);
        assert_eq!(iova(policy, BaseAddress::Zero, 0x7000, 5), 0);
    }
    assert_eq!(iova(IovaPolicy::Raw, BaseAddress::Any, 0x7000, 5), 0x7000);
    // A page list's base address keeps the offset in the page, whatever the page size.
    assert_eq!(iova(IovaPolicy::ZeroBased, BaseAddress::Any, 0x12_0000, 5), 0);
    for page in [4096, 65536] {
        assert_eq!(iova(IovaPolicy::ZeroBased, BaseAddress::Any, 0x1234_7A10, 5) % page, 0x1234_7A10 % page);
    }
}

#[test]
fn d13_zero_is_zero_wherever_the_first_byte_lies() {
    for policy in [IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased] {
        assert_eq!(iova(policy, BaseAddress::Zero, u64::MAX, u32::MAX), 0, "{policy:?}");
    }
}

/// Of as many bytes as one registration may have, wherever they lie, with any cookie: from the base
/// address on they do not wrap around where they do not from their own.
#[test]
fn i18_no_base_address_wraps_around() {
    let rules = [BaseAddress::Any, BaseAddress::Virtual, BaseAddress::Zero];
    let policies = [IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased];
    for bytes in [1, 4096, u32::MAX] {
        let last = u64::MAX - u64::from(bytes);
        for address in [0, 0xFFFF_FFFF, 0x7000_0A10, last - 1, last] {
            for (rule, policy) in rules.into_iter().flat_map(|rule| policies.map(|policy| (rule, policy))) {
                for cookie in [0, 1, 0x7FFF_FFFF, u32::MAX - 1, u32::MAX] {
                    let iova = iova(policy, rule, address, cookie);
                    assert!(iova <= last, "{policy:?} {rule:?} {address:x} {cookie:x}: {iova:x}");
                    assert!(open(&mut idle(), &Opening { bytes, elements: 1, iova, ..OPENING }).is_ok());
                }
            }
        }
    }
}

#[test]
fn s37_key_rotates_low_byte_only() {
    assert_eq!(after(0x1234_5678, 8), (0x1234_5678, 0x1234_5679));
    assert_eq!(after(0x1234_56FF, 8), (0x1234_56FF, 0x1234_5600));
    assert_eq!(after(0xFFFF_FFFF, 8), (0xFFFF_FFFF, 0xFFFF_FF00));
    let mut mr = idle();
    for step in 1..=256 {
        let key = used(&mut mr, &OPENING);
        assert_eq!((key >> 8, key == KEY), (KEY >> 8, step == 256));
    }
}

#[test]
fn s37_i20_more_rotating_bits_than_a_key_has_leave_its_index_alone() {
    assert_eq!(after(0x12FF, KEY_TAG_BITS + 1), (0x12FF, 0x1200));
    assert_eq!(after(0x12FF, u8::MAX), (0x12FF, 0x1200));
    assert_eq!(after(0x12FE, KEY_TAG_BITS), (0x12FE, 0x12FF));
}

#[test]
fn u10_fixed_key() {
    assert_eq!(after(KEY, 0), (KEY, KEY));
    let mut mr = idle();
    let opening = Opening { key_mask: tag_mask(0), ..OPENING };
    for expected in [1, 3, 5] {
        assert_eq!((used(&mut mr, &opening), generation(&mr)), (KEY, expected));
    }
}

/// From one use to the next a key changes in the bits that change, always, and in no other; and the
/// device is told the key that it has.
#[test]
fn i20_key_succession() {
    for bits in 0..=KEY_TAG_BITS {
        let mask = tag_mask(bits);
        let opening = Opening { key_mask: mask, ..OPENING };
        let (mut mr, mut before) = (idle(), KEY);
        for _ in 0..600 {
            let fields = open(&mut mr, &opening).expect("free");
            mr.remotely_invalidated(OWNER, CONNECTION, fields.key).expect("held");
            assert_eq!((fields.old_key, fields.key & !mask), (before, KEY & !mask), "{bits} bits");
            assert_eq!(fields.key & mask, before.wrapping_add(1) & mask, "{bits} bits");
            before = fields.key;
        }
    }
}

#[test]
fn s37_u05_d14_key_changes_where_an_mr_is_opened_only() {
    let mut mr = idle();
    assert!(open_on(&mut mr, OTHER_QUEUE, &OPENING).is_err());
    assert_eq!((mr.key(), generation(&mr)), (KEY, NEVER_OPENED));
    assert_eq!(open(&mut mr, &OPENING).map(|fields| fields.key), Ok(KEY + 1));
    // A refused post burns the key too: it may have been on the wire.
    mr.register_refused().expect("registering");
    assert_eq!((name_of(mr.state()), mr.key()), ("mapped", KEY + 1));
}

#[test]
fn s85_s86_d11_reset_burns_the_key() {
    let mut mr = mapped();
    mr.give_back().expect("the device knows nothing");
    assert_eq!((name_of(mr.state()), mr.is_live()), ("idle", false));
    // The device compares with the key that it knows, and only the index of that is fixed.
    assert_eq!(open(&mut mr, &OPENING).map(|fields| (fields.old_key, fields.key)), Ok((KEY, KEY + 2)));
}

#[test]
fn s38_registration_fields() {
    let fields = open(&mut idle(), &OPENING).expect("idle");
    assert_eq!((fields.object, fields.base, fields.access), (RegistrationId(77), BaseId(5), Access::RemoteRead));
    assert_eq!((fields.old_key, fields.key), (KEY, KEY + 1));
    assert_eq!((fields.iova, fields.length), (OPENING.iova, 8192));
    assert_eq!(fields.elements, ElementRange { first: FIRST_ELEMENT, count: 3 });
}

#[test]
fn s38_old_key_across_the_wrap() {
    assert_eq!(after(0xAB_FF, 8), (0xAB_FF, 0xAB_00));
}

#[test]
fn s39_grant_is_what_the_peer_is_told() {
    let mut mr = idle();
    let fields = open(&mut mr, &OPENING).expect("idle");
    let grant = Some(Grant { key: KEY + 1, address: OPENING.iova, length: 8192 });
    assert_eq!((fields.key, mr.grant()), (KEY + 1, grant));
    mr.registered(generation(&mr)).expect("registering");
    assert_eq!(mr.grant(), grant);
}

#[test]
fn s38_nothing_is_open_where_nothing_is_registered() {
    for (name, mr) in every_state() {
        let is_registered = ["registering", "valid", "invalidating"].contains(&name);
        assert_eq!((mr.access().is_some(), mr.grant().is_some()), (is_registered, is_registered), "{name}");
    }
}

/// An opening says its token and its generation; the first is 1, all are odd.
#[test]
fn u16_generation_skips_zero() {
    let mut mr = idle();
    for expected in (1..=599).step_by(2) {
        open(&mut mr, &OPENING).expect("free");
        let token = mr.token_register();
        assert_eq!((token.kind(), token.index(), token.generation()), (TokenKind::Register, 11, expected));
        mr.register_refused().expect("registering");
        mr.give_back().expect("mapped");
    }
}
