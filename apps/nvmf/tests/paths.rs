//! Several paths to one namespace: which of them requests take, and what becomes of them where one goes.

use core::time::Duration;
use frwr_nvmf::controller::ChangeEvent;
use frwr_nvmf::host::{
    Host, IoError, PathPolicy, PathRefusal, PathState, Paths, PathsError, PathsOptions, RequestError,
};
use frwr_nvmf::wire::AnaState;
use frwr_support::nvmf_harness::gated::Gate;
use frwr_support::nvmf_harness::gateways::{Gateways, Wanted};
use frwr_support::nvmf_harness::{BLOCKS, LoneHost, PROFILES, host_options};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Writes a byte to a block, by the block of the host's memory with the same number.
fn write(all: &mut Gateways, block: u64, byte: u8) {
    all.fill(block, byte);
    all.paths.write(block, &[all.segment(block)], block).unwrap();
}

/// Writes, and waits for the end.
fn written(all: &mut Gateways, block: u64, byte: u8) {
    write(all, block, byte);
    let ended = all.completed(1);
    assert_eq!((ended[0].cookie, ended[0].result), (block, Ok(())));
}

/// What a block has, read into the host's memory.
fn read(all: &mut Gateways, block: u64) -> u8 {
    all.fill(100, 0xee);
    all.paths.read(block, &[all.segment(100)], 1000).unwrap();
    let ended = all.completed(1);
    assert_eq!((ended[0].cookie, ended[0].result), (1000, Ok(())));
    all.byte(100)
}

/// Requests that each path was handed.
fn handed(all: &Gateways) -> Vec<u64> {
    (0..all.paths.count()).map(|path| all.paths.path_statistics(path).requests).collect()
}

/// With Keep Alives, so that silence ends a controller.
fn kept(seconds: u32) -> Wanted {
    let wanted = Wanted::default();
    Wanted { host: wanted.host.keep_alive(seconds * SECOND), ..wanted }
}

#[test]
fn the_optimized_path_is_taken_and_taken_again_when_it_is_back() {
    for profile in PROFILES {
        let mut all = Gateways::ready(profile, &Wanted::default());
        written(&mut all, 1, 0x11);
        assert_eq!(handed(&all), [1, 0], "{profile}");
        all.kill(0);
        all.until("lost", |all| matches!(all.paths.state(0), Some(PathState::Lost(_))));
        assert_eq!(read(&mut all, 1), 0x11, "{profile}");
        written(&mut all, 2, 0x22);
        assert_eq!(handed(&all), [1, 2], "{profile}");
        all.start(0);
        all.tick = MS;
        all.until("back", |all| all.paths.state(0) == Some(PathState::Connected(AnaState::Optimized)));
        all.tick = Duration::from_micros(10);
        assert_eq!(read(&mut all, 2), 0x22, "{profile}");
        assert_eq!(handed(&all), [2, 2], "{profile}");
        let told: Vec<_> = all.changes.iter().map(|change| (change.path, change.now.serves())).collect();
        assert_eq!(told, [(0, false), (0, true)], "each change once, however many attempts it took: {:?}", all.changes);
        assert_eq!((all.paths.path_statistics(0).came, all.paths.path_statistics(0).went), (2, 1));
        all.finish();
    }
}

#[test]
fn requests_go_to_where_the_namespace_is_and_nothing_is_lost_by_a_turn() {
    let mut all = Gateways::ready("reg_mr", &Wanted::default());
    for round in 0..6 {
        let (here, there) = (round % 2, 1 - round % 2);
        for block in 0..8 {
            write(&mut all, block, round as u8 + 1);
        }
        // What is on its way is refused, and goes to the other one.
        all.set_ana(there, AnaState::Optimized);
        all.set_ana(here, AnaState::Inaccessible);
        assert!(all.completed(8).iter().all(|ended| ended.result == Ok(())));
        assert!((0..8).all(|block| all.on_medium(block) == round as u8 + 1));
        all.until("told", |all| all.paths.state(there as u16) == Some(PathState::Connected(AnaState::Optimized)));
    }
    let of = |path| all.paths.path_statistics(path);
    assert!(of(0).refused + of(1).refused > 0, "some were on their way");
    assert_eq!((of(0).lost, of(1).lost), (0, 0));
    all.finish();
}

