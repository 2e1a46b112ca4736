//! The traces of S46 to S55 and D21, through the engine with recorded chains: which message asks for a completion.

use frwr_engine::{
    Chunk, RemoteSegment, WriteRequest,
    provider::{Access, RemoteRange},
    signal::SignalPolicy,
};
use frwr_support::engine_harness::{self, Setup, Watched};

const KERNEL: SignalPolicy = SignalPolicy::KernelBudget { batch: 16 };

/// Enough MRs and credits that only the policy decides.
fn pair(signal: SignalPolicy) -> Watched {
    let mut pair = Setup::new("reg_mr").host(|host| host.signal = signal).watched();
    pair.clear();
    pair
}

/// Runs requests of (work requests, kref) one after the other; returns which messages were signalled.
fn signals(pair: &mut Watched, requests: impl IntoIterator<Item = (u64, u32)>) -> Vec<bool> {
    let mut signalled = Vec::new();
    for (cookie, (work_requests, kref)) in requests.into_iter().enumerate() {
        pair.request(cookie as u64, work_requests - 1, kref > 1, true);
        let posts = pair.host.posts();
        let first = posts.first().unwrap();
        assert_eq!(first.wrs.len() as u64, work_requests, "S47: a message and its registrations");
        let (message, registrations) = first.wrs.split_last().unwrap();
        assert!(registrations.iter().all(|wr| !wr.signalled), "S46");
        signalled.push(message.signalled);
        pair.clear();
    }
    signalled
}

/// Numbers, from 1, of the signalled messages.
fn numbers(signalled: &[bool]) -> Vec<usize> {
    signalled.iter().enumerate().filter(|(_, signalled)| **signalled).map(|(at, _)| at + 1).collect()
}

#[test]
fn t1_s48_f04_one_work_request_per_send() {
    let signalled = signals(&mut pair(KERNEL), [(1, 1); 26]);
    assert_eq!(numbers(&signalled), [17, 19, 21, 23, 25]);
}

#[test]
fn t2_s47_s48_four_work_requests_per_send() {
    let signalled = signals(&mut pair(KERNEL), [(4, 1); 12]);
    assert_eq!(numbers(&signalled), [5, 7, 9, 11]);
}

#[test]
fn t3_s48_s49_s51_mixed() {
    // Row 13 needs 19 MRs, more than a request may have; the pure room has it.
    let rows = [(1, 1), (4, 1), (1, 2), (4, 1), (12, 1), (1, 1), (4, 1), (3, 1), (1, 1), (2, 1), (16, 2), (1, 1)];
    assert_eq!(numbers(&signals(&mut pair(KERNEL), rows)), [3, 6, 7, 9, 10, 11]);
}

#[test]
fn t4_s49_equality() {
    let rows = [(4, 1), (4, 1), (8, 2), (1, 1), (1, 1), (1, 1)];
    assert_eq!(numbers(&signals(&mut pair(KERNEL), rows)), [3, 4, 6]);
}

#[test]
fn s48_i34_the_flag_is_cleared_when_a_slot_is_used_again() {
    let mut pair = pair(KERNEL);
    // A signalled message, then unsignalled ones in the same slot.
    assert_eq!(signals(&mut pair, [(1, 2), (1, 1), (1, 1)]), [true, false, false]);
}

#[test]
fn s50_a_batch_of_zero_signals_every_message() {
    for signal in [SignalPolicy::KernelBudget { batch: 0 }, SignalPolicy::SendsOnly { batch: 0 }] {
        assert_eq!(numbers(&signals(&mut pair(signal), [(1, 1), (3, 1), (1, 1), (5, 1)])), [1, 2, 3, 4]);
    }
}

#[test]
fn s54_d21_sends_only_counts_messages_whatever_stands_in_front() {
    let signal = SignalPolicy::SendsOnly { batch: 16 };
    for work_requests in [1, 2] {
        let signalled = signals(&mut pair(signal), [(work_requests, 1); 35]);
        assert_eq!(numbers(&signalled), [17, 34]);
    }
    // Something that waits for its message is signalled, and refills the budget.
    let requests = [(1, 1), (1, 2)].into_iter().chain([(1, 1); 17]);
    assert_eq!(numbers(&signals(&mut pair(signal), requests)), [2, 19]);
}

/// The letters of all work requests of `count` requests with `mrs` MRs each, of which the peer invalidates one.
fn letters(signal: SignalPolicy, count: u64, mrs: u64) -> String {
    let mut pair = pair(signal);
    for cookie in 0..count {
        pair.request(cookie, mrs, false, true);
    }
    pair.host.chains().join(" ")
}

