//! Section 1.D: what stands in a chain, in how many posts, and what a refused or failed one does.

use frwr_engine::{
    Chunk, EngineOptions, OnPostError, SubmitError,
    provider::{
        Access, CompletionQueue, Failure, FailureStatus, Port, PostModel, PostRefusal, TokenKind,
        fault::{CompletionFault, CompletionFilter},
        record::RecordedOperation,
    },
    signal::SignalPolicy,
};
use frwr_support::engine_harness::{self, PROFILES, Setup, Watched, scripted::Scripted};

/// Keys of all registrations recorded on the host, in order.
fn registered_keys(pair: &mut Watched) -> Vec<u32> {
    let key = |operation| match operation {
        RecordedOperation::Register { key, .. } => Some(key),
        _ => None,
    };
    pair.host.wrs().iter().filter_map(|wr| key(wr.operation)).collect()
}

fn reconnect(pair: &mut Watched) {
    pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    pair.pair.connect();
}

#[test]
fn s45_one_chain_one_post_for_zero_one_and_three_mrs() {
    let mut pair = Setup::new("reg_mr").watched();
    let before = pair.host.counters();
    pair.clear();
    for (mrs, chains) in [(0, vec!["S"]), (1, vec!["RS"]), (3, vec!["RRRS", "LL*"])] {
        pair.request(mrs, mrs, false, true);
        assert_eq!(pair.host.chains(), chains, "{mrs} MRs");
        pair.clear();
    }
    assert_eq!(pair.host.counters().doorbells - before.doorbells, 4);
}

#[test]
fn s45_s46_a_registration_stands_in_front_of_its_own_message_only() {
    let mut pair = Setup::new("reg_mr").watched();
    pair.clear();
    for cookie in 0..3 {
        let segments = pair.scattered(2);
        pair.pair.host.submit(cookie, Access::RemoteRead, &segments, true).unwrap();
    }
    pair.steps(1);
    let posts = pair.host.posts();
    assert_eq!(posts.len(), 1, "three requests of one iteration share a post");
    assert_eq!(posts[0].letters(), "RRSRRSRRS");
    assert!(posts[0].wrs.iter().all(|wr| !wr.signalled && !wr.fence));
}

#[test]
fn s46_no_registration_completes_unless_it_is_flushed() {
    let mut pair = Setup::new("reg_mr").host(|host| host.queue_depth = 64).peer_receives(64).watched();
    for cookie in 0..4 {
        pair.request(cookie, 3, false, true);
    }
    let kinds = |pair: &mut Watched| -> Vec<_> {
        let all = pair.host.completions(CompletionQueue::Send);
        all.iter().filter(|completion| completion.token.kind() == TokenKind::Register).copied().collect()
    };
    assert_eq!(kinds(&mut pair), vec![], "success is silent");
    pair.clear();
    // The target's NIC stands still, so the wire fills up and what stands behind stays in the send queue.
    for cookie in 10..74 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[pair.pair.host.segment(8, 100)], true).unwrap();
    }
    let now = pair.pair.now;
    pair.pair.host.step(now);
    let connection = pair.pair.host.connection.unwrap();
    pair.pair.host.engine.disconnect(connection);
    pair.until("disconnected", |pair| pair.host.disconnected == 1);
    let flushed = kinds(&mut pair);
    assert!(!flushed.is_empty());
    assert!(flushed.iter().all(|completion| completion.result.is_err_and(|failure| failure.is_flush())));
    let tokens: std::collections::HashSet<_> = flushed.iter().map(|completion| completion.token).collect();
    assert_eq!(tokens.len(), flushed.len(), "one flush per registration");
    assert_eq!(pair.pair.host.ended.len(), 4 + 64, "each request ends once");
}