/// A gateway that is stopped, as for a new version: the same, and nothing of it has to be drained before.
#[test]
fn writes_leave_a_target_that_ends_at_once() {
    for profile in PROFILES {
        let wanted = kept(30);
        let states = vec![AnaState::Optimized; 2];
        let wanted = Wanted { states, paths: wanted.paths.policy(PathPolicy::RoundRobin), ..wanted };
        let mut all = Gateways::ready(profile, &wanted);
        (0..8).for_each(|block| write(&mut all, block, 0x11));
        all.paths.flush();
        let since = all.now;
        all.target(0).end(since);
        let mut ended = 0;
        while all.now < since + 3 * SECOND {
            let before = all.now;
            for completion in all.completed(1) {
                assert_eq!(completion.result, Ok(()), "{profile}");
                ended += 1;
                write(&mut all, completion.cookie, 0x12);
            }
            assert!(all.now - before < 100 * MS, "{profile}: nothing paused");
            all.now += 5 * MS;
        }
        assert!(ended > 100, "{profile}: {ended}");
        assert!(matches!(all.paths.state(0), Some(PathState::Lost(_))), "{profile}: {:?}", all.paths.state(0));
        let left = all.paths.path_statistics(0);
        assert_eq!((left.lost, left.fenced), (0, 0), "{profile}: {left:?}");
        assert!(left.refused > 0, "{profile}: some were on their way");
        all.completed(8);
        all.finish();
    }
}

/// With a Keep Alive Timeout, behind which a write that was lost would go on, a minute of it.
#[test]
fn writes_leave_a_target_that_drains_at_once_and_what_it_has_begun_ends_there() {
    for profile in PROFILES {
        let wanted = kept(30);
        let states = vec![AnaState::Optimized; 2];
        let wanted = Wanted { states, paths: wanted.paths.policy(PathPolicy::RoundRobin), ..wanted };
        let mut all = Gateways::ready(profile, &wanted);
        all.gateways[0].switch.gate.set(Gate::Unstarted);
        (0..8).for_each(|block| write(&mut all, block, 0x11));
        all.held(0, 4);
        assert_eq!(all.completed(4).len(), 4, "those of the other path");
        // Some are on their way when it begins, and have to hear that they are not executed.
        (8..12).for_each(|block| write(&mut all, block, 0x11));
        all.paths.flush();
        let (since, id) = (all.now, all.target(0).drain(None, Duration::ZERO).unwrap());
        let mut free: Vec<u64> = all.completed(4).iter().map(|ended| ended.cookie).collect();
        let mut busy = 0;
        // The other path takes all of a load meanwhile, one write behind the other.
        while all.now < since + 3 * SECOND {
            for block in core::mem::take(&mut free) {
                assert!(block >= 8, "{profile}: block {block} was not begun");
                write(&mut all, block, 0x12);
                busy += 1;
            }
            let before = all.now;
            free.extend(all.completed(1).iter().map(|ended| (ended.cookie, ended.result)).map(|(block, result)| {
                assert_eq!(result, Ok(()), "{profile}");
                block
            }));
            assert!(all.now - before < 100 * MS, "{profile}: nothing paused");
            all.now += 5 * MS;
        }
        assert!(busy > 100, "{profile}: {busy}");
        let is_told = PathState::Connected(AnaState::Inaccessible);
        assert_eq!(all.paths.state(0), Some(is_told), "{profile}: what it has is not answered");
        // It answers what it has, and then it leaves.
        all.gateways[0].switch.gate.set(Gate::Open);
        let mut began: Vec<u64> = Vec::new();
        while began.len() < 4 || free.len() < 4 {
            for ended in all.completed(1) {
                assert_eq!(ended.result, Ok(()), "{profile}");
                if ended.cookie < 8 { began.push(ended.cookie) } else { free.push(ended.cookie) }
            }
        }
        all.until("left", |all| matches!(all.paths.state(0), Some(PathState::Lost(_))));
        all.until(
            "done",
            |all| matches!(all.target(0).next_change(), Some(ChangeEvent::Done { id: done }) if done == id),
        );
        assert!((0..12).all(|block| all.on_medium(block) == if block < 8 { 0x11 } else { 0x12 }), "{profile}");
        let left = all.paths.path_statistics(0);
        assert_eq!((left.lost, left.fenced, left.went), (0, 0, 1), "{profile}: {left:?}");
        assert!(left.refused > 0, "{profile}: some were on their way");
        all.finish();
    }
}

