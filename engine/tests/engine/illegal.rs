//! Table 4.3 as far as the engine's interface lets somebody try.

use frwr_engine::{
    CancelError, Chunk, ConnectionOptions, DisconnectCause, EngineOptions, OnPostError, RequestHandle, Submission,
    SubmitError,
    gather::{GatherError, MemoryId, Segment},
    provider::{Access, TokenKind},
};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};

#[test]
fn i18_empty_and_foreign_memory_is_refused_before_anything_is_taken() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let memory = test.host.memory;
        let at = |offset, length| Segment { memory, offset, length };
        for (segments, error) in [
            (vec![], SubmitError::Segment(GatherError::NoSegments)),
            (vec![at(0, 0)], SubmitError::Segment(GatherError::EmptySegment)),
            (vec![at(0, 8), at(64, 0)], SubmitError::Segment(GatherError::EmptySegment)),
            (vec![at((1 << 20) - 4, 8)], SubmitError::Segment(GatherError::OutOfBounds)),
            (vec![at(u64::MAX - 1, 8)], SubmitError::Segment(GatherError::OutOfBounds)),
            (vec![at(0, u32::MAX)], SubmitError::Segment(GatherError::OutOfBounds)),
            (vec![Segment { memory: MemoryId(9), offset: 0, length: 8 }], SubmitError::UnknownMemory),
            (vec![at(0, 8); 33], SubmitError::TooManySegments),
        ] {
            let chunks = [Chunk { access: Access::RemoteRead, segments: &segments }];
            let refused = test.host.submit_chunks(1, &chunks, false);
            assert_eq!(refused, Err(error), "{profile} {segments:?}");
        }
        assert_eq!(test.host.engine.statistics().request_slots_used, 0);
        assert_eq!(test.descriptors()[1..], [0, 0, 0]);
    }
}

#[test]
fn i22_a_key_travels_only_behind_its_registration_on_the_same_queue() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        for cookie in 1..=3 {
            test.submit(cookie, cookie, true);
        }
        test.steps(1);
        assert_eq!(test.chains(), ["RSRRSRRRS"], "{profile}");
    }
}

#[test]
fn i24_names_of_a_former_connection_are_refused_everywhere() {
    let mut test = Scripted::new("reg_mr");
    let old = test.host.connection.unwrap();
    let request = test.submit(1, 1, false);
    test.host.engine.disconnect(old);
    test.until_gone();
    test.connect();
    let segment = test.host.segment(0, 64);
    let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
    let submission = Submission {
        message: b"message.....",
        inline: &[],
        chunks: &[],
        invite_invalidation: false,
        iova_cookie: 0,
        cookie: 9,
    };
    let host = &mut test.pair.host;
    assert_eq!(host.engine.submit(old, &submission, &mut host.protocol), Err(SubmitError::NotConnected));
    assert_eq!(host.engine.register_now(old, &chunk, 9, &mut host.protocol), Err(SubmitError::NotConnected));
    assert_eq!(host.engine.cancel(request), Err(CancelError::Ended));
    assert!(!host.engine.is_ready(old) && host.engine.queue_pair(old).is_none());
    host.engine.disconnect(old);
    test.round_trip(2);
    assert_eq!(test.host.disconnected, 1, "the new connection is not touched");
}

#[test]
fn i13_i16_handles_of_ended_requests_name_nothing_also_when_their_slot_is_used_again() {
    let mut test = Scripted::with("reg_mr", EngineOptions::default().queue_depth(1));
    let mut old: Vec<RequestHandle> = Vec::new();
    for cookie in 0..50 {
        old.push(test.submit(cookie, 1, false));
        for handle in &old[..old.len() - 1] {
            assert_eq!(test.host.engine.cancel(*handle), Err(CancelError::Ended));
        }
        test.until("ended", |pair| {
            pair.serve(false);
            pair.host.outstanding.is_empty()
        });
        assert_eq!(test.status(cookie), Some("replied"));
    }
}

