//! Section 1.H: what is undone when a message has no room for its keys, and what needs no work request.

use frwr_engine::{EngineOptions, RequestStatus, SubmitError, provider::record::RecordedOperation};
use frwr_support::engine_harness::{PROFILES, scripted::*};

#[test]
fn s85_s87_s89_a_failed_marshal_posts_nothing_destroys_nothing_and_gives_all_back() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let before = test.descriptors();
        test.host.protocol.refuse = true;
        for count in 1..=500 {
            assert_eq!(test.try_submit(1, 3, true), Err(SubmitError::Unannounced));
            assert_eq!(test.host.engine.statistics().failed_marshal_count, count);
        }
        test.steps(5);
        assert!(test.chains().is_empty(), "{profile}");
        assert_eq!(test.descriptors(), before);
        assert_eq!(test.host.engine.statistics().mrs_destroyed, 0, "S89: no deregistration");
        assert_eq!(test.open_bytes(), 0);
        test.host.protocol.refuse = false;
        for cookie in 0..40 {
            test.round_trip(cookie);
        }
    }
}

#[test]
fn s86_a_burnt_key_is_skipped_and_the_next_registration_works_without_an_invalidation() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(1));
        let key = |test: &mut Scripted| {
            test.posted()
                .iter()
                .find_map(|wr| match wr.operation {
                    RecordedOperation::Register { key, .. } => Some(key),
                    _ => None,
                })
                .unwrap()
        };
        test.round_trip(1);
        let first = key(&mut test);
        test.host.protocol.refuse = true;
        assert_eq!(test.try_submit(2, 1, true), Err(SubmitError::Unannounced));
        test.host.protocol.refuse = false;
        test.submit(3, 1, true);
        let (name, grants) = test.command();
        assert_eq!(test.chains(), ["RS"], "{profile}: no LOCAL_INV between");
        test.reply(name, Some(grants[0].key));
        let step = if profile == "umr:fixed-key" { 0 } else { 2 };
        assert_eq!(grants[0].key, (first & !0xFF) | ((first + step) & 0xFF), "{profile}");
        test.until("ended", |pair| pair.host.ended.len() == 2);
        assert_eq!(test.host.disconnected, 0);
    }
}

#[test]
fn s87_a_request_that_waited_is_told_that_it_could_not_be_announced() {
    let mut test = Scripted::with("reg_mr", EngineOptions::default().registrations(2));
    test.submit(1, 2, true);
    test.submit(2, 1, true);
    let (name, grants) = test.command();
    test.host.protocol.refuse = true;
    test.reply(name, Some(grants[0].key));
    test.until("both ended", |pair| pair.host.outstanding.is_empty());
    assert_eq!((test.status(1), test.status(2)), (Some("replied"), Some("unannounced")));
    assert_eq!(test.descriptors(), [2, 0, 0, 0]);
    test.host.protocol.refuse = false;
    test.round_trip(3);
    let _: fn(RequestStatus) = drop;
}

#[test]
fn s87_each_other_refusal_of_submit_leaves_nothing_behind() {
    let options = EngineOptions::default().queue_depth(2).registrations(2);
    let mut test = Scripted::with("window", options);
    let before = test.descriptors();
    assert_eq!(test.try_submit(1, 3, false), Err(SubmitError::TooManyRegistrations));
    assert_eq!(test.descriptors(), before);
    // Two connections, two requests each, two slots per request.
    for cookie in 0..8 {
        test.submit(cookie, 0, false);
    }
    assert_eq!(test.try_submit(99, 0, false), Err(SubmitError::NoSlot));
    test.until("ended", |pair| {
        pair.serve(false);
        pair.host.outstanding.is_empty()
    });
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    assert_eq!(test.submit_now(), Err(SubmitError::NotConnected));
    test.until_gone();
    assert_eq!(test.submit_now(), Err(SubmitError::NotConnected), "a former connection (I24)");
}

#[test]
fn s88_mrs_of_a_dead_queue_pair_are_recovered_without_a_work_request() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 3, false);
        let (name, _) = test.command();
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.reply(name, None);
        test.watch.clear();
        test.until_gone();
        assert_eq!(test.chains(), ["D*"], "{profile}: nothing but the marker of the drain");
        let statistics = test.host.engine.statistics();
        assert_eq!(statistics.mrs_allocated, statistics.mrs_destroyed);
        test.reconnect_works();
    }
}
