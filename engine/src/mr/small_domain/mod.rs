//! All that can happen to one MR, in every order.
//!
//! Exhaustive enumeration in plain tests: a model checker of Rust such as Kani cannot be had everywhere where these tests run, and the
//! domain is small enough without.
//!
//! An MR and a strict device take every step that is possible, in every state that is reached ([`world`]): with keys of two
//! rotating bits, four work requests and completions on their way, and four keys given out meanwhile. States that differ only in how
//! many generations there were before are one. In each state of the MR every call with arguments that are wrong is tried as well
//! ([`refusals`]). What keys do over longer times is in [`keys`], for all eight bits.

mod keys;
mod refusals;
mod steps;
mod world;

use super::Step::{self, *};
use std::collections::{HashMap, HashSet, hash_map::Entry};
use world::{Act, Name, World, every_act};

/// The arrows between the states, and those of a refused post and of early return. An arrow from a state to itself is
/// one of them where something happened to the device only.
const EDGES: [(Step, &[Step]); 10] = [
    (Absent, &[Idle]),
    (Idle, &[Mapped, Registering, Stale, Absent]),
    (Spent, &[Mapped, Registering, Stale, Absent]),
    (Mapped, &[Idle, IdlePending, Stale]),
    (Registering, &[Valid, Invalidating, IdlePending, Spent, Stale]),
    (Valid, &[Invalidating, IdlePending, Spent, Stale]),
    (Invalidating, &[Spent, Stale]),
    (IdlePending, &[Idle, Spent, Mapped, Registering, Stale]),
    (Stale, &[Recovering, Absent]),
    (Recovering, &[Absent]),
];

/// Sequences of so many steps are walked one by one, whatever they have in common.
const SEQUENCE: u32 = 12;

/// Every state that can be reached, with the number of steps that it takes.
fn reachable(mut visit: impl FnMut(&World, Option<(Act, &World)>)) -> HashMap<Name, u32> {
    let first = World::new();
    let mut found = HashMap::from([(first.name(), 0)]);
    let mut layer = vec![first];
    let mut depth = 0;
    while !layer.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for world in &layer {
            visit(world, None);
            for act in every_act() {
                let mut after = world.clone();
                if after.act(act).is_none() {
                    continue;
                }
                after.check();
                visit(world, Some((act, &after)));
                if let Entry::Vacant(place) = found.entry(after.name()) {
                    place.insert(depth);
                    next.push(after);
                }
            }
        }
        layer = next;
    }
    found
}

/// No order of steps posts a second invalidation, registers over a live key, invalidates a dead one, posts on an MR whose state nobody
/// knows, or lets memory go before its fence ([`World::check`], and what the device says); and only arrows of the diagram are taken,
/// all of them.
#[test]
fn i_every_reachable_state_keeps_what_is_promised() {
    let (mut taken, mut refused) = (Vec::new(), 0);
    let mut mrs = HashSet::new();
    let found = reachable(|world, step| match step {
        Some((_, after)) => {
            let edge = (world.mr.step, after.mr.step);
            if !taken.contains(&edge) {
                taken.push(edge);
            }
        }
        None if mrs.insert(world.mr_name()) => refused += refusals::check(world),
        None => {}
    });
    for &(from, to) in &taken {
        let (_, legal) = EDGES.iter().find(|(step, _)| *step == from).expect("every step is there");
        assert!(from == to || legal.contains(&to), "{from:?} to {to:?}");
    }
    for (from, legal) in EDGES {
        for to in legal {
            assert!(taken.contains(&(from, *to)), "nothing leads from {from:?} to {to:?}");
        }
    }
    println!("{} states, {refused} refusals, {} steps deep", found.len(), found.values().max().unwrap_or(&0));
    assert!(found.len() > 1000, "the walk ended early: {}", found.len());
}

/// States that are taken to be the same are the same: no sequence, walked without regard to where others have been, gets to one
/// that the walk over states does not have, or has only later.
#[test]
fn i_every_sequence_stays_within_the_states_that_were_found() {
    fn walk(world: &World, found: &HashMap<Name, u32>, depth: u32) -> u64 {
        let seen = found.get(&world.name());
        assert!(seen.is_some_and(|seen| *seen <= depth), "{depth} steps, not {seen:?}: {world:?}");
        if depth == SEQUENCE {
            return 1;
        }
        let afters = every_act().filter_map(|act| {
            let mut after = world.clone();
            after.act(act)?;
            after.check();
            Some(after)
        });
        afters.map(|after| walk(&after, found, depth + 1)).sum()
    }
    let found = reachable(|_, _| ());
    let sequences = walk(&World::new(), &found, 0);
    println!("{sequences} sequences of {SEQUENCE} steps");
    assert!(sequences > 1000, "the walk ended early: {sequences}");
}
