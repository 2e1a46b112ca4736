//! The life of one MR: keys, base addresses, grants, and every arrow of the diagram.

use crate::common::*;
use frwr_engine::mr::{
    Cause, ConnectionKey, Grant, IovaPolicy, KEY_TAG_BITS, MR_BYTES, Mapping, Mr, MrError, ReturnPolicy, State,
    check_next_key, iova, next_key,
};
use frwr_engine::provider::{Access, BaseAddress, BaseId, ElementRange, Operation, RegistrationId, TokenKind};

/// The generation in front of the first one.
const NEVER_MAPPED: u32 = u32::MAX;

#[test]
fn one_mr_is_one_cache_line() {
    assert!(size_of::<Mr>() <= MR_BYTES && MR_BYTES == 64);
}

#[test]
fn s18_s19_fresh_mr() {
    let mut mr = idle();
    assert_eq!(mr.state(), State::Idle { spent: false });
    assert_eq!(
        (mr.object(), mr.key(), mr.generation(), mr.connection()),
        (RegistrationId(77), KEY, NEVER_MAPPED, CONNECTION)
    );
    assert_eq!((mr.grant(), mr.owner(), mr.is_live(), mr.is_pad()), (None, None, false, false));
    // The first use needs no invalidation before it.
    mr.take(OWNER, CONNECTION).expect("free");
    mr.map(&MAPPING).expect("owned");
    mr.register_posted().expect("mapped");
}

#[test]
fn s20_destroyed_mr_has_no_object() {
    let mut mr = spent();
    let generation = mr.generation();
    let object = mr.object();
    mr.destroyed().expect("free");
    assert_eq!((mr.state(), mr.is_live()), (State::Absent, false));
    assert_ne!(mr.object(), object);
    // A new object goes on counting, so that completions of the old one stay recognisable.
    mr.install(RegistrationId(78), 0x100, CONNECTION).expect("absent");
    assert_eq!((mr.generation(), mr.object()), (generation, RegistrationId(78)));
}

#[test]
fn s23_taken_mr_knows_its_request() {
    assert_eq!(owned().owner(), Some(OWNER));
    assert_eq!(valid().owner(), Some(OWNER));
    assert_eq!(spent().owner(), None);
}

