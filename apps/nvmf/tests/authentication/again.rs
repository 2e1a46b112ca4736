//! Sessions that go on while their host proves itself once more: by a call, and by an interval.

use super::{Inline, KEY, OTHER, keys, our_name, pair, reads_and_writes, told};
use core::sync::atomic::Ordering;
use core::time::Duration;
use frwr_nvmf::authentication::{AuthenticationFailure, Authenticator};
use frwr_nvmf::dhchap::Group;
use frwr_nvmf::host::{HostFailure, IoError, PathState, ReauthenticateError};
use frwr_support::nvmf_harness::gateways::{Gateways, Wanted};
use frwr_support::nvmf_harness::{Pair, host_options, target_options};
use std::sync::Arc;

const MS: Duration = Duration::from_millis(1);
const QUEUES: u16 = 2;

/// A session with several queues whose host and target have the same keys; both are handed out to be changed.
fn proven(both_ways: bool, every: Duration) -> (Pair, [Arc<Inline>; 2]) {
    let (name, keys) = (our_name(), keys(KEY, both_ways.then_some(OTHER)));
    let both = [(); 2].map(|()| Inline::with(Group::Null, &name, &keys));
    // Less than the target gives a host.
    let options = host_options().queues(QUEUES).queue_depth(4).step_timeout(2000 * MS).reauthentication(every);
    let mut pair = Pair::with("reg_mr", options, target_options().io_queues(QUEUES));
    pair.host.authenticates(Arc::clone(&both[0]) as Arc<dyn Authenticator>);
    pair.target.authenticates(Arc::clone(&both[1]) as Arc<dyn Authenticator>);
    pair.tick = Duration::from_micros(10);
    pair.bring_up();
    (pair, both)
}

/// Steps a host that always has as many requests as it takes, until something holds. Returns why some failed, and how many did not.
fn loaded_until(pair: &mut Pair, what: &str, done: impl Fn(&Pair) -> bool) -> (Vec<IoError>, u32) {
    let (mut failed, mut ended) = (vec![], 0);
    for _ in 0..100_000 {
        if done(pair) {
            return (failed, ended);
        }
        let segment = pair.segment(0, 1);
        while pair.host.failure().is_none() && pair.host.read(0, &[segment], 1).is_ok() {}
        pair.step();
        for completion in std::mem::take(&mut pair.completions) {
            match completion.result {
                Ok(()) => ended += 1,
                Err(error) => failed.push(error),
            }
        }
    }
    panic!("never {what}: {:?} {:?}", pair.host.statistics(), pair.host.last_failure());
}

/// None of its requests fails until something holds.
fn goes_on_until(pair: &mut Pair, what: &str, done: impl Fn(&Pair) -> bool) {
    let (failed, ended) = loaded_until(pair, what, done);
    assert_eq!(failed, []);
    assert!(ended > 20, "requests went on beside it until {what}: {ended}");
}

fn times(pair: &Pair) -> u64 {
    pair.host.statistics().reauthentications
}

fn sides(inline: &Inline) -> u32 {
    inline.sides.load(Ordering::Relaxed)
}

fn finish(pair: &mut Pair) {
    pair.until("the last ones", |pair| pair.host.statistics().outstanding == 0);
    assert!(pair.completions.drain(..).all(|completion| completion.result == Ok(())));
    pair.finish();
}

#[test]
fn a_session_proves_itself_again_on_each_queue_beside_its_requests() {
    for both_ways in [false, true] {
        let every = 20 * MS;
        let (mut pair, [_, target]) = proven(both_ways, every);
        let queues = u32::from(QUEUES) + 1;
        assert_eq!(sides(&target), queues);
        let began = pair.now;
        goes_on_until(&mut pair, "proven three times", |pair| times(pair) == 3);
        assert!(pair.now - began >= 3 * every, "{:?}", pair.now - began);
        assert_eq!(sides(&target), 4 * queues);
        // When it is asked for, too, and once if that is said twice.
        assert_eq!([(); 2].map(|()| pair.host.reauthenticate()), [Ok(()); 2]);
        let asked = pair.now;
        goes_on_until(&mut pair, "proven when asked", |pair| times(pair) == 4);
        assert!(pair.now - asked < every, "{:?}", pair.now - asked);
        assert_eq!(sides(&target), 5 * queues);
        assert_eq!((pair.host.statistics().sessions, pair.host.statistics().failures), (1, 0));
        assert_eq!(told(&mut pair), [""; 0]);
        finish(&mut pair);
    }
}

#[test]
fn keys_replaced_on_both_sides_go_on_and_one_that_was_replaced_before_ends_the_session() {
    let (name, next) = (our_name(), keys(OTHER, None));
    let (mut pair, [host, target]) = proven(false, Duration::ZERO);
    for side in [&host, &target] {
        side.set(&name, Some(&next));
    }
    pair.host.reauthenticate().unwrap();
    goes_on_until(&mut pair, "proven", |pair| times(pair) == 1);
    // Nobody asks for it until it is due.
    target.set(&name, Some(&keys(KEY, None)));
    pair.until("the last ones", |pair| pair.host.statistics().outstanding == 0);
    pair.completions.clear();
    reads_and_writes(&mut pair);
    pair.host.reauthenticate().unwrap();
    ends(&mut pair);
}

#[test]
fn a_key_that_is_replaced_meanwhile_ends_the_session() {
    let (mut pair, [_, target]) = proven(false, Duration::ZERO);
    let queues = u32::from(QUEUES) + 1;
    pair.host.reauthenticate().unwrap();
    goes_on_until(&mut pair, "on its last queue", |_| sides(&target) == 2 * queues - 1);
    target.set(&our_name(), Some(&keys(OTHER, None)));
    ends(&mut pair);
    assert_eq!(times(&pair), 0);
}

