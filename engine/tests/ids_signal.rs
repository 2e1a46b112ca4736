//! Signalling: traces T1 to T4, S46 to S50, S54, S55 and the bound I31.

use frwr_engine::signal::{SignalPolicy, Signaller, held_slots_pressure};
use proptest::prelude::*;

/// Large enough that the bound of half the queue never interferes.
const LARGE_QUEUE: u32 = 4096;

fn kernel(batch: u32) -> Signaller {
    Signaller::new(SignalPolicy::KernelBudget { batch }, LARGE_QUEUE)
}

/// Plays messages of (work requests, kref) and returns which were signalled.
fn play(signaller: &mut Signaller, messages: &[(u32, u32)]) -> Vec<bool> {
    messages.iter().map(|&(work_requests, kref)| signaller.message(work_requests, kref > 1, false)).collect()
}

/// How many single work requests pass unsignalled: the budget left, as an outsider sees it.
fn budget_of(signaller: &Signaller) -> u32 {
    let mut copy = signaller.clone();
    (0..).take_while(|_| !copy.message(1, false, false)).count() as u32
}

/// Plays rows of (work requests, kref, count before, signalled, count after).
fn check_rows(rows: &[(u32, u32, u32, bool, u32)]) {
    let mut signaller = kernel(16);
    for (number, &(work_requests, kref, before, signalled, after)) in rows.iter().enumerate() {
        assert_eq!(budget_of(&signaller), before, "before row {}", number + 1);
        assert_eq!(signaller.message(work_requests, kref > 1, false), signalled, "row {}", number + 1);
        assert_eq!(budget_of(&signaller), after, "after row {}", number + 1);
    }
}

#[test]
fn t1_f04_one_work_request_per_send() {
    let mut signaller = kernel(16);
    let played = play(&mut signaller, &[(1, 1); 40]);
    let expected: Vec<bool> = (1..=40).map(|send| send >= 17 && send % 2 == 1).collect();
    assert_eq!(played, expected);
}

#[test]
fn t2_s47_four_work_requests_per_send() {
    let mut signaller = kernel(16);
    let played = play(&mut signaller, &[(4, 1); 12]);
    let expected: Vec<bool> = (1..=12).map(|send| send >= 5 && send % 2 == 1).collect();
    assert_eq!(played, expected);
    let mut again = kernel(16);
    let counts: Vec<u32> = (0..6)
        .map(|_| {
            again.message(4, false, false);
            budget_of(&again)
        })
        .collect();
    assert_eq!(counts, [12, 8, 4, 0, 4, 0]);
}

#[test]
fn t3_s48_s51_mixed() {
    check_rows(&[
        (1, 1, 16, false, 15),
        (4, 1, 15, false, 11),
        (1, 2, 11, true, 16),
        (4, 1, 16, false, 12),
        (12, 1, 12, false, 0),
        (1, 1, 0, true, 1),
        (4, 1, 1, true, 3),
        (3, 1, 3, false, 0),
        (1, 1, 0, true, 1),
        (2, 1, 1, true, 1),
        (16, 2, 1, true, 15),
        (1, 1, 15, false, 14),
        (20, 1, 14, true, 6),
        (3, 1, 6, false, 3),
        (1, 1, 3, false, 2),
    ]);
}

#[test]
fn t4_s49_equality() {
    check_rows(&[
        (4, 1, 16, false, 12),
        (4, 1, 12, false, 8),
        (8, 2, 8, true, 0),
        (1, 1, 0, true, 1),
        (1, 1, 1, false, 0),
        (1, 1, 0, true, 1),
    ]);
}

#[test]
fn s49_overshoot_is_cut_at_the_batch() {
    let mut signaller = kernel(16);
    assert_eq!(play(&mut signaller, &[(11, 1), (40, 1)]), [false, true]);
    assert_eq!(budget_of(&signaller), 16);
}

