//! Another process may say anything: what it says costs its own connection, and nothing else.

use super::middleman::{Meddle, Middleman, Talk, connected, say};
use super::random::Random;
use super::{Place, device};
use crate::harness::pair::{Ends, Pair};
use crate::harness::soft::ADDRESS;
use crate::harness::{Builder, SIZES, pattern, statuses};
use frwr_engine::provider::soft::{SoftDevice, SoftOptions, SoftProfile};
use frwr_engine::provider::{Access, AsyncEvent, Command, ConnectionEvent, DeviceEvent};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

/// Seeds for each profile.
const SEEDS: u64 = 150;
/// Where both of them listen: the one that is asked through the middleman, and the one that is asked without.
const DIRECT: SocketAddr = SocketAddr::new(ADDRESS.ip(), 4421);
/// Bytes of the message that receives take, of what is open to the peer, and of what nobody may touch.
const LENGTH: u32 = 10_000;
const OPEN: u64 = 100_000;
const RECEIVES: u32 = 8;

/// Makes another message of one, or several, or none.
fn meddle(random: &mut Random, mut message: Vec<u8>) -> Vec<Vec<u8>> {
    match random.below(8) {
        0 => vec![],
        1 => vec![message.clone(), message],
        2 => {
            message.truncate(random.below(message.len()));
            vec![message]
        }
        3 => {
            message.extend((0..=random.below(64)).map(|_| random.next() as u8));
            vec![message]
        }
        4 => vec![(0..=random.below(100)).map(|_| random.next() as u8).collect()],
        // Most of what decides is in front.
        _ => {
            for _ in 0..=random.below(3) {
                let end = if random.one_in(2) { message.len().min(24) } else { message.len() };
                let at = random.below(end);
                message[at] = if random.one_in(2) { random.next() as u8 } else { message[at] ^ (1 << random.below(8)) };
            }
            vec![message]
        }
    }
}

struct Scene {
    pair: Pair<SoftDevice>,
    between: Middleman,
    directory: std::path::PathBuf,
    _place: Place,
}

impl Scene {
    fn new(profile: SoftProfile) -> Self {
        let place = Place::new();
        let (here, there) = (place.directory("here"), place.directory("there"));
        let options = SoftOptions::new(profile);
        let pair = Pair::new(device(&here, options), device(&there, options), ADDRESS);
        let between = Middleman::new(&here, &there, &ADDRESS.to_string());
        Self { pair, between, directory: there, _place: place }
    }

    /// Connects two queue pairs, or fails to.
    fn connect(&mut self, meddle: Meddle<'_>) -> Ends {
        let pair = &mut self.pair;
        let ends = Ends { owner: pair.owner.queue_pair(SIZES), peer: pair.peer.queue_pair(SIZES) };
        pair.owner.connect(ends.owner, ADDRESS, Default::default());
        let mut accepted = false;
        for _ in 0..40 {
            self.between.step(meddle);
            pair.step();
            for event in pair.peer.connection_events() {
                let ConnectionEvent::Request { incoming, private_data, parameters, .. } = event else { continue };
                let queue_pair = ends.peer;
                let accept = Command::Accept { incoming, queue_pair, private_data, parameters };
                // A request that came twice has one queue pair.
                assert!(pair.peer.command(accept).is_ok() || accepted);
                accepted = true;
            }
        }
        ends
    }

    /// All kinds of operations, both ways, if there is a connection.
    fn work(&mut self, ends: Ends, meddle: Meddle<'_>) {
        let Pair { owner, peer, .. } = &mut self.pair;
        let mut slot = owner.slot(ends.owner);
        let opened = [owner.element(OPEN, LENGTH)];
        let (opening, grant) = Builder::new().register(owner, &mut slot, &opened, Access::RemoteReadWrite);
        let opening = opening.send(&[owner.element(0, LENGTH / 10)]).send(&[owner.element(0, LENGTH / 20)]).signalled();
        let local = [peer.element(OPEN, LENGTH)];
        let answer = Builder::new().read(&local, grant.at(0)).write(&local, grant.at(0)).read(&local, grant.at(0));
        let answer = answer.send_invalidating(&[peer.element(0, 64)], slot.key).signalled();
        owner.post_receives(ends.owner, 0, RECEIVES);
        peer.post_receives(ends.peer, 0, RECEIVES);
        // Refused where there is no connection.
        let _ = owner.post(ends.owner, &opening);
        for _ in 0..20 {
            self.between.step(meddle);
            self.pair.step();
        }
        let _ = self.pair.peer.post(ends.peer, &answer);
        for _ in 0..60 {
            self.between.step(meddle);
            self.pair.step();
        }
        let free = Command::FreeRegistration { object: slot.object };
        self.end(ends);
        self.pair.owner.command(free).expect("freed");
        self.pair.owner.assert_open(0);
    }

