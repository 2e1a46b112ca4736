//! Messages that nobody answers: what they take, when they end, and what comes back.

use frwr_engine::{
    CancelError, CreditError, EngineOptions, MemoryId, OnPostError, ResponseRequest, Segment, SendRequest, SubmitError,
    TransferError,
    provider::{FailureStatus, TokenKind},
};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};

/// A target that grants all its receives, and a host that may use so many.
fn test(profile: &str, peer_receives: u32) -> Scripted {
    let mut test = Scripted::of(Setup::new(profile).peer_receives(peer_receives));
    test.connect();
    test.watch.clear();
    test
}

/// The target takes what arrived.
fn arrived(test: &mut Scripted) -> Vec<u64> {
    let names = core::iter::from_fn(|| test.pair.target.take_command()).map(|(name, _)| u64::from_le_bytes(name));
    names.collect()
}

#[test]
fn s51_a_message_without_a_reply_ends_when_its_completion_says_that_its_memory_is_free() {
    for profile in PROFILES {
        let mut test = test(profile, 8);
        test.host.data.fill(0, 64, 0x5A).unwrap();
        test.hold(TokenKind::Message);
        let inline = [test.host.segment(0, 64)];
        test.host.send(1, &inline).unwrap();
        test.until("the target has it", |pair| !pair.target.commands.is_empty());
        test.steps(20);
        assert_eq!(test.status(1), None, "{profile}: the device may send it again");
        test.faults.release();
        test.until("ended", |pair| !pair.host.ended.is_empty());
        assert_eq!(test.status(1), Some("sent"), "{profile}");
        assert_eq!(test.chains(), ["S*"], "{profile}: one work request, which asks for its completion");
        let received = test.target.commands.pop().unwrap();
        let mut behind = [0; 64];
        assert_eq!(test.target.engine.message(&received, 12, &mut behind), 64);
        assert_eq!(behind, [0x5A; 64]);
        test.target.engine.release(received);
        assert_eq!(test.host.engine.statistics().request_slots_used, 0);
        test.round_trip(2);
    }
}

#[test]
fn a_message_is_copied_to_memory_as_far_as_it_goes_and_not_beyond_the_memory() {
    for profile in PROFILES {
        let mut test = test(profile, 8);
        test.host.data.fill(0, 64, 0x5A).unwrap();
        let inline = [test.host.segment(0, 64)];
        test.host.send(1, &inline).unwrap();
        test.until("the target has it", |pair| !pair.target.commands.is_empty());
        let received = test.target.commands.pop().unwrap();
        let (length, data) = (received.length(), test.target.data.clone());
        let end = data.len();
        // From, how many, to where, and how many came.
        for (from, bytes, at, copied) in [
            (12, 64, 0, 64),
            (12, 64, 3, 64),
            (length - 9, 64, 128, 9),
            (length - 9, 64, end - 9, 9),
            (length - 9, 9, end - 8, 0),
            (length, 1, 0, 0),
            (length + 1, 1, 0, 0),
            (12, 64, usize::MAX, 0),
        ] {
            data.fill(0, end, 0).unwrap();
            assert_eq!(
                test.target.engine.copy_message(&received, from, bytes, &data, at),
                copied,
                "{profile} {from} {at}"
            );
            let mut found = vec![0; end];
            data.read(0, &mut found).unwrap();
            let expected: Vec<u8> =
                (0..end).map(|byte| if byte >= at && byte - at < copied { 0x5A } else { 0 }).collect();
            assert!(found == expected, "{profile}: {bytes} from {from} to {at}");
        }
        test.target.engine.release(received);
        test.round_trip(2);
    }
}