#[test]
fn s50_batch_of_zero_signals_every_send() {
    let mut signaller = kernel(0);
    assert_eq!(play(&mut signaller, &[(1, 1), (4, 1), (1, 2), (7, 1)]), [true; 4]);
    let mut sends_only = Signaller::new(SignalPolicy::SendsOnly { batch: 0 }, LARGE_QUEUE);
    assert_eq!(play(&mut sends_only, &[(1, 1), (4, 1), (1, 2), (7, 1)]), [true; 4]);
}

#[test]
fn s46_registrations_are_unsignalled() {
    for policy in [SignalPolicy::Sparse, SignalPolicy::KernelBudget { batch: 0 }, SignalPolicy::SendsOnly { batch: 0 }]
    {
        let mut signaller = Signaller::new(policy, 2);
        assert!((0..100).all(|_| !signaller.registration()), "{policy:?}");
    }
}

#[test]
fn s54_sends_only() {
    let mut signaller = Signaller::new(SignalPolicy::SendsOnly { batch: 16 }, LARGE_QUEUE);
    let played = play(&mut signaller, &[(4, 1); 70]);
    let signalled: Vec<usize> = (1..=70).filter(|&send| played[send - 1]).collect();
    assert_eq!(signalled, [17, 34, 51, 68]);
    // A message that must be signalled starts the count again.
    let mut signaller = Signaller::new(SignalPolicy::SendsOnly { batch: 2 }, LARGE_QUEUE);
    let played = play(&mut signaller, &[(1, 1), (1, 2), (1, 1), (1, 1), (1, 1)]);
    assert_eq!(played, [false, true, false, false, true]);
}

fn global(max_send_wr: u32) -> Signaller {
    Signaller::new(SignalPolicy::GlobalCounter { max_send_wr }, LARGE_QUEUE)
}

/// Which of the next `count` work requests, all registrations, are signalled; numbered from 1.
fn signalled_registrations(signaller: &mut Signaller, count: usize) -> Vec<usize> {
    (1..=count).filter(|_| signaller.registration()).collect()
}

#[test]
fn s55_d21_global_counter() {
    assert_eq!(signalled_registrations(&mut global(14), 20), [6, 12, 18]);
    assert_eq!(signalled_registrations(&mut global(6), 3), [1, 2, 3]);
    assert_eq!(signalled_registrations(&mut global(8), 7), [3, 6]);
    // Registrations and messages share the counter: two requests of [R, R, Send], the sixth is a Send.
    let mut signaller = global(14);
    let mut played = Vec::new();
    for _ in 0..2 {
        played.push(signaller.registration());
        played.push(signaller.registration());
        played.push(signaller.message(3, false, false));
    }
    assert_eq!(played, [false, false, false, false, false, true]);
}

#[test]
fn s55_invalidations_reload_the_counter() {
    let mut signaller = global(14);
    signalled_registrations(&mut signaller, 4);
    signaller.invalidations(2, true);
    assert_eq!(signalled_registrations(&mut signaller, 5), [4]);
    let mut refused = global(14);
    refused.invalidations(2, true);
    refused.invalidations(2, false);
    assert_eq!(signalled_registrations(&mut refused, 9), [8]);
}

#[test]
fn sparse_signals_at_half_the_queue() {
    let mut signaller = Signaller::new(SignalPolicy::Sparse, 32);
    assert_eq!(play(&mut signaller, &[(4, 1); 9]), [false, false, false, true, false, false, false, true, false]);
    assert_eq!(signaller.unsignalled(), 4);
    // Anything signalled in between completes what stands before it.
    signaller.signalled();
    assert_eq!(play(&mut signaller, &[(4, 1); 4]), [false, false, false, true]);
    signaller.message(7, false, false);
    signaller.invalidations(3, true);
    assert_eq!(signaller.unsignalled(), 0);
}