#[test]
fn s51_f15_a_request_with_inline_memory_waits_for_its_own_send() {
    for profile in engine_harness::PROFILES {
        let mut pair = Setup::new(profile).watched();
        pair.clear();
        pair.host.faults.hold(CompletionQueue::Send);
        let inline = [pair.pair.host.segment(0, 64)];
        pair.pair.host.submit_with_inline(1, Access::RemoteWrite, &[], &inline, false).unwrap();
        pair.until("answered", |pair| {
            pair.serve(false);
            pair.target.responded == 1 || pair.host.engine.statistics().receive_completions == 1
        });
        pair.steps(20);
        assert_eq!(pair.host.chains(), ["S*"], "{profile}");
        assert_eq!(pair.pair.host.engine.statistics().reply_waits_for_send, 1, "{profile}");
        assert!(pair.pair.host.ended.is_empty(), "{profile}: the device may still read the caller's memory");
        pair.host.faults.release();
        pair.until("ended", |pair| pair.host.ended.len() == 1);
    }
}

#[test]
fn s51_a_message_of_our_own_memory_does_not_wait() {
    let mut pair = Setup::new("reg_mr").watched();
    pair.host.faults.hold(CompletionQueue::Send);
    pair.request(1, 1, false, true);
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.reply_waits_for_send, statistics.slots_held), (0, 1), "hold outlives the fence");
}

#[test]
fn s52_one_completion_retires_all_unsignalled_messages_before_it() {
    let budget = SignalPolicy::KernelBudget { batch: 5 };
    let mut pair = Setup::new("reg_mr").host(|host| host.signal = budget).watched();
    pair.clear();
    for cookie in 0..6 {
        let statistics = pair.pair.host.engine.statistics();
        assert_eq!((statistics.slots_held, statistics.request_slots_used), (cookie, cookie));
        pair.request(cookie, 0, false, false);
    }
    pair.steps(20);
    assert_eq!(pair.host.chains(), ["S", "S", "S", "S", "S", "S*"]);
    let completions = pair.host.completions(CompletionQueue::Send);
    assert_eq!(completions.len(), 1);
    assert_eq!(completions[0].token, pair.host.wrs()[5].token);
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.slots_held, statistics.request_slots_used), (0, 0));
}

#[test]
fn s53_s56_s97_s111_a_refused_chain_ends_the_connection_once_and_is_sent_again_on_the_next() {
    // A chain of three registrations and a message, cut at every place.
    for accepted in 0..4 {
        let mut pair = Setup::new("reg_mr").watched();
        pair.request(1, 3, false, true);
        let first = pair.queue_pair();
        pair.clear();
        pair.host.faults.refuse_post(first, accepted, PostRefusal::QueueFull);
        let segments = pair.scattered(3);
        pair.pair.host.submit(2, Access::RemoteWrite, &segments, true).unwrap();
        pair.until("disconnected", |pair| pair.host.disconnected == 1);
        assert_eq!(pair.pair.host.ended.last(), Some(&(2, "lost")), "{accepted}");
        assert_eq!(pair.host.chains(), ["RRRS", "D*"], "{accepted}: nothing is tried again on this queue pair");
        let old = registered_keys(&mut pair);
        let statistics = pair.pair.host.engine.statistics();
        assert_eq!((statistics.disconnects, statistics.posts_refused), (1, 1));
        assert_eq!(statistics.mrs_destroyed, statistics.mrs_allocated, "every MR of the connection is destroyed");
        assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(0));
        pair.clear();
        reconnect(&mut pair);
        pair.request(3, 3, false, true);
        let new = registered_keys(&mut pair);
        assert_eq!((old.len(), new.len()), (3, 3));
        assert!(new.iter().all(|key| !old.contains(key)), "{old:?} {new:?}");
        assert!(pair.host.posts().iter().all(|post| post.queue_pair != first));
    }
}

