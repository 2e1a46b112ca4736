//! The illegal transitions that concern one MR (I1 to I30): each is provoked, refused by name, and changes nothing.

use crate::common::*;
use frwr_engine::mr::{ConnectionKey, Mapping, Mr, MrError, ReturnPolicy, check_next_key};
use frwr_engine::provider::{Access, RegistrationId};

const COMPLETED: ReturnPolicy = ReturnPolicy::OnInvalidateCompleted;
const OTHER_QUEUE: ConnectionKey = ConnectionKey { index: 4, epoch: 9 };
const NEXT_EPOCH: ConnectionKey = ConnectionKey { index: 3, epoch: 10 };

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
fn i01_map_unless_owned_is_refused() {
    let others =
        ["absent", "idle", "mapped", "registering", "valid", "invalidating", "idle_pending", "stale", "recovering"];
    refused(&others, MrError::InvalidState, |mr| mr.map(&MAPPING));
}

#[test]
fn i02_second_registration_is_refused() {
    refused(&["registering", "valid"], MrError::InvalidState, Mr::register_posted);
}

#[test]
fn i03_registration_without_mapping_is_refused() {
    let others = ["absent", "idle", "owned", "invalidating", "idle_pending", "stale", "recovering"];
    refused(&others, MrError::InvalidState, Mr::register_posted);
}

#[test]
fn i04_invalidation_of_what_was_never_registered_is_refused() {
    refused(&["idle", "owned", "mapped", "absent"], MrError::InvalidState, |mr| {
        mr.invalidate_posted(mr.key(), COMPLETED)
    });
    // An MR in an unknown state is never repaired by an invalidation.
    refused(&["stale", "recovering"], MrError::InvalidState, |mr| mr.invalidate_posted(mr.key(), COMPLETED));
}

#[test]
fn i05_double_invalidate_is_refused() {
    for policy in [COMPLETED, ReturnPolicy::OnInvalidatePosted] {
        refused(&["invalidating", "idle_pending"], MrError::AlreadyInvalid, |mr| {
            mr.invalidate_posted(mr.key(), policy)
        });
    }
    refused_once("spent", &mut spent(), MrError::AlreadyInvalid, |mr| mr.invalidate_posted(mr.key(), COMPLETED));
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
    let mut request = [mapped(), registering(), owned()];
    let results: Vec<_> = request.iter_mut().map(Mr::give_back).collect();
    assert_eq!(results, [Ok(()), Err(MrError::Busy), Ok(())]);
}

#[test]
fn i10_i12_i14_memory_before_the_fence_is_refused() {
    let open = ["registering", "valid", "invalidating", "idle_pending", "stale", "recovering"];
    refused(&open, MrError::NotFenced, |mr| mr.check_fenced());
    for (name, mr) in every_state() {
        assert_eq!(mr.check_fenced().is_ok(), !open.contains(&name), "{name}");
    }
    let mut flushed = invalidating();
    flushed.invalidate_failed(flushed.generation()).expect("in flight");
    assert_eq!(flushed.check_fenced(), Err(MrError::NotFenced));
    let mut early = idle_pending();
    early.take(OWNER, CONNECTION).expect("early return");
    assert_eq!(early.check_fenced(), Err(MrError::NotFenced));
}

#[test]
fn i11_release_of_an_mr_in_use_is_refused() {
    let busy = ["owned", "mapped", "registering", "valid", "invalidating", "idle_pending"];
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
    refused(&["absent", "idle", "stale", "recovering"], MrError::InvalidState, Mr::give_back);
    let mut mr = mapped();
    mr.give_back().expect("mapped");
    refused_once("given back", &mut mr, MrError::InvalidState, Mr::give_back);
    // Nor can one MR be on two requests, or one descriptor hold two objects.
    let taken = ["absent", "owned", "mapped", "registering", "valid", "invalidating", "stale", "recovering"];
    refused(&taken, MrError::InvalidState, |mr| mr.take(OWNER + 1, CONNECTION));
    refused(&taken, MrError::InvalidState, |mr| mr.take_as_pad(CONNECTION));
    let installed = ["idle", "owned", "mapped", "registering", "valid", "invalidating", "idle_pending", "stale"];
    refused(&installed, MrError::InvalidState, |mr| mr.install(RegistrationId(1), 1, CONNECTION));
}

