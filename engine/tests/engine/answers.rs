//! Answers that are none: to what has been answered, and on a connection that the request is not of (I16, I22, I25).

use frwr_engine::{Chunk, EngineOptions, OnPostError, ReceiveQueues, RequestHandle, provider::Access};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};

/// Messages that the target may send although nobody asked.
const UNASKED: u32 = 4;

/// A pair whose target may do so.
fn talkative(profile: &str, options: EngineOptions) -> Scripted {
    let mut test = Scripted::unconnected(profile, options);
    test.host.granted_receives = Some(UNASKED);
    test.target.peer_receives = UNASKED;
    test.connect();
    test
}

/// The target answers twice, and the host sees both by one poll.
fn answered_twice(test: &mut Scripted, name: [u8; 8]) {
    test.reply(name, None);
    test.reply(name, None);
    test.target.engine.flush();
    let now = test.pair.now;
    let before = test.host.engine.statistics().receive_completions;
    // Both are on the wire before the host looks.
    for _ in 0..20 {
        test.pair.target.step(now);
    }
    let host = &mut test.pair.host;
    for _ in 0..100 {
        if host.engine.statistics().receive_completions > before {
            break;
        }
        host.engine.poll(now, &mut host.protocol);
    }
    assert_eq!(host.engine.statistics().receive_completions - before, 2, "both by one poll");
}

/// Opens 512 bytes without a message.
fn open(test: &mut Scripted, cookie: u64) -> RequestHandle {
    let segment = test.host.segment(4096, 512);
    let host = &mut test.pair.host;
    let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
    let open = host.engine.register_now(host.connection.unwrap(), &chunk, cookie, &mut host.protocol).unwrap();
    host.outstanding.insert(cookie, 512);
    host.protocol.names.insert(cookie, open);
    open
}

/// Nothing of the host's is missing behind answers that were none.
fn nothing_is_lost(test: &mut Scripted, cookie: u64) {
    test.round_trip(cookie);
    let (statistics, buffers) = (test.host.engine.statistics(), test.host.engine.receive_buffers());
    // Hold keeps slots whose messages asked for no completion.
    assert_eq!((statistics.request_slots_used, buffers.held), (statistics.slots_held, 0), "slots, receive buffers");
    assert_eq!(statistics.requests, statistics.requests_ended);
    assert_eq!((test.host.disconnected, test.open_bytes()), (0, 0));
}

/// The second one finds a request that has ended, or whose keys are being killed: it ends nothing, and its buffer goes back.
#[test]
fn i16_i25_the_second_of_two_answers_in_one_poll_is_none() {
    // With receives of its own and no trace the engine has a shorter way for the usual answer.
    let shared = EngineOptions::default().receive_queues(ReceiveQueues::Shared { entries: 0 });
    let traced = EngineOptions::default().trace_records(256);
    for profile in PROFILES {
        for options in [EngineOptions::default(), shared.clone(), traced.clone()] {
            for mrs in [0, 1, 3] {
                let mut test = talkative(profile, options.clone());
                test.submit(1, mrs, false);
                let (name, _) = test.command();
                answered_twice(&mut test, name);
                assert_eq!(test.host.engine.statistics().bad_reply_count, 1, "{profile} {mrs}");
                test.until("ended", |pair| pair.host.ended.len() == 1);
                assert_eq!(test.host.ended, [(1, "replied")], "{profile} {mrs}");
                nothing_is_lost(&mut test, 2);
            }
        }
    }
}

/// A request is answered where it was sent: what another peer says of it is no answer.
#[test]
fn i22_i25_an_answer_on_another_connection_ends_nothing() {
    for mrs in [0, 1, 3] {
        let mut test = talkative("reg_mr", EngineOptions::default());
        test.submit(1, mrs, false);
        let (first, _) = test.command();
        let (host, target) = (test.host.connection, test.target.connection);
        test.connect();
        assert_ne!((test.host.connection, test.target.connection), (host, target));
        // A command for which the other peer may answer.
        test.submit(2, 0, false);
        let (second, _) = test.command();
        test.reply(first, None);
        test.until("counted", |pair| pair.host.engine.statistics().bad_reply_count == 1);
        test.steps(20);
        assert_eq!((test.host.ended.len(), test.open_bytes()), (0, mrs * 512), "{mrs}");
        // Both peers answer their own.
        test.reply(second, None);
        test.until("the second", |pair| pair.host.ended == [(2, "replied")]);
        let other = core::mem::replace(&mut test.target.connection, target);
        test.reply(first, None);
        test.until("the first", |pair| pair.host.ended == [(2, "replied"), (1, "replied")]);
        test.target.connection = other;
        nothing_is_lost(&mut test, 3);
    }
}

/// A registration without a message has nothing that anybody could answer.
#[test]
fn i25_an_answer_to_a_registration_without_a_message_ends_nothing() {
    let mut test = talkative("reg_mr", EngineOptions::default());
    let open = open(&mut test, 1);
    test.until("registered", |pair| pair.host.grants.len() == 1);
    test.submit(2, 0, false);
    test.command();
    test.reply(1u64.to_le_bytes(), None);
    test.until("counted", |pair| pair.host.engine.statistics().bad_reply_count == 1);
    test.steps(20);
    assert_eq!((test.host.ended.len(), test.open_bytes()), (0, 512), "it stays open");
    test.host.engine.cancel(open).unwrap();
    test.reply(2u64.to_le_bytes(), None);
    test.until("both ends", |pair| pair.host.ended.len() == 2);
    assert_eq!((test.status(1), test.status(2)), (Some("cancelled"), Some("replied")));
    nothing_is_lost(&mut test, 3);
}

/// With one receive that the peer grants, one message is on its way at any time: also behind a registration without a message that
/// was refused, which took none of them and gives none back (S135, D14).
#[test]
fn s135_a_refused_registration_without_a_message_grants_no_message() {
    for profile in PROFILES {
        for accepted in [0, 1] {
            let setup = Setup::new(profile).peer_receives(1);
            let mut test = Scripted::of(setup.host(|host| host.on_post_error = OnPostError::DeregisterAndContinue));
            test.connect();
            test.refuse(accepted);
            let open = open(&mut test, 1);
            test.until("refused, or registered", |pair| pair.host.ended.len() + pair.host.grants.len() == 1);
            if test.host.ended.is_empty() {
                test.host.engine.cancel(open).unwrap();
                test.until("ended", |pair| pair.host.ended.len() == 1);
            }
            test.submit(2, 0, false);
            test.submit(3, 0, false);
            test.steps(50);
            assert_eq!(test.target.commands.len(), 1, "{profile} {accepted}: one is granted");
            test.until("all ended", |pair| {
                pair.serve(false);
                pair.host.ended.len() == 3
            });
            nothing_is_lost(&mut test, 4);
        }
    }
}