#[test]
fn i26_a_peer_that_invalidates_the_pad_is_disconnected_and_the_pad_is_made_anew() {
    for profile in ["reg_mr", "window", "umr"] {
        let setup = Setup::new(profile).host(|host| host.write_pad = true);
        let mut test = Scripted::of(setup);
        test.connect();
        let pad = test.host.engine.write_pad(test.host.connection.unwrap()).unwrap();
        test.submit(1, 1, true);
        let (name, _) = test.command();
        // A request given up leaves the target a receive for a second answer, which must not count either.
        let given_up = test.submit(2, 0, false);
        test.command();
        test.host.engine.cancel(given_up).unwrap();
        test.reply(name, Some(pad.key));
        test.reply(name, None);
        test.until("gone", |pair| pair.host.engine.is_disconnected());
        assert_eq!(test.host.causes, [DisconnectCause::ForeignInvalidation], "{profile}");
        assert_eq!((test.status(1), test.open_bytes()), (Some("lost"), 0));
        test.until_gone();
        test.connect();
        let new = test.host.engine.write_pad(test.host.connection.unwrap()).unwrap();
        assert_ne!(new.key, pad.key);
        test.round_trip(3);
        assert_eq!(test.open_bytes(), 4);
    }
}

#[test]
fn i02_i11_i31_i32_the_device_never_has_to_refuse_what_the_engine_posts() {
    // The window profile checks every rule of type-2 windows, the reg_mr one those of page lists, all of them room.
    for profile in PROFILES {
        for policy in [OnPostError::Disconnect, OnPostError::DeregisterAndContinue] {
            let options = EngineOptions::default().on_post_error(policy).registrations(40);
            let mut test = Scripted::with(profile, options);
            for round in 0..60u64 {
                for at in 0..12 {
                    let _ = test.try_submit(round * 12 + at, at % 4, at % 2 == 0);
                }
                test.serve(round % 2 == 0);
                test.steps(1);
            }
            test.until("all", |pair| {
                pair.serve(true);
                pair.host.outstanding.is_empty()
            });
            let statistics = test.host.engine.statistics();
            assert_eq!((statistics.posts_refused, test.host.disconnected), (0, 0), "{profile} {policy:?}");
            assert_eq!(statistics.stale_completions, 0, "{profile}: every completion found its work request");
        }
    }
}

#[test]
fn i33_a_base_registration_goes_after_everything_in_it() {
    for profile in PROFILES {
        let setup = Setup::new(profile).host(|host| host.domain = frwr_engine::DomainPolicy::PerConnection);
        let mut test = Scripted::of(setup);
        for cookie in 0..20 {
            test.connect();
            test.submit(cookie, 3, false);
            test.steps(5);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until_gone();
            test.steps(20);
        }
        assert_eq!(test.control_failures(), 0, "{profile}: no object was busy when it had to go");
        assert!(test.host.control.is_idle());
    }
}

#[test]
fn i34_a_signal_flag_is_not_inherited_from_an_earlier_use_of_the_slot() {
    let mut test = Scripted::with("reg_mr", EngineOptions::default().queue_depth(1));
    for cookie in 0..40u64 {
        let segment = test.host.segment(0, 64);
        if cookie % 2 == 0 {
            // Bytes of the caller's own memory in the message: its completion is awaited (S51).
            let host = &mut test.pair.host;
            let mut message = [0; 12];
            message[..8].copy_from_slice(&cookie.to_le_bytes());
            let submission = Submission {
                message: &message,
                inline: &[segment],
                chunks: &[],
                invite_invalidation: false,
                iova_cookie: 0,
                cookie,
            };
            let handle = host.engine.submit(host.connection.unwrap(), &submission, &mut host.protocol).unwrap();
            host.protocol.names.insert(cookie, handle);
            host.outstanding.insert(cookie, 0);
        } else {
            test.submit(cookie, 1, true);
        }
        test.until("ended", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
        let posted = test.posted();
        let message = posted.iter().find(|wr| wr.token.kind() == TokenKind::Message).unwrap();
        assert_eq!(message.signalled, cookie % 2 == 0, "{cookie}");
    }
}

#[test]
fn i28_no_object_is_made_for_a_connection_that_is_not_there() {
    let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
    test.steps(100);
    assert_eq!(test.host.engine.statistics().mrs_allocated, 0);
    let options = ConnectionOptions::default();
    let connection = test.pair.host.engine.connect("127.0.0.1:4421".parse().unwrap(), b"", &options).unwrap();
    test.host.connection = Some(connection);
    test.until("failed", |pair| pair.host.open_failed == 1);
    test.steps(50);
    assert_eq!(test.host.engine.statistics().mrs_allocated, 0);
}
