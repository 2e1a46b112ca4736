//! Every call with arguments that are wrong, and every step that a state does not have: refused by name, and without effect.

use super::super::{ConnectionKey, Mr, MrError, ReturnPolicy, Step};
use super::world::{OPENING, OWNER, World, assert_same};
use crate::provider::{RegistrationId, WorkRequest};

type Outcome = Result<(), MrError>;
type Call<'a> = &'a dyn Fn(&mut Mr) -> Outcome;
type OwnedCall = Box<dyn Fn(&mut Mr) -> Outcome>;
type Completion = fn(&mut Mr, u32) -> Outcome;

const COMPLETED: ReturnPolicy = ReturnPolicy::OnInvalidateCompleted;

/// Opens it, and looks that a place is left alone where that is refused.
fn open(mr: &mut Mr, connection: ConnectionKey, as_pad: bool) -> Outcome {
    let (mut place, mut begins_round) = (WorkRequest::VACANT, false);
    let opened = if as_pad {
        mr.open_as_pad(connection, &OPENING, &mut place)
    } else {
        mr.open(connection, &OPENING, &mut place, &mut begins_round)
    };
    assert!(opened.is_ok() || (place, begins_round) == (WorkRequest::VACANT, false), "{place:?}");
    opened.map(drop)
}

/// The arrows that begin in each state, with what the rest is told there (I1 to I4, I5, I7 to I9,
/// I11, I13, I30).
fn refusals_of_steps(mr: &Mr, world: &World) -> Vec<Outcome> {
    let (step, connection) = (mr.step, world.connection());
    let free = matches!(step, Step::Idle | Step::Spent | Step::IdlePending);
    let unless = |allowed: bool, error| if allowed { Ok(()) } else { Err(error) };
    let invalidation = match step {
        _ if mr.is_pad() => Err(MrError::Denied),
        Step::Registering | Step::Valid => Ok(()),
        Step::Invalidating | Step::IdlePending | Step::Spent => Err(MrError::AlreadyInvalid),
        _ => Err(MrError::InvalidState),
    };
    let give_back = match step {
        _ if mr.is_pad() => Err(MrError::Denied),
        Step::Mapped => Ok(()),
        Step::Registering | Step::Valid | Step::Invalidating => Err(MrError::Busy),
        _ => Err(MrError::InvalidState),
    };
    let destroy = match step {
        Step::Idle | Step::Spent | Step::Stale | Step::Recovering => Ok(()),
        Step::Absent => Err(MrError::InvalidState),
        _ => Err(MrError::Busy),
    };
    let calls: [(Outcome, Call<'_>); 8] = [
        (unless(step == Step::Absent, MrError::InvalidState), &|mr| mr.install(RegistrationId(1), 1, connection)),
        (unless(free, MrError::InvalidState), &|mr| open(mr, connection, false)),
        (unless(free, MrError::InvalidState), &|mr| open(mr, connection, true)),
        (unless(step == Step::Registering, MrError::InvalidState), &Mr::register_refused),
        (invalidation, &|mr| mr.invalidate_posted(mr.key(), COMPLETED).map(drop)),
        (give_back, &Mr::give_back),
        (destroy, &Mr::destroyed),
        (unless(step == Step::Stale, MrError::InvalidState), &Mr::begin_recovery),
    ];
    let mut results = Vec::new();
    for (at, (expected, call)) in calls.into_iter().enumerate() {
        let mut after = mr.clone();
        let result = call(&mut after);
        assert_eq!(result, expected, "call {at} in {step:?}");
        if result.is_err() {
            assert_same(&after, mr);
        }
        results.push(result);
    }
    results
}

/// Calls whose arguments name another connection, key or owner (I6, I23 to I25).
fn refusals_of_arguments(mr: &Mr, world: &World) -> Vec<Outcome> {
    let connection = world.connection();
    let others = [ConnectionKey { index: 4, ..connection }, ConnectionKey { epoch: 2, ..connection }];
    let key = mr.key();
    let mut calls: Vec<OwnedCall> = vec![
        Box::new(move |mr| mr.invalidate_posted(key ^ 1, COMPLETED).map(drop)),
        Box::new(move |mr| mr.invalidate_posted(key ^ 0x100, COMPLETED).map(drop)),
        Box::new(move |mr| mr.remotely_invalidated(OWNER + 1, connection, key)),
        Box::new(move |mr| mr.remotely_invalidated(OWNER, connection, key ^ 1)),
    ];
    for other in others {
        calls.push(Box::new(move |mr| open(mr, other, false)));
        calls.push(Box::new(move |mr| open(mr, other, true)));
        calls.push(Box::new(move |mr| mr.remotely_invalidated(OWNER, other, key)));
        calls.push(Box::new(move |mr| mr.connection_lost(other)));
    }
    calls.iter().map(|call| refused(mr, call)).collect()
}

/// Completions of what is neither the MR's current use nor the invalidation that it has in mind (I16).
fn refusals_of_completions(mr: &Mr, world: &World) -> Vec<Outcome> {
    let invalidated: Completion = |mr, generation| mr.invalidated(generation).map(drop);
    let calls = [Mr::registered, Mr::register_failed, invalidated, Mr::invalidate_failed, Mr::invalidate_refused];
    let foreign = |generation: &u32| *generation != mr.generation() && !mr.is_pending(*generation);
    let generations = world.generations().filter(foreign);
    let results = generations.flat_map(|generation| calls.map(|call| refused(mr, &move |mr| call(mr, generation))));
    results.inspect(|result| assert_eq!(*result, Err(MrError::StaleCompletion))).collect()
}

fn refused(mr: &Mr, call: Call<'_>) -> Outcome {
    let mut after = mr.clone();
    let result = call(&mut after);
    assert!(result.is_err(), "{mr:?} became {after:?}");
    assert_same(&after, mr);
    result
}

/// Tries them all in one state. Returns how many were refused.
pub(super) fn check(world: &World) -> usize {
    let (mr, mut refused) = (&world.mr, 0);
    for results in [refusals_of_steps(mr, world), refusals_of_arguments(mr, world), refusals_of_completions(mr, world)]
    {
        refused += results.iter().filter(|result| result.is_err()).count();
    }
    refused
}
