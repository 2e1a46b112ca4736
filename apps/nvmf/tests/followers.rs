//! One controller whose I/O queues live on several cores: a host with the admin queue and hosts that follow it.

use core::time::Duration;
use frwr_nvmf::controller::TargetOptions;
use frwr_nvmf::host::{HostCompletion, HostFailure, HostOptions, IoError, RequestError};
use frwr_nvmf::wire::AnaState;
use frwr_support::nvmf_harness;
use frwr_support::nvmf_harness::spread::Spread;
use frwr_support::nvmf_harness::{BLOCK, BLOCKS, PROFILES, host_options, subsystem};

fn options(depth: u16) -> HostOptions {
    host_options().queue_depth(depth)
}

fn target_options() -> TargetOptions {
    nvmf_harness::target_options().io_queues(3)
}

/// Two hosts that follow one, ready.
fn three(profile: &str) -> Spread {
    Spread::ready(profile, 2, options(8), target_options())
}

/// Each host writes `count` blocks of its own, from block 64 times its index on.
fn write_all(spread: &mut Spread, count: u64, seed: u8) {
    for (index, member) in spread.members.iter_mut().enumerate() {
        for at in 0..count {
            member.fill(at, seed + (index as u8) * 64 + at as u8);
            member.host.write(index as u64 * 64 + at, &[member.segment(at, 1)], at).unwrap();
        }
    }
}

/// Each host's requests end once, in any order, with success.
fn all_end(spread: &mut Spread, count: u64) {
    for index in 0..spread.members.len() {
        let mut ended = spread.completed(index, count as usize);
        ended.sort_by_key(|ended| ended.cookie);
        let cookies: Vec<u64> = ended.iter().map(|ended| ended.cookie).collect();
        assert_eq!(cookies, (0..count).collect::<Vec<u64>>(), "host {index}: each request ends once");
        assert!(ended.iter().all(|ended| ended.result == Ok(())), "host {index}: {ended:?}");
    }
}

fn sessions(spread: &Spread) -> Vec<u64> {
    spread.members.iter().map(|member| member.host.statistics().sessions).collect()
}

#[test]
fn what_one_core_writes_another_one_reads() {
    for profile in PROFILES {
        let mut spread = three(profile);
        assert_eq!(spread.target.statistics().queues, 4, "{profile}: one admin queue, an I/O queue per host");
        write_all(&mut spread, 8, 1);
        all_end(&mut spread, 8);
        let hosts = spread.members.len();
        for (index, member) in spread.members.iter_mut().enumerate() {
            let other = (index + 1) % hosts;
            for at in 0..8 {
                member.host.read(other as u64 * 64 + at, &[member.segment(100 + at, 1)], at).unwrap();
            }
        }
        all_end(&mut spread, 8);
        for (index, member) in spread.members.iter().enumerate() {
            let other = ((index + 1) % hosts) as u8;
            for at in 0..8 {
                assert_eq!(member.block(100 + at), vec![1 + other * 64 + at as u8; BLOCK as usize], "{profile}");
            }
        }
        spread.assert_closed();
        let geometry = spread.members[2].host.geometry().unwrap();
        assert_eq!((geometry.blocks(), geometry.block_bytes()), (BLOCKS, BLOCK));
        spread.finish();
        let target = spread.target.statistics();
        assert_eq!((target.protocol_errors, target.failed_commands), (0, 0), "{profile}");
        assert_eq!(sessions(&spread), [1, 1, 1]);
    }
}

#[test]
fn a_lost_queue_of_any_core_resets_the_session_of_all() {
    for profile in PROFILES {
        let mut spread = three(profile);
        for (round, lost) in [1, 2, 0].into_iter().enumerate() {
            write_all(&mut spread, 8, round as u8);
            spread.step();
            spread.members[lost].host.drop_connections();
            all_end(&mut spread, 8);
            spread.until("set up again", |spread| sessions(spread) == [round as u64 + 2; 3]);
        }
        for member in &spread.members {
            let statistics = member.host.statistics();
            assert!(statistics.lost > 0, "{profile} {statistics:?}");
            assert_eq!(statistics.lost, statistics.resubmitted, "{profile}");
            assert_eq!(statistics.submissions, statistics.requests + statistics.resubmitted, "{profile}");
        }
        assert!(matches!(spread.members[0].host.last_failure(), Some(HostFailure::Disconnected(_))), "{profile}");
        spread.assert_closed();
        spread.finish();
    }
}