#[test]
fn s32_u06_d28_one_remote_right() {
    for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteReadWrite] {
        let mut mr = owned();
        mr.map(&Mapping { access, ..MAPPING }).expect("owned");
        assert_eq!(mr.register_posted().expect("mapped").access, access);
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
        let mut mr = owned();
        let grant = mr.map(&Mapping { bytes: 0x2000, address: 0xFFFF_F000, iova, ..MAPPING }).expect("linear");
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
fn s37_key_rotates_low_byte_only() {
    assert_eq!(next_key(0x1234_5678, 8), 0x1234_5679);
    assert_eq!(next_key(0x1234_56FF, 8), 0x1234_5600);
    assert_eq!(next_key(0xFFFF_FFFF, 8), 0xFFFF_FF00);
    let mut key = KEY;
    for step in 1..=256 {
        key = next_key(key, 8);
        assert_eq!((key >> 8, key == KEY), (KEY >> 8, step == 256));
    }
}

#[test]
fn u10_fixed_key() {
    assert_eq!(next_key(KEY, 0), KEY);
    let mut mr = owned();
    let grant = mr.map(&Mapping { rotating_key_bits: 0, ..MAPPING }).expect("owned");
    assert_eq!((grant.key, mr.generation()), (KEY, 1));
    assert_eq!(mr.register_posted().map(|fields| (fields.old_key, fields.key)), Ok((KEY, KEY)));
}

#[test]
fn s37_u05_d14_key_changes_at_a_successful_map_only() {
    let mut mr = owned();
    assert_eq!(mr.map(&Mapping { bytes: 0, ..MAPPING }), Err(MrError::InvalidArgument));
    assert_eq!((mr.key(), mr.generation()), (KEY, NEVER_MAPPED));
    assert_eq!(mr.map(&MAPPING).map(|grant| grant.key), Ok(KEY + 1));
    // A refused post burns the key too: it may have been on the wire.
    mr.register_posted().expect("mapped");
    mr.register_refused().expect("registering");
    assert_eq!((name_of(mr.state()), mr.key()), ("mapped", KEY + 1));
}

#[test]
fn s38_registration_fields() {
    let mut mr = mapped();
    let fields = mr.register_posted().expect("mapped");
    assert_eq!((fields.object, fields.base, fields.access), (RegistrationId(77), BaseId(5), Access::RemoteRead));
    assert_eq!((fields.old_key, fields.key), (KEY, KEY + 1));
    assert_eq!((fields.iova, fields.length), (MAPPING.iova, 8192));
    assert_eq!(fields.elements, ElementRange { first: 0, count: 3 });
}

#[test]
fn s38_old_key_across_the_wrap() {
    let mut mr = Mr::absent();
    mr.install(RegistrationId(1), 0xAB_FF, CONNECTION).expect("absent");
    mr.take(OWNER, CONNECTION).expect("free");
    mr.map(&MAPPING).expect("owned");
    assert_eq!(mr.register_posted().map(|fields| (fields.old_key, fields.key)), Ok((0xAB_FF, 0xAB_00)));
}

#[test]
fn s39_grant_is_what_the_peer_is_told() {
    let mut mr = owned();
    let grant = mr.map(&MAPPING).expect("owned");
    assert_eq!(grant, Grant { key: KEY + 1, address: MAPPING.iova, length: 8192 });
    assert_eq!(mr.grant(), Some(grant));
    assert_eq!(mr.register_posted().map(|fields| fields.key), Ok(grant.key));
    assert_eq!(mr.announce(CONNECTION), Ok(grant));
}

#[test]
fn s41_map_does_not_reach_the_device() {
    let mr = mapped();
    assert!(!mr.is_live() && mr.check_fenced().is_ok() && !mr.holds_key(mr.key()));
}

#[test]
fn s45_s57_registration_completes_or_fails() {
    let mut mr = registering();
    assert!(mr.is_live() && mr.holds_key(mr.key()) && !mr.holds_key(KEY));
    mr.registered(mr.generation()).expect("registering");
    mr.registered(mr.generation()).expect("again");
    assert_eq!(name_of(mr.state()), "valid");
    assert_eq!(stale().state(), State::Stale(Cause::FlushedRegister));
}

#[test]
fn s58_u18_remote_invalidation_frees_the_mr() {
    for mut mr in [registering(), valid()] {
        let key = mr.key();
        mr.remotely_invalidated(OWNER, CONNECTION, key).expect("held");
        assert_eq!((mr.state(), mr.is_live()), (State::Idle { spent: true }, false));
        // The completion of its registration may come after that.
        assert_eq!(mr.registered(mr.generation()), Ok(()));
        assert_eq!(mr.state(), State::Idle { spent: true });
    }
}

#[test]
fn s65_d10_invalidation() {
    for mut mr in [registering(), valid()] {
        let (object, key) = (mr.object(), mr.key());
        let operation = mr.invalidate_posted(key, ReturnPolicy::OnInvalidateCompleted);
        assert_eq!(operation, Ok((OWNER, Operation::Invalidate { object, key })));
        assert_eq!((name_of(mr.state()), mr.is_live()), ("invalidating", true));
        mr.registered(mr.generation()).expect("late news of the registration");
        assert_eq!(mr.invalidated(mr.generation()), Ok(Some(OWNER)));
        assert_eq!((name_of(mr.state()), mr.check_fenced()), ("idle", Ok(())));
    }
}

#[test]
fn s71_s73_d07_refused_invalidation() {
    let mut mr = invalidating();
    mr.invalidate_refused(mr.generation()).expect("marked as posted");
    assert_eq!(mr.state(), State::Stale(Cause::UnpostedInvalidate));
    assert_eq!(mr.check_fenced(), Err(MrError::NotFenced));
}

#[test]
fn s74_s82_d06_flushed_invalidation() {
    let mut mr = invalidating();
    mr.invalidate_failed(mr.generation()).expect("in flight");
    assert_eq!(mr.state(), State::Stale(Cause::FlushedInvalidate));
    assert_eq!(mr.check_fenced(), Err(MrError::NotFenced));
}

#[test]
fn s85_s86_d11_reset_burns_the_key() {
    let mut mr = mapped();
    mr.give_back().expect("the device knows nothing");
    assert_eq!((mr.state(), mr.check_fenced()), (State::Idle { spent: false }, Ok(())));
    mr.take(OWNER, CONNECTION).expect("free");
    assert_eq!(mr.map(&MAPPING).map(|grant| grant.key), Ok(KEY + 2));
    // The device compares with the key that it knows, and only the index of that is fixed.
    assert_eq!(mr.register_posted().map(|fields| fields.key), Ok(KEY + 2));
    owned().give_back().expect("unused");
}

#[test]
fn s90_s92_f08_pad() {
    let mut mr = pad();
    assert!(mr.is_pad() && mr.owner().is_none());
    assert_eq!(mr.announce(CONNECTION).map(|grant| grant.length), Ok(4));
    mr.connection_lost(CONNECTION).expect("the connection ended");
    mr.destroyed().expect("stale");
    assert!(!mr.is_pad());
    // The descriptor serves requests again.
    mr.install(RegistrationId(80), 0x900, CONNECTION).expect("absent");
    assert!(!mr.is_pad());
    // A pad whose registration failed announces nothing.
    let mut failed = idle();
    failed.take_as_pad(CONNECTION).expect("free");
    failed.map(&MAPPING).expect("owned");
    failed.register_posted().expect("mapped");
    failed.register_failed(failed.generation()).expect("registering");
    assert_eq!((failed.announce(CONNECTION), failed.grant()), (Err(MrError::NotOrdered), None));
}

#[test]
fn s94_s96_d09_end_of_the_connection() {
    let taken_early = {
        let mut mr = idle_pending();
        mr.take(OWNER + 1, CONNECTION).expect("early return");
        mr
    };
    for (mut mr, cause) in [
        (idle(), Cause::UnusedAtDisconnect),
        (owned(), Cause::UnusedAtDisconnect),
        (mapped(), Cause::UnusedAtDisconnect),
        (registering(), Cause::ValidAtDisconnect),
        (valid(), Cause::ValidAtDisconnect),
        (pad(), Cause::ValidAtDisconnect),
        (invalidating(), Cause::FlushedInvalidate),
        (idle_pending(), Cause::FlushedInvalidate),
        (taken_early, Cause::FlushedInvalidate),
        (stale(), Cause::FlushedRegister),
    ] {
        mr.connection_lost(CONNECTION).expect("has an object");
        assert_eq!(mr.state(), State::Stale(cause));
        assert_eq!(mr.is_live(), cause != Cause::UnusedAtDisconnect);
        mr.connection_lost(CONNECTION).expect("again");
        assert_eq!(mr.state(), State::Stale(cause), "the first cause stands");
        mr.destroyed().expect("stale");
        assert_eq!(mr.check_fenced(), Ok(()));
    }
}

#[test]
fn s103_s105_d08_f09_recovery() {
    let mut mr = recovering();
    let new_connection = ConnectionKey { index: 3, epoch: 10 };
    mr.recovered(RegistrationId(90), 0xFF00_0001, new_connection).expect("recovering");
    assert_eq!((mr.state(), mr.key()), (State::Idle { spent: false }, 0xFF00_0001));
    mr.take(OWNER, new_connection).expect("free");
    // A failed repair ends the object once.
    let mut orphan = recovering();
    orphan.destroyed().expect("recovering");
    assert_eq!(orphan.destroyed(), Err(MrError::InvalidState));
}

#[test]
fn s104_d02_early_return() {
    let mut mr = idle_pending();
    let first = mr.generation();
    assert_eq!((mr.owner(), mr.check_fenced()), (None, Err(MrError::NotFenced)));
    // The next registration stands behind the invalidation in the same queue.
    mr.take(OWNER + 1, CONNECTION).expect("early return");
    mr.map(&MAPPING).expect("owned");
    assert_eq!(mr.check_fenced(), Err(MrError::NotFenced), "the first memory is still open");
    mr.register_posted().expect("mapped");
    mr.invalidated(first).expect("in flight");
    assert_eq!((name_of(mr.state()), mr.owner()), ("registering", Some(OWNER + 1)));
    assert_eq!(mr.invalidated(first), Err(MrError::StaleCompletion));
}

#[test]
fn s104_d02_early_return_unused() {
    let mut mr = idle_pending();
    mr.take(OWNER, CONNECTION).expect("early return");
    mr.give_back().expect("unused");
    assert_eq!((name_of(mr.state()), mr.is_live()), ("idle_pending", true));
    mr.take(OWNER, CONNECTION).expect("early return");
    mr.invalidated(mr.generation()).expect("in flight");
    assert!(!mr.is_live());
    mr.give_back().expect("unused");
    assert_eq!(name_of(mr.state()), "idle");
    let mut direct = idle_pending();
    direct.invalidated(direct.generation()).expect("in flight");
    assert_eq!(direct.state(), State::Idle { spent: true });
}

/// D2, condition 5: a flush reaches the MR wherever it is by now.
#[test]
fn s104_d02_flush_reaches_the_new_user() {
    let users: [fn(&mut Mr); 4] = [
        |_| {},
        |mr| mr.take(OWNER + 1, CONNECTION).expect("early return"),
        |mr| {
            mr.take(OWNER + 1, CONNECTION).expect("early return");
            mr.map(&MAPPING).expect("owned");
        },
        |mr| {
            mr.take(OWNER + 1, CONNECTION).expect("early return");
            mr.map(&MAPPING).expect("owned");
            mr.register_posted().expect("mapped");
        },
    ];
    for user in users {
        for registration_too in [false, true] {
            let mut mr = idle_pending();
            let first = mr.generation();
            user(&mut mr);
            let (flushed, cause) = if registration_too {
                (mr.register_failed(first), Cause::FlushedRegister)
            } else {
                (mr.invalidate_failed(first), Cause::FlushedInvalidate)
            };
            assert_eq!((flushed, mr.state()), (Ok(()), State::Stale(cause)));
        }
    }
}

#[test]
fn s115_f07_two_flushes_of_one_mr() {
    let mut mr = Mr::numbered(11, 0);
    mr.install(RegistrationId(77), KEY, CONNECTION).expect("absent");
    mr.take(OWNER, CONNECTION).expect("free");
    mr.map(&MAPPING).expect("owned");
    let (register, invalidate) = (mr.token_register(), mr.token_invalidate());
    assert_eq!((register.kind(), invalidate.kind()), (TokenKind::Register, TokenKind::Invalidate));
    assert_eq!((register.index(), register.generation()), (11, mr.generation()));
    assert_eq!((invalidate.index(), invalidate.generation()), (11, mr.generation()));
    // The registration's flush comes after the invalidation was posted; then the invalidation's own.
    let mut mr = registering();
    mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidateCompleted).expect("registering");
    mr.register_failed(mr.generation()).expect("flushed");
    assert_eq!(mr.state(), State::Stale(Cause::FlushedRegister));
    mr.invalidate_failed(mr.generation()).expect("flushed as well");
    assert_eq!(mr.state(), State::Stale(Cause::FlushedRegister));
}

