//! The life of one MR: every arrow of the diagram.

use crate::common::*;
use frwr_engine::mr::{Cause, ConnectionKey, MR_BYTES, Mr, MrError, ReturnPolicy, State};
use frwr_engine::provider::{Operation, RegistrationId, TokenKind};

#[test]
fn one_mr_is_one_cache_line() {
    assert!(size_of::<Mr>() <= MR_BYTES && MR_BYTES == 64);
}

#[test]
fn s18_s19_fresh_mr() {
    let mut mr = idle();
    assert_eq!(mr.state(), State::Idle { spent: false });
    assert_eq!((mr.object(), mr.key(), generation(&mr)), (RegistrationId(77), KEY, u32::MAX));
    assert_eq!(is_of(&mr, CONNECTION), Ok(()));
    assert_eq!((mr.grant(), mr.owner(), mr.is_live(), is_pad(&mr)), (None, None, false, false));
    // The first use needs no invalidation before it.
    open(&mut mr, &OPENING).expect("free");
}

#[test]
fn s20_destroyed_mr_has_no_object() {
    let mut mr = spent();
    let token = mr.token_register();
    let object = mr.object();
    mr.destroyed().expect("free");
    assert_eq!((mr.state(), mr.is_live()), (State::Absent, false));
    assert_ne!(mr.object(), object);
    // A new object goes on counting, so that completions of the old one stay recognisable.
    mr.install(RegistrationId(78), 0x100, CONNECTION).expect("absent");
    assert_eq!((mr.token_register(), mr.object()), (token, RegistrationId(78)));
}

#[test]
fn s23_taken_mr_knows_its_request() {
    for (name, mr) in every_state() {
        let taken = ["mapped", "registering", "valid", "invalidating"].contains(&name);
        assert_eq!(mr.owner(), taken.then_some(OWNER), "{name}");
    }
}

#[test]
fn s41_a_refused_registration_does_not_reach_the_device() {
    let mut mr = mapped();
    assert!(!mr.is_live() && mr.grant().is_none());
    // So that no peer can have killed its key.
    let key = mr.key();
    assert_eq!(mr.remotely_invalidated(OWNER, CONNECTION, key), Err(MrError::ProtocolError));
}

#[test]
fn s45_s57_registration_completes_or_fails() {
    let mut mr = registering();
    assert!(mr.is_live() && mr.grant().is_some_and(|grant| grant.key == mr.key()) && mr.key() != KEY);
    mr.registered(generation(&mr)).expect("registering");
    mr.registered(generation(&mr)).expect("again");
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
        assert_eq!(mr.registered(generation(&mr)), Ok(()));
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
        mr.registered(generation(&mr)).expect("late news of the registration");
        assert_eq!(mr.invalidated(generation(&mr)), Ok(Some(OWNER)));
        assert_eq!((name_of(mr.state()), mr.is_live()), ("spent", false));
    }
}

#[test]
fn s71_s73_d07_refused_invalidation() {
    let mut mr = invalidating();
    mr.invalidate_refused(generation(&mr)).expect("marked as posted");
    assert_eq!(mr.state(), State::Stale(Cause::UnpostedInvalidate));
    assert!(mr.is_live());
}

#[test]
fn s74_s82_d06_flushed_invalidation() {
    let mut mr = invalidating();
    mr.invalidate_failed(generation(&mr)).expect("in flight");
    assert_eq!(mr.state(), State::Stale(Cause::FlushedInvalidate));
    assert!(mr.is_live());
}

#[test]
fn s90_s92_f08_pad() {
    let mut mr = pad();
    assert!(is_pad(&mr) && mr.owner().is_none());
    assert_eq!(mr.grant().map(|grant| grant.length), Some(4));
    mr.connection_lost(CONNECTION).expect("the connection ended");
    mr.destroyed().expect("stale");
    assert!(!is_pad(&mr));
    // The descriptor serves requests again.
    mr.install(RegistrationId(80), 0x900, CONNECTION).expect("absent");
    assert!(!is_pad(&mr));
    // A pad whose registration failed or was refused announces nothing.
    let (mut failed, mut refused) = (idle(), idle());
    open_as_pad(&mut failed, CONNECTION).expect("free");
    failed.register_failed(generation(&failed)).expect("registering");
    open_as_pad(&mut refused, CONNECTION).expect("free");
    refused.register_refused().expect("registering");
    assert_eq!((failed.grant(), refused.grant()), (None, None));
}

#[test]
fn s94_s96_d09_end_of_the_connection() {
    for (mut mr, cause) in [
        (idle(), Cause::UnusedAtDisconnect),
        (spent(), Cause::UnusedAtDisconnect),
        (mapped(), Cause::UnusedAtDisconnect),
        (registering(), Cause::ValidAtDisconnect),
        (valid(), Cause::ValidAtDisconnect),
        (pad(), Cause::ValidAtDisconnect),
        (invalidating(), Cause::FlushedInvalidate),
        (idle_pending(), Cause::FlushedInvalidate),
        (stale(), Cause::FlushedRegister),
    ] {
        mr.connection_lost(CONNECTION).expect("has an object");
        assert_eq!(mr.state(), State::Stale(cause));
        assert_eq!(mr.is_live(), cause != Cause::UnusedAtDisconnect);
        mr.connection_lost(CONNECTION).expect("again");
        assert_eq!(mr.state(), State::Stale(cause), "the first cause stands");
        mr.destroyed().expect("stale");
        assert!(!mr.is_live());
    }
}

#[test]
fn s103_s105_d08_f09_recovery() {
    let mut mr = recovering();
    assert!(mr.is_live(), "the old key may be valid until its object is destroyed");
    mr.destroyed().expect("recovering");
    mr.install(RegistrationId(90), 0xFF00_0001, NEXT_EPOCH).expect("absent");
    assert_eq!((mr.state(), mr.key()), (State::Idle { spent: false }, 0xFF00_0001));
    open_on(&mut mr, NEXT_EPOCH, &OPENING).expect("free");
    // A failed repair ends the object once.
    let mut orphan = recovering();
    orphan.destroyed().expect("recovering");
    assert_eq!(orphan.destroyed(), Err(MrError::InvalidState));
}

/// A pad that was lost comes back as any other MR.
#[test]
fn s103_a_recovered_pad_serves_requests() {
    let mut mr = pad();
    mr.connection_lost(CONNECTION).expect("valid");
    mr.begin_recovery().expect("stale");
    mr.destroyed().expect("recovering");
    mr.install(RegistrationId(79), 0x200, CONNECTION).expect("absent");
    assert!(!is_pad(&mr));
    open(&mut mr, &OPENING).expect("idle");
    mr.register_refused().expect("registering");
    assert_eq!(mr.give_back(), Ok(()));
}

#[test]
fn s115_f07_two_flushes_of_one_mr() {
    let mr = registering();
    let (register, invalidate) = (mr.token_register(), mr.token_invalidate());
    assert_eq!((register.kind(), invalidate.kind()), (TokenKind::Register, TokenKind::Invalidate));
    assert_eq!((register.index(), register.generation()), (11, 1));
    assert_eq!((invalidate.index(), invalidate.generation()), (11, 1));
    // The registration's flush comes after the invalidation was posted; then the invalidation's own.
    let mut mr = registering();
    mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidateCompleted).expect("registering");
    mr.register_failed(generation(&mr)).expect("flushed");
    assert_eq!(mr.state(), State::Stale(Cause::FlushedRegister));
    mr.invalidate_failed(generation(&mr)).expect("flushed as well");
    assert_eq!(mr.state(), State::Stale(Cause::FlushedRegister));
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