#[test]
fn the_next_session_begins_when_no_core_has_anything_left_of_the_last() {
    let mut spread = three("reg_mr");
    write_all(&mut spread, 8, 1);
    spread.step();
    spread.members[0].host.drop_connections();
    // The last core hears nothing, and does nothing.
    for _ in 0..5_000 {
        spread.now += Duration::from_millis(1);
        spread.step_host(0);
        spread.step_host(1);
        spread.carry(0);
        spread.step_target();
    }
    assert_eq!(sessions(&spread), [1, 1, 1]);
    assert_eq!(spread.members[0].host.engine().connections().count(), 0, "nobody asks for the next one yet");
    assert!(!spread.members[0].host.is_ready() && !spread.members[1].host.is_ready());
    all_end(&mut spread, 8);
    assert_eq!(sessions(&spread), [2, 2, 2]);
    spread.finish();
}

#[test]
fn requests_survive_a_target_that_goes_away_and_comes_back() {
    for profile in PROFILES {
        let mut spread = three(profile);
        write_all(&mut spread, 8, 9);
        for _ in 0..3 {
            spread.step();
        }
        // It listens on: hosts are told to leave, and may come back.
        spread.target.shut_down();
        spread.tick = Duration::from_millis(1);
        all_end(&mut spread, 8);
        spread.until("set up again", |spread| sessions(spread).iter().all(|&sessions| sessions >= 2));
        spread.finish();
    }
}

#[test]
fn a_controller_that_stays_away_is_given_up_by_all_cores() {
    let mut options = options(8);
    (options.max_attempts, options.controller_loss_timeout) = (u32::MAX, Duration::from_secs(5));
    let mut spread = Spread::ready("reg_mr", 2, options, target_options());
    write_all(&mut spread, 8, 1);
    spread.step();
    spread.until("not listening", |spread| spread.target.stop_listening());
    spread.target.shut_down();
    spread.tick = Duration::from_millis(10);
    spread.until("given up", |spread| spread.members.iter().all(|member| member.host.failure().is_some()));
    for member in &mut spread.members {
        assert_eq!(member.host.failure(), Some(HostFailure::ControllerLoss));
        let mut cookies: Vec<u64> = member.completions.iter().map(|ended| ended.cookie).collect();
        cookies.sort_unstable();
        assert_eq!(cookies, (0..8).collect::<Vec<u64>>(), "each request ends once");
        assert!(member.completions.iter().all(|ended| matches!(ended.result, Ok(()) | Err(IoError::Abandoned))));
        assert_eq!(member.host.read(0, &[member.segment(0, 1)], 0), Err(RequestError::NotReady));
    }
    spread.assert_closed();
    spread.until("stopped", |spread| spread.members.iter().all(|member| member.host.is_stopped()));
}

#[test]
fn with_fewer_queues_granted_some_cores_have_none_and_say_so() {
    let mut target = target_options();
    target.io_queues = 2;
    let mut spread = Spread::new("reg_mr", 2, options(8), target);
    spread.start();
    spread.until("known", |spread| spread.members[2].host.has_no_queue() && spread.members[1].host.is_ready());
    let queues: Vec<usize> = spread.members.iter().map(|member| member.host.queues()).collect();
    assert_eq!(queues, [1, 1, 0]);
    assert!(!spread.members[2].host.is_ready() && !spread.members[1].host.has_no_queue());
    // The others work, and the session can be reset and ended without it.
    spread.members[1].host.drop_connections();
    spread.until("reset", |spread| sessions(spread)[..2] == [2, 2] && spread.members[1].host.is_ready());
    spread.finish();
}

#[test]
fn several_queues_per_core() {
    let mut target = target_options();
    target.io_queues = 5;
    let mut spread = Spread::ready("window", 2, options(4).queues(2), target);
    let queues: Vec<usize> = spread.members.iter().map(|member| member.host.queues()).collect();
    assert_eq!((queues, spread.target.statistics().queues), (vec![2, 2, 1], 6));
    write_all(&mut spread, 8, 1);
    all_end(&mut spread, 8);
    spread.finish();
}