/// The host gives up, says so in one line, and what it had in hand ends because of that alone.
fn ends(pair: &mut Pair) {
    let (failed, _) = loaded_until(pair, "given up", |pair| pair.host.failure().is_some());
    let (failed_then, _) = loaded_until(pair, "nothing is in hand", |pair| pair.host.statistics().outstanding == 0);
    assert!(failed.iter().chain(&failed_then).all(|error| *error == IoError::Abandoned), "{failed:?} {failed_then:?}");
    let failure = pair.host.failure().unwrap();
    assert_eq!(failure, HostFailure::Authentication(AuthenticationFailure::ByPeer(1)));
    assert!(failure.to_string().contains("compare the keys"), "{failure}");
    assert_eq!((pair.host.statistics().sessions, pair.host.statistics().failures), (1, 1));
    let told = told(pair);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("does not follow from the key"), "{told:?}");
    assert_eq!(pair.host.reauthenticate(), Err(ReauthenticateError::NoSession));
}

#[test]
fn a_target_that_never_answers_ends_the_session_in_time_and_the_next_one_takes_what_was_in_hand() {
    let (mut pair, [_, target]) = proven(true, Duration::ZERO);
    pair.tick = MS;
    let judges_at = target.looks.swap(u32::MAX, Ordering::Relaxed);
    pair.host.reauthenticate().unwrap();
    goes_on_until(&mut pair, "given up", |pair| pair.host.statistics().failures == 1);
    let late = pair.host.last_failure().unwrap();
    assert!(late.to_string().starts_with("proving this host once more took longer than step_timeout"), "{late}");
    target.looks.store(judges_at, Ordering::Relaxed);
    let (failed, _) = loaded_until(&mut pair, "a second session", |pair| pair.host.is_ready());
    assert_eq!(failed, []);
    pair.host.reauthenticate().unwrap();
    goes_on_until(&mut pair, "proven", |pair| times(pair) == 1);
    assert_eq!(pair.host.statistics().sessions, 2);
    finish(&mut pair);
}

#[test]
fn a_session_that_was_not_authenticated_is_refused_by_name_and_its_interval_asks_nobody() {
    // The target asks for nothing, and this host does not either.
    let mut without = pair(Some(Inline::with(Group::Null, &our_name(), &keys(KEY, None))), None);
    assert_eq!(without.host.reauthenticate(), Err(ReauthenticateError::NoSession));
    without.bring_up();
    let refused = without.host.reauthenticate().unwrap_err();
    assert_eq!(refused, ReauthenticateError::NotAuthenticated);
    assert!(refused.to_string().contains("was not authenticated"), "{refused}");
    finish(&mut without);
    let mut without = Pair::with("reg_mr", host_options().reauthentication(MS), target_options());
    without.host.authenticates(Inline::with(Group::Null, &our_name(), &keys(KEY, None)));
    without.tick = Duration::from_micros(10);
    without.bring_up();
    let began = without.now;
    goes_on_until(&mut without, "some time", |pair| pair.now > began + 10 * MS);
    assert_eq!((times(&without), without.host.statistics().failures), (0, 0));
    finish(&mut without);
}

#[test]
fn where_one_path_has_another_key_requests_go_on_at_the_other_and_none_fails() {
    let (name, former) = (our_name(), keys(KEY, None));
    let wanted = Wanted::default();
    let wanted = Wanted { host: wanted.host.keep_alive(Duration::from_secs(5)), ..wanted };
    let mut all = Gateways::new("reg_mr", &wanted);
    let targets = [(); 2].map(|()| Inline::with(Group::Null, &name, &former));
    for (at, target) in (0..).zip(&targets) {
        all.paths.host_mut(at).unwrap().authenticates(Inline::with(Group::Null, &name, &former));
        all.target(at.into()).authenticates(Arc::clone(target) as Arc<dyn Authenticator>);
    }
    assert_eq!(all.paths.reauthenticate(), Err(ReauthenticateError::NoSession));
    all.paths.start();
    all.until("ready", |all| (0..2).all(|path| matches!(all.paths.state(path), Some(PathState::Connected(_)))));
    all.paths.reauthenticate().unwrap();
    all.until("proven", |all| all.paths.hosts().all(|host| host.statistics().reauthentications == 1));
    targets[0].set(&name, Some(&keys(OTHER, None)));
    all.paths.reauthenticate().unwrap();
    let (mut sent, mut ended) = (0_u64, 0_u64);
    let failed = Some(PathState::Failed(HostFailure::Authentication(AuthenticationFailure::ByPeer(1))));
    for _ in 0..20_000 {
        // Behind the end of the path, what it had not answered waits until its controller is over.
        all.tick = if all.paths.state(0) == failed { MS } else { Duration::from_micros(10) };
        if ended == 3000 {
            break;
        }
        let segment = all.segment(sent % 4);
        let taken = |all: &mut Gateways| match sent % 2 {
            0 => all.paths.write(sent % 64, &[segment], sent).is_ok(),
            _ => all.paths.read(sent % 64, &[segment], sent).is_ok(),
        };
        if sent < 3000 && taken(&mut all) {
            sent += 1;
        }
        all.step();
        for completion in std::mem::take(&mut all.completions) {
            assert_eq!(completion.result, Ok(()));
            ended += 1;
        }
    }
    assert_eq!((ended, all.paths.state(0)), (3000, failed));
    assert!(all.paths.state(1).unwrap().serves());
    let of_paths = [0, 1].map(|path| all.paths.path_statistics(path));
    assert!(of_paths[1].requests > 2000, "{of_paths:?}");
    assert_eq!(all.paths.host_mut(1).unwrap().statistics().reauthentications, 2);
    all.finish();
}
