//! An engine whose core sleeps: what arrives wakes it, once, and nothing lets it sleep that has to be polled for.

use core::task::Waker;
use frwr_engine::provider::Access;
use frwr_engine::provider::soft::SoftDevice;
use frwr_engine::{FetchRequest, RemoteRange, RemoteSegment};
use frwr_support::engine_harness::{PROFILES, Pair, Setup, Side};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

/// How often it was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    fn of(side: &mut Side<SoftDevice>) -> Arc<Self> {
        let woken = Arc::<Self>::default();
        side.engine.wakes(&Waker::from(Arc::clone(&woken)));
        woken
    }

    /// Since it was asked last.
    fn times(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Two sides that may sleep.
fn pair(profile: &str) -> (Pair, [Arc<Woken>; 2]) {
    let mut pair = Setup::new(profile).apart(|device| device);
    let woken = [Woken::of(&mut pair.host), Woken::of(&mut pair.target)];
    (pair, woken)
}

/// It has armed, been polled once more, found nothing, and waits for nothing that wakes nobody.
fn sleeps(pair: &mut Pair, of: fn(&mut Pair) -> &mut Side<SoftDevice>) -> bool {
    let now = pair.now;
    let Side { engine, protocol, .. } = of(pair);
    let armed = engine.arm();
    armed && engine.poll(now, protocol) == 0 && engine.poll_at().is_none_or(|at| at > now)
}

fn host(pair: &mut Pair) -> &mut Side<SoftDevice> {
    &mut pair.host
}

fn target(pair: &mut Pair) -> &mut Side<SoftDevice> {
    &mut pair.target
}

fn connected(profile: &str) -> (Pair, [Arc<Woken>; 2]) {
    let (mut pair, woken) = pair(profile);
    pair.connect();
    pair.until("both sleep", |pair| sleeps(pair, host) && sleeps(pair, target));
    woken.iter().for_each(|woken| {
        woken.times();
    });
    (pair, woken)
}

#[test]
fn a_message_wakes_its_receiver_and_so_does_its_reply() {
    for profile in PROFILES {
        let (mut pair, [of_host, of_target]) = connected(profile);
        assert!(sleeps(&mut pair, target));
        let segment = pair.host.segment(0, 4096);
        pair.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        pair.host.engine.flush();
        assert!(sleeps(&mut pair, host) && pair.host.engine.rests(), "{profile}: its message is on the wire");
        assert_eq!(of_target.times(), 1, "{profile}");
        // The request is with the target, which takes its time: the host sleeps while it waits.
        pair.until("the host sleeps", |pair| !pair.target.commands.is_empty() && sleeps(pair, host));
        of_host.times();
        assert!(sleeps(&mut pair, host));
        pair.serve(true);
        pair.target.engine.flush();
        assert!(of_host.times() > 0, "{profile}");
        pair.until("it ended", |pair| pair.host.ended.len() == 1);
    }
}

/// All that it posted is on the wire, so that polling on would bring nothing; whatever the peer says of it wakes.
#[test]
fn who_waits_for_an_answer_sleeps_and_the_answer_wakes_it() {
    for profile in PROFILES {
        let (mut pair, [of_host, _]) = connected(profile);
        let segment = pair.host.segment(0, 4096);
        pair.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        pair.host.engine.flush();
        assert!(sleeps(&mut pair, host) && pair.host.engine.rests(), "{profile}");
        assert_eq!(of_host.times(), 0, "{profile}: nobody has answered");
        pair.target.step(pair.now);
        assert!(of_host.times() > 0, "{profile}: it was acknowledged");
        assert!(!pair.host.engine.rests(), "{profile}: an answer is there to be read");
        pair.until("it is served", |pair| {
            pair.serve(true);
            pair.host.ended.len() == 1
        });
    }
}

/// A queue of RDMA READs, of which the connection has only so many under way: those behind wait as well.
#[test]
fn who_has_all_reads_under_way_sleeps() {
    for profile in PROFILES {
        let (mut pair, [_, of_target]) = connected(profile);
        let segment = pair.host.segment(0, 65_536);
        pair.host.submit(1, Access::RemoteRead, &[segment], true).unwrap();
        pair.until("the host sleeps", |pair| !pair.target.commands.is_empty() && sleeps(pair, host));
        let (_, grants) = pair.target.take_command().unwrap();
        let remote = RemoteRange { address: grants[0].address, key: grants[0].key };
        let connection = pair.target.connection.unwrap();
        for (cookie, place) in (2..34).zip(0..) {
            let (local, remote) = ([pair.target.segment(place * 512, 512)], [RemoteSegment { remote, length: 512 }]);
            let fetch = FetchRequest { local: &local, remote: &remote, cookie };
            pair.target.engine.fetch(connection, &fetch).unwrap();
        }
        pair.target.engine.flush();
        let mut polls = 0;
        while !sleeps(&mut pair, target) {
            polls += 1;
            assert!(polls < 10, "{profile}: it polls on, and only the host can answer");
        }
        of_target.times();
        pair.host.step(pair.now);
        assert!(of_target.times() > 0, "{profile}");
        pair.until("all are fetched", |pair| pair.target.fetched == 32);
    }
}

/// What came in front of the bell was armed is found by the poll behind it, which does a part of it: nobody rings for the rest.
#[test]
fn who_has_answered_a_part_of_a_read_does_not_sleep() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.host_device.wire_packets = 2;
        setup.target_device.wire_packets = 2;
        let mut pair = setup.apart(|device| device);
        let _woken = [Woken::of(&mut pair.host), Woken::of(&mut pair.target)];
        pair.connect();
        let segment = pair.host.segment(0, 65_536);
        pair.host.submit(1, Access::RemoteRead, &[segment], true).unwrap();
        pair.until("the host sleeps", |pair| !pair.target.commands.is_empty() && sleeps(pair, host));
        let (_, grants) = pair.target.take_command().unwrap();
        let remote = RemoteRange { address: grants[0].address, key: grants[0].key };
        let remote = [RemoteSegment { remote, length: 65_536 }];
        let (connection, local) = (pair.target.connection.unwrap(), [pair.target.segment(0, 65_536)]);
        let fetch = FetchRequest { local: &local, remote: &remote, cookie: 2 };
        // Its bell is not armed any more: this rings it, before the host looks.
        pair.target.engine.fetch(connection, &fetch).unwrap();
        pair.target.engine.flush();
        assert!(sleeps(&mut pair, host) && !pair.host.engine.rests(), "{profile}: sixteen packets, of which two went");
        pair.until("fetched", |pair| pair.target.fetched == 1);
        pair.until("all is taken", |pair| sleeps(pair, host) && pair.host.engine.rests());
    }
}