#[test]
fn messages_without_a_reply_behind_one_doorbell_have_one_completion() {
    let mut test = test("reg_mr", 16);
    for cookie in 0..16 {
        test.host.send(cookie, &[]).unwrap();
    }
    test.until("ended", |pair| pair.host.ended.len() == 16);
    assert_eq!(test.chains(), [format!("{}S*", "S".repeat(15))]);
    assert!(test.host.ended.iter().all(|(_, status)| *status == "sent"));
    assert_eq!(arrived(&mut test), (0..16).collect::<Vec<_>>(), "in order");
}

#[test]
fn they_need_no_receive_of_ours_and_one_of_the_peer_that_its_protocol_gives_back() {
    let mut test = Scripted::of(Setup::new("reg_mr").peer_receives(2));
    // All that the host has is granted to its peer.
    test.host.granted_receives = Some(u32::MAX);
    test.connect();
    let connection = test.host.connection.unwrap();
    assert_eq!(test.try_submit(1, 0, false), Err(SubmitError::NoReplyReceives));
    assert_eq!(
        test.host.engine.return_peer_receives(connection, 1),
        Err(CreditError::NotTaken { returned: 1, taken: 0 })
    );
    for cookie in [2, 3] {
        test.host.send(cookie, &[]).unwrap();
    }
    assert_eq!(test.host.send(4, &[]), Err(SubmitError::NoPeerReceives), "nothing is bound to bring one");
    test.until("ended", |pair| pair.host.ended.len() == 2);
    assert_eq!(test.host.send(4, &[]), Err(SubmitError::NoPeerReceives), "an end says nothing of the peer's receive");
    assert_eq!(arrived(&mut test), [2, 3]);
    test.steps(2);
    assert_eq!(
        test.host.engine.return_peer_receives(connection, 3),
        Err(CreditError::NotTaken { returned: 3, taken: 2 })
    );
    test.host.engine.return_peer_receives(connection, 1).unwrap();
    test.host.send(4, &[]).unwrap();
    assert_eq!(test.host.send(5, &[]), Err(SubmitError::NoPeerReceives));
    test.host.engine.return_peer_receives(connection, 2).unwrap();
    test.until("ended", |pair| pair.host.ended.len() == 3);
    assert_eq!(test.target_monitor.messages_without_receive(), 0);
    test.host.engine.disconnect(connection);
    assert_eq!(test.host.engine.return_peer_receives(connection, 1), Err(CreditError::NotConnected));
    test.until_gone();
}

#[test]
fn a_peer_that_is_sent_one_has_no_receive_for_an_answer() {
    let mut test = test("reg_mr", 8);
    test.host.send(1, &[]).unwrap();
    test.until("the target has it", |pair| !pair.target.commands.is_empty());
    let connection = test.target.connection.unwrap();
    let answer = ResponseRequest { local: &[], remote: &[], message: &[0; 12], invalidate: None, cookie: 1 };
    assert_eq!(test.target.engine.respond(connection, &answer), Err(TransferError::NoPeerReceives));
    // What is answered brings one.
    test.submit(2, 0, false);
    test.until("both", |pair| pair.target.commands.len() == 2);
    test.target.engine.respond(connection, &answer).unwrap();
    assert_eq!(test.target.engine.respond(connection, &answer), Err(TransferError::NoPeerReceives));
}

#[test]
fn what_calls_itself_its_reply_is_none() {
    let mut test = test("reg_mr", 8);
    test.hold(TokenKind::Message);
    test.host.send(1, &[]).unwrap();
    // A command brings the receive that the false answer is sent into.
    test.submit(2, 0, false);
    test.until("both", |pair| pair.target.commands.len() == 2);
    test.reply(1_u64.to_le_bytes(), None);
    test.until("counted", |pair| pair.host.engine.statistics().bad_reply_count == 1);
    assert_eq!((test.status(1), test.host.disconnected), (None, 0));
    test.faults.release();
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(test.status(1), Some("sent"));
}

