//! Section 1.E: keys that the peer invalidates with its reply.

use frwr_engine::{
    Chunk,
    provider::{
        Access, CompletionQueue, FailureStatus, Port, Success, TokenKind,
        fault::{CompletionFault, CompletionFilter},
        record::RecordedOperation,
    },
};
use frwr_support::engine_harness::{PROFILES, Setup, Watched};

/// Submits a request with three keys; returns them as the target decodes them.
fn three_keys(pair: &mut Watched, cookie: u64, invite: bool) -> ([u8; 8], Vec<frwr_engine::mr::Grant>) {
    let segments = pair.scattered(3);
    // A chunk each: some devices register lists with gaps.
    let chunks: Vec<_> = segments.chunks(1).map(|segments| Chunk { access: Access::RemoteWrite, segments }).collect();
    pair.pair.host.submit_chunks(cookie, &chunks, invite).unwrap();
    pair.until("arrived", |pair| !pair.target.commands.is_empty());
    pair.pair.target.take_command().unwrap()
}

/// Keys of the LOCAL_INVs that the host posted.
fn invalidated(pair: &mut Watched) -> Vec<u32> {
    let key = |operation| match operation {
        RecordedOperation::Invalidate { key, .. } => Some(key),
        _ => None,
    };
    pair.host.wrs().iter().filter_map(|wr| key(wr.operation)).collect()
}

#[test]
fn s58_s60_one_of_three_keys_is_the_peers_and_the_others_get_local_inv() {
    for profile in PROFILES {
        for which in 0..3 {
            let mut pair = Setup::new(profile).watched();
            let (name, grants) = three_keys(&mut pair, 1, true);
            pair.clear();
            let connection = pair.pair.host.connection.unwrap();
            let free = pair.pair.host.engine.descriptors(connection).free;
            pair.host.faults.hold(CompletionQueue::Send);
            pair.pair.target.answer(name, &[], Some(grants[which].key));
            pair.until("fenced", |pair| pair.host.engine.statistics().local_inv_needed == 2);
            assert_eq!(pair.host.chains(), ["LL*"], "{profile} {which}");
            let keys = invalidated(&mut pair);
            let others: Vec<_> = (0..3).filter(|at| *at != which).map(|at| grants[at].key).collect();
            assert_eq!(keys, others);
            let now = pair.pair.host.engine.descriptors(connection).free;
            assert_eq!(now, free + 1, "the peer's one is free before the others are fenced");
            pair.steps(20);
            assert!(pair.pair.host.ended.is_empty());
            pair.host.faults.release();
            pair.until("ended", |pair| pair.host.ended.len() == 1);
            assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(0));
        }
    }
}

#[test]
fn s59_f13_i25_a_key_that_the_request_does_not_own_is_a_protocol_error() {
    // Another request's key; a key that was never made; the key of an earlier registration of the same MR.
    for case in 0..3 {
        let mut pair = Setup::new("reg_mr").watched();
        let (name, grants) = three_keys(&mut pair, 1, true);
        let (_, others) = three_keys(&mut pair, 2, true);
        let bogus = match case {
            0 => others[0].key,
            1 => grants[0].key ^ 0x7F00_0000,
            _ => grants[0].key.wrapping_sub(1),
        };
        // The NIC of this host would not let the peer's SEND through, so the completion itself is forged.
        let bytes = 12;
        pair.host.faults.on_completions(
            CompletionFilter::kind(TokenKind::Receive),
            CompletionFault::Succeed(Success { bytes, invalidated: Some(bogus) }),
            1,
        );
        pair.clear();
        pair.pair.target.answer(name, &[], None);
        pair.until("disconnected", |pair| pair.host.disconnected == 1);
        let statistics = pair.pair.host.engine.statistics();
        assert_eq!((statistics.foreign_invalidations, statistics.remote_invalidations), (1, 0), "{case}");
        assert_eq!(statistics.bad_reply_count, 0, "the reply itself names a request");
        assert!(pair.pair.host.events.iter().any(|event| event.contains("cause: ForeignInvalidation")));
        let mut ended = pair.pair.host.ended.clone();
        ended.sort_unstable();
        assert_eq!(ended, [(1, "lost"), (2, "lost")], "no data is handed up on the word of such a peer");
        assert_eq!(statistics.mrs_destroyed, statistics.mrs_allocated, "destruction is the fence of every key");
        assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(0));
    }
}