#[test]
fn while_no_path_serves_requests_wait_and_then_fail_and_the_paths_go_on() {
    let wanted = Wanted::default();
    let wanted = Wanted { paths: wanted.paths.path_timeout(5 * SECOND), ..wanted };
    let mut all = Gateways::ready("window", &wanted);
    (0..2).for_each(|at| all.set_ana(at, AnaState::Inaccessible));
    all.until("told", |all| !all.paths.is_ready());
    write(&mut all, 1, 0x11);
    all.tick = 20 * MS;
    let since = all.now;
    // One that is asked for by the way, and served.
    all.until("waited", |all| all.now > since + 3 * SECOND);
    assert_eq!(all.completions, []);
    all.set_ana(1, AnaState::NonOptimized);
    assert_eq!(all.completed(1)[0].result, Ok(()));
    assert_eq!(all.on_medium(1), 0x11);
    all.set_ana(1, AnaState::Change);
    all.until("told", |all| !all.paths.is_ready());
    let since = all.now;
    write(&mut all, 1, 0x12);
    assert_eq!(all.completed(1)[0].result, Err(IoError::NoPath));
    assert!(all.now >= since + 4 * SECOND, "{:?}", all.now - since);
    assert_eq!(all.on_medium(1), 0x11);
    all.set_ana(0, AnaState::Optimized);
    all.until("told", |all| all.paths.is_ready());
    written(&mut all, 1, 0x13);
    all.finish();
}

#[test]
fn a_path_that_is_lost_for_ever_is_given_up_and_with_the_last_one_all_is() {
    let mut all = Gateways::ready("umr", &Wanted::default());
    all.set_ana(0, AnaState::PersistentLoss);
    all.until("told", |all| all.paths.state(0) == Some(PathState::Connected(AnaState::PersistentLoss)));
    written(&mut all, 3, 0x33);
    assert_eq!(handed(&all), [0, 1]);
    all.set_ana(1, AnaState::PersistentLoss);
    write(&mut all, 3, 0x34);
    all.tick = 20 * MS;
    assert_eq!(all.completed(1)[0].result, Err(IoError::Abandoned));
    assert_eq!(all.paths.write(3, &[all.segment(3)], 3), Err(RequestError::NotReady));
    assert!(all.paths.serves_no_more() && all.paths.failure().is_none());
    all.finish();
}

#[test]
fn a_read_goes_on_at_once_and_a_change_when_its_path_is_back() {
    let mut all = Gateways::ready("reg_mr", &kept(30));
    written(&mut all, 1, 0x11);
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 0x12);
    all.paths.read(2, &[all.segment(2)], 2).unwrap();
    all.held(0, 2);
    all.cut(0);
    // The read alone ends, by the other path; the write may still be executed.
    let ended = all.completed(1);
    assert_eq!((ended[0].cookie, ended[0].result), (2, Ok(())));
    all.tick = MS;
    all.steps(2000);
    assert_eq!(all.completions, []);
    assert_eq!((all.paths.path_statistics(0).fenced, all.paths.path_statistics(0).waiting), (1, 1));
    assert_eq!(all.on_medium(1), 0x11);
    // Other requests do not wait for it.
    written(&mut all, 5, 0x55);
    // The gateway is done with it, and admits its host again.
    all.gateways[0].switch.gate.set(Gate::Open);
    assert_eq!(all.completed(1)[0].result, Ok(()));
    assert_eq!(all.on_medium(1), 0x12);
    assert_eq!(all.paths.path_statistics(0).waiting, 0);
    assert_eq!(all.paths.path_statistics(0).resubmitted + all.paths.path_statistics(1).resubmitted, 2);
    all.finish();
}