    /// Moves both queue pairs to the error state: each receive has come back once.
    fn end(&mut self, ends: Ends) {
        let Pair { owner, peer, .. } = &mut self.pair;
        for (host, queue_pair) in [(owner, ends.owner), (peer, ends.peer)] {
            host.command(Command::FailQueuePair { queue_pair }).expect("failed");
            host.step();
            let mut tokens: Vec<u64> = host.received.drain(..).map(|completion| completion.token.0).collect();
            tokens.sort_unstable();
            let all = tokens.len();
            tokens.dedup();
            assert_eq!((all, tokens.len()), (RECEIVES as usize, RECEIVES as usize), "each receive once");
            host.command(Command::Disconnect { queue_pair }).expect("disconnected");
            host.command(Command::DestroyQueuePair { queue_pair }).expect("destroyed");
            host.sent.clear();
        }
    }
}

/// What both hosts have that no message may touch: behind what is open, and behind what is sent.
fn untouched(pair: &Pair<SoftDevice>) -> [Vec<u8>; 2] {
    let open = OPEN as usize;
    [&pair.owner, &pair.peer].map(|host| {
        [host.read_memory(LENGTH as usize, open - LENGTH as usize), host.read_memory(open + LENGTH as usize, 100_000)]
            .concat()
    })
}

#[test]
fn what_is_said_costs_its_own_connection_and_nothing_else() {
    let (mut ended, mut whole, mut meddled) = (0, 0, 0);
    for (at, profile) in SoftProfile::ALL.into_iter().enumerate() {
        let mut scene = Scene::new(profile);
        scene.pair.owner.write_memory(0, &pattern(1, 1 << 19));
        scene.pair.peer.write_memory(0, &pattern(2, 1 << 19));
        let before = untouched(&scene.pair);
        for seed in 0..SEEDS {
            eprintln!("profile {profile}, seed {seed}");
            let mut random = Random(seed + at as u64 * SEEDS);
            // Connections that come to something, too.
            let (rarely, what) = (random.below(5) + 2, random.below(3));
            let mut meddling = |talk: Talk, message: Vec<u8>| {
                let is_meant = match what {
                    0 => talk == Talk::ConnectionManagers,
                    1 => talk == Talk::QueuePairs,
                    _ => true,
                };
                if is_meant && random.one_in(rarely) {
                    meddled += 1;
                    return meddle(&mut random, message);
                }
                vec![message]
            };
            let ends = scene.connect(&mut meddling);
            scene.work(ends, &mut meddling);
            let Pair { owner, peer, .. } = &mut scene.pair;
            let is_fatal = |event: &DeviceEvent| matches!(event, DeviceEvent::Async(AsyncEvent::QueuePairFatal(_)));
            ended += u64::from(owner.events.iter().chain(&peer.events).any(is_fatal));
            owner.events.clear();
            peer.events.clear();
            assert_eq!(untouched(&scene.pair), before);
            // Whoever is next finds all as it was.
            if seed % 10 == 0 {
                let mut handing_on = |_, message| vec![message];
                let ends = scene.connect(&mut handing_on);
                scene.work(ends, &mut handing_on);
                whole += 1;
            }
        }
    }
    assert!(
        ended > SEEDS && meddled > 5 * SEEDS,
        "{ended} ended of {meddled} messages that were meddled with, {whole} whole"
    );
}

/// Not from the other side of a connection, but from anybody of the same user.
#[test]
fn what_no_connection_manager_says_ends_a_conversation() {
    let mut scene = Scene::new(SoftProfile::RegMr);
    let pair = &mut scene.pair;
    assert!(pair.peer.command(Command::Listen { address: DIRECT }).is_ok());
    let mut random = Random(7);
    for length in [0, 1, 2, 9, 60, 127, 128, 129, 4096, 60_000] {
        let socket = connected(&scene.directory, &DIRECT.to_string());
        let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        // With more descriptors than anybody asks for.
        let descriptors = [socket.as_fd(); 8];
        say(&socket, &noise, &descriptors);
        (0..5).for_each(|_| pair.peer.step());
        assert!(!say(&socket, b"x", &[]), "the conversation of {length} bytes goes on");
    }
    assert_eq!(statuses(&pair.peer.sent), []);
    assert_eq!(pair.peer.connection_events().len(), 0);
    let mut handing_on = |_, message| vec![message];
    let ends = scene.connect(&mut handing_on);
    scene.work(ends, &mut handing_on);
}

/// What is passed with an accept may be anything that a process can hold.
#[test]
fn what_is_no_socket_of_packets_ends_a_connection() {
    let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").expect("there"));
    let null = || OwnedFd::from(std::fs::File::options().read(true).write(true).open("/dev/null").expect("there"));
    let pipe = || OwnedFd::from(std::io::pipe().expect("a pipe").0);
    // Both block, and nothing ever comes.
    let stream = || {
        let (one, other) = UnixStream::pair().expect("sockets");
        std::mem::forget(other);
        OwnedFd::from(one)
    };
    let listener = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let mut handing_on = |_, message| vec![message];
    for instead in [file as fn() -> OwnedFd, null, pipe, stream, listener] {
        let mut scene = Scene::new(SoftProfile::RegMr);
        scene.between.pass(Some(instead));
        let ends = scene.connect(&mut handing_on);
        scene.work(ends, &mut handing_on);
        scene.between.pass(None);
        let ends = scene.connect(&mut handing_on);
        scene.work(ends, &mut handing_on);
    }
}
