//! Promise Credits: queues never overflow, nothing waits for ever, and each queue pair with work costs one doorbell.

use frwr_engine::{
    EngineOptions, InvalidateSignalling, OnPostError,
    provider::{
        Access, CompletionQueue, PostRefusal,
        record::{Record, RecordedOperation},
    },
    signal::SignalPolicy,
    sizing::ReceiveBatch,
};
use frwr_support::Random;
use frwr_support::engine_harness::{self, PROFILES, Setup, Watched};
use std::collections::VecDeque;

/// What the log shows of one side's send queue.
#[derive(Debug, Default, PartialEq, Eq)]
struct Occupancy {
    /// Most entries that were posted and not passed by a completion.
    most: usize,
    /// Longest run of accepted work requests without one that asks for a completion.
    longest_silent_run: usize,
}

fn occupancy(log: &[Record]) -> Occupancy {
    let (mut posted, mut run, mut found) = (VecDeque::new(), 0, Occupancy::default());
    for record in log {
        match *record {
            Record::Posted { token, signalled, accepted: true, .. } => {
                posted.push_back(token);
                run = if signalled { 0 } else { run + 1 };
                found.most = found.most.max(posted.len());
                found.longest_silent_run = found.longest_silent_run.max(run);
            }
            Record::Completed { queue: CompletionQueue::Send, completion, .. } => {
                while posted.pop_front().is_some_and(|token| token != completion.token) {}
            }
            _ => {}
        }
    }
    found
}

/// A send queue as small as `entries`.
fn small(profile: &str, entries: u32) -> Setup {
    let mut setup = Setup::new(profile).device(|soft| soft.capabilities.attributes.max_qp_wr = entries);
    setup.host.wishes.backward_requests = 8;
    setup.host.wishes.receive_batch = ReceiveBatch::Fixed(0);
    setup.host.wishes.ranges_per_request = Some(1);
    (setup.host.queue_depth, setup.host.receive_depth) = (8, 24);
    (setup.host.registrations, setup.peer_receives) = (12, 24);
    setup
}

const POLICIES: [SignalPolicy; 5] = [
    SignalPolicy::Sparse,
    SignalPolicy::KernelBudget { batch: 16 },
    SignalPolicy::KernelBudget { batch: u32::MAX },
    SignalPolicy::SendsOnly { batch: 1000 },
    SignalPolicy::GlobalCounter { max_send_wr: 4096 },
];

/// Requests of random size until `count` have ended; the peer answers some of them late, and invalidates at will.
fn random_load(pair: &mut Watched, random: &mut Random, count: u64) {
    let (mut next, mut limit) = (0, 200_000);
    while (pair.pair.host.ended.len() as u64) < count {
        limit -= 1;
        assert!(limit > 0, "never ended: {:?}", pair.pair.host.engine.statistics());
        while next < count && random.below(3) > 0 {
            let segments = pair.scattered(random.below(7));
            let inline = [pair.pair.host.segment(0, 64)];
            let inline = &inline[..usize::from(random.below(4) == 0)];
            let access = if random.below(2) == 0 { Access::RemoteRead } else { Access::RemoteWrite };
            match pair.pair.host.submit_with_inline(next, access, &segments, inline, random.below(2) == 0) {
                Ok(_) => next += 1,
                Err(frwr_engine::SubmitError::NoSlot) => break,
                Err(other) => panic!("{other}"),
            }
        }
        if random.below(3) > 0
            && let Some((name, grants)) = pair.pair.target.take_command()
        {
            let key = grants.get(random.below(4) as usize).map(|grant| grant.key);
            pair.pair.target.answer(name, &[], key);
        }
        pair.steps(1);
    }
}

#[test]
fn i31_s48_random_load_never_overflows_the_send_queue_and_always_ends() {
    for (number, profile) in PROFILES.iter().enumerate() {
        for (policy, signal) in POLICIES.into_iter().enumerate() {
            for entries in [32, 48] {
                let mut pair = small(profile, entries).host(|host| host.signal = signal).watched();
                pair.clear();
                let seed = (number * 100 + policy * 10) as u64 + u64::from(entries);
                random_load(&mut pair, &mut Random::new(seed), 150);
                let context = format!("{profile} {signal:?} {entries} seed {seed}");
                let statistics = pair.pair.host.engine.statistics();
                assert_eq!((statistics.posts_refused, statistics.disconnects), (0, 0), "{context}");
                assert!(pair.pair.host.ended.iter().all(|(_, status)| *status == "replied"), "{context}");
                let found = occupancy(pair.host.log());
                assert!(found.most <= entries as usize, "{context}: {found:?}");
                assert!(found.longest_silent_run <= entries as usize / 2, "{context}: {found:?}");
            }
        }
    }
}

