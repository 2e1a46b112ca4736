//! Promise Credits on connections where both sides ask: whatever a peer is granted it may use while all our requests are
//! outstanding, however the receives are parted; and what would wait for a receive for ever is refused.

use frwr_engine::{
    ConnectionOptions, EngineOptions, Event, ReceiveBuffers, ReceiveQueues, RemoteSegment, ResponseRequest,
    SubmitError, TransferError, WriteRequest,
    provider::{
        Access, RemoteRange,
        soft::{SoftDevice, SoftFabric, SoftMonitor, SoftOptions},
    },
};
use frwr_support::Random;
use frwr_support::engine_harness::{self, PROFILES, Pair, Setup, Side};

/// Cookies of the target's requests begin here, so that names of both directions differ.
const OF_TARGET: u64 = 1 << 32;

/// Two sides that both ask, their devices' monitors, and what each is granted by the other.
struct Mutual {
    pair: Pair,
    monitors: [SoftMonitor; 2],
    granted: [u32; 2],
    next: [u64; 2],
}

fn options(depth: u32, receives: u32) -> EngineOptions {
    EngineOptions::default().connections(1).queue_depth(depth).transfer_depth(receives).receive_depth(receives)
}

/// `grants`: what host and target grant; `None` leaves it to the engine.
fn mutual(profile: &str, engine: &EngineOptions, grants: [Option<u32>; 2], told: [u32; 2]) -> Mutual {
    let fabric = SoftFabric::new();
    let device = || fabric.device(SoftOptions::new(profile.parse().unwrap()));
    let (host, target) = (device(), device());
    let monitors = [host.monitor(), target.monitor()];
    let mut setup = Setup::new(profile);
    (setup.host, setup.target) = (engine.clone(), engine.clone());
    let mut pair = setup.over(host, target, engine_harness::address());
    let [of_host, of_target] = grants;
    // Each may send unasked what the other one grants.
    (pair.host.granted_receives, pair.target.granted_receives) = (of_host, of_target);
    (pair.host.peer_receives, pair.target.peer_receives) = (told[1], told[0]);
    pair.connect();
    Mutual { pair, monitors, granted: told, next: [0, OF_TARGET] }
}

impl Mutual {
    fn sides(&mut self) -> [&mut Side<SoftDevice>; 2] {
        [&mut self.pair.host, &mut self.pair.target]
    }

