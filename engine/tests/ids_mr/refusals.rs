//! The illegal transitions that concern one MR (I1 to I30): each is provoked, refused by name, and changes nothing.

use crate::common::*;
use frwr_engine::mr::{Mr, MrError, Opening, ReturnPolicy};
use frwr_engine::provider::{Access, BaseId, RegistrationId};

const COMPLETED: ReturnPolicy = ReturnPolicy::OnInvalidateCompleted;

/// States in which an MR is not free.
const TAKEN: [&str; 7] = ["absent", "mapped", "registering", "valid", "invalidating", "stale", "recovering"];

/// Those in which it is.
const FREE: [&str; 3] = ["idle", "spent", "idle_pending"];

/// A method that takes a completion's generation.
type Completion = fn(&mut Mr, u32) -> Result<(), MrError>;

/// In each named state `step` is refused with `error` and the MR stays as it was.
#[track_caller]
fn refused<T>(states: &[&str], error: MrError, step: impl Fn(&mut Mr) -> Result<T, MrError>) {
    for (name, mr) in every_state().iter_mut().filter(|(name, _)| states.contains(name)) {
        refused_once(name, mr, error, &step);
    }
    assert!(states.iter().all(|state| every_state().iter().any(|(name, _)| name == state)), "unknown state");
}

#[track_caller]
fn refused_once<T>(name: &str, mr: &mut Mr, error: MrError, step: impl Fn(&mut Mr) -> Result<T, MrError>) {
    let before = view(mr);
    assert_eq!(step(mr).err(), Some(error), "{name}");
    assert_eq!(view(mr), before, "{name} changed");
}

#[test]
fn i01_opening_of_an_mr_that_is_not_free_is_refused() {
    refused(&TAKEN, MrError::InvalidState, |mr| open(mr, &OPENING));
    refused(&TAKEN, MrError::InvalidState, |mr| open_as_pad(mr, CONNECTION));
    // Also where it is another's.
    refused(&TAKEN, MrError::InvalidState, |mr| open_on(mr, OTHER_QUEUE, &OPENING));
    for (name, mut mr) in every_state() {
        assert_eq!(open(&mut mr, &OPENING).is_ok(), FREE.contains(&name), "{name}");
    }
}

#[test]
fn i02_second_registration_is_refused() {
    refused(&["registering", "valid"], MrError::InvalidState, |mr| open(mr, &OPENING));
    refused_once("pad", &mut pad(), MrError::InvalidState, |mr| open(mr, &OPENING));
    refused_once("pad", &mut pad(), MrError::InvalidState, |mr| open_as_pad(mr, CONNECTION));
}

/// What is registered is what is opened with it: nothing of an earlier opening, whatever became of
/// that.
#[test]
fn i03_registration_of_another_opening_is_refused() {
    let other = Opening {
        owner: OWNER + 1,
        bytes: 100,
        base: BaseId(6),
        elements: 1,
        access: Access::RemoteWrite,
        iova: 0x9000,
        ..OPENING
    };
    refused(&["mapped"], MrError::InvalidState, |mr| open(mr, &other));
    let mut given_back = mapped();
    given_back.give_back().expect("mapped");
    for mut mr in [idle(), given_back, spent(), idle_pending()] {
        assert_eq!((mr.grant(), mr.access(), mr.owner()), (None, None, None));
        let fields = open(&mut mr, &other).expect("free");
        assert_eq!((fields.length, fields.base, fields.elements.count), (100, BaseId(6), 1));
        assert_eq!((fields.access, fields.iova), (Access::RemoteWrite, 0x9000));
        assert_eq!((mr.grant().map(|grant| grant.length), mr.owner()), (Some(100), Some(OWNER + 1)));
    }
}

#[test]
fn i04_invalidation_of_what_was_never_registered_is_refused() {
    refused(&["idle", "mapped", "absent"], MrError::InvalidState, |mr| mr.invalidate_posted(mr.key(), COMPLETED));
    // An MR in an unknown state is never repaired by an invalidation.
    refused(&["stale", "recovering"], MrError::InvalidState, |mr| mr.invalidate_posted(mr.key(), COMPLETED));
}

