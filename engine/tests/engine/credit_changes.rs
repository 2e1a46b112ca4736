//! Credits that change while a connection is up: what the peer offers us, and what it is granted.

use frwr_engine::{CreditError, SubmitError};
use frwr_support::{
    Random,
    engine_harness::{PROFILES, Setup, scripted::*},
};

/// A pair of which both sides ask, with so many receives of each for both kinds, of which so many are granted.
fn both_ask(profile: &str, receives: u32, granted: u32) -> Scripted {
    let setup = Setup::new(profile)
        .host(|host| (host.receive_depth, host.queue_depth, host.transfer_depth) = (receives, 32, 32))
        .target(|target| (target.receive_depth, target.queue_depth) = (receives, 32));
    let mut test = Scripted::of(setup.peer_receives(granted));
    (test.host.granted_receives, test.target.granted_receives) = (Some(granted), Some(granted));
    test.connect();
    test.watch.clear();
    test
}

fn submit(test: &mut Scripted, cookies: core::ops::Range<u64>) {
    for cookie in cookies {
        test.submit(cookie, 0, false);
    }
}

/// Commands that the target has, once nothing moves.
fn arrived(test: &mut Scripted) -> usize {
    test.steps(20);
    test.target.commands.len()
}

fn answer(test: &mut Scripted, count: usize) {
    for _ in 0..count {
        let (name, _) = test.command();
        test.reply(name, None);
    }
}

#[test]
fn raised_credits_let_go_what_waits_and_lowered_ones_hold_back_only_what_is_new() {
    for profile in PROFILES {
        let mut test = both_ask(profile, 48, 1);
        let connection = test.host.connection.unwrap();
        let theirs = test.target.connection.unwrap();
        test.target.engine.set_granted_receives(theirs, 8).unwrap();
        submit(&mut test, 0..20);
        assert_eq!(arrived(&mut test), 1, "{profile}");
        test.host.engine.set_peer_receives(connection, 6).unwrap();
        assert_eq!(arrived(&mut test), 6, "{profile}");
        // Six are under way.
        test.host.engine.set_peer_receives(connection, 2).unwrap();
        answer(&mut test, 4);
        assert_eq!((arrived(&mut test), test.host.ended.len()), (2, 4), "{profile}: nothing new");
        answer(&mut test, 1);
        assert_eq!((arrived(&mut test), test.host.ended.len()), (2, 5), "{profile}: one for one");
        test.host.engine.set_peer_receives(connection, 8).unwrap();
        assert_eq!(arrived(&mut test), 8, "{profile}");
        test.until("all", |pair| {
            pair.serve(false);
            pair.host.outstanding.is_empty()
        });
        assert_eq!(test.target_monitor.messages_without_receive(), 0, "{profile}");
    }
}

#[test]
fn without_credits_what_waits_stays_and_what_comes_is_refused() {
    let mut test = both_ask("reg_mr", 48, 4);
    let connection = test.host.connection.unwrap();
    submit(&mut test, 0..6);
    assert_eq!(arrived(&mut test), 4);
    test.host.engine.set_peer_receives(connection, 0).unwrap();
    answer(&mut test, 4);
    test.until("those that were under way", |pair| pair.host.ended.len() == 4);
    assert_eq!((arrived(&mut test), test.host.engine.waiting().requests.peer_receives), (0, 1));
    assert_eq!(test.try_submit(9, 0, false), Err(SubmitError::NoPeerReceives), "no reply is due that would bring one");
    assert_eq!(test.host.send(10, &[]), Err(SubmitError::NoPeerReceives));
    test.host.engine.set_peer_receives(connection, 1).unwrap();
    assert_eq!(arrived(&mut test), 1);
    test.until("all", |pair| {
        pair.serve(false);
        pair.host.outstanding.is_empty()
    });
}