#[test]
fn who_is_not_asleep_is_not_woken() {
    let (mut pair, [of_host, of_target]) = connected("reg_mr");
    // Both were armed, and are not again.
    for request in 0..5 {
        let segment = pair.host.segment(0, 4096);
        pair.host.submit(request, Access::RemoteWrite, &[segment], true).unwrap();
        pair.until("it is served", |pair| {
            pair.serve(true);
            pair.host.ended.len() as u64 == request + 1
        });
    }
    // By their first packet, and by Control perhaps.
    assert!(of_host.times() <= 2 && of_target.times() <= 2);
}

#[test]
fn what_control_says_wakes_its_core() {
    for profile in PROFILES {
        let (mut pair, [_, of_target]) = connected(profile);
        assert!(sleeps(&mut pair, target));
        // A second connection: the target hears of it from Control.
        let (address, options) = (pair.address, pair.host.connection_options());
        pair.host.engine.connect(address, b"again", &options).unwrap();
        for _ in 0..100 {
            pair.host.step(pair.now);
            pair.target.control.poll();
        }
        assert!(of_target.times() > 0, "{profile}");
    }
}

/// Its core is gone, or its process: nobody says goodbye. Who waits for an answer hears of it, and polls on until it is given up.
#[test]
fn a_peer_that_goes_wakes_the_other() {
    for profile in PROFILES {
        let (mut pair, [of_host, _]) = connected(profile);
        let segment = pair.host.segment(0, 4096);
        pair.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        pair.host.engine.flush();
        assert!(sleeps(&mut pair, host));
        let Pair { target: peer, mut host, now, .. } = pair;
        drop(peer);
        assert!(of_host.times() > 0, "{profile}");
        assert!(!host.engine.rests(), "{profile}: who is gone answers nothing that would wake it");
        let mut polls = 0;
        while host.ended.is_empty() {
            assert!(polls < 10_000, "{profile}: it waits for who is gone");
            host.step(now);
            host.control.poll();
            polls += 1;
        }

        let (mut pair, [_, of_target]) = connected(profile);
        assert!(sleeps(&mut pair, target));
        let Pair { host, .. } = pair;
        drop(host);
        assert!(of_target.times() > 0, "{profile}");
    }
}

#[test]
fn an_engine_without_a_waker_is_polled_on() {
    let mut pair = Pair::new("reg_mr");
    pair.steps(50);
    assert!(!pair.host.engine.arm() && !pair.target.engine.arm());
}