#[test]
fn i31_a_silent_run_is_ended_by_half_the_queue_whatever_the_policy_says() {
    for signal in POLICIES {
        // Many slots, so that the entries of the queue decide; the peer invalidates every key.
        let mut pair = small("reg_mr", 48).host(|host| (host.signal, host.queue_depth) = (signal, 64)).watched();
        pair.clear();
        for cookie in 0..100 {
            pair.request(cookie, 1, false, true);
        }
        let found = occupancy(pair.host.log());
        assert!(found.longest_silent_run <= 24, "{signal:?} {found:?}");
        let counters = pair.host.counters();
        if !matches!(signal, SignalPolicy::KernelBudget { batch: 16 }) {
            assert!(counters.signalled <= counters.sends / 2, "{signal:?}: {counters:?}");
        }
    }
}

#[test]
fn i31_the_largest_request_finds_room_behind_a_silent_run() {
    // 2 in reserve and 1 + 2 * 12 for the largest request: the rest may be silent.
    for entries in [27, 28, 32, 40, 52, 64] {
        for silent in 0..30 {
            let mut pair = small("reg_mr", entries).watched();
            for cookie in 0..silent {
                pair.request(cookie, 0, false, false);
            }
            pair.request(100, 12, false, true);
        }
    }
}

#[test]
fn held_slots_never_starve_a_connection() {
    let mut pair = Setup::new("reg_mr").peer_receives(64).watched();
    // Both connections' slots at once, nothing to invalidate: no message would ask for a completion by itself.
    for round in 0..4 {
        for cookie in 0..128 {
            pair.pair.host.submit(round * 128 + cookie, Access::RemoteRead, &[], false).unwrap();
        }
        pair.until("ended", |pair| {
            pair.serve(false);
            pair.host.ended.len() as u64 == (round + 1) * 128
        });
        // Whatever is held, half of the slots come back without another request.
        pair.until("free", |pair| pair.host.engine.statistics().request_slots_used <= 32);
        while pair.pair.host.engine.statistics().request_slots_used > 0 {
            pair.request(10_000, 0, true, false);
            pair.steps(20);
            pair.pair.host.ended.pop();
        }
    }
}

#[test]
fn i31_the_peers_receives_are_never_overrun() {
    for credits in [1, 2, 5] {
        let mut pair = Setup::new("reg_mr").peer_receives(credits).watched();
        for cookie in 0..20 {
            pair.pair.host.submit(cookie, Access::RemoteWrite, &[pair.pair.host.segment(8, 64)], true).unwrap();
        }
        pair.steps(20);
        assert_eq!(pair.pair.target.commands.len() as u32, credits, "no more than the peer is ready for");
        pair.until("ended", |pair| {
            pair.serve(true);
            pair.host.ended.len() == 20
        });
    }
}

#[test]
fn s52_i31_after_a_refused_message_the_next_one_asks_for_the_completion() {
    let change = |host: &mut EngineOptions| {
        (host.connections, host.queue_depth) = (1, 4);
        host.on_post_error = OnPostError::DeregisterAndContinue;
        host.signal = SignalPolicy::KernelBudget { batch: 4 };
    };
    let mut pair = Setup::new("reg_mr").host(change).watched();
    pair.clear();
    for cookie in 0..3 {
        pair.request(cookie, 0, false, false);
    }
    let queue_pair = pair.queue_pair();
    pair.host.faults.refuse_post(queue_pair, 0, PostRefusal::QueueFull);
    pair.request(4, 0, false, false);
    assert_eq!(pair.pair.host.ended.last(), Some(&(4, "refused")));
    pair.request(5, 0, false, false);
    assert_eq!(pair.host.chains(), ["S", "S*", "S", "S*", "S*"]);
    pair.steps(20);
    assert_eq!(pair.pair.host.engine.statistics().request_slots_used, 0, "nothing is held behind the refused one");
}

/// Sends messages until one asks for a completion because those in front of it did not; one of them may be refused. Returns its number.
fn first_that_asks(profile: &str, refused: Option<u64>) -> u64 {
    let change = |host: &mut EngineOptions| host.on_post_error = OnPostError::DeregisterAndContinue;
    let mut pair = Setup::new(profile).peer_receives(64).host(change).watched();
    for cookie in 0..64 {
        if refused == Some(cookie) {
            let queue_pair = pair.queue_pair();
            pair.host.faults.refuse_post(queue_pair, 0, PostRefusal::QueueFull);
        }
        pair.clear();
        pair.request(cookie, 0, false, false);
        if refused != Some(cookie) && pair.host.wrs().last().is_some_and(|wr| wr.signalled) {
            return cookie;
        }
    }
    panic!("{profile}: none asks")
}

#[test]
fn s52_i31_behind_a_refused_message_the_next_one_asks_for_all_in_front() {
    for profile in PROFILES {
        let asks = first_that_asks(profile, None);
        assert!(asks > 0, "{profile}");
        assert_eq!(first_that_asks(profile, Some(asks)), asks + 1, "{profile}");
    }
}