#[test]
fn u16_generation_skips_zero() {
    let mut mr = idle();
    for expected in (1..=599).step_by(2) {
        mr.take(OWNER, CONNECTION).expect("free");
        mr.map(&MAPPING).expect("owned");
        assert_eq!(mr.generation(), expected);
        mr.give_back().expect("mapped");
    }
}

#[test]
fn i20_key_succession() {
    assert_eq!(check_next_key(KEY, KEY + 1, 8), Ok(()));
    assert_eq!(check_next_key(0x1234_56FF, 0x1234_5600, 8), Ok(()));
    assert_eq!(check_next_key(KEY, KEY, 0), Ok(()));
}

/// What is mapped may end at the last address, and have as many elements as bytes.
#[test]
fn i18_mapping_at_its_limits_is_accepted() {
    for mapping in [
        Mapping { bytes: 1, elements: 1, ..MAPPING },
        Mapping { bytes: 7, elements: 7, ..MAPPING },
        Mapping { address: u64::MAX - u64::from(MAPPING.bytes), ..MAPPING },
        Mapping { iova: u64::MAX - u64::from(MAPPING.bytes), ..MAPPING },
    ] {
        assert!(owned().map(&mapping).is_ok(), "{mapping:?}");
    }
}

#[test]
fn s37_more_rotating_bits_than_a_key_has_leave_its_index_alone() {
    assert_eq!(next_key(0x12FF, KEY_TAG_BITS + 1), 0x1200);
    assert_eq!(next_key(0x12FE, KEY_TAG_BITS), 0x12FF);
}

