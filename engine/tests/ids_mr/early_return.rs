//! MRs that are free to be opened again as soon as their invalidation is posted (S104, D2).

use crate::common::*;
use frwr_engine::mr::{Cause, Mr, MrError, Opening, ReturnPolicy, State};

const NEXT_OWNER: u32 = OWNER + 1;
const NEXT: Opening = Opening { owner: NEXT_OWNER, ..OPENING };

/// Opened for another request while its invalidation is in flight.
fn reopened() -> Mr {
    let mut mr = idle_pending();
    open(&mut mr, &NEXT).expect("early return");
    mr
}

/// The same, but the post refused it.
fn refused() -> Mr {
    let mut mr = reopened();
    mr.register_refused().expect("registering");
    mr
}

#[test]
fn s104_d02_early_return() {
    let mut mr = idle_pending();
    let first = generation(&mr);
    assert_eq!((mr.owner(), mr.is_live()), (None, true));
    // The next registration stands behind the invalidation in the same queue.
    open(&mut mr, &NEXT).expect("early return");
    assert!(mr.is_live(), "the first memory is still open");
    mr.invalidated(first).expect("in flight");
    assert_eq!((name_of(mr.state()), mr.owner()), ("registering", Some(NEXT_OWNER)));
    assert_eq!(mr.invalidated(first), Err(MrError::StaleCompletion));
}

#[test]
fn s104_d02_early_return_unused() {
    let first = generation(&idle_pending());
    let mut mr = refused();
    assert!(mr.is_live(), "the first memory is still open");
    mr.give_back().expect("unused");
    assert_eq!((name_of(mr.state()), mr.is_live()), ("idle_pending", true));
    open(&mut mr, &NEXT).expect("early return");
    mr.register_refused().expect("registering");
    mr.invalidated(first).expect("in flight");
    assert!(!mr.is_live());
    mr.give_back().expect("unused");
    assert_eq!(name_of(mr.state()), "idle");
    let mut direct = idle_pending();
    direct.invalidated(first).expect("in flight");
    assert_eq!(direct.state(), State::Idle { spent: true });
}

/// The key of the invalidation was burnt over meanwhile: the current one was never valid.
#[test]
fn s104_d14_what_was_burnt_before_the_invalidation_completed_is_not_spent() {
    let first = generation(&idle_pending());
    let mut mr = refused();
    mr.give_back().expect("unused");
    mr.invalidated(first).expect("in flight");
    assert_eq!(mr.state(), State::Idle { spent: false });
    assert_eq!(open(&mut mr, &OPENING).map(|fields| (fields.old_key, fields.key)), Ok((KEY + 1, KEY + 3)));
}

/// D2, condition 5: a flush reaches the MR wherever it is by now.
#[test]
fn s104_d02_flush_reaches_the_new_user() {
    let first = generation(&idle_pending());
    for mr in [idle_pending(), refused(), reopened()] {
        for registration_too in [false, true] {
            let mut mr = mr.clone();
            let (flushed, cause) = if registration_too {
                (mr.register_failed(first), Cause::FlushedRegister)
            } else {
                (mr.invalidate_failed(first), Cause::FlushedInvalidate)
            };
            assert_eq!((flushed, mr.state()), (Ok(()), State::Stale(cause)));
        }
    }
}

/// Whoever got the MR early hears of a registration in front of the invalidation that is still in
/// flight.
#[test]
fn s104_a_registration_completes_behind_its_early_return() {
    let mut mr = registering();
    let first = generation(&mr);
    mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidatePosted).expect("registering");
    assert_eq!(mr.registered(first), Ok(()));
    open(&mut mr, &NEXT).expect("returned early");
    mr.register_refused().expect("registering");
    assert_eq!(mr.registered(first), Ok(()));
    assert_eq!(mr.registered(generation(&mr)), Err(MrError::StaleCompletion), "that one was refused");
}

#[test]
fn s94_d02_the_end_of_the_connection_finds_what_is_in_flight() {
    for (mut mr, cause) in [
        (idle_pending(), Cause::FlushedInvalidate),
        (refused(), Cause::FlushedInvalidate),
        (reopened(), Cause::ValidAtDisconnect),
    ] {
        mr.connection_lost(CONNECTION).expect("has an object");
        assert_eq!((mr.state(), mr.is_live()), (State::Stale(cause), true));
    }
}