/// Keeps 32 requests of one MR in flight on one thread until `count` have ended.
fn depth_32(pair: &mut Watched, count: u64, invalidate: bool) {
    let mut next = 0;
    while (pair.pair.host.ended.len() as u64) < count {
        while next < count && next - (pair.pair.host.ended.len() as u64) < 32 {
            let segment = pair.pair.host.segment(4096 * (next % 32), 4096);
            pair.pair.host.submit(next, Access::RemoteWrite, &[segment], invalidate).unwrap();
            next += 1;
        }
        pair.serve(invalidate);
        pair.steps(1);
    }
    pair.steps(50);
}

#[test]
fn one_doorbell_per_iteration_and_queue_pair_and_a_sixteenth_per_request_at_depth_32() {
    for profile in PROFILES {
        for invalidate in [true, false] {
            // A wire that takes the data of 32 requests in one iteration.
            let mut setup = Setup::new(profile).device(|soft| soft.wire_packets = 128);
            setup.target_device.wire_packets = 128;
            let mut pair = setup.watched();
            pair.clear();
            let before = pair.host.counters();
            let started = pair.pair.host.engine.statistics();
            depth_32(&mut pair, 3200, invalidate);
            let (counters, statistics) = (pair.host.counters(), pair.pair.host.engine.statistics());
            let doorbells = counters.doorbells - before.doorbells;
            assert_eq!(doorbells, counters.pairs - before.pairs, "{profile}");
            assert_eq!(doorbells, statistics.doorbells - started.doorbells);
            assert_eq!(statistics.send_chains, statistics.doorbells);
            assert!(doorbells * 16 <= 3200, "{profile} {invalidate}: {doorbells} doorbells");
            let per_request = if invalidate { 2 } else { 3 };
            let wrs = counters.registers + counters.invalidates + counters.sends;
            assert_eq!(wrs, per_request * 3200, "{profile}: work requests");
            assert_eq!(wrs, statistics.work_requests);
            assert_eq!((statistics.requests_waited, statistics.stale_completions), (0, 0), "{profile}");
            // One completion of the send queue for many messages, or for the fences of an iteration.
            assert!(counters.send_completions * 10 <= 3200, "{profile} {invalidate}: {counters:?}");
        }
    }
}

#[test]
fn s66_d04_invalidations_of_one_iteration_share_a_completion() {
    for (signalling, most) in [(InvalidateSignalling::LastOfChain, 200), (InvalidateSignalling::Every, 3200 + 200)] {
        let mut pair = Setup::new("reg_mr").host(|host| host.invalidate_signalling = signalling).watched();
        depth_32(&mut pair, 3200, false);
        let signalled = pair.host.counters().signalled;
        assert!(signalled <= most, "{signalling:?}: {signalled}");
        assert!(signalling == InvalidateSignalling::LastOfChain || signalled >= 3200);
    }
}

#[test]
fn an_iteration_without_work_rings_nothing() {
    let mut pair = Setup::new("reg_mr").watched();
    pair.request(1, 1, false, true);
    pair.steps(20);
    let before = (pair.host.counters(), pair.target.counters());
    let empty = pair.pair.host.engine.statistics().empty_polls;
    pair.steps(100);
    assert_eq!((pair.host.counters(), pair.target.counters()), before);
    assert_eq!(pair.pair.host.engine.statistics().empty_polls, empty + 100);
    assert!(pair.pair.host.engine.is_idle());
}

#[test]
fn s45_the_defaults_serve_reads_and_writes_of_one_iteration_with_one_chain() {
    let mut pair = Setup::new("reg_mr").host(|host| *host = host.clone().connections(1)).watched();
    pair.clear();
    depth_32(&mut pair, 32, true);
    let posts = pair.host.posts();
    assert_eq!(posts.len(), 1);
    assert_eq!(posts[0].wrs.len(), 64);
    let registers = |wr: &&engine_harness::Wr| matches!(wr.operation, RecordedOperation::Register { .. });
    assert_eq!(posts[0].wrs.iter().filter(registers).count(), 32);
}

#[test]
fn two_queue_pairs_with_work_are_two_posts_in_one_iteration() {
    let mut pair = Setup::new("reg_mr").watched();
    let first = pair.pair.host.connection;
    pair.pair.connect();
    pair.until("both accepted", |pair| pair.target.engine.statistics().connections == 2);
    let second = pair.pair.host.connection;
    assert_ne!(first, second);
    pair.clear();
    let before = pair.host.counters();
    for (cookie, connection) in [first, second, first, second].into_iter().enumerate() {
        pair.pair.host.connection = connection;
        let segment = pair.pair.host.segment(4096 * cookie as u64, 4096);
        pair.pair.host.submit(cookie as u64, Access::RemoteRead, &[segment], true).unwrap();
    }
    pair.steps(1);
    let posts = pair.host.posts();
    assert_eq!(posts.iter().map(engine_harness::Post::letters).collect::<Vec<_>>(), ["RSRS", "RSRS"]);
    assert_ne!(posts[0].queue_pair, posts[1].queue_pair);
    let counters = pair.host.counters();
    assert_eq!((counters.doorbells - before.doorbells, counters.pairs - before.pairs), (2, 2));
}