#[test]
fn a_core_may_leave_with_requests_in_flight_and_the_others_go_on() {
    for profile in PROFILES {
        let mut spread = three(profile);
        write_all(&mut spread, 8, 1);
        spread.step();
        spread.members[2].host.shut_down();
        all_end(&mut spread, 8);
        spread.until("left", |spread| spread.members[2].host.is_stopped());
        for _ in 0..100 {
            spread.step();
        }
        assert!(spread.members[0].host.is_ready() && spread.members[1].host.is_ready(), "{profile}");
        assert_eq!(spread.target.statistics().queues, 3, "{profile}");
        // A reset goes by without it; started again, it takes part in the session after that.
        spread.members[2].host.start();
        spread.members[0].host.drop_connections();
        spread.until("all", |spread| spread.members.iter().all(|member| member.host.is_ready()));
        assert_eq!(spread.target.statistics().queues, 4, "{profile}");
        spread.finish();
    }
}

#[test]
fn the_controller_is_shut_down_only_when_nobody_follows() {
    let mut spread = three("umr");
    spread.members[0].host.shut_down();
    for _ in 0..1_000 {
        spread.step();
    }
    assert!(!spread.members[0].host.is_stopped());
    assert!(spread.members[1].host.is_ready());
    let member = &mut spread.members[1];
    member.host.read(0, &[member.segment(0, 1)], 1).unwrap();
    assert_eq!(spread.completed(1, 1)[0].result, Ok(()));
    spread.finish();
}