#[test]
fn a_change_of_a_controller_that_stays_away_waits_until_silence_has_ended_that() {
    for wanted in [kept(5), {
        let wanted = kept(5);
        Wanted { paths: wanted.paths.quiesce_margin(20 * SECOND), ..wanted }
    }] {
        let margin = wanted.paths.quiesce_margin;
        let mut all = Gateways::ready("reg_mr", &wanted);
        all.gateways[0].switch.gate.set(Gate::Unstarted);
        write(&mut all, 1, 0x12);
        all.held(0, 1);
        let since = all.now;
        all.kill(0);
        all.tick = 20 * MS;
        assert_eq!(all.completed(1)[0].result, Ok(()));
        // Twice: our target counts every command as a sign of life, so that it may look back.
        let (least, took) = (10 * SECOND + margin, all.now - since);
        assert!(took >= least && took < least + 2 * SECOND, "{took:?}");
        assert_eq!((all.on_medium(1), handed(&all)), (0x12, vec![1, 1]));
        all.finish();
    }
}

#[test]
fn where_silence_ends_nothing_a_change_ends_with_the_path_or_with_its_time() {
    let wanted = kept(0);
    let mut all = Gateways::ready("reg_mr", &Wanted { paths: wanted.paths.path_timeout(5 * SECOND), ..wanted });
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 0x12);
    all.held(0, 1);
    all.kill(0);
    all.tick = 20 * MS;
    all.steps(2000);
    assert_eq!((all.completions.len(), all.now > 40 * SECOND), (0, true), "the other path serves, and does not get it");
    all.kill(1);
    assert_eq!(all.completed(1)[0].result, Err(IoError::NoPath));
    all.paths.shut_down();
    all.until("stopped", |all| all.paths.is_stopped());
}

#[test]
fn who_shuts_down_does_not_wait_for_what_is_never_known_to_be_over() {
    let mut all = Gateways::ready("reg_mr", &kept(0));
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 0x12);
    all.held(0, 1);
    all.kill(0);
    all.until("fenced", |all| all.paths.path_statistics(0).waiting == 1);
    all.finish();
    assert_eq!(all.completions[0].result, Err(IoError::Abandoned));
    assert_eq!(all.paths.path_statistics(0).waiting, 0);
}

#[test]
fn a_storage_that_fences_by_itself_lets_a_change_go_on_at_once() {
    let wanted = kept(30);
    let mut all = Gateways::ready("reg_mr", &Wanted { paths: wanted.paths.storage_fences(true), ..wanted });
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 0x12);
    all.held(0, 1);
    all.kill(0);
    let since = all.now;
    assert_eq!(all.completed(1)[0].result, Ok(()));
    assert!(all.now - since < SECOND);
    all.finish();
}

#[test]
fn a_gateway_that_stands_still_is_left_when_its_silence_is_noticed() {
    let wanted = kept(5);
    let host = wanted.host.clone().command_timeout(2 * SECOND).step_timeout(SECOND);
    let mut all = Gateways::ready("reg_mr", &Wanted { host, ..wanted });
    all.gateways[0].polled = false;
    write(&mut all, 1, 0x12);
    all.paths.read(1, &[all.segment(2)], 2).unwrap();
    all.tick = 20 * MS;
    let ended = all.completed(2);
    assert!(ended.iter().all(|ended| ended.result == Ok(())));
    assert_eq!((ended[0].cookie, ended[1].cookie), (2, 1), "the read first");
    assert_eq!(all.on_medium(1), 0x12);
    all.gateways[0].polled = true;
    all.until("back", |all| all.paths.state(0) == Some(PathState::Connected(AnaState::Optimized)));
    assert_eq!(read(&mut all, 1), 0x12);
    all.finish();
}

#[test]
fn with_both_gateways_gone_and_back_nothing_is_lost() {
    for order in [[0, 1], [1, 0]] {
        let mut all = Gateways::ready("rxe", &kept(5));
        (0..8).for_each(|block| write(&mut all, block, 0x21));
        all.kill(0);
        all.kill(1);
        all.tick = MS;
        all.steps(500);
        order.into_iter().for_each(|at| all.start(at));
        assert!(all.completed(8).iter().all(|ended| ended.result == Ok(())));
        assert!((0..8).all(|block| all.on_medium(block) == 0x21));
        all.finish();
    }
}