#[test]
fn s59_f13_a_message_that_is_no_reply_must_not_invalidate() {
    let mut pair = Setup::new("reg_mr").watched();
    let (_, grants) = three_keys(&mut pair, 1, true);
    pair.host.faults.on_completions(
        CompletionFilter::kind(TokenKind::Receive),
        CompletionFault::Succeed(Success { bytes: 12, invalidated: Some(grants[0].key) }),
        1,
    );
    // A reply to a request that does not exist.
    pair.pair.target.answer(77u64.to_le_bytes(), &[], None);
    pair.until("disconnected", |pair| pair.host.disconnected == 1);
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.foreign_invalidations, statistics.bad_reply_count), (1, 1));
}

#[test]
fn s61_one_key_invalidated_by_the_peer_needs_no_local_inv() {
    for profile in PROFILES {
        let mut pair = Setup::new(profile).watched();
        pair.clear();
        // More than there are MRs and send queue entries: what the peer freed is used again.
        for cookie in 0..2000 {
            pair.request(cookie, 1, false, true);
        }
        let statistics = pair.pair.host.engine.statistics();
        assert_eq!((statistics.local_inv_needed, statistics.local_inv_chains), (0, 0), "{profile}");
        assert_eq!((statistics.remote_invalidations, statistics.mrs_allocated), (2000, 32));
        assert_eq!(pair.host.counters().invalidates, 0);
    }
}

#[test]
fn s61_s51_inline_memory_still_waits_for_its_send() {
    let mut pair = Setup::new("reg_mr").watched();
    pair.host.faults.hold(CompletionQueue::Send);
    let segments = pair.scattered(1);
    let inline = [pair.pair.host.segment(0, 64)];
    pair.pair.host.submit_with_inline(1, Access::RemoteWrite, &segments, &inline, true).unwrap();
    pair.until("invalidated", |pair| {
        pair.serve(true);
        pair.host.engine.statistics().remote_invalidations == 1
    });
    pair.steps(20);
    assert!(pair.pair.host.ended.is_empty());
    pair.host.faults.release();
    pair.until("ended", |pair| pair.host.ended.len() == 1);
}

#[test]
fn s62_private_data_and_the_invitation_reach_the_peer() {
    let pair = Setup::new("reg_mr").watched();
    let bytes = |text: &str| format!("{:?}", text.as_bytes());
    let told = |events: &[String], text: &str| events.iter().any(|event| event.contains(&bytes(text)));
    assert!(told(&pair.pair.target.events, "hello"), "{:?}", pair.pair.target.events);
    assert!(told(&pair.pair.host.events, "accepted"), "{:?}", pair.pair.host.events);
}

#[test]
fn s58_an_uninvited_invalidation_is_counted_and_taken() {
    let mut pair = Setup::new("reg_mr").watched();
    let (name, grants) = three_keys(&mut pair, 1, false);
    pair.clear();
    pair.pair.target.answer(name, &[], Some(grants[1].key));
    pair.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(pair.pair.host.ended, [(1, "replied")]);
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.uninvited_invalidations, statistics.remote_invalidations), (1, 1));
    assert_eq!(pair.host.chains(), ["LL*"], "what the peer killed is not killed again");
}

#[test]
fn s58_an_invited_peer_need_not_invalidate() {
    let mut pair = Setup::new("reg_mr").watched();
    let (name, grants) = three_keys(&mut pair, 1, true);
    pair.clear();
    pair.pair.target.answer(name, &grants, None);
    pair.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(pair.host.chains(), ["LLL*"]);
    assert_eq!(pair.pair.host.engine.statistics().uninvited_invalidations, 0);
}

#[test]
fn s63_i17_a_failed_receive_touches_no_mr() {
    let mut pair = Setup::new("reg_mr").watched();
    let (name, grants) = three_keys(&mut pair, 1, true);
    let filter = CompletionFilter::kind(TokenKind::Receive);
    pair.host.faults.on_completions(filter, CompletionFault::Fail(FailureStatus::Flushed.into()), 1);
    pair.pair.target.answer(name, &[], Some(grants[0].key));
    pair.until("disconnected", |pair| pair.host.disconnected == 1);
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.remote_invalidations, statistics.foreign_invalidations), (0, 0));
    assert_eq!(pair.pair.host.ended, [(1, "lost")]);
}
