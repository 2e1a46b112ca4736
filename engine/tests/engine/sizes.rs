//! Sizes in effect: what a connection has, as its device grants it and as it stands now.

use frwr_engine::EngineOptions;
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};

/// Entries of the send queue that no request can have: the marker's and the pad's.
const SET_ASIDE: u32 = 2;

#[test]
fn a_connection_says_what_its_device_granted() {
    for profile in PROFILES {
        let setup = Setup::new(profile).host(|host| (host.registrations, host.write_pad) = (5, true));
        let mut test = Scripted::of(setup.device(|soft| soft.capabilities.attributes.max_qp_wr = 64));
        assert_eq!(test.host.connection.and_then(|one| test.host.engine.connection_sizes(one)), None, "{profile}");
        test.connect();
        let connection = test.host.connection.unwrap();
        let (sizes, of_all) = (test.host.engine.connection_sizes(connection).unwrap(), test.host.engine.sizes());
        assert_eq!(
            (sizes.send_entries, sizes.usable_entries),
            (of_all.send_entries, of_all.usable_entries),
            "{profile}"
        );
        assert!(sizes.send_entries <= 64 && sizes.usable_entries + SET_ASIDE <= sizes.send_entries, "{profile}");
        assert_eq!((sizes.registrations, of_all.registrations), (5, 5), "{profile}: the pad's is none of them");
        assert_eq!(sizes.granted_receives + sizes.reply_receives, of_all.receive_entries, "{profile}");
        test.submit(1, 2, false);
        assert_eq!(test.host.engine.connection_sizes(connection).unwrap().registrations, 5, "{profile}: in use or not");
        test.host.engine.disconnect(connection);
        assert_eq!(test.host.engine.connection_sizes(connection), None, "{profile}");
        test.until_gone();
        assert_eq!(test.host.engine.connection_sizes(connection), None, "{profile}");
    }
}

#[test]
fn a_device_with_fewer_mrs_shows() {
    let setup = Setup::new("reg_mr").host(|host| host.registrations = 11);
    let mut pair = setup.device(|soft| soft.capabilities.attributes.max_registrations = 2).watched_apart().pair;
    pair.connect();
    let connection = pair.host.connection.unwrap();
    let sizes = pair.host.engine.connection_sizes(connection).unwrap();
    assert_eq!((sizes.registrations, pair.host.engine.sizes().registrations), (2, 11));
}

#[test]
fn credits_are_those_of_this_moment() {
    let setup = Setup::new("reg_mr").host(|host| (host.receive_depth, host.queue_depth) = (20, 8));
    let mut test = Scripted::of(setup.peer_receives(6));
    test.host.granted_receives = Some(4);
    test.connect();
    let connection = test.host.connection.unwrap();
    let credits = |test: &Scripted| {
        let sizes = test.host.engine.connection_sizes(connection).unwrap();
        let peers = (sizes.peer_receives, sizes.free_peer_receives);
        (peers, sizes.granted_receives, (sizes.reply_receives, sizes.free_reply_receives))
    };
    assert_eq!(credits(&test), ((6, 6), 4, (16, 16)));
    for cookie in 0..3 {
        test.submit(cookie, 0, false);
    }
    assert_eq!(credits(&test), ((6, 3), 4, (16, 13)));
    test.host.engine.set_peer_receives(connection, 2).unwrap();
    test.host.engine.set_granted_receives(connection, 10).unwrap();
    assert_eq!(credits(&test), ((2, 0), 10, (10, 7)));
    test.until("all", |pair| {
        pair.serve(false);
        pair.host.outstanding.is_empty()
    });
    assert_eq!(credits(&test), ((2, 2), 10, (10, 10)));
}

#[test]
fn an_engine_says_what_messages_requests_and_transfers_have_at_most() {
    let options = EngineOptions::default().message_bytes(1000).max_segments(7);
    let mut test = Scripted::with("reg_mr", options);
    let sizes = test.host.engine.sizes();
    assert_eq!((sizes.message_bytes, sizes.segments_per_request, sizes.operations_per_transfer), (1024, 7, 16));
    let inline = vec![test.host.segment(0, 8); sizes.inline_segments as usize + 1];
    assert!(test.host.send(1, &inline).is_err());
    test.host.send(2, &inline[1..]).unwrap();
    test.until("sent", |pair| pair.host.ended.len() == 1);
}