#[test]
fn i05_double_invalidate_is_refused() {
    for policy in [COMPLETED, ReturnPolicy::OnInvalidatePosted] {
        refused(&["invalidating", "idle_pending", "spent"], MrError::AlreadyInvalid, |mr| {
            mr.invalidate_posted(mr.key(), policy)
        });
    }
    let mut remotely = valid();
    remotely.remotely_invalidated(OWNER, CONNECTION, remotely.key()).expect("held");
    refused_once("remote", &mut remotely, MrError::AlreadyInvalid, |mr| mr.invalidate_posted(mr.key(), COMPLETED));
}

#[test]
fn i06_invalidation_with_another_key_is_refused() {
    for foreign in [KEY, KEY + 2, 0xAAAA_0079, 0] {
        refused(&["registering", "valid"], MrError::StaleKey, |mr| mr.invalidate_posted(foreign, COMPLETED));
    }
}

#[test]
fn i07_give_back_of_a_registered_mr_is_refused() {
    refused(&["registering", "valid"], MrError::Busy, Mr::give_back);
}

#[test]
fn i08_give_back_while_invalidating_is_refused() {
    refused(&["invalidating"], MrError::Busy, Mr::give_back);
    // With early return the MR is on the free list already.
    refused(&["idle_pending"], MrError::InvalidState, Mr::give_back);
}

#[test]
fn i09_reset_with_a_work_request_in_flight_is_refused() {
    let mut request = [mapped(), registering(), valid(), invalidating()];
    let results: Vec<_> = request.iter_mut().map(Mr::give_back).collect();
    assert_eq!(results, [Ok(()), Err(MrError::Busy), Err(MrError::Busy), Err(MrError::Busy)]);
}

/// An MR that is live is no fence: its memory is not handed up, unmapped or used again, nor is its
/// request completed.
#[test]
fn i10_i12_i14_memory_before_the_fence_is_live() {
    let open = ["registering", "valid", "invalidating", "idle_pending", "stale", "recovering"];
    for (name, mr) in every_state() {
        assert_eq!(mr.is_live(), open.contains(&name), "{name}");
    }
    let mut flushed = invalidating();
    flushed.invalidate_failed(generation(&flushed)).expect("in flight");
    assert!(flushed.is_live());
    let mut early = idle_pending();
    crate::common::open(&mut early, &OPENING).expect("early return");
    early.register_refused().expect("registering");
    assert!(early.is_live());
}

#[test]
fn i11_release_of_an_mr_in_use_is_refused() {
    let busy = ["mapped", "registering", "valid", "invalidating", "idle_pending"];
    refused(&busy, MrError::Busy, Mr::destroyed);
    for (name, mut mr) in every_state() {
        if busy.contains(&name) {
            mr.connection_lost(CONNECTION).expect("drained");
            assert_eq!(mr.destroyed(), Ok(()), "{name}");
        }
    }
}

#[test]
fn i13_second_release_is_refused() {
    refused(&["absent"], MrError::InvalidState, Mr::destroyed);
    refused(&["absent", "idle", "spent", "stale", "recovering"], MrError::InvalidState, Mr::give_back);
    let mut mr = mapped();
    mr.give_back().expect("mapped");
    refused_once("given back", &mut mr, MrError::InvalidState, Mr::give_back);
    // Nor can one MR be on two requests, or one descriptor hold two objects.
    refused(&TAKEN, MrError::InvalidState, |mr| open(mr, &Opening { owner: OWNER + 1, ..OPENING }));
    refused(&TAKEN, MrError::InvalidState, |mr| open_as_pad(mr, CONNECTION));
    let (installed, both): (Vec<_>, _) = (every_state().map(|(name, _)| name)[1..].into(), MrError::InvalidState);
    refused(&installed, both, |mr| mr.install(RegistrationId(1), 1, CONNECTION));
}