#[test]
fn sparse_signals_for_held_slots_and_on_demand() {
    let mut signaller = Signaller::new(SignalPolicy::Sparse, 1024);
    assert!(!signaller.message(1, false, false));
    assert!(signaller.message(1, false, held_slots_pressure(64, 256)));
    assert!(!signaller.message(1, false, held_slots_pressure(63, 256)));
    assert!(signaller.message(1, true, false));
    assert_eq!(signaller.unsignalled(), 0);
}

#[test]
fn i31_refused_invalidations_complete_nothing() {
    let mut signaller = Signaller::new(SignalPolicy::Sparse, 64);
    signaller.message(5, false, false);
    signaller.invalidations(3, true);
    signaller.invalidations(3, false);
    assert_eq!(signaller.unsignalled(), 5);
}

#[test]
fn i31_bound_stands_above_every_policy() {
    // Alone, each of these would fill the queue without one completion.
    for policy in [
        SignalPolicy::Sparse,
        SignalPolicy::KernelBudget { batch: 1000 },
        SignalPolicy::SendsOnly { batch: 1000 },
        SignalPolicy::GlobalCounter { max_send_wr: 4000 },
    ] {
        let mut signaller = Signaller::new(policy, 16);
        let played = play(&mut signaller, &[(1, 1); 16]);
        assert_eq!(played.iter().position(|&signalled| signalled), Some(7), "{policy:?}");
    }
}

/// What stands in front of a reply was not counted before, under no policy.
#[test]
fn i31_operations_in_front_of_a_reply_count_under_every_policy() {
    for policy in [
        SignalPolicy::Sparse,
        SignalPolicy::KernelBudget { batch: 1000 },
        SignalPolicy::SendsOnly { batch: 1000 },
        SignalPolicy::GlobalCounter { max_send_wr: 4000 },
    ] {
        let mut signaller = Signaller::new(policy, 16);
        let played: Vec<bool> = (0..4).map(|_| signaller.reply(3, false, false)).collect();
        assert_eq!(played, [false, false, true, false], "{policy:?}");
        assert_eq!(signaller.unsignalled(), 3, "{policy:?}");
    }
}

fn any_policy() -> impl Strategy<Value = SignalPolicy> {
    prop_oneof![
        Just(SignalPolicy::Sparse),
        (0u32..300).prop_map(|batch| SignalPolicy::KernelBudget { batch }),
        (0u32..300).prop_map(|batch| SignalPolicy::SendsOnly { batch }),
        (0u32..600).prop_map(|max_send_wr| SignalPolicy::GlobalCounter { max_send_wr }),
    ]
}