#[test]
fn i16_completion_of_another_generation_is_refused() {
    let invalidated: fn(&mut Mr, u32) -> Result<(), MrError> = |mr, generation| mr.invalidated(generation).map(drop);
    let completions: [Completion; 5] =
        [Mr::registered, Mr::register_failed, invalidated, Mr::invalidate_failed, Mr::invalidate_refused];
    for (name, mr) in &every_state() {
        for (number, completion) in completions.iter().enumerate() {
            for generation in [0, mr.generation().wrapping_add(1), mr.generation().wrapping_sub(1), u32::MAX] {
                if generation == mr.generation() {
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
    refused_once("spent", &mut spent(), MrError::StaleCompletion, |mr| mr.invalidated(mr.generation()));
    refused_once("spent", &mut spent(), MrError::StaleCompletion, |mr| mr.invalidate_failed(mr.generation()));
    refused_once("spent", &mut spent(), MrError::StaleCompletion, |mr| mr.register_failed(mr.generation()));
    // A completion of something that was never posted.
    refused(&["mapped", "valid", "owned"], MrError::StaleCompletion, |mr| mr.invalidated(mr.generation()));
    refused(&["mapped", "owned"], MrError::StaleCompletion, |mr| mr.registered(mr.generation()));
    refused(&["mapped", "valid"], MrError::StaleCompletion, |mr| mr.register_failed(mr.generation()));
    refused(&["registering", "valid"], MrError::StaleCompletion, |mr| mr.invalidate_refused(mr.generation()));
    refused(&["registering", "valid"], MrError::StaleCompletion, |mr| mr.invalidate_failed(mr.generation()));
}

#[test]
fn i16_late_flush_after_reuse_is_dropped() {
    let mut mr = spent();
    let first = mr.generation();
    mr.take(OWNER, CONNECTION).expect("free");
    mr.map(&MAPPING).expect("owned");
    mr.register_posted().expect("mapped");
    refused_once("reused", &mut mr, MrError::StaleCompletion, |mr| mr.register_failed(first));
    refused_once("reused", &mut mr, MrError::StaleCompletion, |mr| mr.invalidate_failed(first));
}

#[test]
fn i18_senseless_mapping_is_refused() {
    for mapping in [
        Mapping { bytes: 0, ..MAPPING },
        Mapping { elements: 0, ..MAPPING },
        Mapping { bytes: 2, elements: 3, ..MAPPING },
        Mapping { address: u64::MAX - 8191, ..MAPPING },
        Mapping { iova: u64::MAX - 8191, ..MAPPING },
    ] {
        refused(&["owned"], MrError::InvalidArgument, |mr| mr.map(&mapping));
    }
    assert!(owned().map(&Mapping { iova: u64::MAX - 8192, ..MAPPING }).is_ok());
}

#[test]
fn i20_key_changes_are_refused() {
    let mut results = vec![
        check_next_key(KEY, KEY, 8),
        check_next_key(KEY, KEY ^ 0x100, 8),
        check_next_key(KEY, KEY + 1, 0),
        check_next_key(KEY, KEY + 1, 9),
    ];
    results.dedup();
    assert_eq!(results, [Err(MrError::InvalidKey)]);
    refused(&["owned"], MrError::InvalidKey, |mr| mr.map(&Mapping { rotating_key_bits: 9, ..MAPPING }));
}

#[test]
fn i21_wider_rights_without_a_new_registration_are_refused() {
    let wider = Mapping { access: Access::RemoteReadWrite, ..MAPPING };
    refused(&["registering", "valid"], MrError::InvalidState, |mr| mr.map(&wider));
}

#[test]
fn i22_u02_announcement_ahead_of_the_registration_is_refused() {
    let early = ["absent", "idle", "owned", "mapped", "invalidating", "idle_pending", "stale", "recovering"];
    refused(&early, MrError::NotOrdered, |mr| mr.announce(CONNECTION));
    assert!(registering().announce(CONNECTION).is_ok());
    refused(&["registering", "valid"], MrError::WrongQueue, |mr| mr.announce(OTHER_QUEUE));
    refused(&["registering", "valid"], MrError::StaleConnection, |mr| mr.announce(NEXT_EPOCH));
}

#[test]
fn i23_early_return_on_another_queue_is_refused() {
    refused(&["idle_pending", "idle"], MrError::WrongQueue, |mr| mr.take(OWNER, OTHER_QUEUE));
    refused(&["idle_pending", "idle"], MrError::WrongQueue, |mr| mr.take_as_pad(OTHER_QUEUE));
}

#[test]
fn i24_mr_of_a_former_connection_is_refused() {
    refused(&["idle", "idle_pending"], MrError::StaleConnection, |mr| mr.take(OWNER, NEXT_EPOCH));
    let has_object = ["idle", "owned", "mapped", "registering", "valid", "invalidating", "idle_pending", "stale"];
    refused(&has_object, MrError::StaleConnection, |mr| mr.connection_lost(NEXT_EPOCH));
    refused(&has_object, MrError::WrongQueue, |mr| mr.connection_lost(OTHER_QUEUE));
    refused(&["absent", "recovering"], MrError::InvalidState, |mr| mr.connection_lost(CONNECTION));
}

#[test]
fn i25_f13_remote_invalidation_of_what_is_not_held_is_refused() {
    let others = ["absent", "idle", "owned", "mapped", "invalidating", "idle_pending", "stale", "recovering"];
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
    refused_once("pad", &mut pad(), MrError::Denied, |mr| mr.remotely_invalidated(u32::MAX, CONNECTION, mr.key()));
    let mut unregistered = idle();
    unregistered.take_as_pad(CONNECTION).expect("free");
    refused_once("pad, owned", &mut unregistered, MrError::Denied, Mr::give_back);
}

#[test]
fn i30_repair_of_a_sound_mr_is_refused() {
    let others = ["absent", "idle", "owned", "mapped", "registering", "valid", "invalidating", "idle_pending"];
    refused(&others, MrError::InvalidState, Mr::begin_recovery);
    refused(&["recovering"], MrError::InvalidState, Mr::begin_recovery);
    let not_recovering = ["absent", "idle", "valid", "stale"];
    refused(&not_recovering, MrError::InvalidState, |mr| mr.recovered(RegistrationId(1), 1, CONNECTION));
    // After a failed repair there is nothing to free again.
    let mut orphan = recovering();
    orphan.destroyed().expect("recovering");
    refused_once("orphan", &mut orphan, MrError::InvalidState, Mr::destroyed);
    refused_once("orphan", &mut orphan, MrError::InvalidState, |mr| mr.take(OWNER, CONNECTION));
}

#[test]
fn i32_registration_of_an_mr_that_is_not_free_is_refused() {
    refused(&["registering", "valid", "invalidating", "stale"], MrError::InvalidState, Mr::register_posted);
    refused(&["owned", "mapped", "valid"], MrError::InvalidState, Mr::register_refused);
}