#[test]
fn i16_completion_of_another_generation_is_refused() {
    let invalidated: fn(&mut Mr, u32) -> Result<(), MrError> = |mr, generation| mr.invalidated(generation).map(drop);
    let completions: [Completion; 5] =
        [Mr::registered, Mr::register_failed, invalidated, Mr::invalidate_failed, Mr::invalidate_refused];
    for (name, mr) in &every_state() {
        for (number, completion) in completions.iter().enumerate() {
            let current = generation(mr);
            for generation in [0, current.wrapping_add(1), current.wrapping_sub(1), u32::MAX] {
                if generation == current {
                    continue;
                }
                let name = format!("{name}, completion {number}");
                refused_once(&name, &mut mr.clone(), MrError::StaleCompletion, |mr| completion(mr, generation));
            }
        }
    }
}

#[test]
fn i16_duplicated_completions_are_refused() {
    refused_once("spent", &mut spent(), MrError::StaleCompletion, |mr| mr.invalidated(generation(mr)));
    refused_once("spent", &mut spent(), MrError::StaleCompletion, |mr| mr.invalidate_failed(generation(mr)));
    refused_once("spent", &mut spent(), MrError::StaleCompletion, |mr| mr.register_failed(generation(mr)));
    // A completion of something that was never posted.
    refused(&["mapped", "valid"], MrError::StaleCompletion, |mr| mr.invalidated(generation(mr)));
    refused(&["mapped"], MrError::StaleCompletion, |mr| mr.registered(generation(mr)));
    refused(&["mapped", "valid"], MrError::StaleCompletion, |mr| mr.register_failed(generation(mr)));
    refused(&["registering", "valid"], MrError::StaleCompletion, |mr| mr.invalidate_refused(generation(mr)));
    refused(&["registering", "valid"], MrError::StaleCompletion, |mr| mr.invalidate_failed(generation(mr)));
}

#[test]
fn i16_late_flush_after_reuse_is_dropped() {
    let mut mr = spent();
    let first = generation(&mr);
    open(&mut mr, &OPENING).expect("free");
    refused_once("reused", &mut mr, MrError::StaleCompletion, |mr| mr.register_failed(first));
    refused_once("reused", &mut mr, MrError::StaleCompletion, |mr| mr.invalidate_failed(first));
}

/// Whoever gathers checks it; a debug build looks whether he did.
#[test]
#[cfg(debug_assertions)]
fn i18_senseless_opening_stops_a_debug_build() {
    for opening in [
        Opening { bytes: 0, ..OPENING },
        Opening { elements: 0, ..OPENING },
        Opening { bytes: 2, elements: 3, ..OPENING },
        Opening { iova: u64::MAX - 8191, ..OPENING },
        Opening { key_mask: 0x1FF, ..OPENING },
    ] {
        assert!(std::panic::catch_unwind(|| open(&mut idle(), &opening)).is_err(), "{opening:?}");
    }
}

/// What is opened may end at the last address, and have as many elements as bytes.
#[test]
fn i18_opening_at_its_limits_is_accepted() {
    for opening in [
        Opening { bytes: 1, elements: 1, ..OPENING },
        Opening { bytes: 7, elements: 7, ..OPENING },
        Opening { iova: u64::MAX - u64::from(OPENING.bytes), ..OPENING },
    ] {
        assert!(open(&mut idle(), &opening).is_ok(), "{opening:?}");
    }
}

#[test]
fn i21_wider_rights_without_a_new_registration_are_refused() {
    let wider = Opening { access: Access::RemoteReadWrite, ..OPENING };
    for mut mr in [registering(), valid()] {
        refused_once("held", &mut mr, MrError::InvalidState, |mr| open(mr, &wider));
        assert_eq!(mr.access(), Some(Access::RemoteRead));
    }
}

/// There is a key to be told where its registration stands in the chain, and nowhere before
/// (`common::open_on` looks at both): an MR that was not opened, or whose registration was refused
/// or failed, has nothing to be told.
#[test]
fn i22_u02_there_is_no_key_to_tell_ahead_of_its_registration() {
    for (name, mr) in every_state() {
        let registered = ["registering", "valid", "invalidating"].contains(&name);
        assert_eq!(mr.grant().map(|grant| grant.key), registered.then_some(mr.key()), "{name}");
    }
    for mut mr in [idle(), spent(), idle_pending()] {
        let fields = open(&mut mr, &OPENING).expect("free");
        assert_eq!(mr.grant().map(|grant| grant.key), Some(fields.key));
    }
}