#[test]
fn equal_paths_share_by_room_or_take_turns() {
    for (policy, expected) in [(PathPolicy::QueueRoom, [4, 4, 0]), (PathPolicy::RoundRobin, [4, 4, 0])] {
        let wanted = Wanted::default();
        let states = vec![AnaState::Optimized, AnaState::Optimized, AnaState::NonOptimized];
        let wanted = Wanted { gateways: 3, states, paths: wanted.paths.policy(policy), ..wanted };
        let mut all = Gateways::ready("reg_mr", &wanted);
        (0..8).for_each(|block| write(&mut all, block, 1));
        assert_eq!(handed(&all), expected, "{policy:?}");
        assert_eq!(all.completed(8).len(), 8);
        // One at a time: the first has as much room as the other.
        (0..4).for_each(|block| written(&mut all, block, 2));
        let then = if policy == PathPolicy::RoundRobin { [6, 6, 0] } else { [8, 4, 0] };
        assert_eq!(handed(&all), then, "{policy:?}");
        all.finish();
    }
}

#[test]
fn a_path_to_another_namespace_is_refused_by_name_and_one_of_another_size_until_they_agree() {
    let mut all = Gateways::new("reg_mr", &Wanted { nguids: vec![[7; 16], [8; 16]], ..Wanted::default() });
    all.paths.start();
    all.until("refused", |all| all.paths.state(0).is_some_and(PathState::serves) && all.changes.len() == 2);
    let refused = |all: &Gateways, path| matches!(all.paths.state(path), Some(PathState::Refused(_)));
    assert!(refused(&all, 1) || refused(&all, 0), "{:?}", all.changes);
    assert!(all.changes.iter().any(|change| change.now == PathState::Refused(PathRefusal::OtherNamespace)));
    written(&mut all, 1, 1);
    all.finish();

    let mut all = Gateways::new("reg_mr", &Wanted { blocks: vec![BLOCKS, BLOCKS - 8], ..Wanted::default() });
    all.paths.start();
    all.until("both are told", |all| all.changes.len() == 2);
    let size = all.changes.iter().find(|change| matches!(change.now, PathState::Refused(_))).unwrap();
    let PathState::Refused(PathRefusal::Blocks { ours, theirs }) = size.now else { panic!("{size:?}") };
    assert_eq!([ours, theirs].iter().sum::<u64>(), 2 * BLOCKS - 8);
    assert_eq!(all.paths.geometry().unwrap().blocks(), ours);
    let refused = usize::from(size.path);
    all.kill(refused);
    all.gateways[refused].switch.blocks.set(ours);
    all.start(refused);
    all.tick = MS;
    all.until("agreed", |all| all.paths.state(refused as u16).is_some_and(PathState::serves));
    all.finish();
}

#[test]
fn a_request_that_ends_its_sessions_fails_and_takes_no_other_with_it() {
    let wanted = kept(30);
    let wanted = Wanted { paths: wanted.paths.command_retries(Some(2)), ..wanted };
    let mut all = Gateways::ready("reg_mr", &wanted);
    (0..2).for_each(|at| all.gateways[at].switch.gate.set(Gate::Unstarted));
    all.paths.read(1, &[all.segment(1)], 1).unwrap();
    for _ in 0..3 {
        all.tick = MS;
        all.until("handed", |all| (0..2).any(|at| all.paths.path_statistics(at).outstanding == 1));
        let at = (0..2).find(|at| all.paths.path_statistics(*at as u16).outstanding == 1).unwrap();
        all.held(at, 1);
        all.cut(at as u16);
        all.gateways[at].switch.gate.set(Gate::Open);
        all.until("lost", |all| !all.paths.state(at as u16).is_some_and(PathState::serves));
        all.until("back", |all| all.paths.state(at as u16).is_some_and(PathState::serves));
        all.gateways[at].switch.gate.set(Gate::Unstarted);
    }
    assert_eq!(all.completed(1)[0].result, Err(IoError::Unanswered { attempts: 3 }));
    (0..2).for_each(|at| all.gateways[at].switch.gate.set(Gate::Open));
    written(&mut all, 2, 2);
    all.finish();
}

