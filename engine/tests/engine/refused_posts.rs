//! Posts that the device refuses, wholly or at every position, under both policies (S68, S71 to S73, S83, S84, F5, F6;
//! faults 3 and 4).

use frwr_engine::{
    EngineOptions, InvalidateSignalling, OnPostError,
    provider::{Errno, PostRefusal, TokenKind},
};
use frwr_support::engine_harness::{PROFILES, post_refusals, scripted::*};

const POLICIES: [OnPostError; 2] = [OnPostError::Disconnect, OnPostError::DeregisterAndContinue];

/// Three requests of 1, 2 and 3 MRs in one chain of nine work requests.
const CHAIN: usize = 9;

#[test]
fn s71_s83_fault03_fault04_a_chain_of_requests_refused_at_every_position_ends_each_once() {
    for profile in PROFILES {
        for policy in POLICIES {
            for accepted in 0..CHAIN {
                let mut test = Scripted::policy(profile, policy);
                let before = test.descriptors();
                test.refuse(accepted);
                for cookie in 1..=3 {
                    test.submit(cookie, cookie, false);
                }
                test.until("all ended", |pair| {
                    pair.serve(false);
                    pair.host.ended.len() == 3
                });
                let statistics = test.host.engine.statistics();
                assert_eq!(statistics.posts_refused, 1, "{profile} {policy:?} {accepted}");
                if policy == OnPostError::Disconnect {
                    test.until_gone();
                    assert_eq!(post_refusals(&test.host.causes), [(PostRefusal::Invalid, Errno::EINVAL)]);
                    assert_eq!(test.host.engine.statistics().disconnects, 1);
                    test.reconnect_works();
                    continue;
                }
                // What stood in the accepted part ends well, the rest as refused; nobody pays for the others.
                let whole = match profile {
                    "umr" | "umr:fixed-key" => 0,
                    _ => [0, 0, 1, 1, 1, 2, 2, 2, 2][accepted],
                };
                for cookie in 1..=3u64 {
                    let expected = if cookie <= whole { "replied" } else { "refused" };
                    assert_eq!(test.status(cookie), Some(expected), "{profile} {accepted} {cookie}");
                }
                assert_eq!(test.host.disconnected, 0);
                assert_eq!(test.open_bytes(), 0);
                test.steps(50);
                assert_eq!(test.descriptors().iter().sum::<u32>(), before.iter().sum::<u32>());
                assert_eq!(test.descriptors()[1..3], [0, 0], "nothing used, nothing quarantined");
                for cookie in 10..40 {
                    test.round_trip(cookie);
                }
            }
        }
    }
}

#[test]
fn s68_f05_f06_s84_invalidations_refused_at_every_position_hold_the_end_until_the_keys_are_dead() {
    for profile in PROFILES {
        for policy in POLICIES {
            for signalling in [InvalidateSignalling::LastOfChain, InvalidateSignalling::Every] {
                for accepted in 0..3 {
                    let options = EngineOptions::default().on_post_error(policy).invalidate_signalling(signalling);
                    let mut test = Scripted::with(profile, options);
                    let before = test.descriptors();
                    test.submit(1, 3, false);
                    let (name, grants) = test.command();
                    assert_eq!(grants.len(), 3);
                    test.refuse(accepted);
                    test.reply(name, None);
                    test.until("ended", |pair| pair.host.ended.len() == 1);
                    if policy == OnPostError::Disconnect {
                        assert_eq!(test.status(1), Some("lost"), "its data may have changed after the reply (S83)");
                        test.until_gone();
                        assert_eq!(post_refusals(&test.host.causes), [(PostRefusal::Invalid, Errno::EINVAL)]);
                        test.reconnect_works();
                    } else {
                        assert_eq!(test.status(1), Some("replied"));
                        assert_eq!(test.open_bytes(), 0);
                        assert_eq!(test.host.disconnected, 0, "{profile} {accepted}");
                        test.steps(50);
                        assert_eq!(test.descriptors().iter().sum::<u32>(), before.iter().sum::<u32>());
                        for cookie in 10..40 {
                            test.round_trip(cookie);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn s84_f06_a_refused_tail_waits_for_the_accepted_invalidations() {
    let mut test = Scripted::policy("reg_mr", OnPostError::DeregisterAndContinue);
    test.submit(1, 3, false);
    let (name, _) = test.command();
    test.hold(TokenKind::Invalidate);
    test.refuse(2);
    test.reply(name, None);
    // The third MR is destroyed meanwhile, and is no excuse to end early.
    test.steps(100);
    assert!(test.host.ended.is_empty());
    assert_eq!(test.host.engine.statistics().mrs_destroyed, 1);
    test.faults.release();
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(test.status(1), Some("replied"));
}

#[test]
fn s72_s73_fault21_refusals_without_end_cost_nothing_that_does_not_come_back() {
    for profile in PROFILES {
        let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
        let mut cookie = 0;
        // Far more refused entries than the send queue has.
        for round in 0..300usize {
            cookie += 1;
            let before = test.host.ended.len();
            test.refuse(round % 4);
            test.submit(cookie, 3, false);
            test.until("ended", |pair| {
                pair.serve(false);
                pair.host.ended.len() > before
            });
            cookie += 1;
            test.submit(cookie, 3, false);
            let (name, _) = test.command();
            test.refuse(round % 3);
            test.reply(name, None);
            test.until("ended", |pair| pair.host.ended.len() > before + 1);
        }
        // Every slot, entry and MR is there for a burst.
        let first = cookie + 1;
        for at in 0..32 {
            test.submit(first + at, 1, true);
        }
        test.until("the burst", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
        assert_eq!(test.host.disconnected, 0, "{profile} {:?}", test.host.causes);
        assert_eq!(test.open_bytes(), 0);
    }
}

frwr_support::asleep! {
    s71_s83_fault03_fault04_a_chain_of_requests_refused_at_every_position_ends_each_once,
    s68_f05_f06_s84_invalidations_refused_at_every_position_hold_the_end_until_the_keys_are_dead,
    s84_f06_a_refused_tail_waits_for_the_accepted_invalidations,
    s72_s73_fault21_refusals_without_end_cost_nothing_that_does_not_come_back,
}