proptest! {
    /// At most batch + (longest request - 1) work requests lie between two signalled ones: 31 for batch 16 and 16.
    #[test]
    fn t_bound_of_31(messages in proptest::collection::vec((1u32..=16, 1u32..=2), 1..400)) {
        let mut signaller = kernel(16);
        let mut run = 0;
        for (work_requests, kref) in messages {
            run += work_requests - 1;
            if signaller.message(work_requests, kref > 1, false) {
                prop_assert!(run <= 31, "{run} unsignalled");
                run = 0;
            } else {
                run += 1;
            }
        }
    }

    /// The kernel's arithmetic, written down a second time in its own unsigned terms.
    #[test]
    fn s48_exact_arithmetic(batch in 0u32..64, messages in proptest::collection::vec((1u32..40, any::<bool>()), 1..200)) {
        let mut signaller = kernel(batch);
        let mut count = batch;
        for (work_requests, must_signal) in messages {
            let expected = must_signal || work_requests > count;
            let difference = work_requests.wrapping_sub(count);
            count = if expected { batch.min(difference) } else { count - work_requests };
            prop_assert_eq!(signaller.message(work_requests, must_signal, false), expected);
        }
    }

    /// Whatever happens, unsignalled entries stay below half the send queue, as counted from outside.
    #[test]
    fn i31_never_more_unsignalled_than_half_the_queue(
        policy in any_policy(),
        entries in 2u32..600,
        steps in proptest::collection::vec((0u8..5, 1u32..24, any::<bool>(), any::<bool>()), 1..300),
    ) {
        let mut signaller = Signaller::new(policy, entries);
        let counts_registrations_alone = matches!(policy, SignalPolicy::GlobalCounter { .. });
        let mut unsignalled = 0u32;
        for (step, count, must_signal, pressure) in steps {
            match step {
                0 => {
                    signaller.invalidations(count, true);
                    unsignalled = 0;
                }
                1 => {
                    signaller.invalidations(count, true);
                    signaller.invalidations(count, false);
                }
                // Registrations without a message, as many as come before a flush.
                2 => {
                    for _ in 0..count {
                        let signalled = signaller.standalone(must_signal);
                        unsignalled = if signalled { 0 } else { unsignalled + 1 };
                        prop_assert!(signalled || !must_signal, "one that must be signalled was not");
                        prop_assert!(unsignalled <= entries / 2, "{unsignalled} of {entries}");
                    }
                }
                _ => {
                    for _ in 1..count {
                        if counts_registrations_alone {
                            unsignalled = if signaller.registration() { 0 } else { unsignalled + 1 };
                        }
                    }
                    let added = if counts_registrations_alone { 1 } else { count };
                    let signalled = signaller.message(count, must_signal, pressure);
                    unsignalled = if signalled { 0 } else { unsignalled + added };
                    prop_assert!(signalled || !must_signal, "a message that must be signalled was not");
                }
            }
            prop_assert_eq!(signaller.unsignalled(), unsignalled);
            prop_assert!(unsignalled <= entries / 2);
        }
    }
}

/// Whatever counts beside it: no more messages than that go in a row, and each run is as long as the first.
#[test]
fn s51_no_policy_lets_more_messages_go_in_a_row_than_have_slots() {
    for policy in [
        SignalPolicy::Sparse,
        SignalPolicy::KernelBudget { batch: 100 },
        SignalPolicy::SendsOnly { batch: 100 },
        SignalPolicy::GlobalCounter { max_send_wr: 400 },
    ] {
        let mut signaller = Signaller::with_limits(policy, 1000, 3);
        let played = play(&mut signaller, &[(2, 1); 12]);
        let asked: Vec<usize> = (1..=12).filter(|&message| played[message - 1]).collect();
        assert_eq!(asked, [4, 8, 12], "{policy:?}");
    }
}

/// Limits beyond what is counted are the most that is.
#[test]
fn i31_limits_are_cut_to_what_is_counted() {
    let mut signaller = Signaller::with_limits(SignalPolicy::Sparse, u32::MAX, 2);
    assert_eq!(play(&mut signaller, &[(1, 1), (1, 1), (1, 1)]), [false, false, true]);
    let mut signaller = Signaller::with_limits(SignalPolicy::Sparse, 3, u32::MAX);
    assert_eq!(play(&mut signaller, &[(1, 1), (1, 1), (1, 1)]), [false, false, true]);
}

/// What stood behind a chain of invalidations that was refused is refused with it; what stood in front of it still counts.
#[test]
fn s66_behind_refused_invalidations_the_count_is_what_it_was() {
    let mut signaller = Signaller::with_limits(SignalPolicy::Sparse, 100, 100);
    signaller.message(2, false, false);
    signaller.invalidations(1, true);
    assert_eq!(signaller.unsignalled(), 0);
    signaller.message(3, false, false);
    assert_eq!(signaller.unsignalled(), 3);
    signaller.invalidations(1, false);
    assert_eq!(signaller.unsignalled(), 2);
}

/// A queue so short that each work request asks begins at 0, also behind invalidations that were refused.
#[test]
fn s55_d21_a_counter_without_a_budget_begins_at_0() {
    let mut signaller = global(6);
    signaller.invalidations(2, true);
    signaller.invalidations(2, false);
    assert_eq!(signalled_registrations(&mut signaller, 4), [2, 3, 4]);
}