#[test]
fn what_is_given_up_ends_and_a_change_that_may_be_executed_not_before_that_is_over() {
    let mut all = Gateways::ready("reg_mr", &kept(30));
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 0x12);
    all.held(0, 1);
    all.cut(0);
    all.until("fenced", |all| all.paths.path_statistics(0).waiting == 1);
    assert_eq!(all.paths.abort(1), 1);
    all.tick = MS;
    all.steps(1000);
    assert_eq!(all.completions, []);
    all.gateways[0].switch.gate.set(Gate::Open);
    assert_eq!(all.completed(1)[0].result, Err(IoError::Aborted));
    (0..2).for_each(|at| all.set_ana(at, AnaState::Inaccessible));
    all.until("told", |all| !all.paths.is_ready());
    write(&mut all, 1, 0x13);
    assert_eq!(all.paths.abort(1), 1);
    assert_eq!(all.completed(1)[0].result, Err(IoError::Aborted));
    all.finish();
}

#[test]
fn zeroes_and_deallocations_take_paths_as_writes_do() {
    let mut all = Gateways::ready("reg_mr", &kept(30));
    written(&mut all, 1, 0x11);
    all.set_ana(0, AnaState::Inaccessible);
    all.paths.write_zeroes(1, 1, false, 1).unwrap();
    assert_eq!(all.completed(1)[0].result, Ok(()));
    assert_eq!(all.on_medium(1), 0);
    for cookie in 0..8 {
        all.paths.deallocate(&[(cookie, 1), (cookie + 20, 2)], cookie).unwrap();
    }
    assert!(all.paths.deallocate(&[(0, 1)], 9).is_err());
    assert!(all.completed(8).iter().all(|ended| ended.result == Ok(())));
    all.paths.compare(1, &[all.segment(50)], 1).unwrap();
    all.paths.flush_namespace(2).unwrap();
    assert_eq!(all.completed(2).iter().filter(|ended| ended.result == Ok(())).count(), 2);
    assert_eq!(all.paths.deallocate(&[], 1), Err(RequestError::Ranges(0)));
    assert_eq!(all.paths.read(BLOCKS, &[all.segment(1)], 1), Err(RequestError::OutOfRange));
    all.finish();
}

#[test]
fn what_is_no_path_to_the_same_is_refused_before_anything_begins() {
    let host = |options| -> Host<_> { LoneHost::new(&Default::default(), "reg_mr", options).host };
    let error = |hosts| Paths::new(hosts, PathsOptions::default()).err();
    assert_eq!(error(vec![]), Some(PathsError::Count(0)));
    let nine = (0..9).map(|_| host(host_options())).collect();
    assert_eq!(error(nine), Some(PathsError::Count(9)));
    let other = host_options().namespace(2);
    assert_eq!(error(vec![host(host_options()), host(other)]), Some(PathsError::Names { path: 1 }));
    let shared = host_options().followers(1);
    assert_eq!(error(vec![host(shared.clone()), host(host_options())]), Some(PathsError::Cores { path: 0 }));
    assert_eq!(error(vec![host(shared)]), None);
}

#[test]
fn silence_goes_on_while_the_same_path_comes_and_goes() {
    let wanted = kept(5);
    let host = wanted.host.clone().max_attempts(1000);
    let paths = wanted.paths.clone().reconnect_ends_former(false);
    let mut all = Gateways::ready("reg_mr", &Wanted { host, paths, ..wanted });
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 0x12);
    all.held(0, 1);
    let since = all.now;
    all.kill(0);
    all.gateways[0].switch.gate.set(Gate::Open);
    all.tick = 20 * MS;
    while all.completions.is_empty() && all.now < since + 30 * SECOND {
        all.start(0);
        all.until("back", |all| matches!(all.paths.state(0), Some(PathState::Connected(_))));
        all.kill(0);
        all.until("lost", |all| matches!(all.paths.state(0), Some(PathState::Lost(_))));
        all.steps(50);
    }
    // Of the session that was sent it: of another controller of that address nobody knows what it has to do with that.
    assert_eq!(all.completed(1)[0].result, Ok(()));
    let took = all.now - since;
    assert!(took >= 12 * SECOND && took < 18 * SECOND, "{took:?}");
    all.finish();
}