#[test]
fn s56_i27_nothing_is_posted_between_the_end_and_the_next_queue_pair() {
    let mut pair = Setup::new("reg_mr").watched();
    for cookie in 0..16 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[pair.pair.host.segment(8, 100)], true).unwrap();
    }
    pair.steps(1);
    let first = pair.queue_pair();
    pair.clear();
    let connection = pair.pair.host.connection.unwrap();
    pair.pair.host.engine.disconnect(connection);
    let segment = pair.pair.host.segment(8, 100);
    let mut refused = 0;
    while !pair.pair.host.engine.is_disconnected() {
        let submitted = pair.pair.host.submit(99, Access::RemoteWrite, &[segment], true);
        assert_eq!(submitted, Err(SubmitError::NotConnected));
        refused += 1;
        pair.serve(true);
        pair.steps(1);
    }
    assert!(refused > 2, "the end takes several iterations");
    assert_eq!(pair.host.chains(), ["D*"]);
    pair.clear();
    reconnect(&mut pair);
    pair.request(100, 1, false, true);
    assert_ne!(pair.queue_pair(), first);
    assert_eq!(pair.host.chains(), ["RS"]);
}

#[test]
fn s57_s98_a_registration_that_completes_badly_ends_the_connection() {
    for status in [FailureStatus::Bind, FailureStatus::LocalProtection, FailureStatus::Flushed] {
        // Every work request is signalled, so that there is a completion to spoil.
        let signal = SignalPolicy::GlobalCounter { max_send_wr: 6 };
        let mut pair = Setup::new("reg_mr").host(|host| host.signal = signal).watched();
        let filter = CompletionFilter::kind(TokenKind::Register);
        pair.host.faults.on_completions(filter, CompletionFault::Fail(status.into()), 1);
        let segments = pair.scattered(2);
        pair.pair.host.submit(1, Access::RemoteWrite, &segments, false).unwrap();
        pair.until("disconnected", |pair| {
            pair.serve(false);
            pair.host.disconnected == 1
        });
        let expected = format!("cause: WorkRequest({:?})", Failure::from(status));
        assert!(pair.pair.host.events.iter().any(|event| event.contains(&expected)), "{:?}", pair.pair.host.events);
        assert_eq!(pair.pair.host.ended, [(1, "lost")]);
        let statistics = pair.pair.host.engine.statistics();
        assert_eq!((statistics.disconnects, statistics.mrs_destroyed), (1, statistics.mrs_allocated));
    }
}

#[test]
fn s45_the_fence_flag_stands_on_messages_behind_registrations_where_the_device_needs_it() {
    let device = |soft: &mut frwr_engine::provider::soft::SoftOptions| {
        soft.capabilities.fence_after_registration = true;
    };
    let mut pair = Setup::new("reg_mr").device(device).watched();
    pair.clear();
    pair.request(1, 2, false, true);
    pair.request(2, 0, false, false);
    let fences: Vec<_> = pair.host.wrs().iter().map(|wr| (wr.letter(), wr.fence)).collect();
    let fence = |letter: &str, fence| (letter.to_owned(), fence);
    assert_eq!(fences, [fence("R", false), fence("R", false), fence("S", true), fence("L*", false), fence("S", false)]);
}

/// The same where no message of its own stands behind a registration: the write pad, a key that was asked for alone.
#[test]
fn s45_k19_whatever_stands_behind_a_registration_waits_for_it_where_the_device_needs_it() {
    for profile in PROFILES {
        let device = |soft: &mut frwr_engine::provider::soft::SoftOptions| {
            soft.capabilities.fence_after_registration = true;
        };
        let padded = |host: &mut EngineOptions| host.write_pad = true;
        let mut pair = Setup::new(profile).device(device).host(padded).watched();
        // Behind the write pad.
        pair.request(1, 0, false, false);
        for (cookie, apart) in [(2, false), (4, true)] {
            let host = &mut pair.pair.host;
            let segment = [host.segment(65_536 * cookie, 512)];
            let chunk = Chunk { access: Access::RemoteRead, segments: &segment };
            host.engine.register_now(host.connection.unwrap(), &chunk, cookie, &mut host.protocol).unwrap();
            host.outstanding.insert(cookie, 512);
            if apart {
                pair.steps(5);
            }
            pair.request(cookie + 1, 0, false, false);
        }
        pair.request(6, 1, false, true);
        assert_eq!((pair.pair.host.disconnected, pair.pair.host.grants.len()), (0, 2), "{profile}");
    }
}