    /// Both submit until everything that can wait for a slot does.
    fn submit_all(&mut self, most: u64) {
        let mut next = self.next;
        for (side, next) in self.sides().into_iter().zip(&mut next) {
            for _ in 0..most {
                match side.submit(*next, Access::RemoteWrite, &[side.segment(0, 64)], true) {
                    Ok(_) => *next += 1,
                    Err(SubmitError::NoSlot) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        self.next = next;
    }

    /// Each side answers what it holds, most of it or some.
    fn answer(&mut self, random: &mut Random, always: bool) {
        for side in self.sides() {
            while !side.commands.is_empty() && (always || random.below(3) > 0) {
                let (name, grants) = side.take_command().unwrap();
                let key = grants.first().map(|grant| grant.key).filter(|_| random.below(2) == 0);
                side.answer(name, &grants, key);
            }
        }
    }

    fn check(&self, context: &str) {
        for (monitor, side) in self.monitors.iter().zip(["host", "target"]) {
            assert_eq!(monitor.messages_without_receive(), 0, "{context}: the {side} had no receive for a message");
        }
    }

    fn run(&mut self, random: &mut Random, context: &str) {
        for round in 0..60 {
            self.submit_all(random.below(40));
            // In some rounds nothing is answered, so that all that was granted is used, and all requests are outstanding.
            if round % 3 > 0 {
                self.answer(random, false);
            }
            self.pair.steps(1 + random.below(12) as u32);
            self.check(context);
        }
        let all = (self.next[0] + self.next[1] - OF_TARGET) as usize;
        let mut patience = 4000;
        while self.pair.host.ended.len() + self.pair.target.ended.len() < all {
            self.answer(random, true);
            self.pair.steps(1);
            patience -= 1;
            let waiting = [self.pair.host.engine.waiting(), self.pair.target.engine.waiting()];
            assert!(patience > 0, "{context}: never ended: {waiting:?}");
        }
        self.check(context);
        for side in self.sides() {
            assert!(side.ended.iter().all(|(_, status)| *status == "replied"), "{context}");
            assert_eq!(side.disconnected, 0, "{context}");
            assert_eq!(side.engine.waiting(), frwr_engine::Waiting::default(), "{context}");
        }
    }
}

/// What `Event::Connected` said.
fn told(side: &Side<SoftDevice>) -> u32 {
    let connected = side.events.iter().find(|event| event.starts_with("Connected")).unwrap();
    connected.split("receives: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn both_sides_ask_and_the_peer_uses_all_that_it_is_granted_for_every_split() {
    const RECEIVES: u32 = 12;
    for (number, profile) in PROFILES.iter().enumerate() {
        let engine = options(12, RECEIVES);
        for of_host in 1..RECEIVES {
            for of_target in [1, RECEIVES / 2, RECEIVES - of_host, RECEIVES - 1] {
                let context = format!("{profile}, host grants {of_host}, target {of_target}");
                let grants = [of_host, of_target];
                let mut mutual = mutual(profile, &engine, grants.map(Some), grants);
                assert_eq!([told(&mutual.pair.host), told(&mutual.pair.target)], grants, "{context}");
                assert_eq!(mutual.granted, grants);
                mutual.run(&mut Random::new(u64::from(of_host * 100 + of_target) + number as u64), &context);
            }
        }
    }
}

#[test]
fn what_connected_says_may_be_used_whole_with_the_default_options() {
    for profile in PROFILES {
        let engine = EngineOptions::default().connections(1).transfer_depth(72);
        // A first connection tells what the defaults grant; a protocol fixes that number.
        let first = mutual(profile, &engine, [None; 2], [1, 1]);
        let granted = [told(&first.pair.host), told(&first.pair.target)];
        assert!(granted.iter().all(|granted| *granted >= 32), "{profile}: {granted:?}");
        let mut mutual = mutual(profile, &engine, [None; 2], granted);
        mutual.run(&mut Random::new(7), profile);
        let most = mutual.pair.host.engine.statistics();
        assert!(most.requests > 100, "{profile}: {most:?}");
    }
}

#[test]
fn shared_receives_are_parted_alike() {
    for profile in ["reg_mr", "window"] {
        for of_host in [1, 5, 11] {
            let engine = options(12, 12).receive_queues(ReceiveQueues::Shared { entries: 0 });
            let grants = [of_host, 12 - of_host];
            let mut mutual = mutual(profile, &engine, grants.map(Some), grants);
            mutual.run(&mut Random::new(u64::from(of_host)), &format!("{profile}, {of_host}"));
        }
    }
}

#[test]
fn replies_that_the_caller_holds_are_no_receives_for_others() {
    let engine = options(8, 6);
    let mut mutual = mutual("reg_mr", &engine, [Some(3); 2], [3, 3]);
    // The target asks, and holds what it is answered.
    let mut held = Vec::new();
    for cookie in 0..8 {
        mutual.pair.target.submit(OF_TARGET + cookie, Access::RemoteWrite, &[], false).unwrap();
    }
    mutual.pair.host.submit(0, Access::RemoteWrite, &[], false).unwrap();
    for _ in 0..200 {
        while let Some((name, _)) = mutual.pair.host.take_command() {
            mutual.pair.host.answer(name, &[], None);
        }
        mutual.pair.host.step(mutual.pair.now);
        let target = &mut mutual.pair.target;
        target.control.poll();
        target.engine.poll(mutual.pair.now, &mut target.protocol);
        while let Some(event) = target.engine.next_event() {
            if let Event::Completed { status: frwr_engine::RequestStatus::Replied(received), .. } = event {
                held.push(received);
            } else {
                target.event(event);
            }
        }
        target.engine.flush();
        mutual.check("held");
    }
    assert_eq!(held.len(), 3, "three receives are for replies");
    let waiting = mutual.pair.target.engine.waiting();
    assert_eq!((waiting.requests.reply_receives, waiting.requests.order), (1, 4), "{waiting:?}");
    assert_eq!(mutual.pair.target.commands.len(), 1, "what was granted is free all the same");
    for received in held {
        mutual.pair.target.engine.release(received);
    }
    mutual.pair.until("answered", |pair| {
        while let Some((name, _)) = pair.host.take_command() {
            pair.host.answer(name, &[], None);
        }
        pair.target.ended.len() == 5
    });
    mutual.check("released");
}

#[test]
fn a_requester_that_says_nothing_of_its_peers_receives_is_refused_at_once() {
    for profile in PROFILES {
        let mut pair = Setup::new(profile).peer_receives(0).pair();
        let memory = [pair.host.segment(0, 4096)];
        let refused = pair.host.submit(0, Access::RemoteWrite, &memory, true);
        assert_eq!(refused, Err(SubmitError::NoPeerReceives), "{profile}");
        assert!(SubmitError::NoPeerReceives.to_string().contains("ConnectionOptions::peer_receives"));
        // Memory without a message needs no receive.
        let now = frwr_engine::Chunk { access: Access::RemoteRead, segments: &memory };
        let host = &mut pair.host;
        host.engine.register_now(host.connection.unwrap(), &now, 1, &mut host.protocol).unwrap();
        pair.until("open", |pair| pair.host.grants.len() == 1);
        let statistics = pair.host.engine.statistics();
        assert_eq!((statistics.requests_waited, statistics.request_slots_used), (0, 1), "{profile}");
    }
}

#[test]
fn a_responder_that_asks_behind_a_command_uses_the_receive_that_came_with_it() {
    for profile in PROFILES {
        let engine = options(4, 8);
        // The target may send nothing unasked.
        let mut mutual = mutual(profile, &engine, [Some(0), Some(4)], [0, 4]);
        let pair = &mut mutual.pair;
        let unasked = pair.target.submit(OF_TARGET, Access::RemoteWrite, &[], false);
        assert_eq!(unasked, Err(SubmitError::NoPeerReceives), "{profile}");
        let message = [0; 12];
        let unasked = ResponseRequest { local: &[], remote: &[], message: &message, invalidate: None, cookie: 0 };
        let connection = pair.target.connection.unwrap();
        assert_eq!(pair.target.engine.respond(connection, &unasked), Err(TransferError::NoPeerReceives));
        pair.host.submit(0, Access::RemoteWrite, &[], false).unwrap();
        pair.until("a command", |pair| !pair.target.commands.is_empty());
        pair.target.submit(OF_TARGET + 1, Access::RemoteWrite, &[], false).unwrap();
        // Its own answer is on the way, and brings the receive of the one behind.
        pair.target.submit(OF_TARGET + 2, Access::RemoteWrite, &[], false).unwrap();
        let waiting = pair.target.engine.waiting().requests;
        assert_eq!((waiting.peer_receives, waiting.total()), (1, 1), "{profile}");
        pair.until("asked and answered", |pair| {
            while let Some((name, _)) = pair.host.take_command() {
                pair.host.answer(name, &[], None);
            }
            pair.target.ended.len() == 2
        });
        let (name, _) = pair.target.take_command().unwrap();
        pair.target.answer(name, &[], None);
        pair.until("answered", |pair| pair.host.ended.len() == 1);
        let waits = pair.target.engine.statistics().request_waits;
        assert_eq!((waits.peer_receives, waits.total()), (1, 1), "{profile}");
        mutual.check(profile);
    }
}

/// What needs no receive of the peer would find all that it needs.
#[test]
fn a_write_does_not_pass_an_answer_that_waits_for_a_receive_of_the_peer() {
    for profile in PROFILES {
        let mut mutual = mutual(profile, &options(4, 8), [Some(0), Some(4)], [0, 4]);
        let pair = &mut mutual.pair;
        for cookie in [0, 1] {
            let opened = pair.host.segment(cookie * 64, 64);
            pair.host.submit(cookie, Access::RemoteWrite, &[opened], false).unwrap();
        }
        pair.until("commands", |pair| pair.target.commands.len() == 2);
        // They take the receives that came with the commands.
        for cookie in [OF_TARGET, OF_TARGET + 1] {
            pair.target.submit(cookie, Access::RemoteWrite, &[], false).unwrap();
        }
        let (name, _) = pair.target.take_command().unwrap();
        let (last, grants) = pair.target.take_command().unwrap();
        pair.target.answer(name, &[], None);
        let remote = RemoteRange { address: grants[0].address, key: grants[0].key };
        let (local, remote) = ([pair.target.segment(0, 64)], [RemoteSegment { remote, length: 64 }]);
        let connection = pair.target.connection.unwrap();
        let write = WriteRequest { local: &local, remote: &remote, cookie: 9 };
        pair.target.engine.write(connection, &write).unwrap();
        let waiting = pair.target.engine.waiting().transfers;
        assert_eq!((waiting.peer_receives, waiting.order, waiting.total()), (1, 1, 2), "{profile}");
        pair.until("asked and answered", |pair| {
            while let Some((name, _)) = pair.host.take_command() {
                pair.host.answer(name, &[], None);
            }
            pair.target.ended.len() == 2 && pair.host.ended.len() == 1
        });
        let written = |event: &String| *event == "Written { cookie: 9, status: Done }";
        pair.until("written", |pair| pair.target.events.iter().any(written));
        pair.target.answer(last, &[], None);
        pair.until("answered", |pair| pair.host.ended.len() == 2);
    }
}

#[test]
fn a_connection_whose_receives_are_all_granted_takes_no_requests() {
    let engine = options(4, 8);
    let mut mutual = mutual("reg_mr", &engine, [Some(8), None], [8, 1]);
    assert_eq!(told(&mutual.pair.host), 8);
    let refused = mutual.pair.host.submit(0, Access::RemoteWrite, &[], false);
    assert_eq!(refused, Err(SubmitError::NoReplyReceives));
    assert!(SubmitError::NoReplyReceives.to_string().contains("granted_receives"));
    // So does one that was made for no requests.
    let options = options(4, 8).queue_depth(0);
    let mut mutual = self::mutual("reg_mr", &options, [None; 2], [8, 8]);
    assert_eq!(told(&mutual.pair.target), 8, "a mere responder grants all that it has");
    assert_eq!(
        mutual.pair.target.submit(OF_TARGET, Access::RemoteWrite, &[], false),
        Err(SubmitError::NoReplyReceives)
    );
}

#[test]
fn more_promised_than_posted_is_counted_by_the_software_nic() {
    for profile in PROFILES {
        let mut engine = options(8, 8);
        let fabric = SoftFabric::new();
        let device = || fabric.device(SoftOptions::new(profile.parse().unwrap()));
        let (host, target) = (device(), device());
        let monitor = target.monitor();
        let mut setup = Setup::new(profile).peer_receives(8);
        setup.host = engine.clone();
        (engine.queue_depth, engine.receive_depth) = (0, 1);
        setup.target = engine;
        let mut pair = setup.over(host, target, engine_harness::address());
        pair.connect();
        assert_eq!(told(&pair.target), 1, "it is told what it may promise");
        for cookie in 0..8 {
            pair.host.submit(cookie, Access::RemoteWrite, &[], false).unwrap();
        }
        pair.steps(40);
        assert_eq!(monitor.messages_without_receive(), 1, "{profile}: the others stand behind it");
    }
}

#[test]
fn what_waits_is_told_by_its_cause() {
    let engine = options(4, 8).registrations(2);
    let mut mutual = mutual("reg_mr", &engine, [Some(4); 2], [4, 4]);
    let pair = &mut mutual.pair;
    for cookie in 0..4 {
        let memory = [pair.host.segment(cookie * 4096, 4096)];
        pair.host.submit(cookie, Access::RemoteWrite, &memory, true).unwrap();
    }
    let waiting = pair.host.engine.waiting().requests;
    assert_eq!((waiting.registrations, waiting.order), (1, 1), "{waiting:?}");
    let mut cookie = 4;
    while pair.host.submit(cookie, Access::RemoteWrite, &[], false).is_ok() {
        cookie += 1;
    }
    let statistics = pair.host.engine.statistics();
    assert_eq!((statistics.requests_without_slot, cookie), (1, 8), "twice as many slots as the queue is deep");
    assert_eq!(statistics.request_waits.total(), statistics.requests_waited);
    pair.until("ended", |pair| {
        pair.serve(true);
        pair.host.ended.len() as u64 == cookie
    });
    assert_eq!(pair.host.engine.waiting(), frwr_engine::Waiting::default());

    // Messages alone, beyond what the peer has posted.
    for cookie in 100..106 {
        pair.host.submit(cookie, Access::RemoteWrite, &[], false).unwrap();
    }
    let waiting = pair.host.engine.waiting().requests;
    assert_eq!((waiting.peer_receives, waiting.order), (1, 1), "{waiting:?}");
}

/// Buffers that the caller holds of a former connection are missing from its requests first, never from what the peer was promised.
#[test]
fn what_is_held_of_a_former_connection_is_missing_from_replies_and_comes_back_to_them() {
    let engine = options(4, 4);
    let mut mutual = mutual("reg_mr", &engine, [Some(1), Some(3)], [1, 3]);
    let pair = &mut mutual.pair;
    for cookie in 0..3 {
        pair.host.submit(cookie, Access::RemoteWrite, &[], false).unwrap();
    }
    pair.until("held", |pair| pair.target.commands.len() == 3);
    let held: Vec<_> = pair.target.commands.drain(..).collect();
    pair.host.engine.disconnect(pair.host.connection.unwrap());
    pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    pair.target.events.clear();
    pair.connect();
    assert_eq!(told(&pair.target), 1, "of four, three are held");
    // It would ask, and waits: what it holds is to be for its replies.
    pair.target.submit(OF_TARGET, Access::RemoteWrite, &[], false).unwrap();
    let waiting = pair.target.engine.waiting().requests;
    assert_eq!((waiting.reply_receives, waiting.total()), (1, 1), "{waiting:?}");
    for received in held {
        pair.target.engine.release(received);
    }
    pair.until("answered", |pair| {
        while let Some((name, _)) = pair.host.take_command() {
            pair.host.answer(name, &[], None);
        }
        pair.target.ended.len() == 1
    });
    mutual.check("held over");
}

/// Buffers of a former connection that came back are for replies, and no reply is due: who can send nothing unasked is told so, and does
/// not wait for what nobody will send.
#[test]
fn what_came_back_of_a_former_connection_is_no_reply_that_is_due() {
    for back in 1..=3 {
        let mut mutual = mutual("reg_mr", &options(4, 4), [Some(1), Some(3)], [1, 3]);
        let pair = &mut mutual.pair;
        for cookie in 0..3 {
            pair.host.submit(cookie, Access::RemoteWrite, &[], false).unwrap();
        }
        pair.until("held", |pair| pair.target.commands.len() == 3);
        let held: Vec<_> = pair.target.commands.drain(..).collect();
        pair.host.engine.disconnect(pair.host.connection.unwrap());
        pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        pair.target.peer_receives = 0;
        pair.connect();
        for received in held.into_iter().take(back) {
            pair.target.engine.release(received);
        }
        let refused = pair.target.submit(OF_TARGET, Access::RemoteWrite, &[], false);
        assert_eq!(refused, Err(SubmitError::NoPeerReceives), "{back} are back");
    }
}

/// A buffer that came back to a connection which then could not be opened, before the next flush: it is not posted for that one any more,
/// and once for the next.
#[test]
fn a_buffer_that_came_back_to_a_connection_that_does_not_open_is_the_next_ones() {
    let mut mutual = mutual("reg_mr", &options(4, 4), [Some(1), Some(3)], [1, 3]);
    let pair = &mut mutual.pair;
    for cookie in 0..3 {
        pair.host.submit(cookie, Access::RemoteWrite, &[], false).unwrap();
    }
    pair.until("held", |pair| pair.target.commands.len() == 3);
    let mut held: Vec<_> = pair.target.commands.drain(..).collect();
    pair.host.engine.disconnect(pair.host.connection.unwrap());
    pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    let poll = |pair: &mut Pair| {
        pair.target.control.poll();
        pair.target.engine.poll(pair.now, &mut pair.target.protocol);
    };
    let nowhere = "127.0.0.1:1".parse().unwrap();
    pair.target.engine.connect(nowhere, b"", &pair.target.connection_options()).unwrap();
    while pair.target.engine.receive_buffers().posted == 0 {
        poll(pair);
    }
    pair.target.engine.release(held.pop().unwrap());
    while pair.target.open_failed == 0 {
        poll(pair);
        while let Some(event) = pair.target.engine.next_event() {
            pair.target.event(event);
        }
    }
    pair.target.engine.flush();
    let refused = pair.target.engine.statistics().posts_refused;
    assert_eq!((refused, pair.target.engine.receive_buffers()), (0, ReceiveBuffers { posted: 0, held: 2, idle: 2 }));
    // Two are held of four.
    (pair.target.granted_receives, pair.host.peer_receives) = (Some(2), 2);
    pair.connect();
    for cookie in 10..12 {
        pair.host.submit(cookie, Access::RemoteWrite, &[], false).unwrap();
    }
    pair.until("told", |pair| pair.target.commands.len() == 2);
    mutual.check("behind one that did not open");
}

#[test]
fn the_default_options_ask_for_nothing_and_are_refused_by_name() {
    // What an embedder writes first.
    let setup = Setup::new("reg_mr");
    let mut pair = setup.apart(|device| device);
    let connection = pair.host.engine.connect(pair.address, b"", &ConnectionOptions::default()).unwrap();
    pair.host.connection = Some(connection);
    pair.until("connected", |pair| pair.host.is_ready() && pair.target.is_ready());
    let refused = pair.host.submit(0, Access::RemoteRead, &[pair.host.segment(0, 64)], false);
    assert_eq!(refused, Err(SubmitError::NoPeerReceives));
}