#[test]
fn a_follower_s_command_without_an_answer_is_aborted_over_the_admin_queue() {
    let mut options = options(8);
    (options.command_timeout, options.step_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
    options.keep_alive = Duration::ZERO;
    let mut spread = Spread::ready("reg_mr", 2, options, target_options());
    let member = &mut spread.members[2];
    member.host.read(0, &[member.segment(0, 1)], 1).unwrap();
    // The target is silent.
    let begin = spread.now;
    spread.tick = Duration::from_millis(50);
    while spread.members[0].host.last_failure().is_none() && spread.now - begin < Duration::from_secs(60) {
        spread.step_hosts();
    }
    assert_eq!(spread.members[0].host.statistics().aborts, 1);
    let failure = spread.members[0].host.last_failure();
    assert_eq!(failure, Some(HostFailure::CommandTimeout { stood_still: Duration::ZERO }));
    assert!(spread.now - begin >= Duration::from_secs(3), "{:?}", spread.now - begin);
    spread.tick = Duration::from_millis(1);
    assert_eq!(spread.completed(2, 1)[0].result, Ok(()), "on the next session");
    spread.finish();
}

#[test]
fn each_of_a_follower_s_commands_without_an_answer_is_aborted() {
    let mut options = options(8);
    (options.command_timeout, options.step_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
    options.keep_alive = Duration::ZERO;
    let mut spread = Spread::ready("reg_mr", 2, options, target_options());
    for index in 1..=2 {
        let member = &mut spread.members[index];
        (0..3).for_each(|at| member.host.read(at, &[member.segment(at, 1)], at).unwrap());
    }
    // The target is silent until all were asked to be aborted, and not until an Abort takes too long.
    let begin = spread.now;
    spread.tick = Duration::from_millis(50);
    while spread.now - begin < Duration::from_millis(2500) {
        spread.step_hosts();
    }
    assert_eq!(spread.members[0].host.statistics().aborts, 1, "one at a time");
    spread.tick = Duration::from_micros(1);
    spread.until("aborted", |spread| spread.members[0].host.statistics().aborts == 6);
    for index in 1..=2 {
        let ended = spread.completed(index, 3);
        // The target finds some of them in time.
        assert!(ended.iter().all(|ended| matches!(ended.result, Ok(()) | Err(IoError::TimedOut))), "{ended:?}");
    }
    assert_eq!(sessions(&spread), [1, 1, 1]);
    spread.finish();
}

#[test]
fn a_follower_s_queue_that_never_comes_up_counts_as_failed_attempts() {
    let mut options = options(8);
    options.max_attempts = 3;
    let mut spread = Spread::new("reg_mr", 1, options, target_options());
    spread.tick = Duration::from_micros(100);
    spread.start();
    let mut sessions = 0;
    // Whenever it begins to open its queue, that fails.
    spread.until("given up", |spread| {
        if spread.members[1].host.session() > sessions {
            sessions = spread.members[1].host.session();
            spread.members[1].host.drop_connections();
        }
        spread.members.iter().all(|member| member.host.failure().is_some())
    });
    assert_eq!((spread.members[0].host.failure(), sessions), (Some(HostFailure::TooManyAttempts), 4));
}

#[test]
fn a_path_that_is_closed_and_opened_again_holds_the_requests_of_all_cores() {
    for profile in PROFILES {
        let mut spread = three(profile);
        // The last core finds out by itself: its request arrives before the news.
        spread.target.set_ana_state(&subsystem(), None, AnaState::Inaccessible).unwrap();
        let member = &mut spread.members[2];
        member.host.read(0, &[member.segment(0, 1)], 0).unwrap();
        spread.until("known", |spread| {
            spread.members.iter().all(|member| member.host.ana_state() == AnaState::Inaccessible)
        });
        let member = &mut spread.members[1];
        member.host.write(9, &[member.segment(0, 1)], 0).unwrap();
        for _ in 0..1_000 {
            spread.step();
        }
        assert!(spread.members.iter().all(|member| member.completions.is_empty()), "{profile}");
        spread.target.set_ana_state(&subsystem(), None, AnaState::Optimized).unwrap();
        assert_eq!(spread.completed(2, 1)[0].result, Ok(()), "{profile}");
        assert_eq!(spread.completed(1, 1)[0].result, Ok(()), "{profile}");
        assert_eq!(sessions(&spread), [1, 1, 1], "{profile}");
        spread.finish();
    }
}

#[test]
fn a_path_that_stays_closed_fails_a_follower_s_requests_in_time() {
    let options = options(8).inaccessible_timeout(Duration::from_secs(3));
    let mut spread = Spread::ready("reg_mr", 1, options, target_options());
    spread.target.set_ana_state(&subsystem(), None, AnaState::Inaccessible).unwrap();
    let member = &mut spread.members[1];
    member.host.read(0, &[member.segment(0, 1)], 0).unwrap();
    spread.tick = Duration::from_millis(10);
    let begin = spread.now;
    assert_eq!(spread.completed(1, 1)[0].result, Err(IoError::Inaccessible(AnaState::Inaccessible)));
    assert!(spread.now - begin >= Duration::from_secs(3));
    // Nothing waits any more, so there is nothing to be polled for.
    let at = spread.members[1].host.poll_at();
    assert!(at.is_none_or(|at| at > spread.now), "{at:?}");
    spread.finish();
}

#[test]
fn ends_of_the_session_that_another_core_saw_first_count_half_against_a_command() {
    // Who ends its connections, how often, and what becomes of the follower's command.
    let unanswered = |attempts| Err(IoError::Unanswered { attempts });
    for (ends, times, expected) in [(1, 5, Ok(())), (1, 6, unanswered(6)), (0, 10, Ok(())), (0, 11, unanswered(11))] {
        let options = options(8).command_timeout(Duration::ZERO).keep_alive(Duration::ZERO);
        let mut spread = Spread::ready("reg_mr", 1, options, target_options());
        let segment = [spread.members[1].segment(0, 1)];
        spread.members[1].host.read(0, &segment, 7).unwrap();
        spread.members[1].host.flush();
        for _ in 0..times {
            // It was sent by that flush, or in the very step in which the follower is ready; the target has not seen it.
            let lost = spread.members[1].host.statistics().lost;
            spread.members[ends].host.drop_connections();
            spread.tick = Duration::from_millis(100);
            while spread.members[1].host.statistics().lost == lost || spread.members[1].host.is_ready() {
                assert!(spread.members[1].completions.is_empty() || lost + 1 == times, "core {ends} {times} times");
                spread.step_hosts();
            }
            spread.tick = Duration::from_micros(100);
            for _ in 0..50_000 {
                spread.step_hosts();
                if spread.members[1].host.is_ready() {
                    break;
                }
                spread.step_target();
            }
        }
        let ended = spread.completed(1, 1);
        assert_eq!(ended, [HostCompletion { cookie: 7, result: expected }], "core {ends} {times} times");
        spread.finish();
    }
}