#[test]
fn s55_d21_global_counter_signals_every_sixth_work_request() {
    let signal = SignalPolicy::GlobalCounter { max_send_wr: 14 };
    assert_eq!(letters(signal, 18, 0), "S S S S S S* S S S S S S* S S S S S S*");
    assert_eq!(letters(signal, 6, 1), "RS RS RS* RS RS RS*");
}

#[test]
fn s55_a_registration_may_be_the_one_that_is_signalled() {
    // Five work requests leave 1 of 6; three invalidations reload to 6 - 3.
    let signal = SignalPolicy::GlobalCounter { max_send_wr: 14 };
    assert_eq!(letters(signal, 3, 4), "RRRRS LLL* RRR*RS LLL* RRR*RS LLL*");
}

#[test]
fn s55_a_small_queue_signals_everything() {
    let signal = SignalPolicy::GlobalCounter { max_send_wr: 6 };
    assert_eq!(letters(signal, 2, 2), "R*R*S* L* R*R*S* L*");
}

#[test]
fn d21_sparse_signals_when_a_quarter_of_the_slots_is_held() {
    // 32 requests at once have 2 * 32 slots per connection, of two connections.
    let signalled = signals(&mut pair(SignalPolicy::Sparse), [(1, 1); 70]);
    // The 33rd would be the first to see 32 held slots, but the last of as many as may be in flight asks for them all.
    assert_eq!(numbers(&signalled), [32, 64]);
    let mut one = Setup::new("reg_mr").host(|host| host.connections = 1).watched();
    one.clear();
    assert_eq!(numbers(&signals(&mut one, [(1, 1); 40])), [17, 34]);
}

/// A completion that was asked for on behalf of a transfer is there once it has come, also where a registration without a message had to ask
/// for it: from then on messages ask for themselves.
#[test]
fn d21_messages_ask_again_behind_a_completion_that_was_no_message() {
    /// Not one of the requests that are counted.
    const OPEN: u64 = 1000;
    let mut pair = Setup::new("reg_mr").host(|host| (host.connections, host.transfer_depth) = (1, 8)).watched();
    let opened = {
        let segment = pair.pair.target.segment(8192, 512);
        let target = &mut pair.pair.target;
        let chunk = Chunk { access: Access::RemoteWrite, segments: &[segment] };
        target.engine.register_now(target.connection.unwrap(), &chunk, 1, &mut target.protocol).unwrap();
        target.outstanding.insert(1, 512);
        pair.pair.until("registered", |pair| !pair.target.grants.is_empty());
        pair.pair.target.grants[0].1
    };
    pair.clear();
    let host = &mut pair.pair.host;
    let (connection, local) = (host.connection.unwrap(), [host.segment(0, 512)]);
    let remote = RemoteRange { address: opened.address, key: opened.key };
    let remote = [RemoteSegment { remote, length: 512 }];
    host.engine.write(connection, &WriteRequest { local: &local, remote: &remote, cookie: 2 }).unwrap();
    let chunk = Chunk { access: Access::RemoteRead, segments: &[host.segment(4096, 512)] };
    host.engine.register_now(connection, &chunk, OPEN, &mut host.protocol).unwrap();
    host.outstanding.insert(OPEN, 512);
    pair.pair.until("both are done", |pair| {
        pair.host.grants.len() == 1 && pair.host.events.iter().any(|event| event.starts_with("Written"))
    });
    assert_eq!(pair.host.chains(), ["PR*"], "the registration asks for both");
    pair.clear();
    // One slot is the open key's; with a quarter of the slots held the next message asks.
    assert_eq!(numbers(&signals(&mut pair, [(1, 1); 40]))[0], 17);
}

#[test]
fn s48_s55_every_policy_serves_every_profile() {
    let policies = [
        SignalPolicy::Sparse,
        KERNEL,
        SignalPolicy::SendsOnly { batch: 4 },
        SignalPolicy::GlobalCounter { max_send_wr: 14 },
        // Never asks by itself: the bound alone keeps the queue going.
        SignalPolicy::KernelBudget { batch: u32::MAX },
    ];
    for profile in engine_harness::PROFILES {
        for signal in policies {
            let mut pair = Setup::new(profile).host(|host| (host.signal, host.connections) = (signal, 1)).watched();
            for cookie in 0..200 {
                pair.request(cookie, cookie % 3, cookie % 7 == 0, true);
            }
            assert_eq!(pair.pair.host.ended.len(), 200, "{profile} {signal:?}");
            assert!(pair.pair.host.ended.iter().all(|(_, status)| *status == "replied"));
            assert_eq!(pair.pair.host.engine.statistics().posts_refused, 0);
        }
    }
}