#[test]
fn d13_zero_is_zero_wherever_the_first_byte_lies() {
    for policy in [IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased] {
        assert_eq!(iova(policy, BaseAddress::Zero, u64::MAX, u32::MAX), 0, "{policy:?}");
    }
}

#[test]
fn s38_nothing_is_open_where_nothing_is_mapped() {
    for (name, mr) in every_state() {
        let is_mapped = ["mapped", "registering", "valid", "invalidating"].contains(&name);
        assert_eq!((mr.access().is_some(), mr.grant().is_some()), (is_mapped, is_mapped), "{name}");
    }
}

/// Whoever got the MR early hears of a registration in front of the invalidation that is still in flight.
#[test]
fn s104_a_registration_completes_behind_its_early_return() {
    let mut mr = registering();
    let generation = mr.generation();
    mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidatePosted).expect("registering");
    assert_eq!(mr.registered(generation), Ok(()));
    mr.take(OWNER, CONNECTION).expect("returned early");
    assert_eq!(mr.registered(generation), Ok(()));
    assert_eq!(mr.registered(generation.wrapping_add(2)), Err(MrError::StaleCompletion));
}

/// A pad that was lost comes back as any other MR.
#[test]
fn s103_a_recovered_pad_serves_requests() {
    let mut mr = pad();
    mr.connection_lost(CONNECTION).expect("valid");
    mr.begin_recovery().expect("stale");
    mr.recovered(RegistrationId(79), 0x200, CONNECTION).expect("recovering");
    assert!(!mr.is_pad());
    mr.take(OWNER, CONNECTION).expect("idle");
    assert_eq!(mr.give_back(), Ok(()));
}

/// Names of connections differ wherever slot or epoch do.
#[test]
fn i24_no_two_connections_have_one_name() {
    let name = |index, epoch| ConnectionKey { index, epoch };
    let places: Vec<u16> = (0..16).map(|bit| 1 << bit).chain([0]).collect();
    for &index in &places {
        for &epoch in &places {
            for &other in &places {
                assert_eq!(name(index, epoch) == name(index, other), epoch == other, "{epoch} {other}");
                assert_eq!(name(index, epoch) == name(other, epoch), index == other, "{index} {other}");
                assert!(name(index, 0) != name(0, other) || index == 0 && other == 0, "{index} {other}");
            }
        }
    }
}