#[test]
fn i23_early_return_on_another_queue_is_refused() {
    refused(&FREE, MrError::WrongQueue, |mr| open_on(mr, OTHER_QUEUE, &OPENING));
    refused(&FREE, MrError::WrongQueue, |mr| open_as_pad(mr, OTHER_QUEUE));
}

#[test]
fn i24_mr_of_a_former_connection_is_refused() {
    refused(&FREE, MrError::StaleConnection, |mr| open_on(mr, NEXT_EPOCH, &OPENING));
    refused(&FREE, MrError::StaleConnection, |mr| open_as_pad(mr, NEXT_EPOCH));
    let has_object = ["idle", "spent", "mapped", "registering", "valid", "invalidating", "idle_pending", "stale"];
    refused(&has_object, MrError::StaleConnection, |mr| mr.connection_lost(NEXT_EPOCH));
    refused(&has_object, MrError::WrongQueue, |mr| mr.connection_lost(OTHER_QUEUE));
    refused(&["absent", "recovering"], MrError::InvalidState, |mr| mr.connection_lost(CONNECTION));
}

#[test]
fn i25_f13_remote_invalidation_of_what_is_not_held_is_refused() {
    let others = ["absent", "idle", "spent", "mapped", "invalidating", "idle_pending", "stale", "recovering"];
    refused(&others, MrError::ProtocolError, |mr| mr.remotely_invalidated(OWNER, CONNECTION, mr.key()));
    let held = ["registering", "valid"];
    refused(&held, MrError::ProtocolError, |mr| mr.remotely_invalidated(OWNER + 1, CONNECTION, mr.key()));
    refused(&held, MrError::ProtocolError, |mr| mr.remotely_invalidated(OWNER, CONNECTION, KEY));
    refused(&held, MrError::ProtocolError, |mr| mr.remotely_invalidated(OWNER, NEXT_EPOCH, mr.key()));
}

#[test]
fn i26_pad_is_never_taken_away() {
    refused_once("pad", &mut pad(), MrError::Denied, |mr| mr.invalidate_posted(mr.key(), COMPLETED));
    refused_once("pad", &mut pad(), MrError::Denied, Mr::give_back);
    refused_once("pad", &mut pad(), MrError::Denied, |mr| mr.remotely_invalidated(OWNER, CONNECTION, mr.key()));
    let mut unregistered = idle();
    open_as_pad(&mut unregistered, CONNECTION).expect("free");
    unregistered.register_refused().expect("registering");
    refused_once("pad, refused", &mut unregistered, MrError::Denied, Mr::give_back);
}

#[test]
fn i30_repair_of_a_sound_mr_is_refused() {
    let others = ["absent", "idle", "spent", "mapped", "registering", "valid", "invalidating", "idle_pending"];
    refused(&others, MrError::InvalidState, Mr::begin_recovery);
    refused(&["recovering"], MrError::InvalidState, Mr::begin_recovery);
    // A new object comes behind the end of the old one.
    refused(&["recovering"], MrError::InvalidState, |mr| mr.install(RegistrationId(1), 1, CONNECTION));
    // After a failed repair there is nothing to free again.
    let mut orphan = recovering();
    orphan.destroyed().expect("recovering");
    refused_once("orphan", &mut orphan, MrError::InvalidState, Mr::destroyed);
    refused_once("orphan", &mut orphan, MrError::InvalidState, |mr| open(mr, &OPENING));
}

#[test]
fn i32_registration_of_an_mr_that_is_not_free_is_refused() {
    refused(&["registering", "valid", "invalidating", "stale"], MrError::InvalidState, |mr| open(mr, &OPENING));
    let others: Vec<_> =
        every_state().map(|(name, _)| name).into_iter().filter(|name| *name != "registering").collect();
    refused(&others, MrError::InvalidState, Mr::register_refused);
}