#[test]
fn one_that_was_not_posted_can_be_cancelled_and_gives_all_back() {
    let mut test = test("reg_mr", 1);
    let staged = test.host.send(1, &[]).unwrap();
    test.host.engine.cancel(staged).unwrap();
    let sent = test.host.send(2, &[]).unwrap();
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(test.status(1), Some("cancelled"));
    assert_eq!(test.chains(), ["S*"]);
    assert_eq!(test.host.engine.cancel(sent), Err(CancelError::Ended), "its completion is on the way");
    test.until("ended", |pair| pair.host.ended.len() == 2);
    assert_eq!((test.status(2), arrived(&mut test)), (Some("sent"), vec![2]));
    let connection = test.host.connection.unwrap();
    let taken = CreditError::NotTaken { returned: 2, taken: 1 };
    assert_eq!(test.host.engine.return_peer_receives(connection, 2), Err(taken), "the other one was never sent");
}

#[test]
fn they_wait_in_the_order_of_their_connection() {
    let mut test = Scripted::with("reg_mr", EngineOptions::default().registrations(1));
    test.submit(1, 1, false);
    test.submit(2, 1, false);
    test.host.send(3, &[]).unwrap();
    let given_up = test.host.send(4, &[]).unwrap();
    test.host.engine.cancel(given_up).unwrap();
    assert_eq!(test.host.engine.waiting().requests.total(), 2);
    let mut arrived = Vec::new();
    test.until("all", |pair| {
        if let Some((name, grants)) = pair.target.take_command() {
            arrived.push(u64::from_le_bytes(name));
            if !grants.is_empty() {
                pair.target.answer(name, &grants, None);
            }
        }
        pair.host.outstanding.is_empty() && arrived.len() == 3
    });
    assert_eq!(arrived, [1, 2, 3]);
    assert_eq!((test.status(3), test.status(4)), (Some("sent"), Some("cancelled")));
}

#[test]
fn k05_one_that_was_not_seen_to_be_sent_is_lost_with_its_connection() {
    for fails in [false, true] {
        let mut test = test("reg_mr", 8);
        if fails {
            // Of the one behind it, which vouches for nothing in front.
            test.fail(TokenKind::Message, FailureStatus::RetryExceeded);
        }
        test.host.send(1, &[]).unwrap();
        test.host.send(2, &[]).unwrap();
        if !fails {
            // Neither was posted.
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
        }
        test.until_gone();
        assert_eq!((test.status(1), test.status(2)), (Some("lost"), Some("lost")), "failure: {fails}");
        test.reconnect_works();
    }
}

#[test]
fn one_that_the_device_refuses_ends_so_and_gives_its_receive_back() {
    let mut test = Scripted::policy("reg_mr", OnPostError::DeregisterAndContinue);
    test.refuse(0);
    test.host.send(1, &[]).unwrap();
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!((test.status(1), test.host.disconnected), (Some("refused"), 0));
    let connection = test.host.connection.unwrap();
    let taken = CreditError::NotTaken { returned: 1, taken: 0 };
    assert_eq!(test.host.engine.return_peer_receives(connection, 1), Err(taken));
    test.round_trip(2);
}

#[test]
fn a_message_that_cannot_be_is_refused() {
    let mut test = test("reg_mr", 8);
    let connection = test.host.connection.unwrap();
    let long = vec![0; 8192];
    for message in [&[][..], &long] {
        let request = SendRequest { message, inline: &[], cookie: 1 };
        assert_eq!(test.host.engine.send(connection, &request), Err(SubmitError::MessageLength));
    }
    let outside = Segment { memory: MemoryId(7), offset: 0, length: 1 };
    assert_eq!(test.host.send(1, &[outside]), Err(SubmitError::UnknownMemory));
    let many = vec![test.host.segment(0, 1); 19];
    assert_eq!(test.host.send(1, &many), Err(SubmitError::TooManySegments));
    test.host.engine.disconnect(connection);
    assert_eq!(test.host.send(1, &[]), Err(SubmitError::NotConnected));
}