#[test]
fn a_change_does_not_end_before_its_controller_is_over_however_long_no_path_has_served() {
    let wanted = kept(5);
    let (host, paths) = (wanted.host.clone().max_attempts(1000), wanted.paths.clone().path_timeout(SECOND));
    let wanted = Wanted { host, paths, ..wanted };
    let mut all = Gateways::ready("reg_mr", &wanted);
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 0x12);
    all.held(0, 1);
    all.kill(1);
    all.set_ana(0, AnaState::Inaccessible);
    all.tick = 20 * MS;
    all.until("told", |all| !all.paths.is_ready());
    all.steps(200);
    assert_eq!((all.completions.len(), all.paths.outstanding()), (0, 1));
    all.cut(0);
    all.until("fenced", |all| all.paths.path_statistics(0).fenced == 1);
    assert_eq!(all.completions, [], "the controller has the write still");
    all.kill(0);
    let since = all.now;
    assert_eq!(all.completed(1)[0].result, Err(IoError::NoPath));
    assert!(all.now - since > 10 * SECOND, "{:?}", all.now - since);
    all.paths.shut_down();
    all.until("stopped", |all| all.paths.is_stopped());
}

#[test]
fn how_the_only_path_does_can_be_asked_though_nothing_is_told_of_it() {
    let mut all = Gateways::ready("reg_mr", &Wanted { gateways: 1, ..Wanted::default() });
    let connected = |state| Some(PathState::Connected(state));
    assert_eq!(all.paths.state(0), connected(AnaState::Optimized));
    all.set_ana(0, AnaState::Inaccessible);
    all.until("told", |all| all.paths.state(0) == connected(AnaState::Inaccessible));
    all.kill(0);
    all.until("lost", |all| matches!(all.paths.state(0), Some(PathState::Lost(_))));
    all.start(0);
    all.tick = MS;
    all.until("back", |all| all.paths.state(0) == connected(AnaState::Inaccessible));
    all.set_ana(0, AnaState::NonOptimized);
    all.until("told", |all| all.paths.state(0) == connected(AnaState::NonOptimized));
    written(&mut all, 1, 0x11);
    assert_eq!((&all.changes[..], all.paths.state(1)), (&[][..], None));
    all.finish();
    assert_eq!(all.paths.state(0), Some(PathState::Stopped));
}

#[test]
fn who_sleeps_as_long_as_it_is_told_hears_that_no_path_will_serve() {
    let wanted = Wanted::default();
    let mut all = Gateways::ready("reg_mr", &Wanted { host: wanted.host.max_attempts(1), ..wanted });
    (0..2).for_each(|at| all.set_ana(at, AnaState::Inaccessible));
    all.until("told", |all| !all.paths.is_ready());
    write(&mut all, 1, 0x11);
    (0..2).for_each(|at| all.kill(at));
    all.until("failed", |all| (0..2).all(|at| matches!(all.paths.state(at), Some(PathState::Failed(_)))));
    let since = all.now;
    while all.completions.is_empty() {
        let at = all.paths.poll_at().expect("something is waited for");
        all.tick = at.saturating_sub(all.now);
        all.step();
    }
    assert_eq!(all.completions[0].result, Err(IoError::Abandoned));
    assert!(all.now - since < SECOND, "{:?}", all.now - since);
}

#[test]
fn paths_that_are_started_again_wait_as_long_as_before() {
    let wanted = Wanted::default();
    let wanted = Wanted { paths: wanted.paths.path_timeout(5 * SECOND), ..wanted };
    let mut all = Gateways::ready("reg_mr", &wanted);
    all.finish();
    all.tick = 20 * MS;
    all.steps(500);
    all.paths.start();
    all.until("begun", |all| (0..2).all(|at| all.paths.state(at) != Some(PathState::Stopped)));
    written(&mut all, 1, 0x11);
    all.finish();
}

#[test]
fn a_deallocation_that_no_buffer_can_hold_is_refused_and_not_kept() {
    let wanted = Wanted::default();
    let mut all = Gateways::ready("reg_mr", &Wanted { host: wanted.host.bounce_buffers(0), ..wanted });
    assert_eq!(all.paths.deallocate(&[(0, 1)], 1), Err(RequestError::NoBounceBuffer));
    written(&mut all, 1, 0x11);
    all.finish();
}

