//! Messages that overtake the news of their connection.

use core::time::Duration;
use frwr_engine::{
    ReceiveQueues,
    provider::{Access, soft::SoftDevice},
};
use frwr_support::engine_harness::{PROFILES, Pair, Setup, Side};

/// One step of a side whose Control is polled or sleeps.
fn step(side: &mut Side<SoftDevice>, controlled: bool) {
    if controlled {
        return side.step(Duration::ZERO);
    }
    side.engine.poll(Duration::ZERO, &mut side.protocol);
    while let Some(event) = side.engine.next_event() {
        side.event(event);
    }
    side.engine.flush();
}

fn told(side: &Side<SoftDevice>, event: &str) -> usize {
    side.events.iter().filter(|told| told.starts_with(event)).count()
}

/// The target's Control falls asleep behind so many steps. Messages arrive before and after the connection was given up.
fn given_up(mut pair: Pair<SoftDevice>, awake: usize, is_shared: bool) -> [usize; 2] {
    let options = pair.host.connection_options();
    pair.host.connection = Some(pair.host.engine.connect(pair.address, b"hello", &options).unwrap());
    for at in 0..40 {
        step(&mut pair.host, true);
        step(&mut pair.target, at < awake);
    }
    for cookie in [1, 2] {
        // The host may not be connected, where the target fell asleep early.
        let sent = pair.host.submit(cookie, Access::RemoteRead, &[], false).is_ok();
        for _ in 0..4 {
            step(&mut pair.host, true);
            step(&mut pair.target, false);
        }
        if sent && cookie == 1 {
            let opening: Vec<_> = pair.target.engine.connections().collect();
            opening.into_iter().for_each(|connection| pair.target.engine.disconnect(connection));
        }
    }
    pair.steps(20);
    let left: Vec<_> = pair.host.engine.connections().collect();
    left.into_iter().for_each(|connection| pair.host.engine.disconnect(connection));
    pair.until("ended", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    pair.steps(2);
    let buffers = pair.target.engine.receive_buffers();
    assert_eq!(buffers.held as usize, pair.target.commands.len(), "what nobody was told of is not held");
    if is_shared {
        assert_eq!(buffers.idle, 0, "and is posted again, for all connections");
    }
    [told(&pair.target, "Connected"), told(&pair.target, "Received")]
}

/// Nobody hears of messages of a connection that was never ready: those that came in front of them are gone.
#[test]
fn messages_of_a_connection_that_was_never_ready_are_told_to_nobody() {
    for profile in PROFILES {
        let mut never_ready = 0;
        for receive_queues in [ReceiveQueues::PerConnection, ReceiveQueues::Shared { entries: 0 }] {
            for awake in 0..12 {
                let setup = Setup::new(profile).target(|options| options.receive_queues = receive_queues);
                let [connected, received] =
                    given_up(setup.apart(|device| device), awake, receive_queues != ReceiveQueues::PerConnection);
                never_ready += usize::from(connected == 0);
                assert!(connected > 0 || received == 0, "{profile} {receive_queues:?} {awake}: {received} messages");
            }
        }
        assert!(never_ready > 0, "{profile}");
    }
}