#[test]
fn what_is_granted_passes_to_and_from_the_receives_for_replies() {
    let mut test = both_ask("reg_mr", 10, 4);
    let (ours, theirs) = (test.host.connection.unwrap(), test.target.connection.unwrap());
    // Six receives of the host are for replies; four await one.
    submit(&mut test, 0..4);
    assert_eq!(arrived(&mut test), 4);
    let error = CreditError::Granted { wanted: 7, most: 6 };
    assert_eq!(test.host.engine.set_granted_receives(ours, 7), Err(error));
    assert!(error.to_string().contains("granted 7 receives, but 6 can be"), "{error}");
    test.host.engine.set_granted_receives(ours, 6).unwrap();
    test.target.engine.set_granted_receives(theirs, 5).unwrap();
    test.target.engine.set_peer_receives(theirs, 6).unwrap();
    // The peer may use more than before at once, and the replies of ours find theirs.
    for cookie in 100..105 {
        test.target.submit(cookie, frwr_engine::Access::RemoteRead, &[], false).unwrap();
    }
    test.until("the host has them", |pair| pair.host.commands.len() == 5);
    assert_eq!(test.monitor.messages_without_receive(), 0);
    submit(&mut test, 4..5);
    test.host.engine.set_peer_receives(ours, 5).unwrap();
    assert_eq!(test.host.engine.waiting().requests.reply_receives, 1, "none of ours is free");
    for _ in 0..5 {
        let (name, _) = test.host.take_command().unwrap();
        test.host.answer(name, &[], None);
    }
    test.until("answered", |pair| pair.target.ended.len() == 5);
    // Lowered, since the peer obeys: they are for replies again.
    test.target.engine.set_peer_receives(theirs, 1).unwrap();
    test.host.engine.set_granted_receives(ours, 1).unwrap();
    assert_eq!(arrived(&mut test), 5);
    answer(&mut test, 5);
    test.until("all", |pair| pair.host.outstanding.is_empty());
    assert_eq!(test.host.engine.set_granted_receives(ours, 11), Err(CreditError::Granted { wanted: 11, most: 10 }));
    test.host.engine.set_granted_receives(ours, 10).unwrap();
    assert_eq!(test.try_submit(50, 0, false), Err(SubmitError::NoReplyReceives));
    test.host.engine.set_granted_receives(ours, 0).unwrap();
    test.round_trip(51);
    assert_eq!(test.target_monitor.messages_without_receive() + test.monitor.messages_without_receive(), 0);
}

#[test]
fn credits_are_of_a_connection_that_is_ready() {
    let mut test = both_ask("reg_mr", 10, 4);
    let connection = test.host.connection.unwrap();
    test.host.engine.set_peer_receives(connection, 1).unwrap();
    test.host.engine.set_granted_receives(connection, 1).unwrap();
    test.host.engine.disconnect(connection);
    assert_eq!(test.host.engine.set_peer_receives(connection, 2), Err(CreditError::NotConnected));
    assert_eq!(test.host.engine.set_granted_receives(connection, 2), Err(CreditError::NotConnected));
    test.until_gone();
    assert_eq!(test.host.engine.set_peer_receives(connection, 2), Err(CreditError::NotConnected), "a former one");
    // The next one has what it was opened with.
    test.reconnect_works();
    submit(&mut test, 100..110);
    assert_eq!(arrived(&mut test), 4);
}

/// Both sides raise and lower what they offer, tell the other one at once, and obey; each lowers only what is not in use.
#[test]
fn no_message_meets_no_receive_however_credits_change_on_both_sides() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut test = both_ask(PROFILES[seed as usize % PROFILES.len()], 12, 4);
        let (ours, theirs) = (test.host.connection.unwrap(), test.target.connection.unwrap());
        let (mut next, mut granted) = ([0, 1_000_000], [4, 4]);
        for _ in 0..400 {
            for (side, next) in next.iter_mut().enumerate() {
                let pair = &mut test.pair;
                let (asks, grants, name, other) = match side {
                    0 => (&mut pair.host, &mut pair.target, ours, theirs),
                    _ => (&mut pair.target, &mut pair.host, theirs, ours),
                };
                if random.one_in(2) && asks.submit(*next, frwr_engine::Access::RemoteRead, &[], false).is_ok() {
                    *next += 1;
                }
                if random.one_in(3)
                    && let Some((command, _)) = asks.take_command()
                {
                    asks.answer(command, &[], None);
                }
                if !random.one_in(10) {
                    continue;
                }
                let wanted = random.below(10) as u32;
                let in_use = asks.outstanding.len() as u32;
                // Whoever asks obeys at once; those that it has in use are granted until they were answered.
                if wanted > granted[side] && grants.engine.set_granted_receives(other, wanted).is_ok() {
                    asks.engine.set_peer_receives(name, wanted).unwrap();
                    granted[side] = wanted;
                } else if wanted < granted[side] && in_use == 0 {
                    asks.engine.set_peer_receives(name, wanted).unwrap();
                    grants.engine.set_granted_receives(other, wanted).unwrap();
                    granted[side] = wanted;
                }
            }
            test.steps(random.below(3) as u32);
            let without = test.monitor.messages_without_receive() + test.target_monitor.messages_without_receive();
            assert_eq!(without, 0, "seed {seed}");
        }
        for (side, (name, other)) in [(ours, theirs), (theirs, ours)].into_iter().enumerate() {
            let pair = &mut test.pair;
            let (asks, grants) =
                if side == 0 { (&mut pair.host, &mut pair.target) } else { (&mut pair.target, &mut pair.host) };
            let one = granted[side].max(1);
            if grants.engine.set_granted_receives(other, one).is_ok() {
                asks.engine.set_peer_receives(name, one).unwrap();
            }
        }
        test.until("all ended", |pair| {
            while let Some((command, _)) = pair.host.take_command() {
                pair.host.answer(command, &[], None);
            }
            while let Some((command, _)) = pair.target.take_command() {
                pair.target.answer(command, &[], None);
            }
            pair.host.outstanding.is_empty() && pair.target.outstanding.is_empty()
        });
        assert_eq!(test.host.disconnected + test.target.disconnected, 0, "seed {seed}");
    }
}