/// Retired before anything began, it is a place for one that comes later; and behind its session, for another one.
#[test]
fn a_path_comes_while_others_serve_and_one_that_is_retired_serves_while_its_session_lasts() {
    let mut all = Gateways::new("reg_mr", &Wanted { gateways: 3, ..Wanted::default() });
    all.paths.retire_path(1);
    all.paths.retire_path(2);
    assert_eq!(all.paths.state(2), Some(PathState::Vacant));
    all.paths.start();
    all.until("one", |all| all.paths.is_ready());
    all.steps(1000);
    assert_eq!((all.paths.state(1), all.paths.statistics().sessions), (Some(PathState::Vacant), 1));
    written(&mut all, 1, 1);
    let second = all.paths.hosts().nth(1).unwrap().address();
    assert_eq!(all.paths.connect_path(0, second), Err(PathsError::Taken { path: 0 }), "it leads to another one");
    all.paths.connect_path(1, second).unwrap();
    all.until("two", |all| all.paths.state(1).is_some_and(PathState::serves));
    // The first is not tried again, and serves as before.
    all.paths.retire_path(0);
    written(&mut all, 2, 2);
    assert_eq!((handed(&all), all.paths.state(0)), (vec![2, 0, 0], Some(PathState::Connected(AnaState::Optimized))));
    all.kill(0);
    all.until("vacant", |all| all.paths.state(0) == Some(PathState::Vacant));
    written(&mut all, 3, 3);
    all.start(0);
    all.steps(1000);
    assert_eq!((all.paths.state(0), handed(&all)), (Some(PathState::Vacant), vec![2, 1, 0]), "nobody asks for it");
    // Another one has its place: what that counted is its own.
    let third = all.paths.hosts().nth(2).unwrap().address();
    all.paths.connect_path(0, third).unwrap();
    all.until("in its place", |all| all.paths.state(0).is_some_and(PathState::serves));
    assert_eq!((handed(&all), all.paths.path_statistics(0).came), (vec![0, 1, 0], 1));
    assert_eq!(read(&mut all, 3), 3);
    all.finish();
}

/// The name of a session is what a lost change goes by: its place is nobody else's while it waits.
#[test]
fn a_retired_path_keeps_its_place_while_a_change_waits_for_its_controller() {
    let mut all = Gateways::ready("reg_mr", &kept(1));
    all.gateways[0].switch.gate.set(Gate::Unstarted);
    write(&mut all, 1, 1);
    all.held(0, 1);
    all.paths.retire_path(0);
    all.kill(0);
    all.until("lost", |all| all.paths.path_statistics(0).waiting == 1);
    let second = all.paths.hosts().nth(1).unwrap().address();
    all.steps(1000);
    assert_eq!(all.paths.connect_path(0, second), Err(PathsError::Taken { path: 0 }));
    // When silence has ended its controller.
    all.tick = Duration::from_millis(1);
    assert_eq!(all.completed(1)[0].result, Ok(()));
    all.until("vacant", |all| all.paths.state(0) == Some(PathState::Vacant));
    assert_eq!(read(&mut all, 1), 1);
    all.finish();
}

/// With nowhere to go requests wait for as long as for any path; with nowhere ever, they end at once.
#[test]
fn with_all_paths_vacant_requests_wait_for_one_that_comes() {
    let mut all = Gateways::ready("reg_mr", &Wanted::default());
    let address = all.paths.hosts().next().unwrap().address();
    (0..2).for_each(|path| all.paths.retire_path(path));
    (0..2).for_each(|gateway| all.kill(gateway));
    all.until("vacant", |all| (0..2).all(|path| all.paths.state(path) == Some(PathState::Vacant)));
    assert!(!all.paths.serves_no_more());
    write(&mut all, 1, 7);
    all.steps(1000);
    all.start(0);
    all.paths.connect_path(1, address).unwrap();
    assert_eq!(all.completed(1)[0].result, Ok(()));
    assert_eq!(read(&mut all, 1), 7);
    all.finish();
}