/// Nothing else waits: neither what stands further behind in the chain, nor the chain behind that.
#[test]
fn s45_k19_only_what_stands_right_behind_a_registration_waits_for_it() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.host_device.capabilities.fence_after_registration = true;
        let mut test = Scripted::of(setup);
        test.connect();
        test.watch.clear();
        let host = &mut test.pair.host;
        let chunk = Chunk { access: Access::RemoteRead, segments: &[host.segment(65_536, 512)] };
        host.engine.register_now(host.connection.unwrap(), &chunk, 1, &mut host.protocol).unwrap();
        host.outstanding.insert(1, 512);
        for cookies in [[2, 3], [4, 5]] {
            for cookie in cookies {
                test.submit(cookie, 0, false);
            }
            test.host.engine.flush();
        }
        let posted: Vec<_> = test.posted().iter().map(|wr| (wr.letter(), wr.fence)).collect();
        let wr = |letter: &str, fence| (letter.to_owned(), fence);
        let expected = [wr("R*", false), wr("S", true), wr("S", false), wr("S", false), wr("S", false)];
        assert_eq!(posted, expected, "{profile}");
    }
}

/// What stood behind a registration and was to wait for it was refused: what is posted next waits in its place.
#[test]
fn s45_k19_the_next_message_waits_for_a_registration_in_front_of_a_refused_one() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile).host(|host| host.on_post_error = OnPostError::DeregisterAndContinue);
        setup.host_device.capabilities.fence_after_registration = true;
        let takes_a_part = setup.host_device.capabilities.post_model == PostModel::Prefix;
        let mut test = Scripted::of(setup);
        test.connect();
        let host = &mut test.pair.host;
        let segment = [host.segment(65_536, 512)];
        let chunk = Chunk { access: Access::RemoteRead, segments: &segment };
        host.engine.register_now(host.connection.unwrap(), &chunk, 1, &mut host.protocol).unwrap();
        host.outstanding.insert(1, 512);
        test.submit(2, 0, false);
        test.refuse(1);
        test.watch.clear();
        test.host.engine.flush();
        test.submit(3, 0, false);
        test.host.engine.flush();
        let posted: Vec<_> = test.posted().iter().map(|wr| (wr.letter(), wr.fence, wr.accepted)).collect();
        let wr = |letter: &str, fence, accepted| (letter.to_owned(), fence, accepted);
        // It asks besides: what was refused may have been the one that everything in front of it counts on.
        let expected = [wr("R*", false, takes_a_part), wr("S", true, false), wr("S*", true, true)];
        assert_eq!(posted, expected, "{profile}");
        test.command();
        assert_eq!((test.host.disconnected, test.host.grants.len()), (0, usize::from(takes_a_part)), "{profile}");
    }
}

/// What is sent inline is not registered: it may be longer than one registration.
#[test]
fn s51_a_long_inline_segment_needs_no_registration() {
    const LONG: u32 = 3000;
    for profile in PROFILES {
        let mut setup =
            Setup::new(profile).host(|host| host.message_bytes = 8192).target(|target| target.message_bytes = 8192);
        setup.host_device.capabilities.max_registration_bytes = 1024;
        let mut test = Scripted::of(setup);
        test.connect();
        let bytes: Vec<u8> = (0..LONG).map(|at| at as u8).collect();
        test.host.data.write(256, &bytes).unwrap();
        test.target.every_command = Some(Vec::new());
        let inline = [test.host.segment(256, LONG)];
        test.pair.host.submit_with_inline(1, Access::RemoteWrite, &[], &inline, false).unwrap();
        test.until("a command", |pair| !pair.target.every_command.as_ref().unwrap().is_empty());
        let (_, received) = test.target.every_command.as_mut().unwrap().remove(0);
        let mut found = vec![0; LONG as usize];
        let from = received.length() - LONG;
        assert_eq!(test.target.engine.message(&received, from, &mut found), LONG as usize, "{profile}");
        assert!(found == bytes, "{profile}");
        let (name, _) = test.target.read_command(&received);
        test.target.engine.release(received);
        test.reply(name, None);
        test.until("the end", |pair| pair.host.ended == [(1, "replied")]);
    }
}
